//! DAGs that share no host or no rack with others of their tenant.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_domain::DagPatch;
use snic_fleet::placement::{CardConstraints, Constraint};
use snic_fleet::protocol::{Denied, FleetCommand, FleetName, NewFleetDag};
use snic_fleet::{FleetSettings, HostId};

use crate::support::leading::{Fleet, new};
use crate::support::{catalogue, host, host_spec, name, profile, tenant, zone};

/// Hosts `h0` and `h1` of one rack, and `h2` in a rack of the same name in another zone.
fn two_racks() -> Fleet {
    let settings = FleetSettings {
        lease: Duration::from_secs(2),
        confirm: Duration::from_secs(2),
        ..FleetSettings::default()
    };
    let mut fleet = Fleet::with(0, settings);
    let sim = profile(catalogue(), "sim-16");
    for (id, zone_of) in [("h0", 0), ("h1", 0), ("h2", 1)] {
        fleet.add_host(id, host_spec(zone_of, 0, &[&sim]));
    }
    fleet.beat();
    fleet.beat();
    fleet
}

fn apart(dag: &str, hosts: &[&str], racks: &[&str]) -> NewFleetDag {
    let mut of = new("acme", dag, 100);
    of.constraints.hosts_without_dags = hosts.iter().map(|dag| name("acme", dag)).collect();
    of.constraints.racks_without_dags = racks.iter().map(|dag| name("acme", dag)).collect();
    of
}

fn on(mut of: NewFleetDag, at: &str) -> NewFleetDag {
    of.constraints.hosts.insert(host(at));
    of
}

fn create(fleet: &mut Fleet, of: NewFleetDag) -> HostId {
    let dag = of.name.dag.as_str().to_owned();
    fleet.acme(FleetCommand::CreateDag(of)).expect("there is room");
    at(fleet, &dag).expect("it has a place")
}

fn at(fleet: &mut Fleet, dag: &str) -> Option<HostId> {
    fleet.dag(dag).card.map(|card| card.host)
}

/// Number of hosts that failed each constraint.
fn refused(fleet: &mut Fleet, of: NewFleetDag) -> BTreeMap<Constraint, usize> {
    match fleet.acme(FleetCommand::CreateDag(of)) {
        Err(Denied::NoPlace(refused)) => refused.hosts,
        other => panic!("{other:?}"),
    }
}

fn seconds(fleet: &mut Fleet, count: usize) {
    (0..count).for_each(|_| fleet.pass(Duration::from_secs(1)));
}

#[test]
fn no_host_and_no_rack_is_shared_in_both_directions() {
    let mut fleet = two_racks();
    assert_eq!(create(&mut fleet, new("acme", "a", 100)), host("h0"));
    assert_eq!(create(&mut fleet, apart("b", &["a"], &[])), host("h1"));
    let by_rack = create(&mut fleet, apart("c", &[], &["a", "absent"]));
    assert_eq!(by_rack, host("h2"), "another zone has a rack of the same name");
    let none = refused(&mut fleet, apart("d", &["a", "b"], &["c"]));
    assert_eq!(none, [(Constraint::HostOfDag, 2), (Constraint::RackOfDag, 1)].into());
    let why = fleet.acme(FleetCommand::CreateDag(apart("d", &["a", "b"], &["c"])));
    let why = why.expect_err("it is refused").to_string();
    let counts = "2 with DAGs to share no host with, 1 in racks of DAGs to share no rack with";
    assert!(why.contains(counts), "{why}");
    assert!(!why.contains("h0") && !why.contains("dags/a"), "{why}");
    // Nobody names `e` yet; `f` does before `e` is there.
    assert_eq!(create(&mut fleet, on(apart("f", &["e"], &[]), "h0")), host("h0"));
    assert_eq!(create(&mut fleet, new("acme", "e", 100)), host("h1"), "it keeps off the host of f");
    let there = on(new("acme", "e2", 100), "h0");
    assert_eq!(create(&mut fleet, there), host("h0"), "nobody names it");
    // DAGs that are gone keep nobody off.
    for dag in ["a", "b"] {
        let delete = FleetCommand::Delete {
            name: FleetName::Dag(name("acme", dag)),
            etag: None,
            force: false,
        };
        fleet.acme(delete).expect("it is there");
    }
    seconds(&mut fleet, 2);
    assert_eq!(create(&mut fleet, apart("d", &["a", "b"], &["c"])), host("h0"));
}

#[test]
fn dags_of_a_batch_and_of_an_earlier_leader_are_kept_apart() {
    let mut fleet = two_racks();
    let batch = vec![new("acme", "a", 100), apart("b", &["a"], &[]), apart("c", &[], &["a", "b"])];
    fleet.acme(FleetCommand::CreateDags(batch)).expect("there is room");
    let places = ["a", "b", "c"].map(|dag| at(&mut fleet, dag).expect("placed"));
    assert_eq!(places, [host("h0"), host("h1"), host("h2")]);
    let too_many =
        vec![apart("d", &[], &["e"]), apart("e", &[], &["c"]), apart("f", &["a", "b"], &["e"])];
    fleet.acme(FleetCommand::CreateDags(too_many)).expect_err("two racks");
    fleet.elect_again();
    seconds(&mut fleet, 3);
    let none = refused(&mut fleet, apart("d", &["a", "b"], &["c"]));
    assert_eq!(none.get(&Constraint::HostOfDag), Some(&2), "{none:?}");
    fleet.replica.check().expect("what is noted is what records say");
}

#[test]
fn a_dag_that_leaves_a_host_keeps_others_off_until_it_is_gone() {
    let mut fleet = two_racks();
    create(&mut fleet, new("acme", "a", 100));
    seconds(&mut fleet, 2);
    fleet.serves = false;
    fleet.operator(FleetCommand::DrainHost(host("h0"), true));
    seconds(&mut fleet, 2);
    assert_eq!(at(&mut fleet, "a"), Some(host("h1")), "it is to move");
    fleet.operator(FleetCommand::DrainHost(host("h0"), false));
    let none = refused(&mut fleet, on(apart("b", &["a"], &[]), "h0"));
    assert_eq!(none.get(&Constraint::HostOfDag), Some(&1), "h0 serves it still: {none:?}");
    let none = refused(&mut fleet, on(apart("b", &[], &["a"]), "h0"));
    assert_eq!(none.get(&Constraint::RackOfDag), Some(&1), "h0 serves it still: {none:?}");
    fleet.serves = true;
    fleet.serve_all();
    seconds(&mut fleet, 3);
    assert_eq!(create(&mut fleet, on(apart("b", &["a"], &[]), "h0")), host("h0"));
}

/// A host that dies has its DAGs placed elsewhere, but not where they would meet those that they keep apart from.
#[test]
fn evacuated_dags_wait_rather_than_meet() {
    let mut fleet = two_racks();
    create(&mut fleet, on(new("acme", "a", 100), "h1"));
    create(&mut fleet, apart("b", &["a"], &[]));
    create(&mut fleet, on(apart("c", &["b"], &[]), "h2"));
    create(&mut fleet, new("acme", "free", 100));
    seconds(&mut fleet, 2);
    assert_eq!(at(&mut fleet, "b"), Some(host("h0")));
    assert_eq!(at(&mut fleet, "free"), Some(host("h0")));
    fleet.operator(FleetCommand::DrainHost(host("h0"), true));
    seconds(&mut fleet, 10);
    assert_ne!(at(&mut fleet, "free"), Some(host("h0")), "it moves");
    assert_eq!(at(&mut fleet, "b"), Some(host("h0")), "each other host has one to keep apart from");
    let delete =
        FleetCommand::Delete { name: FleetName::Dag(name("acme", "c")), etag: None, force: false };
    fleet.acme(delete).expect("it is there");
    seconds(&mut fleet, 10);
    assert_eq!(at(&mut fleet, "b"), Some(host("h2")), "there is room now");
}

#[test]
fn wrong_names_are_refused() {
    let mut fleet = two_racks();
    let theirs = FleetCommand::CreateDag(new("beta", "there", 100));
    fleet.ask(Some(&tenant("beta")), theirs).expect("there is room");
    let mut all = Vec::new();
    for other in ["there", "absent"] {
        let mut of = new("acme", "b", 100);
        of.constraints.racks_without_dags.insert(name("beta", other));
        all.push((of, "placement.racks_without_dags: tenants/beta/dags/"));
    }
    all.push((apart("b", &["b"], &[]), "names itself"));
    let many: Vec<String> = (0..17).map(|number| format!("d{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    all.push((apart("b", &many, &[]), "17 DAGs; at most 16"));
    let mut both = apart("b", &[], &["a"]);
    both.spec.card_affinity.together_with.insert(name("acme", "a"));
    all.push((both, "card_affinity.together_with"));
    for (of, said) in all {
        let why = fleet.acme(FleetCommand::CreateDag(of)).expect_err(said).to_string();
        assert!(why.contains(said), "{why}");
    }
    create(&mut fleet, apart("b", &["a"], &[]));
    let mut affinity = new("acme", "x", 1).spec.card_affinity;
    affinity.together_with.insert(name("acme", "a"));
    let patch = Box::new(DagPatch { card_affinity: Some(affinity), ..DagPatch::default() });
    let change = FleetCommand::UpdateDag { name: name("acme", "b"), patch, etag: None };
    let why = fleet.acme(change).expect_err("both cannot hold").to_string();
    assert!(why.contains("leave it in one of them"), "{why}");
}

/// Records of earlier versions have neither list, and those without are as before.
#[test]
fn records_of_earlier_versions_are_read() {
    let none = CardConstraints::default();
    let text = serde_json::to_value(&none).expect("JSON");
    let keys: Vec<&String> = text.as_object().expect("an object").keys().collect();
    assert!(keys.iter().all(|key| !key.contains("dags")), "{keys:?}");
    assert_eq!(serde_json::from_value::<CardConstraints>(text).expect("read"), none);
    let mut of = apart("b", &["a"], &["c"]).constraints;
    let expected = of.clone();
    of.of_dags.hosts.insert(host("h0"));
    of.zones.insert(zone(0));
    let text = serde_json::to_value(&of).expect("JSON");
    let back: CardConstraints = serde_json::from_value(text).expect("read");
    assert_eq!(back.of_dags, Default::default(), "places are of the moment");
    assert_eq!(back.hosts_without_dags, expected.hosts_without_dags);
    assert_eq!(back.racks_without_dags, expected.racks_without_dags);
}
