//! The interfaces of a platform, out of the device tree in PARTITION_METADATA (Devicetree Specification, "Flattened
//! Devicetree (DTB) Format"): every property `interface_uuid`, a text of 32 hexadecimal digits. Numbers are big endian.

use uuid::Uuid;

use super::InvalidXclbin;

const MAGIC: u32 = 0xd00d_feed;
/// Bytes of the header.
const HEADER: usize = 40;
/// Nodes within each other at most; the vendor's files have three. It is no memory, only a bound.
const DEPTH_MAX: u32 = 16;
/// Interfaces of a platform at most; those that exist have two.
const INTERFACES_MAX: usize = 8;
const NAME: &[u8] = b"interface_uuid";
/// Bytes of a name or an interface at most. Without a bound, a file of properties that share one endless name would
/// take the square of its size.
const TEXT_MAX: usize = 64;

/// Tokens that begin parts of the tree's structure.
mod token {
    pub(super) const BEGIN: u32 = 1;
    pub(super) const END: u32 = 2;
    pub(super) const PROPERTY: u32 = 3;
    pub(super) const NOTHING: u32 = 4;
    pub(super) const LAST: u32 = 9;
}

const fn bad<T>(at: usize, problem: &'static str) -> Result<T, InvalidXclbin> {
    Err(InvalidXclbin::Partition { at, problem })
}

fn word(bytes: &[u8], at: usize) -> Result<u32, InvalidXclbin> {
    match at.checked_add(4).and_then(|end| bytes.get(at..end)) {
        Some(word) => Ok(u32::from_be_bytes([word[0], word[1], word[2], word[3]])),
        None => bad(at, "it ends there"),
    }
}

/// The text from there to its NUL.
fn text(bytes: &[u8], at: usize) -> Result<&[u8], InvalidXclbin> {
    let rest = bytes.get(at..).unwrap_or_default();
    let rest = &rest[..rest.len().min(TEXT_MAX)];
    match rest.iter().position(|byte| *byte == 0) {
        Some(end) => Ok(&rest[..end]),
        None => bad(at, "a text has no end"),
    }
}

/// All interfaces that the tree names.
pub(super) fn interfaces(section: &[u8]) -> Result<Vec<Uuid>, InvalidXclbin> {
    if word(section, 0)? != MAGIC {
        return bad(0, "it does not begin with d00dfeed");
    }
    let size = word(section, 4)? as usize;
    let Some(tree) = section.get(..size).filter(|tree| tree.len() >= HEADER) else {
        return bad(4, "it has another size than it says");
    };
    let names = word(tree, 12)? as usize;
    let (mut at, mut depth) = (word(tree, 8)? as usize, 0_u32);
    let mut found = Vec::new();
    loop {
        let (begin, token) = (at, word(tree, at)?);
        at += 4;
        match token {
            token::BEGIN if depth < DEPTH_MAX => {
                depth += 1;
                at += text(tree, at)?.len() + 1;
            }
            token::END if depth > 0 => depth -= 1,
            token::PROPERTY => {
                let (length, name) = (word(tree, at)? as usize, word(tree, at + 4)? as usize);
                let Some(value) = tree.get(at + 8..).and_then(|rest| rest.get(..length)) else {
                    return bad(at, "a property is longer than the tree");
                };
                if text(tree, names.saturating_add(name))? == NAME {
                    if found.len() == INTERFACES_MAX {
                        return bad(begin, "it has too many interfaces");
                    }
                    found.push(interface(value, at + 8)?);
                }
                at += 8 + length;
            }
            token::NOTHING => {}
            token::LAST if depth == 0 => return Ok(found),
            _ => return bad(begin, "a node does not begin or end where it has to"),
        }
        at = at.next_multiple_of(4);
    }
}

fn interface(value: &[u8], at: usize) -> Result<Uuid, InvalidXclbin> {
    let digits = text(value, 0)?;
    match Uuid::try_parse_ascii(digits) {
        Ok(uuid) => Ok(uuid),
        Err(_) => bad(at, "an interface is not a UUID"),
    }
}

/// A tree with one interface, as the vendor's tools write it: `/interfaces/@plp/interface_uuid`.
pub(super) fn write(interface: Uuid) -> Vec<u8> {
    let value = format!("{}\0", interface.simple());
    let mut tree = Vec::new();
    let mut put = |word: u32| tree.extend(word.to_be_bytes());
    // The root has no name; the others' are "interfaces" and "@plp", each with its NUL and padded.
    for word in [token::BEGIN, 0, token::BEGIN, 0x696e_7465, 0x7266_6163, 0x6573_0000] {
        put(word);
    }
    for word in [token::BEGIN, 0x4070_6c70, 0, token::PROPERTY, value.len() as u32, 0] {
        put(word);
    }
    tree.extend(value.as_bytes());
    tree.resize(tree.len().next_multiple_of(4), 0);
    for token in [token::END, token::END, token::END, token::LAST] {
        tree.extend(token.to_be_bytes());
    }
    let names = [NAME, b"\0"].concat();
    // One empty reservation of memory is between the header and the structure.
    let structure = HEADER + 16;
    let strings = structure + tree.len();
    let header = [
        MAGIC,
        (strings + names.len()) as u32,
        structure as u32,
        strings as u32,
        HEADER as u32,
        17, // version
        16, // the oldest that it can be read as
        0,
        names.len() as u32,
        tree.len() as u32,
    ];
    let mut out: Vec<u8> = header.iter().flat_map(|word| word.to_be_bytes()).collect();
    out.resize(structure, 0);
    out.extend(tree);
    out.extend(names);
    out
}
