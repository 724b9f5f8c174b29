//! Properties of every plan, in random worlds. [`World::plan`] and [`World::update`] run the
//! independent validator on each plan, and [`World::apply`] the ledger's own check.

use crate::support;
use std::collections::BTreeMap;

use crate::support::World;
use crate::support::random::{Event, TENANTS, dags, events, worlds};
use proptest::prelude::*;
use snic_domain::{DagName, Mapping, RegionId};
use snic_planner::{PlanRequest, RegionCondition, plan};

fn name(tenant: usize, dag: usize) -> DagName {
    support::name(&format!("{}/d{dag}", TENANTS[tenant]))
}

const CONDITIONS: [RegionCondition; 4] = [
    RegionCondition::Usable,
    RegionCondition::Cordoned,
    RegionCondition::Faulty,
    RegionCondition::Unknown,
];

/// One event, as a control plane would carry it out: an update holds both mappings at first.
fn step(world: &mut World, mappings: &mut BTreeMap<DagName, Mapping>, event: &Event) {
    match event {
        Event::Submit(tenant, dag, random) => {
            let (name, dag) = (name(*tenant, *dag), random.build());
            let Some(previous) = mappings.get(&name) else {
                if let Ok(plan) = world.plan(&name, &dag) {
                    world.apply(&name, &plan);
                    mappings.insert(name, plan.mapping);
                }
                return;
            };
            if let Ok(plan) = world.update(&name, &dag, previous) {
                let old = world.ledger.held(&name).cloned().expect("it has a place");
                let mut both = plan.clone();
                both.reservation = plan.reservation.max(&old);
                world.apply(&name, &both);
                world.apply(&name, &snic_planner::Plan { loads: Vec::new(), ..plan.clone() });
                mappings.insert(name, plan.mapping);
            }
        }
        Event::Delete(tenant, dag) => {
            let name = name(*tenant, *dag);
            let held = world.ledger.release(&name);
            assert_eq!(held.is_some(), mappings.remove(&name).is_some());
        }
        Event::Condition(region, condition) => {
            world.ledger.set_condition(RegionId(*region), CONDITIONS[*condition]);
        }
    }
    world.ledger.check().expect("a ledger that adds up");
}

fn after(world: &support::random::RandomWorld, events: &[Event]) -> World {
    let mut world = world.build();
    let mut mappings = BTreeMap::new();
    for event in events {
        step(&mut world, &mut mappings, event);
    }
    world
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(500))]

    /// No plan breaks a constraint, at any step of any history.
    #[test]
    fn every_plan_is_valid(world in worlds(), events in events(12)) {
        after(&world, &events);
    }

    #[test]
    fn the_same_input_gives_the_same_plan(world in worlds(), events in events(6), dag in dags()) {
        let (first, second) = (after(&world, &events), after(&world, &events));
        let (name, dag) = (name(0, 9), dag.build());
        prop_assert_eq!(&first.ledger, &second.ledger);
        let once = first.plan(&name, &dag);
        prop_assert_eq!(&once, &second.plan(&name, &dag));
        prop_assert_eq!(&once, &first.plan(&name, &dag));
        // Nor does it matter in which order the catalogue was filled.
        let mut refilled = snic_planner::PlanCatalogue::new();
        let bitstreams: Vec<_> = first.catalogue.bitstreams().cloned().collect();
        for bitstream in bitstreams.into_iter().rev() {
            refilled.insert_bitstream(bitstream);
        }
        for nt in first.catalogue.nts() {
            refilled.insert_nt(nt.clone());
        }
        let request = PlanRequest { name: &name, dag: &dag, previous: None };
        prop_assert_eq!(once, plan(&first.ledger, &refilled, &request));
    }

    /// Removing a DAG and adding it again restores everything, to the last bit.
    #[test]
    fn add_and_remove_restore_the_ledger(
        world in worlds(), events in events(6), dag in dags()
    ) {
        let mut world = after(&world, &events);
        let (name, dag) = (name(0, 9), dag.build());
        let Ok(plan) = world.plan(&name, &dag) else { return Ok(()) };
        for load in &plan.loads {
            let content = world.catalogue.bitstream(&load.bitstream).cloned();
            world.ledger.set_content(load.region, content.as_ref(), &world.catalogue).expect("free");
        }
        let before = world.ledger.clone();
        world.ledger.hold(&name, plan.reservation.clone()).expect("a plan never overbooks");
        let with = world.ledger.clone();
        prop_assert_eq!(world.ledger.release(&name), Some(plan.reservation.clone()));
        prop_assert_eq!(&world.ledger, &before);
        world.ledger.hold(&name, plan.reservation.clone()).expect("as before");
        prop_assert_eq!(&world.ledger, &with);
        // Holding a reservation again only replaces it; one that does not fit changes nothing.
        world.ledger.hold(&name, plan.reservation).expect("in place of itself");
        prop_assert_eq!(&world.ledger, &with);
    }

    /// A DAG that has a place keeps one when it is planned again: at worst, the one it has.
    #[test]
    fn a_dag_that_has_a_place_finds_one_again(
        world in worlds(), events in events(6), dag in dags()
    ) {
        let mut world = after(&world, &events);
        let (name, dag) = (name(0, 9), dag.build());
        let Ok(plan) = world.plan(&name, &dag) else { return Ok(()) };
        world.apply(&name, &plan);
        let again = world.update(&name, &dag, &plan.mapping).expect("the place it has");
        prop_assert!(again.loads.is_empty(), "{again:?}");
    }

    /// A refusal names what is short, and nothing that belongs to another tenant.
    #[test]
    fn a_refusal_has_numbers_and_no_names(world in worlds(), events in events(8), dag in dags()) {
        let world = after(&world, &events);
        let (name, random) = (name(0, 9), dag);
        let Err(refusal) = world.plan(&name, &random.build()) else { return Ok(()) };
        prop_assert!(!refusal.shortages.is_empty());
        for shortage in &refusal.shortages {
            prop_assert!(shortage.required > shortage.available, "{shortage}");
            let own = random.nt_ids();
            if !own.iter().any(|id| id.as_str() == "t1.x") {
                prop_assert!(!shortage.to_string().contains("t1"), "{shortage}");
            }
            prop_assert!(!shortage.to_string().contains("t1.b"), "{shortage}");
        }
    }
}

/// The random worlds cover what they should: every kind of embedding, cuts, several instances,
/// rejections.
#[test]
fn random_worlds_reach_every_way() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut count = |what: String| *seen.entry(what).or_default() += 1;
    for _ in 0..500 {
        let tree = (worlds(), prop::collection::vec(dags(), 6)).new_tree(&mut runner);
        let (world, dags) = tree.expect("nothing is filtered").current();
        let mut world = world.build();
        for (i, random) in dags.iter().enumerate() {
            let name = name(i % 2, i);
            match world.plan(&name, &random.build()) {
                Ok(plan) => {
                    for chain in &plan.explanation.chains {
                        chain.embeddings.iter().for_each(|e| count(format!("{:?}", e.kind)));
                        if chain.embeddings.len() > 1 {
                            count("several instances".into());
                        }
                        for rejection in &chain.rejected {
                            let why = match support::why(rejection) {
                                Ok((resource, ..)) => resource.to_string(),
                                Err(_) => "its cost".into(),
                            };
                            count(format!("{:?} for {why}", rejection.kind));
                        }
                    }
                    count(format!("{:?}", plan.mapping.form));
                    world.apply(&name, &plan);
                }
                Err(refusal) => count(format!("refused: {}", refusal.shortages[0].resource)),
            }
        }
    }
    for what in [
        "Shared",
        "FreeRegion",
        "VictimRegion",
        "Split",
        "several instances",
        "Sequential",
        "Parallel",
        "Shared for NT bandwidth",
        "FreeRegion for bitstreams",
        "refused: NT bandwidth",
        "refused: on-board memory",
        "refused: ingress bandwidth",
    ] {
        assert!(seen.get(what).is_some_and(|n| *n >= 5), "{what} is rare in {seen:#?}");
    }
}
