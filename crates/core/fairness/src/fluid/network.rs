//! Resources, tenants, flows and their costs: what changes only with the mapping. Built when a chain
//! moves, read every epoch.

use std::ops::Range;

use snic_domain::Bandwidth;

use crate::Weight;

/// Most resources: 32 regions with 8 NTs, ingress, egress, packet store, and room for more.
pub const RESOURCES_MAX: usize = 512;
/// Most tenants. With this limit and [`FLOWS_MAX`], sums of rates times costs stay below 116 bits.
pub const TENANTS_MAX: usize = 1 << 20;
/// Most flows; see [`TENANTS_MAX`].
pub const FLOWS_MAX: usize = 1 << 20;
/// Most costs of one flow: one for each resource.
pub const COSTS_MAX: usize = RESOURCES_MAX;

/// Index of a tenant, in the order in which tenants were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantIndex(pub u32);

/// Index of a flow, in the order in which flows were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowIndex(pub u32);

/// Amount of a resource that one bit per second of a flow takes, in 2^-20 of the unit of its capacity.
///
/// An NT slot that a flow passes once costs [`Cost::ONE`] of a capacity in bits per second; if the
/// flow is spread over n instances, each costs 1/n. For the packet store, the capacity is the rate
/// at which it fills up if every packet stays for a reference time, and the cost is the number of
/// reference times that a packet stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u32);

impl Cost {
    /// One unit of capacity for each bit per second.
    pub const ONE: Self = Self(1 << 20);

    /// In units of 2^-20.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// `numerator / denominator`, rounded up so that a cost never becomes zero; at most 2^12. A
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
    #[error("{given} {what} exceed the limit of {limit} for one card")]
    TooMany {
        /// "resources", "tenants", "flows" or "costs of a flow".
        what: &'static str,
        /// The number given.
        given: usize,
        limit: usize,
    },
    /// A flow names a tenant that was not added.
    #[error("flow {flow} belongs to tenant {tenant}, but the network has {tenants} tenants")]
    UnknownTenant {
        /// Index of the flow.
        flow: usize,
        /// The tenant it names.
        tenant: u32,
        /// Number of tenants.
        tenants: usize,
    },
    /// A group is named after a resource that does not exist.
    #[error(
        "a group of resources has number {resource}, but the network has {resources} resources"
    )]
    UnknownGroup {
        /// The number of the group.
        resource: usize,
        /// Number of resources.
        resources: usize,
    },
    /// A flow names a resource that does not exist.
    #[error("flow {flow} uses resource {resource}, but the network has {resources} resources")]
    UnknownResource {
        /// Index of the flow.
        flow: usize,
        /// The resource it names.
        resource: usize,
        /// Number of resources.
        resources: usize,
    },
}

/// One cost of one flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResourceUse {
    pub resource: u32,
    pub cost: u32,
    /// Fraction of the capacity that one bit per second takes; zero for a capacity of zero, which
    /// allows no rate but zero.
    pub fraction: f64,
}

/// Amount of a possible bottleneck that a flow takes: a resource that may fill up before every other.
#[derive(Debug, Clone, Copy)]
pub(super) struct BottleneckUse {
    pub resource: u32,
    /// Position of the flow: see [`Network::position_of`].
    pub position: u32,
    /// Fraction of the capacity that one bit per second takes, as in [`ResourceUse`].
    pub fraction: f64,
}

/// A possible bottleneck that every flow uses.
#[derive(Debug, Clone)]
pub(super) struct SharedBottleneck {
    pub resource: u32,
    /// Fractions by position of the flow, as in [`BottleneckUse`].
    pub fractions: Vec<f64>,
}

/// Lists of lists in two flat arrays.
#[derive(Debug, Clone)]
pub(super) struct Lists<T> {
    /// Where each list begins, then where the last one ends.
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T: Copy> Lists<T> {
    pub(super) fn of(&self, index: usize) -> &[T] {
        &self.items[self.range(index..index + 1)]
    }

    /// Range of the items of some neighbouring lists among all items.
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

    /// The list that was added last.
    fn last(&self) -> &[T] {
        self.of(self.starts.len() - 2)
    }

    fn filtered(&self, lists: usize, keep: impl Fn(usize, &T) -> bool) -> Self {
        let mut filtered = Self::with_capacity(lists);
        for list in 0..lists {
            filtered.push(self.of(list).iter().filter(|item| keep(list, item)).copied());
        }
        filtered
    }

    /// `lists` lists from (list, item) pairs, each in the order of the pairs. They are counted first, so that each item
    /// is written once, where it stays.
    fn grouped(lists: usize, pairs: impl Iterator<Item = (usize, T)> + Clone) -> Self {
        let mut starts = vec![0_u32; lists + 1];
        pairs.clone().for_each(|(list, _)| starts[list + 1] += 1);
        for list in 0..lists {
            starts[list + 1] += starts[list];
        }
        let mut next = starts.clone();
        let mut items: Vec<T> = pairs.clone().map(|(_, item)| item).collect();
        for (list, item) in pairs {
            items[next[list] as usize] = item;
            next[list] += 1;
        }
        Self { starts, items }
    }
}

/// Resources, tenants and flows, ready to be solved for any demands.
#[derive(Debug, Clone)]
pub struct Network {
    pub(super) capacities: Vec<u64>,
    groups: ResourceGroups,
    pub(super) weights: Vec<Weight>,
    /// Tenant of each flow.
    pub(super) tenant_of: Vec<u32>,
    /// Dominant cost of each flow, as a fraction.
    pub(super) dominant: Vec<f64>,
    /// Resources that each flow uses.
    pub(super) uses: Lists<ResourceUse>,
    /// Position of each flow in [`Self::flows`]. Flows are sorted by tenant there, so the flows of a
    /// tenant are neighbours, and so are their uses.
    pub(super) position_of: Vec<u32>,
    /// Uses of possible bottlenecks, by position.
    pub(super) bottleneck_uses: Lists<BottleneckUse>,
    /// Possible bottlenecks that every flow uses: their sums need no list of users.
    pub(super) shared_bottlenecks: Vec<SharedBottleneck>,
    /// Uses of the other possible bottlenecks by resource, by position. The sum over a resource's
    /// users is one loop.
    pub(super) unshared_uses: Lists<BottleneckUse>,
    /// Users of each resource (flow and cost); empty unless it is a possible bottleneck.
    pub(super) users: Lists<(u32, u32)>,
    /// Flows of each tenant.
    pub(super) flows: Lists<u32>,
}

/// Resources that count as one where shares are compared, such as all instances of an NT: otherwise the share of a flow
/// would depend on the instances over which its packets are spread.
#[derive(Debug, Clone, Default)]
struct ResourceGroups {
    /// Group of each resource.
    of: Vec<u32>,
    /// Capacity of each group.
    capacities: Vec<u64>,
}

impl ResourceGroups {
    /// Resources without a group are alone.
    fn new(groups: &[u32], capacities: &[u64]) -> Self {
        let of: Vec<u32> = (0_u32..)
            .zip(capacities)
            .map(|(k, _)| groups.get(k as usize).copied().unwrap_or(k))
            .collect();
        let mut sums = vec![0_u64; capacities.len()];
        for (group, capacity) in of.iter().zip(capacities) {
            sums[*group as usize] = sums[*group as usize].saturating_add(*capacity);
        }
        Self { of, capacities: sums }
    }

    /// The largest fraction of any group that one bit per second takes. `sums` is zero for every group, before and
    /// after. Time O(uses).
    fn dominant(&self, uses: &[ResourceUse], sums: &mut [u64]) -> f64 {
        for used in uses {
            sums[self.of[used.resource as usize] as usize] += u64::from(used.cost);
        }
        let fraction = |used: &ResourceUse| {
            let group = self.of[used.resource as usize] as usize;
            match (std::mem::take(&mut sums[group]), self.capacities[group]) {
                (_, 0) => 0.0,
                (cost, capacity) => cost as f64 / f64::from(Cost::ONE.0) / capacity as f64,
            }
        };
        uses.iter().map(fraction).fold(0.0, f64::max)
    }
}

/// A network under construction.
#[derive(Debug, Clone, Default)]
pub struct NetworkBuilder {
    capacities: Vec<u64>,
    groups: Vec<u32>,
    weights: Vec<Weight>,
    /// Tenant of each flow, and where its costs end.
    flows: Vec<(TenantIndex, usize)>,
    /// Costs of all flows, one after another.
    costs: Vec<(usize, Cost)>,
}

impl NetworkBuilder {
    /// Starts with resources of these capacities, each in its own unit; see [`Cost`]. Flows that
    /// use a resource of capacity zero get nothing.
    pub fn new(capacities: &[u64]) -> Self {
        Self { capacities: capacities.to_vec(), ..Self::default() }
    }

    /// Counts resources as one where shares are compared: `groups` has of each the number of the first one of its group.
    /// Those that it does not have are alone. Capacities are still kept one by one.
    #[must_use]
    pub fn grouped(mut self, groups: &[u32]) -> Self {
        self.groups = groups.to_vec();
        self
    }

    /// Adds a tenant; the first is tenant 0.
    pub fn tenant(&mut self, weight: Weight) -> TenantIndex {
        self.weights.push(weight);
        TenantIndex(self.weights.len() as u32 - 1)
    }

    /// Adds a flow with its cost at each resource it uses; the first is flow 0. Costs for the same
    /// resource add up; a cost of zero is ignored.
    pub fn flow(&mut self, tenant: TenantIndex, costs: &[(usize, Cost)]) -> FlowIndex {
        self.costs.extend_from_slice(costs);
        self.flows.push((tenant, self.costs.len()));
        FlowIndex(self.flows.len() as u32 - 1)
    }

    /// Checks the input and builds the network.
    ///
    /// # Errors
    ///
    /// [`InvalidNetwork`] if a limit is exceeded, or a flow names a tenant or a resource that was not
    /// added, or a group does.
    pub fn build(self) -> Result<Network, InvalidNetwork> {
        self.check()?;
        let Self { capacities, groups, weights, flows, mut costs } = self;
        let groups = ResourceGroups::new(&groups, &capacities);
        let mut sums = vec![0; capacities.len()];
        let mut uses = Lists::with_capacity(flows.len());
        let mut dominant = Vec::with_capacity(flows.len());
        let (mut rest, mut from) = (&mut costs[..], 0);
        for (_, end) in &flows {
            let (own, others) = rest.split_at_mut(end - from);
            (rest, from) = (others, *end);
            push_merged(&mut uses, own, &capacities);
            dominant.push(groups.dominant(uses.last(), &mut sums));
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
        let mut position_of = vec![0; tenant_of.len()];
        let mut bottleneck_uses = Lists::with_capacity(tenant_of.len());
        for (position, &flow) in (0_u32..).zip(flows.items()) {
            position_of[flow as usize] = position;
            let kept = uses.of(flow as usize).iter().filter(|u| keep[u.resource as usize]);
            bottleneck_uses.push(kept.map(|u| BottleneckUse {
                resource: u.resource,
                position,
                fraction: u.fraction,
            }));
        }
        let shared_bottlenecks = (0..capacities.len())
            .filter(|k| !tenant_of.is_empty() && users.of(*k).len() == tenant_of.len())
            .map(|k| shared_bottleneck(k as u32, &bottleneck_uses));
        let shared_bottlenecks: Vec<SharedBottleneck> = shared_bottlenecks.collect();
        let is_unshared = |u: &&BottleneckUse| {
            shared_bottlenecks.iter().all(|bottleneck| bottleneck.resource != u.resource)
        };
        let unshared_uses = bottleneck_uses.items().iter().filter(is_unshared);
        let unshared_uses =
            Lists::grouped(capacities.len(), unshared_uses.map(|u| (u.resource as usize, *u)));
        Ok(Network {
            shared_bottlenecks,
            unshared_uses,
            capacities,
            groups,
            weights,
            tenant_of,
            dominant,
            uses,
            position_of,
            bottleneck_uses,
            users,
            flows,
        })
    }

    /// Flows with their costs.
    fn each(&self) -> impl Iterator<Item = (TenantIndex, &[(usize, Cost)])> {
        let mut from = 0;
        self.flows.iter().map(move |(tenant, end)| {
            let costs = &self.costs[from..*end];
            from = *end;
            (*tenant, costs)
        })
    }

    fn check(&self) -> Result<(), InvalidNetwork> {
        let counts = [
            ("resources", self.capacities.len(), RESOURCES_MAX),
            ("tenants", self.weights.len(), TENANTS_MAX),
            ("flows", self.flows.len(), FLOWS_MAX),
            (
                "costs of a flow",
                self.each().map(|(_, costs)| costs.len()).max().unwrap_or(0),
                COSTS_MAX,
            ),
        ];
        if let Some(&(what, given, limit)) = counts.iter().find(|(_, given, limit)| given > limit) {
            return Err(InvalidNetwork::TooMany { what, given, limit });
        }
        let resources = self.capacities.len();
        if let Some(&resource) = self.groups.iter().find(|group| **group as usize >= resources) {
            let resource = resource as usize;
            return Err(InvalidNetwork::UnknownGroup { resource, resources });
        }
        for (flow, (tenant, costs)) in self.each().enumerate() {
            let (tenant, tenants) = (tenant.0, self.weights.len());
            if tenant as usize >= tenants {
                return Err(InvalidNetwork::UnknownTenant { flow, tenant, tenants });
            }
            if let Some(&(resource, _)) = costs.iter().find(|(k, _)| *k >= resources) {
                return Err(InvalidNetwork::UnknownResource { flow, resource, resources });
            }
        }
        Ok(())
    }
}

/// Whether some resource is at least as full as `k` whatever the rates are: every flow that uses `k`
/// takes at least as large a fraction of that resource. In a chain that all flows pass this holds for
/// every NT but the narrowest. Of several equal resources the first remains.
fn is_dominated(
    k: usize,
    uses: &Lists<ResourceUse>,
    all: &Lists<(u32, u32)>,
    capacities: &[u64],
) -> bool {
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

fn shared_bottleneck(resource: u32, all: &Lists<BottleneckUse>) -> SharedBottleneck {
    let uses = all.items().iter().filter(|u| u.resource == resource);
    SharedBottleneck { resource, fractions: uses.map(|u| u.fraction).collect() }
}

/// Adds the uses of one more flow: its costs by resource, those of one resource together. Sorts the costs.
fn push_merged(uses: &mut Lists<ResourceUse>, costs: &mut [(usize, Cost)], capacities: &[u64]) {
    costs.sort_unstable();
    let used = costs.chunk_by(|a, b| a.0 == b.0).filter_map(|of_one| {
        let cost = of_one.iter().fold(0_u32, |sum, (_, cost)| sum.saturating_add(cost.0));
        let (resource, _) = *of_one.first().filter(|_| cost > 0)?;
        let fraction = match capacities[resource] {
            0 => 0.0,
            capacity => f64::from(cost) / f64::from(Cost::ONE.0) / capacity as f64,
        };
        Some(ResourceUse { resource: resource as u32, cost, fraction })
    });
    uses.push(used);
}

impl Network {
    /// Capacity of each resource.
    pub fn capacities(&self) -> &[u64] {
        &self.capacities
    }

    /// Group of a resource, and capacity of all resources in it together: see [`NetworkBuilder::grouped`].
    pub fn group(&self, resource: usize) -> (usize, u64) {
        let group = self.groups.of[resource] as usize;
        (group, self.groups.capacities[group])
    }

    /// Number of tenants.
    pub fn tenant_count(&self) -> usize {
        self.weights.len()
    }

    /// Number of flows.
    pub fn flow_count(&self) -> usize {
        self.tenant_of.len()
    }

    /// The flows of one tenant, in their order.
    pub fn flows_of(&self, tenant: TenantIndex) -> impl Iterator<Item = FlowIndex> {
        self.flows.of(tenant.0 as usize).iter().copied().map(FlowIndex)
    }

    /// The tenant of `flow`.
    pub fn tenant(&self, flow: FlowIndex) -> TenantIndex {
        TenantIndex(self.tenant_of[flow.0 as usize])
    }

    /// The resources that `flow` uses, by number and each once, with its cost there.
    pub fn costs(&self, flow: FlowIndex) -> impl Iterator<Item = (usize, Cost)> {
        self.uses.of(flow.0 as usize).iter().map(|u| (u.resource as usize, Cost(u.cost)))
    }

    /// The weight of one tenant.
    pub fn weight(&self, tenant: TenantIndex) -> Weight {
        self.weights[tenant.0 as usize]
    }

    /// Whether `resource` is one of [`Self::shared_bottlenecks`]: once it is full, no rate rises.
    pub(super) fn is_shared_bottleneck(&self, resource: usize) -> bool {
        self.shared_bottlenecks.iter().any(|bottleneck| bottleneck.resource as usize == resource)
    }

    /// Capacity of `resource` in the unit of rates times costs.
    pub(super) fn capacity_scaled(&self, resource: usize) -> u128 {
        u128::from(self.capacities[resource]) * u128::from(Cost::ONE.0)
    }

    /// Amount that flows with these `rates` take of every resource, in 2^-20 of the unit of its capacity:
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
    /// fraction; the first of equals, `None` if it takes nothing. For display only: the solver
    /// charges the sum over flows (see the module's documentation), which is at least this.
    pub fn dominant_share(&self, tenant: TenantIndex, rates: &[Bandwidth]) -> Option<(usize, f64)> {
        let mut usage_of = vec![0.0; self.capacities.len()];
        for flow in self.flows_of(tenant) {
            for u in self.uses.of(flow.0 as usize) {
                usage_of[u.resource as usize] += rates[flow.0 as usize].get() as f64 * u.fraction;
            }
        }
        let used = usage_of.into_iter().enumerate().filter(|(_, fraction)| *fraction > 0.0);
        used.reduce(|best, other| if other.1 > best.1 { other } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Possible bottlenecks among the resources of each flow.
    fn possible_bottlenecks(capacities: &[u64], flows: &[&[(usize, u32)]]) -> Vec<Vec<u32>> {
        let mut builder = NetworkBuilder::new(capacities);
        let tenant = builder.tenant(Weight::ONE);
        for costs in flows {
            let costs: Vec<_> = costs.iter().map(|&(k, cost)| (k, Cost::from_raw(cost))).collect();
            builder.flow(tenant, &costs);
        }
        let network = builder.build().expect("valid");
        let resources = |flow: u32| {
            let position = network.position_of[flow as usize] as usize;
            network.bottleneck_uses.of(position).iter().map(|u| u.resource).collect()
        };
        (0..flows.len() as u32).map(resources).collect()
    }

    #[test]
    fn only_the_narrowest_nt_of_a_common_chain_is_a_bottleneck() {
        assert_eq!(
            possible_bottlenecks(&[9, 5, 7], &[&[(0, 1), (1, 1), (2, 1)][..]; 2]),
            [[1], [1]]
        );
        assert_eq!(
            possible_bottlenecks(&[5, 5], &[&[(0, 1), (1, 1)]]),
            [[0]],
            "the first of equals"
        );
        assert_eq!(
            possible_bottlenecks(&[10, 5], &[&[(0, 4), (1, 1)]]),
            [[0]],
            "by cost and capacity"
        );
    }

    #[test]
    fn a_resource_that_some_flows_skip_is_a_bottleneck_of_its_own() {
        // The second flow skips resource 1: resource 0 can be full without it.
        assert_eq!(
            possible_bottlenecks(&[9, 5], &[&[(0, 1), (1, 1)], &[(0, 1)]]),
            [vec![0, 1], vec![0]]
        );
        // The wide one is used by the first only, the narrow one by both.
        assert_eq!(possible_bottlenecks(&[5, 9], &[&[(0, 1), (1, 1)], &[(0, 1)]]), [[0], [0]]);
        // Equal for the first flow, but another uses one of them as well.
        assert_eq!(possible_bottlenecks(&[5, 5], &[&[(0, 1), (1, 1)], &[(1, 1)]]), [[1], [1]]);
    }

    #[test]
    fn a_resource_without_capacity_limits_only_its_users() {
        assert_eq!(
            possible_bottlenecks(&[5, 0], &[&[(0, 1), (1, 1)], &[(0, 1)]]),
            [vec![0, 1], vec![0]]
        );
        assert_eq!(possible_bottlenecks(&[0, 0], &[&[(0, 1), (1, 1)]]), [[0]]);
        assert_eq!(possible_bottlenecks(&[5, 0], &[&[(0, 1)]]), [[0]]);
    }

    #[test]
    fn costs_of_one_resource_add_up_and_zero_is_ignored() {
        let mut builder = NetworkBuilder::new(&[8, 8]);
        let tenant = builder.tenant(Weight::ONE);
        let cost = Cost::from_raw;
        builder.flow(tenant, &[(1, cost(3)), (0, cost(0)), (1, cost(u32::MAX)), (1, cost(1))]);
        let network = builder.build().expect("valid");
        let uses = network.uses.of(0);
        assert_eq!((uses.len(), uses[0].resource, uses[0].cost), (1, 1, u32::MAX));
    }
}
