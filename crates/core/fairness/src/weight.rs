//! Weights as a type, so that zero, negative, fractional and NaN weights cannot reach a solver: they
//! would starve a tenant or never terminate.

use serde::{Deserialize, Serialize};
use snic_domain::limits::TENANT_WEIGHT_MAX;

/// A tenant's weight: a whole number from 1 to [`TENANT_WEIGHT_MAX`]. A tenant of weight 2 gets
/// twice the share of a tenant of weight 1 if both want more than there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Weight(u32);

/// A number that is not a valid weight.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("weight {given} is not a whole number from 1 to {TENANT_WEIGHT_MAX}")]
pub struct InvalidWeight {
    /// The number as it was given.
    pub given: String,
}

impl Weight {
    /// The default weight.
    pub const ONE: Self = Self(1);

    /// Checks the number.
    ///
    /// # Errors
    ///
    /// [`InvalidWeight`] for zero and for more than [`TENANT_WEIGHT_MAX`].
    pub fn new(weight: u32) -> Result<Self, InvalidWeight> {
        if (1..=TENANT_WEIGHT_MAX).contains(&weight) {
            Ok(Self(weight))
        } else {
            Err(InvalidWeight { given: weight.to_string() })
        }
    }

    /// The number, 1 to [`TENANT_WEIGHT_MAX`].
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

impl From<Weight> for u32 {
    fn from(weight: Weight) -> Self {
        weight.0
    }
}

impl TryFrom<u32> for Weight {
    type Error = InvalidWeight;
    fn try_from(weight: u32) -> Result<Self, InvalidWeight> {
        Self::new(weight)
    }
}

impl TryFrom<i64> for Weight {
    type Error = InvalidWeight;
    fn try_from(weight: i64) -> Result<Self, InvalidWeight> {
        u32::try_from(weight)
            .map_err(|_| InvalidWeight { given: weight.to_string() })
            .and_then(Self::new)
    }
}

impl TryFrom<f64> for Weight {
    type Error = InvalidWeight;
    /// Accepts whole numbers only; NaN, infinities and fractions are rejected.
    fn try_from(weight: f64) -> Result<Self, InvalidWeight> {
        let invalid = || InvalidWeight { given: weight.to_string() };
        if weight.fract() != 0.0 || !(1.0..=f64::from(TENANT_WEIGHT_MAX)).contains(&weight) {
            return Err(invalid());
        }
        Self::new(weight as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_in_range_are_accepted() {
        for good in [1, 2, 999, TENANT_WEIGHT_MAX] {
            assert_eq!(Weight::new(good).map(Weight::get), Ok(good));
            assert_eq!(Weight::try_from(f64::from(good)).map(Weight::get), Ok(good));
            assert_eq!(Weight::try_from(i64::from(good)).map(Weight::get), Ok(good));
        }
    }

    #[test]
    fn other_numbers_are_rejected_and_named() {
        for bad in [0.0, -0.0, -1.0, 0.5, 1.5, 1_000.5, 1e300, f64::NAN, f64::INFINITY] {
            let error = Weight::try_from(bad).expect_err("not a weight");
            assert_eq!(error.given, bad.to_string());
        }
        for bad in [0, -1, i64::MIN, i64::MAX, i64::from(TENANT_WEIGHT_MAX) + 1] {
            assert!(Weight::try_from(bad).is_err(), "{bad}");
        }
        let error = Weight::new(0).expect_err("zero");
        assert_eq!(error.to_string(), "weight 0 is not a whole number from 1 to 1000");
    }
}
