//! Bitstreams and tenants that an operator deletes while DAGs use them: these DAGs are moved first.
//!
//! ```text
//!              nothing new is planned        at most MOVES_MAX begin        no DAG uses it any more
//!  asked for ───────────────────────► withheld ────────────────► moving ───────────────────────► deleted
//!                                        ▲                          │
//!                as before ◄── ended ◄───┴── a DAG has no other place, or it is cancelled
//! ```
//!
//! Only the operation is stored: after a crash the DAGs that still use it are looked for again.
//!
//! DAGs of others may name a tenant that is deleted as one that they trust. They do not any more before it is gone:
//! who has the name later is another, whom nobody trusts until they say so.

use snic_domain::{BitstreamId, Dag, DagName, NtTypeId, OperationId, TenantId};

use crate::place::{contents, placement, work};
use crate::protocol::{Caller, Change, ControlError, OperationWork, Reply};
use crate::request::vm_bindings;
use crate::state::Core;
use crate::state::dags::DagEntry;
use crate::state::operations::Removal;
use crate::state::usage::Usage;
use crate::store::tx::Tx;
use crate::view::images;

/// Result of a removal's step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RemovalStep {
    /// DAGs are on their way, or there is nothing to delete.
    Waits,
    /// DAGs begin to move.
    Moves,
    /// It has ended.
    Ended,
}

/// Deletes a bitstream. If DAGs use it, only an operator can, and they are moved first.
///
/// # Errors
/// It does not exist or is not as it was read; the caller may not; or one of the first DAGs has no other place.
pub(crate) fn delete_bitstream(
    core: &mut Core,
    tx: &mut Tx,
    caller: &Caller,
    id: &BitstreamId,
    etag: Option<&str>,
) -> Result<Reply, ControlError> {
    core.registry.check_bitstream_deletion(caller, id, etag)?;
    let removal = Removal::Bitstream(id.clone());
    if images::users(core, &removal).is_empty() {
        remove_bitstream(core, tx, id);
        return Ok(Reply::Done);
    }
    if !matches!(caller, Caller::Operator(_)) {
        let used = "DAGs use it; delete or change them first";
        return Err(ControlError::precondition(name_of(&removal), used));
    }
    begin(core, tx, &removal)
}

/// Deletes a tenant. Rejected while it owns anything, unless forced; rejected even then while others use NT types
/// of it. DAGs of others that use its bitstreams are moved first.
///
/// # Errors
/// It does not exist or is not as it was read; it owns something; its NT types are used; or one of the first DAGs
/// has no other place.
pub(crate) fn delete_tenant(
    core: &mut Core,
    tx: &mut Tx,
    id: &TenantId,
    force: bool,
    etag: Option<&str>,
) -> Result<Reply, ControlError> {
    core.registry.check_tenant_etag(id, etag)?;
    let removal = Removal::Tenant(id.clone());
    let dags = core.dags.count_of(id);
    let (nts, bitstreams) = core.registry.owned_by(id);
    if !force && dags + bitstreams.len() + nts.len() > 0 {
        let owned = format!(
            "it owns {dags} DAGs, {} bitstreams and {} NT types; delete them first, or use force",
            bitstreams.len(),
            nts.len()
        );
        return Err(ControlError::precondition(name_of(&removal), owned));
    }
    check_nts(core, id, &nts)?;
    if images::users(core, &removal).is_empty() && forget_trust(core, tx, id) == TrustLeft::None {
        remove_tenant(core, tx, id);
        return Ok(Reply::Done);
    }
    begin(core, tx, &removal)
}

/// Begins to move the DAGs that use what is to be deleted.
///
/// # Errors
/// One of the first has no other place; nothing has changed then.
fn begin(core: &mut Core, tx: &mut Tx, removal: &Removal) -> Result<Reply, ControlError> {
    let mut pending = core.operations.removals();
    if let Some((operation, _)) = pending.find(|(_, of)| *of == removal) {
        return Ok(work::reply(core, operation));
    }
    drop(pending);
    check_first(core, removal)?;
    let work = match removal {
        Removal::Bitstream(id) => OperationWork::DeleteBitstream(id.clone()),
        Removal::Tenant(id) => OperationWork::DeleteTenant(id.clone()),
    };
    let operation = work::begin(core, tx, work);
    Ok(work::reply(core, &operation))
}

/// Whether each of the first DAGs would find another place, if it were alone.
fn check_first(core: &Core, removal: &Removal) -> Result<(), ControlError> {
    let mut catalogue = core.registry.catalogue().clone();
    let mut ids = catalogue.withheld();
    ids.extend(images::removed_with(core, removal));
    catalogue.withhold(&ids);
    for name in images::users(core, removal).iter().take_while(|_| core.planning.may_begin()) {
        let entry = core.dags.known(name);
        let Some(placement) = entry.desired() else { continue };
        let dag = Dag::new(placement.spec.clone()).expect("it was checked when it was admitted");
        let serves = entry.active() == Some(placement.serial);
        placement::choose_from(core, &catalogue, name, &dag, serves.then_some(placement))
            .map_err(|error| no_other_place(removal, name, &error))?;
    }
    Ok(())
}

/// For operators, who may know whose DAG it is.
fn no_other_place(removal: &Removal, name: &DagName, error: &ControlError) -> ControlError {
    let text = format!(
        "{name} uses it and has no other place ({error}); delete or change the DAG, or make room for it"
    );
    ControlError::precondition(name_of(removal), text)
}

/// Takes the next steps of all removals, with as many moves as one event may begin. Time
/// O(removals × (regions + DAGs that use what is removed)).
pub(crate) fn take_next_steps(core: &mut Core, tx: &mut Tx) -> RemovalStep {
    let pending: Vec<_> =
        core.operations.removals().map(|(id, of)| (id.clone(), of.clone())).collect();
    let mut made = RemovalStep::Waits;
    for (operation, removal) in pending {
        // It may have ended with an earlier one of this loop.
        if core.operations.get(&operation).is_none_or(|record| record.ended.is_some()) {
            continue;
        }
        let step = step(core, tx, &removal);
        match &step {
            Ok(RemovalStep::Waits) => {}
            Ok(RemovalStep::Moves) => core.operations.start(&operation, core.now()),
            Ok(RemovalStep::Ended) => work::end(core, tx, &operation, Ok(())),
            Err(error) => work::end(core, tx, &operation, Err(error.clone())),
        }
        made = made.max(step.unwrap_or(RemovalStep::Ended));
    }
    made
}

fn step(core: &mut Core, tx: &mut Tx, removal: &Removal) -> Result<RemovalStep, ControlError> {
    let users = images::users(core, removal);
    if users.is_empty() {
        return remove(core, tx, removal);
    }
    let mut result = RemovalStep::Waits;
    for name in users {
        let entry = core.dags.known(&name);
        if entry.previous().is_some() && entry.desired().is_some() {
            continue; // It is on its way.
        }
        if entry.desired().is_none() {
            let text = format!("{name} uses it and waits for a place; delete or change the DAG");
            return Err(ControlError::precondition(name_of(removal), text));
        }
        if !core.planning.may_begin() {
            break;
        }
        placement::relocate(core, tx, &name)
            .map_err(|error| no_other_place(removal, &name, &error))?;
        result = RemovalStep::Moves;
    }
    Ok(result)
}

/// Deletes what no DAG of others uses any more.
fn remove(core: &mut Core, tx: &mut Tx, removal: &Removal) -> Result<RemovalStep, ControlError> {
    match removal {
        Removal::Bitstream(id) if core.registry.bitstream(id).is_some() => {
            remove_bitstream(core, tx, id);
        }
        Removal::Tenant(id) if core.registry.tenant(id).is_some() => {
            let (nts, _) = core.registry.owned_by(id);
            check_nts(core, id, &nts)?;
            if forget_trust(core, tx, id) == TrustLeft::Some {
                return Ok(RemovalStep::Waits);
            }
            remove_tenant(core, tx, id);
        }
        Removal::Bitstream(_) | Removal::Tenant(_) => {} // It was deleted with another.
    }
    Ok(RemovalStep::Ended)
}

/// Whether DAGs are left that trust a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrustLeft {
    Some,
    None,
}

/// Has DAGs of others trust a tenant no more that is about to go, as many as one event may change. Their owners see
/// it: the DAGs change. No placement leads through an image of the tenant any more, and the removal cannot be
/// cancelled from here on: nobody would get back the names that are struck.
fn forget_trust(core: &mut Core, tx: &mut Tx, id: &TenantId) -> TrustLeft {
    let now = core.now();
    while let Some(name) = core.dags.trusts(id) {
        if !core.planning.may_begin() {
            return TrustLeft::Some;
        }
        core.planning.changed();
        core.dags.forget_trust(&name, id, now);
        core.dags.store(tx, &name);
        core.dags.emit(tx, &name);
        core.dags.mark_dirty(&name);
    }
    TrustLeft::None
}

/// Ends a removal before it is done. What was moved stays where it is.
///
/// # Errors
/// Nothing uses any more what is removed: it is about to be gone.
pub(crate) fn cancel(
    core: &mut Core,
    tx: &mut Tx,
    operation: &OperationId,
    removal: &Removal,
) -> Result<(), ControlError> {
    if images::users(core, removal).is_empty() {
        let text = "nothing uses what it deletes any more; wait for its end";
        return Err(ControlError::precondition(format!("operations/{operation}"), text));
    }
    work::end(core, tx, operation, Err(ControlError::Cancelled));
    Ok(())
}

/// Removes a bitstream that no DAG uses; regions that hold it are free.
fn remove_bitstream(core: &mut Core, tx: &mut Tx, id: &BitstreamId) {
    for (card, region) in core.cards.regions_with(id) {
        contents::set_content(core, tx, &card, region, None);
        tx.emit_region(&card, region);
    }
    core.registry.remove_bitstream(tx, id);
}

/// Removes a tenant, and all that it owns, of which no other tenant uses anything, and which none trusts.
fn remove_tenant(core: &mut Core, tx: &mut Tx, id: &TenantId) {
    let resource = format!("tenants/{id}");
    let dags: Vec<DagName> = core.dags.of_tenant(id).map(|entry| entry.name().clone()).collect();
    for name in &dags {
        // A machine's own DAG goes with its binding, which may be on one of the others.
        let operation = core.dags.get(name).and_then(DagEntry::operation).cloned();
        if let Some(operation) = operation {
            let error = ControlError::Superseded { resource: resource.clone() };
            work::end(core, tx, &operation, Err(error));
        }
        vm_bindings::remove_dag(core, tx, name);
    }
    let (nts, bitstreams) = core.registry.owned_by(id);
    for bitstream in &bitstreams {
        remove_bitstream(core, tx, bitstream);
    }
    for nt in &nts {
        core.registry.remove_nt(tx, nt);
    }
    core.refused.forget(tx, |name| name.tenant == *id);
    core.registry.remove_tenant(tx, id);
    Usage::follow_tenant(core, id);
    tx.emit(Change::TenantDeleted(id.clone()));
}

/// Time O(NT types × log DAGs).
///
/// # Errors
/// DAGs or bitstreams of other tenants use NT types of this one.
fn check_nts(core: &mut Core, id: &TenantId, nts: &[NtTypeId]) -> Result<(), ControlError> {
    let Core { dags, registry, .. } = core;
    if nts.iter().any(|nt| dags.is_used(nt, Some(id)) || registry.others_hold(nt, id)) {
        let shared = "others use NT types that it shares; they must change first";
        return Err(ControlError::precondition(format!("tenants/{id}"), shared));
    }
    Ok(())
}

fn name_of(removal: &Removal) -> String {
    match removal {
        Removal::Bitstream(id) => format!("bitstreams/{id}"),
        Removal::Tenant(id) => format!("tenants/{id}"),
    }
}
