//! Cost of an epoch: counters to loads, space, time, targets, rates that differ. Beside it the
//! naive baseline. Medians are what criterion prints in the middle; then
//! how the step grows is measured and drawn: `epoch-growth.csv` and `.svg` in `target/repro`.
//!
//! The card has 32 regions with 8 NTs each; every tenant has two DAGs, each of 2 to 6 NTs of one
//! region. Loads are heavy-tailed and sum to three times what the card can take; about a fifth of
//! that is promised. A card's tables hold 1,020 DAGs: the larger counts show how the step grows.
//! All loads change on every step, within a quarter, so that no result can be reused.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_autoscaler::{DagCapacity, Monitor, decide};
use snic_controller::{
    Autoscaling, DagFlow, Engine, Fairness, OF_REGIONS, TenantShape, Topology, area_per_bps,
};
use snic_domain::{Bandwidth, Timestamp};
use snic_fairness::Weight;
use snic_fairness::fluid::Cost;
use snic_oracles::epoch;
use snic_repro::{Axis, FigureOutcome, Plot, Series};

const SEED: u64 = 16;
const EPOCH: Duration = Duration::from_millis(20);

/// A card, and the bytes that each DAG sends in an epoch.
fn card(tenants: usize) -> (Topology, Vec<u64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let gbps = |n: u64| Bandwidth::from_gbps(n).get();
    let mut topology = Topology { memory: 5_120, ..Topology::default() };
    topology.capacities = (0..OF_REGIONS).map(|_| gbps(rng.random_range(40..=100))).collect();
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
            uses.extend([
                (OF_REGIONS, Cost::ONE),
                (OF_REGIONS + 1, Cost::ONE),
                (OF_REGIONS + 2, store),
            ]);
            // Pareto with index 1.5.
            let tail = (1.0 - rng.random::<f64>()).powf(-1.0 / 1.5) / 3.0;
            let load = mean * tail.min(100.0);
            sent.push((load * EPOCH.as_secs_f64() / 8.0) as u64);
            topology.flows.push(DagFlow {
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

/// Number of epochs after which loads repeat.
const ROUND: usize = 8;

/// The traffic of each DAG, epoch by epoch.
fn epochs(sent: &[u64]) -> Vec<Vec<u64>> {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut vary = |bytes: &u64| bytes / 100 * rng.random_range(75..=125);
    (0..ROUND).map(|_| sent.iter().map(&mut vary).collect()).collect()
}

fn load(bytes: u64) -> Bandwidth {
    Bandwidth::from_bps(bytes * 8 * 1_000 / EPOCH.as_millis() as u64)
}

/// The state and buffers of a step.
struct Step {
    engine: Engine,
    sent: Vec<Vec<u64>>,
    epoch: usize,
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
        let (sent, loads) = (epochs(&sent), Vec::new());
        Self { engine, sent, epoch: 0, loads, monitors, rates, now: Timestamp::ZERO }
    }

    /// Counters to loads, space and time, a decision for each DAG, rates that differ.
    fn run(&mut self) -> usize {
        self.now = self.now + EPOCH;
        self.loads.clear();
        self.epoch = (self.epoch + 1) % ROUND;
        self.loads.extend(self.sent[self.epoch].iter().map(|bytes| load(*bytes)));
        self.engine.step(&self.loads);
        let (topology, outcome) = (self.engine.topology(), self.engine.outcome());
        let policy = Autoscaling::default();
        let mut moves = 0;
        for (flow, monitor) in self.monitors.iter_mut().enumerate() {
            monitor.observe(self.loads[flow], EPOCH, policy.monitor_period);
            let chain = DagCapacity {
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

/// Naive baseline: space, time and slack.
struct Plain {
    topology: Topology,
    loads: Vec<Bandwidth>,
}

impl Plain {
    fn new(tenants: usize) -> Self {
        let (topology, sent) = card(tenants);
        Self { topology, loads: sent.into_iter().map(load).collect() }
    }

    fn run(&self) -> usize {
        let (topology, loads) = (black_box(&self.topology), black_box(&self.loads));
        epoch::step(topology, Fairness::default(), loads).expect("valid").grants.len()
    }
}

/// Beyond this many tenants the naive baseline takes minutes.
const PLAIN_MAX: usize = 1_000;

fn step(c: &mut Criterion) {
    let mut group = c.benchmark_group("epoch, 32 regions, 2 DAGs a tenant");
    group.sample_size(20);
    for tenants in [100, 1_000, 10_000] {
        let mut step = Step::new(tenants);
        group.bench_function(BenchmarkId::new("step", tenants), |b| b.iter(|| step.run()));
        if tenants <= PLAIN_MAX {
            let plain = Plain::new(tenants);
            group.sample_size(10);
            group.bench_function(BenchmarkId::new("straightforward", tenants), |b| {
                b.iter(|| plain.run());
            });
            group.sample_size(20);
        }
    }
    group.finish();
}

/// Median of some runs, in nanoseconds.
fn median(runs: usize, mut run: impl FnMut() -> usize) -> f64 {
    let mut took: Vec<f64> = (0..runs)
        .map(|_| {
            let begin = Instant::now();
            black_box(run());
            begin.elapsed().as_secs_f64() * 1e9
        })
        .collect();
    took.sort_by(f64::total_cmp);
    took[runs / 2]
}

/// Growth of the step from 10 tenants to 10,000, as CSV and plot.
fn growth() {
    let (mut ours, mut plain, mut line) = (Vec::new(), Vec::new(), Vec::new());
    for tenants in [10, 30, 100, 300, 1_000, 3_000, 10_000] {
        let mut step = Step::new(tenants);
        step.run();
        let took = median(101, || step.run());
        let n = tenants as f64;
        ours.push((n, took.log10()));
        let scale = ours[0].1 - (10.0 * 10_f64.log2()).log10();
        line.push((n, scale + (n * n.log2()).log10()));
        if tenants <= PLAIN_MAX {
            let straight = Plain::new(tenants);
            plain.push((n, median(3, || straight.run()).log10()));
        }
        println!("{tenants:>6} tenants: {:>9.1} µs", took / 1e3);
    }
    let series = vec![
        Series::ours("step", ours),
        Series::ours("straightforward", plain),
        Series::ours("n log n from the first point", line),
    ];
    let (x, y) = ("Tenants, two DAGs each", "Time of a step (log10 of nanoseconds)");
    let plot = Plot { x, y, axis: Axis::Doubling, series };
    let svg = snic_repro::svg("How the epoch's step grows", &plot).expect("a plot");
    let outcome = FigureOutcome { plot: Some(plot), ..FigureOutcome::default() };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/repro");
    std::fs::create_dir_all(&folder).expect("a folder for the plot");
    for (ending, text) in [("csv", outcome.csv()), ("svg", svg)] {
        let path = folder.join(format!("epoch-growth.{ending}"));
        std::fs::write(&path, text).expect("the plot is written");
    }
    println!("target/repro/epoch-growth.csv and .svg");
}

criterion_group!(benches, step);

fn main() {
    benches();
    // With a filter, or as a test, no plot is drawn.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().all(|argument| argument == "--bench") && !arguments.is_empty() {
        growth();
    }
}
