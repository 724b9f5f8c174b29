//! Packets pass only through images of the provider and of the DAG's own tenant, and through those that their
//! owner shares and that the provider signed or whose owner the DAG names. Looked at on the card: where its tables
//! lead and what the regions there hold. The rule is the oracle's; who signed an image is known from the upload.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use snic_bitstream::signature::{PublicKey, Trust};
use snic_controller::{Command, ControlError, DagBatch, Event, NewDag, Request};
use snic_domain::{
    Bitstream, BitstreamId, CardId, ConditionType, DagId, DagName, DagSpec, DagState, DagUid,
    Digest, ImageSignature, RegionId, Signer, TenantId,
};
use snic_oracles::trust::{self, ImageFacts, KeyHolder};
use snic_tables::{ChainRow, DagRow, InstanceRow, NONE, RegionStatus, StageRow, TableImage};

use crate::elastic::periods;
use crate::support::things::{
    bitstream, bitstream_id, caller, card_id, create, dag, delete, delete_bitstream, drain, nt,
    spec, tenant, tenant_id, undrain, update, with_bytes,
};
use crate::support::{World, operator, settings};

/// The regions that the packets of a DAG pass.
fn regions_in(tables: &TableImage, dag: &DagRow) -> BTreeSet<RegionId> {
    let mut regions = BTreeSet::new();
    let mut next = dag.first_stage;
    while next != NONE {
        let stage: StageRow = tables.get(next).expect("a row leads there");
        for chain in stage.chains.iter().filter(|chain| **chain != NONE) {
            let chain: ChainRow = tables.get(*chain).expect("a row leads there");
            for at in chain.first_instance..chain.first_instance + chain.instances {
                let way: InstanceRow = tables.get(at).expect("a row leads there");
                regions.insert(RegionId(way.region().expect("on this card")));
            }
        }
        next = stage.next;
    }
    regions
}

/// Facts known from outside: what was asked for, and which images there ever were.
#[derive(Default)]
struct Book {
    /// The accepted specs of all DAGs, by name and generation.
    specs: BTreeMap<(DagName, u64), DagSpec>,
    /// All registered images by digest, and whose key signed them; no two share one.
    images: BTreeMap<Digest, (Bitstream, KeyHolder)>,
}

impl Book {
    fn note(&mut self, world: &World) {
        for view in world.controller.dags(None) {
            self.specs.insert((view.name, view.generation), view.spec);
        }
    }

    fn may_pass(tenant: &TenantId, spec: &DagSpec, (image, by): &(Bitstream, KeyHolder)) -> bool {
        let named: Vec<&str> = spec.trusted_tenants.iter().map(TenantId::as_str).collect();
        let image = ImageFacts {
            owner: image.id.as_str().split_once('.').map(|(owner, _)| owner),
            is_shared: image.shareable,
            signature: *by,
        };
        trust::may_pass(tenant.as_str(), &named, image)
    }

    /// Looks at every way through every card. What serves while a change is under way is of an earlier spec.
    fn check(&self, world: &World) -> Result<(), TestCaseError> {
        for view in world.controller.dags(None) {
            for card in world.cards.values() {
                let Some(row) = card.tables.get::<DagRow>(view.uid.row()) else { continue };
                if DagUid::from_raw(row.uid) != view.uid {
                    continue;
                }
                for region in regions_in(&card.tables, &row) {
                    let RegionStatus::Loaded(digest) = card.regions[region.index()] else {
                        continue; // Power is gone: nothing passes there.
                    };
                    let image = &self.images[&digest];
                    let mut specs = self
                        .specs
                        .range((view.name.clone(), 0)..=(view.name.clone(), view.generation));
                    let is_good = specs.any(|((_, generation), spec)| {
                        *generation >= view.observed_generation.max(1)
                            && Self::may_pass(&view.name.tenant, spec, image)
                    });
                    prop_assert!(
                        is_good,
                        "{} passes {} in region {region}; it trusts {:?}",
                        view.name,
                        image.0.id,
                        view.spec.trusted_tenants
                    );
                }
            }
        }
        Ok(())
    }
}

const TENANTS: [&str; 3] = ["acme", "beta", "gamma"];

#[derive(Debug, Clone)]
enum Act {
    Put(usize, usize, DagSpec),
    Remove(usize, usize),
    /// Planned, and carried out after some other acts.
    Batch(usize, Vec<DagSpec>),
    CarryOut,
    Upload {
        owner: usize,
        number: usize,
        nts: usize,
        shareable: bool,
        by: KeyHolder,
    },
    DeleteImage {
        owner: usize,
        number: usize,
        by_operator: bool,
    },
    Drain(u8),
    Undrain(u8),
    Optimize,
    Load(Vec<u64>),
    Answer(u8),
    Settle,
    PowerCycle,
    Restart,
}

fn asked() -> impl Strategy<Value = DagSpec> {
    let nts = prop::sample::select(vec!["gre", "mpls", "gre mpls", "lb", "gre lb"]);
    (nts, 1u64..30, prop::collection::btree_set(0usize..3, 0..2)).prop_map(
        |(nts, gbps, trusted)| {
            let trusted_tenants = trusted.into_iter().map(|at| tenant_id(TENANTS[at])).collect();
            DagSpec { trusted_tenants, ..spec(nts, gbps) }
        },
    )
}

fn key_holder() -> impl Strategy<Value = KeyHolder> {
    prop_oneof![
        2 => Just(KeyHolder::Nobody),
        1 => Just(KeyHolder::Provider),
        2 => Just(KeyHolder::Owner),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0usize..3, 0usize..2, asked()).prop_map(|(t, d, s)| Act::Put(t, d, s)),
        2 => (0usize..3, 0usize..2).prop_map(|(t, d)| Act::Remove(t, d)),
        2 => (0usize..3, prop::collection::vec(asked(), 1..4)).prop_map(|(t, s)| Act::Batch(t, s)),
        2 => Just(Act::CarryOut),
        6 => (0usize..3, 0usize..2, 0usize..3, any::<bool>(), key_holder()).prop_map(
            |(owner, number, nts, shareable, by)| Act::Upload { owner, number, nts, shareable, by }
        ),
        3 => (0usize..3, 0usize..2, any::<bool>()).prop_map(|(owner, number, by_operator)| {
            Act::DeleteImage { owner, number, by_operator }
        }),
        1 => (0u8..4).prop_map(Act::Drain),
        2 => (0u8..4).prop_map(Act::Undrain),
        1 => Just(Act::Optimize),
        2 => prop::collection::vec(0u64..60, 6).prop_map(Act::Load),
        2 => (1u8..5).prop_map(Act::Answer),
        6 => Just(Act::Settle),
        1 => Just(Act::PowerCycle),
        1 => Just(Act::Restart),
    ]
}

/// A world with NTs that only tenants' images hold, and what is planned and not carried out yet.
struct Run {
    world: World,
    book: Book,
    planned: Vec<Command>,
    uploads: u32,
}

impl Run {
    fn new() -> Self {
        let mut world = World::empty();
        world.settings = settings();
        world.fill();
        world.add_card(card_id());
        world.settle();
        world.ask(Command::CreateTenant(tenant("gamma"))).expect("valid");
        for id in ["gre", "mpls"] {
            world.ask(Command::CreateNtType(nt(id, 20))).expect("the provider's");
        }
        let images = crate::support::things::bitstreams()
            .into_iter()
            .map(|b| (b.images.first().digest, (b, KeyHolder::Nobody)));
        let book = Book { images: images.collect(), ..Book::default() };
        Self { world, book, planned: Vec::new(), uploads: 0 }
    }

    /// Each upload has bytes of its own.
    fn upload(&mut self, owner: &str, made: Bitstream, by: KeyHolder) {
        self.uploads += 1;
        let digest = Digest::of(format!("{} {}", made.id, self.uploads).as_bytes());
        let signed_by = match by {
            KeyHolder::Nobody => None,
            KeyHolder::Provider => Some(Signer::Provider("key".into())),
            KeyHolder::Owner => Some(Signer::Owner("key".into())),
        };
        let made = Bitstream { signed_by, ..with_bytes(made, digest) };
        self.book.images.insert(digest, (made.clone(), by));
        let _ = self.world.ask_as(caller(owner), Command::CreateBitstream(made));
    }

    /// Plans a batch, to be carried out later.
    fn plan(&mut self, tenant: &str, specs: &[DagSpec]) {
        let new = |(i, spec): (usize, &DagSpec)| NewDag {
            id: DagId::new(&format!("b{i}")).expect("a label"),
            spec: spec.clone(),
        };
        let batch = DagBatch {
            tenant: tenant_id(tenant),
            dags: specs.iter().enumerate().map(new).collect(),
            allow_partial: true,
            validate_only: false,
        };
        let plan = self.world.controller.batch_snapshot(&batch).plan();
        self.planned.push(Command::CreateDags { batch, plan });
    }

    fn carry_out(&mut self, act: &Act) -> Result<(), TestCaseError> {
        let world = &mut self.world;
        match act {
            Act::Put(tenant, number, spec) => {
                let name = format!("{}/d{number}", TENANTS[*tenant]);
                let exists = world.controller.dag_view(&dag(&name)).is_some();
                let put = if exists { update } else { create };
                // It may wait for DAGs that move.
                let command = put(&name, spec.clone());
                world.post(Request { caller: operator(), request_id: None, command });
            }
            Act::Remove(tenant, number) => {
                let _ = world.ask(delete(&format!("{}/d{number}", TENANTS[*tenant])));
            }
            Act::Batch(tenant, specs) => self.plan(TENANTS[*tenant], specs),
            Act::CarryOut => {
                if let Some(command) = self.planned.pop() {
                    // It may wait, too.
                    world.post(Request { caller: operator(), request_id: None, command });
                }
            }
            Act::Upload { owner, number, nts, shareable, by } => {
                let nts: &[&str] = [&["gre"][..], &["gre", "mpls"], &["mpls", "lb"]][*nts];
                let id = format!("{}.i{number}", TENANTS[*owner]);
                let made = Bitstream { shareable: *shareable, ..bitstream(&id, nts) };
                self.upload(TENANTS[*owner], made, *by);
            }
            Act::DeleteImage { owner, number, by_operator } => {
                let command = delete_bitstream(&format!("{}.i{number}", TENANTS[*owner]));
                let _ = match by_operator {
                    true => world.ask(command),
                    false => world.ask_as(caller(TENANTS[*owner]), command),
                };
            }
            Act::Drain(region) => drop(world.ask(drain(*region))),
            Act::Undrain(region) => drop(world.ask(undrain(*region))),
            Act::Optimize => {
                let command = Command::OptimizeCard { card: card_id() };
                let _ = world.ask(command);
            }
            Act::Load(gbps) => {
                let names = world.controller.dags(None);
                let names: Vec<String> = names.into_iter().map(|view| short(&view.name)).collect();
                let loads: Vec<(&str, u64)> =
                    names.iter().map(String::as_str).zip(gbps.iter().copied()).collect();
                periods(world, 2, &loads);
            }
            Act::Answer(count) => (0..*count).for_each(|_| {
                world.answer_one();
            }),
            Act::Settle => world.settle(),
            Act::PowerCycle => {
                world.card().power_cycle();
                world.lose_card();
                world.appear(&card_id());
            }
            Act::Restart => world.restart(),
        }
        self.book.note(&self.world);
        self.book.check(&self.world)
    }
}

fn short(name: &DagName) -> String {
    format!("{}/{}", name.tenant, name.dag)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// In any order of creates, updates, batches, drains, consolidation, autoscaling,
    /// removals and restarts.
    #[test]
    fn packets_pass_only_where_both_sides_agree(acts in prop::collection::vec(act(), 1..40)) {
        let mut run = Run::new();
        for act in &acts {
            run.carry_out(act)?;
        }
        run.world.settle();
        run.book.note(&run.world);
        run.book.check(&run.world)?;
    }
}

/// Between plan and creation the owner deletes the image that was planned with, and registers another one of the
/// same name that it does not share.
#[test]
fn a_plan_does_not_lead_through_another_image_of_the_same_name() {
    let mut run = Run::new();
    let shared =
        Act::Upload { owner: 1, number: 0, nts: 0, shareable: true, by: KeyHolder::Nobody };
    let private =
        Act::Upload { owner: 1, number: 0, nts: 0, shareable: false, by: KeyHolder::Nobody };
    let own = Act::Put(1, 0, spec("gre", 1));
    let trusting = DagSpec { trusted_tenants: [tenant_id("beta")].into(), ..spec("gre", 1) };
    let again = Act::DeleteImage { owner: 1, number: 0, by_operator: false };
    let acts = [
        shared,
        own.clone(),
        Act::Settle,
        Act::Batch(0, vec![trusting]),
        Act::Remove(1, 0),
        Act::Settle,
        again,
        Act::Settle,
        private,
        own,
        Act::Settle,
        Act::CarryOut,
        Act::Settle,
    ];
    for act in &acts {
        run.carry_out(act).expect("packets pass only where both sides agree");
    }
    let regions = run.world.controller.card_view(&CardId::new("card0").expect("a label"));
    let held = regions.expect("it was seen").regions.len();
    let image = BitstreamId::new("beta.i0").expect("an owned label");
    let holds = |r: &u8| run.world.region(*r).bitstream.as_ref() == Some(&image);
    assert_eq!((0..held as u8).filter(holds).count(), 1, "the scene is set: beta has it loaded");
    assert!(run.world.controller.dag_view(&dag("acme/b0")).is_none(), "the plan is outdated");
}

/// The trust of a DAG can be less after a restart, for keys may have been taken from the settings. It runs on, says where it
/// is, and leaves when there is another place.
#[test]
fn a_dag_that_is_restored_in_an_image_that_it_does_not_trust_leaves_it() {
    let mut world = World::new();
    world.ask(Command::CreateNtType(nt("gre", 10))).expect("it is new");
    world.ask(Command::CreateBitstream(bitstream("beta.gre", &["gre"]))).expect("it is new");
    world.deploy("beta/own", "gre", 1);
    for name in ["acme/web", "acme/api"] {
        let trusting = DagSpec { trusted_tenants: [tenant_id("beta")].into(), ..spec("gre", 1) };
        world.ask(create(name, trusting)).expect("there is room");
    }
    world.settle();
    let mut struck = 0;
    for value in world.durable.values_mut() {
        let text = String::from_utf8(value.clone()).expect("JSON");
        struck += text.matches(r#""trusted_tenants":["beta"]"#).count();
        *value = text.replace(r#""trusted_tenants":["beta"]"#, r#""trusted_tenants":[]"#).into();
    }
    assert_eq!(struck, 4, "two DAGs and their placements");
    let image = |world: &World, name: &str| {
        let region = world.regions_of(name)[0];
        world.region(region.0).bitstream.expect("it is loaded").to_string()
    };
    let mapped = |world: &World, name: &str| world.condition(name, ConditionType::Mapped).reason;
    world.restart();
    world.settle();
    for name in ["acme/web", "acme/api"] {
        assert_eq!((image(&world, name), world.state(name)), ("beta.gre".into(), DagState::Ready));
        assert_eq!(mapped(&world, name), "IMAGE_NOT_TRUSTED");
    }
    // One is told to trust the owner, the other one gets an image of the provider.
    let trusting = DagSpec { trusted_tenants: [tenant_id("beta")].into(), ..spec("gre", 1) };
    world.ask(update("acme/api", trusting)).expect("it stays where it is");
    world.settle();
    assert_eq!(mapped(&world, "acme/api"), "PLACED");
    world.ask(Command::CreateBitstream(bitstream("gre", &["gre"]))).expect("it is new");
    let loads = world.card().loads.len();
    world.settle();
    assert_eq!(
        (image(&world, "acme/web"), mapped(&world, "acme/web")),
        ("gre".into(), "PLACED".into())
    );
    assert_eq!(
        (image(&world, "acme/api"), world.card().loads.len()),
        ("beta.gre".into(), loads + 1)
    );
    world.restart();
    world.settle();
    assert_eq!(mapped(&world, "acme/web"), "PLACED");
    assert_eq!([world.state("acme/web"), world.state("acme/api")], [DagState::Ready; 2]);
}

/// Made with openssl 3.0: a key, and its signature of the line for a test image with the bytes "bytes".
const PEM: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAjhTsv9tmgcAHitf7d92xtPUNJpteOVEfeWx/n2IjSYs=\n-----END PUBLIC KEY-----\n";
const SIGNED: &str = "4bd64e3ad7658797d930a1501fd408acab2d0cd60ea3617de298d55bc873f6e3\
    51d9075ec0eb7139f51d33b3fd430af672a6385ac13ed8b78eeeacdefc3f220e";

/// Keys that count: the one that signed, in one of the rings or in none.
fn keys(holder: KeyHolder, allows_unsigned: bool) -> Event {
    let key = vec![PublicKey::from_pem("release", PEM).expect("a key")];
    let trust = match holder {
        KeyHolder::Nobody => Trust::default(),
        KeyHolder::Provider => Trust { provider: key, ..Trust::default() },
        KeyHolder::Owner => {
            Trust { tenants: [(tenant_id("beta"), key)].into(), ..Trust::default() }
        }
    };
    Event::KeysChanged(Some(Box::new(Trust { allows_unsigned, ..trust })))
}

/// An image of beta's, which it shares, signed as above.
fn signed_image() -> Bitstream {
    let mut image = with_bytes(bitstream("beta.gre", &["gre"]), Digest::of(b"bytes"));
    let signature: Vec<u8> = (0..SIGNED.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&SIGNED[at..at + 2], 16).expect("hexadecimal"))
        .collect();
    image.images.first_mut().signature = Some(ImageSignature::new(&signature, Vec::new()));
    image
}

fn image_of(world: &World, name: &str) -> String {
    let region = world.regions_of(name)[0];
    world.region(region.0).bitstream.expect("it is loaded").to_string()
}

/// With a key of the provider in the settings everybody passes what it signed; from the moment on in which it is taken
/// out, nobody is led there any more that would not be if it had never been there. The rule is the oracle's.
#[test]
fn a_key_that_leaves_the_settings_takes_its_trust_with_it_at_once() {
    for after in [KeyHolder::Nobody, KeyHolder::Owner] {
        let mut world = World::new();
        let mapped =
            |world: &World, name: &str| world.condition(name, ConditionType::Mapped).reason;
        world.ask(Command::CreateNtType(nt("gre", 10))).expect("it is new");
        world.handle(keys(KeyHolder::Provider, true));
        world.ask(Command::CreateBitstream(signed_image())).expect("it is new");
        for name in ["beta/own", "acme/web"] {
            world.deploy(name, "gre", 1);
        }
        let by = |world: &World| {
            let view = world.controller.bitstream(&operator(), &bitstream_id("beta.gre"));
            view.expect("it is there").bitstream.signed_by
        };
        assert!(matches!(by(&world), Some(Signer::Provider(_))));

        world.handle(keys(after, true));
        world.settle();
        let facts = |signature| ImageFacts { owner: Some("beta"), is_shared: true, signature };
        assert!(
            !trust::may_pass("acme", &[], facts(after))
                && trust::may_pass("beta", &[], facts(after))
        );
        assert_eq!(matches!(by(&world), Some(Signer::Owner(_))), after == KeyHolder::Owner);
        assert_eq!(image_of(&world, "acme/web"), "beta.gre", "there is no other: it is served on");
        assert_eq!(world.state("acme/web"), DagState::Ready);
        assert_eq!(mapped(&world, "acme/web"), "IMAGE_NOT_TRUSTED");
        assert_eq!(mapped(&world, "beta/own"), "PLACED");
        let refused = world.ask(create("acme/new", spec("gre", 1)));
        assert!(matches!(refused, Err(ControlError::Refused(_))), "{refused:?}");
        // The same after a restart with these keys.
        world.restart();
        world.handle(keys(after, true));
        world.settle();
        assert_eq!(mapped(&world, "acme/web"), "IMAGE_NOT_TRUSTED");
        // As soon as there is another place it goes there, make before break.
        world.ask(Command::CreateBitstream(bitstream("gre", &["gre"]))).expect("it is new");
        world.settle();
        assert_eq!(image_of(&world, "acme/web"), "gre");
        assert_eq!(
            (image_of(&world, "beta/own"), mapped(&world, "acme/web")),
            ("beta.gre".into(), "PLACED".into())
        );
        // With the key again all is as it was.
        world.handle(keys(KeyHolder::Provider, true));
        world.settle();
        assert!(matches!(by(&world), Some(Signer::Provider(_))));
        world.ask(create("acme/new", spec("gre", 1))).expect("both images serve it");
    }
}

/// Where unsigned images are refused, one without a key that counts is nobody's: not its owner's either.
#[test]
fn an_image_that_would_be_refused_now_is_in_no_new_plan() {
    let mut world = World::new();
    world.ask(Command::CreateNtType(nt("gre", 10))).expect("it is new");
    world.handle(keys(KeyHolder::Owner, false));
    world.ask(Command::CreateBitstream(signed_image())).expect("it is new");
    world.deploy("beta/own", "gre", 1);
    world.handle(keys(KeyHolder::Nobody, false));
    world.settle();
    assert_eq!(world.state("beta/own"), DagState::Ready, "it is served on");
    let reason = world.condition("beta/own", ConditionType::Mapped).reason;
    assert_eq!(reason, "IMAGE_NOT_TRUSTED");
    let view = world.controller.bitstream(&operator(), &bitstream_id("beta.gre"));
    let rejection = view.expect("it is there").rejection.expect("it says why");
    assert!(rejection.reason.contains("no key that counts"), "{rejection:?}");
    let refused = world.ask(create("beta/new", spec("gre", 1)));
    assert!(matches!(refused, Err(ControlError::Refused(_))), "{refused:?}");
    // A host of a fleet without keys goes by the fleet's word, for what comes from now on too.
    world.handle(Event::KeysChanged(None));
    world.settle();
    world.ask(create("beta/new", spec("gre", 1))).expect("it is beta's own");
}
