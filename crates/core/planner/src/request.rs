//! A DAG to be planned, and the plan for it.

use serde::{Deserialize, Serialize};
use snic_domain::{BitstreamId, Dag, DagName, Mapping, RegionId};

use crate::reservation::Reservation;

/// A DAG to be placed.
#[derive(Debug, Clone, Copy)]
pub struct PlanRequest<'a> {
    /// Its name. Its current reservation in the ledger counts as released.
    pub name: &'a DagName,
    pub dag: &'a Dag,
    /// The mapping on the card that an update replaces. The regions it uses keep their content
    /// until the tables flip, so this plan does not load them.
    pub previous: Option<&'a Mapping>,
}

/// A region to be loaded before the plan can be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionLoad {
    /// The region, which is unused.
    pub region: RegionId,
    /// The bitstream to load.
    pub bitstream: BitstreamId,
    /// The victim that it replaces, if any.
    pub replaces: Option<BitstreamId>,
}

/// A placement of a DAG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub mapping: Mapping,
    /// Loads that must be made first, by region.
    pub loads: Vec<RegionLoad>,
    /// Its reservation, to be held in the ledger once the loads are set as contents. With a previous mapping,
    /// the elementwise maximum with that mapping's reservation fits, too.
    pub reservation: Reservation,
    /// Why this placement was chosen.
    pub explanation: snic_domain::Explanation,
}
