//! One refusal for each resource, with its numbers counted by hand, the nodes that it is about, and the order in
//! which shortages are told.

use crate::support;
use crate::support::{
    World, bitstream, chain, gbps, graph_with, known_region, lut, name, nt_id, profile,
};
use snic_domain::{
    Bandwidth, ByteSize, CardId, CardProfile, Dag, DagSpec, FormPreference, Infeasible,
    PacketSizes, RegionId, RegionKind, RegionPass, RegionProfile, Resource, Shortage,
};
use snic_planner::{
    Effort, Ledger, Objective, PlanRequest, RegionCondition, TableRows, plan_within,
};

/// The same world on another card.
fn on(mut world: World, card: CardProfile, rows: TableRows) -> World {
    world.ledger = Ledger::with_rows(CardId::new("card-0").expect("a test id"), card, rows);
    world
}

fn refusal(world: &World, nts: &str, n: u64) -> Infeasible {
    world.plan(&name("t0/d"), &chain(nts, gbps(n))).expect_err("it is too much")
}

/// Resource, required, available.
fn numbers(refusal: &Infeasible) -> Vec<(Resource, u64, u64)> {
    refusal.shortages.iter().map(|s| (s.resource, s.required, s.available)).collect()
}

fn nodes(shortage: &Shortage) -> Vec<&str> {
    shortage.nodes.iter().map(|node| node.as_str()).collect()
}

const GIGA: u64 = 1_000_000_000;

#[test]
fn ingress_and_egress_are_told_together_and_each_alone() {
    let world = || World::with(4, "a", &[("a", "a")]);
    let card = |ingress, egress| CardProfile {
        ingress: gbps(ingress),
        egress: gbps(egress),
        ..profile(4)
    };
    let ingress = (Resource::IngressBandwidth, 9 * GIGA, 8 * GIGA);
    let egress = (Resource::EgressBandwidth, 9 * GIGA, 7 * GIGA);
    for (limits, short) in
        [((8, 7), vec![ingress, egress]), ((8, 100), vec![ingress]), ((100, 7), vec![egress])]
    {
        let world = on(world(), card(limits.0, limits.1), TableRows::CARD);
        let refused = refusal(&world, "a", 9);
        assert_eq!(numbers(&refused), short);
        assert!(refused.shortages.iter().all(|s| s.nodes.is_empty()), "of the DAG as a whole");
    }
}

/// Amounts that other DAGs took are missing, and those that the DAG itself holds are not.
#[test]
fn an_update_may_use_what_the_dag_holds_already() {
    let card = CardProfile { ingress: gbps(10), ..profile(2) };
    let mut world = on(World::with(2, "a", &[("a", "a")]), card, TableRows::CARD);
    let mine = world.add("t0/d", &chain("a", gbps(4))).expect("the card is empty");
    world.add("t1/d", &chain("a", gbps(3))).expect("there is room");
    let seven = world.update(&name("t0/d"), &chain("a", gbps(7)), &mine.mapping);
    assert!(seven.is_ok(), "3 of 10 are taken by others: {seven:?}");
    let eight = world.update(&name("t0/d"), &chain("a", gbps(8)), &mine.mapping);
    let refused = eight.expect_err("one too many");
    assert_eq!(numbers(&refused), [(Resource::IngressBandwidth, 8 * GIGA, 7 * GIGA)]);
    let other = world.plan(&name("t2/d"), &chain("a", gbps(4))).expect_err("7 are taken");
    assert_eq!(numbers(&other), [(Resource::IngressBandwidth, 4 * GIGA, 3 * GIGA)]);
}

/// Two nodes of an NT need twice the bandwidth, and both are named.
#[test]
fn an_nt_that_is_used_twice_needs_twice() {
    let mut world = World::with(2, "a b", &[("ab", "a b")]);
    world.load(0, "ab");
    let twice = refusal(&world, "a b a", 11);
    assert_eq!(
        numbers(&twice),
        [(Resource::NtBandwidth, 22 * GIGA, 10 * GIGA), (Resource::Regions, 3, 2)],
        "region 0 is unused, so both may be loaded; three regions give 30 of a"
    );
    assert_eq!(nodes(&twice.shortages[0]), ["a", "a-2"]);
    assert_eq!(nodes(&twice.shortages[1]), ["a", "a-2"]);
    assert!(twice.shortages[0].detail.contains("loaded instances of a"), "{twice}");
    assert!(world.plan(&name("t0/d"), &chain("a b a", gbps(10))).is_ok(), "20 of 20");
}

#[test]
fn several_nts_that_are_short_are_told_in_the_order_of_the_nodes() {
    let mut world = World::with(1, "a b c", &[("abc", "a b c")]);
    world.nt("b", |nt| nt.bandwidth_max = gbps(100));
    let refused = refusal(&world, "c b a", 20);
    assert_eq!(
        numbers(&refused),
        [
            (Resource::NtBandwidth, 20 * GIGA, 0),
            (Resource::NtBandwidth, 20 * GIGA, 0),
            (Resource::Regions, 2, 1),
        ]
    );
    assert_eq!(
        (nodes(&refused.shortages[0]), nodes(&refused.shortages[1])),
        (vec!["c"], vec!["a"])
    );
    assert_eq!(nodes(&refused.shortages[2]), ["c", "a"], "b has enough");
}

/// An NT that is not there, is another tenant's, or the provider's own gives the same words.
#[test]
fn an_nt_that_the_tenant_may_not_use_does_not_exist_for_it() {
    let mut world = World::with(1, "a t1.x secret", &[("all", "a")]);
    world.nt("t1.x", |nt| nt.shareable = false);
    world.nt("secret", |nt| nt.shareable = false);
    let words = |nt: &str| {
        let refused = refusal(&world, nt, 1);
        assert_eq!(numbers(&refused), [(Resource::Bitstreams, 1, 0)]);
        refused.shortages[0].detail.replace(nt, "NT")
    };
    assert_eq!(words("nobodys"), words("t1.x"));
    assert_eq!(words("nobodys"), words("secret"));
    let own = world.plan(&name("t1/d"), &chain("t1.x", gbps(1))).expect_err("no bitstream");
    assert!(own.shortages[0].detail.contains("no bitstream that the tenant may use"), "{own}");
    let both = refusal(&world, "t1.x a secret", 1);
    assert_eq!(both.shortages.len(), 2, "each of them is named: {both}");
}

/// Loaded by its owner, shared with all: there is bandwidth, but no more of it can be loaded.
#[test]
fn a_bitstream_that_only_its_owner_may_load_is_told_as_missing() {
    let mut world = World::with(2, "a", &[("t1.a", "a")]);
    world.load(0, "t1.a");
    let trusting = |n| {
        let trusted_tenants = [support::tenant("t1")].into();
        let spec = DagSpec { trusted_tenants, ..chain("a", gbps(n)).spec().clone() };
        Dag::new(spec).expect("a valid chain")
    };
    assert!(world.plan(&name("t0/d"), &trusting(10)).is_ok());
    let refused = world.plan(&name("t0/d"), &trusting(11)).expect_err("10 are loaded");
    assert_eq!(
        numbers(&refused),
        [(Resource::Bitstreams, 1, 0), (Resource::NtBandwidth, 11 * GIGA, 10 * GIGA)]
    );
    assert!(refused.shortages[0].detail.contains("may load"), "{refused}");
    let untrusting = refusal(&world, "a", 1);
    assert_eq!(numbers(&untrusting), [(Resource::Bitstreams, 1, 0)], "it does not trust t1");
    let owner = world.plan(&name("t1/d"), &chain("a", gbps(11)));
    assert!(owner.is_ok(), "its owner loads it again: {owner:?}");
}

#[test]
fn regions_of_another_kind_do_not_count() {
    let mut world = World::with(3, "a", &[("a", "a")]);
    let mut card = profile(3);
    card.regions[1] = RegionProfile { kind: RegionKind::UserNt, ..known_region() };
    card.regions[2] = RegionProfile { area: lut(50), ..known_region() };
    world = on(world, card, TableRows::CARD);
    let refused = refusal(&world, "a", 15);
    assert_eq!(
        numbers(&refused),
        [(Resource::NtBandwidth, 15 * GIGA, 0), (Resource::Regions, 2, 1)],
        "one is for user NTs, one is too small"
    );
    world.ledger.set_condition(RegionId(0), RegionCondition::Faulty);
    assert_eq!(numbers(&refusal(&world, "a", 1))[1], (Resource::Regions, 1, 0));
    world.ledger.set_condition(RegionId(0), RegionCondition::Usable);
    world.ledger.set_kept(RegionId(0), true);
    assert_eq!(numbers(&refusal(&world, "a", 1))[1], (Resource::Regions, 1, 0));
}

#[test]
fn memory_is_told_in_whole_pages_beside_what_is_left() {
    let mut world = World::with(2, "a b", &[("a", "a"), ("b", "b")]);
    for nt in ["a", "b"] {
        world.nt(nt, |nt| nt.memory = ByteSize::from_bytes(3 * 1_024 * 1_024));
    }
    let card = CardProfile { memory: ByteSize::from_mib(12), ..profile(2) };
    world = on(world, card, TableRows::CARD);
    world.load(0, "a");
    world.load(1, "b");
    // Each NT takes two pages of 2 MiB for each tenant.
    world.add("t0/d0", &chain("a", gbps(1))).expect("4 of 12 MiB");
    world.add("t0/d1", &chain("a", gbps(1))).expect("the same tenant pays once");
    world.add("t1/d0", &chain("a", gbps(1))).expect("8 of 12 MiB");
    let refused = world.plan(&name("t2/d0"), &chain("a b", gbps(1))).expect_err("8 more");
    let mib = 1_024 * 1_024;
    assert_eq!(numbers(&refused), [(Resource::Memory, 8 * mib, 4 * mib)]);
    assert!(world.plan(&name("t0/d2"), &chain("a b", gbps(1))).is_ok(), "4 more");
}

/// A card whose tables have rows for two DAGs of one pass; the first takes one of each.
#[test]
fn each_table_is_told_by_its_name() {
    let all = TableRows { dags: 3, stages: 3, chains: 3, instances: 3 };
    let card = |rows| {
        let mut world = on(World::with(2, "a b", &[("a", "a"), ("b", "b")]), profile(2), rows);
        world.load(0, "a");
        world.load(1, "b");
        world.add("t1/d", &chain("a", gbps(1))).expect("one row of each");
        world
    };
    let two_passes = || chain("a b", gbps(1));
    assert!(card(all).plan(&name("t0/d"), &two_passes()).is_ok());
    for (rows, table, needed, left) in [
        (TableRows { dags: 1, ..all }, "DAG", 1, 0),
        (TableRows { stages: 2, ..all }, "stage", 2, 1),
        (TableRows { chains: 2, ..all }, "virtual-chain", 2, 1),
        (TableRows { instances: 2, ..all }, "instance", 2, 1),
    ] {
        let refused = card(rows).plan(&name("t0/d"), &two_passes()).expect_err(table);
        assert_eq!(numbers(&refused), [(Resource::TableRows, needed, left)], "{table}");
        assert!(refused.shortages[0].detail.contains(&format!("the {table} table")), "{refused}");
    }
}

/// A fork of `b -> c` and `d`: in two parts, its longer branch takes two stages, and the shorter one none of its
/// own. With `a` in front that is one stage too many, unless a region with `b` and `c` together is loaded.
#[test]
fn a_fork_takes_as_many_stages_as_its_longest_branch() {
    let edges = [(0, 1), (1, 2), (0, 3)];
    let fork = graph_with(&["a", "b", "c", "d"], &edges, gbps(1), FormPreference::Parallel);
    let card = |regions, stages| {
        let streams = [("a", "a"), ("b", "b"), ("c", "c"), ("d", "d"), ("bc", "b c")];
        let rows = TableRows { dags: 8, stages, chains: 8, instances: 8 };
        let mut world = on(World::with(regions, "a b c d", &streams), profile(regions), rows);
        world.ledger.set_objective(Objective::Regions);
        for (region, id) in (0..).zip(["a", "b", "c", "d"]) {
            world.load(region, id);
        }
        world
    };
    for (regions, stages, expected) in [(4, 3, (0, 3)), (5, 3, (0, 3)), (5, 2, (1, 2))] {
        let plan = card(regions, stages).add("t0/d", &fork).expect("its rows are there");
        assert_eq!((plan.loads.len(), plan.mapping.stages.len()), expected, "{regions} {stages}");
    }
    let used = |mut world: World| {
        // All regions are in use, so nothing can be loaded.
        for nt in ["a", "b", "c", "d"] {
            world.add(&format!("t1/{nt}"), &chain(nt, gbps(1))).expect("it is loaded");
        }
        world
    };
    assert!(used(card(4, 7)).plan(&name("t0/d"), &fork).is_ok(), "three stages beside four");
    let refused = used(card(4, 6)).plan(&name("t0/d"), &fork).expect_err("two are left");
    assert_eq!(numbers(&refused), [(Resource::TableRows, 3, 2)], "{refused}");
}

/// 100 million cycles a second, of which 96 may be promised; four for each packet of 512 bits.
#[test]
fn ports_and_credits_are_told_with_region_and_slot() {
    let pass = RegionPass {
        packets: std::num::NonZeroU32::MIN,
        cycles: std::num::NonZeroU32::new(4).expect("not zero"),
        credits_max: 10,
        ..RegionPass::SUPERNIC
    };
    let card = |pass| CardProfile { clock_hz: 100_000_000, region_pass: Some(pass), ..profile(1) };
    let small = |mbps| {
        let spec = chain("a", Bandwidth::from_mbps(mbps)).spec().clone();
        Dag::new(DagSpec { packet_sizes: PacketSizes::only(64), ..spec }).expect("a chain")
    };
    let loaded = |pass| {
        let mut world = World::with(1, "a", &[("a", "a")]);
        world.nt("a", |nt| nt.bandwidth_max = gbps(100));
        world = on(world, card(pass), TableRows::CARD);
        world.load(0, "a");
        world
    };
    let many = RegionPass { credits_max: 200, ..pass };
    let world = loaded(many);
    let most = 96 * 512 / 4;
    assert!(world.plan(&name("t0/d"), &small(most)).is_ok(), "{most} Mbit/s fill the port");
    let refused = world.plan(&name("t0/d"), &small(most + 128)).expect_err("a million too many");
    let port = refused.shortages.iter().find(|s| s.resource == Resource::RegionPort);
    let port = port.expect("the port is short");
    assert_eq!((port.required, port.available), (97_000_000, 96_000_000));
    assert!(port.detail.contains("1 passes through region 0 with packet sizes 64"), "{port}");
    // The round trip of 16 cycles, at a packet each 51.2 ns, takes 3.125 credits; four fifths of 3 may be promised.
    let few = RegionPass { credits_max: 3, ..pass };
    let refused = loaded(few).plan(&name("t0/d"), &small(10_000)).expect_err("few credits");
    let credits = refused.shortages.iter().find(|s| s.resource == Resource::Credits);
    let credits = credits.expect("the credits are short");
    let round_trip = 2 + 10 + 1 + pass.credit_return.get();
    let needed = 10_000_000_000u64 * round_trip * 1_000 / 512 / 100_000_000;
    assert_eq!(needed, 3_125);
    assert_eq!((credits.required, credits.available), (needed, 2_400));
    assert!(credits.detail.contains("region 0, slot 0"), "{credits}");
}

/// An effort that other plans have used up is told as such, with what was spent.
#[test]
fn a_search_that_may_not_go_on_says_so() {
    let world = World::with(4, "a b c", &[("ab", "a b"), ("bc", "b c")]);
    let (dag, id) = (chain("a b c", gbps(5)), name("t0/d"));
    let request = PlanRequest { name: &id, dag: &dag, previous: None };
    let effort = Effort::new();
    let mut plans = 0;
    let refused = loop {
        match plan_within(&world.ledger, &world.catalogue, &request, &effort) {
            Ok(_) => plans += 1,
            Err(refused) => break refused,
        }
    };
    assert!((20..200).contains(&plans), "{plans} plans from one effort");
    let short = &refused.shortages[0];
    assert_eq!(short.resource, Resource::SearchSteps);
    assert_eq!(short.required, short.available + 1);
    assert!(short.available <= 36_000, "{short}");
    let again = plan_within(&world.ledger, &world.catalogue, &request, &effort);
    assert!(again.is_err(), "nothing is left of it");
    let fresh = plan_within(&world.ledger, &world.catalogue, &request, &Effort::default());
    assert!(fresh.is_ok());
}

/// A DAG of 64 NTs in an order that no bitstream has needs a row for each of them. Where the tables have fewer
/// it is refused before anything is tried, however many regions could be loaded.
#[test]
fn a_dag_without_rows_is_refused_without_a_search() {
    let nts = ["a"; 64].join(" ");
    for objective in [Objective::Regions, Objective::Passes, Objective::Balanced] {
        let looks = |chains, needed: Option<u64>| {
            let rows = TableRows { chains, ..TableRows::CARD };
            let mut world = on(World::with(32, "a b", &[("ab", "a b")]), profile(32), rows);
            world.ledger.set_objective(objective);
            world.load(0, "ab");
            let (dag, id) = (chain(&nts, Bandwidth::from_mbps(1)), name("t0/d"));
            let request = PlanRequest { name: &id, dag: &dag, previous: None };
            let effort = Effort::new();
            let planned = plan_within(&world.ledger, &world.catalogue, &request, &effort);
            let short = planned.err().map(|refused| {
                assert!(refused.shortages[0].detail.contains("a lower bound"), "{refused}");
                numbers(&refused)
            });
            assert_eq!(short, needed.map(|n| vec![(Resource::TableRows, n, u64::from(chains))]));
            effort.spent()
        };
        let (refused, placed) = (looks(63, Some(64)), looks(64, None));
        assert!(refused * 5 < placed, "{refused} looks for a refusal, {placed} for a plan");
    }
}

/// Shortages that waiting does not resolve are told first.
#[test]
fn the_hardest_shortage_is_first() {
    let mut world = World::with(1, "a b", &[("a", "a")]);
    let card = CardProfile { ingress: gbps(5), egress: gbps(5), ..profile(1) };
    let rows = TableRows { dags: 0, ..TableRows::CARD };
    world = on(world, card, rows);
    let told: Vec<Resource> =
        refusal(&world, "a b", 30).shortages.iter().map(|s| s.resource).collect();
    assert_eq!(
        told,
        [
            Resource::Bitstreams,
            Resource::IngressBandwidth,
            Resource::EgressBandwidth,
            Resource::NtBandwidth,
            Resource::TableRows,
        ]
    );
}

/// Neither form has a place: the numbers are the same whichever the DAG asks for.
#[test]
fn a_fork_is_refused_with_the_same_numbers_in_each_form() {
    let world = World::with(2, "a b c", &[("ab", "a b"), ("c", "c")]);
    let fork = |form| graph_with(&["a", "b", "c"], &[(0, 1), (0, 2)], gbps(12), form);
    let all = [FormPreference::Auto, FormPreference::Sequential, FormPreference::Parallel];
    let told = all.map(|form| {
        let refused = world.plan(&name("t0/d"), &fork(form)).expect_err("it needs four regions");
        numbers(&refused)
    });
    assert_eq!(told[0], [(Resource::Regions, 4, 2)]);
    assert!(told.iter().all(|other| *other == told[0]), "{told:?}");
}

/// Bitstreams that a card's regions cannot hold do not make an NT available.
#[test]
fn a_bitstream_for_another_card_is_none() {
    let mut world = World::with(1, "a", &[]);
    let other = snic_domain::CardModel::new("other").expect("a test id");
    world
        .catalogue
        .insert_bitstream(snic_domain::Bitstream { card_model: other, ..bitstream("a", "a") });
    assert_eq!(numbers(&refusal(&world, "a", 1)), [(Resource::Bitstreams, 1, 0)]);
    let mut large = bitstream("large", "a");
    large.images.first_mut().size = ByteSize::from_mib(5);
    world.catalogue.insert_bitstream(large);
    let refused = refusal(&world, "a", 1);
    assert_eq!(numbers(&refused), [(Resource::Bitstreams, 1, 0), (Resource::NtBandwidth, GIGA, 0)]);
    assert!(refused.shortages[0].detail.contains("fits a region of the card"), "{refused}");
    assert!(world.catalogue.nt(&nt_id("a")).is_some());
}
