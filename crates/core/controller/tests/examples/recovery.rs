//! Starting again: from any point of a history, and from stores that were damaged.

use snic_controller::{
    Command, ControlError, Controller, InvalidRecord, Reply, Request, SET_ASIDE_BYTES_MAX,
    SET_ASIDE_MAX, SetAside,
};
use snic_domain::{DagState, Match, Rule, RuleId};
use snic_tables::Table;

use crate::support;
use crate::support::things::{
    bitstream, card_id, create, dag, delete, delete_bitstream, delete_nt, delete_tenant, drain, nt,
    spec, tenant, undrain, update,
};
use crate::support::{Crash, Records, World, operator, recover};

/// Step between two requests of the history.
enum Step {
    Ask(Command),
    /// The card gives this many answers.
    Answer(usize),
    Settle,
}

fn history() -> Vec<Step> {
    let matches = Match { vni: Some(9), ..Match::default() };
    let rule = |id: &str, name| {
        let id = RuleId::new(id).expect("a label");
        Command::CreateRule(Rule {
            id,
            priority: 3,
            matches: matches.clone(),
            dag: dag(name),
            notes: Default::default(),
        })
    };
    vec![
        Step::Ask(create("acme/web", spec("lb", 5))),
        Step::Ask(create("acme/api", spec("nat firewall cache", 5))),
        Step::Answer(1),
        Step::Ask(rule("second", "acme/web")),
        Step::Ask(update("acme/web", spec("lb", 6))),
        Step::Settle,
        Step::Ask(rule("first", "acme/api")),
        Step::Ask(update("acme/web", spec("vpn", 6))),
        Step::Answer(1),
        Step::Ask(Command::CreateNtType(nt("acme.own", 40))),
        Step::Ask(Command::CreateBitstream(bitstream("acme.own", &["acme.own"]))),
        Step::Ask(create("acme/own", spec("acme.own", 1))),
        Step::Ask(drain(0)),
        Step::Answer(3),
        Step::Ask(delete("acme/api")),
        Step::Ask(create("acme/api", spec("aes", 10))),
        Step::Settle,
        Step::Ask(undrain(0)),
        Step::Ask(delete("acme/own")),
        Step::Answer(1),
        Step::Ask(delete_bitstream("acme.own")),
        Step::Ask(delete_nt("acme.own")),
        Step::Ask(Command::CreateTenant(tenant("gamma"))),
        Step::Ask(delete_tenant("gamma", true)),
        Step::Settle,
    ]
}

#[test]
fn a_record_that_cannot_be_read_costs_what_it_says_and_nothing_else() {
    let mut world = World::new();
    for name in ["acme/web", "acme/api", "beta/web"] {
        world.deploy(name, "lb", 1);
    }
    let matches = Match { vni: Some(9), ..Match::default() };
    let id = RuleId::new("first").expect("a label");
    let rule = Rule { id, priority: 3, matches, dag: dag("acme/web"), notes: Default::default() };
    world.ask(Command::CreateRule(rule)).expect("a rule");
    world.settle();
    let records: Vec<_> = world.durable.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let damaged = |broken: &str| -> Vec<(String, Vec<u8>)> {
        let value = |key: &str, value: &[u8]| match key == broken {
            true => b"\0not JSON".to_vec(),
            false => value.to_vec(),
        };
        records.iter().map(|(key, v)| (key.clone(), value(key, v))).collect()
    };
    let start = |records| Controller::recover_rest(support::settings(), records, 7, world.now);
    let (controller, set_aside) = start(damaged("dags/acme/web")).expect("the rest stands");
    controller.check().expect("and is whole");
    let keys: Vec<&str> = set_aside.iter().map(|record| record.key.as_str()).collect();
    assert!(keys.starts_with(&["dags/acme/web"]) && keys.contains(&"rules/first"), "{keys:?}");
    assert_eq!(set_aside[0].value, b"\0not JSON", "as it was");
    let left: Vec<String> = controller.dags(None).iter().map(|d| d.name.to_string()).collect();
    assert_eq!(left, ["tenants/acme/dags/api", "tenants/beta/dags/web"]);
    // What is set aside stays so: the next start finds nothing wrong.
    let mut store: std::collections::BTreeMap<_, _> =
        damaged("dags/acme/web").into_iter().collect();
    for (key, value) in set_aside.iter().flat_map(SetAside::writes) {
        match value {
            Some(value) => drop(store.insert(key, value)),
            None => drop(store.remove(&key)),
        }
    }
    let (_, again) = start(store.into_iter().collect()).expect("it starts");
    assert!(again.is_empty(), "{again:?}");
    // Who is served does not change silently.
    for broken in ["meta", "tenants/acme", "cards/card0"] {
        let error = start(damaged(broken)).map(|_| ()).expect_err(broken);
        assert_eq!(error.key(), Some(broken));
    }
}

/// A second record of the same key does not take the place of the first, each is counted for its tenant, and where there
/// is no room for one more the start is refused: nothing that was set aside is lost.
#[test]
fn what_was_set_aside_is_kept_until_there_is_no_room_and_then_nothing_starts() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 1);
    world.settle();
    let mut records: std::collections::BTreeMap<String, Vec<u8>> = world.durable.clone();
    let start = |records: &std::collections::BTreeMap<String, Vec<u8>>| {
        let records = records.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        Controller::recover_rest(support::settings(), records, 7, world.now)
    };
    for (round, kept) in
        ["quarantine/dags/acme/web", "quarantine/2/dags/acme/web"].iter().enumerate()
    {
        let broken = format!("broken {round}").into_bytes();
        records.insert("dags/acme/web".into(), broken);
        let (controller, set_aside) = start(&records).expect("the rest stands");
        for (key, value) in set_aside.iter().flat_map(SetAside::writes) {
            match value {
                Some(value) => drop(records.insert(key, value)),
                None => drop(records.remove(&key)),
            }
        }
        assert_eq!(records[*kept], format!("broken {round}").into_bytes());
        let account = controller.set_aside();
        let count = records.keys().filter(|key| key.starts_with("quarantine/")).count();
        assert_eq!(account.records, count);
        assert_eq!(account.tenants.values().sum::<usize>(), count, "all are of acme: {account:?}");
    }
    assert_eq!(records["quarantine/dags/acme/web"], b"broken 0", "the first is still there");
    assert_eq!(start(&records).expect("nothing is new").0.set_aside().tenants.len(), 1);

    for number in 0..SET_ASIDE_MAX {
        records.entry(format!("quarantine/rules/r{number}")).or_default();
    }
    start(&records).expect("a start that finds nothing new goes on");
    records.insert("dags/acme/web".into(), b"broken".to_vec());
    let full = start(&records).map(|_| ()).expect_err("there is no room");
    assert!(full.to_string().contains("snicd store take-out"), "{full}");
    let mut list: Vec<_> = records.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    Controller::take_cause(&mut list, "dags/acme/web", "too large").expect_err("nor while it runs");
    // Bytes count, too.
    records.retain(|key, _| !key.starts_with("quarantine/"));
    start(&records).expect("there is room again");
    for number in 0..SET_ASIDE_BYTES_MAX >> 20 {
        records.insert(format!("quarantine/rules/r{number}"), vec![0; 1 << 20]);
    }
    start(&records).map(|_| ()).expect_err("there are too many bytes");
}

/// As many DAGs as faults are done without, each with its explanation and a rule.
#[test]
fn a_damaged_dag_counts_once_with_all_that_is_about_it() {
    const FAULTS_MAX: usize = 32;
    let mut world = World::new();
    let names: Vec<String> = (0..=FAULTS_MAX).map(|n| format!("acme/d{n}")).collect();
    for (vni, name) in (0..).zip(&names) {
        world.deploy(name, "lb", 1);
        let matches = Match { vni: Some(vni), ..Match::default() };
        let id = RuleId::new(&format!("r{vni}")).expect("a label");
        let rule = Rule { id, priority: 3, matches, dag: dag(name), notes: Default::default() };
        world.ask(Command::CreateRule(rule)).expect("a rule");
    }
    world.settle();
    let start = |damaged: &[String]| {
        let is_damaged = |key: &str| damaged.iter().any(|name| key == format!("dags/{name}"));
        let value =
            |key: &str, value: &[u8]| if is_damaged(key) { b"\0".to_vec() } else { value.into() };
        let records = world.durable.iter().map(|(key, v)| (key.clone(), value(key, v))).collect();
        Controller::recover_rest(support::settings(), records, 7, world.now)
    };
    let (controller, set_aside) = start(&names[1..]).expect("the rest stands");
    controller.check().expect("and is whole");
    let left: Vec<String> = controller.dags(None).iter().map(|d| d.name.to_string()).collect();
    assert_eq!(left, ["tenants/acme/dags/d0"]);
    for kind in ["dags/", "explanations/", "rules/"] {
        let count = set_aside.iter().filter(|record| record.key.starts_with(kind)).count();
        assert_eq!(count, FAULTS_MAX, "{kind}");
    }
    start(&names).map(|_| ()).expect_err("one more is too much");
}

/// Asks until there is an answer: the daemon may die over it once.
fn ask_again(world: &mut World, number: usize, command: &Command) {
    let request = || Request {
        caller: operator(),
        request_id: Some(format!("step-{number}")),
        command: command.clone(),
    };
    let crashes = world.crash.is_some();
    let answer = world.request(request()).or_else(|| world.request(request()));
    match answer.expect("it dies at most once") {
        Ok(_) => {}
        // A delete was carried out, and its answer lost.
        Err(ControlError::NotFound { .. }) if crashes && deletes(command) => {}
        Err(error) => panic!("step {number}, {command:?}: {error}"),
    }
}

fn deletes(command: &Command) -> bool {
    matches!(
        command,
        Command::DeleteDag { .. }
            | Command::DeleteBitstream { .. }
            | Command::DeleteNtType { .. }
            | Command::DeleteTenant { .. }
    )
}

/// The history with a crash at one point; gives the world at its end.
fn play(crash: Option<Crash>) -> World {
    let mut world = World::new();
    let first = world.batches;
    world.crash = crash.map(|crash| match crash {
        Crash::Before(n) => Crash::Before(first + n),
        Crash::After(n) => Crash::After(first + n),
    });
    for (number, step) in history().into_iter().enumerate() {
        match step {
            Step::Ask(command) => ask_again(&mut world, number, &command),
            Step::Answer(count) => (0..count).for_each(|_| {
                world.answer_one();
            }),
            Step::Settle => world.settle(),
        }
    }
    world
}

fn check_end(world: &mut World, crash: Option<Crash>) {
    assert_eq!(world.crash, None, "{crash:?} never came");
    let names: Vec<_> = world.controller.dags(None).into_iter().map(|d| d.name).collect();
    assert_eq!(names, [dag("acme/api"), dag("acme/web")], "{crash:?}");
    for (name, spec) in [("acme/api", spec("aes", 10)), ("acme/web", spec("vpn", 6))] {
        assert_eq!(world.state(name), DagState::Ready, "{crash:?}");
        assert_eq!(world.view(name).spec, spec, "{crash:?}");
    }
    let reserved: u64 = world.reserved().0.iter().flatten().sum();
    assert_eq!(reserved, 16_000_000_000, "{crash:?}");
    let rules: Vec<String> =
        world.controller.rules().map(|view| view.rule.id.to_string()).collect();
    assert_eq!(rules, ["second"], "{crash:?}: the other one's DAG was deleted");
    assert!(world.controller.rules().all(|view| view.programmed), "{crash:?}");
    assert_eq!(world.controller.tenants().count(), 2, "{crash:?}");
    for operation in world.controller.operations(&operator()) {
        assert!(operation.is_done(), "{crash:?}: {:?}", operation.record);
    }
    let tables = &world.card().tables;
    assert_eq!((tables.rows_used(Table::Dag), tables.rows_used(Table::Classifier)), (2, 1));
    let (loads, words) = (world.card().loads.len(), world.card().words_written);
    world.restart();
    world.settle();
    assert_eq!((world.card().loads.len(), world.card().words_written), (loads, words));
}

#[test]
fn a_crash_at_any_batch_changes_nothing_in_the_end() {
    let batches = {
        let mut world = play(None);
        let batches = world.batches - World::new().batches;
        // Its restart stores that the daemon did not run.
        check_end(&mut world, None);
        batches
    };
    assert!(batches > 20, "{batches} batches are no history");
    for number in 0..batches {
        for crash in [Crash::Before(number), Crash::After(number)] {
            let mut world = play(Some(crash));
            check_end(&mut world, Some(crash));
        }
    }
}

#[test]
fn a_restart_shows_the_same_resources() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    world.deploy("beta/web", "nat firewall", 5);
    let views = |world: &World| {
        let who = operator();
        let tenants: Vec<_> = world.controller.tenants().collect();
        let nts: Vec<_> = world.controller.nt_types(&who).collect();
        let bitstreams: Vec<_> = world.controller.bitstreams(&who).collect();
        let dags = world.controller.dags(None);
        let operations: Vec<_> =
            world.controller.operations(&who).map(|view| view.record).collect();
        (tenants, nts, bitstreams, dags, operations)
    };
    let before = views(&world);
    world.restart();
    world.settle();
    assert_eq!(views(&world), before);
}

#[test]
fn until_the_card_has_answered_nothing_is_known_to_be_ready() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    world.controller = recover(&world.durable, world.now).expect("readable");
    world.handle(snic_controller::Event::Tick);
    assert_eq!(world.state("acme/web"), DagState::Degraded);
    assert_eq!(world.view("acme/web").observed_generation, 0);
    world.appear(&card_id());
    assert_eq!(world.state("acme/web"), DagState::Degraded);
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

#[test]
fn batches_that_were_not_durable_leave_no_trace() {
    let mut world = World::new();
    let before = world.durable.clone();
    world.crash = Some(Crash::Before(world.batches));
    let command = create("acme/web", spec("lb", 5));
    let request = Request { caller: operator(), request_id: None, command };
    assert_eq!(world.request(request), None);
    assert_eq!(world.durable, before);
    world.settle();
    assert!(world.controller.dags(None).is_empty());
    assert_eq!(world.card().loads, []);
}

/// Records of a world with one of each kind.
fn records() -> Records {
    let mut world = World::new();
    world.ask_once("r1", create("acme/web", spec("lb", 5))).expect("there is room");
    let matches = Match { vni: Some(9), ..Match::default() };
    for id in ["a", "b"] {
        let id = RuleId::new(id).expect("a label");
        let rule = Rule {
            id,
            priority: 3,
            matches: matches.clone(),
            dag: dag("acme/web"),
            notes: Default::default(),
        };
        let Ok(Reply::Rule(_)) = world.ask(Command::CreateRule(rule)) else { panic!("no rule") };
    }
    world.ask(create("acme/api", spec("vpn", 5))).expect("there is room");
    world.settle();
    world.durable
}

fn error(records: &Records) -> InvalidRecord {
    recover(records, Default::default()).expect_err("it is damaged")
}

#[test]
fn an_unreadable_record_is_refused_by_its_key() {
    let good = records();
    let kinds: std::collections::BTreeSet<&str> =
        good.keys().map(|key| key.split('/').next().unwrap_or(key)).collect();
    assert_eq!(kinds.len(), 14, "one of each kind: {kinds:?}");
    for damaged in good.keys() {
        for garbage in [&b""[..], b"{", b"[7]", b"\xff\xfe"] {
            let mut records = good.clone();
            records.insert(damaged.clone(), garbage.to_vec());
            match error(&records) {
                InvalidRecord::Unreadable { key, .. } => assert_eq!(key, *damaged),
                other => panic!("{damaged}: {other}"),
            }
        }
    }
}

/// The key that a contradiction names.
fn contradicting(records: &Records) -> String {
    match error(records) {
        InvalidRecord::Contradiction { key, .. } => key,
        other => panic!("no contradiction: {other}"),
    }
}

#[test]
fn records_that_contradict_each_other_are_refused_by_their_key() {
    let good = records();
    let moved = |from: &str, to: &str| {
        let mut records = good.clone();
        let record = records.remove(from).expect("it is there");
        records.insert(to.into(), record);
        contradicting(&records)
    };
    let copied = |from: &str, to: &str| {
        let mut records = good.clone();
        let record = records[from].clone();
        records.insert(to.into(), record);
        contradicting(&records)
    };
    assert_eq!(copied("meta", "metal"), "metal");
    assert_eq!(copied("meta", "colours/red"), "colours/red");
    assert_eq!(copied("cards/card0", "cards/Card 0"), "cards/Card 0");
    assert_eq!(moved("regions/card0/00", "regions/card9/00"), "regions/card9/00");
    assert_eq!(moved("regions/card0/00", "regions/card0/99"), "regions/card0/99");
    assert_eq!(moved("regions/card0/00", "regions/card0/x"), "regions/card0/x");
    assert_eq!(moved("regions/card0/00", "regions/card0"), "regions/card0");
    assert_eq!(moved("uids/0000", "uids/none"), "uids/none");
    assert_eq!(moved("uids/0000", "uids/1024"), "uids/1024");
    let mut records = good.clone();
    let request = records.remove("requests/operator:ada/r1").expect("it is there");
    records.insert("requests/r1".into(), request);
    assert_eq!(contradicting(&records), "requests/r1");
    assert_eq!(copied("dags/acme/web", "dags/acme/other"), "dags/acme/other");
    assert_eq!(copied("rules/a", "rules/z"), "rules/z");
    assert_eq!(copied("tenants/acme", "tenants/other"), "tenants/other");
    assert_eq!(copied("nt-types/lb", "nt-types/other"), "nt-types/other");
    assert_eq!(copied("bitstreams/lb", "bitstreams/other"), "bitstreams/other");
}

#[test]
fn rows_and_bandwidth_given_out_twice_are_refused() {
    let good = records();
    let edit = |key: &str, from: &str, to: &str| {
        let mut records = good.clone();
        let text = String::from_utf8(records[key].clone()).expect("JSON is text");
        assert!(text.contains(from), "{key}: {text}");
        records.insert(key.into(), text.replace(from, to).into_bytes());
        contradicting(&records)
    };
    assert_eq!(edit("rules/b", "\"row\":1", "\"row\":0"), "rules/b");
    assert_eq!(edit("dags/acme/web", "\"stage_row\":0", "\"stage_row\":1"), "dags/acme/web");
    assert_eq!(edit("dags/acme/web", "\"stage_row\":0", "\"stage_row\":4096"), "dags/acme/web");
    assert_eq!(edit("dags/acme/web", "card0", "card7"), "dags/acme/web");
    assert_eq!(edit("dags/acme/web", "5000000000", "50000000000"), "dags/acme/web");
    assert_eq!(edit("dags/acme/web", "5000000000", "1"), "dags/acme/web");
    let mut records = good.clone();
    records.remove("cards/card0");
    assert!(contradicting(&records).starts_with("regions/card0/"));
    let mut records = good;
    let region = records.keys().rfind(|key| key.starts_with("regions/")).cloned();
    records.remove(&region.expect("there are some"));
    assert!(contradicting(&records).starts_with("dags/acme/"), "its region holds nothing");
}
