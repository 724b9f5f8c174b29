//! Capture files in the pcapng format (draft-ietf-opsawg-pcapng): a section, an interface for each place
//! where packets were seen, and an enhanced packet block with a comment for each.
//!
//! Three kinds of blocks are written and none is read, so no library is needed.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// The same in both byte orders.
pub(super) const SECTION: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE: u32 = 1;
pub(super) const ENHANCED_PACKET: u32 = 6;
/// Written in this byte order, it tells readers which one it is.
pub(super) const BYTE_ORDER: u32 = 0x1a2b_3c4d;
pub(super) const LINK_ETHERNET: u16 = 1;
const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_APPLICATION: u16 = 4;
const OPTION_NAME: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
/// Times are in units of 10^-9 seconds.
const NANOSECONDS: u8 = 9;

/// A packet as it was seen somewhere.
#[derive(Debug, Clone, Copy)]
pub struct CapturedPacket<'a> {
    /// Where; readers see it as the name of an interface.
    pub place: &'a str,
    pub nanos: u64,
    /// Its length; `bytes` may be fewer.
    pub length: u32,
    /// Its first bytes.
    pub bytes: &'a [u8],
    /// Said about it.
    pub comment: &'a str,
}

/// Writes a capture file.
pub struct PcapngWriter<W> {
    to: W,
    places: BTreeMap<String, u32>,
}

impl<W: Write> PcapngWriter<W> {
    /// Begins a file, with the place where packets are seen first.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(to: W, first_place: &str) -> io::Result<Self> {
        let mut writer = Self { to, places: BTreeMap::new() };
        let mut body = Vec::new();
        body.extend(BYTE_ORDER.to_le_bytes());
        // Version 1.0, of unknown length.
        body.extend([1, 0, 0, 0]);
        body.extend(u64::MAX.to_le_bytes());
        let application = concat!("snicctl ", env!("CARGO_PKG_VERSION"));
        option(&mut body, OPTION_APPLICATION, application.as_bytes());
        option(&mut body, OPTION_END, &[]);
        writer.block(SECTION, &body)?;
        // tcpdump opens no file without one, also where no packet came.
        writer.interface(first_place)?;
        Ok(writer)
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn packet(&mut self, packet: &CapturedPacket<'_>) -> io::Result<()> {
        let interface = match self.places.get(packet.place) {
            Some(known) => *known,
            None => self.interface(packet.place)?,
        };
        let mut body = Vec::with_capacity(packet.bytes.len() + packet.comment.len() + 48);
        body.extend(interface.to_le_bytes());
        // The upper half comes first, whatever the byte order.
        body.extend(((packet.nanos >> 32) as u32).to_le_bytes());
        body.extend((packet.nanos as u32).to_le_bytes());
        body.extend((packet.bytes.len() as u32).to_le_bytes());
        body.extend(packet.length.to_le_bytes());
        body.extend(packet.bytes);
        pad(&mut body);
        option(&mut body, OPTION_COMMENT, packet.comment.as_bytes());
        option(&mut body, OPTION_END, &[]);
        self.block(ENHANCED_PACKET, &body)
    }

    /// Gives what was written to the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    fn interface(&mut self, place: &str) -> io::Result<u32> {
        let number = self.places.len() as u32;
        self.places.insert(place.to_owned(), number);
        let mut body = Vec::new();
        body.extend(LINK_ETHERNET.to_le_bytes());
        // Reserved; then the longest packet, without a limit.
        body.extend([0; 6]);
        option(&mut body, OPTION_NAME, place.as_bytes());
        option(&mut body, OPTION_RESOLUTION, &[NANOSECONDS]);
        option(&mut body, OPTION_END, &[]);
        self.block(INTERFACE, &body)?;
        Ok(number)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        // Kind and length before it, the length again after it.
        let length = (body.len() as u32 + 12).to_le_bytes();
        self.to.write_all(&kind.to_le_bytes())?;
        self.to.write_all(&length)?;
        self.to.write_all(body)?;
        self.to.write_all(&length)
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    // Longer ones are cut: lengths have 16 bits.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The draft's figures have a file with one packet, byte for byte.
    #[test]
    fn a_file_is_laid_out_as_the_draft_says() {
        let mut file = Vec::new();
        let mut writer = PcapngWriter::new(&mut file, "in").expect("memory");
        let packet = CapturedPacket {
            place: "in",
            nanos: 0x0000_0001_0000_0002,
            length: 60,
            bytes: &[7; 5],
            comment: "five",
        };
        writer.packet(&packet).expect("memory");
        let section = u32::from_le_bytes(file[4..8].try_into().expect("four")) as usize;
        assert_eq!(file[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
        assert_eq!(file[8..12], [0x4d, 0x3c, 0x2b, 0x1a]);
        assert_eq!(file[section - 4..section], file[4..8], "the length stands at both ends");
        let interface = &file[section..section + 40];
        assert_eq!(
            interface,
            [
                1, 0, 0, 0, 40, 0, 0, 0, // interface, 40 bytes
                1, 0, 0, 0, 0, 0, 0, 0, // Ethernet, no limit
                2, 0, 2, 0, b'i', b'n', 0, 0, // its name
                9, 0, 1, 0, 9, 0, 0, 0, // nanoseconds
                0, 0, 0, 0, 40, 0, 0, 0,
            ]
        );
        assert_eq!(
            file[section + 40..],
            [
                6, 0, 0, 0, 52, 0, 0, 0, // packet, 52 bytes
                0, 0, 0, 0, // interface 0
                1, 0, 0, 0, 2, 0, 0, 0, // time
                5, 0, 0, 0, 60, 0, 0, 0, // 5 bytes of 60
                7, 7, 7, 7, 7, 0, 0, 0, //
                1, 0, 4, 0, b'f', b'i', b'v', b'e', // comment
                0, 0, 0, 0, 52, 0, 0, 0,
            ]
        );
    }

    #[test]
    fn each_place_is_one_interface() {
        let mut file = Vec::new();
        let mut writer = PcapngWriter::new(&mut file, "in").expect("memory");
        for place in ["in", "out", "in"] {
            let packet = CapturedPacket { place, nanos: 1, length: 0, bytes: &[], comment: "" };
            writer.packet(&packet).expect("memory");
        }
        let mut kinds = Vec::new();
        let mut rest = &file[..];
        while rest.len() >= 8 {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("four"));
            kinds.push((word(0), word(8)));
            rest = &rest[word(4) as usize..];
        }
        let packets: Vec<u32> =
            kinds.iter().filter(|(kind, _)| *kind == ENHANCED_PACKET).map(|(_, at)| *at).collect();
        assert_eq!(packets, [0, 1, 0]);
        assert_eq!(kinds.iter().filter(|(kind, _)| *kind == INTERFACE).count(), 2);
    }
}
