//! Rejected bitstreams that are tried again.

use std::time::Duration;

use snic_controller::{BitstreamView, Command};
use snic_domain::{Bitstream, Caller};
use snic_tables::LoadFailure;

use crate::support::things::{
    bitstream, bitstream_id, caller, create, delete_bitstream, delete_tenant, digest, spec, tenant,
    with_bytes,
};
use crate::support::{World, absent, operator, precondition};

const REFUSED: LoadFailure = LoadFailure::Controller { code: 9 };

fn retry(etag: Option<&str>) -> Command {
    Command::RetryBitstream { id: bitstream_id("lb"), etag: etag.map(str::to_owned) }
}

fn lb(world: &World, who: &Caller) -> BitstreamView {
    world.controller.bitstream(who, &bitstream_id("lb")).expect("it is there")
}

#[test]
fn a_rejected_bitstream_can_be_retried() {
    let mut world = World::new();
    let who = operator();
    let fresh = lb(&world, &who);
    let error = world.ask(retry(None)).expect_err("it is not rejected");
    assert!(error.to_string().ends_with("it is not rejected"), "{error}");
    world.card().bad_digests.insert(digest("lb"), REFUSED);
    world.ask(create("acme/web", spec("lb", 5))).expect("there is room");
    world.settle();
    let rejected = lb(&world, &who);
    let rejection = rejected.rejection.expect("rejected");
    assert!(rejection.reason.contains("error 9"), "{}", rejection.reason);
    assert_eq!(rejection.retry_from.since(rejection.since), Duration::from_secs(60));
    assert_ne!(rejected.etag, fresh.etag);
    world.ask(retry(Some(&fresh.etag))).expect_err("it has changed since");
    // An operator does not wait. It is rejected again, for a longer time.
    world.ask(retry(Some(&rejected.etag))).expect("an operator");
    assert_eq!(lb(&world, &who).rejection, None);
    world.ask(create("acme/b", spec("lb", 1))).expect("it is planned with again");
    world.settle();
    let again = lb(&world, &who).rejection.expect("it is as broken as before");
    assert_eq!(again.retry_from.since(again.since), Duration::from_secs(120));
    assert!(again.since > rejection.since);
    world.restart();
    world.settle();
    assert_eq!(lb(&world, &who).rejection, Some(again));
    // It was the card after all.
    world.card().bad_digests.clear();
    world.ask(retry(None)).expect("an operator");
    world.deploy("acme/c", "lb", 1);
    assert_eq!(lb(&world, &who).rejection, None);
}

/// Each retry may cost others two regions for a while, so a tenant waits longer before each one.
#[test]
fn a_tenant_waits_longer_with_each_rejection() {
    let mut world = World::new();
    let id = bitstream_id("acme.own");
    let own = Bitstream { shareable: false, ..bitstream("acme.own", &["lb"]) };
    world.ask_as(caller("acme"), Command::CreateBitstream(own)).expect("its own");
    let retry = || Command::RetryBitstream { id: id.clone(), etag: None };
    let foreign = Command::RetryBitstream { id: bitstream_id("lb"), etag: None };
    let error = precondition(world.ask_as(caller("acme"), foreign)).1;
    assert_eq!(error, "only its owner can retry it");
    assert_eq!(absent(world.ask_as(caller("globex"), retry())), "bitstreams/acme.own");
    for name in ["lb", "acme.own"] {
        world.card().bad_digests.insert(digest(name), REFUSED);
    }
    for (round, seconds) in [(0, 60), (1, 120), (2, 240)] {
        let name = format!("acme/web{round}");
        world.ask(create(&name, spec("lb", 5))).expect("there is room");
        world.settle();
        let view = world.controller.bitstream(&caller("acme"), &id).expect("its own");
        let rejection = view.rejection.expect("it is as broken as before");
        assert_eq!(rejection.retry_from.since(rejection.since), Duration::from_secs(seconds));
        let left = rejection.retry_from.since(world.now);
        let error = precondition(world.ask_as(caller("acme"), retry())).1;
        let said = format!("it can be retried in {} s", left.as_secs() + 1);
        assert!(error.ends_with(&said), "{error}: {said}");
        world.pass(left);
        world.ask_as(caller("acme"), retry()).expect("it has waited");
    }
}

/// A broken image of acme with these bytes is loaded until it is rejected: `acme.NAME`, for the NT `lb`.
fn reject(world: &mut World, name: &str, dag: &str) -> BitstreamView {
    world.ask(create(dag, spec("lb", 5))).expect("there is room");
    world.settle();
    of_acme(world, name)
}

fn of_acme(world: &World, name: &str) -> BitstreamView {
    world.controller.bitstream(&caller("acme"), &bitstream_id(name)).expect("its own")
}

/// Its owner uploads the bytes of `acme.own` under a name.
fn upload(world: &mut World, name: &str) -> BitstreamView {
    let again =
        Bitstream { shareable: false, ..with_bytes(bitstream(name, &["lb"]), digest("acme.own")) };
    world.ask_as(caller("acme"), Command::CreateBitstream(again)).expect("its own");
    of_acme(world, name)
}

/// Only acme's images have the NT `lb`, and they cannot be loaded.
fn with_a_broken_image() -> World {
    let mut world = World::new();
    world.ask(delete_bitstream("lb")).expect("nobody uses it");
    upload(&mut world, "acme.own");
    world.card().bad_digests.insert(digest("acme.own"), REFUSED);
    world
}

fn delete_own(world: &mut World, name: &str) {
    world.ask_as(caller("acme"), delete_bitstream(name)).expect("its own");
    world.settle();
}

#[test]
fn to_delete_and_upload_the_same_bytes_again_does_not_shorten_the_wait() {
    let mut world = with_a_broken_image();
    let first = reject(&mut world, "acme.own", "acme/a").rejection.expect("it is broken");
    delete_own(&mut world, "acme.own");
    let loads = world.card().loads.len();
    for name in ["acme.own", "acme.other"] {
        let again = upload(&mut world, name);
        assert_eq!(again.rejection, Some(first.clone()), "{name}");
        world.settle();
        let retry = Command::RetryBitstream { id: bitstream_id(name), etag: None };
        let error = precondition(world.ask_as(caller("acme"), retry)).1;
        assert!(error.contains("rejections so far: 1"), "{error}");
    }
    delete_own(&mut world, "acme.own");
    delete_own(&mut world, "acme.other");
    world.restart();
    world.settle();
    assert_eq!(upload(&mut world, "acme.own").rejection, Some(first.clone()));
    delete_own(&mut world, "acme.own");
    assert_eq!(world.card().loads.len(), loads, "nothing was loaded");

    // After the wait an upload is a retry, and the next wait is longer.
    world.pass(first.retry_from.since(world.now));
    assert_eq!(upload(&mut world, "acme.own").rejection, None);
    world.settle();
    let second = of_acme(&world, "acme.own").rejection.expect("`acme/a` waits for it");
    assert_eq!(second.retry_from.since(second.since), Duration::from_secs(120));
    assert!(world.card().loads.len() > loads);

    // A day later nobody remembers.
    delete_own(&mut world, "acme.own");
    world.pass(Duration::from_secs(24 * 3600));
    upload(&mut world, "acme.own");
    world.settle();
    let third = of_acme(&world, "acme.own").rejection.expect("it is as broken as before");
    assert_eq!(third.retry_from.since(third.since), Duration::from_secs(60));
}

#[test]
fn what_is_remembered_is_of_one_tenant_and_goes_with_it() {
    let mut world = with_a_broken_image();
    reject(&mut world, "acme.own", "acme/a").rejection.expect("it is broken");
    delete_own(&mut world, "acme.own");
    let bytes = with_bytes(bitstream("beta.same", &["lb"]), digest("acme.own"));
    world.ask_as(caller("beta"), Command::CreateBitstream(bytes)).expect("its own");
    let of_beta = world.controller.bitstream(&caller("beta"), &bitstream_id("beta.same"));
    assert_eq!(of_beta.expect("its own").rejection, None, "it cannot tell what others tried");
    world.ask(delete_tenant("acme", true)).expect("operators");
    world.settle();
    world.ask(Command::CreateTenant(tenant("acme"))).expect("the name is free");
    assert_eq!(upload(&mut world, "acme.own").rejection, None, "another tenant");
}
