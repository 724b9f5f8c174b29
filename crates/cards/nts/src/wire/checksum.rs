//! The Internet checksum (RFC 1071): verified, filled in, and updated without reading the payload
//! (RFC 1624).

use std::net::IpAddr;

use etherparse::checksum::Sum16BitWords;

use super::{Fragment, ICMP_CHECKSUM, Layout, TCP_CHECKSUM, UDP_CHECKSUM, protocol, read_u16};

/// The state of a transport checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    /// It is right.
    Right,
    /// It is wrong.
    Wrong,
    /// There is none, or a fragment holds only a part of what it covers.
    Absent,
}

/// Replaces bytes and corrects a checksum that covers them.
///
/// RFC 1624, equation 3: `HC' = ~(~HC + ~m + m')`. A wrong checksum stays wrong. `at` and the
/// number of bytes are even as seen from where the checksum's cover starts.
///
/// # Panics
/// A range is beyond `bytes`, or the number of new bytes is odd.
pub fn replace_bytes(bytes: &mut [u8], checksum: usize, at: usize, new: &[u8]) {
    let change = Change::between(&bytes[at..at + new.len()], new);
    bytes[at..at + new.len()].copy_from_slice(new);
    change.apply(bytes, checksum);
}

/// Change of checksums that cover a replacement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Change(u32);

impl Change {
    pub(super) fn between(old: &[u8], new: &[u8]) -> Self {
        assert!(old.len() == new.len() && old.len().is_multiple_of(2), "whole words are replaced");
        let words = |bytes: &[u8]| -> u32 {
            bytes.chunks_exact(2).map(|word| u32::from(read_u16(word, 0))).sum()
        };
        let inverted: u32 = old.chunks_exact(2).map(|word| u32::from(!read_u16(word, 0))).sum();
        Self(inverted + words(new))
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(fold(self.0) + fold(other.0))
    }

    pub(super) fn apply(self, bytes: &mut [u8], checksum: usize) {
        let old = read_u16(bytes, checksum);
        let new = !(fold(u32::from(!old) + fold(self.0)) as u16);
        bytes[checksum..checksum + 2].copy_from_slice(&new.to_be_bytes());
    }

    /// For UDP, whose checksum of 0 means that there is none.
    pub(super) fn apply_udp(self, bytes: &mut [u8], checksum: usize) {
        if read_u16(bytes, checksum) == 0 {
            return;
        }
        self.apply(bytes, checksum);
        if read_u16(bytes, checksum) == 0 {
            bytes[checksum..checksum + 2].fill(0xFF);
        }
    }
}

/// Carries added back in.
fn fold(sum: u32) -> u32 {
    let once = (sum & 0xFFFF) + (sum >> 16);
    (once & 0xFFFF) + (once >> 16)
}

/// The sum of the pseudo-header (RFC 768, RFC 8200 section 8.1).
fn pseudo_header(layout: &Layout, length: usize) -> Sum16BitWords {
    let mut addresses = match (layout.source, layout.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Sum16BitWords::new().add_4bytes(source.octets()).add_4bytes(destination.octets())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Sum16BitWords::new().add_16bytes(source.octets()).add_16bytes(destination.octets())
        }
        _ => unreachable!("both addresses of a packet come from one header"),
    };
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    addresses.add_4bytes(length.to_be_bytes()).add_2bytes([0, layout.protocol])
}

/// Cover of a transport checksum: where it is, where the cover ends, and what the sum starts with.
struct Cover {
    checksum: usize,
    end: usize,
    start: Sum16BitWords,
}

/// `None` for protocols without a checksum and for fragments.
fn cover(bytes: &[u8], layout: &Layout) -> Option<Cover> {
    if layout.fragment != Fragment::No {
        return None;
    }
    let whole = layout.end - layout.transport;
    let at = |offset: usize| layout.transport + offset;
    let cover = match layout.protocol {
        protocol::TCP => Cover {
            checksum: at(TCP_CHECKSUM),
            end: layout.end,
            start: pseudo_header(layout, whole),
        },
        protocol::UDP => {
            let length = usize::from(read_u16(bytes, at(4)));
            let start = pseudo_header(layout, length);
            Cover { checksum: at(UDP_CHECKSUM), end: at(length), start }
        }
        protocol::ICMPV6 if !layout.is_ipv4() => Cover {
            checksum: at(ICMP_CHECKSUM),
            end: layout.end,
            start: pseudo_header(layout, whole),
        },
        protocol::ICMP if layout.is_ipv4() => {
            Cover { checksum: at(ICMP_CHECKSUM), end: layout.end, start: Sum16BitWords::new() }
        }
        _ => return None,
    };
    Some(cover)
}

/// Verifies the transport checksum. The parser has verified the IPv4 header's.
pub fn verify(bytes: &[u8], layout: &Layout) -> Verified {
    let Some(Cover { checksum, end, start }) = cover(bytes, layout) else {
        return Verified::Absent;
    };
    if layout.protocol == protocol::UDP && read_u16(bytes, checksum) == 0 {
        // RFC 768 allows none over IPv4; RFC 8200 wants one over IPv6.
        return if layout.is_ipv4() { Verified::Absent } else { Verified::Wrong };
    }
    let sum = start.add_slice(&bytes[layout.transport..end]);
    if sum.ones_complement() == 0 { Verified::Right } else { Verified::Wrong }
}

/// Fills in the transport checksum, where the protocol has one and the packet is whole.
pub fn fill(bytes: &mut [u8], layout: &Layout) {
    let Some(Cover { checksum, end, start }) = cover(bytes, layout) else { return };
    bytes[checksum..checksum + 2].fill(0);
    let sum = start.add_slice(&bytes[layout.transport..end]);
    // etherparse sums words in the machine's byte order, which a ones' complement sum allows.
    let value = match layout.protocol {
        protocol::UDP => sum.to_ones_complement_with_no_zero(),
        _ => sum.ones_complement(),
    };
    bytes[checksum..checksum + 2].copy_from_slice(&value.to_ne_bytes());
}
