//! Sets of DAGs from a seed, as many as a card admits.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use snic_card_sim::{Measurements, Sizes, TrafficSource};
use snic_controller::{ControllerSettings, DagView, Fairness};
use snic_domain::{Bandwidth, DagSpec, Edge, FormPreference, NtTypeId, PacketSizes};
use snic_repro::{NtSequence, Parameters, Testbed};

use super::{STEP, Seen, chain_of, testbed_of};

/// DAG-D, the longest chain of the catalogue.
const LONGEST: NtSequence<'static> =
    &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"];

/// `SNIC_PROMISES=1000`: as many sets, `SNIC_SEED=17`: that one alone; 50 else.
pub fn seeds() -> Range<u64> {
    let number = |name| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    match number("SNIC_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SNIC_PROMISES").unwrap_or(50),
    }
}

/// Whether these are the sets of every run of the tests, which is to end soon.
pub fn are_few() -> bool {
    ["SNIC_SEED", "SNIC_PROMISES"].iter().all(|name| std::env::var_os(name).is_none())
}

/// Results of a function for each seed, in their order; all processors are at work.
pub fn for_all<T: Send>(
    seeds: impl IntoIterator<Item = u64>,
    of: impl Fn(u64) -> T + Sync,
) -> Vec<(u64, T)> {
    let seeds: Vec<u64> = seeds.into_iter().collect();
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((*seed, of(*seed)));
        }
        done
    };
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut all: Vec<(u64, T)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    all.sort_by_key(|(seed, _)| *seed);
    all
}

/// Numbers from a seed (SplitMix64).
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A chain as the card has it, its reverse, NTs in any order, or a fork that joins again; with packets of one
/// size or several, for 1 to 45 Gbit/s, of which one AES serves 30.
pub fn random_spec(random: &mut Random) -> DagSpec {
    let length = 1 + random.below(5);
    let from = random.below(LONGEST.len() - length + 1);
    let mut nts = LONGEST[from..from + length].to_vec();
    let shape = random.below(4);
    match shape {
        1 => nts.reverse(),
        2 => nts.iter_mut().for_each(|nt| *nt = random.one_of(LONGEST)),
        _ => {}
    }
    let mut spec = chain_of(&nts, random.one_of(&[1, 2, 5, 10, 10, 20, 30, 45]));
    if shape == 3 && length >= 4 {
        let id = |i: usize| spec.nodes[i].id.clone();
        let edge = |from, to| Edge { from: id(from), to: id(to) };
        let mut edges = vec![edge(0, 1), edge(0, 2), edge(1, 3), edge(2, 3)];
        edges.extend((4..length).map(|i| edge(i - 1, i)));
        spec.edges = edges;
        spec.form = random.one_of(&[FormPreference::Auto, FormPreference::Parallel]);
    }
    let bytes = random.one_of(&[64, 65, 128, 256, 594, 1_024, 1_500, 0, 0, 0]);
    if bytes > 0 {
        spec.packet_sizes = PacketSizes::only(bytes);
    }
    spec
}

/// Load of a tenant of a set.
#[derive(Debug, Clone)]
pub struct Load {
    pub rate: Bandwidth,
    /// At random times, whose bursts the token buckets take; else evenly.
    pub is_random: bool,
}

/// A card with what it admitted.
pub struct Set {
    testbed: Testbed,
    pub dags: Vec<(DagView, DagSpec)>,
    /// DAGs that were refused, each with the number of DAGs that had been admitted by then.
    pub refused: Vec<(usize, DagSpec)>,
    pub random: Random,
}

impl Set {
    /// 24 tenants come to a card of 3 to 12 regions.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let regions = 3 + random.below(10);
        let specs: Vec<DagSpec> = (0..24).map(|_| random_spec(&mut random)).collect();
        Self::of(regions, specs, random)
    }

    /// Tenants come one after the other, each with a DAG, to a card of so many regions.
    pub fn of(regions: usize, specs: Vec<DagSpec>, random: Random) -> Self {
        let parameters = Parameters::load().expect("our own files");
        let catalogue = parameters.catalogue.chains.iter();
        let chains: Vec<Vec<&str>> =
            catalogue.map(|chain| chain.nts.iter().map(NtTypeId::as_str).collect()).collect();
        let chains: Vec<NtSequence<'_>> = chains.iter().map(Vec::as_slice).collect();
        let mut testbed = testbed_of(&chains, regions);
        let (mut dags, mut refused) = (Vec::new(), Vec::new());
        for (number, spec) in specs.into_iter().enumerate() {
            let tenant = format!("t{number}");
            testbed.tenant(&tenant, 1).expect("a tenant");
            match testbed.dag(&tenant, "web", spec.clone()) {
                Ok(dag) => dags.push((dag, spec)),
                Err(why) => {
                    assert!(why.to_string().contains("refuses"), "{spec:?}: {why}");
                    refused.push((dags.len(), spec));
                }
            }
        }
        Self { testbed, dags, refused, random }
    }

    /// Lets traffic beyond promises take the whole of a resource, as a promise may.
    pub fn leave_no_headroom(&mut self) {
        let fairness = Fairness { headroom_percent: 0, ..Fairness::default() };
        let settings = ControllerSettings { fairness, ..ControllerSettings::default() };
        self.testbed.policies(settings).expect("it takes policies");
    }

    /// Half of the tenants send all of their promise, evenly; the other half nine tenths of it at random
    /// times.
    pub fn promised(&mut self) -> Vec<Load> {
        let random = &mut self.random;
        let loads = self.dags.iter().map(|(_, spec)| {
            let is_random = random.below(2) == 1;
            let percent = if is_random { 90 } else { 100 };
            let rate = Bandwidth::from_bps(spec.bandwidth.get() / 100 * percent);
            Load { rate, is_random }
        });
        loads.collect()
    }

    /// All send, and after a while what they are served counts.
    pub fn run(&mut self, loads: &[Load], warm_up: Duration, time: Duration) -> Vec<Option<Seen>> {
        for ((dag, spec), load) in self.dags.iter().zip(loads) {
            let sizes = spec.packet_sizes.sizes().iter();
            let mix = sizes.map(|size| (size.bytes, size.weight)).collect();
            let source = TrafficSource::of_dag(dag.uid, load.rate, Sizes::Mix(mix));
            let source = if load.is_random { source.poisson() } else { source };
            self.testbed.send(source).expect("a source");
        }
        self.testbed.live(warm_up, STEP).expect("time passes");
        self.testbed.card.take_measurements();
        self.testbed.live(time, STEP).expect("time passes");
        self.testbed.card.check().expect("nothing is lost");
        let measured: Measurements = self.testbed.card.take_measurements();
        let seen = |((dag, _), load): (&(DagView, DagSpec), &Load)| {
            measured.dag(dag.uid.row()).map(|dag| Seen::of(load.rate, dag))
        };
        self.dags.iter().zip(loads).map(seen).collect()
    }

    /// Admitted bandwidth, in Gbit/s.
    pub fn gbps(&self) -> f64 {
        self.dags.iter().map(|(_, spec)| spec.bandwidth.gbps_f64()).sum()
    }
}

/// A DAG in a few words.
pub fn words(spec: &DagSpec) -> String {
    let nts: Vec<_> = spec.nodes.iter().map(|node| node.nt.as_str()).collect();
    format!("{nts:?} of {} for {}", spec.packet_sizes, spec.bandwidth)
}
