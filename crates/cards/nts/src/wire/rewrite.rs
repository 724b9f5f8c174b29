//! Changing addresses and ports, with every checksum that covers them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::checksum::Change;
use super::{
    Fragment, ICMP_CHECKSUM, IcmpMessage, Layout, TCP_CHECKSUM, UDP_CHECKSUM, protocol, read_u16,
};

/// An address and a port (or ICMP identifier).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    pub address: IpAddr,
    /// The port or identifier.
    pub port: u16,
}

/// End of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Source,
    Destination,
}

/// Offset of an IPv4 header's checksum.
const IPV4_CHECKSUM: usize = 10;

/// Where an address is in the frame.
fn address_at(layout: &Layout, side: Side) -> usize {
    layout.network
        + match (layout.is_ipv4(), side) {
            (true, Side::Source) => 12,
            (true, Side::Destination) => 16,
            (false, Side::Source) => 8,
            (false, Side::Destination) => 24,
        }
}

/// Where a port or identifier is in the frame; `None` where there is none.
fn port_at(bytes: &[u8], layout: &Layout, side: Side) -> Option<usize> {
    if !layout.has_transport_header() {
        return None;
    }
    match (layout.protocol, side) {
        (protocol::TCP | protocol::UDP, Side::Source) => Some(layout.transport),
        (protocol::TCP | protocol::UDP, Side::Destination) => Some(layout.transport + 2),
        _ => match IcmpMessage::of(bytes, layout) {
            Some(IcmpMessage::Query { .. }) => Some(layout.transport + 4),
            _ => None,
        },
    }
}

/// Replaces one end of a packet and updates the checksums of the IPv4 header and of the transport.
/// Fragments that hold no transport header have only the address replaced: the first one holds the
/// checksum over all of them. `layout` follows.
///
/// # Panics
/// The address is of the other IP version.
pub fn rewrite(bytes: &mut [u8], layout: &mut Layout, side: Side, to: Endpoint) {
    let change = replace_address(bytes, layout, side, to.address);
    let port = replace_port(bytes, layout, side, to.port);
    if layout.has_transport_header() {
        update_transport(bytes, layout, change, port);
    }
    match side {
        Side::Source => layout.source = to.address,
        Side::Destination => layout.destination = to.address,
    }
}

/// As [`rewrite`], for a packet quoted in an ICMP error: its transport checksum may be cut off. The
/// checksum of the error itself is to be filled in by the caller.
pub fn rewrite_quoted(bytes: &mut [u8], quoted: &mut Layout, side: Side, to: Endpoint) {
    let change = replace_address(bytes, quoted, side, to.address);
    let port = replace_port(bytes, quoted, side, to.port);
    let checksum_end = match quoted.protocol {
        protocol::TCP => TCP_CHECKSUM + 2,
        protocol::UDP => UDP_CHECKSUM + 2,
        _ => ICMP_CHECKSUM + 2,
    };
    if quoted.has_transport_header() && quoted.transport + checksum_end <= quoted.end {
        update_transport(bytes, quoted, change, port);
    }
    match side {
        Side::Source => quoted.source = to.address,
        Side::Destination => quoted.destination = to.address,
    }
}

/// Replaces the identification of an IPv4 packet in fragments. `layout` follows.
pub(crate) fn replace_identification(bytes: &mut [u8], layout: &mut Layout, id: u16) {
    let header = layout.network;
    super::replace_bytes(bytes, header + IPV4_CHECKSUM, header + 4, &id.to_be_bytes());
    let id = u32::from(id);
    layout.fragment = match layout.fragment {
        Fragment::No => Fragment::No,
        Fragment::First { .. } => Fragment::First { id },
        Fragment::Later { .. } => Fragment::Later { id },
    };
}

fn replace_address(bytes: &mut [u8], layout: &Layout, side: Side, to: IpAddr) -> Change {
    let at = address_at(layout, side);
    let replace = |bytes: &mut [u8], new: &[u8]| {
        let change = Change::between(&bytes[at..at + new.len()], new);
        bytes[at..at + new.len()].copy_from_slice(new);
        change
    };
    match to {
        IpAddr::V4(v4) => {
            assert!(layout.is_ipv4(), "an IPv4 address for an IPv6 packet");
            let change = replace(bytes, &v4.octets());
            change.apply(bytes, layout.network + IPV4_CHECKSUM);
            change
        }
        IpAddr::V6(v6) => {
            assert!(!layout.is_ipv4(), "an IPv6 address for an IPv4 packet");
            replace(bytes, &v6.octets())
        }
    }
}

fn replace_port(bytes: &mut [u8], layout: &Layout, side: Side, to: u16) -> Change {
    let Some(at) = port_at(bytes, layout, side) else { return Change::default() };
    let change = Change::between(&bytes[at..at + 2], &to.to_be_bytes());
    bytes[at..at + 2].copy_from_slice(&to.to_be_bytes());
    change
}

/// The transport's checksum covers the port, and the addresses where it has a pseudo-header.
fn update_transport(bytes: &mut [u8], layout: &Layout, address: Change, port: Change) {
    match layout.pseudo_checksum() {
        Some(checksum) if layout.protocol == protocol::UDP => {
            address.and(port).apply_udp(bytes, checksum);
        }
        Some(checksum) => address.and(port).apply(bytes, checksum),
        None if layout.is_icmp() => port.apply(bytes, layout.transport + ICMP_CHECKSUM),
        None => {}
    }
}

impl Layout {
    /// Replaces the IPv4 traffic class or IPv6 traffic class byte (DSCP and ECN) and updates the
    /// header's checksum.
    pub(crate) fn set_traffic_class(&self, bytes: &mut [u8], class: u8) {
        let word = read_u16(bytes, self.network);
        if self.is_ipv4() {
            let new = (word & 0xFF00) | u16::from(class);
            super::replace_bytes(
                bytes,
                self.network + IPV4_CHECKSUM,
                self.network,
                &new.to_be_bytes(),
            );
        } else {
            let new = (word & 0xF00F) | (u16::from(class) << 4);
            bytes[self.network..self.network + 2].copy_from_slice(&new.to_be_bytes());
        }
    }

    /// The traffic class byte: DSCP in the upper six bits, ECN in the lower two.
    pub(crate) fn traffic_class(&self, bytes: &[u8]) -> u8 {
        let word = read_u16(bytes, self.network);
        if self.is_ipv4() { word as u8 } else { (word >> 4) as u8 }
    }
}
