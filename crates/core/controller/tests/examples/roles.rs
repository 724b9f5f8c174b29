//! Loading a card's role while the daemon runs.

use snic_controller::{CardCommand, CardHealth, Command, ControlError, Event, OperationWork};
use snic_domain::{CardId, DagState, OperationId};

use crate::support::things::{card_id, create, drain, spec};
use crate::support::{World, absent, operation_id, precondition};

fn load(force: bool) -> Command {
    Command::LoadRole { card: card_id(), force }
}

/// The card was closed, and opens.
fn reopen(world: &mut World) {
    assert!(matches!(world.answer_one(), Some(CardCommand::LoadRole { .. })));
    world.appear(&card_id());
    world.settle();
}

fn health(world: &World) -> CardHealth {
    world.controller.card_view(&card_id()).expect("it is known").health
}

fn asked(world: &mut World, force: bool) -> OperationId {
    let id = operation_id(world.ask(load(force)));
    assert_eq!(world.ended(&id), None);
    assert!(matches!(health(world), CardHealth::Lost(why) if why.contains("role is being loaded")));
    id
}

#[test]
fn a_role_is_loaded_when_nothing_is_in_the_regions() {
    let mut world = World::new();
    let id = asked(&mut world, false);
    let again = operation_id(world.ask(load(false)));
    assert_eq!(again, id, "who asks twice waits for the same");
    world.ask(create("acme/web", spec("lb", 5))).expect("it is for the card as it comes back");
    reopen(&mut world);
    assert_eq!(world.ended(&id), Some(Ok(())));
    let work = world.operation(&id).record.work;
    assert_eq!(work, OperationWork::LoadRole { card: card_id(), force: false });
    assert_eq!(world.state("acme/web"), DagState::Ready);
    world.controller.check().expect("consistent");
}

#[test]
fn a_role_is_refused_while_dags_are_in_the_regions() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let (name, why) = precondition(world.ask(load(true)));
    assert_eq!(name, "cards/card0");
    assert!(why.starts_with("DAGs are in 1 of its regions (") && why.contains("drain"), "{why}");
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert!(world.answer_one().is_none(), "the card is not asked");
    let id = operation_id(world.ask(drain(0)));
    let (_, busy) = precondition(world.ask(load(true)));
    assert!(world.ended(&id).is_none() && busy.contains("regions"), "{busy}");
    let nowhere = Command::LoadRole { card: CardId::new("card9").expect("a label"), force: false };
    assert_eq!(absent(world.ask(nowhere)), "cards/card9");
}

#[test]
fn a_role_that_cannot_be_loaded_leaves_the_card_as_it_is() {
    let mut world = World::new();
    let id = asked(&mut world, false);
    world.card().bad_role = Some("role /etc/snic/role.xclbin: no IP layout".into());
    world.settle();
    let Some(Err(ControlError::Precondition { resource, description })) = world.ended(&id) else {
        panic!("{:?}", world.ended(&id));
    };
    assert_eq!(resource, "cards/card0");
    assert!(description.contains("no IP layout"), "{description}");
    world.deploy("acme/web", "lb", 5);
}

#[test]
fn a_card_that_does_not_open_with_its_role_ends_the_operation_with_the_reason() {
    let mut world = World::new();
    let id = asked(&mut world, false);
    world.answer_one();
    world.handle(Event::CardAbsent { card: card_id(), reason: "it does not answer".into() });
    let Some(Err(error)) = world.ended(&id) else { panic!("{:?}", world.ended(&id)) };
    assert!(error.to_string().contains("it does not answer"), "{error}");
    assert!(matches!(health(&world), CardHealth::Lost(_)));
    world.appear(&card_id());
    world.deploy("acme/web", "lb", 5);
}

#[test]
fn after_a_crash_opening_the_card_ends_the_operation_but_nothing_is_forced() {
    for force in [false, true] {
        let mut world = World::new();
        let id = asked(&mut world, force);
        world.restart();
        world.settle();
        match world.ended(&id) {
            Some(Ok(())) => assert!(!force),
            Some(Err(error)) => {
                assert!(force && error.to_string().contains("ask again"), "{error}")
            }
            None => panic!("it waits for ever"),
        }
        world.controller.check().expect("consistent");
    }
}
