//! A store is opened as its daemon left it, by a kill in the middle of work: of the present layout, whose fixture
//! `SNIC_WRITE=1 cargo test -p snic-controller --test controller layouts` writes. A change of the records that cannot
//! read it needs a new layout.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use snic_controller::{Command, Controller, InvalidRecord, LAYOUT, ResourceKey};
use snic_domain::{
    Bandwidth, BindingSpec, BindingState, BindingTarget, ByteSize, DagState, Match, NtType,
    RegionId, Rule, RuleId, Timestamp, VmId,
};

use crate::support::things::{bitstream, create, dag, delete, drain, nt, spec, tenant_id, update};
use crate::support::{Records, World, recover, settings};

fn vm() -> VmId {
    VmId::new("00000001-0000-4000-8000-000000000000").expect("a UUID")
}

/// Records of a daemon that was killed while a DAG was updated, one deleted and a region drained.
fn story() -> Records {
    let mut world = World::new();
    let dpi = NtType { state: ByteSize::from_bytes(1_000), ..nt("dpi", 10) };
    for command in [
        Command::CreateNtType(dpi),
        Command::CreateBitstream(bitstream("dpi", &["dpi"])),
        Command::CreateNtType(nt("acme.own", 40)),
        Command::CreateBitstream(bitstream("acme.own", &["acme.own"])),
    ] {
        world.ask(command).expect("it is new");
    }
    world.deploy("acme/web", "lb", 5);
    world.deploy("acme/deep", "dpi", 5);
    let matches = Match { vni: Some(9), ..Match::default() };
    let id = RuleId::new("first").expect("a label");
    let rule = Rule { id, priority: 3, matches, dag: dag("acme/web"), notes: Default::default() };
    world.ask_once("rule", Command::CreateRule(rule)).expect("there is room");
    let machine = BindingSpec {
        vm: vm(),
        tenant: tenant_id("acme"),
        chains: BindingTarget::Dags(vec![dag("acme/web")]),
        functions: 1,
        ready_within: Duration::from_secs(10),
        lease: None,
        notes: Default::default(),
        limits: Default::default(),
    };
    world.ask(Command::BindVm(machine)).expect("there is room");
    world.settle();
    world.deploy("beta/web", "aes", 10);
    let too_much = world.ask(create("beta/much", spec("aes", 400)));
    too_much.expect_err("it is more than the card has");
    let drained = world.regions_of("acme/web")[0];
    world.ask(drain(drained.0)).expect("it is there");
    world.ask(update("acme/web", spec("lb", 6))).expect("there is room");
    world.ask(delete("beta/web")).expect("it is there");
    world.durable
}

fn fixture(layout: u32) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/layouts");
    folder.join(format!("{layout}.txt"))
}

/// A record a line: its key, a space, its value.
fn read(layout: u32) -> Records {
    let path = fixture(layout);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let record = |line: &str| {
        let (key, value) = line.split_once(' ').expect("a key and a value");
        (key.to_owned(), value.as_bytes().to_vec())
    };
    text.lines().map(record).collect()
}

fn write(records: &Records) {
    let line = |(key, value): (&String, &Vec<u8>)| {
        format!("{key} {}\n", std::str::from_utf8(value).expect("JSON is text"))
    };
    fs::write(fixture(LAYOUT), records.iter().map(line).collect::<String>()).expect("written");
}

/// The daemon goes on where the one that wrote the store was killed, card and all.
#[test]
fn every_layout_is_opened_and_goes_on() {
    if std::env::var_os("SNIC_WRITE").is_some() {
        write(&story());
    }
    let stored = read(LAYOUT);
    let mut world = World::empty();
    world.controller = recover(&stored, world.now).expect("it is the present layout");
    world.controller.check().expect("it is whole");
    world.durable = stored;
    world.add_card(crate::support::things::card_id());
    world.settle();
    // A watch from the beginning is sent what was changed after revision 0.
    let tenants = world.controller.tenants().map(|view| ResourceKey::Tenant(view.tenant.id));
    let own = ResourceKey::NtType("acme.own".parse().expect("an id"));
    for name in tenants.chain([own]) {
        let stamp = world.controller.stamp(&name);
        assert!(stamp.changed > 0, "{name} is in no watch");
    }
    let states = |name| world.controller.dag_view(&dag(name)).map(|view| view.state);
    assert_eq!(states("acme/web"), Some(DagState::Ready));
    assert_eq!(states("acme/deep"), Some(DagState::Ready));
    assert_eq!(states("beta/web"), None, "it was deleted");
    assert_eq!(world.view("acme/web").spec.bandwidth, Bandwidth::from_gbps(6));
    let bound = world.controller.binding_view(&vm()).expect("it is stored");
    assert_eq!(bound.record.state, BindingState::Bound);
    assert!(world.regions_of("acme/web").iter().all(|region| *region != RegionId(0)), "drained");
    // Its number is stored: it is called as its rows on the card call it.
    world.ask(create("acme/own", spec("acme.own", 1))).expect("there is room");
    world.settle();
    assert_eq!(world.state("acme/own"), DagState::Ready);
}

/// Whatever else the records of another layout say, it is the layout that is named.
#[test]
fn another_layout_is_refused_and_a_damaged_head_is_named() {
    let with = |head: &str| {
        let mut records = read(LAYOUT);
        records.insert("meta".into(), head.as_bytes().to_vec());
        records.insert("paintings/1".into(), b"\0".to_vec());
        recover(&records, Default::default()).expect_err(head)
    };
    for other in [0, LAYOUT + 1, u32::MAX] {
        let error = with(&format!("{{\"schema\":{other},\"colour\":\"red\"}}"));
        assert!(matches!(error, InvalidRecord::Schema { found } if found == other), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&format!("layout {other}")) && text.contains("another version"),
            "{text}"
        );
    }
    for damaged in ["", "{}", "[1]", "{\"schema\":\"two\"}"] {
        let error = with(damaged);
        assert_eq!(error.key(), Some("meta"), "{error}");
    }
}

/// All faults at once, each by its key, and nothing else.
#[test]
fn an_inspection_names_all_that_is_wrong() {
    let good = read(LAYOUT);
    let inspect = |records: &Records| {
        let records = records.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        Controller::inspect(settings(), records, Timestamp::from_nanos(2_000_000_000))
    };
    let keys = |records: &Records| -> Vec<String> {
        let mut keys: Vec<String> =
            inspect(records).faults.iter().filter_map(|f| f.key().map(str::to_owned)).collect();
        keys.sort_unstable();
        keys
    };
    let clean = inspect(&good);
    assert!(clean.faults.is_empty() && clean.broken.is_none(), "{clean:?}");
    assert_eq!(clean.digests.len(), good.keys().filter(|k| k.starts_with("bitstreams/")).count());
    let mut bad = good.clone();
    bad.insert("dags/acme/web".into(), b"\0".to_vec());
    bad.insert("colours/red".into(), b"{}".to_vec());
    bad.remove("dags/acme/deep");
    assert_eq!(
        keys(&bad),
        ["colours/red", "dags/acme/web"],
        "without a record of an unknown kind nobody can say what contradicts the rest"
    );
    bad.remove("colours/red");
    let found = keys(&bad);
    for key in
        ["rules/first", "guests/card0/01/acme/deep/dpi", "dags/acme/web", "explanations/acme/web"]
    {
        assert!(found.iter().any(|other| other == key), "{key}: {found:?}");
    }
    let mut orphans = good.clone();
    orphans.remove("tenants/acme");
    let found = keys(&orphans);
    for key in ["dags/acme/web", "nt-types/acme.own", "bitstreams/acme.own"] {
        assert!(found.iter().any(|other| other == key), "{key}: {found:?}");
    }
    let mut unknown = good.clone();
    unknown.remove("bitstreams/pad");
    unknown.remove("bitstreams/dpi");
    assert!(keys(&unknown).contains(&"regions/card0/01".to_owned()), "{:?}", keys(&unknown));
    let mut newer = good;
    newer.insert("meta".into(), b"{\"schema\":99}".to_vec());
    assert!(matches!(inspect(&newer).faults[..], [InvalidRecord::Schema { found: 99 }]));
}
