//! Latency of a tenant's reads while another one has the daemon plan the most expensive DAGs: 64 network
//! tasks in random order, with the card's rows nearly used up by small DAGs. Dry runs from four connections.
//!
//! The daemon is a separate process with a simulated card; the callers that flood run at idle priority,
//! as if they had processors of their own.
//!
//! `cargo build --release -p snicd && cargo bench -p snic-integration --bench planning`;
//! `SNIC_CLIENTS=4,100` sets the numbers of callers that flood, `SNIC_DAGS` that of the small DAGs.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use snic_api::error::reason_of;
use snic_api::v1;
use snic_domain::{Bandwidth, DagName, DagSpec, NtTypeId};
use snic_integration::{Home, TestClient};

/// Set for the process that floods: the daemon's socket and how many callers.
const FLOODER: &str = "SNIC_BENCH_FLOODER";
/// Connections that the callers share.
const CONNECTIONS: usize = 4;
/// Reads that are measured.
const READS: usize = 1_000;
/// Network tasks of a DAG that is expensive to plan: as many as a DAG may have.
const TASKS: usize = 64;
/// The types that the catalogue has chains for.
const TYPES: [&str; 6] = ["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"];

fn chain(tasks: &[&str]) -> DagSpec {
    let tasks: Vec<_> = tasks.iter().map(|nt| NtTypeId::new(nt).expect("a label")).collect();
    DagSpec::chain(&tasks, Bandwidth::from_mbps(1))
}

/// A chain of as many tasks as a DAG may have, another one for each number.
fn expensive(mut number: u64) -> DagSpec {
    let tasks: Vec<&str> = (0..TASKS)
        .map(|_| {
            // Knuth's MMIX generator: any order will do.
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            TYPES[(number >> 33) as usize % TYPES.len()]
        })
        .collect();
    chain(&tasks)
}

fn checked(number: u64) -> v1::CreateDagRequest {
    let spec = expensive(number);
    v1::CreateDagRequest {
        parent: "tenants/acme".to_owned(),
        dag_id: "web".to_owned(),
        dag: Some(v1::Dag {
            nodes: snic_api::convert::dag::nodes_to_wire(&spec, |_| None),
            edges: snic_api::convert::dag::edges_to_wire(&spec),
            bandwidth_bps: 1_000_000,
            ..Default::default()
        }),
        validate_only: true,
        ..Default::default()
    }
}

/// Has DAGs planned until it is killed; prints the number of answers every 100 ms.
async fn flood(socket: &Path, callers: usize) {
    let done = Arc::new(AtomicU64::new(0));
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(TestClient::connect(socket, "tenant/acme").await.expect("it serves"));
    }
    for caller in 0..callers {
        let (client, done) = (clients[caller % CONNECTIONS].clone(), Arc::clone(&done));
        tokio::spawn(async move {
            for number in (caller as u64..).step_by(callers) {
                match client.dags().create_dag(checked(number)).await {
                    // Over its share.
                    Err(status) if reason_of(&status) == Some(v1::ErrorReason::Overloaded) => {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    _ => drop(done.fetch_add(1, Ordering::Relaxed)),
                }
            }
        });
    }
    loop {
        println!("{}", done.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The process that floods; killed when dropped.
struct Flooder(Child);

impl Flooder {
    fn start(home: &Home, callers: usize) -> Self {
        let own = std::env::current_exe().expect("this program");
        let child = Command::new("chrt")
            .args(["--idle", "0"])
            .arg(own)
            .env(FLOODER, format!("{callers} {}", home.socket().display()))
            .stdout(Stdio::piped())
            .spawn();
        Self(child.expect("chrt is there"))
    }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The latencies of a tenant's reads, ascending.
async fn reads(client: &TestClient) -> Vec<Duration> {
    let mut all = Vec::new();
    for _ in 0..READS {
        let begun = Instant::now();
        let request = v1::GetTenantRequest { name: "tenants/victim".into() };
        client.tenants().get_tenant(request).await.expect("it is within its share");
        all.push(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    all.sort_unstable();
    all
}

fn print(what: &str, all: &[Duration], rate: f64) {
    let at = |percent: usize| all[(all.len() - 1) * percent / 100];
    let (p50, p99, max) = (at(50), at(99), at(100));
    println!("{what:<12} p50 {p50:>9.2?}  p99 {p99:>9.2?}  max {max:>9.2?}  {rate:>7.0} answers/s");
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("tokio");
    if let Ok(text) = std::env::var(FLOODER) {
        let (callers, socket) = text.split_once(' ').expect("two words");
        return runtime.block_on(flood(socket.as_ref(), callers.parse().expect("a number")));
    }
    let home = Home::new();
    let small: u64 = std::env::var("SNIC_DAGS").map_or(900, |text| text.parse().expect("a number"));
    let (daemon, victim) = runtime.block_on(async {
        let daemon = home.start().await;
        let operator =
            TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
        operator.register(&snic_bitstream::catalogue::builtin().expect("valid")).await;
        for tenant in ["acme", "small", "victim"] {
            operator.create_tenant(tenant).await.expect("a tenant");
        }
        let mut placed = 0;
        for number in 0..small {
            let name = DagName {
                tenant: "small".parse().expect("a label"),
                dag: format!("d{number}").parse().expect("a label"),
            };
            let tasks = if number % 2 == 0 { ["aes", "firewall"] } else { ["firewall", "aes"] };
            placed += u64::from(operator.create_dag(&name, &chain(&tasks)).await.is_ok());
        }
        let answer = operator.dags().create_dag(checked(1)).await;
        println!(
            "{placed} small DAGs; a DAG of {TASKS} tasks: {:?}",
            answer.map_err(|s| s.message().to_owned()).err()
        );
        (daemon, TestClient::connect(&home.socket(), "tenant/victim").await.expect("it serves"))
    });
    print("alone", &runtime.block_on(reads(&victim)), 0.0);
    let callers = std::env::var("SNIC_CLIENTS").unwrap_or_else(|_| "4,100".to_owned());
    for callers in callers.split(',') {
        let mut flooder = Flooder::start(&home, callers.trim().parse().expect("a number"));
        let lines = BufReader::new(flooder.0.stdout.take().expect("it is piped")).lines();
        let last = Arc::new(AtomicU64::new(0));
        let said = Arc::clone(&last);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                said.store(line.parse().unwrap_or(0), Ordering::Relaxed);
            }
        });
        std::thread::sleep(Duration::from_secs(2));
        let (begun, before) = (Instant::now(), last.load(Ordering::Relaxed));
        let found = runtime.block_on(reads(&victim));
        let rate = (last.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
        print(&format!("{callers} callers"), &found, rate);
    }
    drop(daemon);
}
