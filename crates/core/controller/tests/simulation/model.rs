//! Knowledge of the simulation's callers: which requests were answered and how, and so what must
//! be there, must not be there, or may be either.

use std::collections::BTreeMap;

use snic_controller::{CallId, ControlError, Reply};
use snic_domain::{DagName, DagSpec};

/// Effect that a request would have on a DAG.
#[derive(Debug, Clone)]
pub enum Wish {
    /// It would be there with this spec.
    Put(DagName, DagSpec),
    /// It would be gone.
    Remove(DagName),
}

impl Wish {
    fn name(&self) -> &DagName {
        match self {
            Self::Put(name, _) | Self::Remove(name) => name,
        }
    }

    fn outcome(&self) -> Option<DagSpec> {
        match self {
            Self::Put(_, spec) => Some(spec.clone()),
            Self::Remove(_) => None,
        }
    }
}

/// Every outcome that is allowed for a DAG: `None` is "gone". One that was never spoken of is gone.
#[derive(Debug, Default)]
pub struct Model {
    allowed: BTreeMap<DagName, Vec<Option<DagSpec>>>,
    open: BTreeMap<CallId, Vec<Wish>>,
    next_call: u64,
}

impl Model {
    /// A request is on its way.
    pub fn ask(&mut self, wish: Wish) -> CallId {
        let call = self.next_call();
        self.asked(call, wish);
        call
    }

    /// A number for a request.
    pub const fn next_call(&mut self) -> CallId {
        self.next_call += 1;
        CallId(self.next_call)
    }

    /// A request with such a number is on its way.
    pub fn asked(&mut self, call: CallId, wish: Wish) {
        self.open.insert(call, vec![wish]);
    }

    /// A request for several DAGs is on its way.
    pub fn asked_for_all(&mut self, call: CallId, wishes: Vec<Wish>) {
        self.open.insert(call, wishes);
    }

    /// A request was answered: what it promised is the only outcome left, until more is asked.
    pub fn answered(&mut self, call: CallId, result: &Result<Reply, ControlError>) {
        let Some(wishes) = self.open.remove(&call) else { return };
        let is_done = |index: usize| match result {
            Ok(Reply::Batch(results)) => results[index].is_ok(),
            Ok(Reply::PlanAgain(_)) => false,
            Ok(_) => true,
            Err(_) => false,
        };
        for (_, wish) in wishes.into_iter().enumerate().filter(|(index, _)| is_done(*index)) {
            self.allowed.insert(wish.name().clone(), vec![wish.outcome()]);
        }
    }

    /// The daemon died: what was asked and not answered may have happened, each or not, but no
    /// answer came after it.
    pub fn crashed(&mut self) {
        for wish in std::mem::take(&mut self.open).into_values().flatten() {
            let allowed = self.allowed.entry(wish.name().clone()).or_insert_with(|| vec![None]);
            allowed.push(wish.outcome());
        }
    }

    /// After a recovery each DAG is one of what is allowed; from then on it is that.
    pub fn check(&mut self, actual: &BTreeMap<DagName, DagSpec>) {
        for name in actual.keys() {
            assert!(self.allowed.contains_key(name), "{name} is there and nobody asked for it");
        }
        for (name, allowed) in &mut self.allowed {
            let found = actual.get(name).cloned();
            assert!(
                allowed.contains(&found),
                "{name} is {found:?}; the answers that were given allow {allowed:?}"
            );
            *allowed = vec![found];
        }
    }

    /// Whether some request has no answer yet.
    pub fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }
}
