//! Policies of a fleet, as operators ask for them and hosts hear of them.

use std::time::Duration;

use snic_domain::Bandwidth;
use snic_fleet::HostId;
use snic_fleet::placement::{PlacementDefaults, PromiseLimits, TenantDefaults};
use snic_fleet::protocol::{
    Denied, FLEET_PLACEMENT, FleetCommand, FleetPolicies, FleetReply, HostPolicies, MachineNeeds,
    NewFleetDag, PolicyFiles,
};
use snic_fleet::{AgentEvent, records::POLICIES};

use crate::support::leading::{Fleet, new};
use crate::support::{host, tenant, zone};

fn files(all: &[(&str, &str)]) -> PolicyFiles {
    all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn set(all: &[(&str, &str)]) -> FleetCommand {
    let promises = PromiseLimits::default();
    FleetCommand::SetPolicies {
        files: files(all),
        promises,
        budgets: Default::default(),
        defaults: Default::default(),
        etag: None,
    }
}

fn read(fleet: &mut Fleet) -> FleetPolicies {
    match fleet.ask(None, FleetCommand::GetPolicies) {
        Ok(FleetReply::Policies(found)) => *found,
        other => panic!("{other:?}"),
    }
}

/// These hosts take policies: they say so with their next beat.
fn take_policies(fleet: &mut Fleet, hosts: &[&str]) {
    for id in hosts.iter().map(|id| host(id)) {
        fleet.policies.insert(id.clone(), HostPolicies::default());
        fleet.agent(&id, AgentEvent::Policies(HostPolicies::default()));
    }
}

/// Number of hosts that have them, have not said so, and refuse them.
fn hosts(of: &FleetPolicies) -> (usize, usize, usize) {
    (of.in_force, of.pending, of.refusing)
}

#[test]
fn files_are_registered_once_and_reach_every_host_that_takes_them() {
    let mut fleet = Fleet::new(3);
    take_policies(&mut fleet, &["h0", "h1"]);
    assert_eq!(hosts(&read(&mut fleet)), (2, 1, 0), "none are registered, and two have none");
    fleet.operator(set(&[("fairness.toml", "a")]));
    assert_eq!(hosts(&read(&mut fleet)), (0, 3, 0), "they are told with their next beat");
    fleet.beat();
    let found = read(&mut fleet);
    assert_eq!(found.files, files(&[("fairness.toml", "a")]));
    assert_eq!(hosts(&found), (2, 1, 0));
    assert_eq!(found.pending_hosts, [host("h2")], "a program of the version before");
    let orders = fleet.orders;
    fleet.beat();
    assert_eq!(fleet.orders, orders, "nothing is sent twice");
    // A host that comes later gets them, too.
    take_policies(&mut fleet, &["h2"]);
    fleet.beat();
    assert_eq!(hosts(&read(&mut fleet)), (3, 0, 0));
    fleet.operator(set(&[]));
    fleet.beat();
    let found = read(&mut fleet);
    assert_eq!((found.files.len(), hosts(&found)), (0, (3, 0, 0)));
}

/// A new leader knows the files and asks nothing of hosts that have them.
#[test]
fn a_new_leader_goes_on_with_the_files() {
    let mut fleet = Fleet::new(2);
    take_policies(&mut fleet, &["h0", "h1"]);
    fleet.operator(set(&[("fairness.toml", "a")]));
    fleet.beat();
    let before = fleet.policies.clone();
    fleet.elect_again();
    assert_eq!(hosts(&read(&mut fleet)), (2, 0, 0));
    assert_eq!(fleet.policies, before, "hosts keep the number that they have");
    fleet.operator(set(&[("fairness.toml", "b")]));
    fleet.beat();
    assert!(fleet.policies.values().all(|of| of.number > before[&host("h0")].number));
}

#[test]
fn a_host_that_refuses_them_is_named_with_its_reason() {
    let mut fleet = Fleet::new(1);
    take_policies(&mut fleet, &["h0"]);
    fleet.operator(set(&[("refused.toml", "a")]));
    fleet.beat();
    let found = read(&mut fleet);
    assert_eq!(hosts(&found), (0, 0, 1));
    let expected: (HostId, String) = (host("h0"), "it has no such file".into());
    assert_eq!(found.refusals, [expected]);
    let orders = fleet.orders;
    (0..9).for_each(|_| fleet.beat());
    assert_eq!(fleet.orders, orders, "it is not asked again");
}

#[test]
fn what_is_not_allowed_changes_nothing() {
    let mut fleet = Fleet::new(1);
    let before = fleet.revision();
    let denied = fleet.acme(set(&[("fairness.toml", "a")]));
    assert!(matches!(denied, Err(Denied::Invalid(_))), "{denied:?}");
    let denied = fleet.ask(Some(&tenant("acme")), FleetCommand::GetPolicies);
    assert!(matches!(denied, Err(Denied::Invalid(_))), "{denied:?}");
    let large = "x".repeat(64 << 10);
    let denied = fleet.ask(None, set(&[("fairness.toml", &large)]));
    assert!(matches!(denied, Err(Denied::Invalid(why)) if why.contains("65536 are allowed")));
    fleet.operator(set(&[]));
    assert_eq!(fleet.revision(), before, "none are registered, and none are to be");
    fleet.is_dry = true;
    fleet.operator(set(&[("fairness.toml", "a")]));
    fleet.is_dry = false;
    assert_eq!(fleet.revision(), before);
    fleet.operator(set(&[("fairness.toml", "a")]));
    let after = fleet.revision();
    assert!(after > before);
    fleet.operator(set(&[("fairness.toml", "a")]));
    assert_eq!(fleet.revision(), after, "they are registered already");
    assert!(fleet.records().iter().any(|record| record.key == POLICIES));
}

/// A change counts only against the files that its author has read.
#[test]
fn of_two_who_change_them_at_once_one_is_told() {
    let mut fleet = Fleet::new(1);
    let with = |text: &str, etag: Option<String>| FleetCommand::SetPolicies {
        files: files(&[("fairness.toml", text)]),
        promises: PromiseLimits::default(),
        budgets: Default::default(),
        defaults: Default::default(),
        etag,
    };
    let denied = fleet.ask(None, with("a", Some("0123".into())));
    assert!(matches!(denied, Err(Denied::Stale { .. })), "there are none: {denied:?}");
    fleet.operator(with("a", None));
    let read_by_both = read(&mut fleet).meta.expect("they are registered").etag();
    fleet.operator(with("b", Some(read_by_both.clone())));
    let denied = fleet.ask(None, with("c", Some(read_by_both)));
    assert!(matches!(denied, Err(Denied::Stale { .. })), "{denied:?}");
    assert_eq!(read(&mut fleet).files, files(&[("fairness.toml", "b")]));
}

/// Hosts refuse what is beyond the policy, so the fleet does not place it there.
#[test]
fn promises_keep_to_the_policy() {
    let mut fleet = Fleet::new(1);
    let limits = |ingress_percent, mbit| FleetCommand::SetPolicies {
        files: files(&[("admission.toml", "as the numbers say")]),
        promises: PromiseLimits { ingress_percent, dag_bandwidth_max: Bandwidth::from_mbps(mbit) },
        budgets: Default::default(),
        defaults: Default::default(),
        etag: None,
    };
    let create = |fleet: &mut Fleet, dag: &str, mbit| {
        fleet.acme(FleetCommand::CreateDag(new("acme", dag, mbit))).map(drop)
    };
    fleet.operator(limits(10, 9_000));
    let denied = create(&mut fleet, "a", 9_001);
    let is_told = matches!(&denied, Err(Denied::Invalid(why)) if why.contains("at most 9 Gbit/s"));
    assert!(is_told, "{denied:?}");
    // The card has 100 Gbit/s: a tenth of it is promised to two of these.
    assert_eq!(create(&mut fleet, "a", 5_000), Ok(()));
    assert_eq!(create(&mut fleet, "b", 5_000), Ok(()));
    let denied = create(&mut fleet, "c", 1_000);
    let is_told =
        matches!(&denied, Err(Denied::NoPlace(why)) if why.to_string().contains("bandwidth"));
    assert!(is_told, "{denied:?}");
    // Over a change of leaders, too.
    fleet.elect_again();
    assert!(create(&mut fleet, "c", 1_000).is_err());
    fleet.operator(FleetCommand::SetPolicies {
        files: files(&[]),
        promises: PromiseLimits::default(),
        budgets: Default::default(),
        defaults: Default::default(),
        etag: None,
    });
    assert_eq!(create(&mut fleet, "c", 1_000), Ok(()));
}

fn defaults(all: PlacementDefaults, acme: PlacementDefaults) -> FleetCommand {
    let text = format!("# {all:?} {acme:?}");
    let files = files(&[("fairness.toml", "a"), (FLEET_PLACEMENT, &text)]);
    let tenants = [(tenant("acme"), acme)].into();
    let defaults = TenantDefaults { all, tenants };
    let (promises, budgets, etag) = (PromiseLimits::default(), Default::default(), None);
    FleetCommand::SetPolicies { files, promises, budgets, defaults, etag }
}

fn in_zone(number: usize) -> PlacementDefaults {
    PlacementDefaults { zones: [zone(number)].into(), ..PlacementDefaults::default() }
}

/// A tenant's own part of the policy comes first, then that for all. It stays so for the DAG.
#[test]
fn placements_that_are_left_open_are_as_the_policy_says() {
    let mut fleet = Fleet::new(4);
    let labels = [("disk".to_owned(), "ssd".to_owned())].into();
    let nowhere = PlacementDefaults { labels, ..PlacementDefaults::default() };
    fleet.operator(defaults(in_zone(1), PlacementDefaults::default()));
    let at = |fleet: &mut Fleet, dag: &str| fleet.dag(dag).card.expect("it has a place").host;
    let create = |fleet: &mut Fleet, new| fleet.acme(FleetCommand::CreateDag(new)).map(drop);
    create(&mut fleet, new("acme", "a", 100)).expect("there is room");
    assert_eq!(at(&mut fleet, "a"), host("h1"), "zone 1 has h1 and h3");
    let dag = fleet.dag("a");
    assert_eq!((dag.constraints, dag.defaults), (Default::default(), in_zone(1)));
    // What the tenant says counts before it, also where it says a host.
    let mut said = new("acme", "b", 100);
    said.constraints.zones.insert(zone(0));
    create(&mut fleet, said).expect("there is room");
    let mut there = new("acme", "c", 100);
    there.constraints.hosts.insert(host("h2"));
    create(&mut fleet, there).expect("there is room");
    assert_eq!([at(&mut fleet, "b"), at(&mut fleet, "c")], [host("h0"), host("h2")]);
    assert!(fleet.dag("b").defaults.is_none() && fleet.dag("c").defaults.is_none());
    // Its own part comes before that for all.
    fleet.operator(defaults(in_zone(1), in_zone(0)));
    create(&mut fleet, new("acme", "d", 100)).expect("there is room");
    assert_eq!((at(&mut fleet, "d"), fleet.dag("d").defaults), (host("h0"), in_zone(0)));
    // Both parts are added where they speak of different things.
    fleet.operator(defaults(nowhere, in_zone(0)));
    let why = create(&mut fleet, new("acme", "e", 100)).expect_err("no host has the label");
    let why = why.to_string();
    assert!(why.contains("2 in another zone, 2 without the labels"), "{why}");
    // A DAG keeps what held when it was created: it moves within its zone, under another leader too.
    fleet.elect_again();
    (0..3).for_each(|_| fleet.pass(Duration::from_secs(1)));
    assert_eq!(fleet.dag("a").defaults, in_zone(1));
    fleet.operator(FleetCommand::DrainHost(host("h1"), true));
    (0..5).for_each(|_| fleet.pass(Duration::from_secs(1)));
    assert_eq!(at(&mut fleet, "a"), host("h3"));
    fleet.operator(FleetCommand::DrainHost(host("h3"), true));
    (0..5).for_each(|_| fleet.pass(Duration::from_secs(1)));
    assert_eq!(at(&mut fleet, "a"), host("h3"), "no other host of its zone takes it");
}

/// A search for a DAG that is to be made looks where it would go.
#[test]
fn a_search_for_a_new_dag_keeps_to_the_policy() {
    let mut fleet = Fleet::new(2);
    fleet.operator(defaults(in_zone(1), PlacementDefaults::default()));
    let find = |fleet: &mut Fleet, is_for_dag: bool| {
        let NewFleetDag { name, spec, constraints, policy } = new("acme", "a", 100);
        let new_dags = is_for_dag.then(|| (name, Box::new(spec))).into_iter().collect();
        let needs = Box::new(MachineNeeds { new_dags, ..MachineNeeds::default() });
        match fleet.acme(FleetCommand::FindHosts { constraints, policy, needs, most: 4 }) {
            Ok(FleetReply::Hosts(found)) => found.hosts.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((find(&mut fleet, true), find(&mut fleet, false)), (1, 2));
}

/// Hosts choose among no hosts, and would refuse a file that they do not know.
#[test]
fn the_file_of_placements_is_not_sent_to_hosts() {
    let mut fleet = Fleet::new(1);
    take_policies(&mut fleet, &["h0"]);
    fleet.operator(defaults(in_zone(0), in_zone(0)));
    fleet.beat();
    fleet.beat();
    assert_eq!(fleet.policy_files.keys().collect::<Vec<_>>(), ["fairness.toml"]);
    let found = read(&mut fleet);
    assert_eq!(found.files.len(), 2, "operators see it");
    assert_eq!(hosts(&found), (1, 0, 0));
}
