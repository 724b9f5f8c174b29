//! A bitstream with an image for each region, or for each group of regions: which regions it is placed in, what
//! they are loaded with, and how images come and go.

use snic_controller::{Command, ControlError, Reply};
use snic_domain::{
    Bitstream, ByteSize, ChainIdentity, DagState, Digest, NtType, QuotaPatch, RegionId,
    RegionState, Signer,
};

use snic_tables::LoadFailure;

use crate::support::things::{
    bitstream, bitstream_id, bitstreams, caller, card_id, create, delete, delete_bitstream, drain,
    image, nt, spec, tenant_id, undrain,
};
use crate::support::{
    Answer, Crash, World, absent, operator, over_quota, precondition, wrong_field,
};

const OWN: &str = "acme.own";
const REFUSED: LoadFailure = LoadFailure::Controller { code: 9 };

/// A bitstream that acme builds for its own NT, which takes a whole region; `image` says for which regions.
fn own() -> Bitstream {
    let mut made = bitstream(OWN, &[OWN]);
    made.identity = Some(ChainIdentity::from_words([7, 7, 7, 7]));
    made
}

fn upload(world: &mut World, regions: &[u8]) -> Answer {
    world.ask_as(caller("acme"), Command::CreateBitstream(image(&own(), regions)))
}

/// A world in which acme has these images.
fn world(images: &[&[u8]]) -> World {
    let mut world = World::new();
    let nt = NtType { state: ByteSize::from_bytes(1_000), ..nt(OWN, 40) };
    world.ask(Command::CreateNtType(nt)).expect("an operator");
    for regions in images {
        upload(&mut world, regions).expect("another region");
    }
    world
}

fn bytes_of(regions: &[u8]) -> Digest {
    image(&own(), regions).images.first().digest
}

fn delete_image(regions: &[u8]) -> Command {
    Command::DeleteBitstream { id: bitstream_id(OWN), image: Some(bytes_of(regions)), etag: None }
}

fn loads(world: &mut World) -> Vec<(u8, Digest)> {
    world.card().loads.iter().map(|(region, of)| (region.0, *of)).collect()
}

fn images_of(world: &World) -> Vec<Vec<u8>> {
    let view = world.controller.bitstream(&operator(), &bitstream_id(OWN)).expect("it is there");
    let regions = |image: &snic_domain::RegionImage| image.regions.iter().map(|r| r.0).collect();
    view.bitstream.images.iter().map(regions).collect()
}

#[test]
fn a_chain_goes_where_it_has_an_image_and_each_region_gets_its_own() {
    let mut world = world(&[&[3], &[2]]);
    world.deploy("acme/a", OWN, 30);
    world.deploy("acme/b", OWN, 30);
    assert_eq!(loads(&mut world), [(2, bytes_of(&[2])), (3, bytes_of(&[3]))]);
    let refused = world.ask(create("acme/c", spec(OWN, 30))).expect_err("no image is left");
    let text = refused.to_string();
    let says = "no image of acme.own for a region that is free: images are there for regions 2, 3; upload one for \
                one of the regions 0, 1";
    assert!(text.contains(says), "{text}");
    // With that image there is a place, and nothing else has changed.
    upload(&mut world, &[0, 1]).expect("other regions");
    world.deploy("acme/c", OWN, 30);
    assert_eq!(loads(&mut world)[2..], [(0, bytes_of(&[0, 1]))]);
    let before = loads(&mut world);
    world.restart();
    world.settle();
    assert_eq!(loads(&mut world), before, "each region is known again by its own image");
    for dag in ["acme/a", "acme/b", "acme/c"] {
        assert_eq!(world.state(dag), DagState::Ready);
    }
}

/// Images of one build keep the same state, so that a drain takes it along into a region with another image.
#[test]
fn state_follows_a_dag_into_another_image() {
    let mut world = world(&[&[0], &[1], &[2, 3]]);
    world.deploy("acme/a", OWN, 30);
    let uid = world.view("acme/a").uid;
    for (from, to) in [(0, 1), (1, 2)] {
        world.card().states.kept.insert((RegionId(from), uid), 1_234);
        world.ask(drain(from)).expect("there is another region");
        world.settle();
        assert_eq!(world.regions_of("acme/a"), [RegionId(to)]);
        assert_eq!(world.card().states.kept.get(&(RegionId(to), uid)), Some(&1_234));
    }
    let loaded = [(0, bytes_of(&[0])), (1, bytes_of(&[1])), (2, bytes_of(&[2, 3]))];
    assert_eq!(loads(&mut world), loaded);
}

#[test]
fn an_image_that_cannot_stand_beside_the_others_changes_nothing() {
    let mut world = world(&[&[0], &[2]]);
    let before = world.durable.clone();
    let mut refused = |change: &dyn Fn(&mut Bitstream)| {
        let mut other = image(&own(), &[1]);
        change(&mut other);
        let answer = world.ask_as(caller("acme"), Command::CreateBitstream(other));
        assert_eq!(world.durable, before, "{answer:?}");
        answer
    };
    for (field, change) in [
        (
            "nts",
            &(|of: &mut Bitstream| of.nts.push("nat".parse().expect("a label")))
                as &dyn Fn(&mut Bitstream),
        ),
        ("identity", &|of| of.identity = None),
        ("card_model", &|of| of.card_model = "sim-32".parse().expect("a label")),
        ("region_kind", &|of| of.region_kind = snic_domain::RegionKind::UserNt),
        ("signature", &|of| of.signed_by = Some(Signer::Provider("builds".into()))),
        ("shareable", &|of| of.shareable = false),
        ("size_bytes", &|of| of.images.first_mut().size = ByteSize::ZERO),
    ] {
        assert_eq!(wrong_field(refused(change)), field);
    }
    let (_, text) = precondition(refused(&|of| of.images.first_mut().regions.push(RegionId(2))));
    assert!(text.contains("region 2 has an image already"), "{text}");
    let (_, text) = precondition(refused(&|of| of.images.first_mut().digest = bytes_of(&[0])));
    assert!(text.contains("the same bytes"), "{text}");
    let all = refused(&|of| of.images.first_mut().regions.clear());
    assert!(matches!(all, Err(ControlError::AlreadyExists { .. })), "{all:?}");
    let other = world.ask_as(caller("beta"), Command::CreateBitstream(image(&own(), &[1])));
    assert_eq!(wrong_field(other), "bitstream_id", "only its owner adds images");
    assert_eq!(images_of(&world), [[0], [2]]);
}

/// An image for one region can fail in no other one, and a tenant can have one for each.
#[test]
fn a_tenants_broken_images_put_no_region_out_of_use() {
    let mut world = world(&[&[0]]);
    world.card().bad_digests.insert(bytes_of(&[0]), REFUSED);
    world.ask(create("acme/a", spec(OWN, 30))).expect("there is room");
    world.settle();
    let rejection = |world: &World| {
        let view = world.controller.bitstream(&operator(), &bitstream_id(OWN));
        view.expect("it is there").rejection.map(|of| of.reason)
    };
    assert!(rejection(&world).expect("it is rejected").contains("error 9"));
    assert_eq!(loads(&mut world).len(), 3, "three tries");
    assert!(!world.region_states().contains(&RegionState::Faulty), "{:?}", world.region_states());
    world.deploy("beta/b", "lb", 10);
    assert_eq!(world.regions_of("beta/b"), [RegionId(0)]);
}

/// A broken region is found as soon as somebody else's bitstream fails there, too.
#[test]
fn a_broken_region_is_found_behind_a_tenants_image() {
    let mut world = world(&[&[0]]);
    world.card().bad_regions.insert(RegionId(0), REFUSED);
    world.ask(create("acme/a", spec(OWN, 30))).expect("there is room");
    world.settle();
    world.deploy("beta/b", "lb", 10);
    assert_eq!(world.regions_of("beta/b"), [RegionId(1)]);
    assert_eq!(world.region_states()[0], RegionState::Faulty);
}

const THEIRS: &str = "beta.theirs";

/// A bitstream that beta builds for its own NT, for region 0.
fn theirs() -> Bitstream {
    image(&bitstream(THEIRS, &[THEIRS]), &[0])
}

/// Two tenants have a DAG each, in an image for region 0 each, and both failed there. Says whether these are rejected.
fn fail_for_two_tenants(world: &mut World) -> [bool; 2] {
    world.ask(Command::CreateNtType(nt(THEIRS, 40))).expect("an operator");
    world.ask(Command::CreateBitstream(theirs())).expect("an operator");
    [("acme/a", OWN), ("beta/b", THEIRS)].map(|(dag, nt)| {
        world.ask(create(dag, spec(nt, 30))).expect("there is room");
        world.settle();
        assert_eq!(world.state(dag), DagState::Failed);
        let view = world.controller.bitstream(&operator(), &bitstream_id(nt));
        view.expect("it is there").rejection.is_some()
    })
}

/// Tenants may act together: what only their files say of a region is not believed.
#[test]
fn broken_images_of_two_tenants_put_no_region_out_of_use() {
    let mut world = world(&[&[0]]);
    for digest in [bytes_of(&[0]), theirs().images.first().digest] {
        world.card().bad_digests.insert(digest, REFUSED);
    }
    assert_eq!(fail_for_two_tenants(&mut world), [true, true]);
    assert_eq!(world.region(0).state, RegionState::Victim, "it was tried with another bitstream");
    let held = world.region(0).bitstream.expect("it holds that");
    assert_eq!(held.owner(), None, "{held} is the provider's");
    assert_eq!(loads(&mut world).len(), 3 + 3 + 1);
    assert!(!world.region_states().contains(&RegionState::Faulty), "{:?}", world.region_states());
}

#[test]
fn a_region_that_fails_for_everybody_is_found_without_a_dag_of_others() {
    let mut world = world(&[&[0]]);
    world.card().bad_regions.insert(RegionId(0), REFUSED);
    assert_eq!(fail_for_two_tenants(&mut world), [true, true]);
    assert_eq!(world.region(0).state, RegionState::Faulty);
    assert_eq!(loads(&mut world).len(), 3 + 3 + 3);
    world.deploy("beta/c", "lb", 10);
    assert_ne!(world.regions_of("beta/c"), [RegionId(0)]);
}

/// A card that does not say how a load ended is read back in between.
#[test]
fn a_region_whose_loads_never_end_is_found_too() {
    let mut world = world(&[&[0]]);
    let hangs = LoadFailure::Timeout(std::time::Duration::from_millis(30));
    world.card().bad_regions.insert(RegionId(0), hangs);
    assert_eq!(fail_for_two_tenants(&mut world), [true, true]);
    assert_eq!(world.region(0).state, RegionState::Faulty);
}

/// A region that an operator has cordoned gets nothing, also not to try it.
#[test]
fn a_cordoned_region_is_not_tried() {
    let mut world = world(&[&[0]]);
    world.card().bad_regions.insert(RegionId(0), REFUSED);
    world.ask(Command::CreateNtType(nt(THEIRS, 40))).expect("an operator");
    world.ask(Command::CreateBitstream(theirs())).expect("an operator");
    world.ask(create("acme/a", spec(OWN, 30))).expect("there is room");
    world.settle();
    world.ask(create("beta/b", spec(THEIRS, 30))).expect("there is room");
    let cordon = Command::Cordon { card: card_id(), region: Some(RegionId(0)), on: true };
    world.ask(cordon).expect("an operator");
    world.settle();
    assert_eq!((loads(&mut world).len(), world.region(0).bitstream), (3 + 3, None));
}

/// Without a bitstream to try the region with, two tenants are believed.
#[test]
fn a_region_that_cannot_be_tried_is_faulty_after_two_tenants() {
    let mut world = world(&[&[0]]);
    for other in bitstreams() {
        world.ask(delete_bitstream(other.id.as_str())).expect("nobody uses it");
    }
    world.card().bad_regions.insert(RegionId(0), REFUSED);
    assert_eq!(fail_for_two_tenants(&mut world), [true, false]);
    assert_eq!(world.region(0).state, RegionState::Faulty);
}

#[test]
fn each_image_counts_in_its_owners_quota() {
    let mut world = world(&[&[0]]);
    let limit = |bitstreams_max, bitstream_bytes_max| Command::UpdateTenant {
        id: tenant_id("acme"),
        patch: snic_domain::TenantPatch {
            quota: Some(QuotaPatch {
                bitstreams_max,
                bitstream_bytes_max,
                ..QuotaPatch::default()
            }),
            ..Default::default()
        },
        etag: None,
    };
    world.ask(limit(Some(2), None)).expect("an operator");
    upload(&mut world, &[1]).expect("the second");
    assert_eq!(
        over_quota(upload(&mut world, &[2])),
        ("bitstreams_max".into(), "2".into(), "3".into())
    );
    world.ask(delete_image(&[0])).expect("there is another");
    upload(&mut world, &[2]).expect("the second again");
    let usage = world.tenant("acme").usage;
    assert_eq!((usage.bitstreams, usage.bitstream_bytes), (2, ByteSize::from_bytes(2 * 8_192)));
    world.ask(limit(Some(9), Some(ByteSize::from_bytes(3 * 8_192 - 1)))).expect("an operator");
    assert_eq!(over_quota(upload(&mut world, &[3])).0, "bitstream_bytes_max");
}

#[test]
fn an_image_in_use_stays_and_one_that_nobody_uses_goes() {
    let mut world = world(&[&[0], &[1], &[2]]);
    world.deploy("acme/a", OWN, 30);
    world.deploy("acme/b", OWN, 30);
    let (resource, text) = precondition(world.ask(delete_image(&[1])));
    assert_eq!(resource, "bitstreams/acme.own");
    assert!(text.contains("DAGs use its image in region 1"), "{text}");
    let stale = Some("0123".to_owned());
    let id = bitstream_id(OWN);
    let stale = Command::DeleteBitstream { id, image: Some(bytes_of(&[2])), etag: stale };
    assert!(matches!(world.ask(stale), Err(ControlError::EtagMismatch { .. })));
    assert_eq!(absent(world.ask_as(caller("beta"), delete_image(&[2]))), "bitstreams/acme.own");
    assert!(absent(world.ask(delete_image(&[3]))).contains("acme.own"));

    // Region 1 is only cached, then.
    world.ask(delete("acme/b")).expect("it is there");
    world.settle();
    assert_eq!(world.region(1).state, RegionState::Victim);
    world.ask_as(caller("acme"), delete_image(&[1])).expect("nobody uses it");
    assert_eq!((images_of(&world), world.region(1).bitstream), (vec![vec![0], vec![2]], None));
    assert_eq!(world.dropped, [bytes_of(&[1])]);
    world.deploy("acme/b", OWN, 30);
    assert_eq!(world.regions_of("acme/b"), [RegionId(2)], "not in region 1 any more");

    // Another bitstream has the bytes of the one for region 2: they stay.
    world.ask(delete("acme/b")).expect("it is there");
    world.settle();
    let twin = Bitstream { id: bitstream_id("acme.twin"), ..image(&own(), &[2]) };
    let twin = crate::support::things::with_bytes(twin, bytes_of(&[2]));
    world.ask(Command::CreateBitstream(twin)).expect("another bitstream");
    world.ask(delete_image(&[2])).expect("nobody uses it");
    assert_eq!(world.dropped, [bytes_of(&[1])]);
    let (_, text) = precondition(world.ask(delete_image(&[0])));
    assert!(text.contains("no other image"), "{text}");
    assert_eq!(world.state("acme/a"), DagState::Ready);
}

fn request(world: &mut World, command: Command) -> Option<Answer> {
    let request_id = Some("r".to_owned());
    world.request(snic_controller::Request { caller: caller("acme"), request_id, command })
}

/// Whenever the daemon dies, the bitstream has the images of before or of after, and the whole goes on.
#[test]
fn a_crash_leaves_the_images_of_before_or_of_after() {
    type Change = fn(&mut World) -> Option<Answer>;
    let changes: [(Change, [&[&[u8]]; 2]); 2] = [
        (
            |world| request(world, Command::CreateBitstream(image(&own(), &[2]))),
            [&[&[0], &[1]], &[&[0], &[1], &[2]]],
        ),
        (|world| request(world, delete_image(&[1])), [&[&[0], &[1]], &[&[0]]]),
    ];
    for (change, [before, after]) in changes {
        for crash in [Crash::Before as fn(usize) -> Crash, Crash::After] {
            let mut world = world(&[&[0], &[1]]);
            world.deploy("acme/a", OWN, 30);
            world.crash = Some(crash(world.batches));
            assert_eq!(change(&mut world).map(|_| "answered"), None, "it died");
            world.settle();
            let expected = if crash(0) == Crash::Before(0) { before } else { after };
            assert_eq!(images_of(&world), expected);
            assert_eq!(world.state("acme/a"), DagState::Ready);
            // Repeated, it is carried out once.
            let again = change(&mut world).expect("no crash is left");
            assert!(matches!(again, Ok(Reply::Bitstream(_) | Reply::Done)), "{again:?}");
            assert_eq!(images_of(&world), after);
        }
    }
}

/// A drain goes to a region with an image, or not at all.
#[test]
fn a_drained_region_leaves_its_dag_to_a_region_with_an_image() {
    let mut world = world(&[&[0]]);
    world.deploy("acme/a", OWN, 30);
    let stuck = world.ask(drain(0));
    world.settle();
    assert_eq!(
        world.regions_of("acme/a"),
        [RegionId(0)],
        "regions 1 to 3 have no image: {stuck:?}"
    );
    assert_eq!(world.state("acme/a"), DagState::Ready);
    let _ = world.ask(undrain(0));
    upload(&mut world, &[3]).expect("another region");
    world.ask(drain(0)).expect("region 3 has an image");
    world.settle();
    assert_eq!(world.regions_of("acme/a"), [RegionId(3)]);
    assert_eq!(loads(&mut world).last(), Some(&(3, bytes_of(&[3]))));
}
