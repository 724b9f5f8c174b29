//! Cards that are removed or replaced, and cards that are lost and come back.

use std::time::Duration;

use snic_controller::{
    CardHealth, CardLoss, Change, Command, ControlError, Event, LogKind, Reply, Request,
};
use snic_domain::{
    BindingSpec, BindingState, BindingTarget, CardId, CardProfile, DagState, Match, Rule, RuleId,
    VmId,
};
use snic_tables::Table;

use crate::support::card::TinyCard;
use crate::support::things::{card_id, dag, delete, profile, tenant_id};
use crate::support::{Answer, Crash, World, operation_id, operator, precondition};

const SECOND: Duration = Duration::from_secs(1);

fn second() -> CardId {
    CardId::new("card1").expect("a label")
}

fn remove(card: CardId) -> Command {
    Command::RemoveCard { card }
}

fn replace() -> Command {
    Command::ReplaceCard { card: card_id() }
}

fn rule(id: &str, name: &str) -> Command {
    let id = RuleId::new(id).expect("a label");
    let matches = Match { vni: Some(9), ..Match::default() };
    Command::CreateRule(Rule {
        id,
        priority: 3,
        matches,
        dag: dag(name),
        notes: Default::default(),
    })
}

/// A card with two DAGs that are served.
fn two_dags() -> World {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    world.deploy("acme/api", "aes", 5);
    world
}

/// The first card does not answer any more, and is not asked again.
fn lose(world: &mut World) {
    world.lose_card();
    world.cards.remove(&card_id());
}

fn noted(world: &World, kind: LogKind) -> Vec<String> {
    let logged = world.changes.iter().filter_map(|(change, _)| match change {
        Change::Logged(entry) if entry.kind == kind => Some(entry.text.clone()),
        _ => None,
    });
    logged.collect()
}

/// Keys of the store that name a card.
fn stored_of(world: &World, card: &CardId) -> Vec<String> {
    let names = |key: &&String| key.split('/').nth(1) == Some(card.as_str());
    world.durable.keys().filter(names).cloned().collect()
}

#[test]
fn a_card_with_something_on_it_is_kept_and_what_is_said() {
    let mut world = two_dags();
    world.ask(rule("first", "acme/web")).expect("there is room");
    let machine = BindingSpec {
        vm: VmId::new("00000001-0000-4000-8000-000000000000").expect("a UUID"),
        tenant: tenant_id("acme"),
        chains: BindingTarget::Dags(vec![dag("acme/web")]),
        functions: 1,
        ready_within: 10 * SECOND,
        lease: None,
        notes: Default::default(),
        limits: Default::default(),
    };
    world.ask(Command::BindVm(machine.clone())).expect("there is room");
    world.settle();
    let before = world.durable.clone();
    let (resource, text) = precondition(world.ask(remove(card_id())));
    assert_eq!(resource, "cards/card0");
    for part in ["2 DAGs", "1 classification rules", "1 virtual machines"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(world.durable, before, "nothing has changed");
    let absent = world.ask(remove(second()));
    assert!(matches!(absent, Err(ControlError::NotFound { .. })), "{absent:?}");
}

#[test]
fn an_empty_card_is_removed_with_all_that_is_stored_of_it() {
    let mut world = two_dags();
    for name in ["acme/web", "acme/api"] {
        world.ask(delete(name)).expect("it is there");
    }
    world.settle();
    assert!(!stored_of(&world, &card_id()).is_empty());
    world.ask(remove(card_id())).expect("nothing is on it");
    assert_eq!(stored_of(&world, &card_id()), Vec::<String>::new());
    assert!(world.controller.card_view(&card_id()).is_none());
    assert_eq!(noted(&world, LogKind::CardRemoved).len(), 1);
    // Its thread still talks, and is not listened to.
    world.appear(&card_id());
    let reason = "it does not answer".into();
    world.handle(Event::CardAbsent { card: card_id(), reason });
    world.settle();
    assert!(world.controller.card_view(&card_id()).is_none());
    assert_eq!(world.controller.absent_cards().count(), 0);
    // To a daemon that starts again it is a new card.
    world.restart();
    world.settle();
    world.deploy("acme/again", "lb", 5);
    assert_eq!(world.state("acme/again"), DagState::Ready);
}

#[test]
fn dags_of_a_lost_card_that_is_removed_are_placed_again() {
    let mut world = two_dags();
    world.add_card(second());
    world.settle();
    // One was being deleted, and its rows never left the card.
    world.deploy("beta/web", "pad", 5);
    let deletion = operation_id(world.ask(delete("acme/api")));
    let drain = operation_id(world.ask(Command::DrainCard { card: card_id() }));
    lose(&mut world);
    world.ask(remove(card_id())).expect("it is lost");
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!(world.view("acme/web").mapping.expect("a place").card, second());
    assert_eq!(world.ended(&deletion), Some(Ok(())), "it is gone with the card");
    let drained = world.ended(&drain);
    assert!(matches!(drained, Some(Err(ControlError::Superseded { .. }))), "{drained:?}");
    assert_eq!(stored_of(&world, &card_id()), Vec::<String>::new());
    world.restart();
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

/// A machine's functions go with the card; a rule stays with its DAG, wherever that is.
#[test]
fn neither_rules_nor_machines_keep_a_lost_card() {
    let machine = BindingSpec {
        vm: VmId::new("00000001-0000-4000-8000-000000000000").expect("a UUID"),
        tenant: tenant_id("acme"),
        chains: BindingTarget::Dags(vec![dag("acme/web")]),
        functions: 2,
        ready_within: 10 * SECOND,
        lease: None,
        notes: Default::default(),
        limits: Default::default(),
    };
    for comes_later in [false, true] {
        let mut world = two_dags();
        world.ask(rule("first", "acme/web")).expect("there is room");
        world.ask(Command::BindVm(machine.clone())).expect("there is room");
        world.settle();
        if !comes_later {
            world.add_card(second());
            world.settle();
        }
        lose(&mut world);
        world.ask(remove(card_id())).expect("it is lost");
        world.settle();
        world.controller.check().expect("nothing names the card any more but its rule");
        let bound = world.controller.binding_view(&machine.vm).expect("it is remembered").record;
        assert_eq!(bound.state, BindingState::Unbound);
        assert!(bound.functions.is_empty(), "{bound:?}");
        assert_eq!(bound.reason.as_deref(), Some("cards/card0 was removed"));
        let told = noted(&world, LogKind::CardRemoved);
        assert!(told[0].contains("2 DAGs") && told[0].contains("1 virtual machines"), "{told:?}");
        world.restart();
        if comes_later {
            world.add_card(second());
        }
        world.settle();
        assert_eq!(world.state("acme/web"), DagState::Ready);
        let rules: Vec<_> = world.controller.rules().collect();
        assert_eq!(rules.len(), 1, "the machine's rules are gone: {rules:?}");
        assert!(rules[0].programmed, "later: {comes_later}: {rules:?}");
    }
}

/// Its rule is deleted or changed while no card has it.
#[test]
fn a_rule_without_a_card_can_be_changed_and_deleted() {
    let mut world = two_dags();
    world.ask(rule("first", "acme/web")).expect("there is room");
    world.settle();
    lose(&mut world);
    world.ask(remove(card_id())).expect("it is lost");
    let id = RuleId::new("first").expect("a label");
    world.ask(Command::DeleteRule { id, etag: None }).expect("it is there");
    world.settle();
    world.restart();
    world.add_card(second());
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    let card = world.cards.get_mut(&second()).expect("it was added");
    assert_eq!(card.tables.rows_used(Table::Classifier), 0);
}

#[test]
fn a_removed_card_that_the_settings_name_comes_back_and_says_so() {
    let mut world = two_dags();
    assert_eq!(noted(&world, LogKind::CardAdded), [""; 0], "a host begins with cards");
    lose(&mut world);
    world.ask(remove(card_id())).expect("it is lost");
    let told = noted(&world, LogKind::CardRemoved);
    assert!(told[0].contains("with the next start while the settings name it"), "{told:?}");
    world.cards.insert(card_id(), TinyCard::new(profile()));
    world.restart();
    world.settle();
    let told = noted(&world, LogKind::CardAdded);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("card card0 of model tiny is new"), "{told:?}");
    world.restart();
    world.settle();
    assert_eq!(noted(&world, LogKind::CardAdded).len(), 1, "it is known by now");
}

#[test]
fn without_another_card_they_wait_and_say_so() {
    let mut world = two_dags();
    lose(&mut world);
    world.ask(remove(card_id())).expect("it is lost");
    world.settle();
    assert_eq!(world.view("acme/web").mapping, None);
    world.restart();
    world.add_card(second());
    world.settle();
    for name in ["acme/web", "acme/api"] {
        assert_eq!(world.state(name), DagState::Ready, "{name}");
    }
}

/// A device of another profile, with more regions, answers in the place of the lost card.
fn another() -> CardProfile {
    let mut other = profile();
    let more = other.regions[0].clone();
    other.regions.push(more);
    other
}

fn with_newcomer() -> World {
    let mut world = two_dags();
    world.ask(rule("first", "acme/web")).expect("there is room");
    world.settle();
    lose(&mut world);
    world.cards.insert(card_id(), TinyCard::new(another()));
    world.appear(&card_id());
    world.settle();
    world
}

#[test]
fn another_device_takes_the_place_of_a_lost_card_when_it_is_told_to() {
    let mut world = with_newcomer();
    let health = world.controller.card_view(&card_id()).expect("it is known").health;
    let CardHealth::Lost(reason) = health else { panic!("nobody said so yet: {health:?}") };
    assert!(reason.contains("snicctl card replace"), "{reason}");
    assert_ne!(world.state("acme/web"), DagState::Ready);
    world.ask(replace()).expect("it is lost, and another one is there");
    world.settle();
    let view = world.controller.card_view(&card_id()).expect("it is known");
    assert_eq!((view.health, view.profile), (CardHealth::Ok, another()));
    for name in ["acme/web", "acme/api"] {
        assert_eq!(world.state(name), DagState::Ready, "{name}");
    }
    let rules = world.card().tables.rows_used(Table::Classifier);
    assert_eq!(rules, 1, "the rule leads to its DAG there");
    assert_eq!(noted(&world, LogKind::CardReplaced).len(), 1);
    world.restart();
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready, "its profile is stored");
}

#[test]
fn only_a_lost_card_with_another_device_in_its_place_is_replaced() {
    let mut world = two_dags();
    let (_, text) = precondition(world.ask(replace()));
    assert!(text.contains("no other device answers"), "{text}");
    lose(&mut world);
    precondition(world.ask(replace()));
    let mut world = with_newcomer();
    // It is gone again before the operator asks.
    let reason = "it does not answer".into();
    world.handle(Event::CardAbsent { card: card_id(), reason });
    precondition(world.ask(replace()));
}

/// The daemon dies at each batch of a removal or a replacement; asked again, all ends as without.
#[test]
#[ignore = "ci: ten seconds"]
fn a_crash_in_the_middle_leaves_the_card_as_it_was_or_gone() {
    for (command, start) in [
        (remove(card_id()), removable as fn() -> World),
        (replace(), with_newcomer as fn() -> World),
    ] {
        for crash in [Crash::Before as fn(usize) -> Crash, Crash::After] {
            for step in 0..6 {
                let mut world = start();
                world.crash = Some(crash(world.batches + step));
                let ask = |world: &mut World| {
                    let request_id = Some("once".to_owned());
                    let command = command.clone();
                    world.request(Request { caller: operator(), request_id, command })
                };
                let answer = ask(&mut world).or_else(|| ask(&mut world));
                let again: Answer = answer.expect("it dies once");
                assert!(matches!(again, Ok(Reply::Done)), "step {step}: {again:?}");
                world.settle();
                world.crash = None;
                world.restart();
                world.settle();
                let states = ["acme/web", "acme/api"].map(|name| world.state(name));
                assert_eq!(states, [DagState::Ready; 2], "{command:?}, step {step}");
            }
        }
    }
}

fn removable() -> World {
    let mut world = two_dags();
    world.add_card(second());
    world.settle();
    lose(&mut world);
    world
}

#[test]
fn a_loss_is_told_once_with_its_reason_and_shows_since_when_and_attempts() {
    let mut world = two_dags();
    let lost_at = world.now;
    world.lose_card();
    let absent = |world: &mut World| {
        world.now = world.now + SECOND;
        let reason = "no such device".into();
        world.handle(Event::CardAbsent { card: card_id(), reason });
    };
    (0..3).for_each(|_| absent(&mut world));
    let view = world.controller.card_view(&card_id()).expect("it is known");
    assert_eq!(view.health, CardHealth::Lost("no such device".into()), "the newest reason");
    assert_eq!(view.loss, Some(CardLoss { since: lost_at, attempts: 3 }));
    assert_eq!(noted(&world, LogKind::CardLost), ["card card0 is lost: no answer on the bus"]);
    let condition = world.view("acme/web").conditions;
    assert!(
        condition.iter().any(|c| c.reason == "CARD_LOST" && c.message.contains("no such device"))
    );
    world.appear(&card_id());
    assert_eq!(noted(&world, LogKind::CardBack), [""; 0], "it has not said what it holds");
    world.settle();
    let view = world.controller.card_view(&card_id()).expect("it is known");
    assert_eq!((view.health, view.loss), (CardHealth::Ok, None));
    let back = noted(&world, LogKind::CardBack);
    assert_eq!(back, ["card card0 answers again after 3 s and 3 attempts in vain to open it"]);
    // One that could not be opened since the daemon started is lost as well.
    world.restart();
    world.settle();
    assert_eq!(noted(&world, LogKind::CardLost).len(), 1, "a start is no loss");
}
