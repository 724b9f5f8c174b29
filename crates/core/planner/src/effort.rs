//! Bound on the work of one request, in counted steps: never in time, so the same input gives the same
//! plan on every machine.

use std::cell::Cell;

/// Most looks for one request. A look examines one NT of one region and takes 10 to 30 ns on the machine of the
/// measurements, so that a request takes less than a millisecond of the thread that it is planned on (bench `dearest` of
/// `snic-workloads`).
const LOOKS_MAX: u32 = 26_000;
/// The same for a plan that nobody waits for on that thread.
const LOOKS_ELSEWHERE: u32 = 100_000;
/// Most looks for the reasons of all refusals of a request, and for each reason.
const LOOKS_OF_REASONS: u32 = 10_000;
const LOOKS_OF_A_REASON: u32 = 5_000;

/// Looks that a plan costs besides its search: reading the ledger, and explaining.
pub(crate) const LOOKS_OF_A_PLAN: usize = 300;

/// Rest of the work that a request may cause: enough for a search, or for more than forty plans
/// without one. It is counted in looks at one NT of one region.
#[derive(Debug)]
pub struct Effort {
    max: u32,
    left: Cell<u32>,
    /// Looks so far for the reasons of refusals, which do not count to what is left.
    reasons: Cell<u32>,
}

impl Default for Effort {
    fn default() -> Self {
        Self::new()
    }
}

impl Effort {
    /// Most looks that one request causes, those for the reasons of refusals included.
    pub const MAX: u32 = LOOKS_MAX + LOOKS_OF_REASONS;

    /// Work that one request may cause.
    pub const fn new() -> Self {
        Self::of(LOOKS_MAX)
    }

    /// Work of a plan that is not made on the thread that all requests share.
    pub(crate) const fn elsewhere() -> Self {
        Self::of(LOOKS_ELSEWHERE)
    }

    const fn of(looks: u32) -> Self {
        Self { max: looks, left: Cell::new(looks), reasons: Cell::new(0) }
    }

    /// Takes `looks` of what is left; `false` if there are fewer.
    pub(crate) fn spend(&self, looks: usize) -> bool {
        let looks = u32::try_from(looks).unwrap_or(u32::MAX);
        let left = self.left.get().checked_sub(looks);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Has something done within one of this many equal parts of what is left; what it leaves of its part stays.
    /// So the first of several cards cannot use up what the others need.
    pub fn share<T>(&self, parts: usize, work: impl FnOnce(&Self) -> T) -> T {
        let parts = u32::try_from(parts).unwrap_or(u32::MAX).max(1);
        let part = Self { reasons: self.reasons.clone(), ..Self::of(self.left.get() / parts) };
        let done = work(&part);
        self.left.set(self.left.get() - (part.max - part.left.get()));
        self.reasons.set(part.reasons.get());
        done
    }

    /// Work for finding one of the reasons of a refusal.
    pub(crate) fn for_a_reason(&self) -> Self {
        let left = LOOKS_OF_REASONS.saturating_sub(self.reasons.get());
        Self::of(left.min(LOOKS_OF_A_REASON))
    }

    /// A reason was looked for within what [`Self::for_a_reason`] gave.
    pub(crate) fn found_a_reason(&self, reason: &Self) {
        self.reasons.set(self.reasons.get() + reason.spent());
    }

    /// Looks so far, those for the reasons of refusals included.
    pub const fn spent(&self) -> u32 {
        self.max - self.left.get() + self.reasons.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effort_is_spent_to_the_last_look() {
        let effort = Effort::new();
        assert_eq!(effort.spent(), 0);
        assert!(effort.spend(0) && effort.spend(LOOKS_MAX as usize - 1));
        assert_eq!(effort.spent(), LOOKS_MAX - 1);
        assert!(effort.spend(1), "the last one");
        assert!(effort.spend(0), "nothing is asked for");
        assert!(!effort.spend(1));
        assert_eq!(effort.spent(), LOOKS_MAX);
    }

    /// A request that exceeds the rest uses it up, so the total work stays bounded.
    #[test]
    fn a_step_larger_than_the_rest_uses_up_the_effort() {
        for looks in [LOOKS_MAX as usize + 1, u32::MAX as usize + 1, usize::MAX] {
            let effort = Effort::default();
            assert!(!effort.spend(looks), "{looks}");
            assert_eq!(effort.spent(), LOOKS_MAX);
            assert!(!effort.spend(1));
        }
    }

    #[test]
    fn an_effort_is_enough_for_more_than_forty_plans_without_a_search() {
        let effort = Effort::new();
        let plans = (0..1_000).take_while(|_| effort.spend(LOOKS_OF_A_PLAN)).count();
        assert_eq!(plans, LOOKS_MAX as usize / LOOKS_OF_A_PLAN);
        assert!(plans > 40);
    }
}
