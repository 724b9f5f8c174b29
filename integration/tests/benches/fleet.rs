//! A fleet of real processes against the etcd that it stores in: creates a second, latency at half of that, and how long it
//! takes until another replica leads and until the DAGs of a lost host are ready elsewhere.
//!
//! `cargo build --release -p snic-fleetd -p snicd && cargo bench -p snic-integration --bench fleet [-- creates|failover]`

#![allow(clippy::unwrap_used, reason = "a program for developers: what fails, ends it")]

#[allow(dead_code, reason = "shared with the tests of the connection to etcd")]
#[path = "../../../crates/stores/store-etcd/tests/real/cluster.rs"]
mod cluster;
#[path = "fleet/idle_host.rs"]
mod idle_host;
#[allow(dead_code, reason = "shared with the tests of fleets")]
#[path = "../tests/fleet/network.rs"]
mod network;
#[allow(dead_code, reason = "shared with the tests of fleets")]
#[path = "../tests/fleet/rig.rs"]
mod rig;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::{Cluster, eventually, runtime};
use idle_host::IdleHost;
use rig::Fleet;
use snic_api::v1::dag::State;
use snic_bitstream::catalogue::builtin;
use snic_domain::{Bandwidth, DagName, DagSpec};
use snic_etcd::{Answer, Change, Compare, Operation, Request, Revision, Transaction, Watch};
use snic_fleet::placement::{CardSpec, HostSpec};
use snic_fleet::{RackId, ZoneId};
use snic_host_link::{HostLink, LinkSettings, LinkTls};
use snic_integration::TestClient;
use snic_store_etcd::EtcdConnection;
use tokio::task::JoinSet;

const CLIENTS: usize = 64;
/// DAGs in a round.
const ROUND: u64 = 3_200;
const ROUNDS: usize = 5;
const IDLE_HOSTS: usize = 8;
const CARDS: usize = 10;
const FAILOVERS: usize = 10;

fn name(number: u64) -> DagName {
    rig::name(&format!("b{number}"))
}

fn spec() -> DagSpec {
    DagSpec::chain(&["firewall", "aes"].map(|nt| nt.parse().unwrap()), Bandwidth::from_mbps(1))
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn part(all: &mut [Duration], part: f64) -> Duration {
    all.sort();
    all[((all.len() - 1) as f64 * part) as usize]
}

/// Hosts in this process, which say at once that they serve what they are told: the time is that of the fleet.
async fn idle_hosts(fleet: &mut Fleet) -> Vec<HostLink> {
    let catalogue = builtin().unwrap();
    let profile = catalogue.card(&"sim-16".parse().unwrap()).unwrap().clone();
    let mut links = Vec::new();
    for number in 0..IDLE_HOSTS {
        let card = CardSpec { profile: profile.clone(), functions: 8, is_cordoned: false };
        let cards = (0..CARDS).map(|at| (format!("card{at}").parse().unwrap(), card.clone()));
        let spec = HostSpec {
            zone: ZoneId::new("z1").unwrap(),
            rack: RackId::new(&format!("r{number}")).unwrap(),
            labels: BTreeMap::new(),
            is_cordoned: false,
            cards: cards.collect(),
        };
        let (authority, certificate, key) = fleet.register_host(number, &spec).await;
        let host = IdleHost::new(LinkTls {
            authority: authority.into(),
            certificate: certificate.into(),
            key: key.into(),
        });
        let endpoints = fleet.ways("operator-root").into_iter().map(|(at, _)| at).collect();
        let settings = LinkSettings { endpoints, beat: Duration::from_millis(500) };
        links.push(HostLink::start(settings, host));
    }
    fleet.all_in_step(IDLE_HOSTS).await;
    links
}

/// Each client takes the next number until there is none; how long each took.
async fn each(
    clients: &[TestClient],
    numbers: std::ops::Range<u64>,
    does_create: bool,
) -> (Duration, Vec<Duration>) {
    let next = Arc::new(AtomicU64::new(numbers.start));
    let (begin, mut tasks) = (Instant::now(), JoinSet::new());
    for client in clients {
        let (client, next, end) = (client.clone(), Arc::clone(&next), numbers.end);
        tasks.spawn(async move {
            let (spec, mut took) = (spec(), Vec::new());
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return took;
                }
                let begin = Instant::now();
                if does_create {
                    client.create_dag(&name(number), &spec).await.unwrap();
                } else {
                    match client.delete_dag(&name(number)).await {
                        // Its creation was refused.
                        Err(status) if status.code() == tonic::Code::NotFound => {}
                        deleted => drop(deleted.unwrap()),
                    }
                }
                took.push(begin.elapsed());
            }
        });
    }
    let all = tasks.join_all().await.into_iter().flatten().collect();
    (begin.elapsed(), all)
}

/// Transactions of one create each, on a bare etcd: the same one, by as many callers.
async fn bare(etcd: &EtcdConnection, first: u64, bytes: usize) -> Duration {
    let next = Arc::new(AtomicU64::new(first));
    let (begin, mut tasks) = (Instant::now(), JoinSet::new());
    for _ in 0..CLIENTS {
        let (next, etcd) = (Arc::clone(&next), etcd.clone());
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= first + ROUND {
                    return;
                }
                let key = format!("/bare/v1/dags/acme/b{number:08}");
                let compares = vec![Compare::CreatedAt(key.clone(), Revision(0))];
                let operations = vec![Operation::Put { key, value: vec![7; bytes], lease: None }];
                let commit = Request::Commit(Transaction { compares, operations });
                let answer = etcd.ask(&commit).await;
                assert!(matches!(answer, Ok(Answer::Committed(_))), "{answer:?}");
            }
        });
    }
    tasks.join_all().await;
    begin.elapsed()
}

/// Bytes of a DAG's record, and all keys of a DAG.
async fn record_bytes(etcd: &EtcdConnection, number: u64) -> usize {
    let records = cluster::read(etcd, "/snic/v1/").await.unwrap();
    let own: Vec<_> =
        records.iter().filter(|of| of.key.ends_with(&format!("/b{number}"))).collect();
    let bytes = own.iter().map(|of| of.key.len() + of.value.len()).sum();
    println!("a DAG has {} keys and {bytes} bytes in etcd", own.len());
    bytes
}

/// The revision of etcd: each transaction that changes something makes one.
async fn revision(etcd: &EtcdConnection) -> i64 {
    match etcd.ask(&cluster::get("nothing")).await.unwrap() {
        Answer::Range { now, .. } => now.0,
        other => panic!("{other:?}"),
    }
}

/// Transactions and changes of keys while something is done: what a watch tells.
async fn written(etcd: &EtcdConnection, from: i64) -> String {
    let watch = Watch { prefix: "/snic/v1/".to_owned(), from: Revision(from + 1) };
    let mut watching = etcd.watch(watch).unwrap();
    let (mut puts, mut deletes, mut bytes) = (0, 0, 0);
    let until = revision(etcd).await;
    let mut told = from;
    while told < until {
        let next = watching.next().await.unwrap();
        told = next.until.0;
        for change in next.changes {
            match change {
                Change::Put(record) => {
                    puts += 1;
                    bytes += record.key.len() + record.value.len();
                }
                Change::Deleted { .. } => deletes += 1,
            }
        }
    }
    format!("{} transactions, {puts} puts of {bytes} bytes, {deletes} deletes", until - from)
}

/// Writes at rest, for one DAG, and for many.
async fn writes(etcd: &EtcdConnection, clients: &[TestClient]) {
    // What hosts say of the DAGs that were just created is written too.
    let mut from = revision(etcd).await;
    loop {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let now = revision(etcd).await;
        if now == from {
            break;
        }
        from = now;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    println!("at rest with 400 DAGs, 10 s: {}", written(etcd, from).await);
    for (what, clients) in [("1 client", &clients[..1]), ("64 clients", clients)] {
        for does_create in [true, false] {
            let from = revision(etcd).await;
            each(clients, 1_000..1_400, does_create).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let verb = if does_create { "creates" } else { "deletes" };
            println!("400 {verb}, {what}: {}", written(etcd, from).await);
        }
    }
}

/// Requests at a steady rate, whether or not those before are answered: their times, and how many were refused because too
/// many waited.
async fn latencies(clients: &[TestClient], rate: f64, first: u64) -> (u64, Vec<Duration>, usize) {
    let count = (rate * 10.0) as u64;
    let (begin, mut tasks) = (Instant::now(), JoinSet::new());
    for number in 0..count {
        let at = begin + Duration::from_secs_f64(number as f64 / rate);
        tokio::time::sleep_until(at.into()).await;
        let client = clients[number as usize % clients.len()].clone();
        tasks.spawn(async move {
            match client.create_dag(&name(first + number), &spec()).await {
                Ok(_) => Some(at.elapsed()),
                Err(status) if status.code() == tonic::Code::ResourceExhausted => None,
                Err(status) => panic!("{status}"),
            }
        });
    }
    let all = tasks.join_all().await;
    let refused = all.iter().filter(|took| took.is_none()).count();
    (count, all.into_iter().flatten().collect(), refused)
}

async fn creates(cluster: Cluster) {
    let etcd = cluster.connect().await;
    let mut fleet = Fleet::start(cluster, 3, 0).await;
    fleet.unlimited().await;
    let _links = idle_hosts(&mut fleet).await;
    let at_all: Vec<TestClient> =
        (0..CLIENTS).map(|at| fleet.client(at % 3, "tenant-acme")).collect();
    let leader = fleet.leader().await;
    let at_leader: Vec<TestClient> =
        (0..CLIENTS).map(|_| fleet.client(leader, "tenant-acme")).collect();
    let mut next = 0;
    each(&at_all, 0..200, true).await;
    each(&at_leader, 200..400, true).await;
    let bytes = record_bytes(&etcd, 100).await;
    writes(&etcd, &at_all).await;
    each(&at_all, 0..400, false).await;
    next += 2_000;
    let (mut ratios, mut rates, mut bares) =
        ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()], Vec::new());
    for round in 0..ROUNDS {
        let plain = ROUND as f64 / bare(&etcd, next, bytes).await.as_secs_f64();
        bares.push(plain);
        for (way, clients) in [&at_all, &at_leader].into_iter().enumerate() {
            let (took, _) = each(clients, next..next + ROUND, true).await;
            each(clients, next..next + ROUND, false).await;
            next += ROUND;
            let rate = ROUND as f64 / took.as_secs_f64();
            rates[way].push(rate);
            ratios[way].push(rate / plain);
            println!(
                "round {round}, way {way}: {rate:.0}/s, bare etcd {plain:.0}/s, {:.2}",
                rate / plain
            );
        }
    }
    println!("bare etcd: {:.0} transactions/s (median)", median(bares));
    for (way, what) in ["at all replicas", "at the leader"].into_iter().enumerate() {
        let (rate, ratio) = (median(rates[way].clone()), median(ratios[way].clone()));
        println!(
            "{CLIENTS} clients {what}: {rate:.0} creates/s, {ratio:.2} of bare etcd (medians)"
        );
        let clients = [&at_all, &at_leader][way];
        for _ in 0..3 {
            let (count, mut all, refused) = latencies(clients, rate / 2.0, next).await;
            let [p50, p99] = [0.5, 0.99].map(|of| part(&mut all, of));
            println!(
                "  {:.0}/s for 10 s: p50 {p50:.1?}, p99 {p99:.1?}, {refused} refused",
                rate / 2.0
            );
            each(clients, next..next + count, false).await;
            next += count;
        }
    }
}

/// From `kill -9` of the leader until a create is acknowledged, and until a DAG can be read.
async fn leader_failovers(fleet: &mut Fleet) {
    let mut number = 1_000_000;
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for _ in 0..FAILOVERS {
        let leader = fleet.leader().await;
        let client = fleet.client((leader + 1) % 3, "tenant-acme");
        client.create_dag(&name(number), &spec()).await.unwrap();
        fleet.kill_replica(leader);
        let begin = Instant::now();
        let read = async {
            let request = || snic_api::v1::GetDagRequest { name: name(number).to_string() };
            while client.dags().get_dag(request()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            begin.elapsed()
        };
        let write = async {
            while client.create_dag(&name(number + 1), &spec()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            begin.elapsed()
        };
        let (read, write) = tokio::join!(read, write);
        println!("leader lost: read after {read:.2?}, create after {write:.2?}");
        reads.push(read);
        writes.push(write);
        fleet.restart_replica(leader);
        eventually(async || client.delete_dag(&name(number)).await.is_ok()).await;
        eventually(async || client.delete_dag(&name(number + 1)).await.is_ok()).await;
        number += 2;
        // The one that was killed stands for election again, and its lease has ended.
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    for (what, mut all) in [("read", reads), ("create", writes)] {
        let [p50, most] = [0.5, 1.0].map(|of| part(&mut all, of));
        println!("leader lost, {what}: median {p50:.2?}, longest {most:.2?}");
    }
}

/// From `kill -9` of a host until its DAG is ready on another one.
async fn host_failovers(fleet: &mut Fleet) {
    let mut all = Vec::new();
    fleet.create(0, "moving", 1).await;
    for _ in 0..FAILOVERS {
        let lost = fleet.served_once(&["moving"]).await[0];
        fleet.kill_host(lost);
        let begin = Instant::now();
        let is_moved = async |host: usize| {
            let found = fleet.on_host(host).await;
            found.into_iter().any(|(_, is_ready)| is_ready)
        };
        let others: Vec<usize> = (0..3).filter(|host| *host != lost).collect();
        eventually(async || is_moved(others[0]).await || is_moved(others[1]).await).await;
        eventually(async || fleet.state(0, "moving").await == Ok(State::Ready)).await;
        println!("host lost: served elsewhere after {:.2?}", begin.elapsed());
        all.push(begin.elapsed());
        fleet.restart_host(lost).await;
        fleet.all_in_step(3).await;
    }
    let [p50, most] = [0.5, 1.0].map(|of| part(&mut all, of));
    println!("host lost (lease 3 s, confirmed for 1 s): median {p50:.2?}, longest {most:.2?}");
}

fn main() {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |what: &str| words.is_empty() || words.iter().any(|word| word == what);
    runtime().block_on(async {
        let start = || async {
            tokio::task::spawn_blocking(|| Cluster::start(3))
                .await
                .unwrap()
                .expect("etcd is missing")
        };
        if is_wanted("creates") {
            creates(start().await).await;
        }
        if is_wanted("failover") {
            let mut fleet = Fleet::start(start().await, 3, 3).await;
            fleet.unlimited().await;
            leader_failovers(&mut fleet).await;
            host_failovers(&mut fleet).await;
        }
    });
}
