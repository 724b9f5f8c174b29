//! Durable creates a second: DAGs over gRPC, against the bare store doing the same durable writes,
//! and against etcd's puts where etcd is installed; with 1, 8 and 64 clients, in one run.
//!
//! Every create is planned, stored and answered as in the daemon, while a simulated card is
//! programmed. Only creates are timed, not the deletes that make room again. Beside criterion's rates it prints
//! how long a create takes its caller.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mimalloc::MiMalloc;
use parking_lot::Mutex;
use snic_bitstream::catalogue;
use snic_card_sim::{SharedSimCard, SimCard};
use snic_controller::{Controller, ControllerSettings};
use snic_domain::{Bandwidth, DagName, DagSpec, Digest, NtTypeId};
use snic_front::identity::TrustDomain;
use snic_front::uploads::UploadCheck;
use snic_integration::TestClient;
use snic_ports::store::{Batch, Done, Store, StoreError};
use snic_server::ServerSettings;
use snic_server::shell::{self, CardSlot};
use snic_store_sled::{SledOptions, SledStore};
use tokio::runtime::Runtime;

/// As in the daemon.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Clients at once.
const CLIENTS: [u64; 3] = [1, 8, 64];
/// DAGs between two clean-ups: a card has 1,024 rows for them.
const CHUNK: u64 = 512;
/// Duration of each measurement.
const SAMPLE: Duration = Duration::from_secs(5);

/// A store that remembers the last batches, so that the bare store can be given the same.
struct Recorder {
    store: SledStore,
    batches: Mutex<Vec<Batch>>,
}

impl Store for Recorder {
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.store.scan(prefix)
    }
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.get(key)
    }
    fn apply_all(&self, batches: &[Batch]) -> Result<(), StoreError> {
        self.store.apply_all(batches)
    }
    fn submit(&self, batches: Vec<Batch>, done: Done) {
        let mut kept = self.batches.lock();
        if kept.len() < 4_096 {
            kept.extend(batches.iter().cloned());
        }
        drop(kept);
        self.store.submit(batches, done);
    }
    fn put_blob(&self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        self.store.put_blob(digest, bytes)
    }
    fn get_blob(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        self.store.get_blob(digest)
    }
    fn delete_blob(&self, digest: Digest) -> Result<(), StoreError> {
        self.store.delete_blob(digest)
    }
    fn list_blobs(&self) -> Result<Vec<Digest>, StoreError> {
        self.store.list_blobs()
    }
    fn snapshot(&self, to: &Path) -> Result<(), StoreError> {
        self.store.snapshot(to)
    }
    fn restore(&self, from: &Path) -> Result<(), StoreError> {
        self.store.restore(from)
    }
}

fn open(folder: &Path) -> SledStore {
    SledStore::open(folder, SledOptions::default()).expect("a new store").store
}

/// A daemon's insides in this process, served on a unix socket.
struct Fixture {
    runtime: Runtime,
    clients: Vec<TestClient>,
    recorder: Arc<Recorder>,
    next: AtomicU64,
    /// Time of each create for its caller.
    latencies: Mutex<Vec<Duration>>,
    _running: shell::ControlPlaneThreads,
    _folder: tempfile::TempDir,
}

fn spec() -> DagSpec {
    let nts = ["firewall", "aes"].map(|nt| NtTypeId::new(nt).expect("a label"));
    DagSpec::chain(&nts, Bandwidth::from_mbps(1))
}

fn name(number: u64) -> DagName {
    DagName {
        tenant: "bench".parse().expect("a label"),
        dag: format!("d{number}").parse().expect("a label"),
    }
}

fn fixture(folder: tempfile::TempDir) -> Fixture {
    let runtime = Runtime::new().expect("tokio");
    let recorder = Arc::new(Recorder { store: open(folder.path()), batches: Mutex::default() });
    let catalogue = catalogue::builtin().expect("the built-in catalogue");
    let profile = catalogue.card(&"sim-16".parse().expect("a label")).expect("there").clone();
    let card = SharedSimCard::new(SimCard::new(profile.clone(), 1).expect("a valid profile"));
    let open = Box::new(move || Ok((Box::new(card.clone()) as _, profile.clone())));
    let slot = CardSlot::of_registers("card0".parse().expect("a label"), open);
    let controller =
        Controller::recover(ControllerSettings::default(), [], 1, snic_front::wall_clock());
    let controller = controller.expect("an empty store");
    let (plane, running) = shell::start(controller, recorder.clone(), vec![slot]).expect("threads");
    let socket = folder.path().join("socket");
    let domain = TrustDomain::new("snic.local").expect("a domain");
    let mut settings = ServerSettings::new(
        domain,
        UploadCheck::new(|_| Ok(snic_front::uploads::UploadFindings::default())),
    );
    settings.front.unix = Some(socket.clone());
    settings.front.unix_peers = snic_integration::everybody();
    let clients = runtime.block_on(async {
        tokio::spawn(snic_server::serve(plane, settings, std::future::pending()));
        let mut clients = Vec::new();
        while (clients.len() as u64) < CLIENTS[CLIENTS.len() - 1] {
            match TestClient::connect(&socket, "operator/bench").await {
                Some(client) => clients.push(client),
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        clients[0].create_tenant("bench").await.expect("a tenant");
        clients[0].register(&catalogue).await;
        clients
    });
    let next = AtomicU64::new(0);
    Fixture {
        runtime,
        clients,
        recorder,
        next,
        latencies: Mutex::default(),
        _running: running,
        _folder: folder,
    }
}

impl Fixture {
    /// Creates this many DAGs with this many clients; gives how long it took.
    fn creates(&self, clients: u64, count: u64) -> Duration {
        let mut took = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            let chunk = left.min(CHUNK);
            let first = self.next.fetch_add(chunk, Ordering::Relaxed);
            took += self.runtime.block_on(self.each(clients, first, chunk, true));
            self.runtime.block_on(self.each(clients.max(8), first, chunk, false));
            left -= chunk;
        }
        took
    }

    async fn each(&self, clients: u64, first: u64, count: u64, create: bool) -> Duration {
        let began = Instant::now();
        let tasks: Vec<_> = (0..clients)
            .map(|worker| {
                let client = self.clients[worker as usize].clone();
                tokio::spawn(async move {
                    let spec = spec();
                    let mut latencies = Vec::new();
                    for number in (first..first + count).filter(|n| n % clients == worker) {
                        let name = name(number);
                        if create {
                            let begun = Instant::now();
                            client.create_dag(&name, &spec).await.expect("there is room");
                            latencies.push(begun.elapsed());
                        } else {
                            client.delete_dag(&name).await.expect("it is there");
                        }
                    }
                    latencies
                })
            })
            .collect();
        let mut latencies = Vec::new();
        for task in tasks {
            latencies.extend(task.await.expect("no panic"));
        }
        let took = began.elapsed();
        self.latencies.lock().extend(latencies);
        took
    }

    /// Prints how long creates took since the last time, and forgets it.
    fn print_latencies(&self, clients: u64) {
        let mut latencies = std::mem::take(&mut *self.latencies.lock());
        latencies.sort_unstable();
        let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
        if !latencies.is_empty() {
            let (median, p99, count) = (at(50), at(99), latencies.len());
            println!("{clients} clients: median {median:.2?}, p99 {p99:.2?} of {count} creates");
        }
    }
}

/// The same durable writes on a bare store.
fn bare(store: &Arc<SledStore>, batches: &Arc<Vec<Batch>>, clients: u64, count: u64) -> Duration {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for worker in 0..clients {
            let (store, batches) = (Arc::clone(store), Arc::clone(batches));
            scope.spawn(move || {
                for number in (0..count).filter(|n| n % clients == worker) {
                    let batch = batches[number as usize % batches.len()].clone();
                    store.apply(batch).expect("the bare store takes writes");
                }
            });
        }
    });
    began.elapsed()
}

/// `etcdserverpb.PutRequest`, as far as it is needed.
#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `etcdserverpb.PutResponse`, of which nothing is needed.
#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

/// An etcd with a separate folder.
struct Etcd {
    child: Child,
    endpoint: String,
    _folder: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

fn etcd(folder: tempfile::TempDir) -> Option<Etcd> {
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let peer = format!("http://127.0.0.1:{}", free_port());
    let child = Command::new("etcd")
        .arg("--data-dir")
        .arg(folder.path())
        .args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    Some(Etcd { child, endpoint, _folder: folder })
}

async fn etcd_channels(endpoint: &str, count: u64) -> Vec<tonic::transport::Channel> {
    let mut channels = Vec::new();
    let until = Instant::now() + Duration::from_secs(30);
    while (channels.len() as u64) < count {
        let endpoint = tonic::transport::Endpoint::from_shared(endpoint.to_owned());
        match endpoint.expect("an address").connect().await {
            Ok(channel) => channels.push(channel),
            Err(error) => {
                assert!(Instant::now() < until, "etcd does not answer: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    channels
}

async fn puts(
    channels: &[tonic::transport::Channel],
    clients: u64,
    count: u64,
    bytes: usize,
) -> Duration {
    let began = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|worker| {
            let channel = channels[worker as usize].clone();
            tokio::spawn(async move {
                let mut grpc = tonic::client::Grpc::new(channel);
                for number in (0..count).filter(|n| n % clients == worker) {
                    let key = format!("dags/bench/d{number}").into_bytes();
                    let put = PutRequest { key, value: vec![7; bytes] };
                    grpc.ready().await.expect("etcd answers");
                    let path = "/etcdserverpb.KV/Put".parse().expect("a path");
                    let codec = tonic_prost::ProstCodec::<PutRequest, PutResponse>::default();
                    grpc.unary(tonic::Request::new(put), path, codec).await.expect("a put");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    began.elapsed()
}

fn folder() -> tempfile::TempDir {
    // Beside the build: a temporary folder in memory would make every write durable for free.
    let base = std::env::current_exe().expect("the benchmark has a path");
    let base = base.parent().expect("it is in a folder").to_owned();
    tempfile::Builder::new().prefix("bench-store").tempdir_in(base).expect("a folder")
}

fn creates(criterion: &mut Criterion) {
    let fixture = fixture(folder());
    // What creates write, for the bare store: without those of the catalogue.
    fixture.recorder.batches.lock().clear();
    fixture.creates(8, 256);
    fixture.latencies.lock().clear();
    let batches: Vec<Batch> = std::mem::take(&mut *fixture.recorder.batches.lock());
    let is_create = |batch: &&Batch| {
        batch.writes.iter().any(|w| w.key.starts_with("uids/") && w.value.is_some())
    };
    let batches: Arc<Vec<Batch>> = Arc::new(batches.iter().filter(is_create).cloned().collect());
    assert!(!batches.is_empty(), "creates write UIDs");
    let bytes = |batch: &Batch| -> usize {
        batch.writes.iter().map(|w| w.key.len() + w.value.as_ref().map_or(0, Vec::len)).sum()
    };
    let mean = batches.iter().map(bytes).sum::<usize>() / batches.len();
    println!("a create writes {mean} bytes in one batch");
    let bare_folder = folder();
    let store = Arc::new(open(bare_folder.path()));
    let etcd = etcd(folder());
    let channels = etcd.as_ref().map(|etcd| {
        fixture.runtime.block_on(etcd_channels(&etcd.endpoint, CLIENTS[CLIENTS.len() - 1]))
    });
    let mut group = criterion.benchmark_group("durable creates");
    group.sample_size(10).measurement_time(SAMPLE).throughput(Throughput::Elements(1));
    for clients in CLIENTS {
        group.bench_function(BenchmarkId::new("gRPC", clients), |b| {
            b.iter_custom(|count| fixture.creates(clients, count));
        });
        fixture.print_latencies(clients);
        group.bench_function(BenchmarkId::new("bare store", clients), |b| {
            b.iter_custom(|count| bare(&store, &batches, clients, count));
        });
        if let Some(channels) = &channels {
            group.bench_function(BenchmarkId::new("etcd puts", clients), |b| {
                let runtime = &fixture.runtime;
                b.iter_custom(|n| runtime.block_on(puts(channels, clients, n, mean)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, creates);
criterion_main!(benches);
