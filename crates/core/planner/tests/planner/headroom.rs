//! Rest of each resource that a DAG holds on its card, beside numbers by hand.

use crate::support;
use std::collections::BTreeMap;

use crate::support::{World, chain, gbps, name, nt_id, profile};
use snic_domain::{ByteSize, CardProfile, Headroom, RegionId, RegionPass, Resource};
use snic_planner::TableRows;

/// `a b` in region 0, where `b` serves 30 and `a` 40 Gbit/s and needs two pages, and `c` in region 1.
fn world() -> World {
    let pass = Some(RegionPass::SUPERNIC);
    let mut world = World::new(CardProfile { region_pass: pass, ..profile(2) });
    for (id, gbit) in [("a", 40), ("b", 30), ("c", 30)] {
        world.nt(id, |nt| nt.bandwidth_max = gbps(gbit));
    }
    world.nt("a", |nt| nt.memory = ByteSize::from_mib(4));
    for (id, nts) in [("ab", "a b"), ("c", "c")] {
        world.catalogue.insert_bitstream(support::bitstream(id, nts));
    }
    world.load(0, "ab");
    world.load(1, "c");
    for (dag, nts, gbit) in [("t0/web", "a b c", 5), ("t0/own", "c", 10), ("t1/other", "a", 20)] {
        let plan = world.plan(&name(dag), &chain(nts, gbps(gbit))).expect("it fits");
        world.apply(&name(dag), &plan);
    }
    world
}

fn of(world: &World, dag: &str) -> BTreeMap<Resource, Headroom> {
    world.ledger.headroom(&name(dag)).into_iter().map(|left| (left.resource, left)).collect()
}

const GIGA: u64 = 1_000_000_000;

#[test]
fn the_tightest_place_of_each_resource_is_told() {
    let (world, name) = (world(), name("t0/web"));
    let left = of(&world, "t0/web");
    // 15 of 40, 25 of 30 and 15 of 30 Gbit/s are left.
    let nt = &left[&Resource::NtBandwidth];
    assert_eq!((nt.held, nt.available, nt.nt.clone()), (5 * GIGA, 15 * GIGA, Some(nt_id("a"))));
    assert_eq!((nt.region, nt.of_others), (Some(RegionId(0)), true), "t1 is there");
    let port = &left[&Resource::RegionPort];
    assert_eq!(port.available, 240_000_000 - world.ledger.port_reserved(RegionId(0)));
    assert!(port.of_others && port.nt.is_none());
    let credits = &left[&Resource::Credits];
    assert!(credits.held > 0 && credits.held + credits.available <= 101_600, "{credits}");
    let lines = [
        (Resource::IngressBandwidth, world.ledger.ingress_residual().get()),
        (Resource::EgressBandwidth, world.ledger.egress_residual().get()),
        (Resource::Memory, world.ledger.memory_residual().get()),
    ];
    for (resource, residual) in lines {
        assert_eq!((left[&resource].available, left[&resource].region), (residual, None));
        assert!(!left[&resource].of_others, "{resource} is the whole card's");
    }
    assert_eq!(left[&Resource::Memory].held, 4 << 20);
    let held: u64 = world.ledger.reservations().map(|(_, held)| held.store()).sum();
    let store = &left[&Resource::PacketStore];
    let own = world.ledger.held(&name).expect("it is placed").store();
    assert_eq!((store.held, store.available), (own, (4 << 20) * 3 / 16 - held));
    // Of each table as many rows as the card has; two stages are more than one DAG.
    let rows = &left[&Resource::TableRows];
    assert_eq!((rows.held, rows.available), (2, u64::from(TableRows::CARD.chains) - 4));
    assert!(!left.contains_key(&Resource::SyncEntries), "it holds none");
}

#[test]
fn what_only_its_own_tenant_uses_tells_of_nobody_else() {
    let left = of(&world(), "t0/own");
    let nt = &left[&Resource::NtBandwidth];
    assert_eq!((nt.held, nt.available, nt.of_others), (10 * GIGA, 15 * GIGA, false));
    assert_eq!(nt.to_string(), "NT bandwidth: 10 Gbit/s held, 15 Gbit/s left (c in region 1)");
    assert!(!left.contains_key(&Resource::Memory), "it has none");
    assert!(of(&world(), "t0/unknown").is_empty());
}
