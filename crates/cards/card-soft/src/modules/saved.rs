//! States of modules whose instances are gone: one that was put by made room for another, or another module takes its
//! place. The next instance of the same NT type for the same DAG begins with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use snic_domain::Timestamp;
use snic_nts::ModuleState;

use super::row_of;
use crate::tasks::{PUT_BY, TaskKey};

/// States of the card.
const STATES_MAX: usize = 128;
/// States of one tenant.
pub(super) const TENANT_STATES_MAX: usize = 16;

struct Saved {
    tenant: u16,
    nt: Arc<str>,
    state: ModuleState,
    /// Since when its DAG has no row.
    put_by: Option<Timestamp>,
}

/// The states, by DAG and NT.
#[derive(Default)]
pub(super) struct SavedStates {
    states: BTreeMap<TaskKey, Saved>,
}

impl SavedStates {
    /// Keeps the state of a tenant's instance. Where the tenant has as many as it may, the one that was put by the longest
    /// goes; where it has none that was put by, or the card has no room, the new one does.
    pub(super) fn keep(
        &mut self,
        key: TaskKey,
        (tenant, nt): (u16, Arc<str>),
        state: ModuleState,
        put_by: Option<Timestamp>,
    ) {
        self.states.remove(&key);
        let of_tenant = self.states.iter().filter(|(_, saved)| saved.tenant == tenant);
        let is_full =
            self.states.len() >= STATES_MAX || of_tenant.clone().count() >= TENANT_STATES_MAX;
        let oldest = of_tenant.filter_map(|(key, saved)| Some((saved.put_by?, *key))).min();
        match oldest {
            Some((_, oldest)) if is_full => drop(self.states.remove(&oldest)),
            None if is_full => return,
            _ => {}
        }
        self.states.insert(key, Saved { tenant, nt, state, put_by });
    }

    /// The state for a new instance; one of another NT type is gone.
    pub(super) fn take(&mut self, key: TaskKey, nt: &str) -> Option<ModuleState> {
        let saved = self.states.remove(&key)?;
        (*saved.nt == *nt).then_some(saved.state)
    }

    /// A DAG has a row.
    pub(super) fn row_is(&mut self, uid: u32) {
        self.of_dag(uid).for_each(|saved| saved.put_by = None);
    }

    /// A DAG has no row any more.
    pub(super) fn row_is_gone(&mut self, now: Timestamp, uid: u32) {
        self.of_dag(uid).for_each(|saved| saved.put_by = saved.put_by.or(Some(now)));
    }

    fn of_dag(&mut self, uid: u32) -> impl Iterator<Item = &mut Saved> {
        self.states.iter_mut().filter(move |(key, _)| key.0 == uid).map(|(_, saved)| saved)
    }

    /// Removes what was put by for too long; says since when the oldest of the others is.
    pub(super) fn expire(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.states.retain(|_, saved| saved.put_by.is_none_or(|since| now.since(since) < PUT_BY));
        self.states.values().filter_map(|saved| saved.put_by).min()
    }

    /// The row of this number belongs to this DAG now.
    pub(super) fn forget_others(&mut self, number: u16, own: u32) {
        self.states.retain(|(uid, _), _| row_of(*uid) != number || *uid == own);
    }

    /// Forgets the state of some NTs of DAGs.
    pub(super) fn forget(&mut self, goes: impl Fn(&TaskKey) -> bool) {
        self.states.retain(|key, _| !goes(key));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::NtNumber;

    use super::*;

    const NOW: Timestamp = Timestamp::ZERO;

    fn key(uid: u32) -> TaskKey {
        (uid, NtNumber(9))
    }

    fn state(byte: u8) -> ModuleState {
        ModuleState { version: 1, bytes: [byte].into() }
    }

    #[test]
    fn a_state_is_for_its_nt_type_and_taken_once() {
        let mut states = SavedStates::default();
        let limit = || (1, "acme.limit".into());
        states.keep(key(7), limit(), state(1), None);
        states.keep(key(7), limit(), state(2), None);
        assert_eq!(states.take((7, NtNumber(8)), "acme.limit"), None);
        assert_eq!(states.take(key(7), "acme.limit"), Some(state(2)), "the last one");
        assert_eq!(states.take(key(7), "acme.limit"), None);
        states.keep(key(7), limit(), state(3), None);
        assert_eq!(states.take(key(7), "acme.marker"), None, "another NT type");
        assert_eq!(states.len(), 0);
    }

    #[test]
    fn a_tenant_has_so_many_and_displaces_none_of_others_nor_of_dags_at_work() {
        let mut states = SavedStates::default();
        let most = TENANT_STATES_MAX as u32;
        states.keep(key(1_000), (7, "globex.nt".into()), state(0), Some(NOW));
        for uid in 0..most {
            states.keep(key(uid), (1, "acme.nt".into()), state(1), None);
        }
        states.keep(key(most), (1, "acme.nt".into()), state(1), Some(NOW));
        assert!(!states.states.contains_key(&key(most)), "all others are of DAGs at work");
        states.row_is_gone(NOW, 3);
        states.keep(key(most), (1, "acme.nt".into()), state(1), Some(NOW));
        assert!(states.states.contains_key(&key(most)) && !states.states.contains_key(&key(3)));
        assert_eq!(states.len(), TENANT_STATES_MAX + 1);
        // All tenants together: the last ones are not kept.
        for uid in 0..1_000 {
            let tenant = 100 + (uid / most) as u16;
            states.keep(key(2_000 + uid), (tenant, "a.b".into()), state(1), None);
        }
        assert_eq!(states.len(), STATES_MAX);
        assert!(states.states.contains_key(&key(1_000)));
    }
}
