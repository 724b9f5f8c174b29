//! Time in which promises were kept, broken, or not known to be either: from one change to the next, by the host's clock, for a card that
//! is lost has none.
//!
//! A promise is tracked from when a DAG was given it until the DAG is deleted, on the account of the card that the DAG is on or was on
//! last. Times are whole milliseconds since 1970, so what is charged from one change to the next adds up to the last one.

use serde::{Deserialize, Serialize};
use snic_domain::{CardId, DagUid, TenantId, Timestamp};

use crate::book::Book;
use crate::key::{AccountKey, AccountPart};

/// Longest time without an event of the daemon, or without a reading of a card, that counts as what was before: there is one a second.
const SILENCE_MS: u64 = 10_000;

/// Outages that an account keeps, the latest ones.
const OUTAGES_MAX: usize = 8;
/// Outages with one cause that are no farther apart than this are one.
const OUTAGE_APART_MS: u64 = 1_000;

/// Why a promise was broken. The order is that of meters in records: new ones are added at the end, eight at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BreakCause {
    /// Its card was lost.
    CardLost,
    /// It had no place.
    NoPlace,
    /// Its regions were not loaded.
    RegionNotLoaded,
    /// The card's tables did not have its rows.
    NotProgrammed,
    /// An NT in hardware did not take its configuration.
    ConfigurationRefused,
    /// It was stopped while its state was moved.
    Stopped,
    /// Less than promised was served of what it sent, in a window of a second.
    BelowPromise,
}

impl BreakCause {
    /// All of them, in the order of their meters.
    pub const ALL: [Self; 7] = [
        Self::CardLost,
        Self::NoPlace,
        Self::RegionNotLoaded,
        Self::NotProgrammed,
        Self::ConfigurationRefused,
        Self::Stopped,
        Self::BelowPromise,
    ];

    /// Word for people and files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::CardLost => "CARD_LOST",
            Self::NoPlace => "NO_PLACE",
            Self::RegionNotLoaded => "REGION_NOT_LOADED",
            Self::NotProgrammed => "NOT_PROGRAMMED",
            Self::ConfigurationRefused => "CONFIGURATION_REFUSED",
            Self::Stopped => "STOPPED",
            Self::BelowPromise => "BELOW_PROMISE",
        }
    }
}

/// State of a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromiseState {
    /// What it sends within its promise is served, as far as its card was read.
    Kept,
    /// It is not.
    Broken(BreakCause),
    /// Nobody could see whether it is.
    Unknown,
}

/// Time in which a promise was broken without a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// Beginning, in milliseconds since 1970.
    pub start_ms: u64,
    /// End, or the time up to which it was charged.
    pub end_ms: u64,
    /// Why.
    pub cause: BreakCause,
}

/// Adds an outage to the latest ones of an account.
pub(crate) fn add_outage(outages: &mut Vec<Outage>, next: Outage) {
    match outages.last_mut() {
        Some(last)
            if last.cause == next.cause && next.start_ms <= last.end_ms + OUTAGE_APART_MS =>
        {
            last.end_ms = last.end_ms.max(next.end_ms);
        }
        _ => outages.push(next),
    }
    if outages.len() > OUTAGES_MAX {
        outages.remove(0);
    }
}

/// Times of promises since the daemon started, in milliseconds: what counters of a monitoring system show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromiseTimes {
    /// Time in which a DAG had a promise that was known to be kept or broken.
    pub known_ms: u64,
    /// Time in which nobody could see whether it was.
    pub unknown_ms: u64,
    broken_ms: [u64; BreakCause::ALL.len()],
}

impl PromiseTimes {
    /// Time in which promises were broken for a cause; it is part of what is known.
    pub const fn broken_ms(&self, cause: BreakCause) -> u64 {
        self.broken_ms[cause as usize]
    }

    pub(crate) const fn add(&mut self, state: PromiseState, millis: u64) {
        match state {
            PromiseState::Unknown => self.unknown_ms += millis,
            PromiseState::Kept => self.known_ms += millis,
            PromiseState::Broken(cause) => {
                self.known_ms += millis;
                self.broken_ms[cause as usize] += millis;
            }
        }
    }
}

/// A promise that is tracked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrackedPromise {
    pub key: AccountKey,
    pub state: PromiseState,
    /// Time up to which it is charged.
    pub since_ms: u64,
}

const fn millis(now: Timestamp) -> u64 {
    now.as_nanos() / 1_000_000
}

impl Book {
    /// An event comes. After a long time without one nobody knows what promises were in it.
    pub fn tick(&mut self, now: Timestamp) {
        let now = millis(now);
        let before = std::mem::replace(&mut self.ticked_ms, now);
        if before == 0 || now <= before + SILENCE_MS {
            return;
        }
        let uids: Vec<DagUid> = self.promises.keys().copied().collect();
        for uid in uids {
            self.charge_promise(before, uid);
            let Some(promise) = self.promises.get_mut(&uid) else { continue };
            let state = std::mem::replace(&mut promise.state, PromiseState::Unknown);
            self.charge_promise(now, uid);
            if let Some(promise) = self.promises.get_mut(&uid) {
                promise.state = state;
            }
        }
    }

    /// The promise of a DAG is in this state from now on, or ends with `None`. `card` is where the DAG is; one without a place stays on
    /// the account that it had.
    pub fn set_promise(
        &mut self,
        now: Timestamp,
        uid: DagUid,
        card: Option<&CardId>,
        state: Option<PromiseState>,
    ) {
        let now = millis(now);
        self.charge_promise(now, uid);
        let before = self.promises.get(&uid).map(|promise| promise.key.clone());
        let key = card.and_then(|card| self.promise_key(card, uid)).or_else(|| before.clone());
        if let Some(left) = before.filter(|left| state.is_none() || key.as_ref() != Some(left)) {
            self.promises.remove(&uid);
            self.note_promised(&left, None);
        }
        if let Some((key, state)) = key.zip(state) {
            self.note_promised(&key, Some(now));
            self.promises.insert(uid, TrackedPromise { key, state, since_ms: now });
        }
    }

    /// State of a DAG's promise, if it is tracked.
    pub fn promise(&self, uid: DagUid) -> Option<PromiseState> {
        self.promises.get(&uid).map(|promise| promise.state)
    }

    /// The card whose account a DAG's promise is charged to.
    pub fn promise_card(&self, uid: DagUid) -> Option<&CardId> {
        self.promises.get(&uid).map(|promise| &promise.key.card)
    }

    /// UIDs of the DAGs whose promises are tracked.
    pub fn promised(&self) -> Vec<DagUid> {
        self.promises.keys().copied().collect()
    }

    /// Times of promises since the start, by tenant.
    pub fn promise_times(&self) -> impl Iterator<Item = (&TenantId, &PromiseTimes)> {
        self.promise_times.iter()
    }

    /// The account of a DAG on a card.
    fn promise_key(&self, card: &CardId, uid: DagUid) -> Option<AccountKey> {
        let part = self.held_account(card, uid).unwrap_or(AccountPart::Dag(uid));
        let key = AccountKey { card: card.clone(), part };
        self.has_account(&key).then_some(key)
    }

    /// Charges a promise up to a time, in the state that it had.
    fn charge_promise(&mut self, now: u64, uid: DagUid) {
        let Some(TrackedPromise { key, state, since_ms: since }) = self.promises.get(&uid).cloned()
        else {
            return;
        };
        if now <= since {
            return;
        }
        // What a DAG sent is known as far as its card was read.
        let is_measured =
            matches!(state, PromiseState::Kept | PromiseState::Broken(BreakCause::BelowPromise));
        let seen = match self.read_ms.get(&key.card) {
            Some(read) if is_measured && now > read + SILENCE_MS => (*read).max(since),
            _ => now,
        };
        self.charge_account_promise(&key, state, (since, seen.min(now), now));
        if let Some(promise) = self.promises.get_mut(&uid) {
            promise.since_ms = now;
        }
    }

    /// Charges all promises up to now. Time O(those).
    pub(crate) fn charge_promises(&mut self, now: Timestamp) {
        for uid in self.promised() {
            self.charge_promise(millis(now), uid);
        }
    }

    /// A card was read.
    pub(crate) fn note_reading(&mut self, card: &CardId, now: Timestamp) {
        match self.read_ms.get_mut(card) {
            Some(read) => *read = millis(now),
            None => drop(self.read_ms.insert(card.clone(), millis(now))),
        }
    }
}
