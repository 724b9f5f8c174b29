//! Histories that are kept: each tenant's own, whatever others do.

use std::time::Duration;

use snic_controller::{Command, Reply, Request};
use snic_domain::limits::TENANT_HISTORY_MAX;
use snic_domain::{Caller, OperationId};

use crate::elastic::{deployed, period};
use crate::support::things::{caller, create, delete, spec, tenant, tenant_id};
use crate::support::{World, operation_id, operator};

/// One operation of a tenant that has ended, with a request id.
fn ended(world: &mut World, tenant: &str, id: &str) -> OperationId {
    let name = format!("{tenant}/{id}");
    let command = create(&name, spec("nat", 1));
    let request = Request { caller: caller(tenant), request_id: Some(id.into()), command };
    let answer = world.request(request).expect("no crash was asked for");
    let created = operation_id(answer);
    world.ask_as(caller(tenant), delete(&name)).expect("it was created");
    created
}

fn repeat(world: &mut World, tenant: &str, id: &str) -> Option<OperationId> {
    let command = create(&format!("{tenant}/{id}"), spec("nat", 1));
    let request = Request { caller: caller(tenant), request_id: Some(id.into()), command };
    match world.request(request).expect("no crash was asked for") {
        Ok(Reply::Operation(view)) => Some(view.record.id),
        _ => None,
    }
}

#[test]
#[ignore = "ci: ten seconds"]
fn a_tenant_forgets_its_own_operations_and_request_ids_and_no_other_tenants() {
    let mut world = World::new();
    let quiet = ended(&mut world, "beta", "first");
    let first = ended(&mut world, "acme", "r0");
    for number in 1..=TENANT_HISTORY_MAX {
        world.settle();
        ended(&mut world, "acme", &format!("r{number}"));
    }
    world.settle();
    world.restart();
    world.settle();
    assert!(world.controller.operation(&operator(), &first).is_none(), "one too many");
    let own = world.controller.operations(&caller("acme")).count();
    assert_eq!(own, TENANT_HISTORY_MAX);
    assert_eq!(repeat(&mut world, "beta", "first"), Some(quiet), "it is answered as before");
    let largest = world
        .durable
        .iter()
        .filter(|(key, _)| key.starts_with("operations/") || key.starts_with("requests/"));
    let largest = largest.map(|(key, value)| key.len() + value.len()).max();
    assert!(largest < Some(1_000), "{largest:?}: `limits::TENANT_HISTORY_MAX` says what it takes");
}

#[test]
fn nothing_of_a_deleted_tenant_is_left_for_the_next_of_its_name() {
    let mut world = World::new();
    ended(&mut world, "acme", "web");
    world.settle();
    world.pass(Duration::from_secs(1));
    let delete = Command::DeleteTenant { id: tenant_id("acme"), force: true, etag: None };
    world.ask(delete).expect("nobody else uses what it owns");
    world.ask(Command::CreateTenant(tenant("acme"))).expect("the name is free");
    assert_eq!(world.controller.operations(&caller("acme")).count(), 0);
    let again = repeat(&mut world, "acme", "web").expect("it is another tenant's request");
    let record = world.operation(&again).record;
    assert_eq!(record.created, world.now, "and is carried out");
    assert!(!world.durable.keys().any(|key| key.contains("tenant:acme") && !key.ends_with("web")));
}

#[test]
fn decisions_about_a_deleted_tenant_are_visible_to_operators_only() {
    let mut world = deployed(&["acme/web"]);
    period(&mut world, &[("acme/web", 40)]);
    let told = |world: &World, to: &Caller| {
        world.controller.log_before(to, None).filter(|entry| entry.dag.is_some()).count()
    };
    assert!(told(&world, &caller("acme")) > 0, "it was scaled out");
    let before = told(&world, &operator());
    let delete = Command::DeleteTenant { id: tenant_id("acme"), force: true, etag: None };
    world.ask(delete).expect("nobody else uses what it owns");
    world.ask(Command::CreateTenant(tenant("acme"))).expect("the name is free");
    assert_eq!(told(&world, &caller("acme")), 0);
    assert!(told(&world, &operator()) >= before);
}
