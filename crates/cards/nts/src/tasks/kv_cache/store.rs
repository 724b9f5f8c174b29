//! The cached values: a fixed number of slots of a fixed size; the least recently used value is
//! evicted for a new one.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_domain::Timestamp;

use super::expiry::{left, when};
use crate::aging::{AgingTable, EntryId, KeyedHash, Lookup};
use crate::tasks::memcached::KEY_BYTES_MAX;

/// A key, at its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    length: u8,
}

impl Key {
    /// `None` where it is too long.
    fn new(key: &[u8]) -> Option<Self> {
        let length = u8::try_from(key.len()).ok().filter(|_| key.len() <= KEY_BYTES_MAX)?;
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes[..key.len()].copy_from_slice(key);
        Some(Self { bytes, length })
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

#[derive(Debug, Clone, Copy)]
struct Item {
    place: usize,
    length: usize,
    flags: u32,
    filled: Timestamp,
    /// When it may be over at the server.
    ends: Timestamp,
}

/// A value that is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cached<'a> {
    pub(super) flags: u32,
    pub(super) data: &'a [u8],
}

/// Key, flags, data, age and the time that is left.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedItem {
    key: Vec<u8>,
    flags: u32,
    data: Vec<u8>,
    age: Duration,
    left: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Store {
    items: AgingTable<Key, Item, 1>,
    data: Vec<u8>,
    free: Vec<usize>,
    value_bytes_max: usize,
    age_max: Duration,
}

impl Store {
    pub(super) fn new(
        items_max: usize,
        value_bytes_max: usize,
        age_max: Duration,
        hash: KeyedHash,
    ) -> Self {
        Self {
            items: AgingTable::new(items_max, [Duration::MAX], hash),
            data: vec![0; items_max * value_bytes_max],
            free: (0..items_max).rev().collect(),
            value_bytes_max,
            age_max,
        }
    }

    fn find(&self, key: &[u8]) -> Option<EntryId> {
        match self.items.lookup(&Key::new(key)?, Timestamp::ZERO) {
            Lookup::Fresh(id) => Some(id),
            Lookup::Expired(_) | Lookup::Absent => None,
        }
    }

    /// Whether the value is cached and young enough; if so, it counts as used. One that is too old
    /// is removed.
    pub(super) fn is_hit(&mut self, key: &[u8], now: Timestamp) -> bool {
        let Some(id) = self.find(key) else { return false };
        let item = self.items.value(id);
        if now.since(item.filled) >= self.age_max || now >= item.ends {
            self.give_up(id);
            return false;
        }
        self.items.touch(id, 0, Timestamp::ZERO);
        true
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Cached<'_>> {
        let item = self.items.value(self.find(key)?);
        let start = item.place * self.value_bytes_max;
        Some(Cached { flags: item.flags, data: &self.data[start..start + item.length] })
    }

    /// Keeps a value that was read at a time and may be over at another, unless it is too large.
    pub(super) fn put(
        &mut self,
        key: &[u8],
        value: Cached<'_>,
        filled: Timestamp,
        ends: Timestamp,
    ) {
        let Some(name) = Key::new(key) else { return };
        self.remove(key);
        if value.data.len() > self.value_bytes_max {
            return;
        }
        if self.items.is_full()
            && let Some(oldest) = self.items.oldest(0)
        {
            self.give_up(oldest);
        }
        let Some(place) = self.free.pop() else { return };
        let start = place * self.value_bytes_max;
        self.data[start..start + value.data.len()].copy_from_slice(value.data);
        let item = Item { place, length: value.data.len(), flags: value.flags, filled, ends };
        self.items.insert(name, item, 0, Timestamp::ZERO);
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some(id) = self.find(key) {
            self.give_up(id);
        }
    }

    fn give_up(&mut self, id: EntryId) {
        let (_, item) = self.items.remove(id);
        self.free.push(item.place);
    }

    pub(super) fn clear(&mut self) {
        while let Some(id) = self.items.oldest(0) {
            self.give_up(id);
        }
    }

    pub(super) fn save(&self, now: Timestamp) -> Vec<SavedItem> {
        let items = self.items.iter(Timestamp::ZERO);
        items
            .map(|aged| {
                let start = aged.value.place * self.value_bytes_max;
                SavedItem {
                    key: aged.key.as_slice().to_vec(),
                    flags: aged.value.flags,
                    data: self.data[start..start + aged.value.length].to_vec(),
                    age: now.since(aged.value.filled),
                    left: left(aged.value.ends, now),
                }
            })
            .collect()
    }

    pub(super) fn restore(&mut self, saved: &[SavedItem], now: Timestamp) {
        for item in saved {
            let age = u64::try_from(item.age.as_nanos()).unwrap_or(u64::MAX);
            // Values older than this card's clock cannot be restored: they would count as younger.
            let Some(filled) = now.as_nanos().checked_sub(age) else { continue };
            let value = Cached { flags: item.flags, data: &item.data };
            self.put(&item.key, value, Timestamp::from_nanos(filled), when(item.left, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list in the order of use.
        #[test]
        fn the_least_recently_used_goes(steps in prop::collection::vec((0..3_u8, 0..10_u8, 0..3_u64), 0..200)) {
            let mut store = Store::new(4, 8, Duration::from_nanos(50), KeyedHash(1, 2));
            let mut list: Vec<(u8, Vec<u8>, u64)> = Vec::new(); // used longest ago first
            let mut now = 0;
            for (kind, key, wait) in steps {
                now += wait;
                let at = Timestamp::from_nanos(now);
                let place = list.iter().position(|(k, ..)| *k == key);
                match kind {
                    0 => {
                        let data = vec![key; usize::from(key)];
                        let value = Cached { flags: 1, data: &data };
                        store.put(&[key], value, at, crate::tasks::kv_cache::expiry::NEVER);
                        place.map(|place| list.remove(place));
                        if key <= 8 {
                            if list.len() == 4 {
                                list.remove(0);
                            }
                            list.push((key, data, now));
                        }
                    }
                    1 => {
                        let entry = place.map(|place| list.remove(place));
                        let fresh = entry.filter(|(.., filled)| now - filled < 50);
                        prop_assert_eq!(store.is_hit(&[key], at), fresh.is_some());
                        let data = store.get(&[key]).map(|cached| cached.data.to_vec());
                        prop_assert_eq!(data, fresh.as_ref().map(|(_, data, _)| data.clone()));
                        list.extend(fresh);
                    }
                    _ => {
                        store.remove(&[key]);
                        place.map(|place| list.remove(place));
                    }
                }
                prop_assert_eq!(store.items.len() + store.free.len(), 4);
            }
        }
    }
}
