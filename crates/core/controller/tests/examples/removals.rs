//! Bitstreams and tenants that an operator deletes while DAGs of others use them: these DAGs move first, make
//! before break, or nothing is deleted.

use snic_controller::{Command, ControlError, Event, OperationWork, Reply};
use snic_domain::{
    Bandwidth, Bitstream, Condition, ConditionStatus, ConditionType, DagSpec, DagState,
};
use snic_tables::DagRow;

use crate::support::things::{
    bitstream, bitstream_id, caller, cancel, card_id, create, dag, delete, delete_bitstream,
    delete_tenant, nt, spec, tenant, tenant_id, update,
};
use crate::support::{Crash, World, operation_id, operator, precondition};

fn upload(bitstream: Bitstream) -> Command {
    Command::CreateBitstream(bitstream)
}

fn trusting(chain: &str, gbps: u64, owner: &str) -> DagSpec {
    DagSpec { trusted_tenants: [tenant_id(owner)].into(), ..spec(chain, gbps) }
}

/// The images that a DAG's packets pass.
fn images(world: &World, name: &str) -> Vec<String> {
    let mapping = world.view(name).mapping.expect("it has a place");
    let mut images: Vec<String> = mapping.instances().map(|i| i.bitstream.to_string()).collect();
    images.sort_unstable();
    images.dedup();
    images
}

fn exists(world: &World, bitstream: &str) -> bool {
    world.controller.bitstream(&operator(), &bitstream_id(bitstream)).is_some()
}

/// `acme/web` and `acme/api` are in `lb`, and there is another image with the same NT.
fn two_in_lb() -> World {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    world.deploy("acme/api", "lb", 5);
    world.ask(upload(bitstream("lb-2", &["lb"]))).expect("valid");
    assert_eq!([images(&world, "acme/web"), images(&world, "acme/api")], [["lb"], ["lb"]]);
    world
}

/// Has everything answered, and looks at the card at every step: the DAGs never stop.
fn run_without_a_gap(world: &mut World, names: &[&str]) {
    let uids: Vec<_> = names.iter().map(|name| world.view(name).uid).collect();
    while world.answer_one().is_some() {
        for (name, uid) in names.iter().zip(&uids) {
            let row: Option<DagRow> = world.card().tables.get(uid.row());
            assert!(row.is_some(), "{name} is not served");
        }
    }
}

#[test]
fn the_dags_of_a_bitstream_move_before_it_is_deleted() {
    let mut world = two_in_lb();
    let id = operation_id(world.ask(delete_bitstream("lb")));
    let view = world.operation(&id);
    assert_eq!(view.record.work, OperationWork::DeleteBitstream(bitstream_id("lb")));
    assert_eq!((view.dags_left, view.is_done()), (2, false));
    assert_eq!(view.stage.as_deref(), Some("2 DAGs still use it"));
    assert!(world.dropped.is_empty(), "they are still in it");
    run_without_a_gap(&mut world, &["acme/web", "acme/api"]);
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(world.operation(&id).dags_left, 0);
    assert_eq!([images(&world, "acme/web"), images(&world, "acme/api")], [["lb-2"], ["lb-2"]]);
    assert_eq!(world.dropped, [crate::support::things::digest("lb")]);
    let held = (0..4).filter(|r| world.region(*r).bitstream == Some(bitstream_id("lb"))).count();
    assert_eq!(held, 0, "the regions that held it are free");
    for name in ["acme/web", "acme/api"] {
        let Condition { status, .. } = world.condition(name, ConditionType::PromiseKept);
        assert_eq!((world.state(name), status), (DagState::Ready, ConditionStatus::True));
    }
}

#[test]
fn what_is_to_be_deleted_is_in_no_new_plan() {
    let mut world = two_in_lb();
    world.ask(delete_bitstream("lb")).expect("they can move");
    world.ask(create("beta/new", spec("lb", 1))).expect("in another one");
    world.settle();
    assert_eq!(images(&world, "beta/new"), ["lb-2"]);
}

#[test]
fn asked_again_it_is_the_same_operation() {
    let mut world = two_in_lb();
    let first = operation_id(world.ask(delete_bitstream("lb")));
    assert_eq!(operation_id(world.ask(delete_bitstream("lb"))), first);
}

#[test]
fn without_another_place_nothing_is_deleted_and_nothing_changes() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 5);
    let before = (world.durable.clone(), world.reserved());
    let (resource, text) = precondition(world.ask(delete_bitstream("lb")));
    assert_eq!(resource, "bitstreams/lb");
    assert!(text.contains("tenants/acme/dags/web") && text.contains("no other place"), "{text}");
    assert_eq!((world.durable.clone(), world.reserved()), before);
    world.deploy("acme/more", "lb", 5);
    assert_eq!(images(&world, "acme/more"), ["lb"], "it is planned with as before");
}

/// One of two DAGs has no other place: the second region that would be needed is taken.
#[test]
fn if_a_later_one_has_no_place_the_bitstream_stays_and_serves() {
    let mut world = World::new();
    world.ask(Command::CreateNtType(nt("gre", 10))).expect("valid");
    world.ask(upload(bitstream("gre", &["gre"]))).expect("valid");
    for (name, chain) in [("acme/a", "gre"), ("acme/b", "gre"), ("beta/c", "lb")] {
        world.deploy(name, chain, if chain == "gre" { 10 } else { 1 });
    }
    world.ask(upload(bitstream("gre-2", &["gre"]))).expect("valid");
    // Each of the two takes a whole instance, and one region is free.
    let id = operation_id(world.ask(delete_bitstream("gre")));
    world.settle();
    let Some(Err(ControlError::Precondition { resource, description })) = world.ended(&id) else {
        panic!("{:?}", world.ended(&id));
    };
    assert_eq!(resource, "bitstreams/gre");
    assert!(description.contains("no other place"), "{description}");
    for name in ["acme/a", "acme/b"] {
        assert_eq!(world.state(name), DagState::Ready, "{name}");
    }
    assert!(world.dropped.is_empty());
    assert!(exists(&world, "gre"));
    world.ask(delete("beta/c")).expect("it exists");
    world.settle();
    world.ask(update("acme/a", spec("gre", 9))).expect("planned with again");
}

#[test]
fn a_tenant_does_not_move_others() {
    let mut world = World::new();
    world.ask(Command::CreateNtType(nt("gre", 40))).expect("valid");
    world.ask(upload(bitstream("beta.gre", &["gre"]))).expect("valid");
    world.deploy("beta/own", "gre", 1);
    world.ask(upload(bitstream("gre-2", &["gre"]))).expect("valid");
    let (_, text) = precondition(world.ask_as(caller("beta"), delete_bitstream("beta.gre")));
    assert_eq!(text, "DAGs use it; delete or change them first");
}

#[test]
fn a_cancelled_removal_leaves_the_bitstream_as_it_was() {
    let mut world = two_in_lb();
    let id = operation_id(world.ask(delete_bitstream("lb")));
    assert!(world.operation(&id).cancellable);
    assert_eq!(world.ask(cancel(&id)), Ok(Reply::Done));
    world.settle();
    assert_eq!(world.ended(&id), Some(Err(ControlError::Cancelled)));
    assert!(world.dropped.is_empty());
    assert!(exists(&world, "lb"));
    assert_eq!(world.state("acme/web"), DagState::Ready);
    let back = operation_id(world.ask(delete_bitstream("lb-2")));
    world.settle();
    assert_eq!((world.ended(&back), images(&world, "acme/web")), (Some(Ok(())), vec!["lb".into()]));
}

/// Whenever the daemon dies, the removal goes on, and the DAGs are served.
#[test]
fn a_crash_at_any_batch_ends_the_same() {
    let batches = {
        let mut world = two_in_lb();
        let before = world.batches;
        world.ask(delete_bitstream("lb")).expect("they can move");
        world.settle();
        world.batches - before
    };
    assert!(batches >= 2, "{batches}: one begins it, one ends it");
    for crash in (0..batches).flat_map(|n| [Crash::Before(n), Crash::After(n)]) {
        let mut world = two_in_lb();
        let at = world.batches;
        world.crash = Some(match crash {
            Crash::Before(n) => Crash::Before(at + n),
            Crash::After(n) => Crash::After(at + n),
        });
        let request = snic_controller::Request {
            caller: operator(),
            request_id: None,
            command: delete_bitstream("lb"),
        };
        let _ = world.request(request);
        world.settle();
        world.handle(Event::Tick);
        world.settle();
        if crash == Crash::Before(0) {
            world.ask(delete_bitstream("lb")).expect("it was never asked for");
            world.settle();
        }
        assert_eq!(images(&world, "acme/web"), ["lb-2"], "{crash:?}");
        assert_eq!(images(&world, "acme/api"), ["lb-2"], "{crash:?}");
        assert!(!exists(&world, "lb"), "{crash:?}");
        assert_eq!(world.state("acme/web"), DagState::Ready, "{crash:?}");
    }
}

/// `acme` is in an image of `beta`, which it trusts; the provider has one of its own.
fn in_an_image_of_beta() -> World {
    let mut world = World::new();
    world.ask(Command::CreateNtType(nt("gre", 40))).expect("valid");
    world.ask(upload(bitstream("beta.gre", &["gre"]))).expect("valid");
    world.deploy("beta/own", "gre", 1);
    world.ask(create("acme/web", trusting("gre", 5, "beta"))).expect("acme trusts beta");
    world.settle();
    assert_eq!(images(&world, "acme/web"), ["beta.gre"]);
    world
}

#[test]
fn the_dags_of_others_move_before_a_tenant_is_deleted() {
    let mut world = in_an_image_of_beta();
    let (_, text) = precondition(world.ask(delete_tenant("beta", true)));
    assert!(text.contains("tenants/acme/dags/web"), "there is no other image: {text}");
    world.ask(upload(bitstream("gre", &["gre"]))).expect("valid");
    let id = operation_id(world.ask(delete_tenant("beta", true)));
    assert_eq!(world.operation(&id).record.work, OperationWork::DeleteTenant(tenant_id("beta")));
    assert!(world.controller.tenant_view(&tenant_id("beta")).is_some(), "not before they moved");
    assert_eq!(world.state("beta/own"), DagState::Ready, "its own are served until then");
    run_without_a_gap(&mut world, &["acme/web"]);
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(images(&world, "acme/web"), ["gre"]);
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert!(world.controller.tenant_view(&tenant_id("beta")).is_none());
    assert!(world.controller.dag_view(&dag("beta/own")).is_none());
    let left: Vec<_> = world
        .durable
        .iter()
        .filter(|(key, _)| key.contains("beta"))
        // What is remembered is only that they are gone.
        .filter(|(key, _)| !key.starts_with("operations/") && !key.starts_with("deleted/"))
        // It stored bitstreams, for which it pays.
        .filter(|(key, _)| !key.starts_with("usage-open/accounts/-/"))
        .map(|(key, _)| key)
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Resources that the tenant registers while it is being deleted do not keep it.
#[test]
fn a_tenant_that_is_being_deleted_cannot_hold_on_to_others() {
    let mut world = in_an_image_of_beta();
    world.ask(upload(bitstream("gre", &["gre"]))).expect("valid");
    let id = operation_id(world.ask(delete_tenant("beta", true)));
    world.ask(upload(bitstream("beta.more", &["gre"]))).expect("it is there yet");
    world.ask(create("acme/late", trusting("gre", 1, "beta"))).expect("somewhere");
    world.settle();
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(images(&world, "acme/late"), ["gre"]);
}

/// Whoever is called `beta` later is another. A stranger's image is no place for a DAG, whatever its
/// name was once trusted with.
#[test]
fn a_later_tenant_of_the_same_name_is_not_trusted() {
    for restarts in [false, true] {
        let mut world = in_an_image_of_beta();
        world.ask(upload(bitstream("gre", &["gre"]))).expect("valid");
        let before = world.view("acme/web");
        world.ask(delete_tenant("beta", true)).expect("there is another image");
        world.settle();
        let after = world.view("acme/web");
        assert_eq!(after.spec, spec("gre", 5), "it trusts nobody");
        assert_eq!(after.generation, before.generation + 1);
        assert_eq!(after.observed_generation, after.generation);
        assert_eq!(after.state, DagState::Ready);
        assert_ne!(after.etag, before.etag, "who has read the old one writes over nothing");
        if restarts {
            world.restart();
            world.settle();
            let again = world.view("acme/web");
            assert_eq!((again.spec, again.generation), (after.spec, after.generation));
        }
        world.ask(Command::CreateTenant(tenant("beta"))).expect("the name is free");
        world.ask(upload(bitstream("beta.pair", &["gre", "lb"]))).expect("valid");
        world.deploy("beta/own", "gre lb", 1);
        assert_eq!(images(&world, "beta/own"), ["beta.pair"], "whoever trusts it may pass there");
        let (_, text) = precondition(world.ask(delete_bitstream("gre")));
        assert!(text.contains("tenants/acme/dags/web"), "it has no other place: {text}");
        assert_eq!(images(&world, "acme/web"), ["gre"]);
    }
}

/// An image of its own is not needed for that: what counts is the name.
#[test]
fn trust_ends_with_a_tenant_that_has_nothing() {
    let mut world = World::new();
    world.ask(create("acme/web", trusting("nat", 1, "beta"))).expect("there is room");
    world.settle();
    world.lose_card();
    assert_eq!(world.ask(delete_tenant("beta", false)), Ok(Reply::Done));
    assert!(world.view("acme/web").spec.trusted_tenants.is_empty());
    world.appear(&card_id());
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

#[test]
#[ignore = "ci: seconds"]
fn a_tenant_that_many_trust_goes_in_steps_over_a_restart() {
    const TENANTS: usize = 4;
    const DAGS: usize = 200;
    let mut world = World::new();
    let least = |owner| DagSpec { bandwidth: Bandwidth::from_mbps(1), ..trusting("nat", 1, owner) };
    for owner in 0..TENANTS {
        world.ask(Command::CreateTenant(tenant(&format!("t{owner}")))).expect("valid");
        for number in 0..DAGS / TENANTS {
            let name = format!("t{owner}/d{number}");
            world.ask(create(&name, least("beta"))).expect("there is room");
        }
    }
    world.settle();
    let trusting = |world: &World| {
        let views = world.controller.dags(None);
        views.iter().filter(|view| !view.spec.trusted_tenants.is_empty()).count()
    };
    let id = operation_id(world.ask(delete_tenant("beta", false)));
    let left = trusting(&world);
    assert!((1..DAGS).contains(&left), "not all with one event: {left}");
    assert_eq!(world.ended(&id), None);
    // Names that are struck would not come back.
    assert!(!world.operation(&id).cancellable);
    let (_, why) = precondition(world.ask(cancel(&id)));
    assert!(why.contains("wait for its end"), "{why}");
    world.restart();
    world.settle();
    assert_eq!(trusting(&world), 0);
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert!(world.controller.tenant_view(&tenant_id("beta")).is_none());
}
