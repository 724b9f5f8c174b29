//! Reservations of one leader: what they keep, from whom, who takes them up, and how they end.

use std::time::Duration;

use crate::support::leading::{Fleet, new};
use crate::support::{host, name, tenant};
use snic_domain::{Bandwidth, TenantId, VmId};
use snic_fleet::placement::{CardConstraints, CardPolicy, Constraint};
use snic_fleet::protocol::{
    Denied, FleetCommand, FleetEvent, FleetItem, FleetName, FleetReply, FleetReservation,
    FoundHosts, MachineNeeds, RequestId,
};

fn vm() -> VmId {
    VmId::new("123e4567-e89b-12d3-a456-426614174000").expect("a UUID")
}

fn reserve(id: u64, functions: u32, gbps: u64) -> FleetCommand {
    FleetCommand::Reserve {
        reservation: RequestId(id),
        constraints: CardConstraints { functions, ..CardConstraints::default() },
        policy: CardPolicy::Pack,
        seconds: 30,
        bandwidth: Bandwidth::from_gbps(gbps),
        vm: None,
        uuid: String::new(),
    }
}

fn find(fleet: &mut Fleet, of: &str, functions: u32, needs: MachineNeeds) -> FoundHosts {
    let constraints = CardConstraints { functions, ..CardConstraints::default() };
    let (policy, most, needs) = (CardPolicy::Pack, 16, Box::new(needs));
    let command = FleetCommand::FindHosts { constraints, policy, needs, most };
    match fleet.ask(Some(&tenant(of)), command) {
        Ok(FleetReply::Hosts(found)) => *found,
        other => panic!("{other:?}"),
    }
}

fn found(fleet: &mut Fleet, of: &str, functions: u32) -> usize {
    find(fleet, of, functions, MachineNeeds::default()).hosts.len()
}

fn get(fleet: &mut Fleet, id: u64) -> Option<FleetReservation> {
    let name = FleetName::Reservation(tenant("acme"), RequestId(id));
    match fleet.acme(FleetCommand::Get(name)) {
        Ok(FleetReply::Item(item)) => match *item {
            FleetItem::Reservation(of) => Some(of),
            other => panic!("{other:?}"),
        },
        Err(Denied::NotFound(_)) => None,
        other => panic!("{other:?}"),
    }
}

/// One host with a card of 64 functions, whose program keeps what is reserved.
fn keeping() -> Fleet {
    let mut fleet = Fleet::new(1);
    fleet.keeps = true;
    fleet.beat();
    fleet
}

fn beta() -> TenantId {
    tenant("beta")
}

#[test]
fn a_host_keeps_what_is_reserved_from_others_and_its_owner_takes_it_up() {
    let mut fleet = keeping();
    fleet.acme(reserve(7, 60, 0)).expect("there are 64");
    assert!(get(&mut fleet, 7).expect("it is there").is_enforced);
    assert_eq!((found(&mut fleet, "beta", 4), found(&mut fleet, "beta", 5)), (1, 0));
    let refused = find(&mut fleet, "beta", 5, MachineNeeds::default()).refused;
    assert_eq!(refused, [(Constraint::FunctionsReserved, 1)].into());
    assert!(!fleet.bind_functions(&host("h0"), &beta(), 5));
    assert!(fleet.bind_functions(&host("h0"), &tenant("acme"), 40));
    fleet.pass(Duration::from_secs(1));
    let of = get(&mut fleet, 7).expect("20 are left").of;
    assert_eq!((of.functions_used, of.functions_left()), (40, 20));
    assert!(fleet.bind_functions(&host("h0"), &tenant("acme"), 20));
    fleet.pass(Duration::from_secs(1));
    assert_eq!(get(&mut fleet, 7), None, "nothing is left of it");
    fleet.pass(Duration::from_secs(1));
    assert!(fleet.kept[&host("h0")].kept.is_empty(), "its host has forgotten it");
    assert_eq!((found(&mut fleet, "beta", 4), found(&mut fleet, "beta", 5)), (1, 0));
    let refused = find(&mut fleet, "beta", 5, MachineNeeds::default()).refused;
    assert_eq!(refused, [(Constraint::Functions, 1)].into(), "machines have them");
}

#[test]
fn a_reservation_ends_at_its_time_unless_it_is_renewed_also_behind_an_election() {
    let mut fleet = keeping();
    fleet.acme(reserve(7, 64, 0)).expect("there are 64");
    let pass = |fleet: &mut Fleet, seconds: u64| {
        (0..seconds).for_each(|_| fleet.pass(Duration::from_secs(1)));
    };
    pass(&mut fleet, 20);
    fleet.acme(FleetCommand::Renew(RequestId(7))).expect("it is there");
    pass(&mut fleet, 20);
    fleet.elect_again();
    fleet.beat();
    fleet.beat();
    assert!(get(&mut fleet, 7).expect("10 s are left").is_enforced);
    assert!(!fleet.bind_functions(&host("h0"), &beta(), 1));
    pass(&mut fleet, 11);
    assert_eq!(get(&mut fleet, 7), None, "an election is no renewal");
    assert!(fleet.bind_functions(&host("h0"), &beta(), 64));
}

/// Nobody leads: the host ends it by itself, and the next leader learns that from it, though its own clock is behind.
#[test]
fn what_a_host_has_ended_has_ended() {
    let mut fleet = keeping();
    fleet.acme(reserve(7, 64, 0)).expect("there are 64");
    fleet.now += Duration::from_secs(30);
    assert!(fleet.bind_functions(&host("h0"), &beta(), 64));
    fleet.now -= Duration::from_secs(10);
    let over = fleet.kept[&host("h0")].report(fleet.now + Duration::from_secs(10));
    fleet.keeps = false;
    fleet.agent(&host("h0"), snic_fleet::AgentEvent::Functions(over));
    assert_eq!(get(&mut fleet, 7), None);
}

#[test]
fn bandwidth_is_kept_for_the_tenants_dags_and_taken_by_them() {
    let mut fleet = keeping();
    fleet.acme(reserve(7, 0, 80)).expect("there is room");
    let theirs = FleetCommand::CreateDag(new("beta", "b", 30_000));
    let refused = fleet.ask(Some(&beta()), theirs).expect_err("80 of 100 are reserved");
    assert!(refused.to_string().contains("1 with bandwidth reserved for others"), "{refused}");
    assert!(!refused.to_string().contains("acme"), "{refused}");
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 50_000))).expect("it is acme's");
    let of = get(&mut fleet, 7).expect("30 are left").of;
    assert_eq!(of.bandwidth_left(), Bandwidth::from_gbps(30));
    fleet.beat();
    let kept = fleet.kept[&host("h0")].kept.values().next().expect("it is kept").0.bandwidth;
    assert_eq!(kept, Bandwidth::from_gbps(30), "its host knows");
    fleet.acme(FleetCommand::CreateDag(new("acme", "b", 30_000))).expect("it is acme's");
    assert_eq!(get(&mut fleet, 7), None, "nothing is left of it");
}

#[test]
fn what_is_reserved_is_not_reserved_again_and_given_back_at_once() {
    let mut fleet = keeping();
    fleet.acme(reserve(7, 40, 0)).expect("there are 64");
    let twice = fleet.acme(reserve(8, 40, 0)).expect_err("not for its owner either");
    assert!(twice.to_string().contains("1 with functions reserved for others"), "{twice}");
    let name = FleetName::Reservation(tenant("acme"), RequestId(7));
    let theirs = fleet.ask(Some(&beta()), FleetCommand::Renew(RequestId(7)));
    assert!(matches!(theirs, Err(Denied::NotFound(_))), "{theirs:?}");
    fleet.acme(FleetCommand::Delete { name, etag: None, force: false }).expect("it is there");
    assert!(fleet.bind_functions(&host("h0"), &beta(), 64));
    let nothing = fleet.acme(reserve(9, 0, 0));
    assert!(matches!(nothing, Err(Denied::Invalid(_))), "{nothing:?}");
    let large = fleet.acme(reserve(9, 1, 10_000));
    assert!(matches!(large, Err(Denied::NoPlace(_) | Denied::TenantQuota(..))), "{large:?}");
}

/// The fleet had not heard of the machines yet, and their host not of the reservation.
#[test]
fn a_reservation_of_functions_that_machines_have_is_not_called_enforced() {
    let mut fleet = keeping();
    assert!(fleet.bind_functions(&host("h0"), &beta(), 60));
    fleet.acme(reserve(7, 8, 0)).expect("the fleet has not heard of it");
    fleet.pass(Duration::from_secs(1));
    assert!(!get(&mut fleet, 7).expect("it is there").is_enforced, "4 are free");
    assert!(!fleet.bind_functions(&host("h0"), &beta(), 1), "and kept for acme");
}

/// Its order was lost: a beat without it has it sent again.
#[test]
fn a_host_that_does_not_know_a_reservation_is_told_again() {
    let mut fleet = keeping();
    let linked = std::mem::take(&mut fleet.agents);
    fleet.acme(reserve(7, 4, 0)).expect("it is reachable yet");
    fleet.agents = linked;
    assert!(!get(&mut fleet, 7).expect("it is there").is_enforced);
    (0..5).for_each(|_| fleet.pass(Duration::from_millis(500)));
    assert!(get(&mut fleet, 7).expect("it is there").is_enforced);
    let orders = fleet.orders;
    (0..5).for_each(|_| fleet.pass(Duration::from_millis(500)));
    assert_eq!(fleet.orders, orders, "once it knows, it is told no more");
}

/// A host of an earlier version gets no order that it could not read, and its reservations are not called enforced.
#[test]
fn a_host_that_keeps_nothing_is_sent_nothing() {
    let mut fleet = Fleet::new(1);
    let orders = fleet.orders;
    fleet.acme(reserve(7, 4, 0)).expect("there are 64");
    fleet.pass(Duration::from_secs(1));
    assert_eq!(fleet.orders, orders);
    assert!(!get(&mut fleet, 7).expect("it is there").is_enforced);
}

#[test]
fn a_machine_is_looked_for_where_its_dags_are() {
    let mut fleet = Fleet::new(3);
    fleet.keeps = true;
    fleet.beat();
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 1_000))).expect("there is room");
    let at = fleet.dag("a").card.expect("it has a place");
    let with = || MachineNeeds { dags: vec![name("acme", "a")], ..MachineNeeds::default() };
    let only = find(&mut fleet, "acme", 1, with());
    assert_eq!(only.hosts.iter().map(|of| &of.card).collect::<Vec<_>>(), [&at]);
    assert_eq!(only.refused, [(Constraint::HostAffinity, 2)].into());
    assert!(fleet.bind_functions(&at.host, &beta(), 64));
    fleet.pass(Duration::from_secs(1));
    let none = find(&mut fleet, "acme", 1, with());
    assert!(none.hosts.is_empty() && none.refused.contains_key(&Constraint::Functions));
    let theirs = MachineNeeds { dags: vec![name("acme", "a")], ..MachineNeeds::default() };
    let (constraints, policy) = (CardConstraints::default(), CardPolicy::Pack);
    let command = FleetCommand::FindHosts { constraints, policy, needs: theirs.into(), most: 1 };
    let denied = fleet.ask(Some(&beta()), command);
    assert!(matches!(denied, Err(Denied::NotFound(_))), "{denied:?}");
}

#[test]
fn a_machine_is_looked_for_with_what_is_reserved_for_it() {
    let mut fleet = keeping();
    let mut mine = reserve(7, 64, 0);
    if let FleetCommand::Reserve { vm: of, .. } = &mut mine {
        *of = Some(vm());
    }
    fleet.acme(mine).expect("there are 64");
    let with = |vm| MachineNeeds { vm, ..MachineNeeds::default() };
    assert_eq!(find(&mut fleet, "acme", 1, with(Some(vm()))).hosts.len(), 1);
    assert_eq!(find(&mut fleet, "acme", 1, with(None)).hosts.len(), 0);
    fleet.handle(FleetEvent::Tick);
}
