//! Policies of a fleet, as operators ask for them and hosts hear of them.

use snic_domain::Bandwidth;
use snic_fleet::HostId;
use snic_fleet::placement::PromiseLimits;
use snic_fleet::protocol::{
    Denied, FleetCommand, FleetPolicies, FleetReply, HostPolicies, PolicyFiles,
};
use snic_fleet::{AgentEvent, records::POLICIES};

use crate::support::leading::{Fleet, new};
use crate::support::{host, tenant};

fn files(all: &[(&str, &str)]) -> PolicyFiles {
    all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn set(all: &[(&str, &str)]) -> FleetCommand {
    let promises = PromiseLimits::default();
    FleetCommand::SetPolicies {
        files: files(all),
        promises,
        budgets: Default::default(),
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
        etag: None,
    });
    assert_eq!(create(&mut fleet, "c", 1_000), Ok(()));
}
