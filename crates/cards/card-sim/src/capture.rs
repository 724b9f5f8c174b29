//! Captures of traffic: lengths and times of packets, from a capture file, to be sent again.

use snic_domain::Timestamp;

use crate::frame::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};

/// Packets of a capture: when, in nanoseconds after the first, and how many bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    packets: Vec<(u64, u32)>,
}

/// A capture file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCapture {
    /// Not a capture file, or one of another kind.
    #[error("not a capture file of the classic kind (pcap): it begins with {0:#010x}")]
    Magic(u32),
    /// It ends in the middle.
    #[error("the capture file ends in the middle of packet {packet}")]
    Truncated {
        /// Number of the packet, from zero.
        packet: usize,
    },
    /// It has no packets.
    #[error("the capture file has no packets")]
    Empty,
    /// Time runs backwards.
    #[error("packet {packet} of the capture was seen before the one before it")]
    Backwards {
        /// Number of the packet, from zero.
        packet: usize,
    },
    /// No such frame.
    #[error("packet {packet} of the capture has {bytes} bytes; at most {FRAME_BYTES_MAX} are sent")]
    Size {
        /// Number of the packet, from zero.
        packet: usize,
        /// Number of bytes.
        bytes: u32,
    },
}

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

impl Capture {
    /// Reads a classic capture file, of either byte order, with times in micro- or nanoseconds. What
    /// counts are the lengths on the wire, also where less was kept; frames under 64 bytes are sent
    /// with 64, as a wire has them.
    ///
    /// # Errors
    /// The file does not begin as such a file does, ends within a packet, holds a packet longer than a port takes, or none.
    pub fn parse(file: &[u8]) -> Result<Self, InvalidCapture> {
        let magic = word(file, 0).ok_or(InvalidCapture::Truncated { packet: 0 })?;
        let (swapped, unit) = match (magic, magic.swap_bytes()) {
            (MICROSECONDS, _) => (false, 1_000),
            (NANOSECONDS, _) => (false, 1),
            (_, MICROSECONDS) => (true, 1_000),
            (_, NANOSECONDS) => (true, 1),
            _ => return Err(InvalidCapture::Magic(magic)),
        };
        let mut rest = file.get(FILE_HEADER..).ok_or(InvalidCapture::Truncated { packet: 0 })?;
        let mut packets: Vec<(u64, u32)> = Vec::new();
        let mut first = None;
        while !rest.is_empty() {
            let packet = packets.len();
            let truncated = InvalidCapture::Truncated { packet };
            let read = |at| word(rest, at).map(|w| if swapped { w.swap_bytes() } else { w });
            let fields = [read(0), read(4), read(8), read(12)];
            let [Some(seconds), Some(part), Some(kept), Some(bytes)] = fields else {
                return Err(truncated);
            };
            if bytes > FRAME_BYTES_MAX {
                return Err(InvalidCapture::Size { packet, bytes });
            }
            let at = u64::from(seconds) * 1_000_000_000 + u64::from(part) * unit;
            let offset = at.checked_sub(*first.get_or_insert(at));
            let last = packets.last().map_or(0, |(at, _)| *at);
            let offset = offset.filter(|offset| *offset >= last);
            let offset = offset.ok_or(InvalidCapture::Backwards { packet })?;
            packets.push((offset, bytes.max(FRAME_BYTES_MIN)));
            rest = rest.get(RECORD_HEADER + kept as usize..).ok_or(truncated)?;
        }
        if packets.is_empty() { Err(InvalidCapture::Empty) } else { Ok(Self { packets }) }
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Never: a capture has packets.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// When packet `number` is due where the first is due at `start`, and its bytes.
    pub(crate) fn packet(&self, number: u64, start: Timestamp) -> Option<(Timestamp, u32)> {
        let &(offset, bytes) = self.packets.get(usize::try_from(number).ok()?)?;
        Some((Timestamp::from_nanos(start.as_nanos().saturating_add(offset)), bytes))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Bytes = fn(u32) -> [u8; 4];

    /// A capture of `(seconds, parts, kept, bytes)`.
    fn file(magic: u32, bytes: Bytes, packets: &[(u32, u32, u32, u32)]) -> Vec<u8> {
        let mut file = bytes(magic).to_vec();
        file.resize(FILE_HEADER, 0);
        for &(seconds, part, kept, length) in packets {
            for word in [seconds, part, kept, length] {
                file.extend(bytes(word));
            }
            file.resize(file.len() + kept as usize, 0xee);
        }
        file
    }

    #[test]
    fn lengths_and_times_are_read_in_both_orders_and_units() {
        let packets = [(7, 999_999, 60, 1_500), (8, 1, 60, 60), (8, 1, 0, 9_000)];
        let micros = vec![(0, 1_500), (2_000, 64), (2_000, 9_000)];
        for bytes in [u32::to_le_bytes as Bytes, u32::to_be_bytes as Bytes] {
            let read = Capture::parse(&file(MICROSECONDS, bytes, &packets)).expect("whole");
            assert_eq!(read.packets, micros);
            assert_eq!(read.len(), 3);
        }
        let packets = [(7, 5, 0, 100), (7, 25, 0, 100)];
        let read = Capture::parse(&file(NANOSECONDS, u32::to_le_bytes, &packets)).expect("whole");
        assert_eq!(read.packets, [(0, 100), (20, 100)]);
        let start = Timestamp::from_nanos(1_000);
        assert_eq!(read.packet(1, start), Some((Timestamp::from_nanos(1_020), 100)));
        assert_eq!(read.packet(2, start), None);
    }

    #[test]
    fn every_mistake_is_named() {
        let le: Bytes = u32::to_le_bytes;
        let parse = |packets: &[_]| Capture::parse(&file(MICROSECONDS, le, packets));
        assert_eq!(Capture::parse(b"\x0a\x0d\x0d\x0a"), Err(InvalidCapture::Magic(0x0a0d_0d0a)));
        assert_eq!(Capture::parse(b"ab"), Err(InvalidCapture::Truncated { packet: 0 }));
        assert_eq!(parse(&[]), Err(InvalidCapture::Empty));
        assert_eq!(
            parse(&[(1, 0, 0, 64), (0, 9, 0, 64)]),
            Err(InvalidCapture::Backwards { packet: 1 })
        );
        assert_eq!(
            parse(&[(1, 0, 0, 9_300)]),
            Err(InvalidCapture::Size { packet: 0, bytes: 9_300 })
        );
        let whole = file(MICROSECONDS, le, &[(1, 0, 10, 64), (1, 1, 10, 64)]);
        for cut in FILE_HEADER + 1..whole.len() {
            let middle = FILE_HEADER + RECORD_HEADER + 10;
            let read = Capture::parse(&whole[..cut]);
            if cut == middle {
                assert_eq!(read.map(|capture| capture.len()), Ok(1));
            } else {
                let packet = usize::from(cut > middle);
                assert_eq!(read, Err(InvalidCapture::Truncated { packet }), "{cut}");
            }
        }
    }
}
