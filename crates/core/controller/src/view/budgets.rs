//! Budgets: what tenants have spent of them, and requests that are refused for it.

use snic_domain::{Bandwidth, DagName, TenantId};
use snic_usage::{Money, Prices, utc};

use crate::protocol::{BudgetAction, BudgetLevel, ControlError, TenantSpending};
use crate::state::Core;

/// A budget and money spent of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetUse {
    /// `None` without prices.
    pub spent: Option<Money>,
    pub budget: Money,
    pub level: BudgetLevel,
}

/// Part of its budget that a tenant has spent; `None` without a budget. Time O(log tenants).
pub(crate) fn of(core: &Core, tenant: &TenantId) -> Option<BudgetUse> {
    let record = core.registry.tenant(tenant)?;
    let budget = Money::of_micros(record.tenant.quota.month_budget.micros()?);
    let spent = core.usage.spent(tenant);
    let warn = u64::from(core.policies.current().budgets.warn_percent);
    let level = match spent.map(|spent| (spent >= budget, spent.percent_of(budget))) {
        None => BudgetLevel::Unknown,
        Some((true, _)) => BudgetLevel::Reached,
        Some((false, Some(percent))) if percent >= warn => BudgetLevel::Warned,
        Some(_) => BudgetLevel::Within,
    };
    Some(BudgetUse { spent, budget, level })
}

/// Spending as callers see it; `None` without a budget.
pub(crate) fn spending(core: &Core, tenant: &TenantId) -> Option<TenantSpending> {
    let BudgetUse { spent, level, .. } = of(core, tenant)?;
    Some(TenantSpending {
        month: core.usage.month(),
        spent,
        currency: core.usage.prices().map(|prices| prices.currency.clone()).unwrap_or_default(),
        level,
        at_limit: core.policies.current().budgets.at_limit,
    })
}

/// # Errors
/// The operator's policy is that a tenant gets nothing more once it has spent its budget, and it has, or nobody knows: where
/// prices are gone, a budget that was set must not become none.
pub(crate) fn check_more(core: &Core, tenant: &TenantId) -> Result<(), ControlError> {
    if core.policies.current().budgets.at_limit != BudgetAction::NoNewDags {
        return Ok(());
    }
    let Some(BudgetUse { spent, budget, level }) = of(core, tenant) else { return Ok(()) };
    let tenant = format!("tenants/{tenant}");
    match (level, spent) {
        (BudgetLevel::Within | BudgetLevel::Warned, _) => Ok(()),
        (BudgetLevel::Unknown, _) | (BudgetLevel::Reached, None) => {
            Err(ControlError::BudgetUnknown { tenant, budget: budget.to_string() })
        }
        (BudgetLevel::Reached, Some(spent)) => {
            let prices = core.usage.prices();
            let currency = prices.map(|prices| prices.currency.as_str()).unwrap_or_default();
            Err(ControlError::Budget {
                tenant,
                budget: format!("{budget} {currency}"),
                spent: format!("{spent} {currency}"),
                until: utc(core.usage.month().1),
            })
        }
    }
}

/// # Errors
/// As [`check_more`], where a DAG is new or is to have more bandwidth than before.
pub(crate) fn check_bandwidth(
    core: &Core,
    name: &DagName,
    bandwidth: Bandwidth,
) -> Result<(), ControlError> {
    match core.dags.get(name) {
        Some(entry) if bandwidth <= entry.spec().bandwidth => Ok(()),
        _ => check_more(core, &name.tenant),
    }
}

/// # Errors
/// There are no prices, so a budget would limit nothing.
pub(crate) fn check_prices(prices: Option<&Prices>) -> Result<(), ControlError> {
    if prices.is_some() {
        return Ok(());
    }
    let text = "there are no prices on this host, so a budget would limit nothing; put prices.toml \
                into the folder of the policies first";
    Err(ControlError::invalid("tenant.quota.month_budget_micros", text))
}
