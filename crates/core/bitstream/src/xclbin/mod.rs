//! The container of a role: an xclbin (axlf), which XRT loads whole.
//!
//! XRT believes what such a file says: it crashes on some that are damaged and takes others that
//! describe nothing. So the container is read here first, without trusting a length in it, and
//! only what passes is given to the library.
//!
//! ```text
//!   0  "xclbin2\0" … signature, key block, id
//! 304  length, mode, platform, UUID, number of sections
//! 456  40 bytes a section: kind, name, offset, size
//!      sections, each at a multiple of 8:
//!        BITSTREAM          the .bit of the whole role
//!        EMBEDDED_METADATA  the kernels, as XML
//!        IP_LAYOUT          what of them is at which address
//!        MEM_TOPOLOGY       memory banks      CONNECTIVITY  which kernel reaches which
//!        PARTITION_METADATA the interfaces of the platform, as a device tree
//! ```
//!
//! All figures are those of `xclbin.h` of XRT 2.13. Nothing is copied but entries of tables whose
//! counts were held against the bytes that are there, so that reading takes less memory than the
//! file.

mod check;
mod error;
mod kernels;
mod layout;
mod partition;
mod write;

use uuid::Uuid;

pub use check::{ExpectedRole, WrongRole, check_role, named};
pub use error::InvalidXclbin;
pub use kernels::Kernel;
pub use layout::{Control, Ip, Memory};
pub use write::TestRole;

use layout::{Connection, Section};

/// First bytes of every xclbin.
const MAGIC: &[u8; 8] = b"xclbin2\0";
/// Where the header begins.
const HEADER: usize = 304;
/// Where the section headers begin.
const SECTIONS: usize = 456;
/// Bytes of a section header.
const SECTION_HEADER: usize = 40;
/// Sections at most. Files of XRT's tools have under 20; XRT itself would take 65,536 and reads
/// behind the end of the file for them.
pub const SECTIONS_MAX: usize = 64;
/// Bytes of the largest role that is read: 1 GiB, many times the configuration of any part. It
/// keeps all sums of offsets and sizes within 64 bits.
pub const ROLE_BYTES_MAX: usize = 1 << 30;

/// Kinds of sections, as `xclbin.h` numbers them.
mod kind {
    pub(super) const BITSTREAM: u32 = 0;
    pub(super) const EMBEDDED_METADATA: u32 = 2;
    pub(super) const MEM_TOPOLOGY: u32 = 6;
    pub(super) const CONNECTIVITY: u32 = 7;
    pub(super) const IP_LAYOUT: u32 = 8;
    pub(super) const PARTITION_METADATA: u32 = 20;
    /// The highest that XRT 2.13 knows.
    pub(super) const LAST: u32 = 31;
}

/// For what a role was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A region of a platform, loaded through the configuration port.
    Partial,
    /// The emulation of hardware.
    HardwareEmulation,
}

/// A role's container, read and found consistent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xclbin<'a> {
    /// Identity of the role; never zero.
    pub uuid: Uuid,
    /// The interfaces of the platform that it was built against, which the card has to have; none where the tools
    /// wrote none. XRT's driver reads them in the same place. The UUID in the header is another: that of the
    /// platform's feature ROM.
    pub interfaces: Vec<Uuid>,
    /// The platform's name.
    pub platform: &'a str,
    /// For what it was built.
    pub mode: Mode,
    /// The section BITSTREAM: a `.bit` file, not looked into.
    pub bitstream: &'a [u8],
    /// Blocks, sorted by address.
    pub ips: Vec<Ip<'a>>,
    pub memories: Vec<Memory<'a>>,
    /// The kernels of the metadata; each has an IP.
    pub kernels: Vec<Kernel>,
}

impl<'a> Xclbin<'a> {
    /// Reads a container. Any bytes give a value or an error.
    ///
    /// # Errors
    ///
    /// [`InvalidXclbin`] with the first part of the container that is invalid.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, InvalidXclbin> {
        let header = Header::parse(bytes)?;
        let sections = sections(bytes, header.sections)?;
        let find = |kind, name| find(bytes, &sections, kind, name);
        let bitstream = find(kind::BITSTREAM, "BITSTREAM")?;
        if bitstream.is_empty() {
            return Err(InvalidXclbin::Empty { section: "BITSTREAM" });
        }
        let memories = Memory::parse(find(kind::MEM_TOPOLOGY, "MEM_TOPOLOGY")?)?;
        let ips = Ip::parse(find(kind::IP_LAYOUT, "IP_LAYOUT")?)?;
        let connections = Connection::parse(find(kind::CONNECTIVITY, "CONNECTIVITY")?)?;
        for (index, connection) in connections.iter().enumerate() {
            connection.check(index, ips.len(), memories.len())?;
        }
        let kernels = kernels::parse(find(kind::EMBEDDED_METADATA, "EMBEDDED_METADATA")?)?;
        kernels::check(&kernels, &ips)?;
        let interfaces = match find(kind::PARTITION_METADATA, "PARTITION_METADATA") {
            Err(InvalidXclbin::Missing { .. }) => Vec::new(),
            section => partition::interfaces(section?)?,
        };
        let Header { uuid, platform, mode, .. } = header;
        Ok(Self { uuid, interfaces, platform, mode, bitstream, ips, memories, kernels })
    }

    /// The kernel of the instance `name`, as `kernel:instance`.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.is(name))
    }

    /// The IP `name`, as `kernel:instance`.
    pub fn ip(&self, name: &str) -> Option<&Ip<'a>> {
        self.ips.iter().find(|ip| ip.name == name)
    }
}

/// The header, its lengths held against the file.
struct Header<'a> {
    uuid: Uuid,
    platform: &'a str,
    mode: Mode,
    sections: usize,
}

impl<'a> Header<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, InvalidXclbin> {
        if bytes.len() > ROLE_BYTES_MAX {
            return Err(InvalidXclbin::TooLarge { bytes: bytes.len() });
        }
        if !bytes.starts_with(MAGIC) {
            return Err(InvalidXclbin::Magic);
        }
        let Some(header) = bytes.get(HEADER..SECTIONS) else {
            return Err(InvalidXclbin::Short { bytes: bytes.len() });
        };
        let said = u64_at(header, 0);
        if said != bytes.len() as u64 {
            return Err(InvalidXclbin::Length { said, actual: bytes.len() });
        }
        let uuid = uuid_at(header, 112);
        if uuid.is_nil() {
            return Err(InvalidXclbin::NoUuid);
        }
        let sections = u32_at(header, 144) as usize;
        if !(1..=SECTIONS_MAX).contains(&sections) {
            return Err(InvalidXclbin::SectionCount { sections });
        }
        Ok(Self {
            uuid,
            platform: layout::text(&header[48..112])
                .ok_or(InvalidXclbin::Text { what: "the platform's name" })?,
            mode: mode(u16::from_le_bytes([header[28], header[29]]))?,
            sections,
        })
    }
}

/// Mode of an xclbin. XRT treats the others differently: a flat one it takes without loading it, and the emulation
/// of software has no registers.
const fn mode(number: u16) -> Result<Mode, InvalidXclbin> {
    match number {
        1 => Ok(Mode::Partial),
        4 => Ok(Mode::HardwareEmulation),
        mode => Err(InvalidXclbin::Mode { mode }),
    }
}

fn sections(bytes: &[u8], count: usize) -> Result<Vec<Section>, InvalidXclbin> {
    // At most 64 of 40 bytes.
    let end = SECTIONS + count * SECTION_HEADER;
    let Some(headers) = bytes.get(SECTIONS..end) else {
        return Err(InvalidXclbin::SectionsCut { sections: count, bytes: bytes.len() });
    };
    let mut sections = Vec::with_capacity(count);
    for (index, header) in headers.chunks_exact(SECTION_HEADER).enumerate() {
        sections.push(Section::parse(index, header, end, bytes.len())?);
    }
    check_overlaps(&sections)?;
    Ok(sections)
}

/// Sections that share bytes are two descriptions of one thing: which of them counts, each reader
/// would decide for itself.
fn check_overlaps(sections: &[Section]) -> Result<(), InvalidXclbin> {
    let mut sorted: Vec<_> = sections.iter().filter(|section| section.size > 0).collect();
    sorted.sort_unstable_by_key(|section| section.offset);
    for pair in sorted.windows(2) {
        if pair[0].offset + pair[0].size > pair[1].offset {
            let (first, second) = (pair[0].index, pair[1].index);
            return Err(InvalidXclbin::Overlap { first, second });
        }
    }
    Ok(())
}

fn find<'a>(
    bytes: &'a [u8],
    sections: &[Section],
    kind: u32,
    section: &'static str,
) -> Result<&'a [u8], InvalidXclbin> {
    let mut found = sections.iter().filter(|candidate| candidate.kind == kind);
    match (found.next(), found.next()) {
        (None, _) => Err(InvalidXclbin::Missing { section }),
        (Some(_), Some(_)) => Err(InvalidXclbin::Twice { section }),
        // Held against the file's length when it was read.
        (Some(only), None) => Ok(&bytes[only.offset..only.offset + only.size]),
    }
}

/// Callers have made sure that the bytes are there.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn uuid_at(bytes: &[u8], at: usize) -> Uuid {
    Uuid::from_bytes(std::array::from_fn(|i| bytes[at + i]))
}

#[cfg(test)]
mod tests;
