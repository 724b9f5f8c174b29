//! DAGs as callers change them: created, updated, reverted, deleted.

use snic_domain::limits::TENANT_CONFIGURATIONS_MAX;
use snic_domain::{
    CardAffinity, CardId, Dag, DagName, DagSpec, DagState, Notes, OperationId, TenantId,
};

use crate::decide::batch::no_configurations;
use crate::place::{classification, consolidation, forgotten, placement, scaling, work};
use crate::protocol::etag::check_etag;
use crate::protocol::{
    Admission, AssignedCard, Caller, Change, Choice, ControlError, DagView, FieldViolation,
    OperationWork, Reply,
};
use crate::state::Core;
use crate::state::dags::DagEntry;
use crate::state::kept::Machine;
use crate::store::records::{self, DAG_SPEC_BYTES_MAX, Placement};
use crate::store::tx::Tx;
use crate::view::{budgets, quotas, views};

/// No placement serves a DAG: there is nothing to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NothingServes;

/// Fails as for an absent one where the caller may not know of the DAG.
pub(crate) fn visible_dag<'a>(
    core: &'a Core,
    caller: &Caller,
    name: &DagName,
) -> Result<&'a DagEntry, ControlError> {
    core.dags
        .get(name)
        .filter(|_| caller.may_change(Some(&name.tenant)))
        .ok_or_else(|| ControlError::not_found(name))
}

/// Fails as for an absent one where the caller may not know of the tenant.
pub(crate) fn visible_tenant(
    core: &Core,
    caller: &Caller,
    id: &TenantId,
) -> Result<(), ControlError> {
    if caller.may_change(Some(id)) && core.registry.tenant(id).is_some() {
        return Ok(());
    }
    Err(ControlError::not_found(format!("tenants/{id}")))
}

pub(crate) fn check_dag_etag(
    core: &Core,
    name: &DagName,
    etag: Option<&str>,
) -> Result<(), ControlError> {
    check_etag(name, etag, views::dag_etag(core.dags.known(name)))
}

pub(crate) fn create_dag(
    core: &mut Core,
    tx: &mut Tx,
    name: DagName,
    spec: DagSpec,
    validate_only: bool,
) -> Result<Reply, ControlError> {
    let decided = decide_new(core, tx, name, spec, validate_only)?;
    if validate_only {
        let DecidedDag { name, dag, admission, .. } = decided;
        let entry = new_entry(core, &name, &dag, &admission.choice.card);
        return Ok(Reply::WouldBe(Box::new(preview(core, entry, admission.choice))));
    }
    let operation = create_decided(core, tx, decided);
    Ok(work::reply(core, &operation))
}

/// A new DAG that is admitted.
pub(crate) struct DecidedDag {
    name: DagName,
    dag: Dag,
    admission: Admission,
    assigned: Option<AssignedCard>,
}

impl DecidedDag {
    pub const fn name(&self) -> &DagName {
        &self.name
    }

    pub const fn card(&self) -> &CardId {
        &self.admission.choice.card
    }
}

/// Decides about a new DAG, once: that takes long. One that is refused is noted, unless nobody wants it yet.
pub(crate) fn decide_new(
    core: &mut Core,
    tx: &mut Tx,
    name: DagName,
    spec: DagSpec,
    validate_only: bool,
) -> Result<DecidedDag, ControlError> {
    if core.dags.contains(&name) {
        return Err(ControlError::exists(&name));
    }
    let dag = check_spec(core, &name.tenant, spec)?;
    check_quota(core, &name, dag.spec(), None)?;
    budgets::check_more(core, &name.tenant)?;
    quotas::check_operation(core, &name.tenant)?;
    let admission = match placement::decide(core, &name, &dag) {
        Ok(admission) => admission,
        Err(error) => {
            if !validate_only {
                note_refused(core, tx, &name, dag.spec(), &error);
            }
            return Err(error);
        }
    };
    check_choice(core, &name, dag.spec(), &admission.choice)?;
    let card = &admission.choice.card;
    let left = core.cards.known(card).ledger().ingress_residual();
    let machine = Machine { tenant: &name.tenant, vm: None };
    core.kept.check_bandwidth(machine, (card, left), dag.bandwidth(), core.now())?;
    Ok(DecidedDag { name, dag, admission, assigned: None })
}

/// Decides about a DAG that the fleet assigns to a card where it is new. Quotas were the fleet's business.
pub(crate) fn decide_assigned(
    core: &Core,
    name: DagName,
    spec: DagSpec,
    to: AssignedCard,
) -> Result<DecidedDag, ControlError> {
    let dag = check_spec(core, &name.tenant, spec)?;
    check_configurations(core, &name, dag.spec())?;
    let admission = placement::decide_on(core, &name, &dag, &to.card)?;
    check_choice(core, &name, dag.spec(), &admission.choice)?;
    Ok(DecidedDag { name, dag, admission, assigned: Some(to) })
}

/// Adds a DAG that was decided about with the same event.
pub(crate) fn create_decided(core: &mut Core, tx: &mut Tx, decided: DecidedDag) -> OperationId {
    let DecidedDag { name, dag, admission, assigned } = decided;
    let mut entry = new_entry(core, &name, &dag, &admission.choice.card);
    if let Some(to) = assigned {
        entry.assign(to);
    }
    add_dag(core, tx, entry, admission)
}

/// A new DAG that was admitted on a card.
pub(crate) fn new_entry(core: &Core, name: &DagName, dag: &Dag, card: &CardId) -> DagEntry {
    let counting = core.usage.counting(card);
    let uid = core
        .dags
        .next_uid(card, &counting)
        .expect("the card's ledger counts the rows of its DAG table");
    DagEntry::new(name.clone(), uid, dag.spec().clone(), core.now())
}

/// Adds a DAG that is admitted; the operation ends when it is ready.
pub(crate) fn add_dag(
    core: &mut Core,
    tx: &mut Tx,
    entry: DagEntry,
    admission: Admission,
) -> OperationId {
    let name = entry.name().clone();
    forget_refused(core, tx, &name);
    core.registry.charge_dag(&name.tenant, entry.spec(), None);
    if core.dags.is_empty() {
        // Samples were far apart so far: none was missed.
        core.loops.begin_samples(core.now());
    }
    core.dags.add(tx, entry);
    scaling::admit(core, tx, &name, admission);
    begin_operation(core, tx, &name, OperationWork::CreateDag(name.clone()))
}

/// An operation that ends when the DAG is ready.
fn begin_operation(
    core: &mut Core,
    tx: &mut Tx,
    name: &DagName,
    work: OperationWork,
) -> OperationId {
    let id = work::begin(core, tx, work);
    core.dags.known_mut(name).set_operation(id.clone());
    core.dags.store(tx, name);
    id
}

/// The DAG as it would be.
pub(crate) fn preview(core: &Core, entry: DagEntry, choice: Choice) -> DagView {
    let placement = Placement {
        serial: 0,
        generation: entry.generation(),
        spec: entry.spec().clone(),
        burst: None,
        mapping: choice.plan.mapping,
        stage_row: 0,
        chain_row: 0,
        instance_row: 0,
    };
    let mut entry = entry.planned_at(placement);
    entry.set_explanation(Some(choice.plan.explanation));
    let mut view = views::view_of(core, &entry);
    view.state = DagState::Pending;
    view
}

pub(crate) fn update_dag(
    core: &mut Core,
    tx: &mut Tx,
    name: &DagName,
    spec: DagSpec,
    validate_only: bool,
) -> Result<Reply, ControlError> {
    let dag = check_spec(core, &name.tenant, spec)?;
    check_quota(core, name, dag.spec(), None)?;
    budgets::check_bandwidth(core, name, dag.bandwidth())?;
    let entry = core.dags.known(name);
    let notes = &dag.spec().notes;
    if *dag.spec() == entry.spec().with_notes(notes.clone()) && entry.desired().is_some() {
        return Ok(match validate_only {
            true => {
                let mut entry = entry.clone();
                entry.annotate(notes.clone(), core.now());
                Reply::WouldBe(Box::new(views::view_of(core, &entry)))
            }
            false => {
                annotate(core, tx, name, notes);
                nothing_to_update(core, tx, name)
            }
        });
    }
    if entry.operation().is_none() {
        quotas::check_operation(core, &name.tenant)?; // Otherwise it takes the place of that one.
    }
    let decided = placement::decide(core, name, &dag).and_then(|admission| {
        check_choice(core, name, dag.spec(), &admission.choice).map(|()| admission)
    });
    let admission = match decided {
        Ok(admission) if validate_only => {
            let mut entry = entry.clone();
            entry.change_spec(dag.spec().clone(), core.now());
            return Ok(Reply::WouldBe(Box::new(preview(core, entry, admission.choice))));
        }
        Ok(admission) => admission,
        Err(error) => {
            if !validate_only {
                note_refused(core, tx, name, dag.spec(), &error);
            }
            return Err(error);
        }
    };
    forget_refused(core, tx, name);
    supersede(core, tx, name);
    set_spec(core, name, dag.spec());
    scaling::admit(core, tx, name, admission);
    let id = begin_operation(core, tx, name, OperationWork::UpdateDag(name.clone()));
    Ok(work::reply(core, &id))
}

/// The next generation of a DAG.
fn set_spec(core: &mut Core, name: &DagName, spec: &DagSpec) {
    let now = core.now();
    let before = core.dags.change_spec(name, spec.clone(), now);
    if let Some(card) = core.dags.known(name).card() {
        core.loops.known_mut(card).topology_changed();
    }
    let card = core.dags.known(name).card();
    core.registry.discharge_dag(&name.tenant, &before, card);
    core.registry.charge_dag(&name.tenant, spec, card);
}

/// Changes the labels or the description of a DAG: nothing is placed again.
fn annotate(core: &mut Core, tx: &mut Tx, name: &DagName, notes: &Notes) {
    let now = core.now();
    let entry = core.dags.known(name);
    let uid = entry.uid();
    if entry.spec().notes == *notes {
        return;
    }
    core.dags.known_mut(name).annotate(notes.clone(), now);
    core.dags.store(tx, name);
    tx.emit(Change::Dag(name.clone(), uid));
}

/// An update to what is there already: the operation under way, or one that has ended.
pub(crate) fn nothing_to_update(core: &mut Core, tx: &mut Tx, name: &DagName) -> Reply {
    let pending = core.dags.get(name).and_then(|e| e.operation().cloned());
    let id = pending.unwrap_or_else(|| {
        let id = work::begin(core, tx, OperationWork::UpdateDag(name.clone()));
        work::end(core, tx, &id, Ok(()));
        id
    });
    work::reply(core, &id)
}

/// Ends the operation that an earlier change of the DAG began.
pub(crate) fn supersede(core: &mut Core, tx: &mut Tx, name: &DagName) {
    let operation = core.dags.get(name).and_then(|entry| entry.operation().cloned());
    if let Some(operation) = operation {
        let error = ControlError::Superseded { resource: name.to_string() };
        work::end(core, tx, &operation, Err(error));
    }
}

/// Checks that what serves a DAG is within its tenant's quota: others may have since what an update gave
/// up. Where nothing serves there is nothing to check.
pub(crate) fn check_revert(core: &Core, name: &DagName) -> Result<(), ControlError> {
    let Some(serving) = core.dags.known(name).previous() else { return Ok(()) };
    check_quota(core, name, &serving.spec, Some(&serving.mapping.card))
}

/// Takes an update back that has not started: what serves is what is wanted again.
///
/// # Errors
/// Nothing serves.
pub(crate) fn revert_update(
    core: &mut Core,
    tx: &mut Tx,
    name: &DagName,
) -> Result<(), NothingServes> {
    let entry = core.dags.known(name);
    let serving = &entry.previous().ok_or(NothingServes)?.spec;
    let spec = serving.with_notes(entry.spec().notes.clone());
    placement::uninstall(core, name);
    set_spec(core, name, &spec);
    core.dags.known_mut(name).abort();
    core.dags.set_scheduled(name);
    core.dags.forget_explanation(tx, name);
    placement::hold_again(core, name);
    core.dags.store(tx, name);
    core.dags.mark_dirty(name);
    Ok(())
}

/// Deletes a DAG that no binding is on, and for which no operation is under way.
pub(crate) fn delete_dag(core: &mut Core, tx: &mut Tx, name: &DagName) -> Reply {
    let card = remove_dag(core, tx, name);
    let id = work::begin(core, tx, OperationWork::DeleteDag(name.clone(), card.clone()));
    match card {
        Some(card) => core.cards.known_mut(&card).wait_for_removal(id.clone()),
        None => work::end(core, tx, &id, Ok(())),
    }
    work::reply(core, &id)
}

/// Removes a DAG that no binding is on, and the rules that lead to it; says which card still has rows of it.
pub(crate) fn remove_dag(core: &mut Core, tx: &mut Tx, name: &DagName) -> Option<CardId> {
    classification::remove_rules_of(core, tx, name);
    let mut last = views::view_of(core, core.dags.known(name));
    last.state = DagState::Deleting;
    forgotten::forget_dag(core, tx, name);
    let served = core.dags.known(name).targeted().map(|placement| placement.mapping.card.clone());
    let card = placement::evict(core, tx, name);
    let entry = core.dags.remove(tx, name);
    if let Some(card) = &served {
        // The shares of those that stay do not count it any more.
        core.loops.known_mut(card).topology_changed();
    }
    core.registry.discharge_dag(&name.tenant, entry.spec(), entry.card());
    tx.emit(Change::DagDeleted(Box::new(last)));
    core.freed.capacity();
    card
}

/// Checks a spec: its structure, and that its tenant may use its NTs.
pub(crate) fn check_spec(
    core: &Core,
    tenant: &TenantId,
    spec: DagSpec,
) -> Result<Dag, ControlError> {
    let unknown: Vec<FieldViolation> = spec
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| core.registry.usable_nt(tenant, &node.nt).is_none())
        .map(|(i, node)| FieldViolation {
            field: format!("dag.nodes[{i}].nt_type"),
            description: format!(
                "ntTypes/{} does not exist; list NT types to see which do",
                node.nt
            ),
        })
        .collect();
    let strangers = strangers(tenant, &spec.card_affinity);
    let dag = Dag::new(spec)?;
    let wrong = [unknown, strangers].concat();
    if !wrong.is_empty() {
        return Err(ControlError::Invalid(wrong));
    }
    check_stored_size(dag.spec())?;
    Ok(dag)
}

/// Checks that the record of a DAG has room for the spec, also while the DAG is being updated. It counts what is
/// stored, not the text that was sent. The other limits are lower, so it never fails unless one of them is raised.
fn check_stored_size(spec: &DagSpec) -> Result<(), ControlError> {
    let bytes = records::spec_bytes(spec);
    if bytes <= DAG_SPEC_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "the DAG takes {bytes} bytes of the store; at most {DAG_SPEC_BYTES_MAX} are allowed: shorten the \
         configurations of its nodes"
    );
    Err(ControlError::invalid("dag.nodes", text))
}

/// The DAGs of other tenants that an affinity names.
fn strangers(tenant: &TenantId, affinity: &CardAffinity) -> Vec<FieldViolation> {
    affinity
        .strangers(tenant)
        .map(|(list, dag)| FieldViolation {
            field: format!("dag.card_affinity.{list}"),
            description: format!("{dag} is not of tenants/{tenant}; name DAGs of the same tenant"),
        })
        .collect()
}

/// Checks that a DAG, new or changed, is within its tenant's quota on a card, or wherever it goes.
fn check_quota(
    core: &Core,
    name: &DagName,
    spec: &DagSpec,
    card: Option<&CardId>,
) -> Result<(), ControlError> {
    check_configurations(core, name, spec)?;
    let before = core.dags.get(name).map(DagEntry::counted);
    core.registry.check_dag_quota(&name.tenant, before, spec, card)
}

fn check_configurations(core: &Core, name: &DagName, spec: &DagSpec) -> Result<(), ControlError> {
    let wanted = spec.configurations();
    if wanted == 0 {
        return Ok(());
    }
    let own = core.dags.get(name).map_or(0, |entry| entry.spec().configurations());
    check_configured(name, core.dags.configurations_of(&name.tenant) - own, wanted)
}

/// Checks that a tenant's configured NTs, each with its tables on a card, are not too many.
pub(crate) fn check_configured(
    name: &DagName,
    held: usize,
    more: usize,
) -> Result<(), ControlError> {
    let wanted = held + more;
    if wanted <= TENANT_CONFIGURATIONS_MAX {
        return Ok(());
    }
    let quota = "network tasks with a configuration";
    let limit = TENANT_CONFIGURATIONS_MAX;
    Err(ControlError::over_quota(&name.tenant, quota, limit, held, wanted))
}

/// Checks that a DAG's tasks can do their work at the place of a plan.
pub(crate) fn check_choice(
    core: &Core,
    name: &DagName,
    spec: &DagSpec,
    choice: &Choice,
) -> Result<(), ControlError> {
    check_card(core, name, spec, &choice.card)?;
    placement::check_latency(core, name, spec, choice)?;
    placement::check_tasks(core, name, spec, choice, core.policies.current().admission.idle_tasks)
}

/// Checks that the card of a plan can configure the NTs of a DAG; one that has not answered yet may.
fn check_card(
    core: &Core,
    name: &DagName,
    spec: &DagSpec,
    at: &CardId,
) -> Result<(), ControlError> {
    let card = core.cards.known(at);
    if spec.configurations() == 0 || !card.is_ready() || card.configures() {
        return Ok(());
    }
    Err(no_configurations(name))
}

/// Remembers a DAG that was refused for want of room: from it is said what is worth building.
pub(crate) fn note_refused(
    core: &mut Core,
    tx: &mut Tx,
    name: &DagName,
    spec: &DagSpec,
    error: &ControlError,
) {
    if let ControlError::Refused(why) = error {
        core.refused.note(tx, name, spec);
        let now = core.now();
        core.passes.begin_sooner(now);
        if consolidation::may_help(core, name, spec, why) {
            core.planning.let_wait();
        }
    }
}

/// It was admitted after all.
fn forget_refused(core: &mut Core, tx: &mut Tx, name: &DagName) {
    core.refused.forget(tx, |refused| refused == name);
}
