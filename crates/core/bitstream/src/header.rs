//! The header of a `.bit` file: five fields named a to e, before the configuration data.
//!
//! ```text
//! 00 09  0F F0 0F F0 0F F0 0F F0 00   00 01
//! 'a' length16 design NUL   'b' length16 part NUL   'c' … date   'd' … time   'e' length32
//! ```

/// Longest text of a header field, in bytes without the closing NUL. Vivado's design names carry
/// options and stay far under it; a longer one is damage.
pub const HEADER_TEXT_BYTES_MAX: usize = 1_023;

/// First bytes of every `.bit` file.
const PREAMBLE: [u8; 13] = [0, 9, 0x0F, 0xF0, 0x0F, 0xF0, 0x0F, 0xF0, 0x0F, 0xF0, 0, 0, 1];

/// The texts of a `.bit` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitHeader<'a> {
    /// Field a: the design's name, with options after semicolons.
    pub design: &'a str,
    /// Field b: the part, without the vendor's prefix in files of some versions.
    pub part: &'a str,
    /// Field c: the date, `yyyy/mm/dd`.
    pub date: &'a str,
    /// Field d: the time, `hh:mm:ss`.
    pub time: &'a str,
}

/// Fault of a header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeader {
    /// It does not begin like one.
    #[error("the file does not begin like a .bit file; give a .bit, not a .bin or an .xclbin")]
    Preamble,
    /// A field is not where it has to be.
    #[error("field {field:?} of the header is missing at byte {at}")]
    Field {
        field: char,
        /// Where it was looked for.
        at: usize,
    },
    /// A field's text is too long, not ended by a NUL, or not printable ASCII.
    #[error(
        "field {field:?} of the header is not text: printable ASCII of at most \
         {HEADER_TEXT_BYTES_MAX} bytes and a NUL are needed"
    )]
    Text { field: char },
    /// The configuration data is shorter or longer than field e says.
    #[error("field 'e' of the header says {said} bytes of configuration data, {actual} follow")]
    Length {
        /// Length that field e states.
        said: u32,
        /// Length of what follows it.
        actual: usize,
    },
}

impl<'a> BitHeader<'a> {
    /// Takes the header off `bytes`; also returns the configuration data, whose length is checked.
    ///
    /// # Errors
    ///
    /// [`InvalidHeader`] if the header is malformed, or the length of the data differs from its field.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), InvalidHeader> {
        if !bytes.starts_with(&PREAMBLE) {
            return Err(InvalidHeader::Preamble);
        }
        let mut at = PREAMBLE.len();
        let design = take_text(bytes, &mut at, 'a')?;
        let part = take_text(bytes, &mut at, 'b')?;
        let date = take_text(bytes, &mut at, 'c')?;
        let time = take_text(bytes, &mut at, 'd')?;
        let missing = InvalidHeader::Field { field: 'e', at };
        let Some((b'e', rest)) = bytes[at..].split_first() else { return Err(missing) };
        let Some((length, data)) = rest.split_first_chunk() else { return Err(missing) };
        let said = u32::from_be_bytes(*length);
        if usize::try_from(said) != Ok(data.len()) {
            return Err(InvalidHeader::Length { said, actual: data.len() });
        }
        Ok((Self { design, part, date, time }, data))
    }

    /// Writes the header for `data_bytes` bytes of configuration data to the end of `out`.
    ///
    /// # Errors
    ///
    /// [`InvalidHeader::Text`] for a field that cannot be written; nothing is written then.
    pub fn write(&self, out: &mut Vec<u8>, data_bytes: u32) -> Result<(), InvalidHeader> {
        let fields = [('a', self.design), ('b', self.part), ('c', self.date), ('d', self.time)];
        if let Some((field, _)) = fields.iter().find(|(_, text)| !is_text(text.as_bytes())) {
            return Err(InvalidHeader::Text { field: *field });
        }
        out.extend(PREAMBLE);
        for (letter, (_, text)) in (b'a'..).zip(fields) {
            out.push(letter);
            // At most 1,024, as checked above.
            out.extend((text.len() as u16 + 1).to_be_bytes());
            out.extend(text.as_bytes());
            out.push(0);
        }
        out.push(b'e');
        out.extend(data_bytes.to_be_bytes());
        Ok(())
    }

    /// Number of bytes that [`BitHeader::write`] writes.
    pub(crate) const fn bytes(&self) -> usize {
        let texts = self.design.len() + self.part.len() + self.date.len() + self.time.len();
        PREAMBLE.len() + texts + 4 * (1 + 2 + 1) + 1 + 4
    }
}

fn is_text(text: &[u8]) -> bool {
    text.len() <= HEADER_TEXT_BYTES_MAX && text.iter().all(|b| (b' '..=b'~').contains(b))
}

fn take_text<'a>(bytes: &'a [u8], at: &mut usize, field: char) -> Result<&'a str, InvalidHeader> {
    let missing = InvalidHeader::Field { field, at: *at };
    let Some((&letter, rest)) = bytes[*at..].split_first() else { return Err(missing) };
    if char::from(letter) != field {
        return Err(missing);
    }
    let Some((length, rest)) = rest.split_first_chunk() else { return Err(missing) };
    let length = usize::from(u16::from_be_bytes(*length));
    let text = rest.get(..length).and_then(|field| field.strip_suffix(&[0]));
    let text = text.filter(|text| is_text(text)).and_then(|text| str::from_utf8(text).ok());
    *at += 3 + length;
    text.ok_or(InvalidHeader::Text { field })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: BitHeader<'_> =
        BitHeader { design: "d", part: "xcvu9p", date: "2024/01/01", time: "00:00:00" };

    fn written(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        HEADER.write(&mut out, data.len() as u32).expect("printable");
        assert_eq!(out.len(), HEADER.bytes());
        out.extend(data);
        out
    }

    #[test]
    fn the_bytes_are_those_of_a_bit_file() {
        let bytes = written(&[]);
        assert_eq!(bytes[13..18], [b'a', 0, 2, b'd', 0]);
        assert_eq!(bytes[18..28], *b"b\x00\x07xcvu9p\0");
        assert_eq!(bytes[bytes.len() - 5..], [b'e', 0, 0, 0, 0]);
    }

    #[test]
    fn a_header_that_lies_is_refused() {
        let good = written(&[1, 2, 3]);
        assert_eq!(BitHeader::parse(&good), Ok((HEADER, &[1, 2, 3][..])));
        let short = BitHeader::parse(&good[..good.len() - 1]);
        assert_eq!(short, Err(InvalidHeader::Length { said: 3, actual: 2 }));
        let mut longer = good.clone();
        longer.push(0);
        assert_eq!(BitHeader::parse(&longer), Err(InvalidHeader::Length { said: 3, actual: 4 }));
        assert_eq!(BitHeader::parse(b"xclbin2\0"), Err(InvalidHeader::Preamble));
        let mut huge = good.clone();
        huge[14..16].copy_from_slice(&[0xFF, 0xFF]);
        assert_eq!(BitHeader::parse(&huge), Err(InvalidHeader::Text { field: 'a' }));
        let mut open = good.clone();
        open[17] = b'x';
        assert_eq!(BitHeader::parse(&open), Err(InvalidHeader::Text { field: 'a' }));
        let mut empty = good;
        empty[14..16].copy_from_slice(&[0, 0]);
        assert_eq!(BitHeader::parse(&empty), Err(InvalidHeader::Text { field: 'a' }));
    }

    #[test]
    fn a_header_cut_anywhere_is_refused() {
        let good = written(&[1]);
        for length in 0..good.len() {
            assert!(BitHeader::parse(&good[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_text_that_could_not_be_read_back_is_not_written() {
        for part in ["a\0b", "é", &"x".repeat(HEADER_TEXT_BYTES_MAX + 1)] {
            let header = BitHeader { part, ..HEADER };
            assert_eq!(header.write(&mut Vec::new(), 0), Err(InvalidHeader::Text { field: 'b' }));
        }
    }

    proptest! {
        #[test]
        fn headers_are_read_back(design in "[ -~]{0,60}", part in "[ -~]{0,60}", n in 0usize..9) {
            let header = BitHeader { design: &design, part: &part, ..HEADER };
            let mut out = Vec::new();
            header.write(&mut out, n as u32).expect("printable");
            out.resize(out.len() + n, 7);
            let (read, data) = BitHeader::parse(&out).expect("just written");
            prop_assert_eq!(read, header);
            prop_assert_eq!(data.len(), n);
        }
    }
}
