//! Stores of every layout that there was: each is opened as its daemon left it, by a kill in the middle of
//! work. A new layout needs a new fixture: `SNIC_WRITE=1 cargo test -p snic-controller --test examples layouts`
//! writes the one of the present layout; those of older ones never change.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use snic_controller::{Command, Controller, InvalidRecord, LAYOUT, ResourceKey, migrate};
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
    for layout in 1..=LAYOUT {
        let stored = read(layout);
        let mut world = World::empty();
        world.controller = recover(&stored, world.now).unwrap_or_else(|e| panic!("{layout}: {e}"));
        world.controller.check().unwrap_or_else(|broken| panic!("layout {layout}: {broken}"));
        world.durable = after_migration(&stored);
        world.add_card(crate::support::things::card_id());
        world.settle();
        // A watch from the beginning is sent what was changed after revision 0.
        let tenants = world.controller.tenants().map(|view| ResourceKey::Tenant(view.tenant.id));
        let own = ResourceKey::NtType("acme.own".parse().expect("an id"));
        for name in tenants.chain([own]) {
            let stamp = world.controller.stamp(&name);
            assert!(stamp.changed > 0, "layout {layout}: {name} is in no watch");
        }
        let states = |name| world.controller.dag_view(&dag(name)).map(|view| view.state);
        assert_eq!(states("acme/web"), Some(DagState::Ready), "layout {layout}");
        assert_eq!(states("acme/deep"), Some(DagState::Ready), "layout {layout}");
        assert_eq!(states("beta/web"), None, "layout {layout}: it was deleted");
        assert_eq!(world.view("acme/web").spec.bandwidth, Bandwidth::from_gbps(6));
        let bound = world.controller.binding_view(&vm()).expect("it is stored");
        assert_eq!(bound.record.state, BindingState::Bound, "layout {layout}");
        assert!(
            world.regions_of("acme/web").iter().all(|region| *region != RegionId(0)),
            "drained"
        );
        // A type of before numbers is called as its rows on the card call it.
        let own = world.ask(create("acme/own", spec("acme.own", 1)));
        own.unwrap_or_else(|error| panic!("layout {layout}: {error}"));
        world.settle();
        assert_eq!(world.state("acme/own"), DagState::Ready, "layout {layout}");
    }
}

/// Records in the store after the migration.
fn after_migration(stored: &Records) -> Records {
    let records = stored.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let migrated = migrate(records).expect("it is known");
    let mut after = stored.clone();
    for (key, value) in migrated.writes {
        after.insert(key, value.expect("nothing is removed"));
    }
    assert_eq!(after, migrated.records.into_iter().collect(), "the writes are the difference");
    after
}

#[test]
fn a_migrated_store_has_the_current_layout_and_the_same_content() {
    for layout in 1..=LAYOUT {
        let after = after_migration(&read(layout));
        let records = after.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let again = migrate(records).expect("it is known");
        assert_eq!((again.from, again.writes), (None, Vec::new()), "layout {layout}");
        let head = String::from_utf8(after["meta"].clone()).expect("JSON is text");
        assert!(head.contains(&format!("\"schema\":{LAYOUT}")), "{head}");
    }
    let (first, second) = (after_migration(&read(1)), read(2));
    let value = |records: &Records, key: &str| -> serde_json::Value {
        serde_json::from_slice(&records[key]).expect("JSON")
    };
    // The numbers that were taken out of the fixture are those that this version gives.
    for nt in ["nt-types/nat", "nt-types/lb", "nt-types/acme.own"] {
        assert!(!String::from_utf8_lossy(&read(1)[nt]).contains("number"), "{nt}");
        assert_eq!(value(&first, nt)["number"], value(&second, nt)["number"], "{nt}");
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
