//! ETags of cards, regions and bindings, and notes about DAGs and tenants.

use std::collections::BTreeMap;

use snic_controller::{Command, ControlError, Reply};
use snic_domain::{
    BindingSpec, BindingTarget, DagPatch, Description, Labels, NotesPatch, RegionId,
};

use crate::support::things::{
    card_id, create, dag, drain, reset, spec, tenant_id, undrain, update,
};
use crate::support::{Answer, World, operation_id};

fn guarded(etag: &str, command: Command) -> Command {
    Command::Guarded { etag: etag.to_owned(), command: Box::new(command) }
}

fn has_changed(answer: Answer) -> bool {
    matches!(answer, Err(ControlError::EtagMismatch { .. }))
}

fn card_etag(world: &World) -> String {
    world.controller.card_view(&card_id()).expect("there").etag
}

#[test]
fn a_regions_etag_changes_with_what_is_decided_about_it() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let [region] = world.regions_of("acme/web")[..] else { panic!("one region") };
    let other = (0u8..4).map(RegionId).find(|id| *id != region).expect("there are four");
    let (before, card) = (world.region(region.0).etag, card_etag(&world));
    // What the card does meanwhile does not count.
    world.lose_card();
    world.appear(&card_id());
    world.settle();
    assert_eq!((&world.region(region.0).etag, &card_etag(&world)), (&before, &card));
    let cordon = |on| Command::Cordon { card: card_id(), region: Some(region), on };
    world.ask(guarded(&before, cordon(true))).expect("as it was read");
    assert_ne!(world.region(region.0).etag, before);
    for late in [cordon(true), drain(region.0), undrain(region.0), reset(region.0)] {
        assert!(has_changed(world.ask(guarded(&before, late))));
    }
    let of_card = [
        Command::DrainCard { card: card_id() },
        Command::Cordon { card: card_id(), region: None, on: true },
        Command::LoadRole { card: card_id(), force: false },
        Command::ResetCard { card: card_id(), force: true },
        Command::RemoveCard { card: card_id() },
        Command::ReplaceCard { card: card_id() },
    ];
    for late in of_card {
        assert!(has_changed(world.ask(guarded(&card, late))), "one of its regions is cordoned");
    }
    assert!(!world.region(other.0).cordoned, "nothing that was refused had an effect");
    let now = card_etag(&world);
    world.restart();
    world.settle();
    assert_eq!(card_etag(&world), now, "a restart changes nothing");
    world.ask(guarded(&now, Command::DrainCard { card: card_id() })).expect("as it was read");
    assert_ne!(card_etag(&world), now, "a drain is decided upon");
    let absent = Command::DrainCard { card: snic_domain::CardId::new("other").expect("a label") };
    let error = world.ask(guarded(&now, absent)).expect_err("there is none");
    assert!(matches!(error, ControlError::NotFound { .. }), "{error}");
    let other = guarded(&now, create("acme/b", spec("nat", 1)));
    let error = world.ask(other).expect_err("DAGs have guards of their own");
    assert!(matches!(error, ControlError::Invalid(_)), "{error}");
}

#[test]
fn a_drain_of_a_cordoned_region_changes_its_etag_and_the_cards() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let [region] = world.regions_of("acme/web")[..] else { panic!("one region") };
    world.ask(Command::Cordon { card: card_id(), region: Some(region), on: true }).expect("there");
    let (before, card) = (world.region(region.0).etag, card_etag(&world));
    world.ask(guarded(&before, drain(region.0))).expect("as it was read");
    assert!(has_changed(world.ask(guarded(&before, undrain(region.0)))), "a drain is decided upon");
    assert!(has_changed(world.ask(guarded(&card, Command::DrainCard { card: card_id() }))));
}

#[test]
fn a_binding_ends_only_as_it_was_read() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let vm: snic_domain::VmId = "123e4567-e89b-12d3-a456-426614174000".parse().expect("a UUID");
    let bind = |world: &mut World| {
        let spec = BindingSpec {
            vm: vm.clone(),
            tenant: tenant_id("acme"),
            chains: BindingTarget::Dags(vec![dag("acme/web")]),
            functions: 1,
            ready_within: std::time::Duration::from_secs(30),
            lease: None,
            notes: Default::default(),
            limits: Default::default(),
        };
        world.ask(Command::BindVm(spec)).expect("there is room");
        world.settle();
        world.controller.binding_view(&vm).expect("there").etag
    };
    let first = bind(&mut world);
    let unbind = || Command::UnbindVm { vm: vm.clone(), tenant: None };
    world.ask(guarded(&first, unbind())).expect("as it was read");
    world.pass(std::time::Duration::from_secs(1));
    let second = bind(&mut world);
    assert_ne!(first, second);
    assert!(has_changed(world.ask(guarded(&first, unbind()))), "another binding of the machine");
    world.ask(guarded(&second, unbind())).expect("as it was read");
}

fn labels(app: &str) -> Option<Labels> {
    let labels = BTreeMap::from([("app".to_owned(), app.to_owned())]);
    Some(Labels::new(labels).expect("valid"))
}

/// Notes are stored and shown, and neither place the DAG again nor count as a change of what it does.
#[test]
fn notes_about_a_dag_change_nothing_but_themselves() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let before = world.view("acme/web");
    let loads = world.card().loads.len();
    let notes = NotesPatch { labels: labels("web"), description: Description::new("shop").ok() };
    let patch = DagPatch { notes, ..DagPatch::default() };
    let note = |patch: DagPatch, validate_only| Command::UpdateDag {
        name: dag("acme/web"),
        patch,
        etag: None,
        validate_only,
    };
    let Ok(Reply::WouldBe(trial)) = world.ask(note(patch.clone(), true)) else { panic!("a trial") };
    assert_eq!(trial.spec.notes.description.as_str(), "shop");
    assert_eq!(world.view("acme/web"), before, "a dry run");
    let id = operation_id(world.ask(note(patch, false)));
    assert_eq!(world.ended(&id), Some(Ok(())), "at once");
    let told = world
        .changes
        .iter()
        .any(|(_, dag)| dag.as_ref().is_some_and(|dag| dag.spec.notes == trial.spec.notes));
    assert!(told, "those who watch are told");
    world.settle();
    let after = world.view("acme/web");
    assert_eq!(after.spec.notes.labels, labels("web").expect("set"));
    assert_ne!(after.etag, before.etag);
    assert_eq!((after.generation, &after.mapping), (before.generation, &before.mapping));
    assert_eq!(world.card().loads.len(), loads);
    world.restart();
    world.settle();
    assert_eq!(world.view("acme/web").spec, after.spec);
    // Another bandwidth leaves them, and so does taking that back.
    let faster = DagPatch { bandwidth: Some(spec("nat", 2).bandwidth), ..DagPatch::default() };
    world.ask(note(faster, false)).expect("there is room");
    world.settle();
    assert_eq!(world.view("acme/web").spec.notes, after.spec.notes);
    world.ask(update("acme/web", spec("nat", 2))).expect("without notes");
    assert!(world.view("acme/web").spec.notes.is_empty());
}
