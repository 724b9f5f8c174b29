//! Planning one DAG allocates the same beside ten residents as beside a thousand.

mod support;

use std::alloc::System;

use cap::Cap;
use snic_planner::{Ledger, PlanRequest, TableRows, plan};
use support::{World, chain, gbps, name, profile};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

fn card(residents: usize) -> World {
    let mut world = World::with(8, "a b c", &[("abc", "a b c"), ("c", "c")]);
    for nt in ["a", "b", "c"] {
        world.nt(nt, |nt| nt.bandwidth_max = gbps(4_000));
    }
    let card = snic_domain::CardId::new("card-0").expect("a test id");
    let mut wide = profile(8);
    (wide.ingress, wide.egress) = (gbps(100_000), gbps(100_000));
    world.ledger = Ledger::with_rows(card, wide, TableRows::UNLIMITED);
    for region in 0..4 {
        world.load(region, "abc");
    }
    for i in 0..residents {
        let name = name(&format!("t{}/d{i}", i % 7));
        let dag = chain("a b c", gbps(1));
        let request = PlanRequest { name: &name, dag: &dag, previous: None };
        let made = plan(&world.ledger, &world.catalogue, &request).expect("there is room");
        world.ledger.hold(&name, made.reservation).expect("a plan never overbooks");
    }
    world
}

/// Bytes that one plan allocates, in all.
fn allocated(world: &World) -> usize {
    let (name, dag) = (name("t1/new"), chain("a b c", gbps(2)));
    let request = PlanRequest { name: &name, dag: &dag, previous: None };
    let before = ALLOCATOR.total_allocated();
    let made = plan(&world.ledger, &world.catalogue, &request);
    let after = ALLOCATOR.total_allocated();
    assert!(made.is_ok_and(|plan| plan.loads.is_empty()));
    after - before
}

#[test]
fn no_allocation_grows_with_the_residents() {
    let few = allocated(&card(10));
    assert!(few > 0);
    for residents in [100, 1_000, 3_000] {
        assert_eq!(allocated(&card(residents)), few, "beside {residents}");
    }
}
