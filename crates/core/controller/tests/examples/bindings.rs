//! Bindings of virtual machines: what they get, when, and that all of it comes back.

use std::time::Duration;

use snic_controller::{BindingView, Change, Command, ControlError, Event, Reply};
use snic_domain::{
    BindingSpec, BindingState, BindingTarget, DagState, MacAddress, PortLimits, Quota, RegionId,
    VirtualFunctions, VmId,
};
use snic_tables::{ClassifierRow, GuardRow, LoadFailure, Table};

use crate::support::things::{
    card_id, create, dag, delete, delete_tenant, functions, spec, tenant, tenant_id,
};
use crate::support::{Answer, Crash, World, absent, over_quota, precondition, wrong_field};

const SECOND: Duration = Duration::from_secs(1);

fn vm(number: u32) -> VmId {
    VmId::new(&format!("{number:08x}-0000-4000-8000-000000000000")).expect("a UUID")
}

/// A machine of acme's with one function for `acme/web`.
fn wish(number: u32) -> BindingSpec {
    BindingSpec {
        vm: vm(number),
        tenant: tenant_id("acme"),
        chains: BindingTarget::Dags(vec![dag("acme/web")]),
        functions: 1,
        ready_within: 10 * SECOND,
        lease: None,
        notes: Default::default(),
        limits: Default::default(),
    }
}

fn template(number: u32) -> BindingSpec {
    BindingSpec { chains: BindingTarget::Template(dag("acme/web")), ..wish(number) }
}

fn bind(spec: BindingSpec) -> Command {
    Command::BindVm(spec)
}

fn unbind(number: u32) -> Command {
    Command::UnbindVm { vm: vm(number), tenant: None }
}

fn view(answer: Answer) -> BindingView {
    match answer {
        Ok(Reply::Binding(view)) => *view,
        other => panic!("not a binding: {other:?}"),
    }
}

fn state(world: &World, number: u32) -> BindingState {
    seen(world, number).record.state
}

fn seen(world: &World, number: u32) -> BindingView {
    world.controller.binding_view(&vm(number)).expect("it is remembered")
}

/// The functions that the card leads to a DAG, with the DAG's UID.
fn on_card(world: &mut World) -> Vec<(u16, u32)> {
    let tables = &world.card().tables;
    let rows = 0..Table::Classifier.rows() as u16;
    let mut rows: Vec<_> = rows
        .filter_map(|row| tables.get::<ClassifierRow>(row))
        .map(|row| (row.virtual_function.expect("a machine's rule"), row.dag_uid))
        .collect();
    rows.sort_unstable();
    rows
}

/// The limits to which the card holds functions.
fn guards(world: &mut World) -> Vec<(u16, GuardRow)> {
    let tables = &world.card().tables;
    let rows = 0..Table::Guard.rows() as u16;
    rows.filter_map(|row| Some((row, tables.get(row)?))).collect()
}

fn limits(macs: &[[u8; 6]], vlans: &[u16], broadcasts_per_second: Option<u32>) -> PortLimits {
    PortLimits {
        mac_addresses: macs.iter().copied().map(MacAddress).collect(),
        vlans: (!vlans.is_empty()).then(|| vlans.iter().copied().collect()),
        broadcasts_per_second,
    }
}

fn deployed() -> World {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    world
}

#[test]
fn a_machine_gets_a_function_with_its_addresses() {
    let mut world = deployed();
    let begun = view(world.ask(bind(wish(1))));
    assert_eq!(begun.record.state, BindingState::BindStarted, "the card has not answered");
    world.settle();
    let bound = seen(&world, 1);
    assert_eq!(bound.record.state, BindingState::Bound);
    let [function] = &bound.record.functions[..] else { panic!("one function: {bound:?}") };
    assert_eq!(function.function, 0);
    assert_eq!(function.pci_address.to_string(), "0000:3b:00.1");
    assert_eq!(function.mac_address.to_string()[..3], *"02:");
    assert_eq!(bound.programmed, [true]);
    let uid = world.view("acme/web").uid;
    assert_eq!(bound.dags[0].uid, Some(uid));
    assert_eq!(on_card(&mut world), [(0, uid.raw())]);
    let told: Vec<_> = world
        .changes
        .iter()
        .filter_map(|(change, _)| match change {
            Change::Binding(view) => Some(view.record.state),
            _ => None,
        })
        .collect();
    assert_eq!(told, [BindingState::BindStarted, BindingState::Bound]);
}

#[test]
fn a_function_is_held_to_its_address_while_it_is_bound() {
    let mut world = deployed();
    world.ask(bind(wish(1))).expect("there is room");
    assert_eq!(seen(&world, 1).guarded, [false], "the card has not answered");
    world.settle();
    let bound = seen(&world, 1);
    assert_eq!((bound.record.state, &bound.guarded[..]), (BindingState::Bound, &[true][..]));
    let own = bound.record.functions[0].mac_address.0;
    let only = |mac| GuardRow {
        macs: [Some(mac), None, None, None],
        vlans: None,
        group_frames_per_second: None,
    };
    assert_eq!(guards(&mut world), [(0, only(own))]);
    world.restart();
    world.settle();
    assert_eq!(guards(&mut world), [(0, only(own))]);
    world.card().power_cycle();
    world.lose_card();
    world.appear(&card_id());
    world.settle();
    assert_eq!(guards(&mut world), [(0, only(own))], "the card lost its tables");
    world.ask(unbind(1)).expect("it is bound");
    world.settle();
    assert_eq!(guards(&mut world), []);
}

#[test]
fn a_machine_sends_from_what_it_was_given_and_nobody_elses() {
    let mut world = deployed();
    let (first, second, third) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]);
    let given = limits(&[first, second, third], &[5, 6], Some(100));
    let spec = BindingSpec { functions: 2, limits: given.clone(), ..wish(1) };
    world.ask(bind(spec.clone())).expect("there is room");
    world.settle();
    let vlans = Some([5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let row = |macs| GuardRow { macs, vlans, group_frames_per_second: Some(100) };
    let expected = [
        (0, row([Some(first), Some(third), None, None])),
        (1, row([Some(second), None, None, None])),
    ];
    assert_eq!(guards(&mut world), expected);
    // The same again is the same; another address is another request.
    world.ask(bind(spec.clone())).expect("it is bound");
    let other = BindingSpec { limits: limits(&[first], &[], None), ..spec };
    precondition(world.ask(bind(other)));
    let thief = BindingSpec { limits: limits(&[third], &[], None), ..wish(2) };
    assert_eq!(wrong_field(world.ask(bind(thief.clone()))), "mac_addresses");
    assert!(world.controller.binding_view(&vm(2)).is_none(), "as if it had never been asked");
    assert_eq!(guards(&mut world), expected);
    world.ask(unbind(1)).expect("it is bound");
    world.ask(bind(thief)).expect("nobody has it any more");
    world.settle();
    assert_eq!(state(&world, 2), BindingState::Bound);
    for (limits, field) in
        [(limits(&[first; 2], &[], None), "mac_addresses"), (limits(&[], &[4_095], None), "vlans")]
    {
        assert_eq!(wrong_field(world.ask(bind(BindingSpec { limits, ..wish(3) }))), field);
    }
}

#[test]
fn a_card_that_cannot_hold_functions_to_limits_says_so() {
    let mut world = World::new();
    world.card().guards = false;
    world.lose_card();
    world.appear(&card_id());
    world.settle();
    world.deploy("acme/web", "nat", 1);
    world.ask(bind(wish(1))).expect("nothing was requested");
    world.settle();
    let bound = seen(&world, 1);
    assert_eq!((bound.record.state, &bound.guarded[..]), (BindingState::Bound, &[false][..]));
    let limited = BindingSpec { limits: limits(&[], &[5], None), ..wish(2) };
    let (_, text) = precondition(world.ask(bind(limited)));
    assert!(text.contains("does not hold functions to MAC addresses"), "{text}");
}

#[test]
fn functions_take_turns_with_the_dags() {
    let mut world = deployed();
    world.deploy("acme/mail", "lb", 1);
    let chains = BindingTarget::Dags(vec![dag("acme/web"), dag("acme/mail")]);
    world.ask(bind(BindingSpec { chains, functions: 3, ..wish(1) })).expect("there is room");
    world.settle();
    let (web, mail) = (world.view("acme/web").uid.raw(), world.view("acme/mail").uid.raw());
    assert_eq!(on_card(&mut world), [(0, web), (1, mail), (2, web)]);
}

/// Whatever was bound before: who has functions is told so, who has none gets none.
#[test]
fn maintenance_binds_no_machine_whose_binding_has_ended() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    for number in [1, 2] {
        view(world.ask(bind(wish(number))));
    }
    world.settle();
    world.ask(unbind(1)).expect("it is bound");
    world.settle();
    world.ask(Command::Maintain { reason: Some("disks".into()) }).expect("an operator's");
    let error = world.ask(bind(wish(1))).expect_err("maintenance");
    assert_eq!(error, ControlError::Maintenance { reason: "disks".into() });
    assert!(state(&world, 1).has_ended());
    assert_eq!(view(world.ask(bind(wish(2)))).record.state, BindingState::Bound);
}

#[test]
fn binding_twice_is_binding_once() {
    let mut world = deployed();
    world.ask(bind(wish(1))).expect("there is room");
    world.settle();
    let batches = world.batches;
    let again = view(world.ask(bind(wish(1))));
    assert_eq!(again, seen(&world, 1));
    assert_eq!(world.batches, batches, "nothing is written");
    let more = BindingSpec { functions: 2, ..wish(1) };
    let (resource, text) = precondition(world.ask(bind(more)));
    assert_eq!(resource, format!("vmBindings/{}", vm(1)));
    assert!(text.contains("unbind"), "{text}");
    world.deploy("beta/web", "lb", 1);
    let chains = BindingTarget::Dags(vec![dag("beta/web")]);
    let theirs = BindingSpec { tenant: tenant_id("beta"), chains, ..wish(1) };
    let (_, text) = precondition(world.ask(bind(theirs)));
    assert!(text.contains("tenants/acme"), "{text}");
}

#[test]
fn functions_are_released_and_used_again() {
    let mut world = deployed();
    world.ask(bind(wish(1))).expect("there is room");
    world.ask(bind(wish(2))).expect("there is room");
    world.settle();
    assert_eq!(view(world.ask(unbind(1))).record.state, BindingState::Unbound);
    assert_eq!(view(world.ask(unbind(1))).record.state, BindingState::Unbound, "twice");
    world.settle();
    let uid = world.view("acme/web").uid.raw();
    assert_eq!(on_card(&mut world), [(1, uid)]);
    world.ask(bind(wish(3))).expect("there is room");
    world.settle();
    assert_eq!(seen(&world, 3).record.functions[0].function, 0, "the first that is free");
    assert_eq!(view(world.ask(bind(wish(1)))).record.state, BindingState::BindStarted);
    assert_eq!(absent(world.ask(unbind(9))), format!("vmBindings/{}", vm(9)));
}

#[test]
fn a_machine_is_unbound_only_for_its_tenant() {
    let mut world = deployed();
    world.ask(bind(wish(1))).expect("there is room");
    world.settle();
    let of = |tenant: &str| Command::UnbindVm { vm: vm(1), tenant: Some(tenant_id(tenant)) };
    precondition(world.ask(of("beta")));
    assert_eq!(state(&world, 1), BindingState::Bound);
    world.ask(of("acme")).expect("its own");
    assert_eq!(state(&world, 1), BindingState::Unbound);
}

#[test]
fn a_template_gives_a_dag_that_goes_with_the_machine() {
    let mut world = deployed();
    world.ask(bind(template(1))).expect("there is room");
    world.settle();
    let own = format!("acme/vm-{}", vm(1));
    assert_eq!(state(&world, 1), BindingState::Bound);
    assert_eq!(world.view(&own).spec, world.view("acme/web").spec);
    let uid = world.view(&own).uid.raw();
    assert_eq!(on_card(&mut world), [(0, uid)]);
    assert_eq!(world.tenant("acme").usage.dags, 2);
    world.ask(unbind(1)).expect("it is bound");
    world.settle();
    assert_eq!(world.controller.dag_view(&dag(&own)), None);
    assert_eq!(world.tenant("acme").usage.dags, 1);
}

#[test]
fn a_tenant_goes_with_its_machines_own_dags() {
    let mut world = deployed();
    world.ask(bind(template(1))).expect("there is room");
    world.settle();
    let delete = Command::DeleteTenant { id: tenant_id("acme"), force: true, etag: None };
    world.ask(delete).expect("nobody else uses what it has");
    world.settle();
    assert!(world.controller.dags(None).is_empty());
    assert_eq!(state(&world, 1), BindingState::Unbound);
}

#[test]
fn a_dag_that_a_machine_uses_stays() {
    let mut world = deployed();
    world.ask(bind(wish(1))).expect("there is room");
    let (resource, text) = precondition(world.ask(delete("acme/web")));
    assert_eq!(resource, "tenants/acme/dags/web");
    assert!(text.contains(vm(1).as_str()), "{text}");
    world.ask(delete_tenant("acme", true)).expect("by force all goes");
    world.settle();
    assert!(state(&world, 1).has_ended());
    assert_eq!(on_card(&mut world), []);
}

#[test]
fn a_rule_of_a_machine_is_not_deleted_alone() {
    let mut world = deployed();
    world.ask(bind(wish(1))).expect("there is room");
    let id = seen(&world, 1).record.functions[0].rule.clone();
    precondition(world.ask(Command::DeleteRule { id, etag: None }));
}

#[test]
fn a_card_without_functions_binds_nobody() {
    let mut world = World::new();
    world.controller.declare_functions(card_id(), VirtualFunctions { count: 1, ..functions() });
    world.deploy("acme/web", "nat", 1);
    world.ask(bind(wish(1))).expect("the only one");
    world.settle();
    for spec in [wish(2), template(2)] {
        match world.ask(bind(spec)) {
            Err(ControlError::Exhausted { what, limit: 1, .. }) => assert!(what.contains("card0")),
            other => panic!("there is no function: {other:?}"),
        }
        world.settle();
        assert_eq!(world.controller.binding_view(&vm(2)), None, "as if never asked");
        assert_eq!(world.controller.dags(None).len(), 1, "the DAG of the template went too");
    }
}

#[test]
fn a_binding_that_misses_its_deadline_is_undone() {
    let mut world = deployed();
    world.lose_card();
    world.ask(bind(template(1))).expect("its place is known, the card may come back");
    assert_eq!(state(&world, 1), BindingState::BindStarted);
    world.listen(10);
    let failed = seen(&world, 1);
    assert_eq!(failed.record.state, BindingState::BindFailed);
    let reason = failed.record.reason.expect("why");
    assert!(reason.contains("10s") && reason.contains("lost"), "{reason}");
    assert!(failed.record.functions.is_empty() && failed.dags.is_empty());
    world.appear(&card_id());
    world.settle();
    assert_eq!(on_card(&mut world), []);
    assert_eq!(world.controller.dags(None).len(), 1);
}

#[test]
fn without_a_place_it_waits_and_begins_when_there_is_one() {
    let mut world = World::new();
    for (name, chain) in [("beta/a", "vpn"), ("beta/b", "pad"), ("beta/c", "cache")] {
        world.deploy(name, chain, 1);
    }
    let refused = LoadFailure::Controller { code: 2 };
    world.card().bad_regions.insert(RegionId(3), refused);
    world.ask(create("acme/web", spec("lb", 5))).expect("there seems to be room");
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Failed, "no region is left");
    world.ask(bind(wish(1))).expect("it may get one");
    assert_eq!(state(&world, 1), BindingState::Initial);
    world.ask(delete("beta/a")).expect("it exists");
    world.run();
    assert_eq!(state(&world, 1), BindingState::Bound);
    world.ask(unbind(1)).expect("it is bound");
}

#[test]
fn one_that_never_gets_a_place_fails() {
    let mut world = World::without_card();
    assert!(world.ask(create("acme/web", spec("nat", 1))).is_err(), "no card was ever seen");
    assert_eq!(wrong_field(world.ask(bind(wish(1)))), "dags[0]");
}

#[test]
fn a_lease_lasts_from_heartbeat_to_heartbeat() {
    let mut world = deployed();
    world.ask(bind(BindingSpec { lease: Some(5 * SECOND), ..wish(1) })).expect("there is room");
    world.ask(bind(wish(2))).expect("there is room");
    world.run();
    let expires = seen(&world, 1).expires.expect("it has a lease");
    world.listen(4);
    let beat = Command::Heartbeat { vms: vec![vm(1), vm(2), vm(9)] };
    match world.ask(beat) {
        Ok(Reply::Heartbeat { alive, missing }) => {
            assert_eq!(alive.len(), 2);
            assert!(alive[0].expires > Some(expires));
            assert_eq!(missing, [vm(9)]);
        }
        other => panic!("not a heartbeat: {other:?}"),
    }
    world.listen(4);
    assert_eq!(state(&world, 1), BindingState::Bound);
    world.settle();
    assert_eq!(state(&world, 1), BindingState::Unbound);
    assert!(seen(&world, 1).record.reason.expect("why").contains("heartbeat"));
    assert_eq!(state(&world, 2), BindingState::Bound, "no lease, no end");
}

#[test]
fn after_a_restart_a_lease_counts_anew() {
    let mut world = deployed();
    world.ask(bind(BindingSpec { lease: Some(5 * SECOND), ..wish(1) })).expect("there is room");
    world.run();
    world.now = world.now + 60 * SECOND;
    world.restart();
    world.run();
    assert_eq!(state(&world, 1), BindingState::Bound);
    world.listen(5);
    assert_eq!(state(&world, 1), BindingState::Unbound);
}

/// SIGSTOP, a suspended host, or a disk that answers nothing: heartbeats were sent, and nobody took them.
#[test]
fn time_in_which_the_daemon_was_stopped_ends_no_lease() {
    let mut world = deployed();
    world.ask(bind(BindingSpec { lease: Some(5 * SECOND), ..wish(1) })).expect("there is room");
    world.run();
    // Whatever comes first when it goes on.
    for first in [Event::Tick, Event::Sample] {
        world.now = world.now + 3_600 * SECOND;
        world.handle(first);
        assert_eq!(state(&world, 1), BindingState::Bound);
        world.ask(Command::Heartbeat { vms: vec![vm(1)] }).expect("it is bound");
    }
    world.listen(4);
    assert_eq!(state(&world, 1), BindingState::Bound);
    world.listen(1);
    assert_eq!(state(&world, 1), BindingState::Unbound, "nobody sends one any more");
}

/// However often it is stopped: the time in which it ran counts, and that alone.
#[test]
fn a_lease_ends_once_the_daemon_has_listened_for_so_long() {
    let mut world = deployed();
    world.ask(bind(BindingSpec { lease: Some(10 * SECOND), ..wish(1) })).expect("there is room");
    world.run();
    for _ in 0..3 {
        world.pass(60 * SECOND);
        world.listen(1);
        assert_eq!(state(&world, 1), BindingState::Bound);
    }
    world.listen(1);
    assert_eq!(
        state(&world, 1),
        BindingState::Unbound,
        "at most 2 s of each of three gaps, and 4 s"
    );
}

/// The card may have answered meanwhile.
#[test]
fn time_in_which_the_daemon_was_stopped_is_no_reason_to_fail_a_binding() {
    let mut world = deployed();
    let begun = view(world.ask(bind(wish(1))));
    assert_eq!(begun.record.state, BindingState::BindStarted, "the card has not answered");
    world.pass(3_600 * SECOND);
    assert_eq!(state(&world, 1), BindingState::BindStarted);
    world.settle();
    assert_eq!(state(&world, 1), BindingState::Bound);
}

#[test]
fn the_daemon_dies_at_any_batch_of_a_bind() {
    let total = {
        let mut world = deployed();
        let before = world.batches;
        world.ask(bind(template(1))).expect("there is room");
        world.settle();
        world.ask(unbind(1)).expect("it is bound");
        world.settle();
        before..world.batches
    };
    for crash in total.flat_map(|batch| [Crash::Before(batch), Crash::After(batch)]) {
        let mut world = deployed();
        world.crash = Some(crash);
        let request = |world: &mut World, command| {
            let caller = crate::support::operator();
            let request = snic_controller::Request { caller, request_id: None, command };
            world.request(request)
        };
        request(&mut world, bind(template(1)));
        world.settle();
        // What was not answered is asked again.
        request(&mut world, bind(template(1)));
        world.settle();
        assert_eq!(state(&world, 1), BindingState::Bound, "{crash:?}");
        request(&mut world, unbind(1));
        world.settle();
        request(&mut world, unbind(1));
        world.settle();
        assert_eq!(state(&world, 1), BindingState::Unbound, "{crash:?}");
        assert_eq!(on_card(&mut world), [], "{crash:?}");
        assert_eq!(world.controller.dags(None).len(), 1, "{crash:?}");
    }
}

#[test]
fn invalid_binding_specs_are_refused_with_the_reason() {
    let mut world = deployed();
    world.deploy("beta/web", "lb", 1);
    let dags = |names: &[&str]| BindingTarget::Dags(names.iter().map(|name| dag(name)).collect());
    let cases = [
        (BindingSpec { functions: 0, ..wish(1) }, "functions"),
        (BindingSpec { functions: 33, ..wish(1) }, "functions"),
        (BindingSpec { ready_within: Duration::ZERO, ..wish(1) }, "ready_within"),
        (BindingSpec { ready_within: 601 * SECOND, ..wish(1) }, "ready_within"),
        (BindingSpec { lease: Some(SECOND), ..wish(1) }, "lease"),
        (BindingSpec { chains: dags(&[]), ..wish(1) }, "dags"),
        (BindingSpec { chains: dags(&["acme/web", "acme/no"]), ..wish(1) }, "dags"),
        (BindingSpec { chains: dags(&["beta/web"]), ..wish(1) }, "dags[0]"),
        (BindingSpec { chains: dags(&["acme/no"]), ..wish(1) }, "dags[0]"),
        (
            BindingSpec { chains: dags(&["acme/web", "acme/web"]), functions: 2, ..wish(1) },
            "dags[1]",
        ),
        (BindingSpec { chains: BindingTarget::Template(dag("beta/web")), ..wish(1) }, "template"),
        (BindingSpec { chains: BindingTarget::Template(dag("acme/no")), ..wish(1) }, "template"),
    ];
    for (spec, field) in cases {
        assert_eq!(wrong_field(world.ask(bind(spec))), field);
    }
    let nobody = BindingSpec { tenant: tenant_id("nobody"), ..wish(1) };
    assert_eq!(absent(world.ask(bind(nobody))), "tenants/nobody");
    assert_eq!(world.controller.bindings_after(None, None).count(), 0);
}

#[test]
fn bindings_are_listed_by_tenant_and_forgotten_after_a_day() {
    let mut world = deployed();
    world.ask(bind(wish(2))).expect("there is room");
    world.ask(bind(wish(1))).expect("there is room");
    world.settle();
    let listed = |world: &World, tenant: Option<&str>, after: Option<u32>| -> Vec<VmId> {
        let (tenant, after) = (tenant.map(tenant_id), after.map(vm));
        let bindings = world.controller.bindings_after(tenant.as_ref(), after.as_ref());
        bindings.map(|view| view.record.spec.vm).collect()
    };
    assert_eq!(listed(&world, None, None), [vm(1), vm(2)]);
    assert_eq!(listed(&world, Some("acme"), Some(1)), [vm(2)]);
    assert_eq!(listed(&world, Some("beta"), None), []);
    world.ask(unbind(1)).expect("it is bound");
    world.pass(Duration::from_secs(24 * 3600 + 1));
    assert_eq!(listed(&world, None, None), [vm(2)]);
    assert!(matches!(world.changes.last(), Some((Change::BindingForgotten(_), _))));
    world.restart();
    world.settle();
    assert_eq!(listed(&world, None, None), [vm(2)]);
}

#[test]
fn a_new_dag_can_be_named_before_it_is_ready() {
    let mut world = World::new();
    world.ask(create("acme/web", spec("nat", 1))).expect("there is room");
    world.ask(bind(wish(1))).expect("the DAG has a place");
    assert_eq!(state(&world, 1), BindingState::BindStarted);
    world.settle();
    assert_eq!(state(&world, 1), BindingState::Bound);
}

#[test]
fn a_tenant_has_no_more_machines_than_its_quota() {
    let mut world = deployed();
    let quota = Quota { machines_max: 1, ..tenant("acme").quota };
    let id = tenant_id("acme");
    let set = Command::UpdateTenant {
        id,
        patch: snic_domain::TenantPatch { quota: Some(quota.into()), ..Default::default() },
        etag: None,
    };
    world.ask(set).expect("valid");
    world.ask(bind(wish(1))).expect("the first");
    let over = over_quota(world.ask(bind(wish(2))));
    assert_eq!(over, ("machines_max".into(), "1".into(), "2".into()));
    assert_eq!(world.tenant("acme").usage.machines, 1);
    world.settle();
    world.ask(unbind(1)).expect("it is bound");
    world.settle();
    assert_eq!(world.tenant("acme").usage.machines, 0);
    world.ask(bind(wish(2))).expect("the first is gone");
}

/// A plan is the dearest of what one event does.
#[test]
fn the_dag_of_a_machine_is_planned_once() {
    let mut world = World::new();
    world.deploy("acme/web", "aes", 1);
    let mut like = create("acme/like", world.view("acme/web").spec);
    let Command::CreateDag { validate_only, .. } = &mut like else { panic!("{like:?}") };
    *validate_only = true;
    world.ask(like).expect("there is room");
    let once = world.controller.looks();
    assert!(once > 0);
    world.ask(bind(template(1))).expect("there is room");
    assert_eq!(world.controller.looks(), once);
}
