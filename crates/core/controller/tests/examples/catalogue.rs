//! NT types and bitstreams: who may register them, what is refused, what removing them frees.

use snic_controller::{BitstreamView, Command, ControlError, NtView, Reply};
use snic_domain::limits::{BITSTREAM_BYTES_MAX, CHAIN_SLOTS_MAX, DESCRIPTION_BYTES_MAX};
use snic_domain::{
    Area, Bandwidth, Bitstream, ByteSize, DagSpec, DagState, NtType, Quota, RegionImages,
    RegionState,
};

use crate::support::things::{
    bitstream, bitstream_id, caller, card_id, create, delete, delete_bitstream, delete_nt, digest,
    nt, nt_id, spec, tenant_id, update, with_bytes,
};
use crate::support::{Answer, World, absent, operator, over_quota, precondition, wrong_field};

fn nt_view(answer: Answer) -> NtView {
    match answer {
        Ok(Reply::NtType(view)) => view,
        other => panic!("not an NT type: {other:?}"),
    }
}

fn bitstream_view(answer: Answer) -> BitstreamView {
    match answer {
        Ok(Reply::Bitstream(view)) => view,
        other => panic!("not a bitstream: {other:?}"),
    }
}

fn upload(bitstream: Bitstream) -> Command {
    Command::CreateBitstream(bitstream)
}

#[test]
fn an_nt_type_has_the_code_of_its_id_and_never_changes() {
    let mut world = World::without_card();
    let view = nt_view(world.ask(Command::CreateNtType(nt("gre", 40))));
    assert_eq!(view.code, nt_id("gre").code());
    let other = Command::CreateNtType(nt("gre", 20));
    let exists = ControlError::AlreadyExists { resource: "ntTypes/gre".into() };
    assert_eq!(world.ask(other), Err(exists));
    let now = world.controller.nt_type(&operator(), &nt_id("gre")).expect("registered");
    assert_eq!(now, view);
}

#[test]
fn an_nt_type_without_bandwidth_or_area_is_refused() {
    let mut world = World::without_card();
    let area = |lut| Area { lut, ramb36: 0, dsp: 0 };
    let bps = |bps| NtType { bandwidth_max: Bandwidth::from_bps(bps), ..nt("gre", 1) };
    let long = "é".repeat(DESCRIPTION_BYTES_MAX / 2);
    let described = |description| NtType { description, ..nt("gre", 1) };
    let cases = [
        (bps(0), "nt_type.bandwidth_max_bps"),
        (bps(999), "nt_type.bandwidth_max_bps"),
        (bps(1_000_001), "nt_type.bandwidth_max_bps"),
        (NtType { area: area(0), ..nt("gre", 1) }, "nt_type.area.lut"),
        (described(format!("{long}x")), "nt_type.description"),
    ];
    for (nt, field) in cases {
        assert_eq!(wrong_field(world.ask(Command::CreateNtType(nt))), field);
    }
    nt_view(world.ask(Command::CreateNtType(described(long))));
    let least = NtType { id: nt_id("least"), ..bps(1_000) };
    nt_view(world.ask(Command::CreateNtType(least)));
}

#[test]
fn the_owner_is_the_part_before_the_dot() {
    let mut world = World::without_card();
    let register = |world: &mut World, who: &str, id: &str| {
        world.ask_as(caller(who), Command::CreateNtType(nt(id, 1)))
    };
    nt_view(register(&mut world, "acme", "acme.filter"));
    for foreign in ["filter", "beta.filter", "nobody.filter"] {
        assert_eq!(wrong_field(register(&mut world, "acme", foreign)), "nt_type_id");
        let upload = upload(bitstream(foreign, &["nat"]));
        assert_eq!(wrong_field(world.ask_as(caller("acme"), upload)), "bitstream_id");
    }
    let of_nobody = Command::CreateNtType(nt("nobody.filter", 1));
    assert_eq!(wrong_field(world.ask(of_nobody)), "nt_type_id");
}

#[test]
fn a_private_nt_type_is_seen_by_its_owner_and_operators() {
    let mut world = World::without_card();
    let private = NtType { shareable: false, ..nt("acme.secret", 1) };
    world.ask_as(caller("acme"), Command::CreateNtType(private)).expect("its own");
    let id = nt_id("acme.secret");
    let sees = |world: &World, who| {
        let listed = world.controller.nt_types(&who).any(|view| view.nt.id == id);
        assert_eq!(listed, world.controller.nt_type(&who, &id).is_some());
        listed
    };
    assert!(sees(&world, operator()));
    assert!(sees(&world, caller("acme")));
    assert!(!sees(&world, caller("beta")));
    // Absent and not visible look the same.
    let uses = upload(bitstream("beta.b", &["nat", "acme.secret"]));
    let unknown = upload(bitstream("beta.b", &["nat", "acme.nothing"]));
    let error = world.ask_as(caller("beta"), uses).expect_err("not visible").to_string();
    let other = world.ask_as(caller("beta"), unknown).expect_err("absent").to_string();
    assert_eq!(error.replace("secret", "nothing"), other);
    assert_eq!(
        absent(world.ask_as(caller("beta"), delete_nt("acme.secret"))),
        "ntTypes/acme.secret"
    );
}

#[test]
fn only_its_owner_deletes_an_nt_type() {
    let mut world = World::without_card();
    let (resource, _) = precondition(world.ask_as(caller("acme"), delete_nt("lb")));
    assert_eq!(resource, "ntTypes/lb");
    assert_eq!(absent(world.ask_as(caller("acme"), delete_nt("none"))), "ntTypes/none");
    world.ask_as(caller("acme"), Command::CreateNtType(nt("acme.a", 1))).expect("its own");
    assert_eq!(world.ask_as(caller("acme"), delete_nt("acme.a")), Ok(Reply::Done));
    assert!(world.controller.nt_type(&operator(), &nt_id("acme.a")).is_none());
}

#[test]
fn an_nt_type_in_use_is_not_deleted() {
    let mut world = World::new();
    let (_, text) = precondition(world.ask(delete_nt("lb")));
    assert!(text.contains("1 bitstreams and 0 DAGs"), "{text}");
    world.deploy("acme/web", "lb", 1);
    let (_, text) = precondition(world.ask(delete_nt("lb")));
    assert!(text.contains("1 bitstreams and 1 DAGs"), "{text}");
    world.ask(delete("acme/web")).expect("it exists");
    world.settle();
    world.ask(delete_bitstream("lb")).expect("no DAG uses it");
    assert_eq!(world.ask(delete_nt("lb")), Ok(Reply::Done));
    assert_eq!(absent(world.ask(delete_nt("lb"))), "ntTypes/lb");
}

#[test]
fn a_tenant_is_not_told_how_many_others_use_its_nt_type() {
    let mut world = World::new();
    world.ask_as(caller("acme"), Command::CreateNtType(nt("acme.a", 1))).expect("its own");
    world.ask_as(caller("beta"), upload(bitstream("beta.b", &["acme.a"]))).expect("shareable");
    let (_, text) = precondition(world.ask_as(caller("acme"), delete_nt("acme.a")));
    assert!(!text.contains('1'), "{text}");
}

#[test]
fn etags_guard_deletes() {
    let mut world = World::without_card();
    let wrong = Some("0".to_owned());
    let nt = Command::DeleteNtType { id: nt_id("lb"), etag: wrong.clone() };
    let bitstream = Command::DeleteBitstream { id: bitstream_id("lb"), image: None, etag: wrong };
    for command in [nt, bitstream] {
        let error = world.ask(command).expect_err("the etag is another");
        assert!(matches!(error, ControlError::EtagMismatch { .. }), "{error}");
    }
    let etag = world
        .controller
        .bitstreams(&operator())
        .find(|view| view.bitstream.id == bitstream_id("lb"))
        .map(|view| view.etag);
    assert!(etag.is_some());
    let right = Command::DeleteBitstream { id: bitstream_id("lb"), image: None, etag };
    assert_eq!(world.ask(right), Ok(Reply::Done));
}

#[test]
fn a_bitstream_names_known_nts_and_has_a_size() {
    let mut world = World::without_card();
    let nine = vec!["nat"; CHAIN_SLOTS_MAX + 1];
    let sized = |bytes| Bitstream {
        images: RegionImages::for_all(digest("b"), ByteSize::from_bytes(bytes)),
        ..bitstream("b", &["nat"])
    };
    let cases = [
        (bitstream("b", &[]), "nts"),
        (bitstream("b", &nine), "nts"),
        (bitstream("b", &["nat", "nix"]), "nts[1]"),
        (sized(0), "size_bytes"),
        (sized(BITSTREAM_BYTES_MAX.get() + 1), "size_bytes"),
    ];
    for (bitstream, field) in cases {
        assert_eq!(wrong_field(world.ask(upload(bitstream))), field);
    }
    let view = bitstream_view(world.ask(upload(sized(BITSTREAM_BYTES_MAX.get()))));
    assert_eq!(view.area, Area { lut: 1_000, ramb36: 1, dsp: 0 });
    let again = world.ask(upload(bitstream("b", &["lb"])));
    let exists = ControlError::AlreadyExists { resource: "bitstreams/b".into() };
    assert_eq!(again, Err(exists));
}

#[test]
fn the_providers_bitstreams_are_always_shareable() {
    let mut world = World::without_card();
    let private = |id| upload(Bitstream { shareable: false, ..bitstream(id, &["nat"]) });
    assert!(bitstream_view(world.ask(private("b"))).bitstream.shareable);
    assert!(!bitstream_view(world.ask(private("acme.b"))).bitstream.shareable);
}

#[test]
fn bitstreams_have_a_quota_of_their_number_and_bytes() {
    let mut world = World::without_card();
    let bytes = ByteSize::from_bytes(8_192 * 2);
    let quota = Quota { bitstreams_max: 3, bitstream_bytes_max: bytes, ..Quota::default() };
    let set = |quota: Quota| Command::UpdateTenant {
        id: tenant_id("acme"),
        patch: snic_domain::TenantPatch { quota: Some(quota.into()), ..Default::default() },
        etag: None,
    };
    world.ask(set(quota)).expect("valid");
    let own = |id: &str| upload(bitstream(id, &["nat"]));
    for id in ["acme.a", "acme.b"] {
        world.ask(own(id)).expect("within the quota");
    }
    let (quota_name, limit, asked) = over_quota(world.ask(own("acme.c")));
    assert_eq!((&*quota_name, &*limit, &*asked), ("bitstream_bytes_max", "16 KiB", "24 KiB"));
    world.ask(set(Quota { bitstreams_max: 2, ..Quota::default() })).expect("valid");
    let (quota_name, limit, asked) = over_quota(world.ask(own("acme.c")));
    assert_eq!((&*quota_name, &*limit, &*asked), ("bitstreams_max", "2", "3"));
    world.ask(own("beta.c")).expect("another's quota");
    world.ask(own("c")).expect("the provider has none");
}

#[test]
fn a_bitstream_in_use_is_not_deleted() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 1);
    let (resource, _) = precondition(world.ask(delete_bitstream("lb")));
    assert_eq!(resource, "bitstreams/lb");
    let (resource, _) = precondition(world.ask_as(caller("acme"), delete_bitstream("nat")));
    assert_eq!(resource, "bitstreams/nat");
    assert_eq!(
        absent(world.ask_as(caller("acme"), delete_bitstream("beta.x"))),
        "bitstreams/beta.x"
    );
    assert!(world.dropped.is_empty());
}

#[test]
fn deleting_a_victims_bitstream_frees_its_region() {
    let mut world = World::new();
    world.deploy("acme/web", "lb", 1);
    let region = world.regions_of("acme/web")[0];
    world.ask(delete("acme/web")).expect("it exists");
    world.settle();
    assert_eq!(world.region(region.0).state, RegionState::Victim);
    assert_eq!(world.ask(delete_bitstream("lb")), Ok(Reply::Done));
    assert_eq!(world.dropped, [digest("lb")]);
    world.settle();
    let view = world.region(region.0);
    assert_eq!((view.state, view.bitstream), (RegionState::Free, None));
    world.restart();
    world.settle();
    // What it reports, no bitstream declares any more.
    assert_eq!(world.region(region.0).state, RegionState::Unknown);
    world.deploy("acme/api", "vpn", 1);
}

#[test]
fn bytes_stay_while_another_bitstream_has_their_digest() {
    let mut world = World::without_card();
    let twin = with_bytes(bitstream("acme.twin", &["lb"]), digest("lb"));
    world.ask(upload(twin)).expect("valid");
    world.ask(delete_bitstream("lb")).expect("unused");
    assert!(world.dropped.is_empty());
    world.ask_as(caller("acme"), delete_bitstream("acme.twin")).expect("its own");
    assert_eq!(world.dropped, [digest("lb")]);
}

#[test]
fn tenants_see_their_own_bitstreams_and_the_providers_without_places() {
    let mut world = World::new();
    world.ask(upload(bitstream("acme.b", &["nat"]))).expect("valid");
    world.deploy("beta/web", "lb", 1);
    let ids = |world: &World, who| -> Vec<String> {
        world.controller.bitstreams(&who).map(|v| v.bitstream.id.to_string()).collect()
    };
    assert!(ids(&world, caller("acme")).contains(&"acme.b".to_owned()));
    assert!(!ids(&world, caller("beta")).contains(&"acme.b".to_owned()));
    let places = |world: &World, who| {
        let mut all = world.controller.bitstreams(&who);
        all.find(|v| v.bitstream.id == bitstream_id("lb")).map(|v| v.regions)
    };
    let region = world.regions_of("beta/web")[0];
    assert_eq!(places(&world, operator()), Some(vec![(card_id(), region)]));
    assert_eq!(places(&world, caller("acme")), Some(Vec::new()));
}

/// Another tenant's image with the provider's NTs sees no packets of who does not trust that tenant, though it
/// is loaded and shareable.
#[test]
fn packets_pass_only_through_images_that_are_trusted() {
    let mut world = World::new();
    world.ask(Command::CreateNtType(nt("gre", 40))).expect("the provider's");
    world.ask(Command::CreateNtType(nt("beta.tap", 40))).expect("beta's");
    world.ask(upload(bitstream("beta.mine", &["gre", "beta.tap"]))).expect("valid");
    world.deploy("beta/own", "gre beta.tap", 1);
    let refused = world.ask(create("acme/web", spec("gre", 1))).expect_err("beta is a stranger");
    assert!(!refused.to_string().contains("beta"), "{refused}");
    let trusting =
        |tenant: &str| DagSpec { trusted_tenants: [tenant_id(tenant)].into(), ..spec("gre", 1) };
    world.ask(create("acme/web", trusting("gamma"))).expect_err("that is another one");
    world.ask(create("acme/web", trusting("beta"))).expect("acme trusts beta");
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    // Who trusts no longer is moved away, or told that there is no other place; what serves goes on.
    let error = world.ask(update("acme/web", spec("gre", 1))).expect_err("nothing else holds gre");
    assert!(matches!(error, ControlError::Refused(_)), "{error}");
    world.ask(upload(bitstream("plain", &["gre"]))).expect("the provider's");
    world.ask(update("acme/web", spec("gre", 1))).expect("a region is free");
    world.settle();
    let mapping = world.view("acme/web").mapping.expect("it has a place");
    let images: Vec<&str> = mapping.instances().map(|i| i.bitstream.as_str()).collect();
    assert_eq!(images, ["plain"]);
}
