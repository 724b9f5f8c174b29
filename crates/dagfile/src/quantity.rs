//! Quantities as people write them: `10Gbps`, `1.5 Gbit/s`, `256MiB`.
//!
//! Read exactly, never through floating point: what is reserved is what was written. Both
//! spellings of a rate are decimal; a capital `B` would mean bytes and is refused, because a factor
//! of eight is not a matter of taste.

use snic_domain::{Bandwidth, ByteSize};

/// A text that is no such quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuantity {
    /// There is no number in front.
    #[error("{0:?} does not begin with a number; write it like {1}")]
    Number(String, &'static str),
    /// The unit is none of those known.
    #[error("the unit {unit:?} is not known; use {known}")]
    Unit {
        /// What stands there.
        unit: String,
        /// What may stand there.
        known: &'static str,
    },
    /// A part of the smallest unit, or more than fits 64 bits.
    #[error("{0:?} is no whole number of {1} below 2^64")]
    Range(String, &'static str),
}

const RATE_UNITS: &str = "bps, kbps, Mbps, Gbps or Tbps (or bit/s, kbit/s, …); none means bit/s";
const SIZE_UNITS: &str = "B, KiB, MiB, GiB, kB, MB or GB; none means bytes";

/// Reads a rate. A plain number is bits per second.
///
/// # Errors
/// [`InvalidQuantity`], naming the part that is wrong.
pub fn bandwidth(text: &str) -> Result<Bandwidth, InvalidQuantity> {
    let (number, unit) = split(text, "10Gbps")?;
    let prefix = unit.strip_suffix("bps").or_else(|| unit.strip_suffix("bit/s"));
    let factor = match prefix {
        Some("") => 1,
        Some("k" | "K") => 1_000,
        Some("m" | "M") => 1_000_000,
        Some("g" | "G") => 1_000_000_000,
        Some("t" | "T") => 1_000_000_000_000,
        None if unit.is_empty() => 1,
        _ => return Err(InvalidQuantity::Unit { unit: short(unit), known: RATE_UNITS }),
    };
    let bps = scaled(number, factor).ok_or_else(|| InvalidQuantity::Range(short(text), "bit/s"))?;
    Ok(Bandwidth::from_bps(bps))
}

/// Reads a size. A plain number is bytes.
///
/// # Errors
/// [`InvalidQuantity`], naming the part that is wrong.
pub fn size(text: &str) -> Result<ByteSize, InvalidQuantity> {
    let (number, unit) = split(text, "256MiB")?;
    let factor = match unit {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(InvalidQuantity::Unit { unit: short(unit), known: SIZE_UNITS }),
    };
    let bytes =
        scaled(number, factor).ok_or_else(|| InvalidQuantity::Range(short(text), "bytes"))?;
    Ok(ByteSize::from_bytes(bytes))
}

/// The number and the unit behind it.
fn split<'a>(text: &'a str, example: &'static str) -> Result<(&'a str, &'a str), InvalidQuantity> {
    let text = text.trim();
    let is_number = |letter: char| letter.is_ascii_digit() || letter == '.' || letter == '_';
    let end = text.find(|letter| !is_number(letter)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if !number.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(InvalidQuantity::Number(short(text), example));
    }
    Ok((number, unit.trim()))
}

/// `number × factor`; `None` where that is no whole number or does not fit.
fn scaled(number: &str, factor: u128) -> Option<u64> {
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let digits = |text: &str| if text.is_empty() { Ok(0) } else { text.parse::<u128>() };
    let fraction = fraction.trim_end_matches('0');
    let divisor = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let all = digits(whole).ok()?.checked_mul(divisor)?.checked_add(digits(fraction).ok()?)?;
    let scaled = all.checked_mul(factor)?;
    if scaled % divisor != 0 {
        return None;
    }
    u64::try_from(scaled / divisor).ok()
}

fn short(text: &str) -> String {
    snic_api::render::cut(text, 40)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("10Gbps", 10_000_000_000)]
    #[case("10 Gbit/s", 10_000_000_000)]
    #[case("1.5Gbps", 1_500_000_000)]
    #[case("0.000001Gbps", 1_000)]
    #[case("250 mbps", 250_000_000)]
    #[case("64kbit/s", 64_000)]
    #[case("4Tbps", 4_000_000_000_000)]
    #[case("10_000_000_000", 10_000_000_000)]
    #[case("12bps", 12)]
    fn rates_are_read_exactly(#[case] text: &str, #[case] bps: u64) {
        assert_eq!(bandwidth(text), Ok(Bandwidth::from_bps(bps)));
    }

    #[rstest]
    #[case("", "does not begin with a number")]
    #[case("Gbps", "does not begin with a number")]
    #[case("-1Gbps", "does not begin with a number")]
    #[case("10GBps", "the unit \"GBps\" is not known; use bps")]
    #[case("10Gb", "the unit \"Gb\" is not known")]
    #[case("10e9", "the unit \"e9\" is not known")]
    #[case("0.5bps", "no whole number of bit/s")]
    #[case("1.2.3Gbps", "no whole number of bit/s")]
    #[case("99999999999999999999Gbps", "no whole number of bit/s")]
    fn what_is_no_rate_is_refused_with_the_reason(#[case] text: &str, #[case] reason: &str) {
        let error = bandwidth(text).expect_err(text).to_string();
        assert!(error.contains(reason), "{error}");
    }

    #[rstest]
    #[case("256MiB", 256 << 20)]
    #[case("1.5 GiB", 3 << 29)]
    #[case("4096", 4096)]
    #[case("5MB", 5_000_000)]
    fn sizes_are_read_exactly(#[case] text: &str, #[case] bytes: u64) {
        assert_eq!(size(text), Ok(ByteSize::from_bytes(bytes)));
    }

    #[test]
    fn a_size_in_bits_is_refused() {
        assert!(size("5Mbit").expect_err("bits").to_string().contains("KiB, MiB"));
    }

    proptest! {
        #[test]
        fn what_domain_prints_without_loss_is_read_back(kbps in 0..4_000_000_000_u64) {
            let rate = Bandwidth::from_bps(kbps * 1_000);
            let printed = rate.to_string();
            let read = bandwidth(&printed)?;
            prop_assert!(read <= rate);
            prop_assert_eq!(read.to_string(), printed);
        }

        #[test]
        fn any_text_is_a_quantity_or_an_error(text in ".{0,40}") {
            let _ = size(&text);
            if let Err(error) = bandwidth(&text) {
                prop_assert!(error.to_string().chars().count() < 600);
            }
        }
    }
}
