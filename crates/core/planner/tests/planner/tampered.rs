//! The validator that all other tests rely on finds what is wrong with a plan.

use crate::support;
use crate::support::{World, chain, gbps, graph, name, node_id, validate};
use snic_domain::{Bandwidth, Cycles, EmbeddingKind, Form, RegionId, RejectionReason, Slot};
use snic_planner::{Plan, PlanRequest, RegionCondition};

/// `a -> b` shared and `c` loaded, in two stages.
fn planned() -> (World, snic_domain::Dag, Plan) {
    let bitstreams = [("ab", "a b"), ("c", "c"), ("t1.c", "c")];
    let mut world = World::with(3, "a b c", &bitstreams);
    world.load(0, "ab");
    let dag = graph(&["a", "b", "c"], &[(0, 1), (1, 2)], gbps(5));
    let plan = world.plan(&name("t0/d0"), &dag).expect("a place");
    assert_eq!(plan.loads.len(), 1);
    (world, dag, plan)
}

fn verdict(world: &World, dag: &snic_domain::Dag, plan: &Plan) -> Result<(), String> {
    let name = name("t0/d0");
    validate::plan(
        &world.ledger,
        &world.catalogue,
        &PlanRequest { name: &name, dag, previous: None },
        plan,
    )
}

/// Finding of the check after `change`.
fn found(change: impl FnOnce(&mut World, &mut Plan)) -> String {
    let (mut world, dag, mut plan) = planned();
    verdict(&world, &dag, &plan).expect("valid as it was");
    change(&mut world, &mut plan);
    verdict(&world, &dag, &plan).expect_err("not valid any more")
}

#[test]
fn instances_are_checked() {
    fn first(plan: &mut Plan) -> &mut snic_domain::Instance {
        &mut plan.mapping.stages[0].branches[0].instances[0]
    }
    let less = found(|_, plan| first(plan).bandwidth = gbps(4));
    assert!(less.contains("has 4 Gbit/s"), "{less}");
    let slots = found(|_, plan| first(plan).slots = vec![Slot(1), Slot(0)]);
    assert!(slots.contains("rise"), "{slots}");
    let ghost = found(|_, plan| first(plan).slots = vec![Slot(0), Slot(2)]);
    assert!(ghost.contains("slot 2 of ab"), "{ghost}");
    let region = found(|_, plan| first(plan).region = RegionId(2));
    assert!(region.contains("empty"), "{region}");
    let other = found(|_, plan| plan.mapping.stages[0].branches[0].instances.clear());
    assert!(other.contains("no instance"), "{other}");
    let grain = found(|_, plan| {
        let instance = first(plan).clone();
        first(plan).bandwidth = Bandwidth::from_bps(4_999_999_500);
        let bandwidth = Bandwidth::from_bps(500);
        plan.mapping.stages[0].branches[0]
            .instances
            .push(snic_domain::Instance { bandwidth, ..instance });
    });
    assert!(grain.contains("a share of"), "{grain}");
}

#[test]
fn order_and_stages_are_checked() {
    let order = found(|_, plan| plan.mapping.stages.reverse());
    assert!(order.contains("does not come before"), "{order}");
    let twice = found(|_, plan| {
        let stage = plan.mapping.stages[1].clone();
        plan.mapping.stages.push(stage);
    });
    assert!(twice.contains("duplicate node"), "{twice}");
    let missing = found(|_, plan| plan.mapping.stages.truncate(1));
    assert!(!missing.is_empty());
    let form = found(|_, plan| plan.mapping.form = Form::Parallel);
    assert!(form.contains("another form"), "{form}");
}

#[test]
fn loads_are_checked() {
    let unloaded = found(|_, plan| plan.loads.clear());
    assert!(unloaded.contains("empty region"), "{unloaded}");
    let foreign = found(|_, plan| {
        plan.loads[0].bitstream = support::bitstream_id("t1.c");
    });
    assert!(foreign.contains("not the tenant's"), "{foreign}");
    let idle = found(|_, plan| {
        let load = snic_planner::RegionLoad { region: RegionId(2), ..plan.loads[0].clone() };
        plan.loads.push(load);
    });
    assert!(idle.contains("for nothing"), "{idle}");
    let victim = found(|_, plan| plan.loads[0].replaces = Some(support::bitstream_id("ab")));
    assert!(victim.contains("does not hold"), "{victim}");
    let used = found(|world, plan| {
        let region = plan.loads[0].region;
        world.load(region.0, "c");
        let other = world.plan(&name("t1/d1"), &chain("c", gbps(1))).expect("shared");
        world.apply(&name("t1/d1"), &other);
    });
    assert!(used.contains("in use"), "{used}");
    let faulty = found(|world, plan| {
        world.ledger.set_condition(plan.loads[0].region, RegionCondition::Faulty);
    });
    assert!(faulty.contains("not usable"), "{faulty}");
}

#[test]
fn state_that_changed_meanwhile_is_checked() {
    let taken = found(|world, _| {
        let other = world.plan(&name("t1/d1"), &chain("a b", gbps(6))).expect("shared");
        world.apply(&name("t1/d1"), &other);
    });
    assert!(taken.contains("11 Gbit/s of 10 Gbit/s"), "{taken}");
    let hidden = found(|world, _| world.nt("a", |nt| nt.shareable = false));
    assert!(hidden.contains("hidden"), "{hidden}");
    let cordoned =
        found(|world, _| world.ledger.set_condition(RegionId(0), RegionCondition::Cordoned));
    assert!(cordoned.contains("Cordoned"), "{cordoned}");
}

#[test]
fn explanations_are_checked() {
    let nodes = found(|_, plan| plan.explanation.chains[0].nodes = vec![node_id(2)]);
    assert!(nodes.contains("other nodes"), "{nodes}");
    let headroom = found(|_, plan| {
        plan.explanation.chains[0].embeddings[0].headroom = gbps(4);
    });
    assert!(headroom.contains("headroom"), "{headroom}");
    let kind = found(|_, plan| {
        plan.explanation.chains[0].embeddings[0].kind = EmbeddingKind::VictimRegion
    });
    assert!(kind.contains("VictimRegion"), "{kind}");
    let rejected = found(|_, plan| plan.explanation.chains[0].rejected.reverse());
    assert!(rejected.contains("were rejected"), "{rejected}");
    let enough = found(|_, plan| {
        let RejectionReason::Shortage(short) = &mut plan.explanation.chains[0].rejected[0].reason
        else {
            panic!("nothing is loaded that could be shared")
        };
        short.available = 1;
    });
    assert!(enough.contains("no shortage"), "{enough}");
    let skipped = found(|_, plan| plan.explanation.chains[0].embeddings[0].skipped = 7);
    assert!(skipped.contains("7 skipped"), "{skipped}");
    let loads = found(|_, plan| {
        let embedding = &mut plan.explanation.chains[1].embeddings[0];
        (embedding.reconfigurations, embedding.new_regions) = (0, 0);
    });
    assert!(loads.contains("0 reconfigurations"), "{loads}");
    let unused = found(|_, plan| plan.explanation.chains[0].embeddings[0].unused_permille = 3);
    assert!(unused.contains("3 permille unused"), "{unused}");
    let passes = found(|_, plan| plan.explanation.chains[0].embeddings[0].passes = 1);
    assert!(passes.contains("1 passes"), "{passes}");
    let latency = found(|_, plan| plan.explanation.form.sequential = Cycles::new(79));
    assert!(latency.contains("79 cycles told"), "{latency}");
    let shares = found(|_, plan| plan.reservation = snic_planner::Reservation::default());
    assert!(shares.contains("reservation"), "{shares}");
}
