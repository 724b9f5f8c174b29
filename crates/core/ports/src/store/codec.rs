//! Length-prefixed fields, as snapshots and journals hold them.
//!
//! Both files end in a digest that is checked before anything is parsed, so the reader's job is
//! only to never read past the end: every read is an `Option`, and none of them allocates.

/// Appends a field: its length as four bytes, least significant first, then the bytes.
///
/// # Panics
/// If the field has 4 GiB or more; keys and values are bounded far below by
/// [`KEY_BYTES_MAX`](super::KEY_BYTES_MAX) and [`RECORD_BYTES_MAX`](super::RECORD_BYTES_MAX).
pub fn put_field(bytes: &mut Vec<u8>, field: &[u8]) {
    let length = u32::try_from(field.len()).expect("keys and values are bounded to kilobytes");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(field);
}

/// Reads what [`put_field`] and `to_le_bytes` wrote, front to back.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the first of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `count` bytes, or `None` if there are fewer.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// The next four bytes, least significant first.
    pub fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// The next eight bytes, least significant first.
    pub fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// The next field.
    pub fn field(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// The next field as text; `None` also if it is not UTF-8.
    pub fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.field()?).ok()
    }

    /// Bytes not read yet.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_in_order() {
        let mut bytes = vec![7];
        put_field(&mut bytes, b"key");
        put_field(&mut bytes, b"");
        bytes.extend_from_slice(&0x0102_0304_0506_0708_u64.to_le_bytes());
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.u8(), Some(7));
        assert_eq!(reader.text(), Some("key"));
        assert_eq!(reader.field(), Some(&b""[..]));
        assert_eq!(reader.u64(), Some(0x0102_0304_0506_0708));
        assert_eq!(reader.remaining(), 0);
        assert_eq!(reader.u8(), None);
    }

    #[test]
    fn a_length_past_the_end_is_refused() {
        let mut bytes = Vec::new();
        put_field(&mut bytes, b"four");
        for cut in 0..bytes.len() {
            assert_eq!(Reader::new(&bytes[..cut]).field(), None, "{cut}");
        }
        bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Reader::new(&bytes).field(), None);
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let mut bytes = Vec::new();
        put_field(&mut bytes, &[0xff, 0xfe]);
        assert_eq!(Reader::new(&bytes).text(), None);
    }
}
