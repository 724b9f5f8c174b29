//! Time in which promises were kept, broken, or not known to be either: from one change to the next, by the host's clock, for a card that
//! is lost has none.
//!
//! A promise is tracked from when a DAG was given it until the DAG is deleted, on the account of the card that the DAG is on or was on
//! last. Times are whole milliseconds since 1970, so what is charged from one change to the next adds up to the last one.

use snic_domain::{CardId, DagUid, TenantId, Timestamp};

use super::Book;
use crate::key::{AccountKey, AccountPart};
use crate::promise::{PromiseState, PromiseTimes, TrackedPromise};

/// Longest time without an event of the daemon, or without a reading of a card, that counts as what was before: there is one a second.
const SILENCE_MS: u64 = 10_000;

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
        self.promises.get(&uid).and_then(|promise| promise.key.card.as_ref())
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
        let key = AccountKey::on(card, part);
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
        let is_measured = match state {
            PromiseState::Kept => true,
            PromiseState::Broken(cause) => cause.is_of_service(),
            PromiseState::Unknown => false,
        };
        let seen = match key.card.as_ref().and_then(|card| self.read_ms.get(card)) {
            Some(read) if is_measured && now > read + SILENCE_MS => (*read).max(since),
            _ => now,
        };
        self.charge_account_promise(&key, state, (since, seen.min(now), now));
        if let Some(promise) = self.promises.get_mut(&uid) {
            promise.since_ms = now;
        }
    }

    /// Charges all promises up to now. Time O(those).
    pub(super) fn charge_promises(&mut self, now: Timestamp) {
        for uid in self.promised() {
            self.charge_promise(millis(now), uid);
        }
    }

    /// A card was read.
    pub(super) fn note_reading(&mut self, card: &CardId, now: Timestamp) {
        match self.read_ms.get_mut(card) {
            Some(read) => *read = millis(now),
            None => drop(self.read_ms.insert(card.clone(), millis(now))),
        }
    }
}
