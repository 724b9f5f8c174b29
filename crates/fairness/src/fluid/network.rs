//! What changes with the mapping only: resources, tenants, flows and their costs. Built when a
//! chain moves, read every epoch.

use std::ops::Range;

use snic_domain::Bandwidth;

use crate::Weight;

pub use crate::drfq::RESOURCES_MAX;

/// Most tenants; with [`FLOWS_MAX`] flows, sums of rates times costs stay below 116 bits.
pub const TENANTS_MAX: usize = 1 << 20;
/// Most flows. See [`TENANTS_MAX`].
pub const FLOWS_MAX: usize = 1 << 20;
/// Most costs of one flow: every resource once.
pub const COSTS_MAX: usize = RESOURCES_MAX;

/// A tenant of a network, in the order they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantIndex(pub u32);

/// A flow of a network, in the order they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowIndex(pub u32);

/// What one bit per second of a flow takes of a resource: in 2^-20 of the unit of its capacity.
///
/// An NT slot that a flow passes once costs [`Cost::ONE`] of a capacity in bits per second; with
/// the flow spread over n instances each costs a nth. For the packet store let the capacity be the
/// rate at which it is full if every packet stays a reference time, and the cost how many reference
/// times a packet stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u32);

impl Cost {
    /// One unit of capacity for each bit per second.
    pub const ONE: Self = Self(1 << 20);

    /// In units of 2^-20.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// `numerator / denominator`, rounded up, so that a cost is never lost; at most 2^12. A
    /// denominator of zero counts as one.
    pub fn from_ratio(numerator: u32, denominator: u32) -> Self {
        let scaled = u64::from(numerator) * u64::from(Self::ONE.0);
        let cost = scaled.div_ceil(u64::from(denominator.max(1)));
        Self(u32::try_from(cost).unwrap_or(u32::MAX))
    }

    /// In units of 2^-20.
    pub const fn raw(self) -> u32 {
        self.0
    }
}

/// Why a network cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNetwork {
    /// Too many resources, tenants, flows or costs of a flow.
    #[error("{given} {what} are more than the {limit} that one card's rates are computed for")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        given: usize,
        /// How many there can be.
        limit: usize,
    },
    /// A flow of a tenant that was not added.
    #[error("flow {flow} is of tenant {tenant}, and there are {tenants} tenants")]
    UnknownTenant {
        /// Position of the flow.
        flow: usize,
        /// The tenant it names.
        tenant: u32,
        /// How many there are.
        tenants: usize,
    },
    /// A cost at a resource that does not exist.
    #[error("flow {flow} uses resource {resource}, and there are {resources} resources")]
    UnknownResource {
        /// Position of the flow.
        flow: usize,
        /// The resource it names.
        resource: usize,
        /// How many there are.
        resources: usize,
    },
}

/// One cost of one flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    pub resource: u32,
    pub cost: u32,
    /// The fraction of the capacity that one bit per second takes; zero at a capacity of zero,
    /// where no rate but zero is possible.
    pub part: f64,
}

/// What a flow takes of a resource that can be full before all others are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub resource: u32,
    /// The flow's place: see [`Network::place_of`].
    pub place: u32,
    /// The fraction that one bit per second takes, as in [`Use`].
    pub part: f64,
}

/// A decisive resource that every flow uses.
#[derive(Debug, Clone)]
pub(super) struct Trunk {
    pub resource: u32,
    /// By place, as in [`Part`].
    pub parts: Vec<f64>,
}

/// Lists of lists in two flat arrays.
#[derive(Debug, Clone)]
pub(super) struct Lists<T> {
    /// Where each begins; then where the last ends.
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T: Copy> Lists<T> {
    pub(super) fn of(&self, index: usize) -> &[T] {
        &self.items[self.range(index..index + 1)]
    }

    /// Where the items of some neighbouring lists stand among all.
    pub(super) fn range(&self, lists: Range<usize>) -> Range<usize> {
        self.starts[lists.start] as usize..self.starts[lists.end] as usize
    }

    /// The items of all lists, one after another.
    pub(super) fn items(&self) -> &[T] {
        &self.items
    }

    fn with_capacity(lists: usize) -> Self {
        let mut starts = Vec::with_capacity(lists + 1);
        starts.push(0);
        Self { starts, items: Vec::new() }
    }

    fn push(&mut self, items: impl IntoIterator<Item = T>) {
        self.items.extend(items);
        // 2^20 flows with 512 costs each are 2^29.
        self.starts.push(u32::try_from(self.items.len()).expect("limits keep it below 2^29"));
    }

    fn filtered(&self, lists: usize, keep: impl Fn(usize, &T) -> bool) -> Self {
        let mut filtered = Self::with_capacity(lists);
        for list in 0..lists {
            filtered.push(self.of(list).iter().filter(|item| keep(list, item)).copied());
        }
        filtered
    }

    /// `lists` lists from (list, item) pairs, each in the order of the pairs.
    fn grouped(lists: usize, pairs: impl Iterator<Item = (usize, T)>) -> Self {
        let mut groups = vec![Vec::new(); lists];
        for (list, item) in pairs {
            groups[list].push(item);
        }
        let mut grouped = Self::with_capacity(lists);
        groups.into_iter().for_each(|group| grouped.push(group));
        grouped
    }
}

/// Resources, tenants and flows, ready to be solved for any demands.
#[derive(Debug, Clone)]
pub struct Network {
    pub(super) capacities: Vec<u64>,
    pub(super) weights: Vec<Weight>,
    /// By flow.
    pub(super) tenant_of: Vec<u32>,
    /// By flow: its dominant cost as a fraction.
    pub(super) dominant: Vec<f64>,
    /// By flow: all that it uses.
    pub(super) uses: Lists<Use>,
    /// By flow: where it stands among [`Self::flows`], tenant after tenant. A tenant's flows follow
    /// each other there, and so does what they use.
    pub(super) place_of: Vec<u32>,
    /// By place: what it uses of resources that can be full before all others are.
    pub(super) decisive: Lists<Part>,
    /// Those of the decisive resources that all use: their sums need no look at who uses them.
    pub(super) trunks: Vec<Trunk>,
    /// By resource: what is used of the other decisive ones, by place. A sum over a resource's users
    /// is one loop.
    pub(super) branches: Lists<Part>,
    /// By resource: who uses it (flow and cost), none where it is not decisive.
    pub(super) users: Lists<(u32, u32)>,
    /// By tenant.
    pub(super) flows: Lists<u32>,
}

/// A network under construction.
#[derive(Debug, Clone, Default)]
pub struct NetworkBuilder {
    capacities: Vec<u64>,
    weights: Vec<Weight>,
    flows: Vec<(TenantIndex, Vec<(usize, Cost)>)>,
}

impl NetworkBuilder {
    /// Resources with these capacities, each in its own unit; see [`Cost`]. Zero is a resource
    /// that is not there: flows that need it get nothing.
    pub fn new(capacities: &[u64]) -> Self {
        Self { capacities: capacities.to_vec(), ..Self::default() }
    }

    /// Adds a tenant; the first is tenant 0.
    pub fn tenant(&mut self, weight: Weight) -> TenantIndex {
        self.weights.push(weight);
        TenantIndex(self.weights.len() as u32 - 1)
    }

    /// Adds a flow with its cost at each resource it uses; the first is flow 0. A resource named
    /// twice costs the sum; a cost of zero is none.
    pub fn flow(&mut self, tenant: TenantIndex, costs: &[(usize, Cost)]) -> FlowIndex {
        self.flows.push((tenant, costs.to_vec()));
        FlowIndex(self.flows.len() as u32 - 1)
    }

    /// Checks and builds.
    ///
    /// # Errors
    ///
    /// [`InvalidNetwork`] where there is too much of something, or a flow names a tenant or a
    /// resource that was not added.
    pub fn build(self) -> Result<Network, InvalidNetwork> {
        self.check()?;
        let Self { capacities, weights, flows } = self;
        let mut uses = Lists::with_capacity(flows.len());
        let mut dominant = Vec::with_capacity(flows.len());
        for (_, costs) in &flows {
            let merged = merged(costs, &capacities);
            dominant.push(merged.iter().map(|u| u.part).fold(0.0, f64::max));
            uses.push(merged);
        }
        let tenant_of: Vec<u32> = flows.iter().map(|(tenant, _)| tenant.0).collect();
        let users = Lists::grouped(
            capacities.len(),
            (0..flows.len()).flat_map(|flow| {
                uses.of(flow).iter().map(move |u| (u.resource as usize, (flow as u32, u.cost)))
            }),
        );
        let keep: Vec<bool> =
            (0..capacities.len()).map(|k| !is_dominated(k, &uses, &users, &capacities)).collect();
        let users = users.filtered(capacities.len(), |k, _| keep[k]);
        let flows = Lists::grouped(
            weights.len(),
            (0_u32..).zip(&tenant_of).map(|(flow, &tenant)| (tenant as usize, flow)),
        );
        let mut place_of = vec![0; tenant_of.len()];
        let mut decisive = Lists::with_capacity(tenant_of.len());
        for (place, &flow) in (0_u32..).zip(flows.items()) {
            place_of[flow as usize] = place;
            let kept = uses.of(flow as usize).iter().filter(|u| keep[u.resource as usize]);
            decisive.push(kept.map(|u| Part { resource: u.resource, place, part: u.part }));
        }
        let trunks = (0..capacities.len())
            .filter(|k| !tenant_of.is_empty() && users.of(*k).len() == tenant_of.len())
            .map(|k| trunk(k as u32, &decisive));
        let trunks: Vec<Trunk> = trunks.collect();
        let is_branch = |u: &&Part| trunks.iter().all(|trunk| trunk.resource != u.resource);
        let branches = decisive.items().iter().filter(is_branch);
        let branches =
            Lists::grouped(capacities.len(), branches.map(|u| (u.resource as usize, *u)));
        Ok(Network {
            trunks,
            branches,
            capacities,
            weights,
            tenant_of,
            dominant,
            uses,
            place_of,
            decisive,
            users,
            flows,
        })
    }

    fn check(&self) -> Result<(), InvalidNetwork> {
        let counts = [
            ("resources", self.capacities.len(), RESOURCES_MAX),
            ("tenants", self.weights.len(), TENANTS_MAX),
            ("flows", self.flows.len(), FLOWS_MAX),
            (
                "costs of a flow",
                self.flows.iter().map(|(_, costs)| costs.len()).max().unwrap_or(0),
                COSTS_MAX,
            ),
        ];
        if let Some(&(what, given, limit)) = counts.iter().find(|(_, given, limit)| given > limit) {
            return Err(InvalidNetwork::TooMany { what, given, limit });
        }
        for (flow, (tenant, costs)) in self.flows.iter().enumerate() {
            let (tenant, tenants) = (tenant.0, self.weights.len());
            if tenant as usize >= tenants {
                return Err(InvalidNetwork::UnknownTenant { flow, tenant, tenants });
            }
            let resources = self.capacities.len();
            if let Some(&(resource, _)) = costs.iter().find(|(k, _)| *k >= resources) {
                return Err(InvalidNetwork::UnknownResource { flow, resource, resources });
            }
        }
        Ok(())
    }
}

/// Whether there is a resource that is at least as full as `k` whatever the rates: every flow that
/// uses `k` takes at least as large a part of it. The NTs of a chain that all flows pass are such
/// resources, all but the narrowest, and so are ingress and egress. Of equals the first remains.
fn is_dominated(k: usize, uses: &Lists<Use>, all: &Lists<(u32, u32)>, capacities: &[u64]) -> bool {
    let users = all.of(k);
    let Some(&(first, _)) = users.first() else { return false };
    let scaled = |cost: u32, capacity: u64| u128::from(cost) * u128::from(capacity);
    let candidates = uses.of(first as usize).iter().map(|u| u.resource as usize);
    candidates.filter(|&other| other != k).any(|other| {
        let mut equal = users.len() == all.of(other).len();
        let at_most = users.iter().all(|&(flow, cost)| {
            let mut theirs = uses.of(flow as usize).iter();
            let Some(there) = theirs.find(|u| u.resource as usize == other) else { return false };
            let here = scaled(cost, capacities[other]);
            let there = scaled(there.cost, capacities[k]);
            equal &= here == there;
            here <= there
        });
        at_most && (!equal || other < k)
    })
}

fn trunk(resource: u32, decisive: &Lists<Part>) -> Trunk {
    let parts = decisive.items().iter().filter(|u| u.resource == resource);
    Trunk { resource, parts: parts.map(|u| u.part).collect() }
}

fn merged(costs: &[(usize, Cost)], capacities: &[u64]) -> Vec<Use> {
    let mut sorted: Vec<_> = costs.iter().filter(|(_, cost)| cost.0 > 0).copied().collect();
    sorted.sort_unstable();
    let mut merged: Vec<Use> = Vec::with_capacity(sorted.len());
    for (k, Cost(cost)) in sorted {
        match merged.last_mut().filter(|last| last.resource as usize == k) {
            Some(last) => last.cost = last.cost.saturating_add(cost),
            None => merged.push(Use { resource: k as u32, cost, part: 0.0 }),
        }
    }
    for u in &mut merged {
        let capacity = capacities[u.resource as usize];
        if capacity > 0 {
            u.part = f64::from(u.cost) / f64::from(Cost::ONE.0) / capacity as f64;
        }
    }
    merged
}

impl Network {
    /// What there is of each resource.
    pub fn capacities(&self) -> &[u64] {
        &self.capacities
    }

    /// How many tenants there are.
    pub fn tenant_count(&self) -> usize {
        self.weights.len()
    }

    /// How many flows there are.
    pub fn flow_count(&self) -> usize {
        self.tenant_of.len()
    }

    /// The flows of one tenant, in their order.
    pub fn flows_of(&self, tenant: TenantIndex) -> impl Iterator<Item = FlowIndex> {
        self.flows.of(tenant.0 as usize).iter().copied().map(FlowIndex)
    }

    /// The weight of one tenant.
    pub fn weight(&self, tenant: TenantIndex) -> Weight {
        self.weights[tenant.0 as usize]
    }

    /// Whether `resource` is one of [`Self::trunks`]: nobody rises once it is full.
    pub(super) fn is_trunk(&self, resource: usize) -> bool {
        self.trunks.iter().any(|trunk| trunk.resource as usize == resource)
    }

    /// Capacity of `resource` in the units in which rates times costs are counted.
    pub(super) fn capacity_scaled(&self, resource: usize) -> u128 {
        u128::from(self.capacities[resource]) * u128::from(Cost::ONE.0)
    }

    /// What flows with these `rates` take of every resource, in units of 2^-20 of the capacity's:
    /// exact.
    pub fn usage(&self, rates: &[Bandwidth]) -> Vec<u128> {
        let mut used = vec![0; self.capacities.len()];
        for (flow, rate) in rates.iter().enumerate().take(self.flow_count()) {
            for u in self.uses.of(flow) {
                used[u.resource as usize] += u128::from(rate.get()) * u128::from(u.cost);
            }
        }
        used
    }

    /// The resource of which `tenant` takes the largest fraction with these `rates`, and that
    /// fraction; the first of equals, `None` where it takes nothing. For people and plots: the
    /// solver charges the sum over flows (see the module's documentation), which is at least this.
    pub fn dominant_share(&self, tenant: TenantIndex, rates: &[Bandwidth]) -> Option<(usize, f64)> {
        let mut taken = vec![0.0; self.capacities.len()];
        for flow in self.flows_of(tenant) {
            for u in self.uses.of(flow.0 as usize) {
                taken[u.resource as usize] += rates[flow.0 as usize].get() as f64 * u.part;
            }
        }
        let used = taken.into_iter().enumerate().filter(|(_, fraction)| *fraction > 0.0);
        used.reduce(|best, other| if other.1 > best.1 { other } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The resources that are left to each flow.
    fn decisive(capacities: &[u64], flows: &[&[(usize, u32)]]) -> Vec<Vec<u32>> {
        let mut builder = NetworkBuilder::new(capacities);
        let tenant = builder.tenant(Weight::ONE);
        for costs in flows {
            let costs: Vec<_> = costs.iter().map(|&(k, cost)| (k, Cost::from_raw(cost))).collect();
            builder.flow(tenant, &costs);
        }
        let network = builder.build().expect("valid");
        let resources = |flow: u32| {
            let place = network.place_of[flow as usize] as usize;
            network.decisive.of(place).iter().map(|u| u.resource).collect()
        };
        (0..flows.len() as u32).map(resources).collect()
    }

    #[test]
    fn of_a_chain_that_all_pass_the_narrowest_decides() {
        assert_eq!(decisive(&[9, 5, 7], &[&[(0, 1), (1, 1), (2, 1)][..]; 2]), [[1], [1]]);
        assert_eq!(decisive(&[5, 5], &[&[(0, 1), (1, 1)]]), [[0]], "the first of equals");
        assert_eq!(decisive(&[10, 5], &[&[(0, 4), (1, 1)]]), [[0]], "by cost and capacity");
    }

    #[test]
    fn what_somebody_skips_decides_for_himself() {
        // The second flow skips resource 1: resource 0 can be full without it.
        assert_eq!(decisive(&[9, 5], &[&[(0, 1), (1, 1)], &[(0, 1)]]), [vec![0, 1], vec![0]]);
        // The wide one is used by the first only, the narrow one by both.
        assert_eq!(decisive(&[5, 9], &[&[(0, 1), (1, 1)], &[(0, 1)]]), [[0], [0]]);
        // Equal for the first flow, but another uses one of them as well.
        assert_eq!(decisive(&[5, 5], &[&[(0, 1), (1, 1)], &[(1, 1)]]), [[1], [1]]);
    }

    #[test]
    fn what_is_not_there_decides_for_those_who_need_it_only() {
        assert_eq!(decisive(&[5, 0], &[&[(0, 1), (1, 1)], &[(0, 1)]]), [vec![0, 1], vec![0]]);
        assert_eq!(decisive(&[0, 0], &[&[(0, 1), (1, 1)]]), [[0]]);
        assert_eq!(decisive(&[5, 0], &[&[(0, 1)]]), [[0]]);
    }

    #[test]
    fn a_resource_named_twice_costs_the_sum_and_zero_is_none() {
        let mut builder = NetworkBuilder::new(&[8, 8]);
        let tenant = builder.tenant(Weight::ONE);
        let cost = Cost::from_raw;
        builder.flow(tenant, &[(1, cost(3)), (0, cost(0)), (1, cost(u32::MAX)), (1, cost(1))]);
        let network = builder.build().expect("valid");
        let uses = network.uses.of(0);
        assert_eq!((uses.len(), uses[0].resource, uses[0].cost), (1, 1, u32::MAX));
    }
}
