//! Admission, and preemption at the cost of others: what is refused changes nothing, what is validated is what is then
//! done, and burst capacity is taken back only where it helps.

use std::collections::BTreeMap;

use proptest::prelude::*;
use snic_controller::{
    AdmissionPolicy, Command, ControlError, ControllerSettings, Effect, Event, LogKind, Reply,
};
use snic_domain::{
    Bandwidth, BindingSpec, BindingTarget, DagName, DagSpec, Match, OperationId, Quota, RegionId,
    Resource, Rule, RuleId, VmId,
};

use super::waiting::request;
use crate::elastic::{deployed, holds, kinds, period, periods, settings};
use crate::support::things::{
    bitstream, cancel, card_id, create, dag, delete, delete_bitstream, delete_nt, delete_tenant,
    drain, nt, reset, spec, tenant, tenant_id, undrain, update,
};
use crate::support::{Answer, World, operator};

/// `acme/web` was guaranteed 10 Gbit/s, holds 40, and the card has no other region.
fn all_borrowed() -> World {
    let mut world = deployed(&["acme/web"]);
    period(&mut world, &[("acme/web", 40)]);
    assert_eq!((holds(&world, "acme/web"), world.regions_of("acme/web").len()), (40, 4));
    world
}

fn dry(command: &Command) -> Command {
    let mut dry = command.clone();
    match &mut dry {
        Command::CreateDag { validate_only, .. } | Command::UpdateDag { validate_only, .. } => {
            *validate_only = true;
        }
        other => panic!("{other:?} cannot be validated only"),
    }
    dry
}

#[test]
fn a_refused_create_takes_nothing_from_anybody() {
    let mut world = all_borrowed();
    world.ask(Command::CreateNtType(nt("gre", 40))).expect("valid");
    let told = kinds(&world);
    let no_bitstream = world.ask(create("beta/tunnel", spec("gre", 1)));
    let Err(ControlError::Refused(refusal)) = no_bitstream else { panic!("{no_bitstream:?}") };
    assert_eq!(refusal.shortages[0].resource, Resource::Bitstreams);
    world.ask(create("beta/wide", spec("lb", 130))).expect_err("more than the ingress");
    world.ask(create("beta/much", spec("aes", 50))).expect_err("it would need a fifth region");
    assert_eq!((holds(&world, "acme/web"), kinds(&world)), (40, told));
    world.settle();
    assert_eq!(holds(&world, "acme/web"), 40);
}

#[test]
fn a_refused_update_takes_nothing_from_anybody() {
    let mut world = deployed(&["acme/web"]);
    world.deploy("beta/lb", "lb", 10);
    period(&mut world, &[("acme/web", 30)]);
    assert_eq!(holds(&world, "acme/web"), 30);
    let told = kinds(&world);
    world.ask(update("beta/lb", spec("lb", 170))).expect_err("more than the ingress");
    assert_eq!((holds(&world, "acme/web"), kinds(&world)), (30, told));
}

#[test]
fn only_as_much_is_taken_back_as_helps() {
    let names = ["acme/web", "beta/web"];
    let mut world = deployed(&names);
    period(&mut world, &[("acme/web", 20), ("beta/web", 20)]);
    assert_eq!(names.map(|name| holds(&world, name)), [20, 20]);
    world.deploy("beta/lb", "lb", 5);
    let held = names.map(|name| holds(&world, name));
    assert_eq!(held.iter().sum::<u64>(), 30, "one region was needed: {held:?}");
    let taken = kinds(&world).into_iter().filter(|kind| *kind == LogKind::Preemption).count();
    assert_eq!(taken, 1);
}

#[test]
fn useless_burst_capacity_is_not_preempted() {
    // `acme/web` borrows most, but of regions; what is short is what `beta/nat` borrows of the ingress.
    let mut world = deployed(&["acme/web"]);
    period(&mut world, &[("acme/web", 40)]);
    let before = holds(&world, "acme/web");
    world.ask(create("beta/wide", spec("aes", 31))).expect_err("four regions are needed");
    assert_eq!(holds(&world, "acme/web"), before);
    world.deploy("beta/web", "aes", 30);
    assert_eq!(holds(&world, "acme/web"), 10);
}

/// A DAG's own burst capacity is no way to a place for its update: it serves until the update does.
#[test]
fn the_requesting_dag_is_not_preempted() {
    let mut world = all_borrowed();
    let told = kinds(&world);
    let (before, rows) = (world.view("acme/web"), world.card().dag_rows());
    let refused = world.ask(update("acme/web", spec("lb", 5))).expect_err("no region is free");
    assert!(matches!(refused, ControlError::Refused(_)), "{refused:?}");
    assert_eq!((kinds(&world), world.card().dag_rows()), (told, rows));
    let after = world.view("acme/web");
    assert_eq!((after.mapping, after.state), (before.mapping, before.state));
    assert_eq!(holds(&world, "acme/web"), 40);
}

#[test]
fn an_update_counts_once_against_what_may_be_guaranteed() {
    let mut world = World::new();
    let admission = AdmissionPolicy { ingress_percent: 20, ..AdmissionPolicy::default() };
    settings(&mut world, ControllerSettings { admission, ..crate::support::settings() });
    world.deploy("acme/web", "lb", 15);
    world.deploy("beta/vpn", "vpn", 2);
    // Of 20 Gbit/s the other DAG has 2: what this one had before its update does not count.
    let refused = world.ask(update("acme/web", spec("lb", 19))).expect_err("over a fifth");
    let ControlError::Refused(refusal) = &refused else { panic!("{refused:?}") };
    let shortage = &refusal.shortages[0];
    assert_eq!(shortage.resource, Resource::IngressBandwidth);
    let gbps = |gbps: u64| Bandwidth::from_gbps(gbps).get();
    assert_eq!((shortage.required, shortage.available), (gbps(19), gbps(18)), "{refused}");
    world.ask(update("acme/web", spec("lb", 18))).expect("exactly a fifth together");
    world.settle();
    assert_eq!(world.view("acme/web").spec.bandwidth, Bandwidth::from_gbps(18));
    world.ask(create("acme/more", spec("vpn", 1))).expect_err("all is guaranteed");
}

#[test]
fn validating_an_update_to_what_is_there_says_what_the_update_does() {
    let mut world = World::new();
    world.deploy("acme/web", "nat firewall", 5);
    world.ask(drain(world.regions_of("acme/web")[0].0)).expect("the card has it");
    world.settle();
    let update = update("acme/web", spec("nat firewall", 5));
    let before = world.view("acme/web");
    let Ok(Reply::WouldBe(would_be)) = world.ask(dry(&update)) else { panic!("it is valid") };
    assert_eq!((would_be.generation, &would_be.mapping), (before.generation, &before.mapping));
    world.ask(update).expect("nothing is to be done");
    assert_eq!(world.view("acme/web").generation, before.generation);
}

/// Random acts in a world that has burst capacity, without answers in between.
#[derive(Debug, Clone)]
enum Act {
    Ask(Command),
    /// A monitor period with these loads, in Gbit/s.
    Load([u64; 4]),
    Answer(u8),
    Cancel(usize),
    Lose,
}

const NAMES: [&str; 4] = ["acme/d0", "beta/d1", "acme/d2", "beta/d3"];

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(NAMES.to_vec())
}

fn chain() -> impl Strategy<Value = DagSpec> {
    let nts = ["nat", "firewall", "cache", "aes", "lb", "vpn", "pad", "gre", "nix"];
    let names = prop::collection::vec(prop::sample::select(nts.to_vec()), 1..3);
    (names, 1u64..30).prop_map(|(names, gbps)| spec(&names.join(" "), gbps))
}

fn put() -> impl Strategy<Value = Command> {
    let create = (name(), chain()).prop_map(|(name, spec)| create(name, spec));
    let update = (name(), chain()).prop_map(|(name, spec)| update(name, spec));
    prop_oneof![create, update]
}

fn binding() -> impl Strategy<Value = Command> {
    let vm = |n: u8| VmId::new(&format!("{n:08x}-0000-4000-8000-000000000000")).expect("a UUID");
    (0u8..3, name(), any::<bool>(), 1u16..12).prop_map(move |(number, name, own, functions)| {
        let name: DagName = dag(name);
        let chains = if own {
            BindingTarget::Template(name.clone())
        } else {
            BindingTarget::Dags(vec![name.clone()])
        };
        Command::BindVm(BindingSpec {
            vm: vm(number),
            tenant: name.tenant,
            chains,
            functions,
            ready_within: std::time::Duration::from_secs(600),
            lease: None,
            notes: Default::default(),
            limits: Default::default(),
        })
    })
}

fn rule() -> impl Strategy<Value = Command> {
    (0u8..3, name(), prop::option::of(0u32..1 << 25)).prop_map(|(number, name, vni)| {
        Command::CreateRule(Rule {
            notes: Default::default(),
            id: RuleId::new(&format!("r{number}")).expect("a label"),
            priority: 7,
            matches: Match { vni, ..Match::default() },
            dag: dag(name),
        })
    })
}

/// Any command, often a wrong one.
fn command() -> impl Strategy<Value = Command> {
    let region = || 0u8..6;
    let owned = || prop::sample::select(vec!["nat", "lb", "gre", "acme.own", "nix"]);
    let quota = (0u32..3, 0u64..60).prop_map(|(dags, gbps)| Command::UpdateTenant {
        id: tenant_id("beta"),
        patch: snic_domain::TenantPatch {
            weight: Some(dags),
            quota: Some(
                Quota {
                    dags_max: dags,
                    bandwidth_max: Bandwidth::from_gbps(gbps),
                    ..Quota::default()
                }
                .into(),
            ),
            ..Default::default()
        },
        etag: None,
    });
    prop_oneof![
        8 => put(),
        2 => name().prop_map(delete),
        2 => binding(),
        1 => (0u8..3).prop_map(|n| Command::UnbindVm {
            vm: VmId::new(&format!("{n:08x}-0000-4000-8000-000000000000")).expect("a UUID"),
            tenant: Some(tenant_id("acme")),
        }),
        1 => rule(),
        1 => (0u8..3).prop_map(|n| Command::DeleteRule {
            id: RuleId::new(&format!("r{n}")).expect("a label"),
            etag: None,
        }),
        1 => region().prop_map(drain),
        1 => region().prop_map(undrain),
        1 => region().prop_map(reset),
        1 => Just(Command::DrainCard { card: card_id() }),
        1 => (prop::option::of(region()), any::<bool>()).prop_map(|(region, on)| Command::Cordon {
            card: card_id(),
            region: region.map(RegionId),
            on,
        }),
        1 => Just(Command::OptimizeCard { card: card_id() }),
        1 => Just(Command::LoadRole { card: card_id(), force: false }),
        1 => any::<bool>().prop_map(|force| Command::ResetCard { card: card_id(), force }),
        1 => owned().prop_map(|id| Command::CreateNtType(nt(id, 40))),
        1 => owned().prop_map(delete_nt),
        1 => owned().prop_map(|id| Command::CreateBitstream(bitstream(id, &[id]))),
        1 => owned().prop_map(delete_bitstream),
        1 => any::<bool>().prop_map(|force| delete_tenant("beta", force)),
        1 => Just(Command::CreateTenant(tenant("beta"))),
        1 => quota,
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => command().prop_map(Act::Ask),
        4 => prop::array::uniform4(0u64..30).prop_map(Act::Load),
        4 => (1u8..9).prop_map(Act::Answer),
        1 => (0usize..8).prop_map(Act::Cancel),
        1 => Just(Act::Lose),
    ]
}

fn load(world: &mut World, loads: [u64; 4]) {
    let loads: Vec<(&str, u64)> = NAMES
        .into_iter()
        .zip(loads)
        .filter(|(name, _)| world.controller.dag_view(&dag(name)).is_some())
        .collect();
    periods(world, 2, &loads);
}

/// All that a command may have changed: the store without the DAGs that were refused lately, which are
/// remembered on purpose, and all that the controller has in memory but those. Requests that wait come last.
struct State {
    stored: BTreeMap<String, Vec<u8>>,
    memory: String,
    waiting: String,
}

fn state(world: &World) -> State {
    let mut stored = world.durable.clone();
    stored.retain(|key, _| !key.starts_with("refused/"));
    let memory = format!("{:?}", world.controller);
    let (memory, waiting) = memory.rsplit_once("held: ").expect("requests that wait have a field");
    let (before, rest) = memory.split_once("refused: RefusedDags").expect("they have a field");
    let depth = |depth: &mut i32, c: char| {
        *depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        Some((c, *depth))
    };
    let end = rest.chars().scan(0, depth).position(|(c, depth)| c == ',' && depth == 0);
    let after: String = rest.chars().skip(end.expect("it is not the last field")).collect();
    State { stored, memory: format!("{before}{after}"), waiting: waiting.to_owned() }
}

/// Fails where two differ, and says at which place.
fn same(before: &State, after: &State, what: &dyn std::fmt::Debug) -> Result<(), TestCaseError> {
    prop_assert_eq!(&before.stored, &after.stored, "{:?}", what);
    for (before, after) in [(&before.memory, &after.memory), (&before.waiting, &after.waiting)] {
        if before != after {
            let at = before.bytes().zip(after.bytes()).position(|(a, b)| a != b).unwrap_or(0);
            let part = |text: &str| -> String {
                text.chars().skip(at.saturating_sub(300)).take(600).collect()
            };
            let (before, after) = (part(before), part(after));
            prop_assert!(false, "{what:?}\n{before}\n---\n{after}");
        }
    }
    Ok(())
}

/// Does what earlier commands put off: it is due with the next event, whatever that is.
fn do_what_is_due(world: &mut World) {
    while world.controller.next_wake_up().is_some_and(|at| at <= world.now) {
        world.handle(Event::Tick);
    }
}

/// Asks, and holds a refusal against the rule that it changes nothing. A request without an answer waits for room:
/// it changes nothing but that it waits.
fn ask(world: &mut World, command: Command) -> Result<Option<Answer>, TestCaseError> {
    do_what_is_due(world);
    let before = state(world);
    let call = world.post(request(operator(), command.clone()));
    let answer = world.answer(call);
    if answer.as_ref().is_none_or(Result::is_err) {
        let is_reply = |effect: &Effect| matches!(effect, Effect::Reply { .. });
        prop_assert!(world.tx.effects().iter().all(is_reply), "{command:?}: {:?}", world.tx);
        let mut stored = world.tx.writes().iter();
        prop_assert!(stored.all(|(key, _)| key.starts_with("refused/")), "{:?}", world.tx);
        let mut after = state(world);
        if answer.is_none() {
            after.waiting.clone_from(&before.waiting);
        }
        same(&before, &after, &(&command, &answer))?;
    }
    Ok(answer)
}

fn carry_out(world: &mut World, act: &Act) -> Result<(), TestCaseError> {
    match act {
        Act::Ask(command) => {
            let _ = ask(world, command.clone())?;
        }
        Act::Load(loads) => load(world, *loads),
        Act::Answer(count) => (0..*count).for_each(|_| {
            world.answer_one();
        }),
        Act::Cancel(index) => {
            let all: Vec<OperationId> =
                world.controller.operations(&operator()).map(|o| o.record.id).collect();
            if let Some(id) = all.get(*index) {
                let _ = ask(world, cancel(id))?;
            }
        }
        Act::Lose => {
            world.lose_card();
            world.appear(&card_id());
        }
    }
    Ok(())
}

/// Some DAGs that hold more than they were guaranteed.
fn borrowing(gbps: [u64; 4], loads: [u64; 4]) -> World {
    let mut world = World::new();
    for (name, gbps) in NAMES.into_iter().zip(gbps) {
        if gbps > 0 {
            let _ = world.ask(create(name, spec("aes", gbps)));
            world.settle();
        }
    }
    load(&mut world, loads);
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Validation gives the answer that the same request then gets, answer by answer.
    #[test]
    #[ignore = "ci: half a minute"]
    fn validate_only_says_what_the_request_then_does(
        gbps in prop::array::uniform4(0u64..12),
        loads in prop::array::uniform4(0u64..40),
        acts in prop::collection::vec(act(), 0..12),
        puts in prop::collection::vec(put(), 1..4),
    ) {
        let mut world = borrowing(gbps, loads);
        for act in &acts {
            carry_out(&mut world, act)?;
        }
        for command in puts {
            do_what_is_due(&mut world);
            let before = state(&world);
            let validated = world.ask(dry(&command));
            same(&before, &state(&world), &(&command, "validating changed something"))?;
            let Some(done) = ask(&mut world, command.clone())? else {
                // Validation says what is so now: there is no room yet.
                let is_refused = matches!(validated, Err(ControlError::Refused(_)));
                prop_assert!(is_refused, "it waits: {validated:?}");
                continue;
            };
            let (Command::CreateDag { name, .. } | Command::UpdateDag { name, .. }) = &command else {
                unreachable!("what put makes")
            };
            match (validated, done) {
                (Ok(Reply::WouldBe(would_be)), Ok(Reply::Operation(_))) => {
                    let is = world.controller.dag_view(name).expect("it was made");
                    prop_assert_eq!(&would_be.mapping, &is.mapping, "{:?}", command);
                    prop_assert_eq!(would_be.explanation, is.explanation);
                    prop_assert_eq!((would_be.uid, would_be.latency), (is.uid, is.latency));
                    prop_assert_eq!((would_be.generation, would_be.spec), (is.generation, is.spec));
                }
                (validated, done) => {
                    let (validated, done) = (validated.err(), done.err());
                    prop_assert!(validated.is_some() && validated == done, "{validated:?} {done:?}");
                }
            }
        }
    }

    /// A command that fails changes neither the store nor anything in memory, whatever it is.
    #[test]
    #[ignore = "ci: half a minute"]
    fn a_failed_command_changes_nothing(
        gbps in prop::array::uniform4(0u64..12),
        loads in prop::array::uniform4(0u64..40),
        acts in prop::collection::vec(act(), 1..25),
    ) {
        let mut world = borrowing(gbps, loads);
        for act in &acts {
            carry_out(&mut world, act)?;
        }
    }
}
