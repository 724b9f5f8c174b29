//! Operators' commands for regions.

use snic_controller::{Command, ControlError, OperationView, Reply};
use snic_domain::{CardId, DagState, RegionId, RegionState};
use snic_tables::LoadFailure;

use crate::support::things::{
    REGIONS, cancel, card_id, create, delete, drain, reset, spec, undrain, update,
};
use crate::support::{World, absent, operation, operation_id, precondition};

#[test]
fn a_drain_moves_dags_without_a_gap() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    world.deploy("beta/web", "lb", 7);
    let region = world.regions_of("acme/web")[0];
    assert_eq!(world.regions_of("beta/web"), [region]);
    let uids = [world.view("acme/web").uid, world.view("beta/web").uid];
    let id = operation_id(world.ask(drain(region.0)));
    assert_eq!(world.region(region.0).state, RegionState::Draining);
    let mut steps = 0;
    while world.answer_one().is_some() {
        steps += 1;
        for uid in uids {
            let row: Option<snic_tables::DagRow> = world.card().tables.get(uid.row());
            assert!(row.is_some(), "after step {steps} a DAG is not served");
        }
    }
    assert_eq!(world.ended(&id), Some(Ok(())));
    for name in ["acme/web", "beta/web"] {
        assert_eq!(world.state(name), DagState::Ready);
        assert!(!world.regions_of(name).contains(&region));
        assert_eq!(world.view(name).generation, 1, "nothing else is asked for");
    }
    let view = world.region(region.0);
    assert!(view.cordoned && view.users.is_empty());
    assert_eq!(view.state, RegionState::Victim);
}

#[test]
fn nothing_new_is_placed_in_a_drained_region_until_it_is_undrained() {
    let mut world = World::new();
    for region in 0..3 {
        let id = operation_id(world.ask(drain(region)));
        assert_eq!(world.ended(&id), Some(Ok(())), "an empty region is drained at once");
    }
    world.deploy("acme/a", "lb", 40);
    assert_eq!(world.regions_of("acme/a"), [RegionId(3)]);
    world.ask(create("acme/b", spec("vpn", 40))).expect_err("no region is left");
    world.restart();
    world.settle();
    world.ask(create("acme/b", spec("vpn", 40))).expect_err("a restart does not forget");
    let Ok(Reply::Region(view)) = world.ask(undrain(1)) else { panic!("no region") };
    assert!(!view.cordoned);
    world.deploy("acme/b", "vpn", 40);
    assert_eq!(world.regions_of("acme/b"), [RegionId(1)]);
}

#[test]
fn the_same_drain_again_is_the_operation_under_way() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let region = world.regions_of("acme/web")[0].0;
    let first = operation_id(world.ask(drain(region)));
    assert_eq!(operation_id(world.ask(drain(region))), first);
    let view: OperationView = world.operation(&first);
    assert_eq!(view.region.map(|region| region.region), Some(RegionId(region)));
    world.settle();
    assert_eq!(world.ended(&first), Some(Ok(())));
}

/// DAGs that fill the card: each takes a region, and none can share another's.
fn full() -> World {
    let mut world = World::new();
    let chains = ["lb", "vpn", "pad", "cache"];
    for (name, chain) in ["acme/a", "acme/b", "acme/c", "acme/d"].into_iter().zip(chains) {
        world.deploy(name, chain, 5);
    }
    world
}

fn dag_in(world: &World, region: u8) -> &'static str {
    let names = ["acme/a", "acme/b", "acme/c", "acme/d"];
    let uses = |name: &&str| world.regions_of(name).contains(&RegionId(region));
    names.into_iter().find(uses).expect("every region is in use")
}

#[test]
fn a_drain_goes_on_when_there_is_room() {
    let mut world = World::new();
    for name in ["acme/a", "acme/b"] {
        world.deploy(name, "lb", 40);
    }
    world.deploy("acme/c", "vpn", 5);
    world.deploy("acme/d", "pad", 5);
    let region = world.regions_of("acme/a")[0].0;
    let id = operation_id(world.ask(drain(region)));
    world.settle();
    assert_eq!(world.ended(&id), None);
    assert_eq!(world.state("acme/a"), DagState::Ready, "it stays where it is");
    world.ask(delete("acme/c")).expect("it exists");
    world.settle();
    assert_eq!(world.ended(&id), Some(Ok(())), "now there is a region for it");
    assert_eq!(world.state("acme/a"), DagState::Ready);
    assert_ne!(world.regions_of("acme/a"), [RegionId(region)]);
}

#[test]
fn a_drain_takes_along_the_dag_whose_update_is_under_way() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let old = world.regions_of("acme/web")[0].0;
    world.ask(update("acme/web", spec("vpn", 5))).expect("there is room");
    let new = world.regions_of("acme/web")[0].0;
    assert_ne!(old, new);
    let id = operation_id(world.ask(drain(new)));
    world.settle();
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_ne!(world.regions_of("acme/web"), [RegionId(new)]);
}

#[test]
fn a_drain_goes_on_after_a_restart() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let region = world.regions_of("acme/web")[0].0;
    let id = operation_id(world.ask(drain(region)));
    world.restart();
    world.settle();
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert!(world.region(region).users.is_empty());
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

#[test]
fn undraining_supersedes_a_drain_under_way() {
    let mut world = World::new();
    for name in ["acme/a", "acme/b"] {
        world.deploy(name, "lb", 40);
    }
    world.deploy("acme/c", "vpn", 5);
    world.deploy("acme/d", "pad", 5);
    let id = operation_id(world.ask(drain(0)));
    world.ask(undrain(0)).expect("it is drained");
    let superseded = ControlError::Superseded { resource: "cards/card0/regions/0".into() };
    assert_eq!(world.ended(&id), Some(Err(superseded)));
    world.settle();
    assert_eq!(world.region_states(), [RegionState::Active; REGIONS]);
}

/// A region that is drained twice, as a region and with its card, and then undrained is left by nobody: a drain
/// that went on would move its DAGs back into it, again and again.
#[test]
fn undraining_supersedes_the_drains_of_region_and_card_alike() {
    let cordon_off = Command::Cordon { card: card_id(), region: None, on: false };
    for undrained in [undrain(0), cordon_off] {
        let mut world = full();
        let region = operation_id(world.ask(drain(0)));
        let card = operation_id(world.ask(Command::DrainCard { card: card_id() }));
        assert_ne!(region, card);
        world.settle();
        world.ask(undrained).expect("it is drained");
        world.settle();
        for id in [region, card] {
            let superseded = ControlError::Superseded { resource: "cards/card0/regions/0".into() };
            assert_eq!(world.ended(&id), Some(Err(superseded)));
        }
        let moved = dag_in(&world, 1);
        world.ask(delete(moved)).expect("it exists");
        world.settle();
    }
}

/// Cancelling one of two drains leaves the other one whole.
#[test]
fn a_cancelled_drain_opens_no_region_that_another_one_drains() {
    let both = |world: &mut World| {
        let region = operation_id(world.ask(drain(0)));
        let card = operation_id(world.ask(Command::DrainCard { card: card_id() }));
        world.settle();
        (region, card)
    };
    let cordoned = |world: &World| [0, 1, 2, 3].map(|region| world.region(region).cordoned);

    let mut world = full();
    let (region, card) = both(&mut world);
    world.ask(cancel(&region)).expect("a drain can be cancelled");
    assert_eq!((world.ended(&card), cordoned(&world)), (None, [true; 4]));
    world.ask(delete("acme/a")).expect("it exists");
    world.settle();
    world.ask(cancel(&card)).expect("a drain can be cancelled");
    assert_eq!(cordoned(&world), [false; 4]);

    let mut world = full();
    let (region, card) = both(&mut world);
    world.ask(cancel(&card)).expect("a drain can be cancelled");
    assert_eq!((world.ended(&region), cordoned(&world)), (None, [true, false, false, false]));
    let other = dag_in(&world, 1);
    world.ask(delete(other)).expect("it exists");
    world.settle();
    assert_eq!(world.ended(&region), Some(Ok(())), "there is room elsewhere");
    assert_eq!(world.region(0).users, []);
}

#[test]
fn a_region_in_use_is_not_reset() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let region = world.regions_of("acme/web")[0].0;
    let (resource, _) = precondition(world.ask(reset(region)));
    assert_eq!(resource, format!("cards/card0/regions/{region}"));
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

#[test]
fn a_reset_forgets_what_an_unused_region_holds() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let region = world.regions_of("acme/web")[0].0;
    world.ask(delete("acme/web")).expect("it exists");
    world.settle();
    assert_eq!(world.region(region).state, RegionState::Victim);
    let done = operation(world.ask(reset(region)));
    assert!(done.is_done());
    let view = world.region(region);
    assert_eq!((view.state, view.bitstream), (RegionState::Free, None));
    let loads = world.card().loads.len();
    world.deploy("acme/web", "lb", 5);
    assert_eq!(world.card().loads.len(), loads + 1, "what was there is not trusted");
}

#[test]
fn a_reset_gives_a_faulty_region_another_chance() {
    let mut world = World::new();
    let broken = LoadFailure::Controller { code: 9 };
    world.card().bad_regions.insert(RegionId(0), broken);
    world.ask(create("acme/web", spec("lb", 5))).expect("there is room");
    world.settle();
    assert_eq!(world.region_states()[0], RegionState::Faulty);
    assert!(world.region(0).last_error.expect("why").contains("error 9"));
    world.restart();
    world.settle();
    assert_eq!(world.region_states()[0], RegionState::Faulty, "it stays so over a restart");
    world.card().bad_regions.clear();
    assert!(operation(world.ask(reset(0))).is_done());
    let view = world.region(0);
    assert_eq!((view.state, view.failures, view.last_error), (RegionState::Free, 0, None));
    for (name, chain) in [("acme/b", "vpn"), ("acme/c", "pad"), ("acme/d", "cache")] {
        world.deploy(name, chain, 1);
    }
    assert!(world.region_states().iter().all(|state| *state == RegionState::Active));
}

#[test]
fn a_reset_region_is_used_by_those_without_a_place() {
    let mut world = full();
    let lost = dag_in(&world, 0);
    world.card().bad_regions.insert(RegionId(0), LoadFailure::Controller { code: 9 });
    world.card().power_cycle();
    world.lose_card();
    world.appear(&card_id());
    world.settle();
    assert_eq!(world.state(lost), DagState::Failed);
    assert_eq!(world.region_states()[0], RegionState::Faulty);
    world.card().bad_regions.clear();
    world.ask(reset(0)).expect("it is not in use");
    world.settle();
    assert_eq!(world.state(lost), DagState::Ready);
    assert_eq!(world.regions_of(lost), [RegionId(0)]);
}

#[test]
fn regions_that_the_card_does_not_have_are_absent() {
    let mut world = World::new();
    let region = RegionId(REGIONS as u8);
    for card in [card_id(), CardId::new("other").expect("a label")] {
        let region = if card == card_id() { region } else { RegionId(0) };
        let name = format!("cards/{card}/regions/{region}");
        let commands = [
            Command::DrainRegion { card: card.clone(), region },
            Command::UndrainRegion { card: card.clone(), region },
            Command::ResetRegion { card, region },
        ];
        for command in commands {
            assert_eq!(absent(world.ask(command)), name);
        }
    }
}
