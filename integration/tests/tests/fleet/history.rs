//! Histories of concurrent clients, and whether they are linearizable: whether each request can be thought to happen at one
//! moment between its call and its return, so that all outcomes are those of one register per DAG.
//!
//! The search is Wing and Gong's with Lowe's memoization: what was linearized and the state that it led to are tried once.
//! Requests whose outcome nobody knows may have happened at any time after their call, or never. Histories of different
//! DAGs are checked apart, which loses nothing: a history is linearizable if each object's is.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// States that are looked at before a search is given up.
const STATES_MAX: usize = 5_000_000;

/// Value of a DAG at a moment: a value that no other write has written, or absent.
pub type Register = Option<u64>;

/// Request about one DAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Create(u64),
    Read,
    /// If a value is expected, only over that one.
    Update {
        expected: Option<u64>,
        to: u64,
    },
    Delete {
        expected: Option<u64>,
    },
}

/// Answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Done,
    /// It exists, and cannot be created.
    Exists,
    Absent,
    /// It is not what was expected.
    Changed,
    Found(u64),
    /// Nobody knows whether it was done, or will be.
    Unknown,
}

/// A request about one DAG.
#[derive(Clone, Copy)]
pub struct Entry {
    pub client: usize,
    pub asked: Asked,
    pub told: Told,
    /// Nanoseconds since the history began.
    pub called: u64,
    /// `None`: it did not return.
    pub returned: Option<u64>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |at: u64| at as f64 / 1e6;
        write!(f, "client {} from {:.3} ms", self.client, millis(self.called))?;
        if let Some(returned) = self.returned {
            write!(f, " to {:.3} ms", millis(returned))?;
        }
        write!(f, ": {:?} -> {:?}", self.asked, self.told)
    }
}

impl Entry {
    fn ends(&self) -> u64 {
        self.returned.unwrap_or(u64::MAX)
    }

    /// The state after it, if it can happen in this one.
    fn step(&self, state: Register) -> Option<Register> {
        let matches = |expected: Option<u64>| expected.is_none() || expected == state;
        let (answer, after) = match self.asked {
            Asked::Read => {
                let told = state.map_or(Told::Absent, Told::Found);
                return (self.told == told).then_some(state);
            }
            Asked::Create(value) => match state {
                None => (Told::Done, Some(value)),
                Some(_) => (Told::Exists, state),
            },
            Asked::Update { expected, to } => match state {
                None => (Told::Absent, None),
                Some(_) if matches(expected) => (Told::Done, Some(to)),
                Some(_) => (Told::Changed, state),
            },
            Asked::Delete { expected } => match state {
                None => (Told::Absent, None),
                Some(_) if matches(expected) => (Told::Done, None),
                Some(_) => (Told::Changed, state),
            },
        };
        match self.told {
            // One that has no effect need not have happened.
            Told::Unknown => (answer == Told::Done).then_some(after),
            told => (told == answer).then_some(after),
        }
    }
}

/// Why a history is not linearizable, or not known to be.
#[derive(Debug)]
#[allow(dead_code, reason = "printed where a test fails")]
pub enum Refused {
    /// Nothing follows from the furthest order that was found; what was next then.
    Contradiction { state: Register, next: Vec<Entry> },
    /// The search took too long.
    Undecided,
}

/// One bit for each request.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done(Vec<u64>);

impl Done {
    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn with(&self, at: usize) -> Self {
        let mut done = self.clone();
        done.0[at / 64] |= 1 << (at % 64);
        done
    }
}

/// Checks the history of one DAG, which is absent at first.
///
/// # Errors
/// It is not linearizable, or not known to be.
pub fn check(history: &[Entry]) -> Result<(), Refused> {
    let mut all = history.to_vec();
    all.retain(|entry| entry.told != Told::Unknown || entry.asked != Asked::Read);
    all.sort_by_key(|entry| entry.called);
    let known = all.iter().filter(|entry| entry.told != Told::Unknown).count();
    let mut seen: HashSet<(Done, Register)> = HashSet::new();
    let mut stack = vec![(Done(vec![0; all.len() / 64 + 1]), None, 0)];
    let mut furthest = (0, None, Vec::new());
    while let Some((done, state, count)) = stack.pop() {
        if count == known {
            return Ok(());
        }
        if seen.len() > STATES_MAX {
            return Err(Refused::Undecided);
        }
        let open = || (0..all.len()).filter(|at| !done.has(*at));
        let first_end = open().map(|at| all[at].ends()).min().unwrap_or(u64::MAX);
        // Whoever was called after another has returned, comes after it.
        let mut next: Vec<usize> = open().take_while(|at| all[*at].called <= first_end).collect();
        if count >= furthest.0 {
            furthest = (count, state, next.iter().map(|at| all[*at]).collect());
        }
        // What ends first is tried first, and what nobody knows of last.
        next.sort_by_key(|at| std::cmp::Reverse(all[*at].ends()));
        for at in next {
            let Some(after) = all[at].step(state) else { continue };
            let then = (done.with(at), after);
            if seen.insert(then.clone()) {
                stack.push((then.0, after, count + usize::from(all[at].told != Told::Unknown)));
            }
        }
    }
    Err(Refused::Contradiction { state: furthest.1, next: furthest.2 })
}

/// Requests about all DAGs.
#[derive(Debug, Default)]
pub struct History(pub BTreeMap<String, Vec<Entry>>);

impl History {
    pub fn add(&mut self, dag: &str, entry: Entry) {
        self.0.entry(dag.to_owned()).or_default().push(entry);
    }

    pub fn absorb(&mut self, other: Self) {
        for (dag, entries) in other.0 {
            self.0.entry(dag).or_default().extend(entries);
        }
    }

    pub fn count(&self, is: impl Fn(&Entry) -> bool) -> usize {
        self.0.values().flatten().filter(|entry| is(entry)).count()
    }

    /// # Panics
    /// Where it is not linearizable.
    pub fn judge(&self, context: &str) {
        for (dag, entries) in &self.0 {
            if let Err(refused) = check(entries) {
                for entry in entries {
                    eprintln!("{dag}: {entry:?}");
                }
                panic!("{context}: the history of {dag} is not linearizable: {refused:#?}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn entry(asked: Asked, told: Told, (called, returned): (u64, u64)) -> Entry {
        let returned = (told != Told::Unknown).then_some(returned);
        Entry { client: 0, asked, told, called, returned }
    }

    fn is_fine(entries: &[Entry]) -> bool {
        check(entries).is_ok()
    }

    const READ: Asked = Asked::Read;
    const DELETE: Asked = Asked::Delete { expected: None };

    #[test]
    fn what_happens_one_after_the_other_is_as_a_register_says() {
        let create = entry(Asked::Create(1), Told::Done, (0, 1));
        let update = |expected, told| entry(Asked::Update { expected, to: 2 }, told, (2, 3));
        assert!(is_fine(&[create, update(Some(1), Told::Done)]));
        assert!(is_fine(&[create, update(Some(7), Told::Changed)]));
        assert!(!is_fine(&[create, update(Some(7), Told::Done)]), "a change was overwritten");
        assert!(!is_fine(&[create, update(None, Told::Absent)]), "what was acknowledged is lost");
        assert!(!is_fine(&[create, entry(Asked::Create(2), Told::Done, (2, 3))]), "made twice");
        assert!(!is_fine(&[create, entry(READ, Told::Absent, (2, 3))]), "lost");
        assert!(!is_fine(&[entry(READ, Told::Found(1), (0, 1))]), "nobody wrote it");
    }

    #[test]
    fn readers_agree_about_what_came_first() {
        let created = entry(Asked::Create(1), Told::Done, (0, 1));
        let gone = entry(DELETE, Told::Done, (2, 9));
        let absent = entry(READ, Told::Absent, (3, 4));
        assert!(is_fine(&[created, gone, absent, entry(READ, Told::Found(1), (3, 5))]));
        let late = entry(READ, Told::Found(1), (5, 6));
        assert!(!is_fine(&[created, gone, absent, late]), "a read after another one is older");
    }

    #[test]
    fn what_nobody_knows_of_may_happen_late_or_never_but_once() {
        let open = entry(Asked::Create(1), Told::Unknown, (0, 0));
        let read = |told, at| entry(READ, told, (at, at + 1));
        assert!(is_fine(&[open, read(Told::Absent, 2), read(Told::Found(1), 4)]));
        assert!(is_fine(&[open, read(Told::Absent, 2)]));
        assert!(!is_fine(&[open, read(Told::Found(1), 2), read(Told::Absent, 4)]));
        let other = entry(DELETE, Told::Done, (4, 5));
        let again = [open, read(Told::Found(1), 2), other, read(Told::Found(1), 6)];
        assert!(!is_fine(&again), "it happened twice");
    }

    /// All orders of a few requests, tried one by one.
    fn slowly(left: &[Entry], state: Register) -> bool {
        if left.iter().all(|entry| entry.told == Told::Unknown) {
            return true;
        }
        (0..left.len()).any(|at| {
            let mut rest = left.to_vec();
            let entry = rest.remove(at);
            let is_first = rest.iter().all(|other| entry.called <= other.ends());
            is_first && entry.step(state).is_some_and(|state| slowly(&rest, state))
        })
    }

    #[test]
    fn it_says_what_all_orders_say() {
        let mut rng = ChaCha8Rng::seed_from_u64(20);
        let (mut fine, mut wrong) = (0, 0);
        for _ in 0..4_000 {
            let history: Vec<Entry> = (0..rng.random_range(1..7))
                .map(|_| {
                    let value = rng.random_range(1..3);
                    let expected = rng.random_bool(0.5).then_some(value);
                    let writes = [Told::Done, Told::Done, Told::Unknown];
                    let write = writes[rng.random_range(0..3)];
                    let refused = [Told::Changed, Told::Absent][rng.random_range(0..2)];
                    let told = if rng.random_bool(0.7) { write } else { refused };
                    let (asked, told) = match rng.random_range(0..5) {
                        0 if told == refused => (Asked::Create(value), Told::Exists),
                        0 => (Asked::Create(value), told),
                        1 => (Asked::Update { expected, to: value + 2 }, told),
                        2 => (Asked::Delete { expected }, told),
                        3 => (READ, Told::Absent),
                        _ => (READ, Told::Found(rng.random_range(1..5))),
                    };
                    let called = rng.random_range(0..12);
                    entry(asked, told, (called, called + rng.random_range(1..8)))
                })
                .collect();
            let is = slowly(&history, None);
            assert_eq!(is_fine(&history), is, "{history:#?}");
            (fine, wrong) = (fine + usize::from(is), wrong + usize::from(!is));
        }
        assert!(fine > 400 && wrong > 400, "{fine} fine, {wrong} wrong");
    }
}
