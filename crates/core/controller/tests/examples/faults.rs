//! Cards that fail: loads, commits, and the whole card.

use std::time::Duration;

use snic_controller::{
    CardHealth, CardReport, Command, ControlError, ControllerSettings, DagView, Event, LogKind,
};
use snic_domain::{
    Bandwidth, CardId, ConditionStatus, ConditionType, DagState, RegionId, RegionState, Timestamp,
};
use snic_tables::{CardCommand, LoadFailure, ProgramFailure};

use crate::support::card::TinyCard;
use crate::support::things::{
    bitstream, bitstream_id, card_id, create, dag, delete, digest, nt, profile, reset, spec, update,
};
use crate::support::{World, operation_id, operator};

const REFUSED: LoadFailure = LoadFailure::Controller { code: 9 };

/// Times and regions of the loads until all is quiet.
fn loads_until_quiet(world: &mut World) -> Vec<(Timestamp, RegionId)> {
    let mut seen = Vec::new();
    for _ in 0..1_000 {
        while let Some(command) = world.answer_one() {
            if let CardCommand::Load { region, .. } = command {
                seen.push((world.now, region));
            }
        }
        let Some(at) = world.controller.next_wake_up() else { return seen };
        world.pass(at.since(world.now));
    }
    panic!("it never becomes quiet: {seen:?}");
}

#[test]
fn a_load_that_fails_is_tried_again_with_growing_waits_and_then_elsewhere() {
    let mut world = World::new();
    world.card().bad_regions.insert(RegionId(0), REFUSED);
    let id = operation_id(world.ask(create("acme/web", spec("lb", 5))));
    let loads = loads_until_quiet(&mut world);
    let settings = ControllerSettings::default();
    let regions: Vec<u8> = loads.iter().map(|(_, region)| region.0).collect();
    assert_eq!(regions, [0, 0, 0, 1]);
    assert_eq!(settings.load_attempts, 3);
    let waits: Vec<Duration> = loads.windows(2).map(|pair| pair[1].0.since(pair[0].0)).collect();
    assert_eq!(waits, [settings.backoff, settings.backoff * 2, Duration::ZERO]);
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!(world.region_states()[0], RegionState::Faulty);
    assert_eq!((world.region(0).loads, world.region(1).loads), (3, 1));
    assert_eq!(world.controller.card_view(&card_id()).expect("seen").loads, 4);
}

#[test]
fn the_condition_says_that_a_load_fails_and_why() {
    let mut world = World::new();
    world.card().bad_regions.insert(RegionId(0), REFUSED);
    world.ask(create("acme/web", spec("lb", 5))).expect("there is room");
    world.run();
    let condition = world.condition("acme/web", ConditionType::RegionsLoaded);
    assert_eq!((condition.status, &*condition.reason), (ConditionStatus::False, "LOAD_FAILING"));
    assert!(condition.message.contains("failed 1 times"), "{}", condition.message);
    assert!(condition.message.contains("error 9"), "{}", condition.message);
    let ready = world.condition("acme/web", ConditionType::Ready);
    assert_eq!((ready.status, ready.reason), (ConditionStatus::False, condition.reason));
    assert_eq!(world.region(0).failures, 1);
    assert_eq!(world.region(0).last_error_at, Some(world.now));
    world.card().bad_regions.clear();
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!((world.region(0).failures, world.region(0).last_error), (0, None));
    let told = world.changes.iter().filter_map(|(_, dag)| dag.as_ref());
    let failing = |dag: &DagView| dag.conditions.iter().any(|c| c.reason == "LOAD_FAILING");
    assert!(told.filter(|dag| failing(dag)).count() > 0, "those who watch are told");
}

#[test]
fn where_nothing_is_left_the_operation_fails_and_the_dag_waits() {
    let mut world = World::new();
    for (name, chain) in [("acme/a", "vpn"), ("acme/b", "pad"), ("acme/c", "cache")] {
        world.deploy(name, chain, 1);
    }
    world.card().bad_regions.insert(RegionId(3), REFUSED);
    let id = operation_id(world.ask(create("acme/web", spec("lb", 5))));
    world.settle();
    let ended = world.ended(&id);
    assert!(matches!(ended, Some(Err(ControlError::Refused(_)))), "{ended:?}");
    assert_eq!(world.state("acme/web"), DagState::Failed);
    let ready = world.condition("acme/web", ConditionType::Ready);
    assert_eq!((ready.status, &*ready.reason), (ConditionStatus::False, "NO_PLACE"));
    world.ask(delete("acme/b")).expect("it exists");
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready, "it was tried again");
}

#[test]
fn a_bitstream_that_fails_in_two_regions_is_rejected_and_they_are_cleared() {
    let mut world = World::new();
    world.card().bad_digests.insert(digest("lb"), REFUSED);
    let id = operation_id(world.ask(create("acme/web", spec("lb", 5))));
    world.settle();
    assert_eq!(world.card().loads.len(), 6, "three tries in each of two regions");
    let ended = world.ended(&id);
    assert!(matches!(ended, Some(Err(ControlError::Refused(_)))), "{ended:?}");
    assert!(!world.region_states().contains(&RegionState::Faulty), "{:?}", world.region_states());
    let rejected = |world: &World| {
        let who = operator();
        let mut all = world.controller.bitstreams(&who);
        let view = all.find(|view| view.bitstream.id == bitstream_id("lb"));
        view.expect("it is still listed").rejection.map(|of| of.reason)
    };
    assert!(rejected(&world).expect("rejected").contains("error 9"));
    world.ask(create("acme/b", spec("lb", 1))).expect_err("nothing else holds lb");
    world.restart();
    world.settle();
    assert!(rejected(&world).is_some());
    world.ask(create("acme/b", spec("lb", 1))).expect_err("a restart does not forget");
    for (name, chain) in [("acme/b", "vpn"), ("acme/c", "pad")] {
        world.deploy(name, chain, 1);
    }
}

#[test]
fn a_success_in_between_clears_the_bitstreams_name() {
    let mut world = World::new();
    world.card().bad_regions.insert(RegionId(0), REFUSED);
    world.card().bad_regions.insert(RegionId(2), REFUSED);
    world.deploy("acme/a", "lb", 40);
    world.deploy("acme/b", "lb", 40);
    let faulty = |state: &&RegionState| **state == RegionState::Faulty;
    assert_eq!(world.region_states().iter().filter(faulty).count(), 2);
    let who = operator();
    let mut all = world.controller.bitstreams(&who);
    assert!(all.all(|view| view.rejection.is_none()));
}

#[test]
fn missing_bytes_are_not_the_regions_fault() {
    let mut world = World::new();
    let gone = LoadFailure::NoBytes("no such blob".into());
    world.card().bad_digests.insert(digest("lb"), gone);
    world.ask(create("acme/web", spec("lb", 5))).expect("there is room");
    let begin = world.now;
    for _ in 0..12 {
        world.run();
        let at = world.controller.next_wake_up().expect("it is tried again");
        assert!(at.since(world.now) <= ControllerSettings::default().backoff_max);
        world.pass(at.since(world.now));
    }
    assert!(world.now.since(begin) > ControllerSettings::default().backoff_max);
    assert!(!world.region_states().contains(&RegionState::Faulty));
    let condition = world.condition("acme/web", ConditionType::Ready);
    assert_eq!(condition.reason, "LOAD_FAILING");
    world.card().bad_digests.clear();
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

#[test]
fn after_a_load_without_an_end_the_card_is_asked() {
    let mut world = World::new();
    let hangs = LoadFailure::Timeout(Duration::from_millis(30));
    world.card().bad_regions.insert(RegionId(0), hangs);
    world.ask(create("acme/web", spec("lb", 5))).expect("there is room");
    assert!(matches!(world.answer_one(), Some(CardCommand::Load { .. })));
    assert_eq!(world.region_states()[0], RegionState::Unknown);
    let ready = world.condition("acme/web", ConditionType::Ready);
    assert_eq!((ready.status, &*ready.reason), (ConditionStatus::Unknown, "CARD_ADOPTING"));
    assert!(matches!(world.answer_one(), Some(CardCommand::ReadBack { .. })));
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!(world.regions_of("acme/web"), [RegionId(1)]);
}

#[test]
fn packets_that_do_not_leave_a_victim_leave_it_as_it_is() {
    let mut world = World::new();
    for (name, chain) in [("acme/a", "vpn"), ("acme/b", "pad"), ("acme/c", "cache")] {
        world.deploy(name, chain, 1);
    }
    world.deploy("acme/old", "lb", 1);
    let region = world.regions_of("acme/old")[0];
    world.ask(delete("acme/old")).expect("it exists");
    world.settle();
    let stuck = LoadFailure::DrainTimeout { packets: 2, waited: Duration::from_millis(5) };
    world.card().bad_regions.insert(region, stuck);
    world.ask(create("acme/new", spec("cache", 20))).expect("in place of the victim");
    world.settle();
    assert_eq!(world.state("acme/new"), DagState::Failed);
    assert_eq!(world.region_states()[region.index()], RegionState::Faulty);
}

/// The DAG is ready after a commit that failed like this.
fn recovers_from(failure: &ProgramFailure, takes_effect: bool) {
    let mut world = World::new();
    world.card().bad_commits.push_back((failure.clone(), takes_effect));
    let id = operation_id(world.ask(create("acme/web", spec("lb", 5))));
    assert!(matches!(world.answer_one(), Some(CardCommand::Load { .. })));
    assert!(matches!(world.answer_one(), Some(CardCommand::Program { .. })));
    assert_eq!(world.ended(&id), None);
    assert_ne!(world.state("acme/web"), DagState::Ready);
    assert!(matches!(world.answer_one(), Some(CardCommand::ReadBack { .. })));
    let version = world.card().version;
    if takes_effect {
        assert_eq!(world.state("acme/web"), DagState::Ready, "the rows were read back");
    } else {
        let condition = world.condition("acme/web", ConditionType::TablesProgrammed);
        assert_eq!(&*condition.reason, "PROGRAMMING_FAILING");
        assert!(condition.message.contains(&failure.to_string()), "{}", condition.message);
    }
    let failed_at = world.now;
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(world.card().version, version + u32::from(!takes_effect));
    let waited = if takes_effect { Duration::ZERO } else { ControllerSettings::default().backoff };
    assert!(world.now.since(failed_at) >= waited);
    assert_eq!(world.card().loads.len(), 1);
}

#[test]
fn a_failed_commit_is_read_back_and_tried_again() {
    let failures = [
        ProgramFailure::Refused { active: 17 },
        ProgramFailure::DrainTimeout(Duration::from_millis(5)),
        ProgramFailure::ReadBack { rows: 3 },
    ];
    for failure in failures {
        recovers_from(&failure, false);
        recovers_from(&failure, true);
    }
}

#[test]
fn commits_that_fail_again_and_again_wait_longer() {
    let mut world = World::new();
    let refused = ProgramFailure::Refused { active: 1 };
    world.card().bad_commits.extend(vec![(refused, false); 12]);
    world.ask(create("acme/web", spec("lb", 5))).expect("there is room");
    let mut commits = Vec::new();
    while world.state("acme/web") != DagState::Ready {
        match world.answer_one() {
            Some(CardCommand::Program { .. }) => commits.push(world.now),
            Some(_) => {}
            None => {
                let at = world.controller.next_wake_up().expect("it is tried again");
                world.pass(at.since(world.now));
            }
        }
    }
    let settings = ControllerSettings::default();
    let waits: Vec<Duration> = commits.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert_eq!(waits[..3], [settings.backoff, settings.backoff * 2, settings.backoff * 4]);
    assert_eq!(waits.iter().max(), Some(&settings.backoff_max));
    assert_eq!(waits.len(), 12);
}

#[test]
fn a_delete_whose_commit_failed_ends_when_the_rows_are_gone() {
    for takes_effect in [false, true] {
        let mut world = World::new();
        world.deploy("acme/web", "lb", 5);
        let drain = ProgramFailure::DrainTimeout(Duration::from_millis(5));
        world.card().bad_commits.push_back((drain, takes_effect));
        let id = operation_id(world.ask(delete("acme/web")));
        assert!(matches!(world.answer_one(), Some(CardCommand::Program { .. })));
        assert_eq!(world.ended(&id), None);
        world.settle();
        assert_eq!(world.ended(&id), Some(Ok(())), "took effect: {takes_effect}");
        assert_eq!(world.card().dag_rows(), 0);
    }
}

#[test]
fn a_lost_card_makes_all_unknown_until_it_is_back_as_it_was() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    world.deploy("beta/web", "nat firewall", 5);
    let before = world.view("acme/web");
    world.lose_card();
    let health = world.controller.card_view(&card_id()).expect("seen").health;
    assert_eq!(health, CardHealth::Lost("no answer on the bus".into()));
    for name in ["acme/web", "beta/web"] {
        assert_eq!(world.state(name), DagState::Degraded);
        for kind in
            [ConditionType::RegionsLoaded, ConditionType::TablesProgrammed, ConditionType::Ready]
        {
            let condition = world.condition(name, kind);
            assert_eq!(
                (condition.status, &*condition.reason),
                (ConditionStatus::Unknown, "CARD_LOST")
            );
        }
    }
    assert!(world.region_states().iter().all(|state| *state == RegionState::Unknown));
    let (loads, words) = (world.card().loads.len(), world.card().words_written);
    world.appear(&card_id());
    let ready = world.condition("acme/web", ConditionType::Ready);
    assert_eq!((ready.status, &*ready.reason), (ConditionStatus::Unknown, "CARD_ADOPTING"));
    world.settle();
    let after = world.view("acme/web");
    assert_eq!((after.state, after.mapping), (DagState::Ready, before.mapping));
    assert_eq!(world.state("beta/web"), DagState::Ready);
    assert_eq!((world.card().loads.len(), world.card().words_written), (loads, words));
}

#[test]
fn a_card_that_lost_its_power_is_filled_again() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    world.deploy("beta/web", "nat firewall", 5);
    let tables = world.card().tables.clone();
    let regions = world.card().regions.clone();
    world.card().power_cycle();
    world.lose_card();
    world.appear(&card_id());
    world.run();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!(world.state("beta/web"), DagState::Ready);
    assert_eq!(world.card().regions, regions);
    assert!(world.card().tables == tables, "the same rows in the same places");
}

#[test]
fn requests_while_the_card_is_away_are_carried_out_when_it_is_back() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    world.deploy("acme/old", "vpn", 5);
    world.lose_card();
    let created = operation_id(world.ask(create("acme/new", spec("pad", 5))));
    let updated = operation_id(world.ask(update("acme/web", spec("nat", 6))));
    let deleted = operation_id(world.ask(delete("acme/old")));
    assert!(world.asked.is_empty());
    for id in [&created, &updated, &deleted] {
        assert_eq!(world.ended(id), None);
    }
    world.appear(&card_id());
    world.settle();
    for id in [&created, &updated, &deleted] {
        assert_eq!(world.ended(id), Some(Ok(())));
    }
    assert_eq!(world.view("acme/web").observed_generation, 2);
}

#[test]
fn answers_from_before_the_loss_count_for_nothing() {
    let mut world = World::new();
    world.ask(create("acme/web", spec("lb", 5))).expect("there is room");
    let Some((_, CardCommand::Load { ticket, region, .. })) = world.asked.pop_front() else {
        panic!("no load was asked for")
    };
    world.lose_card();
    world.appear(&card_id());
    let late = CardReport::Loaded { ticket, region, result: Ok(Duration::ZERO) };
    world.handle(Event::Card { card: card_id(), report: late });
    assert_eq!(world.region_states()[0], RegionState::Unknown);
    world.settle();
    assert_eq!(world.card().loads.len(), 1);
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

#[test]
fn a_decoupled_region_is_loaded_again() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let region = world.regions_of("acme/web")[0];
    // A load that ended after its daemon died, before the region was coupled again.
    world.lose_card();
    world.card().tables = Default::default();
    world.card().decoupled.insert(region);
    world.appear(&card_id());
    world.settle();
    assert_eq!(world.card().loads.len(), 2);
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

#[test]
fn rows_that_nobody_wrote_are_cleared() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let tables = world.card().tables.clone();
    world.lose_card();
    let stray = snic_tables::RateLimiterRow {
        rate_kbps: 5,
        burst_bytes: 6,
        promised_kbps: 0,
        packet_bytes: 0,
        weight: 1,
    };
    world.card().tables.set(900, &stray).expect("a row that there is");
    world.appear(&card_id());
    world.settle();
    assert!(world.card().tables == tables);
}

#[test]
fn a_card_with_another_profile_is_refused() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    world.lose_card();
    let mut other = profile();
    other.regions.pop();
    world.handle(Event::CardAppeared { card: card_id(), profile: Box::new(other) });
    assert!(world.asked.is_empty(), "it is not even asked");
    let health = world.controller.card_view(&card_id()).expect("seen").health;
    let CardHealth::Lost(reason) = health else { panic!("{health:?}") };
    assert!(reason.contains("another profile"), "{reason}");
    assert_eq!(world.condition("acme/web", ConditionType::Ready).status, ConditionStatus::Unknown);
    world.appear(&card_id());
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

#[test]
fn a_card_that_is_not_what_its_profile_says_is_refused() {
    let mut world = World::without_card();
    let mut lying = TinyCard::new(profile());
    lying.profile.idcode = 1;
    world.cards.insert(card_id(), lying);
    world.handle(Event::CardAppeared { card: card_id(), profile: Box::new(profile()) });
    world.settle();
    let health = world.controller.card_view(&card_id()).expect("seen").health;
    let CardHealth::Lost(reason) = health else { panic!("{health:?}") };
    assert!(reason.contains("IDCODE 0x00000001"), "{reason}");
}

#[test]
fn reports_of_unknown_cards_are_nobodys() {
    let mut world = World::new();
    let card = CardId::new("other").expect("a label");
    let report = CardReport::Lost { reason: "gone".into() };
    world.handle(Event::Card { card: card.clone(), report });
    assert!(world.tx.writes().is_empty() && world.tx.effects().is_empty(), "{:?}", world.tx);
    assert!(world.controller.card_view(&card).is_none());
}

#[test]
fn counters_are_sampled_from_cards_that_answer() {
    let mut world = World::new();
    world.handle(Event::Sample);
    world.run();
    let counters = world.controller.card_view(&card_id()).expect("seen").counters;
    assert_eq!(counters.packets_in, 7);
    world.lose_card();
    world.handle(Event::Sample);
    assert!(world.asked.is_empty());
}

/// Log entries about the promises of a DAG: kind and text, in order.
fn promises(world: &World, name: &str) -> Vec<(LogKind, String)> {
    let name = dag(name);
    let kinds = [LogKind::PromiseBroken, LogKind::PromiseKept];
    let who = operator();
    let log = world.controller.log_before(&who, None);
    let log = log.filter(|e| e.dag.as_ref() == Some(&name) && kinds.contains(&e.kind));
    let mut told: Vec<_> = log.map(|e| (e.kind, e.text.clone())).collect();
    told.reverse();
    told
}

#[test]
fn a_promise_that_breaks_is_told_once_and_so_is_that_it_is_kept_again() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let promise = |world: &World| {
        let condition = world.condition("acme/web", ConditionType::PromiseKept);
        (condition.status, condition.reason, world.view("acme/web").unserved)
    };
    let kept = (ConditionStatus::True, "CARRIED".to_owned(), Bandwidth::ZERO);
    assert_eq!((promise(&world), promises(&world, "acme/web")), (kept.clone(), Vec::new()));
    world.lose_card();
    world.lose_card();
    let lost = (ConditionStatus::Unknown, "CARD_LOST".to_owned(), Bandwidth::from_gbps(5));
    assert_eq!(promise(&world), lost);
    let [(LogKind::PromiseBroken, text)] = &promises(&world, "acme/web")[..] else {
        panic!("{:?}", promises(&world, "acme/web"))
    };
    assert!(text.contains("promised 5 Gbit/s") && text.contains("no answer on the bus"), "{text}");
    world.pass(Duration::from_secs(2));
    world.appear(&card_id());
    world.settle();
    assert_eq!(promise(&world), kept);
    let told = promises(&world, "acme/web");
    let [_, (LogKind::PromiseKept, text)] = &told[..] else { panic!("{told:?}") };
    assert!(text.contains("5 Gbit/s") && text.contains("again, after 2"), "{text}");
}

/// While a DAG moves, the place before it carries the promise; before it was ready there is none.
#[test]
fn a_promise_is_kept_while_another_place_is_made_ready() {
    let mut world = World::new();
    world.ask(create("acme/web", spec("lb", 5))).expect("there is room");
    let view = world.view("acme/web");
    let has_promise = |view: &DagView| {
        view.conditions.iter().any(|condition| condition.kind == ConditionType::PromiseKept)
    };
    assert!(!has_promise(&view) && view.unserved == Bandwidth::ZERO, "{view:?}");
    world.settle();
    let before = world.changes.len();
    world.ask(update("acme/web", spec("vpn", 5))).expect("there is room");
    world.settle();
    let name = dag("acme/web");
    let seen = world.changes[before..].iter().filter_map(|(_, dag)| dag.as_ref());
    let seen: Vec<_> = seen.filter(|dag| dag.name == name).collect();
    let is_whole = |dag: &&DagView| has_promise(dag) && dag.unserved == Bandwidth::ZERO;
    assert!(seen.len() > 1 && seen.iter().all(is_whole), "{seen:?}");
    assert_eq!(promises(&world, "acme/web"), []);
}

/// Has the card say that a region kept its packets, and was reset.
fn stall(world: &mut World, region: RegionId) {
    world.card().decoupled.insert(region);
    let report = CardReport::Stuck { region, waited: Duration::from_millis(200) };
    world.handle(Event::Card { card: card_id(), report });
}

#[test]
fn a_region_whose_tasks_hang_is_out_of_use_until_it_is_loaded_again() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    world.deploy("beta/web", "nat firewall", 5);
    let (region, loads) = (world.regions_of("acme/web")[0], world.card().loads.len());
    stall(&mut world, region);
    world.run();
    assert_eq!(world.state("acme/web"), DagState::Degraded);
    assert_eq!(world.state("beta/web"), DagState::Ready, "other regions serve on");
    assert!(!world.card().routed().contains(&region), "no row leads there");
    let condition = world.condition("acme/web", ConditionType::RegionsLoaded);
    assert_eq!((condition.status, &*condition.reason), (ConditionStatus::False, "REGION_STALLED"));
    assert!(condition.message.contains("let no packet go for 200ms"), "{}", condition.message);
    let error = world.region(region.0).last_error.expect("an operator sees it, too");
    assert!(error.contains("1 times"), "{error}");
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!(world.card().loads.len(), loads + 1);
}

#[test]
fn a_region_whose_tasks_hang_again_waits_eight_times_as_long_up_to_five_minutes() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let backoff = ControllerSettings::default().backoff;
    let mut waits = Vec::new();
    for _ in 0..6 {
        let (region, loads) = (world.regions_of("acme/web")[0], world.card().loads.len());
        stall(&mut world, region);
        let stalled = world.now;
        world.run();
        while world.card().loads.len() == loads {
            let at = world.controller.next_wake_up().expect("it is loaded again");
            world.pass(at.since(world.now));
            world.run();
        }
        waits.push(world.now.since(stalled));
        world.settle();
        assert_eq!(world.state("acme/web"), DagState::Ready);
    }
    let minutes_5 = Duration::from_secs(300);
    assert_eq!(waits[..4], [backoff * 8, backoff * 64, backoff * 512, backoff * 4_096]);
    assert_eq!(waits[4..], [minutes_5; 2]);
    world.pass(Duration::from_secs(3_601));
    let region = world.regions_of("acme/web")[0];
    stall(&mut world, region);
    let error = world.region(region.0).last_error.expect("it has just stalled");
    assert!(error.contains("1 times"), "after an hour it is the first again: {error}");
}

/// A count that belonged to the region would begin again with each new DAG.
#[test]
fn a_tenant_whose_own_tasks_hang_waits_longer_for_each_further_dag() {
    let mut world = World::new();
    world.deploy("beta/web", "lb", 5);
    for nt_and_chain in ["acme.own", "acme.other"] {
        world.ask(Command::CreateNtType(nt(nt_and_chain, 40))).expect("an operator");
        let made = bitstream(nt_and_chain, &[nt_and_chain]);
        world.ask(Command::CreateBitstream(made)).expect("an operator");
    }
    let backoff = ControllerSettings::default().backoff;
    let mut waits = Vec::new();
    for round in 0u32..4 {
        let (name, chain) =
            (format!("acme/web{round}"), ["acme.own", "acme.other"][round as usize % 2]);
        let (loads, asked) = (world.card().loads.len(), world.now);
        world.ask(create(&name, spec(chain, 5))).expect("there is room");
        world.run();
        if world.card().loads.len() == loads {
            let condition = world.condition(&name, ConditionType::RegionsLoaded);
            assert_eq!(condition.reason, "REGION_STALLED", "{}", condition.message);
            let says = format!("tenant acme let no packet go on this card, {round} times by now");
            assert!(condition.message.contains(&says), "{}", condition.message);
        }
        while world.card().loads.len() == loads {
            let at = world.controller.next_wake_up().expect("it is loaded in the end");
            world.pass(at.since(world.now));
            world.run();
        }
        waits.push(world.now.since(asked));
        world.settle();
        let region = world.regions_of(&name)[0];
        stall(&mut world, region);
        // Gone before its region comes back; what the region is to hold is something else then.
        world.ask(delete(&name)).expect("it is there");
        world.run();
        assert_eq!(world.state("beta/web"), DagState::Ready);
    }
    assert_eq!(waits[0], Duration::ZERO);
    let eights = [8, 64, 512].map(|times| backoff * times);
    assert!(
        waits[1..].iter().zip(eights).all(|(wait, least)| *wait >= least - backoff),
        "{waits:?}"
    );
    let (asked, loads) = (world.now, world.card().loads.len());
    world.deploy("beta/mail", "nat firewall", 5);
    assert_eq!((world.state("beta/mail"), world.card().loads.len()), (DagState::Ready, loads + 1));
    assert!(world.now.since(asked) < backoff * 512, "nobody else waits for it");
    assert_eq!(world.controller.card_view(&card_id()).expect("seen").stalls, 4);
    // An operator has seen to it.
    world.ask(create("acme/last", spec("acme.own", 5))).expect("there is room");
    world.run();
    let region = world.regions_of("acme/last")[0];
    assert_eq!(world.region(region.0).state, RegionState::Reconfiguring);
    world.ask(delete("acme/last")).expect("it is there");
    world.run();
    world.ask(reset(region.0)).expect("nobody is in it");
    let loads = world.card().loads.len();
    world.ask(create("acme/last", spec("acme.own", 5))).expect("there is room");
    world.run();
    assert_eq!(world.card().loads.len(), loads + 1, "at once");
}

/// The driver found the card hung when it took it over.
#[test]
fn a_stall_while_a_card_is_read_back_counts_and_the_region_waits() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let (region, loads) = (world.regions_of("acme/web")[0], world.card().loads.len());
    world.lose_card();
    world.appear(&card_id());
    stall(&mut world, region);
    world.run();
    assert_eq!(world.state("acme/web"), DagState::Degraded);
    let condition = world.condition("acme/web", ConditionType::RegionsLoaded);
    assert_eq!(&*condition.reason, "REGION_STALLED", "{}", condition.message);
    assert_eq!((world.region(region.0).stalls, world.card().loads.len()), (1, loads));
    world.settle();
    assert_eq!((world.state("acme/web"), world.card().loads.len()), (DagState::Ready, loads + 1));
}

#[test]
fn a_region_that_nobody_uses_and_whose_tasks_hang_is_free() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let region = world.regions_of("acme/web")[0];
    world.ask(delete("acme/web")).expect("it exists");
    world.settle();
    assert_eq!(world.region_states()[region.index()], RegionState::Victim);
    stall(&mut world, region);
    world.settle();
    assert_eq!(world.region_states()[region.index()], RegionState::Free);
    stall(&mut world, RegionId(200));
}
