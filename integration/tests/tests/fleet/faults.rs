//! Real processes with faults, by seed: 3 members of etcd, 3 replicas and 5 hosts, each in a network namespace of its own.
//! Parts are cut off, killed and stopped, an etcd member is lost with its disk, etcd is defragmented, and clocks jump, while
//! clients create, read, change, delete and list. What they saw must be linearizable, and in the end all is as it should be.
//!
//! `SNIC_SEED=7 SNIC_FAULT_SECONDS=600 cargo test -p snic-integration --features ci --test ci faults` chooses faults and how long.

use std::time::{Duration, Instant};

use rand::seq::IndexedRandom as _;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process};
use snic_api::fleet_v1;
use snic_api::fleet_v1::host::Condition;
use snic_api::replies::ItemOf as _;
use snic_api::v1;
use tokio::task::JoinSet;

use super::cluster::{Cluster, Seat, eventually, in_time, runtime};
use super::history::{Asked, History, Told};
use super::network::{self, Network};
use super::rig::{Cards, Fleet, name};
use super::workload::{DAGS_MAX, Workload};

const MEMBERS: usize = 3;
const REPLICAS: usize = 3;
const HOSTS: usize = 5;
const CLIENTS: usize = 5;
/// Longest time of the fleet until all is as it should be, on a machine that has other work.
const CALM_MAX: Duration = Duration::from_secs(180);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// End of a fault.
#[derive(Debug, Clone)]
enum Cure {
    Join(String),
    Rejoin(String, String),
    Start(String),
    Continue(String),
    SetClock(String),
}

/// The parts, and what is wrong with them.
struct Faults {
    fleet: Fleet,
    rng: ChaCha8Rng,
    /// Until when, how it ends, and the parts that have no other fault meanwhile.
    present: Vec<(Instant, Cure, Vec<String>)>,
    happened: Vec<String>,
}

fn parts() -> Vec<String> {
    let of = |kind: &'static str, count: usize| (0..count).map(move |n| format!("{kind}{n}"));
    of("m", MEMBERS).chain(of("r", REPLICAS)).chain(of("h", HOSTS)).collect()
}

/// The kind of a part, and its number.
fn split(part: &str) -> (char, usize) {
    (part.chars().next().unwrap(), part[1..].parse().unwrap())
}

/// All parts in a network, with the catalogue and tenant acme, whose quota is small.
async fn start(mut network: Network) -> Fleet {
    parts().iter().for_each(|part| network.add(part));
    let seat = |number| {
        let name = format!("m{number}");
        Seat { address: network.address(&name), enter: network.enter(&name), name }
    };
    let seats = (0..MEMBERS).map(seat).collect();
    let cluster = tokio::task::spawn_blocking(move || Cluster::start_at(seats)).await.unwrap();
    let fleet = Fleet::start_in(
        (Some(network), None),
        cluster.unwrap(),
        REPLICAS,
        (HOSTS, Cards::Simulated),
    )
    .await;
    let quota = v1::Quota { dags_max: Some(DAGS_MAX), ..Default::default() };
    fleet.set_quota(quota, &["quota.dags_max"]).await;
    fleet
}

impl Faults {
    fn network(&self) -> &Network {
        self.fleet.network.as_ref().unwrap()
    }

    fn process(&self, part: &str) -> Option<u32> {
        match split(part) {
            ('m', member) => self.fleet.cluster.process(member),
            _ => self.fleet.processes().into_iter().find(|(name, _)| name == part).map(|of| of.1),
        }
    }

    fn signal(&self, part: &str, signal: Signal) {
        let id = self.process(part).unwrap_or_else(|| panic!("{part} does not run"));
        kill_process(Pid::from_raw(id.cast_signed()).unwrap(), signal).unwrap();
    }

    fn is_well(&self, part: &str) -> bool {
        !self.present.iter().any(|(_, _, parts)| parts.iter().any(|of| of == part))
    }

    /// A part of a kind that has no fault.
    fn pick(&mut self, kinds: &str) -> Option<String> {
        let mut all = parts();
        all.retain(|part| kinds.contains(split(part).0) && self.is_well(part));
        // Without a quorum of etcd nothing happens at all, which is seldom wanted.
        let is_one_ill = (0..MEMBERS).any(|member| !self.is_well(&format!("m{member}")));
        if is_one_ill && !self.rng.random_bool(0.15) {
            all.retain(|part| split(part).0 != 'm');
        }
        all.choose(&mut self.rng).cloned()
    }

    /// One more fault, if a part is free for it.
    fn begin(&mut self) -> Option<()> {
        let millis = self.rng.random_range(500..7_000);
        let (cure, parts) = match self.rng.random_range(0..100) {
            0..20 => {
                let part = self.pick("mrh")?;
                self.network().isolate(&part, true);
                (Cure::Join(part.clone()), vec![part])
            }
            20..40 => {
                let (one, other) = (self.pick("r")?, self.pick("mh")?);
                self.network().cut(&one, &other, true);
                (Cure::Rejoin(one.clone(), other.clone()), vec![one, other])
            }
            40..65 => {
                let part = self.pick("mrrh")?;
                match split(&part) {
                    ('m', member) => self.fleet.cluster.kill(member),
                    ('r', replica) => self.fleet.kill_replica(replica),
                    (_, host) => self.fleet.kill_host(host),
                }
                (Cure::Start(part.clone()), vec![part])
            }
            65..88 => {
                let part = self.pick("mrrh")?;
                self.signal(&part, Signal::STOP);
                (Cure::Continue(part.clone()), vec![part])
            }
            88..94 => {
                let part = self.pick("rh")?;
                let seconds = self.rng.random_range(1..60);
                self.fleet.set_clock(&part, seconds).then_some(())?;
                (Cure::SetClock(part.clone()), vec![part])
            }
            _ => {
                // Members that do not answer are passed over.
                let told = self.fleet.cluster.control(&["defrag"]);
                self.happened.push(format!("defragmented: {}", told.is_ok()));
                return Some(());
            }
        };
        println!("{cure:?} in {millis} ms");
        let name = format!("{cure:?}").chars().take_while(char::is_ascii_alphabetic).collect();
        self.happened.push(name);
        self.present.push((Instant::now() + Duration::from_millis(millis), cure, parts));
        Some(())
    }

    async fn end(&mut self, cure: Cure) {
        match cure {
            Cure::Join(part) => self.network().isolate(&part, false),
            Cure::Rejoin(one, other) => self.network().cut(&one, &other, false),
            Cure::Continue(part) => self.signal(&part, Signal::CONT),
            Cure::SetClock(part) => drop(self.fleet.set_clock(&part, 0)),
            Cure::Start(part) => match split(&part) {
                ('m', member) => self.fleet.cluster.restart(member),
                ('r', replica) => self.fleet.restart_replica(replica),
                (_, host) => self.fleet.restart_host(host).await,
            },
        }
    }

    async fn end_due(&mut self, now: Instant) {
        while let Some(at) = self.present.iter().position(|(until, ..)| *until <= now) {
            let (_, cure, _) = self.present.remove(at);
            self.end(cure).await;
        }
    }

    async fn end_all(&mut self) {
        for (_, cure, _) in std::mem::take(&mut self.present) {
            self.end(cure).await;
        }
    }

    /// Faults for so long; once between, a member of etcd is lost with its disk.
    async fn run(&mut self, duration: Duration) {
        let begin = Instant::now();
        let replace_at = duration.mul_f64(self.rng.random_range(0.3..0.7));
        let (mut is_replaced, mut next) = (false, begin);
        while begin.elapsed() < duration {
            self.end_due(Instant::now()).await;
            if !is_replaced && begin.elapsed() > replace_at {
                is_replaced = true;
                self.end_all().await;
                let member = self.rng.random_range(0..MEMBERS);
                self.fleet.cluster.lose(member);
                while let Err(why) =
                    tokio::task::block_in_place(|| self.fleet.cluster.replace(member))
                {
                    println!("m{member} is not replaced yet: {why}");
                    assert!(begin.elapsed() < duration + CALM_MAX, "m{member} stays lost");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                println!("m{member} is replaced");
                self.happened.push("Replaced".to_owned());
            }
            if Instant::now() >= next && self.present.len() < 3 {
                tokio::task::block_in_place(|| self.begin());
                next = Instant::now() + Duration::from_millis(self.rng.random_range(200..2_500));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.end_all().await;
    }
}

/// Waits longer than other tests do.
async fn finally(what: &str, holds: impl AsyncFn() -> bool) {
    let begin = Instant::now();
    while !holds().await {
        assert!(begin.elapsed() < CALM_MAX, "it does not happen: {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("{what}, {:?} after the last fault ended", begin.elapsed());
}

/// All faults are over: hosts are in step, the DAGs that are there are served once each, and all sums are right.
async fn judge(fleet: &Fleet, load: std::sync::Arc<Workload>, context: &str) -> History {
    for host in 0..HOSTS {
        let is_in_step = async || {
            let condition = fleet.condition(host).await;
            condition.inspect_err(|why| println!("{why}")) == Ok(Condition::InStep)
        };
        finally(&format!("h{host} is in step"), is_in_step).await;
    }
    let (seen, there) = load.look().await;
    let names: Vec<&str> = there.iter().map(String::as_str).collect();
    let served = fleet.served_once(&names).await;
    println!("{context}: {there:?} are served by {served:?}");
    for replica in 0..REPLICAS {
        let root = fleet.client(replica, "operator-root");
        let told = root.fleet().get_fleet(fleet_v1::GetFleetRequest {}).await.unwrap().into_inner();
        assert_eq!((told.dags, told.dags_unplaced), (there.len() as u64, 0), "{context}");
        let request = v1::GetTenantRequest { name: "tenants/acme".into() };
        let usage = root.tenants().get_tenant(request).await.item().unwrap().usage.unwrap();
        let dags = fleet.client(replica, "tenant-acme").list_dags().await;
        let bandwidth: u64 = dags.iter().map(|dag| dag.bandwidth_bps).sum();
        let counted = (usage.dags as usize, usage.bandwidth_bps);
        assert_eq!(counted, (dags.len(), bandwidth), "{context}: the quota's sums");
        let mut listed: Vec<String> = dags.into_iter().map(|dag| dag.name).collect();
        listed.sort();
        assert_eq!(listed, there.iter().map(|dag| name(dag).to_string()).collect::<Vec<_>>());
    }
    seen
}

#[test]
fn with_faults_what_clients_see_is_linearizable() {
    let test = "fleet::faults::with_faults_what_clients_see_is_linearizable";
    if !super::cluster::is_here() {
        return;
    }
    let Some(network) = network::inside(test) else { return };
    let seed = number("SNIC_SEED").unwrap_or(1);
    let seconds = number("SNIC_FAULT_SECONDS").unwrap_or(15);
    runtime().block_on(async {
        let fleet = start(network).await;
        let load = Workload::new(fleet.ways("tenant-acme"));
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            clients.spawn(load.clone().client(number, seed * 1_000 + number as u64));
        }
        let (rng, present, happened) = (ChaCha8Rng::seed_from_u64(seed), Vec::new(), Vec::new());
        let mut faults = Faults { fleet, rng, present, happened };
        faults.run(Duration::from_secs(seconds)).await;
        load.end();
        let mut history = History::default();
        while let Some(seen) = clients.join_next().await {
            history.absorb(seen.unwrap());
        }
        let context = format!("seed {seed}, {seconds} s");
        history.absorb(judge(&faults.fleet, load, &context).await);
        let begin = Instant::now();
        history.judge(&context);
        let writes = history.count(|of| of.asked != Asked::Read && of.told == Told::Done);
        let unknown = history.count(|of| of.told == Told::Unknown);
        let all = history.count(|_| true);
        let took = begin.elapsed();
        println!("{context}: {all} outcomes, {writes} writes done, {unknown} unknown, in {took:?}");
        println!("{:?}", faults.happened);
        assert!(writes >= 20, "too little happened");
        assert!(faults.happened.len() as u64 >= seconds / 5, "too few faults");
    });
}

/// A leader that is stopped for longer than its lease, and is asked meanwhile, does not answer from what it knew.
#[test]
fn a_leader_that_slept_reads_nothing_old() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let fleet = Fleet::start(cluster, 2, 1).await;
        fleet.create(0, "one", 1).await;
        let leader = fleet.leader().await;
        let process = |replica: usize| {
            let id = fleet.processes()[replica].1;
            Pid::from_raw(id.cast_signed()).unwrap()
        };
        let asleep = fleet.client(leader, "tenant-acme");
        let request = v1::GetDagRequest { name: name("one").to_string() };
        asleep.dags().get_dag(request.clone()).await.unwrap();
        kill_process(process(leader), Signal::STOP).unwrap();
        let other = fleet.client(1 - leader, "tenant-acme");
        eventually(async || match other.delete_dag(&name("one")).await {
            Ok(_) => true,
            Err(status) => status.code() == tonic::Code::NotFound,
        })
        .await;
        let mut reads = JoinSet::new();
        for _ in 0..64 {
            let (client, request) = (asleep.clone(), request.clone());
            reads.spawn(async move { client.dags().get_dag(request).await });
        }
        // They are on their way before it wakes up.
        tokio::time::sleep(Duration::from_millis(300)).await;
        kill_process(process(leader), Signal::CONT).unwrap();
        while let Some(read) = reads.join_next().await {
            let read = read.unwrap();
            assert!(read.is_err(), "it was deleted before: {read:?}");
        }
    }));
}
