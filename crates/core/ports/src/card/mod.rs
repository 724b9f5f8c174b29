//! The Card port: registers and buffers, as XRT gives them, and nothing that knows a tenant.
//!
//! A card is one thread's: methods take `&mut self` and block for as long as a register access
//! takes. What takes longer (a load, a commit) is started by a register and polled: the sequences
//! are written once, in [`crate::driver`], for every adapter.

pub mod conformance;
#[cfg(test)]
pub(crate) mod fake;
pub mod windows;

/// Reader of a bitstream's bytes, for adapters that have to know what a region then
/// does: a simulated one, and those that check before a load.
pub use snic_bitstream as image;
use snic_domain::{CardModel, Timestamp};
pub use snic_tables::registers::Address;

/// Why a card did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    /// The card, or the process that speaks to it, is gone. Open it again.
    #[error("the card is lost: {0}")]
    Lost(String),
    /// A register address is not aligned to four bytes or not in the map.
    #[error("no register at address {0:#x}")]
    NoRegister(Address),
    /// The card's memory has no room for a buffer.
    #[error("no room for a buffer of {bytes} bytes on the card")]
    NoMemory {
        /// Number of requested bytes.
        bytes: usize,
    },
    /// No such buffer.
    #[error("no buffer at device address {0:#x}")]
    NoBuffer(u64),
}

/// 32-bit registers. Accesses take effect in the order of the calls.
pub trait Registers {
    /// Reads one register.
    ///
    /// # Errors
    ///
    /// [`CardError::NoRegister`] for an address outside the register map, [`CardError::Lost`].
    fn read(&mut self, at: Address) -> Result<u32, CardError>;

    /// Writes one register. Writing a read-only register does nothing.
    ///
    /// # Errors
    ///
    /// [`CardError::NoRegister`] for an address outside the register map, [`CardError::Lost`].
    fn write(&mut self, at: Address, value: u32) -> Result<(), CardError>;

    /// Reads consecutive registers.
    ///
    /// # Errors
    ///
    /// The error of the first read that failed; words before it are filled.
    fn read_block(&mut self, at: Address, words: &mut [u32]) -> Result<(), CardError> {
        for (address, word) in (at..).step_by(4).zip(words) {
            *word = self.read(address)?;
        }
        Ok(())
    }

    /// Reads several blocks of consecutive registers, one behind the other. A card that is reached
    /// through another process does so in one round trip.
    ///
    /// # Errors
    ///
    /// As [`Registers::read_block`]; blocks before the one that failed may be filled.
    fn read_blocks(&mut self, blocks: &mut [(Address, &mut [u32])]) -> Result<(), CardError> {
        blocks.iter_mut().try_for_each(|(at, words)| self.read_block(*at, words))
    }

    /// Writes consecutive registers, the lowest first.
    ///
    /// # Errors
    ///
    /// The error of the first write that failed; registers before it are written.
    fn write_block(&mut self, at: Address, words: &[u32]) -> Result<(), CardError> {
        for (address, word) in (at..).step_by(4).zip(words) {
            self.write(address, *word)?;
        }
        Ok(())
    }
}

/// Buffers in the card's memory.
pub trait Buffers {
    /// Copies bytes into the card's memory; says at which device address.
    ///
    /// # Errors
    ///
    /// [`CardError::NoMemory`] where the buffer does not fit, [`CardError::Lost`].
    fn stage(&mut self, bytes: &[u8]) -> Result<u64, CardError>;

    /// Gives the buffer back.
    ///
    /// # Errors
    ///
    /// [`CardError::NoBuffer`] where no buffer begins at `address`, [`CardError::Lost`].
    fn release(&mut self, address: u64) -> Result<(), CardError>;
}

/// A part of programming tables, for those who measure how long each takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramPart {
    /// Configurations and rows are written.
    Write,
    /// The commit is under way: packets of the old tables leave.
    Packets,
    /// The rows are read back.
    ReadBack,
}

pub trait Card: Registers + Buffers + Send {
    /// Its model, by which profile and bitstreams are chosen.
    fn model(&self) -> &CardModel;

    /// Says what time it is. A simulated card does what it does until then; a real one needs no
    /// telling. Time never goes backwards.
    ///
    /// # Errors
    ///
    /// [`CardError::Lost`].
    fn poll(&mut self, now: Timestamp) -> Result<(), CardError>;

    /// Says which trace the accesses from now on are for, as the W3C header `traceparent`, or that
    /// they are for none. For a card whose accesses are made by another process, or are measured.
    fn trace(&mut self, _parent: Option<&str>) {}

    /// Says which part of programming tables the accesses of this trace are from now on.
    fn trace_part(&mut self, _part: ProgramPart) {}

    /// Says that what was done for a trace is done.
    ///
    /// # Errors
    /// The card is lost.
    fn trace_ended(&mut self, _parent: &str) -> Result<(), CardError> {
        Ok(())
    }
}
