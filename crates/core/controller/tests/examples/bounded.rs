//! Bounds on the work that one tenant can cause: however much follows from an event, the controller plans little with it,
//! and goes on with the next one. The support checks the limit with every event of every example.

use snic_controller::{Command, Event};
use snic_domain::{Bandwidth, CardId, DagSpec, DagState, RegionId};

use crate::support::things::{
    bitstream, card_id, create, dag, delete_bitstream, drain, spec, widen_quota,
};
use crate::support::{World, operation_id};

/// DAGs that share a region: far more than one event may plan.
const MANY: usize = 200;

fn small(chain: &str) -> DagSpec {
    DagSpec { bandwidth: Bandwidth::from_mbps(1), ..spec(chain, 1) }
}

fn name(number: usize) -> String {
    format!("acme/d{number:03}")
}

/// A card on which all of these DAGs are in one region, and the others are free.
fn crowded() -> World {
    let mut world = World::new();
    world.ask(widen_quota()).expect("valid");
    for number in 0..MANY {
        world.ask(create(&name(number), small("lb"))).expect("one chain serves them all");
    }
    world.settle();
    assert!((0..MANY).all(|number| world.state(&name(number)) == DagState::Ready));
    world
}

/// Lets the controller go on by itself, if another event is due at once; says how many were.
fn go_on_once(world: &mut World) -> usize {
    let is_due = world.controller.next_wake_up() == Some(world.now);
    if is_due {
        world.handle(Event::Tick);
    }
    usize::from(is_due)
}

/// The same until none is due.
fn take_next_steps(world: &mut World) -> usize {
    let mut events = 0;
    while go_on_once(world) == 1 {
        events += 1;
        assert!(events < 10 * MANY, "it makes progress with each event");
    }
    events
}

fn in_region(world: &World, region: u8) -> usize {
    let wanted = |number: &usize| {
        let view = world.controller.dag_view(&dag(&name(*number))).expect("it exists");
        view.mapping.is_some_and(|mapping| mapping.uses(RegionId(region)))
    };
    (0..MANY).filter(wanted).count()
}

#[test]
fn a_drain_of_a_crowded_region_is_spread_over_events() {
    let mut world = crowded();
    let region = world.regions_of(&name(0))[0].0;
    let operation = operation_id(world.ask(drain(region)));
    let left = in_region(&world, region);
    assert!(left > MANY / 2, "{left} are still where they were after the first event");
    // In between somebody else is served.
    world.ask(create("beta/web", spec("nat", 1))).expect("there is room");
    let events = take_next_steps(&mut world);
    assert!(events >= MANY / 20, "{events} events");
    assert_eq!(in_region(&world, region), 0, "all of them are on their way, none is forgotten");
    world.settle();
    assert_eq!(world.ended(&operation), Some(Ok(())));
}

#[test]
fn dags_of_a_card_that_is_removed_are_placed_again_over_several_events() {
    let mut world = crowded();
    world.lose_card();
    world.ask(Command::RemoveCard { card: card_id() }).expect("it is lost");
    take_next_steps(&mut world);
    world.add_card(CardId::new("card1").expect("a label"));
    let placed = |world: &World| {
        let views = world.controller.dags(None).into_iter();
        views.filter(|view| view.mapping.is_some()).count()
    };
    let mut before = placed(&world);
    while before < MANY {
        if world.answer_one().is_none() {
            assert_eq!(go_on_once(&mut world), 1, "{before} are placed, and nothing is due");
        }
        let now = placed(&world);
        assert!(now <= before + MANY / 10, "{before}, and {now} after one event");
        before = now;
    }
    world.settle();
    assert!((0..MANY).all(|number| world.state(&name(number)) == DagState::Ready));
}

#[test]
fn a_bitstream_that_many_use_is_left_over_several_events() {
    let mut world = crowded();
    world.ask(Command::CreateBitstream(bitstream("lb-2", &["lb"]))).expect("valid");
    let operation = operation_id(world.ask(delete_bitstream("lb")));
    let events = take_next_steps(&mut world);
    assert!(events >= MANY / 20, "{events} events");
    world.settle();
    assert_eq!(world.ended(&operation), Some(Ok(())));
    assert!((0..MANY).all(|number| world.state(&name(number)) == DagState::Ready));
}
