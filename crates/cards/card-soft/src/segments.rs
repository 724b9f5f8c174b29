//! Work of a network card that the kernel leaves to it: checksums, and merged TCP segments and UDP datagrams.

use std::collections::VecDeque;

use snic_nts::wire::{self, Frame, protocol};
use snic_nts::{Packet, Pool};

/// Segments of one merged frame at most: 64 KiB in the smallest that a Linux host sends (RFC 879).
pub const SEGMENTS_MAX: usize = 128;
/// The smallest header of TCP.
const TCP_BYTES_MIN: usize = 20;
/// FIN and PSH, which only the last segment keeps, and CWR, which only the first one keeps.
const LAST_FLAGS: u8 = 0x09;
const FIRST_FLAGS: u8 = 0x80;

/// Bytes of a UDP header.
pub(crate) const UDP_BYTES: usize = 8;

/// Kind of a merged frame, with its number in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    TcpV4 = 1,
    TcpV6 = 4,
    /// Datagrams, over either IP.
    Udp = 5,
}

impl Kind {
    const ALL: [Self; 3] = [Self::TcpV4, Self::TcpV6, Self::Udp];

    /// Where its checksum stands in the transport header.
    const fn checksum(self) -> u16 {
        match self {
            Self::TcpV4 | Self::TcpV6 => 16,
            Self::Udp => 6,
        }
    }

    const fn protocol(self) -> u8 {
        match self {
            Self::TcpV4 | Self::TcpV6 => protocol::TCP,
            Self::Udp => protocol::UDP,
        }
    }
}

/// The header in front of a frame (virtio 1.2, 5.1.6): what is left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offload {
    needs_checksum: bool,
    merge: u8,
    header_bytes: u16,
    segment_bytes: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl Offload {
    /// Bytes of the header.
    pub(crate) const BYTES: usize = 10;
    const NEEDS_CHECKSUM: u8 = 1;
    /// Beside the kind: congestion was notified.
    const ECN: u8 = 0x80;

    pub(crate) fn of(head: [u8; Self::BYTES]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
        Self {
            needs_checksum: head[0] & Self::NEEDS_CHECKSUM != 0,
            merge: head[1] & !Self::ECN,
            header_bytes: word(2),
            segment_bytes: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    /// Offload of a frame that is to be cut into pieces of so many bytes of payload, each with a checksum.
    pub(crate) const fn to_cut(
        kind: Kind,
        header_bytes: u16,
        segment_bytes: u16,
        transport: u16,
    ) -> Self {
        Self {
            needs_checksum: true,
            merge: kind as u8,
            header_bytes,
            segment_bytes,
            checksum_start: transport,
            checksum_offset: kind.checksum(),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut head = [0; Self::BYTES];
        head[0] = if self.needs_checksum { Self::NEEDS_CHECKSUM } else { 0 };
        head[1] = self.merge;
        let words =
            [self.header_bytes, self.segment_bytes, self.checksum_start, self.checksum_offset];
        for (place, word) in head[2..].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        head
    }

    fn kind(&self) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == self.merge)
    }

    /// Whether several segments stand in one frame.
    pub(crate) const fn is_merged(&self) -> bool {
        self.merge != 0
    }

    /// Fills in the checksum that was left out; the field holds the sum of the pseudo header.
    pub(crate) fn fill_checksum(&self, frame: &mut [u8]) {
        let start = usize::from(self.checksum_start);
        let field = start + usize::from(self.checksum_offset);
        if !self.needs_checksum || field + 2 > frame.len() {
            return;
        }
        let sum = internet_checksum(&frame[start..]);
        // UDP says "none" with zero; the other zero of one's complement says the same to all.
        let sum = if sum == 0 { u16::MAX } else { sum };
        frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Puts the sum of the pseudo header where a checksum belongs: whoever cuts the frame adds the rest. `bytes`: of the
/// transport header and its payload.
pub(crate) fn leave_checksum(frame: &mut [u8], headers: Headers, kind: Kind, bytes: usize) {
    let Headers { network, transport } = headers;
    let addresses = match frame[network] >> 4 {
        4 => network + 12..network + 20,
        _ => network + 8..network + 40,
    };
    // As long as an IP packet at most.
    let [high, low] = (bytes as u16).to_be_bytes();
    let mut pseudo = [0; 36];
    let count = addresses.len();
    pseudo[..count].copy_from_slice(&frame[addresses]);
    pseudo[count..count + 4].copy_from_slice(&[0, kind.protocol(), high, low]);
    let sum = !internet_checksum(&pseudo[..count + 4]);
    let field = transport + usize::from(kind.checksum());
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Fills in the checksum of the IPv4 header that begins a packet.
pub(crate) fn fill_ipv4_checksum(packet: &mut [u8]) {
    let bytes = usize::from(packet[0] & 0x0f) * 4;
    packet[10..12].fill(0);
    let sum = internet_checksum(&packet[..bytes]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The Internet checksum (RFC 1071). Words are summed in the machine's order of bytes, four at a time, which the sum of
/// one's complement allows.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(4);
    let mut last = [0; 4];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    let word = |word: [u8; 4]| u64::from(u32::from_ne_bytes(word));
    let mut sum: u64 = words.map(|four| word([four[0], four[1], four[2], four[3]])).sum();
    sum += word(last);
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::from_be(!(sum as u16))
}

/// Bytes of the header that says what is left to do (`virtio_net_hdr`).
pub const OFFLOAD_BYTES: usize = Offload::BYTES;

/// Does what a guest or the kernel left to the card, as the header says: the frames that come of it are put into `out`, as
/// far as buffers are free. `false` where it cannot be done.
pub fn complete(
    head: [u8; OFFLOAD_BYTES],
    bytes: &[u8],
    pool: &Pool,
    out: &mut VecDeque<Packet>,
) -> bool {
    let offload = Offload::of(head);
    if offload.is_merged() {
        return cut(bytes, &offload, pool, out) == CutOutcome::Done;
    }
    if bytes.len() > crate::FRAME_BYTES_MAX {
        return false;
    }
    out.extend(pool.copy_of(bytes).map(|mut packet| {
        offload.fill_checksum(packet.bytes_mut());
        packet
    }));
    true
}

/// Result of cutting a merged frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CutOutcome {
    /// Its segments are there, as far as buffers were free.
    Done,
    /// It cannot be cut: neither TCP nor UDP, or a header that contradicts itself.
    Refused,
}

/// Cuts a merged frame into its segments, with lengths, numbers, flags and checksums of their own.
pub(crate) fn cut(
    merged: &[u8],
    offload: &Offload,
    pool: &Pool,
    out: &mut VecDeque<Packet>,
) -> CutOutcome {
    let Ok(Frame::Ip(layout)) = wire::parse(merged) else { return CutOutcome::Refused };
    let kind = offload.kind().filter(|kind| kind.protocol() == layout.protocol);
    let Some(kind) = kind else { return CutOutcome::Refused };
    let head_bytes = match kind {
        Kind::Udp => layout.transport + UDP_BYTES,
        _ if layout.transport + TCP_BYTES_MIN > layout.end => return CutOutcome::Refused,
        _ => layout.transport + usize::from(merged[layout.transport + 12] >> 4) * 4,
    };
    if offload.segment_bytes == 0 {
        return CutOutcome::Refused;
    }
    let Some(payload) = merged.get(head_bytes..layout.end) else { return CutOutcome::Refused };
    let segments = payload.len().div_ceil(offload.segment_bytes.into()).max(1);
    if segments > SEGMENTS_MAX {
        return CutOutcome::Refused;
    }
    let headers = Headers { network: layout.network, transport: layout.transport };
    let pieces = payload.chunks(offload.segment_bytes.into()).enumerate();
    for (number, piece) in pieces {
        let Some(mut packet) = pool.copy_of(&merged[..head_bytes]) else { return CutOutcome::Done };
        if packet.grow_back(piece.len()).is_err() {
            return CutOutcome::Refused;
        }
        let frame = packet.bytes_mut();
        frame[head_bytes..].copy_from_slice(piece);
        let place = SegmentIndex { number, is_last: number + 1 == segments };
        finish(frame, headers, kind, offload.segment_bytes, place);
        out.push_back(packet);
    }
    CutOutcome::Done
}

/// Where the headers of a frame begin, in bytes from its start.
#[derive(Clone, Copy)]
pub(crate) struct Headers {
    pub(crate) network: usize,
    pub(crate) transport: usize,
}

/// Place of a segment in its frame.
struct SegmentIndex {
    number: usize,
    is_last: bool,
}

fn finish(frame: &mut [u8], headers: Headers, kind: Kind, segment_bytes: u16, place: SegmentIndex) {
    let Headers { network, transport } = headers;
    // A segment is shorter than the frame, whose length fits: that of its IP packet is 16 bits.
    let bytes = (frame.len() - network) as u16;
    if frame[network] >> 4 == 4 {
        frame[network + 2..network + 4].copy_from_slice(&bytes.to_be_bytes());
        let id = u16::from_be_bytes([frame[network + 4], frame[network + 5]]);
        let id = id.wrapping_add(place.number as u16);
        frame[network + 4..network + 6].copy_from_slice(&id.to_be_bytes());
        fill_ipv4_checksum(&mut frame[network..]);
    } else {
        let payload = bytes - 40;
        frame[network + 4..network + 6].copy_from_slice(&payload.to_be_bytes());
    }
    if kind == Kind::Udp {
        let bytes = (frame.len() - transport) as u16;
        frame[transport + 4..transport + 6].copy_from_slice(&bytes.to_be_bytes());
    } else {
        let tcp = &mut frame[transport..];
        let number = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let number = number.wrapping_add(place.number as u32 * u32::from(segment_bytes));
        tcp[4..8].copy_from_slice(&number.to_be_bytes());
        if !place.is_last {
            tcp[13] &= !LAST_FLAGS;
        }
        if place.number > 0 {
            tcp[13] &= !FIRST_FLAGS;
        }
    }
    if let Ok(Frame::Ip(layout)) = wire::parse(frame) {
        wire::fill(frame, &layout);
    }
}

#[cfg(test)]
mod tests {
    use snic_nts::wire::{Verified, verify};

    use super::*;

    /// IPv4 and TCP with `payload` bytes, sequence number 1000, flags PSH and ACK; checksums are missing.
    fn merged(payload: usize) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        let mut ip =
            vec![0x45, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        ip[2..4].copy_from_slice(&(40 + payload as u16).to_be_bytes());
        let sum = internet_checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(ip);
        frame.extend([0, 80, 0, 81, 0, 0, 3, 0xe8, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        frame.extend((0..payload).map(|i| (i % 251) as u8));
        frame
    }

    fn offload(segment: u16) -> Offload {
        let mut head = [0; Offload::BYTES];
        (head[0], head[1]) = (1, Kind::TcpV4 as u8 | Offload::ECN);
        head[4..6].copy_from_slice(&segment.to_ne_bytes());
        head[6..8].copy_from_slice(&34_u16.to_ne_bytes());
        head[8..10].copy_from_slice(&16_u16.to_ne_bytes());
        Offload::of(head)
    }

    #[test]
    fn a_merged_frame_is_cut_into_segments_that_any_host_takes() {
        let (pool, mut out) = (Pool::new(64, 9_216), VecDeque::new());
        let frame = merged(60_000);
        assert_eq!(cut(&frame, &offload(1_448), &pool, &mut out), CutOutcome::Done);
        assert_eq!(out.len(), 60_000_usize.div_ceil(1_448));
        let mut payload: Vec<u8> = Vec::new();
        for (number, packet) in out.iter().enumerate() {
            let Ok(Frame::Ip(layout)) = wire::parse(packet.bytes()) else { panic!("no IP") };
            assert_eq!(verify(packet.bytes(), &layout), Verified::Right);
            let tcp = &packet.bytes()[34..];
            let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
            assert_eq!(sequence as usize, 1_000 + payload.len());
            assert_eq!(tcp[13], if number + 1 == out.len() { 0x18 } else { 0x10 });
            payload.extend(&tcp[20..]);
        }
        assert_eq!(payload, frame[54..]);
    }

    #[test]
    fn a_frame_that_cannot_be_segmented_is_refused_and_takes_no_buffer() {
        let (pool, mut out) = (Pool::new(4, 9_216), VecDeque::new());
        let frame = merged(3_000);
        assert_eq!(cut(&frame, &offload(0), &pool, &mut out), CutOutcome::Refused);
        assert_eq!(cut(&frame[..40], &offload(1_000), &pool, &mut out), CutOutcome::Refused);
        assert_eq!(cut(&merged(60_000), &offload(100), &pool, &mut out), CutOutcome::Refused);
        assert_eq!((out.len(), pool.available()), (0, 4));
        assert_eq!(cut(&merged(8_000), &offload(1_000), &pool, &mut out), CutOutcome::Done);
        assert_eq!(out.len(), 4, "as far as there are buffers");
    }

    #[test]
    fn a_checksum_that_was_left_out_is_filled_in() {
        let mut frame = merged(11);
        // The kernel leaves the sum of the pseudo header: 10.0.0.1, 10.0.0.2, protocol 6, 31 bytes.
        let sum: u16 = 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 6 + 31;
        frame[50..52].copy_from_slice(&sum.to_be_bytes());
        offload(0).fill_checksum(&mut frame);
        let Ok(Frame::Ip(layout)) = wire::parse(&frame) else { panic!("no IP") };
        assert_eq!(verify(&frame, &layout), Verified::Right);
        let mut short = frame[..40].to_vec();
        offload(0).fill_checksum(&mut short);
        assert_eq!(short, frame[..40], "a header that lies changes nothing");
    }
}
