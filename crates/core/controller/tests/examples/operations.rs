//! Operations and request ids: what can be asked again, taken back, and forgotten.

use std::time::Duration;

use snic_controller::{Command, ControlError, Reply, Request};
use snic_domain::limits::OPERATION_KEPT;
use snic_domain::{DagState, OperationId, RegionState, Rule};

use crate::support::things::{
    REGIONS, bitstream, caller, cancel, create, dag, delete, drain, nt, spec, tenant, update,
};
use crate::support::{World, absent, operation, operation_id, operator, precondition, wrong_field};

fn forget(id: &OperationId) -> Command {
    Command::DeleteOperation { id: id.clone() }
}

fn rule(dag_name: &str) -> Rule {
    let matches = snic_domain::Match { vni: Some(7), ..Default::default() };
    let id = snic_domain::RuleId::new("r").expect("a label");
    Rule { id, priority: 1, matches, dag: dag(dag_name), notes: Default::default() }
}

#[test]
fn a_create_with_a_request_id_is_done_once() {
    let mut world = World::new();
    let commands = [
        Command::CreateTenant(tenant("gamma")),
        Command::CreateNtType(nt("gre", 40)),
        Command::CreateBitstream(bitstream("gre", &["gre"])),
        create("acme/web", spec("nat", 1)),
        Command::CreateRule(rule("acme/web")),
    ];
    for (i, command) in commands.into_iter().enumerate() {
        let id = format!("request-{i}");
        let first = world.ask_once(&id, command.clone()).expect("valid");
        let same = |again: Reply| match (&first, &again) {
            (Reply::Operation(a), Reply::Operation(b)) => assert_eq!(a.record.id, b.record.id),
            (a, b) => assert_eq!(a, b, "{id}"),
        };
        let batches = world.batches;
        same(world.ask_once(&id, command.clone()).expect("known"));
        assert_eq!(world.batches, batches, "{id}: nothing is stored again");
        world.restart();
        same(world.ask_once(&id, command).expect("still known"));
    }
}

#[test]
fn a_request_id_is_for_one_command_of_one_caller() {
    let mut world = World::new();
    world.ask_once("id-1", create("acme/web", spec("nat", 1))).expect("valid");
    let reused = Err(ControlError::RequestIdReused { id: "id-1".into() });
    assert_eq!(world.ask_once("id-1", create("acme/web", spec("nat", 2))), reused);
    assert_eq!(world.ask_once("id-1", delete("acme/web")), reused);
    world.restart();
    assert_eq!(world.ask_once("id-1", create("acme/b", spec("nat", 1))), reused);
    let theirs = Request {
        caller: caller("beta"),
        request_id: Some("id-1".into()),
        command: create("beta/web", spec("nat", 1)),
    };
    operation(world.request(theirs).expect("no crash was asked for"));
}

#[test]
fn request_ids_are_letters_digits_and_dashes() {
    let mut world = World::new();
    let command = create("acme/web", spec("nat", 1));
    for id in ["", "a/b", "é", &"x".repeat(65)] {
        assert_eq!(wrong_field(world.ask_once(id, command.clone())), "request_id");
    }
    world.ask_once(&"x".repeat(64), command).expect("a good one");
}

#[test]
fn a_failed_request_can_be_repeated_with_its_id() {
    let mut world = World::new();
    let command = create("acme/web", spec("gre", 1));
    world.ask_once("id", command.clone()).expect_err("no such NT");
    world.ask(Command::CreateNtType(nt("gre", 40))).expect("valid");
    world.ask(Command::CreateBitstream(bitstream("gre", &["gre"]))).expect("valid");
    operation(world.ask_once("id", command));
}

#[test]
fn updates_and_deletes_with_a_request_id_are_done_once_too() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let updated = operation_id(world.ask_once("u", update("acme/web", spec("nat", 2))));
    world.settle();
    assert_eq!(operation_id(world.ask_once("u", update("acme/web", spec("nat", 2)))), updated);
    assert_eq!(world.view("acme/web").generation, 2);
    let deleted = operation_id(world.ask_once("d", delete("acme/web")));
    world.deploy("acme/web", "nat", 1);
    assert_eq!(operation_id(world.ask_once("d", delete("acme/web"))), deleted);
    assert_eq!(world.state("acme/web"), DagState::Ready, "the new one is not deleted");
}

#[test]
fn a_create_that_waits_is_cancelled_without_a_trace() {
    let mut world = World::new();
    world.deploy("beta/first", "nat", 1);
    let fresh = (world.reserved(), world.card().dag_rows());
    world.ask(create("beta/busy", spec("vpn", 1))).expect("there is room");
    let id = operation_id(world.ask(create("acme/web", spec("lb", 5))));
    assert_eq!(world.state("acme/web"), DagState::Pending);
    let view = world.operation(&id);
    assert!(view.cancellable && view.record.started.is_none());
    assert_eq!(view.regions, (1, 0));
    assert_eq!(world.ask_as(caller("acme"), cancel(&id)), Ok(Reply::Done));
    assert_eq!(world.ended(&id), Some(Err(ControlError::Cancelled)));
    assert!(world.controller.dag_view(&dag("acme/web")).is_none());
    world.ask(delete("beta/busy")).expect("it exists");
    world.settle();
    assert_eq!((world.reserved(), world.card().dag_rows()), fresh);
    let (_, text) = precondition(world.ask(cancel(&id)));
    assert!(text.contains("ended"), "{text}");
    world.ask(create("acme/web", spec("lb", 5))).expect("the name is free");
}

#[test]
fn operations_that_have_started_cannot_be_cancelled() {
    let mut world = World::new();
    let created = operation_id(world.ask(create("acme/web", spec("nat", 1))));
    assert!(!world.operation(&created).cancellable);
    let (_, text) = precondition(world.ask(cancel(&created)));
    assert!(text.contains("started"), "{text}");
    world.settle();
    assert_eq!(world.ended(&created), Some(Ok(())));
    let deleted = operation_id(world.ask(delete("acme/web")));
    assert!(!world.operation(&deleted).cancellable);
    precondition(world.ask(cancel(&deleted)));
}

#[test]
fn a_cancel_before_the_start_survives_a_restart() {
    let mut world = World::new();
    world.lose_card();
    let id = operation_id(world.ask(create("acme/web", spec("nat", 1))));
    assert!(world.operation(&id).cancellable, "a card that is away starts nothing");
    world.restart();
    let id_after = operation_id(world.ask(create("acme/b", spec("nat", 1))));
    assert_ne!(id, id_after);
    world.settle();
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

#[test]
fn a_drain_is_cancelled_at_any_time() {
    let mut world = World::new();
    for name in ["acme/a", "acme/b", "acme/c", "acme/d"] {
        world.deploy(name, "aes", 10);
    }
    let id = operation_id(world.ask(drain(0)));
    world.settle();
    assert_eq!(world.ended(&id), None, "there is nowhere to go");
    assert_eq!(world.region_states()[0], RegionState::Draining);
    assert_eq!(world.ask(cancel(&id)), Ok(Reply::Done));
    assert_eq!(world.ended(&id), Some(Err(ControlError::Cancelled)));
    assert_eq!(world.region_states(), [RegionState::Active; REGIONS]);
}

#[test]
fn operations_are_their_tenants_and_drains_the_operators() {
    let mut world = World::new();
    let id = operation_id(world.ask(create("acme/web", spec("nat", 1))));
    let drained = operation_id(world.ask(drain(3)));
    assert!(world.controller.operation(&caller("acme"), &id).is_some());
    assert!(world.controller.operation(&caller("beta"), &id).is_none());
    assert!(world.controller.operation(&caller("acme"), &drained).is_none());
    for command in [cancel(&id), forget(&id)] {
        let name = absent(world.ask_as(caller("beta"), command));
        assert_eq!(name, format!("operations/{id}"));
    }
    let visible = |who| world.controller.operations(&who).count();
    assert_eq!((visible(caller("acme")), visible(caller("beta")), visible(operator())), (1, 0, 2));
}

#[test]
fn an_operation_is_forgotten_when_it_has_ended() {
    let mut world = World::new();
    let id = operation_id(world.ask(create("acme/web", spec("nat", 1))));
    precondition(world.ask(forget(&id)));
    world.settle();
    assert_eq!(world.ask(forget(&id)), Ok(Reply::Done));
    assert!(world.controller.operation(&operator(), &id).is_none());
    assert_eq!(absent(world.ask(forget(&id))), format!("operations/{id}"));
    assert!(!world.durable.keys().any(|key| key.starts_with("operations/")));
}

#[test]
fn old_operations_and_request_ids_are_forgotten_and_running_ones_are_not() {
    let mut world = World::new();
    let done = operation_id(world.ask_once("r", create("acme/web", spec("nat", 1))));
    world.settle();
    world.lose_card();
    let waits = operation_id(world.ask(create("acme/late", spec("nat", 1))));
    world.pass(OPERATION_KEPT - Duration::from_secs(1));
    assert!(world.controller.operation(&operator(), &done).is_some());
    world.restart();
    world.lose_card();
    world.pass(Duration::from_secs(2));
    assert!(world.controller.operation(&operator(), &done).is_none());
    assert!(world.controller.operation(&operator(), &waits).is_some());
    let old = |(key, _): &(&String, &Vec<u8>)| {
        key.starts_with("requests/") || *key == &format!("operations/{done}")
    };
    assert_eq!(world.durable.iter().filter(old).count(), 0);
    let exists = world.ask_once("r", create("acme/web", spec("nat", 1)));
    assert!(matches!(exists, Err(ControlError::AlreadyExists { .. })), "{exists:?}");
}

#[test]
fn operations_are_listed_from_the_oldest_in_pages() {
    let mut world = World::new();
    let mut made = Vec::new();
    for name in ["acme/a", "acme/b", "acme/c"] {
        made.push(operation_id(world.ask(create(name, spec("nat", 1)))));
        world.pass(Duration::from_millis(1));
    }
    let second = world.operation(&made[1]).record;
    let page = |after| -> Vec<OperationId> {
        let who = operator();
        let views = world.controller.operations_after(&who, |_| true, after);
        views.map(|view| view.record.id).collect()
    };
    assert_eq!(page(None), made);
    assert_eq!(page(Some((second.created, second.id))), made[2..]);
}
