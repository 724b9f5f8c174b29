//! Names of accounts, and what is charged to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use snic_domain::{CardId, DagUid, NtTypeId, TenantId};

/// Names an account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AccountKey {
    /// The card that was used; `None` for what a tenant uses without one.
    pub card: Option<CardId>,
    /// User of the card, or of the host.
    pub part: AccountPart,
}

impl AccountKey {
    /// Account of a user of a card.
    pub(crate) fn on(card: &CardId, part: AccountPart) -> Self {
        Self { card: Some(card.clone()), part }
    }
}

/// User of a card, or of the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountPart {
    /// One DAG.
    Dag(DagUid),
    /// DAGs of a tenant beyond those that have accounts of their own.
    Rest(TenantId),
    /// A tenant itself, since it was created in this second: another one may have had its name before.
    Tenant(TenantId, u64),
}

fn is_zero<T: Default + PartialEq>(amount: &T) -> bool {
    *amount == T::default()
}

/// Numbers of instances by NT type. A copy shares them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<NtTypeId, u32>", into = "BTreeMap<NtTypeId, u32>")]
pub struct NtInstances(Arc<BTreeMap<NtTypeId, u32>>);

impl NtInstances {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each type with the number of its instances, in the order of types.
    pub fn iter(&self) -> impl Iterator<Item = (&NtTypeId, u32)> {
        self.0.iter().map(|(nt, count)| (nt, *count))
    }
}

impl From<BTreeMap<NtTypeId, u32>> for NtInstances {
    fn from(instances: BTreeMap<NtTypeId, u32>) -> Self {
        Self(Arc::new(instances))
    }
}

impl From<NtInstances> for BTreeMap<NtTypeId, u32> {
    fn from(instances: NtInstances) -> Self {
        Arc::unwrap_or_clone(instances.0)
    }
}

/// Rates at which a DAG uses a card while time passes. Those that came later are zero in older records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRates {
    /// Promised bandwidth, in bits per second.
    pub promised: u64,
    /// Packets per second that are promised with it, by the sizes that its DAG states.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub packets: u64,
    /// Regions with an instance of it.
    pub regions: u32,
    /// Area that the promise takes as if the DAG were alone, in billionths of the card's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub area: u64,
    /// On-board memory of its NT types, in mebibytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub memory: u64,
    /// Functions of virtual machines that lead to it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub functions: u32,
    /// Instances that serve it, by NT type.
    #[serde(default, skip_serializing_if = "NtInstances::is_empty")]
    pub nts: NtInstances,
}

/// Remainders of meters of time, below one unit. They are carried on, so an account as a whole is rounded down once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remainders {
    /// Nanoseconds below a millisecond.
    pub life: u64,
    /// Bits per second × nanoseconds, below 10^12.
    pub promised: u64,
    /// Regions × nanoseconds, below a million.
    pub regions: u64,
    /// Billionths of the card's area × nanoseconds, below 10^12.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub area: u64,
    /// Mebibytes × nanoseconds, below a million.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub memory: u64,
    /// Functions × nanoseconds, below a million.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub functions: u64,
    /// Instances × nanoseconds, below a million, by meter of NTs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nts: Vec<u64>,
    /// Bytes × milliseconds, below 1,000.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stored: u64,
}
