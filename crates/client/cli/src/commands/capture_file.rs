//! Packets of capture files: pcap of either byte order, and pcapng as `snicctl capture`, Wireshark and
//! tcpdump write it.

use std::path::Path;

use snic_client::Failure;

/// The shortest and the longest frame that a card sends.
const FRAME_BYTES_MIN: usize = 14;
const FRAME_BYTES_MAX: usize = 9_216;
/// How many frames one request may have, and how many bytes in all.
const FRAMES_MAX: usize = 4_096;
const BYTES_MAX: usize = 768 << 10;
const LINK_ETHERNET: u32 = 1;

const PCAP_MICROSECONDS: u32 = 0xa1b2_c3d4;
const PCAP_NANOSECONDS: u32 = 0xa1b2_3c4d;
const PCAP_HEADER: usize = 24;
const PCAP_RECORD: usize = 16;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Kind and length before a block, and its length again after it.
const BLOCK_FRAME: usize = 12;

/// The frames of a capture file, as far as one request takes them.
#[derive(Debug, PartialEq, Eq)]
pub struct CaptureFrames {
    /// In the order of the file.
    pub frames: Vec<Vec<u8>>,
    /// Frames of the file that found no room.
    pub left_out: usize,
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

/// Numbers of a file in its byte order.
struct Numbers<'a> {
    file: &'a [u8],
    is_swapped: bool,
}

impl Numbers<'_> {
    fn word(&self, at: usize) -> Result<u32, String> {
        let bytes = at.checked_add(4).and_then(|end| self.file.get(at..end));
        let bytes = bytes.and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        let word = u32::from_le_bytes(bytes.ok_or_else(truncated)?);
        Ok(if self.is_swapped { word.swap_bytes() } else { word })
    }

    /// A frame of which some bytes were kept; what was not kept is zeros.
    fn frame(&self, at: usize, kept: u32, length: u32) -> Result<Vec<u8>, String> {
        let (kept, length) = (kept as usize, length as usize);
        let end = at.checked_add(kept).ok_or_else(truncated)?;
        let bytes = self.file.get(at..end).ok_or_else(truncated)?;
        let length = length.max(kept);
        if !(FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&length) {
            return Err(format!(
                "a frame of {length} bytes; allowed: {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX}"
            ));
        }
        let mut frame = bytes.to_vec();
        frame.resize(length, 0);
        Ok(frame)
    }
}

fn truncated() -> String {
    "the file ends in the middle of a packet".to_owned()
}

fn check_link(link: u32) -> Result<(), String> {
    if link == LINK_ETHERNET {
        return Ok(());
    }
    Err(format!("its frames are of link type {link}; allowed: {LINK_ETHERNET}, Ethernet"))
}

fn parse(file: &[u8]) -> Result<CaptureFrames, String> {
    let numbers = Numbers { file, is_swapped: false };
    let first = numbers.word(0).map_err(|_| "not a capture file".to_owned())?;
    let frames = match (first, first.swap_bytes()) {
        (SECTION, _) => pcapng(file)?,
        (PCAP_MICROSECONDS | PCAP_NANOSECONDS, _) => pcap(&numbers)?,
        (_, PCAP_MICROSECONDS | PCAP_NANOSECONDS) => pcap(&Numbers { file, is_swapped: true })?,
        _ => return Err("not a capture file".to_owned()),
    };
    let all = frames.len();
    let mut bytes = 0;
    let room = |frame: &Vec<u8>| {
        bytes += frame.len();
        bytes <= BYTES_MAX
    };
    let frames: Vec<_> = frames.into_iter().take(FRAMES_MAX).take_while(room).collect();
    if frames.is_empty() {
        return Err("it has no packets".to_owned());
    }
    Ok(CaptureFrames { left_out: all - frames.len(), frames })
}

fn pcap(numbers: &Numbers<'_>) -> Result<Vec<Vec<u8>>, String> {
    // The upper bits say whether frames end with a checksum.
    check_link(numbers.word(20)? & 0xffff)?;
    let mut frames = Vec::new();
    let mut at = PCAP_HEADER;
    while at < numbers.file.len() {
        let (kept, length) = (numbers.word(at + 8)?, numbers.word(at + 12)?);
        frames.push(numbers.frame(at + PCAP_RECORD, kept, length)?);
        at += PCAP_RECORD + kept as usize;
    }
    Ok(frames)
}

/// The packets of the first interface: in a capture of `snicctl` those that came in, and not again what left
/// each node.
fn pcapng(file: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut numbers = Numbers { file, is_swapped: false };
    let (mut frames, mut at, mut interfaces) = (Vec::new(), 0, 0);
    while at < file.len() {
        let kind = numbers.word(at)?;
        if kind == SECTION {
            // Interfaces are numbered anew in each section.
            interfaces = 0;
            numbers.is_swapped = false;
            numbers.is_swapped = numbers.word(at + 8)? != BYTE_ORDER;
        }
        let length = numbers.word(at + 4)? as usize;
        let end = at.checked_add(length).filter(|end| *end <= file.len());
        let end = end.filter(|_| length >= BLOCK_FRAME).ok_or_else(truncated)?;
        let body = at + 8;
        match kind {
            INTERFACE => {
                if interfaces == 0 {
                    check_link(numbers.word(body)? & 0xffff)?;
                }
                interfaces += 1;
            }
            SIMPLE_PACKET => {
                let length = numbers.word(body)?;
                let kept = (end - body - 8).min(length as usize);
                // A block is shorter than 4 GiB.
                frames.push(numbers.frame(body + 4, kept as u32, length)?);
            }
            ENHANCED_PACKET if numbers.word(body)? == 0 => {
                let (kept, length) = (numbers.word(body + 12)?, numbers.word(body + 16)?);
                frames.push(numbers.frame(body + 20, kept, length)?);
            }
            _ => {}
        }
        at = end;
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::super::pcapng::{CapturedPacket, PcapngWriter};
    use super::*;

    fn pcap_file(link: u32, frames: &[(&[u8], u32)], order: fn(u32) -> [u8; 4]) -> Vec<u8> {
        let words = [PCAP_MICROSECONDS, 0x0004_0002, 0, 0, 65_535, link];
        let mut file: Vec<u8> = words.into_iter().flat_map(order).collect();
        for (kept, length) in frames {
            let record = [1, 2, kept.len() as u32, *length];
            file.extend(record.into_iter().flat_map(order));
            file.extend(*kept);
        }
        file
    }

    #[test]
    fn a_pcap_file_of_either_byte_order_has_its_frames_with_what_was_not_kept_as_zeros() {
        let long = [7; 60];
        for order in [u32::to_le_bytes, u32::to_be_bytes] {
            let file = pcap_file(LINK_ETHERNET, &[(&long, 60), (&long[..14], 20)], order);
            let read = parse(&file).expect("valid");
            let second = [&long[..14], &[0; 6][..]].concat();
            assert_eq!(read, CaptureFrames { frames: vec![long.to_vec(), second], left_out: 0 });
            for end in 1..file.len() {
                // Never more than the file has, whatever is cut off.
                assert!(
                    parse(&file[..end]).is_ok_and(|read| read.frames.len() == 1)
                        || parse(&file[..end]).is_err()
                );
            }
        }
    }

    #[test]
    fn of_a_capture_of_snicctl_the_packets_that_came_in_are_sent() {
        let mut file = Vec::new();
        let mut writer = PcapngWriter::new(&mut file, "in").expect("written");
        for (place, fill) in [("in", 1), ("card0/0 nat", 2), ("in", 3), ("out", 4)] {
            let bytes = &[fill; 61];
            let packet = CapturedPacket { place, nanos: 5, length: 61, bytes, comment: "c" };
            writer.packet(&packet).expect("written");
        }
        let read = parse(&file).expect("valid");
        assert_eq!(read.frames, [vec![1; 61], vec![3; 61]]);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let frame = [0; 9_000];
        let file = pcap_file(LINK_ETHERNET, &[(&frame[..], 9_000); 100], u32::to_le_bytes);
        let read = parse(&file).expect("valid");
        assert_eq!((read.frames.len(), read.left_out), (87, 13));
    }

    #[test]
    fn what_is_no_capture_is_refused_with_a_reason() {
        let wifi = pcap_file(105, &[], u32::to_le_bytes);
        let short = pcap_file(LINK_ETHERNET, &[(&[0; 13], 13)], u32::to_le_bytes);
        let empty = pcap_file(LINK_ETHERNET, &[], u32::to_le_bytes);
        for (file, said) in [
            (&b"name: web\n"[..], "not a capture file"),
            (&[], "not a capture file"),
            (&wifi, "link type 105"),
            (&short, "13 bytes; allowed: 14 to 9216"),
            (&empty, "no packets"),
        ] {
            let error = parse(file).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
    }
}
