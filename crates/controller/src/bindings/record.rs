//! What callers see of bindings, and what is made for one.

use snic_domain::{BindingState, BoundFunction, DagId, DagName, RuleId, TenantId, VmId};

use crate::protocol::{BindingRecord, BindingView, BoundDag};
use crate::state::Controller;

/// The DAG that is made for a machine.
pub(super) fn own_dag(tenant: &TenantId, vm: &VmId) -> DagName {
    let dag = DagId::new(&format!("vm-{vm}")).expect("a prefix and a UUID are a label");
    DagName { tenant: tenant.clone(), dag }
}

/// The rule of a machine's function.
pub(super) fn own_rule(vm: &VmId, number: usize) -> RuleId {
    RuleId::new(&format!("vm-{vm}-{number}")).expect("a prefix, a UUID and a number are a label")
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
                uid: entry.map(|entry| entry.uid()),
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
