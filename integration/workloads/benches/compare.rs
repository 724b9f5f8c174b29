//! Five ways to fill a card, side by side: what each admits and takes, and how long it plans.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use snic_domain::{Dag, DagName};
use snic_workloads::comparison::{POLICIES, Scene};
use snic_workloads::{Shape, generate};

fn workload(count: usize) -> Vec<(DagName, Dag)> {
    let items = generate(1, count, &Shape::default()).into_iter();
    items.filter_map(|item| Some((item.name, Dag::new(item.spec).ok()?))).collect()
}

/// The figures are the same on every machine; only the times are not.
fn print(scene: &Scene, dags: &[(DagName, Dag)]) {
    println!("{} DAGs, {} regions", dags.len(), scene.profile.regions.len());
    println!("way              admitted regions unused passes cycles kbit/s/LUT");
    for policy in POLICIES {
        let made = scene.fill(policy, dags);
        println!(
            "{:<16} {:>8} {:>7} {:>5} % {:>6.2} {:>6} {:>10}",
            format!("{policy:?}"),
            made.admitted,
            made.regions,
            made.unused_permille / 10,
            made.passes_milli as f64 / 1_000.0,
            made.latency_cycles,
            made.kbps_per_lut(),
        );
    }
    println!();
}

fn compare(c: &mut Criterion) {
    let scene = Scene::new().expect("the built-in catalogue is valid");
    let mut group = c.benchmark_group("compare");
    group.sample_size(10);
    for count in [100, 1_000] {
        let dags = workload(count);
        print(&scene, &dags);
        for policy in POLICIES {
            let id = BenchmarkId::new(format!("{policy:?}"), count);
            group.bench_function(id, |b| b.iter(|| black_box(scene.fill(policy, &dags))));
        }
    }
    group.finish();
}

criterion_group!(benches, compare);
criterion_main!(benches);
