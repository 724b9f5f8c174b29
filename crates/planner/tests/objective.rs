//! The objective where two of its terms disagree: the earlier one decides.

mod support;

use snic_domain::{CardId, RegionId, RegionProfile};
use snic_planner::{Ledger, Plan};
use support::{World, chain, gbps, known_region, lut, profile};

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
