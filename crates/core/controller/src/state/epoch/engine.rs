//! One step of the loop for one card: loads in; rates, shares and what each DAG could have out.
//!
//! A pure function of the topology, which changes when a chain moves, and the loads. First space,
//! then time:
//!
//! ```text
//!  loads ──► DRF over area and memory ──► how much each DAG may hold       (for the autoscaler)
//!    └─────► fluid rates over NT slots, ports, packet store ──► rates, and what is left
//! ```
//!
//! A rate is never below what was promised. A DAG whose load is served gets, besides, an equal part
//! of what nobody uses where it passes, so that it can grow within an epoch; a DAG that is kept below
//! its load has all there is already.

use snic_domain::Bandwidth;
use snic_fairness::fluid::{Demand, InvalidNetwork, Limit, NetworkBuilder, Solver, TenantIndex};

use super::flows::{EpochOutcome, Topology};
use super::room::Headroom;
use super::space::Space;
use crate::protocol::{Fairness, Scheme};

/// A topology made ready.
#[derive(Debug, Clone)]
pub struct Engine {
    topology: Topology,
    rules: Fairness,
    space: Space,
    solver: Solver,
    demands: Vec<Demand>,
    room: Headroom,
    outcome: EpochOutcome,
}

impl Engine {
    /// An engine for these DAGs, tenants and resources.
    ///
    /// # Errors
    /// The topology names a tenant or a resource that it does not have, or has more of them than an index counts.
    pub fn new(topology: Topology, rules: Fairness) -> Result<Self, InvalidNetwork> {
        let mut builder = NetworkBuilder::new(&topology.capacities).grouped(&topology.groups);
        for tenant in &topology.tenants {
            builder.tenant(tenant.weight);
        }
        for flow in &topology.flows {
            builder.flow(TenantIndex(flow.tenant), &flow.uses);
        }
        let solver = Solver::new(builder.build()?, rules.spare);
        let (space, room) =
            (Space::new(&topology)?, Headroom::new(&topology, rules.headroom_percent));
        let (demands, outcome) = (Vec::new(), EpochOutcome::default());
        Ok(Self { topology, rules, space, solver, demands, room, outcome })
    }

    /// Topology that it was made of.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Gives the topology back that it was made of.
    pub(super) fn into_topology(self) -> Topology {
        self.topology
    }

    /// Sets the allocations of tenants on other cards, in the order of the topology: area in [`AREA_UNITS`](super::AREA_UNITS) and
    /// memory in pages of this card. It counts in the steps that follow: who has less in all rises first.
    pub fn set_elsewhere(&mut self, elsewhere: Vec<[u64; 2]>) {
        self.space.set_elsewhere(elsewhere);
    }

    /// Allocation of a tenant on other cards, by its position in the topology.
    pub fn elsewhere(&self, tenant: usize) -> [u64; 2] {
        self.space.elsewhere(tenant)
    }

    /// Rules of sharing.
    pub const fn rules(&self) -> Fairness {
        self.rules
    }

    /// Result of the last step; empty before the first.
    pub const fn outcome(&self) -> &EpochOutcome {
        &self.outcome
    }

    /// One step. `loads` has the intended load of each flow; flows without one count as idle.
    /// Time O(uses + n log n), n being tenants and flows; nothing is allocated once it has run. What is
    /// kept between steps is memory: the answer depends on the topology and the loads alone.
    pub fn step(&mut self, loads: &[Bandwidth]) -> &EpochOutcome {
        self.demand(loads);
        let scheme = self.rules.scheme;
        self.space.divide(&self.topology, scheme, &self.demands, &mut self.outcome);
        self.time(scheme);
        &self.outcome
    }

    /// Load that each flow counts with: its load; without measured loads, what it was promised, or
    /// as much as it gets.
    fn demand(&mut self, loads: &[Bandwidth]) {
        let scheme = self.rules.scheme;
        self.demands.clear();
        let flows = self.topology.flows.iter().enumerate();
        self.demands.extend(flows.map(|(index, flow)| Demand {
            load: match scheme {
                Scheme::Static => flow.admitted,
                Scheme::Drf => Bandwidth::from_bps(u64::MAX),
                Scheme::Full => loads.get(index).copied().unwrap_or_default(),
            },
            admitted: flow.admitted,
        }));
    }

    /// Rates by the fluid limit of DRFQ, and what they leave.
    fn time(&mut self, scheme: Scheme) {
        let Ok(rates) = self.solver.solve(&self.demands) else {
            return; // Amounts far over what a card has: all keep the rates of the step before.
        };
        self.outcome.rates.clone_from(&rates.rates);
        self.outcome.guaranteed = rates.guaranteed;
        let limit = |limit: &Limit| match limit {
            Limit::Load => None,
            Limit::Resource(k) => Some(*k as usize),
        };
        self.outcome.limits.clear();
        self.outcome.limits.extend(rates.limits.iter().map(limit));
        self.room.keep(&self.demands, &mut self.outcome);
        self.grant(scheme);
    }

    fn grant(&mut self, scheme: Scheme) {
        let EpochOutcome { grants, rates, limits, reach, .. } = &mut self.outcome;
        grants.clear();
        reach.clear();
        for (flow, (left, demand)) in self.room.left().zip(&self.demands).enumerate() {
            let (rate, admitted) = (rates[flow], demand.admitted);
            let plus = |more: u64| Bandwidth::from_bps(rate.get().saturating_add(more));
            reach.push(plus(left.slots));
            let grant = match scheme {
                Scheme::Static => admitted,
                Scheme::Full if limits[flow].is_none() && left.part < u64::MAX => plus(left.part),
                Scheme::Drf | Scheme::Full => rate,
            };
            grants.push(grant.max(admitted));
        }
    }
}
