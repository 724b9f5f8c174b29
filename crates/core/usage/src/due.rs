//! Accounts by the second at which something is due for them: whoever works at that second looks at these alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::key::AccountKey;

/// Accounts with the second at which each is due; those that are never due are not in it.
#[derive(Debug, Default)]
pub(crate) struct DueAccounts {
    by_time: BTreeSet<(u64, AccountKey)>,
    times: BTreeMap<AccountKey, u64>,
}

impl DueAccounts {
    /// Second at which an account is due.
    pub fn get(&self, key: &AccountKey) -> Option<u64> {
        self.times.get(key).copied()
    }

    /// Has an account be due at a second, or never. Time O(log accounts).
    pub fn set(&mut self, key: &AccountKey, due: Option<u64>) {
        let before = self.get(key);
        if before == due {
            return;
        }
        if let Some(before) = before {
            self.by_time.remove(&(before, key.clone()));
            self.times.remove(key);
        }
        if let Some(due) = due {
            self.by_time.insert((due, key.clone()));
            self.times.insert(key.clone(), due);
        }
    }

    /// Takes out the accounts that are due by a second, in the order of their keys. Time O(those accounts × log accounts).
    pub fn take_until(&mut self, second: u64) -> BTreeSet<AccountKey> {
        let mut taken = BTreeSet::new();
        while self.by_time.first().is_some_and(|(due, _)| *due <= second) {
            let Some((_, key)) = self.by_time.pop_first() else { break };
            self.times.remove(&key);
            taken.insert(key);
        }
        taken
    }
}
