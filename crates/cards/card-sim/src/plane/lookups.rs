//! Look-ups of the scheduler: so many in a cycle, one for each copy of a packet in each pass.
//!
//! Stage, virtual chain and instance of a copy are read from tables in block RAM, whose read port gives one row a cycle.
//! So copies that reach the scheduler together are looked up one after the other. A pass has room for the branches of a
//! fork: the last of four is looked up three cycles after the first, and all are through after the same number of
//! cycles, so that an unloaded card takes what SuperNIC's does (5.1). A copy that waits for longer is that much later.
//!
//! Look-ups are in the order in which copies are announced, not in that of what they may claim. So that packets beyond
//! their promises delay no others for long, none of them comes in while look-ups wait.

use std::collections::VecDeque;

use snic_domain::limits::FORK_BRANCHES_MAX;

use super::Plane;

/// Cycles that a copy may wait for its look-up within the time of a pass.
const WITHIN_PASS: u64 = FORK_BRANCHES_MAX as u64 - 1;

/// The scheduler's look-ups from now on.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    /// Look-ups of a cycle; 0: as many as there are copies.
    each: u32,
    /// Look-ups of the cycles from `first` on.
    made: VecDeque<u32>,
    first: u64,
    /// All cycles from `first` to before this one have as many look-ups as they can.
    free: u64,
}

impl Lookups {
    /// With so many in a cycle; 0: any number.
    pub(super) fn new(each: u32) -> Self {
        Self { each, ..Self::default() }
    }

    /// From when on a copy that comes at once does not wait.
    pub(super) const fn free_at(&self) -> u64 {
        self.free
    }

    /// Makes the look-up of a copy that is at the scheduler from `ready` on, which is not before `now`; says how many
    /// cycles it waits for that beyond what a pass has room for.
    #[inline]
    pub(super) fn make(&mut self, now: u64, ready: u64) -> u64 {
        if self.each == 0 {
            return 0;
        }
        while self.first < now && self.made.pop_front().is_some() {
            self.first += 1;
        }
        self.first = self.first.max(now);
        self.free = self.free.max(now);
        let mut at = ready.max(self.free);
        loop {
            let place = (at - self.first) as usize;
            if self.made.len() <= place {
                self.made.resize(place + 1, 0);
            }
            if self.made[place] < self.each {
                self.made[place] += 1;
                break;
            }
            at += 1;
        }
        let is_full = |made: &u32| *made >= self.each;
        while self.made.get((self.free - self.first) as usize).is_some_and(is_full) {
            self.free += 1;
        }
        (at - ready).saturating_sub(WITHIN_PASS)
    }
}

impl Plane {
    /// The cycle in which a copy that is at the scheduler from `ready` on is through its pass.
    #[inline]
    pub(super) fn pass_ends(&mut self, ready: u64) -> u64 {
        ready + self.lookups.make(self.now, ready) + self.timing.pass
    }

    /// From when on the ingress takes a packet that is promised, or one that is not.
    pub(super) fn ingress_free_at(&self, is_promised: bool) -> u64 {
        let lookups = if is_promised { 0 } else { self.lookups.free_at() };
        self.ingress.free_at(is_promised).max(lookups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits of copies that are at the scheduler in these cycles, all announced in cycle `now`.
    fn waits(lookups: &mut Lookups, now: u64, ready: &[u64]) -> Vec<u64> {
        ready.iter().map(|ready| lookups.make(now, *ready)).collect()
    }

    #[test]
    fn four_branches_are_within_a_pass_and_a_fifth_is_later() {
        assert_eq!(waits(&mut Lookups::new(1), 10, &[10; 6]), [0, 0, 0, 0, 1, 2]);
        assert_eq!(waits(&mut Lookups::new(2), 10, &[10; 9]), [0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(waits(&mut Lookups::new(0), 10, &[10; 6]), [0; 6], "no limit");
    }

    /// A copy that comes later may be announced first: cycles that are free before it stay free.
    #[test]
    fn cycles_in_between_are_for_those_who_come_earlier() {
        let mut lookups = Lookups::new(1);
        assert_eq!(waits(&mut lookups, 0, &[17; 3]), [0; 3]);
        assert_eq!(lookups.free_at(), 0, "nobody waits before that");
        assert_eq!(waits(&mut lookups, 1, &[1; 16]).last(), Some(&(15 - 3)), "cycles 1 to 16");
        assert_eq!(lookups.free_at(), 20);
        assert_eq!(waits(&mut lookups, 1, &[1, 18]), [19 - 3, 0], "in cycles 20 and 21");
        assert_eq!(lookups.free_at(), 22);
        assert_eq!(waits(&mut lookups, 40, &[40]), [0], "all of it is past");
        assert_eq!((lookups.free_at(), lookups.made.len()), (41, 1));
    }
}
