//! Durable puts a second at 1, 8 and 64 threads: what group commit makes of two fdatasyncs.
//!
//! The value is 256 bytes; every put is a separate batch that is durable when it is counted.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use snic_ports::store::{Batch, Store};
use snic_store_sled::{SledOptions, SledStore};

const VALUE_BYTES: usize = 256;

/// Distinct keys: a store of some thousand records, as a full card has.
const KEYS: u64 = 4096;

/// The time that `threads` need for `puts` puts in all.
fn run(store: &SledStore, threads: u64, puts: u64) -> Duration {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let barrier = Barrier::new(usize::try_from(threads).unwrap_or(usize::MAX) + 1);
    let work = |share: u64| {
        barrier.wait();
        for _ in 0..share {
            let key = NEXT.fetch_add(1, Ordering::Relaxed) % KEYS;
            let batch = Batch::new().put(format!("bench/{key:04}"), vec![7; VALUE_BYTES]);
            store.apply(black_box(batch)).expect("a put on a sound disk");
        }
    };
    thread::scope(|scope| {
        for thread in 0..threads {
            let share = puts / threads + u64::from(thread < puts % threads);
            let work = &work;
            scope.spawn(move || work(share));
        }
        // The end of the scope joins the threads, so the time runs until the last put.
        let start = Instant::now();
        barrier.wait();
        start
    })
    .elapsed()
}

fn durable_puts(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = SledStore::open(folder.path(), SledOptions::default()).expect("a new store").store;
    let mut group = criterion.benchmark_group("store/durable_puts");
    group.sample_size(20).throughput(Throughput::Elements(1));
    for threads in [1, 8, 64] {
        group.bench_with_input(
            BenchmarkId::from_parameter(threads),
            &threads,
            |bencher, threads| {
                bencher.iter_custom(|puts| run(&store, *threads, puts));
            },
        );
    }
    group.finish();
}

criterion_group!(benches, durable_puts);
criterion_main!(benches);
