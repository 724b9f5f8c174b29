//! Version 1 of the ABI, as `include/snic_nt.h` has it.

use snic_nts::{DropReason, Verdict};

/// The version that `snic_abi_version` gives.
pub(crate) const VERSION: i32 = 1;
/// Room before the frame in a module's buffer. It is part of the ABI: what a packet has, may change.
pub(crate) const HEADROOM_BYTES: usize = 128;
pub(crate) const FRAME_BYTES_MAX: usize = 9_216;
/// A module's buffer: room, and the longest frame.
pub(crate) const BUFFER_BYTES: usize = HEADROOM_BYTES + FRAME_BYTES_MAX;
/// Shortest frame that goes on: an Ethernet header.
pub(crate) const FRAME_BYTES_MIN: usize = 14;

/// Answer of a module for a packet.
///
/// ```text
/// 63 … 56   55 … 48   47 … 32                         31 … 0
/// verdict   zero      where the frame begins          its length
///                     in the buffer
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The frame goes on or back.
    Frame { start: usize, length: usize, back: bool },
    /// It goes nowhere.
    Ended(Verdict),
}

impl Answer {
    /// Any number is an answer, or the reason to drop the packet.
    pub(crate) fn decode(word: u64) -> Result<Self, DropReason> {
        let start = (word >> 32 & 0xFFFF) as usize;
        let length = (word & 0xFFFF_FFFF) as usize;
        let is_in = || {
            (FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&length)
                && start + length <= BUFFER_BYTES
                && word >> 48 & 0xFF == 0
        };
        match word >> 56 {
            0 => Ok(Self::Ended(Verdict::Drop(DropReason::Module))),
            verdict @ (1 | 2) if is_in() => Ok(Self::Frame { start, length, back: verdict == 2 }),
            3 => Ok(Self::Ended(Verdict::Consume)),
            _ => Err(DropReason::ModuleInvalidVerdict),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn word(verdict: u64, start: u64, length: u64) -> u64 {
        verdict << 56 | start << 32 | length
    }

    #[test]
    fn frames_stay_in_the_buffer() {
        let frame = |start, length, back| Ok(Answer::Frame { start, length, back });
        let most = FRAME_BYTES_MAX as u64;
        assert_eq!(Answer::decode(word(1, 128, 60)), frame(128, 60, false));
        assert_eq!(Answer::decode(word(2, 0, most)), frame(0, 9_216, true));
        assert_eq!(Answer::decode(word(1, 128, most)), frame(128, 9_216, false));
        assert_eq!(Answer::decode(0), Ok(Answer::Ended(Verdict::Drop(DropReason::Module))));
        assert_eq!(Answer::decode(word(3, 9, 9)), Ok(Answer::Ended(Verdict::Consume)));
        for invalid in [
            word(1, 129, most),
            word(1, 0, most + 1),
            word(1, 0xFFFF, 60),
            word(1, 128, 13),
            word(1, 128, 0xFFFF_FFFF),
            word(1, 128, 60) | 1 << 48,
            word(4, 128, 60),
            u64::MAX,
        ] {
            assert_eq!(
                Answer::decode(invalid),
                Err(DropReason::ModuleInvalidVerdict),
                "{invalid:x}"
            );
        }
    }
}
