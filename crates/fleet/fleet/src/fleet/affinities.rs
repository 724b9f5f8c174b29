//! Affinities between DAGs of a tenant: the cards, hosts and racks that one may have because of others. Found by name, so that a tenant
//! with many DAGs does not make each of its creates look at all of them.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::limits::AFFINITY_DAGS_MAX;
use snic_domain::{DagName, DagSpec};

use super::Fleet;
use crate::FleetCard;
use crate::placement::CardConstraints;
use crate::protocol::Denied;

/// Each DAG that others of its tenant name, with those that do. A DAG may be named that does not exist; what is said of another
/// tenant's DAGs is not kept, so that nobody makes that tenant's creates slower.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Affinities(BTreeMap<DagName, BTreeSet<DagName>>);

impl Affinities {
    /// A DAG has this spec and these constraints from now on, or no longer.
    pub fn count(
        &mut self,
        name: &DagName,
        (spec, constraints): (&DagSpec, &CardConstraints),
        is_more: bool,
    ) {
        let own = &spec.card_affinity;
        let named = own.apart_from.union(&own.together_with).chain(constraints.dags());
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

/// Refuses constraints that name DAGs of other tenants, the DAG itself, too many, or one that is to be on its card.
pub(super) fn check_named(
    name: &DagName,
    spec: &DagSpec,
    constraints: &CardConstraints,
) -> Result<(), Denied> {
    let lists = [
        ("hosts_without_dags", &constraints.hosts_without_dags),
        ("racks_without_dags", &constraints.racks_without_dags),
    ];
    for (list, dags) in lists {
        let invalid = |what: String| Err(Denied::Invalid(format!("placement.{list}: {what}")));
        if dags.len() > AFFINITY_DAGS_MAX {
            return invalid(format!(
                "{} DAGs; at most {AFFINITY_DAGS_MAX} are allowed in a list",
                dags.len()
            ));
        }
        if let Some(dag) = dags.iter().find(|dag| dag.tenant != name.tenant) {
            let tenant = &name.tenant;
            return invalid(format!(
                "{dag} is not of tenants/{tenant}; name DAGs of the same tenant"
            ));
        }
        if dags.contains(name) {
            return invalid(format!("{name} names itself; name other DAGs"));
        }
        let affinity = &spec.card_affinity;
        if let Some(dag) = affinity.together_with.intersection(dags).next()
            && !affinity.preferred
        {
            return invalid(format!(
                "{dag} is in `card_affinity.together_with` as well; leave it in one of them"
            ));
        }
    }
    Ok(())
}

impl Fleet {
    /// Adds the affinities of the DAG and of others of its tenant. Preferences are not looked at. Time O(DAGs named × log DAGs).
    pub(super) fn add_affinities(
        &self,
        name: &DagName,
        spec: &DagSpec,
        constraints: &mut CardConstraints,
    ) {
        self.add_places_of_dags(name, constraints);
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

    /// Adds hosts and racks of DAGs that the DAG keeps apart from, or that keep apart from it.
    ///
    /// A place that a DAG leaves counts until its host has said that it serves the DAG no more: the DAG goes back there when
    /// its new host refuses it, without a choice that could look at others.
    fn add_places_of_dags(&self, name: &DagName, constraints: &mut CardConstraints) {
        let own = constraints.dags().chain(self.affinities.that_name(name));
        let others: BTreeSet<DagName> = own.cloned().collect();
        for other in &others {
            let Some(entry) = self.dags.get(other).filter(|_| other.tenant == name.tenant) else {
                continue;
            };
            let theirs = &entry.of().constraints;
            let by_host = constraints.hosts_without_dags.contains(other)
                || theirs.hosts_without_dags.contains(name);
            let by_rack = constraints.racks_without_dags.contains(other)
                || theirs.racks_without_dags.contains(name);
            let leaving = entry.of().leaving.as_ref().map(|(card, _)| card);
            for FleetCard { host, .. } in self.inventory.card_of(other).into_iter().chain(leaving) {
                if by_host {
                    constraints.of_dags.hosts.insert(host.clone());
                }
                if by_rack && let Some(spec) = self.inventory.host(host) {
                    constraints.of_dags.racks.insert((spec.zone.clone(), spec.rack.clone()));
                }
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
