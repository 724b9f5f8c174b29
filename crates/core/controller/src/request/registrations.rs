//! Tenants and bitstreams are registered and changed, and what depends on them follows.

use std::sync::Arc;

use snic_domain::{
    Bitstream, BitstreamId, CardId, Digest, MonthBudget, RegionId, Tenant, TenantId, TenantPatch,
};

use crate::place::{contents, serving};
use crate::protocol::{BitstreamView, Caller, ControlError, Reply, TenantView};
use crate::request::vm_bindings;
use crate::state::Core;
use crate::state::usage::Usage;
use crate::store::tx::Tx;
use crate::view::{budgets, images};

/// Creates a tenant that operators ask for.
pub(crate) fn create_tenant(
    core: &mut Core,
    tx: &mut Tx,
    tenant: Tenant,
) -> Result<TenantView, ControlError> {
    check_budget(core, Some(tenant.quota.month_budget))?;
    add_tenant(core, tx, tenant)
}

/// Creates a tenant. Rules remembered of a deleted tenant of the same name are not for the new one.
pub(crate) fn add_tenant(
    core: &mut Core,
    tx: &mut Tx,
    tenant: Tenant,
) -> Result<TenantView, ControlError> {
    let view = core.registry.create_tenant(tx, tenant)?;
    Usage::follow_tenant(core, &view.tenant.id);
    core.operations.retire(tx, &view.tenant.id);
    vm_bindings::retire(core, tx, &view.tenant.id);
    Ok(view)
}

/// # Errors
/// A budget is set, and there are no prices.
pub(crate) fn check_budget(core: &Core, budget: Option<MonthBudget>) -> Result<(), ControlError> {
    match budget.is_some_and(|budget| !budget.is_unlimited()) {
        true => budgets::check_prices(core.usage.prices().map(Arc::as_ref)),
        false => Ok(()),
    }
}

/// Changes a tenant as operators ask for.
pub(crate) fn update_tenant(
    core: &mut Core,
    tx: &mut Tx,
    id: &TenantId,
    patch: TenantPatch,
    etag: Option<&str>,
) -> Result<TenantView, ControlError> {
    check_budget(core, patch.quota.and_then(|quota| quota.month_budget))?;
    change_tenant(core, tx, id, patch, etag)
}

pub(crate) fn change_tenant(
    core: &mut Core,
    tx: &mut Tx,
    id: &TenantId,
    patch: TenantPatch,
    etag: Option<&str>,
) -> Result<TenantView, ControlError> {
    let view = core.registry.update_tenant(tx, id, patch, etag)?;
    Usage::follow_tenant(core, id);
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
    refresh_images(core, &view.bitstream.id);
    core.freed.capacity();
    Ok(view)
}

/// Deletes one image of a bitstream that has others. Regions that it is for and that no DAG uses are free then.
///
/// # Errors
/// As [`Registry::check_image_deletion`](crate::state::registry::Registry::check_image_deletion); or a DAG uses the bitstream
/// in one of the image's regions.
pub(crate) fn delete_image(
    core: &mut Core,
    tx: &mut Tx,
    caller: &Caller,
    (id, digest): (&BitstreamId, Digest),
    etag: Option<&str>,
) -> Result<Reply, ControlError> {
    let image = core.registry.check_image_deletion(caller, id, digest, etag)?;
    let mut held = core.cards.regions_with(id);
    held.retain(|(_, region)| image.fits(*region));
    let is_used =
        |(card, region): &&(CardId, RegionId)| !core.cards.known(card).ledger().is_unused(*region);
    if let Some((_, region)) = held.iter().find(is_used) {
        let text =
            format!("DAGs use its image in region {region}; move, delete or change them first");
        return Err(ControlError::precondition(format!("bitstreams/{id}"), text));
    }
    for (card, region) in held {
        contents::set_content(core, tx, &card, region, None);
        tx.emit_region(&card, region);
    }
    core.registry.remove_image(tx, id, digest);
    images::withhold(core);
    refresh_images(core, id);
    Ok(Reply::Done)
}

/// The regions that hold a bitstream know which images it has.
fn refresh_images(core: &mut Core, id: &BitstreamId) {
    let Core { cards, registry, .. } = core;
    let Some(bitstream) = registry.bitstream(id) else { return };
    for (card, region) in cards.regions_with(id) {
        cards.known_mut(&card).refresh_images(region, bitstream, registry.catalogue());
    }
}
