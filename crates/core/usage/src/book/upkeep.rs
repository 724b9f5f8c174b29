//! Removal of what is too old, and the invariants of the book.

use std::collections::BTreeSet;

use super::Book;
use crate::pages::IntervalLevel;
use crate::retention::Retention;
use crate::saved::{UsageKey, UsageWrite};

/// Seconds from one sweep to the next.
pub(super) const SWEEP: u64 = 60;
/// Most seconds that pages have become older by when one sweep removes them.
const SWEPT_MAX: u64 = 3_600;

impl Book {
    /// Removes pages that are too old, once a minute, and accounts without pages. Time O(accounts with something to remove).
    pub(super) fn sweep(&mut self, end: u64, retention: &Retention) {
        let before = self.swept;
        if before / SWEEP == end / SWEEP {
            return;
        }
        if self.swept_for.replace(*retention) != Some(*retention) {
            self.sweeps.set_all(0);
        }
        // After a long time without the daemon, a part at a time.
        let now = end.min(before + SWEPT_MAX);
        self.swept = now;
        let mut gone = Vec::new();
        for key in self.sweeps.take_until(now) {
            let Some(account) = self.accounts.get(&key) else { continue };
            let last = account.ended().unwrap_or(now);
            for level in IntervalLevel::ALL {
                let first = retention.kept_from(level, before).max(level.page_of(account.begun()));
                // Packets are counted for a while after it has left.
                let until =
                    retention.kept_from(level, now).min(level.page_of(last) + 2 * level.page());
                let starts = (first..until.max(first)).step_by(level.page() as usize);
                let keys = starts.map(|start| UsageKey::FullPage(key.clone(), level, start));
                self.writes.extend(keys.map(UsageWrite::Remove));
            }
            self.sweeps.set(&key, Some(retention.sweep_due(account, now)));
            let is_old = last + 2 * IntervalLevel::Hour.page()
                < retention.kept_from(IntervalLevel::Hour, now);
            if account.ended().is_some() && is_old && account.is_at_rest() {
                gone.push(key);
            }
        }
        for key in gone {
            self.remove(&key);
            self.writes.push(UsageWrite::Remove(UsageKey::Month(key.clone())));
            self.writes.push(UsageWrite::Remove(UsageKey::Account(key)));
        }
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
            if !is_own || self.sweeps.get(key).is_none() {
                return Err(format!("{key} is not found by its tenant, or never swept"));
            }
        }
        let (all, of_tenants) = (self.accounts.len(), self.tenants.values().map(BTreeSet::len));
        match (of_tenants.sum::<usize>(), self.sweeps.len()) == (all, all) {
            true => Ok(()),
            false => Err(format!("{all} accounts, and others are noted")),
        }
    }
}
