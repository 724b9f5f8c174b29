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

    /// As many units as there are with so many digits behind the point, at least as many as there are now.
    fn units_at(self, scale: u32) -> u128 {
        self.units.saturating_mul(10_u128.saturating_pow(scale.saturating_sub(self.scale)))
    }

    /// The product, to the last digit.
    pub fn times(self, other: Self) -> Self {
        Self { units: self.units * other.units, scale: self.scale + other.scale }
    }

    /// Units of 10^-`scale`; `None` where it has more digits behind the point, or more than `u128` holds.
    pub fn at_scale(self, scale: u32) -> Option<u128> {
        self.units.checked_mul(10_u128.checked_pow(scale.checked_sub(self.scale)?)?)
    }

    /// Whether it is 0.
    pub fn is_zero(self) -> bool {
        self.units == 0
    }
}

/// Digits behind the point of the product of a quantity and a price, at most.
const MONEY_SCALE: u32 = PRICE_SCALE + 9;
/// Digits behind the point of a millionth.
const MICRO_SCALE: u32 = 6;

/// A sum of products of quantities and prices, without rounding: 10^-21 of the currency. It holds 3 × 10^17 of it; more is as much.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(u128);

impl Money {
    /// Millionths of the currency.
    pub fn of_micros(micros: u64) -> Self {
        Self(Decimal::new(micros, MICRO_SCALE).units_at(MONEY_SCALE))
    }

    /// Millionths of the currency, rounded down; more than there is room for is as much.
    pub fn micros(self) -> u64 {
        let micro = 10_u128.pow(MONEY_SCALE - MICRO_SCALE);
        u64::try_from(self.0 / micro).unwrap_or(u64::MAX)
    }

    /// Whole percent of another amount, rounded down; `None` of nothing.
    pub fn percent_of(self, all: Self) -> Option<u64> {
        let whole = self.0 / all.0.checked_div(100).filter(|part| *part > 0)?;
        Some(u64::try_from(whole).unwrap_or(u64::MAX))
    }

    /// About as much, for metrics.
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / 10_f64.powi(MONEY_SCALE as i32)
    }
}

impl From<Decimal> for Money {
    fn from(amount: Decimal) -> Self {
        Self(amount.units_at(MONEY_SCALE))
    }
}

impl std::ops::AddAssign for Money {
    fn add_assign(&mut self, more: Self) {
        self.0 = self.0.saturating_add(more.0);
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Decimal { units: self.0, scale: MONEY_SCALE }.fmt(f)
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
    use super::*;

    #[test]
    fn prices_are_read_and_written() {
        let cases = [
            ("0", "0"),
            ("12", "12"),
            ("12.50", "12.5"),
            ("0.000000000001", "0.000000000001"),
            ("999999.999999999999", "999999.999999999999"),
        ];
        for (text, written) in cases {
            assert_eq!(Decimal::price(text).expect("a price").to_string(), written);
        }
    }

    #[test]
    fn what_is_no_price_is_refused() {
        let long = "99999999999999999999999999999999999999999999";
        for text in ["", ".5", "5.", "-1", "+1", "1e3", "1,5", "1000000", "0.0000000000001", long] {
            let error = Decimal::price(text).expect_err("no price");
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn products_are_exact_up_to_the_largest() {
        let third = Decimal::new(3_333, 3).times(Decimal::price("0.000005").expect("a price"));
        assert_eq!(third.to_string(), "0.000016665");
        let most = Decimal::new(u64::MAX, 9);
        let price = Decimal::price("999999.999999999999").expect("a price");
        // The same product by the decimal module of Python.
        assert_eq!(most.times(price).to_string(), "18446744073709551.596553255926290448385");
        assert_eq!(Money::from(most.times(price)).to_string(), most.times(price).to_string());
    }

    #[test]
    fn money_adds_up_to_the_last_digit_and_compares_with_millionths() {
        let price = Decimal::price("0.000000000001").expect("a price");
        let mut sum = Money::default();
        (0..1_000).for_each(|_| sum += Money::from(Decimal::new(1, 9).times(price)));
        assert_eq!(sum.to_string(), "0.000000000000000001");
        let micro = Money::of_micros(1);
        assert_eq!(micro.to_string(), "0.000001");
        assert!(sum < micro && Money::of_micros(u64::MAX) > micro);
        assert_eq!((sum.micros(), micro.micros()), (0, 1));
        assert_eq!(Money::of_micros(u64::MAX).micros(), u64::MAX);
        sum += Money(u128::MAX);
        assert_eq!(sum, Money(u128::MAX), "more is as much");
    }

    #[test]
    fn a_percentage_is_rounded_down() {
        let all = Money::of_micros(10_000_000);
        let percent = |micros| Money::of_micros(micros).percent_of(all);
        assert_eq!(percent(7_999_999), Some(79));
        assert_eq!(percent(8_000_000), Some(80));
        assert_eq!(percent(10_000_000), Some(100));
        assert_eq!(percent(0), Some(0));
        assert_eq!(percent(u64::MAX), Some(184_467_440_737_095));
        assert_eq!(all.percent_of(Money::default()), None);
    }
}
