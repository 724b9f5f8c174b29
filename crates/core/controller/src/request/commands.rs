//! Dispatches requests, each to the machine that it concerns or to the module that coordinates several
//! machines.

use snic_domain::{BindingSpec, Bitstream, BitstreamId, DagName, NtTypeId, OperationId, TenantId};

use crate::place::{classification, consolidation, drains, work};
use crate::protocol::{Caller, Command, ControlError, OperationWork, Reply};
use crate::request::lifecycle::NothingServes;
use crate::request::{
    assignments, batch_create, lifecycle, managed, registrations, removals, reopening, retirement,
    vm_bindings,
};
use crate::state::Core;
use crate::state::dags::DagEntry;
use crate::state::operations::Removal;
use crate::state::registry::NtUsers;
use crate::store::records::{self, CreatedResource};
use crate::store::tx::Tx;
use crate::view::{guards, views};

pub(crate) fn made(
    core: &Core,
    caller: &Caller,
    made: &CreatedResource,
) -> Result<Reply, ControlError> {
    match made {
        CreatedResource::Tenant(id) => core.registry.tenant_view(id).map(Reply::Tenant),
        CreatedResource::NtType(id) => core.registry.nt_view(caller, id).map(Reply::NtType),
        CreatedResource::Bitstream(id) => {
            core.registry.bitstream_view(caller, id).map(Reply::Bitstream)
        }
        CreatedResource::Rule(id) => views::rule_view(core, id).map(Reply::Rule),
        CreatedResource::Operation(id) => {
            core.operations.get(id).map(|r| Reply::Operation(views::operation_view(core, r)))
        }
        CreatedResource::Region(card, region) => {
            views::region_view(core, card, *region).map(Reply::Region)
        }
        CreatedResource::Binding(vm) => {
            views::binding_view(core, vm).map(|view| Reply::Binding(Box::new(view)))
        }
        CreatedResource::Batch(made) => {
            let of = |made: &Result<OperationId, ControlError>| match made {
                Ok(id) => {
                    let record = core.operations.get(id)?;
                    Some(Ok(Reply::Operation(views::operation_view(core, record))))
                }
                Err(error) => Some(Err(error.clone())),
            };
            made.iter().map(of).collect::<Option<_>>().map(Reply::Batch)
        }
        CreatedResource::Done => Some(Reply::Done),
    }
    .ok_or_else(|| ControlError::not_found("what this request made before"))
}

/// Carries out a command.
pub(crate) fn carry_out(
    core: &mut Core,
    tx: &mut Tx,
    caller: &Caller,
    command: Command,
) -> Result<Reply, ControlError> {
    managed::check(core, caller, &command)?;
    match command {
        Command::CreateTenant(tenant) => {
            registrations::create_tenant(core, tx, tenant).map(Reply::Tenant)
        }
        Command::UpdateTenant { id, patch, etag } => {
            registrations::update_tenant(core, tx, &id, patch, etag.as_deref()).map(Reply::Tenant)
        }
        Command::DeleteTenant { id, force, etag } => {
            removals::delete_tenant(core, tx, &id, force, etag.as_deref())
        }
        Command::CreateNtType(nt) => core.registry.create_nt(tx, caller, nt).map(Reply::NtType),
        Command::DeleteNtType { id, etag } => delete_nt(core, tx, caller, &id, etag.as_deref()),
        Command::CreateBitstream(new) => create_bitstream(core, tx, caller, new),
        Command::DeleteBitstream { id, image: None, etag } => {
            removals::delete_bitstream(core, tx, caller, &id, etag.as_deref())
        }
        Command::DeleteBitstream { id, image: Some(image), etag } => {
            registrations::delete_image(core, tx, caller, (&id, image), etag.as_deref())
        }
        Command::RetryBitstream { id, etag } => {
            retry_bitstream(core, tx, caller, &id, etag.as_deref())
        }
        Command::CreateDag { name, spec, validate_only } => {
            check_may_create(core, caller, &name.tenant)?;
            lifecycle::create_dag(core, tx, name, spec, validate_only)
        }
        Command::CreateDags { batch, plan } => {
            check_may_create(core, caller, &batch.tenant)?;
            batch_create::create_dags(core, tx, &batch, plan)
        }
        Command::UpdateDag { name, patch, etag, validate_only } => {
            let spec = patch.apply(visible_dag(core, caller, &name, etag.as_deref())?.spec());
            lifecycle::update_dag(core, tx, &name, spec, validate_only)
        }
        Command::DeleteDag { name, etag } => {
            visible_dag(core, caller, &name, etag.as_deref())?;
            vm_bindings::check_unbound(core, &name)?;
            Ok(vm_bindings::delete_dag(core, tx, &name))
        }
        Command::CreateRule(rule) => classification::create_rule(core, tx, caller, rule),
        Command::UpdateRule { id, patch, etag } => {
            classification::update_rule(core, tx, caller, &id, (patch, etag.as_deref()))
        }
        Command::DeleteRule { id, etag } => {
            classification::delete_rule(core, tx, caller, &id, etag.as_deref())
        }
        Command::Guarded { etag, command } => {
            guards::check(core, &command, &etag)?;
            carry_out(core, tx, caller, *command)
        }
        Command::DrainRegion { card, region } => drains::drain_region(core, tx, &card, region),
        Command::DrainCard { card } => drains::drain_card(core, tx, &card),
        Command::Cordon { card, region, on } => drains::cordon_regions(core, tx, &card, region, on),
        Command::Maintain { reason } => core.maintenance.set(tx, caller, reason).map(done),
        Command::UndrainRegion { card, region } => drains::undrain_region(core, tx, &card, region),
        Command::ResetRegion { card, region } => drains::reset_region(core, tx, &card, region),
        Command::BindVm(spec) => bind_vm(core, tx, spec),
        Command::UnbindVm { vm, tenant } => vm_bindings::unbind_vm(core, tx, &vm, tenant.as_ref()),
        Command::Heartbeat { vms } => Ok(vm_bindings::heartbeat(core, tx, vms)),
        Command::OptimizeCard { card } => consolidation::optimize_card(core, tx, &card),
        Command::LoadRole { card, force } => reopening::load_role(core, tx, &card, force),
        Command::ResetCard { card, force } => reopening::reset_card(core, tx, &card, force),
        Command::RemoveCard { card } => retirement::remove_card(core, tx, &card),
        Command::ReplaceCard { card } => retirement::replace_card(core, tx, &card),
        Command::CancelOperation { id } => cancel_operation(core, tx, caller, &id),
        Command::DeleteOperation { id } => core.operations.delete(tx, caller, &id).map(done),
        Command::Fleet(change) => assignments::carry_out(core, tx, change),
    }
}

/// The reply to what has nothing to say.
const fn done((): ()) -> Reply {
    Reply::Done
}

/// Refuses new DAGs of a tenant under maintenance, and where the caller may not know of the tenant.
fn check_may_create(core: &Core, caller: &Caller, id: &TenantId) -> Result<(), ControlError> {
    core.maintenance.check()?;
    lifecycle::visible_tenant(core, caller, id)
}

fn create_bitstream(
    core: &mut Core,
    tx: &mut Tx,
    caller: &Caller,
    bitstream: Bitstream,
) -> Result<Reply, ControlError> {
    registrations::create_bitstream(core, tx, caller, bitstream).map(Reply::Bitstream)
}

/// A DAG that the caller may know of and that is as it was read.
fn visible_dag<'a>(
    core: &'a Core,
    caller: &Caller,
    name: &DagName,
    etag: Option<&str>,
) -> Result<&'a DagEntry, ControlError> {
    let entry = lifecycle::visible_dag(core, caller, name)?;
    lifecycle::check_dag_etag(core, name, etag)?;
    Ok(entry)
}

fn bind_vm(core: &mut Core, tx: &mut Tx, spec: BindingSpec) -> Result<Reply, ControlError> {
    // A machine that is bound already gets its binding, also under maintenance.
    if core.bindings.live(&spec.vm).is_none() {
        core.maintenance.check()?;
    }
    vm_bindings::bind_vm(core, tx, spec)
}

/// Takes a rejected bitstream back; DAGs that wait for a place are tried with it.
fn retry_bitstream(
    core: &mut Core,
    tx: &mut Tx,
    caller: &Caller,
    id: &BitstreamId,
    etag: Option<&str>,
) -> Result<Reply, ControlError> {
    let view = core.registry.retry_bitstream(tx, caller, id, etag)?;
    core.freed.capacity();
    Ok(Reply::Bitstream(view))
}

fn delete_nt(
    core: &mut Core,
    tx: &mut Tx,
    caller: &Caller,
    id: &NtTypeId,
    etag: Option<&str>,
) -> Result<Reply, ControlError> {
    // Only an operator is told how many.
    let dags = match caller.tenant() {
        Some(_) => usize::from(core.dags.is_used(id, None)),
        None => core.dags.count_users(id),
    };
    core.registry.check_nt_deletion(caller, id, etag, NtUsers { dags })?;
    core.registry.remove_nt(tx, id);
    Ok(Reply::Done)
}

fn cancel_operation(
    core: &mut Core,
    tx: &mut Tx,
    caller: &Caller,
    id: &OperationId,
) -> Result<Reply, ControlError> {
    let record = core.operations.visible(caller, id)?;
    let resource = format!("operations/{id}");
    if record.ended.is_some() {
        return Err(ControlError::precondition(resource, "it has ended already"));
    }
    let too_late = "it has started; wait for its end";
    match record.work.clone() {
        OperationWork::CreateDag(name) if record.started.is_none() => {
            work::end(core, tx, id, Err(ControlError::Cancelled));
            vm_bindings::remove_dag(core, tx, &name);
        }
        OperationWork::UpdateDag(name) if record.started.is_none() => {
            lifecycle::check_revert(core, &name)?;
            lifecycle::revert_update(core, tx, &name)
                .map_err(|NothingServes| ControlError::precondition(&resource, too_late))?;
            work::end(core, tx, id, Err(ControlError::Cancelled));
        }
        OperationWork::DrainRegion(card, region) => {
            drains::cancel(core, tx, id, &card, Some(region));
        }
        OperationWork::DrainCard(card) => drains::cancel(core, tx, id, &card, None),
        OperationWork::OptimizeCard(_) => work::end(core, tx, id, Err(ControlError::Cancelled)),
        OperationWork::DeleteBitstream(of) => {
            removals::cancel(core, tx, id, &Removal::Bitstream(of))?;
        }
        OperationWork::DeleteTenant(of) => removals::cancel(core, tx, id, &Removal::Tenant(of))?,
        _ => return Err(ControlError::precondition(resource, too_late)),
    }
    Ok(Reply::Done)
}

/// Result that is remembered of a request, so that its repetition is answered alike.
pub(crate) fn made_by(reply: &Reply) -> Option<CreatedResource> {
    match reply {
        Reply::Tenant(view) => Some(CreatedResource::Tenant(view.tenant.id.clone())),
        Reply::NtType(view) => Some(CreatedResource::NtType(view.nt.id.clone())),
        Reply::Bitstream(view) => Some(CreatedResource::Bitstream(view.bitstream.id.clone())),
        Reply::Rule(view) => Some(CreatedResource::Rule(view.rule.id.clone())),
        Reply::Operation(view) => Some(CreatedResource::Operation(view.record.id.clone())),
        Reply::Region(view) => Some(CreatedResource::Region(view.card.clone(), view.region)),
        Reply::Binding(view) => Some(CreatedResource::Binding(view.record.spec.vm.clone())),
        Reply::Batch(results) => {
            let made = |result: &Result<Reply, ControlError>| match result {
                Ok(Reply::Operation(view)) => Some(Ok(view.record.id.clone())),
                Ok(_) => None, // A dry run.
                Err(error) => Some(Err(records::storable_error(error))),
            };
            results.iter().map(made).collect::<Option<_>>().map(CreatedResource::Batch)
        }
        Reply::Done => Some(CreatedResource::Done),
        // These change nothing, or say that something still lives: again is as good.
        Reply::Heartbeat { .. } | Reply::WouldBe(_) | Reply::PlanAgain(_) => None,
    }
}
