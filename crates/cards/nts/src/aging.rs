//! A table of bounded size whose entries age: flows, mappings, fragments, cached values.
//!
//! An entry belongs to a class, and all entries of a class live equally long from their last use. So
//! each class is a list in the order of use, its head expires first, and neither expiry nor eviction
//! has to search. The capacity is allocated when the table is made; nothing is allocated later.
//!
//! The owner removes expired entries ([`AgingTable::expired`]), since it may have to clean up with
//! them; a lookup says whether an entry has expired.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use siphasher::sip::SipHasher13;
use snic_domain::Timestamp;

/// Hashes with a key that senders do not know, so that they cannot make flows collide.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyedHash(pub u64, pub u64);

impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

/// Names an entry until it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryId(u32);

/// Names an entry until it is removed, or its owner ends all tickets for it ([`AgingTable::end_tickets`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryTicket {
    id: EntryId,
    stamp: u64,
    class: usize,
}

impl EntryTicket {
    /// The entry, as long as the ticket is valid.
    pub(crate) const fn id(self) -> EntryId {
        self.id
    }
}

/// No entry, in links.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    class: usize,
    used: Timestamp,
    expires: Timestamp,
    before: u32,
    after: u32,
    /// Number that tickets carry; each is given once.
    stamp: u64,
}

#[derive(Debug, Clone, Copy)]
struct Class {
    lifetime: Duration,
    oldest: u32,
    newest: u32,
}

/// The table. `CLASSES` lifetimes.
#[derive(Debug)]
pub(crate) struct AgingTable<K, V, const CLASSES: usize> {
    index: HashMap<K, u32, KeyedHash>,
    entries: Vec<Option<Entry<K, V>>>,
    free: Vec<u32>,
    classes: [Class; CLASSES],
    capacity: usize,
    /// Stamps that were given.
    stamps: u64,
}

/// The result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// It is in the table.
    Fresh(EntryId),
    /// It is in the table but has expired: remove it first.
    Expired(EntryId),
    /// It is not in the table.
    Absent,
}

impl<K: Copy + Eq + Hash, V, const CLASSES: usize> AgingTable<K, V, CLASSES> {
    /// An empty table for `capacity` entries.
    pub(crate) fn new(capacity: usize, lifetimes: [Duration; CLASSES], hash: KeyedHash) -> Self {
        assert!(capacity < NONE as usize, "links have 32 bits");
        Self {
            // Twice the capacity: then a table full of removed entries is cleaned in place and
            // never grows.
            index: HashMap::with_capacity_and_hasher(2 * capacity, hash),
            entries: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            classes: lifetimes.map(|lifetime| Class { lifetime, oldest: NONE, newest: NONE }),
            capacity,
            stamps: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    pub(crate) fn lookup(&self, key: &K, now: Timestamp) -> Lookup {
        match self.index.get(key) {
            Some(&slot) if self.at(slot).expires <= now => Lookup::Expired(EntryId(slot)),
            Some(&slot) => Lookup::Fresh(EntryId(slot)),
            None => Lookup::Absent,
        }
    }

    /// Adds an entry; `None` when the table is full. The key must not be in the table yet.
    pub(crate) fn insert(
        &mut self,
        key: K,
        value: V,
        class: usize,
        now: Timestamp,
    ) -> Option<EntryId> {
        if self.is_full() {
            return None;
        }
        let expires = now + self.classes[class].lifetime;
        self.stamps += 1;
        let stamp = self.stamps;
        let (before, after) = (NONE, NONE);
        let entry = Entry { key, value, class, used: now, expires, before, after, stamp };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = Some(entry);
                slot
            }
            None => {
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as u32
            }
        };
        let former = self.index.insert(key, slot);
        assert!(former.is_none(), "a key is looked up before it is inserted");
        self.link(slot);
        Some(EntryId(slot))
    }

    pub(crate) fn remove(&mut self, id: EntryId) -> (K, V) {
        self.unlink(id.0);
        let entry = self.entries[id.0 as usize].take().expect("an id names an entry");
        self.index.remove(&entry.key);
        self.free.push(id.0);
        (entry.key, entry.value)
    }

    /// Restarts the entry's lifetime, in `class`.
    pub(crate) fn touch(&mut self, id: EntryId, class: usize, now: Timestamp) {
        self.unlink(id.0);
        let expires = now + self.classes[class].lifetime;
        let entry = self.at_mut(id.0);
        (entry.class, entry.used, entry.expires) = (class, now, expires);
        self.link(id.0);
    }

    /// A ticket for an entry in the class that it is in.
    pub(crate) fn ticket(&self, id: EntryId) -> EntryTicket {
        let entry = self.at(id.0);
        EntryTicket { id, stamp: entry.stamp, class: entry.class }
    }

    /// Ends all tickets for an entry: something about it changed that they rely on.
    pub(crate) fn end_tickets(&mut self, id: EntryId) {
        self.stamps += 1;
        self.at_mut(id.0).stamp = self.stamps;
    }

    /// Whether a ticket is valid.
    pub(crate) fn is_valid(&self, ticket: EntryTicket) -> bool {
        self.ticketed(ticket).is_some()
    }

    /// Whether a ticket is valid, and its entry has not expired and is in the same class.
    pub(crate) fn is_steady(&self, ticket: EntryTicket, now: Timestamp) -> bool {
        self.ticketed(ticket)
            .is_some_and(|entry| entry.class == ticket.class && entry.expires > now)
    }

    fn ticketed(&self, ticket: EntryTicket) -> Option<&Entry<K, V>> {
        let entry = self.entries.get(ticket.id.0 as usize)?.as_ref()?;
        (entry.stamp == ticket.stamp).then_some(entry)
    }

    /// Restarts the lifetime of a ticket's entry in its class.
    pub(crate) fn touch_steady(&mut self, ticket: EntryTicket, now: Timestamp) {
        self.touch(ticket.id, ticket.class, now);
    }

    pub(crate) fn class(&self, id: EntryId) -> usize {
        self.at(id.0).class
    }

    pub(crate) fn key(&self, id: EntryId) -> K {
        self.at(id.0).key
    }

    pub(crate) fn value(&self, id: EntryId) -> &V {
        &self.at(id.0).value
    }

    pub(crate) fn value_mut(&mut self, id: EntryId) -> &mut V {
        &mut self.at_mut(id.0).value
    }

    /// An expired entry.
    pub(crate) fn expired(&self, now: Timestamp) -> Option<EntryId> {
        let heads = self.classes.iter().map(|class| class.oldest).filter(|slot| *slot != NONE);
        heads.into_iter().find(|slot| self.at(*slot).expires <= now).map(EntryId)
    }

    /// The entry of `class` that was used longest ago.
    pub(crate) fn oldest(&self, class: usize) -> Option<EntryId> {
        let slot = self.classes[class].oldest;
        (slot != NONE).then_some(EntryId(slot))
    }

    /// Time since an entry was last used. One that was added with an age counts from then, so it is never
    /// taken for longer unused than it is.
    pub(crate) fn idle(&self, id: EntryId, now: Timestamp) -> Duration {
        now.since(self.at(id.0).used)
    }

    /// All entries, class by class, the least recently used first, with the time they have left.
    pub(crate) fn iter(&self, now: Timestamp) -> impl Iterator<Item = AgedEntry<'_, K, V>> + '_ {
        (0..CLASSES).flat_map(move |class| {
            let mut next = self.classes[class].oldest;
            std::iter::from_fn(move || {
                if next == NONE {
                    return None;
                }
                let entry = self.at(next);
                next = entry.after;
                let left = entry.expires.since(now);
                Some(AgedEntry { key: &entry.key, value: &entry.value, class, left })
            })
        })
    }

    /// Adds an entry that lives as long as `age` says, at most as its class allows. Entries of a class are
    /// to be added in the order of [`AgingTable::iter`].
    pub(crate) fn insert_aged(
        &mut self,
        key: K,
        value: V,
        age: EntryAge,
        now: Timestamp,
    ) -> Option<EntryId> {
        let id = self.insert(key, value, age.class, now)?;
        let before = self.at(id.0).before;
        let earliest = if before == NONE { Timestamp::ZERO } else { self.at(before).expires };
        let entry = self.at_mut(id.0);
        entry.expires = entry.expires.min(now + age.left).max(earliest);
        Some(id)
    }

    fn at(&self, slot: u32) -> &Entry<K, V> {
        self.entries[slot as usize].as_ref().expect("an id names an entry")
    }

    fn at_mut(&mut self, slot: u32) -> &mut Entry<K, V> {
        self.entries[slot as usize].as_mut().expect("an id names an entry")
    }

    /// Appends the entry to its class.
    fn link(&mut self, slot: u32) {
        let class = self.at(slot).class;
        let last = std::mem::replace(&mut self.classes[class].newest, slot);
        let entry = self.at_mut(slot);
        (entry.before, entry.after) = (last, NONE);
        match last {
            NONE => self.classes[class].oldest = slot,
            last => self.at_mut(last).after = slot,
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Entry { class, before, after, .. } = *self.at(slot);
        match before {
            NONE => self.classes[class].oldest = after,
            before => self.at_mut(before).after = after,
        }
        match after {
            NONE => self.classes[class].newest = before,
            after => self.at_mut(after).before = before,
        }
    }
}

/// Age of an entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryAge {
    /// Class of its table, each with a lifetime.
    pub(crate) class: usize,
    /// Time to live.
    pub(crate) left: Duration,
}

/// An entry with its age.
pub(crate) struct AgedEntry<'a, K, V> {
    pub(crate) key: &'a K,
    pub(crate) value: &'a V,
    pub(crate) class: usize,
    pub(crate) left: Duration,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const LIFETIMES: [Duration; 2] = [Duration::from_nanos(10), Duration::from_nanos(30)];

    #[derive(Debug, Clone)]
    enum Step {
        Use(u8, usize),
        Remove(u8),
        Wait(u64),
        Evict(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..12_u8, 0..2_usize).prop_map(|(key, class)| Step::Use(key, class)),
            1 => (0..12_u8).prop_map(Step::Remove),
            2 => (0..15_u64).prop_map(Step::Wait),
            1 => (0..2_usize).prop_map(Step::Evict),
        ];
        prop::collection::vec(step, 0..200)
    }

    /// The same without lists: every entry with when it was used and when it expires.
    #[derive(Default)]
    struct Slow {
        entries: BTreeMap<u8, (usize, u64, u64)>,
    }

    impl Slow {
        fn oldest(&self, class: usize) -> Option<u8> {
            let of_class = self.entries.iter().filter(|(_, entry)| entry.0 == class);
            of_class.min_by_key(|(_, entry)| entry.2).map(|(key, _)| *key)
        }
    }

    proptest! {
        #[test]
        fn entries_live_as_a_slow_table_says(steps in steps()) {
            const CAPACITY: usize = 8;
            let mut table = AgingTable::new(CAPACITY, LIFETIMES, KeyedHash(1, 2));
            let mut slow = Slow::default();
            let (mut now, mut turn) = (0, 0);
            for step in steps {
                let at = Timestamp::from_nanos(now);
                while let Some(id) = table.expired(at) {
                    let (key, ()) = table.remove(id);
                    let (_, expires, _) = slow.entries.remove(&key).unwrap();
                    prop_assert!(expires <= now);
                }
                prop_assert!(slow.entries.values().all(|(_, expires, _)| *expires > now));
                turn += 1;
                match step {
                    Step::Use(key, class) => {
                        let expires = now + LIFETIMES[class].as_nanos() as u64;
                        let is_kept = match table.lookup(&key, at) {
                            Lookup::Fresh(id) => {
                                table.touch(id, class, at);
                                true
                            }
                            Lookup::Expired(_) => unreachable!("removed above"),
                            Lookup::Absent => table.insert(key, (), class, at).is_some(),
                        };
                        let has_room = slow.entries.len() < CAPACITY;
                        prop_assert_eq!(is_kept, has_room || slow.entries.contains_key(&key));
                        if is_kept {
                            slow.entries.insert(key, (class, expires, turn));
                        }
                    }
                    Step::Remove(key) => {
                        if let Lookup::Fresh(id) = table.lookup(&key, at) {
                            table.remove(id);
                        }
                        slow.entries.remove(&key);
                    }
                    Step::Wait(nanos) => now += nanos,
                    Step::Evict(class) => {
                        let oldest = table.oldest(class).map(|id| table.remove(id).0);
                        prop_assert_eq!(oldest, slow.oldest(class));
                        oldest.map(|key| slow.entries.remove(&key));
                    }
                }
                prop_assert_eq!(table.len(), slow.entries.len());
            }
        }

        #[test]
        fn entries_keep_their_order_and_time_through_a_copy(uses in prop::collection::vec((0..9_u8, 0..2_usize), 0..40)) {
            let mut table = AgingTable::<u8, (), 2>::new(16, LIFETIMES, KeyedHash(1, 2));
            for (now, (key, class)) in uses.iter().enumerate() {
                let at = Timestamp::from_nanos(now as u64 / 8);
                match table.lookup(key, at) {
                    Lookup::Fresh(id) => table.touch(id, *class, at),
                    _ => drop(table.insert(*key, (), *class, at)),
                }
            }
            let (now, later) = (Timestamp::from_nanos(5), Timestamp::from_nanos(1_000));
            let list = |table: &AgingTable<u8, (), 2>, now| -> Vec<_> {
                table.iter(now).map(|aged| (*aged.key, aged.class, aged.left)).collect()
            };
            let mut copy = AgingTable::<u8, (), 2>::new(16, LIFETIMES, KeyedHash(3, 4));
            for (key, class, left) in list(&table, now) {
                copy.insert_aged(key, (), EntryAge { class, left }, later);
            }
            prop_assert_eq!(list(&copy, later), list(&table, now));
        }
    }

    #[test]
    fn a_full_table_never_grows() {
        let mut table = AgingTable::<u32, (), 1>::new(100, [Duration::MAX], KeyedHash(5, 6));
        let before = table.index.capacity();
        for key in 0..100_000 {
            if table.is_full() {
                table.remove(table.oldest(0).unwrap());
            }
            table.insert(key, (), 0, Timestamp::ZERO).unwrap();
        }
        // Removed entries take room until they are cleaned up; only growing would add any.
        assert!(table.index.capacity() <= before);
        assert_eq!(table.entries.capacity(), 100);
    }
}
