//! Hosts for a virtual machine, ranked: for schedulers of machines, which decide with more than cards in view.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use snic_domain::{Bandwidth, Dag, DagName};

use super::constraints::{CardConstraints, CardPolicy, PlacementRefused};
use super::inventory::Inventory;
use super::place::TrialFindings;
use super::walk::{Query, WalkDecision};
use crate::FleetCard;

/// Most hosts that one search ranks.
pub const RANKED_HOSTS_MAX: usize = 16;

/// Demands of a virtual machine on a host.
#[derive(Debug, Clone, Copy)]
pub struct HostNeeds<'a> {
    /// Where it may go, and how many virtual functions it needs.
    pub constraints: &'a CardConstraints,
    /// Order of the hosts.
    pub policy: CardPolicy,
    /// The DAG that its packets are to pass, if any.
    pub dag: Option<(&'a DagName, &'a Dag)>,
}

/// A host with room, and what speaks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankedHost {
    /// The best of its cards.
    pub card: FleetCard,
    /// Bandwidth left at the card's ingress, before the machine.
    pub ingress_left: Bandwidth,
    /// Virtual functions that are free on the card, before the machine.
    pub functions_left: u32,
    /// Whether the policy prefers it: under [`CardPolicy::Spread`] the tenant has no DAG on it, under [`CardPolicy::Loaded`] all
    /// NTs are loaded there; always under the others.
    pub is_preferred: bool,
    /// Regions that would be loaded for the DAG.
    pub loads: usize,
}

impl Inventory {
    /// Hosts with room, the best first, at most `limit` and sixteen. Nothing is reserved.
    ///
    /// # Errors
    ///
    /// [`PlacementRefused`] with what each host failed, where there is none.
    pub fn find_hosts(
        &self,
        needs: &HostNeeds<'_>,
        limit: usize,
    ) -> Result<Vec<RankedHost>, Box<PlacementRefused>> {
        let dag = needs.dag.map(|(name, dag)| (&name.tenant, dag));
        let query = Query::new(self, needs.constraints, needs.policy, dag);
        let mut tried = TrialFindings::default();
        let mut found: Vec<RankedHost> = Vec::new();
        let mut seen = BTreeSet::new();
        query.walk(|slot, card| {
            if found.len() >= limit.clamp(1, RANKED_HOSTS_MAX) {
                return ControlFlow::Break(());
            }
            if seen.contains(&card.name.host) {
                return ControlFlow::Continue(WalkDecision::On);
            }
            let loads = match needs.dag.map(|dag| tried.plan(&query, (slot, card), dag)) {
                None => 0,
                Some(Ok(plan)) => plan.loads.len(),
                Some(Err(on)) => return on,
            };
            seen.insert(card.name.host.clone());
            found.push(RankedHost {
                card: card.name.clone(),
                ingress_left: card.summary.ingress_left,
                functions_left: card.functions_left,
                is_preferred: query.prefers(card),
                loads,
            });
            ControlFlow::Continue(WalkDecision::On)
        });
        if found.is_empty() { Err(Box::new(tried.refusal(&query))) } else { Ok(found) }
    }
}
