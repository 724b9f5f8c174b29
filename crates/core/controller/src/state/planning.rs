//! Bound on the planning that one event causes; the rest is put off to the next one.
//!
//! ```text
//!  a request ──────── plans what it asks for, within the effort of one request
//!  what follows ───── DAGs without a place, drains, removals, instances: each begins a plan only while the
//!                     event has planned little; the rest is put off, and another event is due at once
//! ```
//!
//! All is counted in looks of the planner (see [`snic_planner::Effort`]), never in time, so the same events lead to
//! the same plans everywhere.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;

use snic_domain::{CardId, DagName, RegionId};
use snic_planner::Effort;

/// Looks of an event up to which something that nobody asks for now begins to be planned.
const LOOKS_TO_BEGIN: u32 = 10_000;
/// Looks that a plan counts for at least: to carry it out takes longer than to make it.
const LOOKS_OF_A_PLAN: u32 = 1_000;

/// Looks that a DAG counts for that is changed and stored without a plan.
const LOOKS_OF_A_CHANGE: u32 = 100;

/// The most looks of one event: what follows of itself begins its last plan just below the limit, and a plan takes
/// no more than a request.
pub const LOOKS_OF_AN_EVENT: u32 = LOOKS_TO_BEGIN + Effort::MAX;

/// Planning of an event, and what is put off.
#[derive(Default)]
pub(crate) struct Planning {
    looks: Cell<u32>,
    is_put_off: Cell<bool>,
    /// Whether the request of the event was refused, and DAGs are to move that may make room for it.
    may_wait: bool,
    /// Whether the request of the event is one that can wait.
    can_wait: bool,
    /// Whether requests that wait may find room now.
    is_held_due: bool,
    /// DAGs without a place: one may be free for them now.
    pub waiting: Backlog<DagName>,
    /// DAGs in regions that are to be empty: they may find another place now.
    pub leaving: Backlog<(CardId, RegionId, DagName)>,
    /// DAGs in images that they do not trust: they may find another place now.
    pub untrusted: Backlog<DagName>,
}

impl fmt::Debug for Planning {
    /// Prints nothing of the event's planning, which does not stay.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            waiting,
            leaving,
            untrusted,
            looks: _,
            is_put_off: _,
            may_wait: _,
            can_wait: _,
            is_held_due: _,
        } = self;
        let mut planning = f.debug_struct("Planning");
        planning.field("waiting", waiting).field("leaving", leaving).field("untrusted", untrusted);
        planning.finish()
    }
}

impl Planning {
    /// An event came.
    pub fn begin(&mut self) {
        self.looks.set(0);
        self.is_put_off.set(false);
        self.may_wait = false;
        self.can_wait = false;
    }

    /// Whether the request of the event is one that can wait.
    pub const fn set_can_wait(&mut self, can_wait: bool) {
        self.can_wait = can_wait;
    }

    /// The request of the event was refused, and may be admitted once DAGs have moved.
    pub const fn let_wait(&mut self) {
        self.may_wait = true;
    }

    /// Whether the request of the event, which was refused, may be admitted once DAGs have moved.
    pub const fn may_wait(&self) -> bool {
        self.may_wait && self.can_wait
    }

    /// Requests that wait may find room now.
    pub const fn retry_held(&mut self) {
        self.is_held_due = true;
    }

    /// Whether requests that wait may find room since this was last taken.
    pub const fn take_held_due(&mut self) -> bool {
        std::mem::replace(&mut self.is_held_due, false)
    }

    /// Whether requests that wait may find room.
    pub const fn is_held_due(&self) -> bool {
        self.is_held_due
    }

    /// The event planned once, with this effort.
    pub fn planned(&self, effort: &Effort) {
        let looks = effort.spent().max(LOOKS_OF_A_PLAN);
        self.looks.set(self.looks.get().saturating_add(looks));
    }

    /// Whether something that nobody asks for now may be planned with this event. What may not is to be looked at
    /// again with the next one.
    pub fn may_begin(&self) -> bool {
        let may = self.has_time();
        self.is_put_off.set(self.is_put_off.get() || !may);
        may
    }

    /// Whether one more plan of the event is within its bound.
    pub const fn has_time(&self) -> bool {
        self.looks.get() < LOOKS_TO_BEGIN
    }

    /// The event changed and stored a DAG without planning it.
    pub fn changed(&self) {
        self.looks.set(self.looks.get().saturating_add(LOOKS_OF_A_CHANGE));
    }

    /// Whether something was put off: another event is due at once.
    pub fn is_put_off(&self) -> bool {
        let Self { waiting, leaving, untrusted, .. } = self;
        let is_empty = waiting.is_empty() && leaving.is_empty() && untrusted.is_empty();
        self.is_put_off.get() || !is_empty
    }

    /// Looks of the event.
    pub const fn looks(&self) -> u32 {
        self.looks.get()
    }
}

/// Items to be looked at one by one.
#[derive(Debug)]
pub(crate) struct Backlog<T> {
    queue: VecDeque<T>,
    /// Whether all is to be looked at once more: something has changed since the queue was made.
    again: bool,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), again: false }
    }
}

impl<T> Backlog<T> {
    /// All of these are to be looked at; where some of them still are, those first, and then all.
    pub fn fill(&mut self, all: impl Iterator<Item = T>) {
        match self.queue.is_empty() {
            true => self.queue.extend(all),
            false => self.again = true,
        }
    }

    /// The next one.
    pub fn pop(&mut self) -> Option<T> {
        self.queue.pop_front()
    }

    /// Whether all that was put in was looked at and must be once more; said once.
    pub fn is_due_again(&mut self) -> bool {
        self.queue.is_empty() && std::mem::take(&mut self.again)
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && !self.again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_is_put_off_when_an_event_has_planned_enough() {
        let mut planning = Planning::default();
        let mut begun = 0;
        while planning.may_begin() {
            planning.planned(&Effort::new());
            begun += 1;
        }
        assert_eq!(
            begun,
            LOOKS_TO_BEGIN / LOOKS_OF_A_PLAN,
            "a plan counts even if it took nothing"
        );
        assert_eq!((planning.looks(), planning.is_put_off()), (LOOKS_TO_BEGIN, true));
        planning.begin();
        assert!(!planning.is_put_off() && planning.may_begin());
    }

    #[test]
    fn a_backlog_is_looked_at_to_its_end_before_it_is_filled_again() {
        let mut backlog = Backlog::default();
        assert!(backlog.is_empty() && !backlog.is_due_again());
        backlog.fill([1, 2, 3].into_iter());
        assert_eq!((backlog.pop(), backlog.is_empty()), (Some(1), false));
        backlog.fill([1, 4].into_iter());
        assert!(!backlog.is_due_again(), "2 and 3 come first");
        assert_eq!((backlog.pop(), backlog.pop(), backlog.pop()), (Some(2), Some(3), None));
        assert!(!backlog.is_empty() && backlog.is_due_again());
        assert!(backlog.is_empty() && !backlog.is_due_again());
    }
}
