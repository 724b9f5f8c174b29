//! Tiny cards, on which every set of loads can be tried.

use std::collections::BTreeMap;

use snic_domain::{Bitstream, ByteSize, DagName, NtTypeId, RegionId, Slot, TenantId};
use snic_planner::RegionCondition;

use super::World;
use super::random::RandomDag;
use super::validate::image_facts;

/// Possible contents of a region: as it is, or loaded again.
pub fn options(world: &World, region: RegionId, tenant: &TenantId) -> Vec<Option<Bitstream>> {
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
            && has_image(bitstream, region, profile.bitstream_max)
            && area <= profile.area.lut;
        if fits {
            options.push(Some(bitstream.clone()));
        }
    }
    options
}

/// Whether one of its images is for the region, and not too large for it.
fn has_image(bitstream: &Bitstream, region: RegionId, size_max: ByteSize) -> bool {
    let mut images = bitstream.images.iter();
    images.any(|image| {
        (image.regions.is_empty() || image.regions.contains(&region)) && image.size <= size_max
    })
}

/// Bandwidth that each slot of a region serves, in kbit/s, given its content.
pub fn offers(
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
            // These DAGs name nobody as trusted.
            .filter(|bitstream| {
                snic_oracles::trust::may_pass(tenant.as_str(), &[], image_facts(bitstream))
            })
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

/// Calls `visit` with the slots of all regions for every choice of loads, and which regions are loaded.
pub fn for_each_choice(
    world: &World,
    tenant: &TenantId,
    mut visit: impl FnMut(&[Vec<(NtTypeId, u64)>], &[bool]),
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
        let loaded: Vec<bool> = choice.iter().map(|i| *i > 0).collect();
        visit(&slots, &loaded);
        let Some(next) = (0..choice.len()).find(|i| choice[*i] + 1 < options[*i].len()) else {
            return;
        };
        choice[..next].fill(0);
        choice[next] += 1;
    }
}

/// The fewest loads with which every NT has the bandwidth of all nodes that run it.
pub fn loads_needed(world: &World, name: &DagName, dag: &RandomDag) -> Option<usize> {
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
    for_each_choice(world, &name.tenant, |regions, loaded| {
        let loads = loaded.iter().filter(|is| **is).count();
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
pub fn loads_needed_whole(world: &World, name: &DagName, dag: &RandomDag) -> Option<usize> {
    let chain = dag.nt_ids();
    let mut fewest = None;
    for_each_choice(world, &name.tenant, |regions, loaded| {
        let loads = loaded.iter().filter(|is| **is).count();
        let ids: Vec<&NtTypeId> = chain.iter().collect();
        let through = |slots: &Vec<(NtTypeId, u64)>| through(slots, &ids);
        if regions.iter().map(through).sum::<u64>() >= dag.mbps * 1_000
            && fewest.is_none_or(|n| loads < n)
        {
            fewest = Some(loads);
        }
    });
    fewest
}

/// The fewest parts of a chain of distinct NTs, each in the bitstreams once, for which some choice of loads has
/// the bandwidth, and the fewest loads with this many parts.
pub fn fewest_parts(world: &World, name: &DagName, dag: &RandomDag) -> Option<(usize, usize)> {
    let chain = dag.nt_ids();
    let cuts = 0..1u32 << (chain.len() - 1);
    let mut best = None;
    for_each_choice(world, &name.tenant, |regions, loaded| {
        let loads = loaded.iter().filter(|is| **is).count();
        for cut in cuts.clone() {
            let found = (cut.count_ones() as usize + 1, loads);
            if best.is_some_and(|best| best <= found) {
                continue;
            }
            let mut parts: Vec<Vec<&NtTypeId>> = vec![Vec::new()];
            for (at, id) in chain.iter().enumerate() {
                if at > 0 && cut >> (at - 1) & 1 == 1 {
                    parts.push(Vec::new());
                }
                parts.last_mut().expect("there is a first").push(id);
            }
            let carries = |part: &Vec<&NtTypeId>| {
                let through = |slots: &Vec<(NtTypeId, u64)>| through(slots, part);
                regions.iter().map(through).sum::<u64>() >= dag.mbps * 1_000
            };
            if parts.iter().all(carries) {
                best = Some(found);
            }
        }
    });
    best
}

/// Bandwidth of a sequence of distinct NTs that the slots of a region carry, in kbit/s.
pub fn through(slots: &[(NtTypeId, u64)], chain: &[&NtTypeId]) -> u64 {
    let place = |id: &&NtTypeId| slots.iter().position(|(nt, _)| nt == *id);
    let places: Option<Vec<usize>> = chain.iter().map(place).collect();
    places
        .filter(|places| places.windows(2).all(|w| w[0] < w[1]))
        .and_then(|places| places.iter().map(|slot| slots[*slot].1).min())
        .unwrap_or(0)
}
