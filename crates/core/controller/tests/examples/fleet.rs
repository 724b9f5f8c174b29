//! Assignments of the fleet to this host: carried out once, stored with the DAG, and changed by nobody else.

use std::time::Duration;

use snic_controller::{
    AssignedCard, AssignmentProgress, CardCommand, Change, Command, DagAssignment, DagBatch,
    FleetChange, NewDag, Provision, ProvisionName, Reply,
};
use snic_domain::limits::BITSTREAM_BYTES_MAX;
use snic_domain::{
    BindingSpec, BindingTarget, Bitstream, ByteSize, CardId, DagAttachments, DagSpec, DagState,
    Match, Quota, Rule, RuleId, Tenant, VmId,
};

use snic_tables::LoadFailure;

use crate::support::things::{
    bitstream, bitstream_id, caller, cancel, card_id, create, dag, delete, delete_bitstream,
    delete_nt, delete_tenant, digest, image, nt, nt_id, spec, tenant, tenant_id, update,
};
use crate::support::{
    Answer, Crash, Records, World, absent, operation, operation_id, operator, precondition,
};

const MANAGED: &str = "the fleet manages it; change it at the fleet's endpoint";

fn other_card() -> CardId {
    CardId::new("card1").expect("a label")
}

/// The tenant `cust` as the fleet has it: with a quota that is none of this host's business.
fn customer(weight: u32) -> Tenant {
    let quota = Quota { dags_max: 0, ..Quota::default() };
    Tenant { id: tenant_id("cust"), weight, quota, notes: Default::default(), project: None }
}

fn assign_to(card: CardId, serial: u64, spec: DagSpec) -> Command {
    assigned(DagAssignment { to: AssignedCard { card, serial }, ..assignment(spec) })
}

/// Assignment 8 of `cust/web`, to the first card.
fn assignment(spec: DagSpec) -> DagAssignment {
    let (name, tenant, tenant_number) = (dag("cust/web"), customer(1), 3);
    let to = AssignedCard { card: card_id(), serial: 8 };
    DagAssignment { name, tenant, tenant_number, spec, to }
}

fn assigned(assignment: DagAssignment) -> Command {
    Command::Fleet(FleetChange::Assign(Box::new(assignment)))
}

fn provide(what: Provision, number: u64) -> Command {
    Command::Fleet(FleetChange::Provide { what: Box::new(what), number })
}

fn retire(name: ProvisionName, number: u64) -> Command {
    Command::Fleet(FleetChange::Retire { name, number })
}

fn assign(serial: u64, spec: DagSpec) -> Command {
    assign_to(card_id(), serial, spec)
}

fn withdraw(card: CardId) -> Command {
    Command::Fleet(FleetChange::Withdraw { name: dag("cust/web"), card, if_detached: false })
}

/// A host of a fleet with two cards, the catalogue, and no DAG.
fn host() -> World {
    let mut world = World::new();
    world.add_card(other_card());
    world.settle();
    world.join_fleet(true);
    world
}

/// The same, and it serves `cust/web` on its first card.
fn serving(chain: &str) -> World {
    let mut world = host();
    world.ask(assign(7, spec(chain, 5))).expect("there is room");
    world.settle();
    assert_eq!(world.state("cust/web"), DagState::Ready);
    world
}

fn held(world: &World) -> Option<(CardId, u64)> {
    let of = world.controller.assigned(&dag("cust/web"))?;
    Some((of.to.card, of.to.serial))
}

fn progress(world: &World) -> AssignmentProgress {
    world.controller.assigned(&dag("cust/web")).expect("it is assigned").progress
}

fn card_of(world: &World) -> CardId {
    world.view("cust/web").mapping.expect("it has a place").card
}

/// Spread would take the other card for the second DAG; the fleet's choice counts.
#[test]
fn a_dag_goes_to_the_card_that_the_fleet_chose() {
    for card in [card_id(), other_card()] {
        let mut world = host();
        world.deploy("acme/busy", "aes", 9);
        let answer = world.ask(assign_to(card.clone(), 7, spec("nat", 5)));
        let id = operation_id(answer);
        assert_eq!(progress(&world), AssignmentProgress::Pending);
        world.settle();
        assert_eq!(world.ended(&id), Some(Ok(())));
        assert_eq!(card_of(&world), card);
        assert_eq!(held(&world), Some((card.clone(), 7)));
        let AssignmentProgress::Applied(mapping) = progress(&world) else { panic!("not applied") };
        assert_eq!(Some(mapping.mapping), world.view("cust/web").mapping);
        let ingress = mapping.reservation.map(|taken| taken.bandwidth().get());
        assert_eq!(ingress, Some(5_000_000_000));
        let all: Vec<_> = world.controller.assigned_after(None).map(|(name, _)| name).collect();
        assert_eq!(all, [dag("cust/web")], "acme's is of this host");
    }
}

#[test]
fn its_tenant_has_the_fleets_weight_and_no_quota_here() {
    let mut world = serving("nat");
    let view = world.tenant("cust");
    assert_eq!(view.fleet_number, Some(3));
    assert_eq!((view.tenant.weight, view.tenant.quota), (1, Quota::UNLIMITED));
    assert_eq!(world.tenant("acme").fleet_number, None);
    let heavier = DagAssignment { tenant: customer(5), ..assignment(spec("nat", 5)) };
    world.ask(assigned(heavier)).expect("only the weight");
    assert_eq!(world.tenant("cust").tenant.weight, 5);
    assert_eq!(held(&world), Some((card_id(), 8)));
}

#[test]
fn the_same_assignment_again_changes_nothing() {
    let mut world = host();
    let first = operation_id(world.ask(assign(7, spec("nat", 5))));
    let again = operation_id(world.ask(assign(7, spec("nat", 5))));
    assert_eq!(first, again, "it is under way");
    world.settle();
    let before = world.view("cust/web");
    let last = operation(world.ask(assign(7, spec("nat", 5))));
    assert!(last.is_done(), "{last:?}");
    assert!(world.asked.is_empty());
    assert_eq!(world.view("cust/web"), before);
    let (resource, text) = precondition(world.ask(assign(7, spec("lb", 5))));
    assert_eq!(resource, dag("cust/web").to_string());
    assert!(text.contains("another spec"), "{text}");
}

#[test]
fn an_earlier_assignment_is_refused() {
    let mut world = serving("nat");
    let before = (world.view("cust/web"), world.durable.clone());
    for card in [card_id(), other_card()] {
        let (_, text) = precondition(world.ask(assign_to(card, 6, spec("lb", 5))));
        assert_eq!(text, "it has assignment 7 already, so 6 is old");
    }
    let (_, text) = precondition(world.ask(assign_to(other_card(), 7, spec("nat", 5))));
    assert_eq!(text, "it has assignment 7 already, so 7 is old", "a serial names one card");
    assert_eq!((world.view("cust/web"), world.durable.clone()), before);
}

/// A later assignment with another spec is an update: rows lead to the DAG all the while.
#[test]
fn another_spec_on_the_same_card_stops_nothing() {
    let mut world = serving("nat firewall");
    let uid = world.view("cust/web").uid;
    world.ask(assign(9, spec("lb", 8))).expect("there is room");
    assert_eq!(progress(&world), AssignmentProgress::Pending);
    while world.answer_one().is_some() {
        let row: Option<snic_tables::DagRow> = world.card().tables.get(uid.row());
        assert!(row.is_some(), "no row leads to it");
    }
    assert_eq!(world.state("cust/web"), DagState::Ready);
    assert_eq!((world.view("cust/web").uid, held(&world)), (uid, Some((card_id(), 9))));
    assert_eq!(world.view("cust/web").spec, spec("lb", 8));
}

#[test]
fn what_does_not_fit_is_refused_with_the_reason_and_changes_nothing() {
    let mut world = serving("nat");
    let before = world.view("cust/web");
    let refusal = world.ask(assign(9, spec("aes", 400))).expect_err("more than the card has");
    assert_eq!(refusal.kind(), "capacity", "{refusal}");
    assert_eq!(world.view("cust/web"), before, "what it has stays");
}

#[test]
fn a_card_that_this_host_has_not_is_named() {
    let mut world = host();
    let card = CardId::new("card9").expect("a label");
    let refusal = world.ask(assign_to(card, 7, spec("nat", 5))).expect_err("no such card");
    let text = refusal.to_string();
    assert!(text.contains("it has to be on card9, as the fleet assigned it"), "{text}");
}

/// Its regions are drained: on another card there would be room, but that is the fleet's to decide.
#[test]
fn it_moves_between_regions_and_never_to_another_card() {
    let mut world = serving("nat");
    let region = world.regions_of("cust/web")[0];
    world.ask(Command::DrainRegion { card: card_id(), region }).expect("it is there");
    world.settle();
    assert_ne!(world.regions_of("cust/web"), [region]);
    assert_eq!((card_of(&world), world.state("cust/web")), (card_id(), DagState::Ready));
    // All of its regions fail: the other card is free, and it waits.
    let mut world = serving("nat");
    for region in world.region_states().iter().enumerate().map(|(at, _)| at as u8) {
        let region = snic_domain::RegionId(region);
        world.ask(Command::Cordon { card: card_id(), region: Some(region), on: true }).expect("ok");
    }
    world.lose_card();
    world.card().power_cycle();
    world.restart();
    world.settle();
    let view = world.view("cust/web");
    assert!(view.mapping.as_ref().is_none_or(|at| at.card == card_id()), "{view:?}");
    assert_eq!(held(&world), Some((card_id(), 7)));
}

/// Both cards are of this host: the DAG is taken off the one and created on the other in one batch.
#[test]
fn another_card_of_the_host_takes_it_over_in_one_step() {
    let mut world = serving("nat");
    let batches = world.batches;
    world.ask(assign_to(other_card(), 9, spec("nat", 5))).expect("there is room");
    assert_eq!(world.batches, batches + 1, "one batch");
    world.settle();
    assert_eq!((card_of(&world), world.state("cust/web")), (other_card(), DagState::Ready));
    // The order for the place before comes late, and means the other card.
    assert_eq!(world.ask(withdraw(card_id())), Ok(Reply::Done));
    assert_eq!(world.state("cust/web"), DagState::Ready);
    let nothing = world.reserved().0.iter().flatten().sum::<u64>();
    assert_eq!(nothing, 0, "the first card keeps nothing for it");
}

#[test]
fn what_is_refused_on_another_card_stays_where_it_is() {
    let mut world = serving("nat");
    let before = world.view("cust/web");
    world.ask(assign_to(other_card(), 9, spec("aes", 400))).expect_err("more than it has");
    assert_eq!((world.view("cust/web"), held(&world)), (before, Some((card_id(), 7))));
}

#[test]
fn a_withdrawn_dag_goes_and_again_is_no_error() {
    let mut world = serving("nat");
    operation(world.ask(withdraw(card_id())));
    world.settle();
    assert_eq!(held(&world), None);
    assert_eq!(world.ask(withdraw(card_id())), Ok(Reply::Done));
    // A DAG of the host is none of the fleet's.
    world.deploy("acme/web", "nat", 5);
    let name = dag("acme/web");
    let change = FleetChange::Withdraw { name, card: card_id(), if_detached: false };
    assert_eq!(world.ask(Command::Fleet(change)), Ok(Reply::Done));
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

/// Machines and rules are of this host: what they lead packets to goes with the fleet's plain order only.
#[test]
fn what_something_leads_to_stays_unless_it_is_to_go_anyway() {
    let withdraw_if_detached = || {
        let name = dag("cust/web");
        Command::Fleet(FleetChange::Withdraw { name, card: card_id(), if_detached: true })
    };
    let attached = |world: &World| {
        world.controller.attachments().get(&dag("cust/web")).copied().unwrap_or_default()
    };
    let mut world = serving("nat");
    world.deploy("acme/web", "nat", 5);
    world.ask(bind(BindingTarget::Dags(vec![dag("cust/web")]))).expect("there is room");
    let matches = Match { vni: Some(9), ..Match::default() };
    let (id, notes) = (RuleId::new("r").expect("a label"), Default::default());
    let rule = |dag| Rule { id: id.clone(), priority: 3, matches: matches.clone(), dag, notes };
    world.ask(Command::CreateRule(rule(dag("cust/web")))).expect("it is new");
    assert_eq!(attached(&world), DagAttachments { machines: 1, rules: 1 }, "its rule is its own");
    let (_, text) = precondition(world.ask(withdraw_if_detached()));
    assert!(text.contains("1 machine is bound to it and 1 rule leads to it"), "{text}");
    let vm = VmId::new("00000001-0000-4000-8000-000000000000").expect("a UUID");
    world.ask(Command::UnbindVm { vm, tenant: None }).expect("it is bound");
    assert_eq!(attached(&world), DagAttachments { machines: 0, rules: 1 });
    precondition(world.ask(withdraw_if_detached()));
    world.settle();
    assert_eq!((held(&world), world.state("cust/web")), (Some((card_id(), 7)), DagState::Ready));
    world.ask(Command::DeleteRule { id, etag: None }).expect("it is there");
    assert_eq!(world.controller.attachments().len(), 0, "a DAG of the host is not the fleet's");
    operation(world.ask(withdraw_if_detached()));
    world.settle();
    assert_eq!(held(&world), None);
}

#[test]
fn names_that_the_host_gave_are_not_taken_over() {
    let mut world = host();
    world.ask(Command::CreateTenant(tenant("cust"))).expect("the name is free");
    let (resource, text) = precondition(world.ask(assign(7, spec("nat", 5))));
    assert_eq!(resource, "tenants/cust");
    assert!(text.contains("created on this host"), "{text}");
    assert_eq!(world.tenant("cust").tenant, tenant("cust"));
    let (resource, _) = {
        world.join_fleet(false);
        world.ask(create("cust/web", spec("nat", 5))).expect("there is room");
        world.join_fleet(true);
        precondition(world.ask(assign(7, spec("nat", 5))))
    };
    assert_eq!(resource, dag("cust/web").to_string());
}

/// Everything that would change it, asked by its tenant and by an operator of the host.
#[test]
fn nobody_else_changes_what_the_fleet_manages() {
    let mut world = serving("nat");
    let own = nt("cust.own", 10);
    let image = || bitstream("cust.own", &["cust.own"]);
    world.ask(provide(Provision::NtType(own), 1)).expect("it is new");
    world.ask(provide(Provision::Bitstream(image()), 1)).expect("it is new");
    let running = operation_id(world.ask(assign(8, spec("lb", 5))));
    let new = NewDag { id: dag("cust/b").dag, spec: spec("nat", 1) };
    let batch = DagBatch {
        tenant: tenant_id("cust"),
        dags: vec![new],
        allow_partial: true,
        validate_only: false,
    };
    let changes = || {
        [
            create("cust/mine", spec("nat", 1)),
            update("cust/web", spec("nat", 9)),
            delete("cust/web"),
            cancel(&running),
            Command::CreateDags { batch: batch.clone(), plan: Default::default() },
            Command::CreateNtType(nt("cust.new", 10)),
            Command::CreateBitstream(Bitstream { id: bitstream_id("cust.new"), ..image() }),
            delete_nt("cust.own"),
            delete_bitstream("cust.own"),
        ]
    };
    let before = world.durable.clone();
    for caller in [operator(), caller("cust")] {
        for command in changes() {
            let (resource, text) = precondition(world.ask_as(caller.clone(), command.clone()));
            assert_eq!(text, MANAGED, "{command:?}");
            assert!(resource.contains("cust"), "{resource}");
        }
    }
    for command in [
        delete_tenant("cust", true),
        Command::UpdateTenant {
            id: tenant_id("cust"),
            patch: snic_domain::TenantPatch { weight: Some(9), ..Default::default() },
            etag: None,
        },
    ] {
        let guarded = Command::Guarded { etag: "x".into(), command: Box::new(command.clone()) };
        assert_eq!(precondition(world.ask(command)).1, MANAGED);
        world.ask(guarded).expect_err("it is none that is guarded so");
    }
    assert_eq!(world.durable, before);
    // Others are not even told that it is there.
    let dag_name = dag("cust/web").to_string();
    assert_eq!(absent(world.ask_as(caller("acme"), delete("cust/web"))), dag_name);
    // A DAG of the host is changed on the host.
    world.deploy("acme/web", "nat", 5);
    world.ask_as(caller("acme"), delete("acme/web")).expect("it is acme's");
}

fn bind(chains: BindingTarget) -> Command {
    Command::BindVm(BindingSpec {
        vm: VmId::new("00000001-0000-4000-8000-000000000000").expect("a UUID"),
        tenant: tenant_id("cust"),
        chains,
        functions: 1,
        ready_within: Duration::from_secs(10),
        lease: None,
        notes: Default::default(),
        limits: Default::default(),
    })
}

#[test]
fn a_machine_of_the_fleets_tenant_names_a_dag_and_no_template() {
    let mut world = serving("nat");
    let (_, text) = precondition(world.ask(bind(BindingTarget::Template(dag("cust/web")))));
    assert!(text.contains("instead of a template"), "{text}");
    world.ask(bind(BindingTarget::Dags(vec![dag("cust/web")]))).expect("there is room");
    world.settle();
    // Its functions are of the card: to another one it cannot follow.
    let (_, text) = precondition(world.ask(assign_to(other_card(), 9, spec("nat", 5))));
    assert!(text.contains("unbind it first"), "{text}");
}

#[test]
fn operators_clean_up_on_a_host_that_left_its_fleet() {
    let mut world = serving("nat");
    world.join_fleet(false);
    assert_eq!(precondition(world.ask_as(caller("cust"), delete("cust/web"))).1, MANAGED);
    world.ask(delete("cust/web")).expect("nobody else can");
    world.settle();
    world.ask(delete_tenant("cust", true)).expect("nobody else can");
}

#[test]
fn nothing_new_is_taken_under_maintenance_and_what_is_there_can_change() {
    let mut world = serving("nat");
    world.ask(Command::Maintain { reason: Some("new racks".into()) }).expect("it is off");
    world.ask(assign(8, spec("lb", 6))).expect("it is there already");
    let refused =
        world.ask(assigned(DagAssignment { name: dag("cust/new"), ..assignment(spec("nat", 1)) }));
    assert_eq!(refused.expect_err("it is new").kind(), "maintenance");
}

fn named(nt: &str) -> ProvisionName {
    ProvisionName::NtType(nt_id(nt))
}

fn image_named(id: &str) -> ProvisionName {
    ProvisionName::Bitstream(bitstream_id(id))
}

#[test]
fn what_the_fleet_provides_is_registered_once_and_listed_with_its_numbers() {
    let mut world = World::empty();
    world.add_card(card_id());
    world.settle();
    world.join_fleet(true);
    for _ in 0..2 {
        for (number, nt) in [(4, nt("nat", 40)), (5, nt("cust.own", 10))] {
            assert_eq!(world.ask(provide(Provision::NtType(nt), number)), Ok(Reply::Done));
        }
        for (number, id) in [(6, "nat"), (7, "cust.own")] {
            let image = Provision::Bitstream(bitstream(id, &[id]));
            assert_eq!(world.ask(provide(image, number)), Ok(Reply::Done));
        }
    }
    assert_eq!(world.tenant("cust").usage.nt_types, 1);
    let catalogue = [
        (named("cust.own"), 5),
        (named("nat"), 4),
        (image_named("cust.own"), 7),
        (image_named("nat"), 6),
    ];
    assert_eq!(world.controller.provisions(), catalogue, "the owner was not provided");
    world.ask(assign(3, spec("nat", 5))).expect("there is all that it needs");
    world.settle();
    assert_eq!(world.state("cust/web"), DagState::Ready);
    world.restart();
    world.settle();
    let customer = (ProvisionName::Tenant(tenant_id("cust")), 3);
    let all: Vec<_> = std::iter::once(customer).chain(catalogue).collect();
    assert_eq!(world.controller.provisions(), all, "they are stored");
}

/// All of what is new is added, or nothing: the second of two images is larger than any may be.
#[test]
fn further_images_are_added_together() {
    let mut world = World::empty();
    world.add_card(card_id());
    world.settle();
    world.join_fleet(true);
    world.ask(provide(Provision::NtType(nt("nat", 40)), 4)).expect("it is new");
    let of = bitstream("nat", &["nat"]);
    let with = |regions: &[u8]| {
        let mut all = image(&of, &regions[..1]);
        for region in &regions[1..] {
            all = all.with_images_of(&image(&of, &[*region])).expect("another region");
        }
        all
    };
    let held = |world: &World| {
        let view = world.controller.bitstream(&operator(), &bitstream_id("nat")).expect("there");
        (view.bitstream, view.fleet_number)
    };
    let put = |of: &Bitstream, number| provide(Provision::Bitstream(of.clone()), number);
    assert_eq!(world.ask(put(&with(&[0]), 6)), Ok(Reply::Done));
    let mut large = image(&of, &[2]);
    large.images.first_mut().size = BITSTREAM_BYTES_MAX + ByteSize::from_bytes(1);
    let too_large = with(&[0, 1]).with_images_of(&large).expect("another region");
    world.ask(put(&too_large, 7)).expect_err("one is too large");
    assert_eq!(held(&world), (with(&[0]), Some(6)));
    assert_eq!(world.ask(put(&with(&[0, 1, 2]), 7)), Ok(Reply::Done));
    assert_eq!(held(&world), (with(&[0, 1, 2]), Some(7)));
}

#[test]
fn what_is_used_is_not_retired_and_a_name_can_be_another_thing() {
    let mut world = World::empty();
    world.add_card(card_id());
    world.settle();
    world.join_fleet(true);
    let tenant = || ProvisionName::Tenant(tenant_id("cust"));
    for (number, id) in [(4, "nat"), (5, "cust.own")] {
        world.ask(provide(Provision::NtType(nt(id, 40)), number)).expect("it is new");
        let image = Provision::Bitstream(bitstream(id, &[id]));
        world.ask(provide(image, number)).expect("it is new");
    }
    world.ask(assign(3, spec("nat", 5))).expect("there is all that it needs");
    world.settle();
    assert!(precondition(world.ask(retire(image_named("nat"), 4))).1.contains("no other place"));
    assert!(precondition(world.ask(retire(named("nat"), 4))).1.contains("use it"));
    assert!(precondition(world.ask(retire(tenant(), 3))).1.contains("1 DAGs"));
    let other = Provision::NtType(nt("nat", 20));
    precondition(world.ask(provide(other.clone(), 9)));
    assert_eq!(world.ask(retire(named("nat"), 9)), Ok(Reply::Done), "that is another one");
    assert!(world.controller.nt_type(&operator(), &nt_id("nat")).is_some());
    operation(world.ask(withdraw(card_id())));
    world.settle();
    assert_eq!(world.ask(retire(tenant(), 3)), Ok(Reply::Done));
    assert_eq!(world.controller.provisions().len(), 4, "the tenant only owns things now");
    for (number, id) in [(4, "nat"), (5, "cust.own")] {
        assert_eq!(world.ask(retire(image_named(id), number)), Ok(Reply::Done));
        assert_eq!(world.ask(retire(image_named(id), number)), Ok(Reply::Done), "again");
    }
    assert_eq!(world.dropped, [digest("nat"), digest("cust.own")]);
    assert_eq!(world.ask(provide(other, 9)), Ok(Reply::Done), "nothing uses the one before");
    let view = world.controller.nt_type(&operator(), &nt_id("nat")).expect("it is there");
    assert_eq!((view.nt, view.fleet_number), (nt("nat", 20), Some(9)));
    assert_eq!(world.ask(retire(named("cust.own"), 5)), Ok(Reply::Done));
    assert!(world.controller.tenant_view(&tenant_id("cust")).is_none(), "nothing is left of it");
}

#[test]
fn what_the_host_registered_stays_the_hosts() {
    let mut world = host();
    assert_eq!(world.ask(provide(Provision::NtType(nt("nat", 40)), 4)), Ok(Reply::Done));
    let view = world.controller.nt_type(&operator(), &nt_id("nat")).expect("it is there");
    assert_eq!(view.fleet_number, None);
    let (_, text) = precondition(world.ask(provide(Provision::NtType(nt("nat", 10)), 4)));
    assert!(text.contains("created on this host"), "{text}");
    assert_eq!(world.ask(retire(named("nat"), 4)), Ok(Reply::Done));
    assert!(world.controller.nt_type(&operator(), &nt_id("nat")).is_some());
}

/// The daemon dies before and after every batch of a story: whatever assignment the store has, its card and serial
/// are with the DAG, and the same orders again lead to the same end.
#[test]
fn a_crash_never_separates_a_dag_from_its_card() {
    let orders = || {
        [
            assign(7, spec("nat", 5)),
            assign(8, spec("lb", 6)),
            assign_to(other_card(), 9, spec("lb", 6)),
            withdraw(card_id()),
        ]
    };
    let end = |crash: Option<Crash>| -> (Records, usize) {
        let mut world = host();
        let begin = world.batches;
        world.crash = crash.map(|crash| match crash {
            Crash::Before(at) => Crash::Before(at + begin),
            Crash::After(at) => Crash::After(at + begin),
        });
        for order in orders() {
            loop {
                let before = world.crash;
                let answer = ask_unless_dead(&mut world, order.clone());
                check_assigned(&world);
                if let Some(answer) = answer {
                    answer.expect("there is room");
                    world.settle();
                    check_assigned(&world);
                    if world.crash == before {
                        break;
                    }
                }
                assert!(world.crash.is_none(), "it died for another reason");
            }
        }
        assert_eq!(world.state("cust/web"), DagState::Ready);
        assert_eq!(held(&world), Some((other_card(), 9)));
        (world.durable.clone(), world.batches - begin)
    };
    let (_, batches) = end(None);
    assert!(batches >= 6, "{batches}");
    for at in 0..batches {
        end(Some(Crash::Before(at)));
        end(Some(Crash::After(at)));
    }
}

fn ask_unless_dead(world: &mut World, command: Command) -> Option<Answer> {
    let request = snic_controller::Request { caller: operator(), request_id: None, command };
    world.request(request)
}

/// Every DAG of the fleet's tenant has its assignment, and is on that card or on none.
fn check_assigned(world: &World) {
    for view in world.controller.dags(Some(&tenant_id("cust"))) {
        let to = view.assigned.as_ref().expect("the fleet assigned it");
        assert!(view.mapping.as_ref().is_none_or(|at| at.card == to.card), "{view:?}");
    }
}

/// Its load fails for good: the fleet is told so, and may take it elsewhere.
#[test]
fn a_dag_whose_place_is_gone_has_failed() {
    let mut world = host();
    for region in 1..4 {
        let region = Some(snic_domain::RegionId(region));
        world.ask(Command::Cordon { card: card_id(), region, on: true }).expect("it is there");
    }
    world.ask(assign(7, spec("nat", 5))).expect("there is room");
    let is_load = |command: &CardCommand| matches!(command, CardCommand::Load { .. });
    assert!(world.asked.iter().any(|(_, command)| is_load(command)));
    world.card().bad_regions.insert(snic_domain::RegionId(0), LoadFailure::Controller { code: 2 });
    world.settle();
    let AssignmentProgress::Failed(Some(why)) = progress(&world) else {
        panic!("{:?}", progress(&world))
    };
    assert_eq!(why.kind(), "capacity", "{why}");
    let told = world.changes.iter().any(|(change, _)| matches!(change, Change::Dag(..)));
    assert!(told, "who watches hears of it");
}
