//! What moves a binding on: DAGs that get a place, cards that were read back, time.

use snic_domain::limits::{BINDINGS_ENDED_MAX, OPERATION_KEPT};
use snic_domain::{
    BindingState, BoundFunction, CardId, DagName, DagState, MacAddress, Match, Rule, VmId,
};

use super::record::own_rule;
use super::resource;
use crate::protocol::{Change, ControlError};
use crate::records::key;
use crate::state::Controller;
use crate::tx::Tx;

/// The rules of machines stand in the middle: an operator's own rules may come before them or
/// behind them.
const RULE_PRIORITY: u16 = 32_768;

impl Controller {
    /// Moves bindings on; says whether cards have to be looked at again.
    pub(crate) fn step_bindings(&mut self, tx: &mut Tx) -> bool {
        let mut again = false;
        for vm in self.bindings.pending.clone() {
            again |= self.step_binding(tx, &vm);
        }
        while let Some((_, vm)) = self.bindings.alarms.first().filter(|(at, _)| *at <= self.now) {
            let vm = vm.clone();
            self.ring(tx, &vm);
            again = true;
        }
        again
    }

    fn step_binding(&mut self, tx: &mut Tx, vm: &VmId) -> bool {
        let Some(record) = self.bindings.records.get(vm) else { return false };
        match record.state {
            BindingState::Initial => match self.start_binding(tx, vm) {
                Ok(true) => {
                    self.store_binding(tx, vm);
                    self.emit_binding(tx, vm);
                    true
                }
                Ok(false) => false,
                Err(error) => {
                    let state = BindingState::BindFailed;
                    self.end_binding(tx, vm, state, Some(error.to_string()));
                    true
                }
            },
            BindingState::BindStarted if self.waits_for(vm).is_none() => {
                let now = self.now;
                let Some(record) = self.bindings.records.get_mut(vm) else { return false };
                record.state = BindingState::Bound;
                record.changed = now;
                let lease = record.spec.lease;
                self.bindings.pending.remove(vm);
                self.bindings.set_alarm(vm, lease.map(|lease| now + lease));
                self.store_binding(tx, vm);
                self.emit_binding(tx, vm);
                false
            }
            _ => false,
        }
    }

    /// A deadline has passed, or a lease is over.
    fn ring(&mut self, tx: &mut Tx, vm: &VmId) {
        let Some(record) = self.bindings.records.get(vm) else {
            self.bindings.set_alarm(vm, None);
            return;
        };
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
        let record = self.bindings.records.get(vm)?;
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
    pub(super) fn start_binding(&mut self, tx: &mut Tx, vm: &VmId) -> Result<bool, ControlError> {
        let Some(record) = self.bindings.records.get(vm) else { return Ok(false) };
        let dags = record.dags().to_vec();
        let mut places = Vec::with_capacity(usize::from(record.spec.functions));
        for dag in dags.iter().cycle().take(record.spec.functions.into()) {
            let entry = self.dags.get(dag).ok_or_else(|| ControlError::not_found(dag))?;
            let Some(card) = entry.card() else { return Ok(false) };
            places.push((card.clone(), dag.clone()));
        }
        for (number, (card, dag)) in places.into_iter().enumerate() {
            if let Err(error) = self.bind_function(tx, vm, number, (card, dag)) {
                self.release_functions(tx, vm);
                return Err(error);
            }
        }
        let now = self.now;
        if let Some(record) = self.bindings.records.get_mut(vm) {
            record.state = BindingState::BindStarted;
            record.changed = now;
        }
        Ok(true)
    }

    fn bind_function(
        &mut self,
        tx: &mut Tx,
        vm: &VmId,
        number: usize,
        (card, dag): (CardId, DagName),
    ) -> Result<(), ControlError> {
        let offered = self.bindings.offered.get(&card).copied();
        let count = offered.map_or(0, |offered| offered.count);
        let free = (0..count).find(|n| !self.bindings.taken.contains_key(&(card.clone(), *n)));
        let found = offered.zip(free).and_then(|(all, n)| Some((n, all.address(n)?)));
        let (function, pci_address) = found.ok_or_else(|| ControlError::Exhausted {
            what: format!("virtual functions of cards/{card}"),
            limit: count.into(),
            hint: "unbind a machine first, or enable more in the settings of the card".into(),
        })?;
        let rule = own_rule(vm, number);
        let matches = Match { virtual_function: Some(function), ..Match::default() };
        let wanted = Rule { id: rule.clone(), priority: RULE_PRIORITY, matches, dag: dag.clone() };
        self.install_rule(tx, wanted, Some(vm.clone()))?;
        self.bindings.taken.insert((card.clone(), function), vm.clone());
        let scope = format!("{}/{card}", self.meta.secret);
        let mac_address = MacAddress::of_function(&scope, function);
        if let Some(record) = self.bindings.records.get_mut(vm) {
            let bound = BoundFunction { card, function, pci_address, mac_address, dag, rule };
            record.functions.push(bound);
        }
        Ok(())
    }

    fn release_functions(&mut self, tx: &mut Tx, vm: &VmId) {
        let Some(record) = self.bindings.records.get_mut(vm) else { return };
        for function in std::mem::take(&mut record.functions) {
            self.bindings.taken.remove(&(function.card, function.function));
            self.remove_rule(tx, &function.rule);
        }
    }

    /// Ends a binding: all that it had is given back.
    pub(super) fn end_binding(
        &mut self,
        tx: &mut Tx,
        vm: &VmId,
        state: BindingState,
        reason: Option<String>,
    ) {
        self.release_functions(tx, vm);
        let now = self.now;
        let Some(record) = self.bindings.records.get_mut(vm) else { return };
        record.state = state;
        record.changed = now;
        record.reason = reason;
        let own = record.own.take();
        self.bindings.pending.remove(vm);
        self.bindings.set_alarm(vm, None);
        self.bindings.ended.push_back(vm.clone());
        self.remove_own_dag(tx, own);
        self.store_binding(tx, vm);
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
            let bound = self.bindings.records.get(&vm).map(|record| record.state);
            let state = match bound {
                Some(BindingState::Bound) => BindingState::Unbound,
                _ => BindingState::BindFailed,
            };
            self.end_binding(tx, &vm, state, Some(format!("{dag} was deleted")));
        }
    }

    /// Undoes a binding that could not even begin: as if it had never been asked for.
    pub(super) fn forget_binding(&mut self, tx: &mut Tx, vm: &VmId) {
        self.release_functions(tx, vm);
        self.bindings.pending.remove(vm);
        self.bindings.set_alarm(vm, None);
        let own = self.bindings.records.remove(vm).and_then(|record| record.own);
        self.remove_own_dag(tx, own);
        // An ended binding of this machine may be in the store.
        tx.delete(key::binding(vm));
    }

    /// Forgets ended bindings that are old. Amortised O(1) an event.
    pub(crate) fn forget_old_bindings(&mut self, tx: &mut Tx) {
        while let Some(vm) = self.bindings.ended.front() {
            let old = self.bindings.records.get(vm).map(|record| record.changed);
            let keep = old.is_some_and(|at| self.now.since(at) < OPERATION_KEPT);
            if keep && self.bindings.ended.len() <= BINDINGS_ENDED_MAX {
                break;
            }
            let Some(vm) = self.bindings.ended.pop_front() else { break };
            if let Some(view) = self.binding_view(&vm) {
                tx.emit(Change::BindingForgotten(Box::new(view)));
            }
            self.bindings.records.remove(&vm);
            tx.delete(key::binding(&vm));
        }
    }

    pub(super) fn store_binding(&self, tx: &mut Tx, vm: &VmId) {
        if let Some(record) = self.bindings.records.get(vm) {
            tx.put(key::binding(vm), record);
        }
    }

    pub(super) fn emit_binding(&self, tx: &mut Tx, vm: &VmId) {
        if let Some(view) = self.binding_view(vm) {
            tx.emit(Change::Binding(Box::new(view)));
        }
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
