//! Simulated packets per second of one core: a chain of three NTs, the scheduler's credits on.

#![allow(missing_docs, reason = "the macros make functions without documentation")]

#[path = "../tests/rig/mod.rs"]
mod rig;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rig::Rig;
use snic_card_sim::{Sizes, TrafficSource};
use snic_domain::Bandwidth;

const PACKETS: u64 = 10_000;

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.load(0, &[(8, 100), (8, 100), (8, 100)]);
    rig.dag(1, &[&[&[(0, 0b111, 1)]]]);
    rig
}

/// Runs for as long as about [`PACKETS`] packets take.
fn run(criterion: &mut Criterion, name: &str, source: TrafficSource, cycles: u64) {
    let mut rig = rig();
    rig.card.attach(source).expect("valid");
    rig.card.run_for(100_000);
    rig.card.take_measurements();
    rig.card.run_for(cycles);
    let packets = rig.card.take_measurements().dag(1).expect("it sends").counters.packets_out;
    let mut group = criterion.benchmark_group("packets");
    group.throughput(Throughput::Elements(packets));
    group.bench_function(name, |bench| bench.iter(|| rig.card.run_for(cycles)));
    group.finish();
    rig.check();
}

fn packets(criterion: &mut Criterion) {
    let source =
        |gbps, sizes| TrafficSource::of_dag(rig::uid(1), Bandwidth::from_gbps(gbps), sizes);
    run(criterion, "three_nts_64_bytes", source(32, Sizes::Fixed(64)), PACKETS * 4);
    run(criterion, "three_nts_imix_poisson", source(80, Sizes::imix()).poisson(), PACKETS * 9);
    // More than eight credits let pass: most packets wait, and some find the store full.
    run(criterion, "three_nts_64_bytes_overload", source(128, Sizes::Fixed(64)), PACKETS * 2);
    run(criterion, "three_nts_1500_bytes", source(96, Sizes::Fixed(1_500)), PACKETS * 32);
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = packets
}
criterion_main!(benches);
