//! When items end by themselves: expiry times and delayed flushes that passed, so that no value is served
//! after its end.
//!
//! A value that is read tells nothing of its end, so that is remembered from the write. What is not known for
//! sure is a range: an item whose range has begun is neither served nor filled. Where a key finds no room, or a
//! request could not be read, any key that is not known may end at any time, for as long as the longest of them.

use std::hash::BuildHasher;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_domain::Timestamp;

use crate::aging::{AgingTable, KeyedHash, Lookup};
use crate::tasks::memcached::Expiry;

/// Keys whose end is remembered.
const KEYS_MAX: usize = 16_384;
/// Delayed flushes at once; beyond that they become one range.
const FLUSHES_MAX: usize = 8;
/// The server counts whole seconds and may count late, and it flushes a second before the delay is over.
const SERVER_CLOCK_SLACK: Duration = Duration::from_secs(3);
/// Drift of two clocks: one part in so many.
const DRIFT: u32 = 1_000;

/// When an item ends: at the earliest and at the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    earliest: Timestamp,
    latest: Timestamp,
}

impl End {
    /// The end after a delay that counts from when the server got the request: from `written` to `done`.
    fn after(delay: Duration, written: Timestamp, done: Timestamp) -> Self {
        let slack = SERVER_CLOCK_SLACK + delay / DRIFT;
        Self { earliest: written + delay.saturating_sub(slack), latest: done + delay + slack }
    }

    fn and(self, other: Self) -> Self {
        Self { earliest: self.earliest.min(other.earliest), latest: self.latest.max(other.latest) }
    }

    /// Until when something that is read now may be served.
    fn limit(self, now: Timestamp) -> Option<Timestamp> {
        match now {
            _ if now < self.earliest => Some(self.earliest),
            _ if now <= self.latest => None,
            _ => Some(NEVER),
        }
    }

    fn save(self, now: Timestamp) -> SavedEnd {
        (left(self.earliest, now), left(self.latest, now))
    }

    fn restore((earliest, latest): SavedEnd, now: Timestamp) -> Self {
        Self { earliest: when(earliest, now), latest: when(latest, now) }
    }
}

/// The end of what does not end.
pub(super) const NEVER: Timestamp = Timestamp::from_nanos(u64::MAX);

/// The time that is left until something; `None` for ever.
pub(super) fn left(until: Timestamp, now: Timestamp) -> Option<Duration> {
    (until < NEVER).then(|| until.since(now))
}

/// When something is whose time is left.
pub(super) fn when(left: Option<Duration>, now: Timestamp) -> Timestamp {
    left.map_or(NEVER, |left| now + left)
}

/// The time left until the earliest and the latest end.
type SavedEnd = (Option<Duration>, Option<Duration>);

/// State that is saved, with the hash that keys are known by.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedExpiries {
    hash: (u64, u64),
    keys: Vec<(u64, SavedEnd)>,
    others: Option<Duration>,
    flushes: Vec<SavedEnd>,
}

impl SavedExpiries {
    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    pub(super) const fn allowed() -> usize {
        KEYS_MAX
    }
}

/// A write whose answer says when its key ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Confirmation {
    key: u64,
    expiry: Expiry,
    written: Timestamp,
}

/// The ends of keys.
#[derive(Debug)]
pub(super) struct Expiries {
    hash: KeyedHash,
    /// Used longest ago first.
    keys: AgingTable<u64, End, 1>,
    /// Until when any other key may end.
    others_until: Timestamp,
    flushes: [Option<End>; FLUSHES_MAX],
    /// Longest time that a request takes to the server.
    travel_max: Duration,
}

impl Expiries {
    pub(super) fn new(travel_max: Duration, hash: KeyedHash) -> Self {
        Self {
            hash,
            travel_max,
            keys: AgingTable::new(KEYS_MAX, [Duration::MAX], hash),
            others_until: Timestamp::ZERO,
            flushes: [None; FLUSHES_MAX],
        }
    }

    fn end(&self, key: u64, now: Timestamp) -> Option<End> {
        match self.keys.lookup(&key, Timestamp::ZERO) {
            Lookup::Fresh(id) => Some(*self.keys.value(id)),
            Lookup::Expired(_) | Lookup::Absent if now < self.others_until => {
                Some(End { earliest: now, latest: self.others_until })
            }
            Lookup::Expired(_) | Lookup::Absent => None,
        }
    }

    fn set(&mut self, key: u64, end: Option<End>) {
        if let Lookup::Fresh(id) = self.keys.lookup(&key, Timestamp::ZERO) {
            self.keys.remove(id);
        }
        let Some(end) = end else { return };
        if self.keys.is_full()
            && let Some(oldest) = self.keys.oldest(0)
        {
            let (_, forgotten) = self.keys.remove(oldest);
            self.others_until = self.others_until.max(forgotten.latest);
        }
        self.keys.insert(key, end, 0, Timestamp::ZERO);
    }

    /// A write passes: its key may have the new end, or still the old one.
    pub(super) fn write(&mut self, key: &[u8], expiry: Expiry, now: Timestamp) -> Confirmation {
        let key = self.hash.hash_one(key);
        let new = match expiry {
            Expiry::Kept | Expiry::Never => None,
            Expiry::After(delay) => Some(End::after(delay, now, now + self.travel_max)),
            Expiry::Unknown => Some(End { earliest: now, latest: NEVER }),
        };
        if let Some(new) = new {
            // One that is over ends nothing any more.
            let old = self.end(key, now).filter(|old| now <= old.latest);
            self.set(key, Some(old.map_or(new, |old| old.and(new))));
        }
        Confirmation { key, expiry, written: now }
    }

    /// A write was done, and no other one of its key was on its way.
    pub(super) fn confirm(&mut self, confirmation: Confirmation, now: Timestamp) {
        let Confirmation { key, expiry, written } = confirmation;
        match expiry {
            Expiry::Kept | Expiry::Unknown => {}
            // Where others may end at any time, this one has to stay known.
            Expiry::Never if now < self.others_until => {
                self.set(key, Some(End { earliest: NEVER, latest: Timestamp::ZERO }));
            }
            Expiry::Never => self.set(key, None),
            Expiry::After(delay) => self.set(key, Some(End::after(delay, written, now))),
        }
    }

    /// A flush passes that ends all items after a delay.
    pub(super) fn flush(&mut self, delay: Duration, now: Timestamp) {
        let new = End::after(delay, now, now + self.travel_max);
        let is_free = |place: &&mut Option<End>| place.is_none_or(|end| end.latest < now);
        match self.flushes.iter_mut().find(is_free) {
            Some(place) => *place = Some(new),
            None => {
                let all = self.flushes.iter().flatten().fold(new, |all, end| all.and(*end));
                self.flushes = [None; FLUSHES_MAX];
                self.flushes[0] = Some(all);
            }
        }
    }

    /// A request passes that cannot be read: what it wrote may end at any time within `longest`.
    pub(super) fn forget(&mut self, longest: Duration, now: Timestamp) {
        if longest.is_zero() {
            return;
        }
        while let Some(id) = self.keys.oldest(0) {
            let (_, end) = self.keys.remove(id);
            self.others_until = self.others_until.max(end.latest);
        }
        self.others_until = self.others_until.max(now + longest);
    }

    /// Until when a value that is read now may be served; `None` where it may be over already.
    pub(super) fn limit(&self, key: &[u8], now: Timestamp) -> Option<Timestamp> {
        let own = self.end(self.hash.hash_one(key), now);
        let ends = own.iter().chain(self.flushes.iter().flatten());
        let mut limit = NEVER;
        for end in ends {
            limit = limit.min(end.limit(now)?);
        }
        Some(limit)
    }

    pub(super) fn save(&self, now: Timestamp) -> SavedExpiries {
        SavedExpiries {
            hash: (self.hash.0, self.hash.1),
            keys: self.keys.iter(now).map(|aged| (*aged.key, aged.value.save(now))).collect(),
            others: left(self.others_until, now),
            flushes: self.flushes.iter().flatten().map(|end| end.save(now)).collect(),
        }
    }

    pub(super) fn restore(saved: &SavedExpiries, travel_max: Duration, now: Timestamp) -> Self {
        let mut new = Self::new(travel_max, KeyedHash(saved.hash.0, saved.hash.1));
        new.others_until = when(saved.others, now);
        for (key, end) in saved.keys.iter().take(KEYS_MAX) {
            new.set(*key, Some(End::restore(*end, now)));
        }
        for (place, end) in new.flushes.iter_mut().zip(&saved.flushes) {
            *place = Some(End::restore(*end, now));
        }
        new
    }
}
