//! Usage of tenants compared with what there is: the numbers of `GetTenant` beside what the cards allocate, what
//! their ledgers have reserved, what fairness counts, and what the lists show. And what a quota of memory
//! refuses, over several cards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use snic_controller::{
    CardOrder, CardReport, Command, ControlError, DagBatch, Event, NewDag, TenantUsage,
};
use snic_domain::limits::PAGE_SIZE;
use snic_domain::{
    Bandwidth, BindingSpec, BindingTarget, ByteSize, CardId, CardProfile, DagId, DagState, Match,
    NtType, NtTypeId, Quota, Resource, Rule, RuleId, VmId,
};
use snic_tables::{PageRow, Table};

use crate::elastic::periods;
use crate::support::card::TinyCard;
use crate::support::things::{
    bitstream, bitstreams, caller, create, dag, delete, delete_bitstream, delete_nt, functions, nt,
    nts, profile, spec, tenant, tenant_id, update,
};
use crate::support::{World, operator};

const TENANTS: [&str; 2] = ["acme", "beta"];
const MEMORY: u64 = 1_024 << 20;
const CARDS: [&str; 3] = ["card0", "card1", "card2"];

fn card(number: usize) -> CardId {
    CardId::new(CARDS[number]).expect("a label")
}

#[derive(Debug, Clone)]
enum Act {
    /// A chain with this many Gbit/s; `aes` has 10 in a region, `cache` 20.
    Put(&'static str, String, u64),
    /// Two new DAGs in one step.
    Batch(usize, String, String),
    Remove(&'static str),
    Rule(&'static str),
    /// The tenant's own NT type and bitstream of this number, or their end.
    Own(usize, u8),
    Disown(usize, u8),
    /// A machine with a DAG like this one, or its end.
    Bind(&'static str, u8),
    Unbind(&'static str, u8),
    /// A card is lost for good, or is there again, empty.
    Lose(usize),
    Return(usize),
    /// The tenant's quota of memory, in pages.
    Quota(usize, u64),
    Restart,
}

const DAGS: [&str; 6] = ["acme/a", "acme/b", "acme/c", "beta/a", "beta/b", "beta/c"];

fn act() -> impl Strategy<Value = Act> {
    let nts = prop::sample::select(vec!["nat", "cache", "aes", "lb", "vpn"]);
    let chain = move || {
        let nts = prop::collection::vec(nts.clone(), 1..4);
        nts.prop_map(|nts| nts.join(" "))
    };
    let name = || prop::sample::select(DAGS.to_vec());
    let put = (name(), chain(), 1u64..45);
    prop_oneof![
        8 => put.prop_map(|(name, chain, gbps)| Act::Put(name, chain, gbps)),
        1 => (0usize..2, chain(), chain()).prop_map(|(of, one, other)| Act::Batch(of, one, other)),
        2 => name().prop_map(Act::Remove),
        1 => name().prop_map(Act::Rule),
        1 => (0usize..2, 0u8..2).prop_map(|(tenant, n)| Act::Own(tenant, n)),
        1 => (0usize..2, 0u8..2).prop_map(|(tenant, n)| Act::Disown(tenant, n)),
        2 => (name(), 0u8..2).prop_map(|(like, vm)| Act::Bind(like, vm)),
        1 => (name(), 0u8..2).prop_map(|(like, vm)| Act::Unbind(like, vm)),
        1 => (0usize..3).prop_map(Act::Lose),
        2 => (0usize..3).prop_map(Act::Return),
        1 => (0usize..2, 2u64..20).prop_map(|(tenant, pages)| Act::Quota(tenant, pages)),
        1 => Just(Act::Restart),
    ]
}

fn vm(like: &str, number: u8) -> VmId {
    let at = DAGS.iter().position(|name| *name == like).expect("one of them");
    let id = format!("00000000-0000-0000-0000-0000000000{at}{number}");
    id.parse().expect("a UUID")
}

fn binding(like: &str, number: u8) -> BindingSpec {
    BindingSpec {
        vm: vm(like, number),
        tenant: dag(like).tenant,
        functions: 1,
        chains: BindingTarget::Template(dag(like)),
        lease: None,
        ready_within: Duration::from_secs(10),
        notes: Default::default(),
        limits: Default::default(),
    }
}

fn memory_quota(name: &str, memory_max: ByteSize) -> Command {
    let quota = Quota { memory_max, ..tenant(name).quota };
    Command::UpdateTenant {
        id: tenant_id(name),
        patch: snic_domain::TenantPatch { quota: Some(quota.into()), ..Default::default() },
        etag: None,
    }
}

pub fn batch(name: &str, chains: [&str; 2]) -> DagBatch {
    let new = |(n, chain): (usize, &str)| {
        let id = DagId::new(&format!("batch{n}")).expect("a label");
        NewDag { id, spec: spec(chain, 5) }
    };
    DagBatch {
        tenant: tenant_id(name),
        dags: chains.into_iter().enumerate().map(new).collect(),
        allow_partial: true,
        validate_only: false,
    }
}

/// Carries out an act; a refusal changes nothing, which is what is looked at.
fn carry_out(world: &mut World, act: &Act, number: usize) {
    match act {
        Act::Put(name, chain, gbps) => {
            let put = if world.controller.dag_view(&dag(name)).is_some() { update } else { create };
            let _ = world.ask(put(name, spec(chain, *gbps)));
        }
        Act::Batch(tenant, one, other) => {
            let batch = batch(TENANTS[*tenant], [one, other]);
            let plan = world.controller.batch_snapshot(&batch).plan();
            let _ = world.ask(Command::CreateDags { batch, plan });
        }
        Act::Remove(name) => {
            let _ = world.ask(delete(name));
        }
        Act::Rule(name) => {
            let id = RuleId::new(&format!("r{number}")).expect("a label");
            let matches = Match { vni: Some(number as u32 + 1), ..Match::default() };
            let rule = Rule { id, priority: 1, matches, dag: dag(name), notes: Default::default() };
            let _ = world.ask(Command::CreateRule(rule));
        }
        Act::Own(tenant, n) => {
            let tenant = TENANTS[*tenant];
            let _ = world
                .ask_as(caller(tenant), Command::CreateNtType(nt(&format!("{tenant}.n{n}"), 1)));
            let own = bitstream(&format!("{tenant}.b{n}"), &["nat"]);
            let _ = world.ask_as(caller(tenant), Command::CreateBitstream(own));
        }
        Act::Disown(tenant, n) => {
            let _ = world.ask(delete_nt(&format!("{}.n{n}", TENANTS[*tenant])));
            let _ = world.ask(delete_bitstream(&format!("{}.b{n}", TENANTS[*tenant])));
        }
        Act::Bind(like, n) => {
            let _ = world.ask(Command::BindVm(binding(like, *n)));
        }
        Act::Unbind(like, n) => {
            let _ = world.ask(unbind(like, *n));
        }
        Act::Lose(number) => lose(world, &card(*number)),
        Act::Return(number) => bring_back(world, &card(*number)),
        Act::Quota(tenant, pages) => {
            let memory = ByteSize::from_bytes(pages * PAGE_SIZE.get());
            world.ask(memory_quota(TENANTS[*tenant], memory)).expect("valid");
        }
        Act::Restart => {
            world.restart();
            world.settle();
        }
    }
}

/// Whether an act can place a DAG that had a place before.
const fn moves_others(act: &Act) -> bool {
    matches!(act, Act::Lose(_) | Act::Return(_) | Act::Restart)
}

/// Cards with 1 GiB beside the catalogue, of which `cache` takes three pages and `vpn` none.
fn world() -> World {
    let mut world = World::empty();
    let memory = |id: &NtTypeId| match id.as_str() {
        "cache" => ByteSize::from_mib(5),
        "vpn" => ByteSize::ZERO,
        _ => ByteSize::from_mib(2),
    };
    let nts = nts().into_iter().map(|nt| NtType { memory: memory(&nt.id), ..nt });
    let tenants = TENANTS.map(|id| Command::CreateTenant(tenant(id)));
    let bitstreams = bitstreams().into_iter().map(Command::CreateBitstream);
    for command in tenants.into_iter().chain(nts.map(Command::CreateNtType)).chain(bitstreams) {
        world.ask(command).expect("the catalogue is valid");
    }
    for id in (0..CARDS.len()).map(card) {
        world.cards.insert(id.clone(), empty_card());
        world.controller.declare_functions(id.clone(), functions());
        world.add_card(id);
    }
    world.settle();
    world
}

/// Bytes that the page tables of all cards give to NTs.
fn allocated(world: &World) -> u64 {
    let rows = |card: &TinyCard| {
        let rows = 0..Table::Page.rows() as u16;
        rows.filter(|row| card.tables.get::<PageRow>(*row).is_some()).count() as u64
    };
    world.cards.values().map(rows).sum::<u64>() * PAGE_SIZE.get()
}

/// Bytes that the planner has reserved, of each card where a DAG can tell.
fn reserved(world: &World) -> BTreeMap<CardId, u64> {
    let of = |view: snic_controller::DagView| {
        let left = world.controller.dag_headroom(&view.name);
        let left = left.into_iter().find(|left| left.resource == Resource::Memory)?;
        Some((view.mapping?.card, MEMORY - left.available))
    };
    world.controller.dags(None).into_iter().filter_map(of).collect()
}

/// A tenant's usage, counted in what the lists show.
fn counted(world: &World, tenant: &str) -> TenantUsage {
    let id = tenant_id(tenant);
    let dags = world.controller.dags(Some(&id));
    let types: BTreeMap<_, NtType> =
        world.controller.nt_types(&operator()).map(|view| (view.nt.id.clone(), view.nt)).collect();
    // The cards on which each type is; those of DAGs without a place are on none.
    let mut cards: BTreeMap<&NtTypeId, BTreeSet<CardId>> = BTreeMap::new();
    for view in &dags {
        for node in &view.spec.nodes {
            let card = view.mapping.as_ref().map(|mapping| mapping.card.clone());
            cards.entry(&node.nt).or_default().extend(card);
        }
    }
    let pages = |(nt, cards): (&&NtTypeId, &BTreeSet<CardId>)| {
        types[*nt].memory.get().div_ceil(PAGE_SIZE.get()) * cards.len().max(1) as u64
    };
    let own = |owner: Option<_>| owner.as_ref() == Some(&id);
    let bitstreams: Vec<_> = world
        .controller
        .bitstreams(&operator())
        .filter(|view| own(view.bitstream.id.owner()))
        .collect();
    let open = |of: &snic_controller::OperationView| {
        of.record.ended.is_none() && of.record.tenant() == Some(&id)
    };
    let machines = world.controller.bindings_after(Some(&id), None);
    TenantUsage {
        dags: dags.len() as u32,
        bandwidth: dags.iter().map(|dag| dag.spec.bandwidth).sum::<Bandwidth>(),
        bitstreams: bitstreams.iter().map(|view| view.bitstream.images.len() as u32).sum(),
        bitstream_bytes: bitstreams.iter().map(|view| view.bitstream.images.size()).sum(),
        memory: ByteSize::from_bytes(cards.iter().map(pages).sum::<u64>() * PAGE_SIZE.get()),
        nt_types: types.keys().filter(|nt| own(nt.owner())).count() as u32,
        rules: world.controller.rules().filter(|view| view.rule.dag.tenant == id).count() as u32,
        machines: machines.filter(|view| !view.record.state.has_ended()).count() as u32,
        operations: world.controller.operations(&operator()).filter(open).count() as u32,
        threads: 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// At rest, with DAGs on three cards: what tenants are told they use of memory is what the
    /// cards' page tables allocate, what their ledgers reserved and what fairness counts; and every other
    /// number of a tenant's usage is what the lists show. No request takes more memory than the
    /// quota, or than the tenant had.
    #[test]
    fn usage_is_what_there_is(acts in prop::collection::vec(act(), 1..20)) {
        let mut world = world();
        for (number, act) in acts.iter().enumerate() {
            let before = TENANTS.map(|tenant| world.tenant(tenant).usage.memory);
            carry_out(&mut world, act, number);
            for (tenant, before) in TENANTS.into_iter().zip(before) {
                let view = world.tenant(tenant);
                prop_assert_eq!(view.usage, counted(&world, tenant), "under way");
                let most = view.tenant.quota.memory_max.max(before);
                prop_assert!(moves_others(act) || view.usage.memory <= most, "{:?}", view.usage);
            }
        }
        for number in 0..CARDS.len() {
            bring_back(&mut world, &card(number));
        }
        world.settle();
        periods(&mut world, 2, &[]);
        for dag in world.controller.dags(None) {
            prop_assert_eq!(dag.state, DagState::Ready, "{:?}", dag.conditions);
        }
        let mut used = 0;
        for tenant in TENANTS {
            let usage = world.tenant(tenant).usage;
            prop_assert_eq!(usage, counted(&world, tenant));
            let fairness = world.controller.fairness(&tenant_id(tenant));
            let asked: u64 = fairness.iter().map(|view| view.memory.get()).sum();
            prop_assert_eq!(asked, usage.memory.get(), "what fairness counts");
            let pages = fairness.iter().flat_map(|view| &view.dags).map(|dag| dag.memory_pages);
            prop_assert_eq!(pages.sum::<u64>() * PAGE_SIZE.get(), asked, "by DAG");
            used += usage.memory.get();
        }
        prop_assert_eq!(allocated(&world), used, "what the cards allocate");
        let reserved = reserved(&world);
        prop_assert_eq!(reserved.values().sum::<u64>(), used, "what the ledgers reserved");
    }
}

/// A card with 1 GiB.
fn empty_card() -> TinyCard {
    TinyCard::new(CardProfile { memory: ByteSize::from_bytes(MEMORY), ..profile() })
}

/// A lost card is there again, empty: the daemon takes it as a new one when it starts.
fn bring_back(world: &mut World, id: &CardId) {
    if !world.cards.contains_key(id) {
        world.cards.insert(id.clone(), empty_card());
        world.restart();
        world.settle();
    }
}

/// A card is lost for good, unless it is: its DAGs go elsewhere.
fn lose(world: &mut World, id: &CardId) {
    if world.cards.remove(id).is_some() {
        world.asked.retain(|(card, _)| card != id);
        let report = CardReport::Lost { reason: "no answer on the bus".into() };
        world.handle(Event::Card { card: id.clone(), report });
        world.ask(Command::RemoveCard { card: id.clone() }).expect("it is lost");
    }
}

fn unbind(like: &str, number: u8) -> Command {
    Command::UnbindVm { vm: vm(like, number), tenant: Some(dag(like).tenant) }
}

fn pages(world: &World, tenant: &str) -> u64 {
    world.tenant(tenant).usage.memory.get() / PAGE_SIZE.get()
}

fn card_of(world: &World, name: &str) -> CardId {
    world.view(name).mapping.expect("it has a place").card
}

fn with_order(order: CardOrder) -> World {
    let mut world = world();
    world.settings.placement.cards = order;
    world.restart();
    world.settle();
    world
}

fn page(count: u64) -> ByteSize {
    ByteSize::from_bytes(count * PAGE_SIZE.get())
}

/// Each card allocates an NT for itself, so the quota is checked against all of them.
#[test]
fn an_nt_on_two_cards_counts_twice_against_the_quota() {
    let mut world = with_order(CardOrder::Spread);
    world.ask(memory_quota("acme", page(1))).expect("valid");
    world.deploy("acme/a", "nat", 10);
    // Another card would be next, but there the tenant would be beyond its quota.
    world.deploy("acme/b", "nat", 10);
    assert_eq!(card_of(&world, "acme/a"), card_of(&world, "acme/b"));
    assert_eq!(pages(&world, "acme"), 1);
    // The card's ingress takes no more: what is missing is the quota for another card.
    let error = world.ask(create("acme/c", spec("nat", 90))).expect_err("the card is full");
    let ControlError::Quota { quota, limit, used, asked, .. } = error else { panic!("{error:?}") };
    assert_eq!(
        (&*quota, &*limit, &*used, &*asked),
        ("memory_max_bytes", "2 MiB", "2 MiB", "4 MiB")
    );
    let two = batch("acme", ["nat", "nat"]);
    let plan = world.controller.batch_snapshot(&two).plan();
    world.ask(Command::CreateDags { batch: two, plan }).expect("there is room");
    world.settle();
    assert_eq!(
        (card_of(&world, "acme/batch1"), pages(&world, "acme")),
        (card_of(&world, "acme/a"), 1)
    );
    world.ask(memory_quota("acme", page(2))).expect("valid");
    world.deploy("acme/c", "nat", 90);
    assert_eq!(pages(&world, "acme"), 2);
    assert_eq!(allocated(&world), 2 * PAGE_SIZE.get());
    world.ask(delete("acme/c")).expect("it exists");
    world.settle();
    assert_eq!(pages(&world, "acme"), 1);
}

/// DAGs whose card is gone go where the quota is met if they can. Where they cannot, they are not
/// refused for it: what was admitted runs, and nothing new is admitted until the tenant uses less.
#[test]
fn a_lost_place_is_not_refused_for_a_quota() {
    let mut world = with_order(CardOrder::Spread);
    world.ask(memory_quota("acme", page(1))).expect("valid");
    world.deploy("acme/a", "nat", 30);
    world.deploy("acme/b", "nat", 30);
    let first = card_of(&world, "acme/a");
    lose(&mut world, &first);
    world.settle();
    let second = card_of(&world, "acme/a");
    assert_ne!(first, second);
    assert_eq!((card_of(&world, "acme/b"), pages(&world, "acme")), (second.clone(), 1));

    // On the two other cards there is room for one of them each.
    bring_back(&mut world, &first);
    for name in ["beta/a", "beta/b"] {
        world.deploy(name, "lb", 60);
        assert_ne!(card_of(&world, name), second, "most is promised there");
    }
    lose(&mut world, &second);
    world.settle();
    assert_ne!(card_of(&world, "acme/a"), card_of(&world, "acme/b"));
    assert_eq!([world.state("acme/a"), world.state("acme/b")], [DagState::Ready; 2]);
    assert_eq!(
        (pages(&world, "acme"), allocated(&world)),
        (2, 4 * PAGE_SIZE.get()),
        "beside two of lb"
    );
    let error = world.ask(create("acme/c", spec("aes", 1))).expect_err("one more page");
    assert!(
        matches!(&error, ControlError::Quota { quota, .. } if quota == "memory_max_bytes"),
        "{error}"
    );
    world.ask(update("acme/a", spec("nat", 29))).expect("it takes no more than before");
    world.settle();
    assert_eq!(world.state("acme/a"), DagState::Ready);
}
