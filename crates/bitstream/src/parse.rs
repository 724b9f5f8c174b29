//! Walks a `.bit` file from its header to DESYNC.
//!
//! ```text
//! pads ─ sync ─┬─ NOOP                                        ┌─ NOOPs and pads to the end
//!              ├─ IDCODE, CRC, MASK, CTL0, CMD ──── DESYNC ───┘
//!              ├─ FAR ─ CMD WCFG ─ FDRI, whole frames
//!              └─ BOUT: the same again, from pads to DESYNC, for the next die
//! ```
//!
//! A part of stacked dies is a daisy chain: the configuration port feeds the first die, and what is
//! written to its BOUT register is the stream of the next (UG570, "Stacked Silicon Interconnect").
//!
//! The walk takes one step a packet and skips frame data unseen, so it costs the same for a large
//! region as for a small one. It keeps nothing but slices of the input and one entry a frame write,
//! each of which takes at least a frame of the file.

use std::fmt;

use snic_domain::CardProfile;

use crate::packet::{
    BUS_WIDTH, CTL0_ALLOWED, FRAME_WORDS, FrameAddress, NOOP, PAD, Packet, Register, SYNC, command,
};
use crate::{BitHeader, InvalidHeader};

/// Words before the sync word at most: Vivado writes up to 20. Without a bound, a file without a
/// sync word would be searched to its end.
const LEAD_WORDS_MAX: usize = 64;
/// Packets before the IDCODE at most: options of the whole part, about a dozen.
const LEAD_PACKETS_MAX: usize = 256;
/// Dies of a part at most: the largest of the family have four (public device tables).
pub(crate) const DIES_MAX: u8 = 4;
/// The top four bits of an IDCODE are the silicon's revision: a bitstream fits all of them.
const IDCODE_MASK: u32 = 0x0FFF_FFFF;

/// A `.bit` file whose packets were walked to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitFile<'a> {
    /// The texts of the header.
    pub header: BitHeader<'a>,
    /// The part's IDCODE, as the packets write it.
    pub idcode: u32,
    /// What is written where, in the order of the file; at least one. An address counts up by
    /// itself within a write: see [`crate::FloorPlan`].
    pub writes: Vec<FrameWrite<'a>>,
    /// The dies that do anything, each once and in the order of the file: frames are written there,
    /// or a command given that changes the die. 0 is the die that the configuration port feeds.
    pub dies: Vec<u8>,
}

/// Whole frames written from one address on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FrameWrite<'a> {
    /// Which die, counted along the chain from the one that the configuration port feeds, 0 to 3.
    pub die: u8,
    /// The first frame's address on this die.
    pub address: FrameAddress,
    data: &'a [u8],
}

impl fmt::Debug for FrameWrite<'_> {
    /// Without the frames: they would fill a log with megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameWrite({} frames at die {}, {})", self.frames(), self.die, self.address)
    }
}

impl<'a> FrameWrite<'a> {
    /// How many frames; at least 1. The last is usually a pad that the device drops.
    pub const fn frames(&self) -> usize {
        self.data.len() / (FRAME_WORDS * 4)
    }

    /// The words of all its frames.
    pub fn words(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.data
            .chunks_exact(4)
            .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
    }
}

/// What is wrong with a bitstream. `at` is a byte of the configuration data, after the header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBitstream {
    /// The header.
    #[error(transparent)]
    Header(#[from] InvalidHeader),
    /// The configuration data is no whole number of words.
    #[error("the configuration data has {bytes} bytes, which is no whole number of 32-bit words")]
    NotWords {
        /// How many bytes.
        bytes: usize,
    },
    /// No sync word where it has to be.
    #[error(
        "no sync word (AA995566) after pads and bus width words, within {LEAD_WORDS_MAX} words; \
         the file is encrypted, byte-swapped or no configuration data"
    )]
    NoSync,
    /// A word that is no packet header.
    #[error("the word {word:#010x} at byte {at} is no packet header")]
    NoPacket {
        /// The word.
        word: u32,
        /// Where.
        at: usize,
    },
    /// A packet that reads.
    #[error("the packet at byte {at} reads a register; a bitstream to be loaded only writes")]
    Read {
        /// Where.
        at: usize,
    },
    /// A register that is none of a region's business.
    #[error(
        "the packet at byte {at} writes register {register}, which a region's bitstream must not"
    )]
    Register {
        /// Which.
        register: Register,
        /// Where.
        at: usize,
    },
    /// A packet whose number of words does not fit its register.
    #[error("the packet at byte {at} writes {count} words to register {register}, which takes 1")]
    Count {
        /// Which register.
        register: Register,
        /// How many words.
        count: usize,
        /// Where.
        at: usize,
    },
    /// A packet that ends behind the file.
    #[error("the packet at byte {at} has {count} words of data, {left} are left in the file")]
    Cut {
        /// How many the packet says.
        count: usize,
        /// How many there are.
        left: usize,
        /// Where.
        at: usize,
    },
    /// A jump to a die that no part has.
    #[error("the packet at byte {at} leads to a fifth die; parts have at most {DIES_MAX}")]
    Dies {
        /// Where.
        at: usize,
    },
    /// A type 2 packet without its type 1 packet.
    #[error("the long packet at byte {at} does not follow an FDRI or BOUT packet of 0 words")]
    LongAlone {
        /// Where.
        at: usize,
    },
    /// A command that is none of a region's business.
    #[error("the command {command} at byte {at} reaches beyond the region")]
    Command {
        /// Its code.
        command: u32,
        /// Where.
        at: usize,
    },
    /// A change of CTL0 beyond GLUTMASK.
    #[error(
        "the write of CTL0 at byte {at} changes the bits {bits:#010x}, which concern the whole device; \
         only {CTL0_ALLOWED:#x} may change"
    )]
    Control {
        /// The bits.
        bits: u32,
        /// Where.
        at: usize,
    },
    /// Two IDCODEs.
    #[error("the bitstream writes IDCODE {first:#010x} and, at byte {at}, {second:#010x}")]
    TwoIdcodes {
        /// The first.
        first: u32,
        /// Another.
        second: u32,
        /// Where.
        at: usize,
    },
    /// An address that no frame has.
    #[error("{raw:#010x}, where the frames at byte {at} go, is no frame address")]
    Address {
        /// The value of FAR.
        raw: u32,
        /// Where.
        at: usize,
    },
    /// Frame data where the device would not know where to put it.
    #[error("frame data at byte {at}, but no {missing} before it")]
    NotReady {
        /// What is missing: `IDCODE`, `FAR` or `CMD WCFG`.
        missing: &'static str,
        /// Where.
        at: usize,
    },
    /// Frame data that is no whole number of frames.
    #[error("the frame data at byte {at} has {words} words, which is no multiple of {FRAME_WORDS}")]
    NotFrames {
        /// How many words.
        words: usize,
        /// Where.
        at: usize,
    },
    /// The file ends without DESYNC.
    #[error("the packets end without DESYNC; the file is cut")]
    NoDesync,
    /// Something follows DESYNC.
    #[error("the word {word:#010x} at byte {at} follows DESYNC; only NOOPs and pads may")]
    AfterDesync {
        /// The word.
        word: u32,
        /// Where.
        at: usize,
    },
    /// No frames.
    #[error("the bitstream writes no frames")]
    NoFrames,
}

/// Why a bitstream is not for a card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongCard {
    /// Another part in the header.
    #[error("the bitstream is for part {found:?}; the card has {expected:?}")]
    Part {
        /// The header's.
        found: String,
        /// The card's.
        expected: String,
    },
    /// Another IDCODE in the packets.
    #[error("the bitstream is for IDCODE {found:#010x}; the card has {expected:#010x}")]
    Idcode {
        /// The bitstream's.
        found: u32,
        /// The card's.
        expected: u32,
    },
}

/// Parses a whole `.bit` file. Every length is checked, any bytes give a value or an error.
pub fn parse(bytes: &[u8]) -> Result<BitFile<'_>, InvalidBitstream> {
    let (header, data) = BitHeader::parse(bytes)?;
    if data.len() % 4 != 0 {
        return Err(InvalidBitstream::NotWords { bytes: data.len() });
    }
    let mut found = Found::default();
    Walk::after_sync(data, 0, 0)?.finish(&mut found)?;
    match found.idcode {
        Some(idcode) if !found.writes.is_empty() => {
            Ok(BitFile { header, idcode, writes: found.writes, dies: found.dies })
        }
        _ => Err(InvalidBitstream::NoFrames),
    }
}

impl BitFile<'_> {
    /// Frames written in all, pads included.
    pub fn frames(&self) -> usize {
        self.writes.iter().map(FrameWrite::frames).sum()
    }

    /// Whether it is for the part of `card`. The case of the part's name and the revision of the
    /// silicon do not count.
    pub fn check_card(&self, card: &CardProfile) -> Result<(), WrongCard> {
        is_same_part(self.header.part, self.idcode, card)
    }
}

/// Whether a part's name and IDCODE are those of `card`.
pub(crate) fn is_same_part(part: &str, idcode: u32, card: &CardProfile) -> Result<(), WrongCard> {
    if !part.eq_ignore_ascii_case(&card.part) {
        let (found, expected) = (part.to_owned(), card.part.clone());
        return Err(WrongCard::Part { found, expected });
    }
    if (idcode ^ card.idcode) & IDCODE_MASK != 0 {
        return Err(WrongCard::Idcode { found: idcode, expected: card.idcode });
    }
    Ok(())
}

/// The IDCODE that configuration data writes first, before any frame: what it is for. The packets
/// behind it are not looked at.
pub(crate) fn lead_idcode(data: &[u8]) -> Result<u32, InvalidBitstream> {
    let mut walk = Walk::after_sync(data, 0, 0)?;
    for _ in 0..LEAD_PACKETS_MAX {
        let at = walk.at;
        let word = walk.next().ok_or(InvalidBitstream::NoDesync)?;
        match Packet::decode(word).ok_or(InvalidBitstream::NoPacket { word, at })? {
            Packet::Noop => {}
            Packet::Write { register: Register::IDCODE, count: 1 } => {
                return walk.next().ok_or(InvalidBitstream::NoDesync);
            }
            Packet::Write { register, count: 1 } if register != Register::FDRI => {
                walk.next().ok_or(InvalidBitstream::NoDesync)?;
            }
            _ => break,
        }
    }
    Err(InvalidBitstream::NotReady { missing: "IDCODE", at: walk.at })
}

/// What a walk has seen, on all dies.
#[derive(Debug, Default)]
struct Found<'a> {
    idcode: Option<u32>,
    writes: Vec<FrameWrite<'a>>,
    dies: Vec<u8>,
}

impl Found<'_> {
    fn acts(&mut self, die: u8) {
        if !self.dies.contains(&die) {
            self.dies.push(die);
        }
    }
}

/// One die's side of the walk: what its registers hold.
struct Walk<'a> {
    /// To the end of this die's stream.
    data: &'a [u8],
    /// Byte of `data` that comes next.
    at: usize,
    die: u8,
    has_idcode: bool,
    /// FAR, until frames are written there.
    address: Option<u32>,
    command: u32,
    mask: u32,
    is_desynced: bool,
}

impl<'a> Walk<'a> {
    fn after_sync(data: &'a [u8], at: usize, die: u8) -> Result<Self, InvalidBitstream> {
        let mut walk = Self {
            data,
            at,
            die,
            has_idcode: false,
            address: None,
            command: command::NULL,
            mask: 0,
            is_desynced: false,
        };
        for _ in 0..LEAD_WORDS_MAX {
            match walk.next() {
                Some(SYNC) => return Ok(walk),
                Some(word) if word == PAD || BUS_WIDTH.contains(&word) => {}
                _ => break,
            }
        }
        Err(InvalidBitstream::NoSync)
    }

    /// Through DESYNC, and what may follow it.
    fn finish(mut self, found: &mut Found<'a>) -> Result<(), InvalidBitstream> {
        while !self.is_desynced {
            self.step(found)?;
        }
        self.check_rest()
    }

    fn next(&mut self) -> Option<u32> {
        let word = self.data.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(u32::from_be_bytes(*word))
    }

    fn step(&mut self, found: &mut Found<'a>) -> Result<(), InvalidBitstream> {
        let at = self.at;
        let word = self.next().ok_or(InvalidBitstream::NoDesync)?;
        match Packet::decode(word).ok_or(InvalidBitstream::NoPacket { word, at })? {
            Packet::Noop => Ok(()),
            Packet::Read => Err(InvalidBitstream::Read { at }),
            Packet::Write { register: register @ (Register::FDRI | Register::BOUT), count } => {
                let (count, at) = if count == 0 { self.long()? } else { (count, at) };
                match register {
                    Register::FDRI => self.frames(count, at, found),
                    _ => self.next_die(count, at, found),
                }
            }
            Packet::Write { register, count: 1 } => {
                let left = (self.data.len() - self.at) / 4;
                let value = self.next().ok_or(InvalidBitstream::Cut { count: 1, left, at })?;
                self.set(register, value, at, found)
            }
            Packet::Write { register, count } => {
                Err(InvalidBitstream::Count { register, count, at })
            }
            Packet::Long { .. } => Err(InvalidBitstream::LongAlone { at }),
        }
    }

    fn set(
        &mut self,
        register: Register,
        value: u32,
        at: usize,
        found: &mut Found<'a>,
    ) -> Result<(), InvalidBitstream> {
        match register {
            // The device checks the CRC itself; a wrong one makes the load fail, no more.
            Register::CRC => {}
            Register::FAR => self.address = Some(value),
            Register::MASK => self.mask = value,
            Register::CTL0 if self.mask & !CTL0_ALLOWED != 0 => {
                return Err(InvalidBitstream::Control { bits: self.mask & !CTL0_ALLOWED, at });
            }
            Register::CTL0 => found.acts(self.die),
            Register::IDCODE => {
                self.has_idcode = true;
                match found.idcode.replace(value) {
                    Some(first) if first != value => {
                        return Err(InvalidBitstream::TwoIdcodes { first, second: value, at });
                    }
                    _ => {}
                }
            }
            Register::CMD if !command::is_allowed(value) => {
                return Err(InvalidBitstream::Command { command: value, at });
            }
            Register::CMD => {
                self.command = value;
                self.is_desynced = value == command::DESYNC;
                if command::acts(value) {
                    found.acts(self.die);
                }
            }
            _ => return Err(InvalidBitstream::Register { register, at }),
        }
        Ok(())
    }

    /// The type 2 packet that has to follow: how many words, and where it stands.
    fn long(&mut self) -> Result<(usize, usize), InvalidBitstream> {
        let at = self.at;
        let word = self.next().ok_or(InvalidBitstream::NoDesync)?;
        match Packet::decode(word) {
            Some(Packet::Long { count }) => Ok((count, at)),
            _ => Err(InvalidBitstream::NoPacket { word, at }),
        }
    }

    fn frames(
        &mut self,
        words: usize,
        at: usize,
        found: &mut Found<'a>,
    ) -> Result<(), InvalidBitstream> {
        let not_ready = |missing| InvalidBitstream::NotReady { missing, at };
        if !self.has_idcode {
            return Err(not_ready("IDCODE"));
        }
        if self.command != command::WCFG {
            return Err(not_ready("CMD WCFG"));
        }
        let raw = self.address.take().ok_or(not_ready("FAR"))?;
        let address = FrameAddress::from_raw(raw).ok_or(InvalidBitstream::Address { raw, at })?;
        if words == 0 || !words.is_multiple_of(FRAME_WORDS) {
            return Err(InvalidBitstream::NotFrames { words, at });
        }
        let data = self.take(words, at)?;
        found.writes.push(FrameWrite { die: self.die, address, data });
        Ok(())
    }

    /// The next die's stream, whole: it ends with a DESYNC of its own.
    fn next_die(
        &mut self,
        words: usize,
        at: usize,
        found: &mut Found<'a>,
    ) -> Result<(), InvalidBitstream> {
        let die = self.die + 1;
        if die == DIES_MAX {
            return Err(InvalidBitstream::Dies { at });
        }
        let start = self.at;
        self.take(words, at)?;
        Self::after_sync(&self.data[..self.at], start, die)?.finish(found)
    }

    fn take(&mut self, words: usize, at: usize) -> Result<&'a [u8], InvalidBitstream> {
        let rest = &self.data[self.at..];
        let left = rest.len() / 4;
        // At most 2^27 words, so that the product fits in 32 bits.
        let data = rest.get(..words * 4).ok_or(InvalidBitstream::Cut { count: words, left, at })?;
        self.at += data.len();
        Ok(data)
    }

    /// What follows DESYNC is ignored by the device until the next sync word: there must be none.
    fn check_rest(&mut self) -> Result<(), InvalidBitstream> {
        loop {
            let at = self.at;
            match self.next() {
                None => return Ok(()),
                Some(NOOP | PAD | 0) => {}
                Some(word) => return Err(InvalidBitstream::AfterDesync { word, at }),
            }
        }
    }
}

#[cfg(test)]
mod tests;
