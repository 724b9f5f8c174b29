//! Look-ups of the scheduler: one for each branch of each stage that a packet passes, of all DAGs of a card together.

use std::num::NonZeroU32;

use crate::support::{World, bitstream, chain, gbps, graph_with, name, profile};
use snic_domain::{CardProfile, Dag, DagSpec, FormPreference, PacketSizes, RegionPass, Resource};

/// Regions with `c b a`: a DAG in another order passes the scheduler three times.
fn world(regions: usize, lookups: u32) -> World {
    let card = CardProfile {
        region_pass: Some(RegionPass::SUPERNIC),
        scheduler_lookups_per_cycle: NonZeroU32::new(lookups),
        ..profile(regions)
    };
    let mut world = World::new(card);
    for id in ["a", "b", "c"] {
        world.nt(id, |nt| nt.bandwidth_max = gbps(100));
    }
    world.catalogue.insert_bitstream(bitstream("cba", "c b a"));
    (0..3).for_each(|region| world.load(region, "cba"));
    world
}

fn small(dag: &Dag) -> Dag {
    let packet_sizes = PacketSizes::only(64);
    Dag::new(DagSpec { packet_sizes, ..dag.spec().clone() }).expect("as before")
}

/// Two DAGs of 14 Gbit/s of 64 bytes, 27.34 million packets a second in three passes.
fn with_two(mut world: World) -> World {
    for dag in ["t0/a", "t0/b"] {
        let plan = world.plan(&name(dag), &small(&chain("a b c", gbps(14)))).expect("it fits");
        assert_eq!((plan.mapping.stages.len(), plan.reservation.lookups()), (3, 82_031_250));
        world.apply(&name(dag), &plan);
    }
    world.ledger.check().expect("a ledger that adds up");
    world
}

#[test]
fn further_passes_take_look_ups_until_there_are_none() {
    let third = small(&chain("a b c", gbps(14)));
    let world_of_two = with_two(world(3, 1));
    let refused = world_of_two.plan(&name("t1/c"), &third).expect_err("246 of 240 million");
    let short = &refused.shortages[0];
    assert_eq!(short.resource, Resource::SchedulerLookups, "{refused}");
    assert_eq!((short.required, short.available), (82_031_250, 240_000_000 - 2 * 82_031_250));
    assert!(short.detail.contains("packets of sizes 64 take one for each branch of each pass"));
    let one_pass = small(&chain("c b a", gbps(14)));
    assert!(world_of_two.plan(&name("t1/c"), &one_pass).is_ok(), "a third of them");
    for lookups in [0, 2] {
        let plan = with_two(world(3, lookups)).plan(&name("t1/c"), &third);
        assert!(plan.is_ok(), "{lookups} a cycle");
    }
}

#[test]
fn where_look_ups_are_short_a_region_is_loaded_that_saves_passes() {
    let mut world = with_two(world(4, 1));
    world.catalogue.insert_bitstream(bitstream("abc", "a b c"));
    let third = small(&chain("a b c", gbps(14)));
    let plan = world.plan(&name("t1/c"), &third).expect("in one pass");
    assert_eq!((plan.loads.len(), plan.mapping.stages.len()), (1, 1));
    assert_eq!(plan.reservation.lookups(), 27_343_750);
    world.apply(&name("t1/c"), &plan);
    let left = world.ledger.headroom(&name("t1/c"));
    let lookups = left.iter().find(|left| left.resource == Resource::SchedulerLookups);
    let lookups = lookups.expect("it takes some");
    assert_eq!(lookups.available, 240_000_000 - 2 * 82_031_250 - 27_343_750);
}

/// A fork of two branches behind a node: three look-ups side by side, or fewer one after the other.
#[test]
fn each_branch_of_a_stage_is_looked_up() {
    let lookups = |form| {
        let fork = graph_with(&["a", "b", "c"], &[(0, 1), (0, 2)], gbps(1), form);
        let mut world = world(3, 1);
        world.catalogue.insert_bitstream(bitstream("abc", "a b c"));
        world
            .ledger
            .set_content(
                snic_domain::RegionId(0),
                world.catalogue.bitstream(&crate::support::bitstream_id("abc")).cloned().as_ref(),
                &world.catalogue,
            )
            .expect("nobody is there");
        let plan = world.plan(&name("t0/a"), &small(&fork)).expect("it fits");
        plan.reservation.lookups()
    };
    assert_eq!(lookups(FormPreference::Sequential), 1_953_125);
    assert_eq!(lookups(FormPreference::Parallel), 3 * 1_953_125);
}

/// A card that did not say it before: what was promised stays, and nothing is added where it is more.
#[test]
fn a_limit_that_comes_later_takes_nothing_away() {
    let mut world = with_two(world(3, 0));
    let third = small(&chain("a b c", gbps(14)));
    let plan = world.plan(&name("t1/c"), &third).expect("no limit");
    world.apply(&name("t1/c"), &plan);
    let one = NonZeroU32::new(1);
    let card = CardProfile { scheduler_lookups_per_cycle: one, ..world.ledger.profile().clone() };
    let changes = world.ledger.changes();
    world.ledger.set_limits(&card);
    assert!(world.ledger.changes() > changes, "plans may be others now");
    world.ledger.check().expect("what is over was promised before");
    let small_one = small(&chain("c b a", gbps(1)));
    let refused = world.plan(&name("t1/d"), &small_one).expect_err("246 of 240 million are taken");
    assert_eq!(refused.shortages[0].resource, Resource::SchedulerLookups, "{refused}");
    assert!(world.plan(&name("t1/c"), &third).is_ok(), "it keeps what it has");
    world.ledger.release(&name("t1/c"));
    assert!(world.plan(&name("t1/d"), &small_one).is_ok(), "there is room again");
    world.ledger.set_limits(&card);
    world.ledger.check().expect("a ledger that adds up");
}
