//! Configurations of NTs: they reach the card with the rows of their DAG, once.

use snic_controller::{
    AdmissionPolicy, CardReport, Command, ControlError, ControllerSettings, Event, IdleTaskPolicy,
    LogKind, Reply,
};
use snic_domain::{
    Bandwidth, Bitstream, CardId, ConditionStatus, ConditionType, DagSpec, DagState, IdleTask,
    NtConfiguration, Slot,
};
use snic_tables::{CardCommand, ConfigurationWay, DagRow};

use crate::elastic::{self, kinds};
use crate::support::things::{bitstream, card_id, create, dag, delete, drain, nt, spec, update};
use crate::support::{World, operation, operation_id, over_quota, precondition, settings};

/// A chain whose first NT is told this.
pub(super) fn told(chain: &str, gbps: u64, json: &str) -> DagSpec {
    let mut spec = spec(chain, gbps);
    spec.nodes[0].configuration = Some(NtConfiguration::new(json));
    spec
}

fn deploy(world: &mut World, name: &str, spec: DagSpec) {
    world.ask(create(name, spec)).expect("there is room");
    world.settle();
    assert_eq!(world.state(name), DagState::Ready);
}

/// Tag of the configuration that the card's row of a DAG names.
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
    world.card().configures = None;
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

fn idle(tasks: &[IdleTask]) -> Vec<String> {
    tasks.iter().map(|task| format!("{}: {}", task.node, task.nt)).collect()
}

/// On a card that says so of itself, a task without a configuration passes packets on unchanged, unless its image has a
/// module for it. That is said before the DAG is there, with its creation, and of the DAG.
#[test]
fn a_task_that_passes_packets_on_unchanged_is_named() {
    let mut world = World::new();
    world.card().passes_through = true;
    world.lose_card();
    world.appear(&card_id());
    world.settle();
    let both = told("nat firewall", 5, "{}");
    let validate =
        Command::CreateDag { name: dag("acme/web"), spec: both.clone(), validate_only: true };
    let Ok(Reply::WouldBe(preview)) = world.ask(validate) else { panic!("it is a preview") };
    assert_eq!(idle(&preview.idle_tasks), ["firewall: firewall"]);
    let operation = operation(world.ask(create("acme/web", both)));
    assert_eq!(idle(&operation.idle_tasks), ["firewall: firewall"]);
    world.settle();
    assert_eq!(idle(&world.view("acme/web").idle_tasks), ["firewall: firewall"]);
    let mut configured = told("nat firewall", 5, "{}");
    configured.nodes[1].configuration = Some(NtConfiguration::new("{}"));
    world.ask(update("acme/web", configured)).expect("it fits");
    world.settle();
    assert_eq!(idle(&world.view("acme/web").idle_tasks), [""; 0]);

    // A module works without a configuration, for its own slot.
    world.ask(Command::CreateNtType(nt("beta.filter", 10))).expect("it is new");
    let made = bitstream("beta.image", &["nat", "beta.filter"]);
    let with_module = Bitstream { modules: vec![Slot(1)], ..made };
    world.ask(Command::CreateBitstream(with_module)).expect("it is new");
    world.deploy("beta/own", "nat beta.filter", 1);
    assert_eq!(idle(&world.view("beta/own").idle_tasks), ["nat: nat"]);
}

/// A card of which tasks without a configuration pass packets on unchanged.
fn passing() -> World {
    let mut world = World::new();
    world.card().passes_through = true;
    world.lose_card();
    world.appear(&card_id());
    world.settle();
    world
}

#[test]
fn a_dag_or_the_operator_refuses_tasks_that_pass_packets_on_unchanged() {
    let mut world = passing();
    let half = told("nat firewall", 5, "{}");
    let mut whole = half.clone();
    whole.nodes[1].configuration = Some(NtConfiguration::new("{}"));
    let strict = DagSpec { refuse_idle_tasks: true, ..half.clone() };
    let create_only = |spec: &DagSpec, validate_only| Command::CreateDag {
        name: dag("acme/web"),
        spec: spec.clone(),
        validate_only,
    };
    for validate_only in [true, false] {
        let (resource, text) = precondition(world.ask(create_only(&strict, validate_only)));
        assert_eq!(resource, "tenants/acme/dags/web");
        assert!(text.contains("firewall (firewall)") && !text.contains("nat (nat)"), "{text}");
        assert!(text.contains("refuse_idle_tasks"), "{text}");
    }
    let works = DagSpec { refuse_idle_tasks: true, ..whole.clone() };
    world.ask(create("acme/web", works)).expect("all of it works");
    world.settle();
    precondition(world.ask(update("acme/web", strict)));
    assert_eq!(world.state("acme/web"), DagState::Ready, "what serves is as it was");
    world.ask(create("acme/half", half.clone())).expect("it is warned of");
    world.settle();

    let admission =
        AdmissionPolicy { idle_tasks: IdleTaskPolicy::Refuse, ..AdmissionPolicy::default() };
    let policies = ControllerSettings { admission, ..settings() };
    elastic::settings(&mut world, policies);
    assert_eq!(world.state("acme/half"), DagState::Ready, "it was there before");
    let mut changed = half.clone();
    changed.bandwidth = Bandwidth::from_gbps(6);
    for command in [
        update("acme/half", changed),
        create("acme/more", half.clone()),
        Command::CreateDag { name: dag("acme/more"), spec: half, validate_only: true },
    ] {
        let (_, text) = precondition(world.ask(command));
        assert!(text.contains("the operator's policy tasks.idle"), "{text}");
    }
    world.ask(create("acme/more", whole)).expect("all of its tasks are configured");
}

/// The logic of a card is not known to the controller, and a model of a card has no bytes.
#[test]
fn cards_that_do_not_say_so_have_no_idle_tasks() {
    let mut world = World::new();
    deploy(&mut world, "acme/web", spec("nat firewall", 5));
    assert_eq!(idle(&world.view("acme/web").idle_tasks), [""; 0]);
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

/// The card begins again, with NTs that take configurations by their windows.
pub(super) fn with_windows(world: &mut World) {
    world.card().configures = Some(ConfigurationWay::Windows);
    world.lose_card();
    world.appear(&card_id());
    world.settle();
}

/// Status of the condition about configurations, where one is told, and of the others that depend on it.
fn configured(world: &World) -> [Option<ConditionStatus>; 3] {
    let all = world.view("acme/web").conditions;
    let status = |kind| all.iter().find(|c| c.kind == kind).map(|c| c.status);
    [ConditionType::Configured, ConditionType::PromiseKept, ConditionType::Ready].map(status)
}

const LACKS: [Option<ConditionStatus>; 3] = [Some(ConditionStatus::False); 3];
const HAS: [Option<ConditionStatus>; 3] =
    [None, Some(ConditionStatus::True), Some(ConditionStatus::True)];

/// Lets so many seconds pass, in which the card answers.
pub(super) fn watch(world: &mut World, seconds: u32) {
    for _ in 0..seconds {
        world.run();
        world.listen(1);
    }
    world.run();
}

/// Its packets are dropped, so it is not ready and its promise is broken, until a configuration is taken.
#[test]
fn a_dag_whose_task_takes_no_configuration_is_not_ready_and_its_creation_fails() {
    let mut world = World::new();
    with_windows(&mut world);
    world.card().refuse = (0..4).map(|region| (region, 0)).collect();
    let created = operation_id(world.ask(create("acme/web", told("nat firewall", 5, "{}"))));
    world.ask(create("acme/other", told("firewall", 5, "{}"))).expect("there is room");
    watch(&mut world, 5);
    assert_eq!(world.state("acme/other"), DagState::Ready);
    let Some(Err(ControlError::Precondition { description, .. })) = world.ended(&created) else {
        panic!("{:?}", world.ended(&created));
    };
    let region = world.regions_of("acme/web")[0].0;
    assert!(description.contains(&format!("region {region} slot 0")), "{description}");
    assert_eq!((world.state("acme/web"), configured(&world)), (DagState::Degraded, LACKS));
    assert!(kinds(&world).contains(&LogKind::PromiseBroken));
    world.restart();
    watch(&mut world, 5);
    assert_eq!((world.state("acme/web"), configured(&world)), (DagState::Degraded, LACKS));
    world.card().refuse.clear();
    world.ask(update("acme/web", told("nat firewall", 5, r#"{"a":1}"#))).expect("it fits");
    world.settle();
    assert_eq!((world.state("acme/web"), configured(&world)), (DagState::Ready, HAS));
    assert_eq!(kinds(&world).last(), Some(&LogKind::PromiseKept));
}

/// An NT that is asked again and takes it serves without another request, also after a restart; one that never does is asked
/// more and more seldom.
#[test]
fn a_task_that_refused_its_configuration_is_asked_again() {
    for restarts in [false, true] {
        let mut world = World::new();
        with_windows(&mut world);
        world.card().refuse = (0..4).map(|region| (region, 0)).collect();
        world.ask(create("acme/web", told("nat", 5, "{}"))).expect("there is room");
        watch(&mut world, 100);
        assert_eq!((world.state("acme/web"), configured(&world)), (DagState::Degraded, LACKS));
        assert_eq!(world.card().windows_written, 4, "at once, and after 10, 30 and 70 s");
        let version = world.card().version;
        if restarts {
            world.restart();
            watch(&mut world, 5);
            assert_eq!(world.state("acme/web"), DagState::Degraded);
        }
        world.card().refuse.clear();
        world.settle();
        assert_eq!((world.state("acme/web"), configured(&world)), (DagState::Ready, HAS));
        assert_eq!(world.card().windows_written, 5 + usize::from(restarts));
        assert_eq!(world.card().version, version, "rows are as they were");
        assert_eq!(kinds(&world).last(), Some(&LogKind::PromiseKept));
    }
}

/// The daemon dies after a task refused its configuration, and before it heard so. Nobody but the daemon knows, so what it was about
/// to ask is stored before it asks.
#[test]
fn a_refusal_that_the_daemon_did_not_live_to_hear_is_not_taken_for_consent() {
    let mut world = World::new();
    with_windows(&mut world);
    world.card().refuse = (0..4).map(|region| (region, 0)).collect();
    world.ask(create("acme/web", told("nat", 5, "{}"))).expect("there is room");
    let tells = |command: &CardCommand| matches!(command, CardCommand::Program { windows, .. } if !windows.writes.is_empty());
    while !world.asked.front().is_some_and(|(_, command)| tells(command)) {
        world.search();
        if !world.asked.front().is_some_and(|(_, command)| tells(command)) {
            world.answer_one().expect("its rows come");
        }
    }
    let (_, command) = world.asked.pop_front().expect("it was just seen");
    drop(world.card().answer(command));
    world.restart();
    world.run();
    assert_eq!((world.state("acme/web"), configured(&world)), (DagState::Degraded, LACKS));
    assert_eq!(world.card().windows_written, 2, "it is asked again at once");
    world.card().refuse.clear();
    world.settle();
    assert_eq!((world.state("acme/web"), configured(&world)), (DagState::Ready, HAS));
}

#[test]
fn a_dag_that_leaves_a_task_without_its_configuration_is_ready_again() {
    let mut world = World::new();
    with_windows(&mut world);
    deploy(&mut world, "acme/web", told("nat", 5, "{}"));
    let region = world.regions_of("acme/web")[0].0;
    world.card().refuse = [(region, 0)].into();
    let update = update("acme/web", told("nat", 5, r#"{"a":1}"#));
    let updated = operation_id(world.ask(update));
    watch(&mut world, 5);
    assert!(matches!(world.ended(&updated), Some(Err(ControlError::Precondition { .. }))));
    assert_eq!((world.state("acme/web"), configured(&world)), (DagState::Degraded, LACKS));
    world.ask(drain(region)).expect("there is another region");
    world.settle();
    assert_ne!(world.regions_of("acme/web")[0].0, region);
    assert_eq!((world.state("acme/web"), configured(&world)), (DagState::Ready, HAS));
}

/// A refusal by an NT of another card says nothing about the NTs of this one.
#[test]
fn a_dag_that_leaves_a_card_without_its_configuration_is_ready_on_another() {
    let mut world = World::new();
    with_windows(&mut world);
    world.card().refuse = (0..4).map(|region| (region, 0)).collect();
    world.ask(create("acme/web", told("nat", 5, "{}"))).expect("there is room");
    watch(&mut world, 5);
    assert_eq!((world.state("acme/web"), configured(&world)), (DagState::Degraded, LACKS));
    let other = CardId::new("card1").expect("a label");
    world.add_card(other.clone());
    watch(&mut world, 5);
    let report = CardReport::Lost { reason: "gone".into() };
    world.handle(Event::Card { card: card_id(), report });
    world.asked.clear();
    world.cards.remove(&card_id());
    world.ask(Command::RemoveCard { card: card_id() }).expect("it is lost");
    world.settle();
    assert_eq!(world.view("acme/web").mapping.expect("it has a place").card, other);
    assert_eq!((world.state("acme/web"), configured(&world)), (DagState::Ready, HAS));
}

/// A card is removed, and another device gets its name whose shell takes configurations: it has no NTs that could be asked again.
#[test]
fn a_dag_is_ready_on_another_device_that_has_the_name_of_a_card_whose_tasks_refused() {
    let mut world = World::new();
    with_windows(&mut world);
    world.card().refuse = (0..4).map(|region| (region, 0)).collect();
    world.ask(create("acme/web", told("nat", 5, "{}"))).expect("there is room");
    watch(&mut world, 5);
    assert_eq!((world.state("acme/web"), configured(&world)), (DagState::Degraded, LACKS));
    world.lose_card();
    world.cards.remove(&card_id());
    world.ask(Command::RemoveCard { card: card_id() }).expect("it is lost");
    // A removed card comes back with a start.
    for _ in 0..2 {
        world.restart();
        world.add_card(card_id());
        world.settle();
        assert_eq!(world.card().configures, Some(ConfigurationWay::Shell));
        assert_eq!((world.state("acme/web"), configured(&world)), (DagState::Ready, HAS));
    }
}
