//! Registers of a region's wrapper for the state of its NTs.

use snic_tables::registers::{
    STATE_BUSY, STATE_CHECK, STATE_DONE, STATE_ERROR, STATE_IDLE, STATE_LENGTH, STATE_MOVED,
    STATE_OFFSET, STATE_REFUSED, STATE_STATUS, STATE_UID,
};

/// A command under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingCommand {
    pub(crate) command: u32,
    /// Epoch of the region, when it began.
    pub(crate) epoch: u16,
    /// It was drawn to end badly.
    pub(crate) fails: bool,
}

/// One region's wrapper.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wrapper {
    pub(crate) uid: u32,
    pub(crate) offset: u32,
    pub(crate) length: u32,
    pub(crate) check: u32,
    pub(crate) moved: u32,
    pub(crate) busy: Option<PendingCommand>,
    pub(crate) outcome: Option<Result<(), u32>>,
    /// Counts commands, so that the event of one that was ended ends no other.
    pub(crate) generation: u16,
}

impl Wrapper {
    /// A register of its page.
    pub(crate) const fn value(&self, register: u32) -> u32 {
        match register {
            STATE_STATUS => match (self.busy, self.outcome) {
                (Some(_), _) => STATE_BUSY,
                (None, None) => STATE_IDLE,
                (None, Some(Ok(()))) => STATE_DONE,
                (None, Some(Err(_))) => STATE_REFUSED,
            },
            STATE_ERROR => match self.outcome {
                Some(Err(code)) => code,
                _ => 0,
            },
            STATE_UID => self.uid,
            STATE_OFFSET => self.offset,
            STATE_LENGTH => self.length,
            STATE_CHECK => self.check,
            STATE_MOVED => self.moved,
            _ => 0,
        }
    }

    pub(crate) fn end(&mut self, outcome: Result<u32, u32>) {
        self.busy = None;
        self.generation = self.generation.wrapping_add(1);
        self.moved = outcome.unwrap_or(0);
        self.outcome = Some(outcome.map(|_| ()));
    }
}
