//! Reads of the packet store: the beats of a packet once for each branch of each pass, and when it goes out, of all DAGs of a
//! card together.

use std::num::NonZeroU32;

use snic_domain::{CardProfile, Dag, DagSpec, PacketSizes, RegionPass, Resource, Traffic};

use crate::support::{World, bitstream, chain, gbps, name, profile};

/// Regions with `c b a`: a DAG in another order passes the packet store three times. NTs read this.
fn world(beats: u32, traffic: Traffic) -> World {
    let card = CardProfile {
        region_pass: Some(RegionPass::SUPERNIC),
        packet_store_beats_per_cycle: NonZeroU32::new(beats),
        ..profile(3)
    };
    let mut world = World::new(card);
    for id in ["a", "b", "c"] {
        world.nt(id, |nt| (nt.bandwidth_max, nt.traffic) = (gbps(100), traffic));
    }
    world.catalogue.insert_bitstream(bitstream("cba", "c b a"));
    (0..3).for_each(|region| world.load(region, "cba"));
    world
}

fn large(dag: &Dag) -> Dag {
    let packet_sizes = PacketSizes::only(1_500);
    Dag::new(DagSpec { packet_sizes, ..dag.spec().clone() }).expect("as before")
}

/// Two DAGs of 14 Gbit/s of 1,500 bytes, 1.167 million packets a second with 24 beats in each of three passes and at the egress.
fn with_two(mut world: World) -> World {
    for dag in ["t0/a", "t0/b"] {
        let plan = world.plan(&name(dag), &large(&chain("a b c", gbps(14)))).expect("it fits");
        assert_eq!((plan.mapping.stages.len(), plan.reservation.store_reads()), (3, 112_000_000));
        world.apply(&name(dag), &plan);
    }
    world.ledger.check().expect("a ledger that adds up");
    world
}

#[test]
fn further_passes_read_beats_until_there_are_none() {
    let third = large(&chain("a b c", gbps(14)));
    let world_of_two = with_two(world(1, Traffic::Payload));
    let refused = world_of_two.plan(&name("t1/c"), &third).expect_err("336 of 240 million");
    let short = &refused.shortages[0];
    assert_eq!(short.resource, Resource::StoreReads, "{refused}");
    // In one pass at least.
    assert_eq!((short.required, short.available), (56_000_000, 240_000_000 - 2 * 112_000_000));
    let says =
        "packets of sizes 1500 are read once for each branch of each pass, and when they go out";
    assert!(short.detail.contains(says), "{}", short.detail);
    let less = large(&chain("c b a", gbps(4)));
    let plan = world_of_two.plan(&name("t1/c"), &less).expect("one pass");
    assert_eq!(plan.reservation.store_reads(), 16_000_000);
    for beats in [0, 2] {
        let plan = with_two(world(beats, Traffic::Payload)).plan(&name("t1/c"), &third);
        assert!(plan.is_ok(), "{beats} a cycle");
    }
    let left = world_of_two.ledger.headroom(&name("t0/a"));
    let reads =
        left.iter().find(|left| left.resource == Resource::StoreReads).expect("it takes some");
    assert_eq!((reads.held, reads.available), (112_000_000, 16_000_000));
}

/// A beat in each pass, and all of them at the egress.
#[test]
fn where_no_task_reads_payloads_a_pass_reads_one_beat() {
    let plan = world(1, Traffic::HeaderOnly).plan(&name("t0/a"), &large(&chain("a b c", gbps(12))));
    assert_eq!(plan.expect("it fits").reservation.store_reads(), 27_000_000);
}

/// A card that did not say it before: what was promised stays, and nothing is added where it is more.
#[test]
fn a_limit_that_comes_later_takes_nothing_away() {
    let mut world = with_two(world(0, Traffic::Payload));
    let third = large(&chain("a b c", gbps(14)));
    let plan = world.plan(&name("t1/c"), &third).expect("no limit");
    world.apply(&name("t1/c"), &plan);
    let one = NonZeroU32::new(1);
    let card = CardProfile { packet_store_beats_per_cycle: one, ..world.ledger.profile().clone() };
    world.ledger.set_limits(&card);
    world.ledger.check().expect("what is over was promised before");
    let small = large(&chain("c b a", gbps(1)));
    let refused = world.plan(&name("t1/d"), &small).expect_err("336 of 240 million are taken");
    assert_eq!(refused.shortages[0].resource, Resource::StoreReads, "{refused}");
    assert!(world.plan(&name("t1/c"), &third).is_ok(), "it keeps what it has");
    world.ledger.release(&name("t1/c"));
    assert!(world.plan(&name("t1/d"), &small).is_ok(), "there is room again");
}
