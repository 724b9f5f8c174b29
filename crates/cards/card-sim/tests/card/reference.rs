//! The complete trace of random DAGs, with forks, joins, skipped NTs and NTs that several DAGs
//! share, against a second card that is written slowly: every packet leaves in the cycle that both
//! say.

use crate::naive;
use crate::rig;
use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use crate::rig::{Instance, Nt, Rig, uid};
use proptest::prelude::*;
use proptest::sample::Index;
use snic_card_sim::{
    Capture, MemoryAccess, PacketOutcome, PacketRecord, PlaneOptions, RegionPace, Sizes,
    TrafficSource,
};
use snic_domain::{Bandwidth, CardProfile, Cycles, MemoryTraffic, Timestamp};
use snic_ports::card::Registers;
use snic_tables::registers::{PACKETS_IN, REGION_LOAD, region};
use snic_tables::{CreditReservation, DagRow, PageRow, StageRow, Steering};

use crate::naive::{NaiveDag, NtData, Offered, Setup, Stage, Way};

/// Branches of a stage: what a row of the card's table has.
const BRANCHES_MAX: usize = 4;

/// Packets of a DAG: those of all together fit into the synchronisation buffer and the packet store,
/// whatever waits for what.
const PACKETS_MAX: usize = 80;

/// A node: which nodes before it come right before it (bit by bit, the one before it where there
/// are none), its NT, and in how many regions that is used.
#[derive(Debug, Clone)]
struct Node {
    parents: u8,
    pair: Index,
    slot: Index,
    weights: Option<(u32, u32)>,
}

/// A DAG and who sends for it.
#[derive(Debug, Clone)]
struct Graph {
    nodes: Vec<Node>,
    /// Whether packets wait for branches that nothing follows.
    awaits_all: bool,
    payload: bool,
    /// Nanoseconds between packets, and their bytes.
    packets: Vec<(u64, u32)>,
}

#[derive(Debug, Clone)]
struct Scenario {
    /// Chains of pairs of regions.
    chains: Vec<Vec<Nt>>,
    graphs: Vec<Graph>,
    credits: u8,
    with_credits: bool,
    prefix: bool,
    least_loaded: bool,
    clock_mhz: u64,
    pass: u64,
    around: u64,
    credit_cycles: u64,
    /// A region takes at most this many packets, in this many cycles.
    pace: (u32, u32),
    /// NTs of an odd latency read memory, which answers after this time.
    memory_nanos: u32,
    /// Rate of memory, in 100 MB a second.
    memory_rate: u64,
    /// Beats that are read from the packet store in a cycle; 0: as many as are wanted.
    store_beats: u32,
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let weights = prop::option::of((1_u32..4, 1_u32..4));
    let node = (any::<u8>(), any::<Index>(), any::<Index>(), weights);
    let node =
        node.prop_map(|(parents, pair, slot, weights)| Node { parents, pair, slot, weights });
    prop::collection::vec(node, 1..=8)
}

fn packets() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let gap = prop_oneof![4 => 0_u64..30, 2 => 0_u64..400, 1 => 0_u64..20_000];
    let bytes = prop_oneof![Just(64_u32), Just(1_518), 64_u32..3_000];
    prop::collection::vec((gap, bytes), 1..=PACKETS_MAX)
}

fn graph() -> impl Strategy<Value = Graph> {
    (nodes(), any::<bool>(), any::<bool>(), packets()).prop_map(
        |(nodes, awaits_all, payload, packets)| Graph { nodes, awaits_all, payload, packets },
    )
}

fn scenario() -> impl Strategy<Value = Scenario> {
    // Those of 150 Gbit/s or more have further limits.
    let gbps = prop_oneof![4 => 5_u64..150, 1 => 150_u64..170];
    let chain = prop::collection::vec((0_u64..80, gbps), 1..=4);
    let chains = prop::collection::vec(chain, 1..=8);
    let graphs = prop::collection::vec(graph(), 1..=3);
    let choices = (1_u8..12, any::<bool>(), any::<bool>(), any::<bool>());
    let clock = prop::sample::select(vec![250_u64, 100, 322]);
    let card = (clock, 1_u64..24, 0_u64..50, 1_u64..9, (1_u32..9, 1_u32..30));
    let memory = (1_u32..300, 2_u64..250, 0_u32..4);
    (chains, graphs, choices, card, memory).prop_map(|(chains, graphs, choices, card, memory)| {
        let (credits, with_credits, prefix, least_loaded) = choices;
        let (clock_mhz, pass, around, credit_cycles, pace) = card;
        let (memory_nanos, memory_rate, store_beats) = memory;
        Scenario {
            chains,
            graphs,
            credits,
            with_credits,
            prefix,
            least_loaded,
            clock_mhz,
            pass,
            around,
            credit_cycles,
            pace,
            memory_nanos,
            memory_rate,
            store_beats,
        }
    })
}

impl Graph {
    fn edges(&self) -> Vec<(usize, usize)> {
        let parents = |to: usize| {
            let named: Vec<usize> =
                (0..to).filter(|from| self.nodes[to].parents >> from & 1 == 1).collect();
            if named.is_empty() && to > 0 { vec![to - 1] } else { named }
        };
        (0..self.nodes.len())
            .flat_map(|to| parents(to).into_iter().map(move |from| (from, to)))
            .collect()
    }

    /// Runs of nodes that one pass through a region does, NTs in between skipped.
    fn runs(&self, chains: &[Vec<Nt>]) -> Vec<Vec<usize>> {
        let edges = self.edges();
        let place = |node: usize| place(&self.nodes[node], chains);
        let mut runs: Vec<Vec<usize>> = Vec::new();
        for node in 0..self.nodes.len() {
            let before: Vec<usize> =
                edges.iter().filter(|edge| edge.1 == node).map(|edge| edge.0).collect();
            let only = |from: usize| edges.iter().filter(|edge| edge.0 == from).count() == 1;
            let run = runs.iter_mut().find(|run| {
                let last = *run.last().expect("no run is empty");
                let (from, to) = (place(last), place(node));
                before == [last] && only(last) && from.0 == to.0 && from.1 < to.1
            });
            match run {
                Some(run) => run.push(node),
                None => runs.push(vec![node]),
            }
        }
        runs
    }

    /// Runs by the longest path to them, at most four side by side.
    fn stages(&self, chains: &[Vec<Nt>]) -> Vec<Vec<Vec<usize>>> {
        let runs = self.runs(chains);
        let run_of = |node: usize| runs.iter().position(|run| run.contains(&node)).expect("in one");
        let mut level = vec![0; runs.len()];
        for _ in 0..runs.len() {
            for (from, to) in self.edges() {
                let (from, to) = (run_of(from), run_of(to));
                if from != to {
                    level[to] = level[to].max(level[from] + 1);
                }
            }
        }
        let mut stages = Vec::new();
        for number in 0..runs.len() {
            let here = (0..runs.len()).filter(|run| level[*run] == number);
            let here: Vec<Vec<usize>> = here.map(|run| runs[run].clone()).collect();
            stages.extend(here.chunks(BRANCHES_MAX).map(<[_]>::to_vec));
        }
        stages
    }

    /// The ways of a run, and whether packets wait for it.
    fn branch(&self, run: &[usize], chains: &[Vec<Nt>]) -> (Vec<Way>, bool) {
        let place = |node: &usize| place(&self.nodes[*node], chains);
        let used = run.iter().fold(0, |mask, node| mask | 1_u8 << place(node).1);
        let first = (2 * place(&run[0]).0) as u8;
        let ways = match self.nodes[run[0]].weights {
            None => vec![(first, used, 1)],
            Some((one, other)) => vec![(first, used, one), (first + 1, used, other)],
        };
        let last = run[run.len() - 1];
        let is_followed = self.edges().iter().any(|edge| edge.0 == last);
        (ways, self.awaits_all || is_followed)
    }

    fn told(&self, chains: &[Vec<Nt>]) -> NaiveDag {
        let stage = |runs: Vec<Vec<usize>>| -> Stage {
            runs.iter().map(|run| self.branch(run, chains)).collect()
        };
        let stages = self.stages(chains).into_iter().map(stage).collect();
        NaiveDag { stages, payload: self.payload }
    }
}

/// Pair of regions that a node's NT is in, and its slot.
fn place(node: &Node, chains: &[Vec<Nt>]) -> (usize, usize) {
    let pair = node.pair.index(chains.len());
    (pair, node.slot.index(chains[pair].len()))
}

/// Whether an NT of this latency reads memory for each packet.
const fn reads(latency: u64) -> bool {
    latency % 2 == 1
}

fn code(nt: &Nt) -> u32 {
    Rig::nt(*nt).id.code().0
}

impl Scenario {
    fn setup(&self) -> Setup {
        let profile = CardProfile {
            credits_initial: self.credits,
            clock_hz: self.clock_mhz * 1_000_000,
            scheduler_pass: Cycles::new(self.pass),
            core: Cycles::new(self.pass + self.around),
            packet_store_beats_per_cycle: NonZeroU32::new(self.store_beats),
            ..rig::profile()
        };
        let data = |&(latency, gbps): &Nt| NtData {
            latency,
            bps: gbps * 1_000_000_000,
            packets: rig::packets_max(gbps).map(|most| most.get().into()),
            reads_memory: reads(latency),
            moves: {
                let MemoryTraffic { bytes_per_packet, bytes_per_packet_byte } =
                    rig::memory_traffic(gbps);
                (bytes_per_packet.into(), bytes_per_packet_byte.into())
            },
        };
        let chain = |chain: &Vec<Nt>| chain.iter().map(data).collect::<Vec<_>>();
        Setup {
            profile,
            regions: self.chains.iter().flat_map(|nts| [chain(nts), chain(nts)]).collect(),
            dags: self.graphs.iter().map(|graph| graph.told(&self.chains)).collect(),
            credits: self.with_credits,
            prefix: self.prefix,
            least_loaded: self.least_loaded,
            credit_cycles: self.credit_cycles,
            pace: self.pace,
            memory_nanos: self.memory_nanos.into(),
            memory_bytes_per_second: self.memory_rate * 100_000_000,
        }
    }

    fn card(&self, setup: &Setup) -> Rig {
        let number = |n| NonZeroU32::new(n).expect("not zero");
        let (packets, cycles) = (number(self.pace.0), number(self.pace.1));
        let options = PlaneOptions {
            credits: self.with_credits,
            credit_cycles: NonZeroU64::new(setup.credit_cycles).expect("not zero"),
            region_pace: RegionPace { packets, cycles },
            memory_latency_nanos: self.memory_nanos,
            memory_bytes_per_second: NonZeroU64::new(setup.memory_bytes_per_second)
                .expect("not zero"),
            ..PlaneOptions::default()
        };
        let reservation =
            if self.prefix { CreditReservation::Prefix } else { CreditReservation::Chain };
        let steering = if self.least_loaded { Steering::LeastLoaded } else { Steering::RoundRobin };
        let rig = Rig::with(setup.profile.clone(), 1, options);
        let mut rig = rig.scheduled(steering, reservation);
        for (pair, chain) in (0..).zip(&self.chains) {
            rig.load(2 * pair, chain);
            rig.load(2 * pair + 1, chain);
        }
        self.map(&mut rig);
        for (row, dag) in (1..).zip(&setup.dags) {
            tell(&mut rig, row, dag);
        }
        rig
    }

    /// Gives each NT that reads memory a page.
    fn map(&self, rig: &mut Rig) {
        let nts: BTreeSet<u32> =
            self.chains.iter().flatten().filter(|nt| reads(nt.0)).map(code).collect();
        rig.program(|image| {
            for (row, &nt) in (0..).zip(&nts) {
                // All of the rig's DAGs are of tenant 1.
                let page = PageRow { tenant: 1, nt, virtual_page: 0, physical_page: row, rwx: 1 };
                image.set(row, &page).expect("there");
            }
        });
        for nt in nts {
            rig.card.set_memory_access(nt, MemoryAccess { pages: 1, writes: false });
        }
    }

    /// Replays each DAG's packets, and waits for the end of all; returns their records by sender.
    fn send(&self, rig: &mut Rig, start: Timestamp) -> Vec<PacketRecord> {
        let all = self.graphs.iter().map(|graph| graph.packets.len()).sum();
        rig.card.keep_trace(all);
        for (row, graph) in (1..).zip(&self.graphs) {
            let capture = Capture::parse(&file(&graph.packets)).expect("a capture");
            let source = TrafficSource::of_dag(uid(row), Bandwidth::from_gbps(1), Sizes::Fixed(64));
            let source = TrafficSource { start, replay: Some(Arc::new(capture)), ..source };
            rig.card.attach(source).expect("valid");
        }
        while rig.card.read(PACKETS_IN) != Ok(all as u32) {
            rig.card.run_for(10_000);
        }
        rig.drain();
        let mut trace = rig.card.take_trace();
        assert_eq!(trace.len(), all);
        trace.sort_by_key(|record| (record.source, record.sequence));
        trace
    }

    /// The same packets as the slow card is told of them.
    fn offered(&self, start: Timestamp) -> Vec<Offered> {
        let hz = u128::from(self.clock_mhz) * 1_000_000;
        let cycle = |nanos: u64| (u128::from(nanos) * hz / 1_000_000_000) as u64;
        let mut all = Vec::new();
        for (dag, graph) in self.graphs.iter().enumerate() {
            let mut at = start.as_nanos();
            for (number, &(gap, bytes)) in graph.packets.iter().enumerate() {
                at += if number == 0 { 0 } else { gap };
                all.push(Offered { dag, due: cycle(at), bytes });
            }
        }
        all
    }
}

/// A capture file of these packets.
fn file(packets: &[(u64, u32)]) -> Vec<u8> {
    let mut words = vec![0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 1];
    let mut at = 0;
    for (number, &(gap, bytes)) in packets.iter().enumerate() {
        at += if number == 0 { 0 } else { gap };
        words.extend([0, at as u32, 0, bytes]);
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Writes a DAG's rows.
fn tell(rig: &mut Rig, row: u16, dag: &NaiveDag) {
    let ways: Vec<Vec<&[Instance]>> =
        dag.stages.iter().map(|stage| stage.iter().map(|(ways, _)| &ways[..]).collect()).collect();
    let stages: Vec<&[&[Instance]]> = ways.iter().map(|stage| &stage[..]).collect();
    let rows = rig.dag(row, &stages);
    rig.program(|image| {
        for (at, stage) in rows.iter().zip(&dag.stages) {
            let columns = image.get::<StageRow>(*at).expect("programmed");
            let awaited = stage.iter().enumerate().filter(|(_, (_, joined))| *joined);
            let join_mask = awaited.fold(0, |mask, (branch, _)| mask | 1 << branch);
            image.set(*at, &StageRow { join_mask, ..columns }).expect("there");
        }
        let columns = image.get::<DagRow>(row).expect("programmed");
        image.set(row, &DagRow { payload: dag.payload, ..columns }).expect("there");
    });
}

/// Bytes that each slot of a region served, as its wrapper counts them.
fn served(rig: &mut Rig, number: u8) -> Vec<u64> {
    let slot = |slot: u32| region(number, REGION_LOAD + 16 * slot + 8);
    let mut read = |at| u64::from(rig.card.read(at).expect("there"));
    (0..8).map(|at| read(slot(at)) | read(slot(at) + 4) << 32).collect()
}

/// Every node of the graph sees every packet once, after all nodes that come before it. Branches
/// that nobody waits for may end behind the packet, not before what they follow.
fn check_order(scenario: &Scenario, dag: usize, seen: &naive::Seen) -> Result<(), TestCaseError> {
    let graph = &scenario.graphs[dag];
    let stages = graph.stages(&scenario.chains);
    let mut times = vec![None; graph.nodes.len()];
    for visit in &seen.visits {
        let run = &stages[visit.stage][visit.branch];
        let here = |node: &&usize| {
            let (pair, slot) = place(&graph.nodes[**node], &scenario.chains);
            (pair, slot) == (usize::from(visit.region) / 2, usize::from(visit.slot))
        };
        let node = *run.iter().find(here).expect("a packet sees the NTs of its DAG only");
        prop_assert!(times[node].replace((visit.came, visit.left)).is_none(), "seen twice");
    }
    for (from, to) in graph.edges() {
        let (Some((_, left)), Some((came, _))) = (times[from], times[to]) else {
            return Err(TestCaseError::fail("a node was left out"));
        };
        prop_assert!(left <= came, "{to} before {from}");
    }
    prop_assert!(times.iter().all(Option::is_some));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn packets_of_random_dags_leave_in_the_cycle_that_a_slow_card_says(scenario in scenario()) {
        let setup = scenario.setup();
        let mut rig = scenario.card(&setup);
        let start = rig.card.now() + Duration::from_micros(1);
        let from = rig.card.now_cycles();
        let trace = scenario.send(&mut rig, start);
        let offered = scenario.offered(start);
        let expected = naive::run(&setup, &offered, from);
        for ((record, packet), seen) in trace.iter().zip(&offered).zip(&expected) {
            prop_assert_eq!(record.outcome, PacketOutcome::Served);
            let times = (record.arrived, record.ended);
            prop_assert_eq!(times, (seen.came_at, seen.left_at), "{:?} {:?}", packet, seen);
            check_order(&scenario, packet.dag, seen)?;
        }
        for number in 0..setup.regions.len() as u8 {
            let mut bytes = vec![0; 8];
            for (packet, seen) in offered.iter().zip(&expected) {
                for visit in seen.visits.iter().filter(|visit| visit.region == number) {
                    bytes[usize::from(visit.slot)] += u64::from(packet.bytes);
                }
            }
            prop_assert_eq!(served(&mut rig, number), bytes);
        }
    }
}
