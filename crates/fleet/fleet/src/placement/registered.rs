//! Registrations of operators: hosts with their cards, and how much of these may be promised.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snic_domain::limits::DAG_BANDWIDTH_MAX;
use snic_domain::{Bandwidth, CardId, CardProfile};

use crate::{RackId, ZoneId};

/// A host, as operators register it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSpec {
    /// Where it stands.
    pub zone: ZoneId,
    /// Where in the zone.
    pub rack: RackId,
    pub labels: BTreeMap<String, String>,
    /// Whether an operator keeps new DAGs off it.
    pub is_cordoned: bool,
    pub cards: BTreeMap<CardId, CardSpec>,
}

/// A card of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardSpec {
    /// Profile that it reports.
    pub profile: CardProfile,
    /// Its virtual functions.
    pub functions: u32,
    /// Whether an operator keeps new DAGs off it.
    pub is_cordoned: bool,
}

/// Limits of promises, as `policies/admission.toml` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromiseLimits {
    /// Part of a card's ingress bandwidth that may be promised, in percent: 1 to 100.
    pub ingress_percent: u32,
    /// Most that one DAG may ask for.
    pub dag_bandwidth_max: Bandwidth,
}

impl Default for PromiseLimits {
    /// The limits that ship: all of the ingress, and as much as a DAG can ask for.
    fn default() -> Self {
        Self { ingress_percent: 100, dag_bandwidth_max: DAG_BANDWIDTH_MAX }
    }
}
