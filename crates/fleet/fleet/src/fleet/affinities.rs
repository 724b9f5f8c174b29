//! Affinities between DAGs of a tenant: the cards that one may have because of others. Found by name, so that a tenant
//! with many DAGs does not make each of its creates look at all of them.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{DagName, DagSpec};

use super::Fleet;
use crate::placement::CardConstraints;

/// Each DAG that others of its tenant name, with those that do. A DAG may be named that does not exist; what is said of another
/// tenant's DAGs is not kept, so that nobody makes that tenant's creates slower.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Affinities(BTreeMap<DagName, BTreeSet<DagName>>);

impl Affinities {
    /// A DAG has this spec from now on, or no longer.
    pub fn count(&mut self, name: &DagName, spec: &DagSpec, is_more: bool) {
        let own = &spec.card_affinity;
        let named = own.apart_from.union(&own.together_with);
        for other in named.filter(|other| other.tenant == name.tenant) {
            if is_more {
                self.0.entry(other.clone()).or_default().insert(name.clone());
            } else if let Some(by) = self.0.get_mut(other) {
                by.remove(name);
                if by.is_empty() {
                    self.0.remove(other);
                }
            }
        }
    }

    /// DAGs whose specs name this one, in order.
    fn that_name(&self, name: &DagName) -> impl Iterator<Item = &DagName> {
        self.0.get(name).into_iter().flatten()
    }
}

impl Fleet {
    /// Adds the affinities of the DAG and of others of its tenant. Preferences are not looked at. Time O(DAGs named × log DAGs).
    pub(super) fn add_affinities(
        &self,
        name: &DagName,
        spec: &DagSpec,
        constraints: &mut CardConstraints,
    ) {
        let own = &spec.card_affinity;
        let named = own.apart_from.union(&own.together_with);
        let others: BTreeSet<&DagName> = named.chain(self.affinities.that_name(name)).collect();
        for other in others {
            if other == name || other.tenant != name.tenant {
                continue;
            }
            let (Some(entry), Some(card)) = (self.dags.get(other), self.inventory.card_of(other))
            else {
                continue;
            };
            let theirs = &entry.of().spec.card_affinity;
            let is_apart = !own.preferred && own.apart_from.contains(other)
                || !theirs.preferred && theirs.apart_from.contains(name);
            if is_apart {
                constraints.apart_from_cards.insert(card.clone());
            }
            if !own.preferred && own.together_with.contains(other) {
                // Two that are on different cards leave none.
                let others = constraints.cards.iter().filter(|of| *of != card).cloned();
                constraints.apart_from_cards.extend(others.collect::<Vec<_>>());
                if !constraints.cards.is_empty() && !constraints.cards.contains(card) {
                    constraints.apart_from_cards.insert(card.clone());
                }
                constraints.cards.insert(card.clone());
            }
        }
    }

    /// Whether another DAG of its tenant is to be on its card: then neither leaves the other.
    pub(super) fn has_company(&self, name: &DagName) -> bool {
        self.affinities.that_name(name).any(|other| {
            let theirs = self.dags.get(other).map(|entry| &entry.of().spec.card_affinity);
            theirs.is_some_and(|of| !of.preferred && of.together_with.contains(name))
        })
    }
}
