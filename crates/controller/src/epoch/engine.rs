//! One step of the loop for one card: loads in; rates, shares and what each DAG could have out.
//!
//! A pure function of the topology, which changes when a chain moves, and the loads. First space,
//! then time:
//!
//! ```text
//!  loads ──► DRF over area and memory ──► how much each DAG may hold       (for the autoscaler)
//!    └─────► fluid rates over NT slots, ingress, egress, packet store ──► rates, and what is left
//! ```
//!
//! A rate is never below what was promised. A DAG whose load is served gets, besides, an equal part
//! of what nobody uses where it passes, so that it can grow within an epoch; a DAG that is kept below
//! its load has all there is already.

use snic_domain::Bandwidth;
use snic_fairness::Weight;
use snic_fairness::drf::{self, Fraction, Problem, User};
use snic_fairness::fluid::{
    Cost, Demand, InvalidNetwork, Limit, NetworkBuilder, Solver, TenantIndex,
};

use crate::policy::{Fairness, Scheme};

/// Bits after the point of a [`Flow::area_per_bps`].
const AREA_BITS: u32 = 40;
/// A card's area, in the units of demands: shares are exact to a billionth.
pub const AREA_UNITS: u64 = 1_000_000_000;
/// Resources of a [`Flow`] below this are NT slots; more instances add to them, and to no other.
pub const SLOTS: usize = snic_domain::limits::REGIONS_MAX * snic_domain::limits::CHAIN_SLOTS_MAX;

/// A tenant of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantShape {
    /// Its weight.
    pub weight: Weight,
    /// Most on-board memory it may have, in pages.
    pub memory_max: Option<u64>,
}

/// A DAG on a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Whose: a position in [`Topology::tenants`].
    pub tenant: u32,
    /// What was promised.
    pub admitted: Bandwidth,
    /// Resources it passes, with what a bit per second costs there.
    pub uses: Vec<(usize, Cost)>,
    /// Area that one bit per second takes: see [`area_per_bps`].
    pub area_per_bps: u64,
    /// On-board memory of its NTs, in pages.
    pub memory: u64,
}

/// Area that one bit per second takes of an NT that takes `part` of [`AREA_UNITS`] and serves
/// `maximum`, in units of 2^-40, rounded up; an NT that serves nothing takes none.
pub fn area_per_bps(part: u64, maximum: Bandwidth) -> u64 {
    let scaled = u128::from(part) << AREA_BITS;
    let each = if maximum == Bandwidth::ZERO { 0 } else { scaled.div_ceil(maximum.get().into()) };
    u64::try_from(each).unwrap_or(u64::MAX)
}

/// What is on a card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// Of each resource, in bits per second. Slots first: see [`SLOTS`].
    pub capacities: Vec<u64>,
    /// On-board memory, in pages.
    pub memory: u64,
    /// The tenants, by id.
    pub tenants: Vec<TenantShape>,
    /// The DAGs, by name.
    pub flows: Vec<Flow>,
}

/// What a tenant has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantOutcome {
    /// What it wants: area in [`AREA_UNITS`], memory in pages.
    pub demand: [u64; 2],
    /// Its dominant resource, its share of it, and what kept it from more.
    pub space: drf::Outcome,
}

/// What one step says, by flow and by tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// By flow: what its token bucket is to let in.
    pub grants: Vec<Bandwidth>,
    /// By flow: what it gets of its load.
    pub rates: Vec<Bandwidth>,
    /// By flow: what keeps it below its load.
    pub limits: Vec<Option<usize>>,
    /// By flow: what its instances could serve of it, the others' rates being what they are.
    pub reach: Vec<Bandwidth>,
    /// By flow: what it may hold by its tenant's fair share of the space.
    pub fair: Vec<Bandwidth>,
    /// By tenant.
    pub tenants: Vec<TenantOutcome>,
    /// Whether every flow has min(load, promised).
    pub guaranteed: bool,
}

/// A topology made ready.
#[derive(Debug, Clone)]
pub struct Engine {
    topology: Topology,
    rules: Fairness,
    solver: Solver,
    demands: Vec<Demand>,
    /// By resource: what is left, in 2^-20 of its unit, and how many flows pass it.
    left: Vec<u128>,
    passing: Vec<u32>,
    /// By resource: whether several tenants use it.
    shared: Vec<bool>,
    outcome: Outcome,
}

impl Engine {
    /// Fails where the topology names tenants or resources that it does not have, or too many.
    pub fn new(topology: Topology, rules: Fairness) -> Result<Self, InvalidNetwork> {
        let mut builder = NetworkBuilder::new(&topology.capacities);
        for tenant in &topology.tenants {
            builder.tenant(tenant.weight);
        }
        for flow in &topology.flows {
            builder.flow(TenantIndex(flow.tenant), &flow.uses);
        }
        let solver = Solver::new(builder.build()?, rules.spare);
        let mut passing = vec![0; topology.capacities.len()];
        for (resource, _) in topology.flows.iter().flat_map(|flow| &flow.uses) {
            passing[*resource] += 1;
        }
        let shared = shared(&topology);
        let (demands, left, outcome) = (Vec::new(), Vec::new(), Outcome::default());
        Ok(Self { topology, rules, solver, demands, left, passing, shared, outcome })
    }

    /// What it was made of.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What the last step said; empty before the first.
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// One step. `loads` has the intended load of each flow; flows without one count as idle.
    /// Time O(uses + n log n), n being tenants and flows.
    pub fn step(&mut self, loads: &[Bandwidth]) -> &Outcome {
        self.space(loads);
        self.time(loads);
        &self.outcome
    }

    /// What a flow counts for in space: what it sends, at least what it was promised; without
    /// measured loads, what it was promised.
    fn wanted(&self, flow: usize, loads: &[Bandwidth]) -> Bandwidth {
        let admitted = self.topology.flows[flow].admitted;
        match self.rules.scheme {
            Scheme::Full => loads.get(flow).copied().unwrap_or_default().max(admitted),
            Scheme::Static | Scheme::Drf => admitted,
        }
    }

    /// Weighted DRF over area and memory.
    fn space(&mut self, loads: &[Bandwidth]) {
        let mut demands = vec![[0_u64; 2]; self.topology.tenants.len()];
        for (index, flow) in self.topology.flows.iter().enumerate() {
            let wanted = u128::from(self.wanted(index, loads).get());
            let area = (wanted * u128::from(flow.area_per_bps)) >> AREA_BITS;
            let sum = &mut demands[flow.tenant as usize];
            let area = u64::try_from(area).unwrap_or(drf::AMOUNT_MAX);
            sum[0] = sum[0].saturating_add(area).min(drf::AMOUNT_MAX);
            sum[1] = sum[1].saturating_add(flow.memory).min(drf::AMOUNT_MAX);
        }
        let whole = Fraction::new(1, 1).expect("one is a fraction");
        let users = self.topology.tenants.iter().zip(&demands).map(|(tenant, demand)| {
            let user = User::new(demand).weighted(tenant.weight).capped(whole);
            match tenant.memory_max {
                Some(pages) => user.with_quota(&[None, Some(pages.min(drf::AMOUNT_MAX))]),
                None => user,
            }
        });
        let memory = self.topology.memory.min(drf::AMOUNT_MAX);
        let problem = Problem::new(&[AREA_UNITS, memory], users.collect())
            .expect("two resources, and amounts that were cut to what is allowed");
        let allocation = drf::solve(&problem);
        let outcomes = demands.iter().zip(allocation.outcomes);
        self.outcome.tenants.clear();
        self.outcome
            .tenants
            .extend(outcomes.map(|(demand, space)| TenantOutcome { demand: *demand, space }));
        self.fair(loads);
    }

    /// How much each flow may hold: all where its tenant is not limited, else the part of what it
    /// wants that its tenant's share buys; at least what it was promised.
    fn fair(&mut self, loads: &[Bandwidth]) {
        let memory = self.topology.memory;
        let all = self.topology.capacities.get(SLOTS).copied().unwrap_or(u64::MAX);
        self.outcome.fair.clear();
        for (index, flow) in self.topology.flows.iter().enumerate() {
            let tenant = &self.outcome.tenants[flow.tenant as usize];
            let fair = match (tenant.space.limit, tenant.space.dominant) {
                (drf::Limit::OwnCap | drf::Limit::AsksNothing, _) | (_, None) => all,
                (_, Some(k)) => {
                    let capacity = [AREA_UNITS, memory][k.min(1)];
                    let asked = u128::from(tenant.demand[k.min(1)].max(1));
                    let share = u128::from(tenant.space.share.raw());
                    let got = (share * u128::from(capacity)) >> SHARE_BITS;
                    let wanted = u128::from(self.wanted(index, loads).get());
                    u64::try_from(wanted * got.min(asked) / asked).unwrap_or(u64::MAX)
                }
            };
            let fair = match self.rules.scheme {
                Scheme::Static => flow.admitted,
                Scheme::Drf | Scheme::Full => Bandwidth::from_bps(fair).max(flow.admitted),
            };
            self.outcome.fair.push(fair);
        }
    }

    /// Rates by the fluid limit of DRFQ, and what they leave.
    fn time(&mut self, loads: &[Bandwidth]) {
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
        let Ok(rates) = self.solver.solve(&self.demands) else { return };
        self.outcome.rates.clone_from(&rates.rates);
        self.outcome.guaranteed = rates.guaranteed;
        let limit = |limit: &Limit| match limit {
            Limit::Load => None,
            Limit::Resource(k) => Some(*k as usize),
        };
        self.outcome.limits.clear();
        self.outcome.limits.extend(rates.limits.iter().map(limit));
        self.count_left();
        self.grant(scheme);
    }

    /// Takes back of what is beyond promises what would fill a shared resource into its headroom,
    /// and counts what is left below that.
    fn count_left(&mut self) {
        let network = self.solver.network();
        let used = network.usage(&self.outcome.rates);
        let promised =
            |(demand, rate): (&Demand, &Bandwidth)| demand.load.min(demand.admitted).min(*rate);
        let promises: Vec<Bandwidth> =
            self.demands.iter().zip(&self.outcome.rates).map(promised).collect();
        let by_promise = network.usage(&promises);
        let keep = u128::from(100 - self.rules.headroom_percent.min(100));
        let usable = |k: usize| {
            let all = u128::from(self.topology.capacities[k]) << COST_BITS;
            if self.shared[k] { (all * keep / 100).max(by_promise[k]) } else { all }
        };
        let usable: Vec<u128> = (0..used.len()).map(usable).collect();
        for (index, flow) in self.topology.flows.iter().enumerate() {
            let more = u128::from((self.outcome.rates[index] - promises[index]).get());
            for (k, _) in flow.uses.iter().filter(|(k, _)| used[*k] > usable[*k]) {
                let part = more * (usable[*k] - by_promise[*k]) / (used[*k] - by_promise[*k]);
                let part = Bandwidth::from_bps(u64::try_from(part).unwrap_or(u64::MAX));
                let less = promises[index] + part;
                if less < self.outcome.rates[index] {
                    self.outcome.rates[index] = less;
                    self.outcome.limits[index] = Some(*k);
                }
            }
        }
        let used = self.solver.network().usage(&self.outcome.rates);
        self.left.clear();
        self.left.extend(usable.iter().zip(used).map(|(all, used)| all.saturating_sub(used)));
    }

    fn grant(&mut self, scheme: Scheme) {
        let Outcome { grants, rates, limits, reach, .. } = &mut self.outcome;
        grants.clear();
        reach.clear();
        for (index, flow) in self.topology.flows.iter().enumerate() {
            // What is left of the narrowest slot, and of the narrowest resource if all who pass it
            // took an equal part.
            let (mut of_slots, mut of_all) = (u128::MAX, u128::MAX);
            for (resource, cost) in &flow.uses {
                let cost = u128::from(cost.raw());
                if cost == 0 {
                    continue;
                }
                let left = self.left[*resource];
                if *resource < SLOTS {
                    of_slots = of_slots.min(left / cost);
                }
                of_all = of_all.min(left / cost / u128::from(self.passing[*resource].max(1)));
            }
            let plus = |rate: Bandwidth, more: u128| {
                rate + Bandwidth::from_bps(u64::try_from(more).unwrap_or(u64::MAX))
            };
            let rate = rates[index];
            reach.push(plus(rate, of_slots));
            let grant = match scheme {
                Scheme::Static => flow.admitted,
                Scheme::Full if limits[index].is_none() && of_all < u128::MAX => plus(rate, of_all),
                Scheme::Drf | Scheme::Full => rate,
            };
            grants.push(grant.max(flow.admitted));
        }
    }
}

/// Bits after the point of a share and of a cost, as their types define them.
const SHARE_BITS: u32 = drf::Share::ONE.raw().trailing_zeros();
const COST_BITS: u32 = Cost::ONE.raw().trailing_zeros();

/// Which resources more than one tenant uses: who is alone can only disturb itself.
fn shared(topology: &Topology) -> Vec<bool> {
    let mut user: Vec<Option<u32>> = vec![None; topology.capacities.len()];
    let mut shared = vec![false; topology.capacities.len()];
    for flow in &topology.flows {
        for (resource, _) in &flow.uses {
            let before = user[*resource].replace(flow.tenant);
            shared[*resource] |= before.is_some_and(|before| before != flow.tenant);
        }
    }
    shared
}
