//! Support of the tests of NTs: an NT in its slot with a clock, and frames.

use std::net::IpAddr;
use std::time::Duration;

use etherparse::PacketBuilder;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use snic_domain::Timestamp;

use crate::{Context, Direction, Emitted, NtInstance, Packet, Pool, Verdict, create, schema};

/// Packets that came out.
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    /// The packet as the NT left it.
    pub(crate) frame: Vec<u8>,
    pub(crate) emitted: Vec<(Direction, Vec<u8>)>,
}

/// An NT with all it needs.
pub(crate) struct Bench {
    pub(crate) nt: NtInstance,
    nt_type: &'static str,
    settings: Value,
    pool: Pool,
    emitted: Emitted,
    pub(crate) random: ChaCha8Rng,
    pub(crate) now: Timestamp,
}

pub(crate) const FRAME_BYTES_MAX: usize = 2_048;

impl Bench {
    pub(crate) fn new(nt_type: &'static str, settings: Value) -> Self {
        let pool = Pool::new(64, FRAME_BYTES_MAX);
        let mut bench = Self {
            nt: create(nt_type, 7).unwrap(),
            nt_type,
            settings: Value::Null,
            emitted: Emitted::new(pool.clone()),
            pool,
            random: ChaCha8Rng::seed_from_u64(7),
            now: Timestamp::from_nanos(1_000_000_000),
        };
        bench.configure(settings);
        bench
    }

    pub(crate) fn configure(&mut self, settings: Value) {
        let version = schema(self.nt_type).unwrap().version;
        self.nt.configure(self.now, version, settings.to_string().as_bytes()).unwrap();
        self.settings = settings;
    }

    /// The message with which these settings are rejected.
    pub(crate) fn rejected(&mut self, settings: &Value) -> String {
        let version = schema(self.nt_type).unwrap().version;
        self.nt
            .configure(self.now, version, settings.to_string().as_bytes())
            .unwrap_err()
            .to_string()
    }

    pub(crate) fn wait_nanos(&mut self, nanos: u64) {
        self.now = self.now + Duration::from_nanos(nanos);
    }

    pub(crate) fn wait_secs(&mut self, secs: u64) {
        self.now = self.now + Duration::from_secs(secs);
    }

    pub(crate) fn packet(&self, frame: &[u8]) -> Packet {
        self.pool.copy_of(frame).unwrap()
    }

    /// A packet that may have passed other NTs before.
    pub(crate) fn pass(&mut self, packet: &mut Packet) -> Verdict {
        let mut context =
            Context { now: self.now, random: &mut self.random, emitted: &mut self.emitted };
        self.nt.process(packet, &mut context)
    }

    pub(crate) fn run(&mut self, frame: &[u8]) -> Outcome {
        let mut packet = self.packet(frame);
        let verdict = self.pass(&mut packet);
        let frame = packet.bytes().to_vec();
        drop(packet);
        Outcome { verdict, frame, emitted: self.drain() }
    }

    /// Packets that the NT has emitted since the last call.
    pub(crate) fn made(&mut self) -> Vec<(Direction, Packet)> {
        self.emitted.drain().collect()
    }

    /// Runs the timers that are due; returns what was emitted.
    pub(crate) fn wake(&mut self) -> Vec<(Direction, Vec<u8>)> {
        let mut context =
            Context { now: self.now, random: &mut self.random, emitted: &mut self.emitted };
        self.nt.wake(&mut context);
        self.drain()
    }

    fn drain(&mut self) -> Vec<(Direction, Vec<u8>)> {
        let emitted =
            self.emitted.drain().map(|(to, packet)| (to, packet.bytes().to_vec())).collect();
        assert_eq!(self.pool.available(), self.pool.capacity(), "all buffers came back");
        emitted
    }

    /// The state goes to a new NT of the same type and settings, at a card with another clock.
    pub(crate) fn restart(&mut self) {
        let saved = self.nt.save(self.now);
        self.now = Timestamp::from_nanos(77_000_000_000_000).max(self.now) + Duration::from_secs(9);
        self.nt = create(self.nt_type, 8).unwrap();
        self.configure(self.settings.clone());
        self.nt.restore(self.now, &saved).unwrap();
        assert_eq!(self.nt.save(self.now), saved, "what is restored is what was saved");
    }
}

pub(crate) const CLIENT_STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const GATEWAY_STATION: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Addresses and ports of a frame: `("10.0.0.1", 1000)` to `("10.0.0.2", 80)`.
pub(crate) type End = (&'static str, u16);

fn builder(
    source: &str,
    destination: &str,
) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    let link = PacketBuilder::ethernet2(CLIENT_STATION, GATEWAY_STATION);
    match (source.parse().unwrap(), destination.parse().unwrap()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            link.ipv4(source.octets(), destination.octets(), 64)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            link.ipv6(source.octets(), destination.octets(), 64)
        }
        _ => panic!("{source} and {destination} are of different families"),
    }
}

/// A UDP packet from port 1000 to port 2000.
pub(crate) fn udp(source: &'static str, destination: &'static str, payload: &[u8]) -> Vec<u8> {
    udp_between((source, 1_000), (destination, 2_000), payload)
}

pub(crate) fn udp_between(from: End, to: End, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    builder(from.0, to.0).udp(from.1, to.1).write(&mut frame, payload).unwrap();
    frame
}

/// A TCP segment; `flags` are letters of S, A, F, R.
pub(crate) fn tcp(from: End, to: End, flags: &str) -> Vec<u8> {
    let mut step = builder(from.0, to.0).tcp(from.1, to.1, 1, 1_000);
    for flag in flags.chars() {
        step = match flag {
            'S' => step.syn(),
            'A' => step.ack(2),
            'F' => step.fin(),
            'R' => step.rst(),
            other => panic!("no flag {other}"),
        };
    }
    let mut frame = Vec::new();
    step.write(&mut frame, b"data").unwrap();
    frame
}

/// An echo request or reply.
pub(crate) fn echo(source: &str, destination: &str, id: u16, is_request: bool) -> Vec<u8> {
    let mut frame = Vec::new();
    let step = builder(source, destination);
    let is_v4 = source.parse::<IpAddr>().unwrap().is_ipv4();
    match (is_v4, is_request) {
        (true, true) => step.icmpv4_echo_request(id, 1).write(&mut frame, b"ping"),
        (true, false) => step.icmpv4_echo_reply(id, 1).write(&mut frame, b"ping"),
        (false, true) => step.icmpv6_echo_request(id, 1).write(&mut frame, b"ping"),
        (false, false) => step.icmpv6_echo_reply(id, 1).write(&mut frame, b"ping"),
    }
    .unwrap();
    frame
}

/// An ICMP error from `router` about `frame`, which quotes `most` bytes of it at most.
fn error(
    (router, to): (&str, &str),
    frame: &[u8],
    most: usize,
    kinds: (etherparse::Icmpv4Type, etherparse::Icmpv6Type),
) -> Vec<u8> {
    let quoted = &frame[14..];
    let quoted = &quoted[..quoted.len().min(most)];
    let mut out = Vec::new();
    match router.parse::<IpAddr>().unwrap() {
        IpAddr::V4(_) => builder(router, to).icmpv4(kinds.0).write(&mut out, quoted),
        IpAddr::V6(_) => builder(router, to).icmpv6(kinds.1).write(&mut out, quoted),
    }
    .unwrap();
    out
}

/// A "time exceeded" from `router` about `frame`, as if it had arrived there, with as little of it as is allowed.
pub(crate) fn time_exceeded(router: &str, to: &str, frame: &[u8]) -> Vec<u8> {
    let most = if router.parse::<IpAddr>().unwrap().is_ipv4() { 28 } else { 56 };
    let kinds = (
        etherparse::Icmpv4Type::TimeExceeded(
            etherparse::icmpv4::TimeExceededCode::TtlExceededInTransit,
        ),
        etherparse::Icmpv6Type::TimeExceeded(
            etherparse::icmpv6::TimeExceededCode::HopLimitExceeded,
        ),
    );
    error((router, to), frame, most, kinds)
}

/// A "port unreachable" from `host` about `frame`, with as much of it as is allowed.
pub(crate) fn unreachable(host: &str, to: &str, frame: &[u8]) -> Vec<u8> {
    let kinds = (
        etherparse::Icmpv4Type::DestinationUnreachable(
            etherparse::icmpv4::DestUnreachableHeader::Port,
        ),
        etherparse::Icmpv6Type::DestinationUnreachable(
            etherparse::icmpv6::DestUnreachableCode::Port,
        ),
    );
    error((host, to), frame, 548, kinds)
}

/// A "parameter problem" from `router` about `frame`.
pub(crate) fn parameter_problem(router: &str, to: &str, frame: &[u8]) -> Vec<u8> {
    let kinds = (
        etherparse::Icmpv4Type::ParameterProblem(
            etherparse::icmpv4::ParameterProblemHeader::PointerIndicatesError(1),
        ),
        etherparse::Icmpv6Type::ParameterProblem(etherparse::icmpv6::ParameterProblemHeader {
            code: etherparse::icmpv6::ParameterProblemCode::UnrecognizedNextHeader,
            pointer: 6,
        }),
    );
    error((router, to), frame, 548, kinds)
}

/// A "fragmentation needed" or "packet too big" from `router` about `frame`.
pub(crate) fn too_big(router: &str, to: &str, frame: &[u8], mtu: u16) -> Vec<u8> {
    let kinds = (
        etherparse::Icmpv4Type::DestinationUnreachable(
            etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu },
        ),
        etherparse::Icmpv6Type::PacketTooBig { mtu: mtu.into() },
    );
    error((router, to), frame, 548, kinds)
}

/// A packet in fragments of up to `size` bytes of payload (a multiple of 8), in order.
pub(crate) fn cut(frame: &[u8], id: u16, size: usize) -> Vec<Vec<u8>> {
    let is_v4 = frame[14] >> 4 == 4;
    let (head, payload) = frame.split_at(if is_v4 { 34 } else { 54 });
    let count = payload.len().div_ceil(size);
    let piece = |(index, bytes): (usize, &[u8])| {
        let (offset, more) = ((index * size) as u16, u16::from(index + 1 < count));
        let mut out = head.to_vec();
        if is_v4 {
            out[16..18].copy_from_slice(&((bytes.len() + 20) as u16).to_be_bytes());
            out[18..20].copy_from_slice(&id.to_be_bytes());
            out[20..22].copy_from_slice(&((more << 13) | (offset / 8)).to_be_bytes());
            out[24..26].fill(0);
            let sum = slow_sum(&out[14..34]);
            out[24..26].copy_from_slice(&(!sum).to_be_bytes());
        } else {
            out[18..20].copy_from_slice(&((bytes.len() + 8) as u16).to_be_bytes());
            let next = std::mem::replace(&mut out[20], 44);
            out.extend([next, 0]);
            out.extend((offset | more).to_be_bytes());
            out.extend(u32::from(id).to_be_bytes());
        }
        out.extend(bytes);
        out
    };
    payload.chunks(size).enumerate().map(piece).collect()
}

/// An IPv4 packet in fragments, the first with `first` bytes of payload (a multiple of 8).
pub(crate) fn fragments(frame: &[u8], id: u16, first: usize) -> [Vec<u8>; 2] {
    let (header, payload) = (&frame[..34], &frame[34..]);
    let piece = |bytes: &[u8], offset: u16| {
        let mut out = [header, bytes].concat();
        out[16..18].copy_from_slice(&((bytes.len() + 20) as u16).to_be_bytes());
        out[18..20].copy_from_slice(&id.to_be_bytes());
        out[20..22].copy_from_slice(&offset.to_be_bytes());
        out[24..26].fill(0);
        let sum = slow_sum(&out[14..34]);
        out[24..26].copy_from_slice(&(!sum).to_be_bytes());
        out
    };
    [piece(&payload[..first], 0x2000), piece(&payload[first..], first as u16 / 8)]
}

/// The Internet checksum's sum, as RFC 1071 describes it.
pub(crate) fn slow_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for (index, byte) in bytes.iter().enumerate() {
        sum += u32::from(*byte) << (if index % 2 == 0 { 8 } else { 0 });
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

/// A request of ARP.
pub(crate) fn arp() -> Vec<u8> {
    let head = [&[0xFF; 6][..], &CLIENT_STATION, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    [&head[..], &CLIENT_STATION, &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2], &[0; 18]].concat()
}

/// Whether smoltcp accepts the frame of an ICMP error, and the header of the packet that it quotes; where all of that is
/// there, its transport's checksum too.
pub(crate) fn assert_valid_error(frame: &[u8]) {
    assert_valid(frame);
    let (head, inner_head) = if frame[14] >> 4 == 4 { (34, 20) } else { (54, 40) };
    let quoted = &frame[head + 8..];
    if inner_head == 20 {
        assert_eq!(slow_sum(&quoted[..20]), 0xFFFF, "the quoted header");
    }
    let length = |at: usize| usize::from(u16::from_be_bytes([quoted[at], quoted[at + 1]]));
    let whole = if inner_head == 20 { length(2) } else { length(4) + 40 };
    if quoted.len() >= whole {
        assert_valid(&[&frame[..14], &quoted[..whole]].concat());
    }
}

/// Whether another implementation, smoltcp, accepts the frame and its checksums.
pub(crate) fn assert_valid(frame: &[u8]) {
    use smoltcp::wire::{
        EthernetFrame, EthernetProtocol, Icmpv4Packet, Icmpv6Packet, IpProtocol, Ipv4Packet,
        Ipv6Packet, TcpPacket, UdpPacket,
    };
    let frame = EthernetFrame::new_checked(frame).unwrap();
    let check = |protocol, payload: &[u8], from, to| match protocol {
        IpProtocol::Tcp => {
            assert!(TcpPacket::new_checked(payload).unwrap().verify_checksum(&from, &to))
        }
        IpProtocol::Udp => {
            assert!(UdpPacket::new_checked(payload).unwrap().verify_checksum(&from, &to))
        }
        IpProtocol::Icmp => assert!(Icmpv4Packet::new_checked(payload).unwrap().verify_checksum()),
        _ => {}
    };
    match frame.ethertype() {
        EthernetProtocol::Ipv4 => {
            let ip = Ipv4Packet::new_checked(frame.payload()).unwrap();
            assert!(ip.verify_checksum(), "IPv4 header");
            if ip.frag_offset() == 0 && !ip.more_frags() {
                check(ip.next_header(), ip.payload(), ip.src_addr().into(), ip.dst_addr().into());
            }
        }
        EthernetProtocol::Ipv6 => {
            let ip = Ipv6Packet::new_checked(frame.payload()).unwrap();
            let (from, to) = (ip.src_addr(), ip.dst_addr());
            if ip.next_header() == IpProtocol::Icmpv6 {
                let icmp = Icmpv6Packet::new_checked(ip.payload()).unwrap();
                assert!(icmp.verify_checksum(&from, &to), "ICMPv6");
            }
            check(ip.next_header(), ip.payload(), from.into(), to.into());
        }
        other => panic!("{other} is not IP"),
    }
}
