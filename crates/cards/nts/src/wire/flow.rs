//! Flows: what the packets of one conversation have in common.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Fragment, Layout, extensions, parse_ip, protocol, read_u16};

/// Protocol, addresses and ports, as the packet has them. For ICMP queries the identifier stands in
/// for the port that a reply keeps; for protocols without ports both are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Flow {
    pub protocol: u8,
    pub source: IpAddr,
    pub source_port: u16,
    pub destination: IpAddr,
    pub destination_port: u16,
}

impl Flow {
    /// The flow of a packet that holds its transport header. ICMP messages that are no queries have
    /// identifier 0.
    pub fn of(bytes: &[u8], layout: &Layout) -> Self {
        let at = layout.transport;
        let (source_port, destination_port) = match layout.protocol {
            _ if !layout.has_transport_header() => (0, 0),
            protocol::TCP | protocol::UDP => (read_u16(bytes, at), read_u16(bytes, at + 2)),
            _ => match IcmpMessage::of(bytes, layout) {
                Some(IcmpMessage::Query { id, .. }) => (id, id),
                _ => (0, 0),
            },
        };
        Self {
            protocol: layout.protocol,
            source: layout.source,
            source_port,
            destination: layout.destination,
            destination_port,
        }
    }

    /// The flow that a packet is about: that of the packet which an ICMP error quotes, and its own for all others.
    pub(crate) fn followed(bytes: &[u8], layout: &Layout) -> Self {
        let about = quoted_packet(bytes, layout);
        Self::of(bytes, about.as_ref().unwrap_or(layout))
    }

    /// The same flow for both directions, and whether it is the reverse of this one.
    pub fn canonical(self) -> (Self, bool) {
        let reversed = self.reversed();
        if reversed < self { (reversed, true) } else { (self, false) }
    }

    /// The flow of what comes back.
    pub fn reversed(self) -> Self {
        Self {
            protocol: self.protocol,
            source: self.destination,
            source_port: self.destination_port,
            destination: self.source,
            destination_port: self.source_port,
        }
    }
}

/// Kind of an ICMP or ICMPv6 message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpMessage {
    /// An echo request or reply, with its identifier.
    Query {
        /// Identifier that requests and replies of one sender share.
        id: u16,
        /// Whether it asks.
        is_request: bool,
    },
    /// An error, which quotes the packet that it is about.
    Error,
    /// A message of the IPv6 link itself, which no router forwards and no host can do without: neighbour discovery
    /// (RFC 4861, 3122, 3971), and who listens to which group (RFC 2710, 3810, 4286).
    OfLink,
    Other,
}

impl IcmpMessage {
    /// The message of a packet with a transport header; `None` where it is not ICMP.
    pub fn of(bytes: &[u8], layout: &Layout) -> Option<Self> {
        if !layout.is_icmp() || !layout.has_transport_header() {
            return None;
        }
        let (kind, id) = (bytes[layout.transport], read_u16(bytes, layout.transport + 4));
        Some(match (layout.is_ipv4(), kind) {
            (true, 8) | (false, 128) => Self::Query { id, is_request: true },
            (true, 0) | (false, 129) => Self::Query { id, is_request: false },
            // Unreachable, source quench, time exceeded, parameter problem (RFC 792); all below 128
            // are errors in ICMPv6 (RFC 4443).
            (true, 3 | 4 | 11 | 12) | (false, 1..=4) => Self::Error,
            (false, kind) if is_of_link(kind, bytes, layout) => Self::OfLink,
            _ => Self::Other,
        })
    }
}

/// Whether an ICMPv6 message is one of the link, and was not forwarded. Of neighbour discovery no router lets the hop limit
/// be 255 (RFC 4861, sections 6.1 and 7.1); what listeners say has a hop limit of 1 and an address of the link (RFC 3810,
/// section 5). Receivers drop others, those with a code, and those in fragments (RFC 6980). Redirects are no such
/// messages here: RFC 4890, section 4.4.4 leaves them to the rules.
fn is_of_link(kind: u8, bytes: &[u8], layout: &Layout) -> bool {
    let (hop_limit, code) = (bytes[layout.network + 7], bytes[layout.transport + 1]);
    let is_of_link = match (kind, layout.source) {
        (133..=136 | 141 | 142 | 148 | 149, _) => hop_limit == 255,
        (130..=132 | 143 | 151..=153, IpAddr::V6(source)) => {
            hop_limit == 1 && (source.is_unicast_link_local() || source.is_unspecified())
        }
        _ => false,
    };
    is_of_link && code == 0 && layout.fragment == Fragment::No
}

/// Flags of a TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpFlags(u8);

impl TcpFlags {
    /// The flags of a packet with a transport header; `None` where it is not TCP.
    pub fn of(bytes: &[u8], layout: &Layout) -> Option<Self> {
        let is_tcp = layout.protocol == protocol::TCP && layout.has_transport_header();
        is_tcp.then(|| Self(bytes[layout.transport + 13]))
    }

    /// The flags of this byte of a header.
    #[cfg(test)]
    pub(crate) const fn of_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// FIN: the sender has sent everything.
    pub fn fin(self) -> bool {
        self.0 & 0x01 != 0
    }

    /// SYN: the sender opens the connection.
    pub fn syn(self) -> bool {
        self.0 & 0x02 != 0
    }

    /// RST: the connection is gone.
    pub fn rst(self) -> bool {
        self.0 & 0x04 != 0
    }

    /// The acknowledgement number counts.
    pub fn ack(self) -> bool {
        self.0 & 0x10 != 0
    }
}

/// The packet that an ICMP error is about: its layout in the frame and its flow, in the direction in
/// which it was sent. `None` where too little of it is quoted: RFC 792 asks for 8 bytes behind its
/// IP header, which hold the ports. `None` too where the error goes to another host than the one that sent the quoted
/// packet (RFC 1122, section 3.2.2), or the quoted IPv4 header's checksum is wrong (RFC 5508, REQ-3).
pub fn quoted_flow(bytes: &[u8], layout: &Layout) -> Option<(Layout, Flow)> {
    let quoted = quoted_packet(bytes, layout).filter(Layout::has_transport_header)?;
    let flow = Flow::of(bytes, &quoted);
    Some((quoted, flow))
}

/// As [`quoted_flow`], for later fragments too. No host or router sends errors about those of IPv4 (RFC 1122,
/// section 3.2.2), but IPv6 routers do: RFC 4443, section 2.4 does not forbid it.
pub(crate) fn quoted_packet(bytes: &[u8], layout: &Layout) -> Option<Layout> {
    if IcmpMessage::of(bytes, layout) != Some(IcmpMessage::Error) {
        return None;
    }
    let start = layout.transport + 8;
    let quoted = quoted_layout(bytes.get(start..layout.end)?)?.behind(start);
    (quoted.source == layout.destination).then_some(quoted)
}

/// The layout of a quoted packet, which may be cut behind the first 8 bytes of its payload.
fn quoted_layout(packet: &[u8]) -> Option<Layout> {
    let whole = parse_ip(packet);
    if let Ok(layout) = whole {
        return Some(layout);
    }
    // Cut: no length that its headers name can be checked.
    let (transport, protocol, later, addresses) = match packet.first()? >> 4 {
        4 => {
            let header = etherparse::Ipv4HeaderSlice::from_slice(packet).ok()?;
            let sum = etherparse::checksum::Sum16BitWords::new().add_slice(header.slice());
            if sum.ones_complement() != 0 {
                return None;
            }
            let is_later = header.fragments_offset().value() != 0;
            let later = is_later.then(|| header.identification().into());
            let addresses = (header.source_addr().into(), header.destination_addr().into());
            (header.slice().len(), header.protocol().0, later, addresses)
        }
        6 => {
            let header = etherparse::Ipv6HeaderSlice::from_slice(packet).ok()?;
            let end = header.slice().len() + usize::from(header.payload_length());
            let chain = extensions::follow(packet, end).ok()?;
            let later = chain.fragment.filter(|(_, part)| part.start > 0).map(|(id, _)| id);
            let addresses = (header.source_addr().into(), header.destination_addr().into());
            (chain.transport, chain.protocol, later, addresses)
        }
        _ => return None,
    };
    let is_enough = packet.len() >= transport + 8;
    is_enough.then_some(Layout {
        network: 0,
        transport,
        end: packet.len(),
        protocol,
        // Not whole: no checksum over all of it can be made.
        fragment: later.map_or(Fragment::First { id: 0 }, |id| Fragment::Later { id }),
        source: addresses.0,
        destination: addresses.1,
    })
}
