//! Faults of a bitstream.

use crate::InvalidHeader;
use crate::packet::{
    COR0_PARTIAL, CTL0_ALLOWED, CTL1_ALLOWED, DIES_MAX, FRAME_WORDS, LEAD_WORDS_MAX,
    MFWR_WORDS_MAX, Register,
};

/// Fault of a bitstream. `at` is a byte of the configuration data, after the header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBitstream {
    #[error(transparent)]
    Header(#[from] InvalidHeader),
    /// The configuration data is no whole number of words.
    #[error("the configuration data has {bytes} bytes, not a whole number of 32-bit words")]
    NotWords { bytes: usize },
    /// No sync word where it has to be.
    #[error(
        "no sync word (AA995566) after pads and bus width words, within {LEAD_WORDS_MAX} words; \
         the file is encrypted, byte-swapped or no configuration data"
    )]
    NoSync,
    /// A word that is not a packet header.
    #[error("the word {word:#010x} at byte {at} is not a packet header")]
    NoPacket { word: u32, at: usize },
    /// A packet that reads.
    #[error("the packet at byte {at} reads a register; a bitstream to be loaded only writes")]
    Read { at: usize },
    /// A register that is none of a region's business.
    #[error(
        "the packet at byte {at} writes register {register}, which a region's bitstream must not"
    )]
    Register { register: Register, at: usize },
    /// A packet whose number of words does not fit its register.
    #[error("the packet at byte {at} writes {count} words to register {register}, which takes 1")]
    Count {
        register: Register,
        /// Number of words.
        count: usize,
        at: usize,
    },
    /// A packet that ends behind the file.
    #[error("the packet at byte {at} has {count} words of data, {left} are left in the file")]
    Cut {
        /// Number of words that the packet states.
        count: usize,
        /// Number of words that there are.
        left: usize,
        at: usize,
    },
    /// A jump to a die that no part has.
    #[error("the packet at byte {at} leads to a fifth die; parts have at most {DIES_MAX}")]
    Dies { at: usize },
    /// A type 2 packet without its type 1 packet.
    #[error("the long packet at byte {at} does not follow an FDRI, MFWR or BOUT packet of 0 words")]
    LongAlone { at: usize },
    /// A command that is none of a region's business.
    #[error(
        "the command {command} at byte {at} reaches the whole device; a region's bitstream may not \
         give it"
    )]
    Command { command: u32, at: usize },
    /// A command that reaches everything that the reset mask does not keep out, without one.
    #[error(
        "the command {command} at byte {at} reaches the whole die, because {missing}; give the \
         bitstream as `write_bitstream -cell` wrote it"
    )]
    Unconfined { command: u32, missing: UnmaskedReason, at: usize },
    /// FAR is written before CMD: the device would repeat the command of an earlier file.
    #[error("FAR is written at byte {at} before any command of this stream; write CMD first")]
    AddressBeforeCommand { at: usize },
    /// A MASK that makes bits writable which are none of a region's business.
    #[error(
        "the write at byte {at} unmasks the bits {bits:#010x} of CTL0 or CTL1, which concern the whole \
         device; only {CTL0_ALLOWED:#x} and {CTL1_ALLOWED:#x} may change"
    )]
    Control { bits: u32, at: usize },
    /// CTL0 or CTL1 under a MASK of an earlier file.
    #[error(
        "{register} is written at byte {at} before MASK, so what an earlier file left there decides; \
         write MASK first"
    )]
    NoMask {
        /// CTL0 or CTL1.
        register: Register,
        at: usize,
    },
    /// CTL0 switches the reset mask off.
    #[error(
        "the write of CTL0 at byte {at} clears bit 10, by which the reset mask keeps other regions \
         out; it may only be set"
    )]
    ResetMaskOff { at: usize },
    /// The file ends between the frames of a reset mask.
    #[error(
        "the bitstream ends with bit 17 of CTL1 set on die {die}: the frames of the next load would be \
         taken for a reset mask; clear it behind them"
    )]
    MaskFramesOpen { die: u8 },
    /// Other configuration options than a partial bitstream has.
    #[error(
        "the write of COR0 at byte {at} sets {value:#010x}; only {COR0_PARTIAL:#010x} is allowed, which \
         the vendor's tools write where the start-up options are at their defaults"
    )]
    Options { value: u32, at: usize },
    /// A CRC word that does not fit the packets before it.
    #[error(
        "the bitstream is damaged: the CRC at byte {at} is {found:#010x}, the packets before it give \
         {expected:#010x}"
    )]
    Crc {
        /// CRC that the file states.
        found: u32,
        /// CRC that the packets give.
        expected: u32,
        at: usize,
    },
    /// A CRC word over packets of which nobody knows the first.
    #[error("the CRC at byte {at} has no RCRC before it in its stream; it cannot be checked")]
    CrcWithoutReset { at: usize },
    /// A repeated frame that cannot be.
    #[error(
        "the packet at byte {at} repeats a frame with {words} words of data; 1 to {MFWR_WORDS_MAX}, all \
         zero, are allowed"
    )]
    Repeat {
        /// Number of words.
        words: usize,
        at: usize,
    },
    #[error("the bitstream writes IDCODE {first:#010x} and, at byte {at}, {second:#010x}")]
    TwoIdcodes { first: u32, second: u32, at: usize },
    /// An address that no frame has.
    #[error("{raw:#010x}, where the frames at byte {at} go, is not a frame address")]
    Address {
        /// The value of FAR.
        raw: u32,
        at: usize,
    },
    /// Frame data where the device would not know where to put it.
    #[error("frame data at byte {at}, but no {missing} before it")]
    NotReady {
        /// Missing part: `IDCODE`, `FAR`, `CMD WCFG`, `CMD MFW` or `FDRI`.
        missing: &'static str,
        at: usize,
    },
    /// Frame data that is no whole number of frames.
    #[error("the frame data at byte {at} has {words} words, not a multiple of {FRAME_WORDS}")]
    NotFrames {
        /// Number of words.
        words: usize,
        at: usize,
    },
    /// The file ends without DESYNC.
    #[error("the packets end without DESYNC; the file is cut")]
    NoDesync,
    /// Something follows DESYNC.
    #[error(
        "the word {word:#010x} at byte {at} follows DESYNC; only NOOPs, pads, bus width words and a \
         sync word may"
    )]
    AfterDesync { word: u32, at: usize },
    #[error("the bitstream writes no frames")]
    NoFrames,
}

/// Reason why a command is not confined to the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnmaskedReason {
    /// Bit 10 of CTL0 was not set.
    #[error("bit 10 of CTL0 was not set before it, so the reset mask may be off")]
    Off,
    /// No frames of a reset mask were written.
    #[error("no frames of the region's reset mask (CTL1 bit 17) were written before it")]
    NotWritten,
    /// Bit 17 of CTL1 is still set.
    #[error("bit 17 of CTL1 is still set, so the region's reset mask is not complete")]
    Open,
}

/// Why a bitstream is not for a card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongCard {
    /// Another part in the header.
    #[error("the bitstream is for part {found:?}; the card has {expected:?}")]
    Part { found: String, expected: String },
    /// Another IDCODE in the packets.
    #[error("the bitstream is for IDCODE {found:#010x}; the card has {expected:#010x}")]
    Idcode { found: u32, expected: u32 },
}
