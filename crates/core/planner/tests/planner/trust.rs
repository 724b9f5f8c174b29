//! No way of placing a DAG leads its packets through an image that it does not trust, though it is loaded and free:
//! t9 signed it with its own key, shares it, and does more in one region than the provider's images do.

use crate::support::{World, bitstream, bitstream_id, chain, gbps, name, tenant, validate};
use proptest::prelude::*;
use snic_domain::{Bitstream, Dag, DagSpec, Mapping, Signer};
use snic_planner::{Budget, PlanRequest, Resident, optimize, plan_batch};

/// A stranger's image of `a b` in region 0, loaded and free; the provider's of `a` and of `b` beside it.
fn world(signed_by: Option<Signer>) -> World {
    let mut world = World::with(4, "a b", &[("a", "a"), ("b", "b"), ("t9.ab", "a b")]);
    world.bitstream("t9.ab", |image| image.signed_by = signed_by);
    world.load(0, "t9.ab");
    world.load(1, "a");
    world
}

fn own_key() -> Option<Signer> {
    Some(Signer::Owner("t9-2026".into()))
}

fn provider_key() -> Option<Signer> {
    Some(Signer::Provider("builds-2026".into()))
}

fn trusting(dag: &Dag, whom: &str) -> Dag {
    let trusted_tenants = [tenant(whom)].into();
    Dag::new(DagSpec { trusted_tenants, ..dag.spec().clone() }).expect("as before")
}

fn passes_stranger(mapping: &Mapping) -> bool {
    mapping.instances().any(|instance| instance.bitstream == bitstream_id("t9.ab"))
}

/// A sole DAG: with the image it takes one pass and no load, without it two of each.
#[test]
fn a_new_dag_avoids_an_image_that_its_owner_signed() {
    let dag = chain("a b", gbps(2));
    for signed_by in [None, own_key()] {
        let plan = world(signed_by).plan(&name("t0/x"), &dag).expect("the provider's are there");
        assert!(!passes_stranger(&plan.mapping), "{:?}", plan.mapping);
    }
    for (signed_by, dag) in [
        (provider_key(), dag.clone()),
        (own_key(), trusting(&dag, "t9")),
        (None, trusting(&dag, "t9")),
    ] {
        let plan = world(signed_by).plan(&name("t0/x"), &dag).expect("a place");
        assert!(passes_stranger(&plan.mapping), "or the test shows nothing: {:?}", plan.mapping);
    }
    let other = trusting(&dag, "t8");
    let plan = world(own_key()).plan(&name("t0/x"), &other).expect("a place");
    assert!(!passes_stranger(&plan.mapping), "t8 is not t9");
}

/// Nowhere else: it is refused, with a reason that names nobody.
#[test]
fn where_there_is_no_other_image_the_dag_is_refused() {
    let mut world = World::with(1, "a", &[("t9.a", "a")]);
    world.bitstream("t9.a", |image| image.signed_by = own_key());
    world.load(0, "t9.a");
    let refused = world.plan(&name("t0/x"), &chain("a", gbps(1))).expect_err("only a stranger's");
    assert!(!refused.to_string().contains("t9"), "{refused}");
}

#[test]
fn a_batch_avoids_it() {
    let world = world(own_key());
    let names: Vec<_> = (0..4).map(|at| name(&format!("t{at}/x"))).collect();
    let dag = chain("a b", gbps(2));
    let requests: Vec<PlanRequest<'_>> =
        names.iter().map(|name| PlanRequest { name, dag: &dag, previous: None }).collect();
    let batch = plan_batch(&world.ledger, &world.catalogue, &requests);
    assert!(batch.plans().next().is_some(), "some have a place");
    assert!(batch.plans().all(|(_, plan)| !passes_stranger(&plan.mapping)));
}

/// An update that names the owner no more leaves the image, though what serves is there.
#[test]
fn an_update_that_trusts_nobody_any_more_leaves_it() {
    let mut world = world(own_key());
    let dag = chain("a b", gbps(2));
    let first = world.add("t0/x", &trusting(&dag, "t9")).expect("a place");
    assert!(passes_stranger(&first.mapping));
    let next = world.update(&name("t0/x"), &dag, &first.mapping).expect("the provider's");
    assert!(!passes_stranger(&next.mapping), "{:?}", next.mapping);
}

/// Moving both DAGs into the image would free two regions.
#[test]
fn consolidation_avoids_it() {
    let mut world = world(own_key());
    let [one, other] = [("t0/x", "a"), ("t1/y", "b")].map(|(id, nts)| {
        let dag = chain(nts, gbps(2));
        let plan = world.add(id, &dag).expect("the provider's");
        (name(id), dag, plan.mapping)
    });
    let residents = [&one, &other].map(|(name, dag, mapping)| Resident { name, dag, mapping });
    let freely = Budget { reconfigurations: 8, regions: 1, passes: 1 };
    let found = optimize(&world.ledger, &world.catalogue, &residents, freely);
    for step in &found.moves {
        assert!(!passes_stranger(&step.plan.mapping), "{step:?}");
    }
}

fn signer() -> impl Strategy<Value = Option<Signer>> {
    prop_oneof![Just(None), Just(own_key()), Just(provider_key())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// One image is loaded, and nothing else exists: a DAG is placed there exactly if the oracle lets it pass or it may
    /// load the image itself.
    #[test]
    fn an_image_serves_whom_the_table_says(
        owner in prop::sample::select(vec!["", "t0.", "t1."]),
        is_shared: bool,
        signed_by in signer(),
        dag_of in prop::sample::select(vec!["t0", "t1"]),
        named in prop::collection::btree_set(prop::sample::select(vec!["t0", "t1"]), 0..3),
    ) {
        let mut world = World::with(1, "a", &[]);
        // What the controller makes of the provider's: they are always shared.
        let shareable = is_shared || owner.is_empty();
        let image = bitstream(&format!("{owner}i"), "a");
        let image = Bitstream { shareable, signed_by, ..image };
        world.catalogue.insert_bitstream(image.clone());
        world.load(0, image.id.as_str());
        let trusted_tenants = named.into_iter().map(tenant).collect();
        let dag = chain("a", gbps(1));
        let dag = Dag::new(DagSpec { trusted_tenants, ..dag.spec().clone() }).expect("as before");
        let placed = world.plan(&name(&format!("{dag_of}/x")), &dag).is_ok();
        prop_assert_eq!(placed, validate::may_pass(&tenant(dag_of), dag.spec(), &image));
    }
}
