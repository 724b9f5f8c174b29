//! Frames of one flow that leave together are handed to the kernel as one, with a header that says how it is cut again
//! (generic segmentation offload). The host's network then has the work of one frame instead of many.
//!
//! ```text
//!   A1 B1 A2 A3 B2  ──►  A1+A2+A3, B1+B2      each flow keeps its order
//! ```
//!
//! Only what the kernel would cut into the same frames is merged: TCP segments that follow one another, and UDP datagrams of
//! one size, whose checksums are right. A frame that is not like this goes alone, and in its place. What may change is the
//! identification of an IPv4 packet with "don't fragment", where it says nothing (RFC 6864, section 4.1).

use std::io;
use std::ops::Range;

use snic_nts::Packet;
use snic_nts::wire::{self, Fragment, Frame, Layout, Verified, protocol};

use crate::segments::{self, Headers, Kind, OFFLOAD_BYTES, Offload, UDP_BYTES};

/// Frames that are looked at together.
pub(crate) const FRAMES_MAX: usize = 64;
/// The longest IP packet.
const IP_BYTES_MAX: usize = 65_535;
/// Where the IP header of a frame without VLAN tags begins.
const NETWORK: usize = 14;
const IPV6_BYTES: usize = 40;
/// Flags of TCP.
const PUSH: u8 = 0x08;
const ACK: u8 = 0x10;
/// No further frame.
const NONE: u8 = u8::MAX;

/// A frame that others may follow.
#[derive(Clone, Copy)]
struct Candidate {
    kind: Kind,
    transport: usize,
    /// Bytes of all headers.
    head: usize,
    payload: usize,
}

/// Frames that go to the kernel as one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    first: u8,
    last: u8,
    frames: u8,
    /// May be followed by more.
    open: bool,
    kind: Kind,
    transport: u16,
    head: u16,
    /// Bytes of payload in each frame; the last one may have fewer.
    segment: u16,
    /// Bytes of payload in all.
    payload: u32,
    /// A hash of its addresses and ports.
    flow: u64,
}

impl Unit {
    /// A frame that nothing follows.
    const fn alone(frame: u8) -> Self {
        Self {
            first: frame,
            last: frame,
            frames: 1,
            open: false,
            kind: Kind::Udp,
            transport: 0,
            head: 0,
            segment: 0,
            payload: 0,
            flow: 0,
        }
    }

    /// Whether it is more than one frame.
    pub(crate) const fn is_merged(&self) -> bool {
        self.frames > 1
    }

    /// Header in front of it.
    pub(crate) fn offload(&self) -> [u8; OFFLOAD_BYTES] {
        if self.is_merged() {
            Offload::to_cut(self.kind, self.head, self.segment, self.transport).to_bytes()
        } else {
            [0; OFFLOAD_BYTES]
        }
    }
}

/// Finds what can go as one.
#[derive(Debug)]
pub(crate) struct Merger {
    units: Vec<Unit>,
    /// For each frame the next one of its unit.
    next: [u8; FRAMES_MAX],
    /// Whether the system takes TCP segments merged.
    tcp: bool,
    udp: bool,
    frame_bytes_max: usize,
}

impl Merger {
    /// For a device that takes frames of up to so many bytes: longer ones go alone, and are refused there.
    pub(crate) fn new(frame_bytes_max: usize) -> Self {
        let units = Vec::with_capacity(FRAMES_MAX);
        Self { units, next: [NONE; FRAMES_MAX], tcp: true, udp: true, frame_bytes_max }
    }

    /// Merges up to [`FRAMES_MAX`] frames. The first frame of each merged unit has the headers of the unit afterwards.
    pub(crate) fn merge(&mut self, frames: &mut [Packet]) {
        self.units.clear();
        if frames.len() == 1 {
            return self.units.push(Unit::alone(0));
        }
        self.next = [NONE; FRAMES_MAX];
        for at in 0..frames.len().min(FRAMES_MAX) {
            self.place(frames, at);
        }
        for unit in self.units.iter().filter(|unit| unit.is_merged()) {
            // A push is only in the last frame, where it is kept when the unit is cut.
            let push = match unit.kind {
                Kind::Udp => 0,
                _ => {
                    frames[usize::from(unit.last)].bytes()[usize::from(unit.transport) + 13] & PUSH
                }
            };
            let frame = frames[usize::from(unit.first)].bytes_mut();
            finish(frame, unit, unit.payload as usize);
            if unit.kind != Kind::Udp {
                frame[usize::from(unit.transport) + 13] |= push;
            }
            let headers = Headers { network: NETWORK, transport: unit.transport.into() };
            let bytes = unit.payload as usize + usize::from(unit.head - unit.transport);
            segments::leave_checksum(frame, headers, unit.kind, bytes);
        }
    }

    /// Sends the frames that were merged last. `send` gives the system the first of some units and says how many it took;
    /// `taken` is told of each frame whether the system took it.
    pub(crate) fn send(
        &mut self,
        frames: &mut [Packet],
        send: impl Fn(&[Unit], &[Packet], &Self) -> io::Result<usize>,
        mut taken: impl FnMut(&Packet, bool),
    ) {
        let mut at = 0;
        while let Some(unit) = self.units.get(at).copied() {
            let sent = match send(&self.units[at..], frames, self) {
                // A system that cuts no such frames (Linux cuts datagrams since 6.2) gets no more of them.
                Err(error) if unit.is_merged() && error.kind() == io::ErrorKind::InvalidInput => {
                    self.split(at, frames);
                    continue;
                }
                result => result.unwrap_or(0),
            };
            for unit in &self.units[at..at + sent.max(1)] {
                self.frames(unit).for_each(|frame| taken(&frames[frame], sent > 0));
            }
            at += sent.max(1);
        }
    }

    /// Sends the frames of a unit alone, and those of later ones like it.
    fn split(&mut self, at: usize, frames: &mut [Packet]) {
        let unit = self.units[at];
        match unit.kind {
            Kind::Udp => self.udp = false,
            Kind::TcpV4 | Kind::TcpV6 => self.tcp = false,
        }
        undo(&unit, frames);
        let alone: Vec<Unit> = self.frames(&unit).map(|at| Unit::alone(at as u8)).collect();
        self.units.splice(at..=at, alone);
    }

    /// The frames of a unit, in their order.
    fn frames(&self, unit: &Unit) -> impl Iterator<Item = usize> + use<'_> {
        let mut at = unit.first;
        std::iter::repeat_with(move || {
            let here = usize::from(at);
            at = self.next[here];
            here
        })
        .take(unit.frames.into())
    }

    /// Parts of the kernel's frame for each frame of a unit: all of the first, and the payload of the others.
    pub(crate) fn parts<'a>(
        &'a self,
        unit: &Unit,
        frames: &'a [Packet],
    ) -> impl Iterator<Item = &'a [u8]> {
        let (first, head) = (usize::from(unit.first), usize::from(unit.head));
        self.frames(unit).map(move |at| {
            let bytes = frames[at].bytes();
            if at == first { bytes } else { &bytes[head..] }
        })
    }

    fn place(&mut self, frames: &[Packet], at: usize) {
        let bytes = frames[at].bytes();
        let found = wire::parse(bytes);
        let candidate = match &found {
            Ok(Frame::Ip(layout)) if bytes.len() <= self.frame_bytes_max => {
                self.candidate(bytes, layout)
            }
            _ => None,
        };
        let flow = match &found {
            Ok(Frame::Ip(layout)) if layout.fragment == Fragment::No => Some(hash(bytes, layout)),
            // Its flow is unknown: nothing that comes behind it goes before it.
            Ok(Frame::Ip(_)) | Err(_) => {
                self.units.iter_mut().for_each(|unit| unit.open = false);
                None
            }
            Ok(Frame::Arp | Frame::Other(_)) => None,
        };
        let before =
            flow.and_then(|flow| self.units.iter().position(|unit| unit.open && unit.flow == flow));
        if let Some(before) = before {
            let unit = self.units[before];
            let follows = candidate.filter(|candidate| self.follows(&unit, candidate, frames, at));
            let unit = &mut self.units[before];
            if let Some(candidate) = follows {
                self.next[usize::from(unit.last)] = at as u8;
                unit.last = at as u8;
                unit.frames += 1;
                unit.payload += candidate.payload as u32;
                unit.open =
                    candidate.payload == usize::from(unit.segment) && !ends(bytes, &candidate);
                return;
            }
            // What comes behind this frame does not go before it.
            unit.open = false;
        }
        let unit = match candidate {
            Some(it) => Unit {
                first: at as u8,
                last: at as u8,
                frames: 1,
                open: !ends(bytes, &it),
                kind: it.kind,
                // Headers are shorter than 64 KiB, and so is the payload of a frame.
                transport: it.transport as u16,
                head: it.head as u16,
                segment: it.payload as u16,
                payload: it.payload as u32,
                flow: flow.unwrap_or_default(),
            },
            None => Unit::alone(at as u8),
        };
        self.units.push(unit);
    }

    /// Properties of a frame that matter for merging; `None` for one that goes alone.
    fn candidate(&self, bytes: &[u8], layout: &Layout) -> Option<Candidate> {
        let (network, transport) = (layout.network, layout.transport);
        let ip_bytes = transport - network;
        let is_plain = network == NETWORK
            && layout.end == bytes.len()
            && layout.fragment == Fragment::No
            && ip_bytes
                == if layout.is_ipv4() {
                    usize::from(bytes[network] & 0x0f) * 4
                } else {
                    IPV6_BYTES
                };
        let (kind, head) = match (layout.protocol, layout.is_ipv4()) {
            (protocol::UDP, _) if self.udp => (Kind::Udp, transport + UDP_BYTES),
            (protocol::TCP, is_ipv4) if self.tcp => {
                let is_data = bytes[transport + 13] & !PUSH == ACK;
                let kind = if is_ipv4 { Kind::TcpV4 } else { Kind::TcpV6 };
                let head = transport + usize::from(bytes[transport + 12] >> 4) * 4;
                is_data.then_some((kind, head))?
            }
            _ => return None,
        };
        let payload = bytes.len().checked_sub(head).filter(|payload| *payload > 0)?;
        let is_whole = kind != Kind::Udp || be16(bytes, transport + 4) == payload + UDP_BYTES;
        let is_right = is_plain && is_whole && wire::verify(bytes, layout) == Verified::Right;
        is_right.then_some(Candidate { kind, transport, head, payload })
    }

    /// Whether the kernel would cut a frame like this from a unit, behind what it has.
    fn follows(&self, unit: &Unit, candidate: &Candidate, frames: &[Packet], at: usize) -> bool {
        let (first, bytes) = (frames[usize::from(unit.first)].bytes(), frames[at].bytes());
        let (head, transport) = (candidate.head, candidate.transport);
        let all = usize::from(unit.head) - NETWORK + unit.payload as usize + candidate.payload;
        let fits = unit.kind == candidate.kind
            && usize::from(unit.head) == head
            && usize::from(unit.transport) == transport
            && candidate.payload <= usize::from(unit.segment)
            && all <= IP_BYTES_MAX;
        fits && has_same_headers(first, bytes, candidate) && {
            // The IP headers are the same: both are of one version.
            let is_ipv4 = first[NETWORK] >> 4 == 4;
            let number = u16::from(unit.frames);
            let is_next_id = !is_ipv4 || {
                let id = be16(first, NETWORK + 4) as u16;
                let own = be16(bytes, NETWORK + 4) as u16;
                // With "don't fragment" the field says nothing.
                let says_nothing = first[NETWORK + 6] & 0x40 != 0;
                own == id.wrapping_add(number) || says_nothing && own == id
            };
            let is_next = unit.kind == Kind::Udp
                || be32(bytes, transport + 4)
                    == be32(first, transport + 4).wrapping_add(unit.payload);
            is_next_id && is_next
        }
    }
}

/// Gives the first frame of a merged unit its own headers back.
fn undo(unit: &Unit, frames: &mut [Packet]) {
    let frame = frames[usize::from(unit.first)].bytes_mut();
    let payload = frame.len() - usize::from(unit.head);
    if unit.kind != Kind::Udp {
        frame[usize::from(unit.transport) + 13] &= !PUSH;
    }
    finish(frame, unit, payload);
    if let Ok(Frame::Ip(layout)) = wire::parse(frame) {
        wire::fill(frame, &layout);
    }
}

fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Whether nothing can follow: the sender pushes.
fn ends(bytes: &[u8], candidate: &Candidate) -> bool {
    candidate.kind != Kind::Udp && bytes[candidate.transport + 13] & PUSH != 0
}

/// A hash of the flow: two with the same one are merged a little less, so that nobody gains by making them.
fn hash(bytes: &[u8], layout: &Layout) -> u64 {
    // Addresses stand at the end of the IP header, ports at the start of TCP's and UDP's; options are of one flow too.
    let addresses = layout.network + if layout.is_ipv4() { 12 } else { 8 };
    let all = bytes.get(addresses..layout.transport + 4).unwrap_or_default();
    all.chunks_exact(4).fold(layout.protocol.into(), |hash: u64, word| {
        (hash.rotate_left(23) ^ u64::from(be32(word, 0))).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

/// Whether two frames have the same headers, but for what is different in each segment.
fn has_same_headers(first: &[u8], bytes: &[u8], candidate: &Candidate) -> bool {
    let same = |range: Range<usize>| first[range.clone()] == bytes[range];
    let (ip, transport, head) = (NETWORK, candidate.transport, candidate.head);
    let is_same_ip = if first[ip] >> 4 == 4 {
        // Not: length and number, checksum.
        same(0..ip + 2) && same(ip + 6..ip + 10) && same(ip + 12..transport)
    } else {
        // Not: length.
        same(0..ip + 4) && same(ip + 6..transport)
    };
    let is_same_transport = match candidate.kind {
        // Not: length, checksum.
        Kind::Udp => same(transport..transport + 4),
        // Not: number, PSH, checksum.
        Kind::TcpV4 | Kind::TcpV6 => {
            same(transport..transport + 4)
                && same(transport + 8..transport + 13)
                && (first[transport + 13] ^ bytes[transport + 13]) & !PUSH == 0
                && same(transport + 14..transport + 16)
                && same(transport + 18..head)
        }
    };
    is_same_ip && is_same_transport
}

/// Gives a frame the lengths of so much payload, and the checksum of an IPv4 header.
fn finish(frame: &mut [u8], unit: &Unit, payload: usize) {
    let (transport, head) = (usize::from(unit.transport), usize::from(unit.head));
    // An IP packet is shorter than 64 KiB.
    let length = |from: usize| ((head - from + payload) as u16).to_be_bytes();
    if frame[NETWORK] >> 4 == 4 {
        frame[NETWORK + 2..NETWORK + 4].copy_from_slice(&length(NETWORK));
        segments::fill_ipv4_checksum(&mut frame[NETWORK..]);
    } else {
        frame[NETWORK + 4..NETWORK + 6].copy_from_slice(&length(NETWORK + IPV6_BYTES));
    }
    if unit.kind == Kind::Udp {
        frame[transport + 4..transport + 6].copy_from_slice(&length(transport));
    }
}

#[cfg(test)]
mod tests;
