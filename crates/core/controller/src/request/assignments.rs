//! Orders of the fleet for this host: it serves DAGs on the cards that the fleet chose, with the tenants, NT types and
//! bitstreams that they need.
//!
//! ```text
//!   Assign ──► new here ─────────────────────► created on its card
//!         ├──► on this card ─────────────────► updated there, without a stop
//!         └──► on another card of the host ──► taken off there and created here, in one step
//! ```
//!
//! Card and serial are stored with the DAG, so after a crash it is known which assignment was carried out. The same
//! one again changes nothing. What the fleet provides has a number: the same one is the same thing. Quotas were checked by the
//! fleet: its tenants have none here.

use std::collections::BTreeMap;

use snic_domain::{
    Bitstream, CardId, DagAttachments, DagName, DagSpec, FunctionUse, NotesPatch, NtType, NtTypeId,
    Quota, RegionImage, Tenant, TenantId, TenantPatch,
};

use crate::place::{placement, work};
use crate::protocol::{
    AppliedPlace, AssignedCard, AssignedDag, AssignmentProgress, BindingRecord, Caller,
    ControlError, DagAssignment, FleetChange, Provision, ProvisionName, Reply,
};
use crate::request::{lifecycle, registrations, removals, vm_bindings};
use crate::state::Core;
use crate::state::dags::DagEntry;
use crate::state::registry::NtUsers;
use crate::store::tx::Tx;

/// The number of a tenant that was not provided: it only owns what was.
const OWNER_ONLY: u64 = 0;

/// The tenant that a change may create.
pub(crate) fn tenant_of(change: &FleetChange) -> Option<TenantId> {
    match change {
        FleetChange::Assign(assignment) => Some(assignment.tenant.id.clone()),
        FleetChange::Provide { what, .. } => match &**what {
            Provision::Tenant(tenant) => Some(tenant.id.clone()),
            Provision::NtType(nt) => nt.id.owner(),
            Provision::Bitstream(bitstream) => bitstream.id.owner(),
        },
        FleetChange::Withdraw { .. } | FleetChange::Retire { .. } | FleetChange::Keep(_) => None,
    }
}

pub(crate) fn carry_out(
    core: &mut Core,
    tx: &mut Tx,
    change: FleetChange,
) -> Result<Reply, ControlError> {
    match change {
        FleetChange::Assign(assignment) => assign(core, tx, *assignment),
        FleetChange::Withdraw { name, card, if_detached } => {
            withdraw(core, tx, (&name, &card), if_detached)
        }
        FleetChange::Provide { what, number } => match *what {
            Provision::Tenant(tenant) => put_tenant(core, tx, tenant, number),
            Provision::NtType(nt) => provide_nt(core, tx, nt, number),
            Provision::Bitstream(bitstream) => provide_bitstream(core, tx, bitstream, number),
        }
        .map(|()| Reply::Done),
        FleetChange::Retire { name, number } => retire(core, tx, &name, number),
        FleetChange::Keep(all) => core.kept.set(tx, all).map(|()| Reply::Done),
    }
}

/// An assigned DAG, and how far it is.
pub(crate) fn assigned(core: &Core, entry: &DagEntry) -> Option<AssignedDag> {
    let to = entry.assigned()?.clone();
    let progress = match (entry.desired(), entry.operation()) {
        (None, _) => {
            AssignmentProgress::Failed(entry.why_unplaced().cloned().map(ControlError::from))
        }
        (Some(_), Some(_)) => AssignmentProgress::Pending,
        (Some(at), None) => {
            let is_plain = at.burst.is_none();
            let reservation = is_plain.then(|| placement::reservation_of(core, at)).flatten();
            let mapping = at.mapping.clone();
            AssignmentProgress::Applied(Box::new(AppliedPlace { mapping, reservation }))
        }
    };
    Some(AssignedDag { to, progress })
}

/// Numbers of all that the fleet provided. Time O(tenants + NT types + bitstreams).
pub(crate) fn provisions(core: &Core) -> Vec<(ProvisionName, u64)> {
    let all = core.registry.fleet_numbers();
    all.into_iter().filter(|(_, number)| *number != OWNER_ONLY).collect()
}

fn assign(core: &mut Core, tx: &mut Tx, assignment: DagAssignment) -> Result<Reply, ControlError> {
    let DagAssignment { name, tenant, tenant_number, spec, to } = assignment;
    if let Some(entry) = core.dags.get(&name) {
        let Some(held) = entry.assigned() else { return Err(is_of_host(&name)) };
        if (held.serial, &held.card) == (to.serial, &to.card) {
            return same_again(core, tx, &name, &spec);
        }
        if held.serial >= to.serial {
            let text =
                format!("it has assignment {} already, so {} is old", held.serial, to.serial);
            return Err(ControlError::precondition(&name, text));
        }
    }
    put_tenant(core, tx, tenant, tenant_number)?;
    serve(core, tx, name, spec, to)
}

/// The host gave a name that the fleet gives now.
fn is_of_host(resource: impl ToString) -> ControlError {
    let text = "it was created on this host, and the fleet has another one of this name; delete \
                it on the host";
    ControlError::precondition(resource, text)
}

/// An assignment that was carried out, or is being.
fn same_again(
    core: &mut Core,
    tx: &mut Tx,
    name: &DagName,
    spec: &DagSpec,
) -> Result<Reply, ControlError> {
    let entry = core.dags.known(name);
    if entry.spec() != spec {
        let text = "this assignment had another spec before; assign it with a later serial";
        return Err(ControlError::precondition(name, text));
    }
    Ok(lifecycle::nothing_to_update(core, tx, name))
}

/// A tenant as the fleet has it. Its budget is the fleet's business, too: one of nothing has its bursts switched off, whether this host
/// has prices or not.
fn put_tenant(
    core: &mut Core,
    tx: &mut Tx,
    tenant: Tenant,
    number: u64,
) -> Result<(), ControlError> {
    let month_budget = tenant.quota.month_budget;
    let tenant = Tenant { quota: Quota { month_budget, ..Quota::UNLIMITED }, ..tenant };
    let id = tenant.id.clone();
    let Some(record) = core.registry.tenant(&id) else {
        registrations::add_tenant(core, tx, tenant)?;
        core.registry.number_tenant(tx, &id, number);
        return Ok(());
    };
    let (Some(held), is_same) = (record.fleet_number, record.tenant == tenant) else {
        return Err(is_of_host(format!("tenants/{id}")));
    };
    if !is_same {
        let Tenant { weight, quota, notes, project, .. } = tenant;
        let (labels, description) = (Some(notes.labels), Some(notes.description));
        let notes = NotesPatch { labels, description };
        let (weight, quota, project) = (Some(weight), Some(quota.into()), project.into());
        let patch = TenantPatch { weight, quota, notes, project };
        registrations::change_tenant(core, tx, &id, patch, None)?;
    }
    if held != number {
        core.registry.number_tenant(tx, &id, number);
    }
    Ok(())
}

fn serve(
    core: &mut Core,
    tx: &mut Tx,
    name: DagName,
    spec: DagSpec,
    to: AssignedCard,
) -> Result<Reply, ControlError> {
    let held = core.dags.get(&name).and_then(DagEntry::assigned);
    match held.map(|held| held.card == to.card) {
        None => {
            core.maintenance.check()?;
            let decided = lifecycle::decide_assigned(core, name, spec, to)?;
            let operation = lifecycle::create_decided(core, tx, decided);
            Ok(work::reply(core, &operation))
        }
        Some(true) => {
            let reply = lifecycle::update_dag(core, tx, &name, spec, false)?;
            core.dags.known_mut(&name).assign(to);
            core.dags.store(tx, &name);
            core.dags.emit(tx, &name);
            Ok(reply)
        }
        Some(false) => {
            // A machine has functions of the card that it leaves.
            vm_bindings::check_unbound(core, &name)?;
            let decided = lifecycle::decide_assigned(core, name.clone(), spec, to)?;
            lifecycle::supersede(core, tx, &name);
            lifecycle::remove_dag(core, tx, &name);
            let operation = lifecycle::create_decided(core, tx, decided);
            Ok(work::reply(core, &operation))
        }
    }
}

/// Takes a DAG off a card. One that is not there any more, or is on another card by now, is left alone.
///
/// # Errors
/// Something leads packets to it, and it was to go only if nothing does.
fn withdraw(
    core: &mut Core,
    tx: &mut Tx,
    (name, card): (&DagName, &CardId),
    if_detached: bool,
) -> Result<Reply, ControlError> {
    let held = core.dags.get(name).and_then(DagEntry::assigned);
    if held.is_none_or(|held| held.card != *card) {
        return Ok(Reply::Done);
    }
    let attached = attachments_of(core, name);
    if if_detached && !attached.is_none() {
        return Err(ControlError::precondition(name, format!("{attached}, so it stays here")));
    }
    Ok(vm_bindings::delete_dag(core, tx, name))
}

/// Whatever leads packets to a DAG. Time O(bindings).
fn attachments_of(core: &Core, name: &DagName) -> DagAttachments {
    let machines = core.bindings.users().filter(|of| of.dags().contains(name)).count();
    let rules = core.rules.of(name).filter(|rule| !rule.is_of_machine()).count();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    DagAttachments { machines: number(machines), rules: number(rules) }
}

/// Use of the host's functions, as the fleet is told of it.
pub(crate) fn function_use(core: &Core) -> FunctionUse {
    FunctionUse { bound: core.bindings.functions_taken(), kept: core.kept.states(core.now()) }
}

/// Whatever leads packets to DAGs that the fleet assigned; those without anything are left out. Time O(bindings + rules).
pub(crate) fn attachments(core: &Core) -> BTreeMap<DagName, DagAttachments> {
    let mut all: BTreeMap<DagName, DagAttachments> = BTreeMap::new();
    for dag in core.bindings.users().flat_map(BindingRecord::dags) {
        let of = all.entry(dag.clone()).or_default();
        of.machines = of.machines.saturating_add(1);
    }
    for rule in core.rules.all().filter(|rule| !rule.is_of_machine()) {
        let of = all.entry(rule.rule.dag.clone()).or_default();
        of.rules = of.rules.saturating_add(1);
    }
    all.retain(|name, _| core.dags.get(name).is_some_and(|entry| entry.assigned().is_some()));
    all
}

/// The owner of what the fleet provides. Where the fleet has not provided it, it gets its weight with its first DAG.
fn put_owner(core: &mut Core, tx: &mut Tx, owner: Option<TenantId>) -> Result<(), ControlError> {
    let Some(id) = owner else { return Ok(()) };
    match core.registry.tenant(&id).map(|record| record.fleet_number) {
        None => {
            let (quota, notes) = Default::default();
            put_tenant(core, tx, Tenant { id, weight: 1, quota, notes, project: None }, OWNER_ONLY)
        }
        Some(None) => Err(is_of_host(format!("tenants/{id}"))),
        Some(Some(_)) => Ok(()),
    }
}

/// Caller in whose name the fleet's provisions are registered.
fn fleet() -> Caller {
    Caller::Operator("fleet".to_owned())
}

fn provide_nt(core: &mut Core, tx: &mut Tx, nt: NtType, number: u64) -> Result<(), ControlError> {
    let id = nt.id.clone();
    if let Some(present) = core.registry.nt(&id) {
        let (held, is_same) = (core.registry.number_of_nt(&id), *present == nt);
        match held {
            Some(held) if held == number => return Ok(()),
            Some(_) if is_same => {
                core.registry.number_nt(tx, &id, number);
                return Ok(());
            }
            Some(_) => remove_nt(core, tx, &id)?,
            // An operator registered the same one, and keeps it.
            None if is_same => return Ok(()),
            None => return Err(is_of_host(format!("ntTypes/{id}"))),
        }
    }
    put_owner(core, tx, id.owner())?;
    core.registry.create_nt(tx, &fleet(), nt)?;
    core.registry.number_nt(tx, &id, number);
    Ok(())
}

fn provide_bitstream(
    core: &mut Core,
    tx: &mut Tx,
    bitstream: Bitstream,
    number: u64,
) -> Result<(), ControlError> {
    let id = bitstream.id.clone();
    if let Some(present) = core.registry.bitstream(&id) {
        let is_same = *present == bitstream;
        match core.registry.number_of_bitstream(&id) {
            Some(_) if is_same => {
                core.registry.number_bitstream(tx, &id, number);
                return Ok(());
            }
            Some(_) if present.is_extended_by(&bitstream) => {
                let held = &present.images;
                let is_new = |image: &&RegionImage| held.with_digest(image.digest).is_none();
                if let Some(added) = bitstream.with_those(is_new) {
                    registrations::create_bitstream(core, tx, &fleet(), added)?;
                }
                core.registry.number_bitstream(tx, &id, number);
                return Ok(());
            }
            Some(held) if held == number => return Ok(()),
            Some(_) => {
                let text = "the one that the fleet had under this name is still in use";
                return Err(ControlError::precondition(format!("bitstreams/{id}"), text));
            }
            None if is_same => return Ok(()),
            None => return Err(is_of_host(format!("bitstreams/{id}"))),
        }
    }
    put_owner(core, tx, id.owner())?;
    registrations::create_bitstream(core, tx, &fleet(), bitstream)?;
    core.registry.number_bitstream(tx, &id, number);
    Ok(())
}

/// Removes what the fleet provided under a number. What is not there, has another number, or is the host's stays.
fn retire(
    core: &mut Core,
    tx: &mut Tx,
    name: &ProvisionName,
    number: u64,
) -> Result<Reply, ControlError> {
    let held = match name {
        ProvisionName::Tenant(id) => core.registry.tenant_number(id),
        ProvisionName::NtType(id) => core.registry.number_of_nt(id),
        ProvisionName::Bitstream(id) => core.registry.number_of_bitstream(id),
    };
    if held != Some(number) {
        return Ok(Reply::Done);
    }
    match name {
        ProvisionName::Tenant(id) => match removals::delete_tenant(core, tx, id, false, None) {
            // It still owns what the fleet provided, and goes with that.
            Err(ControlError::Precondition { .. }) if core.dags.of_tenant(id).next().is_none() => {
                core.registry.number_tenant(tx, id, OWNER_ONLY);
                Ok(Reply::Done)
            }
            other => other,
        },
        ProvisionName::NtType(id) => remove_nt(core, tx, id).map(|()| Reply::Done),
        ProvisionName::Bitstream(id) => {
            let reply = removals::delete_bitstream(core, tx, &fleet(), id, None)?;
            remove_idle_owner(core, tx, id.owner());
            Ok(reply)
        }
    }
}

/// # Errors
/// Something uses it.
fn remove_nt(core: &mut Core, tx: &mut Tx, id: &NtTypeId) -> Result<(), ControlError> {
    let dags = core.dags.count_users(id);
    core.registry.check_nt_deletion(&fleet(), id, None, NtUsers { dags })?;
    core.registry.remove_nt(tx, id);
    remove_idle_owner(core, tx, id.owner());
    Ok(())
}

/// An owner that was never provided goes with the last thing that it owns.
fn remove_idle_owner(core: &mut Core, tx: &mut Tx, owner: Option<TenantId>) {
    let is_idle = |id: &TenantId| core.registry.tenant_number(id) == Some(OWNER_ONLY);
    if let Some(id) = owner.filter(is_idle) {
        // Otherwise it owns something yet.
        let _ = removals::delete_tenant(core, tx, &id, false, None);
    }
}
