//! The ledger and the catalogue by themselves.

use crate::support::{World, bitstream, bitstream_id, chain, gbps, name, nt_id, profile, tenant};
use snic_domain::{
    Bandwidth, ByteSize, CardId, Instance, Mapping, RegionId, Resource, Slot, Stage, VirtualChain,
};
use snic_planner::{ContentMismatch, Ledger, Overbooked, RegionCondition, Reservation, TableRows};

/// One region with `nat firewall`, loaded; each NT serves 10 Gbps.
fn world() -> World {
    let mut world = World::with(2, "nat firewall aes", &[("nf", "nat firewall"), ("a", "aes")]);
    world.load(0, "nf");
    world
}

/// A DAG of one chain with the given instances (region, slots, Gbps).
fn reservation(world: &World, nts: &str, instances: &[(u8, &[u8], u64)]) -> Reservation {
    let dag = chain(nts, gbps(instances.iter().map(|(_, _, n)| n).sum()));
    let nodes = dag.nodes().iter().map(|node| node.id.clone()).collect();
    let instances = instances
        .iter()
        .map(|(region, slots, n)| Instance {
            region: RegionId(*region),
            bitstream: bitstream_id("nf"),
            slots: slots.iter().map(|s| Slot(*s)).collect(),
            bandwidth: gbps(*n),
        })
        .collect();
    let stages = vec![Stage { branches: vec![VirtualChain { nodes, instances }] }];
    let card = CardId::new("card-0").expect("a test id");
    let mapping =
        Mapping { card, form: snic_domain::Form::Sequential, stages, programs: Vec::new() };
    Reservation::of(&mapping, &dag, &world.catalogue, world.ledger.profile())
}

fn residual(world: &World, slot: u8) -> Bandwidth {
    world.ledger.residual(RegionId(0), Slot(slot))
}

#[test]
fn reserved_capacity_is_not_reported_as_left() {
    let mut world = world();
    let both = reservation(&world, "nat firewall", &[(0, &[0, 1], 4)]);
    world.ledger.hold(&name("t0/a"), both.clone()).expect("fits");
    let one = reservation(&world, "firewall", &[(0, &[1], 6)]);
    world.ledger.hold(&name("t1/b"), one).expect("fits to the last bit");
    assert_eq!((residual(&world, 0), residual(&world, 1)), (gbps(6), Bandwidth::ZERO));
    assert_eq!(world.ledger.reserved(RegionId(0), Slot(1)), gbps(10));
    assert_eq!(world.ledger.ingress_residual(), gbps(990));
    assert_eq!(world.ledger.egress_residual(), gbps(990));
    let users: Vec<String> = world.ledger.users(RegionId(0)).map(ToString::to_string).collect();
    assert_eq!(users, ["tenants/t0/dags/a", "tenants/t1/dags/b"]);
    assert_eq!(world.ledger.release(&name("t0/a")), Some(both));
    assert_eq!(world.ledger.release(&name("t0/a")), None);
    assert_eq!((residual(&world, 0), residual(&world, 1)), (gbps(10), gbps(4)));
    world.ledger.check().expect("adds up");
}

#[test]
fn overbooking_is_refused_and_changes_nothing() {
    let mut world = world();
    let seven = reservation(&world, "nat", &[(0, &[0], 7)]);
    world.ledger.hold(&name("t0/a"), seven.clone()).expect("fits");
    let before = world.ledger.clone();
    let four = reservation(&world, "nat", &[(0, &[0], 4)]);
    let error = world.ledger.hold(&name("t1/b"), four).expect_err("11 of 10");
    assert_eq!(
        error,
        Overbooked {
            resource: Resource::NtBandwidth,
            region: Some(RegionId(0)),
            slot: Some(Slot(0)),
            required: 4_000_000_000,
            available: 3_000_000_000,
        }
    );
    assert!(error.to_string().contains("region 0, slot 0"), "{error}");
    // A failed replacement does not lose the old reservation either.
    let eleven = reservation(&world, "nat", &[(0, &[0], 11)]);
    world.ledger.hold(&name("t0/a"), eleven).expect_err("11 of 10");
    assert_eq!(world.ledger, before);
    // A replacement counts without what it replaces.
    let ten = reservation(&world, "nat", &[(0, &[0], 10)]);
    world.ledger.hold(&name("t0/a"), ten).expect("10 in place of 7");
}

#[test]
fn a_slot_that_is_not_there_has_nothing_left() {
    let mut world = world();
    for instances in [[(0u8, &[2u8][..], 1)], [(1, &[0], 1)], [(9, &[0], 1)], [(0, &[200], 1)]] {
        let ghost = reservation(&world, "nat", &instances);
        let error = world.ledger.hold(&name("t0/a"), ghost).expect_err("no such slot");
        assert_eq!(error.available, 0, "{instances:?}");
    }
    assert_eq!(world.ledger.residual(RegionId(9), Slot(0)), Bandwidth::ZERO);
    assert_eq!(world.ledger.condition(RegionId(9)), RegionCondition::Unknown);
    world.ledger.set_condition(RegionId(9), RegionCondition::Usable);
    assert_eq!(world.ledger.users(RegionId(9)).count(), 0);
}

#[test]
fn a_region_in_use_takes_only_content_that_serves_its_users() {
    let mut world = world();
    let held = reservation(&world, "firewall", &[(0, &[1], 4)]);
    world.ledger.hold(&name("t0/a"), held).expect("fits");
    let other = world.catalogue.bitstream(&bitstream_id("a")).cloned();
    for content in [other.as_ref(), None] {
        let error = world.ledger.set_content(RegionId(0), content, &world.catalogue);
        assert!(
            matches!(error, Err(ContentMismatch::InUse { slot: Slot(1), dags: 1, .. })),
            "{error:?} for {content:?}"
        );
    }
    let alike = bitstream("like", "aes firewall nat");
    world.ledger.set_content(RegionId(0), Some(&alike), &world.catalogue).expect("slot 1 is alike");
    assert_eq!(world.ledger.content(RegionId(0)), Some(&alike));
    world.ledger.check().expect("adds up");
    world.ledger.release(&name("t0/a"));
    world.ledger.set_content(RegionId(0), None, &world.catalogue).expect("nobody uses it");
    let error = world.ledger.set_content(RegionId(2), None, &world.catalogue).expect_err("2 of 2");
    assert_eq!(error.to_string(), "the card has no region 2; its regions are 0 to 1");
}

/// Memory is each tenant's own, shared by the tenant's DAGs, in whole pages of 2 MiB.
#[test]
fn memory_is_paid_once_by_each_tenant() {
    let mut world = world();
    world.nt("nat", |nt| nt.memory = ByteSize::from_mib(3));
    world.load(0, "nf");
    let left = |world: &World| (10_240 << 20) - world.ledger.memory_residual().get();
    let share = reservation(&world, "nat", &[(0, &[0], 1)]);
    assert_eq!(share.memory(), ByteSize::from_mib(4));
    for (dag, mib) in [("t0/a", 4), ("t0/b", 4), ("t1/c", 8)] {
        world.ledger.hold(&name(dag), share.clone()).expect("fits");
        assert_eq!(left(&world), mib << 20, "{dag}");
    }
    for (dag, mib) in [("t0/a", 8), ("t0/b", 4), ("t1/c", 0)] {
        world.ledger.release(&name(dag));
        assert_eq!(left(&world), mib << 20, "{dag}");
    }
}

#[test]
fn ingress_and_egress_are_not_overbooked_by_a_bit() {
    for resource in [Resource::IngressBandwidth, Resource::EgressBandwidth] {
        let mut world = world();
        let mut profile = profile(1);
        match resource {
            Resource::IngressBandwidth => profile.ingress = gbps(8),
            _ => profile.egress = gbps(8),
        }
        world.ledger = Ledger::new(CardId::new("card-0").expect("a test id"), profile);
        world.load(0, "nf");
        let five = reservation(&world, "nat", &[(0, &[0], 5)]);
        world.ledger.hold(&name("t0/a"), five).expect("5 of 8");
        let four = reservation(&world, "firewall", &[(0, &[1], 4)]);
        let error = world.ledger.hold(&name("t0/b"), four).expect_err("9 of 8");
        let (required, available) = (gbps(4).get(), gbps(3).get());
        let expected = Overbooked { resource, region: None, slot: None, required, available };
        assert_eq!(error, expected);
        let three = reservation(&world, "firewall", &[(0, &[1], 3)]);
        world.ledger.hold(&name("t0/b"), three).expect("8 of 8");
    }
}

#[test]
fn tables_have_an_end() {
    let mut world = world();
    let rows = TableRows { dags: 1, ..TableRows::CARD };
    world.ledger = Ledger::with_rows(CardId::new("card-0").expect("a test id"), profile(1), rows);
    world.load(0, "nf");
    let share = reservation(&world, "nat", &[(0, &[0], 1)]);
    world.ledger.hold(&name("t0/a"), share.clone()).expect("the only row");
    let error = world.ledger.hold(&name("t0/b"), share).expect_err("no row is left");
    assert_eq!((error.resource, error.required, error.available), (Resource::TableRows, 1, 0));
    assert_eq!(world.ledger.rows_residual().dags, 0);
    assert_eq!(world.ledger.rows_residual().stages, TableRows::CARD.stages - 1);
}

#[test]
fn the_maximum_covers_both() {
    let world = world();
    let old = reservation(&world, "nat firewall", &[(0, &[0, 1], 4)]);
    let new = reservation(&world, "nat", &[(0, &[0], 6), (1, &[0], 1)]);
    let both = old.max(&new);
    let shares: Vec<_> = both.bandwidths().map(|(r, s, b)| (r.0, s.0, b)).collect();
    assert_eq!(shares, [(0, 0, gbps(6)), (0, 1, gbps(4)), (1, 0, gbps(1))]);
    assert_eq!((both.ingress(), both.egress()), (gbps(7), gbps(7)));
    assert_eq!(both.rows(), TableRows { dags: 1, stages: 1, chains: 1, instances: 2 });
    assert_eq!(both.regions().collect::<Vec<_>>(), [RegionId(0), RegionId(1)]);
    assert_eq!(both, new.max(&old));
    assert_eq!(both.max(&old), both);
}

#[test]
fn several_instances_on_one_slot_add_up() {
    let world = world();
    let twice = reservation(&world, "nat", &[(0, &[0], 2), (0, &[0], 3)]);
    assert_eq!(twice.bandwidths().collect::<Vec<_>>(), [(RegionId(0), Slot(0), gbps(5))]);
}

#[test]
fn the_catalogue_gives_back_what_it_took() {
    let mut world = world();
    let nat = world.catalogue.nt(&nt_id("nat")).cloned().expect("known");
    assert_eq!(world.catalogue.remove_nt(&nt_id("nat")), Some(nat.clone()));
    assert_eq!(world.catalogue.remove_nt(&nt_id("nat")), None);
    assert_eq!(world.catalogue.insert_nt(nat.clone()), None);
    assert_eq!(world.catalogue.insert_nt(nat.clone()), Some(nat));
    let ids: Vec<&str> = world.catalogue.bitstreams().map(|b| b.id.as_str()).collect();
    assert_eq!(ids, ["a", "nf"]);
    let nf = world.catalogue.remove_bitstream(&bitstream_id("nf")).expect("known");
    assert_eq!(world.catalogue.bitstream(&nf.id), None);
    assert_eq!(world.catalogue.insert_bitstream(nf.clone()), None);
    let shorter = bitstream("nf", "firewall");
    assert_eq!(world.catalogue.insert_bitstream(shorter), Some(nf));
    let nts: Vec<&str> = world.catalogue.nts().map(|nt| nt.id.as_str()).collect();
    assert_eq!(nts, ["aes", "firewall", "nat"]);
}

/// The index follows: what a bitstream no longer holds, or nobody may load, is not planned.
#[test]
fn plans_follow_the_catalogue() {
    let mut world = World::with(2, "nat firewall", &[("nf", "nat firewall")]);
    let dag = chain("nat", gbps(1));
    assert!(world.plan(&name("t0/a"), &dag).is_ok());
    world.catalogue.insert_bitstream(bitstream("nf", "firewall"));
    assert!(world.plan(&name("t0/a"), &dag).is_err(), "nf holds no nat any more");
    world.catalogue.insert_bitstream(bitstream("nf", "nat firewall"));
    let firewall = world.catalogue.remove_nt(&nt_id("firewall")).expect("known");
    assert!(world.plan(&name("t0/a"), &dag).is_err(), "the area of nf is not known");
    world.catalogue.insert_nt(firewall);
    assert!(world.plan(&name("t0/a"), &dag).is_ok());
    world.catalogue.remove_bitstream(&bitstream_id("nf"));
    assert!(world.plan(&name("t0/a"), &dag).is_err(), "nothing is left");
    assert!(tenant("t0").as_str() == "t0");
}

/// A bitstream that no region's wrapper could hold is never planned, and never panics.
#[test]
fn odd_bitstreams_are_harmless() {
    let mut world = World::with(2, "nat", &[("none", ""), ("nine", &"nat ".repeat(9))]);
    assert!(world.plan(&name("t0/a"), &chain("nat", gbps(1))).is_err());
    world.load(0, "nine");
    let plan = world.plan(&name("t0/a"), &chain("nat", gbps(1))).expect("its first eight slots");
    assert!(plan.loads.is_empty());
}

#[test]
fn every_change_counts_and_two_ledgers_are_not_told_apart_by_it() {
    let mut world = world();
    let before = world.ledger.clone();
    let mut last = before.changes();
    let mut counts = |ledger: &Ledger, what: &str| {
        assert!(ledger.changes() > last, "{what}");
        last = ledger.changes();
    };
    let one = reservation(&world, "firewall", &[(0, &[1], 6)]);
    world.ledger.hold(&name("t1/b"), one).expect("fits");
    counts(&world.ledger, "held");
    world.ledger.release(&name("t1/b"));
    counts(&world.ledger, "released");
    world.ledger.set_condition(RegionId(1), RegionCondition::Cordoned);
    counts(&world.ledger, "not usable");
    world.ledger.set_condition(RegionId(1), before.condition(RegionId(1)));
    counts(&world.ledger, "usable");
    world.load(1, "a");
    counts(&world.ledger, "loaded");
    world.ledger.set_content(RegionId(1), None, &world.catalogue).expect("nobody uses it");
    assert_eq!(world.ledger, before);
    let changes = world.catalogue.changes();
    world.catalogue.insert_bitstream(bitstream("again", "nat"));
    assert!(world.catalogue.changes() > changes);
}

/// A new build of an NT may be slower, as long as it serves what is reserved.
#[test]
fn a_content_that_serves_less_than_is_reserved_is_refused() {
    for (gbit, fits) in [(9, true), (8, true), (7, false), (1, false)] {
        let mut world = world();
        let eight = reservation(&world, "nat", &[(0, &[0], 8)]);
        world.ledger.hold(&name("t0/a"), eight).expect("8 of 10");
        world.nt("nat", |nt| nt.bandwidth_max = gbps(gbit));
        let content = world.catalogue.bitstream(&bitstream_id("nf")).cloned();
        let before = world.ledger.clone();
        let set = world.ledger.set_content(RegionId(0), content.as_ref(), &world.catalogue);
        assert_eq!(set.is_ok(), fits, "{gbit} Gbit/s");
        match set {
            Ok(()) => assert_eq!(residual(&world, 0), gbps(gbit - 8)),
            Err(error) => {
                let (bitstream, slot) = (Some(bitstream_id("nf")), Slot(0));
                let region = RegionId(0);
                assert_eq!(error, ContentMismatch::InUse { region, bitstream, slot, dags: 1 });
                assert_eq!(world.ledger, before, "nothing has changed");
            }
        }
        world.ledger.check().expect("it adds up");
    }
}

/// While a DAG holds an NT's memory, no content is accepted in which the NT needs more or less.
#[test]
fn a_content_with_other_memory_is_refused_while_it_is_used() {
    let mut world = world();
    world.nt("nat", |nt| nt.memory = ByteSize::from_mib(4));
    world.load(0, "nf");
    let one = reservation(&world, "nat", &[(0, &[0], 1)]);
    world.ledger.hold(&name("t0/a"), one).expect("4 MiB");
    for (mib, fits) in [(2, false), (4, true), (6, false), (3, true)] {
        world.nt("nat", |nt| nt.memory = ByteSize::from_mib(mib));
        let content = world.catalogue.bitstream(&bitstream_id("nf")).cloned();
        let set = world.ledger.set_content(RegionId(0), content.as_ref(), &world.catalogue);
        assert_eq!(set.is_ok(), fits, "{mib} MiB; pages have 2");
    }
    world.ledger.release(&name("t0/a"));
    world.nt("nat", |nt| nt.memory = ByteSize::from_mib(6));
    world.load(0, "nf");
}

#[test]
fn a_region_that_is_not_there_has_no_content() {
    let mut world = world();
    let error = world.ledger.set_content(RegionId(2), None, &world.catalogue);
    let error = error.expect_err("regions 0 and 1");
    assert_eq!(error, ContentMismatch::NoSuchRegion { region: RegionId(2), regions: 2 });
    assert_eq!(error.to_string(), "the card has no region 2; its regions are 0 to 1");
}

/// A region that must keep its content is shared, and neither loaded as a victim nor when it is empty.
#[test]
fn a_kept_region_is_shared_and_never_loaded() {
    let mut world = World::with(2, "a b", &[("a", "a"), ("b", "b")]);
    world.load(0, "a");
    for region in [0, 1] {
        world.ledger.set_kept(RegionId(region), true);
        assert!(world.ledger.is_kept(RegionId(region)));
        assert!(!world.ledger.is_replaceable(RegionId(region)));
    }
    let shared = world.plan(&name("t0/d"), &chain("a", gbps(10))).expect("it is loaded");
    assert!(shared.loads.is_empty());
    let refused = world.plan(&name("t0/d"), &chain("b", gbps(1))).expect_err("both are kept");
    let regions = refused.shortages.iter().find(|s| s.resource == Resource::Regions);
    assert_eq!(regions.map(|s| (s.required, s.available)), Some((1, 0)));
    world.ledger.set_kept(RegionId(0), false);
    let victim = world.plan(&name("t0/d"), &chain("b", gbps(1))).expect("region 0");
    assert_eq!((victim.loads.len(), victim.loads[0].region), (1, RegionId(0)));
}
