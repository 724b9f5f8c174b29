//! Clients that use the public API at once, and what each of them saw.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_api::replies::ItemOf as _;
use snic_api::v1;
use snic_domain::{Bandwidth, DagSpec};
use snic_integration::TestClient;
use tonic::transport::ClientTlsConfig;
use tonic::{Code, Status};

use super::history::{Asked, Entry, History, Told};
use super::rig::name;

/// DAGs that all clients share.
const DAGS: usize = 6;
/// Most of them that the tenant's quota allows.
pub const DAGS_MAX: u32 = 5;
/// Time that a client waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(8);

/// State that all clients share.
pub struct Workload {
    /// Addresses of the replicas.
    ways: Vec<(String, ClientTlsConfig)>,
    began: Instant,
    /// Each write has a value of its own.
    last_value: AtomicU64,
    is_over: AtomicBool,
}

/// A value as the bandwidth of a DAG, in kbit/s above 1 Mbit/s.
fn bandwidth(value: u64) -> u64 {
    1_000_000 + 1_000 * value
}

fn value(dag: &v1::Dag) -> u64 {
    (dag.bandwidth_bps - 1_000_000) / 1_000
}

/// Meaning of an error for a request; `None`: it was refused, and nothing was done.
fn told(status: &Status) -> Option<Told> {
    match status.code() {
        Code::AlreadyExists => Some(Told::Exists),
        Code::NotFound => Some(Told::Absent),
        Code::Aborted => Some(Told::Changed),
        Code::ResourceExhausted | Code::FailedPrecondition => None,
        Code::Unavailable if status.message().contains("nothing was done") => None,
        Code::InvalidArgument | Code::PermissionDenied | Code::Unimplemented => {
            panic!("{status:?}")
        }
        _ => Some(Told::Unknown),
    }
}

/// When something was called; when it returned and what, if it did.
type Outcome<T> = (u64, Option<(u64, Result<T, Status>)>);

/// A client, with a connection to each replica.
struct Client {
    load: Arc<Workload>,
    number: usize,
    rng: ChaCha8Rng,
    connections: Vec<TestClient>,
    seen: History,
}

impl Workload {
    pub fn new(ways: Vec<(String, ClientTlsConfig)>) -> Arc<Self> {
        let (last_value, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { ways, began: Instant::now(), last_value, is_over })
    }

    /// Each client ends with its next answer.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// One client, until the end; what it saw.
    pub async fn client(self: Arc<Self>, number: usize, seed: u64) -> History {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let mut client =
            Client { load: self, number, rng, connections: Vec::new(), seen: History::default() };
        client.connect();
        while !client.load.is_over.load(Ordering::Relaxed) {
            let dag = format!("d{}", client.rng.random_range(0..DAGS));
            match client.rng.random_range(0..100) {
                0..30 => drop(client.read(&dag).await),
                30..40 => client.list().await,
                40..65 => client.create(&dag).await,
                65..85 => client.update(&dag).await,
                _ => client.delete(&dag).await,
            }
            let pause = Duration::from_millis(client.rng.random_range(1..60));
            tokio::time::sleep(pause).await;
        }
        client.seen
    }

    /// Reads all DAGs once, when nothing is wrong any more: those that are there.
    pub async fn look(self: Arc<Self>) -> (History, Vec<String>) {
        let (rng, seen) = (ChaCha8Rng::seed_from_u64(0), History::default());
        let mut client = Client { load: self, number: 99, rng, connections: Vec::new(), seen };
        client.connect();
        let mut there = Vec::new();
        for number in 0..DAGS {
            let dag = format!("d{number}");
            let answered = (0..10).map(|_| ());
            for () in answered {
                match client.read(&dag).await {
                    Some(Some(_)) => {
                        there.push(dag);
                        break;
                    }
                    Some(None) => break,
                    None => tokio::time::sleep(Duration::from_millis(500)).await,
                }
            }
        }
        (client.seen, there)
    }
}

impl Client {
    fn connect(&mut self) {
        let ways = &self.load.ways;
        self.connections =
            ways.iter().map(|(at, tls)| TestClient::by_tls(at, tls.clone())).collect();
    }

    fn now(&self) -> u64 {
        u64::try_from(self.load.began.elapsed().as_nanos()).unwrap()
    }

    /// One request at any replica; when it was called, and when it returned. `None` where no answer came in time: the
    /// connection may be dead.
    async fn call<T, F: Future<Output = Result<T, Status>> + Send>(
        &mut self,
        request: impl FnOnce(TestClient) -> F,
    ) -> Outcome<T> {
        let at = self.rng.random_range(0..self.connections.len());
        let called = self.now();
        let answer = request(self.connections[at].clone());
        match tokio::time::timeout(ANSWER_MAX, answer).await {
            Ok(answer) => (called, Some((self.now(), answer))),
            Err(_) => {
                self.connect();
                (called, None)
            }
        }
    }

    fn saw(&mut self, dag: &str, asked: Asked, told: Told, (called, returned): (u64, u64)) {
        let returned = (told != Told::Unknown).then_some(returned);
        self.seen.add(dag, Entry { client: self.number, asked, told, called, returned });
    }

    fn wrote<T>(&mut self, dag: &str, asked: Asked, (called, answer): Outcome<T>) {
        let (returned, told) = match answer {
            Some((at, Ok(_))) => (at, Some(Told::Done)),
            Some((at, Err(status))) => (at, told(&status)),
            None => (0, Some(Told::Unknown)),
        };
        if let Some(told) = told {
            self.saw(dag, asked, told, (called, returned));
        }
    }

    fn next_value(&self) -> u64 {
        self.load.last_value.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The DAG, or that there is none; `None` without an answer.
    async fn read(&mut self, dag: &str) -> Option<Option<v1::Dag>> {
        let request = v1::GetDagRequest { name: name(dag).to_string() };
        let get = |client: TestClient| async move { client.dags().get_dag(request).await.item() };
        let (called, answer) = self.call(get).await;
        let (returned, answer) = answer?;
        let found = match answer {
            Ok(found) => Some(found),
            Err(status) if status.code() == Code::NotFound => None,
            Err(_) => return None,
        };
        let told = found.as_ref().map_or(Told::Absent, |dag| Told::Found(value(dag)));
        self.saw(dag, Asked::Read, told, (called, returned));
        Some(found)
    }

    /// A list is read at one moment: each DAG was read then, and there are no more than the quota allows.
    async fn list(&mut self) {
        let request = v1::ListDagsRequest {
            parent: "tenants/acme".into(),
            page_size: 100,
            ..Default::default()
        };
        let list = |client: TestClient| async move { client.dags().list_dags(request).await };
        let (called, Some((returned, Ok(listed)))) = self.call(list).await else { return };
        let listed = listed.into_inner().dags;
        assert!(listed.len() <= DAGS_MAX as usize, "more than the quota: {listed:#?}");
        for number in 0..DAGS {
            let dag = format!("d{number}");
            let found = listed.iter().find(|of| of.name == name(&dag).to_string());
            let told = found.map_or(Told::Absent, |of| Told::Found(value(of)));
            self.saw(&dag, Asked::Read, told, (called, returned));
        }
    }

    async fn create(&mut self, dag: &str) {
        let value = self.next_value();
        let nts = ["nat".parse().unwrap(), "firewall".parse().unwrap()];
        let nts = &nts[..self.rng.random_range(1..=2)];
        let spec = DagSpec::chain(nts, Bandwidth::from_bps(bandwidth(value)));
        let name = name(dag);
        let create = |client: TestClient| async move { client.create_dag(&name, &spec).await };
        let answer = self.call(create).await;
        self.wrote(dag, Asked::Create(value), answer);
    }

    /// Over what it has read, or over anything.
    async fn update(&mut self, dag: &str) {
        let read = self.read(dag).await.flatten().filter(|_| self.rng.random_bool(0.7));
        let (to, expected) = (self.next_value(), read.as_ref().map(value));
        let wanted = v1::Dag {
            name: name(dag).to_string(),
            bandwidth_bps: bandwidth(to),
            etag: read.map(|dag| dag.etag).unwrap_or_default(),
            ..Default::default()
        };
        let request = v1::UpdateDagRequest {
            dag: Some(wanted),
            update_mask: Some(prost_types::FieldMask { paths: vec!["bandwidth_bps".to_owned()] }),
            ..Default::default()
        };
        let update = |client: TestClient| async move { client.dags().update_dag(request).await };
        let answer = self.call(update).await;
        self.wrote(dag, Asked::Update { expected, to }, answer);
    }

    async fn delete(&mut self, dag: &str) {
        let read = self.read(dag).await.flatten().filter(|_| self.rng.random_bool(0.5));
        let expected = read.as_ref().map(value);
        let request = v1::DeleteDagRequest {
            name: name(dag).to_string(),
            etag: read.map(|dag| dag.etag).unwrap_or_default(),
            ..Default::default()
        };
        let delete = |client: TestClient| async move { client.dags().delete_dag(request).await };
        let answer = self.call(delete).await;
        self.wrote(dag, Asked::Delete { expected }, answer);
    }
}
