//! Updates of a DAG, promises that are taken over from a store, and what a ledger says about regions.

use crate::support::{World, bitstream_id, chain, gbps, name, profile, show};
use snic_domain::{
    Bandwidth, CardId, CardProfile, Dag, DagSpec, PacketSizes, RegionId, RegionPass, Resource, Slot,
};
use snic_planner::{BitCost, Ledger, Objective, Plan, RegionCondition, Reservation, TableRows};

fn world() -> World {
    let mut world = World::with(3, "a b", &[("a", "a"), ("ab", "a b")]);
    world.load(0, "a");
    world
}

/// Make before break: what the old mapping uses is not loaded, though nobody else uses it.
#[test]
fn an_update_leaves_the_regions_of_the_old_mapping_alone() {
    let mut world = World::with(1, "a b", &[("a", "a"), ("b", "b")]);
    let first = world.add("t0/d", &chain("a", gbps(4))).expect("an empty card");
    let refused = world.update(&name("t0/d"), &chain("b", gbps(4)), &first.mapping);
    let refused = refused.expect_err("its own region is the only one");
    assert!(refused.shortages.iter().any(|s| s.resource == Resource::Regions), "{refused}");
    // Another DAG may take it as soon as it is released.
    world.ledger.release(&name("t0/d"));
    assert!(world.plan(&name("t1/d"), &chain("b", gbps(4))).is_ok());
}

#[test]
fn an_update_counts_its_own_share_of_an_nt_once() {
    let mut world = world();
    let first = world.add("t0/d", &chain("a", gbps(6))).expect("it is loaded");
    assert_eq!(show(&first.mapping), "0:0*6");
    world.add("t1/d", &chain("a", gbps(3))).expect("9 of 10");
    let more = world.update(&name("t0/d"), &chain("a", gbps(7)), &first.mapping).expect("10 of 10");
    assert_eq!((show(&more.mapping).as_str(), more.loads.len()), ("0:0*7", 0));
    let beyond = world.update(&name("t0/d"), &chain("a", gbps(8)), &first.mapping);
    assert_eq!(beyond.expect("another region").loads.len(), 1);
    // The maximum of both covers each: the ledger takes it, and then the new one alone.
    let old = world.ledger.held(&name("t0/d")).cloned().expect("it is held");
    let both = Plan { reservation: old.max(&more.reservation), ..more.clone() };
    world.apply(&name("t0/d"), &both);
    assert_eq!(world.ledger.residual(RegionId(0), Slot(0)), Bandwidth::ZERO);
    world.apply(&name("t0/d"), &more);
    assert_eq!(world.ledger.held(&name("t0/d")), Some(&more.reservation));
}

#[test]
fn the_maximum_of_two_reservations_is_the_same_in_either_order() {
    let mut world = world();
    let one = world.plan(&name("t0/d"), &chain("a", gbps(4))).expect("loaded").reservation;
    let two = world.plan(&name("t0/d"), &chain("a b", gbps(3))).expect("a free region").reservation;
    assert_eq!(one.max(&two), two.max(&one));
    assert_eq!(one.max(&one), one);
    assert_eq!(one.max(&Reservation::default()), one);
    let both = one.max(&two);
    assert_eq!(both.max(&one), both);
    let regions: Vec<RegionId> = both.regions().collect();
    assert_eq!(regions.len(), 2, "{regions:?}");
    assert_eq!((both.ingress(), both.egress(), both.bandwidth()), (gbps(4), gbps(4), gbps(4)));
    assert_eq!(both.rows(), TableRows { dags: 1, stages: 1, chains: 1, instances: 1 });
    world.ledger.set_objective(Objective::Passes);
    assert_eq!(world.ledger.objective(), Objective::Passes);
}

/// A card with ports whose NTs are fast, so that ports are the first to be full.
fn with_ports() -> World {
    let mut world = World::with(2, "a", &[("a", "a")]);
    world.nt("a", |nt| nt.bandwidth_max = gbps(200));
    let card = CardProfile { region_pass: Some(RegionPass::SUPERNIC), ..profile(2) };
    world.ledger = Ledger::new(CardId::new("card-0").expect("a test id"), card);
    world.load(0, "a");
    world.load(1, "a");
    world
}

fn small(mbps: u64) -> Dag {
    let spec = chain("a", Bandwidth::from_mbps(mbps)).spec().clone();
    Dag::new(DagSpec { packet_sizes: PacketSizes::only(64), ..spec }).expect("a chain")
}

#[test]
fn guarantees_from_before_ports_were_counted_are_kept() {
    let mut world = with_ports();
    let plan = world.plan(&name("t0/d"), &small(30_000)).expect("an empty card");
    let region = plan.mapping.instances().next().expect("one instance").region;
    assert_eq!(world.ledger.restore(&name("t0/d0"), plan.reservation.clone()), Ok(false));
    assert!(!world.ledger.is_overcommitted(region));
    let over = world.ledger.restore(&name("t1/d1"), plan.reservation.clone());
    assert_eq!(over, Ok(true), "60 Gbit/s of 64 bytes are more than a port's 49");
    assert!(world.ledger.is_overcommitted(region));
    world.ledger.check().expect("it adds up all the same");
    // Nothing new is let in, and each may hold what it holds again, or less.
    let refused = world.ledger.hold(&name("t2/d"), plan.reservation.clone());
    assert_eq!(refused.expect_err("the port is full").resource, Resource::RegionPort);
    world.ledger.hold(&name("t1/d1"), plan.reservation.clone()).expect("as before");
    let less = world.plan(&name("t9/d"), &small(1_000)).expect("the other region").reservation;
    world.ledger.hold(&name("t0/d0"), less).expect("less than before");
    assert!(!world.ledger.is_overcommitted(region));
    world.ledger.check().expect("it adds up");
}

#[test]
fn bandwidth_memory_and_rows_are_never_taken_over_beyond_what_there_is() {
    let mut world = world();
    let six = world.plan(&name("t0/d"), &chain("a", gbps(6))).expect("loaded").reservation;
    assert_eq!(world.ledger.restore(&name("t0/d"), six.clone()), Ok(false));
    let before = world.ledger.clone();
    let short = world.ledger.restore(&name("t1/d"), six).expect_err("12 of 10");
    assert_eq!((short.resource, short.available), (Resource::NtBandwidth, 4_000_000_000));
    assert_eq!(world.ledger, before, "nothing has changed");
}

#[test]
fn credits_grow_with_what_is_promised_and_ports_are_counted_by_packets() {
    let mut world = with_ports();
    let at_first = world.ledger.credits(RegionId(0));
    assert_eq!(at_first[0], world.ledger.profile().credits_initial);
    assert_eq!(at_first[1..], [0; 7], "slots without an NT have none");
    world.add("t0/d", &small(30_000)).expect("an empty card");
    let used = if world.ledger.is_unused(RegionId(0)) { RegionId(1) } else { RegionId(0) };
    let cost = BitCost::of(world.ledger.profile(), small(1).spec(), &world.catalogue);
    // 2.5 cycles of 512 bits for a packet of 512 bits.
    assert_eq!(cost.port, (1 << 20) * 5 / 2);
    let cycles = 30_000_000_000 / 512 * 5 / 2;
    assert_eq!(world.ledger.port_reserved(used), cycles);
    assert!(world.ledger.credits(used)[0] >= at_first[0]);
    assert_eq!(world.ledger.credits(RegionId(9)), [0; 8]);
    assert_eq!(world.ledger.port_reserved(RegionId(9)), 0);
}

#[test]
fn guaranteed_bandwidth_is_a_fraction_of_the_ingress() {
    let mut world = world();
    assert_eq!(world.ledger.promised_ppb(), 0);
    world.add("t0/d", &chain("a", gbps(10))).expect("loaded");
    assert_eq!(world.ledger.promised_ppb(), 10_000_000, "10 of 1,000 Gbit/s");
    assert_eq!(world.ledger.ingress_reserved(), gbps(10));
}

/// Conditions and kept contents decide what is planned, and only what changes is counted as a change.
#[test]
fn regions_are_used_as_their_conditions_say() {
    let mut world = world();
    let (a, zero) = (chain("a", gbps(1)), RegionId(0));
    for condition in [RegionCondition::Cordoned, RegionCondition::Faulty, RegionCondition::Unknown]
    {
        world.ledger.set_condition(zero, condition);
        assert_eq!(world.ledger.condition(zero), condition);
        let elsewhere = world.plan(&name("t0/d"), &a).expect("a free region");
        assert!(!elsewhere.mapping.uses(zero), "{condition:?}");
    }
    world.ledger.set_condition(zero, RegionCondition::Usable);
    assert!(world.plan(&name("t0/d"), &a).expect("shared").mapping.uses(zero));
    assert!(world.ledger.is_replaceable(zero));
    world.ledger.set_kept(zero, true);
    assert!(world.ledger.is_kept(zero) && !world.ledger.is_replaceable(zero));
    let changes = world.ledger.changes();
    world.ledger.set_kept(zero, true);
    world.ledger.set_kept(RegionId(9), true);
    world.ledger.set_objective(world.ledger.objective());
    assert_eq!(world.ledger.changes(), changes, "nothing has changed");
    assert!(!world.ledger.is_kept(RegionId(9)));
    assert!(world.plan(&name("t0/d"), &a).expect("still shared").mapping.uses(zero));
    assert_eq!(world.ledger.content(zero).map(|b| &b.id), Some(&bitstream_id("a")));
    assert_eq!(world.ledger.content(RegionId(9)), None);
}

/// Regions that the card's tables cannot address are not planned with.
#[test]
fn a_card_has_as_many_regions_as_its_tables_address() {
    let world = World::with(40, "a", &[("a", "a")]);
    let most = snic_domain::limits::REGIONS_MAX as u64;
    assert!(world.plan(&name("t0/d"), &chain("a", gbps(10 * most))).is_ok());
    let refused =
        world.plan(&name("t0/d"), &chain("a", gbps(10 * most + 1))).expect_err("one more");
    let regions = refused.shortages.iter().find(|s| s.resource == Resource::Regions);
    let regions = regions.expect("regions are short");
    assert_eq!((regions.required, regions.available), (most + 1, most));
    assert_eq!(world.ledger.residual(RegionId(39), Slot(0)), Bandwidth::ZERO);
}
