//! Operators: cards that are cordoned and drained, maintenance.

use snic_controller::{Command, ControlError, Reply};
use snic_domain::{CardId, DagState, RegionId};

use crate::support::things::{card_id, create, delete, spec, undrain, update};
use crate::support::{World, absent, operation_id};

fn second() -> CardId {
    CardId::new("card1").expect("a label")
}

fn cordon(on: bool) -> Command {
    Command::Cordon { card: card_id(), region: None, on }
}

fn drain_card() -> Command {
    Command::DrainCard { card: card_id() }
}

#[test]
fn a_card_is_drained_when_what_it_serves_is_gone_and_the_rest_is_elsewhere() {
    let mut world = World::new();
    world.deploy("acme/a", "lb", 5);
    world.ask(create("acme/b", spec("vpn", 5))).expect("there is room");
    world.add_card(second());
    world.appear(&second());
    let id = operation_id(world.ask(drain_card()));
    let begun = world.operation(&id);
    assert!(begun.regions.0 == 4 && begun.regions.1 < 4, "{begun:?}");
    world.settle();
    // Packets of a DAG that is served come in by this card: it stays.
    assert_eq!(world.view("acme/a").mapping.expect("a place").card, card_id());
    assert_eq!(world.view("acme/b").mapping.expect("a place").card, second());
    assert!(["acme/a", "acme/b"].iter().all(|name| world.state(name) == DagState::Ready));
    assert_eq!(world.ended(&id), None);
    world.ask(delete("acme/a")).expect("it is there");
    world.settle();
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(world.operation(&id).regions, (4, 4), "all are empty");
    // What happens later does not change how it ended.
    world.ask(cordon(false)).expect("it is there");
    world.ask(Command::Cordon { card: second(), region: None, on: true }).expect("it is there");
    world.deploy("acme/c", "lb", 5);
    assert_eq!(world.view("acme/c").mapping.expect("a place").card, card_id());
    world.restart();
    world.settle();
    assert_eq!(world.operation(&id).regions, (4, 4));
}

#[test]
fn a_drain_without_another_card_says_what_is_left_and_can_be_cancelled() {
    let mut world = World::new();
    world.deploy("acme/a", "lb", 5);
    let id = operation_id(world.ask(drain_card()));
    assert_eq!(operation_id(world.ask(drain_card())), id, "it is under way");
    world.settle();
    assert_eq!(world.ended(&id), None);
    let view = world.operation(&id);
    assert_eq!(view.regions, (4, 3));
    let said = "1 DAG is left: tenants/acme/dags/a; packets of what it serves come in by this card: \
                delete it, or unbind its machines and bind them at another one";
    assert_eq!(view.stage.as_deref(), Some(said));
    assert_eq!(world.state("acme/a"), DagState::Ready, "it stays where it is");
    world.restart();
    world.settle();
    assert_eq!(world.ended(&id), None, "a restart does not forget it");
    world.ask(Command::CancelOperation { id: id.clone() }).expect("it can be");
    assert_eq!(world.ended(&id), Some(Err(ControlError::Cancelled)));
    assert!((0..4).all(|region| !world.region(region).cordoned));
    world.deploy("acme/b", "vpn", 5);
}

#[test]
fn an_undrained_region_ends_the_drain_of_its_card() {
    let mut world = World::new();
    world.deploy("acme/a", "lb", 5);
    let id = operation_id(world.ask(drain_card()));
    world.ask(undrain(3)).expect("it exists");
    assert!(matches!(world.ended(&id), Some(Err(ControlError::Superseded { .. }))));
    assert!(world.region(0).cordoned && !world.region(3).cordoned);
}

#[test]
fn on_a_cordoned_card_nothing_new_is_placed_and_what_is_there_stays() {
    let mut world = World::new();
    world.deploy("acme/a", "lb", 5);
    let before = world.regions_of("acme/a");
    assert_eq!(world.ask(cordon(true)), Ok(Reply::Done));
    world.settle();
    world.ask(create("acme/b", spec("vpn", 5))).expect_err("no region is left");
    assert_eq!(world.regions_of("acme/a"), before);
    assert_eq!(world.state("acme/a"), DagState::Ready);
    assert_eq!(world.ask(cordon(false)), Ok(Reply::Done));
    world.deploy("acme/b", "vpn", 5);
    let one = Command::Cordon { card: card_id(), region: Some(RegionId(2)), on: true };
    assert_eq!(world.ask(one), Ok(Reply::Done));
    assert!(world.region(2).cordoned && !world.region(1).cordoned);
    let other = Command::Cordon { card: second(), region: None, on: true };
    assert_eq!(absent(world.ask(other)), "cards/card1");
    let beyond = Command::Cordon { card: card_id(), region: Some(RegionId(9)), on: true };
    assert_eq!(absent(world.ask(beyond)), "cards/card0/regions/9");
}

#[test]
fn maintenance_takes_in_nothing_new_serves_what_is_there_and_survives_a_restart() {
    let mut world = World::new();
    world.deploy("acme/a", "lb", 5);
    let maintain = |reason: Option<&str>| Command::Maintain { reason: reason.map(str::to_owned) };
    assert_eq!(world.ask(maintain(Some("new firmware"))), Ok(Reply::Done));
    let refused = |world: &mut World| {
        let Command::CreateDag { name, spec, .. } = create("acme/b", spec("vpn", 5)) else {
            panic!("it creates a DAG")
        };
        // A dry run says what the request would get.
        for validate_only in [false, true] {
            let (name, spec) = (name.clone(), spec.clone());
            let create = Command::CreateDag { name, spec, validate_only };
            let error = world.ask(create).expect_err("maintenance");
            assert_eq!(error, ControlError::Maintenance { reason: "new firmware".into() });
            assert!(error.to_string().ends_with("are rejected (new firmware)"), "{error}");
        }
    };
    refused(&mut world);
    world.restart();
    world.settle();
    refused(&mut world);
    assert_eq!(world.state("acme/a"), DagState::Ready);
    world.ask(update("acme/a", spec("lb", 7))).expect("what is there may change");
    world.settle();
    world.ask(delete("acme/a")).expect("and go");
    world.settle();
    assert_eq!(world.ask(maintain(None)), Ok(Reply::Done));
    assert_eq!(world.ask(maintain(None)), Ok(Reply::Done), "twice is as once");
    world.restart();
    world.settle();
    world.deploy("acme/b", "vpn", 5);
    let long = "x".repeat(501);
    assert!(matches!(world.ask(maintain(Some(&long))), Err(ControlError::Invalid(_))));
}
