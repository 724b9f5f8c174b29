//! The dearest requests there are: how long the thread that all callers share may plan one of them.
//!
//! Kinds of requests, of as many tasks as a DAG may have and fewer, with and without forks, in all sizes and
//! bandwidths, are planned on the shipped card while it is empty, half full, and without rows for virtual chains. Those that cost
//! most looks (see [`Effort`]) are timed.
//!
//! `cargo bench -p snic-workloads --bench dearest`

use std::hint::black_box;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_domain::{
    Bandwidth, Bitstream, ByteSize, CardId, Dag, DagId, DagName, DagSpec, Digest, Edge, NtTypeId,
    PacketSizes, RegionImages, TenantId,
};
use snic_planner::{Effort, Ledger, Objective, PlanCatalogue, PlanRequest, plan, plan_within};

/// The types that the catalogue has chains for.
const TYPES: [&str; 6] = ["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"];
/// Number of times that each request is timed.
const TURNS: usize = 31;
/// Number of the dearest that are shown.
const SHOWN: usize = 10;

fn name(number: usize) -> DagName {
    let tenant = TenantId::new("acme").expect("a label");
    DagName { tenant, dag: DagId::new(&format!("d{number}")).expect("a label") }
}

fn request(
    rng: &mut ChaCha8Rng,
    (tasks, forks): (usize, bool),
    mbps: u64,
    bytes: u32,
) -> Option<Dag> {
    let nt = |_| NtTypeId::new(TYPES[rng.random_range(0..TYPES.len())]).expect("a label");
    let nts: Vec<NtTypeId> = (0..tasks).map(nt).collect();
    let mut spec = DagSpec::chain(&nts, Bandwidth::from_mbps(mbps));
    if forks {
        // Groups of four: one task, two beside each other, one that takes in both.
        let node = |at: usize| spec.nodes[at].id.clone();
        let edge = |(from, to)| Edge { from: node(from), to: node(to) };
        let of_group = |at: usize| [(at, at + 1), (at, at + 2), (at + 1, at + 3), (at + 2, at + 3)];
        let within = (0..tasks).step_by(4).flat_map(of_group);
        let between = (4..tasks).step_by(4).map(|at| (at - 1, at));
        spec.edges = within.chain(between).map(edge).collect();
    }
    spec.packet_sizes = PacketSizes::only(bytes);
    Dag::new(spec).ok()
}

fn shipped() -> (PlanCatalogue, Ledger) {
    let shipped = snic_bitstream::catalogue::builtin().expect("the built-in catalogue is valid");
    let profile = shipped.cards.into_iter().next().expect("it has cards");
    let mut catalogue = PlanCatalogue::new();
    shipped.nt_types.into_iter().for_each(|nt| drop(catalogue.insert_nt(nt)));
    for chain in shipped.chains.iter().filter(|chain| chain.card_models.contains(&profile.model)) {
        let id = chain.bitstream_id(&profile.model).expect("short names");
        catalogue.insert_bitstream(Bitstream {
            images: RegionImages::for_all(
                Digest::of(id.as_str().as_bytes()),
                ByteSize::from_mib(2),
            ),
            id,
            nts: chain.nts.clone(),
            region_kind: chain.region_kind,
            card_model: profile.model.clone(),
            shareable: true,
            signed_by: None,
            modules: Vec::new(),
            notes: Default::default(),
            identity: None,
        });
    }
    (catalogue, Ledger::new(CardId::new("card0").expect("a label"), profile))
}

/// Places small chains until there are so many, or none has a place.
fn filled(catalogue: &PlanCatalogue, mut ledger: Ledger, dags: usize, mbps: u64) -> Ledger {
    let mut rng = ChaCha8Rng::seed_from_u64(dags as u64);
    for number in 0..dags {
        let tasks = rng.random_range(1..=4);
        let dag = request(&mut rng, (tasks, false), mbps, 512).expect("a chain");
        let name = name(number);
        let request = PlanRequest { name: &name, dag: &dag, previous: None };
        let Ok(plan) = plan(&ledger, catalogue, &request) else { continue };
        for load in &plan.loads {
            let content = catalogue.bitstream(&load.bitstream);
            ledger.set_content(load.region, content, catalogue).expect("nobody uses it");
        }
        ledger.hold(&name, plan.reservation).expect("a plan never overbooks");
    }
    ledger
}

struct Cost {
    kind: String,
    is_placed: bool,
    looks: u32,
    median: Duration,
    worst: Duration,
}

/// Median and worst of some turns.
fn time(work: impl Fn()) -> (Duration, Duration) {
    let turn = |_| {
        let begin = Instant::now();
        work();
        begin.elapsed()
    };
    let mut times: Vec<Duration> = (0..TURNS).map(turn).collect();
    times.sort_unstable();
    (times[TURNS / 2], times[TURNS - 1])
}

fn main() {
    let (catalogue, empty) = shipped();
    let states = [(0, 1), (60, 500), (200, 100), (1_000, 1)];
    let states = states.map(|(dags, mbps)| (dags, filled(&catalogue, empty.clone(), dags, mbps)));
    let mut costs: Vec<Cost> = Vec::new();
    let name = name(9_999);
    for (dags, mut ledger) in states {
        for objective in [Objective::Balanced, Objective::Regions, Objective::Passes] {
            ledger.set_objective(objective);
            for shape in [(16, false), (32, false), (64, false), (16, true), (32, true), (64, true)]
            {
                for (mbps, bytes) in [(1, 512), (1_000, 1_500), (10_000, 256), (40_000, 64)] {
                    for seed in 0..4 {
                        let mut rng = ChaCha8Rng::seed_from_u64(seed);
                        let Some(dag) = request(&mut rng, shape, mbps, bytes) else { continue };
                        let request = PlanRequest { name: &name, dag: &dag, previous: None };
                        let effort = Effort::new();
                        let is_placed = plan_within(&ledger, &catalogue, &request, &effort).is_ok();
                        let (median, worst) = time(|| {
                            let _ = black_box(plan(&ledger, &catalogue, black_box(&request)));
                        });
                        let (tasks, forks) = shape;
                        let forks = if forks { ", forks" } else { "" };
                        let placed = if is_placed { "placed" } else { "refused" };
                        let kind = format!(
                            "{tasks} tasks{forks}, {mbps} Mbit/s of {bytes} B, {objective:?} first, beside {dags} ({seed}): {placed}"
                        );
                        let looks = effort.spent();
                        costs.push(Cost { kind, is_placed, looks, median, worst });
                    }
                }
            }
        }
    }
    costs.sort_by_key(|cost| std::cmp::Reverse(cost.median));
    println!("{} kinds of requests; the dearest, median and worst of {TURNS}", costs.len());
    for cost in costs.iter().take(SHOWN) {
        println!(
            "{:>9.2?} {:>9.2?} {:>6} looks  {}",
            cost.median, cost.worst, cost.looks, cost.kind
        );
    }
    let dearest = costs.iter().filter(|cost| cost.is_placed).map(|cost| cost.looks).max();
    println!("most looks of one that is placed: {}", dearest.unwrap_or_default());
    let looks = costs.iter().map(|cost| cost.looks).max().unwrap_or_default();
    println!("most looks: {looks} of {}", Effort::MAX);
}
