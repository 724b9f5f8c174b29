//! One rule of the planner at a time.

use crate::support;
use crate::support::{World, chain, gbps, graph_with, known_region, lut, name, profile, show, why};
use snic_domain::{
    ByteSize, CardModel, Cycles, EmbeddingKind, FormPreference, RegionId, RegionKind,
    RegionProfile, Resource, Slot,
};
use snic_planner::{Ledger, RegionCondition, TableRows};

fn kinds(plan: &snic_planner::Plan) -> Vec<EmbeddingKind> {
    plan.explanation.chains.iter().flat_map(|c| &c.embeddings).map(|e| e.kind).collect()
}

#[test]
fn share_before_free_before_victim() {
    let mut world = World::with(3, "a b", &[("ab", "a b"), ("b", "b")]);
    world.load(0, "b");
    let first = world.add("t0/d0", &chain("a", gbps(4))).expect("a free region");
    assert_eq!(
        (show(&first.mapping).as_str(), kinds(&first)),
        ("1:0*4", vec![EmbeddingKind::FreeRegion])
    );
    let second = world.add("t0/d1", &chain("a b", gbps(4))).expect("shared");
    assert_eq!(
        (show(&second.mapping).as_str(), kinds(&second)),
        ("1:0,1*4", vec![EmbeddingKind::Shared])
    );
    let third = world.add("t0/d2", &chain("a", gbps(9))).expect("the last free region");
    assert_eq!(
        (show(&third.mapping).as_str(), kinds(&third)),
        ("2:0*9", vec![EmbeddingKind::FreeRegion])
    );
    let fourth = world.add("t0/d3", &chain("a", gbps(8))).expect("the victim");
    assert_eq!(
        (show(&fourth.mapping).as_str(), kinds(&fourth)),
        ("0:0*8", vec![EmbeddingKind::VictimRegion])
    );
    assert_eq!(fourth.loads[0].replaces.as_ref().map(|b| b.as_str()), Some("b"));
    let rejected: Vec<_> =
        fourth.explanation.chains[0].rejected.iter().map(|r| (r.kind, why(r))).collect();
    assert_eq!(
        rejected,
        [
            (EmbeddingKind::Shared, Ok((Resource::NtBandwidth, 8_000_000_000, 3_000_000_000))),
            (EmbeddingKind::FreeRegion, Ok((Resource::Regions, 1, 0))),
            (EmbeddingKind::Split, Ok((Resource::Passes, 2, 1))),
        ]
    );
}

#[test]
fn a_victim_is_shared_again_at_once() {
    let mut world = World::with(1, "a", &[("a", "a")]);
    world.add("t0/d0", &chain("a", gbps(4))).expect("free");
    world.ledger.release(&name("t0/d0"));
    let plan = world.add("t1/d1", &chain("a", gbps(4))).expect("still loaded");
    assert!(plan.loads.is_empty());
}

#[test]
fn the_region_with_the_most_headroom_is_shared() {
    let mut world = World::with(3, "a", &[("a", "a"), ("aa", "a a")]);
    for region in 0..3 {
        world.load(region, "a");
    }
    world.add("t0/d0", &chain("a", gbps(4))).expect("shared");
    let plan = world.add("t0/d1", &chain("a", gbps(1))).expect("shared");
    assert_eq!(show(&plan.mapping), "1:0*1", "region 0 has less, 2 is as good but later");
    // Within a region as well.
    let mut world = World::with(1, "a", &[("aa", "a a")]);
    world.load(0, "aa");
    world.add("t0/d0", &chain("a", gbps(4))).expect("shared");
    let plan = world.add("t0/d1", &chain("a", gbps(1))).expect("shared");
    assert_eq!(show(&plan.mapping), "0:1*1");
}

/// Three slots of a chain carry what no single path through them does.
#[test]
fn instances_may_share_a_region() {
    let mut world = World::with(1, "a b", &[("abab", "a b a b")]);
    world.load(0, "abab");
    let plan = world.add("t0/d0", &chain("a b", gbps(20))).expect("two ways through it");
    assert_eq!(show(&plan.mapping), "0:0,1*10 + 0:2,3*10");
}

#[test]
fn shares_are_whole_kbps_and_leave_equal_headroom() {
    let mut world = World::with(3, "a", &[("a", "a")]);
    world.nt("a", |nt| nt.bandwidth_max = snic_domain::Bandwidth::from_bps(10_000_000_999));
    let plan = world.add("t0/d0", &chain("a", gbps(25))).expect("three regions");
    let kbps: Vec<u32> =
        plan.mapping.instances().map(|instance| instance.bandwidth.kbps()).collect();
    assert_eq!(kbps.iter().sum::<u32>(), 25_000_000);
    assert!(kbps.iter().all(|k| (8_333_333..=8_333_334).contains(k)), "{kbps:?}");
}

#[test]
fn the_bitstream_that_fills_its_region_best_is_loaded() {
    let mut world = World::with(1, "a b c", &[("abc", "a b c"), ("a", "a"), ("ab", "a b")]);
    world.ledger = {
        let mut two = profile(2);
        two.regions[0] = RegionProfile { area: lut(2_000), ..known_region() };
        Ledger::new(snic_domain::CardId::new("card-0").expect("a test id"), two)
    };
    let plan = world.add("t0/d0", &chain("a", gbps(1))).expect("a free region");
    assert_eq!(plan.loads[0].bitstream.as_str(), "abc");
    assert_eq!(plan.loads[0].region, RegionId(1), "the smaller region is fuller");
    assert_eq!(plan.explanation.chains[0].embeddings[0].unused_permille, 700);
}

#[test]
fn a_chain_is_cut_only_where_nothing_holds_it() {
    let mut world = World::with(3, "a b c", &[("ab", "a b"), ("c", "c"), ("bc", "b c")]);
    world.load(0, "bc");
    let plan = world.add("t0/d0", &chain("a b c", gbps(5))).expect("a cut");
    assert_eq!(kinds(&plan), [EmbeddingKind::Split, EmbeddingKind::Split]);
    assert_eq!(plan.loads.len(), 1, "one part is shared: {}", show(&plan.mapping));
    assert_eq!(plan.mapping.stages.len(), 2);
    assert_eq!(plan.explanation.form.sequential, Cycles::new(49 + 16 + 30));
    let rejected: Vec<EmbeddingKind> =
        plan.explanation.chains[0].rejected.iter().map(|r| r.kind).collect();
    assert_eq!(
        rejected,
        [EmbeddingKind::Shared, EmbeddingKind::FreeRegion, EmbeddingKind::VictimRegion]
    );
}

/// New regions come before passes: what two loaded chains have together is taken first.
#[test]
fn a_cut_is_preferred_to_a_new_region() {
    let mut world = World::with(3, "a b", &[("a", "a"), ("b", "b"), ("ab", "a b")]);
    world.load(0, "a");
    world.load(1, "b");
    let plan = world.add("t0/d0", &chain("a b", gbps(5))).expect("shared in two parts");
    assert_eq!(show(&plan.mapping), "0:0*5 | 1:0*5");
    let embedding = &plan.explanation.chains[0].embeddings[0];
    assert_eq!((embedding.new_regions, embedding.passes, embedding.interruptions), (0, 2, 0));
    let free = &plan.explanation.chains[0].rejected[1];
    let cost = Err([1, 0, 1]);
    assert_eq!((free.kind, why(free)), (EmbeddingKind::FreeRegion, cost), "a region for a pass");
}

/// b -> a through a chain a -> b: one region, two passes.
#[test]
fn a_chain_against_the_grain_passes_twice() {
    let mut world = World::with(1, "a b", &[("ab", "a b")]);
    let plan = world.add("t0/d0", &chain("b a", gbps(5))).expect("two passes");
    assert_eq!(show(&plan.mapping), "0:1*5 | 0:0*5");
    assert_eq!(plan.loads.len(), 1);
}

#[test]
fn consent_visibility_and_ownership_are_kept() {
    let mut world = World::with(2, "a t0.p", &[("t0.a", "a t0.p")]);
    world.nt("t0.p", |nt| nt.shareable = false);
    world.bitstream("t0.a", |b| b.shareable = false);
    let own = world.add("t0/d0", &chain("a", gbps(1))).expect("the owner's bitstream");
    let refusal = world.add("t1/d0", &chain("a", gbps(1))).expect_err("no consent");
    assert_eq!(refusal.shortages[0].resource, Resource::Bitstreams);
    assert!(!refusal.to_string().contains("t0"), "{refusal}");
    // A tenant cannot tell what it may not see from what does not exist.
    let hidden = world.add("t1/d0", &chain("t0.p", gbps(1))).expect_err("hidden").to_string();
    let absent = world.add("t1/d0", &chain("t0.q", gbps(1))).expect_err("absent").to_string();
    assert_eq!(hidden.replace("t0.p", "X").replace("t0-p", "X"), absent.replace("t0.q", "X"));
    // With consent the other tenant shares what is loaded, but cannot have it loaded.
    world.bitstream("t0.a", |b| b.shareable = true);
    let bitstream = world.catalogue.bitstream(&own.loads[0].bitstream).cloned();
    world
        .ledger
        .set_content(own.loads[0].region, bitstream.as_ref(), &world.catalogue)
        .expect("the same NTs");
    let refusal = world.add("t1/d0", &chain("a", gbps(9))).expect_err("t1 does not trust t0");
    assert_eq!(refusal.shortages[0].resource, Resource::Bitstreams);
    assert!(!refusal.to_string().contains("t0"), "{refusal}");
    let trusting = |dag: &snic_domain::Dag| {
        let trusted_tenants = [support::tenant("t0")].into();
        let spec = snic_domain::DagSpec { trusted_tenants, ..dag.spec().clone() };
        snic_domain::Dag::new(spec).expect("as before")
    };
    let shared = world.add("t1/d0", &trusting(&chain("a", gbps(9)))).expect("consent and trust");
    assert_eq!(kinds(&shared), [EmbeddingKind::Shared]);
    let refusal =
        world.add("t1/d1", &trusting(&chain("a", gbps(1)))).expect_err("not the tenant's to load");
    let resources: Vec<Resource> = refusal.shortages.iter().map(|s| s.resource).collect();
    assert_eq!(resources, [Resource::Bitstreams, Resource::NtBandwidth]);
}

/// A bitstream that is to be deleted is neither shared nor loaded, and the DAG in it finds another place beside it.
#[test]
fn what_is_withheld_is_in_no_plan_until_it_is_given_back() {
    let mut world = World::with(2, "a", &[("a", "a"), ("a2", "a")]);
    let first = world.add("t0/d0", &chain("a", gbps(4))).expect("a free region");
    let used = first.loads[0].bitstream.clone();
    world.catalogue.withhold(&[used.clone()].into());
    assert!(world.catalogue.is_withheld(&used) && world.catalogue.bitstream(&used).is_none());
    let dag = chain("a", gbps(4));
    let moved = world.update(&name("t0/d0"), &dag, &first.mapping).expect("the other region");
    assert_eq!(kinds(&moved), [EmbeddingKind::FreeRegion]);
    assert_ne!(moved.loads[0].bitstream, used);
    let beside = world.add("t1/d1", &chain("a", gbps(10))).expect("the other image");
    assert_eq!(kinds(&beside), [EmbeddingKind::FreeRegion]);
    world.plan(&name("t2/d2"), &dag).expect_err("what is left of the first is withheld");
    world.catalogue.withhold(&[].into());
    let shared = world.add("t2/d2", &dag).expect("as before");
    assert_eq!(kinds(&shared), [EmbeddingKind::Shared]);
    assert_eq!(world.catalogue.bitstream(&used).map(|b| &b.id), Some(&used));
}

#[test]
fn kind_model_size_and_area_must_fit() {
    let fits = |change: &dyn Fn(&mut World)| {
        let mut world = World::with(1, "a", &[("a", "a")]);
        change(&mut world);
        world.add("t0/d0", &chain("a", gbps(1))).is_ok()
    };
    assert!(fits(&|_| ()));
    assert!(!fits(&|w| w.bitstream("a", |b| b.region_kind = RegionKind::UserNt)));
    assert!(!fits(&|w| w.bitstream("a", |b| b.card_model = CardModel::new("x").expect("id"))));
    assert!(!fits(&|w| w.bitstream("a", |b| b.images.first_mut().size = ByteSize::from_mib(5))));
    assert!(!fits(&|w| w.nt("a", |nt| nt.area = lut(1_001))));
    assert!(fits(&|w| w.nt("a", |nt| nt.area = lut(1_000))));
}

#[test]
fn only_usable_regions_are_planned_with() {
    for condition in [RegionCondition::Cordoned, RegionCondition::Faulty, RegionCondition::Unknown]
    {
        let mut world = World::with(2, "a", &[("a", "a")]);
        world.load(0, "a");
        world.ledger.set_condition(RegionId(0), condition);
        let plan = world.add("t0/d0", &chain("a", gbps(1))).expect("the other region");
        assert_eq!(show(&plan.mapping), "1:0*1");
        world.ledger.set_condition(RegionId(1), condition);
        let refusal = world.add("t0/d1", &chain("a", gbps(1))).expect_err("no region");
        assert_eq!(refusal.shortages.last().map(|s| s.resource), Some(Resource::Regions));
        // Only of cordons somebody can do something about it.
        let says = |text: &str| refusal.shortages.iter().any(|short| short.detail.contains(text));
        let is_cordoned = condition == RegionCondition::Cordoned;
        assert_eq!(says("2 of the card's 2 regions are cordoned"), is_cordoned, "{refusal:?}");
    }
}

/// More bandwidth where it is: what the DAG holds counts as released, its region is kept.
#[test]
fn an_update_counts_without_what_it_replaces() {
    let mut world = World::with(1, "a b", &[("a", "a"), ("ab", "a b")]);
    world.load(0, "a");
    let plan = world.add("t0/d0", &chain("a", gbps(6))).expect("shared");
    let more = world.update(&name("t0/d0"), &chain("a", gbps(10)), &plan.mapping);
    assert_eq!(show(&more.expect("all of it").mapping), "0:0*10");
    let other = world.update(&name("t0/d0"), &chain("b", gbps(1)), &plan.mapping);
    let refusal = other.expect_err("region 0 must not be loaded while packets pass");
    assert_eq!(refusal.shortages.last().map(|s| s.resource), Some(Resource::Regions));
    world.ledger.release(&name("t0/d0"));
    world.update(&name("t0/d0"), &chain("b", gbps(1)), &plan.mapping).expect_err("nor then");
    assert!(world.add("t0/d0", &chain("b", gbps(1))).is_ok(), "a new DAG may take the victim");
}

#[test]
fn ingress_and_egress_have_an_end() {
    let mut world = World::with(2, "a", &[("a", "a")]);
    let mut narrow = profile(2);
    (narrow.ingress, narrow.egress) = (gbps(5), gbps(4));
    world.ledger = Ledger::new(snic_domain::CardId::new("card-0").expect("a test id"), narrow);
    world.add("t0/d0", &chain("a", gbps(3))).expect("fits");
    let refusal = world.add("t0/d1", &chain("a", gbps(3))).expect_err("5 and 4 in all");
    let short: Vec<_> =
        refusal.shortages.iter().map(|s| (s.resource, s.required, s.available)).collect();
    assert_eq!(
        short,
        [
            (Resource::IngressBandwidth, 3_000_000_000, 2_000_000_000),
            (Resource::EgressBandwidth, 3_000_000_000, 1_000_000_000),
        ]
    );
}

#[test]
fn memory_and_rows_have_an_end() {
    let mut world = World::with(2, "a b", &[("ab", "a b")]);
    world.nt("a", |nt| nt.memory = ByteSize::from_mib(10_000));
    world.add("t0/d0", &chain("a", gbps(1))).expect("10,000 of 10,240 MiB");
    world.add("t0/d1", &chain("a", gbps(1))).expect("the same tenant's memory");
    world.add("t0/d2", &chain("a", gbps(9))).expect("the same memory from another region");
    let refusal = world.add("t1/d0", &chain("a", gbps(1))).expect_err("another tenant's");
    let short = &refusal.shortages[0];
    assert_eq!((short.resource, short.required), (Resource::Memory, 10_000 << 20));
    assert_eq!(short.available, 240 << 20);

    let rows = TableRows { stages: 1, ..TableRows::CARD };
    let card = snic_domain::CardId::new("card-0").expect("a test id");
    world.ledger = Ledger::with_rows(card, profile(1), rows);
    let refusal = world.add("t0/d0", &chain("b a", gbps(1))).expect_err("two passes");
    let short = &refusal.shortages[0];
    assert_eq!((short.resource, short.required, short.available), (Resource::TableRows, 2, 1));
    assert!(short.detail.contains("stage"), "{short}");
}

/// A fork whose branches use one NT: both shares count on the same slot.
#[test]
fn branches_on_one_slot_add_up() {
    let edges = [(0, 1), (0, 2)];
    let dag = |n| graph_with(&["a", "b", "b"], &edges, gbps(n), FormPreference::Parallel);
    let mut world = World::with(1, "a b", &[("ab", "a b")]);
    let plan = world.add("t0/d0", &dag(5)).expect("5 + 5 of 10");
    assert_eq!(show(&plan.mapping), "0:0*5 | 0:1*5 & 0:1*5");
    assert_eq!(plan.reservation.bandwidths().last(), Some((RegionId(0), Slot(1), gbps(10))));
    world.ledger.release(&name("t0/d0"));
    let refusal = world.add("t0/d0", &dag(6)).expect_err("6 + 6 of 10");
    assert_eq!(refusal.shortages[0].required, 12_000_000_000);
    assert_eq!(refusal.shortages[0].nodes.len(), 2);
}

/// The longest possible DAG, of NTs that share no bitstream.
#[test]
fn sixty_four_nodes_are_planned() {
    let nts = "a b ".repeat(32);
    let mut world = World::with(32, "a b", &[("ab", "a b"), ("abab", "a b a b a b a b")]);
    for id in ["a", "b"] {
        world.nt(id, |nt| nt.bandwidth_max = gbps(100));
    }
    let plan = world.add("t0/d0", &chain(&nts, gbps(10))).expect("eight passes");
    assert_eq!(plan.mapping.stages.len(), 8);
    assert!(plan.loads.len() <= 2, "{}", plan.loads.len());
}
