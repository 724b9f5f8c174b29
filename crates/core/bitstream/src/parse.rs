//! Walks a `.bit` file from its header to the last DESYNC.
//!
//! ```text
//! pads ─ sync ─┬─ NOOP                                              ┌─ the next sync, or the end
//!              ├─ IDCODE, CRC, MASK, CTL0, CTL1, COR0, CMD ── DESYNC ┘
//!              ├─ FAR ─ CMD WCFG ─ FDRI, whole frames
//!              ├─ CMD MFW ─ FAR ─ MFWR: the last of these frames once more
//!              └─ BOUT: the same again, from pads to DESYNC, for the next die
//! ```
//!
//! A partial bitstream has several streams, each from a sync word to DESYNC. A part of stacked dies
//! is a daisy chain: the configuration port feeds the first die, and what is written to its BOUT
//! register are the streams of the next (UG570, "Stacked Silicon Interconnect").
//!
//! The walk takes one step a packet and skips frame data unseen where no CRC word follows, so it
//! costs the same for a large region as for a small one. It keeps nothing but slices of the input
//! and one entry a frame write.

mod error;
mod walk;

use std::fmt;

use snic_domain::CardProfile;

pub use error::{InvalidBitstream, UnmaskedReason, WrongCard};
pub(crate) use walk::lead_idcode;
use walk::{Walk, WalkFindings};

use crate::BitHeader;
use crate::packet::{FRAME_WORDS, FrameAddress};

/// The top four bits of an IDCODE are the silicon's revision: a bitstream fits all of them.
const IDCODE_MASK: u32 = 0x0FFF_FFFF;

/// A `.bit` file whose packets were walked to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitFile<'a> {
    /// The texts of the header.
    pub header: BitHeader<'a>,
    /// The part's IDCODE, as the packets write it.
    pub idcode: u32,
    /// Writes with their addresses, in the order of the file; at least one. An address counts up by
    /// itself within a write: see [`crate::FloorPlan`].
    pub writes: Vec<FrameWrite<'a>>,
    /// The dies that do anything, each once and in the order of the file: frames or control
    /// registers are written there, or a command given that changes the die. 0 is the die that the
    /// configuration port feeds.
    pub dies: Vec<u8>,
}

/// Kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// Configuration of the fabric, or the content of a memory.
    Content,
    /// Mask of the parts of the column that GRESTORE and the other commands to the whole die reach.
    ResetMask,
}

/// Form in which frames come to where they go. The frame that a device shifts in last stays in its frame
/// buffer, until WCFG empties that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteForm {
    /// A run by FDRI, one frame after the other. The last one is a pad.
    Run,
    /// The same, and the last one is what later writes repeat.
    RunAndTemplate,
    /// A write by MFWR: one frame, the last of a run before.
    Repeat,
}

/// Whole frames written from one address on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FrameWrite<'a> {
    /// Die, counted along the chain from the one that the configuration port feeds, 0 to 3.
    pub die: u8,
    /// The first frame's address on this die.
    pub address: FrameAddress,
    pub kind: FrameKind,
    pub form: WriteForm,
    data: &'a [u8],
}

impl fmt::Debug for FrameWrite<'_> {
    /// Without the frames: they would fill a log with megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (frames, kind) = (self.frames(), self.kind);
        write!(f, "FrameWrite({frames} frames of {kind:?} at die {}, {})", self.die, self.address)
    }
}

impl<'a> FrameWrite<'a> {
    /// Number of frames; at least 1. The last is usually a pad that stays in the frame buffer.
    pub const fn frames(&self) -> usize {
        self.data.len() / (FRAME_WORDS * 4)
    }

    /// The bytes of all its frames.
    pub(crate) const fn bytes(&self) -> &'a [u8] {
        self.data
    }

    /// The words of all its frames.
    pub fn words(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.data
            .chunks_exact(4)
            .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
    }

    /// Whether `frames` of them, from the frame `first` on, are all zeros: pads.
    pub(crate) fn are_pads(&self, first: usize, frames: usize) -> bool {
        let bytes = FRAME_WORDS * 4;
        let pads = self.data.get(first * bytes..(first + frames) * bytes);
        pads.is_some_and(|pads| pads.iter().all(|byte| *byte == 0))
    }
}

/// Parses a whole `.bit` file. Every length is checked, any bytes give a value or an error.
///
/// # Errors
///
/// Where the file is damaged, or does anything that a region's bitstream may not do.
pub fn parse(bytes: &[u8]) -> Result<BitFile<'_>, InvalidBitstream> {
    let (header, data) = BitHeader::parse(bytes)?;
    if data.len() % 4 != 0 {
        return Err(InvalidBitstream::NotWords { bytes: data.len() });
    }
    let mut found = WalkFindings::default();
    Walk::after_sync(data, 0, 0)?.finish(&mut found)?;
    found.check_end()?;
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
    ///
    /// # Errors
    ///
    /// [`WrongCard`] if it is for another part.
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

#[cfg(test)]
mod tests;
