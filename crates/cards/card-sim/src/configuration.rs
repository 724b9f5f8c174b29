//! The configuration controller: one load at a time, at the port's speed.
//!
//! ```text
//!  idle ──start──► busy ──last word──► identified? ──yes──► done    region loaded
//!                   │                      └─no───► failed          region broken
//!                   └──region reset──► failed                       region broken
//! ```

use std::sync::Arc;

use snic_domain::CardProfile;
use snic_ports::card::image::{self, ChainRom, NotIdentified};
use snic_tables::registers::{
    LOAD_BUSY, LOAD_DONE, LOAD_ERROR_IDENTITY, LOAD_ERROR_PACKETS, LOAD_FAILED, LOAD_IDLE,
};

use crate::crc;

/// Words that the host wrote into the controller's registers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LoadRequest {
    pub(crate) region: u32,
    pub(crate) buffer_low: u32,
    pub(crate) buffer_high: u32,
    pub(crate) bytes: u32,
}

impl LoadRequest {
    pub(crate) const fn buffer(&self) -> u64 {
        (self.buffer_high as u64) << 32 | self.buffer_low as u64
    }
}

/// A load under way.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) region: u8,
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) since: u64,
    pub(crate) cycles: u64,
    /// It was drawn to fail.
    pub(crate) fails: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Controller {
    pub(crate) request: LoadRequest,
    pub(crate) load: Option<Load>,
    /// Counts loads, so that the event of an aborted one ends no other.
    pub(crate) generation: u32,
    outcome: Option<Result<(), u32>>,
    /// Bytes that went through in the last load.
    progress: u32,
}

impl Controller {
    pub(crate) const fn status(&self) -> u32 {
        match (&self.load, self.outcome) {
            (Some(_), _) => LOAD_BUSY,
            (None, Some(Ok(()))) => LOAD_DONE,
            (None, Some(Err(_))) => LOAD_FAILED,
            (None, None) => LOAD_IDLE,
        }
    }

    /// Why the last load failed; a start that was refused while busy shows here too.
    pub(crate) const fn error(&self) -> u32 {
        match self.outcome {
            Some(Err(code)) => code,
            _ => 0,
        }
    }

    pub(crate) fn progress(&self, now: u64) -> u32 {
        let Some(load) = &self.load else { return self.progress };
        let done = u128::from((now - load.since).min(load.cycles));
        let bytes = load.bytes.len() as u128 * done / u128::from(load.cycles.max(1));
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    pub(crate) fn refuse(&mut self, code: u32) {
        self.outcome = Some(Err(code));
    }

    pub(crate) fn start(&mut self, load: Load) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.outcome = None;
        self.load = Some(load);
        self.generation
    }

    /// Ends the load under way.
    pub(crate) fn end(&mut self, now: u64, outcome: Result<(), u32>) {
        self.progress = self.progress(now);
        self.outcome = Some(outcome);
        self.load = None;
    }
}

/// Content of a region of this card after a bitstream, or the controller's error: the one with a chain ROM in
/// its frames stands for logic.
pub(crate) fn identify(bytes: &[u8], profile: &CardProfile) -> Result<ChainRom, u32> {
    let file = image::parse(bytes).map_err(|_| LOAD_ERROR_PACKETS)?;
    // Words for another part do not get past the JTAG id.
    file.check_card(profile).map_err(|_| LOAD_ERROR_PACKETS)?;
    if crc::check(bytes) != crc::Checked::Fits {
        return Err(LOAD_ERROR_PACKETS);
    }
    image::identify(bytes).map_err(|error| match error {
        NotIdentified::Bitstream(_) => LOAD_ERROR_PACKETS,
        NotIdentified::Rom(_) => LOAD_ERROR_IDENTITY,
    })
}
