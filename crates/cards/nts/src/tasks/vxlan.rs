//! VXLAN (RFC 7348): Ethernet frames in UDP, between two ends.
//!
//! Packets from the other end are decapsulated and all others are encapsulated, unless a role says
//! that only one of the two is wanted. The outer Ethernet header has the two configured stations:
//! the card is the host at its end and has no routing table.
//!
//! Outer packets are never fragmented (section 4.3): what does not fit the path's MTU is answered, or cut before it is
//! encapsulated, and errors from the path lower that MTU ([`super::path_mtu`]).

use std::hash::BuildHasher;
use std::net::IpAddr;

use serde::Deserialize;
use snic_domain::Timestamp;

use super::ecn;
use super::icmp_errors::ErrorBudget;
use super::path_mtu::{Oversized, PathMtu};
use crate::aging::KeyedHash;
use crate::config::{Configuration, Field, InvalidConfiguration, Kind, Mac, Schema};
use crate::wire::{
    self, ETHERNET_BYTES, ETHERNET_TYPE, Flow, Fragment, Frame, Layout, TunnelHeader, Verified,
    ethernet_header_bytes, protocol, quoted_flow, read_u16,
};
use crate::{Context, DropReason, NetworkTask, Packet, Verdict};

const UDP_BYTES: usize = 8;
const VXLAN_BYTES: usize = 8;
/// The flag that says that the header has a network identifier.
const VNI_FLAG: u8 = 0x08;
/// The port that IANA assigned.
const PORT: u16 = 4_789;
/// Source ports tell flows apart for routers that spread them (RFC 7348, section 5).
const SOURCE_PORT_FIRST: u16 = 49_152;
const SOURCE_PORTS: u64 = 16_384;
/// The same for all packets, so that a flow keeps its port.
const FLOW_HASH: KeyedHash = KeyedHash(0x7678_6C61_6E00_0001, 0);

pub(crate) static SCHEMA: Schema = Schema {
    nt_type: "vxlan",
    version: 1,
    fields: &[
        Field::required("vni", Kind::Integer { min: 0, max: 0xFF_FFFF }, "The network identifier."),
        Field::required("local", Kind::Address, "This end of the tunnel."),
        Field::required("remote", Kind::Address, "The other end."),
        Field::required("local_mac", Kind::Mac, "The station of this end."),
        Field::required("remote_mac", Kind::Mac, "The station of the other end or its router."),
        Field::optional(
            "role",
            Kind::Choice(&["both", "encapsulate", "decapsulate"]),
            "Which way packets go through; both by default.",
        ),
        Field::optional(
            "port",
            Kind::Integer { min: 1, max: 65_535 },
            "The UDP port; 4789 by default.",
        ),
        Field::optional(
            "hop_limit",
            Kind::Integer { min: 1, max: 255 },
            "Hops of the outer header; 64 by default.",
        ),
        Field::optional(
            "mtu",
            Kind::Integer { min: 1_280, max: 9_216 },
            "The largest IP packet on the way to the other end; 1500 by default. Hosts need an MTU that is 50 lower, over IPv6 70.",
        ),
        Field::optional(
            "udp_checksum",
            Kind::Flag,
            "Whether a checksum is sent over IPv4 too, where RFC 7348 wants none; false by default.",
        ),
        Field::optional(
            "inner_vlan",
            Kind::Flag,
            "Whether packed frames may have a VLAN tag; false by default (RFC 7348, section 6.1).",
        ),
    ],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Role {
    #[default]
    Both,
    Encapsulate,
    Decapsulate,
}

#[derive(Debug, Clone, Deserialize)]
struct Settings {
    vni: u32,
    local: IpAddr,
    remote: IpAddr,
    local_mac: Mac,
    remote_mac: Mac,
    #[serde(default)]
    role: Role,
    #[serde(default = "port_by_default")]
    port: u16,
    #[serde(default = "hops_by_default")]
    hop_limit: u8,
    #[serde(default = "mtu_by_default")]
    mtu: usize,
    #[serde(default)]
    udp_checksum: bool,
    #[serde(default)]
    inner_vlan: bool,
}

fn port_by_default() -> u16 {
    PORT
}
fn hops_by_default() -> u8 {
    64
}
fn mtu_by_default() -> usize {
    1_500
}

/// The NT. It keeps no state that a load of the region should save.
#[derive(Debug, Default)]
pub(crate) struct Vxlan {
    settings: Option<Settings>,
    path: PathMtu,
    errors: ErrorBudget,
}

impl NetworkTask for Vxlan {
    fn configure(
        &mut self,
        _: Timestamp,
        configuration: &Configuration,
    ) -> Result<(), InvalidConfiguration> {
        let settings: Settings = configuration.read()?;
        if settings.local.is_ipv4() != settings.remote.is_ipv4() {
            let allowed = "an address of the IP version of local";
            return Err(InvalidConfiguration::field("remote", settings.remote, allowed));
        }
        self.path = PathMtu::new(settings.mtu);
        self.settings = Some(settings);
        Ok(())
    }

    fn process(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Verdict {
        let Self { settings: Some(settings), path, errors } = self else {
            return Verdict::Drop(DropReason::Unconfigured);
        };
        if let Some(error) = settings.error_about_tunnel(packet.bytes()) {
            path.learn(packet.bytes(), &error, context.now);
            return Verdict::Consume;
        }
        let done = match settings.packed(packet.bytes()) {
            Ok(Some(layout)) if settings.role != Role::Encapsulate => {
                settings.decapsulate(packet, &layout).map(|()| Verdict::Forward)
            }
            // It may be VXLAN for the receiver, though it is none for this end.
            Err(reason) if settings.role == Role::Decapsulate || settings.is_underlay(packet) => {
                Err(reason)
            }
            // Damaged inner frames are left to the receiver; packets from the other end are not
            // encapsulated again.
            Ok(None) | Err(_)
                if settings.role != Role::Decapsulate && !settings.is_underlay(packet) =>
            {
                settings.send(packet, path.at(context.now), errors, context)
            }
            _ => Ok(Verdict::Forward),
        };
        done.unwrap_or_else(Verdict::Drop)
    }
}

impl Settings {
    /// The layout of a frame that is VXLAN for this end.
    fn packed(&self, bytes: &[u8]) -> Result<Option<Layout>, DropReason> {
        let layout = match wire::parse(bytes)? {
            Frame::Ip(layout) => layout,
            Frame::Arp => return Ok(None),
            Frame::Other(_) => return Err(DropReason::Unreadable),
        };
        let is_udp = layout.protocol == protocol::UDP && layout.destination == self.local;
        let is_ours = is_udp
            && layout.has_transport_header()
            && read_u16(bytes, layout.transport + 2) == self.port;
        let is_fragment = is_udp && layout.fragment != Fragment::No;
        match (is_fragment, is_ours) {
            // RFC 7348, section 4.3: an end may discard fragments.
            (true, _) => Err(DropReason::Fragment),
            (false, true) => Ok(Some(layout)),
            (false, false) => Ok(None),
        }
    }

    /// Whether the frame is between the two stations of the tunnel itself, such as their ARP.
    fn is_underlay(&self, packet: &Packet) -> bool {
        let Some(stations) = packet.bytes().get(..12) else { return false };
        stations[..6] == self.local_mac.0 || stations[6..] == self.remote_mac.0
    }

    /// The layout of an ICMP error about a packet that the tunnel has sent.
    fn error_about_tunnel(&self, bytes: &[u8]) -> Option<Layout> {
        let Ok(Frame::Ip(error)) = wire::parse(bytes) else { return None };
        let (_, flow) = quoted_flow(bytes, &error)?;
        let is_ours = self.role != Role::Decapsulate
            && (flow.source, flow.destination) == (self.local, self.remote)
            && (flow.protocol, flow.destination_port) == (protocol::UDP, self.port)
            && flow.source_port >= SOURCE_PORT_FIRST
            && wire::verify(bytes, &error) == Verified::Right;
        is_ours.then_some(error)
    }

    /// A frame for the other end, over a path with this MTU.
    fn send(
        &self,
        packet: &mut Packet,
        mtu: usize,
        errors: &mut ErrorBudget,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        if packet.len() < ETHERNET_BYTES {
            return Err(DropReason::Truncated);
        }
        if !self.inner_vlan && is_tagged(packet.bytes()) {
            return Err(DropReason::InnerVlan);
        }
        let longest = mtu - self.outer_bytes();
        if packet.len() <= longest {
            return self.encapsulate(packet).map(|()| Verdict::Forward);
        }
        let Ok(Frame::Ip(layout)) = wire::parse(packet.bytes()) else {
            return Err(DropReason::TooLarge);
        };
        if layout.end <= longest {
            packet.truncate(layout.end);
            return self.encapsulate(packet).map(|()| Verdict::Forward);
        }
        let mtu = longest - layout.network;
        let oversized = Oversized { frame: packet.bytes(), layout, mtu };
        oversized.pass(errors, context, |piece, _, _| self.encapsulate(piece))
    }

    /// Bytes of an IP packet of the tunnel before the frame in it.
    fn outer_bytes(&self) -> usize {
        let ip_bytes = if self.local.is_ipv4() { 20 } else { 40 };
        ip_bytes + UDP_BYTES + VXLAN_BYTES
    }

    /// Puts a frame that fits into the tunnel.
    fn encapsulate(&self, packet: &mut Packet) -> Result<(), DropReason> {
        let bytes = packet.bytes();
        let (entropy, class) = match wire::parse(bytes) {
            Ok(Frame::Ip(inner)) => {
                (FLOW_HASH.hash_one(Flow::of(bytes, &inner)), inner.traffic_class(bytes))
            }
            _ => (FLOW_HASH.hash_one(&bytes[..ETHERNET_BYTES]), 0),
        };
        let outer = TunnelHeader {
            source: self.local,
            destination: self.remote,
            protocol: protocol::UDP,
            // ECN as in RFC 6040; a guest's DSCP means nothing outside.
            traffic_class: class & 3,
            hop_limit: self.hop_limit,
            fragmentation: None,
            flow_label: 0,
        };
        let udp_bytes = UDP_BYTES + VXLAN_BYTES + packet.len();
        let udp = ETHERNET_BYTES + outer.bytes();
        packet.grow_front(udp + UDP_BYTES + VXLAN_BYTES).map_err(|_| DropReason::NoBuffer)?;
        let bytes = packet.bytes_mut();
        let ethernet =
            ethernet_header_bytes(self.remote_mac.0, self.local_mac.0, outer.ether_type());
        bytes[..ETHERNET_BYTES].copy_from_slice(&ethernet);
        outer.write(udp_bytes, &mut bytes[ETHERNET_BYTES..]);
        let source_port = SOURCE_PORT_FIRST + (entropy % SOURCE_PORTS) as u16;
        bytes[udp..udp + 2].copy_from_slice(&source_port.to_be_bytes());
        bytes[udp + 2..udp + 4].copy_from_slice(&self.port.to_be_bytes());
        let length = u16::try_from(udp_bytes).map_err(|_| DropReason::TooLarge)?;
        bytes[udp + 4..udp + 6].copy_from_slice(&length.to_be_bytes());
        bytes[udp + 6..udp + 8].fill(0);
        let vni = self.vni.to_be_bytes();
        let vxlan = [VNI_FLAG, 0, 0, 0, vni[1], vni[2], vni[3], 0];
        bytes[udp + UDP_BYTES..udp + UDP_BYTES + VXLAN_BYTES].copy_from_slice(&vxlan);
        if self.udp_checksum || !self.local.is_ipv4() {
            let layout = Layout {
                network: ETHERNET_BYTES,
                transport: udp,
                end: bytes.len(),
                protocol: protocol::UDP,
                fragment: Fragment::No,
                source: self.local,
                destination: self.remote,
            };
            wire::fill(bytes, &layout);
        }
        Ok(())
    }

    fn decapsulate(&self, packet: &mut Packet, layout: &Layout) -> Result<(), DropReason> {
        let bytes = packet.bytes();
        if layout.source != self.remote {
            return Err(DropReason::NotForTunnel);
        }
        // A sender may leave the checksum out over both IP versions (RFC 7348, section 5; RFC 6935). The addresses are
        // those of this tunnel, as RFC 6936, section 5 asks for.
        let has_checksum = read_u16(bytes, layout.transport + wire::UDP_CHECKSUM) != 0;
        if has_checksum && wire::verify(bytes, layout) == Verified::Wrong {
            return Err(DropReason::BadChecksum);
        }
        let udp_end = layout.transport + usize::from(read_u16(bytes, layout.transport + 4));
        let inner = layout.transport + UDP_BYTES + VXLAN_BYTES;
        if udp_end < inner + ETHERNET_BYTES {
            return Err(DropReason::Truncated);
        }
        let header = &bytes[inner - VXLAN_BYTES..inner];
        if header[0] & VNI_FLAG == 0 {
            return Err(DropReason::Malformed);
        }
        if header[4..7] != self.vni.to_be_bytes()[1..] {
            return Err(DropReason::WrongVni);
        }
        if !self.inner_vlan && is_tagged(&bytes[inner..udp_end]) {
            return Err(DropReason::InnerVlan);
        }
        let outer_class = layout.traffic_class(bytes);
        packet.truncate(udp_end);
        packet.shrink_front(inner);
        let bytes = packet.bytes_mut();
        match wire::parse(bytes) {
            Ok(Frame::Ip(inner)) => ecn::decapsulate(bytes, &inner, outer_class),
            _ => Ok(()),
        }
    }
}

/// Whether a frame has a VLAN tag of any kind.
fn is_tagged(frame: &[u8]) -> bool {
    wire::is_tag(read_u16(frame, ETHERNET_TYPE))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::Direction;
    use crate::tasks::support::{
        Bench, FRAME_BYTES_MAX, assert_valid, assert_valid_error, tcp, too_big, udp,
    };

    fn end(local: &str, remote: &str, more: Value) -> Bench {
        let (local_mac, remote_mac) = match local < remote {
            true => ("02:00:00:00:aa:01", "02:00:00:00:aa:02"),
            false => ("02:00:00:00:aa:02", "02:00:00:00:aa:01"),
        };
        let mut settings = json!({"vni": 0xABCDEF, "local": local, "remote": remote,
            "local_mac": local_mac, "remote_mac": remote_mac});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Bench::new("vxlan", settings)
    }

    fn ends() -> [(&'static str, &'static str); 2] {
        [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")]
    }

    /// Byte for byte as in the figures of RFC 7348, section 5.
    #[test]
    fn the_headers_are_those_of_the_rfc() {
        let inner = udp("10.0.0.1", "10.0.0.2", b"inside");
        let out = end("192.0.2.1", "192.0.2.2", json!({})).run(&inner);
        assert_eq!(out.verdict, Verdict::Forward);
        let frame = out.frame;
        assert_eq!(frame[..14], [2, 0, 0, 0, 0xAA, 2, 2, 0, 0, 0, 0xAA, 1, 8, 0]);
        assert_eq!(frame[14], 0x45);
        assert_eq!(frame[23], 17);
        assert!(read_u16(&frame, 34) >= 49_152);
        assert_eq!(read_u16(&frame, 36), 4_789);
        assert_eq!(usize::from(read_u16(&frame, 38)), 16 + inner.len());
        assert_eq!(read_u16(&frame, 40), 0, "no checksum over IPv4");
        assert_eq!(frame[42..50], [8, 0, 0, 0, 0xAB, 0xCD, 0xEF, 0]);
        assert_eq!(frame[50..], inner);
    }

    proptest! {
        /// Whatever goes in comes out of the other end.
        #[test]
        fn frames_come_out_as_they_went_in(
            frame in prop::collection::vec(any::<u8>(), 14..300),
            six: bool,
            udp_checksum: bool,
        ) {
            let (a, b) = ends()[usize::from(six)];
            let more = json!({"udp_checksum": udp_checksum, "inner_vlan": true, "vni": 5});
            let packed = end(a, b, more.clone()).run(&frame);
            prop_assert_eq!(packed.verdict, Verdict::Forward);
            if six || udp_checksum {
                assert_valid(&packed.frame);
            }
            let unpacked = end(b, a, more).run(&packed.frame);
            prop_assert_eq!(unpacked.verdict, Verdict::Forward);
            prop_assert_eq!(unpacked.frame, frame);
        }
    }

    #[test]
    fn packets_without_checksum_are_accepted_over_both_ip_versions() {
        let inner = udp("10.0.0.1", "10.0.0.2", b"inside");
        for ((a, b), header) in ends().into_iter().zip([20, 40]) {
            let mut packed = end(a, b, json!({"udp_checksum": true})).run(&inner).frame;
            let checksum = 14 + header + 6;
            assert_ne!(read_u16(&packed, checksum), 0);
            packed[checksum + 1] ^= 1;
            let damaged = end(b, a, json!({})).run(&packed).verdict;
            assert_eq!(damaged, Verdict::Drop(DropReason::BadChecksum));
            packed[checksum..checksum + 2].fill(0);
            let out = end(b, a, json!({})).run(&packed);
            assert_eq!((out.verdict, out.frame), (Verdict::Forward, inner.clone()), "{a}");
        }
    }

    #[test]
    fn flows_keep_their_source_port() {
        let mut bench = end("192.0.2.1", "192.0.2.2", json!({}));
        let mut port = |frame: &[u8]| read_u16(&bench.run(frame).frame, 34);
        let one = udp("10.0.0.1", "10.0.0.2", b"1");
        assert_eq!(port(&one), port(&udp("10.0.0.1", "10.0.0.2", b"another")));
        let ports: std::collections::BTreeSet<_> =
            (1..50).map(|i| port(&tcp(("10.0.0.1", i), ("10.0.0.2", 80), "S"))).collect();
        assert!(ports.len() > 40);
    }

    #[test]
    fn packets_from_unknown_peers_are_dropped_with_the_reason() {
        let inner = udp("10.0.0.1", "10.0.0.2", b"inside");
        let mut far = end("192.0.2.2", "192.0.2.1", json!({"udp_checksum": true}));
        let good = far.run(&inner).frame;
        let run = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = good.clone();
            change(&mut frame);
            let mut near = end("192.0.2.1", "192.0.2.2", json!({"role": "decapsulate"}));
            near.run(&frame).verdict
        };
        assert_eq!(run(&|_| ()), Verdict::Forward);
        let refill = |frame: &mut Vec<u8>| {
            let Ok(Frame::Ip(layout)) = wire::parse(frame) else { panic!() };
            wire::fill(frame, &layout);
        };
        assert_eq!(run(&|f| f[60] ^= 1), Verdict::Drop(DropReason::BadChecksum));
        assert_eq!(
            run(&|f| {
                f[48] ^= 1;
                refill(f)
            }),
            Verdict::Drop(DropReason::WrongVni)
        );
        assert_eq!(
            run(&|f| {
                f[42] = 0;
                refill(f)
            }),
            Verdict::Drop(DropReason::Malformed)
        );
        assert_eq!(
            run(&|f| {
                f[62..64].copy_from_slice(&[0x81, 0]);
                refill(f)
            }),
            Verdict::Drop(DropReason::InnerVlan)
        );
        assert_eq!(
            run(&|f| {
                wire::replace_bytes(f, 24, 26, &[192, 0]);
                wire::replace_bytes(f, 24, 28, &[2, 9]);
                refill(f)
            }),
            Verdict::Drop(DropReason::NotForTunnel)
        );
        assert_eq!(run(&|f| f.truncate(60)), Verdict::Drop(DropReason::Truncated));
    }

    #[test]
    fn a_packet_that_exceeds_the_mtu_is_not_sent() {
        let mut bench = end("192.0.2.1", "192.0.2.2", json!({}));
        assert_eq!(bench.run(&[1; 1_464]).verdict, Verdict::Forward, "1500 with 36 of headers");
        assert_eq!(bench.run(&[1; 1_465]).verdict, Verdict::Drop(DropReason::TooLarge));
        bench
            .configure(json!({"vni": 1, "local": "192.0.2.1", "remote": "192.0.2.2", "mtu": 9_000,
            "local_mac": "02:00:00:00:aa:01", "remote_mac": "02:00:00:00:aa:02"}));
        assert_eq!(bench.run(&[1; FRAME_BYTES_MAX]).verdict, Verdict::Forward);
        let mixed = json!({"vni": 1, "local": "192.0.2.1", "remote": "::1",
            "local_mac": "02:00:00:00:aa:01", "remote_mac": "02:00:00:00:aa:02"});
        assert!(bench.rejected(&mixed).starts_with("remote: ::1 is not allowed"));
    }

    /// RFC 7348, section 4.3: an end does not fragment, so that a sender has to send less.
    #[test]
    fn rfc_7348_4_3_the_sender_of_what_does_not_fit_gets_the_mtu_that_does() {
        for ((local, remote), overhead) in ends().into_iter().zip([50, 70]) {
            for (from, to) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
                let mut bench = end(local, remote, json!({}));
                let header = if from.contains(':') { 48 } else { 28 };
                let most = 1_500 - overhead;
                let fits = udp(from, to, &vec![0; most - header]);
                assert_eq!(bench.run(&fits).verdict, Verdict::Forward);
                let out = bench.run(&udp(from, to, &vec![0; most - header + 1]));
                assert_eq!(out.verdict, Verdict::Drop(DropReason::TooLarge));
                let [(Direction::Back, error)] = &out.emitted[..] else { panic!("no answer") };
                assert_valid_error(error);
                let Ok(Frame::Ip(layout)) = wire::parse(error) else { panic!() };
                let ends = (layout.source.to_string(), layout.destination.to_string());
                assert_eq!(ends, (to.to_owned(), from.to_owned()));
                assert_eq!(usize::from(read_u16(error, layout.transport + 6)), most);
            }
        }
    }

    #[test]
    fn packets_without_df_are_cut_before_they_are_packed() {
        let mut near = end("192.0.2.1", "192.0.2.2", json!({}));
        let mut far = end("192.0.2.2", "192.0.2.1", json!({}));
        let mut whole = udp("10.0.0.1", "10.0.0.2", &[7; 1_900]);
        wire::replace_bytes(&mut whole, 24, 20, &[0, 0]);
        let out = near.run(&whole);
        assert_eq!((out.verdict, out.emitted.len()), (Verdict::Consume, 2));
        let mut payload = Vec::new();
        for (_, packed) in out.emitted {
            assert!(packed.len() - ETHERNET_BYTES <= 1_500);
            assert_eq!(packed[20] & 0x40, 0x40, "no router may fragment it either");
            let piece = far.run(&packed).frame;
            assert_valid(&piece);
            payload.extend_from_slice(&piece[34..]);
        }
        assert_eq!(payload, whole[34..]);
    }

    #[test]
    fn errors_from_the_path_lower_the_mtu_for_ten_minutes() {
        let mut bench = end("192.0.2.1", "192.0.2.2", json!({}));
        let long = udp("10.0.0.1", "10.0.0.2", &[0; 1_400]);
        let packed = bench.run(&long).frame;
        let mut other = packed.clone();
        wire::replace_bytes(&mut other, 24, 30, &[198, 51]);
        bench.run(&too_big("203.0.113.1", "192.0.2.1", &other, 1_300));
        assert_eq!(bench.run(&long).verdict, Verdict::Forward, "about another tunnel");
        let error = too_big("203.0.113.1", "192.0.2.1", &packed, 1_300);
        assert_eq!(bench.run(&error).verdict, Verdict::Consume);
        let out = bench.run(&long);
        assert_eq!(out.verdict, Verdict::Drop(DropReason::TooLarge));
        assert_eq!(read_u16(&out.emitted[0].1, 40), 1_250);
        bench.wait_secs(600);
        assert_eq!(bench.run(&long).verdict, Verdict::Forward);
    }

    #[test]
    fn congestion_marked_outside_is_seen_inside() {
        let mut inner = udp("10.0.0.1", "10.0.0.2", b"inside");
        let Ok(Frame::Ip(layout)) = wire::parse(&inner) else { panic!() };
        layout.set_traffic_class(&mut inner, 0b10);
        let mut packed = end("192.0.2.2", "192.0.2.1", json!({})).run(&inner).frame;
        let Ok(Frame::Ip(outer)) = wire::parse(&packed) else { panic!() };
        assert_eq!(outer.traffic_class(&packed), 0b10);
        outer.set_traffic_class(&mut packed, 0b11);
        let out = end("192.0.2.1", "192.0.2.2", json!({})).run(&packed).frame;
        assert_valid(&out);
        assert_eq!(layout.traffic_class(&out), 0b11);
    }
}
