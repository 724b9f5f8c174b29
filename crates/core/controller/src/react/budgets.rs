//! Budgets at the end of each event: tenants are told at their levels, and burst is taken or given back.

use snic_domain::TenantId;
use snic_usage::utc;

use crate::protocol::{BudgetAction, BudgetLevel, LogKind};
use crate::state::Core;
use crate::store::tx::{LogSubject, Tx};
use crate::view::budgets::{self, BudgetUse};

/// Looks at the tenants that have spent something since the last time, or all with a budget where the month, the prices or the policies
/// are others. Time O(those · log tenants).
pub(crate) fn follow(core: &mut Core, tx: &mut Tx) {
    for tenant in core.usage.take_spenders() {
        let used = budgets::of(core, &tenant);
        let level = used.map(|used| used.level).filter(|level| *level != BudgetLevel::Within);
        let before = core.budgets.set_level(&tenant, level);
        if level != before {
            note(core, tx, &tenant, used);
        }
        let at_limit = core.policies.current().budgets.at_limit;
        let is_over = matches!(level, Some(BudgetLevel::Reached | BudgetLevel::Unknown));
        let off = is_over && at_limit == BudgetAction::BurstOff;
        if core.budgets.set_burst_off(&tenant, off) {
            core.loops.all_changed();
        }
    }
}

/// Tells operators and the tenant.
fn note(core: &Core, tx: &mut Tx, tenant: &TenantId, used: Option<BudgetUse>) {
    let Some(BudgetUse { spent, budget, level }) = used else { return };
    let (from, to) = core.usage.month();
    let month = utc(from).get(..7).unwrap_or_default().to_owned();
    let prices = core.usage.prices();
    let currency = prices.map(|prices| prices.currency.as_str()).unwrap_or_default();
    let is_fleets = core.registry.tenant(tenant).is_some_and(|of| of.fleet_number.is_some());
    let (sum, until) = match spent {
        // How much that is, the fleet knows.
        _ if is_fleets => {
            let sum =
                format!("the fleet says that tenants/{tenant} has spent its budget in {month}");
            (sum, "it says otherwise".to_owned())
        }
        Some(spent) => {
            let sum =
                format!("tenants/{tenant} has spent {spent} of {budget} {currency} in {month}");
            (sum, utc(to))
        }
        None => {
            let sum = format!(
                "there are no prices any more, so what tenants/{tenant} has spent of its budget of {budget} in {month} is unknown"
            );
            (sum, "there are prices again".to_owned())
        }
    };
    let kind = match level {
        BudgetLevel::Within => LogKind::BudgetFreed,
        BudgetLevel::Warned | BudgetLevel::Unknown => LogKind::BudgetWarning,
        BudgetLevel::Reached => LogKind::BudgetReached,
    };
    let text = match (level, core.policies.current().budgets.at_limit) {
        (BudgetLevel::Within | BudgetLevel::Warned, _) | (_, BudgetAction::Nothing) => sum,
        (_, BudgetAction::NoNewDags) => {
            format!("{sum}: no new DAGs, machines or bandwidth until {until}")
        }
        (_, BudgetAction::BurstOff) => {
            format!("{sum}: its DAGs get their promises and no more until {until}")
        }
    };
    tx.note(kind, LogSubject { tenant: Some(tenant), ..LogSubject::default() }, text);
}
