//! Functions and bandwidth that the fleet keeps for tenants: nobody else gets them before they end.

use std::time::Duration;

use snic_controller::{BindingView, Command, ControlError, FleetChange, Reply};
use snic_domain::{Bandwidth, BindingSpec, BindingState, BindingTarget, KeptForTenant, VmId};

use crate::support::things::{card_id, create, dag, spec, tenant_id};
use crate::support::{Answer, World};

const SECOND: Duration = Duration::from_secs(1);

fn vm(number: u32) -> VmId {
    VmId::new(&format!("{number:08x}-0000-4000-8000-000000000000")).expect("a UUID")
}

fn bind(tenant: &str, number: u32, functions: u16) -> Command {
    Command::BindVm(BindingSpec {
        vm: vm(number),
        tenant: tenant_id(tenant),
        chains: BindingTarget::Dags(vec![dag(&format!("{tenant}/web"))]),
        functions,
        ready_within: 10 * SECOND,
        lease: None,
        notes: Default::default(),
        limits: Default::default(),
    })
}

fn unbind(number: u32) -> Command {
    Command::UnbindVm { vm: vm(number), tenant: None }
}

/// Reservation 7 of all eight functions for acme, for 60 s.
fn kept() -> KeptForTenant {
    KeptForTenant {
        number: 7,
        revision: 1,
        tenant: tenant_id("acme"),
        vm: None,
        card: card_id(),
        functions: 8,
        used: 0,
        bandwidth: Bandwidth::ZERO,
        lasts: 60 * SECOND,
    }
}

fn keep(all: Vec<KeptForTenant>) -> Command {
    Command::Fleet(FleetChange::Keep(all))
}

/// A card with eight functions, and DAGs of acme and beta on it.
fn deployed() -> World {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    world.deploy("beta/web", "lb", 1);
    world.join_fleet(true);
    world
}

fn is_reserved(answer: Answer) -> bool {
    match answer {
        Err(ControlError::Exhausted { hint, .. }) => {
            assert!(!hint.contains("acme"), "{hint}");
            hint.contains("reserved for other machines")
        }
        _ => false,
    }
}

fn functions_of(answer: Answer) -> usize {
    match answer {
        Ok(Reply::Binding(view)) => {
            let BindingView { record, .. } = *view;
            record.functions.len()
        }
        other => panic!("not a binding: {other:?}"),
    }
}

#[test]
fn nobody_else_is_bound_to_functions_that_are_kept() {
    let mut world = deployed();
    world.ask(keep(vec![kept()])).expect("few");
    assert!(is_reserved(world.ask(bind("beta", 1, 1))));
    assert_eq!(functions_of(world.ask(bind("acme", 2, 8))), 8, "they are acme's");
    let used = world.controller.function_use();
    assert_eq!((used.bound[&card_id()], used.kept[&7].used), (8, 8));
    world.ask(unbind(2)).expect("it is bound");
    assert_eq!(functions_of(world.ask(bind("beta", 1, 8))), 8, "they were used, and are free");
}

#[test]
fn they_are_kept_for_one_machine_where_it_is_named() {
    let mut world = deployed();
    world.ask(keep(vec![KeptForTenant { vm: Some(vm(2)), ..kept() }])).expect("few");
    assert!(is_reserved(world.ask(bind("acme", 1, 1))), "another machine of the tenant");
    assert_eq!(functions_of(world.ask(bind("acme", 2, 1))), 1);
    assert!(is_reserved(world.ask(bind("acme", 1, 1))), "seven are kept yet");
}

#[test]
fn a_reservation_ends_at_its_time_though_nobody_says_so() {
    let mut world = deployed();
    world.ask(keep(vec![kept()])).expect("few");
    world.now = world.now + 59 * SECOND;
    assert!(is_reserved(world.ask(bind("beta", 1, 1))));
    world.now = world.now + SECOND;
    assert_eq!(functions_of(world.ask(bind("beta", 1, 1))), 1);
    assert!(world.controller.function_use().kept[&7].is_over);
    world.ask(keep(vec![])).expect("few");
    assert!(world.controller.function_use().kept.is_empty());
}

/// Killed with the reservation, and with a bind that has used half of it.
#[test]
fn it_survives_a_crash_with_what_was_used_of_it() {
    let mut world = deployed();
    world.ask(keep(vec![kept()])).expect("few");
    world.restart();
    world.run();
    assert!(is_reserved(world.ask(bind("beta", 1, 1))));
    assert_eq!(functions_of(world.ask(bind("acme", 2, 1))), 1);
    world.run();
    world.restart();
    world.run();
    let view = world.controller.binding_view(&vm(2)).expect("it is stored");
    assert_eq!(view.record.state, BindingState::Bound);
    assert_eq!(world.controller.function_use().kept[&7].used, 1);
    assert!(is_reserved(world.ask(bind("beta", 1, 1))), "seven are kept yet");
    world.now = world.now + 60 * SECOND;
    world.restart();
    assert_eq!(functions_of(world.ask(bind("beta", 1, 1))), 1, "it ended while the host was down");
}

#[test]
fn a_new_dag_of_the_host_takes_no_bandwidth_that_is_kept_for_others() {
    let mut world = deployed();
    let bandwidth = Bandwidth::from_gbps(1_000);
    world.ask(keep(vec![KeptForTenant { bandwidth, functions: 0, ..kept() }])).expect("few");
    let refused = world.ask(create("beta/more", spec("nat", 2)));
    let is_told = matches!(&refused, Err(ControlError::Exhausted { hint, .. })
        if hint.contains("reserved for others"));
    assert!(is_told, "{refused:?}");
    world.ask(create("acme/more", spec("nat", 2))).expect("it is acme's");
}
