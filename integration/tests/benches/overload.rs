//! Three tenants overload the daemon in every way at once; a fourth one, within its limits, must
//! not notice: the latency of its reads, alone and beside the three.
//!
//! The daemon and each of the three are separate processes. The three run at idle priority: on the
//! network they would be other machines, with processors of their own. The p99 beside them is held against the goal of
//! 20 ms, or against the p99 without them of the same minute, where the machine is slow.
//!
//! `SNIC_READS=1000 cargo bench -p snic-integration --bench overload` measures as many reads. The programs beside it are those
//! of the same profile: `cargo build --release -p snicd` before.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use snic_api::v1;
use snic_domain::{Bandwidth, DagName, DagSpec, NtTypeId};
use snic_integration::commands::{block, folder, pki};
use snic_integration::{Home, TestClient};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};
use tonic::{Code, Status};

/// Set for a process that floods: its tenant, over how many connections, and where the daemon listens.
const FLOODER: &str = "SNIC_TEST_FLOODER";
/// Over how many connections each flooder calls: few carry much each, many all have something to read.
const CONNECTIONS: [usize; 2] = [1, 100];
/// Number of checks of each flooder at once.
const CHECKS: usize = 150;
const CREATES: usize = 60;
const HELD_UPLOADS: usize = 6;
const ENDLESS: usize = 60;
/// Connections of each flooder that never begin their TLS handshake.
const IDLE: usize = 340;
const IDLE_FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Reads that are measured each time, where nobody asks for others (`SNIC_READS`).
const READS: usize = 300;
/// The goal for the p99 of reads beside the three.
const P99_GOAL: Duration = Duration::from_millis(20);
/// Multiple of the p99 alone, in the same minute, which is allowed on a machine that is too slow for the goal.
const P99_TIMES_ALONE: u32 = 25;

fn spec() -> DagSpec {
    let nts = ["firewall", "aes"].map(|nt| NtTypeId::new(nt).expect("a label"));
    DagSpec::chain(&nts, Bandwidth::from_mbps(1))
}

/// A client that gets an error for exceeding its share tries again a little later.
async fn backs_off(status: &Status) {
    if status.code() == Code::ResourceExhausted {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Where the daemon listens, and the files of its callers.
#[derive(Clone, Copy)]
struct Daemon<'a> {
    port: u16,
    pki: &'a str,
}

impl Daemon<'_> {
    /// A connection of its own, with the certificate of this tenant.
    fn client(self, tenant: &str) -> TestClient {
        let read = |file: &str| {
            std::fs::read_to_string(format!("{}/{file}", self.pki)).expect("snicd pki wrote it")
        };
        let own = ["pem", "key"].map(|kind| read(&format!("tenant-{tenant}.{kind}")));
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(read("ca.pem")))
            .identity(Identity::from_pem(&own[0], &own[1]));
        TestClient::by_tls(&format!("https://localhost:{}", self.port), tls)
    }
}

/// Opens connections and waits until they are closed, for ever: from an address of its own, for those of one share their
/// places before they say who they are.
async fn idle(port: u16) {
    loop {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((IDLE_FROM, 0).into()).expect("an address of this machine");
        if let Ok(mut io) = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await {
            // It says nothing; how the server ends that does not matter.
            let _ = io.read(&mut [0; 64]).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Creates a DAG and deletes it, for ever; or only has it checked.
async fn create(client: TestClient, name: DagName, validate_only: bool) {
    loop {
        let dag = v1::Dag {
            nodes: snic_api::convert::dag::nodes_to_wire(&spec(), |_| None),
            edges: snic_api::convert::dag::edges_to_wire(&spec()),
            bandwidth_bps: 1_000_000,
            ..Default::default()
        };
        let request = v1::CreateDagRequest {
            parent: format!("tenants/{}", name.tenant),
            dag_id: name.dag.to_string(),
            dag: Some(dag),
            validate_only,
            ..Default::default()
        };
        if let Err(status) = client.dags().create_dag(request).await {
            backs_off(&status).await;
        }
        if !validate_only {
            let delete = v1::DeleteDagRequest { name: name.to_string(), ..Default::default() };
            if let Err(status) = client.dags().delete_dag(delete).await {
                backs_off(&status).await;
            }
        }
    }
}

/// Runs until it is killed.
async fn flood(tenant: &str, connections: usize, daemon: Daemon<'_>) {
    let mut tasks = JoinSet::new();
    let clients: Vec<_> = (0..connections).map(|_| daemon.client(tenant)).collect();
    let mut clients = clients.iter().cycle().cloned();
    let mut client = || clients.next().expect("at least one connection");
    for _ in 0..IDLE {
        tasks.spawn(idle(daemon.port));
    }
    for number in 0..CHECKS + CREATES {
        let dag = format!("d{number}").parse().expect("a label");
        let name = DagName { tenant: tenant.parse().expect("a label"), dag };
        tasks.spawn(create(client(), name, number < CHECKS));
    }
    for _ in 0..HELD_UPLOADS {
        let client = client();
        tasks.spawn(async move {
            loop {
                let (sender, messages) = tokio::sync::mpsc::channel(1);
                let held =
                    client.bitstreams().upload_bitstream(ReceiverStream::new(messages)).await;
                drop(sender);
                if let Err(status) = held {
                    backs_off(&status).await;
                }
            }
        });
    }
    for _ in 0..ENDLESS {
        let client = client();
        tasks.spawn(async move {
            loop {
                // Its message never comes: an upload has the same headers as every other call.
                let endless = tokio_stream::pending();
                if let Err(status) = client.bitstreams().upload_bitstream(endless).await {
                    backs_off(&status).await;
                }
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

/// A flooder in a separate process; killed when dropped.
struct Flooder(Child);

impl Flooder {
    fn start(tenant: &str, connections: usize, daemon: Daemon<'_>) -> Self {
        let own = std::env::current_exe().expect("this program has a path");
        let child = Command::new("chrt")
            .args(["--idle", "0"])
            .arg(own)
            .env(FLOODER, format!("{tenant} {connections} {} {}", daemon.port, daemon.pki))
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        Self(child)
    }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has the daemon listen for callers with certificates; returns the port.
fn with_tls(home: &Home) -> u16 {
    pki(home, "init").expect("a new authority");
    let tls = block(&pki(home, "issue server").expect("a certificate"), "settings of the daemon");
    let port = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.local_addr().expect("an address").port()
    };
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    let text = text.replace("[listen]", &format!("[listen]\ntcp = \"127.0.0.1:{port}\""));
    std::fs::write(home.settings(), format!("{text}\n{tls}")).expect("settings");
    port
}

/// The latencies of reads, ascending.
async fn reads(client: &TestClient) -> Vec<Duration> {
    let mut all = Vec::new();
    let asked = std::env::var("SNIC_READS").ok().map(|text| text.parse().expect("a number"));
    for _ in 0..asked.unwrap_or(READS) {
        let begun = Instant::now();
        let request = v1::GetTenantRequest { name: "tenants/victim".into() };
        client.tenants().get_tenant(request).await.expect("it is within its share");
        all.push(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    all.sort_unstable();
    all
}

async fn measure() {
    if let Ok(text) = std::env::var(FLOODER) {
        let [tenant, connections, port, pki]: [_; 4] =
            text.splitn(4, ' ').collect::<Vec<_>>().try_into().expect("four words");
        let number = |text: &str| text.parse::<u16>().expect("a number");
        let daemon = Daemon { port: number(port), pki };
        return flood(tenant, usize::from(number(connections)), daemon).await;
    }
    let home = Home::new();
    let (port, folder) = (with_tls(&home), folder(&home));
    let reached = Daemon { port, pki: &folder };
    let daemon = home.start().await;
    let operator = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    let catalogue = snic_bitstream::catalogue::builtin().expect("the built-in catalogue");
    operator.register(&catalogue).await;
    let tenants = ["one", "two", "three"];
    for tenant in tenants.into_iter().chain(["victim"]) {
        operator.create_tenant(tenant).await.expect("a tenant");
        pki(&home, &format!("issue tenant/{tenant}")).expect("a certificate");
    }
    let victim = reached.client("victim");
    let hook = TestClient::connect(&home.socket(), "orchestrator/hook").await.expect("it serves");
    let at = |all: &[Duration], percent: usize| all[(all.len() - 1) * percent / 100];
    let print = |what: &str, all: &[Duration]| {
        let (p50, p99) = (at(all, 50), at(all, 99));
        println!("{what}: p50 {p50:?}, p99 {p99:?}, max {:?}", at(all, 100));
    };
    for connections in CONNECTIONS {
        let alone = reads(&victim).await;
        print("alone", &alone);
        let flooders = tenants.map(|tenant| Flooder::start(tenant, connections, reached));
        tokio::time::sleep(Duration::from_secs(3)).await;
        let flooded = reads(&victim).await;
        hook.machines().heartbeat(v1::HeartbeatRequest::default()).await.expect("heartbeats pass");
        let other = format!("another{connections}");
        operator.create_tenant(&other).await.expect("operators work");
        drop(flooders);
        print(&format!("flooded over {connections} connections each"), &flooded);
        let most = P99_GOAL.max(at(&alone, 99) * P99_TIMES_ALONE);
        let p99 = at(&flooded, 99);
        assert!(p99 <= most, "p99 {p99:?}, alone {:?}: at most {most:?}", at(&alone, 99));
    }
    drop(daemon);
}

fn main() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("threads");
    runtime.block_on(measure());
}
