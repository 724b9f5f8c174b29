//! The transport once more, from its documented wire format alone: a peer that this crate's code has no part in.
//! It keeps everything in lists, counts in 64 bits, and builds and takes apart packets with `etherparse`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use etherparse::{IpHeaders, NetHeaders, PacketHeaders, UdpHeader};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_domain::Timestamp;

use crate::ends::{End, HOSTS, Out};

const PORT: u16 = 61_021;
const WINDOW: usize = 5;
const PATIENCE: Duration = Duration::from_millis(30);
const OPEN: u8 = 1;
const ACCEPT: u8 = 2;
const DATA: u8 = 3;
const ACK: u8 = 4;
const NACK: u8 = 5;
const RESET: u8 = 6;

/// Content of the transport's own header.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Message {
    kind: u8,
    carried: u8,
    fragment: u16,
    stream: u32,
    token: u32,
    number: u32,
    payload: Vec<u8>,
}

/// A peer with the host at address `local`.
pub struct Reference {
    local: IpAddr,
    remote: IpAddr,
    random: ChaCha8Rng,
    /// Packets that are not acknowledged, of all streams.
    queue: Vec<Vec<u8>>,
    /// The stream, its token once it has one, and how many packets of it are acknowledged.
    sending: Option<(u32, Option<u32>, u64)>,
    due: Option<Timestamp>,
    /// The stream that is open here, its token, and how many packets of it came.
    receiving: Option<(u32, u32, u64)>,
    /// Tokens given since then.
    offered: BTreeMap<u32, u32>,
}

impl Reference {
    pub fn new(side: usize, is_six: bool, seed: u64) -> Self {
        let hosts = HOSTS[usize::from(is_six)].map(|host| host.parse().unwrap());
        Self {
            local: hosts[side],
            remote: hosts[1 - side],
            random: ChaCha8Rng::seed_from_u64(seed),
            queue: Vec::new(),
            sending: None,
            due: None,
            receiving: None,
            offered: BTreeMap::new(),
        }
    }

    /// The messages that have to be sent now.
    fn all(&self, like: &[u8]) -> Vec<Vec<u8>> {
        let Some((stream, token, acknowledged)) = self.sending else { return Vec::new() };
        let Some(token) = token else {
            return vec![alone(like, self.local, self.remote, (OPEN, stream, 0, 0))];
        };
        let numbers = (u64::from(stream) + acknowledged..).map(|number| number as u32);
        self.queue
            .iter()
            .zip(numbers)
            .map(|(frame, number)| data(frame, (stream, token, number)))
            .collect()
    }

    fn restart(&mut self, like: &[u8], now: Timestamp) -> Vec<Vec<u8>> {
        self.sending = Some((self.random.random(), None, 0));
        self.due = Some(now + PATIENCE);
        self.all(like)
    }

    /// A data packet: what is to be answered, and whether it is the next one.
    fn take(&mut self, message: &Message) -> ((u8, u32), bool) {
        let known = self.receiving.filter(|(stream, ..)| *stream == message.stream);
        if known.is_none_or(|(_, token, _)| token != message.token) {
            if self.offered.get(&message.stream) != Some(&message.token) {
                return ((RESET, 0), false);
            }
            self.receiving = Some((message.stream, message.token, 0));
            self.offered.clear();
        }
        let (stream, _, came) = self.receiving.as_mut().unwrap();
        let expected = |came: u64| (u64::from(*stream) + came) as u32;
        let is_next = message.number == expected(*came);
        // A window is short: what is less than half the numbers ahead is ahead.
        let is_ahead = !is_next && message.number.wrapping_sub(expected(*came)) < 1 << 31;
        *came += u64::from(is_next);
        ((if is_ahead { NACK } else { ACK }, expected(*came)), is_next)
    }
}

impl End for Reference {
    fn send(&mut self, frame: &[u8], now: Timestamp) -> Out {
        if self.queue.len() >= WINDOW {
            return Out::default();
        }
        self.queue.push(frame.to_vec());
        let sent = match self.sending {
            None => self.restart(frame, now),
            Some((_, Some(_), _)) => self.all(frame).split_off(self.queue.len() - 1),
            Some((_, None, _)) => Vec::new(),
        };
        self.due.get_or_insert(now + PATIENCE);
        Out { is_taken: true, delivered: None, sent }
    }

    fn arrive(&mut self, frame: &[u8], now: Timestamp) -> Out {
        let Some((from, to, message)) = read(frame) else { return Out::default() };
        if (from, to) != (self.remote, self.local) {
            return Out::default();
        }
        let answer = |(kind, number): (u8, u32), token: u32| {
            alone(frame, self.local, self.remote, (kind, message.stream, token, number))
        };
        let mut out = Out { is_taken: true, ..Out::default() };
        match (message.kind, self.sending) {
            (OPEN, _) => {
                let open = self.receiving.filter(|(stream, ..)| *stream == message.stream);
                let token = open.map_or_else(
                    || *self.offered.entry(message.stream).or_insert_with(|| self.random.random()),
                    |(_, token, _)| token,
                );
                out.sent.push(answer((ACCEPT, 0), token));
            }
            (DATA, _) => {
                let (said, is_next) = self.take(&message);
                out.sent.push(alone(
                    frame,
                    self.local,
                    self.remote,
                    (said.0, message.stream, message.token, said.1),
                ));
                out.delivered = is_next.then(|| restored(frame, &message));
            }
            (ACCEPT, Some((stream, None, 0))) if stream == message.stream => {
                self.sending = Some((stream, Some(message.token), 0));
                self.due = Some(now + PATIENCE);
                out.sent = self.all(frame);
            }
            (kind, Some((stream, Some(token), acknowledged)))
                if (stream, token) == (message.stream, message.token) =>
            {
                if kind == RESET {
                    out.sent = self
                        .queue
                        .first()
                        .cloned()
                        .map_or_else(Vec::new, |first| self.restart(&first, now));
                    return out;
                }
                let base = (u64::from(stream) + acknowledged) as u32;
                let count = message.number.wrapping_sub(base) as usize;
                if (kind == ACK || kind == NACK) && count <= self.queue.len() {
                    self.queue.drain(..count);
                    self.sending = Some((stream, Some(token), acknowledged + count as u64));
                    self.due = (!self.queue.is_empty()).then(|| now + PATIENCE);
                }
            }
            _ => {}
        }
        out
    }

    fn due(&self) -> Option<Timestamp> {
        self.due
    }

    fn wake(&mut self, now: Timestamp) -> Vec<Vec<u8>> {
        self.due = Some(now + PATIENCE);
        let first = self.queue.first().cloned().expect("a time is set while packets wait");
        self.all(&first)
    }
}

/// The message of a frame, with its addresses; `None` where anything is wrong with it.
fn read(frame: &[u8]) -> Option<(IpAddr, IpAddr, Message)> {
    let headers = PacketHeaders::from_ethernet_slice(frame).ok()?;
    let (from, to, is_right): (IpAddr, IpAddr, _) = match (&headers.net, &headers.transport) {
        (Some(NetHeaders::Ipv4(ip, _)), Some(etherparse::TransportHeader::Udp(udp))) => {
            let sum = udp.calc_checksum_ipv4(ip, headers.payload.slice()).ok()?;
            let is_ip =
                ip.calc_header_checksum() == ip.header_checksum && !ip.is_fragmenting_payload();
            (ip.source.into(), ip.destination.into(), is_ip && sum == udp.checksum)
        }
        (Some(NetHeaders::Ipv6(ip, extensions)), Some(etherparse::TransportHeader::Udp(udp))) => {
            let sum = udp.calc_checksum_ipv6(ip, headers.payload.slice()).ok()?;
            (ip.source.into(), ip.destination.into(), extensions.is_empty() && sum == udp.checksum)
        }
        _ => return None,
    };
    let udp = headers.transport?.udp()?;
    let body = headers.payload.slice();
    if !is_right || (udp.source_port, udp.destination_port) != (PORT, PORT) || body.len() < 16 {
        return None;
    }
    let word = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().unwrap());
    let message = Message {
        kind: body[0] & 0xF,
        carried: body[1],
        fragment: u16::from_be_bytes([body[2], body[3]]),
        stream: word(4),
        token: word(8),
        number: word(12),
        payload: body[16..].to_vec(),
    };
    (body[0] >> 4 == 1).then_some((from, to, message))
}

fn own_header(kind: u8, (carried, fragment): (u8, u16), words: [u32; 3]) -> Vec<u8> {
    let mut header = vec![1 << 4 | kind, carried];
    header.extend(fragment.to_be_bytes());
    words.iter().for_each(|word| header.extend(word.to_be_bytes()));
    header
}

/// An Ethernet header, an IP header, and a UDP header for a body.
fn assemble(link: &[u8], mut ip: IpHeaders, body: &[u8]) -> Vec<u8> {
    let mut out = link.to_vec();
    let udp = match &mut ip {
        IpHeaders::Ipv4(ip, _) => {
            ip.set_payload_len(8 + body.len()).unwrap();
            ip.header_checksum = ip.calc_header_checksum();
            UdpHeader::with_ipv4_checksum(PORT, PORT, ip, body).unwrap()
        }
        IpHeaders::Ipv6(ip, _) => {
            ip.set_payload_length(8 + body.len()).unwrap();
            UdpHeader::with_ipv6_checksum(PORT, PORT, ip, body).unwrap()
        }
    };
    ip.write(&mut out).unwrap();
    udp.write(&mut out).unwrap();
    out.extend(body);
    out
}

/// A host's frame as a data packet.
fn data(frame: &[u8], (stream, token, number): (u32, u32, u32)) -> Vec<u8> {
    let words = [stream, token, number];
    if frame[12..14] == [8, 0] {
        let (mut ip, rest) = etherparse::Ipv4Header::from_slice(&frame[14..]).unwrap();
        let fragment = u16::from_be_bytes([frame[20], frame[21]]);
        let body = [own_header(DATA, (ip.protocol.0, fragment), words), rest.to_vec()].concat();
        ip.protocol = etherparse::IpNumber::UDP;
        (ip.dont_fragment, ip.more_fragments) = (true, false);
        ip.fragment_offset = etherparse::IpFragOffset::ZERO;
        assemble(&frame[..14], IpHeaders::Ipv4(ip, Default::default()), &body)
    } else {
        let (mut ip, rest) = etherparse::Ipv6Header::from_slice(&frame[14..]).unwrap();
        let body = [own_header(DATA, (ip.next_header.0, 0), words), rest.to_vec()].concat();
        ip.next_header = etherparse::IpNumber::UDP;
        assemble(&frame[..14], IpHeaders::Ipv6(ip, Default::default()), &body)
    }
}

/// A packet that carries nothing, from one address to the other, with the stations of a frame that came from
/// there or goes there.
fn alone(
    like: &[u8],
    from: IpAddr,
    to: IpAddr,
    (kind, stream, token, number): (u8, u32, u32, u32),
) -> Vec<u8> {
    let body = own_header(kind, (0, 0), [stream, token, number]);
    let is_from = |address: IpAddr| match address {
        IpAddr::V4(v4) => like[26..30] == v4.octets(),
        IpAddr::V6(v6) => like[22..38] == v6.octets(),
    };
    let (own, other) =
        if is_from(from) { (&like[6..12], &like[..6]) } else { (&like[..6], &like[6..12]) };
    let link = [other, own, &like[12..14]].concat();
    let ip = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let ip = etherparse::Ipv4Header::new(
                0,
                64,
                etherparse::IpNumber::UDP,
                from.octets(),
                to.octets(),
            );
            IpHeaders::Ipv4(ip.unwrap(), Default::default())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let ip = etherparse::Ipv6Header {
                next_header: etherparse::IpNumber::UDP,
                hop_limit: 64,
                source: from.octets(),
                destination: to.octets(),
                ..Default::default()
            };
            IpHeaders::Ipv6(ip, Default::default())
        }
        _ => panic!("{from} and {to} are of different versions"),
    };
    assemble(&link, ip, &body)
}

/// The host's frame that a data packet carries.
fn restored(frame: &[u8], message: &Message) -> Vec<u8> {
    if frame[12..14] == [8, 0] {
        let (mut ip, _) = etherparse::Ipv4Header::from_slice(&frame[14..]).unwrap();
        ip.protocol = etherparse::IpNumber(message.carried);
        ip.dont_fragment = message.fragment & 0x4000 != 0;
        ip.more_fragments = message.fragment & 0x2000 != 0;
        ip.fragment_offset = etherparse::IpFragOffset::try_new(message.fragment & 0x1FFF).unwrap();
        ip.set_payload_len(message.payload.len()).unwrap();
        ip.header_checksum = ip.calc_header_checksum();
        [&frame[..14], &ip.to_bytes(), &message.payload].concat()
    } else {
        let (mut ip, _) = etherparse::Ipv6Header::from_slice(&frame[14..]).unwrap();
        ip.next_header = etherparse::IpNumber(message.carried);
        ip.set_payload_length(message.payload.len()).unwrap();
        [&frame[..14], &ip.to_bytes(), &message.payload].concat()
    }
}
