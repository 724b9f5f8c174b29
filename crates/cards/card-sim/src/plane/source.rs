//! The places of senders.

use crate::load::LoadMeter;
use crate::region::NEVER;
use crate::traffic::Generator;

/// A sender's place at the ingress.
#[derive(Debug)]
pub(super) struct SourceSlot {
    pub generation: u16,
    pub generator: Option<Box<Generator>>,
    /// Where somebody counts what becomes of its packets. Its place is used again when they have ended.
    pub meter: Option<Box<LoadMeter>>,
    /// When it claims again while it waits with a packet beyond its promise; [`NEVER`] where that is not planned.
    pub claims_at: u64,
    /// Its place among those that wait with such packets, until one of its own has gone: those that are promised
    /// meanwhile do not cost it its turn.
    pub place_beyond: Option<u64>,
    /// Since when it has had a packet ready all the time; `None` where it has none.
    pub ready_since: Option<u64>,
}

impl SourceSlot {
    pub const fn new(generator: Option<Box<Generator>>) -> Self {
        Self {
            generation: 0,
            generator,
            meter: None,
            claims_at: NEVER,
            place_beyond: None,
            ready_since: None,
        }
    }

    /// Whatever was planned for it is void.
    pub const fn begin_generation(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        (self.claims_at, self.place_beyond, self.ready_since) = (NEVER, None, None);
    }
}
