//! One more DAG against a card with 32 regions and residents: the goal is 50 µs at 1,000.
//!
//! 10,000 residents are more than a card's tables have rows for; there the ledger is given tables
//! without end, to show how planning grows and not how a refusal does.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, CardId, CardModel, CardProfile, Cycles, Dag,
    DagId, DagName, DagSpec, Digest, Mapping, NtType, NtTypeId, RegionId, RegionImages, RegionKind,
    RegionProfile, SaveArea, TenantId,
};
use snic_planner::{
    Budget, Ledger, PlanCatalogue, PlanRequest, Resident, TableRows, optimize, plan, plan_batch,
};

const NTS: [&str; 12] = [
    "nat",
    "firewall",
    "load-balancer",
    "kv-cache",
    "go-back-n",
    "aes",
    "kv-replication",
    "dfadd",
    "checksum",
    "compress",
    "monitor",
    "police",
];
const REGIONS: u8 = 32;
/// Regions that are loaded; the others are free.
const LOADED: u8 = 24;

fn nt_id(text: &str) -> NtTypeId {
    NtTypeId::new(text).expect("an id of the benchmark")
}

fn model() -> CardModel {
    CardModel::new("sim").expect("an id of the benchmark")
}

fn profile() -> CardProfile {
    let region = RegionProfile {
        kind: RegionKind::KnownNt,
        area: Area { lut: 40_000, ramb36: 0, dsp: 0 },
        bitstream_max: ByteSize::from_mib(4),
    };
    CardProfile {
        model: model(),
        part: "xcvu9p".into(),
        idcode: 0,
        clock_hz: 250_000_000,
        width_bits: 512,
        ingress: Bandwidth::from_gbps(100_000),
        egress: Bandwidth::from_gbps(100_000),
        memory: ByteSize::from_mib(10_240),
        memory_bytes_per_second: None,
        packet_store: ByteSize::from_mib(4),
        configuration_bytes_per_second: 800_000_000,
        scheduler_pass: Cycles::new(16),
        scheduler_lookups_per_cycle: None,
        packet_store_beats_per_cycle: None,
        core: Cycles::new(49),
        credits_initial: 8,
        region_pass: None,
        save_area: SaveArea::default(),
        regions: vec![region; REGIONS.into()],
        processors: Vec::new(),
        links: None,
    }
}

/// Twelve NTs, and for each of them a bitstream with the six that follow and one with it alone.
fn catalogue() -> PlanCatalogue {
    let mut catalogue = PlanCatalogue::new();
    for id in NTS {
        catalogue.insert_nt(NtType {
            memory: ByteSize::from_mib(2),
            ..NtType::new(
                nt_id(id),
                Bandwidth::from_gbps(100),
                Cycles::new(20),
                Area { lut: 4_000, ramb36: 0, dsp: 0 },
            )
        });
    }
    for first in 0..NTS.len() {
        for count in [6, 1] {
            let id = format!("b{first}-{count}");
            catalogue.insert_bitstream(Bitstream {
                notes: Default::default(),
                identity: None,
                id: BitstreamId::new(&id).expect("an id of the benchmark"),
                images: RegionImages::for_all(Digest::of(id.as_bytes()), ByteSize::from_mib(3)),
                nts: (0..count).map(|i| nt_id(NTS[(first + i) % NTS.len()])).collect(),
                region_kind: RegionKind::KnownNt,
                card_model: model(),
                shareable: true,
                signed_by: None,
                modules: Vec::new(),
            });
        }
    }
    catalogue
}

fn chain(first: usize, count: usize, step: usize, bandwidth: Bandwidth) -> Dag {
    let nts: Vec<NtTypeId> =
        (0..count).map(|i| nt_id(NTS[(first + i * step) % NTS.len()])).collect();
    Dag::new(DagSpec::chain(&nts, bandwidth)).expect("a valid chain")
}

fn name(i: usize) -> DagName {
    DagName {
        tenant: TenantId::new(&format!("t{}", i % 50)).expect("an id of the benchmark"),
        dag: DagId::new(&format!("d{i}")).expect("an id of the benchmark"),
    }
}

/// A card on which 24 regions are loaded and `residents` DAGs share them.
fn card(residents: usize, catalogue: &PlanCatalogue) -> Ledger {
    let card = CardId::new("card-0").expect("an id of the benchmark");
    let mut ledger = Ledger::with_rows(card, profile(), TableRows::UNLIMITED);
    for region in 0..LOADED {
        let id = BitstreamId::new(&format!("b{}-6", region % 12)).expect("an id of the benchmark");
        ledger
            .set_content(RegionId(region), catalogue.bitstream(&id), catalogue)
            .expect("a free region");
    }
    // Together they take about half of what is loaded, whatever their number.
    let mbps = (400_000 / residents as u64).max(1);
    for i in 0..residents {
        let dag = chain(i, 2 + i % 4, 1, Bandwidth::from_mbps(mbps));
        let name = name(i);
        let request = PlanRequest { name: &name, dag: &dag, previous: None };
        let plan = plan(&ledger, catalogue, &request).expect("there is room");
        assert!(plan.loads.is_empty(), "residents share what is loaded");
        ledger.hold(&name, plan.reservation).expect("a plan never overbooks");
    }
    ledger
}

fn one_more(c: &mut Criterion) {
    let catalogue = catalogue();
    let mut group = c.benchmark_group("plan");
    let newcomer = name(1_000_000);
    let mut run = |what: &str, residents: usize, ledger: &Ledger, dag: &Dag, admitted: bool| {
        let request = PlanRequest { name: &newcomer, dag, previous: None };
        let result = plan(ledger, &catalogue, &request);
        assert_eq!(result.is_ok(), admitted, "{what}");
        group.bench_function(BenchmarkId::new(what, residents), |b| {
            b.iter(|| black_box(plan(black_box(ledger), &catalogue, &request)));
        });
    };
    for residents in [10, 100, 1_000, 10_000] {
        let ledger = card(residents, &catalogue);
        run("share", residents, &ledger, &chain(3, 5, 1, Bandwidth::from_gbps(1)), true);
    }
    let ledger = card(1_000, &catalogue);
    run("instances", 1_000, &ledger, &chain(3, 4, 1, Bandwidth::from_gbps(150)), true);
    run("load", 1_000, &ledger, &chain(3, 6, 1, Bandwidth::from_gbps(250)), true);
    run("cut", 1_000, &ledger, &chain(3, 7, 1, Bandwidth::from_gbps(1)), true);
    run("cut-in-three", 1_000, &ledger, &chain(3, 7, 5, Bandwidth::from_gbps(1)), true);
    run("refuse", 1_000, &ledger, &chain(3, 5, 1, Bandwidth::from_gbps(3_000)), false);
    // Each NT fits by itself; only the search finds that all of them together do not.
    run("refuse-together", 1_000, &ledger, &chain(0, 12, 1, Bandwidth::from_gbps(1_500)), false);
    let diamond = diamond();
    run("diamond", 1_000, &ledger, &diamond, true);
    group.finish();
}

fn diamond() -> Dag {
    let mut spec = DagSpec::chain(
        &["nat", "firewall", "load-balancer", "kv-cache"].map(nt_id),
        Bandwidth::from_gbps(1),
    );
    let id = |i: usize| spec.nodes[i].id.clone();
    let edge = |from, to| snic_domain::Edge { from: id(from), to: id(to) };
    spec.edges = vec![edge(0, 1), edge(0, 2), edge(1, 3), edge(2, 3)];
    Dag::new(spec).expect("a valid diamond")
}

/// Cost of holding and releasing a reservation.
fn hold(c: &mut Criterion) {
    let catalogue = catalogue();
    let mut ledger = card(1_000, &catalogue);
    let (name, dag) = (name(1_000_000), chain(3, 5, 1, Bandwidth::from_gbps(1)));
    let request = PlanRequest { name: &name, dag: &dag, previous: None };
    let reservation = plan(&ledger, &catalogue, &request).expect("there is room").reservation;
    c.bench_function("hold and release/1000", |b| {
        b.iter(|| {
            ledger.hold(&name, reservation.clone()).expect("a plan never overbooks");
            ledger.release(&name)
        });
    });
}

/// Chains of 2 to 6 NTs with 0.1 to 2 Gbit/s each, scaled down where they are very many.
fn many(count: usize) -> Vec<(DagName, Dag)> {
    (0..count)
        .map(|i| {
            let mbps = (100 + (i as u64 * 977) % 1_900) * 2_000 / (count as u64).max(2_000);
            (name(i), chain(i * 7, 2 + i % 5, 1 + i % 2, Bandwidth::from_mbps(mbps)))
        })
        .collect()
}

/// Goal: 1,000 DAGs on an empty card in 100 ms.
fn batch(c: &mut Criterion) {
    let catalogue = catalogue();
    let card = CardId::new("card-0").expect("an id of the benchmark");
    let ledger = Ledger::with_rows(card, profile(), TableRows::UNLIMITED);
    let mut group = c.benchmark_group("batch");
    group.sample_size(10);
    for count in [10, 100, 1_000] {
        let dags = many(count);
        let requests: Vec<PlanRequest<'_>> =
            dags.iter().map(|(name, dag)| PlanRequest { name, dag, previous: None }).collect();
        let made = plan_batch(&ledger, &catalogue, &requests);
        eprintln!("batch/{count}: {} admitted", made.order.len());
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| black_box(plan_batch(&ledger, &catalogue, &requests)));
        });
    }
    group.finish();
}

/// A full card after every other DAG has left.
fn half_empty(
    residents: usize,
    catalogue: &PlanCatalogue,
) -> (Ledger, Vec<(DagName, Dag, Mapping)>) {
    let card = CardId::new("card-0").expect("an id of the benchmark");
    let mut ledger = Ledger::with_rows(card, profile(), TableRows::UNLIMITED);
    let mut placed = Vec::new();
    let mut leaves = Vec::new();
    for (i, (name, dag)) in many(2 * residents).into_iter().enumerate() {
        let request = PlanRequest { name: &name, dag: &dag, previous: None };
        let Ok(made) = plan(&ledger, catalogue, &request) else { continue };
        for load in &made.loads {
            let content = catalogue.bitstream(&load.bitstream);
            ledger.set_content(load.region, content, catalogue).expect("nobody uses it");
        }
        ledger.hold(&name, made.reservation).expect("a plan never overbooks");
        match i % 2 {
            0 => placed.push((name, dag, made.mapping)),
            _ => leaves.push(name),
        }
    }
    leaves.iter().for_each(|name| drop(ledger.release(name)));
    (ledger, placed)
}

/// Goal: a full card in 200 ms. Up to 1,000 residents ask for the same bandwidth each, 10,000 for
/// as much together.
fn consolidate(c: &mut Criterion) {
    let catalogue = catalogue();
    let budget = Budget { reconfigurations: 4, regions: 1, passes: 1 };
    let mut group = c.benchmark_group("optimize");
    group.sample_size(10);
    for residents in [10, 100, 1_000, 10_000] {
        let (ledger, placed) = half_empty(residents, &catalogue);
        let residents: Vec<Resident<'_>> =
            placed.iter().map(|(name, dag, mapping)| Resident { name, dag, mapping }).collect();
        let made = optimize(&ledger, &catalogue, &residents, budget);
        eprintln!(
            "optimize: {} residents, {} moves, {} regions freed, {} taken, {} -> {} passes",
            residents.len(),
            made.moves.len(),
            made.freed.len(),
            made.taken.len(),
            made.passes_before,
            made.passes_after
        );
        let id = BenchmarkId::new("half empty", residents.len());
        group.bench_function(id, |b| {
            b.iter(|| black_box(optimize(&ledger, &catalogue, &residents, budget)));
        });
    }
    group.finish();
}

criterion_group!(benches, one_more, hold, batch, consolidate);
criterion_main!(benches);
