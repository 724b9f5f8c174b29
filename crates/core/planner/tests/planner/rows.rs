//! Rows of the card's tables are capacity: what is spent on cuts is missing for DAGs.

use crate::support;
use std::collections::BTreeMap;

use crate::support::{World, bitstream_id, chain, gbps, name, profile};
use snic_domain::{Bandwidth, Dag, DagName, Mapping};
use snic_planner::{Budget, Ledger, Objective, Resident, TableRows, optimize};

/// A card of 32 regions. Each NT has a region that holds it alone and that others use; the catalogue has
/// every two NTs together.
fn card(objective: Objective) -> World {
    let nts = ["a", "b", "c", "d"];
    let mut world = World::with(32, "a b c d", &[]);
    for first in nts {
        world.catalogue.insert_bitstream(support::bitstream(first, first));
        for second in nts.into_iter().filter(|second| *second != first) {
            let both = format!("{first}{second}");
            world
                .catalogue
                .insert_bitstream(support::bitstream(&both, &format!("{first} {second}")));
        }
        world.nt(first, |nt| nt.bandwidth_max = gbps(100));
    }
    world.ledger.set_objective(objective);
    for (region, nt) in (0u8..).zip(nts) {
        world.load(region, nt);
        world.add(&format!("t0/{nt}"), &chain(nt, gbps(1))).expect("its region is loaded");
    }
    world
}

/// Adds small chains of two NTs until one is rejected; returns how many fit.
fn admitted(world: &mut World, most: usize) -> usize {
    let pairs = ["a b", "b c", "c d", "d a", "a c", "b d"];
    (0..most)
        .take_while(|i| {
            let small = chain(pairs[i % pairs.len()], Bandwidth::from_mbps(10));
            world.add(&format!("t1/d{i}"), &small).is_ok()
        })
        .count()
}

#[test]
fn a_thousand_small_dags_have_a_place_while_regions_are_free() {
    let mut world = card(Objective::default());
    assert_eq!(admitted(&mut world, 1_000), 1_000);
    let in_use = world.ledger.profile().regions().filter(|(r, _)| !world.ledger.is_unused(*r));
    let in_use = in_use.count();
    assert!(in_use <= 10, "one region for each kind of chain, not {in_use}");
    // With fewest regions first, each of them takes two rows of 1,020.
    assert_eq!(admitted(&mut card(Objective::Regions), 1_000), 508);
}

#[test]
fn regions_come_first_while_rows_are_plenty() {
    let mut world = card(Objective::Balanced);
    let plan = world.add("t1/d", &chain("a b", gbps(1))).expect("two loaded chains serve it");
    assert_eq!((plan.loads.len(), plan.mapping.stages.len()), (0, 2));
    let mut world = card(Objective::Passes);
    let plan = world.add("t1/d", &chain("a b", gbps(1))).expect("a region is free");
    assert_eq!((plan.loads.len(), plan.mapping.stages.len()), (1, 1));
}

/// Ports: one chain that passes often takes them, not the rows.
#[test]
fn a_region_is_opened_where_ports_run_short() {
    let plan = |busy: u64| {
        let mut world = card(Objective::Balanced);
        let pass = Some(snic_domain::RegionPass::SUPERNIC);
        let ports = snic_domain::CardProfile { region_pass: pass, ..profile(32) };
        let (mut ledger, card) = (world.ledger.clone(), world.ledger.card().clone());
        std::mem::swap(&mut ledger, &mut world.ledger);
        world.ledger = Ledger::new(card, ports);
        for (region, nt) in (0u8..).zip(["a", "b"]) {
            let content = world.catalogue.bitstream(&bitstream_id(nt)).cloned();
            let set = world.ledger.set_content(
                snic_domain::RegionId(region),
                content.as_ref(),
                &world.catalogue,
            );
            set.expect("an empty region");
            let packet_sizes = snic_domain::PacketSizes::only(64);
            let spec = chain(nt, gbps(busy)).spec().clone();
            let small = Dag::new(snic_domain::DagSpec { packet_sizes, ..spec }).expect("a chain");
            world.add(&format!("t0/{nt}"), &small).expect("it is loaded");
        }
        let plan = world.add("t1/d", &chain("a b", gbps(1))).expect("a place");
        (plan.loads.len(), plan.mapping.stages.len())
    };
    assert_eq!(plan(10), (0, 2), "ports have room");
    assert_eq!(plan(30), (1, 1), "more than half of the ports is taken");
}

/// With scarce rows a consolidation loads free regions, so that DAGs are no longer cut; it stops when rows are
/// no longer short.
#[test]
fn consolidation_spends_a_region_to_save_rows() {
    let mut world = card(Objective::Regions);
    let rows = TableRows { chains: 64, ..TableRows::CARD };
    let mut small = World::with(32, "", &[]);
    small.catalogue = world.catalogue.clone();
    small.ledger = Ledger::with_rows(world.ledger.card().clone(), profile(32), rows);
    small.ledger.set_objective(Objective::Regions);
    for (region, nt) in (0u8..).zip(["a", "b"]) {
        small.load(region, nt);
        small.add(&format!("t0/{nt}"), &chain(nt, gbps(1))).expect("its region is loaded");
    }
    std::mem::swap(&mut world, &mut small);
    let mut placed: BTreeMap<DagName, (Dag, Mapping)> = BTreeMap::new();
    for i in 0..12 {
        let (id, dag) = (format!("t1/d{i}"), chain("a b", Bandwidth::from_mbps(10)));
        let plan = world.add(&id, &dag).expect("a place");
        assert_eq!(plan.mapping.stages.len(), 2, "cut, since regions come first");
        placed.insert(name(&id), (dag, plan.mapping));
    }
    let residents: Vec<Resident<'_>> =
        placed.iter().map(|(name, (dag, mapping))| Resident { name, dag, mapping }).collect();
    let budget = Budget { reconfigurations: 4, regions: 1, passes: 1 };
    let mut moved = |objective| {
        world.ledger.set_objective(objective);
        let found = optimize(&world.ledger, &world.catalogue, &residents, budget);
        (found.taken.len(), found.passes_before, found.passes_after)
    };
    assert_eq!(moved(Objective::Regions), (0, 24, 24), "regions first: nothing to gain");
    let (taken, before, after) = moved(Objective::Balanced);
    assert_eq!((taken, before), (1, 24));
    assert!(after < before, "{after} passes");
    assert_eq!(moved(Objective::Passes), (1, 24, 12), "all of them share the new region");
    let none = optimize(
        &world.ledger,
        &world.catalogue,
        &residents,
        Budget { reconfigurations: 0, ..budget },
    );
    assert_eq!(none.moves.len(), 0, "no load is allowed");
}
