//! Flow rules: the fixed treatment that a task gives to further packets of a flow.
//!
//! A task answers most packets of an established flow alike: the same addresses are written, and a timer starts again. A flow
//! rule holds that answer, so that a card looks a packet up once, by [`FlowKey`], and then spares its tasks all parsing and
//! hashing:
//!
//! ```text
//!  first packets    process(packet) ──► verdict      flow_rule() ──► rule, kept by the card under the packet's key
//!  further ones     follow(rule, packet): table entries that the rule names are still there? timers start again,
//!                                         addresses are replaced, counters count
//!                                      ──► verdict, or `None`: nothing has changed, the packet is to be processed
//! ```
//!
//! The task itself judges at each packet whether a rule still holds: a rule names table entries by tickets, which end when
//! the entry is removed or its flow changes its state, and it belongs to one configuration. So no rule has to be called back.
//!
//! Packets that can change the state of a flow have no key, and always go to the tasks: TCP's SYN, FIN and RST, fragments,
//! packets with IP options or extension headers, ICMP, and all that [`wire::parse`] refuses.

use std::net::IpAddr;

use crate::aging::EntryTicket;
use crate::verdict::Verdict;
use crate::wire::{
    self, ETHERNET_BYTES, ETHERNET_TYPE, Endpoint, Flow, Fragment, Layout, Side, protocol, read_u16,
};

/// Table entries that one rule names at most: two sessions and their mappings, of a packet that a NAT turns around.
const TICKETS_MAX: usize = 4;
/// Longest link header of a keyed frame: Ethernet with two VLAN tags.
const LINK_BYTES_MAX: usize = ETHERNET_BYTES + 8;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// The header fields that flow rules depend on: the link header with its VLAN tags, addresses, protocol and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    link: [u8; LINK_BYTES_MAX],
    protocol: u8,
    addresses: [u8; 32],
    ports: [u8; 4],
}

impl FlowKey {
    /// The key of a frame and where its headers are; `None` for frames that always go to the tasks.
    pub fn of(frame: &[u8]) -> Option<(Self, Layout)> {
        let (ether_type, network) = ether_type(frame)?;
        let (protocol, end) = match ether_type {
            0x0800 => plain_ipv4(frame, network)?,
            0x86DD => plain_ipv6(frame, network)?,
            _ => return None,
        };
        let is_ipv4 = ether_type == 0x0800;
        let transport = network + if is_ipv4 { IPV4_BYTES } else { IPV6_BYTES };
        check_transport(protocol, frame.get(transport..end)?)?;
        let addresses_at = if is_ipv4 { network + 12 } else { network + 8 };
        let addresses = frame.get(addresses_at..transport)?;
        let mut key =
            Self { link: [0; LINK_BYTES_MAX], protocol, addresses: [0; 32], ports: [0; 4] };
        key.link[..network].copy_from_slice(frame.get(..network)?);
        key.addresses[..addresses.len()].copy_from_slice(addresses);
        key.ports.copy_from_slice(frame.get(transport..transport + 4)?);
        let (source, destination) = addresses.split_at(addresses.len() / 2);
        let layout = Layout {
            network,
            transport,
            end,
            protocol,
            fragment: Fragment::No,
            source: wire::address(source)?,
            destination: wire::address(destination)?,
        };
        Some((key, layout))
    }

    /// The key of the flow's packets behind a task that treats them by a rule; `None` where the task needs each packet.
    pub fn behind(&self, rule: &FlowRule) -> Option<Self> {
        if rule.needs_packet {
            return None;
        }
        let mut key = *self;
        let half = self.addresses().len() / 2;
        let ends = [(0, rule.rewrite.source), (1, rule.rewrite.destination)];
        for (side, end) in ends {
            let Some(Endpoint { address, port }) = end else { continue };
            let place = &mut key.addresses[side * half..(side + 1) * half];
            match address {
                IpAddr::V4(v4) if half == 4 => place.copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) if half == 16 => place.copy_from_slice(&v6.octets()),
                _ => return None,
            }
            key.ports[2 * side..2 * side + 2].copy_from_slice(&port.to_be_bytes());
        }
        if let Some(station) = rule.rewrite.back_to {
            wire::send_back(&mut key.link, station);
        }
        Some(key)
    }

    /// Destination and source station.
    pub fn stations(&self) -> &[u8] {
        &self.link[..ETHERNET_TYPE]
    }

    /// Ethernet address that the packets come from.
    pub fn source_station(&self) -> [u8; 6] {
        let [.., a, b, c, d, e, f] = *self.stations() else { return [0; 6] };
        [a, b, c, d, e, f]
    }

    /// Number of VLAN tags.
    pub fn tags(&self) -> usize {
        (self.network_at() - ETHERNET_BYTES) / 4
    }

    /// Whether its packets are IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.ether_type() == 0x0800
    }

    /// Protocol of the transport: TCP or UDP.
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Source and destination address, of 4 or 16 bytes each.
    pub fn addresses(&self) -> &[u8] {
        &self.addresses[..if self.is_ipv4() { 8 } else { 32 }]
    }

    /// Source and destination port.
    pub const fn ports(&self) -> &[u8; 4] {
        &self.ports
    }

    /// The link header, and where the headers of a packet without payload are.
    pub(crate) fn bare(&self) -> ([u8; LINK_BYTES_MAX], Layout) {
        let network = self.network_at();
        let transport = network + if self.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES };
        let (source, destination) = self.addresses().split_at(self.addresses().len() / 2);
        let unknown = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
        let layout = Layout {
            network,
            transport,
            end: transport,
            protocol: self.protocol,
            fragment: Fragment::No,
            source: wire::address(source).unwrap_or(unknown),
            destination: wire::address(destination).unwrap_or(unknown),
        };
        (self.link, layout)
    }

    fn ether_type(&self) -> u16 {
        read_u16(&self.link, self.network_at() - 2)
    }

    /// Where the IP header begins: a link header is as long as its tags say.
    fn network_at(&self) -> usize {
        ether_type(&self.link).map_or(ETHERNET_BYTES, |(_, network)| network)
    }
}

/// The EtherType behind up to two VLAN tags, and where its packet begins.
fn ether_type(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = ETHERNET_TYPE;
    loop {
        let ether_type = u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?);
        if !matches!(ether_type, 0x8100 | 0x88A8) {
            return Some((ether_type, at + 2));
        }
        at += 4;
        if at + 2 > LINK_BYTES_MAX {
            return None;
        }
    }
}

/// Protocol and end of an IPv4 packet that is whole, has no options, and has a right checksum.
fn plain_ipv4(frame: &[u8], network: usize) -> Option<(u8, usize)> {
    let header = frame.get(network..network + IPV4_BYTES)?;
    let length = usize::from(read_u16(header, 2));
    // All but "don't fragment": the reserved bit, "more fragments" and the offset.
    let is_whole = read_u16(header, 6) & 0xBFFF == 0;
    let sum: u32 = (0..IPV4_BYTES).step_by(2).map(|at| u32::from(read_u16(header, at))).sum();
    let is_right = (sum & 0xFFFF) + (sum >> 16) == 0xFFFF;
    let end = network + length;
    let is_plain = header[0] == 0x45 && is_whole && is_right && length >= IPV4_BYTES;
    (is_plain && end <= frame.len()).then_some((header[9], end))
}

/// Protocol and end of an IPv6 packet without extension headers.
fn plain_ipv6(frame: &[u8], network: usize) -> Option<(u8, usize)> {
    let header = frame.get(network..network + IPV6_BYTES)?;
    let end = network + IPV6_BYTES + usize::from(read_u16(header, 4));
    (header[0] >> 4 == 6 && end <= frame.len()).then_some((header[6], end))
}

/// Checks that a TCP or UDP header is whole and changes the state of no connection.
fn check_transport(protocol: u8, segment: &[u8]) -> Option<()> {
    const FIN_SYN_RST: u8 = 0b111;
    const ACK: u8 = 1 << 4;
    let holds = match protocol {
        protocol::TCP => {
            let head = segment.get(..20)?;
            let header_bytes = usize::from(head[12] >> 4) * 4;
            let is_whole = (20..=segment.len()).contains(&header_bytes);
            is_whole && head[13] & (FIN_SYN_RST | ACK) == ACK
        }
        protocol::UDP => {
            let length = usize::from(read_u16(segment.get(..8)?, 4));
            (8..=segment.len()).contains(&length)
        }
        _ => false,
    };
    holds.then_some(())
}

/// New addresses of a flow's packets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rewrite {
    pub(crate) source: Option<Endpoint>,
    pub(crate) destination: Option<Endpoint>,
    /// The packets go back, to this station where it is known.
    pub(crate) back_to: Option<Option<[u8; 6]>>,
}

impl Rewrite {
    /// Replaces addresses and ports, with all checksums that cover them. `layout` follows.
    fn apply(&self, bytes: &mut [u8], layout: &mut Layout) {
        let ends = [(Side::Source, self.source), (Side::Destination, self.destination)];
        for (side, end) in ends {
            if let Some(end) = end {
                wire::rewrite(bytes, layout, side, end);
            }
        }
        if let Some(station) = self.back_to {
            wire::send_back(bytes, station);
        }
    }
}

/// The treatment of a flow's further packets by one task.
#[derive(Debug, Clone, Copy)]
pub struct FlowRule {
    /// The configuration of the NT that made it.
    pub(crate) generation: u64,
    pub(crate) tickets: [Option<EntryTicket>; TICKETS_MAX],
    pub(crate) rewrite: Rewrite,
    pub(crate) verdict: Verdict,
    /// Marks that the task leaves on the packet for others of its chain.
    pub(crate) origin: Option<Flow>,
    pub(crate) followed: Option<Flow>,
    /// The task looks at more of each packet than the key: its length, or its payload.
    pub(crate) needs_packet: bool,
}

impl FlowRule {
    /// A rule that lets packets pass as they are, for as long as the configuration stays.
    pub(crate) const PASS: Self = Self {
        generation: 0,
        tickets: [None; TICKETS_MAX],
        rewrite: Rewrite { source: None, destination: None, back_to: None },
        verdict: Verdict::Forward,
        origin: None,
        followed: None,
        needs_packet: false,
    };

    /// The same of a task that judges each packet by more than its key.
    pub(crate) const JUDGE: Self = Self { needs_packet: true, ..Self::PASS };

    /// Whether the packets go back by the port that they came in by.
    pub const fn is_reply(&self) -> bool {
        matches!(self.verdict, Verdict::Reply)
    }

    /// Replaces the addresses in a packet. `layout` follows.
    pub(crate) fn apply(&self, bytes: &mut [u8], layout: &mut Layout) {
        self.rewrite.apply(bytes, layout);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tasks::support::{cut, echo, slow_sum, tcp, udp};
    use crate::wire::{Frame, parse};

    const HOSTS: [(&str, &str); 2] = [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")];

    /// A frame with so many VLAN tags.
    fn tagged(frame: &[u8], tags: usize) -> Vec<u8> {
        let tags = [0x81, 0, 0, 7].repeat(tags);
        [&frame[..12], &tags, &frame[12..]].concat()
    }

    #[test]
    fn packets_that_may_change_a_flow_have_no_key() {
        for (from, to) in HOSTS {
            let ends = ((from, 1_000), (to, 80));
            for flags in ["S", "SA", "FA", "RA", "R", ""] {
                assert!(FlowKey::of(&tcp(ends.0, ends.1, flags)).is_none(), "{flags}");
            }
            let data = udp(from, to, &[7; 40]);
            for frame in
                [tcp(ends.0, ends.1, "A"), data.clone(), tagged(&data, 1), tagged(&data, 2)]
            {
                assert!(FlowKey::of(&frame).is_some(), "{frame:02x?}");
            }
            assert!(FlowKey::of(&tagged(&data, 3)).is_none());
            assert!(FlowKey::of(&echo(from, to, 1, true)).is_none());
            assert!(cut(&data, 1, 16).iter().all(|fragment| FlowKey::of(fragment).is_none()));
        }
        let mut options = udp("10.0.0.1", "10.0.0.2", b"data");
        (options[14], options[17]) = (0x46, options[17] + 4);
        options.splice(34..34, [1, 1, 1, 0]);
        options[24..26].fill(0);
        let sum = slow_sum(&options[14..38]);
        options[24..26].copy_from_slice(&(!sum).to_be_bytes());
        assert!(matches!(parse(&options), Ok(Frame::Ip(_))) && FlowKey::of(&options).is_none());
    }

    #[test]
    fn each_field_that_a_rule_depends_on_is_in_the_key() {
        for (from, to) in HOSTS {
            for frame in [udp(from, to, b"data"), tcp((from, 1), (to, 2), "A")] {
                let key = |frame: &[u8]| FlowKey::of(frame).map(|(key, _)| key);
                let (whole, Some((_, layout))) = (key(&frame), FlowKey::of(&frame)) else {
                    panic!()
                };
                let addresses = if layout.is_ipv4() { 26..34 } else { 22..54 };
                for at in (0..12).chain(addresses).chain(layout.transport..layout.transport + 4) {
                    let mut other = frame.clone();
                    let word = at & !1;
                    other[at] ^= 1;
                    if layout.is_ipv4() && (14..34).contains(&at) {
                        let new = [other[word], other[word + 1]];
                        other[at] ^= 1;
                        wire::replace_bytes(&mut other, 24, word, &new);
                    }
                    assert!(key(&other).is_some_and(|other| Some(other) != whole), "byte {at}");
                }
            }
        }
    }

    proptest! {
        /// Tasks read each frame that has a key, and find the same layout.
        #[test]
        fn keyed_frames_are_what_the_parser_reads(
            kind in 0..4_usize,
            tags in 0..4_usize,
            changes in prop::collection::vec((0..80_usize, any::<u8>()), 0..3),
            length in 0..120_usize,
            is_cut in any::<bool>(),
            is_filled in any::<bool>(),
        ) {
            let (from, to) = HOSTS[kind % 2];
            let frame = if kind < 2 { udp(from, to, b"data") } else { tcp((from, 1), (to, 2), "A") };
            let mut frame = tagged(&frame, tags);
            if is_cut {
                frame.truncate(length);
            }
            let bytes = frame.len().max(1);
            for (at, value) in changes {
                if let Some(byte) = frame.get_mut(at % bytes) {
                    *byte = value;
                }
            }
            let network = ETHERNET_BYTES + 4 * tags;
            if is_filled && kind % 2 == 0 && frame.len() >= network + 20 {
                // Else all damage ends at the header's checksum.
                frame[network + 10..network + 12].fill(0);
                let sum = slow_sum(&frame[network..network + 20]);
                frame[network + 10..network + 12].copy_from_slice(&(!sum).to_be_bytes());
            }
            if let Some((_, layout)) = FlowKey::of(&frame) {
                prop_assert_eq!(parse(&frame), Ok(Frame::Ip(layout)));
            }
        }
    }
}
