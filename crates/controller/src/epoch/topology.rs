//! From placements to what the engine computes with.

use std::collections::BTreeMap;

use snic_domain::limits::{CHAIN_SLOTS_MAX, PAGE_SIZE, REGIONS_MAX};
use snic_domain::{Bandwidth, CardId, CardProfile, DagName, NtTypeId, RegionId, Slot, TenantId};
use snic_fairness::Weight;
use snic_fairness::fluid::Cost;

use super::engine::{AREA_UNITS, Flow, SLOTS, TenantShape, Topology, area_per_bps};
use crate::card::CardMachine;
use crate::dags::{DagEntry, Dags};
use crate::records::Placement;
use crate::registry::Registry;

const INGRESS: usize = SLOTS;
const EGRESS: usize = SLOTS + 1;
const STORE: usize = SLOTS + 2;
const RESOURCES: usize = SLOTS + 3;

/// How long a packet is taken to stay in the packet store where its latency says nothing else, in
/// nanoseconds; costs there are in proportion to it.
const STORE_STAY_NANOS: u64 = 10_000;

/// The engine's resource of a slot.
const fn slot(region: RegionId, slot: Slot) -> usize {
    region.0 as usize * CHAIN_SLOTS_MAX + slot.0 as usize
}

/// What a resource is called.
pub(super) fn resource_name(resource: usize) -> String {
    match resource {
        INGRESS => "the ingress ports".to_owned(),
        EGRESS => "the egress ports".to_owned(),
        STORE => "the packet store".to_owned(),
        _ => {
            format!("slot {} of region {}", resource % CHAIN_SLOTS_MAX, resource / CHAIN_SLOTS_MAX)
        }
    }
}

/// What is on a card, with the names of tenants and DAGs in their order.
#[derive(Debug)]
pub(crate) struct Named {
    pub topology: Topology,
    pub tenants: Vec<TenantId>,
    pub dags: Vec<DagName>,
    /// By DAG: what one more instance adds.
    pub units: Vec<Bandwidth>,
}

/// What a topology is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnCard<'a> {
    pub id: &'a CardId,
    pub card: &'a CardMachine,
    pub registry: &'a Registry,
}

impl OnCard<'_> {
    /// What is, or is about to be, in the card's tables. Time O(DAGs × NTs).
    pub fn topology(&self, dags: &Dags) -> Named {
        let profile = self.card.profile();
        let mut named = Named {
            topology: Topology {
                capacities: self.capacities(),
                memory: profile.memory.get() / PAGE_SIZE.get(),
                ..Topology::default()
            },
            tenants: Vec::new(),
            dags: Vec::new(),
            units: Vec::new(),
        };
        // DAGs come by name, so the DAGs of a tenant follow each other.
        for entry in dags.iter() {
            let served = entry.targeted().filter(|placement| placement.mapping.card == *self.id);
            let Some(placement) = served else {
                continue; // It is not in the tables, or in another card's.
            };
            let name = entry.name();
            if named.tenants.last() != Some(&name.tenant) {
                named.tenants.push(name.tenant.clone());
                named.topology.tenants.push(self.tenant_shape(&name.tenant));
            }
            let tenant = u32::try_from(named.tenants.len() - 1).unwrap_or(u32::MAX);
            named.topology.flows.push(self.flow(entry, placement, tenant));
            named.dags.push(name.clone());
            named.units.push(self.unit(entry));
        }
        named
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
        }
        capacities[INGRESS] = self.card.profile().ingress.get();
        capacities[EGRESS] = self.card.profile().egress.get();
        capacities[STORE] = store_capacity(self.card.profile());
        capacities
    }

    fn flow(&self, entry: &DagEntry, placement: &Placement, tenant: u32) -> Flow {
        let mut costs: BTreeMap<usize, u32> = BTreeMap::new();
        for chain in placement.mapping.chains() {
            let all: u32 = chain.instances.iter().map(|i| i.bandwidth.kbps()).sum();
            for instance in &chain.instances {
                let part = Cost::from_ratio(instance.bandwidth.kbps(), all).raw();
                for number in &instance.slots {
                    let cost = costs.entry(slot(instance.region, *number)).or_default();
                    *cost = cost.saturating_add(part);
                }
            }
        }
        costs.insert(INGRESS, Cost::ONE.raw());
        costs.insert(EGRESS, Cost::ONE.raw());
        costs.insert(STORE, self.stay(placement).raw());
        Flow {
            tenant,
            admitted: entry.spec().bandwidth.min(placement.spec.bandwidth),
            uses: costs.into_iter().map(|(k, cost)| (k, Cost::from_raw(cost))).collect(),
            area_per_bps: self.area_per_bps(placement),
            memory: self.registry.memory_of(&placement.spec).get().div_ceil(PAGE_SIZE.get()),
        }
    }

    /// How long packets of a DAG stay in the packet store, beside [`STORE_STAY_NANOS`].
    fn stay(&self, placement: &Placement) -> Cost {
        let latency = self
            .card
            .latency(placement, self.registry.latency(placement))
            .duration(self.card.profile().clock_hz);
        let nanos = u32::try_from(latency.as_nanos()).unwrap_or(u32::MAX);
        Cost::from_ratio(nanos, STORE_STAY_NANOS as u32)
    }

    /// Of all regions together, what one bit per second takes: of each slot that it passes the part
    /// of the NT's bandwidth. What the NTs in use leave of their region counts as theirs, for nobody
    /// else has it.
    fn area_per_bps(&self, placement: &Placement) -> u64 {
        let regions = u64::try_from(self.card.profile().regions.len().max(1)).unwrap_or(u64::MAX);
        let mut sum = 0_u64;
        for chain in placement.mapping.chains() {
            let all: u64 = chain.instances.iter().map(|i| u64::from(i.bandwidth.kbps())).sum();
            for instance in &chain.instances {
                let content = self.card.ledger().content(instance.region);
                let content = content.expect("rows only lead to regions that hold a chain");
                let used = |at: u8| {
                    self.card.ledger().reserved(instance.region, Slot(at)) > Bandwidth::ZERO
                };
                let weight = |(at, nt)| if used(at) { self.weight_of(nt) } else { 0 };
                let weights: Vec<u64> = (0..).zip(&content.nts).map(weight).collect();
                let of_region = AREA_UNITS / regions;
                for slot in instance.slots.iter().map(|slot| slot.index()) {
                    let (Some(weight), Some(nt)) = (weights.get(slot), content.nts.get(slot))
                    else {
                        continue;
                    };
                    let part = of_region * weight / weights.iter().sum::<u64>().max(1);
                    let serves = self.registry.nt(nt).map_or(0, |nt| nt.bandwidth_max.get());
                    let each = area_per_bps(part, Bandwidth::from_bps(serves));
                    let scaled = u128::from(each) * u128::from(instance.bandwidth.kbps());
                    let scaled = scaled.div_ceil(u128::from(all.max(1)));
                    sum = sum.saturating_add(u64::try_from(scaled).unwrap_or(u64::MAX));
                }
            }
        }
        sum
    }

    /// How much area an NT takes beside the others of its region; at least something.
    fn weight_of(&self, nt: &NtTypeId) -> u64 {
        self.registry.nt(nt).map_or(1, |nt| u64::from(nt.area.lut) + 1)
    }

    /// What one more instance adds to a DAG: the least maximum of its NTs.
    fn unit(&self, entry: &DagEntry) -> Bandwidth {
        let nts = entry.spec().nodes.iter().filter_map(|node| self.registry.nt(&node.nt));
        nts.map(|nt| nt.bandwidth_max).min().unwrap_or_default()
    }
}

/// The rate at which the packet store is full if every packet stays [`STORE_STAY_NANOS`].
fn store_capacity(profile: &CardProfile) -> u64 {
    let bits = u128::from(profile.packet_store.get()) * 8 * 1_000_000_000;
    u64::try_from(bits / u128::from(STORE_STAY_NANOS)).unwrap_or(u64::MAX)
}
