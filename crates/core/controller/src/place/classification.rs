//! Rows of the classifier: they follow their DAG on and off the card. And those of the guards of machines' functions, which
//! are on the card for as long as the functions are bound.

use std::collections::BTreeSet;

use snic_domain::{CardId, DagName, Rule, RuleId, RulePatch, TenantId, VmId};

use crate::decide::rows;
use crate::protocol::{Caller, ControlError, Reply};
use crate::state::Core;
use crate::state::rules::VacatedRow;
use crate::store::tx::Tx;
use crate::view::{quotas, views};

/// Where the priorities of tenants' rules begin: they end before those of machines, which they refine.
/// Operators' rules may come before both.
pub(crate) const TENANT_PRIORITY_MIN: u16 = 32_000;
/// The priority of machines' rules, in the middle: an operator's own rules may come before them or behind
/// them.
pub(crate) const MACHINE_PRIORITY: u16 = 32_768;
/// Functions that an error names at most.
const FUNCTIONS_NAMED_MAX: usize = 32;

/// A new rule of an operator or a tenant.
pub(crate) fn create_rule(
    core: &mut Core,
    tx: &mut Tx,
    caller: &Caller,
    rule: Rule,
) -> Result<Reply, ControlError> {
    let binding = check_rule_of(core, caller, &rule)?;
    install_rule(core, tx, rule, binding)
}

/// # Errors
/// As [`create_rule`], which changes nothing then.
pub(crate) fn check_new_rule(
    core: &Core,
    caller: &Caller,
    rule: &Rule,
) -> Result<(), ControlError> {
    check_rule_of(core, caller, rule)?;
    let card = check_installable(core, rule)?;
    core.rules.check_free_rows(&card, 1)
}

/// The machine that a new rule ends with, if it is a tenant's.
///
/// # Errors
/// The caller may not make such a rule.
fn check_rule_of(core: &Core, caller: &Caller, rule: &Rule) -> Result<Option<VmId>, ControlError> {
    Ok(match (caller.tenant(), rule.id.owner()) {
        (None, None) => None,
        (None, Some(_)) => {
            let text = format!("{} has a dot, as only tenants' rules have", rule.id);
            return Err(ControlError::invalid("rule_id", text));
        }
        (Some(tenant), owner) if owner.as_ref() == Some(tenant) => {
            core.rules.check_new(rule)?;
            Some(check_tenants_rule(core, tenant, rule)?)
        }
        (Some(tenant), _) => {
            let text = format!("the id of a rule of yours begins with \"{tenant}.\"");
            return Err(ControlError::invalid("rule_id", text));
        }
    })
}

/// The machine whose function a tenant's rule is about.
///
/// # Errors
/// The rule would concern others: packets that are not its own, or a DAG that is not. Or it would come before
/// operators' rules.
fn check_tenants_rule(core: &Core, tenant: &TenantId, rule: &Rule) -> Result<VmId, ControlError> {
    if !(TENANT_PRIORITY_MIN..MACHINE_PRIORITY).contains(&rule.priority) {
        let most = MACHINE_PRIORITY - 1;
        let text = format!("{} is not allowed: {TENANT_PRIORITY_MIN} to {most}", rule.priority);
        return Err(ControlError::invalid("rule.priority", text));
    }
    if rule.dag.tenant != *tenant {
        return Err(no_such_dag(&rule.dag));
    }
    let card = card_of(core, &rule.dag)?;
    let functions = core.bindings.functions_of(tenant).filter(|(_, of)| of.card == card);
    let mut own: Vec<(u16, &VmId)> = functions.map(|(vm, of)| (of.function, vm)).collect();
    own.sort_unstable();
    let wanted = rule.matches.virtual_function;
    if let Some((_, vm)) = own.iter().find(|(number, _)| Some(*number) == wanted) {
        return Ok(VmId::clone(vm));
    }
    let numbers: Vec<String> =
        own.iter().take(FUNCTIONS_NAMED_MAX).map(|(number, _)| number.to_string()).collect();
    let field = "rule.match.virtual_function";
    let text = match numbers.is_empty() {
        true => "none of your machines has a function on the DAG's card; bind one first".to_owned(),
        false => format!(
            "it is to be a function of one of your machines on the DAG's card: {}",
            numbers.join(", ")
        ),
    };
    Err(ControlError::invalid(field, text))
}

/// Another priority, match or DAG.
pub(crate) fn update_rule(
    core: &mut Core,
    tx: &mut Tx,
    caller: &Caller,
    id: &RuleId,
    (patch, etag): (RulePatch, Option<&str>),
) -> Result<Reply, ControlError> {
    let RuleChange { rule, card, binding } = check_rule_update(core, caller, id, (patch, etag))?;
    let (vacated, moved) = core.rules.replace(tx, rule, card, binding)?;
    clear_classifier_row(core, vacated);
    retarget_rules_of(core, &moved);
    Ok(Reply::Rule(views::rule_view(core, id).expect("it was just changed")))
}

/// A rule as it will be, on which card, and the machine that it ends with.
pub(crate) struct RuleChange {
    rule: Rule,
    card: CardId,
    binding: Option<VmId>,
}

/// # Errors
/// As [`update_rule`], which changes nothing then.
pub(crate) fn check_rule_update(
    core: &Core,
    caller: &Caller,
    id: &RuleId,
    (patch, etag): (RulePatch, Option<&str>),
) -> Result<RuleChange, ControlError> {
    check_visible(core, caller, id)?;
    core.rules.check_change(id, etag)?;
    let before = &core.rules.get(id).expect("it was just looked at").rule;
    let rule = patch.apply(before);
    let binding = match id.owner() {
        // An operator keeps to the same limits: the rule stays the tenant's.
        Some(tenant) => Some(check_tenants_rule(core, &tenant, &rule)?),
        None => None,
    };
    if rule.dag.tenant != before.dag.tenant {
        quotas::check_rules(core, &rule.dag.tenant, 1)?;
    }
    let card = card_of(core, &rule.dag)?;
    core.rules.check_replacement(&rule, &card)?;
    Ok(RuleChange { rule, card, binding })
}

/// A tenant cannot tell another's rule from one that does not exist.
fn check_visible(core: &Core, caller: &Caller, id: &RuleId) -> Result<(), ControlError> {
    match core.rules.get(id).filter(|_| caller.may_change(id.owner().as_ref())) {
        Some(_) => Ok(()),
        None => Err(ControlError::not_found(format!("classificationRules/{id}"))),
    }
}

fn card_of(core: &Core, dag: &DagName) -> Result<CardId, ControlError> {
    let card = core.dags.get(dag).and_then(|entry| entry.card().cloned());
    card.ok_or_else(|| no_such_dag(dag))
}

fn no_such_dag(dag: &DagName) -> ControlError {
    ControlError::invalid("rule.dag", format!("{dag} does not exist, or has no card yet"))
}

/// Installs a new rule; the caller has checked who may make it.
pub(crate) fn install_rule(
    core: &mut Core,
    tx: &mut Tx,
    rule: Rule,
    binding: Option<VmId>,
) -> Result<Reply, ControlError> {
    let card = check_installable(core, &rule)?;
    let id = rule.id.clone();
    let moved = core.rules.install(tx, rule, card, binding)?;
    retarget_rules_of(core, &moved);
    Ok(Reply::Rule(views::rule_view(core, &id).expect("it was just made")))
}

/// The card of a new rule's DAG.
fn check_installable(core: &Core, rule: &Rule) -> Result<CardId, ControlError> {
    core.rules.check_new(rule)?;
    let card = card_of(core, &rule.dag)?;
    quotas::check_rules(core, &rule.dag.tenant, 1)?;
    Ok(card)
}

pub(crate) fn delete_rule(
    core: &mut Core,
    tx: &mut Tx,
    caller: &Caller,
    id: &RuleId,
    etag: Option<&str>,
) -> Result<Reply, ControlError> {
    check_visible(core, caller, id)?;
    core.rules.check_change(id, etag)?;
    remove_rule(core, tx, id);
    Ok(Reply::Done)
}

pub(crate) fn remove_rule(core: &mut Core, tx: &mut Tx, id: &RuleId) {
    let vacated = core.rules.remove(tx, id);
    clear_classifier_row(core, vacated);
}

/// Empties a row. A rule whose card was removed keeps the card's name until its DAG has a place.
fn clear_classifier_row(core: &mut Core, vacated: VacatedRow) {
    if let Some(card) = core.cards.get_mut(&vacated.card) {
        card.clear_rule(vacated.row.row);
    }
}

/// The rules that were made for functions of a machine go with its binding: another tenant may get the
/// functions.
pub(crate) fn remove_rules_of_binding(core: &mut Core, tx: &mut Tx, vm: &VmId) {
    let ids: Vec<RuleId> = core.rules.of_binding(vm).cloned().collect();
    for id in ids {
        remove_rule(core, tx, &id);
    }
}

/// A DAG's rules go with it.
pub(crate) fn remove_rules_of(core: &mut Core, tx: &mut Tx, dag: &DagName) {
    let ids: Vec<RuleId> = core.rules.of(dag).map(|record| record.rule.id.clone()).collect();
    for id in ids {
        remove_rule(core, tx, &id);
    }
}

/// A DAG's rules go with it to another card. Time O(rules).
pub(crate) fn move_rules(core: &mut Core, tx: &mut Tx, dag: &DagName) {
    let entry = core.dags.known(dag);
    let card = entry.card().cloned().expect("it was just given a place");
    let (vacated, moved) = core.rules.follow(tx, dag, &card);
    for row in vacated {
        clear_classifier_row(core, row);
    }
    retarget_rules_of(core, &moved);
}

/// Writes the row of a machine's function into the target.
pub(crate) fn guard_function(core: &mut Core, vm: &VmId, number: usize) {
    let Core { bindings, cards, .. } = core;
    let record = bindings.get(vm).expect("it has this function");
    let function = &record.functions[number];
    if let Some(card) = cards.get_mut(&function.card) {
        card.put_guard(function.function, &rows::guard(&record.limits_of(number)));
    }
}

/// Empties the rows of a machine's functions, which are given back.
pub(crate) fn unguard_functions(core: &mut Core, vm: &VmId) {
    let Core { bindings, cards, .. } = core;
    let functions = bindings.get(vm).map_or(&[][..], |record| &record.functions);
    for function in functions {
        if let Some(card) = cards.get_mut(&function.card) {
            card.clear_guard(function.function);
        }
    }
}

/// Writes the rows of all functions of a card that are bound into the target, which was emptied. Time O(functions · log
/// machines).
pub(crate) fn guard_functions_of(core: &mut Core, id: &CardId) {
    for vm in core.bindings.with_functions_of(id) {
        let functions = core.bindings.get(&vm).map_or(0, |record| record.functions.len());
        (0..functions).for_each(|number| guard_function(core, &vm, number));
    }
}

fn retarget_rules_of(core: &mut Core, dags: &BTreeSet<DagName>) {
    dags.iter().for_each(|dag| retarget_rules(core, dag));
}

/// Writes the classifier rows of a DAG into the target while its own rows are there, and takes
/// them away while they are not. Time O(rules).
pub(crate) fn retarget_rules(core: &mut Core, dag: &DagName) {
    let entry = core.dags.known(dag);
    let uid = entry.uid();
    let serving = entry.targeted();
    let on = serving.map(|placement| placement.mapping.card.clone());
    for record in core.rules.of(dag) {
        let Some(card) = core.cards.get_mut(&record.card) else { continue };
        if on.as_ref() == Some(&record.card) {
            card.put_rule(record.row, &rows::classifier(&record.rule, uid));
        } else {
            card.clear_rule(record.row);
        }
    }
}
