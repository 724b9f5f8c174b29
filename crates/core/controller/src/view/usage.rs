//! Usage that a caller sees.

use snic_domain::TenantId;
use snic_usage::{Account, AccountKey, IntervalLevel};

use crate::protocol::{UsageAccount, UsageView};
use crate::state::Core;

/// Usage of a tenant, or of all. A tenant does not see that of a deleted one that had its name.
pub(crate) fn usage(core: &Core, tenant: Option<&TenantId>) -> UsageView {
    let born = tenant.and_then(|id| core.registry.tenant(id));
    let born = born.map_or(0, |record| record.created.as_nanos() / 1_000_000_000);
    let is_seen = |account: &Account| {
        let is_own = |tenant| account.tenant() == tenant;
        let is_later = account.begun() > born
            || account.begun() == born && account.ended().is_none_or(|ended| ended > born);
        tenant.is_none_or(|tenant| is_own(tenant) && is_later)
    };
    let accounts = core.usage.accounts().filter(|(_, account)| is_seen(account));
    UsageView {
        closed: core.usage.closed().unwrap_or_default(),
        retention: *core.usage.retention(),
        accounts: accounts.map(|(key, account)| view(key, account)).collect(),
    }
}

fn view(key: &AccountKey, account: &Account) -> UsageAccount {
    UsageAccount {
        key: key.clone(),
        tenant: account.tenant().clone(),
        dag: account.dag().cloned(),
        begun: account.begun(),
        ended: account.ended(),
        open: IntervalLevel::ALL.map(|level| (level, account.page(level).clone())),
    }
}
