//! What always holds of bindings.

use std::collections::BTreeMap;

use snic_domain::{BindingState, CardId, VmId};

use super::Bindings;
use crate::protocol::BindingRecord;
use crate::state::Controller;

impl Controller {
    /// No function with two machines, no rule without a binding, no alarm without a reason.
    pub(crate) fn check_bindings(&self) -> Result<(), String> {
        let bindings = &self.bindings;
        let mut taken: BTreeMap<(CardId, u16), VmId> = BTreeMap::new();
        let mut rules = 0;
        for (vm, record) in &bindings.records {
            for function in &record.functions {
                let at = (function.card.clone(), function.function);
                if let Some(other) = taken.insert(at, vm.clone()) {
                    return Err(format!("{vm} and {other} have one function"));
                }
                let rule = self.rules.get(&function.rule);
                if rule.is_none_or(|rule| rule.binding.as_ref() != Some(vm)) {
                    return Err(format!("{vm}: rule {} is not its own", function.rule));
                }
                rules += 1;
            }
            check_record(bindings, vm, record)?;
        }
        if taken != bindings.taken {
            return Err("the functions taken are not those of the bindings".into());
        }
        if rules != self.rules.values().filter(|rule| rule.binding.is_some()).count() {
            return Err("a rule is of a machine that is not bound".into());
        }
        if bindings.alarms.len() != bindings.alarm_of.len() {
            return Err("a binding has two alarms".into());
        }
        Ok(())
    }
}

fn check_record(bindings: &Bindings, vm: &VmId, record: &BindingRecord) -> Result<(), String> {
    use BindingState::{BindFailed, BindStarted, Bound, Initial, Unbound};
    let pending = matches!(record.state, Initial | BindStarted);
    let wants_alarm = match record.state {
        Initial | BindStarted => true,
        Bound => record.spec.lease.is_some(),
        BindFailed | Unbound => false,
    };
    let functions = match record.state {
        BindStarted | Bound => usize::from(record.spec.functions),
        Initial | BindFailed | Unbound => 0,
    };
    let wrong = if record.functions.len() != functions {
        "it has not the functions that its state says"
    } else if bindings.pending.contains(vm) != pending {
        "it is not where the pending ones are"
    } else if bindings.alarm_of.contains_key(vm) != wants_alarm {
        "it has an alarm without a reason, or none with one"
    } else if bindings.ended.contains(vm) != record.state.has_ended() {
        "it is not where the ended ones are"
    } else {
        return Ok(());
    };
    Err(format!("binding of {vm}, {:?}: {wrong}", record.state))
}
