//! What tenants use is what there is: the numbers of `GetTenant` beside what the card allocates, what
//! the ledger has reserved, what fairness counts, and what the lists show.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use snic_controller::{Command, TenantUsage};
use snic_domain::limits::PAGE_SIZE;
use snic_domain::{
    Bandwidth, ByteSize, CardProfile, DagState, Match, NtType, Resource, Rule, RuleId,
};
use snic_tables::{PageRow, Table};

use crate::elastic::periods;
use crate::support::card::TinyCard;
use crate::support::things::{
    bitstream, caller, card_id, create, dag, delete, delete_bitstream, delete_nt, nt, profile,
    spec, tenant_id, update,
};
use crate::support::{World, operator};

const TENANTS: [&str; 2] = ["acme", "beta"];
const MEMORY: u64 = 1_024 << 20;

#[derive(Debug, Clone)]
enum Act {
    /// A chain with this many Gbit/s; `aes` has 10 in a region, `cache` 20.
    Put(&'static str, String, u64),
    Remove(&'static str),
    Rule(&'static str),
    /// The tenant's own NT type and bitstream of this number, or their end.
    Own(usize, u8),
    Disown(usize, u8),
}

const DAGS: [&str; 6] = ["acme/a", "acme/b", "acme/c", "beta/a", "beta/b", "beta/c"];

fn act() -> impl Strategy<Value = Act> {
    let nts = prop::sample::select(vec!["nat", "cache", "aes", "lb", "vpn"]);
    let chain = prop::collection::vec(nts, 1..4).prop_map(|nts| nts.join(" "));
    let name = || prop::sample::select(DAGS.to_vec());
    prop_oneof![
        6 => (name(), chain, 1u64..25).prop_map(|(name, chain, gbps)| Act::Put(name, chain, gbps)),
        2 => name().prop_map(Act::Remove),
        1 => name().prop_map(Act::Rule),
        1 => (0usize..2, 0u8..2).prop_map(|(tenant, n)| Act::Own(tenant, n)),
        1 => (0usize..2, 0u8..2).prop_map(|(tenant, n)| Act::Disown(tenant, n)),
    ]
}

/// Carries out an act; a refusal changes nothing, which is what is looked at.
fn carry_out(world: &mut World, act: &Act, number: usize) {
    match act {
        Act::Put(name, chain, gbps) => {
            let put = if world.controller.dag_view(&dag(name)).is_some() { update } else { create };
            let _ = world.ask(put(name, spec(chain, *gbps)));
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
    }
}

/// A card with 1 GiB beside the catalogue.
fn world() -> World {
    let mut world = World::without_card();
    let card = CardProfile { memory: ByteSize::from_bytes(MEMORY), ..profile() };
    world.cards.insert(card_id(), TinyCard::new(card));
    world.add_card(card_id());
    world.settle();
    world
}

/// Bytes that the card's page table gives to NTs.
fn allocated(world: &mut World) -> u64 {
    let tables = &world.card().tables;
    let rows = (0..Table::Page.rows() as u16).filter_map(|row| tables.get::<PageRow>(row));
    rows.count() as u64 * PAGE_SIZE.get()
}

/// Bytes that the planner has reserved, where a DAG can tell.
fn reserved(world: &World) -> Option<u64> {
    let of = |name: &&str| {
        let left = world.controller.dag_headroom(&dag(name));
        left.into_iter().find(|left| left.resource == Resource::Memory)
    };
    DAGS.iter().find_map(of).map(|left| MEMORY - left.available)
}

/// A tenant's usage, counted in what the lists show.
fn counted(world: &World, tenant: &str) -> TenantUsage {
    let id = tenant_id(tenant);
    let dags = world.controller.dags(Some(&id));
    let types: BTreeMap<_, NtType> =
        world.controller.nt_types(&operator()).map(|view| (view.nt.id.clone(), view.nt)).collect();
    let used: BTreeSet<_> =
        dags.iter().flat_map(|dag| &dag.spec.nodes).map(|node| node.nt.clone()).collect();
    let pages = |nt: &_| types[nt].memory.get().div_ceil(PAGE_SIZE.get());
    let own = |owner: Option<_>| owner.as_ref() == Some(&id);
    let bitstreams: Vec<_> = world
        .controller
        .bitstreams(&operator())
        .filter(|view| own(view.bitstream.id.owner()))
        .collect();
    let open = |of: &snic_controller::OperationView| {
        of.record.ended.is_none() && of.record.tenant() == Some(&id)
    };
    TenantUsage {
        dags: dags.len() as u32,
        bandwidth: dags.iter().map(|dag| dag.spec.bandwidth).sum::<Bandwidth>(),
        bitstreams: bitstreams.len() as u32,
        bitstream_bytes: bitstreams.iter().map(|view| view.bitstream.size).sum(),
        memory: ByteSize::from_bytes(used.iter().map(pages).sum::<u64>() * PAGE_SIZE.get()),
        nt_types: types.keys().filter(|nt| own(nt.owner())).count() as u32,
        rules: world.controller.rules().filter(|view| view.rule.dag.tenant == id).count() as u32,
        machines: world.controller.bindings_after(Some(&id), None).count() as u32,
        operations: world.controller.operations(&operator()).filter(open).count() as u32,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// At rest, with all DAGs on one card: what tenants are told they use of its memory is what its
    /// page table allocates, what the planner reserved and what fairness counts; and every other
    /// number of a tenant's usage is what the lists show.
    #[test]
    fn usage_is_what_there_is(acts in prop::collection::vec(act(), 1..16)) {
        let mut world = world();
        for (number, act) in acts.iter().enumerate() {
            carry_out(&mut world, act, number);
            for tenant in TENANTS {
                prop_assert_eq!(world.tenant(tenant).usage, counted(&world, tenant), "under way");
            }
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
        prop_assert_eq!(allocated(&mut world), used, "what the card allocates");
        if let Some(reserved) = reserved(&world) {
            prop_assert_eq!(reserved, used, "what the planner reserved");
        }
    }
}
