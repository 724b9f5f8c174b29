//! WebAssembly modules in a bitstream for a software card: what its NTs do, where a bitstream for an FPGA
//! has logic.
//!
//! ```text
//! frame 0           the chain ROM
//! frame 1 and on    word 0        magic "SNWM"
//!                   word 1        version << 16 | number of modules (1 to 8)
//!                   words 2 + 3i  module i: slot, bytes of the NT type's id, bytes of the module
//!                   then          for each module the id and the module, each padded with zeros to whole words
//! ```
//!
//! The file's digest and its signature cover the modules like all else. A slot without a module is an NT that
//! the card has itself, or one that changes nothing.

use snic_domain::limits::{CHAIN_SLOTS_MAX, MODULE_BYTES_MAX};
use snic_domain::{ByteSize, CardProfile, ChainIdentity, Digest, NtType, NtTypeId};

use crate::packet::FRAME_WORDS;
use crate::rom::claim_of;
use crate::test_image::TestBuild;
use crate::wasm::{InvalidModuleForm, check_module};
use crate::{BitFile, ChainRom, FrameKind, InvalidRom, InvalidTestImage, parse};

const MAGIC: [u8; 4] = *b"SNWM";
const VERSION: u32 = 1;
const FRAME_BYTES: usize = FRAME_WORDS * 4;
const HEAD_WORDS: usize = 2;
const ENTRY_WORDS: usize = 3;
/// Bytes of an image beside its frames: header, packets, and less than a frame of NOOPs.
const AROUND_BYTES: usize = 2_048;

/// A module in a bitstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddedModule<'a> {
    /// The slot of the chain whose NT it is, from 0.
    pub slot: usize,
    /// The NT type.
    pub nt: &'a str,
    pub bytes: &'a [u8],
}

/// Fault of a bitstream's modules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidModules {
    /// The chain ROM.
    #[error(transparent)]
    Rom(#[from] InvalidRom),
    /// A version that is not known.
    #[error("the modules of the bitstream have version {0}; version {VERSION} is known")]
    Version(u32),
    /// Too many, or none.
    #[error("a bitstream has a module for 1 to {CHAIN_SLOTS_MAX} slots, not for {0}")]
    Count(usize),
    /// It ends early.
    #[error("the modules of the bitstream are cut off")]
    Cut,
    /// A slot that the chain does not have, or that is not behind the one before.
    #[error(
        "a module is for slot {0}; slots of the chain in ascending order are allowed, counted from 0"
    )]
    Slot(usize),
    /// The slot has another NT.
    #[error(
        "the module of slot {slot} is for NT type {nt:?}, which is not what the chain has there"
    )]
    OtherNt {
        slot: usize,
        /// The NT type of the module.
        nt: String,
    },
    /// A tenant's module in place of an NT that is not the tenant's.
    #[error("the module of slot {slot} is for NT type {nt}, which belongs to somebody else")]
    Foreign {
        slot: usize,
        /// The NT type.
        nt: NtTypeId,
    },
    /// The module itself.
    #[error("the module of NT type {nt}: {why}")]
    Module {
        /// The NT type.
        nt: String,
        why: InvalidModuleForm,
    },
}

/// The modules of a bitstream, in the order of their slots; none in one without modules. Their bytes are not
/// looked at beyond their size.
///
/// # Errors
/// [`InvalidModules`] where the file has modules and they are cut, or not those of its chain.
pub fn modules<'a>(file: &BitFile<'a>) -> Result<Vec<EmbeddedModule<'a>>, InvalidModules> {
    let first = file.writes.iter().find(|write| write.kind == FrameKind::Content);
    let section = first.and_then(|write| write.bytes().get(FRAME_BYTES..));
    let Some(section) = section.filter(|section| section.starts_with(&MAGIC)) else {
        return Ok(Vec::new());
    };
    match claim_of(file)? {
        Some(rom) => decode(section, &rom),
        None => Ok(Vec::new()),
    }
}

fn decode<'a>(
    section: &'a [u8],
    rom: &ChainRom,
) -> Result<Vec<EmbeddedModule<'a>>, InvalidModules> {
    let word = |at: usize| {
        let bytes = section.get(at * 4..at * 4 + 4).ok_or(InvalidModules::Cut)?;
        Ok::<u32, InvalidModules>(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let head = word(1)?;
    if head >> 16 != VERSION {
        return Err(InvalidModules::Version(head >> 16));
    }
    let count = (head & 0xFFFF) as usize;
    if !(1..=CHAIN_SLOTS_MAX).contains(&count) {
        return Err(InvalidModules::Count(count));
    }
    let mut at = (HEAD_WORDS + count * ENTRY_WORDS) * 4;
    let mut take = |bytes: u32| {
        let bytes = bytes as usize;
        let taken = section.get(at..).and_then(|rest| rest.get(..bytes));
        at += bytes.next_multiple_of(4);
        taken.ok_or(InvalidModules::Cut)
    };
    let mut found: Vec<EmbeddedModule<'a>> = Vec::new();
    for entry in 0..count {
        let at = HEAD_WORDS + entry * ENTRY_WORDS;
        let (slot, name, bytes) = (word(at)? as usize, word(at + 1)?, word(at + 2)?);
        let Some(rom) = rom.slots().get(slot) else { return Err(InvalidModules::Slot(slot)) };
        if found.last().is_some_and(|before| before.slot >= slot) {
            return Err(InvalidModules::Slot(slot));
        }
        let name = take(name)?;
        let nt = std::str::from_utf8(name).unwrap_or_default();
        if NtTypeId::new(nt).map(|id| id.code()) != Ok(rom.code) {
            return Err(InvalidModules::OtherNt { slot, nt: nt.chars().take(80).collect() });
        }
        if bytes as usize > MODULE_BYTES_MAX {
            let why = InvalidModuleForm::TooLarge(bytes as usize);
            return Err(InvalidModules::Module { nt: nt.to_owned(), why });
        }
        found.push(EmbeddedModule { slot, nt, bytes: take(bytes)? });
    }
    Ok(found)
}

/// Checks the form of each module, as [`check_module`] does.
pub(crate) fn check_modules(modules: &[EmbeddedModule<'_>]) -> Result<(), InvalidModules> {
    modules.iter().try_for_each(|module| {
        check_module(module.bytes)
            .map_err(|why| InvalidModules::Module { nt: module.nt.to_owned(), why })
    })
}

/// Target of a bitstream with modules.
#[derive(Debug, Clone, Copy)]
pub struct ModuleBuild<'a> {
    pub card: &'a CardProfile,
    /// The NTs, in the order packets pass; 1 to 8.
    pub chain: &'a [&'a NtType],
    /// The modules, by slot in ascending order.
    pub modules: &'a [EmbeddedModule<'a>],
    /// The identity of the build, if a manifest names it.
    pub identity: Option<ChainIdentity>,
}

/// Why a bitstream with modules cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidModuleBuild {
    #[error(transparent)]
    Image(#[from] InvalidTestImage),
    #[error(transparent)]
    Modules(#[from] InvalidModules),
}

impl ModuleBuild<'_> {
    /// A valid `.bit` file with the modules. The same arguments always give the same bytes.
    ///
    /// # Errors
    /// [`InvalidModuleBuild`] if the chain has no valid ROM, or a module has not the form of one.
    pub fn build(&self) -> Result<Vec<u8>, InvalidModuleBuild> {
        check_modules(self.modules)?;
        let section = self.section();
        let names: usize = self.chain.iter().map(|nt| nt.id.as_str().len() + 4).sum();
        let size = AROUND_BYTES + names + 3 * FRAME_BYTES + section.len();
        let plain = TestBuild { card: self.card, chain: self.chain, die: 0, identity: None };
        let mut image = plain.build(ByteSize::from_bytes(size as u64))?;
        let frames = frames_at(&image);
        if let Some(identity) = self.identity {
            let rom = ChainRom::of(self.chain).map_err(InvalidTestImage::Rom)?.of_build(identity);
            let rom: Vec<u8> = rom.encode().iter().flat_map(|word| word.to_be_bytes()).collect();
            image[frames..frames + rom.len()].copy_from_slice(&rom);
        }
        let at = frames + FRAME_BYTES;
        image[at..at + section.len()].copy_from_slice(&section);
        // What was built says what it was told.
        let found = parse(&image).map(|file| modules(&file));
        found.expect("a test image is valid")?;
        Ok(image)
    }

    /// An identity of this build: of its card, its NTs and the bytes of its modules.
    pub fn derived_identity(&self) -> ChainIdentity {
        let mut of = format!("snic-modules-v1 {}", self.card.model);
        for nt in self.chain {
            of.extend([" ", nt.id.as_str()]);
        }
        for module in self.modules {
            of += &format!(" {} {}", module.slot, Digest::of(module.bytes));
        }
        let [a, b, c, d, ..] = Digest::of(of.as_bytes()).words();
        ChainIdentity::from_words([a, b, c, d])
    }

    fn section(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let mut push = |word: usize| out.extend((word as u32).to_be_bytes());
        push((VERSION as usize) << 16 | self.modules.len());
        for module in self.modules {
            [module.slot, module.nt.len(), module.bytes.len()].into_iter().for_each(&mut push);
        }
        for module in self.modules {
            for part in [module.nt.as_bytes(), module.bytes] {
                out.extend(part);
                out.resize(out.len().next_multiple_of(4), 0);
            }
        }
        out
    }
}

/// Where the first frame begins in an image.
fn frames_at(image: &[u8]) -> usize {
    let file = parse(image).expect("a test image is valid");
    let frames = file.writes[0].bytes();
    frames.as_ptr() as usize - image.as_ptr() as usize
}

#[cfg(test)]
pub(crate) mod tests;
