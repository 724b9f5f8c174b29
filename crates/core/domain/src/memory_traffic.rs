//! Traffic of an NT with the on-board memory.

use serde::{Deserialize, Serialize};

/// Bytes that an NT reads and writes in on-board memory for each packet, reads and writes together. By default it
/// leaves the memory alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryTraffic {
    /// Whatever the packet's size, such as an entry of a table; at most
    /// [`crate::limits::NT_MEMORY_BYTES_PER_PACKET_MAX`].
    #[serde(default)]
    pub bytes_per_packet: u32,
    /// For each byte of the packet: 1 where it is stored, 2 where it is stored and read again.
    #[serde(default)]
    pub bytes_per_packet_byte: u8,
}

impl MemoryTraffic {
    /// Whether it moves nothing.
    pub const fn is_none(&self) -> bool {
        self.bytes_per_packet == 0 && self.bytes_per_packet_byte == 0
    }

    /// Bytes for a packet of this size.
    pub fn bytes(self, packet_bytes: u32) -> u64 {
        u64::from(self.bytes_per_packet)
            + u64::from(self.bytes_per_packet_byte) * u64::from(packet_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_packet_and_of_its_size() {
        let of = |bytes_per_packet, bytes_per_packet_byte| MemoryTraffic {
            bytes_per_packet,
            bytes_per_packet_byte,
        };
        assert_eq!(of(64, 2).bytes(1_500), 3_064);
        assert_eq!((of(64, 0).bytes(1_500), of(0, 1).bytes(1_500)), (64, 1_500));
        assert!(MemoryTraffic::default().is_none() && !of(1, 0).is_none() && !of(0, 1).is_none());
        assert_eq!(of(u32::MAX, u8::MAX).bytes(u32::MAX), u64::from(u32::MAX) * 256);
    }
}
