//! Order of work on objects: one worker for an object at a time, namespaces in turn, storms coalesced.
//!
//! ```text
//!  add ──► waiting for its time ──► ready, in the queue of its namespace ──► running ──► idle
//!             ▲                                                               │ changed meanwhile, or to be retried
//!             └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! An object that changes all the time is worked on in bursts and then once a second, whatever happens to it between. A
//! namespace has a few workers at most, so that the objects of one, however many or slow, leave the others to those of others.
//! There is no clock here: the caller says what time it is.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::object::ObjectKey;

/// Least interval between works on one object, after a burst.
pub const SPACING: Duration = Duration::from_secs(1);
/// Works on one object that may follow each other at once: more than creating or changing a DAG takes.
pub const BURST: u32 = 8;
/// Most workers for one namespace. With one, an object whose change waits for room on the server would hold back the others.
pub const NAMESPACE_WORKERS_MAX: usize = 2;
/// Most workers: each holds an object of up to 1.5 MiB, the largest that the API server stores.
pub const WORKERS_MAX: usize = 64;
/// Longest wait before a retry.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(60);
/// Changes of a DAG in a row that are not followed by a state in which nothing is left to do, before the next one has to wait.
const CHANGES_FREE: u32 = 3;

/// Result of work on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkResult {
    /// Nothing is left to do.
    Settled,
    /// The DAG was changed; the server reports how that goes.
    Changed,
    /// It is to be tried again later.
    Retry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryState {
    Idle,
    Waiting(Instant),
    Ready,
    Running { again: bool },
}

#[derive(Debug)]
struct QueueEntry {
    state: EntryState,
    /// Works in a row after which something was left to do.
    attempts: u32,
    /// No work before, after a failure.
    held_until: Instant,
    /// Theoretical time of the next work, if works came at [`SPACING`]: the generic cell rate algorithm (ITU-T I.371).
    next_regular: Instant,
}

impl QueueEntry {
    /// Earliest time of the next work.
    fn earliest(&self) -> Instant {
        let burst = SPACING * (BURST - 1);
        let by_rate = self.next_regular.checked_sub(burst).unwrap_or(self.next_regular);
        by_rate.max(self.held_until)
    }
}

/// Objects that are to be worked on.
#[derive(Debug, Default)]
pub struct NamespaceQueue {
    entries: HashMap<ObjectKey, QueueEntry>,
    timers: BTreeSet<(Instant, ObjectKey)>,
    /// Ready objects by namespace.
    ready: BTreeMap<String, VecDeque<ObjectKey>>,
    /// Namespaces with ready objects, in turn.
    turns: VecDeque<String>,
    running: BTreeMap<String, usize>,
    running_total: usize,
}

/// The wait before a retry: doubled with each attempt.
fn back_off(attempts: u32) -> Duration {
    let doubled = SPACING.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    doubled.min(BACK_OFF_MAX)
}

impl NamespaceQueue {
    /// Wants an object to be worked on. What its owner has changed (`is_new`) does not wait for the retry of what was before.
    pub fn add(&mut self, key: &ObjectKey, is_new: bool, now: Instant) {
        let entry = self.entries.entry(key.clone()).or_insert_with(|| QueueEntry {
            state: EntryState::Idle,
            attempts: 0,
            held_until: now,
            next_regular: now,
        });
        if is_new {
            (entry.attempts, entry.held_until) = (0, now);
        }
        match entry.state {
            EntryState::Ready => {}
            EntryState::Running { .. } => entry.state = EntryState::Running { again: true },
            EntryState::Idle => self.wait(key),
            EntryState::Waiting(at) => {
                self.timers.remove(&(at, key.clone()));
                self.wait(key);
            }
        }
    }

    fn wait(&mut self, key: &ObjectKey) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let at = entry.earliest();
        entry.state = EntryState::Waiting(at);
        self.timers.insert((at, key.clone()));
    }

    /// Forgets objects that have nothing to wait for and no rate to be held to.
    ///
    /// An object that is created again under its name at once is held to the rate of the one before.
    pub fn forget_idle(&mut self, is_known: impl Fn(&ObjectKey) -> bool, now: Instant) {
        self.entries.retain(|key, entry| {
            entry.state != EntryState::Idle || entry.next_regular > now || is_known(key)
        });
    }

    fn promote(&mut self, now: Instant) {
        while let Some((at, key)) = self.timers.pop_first() {
            if at > now {
                self.timers.insert((at, key));
                return;
            }
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.state = EntryState::Ready;
                let ready = self.ready.entry(key.namespace.clone()).or_default();
                if ready.is_empty() {
                    self.turns.push_back(key.namespace.clone());
                }
                ready.push_back(key);
            }
        }
    }

    /// The next object to be worked on, if a worker may begin now.
    pub fn next(&mut self, now: Instant) -> Option<ObjectKey> {
        self.promote(now);
        if self.running_total >= WORKERS_MAX {
            return None;
        }
        for _ in 0..self.turns.len() {
            let namespace = self.turns.pop_front()?;
            if self.running.get(&namespace).is_some_and(|busy| *busy >= NAMESPACE_WORKERS_MAX) {
                self.turns.push_back(namespace);
                continue;
            }
            let ready = self.ready.get_mut(&namespace)?;
            let key = ready.pop_front()?;
            if ready.is_empty() {
                self.ready.remove(&namespace);
            } else {
                self.turns.push_back(namespace.clone());
            }
            let entry = self.entries.get_mut(&key)?;
            entry.state = EntryState::Running { again: false };
            entry.next_regular = entry.next_regular.max(now) + SPACING;
            *self.running.entry(namespace).or_default() += 1;
            self.running_total += 1;
            return Some(key);
        }
        None
    }

    /// Ends the work on an object.
    pub fn done(&mut self, key: &ObjectKey, result: WorkResult, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let EntryState::Running { again } = entry.state else { return };
        match result {
            WorkResult::Settled => entry.attempts = 0,
            WorkResult::Changed => {
                entry.attempts += 1;
                if entry.attempts > CHANGES_FREE {
                    entry.held_until = now + back_off(entry.attempts - CHANGES_FREE);
                }
            }
            WorkResult::Retry => {
                entry.attempts += 1;
                entry.held_until = now + back_off(entry.attempts);
            }
        }
        entry.state = EntryState::Idle;
        if again || result == WorkResult::Retry {
            self.wait(key);
        }
        self.running_total -= 1;
        if let Some(busy) = self.running.get_mut(&key.namespace) {
            *busy -= 1;
            if *busy == 0 {
                self.running.remove(&key.namespace);
            }
        }
    }

    /// Time of the next object that becomes ready.
    pub fn next_time(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn a_storm_on_one_object_is_a_burst_and_then_one_work_a_second() {
        let (mut queue, start, web) =
            (NamespaceQueue::default(), Instant::now(), key("shop", "web"));
        let mut works = Vec::new();
        // 100 changes a second for a minute.
        for step in 0..6_000 {
            let now = after(start, step * 10);
            queue.add(&web, true, now);
            if let Some(key) = queue.next(now) {
                works.push(step * 10);
                queue.done(&key, WorkResult::Changed, now);
            }
        }
        assert_eq!(works[..8], [0, 10, 20, 30, 40, 50, 60, 70]);
        assert!(works[8..].windows(2).all(|pair| pair[1] - pair[0] == 1_000), "{works:?}");
        assert_eq!(works.len(), 8 + 59);
    }

    #[test]
    fn the_last_change_of_a_storm_is_not_lost() {
        let (mut queue, start, web) =
            (NamespaceQueue::default(), Instant::now(), key("shop", "web"));
        queue.add(&web, true, start);
        assert_eq!(queue.next(start), Some(web.clone()));
        for _ in 0..100 {
            queue.add(&web, true, start);
        }
        assert_eq!(queue.next(start), None, "one worker for an object");
        queue.done(&web, WorkResult::Settled, start);
        assert_eq!(queue.next(start), Some(web.clone()));
        queue.done(&web, WorkResult::Settled, start);
        assert_eq!((queue.next(start), queue.next_time()), (None, None));
    }

    #[test]
    fn namespaces_take_turns_however_many_objects_one_has() {
        let (mut queue, now) = (NamespaceQueue::default(), Instant::now());
        for number in 0..1_000 {
            queue.add(&key("bank", &format!("a{number:03}")), true, now);
        }
        queue.add(&key("shop", "web"), true, now);
        let begun: Vec<String> =
            std::iter::from_fn(|| queue.next(now)).map(|key| key.to_string()).collect();
        assert_eq!(begun, ["bank/a000", "shop/web", "bank/a001"]);
        queue.done(&key("bank", "a000"), WorkResult::Settled, now);
        assert_eq!(queue.next(now), Some(key("bank", "a002")));
    }

    #[test]
    fn workers_are_bounded() {
        let (mut queue, now) = (NamespaceQueue::default(), Instant::now());
        for number in 0..100 {
            queue.add(&key(&format!("n{number:03}"), "web"), true, now);
        }
        assert_eq!(std::iter::from_fn(|| queue.next(now)).count(), WORKERS_MAX);
        queue.done(&key("n007", "web"), WorkResult::Settled, now);
        assert_eq!(queue.next(now), Some(key("n064", "web")));
    }

    #[test]
    fn failures_wait_longer_each_time_and_a_new_specification_does_not() {
        let (mut queue, start, web) =
            (NamespaceQueue::default(), Instant::now(), key("shop", "web"));
        queue.add(&web, true, start);
        let (mut now, mut waits) = (start, Vec::new());
        for _ in 0..8 {
            assert_eq!(queue.next(now), Some(web.clone()));
            queue.done(&web, WorkResult::Retry, now);
            // What the server reports of it does not make it earlier.
            queue.add(&web, false, now);
            let next = queue.next_time().expect("it is tried again");
            waits.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(queue.next(now), Some(web.clone()));
        queue.done(&web, WorkResult::Retry, now);
        assert_eq!(queue.next(now), None);
        queue.add(&web, true, now);
        assert_eq!(queue.next(now), Some(web));
    }

    #[test]
    fn changes_that_never_settle_slow_down() {
        let (mut queue, start, web) =
            (NamespaceQueue::default(), Instant::now(), key("shop", "web"));
        let mut works = 0;
        for step in 0..6_000 {
            let now = after(start, step * 10);
            queue.add(&web, step == 0, now);
            if queue.next(now).is_some() {
                works += 1;
                queue.done(&web, WorkResult::Changed, now);
            }
        }
        // At once three and the one that is held for it, then after 1, 2, 4, 8, 16 seconds.
        assert_eq!(works, 4 + 5);
    }

    #[test]
    fn an_object_that_is_created_again_is_held_to_the_same_rate() {
        let (mut queue, now, web) = (NamespaceQueue::default(), Instant::now(), key("shop", "web"));
        for _ in 0..BURST {
            queue.add(&web, true, now);
            assert_eq!(queue.next(now), Some(web.clone()));
            queue.done(&web, WorkResult::Settled, now);
            queue.forget_idle(|_| false, now);
        }
        queue.add(&web, true, now);
        assert_eq!(queue.next(now), None);
        let later = after(now, 60_000);
        assert_eq!(queue.next(later), Some(web.clone()));
        queue.done(&web, WorkResult::Settled, later);
        queue.forget_idle(|_| false, after(later, 60_000));
        assert!(queue.entries.is_empty());
    }
}
