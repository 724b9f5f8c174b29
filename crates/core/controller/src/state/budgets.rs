//! Budgets as they were last looked at: what was told of each, and tenants that get their promises and no more.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::TenantId;

use crate::protocol::BudgetLevel;

/// Budgets as they were last looked at. All of it follows from usage, prices and policies, and is computed again after a start.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    /// Levels of tenants that have spent enough to be told.
    levels: BTreeMap<TenantId, BudgetLevel>,
    /// Tenants that get their promises and no more.
    burst_off: BTreeSet<TenantId>,
}

impl Budgets {
    /// A tenant is at this level now; gives the one before. `None` stands for less than is told.
    pub fn set_level(
        &mut self,
        tenant: &TenantId,
        level: Option<BudgetLevel>,
    ) -> Option<BudgetLevel> {
        match level {
            Some(level) => self.levels.insert(tenant.clone(), level),
            None => self.levels.remove(tenant),
        }
    }

    /// A tenant gets its promises and no more from now on, or what is left over again; says whether that is new.
    pub fn set_burst_off(&mut self, tenant: &TenantId, off: bool) -> bool {
        match off {
            true => self.burst_off.insert(tenant.clone()),
            false => self.burst_off.remove(tenant),
        }
    }

    /// Tenants that get their promises and no more.
    pub const fn burst_off(&self) -> &BTreeSet<TenantId> {
        &self.burst_off
    }
}
