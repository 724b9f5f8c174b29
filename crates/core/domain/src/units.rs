//! Units as types: a bandwidth is never added to a size, a cycle is never taken for a nanosecond.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident, $suffix:literal) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            pub const ZERO: Self = Self(0);

            /// The plain number, in the unit of the type.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// `self - other`, or zero where `other` is larger.
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// `self + other`, or `None` where the sum does not fit in 64 bits.
            pub const fn checked_add(self, other: Self) -> Option<Self> {
                match self.0.checked_add(other.0) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }

            /// `self - other`, or `None` where `other` is larger.
            pub const fn checked_sub(self, other: Self) -> Option<Self> {
                match self.0.checked_sub(other.0) {
                    Some(rest) => Some(Self(rest)),
                    None => None,
                }
            }
        }

        impl Add for $name {
            type Output = Self;
            /// Saturates: a sum over 64 bits is over every limit anyway.
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl Sub for $name {
            type Output = Self;
            /// Panics in debug builds where `other` is larger; the ledgers that subtract keep it smaller.
            fn sub(self, other: Self) -> Self {
                debug_assert!(self.0 >= other.0, "{self} - {other}");
                self.saturating_sub(other)
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }
    };
    ($(#[$doc:meta])* $name:ident, $suffix:literal, plain) => {
        unit!($(#[$doc])* $name, $suffix);

        impl $name {
            /// A number in the unit of the type.
            pub const fn new(value: u64) -> Self {
                Self(value)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} {}", self.0, $suffix)
            }
        }
    };
}

unit!(
    /// A rate in bits per second.
    Bandwidth,
    "bit/s"
);
unit!(
    /// Clock cycles of the card's data path (4 ns each at 250 MHz).
    Cycles,
    "cycles",
    plain
);
unit!(
    /// Time in which 99 of 100 packets of a DAG are to pass its card, in nanoseconds; zero where none was asked for.
    LatencyBound,
    "ns",
    plain
);
unit!(
    /// A size in bytes.
    ByteSize,
    "bytes"
);

impl LatencyBound {
    /// Whether no bound was asked for.
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// Cycles of a clock that are within it, rounded down; `None` where none was asked for.
    pub fn cycles(self, clock_hz: u64) -> Option<u32> {
        let cycles = u128::from(self.0) * u128::from(clock_hz) / 1_000_000_000;
        (!self.is_zero()).then(|| u32::try_from(cycles).unwrap_or(u32::MAX))
    }

    /// The bound as a time; `None` where none was asked for.
    pub const fn duration(self) -> Option<Duration> {
        if self.is_zero() { None } else { Some(Duration::from_nanos(self.0)) }
    }
}

impl Bandwidth {
    /// Unit of the card's rate registers: 1 kbit/s.
    pub const GRANULARITY: Self = Self(1_000);

    /// From bits per second.
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// From megabits (10^6 bits) per second; saturates.
    pub const fn from_mbps(mbps: u64) -> Self {
        Self(mbps.saturating_mul(1_000_000))
    }

    /// From gigabits (10^9 bits) per second; saturates.
    pub const fn from_gbps(gbps: u64) -> Self {
        Self(gbps.saturating_mul(1_000_000_000))
    }

    /// Kilobits per second, rounded down, as the card's rate registers hold it; saturates at 32 bits.
    pub fn kbps(self) -> u32 {
        u32::try_from(self.0 / 1_000).unwrap_or(u32::MAX)
    }

    /// Gigabits per second, for printing.
    pub fn gbps_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Whether it is a whole number of [`Bandwidth::GRANULARITY`].
    pub const fn is_whole(self) -> bool {
        self.0.is_multiple_of(Self::GRANULARITY.0)
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (divisor, unit) = match self.0 {
            0..1_000 => (1, "bit/s"),
            1_000..1_000_000 => (1_000, "kbit/s"),
            1_000_000..1_000_000_000 => (1_000_000, "Mbit/s"),
            _ => (1_000_000_000, "Gbit/s"),
        };
        write_scaled(f, self.0, divisor, unit)
    }
}

impl ByteSize {
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// From mebibytes (2^20 bytes); saturates.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1 << 20))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (divisor, unit) = match self.0 {
            0..0x400 => (1, "bytes"),
            0x400..0x10_0000 => (0x400, "KiB"),
            0x10_0000..0x4000_0000 => (0x10_0000, "MiB"),
            _ => (0x4000_0000, "GiB"),
        };
        write_scaled(f, self.0, divisor, unit)
    }
}

/// Writes `value / divisor` with at most three decimals and none that are zero.
fn write_scaled(f: &mut fmt::Formatter<'_>, value: u64, divisor: u64, unit: &str) -> fmt::Result {
    let thousandths = u128::from(value % divisor) * 1_000 / u128::from(divisor);
    let fraction = format!("{thousandths:03}");
    match fraction.trim_end_matches('0') {
        "" => write!(f, "{} {unit}", value / divisor),
        digits => write!(f, "{}.{digits} {unit}", value / divisor),
    }
}

impl Cycles {
    /// Duration of this many cycles at `clock_hz`; zero at a clock of zero.
    pub fn duration(self, clock_hz: u64) -> Duration {
        let nanos = u128::from(self.0) * 1_000_000_000 / u128::from(clock_hz.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A point in time: nanoseconds since 1970-01-01 UTC, or since the start of a simulation.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    pub const ZERO: Self = Self(0);

    /// From nanoseconds since the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero where `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    /// Saturates at the end of time (the year 2554).
    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

/// FPGA area: what a network task needs, or a region offers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Area {
    pub lut: u32,
    /// Block RAMs of 36 Kbit.
    #[serde(default)]
    pub ramb36: u32,
    #[serde(default)]
    pub dsp: u32,
}

impl Area {
    /// Whether `self` has room for `other`, kind by kind.
    pub const fn fits(self, other: Self) -> bool {
        other.lut <= self.lut && other.ramb36 <= self.ramb36 && other.dsp <= self.dsp
    }

    /// Part of `self` that `used` takes: of the fullest kind, in thousandths, rounded up.
    /// A kind that `self` lacks counts as full where it is used.
    pub fn fill_permille(self, used: Self) -> u32 {
        let kind = |used: u32, all: u32| match (used, all) {
            (0, _) => 0,
            (_, 0) => 1_000,
            _ => u32::try_from((u64::from(used) * 1_000).div_ceil(u64::from(all)))
                .unwrap_or(u32::MAX),
        };
        kind(used.lut, self.lut).max(kind(used.ramb36, self.ramb36)).max(kind(used.dsp, self.dsp))
    }
}

impl Add for Area {
    type Output = Self;
    /// Saturates, kind by kind.
    fn add(self, other: Self) -> Self {
        Self {
            lut: self.lut.saturating_add(other.lut),
            ramb36: self.ramb36.saturating_add(other.ramb36),
            dsp: self.dsp.saturating_add(other.dsp),
        }
    }
}

impl Sum for Area {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} LUT, {} RAMB36, {} DSP", self.lut, self.ramb36, self.dsp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_print_as_people_write_them() {
        assert_eq!(Bandwidth::from_mbps(12_500).to_string(), "12.5 Gbit/s");
        assert_eq!(Bandwidth::from_bps(999).to_string(), "999 bit/s");
        assert_eq!(Bandwidth::from_gbps(100).to_string(), "100 Gbit/s");
        assert_eq!(ByteSize::from_mib(4).to_string(), "4 MiB");
        assert_eq!(ByteSize::from_bytes(1_536).to_string(), "1.5 KiB");
        assert_eq!(Cycles::new(49).to_string(), "49 cycles");
    }

    #[test]
    fn a_scheduler_pass_takes_64_ns_at_250_mhz() {
        assert_eq!(Cycles::new(16).duration(250_000_000), Duration::from_nanos(64));
        assert_eq!(Cycles::new(49).duration(250_000_000), Duration::from_nanos(196));
        assert_eq!(Cycles::new(u64::MAX).duration(0).as_nanos(), u128::from(u64::MAX));
    }

    #[test]
    fn sums_saturate_and_differences_can_be_checked() {
        let most = Bandwidth::from_bps(u64::MAX);
        assert_eq!(most + Bandwidth::from_bps(1), most);
        assert_eq!(most.checked_add(Bandwidth::from_bps(1)), None);
        assert_eq!(Bandwidth::ZERO.checked_sub(Bandwidth::from_bps(1)), None);
        assert_eq!(Bandwidth::from_gbps(u64::MAX), most);
    }

    #[test]
    fn area_fits_only_where_every_kind_fits() {
        let region = Area { lut: 100, ramb36: 10, dsp: 0 };
        assert!(region.fits(Area { lut: 100, ramb36: 10, dsp: 0 }));
        assert!(!region.fits(Area { lut: 1, ramb36: 11, dsp: 0 }));
        assert!(!region.fits(Area { lut: 1, ramb36: 0, dsp: 1 }));
        assert_eq!(region.fill_permille(Area { lut: 50, ramb36: 9, dsp: 0 }), 900);
        assert_eq!(region.fill_permille(Area { lut: 0, ramb36: 0, dsp: 1 }), 1_000);
    }
}
