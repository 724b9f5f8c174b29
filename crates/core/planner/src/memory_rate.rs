//! Bandwidth of a card's on-board memory, which all of its NTs share.
//!
//! A packet passes each NT of its DAG once, whatever the mapping is. So what a DAG moves follows from its NT types and
//! its packet sizes alone: for each round of the mix, `Σ over NTs (bytes for a packet · packets + bytes for a byte · bytes)`.

use snic_domain::MemoryTraffic;

/// Traffic of several NTs with the memory, for one packet that passes all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemoryUse {
    /// Bytes for each packet.
    pub(crate) packet: u64,
    /// Bytes for each byte of it.
    pub(crate) byte: u64,
}

impl MemoryUse {
    /// With one more NT.
    pub(crate) fn plus(self, nt: MemoryTraffic) -> Self {
        Self {
            packet: self.packet.saturating_add(nt.bytes_per_packet.into()),
            byte: self.byte.saturating_add(nt.bytes_per_packet_byte.into()),
        }
    }
}
