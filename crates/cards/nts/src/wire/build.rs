//! Headers that NTs put before packets, and answers made in place.

use std::net::IpAddr;

use etherparse::{
    EtherType, IpDscp, IpEcn, IpFragOffset, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header,
};

use super::{ETHERNET_BYTES, Layout};

/// The outer IP header of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunnelHeader {
    pub source: IpAddr,
    /// The other end.
    pub destination: IpAddr,
    /// Protocol that it carries.
    pub protocol: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    pub hop_limit: u8,
    /// For IPv4: whether routers may fragment it, and the identification for it if so.
    pub fragmentation: Option<u16>,
    /// For IPv6: the flow label, in 20 bits.
    pub flow_label: u32,
}

impl TunnelHeader {
    /// Length of the header.
    pub fn bytes(&self) -> usize {
        if self.source.is_ipv4() { 20 } else { 40 }
    }

    /// The EtherType that announces it.
    pub fn ether_type(&self) -> [u8; 2] {
        let ether_type = if self.source.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        ether_type.0.to_be_bytes()
    }

    /// Writes the header to the first bytes of `out`, for `payload_bytes` bytes behind it.
    ///
    /// # Panics
    /// The two ends have different IP versions (configurations with them are rejected), or `out` is
    /// shorter than the header.
    pub fn write(&self, payload_bytes: usize, out: &mut [u8]) {
        let ecn = IpEcn::try_new(self.traffic_class & 3).expect("two bits");
        let dscp = IpDscp::try_new(self.traffic_class >> 2).expect("six bits");
        let payload = u16::try_from(payload_bytes).unwrap_or(u16::MAX);
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = Ipv4Header {
                    dscp,
                    ecn,
                    total_len: payload.saturating_add(20),
                    identification: self.fragmentation.unwrap_or(0),
                    dont_fragment: self.fragmentation.is_none(),
                    more_fragments: false,
                    fragment_offset: IpFragOffset::ZERO,
                    time_to_live: self.hop_limit,
                    protocol: IpNumber(self.protocol),
                    header_checksum: 0,
                    source: source.octets(),
                    destination: destination.octets(),
                    options: etherparse::Ipv4Options::new(),
                };
                header.header_checksum = header.calc_header_checksum();
                out[..20].copy_from_slice(&header.to_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = Ipv6Header {
                    traffic_class: self.traffic_class,
                    flow_label: Ipv6FlowLabel::try_new(self.flow_label & 0xF_FFFF)
                        .expect("20 bits"),
                    payload_length: payload,
                    next_header: IpNumber(self.protocol),
                    hop_limit: self.hop_limit,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                out[..40].copy_from_slice(&header.to_bytes());
            }
            _ => unreachable!("both ends of a tunnel have one IP version: checked by configure"),
        }
    }
}

/// An Ethernet header without tags.
pub fn ethernet_header_bytes(
    destination: [u8; 6],
    source: [u8; 6],
    ether_type: [u8; 2],
) -> [u8; ETHERNET_BYTES] {
    let mut header = [0; ETHERNET_BYTES];
    header[..6].copy_from_slice(&destination);
    header[6..12].copy_from_slice(&source);
    header[12..].copy_from_slice(&ether_type);
    header
}

/// The station that sent a frame.
pub(crate) fn source_station(frame: &[u8]) -> Option<[u8; 6]> {
    frame.get(6..12)?.try_into().ok()
}

/// Turns the Ethernet header around, to `target` where its station is known.
pub(crate) fn send_back(bytes: &mut [u8], target: Option<[u8; 6]>) {
    swap_stations(bytes);
    if let Some(station) = target {
        bytes[..6].copy_from_slice(&station);
    }
}

/// Swaps the two stations of an Ethernet header: the frame goes back.
pub fn swap_stations(bytes: &mut [u8]) {
    let (destination, source) = bytes[..12].split_at_mut(6);
    destination.swap_with_slice(source);
}

/// Turns a packet into its answer: swaps stations, addresses and UDP ports. No checksum changes, for
/// each sum has the same words.
pub fn turn_around(bytes: &mut [u8], layout: &Layout) {
    turn_around_addresses(bytes, layout);
    let (source, destination) = bytes[layout.transport..layout.transport + 4].split_at_mut(2);
    source.swap_with_slice(destination);
}

/// Swaps stations and addresses.
pub fn turn_around_addresses(bytes: &mut [u8], layout: &Layout) {
    swap_stations(bytes);
    let (from, length) = if layout.is_ipv4() { (12, 4) } else { (8, 16) };
    let at = layout.network + from;
    let (source, destination) = bytes[at..at + 2 * length].split_at_mut(length);
    source.swap_with_slice(destination);
}

/// Writes the lengths of a UDP packet whose payload now has `payload_bytes` bytes, and fills in
/// its checksums. The frame ends behind the payload already.
pub fn finish_udp(bytes: &mut [u8], layout: &mut Layout, payload_bytes: usize) {
    let udp_bytes = 8 + payload_bytes;
    layout.end = layout.transport + udp_bytes;
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    bytes[layout.transport + 4..layout.transport + 6].copy_from_slice(&length(udp_bytes));
    if layout.is_ipv4() {
        let total = length(layout.end - layout.network);
        let at = layout.network + 2;
        super::replace_bytes(bytes, layout.network + 10, at, &total);
    } else {
        let payload = length(layout.end - layout.network - 40);
        bytes[layout.network + 4..layout.network + 6].copy_from_slice(&payload);
    }
    super::fill(bytes, layout);
}
