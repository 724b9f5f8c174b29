//! Bindings: what a virtual machine was given of a card, from the request until it is given back.
//!
//! ```text
//!           DAGs have a place          DAGs are ready, rules read back
//! Initial ────────────────────► BindStarted ────────────────────► Bound
//!    │                               │                               │ unbound, lease over,
//!    └── too late, DAG gone ─────────┴──► BindFailed                 │ DAG gone
//!                                          (unbound before: Unbound) └──► Unbound
//! ```
//!
//! Reserving functions, installing their rules and making the DAG of a template is one batch of the
//! store, and so is giving all of it back: there is no half of a binding to be found after a crash.
//! A lease is counted from the last heartbeat or the daemon's start, whichever is later: while the
//! daemon was down nobody could have sent one.

mod check;
mod record;
mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use snic_domain::limits::{BINDING_FUNCTIONS_MAX, LEASE_MAX, LEASE_MIN, READY_WITHIN_MAX};
use snic_domain::{
    BindingSpec, BindingState, CardId, Chains, DagName, TenantId, Timestamp, VirtualFunctions, VmId,
};

use crate::protocol::{BindingRecord, ControlError, Reply};
use crate::records::InvalidRecord;
use crate::recovery::contradiction;
use crate::state::Controller;
use crate::tx::Tx;

/// All bindings, and what follows from them.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    /// The functions that cards have, by the settings.
    offered: BTreeMap<CardId, VirtualFunctions>,
    records: BTreeMap<VmId, BindingRecord>,
    /// Which machine has a function.
    taken: BTreeMap<(CardId, u16), VmId>,
    /// Bindings that are neither bound nor ended.
    pending: BTreeSet<VmId>,
    /// When something ends by itself: a deadline or a lease.
    alarms: BTreeSet<(Timestamp, VmId)>,
    /// The alarm of each binding that has one.
    alarm_of: BTreeMap<VmId, Timestamp>,
    /// Bindings that have ended, the oldest first.
    ended: VecDeque<VmId>,
}

impl Bindings {
    fn set_alarm(&mut self, vm: &VmId, at: Option<Timestamp>) {
        if let Some(before) = self.alarm_of.remove(vm) {
            self.alarms.remove(&(before, vm.clone()));
        }
        if let Some(at) = at {
            self.alarms.insert((at, vm.clone()));
            self.alarm_of.insert(vm.clone(), at);
        }
    }

    /// When something ends by itself next.
    pub fn next_alarm(&self) -> Option<Timestamp> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// A machine that uses a DAG now.
    pub fn user_of(&self, dag: &DagName) -> Option<&VmId> {
        let mut live = self.records.values().filter(|record| !record.state.has_ended());
        live.find(|record| record.dags().contains(dag)).map(|record| &record.spec.vm)
    }
}

fn resource(vm: &VmId) -> String {
    format!("vmBindings/{vm}")
}

impl Controller {
    /// Says which virtual functions a card has. Bindings that exist keep theirs.
    pub fn declare_functions(&mut self, card: CardId, functions: VirtualFunctions) {
        self.bindings.offered.insert(card, functions);
    }

    /// Binds a machine, or renews the lease of one that is bound in the same way.
    pub(crate) fn bind_vm(
        &mut self,
        tx: &mut Tx,
        spec: BindingSpec,
    ) -> Result<Reply, ControlError> {
        self.check_binding(&spec)?;
        let vm = spec.vm.clone();
        let before = self.bindings.records.get(&vm).filter(|record| !record.state.has_ended());
        if let Some(before) = before {
            if !before.spec.is_same(&spec) {
                let text = format!(
                    "it is bound for tenants/{} otherwise than asked; unbind it first",
                    before.spec.tenant
                );
                return Err(ControlError::precondition(resource(&vm), text));
            }
            self.renew_lease(tx, &vm, Some(spec));
            return self.binding_reply(&vm);
        }
        let deadline = self.now + spec.ready_within;
        let mut record = BindingRecord::new(spec, self.now, deadline);
        if let Chains::Template(template) = &record.spec.chains {
            record.own = Some(self.make_own_dag(tx, &vm, template.clone())?);
        }
        self.bindings.ended.retain(|ended| *ended != vm);
        self.bindings.records.insert(vm.clone(), record);
        self.bindings.pending.insert(vm.clone());
        self.bindings.set_alarm(&vm, Some(deadline));
        if let Err(error) = self.start_binding(tx, &vm) {
            self.forget_binding(tx, &vm);
            return Err(error);
        }
        self.store_binding(tx, &vm);
        self.emit_binding(tx, &vm);
        self.binding_reply(&vm)
    }

    /// A DAG for one machine, like another of the tenant.
    fn make_own_dag(
        &mut self,
        tx: &mut Tx,
        vm: &VmId,
        template: DagName,
    ) -> Result<DagName, ControlError> {
        let Some(like) = self.dags.get(&template) else {
            return Err(ControlError::invalid("template", format!("{template} does not exist")));
        };
        let spec = like.spec().clone();
        let name = record::own_dag(&template.tenant, vm);
        self.create_dag(tx, name.clone(), spec, false)?;
        Ok(name)
    }

    /// Checks what is asked for on its own, and that whose it is exists.
    fn check_binding(&self, spec: &BindingSpec) -> Result<(), ControlError> {
        if !self.tenants.contains_key(&spec.tenant) {
            return Err(ControlError::not_found(format!("tenants/{}", spec.tenant)));
        }
        if !(1..=BINDING_FUNCTIONS_MAX).contains(&spec.functions) {
            let rule = format!("{} is not allowed: 1 to {BINDING_FUNCTIONS_MAX}", spec.functions);
            return Err(ControlError::invalid("functions", rule));
        }
        if spec.ready_within.is_zero() || spec.ready_within > READY_WITHIN_MAX {
            let rule = format!("it is more than 0 and at most {READY_WITHIN_MAX:?}");
            return Err(ControlError::invalid("ready_within", rule));
        }
        if spec.lease.is_some_and(|lease| !(LEASE_MIN..=LEASE_MAX).contains(&lease)) {
            let rule = format!("a lease is from {LEASE_MIN:?} to {LEASE_MAX:?}");
            return Err(ControlError::invalid("lease", rule));
        }
        match &spec.chains {
            Chains::Dags(dags) => self.check_dags(spec, dags),
            Chains::Template(dag) if dag.tenant == spec.tenant => Ok(()),
            Chains::Template(_) => {
                Err(ControlError::invalid("template", "it is not of the machine's tenant"))
            }
        }
    }

    fn check_dags(&self, spec: &BindingSpec, dags: &[DagName]) -> Result<(), ControlError> {
        if dags.is_empty() || dags.len() > usize::from(spec.functions) {
            let rule = format!(
                "{} DAGs for {} functions: name at least one, and at most one a function",
                dags.len(),
                spec.functions
            );
            return Err(ControlError::invalid("dags", rule));
        }
        for (i, dag) in dags.iter().enumerate() {
            let problem = if dag.tenant != spec.tenant {
                format!("{dag} is not of tenants/{}", spec.tenant)
            } else if !self.dags.contains_key(dag) {
                format!("{dag} does not exist")
            } else if dags[..i].contains(dag) {
                format!("{dag} is named twice")
            } else {
                continue;
            };
            return Err(ControlError::invalid(format!("dags[{i}]"), problem));
        }
        Ok(())
    }

    /// Gives back what a machine has. Of one that has nothing any more nothing changes.
    pub(crate) fn unbind_vm(
        &mut self,
        tx: &mut Tx,
        vm: &VmId,
        tenant: Option<&TenantId>,
    ) -> Result<Reply, ControlError> {
        let record =
            self.bindings.records.get(vm).ok_or_else(|| ControlError::not_found(resource(vm)))?;
        if tenant.is_some_and(|tenant| *tenant != record.spec.tenant) {
            let text = format!("it is of tenants/{}, not of the one named", record.spec.tenant);
            return Err(ControlError::precondition(resource(vm), text));
        }
        if !record.state.has_ended() {
            self.end_binding(tx, vm, BindingState::Unbound, None);
        }
        self.binding_reply(vm)
    }

    /// Renews the leases of machines; tells which are bound, and which are not.
    pub(crate) fn heartbeat(&mut self, tx: &mut Tx, vms: Vec<VmId>) -> Reply {
        let mut missing = Vec::new();
        let mut alive = Vec::new();
        for vm in vms {
            if self.bindings.records.get(&vm).is_none_or(|record| record.state.has_ended()) {
                missing.push(vm);
                continue;
            }
            self.renew_lease(tx, &vm, None);
            alive.extend(self.binding_view(&vm));
        }
        Reply::Heartbeat { alive, missing }
    }

    /// Counts a lease anew; with a new term, if one is asked for.
    fn renew_lease(&mut self, tx: &mut Tx, vm: &VmId, asked: Option<BindingSpec>) {
        let Some(record) = self.bindings.records.get_mut(vm) else { return };
        let changed = asked.is_some_and(|asked| {
            asked.lease != record.spec.lease && {
                record.spec.lease = asked.lease;
                true
            }
        });
        let (bound, lease) = (record.state == BindingState::Bound, record.spec.lease);
        if bound {
            self.bindings.set_alarm(vm, lease.map(|lease| self.now + lease));
        }
        if changed {
            self.store_binding(tx, vm);
            self.emit_binding(tx, vm);
        }
    }

    fn binding_reply(&self, vm: &VmId) -> Result<Reply, ControlError> {
        let absent = || ControlError::not_found(resource(vm));
        self.binding_view(vm).map(|view| Reply::Binding(Box::new(view))).ok_or_else(absent)
    }

    /// Takes up the bindings of a store.
    pub(crate) fn recover_bindings(
        &mut self,
        records: Vec<(String, BindingRecord)>,
    ) -> Result<(), InvalidRecord> {
        for (key, record) in records {
            let vm = record.spec.vm.clone();
            let alarm = match record.state {
                BindingState::Initial | BindingState::BindStarted => {
                    self.bindings.pending.insert(vm.clone());
                    Some(record.deadline)
                }
                BindingState::Bound => record.spec.lease.map(|lease| self.now + lease),
                BindingState::BindFailed | BindingState::Unbound => None,
            };
            self.bindings.set_alarm(&vm, alarm);
            for function in &record.functions {
                let at = (function.card.clone(), function.function);
                if self.bindings.taken.insert(at, vm.clone()).is_some() {
                    return Err(contradiction(&key, "another machine has one of its functions"));
                }
            }
            self.bindings.records.insert(vm, record);
        }
        let ended = self.bindings.records.values().filter(|record| record.state.has_ended());
        let mut ended: Vec<_> = ended.map(|r| (r.changed, r.spec.vm.clone())).collect();
        ended.sort();
        self.bindings.ended = ended.into_iter().map(|(_, vm)| vm).collect();
        Ok(())
    }
}
