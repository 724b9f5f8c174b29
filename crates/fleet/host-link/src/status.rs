//! State of the link, for operators.

use std::time::SystemTime;

use snic_fleet::protocol::Epoch;

/// State of the link to the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// The replica that it is linked to.
    pub endpoint: Option<String>,
    /// Since when it is linked, or not.
    pub since: Option<SystemTime>,
    /// Why the last link ended, or could not be made.
    pub last_failure: Option<String>,
    /// The highest epoch that was seen.
    pub epoch: Epoch,
    /// The last order of that epoch.
    pub sequence: u64,
    /// Orders that arrived since the start.
    pub orders: u64,
    /// DAGs that are on their way to a card.
    pub pending_dags: usize,
    /// Provisions that are not there yet.
    pub pending_provisions: usize,
    /// The last DAG that was refused, and why.
    pub last_refusal: Option<String>,
}
