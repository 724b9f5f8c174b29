//! How many of something each tenant has, for its quota.

use std::collections::BTreeMap;

use snic_domain::TenantId;

/// A count for each tenant that has any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally(BTreeMap<TenantId, u32>);

impl Tally {
    /// How many a tenant has.
    pub fn of(&self, tenant: &TenantId) -> u32 {
        self.0.get(tenant).copied().unwrap_or(0)
    }

    /// One more.
    pub fn add(&mut self, tenant: &TenantId) {
        *self.0.entry(tenant.clone()).or_default() += 1;
    }

    /// One less.
    pub fn remove(&mut self, tenant: &TenantId) {
        let count = self.0.get_mut(tenant).expect("it was counted in");
        *count -= 1;
        if *count == 0 {
            self.0.remove(tenant);
        }
    }

    /// Whether it counts these, one for each.
    pub fn counts<'a>(&self, all: impl Iterator<Item = &'a TenantId>) -> bool {
        let mut again = Self::default();
        all.for_each(|tenant| again.add(tenant));
        *self == again
    }
}
