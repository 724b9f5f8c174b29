//! Tiny cards, on which every set of loads can be tried: what is possible at all is admitted.
//!
//! With cuts allowed anywhere, a DAG has a place exactly when some choice of loads leaves every NT
//! with its bandwidth for every node that runs it: more is not needed, since each node can be a
//! part of its own, and less does not do. Whole chains are compared the same way.

use crate::support::brute::{fewest_parts, loads_needed, loads_needed_whole};
use crate::support::name;
use crate::support::random::{RandomDag, TENANTS, dags, worlds};
use proptest::prelude::*;
use snic_planner::Objective;

fn distinct<T: Ord>(items: &[T]) -> bool {
    items.iter().collect::<std::collections::BTreeSet<_>>().len() == items.len()
}

/// `PROPTEST_CASES` may ask for more.
fn config(cases: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: cases.max(config.cases), ..config }
}

proptest! {
    #![proptest_config(config(2000))]

    /// Online: DAGs come and stay, and each that could have a place gets one.
    #[test]
    fn every_feasible_dag_is_admitted(
        mut world in worlds(), dags in prop::collection::vec((0usize..2, dags()), 1..6)
    ) {
        // Memory makes feasibility more than a sum for each NT; it has tests of its own.
        world.memory_mib = 1_024;
        let mut world = world.build();
        world.ledger.set_objective(Objective::Regions);
        for (i, (tenant, random)) in dags.iter().enumerate() {
            let name = name(&format!("{}/d{i}", TENANTS[*tenant]));
            let possible = loads_needed(&world, &name, random);
            let plan = world.plan(&name, &random.build());
            prop_assert_eq!(plan.is_ok(), possible.is_some(), "{:?}: {:?}", random, plan);
            if let Ok(plan) = plan {
                prop_assert_eq!(Some(plan.loads.len()), possible, "no region too many");
                world.apply(&name, &plan);
            }
        }
    }

    /// A chain takes no region more than it needs, and is not cut where a whole one needs no more.
    #[test]
    fn a_chain_takes_the_fewest_regions_and_then_the_fewest_passes(
        mut world in worlds(), dags in prop::collection::vec((0usize..2, dags()), 1..5)
    ) {
        world.memory_mib = 1_024;
        for bitstream in &mut world.bitstreams {
            let mut seen = std::collections::BTreeSet::new();
            bitstream.nts.retain(|nt| seen.insert(*nt));
        }
        let mut world = world.build();
        world.ledger.set_objective(Objective::Regions);
        for (i, (tenant, random)) in dags.iter().enumerate() {
            let name = name(&format!("{}/d{i}", TENANTS[*tenant]));
            let chain = RandomDag { edges: Vec::new(), ..random.clone() };
            let Ok(plan) = world.plan(&name, &chain.build()) else { continue };
            prop_assert_eq!(Some(plan.loads.len()), loads_needed(&world, &name, &chain));
            if distinct(&chain.nts) {
                let whole = loads_needed_whole(&world, &name, &chain);
                let no_more = whole.is_some_and(|loads| loads <= plan.loads.len());
                prop_assert_eq!(plan.mapping.stages.len() == 1, no_more, "{:?}", plan);
            }
            world.apply(&name, &plan);
        }
    }

    /// Where passes come first, a chain is cut as little as any choice of loads allows, and then takes the
    /// fewest regions; and still whatever has a place is admitted.
    #[test]
    fn a_chain_takes_the_fewest_passes_and_then_the_fewest_regions(
        mut world in worlds(), dags in prop::collection::vec((0usize..2, dags()), 1..5)
    ) {
        world.memory_mib = 1_024;
        for bitstream in &mut world.bitstreams {
            let mut seen = std::collections::BTreeSet::new();
            bitstream.nts.retain(|nt| seen.insert(*nt));
        }
        let mut world = world.build();
        world.ledger.set_objective(Objective::Passes);
        for (i, (tenant, random)) in dags.iter().enumerate() {
            let name = name(&format!("{}/d{i}", TENANTS[*tenant]));
            let chain = RandomDag { edges: Vec::new(), ..random.clone() };
            let plan = world.plan(&name, &chain.build());
            let possible = loads_needed(&world, &name, &chain);
            prop_assert_eq!(plan.is_ok(), possible.is_some(), "{:?}: {:?}", chain, plan);
            let Ok(plan) = plan else { continue };
            if distinct(&chain.nts) {
                let best = fewest_parts(&world, &name, &chain);
                let cost = (plan.mapping.stages.len(), plan.loads.len());
                prop_assert_eq!(Some(cost), best, "{:?}", plan);
            }
            world.apply(&name, &plan);
        }
    }

    /// In the balanced order each plan is that of one of the others.
    #[test]
    fn a_balanced_plan_is_one_of_the_others(
        world in worlds(), dags in prop::collection::vec((0usize..2, dags()), 1..6)
    ) {
        let mut world = world.build();
        for (i, (tenant, random)) in dags.iter().enumerate() {
            let name = name(&format!("{}/d{i}", TENANTS[*tenant]));
            let [regions, passes] = [Objective::Regions, Objective::Passes].map(|objective| {
                let mut world = world.clone();
                world.ledger.set_objective(objective);
                world.plan(&name, &random.build())
            });
            let plan = world.plan(&name, &random.build());
            prop_assert!(plan == regions || plan == passes, "{plan:?}");
            if let Ok(plan) = plan {
                world.apply(&name, &plan);
            }
        }
    }
}
