//! The step of the loop as a pure function: promises, work conservation, odd input, and what nobody
//! gains by lying.

use proptest::prelude::*;
use snic_controller::{
    AREA_UNITS, DagFlow, Engine, EpochOutcome, Fairness, OF_REGIONS, Scheme, TenantShape, Topology,
    area_per_bps,
};
use snic_domain::Bandwidth;
use snic_fairness::Weight;
use snic_fairness::drf::Share;
use snic_fairness::fluid::Cost;
use snic_oracles::epoch;

const INGRESS: usize = OF_REGIONS;

fn gbps(n: u64) -> Bandwidth {
    Bandwidth::from_gbps(n)
}

fn mbps(n: u64) -> Bandwidth {
    Bandwidth::from_mbps(n)
}

/// A card with these slots (Gbit/s) in its first regions, and an ingress.
fn card(slots: &[u64], ingress: u64) -> Topology {
    let mut capacities = vec![0; OF_REGIONS];
    for (at, serves) in slots.iter().enumerate() {
        capacities[at] = gbps(*serves).get();
    }
    capacities.push(gbps(ingress).get());
    Topology { capacities, memory: 512, ..Topology::default() }
}

fn tenant(topology: &mut Topology, weight: u32) -> u32 {
    let weight = Weight::new(weight).expect("in range");
    topology.tenants.push(TenantShape { weight, memory_max: None });
    topology.tenants.len() as u32 - 1
}

fn flow(topology: &mut Topology, tenant: u32, admitted: Bandwidth, slots: &[usize]) {
    let mut uses: Vec<(usize, Cost)> = slots.iter().map(|slot| (*slot, Cost::ONE)).collect();
    uses.push((INGRESS, Cost::ONE));
    let area = area_per_bps(AREA_UNITS / 4, gbps(10));
    topology.flows.push(DagFlow { tenant, admitted, uses, area_per_bps: area, memory: 1 });
}

fn rules(scheme: Scheme) -> Fairness {
    Fairness { scheme, headroom_percent: 0, ..Fairness::default() }
}

fn solve(topology: &Topology, scheme: Scheme, loads: &[Bandwidth]) -> EpochOutcome {
    let mut engine = Engine::new(topology.clone(), rules(scheme)).expect("valid");
    engine.step(loads).clone()
}

/// Two tenants of one slot of 20 Gbit/s, each promised 5.
fn pair() -> Topology {
    let mut topology = card(&[20], 100);
    for _ in 0..2 {
        let tenant = tenant(&mut topology, 1);
        flow(&mut topology, tenant, gbps(5), &[0]);
    }
    topology
}

#[test]
fn waiting_dags_get_idle_capacity_and_served_ones_may_grow() {
    let outcome = solve(&pair(), Scheme::Full, &[gbps(30), gbps(4)]);
    assert_eq!((outcome.rates[0], outcome.grants[0]), (gbps(16), gbps(16)));
    assert_eq!((outcome.rates[1], outcome.grants[1]), (gbps(4), gbps(5)), "its promise");
    let outcome = solve(&pair(), Scheme::Full, &[gbps(8), gbps(4)]);
    assert_eq!(outcome.grants, [gbps(12), gbps(8)], "half of what is left each");
    assert_eq!(outcome.reach, [gbps(16), gbps(12)]);
    assert_eq!(solve(&pair(), Scheme::Static, &[gbps(30); 2]).grants, [gbps(5); 2]);
    assert_eq!(solve(&pair(), Scheme::Drf, &[gbps(30), gbps(0)]).grants, [gbps(10); 2]);
}

#[test]
fn headroom_is_kept_where_tenants_meet_and_never_of_a_promise() {
    let with = |topology: &Topology| {
        let rules = Fairness { headroom_percent: 10, ..Fairness::default() };
        let mut engine = Engine::new(topology.clone(), rules).expect("valid");
        engine.step(&[gbps(30); 2]).rates.iter().map(|rate| rate.get()).sum::<u64>()
    };
    assert_eq!(with(&pair()), gbps(18).get());
    let mut promised = pair();
    promised.flows.iter_mut().for_each(|flow| flow.admitted = gbps(10));
    assert_eq!(with(&promised), gbps(20).get());
    let mut alone = pair();
    alone.flows.iter_mut().for_each(|flow| flow.tenant = 0);
    assert_eq!(with(&alone), gbps(20).get(), "it can only disturb itself");
}

#[test]
fn space_follows_demand_weight_and_quota() {
    let mut topology = card(&[10, 10, 10, 10], 100);
    for (weight, slot) in [(1, 0), (3, 1)] {
        let tenant = tenant(&mut topology, weight);
        flow(&mut topology, tenant, gbps(10), &[slot]);
    }
    let outcome = solve(&topology, Scheme::Full, &[gbps(40), gbps(40)]);
    // A quarter of the card for each 10 Gbit/s: both want all of it, one to three.
    let near = |rate: Bandwidth, gbps: u64| rate.get().abs_diff(gbps * 1_000_000_000) < 1_000;
    assert!(near(outcome.fair[0], 10) && near(outcome.fair[1], 30), "{:?}", outcome.fair);
    topology.tenants[1].memory_max = Some(0);
    let outcome = solve(&topology, Scheme::Full, &[gbps(40), gbps(40)]);
    assert_eq!(outcome.tenants[1].space.share, Share::ZERO, "a quota of nothing");
    assert_eq!(outcome.fair[1], gbps(10), "but what was promised");
}

#[test]
fn odd_cards_and_loads_have_answers() {
    let nothing = Topology::default();
    assert_eq!(solve(&nothing, Scheme::Full, &[]).grants, []);
    let mut dead = card(&[0], 0);
    let owner = tenant(&mut dead, 1);
    flow(&mut dead, owner, gbps(5), &[0]);
    dead.memory = 0;
    for scheme in [Scheme::Static, Scheme::Drf, Scheme::Full] {
        let outcome = solve(&dead, scheme, &[Bandwidth::from_bps(u64::MAX)]);
        assert_eq!((outcome.rates[0], outcome.grants[0]), (Bandwidth::ZERO, gbps(5)), "{scheme:?}");
    }
    let idle = solve(&pair(), Scheme::Full, &[]);
    assert_eq!(idle.rates, [Bandwidth::ZERO; 2], "no load is none");
    let mut freely = pair();
    freely.flows.iter_mut().for_each(|flow| flow.area_per_bps = 0);
    freely.flows.iter_mut().for_each(|flow| flow.memory = 0);
    let outcome = solve(&freely, Scheme::Full, &[gbps(1); 2]);
    assert_eq!(outcome.tenants[0].space.dominant, None, "nobody asks for anything");
    let mut stranger = pair();
    stranger.flows[0].tenant = 9;
    assert!(Engine::new(stranger, rules(Scheme::Full)).is_err());
}

/// A tenant with one DAG tells any load instead of its own; what it can use of what it gets is never
/// more. Every lie on a grid, for every truth on it, beside every load of another tenant.
#[test]
fn lying_about_the_load_gains_nothing() {
    let topology = pair();
    let loads = (0..=24).step_by(2).map(gbps);
    for truth in loads.clone() {
        for other in loads.clone() {
            let useful = |told: Bandwidth| {
                solve(&topology, Scheme::Full, &[told, other]).rates[0].min(truth)
            };
            let honest = useful(truth);
            for lie in loads.clone() {
                assert!(useful(lie) <= honest, "{truth} told as {lie} beside {other}");
            }
        }
    }
}

/// One DAG or ten with the same loads and promises together: the same, to the rounding of ten rates.
#[test]
fn splitting_a_dag_into_ten_gains_nothing() {
    for (load, other) in [(30, 30), (30, 4), (8, 30), (12, 12)] {
        let one = solve(&pair(), Scheme::Full, &[gbps(load), gbps(other)]);
        let mut split = card(&[20], 100);
        let (splitter, honest) = (tenant(&mut split, 1), tenant(&mut split, 1));
        for _ in 0..10 {
            flow(&mut split, splitter, mbps(500), &[0]);
        }
        flow(&mut split, honest, gbps(5), &[0]);
        let mut loads = vec![mbps(load * 100); 10];
        loads.push(gbps(other));
        let ten = solve(&split, Scheme::Full, &loads);
        let sum: u64 = ten.rates[..10].iter().map(|rate| rate.get()).sum();
        assert!(sum.abs_diff(one.rates[0].get()) <= 100, "{sum} instead of {}", one.rates[0]);
    }
}

/// A tenant that is silent every other epoch is let in, while silent, for its promise at least, and
/// beyond it only for what nobody waits for: beside a tenant that always waits it gains nothing.
#[test]
fn toggling_at_the_rhythm_of_the_epoch_gains_nothing() {
    let topology = pair();
    let steady = solve(&topology, Scheme::Full, &[gbps(30), gbps(30)]).rates[0];
    let mut engine = Engine::new(topology, rules(Scheme::Full)).expect("valid");
    let (mut sent, epochs) = (0, 100);
    let mut grant = gbps(5);
    for epoch in 0..epochs {
        let load = if epoch % 2 == 0 { Bandwidth::ZERO } else { gbps(30) };
        sent += load.min(grant).get();
        grant = engine.step(&[load, gbps(30)]).grants[0];
    }
    assert!(sent / epochs < steady.get(), "{} a second instead of {steady}", sent / epochs);
}

prop_compose! {
    fn cards()(
        slots in prop::collection::vec(0_u64..40, 1..6),
        ingress in 0_u64..120,
        weights in prop::collection::vec(1_u32..=4, 1..6),
        flows in prop::collection::vec((any::<u8>(), 0_u64..8_000, any::<u8>(), 0_u64..60_000), 0..20),
    ) -> (Topology, Vec<Bandwidth>) {
        let mut topology = card(&slots, ingress);
        for weight in &weights {
            tenant(&mut topology, *weight);
        }
        let mut loads = Vec::new();
        for (owner, admitted, mask, load) in flows {
            let used: Vec<usize> = (0..slots.len()).filter(|slot| mask >> slot & 1 == 1).collect();
            let owner = u32::from(owner) % weights.len() as u32;
            flow(&mut topology, owner, mbps(admitted), &used);
            loads.push(mbps(load));
        }
        (topology, loads)
    }
}

proptest! {
    /// Nothing is given out twice; nobody who waits could be given more; no grant is below its
    /// promise; shares are at most one; and all that is a function of the loads.
    #[test]
    fn steps_keep_their_word((topology, loads) in cards(), scheme in 0..3) {
        let scheme = [Scheme::Static, Scheme::Drf, Scheme::Full][scheme as usize];
        let outcome = solve(&topology, scheme, &loads);
        prop_assert_eq!(&outcome, &solve(&topology, scheme, &loads));
        let mut used = vec![0_u128; topology.capacities.len()];
        for (flow, rate) in topology.flows.iter().zip(&outcome.rates) {
            for (resource, _) in &flow.uses {
                used[*resource] += u128::from(rate.get());
            }
        }
        for (used, capacity) in used.iter().zip(&topology.capacities) {
            prop_assert!(*used <= u128::from(*capacity));
        }
        for (index, flow) in topology.flows.iter().enumerate() {
            prop_assert!(outcome.grants[index] >= flow.admitted);
            prop_assert!(outcome.fair[index] >= flow.admitted);
            if scheme == Scheme::Full && outcome.guaranteed {
                let promised = flow.admitted.min(loads[index]);
                prop_assert!(outcome.rates[index] >= promised, "{} of {promised}", outcome.rates[index]);
            }
            if scheme == Scheme::Full && outcome.rates[index] < loads[index] {
                // What solver and rounding may leave: 10^-9 and a bit a second for each flow.
                let full = flow.uses.iter().any(|(k, _)| {
                    let left = u128::from(topology.capacities[*k]) - used[*k];
                    left <= 100 + u128::from(topology.capacities[*k]) / 100_000_000
                });
                prop_assert!(full, "flow {index} waits for nothing");
            }
        }
        prop_assert!(outcome.tenants.iter().all(|t| t.space.share <= Share::ONE));
    }

    /// The engine keeps memory from step to step and no state: after any history a step says what a
    /// new engine says, to the bit.
    #[test]
    fn a_step_depends_on_nothing_before(
        (topology, loads) in cards(), history in prop::collection::vec(0_u64..300, 1..5),
    ) {
        let mut engine = Engine::new(topology.clone(), Fairness::default()).expect("valid");
        for percent in history {
            let part = |load: &Bandwidth| Bandwidth::from_bps(load.get() / 100 * percent);
            let loads: Vec<Bandwidth> = loads.iter().map(part).collect();
            let mut new = Engine::new(topology.clone(), Fairness::default()).expect("valid");
            prop_assert_eq!(engine.step(&loads), new.step(&loads));
        }
    }

    /// The step gives what the naive one gives.
    #[test]
    fn steps_are_those_of_the_oracle((topology, loads) in cards(), headroom_percent in 0_u32..=50) {
        let rules = Fairness { headroom_percent, ..Fairness::default() };
        let mut engine = Engine::new(topology.clone(), rules).expect("valid");
        engine.step(&loads.iter().rev().copied().collect::<Vec<_>>());
        let ours = engine.step(&loads);
        let oracle = epoch::step(&topology, rules, &loads).expect("valid");
        // Rounding down a rate of each flow, and a millionth.
        let near = |a: Bandwidth, b: Bandwidth| {
            let off = a.get().abs_diff(b.get());
            off <= 1_000 + b.get() / 1_000_000 || a.get().min(b.get()) > gbps(100_000).get()
        };
        for at in 0..loads.len() {
            prop_assert!(near(ours.rates[at], oracle.rates[at]), "rate {at}: {:?} {:?}", ours, oracle);
            prop_assert!(near(ours.reach[at], oracle.reach[at]), "reach {at}: {:?} {:?}", ours, oracle);
            prop_assert!(near(ours.fair[at], oracle.fair[at]), "fair {at}: {:?} {:?}", ours, oracle);
            prop_assert!(near(ours.grants[at], oracle.grants[at]), "grant {at}: {:?} {:?}", ours, oracle);
        }
        for (ours, oracle) in ours.tenants.iter().zip(&oracle.tenants) {
            let (a, b) = (ours.space.share.as_f64(), oracle.space.share.as_f64());
            prop_assert!((a - b).abs() < 1e-6, "share {a} instead of {b}");
            prop_assert_eq!((ours.demand, ours.space.dominant), (oracle.demand, oracle.space.dominant));
        }
    }
}
