//! The objective where two of its terms disagree: the earlier one decides.

use crate::support::{World, chain, gbps, graph_with, known_region, lut, profile, show};
use snic_domain::{Bandwidth, CardId, FormPreference, RegionId, RegionProfile};
use snic_planner::{Ledger, Objective, Plan};

/// Two regions of these areas, of which the second holds `b`, which nobody uses; then a DAG of `a`,
/// which takes 100 LUT.
fn plan_beside_a_victim(free: u32, victim: u32) -> Plan {
    let mut world = World::with(2, "a b", &[("a", "a"), ("b", "b")]);
    let mut card = profile(2);
    card.regions[0] = RegionProfile { area: lut(free), ..known_region() };
    card.regions[1] = RegionProfile { area: lut(victim), ..known_region() };
    world.ledger = Ledger::new(CardId::new("card-0").expect("a test id"), card);
    world.load(1, "b");
    world.add("t0/d0", &chain("a", gbps(1))).expect("both regions have room")
}

#[test]
fn no_victim_is_lost_to_fill_a_region_better() {
    let plan = plan_beside_a_victim(1_000, 100);
    assert_eq!(plan.loads[0].region, RegionId(0), "900 of 1,000 unused, but nothing is lost");
    assert_eq!(plan.loads[0].replaces, None);
}

#[test]
fn a_victim_is_lost_where_no_free_region_has_room() {
    let plan = plan_beside_a_victim(99, 100);
    assert_eq!(plan.loads[0].region, RegionId(1));
    assert_eq!(plan.loads[0].replaces.as_ref().map(|id| id.as_str()), Some("b"));
}

/// Two small free regions and a victim. One load suffices where the chain is cut in two: it comes into a
/// free region, and into the one that it fills best.
fn plan_of_one_cut_load(areas: [u32; 3]) -> Plan {
    let mut world = World::with(3, "a b c", &[("ab", "a b"), ("bbaa", "b b a a"), ("c", "c")]);
    let mut card = profile(3);
    for (region, area) in card.regions.iter_mut().zip(areas) {
        region.area = lut(area);
    }
    world.ledger = Ledger::new(CardId::new("card-0").expect("a test id"), card);
    world.ledger.set_objective(Objective::Regions);
    world.load(2, "c");
    world.add("t0/d0", &chain("a b", gbps(15))).expect("one load carries twice 10")
}

#[test]
fn no_victim_is_lost_where_a_cut_saves_a_load() {
    let plan = plan_of_one_cut_load([1_000, 1_000, 400]);
    assert_eq!((plan.loads.len(), plan.mapping.stages.len()), (1, 2), "{}", show(&plan.mapping));
    assert_eq!(plan.loads[0].bitstream.as_str(), "bbaa");
    assert_eq!(plan.loads[0].replaces, None, "a victim is lost beside two free regions");
    assert_eq!(plan.loads[0].region, RegionId(0));
}

#[test]
fn the_fullest_region_is_taken_where_a_cut_saves_a_load() {
    for (areas, best) in [([1_000, 500, 1_000], 1), ([400, 500, 1_000], 0), ([500, 500, 400], 0)] {
        let plan = plan_of_one_cut_load(areas);
        assert_eq!(plan.loads.len(), 1);
        assert_eq!(plan.loads[0].region, RegionId(best), "{areas:?}");
    }
}

/// Two loads either way: four NTs and one leave half of the small region unused, two and three leave a quarter of
/// the large one.
#[test]
fn of_equal_loads_those_that_fill_their_regions_best_are_chosen() {
    let streams = [("abcd", "a b c d"), ("e", "e"), ("ab", "a b"), ("cde", "c d e")];
    let mut world = World::with(2, "a b c d e", &streams);
    let mut card = profile(2);
    card.regions[0].area = lut(400);
    card.regions[1].area = lut(200);
    world.ledger = Ledger::new(CardId::new("card-0").expect("a test id"), card);
    let plan = world.add("t0/d0", &chain("a b c d e", gbps(1))).expect("two loads hold all five");
    let mut loaded: Vec<_> = plan.loads.iter().map(|load| load.bitstream.as_str()).collect();
    loaded.sort_unstable();
    assert_eq!(loaded, ["ab", "cde"], "{}", show(&plan.mapping));
}

/// Two bitstreams of one size. The first offers more of `a`, of which one is enough; the second has an instance
/// of `b` for each branch.
#[test]
fn of_equal_loads_the_one_with_most_headroom_is_chosen() {
    let fork =
        |n| graph_with(&["a", "b", "b"], &[(0, 1), (0, 2)], gbps(n), FormPreference::Parallel);
    let plan = |bitstreams: &[(&str, &str)], n| {
        World::with(1, "a b", bitstreams).add("t0/d0", &fork(n)).expect("an empty card")
    };
    let both = [("p", "a a b"), ("q", "a b b")];
    let chosen = plan(&both, 5);
    assert_eq!(chosen.loads[0].bitstream.as_str(), "q");
    assert_eq!(show(&chosen.mapping), "0:0*5 | 0:1*5 & 0:2*5");
    // Without the second bitstream there still is a placement, with no bandwidth of `b` left.
    assert_eq!(show(&plan(&both[..1], 5).mapping), "0:0*5 | 0:2*5 & 0:2*5");
    // The id does not decide it.
    let swapped = plan(&[("a-bb", "a b b"), ("b-aa", "a a b")], 5);
    assert_eq!(swapped.loads[0].bitstream.as_str(), "a-bb");
}

/// Loaded chains, the DAG, and for each objective the loads, victims and passes of its plan.
struct Case {
    loaded: &'static [&'static str],
    dag: (&'static str, u64),
    regions: [usize; 3],
    passes: [usize; 3],
}

/// On four regions, with each NT alone, `a b`, and all three: the balanced objective is that of regions here.
#[test]
fn each_objective_keeps_its_order() {
    let case = |loaded, dag, regions, passes| Case { loaded, dag, regions, passes };
    let cases = [
        case(&[], ("a", 1), [1, 0, 1], [1, 0, 1]),
        case(&[], ("a b", 1), [1, 0, 1], [1, 0, 1]),
        case(&[], ("a b c", 1), [1, 0, 1], [1, 0, 1]),
        case(&["ab"], ("a b", 10), [0, 0, 1], [0, 0, 1]),
        case(&["a", "b"], ("a b", 10), [0, 0, 2], [1, 0, 1]),
        case(&["a", "b"], ("a b", 11), [1, 0, 2], [2, 0, 1]),
        case(&["a", "b", "c"], ("a b c", 1), [0, 0, 3], [1, 0, 1]),
        case(&["ab", "c"], ("a b c", 1), [0, 0, 2], [1, 0, 1]),
        case(&["a", "b", "c", "c"], ("a b c", 1), [0, 0, 3], [1, 1, 1]),
        case(&["c", "c", "c", "c"], ("a", 1), [1, 1, 1], [1, 1, 1]),
        case(&["c", "c", "c"], ("a", 11), [2, 1, 1], [2, 1, 1]),
        case(&["a", "a", "a", "a"], ("a", 40), [0, 0, 1], [0, 0, 1]),
    ];
    for Case { loaded, dag: (nts, gbit), regions, passes } in cases {
        for (objective, expected) in [
            (Objective::Regions, regions),
            (Objective::Balanced, regions),
            (Objective::Passes, passes),
        ] {
            let streams = [("a", "a"), ("b", "b"), ("c", "c"), ("ab", "a b"), ("abc", "a b c")];
            let mut world = World::with(4, "a b c", &streams);
            world.ledger.set_objective(objective);
            for (region, id) in (0u8..).zip(loaded) {
                world.load(region, id);
            }
            let plan = world.add("t0/d0", &chain(nts, gbps(gbit))).expect("it has a place");
            let victims = plan.loads.iter().filter(|load| load.replaces.is_some()).count();
            let found = [plan.loads.len(), victims, plan.mapping.stages.len()];
            assert_eq!(found, expected, "{objective:?}: {nts} of {gbit} on {loaded:?}");
        }
    }
}

/// Loads of `c`, `a` and `b`: the tightest fit `a b` best, but two of it leave no regions for `c`: two of `c a` are enough.
#[test]
fn where_passes_come_first_loads_that_only_fill_regions_better_are_not_made() {
    let streams = [("ca", "c a"), ("a1", "a"), ("a2", "a"), ("ab", "a b")];
    let mut world = World::with(4, "a b c", &streams);
    for (id, bandwidth, area) in [("a", 3, 1), ("b", 8, 2), ("c", 4, 1)] {
        world.nt(id, |nt| (nt.bandwidth_max, nt.area) = (gbps(bandwidth), lut(area)));
    }
    let mut card = profile(4);
    for (region, area) in card.regions.iter_mut().zip([7, 3, 3, 5]) {
        region.area = lut(area);
    }
    world.ledger = Ledger::new(CardId::new("card-0").expect("a test id"), card);
    world.ledger.set_objective(Objective::Passes);
    world.load(1, "ab");
    let plan = world.add("t0/d0", &chain("a b c", Bandwidth::from_mbps(6_001)));
    let plan = plan.expect("three of `a`, one of `b`, two of `c`");
    let loaded: Vec<_> = plan.loads.iter().map(|load| load.bitstream.as_str()).collect();
    assert_eq!(plan.mapping.stages.len(), 3, "{}", show(&plan.mapping));
    assert_eq!(loaded, ["ca", "ca"], "{}", show(&plan.mapping));
}

/// `c` needs two of three regions that are loaded already, and `b a` a load into a large one: `c` must not take both of
/// these.
#[test]
fn of_victims_those_are_shared_that_no_other_part_needs_for_a_load() {
    let streams = [("c", "c"), ("cb", "c b"), ("ac", "a c"), ("ba", "b a")];
    let mut world = World::with(3, "a b c", &streams);
    for (id, bandwidth, area) in [("a", 3, 200), ("b", 3, 100), ("c", 2, 100)] {
        world.nt(id, |nt| (nt.bandwidth_max, nt.area) = (gbps(bandwidth), lut(area)));
    }
    let mut card = profile(3);
    card.regions[2].area = lut(100);
    world.ledger = Ledger::new(CardId::new("card-0").expect("a test id"), card);
    for (region, content) in [(0, "cb"), (1, "cb"), (2, "c")] {
        world.load(region, content);
    }
    for objective in [Objective::Regions, Objective::Passes] {
        let mut world = world.clone();
        world.ledger.set_objective(objective);
        let plan = world.add("t0/d0", &chain("c b a", Bandwidth::from_mbps(2_001)));
        let plan = plan.expect("one load is enough");
        let loaded: Vec<_> = plan.loads.iter().map(|load| load.bitstream.as_str()).collect();
        assert_eq!(loaded, ["ba"], "{objective:?}: {}", show(&plan.mapping));
        assert_eq!(plan.mapping.stages.len(), 2, "{objective:?}: {}", show(&plan.mapping));
    }
}
