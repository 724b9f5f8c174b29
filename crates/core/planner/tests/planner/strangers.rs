//! Uploads of a tenant are its own affair: they neither change the plans of others nor make them dearer.

use crate::support::{World, bitstream, bitstream_id, chain, gbps, graph, lut, name, profile};
use snic_domain::{Bitstream, ByteSize, Dag, Digest, Infeasible, RegionId, RegionImage};
use snic_planner::{
    Effort, Ledger, Objective, Plan, PlanBatch, PlanRequest, plan_batch, plan_within,
};

const REGIONS: u8 = 16;
const IMAGE_SETS: u64 = 10_000;

/// Regions of two sizes, the provider's bitstreams, of which one has images for half of the regions, and one of `t0`.
fn world() -> World {
    let streams = [("ab", "a b"), ("bc", "b c"), ("c", "c"), ("d", "d"), ("t0.own", "d a")];
    let mut world = World::with(REGIONS.into(), "a b c d", &streams);
    let mut card = profile(REGIONS.into());
    for region in card.regions.iter_mut().step_by(3) {
        region.area = lut(250);
    }
    world.ledger = Ledger::new(world.ledger.card().clone(), card);
    world.bitstream("c", |c| c.images = image(0, 0x00ff).into());
    world.load(0, "c");
    world.load(1, "ab");
    world
}

fn image(number: u64, regions: u64) -> RegionImage {
    let regions = (0..REGIONS).filter(|region| regions >> region & 1 == 1).map(RegionId);
    RegionImage {
        digest: Digest::of(&number.to_le_bytes()),
        size: ByteSize::from_mib(1),
        regions: regions.collect(),
        signature: None,
    }
}

/// Bitstreams of an owner, each of the same NTs and with images for a set of regions of its own.
fn of_many_image_sets(owner: &str) -> impl Iterator<Item = Bitstream> {
    (0..IMAGE_SETS).map(move |number| Bitstream {
        // Each set is another one, and none is of all regions.
        images: image(number, (number + 1) * 0x9e37 % 0xffff).into(),
        shareable: true,
        ..bitstream(&format!("{owner}.x{number}"), "a b c d")
    })
}

/// A whole chain, one that is cut, one that needs several regions, a fork, and one that has no place.
fn dags() -> Vec<Dag> {
    let fork = graph(&["a", "b", "c", "d"], &[(0, 1), (0, 2), (1, 3), (2, 3)], gbps(7));
    let chains = [("b c", 1), ("a b c d", 3), ("d a c", 25), ("d c b a", 35), ("c d", 900)];
    chains.into_iter().map(|(nts, gbit)| chain(nts, gbps(gbit))).chain([fork]).collect()
}

type PlanAndLooks = (Result<Plan, Infeasible>, u32);

/// Plans of `t0` with the looks that each took, and all of them as a batch.
fn plans(world: &World) -> (Vec<PlanAndLooks>, PlanBatch) {
    let names: Vec<_> = (0..dags().len()).map(|at| name(&format!("t0/d{at}"))).collect();
    let dags = dags();
    let requests: Vec<PlanRequest<'_>> = names
        .iter()
        .zip(&dags)
        .map(|(name, dag)| PlanRequest { name, dag, previous: None })
        .collect();
    let one_by_one = requests.iter().map(|request| {
        let effort = Effort::new();
        let plan = plan_within(&world.ledger, &world.catalogue, request, &effort);
        (plan, effort.spent())
    });
    (one_by_one.collect(), plan_batch(&world.ledger, &world.catalogue, &requests))
}

#[test]
fn image_sets_of_a_stranger_change_neither_plans_nor_their_cost() {
    for objective in [Objective::Regions, Objective::Passes] {
        let mut world = world();
        world.ledger.set_objective(objective);
        let before = plans(&world);
        assert!(before.0.iter().filter(|(plan, _)| plan.is_ok()).count() >= 4, "{:?}", before.0);
        let mut beside = world.clone();
        for stream in of_many_image_sets("t9") {
            beside.catalogue.insert_bitstream(stream);
        }
        assert_eq!(plans(&beside), before, "{objective:?}");
        // Once they are gone, the catalogue is what it was: nothing of them is kept.
        for number in 0..IMAGE_SETS {
            beside.catalogue.remove_bitstream(&bitstream_id(&format!("t9.x{number}")));
        }
        assert_eq!(plans(&beside), before, "{objective:?}");
        // The tenant's own sets count, or this would show nothing.
        let mut own = world.clone();
        for stream in of_many_image_sets("t0").take(100) {
            own.catalogue.insert_bitstream(stream);
        }
        let dearer = |(own, before): (&(_, u32), &(_, u32))| own.1 > before.1;
        let (own, before) = (plans(&own).0, before.0);
        assert!(own.iter().zip(&before).any(dearer), "{objective:?}");
    }
}
