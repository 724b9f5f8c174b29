//! Quotas of rules, machines and operations, which the registry does not know. A request beyond one is rejected
//! before anything is created.

use snic_domain::TenantId;

use crate::protocol::{ControlError, TenantView};
use crate::state::Core;
use crate::view::budgets;

/// A tenant's view with all that it uses.
pub(crate) fn with_usage(core: &Core, mut view: TenantView) -> TenantView {
    let id = &view.tenant.id;
    view.usage.rules = core.rules.count_of(id);
    view.usage.machines = core.bindings.live_of(id);
    view.usage.operations = core.operations.open_of(id);
    view.usage.threads = core.dags.threads_of(id);
    view.spending = budgets::spending(core, id);
    view
}

/// Quota of threads of a tenant; none where there is no such tenant.
pub(crate) fn threads_max(core: &Core, tenant: &TenantId) -> u32 {
    core.registry.tenant(tenant).map_or(0, |record| record.tenant.quota.threads_max)
}

/// # Errors
/// A tenant would have more rules than it may, or does not exist.
pub(crate) fn check_rules(core: &Core, tenant: &TenantId, more: u32) -> Result<(), ControlError> {
    let limit = core.registry.quota(tenant)?.rules_max;
    check(tenant, "rules_max", limit, core.rules.count_of(tenant), more)
}

/// # Errors
/// A tenant would have one machine more than it may, or does not exist.
pub(crate) fn check_machine(core: &Core, tenant: &TenantId) -> Result<(), ControlError> {
    let limit = core.registry.quota(tenant)?.machines_max;
    check(tenant, "machines_max", limit, core.bindings.live_of(tenant), 1)
}

/// # Errors
/// A tenant has as many operations under way as it may, or does not exist.
pub(crate) fn check_operation(core: &Core, tenant: &TenantId) -> Result<(), ControlError> {
    check_operations(core, tenant, 1)
}

/// # Errors
/// A tenant would have more operations under way than it may, or does not exist.
pub(crate) fn check_operations(
    core: &Core,
    tenant: &TenantId,
    more: u32,
) -> Result<(), ControlError> {
    let limit = core.registry.quota(tenant)?.operations_max;
    check(tenant, "operations_max", limit, core.operations.open_of(tenant), more)
}

fn check(
    tenant: &TenantId,
    quota: &str,
    limit: u32,
    used: u32,
    more: u32,
) -> Result<(), ControlError> {
    let asked = used.saturating_add(more);
    if asked <= limit {
        return Ok(());
    }
    Err(ControlError::over_quota(tenant, quota, limit, used, asked))
}
