//! Times of the parts of the data plane.

use snic_domain::CardProfile;

use super::PlaneOptions;
use crate::time::Clock;

/// Times of the profile, in cycles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    pub(super) clock: Clock,
    /// From the first beat to the scheduler.
    pub(super) front: u64,
    /// One pass of the scheduler.
    pub(super) pass: u64,
    /// Time of a packet in the synchronisation buffer once all its branches are back.
    pub(super) sync: u64,
    /// From the last stage to the egress port.
    pub(super) back: u64,
    /// Bytes of a beat, and of a cell of the packet store.
    pub(super) beat_bytes: u32,
    /// From an access to on-board memory that is not in anybody's way to its answer.
    pub(super) memory: u64,
}

impl Timing {
    pub(super) fn of(profile: &CardProfile, options: PlaneOptions) -> Self {
        let pass = profile.scheduler_pass.get();
        let around = profile.core.get() - pass;
        let clock = Clock::new(profile.clock_hz);
        Self {
            clock,
            front: around.div_ceil(2),
            pass,
            sync: u64::from(options.sync_cycles),
            back: around / 2,
            beat_bytes: profile.width_bits / 8,
            memory: clock.cycles_for(options.memory_latency_nanos.into(), 1_000_000_000),
        }
    }

    /// Beats of so many bytes.
    pub(super) const fn beats(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.beat_bytes)
    }
}
