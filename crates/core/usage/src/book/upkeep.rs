//! Removal of what is too old, and the invariants of the book.

use std::collections::BTreeSet;

use snic_domain::Timestamp;

use super::{Book, second};
use crate::key::AccountKey;
use crate::meter::UsageAmounts;
use crate::retention::{KeptPages, Retention};
use crate::saved::{UsageKey, UsageRecord, UsageWrite};

impl Book {
    /// Whether the interval is over.
    pub const fn is_close_due(&self, now: Timestamp) -> bool {
        self.due == 0 || second(now) >= self.due
    }

    /// UsageAmounts of one account since the last close.
    pub fn open(&mut self, key: &AccountKey) -> UsageAmounts {
        let Some(account) = self.accounts.get_mut(key) else { return UsageAmounts::ZERO };
        if let Some(card) = key.card.as_ref().and_then(|card| self.cards.get_mut(card)) {
            account.add_all(&card.take_pending(&key.part));
        }
        if !account.open().is_zero() {
            self.opened.insert(key.clone());
        }
        *account.open()
    }

    /// Removes pages that are too old, and accounts without pages. Time O(pages that it removes × log accounts), and no more of them
    /// than [`REMOVALS_MAX`](crate::sweep::REMOVALS_MAX), or half as many as accounts in use: the next one goes on.
    pub(super) fn sweep(&mut self, end: u64, retention: &Retention) {
        let has_moved = self.sweeps.advance(retention, end);
        let mut left = self.sweeps.removals_max();
        while let Some(due) = self.sweeps.due().filter(|_| left > 0) {
            let Some(account) = self.accounts.get(&due.key) else {
                self.sweeps.forget(&due.key);
                continue;
            };
            let (keys, has_none) = self.sweeps.remove(&due, account, left);
            left = left.saturating_sub(keys.len().max(1));
            self.writes.extend(keys.into_iter().map(UsageWrite::Remove));
            if has_none && account.is_at_rest() {
                self.remove(&due.key);
                self.writes.push_back(UsageWrite::Remove(UsageKey::Month(due.key.clone())));
                self.writes.push_back(UsageWrite::Remove(UsageKey::Account(due.key)));
            }
        }
        if has_moved {
            let kept = self.sweeps.note_removed();
            self.writes.push_back(UsageWrite::Put(UsageRecord::Kept(kept)));
        }
    }

    /// Pages that readers find in the store.
    pub const fn kept(&self) -> &KeptPages {
        self.sweeps.kept()
    }

    /// Each invariant, recomputed.
    ///
    /// # Errors
    /// One is broken: which.
    pub fn check(&self) -> Result<(), String> {
        self.cards.iter().try_for_each(|(card, book)| {
            book.check().map_err(|broken| format!("usage of card {card}: {broken}"))
        })?;
        let ended = self.accounts.values().filter(|account| account.ended().is_some()).count();
        let counted = self.ended.values().sum::<usize>();
        if ended != counted {
            return Err(format!("{ended} accounts have ended, {counted} are counted"));
        }
        self.check_spending()?;
        self.check_tenants()?;
        self.check_due()
    }

    /// Whether each account is looked at when something is due.
    fn check_due(&self) -> Result<(), String> {
        for (key, account) in &self.accounts {
            let (noted, due) = (self.turns.get(key), account.turn_due());
            if noted != due {
                return Err(format!("a page of {key} turns at {due:?}, and is noted at {noted:?}"));
            }
            if !account.open().is_zero() && !self.opened.contains(key) {
                return Err(format!("{key} has something, and its interval is not closed"));
            }
            let is_own = self.tenants.get(account.tenant()).is_some_and(|own| own.contains(key));
            if !is_own {
                return Err(format!("{key} is not found by its tenant"));
            }
            self.sweeps.check(key, account)?;
        }
        let (all, of_tenants) = (self.accounts.len(), self.tenants.values().map(BTreeSet::len));
        match (of_tenants.sum::<usize>(), self.sweeps.len()) == (all, all) {
            true => Ok(()),
            false => Err(format!("{all} accounts, and others are noted")),
        }
    }
}
