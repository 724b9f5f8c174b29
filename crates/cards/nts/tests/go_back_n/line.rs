//! A line between two ends that loses, repeats, damages and holds up frames, from a seed.

use std::net::IpAddr;
use std::time::Duration;

use etherparse::PacketBuilder;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_domain::Timestamp;
use snic_nts::wire::{self, Frame};

use crate::ends::{End, HOSTS};

const STATIONS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// The virtual time after which a line that still has something to do is broken.
const TIME_MAX: Duration = Duration::from_secs(3_600);

/// Faults of the line, each for this many frames of a thousand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub lost: u32,
    pub repeated: u32,
    pub damaged: u32,
    /// The longest time on the line; the shortest is 100 µs.
    pub held_up: Duration,
}

/// Two ends, what is between them, and what their hosts have seen.
pub struct Line<A, B> {
    pub a: A,
    pub b: B,
    pub now: Timestamp,
    pub faults: Faults,
    random: ChaCha8Rng,
    /// When it arrives, where, and what.
    under_way: Vec<(Timestamp, usize, Vec<u8>)>,
    /// Every frame that was sent, for who wants to send one again.
    pub seen: Vec<(usize, Vec<u8>)>,
    /// Packets of each host: what its end took, and what it was given.
    pub taken: [Vec<Vec<u8>>; 2],
    pub delivered: [Vec<Vec<u8>>; 2],
    pub refused: u64,
    /// Frames that the line has lost or damaged.
    pub broken: u64,
}

impl<A: End, B: End> Line<A, B> {
    pub fn new(a: A, b: B, faults: Faults, seed: u64) -> Self {
        Self {
            a,
            b,
            now: Timestamp::from_nanos(1_000_000),
            faults,
            random: ChaCha8Rng::seed_from_u64(seed),
            under_way: Vec::new(),
            seen: Vec::new(),
            taken: Default::default(),
            delivered: Default::default(),
            refused: 0,
            broken: 0,
        }
    }

    fn end(&mut self, side: usize) -> &mut dyn End {
        if side == 0 { &mut self.a } else { &mut self.b }
    }

    /// Frames set out from an end.
    pub fn put(&mut self, from: usize, frames: Vec<Vec<u8>>) {
        for frame in frames {
            if is_between_hosts(&frame) {
                crate::assert_valid(&frame);
            }
            self.seen.push((1 - from, frame.clone()));
            let happens =
                |random: &mut ChaCha8Rng, of_1000| random.random_range(0..1_000) < of_1000;
            let copies = 1 + usize::from(happens(&mut self.random, self.faults.repeated));
            for _ in 0..copies {
                let mut frame = frame.clone();
                if happens(&mut self.random, self.faults.lost) {
                    self.broken += 1;
                    continue;
                }
                if happens(&mut self.random, self.faults.damaged) && is_between_hosts(&frame) {
                    self.broken += 1;
                    let places: Vec<_> =
                        (14..frame.len()).filter(|at| is_covered(&frame, *at)).collect();
                    let at = places[self.random.random_range(0..places.len())];
                    frame[at] ^= 1 << self.random.random_range(0..8);
                }
                let least = Duration::from_micros(100);
                let most = self.faults.held_up.max(least);
                let takes = self.random.random_range(least..=most);
                self.under_way.push((self.now + takes, 1 - from, frame));
            }
        }
    }

    /// A host sends; says whether its end took it.
    pub fn send(&mut self, from: usize, frame: Vec<u8>) -> bool {
        let now = self.now;
        let out = self.end(from).send(&frame, now);
        assert_eq!(out.delivered, None);
        self.put(from, out.sent);
        if out.is_taken {
            self.taken[from].push(frame);
        } else {
            self.refused += 1;
        }
        out.is_taken
    }

    /// A frame arrives at an end.
    pub fn arrive(&mut self, to: usize, frame: &[u8]) {
        let now = self.now;
        let out = self.end(to).arrive(frame, now);
        // IPv6 has no checksum over its header: with a damaged address it is a packet of others.
        let came = out.delivered.filter(|frame| is_between_hosts(frame) || !is_udp(frame));
        self.delivered[to].extend(came);
        self.put(to, out.sent);
    }

    /// When something happens next.
    fn next(&self) -> Option<Timestamp> {
        let arrives = self.under_way.iter().map(|(at, ..)| *at).min();
        arrives.into_iter().chain(self.a.due()).chain(self.b.due()).min()
    }

    /// Lets happen what happens until then.
    pub fn run_until(&mut self, until: Timestamp) {
        while let Some(at) = self.next().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            let now = self.now;
            let first = self.under_way.iter().enumerate().min_by_key(|(_, (at, ..))| *at);
            if let Some((which, (due, ..))) = first
                && *due <= now
            {
                let (_, to, frame) = self.under_way.swap_remove(which);
                self.arrive(to, &frame);
                continue;
            }
            for side in 0..2 {
                if self.end(side).due().is_some_and(|due| due <= now) {
                    let sent = self.end(side).wake(now);
                    self.put(side, sent);
                }
            }
        }
        self.now = self.now.max(until);
    }

    pub fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    /// Lets all happen that there is to do.
    pub fn settle(&mut self) {
        let end = self.now + TIME_MAX;
        while let Some(at) = self.next() {
            assert!(at < end, "the line does not settle");
            self.run_until(at);
        }
    }

    /// Whether both hosts were given what the other end took: once, in order, to the byte.
    pub fn assert_exact(&self) {
        for side in 0..2 {
            let (taken, delivered) = (&self.taken[side], &self.delivered[1 - side]);
            let pairs = taken.iter().zip(delivered).enumerate();
            for (at, (expected, came)) in pairs {
                assert_eq!(expected, came, "packet {at} from side {side}");
            }
            assert_eq!(taken.len(), delivered.len(), "packets from side {side}");
        }
    }
}

/// Whether a checksum covers this byte behind the Ethernet header. None covers IPv6's traffic class, flow label and hops:
/// routers may change them.
fn is_covered(frame: &[u8], at: usize) -> bool {
    frame[12] == 8 || !matches!(at, 14..18 | 21)
}

/// Whether the transport carries it: ARP and what is for a group passes.
fn is_between_hosts(frame: &[u8]) -> bool {
    let Ok(Frame::Ip(layout)) = wire::parse(frame) else { return false };
    let is_host = |address: IpAddr| HOSTS.as_flattened().contains(&address.to_string().as_str());
    is_host(layout.source) && is_host(layout.destination)
}

fn is_udp(frame: &[u8]) -> bool {
    matches!(wire::parse(frame), Ok(Frame::Ip(layout)) if layout.protocol == wire::protocol::UDP)
}

/// A packet of a host: UDP, TCP, ICMP, a fragment or with extension headers, which has a number.
pub fn packet(from: usize, is_six: bool, number: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    let is_fragment = !is_six && number % 5 == 3;
    let mut body = [&number.to_be_bytes()[..], &vec![number as u8; number as usize % 90]].concat();
    if is_fragment {
        // With more behind it, a fragment has a multiple of 8 bytes (RFC 791, section 3.2).
        body.resize(body.len().next_multiple_of(8), 0);
    }
    let link = PacketBuilder::ethernet2(STATIONS[from], STATIONS[1 - from]);
    let hosts = HOSTS[usize::from(is_six)];
    let ip = if is_six {
        let [own, other] =
            [hosts[from], hosts[1 - from]].map(|host| host.parse::<std::net::Ipv6Addr>());
        link.ipv6(own.unwrap().octets(), other.unwrap().octets(), 64)
    } else {
        let [own, other] =
            [hosts[from], hosts[1 - from]].map(|host| host.parse::<std::net::Ipv4Addr>());
        link.ipv4(own.unwrap().octets(), other.unwrap().octets(), 64)
    };
    match number % 5 {
        0 => ip.tcp(1, 2, number, 9).write(&mut frame, &body).unwrap(),
        1 if is_six => ip.icmpv6_echo_request(1, 1).write(&mut frame, &body).unwrap(),
        1 => ip.icmpv4_echo_request(1, 1).write(&mut frame, &body).unwrap(),
        _ => ip.udp(61_021, 61_021).write(&mut frame, &body).unwrap(),
    }
    match number % 5 {
        _ if is_fragment => make_fragment(&mut frame),
        3 => add_destination_options(&mut frame),
        _ => {}
    }
    // Who sends what is dropped as unreadable tests nothing.
    assert!(wire::parse(&frame).is_ok(), "{number}");
    frame
}

/// A later fragment, with more behind it.
fn make_fragment(frame: &mut [u8]) {
    frame[20..22].copy_from_slice(&0x2010_u16.to_be_bytes());
    frame[24..26].fill(0);
    let sum = etherparse::checksum::Sum16BitWords::new().add_slice(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.ones_complement().to_ne_bytes());
}

/// Destination options of IPv6 (RFC 8200, section 4.6) with padding.
fn add_destination_options(frame: &mut Vec<u8>) {
    let options = [frame[20], 0, 1, 4, 0, 0, 0, 0];
    frame[20] = 60;
    let length = u16::from_be_bytes([frame[18], frame[19]]) + 8;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame.splice(54..54, options);
}
