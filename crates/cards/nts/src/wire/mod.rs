//! Frames: where headers are, what they say, and how to change them with right checksums.
//!
//! Headers are parsed by `etherparse`; what is here keeps their offsets, so that an NT can change
//! the bytes that it has looked at.

mod build;
mod checksum;
mod extensions;
mod flow;
mod rewrite;
mod tags;

pub use build::{
    TunnelHeader, ethernet_header_bytes, finish_udp, swap_stations, turn_around,
    turn_around_addresses,
};
pub(crate) use build::{send_back, source_station};
pub use checksum::{Verified, fill, replace_bytes, verify};
pub(crate) use flow::quoted_packet;
pub use flow::{Flow, IcmpMessage, TcpFlags, quoted_flow};
pub(crate) use rewrite::replace_identification;
pub use rewrite::{Endpoint, Side, rewrite, rewrite_quoted};
pub use tags::{Tags, is_tag, vlans};

use std::net::IpAddr;

use etherparse::{
    EtherType, Ethernet2Slice, IpNumber, IpSlice, Ipv4Slice, Ipv6HeaderSlice, SingleVlanSlice,
    TcpSlice, UdpSlice,
};

use crate::DropReason;

/// IP protocol numbers that NTs look at.
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP.
    pub const IPV4: u8 = 4;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    /// IPv6 in IP.
    pub const IPV6: u8 = 41;
    /// The encrypted payload of IPsec.
    pub const ESP: u8 = 50;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    pub const NO_NEXT_HEADER: u8 = 59;
    /// For experiments (RFC 3692).
    pub const EXPERIMENT: u8 = 253;
}

/// Offsets in the Ethernet header.
pub const ETHERNET_TYPE: usize = 12;
/// Length of an Ethernet header without VLAN tags.
pub const ETHERNET_BYTES: usize = 14;
/// Offset of a UDP header's checksum.
pub(crate) const UDP_CHECKSUM: usize = 6;
/// Offset of a TCP header's checksum.
pub(crate) const TCP_CHECKSUM: usize = 16;
/// Offset of an ICMP message's checksum.
pub(crate) const ICMP_CHECKSUM: usize = 2;
/// Bytes of an ARP packet for IPv4 over Ethernet.
const ARP_BYTES: usize = 28;
/// Numbers below this one are lengths (IEEE 802.3).
pub(crate) const ETHER_TYPE_MIN: u16 = 0x0600;
/// Most VLAN tags of a frame: a service tag and a customer tag (IEEE 802.1ad).
const VLAN_TAGS_MAX: usize = 2;

/// Whether a packet is a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragment {
    /// It is whole.
    No,
    /// The first: the transport header is in it.
    First {
        /// Identification that its fragments share.
        id: u32,
    },
    /// A later one.
    Later {
        /// Identification that its fragments share.
        id: u32,
    },
}

/// An IP packet in an Ethernet frame: offsets are from the frame's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Where the IP header starts.
    pub network: usize,
    /// Where the transport header starts, behind extension headers.
    pub transport: usize,
    /// Where the IP packet ends; what follows is padding of the link.
    pub end: usize,
    /// Protocol of the transport.
    pub protocol: u8,
    /// Whether it is a fragment.
    pub fragment: Fragment,
    pub source: IpAddr,
    pub destination: IpAddr,
}

/// Content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// An IP packet.
    Ip(Layout),
    /// ARP for IPv4 over Ethernet.
    Arp,
    /// Something that NTs do not read, behind the tags that they do: it passes where its EtherType is named.
    Other(EtherType),
}

/// Whether frames with this tag are read. Linux takes off these two, and no others.
fn is_read_tag(ether_type: EtherType) -> bool {
    matches!(ether_type, EtherType::VLAN_TAGGED_FRAME | EtherType::PROVIDER_BRIDGING)
}

/// Reads the headers of an Ethernet frame. Up to two VLAN tags are skipped. An IPv4 header's checksum
/// is verified, as every router does (RFC 1812, 5.2.2).
///
/// # Errors
/// [`DropReason::Truncated`], [`DropReason::Malformed`], [`DropReason::TinyFragment`],
/// [`DropReason::BadChecksum`], [`DropReason::SourceRoute`], or [`DropReason::Unreadable`] for more tags, tags of other kinds, and frames
/// with a length in place of an EtherType.
pub fn parse(frame: &[u8]) -> Result<Frame, DropReason> {
    let link = Ethernet2Slice::from_slice_without_fcs(frame).map_err(|_| DropReason::Truncated)?;
    let (mut ether_type, mut network) = (link.ether_type(), ETHERNET_BYTES);
    for _ in 0..VLAN_TAGS_MAX {
        if !is_read_tag(ether_type) {
            break;
        }
        let tag = SingleVlanSlice::from_slice(&frame[network..]);
        ether_type = tag.map_err(|_| DropReason::Truncated)?.ether_type();
        network += 4;
    }
    match ether_type {
        EtherType::IPV4 | EtherType::IPV6 => {
            let layout = parse_ip(&frame[network..])?;
            let is_announced = matches!(
                (ether_type, layout.source),
                (EtherType::IPV4, IpAddr::V4(_)) | (EtherType::IPV6, IpAddr::V6(_))
            );
            if !is_announced {
                return Err(DropReason::Malformed);
            }
            Ok(Frame::Ip(layout.behind(network)))
        }
        EtherType::ARP => check_arp(&frame[network..]).map(|()| Frame::Arp),
        // Linux takes off any number of tags with VLAN 0: what is behind the last one that is read here may be
        // IP for the receiver, though it is none for an NT.
        EtherType(tag) if is_tag(tag) => Err(DropReason::Unreadable),
        EtherType(length) if length < ETHER_TYPE_MIN => Err(DropReason::Unreadable),
        other => Ok(Frame::Other(other)),
    }
}

/// Checks that a packet is a request or a reply of ARP for IPv4 over Ethernet (RFC 826).
fn check_arp(packet: &[u8]) -> Result<(), DropReason> {
    let head = packet.get(..ARP_BYTES).ok_or(DropReason::Truncated)?;
    let is_ours = head[..6] == [0, 1, 8, 0, 6, 4] && matches!(read_u16(head, 6), 1 | 2);
    if is_ours { Ok(()) } else { Err(DropReason::Malformed) }
}

/// Reads an IP packet that starts with the first byte of `packet`; it may be shorter than that.
///
/// # Errors
/// As [`parse`].
pub fn parse_ip(packet: &[u8]) -> Result<Layout, DropReason> {
    match packet.first() {
        Some(first) if first >> 4 == 6 => parse_ipv6(packet),
        _ => parse_ipv4(packet),
    }
}

fn parse_ipv4(packet: &[u8]) -> Result<Layout, DropReason> {
    let ip = IpSlice::from_slice(packet).map_err(|error| match error {
        etherparse::err::ip::SliceError::Len(length)
            if length.len_source == etherparse::LenSource::Slice =>
        {
            DropReason::Truncated
        }
        _ => DropReason::Malformed,
    })?;
    let IpSlice::Ipv4(v4) = &ip else { return Err(DropReason::Malformed) };
    let header = v4.header();
    let sum = etherparse::checksum::Sum16BitWords::new().add_slice(header.slice());
    if sum.ones_complement() != 0 {
        return Err(DropReason::BadChecksum);
    }
    check_options(header.options())?;
    let part = ipv4_part(v4)?;
    let id = header.identification().into();
    let fragment = match part {
        _ if part.is_whole() => Fragment::No,
        FragmentPart { start: 0, .. } => Fragment::First { id },
        _ => Fragment::Later { id },
    };
    let payload = v4.payload();
    let transport = payload.payload.as_ptr() as usize - packet.as_ptr() as usize;
    check_transport(payload.ip_number, payload.payload, fragment)?;
    // A later fragment so early that it overwrites the flags of the TCP header (RFC 3128).
    if payload.ip_number == IpNumber::TCP && part.start == 8 {
        return Err(DropReason::TinyFragment);
    }
    Ok(Layout {
        network: 0,
        transport,
        end: transport + payload.payload.len(),
        protocol: payload.ip_number.0,
        fragment,
        source: header.source_addr().into(),
        destination: header.destination_addr().into(),
    })
}

/// Whether the options of an IPv4 header are ones that may pass. A source route leads a packet from the host that it was let
/// through to on to another one; Linux and RFC 7126 refuse it, as they do IPv6's routing header of type 0.
fn check_options(options: &[u8]) -> Result<(), DropReason> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    let mut rest = options;
    while let [kind, behind @ ..] = rest {
        rest = match (*kind, behind) {
            (END, _) => return Ok(()),
            (NO_OPERATION, _) => behind,
            (LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, _) => return Err(DropReason::SourceRoute),
            (_, [bytes @ 2..=u8::MAX, ..]) => {
                rest.get(usize::from(*bytes)..).ok_or(DropReason::Malformed)?
            }
            _ => return Err(DropReason::Malformed),
        };
    }
    Ok(())
}

/// An IPv6 payload length of 0 announces a jumbogram (RFC 2675), which no Ethernet carries: there is
/// no payload then, whatever padding follows.
fn parse_ipv6(packet: &[u8]) -> Result<Layout, DropReason> {
    let header = Ipv6HeaderSlice::from_slice(packet).map_err(|_| DropReason::Truncated)?;
    let end = extensions::IPV6_BYTES + usize::from(header.payload_length());
    let packet = packet.get(..end).ok_or(DropReason::Truncated)?;
    let extensions::Chain { transport, protocol, fragment } = extensions::follow(packet, end)?;
    let fragment = match fragment {
        None => Fragment::No,
        Some((id, FragmentPart { start: 0, .. })) => Fragment::First { id },
        Some((id, _)) => Fragment::Later { id },
    };
    check_transport(IpNumber(protocol), &packet[transport..], fragment)?;
    Ok(Layout {
        network: 0,
        transport,
        end,
        protocol,
        fragment,
        source: header.source_addr().into(),
        destination: header.destination_addr().into(),
    })
}

/// The part of a fragmented packet that a fragment holds, in bytes from the start of what was fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FragmentPart {
    /// The first byte.
    pub(crate) start: u32,
    /// The byte behind the last one.
    pub(crate) end: u32,
    /// Whether no fragment follows.
    pub(crate) is_last: bool,
}

impl FragmentPart {
    /// `bytes` bytes from `start` on.
    ///
    /// # Errors
    /// Another fragment follows and the bytes are no multiple of 8, there are none, or the whole packet would have
    /// more than 65,535 bytes (RFC 791, and RFC 8200 section 4.5).
    fn new(start: u16, is_followed: bool, bytes: usize) -> Result<Self, DropReason> {
        let (start, is_last) = (u32::from(start), !is_followed);
        let end = start + u32::try_from(bytes).unwrap_or(u32::from(u16::MAX));
        let part = Self { start, end, is_last };
        let is_cut_right = is_last || bytes.is_multiple_of(8);
        let has_bytes = bytes > 0 || part.is_whole();
        if end <= u32::from(u16::MAX) && is_cut_right && has_bytes {
            Ok(part)
        } else {
            Err(DropReason::Malformed)
        }
    }

    /// Whether it is all of the packet.
    fn is_whole(&self) -> bool {
        self.start == 0 && self.is_last
    }

    /// The part that a fragment holds; `None` for a packet that is whole.
    pub(crate) fn of(frame: &[u8], layout: &Layout) -> Option<Self> {
        if layout.fragment == Fragment::No {
            return None;
        }
        let packet = frame.get(layout.network..layout.end)?;
        if layout.is_ipv4() {
            ipv4_part(&Ipv4Slice::from_slice(packet).ok()?).ok()
        } else {
            extensions::follow(packet, packet.len()).ok()?.fragment.map(|(_, part)| part)
        }
    }
}

fn ipv4_part(packet: &Ipv4Slice<'_>) -> Result<FragmentPart, DropReason> {
    let header = packet.header();
    let bytes = usize::from(header.total_len()) - header.slice().len();
    let start = header.fragments_offset().value() * 8;
    FragmentPart::new(start, header.more_fragments(), bytes)
}

/// Whether the transport header is there and fits what follows it.
fn check_transport(
    protocol: IpNumber,
    payload: &[u8],
    fragment: Fragment,
) -> Result<(), DropReason> {
    let is_whole = match fragment {
        Fragment::Later { .. } => return Ok(()),
        Fragment::First { .. } => false,
        Fragment::No => true,
    };
    let missing = if is_whole { DropReason::Truncated } else { DropReason::TinyFragment };
    match protocol {
        IpNumber::TCP => match TcpSlice::from_slice(payload) {
            Ok(_) => Ok(()),
            Err(etherparse::err::tcp::HeaderSliceError::Len(_)) => Err(missing),
            Err(_) => Err(DropReason::Malformed),
        },
        IpNumber::UDP if is_whole => {
            let udp = UdpSlice::from_slice(payload).map_err(|_| DropReason::Malformed)?;
            // The length field of 0 belongs to jumbograms as well.
            if udp.length() == 0 { Err(DropReason::Malformed) } else { Ok(()) }
        }
        IpNumber::UDP | IpNumber::ICMP | IpNumber::IPV6_ICMP => {
            if payload.len() < 8 {
                Err(missing)
            } else {
                Ok(())
            }
        }
        _ => Ok(()),
    }
}

impl Layout {
    /// The same behind `bytes` more bytes.
    pub fn behind(self, bytes: usize) -> Self {
        Self {
            network: self.network + bytes,
            transport: self.transport + bytes,
            end: self.end + bytes,
            ..self
        }
    }

    /// Whether the transport header is in this packet.
    pub fn has_transport_header(&self) -> bool {
        !matches!(self.fragment, Fragment::Later { .. })
    }

    /// Whether it is IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.source.is_ipv4()
    }

    /// Whether it is ICMP of its IP version.
    pub fn is_icmp(&self) -> bool {
        self.protocol == if self.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 }
    }

    /// Where in the frame the checksum is that covers the addresses; `None` where none does.
    pub(crate) fn pseudo_checksum(&self) -> Option<usize> {
        match self.protocol {
            protocol::TCP => Some(self.transport + TCP_CHECKSUM),
            protocol::UDP => Some(self.transport + UDP_CHECKSUM),
            protocol::ICMPV6 if !self.is_ipv4() => Some(self.transport + ICMP_CHECKSUM),
            _ => None,
        }
    }
}

/// An address of 4 or 16 bytes.
pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

/// Two bytes of a header.
pub(crate) fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Four bytes of a header.
pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests;
