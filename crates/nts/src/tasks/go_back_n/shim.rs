//! The header of the go-back-N transport, between an IP header and what it carried:
//!
//! ```text
//!   0        1        2                 4
//!  ┌────────┬────────┬─────────────────┬───────────────────────────────────┐
//!  │ kind   │ carried│ checksum        │ sequence number                   │
//!  ├────────┴────────┴─────────────────┼───────────────────────────────────┤
//!  │ next number expected (cumulative) │ incarnation of the sender         │
//!  ├───────────────────────────────────┴───────────────────────────────────┘
//!  │ incarnation of the receiver that the acknowledgement is for           │
//! ```
//!
//! The IP header's protocol is 253, which RFC 3692 leaves for experiments.

use etherparse::checksum::Sum16BitWords;

use crate::DropReason;
use crate::wire::{Layout, protocol, read_u16, read_u32, replace_bytes};

/// Length of the header.
pub(super) const BYTES: usize = 20;
const CHECKSUM: usize = 2;

/// What a packet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Carries a packet, and an acknowledgement beside.
    Data = 1,
    /// An acknowledgement alone.
    Ack = 2,
    /// The same, and the next number is missing: send from it again.
    Nack = 3,
    /// The stream is not known here: start again.
    Reset = 4,
}

/// The header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shim {
    pub(super) kind: Kind,
    /// Protocol of what is carried.
    pub(super) carried: u8,
    pub(super) sequence: u32,
    pub(super) expected: u32,
    pub(super) incarnation: u32,
    pub(super) acknowledged: u32,
}

impl Shim {
    /// Reads the header of a packet of this transport.
    pub(super) fn read(bytes: &[u8], layout: &Layout) -> Result<Self, DropReason> {
        let shim = bytes.get(layout.transport..layout.transport + BYTES);
        let shim = shim.filter(|_| layout.transport + BYTES <= layout.end);
        let shim = shim.ok_or(DropReason::Truncated)?;
        if Sum16BitWords::new().add_slice(shim).ones_complement() != 0 {
            return Err(DropReason::BadChecksum);
        }
        let kind = match shim[0] {
            1 => Kind::Data,
            2 => Kind::Ack,
            3 => Kind::Nack,
            4 => Kind::Reset,
            _ => return Err(DropReason::Malformed),
        };
        Ok(Self {
            kind,
            carried: shim[1],
            sequence: read_u32(shim, 4),
            expected: read_u32(shim, 8),
            incarnation: read_u32(shim, 12),
            acknowledged: read_u32(shim, 16),
        })
    }

    /// Writes the header to the first bytes of `out`.
    pub(super) fn write(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&[self.kind as u8, self.carried, 0, 0]);
        let numbers = [self.sequence, self.expected, self.incarnation, self.acknowledged];
        for (place, number) in out[4..BYTES].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        let sum = Sum16BitWords::new().add_slice(&out[..BYTES]).ones_complement();
        out[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_ne_bytes());
    }
}

/// Writes protocol and length into an IP header, for a packet that ends at `end`.
pub(super) fn set_ip(bytes: &mut [u8], layout: &Layout, carried: u8, end: usize) {
    let network = layout.network;
    if layout.is_ipv4() {
        let length = u16::try_from(end - network).unwrap_or(u16::MAX);
        replace_bytes(bytes, network + 10, network + 2, &length.to_be_bytes());
        let hops = bytes[network + 8];
        replace_bytes(bytes, network + 10, network + 8, &[hops, carried]);
    } else {
        let length = u16::try_from(end - network - 40).unwrap_or(u16::MAX);
        bytes[network + 4..network + 6].copy_from_slice(&length.to_be_bytes());
        bytes[network + 6] = carried;
    }
}

/// Whether the transport follows the IP header directly, so that the header's protocol is what is
/// carried.
pub(super) fn is_direct(bytes: &[u8], layout: &Layout) -> bool {
    let header = if layout.is_ipv4() {
        usize::from(read_u16(bytes, layout.network) >> 8 & 0xF) * 4
    } else {
        40
    };
    layout.transport == layout.network + header && layout.protocol != protocol::NO_NEXT_HEADER
}
