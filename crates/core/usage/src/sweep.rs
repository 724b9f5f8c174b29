//! Order in which pages that are too old are removed: the oldest first, over all accounts, so any change of ages is worked off in
//! steps, and a start goes on where the last one was.

use std::collections::{BTreeMap, BTreeSet};

use crate::account::Account;
use crate::key::AccountKey;
use crate::pages::IntervalLevel;
use crate::retention::{KeptPages, Retention};
use crate::saved::UsageKey;

/// Seconds from one move of the kept pages to the next. A page is removed one of them after readers stopped to look for it, for
/// those that began before may still read it.
const SWEEP: u64 = 60;
/// Most removals of one event, where no more than twice as many accounts are in use.
pub(crate) const REMOVALS_MAX: usize = 4_096;
/// Most pages of one account that are removed before it is another one's turn: what is stored of all of them is how far the last one
/// has come, so a start that finds none of them far behind repeats little.
const PAGES_AT_ONCE: usize = 16;
/// Pages behind the last one of an account that has ended that may have something: packets are counted for a while after it.
const PAGES_AFTER_END: u64 = 2;

/// Pages that are kept, and how far removal has come for each account.
#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    kept: KeptPages,
    /// Pages before these may be removed now, by length: nobody reads them any more.
    unread: [u64; 3],
    /// Minute of the last move.
    minute: u64,
    /// First page of each account that may still be in the store, by length.
    places: BTreeMap<AccountKey, [u64; 3]>,
    /// Accounts by that page, by length; without those that have ended and have none any more.
    order: [BTreeSet<(u64, AccountKey)>; 3],
}

/// Account with pages to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DueAccount {
    level: IntervalLevel,
    /// First page to remove.
    first: u64,
    pub key: AccountKey,
}

/// End of an account's pages of one length; none while it is in use.
fn end_of(account: &Account, level: IntervalLevel) -> Option<u64> {
    Some(level.page_of(account.ended()?) + PAGES_AFTER_END * level.page())
}

/// Whether an account has a place in the order of a length, when its pages before `place` are removed. The longest intervals have all
/// accounts: one without any is to be removed itself.
fn is_swept(account: &Account, level: IntervalLevel, place: u64) -> bool {
    level == IntervalLevel::Hour || end_of(account, level).is_none_or(|end| place < end)
}

impl Sweeper {
    /// Continues after a start: with the stored times, or those of a store that was written before there were any.
    pub fn restore(&mut self, kept: Option<KeptPages>, closed: Option<u64>) {
        let of_old = || closed.map(|closed| KeptPages::of_old_store(closed, 2 * SWEEP));
        self.kept = kept.or_else(of_old).unwrap_or_default();
        self.unread = IntervalLevel::ALL.map(|level| self.kept.from(level));
    }

    /// Pages that readers find.
    pub const fn kept(&self) -> &KeptPages {
        &self.kept
    }

    /// An account that the store has.
    pub fn add_restored(&mut self, key: &AccountKey, account: &Account) {
        let places = IntervalLevel::ALL.map(|level| match self.kept.removed(level) {
            // Nothing was removed yet.
            0 => level.page_of(account.first().unwrap_or_else(|| account.begun())),
            removed => removed,
        });
        self.places.insert(key.clone(), places);
        self.follow(key, account);
    }

    /// A new account; its first interval begins no earlier than `second`.
    pub fn add(&mut self, key: &AccountKey, account: &Account, second: u64) {
        let places = IntervalLevel::ALL.map(|level| level.page_of(second));
        self.places.insert(key.clone(), places);
        self.follow(key, account);
    }

    /// An account has ended or goes on. Time O(log accounts).
    pub fn follow(&mut self, key: &AccountKey, account: &Account) {
        let Some(places) = self.places.get(key) else { return };
        for level in IntervalLevel::ALL {
            let place = places[level as usize];
            let order = &mut self.order[level as usize];
            match is_swept(account, level, place) {
                true => order.insert((place, key.clone())),
                false => order.remove(&(place, key.clone())),
            };
        }
    }

    /// An account is gone.
    pub fn forget(&mut self, key: &AccountKey) {
        for (place, order) in self.places.remove(key).into_iter().flatten().zip(&mut self.order) {
            order.remove(&(place, key.clone()));
        }
    }

    /// Moves on with time, once a minute; returns whether it did.
    pub fn advance(&mut self, retention: &Retention, second: u64) -> bool {
        if self.minute == second / SWEEP {
            return false;
        }
        self.minute = second / SWEEP;
        self.unread = IntervalLevel::ALL.map(|level| self.kept.from(level));
        self.kept.advance(retention, second);
        true
    }

    /// Most removals of one event: more than accounts in use fill pages meanwhile.
    pub fn removals_max(&self) -> usize {
        REMOVALS_MAX.max(self.order[IntervalLevel::Fine as usize].len() / 2)
    }

    /// The account with the oldest pages to remove, of the shortest length that has some.
    pub fn due(&self) -> Option<DueAccount> {
        IntervalLevel::ALL.into_iter().find_map(|level| {
            let (first, key) = self.order[level as usize].first()?;
            let is_due = first + level.page() <= self.unread[level as usize];
            is_due.then(|| DueAccount { level, first: *first, key: key.clone() })
        })
    }

    /// Removes some pages of a due account, `most` of them at most; says whether it has none any more of any length.
    pub fn remove(
        &mut self,
        DueAccount { level, first, key }: &DueAccount,
        account: &Account,
        most: usize,
    ) -> (Vec<UsageKey>, bool) {
        let unread = self.unread[*level as usize];
        let end = end_of(account, *level);
        let until = end.map_or(unread, |end| end.min(unread)).max(*first);
        let starts = (*first..until).step_by(level.page() as usize).take(most.min(PAGES_AT_ONCE));
        let keys: Vec<UsageKey> =
            starts.map(|start| UsageKey::FullPage(key.clone(), *level, start)).collect();
        let is_over = end.is_some_and(|end| *first >= end);
        // An account without pages is looked at again with each later one of an hour's intervals, until it is at rest.
        let pages = if is_over { 1 } else { keys.len() as u64 };
        let place = first + pages * level.page();
        let order = &mut self.order[*level as usize];
        order.remove(&(*first, key.clone()));
        if let Some(places) = self.places.get_mut(key) {
            places[*level as usize] = place;
        }
        if is_swept(account, *level, place) {
            order.insert((place, key.clone()));
        }
        (keys, is_over && *level == IntervalLevel::Hour)
    }

    /// Notes how far removal has come; gives what is to be stored.
    pub fn note_removed(&mut self) -> KeptPages {
        for level in IntervalLevel::ALL {
            let unread = self.unread[level as usize];
            let first = self.order[level as usize].first().map_or(unread, |(first, _)| *first);
            // New accounts may begin later, and none begins before.
            self.kept.set_removed(level, first.min(unread));
        }
        self.kept
    }

    /// Whether an account is swept where it has pages.
    ///
    /// # Errors
    /// It is not: where.
    pub fn check(&self, key: &AccountKey, account: &Account) -> Result<(), String> {
        let Some(places) = self.places.get(key) else {
            return Err(format!("{key} is never swept"));
        };
        for level in IntervalLevel::ALL {
            let place = places[level as usize];
            let is_due = self.order[level as usize].contains(&(place, key.clone()));
            if is_due != is_swept(account, level, place) {
                return Err(format!("{key} has pages from {place} on, and is swept: {is_due}"));
            }
        }
        Ok(())
    }

    /// Number of accounts.
    pub fn len(&self) -> usize {
        self.places.len()
    }
}
