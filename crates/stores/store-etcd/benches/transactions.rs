//! Creates a second on a bare etcd of one member: one transaction each, by 1 and 64 callers, and many in one transaction.
//! Groups gain what a leader gains that puts many creates into one transaction.
//!
//! A create is one put of 1,382 bytes, as in the daemon's measurements, on the condition that it is not there.

use std::hint::black_box;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use snic_etcd::{Answer, Compare, Operation, Request, Revision, Transaction};
use snic_store_etcd::{EtcdConnection, EtcdSettings};
use tokio::runtime::Runtime;

const VALUE_BYTES: usize = 1_382;

/// An etcd that ends with the benchmark.
struct Etcd {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Etcd {
    /// `None` without etcd.
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let listeners = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).expect("a port"));
        let [url, peer] = listeners
            .map(|listener| format!("http://{}", listener.local_addr().expect("it is bound")));
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(folder.path())
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Self { child, url, _folder: folder })
    }
}

/// A transaction that creates so many keys, which nobody has.
fn creates(count: usize) -> Request {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let first = NEXT.fetch_add(count as u64, Ordering::Relaxed);
    let keys = (first..first + count as u64).map(|i| format!("bench/{i:012}"));
    let (compares, operations) = keys
        .map(|key| {
            let value = vec![7; VALUE_BYTES];
            let absent = Compare::CreatedAt(key.clone(), Revision(0));
            (absent, Operation::Put { key, value, lease: None })
        })
        .unzip();
    Request::Commit(Transaction { compares, operations })
}

async fn commit(connection: &EtcdConnection, count: usize) {
    let answer = connection.ask(black_box(&creates(count))).await;
    assert!(matches!(answer, Ok(Answer::Committed(_))), "{answer:?}");
}

/// The time of so many transactions by so many callers on one connection.
async fn run(connection: &EtcdConnection, callers: u64, count: usize, all: u64) -> Duration {
    let left = Arc::new(AtomicU64::new(all));
    let begin = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let (connection, left) = (connection.clone(), Arc::clone(&left));
        tasks.spawn(async move {
            let next = |left: u64| left.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok() {
                commit(&connection, count).await;
            }
        });
    }
    tasks.join_all().await;
    begin.elapsed()
}

fn transactions(criterion: &mut Criterion) {
    let Some(etcd) = Etcd::start() else {
        println!("not run: etcd is missing");
        return;
    };
    let runtime = Runtime::new().expect("a runtime");
    let settings = EtcdSettings::plain(vec![etcd.url.clone()]);
    let connection = runtime.block_on(EtcdConnection::new(settings)).expect("good settings");
    while runtime.block_on(connection.ask(&creates(1))).is_err() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut group = criterion.benchmark_group("etcd/creates");
    group.sample_size(20);
    for (callers, count) in [(1, 1), (64, 1), (1, 8), (1, 32), (1, 127), (4, 127)] {
        let name = format!("{callers} callers, {count} in a transaction");
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.to_async(&runtime).iter_custom(|all| run(&connection, callers, count, all));
        });
    }
    group.finish();
}

criterion_group!(benches, transactions);
criterion_main!(benches);
