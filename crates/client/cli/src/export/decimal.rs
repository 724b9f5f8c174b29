//! Decimal numbers without rounding: quantities, prices, and their products.

use std::fmt;

/// Digits behind the point of a price, at most.
const PRICE_SCALE: u32 = 12;
/// A price is less than this.
const PRICE_END: u128 = 1_000_000;

/// A number of at least 0 with a fixed number of digits behind the point.
///
/// A quantity has at most 9 digits behind the point and a price 12, and they are less than 2⁶⁴ and 10⁶ × 10¹²; so a product is
/// less than 2⁶⁴ × 10¹⁸, which `u128` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    units: u128,
    scale: u32,
}

impl Decimal {
    /// `units` × 10^-`scale`.
    pub fn new(units: u64, scale: u32) -> Self {
        Self { units: units.into(), scale }
    }

    /// Reads a price.
    ///
    /// # Errors
    /// It is no number, has more than 12 digits behind the point, or is a million or more.
    pub fn price(text: &str) -> Result<Self, String> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_read = !whole.is_empty() && is_number(whole) && is_number(part);
        let is_ended = text.ends_with('.');
        let scale = part.len() as u32;
        let price = || Some(Self { units: format!("{whole}{part}").parse().ok()?, scale });
        let price = (is_read && !is_ended && scale <= PRICE_SCALE).then(price).flatten();
        price.filter(|price| price.units < PRICE_END * 10_u128.pow(price.scale)).ok_or_else(|| {
            format!("{text:?} is no price; write a number below 1000000 with at most 12 digits behind the point, as in \"0.000005\"")
        })
    }

    /// The product, to the last digit.
    pub fn times(self, other: Self) -> Self {
        Self { units: self.units * other.units, scale: self.scale + other.scale }
    }

    /// Whether it is 0.
    pub fn is_zero(self) -> bool {
        self.units == 0
    }
}

impl fmt::Display for Decimal {
    /// Writes all digits but zeros at the end behind the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = 10_u128.pow(self.scale);
        write!(f, "{}", self.units / unit)?;
        let part = format!("{:0width$}", self.units % unit, width = self.scale as usize);
        match part.trim_end_matches('0') {
            "" => Ok(()),
            part => write!(f, ".{part}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0", "0")]
    #[case("12", "12")]
    #[case("12.50", "12.5")]
    #[case("0.000000000001", "0.000000000001")]
    #[case("999999.999999999999", "999999.999999999999")]
    fn prices_are_read_and_written(#[case] text: &str, #[case] written: &str) {
        assert_eq!(Decimal::price(text).expect("a price").to_string(), written);
    }

    #[rstest]
    #[case("")]
    #[case(".5")]
    #[case("5.")]
    #[case("-1")]
    #[case("+1")]
    #[case("1e3")]
    #[case("1,5")]
    #[case("1000000")]
    #[case("0.0000000000001")]
    #[case("99999999999999999999999999999999999999999999")]
    fn what_is_no_price_is_refused(#[case] text: &str) {
        assert!(Decimal::price(text).expect_err("no price").contains(&format!("{text:?}")));
    }

    #[test]
    fn products_are_exact_up_to_the_largest() {
        let third = Decimal::new(3_333, 3).times(Decimal::price("0.000005").expect("a price"));
        assert_eq!(third.to_string(), "0.000016665");
        let most = Decimal::new(u64::MAX, 9);
        let price = Decimal::price("999999.999999999999").expect("a price");
        // The same product by the decimal module of Python.
        assert_eq!(most.times(price).to_string(), "18446744073709551.596553255926290448385");
    }
}
