//! Properties of any DAGs, from random ones.

use proptest::prelude::*;
use snic_controller::{Command, Controller, Request, Tx};
use snic_domain::{Caller, DagSpec, DagState};

use crate::support::things::{card_id, create, delete, drain, spec, undrain, update};
use crate::support::{World, operation_id};

fn chain() -> impl Strategy<Value = DagSpec> {
    let nts = ["nat", "firewall", "cache", "aes", "lb", "vpn", "pad"];
    let names = prop::collection::vec(prop::sample::select(nts.to_vec()), 1..4);
    (names, 1u64..45).prop_map(|(names, gbps)| spec(&names.join(" "), gbps))
}

/// Random acts in a world of a few DAGs, without answers in between.
#[derive(Debug, Clone)]
enum Act {
    Put(u8, DagSpec),
    Remove(u8),
    Drain(u8),
    Undrain(u8),
    Answer(u8),
    Lose,
    PowerCycle,
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0u8..4, chain()).prop_map(|(dag, spec)| Act::Put(dag, spec)),
        2 => (0u8..4).prop_map(Act::Remove),
        1 => (0u8..4).prop_map(Act::Drain),
        1 => (0u8..4).prop_map(Act::Undrain),
        6 => (1u8..5).prop_map(Act::Answer),
        1 => Just(Act::Lose),
        1 => Just(Act::PowerCycle),
        1 => Just(Act::Restart),
    ]
}

fn name(dag: u8) -> String {
    format!("{}/d{dag}", if dag.is_multiple_of(2) { "acme" } else { "beta" })
}

/// Carries out an act; refusals are as good as consent.
fn carry_out(world: &mut World, act: &Act) {
    match act {
        Act::Put(dag, spec) => {
            let name = name(*dag);
            let id = crate::support::things::dag(&name);
            let exists = world.controller.dag_view(&id).is_some();
            let put = if exists { update } else { create };
            let _ = world.ask(put(&name, spec.clone()));
        }
        Act::Remove(dag) => {
            let _ = world.ask(delete(&name(*dag)));
        }
        Act::Drain(region) => {
            world.ask(drain(*region)).expect("the card has it");
        }
        Act::Undrain(region) => {
            world.ask(undrain(*region)).expect("the card has it");
        }
        Act::Answer(count) => (0..*count).for_each(|_| {
            world.answer_one();
        }),
        Act::Lose | Act::PowerCycle => {
            if matches!(act, Act::PowerCycle) {
                world.card().power_cycle();
            }
            world.lose_card();
            world.appear(&card_id());
        }
        Act::Restart => world.restart(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A DAG that comes and goes leaves the reservations of the others as they were.
    #[test]
    fn add_then_delete_restores_every_reservation(
        resident in prop::collection::vec(chain(), 0..3),
        guest in chain(),
        later in prop::option::of(chain()),
    ) {
        let mut world = World::new();
        for (i, spec) in resident.into_iter().enumerate() {
            let _ = world.ask(create(&format!("acme/r{i}"), spec));
        }
        world.settle();
        let rows = world.card().dag_rows();
        let before = world.reserved();
        let routed = world.card().routed();
        if world.ask(create("beta/guest", guest)).is_ok() {
            if let Some(later) = later {
                let _ = world.ask(update("beta/guest", later));
            }
            world.settle();
            prop_assert_ne!(&world.reserved(), &before);
            let id = operation_id(world.ask(delete("beta/guest")));
            prop_assert_eq!(&world.reserved(), &before, "its room is free at once");
            world.settle();
            prop_assert_eq!(world.ended(&id), Some(Ok(())));
        }
        prop_assert_eq!(world.reserved(), before);
        prop_assert_eq!(world.card().dag_rows(), rows);
        prop_assert_eq!(world.card().routed(), routed);
    }

    /// Whatever was asked in whatever order: in the end every DAG with a place is ready, no NT is
    /// over its bandwidth, and a restart touches nothing.
    #[test]
    fn the_card_converges_to_the_desired_state(acts in prop::collection::vec(act(), 1..25)) {
        let mut world = World::new();
        for act in &acts {
            carry_out(&mut world, act);
        }
        world.settle();
        for view in world.controller.dags(None) {
            let wanted = if view.mapping.is_some() { DagState::Ready } else { DagState::Failed };
            prop_assert_eq!(view.state, wanted, "{:?}", view.conditions);
        }
        for region in 0..world.card().regions.len() as u8 {
            for slot in world.region(region).slots {
                prop_assert!(slot.reserved <= slot.bandwidth_max, "{:?}", slot);
            }
        }
        let done = (world.card().loads.len(), world.card().words_written, world.reserved());
        world.restart();
        world.settle();
        let after = (world.card().loads.len(), world.card().words_written, world.reserved());
        prop_assert_eq!(after, done);
    }

    /// The same events lead to the same effects, byte by byte of what is stored.
    #[test]
    fn the_same_events_have_the_same_effects(acts in prop::collection::vec(act(), 1..15)) {
        let play = || {
            let mut world = World::new();
            let mut told: Vec<Tx> = Vec::new();
            for act in &acts {
                carry_out(&mut world, act);
                told.push(world.tx.clone());
            }
            world.settle();
            (told, world.durable, world.changes)
        };
        prop_assert_eq!(play(), play());
    }

    /// Records of any size of history are read back into a controller that asks for nothing more.
    #[test]
    fn no_record_is_written_that_cannot_be_read(acts in prop::collection::vec(act(), 1..15)) {
        let mut world = World::new();
        for act in &acts {
            carry_out(&mut world, act);
            let again = crate::support::recover(&world.durable, world.now);
            let again = again.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(again.check(), Ok(()));
            let specs = |c: &Controller| -> Vec<_> {
                c.dags(None).into_iter().map(|d| (d.name, d.uid, d.spec, d.mapping)).collect()
            };
            prop_assert_eq!(specs(&again), specs(&world.controller));
        }
    }
}

#[test]
fn time_never_goes_back() {
    let mut world = World::new();
    let later = world.now + std::time::Duration::from_secs(9);
    let ask = |world: &mut World, name: &str, now| {
        let request = Request {
            caller: Caller::Operator("ada".into()),
            request_id: None,
            command: create(name, spec("nat", 1)),
        };
        world.now = now;
        world.request(request).expect("it is answered").expect("there is room");
        world.view(name).created
    };
    assert_eq!(ask(&mut world, "acme/a", later), later);
    let earlier = world.now;
    assert_eq!(ask(&mut world, "acme/b", earlier), later);
    let undo = Command::DeleteDag { name: crate::support::things::dag("acme/a"), etag: None };
    world.now = later;
    world.ask(undo).expect("it exists");
}
