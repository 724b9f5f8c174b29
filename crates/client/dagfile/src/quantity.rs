//! Quantities as people write them: `10Gbps`, `1.5 Gbit/s`, `256MiB`.
//!
//! They are parsed exactly, without floating point, so that the reserved value is the written one. Rates are
//! decimal; a capital `B` would mean bytes, a factor of eight, and is rejected.

use snic_domain::{Bandwidth, ByteSize, LatencyBound};

/// Why a text is not a valid quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuantity {
    /// It does not start with a number.
    #[error("{0:?} does not start with a number; use a value such as {1}")]
    Number(String, &'static str),
    /// The unit is not known.
    #[error("unknown unit {unit:?}; use {known}")]
    Unit {
        /// The given unit.
        unit: String,
        /// The allowed units.
        known: &'static str,
    },
    /// Not a whole number of the smallest unit, or too large for 64 bits.
    #[error("{0:?} is out of range; use a whole number of {1} below 2^64")]
    Range(String, &'static str),
}

const RATE_UNITS: &str = "bps, kbps, Mbps, Gbps or Tbps (or bit/s, kbit/s, …); no unit means bit/s";
const TIME_UNITS: &str = "ns, us, ms or s; no unit means nanoseconds";
const SIZE_UNITS: &str = "B, KiB, MiB, GiB, kB, MB or GB; no unit means bytes";

/// Parses a rate. A plain number is bits per second.
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

/// Parses a size. A plain number is bytes.
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

/// Parses a bound on latency. A plain number is nanoseconds.
///
/// # Errors
/// [`InvalidQuantity`], naming the part that is wrong.
pub fn latency_bound(text: &str) -> Result<LatencyBound, InvalidQuantity> {
    let (number, unit) = split(text, "50us")?;
    let factor = match unit {
        "" | "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(InvalidQuantity::Unit { unit: short(unit), known: TIME_UNITS }),
    };
    let nanos = scaled(number, factor);
    let nanos = nanos.ok_or_else(|| InvalidQuantity::Range(short(text), "nanoseconds"))?;
    Ok(LatencyBound::new(nanos))
}

/// Splits a text into the number and its unit.
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

/// `number × factor`; `None` if that is not a whole number or does not fit.
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
    #[case("", "does not start with a number")]
    #[case("Gbps", "does not start with a number")]
    #[case("-1Gbps", "does not start with a number")]
    #[case("10GBps", "unknown unit \"GBps\"; use bps")]
    #[case("10Gb", "unknown unit \"Gb\"")]
    #[case("10e9", "unknown unit \"e9\"")]
    #[case("0.5bps", "a whole number of bit/s")]
    #[case("1.2.3Gbps", "a whole number of bit/s")]
    #[case("99999999999999999999Gbps", "a whole number of bit/s")]
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

    #[rstest]
    #[case("50us", Ok(50_000))]
    #[case("1.5 ms", Ok(1_500_000))]
    #[case("0", Ok(0))]
    #[case("800", Ok(800))]
    #[case("1s", Ok(1_000_000_000))]
    #[case("0.5ns", Err("a whole number of nanoseconds"))]
    #[case("5min", Err("unknown unit \"min\"; use ns, us"))]
    #[case("fast", Err("does not start with a number"))]
    fn times_are_read_exactly(#[case] text: &str, #[case] nanos: Result<u64, &str>) {
        match nanos {
            Ok(nanos) => assert_eq!(latency_bound(text), Ok(LatencyBound::new(nanos))),
            Err(reason) => {
                let error = latency_bound(text).expect_err(text).to_string();
                assert!(error.contains(reason), "{error}");
            }
        }
    }

    #[test]
    fn a_size_in_bits_is_refused() {
        assert!(size("5Mbit").expect_err("bits").to_string().contains("KiB, MiB"));
    }

    proptest! {
        #[test]
        fn quantities_printed_without_loss_are_read_back(kbps in 0..4_000_000_000_u64) {
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
