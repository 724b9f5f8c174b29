//! Money that tenants and projects have spent of their budgets.

use serde::{Deserialize, Serialize};
use snic_domain::{BudgetAction, BudgetLevel, BudgetPolicy, MonthBudget, TenantId, Timestamp};

use crate::ProjectId;

/// Most notes of one command: together they are part of one transaction.
pub const SPENDING_NOTES_MAX: usize = 32;

/// Money spent in a calendar month (UTC), as hosts' usage and the operator's prices say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetSpending {
    /// First second of the month since 1970, and that of the next month.
    pub month: (u64, u64),
    /// Millionths of the currency, rounded down. `None`: there are no prices, so nobody knows.
    pub spent: Option<u64>,
    /// Currency of the prices, by ISO 4217.
    pub currency: String,
}

/// Owner of a budget.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Budgeted {
    Tenant(TenantId),
    Project(ProjectId),
}

/// Money that somebody has spent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendingNote {
    pub of: Budgeted,
    /// Serial of its record: an earlier tenant or project of this name is not meant.
    pub serial: u64,
    pub spending: FleetSpending,
    /// A host did not answer, so it may be more.
    pub is_partial: bool,
}

/// Spending of a budget, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendingView {
    pub spending: FleetSpending,
    pub level: BudgetLevel,
    /// Policy for those that have spent all of it.
    pub at_limit: BudgetAction,
}

impl FleetSpending {
    /// Part of a budget that this is at a time; nothing of another month. `None` without a budget.
    pub(crate) fn level(
        of: Option<&Self>,
        budget: MonthBudget,
        policy: BudgetPolicy,
        now: Timestamp,
    ) -> Option<BudgetLevel> {
        let budget = budget.micros()?;
        let second = now.as_nanos() / 1_000_000_000;
        let Some(of) = of.filter(|of| second < of.month.1) else {
            return Some(if budget == 0 { BudgetLevel::Reached } else { BudgetLevel::Within });
        };
        let Some(spent) = of.spent else { return Some(BudgetLevel::Unknown) };
        let warned =
            u128::from(spent) * 100 >= u128::from(budget) * u128::from(policy.warn_percent);
        Some(match (spent >= budget, warned) {
            (true, _) => BudgetLevel::Reached,
            (false, true) => BudgetLevel::Warned,
            (false, false) => BudgetLevel::Within,
        })
    }

    /// Spending that is known after a note. While a host does not answer, what was known of the month stays.
    pub(crate) fn after(before: Option<&Self>, note: &SpendingNote) -> Self {
        let mut new = note.spending.clone();
        let same = before.filter(|of| of.month == new.month && of.currency == new.currency);
        if let (true, Some(before)) = (note.is_partial, same) {
            new.spent = new.spent.max(before.spent.filter(|_| new.spent.is_some()));
        }
        new
    }

    /// Whether this differs from what is stored by enough to store it: by a thousandth of the budget, or in anything else.
    pub(crate) fn is_news(&self, before: Option<&Self>, budget: MonthBudget) -> bool {
        let Some(before) = before else { return true };
        let (Some(now), Some(then), Some(budget)) = (self.spent, before.spent, budget.micros())
        else {
            return self != before;
        };
        self.month != before.month
            || self.currency != before.currency
            || now.abs_diff(then) > budget / 1_000
    }
}
