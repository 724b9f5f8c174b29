//! DAGs that are created together: all or none, or as many as have a place; planned elsewhere, checked when
//! the plan is carried out.

use std::collections::BTreeSet;

use proptest::prelude::*;
use snic_controller::{
    AdmissionPolicy, BatchPlan, Command, ControlError, ControllerSettings, DagBatch, NewDag,
    OperationView, Reply, Request,
};
use snic_domain::{CardId, DagId, DagSpec, DagState, QuotaPatch, limits};

use crate::elastic::{deployed, holds, period, settings};
use crate::support::things::{caller, card_id, create, dag, delete, nt_id, spec, tenant_id};
use crate::support::{Answer, World, only_replies, operator};

/// Chains of `acme`, each with its Gbit/s.
fn batch(dags: &[(&str, &str, u64)]) -> DagBatch {
    let new = |(id, chain, gbps): &(&str, &str, u64)| NewDag {
        id: DagId::new(id).expect("a label"),
        spec: spec(chain, *gbps),
    };
    DagBatch {
        tenant: tenant_id("acme"),
        dags: dags.iter().map(new).collect(),
        allow_partial: false,
        validate_only: false,
    }
}

fn partial(dags: &[(&str, &str, u64)]) -> DagBatch {
    DagBatch { allow_partial: true, ..batch(dags) }
}

impl World {
    fn plan(&self, batch: &DagBatch) -> BatchPlan {
        self.controller.batch_snapshot(batch).plan()
    }

    /// Asks for a batch, planned on the cards as they are.
    fn ask_batch(&mut self, batch: &DagBatch) -> Answer {
        let plan = self.plan(batch);
        self.ask(Command::CreateDags { batch: batch.clone(), plan })
    }
}

fn results(answer: Answer) -> Vec<Result<Reply, ControlError>> {
    match answer {
        Ok(Reply::Batch(results)) => results,
        other => panic!("not a batch: {other:?}"),
    }
}

/// The operations of a batch of which every DAG is created.
fn operations(answer: Answer) -> Vec<OperationView> {
    let of = |result| match result {
        Ok(Reply::Operation(view)) => view,
        other => panic!("not an operation: {other:?}"),
    };
    results(answer).into_iter().map(of).collect()
}

/// The first DAG that failed, how many did, and why that one.
fn failure(answer: Answer) -> (usize, usize, ControlError) {
    match answer {
        Err(ControlError::InBatch { index, failed, error, .. }) => (index, failed, *error),
        other => panic!("no DAG is named: {other:?}"),
    }
}

/// Seven NTs for four regions: `nat` to `aes` share one.
const SEVEN: [(&str, &str, u64); 7] = [
    ("a", "nat", 2),
    ("b", "firewall", 2),
    ("c", "cache", 2),
    ("d", "aes", 2),
    ("e", "lb", 2),
    ("f", "vpn", 2),
    ("g", "pad", 2),
];

#[test]
fn all_are_created_and_each_has_an_operation() {
    let mut world = World::new();
    let begun = operations(world.ask_batch(&batch(&SEVEN)));
    assert_eq!(begun.len(), SEVEN.len());
    world.settle();
    for ((id, ..), begun) in SEVEN.iter().zip(begun) {
        assert_eq!(world.state(&format!("acme/{id}")), DagState::Ready);
        assert_eq!(world.ended(&begun.record.id), Some(Ok(())), "{id}");
    }
}

/// The first of three takes regions that two others could have shared.
#[test]
fn together_more_dags_find_a_place_than_one_by_one() {
    let dags = [("a", "lb vpn", 28), ("b", "cache lb", 21), ("c", "aes lb", 13)];
    let mut world = World::new();
    let one_by_one = dags.map(|(id, chain, gbps)| {
        world.ask(create(&format!("acme/{id}"), spec(chain, gbps))).is_ok()
    });
    assert_eq!(one_by_one, [true, false, false]);
    let mut world = World::new();
    let results = results(world.ask_batch(&partial(&dags)));
    let together: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(together, [false, true, true]);
}

#[test]
fn one_that_has_no_place_keeps_the_others_out_too() {
    let mut world = World::new();
    world.deploy("beta/lb", "lb", 40);
    let before = (world.durable.clone(), world.reserved());
    let wide = [("a", "nat", 1), ("b", "lb", 121), ("c", "lb", 122), ("d", "vpn", 1)];
    let (index, failed, error) = failure(world.ask_batch(&batch(&wide)));
    assert_eq!((index, failed), (1, 2));
    assert!(matches!(error, ControlError::Refused(_)), "{error:?}");
    let text = world.ask_batch(&batch(&wide)).expect_err("as before").to_string();
    assert!(text.starts_with("requests[1]: ") && text.contains("2 of 4 DAGs"), "{text}");
    assert_eq!(world.reserved(), before.1);
    assert_eq!(world.tenant("acme").usage.dags, 0);
    let mut records = world.durable.clone();
    records.retain(|key, _| !key.starts_with("refused/"));
    let mut known = before.0;
    known.retain(|key, _| !key.starts_with("refused/"));
    assert_eq!(records, known, "but for what is worth building nothing is remembered");
}

#[test]
fn where_parts_will_do_the_others_are_created() {
    let mut world = World::new();
    let wide = [("a", "nat", 1), ("b", "lb", 121), ("c", "none", 1), ("d", "vpn", 1)];
    let results = results(world.ask_batch(&partial(&wide)));
    let created: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(created, [true, false, false, true]);
    assert!(matches!(&results[1], Err(ControlError::Refused(_))), "{:?}", results[1]);
    let Err(ControlError::Invalid(fields)) = &results[2] else { panic!("{:?}", results[2]) };
    assert_eq!(fields[0].field, "dag.nodes[0].nt_type");
    world.settle();
    assert_eq!(["a", "d"].map(|id| world.state(&format!("acme/{id}"))), [DagState::Ready; 2]);
    assert_eq!(world.tenant("acme").usage.dags, 2);
}

#[test]
fn a_dry_run_says_the_same_and_changes_nothing() {
    let mut world = World::new();
    let dry = DagBatch { validate_only: true, ..batch(&SEVEN) };
    let plan = world.plan(&dry);
    let shown = results(world.ask(Command::CreateDags { batch: dry.clone(), plan }));
    assert!(only_replies(&world.tx), "{:?}", world.tx);
    let mappings: Vec<_> = shown
        .into_iter()
        .map(|result| match result {
            Ok(Reply::WouldBe(view)) => (view.name.clone(), view.mapping),
            other => panic!("{other:?}"),
        })
        .collect();
    operations(world.ask_batch(&batch(&SEVEN)));
    for (name, mapping) in mappings {
        assert_eq!(world.controller.dag_view(&name).expect("created").mapping, mapping, "{name}");
    }
    let refused = DagBatch { validate_only: true, ..batch(&[("x", "lb", 121)]) };
    let (index, _, error) = failure(world.ask_batch(&refused));
    assert!(index == 0 && matches!(error, ControlError::Refused(_)), "{error:?}");
    assert!(only_replies(&world.tx), "a dry run is not remembered: {:?}", world.tx);
}

#[test]
fn a_plan_for_cards_that_have_changed_is_not_carried_out() {
    let mut world = World::new();
    let asked = batch(&[("a", "lb", 30), ("b", "vpn", 30), ("c", "pad", 30)]);
    let plan = world.plan(&asked);
    // It takes regions that the plan loads.
    world.ask(create("beta/wide", spec("lb", 80))).expect("there is room");
    let outdated = world.ask(Command::CreateDags { batch: asked.clone(), plan });
    assert_eq!(outdated, Err(ControlError::Outdated));
    assert!(only_replies(&world.tx), "nothing has changed: {:?}", world.tx);
    let (_, failed, error) = failure(world.ask_batch(&asked));
    assert!(failed > 0 && matches!(error, ControlError::Refused(_)), "{error:?}");
}

#[test]
fn a_plan_that_fits_all_the_same_is_carried_out() {
    let mut world = World::new();
    let asked = batch(&[("a", "nat", 5), ("b", "firewall", 5)]);
    world.deploy("beta/wide", "nat", 5);
    let plan = world.plan(&asked);
    world.ask(delete("beta/wide")).expect("it is there");
    world.ask(create("beta/other", spec("nat", 1))).expect("there is room");
    operations(world.ask(Command::CreateDags { batch: asked, plan }));
    world.settle();
    assert_eq!(["a", "b"].map(|id| world.state(&format!("acme/{id}"))), [DagState::Ready; 2]);
}

#[test]
fn a_plan_is_outdated_when_other_dags_pass_the_checks() {
    let mut world = World::new();
    let asked = partial(&[("a", "nat", 1), ("b", "nat", 1)]);
    let plan = world.plan(&asked);
    world.ask(create("acme/b", spec("nat", 1))).expect("there is room");
    let taken = world.ask(Command::CreateDags { batch: asked.clone(), plan });
    assert_eq!(taken, Err(ControlError::Outdated), "it was planned and exists now");
    let plan = world.plan(&asked);
    world.ask(delete("acme/b")).expect("it is there");
    world.settle();
    let free = world.ask(Command::CreateDags { batch: asked.clone(), plan });
    assert_eq!(free, Err(ControlError::Outdated), "it existed and may be created now");
    assert!(results(world.ask_batch(&asked)).iter().all(Result::is_ok));
}

#[test]
fn a_plan_knows_the_policy_of_today() {
    let mut world = World::new();
    let asked = batch(&[("a", "nat", 8), ("b", "lb", 8)]);
    let plan = world.plan(&asked);
    let admission = AdmissionPolicy { ingress_percent: 10, ..AdmissionPolicy::default() };
    settings(&mut world, ControllerSettings { admission, ..crate::support::settings() });
    let outdated = world.ask(Command::CreateDags { batch: asked.clone(), plan });
    assert_eq!(outdated, Err(ControlError::Outdated));
    let (index, failed, _) = failure(world.ask_batch(&asked));
    assert_eq!((index, failed), (1, 1), "the first one is within a tenth");
}

#[test]
fn a_dag_of_a_batch_whose_tasks_would_do_nothing_is_refused_if_it_says_so() {
    let mut world = World::new();
    world.card().passes_through = true;
    world.lose_card();
    world.appear(&card_id());
    world.settle();
    let mut asked = partial(&[("a", "nat", 1), ("b", "lb", 1)]);
    asked.dags[0].spec.refuse_idle_tasks = true;
    let answers = results(world.ask_batch(&asked));
    assert!(matches!(answers[0], Err(ControlError::Precondition { .. })), "{answers:?}");
    assert!(answers[1].is_ok(), "it is warned of");
    let mut asked = batch(&[("c", "lb", 1), ("d", "nat", 1)]);
    asked.dags[1].spec.refuse_idle_tasks = true;
    let (index, failed, _) = failure(world.ask_batch(&asked));
    assert_eq!((index, failed), (1, 1));
    assert!(world.controller.dag_view(&dag("acme/c")).is_none(), "all or none");
}

#[test]
fn burst_capacity_makes_room_for_a_batch() {
    let mut world = deployed(&["acme/web"]);
    period(&mut world, &[("acme/web", 40)]);
    assert_eq!((holds(&world, "acme/web"), world.regions_of("acme/web").len()), (40, 4));
    let stale = world.plan(&batch(&[("a", "lb", 5), ("b", "vpn", 5)]));
    operations(world.ask_batch(&batch(&[("a", "lb", 5), ("b", "vpn", 5)])));
    let left = holds(&world, "acme/web");
    assert!(left < 40, "it holds {left}");
    world.settle();
    assert_eq!(["a", "b"].map(|id| world.state(&format!("acme/{id}"))), [DagState::Ready; 2]);
    // Whoever gave back has nothing more to give under that plan.
    let asked = batch(&[("c", "lb", 5), ("d", "vpn", 5)]);
    let again = world.ask(Command::CreateDags { batch: asked, plan: stale });
    assert_eq!(again, Err(ControlError::Outdated));
}

#[test]
fn a_repeated_request_is_answered_alike() {
    let mut world = World::new();
    let asked = partial(&[("a", "nat", 1), ("b", "lb", 121), ("c", "vpn", 1)]);
    let command =
        |world: &World| Command::CreateDags { batch: asked.clone(), plan: world.plan(&asked) };
    let first = command(&world);
    let first = results(world.ask_once("r1", first));
    world.settle();
    world.restart();
    world.settle();
    let again = command(&world);
    let again = results(world.ask_once("r1", again));
    assert!(only_replies(&world.tx), "nothing is done twice: {:?}", world.tx);
    let ids = |results: &[Result<Reply, ControlError>]| -> Vec<_> {
        let id = |result: &Result<Reply, ControlError>| match result {
            Ok(Reply::Operation(view)) => Ok(view.record.id.clone()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.clone()),
        };
        results.iter().map(id).collect()
    };
    assert_eq!(ids(&again), ids(&first));
    let other = DagBatch { allow_partial: false, ..asked.clone() };
    let plan = world.plan(&other);
    let reused = world.ask_once("r1", Command::CreateDags { batch: other, plan });
    assert_eq!(reused, Err(ControlError::RequestIdReused { id: "r1".into() }));
}

#[test]
fn quotas_count_what_comes_before_in_the_batch() {
    let mut world = World::new();
    let quota = QuotaPatch { dags_max: Some(2), ..QuotaPatch::default() };
    let id = tenant_id("acme");
    world
        .ask(Command::UpdateTenant {
            id,
            patch: snic_domain::TenantPatch { quota: Some(quota), ..Default::default() },
            etag: None,
        })
        .expect("it exists");
    let three = [("a", "nat", 1), ("b", "nat", 1), ("c", "nat", 1)];
    let (index, failed, error) = failure(world.ask_batch(&batch(&three)));
    assert_eq!((index, failed), (2, 1));
    let ControlError::Quota { quota, limit, asked, .. } = error else { panic!("{error:?}") };
    assert_eq!((quota.as_str(), limit.as_str(), asked.as_str()), ("dags_max", "2", "3"));
    let created = results(world.ask_batch(&partial(&three)));
    assert_eq!(created.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn memory_of_an_nt_counts_once_and_operations_each() {
    let mut world = World::new();
    let mib = |mib: u64| snic_domain::ByteSize::from_mib(mib);
    let quota =
        QuotaPatch { memory_max: Some(mib(2)), operations_max: Some(3), ..QuotaPatch::default() };
    let id = tenant_id("acme");
    world
        .ask(Command::UpdateTenant {
            id,
            patch: snic_domain::TenantPatch { quota: Some(quota), ..Default::default() },
            etag: None,
        })
        .expect("it exists");
    // `nat` takes 2 MiB, however many DAGs of the tenant have it.
    let asked = partial(&[
        ("a", "nat", 1),
        ("b", "lb", 1),
        ("c", "nat", 1),
        ("d", "nat", 1),
        ("e", "nat", 1),
    ]);
    let results = results(world.ask_batch(&asked));
    let quotas: Vec<_> = results
        .iter()
        .map(|result| match result {
            Ok(_) => "",
            Err(ControlError::Quota { quota, .. }) => quota.as_str(),
            Err(other) => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(quotas, ["", "memory_max_bytes", "", "", "operations_max"]);
}

#[test]
fn nonsense_is_refused_with_its_place() {
    let mut world = World::new();
    let invalid = |answer: Answer| match failure(answer) {
        (index, _, ControlError::Invalid(fields)) => (index, fields[0].field.clone()),
        other => panic!("{other:?}"),
    };
    let twice = batch(&[("a", "nat", 1), ("b", "nat", 1), ("a", "lb", 1)]);
    assert_eq!(invalid(world.ask_batch(&twice)), (2, "dag_id".into()));
    let mut empty = batch(&[("a", "nat", 1), ("b", "nat lb", 1)]);
    empty.dags[1].spec.nodes.clear();
    assert_eq!(invalid(world.ask_batch(&empty)).0, 1);
    let exists = batch(&[("new", "nat", 1), ("old", "nat", 1)]);
    world.deploy("acme/old", "nat", 1);
    let (index, _, error) = failure(world.ask_batch(&exists));
    assert_eq!(
        (index, error),
        (1, ControlError::AlreadyExists { resource: dag("acme/old").to_string() })
    );
    for count in [0, limits::DAG_BATCH_MAX + 1] {
        let ids: Vec<String> = (0..count).map(|number| format!("d{number}")).collect();
        let dags: Vec<_> = ids.iter().map(|id| (id.as_str(), "nat", 1)).collect();
        let Err(ControlError::Invalid(fields)) = world.ask_batch(&batch(&dags)) else {
            panic!("{count} DAGs")
        };
        assert_eq!(fields[0].field, "requests");
    }
    let other = Command::CreateDags {
        batch: DagBatch { tenant: tenant_id("beta"), ..batch(&[("a", "nat", 1)]) },
        plan: BatchPlan::default(),
    };
    let of_acme = Request { caller: caller("acme"), request_id: None, command: other };
    let answer = world.request(of_acme).expect("an answer");
    assert_eq!(answer, Err(ControlError::NotFound { resource: "tenants/beta".into() }));
    assert_eq!(world.tenant("acme").usage.dags, 1);
}

#[test]
fn cards_share_a_batch_as_the_policy_says() {
    let four = [("a", "nat", 20), ("b", "firewall", 10), ("c", "cache", 10), ("d", "nat", 20)];
    for (order, expected) in [
        (snic_controller::CardOrder::Pack, BTreeSet::from(["card0"])),
        (snic_controller::CardOrder::Spread, BTreeSet::from(["card0", "card1"])),
    ] {
        let mut world = World::new();
        world.add_card(CardId::new("card1").expect("a label"));
        world.settle();
        let mut rules = crate::support::settings();
        rules.placement.cards = order;
        settings(&mut world, rules);
        operations(world.ask_batch(&batch(&four)));
        world.settle();
        let card = |id: &str| world.view(&format!("acme/{id}")).mapping.expect("placed").card;
        let cards: Vec<CardId> = four.iter().map(|(id, ..)| card(id)).collect();
        let used: BTreeSet<&str> = cards.iter().map(CardId::as_str).collect();
        assert_eq!(used, expected, "{order:?}");
    }
}

#[test]
fn dags_that_one_card_cannot_hold_go_to_the_next() {
    let mut world = World::new();
    world.add_card(CardId::new("card1").expect("a label"));
    world.settle();
    let mut rules = crate::support::settings();
    rules.placement.cards = snic_controller::CardOrder::Pack;
    settings(&mut world, rules);
    let many = [("a", "lb", 80), ("b", "vpn", 80), ("c", "pad", 10)];
    operations(world.ask_batch(&batch(&many)));
    world.settle();
    for (id, ..) in many {
        assert_eq!(world.state(&format!("acme/{id}")), DagState::Ready, "{id}");
    }
}

/// A crash at any write: each DAG is there with its operation, or not at all; all of them or none.
#[test]
fn a_crash_leaves_the_whole_batch_or_nothing() {
    use crate::support::Crash;
    for (crash, expected) in [(Crash::Before as fn(usize) -> Crash, 0), (Crash::After, 7)] {
        let mut world = World::new();
        world.crash = Some(crash(world.batches));
        let asked = batch(&SEVEN);
        let plan = world.plan(&asked);
        let command = Command::CreateDags { batch: asked, plan };
        let request = Request { caller: operator(), request_id: Some("r1".into()), command };
        assert_eq!(world.request(request.clone()), None, "the daemon died over it");
        world.settle();
        assert_eq!(world.controller.dags(None).len(), expected);
        let again = match world.request(request).expect("an answer") {
            // The cards are not the same after a restart, as far as the plan knows.
            Err(ControlError::Outdated) => {
                let asked = batch(&SEVEN);
                let plan = world.plan(&asked);
                world.ask_once("r1", Command::CreateDags { batch: asked, plan })
            }
            answer => answer,
        };
        operations(again);
        world.settle();
        assert_eq!(world.controller.dags(None).len(), 7);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A batch is never worse than its DAGs one by one, in their order; what is created is served; and a dry run
    /// of all says whether all fit.
    #[test]
    fn a_batch_places_at_least_as_many_as_one_by_one(
        others in prop::collection::vec((0usize..7, 1u64..30), 0..4),
        dags in prop::collection::vec((0usize..7, 0usize..7, 1u64..60), 1..8),
    ) {
        const NTS: [&str; 7] = ["nat", "firewall", "cache", "aes", "lb", "vpn", "pad"];
        let build = || {
            let mut world = World::new();
            for (number, (nt, gbps)) in others.iter().enumerate() {
                // One that has no room is not there.
                drop(world.ask(create(&format!("beta/o{number}"), spec(NTS[*nt], *gbps))));
            }
            world.settle();
            world
        };
        let chain = |(first, second, gbps): &(usize, usize, u64)| -> DagSpec {
            let mut ids = vec![nt_id(NTS[*first])];
            if first != second {
                ids.push(nt_id(NTS[*second]));
            }
            DagSpec::chain(&ids, snic_domain::Bandwidth::from_gbps(*gbps))
        };
        let mut alone = build();
        let mut count = 0;
        for (number, dag) in dags.iter().enumerate() {
            count += usize::from(alone.ask(create(&format!("acme/d{number}"), chain(dag))).is_ok());
        }
        let mut world = build();
        let new = |(number, dag)| NewDag {
            id: DagId::new(&format!("d{number}")).expect("a label"),
            spec: chain(dag),
        };
        let asked = DagBatch {
            tenant: tenant_id("acme"),
            dags: dags.iter().enumerate().map(new).collect(),
            allow_partial: true,
            validate_only: false,
        };
        let whole = DagBatch { allow_partial: false, validate_only: true, ..asked.clone() };
        let fits = world.ask_batch(&whole).is_ok();
        let results = results(world.ask_batch(&asked));
        let created = results.iter().filter(|result| result.is_ok()).count();
        prop_assert!(created >= count, "{created} together, {count} one by one");
        prop_assert_eq!(fits, created == dags.len());
        world.settle();
        for (number, result) in results.iter().enumerate() {
            if result.is_ok() {
                prop_assert_eq!(world.state(&format!("acme/d{number}")), DagState::Ready);
            }
        }
        prop_assert_eq!(world.tenant("acme").usage.dags as usize, created);
    }
}
