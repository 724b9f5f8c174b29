//! Packets pass only through images of the provider and of the DAG's own tenant, and through those that their
//! owner shares and that the provider signed or whose owner the DAG names. Looked at on the card: where its tables
//! lead and what the regions there hold. The rule is the oracle's; who signed an image is known from the upload.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use snic_controller::{Command, DagBatch, NewDag};
use snic_domain::{
    Bitstream, BitstreamId, CardId, DagId, DagName, DagSpec, DagUid, Digest, RegionId, Signer,
    TenantId,
};
use snic_oracles::trust::{self, ImageFacts, KeyHolder};
use snic_tables::{ChainRow, DagRow, InstanceRow, NONE, RegionStatus, StageRow, TableImage};

use crate::elastic::periods;
use crate::support::things::{
    bitstream, caller, card_id, create, dag, delete, delete_bitstream, drain, nt, spec, tenant,
    tenant_id, undrain, update,
};
use crate::support::{World, recover, settings};

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
                regions.insert(RegionId(way.region));
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
        let made = Bitstream { signed_by, ..crate::support::things::with_bytes(made, digest) };
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
                let _ = world.ask(put(&name, spec.clone()));
            }
            Act::Remove(tenant, number) => {
                let _ = world.ask(delete(&format!("{}/d{number}", TENANTS[*tenant])));
            }
            Act::Batch(tenant, specs) => self.plan(TENANTS[*tenant], specs),
            Act::CarryOut => {
                if let Some(command) = self.planned.pop() {
                    let _ = world.ask(command);
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

/// A record whose DAG passes an image that it does not trust is damaged: nothing of it is served.
#[test]
fn a_stored_dag_in_an_image_that_it_does_not_trust_is_a_contradiction() {
    let mut world = World::new();
    world.ask(Command::CreateNtType(nt("gre", 10))).expect("it is new");
    world.ask(Command::CreateBitstream(bitstream("beta.gre", &["gre"]))).expect("it is new");
    let trusting = DagSpec { trusted_tenants: [tenant_id("beta")].into(), ..spec("gre", 1) };
    world.ask(create("acme/web", trusting)).expect("there is room");
    world.settle();
    recover(&world.durable, world.now).expect("it is trusted");
    let record = world.durable.get_mut("dags/acme/web").expect("it is stored");
    let text = String::from_utf8(record.clone()).expect("JSON");
    let struck = text.replace(r#""trusted_tenants":["beta"]"#, r#""trusted_tenants":[]"#);
    assert_ne!(text, struck);
    *record = struck.into();
    let error = recover(&world.durable, world.now).expect_err("it is not trusted");
    assert_eq!(error.key(), Some("dags/acme/web"), "{error}");
    assert!(error.to_string().contains("beta.gre"), "{error}");
}
