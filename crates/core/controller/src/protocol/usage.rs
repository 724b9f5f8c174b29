//! Usage, for the service that adds it up.

use snic_domain::{DagId, NtTypeId, ProjectId, TenantId};
use snic_usage::{AccountKey, IntervalLevel, KeptPages, Outage, UsagePage};

/// Usage in intervals that are closed. Those in full pages are in the store, under [`snic_usage::UsageKey::FullPage`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageView {
    /// Second up to which intervals are closed, since 1970; 0 before the first.
    pub closed: u64,
    /// Pages of intervals that are in the store, by length.
    pub kept: KeptPages,
    /// Part of the time in which promises are to be kept, in millionths.
    pub availability_ppm: u32,
    /// Accounts, by key.
    pub accounts: Vec<UsageAccount>,
}

/// Usage of one DAG of one card, or of a tenant's many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageAccount {
    /// Its name in the store.
    pub key: AccountKey,
    /// Owner of the DAG.
    pub tenant: TenantId,
    /// Project that the tenant is in now.
    pub project: Option<ProjectId>,
    /// Name of the DAG; `None` for those without accounts of their own.
    pub dag: Option<DagId>,
    /// Second in which it began, since 1970.
    pub begun: u64,
    /// Second with which its first interval began, where that is long before.
    pub first: Option<u64>,
    /// Second in which the DAG left the card, if it did.
    pub ended: Option<u64>,
    /// NT types that it counts by themselves, in the order of [`snic_usage::Meter::Nt`].
    pub nts: Vec<NtTypeId>,
    /// Times in which its promise was broken, the latest ones, the last one last.
    pub outages: Vec<Outage>,
    /// Pages that are being filled, by length.
    pub open: [(IntervalLevel, UsagePage); 3],
}

impl UsageAccount {
    /// Whether it is of the tenant of its name that was created in this second, not of an earlier one.
    pub fn is_since(&self, born: u64) -> bool {
        snic_usage::is_account_since((self.begun, self.ended), born)
    }
}
