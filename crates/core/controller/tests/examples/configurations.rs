//! Configurations of NTs: they reach the card with the rows of their DAG, once.

use snic_controller::ControlError;
use snic_domain::{DagSpec, DagState, NtConfiguration};
use snic_tables::{CardCommand, DagRow};

use crate::support::things::{card_id, create, delete, drain, spec, update};
use crate::support::{World, over_quota, precondition};

/// A chain whose first NT is told this.
fn told(chain: &str, gbps: u64, json: &str) -> DagSpec {
    let mut spec = spec(chain, gbps);
    spec.nodes[0].configuration = Some(NtConfiguration::new(json));
    spec
}

fn deploy(world: &mut World, name: &str, spec: DagSpec) {
    world.ask(create(name, spec)).expect("there is room");
    world.settle();
    assert_eq!(world.state(name), DagState::Ready);
}

/// What the card's row of a DAG names.
fn tag(world: &mut World, name: &str) -> u32 {
    let row = world.view(name).uid.row();
    world.card().tables.get::<DagRow>(row).expect("it is served").configuration
}

#[test]
fn another_configuration_is_one_commit_without_a_load() {
    let mut world = World::new();
    deploy(&mut world, "acme/web", told("nat firewall", 5, "{}"));
    let (loads, version) = (world.card().loads.len(), world.card().version);
    let (region, before) = (world.regions_of("acme/web"), tag(&mut world, "acme/web"));
    assert_ne!(before, 0);
    world.ask(update("acme/web", told("nat firewall", 5, r#"{"a":1}"#))).expect("it fits");
    assert!(matches!(world.answer_one(), Some(CardCommand::Program { .. })));
    world.settle();
    assert_eq!((world.card().loads.len(), world.card().version), (loads, version + 1));
    assert_eq!(world.regions_of("acme/web"), region);
    let view = world.view("acme/web");
    assert_eq!((view.generation, view.observed_generation), (2, 2));
    assert_ne!(tag(&mut world, "acme/web"), before);
    assert_eq!(world.card().configured.len(), 2);
    world.ask(update("acme/web", spec("nat firewall", 5))).expect("it fits");
    world.settle();
    assert_eq!(tag(&mut world, "acme/web"), 0, "it is told nothing any more");
    assert_eq!(world.card().configured.len(), 2);
}

#[test]
fn a_card_that_holds_a_configuration_is_not_told_again() {
    let mut world = World::new();
    deploy(&mut world, "acme/web", told("nat firewall", 5, "{}"));
    let (words, version) = (world.card().words_written, world.card().version);
    world.restart();
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!((world.card().words_written, world.card().version), (words, version));
    assert_eq!(world.card().configured.len(), 1);
    world.ask(update("acme/web", told("nat firewall", 9, "{}"))).expect("it fits");
    world.settle();
    assert_eq!(world.card().configured.len(), 1, "another bandwidth is no other configuration");
    world.card().power_cycle();
    world.lose_card();
    world.appear(&card_id());
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!(world.card().configured.len(), 2, "a card without power has forgotten it");
}

#[test]
fn a_dag_that_moves_takes_its_configuration_along() {
    let mut world = World::new();
    deploy(&mut world, "acme/web", told("nat firewall", 5, "{}"));
    let (region, before) = (world.regions_of("acme/web")[0], tag(&mut world, "acme/web"));
    world.ask(drain(region.0)).expect("there are others");
    world.settle();
    assert_ne!(world.regions_of("acme/web")[0], region);
    assert_eq!(tag(&mut world, "acme/web"), before);
    world.ask(delete("acme/web")).expect("it is there");
    world.settle();
    assert_eq!(world.card().dag_rows(), 0);
}

#[test]
fn a_card_whose_shell_cannot_configure_serves_only_dags_that_need_none() {
    let mut world = World::new();
    world.card().configures = false;
    world.lose_card();
    world.appear(&card_id());
    world.settle();
    let answer = world.ask(create("acme/web", told("nat", 5, "{}")));
    let (resource, why) = precondition(answer);
    assert_eq!(resource, "tenants/acme/dags/web");
    assert!(why.contains("cannot configure network tasks"), "{why}");
    world.deploy("acme/web", "nat", 5);
    let error = world.ask(update("acme/web", told("nat", 5, "{}"))).expect_err("it cannot");
    assert!(matches!(error, ControlError::Precondition { .. }), "{error}");
    assert_eq!(world.state("acme/web"), DagState::Ready, "what serves is as it was");
}

#[test]
fn a_tenant_has_a_limited_number_of_configured_nts() {
    let mut world = World::new();
    for number in 0..32 {
        world.ask(create(&format!("acme/d{number}"), told("nat", 1, "{}"))).expect("32 fit");
    }
    let (quota, limit, asked) = over_quota(world.ask(create("acme/more", told("nat", 1, "{}"))));
    assert_eq!(
        (&quota[..], &limit[..], &asked[..]),
        ("network tasks with a configuration", "32", "33")
    );
    world.ask(create("acme/more", spec("nat", 1))).expect("one without");
    world.ask(update("acme/d0", told("nat", 1, r#"{"a":1}"#))).expect("no more than before");
    world.ask(create("beta/web", told("nat", 1, "{}"))).expect("another tenant has its own");
}
