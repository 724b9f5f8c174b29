//! Every number of a refusal and of an explanation, counted again by trying every choice on tiny cards.

use crate::support;
use crate::support::brute::{for_each_choice, loads_needed, options, through};
use crate::support::random::{RandomDag, RandomWorld, dags, worlds};
use crate::support::{World, chain, gbps, name, profile, why};
use proptest::prelude::*;
use snic_domain::{CardId, DagName, EmbeddingKind, NtTypeId, RegionId, Resource};
use snic_planner::{Ledger, Objective};

/// `required` and `available` regions of a refusal.
fn regions_short(world: &World, nts: &str, n: u64) -> Option<(u64, u64)> {
    let refusal = world.plan(&name("t0/d"), &chain(nts, gbps(n))).err()?;
    let short = refusal.shortages.iter().find(|s| s.resource == Resource::Regions);
    let short = short.unwrap_or_else(|| panic!("no regions in {refusal:?}"));
    assert!(!short.detail.contains("a lower bound"), "{short}");
    Some((short.required, short.available))
}

#[test]
fn as_many_regions_are_needed_as_are_missing() {
    let world = World::with(16, "a b c", &[("ab", "a b"), ("c", "c")]);
    for (n, short) in [(160, None), (161, Some((17, 16))), (240, Some((24, 16)))] {
        assert_eq!(regions_short(&world, "a b", n), short, "{n} Gbit/s");
    }
    assert_eq!(regions_short(&world, "a b", 720), Some((72, 16)));
    // Each NT fits by itself, but not both.
    assert_eq!(regions_short(&world, "a b c", 80), None);
    assert_eq!(regions_short(&world, "a b c", 120), Some((24, 16)));
    assert_eq!(regions_short(&world, "a c", 3_990), Some((798, 16)));
}

#[test]
fn no_region_helps_where_no_bitstream_fits_one() {
    let mut world = World::with(2, "a", &[("a", "a")]);
    let mut small = profile(2);
    small.regions.iter_mut().for_each(|region| region.area = support::lut(99));
    world.ledger = Ledger::new(CardId::new("card-0").expect("a test id"), small);
    let refusal = world.plan(&name("t0/d"), &chain("a", gbps(1))).expect_err("it takes 100 LUT");
    let short: Vec<_> = refusal.shortages.iter().map(|s| s.resource).collect();
    assert_eq!(short, [Resource::Bitstreams, Resource::NtBandwidth]);
    assert!(refusal.shortages[0].detail.contains("fits a region"), "{refusal:?}");
}

/// Regions that can be loaded with something that a DAG uses.
fn loadable(world: &World, name: &DagName, dag: &RandomDag) -> u64 {
    let nts = dag.nt_ids();
    let helps = |region: &RegionId| {
        options(world, *region, &name.tenant)
            .iter()
            .flatten()
            .any(|bitstream| bitstream.nts.iter().any(|nt| nts.contains(nt)))
    };
    let regions = world.ledger.profile().regions().map(|(id, _)| id);
    regions.filter(helps).count() as u64
}

/// The same world with `more` empty regions like the first.
fn with_more(world: &RandomWorld, more: usize) -> World {
    let mut wider = world.clone();
    wider.loaded.truncate(wider.regions.len());
    wider.regions.extend(vec![world.regions[0]; more]);
    wider.build()
}

/// The least cost of loading a whole chain into free regions, or in place of victims; else the most that it
/// carries in kbit/s.
fn loads_of_kind(
    world: &World,
    name: &DagName,
    chain: &[NtTypeId],
    (kbps, victims): (u64, bool),
) -> Result<u32, u64> {
    let ids: Vec<&NtTypeId> = chain.iter().collect();
    let regions: Vec<RegionId> = world.ledger.profile().regions().map(|(id, _)| id).collect();
    let (mut fewest, mut most) = (None, 0);
    for_each_choice(world, &name.tenant, |slots, loaded| {
        let of_kind = |(at, id): (usize, &RegionId)| {
            !loaded[at] || world.ledger.content(*id).is_some() == victims
        };
        let helps = |at: usize| !loaded[at] || through(&slots[at], &ids) > 0;
        if !regions.iter().enumerate().all(of_kind) || !(0..slots.len()).all(helps) {
            return;
        }
        let loads = loaded.iter().filter(|is| **is).count() as u32;
        let carried = slots.iter().map(|slots| through(slots, &ids)).sum::<u64>();
        most = most.max(carried);
        if carried >= kbps && loads > 0 {
            fewest = Some(fewest.map_or(loads, |n: u32| n.min(loads)));
        }
    });
    fewest.ok_or(most)
}

fn distinct<T: Ord>(items: &[T]) -> bool {
    items.iter().collect::<std::collections::BTreeSet<_>>().len() == items.len()
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(1000))]

    /// With this many more regions a refused DAG has a place, and with one less it has none.
    #[test]
    fn the_missing_regions_are_the_fewest(mut random in worlds(), dag in dags(), mbps in 1u64..40_000) {
        random.memory_mib = 1_024;
        random.ingress_gbps = 1_000;
        random.regions.truncate(3);
        let first = random.regions[0];
        random.regions.iter_mut().for_each(|region| *region = first);
        // More regions do not help an image that was built for one of them.
        random.bitstreams.iter_mut().for_each(|bitstream| bitstream.images.clear());
        let (world, name) = (random.build(), name("t0/d"));
        let dag = RandomDag { mbps, ..dag };
        let Err(refusal) = world.plan(&name, &dag.build()) else { return Ok(()) };
        let Some(short) = refusal.shortages.iter().find(|s| s.resource == Resource::Regions) else {
            let why = &refusal.shortages[0];
            prop_assert_eq!(why.resource, Resource::Bitstreams, "{}", why);
            return Ok(());
        };
        prop_assert_eq!(short.available, loadable(&world, &name, &dag));
        let is_exact = !short.detail.contains("a lower bound");
        let more = (short.required - short.available) as usize;
        prop_assert!(is_exact || more > 3, "{short}");
        if random.regions.len() + more <= 6 {
            prop_assert_eq!(loads_needed(&with_more(&random, more - 1), &name, &dag), None);
            let enough = loads_needed(&with_more(&random, more), &name, &dag);
            prop_assert!(enough.is_some() || !is_exact);
        }
    }

    /// Lacks and costs of the other kinds of embedding of a chain.
    #[test]
    fn an_explanation_has_true_numbers(
        mut random in worlds(), dags in prop::collection::vec(dags(), 1..5), order in 0usize..3
    ) {
        random.memory_mib = 1_024;
        for bitstream in &mut random.bitstreams {
            let mut seen = std::collections::BTreeSet::new();
            bitstream.nts.retain(|nt| seen.insert(*nt));
        }
        let mut world = random.build();
        let orders = [Objective::Regions, Objective::Passes, Objective::Balanced];
        world.ledger.set_objective(orders[order]);
        for (i, dag) in dags.iter().enumerate() {
            let name = name(&format!("t0/d{i}"));
            let chain = RandomDag { edges: Vec::new(), ..dag.clone() };
            let Ok(plan) = world.plan(&name, &chain.build()) else { continue };
            let nts = chain.nt_ids();
            let ids: Vec<&NtTypeId> = nts.iter().collect();
            let rejected = &plan.explanation.chains[0].rejected;
            prop_assert!(rejected.len() == 3 || !distinct(&chain.nts), "{rejected:?}");
            for rejection in rejected.iter().filter(|_| distinct(&chain.nts)) {
                let (kbps, why) = (chain.mbps * 1_000, why(rejection));
                let told = match (rejection.kind, why) {
                    (EmbeddingKind::Split, Ok(short)) => {
                        prop_assert_eq!((nts.len(), short), (1, (Resource::Passes, 2, 1)));
                        continue;
                    }
                    (EmbeddingKind::Split, Err([.., passes])) => {
                        prop_assert_eq!((passes, plan.mapping.stages.len()), (2, 1));
                        continue;
                    }
                    (EmbeddingKind::Shared, told) => {
                        let mut carried = 0;
                        for_each_choice(&world, &name.tenant, |slots, loaded| {
                            if loaded.iter().all(|is| !is) {
                                carried = slots.iter().map(|s| through(s, &ids)).sum::<u64>();
                            }
                        });
                        prop_assert!(carried < kbps, "{told:?}");
                        if let Ok((Resource::NtBandwidth, needed, left)) = told {
                            prop_assert_eq!((needed, left), (kbps * 1_000, carried * 1_000));
                        } else {
                            prop_assert_eq!((told, carried), (Ok((Resource::Bitstreams, 1, 0)), 0));
                        }
                        continue;
                    }
                    (_, told) => told,
                };
                let victims = rejection.kind == EmbeddingKind::VictimRegion;
                let counted = loads_of_kind(&world, &name, &nts, (kbps, victims));
                match told {
                    Err([regions, replaced, passes]) => {
                        prop_assert_eq!(Ok(regions), counted, "{}", rejection.kind as u8);
                        let replaces = if victims { regions } else { 0 };
                        prop_assert_eq!((replaced, passes), (replaces, 1));
                    }
                    Ok((Resource::NtBandwidth, needed, left)) => {
                        prop_assert_eq!(needed, kbps * 1_000);
                        prop_assert_eq!(Err(left / 1_000), counted);
                    }
                    Ok(short) => {
                        prop_assert!(counted.is_err(), "{short:?}, but {counted:?}");
                        let none = [Resource::Regions, Resource::Bitstreams];
                        prop_assert!(none.contains(&short.0) && (short.1, short.2) == (1, 0));
                    }
                }
            }
            world.apply(&name, &plan);
        }
    }
}
