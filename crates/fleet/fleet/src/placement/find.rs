//! Hosts for a virtual machine, ranked: for schedulers of machines, which decide with more than cards in view.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use snic_domain::{Bandwidth, Dag, DagName, TenantId};

use super::constraints::{CardConstraints, CardPolicy, PlacementRefused};
use super::function_books::KeptUser;
use super::inventory::Inventory;
use super::place::TrialFindings;
use super::walk::{Demand, Query, WalkDecision};
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
    /// Owner of the machine.
    pub tenant: Option<&'a TenantId>,
    /// User of what is reserved: `KeptUser::default()` where nothing that is reserved already may be taken.
    pub user: KeptUser<'a>,
    /// DAGs that its packets are to pass, and that are placed with it.
    pub dags: &'a [(&'a DagName, &'a Dag)],
    /// Bandwidth beside that of the DAGs.
    pub bandwidth: Bandwidth,
}

/// A host with room, and what speaks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankedHost {
    /// The best of its cards.
    pub card: FleetCard,
    /// Bandwidth left for the tenant at the card's ingress, before the machine.
    pub ingress_left: Bandwidth,
    /// Virtual functions that are free for the machine on the card, before it is bound.
    pub functions_left: u32,
    /// Whether the policy prefers it: under [`CardPolicy::Spread`] the tenant has no DAG on it, under [`CardPolicy::Loaded`] all
    /// NTs are loaded there; always under the others.
    pub is_preferred: bool,
    /// Regions that would be loaded for the DAG.
    pub loads: usize,
}

impl Inventory {
    /// Hosts with room, the best first, at most `limit` and sixteen, and what all others failed. Nothing is reserved.
    pub fn find_hosts(
        &self,
        needs: &HostNeeds<'_>,
        limit: usize,
    ) -> (Vec<RankedHost>, PlacementRefused) {
        let HostNeeds { tenant, user, bandwidth, .. } = *needs;
        let dags = needs.dags.iter().map(|(_, dag)| *dag).collect();
        let demand = Demand { tenant, user, dags, bandwidth };
        let query = Query::of(self, needs.constraints, needs.policy, demand);
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
            let loads = match tried.plan_all(&query, (slot, card), needs.dags) {
                Ok(loads) => loads,
                Err(on) => return on,
            };
            let kept = card.functions.bandwidth_of_others(user.tenant);
            seen.insert(card.name.host.clone());
            found.push(RankedHost {
                card: card.name.clone(),
                ingress_left: card.summary.ingress_left.saturating_sub(kept),
                functions_left: card.functions.left(user),
                is_preferred: query.prefers(card),
                loads,
            });
            ControlFlow::Continue(WalkDecision::On)
        });
        let refused = tried.refusal_beside(&query, &seen);
        (found, refused)
    }
}
