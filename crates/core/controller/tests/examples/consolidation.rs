//! Moving DAGs together, and what is worth building.

use std::time::Duration;

use snic_controller::{
    Arrangement, BitstreamAdvice, Command, ConsolidationSettings, ConsolidationView, ControlError,
    ControllerSettings, DagMoves, Event, Objective, OperationWork, PlacementPolicy,
};
use snic_domain::{Bandwidth, CardId, DagSpec, DagState, OperationId, RegionState};

use crate::support::things::{
    bitstream, card_id, create, delete, spec, tenant_id, update, widen_quota,
};
use crate::support::{World, operation_id};

fn optimize() -> Command {
    Command::OptimizeCard { card: card_id() }
}

fn would_be(world: &World) -> ConsolidationView {
    world.controller.picture(&card_id()).expect("it is ready").consolidation()
}

fn advice(world: &World) -> BitstreamAdvice {
    let picture = world.controller.picture(&card_id()).expect("it is ready");
    picture.recommendations(world.controller.dags_without_place())
}

/// `aes` serves 10 Gbit/s: two regions, then the first DAG leaves.
fn scattered() -> World {
    let mut world = World::new();
    world.deploy("acme/a", "aes", 6);
    world.deploy("acme/b", "aes", 7);
    world.deploy("beta/c", "aes", 3);
    world.ask(delete("acme/a")).expect("it is there");
    world.settle();
    assert_ne!(world.regions_of("acme/b"), world.regions_of("beta/c"));
    world
}

#[test]
fn scattered_dags_are_consolidated_without_interruption() {
    let mut world = scattered();
    let view = would_be(&world);
    assert_eq!((view.moves.len(), view.freed.len(), view.reconfigurations), (1, 1, 0));
    let uids = ["acme/b", "beta/c"].map(|name| world.view(name).uid);
    let id = operation_id(world.ask(optimize()));
    while world.answer_one().is_some() {
        for uid in uids {
            let row: Option<snic_tables::DagRow> = world.card().tables.get(uid.row());
            assert!(row.is_some(), "a DAG is not served");
        }
    }
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(world.regions_of("acme/b"), world.regions_of("beta/c"));
    assert_eq!(world.region(view.freed[0].0).state, RegionState::Victim);
    assert_eq!(would_be(&world).moves, []);
    assert_eq!(moves_of(&world, &id), DagMoves { made: 1, left: 0 });
    world.restart();
    assert_eq!(moves_of(&world, &id), DagMoves { made: 1, left: 0 }, "the store has them");
}

fn moves_of(world: &World, id: &OperationId) -> DagMoves {
    let operator = crate::support::operator();
    let view = world.controller.operations(&operator).find(|view| view.record.id == *id);
    view.and_then(|view| view.moves).expect("it is a consolidation")
}

/// As many DAGs as the tables take; what moves has rows of its own all the same.
#[test]
#[ignore = "ci: a minute"]
fn dags_move_together_on_a_card_whose_tables_are_full() {
    let mut world = scattered();
    world.ask(widen_quota()).expect("valid");
    let small = DagSpec { bandwidth: Bandwidth::from_mbps(1), ..spec("lb", 1) };
    let refused = (0..2_000).find_map(|at| {
        let created = world.ask(create(&format!("acme/d{at}"), small.clone()));
        world.settle();
        created.err()
    });
    let refused = refused.expect("a card has so many rows").to_string();
    assert!(refused.contains("virtual-chain"), "{refused}");
    assert_ne!(world.regions_of("acme/b"), world.regions_of("beta/c"));
    let would_be = would_be(&world).moves.len();
    assert!(would_be > 0, "nothing to gain");
    let id = operation_id(world.ask(optimize()));
    world.settle();
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(moves_of(&world, &id), DagMoves { made: would_be as u32, left: 0 });
    assert_eq!(world.regions_of("acme/b"), world.regions_of("beta/c"));
}

#[test]
fn a_pass_with_nothing_to_do_ends_at_once() {
    let mut world = World::new();
    world.deploy("acme/a", "aes", 6);
    let id = operation_id(world.ask(optimize()));
    assert_eq!(world.ended(&id), None, "a search is under way");
    world.search();
    assert_eq!(world.ended(&id), Some(Ok(())));
    let nowhere = CardId::new("nowhere").expect("a label");
    let absent = world.ask(Command::OptimizeCard { card: nowhere.clone() });
    assert!(matches!(absent, Err(ControlError::NotFound { .. })));
    assert!(matches!(world.controller.picture(&nowhere), Err(ControlError::NotFound { .. })));
    world.lose_card();
    assert!(matches!(world.ask(optimize()), Err(ControlError::Precondition { .. })));
    let lost = world.controller.picture(&card_id());
    assert!(matches!(lost, Err(ControlError::Precondition { .. })));
}

#[test]
fn a_pass_that_a_crash_cut_off_goes_on() {
    for is_found in [false, true] {
        let mut world = scattered();
        let id = operation_id(world.ask(optimize()));
        if is_found {
            world.search();
        }
        assert_eq!(world.ended(&id), None, "a search or a commit is under way");
        world.restart();
        world.settle();
        assert_eq!(world.ended(&id), Some(Ok(())));
        assert_eq!(world.regions_of("acme/b"), world.regions_of("beta/c"));
        assert_eq!(world.state("beta/c"), DagState::Ready);
    }
}

/// The result of a search counts for the pass that asked for it, and only if it is still good.
#[test]
fn what_changes_during_a_search_is_met_with_a_new_look() {
    let mut world = scattered();
    let first = operation_id(world.ask(optimize()));
    let (card, most) = world.searches.pop_front().expect("it is searched");
    let found = world.controller.search(&card, most);
    world.ask(update("beta/c", spec("aes", 9))).expect("there is room");
    world.run();
    world.ask(Command::CancelOperation { id: first.clone() }).expect("it has not begun");
    let second = operation_id(world.ask(optimize()));
    assert!(world.searches.is_empty(), "one at a time");
    world.handle(found);
    assert_eq!(world.searches.len(), 1, "the second pass looks for itself");
    world.settle();
    assert!(matches!(world.ended(&first), Some(Err(ControlError::Cancelled))));
    assert_eq!(world.ended(&second), Some(Ok(())));
    assert_eq!(world.view("beta/c").spec.bandwidth, Bandwidth::from_gbps(9));
    for name in ["acme/b", "beta/c"] {
        assert_eq!(world.state(name), DagState::Ready);
    }
    // Nobody has asked for it.
    world.handle(Event::Searched(Arrangement::as_it_is(card)));
}

/// A defect in a search ends the pass that waits for it, and the card can be searched again.
#[test]
fn a_search_that_fails_ends_its_pass() {
    let mut world = scattered();
    let first = operation_id(world.ask(optimize()));
    let (card, _) = world.searches.pop_front().expect("it is searched");
    let failed = Arrangement::failed(card);
    world.handle(Event::Searched(failed));
    let error = world.ended(&first).expect("it does not wait for ever").expect_err("it failed");
    assert_eq!(error, ControlError::SearchFailed { resource: "cards/card0".into() });
    let second = operation_id(world.ask(optimize()));
    world.settle();
    assert_eq!(world.ended(&second), Some(Ok(())));
    assert_eq!(world.regions_of("acme/b"), world.regions_of("beta/c"));
}

#[test]
fn a_change_in_the_middle_is_met_with_a_new_look() {
    let mut world = scattered();
    let id = operation_id(world.ask(optimize()));
    world.ask(update("beta/c", spec("aes", 9))).expect("there is room");
    world.settle();
    assert_eq!(world.ended(&id), Some(Ok(())));
    for name in ["acme/b", "beta/c"] {
        assert_eq!(world.state(name), DagState::Ready);
    }
}

const AFTER: Duration = Duration::from_secs(10);

/// The three DAGs of [`scattered`], with passes that begin on their own.
pub fn consolidated() -> World {
    let mut world = consolidating();
    world.deploy("acme/a", "aes", 6);
    world.deploy("acme/b", "aes", 7);
    world.deploy("beta/c", "aes", 3);
    world
}

/// An empty card whose DAGs are moved together after a while.
fn consolidating() -> World {
    let mut world = World::new();
    let consolidation =
        ConsolidationSettings { after: Some(AFTER), ..ConsolidationSettings::default() };
    world.settings = ControllerSettings { consolidation, ..world.settings };
    world.restart();
    world.settle();
    world
}

/// A search takes its time; what is freed meanwhile may give something to gain that it has not seen.
#[test]
fn what_is_freed_during_a_search_is_looked_at_afterwards() {
    let mut world = consolidated();
    world.deploy("acme/d", "nat", 1);
    let later = |world: &mut World| {
        world.run();
        world.pass(AFTER);
        world.handle(Event::Tick);
    };
    world.ask(delete("acme/d")).expect("it is there");
    later(&mut world);
    let (card, _) = world.searches.pop_front().expect("a search has begun on its own");
    world.ask(delete("acme/a")).expect("it is there");
    later(&mut world);
    assert!(world.searches.is_empty(), "one at a time");
    world.handle(Event::Searched(Arrangement::as_it_is(card)));
    assert_ne!(world.regions_of("acme/b"), world.regions_of("beta/c"));
    world.settle();
    assert_eq!(world.regions_of("acme/b"), world.regions_of("beta/c"));
}

#[test]
fn a_pass_begins_on_its_own_a_while_after_something_left() {
    let mut world = consolidated();
    let before = world.now;
    world.ask(delete("acme/a")).expect("it is there");
    world.settle();
    assert_eq!(world.regions_of("acme/b"), world.regions_of("beta/c"));
    assert!(world.now.since(before) >= AFTER);
    let operator = crate::support::operator();
    let operations = world.controller.operations(&operator);
    let passes = operations.filter(|o| matches!(o.record.work, OperationWork::OptimizeCard(_)));
    assert_eq!(passes.count(), 1);
}

/// A DAG that was cut because no region had all of its NTs moves when one is loaded that has, though nothing left and the
/// upload alone gained nothing.
#[test]
fn a_dag_that_was_cut_moves_into_a_region_that_is_loaded_later() {
    let mut world = consolidating();
    let placement = PlacementPolicy { objective: Objective::Regions, ..Default::default() };
    // No pass loads a region by itself.
    let consolidation =
        ConsolidationSettings { reconfigurations_max: 0, ..world.settings.consolidation };
    world.settings = ControllerSettings { placement, consolidation, ..world.settings };
    world.restart();
    world.settle();
    let passes =
        |world: &World| world.view("acme/cut").mapping.expect("it has a place").stages.len();
    world.deploy("acme/l", "lb", 5);
    world.deploy("acme/v", "vpn", 5);
    world.deploy("acme/cut", "lb vpn", 3);
    assert_eq!(passes(&world), 2, "nobody has built a region with both");
    world.ask(Command::CreateBitstream(bitstream("both", &["lb", "vpn"]))).expect("it is new");
    world.settle();
    assert_eq!(passes(&world), 2, "the upload alone gains nothing");
    world.ask(create("beta/wide", spec("lb vpn", 35))).expect("a region is free");
    world.run();
    assert_eq!(passes(&world), 2, "not at once");
    world.settle();
    assert_eq!(passes(&world), 1);
    assert_eq!(world.state("acme/cut"), DagState::Ready);
}

/// Nothing is built for `pad -> vpn -> lb`: it is refused where there are too few regions.
#[test]
fn a_sequence_that_was_refused_is_recommended_with_a_manifest() {
    let mut world = World::new();
    world.deploy("acme/a", "nat firewall cache aes", 6);
    world.deploy("acme/b", "lb", 40);
    world.deploy("acme/c", "vpn", 30);
    let refused = create("beta/x", spec("pad vpn lb", 20));
    assert!(matches!(world.ask(refused), Err(ControlError::Refused(_))));
    let advice = advice(&world);
    let worth = advice.worth_building;
    let first = &worth[0];
    let nts: Vec<&str> = first.recommendation.nts.iter().map(|nt| nt.as_str()).collect();
    assert_eq!(nts, ["pad", "vpn", "lb"]);
    let admits: Vec<String> = first.recommendation.admits.iter().map(ToString::to_string).collect();
    assert_eq!(admits, ["tenants/beta/dags/x"]);
    for part in ["part = ", "nts = [\"pad\", \"vpn\", \"lb\"]", "[constraints]", "slots_max = 8"] {
        assert!(first.manifest.contains(part), "{part} is not in {}", first.manifest);
    }
}

fn refused(world: &World) -> Vec<&str> {
    world.durable.keys().filter_map(|key| key.strip_prefix("refused/")).collect()
}

#[test]
fn refused_moves_are_remembered_over_a_restart() {
    let mut world = World::new();
    world.deploy("acme/a", "nat firewall cache aes", 6);
    world.deploy("acme/b", "lb", 40);
    world.deploy("acme/c", "vpn", 30);
    let mut dry = create("beta/y", spec("pad vpn lb", 20));
    if let Command::CreateDag { validate_only, .. } = &mut dry {
        *validate_only = true;
    }
    world.ask(dry).expect_err("there is no room");
    assert_eq!(refused(&world), Vec::<&str>::new(), "nobody wanted it");
    world.ask(create("beta/x", spec("pad vpn lb", 20))).expect_err("there is no room");
    assert_eq!(refused(&world), ["beta/x"]);
    world.restart();
    world.settle();
    let advice = advice(&world);
    let worth = advice.worth_building;
    let admits = &worth[0].recommendation.admits;
    assert_eq!(admits.iter().map(ToString::to_string).collect::<Vec<_>>(), ["tenants/beta/dags/x"]);

    // A change that was refused counts, too, until one is admitted.
    world.ask(update("acme/b", spec("pad vpn lb", 20))).expect_err("there is no room");
    assert_eq!(refused(&world), ["acme/b", "beta/x"]);
    world.ask(update("acme/b", spec("lb", 10))).expect("less than before");
    world.ask(create("beta/x", spec("lb", 1))).expect("there is room");
    assert_eq!(refused(&world), Vec::<&str>::new());
}

#[test]
fn the_last_refused_dags_are_kept_as_long_as_their_tenant() {
    let mut world = World::new();
    for number in 0..70 {
        world.ask(create(&format!("beta/x{number:02}"), spec("aes", 99))).expect_err("too much");
    }
    let kept = refused(&world);
    assert_eq!((kept.len(), kept[0], kept[63]), (64, "beta/x06", "beta/x69"));
    let again = create("beta/x10", spec("aes", 98));
    world.ask(again).expect_err("too much");
    world.restart();
    world.settle();
    world.ask(create("beta/y", spec("aes", 99))).expect_err("too much");
    let kept = refused(&world);
    assert_eq!((kept.len(), kept[0]), (64, "beta/x07"), "the latest of a name counts");
    assert!(kept.contains(&"beta/x10"));
    let gone = Command::DeleteTenant { id: tenant_id("beta"), force: false, etag: None };
    world.ask(gone).expect("it owns nothing");
    assert_eq!(refused(&world), Vec::<&str>::new());
}
