//! The fluid solver on cards of realistic size: hundreds of tenants, chains that skip NTs, narrow
//! and wide resources, against the naive solver over floats.

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_domain::Bandwidth;
use snic_fairness::Weight;
use snic_fairness::fluid::{
    Cost, Demand, Limit, Network, NetworkBuilder, Solver, Spare, TenantIndex,
};
use snic_oracles::fluid as oracle;

/// Slots of a region, beside ingress and egress.
const SLOTS: usize = 4;

struct Card {
    network: Network,
    demands: Vec<Demand>,
}

/// A card of some regions whose load is `overload` times what its regions take.
fn card(seed: u64, tenants: usize, regions: usize, overload: f64) -> Card {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let gbps = |n: u64| Bandwidth::from_gbps(n).get();
    let port = rng.random_range(10..60) * regions as u64;
    let mut capacities = vec![gbps(port), gbps(port)];
    capacities.extend((0..regions * SLOTS).map(|_| gbps(rng.random_range(20..100))));
    let mut builder = NetworkBuilder::new(&capacities);
    let mut demands = Vec::new();
    let mean = gbps(regions as u64 * 40) as f64 * overload / (2 * tenants) as f64;
    for _ in 0..tenants {
        let tenant = builder.tenant(Weight::new(rng.random_range(1..6)).expect("in range"));
        for _ in 0..rng.random_range(1..=3) {
            let mut costs = vec![(0, Cost::ONE), (1, Cost::from_ratio(rng.random_range(1..5), 4))];
            // A DAG may pass two regions, and skips half of the NTs.
            for _ in 0..rng.random_range(1..=2) {
                let region = 2 + SLOTS * rng.random_range(0..regions);
                let used = (region..region + SLOTS).filter(|_| rng.random::<bool>());
                costs.extend(used.map(|slot| (slot, Cost::ONE)));
            }
            builder.flow(tenant, &costs);
            let load = (mean * 2.0 * rng.random::<f64>()) as u64;
            let admitted = (mean * 0.2 / overload * rng.random::<f64>()) as u64;
            let [load, admitted] = [load, admitted].map(Bandwidth::from_bps);
            demands.push(Demand { load, admitted });
        }
    }
    Card { network: builder.build().expect("valid"), demands }
}

fn expect_agreement(card: &Card, spare: Spare) -> Vec<Limit> {
    let expected: Vec<f64> = oracle::solve(&card.network, spare, &card.demands);
    let mut solver = Solver::new(card.network.clone(), spare);
    let got = solver.solve(&card.demands).expect("right length");
    for (flow, (got, expected)) in got.rates.iter().zip(&expected).enumerate() {
        let difference = (got.get() as f64 - expected).abs();
        assert!(difference <= 2.0 + expected * 1e-7, "flow {flow}: {got} instead of {expected}");
    }
    let one = u128::from(Cost::ONE.raw());
    for (used, &capacity) in card.network.usage(&got.rates).iter().zip(card.network.capacities()) {
        assert!(*used <= u128::from(capacity) * one);
    }
    got.limits.clone()
}

#[test]
fn two_hundred_tenants_on_sixteen_regions() {
    for (seed, spare) in (0..).zip([Spare::LevelShares, Spare::ByWeight]) {
        let limits = expect_agreement(&card(seed, 200, 16, 2.5), spare);
        let full = |k: u32| limits.iter().filter(|limit| **limit == Limit::Resource(k)).count();
        let slots = limits.iter().filter(|l| matches!(l, Limit::Resource(k) if *k > 1)).count();
        let served = limits.iter().filter(|limit| **limit == Limit::Load).count();
        // The case is worth its time: some are served, some wait for a slot, some for a port.
        assert!(served > 20 && slots > 20 && full(0) + full(1) > 0, "{served} {slots}");
    }
}

#[test]
fn lost_regions_leave_promises_that_cannot_be_kept() {
    let Card { network, mut demands } = card(9, 80, 6, 2.0);
    for demand in &mut demands {
        demand.admitted = Bandwidth::from_bps(demand.load.get() / 10 * 9);
    }
    let mut solver = Solver::new(network.clone(), Spare::LevelShares);
    assert!(!solver.solve(&demands).expect("right length").guaranteed);
    expect_agreement(&Card { network, demands }, Spare::ByWeight);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_card_agrees(
        seed in any::<u64>(), tenants in 1..40_usize, regions in 1..8_usize,
        overload in 0.3..6.0_f64, level in any::<bool>(),
    ) {
        let spare = if level { Spare::LevelShares } else { Spare::ByWeight };
        expect_agreement(&card(seed, tenants, regions, overload), spare);
    }

    /// A solver's memory is no state: after any history it says what a new one says, to the bit.
    #[test]
    fn a_used_solver_says_what_a_new_one_says(
        seed in any::<u64>(), tenants in 1..40_usize, regions in 1..8_usize,
        history in prop::collection::vec((0..400_u64, 0..200_u64), 1..6), level in any::<bool>(),
    ) {
        let spare = if level { Spare::LevelShares } else { Spare::ByWeight };
        let Card { network, demands } = card(seed, tenants, regions, 2.0);
        let mut used = Solver::new(network.clone(), spare);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for (load, admitted) in history {
            let mut part = |bandwidth: Bandwidth, percent: u64| {
                Bandwidth::from_bps(bandwidth.get() / 100 * rng.random_range(0..=percent))
            };
            let vary = |demand: &Demand| Demand {
                load: part(demand.load, load),
                admitted: part(demand.admitted, admitted),
            };
            let demands: Vec<Demand> = demands.iter().map(vary).collect();
            let mut new = Solver::new(network.clone(), spare);
            prop_assert_eq!(used.solve(&demands).expect("right"), new.solve(&demands).expect("right"));
        }
    }

    /// Max-min: a flow that waits for a resource belongs to a tenant whose weighted share is at
    /// least that of every other tenant that got more than its promise of that resource.
    #[test]
    fn nobody_waits_behind_a_richer_tenant(seed in any::<u64>(), tenants in 2..30_usize) {
        let Card { network, mut demands } = card(seed, tenants, 3, 3.0);
        demands.iter_mut().for_each(|demand| demand.admitted = Bandwidth::ZERO);
        let mut solver = Solver::new(network.clone(), Spare::LevelShares);
        let got = solver.solve(&demands).expect("right length").clone();
        let shares = shares(&network, &got.rates);
        for tenant in (0..tenants as u32).map(TenantIndex) {
            for flow in network.flows_of(tenant) {
                let Limit::Resource(k) = got.limits[flow.0 as usize] else { continue };
                for other in (0..tenants as u32).map(TenantIndex) {
                    let all_wait_for_k = network.flows_of(other).all(|flow| {
                        got.limits[flow.0 as usize] == Limit::Resource(k)
                    });
                    // Tenants whose every flow stopped at k stopped rising there: the one that
                    // still rose elsewhere is not poorer.
                    prop_assert!(
                        !all_wait_for_k
                            || shares[other.0 as usize] <= shares[tenant.0 as usize] * (1.0 + 1e-6)
                    );
                }
            }
        }
    }
}

/// Shares by tenant: Σ rate × dominant cost / weight, with costs taken from what one flow alone uses.
fn shares(network: &Network, rates: &[Bandwidth]) -> Vec<f64> {
    let tenants = (0..network.tenant_count() as u32).map(TenantIndex);
    let share = |tenant: TenantIndex| {
        let flows = network.flows_of(tenant).map(|flow| {
            let mut alone = vec![Bandwidth::ZERO; rates.len()];
            alone[flow.0 as usize] = rates[flow.0 as usize];
            network.dominant_share(tenant, &alone).map_or(0.0, |(_, share)| share)
        });
        flows.sum::<f64>() / f64::from(network.weight(tenant).get())
    };
    tenants.map(share).collect()
}

/// Search over lies on small cases: a tenant with two DAGs that overstates or understates either
/// load never gets more useful throughput of both together, beyond what is stated.
#[test]
fn no_lie_about_two_loads_pays() {
    let gbps = |n: u64| Bandwidth::from_gbps(n);
    let mut builder = NetworkBuilder::new(&[gbps(10).get(), gbps(6).get(), gbps(8).get()]);
    let (liar, honest) = (builder.tenant(Weight::ONE), builder.tenant(Weight::ONE));
    builder.flow(liar, &[(0, Cost::ONE), (1, Cost::ONE)]);
    builder.flow(liar, &[(0, Cost::ONE), (2, Cost::ONE)]);
    builder.flow(honest, &[(0, Cost::ONE), (1, Cost::ONE)]);
    builder.flow(honest, &[(0, Cost::ONE), (2, Cost::ONE)]);
    let network = builder.build().expect("valid");
    let mut solver = Solver::new(network, Spare::LevelShares);
    let demand = |load: u64| Demand { load: gbps(load), admitted: Bandwidth::ZERO };
    let mut worst = 0.0_f64;
    for truth in [[2, 9], [4, 4], [9, 2], [9, 9], [1, 1]] {
        let mut useful = |told: [u64; 2]| {
            let demands = [demand(told[0]), demand(told[1]), demand(9), demand(9)];
            let rates = &solver.solve(&demands).expect("four").rates;
            let useful = (0..2).map(|i| rates[i].get().min(gbps(truth[i]).get()));
            useful.sum::<u64>() as f64
        };
        let honest = useful(truth);
        for a in 0..=12 {
            for b in 0..=12 {
                worst = worst.max(useful([a, b]) / honest);
            }
        }
    }
    // The tenant's growth goes to its DAGs as told, and one bit of the first is charged 1/6, of
    // the second 1/8: telling less of the first buys more bits for the same share. The gain is
    // below the ratio of the two.
    assert!((1.0..1.08).contains(&worst), "a lie pays {worst}");
}
