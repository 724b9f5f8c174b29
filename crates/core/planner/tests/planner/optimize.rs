//! Consolidation, and what is worth building.

use crate::support;
use std::collections::BTreeMap;

use crate::support::random::{TENANTS, dags, worlds};
use crate::support::{World, chain, gbps, name, validate};
use proptest::prelude::*;
use snic_domain::{Dag, DagName, Mapping, RegionId};
use snic_planner::{
    Budget, Consolidation, InfeasibleDag, Objective, PlanRequest, Resident, optimize, recommend,
};

const FREELY: Budget = Budget { reconfigurations: 8, regions: 1, passes: 1 };

type Deployed = BTreeMap<DagName, (Dag, Mapping)>;

fn deploy(world: &mut World, deployed: &mut Deployed, id: &str, dag: Dag) {
    let plan = world.add(id, &dag).expect("there is room");
    deployed.insert(name(id), (dag, plan.mapping));
}

fn residents(deployed: &Deployed) -> Vec<Resident<'_>> {
    deployed.iter().map(|(name, (dag, mapping))| Resident { name, dag, mapping }).collect()
}

/// Makes the moves: the ledger holds both places, then only the new one. Each is checked.
fn carry_out(world: &mut World, deployed: &mut Deployed, moves: &Consolidation) {
    for step in &moves.moves {
        let (dag, mapping) = deployed[&step.name].clone();
        let request = PlanRequest { name: &step.name, dag: &dag, previous: Some(&mapping) };
        validate::plan(&world.ledger, &world.catalogue, &request, &step.plan).expect("valid");
        let old = world.ledger.held(&step.name).cloned().expect("it has a place");
        let mut both = step.plan.clone();
        both.reservation = step.plan.reservation.max(&old);
        world.apply(&step.name, &both);
        let after = snic_planner::Plan { loads: Vec::new(), ..step.plan.clone() };
        world.apply(&step.name, &after);
        deployed.insert(step.name.clone(), (dag, step.plan.mapping.clone()));
    }
    for region in &moves.freed {
        assert!(world.ledger.is_unused(*region), "region {region} is still in use");
    }
}

fn in_use(world: &World) -> usize {
    world.ledger.profile().regions().filter(|(r, _)| !world.ledger.is_unused(*r)).count()
}

#[test]
fn gaps_left_by_deleted_dags_are_closed() {
    let mut world = World::with(3, "a", &[("a", "a")]);
    let mut deployed = Deployed::new();
    deploy(&mut world, &mut deployed, "t0/x", chain("a", gbps(6)));
    deploy(&mut world, &mut deployed, "t0/y", chain("a", gbps(6)));
    deploy(&mut world, &mut deployed, "t1/z", chain("a", gbps(3)));
    assert_eq!(in_use(&world), 2);
    world.ledger.release(&name("t0/x"));
    deployed.remove(&name("t0/x"));
    let found = optimize(&world.ledger, &world.catalogue, &residents(&deployed), FREELY);
    assert_eq!((found.moves.len(), found.freed.len(), found.reconfigurations), (1, 1, 0));
    carry_out(&mut world, &mut deployed, &found);
    assert_eq!(in_use(&world), 1);
    let again = optimize(&world.ledger, &world.catalogue, &residents(&deployed), FREELY);
    assert!(again.moves.is_empty(), "{again:?}");
}

/// One load frees two regions; a budget of none leaves things as they are, and so does a threshold.
#[test]
fn one_longer_chain_takes_the_place_of_two() {
    let mut world = World::with(4, "a b", &[("a", "a"), ("b", "b")]);
    let mut deployed = Deployed::new();
    deploy(&mut world, &mut deployed, "t0/x", chain("a", gbps(3)));
    deploy(&mut world, &mut deployed, "t1/y", chain("b", gbps(3)));
    deploy(&mut world, &mut deployed, "t1/z", chain("a b", gbps(3)));
    let run = |world: &World, deployed: &Deployed, budget| {
        optimize(&world.ledger, &world.catalogue, &residents(deployed), budget)
    };
    assert!(run(&world, &deployed, FREELY).moves.is_empty(), "there is no such bitstream");
    world.catalogue.insert_bitstream(support::bitstream("ab", "a b"));
    let none = Budget { reconfigurations: 0, ..FREELY };
    assert!(run(&world, &deployed, none).moves.is_empty());
    let two = Budget { regions: 2, ..FREELY };
    assert!(run(&world, &deployed, two).moves.is_empty(), "it frees one beyond its own");
    let found = run(&world, &deployed, FREELY);
    assert_eq!((found.freed.len(), found.taken.len(), found.reconfigurations), (2, 1, 1));
    assert_eq!((found.passes_before, found.passes_after), (4, 3));
    carry_out(&mut world, &mut deployed, &found);
    assert_eq!(in_use(&world), 1);
}

#[test]
fn a_dag_that_was_cut_passes_once_where_it_can() {
    let mut world = World::with(3, "a b", &[("a", "a"), ("b", "b"), ("ab", "a b")]);
    let mut deployed = Deployed::new();
    world.load(0, "a");
    world.load(1, "b");
    deploy(&mut world, &mut deployed, "t0/x", chain("a b", gbps(6)));
    deploy(&mut world, &mut deployed, "t0/y", chain("a b", gbps(8)));
    deploy(&mut world, &mut deployed, "t0/z", chain("a", gbps(4)));
    world.ledger.release(&name("t0/y"));
    deployed.remove(&name("t0/y"));
    let budget = Budget { regions: 8, ..FREELY };
    let found = optimize(&world.ledger, &world.catalogue, &residents(&deployed), budget);
    assert!(found.passes_after <= found.passes_before);
    carry_out(&mut world, &mut deployed, &found);
}

#[test]
fn a_sequence_that_would_admit_and_free_is_recommended() {
    let mut world = World::with(2, "a b c", &[("a", "a"), ("b", "b"), ("c", "c")]);
    let mut deployed = Deployed::new();
    deploy(&mut world, &mut deployed, "t0/x", chain("a", gbps(3)));
    deploy(&mut world, &mut deployed, "t1/y", chain("b", gbps(3)));
    let (refused_name, refused_dag) = (name("t1/z"), chain("c", gbps(3)));
    assert!(world.plan(&refused_name, &refused_dag).is_err());
    // With a third region there is room to build in: make before break.
    let mut profile = support::profile(3);
    profile.regions[2].area = support::lut(400);
    let refused = [InfeasibleDag { name: &refused_name, dag: &refused_dag }];
    let found = recommend(&world.ledger, &world.catalogue, &residents(&deployed), &refused);
    assert_eq!(found.underfilled.len(), 2);
    assert!(found.underfilled.iter().all(|u| u.fill_permille == 100), "{found:?}");
    assert!(found.sequences.is_empty(), "no region is free to change over: {found:?}");

    let mut wider = World::new(profile);
    wider.catalogue = world.catalogue.clone();
    let mut deployed = Deployed::new();
    deploy(&mut wider, &mut deployed, "t0/x", chain("a", gbps(3)));
    deploy(&mut wider, &mut deployed, "t1/y", chain("b", gbps(3)));
    let found = recommend(&wider.ledger, &wider.catalogue, &residents(&deployed), &[]);
    let best = &found.sequences[0];
    let mut nts: Vec<&str> = best.nts.iter().map(|nt| nt.as_str()).collect();
    nts.sort_unstable();
    assert_eq!((nts, best.regions_freed), (vec!["a", "b"], 1), "in either order");
    assert_eq!(best.area, support::lut(200));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Every state on the way is valid; regions in use never become more, and a second pass over
    /// the result frees nothing that the budget would have allowed at once.
    #[test]
    fn every_step_of_a_consolidation_is_valid(
        world in worlds(),
        random in prop::collection::vec((0usize..2, dags(), prop::bool::weighted(0.4)), 1..8),
        loads in 0u32..3,
    ) {
        let mut world = world.build();
        world.ledger.set_objective(Objective::Regions);
        let mut deployed = Deployed::new();
        for (i, (tenant, dag, _)) in random.iter().enumerate() {
            let (name, dag) = (name(&format!("{}/d{i}", TENANTS[*tenant])), dag.build());
            if let Ok(plan) = world.plan(&name, &dag) {
                world.apply(&name, &plan);
                deployed.insert(name, (dag, plan.mapping));
            }
        }
        for (i, (tenant, _, leaves)) in random.iter().enumerate() {
            let name = name(&format!("{}/d{i}", TENANTS[*tenant]));
            if *leaves && deployed.remove(&name).is_some() {
                world.ledger.release(&name);
            }
        }
        world.ledger.set_condition(RegionId(0), snic_planner::RegionCondition::Usable);
        let budget = Budget { reconfigurations: loads, ..FREELY };
        let before = in_use(&world);
        let found = optimize(&world.ledger, &world.catalogue, &residents(&deployed), budget);
        prop_assert_eq!(&found, &optimize(&world.ledger, &world.catalogue, &residents(&deployed), budget));
        prop_assert!(found.reconfigurations <= loads);
        prop_assert!(found.passes_after <= found.passes_before || !found.freed.is_empty());
        carry_out(&mut world, &mut deployed, &found);
        prop_assert_eq!(in_use(&world) + found.freed.len(), before + found.taken.len());
        prop_assert!(in_use(&world) <= before);
    }
}
