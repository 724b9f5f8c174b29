//! Requests that find no room, and wait for DAGs that move.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_controller::{
    CallId, Command, ControlError, ControllerSettings, DagBatch, Event, NewDag, Reply, Request,
    RoomWait,
};
use snic_domain::limits::CALLER_HELD_MAX;
use snic_domain::{
    Bandwidth, BindingSpec, BindingState, BindingTarget, Caller, DagId, DagSpec, DagState,
    RegionState,
};

use super::consolidation::consolidated;
use crate::support::card::TinyCard;
use crate::support::things::{
    bitstream, caller, card_id, create, dag, delete, profile, spec, tenant_id, update, widen_quota,
};
use crate::support::{Answer, World, operator};

/// Longest time that a request waits, as the module says.
const WAIT_MAX: Duration = Duration::from_secs(10);

pub fn request(caller: Caller, command: Command) -> Request {
    Request { caller, request_id: None, command }
}

fn post(world: &mut World, command: Command) -> CallId {
    world.post(request(operator(), command))
}

fn is_refused(answer: &Option<Answer>) -> bool {
    matches!(answer, Some(Err(ControlError::Refused(_))))
}

/// All regions are in use, and those of `acme/b` and `beta/c` can be put together.
fn full() -> World {
    let mut world = consolidated();
    for (name, nt) in [("acme/d", "lb"), ("acme/e", "vpn")] {
        world.deploy(name, nt, 1);
    }
    world.ask(delete("acme/a")).expect("it is there");
    world.run();
    assert!(world.searches.is_empty(), "it is not yet time");
    world
}

/// Has the next pass begin; one has just begun.
fn begin(world: &mut World) {
    world.pass(Duration::from_secs(1));
    world.handle(Event::Tick);
}

#[test]
fn a_request_without_room_waits_until_dags_have_moved_together() {
    let mut world = full();
    let call = post(&mut world, create("beta/x", spec("pad", 1)));
    assert_eq!(world.answer(call), None);
    assert!(world.controller.dag_view(&dag("beta/x")).is_none());
    begin(&mut world);
    assert_eq!((world.searches.len(), world.answer(call)), (1, None));
    world.settle();
    world.answer(call).expect("it is decided").expect("a region was freed");
    assert_eq!(world.regions_of("acme/b"), world.regions_of("beta/c"));
    assert_eq!(world.state("beta/x"), DagState::Ready);
    assert!(!world.durable.contains_key("refused/beta/x"), "it was not refused after all");
}

#[test]
fn a_change_waits_as_a_new_dag_does() {
    let mut world = full();
    let wider = post(&mut world, update("acme/d", spec("lb", 45)));
    assert_eq!(world.answer(wider), None);
    world.settle();
    world.answer(wider).expect("it is decided").expect("a region was freed");
    assert_eq!(world.view("acme/d").spec.bandwidth, Bandwidth::from_gbps(45));
    assert_eq!(world.state("acme/d"), DagState::Ready);
}

/// The search finds nothing to gain for the second one: it is refused as soon as that is known.
#[test]
fn a_request_is_refused_once_moves_cannot_make_room() {
    let mut world = full();
    // Both would fit one region alone, but not together.
    let calls = ["beta/x", "beta/y"].map(|name| post(&mut world, create(name, spec("pad", 30))));
    world.settle();
    let answers = calls.map(|call| world.answer(call));
    assert!(matches!(answers[0], Some(Ok(_))), "{answers:?}");
    assert!(is_refused(&answers[1]), "{answers:?}");
    assert!(world.now.since(world.view("beta/x").created) < Duration::from_secs(5));
    assert!(world.durable.contains_key("refused/beta/y"));
    // Nothing was freed since.
    world.ask(create("beta/z", spec("pad", 30))).expect_err("at once");
}

#[test]
fn nobody_waits_longer_than_for_ten_seconds() {
    let mut world = full();
    let begun = world.now;
    let call = post(&mut world, create("beta/x", spec("pad", 1)));
    begin(&mut world);
    assert_eq!(world.searches.len(), 1, "a search that takes long");
    while world.now.since(begun) + Duration::from_secs(1) < WAIT_MAX {
        world.pass(Duration::from_secs(1));
        assert_eq!(world.answer(call), None, "after {:?}", world.now.since(begun));
    }
    assert_eq!(world.controller.next_wake_up(), Some(begun + WAIT_MAX));
    world.pass(Duration::from_secs(1));
    assert!(is_refused(&world.answer(call)));
    world.settle();
    world.deploy("beta/x", "pad", 1);
}

#[test]
fn what_moves_cannot_help_is_refused_at_once() {
    let mut world = full();
    let dry = Command::CreateDag { name: dag("beta/x"), spec: spec("pad", 1), validate_only: true };
    // Nobody wants it yet; more than the whole card serves; more than comes in.
    let wide = create("beta/x", spec("aes", 60));
    let beyond = create("beta/x", spec("nat", 90));
    for command in [dry, wide, beyond] {
        let call = post(&mut world, command.clone());
        assert!(is_refused(&world.answer(call)), "{command:?} waits");
    }
    // No card that could be searched.
    world.lose_card();
    let call = post(&mut world, create("beta/x", spec("pad", 1)));
    assert!(world.answer(call).is_some(), "it waits for a lost card");
}

#[test]
fn a_caller_has_few_requests_that_wait_and_takes_no_place_of_others() {
    let mut world = full();
    let ask = |world: &mut World, of: &str, number: usize| {
        let name = format!("{of}/x{number}");
        let call = world.post(request(caller(of), create(&name, spec("pad", 1))));
        (call, world.answer(call))
    };
    let waits: Vec<bool> =
        (0..=CALLER_HELD_MAX).map(|at| ask(&mut world, "acme", at).1.is_none()).collect();
    let (last, others) = waits.split_last().expect("there are some");
    assert!(others.iter().all(|waits| *waits) && !last, "{waits:?}");
    let (call, answer) = ask(&mut world, "beta", 0);
    assert_eq!(answer, None, "another caller has a place");
    world.settle();
    world.answer(call).expect("it is decided").expect("it shares the region that was freed");
}

/// The same request again, as after a broken connection, is carried out once.
#[test]
fn a_repeated_request_is_carried_out_once() {
    let mut world = full();
    let again = Request {
        caller: operator(),
        request_id: Some("r1".into()),
        command: create("beta/x", spec("pad", 1)),
    };
    let calls = [world.post(again.clone()), world.post(again)];
    world.settle();
    let [first, second] = calls.map(|call| world.answer(call).expect("it is decided"));
    assert_eq!(
        crate::support::operation_id(first),
        crate::support::operation_id(second),
        "it was carried out twice"
    );
}

/// Nothing of it is stored: its caller, whose connection is gone, asks again.
#[test]
fn after_a_crash_a_waiting_request_has_had_no_effect() {
    let mut world = full();
    post(&mut world, create("beta/x", spec("pad", 1)));
    world.restart();
    world.settle();
    let name = dag("beta/x");
    assert!(world.controller.dag_view(&name).is_none());
    world.deploy("beta/x", "pad", 1);
}

/// Binding of a machine that gets a DAG like `acme/d`, which needs a region of its own.
fn machine(world: &mut World) -> Command {
    // What is left of the regions is too little for another one of it.
    world.ask(update("acme/d", spec("lb", 25))).expect("it has a region of its own");
    world.run();
    assert!(world.searches.is_empty(), "it is not yet time");
    Command::BindVm(BindingSpec {
        vm: "00000001-0000-4000-8000-000000000000".parse().expect("a UUID"),
        tenant: tenant_id("acme"),
        chains: BindingTarget::Template(dag("acme/d")),
        functions: 1,
        ready_within: Duration::from_secs(10),
        lease: None,
        notes: Default::default(),
        limits: Default::default(),
    })
}

#[test]
fn a_machine_whose_dag_finds_no_room_waits_and_is_bound_once() {
    let mut world = full();
    let bind = machine(&mut world);
    // The hook of a machine that is slow to start is called once more.
    let calls = [post(&mut world, bind.clone()), post(&mut world, bind)];
    assert_eq!(calls.map(|call| world.answer(call)), [None, None]);
    world.settle();
    for call in calls {
        let Some(Ok(Reply::Binding(view))) = world.answer(call) else {
            panic!("{:?}", world.answer(call));
        };
        let now = world.controller.binding_view(&view.record.spec.vm).expect("it is bound");
        assert_eq!(now.record.state, BindingState::Bound);
    }
    assert_eq!(world.tenant("acme").usage.dags, 4, "b, d, e and that of the machine");
}

fn batch(dags: &[(&str, &str, u64)], allow_partial: bool) -> DagBatch {
    let new = |(id, chain, gbps): &(&str, &str, u64)| NewDag {
        id: DagId::new(id).expect("a label"),
        spec: spec(chain, *gbps),
    };
    let dags = dags.iter().map(new).collect();
    DagBatch { tenant: tenant_id("beta"), dags, allow_partial, validate_only: false }
}

/// Plans a batch and asks for it, as the server does.
fn post_batch(world: &mut World, batch: &DagBatch, wait: Option<RoomWait>) -> CallId {
    let plan = world.controller.batch_snapshot(batch).plan().after(wait);
    post(world, Command::CreateDags { batch: batch.clone(), plan })
}

/// Whether each of a batch is created, once it has waited, and how many times it was planned.
fn created(world: &mut World, batch: &DagBatch) -> (Vec<bool>, usize) {
    let mut wait = None;
    for plans in 1..100 {
        let call = post_batch(world, batch, wait);
        let answer = (0..200).find_map(|step| {
            if step > 0 {
                world.pass(Duration::from_millis(100));
                world.run();
            }
            world.answer(call)
        });
        match answer.expect("it is decided within twenty seconds") {
            Ok(Reply::PlanAgain(waited)) => wait = Some(waited),
            Ok(Reply::Batch(results)) => {
                return (results.iter().map(Result::is_ok).collect(), plans);
            }
            Err(ControlError::InBatch { .. }) => return (vec![false; batch.dags.len()], plans),
            other => panic!("{other:?}"),
        }
    }
    panic!("it is planned over and over");
}

#[test]
fn a_batch_without_room_waits_until_dags_have_moved_together() {
    for allow_partial in [false, true] {
        let mut world = full();
        let batch = batch(&[("x", "pad", 1), ("y", "lb", 1)], allow_partial);
        let call = post_batch(&mut world, &batch, None);
        assert_eq!(world.answer(call), None);
        assert!(world.controller.dag_view(&dag("beta/y")).is_none(), "none is created yet");
        world.settle();
        assert!(matches!(world.answer(call), Some(Ok(Reply::PlanAgain(_)))));
        assert_eq!(created(&mut world, &batch), (vec![true, true], 1));
        assert!(!world.durable.contains_key("refused/beta/x"), "it was not refused after all");
    }
}

/// Both pads fit one region alone, but not together: what moves cannot help is decided once that is known.
#[test]
fn a_batch_is_decided_once_moves_cannot_make_room() {
    for (allow_partial, expected) in [(false, [false; 3]), (true, [true, false, true])] {
        let mut world = full();
        let begun = world.now;
        let batch = batch(&[("x", "pad", 30), ("y", "pad", 30), ("z", "lb", 1)], allow_partial);
        let (created, plans) = created(&mut world, &batch);
        assert_eq!(
            (created.as_slice(), world.durable.contains_key("refused/beta/y")),
            (&expected[..], true)
        );
        let waited = world.now.since(begun);
        assert!(plans <= 6 && waited < Duration::from_secs(5), "{plans} plans in {waited:?}");
        // Nothing was freed since.
        let call = post_batch(&mut world, &self::batch(&[("w", "pad", 30)], allow_partial), None);
        world.answer(call).expect("at once").err();
    }
}

/// However often something is freed meanwhile, the wait is that of the first plan.
#[test]
fn a_batch_that_is_planned_again_waits_for_ten_seconds_in_all() {
    let mut world = full();
    let batch = batch(&[("x", "pad", 1)], true);
    let begun = world.now;
    let mut call = post_batch(&mut world, &batch, None);
    begin(&mut world);
    let mut plans = 1;
    let results = loop {
        match world.answer(call) {
            None => world.pass(Duration::from_secs(1)),
            Some(Ok(Reply::PlanAgain(wait))) => {
                plans += 1;
                call = post_batch(&mut world, &batch, Some(wait));
            }
            Some(Ok(Reply::Batch(results))) => break results,
            other => panic!("{other:?}"),
        }
        if world.now.since(begun) == Duration::from_secs(5) && plans == 1 {
            world.ask(delete("acme/e")).expect("it is there");
            world.ask(create("acme/e", spec("vpn", 1))).expect("its region is free");
        }
        assert!(world.now.since(begun) <= WAIT_MAX, "{plans} plans");
    };
    assert!(results[0].is_err() && plans > 1, "{plans} plans, {results:?}");
    assert_eq!(world.now.since(begun), WAIT_MAX);
}

#[test]
fn a_batch_that_only_asks_or_has_too_many_beside_it_does_not_wait() {
    let mut world = full();
    let dry = DagBatch { validate_only: true, ..batch(&[("x", "pad", 1)], true) };
    let call = post_batch(&mut world, &dry, None);
    assert!(world.answer(call).is_some());
    let batches: Vec<CallId> = (0..=CALLER_HELD_MAX)
        .map(|_| post_batch(&mut world, &batch(&[("x", "pad", 1)], true), None))
        .collect();
    let waits: Vec<bool> = batches.iter().map(|call| world.answer(*call).is_none()).collect();
    let (last, others) = waits.split_last().expect("there are some");
    assert!(others.iter().all(|waits| *waits) && !last, "{waits:?}");
}

/// Time passes for nobody: all come before a pass has begun on its own.
fn fill(seed: u64) -> (usize, usize) {
    const NTS: [&str; 6] = ["nat", "firewall", "cache", "aes", "lb", "vpn"];
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut world = World::empty();
    world.settings = ControllerSettings::default();
    let mut wide = profile();
    wide.regions = vec![wide.regions[0].clone(); 32];
    world.cards.insert(card_id(), TinyCard::new(wide));
    world.restart();
    world.settle();
    world.fill();
    world.ask(widen_quota()).expect("valid");
    let mut sequences: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    while sequences.len() < 20 {
        let mut nts = NTS;
        nts.shuffle(&mut rng);
        let chosen = nts[..rng.random_range(2..=3)].to_vec();
        sequences.insert(chosen.join("-"), chosen);
    }
    for (id, nts) in &sequences {
        // A pair of the catalogue may be among them.
        let _ = world.ask(Command::CreateBitstream(bitstream(id, nts)));
    }
    let sequences: Vec<String> = sequences.into_values().map(|nts| nts.join(" ")).collect();
    let (mut waited, mut refused) = (0, 0);
    for number in 0..1_000 {
        let mbps = Bandwidth::from_mbps(rng.random_range(1..=90));
        let nts = &sequences[rng.random_range(0..sequences.len())];
        let small = DagSpec { bandwidth: mbps, ..spec(nts, 1) };
        let call = post(&mut world, create(&format!("acme/d{number}"), small));
        world.run();
        let answer = world.answer(call).unwrap_or_else(|| {
            waited += 1;
            world.settle();
            world.answer(call).expect("it is decided")
        });
        if let Err(why) = answer {
            let states = world.region_states();
            let free = states.iter().filter(|state| **state == RegionState::Free).count();
            println!("seed {seed}: acme/d{number} is refused beside {free} free regions: {why}");
            refused += 1;
        }
    }
    println!("seed {seed}: {waited} of 1,000 waited, {refused} were refused");
    (waited, refused)
}

/// A card with 32 regions has room for a thousand small DAGs, in whatever order they come.
#[test]
#[ignore = "ci: minutes"]
fn of_a_thousand_small_dags_none_is_refused() {
    let (waited, refused) = fill(0);
    assert!(waited > 0, "nobody had to wait, so nothing is shown");
    assert_eq!(refused, 0);
}
