//! Names of accounts, and what is charged to them.

use serde::{Deserialize, Serialize};
use snic_domain::{CardId, DagUid, TenantId};

/// Names an account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AccountKey {
    /// The card that was used.
    pub card: CardId,
    /// User of the card.
    pub part: AccountPart,
}

/// User of a card.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountPart {
    /// One DAG.
    Dag(DagUid),
    /// DAGs of a tenant beyond those that have accounts of their own.
    Rest(TenantId),
}

/// UsageRates at which a DAG uses a card while time passes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRates {
    /// Promised bandwidth, in bits per second.
    pub promised: u64,
    /// Regions with an instance of it.
    pub regions: u32,
}

/// Remainders of meters of time, below one unit. They are carried on, so an account as a whole is rounded down once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remainders {
    /// Nanoseconds below a millisecond.
    pub life: u64,
    /// Bits per second × nanoseconds, below 10^12.
    pub promised: u64,
    /// Regions × nanoseconds, below a million.
    pub regions: u64,
}
