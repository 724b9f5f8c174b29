//! Many DAGs at once.

use crate::support;
use crate::support::random::{TENANTS, dags, worlds};
use crate::support::{World, chain, gbps, name, show, validate};
use proptest::prelude::*;
use snic_domain::{Dag, DagName};
use snic_planner::{PlanBatch, PlanRequest, plan_batch};

/// Plans all, then carries out one plan after the other, each checked by the validator.
fn carry_out(world: &mut World, wanted: &[(DagName, Dag)]) -> PlanBatch {
    let requests: Vec<PlanRequest<'_>> =
        wanted.iter().map(|(name, dag)| PlanRequest { name, dag, previous: None }).collect();
    let batch = plan_batch(&world.ledger, &world.catalogue, &requests);
    assert_eq!(batch.results.len(), wanted.len());
    for (at, plan) in batch.plans() {
        validate::plan(&world.ledger, &world.catalogue, &requests[at], plan).expect("valid");
        world.apply(&wanted[at].0, plan);
    }
    batch
}

fn wanted(dags: &[(&str, &str, u64)]) -> Vec<(DagName, Dag)> {
    dags.iter().map(|(id, nts, n)| (name(id), chain(nts, gbps(*n)))).collect()
}

/// One by one the first two would have taken a region each.
#[test]
fn a_batch_finds_the_chain_that_serves_all() {
    let mut world =
        World::with(3, "a b c", &[("ab", "a b"), ("bc", "b c"), ("c", "c"), ("abc", "a b c")]);
    world.nt("a", |nt| nt.area = support::lut(300));
    let dags = wanted(&[("t0/x", "a b", 4), ("t1/y", "b c", 4), ("t2/z", "a c", 2)]);
    let batch = carry_out(&mut world, &dags);
    let loads: Vec<_> = batch.plans().flat_map(|(_, plan)| &plan.loads).collect();
    assert_eq!(loads.len(), 1);
    assert_eq!(loads[0].bitstream.as_str(), "abc");
    assert!(batch.results.iter().all(Result::is_ok));
}

#[test]
fn an_infeasible_batch_admits_as_many_dags_as_possible() {
    let mut world = World::with(1, "a b", &[("a", "a"), ("b", "b")]);
    let dags = wanted(&[("t0/x", "b", 9), ("t0/y", "a", 4), ("t1/z", "a", 4)]);
    let batch = carry_out(&mut world, &dags);
    assert!(batch.results[0].is_err(), "two are more than one");
    let placed: Vec<String> = batch.plans().map(|(_, plan)| show(&plan.mapping)).collect();
    assert_eq!(placed, ["0:0*4", "0:0*4"]);
}

/// A bitstream that a tenant shares serves all tenants once a DAG of its owner has loaded it.
#[test]
fn a_tenants_bitstream_that_is_shared_counts_for_all() {
    let mut world = World::with(2, "a b", &[("b", "b"), ("t0.ab", "a b")]);
    let mut dags =
        wanted(&[("t1/v", "b", 4), ("t1/w", "b", 3), ("t0/x", "a", 4), ("t0/y", "b", 1)]);
    for (_, dag) in &mut dags {
        let trusted_tenants = [support::tenant("t0")].into();
        let spec = snic_domain::DagSpec { trusted_tenants, ..dag.spec().clone() };
        *dag = Dag::new(spec).expect("as before");
    }
    let batch = carry_out(&mut world, &dags);
    assert!(batch.results.iter().all(Result::is_ok));
    assert_eq!(batch.plans().map(|(_, plan)| plan.loads.len()).sum::<usize>(), 1);

    // No other tenant may load it.
    dags.retain(|(name, _)| name.tenant.as_str() == "t1");
    let mut world = World::with(2, "a b", &[("t0.ab", "a b")]);
    let batch = carry_out(&mut world, &dags);
    assert!(batch.results.iter().all(Result::is_err));
    // A DAG of its owner that does not need it does not load it either.
    let mut world = World::with(2, "a b c", &[("t0.ab", "a b"), ("b", "b"), ("c", "c")]);
    dags.extend(wanted(&[("t0/z", "c", 1)]));
    let batch = carry_out(&mut world, &dags);
    assert!(batch.results.iter().all(Result::is_ok));
    let loaded = batch.plans().flat_map(|(_, plan)| &plan.loads);
    let mut loaded: Vec<&str> = loaded.map(|load| load.bitstream.as_str()).collect();
    loaded.sort_unstable();
    assert_eq!(loaded, ["b", "c"]);
}

#[test]
fn an_nt_that_nobody_has_is_refused_alone() {
    let mut world = World::with(1, "a", &[("a", "a")]);
    let dags = wanted(&[("t0/x", "none", 1), ("t0/y", "a", 1)]);
    let batch = carry_out(&mut world, &dags);
    assert_eq!(batch.order, [1]);
    let refusal = batch.results[0].as_ref().expect_err("nobody has it");
    assert!(refusal.to_string().contains("none"), "{refusal}");
}

#[test]
fn ingress_bounds_a_batch() {
    let mut world = World::with(2, "a", &[("a", "a")]);
    world.ledger = {
        let mut profile = support::profile(2);
        profile.ingress = gbps(7);
        snic_planner::Ledger::new(snic_domain::CardId::new("card-0").expect("a label"), profile)
    };
    let names: Vec<String> = (0..20).map(|i| format!("t0/d{i}")).collect();
    let dags: Vec<_> = names.iter().map(|id| (name(id), chain("a", gbps(1)))).collect();
    assert_eq!(carry_out(&mut world, &dags).order.len(), 7);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// No plan of a batch breaks a constraint, whatever was loaded before, and no fewer DAGs are
    /// admitted than one by one.
    #[test]
    fn a_batch_is_valid_and_admits_no_fewer(
        world in worlds(), random in prop::collection::vec((0usize..2, dags()), 1..7)
    ) {
        let mut world = world.build();
        world.ledger = {
            let mut profile = world.ledger.profile().clone();
            // Memory is paid by instance, which sums do not know.
            profile.memory = snic_domain::ByteSize::from_mib(1_024);
            let mut ledger = snic_planner::Ledger::new(world.ledger.card().clone(), profile);
            for (region, _) in world.ledger.profile().regions() {
                ledger.set_content(region, world.ledger.content(region), &world.catalogue).expect("unused");
            }
            ledger
        };
        let dags: Vec<_> = random
            .iter()
            .enumerate()
            .map(|(i, (tenant, dag))| (name(&format!("{}/d{i}", TENANTS[*tenant])), dag.build()))
            .collect();
        let mut single = world.clone();
        let mut admitted = 0;
        for (name, dag) in &dags {
            if let Ok(plan) = single.plan(name, dag) {
                single.apply(name, &plan);
                admitted += 1;
            }
        }
        let batch = carry_out(&mut world, &dags);
        prop_assert!(batch.order.len() >= admitted, "{} of {admitted}", batch.order.len());
    }
}

/// Updates come after all new DAGs, and an empty batch is none.
#[test]
fn updates_come_last_and_nothing_comes_of_nothing() {
    let mut world = World::with(2, "a", &[("a", "a")]);
    let empty = plan_batch(&world.ledger, &world.catalogue, &[]);
    assert_eq!((empty.results.len(), empty.order.len(), empty.plans().count()), (0, 0, 0));
    let held = world.add("t0/x", &chain("a", gbps(6))).expect("an empty card");
    let dags = wanted(&[("t0/x", "a", 10), ("t1/y", "a", 4), ("t1/z", "a", 6)]);
    let requests: Vec<PlanRequest<'_>> = dags
        .iter()
        .zip([Some(&held.mapping), None, None])
        .map(|((name, dag), previous)| PlanRequest { name, dag, previous })
        .collect();
    let batch = plan_batch(&world.ledger, &world.catalogue, &requests);
    assert_eq!(batch.order.last(), Some(&0), "{:?}", batch.order);
    assert_eq!(batch.order.len(), 3, "20 of two regions");
    for (at, plan) in batch.plans() {
        world.apply(requests[at].name, plan);
    }
    assert_eq!(world.ledger.reservations().count(), 3);
}
