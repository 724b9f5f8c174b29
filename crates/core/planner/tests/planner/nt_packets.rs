//! Packets per second of NTs: a limit beside their bandwidth, by each DAG's packet sizes.

use std::num::NonZeroU32;

use crate::support::{World, chain, gbps, name, nt_id};
use snic_domain::{Bandwidth, Dag, DagSpec, NtType, PacketSizes, RegionId, Resource, Slot};
use snic_planner::RegionCondition;

/// `nat` takes ten million packets a second and `firewall` any number; both serve 10 Gbit/s.
fn world(regions: usize) -> World {
    let mut world = World::with(regions, "nat firewall", &[("nf", "nat firewall")]);
    world.nt("nat", |nt| nt.packets_per_second_max = NonZeroU32::new(10_000_000));
    world.load(0, "nf");
    world
}

fn of(nts: &str, mbps: u64, bytes: u32) -> Dag {
    let dag = chain(nts, Bandwidth::from_mbps(mbps));
    let packet_sizes = PacketSizes::only(bytes);
    Dag::new(DagSpec { packet_sizes, ..dag.spec().clone() }).expect("as before")
}

/// Ten million packets of 512 bits are 5.12 Gbit/s, of 8,000 bits they are more than the NT serves.
#[test]
fn small_packets_fill_an_nt_before_its_bandwidth_does() {
    let mut world = world(1);
    let plan = world.plan(&name("t0/a"), &of("nat", 5_000, 64)).expect("9.77 million packets");
    world.apply(&name("t0/a"), &plan);
    let refused = world.plan(&name("t0/b"), &of("nat", 121, 64)).expect_err("0.24 million more");
    let short = &refused.shortages[0];
    assert_eq!(short.resource, Resource::NtPackets, "{refused}");
    assert_eq!((short.required, short.available), (236_329, 234_375), "{short}");
    let text = short.to_string();
    assert!(text.starts_with("NT packets: 236329 packets/s needed, 234375 packets/s available"));
    assert!(text.contains("loaded instances of nat still take, of sizes 64"), "{text}");
    assert!(world.plan(&name("t0/b"), &of("nat", 120, 64)).is_ok(), "they fit");
    assert!(world.plan(&name("t0/b"), &of("firewall", 5_000, 64)).is_ok(), "it has no limit");
    let large = world.plan(&name("t0/b"), &of("nat", 1_800, 1_000)).expect("225,000 packets");
    world.apply(&name("t0/b"), &large);
    assert_eq!(world.ledger.residual(RegionId(0), Slot(0)), Bandwidth::from_mbps(3_200));
    world.ledger.check().expect("a ledger that adds up");
}

/// A shortage of bandwidth is told as such, though the NT has a limit of packets, too.
#[test]
fn a_refusal_names_what_is_short() {
    let world = world(1);
    let resource = |mbps, bytes| {
        let refused = world.plan(&name("t0/a"), &of("nat", mbps, bytes)).expect_err("too much");
        refused.shortages[0].resource
    };
    assert_eq!(resource(11_000, 1_000), Resource::NtBandwidth);
    assert_eq!(resource(6_000, 64), Resource::NtPackets);
    assert_eq!(resource(11_000, 64), Resource::NtBandwidth, "with any packets");
}

#[test]
fn further_instances_take_the_packets_that_one_does_not() {
    let mut world = world(3);
    let plan = world.plan(&name("t0/a"), &of("nat", 9_000, 64)).expect("17.6 million packets");
    assert_eq!((plan.loads.len(), plan.mapping.instances().count()), (1, 2));
    world.apply(&name("t0/a"), &plan);
    let held = world.ledger.headroom(&name("t0/a"));
    let packets = held.iter().find(|left| left.resource == Resource::NtPackets).expect("it has");
    assert_eq!(packets.nt, Some(nt_id("nat")));
    assert!(packets.held + packets.available == 10_000_000, "{packets}");
    world.ledger.set_condition(RegionId(2), RegionCondition::Cordoned);
    let refused = world.plan(&name("t0/b"), &of("nat", 2_000, 64)).expect_err("3.9 million");
    let named: Vec<_> = refused.shortages.iter().map(|short| short.resource).collect();
    assert_eq!(named, [Resource::NtPackets, Resource::Regions], "{refused}");
    assert!(refused.shortages[0].detail.contains("1 of the card's 3 regions are cordoned"));
}

/// Its first slot is full of packets and not of bits: the NTs come in another order behind it, so a cut is needed.
#[test]
fn a_full_instance_is_passed_over() {
    let mut world = World::with(1, "a b", &[("ab", "a b a")]);
    world.nt("a", |nt| nt.packets_per_second_max = NonZeroU32::new(10_000_000));
    world.load(0, "ab");
    for (dag, passes) in [("t0/x", 1), ("t0/y", 2)] {
        let plan = world.plan(&name(dag), &of("a b", 5_000, 64)).expect("it fits");
        assert_eq!(plan.mapping.stages.len(), passes, "{dag}");
        world.apply(&name(dag), &plan);
    }
    let refused = world.plan(&name("t0/z"), &of("a", 1_000, 64)).expect_err("both are full");
    assert_eq!(refused.shortages[0].resource, Resource::NtPackets, "{refused}");
    assert_eq!(refused.shortages[0].available, 2 * 234_375);
}

#[test]
fn a_content_whose_nt_takes_fewer_packets_does_not_fit_what_is_reserved() {
    let mut world = world(1);
    let plan = world.plan(&name("t0/a"), &of("nat", 5_000, 64)).expect("it fits");
    world.apply(&name("t0/a"), &plan);
    let content = world.ledger.content(RegionId(0)).cloned();
    let mut set = |packets| {
        let nt = world.catalogue.nt(&nt_id("nat")).expect("known").clone();
        let packets_per_second_max = NonZeroU32::new(packets);
        world.catalogue.insert_nt(NtType { packets_per_second_max, ..nt });
        // Another image, so that the chain is not the one that is there.
        world.ledger.set_content(RegionId(0), content.as_ref(), &world.catalogue)
    };
    assert!(set(9_765_625).is_ok(), "just enough");
    assert!(set(9_765_624).is_err(), "one too few");
}

/// Twelve packets of the IMIX are 34,736 bits: three million a second are 8.684 Gbit/s.
#[test]
fn a_mix_brings_the_packets_of_all_its_sizes() {
    let mut world = world(1);
    world.nt("nat", |nt| nt.packets_per_second_max = NonZeroU32::new(3_000_000));
    world.ledger =
        snic_planner::Ledger::new(world.ledger.card().clone(), world.ledger.profile().clone());
    world.load(0, "nf");
    let mix = |mbps| chain("nat", Bandwidth::from_mbps(mbps));
    assert!(world.plan(&name("t0/a"), &mix(8_684)).is_ok(), "all that it takes");
    let refused = world.plan(&name("t0/a"), &mix(8_685)).expect_err("345 packets too many");
    assert_eq!(refused.shortages[0].resource, Resource::NtPackets, "{refused}");
}

/// A limit that no packets of a DAG reach changes nothing.
#[test]
fn a_limit_beyond_reach_is_none() {
    let plan = |limit: u32| {
        let mut world = World::with(2, "nat firewall", &[("nf", "nat firewall")]);
        world.nt("nat", |nt| nt.packets_per_second_max = NonZeroU32::new(limit));
        world.plan(&name("t0/a"), &chain("nat firewall", gbps(9))).expect("it fits").mapping
    };
    assert_eq!(plan(0), plan(u32::MAX));
}
