//! Random packets of two hosts: of a few flows, answers to what has arrived, errors about it, and much that is unusual.

use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use snic_nts::wire::{self, Frame};

use crate::frames::{ACK, Sample, fill_ipv4};
use crate::site::STATIONS;

/// Hosts behind the card, the last of which no NAT is told of.
const INSIDE: [[&str; 3]; 2] =
    [["10.0.0.1", "10.0.0.2", "10.0.0.9"], ["fd00::1", "fd00::2", "fd00::9"]];
/// Hosts outside, the NAT's address and the load balancer's.
const OUTSIDE: [[&str; 4]; 2] = [
    ["10.1.0.1", "10.1.0.2", "10.1.0.200", "10.1.0.9"],
    ["fd01::1", "fd01::2", "fd01::c8", "fd01::9"],
];
const PORTS: [u16; 5] = [1_000, 1_001, 80, 5_000, 443];
/// Flags of TCP packets: most are of a connection that goes on.
const FLAGS: [u8; 10] = [ACK, ACK, ACK, ACK, ACK, 0x18, 2, 0x12, 0x11, 0x14];
/// Frames that may be answered.
const SEEN_MAX: usize = 48;

/// Packets of two hosts, the first of which is behind the card.
#[derive(Debug)]
pub struct Traffic {
    pub random: ChaCha8Rng,
    /// Flow that is sent most, by host.
    flows: [Sample; 2],
    /// Frames that arrived at each host.
    seen: [Vec<Vec<u8>>; 2],
    /// Identification of the next IPv4 packet. The card may change it where several in a row have the same.
    next: u16,
}

impl Traffic {
    pub fn new(seed: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            flows: [Sample::UDP4, Sample::UDP4],
            seen: [Vec::new(), Vec::new()],
            next: 1,
        }
    }

    /// Takes note of a frame that arrived at a host.
    pub fn arrived(&mut self, host: usize, frame: &[u8]) {
        let seen = &mut self.seen[host];
        if seen.len() == SEEN_MAX {
            let at = self.random.random_range(0..SEEN_MAX);
            seen.swap_remove(at);
        }
        seen.push(frame.to_vec());
    }

    fn one_in(&mut self, of: u32) -> bool {
        self.random.random_range(0..of) == 0
    }

    /// The next frame of a host.
    pub fn frame(&mut self, host: usize) -> Vec<u8> {
        let frame = match self.random.random_range(0..20) {
            0..10 => self.of_flow(host),
            10..18 => self.answer(host),
            18 => self.error(host),
            _ => self.echo(host),
        };
        self.finished(host, frame)
    }

    /// Another packet of a frame's flow.
    pub fn like(&mut self, host: usize, frame: &[u8]) -> Vec<u8> {
        let Ok(Frame::Ip(layout)) = wire::parse(frame) else { return self.frame(host) };
        let head = layout.transport + if layout.protocol == 6 { 20 } else { 8 };
        if !matches!(layout.protocol, 6 | 17) || frame.len() < head {
            return self.frame(host);
        }
        let payload = self.payload();
        let mut next = frame[..head].to_vec();
        next.extend((0..payload).map(|at| at as u8 ^ 0x5A));
        let length = |bytes: usize| (bytes as u16).to_be_bytes();
        if layout.is_ipv4() {
            next[16..18].copy_from_slice(&length(head + payload - layout.network));
        } else {
            next[18..20].copy_from_slice(&length(head + payload - layout.network - 40));
        }
        if layout.protocol == 6 {
            next[layout.transport + 13] = *FLAGS.choose(&mut self.random).expect("some");
        } else {
            next[layout.transport + 4..head - 2].copy_from_slice(&length(8 + payload));
        }
        refill(&mut next);
        self.finished(host, next)
    }

    /// Bytes of a packet's payload: few, mostly.
    fn payload(&mut self) -> usize {
        match self.random.random_range(0..8) {
            0 => self.random.random_range(0..1_400),
            _ => self.random.random_range(0..40),
        }
    }

    /// A frame between the hosts' stations, with a number of its own, and sometimes damaged.
    fn finished(&mut self, host: usize, mut frame: Vec<u8>) -> Vec<u8> {
        frame[..6].copy_from_slice(&STATIONS[1 - host]);
        frame[6..12].copy_from_slice(&STATIONS[host]);
        if frame[12..14] == [8, 0] && frame.len() >= 34 {
            frame[18..20].copy_from_slice(&self.next.to_be_bytes());
            self.next = self.next.wrapping_add(1);
            fill_ipv4(&mut frame, 20);
        }
        if self.one_in(8) {
            self.damage(&mut frame);
        }
        // Linux drops a tag without anything behind it before anybody sees it.
        if matches!(frame[12..14], [0x81, 0] | [0x88, 0xA8]) && frame.len() < 20 {
            frame.resize(20, 0);
        }
        frame
    }

    /// A frame whose stations' addresses are others by a bit. What NTs learn of a station changes what other flows' packets get, and
    /// only packets of one flow keep their order, so it is sent alone.
    pub fn of_other_station(&mut self, host: usize) -> Vec<u8> {
        let mut frame = self.frame(host);
        // Not the last byte: a host that takes the other one's address would cut it off.
        let at = 6 * self.random.random_range(0..2) + self.random.random_range(0..5);
        frame[at] ^= 1 << self.random.random_range(0..8);
        frame
    }

    /// A packet of the host's flow, which changes now and then.
    fn of_flow(&mut self, host: usize) -> Vec<u8> {
        if self.one_in(8) {
            self.flows[host] = self.new_flow(host);
        }
        let flags = *FLAGS.choose(&mut self.random).expect("some");
        let payload = self.payload();
        let flow = &mut self.flows[host];
        // What opens a connection is sent once.
        let flags = if flow.flags == 2 { std::mem::replace(&mut flow.flags, ACK) } else { flags };
        Sample { flags, payload, ..*flow }.frame()
    }

    /// A flow between any two hosts, or to a service of the load balancer.
    fn new_flow(&mut self, host: usize) -> Sample {
        let family = usize::from(self.one_in(3));
        let inside = *INSIDE[family].choose(&mut self.random).expect("some");
        let outside = *OUTSIDE[family].choose(&mut self.random).expect("some");
        let ends = [(inside, outside), (outside, inside)][host];
        let mut port = || *PORTS.choose(&mut self.random).expect("some");
        let (mut from, mut to) = ((ends.0, port()), (ends.1, port()));
        let is_tcp = self.one_in(2);
        if host == 0 && self.one_in(3) {
            (from.0, to) = (INSIDE[0][0], ("10.1.0.9", if is_tcp { 80 } else { 5_000 }));
        }
        Sample { from, to, is_tcp, flags: 2, payload: 0 }
    }

    /// An answer to a frame that has arrived at the host.
    fn answer(&mut self, host: usize) -> Vec<u8> {
        let seen = self.seen[host].choose(&mut self.random).cloned();
        let Some(mut frame) = seen else { return self.of_flow(host) };
        let Ok(Frame::Ip(layout)) = wire::parse(&frame) else { return frame };
        turn(&mut frame, layout.transport, layout.protocol);
        if layout.protocol == 6 && frame.len() > layout.transport + 13 {
            frame[layout.transport + 13] = *FLAGS.choose(&mut self.random).expect("some");
        }
        if matches!(layout.protocol, 1 | 58) && frame.len() > layout.transport {
            let kind = &mut frame[layout.transport];
            *kind = match *kind {
                8 => 0,
                128 => 129,
                other => other,
            };
        }
        refill(&mut frame);
        frame
    }

    /// An ICMP error about a frame that has arrived at the host.
    fn error(&mut self, host: usize) -> Vec<u8> {
        let seen = self.seen[host].choose(&mut self.random).cloned();
        let Some(quoted) = seen else { return self.of_flow(host) };
        if quoted.len() < 42 || quoted[12..14] != [8, 0] {
            return self.of_flow(host);
        }
        let quote = &quoted[14..quoted.len().min(14 + 20 + self.random.random_range(0..30))];
        let mut frame = [&quoted[6..12], &quoted[..6], &[8, 0, 0x45, 0]].concat();
        frame.extend(((20 + 8 + quote.len()) as u16).to_be_bytes());
        frame.extend([0, 9, 0, 0, 64, 1, 0, 0]);
        frame.extend([&quoted[30..34], &quoted[26..30]].concat());
        let code = self.random.random_range(0..5);
        frame.extend([*[3, 11].choose(&mut self.random).expect("some"), code, 0, 0, 0, 0, 5, 0]);
        frame.extend(quote);
        fill_ipv4(&mut frame, 20);
        refill(&mut frame);
        frame
    }

    /// An echo request over IPv4.
    fn echo(&mut self, host: usize) -> Vec<u8> {
        let inside = *INSIDE[0].choose(&mut self.random).expect("some");
        let outside = *OUTSIDE[0].choose(&mut self.random).expect("some");
        let (from, to) = [(inside, outside), (outside, inside)][host];
        let mut frame = Sample { from: (from, 8 << 8), to: (to, 0), ..Sample::UDP4 }.frame();
        frame[23] = 1;
        frame[34..42].copy_from_slice(&[8, 0, 0, 0, 0, self.random.random_range(0..4), 0, 1]);
        fill_ipv4(&mut frame, 20);
        refill(&mut frame);
        frame
    }

    /// Makes a frame unusual, or wrong.
    fn damage(&mut self, frame: &mut Vec<u8>) {
        let length = frame.len();
        match self.random.random_range(0..9) {
            0 => frame.truncate(self.random.random_range(14..=length)),
            1 => drop(frame.splice(12..12, [0x81, 0, 0, 7])),
            2 => frame.extend([0; 9]),
            // A bit of the headers, but for addresses and ports: another flow's packet may come earlier or later.
            3 if length > 60 => {
                let at = [12..22, 38..52][self.random.random_range(0..2)].clone();
                frame[self.random.random_range(at)] ^= 1 << self.random.random_range(0..8);
            }
            4 if frame[12..14] == [8, 0] && length > 34 => {
                // A fragment, the first or a later one; two bits say which.
                frame[20] = [0x20, 0, 0x20, 0x80][self.random.random_range(0..4)];
                frame[21] = [0, 5][self.random.random_range(0..2)];
                fill_ipv4(frame, 20);
            }
            5 if frame[12..14] == [8, 0] && frame[14] == 0x45 && length > 34 => {
                let total = u16::from_be_bytes([frame[16], frame[17]]).saturating_add(4);
                frame[14] = 0x46;
                frame[16..18].copy_from_slice(&total.to_be_bytes());
                frame.splice(34..34, [1, 1, 1, 0]);
                fill_ipv4(frame, 24);
            }
            6 if frame[12..14] == [8, 0] && length > 34 => {
                frame[15] = self.random.random();
                frame[22] = self.random.random_range(0..3);
                fill_ipv4(frame, 20);
            }
            // No checksum, which UDP over IPv4 allows.
            7 if frame[12..14] == [8, 0] && length > 42 && frame[23] == 17 => frame[40..42].fill(0),
            _ => {
                if let Some(last) = frame.last_mut() {
                    *last ^= 0x11;
                }
            }
        }
    }
}

/// Swaps two parts of a frame.
fn swap(frame: &mut [u8], first: usize, second: usize, length: usize) {
    for at in 0..length {
        frame.swap(first + at, second + at);
    }
}

/// Exchanges source and destination of a frame.
fn turn(frame: &mut [u8], transport: usize, protocol: u8) {
    match frame[12..14] {
        [8, 0] => swap(frame, 26, 30, 4),
        [0x86, 0xDD] => swap(frame, 22, 38, 16),
        _ => return,
    }
    if matches!(protocol, 6 | 17) && frame.len() >= transport + 4 {
        swap(frame, transport, transport + 2, 2);
    }
}

/// Fills in the checksum of the transport, where there is one.
fn refill(frame: &mut [u8]) {
    if let Ok(Frame::Ip(layout)) = wire::parse(frame) {
        wire::fill(frame, &layout);
    }
}
