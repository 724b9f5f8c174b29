//! A fleet whose etcd has no room: what it refuses, what goes on, and that it leads on once there is room.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use snic_api::fleet_v1::host::Condition;
use snic_api::v1::condition::Status as Holds;
use tonic::Code;

use crate::checking::write_certificate;
use crate::cluster::{Cluster, eventually, free_ports, in_time, read, runtime};
use crate::host;
use crate::rig::Rig;

const CHAIN: [&str; 2] = ["firewall", "nat"];
const QUOTA: [&str; 2] = ["--quota-backend-bytes", "8388608"];
const UUID: &str = "123e4567-e89b-42d3-a456-426614174077";

/// The body of an HTTP page; empty where nobody answers.
pub(crate) fn page(address: &str, path: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return String::new() };
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Transactions that etcd has refused for its quota, as it counts them.
fn refused_transactions(cluster: &Cluster) -> u64 {
    let metrics = page(cluster.urls()[0].trim_start_matches("http://"), "/metrics");
    let of_txn = |line: &&str| {
        line.starts_with("grpc_server_handled_total")
            && line.contains("\"ResourceExhausted\"")
            && line.contains("\"Txn\"")
    };
    let count = metrics.lines().find(of_txn).and_then(|line| line.rsplit_once(' '));
    count.map_or(0, |(_, count)| count.parse::<f64>().unwrap() as u64)
}

#[test]
fn a_full_etcd_is_told_at_once_and_read_on() {
    let Some(cluster) = Cluster::start_with_options(&QUOTA) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 2).await;
        let leads = rig.leader().await;
        let (root, other) = (
            rig.client(leads, "operator/root").await,
            rig.client(1 - leads, "operator/root").await,
        );
        root.create_tenant("acme", UUID).await.unwrap();
        let links = vec![rig.connect(0, "host/h1").await, rig.connect(1, "host/h1").await];
        let running = tokio::spawn(host::run(links));
        root.provide("h1", &CHAIN).await;
        let in_step =
            async || root.host("h1").await.is_ok_and(|h| h.condition() == Condition::InStep);
        eventually(&in_step).await;
        let etcd = rig.cluster.connect().await;
        let stands = read(&etcd, "/snic/election/v1/").await.unwrap();
        rig.cluster.fill().await;

        let (began, before) = (Instant::now(), refused_transactions(&rig.cluster));
        for _ in 0..20 {
            for client in [&root, &other] {
                let refused = client.create_tenant("globex", "").await.unwrap_err();
                assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
                assert!(refused.message().contains("NOSPACE"), "{refused:?}");
                assert_eq!(client.tenant("acme").await.unwrap().name, "tenants/acme");
                let again = client.create_tenant("acme", UUID).await.unwrap();
                assert_eq!(again.name, "tenants/acme", "it was done before");
                let fleet = client.fleet().await.unwrap();
                let condition = &fleet.conditions[0];
                assert_eq!(
                    (condition.r#type.as_str(), condition.status()),
                    ("StoreWritable", Holds::False)
                );
                assert!(condition.message.contains("compact and defragment"), "{condition:?}");
                assert!(condition.last_transition_time.is_some());
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        eventually(&in_step).await;
        // A slow machine makes fewer.
        let tries = refused_transactions(&rig.cluster) - before;
        let most = 4 + 4 * began.elapsed().as_secs();
        assert!((1..=most).contains(&tries), "{tries} tries, at most {most}");

        rig.cluster.make_room().await;
        eventually(async || root.create_tenant("globex", "").await.is_ok()).await;
        let fleet = other.fleet().await.unwrap();
        assert_eq!(fleet.conditions[0].status(), Holds::True);
        eventually(async || {
            root.host("h1").await.is_ok_and(|host| host.condition() == Condition::InStep)
        })
        .await;
        assert_eq!(read(&etcd, "/snic/election/v1/").await.unwrap(), stands, "nobody was elected");
        let acme = rig.client(1 - leads, "tenant/acme").await;
        acme.create_dag(("acme", "one"), &CHAIN, "").await.unwrap();
        running.abort();
    }));
}

/// A program that ends with its test.
pub(crate) struct Program(pub(crate) Child);

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn settings(folder: &Path, etcd: &str, metrics: u16) -> String {
    let path = |name: &str| folder.join(name).display().to_string();
    write_certificate(folder);
    format!(
        "listen = \"127.0.0.1:0\"\naddress = \"https://localhost:1\"\nimages = {:?}\n\
         [tls]\nca = {:?}\ncertificate = {:?}\nkey = {:?}\n\
         [etcd]\nendpoints = [{etcd:?}]\n[signatures]\nallow_unsigned = true\n\
         [telemetry]\nprometheus = \"127.0.0.1:{metrics}\"\n",
        path("images"),
        path("replica.pem"),
        path("replica.pem"),
        path("replica.key"),
    )
}

/// The program itself at an etcd without room: `--check`, the metric, the log; it stands for election once there is room.
/// SIGHUP and a log that nobody reads do not end it.
#[test]
fn the_program_says_that_etcd_is_full() {
    let Some(cluster) = Cluster::start_with_options(&QUOTA) else { return };
    let folder = tempfile::tempdir().unwrap();
    let port = free_ports(1)[0];
    let file = folder.path().join("fleet.toml");
    fs::write(&file, settings(folder.path(), &cluster.urls()[0], port)).unwrap();
    let program = |check: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snic-fleet"));
        command.arg("--config").arg(&file).stdin(Stdio::null());
        command.args(check.then_some("--check"));
        command
    };
    let check = || {
        let output = program(true).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (is_right, text) = check();
    assert!(is_right, "{text}");
    runtime().block_on(in_time(cluster.fill()));
    let (is_right, text) = check();
    let line = text.lines().find(|line| line.starts_with("WRONG etcd: ")).unwrap_or(&text);
    assert!(!is_right && line.contains("NOSPACE"), "{text}");
    assert!(line.contains("alarm disarm"), "{text}");

    let mut command = program(false);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    // Then nobody reads its log any more.
    child.stderr.take().unwrap().read_exact(&mut first).unwrap();
    let mut program = Program(child);
    let pid = program.0.id().to_string();
    let address = format!("127.0.0.1:{port}");
    runtime().block_on(in_time(async {
        // The page is served a moment before etcd has been asked.
        eventually(async || {
            let text = page(&address, "/metrics");
            let mut lines = text.lines();
            lines.any(|of| {
                of.starts_with("snic_fleet_store_refused_ratio{")
                    && of.contains("reason=\"NOSPACE\"")
                    && of.ends_with(" 1")
            })
        })
        .await;
        let status = Command::new("kill").args(["-s", "HUP", &pid]).status().unwrap();
        assert!(status.success());
        cluster.make_room().await;
        eventually(async || {
            let text = page(&address, "/metrics");
            text.lines().any(|of| of.starts_with("snic_fleet_leader") && of.ends_with(" 1"))
        })
        .await;
        // What the rules ask for, and only a leader has.
        let is_there = |text: &str, of: &str| text.lines().any(|line| line.starts_with(of));
        let names = [
            "snic_fleet_evacuation_held_ratio",
            "snic_fleet_hosts{condition=\"LOST\"",
            "snic_fleet_dags_unplaced{",
            "snic_fleet_queue{kind=\"calls\"",
            "snic_fleet_reservations",
            "snic_fleet_dags_moving",
            "snic_fleet_budgets{level=\"REACHED\"",
            "snic_fleet_etcd_duration_seconds_bucket{",
        ];
        eventually(async || {
            let text = page(&address, "/metrics");
            names.iter().all(|of| is_there(&text, of))
        })
        .await;
    }));
    assert!(program.0.try_wait().unwrap().is_none(), "it runs");
}
