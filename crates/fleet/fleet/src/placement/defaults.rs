//! Where DAGs go whose tenants leave it open, as an operator's policy says.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use snic_domain::{CardModel, TenantId};

use super::constraints::CardConstraints;
use crate::{RackId, ZoneId};

/// Constraints of a policy on DAGs whose tenants leave these open. Empty lists say nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlacementDefaults {
    pub zones: BTreeSet<ZoneId>,
    /// Racks in these zones.
    pub racks: BTreeSet<RackId>,
    #[serde(rename = "card_models")]
    pub models: BTreeSet<CardModel>,
    #[serde(rename = "host_labels")]
    pub labels: BTreeMap<String, String>,
}

/// Defaults of a policy for all tenants, and for single ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantDefaults {
    #[serde(rename = "default")]
    pub all: PlacementDefaults,
    /// Defaults that count before those for all, for these tenants.
    pub tenants: BTreeMap<TenantId, PlacementDefaults>,
}

impl PlacementDefaults {
    /// Whether it says nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what constraints leave open. A request that names zones, racks or hosts has chosen where: a zone of the policy
    /// beside a rack of the request could leave no host.
    pub fn add_to(&self, of: &mut CardConstraints) {
        if of.zones.is_empty() && of.racks.is_empty() && of.hosts.is_empty() {
            (of.zones, of.racks) = (self.zones.clone(), self.racks.clone());
        }
        if of.models.is_empty() {
            of.models = self.models.clone();
        }
        for (key, value) in &self.labels {
            of.labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

impl TenantDefaults {
    /// The part of the policy that counts for a tenant's DAG with these constraints.
    pub fn of(&self, tenant: &TenantId, asked: &CardConstraints) -> PlacementDefaults {
        let mut all = asked.clone();
        if let Some(own) = self.tenants.get(tenant) {
            own.add_to(&mut all);
        }
        self.all.add_to(&mut all);
        let CardConstraints { mut zones, mut racks, mut models, mut labels, .. } = all;
        zones.retain(|zone| !asked.zones.contains(zone));
        racks.retain(|rack| !asked.racks.contains(rack));
        models.retain(|model| !asked.models.contains(model));
        labels.retain(|key, _| !asked.labels.contains_key(key));
        PlacementDefaults { zones, racks, models, labels }
    }
}
