//! Only packets that are due fill a region.
//!
//! Credits let eight packets wait before an NT, where no packet overtakes another: a packet that is due
//! would wait for a neighbour's whole burst. So an out-of-profile packet enters only
//! when the region's port and all NTs it uses would be done with the packets admitted before, as the
//! scheduler counts it: a packet's bits at the NT's rate, from when it was admitted. Nothing stays idle
//! for that: the next packet enters in the cycle in which they are free. On a card it is one counter for
//! each NT, beside its credits. A packet in profile whose time has not come yet enters a little earlier, when the port is
//! free and its NTs have [`BURST_CYCLES`] ahead of them at most: so a burst waits where others can overtake it, fills
//! its NTs without a gap, and an NT that is never idle does not keep it out.
//!
//! A packet in profile then finds at most one of those before each NT: `bits / bandwidth of the
//! NT` each. Two things may add to that: where eight credits do not fill an NT, for its latency is long,
//! one of them is waited for; and what came straight to an NT may meet there what came by another one.
//!
//! If a commit waits for packets and others leave no such moment for long, one of a region's enters as one that is
//! due, once in that time (`Plane::is_relieved`).

use super::{PacketCopy, Plane, Rank};
use crate::wheel::Event;

/// Cycles by which it enters earlier than that: an NT is done within a cycle, not at its end, and what comes
/// with the next one would lose the rest.
const EARLY_CYCLES: u64 = 1;

/// Work that NTs may have ahead of them when a part of a burst enters: about 0.4 µs at 250 MHz, a packet of 1,500 bytes at
/// 30 Gbit/s. With the eight packets that credits let in, a neighbour that is due would wait for 3 µs there.
const BURST_CYCLES: u64 = 96;

impl Plane {
    /// Whether a copy that is not due has to wait for what its region has ahead; the scheduler then looks
    /// again when that is done.
    pub(super) fn must_pace(&mut self, at: u32) -> bool {
        if !self.options.credits {
            return false;
        }
        let rank = self.rank(at);
        let is_due = self.copies[at].claim.is_due(self.now) || self.is_relieved(at);
        let PacketCopy { region: number, rest, .. } = self.copies[at];
        let store = self.store_free_at();
        let region = &mut self.regions[usize::from(number)];
        let done = match rank {
            Rank::Due if is_due => return false,
            Rank::Due | Rank::Early => {
                region.port.free_at().max(region.done_at(rest).saturating_sub(BURST_CYCLES))
            }
            // It would hold credits while it waits for the packet store.
            Rank::Beyond => region.done_at(rest).max(store),
        };
        let enters = done.saturating_sub(EARLY_CYCLES);
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
