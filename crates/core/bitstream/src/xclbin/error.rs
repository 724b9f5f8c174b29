//! What is wrong with a container.

use super::{ROLE_BYTES_MAX, SECTIONS_MAX};

/// What is wrong with an xclbin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidXclbin {
    /// Larger than any role.
    #[error("the file has {bytes} bytes; a role has at most {ROLE_BYTES_MAX}")]
    TooLarge {
        /// How many.
        bytes: usize,
    },
    /// It does not begin like one.
    #[error("the file does not begin like an xclbin (\"xclbin2\"); give what v++ links")]
    Magic,
    /// It ends in its header.
    #[error("the file has {bytes} bytes, less than the header of an xclbin; it is cut")]
    Short {
        /// How many it has.
        bytes: usize,
    },
    /// Its header says another length.
    #[error("the header says {said} bytes, the file has {actual}; it is cut or damaged")]
    Length {
        /// What it says.
        said: u64,
        /// What it has.
        actual: usize,
    },
    /// A device tree that is none.
    #[error(
        "PARTITION_METADATA is not a device tree (at byte {at}: {problem}); link the role again"
    )]
    Partition {
        /// Where in the section.
        at: usize,
        /// What is wrong there.
        problem: &'static str,
    },
    /// No UUID.
    #[error("the UUID is zero; link the role again, XRT tells roles apart by it")]
    NoUuid,
    /// A mode that cannot be loaded.
    #[error("the role was built for mode {mode}; 1 (pr) and 4 (hw_emu) can be loaded")]
    Mode {
        /// Which.
        mode: u16,
    },
    /// A text without an end, or not printable.
    #[error("{what} is not text: printable ASCII that ends with a NUL is needed")]
    Text {
        /// Which.
        what: &'static str,
    },
    /// None or too many sections.
    #[error("the header says {sections} sections; 1 to {SECTIONS_MAX} are allowed")]
    SectionCount {
        /// How many.
        sections: usize,
    },
    /// The file ends in its section headers.
    #[error("the file of {bytes} bytes ends before its {sections} section headers do; it is cut")]
    SectionsCut {
        /// How many it should have.
        sections: usize,
        /// Bytes of the file.
        bytes: usize,
    },
    /// A kind that XRT does not know.
    #[error("section {index} is of kind {kind}, which XRT does not know")]
    Kind {
        /// Which section, from 0.
        index: usize,
        /// Its kind.
        kind: u32,
    },
    /// A section outside of the file.
    #[error(
        "section {index} is {size} bytes at {offset}; that is not within the file, behind its headers, \
         at a multiple of 8"
    )]
    Outside {
        /// Which section, from 0.
        index: usize,
        /// Where it says it is.
        offset: u64,
        /// How large it says it is.
        size: u64,
    },
    /// Two sections that share bytes.
    #[error("sections {first} and {second} share bytes")]
    Overlap {
        /// The first.
        first: usize,
        /// The other.
        second: usize,
    },
    /// A section that is needed.
    #[error("there is no section {section}")]
    Missing {
        /// Which.
        section: &'static str,
    },
    /// A section that may be there once.
    #[error("duplicate section {section}")]
    Twice {
        /// Which.
        section: &'static str,
    },
    /// A section without content.
    #[error("section {section} is empty")]
    Empty {
        /// Which.
        section: &'static str,
    },
    /// A table that does not fit its section.
    #[error(
        "{section} says {count} entries, its {bytes} bytes have room for fewer, or it says none"
    )]
    Count {
        /// Which.
        section: &'static str,
        /// What it says.
        count: i32,
        /// Its bytes.
        bytes: usize,
    },
    /// A connection to something that is not there.
    #[error("connection {index} names {what} {named}; there are {there}")]
    Connection {
        /// Which connection, from 0.
        index: usize,
        /// `IP`, `memory` or `argument`.
        what: &'static str,
        /// What it names.
        named: i32,
        /// How many there are.
        there: usize,
    },
    /// Two things at one place.
    #[error("duplicate kernel {name} in IP_LAYOUT")]
    IpTwice {
        /// The IP's name.
        name: String,
    },
    /// Metadata that is no XML.
    #[error("EMBEDDED_METADATA at byte {at} does not describe kernels as XML: {problem}")]
    Xml {
        /// Where.
        at: u64,
        /// What is wrong.
        problem: String,
    },
    /// Metadata without kernels.
    #[error("EMBEDDED_METADATA describes no kernel")]
    NoKernels,
    /// A kernel that the layout does not have, or at another address.
    #[error("the kernel {kernel} is at {base:#x} in EMBEDDED_METADATA, but not in IP_LAYOUT")]
    Kernel {
        /// Which, as `kernel:instance`.
        kernel: String,
        /// Where.
        base: u64,
    },
}
