//! Binds and unbinds virtual machines: functions, their rules, and the DAG of a template. See
//! [`crate::state::bindings`] for the states of a binding.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_domain::limits::{BINDING_FUNCTIONS_MAX, LEASE_MAX, LEASE_MIN, READY_WITHIN_MAX};
use snic_domain::{
    BindingSpec, BindingState, BindingTarget, BoundFunction, CardId, DagId, DagName, DagState,
    MacAddress, Match, Rule, RuleId, TenantId, VmId,
};

use crate::decide::rows;
use crate::place::classification;
use crate::place::classification::MACHINE_PRIORITY;
use crate::protocol::{BindingRecord, Change, ControlError, Reply};
use crate::request::lifecycle;
use crate::request::lifecycle::DecidedDag;
use crate::state::Core;
use crate::state::bindings::Renewal;
use crate::state::kept::Machine;
use crate::store::tx::Tx;
use crate::view::{budgets, quotas, views};

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

/// Deletes a DAG; who used it has nothing any more.
pub(crate) fn delete_dag(core: &mut Core, tx: &mut Tx, name: &DagName) -> Reply {
    lifecycle::supersede(core, tx, name);
    end_bindings_of(core, tx, name);
    lifecycle::delete_dag(core, tx, name)
}

/// Removes a DAG; who used it has nothing any more.
pub(crate) fn remove_dag(core: &mut Core, tx: &mut Tx, name: &DagName) {
    end_bindings_of(core, tx, name);
    // A machine's own DAG has gone with its binding.
    if core.dags.contains(name) {
        lifecycle::remove_dag(core, tx, name);
    }
}

/// Binds a machine, or renews the lease of one that is bound in the same way.
pub(crate) fn bind_vm(
    core: &mut Core,
    tx: &mut Tx,
    spec: BindingSpec,
) -> Result<Reply, ControlError> {
    check_binding(core, &spec)?;
    let vm = spec.vm.clone();
    if let Some(before) = core.bindings.live(&vm) {
        if !before.spec.is_same(&spec) {
            let text = format!(
                "it is already bound with a different spec, for tenants/{}; unbind it first",
                before.spec.tenant
            );
            return Err(ControlError::precondition(resource(&vm), text));
        }
        renew_lease(core, tx, &vm, Some(spec.lease));
        return binding_reply(core, &vm);
    }
    check_quotas(core, &spec)?;
    let own = match &spec.chains {
        BindingTarget::Template(template) => Some(decide_own_dag(core, tx, &vm, template)?),
        BindingTarget::Dags(_) => None,
    };
    check_free(core, &spec, own.as_ref())?;
    let own = own.map(|decided| {
        let name = decided.name().clone();
        lifecycle::create_decided(core, tx, decided);
        name
    });
    core.bindings.begin(spec, own, core.now());
    if let Err(error) = start_binding(core, tx, &vm) {
        undo_binding(core, tx, &vm);
        return Err(error);
    }
    core.bindings.store(tx, &vm);
    emit_binding(core, tx, &vm);
    binding_reply(core, &vm)
}

/// Refuses a binding that is one too many for its tenant, or whose rules' ids are taken.
fn check_quotas(core: &Core, spec: &BindingSpec) -> Result<(), ControlError> {
    quotas::check_machine(core, &spec.tenant)?;
    budgets::check_more(core, &spec.tenant)?;
    quotas::check_rules(core, &spec.tenant, spec.functions.into())?;
    for number in 0..usize::from(spec.functions) {
        let rule = own_rule(&spec.vm, number);
        if core.rules.get(&rule).is_some() {
            return Err(ControlError::exists(format!("classificationRules/{rule}")));
        }
    }
    Ok(())
}

/// Refuses a binding that could not begin, before anything is made for it: the functions and rules that it
/// takes of each card must be free.
fn check_free(
    core: &Core,
    spec: &BindingSpec,
    own: Option<&DecidedDag>,
) -> Result<(), ControlError> {
    let cards: Option<Vec<CardId>> = match (&spec.chains, own) {
        (_, Some(own)) => Some(vec![own.card().clone()]),
        (BindingTarget::Dags(dags), None) => {
            dags.iter().map(|dag| core.dags.get(dag)?.card().cloned()).collect()
        }
        (BindingTarget::Template(_), None) => None,
    };
    let Some(cards) = cards else {
        return Ok(()); // A DAG has no place yet: the binding begins when it has one.
    };
    let mut needed: BTreeMap<&CardId, usize> = BTreeMap::new();
    for card in cards.iter().cycle().take(spec.functions.into()) {
        *needed.entry(card).or_default() += 1;
    }
    for (card, count) in needed {
        check_functions(core, spec, card, count)?;
        core.rules.check_free_rows(card, count)?;
    }
    Ok(())
}

/// # Errors
/// Fewer than `needed` functions of a card are free, or too many of these are kept for others.
fn check_functions(
    core: &Core,
    spec: &BindingSpec,
    card: &CardId,
    needed: usize,
) -> Result<(), ControlError> {
    let left = core.bindings.check_free_functions(card, needed)?;
    let machine = Machine { tenant: &spec.tenant, vm: Some(&spec.vm) };
    core.kept.check_functions(machine, (card, left), needed, core.now())
}

/// Decides about a DAG for one machine, like another of the tenant.
fn decide_own_dag(
    core: &mut Core,
    tx: &mut Tx,
    vm: &VmId,
    template: &DagName,
) -> Result<DecidedDag, ControlError> {
    let Some(like) = core.dags.get(template) else {
        return Err(ControlError::invalid("template", format!("{template} does not exist")));
    };
    let spec = like.spec().clone();
    lifecycle::decide_new(core, tx, own_dag(&template.tenant, vm), spec, false)
}

/// Checks what is asked for on its own, and that whose it is exists.
fn check_binding(core: &Core, spec: &BindingSpec) -> Result<(), ControlError> {
    if core.registry.tenant(&spec.tenant).is_none() {
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
    let limits = spec.limits.check(spec.functions);
    limits.map_err(|error| ControlError::invalid(error.field(), error.to_string()))?;
    match &spec.chains {
        BindingTarget::Dags(dags) => check_dags(core, spec, dags),
        BindingTarget::Template(dag) if dag.tenant == spec.tenant => Ok(()),
        BindingTarget::Template(_) => {
            Err(ControlError::invalid("template", "it belongs to another tenant than the machine"))
        }
    }
}

fn check_dags(core: &Core, spec: &BindingSpec, dags: &[DagName]) -> Result<(), ControlError> {
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
        } else if !core.dags.contains(dag) {
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
    core: &mut Core,
    tx: &mut Tx,
    vm: &VmId,
    tenant: Option<&TenantId>,
) -> Result<Reply, ControlError> {
    let record = core.bindings.get(vm).ok_or_else(|| ControlError::not_found(resource(vm)))?;
    if tenant.is_some_and(|tenant| *tenant != record.spec.tenant) {
        let text = format!(
            "it belongs to tenants/{}, not to the tenant of the request",
            record.spec.tenant
        );
        return Err(ControlError::precondition(resource(vm), text));
    }
    if !record.state.has_ended() {
        end_binding(core, tx, vm, BindingState::Unbound, None);
    }
    binding_reply(core, vm)
}

/// Renews the leases of machines; tells which are bound, and which are not.
pub(crate) fn heartbeat(core: &mut Core, tx: &mut Tx, vms: Vec<VmId>) -> Reply {
    let mut missing = Vec::new();
    let mut alive = Vec::new();
    for vm in vms {
        if core.bindings.live(&vm).is_none() {
            missing.push(vm);
            continue;
        }
        renew_lease(core, tx, &vm, None);
        alive.extend(views::binding_view(core, &vm));
    }
    Reply::Heartbeat { alive, missing }
}

/// The lease runs from now; with another term, if one is asked for.
fn renew_lease(core: &mut Core, tx: &mut Tx, vm: &VmId, term: Option<Option<Duration>>) {
    match core.bindings.renew(tx, vm, term) {
        Renewal::Same => {}
        Renewal::OtherTerm => emit_binding(core, tx, vm),
    }
}

fn binding_reply(core: &Core, vm: &VmId) -> Result<Reply, ControlError> {
    let absent = || ControlError::not_found(resource(vm));
    views::binding_view(core, vm).map(|view| Reply::Binding(Box::new(view))).ok_or_else(absent)
}

/// Moves bindings on; says whether cards have to be looked at again.
pub(crate) fn step_bindings(core: &mut Core, tx: &mut Tx) -> Progress {
    let mut progress = Progress::None;
    for vm in core.bindings.pending() {
        if step_binding(core, tx, &vm) == Progress::Made {
            progress = Progress::Made;
        }
    }
    while let Some(vm) = core.bindings.due(core.now()).cloned() {
        expire(core, tx, &vm);
        progress = Progress::Made;
    }
    progress
}

fn step_binding(core: &mut Core, tx: &mut Tx, vm: &VmId) -> Progress {
    // A DAG that went with another machine's binding may have ended this one meanwhile.
    let Some(record) = core.bindings.live(vm) else { return Progress::None };
    match record.state {
        BindingState::Initial => match start_binding(core, tx, vm) {
            Ok(Progress::Made) => {
                core.bindings.store(tx, vm);
                emit_binding(core, tx, vm);
                Progress::Made
            }
            Ok(Progress::None) => Progress::None,
            Err(error) => {
                let state = BindingState::BindFailed;
                end_binding(core, tx, vm, state, Some(error.to_string()));
                Progress::Made
            }
        },
        BindingState::BindStarted if waits_for(core, vm).is_none() => {
            core.bindings.bound(tx, vm);
            emit_binding(core, tx, vm);
            Progress::None
        }
        _ => Progress::None,
    }
}

/// A deadline has passed, or a lease is over.
fn expire(core: &mut Core, tx: &mut Tx, vm: &VmId) {
    let record = core.bindings.live(vm).expect("what has ended has no alarm");
    if record.state == BindingState::Bound {
        let text = format!("no heartbeat came for {:?}", record.spec.lease.unwrap_or_default());
        end_binding(core, tx, vm, BindingState::Unbound, Some(text));
    } else {
        let why = waits_for(core, vm).unwrap_or_else(|| "its DAGs have no place".to_owned());
        let text = format!("not ready within {:?}: {why}", record.spec.ready_within);
        end_binding(core, tx, vm, BindingState::BindFailed, Some(text));
    }
}

/// Obstacle that a started binding still waits for.
fn waits_for(core: &Core, vm: &VmId) -> Option<String> {
    let record = core.bindings.get(vm)?;
    for dag in record.dags() {
        let Some(entry) = core.dags.get(dag) else { return Some(format!("{dag} is gone")) };
        if views::dag_state(core, entry) != DagState::Ready {
            let ready = entry.conditions().last().map_or("", |c| c.message.as_str());
            return Some(format!("{dag}: {ready}"));
        }
    }
    let missing = |function: &&BoundFunction| {
        !views::rule_view(core, &function.rule).is_some_and(|rule| rule.programmed)
    };
    if let Some(function) = record.functions.iter().find(missing) {
        let (number, card) = (function.function, &function.card);
        let text =
            format!("cards/{card} does not lead packets of function {number} to {}", function.dag);
        return Some(text);
    }
    let mut numbers = 0..record.functions.len();
    let unguarded = numbers.find(|number| !is_guard_programmed(core, record, *number))?;
    let BoundFunction { card, function, .. } = &record.functions[unguarded];
    Some(format!("cards/{card} does not hold function {function} to its limits"))
}

/// Whether the card, read back, has the limits of a machine's function. One that cannot hold functions to any has no
/// row to wait for.
fn is_guard_programmed(core: &Core, record: &BindingRecord, number: usize) -> bool {
    let function = &record.functions[number];
    let Some(card) = core.cards.get(&function.card) else { return false };
    let row = card.tables().active().get(function.function);
    !card.guards() || row == Some(rows::guard(&record.limits_of(number)))
}

/// Reserves functions and installs their rules, once every DAG has a place; all or nothing.
fn start_binding(core: &mut Core, tx: &mut Tx, vm: &VmId) -> Result<Progress, ControlError> {
    let record = core.bindings.live(vm).expect("it was begun and has not ended");
    let dags = record.dags().to_vec();
    let mut places = Vec::with_capacity(usize::from(record.spec.functions));
    for dag in dags.iter().cycle().take(record.spec.functions.into()) {
        let entry = core.dags.get(dag).ok_or_else(|| ControlError::not_found(dag))?;
        let Some(card) = entry.card() else { return Ok(Progress::None) };
        places.push(FunctionPlace { card: card.clone(), dag: dag.clone() });
    }
    let (spec, mut needed) = (record.spec.clone(), BTreeMap::new());
    for place in &places {
        *needed.entry(place.card.clone()).or_insert(0usize) += 1;
    }
    for (card, count) in &needed {
        check_functions(core, &spec, card, *count)?;
    }
    for (number, place) in places.into_iter().enumerate() {
        if let Err(error) = bind_function(core, tx, vm, own_rule(vm, number), place) {
            release_functions(core, tx, vm);
            return Err(error);
        }
    }
    core.bindings.started(vm, core.now());
    let machine = Machine { tenant: &spec.tenant, vm: Some(vm) };
    for (card, count) in &needed {
        core.kept.take(tx, machine, card, u32::try_from(*count).unwrap_or(u32::MAX));
    }
    Ok(Progress::Made)
}

fn bind_function(
    core: &mut Core,
    tx: &mut Tx,
    vm: &VmId,
    rule: RuleId,
    place: FunctionPlace,
) -> Result<(), ControlError> {
    let FunctionPlace { card, dag } = place;
    let (function, pci_address) = core.bindings.free_function(&card)?;
    let matches = Match { virtual_function: Some(function), ..Match::default() };
    let wanted = Rule {
        id: rule.clone(),
        priority: MACHINE_PRIORITY,
        matches,
        dag: dag.clone(),
        notes: Default::default(),
    };
    classification::install_rule(core, tx, wanted, Some(vm.clone()))?;
    let scope = format!("{}/{card}", core.secret());
    let mac_address = MacAddress::of_function(&scope, function);
    let bound = BoundFunction { card, function, pci_address, mac_address, dag, rule };
    core.bindings.assign(vm, bound);
    guard_new_function(core, vm)
}

/// The function that a machine was given last keeps to its limits from the commit on that leads packets to it.
///
/// # Errors
/// The card cannot hold it to what was requested, or another machine has one of its addresses.
fn guard_new_function(core: &mut Core, vm: &VmId) -> Result<(), ControlError> {
    let record = core.bindings.live(vm).expect("it was just given a function");
    let number = record.functions.len() - 1;
    let (card, limits) = (&record.functions[number].card, record.limits_of(number));
    let can_guard = core.cards.get(card).is_none_or(|card| !card.is_ready() || card.guards());
    if !can_guard && !record.spec.limits.is_default() {
        let text = format!(
            "cards/{card} does not hold functions to MAC addresses, VLANs or rates; bind without them, and \
             limit the function where the host configures it"
        );
        return Err(ControlError::precondition(resource(vm), text));
    }
    if let Some(mac) = taken_mac(core, card, vm, &limits.mac_addresses) {
        let text = format!("{mac} is the address of a function of another machine on cards/{card}");
        return Err(ControlError::invalid("mac_addresses", text));
    }
    classification::guard_function(core, vm, number);
    Ok(())
}

/// An address among these that a function of another machine on the card sends from. Time O(functions of the card).
fn taken_mac(core: &Core, card: &CardId, vm: &VmId, macs: &[MacAddress]) -> Option<MacAddress> {
    let others = core.bindings.with_functions_of(card).into_iter().filter(|other| other != vm);
    others.filter_map(|other| core.bindings.live(&other)).find_map(|record| {
        let here = |number: &usize| record.functions[*number].card == *card;
        let limits = (0..record.functions.len()).filter(here).map(|at| record.limits_of(at));
        limits.flat_map(|limits| limits.mac_addresses).find(|mac| macs.contains(mac))
    })
}

fn release_functions(core: &mut Core, tx: &mut Tx, vm: &VmId) {
    classification::unguard_functions(core, vm);
    core.bindings.release(vm);
    classification::remove_rules_of_binding(core, tx, vm);
}

/// Ends a binding: all that it had is given back.
fn end_binding(
    core: &mut Core,
    tx: &mut Tx,
    vm: &VmId,
    state: BindingState,
    reason: Option<String>,
) {
    release_functions(core, tx, vm);
    let own = core.bindings.end(tx, vm, state, reason);
    remove_own_dag(core, tx, own);
    emit_binding(core, tx, vm);
}

fn remove_own_dag(core: &mut Core, tx: &mut Tx, own: Option<DagName>) {
    if let Some(own) = own.filter(|own| core.dags.contains(own)) {
        delete_dag(core, tx, &own);
    }
}

/// A DAG goes: who used it has nothing any more.
fn end_bindings_of(core: &mut Core, tx: &mut Tx, dag: &DagName) {
    while let Some(vm) = core.bindings.user_of(dag).cloned() {
        lose_binding(core, tx, &vm, format!("{dag} was deleted"));
    }
}

/// A card goes, with the functions that a machine has of it.
pub(crate) fn card_removed(core: &mut Core, tx: &mut Tx, vm: &VmId, card: &CardId) {
    // Its DAG may have gone with another machine's.
    if core.bindings.live(vm).is_some() {
        lose_binding(core, tx, vm, format!("cards/{card} was removed"));
    }
}

/// Ends a binding that nobody asked to end.
fn lose_binding(core: &mut Core, tx: &mut Tx, vm: &VmId, reason: String) {
    let bound = core.bindings.get(vm).map(|record| record.state);
    let state = match bound {
        Some(BindingState::Bound) => BindingState::Unbound,
        _ => BindingState::BindFailed,
    };
    end_binding(core, tx, vm, state, Some(reason));
}

/// Undoes a binding that could not even begin: as if it had never been asked for.
fn undo_binding(core: &mut Core, tx: &mut Tx, vm: &VmId) {
    release_functions(core, tx, vm);
    let own = core.bindings.undo(tx, vm);
    remove_own_dag(core, tx, own);
}

/// Forgets ended bindings that are old, or too many of a tenant. Amortised O(log bindings) an event.
pub(crate) fn forget_old_bindings(core: &mut Core, tx: &mut Tx) {
    while let Some(vm) = core.bindings.outdated(core.now()) {
        forget_binding(core, tx, vm);
    }
}

/// Forgets the ended bindings of a tenant that was deleted: its name is another's now.
pub(crate) fn retire(core: &mut Core, tx: &mut Tx, tenant: &TenantId) {
    for vm in core.bindings.retire(tenant) {
        forget_binding(core, tx, vm);
    }
}

fn forget_binding(core: &mut Core, tx: &mut Tx, vm: VmId) {
    let view = views::binding_view(core, &vm).expect("it has ended and is remembered");
    tx.emit(Change::BindingForgotten(Box::new(view)));
    core.bindings.forget(tx, vm);
}

fn emit_binding(core: &Core, tx: &mut Tx, vm: &VmId) {
    let view = views::binding_view(core, vm).expect("it has just changed");
    tx.emit(Change::Binding(Box::new(view)));
}

/// Refuses to delete a DAG that a machine uses.
pub(crate) fn check_unbound(core: &Core, dag: &DagName) -> Result<(), ControlError> {
    match core.bindings.user_of(dag) {
        None => Ok(()),
        Some(vm) => {
            let text = format!("{} leads packets to it; unbind it first", resource(vm));
            Err(ControlError::precondition(dag, text))
        }
    }
}
