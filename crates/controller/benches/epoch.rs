//! What an epoch costs: counters to loads, space, time, targets, rates that differ. Beside it the
//! same algorithms written straightforwardly. Medians are what criterion prints in the middle.
//!
//! The card has 32 regions with 8 NTs each; every tenant has two DAGs, each of 2 to 6 NTs of one
//! region. Loads are heavy-tailed and sum to three times what the card can take; about a fifth of
//! that is promised. A card's tables hold 1,024 DAGs: the larger counts show how the step grows.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_autoscaler::{Chain, Monitor, decide};
use snic_controller::{
    Autoscaling, Engine, Fairness, Flow, SLOTS, TenantShape, Topology, area_per_bps,
};
use snic_domain::{Bandwidth, Timestamp};
use snic_fairness::Weight;
use snic_fairness::fluid::{Cost, Demand, NetworkBuilder, Spare, TenantIndex, reference};

const SEED: u64 = 16;
const EPOCH: Duration = Duration::from_millis(20);

/// A card, and the bytes that each DAG sends in an epoch.
fn card(tenants: usize) -> (Topology, Vec<u64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let gbps = |n: u64| Bandwidth::from_gbps(n).get();
    let mut topology = Topology { memory: 5_120, ..Topology::default() };
    topology.capacities = (0..SLOTS).map(|_| gbps(rng.random_range(40..=100))).collect();
    topology.capacities.extend([gbps(1_600); 3]);
    let mean = gbps(3 * 32 * 55) as f64 / (2 * tenants) as f64;
    let mut sent = Vec::new();
    for tenant in 0..tenants as u32 {
        let weight = Weight::new(rng.random_range(1..=4)).expect("in range");
        topology.tenants.push(TenantShape { weight, memory_max: Some(2_048) });
        for _ in 0..2 {
            let region = 8 * rng.random_range(0..32);
            let used = rng.random_range(2..=6);
            let slots = rand::seq::index::sample(&mut rng, 8, used);
            let mut uses: Vec<_> = slots.iter().map(|slot| (region + slot, Cost::ONE)).collect();
            let store = Cost::from_ratio(rng.random_range(1..16), 16);
            uses.extend([(SLOTS, Cost::ONE), (SLOTS + 1, Cost::ONE), (SLOTS + 2, store)]);
            // Pareto with index 1.5.
            let tail = (1.0 - rng.random::<f64>()).powf(-1.0 / 1.5) / 3.0;
            let load = mean * tail.min(100.0);
            sent.push((load * EPOCH.as_secs_f64() / 8.0) as u64);
            topology.flows.push(Flow {
                tenant,
                admitted: Bandwidth::from_bps((mean / 15.0 * rng.random::<f64>()) as u64),
                uses,
                area_per_bps: area_per_bps(
                    rng.random_range(1_000_000..31_250_000),
                    Bandwidth::from_gbps(60),
                ),
                memory: rng.random_range(0..8),
            });
        }
    }
    (topology, sent)
}

/// All that a step needs and keeps.
struct Step {
    engine: Engine,
    sent: Vec<u64>,
    loads: Vec<Bandwidth>,
    monitors: Vec<Monitor>,
    rates: Vec<Bandwidth>,
    now: Timestamp,
}

impl Step {
    fn new(tenants: usize) -> Self {
        let (topology, sent) = card(tenants);
        let engine = Engine::new(topology, Fairness::default()).expect("valid");
        let (monitors, rates) =
            (vec![Monitor::default(); sent.len()], vec![Bandwidth::ZERO; sent.len()]);
        Self { engine, sent, loads: Vec::new(), monitors, rates, now: Timestamp::ZERO }
    }

    /// Counters to loads, space and time, a decision for each DAG, rates that differ.
    fn run(&mut self) -> usize {
        self.now = self.now + EPOCH;
        self.loads.clear();
        let bits = |bytes: &u64| Bandwidth::from_bps(bytes * 8 * 1_000 / EPOCH.as_millis() as u64);
        self.loads.extend(self.sent.iter().map(bits));
        self.engine.step(&self.loads);
        let (topology, outcome) = (self.engine.topology(), self.engine.outcome());
        let policy = Autoscaling::default();
        let mut moves = 0;
        for (flow, monitor) in self.monitors.iter_mut().enumerate() {
            monitor.observe(self.loads[flow], EPOCH, policy.monitor_period);
            let chain = Chain {
                capacity: outcome.reach[flow],
                unit: Bandwidth::from_gbps(60),
                holds: topology.flows[flow].admitted,
                admitted: topology.flows[flow].admitted,
                fair: outcome.fair[flow],
                settled: Timestamp::ZERO,
            };
            let decision = decide(&policy, policy.monitor_period, &chain, monitor, self.now);
            moves += usize::from(decision != snic_autoscaler::Decision::Keep);
        }
        for (rate, grant) in self.rates.iter_mut().zip(&outcome.grants) {
            moves += usize::from(*rate != *grant);
            *rate = *grant;
        }
        moves
    }
}

fn step(c: &mut Criterion) {
    let mut group = c.benchmark_group("epoch, 32 regions, 2 DAGs a tenant");
    group.sample_size(20);
    for tenants in [125, 250, 500, 1_000, 2_000, 4_000, 10_000] {
        let mut step = Step::new(tenants);
        group.bench_function(BenchmarkId::new("step", tenants), |b| b.iter(|| step.run()));
        if tenants <= 1_000 {
            let (network, demands) = straightforward(tenants);
            group.bench_function(BenchmarkId::new("straightforward rates", tenants), |b| {
                b.iter(|| {
                    reference::solve::<f64>(black_box(&network), Spare::LevelShares, &demands)
                });
            });
        }
    }
    group.finish();
}

/// The same card for the solver that looks at everything at every event; rates alone.
fn straightforward(tenants: usize) -> (snic_fairness::fluid::Network, Vec<Demand>) {
    let (topology, sent) = card(tenants);
    let mut builder = NetworkBuilder::new(&topology.capacities);
    for tenant in &topology.tenants {
        builder.tenant(tenant.weight);
    }
    let mut demands = Vec::new();
    for (flow, bytes) in topology.flows.iter().zip(sent) {
        builder.flow(TenantIndex(flow.tenant), &flow.uses);
        let load = Bandwidth::from_bps(bytes * 8 * 1_000 / EPOCH.as_millis() as u64);
        demands.push(Demand { load, admitted: flow.admitted });
    }
    (builder.build().expect("valid"), demands)
}

criterion_group!(benches, step);
criterion_main!(benches);
