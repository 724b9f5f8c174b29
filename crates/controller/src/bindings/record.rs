//! What is stored of a binding, and what callers see of it.

use serde::{Deserialize, Serialize};
use snic_domain::{
    BindingSpec, BindingState, BoundFunction, Chains, DagId, DagName, DagState, DagUid, RuleId,
    TenantId, Timestamp, VmId,
};

use crate::state::Controller;

/// A binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingRecord {
    /// What was asked for.
    pub spec: BindingSpec,
    /// How far it is.
    pub state: BindingState,
    /// The functions it has.
    pub functions: Vec<BoundFunction>,
    /// The DAG that was made for it.
    pub own: Option<DagName>,
    /// When it fails, unless it is bound by then.
    pub deadline: Timestamp,
    /// Why it ended, where it was not unbound on request.
    pub reason: Option<String>,
    /// When it was asked for.
    pub created: Timestamp,
    /// When its state last changed.
    pub changed: Timestamp,
}

impl BindingRecord {
    pub(super) const fn new(spec: BindingSpec, now: Timestamp, deadline: Timestamp) -> Self {
        Self {
            spec,
            state: BindingState::Initial,
            functions: Vec::new(),
            own: None,
            deadline,
            reason: None,
            created: now,
            changed: now,
        }
    }

    /// Where its packets go: what was named, or what was made for it.
    pub fn dags(&self) -> &[DagName] {
        match &self.spec.chains {
            Chains::Dags(dags) => dags,
            Chains::Template(_) => self.own.as_slice(),
        }
    }
}

/// The DAG that is made for a machine.
pub(super) fn own_dag(tenant: &TenantId, vm: &VmId) -> DagName {
    let dag = DagId::new(&format!("vm-{vm}")).expect("a prefix and a UUID are a label");
    DagName { tenant: tenant.clone(), dag }
}

/// The rule of a machine's function.
pub(super) fn own_rule(vm: &VmId, number: usize) -> RuleId {
    RuleId::new(&format!("vm-{vm}-{number}")).expect("a prefix, a UUID and a number are a label")
}

/// A DAG that a machine uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundDag {
    /// Which.
    pub name: DagName,
    /// What packets carry; `None` where the DAG is gone.
    pub uid: Option<DagUid>,
    /// How far it is.
    pub state: Option<DagState>,
}

/// A binding with what is known of it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingView {
    /// What is stored of it.
    pub record: BindingRecord,
    /// Its DAGs.
    pub dags: Vec<BoundDag>,
    /// Of each function, whether the card, read back, leads its packets to its DAG.
    pub programmed: Vec<bool>,
    /// When it is given back unless a heartbeat comes.
    pub expires: Option<Timestamp>,
}

impl Controller {
    /// One binding.
    pub fn binding_view(&self, vm: &VmId) -> Option<BindingView> {
        self.bindings.records.get(vm).map(|record| self.view_of_binding(record))
    }

    fn view_of_binding(&self, record: &BindingRecord) -> BindingView {
        let dag = |name: &DagName| {
            let entry = self.dags.get(name);
            BoundDag {
                name: name.clone(),
                uid: entry.map(|entry| entry.record.uid),
                state: entry.map(|entry| self.dag_state(entry)),
            }
        };
        let programmed = |function: &BoundFunction| {
            self.rule_view(&function.rule).is_some_and(|rule| rule.programmed)
        };
        let bound = record.state == BindingState::Bound;
        let alarm = self.bindings.alarm_of.get(&record.spec.vm).copied();
        BindingView {
            dags: record.dags().iter().map(dag).collect(),
            programmed: record.functions.iter().map(programmed).collect(),
            expires: alarm.filter(|_| bound),
            record: record.clone(),
        }
    }

    /// The bindings behind this one, of one tenant or of all, by UUID; ended ones too, for a while.
    pub fn bindings_after<'a>(
        &'a self,
        tenant: Option<&'a TenantId>,
        after: Option<&VmId>,
    ) -> impl Iterator<Item = BindingView> + 'a {
        use std::ops::Bound;
        let start = after.map_or(Bound::Unbounded, |vm| Bound::Excluded(vm.clone()));
        let range = self.bindings.records.range((start, Bound::Unbounded));
        range
            .filter(move |(_, record)| tenant.is_none_or(|tenant| record.spec.tenant == *tenant))
            .map(|(_, record)| self.view_of_binding(record))
    }
}
