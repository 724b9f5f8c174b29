//! Tenants and bitstreams are registered and changed, and what depends on them follows.

use snic_domain::{Bitstream, Tenant, TenantId, TenantPatch};

use crate::protocol::{BitstreamView, Caller, ControlError, TenantView};
use crate::state::Core;
use crate::tx::Tx;
use crate::{images, serving, vm_bindings};

/// What is remembered of a deleted tenant of this name is not for the new one.
pub(crate) fn create_tenant(
    core: &mut Core,
    tx: &mut Tx,
    tenant: Tenant,
) -> Result<TenantView, ControlError> {
    let view = core.registry.create_tenant(tx, tenant)?;
    core.operations.retire(tx, &view.tenant.id);
    vm_bindings::retire(core, tx, &view.tenant.id);
    Ok(view)
}

pub(crate) fn update_tenant(
    core: &mut Core,
    tx: &mut Tx,
    id: &TenantId,
    patch: TenantPatch,
    etag: Option<&str>,
) -> Result<TenantView, ControlError> {
    let view = core.registry.update_tenant(tx, id, patch, etag)?;
    core.loops.all_changed();
    serving::reweigh(core, id);
    Ok(view)
}

pub(crate) fn create_bitstream(
    core: &mut Core,
    tx: &mut Tx,
    caller: &Caller,
    bitstream: Bitstream,
) -> Result<BitstreamView, ControlError> {
    let view = core.registry.create_bitstream(tx, caller, bitstream)?;
    images::withhold(core); // Its owner may be being deleted.
    core.freed.capacity();
    Ok(view)
}
