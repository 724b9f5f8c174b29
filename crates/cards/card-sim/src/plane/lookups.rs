//! Look-ups of the scheduler: so many in a cycle, one for each copy of a packet in each pass.
//!
//! Stage, virtual chain and instance of a copy are read from tables in block RAM, whose read port gives one row a cycle.
//! So copies that reach the scheduler together are looked up one after the other. A pass has room for the branches of a
//! fork: the last of four is looked up three cycles after the first, and all are through after the same number of
//! cycles, so that an unloaded card takes what SuperNIC's does (5.1). A copy that waits for longer is that much later.
//!
//! Copies wait in two queues: who keeps to a promise goes first, and waits for no look-up of a packet beyond one. A time is
//! given out when a copy is announced, so the one that is overtaken keeps it, and a later one beyond its promise waits in
//! its stead: as many are made, at the same times. So that packets beyond their promises fill no queues, none of them comes in
//! while look-ups wait.

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
    made: VecDeque<Made>,
    first: u64,
    /// All cycles from `first` to before these have as many look-ups as they can: of all, and of promised ones.
    free: [u64; 2],
    /// Look-ups of those that were overtaken: made when others might be.
    overtaken: u32,
}

/// Look-ups in one cycle.
#[derive(Debug, Default, Clone, Copy)]
struct Made {
    promised: u32,
    all: u32,
}

impl Lookups {
    /// With so many in a cycle; 0: any number.
    pub(super) fn new(each: u32) -> Self {
        Self { each, ..Self::default() }
    }

    /// From when on no copy waits that comes at once, whatever it claims.
    pub(super) const fn free_at(&self) -> u64 {
        self.free[0]
    }

    /// Makes the look-up of a copy that is at the scheduler from `ready` on, which is not before `now`; says how many
    /// cycles it waits for that beyond what a pass has room for.
    #[inline]
    pub(super) fn make(&mut self, now: u64, ready: u64, is_promised: bool) -> u64 {
        if self.each == 0 {
            return 0;
        }
        while self.first < now && self.made.pop_front().is_some() {
            self.first += 1;
        }
        self.first = self.first.max(now);
        self.free = self.free.map(|free| free.max(now));
        if !is_promised {
            for _ in 0..std::mem::take(&mut self.overtaken) {
                let at = self.first_free(now, false);
                self.count(at, false);
            }
        }
        let at = self.first_free(ready, is_promised);
        let overtakes = self.made(at).all == self.each;
        self.overtaken += u32::from(overtakes);
        self.count(at, is_promised);
        self.made(at).all -= u32::from(overtakes);
        for is_promised in [false, true] {
            let free = self.free[usize::from(is_promised)];
            self.free[usize::from(is_promised)] = self.first_free(free, is_promised);
        }
        (at - ready).saturating_sub(WITHIN_PASS)
    }

    fn made(&mut self, at: u64) -> &mut Made {
        let place = (at - self.first) as usize;
        if self.made.len() <= place {
            self.made.resize(place + 1, Made::default());
        }
        &mut self.made[place]
    }

    fn count(&mut self, at: u64, is_promised: bool) {
        let made = self.made(at);
        made.all += 1;
        made.promised += u32::from(is_promised);
    }

    /// The first cycle from `ready` on in which such a copy is looked up.
    fn first_free(&self, ready: u64, is_promised: bool) -> u64 {
        let at = ready.max(self.free[usize::from(is_promised)]);
        let is_full =
            |made: &&Made| self.each <= if is_promised { made.promised } else { made.all };
        let from = self.made.iter().skip((at - self.first) as usize);
        at + from.take_while(is_full).count() as u64
    }
}

impl Plane {
    /// The cycle in which a copy that is at the scheduler from `ready` on is through its pass.
    #[inline]
    pub(super) fn pass_ends(&mut self, ready: u64, is_promised: bool) -> u64 {
        ready + self.lookups.make(self.now, ready, is_promised) + self.timing.pass
    }

    /// From when on the ingress takes a packet that is promised, or one that is not.
    pub(super) fn ingress_free_at(&self, is_promised: bool) -> u64 {
        let shared = if is_promised { 0 } else { self.lookups.free_at().max(self.store_free_at()) };
        self.ingress.free_at(is_promised).max(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits of copies that are at the scheduler in these cycles, all announced in cycle `now`.
    fn waits(lookups: &mut Lookups, now: u64, ready: &[u64]) -> Vec<u64> {
        ready.iter().map(|ready| lookups.make(now, *ready, false)).collect()
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

    #[test]
    fn who_keeps_to_a_promise_waits_for_no_other_and_who_comes_after_makes_up_for_it() {
        let mut lookups = Lookups::new(1);
        assert_eq!(waits(&mut lookups, 0, &[0; 20]).last(), Some(&(19 - 3)));
        let promised = [5; 6].map(|ready| lookups.make(5, ready, true));
        assert_eq!(promised, [0, 0, 0, 0, 1, 2], "cycles 5 to 10");
        assert_eq!(waits(&mut lookups, 5, &[5]), [26 - 5 - 3], "20 + 6 before it");
        assert_eq!((lookups.free_at(), lookups.overtaken), (27, 0));
        assert_eq!(lookups.make(5, 30, true), 0);
        assert_eq!(waits(&mut lookups, 5, &[30]), [0], "cycle 31");
        let all: u32 = lookups.made.iter().map(|made| made.all).sum();
        assert_eq!(all, 29 - 5, "no cycle has two");
    }
}
