//! The tables of an xclbin: section headers, IPs, memories, connections.

use super::{InvalidXclbin, kind, u32_at, u64_at};

/// Where a section is. Offset and size were held against the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section {
    pub(super) index: usize,
    pub(super) kind: u32,
    pub(super) offset: usize,
    pub(super) size: usize,
}

impl Section {
    /// `header` has 40 bytes; the section has to lie between `first` and `end`.
    pub(super) fn parse(
        index: usize,
        header: &[u8],
        first: usize,
        end: usize,
    ) -> Result<Self, InvalidXclbin> {
        let kind = u32_at(header, 0);
        if kind > kind::LAST {
            return Err(InvalidXclbin::Kind { index, kind });
        }
        let (offset, size) = (u64_at(header, 24), u64_at(header, 32));
        let is_inside = offset.is_multiple_of(8)
            && offset >= first as u64
            && offset.checked_add(size).is_some_and(|last| last <= end as u64);
        if !is_inside {
            return Err(InvalidXclbin::Outside { index, offset, size });
        }
        // Both are at most the file's length.
        Ok(Self { index, kind, offset: offset as usize, size: size as usize })
    }
}

/// Way in which a kernel is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Control register, one run after the other. XRT gives exclusive register access to
    /// these.
    HandShake,
    /// The same, runs overlapping.
    Chain,
    /// No control: XRT opens no kernel of these.
    None,
    Other(u8),
}

/// Block at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ip<'a> {
    pub name: &'a str,
    /// Whether it is a kernel; else something of the platform.
    pub is_kernel: bool,
    /// Way in which it is started.
    pub control: Control,
    /// Byte address of its first register.
    pub base: u64,
}

impl<'a> Ip<'a> {
    const BYTES: usize = 80;

    pub(super) fn parse(section: &'a [u8]) -> Result<Vec<Self>, InvalidXclbin> {
        let ips = entries(section, "IP_LAYOUT", 8, Self::BYTES, Self::entry)?;
        let mut names: Vec<&str> = ips.iter().map(|ip| ip.name).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(InvalidXclbin::IpTwice { name: pair[0].to_owned() }),
            None => Ok(ips),
        }
    }

    fn entry(bytes: &'a [u8]) -> Result<Self, InvalidXclbin> {
        let control = match (u32_at(bytes, 4) >> 8) as u8 {
            0 => Control::HandShake,
            1 => Control::Chain,
            2 => Control::None,
            other => Control::Other(other),
        };
        let name = text(&bytes[16..80]).ok_or(InvalidXclbin::Text { what: "the name of an IP" })?;
        Ok(Self { name, is_kernel: u32_at(bytes, 0) == 1, control, base: u64_at(bytes, 8) })
    }
}

/// A memory bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory<'a> {
    /// Its name, such as `DDR[0]`.
    pub tag: &'a str,
    /// Whether the role uses it.
    pub used: bool,
    /// Its size in KiB.
    pub kibibytes: u64,
    /// Its first device address.
    pub base: u64,
}

impl<'a> Memory<'a> {
    const BYTES: usize = 40;

    pub(super) fn parse(section: &'a [u8]) -> Result<Vec<Self>, InvalidXclbin> {
        entries(section, "MEM_TOPOLOGY", 8, Self::BYTES, Self::entry)
    }

    fn entry(bytes: &'a [u8]) -> Result<Self, InvalidXclbin> {
        let tag = text(&bytes[24..40]).ok_or(InvalidXclbin::Text { what: "a memory's name" })?;
        Ok(Self { tag, used: bytes[1] != 0, kibibytes: u64_at(bytes, 8), base: u64_at(bytes, 16) })
    }
}

/// Connection of an IP's argument to a memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connection {
    argument: i32,
    ip: i32,
    memory: i32,
}

impl Connection {
    const BYTES: usize = 12;

    pub(super) fn parse(section: &[u8]) -> Result<Vec<Self>, InvalidXclbin> {
        entries(section, "CONNECTIVITY", 4, Self::BYTES, |bytes| {
            Ok(Self {
                argument: u32_at(bytes, 0).cast_signed(),
                ip: u32_at(bytes, 4).cast_signed(),
                memory: u32_at(bytes, 8).cast_signed(),
            })
        })
    }

    pub(super) fn check(
        &self,
        index: usize,
        ips: usize,
        memories: usize,
    ) -> Result<(), InvalidXclbin> {
        /// Arguments of a kernel at most; XRT keeps a bit set of that many.
        const ARGUMENTS_MAX: usize = 128;
        let ends = [
            ("argument", self.argument, ARGUMENTS_MAX),
            ("IP", self.ip, ips),
            ("memory", self.memory, memories),
        ];
        match ends
            .iter()
            .find(|(_, named, there)| !usize::try_from(*named).is_ok_and(|n| n < *there))
        {
            Some(&(what, named, there)) => {
                Err(InvalidXclbin::Connection { index, what, named, there })
            }
            None => Ok(()),
        }
    }
}

/// The entries of a table that begins with their number; at least one. `read` gets `entry` bytes.
fn entries<'a, T>(
    section: &'a [u8],
    name: &'static str,
    first: usize,
    entry: usize,
    read: impl Fn(&'a [u8]) -> Result<T, InvalidXclbin>,
) -> Result<Vec<T>, InvalidXclbin> {
    let bytes = section.len();
    if bytes < first {
        return Err(InvalidXclbin::Count { section: name, count: 0, bytes });
    }
    let count = u32_at(section, 0).cast_signed();
    let Some(fits) =
        usize::try_from(count).ok().filter(|n| (1..=(bytes - first) / entry).contains(n))
    else {
        return Err(InvalidXclbin::Count { section: name, count, bytes });
    };
    // Exactly as many as there are: a list that grows takes a multiple of what it holds.
    let mut all = Vec::with_capacity(fits);
    for bytes in section[first..].chunks_exact(entry).take(fits) {
        all.push(read(bytes)?);
    }
    Ok(all)
}

/// A text that ends with a NUL; not empty.
pub(super) fn text(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0)?;
    let text = &field[..end];
    let is_text = !text.is_empty() && text.iter().all(u8::is_ascii_graphic);
    if is_text { str::from_utf8(text).ok() } else { None }
}
