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
        let off = level == Some(BudgetLevel::Reached) && at_limit == BudgetAction::BurstOff;
        if core.budgets.set_burst_off(&tenant, off) {
            core.loops.all_changed();
        }
    }
}

/// Tells operators and the tenant.
fn note(core: &Core, tx: &mut Tx, tenant: &TenantId, used: Option<BudgetUse>) {
    let Some(BudgetUse { spent, budget, level }) = used else { return };
    let currency = core.usage.prices().map(|prices| prices.currency.as_str()).unwrap_or_default();
    let (from, to) = core.usage.month();
    let month = utc(from).get(..7).unwrap_or_default().to_owned();
    let sum = format!("tenants/{tenant} has spent {spent} of {budget} {currency} in {month}");
    let (kind, text) = match (level, core.policies.current().budgets.at_limit) {
        (BudgetLevel::Within, _) => (LogKind::BudgetFreed, sum),
        (BudgetLevel::Warned, _) => (LogKind::BudgetWarning, sum),
        (BudgetLevel::Reached, BudgetAction::Nothing) => (LogKind::BudgetReached, sum),
        (BudgetLevel::Reached, BudgetAction::NoNewDags) => {
            let text = format!("{sum}: no new DAGs, machines or bandwidth until {}", utc(to));
            (LogKind::BudgetReached, text)
        }
        (BudgetLevel::Reached, BudgetAction::BurstOff) => {
            let text = format!("{sum}: its DAGs get their promises and no more until {}", utc(to));
            (LogKind::BudgetReached, text)
        }
    };
    tx.note(kind, LogSubject { tenant: Some(tenant), ..LogSubject::default() }, text);
}
