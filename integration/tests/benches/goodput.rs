//! Creates and deletes of one tenant beside the fairness loop: completed operations and epochs a
//! second, as more and more clients call at once. The daemon is a separate process, with a
//! simulated card; clients run at a low priority, as if on other machines.
//!
//! One more DAG has traffic all the time, for the loop of a card at rest has fewer edges. What a row leaves behind is
//! deleted before the next. Held against the row without clients and against the best row, of medians of a few turns: the loop keeps its edges,
//! and ten times the clients do not cost goodput.
//!
//! `SNIC_CLIENTS=1,25,250` sets the numbers of clients, and nothing is held against anything; `SNIC_SECONDS` the time
//! for each. A refused client tries again when the error says; `SNIC_PAUSE_MS=50` has all try again after so long
//! instead, whatever it says.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use snic_api::v1;
use snic_domain::{Bandwidth, DagName, DagSpec, NtTypeId};
use snic_integration::{Home, TestClient, free_address, metric};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Set for the process that calls: the daemon's socket and how many clients.
const CALLER: &str = "SNIC_BENCH_CALLER";
/// Where an error does not say when to try again.
const PAUSE: Duration = Duration::from_millis(50);
/// The DAG that stays, with traffic.
const STAYS: &str = "stays";
/// Clients on one connection, at most.
const PER_CONNECTION: usize = 64;

/// Numbers of clients of each turn, where nobody asks for others: none, few, and ten times as many.
const CLIENTS: &str = "0,25,64,250,640";
/// Turns, of which the medians count: the machine's speed changes meanwhile.
const TURNS: usize = 3;
/// Part of the best row's operations that each row of at least as many clients completes.
const GOODPUT: f64 = 0.8;
/// Part of its edges without clients that the loop keeps beside any number of them.
const EDGES: f64 = 0.95;

fn spec() -> DagSpec {
    let nts = ["firewall", "aes"].map(|nt| NtTypeId::new(nt).expect("a label"));
    DagSpec::chain(&nts, Bandwidth::from_mbps(1))
}

/// Wait of a client that gets an error before it tries again.
fn pause(status: &Status) -> Duration {
    let own = std::env::var("SNIC_PAUSE_MS").ok().and_then(|text| text.parse().ok());
    let asked = || status.get_details_retry_info().and_then(|info| info.retry_delay);
    own.map(Duration::from_millis).or_else(asked).unwrap_or(PAUSE)
}

/// Creates and deletes DAGs until it is killed; prints the number of successful calls every 100 ms.
async fn call(socket: &Path, clients: usize) {
    let done = Arc::new(AtomicU64::new(0));
    let mut connection = None;
    for number in 0..clients {
        if number % PER_CONNECTION == 0 {
            connection = TestClient::connect(socket, "tenant/acme").await;
        }
        let (client, done) = (connection.clone().expect("it serves"), Arc::clone(&done));
        tokio::spawn(async move {
            let dag = format!("d{number}").parse().expect("a label");
            let name = DagName { tenant: "acme".parse().expect("a label"), dag };
            loop {
                for create in [true, false] {
                    while let Err(status) = match create {
                        true => client.create_dag(&name, &spec()).await.map(|_| ()),
                        false => client.delete_dag(&name).await.map(|_| ()),
                    } {
                        if matches!(status.code(), Code::AlreadyExists | Code::NotFound) {
                            break;
                        }
                        tokio::time::sleep(pause(&status)).await;
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    loop {
        println!("{}", done.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn seconds() -> Duration {
    let seconds = std::env::var("SNIC_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

/// Operations and edges a second with this many clients.
fn measure(home: &Home, prometheus: SocketAddr, clients: usize) -> BTreeMap<&'static str, f64> {
    let own = std::env::current_exe().expect("a path");
    let mut child = Command::new("nice")
        .arg("-n10")
        .arg(own)
        .env(CALLER, format!("{clients} {}", home.socket().display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let mut count = || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut said, &mut line).expect("it says how many");
        line.trim().parse::<f64>().expect("a number")
    };
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        count();
    }
    let names = ["snic_loop_epochs", "snic_loop_overruns", "snic_table_commits"];
    let read = || names.map(|name| metric(prometheus, name));
    let (begun, before, calls) = (Instant::now(), read(), count());
    let mut last = calls;
    while begun.elapsed() < seconds() {
        last = count();
    }
    let (after, took) = (read(), begun.elapsed().as_secs_f64());
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
    let rate = |at: usize| (after[at] - before[at]) / took;
    BTreeMap::from([
        ("operations/s", (last - calls) / took),
        ("edges/s", rate(0)),
        ("samples skipped/s", rate(1)),
        ("commits/s", rate(2)),
    ])
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("tokio");
    if let Ok(text) = std::env::var(CALLER) {
        let (clients, socket) = text.split_once(' ').expect("two words");
        return runtime.block_on(call(socket.as_ref(), clients.parse().expect("a number")));
    }
    let home = Home::new();
    let prometheus = free_address();
    home.write_settings(&format!("[telemetry]\nprometheus = \"{prometheus}\""));
    let (daemon, tenant, traffic) = runtime.block_on(async {
        let daemon = home.start().await;
        let operator =
            TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
        operator.register(&snic_bitstream::catalogue::builtin().expect("valid")).await;
        operator.create_tenant("acme").await.expect("a tenant");
        let name = DagName {
            tenant: "acme".parse().expect("a label"),
            dag: STAYS.parse().expect("a label"),
        };
        operator.create_dag(&name, &spec()).await.expect("room");
        let tenant = TestClient::connect(&home.socket(), "tenant/acme").await.expect("it serves");
        let traffic = tokio::spawn(load(tenant.clone(), name.to_string()));
        (daemon, tenant, traffic)
    });
    let asked = std::env::var("SNIC_CLIENTS").ok();
    let clients = asked.as_deref().unwrap_or(CLIENTS);
    let clients = clients.split(',').map(|text| text.trim().parse().expect("a number of clients"));
    let clients: Vec<usize> = clients.collect();
    let mut rows: BTreeMap<usize, Vec<BTreeMap<&'static str, f64>>> = BTreeMap::new();
    for _ in 0..if asked.is_some() { 1 } else { TURNS } {
        for clients in &clients {
            let row = measure(&home, prometheus, *clients);
            println!("{clients:4} clients: {row:.1?}");
            rows.entry(*clients).or_default().push(row);
            runtime.block_on(clear(&tenant));
        }
    }
    assert!(!traffic.is_finished(), "the loop was at rest for a part of the time");
    drop(daemon);
    if asked.is_none() {
        judge(&rows);
    }
}

/// Sends a few packets through a DAG, for as long as a run may take.
async fn load(tenant: TestClient, name: String) {
    let sizes = [v1::dag::PacketSize { bytes: 64, weight: 1 }];
    let run = v1::RunTrafficRequest {
        name,
        rate_bps: 1_000_000,
        duration: Some(prost_types::Duration { seconds: 600, nanos: 0 }),
        packet_sizes: sizes.into(),
        ..Default::default()
    };
    let mut counts = tenant.traffic().run_traffic(run).await.expect("it runs").into_inner();
    while counts.message().await.is_ok_and(|message| message.is_some()) {}
}

/// Deletes the DAGs of the clients.
async fn clear(tenant: &TestClient) {
    for dag in tenant.list_dags().await {
        let id = dag.name.rsplit('/').next().expect("a part").parse().expect("an id");
        let name = DagName { tenant: "acme".parse().expect("a label"), dag: id };
        if name.dag.as_str() != STAYS {
            while let Err(status) = tenant.delete_dag(&name).await {
                assert_ne!(status.code(), Code::PermissionDenied, "{status:?}");
                if status.code() == Code::NotFound {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Median of one number of a row's turns.
fn median(turns: &[BTreeMap<&'static str, f64>], name: &str) -> f64 {
    let mut values: Vec<f64> = turns.iter().map(|turn| turn[name]).collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Fails where more clients complete clearly less, or where the loop loses edges.
fn judge(rows: &BTreeMap<usize, Vec<BTreeMap<&'static str, f64>>>) {
    let unloaded = median(&rows[&0], "edges/s");
    let mut best: f64 = 0.0;
    for (clients, turns) in rows {
        let (operations, edges) = (median(turns, "operations/s"), median(turns, "edges/s"));
        best = best.max(operations);
        println!("{clients:4} clients, medians: {operations:.1} operations/s, {edges:.2} edges/s");
        assert!(
            operations >= GOODPUT * best,
            "{clients} clients complete {operations:.1} operations/s, fewer clients {best:.1}"
        );
        assert!(
            edges >= EDGES * unloaded,
            "beside {clients} clients the loop has {edges:.2} edges/s, alone {unloaded:.2}"
        );
    }
}
