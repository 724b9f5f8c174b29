//! Cost of an epoch's fairness: the solvers, and naive baselines of the same algorithms. The median is
//! the middle number that criterion prints.
//!
//! The card: 32 regions with 8 NTs each, ingress, egress and packet store. Every tenant has two
//! DAGs, each of 2 to 6 NTs of one region, skipping the others. Loads are heavy-tailed and sum to three times what the card
//! can take; about a fifth of that is promised.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_domain::Bandwidth;
use snic_fairness::Weight;
use snic_fairness::drf::{self, DrfProblem, Fraction, User};
use snic_fairness::fluid::{Cost, Demand, Network, NetworkBuilder, Solver, Spare};
use snic_oracles::fluid as oracle;

const SEED: u64 = 16;

fn weight(rng: &mut ChaCha8Rng) -> Weight {
    Weight::new(rng.random_range(1..=4)).expect("in range")
}

/// Users of FPGA area and on-board memory.
fn users(count: usize, capped: bool) -> DrfProblem {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let users = (0..count)
        .map(|_| {
            let demand = [rng.random_range(1_000..9_000_000), rng.random_range(1..4_000)];
            let user = User::new(&demand).weighted(weight(&mut rng));
            let cap = Fraction::new(rng.random_range(1..100), 100 * count as u64 / 64 + 1);
            if capped { user.capped(cap.expect("in range")) } else { user }
        })
        .collect();
    DrfProblem::new(&[872_000_000, 10_240], users).expect("valid")
}

/// DRF in floats, one event at a time, with a look at every user for each event.
fn naive_drf(problem: &DrfProblem) -> Vec<f64> {
    let capacities: Vec<f64> = problem.capacities().iter().map(|&c| c as f64).collect();
    let users: Vec<_> = problem
        .users()
        .iter()
        .map(|user| {
            let parts: Vec<f64> =
                user.demand.iter().zip(&capacities).map(|(&d, c)| d as f64 / c).collect();
            let share = parts.iter().copied().fold(0.0, f64::max);
            let weight = f64::from(user.weight.get());
            let cap = user.tasks_max.map_or(f64::INFINITY, |cap| {
                cap.numerator() as f64 / cap.denominator() as f64 * share / weight
            });
            let rates: Vec<f64> = parts.iter().map(|part| part / share * weight).collect();
            (rates, weight, cap)
        })
        .collect();
    let (mut free, mut level) = (vec![1.0; capacities.len()], 0.0);
    let mut stopped = vec![None; users.len()];
    while stopped.iter().any(Option::is_none) {
        let active = || users.iter().zip(&stopped).filter(|(_, stopped)| stopped.is_none());
        let rates: Vec<f64> =
            (0..free.len()).map(|k| active().map(|(user, _)| user.0[k]).sum()).collect();
        let full = rates.iter().zip(&free).map(|(rate, free)| level + free / rate);
        let next = full.chain(active().map(|(user, _)| user.2)).fold(f64::INFINITY, f64::min);
        for (free, rate) in free.iter_mut().zip(&rates) {
            *free -= rate * (next - level);
        }
        level = next;
        for ((rates, weight, cap), stopped) in users.iter().zip(&mut stopped) {
            let full = rates.iter().zip(&free).any(|(rate, free)| *rate > 0.0 && *free < 1e-12);
            if stopped.is_none() && (full || *cap <= level) {
                *stopped = Some(level * weight);
            }
        }
    }
    stopped.into_iter().flatten().collect()
}

fn drf(c: &mut Criterion) {
    let mut group = c.benchmark_group("drf, 2 resources");
    for count in [10, 100, 1_000, 10_000] {
        for (name, capped) in [("uncapped", false), ("capped", true)] {
            let problem = users(count, capped);
            group.bench_with_input(
                BenchmarkId::new(format!("fast {name}"), count),
                &problem,
                |b, problem| b.iter(|| drf::solve(black_box(problem))),
            );
            if count <= 1_000 {
                group.bench_with_input(
                    BenchmarkId::new(format!("naive {name}"), count),
                    &problem,
                    |b, problem| b.iter(|| naive_drf(black_box(problem))),
                );
            }
        }
    }
    group.finish();
}

/// The card and its demands.
fn card(tenants: usize) -> (Network, Vec<Demand>) {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let gbps = |n: u64| Bandwidth::from_gbps(n).get();
    // Ingress, egress, packet store, then the NT slots.
    let mut capacities = vec![gbps(1_600), gbps(1_600), gbps(1_600)];
    let mut regions = Vec::new();
    for _ in 0..32 {
        regions.push(capacities.len());
        capacities.extend((0..8).map(|_| gbps(rng.random_range(40..=100))));
    }
    let mut builder = NetworkBuilder::new(&capacities);
    let mut demands = Vec::new();
    // 32 regions of about 55 Gbps for the narrowest NT, three times over.
    let mean = gbps(3 * 32 * 55) as f64 / (2 * tenants) as f64;
    for _ in 0..tenants {
        let tenant = builder.tenant(weight(&mut rng));
        for _ in 0..2 {
            let region = regions[rng.random_range(0..regions.len())];
            let store = Cost::from_ratio(rng.random_range(1..16), 16);
            let mut costs = vec![(0, Cost::ONE), (1, Cost::ONE), (2, store)];
            let used = rng.random_range(2..=6);
            let slots = rand::seq::index::sample(&mut rng, 8, used);
            costs.extend(slots.into_iter().map(|slot| (region + slot, Cost::ONE)));
            builder.flow(tenant, &costs);
            // Pareto with index 1.5.
            let tail = (1.0 - rng.random::<f64>()).powf(-1.0 / 1.5) / 3.0;
            let load = (mean * tail.min(100.0)) as u64;
            let admitted = (mean / 15.0 * rng.random::<f64>()) as u64;
            let [load, admitted] = [load, admitted].map(Bandwidth::from_bps);
            demands.push(Demand { load, admitted });
        }
    }
    (builder.build().expect("valid"), demands)
}

fn fluid(c: &mut Criterion) {
    let mut group = c.benchmark_group("fluid, 32 regions, 2 DAGs a tenant");
    for tenants in [10, 30, 100, 300, 1_000, 3_000, 10_000] {
        let (network, demands) = card(tenants);
        for (name, spare) in [("level", Spare::LevelShares), ("by weight", Spare::ByWeight)] {
            let mut solver = Solver::new(network.clone(), spare);
            assert!(solver.solve(&demands).expect("right length").guaranteed);
            group.bench_with_input(
                BenchmarkId::new(format!("fast {name}"), tenants),
                &demands,
                |b, demands| b.iter(|| solver.solve(black_box(demands)).is_ok()),
            );
        }
        // A minute for each iteration beyond that.
        if tenants <= 1_000 {
            group.sample_size(10);
            group.bench_with_input(
                BenchmarkId::new("naive level", tenants),
                &demands,
                |b, demands| {
                    b.iter(|| {
                        oracle::solve::<f64>(&network, Spare::LevelShares, black_box(demands))
                    });
                },
            );
            group.sample_size(100);
        }
    }
    group.finish();
}

criterion_group!(benches, drf, fluid);
criterion_main!(benches);
