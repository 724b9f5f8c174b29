//! The order of effects, and what those who watch are told.

use snic_controller::{Change, Command, Effect, Event, Reply, Tx};
use snic_domain::{DagState, OperationId};

use crate::support::things::{
    bitstream_id, create, dag, delete, delete_bitstream, digest, drain, spec, update,
};
use crate::support::{World, only_replies, operation_id};

/// Number of effects of each kind: to cards, replies, bytes dropped.
fn counts(tx: &Tx) -> [usize; 3] {
    let of = |is: fn(&Effect) -> bool| tx.effects().iter().filter(|effect| is(effect)).count();
    [
        of(|e| matches!(e, Effect::Card { .. })),
        of(|e| matches!(e, Effect::Reply { .. })),
        of(|e| matches!(e, Effect::DropBlob(_))),
    ]
}

#[test]
fn records_are_stored_with_the_reply_they_support() {
    let mut world = World::new();
    let commands =
        [create("acme/web", spec("lb", 1)), update("acme/web", spec("vpn", 1)), delete("acme/web")];
    for command in commands {
        world.ask(command).expect("valid");
        assert!(!world.tx.writes().is_empty());
        assert_eq!(counts(&world.tx), [1, 1, 0]);
        world.settle();
    }
    world.ask(delete_bitstream("pad")).expect("nobody uses it");
    assert!(!world.tx.writes().is_empty());
    assert_eq!(counts(&world.tx), [0, 1, 1]);
    assert_eq!(world.dropped, [digest("pad")]);
}

#[test]
fn a_start_is_not_waited_for_and_stored_with_the_end() {
    let mut world = World::new();
    world.ask(create("beta/web", spec("vpn", 1))).expect("there is room");
    let id = operation_id(world.ask(create("acme/web", spec("lb", 1))));
    let stored = |world: &World| {
        let record = &world.durable[&format!("operations/{id}")];
        String::from_utf8(record.clone()).expect("JSON is text")
    };
    // The port is free again: the card is asked for the load at once.
    world.answer_one().expect("the load before it");
    assert!(world.tx.writes().is_empty());
    let [cards, replies, dropped] = counts(&world.tx);
    assert!(cards > 0 && replies + dropped == 0, "{:?}", world.tx);
    assert!(world.operation(&id).record.started.is_some());
    assert!(stored(&world).contains("\"started\":null"), "{}", stored(&world));
    world.settle();
    assert!(!stored(&world).contains("\"started\":null"), "{}", stored(&world));
}

#[test]
fn a_refused_request_has_no_effect_but_its_answer() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 1);
    let refused = [
        create("acme/web", spec("lb", 1)),
        update("acme/none", spec("lb", 1)),
        delete("acme/none"),
        delete_bitstream("lb"),
        drain(9),
        Command::CancelOperation { id: OperationId::new("op-0").expect("a label") },
    ];
    for command in refused {
        world.ask(command.clone()).expect_err("it cannot be done");
        assert!(only_replies(&world.tx), "{command:?}: {:?}", world.tx);
    }
}

#[test]
fn a_tick_when_nothing_waits_has_no_effect() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 1);
    world.handle(Event::Tick);
    assert!(world.tx.writes().is_empty() && world.tx.effects().is_empty(), "{:?}", world.tx);
    assert_eq!(world.controller.next_wake_up(), None);
}

#[test]
fn watchers_see_each_state_of_a_dag_until_it_is_gone() {
    let mut world = World::new();
    world.changes.clear();
    let id = operation_id(world.ask(create("acme/web", spec("lb", 1))));
    world.settle();
    world.ask(delete("acme/web")).expect("it exists");
    let mut states = Vec::new();
    let mut ended = Vec::new();
    for (change, dag) in &world.changes {
        match change {
            Change::Dag(..) | Change::DagDeleted(_) => states.extend(dag.iter().map(|d| d.state)),
            Change::Operation(id) => ended.push(id.clone()),
            Change::Region(..)
            | Change::Logged(_)
            | Change::Binding(_)
            | Change::TenantDeleted(_)
            | Change::BindingForgotten(_)
            | Change::Resource { .. }
            | Change::ResourceDeleted { .. } => {}
        }
    }
    states.dedup();
    let last = states.pop();
    assert_eq!(last, Some(DagState::Deleting));
    assert_eq!(states.last(), Some(&DagState::Ready));
    assert_eq!(ended[0], id);
    let gone = world.changes.iter().filter(|(c, _)| matches!(c, Change::DagDeleted(_))).count();
    assert_eq!(gone, 1);
}

#[test]
fn conditions_keep_the_time_of_their_last_change() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 1);
    let before = world.view("acme/web").conditions;
    world.pass(std::time::Duration::from_secs(5));
    world.ask(update("acme/web", spec("lb", 2))).expect("there is room");
    world.settle();
    let after = world.view("acme/web").conditions;
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.status, after.status);
        assert_eq!((before.generation, after.generation), (1, 2));
    }
    let mapped = (before[0].since, after[0].since);
    assert_eq!(mapped.0, mapped.1, "it was mapped all the while");
    assert!(after.last().map(|c| c.since) > before.last().map(|c| c.since), "it was not ready");
}

#[test]
fn bytes_are_dropped_once_and_the_bitstream_can_come_again() {
    let mut world = World::new();
    world.deploy("acme/web", "pad", 1);
    let again = crate::support::things::bitstream("pad", &["pad"]);
    world.ask(delete("acme/web")).expect("it exists");
    world.settle();
    assert_eq!(world.ask(delete_bitstream("pad")), Ok(Reply::Done));
    world.ask(Command::CreateBitstream(again)).expect("the id is free");
    world.deploy("acme/web", "pad", 1);
    assert_eq!(world.dropped, [digest("pad")]);
    let mapping = world.view("acme/web").mapping.expect("placed");
    assert!(mapping.instances().all(|i| i.bitstream == bitstream_id("pad")));
    assert!(world.controller.dag_view(&dag("acme/web")).is_some());
}
