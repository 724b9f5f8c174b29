//! What was admitted is served: controller, driver and simulated card with the loop at work, under the
//! policies that ship. Every tenant sends what it was promised, at random times, and the card is the judge: at
//! least 99 % of it leaves the card, and nothing is dropped.

use std::time::Duration;

use snic_card_sim::{DagMeasurement, PlaneOptions, Sizes, TrafficSource};
use snic_controller::{ControllerSettings, DagView};
use snic_domain::{Bandwidth, DagSpec, Edge, FormPreference, NtTypeId, PacketSizes, RegionPass};
use snic_repro::{NtSequence, Parameters, Setup, Testbed};

const STEP: Duration = Duration::from_micros(100);
/// How long all send before it counts, and how long it counts.
const WARM_UP: Duration = Duration::from_millis(5);
const COUNTS: Duration = Duration::from_millis(40);
/// How long each of many sets counts.
const SET_COUNTS: Duration = Duration::from_millis(6);

/// DAG-D without AES, the longest chain of the catalogue whose NTs all serve 100 Gbit/s.
const CHAIN: NtSequence<'static> = &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n"];

/// A card with as many regions and with bitstreams for these chains.
fn testbed_of(chains: &[NtSequence<'_>], regions: usize) -> Testbed {
    let parameters = Parameters::load().expect("our own files");
    // The figures' card promises by what NTs serve alone; this is the product's.
    let mut card = parameters.card.clone();
    card.region_pass = Some(RegionPass::SUPERNIC);
    card.regions.truncate(regions);
    let setup = Setup {
        card,
        options: PlaneOptions::default(),
        nts: parameters.catalogue.nt_types.clone(),
        chains: chains.to_vec(),
    };
    let mut testbed = Testbed::new(&setup).expect("a bench");
    testbed.policies(ControllerSettings::default()).expect("policies");
    testbed
}

fn chain_of(nts: &[&str], gbps: u64) -> DagSpec {
    let nts: Vec<_> = nts.iter().map(|nt| NtTypeId::new(nt).expect("a label")).collect();
    DagSpec::chain(&nts, Bandwidth::from_gbps(gbps))
}

/// A DAG and what it sends of its promise, in percent.
struct Sender<'a> {
    name: &'a str,
    spec: DagSpec,
    percent: u64,
}

/// What was sent, served and dropped of each.
#[derive(Debug)]
struct Seen {
    /// What the source is to send on average.
    rate: Bandwidth,
    /// What came in.
    sent: Bandwidth,
    served: Bandwidth,
    drops: u64,
    p99_nanos: f64,
}

impl Seen {
    fn of(rate: Bandwidth, dag: &DagMeasurement) -> Self {
        let (sent, served, drops) = (dag.intended, dag.served, dag.drops.iter().sum());
        Self { rate, sent, served, drops, p99_nanos: dag.latency_p99_nanos() }
    }

    /// 99 % of what was sent is served, nothing is dropped, and no source was held back at the ingress:
    /// four standard deviations of what comes at random times in random sizes are allowed.
    fn is_kept(&self, sizes: &PacketSizes, time: Duration) -> bool {
        let packets = sizes.packets_per_second(self.rate) as f64 * time.as_secs_f64();
        let mean = sizes.bits() as f64 / sizes.packets() as f64;
        let square = sizes.sum(|bytes| u64::from(bytes * 8).pow(2)) as f64 / sizes.packets() as f64;
        let deviation = (square / mean / mean / packets).sqrt();
        let came = self.sent.gbps_f64() >= self.rate.gbps_f64() * (1.0 - 4.0 * deviation);
        came && self.served.gbps_f64() >= self.sent.gbps_f64() * 0.99 && self.drops == 0
    }
}

fn run(testbed: &mut Testbed, senders: &[Sender<'_>]) -> Vec<Seen> {
    let dags: Vec<DagView> = senders
        .iter()
        .map(|sender| {
            testbed.tenant(sender.name, 1).expect("a tenant");
            testbed.dag(sender.name, "web", sender.spec.clone()).expect("it fits")
        })
        .collect();
    let rates: Vec<Bandwidth> = senders
        .iter()
        .map(|s| Bandwidth::from_bps(s.spec.bandwidth.get() / 100 * s.percent))
        .collect();
    for (dag, rate) in dags.iter().zip(&rates) {
        let source = TrafficSource::of_dag(dag.uid, *rate, Sizes::imix()).poisson();
        testbed.send(source).expect("a source");
    }
    testbed.live(WARM_UP, STEP).expect("time passes");
    testbed.card.take_measurements();
    testbed.live(COUNTS, STEP).expect("time passes");
    let measured = testbed.card.take_measurements();
    let seen = |(dag, rate): (&DagView, &Bandwidth)| {
        Seen::of(*rate, measured.dag(dag.uid.row()).expect("its packets went through"))
    };
    dags.iter().zip(&rates).map(seen).collect()
}

/// Five NTs in the reverse of the order in which the card has them take five passes; the neighbour
/// has the region in which they would be.
fn a_reversed_chain_beside_a_neighbour(gbps: u64) {
    let singles: Vec<NtSequence<'_>> = CHAIN.chunks(1).collect();
    let mut testbed = testbed_of(&[&[CHAIN], &singles[..]].concat(), 16);
    let reversed: Vec<&str> = CHAIN.iter().rev().copied().collect();
    let senders = [
        Sender { name: "neighbour", spec: chain_of(CHAIN, 10), percent: 80 },
        Sender { name: "reversed", spec: chain_of(&reversed, gbps), percent: 80 },
    ];
    let seen = run(&mut testbed, &senders);
    for (sender, seen) in senders.iter().zip(&seen) {
        let Seen { sent, served, drops, p99_nanos, .. } = seen;
        let name = sender.name;
        println!("{gbps} Gbit/s, {name}: {served} of {sent}, {drops} drops, p99 {p99_nanos:.0} ns");
        assert!(
            seen.is_kept(&sender.spec.packet_sizes, COUNTS),
            "{name}: a promise was broken: {seen:?}"
        );
    }
}

#[test]
fn a_reversed_chain_is_served_and_its_neighbour_too() {
    a_reversed_chain_beside_a_neighbour(40);
}

#[test]
fn a_reversed_chain_that_fills_the_ingress_is_served_and_its_neighbour_too() {
    a_reversed_chain_beside_a_neighbour(85);
}

/// Numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// DAG-D, the longest chain of the catalogue.
const LONGEST: NtSequence<'static> =
    &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"];

/// A chain as the card has it, its reverse, NTs in any order, or a fork that joins again; with packets of one
/// size or several, for 1 to 45 Gbit/s, of which one AES serves 30.
fn random_spec(random: &mut Random) -> DagSpec {
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

/// What one set shows: the promises that were broken, how many were given, and their Gbit/s.
struct Judged {
    broken: Vec<String>,
    admitted: usize,
    refused: usize,
    gbps: f64,
}

/// Tenants come until the card refuses many. Half of them send all of their promise, evenly; the other
/// half nine tenths of it at random times, whose bursts their token buckets take.
fn judge(seed: u64) -> Judged {
    let mut random = Random(seed);
    let parameters = Parameters::load().expect("our own files");
    let catalogue = parameters.catalogue.chains.iter();
    let chains: Vec<Vec<&str>> =
        catalogue.map(|chain| chain.nts.iter().map(NtTypeId::as_str).collect()).collect();
    let chains: Vec<NtSequence<'_>> = chains.iter().map(Vec::as_slice).collect();
    let mut testbed = testbed_of(&chains, 3 + random.below(10));
    let (mut dags, mut refused) = (Vec::new(), 0);
    for number in 0..24 {
        let spec = random_spec(&mut random);
        let tenant = format!("t{number}");
        testbed.tenant(&tenant, 1).expect("a tenant");
        match testbed.dag(&tenant, "web", spec.clone()) {
            Ok(dag) => dags.push((dag, spec)),
            Err(why) => {
                assert!(why.to_string().contains("refuses"), "seed {seed}: {spec:?}: {why}");
                refused += 1;
            }
        }
    }
    let mut rates = Vec::new();
    for (dag, spec) in &dags {
        let mix = spec.packet_sizes.sizes().iter().map(|size| (size.bytes, size.weight)).collect();
        let is_even = random.below(2) == 0;
        let percent = if is_even { 100 } else { 90 };
        let rate = Bandwidth::from_bps(spec.bandwidth.get() / 100 * percent);
        let source = TrafficSource::of_dag(dag.uid, rate, Sizes::Mix(mix));
        testbed.send(if is_even { source } else { source.poisson() }).expect("a source");
        rates.push(rate);
    }
    testbed.live(Duration::from_millis(2), STEP).expect("time passes");
    testbed.card.take_measurements();
    testbed.live(SET_COUNTS, STEP).expect("time passes");
    let measured = testbed.card.take_measurements();
    let mut broken = Vec::new();
    for ((dag, spec), rate) in dags.iter().zip(rates) {
        let seen = measured.dag(dag.uid.row()).map(|dag| Seen::of(rate, dag));
        if !seen.as_ref().is_some_and(|seen| seen.is_kept(&spec.packet_sizes, SET_COUNTS)) {
            let nts: Vec<_> = spec.nodes.iter().map(|node| node.nt.as_str()).collect();
            broken.push(format!("{nts:?} of {}: {seen:?}", spec.packet_sizes));
        }
    }
    let gbps = dags.iter().map(|(_, spec)| spec.bandwidth.gbps_f64()).sum();
    Judged { broken, admitted: dags.len(), refused, gbps }
}

/// `SNIC_PROMISES=1000` judges as many sets, `SNIC_SEED=17` that one alone.
#[test]
fn whatever_is_admitted_is_served() {
    let number = |name| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    let seeds = match number("SNIC_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SNIC_PROMISES").unwrap_or(50),
    };
    let (mut failed, mut admitted, mut refused, mut gbps) = (Vec::new(), 0, 0, 0.0);
    for seed in seeds.clone() {
        let judged = judge(seed);
        for broken in &judged.broken {
            println!("SNIC_SEED={seed}: {broken}");
        }
        if !judged.broken.is_empty() {
            failed.push(seed);
        }
        admitted += judged.admitted;
        refused += judged.refused;
        gbps += judged.gbps;
    }
    println!("{seeds:?}: {admitted} DAGs with {gbps:.0} Gbit/s admitted, {refused} refused");
    assert!(admitted > 0 && failed.is_empty(), "promises were broken with seeds {failed:?}");
}
