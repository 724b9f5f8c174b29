//! Recommended builds: for whom, for which region, and in which order they are listed.

use crate::support;
use std::collections::BTreeMap;

use crate::support::{World, chain, gbps, known_region, lut, name};
use snic_domain::{Dag, DagName, Mapping, RegionKind, RegionProfile};
use snic_planner::{InfeasibleDag, Recommendations, Resident, recommend};

type Deployed = BTreeMap<DagName, (Dag, Mapping)>;

/// Recommendations for a card with these DAGs, and these refused ones.
fn recommended(
    world: &World,
    deployed: &Deployed,
    refused: &[(&str, &str, u64)],
) -> Recommendations {
    let residents: Vec<Resident<'_>> =
        deployed.iter().map(|(name, (dag, mapping))| Resident { name, dag, mapping }).collect();
    let dags: Vec<(DagName, Dag)> =
        refused.iter().map(|(id, nts, n)| (name(id), chain(nts, gbps(*n)))).collect();
    let refused: Vec<InfeasibleDag<'_>> =
        dags.iter().map(|(name, dag)| InfeasibleDag { name, dag }).collect();
    recommend(&world.ledger, &world.catalogue, &residents, &refused)
}

/// The sequences, with the DAGs that each would admit, regions freed and passes spared.
fn shown(found: &Recommendations) -> Vec<(String, usize, u32, u64)> {
    let of = |r: &snic_planner::Recommendation| {
        let nts: Vec<&str> = r.nts.iter().map(|nt| nt.as_str()).collect();
        (nts.join(" "), r.admits.len(), r.regions_freed, r.passes_spared)
    };
    found.sequences.iter().map(of).collect()
}

#[test]
fn an_empty_card_that_refused_nobody_needs_nothing() {
    let world = World::with(2, "a b", &[("a", "a")]);
    assert_eq!(recommended(&world, &Deployed::new(), &[]), Recommendations::default());
}

#[test]
fn recommendations_are_sorted_by_admitted_dags_then_by_length() {
    let world = World::with(1, "a b c", &[]);
    let refused = [("t0/x", "c b", 1), ("t0/y", "a", 1), ("t1/y", "a", 2), ("t1/z", "b", 1)];
    let found = recommended(&world, &Deployed::new(), &refused);
    let expected = [("a", 2), ("c b", 2), ("b", 1)].map(|(nts, n)| (nts.to_string(), n, 0, 0));
    // The longer one serves x and z, a as many with fewer NTs.
    assert_eq!(shown(&found), expected);
    let admits: Vec<String> = found.sequences[1].admits.iter().map(ToString::to_string).collect();
    assert_eq!(admits, ["tenants/t0/dags/x", "tenants/t1/dags/z"]);
}

#[test]
fn sequences_that_help_nobody_are_not_recommended() {
    let mut world = World::with(1, "a t0.p t1.p", &[]);
    world.ledger.set_kept(snic_domain::RegionId(0), true);
    let nobody = Deployed::new();
    assert_eq!(shown(&recommended(&world, &nobody, &[("t0/x", "a", 1)])), [], "nothing is loaded");
    world.ledger.set_kept(snic_domain::RegionId(0), false);
    let nine = "a ".repeat(9);
    for (id, nts, gbit) in [
        ("t0/x", "ghost", 1),
        ("t0/x", nine.as_str(), 1),
        ("t0/x", "t0.p", 1),
        ("t0/x", "t0.p t1.p", 1),
        ("t0/x", "a", 11),
    ] {
        let found = recommended(&world, &nobody, &[(id, nts, gbit)]);
        assert_eq!(shown(&found), [], "{nts} for {gbit} Gbit/s");
    }
    assert_eq!(shown(&recommended(&world, &nobody, &[("t0/x", "a", 10)])).len(), 1);
}

/// The area is that of its NTs, and the region the smallest of its kind that it fits.
#[test]
fn a_recommendation_says_for_which_region_it_is() {
    let region = |kind, area| RegionProfile { kind, area: lut(area), ..known_region() };
    let (known, user) = (RegionKind::KnownNt, RegionKind::UserNt);
    let mut card = support::profile(0);
    card.regions =
        vec![region(known, 900), region(known, 200), region(known, 199), region(user, 150)];
    let mut world = World::new(card);
    for id in ["a", "b", "t0.p"] {
        world.catalogue.insert_nt(support::nt(id));
    }
    let best = |nts: &str| {
        let found = recommended(&world, &Deployed::new(), &[("t0/x", nts, 1)]);
        found.sequences.first().map(|r| (r.region_kind, r.area.lut, r.region_area.lut))
    };
    assert_eq!(best("a"), Some((known, 100, 199)));
    assert_eq!(best("a b"), Some((known, 200, 200)));
    assert_eq!(best("a b a"), Some((known, 300, 900)));
    assert_eq!(best("t0.p"), Some((user, 100, 150)), "a tenant's NT");
    assert_eq!(best("a t0.p"), None, "200 are more than the one region for tenants' NTs");
}

/// Less than half full is told, half is not; and chains that were cut would pass once.
#[test]
fn regions_below_half_and_cut_chains_are_looked_at() {
    let mut world = World::with(3, "a b", &[("a", "a"), ("b", "b")]);
    let mut deployed = Deployed::new();
    for (lut_of_a, fill) in [(499, Some(499)), (500, None), (501, None)] {
        world.nt("a", |nt| nt.area = lut(lut_of_a));
        world.load(0, "a");
        let found = recommended(&world, &deployed, &[]).underfilled;
        assert_eq!(found.first().map(|u| u.fill_permille), fill, "{lut_of_a} of 1,000");
    }
    let dag = chain("a b", gbps(1));
    let plan = world.add("t0/x", &dag).expect("it is cut");
    assert_eq!(plan.mapping.stages.len(), 2);
    deployed.insert(name("t0/x"), (dag, plan.mapping));
    let found = recommended(&world, &deployed, &[]);
    assert_eq!(shown(&found), [("a b".to_string(), 0, 1, 1)], "one region for two, one pass");
}
