//! Faults of a container.

use super::{ROLE_BYTES_MAX, SECTIONS_MAX};

/// Fault of an xclbin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidXclbin {
    /// Larger than any role.
    #[error("the file has {bytes} bytes; a role has at most {ROLE_BYTES_MAX}")]
    TooLarge { bytes: usize },
    /// It does not begin like one.
    #[error("the file does not begin like an xclbin (\"xclbin2\"); give what v++ links")]
    Magic,
    /// It ends in its header.
    #[error("the file has {bytes} bytes, less than the header of an xclbin; it is cut")]
    Short { bytes: usize },
    /// Its header says another length.
    #[error("the header says {said} bytes, the file has {actual}; it is cut or damaged")]
    Length {
        /// Length that it states.
        said: u64,
        /// Length that it has.
        actual: usize,
    },
    /// A device tree that is none.
    #[error(
        "PARTITION_METADATA is not a device tree (at byte {at}: {problem}); link the role again"
    )]
    Partition {
        /// Where in the section.
        at: usize,
        problem: &'static str,
    },
    #[error("the UUID is zero; link the role again, XRT tells roles apart by it")]
    NoUuid,
    /// A mode that cannot be loaded.
    #[error("the role was built for mode {mode}; 1 (pr) and 4 (hw_emu) can be loaded")]
    Mode { mode: u16 },
    /// A text without an end, or not printable.
    #[error("{what} is not text: printable ASCII that ends with a NUL is needed")]
    Text { what: &'static str },
    /// None or too many sections.
    #[error("the header says {sections} sections; 1 to {SECTIONS_MAX} are allowed")]
    SectionCount { sections: usize },
    /// The file ends in its section headers.
    #[error("the file of {bytes} bytes ends before its {sections} section headers do; it is cut")]
    SectionsCut {
        /// Number of sections that it should have.
        sections: usize,
        /// Bytes of the file.
        bytes: usize,
    },
    /// A kind that XRT does not know.
    #[error("section {index} is of kind {kind}, which XRT does not know")]
    Kind {
        /// Number of the section, from 0.
        index: usize,
        kind: u32,
    },
    /// A section outside of the file.
    #[error(
        "section {index} is {size} bytes at {offset}; that is not within the file, behind its headers, \
         at a multiple of 8"
    )]
    Outside {
        /// Number of the section, from 0.
        index: usize,
        /// Where it says it is.
        offset: u64,
        /// Size that it states.
        size: u64,
    },
    /// Two sections that share bytes.
    #[error("sections {first} and {second} share bytes")]
    Overlap { first: usize, second: usize },
    /// A section that is needed.
    #[error("there is no section {section}")]
    Missing { section: &'static str },
    /// A section that may be there once.
    #[error("duplicate section {section}")]
    Twice { section: &'static str },
    /// A section without content.
    #[error("section {section} is empty")]
    Empty { section: &'static str },
    /// A table that does not fit its section.
    #[error(
        "{section} says {count} entries, its {bytes} bytes have room for fewer, or it says none"
    )]
    Count {
        section: &'static str,
        /// Number that it states.
        count: i32,
        bytes: usize,
    },
    /// A connection to something that is not there.
    #[error("connection {index} names {what} {named}; there are {there}")]
    Connection {
        /// Number of the connection, from 0.
        index: usize,
        /// `IP`, `memory` or `argument`.
        what: &'static str,
        /// Index that it names.
        named: i32,
        /// Number of entries.
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
    Xml { at: u64, problem: String },
    /// Metadata without kernels.
    #[error("EMBEDDED_METADATA describes no kernel")]
    NoKernels,
    /// A kernel that the layout does not have, or at another address.
    #[error("the kernel {kernel} is at {base:#x} in EMBEDDED_METADATA, but not in IP_LAYOUT")]
    Kernel {
        /// Kernel, as `kernel:instance`.
        kernel: String,
        base: u64,
    },
}
