//! Dry runs of requests that have no operation: the checks of the real run, and nothing else of it.

use crate::place::classification;
use crate::protocol::{Caller, Command, ControlError};
use crate::request::{managed, registrations};
use crate::state::Core;

/// Checks a command without carrying it out. DAGs have a dry run of their own, which says where they would go.
///
/// # Errors
/// As when it is carried out.
pub(crate) fn check(core: &Core, caller: &Caller, command: Command) -> Result<(), ControlError> {
    managed::check(core, caller, &command)?;
    match command {
        Command::CreateTenant(tenant) => {
            registrations::check_budget(core, Some(tenant.quota.month_budget))?;
            core.registry.check_new_tenant(&tenant)
        }
        Command::UpdateTenant { id, patch, etag } => {
            registrations::check_budget(core, patch.quota.and_then(|quota| quota.month_budget))?;
            core.registry.check_tenant_update(&id, patch.weight, etag.as_deref())
        }
        Command::CreateNtType(nt) => core.registry.check_new_nt(caller, &nt),
        Command::CreateBitstream(mut bitstream) => {
            bitstream.shareable |= bitstream.id.owner().is_none();
            core.registry.check_new_bitstream(core.now(), caller, &bitstream)
        }
        Command::CreateRule(rule) => classification::check_new_rule(core, caller, &rule),
        Command::UpdateRule { id, patch, etag } => {
            let change = (patch, etag.as_deref());
            classification::check_rule_update(core, caller, &id, change).map(drop)
        }
        _ => Err(ControlError::invalid(
            "validate_only",
            "there is no dry run of this change".to_owned(),
        )),
    }
}
