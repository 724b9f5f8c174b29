//! Out-of-profile packets do not fill a region.
//!
//! Credits let eight packets wait before an NT, where no packet overtakes another: a packet in profile
//! would wait for a neighbour's whole burst. So an out-of-profile packet enters only
//! when the region's port and all NTs it uses would be done with the packets admitted before, as the
//! scheduler counts it: a packet's bits at the NT's rate, from when it was admitted. Nothing stays idle
//! for that: the next packet enters in the cycle in which they are free. On a card it is one counter for
//! each NT, beside its credits.
//!
//! A packet in profile then finds at most one of those before each NT: `bits / bandwidth of the
//! NT` each. Two things may add to that: where eight credits do not fill an NT, for its latency is long,
//! one of them is waited for; and what came straight to an NT may meet there what came by another one.
//!
//! If packets in profile leave no such moment for [`PATIENCE_CYCLES`], credits are enough.

use super::Plane;
use super::chain::PATIENCE_CYCLES;
use crate::wheel::Event;

/// How much earlier than that it enters: an NT is done within a cycle, not at its end, and what comes
/// with the next one would lose the rest.
const EARLY_CYCLES: u64 = 1;

impl Plane {
    /// Whether a copy beyond its promise has to wait for what its region has ahead; the scheduler then
    /// looks again when that is done.
    pub(super) fn must_pace(&mut self, at: u32) -> bool {
        let copy = &self.copies[at];
        let waited = self.now - copy.waits_since;
        if !self.options.credits || waited > PATIENCE_CYCLES {
            return false;
        }
        let number = copy.region;
        let region = &mut self.regions[usize::from(number)];
        let enters = region.done_at(copy.rest).saturating_sub(EARLY_CYCLES);
        if enters <= self.now {
            return false;
        }
        let looks = region.looks_at > self.now && region.looks_at <= enters;
        if !looks {
            region.looks_at = enters;
            self.wheel.at(enters, Event::Room { region: number });
        }
        true
    }
}
