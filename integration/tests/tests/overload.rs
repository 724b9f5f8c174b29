//! Three tenants overload the daemon in every way at once; a fourth one, within its limits, must
//! not notice.
//!
//! The daemon and each of the three are separate processes. The three run at a low priority: on the
//! network they would be other machines, with processors of their own.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use snic_api::v1;
use snic_domain::{Bandwidth, DagName, DagSpec, NtTypeId};
use snic_integration::{Home, TestClient};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

/// Set for a process that floods: its tenant and the daemon's socket.
const FLOODER: &str = "SNIC_TEST_FLOODER";
/// Of each flooder at once.
const CHECKS: usize = 150;
const CREATES: usize = 60;
const HELD_UPLOADS: usize = 6;
const ENDLESS: usize = 60;
/// Reads that are measured.
const READS: usize = 1_000;
/// Far longer than it takes: this test exists for the number that it prints.
const P99_BOUND: Duration = Duration::from_secs(2);

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

/// Runs until it is killed.
async fn flood(tenant: &str, socket: &std::path::Path) {
    let identity = format!("tenant/{tenant}");
    let mut tasks = JoinSet::new();
    let client = TestClient::connect(socket, &identity).await.expect("it serves");
    for number in 0..CHECKS + CREATES {
        let client = client.clone();
        let name = format!("d{number}");
        let (validate_only, tenant) = (number < CHECKS, tenant.to_owned());
        tasks.spawn(async move {
            let name = DagName {
                tenant: tenant.parse().expect("a label"),
                dag: name.parse().expect("one"),
            };
            loop {
                let dag = v1::Dag {
                    nodes: snic_api::convert::dag::nodes_to_wire(&spec(), |_| None),
                    edges: snic_api::convert::dag::edges_to_wire(&spec()),
                    bandwidth_bps: 1_000_000,
                    ..Default::default()
                };
                let request = v1::CreateDagRequest {
                    parent: format!("tenants/{tenant}"),
                    dag_id: name.dag.to_string(),
                    dag: Some(dag),
                    validate_only,
                    ..Default::default()
                };
                if let Err(status) = client.dags().create_dag(request).await {
                    backs_off(&status).await;
                }
                if !validate_only {
                    let delete =
                        v1::DeleteDagRequest { name: name.to_string(), ..Default::default() };
                    if let Err(status) = client.dags().delete_dag(delete).await {
                        backs_off(&status).await;
                    }
                }
            }
        });
    }
    let client = TestClient::connect(socket, &identity).await.expect("it serves");
    for _ in 0..HELD_UPLOADS {
        let client = client.clone();
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
        let client = client.clone();
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
    fn start(tenant: &str, home: &Home) -> Self {
        let own = std::env::current_exe().expect("the running test has a path");
        let child = Command::new("nice")
            .arg("-n10")
            .arg(own)
            .args(["--exact", "a_tenant_within_its_limits_does_not_notice_three_that_flood"])
            .env(FLOODER, format!("{tenant} {}", home.socket().display()))
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

/// The latencies of reads, ascending.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_within_its_limits_does_not_notice_three_that_flood() {
    if let Ok(text) = std::env::var(FLOODER) {
        let (tenant, socket) = text.split_once(' ').expect("two words");
        return flood(tenant, socket.as_ref()).await;
    }
    let home = Home::new();
    let daemon = home.start().await;
    let operator = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    let catalogue = snic_bitstream::catalogue::builtin().expect("the built-in catalogue");
    operator.register(&catalogue).await;
    let tenants = ["one", "two", "three"];
    for tenant in tenants.into_iter().chain(["victim"]) {
        operator.create_tenant(tenant).await.expect("a tenant");
    }
    let victim = TestClient::connect(&home.socket(), "tenant/victim").await.expect("it serves");
    let hook = TestClient::connect(&home.socket(), "orchestrator/hook").await.expect("it serves");
    let alone = reads(&victim).await;
    let flooders = tenants.map(|tenant| Flooder::start(tenant, &home));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let flooded = reads(&victim).await;
    hook.machines().heartbeat(v1::HeartbeatRequest::default()).await.expect("heartbeats pass");
    operator.create_tenant("another").await.expect("operators work");
    drop(flooders);
    let at = |all: &[Duration], percent: usize| all[(all.len() - 1) * percent / 100];
    for (what, all) in [("alone", &alone), ("flooded", &flooded)] {
        let (p50, p99) = (at(all, 50), at(all, 99));
        println!("{what}: p50 {p50:?}, p99 {p99:?}, max {:?}", at(all, 100));
    }
    assert!(at(&flooded, 99) < P99_BOUND, "p99 {:?}", at(&flooded, 99));
    drop(daemon);
}
