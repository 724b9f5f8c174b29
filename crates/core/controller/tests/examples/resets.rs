//! Resetting a card while the daemon runs.

use snic_controller::{CardCommand, CardHealth, CardReport, Command, ControlError, Event};
use snic_domain::{CardId, DagState, OperationId};
use snic_ports::store::RECORD_BYTES_MAX;

use crate::support::things::card_id;
use crate::support::{World, absent, operation_id, precondition};

fn reset(force: bool) -> Command {
    Command::ResetCard { card: card_id(), force }
}

/// The card was closed and reset, or not, and opens.
fn reopen(world: &mut World) -> CardCommand {
    let command = world.answer_one().expect("its thread is told");
    world.appear(&card_id());
    world.settle();
    command
}

fn health(world: &World) -> CardHealth {
    world.controller.card_view(&card_id()).expect("it is known").health
}

fn failure(world: &World, id: &OperationId) -> String {
    let Some(Err(ControlError::Precondition { resource, description })) = world.ended(id) else {
        panic!("{:?}", world.ended(id));
    };
    assert_eq!(resource, "cards/card0");
    description
}

fn at_once(command: &CardCommand) -> bool {
    let CardCommand::Reset { at_once, .. } = command else { panic!("{command:?}") };
    *at_once
}

#[test]
fn a_card_without_dags_is_reset_and_read_back() {
    let mut world = World::new();
    let id = operation_id(world.ask(reset(false)));
    assert!(matches!(health(&world), CardHealth::Lost(why) if why == "it is being reset"));
    assert_eq!(operation_id(world.ask(reset(true))), id, "who asks twice waits for the same");
    let load = Command::LoadRole { card: card_id(), force: false };
    assert!(precondition(world.ask(load)).1.contains(id.as_str()), "one after the other");
    let boot_id = world.card().boot_id;
    assert!(!at_once(&reopen(&mut world)));
    assert_eq!((world.ended(&id), world.card().boot_id), (Some(Ok(())), boot_id + 1));
    assert_eq!(health(&world), CardHealth::Ok);
    world.deploy("acme/web", "lb", 5);
    world.controller.check().expect("consistent");
}

#[test]
fn dags_keep_a_card_from_being_reset_but_not_by_force() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let (name, why) = precondition(world.ask(reset(false)));
    assert_eq!(name, "cards/card0");
    assert!(why.starts_with("DAGs are in 1 of its regions (") && why.contains("force"), "{why}");
    assert!(world.answer_one().is_none(), "the card is not asked");
    let id = operation_id(world.ask(reset(true)));
    assert_ne!(world.state("acme/web"), DagState::Ready);
    assert!(at_once(&reopen(&mut world)));
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(world.state("acme/web"), DagState::Ready, "it was loaded again");
    world.controller.check().expect("consistent");
}

/// Drivers say as much as they like, and what they say is stored with the operation: it is cut, or its record would fit no
/// store.
#[test]
fn a_driver_that_says_more_than_a_record_takes_is_cut() {
    let mut world = World::new();
    let said = format!("the driver is busy\u{1}{}", "\u{1}".repeat(RECORD_BYTES_MAX));
    world.card().bad_reset = Some(said);
    let id = operation_id(world.ask(reset(false)));
    reopen(&mut world);
    let why = failure(&world, &id);
    assert!(why.starts_with("the driver is busy") && why.ends_with('…'), "{} bytes", why.len());
    world.restart();
    assert_eq!(failure(&world, &id), why, "as it is stored");
}

#[test]
fn a_card_that_does_not_answer_can_be_reset() {
    let mut world = World::new();
    world.lose_card();
    let id = operation_id(world.ask(reset(false)));
    assert!(at_once(&reopen(&mut world)));
    assert_eq!((world.ended(&id), health(&world)), (Some(Ok(())), CardHealth::Ok));
    let nowhere = Command::ResetCard { card: CardId::new("card9").expect("a label"), force: true };
    assert_eq!(absent(world.ask(nowhere)), "cards/card9");
}

#[test]
fn what_was_opened_before_it_was_closed_does_not_end_the_operation() {
    let mut world = World::new();
    world.lose_card();
    let id = operation_id(world.ask(reset(false)));
    let asked = world.asked.pop_front().expect("its thread is told");
    world.appear(&card_id());
    world.settle();
    assert_eq!((world.ended(&id), health(&world)), (None, CardHealth::Ok), "not reset yet");
    world.asked.push_back(asked);
    reopen(&mut world);
    assert_eq!(world.ended(&id), Some(Ok(())));
}

#[test]
fn a_reset_that_fails_says_why_and_the_card_is_opened_as_it_is() {
    let mut world = World::new();
    world.card().bad_reset = Some("resetting the card: Device or resource busy".into());
    let id = operation_id(world.ask(reset(true)));
    reopen(&mut world);
    assert!(failure(&world, &id).contains("resource busy"));
    world.deploy("acme/web", "lb", 5);
    let id = operation_id(world.ask(reset(true)));
    world.answer_one();
    world.handle(Event::CardAbsent { card: card_id(), reason: "no such device".into() });
    assert!(failure(&world, &id).contains("no such device"), "it was reset, and is not there");
}

#[test]
fn a_reset_ends_with_the_card_that_is_lost_before_it() {
    let mut world = World::new();
    let id = operation_id(world.ask(reset(false)));
    let reason = "no answer on the bus".to_owned();
    world.asked.clear();
    world.handle(Event::Card { card: card_id(), report: CardReport::Lost { reason } });
    assert!(failure(&world, &id).contains("ask again"));
    // One that needs nothing of the card goes on.
    let id = operation_id(world.ask(reset(true)));
    let reason = "no answer on the bus".to_owned();
    world.handle(Event::Card { card: card_id(), report: CardReport::Lost { reason } });
    assert_eq!(world.ended(&id), None);
    reopen(&mut world);
    assert_eq!(world.ended(&id), Some(Ok(())));
}

#[test]
fn after_a_crash_nobody_claims_that_the_card_was_reset() {
    for force in [false, true] {
        let mut world = World::new();
        let id = operation_id(world.ask(reset(force)));
        world.restart();
        world.settle();
        assert!(failure(&world, &id).contains("unknown"));
        assert_eq!(health(&world), CardHealth::Ok);
        world.controller.check().expect("consistent");
    }
}
