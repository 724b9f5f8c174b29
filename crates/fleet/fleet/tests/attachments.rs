//! DAGs to which machines of their host are bound: they stay, whoever wants them elsewhere.

use std::time::Duration;

use crate::support::leading::{Fleet, new};
use crate::support::{host, name, rack, tenant, zone};
use snic_domain::{Bandwidth, DagAttachments, DagName, DagPatch, QuotaPatch, TenantPatch};
use snic_fleet::protocol::{
    BoundCause, DrainArea, FleetCommand, FleetItem, FleetName, FleetReply, StayReason,
};
use snic_fleet::{HostId, ProjectChange};

fn drain(id: &HostId) -> FleetCommand {
    FleetCommand::DrainHost(id.clone(), true)
}

/// Some seconds, in which everybody does what is to be done.
fn settle(fleet: &mut Fleet) {
    for _ in 0..12 {
        fleet.pass(Duration::from_secs(1));
    }
}

/// Names of DAGs that a host is said to be bound to.
fn bound_dags(fleet: &mut Fleet, id: &HostId) -> Vec<DagName> {
    match fleet.ask(None, FleetCommand::Get(FleetName::Host(id.clone()))) {
        Ok(FleetReply::Item(item)) => match *item {
            FleetItem::Host(host) => host.bound,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn change(mbit: u64) -> FleetCommand {
    let bandwidth = Some(Bandwidth::from_mbps(mbit));
    let patch = Box::new(DagPatch { bandwidth, ..DagPatch::default() });
    FleetCommand::UpdateDag { name: web(), patch, etag: None }
}

fn web() -> DagName {
    name("acme", "web")
}

/// Three hosts, and `web` on one of them.
fn served() -> (Fleet, HostId) {
    let mut fleet = Fleet::new(3);
    fleet.acme(FleetCommand::CreateDag(new("acme", "web", 1_000))).expect("there is room");
    settle(&mut fleet);
    let at = at(&mut fleet);
    (fleet, at)
}

fn at(fleet: &mut Fleet) -> HostId {
    fleet.dag("web").card.expect("it has a place").host
}

const MACHINE: DagAttachments = DagAttachments { machines: 1, rules: 0 };

#[test]
fn a_drained_host_keeps_what_machines_are_bound_to_until_they_leave() {
    let (mut fleet, from) = served();
    fleet.bind(&from, &web(), 1);
    fleet.beat();
    fleet.operator(drain(&from));
    assert_eq!(fleet.bound, [(web(), BoundCause::Attached(MACHINE))], "operators are told");
    settle(&mut fleet);
    assert_eq!((at(&mut fleet), bound_dags(&mut fleet, &from)), (from.clone(), vec![web()]));
    assert_eq!(fleet.moved.len(), 0);
    fleet.bind(&from, &web(), 0);
    settle(&mut fleet);
    assert_ne!(at(&mut fleet), from, "nothing leads to it any more");
    assert_eq!(fleet.held(), 1, "and one host serves it");
}

#[test]
fn a_drained_rack_and_a_rebalance_count_them_as_bound() {
    let (mut fleet, from) = served();
    for number in 0..3 {
        let new = new("acme", &format!("d{number}"), 20_000);
        fleet.acme(FleetCommand::CreateDag(new)).expect("there is room");
    }
    settle(&mut fleet);
    let all: Vec<String> = (0..3).map(|of| format!("d{of}")).chain(["web".to_owned()]).collect();
    for dag in &all {
        assert_eq!(fleet.dag(dag).card.expect("placed").host, from, "packed");
        fleet.bind(&from, &name("acme", dag), 1);
    }
    fleet.beat();
    let (zone_of, moves_max, tolerance_percent) = (None, 4, 1);
    fleet.operator(FleetCommand::Rebalance { zone: zone_of, moves_max, tolerance_percent });
    settle(&mut fleet);
    let Ok(FleetReply::Rebalance(of)) = fleet.ask(None, FleetCommand::GetRebalance) else {
        panic!("it was begun");
    };
    assert_eq!((of.moved, of.stays.get(&StayReason::Bound)), (0, Some(&4)));
    assert_eq!(of.bound.len(), 4);
    let number = (0..3).find(|number| host(&format!("h{number}")) == from).expect("a host");
    let area = DrainArea::Rack(zone(number % 2), rack(number));
    let Ok(FleetReply::Drain(of)) = fleet.ask(None, FleetCommand::Drain { area, moves_max }) else {
        panic!("the rack is there");
    };
    assert_eq!((of.left, of.moving, of.bound_count), (0, 0, 4));
    settle(&mut fleet);
    assert_eq!((fleet.moved.len(), fleet.held()), (0, 4));
}

/// A change that does not fit is refused, as it is for a DAG that may be on one host only.
#[test]
fn a_change_moves_no_machine() {
    let (mut fleet, from) = served();
    let bandwidth_max = Some(Bandwidth::from_gbps(500));
    let quota = Some(QuotaPatch { bandwidth_max, ..QuotaPatch::default() });
    let patch = TenantPatch { quota, ..TenantPatch::default() };
    let (id, project, etag) = (tenant("acme"), ProjectChange::Keep, None);
    fleet.operator(FleetCommand::UpdateTenant { tenant: id, patch, project, etag });
    fleet.acme(FleetCommand::CreateDag(new("acme", "big", 50_000))).expect("there is room");
    assert_eq!(fleet.dag("big").card.expect("placed").host, from, "they share a card");
    fleet.bind(&from, &web(), 1);
    fleet.beat();
    fleet.acme(change(60_000)).expect_err("its card has not so much, and it stays there");
    fleet.bind(&from, &web(), 0);
    fleet.beat();
    fleet.acme(change(60_000)).expect("another card has");
}

/// A machine is bound after the fleet has decided: the host refuses the removal, and its place is the old one again.
#[test]
fn a_machine_that_comes_between_decision_and_removal_is_not_cut_off() {
    let (mut fleet, from) = served();
    let before = fleet.dag("web");
    fleet.bind(&from, &web(), 1);
    // The fleet has not heard of it.
    fleet.serves = false;
    fleet.handle_without_beats(drain(&from));
    assert_eq!(fleet.moved.len(), 1, "it decided to move the DAG");
    fleet.serves = true;
    fleet.serve_all();
    let after = fleet.dag("web");
    assert_eq!((after.card, after.serial, after.is_ready), (before.card, before.serial, true));
    assert_eq!(fleet.held(), 1, "the new place is given up");
    assert!(matches!(fleet.bound.last(), Some((name, _)) if *name == web()), "{:?}", fleet.bound);
    settle(&mut fleet);
    assert_eq!((at(&mut fleet), bound_dags(&mut fleet, &from)), (from, vec![web()]));
}

/// Machines on both: both serve it, and it is on one again as soon as one of them has none.
#[test]
fn a_dag_with_machines_on_two_hosts_is_served_by_both() {
    let (mut fleet, from) = served();
    fleet.bind(&from, &web(), 1);
    fleet.serves = false;
    fleet.handle_without_beats(drain(&from));
    let to = at(&mut fleet);
    fleet.bind(&to, &web(), 1);
    fleet.beat();
    fleet.serves = true;
    fleet.serve_all();
    settle(&mut fleet);
    assert_eq!((at(&mut fleet), fleet.held()), (to.clone(), 2));
    assert_eq!(
        (bound_dags(&mut fleet, &from), bound_dags(&mut fleet, &to)),
        (vec![web()], vec![web()])
    );
    // A rebalance does not wait for that.
    let (zone, moves_max, tolerance_percent) = (None, 1, 50);
    fleet.operator(FleetCommand::Rebalance { zone, moves_max, tolerance_percent });
    settle(&mut fleet);
    let Ok(FleetReply::Rebalance(of)) = fleet.ask(None, FleetCommand::GetRebalance) else {
        panic!("it was begun");
    };
    assert!(of.outcome.is_some(), "{of:?}");
    fleet.bind(&to, &web(), 0);
    settle(&mut fleet);
    assert_eq!((at(&mut fleet), fleet.held()), (from, 1));
}

/// A lost host's DAGs move by what it said last. What has got a machine since goes back when the host is there again.
#[test]
fn a_host_that_comes_back_keeps_its_machines() {
    let (mut fleet, from) = served();
    fleet.acme(FleetCommand::CreateDag(new("acme", "used", 1_000))).expect("there is room");
    fleet.bind(&from, &name("acme", "used"), 1);
    settle(&mut fleet);
    let away = fleet.agents.remove(&from).expect("a host");
    for _ in 0..30 {
        fleet.pass(Duration::from_secs(1));
    }
    assert_ne!(at(&mut fleet), from, "nothing led to it");
    assert_eq!(fleet.dag("used").card.expect("placed").host, from, "its machine is there");
    fleet.bind(&from, &web(), 1);
    fleet.agents.insert(from.clone(), away);
    settle(&mut fleet);
    assert_eq!((at(&mut fleet), fleet.held()), (from, 2));
}

/// A host of an earlier version does not say what is bound, and would not look before it removes something.
#[test]
fn nothing_leaves_a_host_that_does_not_say_what_is_bound() {
    let (mut fleet, from) = served();
    // Its daemon goes back to the version before.
    fleet.attached.remove(&from);
    let agent = snic_fleet::HostAgent::new(
        fleet.agents[&from].epoch(),
        [(crate::support::card_id(0), [(web(), fleet.dag("web").serial.expect("placed"))].into())]
            .into(),
        Default::default(),
    );
    fleet.agents.insert(from.clone(), agent);
    settle(&mut fleet);
    fleet.operator(drain(&from));
    settle(&mut fleet);
    assert_eq!((at(&mut fleet), bound_dags(&mut fleet, &from)), (from.clone(), vec![web()]));
    assert_eq!(fleet.bound.last(), Some(&(web(), BoundCause::Unknown)));
    assert!(BoundCause::Unknown.to_string().contains("upgrade it"));
    fleet.attached.insert(from.clone(), Default::default());
    settle(&mut fleet);
    assert_ne!(at(&mut fleet), from, "it says that there is none");
}

/// A new leader knows of no machine before it has asked.
#[test]
fn a_new_leader_asks_before_it_moves_anything() {
    let (mut fleet, from) = served();
    fleet.bind(&from, &web(), 1);
    settle(&mut fleet);
    fleet.operator(drain(&from));
    fleet.elect_again();
    settle(&mut fleet);
    assert_eq!((at(&mut fleet), fleet.moved.len()), (from.clone(), 0));
    assert_eq!(bound_dags(&mut fleet, &from), [web()]);
}
