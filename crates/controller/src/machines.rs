//! What a virtual machine gets and gives back: functions, their rules, and a DAG of its own. See
//! [`crate::bindings`] for the way of a binding.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_domain::limits::{BINDING_FUNCTIONS_MAX, LEASE_MAX, LEASE_MIN, READY_WITHIN_MAX};
use snic_domain::{
    BindingSpec, BindingState, BoundFunction, CardId, Chains, DagId, DagName, DagState, MacAddress,
    Match, Rule, RuleId, TenantId, VirtualFunctions, VmId,
};

use crate::bindings::Renewal;
use crate::protocol::{BindingRecord, BindingView, BoundDag, Change, ControlError, Reply};
use crate::state::Controller;
use crate::tx::Tx;

/// The rules of machines stand in the middle: an operator's own rules may come before them or
/// behind them.
const RULE_PRIORITY: u16 = 32_768;

/// Where a function is to lead, and by which card.
struct FunctionPlace {
    card: CardId,
    dag: DagName,
}

/// Whether something has changed that others may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Made,
    None,
}

/// The DAG that is made for a machine.
fn own_dag(tenant: &TenantId, vm: &VmId) -> DagName {
    let dag = DagId::new(&format!("vm-{vm}")).expect("a prefix and a UUID are a label");
    DagName { tenant: tenant.clone(), dag }
}

/// The rule of a machine's function.
fn own_rule(vm: &VmId, number: usize) -> RuleId {
    RuleId::new(&format!("vm-{vm}-{number}")).expect("a prefix, a UUID and a number are a label")
}

fn resource(vm: &VmId) -> String {
    format!("vmBindings/{vm}")
}

impl Controller {
    /// Says which virtual functions a card has. Bindings that exist keep theirs.
    pub fn declare_functions(&mut self, card: CardId, functions: VirtualFunctions) {
        self.bindings.offer(card, functions);
    }

    /// Binds a machine, or renews the lease of one that is bound in the same way.
    pub(crate) fn bind_vm(
        &mut self,
        tx: &mut Tx,
        spec: BindingSpec,
    ) -> Result<Reply, ControlError> {
        self.check_binding(&spec)?;
        let vm = spec.vm.clone();
        if let Some(before) = self.bindings.live(&vm) {
            if !before.spec.is_same(&spec) {
                let text = format!(
                    "it is already bound with a different spec, for tenants/{}; unbind it first",
                    before.spec.tenant
                );
                return Err(ControlError::precondition(resource(&vm), text));
            }
            self.renew_lease(tx, &vm, Some(spec.lease));
            return self.binding_reply(&vm);
        }
        self.check_start(&spec)?;
        let own = match &spec.chains {
            Chains::Template(template) => Some(self.make_own_dag(tx, &vm, template)?),
            Chains::Dags(_) => None,
        };
        self.bindings.begin(spec, own, self.now);
        if let Err(error) = self.start_binding(tx, &vm) {
            self.undo_binding(tx, &vm);
            return Err(error);
        }
        self.bindings.store(tx, &vm);
        self.emit_binding(tx, &vm);
        self.binding_reply(&vm)
    }

    /// Refuses a binding that could not begin, before anything is made for it: its rules' ids, and the
    /// functions and rules that it takes of each card, must be free.
    fn check_start(&self, spec: &BindingSpec) -> Result<(), ControlError> {
        for number in 0..usize::from(spec.functions) {
            let rule = own_rule(&spec.vm, number);
            if self.rules.get(&rule).is_some() {
                return Err(ControlError::exists(format!("classificationRules/{rule}")));
            }
        }
        let Some(cards) = self.cards_of(&spec.vm, &spec.chains)? else {
            return Ok(()); // A DAG has no place yet: the binding begins when it has one.
        };
        let mut needed: BTreeMap<&CardId, usize> = BTreeMap::new();
        for card in cards.iter().cycle().take(spec.functions.into()) {
            *needed.entry(card).or_default() += 1;
        }
        for (card, count) in needed {
            self.bindings.check_free_functions(card, count)?;
            self.rules.check_free_rows(card, count)?;
        }
        Ok(())
    }

    /// The cards that a machine's DAGs are on, or the one that its own DAG would be on; `None` while
    /// one has no place.
    fn cards_of(&self, vm: &VmId, chains: &Chains) -> Result<Option<Vec<CardId>>, ControlError> {
        match chains {
            Chains::Dags(dags) => {
                Ok(dags.iter().map(|dag| self.dags.get(dag)?.card().cloned()).collect())
            }
            Chains::Template(template) => {
                let Some(like) = self.dags.get(template) else { return Ok(None) };
                let dag = snic_domain::Dag::new(like.spec().clone())?;
                // Why it is not admitted is said, and noted, when it is made.
                let admission = self.decide(&own_dag(&template.tenant, vm), &dag).ok();
                Ok(admission.map(|admission| vec![admission.choice.card]))
            }
        }
    }

    /// A DAG for one machine, like another of the tenant.
    fn make_own_dag(
        &mut self,
        tx: &mut Tx,
        vm: &VmId,
        template: &DagName,
    ) -> Result<DagName, ControlError> {
        let Some(like) = self.dags.get(template) else {
            return Err(ControlError::invalid("template", format!("{template} does not exist")));
        };
        let spec = like.spec().clone();
        let name = own_dag(&template.tenant, vm);
        self.create_dag(tx, name.clone(), spec, false)?;
        Ok(name)
    }

    /// Checks what is asked for on its own, and that whose it is exists.
    fn check_binding(&self, spec: &BindingSpec) -> Result<(), ControlError> {
        if self.registry.tenant(&spec.tenant).is_none() {
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
        let record = self.bindings.get(vm).ok_or_else(|| ControlError::not_found(resource(vm)))?;
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
            if self.bindings.live(&vm).is_none() {
                missing.push(vm);
                continue;
            }
            self.renew_lease(tx, &vm, None);
            alive.extend(self.binding_view(&vm));
        }
        Reply::Heartbeat { alive, missing }
    }

    /// The lease runs from now; with another term, if one is asked for.
    fn renew_lease(&mut self, tx: &mut Tx, vm: &VmId, term: Option<Option<Duration>>) {
        match self.bindings.renew(tx, vm, term) {
            Renewal::Same => {}
            Renewal::OtherTerm => self.emit_binding(tx, vm),
        }
    }

    fn binding_reply(&self, vm: &VmId) -> Result<Reply, ControlError> {
        let absent = || ControlError::not_found(resource(vm));
        self.binding_view(vm).map(|view| Reply::Binding(Box::new(view))).ok_or_else(absent)
    }

    /// Moves bindings on; says whether cards have to be looked at again.
    pub(crate) fn step_bindings(&mut self, tx: &mut Tx) -> Progress {
        let mut progress = Progress::None;
        for vm in self.bindings.pending() {
            if self.step_binding(tx, &vm) == Progress::Made {
                progress = Progress::Made;
            }
        }
        while let Some(vm) = self.bindings.due(self.now).cloned() {
            self.expire(tx, &vm);
            progress = Progress::Made;
        }
        progress
    }

    fn step_binding(&mut self, tx: &mut Tx, vm: &VmId) -> Progress {
        // A DAG that went with another machine's binding may have ended this one meanwhile.
        let Some(record) = self.bindings.live(vm) else { return Progress::None };
        match record.state {
            BindingState::Initial => match self.start_binding(tx, vm) {
                Ok(Progress::Made) => {
                    self.bindings.store(tx, vm);
                    self.emit_binding(tx, vm);
                    Progress::Made
                }
                Ok(Progress::None) => Progress::None,
                Err(error) => {
                    let state = BindingState::BindFailed;
                    self.end_binding(tx, vm, state, Some(error.to_string()));
                    Progress::Made
                }
            },
            BindingState::BindStarted if self.waits_for(vm).is_none() => {
                self.bindings.bound(tx, vm);
                self.emit_binding(tx, vm);
                Progress::None
            }
            _ => Progress::None,
        }
    }

    /// A deadline has passed, or a lease is over.
    fn expire(&mut self, tx: &mut Tx, vm: &VmId) {
        let record = self.bindings.live(vm).expect("what has ended has no alarm");
        if record.state == BindingState::Bound {
            let text = format!("no heartbeat came for {:?}", record.spec.lease.unwrap_or_default());
            self.end_binding(tx, vm, BindingState::Unbound, Some(text));
        } else {
            let why = self.waits_for(vm).unwrap_or_else(|| "its DAGs have no place".to_owned());
            let text = format!("not ready within {:?}: {why}", record.spec.ready_within);
            self.end_binding(tx, vm, BindingState::BindFailed, Some(text));
        }
    }

    /// What a started binding still waits for.
    fn waits_for(&self, vm: &VmId) -> Option<String> {
        let record = self.bindings.get(vm)?;
        for dag in record.dags() {
            let Some(entry) = self.dags.get(dag) else { return Some(format!("{dag} is gone")) };
            if self.dag_state(entry) != DagState::Ready {
                let ready = entry.conditions.last().map_or("", |c| c.message.as_str());
                return Some(format!("{dag}: {ready}"));
            }
        }
        let missing = |function: &&BoundFunction| {
            !self.rule_view(&function.rule).is_some_and(|rule| rule.programmed)
        };
        record.functions.iter().find(missing).map(|function| {
            let (number, card) = (function.function, &function.card);
            format!("cards/{card} does not lead packets of function {number} to {}", function.dag)
        })
    }

    /// Reserves functions and installs their rules, once every DAG has a place; all or nothing.
    fn start_binding(&mut self, tx: &mut Tx, vm: &VmId) -> Result<Progress, ControlError> {
        let record = self.bindings.live(vm).expect("it was begun and has not ended");
        let dags = record.dags().to_vec();
        let mut places = Vec::with_capacity(usize::from(record.spec.functions));
        for dag in dags.iter().cycle().take(record.spec.functions.into()) {
            let entry = self.dags.get(dag).ok_or_else(|| ControlError::not_found(dag))?;
            let Some(card) = entry.card() else { return Ok(Progress::None) };
            places.push(FunctionPlace { card: card.clone(), dag: dag.clone() });
        }
        for (number, place) in places.into_iter().enumerate() {
            if let Err(error) = self.bind_function(tx, vm, own_rule(vm, number), place) {
                self.release_functions(tx, vm);
                return Err(error);
            }
        }
        self.bindings.started(vm, self.now);
        Ok(Progress::Made)
    }

    fn bind_function(
        &mut self,
        tx: &mut Tx,
        vm: &VmId,
        rule: RuleId,
        place: FunctionPlace,
    ) -> Result<(), ControlError> {
        let FunctionPlace { card, dag } = place;
        let (function, pci_address) = self.bindings.free_function(&card)?;
        let matches = Match { virtual_function: Some(function), ..Match::default() };
        let wanted = Rule { id: rule.clone(), priority: RULE_PRIORITY, matches, dag: dag.clone() };
        self.install_rule(tx, wanted, Some(vm.clone()))?;
        let scope = format!("{}/{card}", self.secret);
        let mac_address = MacAddress::of_function(&scope, function);
        let bound = BoundFunction { card, function, pci_address, mac_address, dag, rule };
        self.bindings.assign(vm, bound);
        Ok(())
    }

    fn release_functions(&mut self, tx: &mut Tx, vm: &VmId) {
        for function in self.bindings.release(vm) {
            self.remove_rule(tx, &function.rule);
        }
    }

    /// Ends a binding: all that it had is given back.
    fn end_binding(&mut self, tx: &mut Tx, vm: &VmId, state: BindingState, reason: Option<String>) {
        self.release_functions(tx, vm);
        let own = self.bindings.end(tx, vm, state, reason);
        self.remove_own_dag(tx, own);
        self.emit_binding(tx, vm);
    }

    fn remove_own_dag(&mut self, tx: &mut Tx, own: Option<DagName>) {
        if let Some(own) = own.filter(|own| self.dags.contains_key(own)) {
            self.delete_dag(tx, &own).expect("it was there, and no binding is on it any more");
        }
    }

    /// A DAG goes: who used it has nothing any more.
    pub(crate) fn end_bindings_of(&mut self, tx: &mut Tx, dag: &DagName) {
        while let Some(vm) = self.bindings.user_of(dag).cloned() {
            let bound = self.bindings.get(&vm).map(|record| record.state);
            let state = match bound {
                Some(BindingState::Bound) => BindingState::Unbound,
                _ => BindingState::BindFailed,
            };
            self.end_binding(tx, &vm, state, Some(format!("{dag} was deleted")));
        }
    }

    /// Undoes a binding that could not even begin: as if it had never been asked for.
    fn undo_binding(&mut self, tx: &mut Tx, vm: &VmId) {
        self.release_functions(tx, vm);
        let own = self.bindings.undo(tx, vm);
        self.remove_own_dag(tx, own);
    }

    /// Forgets ended bindings that are old. Amortised O(1) an event.
    pub(crate) fn forget_old_bindings(&mut self, tx: &mut Tx) {
        while let Some(vm) = self.bindings.outdated(self.now) {
            let view = self.binding_view(vm).expect("it has ended and is remembered");
            tx.emit(Change::BindingForgotten(Box::new(view)));
            self.bindings.forget_oldest(tx);
        }
    }

    fn emit_binding(&self, tx: &mut Tx, vm: &VmId) {
        let view = self.binding_view(vm).expect("it has just changed");
        tx.emit(Change::Binding(Box::new(view)));
    }

    /// Refuses to delete a DAG that a machine uses.
    pub(crate) fn check_unbound(&self, dag: &DagName) -> Result<(), ControlError> {
        match self.bindings.user_of(dag) {
            None => Ok(()),
            Some(vm) => {
                let text = format!("{} leads packets to it; unbind it first", resource(vm));
                Err(ControlError::precondition(dag, text))
            }
        }
    }
}

impl Controller {
    /// One binding.
    pub fn binding_view(&self, vm: &VmId) -> Option<BindingView> {
        self.bindings.get(vm).map(|record| self.view_of_binding(record))
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
        BindingView {
            dags: record.dags().iter().map(dag).collect(),
            programmed: record.functions.iter().map(programmed).collect(),
            expires: self.bindings.expires(&record.spec.vm),
            record: record.clone(),
        }
    }

    /// The bindings behind this one, of one tenant or of all, by UUID; ended ones too, for a while.
    pub fn bindings_after<'a>(
        &'a self,
        tenant: Option<&'a TenantId>,
        after: Option<&VmId>,
    ) -> impl Iterator<Item = BindingView> + 'a {
        self.bindings
            .after(after)
            .filter(move |record| tenant.is_none_or(|tenant| record.spec.tenant == *tenant))
            .map(|record| self.view_of_binding(record))
    }
}
