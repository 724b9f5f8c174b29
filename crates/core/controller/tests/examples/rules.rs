//! Classification rules: rows of the classifier that follow their DAG.

use std::net::Ipv4Addr;

use snic_controller::{Command, ControlError, Reply, RuleView};
use snic_domain::{Match, Prefix, Quota, Rule, RuleId, RulePatch};
use snic_tables::{ClassifierRow, Table};

use crate::support::things::{card_id, create, dag, delete, spec, tenant, tenant_id, update};
use crate::support::{Answer, World, absent, wrong_field};

fn rule_id(id: &str) -> RuleId {
    RuleId::new(id).expect("a label")
}

fn rule(id: &str, priority: u16, matches: Match) -> Command {
    Command::CreateRule(Rule {
        id: rule_id(id),
        priority,
        matches,
        dag: dag("acme/web"),
        notes: Default::default(),
    })
}

fn vni(vni: u32) -> Match {
    Match { vni: Some(vni), ..Match::default() }
}

fn remove(id: &str) -> Command {
    Command::DeleteRule { id: rule_id(id), etag: None }
}

fn view(answer: Answer) -> RuleView {
    match answer {
        Ok(Reply::Rule(view)) => view,
        other => panic!("not a rule: {other:?}"),
    }
}

/// The rules that the card has, in the order in which it looks at them.
fn on_card(world: &mut World) -> Vec<ClassifierRow> {
    let tables = &world.card().tables;
    let rows = 0..Table::Classifier.rows() as u16;
    let mut rows: Vec<ClassifierRow> = rows.filter_map(|row| tables.get(row)).collect();
    rows.sort_by_key(|row| row.priority);
    rows
}

#[test]
fn a_rule_becomes_a_row_with_all_that_it_says() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let prefix = |address: [u8; 4], length| Prefix { address: Ipv4Addr::from(address), length };
    let matches = Match {
        virtual_function: Some(3),
        vni: Some(0xFF_FFFF),
        source: Some(prefix([10, 1, 2, 3], 16)),
        destination: Some(prefix([192, 168, 0, 1], 32)),
        protocol: Some(17),
        source_port: Some(0),
        destination_port: Some(4_789),
        vlan: Some(4_094),
    };
    let made = view(world.ask(rule("r", 9, matches)));
    assert!(!made.programmed, "the card does not have it yet");
    world.settle();
    let expected = ClassifierRow {
        dag_uid: world.view("acme/web").uid.raw(),
        priority: 9,
        virtual_function: Some(3),
        vni: Some(0xFF_FFFF),
        source: (0x0A01_0000, 0xFFFF_0000),
        destination: (0xC0A8_0001, 0xFFFF_FFFF),
        protocol: Some(17),
        source_port: Some(0),
        destination_port: Some(4_789),
        vlan: Some(4_094),
    };
    assert_eq!(on_card(&mut world), [expected]);
    assert!(world.controller.rule_view(&rule_id("r")).expect("it exists").programmed);
    assert_eq!(world.ask(remove("r")), Ok(Reply::Done));
    world.settle();
    assert_eq!(on_card(&mut world), []);
}

#[test]
fn invalid_rules_are_refused_with_the_reason() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let long = Prefix { address: Ipv4Addr::LOCALHOST, length: 33 };
    let cases = [
        (rule("r", 1, Match::default()), "rule.match"),
        (rule("r", 1, vni(1 << 24)), "rule.match.vni"),
        (rule("r", 1, Match { vlan: Some(0), ..vni(1) }), "rule.match.vlan"),
        (rule("r", 1, Match { vlan: Some(4_095), ..vni(1) }), "rule.match.vlan"),
        (rule("r", 1, Match { source: Some(long), ..vni(1) }), "rule.match.source"),
        (rule("r", 1, Match { destination: Some(long), ..vni(1) }), "rule.match.destination"),
    ];
    for (command, field) in cases {
        assert_eq!(wrong_field(world.ask(command)), field);
    }
    world.ask(delete("acme/web")).expect("it exists");
    assert_eq!(wrong_field(world.ask(rule("r", 1, vni(1)))), "rule.dag");
    assert_eq!(world.controller.rules().count(), 0);
}

#[test]
fn ids_are_unique_and_etags_guard() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let made = view(world.ask(rule("r", 1, vni(1))));
    let exists = ControlError::AlreadyExists { resource: "classificationRules/r".into() };
    assert_eq!(world.ask(rule("r", 2, vni(2))), Err(exists));
    let with = |etag: &str| Command::DeleteRule { id: rule_id("r"), etag: Some(etag.into()) };
    assert!(matches!(world.ask(with("0")), Err(ControlError::EtagMismatch { .. })));
    assert_eq!(world.ask(with(&made.etag)), Ok(Reply::Done));
    assert_eq!(absent(world.ask(remove("r"))), "classificationRules/r");
}

#[test]
fn a_rule_comes_and_goes_with_its_dags_rows() {
    let mut world = World::new();
    world.ask(create("acme/web", spec("nat", 1))).expect("there is room");
    world.ask(rule("r", 1, vni(1))).expect("the DAG has a card");
    while world.card().tables.rows_used(Table::Dag) == 0 {
        assert_eq!(on_card(&mut world), [], "no packet is sent to a DAG without rows");
        world.answer_one().expect("the DAG is on its way");
    }
    world.settle();
    assert_eq!(on_card(&mut world).len(), 1);
    world.ask(update("acme/web", spec("lb", 1))).expect("there is room");
    while world.answer_one().is_some() {
        assert_eq!(on_card(&mut world).len(), 1, "the UID serves all the while");
    }
    world.ask(delete("acme/web")).expect("it exists");
    assert!(world.controller.rule_view(&rule_id("r")).is_none());
    world.settle();
    assert_eq!(on_card(&mut world), []);
    assert!(!world.durable.keys().any(|key| key.starts_with("rules/")));
}

#[test]
fn rules_of_other_dags_stay() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    world.deploy("beta/web", "nat", 1);
    world.ask(rule("a", 1, vni(1))).expect("valid");
    let other = Rule {
        id: rule_id("b"),
        priority: 1,
        matches: vni(2),
        dag: dag("beta/web"),
        notes: Default::default(),
    };
    world.ask(Command::CreateRule(other)).expect("valid");
    world.ask(delete("acme/web")).expect("it exists");
    world.settle();
    let rows = on_card(&mut world);
    assert_eq!(rows.iter().map(|row| row.vni).collect::<Vec<_>>(), [Some(2)]);
}

#[test]
fn among_rules_of_one_priority_the_first_by_id_wins() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    for (id, number) in [("m", 1), ("z", 2), ("a", 3)] {
        world.ask(rule(id, 5, vni(number))).expect("valid");
    }
    world.ask(rule("y", 4, vni(4))).expect("valid");
    world.settle();
    let order = |world: &mut World| -> Vec<u32> {
        on_card(world).iter().filter_map(|row| row.vni).collect()
    };
    assert_eq!(order(&mut world), [4, 3, 1, 2]);
    world.ask(remove("a")).expect("it exists");
    world.ask(rule("n", 5, vni(5))).expect("valid");
    world.settle();
    assert_eq!(order(&mut world), [4, 1, 5, 2]);
    world.restart();
    let words = world.card().words_written;
    world.settle();
    assert_eq!((order(&mut world), world.card().words_written), (vec![4, 1, 5, 2], words));
}

#[test]
fn the_classifier_is_full_at_its_rows() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let quota = Quota { rules_max: u32::MAX, ..tenant("acme").quota };
    let id = tenant_id("acme");
    let all = Command::UpdateTenant {
        id,
        patch: snic_domain::TenantPatch { quota: Some(quota.into()), ..Default::default() },
        etag: None,
    };
    world.ask(all).expect("valid");
    for i in 0..Table::Classifier.rows() as u32 {
        world.ask(rule(&format!("r{i}"), (i % 1_000) as u16, vni(i))).expect("a free row");
    }
    let error = world.ask(rule("more", 1, vni(1)));
    let Err(ControlError::Exhausted { limit, .. }) = error else { panic!("{error:?}") };
    assert_eq!(limit, Table::Classifier.rows() as u64);
    world.ask(remove("r3")).expect("it exists");
    world.ask(rule("more", 1, vni(1))).expect("a row is free");
    world.settle();
    assert_eq!(on_card(&mut world).len(), Table::Classifier.rows());
}

#[test]
fn rules_outlive_a_restart_and_a_power_failure() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    world.ask(rule("r", 1, vni(1))).expect("valid");
    world.settle();
    let rows = on_card(&mut world);
    let words = world.card().words_written;
    world.restart();
    world.settle();
    assert_eq!((on_card(&mut world), world.card().words_written), (rows.clone(), words));
    world.card().power_cycle();
    world.lose_card();
    world.appear(&card_id());
    world.settle();
    assert_eq!(on_card(&mut world), rows);
}

#[test]
fn a_rule_is_changed_where_it_is() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    world.deploy("acme/mail", "nat", 1);
    for (id, priority) in [("a", 3), ("b", 9), ("c", 9)] {
        world.ask(rule(id, priority, vni(7))).expect("there is room");
    }
    world.settle();
    let change = |patch: RulePatch, etag: Option<&str>| Command::UpdateRule {
        id: rule_id("c"),
        patch,
        etag: etag.map(str::to_owned),
    };
    let seen = |world: &World| world.controller.rule_view(&rule_id("c")).expect("it is there");
    let before = seen(&world);
    let to_none = RulePatch { dag: Some(dag("acme/none")), ..RulePatch::default() };
    assert_eq!(wrong_field(world.ask(change(to_none, None))), "rule.dag");
    let all = RulePatch { matches: Some(Match::default()), ..RulePatch::default() };
    assert_eq!(wrong_field(world.ask(change(all, None))), "rule.match");
    assert_eq!(seen(&world), before, "what is refused changes nothing");
    let patch = RulePatch {
        priority: Some(1),
        matches: Some(vni(8)),
        dag: Some(dag("acme/mail")),
        notes: Default::default(),
    };
    let version =
        |world: &World| world.controller.card_view(&card_id()).expect("there").table_version;
    let before_it = version(&world);
    let changed = view(world.ask(change(patch.clone(), Some(&before.etag))));
    assert_eq!(changed.rule, patch.apply(&before.rule));
    world.settle();
    assert_eq!(version(&world), before_it + 1, "one commit");
    let uid = |name: &str| world.controller.dag_view(&dag(name)).expect("there").uid.raw();
    let (web, mail) = (uid("acme/web"), uid("acme/mail"));
    let rows: Vec<_> = on_card(&mut world).iter().map(|row| (row.priority, row.dag_uid)).collect();
    assert_eq!(rows, [(1, mail), (3, web), (9, web)]);
    assert!(seen(&world).programmed);
    world.ask(change(RulePatch::default(), Some(&before.etag))).expect_err("it has changed since");
    world.restart();
    world.settle();
    assert_eq!(seen(&world).etag, changed.etag);
    assert_eq!(
        absent(world.ask(Command::UpdateRule {
            id: rule_id("d"),
            patch: RulePatch::default(),
            etag: None
        })),
        "classificationRules/d"
    );
}
