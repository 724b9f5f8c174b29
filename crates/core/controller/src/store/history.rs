//! Ended things that are remembered for a while, by owner, so that no owner's push out another's.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::Timestamp;
use snic_domain::limits::OPERATION_KEPT;

/// Names of things that have ended, by owner and by age. An owner has as many as its limit; in all
/// there are at most owners × limit. Each verb takes time O(log names).
#[derive(Debug)]
pub(crate) struct History<O, K> {
    of: BTreeMap<O, BTreeSet<(Timestamp, K)>>,
    by_age: BTreeMap<(Timestamp, K), O>,
    /// Most names of an owner.
    limit: fn(&O) -> usize,
    /// Entries over an owner's limit, to be forgotten.
    surplus: Vec<K>,
}

impl<O: Ord + Clone, K: Ord + Clone> History<O, K> {
    /// Nothing, with this limit for each owner.
    pub const fn new(limit: fn(&O) -> usize) -> Self {
        Self { of: BTreeMap::new(), by_age: BTreeMap::new(), limit, surplus: Vec::new() }
    }

    /// Something of an owner ended. Its oldest goes where that makes too many.
    pub fn note(&mut self, owner: O, at: Timestamp, name: K) {
        let own = self.of.entry(owner.clone()).or_default();
        own.insert((at, name.clone()));
        if own.len() > (self.limit)(&owner)
            && let Some(oldest) = own.pop_first()
        {
            self.by_age.remove(&oldest);
            self.surplus.push(oldest.1.clone());
            if oldest == (at, name.clone()) {
                return; // Older than all that its owner has, as it may come from a store.
            }
        }
        self.by_age.insert((at, name), owner);
    }

    /// Something is gone that ended then.
    pub fn remove(&mut self, at: Timestamp, name: &K) {
        let entry = (at, name.clone());
        let Some(owner) = self.by_age.remove(&entry) else {
            self.surplus.retain(|surplus| surplus != name);
            return;
        };
        if let Some(own) = self.of.get_mut(&owner) {
            own.remove(&entry);
            if own.is_empty() {
                self.of.remove(&owner);
            }
        }
    }

    /// The next name to forget: one too many of its owner's, or one that ended too long ago.
    pub fn forget(&mut self, now: Timestamp) -> Option<K> {
        if let Some(surplus) = self.surplus.pop() {
            return Some(surplus);
        }
        let ((at, name), _) = self.by_age.first_key_value()?;
        if now.since(*at) < OPERATION_KEPT {
            return None;
        }
        let (at, name) = (*at, name.clone());
        self.remove(at, &name);
        Some(name)
    }

    /// All names of an owner, which is gone.
    pub fn retire(&mut self, owner: &O) -> Vec<K> {
        let own = self.of.remove(owner).unwrap_or_default();
        own.iter().for_each(|entry| drop(self.by_age.remove(entry)));
        own.into_iter().map(|(_, name)| name).collect()
    }

    /// The names that are remembered, each with its owner.
    pub fn names(&self) -> impl Iterator<Item = (&O, &K)> {
        self.by_age.iter().map(|((_, name), owner)| (owner, name))
    }

    /// Every invariant, recomputed from scratch; says which is broken. Time O(names · log names).
    pub fn check(&self) -> Result<(), String> {
        let of =
            self.of.iter().flat_map(|(owner, own)| own.iter().map(move |entry| (entry, owner)));
        let both: BTreeMap<_, _> = of.collect();
        if !both.into_iter().eq(&self.by_age) {
            return Err("what is remembered of each owner is not what is remembered in all".into());
        }
        match self.of.iter().find(|(owner, own)| own.is_empty() || own.len() > (self.limit)(owner))
        {
            Some((_, own)) => Err(format!("{} names of an owner are remembered", own.len())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    /// The letters that are to be forgotten now.
    fn forgotten(history: &mut History<u8, char>, now: Timestamp) -> String {
        std::iter::from_fn(|| history.forget(now)).collect()
    }

    #[test]
    fn an_owner_pushes_out_only_its_own() {
        let mut history = History::new(|owner: &u8| if *owner == 0 { 4 } else { 2 });
        for (owner, name) in [(1, 'a'), (2, 'b'), (1, 'c'), (0, 'd'), (1, 'e'), (1, 'f')] {
            history.note(owner, at(1), name);
            history.check().expect("consistent");
        }
        assert_eq!(forgotten(&mut history, at(1)), "ca");
        assert_eq!(history.names().count(), 4);
        history.note(2, at(0), 'g');
        history.note(2, at(0), 'h');
        assert_eq!(forgotten(&mut history, at(1)), "g", "the oldest, not the last that came");
        history.check().expect("consistent");
    }

    #[test]
    fn old_entries_are_dropped_oldest_first_and_never_returned() {
        let mut history = History::new(|_: &u8| 9);
        for (second, name) in [(3, 'c'), (1, 'a'), (2, 'b'), (4, 'd')] {
            history.note(1, at(second), name);
        }
        history.remove(at(2), &'b');
        assert_eq!(forgotten(&mut history, at(3) + OPERATION_KEPT), "ac");
        history.check().expect("consistent");
        assert_eq!(history.retire(&1), ['d']);
        assert_eq!(history.names().count(), 0);
        history.check().expect("consistent");
    }

    /// A thing that ended, as the model remembers it.
    #[derive(Debug, Clone, PartialEq)]
    struct EndedOperation {
        owner: u8,
        at: Timestamp,
        name: u16,
    }

    proptest! {
        /// Against a list: an owner keeps its newest, all that is older than the time goes, and nobody's
        /// things push out another's.
        #[test]
        fn it_is_a_list_with_a_limit_for_each_owner(
            steps in prop::collection::vec((0u8..3, 0u64..20, 0u8..8), 0..60),
        ) {
            const LIMIT: usize = 4;
            let mut history = History::new(|_: &u8| LIMIT);
            let mut model: Vec<EndedOperation> = Vec::new();
            let mut surplus: Vec<u16> = Vec::new();
            for (name, (owner, second, what)) in (0u16..).zip(steps) {
                match what {
                    0 => {
                        let mut gone = history.retire(&owner);
                        gone.sort_unstable();
                        let mut expected: Vec<u16> =
                            model.iter().filter(|e| e.owner == owner).map(|e| e.name).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(gone, expected);
                        model.retain(|ended| ended.owner != owner);
                    }
                    1 if !model.is_empty() => {
                        let ended = model.remove(usize::from(name) % model.len());
                        history.remove(ended.at, &ended.name);
                    }
                    _ => {
                        history.note(owner, at(second), name);
                        model.push(EndedOperation { owner, at: at(second), name });
                        model.sort_by_key(|ended| (ended.at, ended.name));
                        if model.iter().filter(|ended| ended.owner == owner).count() > LIMIT {
                            let oldest = model.iter().position(|ended| ended.owner == owner);
                            surplus.push(model.remove(oldest.expect("it has some")).name);
                        }
                    }
                }
                prop_assert_eq!(history.check(), Ok(()));
                let names: Vec<(u8, u16)> = history.names().map(|(o, n)| (*o, *n)).collect();
                let expected: Vec<(u8, u16)> = model.iter().map(|e| (e.owner, e.name)).collect();
                prop_assert_eq!(names, expected);
            }
            let now = at(10) + OPERATION_KEPT;
            let mut gone: Vec<u16> = std::iter::from_fn(|| history.forget(now)).collect();
            gone.sort_unstable();
            let old = model.iter().filter(|ended| ended.at <= at(10)).map(|ended| ended.name);
            let mut expected: Vec<u16> = surplus.into_iter().chain(old).collect();
            expected.sort_unstable();
            prop_assert_eq!(gone, expected);
        }
    }
}
