//! The memcached protocol over UDP, as far as NTs in the path need it: which keys a request reads or
//! writes, when what it writes ends, and what an answer holds. (memcached's `doc/protocol.txt`.)
//!
//! A server that rejects the line of a command takes what was to be its data for further commands. So a
//! line counts as read only where no server rejects it; everything else is [`MemcachedRequest::Unknown`].

use std::ops::Range;
use std::time::Duration;

/// Request id, sequence number, number of datagrams, reserved: two bytes each.
pub(crate) const HEADER_BYTES: usize = 8;
pub(crate) const KEY_BYTES_MAX: usize = 250;
/// Longest number of seconds that counts from now; larger ones are seconds since 1970.
const DELAY_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;
/// Longest opaque token of a meta command.
const TOKEN_BYTES_MAX: usize = 32;
/// Most words of a meta command that a server takes.
const META_WORDS_MAX: usize = 20;

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

/// Effect of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MemcachedRequest<'a> {
    /// `get` with at least one key.
    Get(Keys<'a>),
    /// Changes its keys, or when they end.
    Write(KeyWrite<'a>),
    /// Ends all items, after this time.
    Flush {
        delay: Duration,
        is_answered: bool,
    },
    Harmless,
    /// May change anything at any time: the binary protocol, or what is not understood.
    Unknown,
}

/// A change of some keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyWrite<'a> {
    pub(crate) keys: Keys<'a>,
    pub(crate) expiry: Expiry,
    /// Whether an answer of success says that the key has this expiry now.
    pub(crate) is_confirmed: bool,
    /// Whether there will be an answer.
    pub(crate) is_answered: bool,
}

/// When an item ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    Kept,
    /// It does not.
    Never,
    /// After this time.
    After(Duration),
    /// At some time, by a clock that is not known here.
    Unknown,
}

impl Expiry {
    /// Reads seconds: from now up to 30 days, since 1970 beyond. Negative ones are over.
    fn read(word: &[u8]) -> Option<Self> {
        let seconds: i32 = signed(word)?;
        Some(match i64::from(seconds) {
            0 => Self::Never,
            ..0 => Self::After(Duration::ZERO),
            seconds @ 1..=DELAY_SECONDS_MAX => Self::After(Duration::from_secs(seconds as u64)),
            _ => Self::Unknown,
        })
    }
}

/// The keys of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys<'a>(&'a [u8]);

impl<'a> Keys<'a> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        words(self.0)
    }

    /// The key, where there is one only.
    pub(crate) fn single(&self) -> Option<&'a [u8]> {
        let mut keys = self.iter();
        match (keys.next(), keys.next()) {
            (Some(key), None) => Some(key),
            _ => None,
        }
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

/// The first word of a line, and the others.
fn split_word(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    line.split_at(end)
}

fn is_key(word: &[u8]) -> bool {
    !word.is_empty() && word.len() <= KEY_BYTES_MAX && !word.iter().any(u8::is_ascii_control)
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    let is_plain = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(word).ok().filter(|_| is_plain)?.parse().ok()
}

fn signed(word: &[u8]) -> Option<i32> {
    match word.strip_prefix(b"-") {
        Some(digits) => number::<i32>(digits).map(|number| -number),
        None => number(word),
    }
}

/// Reads the text of a request, command by command. Of the first fragment of a packet some bytes are missing at
/// its end: they may be data of a command, and no command. Nothing follows what is unknown.
pub(crate) fn requests(
    text: &[u8],
    missing_bytes: usize,
) -> impl Iterator<Item = MemcachedRequest<'_>> {
    // An empty datagram holds an unknown request too.
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let Some((request, after)) = command(text, missing_bytes) else {
            return Some(MemcachedRequest::Unknown);
        };
        rest = Some(after).filter(|after| !after.is_empty());
        Some(request)
    })
}

/// Reads the text of a request with one command; with several it is unknown.
pub(crate) fn request(text: &[u8]) -> MemcachedRequest<'_> {
    let mut all = requests(text, 0);
    match (all.next(), all.next()) {
        (Some(request), None) => request,
        _ => MemcachedRequest::Unknown,
    }
}

/// The first command, and what follows it. `None` where it is not understood.
fn command(text: &[u8], missing_bytes: usize) -> Option<(MemcachedRequest<'_>, &[u8])> {
    let (line, rest) = split_line(text)?;
    // For the server a zero byte ends a line.
    if line.contains(&0) {
        return None;
    }
    let (name, arguments) = split_word(line);
    let (first, last) = (words(arguments).next(), words(arguments).last());
    let is_answered = last != Some(b"noreply");
    let request = match name {
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => {
            return storage(name, arguments, LineRest { text: rest, missing_bytes });
        }
        b"ms" => return meta_set(arguments, LineRest { text: rest, missing_bytes }),
        _ if missing_bytes > 0 => return None,
        b"get" if first.is_some() && words(arguments).all(is_key) => {
            MemcachedRequest::Get(Keys(arguments))
        }
        b"get" | b"gets" | b"mn" | b"me" | b"stats" | b"version" | b"verbosity" | b"quit" => {
            MemcachedRequest::Harmless
        }
        b"mg" | b"md" | b"ma" => meta(name, arguments)?,
        b"delete" | b"incr" | b"decr" => {
            let (keys, _) = split_key(arguments);
            written(keys, Expiry::Kept, false, is_answered)
        }
        b"touch" => {
            let (keys, others) = split_key(arguments);
            match words(others).next().map(Expiry::read) {
                Some(expiry) => written(keys, expiry?, true, is_answered),
                None => MemcachedRequest::Harmless,
            }
        }
        b"gat" | b"gats" => {
            let (expiry, keys) = split_key(arguments);
            written(keys, Expiry::read(words(expiry).next()?)?, false, true)
        }
        b"flush_all" => {
            let delay = first.filter(|first| *first != b"noreply").map(Expiry::read);
            let delay = match delay {
                None => Duration::ZERO,
                Some(expiry) => match expiry? {
                    Expiry::After(delay) => delay,
                    Expiry::Never => Duration::ZERO,
                    Expiry::Unknown | Expiry::Kept => return None,
                },
            };
            MemcachedRequest::Flush { delay, is_answered }
        }
        _ => return None,
    };
    Some((request, rest))
}

/// The first of some words, and the others.
fn split_key(arguments: &[u8]) -> (&[u8], &[u8]) {
    let start = arguments.iter().position(|byte| *byte != b' ').unwrap_or(arguments.len());
    split_word(&arguments[start..])
}

/// A command without data that changes keys. No server knows a key that is none.
fn written(
    keys: &[u8],
    expiry: Expiry,
    is_confirmed: bool,
    is_answered: bool,
) -> MemcachedRequest<'_> {
    if !words(keys).any(is_key) {
        return MemcachedRequest::Harmless;
    }
    MemcachedRequest::Write(KeyWrite { keys: Keys(keys), expiry, is_confirmed, is_answered })
}

/// Bytes after a line, as far as they are here.
#[derive(Debug, Clone, Copy)]
struct LineRest<'a> {
    text: &'a [u8],
    missing_bytes: usize,
}

impl<'a> LineRest<'a> {
    /// The bytes behind the data of a command. What is missing has to be data.
    fn after_data(self, bytes: u32) -> Option<&'a [u8]> {
        let bytes = bytes as usize;
        if self.missing_bytes > 0 {
            let all = self.text.len() + self.missing_bytes;
            return (all == bytes + 2).then_some(&[]);
        }
        self.text.get(bytes..)?.strip_prefix(b"\r\n")
    }
}

/// `set KEY FLAGS EXPTIME BYTES [noreply]` and its data; `cas` has a number before the last word.
fn storage<'a>(
    name: &[u8],
    arguments: &'a [u8],
    rest: LineRest<'a>,
) -> Option<(MemcachedRequest<'a>, &'a [u8])> {
    let mut others = words(arguments);
    let (key, flags, expiry, bytes) =
        (others.next()?, others.next()?, others.next()?, others.next()?);
    let bytes: u32 = number(bytes).filter(|bytes| i32::try_from(*bytes).is_ok())?;
    let (_, expiry) = (number::<u32>(flags)?, Expiry::read(expiry)?);
    if name == b"cas" {
        number::<u64>(others.next()?)?;
    }
    let last = others.next();
    if !is_key(key) || others.next().is_some() {
        return None;
    }
    let after = rest.after_data(bytes)?;
    let keeps = matches!(name, b"append" | b"prepend");
    let write = KeyWrite {
        keys: Keys(key),
        expiry: if keeps { Expiry::Kept } else { expiry },
        is_confirmed: !keeps,
        is_answered: last != Some(b"noreply"),
    };
    Some((MemcachedRequest::Write(write), after))
}

/// Meaning of a meta command's flags.
struct MetaFlags {
    expiry: Expiry,
    /// The command is conditional, or in another mode than its usual one.
    is_special: bool,
    is_quiet: bool,
    is_encoded: bool,
}

/// Reads the flags of a meta command. `None` where a server may reject them.
fn meta_flags<'a>(flags: impl Iterator<Item = &'a [u8]>) -> Option<MetaFlags> {
    let mut read =
        MetaFlags { expiry: Expiry::Kept, is_special: false, is_quiet: false, is_encoded: false };
    let mut seen = 0_u128;
    for (count, flag) in flags.enumerate() {
        let (letter, token) = flag.split_first()?;
        let bit = 1_u128.checked_shl(u32::from(*letter)).filter(|_| letter.is_ascii())?;
        if seen & bit != 0 || count >= META_WORDS_MAX {
            return None;
        }
        seen |= bit;
        match letter {
            b'c' | b'f' | b'h' | b'k' | b'l' | b's' | b't' | b'u' | b'v' if token.is_empty() => {}
            b'b' if token.is_empty() => read.is_encoded = true,
            b'q' if token.is_empty() => read.is_quiet = true,
            b'I' if token.is_empty() => read.is_special = true,
            b'T' | b'N' => {
                read.expiry = match (read.expiry, Expiry::read(token)?) {
                    (Expiry::Kept, expiry) => expiry,
                    _ => Expiry::Unknown,
                };
            }
            b'R' => drop(Expiry::read(token)?),
            b'F' => drop(number::<u32>(token)?),
            b'C' | b'D' | b'J' => {
                number::<u64>(token)?;
                read.is_special = true;
            }
            b'M' if token.len() == 1 => read.is_special = true,
            b'O' | b'P' | b'L' if (1..=TOKEN_BYTES_MAX).contains(&token.len()) => {}
            _ => return None,
        }
    }
    Some(read)
}

/// `mg`, `md` and `ma`: a key and flags.
fn meta<'a>(name: &[u8], arguments: &'a [u8]) -> Option<MemcachedRequest<'a>> {
    let (key, flags) = split_key(arguments);
    if !is_key(key) {
        return None;
    }
    let flags = meta_flags(words(flags))?;
    // Without these two flags the first one only reads.
    if name == b"mg" && flags.expiry == Expiry::Kept {
        return Some(MemcachedRequest::Harmless);
    }
    let write = written(key, flags.expiry, false, !flags.is_quiet);
    Some(write).filter(|_| !flags.is_encoded)
}

/// `ms KEY BYTES FLAGS` and its data.
fn meta_set<'a>(
    arguments: &'a [u8],
    rest: LineRest<'a>,
) -> Option<(MemcachedRequest<'a>, &'a [u8])> {
    let (key, others) = split_key(arguments);
    let mut others = words(others);
    let bytes: u32 = number(others.next()?).filter(|bytes| i32::try_from(*bytes).is_ok())?;
    let flags = meta_flags(others)?;
    if !is_key(key) || flags.is_encoded {
        return None;
    }
    let after = rest.after_data(bytes)?;
    let write = KeyWrite {
        keys: Keys(key),
        // Without the flag it never ends, but for modes that change what is there.
        expiry: match flags.expiry {
            Expiry::Kept if !flags.is_special => Expiry::Never,
            expiry => expiry,
        },
        is_confirmed: !flags.is_special,
        is_answered: !flags.is_quiet,
    };
    Some((MemcachedRequest::Write(write), after))
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
    let (word, _) = split_word(line);
    matches!(word, b"STORED" | b"DELETED" | b"TOUCHED" | b"OK" | b"HD" | b"VA" | b"VALUE")
        || number::<u64>(line).is_some()
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
mod tests;
