//! What a user demands of the FPGA (SuperNIC, 4.5): the area of each NT by the part of the NT's
//! bandwidth that it asks for.

use snic_domain::Bandwidth;

/// Demands come in thousandths of the unit of area, so that a small NT at a small bandwidth is
/// not rounded to a whole LUT. Capacities must be scaled alike.
pub const AREA_SCALE: u64 = 1_000;

/// Why an area demand cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidArea {
    /// An NT that serves nothing.
    #[error("NT {index} has a maximum bandwidth of zero: no area of it serves anything")]
    ServesNothing {
        /// Position of the NT.
        index: usize,
    },
    /// More than 64 bits.
    #[error("the demanded area does not fit in 64 bits at NT {index}: {area} units each")]
    Overflow {
        /// Position of the NT at which the sum overflows.
        index: usize,
        /// Its area.
        area: u64,
    },
}

/// The area that `requested` takes of a chain of NTs, given as (area, maximum bandwidth):
/// Σ area × requested / maximum, in [`AREA_SCALE`]ths of the unit of area, rounded up.
///
/// ```
/// use snic_domain::Bandwidth;
/// use snic_fairness::drf::{AREA_SCALE, area_demand};
/// let nts = [(4, Bandwidth::from_gbps(40))];
/// assert_eq!(area_demand(&nts, Bandwidth::from_gbps(10)), Ok(AREA_SCALE));
/// ```
///
/// # Errors
///
/// [`InvalidArea`] where an NT serves nothing, or the sum does not fit in 64 bits.
pub fn area_demand(nts: &[(u64, Bandwidth)], requested: Bandwidth) -> Result<u64, InvalidArea> {
    let mut sum = 0_u64;
    for (index, &(area, maximum)) in nts.iter().enumerate() {
        if maximum == Bandwidth::ZERO {
            return Err(InvalidArea::ServesNothing { index });
        }
        // Rounding up per NT, not over the chain: a demand must not depend on how NTs are grouped.
        sum = u128::from(area)
            .checked_mul(u128::from(AREA_SCALE))
            .and_then(|scaled| scaled.checked_mul(u128::from(requested.get())))
            .map(|product| product.div_ceil(u128::from(maximum.get())))
            .and_then(|part| u64::try_from(part).ok())
            .and_then(|part| sum.checked_add(part))
            .ok_or(InvalidArea::Overflow { index, area })?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn gbps(n: u64) -> Bandwidth {
        Bandwidth::from_gbps(n)
    }

    #[test]
    fn area_counts_by_the_fraction_of_the_bandwidth() {
        assert_eq!(area_demand(&[(4, gbps(40))], gbps(10)), Ok(AREA_SCALE));
        assert_eq!(area_demand(&[(4, gbps(40)), (3, gbps(30))], gbps(10)), Ok(2 * AREA_SCALE));
        assert_eq!(area_demand(&[(4, gbps(40))], gbps(80)), Ok(8 * AREA_SCALE));
        assert_eq!(area_demand(&[(1, gbps(3))], gbps(1)), Ok(334));
        assert_eq!(area_demand(&[], gbps(10)), Ok(0));
        assert_eq!(area_demand(&[(4, gbps(40))], gbps(0)), Ok(0));
    }

    #[test]
    fn no_bandwidth_and_overflow_are_errors() {
        let nts = [(1, gbps(1)), (7, gbps(0))];
        assert_eq!(area_demand(&nts, gbps(1)), Err(InvalidArea::ServesNothing { index: 1 }));
        let huge = [(u64::MAX, Bandwidth::from_bps(1))];
        let error = area_demand(&huge, gbps(1)).expect_err("overflows");
        assert_eq!(error, InvalidArea::Overflow { index: 0, area: u64::MAX });
        let sum = [(u64::MAX / AREA_SCALE, gbps(1)), (1, gbps(1))];
        assert!(matches!(area_demand(&sum, gbps(1)), Err(InvalidArea::Overflow { index: 1, .. })));
    }
}
