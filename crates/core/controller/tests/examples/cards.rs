//! Several cards, and DAGs that are more than a chain.

use std::collections::BTreeSet;

use snic_controller::{CardHealth, CardOrder, Command, ControlError, DagBatch, NewDag};
use snic_domain::{
    Bandwidth, CardId, DagId, DagSpec, DagState, Edge, Form, FormPreference, Match, Node, NodeId,
    RegionId, Rule, RuleId,
};
use snic_tables::{ClassifierRow, DagRow, LoadFailure, NONE, StageRow, Table};

use crate::support::World;
use crate::support::things::{
    card_id, create, dag, delete, nt_id, spec, tenant_id, update, widen_quota,
};

fn second() -> CardId {
    CardId::new("card1").expect("a label")
}

/// The first is filled first.
fn two_cards() -> World {
    let mut world = World::new();
    world.settings.placement.cards = CardOrder::Pack;
    world.restart();
    world.add_card(second());
    world.settle();
    world
}

/// Sixty small DAGs on two cards: half of them each, as is the default; or all of them on the first.
#[test]
fn dags_are_spread_over_the_cards_of_a_host_or_packed() {
    let counts = |order| {
        let mut world = two_cards();
        world.settings.placement.cards = order;
        world.restart();
        world.settle();
        let chains = ["lb", "vpn", "pad"];
        let names: Vec<String> = (0..60).map(|i| format!("acme/d{i}")).collect();
        for (i, name) in names.iter().enumerate() {
            world.deploy(name, chains[i % 3], 1);
        }
        let on = |card: CardId| names.iter().filter(|name| card_of(&world, name) == card).count();
        [on(card_id()), on(second())]
    };
    assert_eq!(counts(CardOrder::Pack), [60, 0]);
    assert_eq!(counts(CardOrder::default()), [30, 30]);
}

fn card_of(world: &World, name: &str) -> CardId {
    world.view(name).mapping.expect("it has a place").card
}

fn dag_rows(world: &World, card: &CardId) -> usize {
    world.cards[card].dag_rows()
}

#[test]
fn the_second_card_takes_what_the_first_cannot() {
    let mut world = two_cards();
    world.deploy("acme/a", "lb", 40);
    world.deploy("acme/b", "vpn", 40);
    world.deploy("acme/c", "pad", 40);
    let cards = ["acme/a", "acme/b", "acme/c"].map(|name| card_of(&world, name));
    assert_eq!(cards, [card_id(), card_id(), second()], "the ingress takes 100 Gbit/s");
    let uids = ["acme/a", "acme/b", "acme/c"].map(|name| world.view(name).uid.row());
    assert_eq!(uids, [0, 1, 2], "a UID is unique over all cards");
    for (name, card) in [("acme/a", second()), ("acme/c", card_id())] {
        let row = world.view(name).uid.row();
        assert_eq!(world.cards[&card].tables.get::<DagRow>(row), None, "{name}");
    }
    world.restart();
    let loads = world.cards[&second()].loads.len();
    world.settle();
    assert_eq!(world.cards[&second()].loads.len(), loads);
    assert_eq!(world.state("acme/c"), DagState::Ready);
}

#[test]
fn an_update_stays_on_its_card() {
    let mut world = two_cards();
    world.deploy("acme/a", "lb", 40);
    world.deploy("acme/b", "vpn", 40);
    world.deploy("acme/c", "pad", 40);
    let error = world.ask(update("acme/b", spec("vpn", 90))).expect_err("it serves on card0");
    assert!(matches!(error, ControlError::Refused(_)), "{error}");
    world.ask(delete("acme/a")).expect("it exists");
    world.ask(update("acme/c", spec("lb", 30))).expect("there is room");
    world.settle();
    assert_eq!(card_of(&world, "acme/c"), second(), "make before break needs the same card");
    assert_eq!(world.state("acme/c"), DagState::Ready);
}

#[test]
fn a_lost_card_leaves_the_other_alone() {
    let mut world = two_cards();
    for (name, chain) in [("acme/a", "lb"), ("acme/b", "vpn"), ("acme/c", "pad")] {
        world.deploy(name, chain, 40);
    }
    world.lose_card();
    let states = ["acme/a", "acme/b", "acme/c"].map(|name| world.state(name));
    assert_eq!(states, [DagState::Degraded, DagState::Degraded, DagState::Ready]);
    let health: Vec<bool> =
        world.controller.cards().map(|card| card.health == CardHealth::Ok).collect();
    assert_eq!(health, [false, true]);
    world.ask(delete("acme/c")).expect("it exists");
    world.settle();
    assert_eq!(dag_rows(&world, &second()), 0);
}

#[test]
fn a_dag_whose_regions_fail_moves_to_the_other_card_with_its_rules() {
    let mut world = two_cards();
    for region in 0..4 {
        let broken = LoadFailure::Controller { code: 1 };
        world.card().bad_regions.insert(RegionId(region), broken);
    }
    // Others were loaded well before, so it is the regions that are blamed.
    for (name, chain) in [("acme/a", "lb"), ("acme/b", "vpn"), ("acme/c", "pad")] {
        world.ask(create(name, spec(chain, 5))).expect("there is room");
    }
    let matches = Match { vni: Some(4), ..Match::default() };
    for name in ["acme/a", "acme/b", "acme/c"] {
        let id = RuleId::new(&dag(name).dag.to_string()).expect("a label");
        let rule = Rule {
            id,
            priority: 1,
            matches: matches.clone(),
            dag: dag(name),
            notes: Default::default(),
        };
        world.ask(Command::CreateRule(rule)).expect("the DAG has a card");
    }
    world.settle();
    for name in ["acme/a", "acme/b", "acme/c"] {
        if world.state(name) == DagState::Ready {
            assert_eq!(card_of(&world, name), second());
        }
    }
    let served: Vec<u32> = world
        .controller
        .dags(None)
        .into_iter()
        .filter(|view| view.state == DagState::Ready)
        .map(|view| view.uid.raw())
        .collect();
    assert!(!served.is_empty(), "the other card has room");
    let rules = |world: &World, card: &CardId| -> Vec<u32> {
        let rows = 0..Table::Classifier.rows() as u16;
        let tables = &world.cards[card].tables;
        let mut uids: Vec<u32> =
            rows.filter_map(|row| tables.get::<ClassifierRow>(row)).map(|r| r.dag_uid).collect();
        uids.sort_unstable();
        uids
    };
    assert!(rules(&world, &card_id()).is_empty(), "nothing is served there");
    assert_eq!(rules(&world, &second()), served);
    let words = world.cards[&second()].words_written;
    world.restart();
    world.settle();
    assert_eq!(rules(&world, &second()), served);
    assert_eq!(world.cards[&second()].words_written, words);
}

/// `lb` forks into `vpn` and `pad`, which join in `aes`.
fn diamond(form: FormPreference, gbps: u64) -> DagSpec {
    let names = ["lb", "vpn", "pad", "aes"];
    let id = |name: &str| NodeId::new(name).expect("a label");
    let nodes = names.iter().map(|name| Node::new(id(name), nt_id(name))).collect();
    let edges = [("lb", "vpn"), ("lb", "pad"), ("vpn", "aes"), ("pad", "aes")];
    let edges = edges.iter().map(|(from, to)| Edge { from: id(from), to: id(to) }).collect();
    let packet_sizes = snic_domain::PacketSizes::default();
    DagSpec {
        nodes,
        edges,
        bandwidth: Bandwidth::from_gbps(gbps),
        form,
        packet_sizes,
        trusted_tenants: Default::default(),
        card_affinity: Default::default(),
        latency_sensitive: false,
        refuse_idle_tasks: false,
        latency_bound: Default::default(),
        notes: Default::default(),
    }
}

#[test]
fn branches_side_by_side_are_one_stage_with_a_join() {
    let mut world = World::new();
    let spec = diamond(FormPreference::Parallel, 5);
    world.ask(create("acme/web", spec)).expect("four regions");
    world.settle();
    let view = world.view("acme/web");
    assert_eq!(view.state, DagState::Ready, "{:?}", view.conditions);
    assert_eq!(view.mapping.expect("placed").form, Form::Parallel);
    let tables = &world.card().tables;
    let row: DagRow = tables.get(view.uid.row()).expect("it is served");
    assert_eq!(row.stages, 3);
    let stages: Vec<StageRow> = (0..3).filter_map(|i| tables.get(row.first_stage + i)).collect();
    let joins: Vec<u8> = stages.iter().map(|stage| stage.join_mask).collect();
    assert_eq!(joins, [0b1, 0b11, 0b1]);
    let last: Vec<bool> = stages.iter().map(|stage| stage.last).collect();
    assert_eq!(last, [false, false, true]);
    assert_eq!((stages[0].next, stages[2].next), (row.first_stage + 1, NONE));
    assert_eq!(stages[1].chains[2..], [NONE, NONE]);
    assert_eq!(view.latency.get(), 49 + 2 * 16 + 3 * 20);
}

#[test]
fn another_form_is_an_update_without_a_load() {
    let mut world = World::new();
    world.ask(create("acme/web", diamond(FormPreference::Parallel, 5))).expect("there is room");
    world.settle();
    let loads = world.card().loads.len();
    world.ask(update("acme/web", diamond(FormPreference::Sequential, 5))).expect("the same NTs");
    world.settle();
    let view = world.view("acme/web");
    assert_eq!((view.state, view.observed_generation), (DagState::Ready, 2));
    assert_eq!(view.mapping.expect("placed").form, Form::Sequential);
    assert_eq!(world.card().loads.len(), loads);
    assert_eq!(view.latency.get(), 49 + 3 * 16 + 4 * 20);
}

#[test]
fn more_than_one_nt_serves_is_spread_over_instances() {
    let mut world = World::new();
    world.deploy("acme/web", "aes", 25);
    let view = world.view("acme/web");
    let mapping = view.mapping.expect("placed");
    let shares: Vec<u64> = mapping.instances().map(|i| i.bandwidth.get()).collect();
    assert_eq!(shares.iter().sum::<u64>(), 25_000_000_000);
    assert!(shares.len() >= 3 && shares.iter().all(|share| *share <= 10_000_000_000));
    let region = mapping.instances().next().expect("three or more").region;
    assert!(world.card().routed().contains(&region));
    world.ask(update("acme/web", spec("aes", 5))).expect("less is always there");
    world.settle();
    assert_eq!(world.reserved().0.iter().flatten().sum::<u64>(), 5_000_000_000);
}

/// Number of DAGs in the tables of a card.
fn dags_in_table(world: &World, card: &CardId) -> usize {
    let tables = &world.cards[card].tables;
    (0..1_024).filter(|row| tables.get::<DagRow>(*row).is_some()).count()
}

/// UIDs are a card's: two cards hold 2,000 DAGs. When one is lost for good, as many as have a row on the other go
/// there, each with a row of its own.
#[test]
#[ignore = "ci: ten seconds"]
fn two_cards_hold_two_thousand_dags() {
    let mut world = two_cards();
    world.settings.placement.cards = CardOrder::Spread;
    world.restart();
    world.settle();
    world.ask(widen_quota()).expect("valid");
    let small = |nt: &str| DagSpec { bandwidth: Bandwidth::from_mbps(1), ..spec(nt, 1) };
    let mut number = 0;
    let mut create_some = |world: &mut World, count: usize| {
        let new = |at: usize| NewDag {
            id: DagId::new(&format!("d{at}")).expect("a label"),
            spec: small(["lb", "vpn"][at % 2]),
        };
        let batch = DagBatch {
            tenant: tenant_id("acme"),
            dags: (number..number + count).map(new).collect(),
            allow_partial: false,
            validate_only: false,
        };
        number += count;
        let plan = world.controller.batch_snapshot(&batch).plan();
        world.ask(Command::CreateDags { batch, plan })
    };
    for _ in 0..80 {
        create_some(&mut world, 25).expect("there are rows on both cards");
    }
    world.settle();
    let on = |world: &World, card: &CardId| {
        let views = world.controller.dags(None).into_iter();
        let here = views.filter(|view| view.mapping.as_ref().is_some_and(|m| m.card == *card));
        here.map(|view| view.uid.row()).collect::<Vec<_>>()
    };
    let distinct = |rows: &[u16]| rows.iter().collect::<BTreeSet<_>>().len();
    for card in [card_id(), second()] {
        let rows = on(&world, &card);
        assert_eq!((rows.len(), distinct(&rows)), (1_000, 1_000), "{card}");
        assert_eq!(dags_in_table(&world, &card), 1_000);
    }
    let uids: BTreeSet<_> = world.controller.dags(None).iter().map(|view| view.uid).collect();
    assert_eq!(uids.len(), 2_000, "no two packets' DAGs are confused, wherever they are");
    // Each card has 1,024 virtual-chain rows, and keeps 4 for moves.
    create_some(&mut world, 20).expect("there are 40 rows");
    create_some(&mut world, 20).expect("there are 20 rows");
    let full = create_some(&mut world, 1).expect_err("each card has 1,020").to_string();
    assert!(full.contains("table rows") && full.contains("virtual-chain"), "{full}");
    world.settle();
    for name in (0..10).map(|at| format!("acme/d{at}")) {
        world.ask(delete(&name)).expect("it exists");
    }
    world.settle();
    let report = snic_controller::CardReport::Lost { reason: "gone".into() };
    world.handle(snic_controller::Event::Card { card: second(), report });
    world.asked.clear();
    world.cards.remove(&second());
    world.ask(Command::RemoveCard { card: second() }).expect("it is lost");
    world.settle();
    let rows = on(&world, &card_id());
    assert_eq!((rows.len(), distinct(&rows)), (1_020, 1_020));
    let ready = world.controller.dags(None);
    let ready = ready.iter().filter(|view| view.state == DagState::Ready).count();
    assert_eq!((ready, dags_in_table(&world, &card_id())), (1_020, 1_020));
}
