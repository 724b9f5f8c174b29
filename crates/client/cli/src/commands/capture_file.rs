//! Packets of capture files: pcap and pcapng of either byte order, as `snicctl capture`, Wireshark and tcpdump
//! write them.
//!
//! A frame that no card sends is left out and counted, and so is one beyond what a request takes: neither makes the
//! file unreadable. A file whose structure is wrong is refused as a whole, since every offset after the
//! mistake is a guess.

use std::path::Path;

use snic_client::Failure;

use super::pcapng::{BYTE_ORDER, ENHANCED_PACKET, INTERFACE, LINK_ETHERNET, SECTION};

/// The shortest and the longest frame that a card sends.
const FRAME_BYTES_MIN: usize = 14;
const FRAME_BYTES_MAX: usize = 9_216;
/// Number of frames that one request may have, and of bytes in all.
const FRAMES_MAX: usize = 4_096;
const BYTES_MAX: usize = 768 << 10;

const PCAP_MICROSECONDS: u32 = 0xa1b2_c3d4;
const PCAP_NANOSECONDS: u32 = 0xa1b2_3c4d;
const PCAP_HEADER: usize = 24;
const PCAP_RECORD: usize = 16;

/// Written by programs from before the enhanced packet block.
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const MAJOR_VERSION: u16 = 1;
/// Kind and length before the body of a block, and its length again after it.
const BLOCK_START: usize = 8;
const BLOCK_END: usize = 4;

/// The frames of a capture file, as far as one request takes them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CaptureFrames {
    /// In the order of the file.
    pub frames: Vec<Vec<u8>>,
    /// Frames of the file that found no room.
    pub left_out: usize,
    /// Frames of the file that no card sends: they are too short or too long.
    pub unsendable: usize,
    /// Bytes of `frames`.
    bytes: usize,
}

impl CaptureFrames {
    /// Adds a frame of `length` bytes of which the file has the first ones; the others are zeros.
    fn push(&mut self, kept: &[u8], length: u32) {
        let length = (length as usize).max(kept.len());
        if !(FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&length) {
            self.unsendable += 1;
            return;
        }
        // The frames that are sent are the first ones: after one that found no room, no later one is taken.
        let has_room = self.frames.len() < FRAMES_MAX && self.bytes + length <= BYTES_MAX;
        if self.left_out > 0 || !has_room {
            self.left_out += 1;
            return;
        }
        let mut frame = kept.to_vec();
        frame.resize(length, 0);
        self.bytes += length;
        self.frames.push(frame);
    }

    /// Text about frames that are not sent; nothing where all are.
    pub fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        if self.left_out > 0 {
            let (frames, left_out) = (self.frames.len(), self.left_out);
            notices
                .push(format!("the first {frames} packets are sent; {left_out} more find no room"));
        }
        if self.unsendable > 0 {
            let unsendable = self.unsendable;
            notices.push(format!(
                "{unsendable} packets are left out: a card sends {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX} bytes"
            ));
        }
        notices
    }
}

/// Reads a capture file.
///
/// # Errors
/// It cannot be read, is no capture of Ethernet frames, or has none that a card sends.
pub fn read(path: &Path) -> Result<CaptureFrames, Failure> {
    let failed = |source| Failure::Read { path: path.to_owned(), source };
    let file = std::fs::read(path).map_err(failed)?;
    parse(&file).map_err(|why| Failure::Usage {
        message: format!("{}: {why}", path.display()),
        hint: "give a capture of Ethernet frames, as pcap or pcapng".to_owned(),
    })
}

/// Numbers of a file, or of a block of it, in its byte order.
#[derive(Debug, Clone, Copy)]
struct Numbers<'a> {
    bytes: &'a [u8],
    is_big_endian: bool,
}

impl<'a> Numbers<'a> {
    fn bytes(&self, at: usize, length: usize) -> Result<&'a [u8], String> {
        let end = at.checked_add(length).ok_or_else(truncated)?;
        self.bytes.get(at..end).ok_or_else(truncated)
    }

    fn word(&self, at: usize) -> Result<u32, String> {
        let bytes = self.bytes(at, 4)?.try_into().map_err(|_| truncated())?;
        Ok(if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn half_word(&self, at: usize) -> Result<u16, String> {
        let bytes = self.bytes(at, 2)?.try_into().map_err(|_| truncated())?;
        Ok(if self.is_big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }
}

fn truncated() -> String {
    "the file, or a block of it, ends in the middle of a packet".to_owned()
}

fn check_link(link: u16) -> Result<(), String> {
    if link == LINK_ETHERNET {
        return Ok(());
    }
    Err(format!("its frames are of link type {link}; allowed: {LINK_ETHERNET}, Ethernet"))
}

fn parse(file: &[u8]) -> Result<CaptureFrames, String> {
    let numbers = Numbers { bytes: file, is_big_endian: false };
    let first = numbers.word(0).map_err(|_| "not a capture file".to_owned())?;
    let frames = match (first, first.swap_bytes()) {
        (SECTION, _) => pcapng(file)?,
        (PCAP_MICROSECONDS | PCAP_NANOSECONDS, _) => pcap(numbers)?,
        (_, PCAP_MICROSECONDS | PCAP_NANOSECONDS) => {
            pcap(Numbers { is_big_endian: true, ..numbers })?
        }
        _ => return Err("not a capture file".to_owned()),
    };
    match frames.unsendable {
        _ if !frames.frames.is_empty() => Ok(frames),
        0 => Err("it has no packets".to_owned()),
        unsendable => Err(format!(
            "none of its {unsendable} packets has {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX} bytes, as cards send"
        )),
    }
}

fn pcap(numbers: Numbers<'_>) -> Result<CaptureFrames, String> {
    // The upper bits say whether frames end with a checksum.
    check_link(numbers.word(20)? as u16)?;
    let mut frames = CaptureFrames::default();
    let mut at = PCAP_HEADER;
    while at < numbers.bytes.len() {
        let (kept, length) = (numbers.word(at + 8)? as usize, numbers.word(at + 12)?);
        frames.push(numbers.bytes(at + PCAP_RECORD, kept)?, length);
        at += PCAP_RECORD + kept;
    }
    Ok(frames)
}

/// A block of a pcapng file.
struct Block<'a> {
    kind: u32,
    body: Numbers<'a>,
    /// Where the next one begins.
    end: usize,
}

/// The block at `at`. A section's header says the byte order of its blocks, its own length included.
fn block(file: &[u8], at: usize, is_big_endian: bool) -> Result<Block<'_>, String> {
    let mut numbers = Numbers { bytes: file, is_big_endian };
    let kind = numbers.word(at)?;
    if kind == SECTION {
        numbers.is_big_endian = false;
        let mark = numbers.word(at + BLOCK_START)?;
        numbers.is_big_endian = match mark {
            BYTE_ORDER => false,
            _ if mark.swap_bytes() == BYTE_ORDER => true,
            _ => return Err(format!("a section at byte {at} has no byte-order mark")),
        };
    }
    let length = numbers.word(at + 4)? as usize;
    let body_bytes = length.checked_sub(BLOCK_START + BLOCK_END);
    let body_bytes = body_bytes.filter(|bytes| bytes.is_multiple_of(4)).ok_or_else(|| {
        format!("a block of {length} bytes at byte {at}; allowed: a multiple of 4 from 12 on")
    })?;
    let body = numbers.bytes(at + BLOCK_START, body_bytes)?;
    let repeated = numbers.word(at + BLOCK_START + body_bytes)? as usize;
    if repeated != length {
        return Err(format!(
            "a block at byte {at} has {length} bytes at its start, {repeated} at its end"
        ));
    }
    Ok(Block { kind, body: Numbers { bytes: body, ..numbers }, end: at + length })
}

/// The packets of each section's first interface: in a capture of `snicctl` those that came in, and not again
/// what left each node. Blocks of other kinds are passed over.
fn pcapng(file: &[u8]) -> Result<CaptureFrames, String> {
    let (mut frames, mut at, mut is_big_endian) = (CaptureFrames::default(), 0, false);
    // The most bytes that the first interface of this section keeps of a packet; 0 is no limit.
    let mut snapshot_bytes: Option<u32> = None;
    while at < file.len() {
        let Block { kind, body, end } = block(file, at, is_big_endian)?;
        let no_interface =
            || format!("a packet at byte {at} is of an interface that is not described");
        match kind {
            SECTION => {
                is_big_endian = body.is_big_endian;
                // Interfaces are numbered from 0 in each section.
                snapshot_bytes = None;
                let version = body.half_word(4)?;
                if version != MAJOR_VERSION {
                    return Err(format!("pcapng version {version}; allowed: {MAJOR_VERSION}"));
                }
            }
            INTERFACE if snapshot_bytes.is_none() => {
                check_link(body.half_word(0)?)?;
                snapshot_bytes = Some(body.word(4)?);
            }
            SIMPLE_PACKET => {
                let limit = snapshot_bytes.ok_or_else(no_interface)?;
                let length = body.word(0)?;
                // It has no length of what was kept.
                let kept = if limit == 0 { length } else { length.min(limit) };
                frames.push(body.bytes(4, kept as usize)?, length);
            }
            ENHANCED_PACKET | OLD_PACKET => {
                let interface = match kind {
                    OLD_PACKET => body.half_word(0)?.into(),
                    _ => body.word(0)?,
                };
                let (kept, length) = (body.word(12)?, body.word(16)?);
                let kept = body.bytes(20, kept as usize)?;
                snapshot_bytes.ok_or_else(no_interface)?;
                if interface == 0 {
                    frames.push(kept, length);
                }
            }
            _ => {}
        }
        at = end;
    }
    Ok(frames)
}

#[cfg(test)]
mod tests;
