//! The memcached protocol over UDP, as far as NTs in the path need it: which keys a request reads or
//! writes, and what an answer holds. (memcached's `doc/protocol.txt`, sections "UDP protocol" and
//! "Retrieval command".)

use std::ops::Range;

/// Request id, sequence number, number of datagrams, reserved: two bytes each.
pub(crate) const HEADER_BYTES: usize = 8;
/// Longest key.
pub(crate) const KEY_BYTES_MAX: usize = 250;

/// The header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) request_id: u16,
    pub(crate) sequence: u16,
    pub(crate) datagrams: u16,
}

impl Header {
    pub(crate) fn read(datagram: &[u8]) -> Option<Self> {
        let word =
            |at: usize| Some(u16::from_be_bytes([*datagram.get(at)?, *datagram.get(at + 1)?]));
        word(6)?;
        Some(Self { request_id: word(0)?, sequence: word(2)?, datagrams: word(4)? })
    }

    /// Whether the datagram is the whole message.
    pub(crate) fn is_whole(self) -> bool {
        (self.sequence, self.datagrams) == (0, 1)
    }

    pub(crate) fn write(self, out: &mut [u8]) {
        let words = [self.request_id, self.sequence, self.datagrams, 0];
        for (place, word) in out.chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
    }
}

/// What a request does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MemcachedRequest<'a> {
    /// `get` with at least one key.
    Get(Keys<'a>),
    /// Changes one key. Also says whether there will be an answer.
    Write { key: &'a [u8], is_answered: bool },
    /// Changes nothing.
    Harmless,
    /// May change anything: `flush_all`, the binary protocol, several commands at once, or what is
    /// not understood.
    Unknown,
}

/// The keys of a `get`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys<'a>(&'a [u8]);

impl<'a> Keys<'a> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        words(self.0)
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// A line and what follows its end, which is `\r\n` or `\n`.
fn split_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let line = &text[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), &text[end + 1..]))
}

fn is_key(word: &[u8]) -> bool {
    !word.is_empty() && word.len() <= KEY_BYTES_MAX && !word.iter().any(u8::is_ascii_control)
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    let is_plain = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(word).ok().filter(|_| is_plain)?.parse().ok()
}

/// Reads the text of a request. `is_whole` says whether all of it is here: the first fragment of a
/// packet holds the line of a command, but not all of its data.
pub(crate) fn request(text: &[u8], is_whole: bool) -> MemcachedRequest<'_> {
    let Some((line, rest)) = split_line(text) else { return MemcachedRequest::Unknown };
    let mut words = words(line);
    let Some(command) = words.next() else { return MemcachedRequest::Unknown };
    let arguments = &line[line.len().min(command.len() + 1)..];
    match command {
        b"get" if rest.is_empty() && is_whole => {
            let mut keys = words.peekable();
            let has_keys = keys.peek().is_some() && keys.all(is_key);
            if has_keys {
                MemcachedRequest::Get(Keys(arguments))
            } else {
                MemcachedRequest::Harmless
            }
        }
        b"get" | b"gets" | b"mg" | b"mn" | b"me" | b"stats" | b"version" | b"verbosity"
            if rest.is_empty() =>
        {
            MemcachedRequest::Harmless
        }
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => {
            storage(words, rest, is_whole)
        }
        b"delete" | b"incr" | b"decr" | b"touch" if rest.is_empty() => {
            let (key, last) = (words.next(), words.last());
            single(key, last)
        }
        _ => MemcachedRequest::Unknown,
    }
}

/// `set KEY FLAGS EXPTIME BYTES [UNIQUE] [noreply]`, its data, and nothing behind them.
fn storage<'a>(
    line: impl Iterator<Item = &'a [u8]>,
    rest: &[u8],
    is_whole: bool,
) -> MemcachedRequest<'a> {
    let mut words = [&[][..]; 6];
    let mut count = 0;
    for word in line {
        if let Some(place) = words.get_mut(count) {
            *place = word;
        }
        count += 1;
    }
    let bytes: Option<usize> = number(words[3]);
    let is_complete = bytes.is_some_and(|bytes| rest.len() == bytes.saturating_add(2));
    if !is_key(words[0]) || !(4..=6).contains(&count) || (is_whole && !is_complete) {
        return MemcachedRequest::Unknown;
    }
    MemcachedRequest::Write { key: words[0], is_answered: words[count - 1] != b"noreply" }
}

fn single<'a>(key: Option<&'a [u8]>, last: Option<&[u8]>) -> MemcachedRequest<'a> {
    match key.filter(|key| is_key(key)) {
        Some(key) => MemcachedRequest::Write { key, is_answered: last != Some(b"noreply") },
        None => MemcachedRequest::Harmless,
    }
}

/// A value in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemcachedAnswer<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) flags: u32,
    pub(crate) data: &'a [u8],
}

/// Reads the text of an answer to a `get` of one key. `None` for a miss and for anything else.
pub(crate) fn answer(text: &[u8]) -> Option<MemcachedAnswer<'_>> {
    let (line, rest) = split_line(text)?;
    let mut words = words(line);
    let (b"VALUE", key, flags, bytes, None) =
        (words.next()?, words.next()?, words.next()?, words.next()?, words.next())
    else {
        return None;
    };
    let bytes: usize = number(bytes)?;
    let data = rest.get(..bytes)?;
    let is_all = rest[bytes..] == *b"\r\nEND\r\n";
    (is_all && is_key(key)).then_some(MemcachedAnswer { key, flags: number(flags)?, data })
}

/// Whether an answer says that something was stored or deleted, as it was asked to be.
pub(crate) fn is_success(text: &[u8]) -> bool {
    let line = split_line(text).map_or(&[][..], |(line, _)| line);
    matches!(line, b"STORED" | b"DELETED" | b"TOUCHED" | b"OK") || number::<u64>(line).is_some()
}

/// Writes texts one after the other; remembers if one did not fit.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    length: Option<usize>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out, length: Some(0) }
    }

    pub(crate) fn put(&mut self, text: &[u8]) {
        self.length = self.length.and_then(|length| {
            let place: Range<usize> = length..length.checked_add(text.len())?;
            self.out.get_mut(place.clone())?.copy_from_slice(text);
            Some(place.end)
        });
    }

    pub(crate) fn put_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        let mut start = digits.len();
        let mut rest = number;
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.put(&digits[start..]);
    }

    /// The number of bytes written; `None` if a text did not fit.
    pub(crate) fn finish(self) -> Option<usize> {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let write = |key, is_answered| MemcachedRequest::Write { key, is_answered };
        for (text, expected) in [
            (&b"set k 0 0 5\r\nhello\r\n"[..], write(&b"k"[..], true)),
            (b"set k 0 0 5 noreply\r\nhello\r\n", write(b"k", false)),
            (b"cas k 1 2 3 4 noreply\r\nabc\r\n", write(b"k", false)),
            (b"delete k\r\n", write(b"k", true)),
            (b"delete k noreply\n", write(b"k", false)),
            (b"incr k 5\r\n", write(b"k", true)),
            (b"gets k\r\n", MemcachedRequest::Harmless),
            (b"get\r\n", MemcachedRequest::Harmless),
            (b"version\r\n", MemcachedRequest::Harmless),
            (b"set k 0 0 5\r\nhell\r\n", MemcachedRequest::Unknown),
            (b"set k 0 0 5\r\nhello\r\ndelete other\r\n", MemcachedRequest::Unknown),
            (b"get k\r\nset k 0 0 0\r\n\r\n", MemcachedRequest::Unknown),
            (b"flush_all\r\n", MemcachedRequest::Unknown),
            (b"ms k 2\r\nhi\r\n", MemcachedRequest::Unknown),
            (b"\x80\x01\x00\x00", MemcachedRequest::Unknown),
            (b"get k", MemcachedRequest::Unknown),
            (b"", MemcachedRequest::Unknown),
        ] {
            assert_eq!(request(text, true), expected, "{}", String::from_utf8_lossy(text));
        }
        let MemcachedRequest::Get(keys) = request(b"get  a bb \r\n", true) else { panic!() };
        assert!(keys.iter().eq([&b"a"[..], b"bb"]));
        assert_eq!(request(b"set k 0 0 5000\r\nhel", false), write(b"k", true));
        let long = [&b"get "[..], &[b'k'; 251], b"\r\n"].concat();
        assert_eq!(request(&long, true), MemcachedRequest::Harmless);
    }

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let whole = b"VALUE k 7 5\r\na\r\nb!\r\nEND\r\n";
        assert_eq!(answer(whole), Some(MemcachedAnswer { key: b"k", flags: 7, data: b"a\r\nb!" }));
        for cut in 0..whole.len() {
            assert_eq!(answer(&whole[..cut]), None);
        }
        assert_eq!(answer(b"END\r\n"), None);
        assert_eq!(answer(b"VALUE k 7 1 99\r\na\r\nEND\r\n"), None, "with a unique number");
        assert!(
            is_success(b"STORED\r\n") && is_success(b"12\r\n") && !is_success(b"NOT_FOUND\r\n")
        );
    }

    #[test]
    fn a_value_that_does_not_fit_is_not_written_in_part() {
        let mut room = [0; 10];
        let mut writer = Writer::new(&mut room);
        writer.put(b"n=");
        writer.put_number(u64::from(u32::MAX / 1_000));
        assert_eq!(writer.finish(), Some(9));
        assert_eq!(&room[..9], b"n=4294967");
        let mut writer = Writer::new(&mut room);
        writer.put_number(u64::MAX);
        writer.put(b"");
        assert_eq!(writer.finish(), None);
    }
}
