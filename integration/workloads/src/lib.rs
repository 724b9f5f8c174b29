//! Workloads from a seed: DAGs of the papers' NTs, and when they arrive and depart.
//!
//! | what | from |
//! |---|---|
//! | NTs, their areas, bandwidths, latencies | the built-in catalogue, and so SuperNIC's Fig. 6 |
//! | chains of 2 to 7 NTs | SuperNIC, Fig. 8 |
//! | forks | NFP (SIGCOMM '17): 53.8 % of NF pairs can run in parallel |
//! | which NTs | Zipf over the NTs in [`POPULAR`]'s order, exponent 1 \[decided\] |
//! | bandwidth | 0.5 to 40 Gbit/s, each doubling equally likely \[decided\] |
//! | arrival and departure | Poisson arrivals, exponential lifetimes, as VMs come and go \[decided\] |
//!
//! The same seed gives the same workload: the generator's stream never changes, and choices are made
//! in whole numbers but for the times, which are rounded to milliseconds.

pub mod comparison;
pub mod instance;

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use snic_domain::limits::FORK_BRANCHES_MAX;
use snic_domain::{
    Bandwidth, DagId, DagName, DagSpec, Edge, FormPreference, Node, NodeId, NtTypeId, TenantId,
};

/// The papers' NTs, the most popular first: what most middlebox chains hold comes before what few
/// do \[decided\].
pub const POPULAR: [&str; 8] =
    ["firewall", "nat", "load-balancer", "aes", "kv-cache", "go-back-n", "kv-replication", "dfadd"];

/// The parameters of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// The NTs, the most popular first.
    pub nts: Vec<NtTypeId>,
    /// NTs of a DAG: at least and at most.
    pub length: RangeInclusive<usize>,
    /// Frequency of an NT beside the one before it, in thousandths; 0 gives chains only.
    pub parallel_permille: u32,
    /// Bandwidth of a DAG, in Mbit/s: at least and at most.
    pub mbps: RangeInclusive<u64>,
    /// Tenants, as popular as the NTs are.
    pub tenants: usize,
    /// Mean time between two arrivals.
    pub between: Duration,
    /// Mean life of a DAG.
    pub life: Duration,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            nts: POPULAR.iter().filter_map(|id| NtTypeId::new(id).ok()).collect(),
            length: 2..=7,
            parallel_permille: 538,
            mbps: 500..=40_000,
            tenants: 20,
            between: Duration::from_secs(10),
            life: Duration::from_secs(3_600),
        }
    }
}

/// One DAG of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// Its name: unique within the workload.
    pub name: DagName,
    /// Its spec; valid.
    pub spec: DagSpec,
    /// When it arrives, in milliseconds from the start.
    pub arrives_ms: u64,
    /// When it departs, later than that.
    pub departs_ms: u64,
}

/// An arrival or a departure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadEvent {
    /// The DAG of this index arrives.
    Arrival(usize),
    Departure(usize),
}

/// A workload of `count` DAGs, in the order of their arrival.
pub fn generate(seed: u64, count: usize, shape: &Shape) -> Vec<Item> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut now = 0.0;
    (0..count)
        .map(|index| {
            now += exponential(&mut rng, shape.between);
            let life = exponential(&mut rng, shape.life);
            Item {
                name: name(&mut rng, index, shape),
                spec: spec(&mut rng, shape),
                arrives_ms: now as u64,
                departs_ms: (now + life) as u64 + 1,
            }
        })
        .collect()
}

/// Arrivals and departures in order of time; at the same time, departures come first and make room.
pub fn events(items: &[Item]) -> Vec<(u64, WorkloadEvent)> {
    let mut events: Vec<(u64, WorkloadEvent)> = Vec::with_capacity(2 * items.len());
    for (index, item) in items.iter().enumerate() {
        events.push((item.arrives_ms, WorkloadEvent::Arrival(index)));
        events.push((item.departs_ms, WorkloadEvent::Departure(index)));
    }
    events.sort_by_key(|(at, event)| match event {
        WorkloadEvent::Departure(index) => (*at, 0, *index),
        WorkloadEvent::Arrival(index) => (*at, 1, *index),
    });
    events
}

fn exponential(rng: &mut ChaCha8Rng, mean: Duration) -> f64 {
    // From 1 to 2^32: never the logarithm of nothing.
    let uniform = (f64::from(rng.random::<u32>()) + 1.0) / (f64::from(u32::MAX) + 1.0);
    (-uniform.ln() * mean.as_secs_f64() * 1_000.0).round()
}

/// The k-th of `count` with a chance in proportion to 1/k.
pub fn zipf(rng: &mut ChaCha8Rng, count: usize) -> usize {
    // Divisible by all of 1 to 16; beyond, rounding is far below a thousandth.
    const SCALE: u64 = 720_720;
    let weight = |k: usize| SCALE / (k as u64 + 1);
    let total: u64 = (0..count).map(weight).sum();
    let mut left = rng.random_range(0..total.max(1));
    (0..count)
        .find(|k| {
            let here = left < weight(*k);
            left = left.saturating_sub(weight(*k));
            here
        })
        .unwrap_or(0)
}

fn name(rng: &mut ChaCha8Rng, index: usize, shape: &Shape) -> DagName {
    let tenant = format!("tenant-{}", zipf(rng, shape.tenants.max(1)));
    DagName {
        tenant: TenantId::new(&tenant).expect("a word and a number are a label"),
        dag: DagId::new(&format!("dag-{index}")).expect("a word and a number are a label"),
    }
}

/// Each doubling of the least bandwidth is equally likely, up to the most.
fn bandwidth(rng: &mut ChaCha8Rng, mbps: &RangeInclusive<u64>) -> Bandwidth {
    let (least, most) = (*mbps.start(), *mbps.end());
    let doublings = (most / least.max(1)).max(1).ilog2() + 1;
    let low = least << rng.random_range(0..doublings);
    Bandwidth::from_mbps(rng.random_range(low..=(2 * low).min(most)))
}

fn spec(rng: &mut ChaCha8Rng, shape: &Shape) -> DagSpec {
    let length =
        rng.random_range(*shape.length.start()..=*shape.length.end().min(&shape.nts.len()));
    let mut nts: Vec<&NtTypeId> = shape.nts.iter().collect();
    // Each NT at most once, as in the papers' DAGs.
    let chosen: Vec<NtTypeId> =
        (0..length).map(|_| nts.remove(zipf(rng, nts.len())).clone()).collect();
    let bandwidth = bandwidth(rng, &shape.mbps);
    let mut levels: Vec<Vec<usize>> = vec![vec![0]];
    for node in 1..length {
        let last = levels.last_mut().filter(|level| level[0] > 0);
        match last.filter(|level| level.len() < FORK_BRANCHES_MAX) {
            Some(level) if rng.random_range(0..1_000) < shape.parallel_permille => level.push(node),
            _ => levels.push(vec![node]),
        }
    }
    let id = |node: usize| NodeId::new(&format!("n{node}")).expect("a letter and a number");
    let mut edges = Vec::new();
    for pair in levels.windows(2) {
        let ends = pair[0].iter().flat_map(|from| pair[1].iter().map(move |to| (*from, *to)));
        edges.extend(ends.map(|(from, to)| Edge { from: id(from), to: id(to) }));
    }
    let nodes = chosen.into_iter().enumerate().map(|(i, nt)| Node::new(id(i), nt)).collect();
    let packet_sizes = snic_domain::PacketSizes::default();
    DagSpec {
        nodes,
        edges,
        bandwidth,
        form: FormPreference::Auto,
        packet_sizes,
        trusted_tenants: Default::default(),
        card_affinity: Default::default(),
        latency_sensitive: false,
        refuse_idle_tasks: false,
        latency_bound: Default::default(),
        notes: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::Dag;

    use super::*;

    #[test]
    fn every_dag_is_valid_and_within_its_shape() {
        let shape = Shape::default();
        let mut forks = 0;
        for item in generate(7, 2_000, &shape) {
            let dag = Dag::new(item.spec).expect("a valid DAG");
            assert!((2..=7).contains(&dag.nodes().len()));
            let mbps = dag.bandwidth().get() / 1_000_000;
            assert!((500..=40_000).contains(&mbps), "{mbps}");
            assert!(item.arrives_ms < item.departs_ms);
            forks += usize::from((0..dag.nodes().len()).any(|node| dag.successors(node).len() > 1));
        }
        assert!((500..1_900).contains(&forks), "{forks} forks");
    }

    #[test]
    fn a_seed_says_it_all() {
        let shape = Shape::default();
        assert_eq!(generate(3, 50, &shape), generate(3, 50, &shape));
        assert_ne!(generate(3, 50, &shape), generate(4, 50, &shape));
        assert_eq!(generate(3, 50, &shape)[..20], generate(3, 20, &shape)[..]);
    }

    #[test]
    fn pairs_run_side_by_side_as_often_as_nfp_counts() {
        // Pairs after the entry: each is parallel with the shape's chance, where a fork has room.
        let shape = Shape { length: 3..=3, ..Shape::default() };
        let items = generate(11, 20_000, &shape);
        let parallel =
            items.iter().filter(|item| item.spec.edges[0].from == item.spec.edges[1].from);
        let permille = parallel.count() * 1_000 / items.len();
        assert!((528..=548).contains(&permille), "{permille}");
    }

    #[test]
    fn zipf_halves_for_the_second() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut counts = [0u32; 8];
        (0..80_000).for_each(|_| counts[zipf(&mut rng, 8)] += 1);
        let ratio = f64::from(counts[0]) / f64::from(counts[1]);
        assert!((1.9..2.1).contains(&ratio), "{counts:?}");
        assert!(counts.windows(2).all(|pair| pair[0] > pair[1]), "{counts:?}");
    }

    #[test]
    fn each_arrival_departs_once() {
        let items = generate(1, 300, &Shape::default());
        let events = events(&items);
        assert_eq!(events.len(), 600);
        assert!(events.is_sorted_by_key(|(at, _)| *at));
        let place = |wanted| events.iter().position(|(_, event)| *event == wanted);
        for index in 0..items.len() {
            assert!(place(WorkloadEvent::Arrival(index)) < place(WorkloadEvent::Departure(index)));
        }
    }
}
