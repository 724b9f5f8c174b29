//! From placements to the engine's topology.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use snic_domain::limits::{CHAIN_SLOTS_MAX, PAGE_SIZE, REGIONS_MAX};
use snic_domain::{Bandwidth, CardProfile, NtTypeId, RegionId, Slot, TenantId};
use snic_fairness::Weight;
use snic_fairness::fluid::Cost;
use snic_planner::BitCost;

use super::area::{self, AreaUse, HeldArea, UsedSlots};
use super::flows::{DagFlow, OF_REGIONS, TenantShape, Topology};
use super::on_card::OnCard;
use super::renewal::{
    CommonBasis, FlowBasis, FlowNames, FormerTopology, NamedFlow, NamedTopology, Served,
};
use crate::state::dags::{DagEntry, Dags};
use crate::store::records::Placement;

/// The first of the ports of regions.
const PORTS: usize = REGIONS_MAX * CHAIN_SLOTS_MAX;
const INGRESS: usize = OF_REGIONS;
const EGRESS: usize = OF_REGIONS + 1;
const STORE: usize = OF_REGIONS + 2;
const RESOURCES: usize = OF_REGIONS + 3;

/// Stay of a packet in the packet store where its latency says nothing else, in
/// nanoseconds; costs there are in proportion to it.
const STORE_STAY_NANOS: u64 = 10_000;

/// The engine's resource of a slot.
const fn slot(region: RegionId, slot: Slot) -> usize {
    region.0 as usize * CHAIN_SLOTS_MAX + slot.0 as usize
}

/// The engine's resource of a region's port.
const fn port(region: RegionId) -> usize {
    PORTS + region.0 as usize
}

/// A resource that packets of a card share in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CardResource(pub(super) usize);

impl CardResource {
    /// The ingress port.
    pub const INGRESS: Self = Self(INGRESS);
    /// Where packets are while they are on the card.
    pub const PACKET_STORE: Self = Self(STORE);

    /// An NT slot.
    pub const fn of_slot(region: RegionId, number: Slot) -> Self {
        Self(slot(region, number))
    }

    /// The port of a region.
    #[cfg(test)]
    pub(crate) const fn of_port(region: RegionId) -> Self {
        Self(port(region))
    }

    /// The region that has it; `None` for what the whole card has.
    pub const fn region(self) -> Option<RegionId> {
        match self.0 {
            slot @ 0..PORTS => Some(RegionId((slot / CHAIN_SLOTS_MAX) as u8)),
            port @ PORTS..OF_REGIONS => Some(RegionId((port - PORTS) as u8)),
            _ => None,
        }
    }

    /// Its slot, if it is one.
    pub const fn slot(self) -> Option<Slot> {
        if self.is_nt_slot() { Some(Slot((self.0 % CHAIN_SLOTS_MAX) as u8)) } else { None }
    }

    /// Whether it is an NT slot.
    pub const fn is_nt_slot(self) -> bool {
        self.0 < PORTS
    }
}

impl fmt::Display for CardResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            INGRESS => f.write_str("the ingress ports"),
            EGRESS => f.write_str("the egress ports"),
            STORE => f.write_str("the packet store"),
            port @ PORTS.. => write!(f, "the port of region {}", port - PORTS),
            slot => {
                write!(f, "slot {} of region {}", slot % CHAIN_SLOTS_MAX, slot / CHAIN_SLOTS_MAX)
            }
        }
    }
}

impl OnCard<'_> {
    /// Topology of what is, or is about to be, in the card's tables. Of the one that an engine has, which is given with
    /// its number, it takes over what is as before. Time O(DAGs), and O(NTs) for those that have changed.
    pub fn topology(&self, dags: &Dags, former: Option<(NamedTopology, u64)>) -> NamedTopology {
        let common = self.common();
        let former = former.and_then(|(named, engine)| FormerTopology::new(named, engine, &common));
        let has_former = former.is_some();
        let named = self.renewed(dags, common.clone(), former);
        debug_assert!(
            !has_former || named == self.renewed(dags, common, None),
            "what is taken over is what would be made"
        );
        named
    }

    fn common(&self) -> CommonBasis {
        let content = |region| self.card.ledger().content(region).map(|content| content.id.clone());
        CommonBasis {
            catalogue: self.registry.catalogue().changes(),
            contents: self.card.region_ids().map(content).collect(),
        }
    }

    fn renewed(
        &self,
        dags: &Dags,
        common: CommonBasis,
        mut former: Option<FormerTopology>,
    ) -> NamedTopology {
        let profile = self.card.profile();
        let kept = former.as_mut().and_then(FormerTopology::capacities);
        let (capacities, groups) = kept.unwrap_or_else(|| (self.capacities(), self.groups()));
        let mut named = NamedTopology {
            topology: Topology {
                capacities,
                groups,
                memory: profile.memory.get() / PAGE_SIZE.get(),
                ..Topology::default()
            },
            names: FlowNames { common, ..FlowNames::default() },
        };
        // What is not in the tables does not count.
        let all = dags.numbered_on_card(self.id).filter_map(|(number, entry)| {
            Some(Served { number, entry, placement: entry.targeted()? })
        });
        let all: Vec<Served<'_>> = all.collect();
        let mut held = HeldArea::default();
        // DAGs come by name, so the DAGs of a tenant follow each other.
        for of_tenant in all.chunk_by(|a, b| a.entry.name().tenant == b.entry.name().tenant) {
            self.add_tenant(&mut named, former.as_mut(), of_tenant, &mut held);
        }
        named.topology.area = held.available(profile);
        named
    }

    fn add_tenant(
        &self,
        named: &mut NamedTopology,
        mut former: Option<&mut FormerTopology>,
        dags: &[Served<'_>],
        held: &mut HeldArea,
    ) {
        let Some(first) = dags.first() else { return };
        let id = &first.entry.name().tenant;
        let tenant = u32::try_from(named.names.tenants.len()).unwrap_or(u32::MAX);
        let found: Vec<Option<usize>> =
            dags.iter().map(|of| former.as_ref().and_then(|former| former.find(*of))).collect();
        let mut used = UsedSlots::default();
        for (of, found) in dags.iter().zip(&found) {
            match found.zip(former.as_ref()).and_then(|(at, former)| former.basis(at)) {
                Some(basis) => used.add(&basis.slots),
                None => used.add(&area::slots(of.placement)),
            }
        }
        let differing = former.as_ref().map_or(0, |former| former.differing(id, &used));
        let mut counted = BTreeSet::new();
        for (of, found) in dags.iter().zip(found) {
            let kept = found.zip(former.as_mut()).and_then(|(at, of)| of.take(at, differing));
            let mut flow = kept.unwrap_or_else(|| self.named_flow(*of, &used));
            held.add(&flow.basis.held);
            // DAGs of a tenant share the pages of an NT: the first one by name counts them.
            let pages = flow.basis.pages.iter();
            let new = pages.filter(|(nt, _)| counted.insert(nt.clone()));
            (flow.flow.tenant, flow.flow.memory) = (tenant, new.map(|(_, pages)| pages).sum());
            named.push(flow);
        }
        named.names.tenants.push(id.clone());
        named.names.used.push(used);
        named.topology.tenants.push(self.tenant_shape(id));
    }

    fn named_flow(&self, of: Served<'_>, used: &UsedSlots) -> NamedFlow {
        let Served { number, entry, placement } = of;
        let area_uses = self.area_uses(placement, used);
        let basis = FlowBasis {
            uid: entry.uid(),
            changes: entry.changes(),
            serial: placement.serial,
            slots: area::slots(placement),
            held: area::held(&area_uses),
            pages: self.pages(placement),
        };
        let flow = self.flow(entry, placement, &area_uses);
        let (name, unit) = (entry.name().clone(), self.unit(entry));
        NamedFlow { name, number, flow, unit, area_uses, basis }
    }

    fn tenant_shape(&self, id: &TenantId) -> TenantShape {
        let tenant = self.registry.tenant(id).map(|record| &record.tenant);
        TenantShape {
            weight: tenant.and_then(|t| Weight::new(t.weight).ok()).unwrap_or_default(),
            memory_max: tenant.map(|t| t.quota.memory_max.get() / PAGE_SIZE.get()),
        }
    }

    fn capacities(&self) -> Vec<u64> {
        let mut capacities = vec![0; RESOURCES];
        for region in self.card.region_ids().take(REGIONS_MAX) {
            let nts = self.card.ledger().content(region).map_or(&[][..], |content| &content.nts);
            for (number, nt) in (0..).map(Slot).zip(nts).take(CHAIN_SLOTS_MAX) {
                let serves = self.registry.nt(nt).map_or(0, |nt| nt.bandwidth_max.get());
                capacities[slot(region, number)] = serves;
            }
            capacities[port(region)] = BitCost::port_capacity(self.card.profile());
        }
        capacities[INGRESS] = self.card.profile().ingress.get();
        capacities[EGRESS] = self.card.profile().egress.get();
        capacities[STORE] = store_capacity(self.card.profile());
        capacities
    }

    /// Resources whose shares are those of all together: the instances of each NT, and the ports of regions.
    fn groups(&self) -> Vec<u32> {
        let mut groups: Vec<u32> = (0..RESOURCES as u32).collect();
        groups[PORTS..OF_REGIONS].fill(PORTS as u32);
        let mut first: BTreeMap<&NtTypeId, u32> = BTreeMap::new();
        for region in self.card.region_ids().take(REGIONS_MAX) {
            let nts = self.card.ledger().content(region).map_or(&[][..], |content| &content.nts);
            for (number, nt) in (0..).map(Slot).zip(nts).take(CHAIN_SLOTS_MAX) {
                let own = slot(region, number);
                groups[own] = *first.entry(nt).or_insert(own as u32);
            }
        }
        groups
    }

    fn flow(&self, entry: &DagEntry, placement: &Placement, area_uses: &[AreaUse]) -> DagFlow {
        let mut costs: BTreeMap<usize, u32> = BTreeMap::new();
        let bit = BitCost::of(self.card.profile(), &placement.spec, self.registry.catalogue());
        for chain in placement.mapping.chains() {
            let all: u32 = chain.instances.iter().map(|i| i.bandwidth.kbps()).sum();
            for instance in &chain.instances {
                let part = Cost::from_ratio(instance.bandwidth.kbps(), all).raw();
                for number in &instance.slots {
                    let cost = costs.entry(slot(instance.region, *number)).or_default();
                    *cost = cost.saturating_add(part);
                }
                let pass = (u64::from(part) * u64::from(bit.port)).div_ceil(Cost::ONE.raw().into());
                let cost = costs.entry(port(instance.region)).or_default();
                *cost = cost.saturating_add(u32::try_from(pass).unwrap_or(u32::MAX));
            }
        }
        costs.insert(INGRESS, bit.ingress);
        costs.insert(EGRESS, bit.egress);
        costs.insert(STORE, self.stay(placement).raw());
        DagFlow {
            tenant: 0, // Both are set with the other DAGs of its tenant.
            memory: 0,
            admitted: entry.spec().bandwidth.min(placement.spec.bandwidth),
            uses: costs
                .into_iter()
                .filter(|(_, cost)| *cost > 0)
                .map(|(k, cost)| (k, Cost::from_raw(cost)))
                .collect(),
            area_per_bps: area::per_bps(area_uses),
        }
    }

    /// Pages of the NTs of a placement that need some.
    fn pages(&self, placement: &Placement) -> Vec<(NtTypeId, u64)> {
        let all = self.registry.pages_of(&placement.spec).into_iter();
        let pages = all.map(|(nt, memory)| (nt, memory.get() / PAGE_SIZE.get()));
        pages.filter(|(_, pages)| *pages > 0).collect()
    }

    /// Stay of a DAG's packets in the packet store, beside [`STORE_STAY_NANOS`].
    fn stay(&self, placement: &Placement) -> Cost {
        let latency = self
            .card
            .latency(&placement.mapping, self.registry.latency(&placement.spec, &placement.mapping))
            .duration(self.card.profile().clock_hz);
        let nanos = u32::try_from(latency.as_nanos()).unwrap_or(u32::MAX);
        Cost::from_ratio(nanos, STORE_STAY_NANOS as u32)
    }

    /// Bandwidth of one more instance of a DAG: the least maximum of its NTs, or what a region's port passes of it.
    fn unit(&self, entry: &DagEntry) -> Bandwidth {
        let nts = entry.spec().nodes.iter().filter_map(|node| self.registry.nt(&node.nt));
        let sizes = &entry.spec().packet_sizes;
        let least = nts.map(|nt| nt.bandwidth_of(sizes)).min().unwrap_or_default();
        let profile = self.card.profile();
        let bit = BitCost::of(profile, entry.spec(), self.registry.catalogue());
        let passes = u128::from(BitCost::port_capacity(profile)) * u128::from(Cost::ONE.raw());
        let passes = passes.checked_div(bit.port.into()).and_then(|bps| u64::try_from(bps).ok());
        least.min(Bandwidth::from_bps(passes.unwrap_or(u64::MAX)))
    }
}

/// The rate at which the packet store is full if every packet stays [`STORE_STAY_NANOS`].
fn store_capacity(profile: &CardProfile) -> u64 {
    let bits = u128::from(profile.packet_store.get()) * 8 * 1_000_000_000;
    u64::try_from(bits / u128::from(STORE_STAY_NANOS)).unwrap_or(u64::MAX)
}
