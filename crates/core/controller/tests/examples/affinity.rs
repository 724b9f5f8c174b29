//! DAGs that share a card with others of their tenant, or keep apart from them.

use snic_controller::{CardOrder, Command, ControlError, DagBatch, NewDag, Reply};
use snic_domain::{CardAffinity, CardId, DagId, DagSpec, DagState, Infeasible, Resource};

use crate::support::World;
use crate::support::things::{card_id, create, dag, delete, spec, tenant_id, update};
use crate::support::wrong_field;

fn second() -> CardId {
    CardId::new("card1").expect("a label")
}

fn two_cards(order: CardOrder) -> World {
    let mut world = World::new();
    world.settings.placement.cards = order;
    world.restart();
    world.add_card(second());
    world.settle();
    world
}

fn with(names: &[&str], chain: &str, gbps: u64) -> DagSpec {
    let together_with = names.iter().map(|name| dag(name)).collect();
    let card_affinity = CardAffinity { together_with, ..CardAffinity::default() };
    DagSpec { card_affinity, ..spec(chain, gbps) }
}

fn apart(names: &[&str], chain: &str, gbps: u64) -> DagSpec {
    let apart_from = names.iter().map(|name| dag(name)).collect();
    let card_affinity = CardAffinity { apart_from, ..CardAffinity::default() };
    DagSpec { card_affinity, ..spec(chain, gbps) }
}

fn preferred(mut spec: DagSpec) -> DagSpec {
    spec.card_affinity.preferred = true;
    spec
}

fn put(world: &mut World, name: &str, spec: DagSpec) -> CardId {
    world.ask(create(name, spec)).expect("there is room");
    world.settle();
    assert_eq!(world.state(name), DagState::Ready, "{name}");
    card_of(world, name)
}

fn card_of(world: &World, name: &str) -> CardId {
    world.view(name).mapping.expect("it has a place").card
}

fn refusal(world: &mut World, command: Command) -> Infeasible {
    match world.ask(command) {
        Err(ControlError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn dags_go_together_or_apart_whatever_the_policy_says() {
    for order in [CardOrder::Spread, CardOrder::Pack, CardOrder::Headroom] {
        let mut world = two_cards(order);
        let first = put(&mut world, "acme/a", spec("lb", 20));
        let other = if first == card_id() { second() } else { card_id() };
        for i in 0..3 {
            let name = format!("acme/with{i}");
            assert_eq!(put(&mut world, &name, with(&["acme/a"], "lb", 1)), first, "{order:?}");
            let name = format!("acme/apart{i}");
            assert_eq!(put(&mut world, &name, apart(&["acme/a"], "lb", 1)), other, "{order:?}");
        }
        // A DAG with both kinds: with some, apart from others.
        let mut both = with(&["acme/apart0"], "lb", 1);
        both.card_affinity.apart_from = [dag("acme/with0")].into();
        assert_eq!(put(&mut world, "acme/both", both), other);
    }
}

#[test]
fn apart_holds_in_both_directions_and_with_in_one() {
    let mut world = two_cards(CardOrder::Pack);
    let shy = put(&mut world, "acme/shy", apart(&["acme/late"], "lb", 1));
    let late = put(&mut world, "acme/late", spec("lb", 1));
    assert_ne!(shy, late, "the one that comes later keeps away, too");
    let mut world = two_cards(CardOrder::Spread);
    let fond = put(&mut world, "acme/fond", with(&["acme/late"], "lb", 1));
    let late = put(&mut world, "acme/late", spec("lb", 1));
    assert_ne!(fond, late, "what has no place does not count, and nobody has to follow");
}

#[test]
fn a_third_that_is_apart_from_both_is_refused_with_the_reason_and_placed_if_it_only_prefers() {
    let mut world = two_cards(CardOrder::Spread);
    put(&mut world, "acme/a", spec("lb", 20));
    put(&mut world, "acme/b", spec("lb", 20));
    let third = apart(&["acme/a", "acme/b"], "lb", 1);
    let Infeasible { shortages } = refusal(&mut world, create("acme/c", third.clone()));
    assert_eq!(shortages.len(), 1);
    let short = &shortages[0];
    assert_eq!((short.resource, short.required, short.available), (Resource::Cards, 1, 0));
    let told = "it has to be apart from tenants/acme/dags/a on card0, apart from \
                tenants/acme/dags/b on card1";
    assert_eq!(short.detail, told);
    put(&mut world, "acme/c", preferred(third));
    let torn = refusal(&mut world, create("acme/d", with(&["acme/a", "acme/b"], "lb", 1)));
    assert_eq!(torn.shortages[0].resource, Resource::Cards, "they are on different cards");
}

/// A preference refuses nobody: the other card is full.
#[test]
fn a_preference_yields_to_room_and_a_rule_does_not() {
    let mut world = two_cards(CardOrder::Spread);
    let full = put(&mut world, "acme/a", spec("lb", 95));
    let wish = with(&["acme/a"], "lb", 20);
    let refused = refusal(&mut world, create("acme/b", wish.clone()));
    assert_ne!(refused.shortages[0].resource, Resource::Cards, "the card has no room: {refused}");
    assert_ne!(put(&mut world, "acme/b", preferred(wish)), full);
}

#[test]
fn an_update_of_the_affinity_is_refused_where_its_card_is_the_wrong_one() {
    let mut world = two_cards(CardOrder::Pack);
    put(&mut world, "acme/a", spec("lb", 1));
    put(&mut world, "acme/b", spec("lb", 1));
    let wrong = refusal(&mut world, update("acme/b", apart(&["acme/a"], "lb", 1)));
    assert_eq!(wrong.shortages[0].resource, Resource::Cards);
    world.ask(update("acme/b", with(&["acme/a"], "lb", 1))).expect("it is there already");
    world.settle();
    world.ask(update("acme/b", with(&["acme/a"], "lb", 2))).expect("nothing of it changes");
}

/// A card is lost for good: its DAGs are placed again by their affinities.
#[test]
fn a_lost_place_is_chosen_again_by_the_same_rules() {
    let mut world = two_cards(CardOrder::Spread);
    let a = put(&mut world, "acme/a", spec("lb", 1));
    let b = put(&mut world, "acme/b", apart(&["acme/a"], "lb", 1));
    assert_ne!(a, b);
    let report = snic_controller::CardReport::Lost { reason: "gone".into() };
    world.handle(snic_controller::Event::Card { card: b.clone(), report });
    world.asked.clear();
    world.cards.remove(&b);
    world.ask(Command::RemoveCard { card: b }).expect("it is lost");
    world.settle();
    assert_eq!(world.state("acme/b"), DagState::Failed, "only the card of acme/a is left");
    world.ask(delete("acme/a")).expect("it exists");
    world.settle();
    assert_eq!((world.state("acme/b"), card_of(&world, "acme/b")), (DagState::Ready, a));
}

#[test]
fn dags_of_a_batch_keep_to_each_other_too() {
    let mut world = two_cards(CardOrder::Spread);
    put(&mut world, "acme/old", spec("lb", 3));
    let specs = [
        ("a", spec("lb", 2)),
        ("b", apart(&["acme/a"], "lb", 2)),
        ("c", with(&["acme/b"], "lb", 2)),
        ("d", apart(&["acme/old"], "lb", 2)),
        ("e", spec("vpn", 2)),
    ];
    let new = |(id, spec): (&str, DagSpec)| NewDag { id: DagId::new(id).expect("a label"), spec };
    let batch = DagBatch {
        tenant: tenant_id("acme"),
        dags: specs.into_iter().map(new).collect(),
        allow_partial: false,
        validate_only: false,
    };
    let plan = world.controller.batch_snapshot(&batch).plan();
    let reply = world.ask(Command::CreateDags { batch, plan });
    assert!(matches!(&reply, Ok(Reply::Batch(all)) if all.iter().all(Result::is_ok)), "{reply:?}");
    world.settle();
    let card = |name: &str| card_of(&world, name);
    assert_ne!(card("acme/a"), card("acme/b"));
    assert_eq!(card("acme/c"), card("acme/b"));
    assert_ne!(card("acme/d"), card("acme/old"));
}

/// Another DAG got its affinity only after the batch was planned.
#[test]
fn a_plan_against_what_others_say_by_now_is_outdated() {
    let mut world = two_cards(CardOrder::Spread);
    let batch = DagBatch {
        tenant: tenant_id("acme"),
        dags: vec![NewDag { id: DagId::new("a").expect("a label"), spec: spec("lb", 2) }],
        allow_partial: false,
        validate_only: false,
    };
    let plan = world.controller.batch_snapshot(&batch).plan();
    put(&mut world, "acme/shy", apart(&["acme/a"], "lb", 1));
    put(&mut world, "acme/bold", apart(&["acme/shy", "acme/a"], "lb", 1));
    assert_eq!(world.ask(Command::CreateDags { batch, plan }), Err(ControlError::Outdated));
}

#[test]
fn only_dags_of_the_same_tenant_are_named() {
    let mut world = two_cards(CardOrder::Spread);
    put(&mut world, "beta/x", spec("lb", 1));
    for (spec, field) in [
        (with(&["beta/x"], "lb", 1), "dag.card_affinity.together_with"),
        (apart(&["beta/none"], "lb", 1), "dag.card_affinity.apart_from"),
    ] {
        assert_eq!(wrong_field(world.ask(create("acme/a", spec))), field);
    }
}
