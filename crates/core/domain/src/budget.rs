//! Budgets of tenants.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Money that a tenant may spend in a calendar month (UTC), in millionths of the currency of the operator's prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonthBudget(u64);

impl MonthBudget {
    /// No budget: nothing is limited.
    pub const UNLIMITED: Self = Self(u64::MAX);

    /// So many millionths; 2^64 - 1 of them are no budget.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Millionths of the currency; `None` without a budget.
    pub const fn micros(self) -> Option<u64> {
        if self.is_unlimited() { None } else { Some(self.0) }
    }

    /// Whether there is no budget.
    pub const fn is_unlimited(&self) -> bool {
        self.0 == u64::MAX
    }
}

impl Default for MonthBudget {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

impl fmt::Display for MonthBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(micros) = self.micros() else { return f.write_str("none") };
        write!(f, "{}", micros / 1_000_000)?;
        match format!("{:06}", micros % 1_000_000).trim_end_matches('0') {
            "" => Ok(()),
            part => write!(f, ".{part}"),
        }
    }
}

/// Answer to a tenant that has spent its budget of the month. What it has stays, with its promises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BudgetAction {
    /// It is told.
    Nothing,
    /// New DAGs and machines and more bandwidth are refused.
    #[default]
    NoNewDags,
    /// Its DAGs get their promises and no more.
    BurstOff,
}

impl BudgetAction {
    /// All of them, with their words in policies.
    pub const WORDS: [(&str, Self); 3] = [
        ("nothing", Self::Nothing),
        ("no-new-dags", Self::NoNewDags),
        ("burst-off", Self::BurstOff),
    ];

    /// Its word in policies.
    pub const fn word(self) -> &'static str {
        Self::WORDS[self as usize].0
    }
}

/// Budgets of tenants (`policies/admission.toml`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetPolicy {
    /// Part of a budget from which on its tenant is warned, in percent, 1 to 100.
    pub warn_percent: u32,
    pub at_limit: BudgetAction,
}

impl Default for BudgetPolicy {
    fn default() -> Self {
        Self { warn_percent: 80, at_limit: BudgetAction::default() }
    }
}

/// Part of its budget that a tenant has spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BudgetLevel {
    /// Less than it is warned of.
    Within,
    /// As much as it is warned of.
    Warned,
    /// All of it.
    Reached,
    /// A part that is not known, for there are no prices. The policy treats it as [`Self::Reached`].
    Unknown,
}

impl BudgetLevel {
    /// Whether the policy is carried out.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Reached | Self::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_has_its_word() {
        for (word, action) in BudgetAction::WORDS {
            assert_eq!(action.word(), word);
        }
        let shipped = BudgetPolicy::default();
        assert_eq!((shipped.warn_percent, shipped.at_limit), (80, BudgetAction::NoNewDags));
    }

    /// A fleet stores the policy with its files, and sends levels between replicas.
    #[test]
    fn a_policy_is_read_as_it_was_written() {
        for (_, at_limit) in BudgetAction::WORDS {
            let policy = BudgetPolicy { warn_percent: 75, at_limit };
            let text = serde_json::to_string(&policy).expect("JSON");
            assert_eq!(serde_json::from_str::<BudgetPolicy>(&text).expect("as it was"), policy);
        }
        let level = serde_json::to_string(&BudgetLevel::Unknown).expect("JSON");
        assert_eq!(serde_json::from_str::<BudgetLevel>(&level).ok(), Some(BudgetLevel::Unknown));
    }

    #[test]
    fn what_is_not_known_counts_as_spent() {
        assert!(BudgetLevel::Reached.is_over() && BudgetLevel::Unknown.is_over());
        assert!(!BudgetLevel::Within.is_over() && !BudgetLevel::Warned.is_over());
    }

    #[test]
    fn a_budget_is_written_as_money_and_none_is_none() {
        let of = |micros| MonthBudget::from_micros(micros).to_string();
        assert_eq!(of(0), "0");
        assert_eq!(of(10_500_000), "10.5");
        assert_eq!(of(1), "0.000001");
        assert_eq!(of(u64::MAX), "none");
        assert_eq!(MonthBudget::default().micros(), None);
        assert_eq!(MonthBudget::from_micros(0).micros(), Some(0), "nothing may be spent");
    }
}
