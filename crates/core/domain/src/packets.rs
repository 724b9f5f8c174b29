//! The sizes of a DAG's packets, as a mix. 64 B and 1,500 B are different loads at the same bandwidth: what a
//! packet costs of a port or of the scheduler hardly depends on its size, so small ones cost more for each bit.
//! Everything that counts packets derives them here.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Bandwidth;
use crate::limits::{PACKET_BYTES_MAX, PACKET_BYTES_MIN, PACKET_SIZES_MAX, PACKET_WEIGHT_MAX};

/// One size of a mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PacketSize {
    /// Bytes of the packet, [`PACKET_BYTES_MIN`] to [`PACKET_BYTES_MAX`].
    pub bytes: u32,
    /// Number of packets of this size beside the other sizes of the mix, 1 to [`PACKET_WEIGHT_MAX`].
    pub weight: u32,
}

/// A mix of packet sizes. [`PacketSizes::check`] says whether it may be a DAG's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PacketSizes(Vec<PacketSize>);

/// The simple IMIX: of twelve packets seven have 64 bytes, four 594 and one 1,518.
const IMIX: [(u32, u32); 3] = [(64, 7), (594, 4), (1_518, 1)];

impl Default for PacketSizes {
    /// Sizes that a DAG without stated sizes is counted with: [`PacketSizes::imix`].
    fn default() -> Self {
        Self::imix()
    }
}

/// Fault of a mix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPacketSizes {
    /// No size or too many.
    #[error("{sizes} packet sizes; give 1 to {PACKET_SIZES_MAX}")]
    Count { sizes: usize },
    /// A size that no packet has.
    #[error("a packet of {bytes} bytes; give {PACKET_BYTES_MIN} to {PACKET_BYTES_MAX} bytes")]
    Bytes {
        bytes: u32,
        /// Position of the size.
        index: usize,
    },
    /// A weight out of range.
    #[error("packets of {bytes} bytes have weight {weight}; give 1 to {PACKET_WEIGHT_MAX}")]
    Weight {
        bytes: u32,
        weight: u32,
        /// Position of the size.
        index: usize,
    },
    /// The same size is given twice.
    #[error("duplicate packet size {bytes} bytes; give each size once, with its total weight")]
    Twice {
        bytes: u32,
        /// Position of the second of the sizes.
        index: usize,
    },
}

impl InvalidPacketSizes {
    /// The part that is wrong, as in the API: `packet_sizes` or a field of one of them.
    pub fn field(&self) -> String {
        match self {
            Self::Count { .. } => "packet_sizes".into(),
            Self::Bytes { index, .. } | Self::Twice { index, .. } => {
                format!("packet_sizes[{index}].bytes")
            }
            Self::Weight { index, .. } => format!("packet_sizes[{index}].weight"),
        }
    }
}

impl PacketSizes {
    /// These sizes, unchecked.
    pub const fn new(sizes: Vec<PacketSize>) -> Self {
        Self(sizes)
    }

    /// The simple IMIX, which stands for what crosses the Internet: of twelve packets seven have 64 bytes,
    /// four 594 and one 1,518; 361.8 bytes on average.
    pub fn imix() -> Self {
        Self(IMIX.map(|(bytes, weight)| PacketSize { bytes, weight }).to_vec())
    }

    /// Whether it is [`PacketSizes::imix`].
    pub fn is_imix(&self) -> bool {
        *self == Self::imix()
    }

    /// All packets of one size.
    pub fn only(bytes: u32) -> Self {
        Self(vec![PacketSize { bytes, weight: 1 }])
    }

    /// The sizes as they were given.
    pub fn sizes(&self) -> &[PacketSize] {
        &self.0
    }

    /// Checks that it may be a DAG's mix.
    ///
    /// # Errors
    /// The first of: no size or too many, a size or a weight out of range, the same size given twice.
    pub fn check(&self) -> Result<(), InvalidPacketSizes> {
        let sizes = &self.0;
        if !(1..=PACKET_SIZES_MAX).contains(&sizes.len()) {
            return Err(InvalidPacketSizes::Count { sizes: sizes.len() });
        }
        for (index, PacketSize { bytes, weight }) in sizes.iter().copied().enumerate() {
            if !(PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&bytes) {
                return Err(InvalidPacketSizes::Bytes { bytes, index });
            }
            if !(1..=PACKET_WEIGHT_MAX).contains(&weight) {
                return Err(InvalidPacketSizes::Weight { bytes, weight, index });
            }
            if sizes[..index].iter().any(|before| before.bytes == bytes) {
                return Err(InvalidPacketSizes::Twice { bytes, index });
            }
        }
        Ok(())
    }

    /// The largest size, in bytes.
    pub fn largest(&self) -> u32 {
        self.0.iter().map(|size| size.bytes).max().unwrap_or(PACKET_BYTES_MAX)
    }

    /// Sum of the weights: the packets of one round of the mix.
    pub fn packets(&self) -> u64 {
        self.sum(|_| 1)
    }

    /// Bits of one round of the mix.
    pub fn bits(&self) -> u64 {
        self.sum(|bytes| u64::from(bytes) * 8)
    }

    /// Cost of one round of the mix if a packet of a size costs `cost` of that size.
    pub fn sum(&self, cost: impl Fn(u32) -> u64) -> u64 {
        let each =
            self.0.iter().map(|size| u64::from(size.weight).saturating_mul(cost(size.bytes)));
        each.fold(0, u64::saturating_add)
    }

    /// Bytes of a packet on average, rounded up.
    pub fn mean_bytes(&self) -> u32 {
        let bytes = self.bits().div_ceil(8 * self.packets().max(1));
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Bandwidth of these packets if each that has fewer bytes had `least`, rounded up: what
    /// it takes of something of which only packets of that size are known.
    pub fn padded(&self, bandwidth: Bandwidth, least: u32) -> Bandwidth {
        let padded = self.sum(|bytes| u64::from(bytes.max(least)) * 8);
        let bits = u128::from(bandwidth.get()) * u128::from(padded);
        let bits = bits.div_ceil(u128::from(self.bits().max(1)));
        Bandwidth::from_bps(u64::try_from(bits).unwrap_or(u64::MAX))
    }

    /// Packets a second at a bandwidth, rounded up.
    pub fn packets_per_second(&self, bandwidth: Bandwidth) -> u64 {
        let bits = u128::from(bandwidth.get()) * u128::from(self.packets());
        u64::try_from(bits.div_ceil(u128::from(self.bits().max(1)))).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for PacketSizes {
    /// As in DAG files: `imix`, `64`, `{64: 7, 594: 4}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            _ if self.is_imix() => f.write_str("imix"),
            [only] => write!(f, "{}", only.bytes),
            sizes => {
                let parts: Vec<_> =
                    sizes.iter().map(|s| format!("{}: {}", s.bytes, s.weight)).collect();
                write!(f, "{{{}}}", parts.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(sizes: &[(u32, u32)]) -> PacketSizes {
        PacketSizes(sizes.iter().map(|&(bytes, weight)| PacketSize { bytes, weight }).collect())
    }

    #[test]
    fn the_default_has_3_454_million_packets_in_10_gbit() {
        let imix = PacketSizes::default();
        assert_eq!((imix.packets(), imix.bits()), (12, 4_342 * 8));
        // 10^10 / 8 / (4342 / 12)
        assert_eq!(imix.packets_per_second(Bandwidth::from_gbps(10)), 3_454_630);
        assert_eq!((imix.mean_bytes(), PacketSizes::only(64).mean_bytes()), (362, 64));
        assert_eq!(PacketSizes::only(64).packets_per_second(Bandwidth::from_gbps(10)), 19_531_250);
    }

    #[test]
    fn small_packets_are_padded_and_large_ones_are_not() {
        let one = Bandwidth::from_gbps(1);
        assert_eq!(PacketSizes::only(64).padded(one, 1_024), Bandwidth::from_gbps(16));
        assert_eq!(PacketSizes::only(1_500).padded(one, 1_024), one);
        // Eleven of twelve packets are padded: (11 x 1,024 + 1,518) / 4,342.
        let imix = PacketSizes::imix().padded(Bandwidth::from_bps(4_342), 1_024);
        assert_eq!(imix.get(), 11 * 1_024 + 1_518);
        assert_eq!(PacketSizes::imix().padded(one, 0), one);
    }

    #[test]
    fn errors_name_what_is_wrong_and_where() {
        let error = |sizes: &[(u32, u32)]| {
            let error = mix(sizes).check().expect_err("invalid");
            (error.field(), error.to_string())
        };
        assert_eq!(error(&[]).0, "packet_sizes");
        assert_eq!(error(&[(64, 1); 17]).1, "17 packet sizes; give 1 to 16");
        let (field, text) = error(&[(64, 1), (63, 1)]);
        assert_eq!(field, "packet_sizes[1].bytes");
        assert_eq!(text, "a packet of 63 bytes; give 64 to 9216 bytes");
        assert_eq!(error(&[(9_217, 1)]).0, "packet_sizes[0].bytes");
        assert_eq!(error(&[(64, 0)]).0, "packet_sizes[0].weight");
        assert_eq!(error(&[(64, 1_001)]).0, "packet_sizes[0].weight");
        assert_eq!(error(&[(64, 1), (64, 2)]).0, "packet_sizes[1].bytes");
        assert_eq!(mix(&[(64, 1_000), (9_216, 1)]).check(), Ok(()));
    }

    #[test]
    fn a_mix_reads_as_in_a_file() {
        let texts = [PacketSizes::imix(), PacketSizes::only(64), mix(&[(64, 7), (594, 4)])];
        assert_eq!(texts.map(|m| m.to_string()), ["imix", "64", "{64: 7, 594: 4}"]);
    }
}
