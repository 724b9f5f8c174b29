//! Demands of flows, the rule for spare capacity, and the limits that a solution reports.

use snic_domain::Bandwidth;

/// Demand of one flow in this epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Offered load, measured before rate limiting and credits.
    pub load: Bandwidth,
    /// Guaranteed rate, from admission.
    pub admitted: Bandwidth,
}

/// Where water-filling of the spare capacity starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Spare {
    /// At the share that each tenant has from its guaranteed rates: the smallest share rises
    /// first, so totals are proportional to the weights as far as guarantees and loads allow.
    #[default]
    LevelShares,
    /// At zero: the spare capacity itself is divided by weight, whatever is guaranteed.
    ByWeight,
}

/// Limit on the rate of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Its own load, which is served in full.
    Load,
    /// This resource, which is full or has no capacity.
    Resource(u32),
}
