//! Parts of a card that packets take while they are on it: packet store and synchronisation buffer, by hand, in refusals
//! and in the choice of a placement.

use crate::support;
use crate::support::{World, chain, gbps, graph_with, name, profile};
use snic_domain::{
    Bandwidth, CardProfile, Cycles, Dag, DagSpec, Form, FormPreference, PacketSizes, RegionPass,
    Resource,
};

fn world(regions: usize, store: u64, latency: u64, bitstreams: &[(&str, &str)]) -> World {
    let card = CardProfile {
        region_pass: Some(RegionPass::SUPERNIC),
        packet_store: snic_domain::ByteSize::from_bytes(store),
        ..profile(regions)
    };
    let mut world = World::new(card);
    for id in ["a", "b", "c"] {
        world.nt(id, |nt| (nt.bandwidth_max, nt.latency) = (gbps(400), Cycles::new(latency)));
    }
    for (id, nts) in bitstreams {
        world.catalogue.insert_bitstream(support::bitstream(id, nts));
    }
    world
}

fn sized(dag: &Dag, bytes: u32) -> Dag {
    let packet_sizes = PacketSizes::only(bytes);
    Dag::new(DagSpec { packet_sizes, ..dag.spec().clone() }).expect("as before")
}

fn large(nts: &str, bandwidth: Bandwidth) -> Dag {
    sized(&chain(nts, bandwidth), 1_500)
}

/// 833,333.3 packets a second of 24 cells, 49 + 951 cycles of 4 ns each.
#[test]
fn packets_lie_in_the_store_as_long_as_their_way_takes() {
    let world = world(2, 1 << 20, 951, &[("a", "a"), ("b", "b")]);
    let plan = world.plan(&name("t0/d"), &large("a", gbps(10))).expect("it fits");
    assert_eq!(plan.reservation.store(), 5_120);
    // One more byte is one more cell.
    let dag = sized(&chain("a", gbps(10)), 1_537);
    let plan = world.plan(&name("t0/d"), &dag).expect("it fits");
    assert_eq!(plan.reservation.store(), 10_000_000_000 * 25 * 64 / (1_537 * 8) * 4 / 1_000_000);
    // Two regions: another pass of 16 cycles, and 951 more.
    let plan = world.plan(&name("t0/d"), &large("a b", gbps(10))).expect("it fits");
    assert_eq!(plan.reservation.store(), 5_120 * (1_000 + 16 + 951) / 1_000);
    assert_eq!(plan.reservation.sync_entries(), 0, "no branches");
}

/// 19.5 million packets a second wait for a pass and the longest branch.
#[test]
fn packets_wait_in_the_synchronisation_buffer_for_the_longest_branch() {
    let mut world = world(3, 1 << 20, 34, &[("a", "a"), ("b", "b"), ("c", "c")]);
    world.nt("b", |nt| nt.latency = Cycles::new(84));
    let fork = |form| {
        let dag = graph_with(&["a", "b", "c"], &[(0, 1), (0, 2)], gbps(10), form);
        let plan = world.plan(&name("t0/d"), &sized(&dag, 64)).expect("it fits");
        (plan.reservation.sync_entries(), plan.reservation.store())
    };
    // 49 + 34 for the first, then 16 + 84: 183 cycles in the store.
    let packets = 10_000_000_000 / 512;
    let store = packets * 64 * 183 / 250_000_000;
    assert_eq!(fork(FormPreference::Parallel), (7_812, store));
    let (sync, store) = fork(FormPreference::Sequential);
    assert_eq!((sync, store), (0, packets * 64 * (49 + 2 * 16 + 34 + 84 + 34) / 250_000_000));
}

/// 3 of 16 parts of 64 KiB: 12,288 bytes are for promises.
#[test]
fn a_refusal_names_the_packet_store_and_its_numbers() {
    let mut world = world(3, 64 << 10, 951, &[("a", "a")]);
    world.load(0, "a");
    for dag in ["t0/a", "t1/b"] {
        let plan = world.plan(&name(dag), &large("a", gbps(10))).expect("it fits");
        world.apply(&name(dag), &plan);
    }
    let refused = world.plan(&name("t2/c"), &large("a", gbps(10))).expect_err("two thirds more");
    let short = &refused.shortages[0];
    let numbers = (short.resource, short.required, short.available);
    assert_eq!(numbers, (Resource::PacketStore, 5_120, 12_288 - 2 * 5_120), "{refused}");
    assert!(short.detail.contains("packets of sizes 1500"), "{refused}");
    // What it holds is its own: it may stay, and have a little more.
    assert!(world.plan(&name("t0/a"), &large("a", gbps(13))).is_ok());
    assert!(world.plan(&name("t2/c"), &large("a", gbps(4))).is_ok(), "2,048 bytes are left");
    assert!(world.plan(&name("t2/c"), &large("a", Bandwidth::from_mbps(4_002))).is_err());
    world.ledger.check().expect("a ledger that adds up");
}

/// 204.8 of 256 entries are for promises: 23.4 million packets a second for 16 + 984 cycles take 93.75.
#[test]
fn a_refusal_names_the_synchronisation_buffer_and_its_numbers() {
    let mut world = world(7, 4 << 20, 984, &[("a", "a"), ("b", "b"), ("c", "c")]);
    world.nt("a", |nt| nt.latency = Cycles::new(10));
    let fork = graph_with(&["a", "b", "c"], &[(0, 1), (0, 2)], gbps(12), FormPreference::Auto);
    let fork = sized(&fork, 64);
    for dag in ["t0/a", "t1/b"] {
        let plan = world.plan(&name(dag), &fork).expect("it fits");
        assert_eq!(plan.reservation.sync_entries(), 93_750);
        world.apply(&name(dag), &plan);
    }
    // One after the other they need no entries; but the DAG asks for branches side by side, or nothing.
    let plan = world.plan(&name("t2/c"), &fork).expect("as a sequence");
    assert_eq!((plan.mapping.form, plan.reservation.sync_entries()), (Form::Sequential, 0));
    world.ledger.check().expect("a ledger that adds up");
}

/// The loaded chain has the NTs in the wrong order: two passes, 16 cycles more. That is more than the store
/// has, so a region is loaded.
#[test]
fn a_shorter_way_is_taken_where_the_store_is_short() {
    // Of 1,500 bytes at 10 Gbit/s 69 cycles are 353 bytes, 85 cycles 435.
    let order = |store| {
        let mut world = world(2, store, 10, &[("ba", "b a"), ("ab", "a b")]);
        world.load(0, "ba");
        let plan = world.plan(&name("t0/d"), &large("a b", gbps(10)));
        plan.map(|plan| (plan.loads.len(), plan.reservation.store()))
    };
    let parts = |bytes: u64| bytes * 16 / 3 + 1;
    assert_eq!(order(parts(435)), Ok((0, 435)));
    assert_eq!(order(parts(434)), Ok((1, 353)));
    let refused = order(parts(352)).expect_err("even the shortest way is too long");
    assert_eq!(refused.shortages[0].resource, Resource::PacketStore, "{refused}");
}

/// A card whose packets are not counted has no such limits.
#[test]
fn where_only_bandwidth_is_counted_nothing_is_held() {
    let mut world = World::with(1, "a", &[("a", "a")]);
    world.nt("a", |nt| nt.latency = Cycles::new(1_000_000));
    let plan = world.plan(&name("t0/d"), &large("a", gbps(10))).expect("it fits");
    assert_eq!((plan.reservation.store(), plan.reservation.sync_entries()), (0, 0));
}
