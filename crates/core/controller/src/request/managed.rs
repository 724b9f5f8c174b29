//! Guard of what the fleet manages, which the fleet alone changes: its ledgers mirror those of the hosts, and quotas are
//! checked there.

use snic_domain::{BindingTarget, BitstreamId, DagName, NtTypeId, OperationId, TenantId};

use crate::protocol::{Caller, Command, ControlError, OperationWork};
use crate::state::Core;

/// Refuses a change by others of what the fleet manages. While the host belongs to no fleet, operators may clean up.
/// Checks that a command changes nothing that the fleet manages. Callers who may not see a thing learn nothing here.
///
/// # Errors
/// The fleet manages it.
pub(crate) fn check(core: &Core, caller: &Caller, command: &Command) -> Result<(), ControlError> {
    if matches!(caller, Caller::Operator(_)) && !core.in_fleet {
        return Ok(());
    }
    match command {
        Command::CreateDag { name, .. } => check_tenant(core, caller, Some(&name.tenant)),
        Command::CreateDags { batch, .. } => check_tenant(core, caller, Some(&batch.tenant)),
        Command::UpdateDag { name, .. } | Command::DeleteDag { name, .. } => {
            check_dag(core, caller, name)
        }
        Command::UpdateTenant { id, .. } | Command::DeleteTenant { id, .. } => {
            check_tenant(core, caller, Some(id))
        }
        Command::CreateNtType(nt) => check_tenant(core, caller, nt.id.owner().as_ref()),
        Command::CreateBitstream(new) => check_tenant(core, caller, new.id.owner().as_ref()),
        Command::DeleteNtType { id, .. } => check_nt(core, caller, id),
        Command::DeleteBitstream { id, .. } => check_bitstream(core, caller, id),
        Command::CancelOperation { id } => check_operation(core, caller, id),
        Command::BindVm(spec) => match &spec.chains {
            // The machine's DAG would be one that the fleet has not placed.
            BindingTarget::Template(_) if core.registry.tenant_number(&spec.tenant).is_some() => {
                let text = "the fleet manages it: name a DAG of the fleet instead of a template";
                Err(ControlError::precondition(format!("tenants/{}", spec.tenant), text))
            }
            _ => Ok(()),
        },
        // What these change is of this host.
        Command::CreateTenant(_)
        | Command::RetryBitstream { .. }
        | Command::CreateRule(_)
        | Command::UpdateRule { .. }
        | Command::DeleteRule { .. }
        | Command::DrainRegion { .. }
        | Command::DrainCard { .. }
        | Command::Cordon { .. }
        | Command::Maintain { .. }
        | Command::UndrainRegion { .. }
        | Command::ResetRegion { .. }
        | Command::UnbindVm { .. }
        | Command::Heartbeat { .. }
        | Command::OptimizeCard { .. }
        | Command::LoadRole { .. }
        | Command::ResetCard { .. }
        | Command::RemoveCard { .. }
        | Command::ReplaceCard { .. }
        | Command::DeleteOperation { .. } => Ok(()),
        // The change inside is checked when it is carried out; the fleet may change what it manages.
        Command::Guarded { .. } | Command::Fleet(_) => Ok(()),
    }
}

fn is_managed(resource: impl ToString) -> ControlError {
    ControlError::precondition(resource, "the fleet manages it; change it at the fleet's endpoint")
}

fn check_tenant(core: &Core, caller: &Caller, id: Option<&TenantId>) -> Result<(), ControlError> {
    let managed = id.filter(|id| core.registry.tenant_number(id).is_some());
    match managed.filter(|id| caller.may_change(Some(id))) {
        Some(id) => Err(is_managed(format!("tenants/{id}"))),
        None => Ok(()),
    }
}

fn check_dag(core: &Core, caller: &Caller, name: &DagName) -> Result<(), ControlError> {
    let is_assigned = core.dags.get(name).is_some_and(|entry| entry.assigned().is_some());
    if is_assigned && caller.may_change(Some(&name.tenant)) {
        return Err(is_managed(name));
    }
    Ok(())
}

fn check_nt(core: &Core, caller: &Caller, id: &NtTypeId) -> Result<(), ControlError> {
    if core.registry.number_of_nt(id).is_some() && caller.may_change(id.owner().as_ref()) {
        return Err(is_managed(format!("ntTypes/{id}")));
    }
    Ok(())
}

fn check_bitstream(core: &Core, caller: &Caller, id: &BitstreamId) -> Result<(), ControlError> {
    if core.registry.number_of_bitstream(id).is_some() && caller.may_change(id.owner().as_ref()) {
        return Err(is_managed(format!("bitstreams/{id}")));
    }
    Ok(())
}

fn check_operation(core: &Core, caller: &Caller, id: &OperationId) -> Result<(), ControlError> {
    let Ok(record) = core.operations.visible(caller, id) else {
        return Ok(()); // That is what its caller is told.
    };
    match &record.work {
        OperationWork::CreateDag(name) | OperationWork::UpdateDag(name) => {
            check_dag(core, caller, name)
        }
        OperationWork::DeleteBitstream(of) => check_bitstream(core, caller, of),
        OperationWork::DeleteTenant(of) => check_tenant(core, caller, Some(of)),
        _ => Ok(()),
    }
}
