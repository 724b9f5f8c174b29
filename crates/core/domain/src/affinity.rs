//! DAGs that share a card.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{DagName, TenantId};

/// Other DAGs of its tenant that a DAG shares a card with, and those that it does not. It counts when a card is
/// chosen; those that do not exist or have no place do not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardAffinity {
    /// It goes to the card that all of these are on.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub together_with: BTreeSet<DagName>,
    /// It goes to a card that none of these is on.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub apart_from: BTreeSet<DagName>,
    /// Both lists are preferences: without such a card, another one is used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preferred: bool,
}

impl CardAffinity {
    /// Whether there is no rule and no preference.
    pub fn is_none(&self) -> bool {
        self.together_with.is_empty() && self.apart_from.is_empty()
    }

    /// The DAGs of other tenants that it names, which it may not, each with the list.
    pub fn strangers(&self, tenant: &TenantId) -> impl Iterator<Item = (&'static str, &DagName)> {
        let lists = [("together_with", &self.together_with), ("apart_from", &self.apart_from)];
        let named =
            lists.into_iter().flat_map(|(list, dags)| dags.iter().map(move |dag| (list, dag)));
        named.filter(move |(_, dag)| dag.tenant != *tenant)
    }

    /// Whether it is as if it had not been given.
    pub fn is_default(&self) -> bool {
        self.is_none() && !self.preferred
    }
}
