//! Tiny cards, on which every set of loads can be tried: what is possible at all is admitted.
//!
//! With cuts allowed anywhere, a DAG has a place exactly when some choice of loads leaves every NT
//! with its bandwidth for every node that runs it: more is not needed, since each node can be a
//! part of its own, and less does not do. Whole chains are compared the same way.

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use snic_domain::{Bitstream, DagName, NtTypeId, RegionId, Slot, TenantId};
use snic_planner::RegionCondition;
use support::random::{RandomDag, TENANTS, dags, worlds};
use support::{World, name};

/// What a region could be: as it is, or loaded again.
fn options(world: &World, region: RegionId, tenant: &TenantId) -> Vec<Option<Bitstream>> {
    let mut options = vec![None];
    let usable = world.ledger.condition(region) == RegionCondition::Usable;
    if !usable || world.ledger.users(region).next().is_some() {
        return options;
    }
    let profile = world.ledger.profile().region(region).expect("a region of the card");
    for bitstream in world.catalogue.bitstreams() {
        let area = bitstream
            .nts
            .iter()
            .map(|id| world.catalogue.nt(id).expect("all are known").area.lut)
            .sum::<u32>();
        let fits = bitstream.is_loadable_by(tenant)
            && bitstream.card_model == world.ledger.profile().model
            && bitstream.region_kind == profile.kind
            && bitstream.size <= profile.bitstream_max
            && area <= profile.area.lut;
        if fits {
            options.push(Some(bitstream.clone()));
        }
    }
    options
}

/// What each slot of a region serves, in kbit/s, given what it is to be.
fn offers(
    world: &World,
    region: RegionId,
    tenant: &TenantId,
    load: &Option<Bitstream>,
) -> Vec<(NtTypeId, u64)> {
    match load {
        Some(bitstream) => bitstream
            .nts
            .iter()
            .map(|id| (id.clone(), world.catalogue.nt(id).expect("known").bandwidth_max.get()))
            .map(|(id, bps)| (id, bps / 1_000))
            .collect(),
        None => world
            .ledger
            .content(region)
            .filter(|bitstream| bitstream.is_shared_with(tenant))
            .filter(|_| world.ledger.condition(region) == RegionCondition::Usable)
            .map_or_else(Vec::new, |bitstream| {
                (0u8..)
                    .zip(&bitstream.nts)
                    .map(|(slot, id)| {
                        (id.clone(), world.ledger.residual(region, Slot(slot)).get() / 1_000)
                    })
                    .collect()
            }),
    }
}

/// Calls `visit` with the slots of all regions for every choice of loads, and how many those are.
fn for_each_choice(
    world: &World,
    tenant: &TenantId,
    mut visit: impl FnMut(&[Vec<(NtTypeId, u64)>], usize),
) {
    let regions: Vec<RegionId> = world.ledger.profile().regions().map(|(id, _)| id).collect();
    let options: Vec<_> = regions.iter().map(|r| options(world, *r, tenant)).collect();
    let mut choice = vec![0; regions.len()];
    loop {
        let slots: Vec<_> = regions
            .iter()
            .zip(&options)
            .zip(&choice)
            .map(|((region, options), i)| offers(world, *region, tenant, &options[*i]))
            .collect();
        visit(&slots, choice.iter().filter(|i| **i > 0).count());
        let Some(next) = (0..choice.len()).find(|i| choice[*i] + 1 < options[*i].len()) else {
            return;
        };
        choice[..next].fill(0);
        choice[next] += 1;
    }
}

/// The fewest loads with which every NT has the bandwidth of all nodes that run it.
fn loads_needed(world: &World, name: &DagName, dag: &RandomDag) -> Option<usize> {
    let mut demand: BTreeMap<NtTypeId, u64> = BTreeMap::new();
    for id in dag.nt_ids() {
        let known = world.catalogue.nt(&id).filter(|nt| nt.is_visible_to(&name.tenant));
        known?;
        *demand.entry(id).or_default() += dag.mbps * 1_000;
    }
    let bandwidth = dag.build().bandwidth();
    if bandwidth > world.ledger.ingress_residual() || bandwidth > world.ledger.egress_residual() {
        return None;
    }
    let mut fewest = None;
    for_each_choice(world, &name.tenant, |regions, loads| {
        let enough = demand.iter().all(|(id, kbps)| {
            let slots = regions.iter().flatten().filter(|(nt, _)| nt == id);
            slots.map(|(_, left)| left).sum::<u64>() >= *kbps
        });
        if enough && fewest.is_none_or(|n| loads < n) {
            fewest = Some(loads);
        }
    });
    fewest
}

/// The fewest loads with which a chain has its bandwidth without a cut; every NT once a region.
fn loads_needed_whole(world: &World, name: &DagName, dag: &RandomDag) -> Option<usize> {
    let chain = dag.nt_ids();
    let mut fewest = None;
    for_each_choice(world, &name.tenant, |regions, loads| {
        let through = |slots: &Vec<(NtTypeId, u64)>| {
            let places: Option<Vec<usize>> =
                chain.iter().map(|id| slots.iter().position(|(nt, _)| nt == id)).collect();
            places
                .filter(|places| places.windows(2).all(|w| w[0] < w[1]))
                .and_then(|places| places.iter().map(|slot| slots[*slot].1).min())
                .unwrap_or(0)
        };
        if regions.iter().map(through).sum::<u64>() >= dag.mbps * 1_000
            && fewest.is_none_or(|n| loads < n)
        {
            fewest = Some(loads);
        }
    });
    fewest
}

fn distinct<T: Ord>(items: &[T]) -> bool {
    items.iter().collect::<std::collections::BTreeSet<_>>().len() == items.len()
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(2000))]

    /// Online: DAGs come and stay, and each that could have a place gets one.
    #[test]
    fn whatever_has_a_place_is_admitted(
        mut world in worlds(), dags in prop::collection::vec((0usize..2, dags()), 1..6)
    ) {
        // Memory makes feasibility more than a sum for each NT; it has tests of its own.
        world.memory_mib = 1_024;
        let mut world = world.build();
        for (i, (tenant, random)) in dags.iter().enumerate() {
            let name = name(&format!("{}/d{i}", TENANTS[*tenant]));
            let possible = loads_needed(&world, &name, random);
            let plan = world.plan(&name, &random.build());
            prop_assert_eq!(plan.is_ok(), possible.is_some(), "{:?}: {:?}", random, plan);
            if let Ok(plan) = plan {
                prop_assert_eq!(Some(plan.loads.len()), possible, "no region too many");
                world.apply(&name, &plan);
            }
        }
    }

    /// A chain takes no region more than it needs, and is not cut where a whole one needs no more.
    #[test]
    fn a_chain_takes_the_fewest_regions_and_then_the_fewest_passes(
        mut world in worlds(), dags in prop::collection::vec((0usize..2, dags()), 1..5)
    ) {
        world.memory_mib = 1_024;
        for bitstream in &mut world.bitstreams {
            let mut seen = std::collections::BTreeSet::new();
            bitstream.nts.retain(|nt| seen.insert(*nt));
        }
        let mut world = world.build();
        for (i, (tenant, random)) in dags.iter().enumerate() {
            let name = name(&format!("{}/d{i}", TENANTS[*tenant]));
            let chain = RandomDag { edges: Vec::new(), ..random.clone() };
            let Ok(plan) = world.plan(&name, &chain.build()) else { continue };
            prop_assert_eq!(Some(plan.loads.len()), loads_needed(&world, &name, &chain));
            if distinct(&chain.nts) {
                let whole = loads_needed_whole(&world, &name, &chain);
                let no_more = whole.is_some_and(|loads| loads <= plan.loads.len());
                prop_assert_eq!(plan.mapping.stages.len() == 1, no_more, "{:?}", plan);
            }
            world.apply(&name, &plan);
        }
    }
}
