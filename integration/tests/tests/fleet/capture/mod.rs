//! The bill beside a capture: known packets pass a software card while daemon, card and leader of the fleet are killed at random. What hosts
//! at the card's ports sent and received is what the fleet bills, to the byte.
//!
//! A card that loses its power loses what it counted since its last reading. The gap `CARD_RESTARTED` says for how long that was, and the
//! capture proves it: what is billed of the time before is a beginning of what came, to the byte, and what is missing came within the gap.
//!
//! `SNIC_SEED` chooses packets and kills, `SNIC_PACKETS` how many packets there are.

mod load;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use snic_api::v1;
use snic_api::v1::UsageGrouping;
use snic_api::v1::dag::State;
use snic_domain::{Bandwidth, DagName, DagSpec, NtConfiguration};
use snic_integration::TestClient;

use self::load::{DAGS, KnownPackets, OPEN, PortCapture, PortHosts, Progress, SeenFrame};
use super::cluster::{Cluster, eventually, runtime};
use super::rig::{Cards, Fleet};
use super::soft::try_observe_card;

/// Longest time of a story.
const STORY_MAX: Duration = Duration::from_secs(1_800);
/// Time after which all that passed is read.
const READ_MAX: Duration = Duration::from_secs(3);
/// Time from one close to the next.
const INTERVAL: Duration = Duration::from_secs(10);
/// Packets a second.
const RATE: u32 = 8_000;

/// A part that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    Daemon,
    Card,
    Leader,
}

/// Packets, and the numbers of kills of daemon, card and leader.
struct Plan {
    seed: u64,
    packets: u64,
    kills: [(Killed, usize); 3],
}

impl Plan {
    fn new(packets: u64, [daemon, card, leader]: [usize; 3]) -> Self {
        let of = |name: &str, otherwise: u64| {
            let text = std::env::var(name).ok();
            text.map_or(otherwise, |text| text.parse().expect("a number"))
        };
        let kills = [(Killed::Daemon, daemon), (Killed::Card, card), (Killed::Leader, leader)];
        Self { seed: of("SNIC_SEED", 51), packets: of("SNIC_PACKETS", packets), kills }
    }

    /// Kills in their order, each with the number of packets after which it comes. The last one is of the daemon.
    fn events(&self) -> Vec<(u64, Killed)> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let all = self.kills.iter().flat_map(|(what, times)| vec![*what; *times]);
        let mut all: Vec<Killed> = all.collect();
        all.shuffle(&mut rng);
        if let Some(daemon) = all.iter().rposition(|what| *what == Killed::Daemon) {
            let last = all.len() - 1;
            all.swap(daemon, last);
        }
        let part = self.packets / (all.len() as u64 + 1);
        let at = |number: u64| part * number + part / 2;
        (0..)
            .zip(all)
            .map(|(number, what)| (at(number) + rng.random_range(0..part), what))
            .collect()
    }
}

/// Usage of a DAG as it is billed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bill {
    bytes_in: u64,
    packets_in: u64,
    bytes_served: u64,
    packets_served: u64,
    dropped: u64,
    /// Milliseconds of the gap `CARD_RESTARTED`.
    restarted: u64,
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Waits until the interval is closed in which something began.
async fn wait_for_close(begin: SystemTime) {
    while seconds(SystemTime::now()) < seconds(begin) / 10 * 10 + 12 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Bills by name of the DAG.
type Bills = BTreeMap<String, Bill>;

/// Name of a DAG in the API.
fn name(of: usize) -> DagName {
    let (tenant, dag) = DAGS[of];
    DagName { tenant: tenant.parse().unwrap(), dag: dag.parse().unwrap() }
}

/// Bills that a service says, all pages of them, and the end of their last interval; `None` while a host does not answer.
async fn bills(client: &TestClient) -> Option<(Bills, i64)> {
    let request = v1::ListUsageRequest {
        by: UsageGrouping::Dag.into(),
        page_size: 1_000,
        ..Default::default()
    };
    let reply = client.usage().list_usage(request).await.ok()?.into_inner();
    assert_eq!(reply.next_page_token, "");
    if !reply.unreachable_hosts.is_empty() {
        return None;
    }
    let (mut bills, mut end) = (Bills::new(), 0);
    for entry in reply.usage.into_iter().filter(|entry| !entry.dag.is_empty()) {
        end = entry.end_time.map_or(end, |time| time.seconds.max(end));
        let bill = bills.entry(entry.dag).or_default();
        bill.bytes_in += entry.bytes_in;
        bill.packets_in += entry.packets_in;
        bill.bytes_served += entry.bytes_served;
        bill.packets_served += entry.packets_served;
        bill.dropped += entry.drops.iter().map(|drops| drops.packets).sum::<u64>();
        for gap in entry.gaps {
            match gap.reason.as_str() {
                "CARD_RESTARTED" => bill.restarted += gap.millis,
                "LATE" => {}
                other => panic!("a gap for no reason: {other}"),
            }
        }
    }
    Some((bills, end))
}

/// Frames that the firewall drops.
fn denied(frames: &[SeenFrame]) -> impl Iterator<Item = &SeenFrame> {
    frames.iter().filter(|frame| frame.is_denied)
}

fn bytes(frames: &[SeenFrame]) -> u64 {
    frames.iter().map(|frame| u64::from(frame.bytes)).sum()
}

/// A card between its start and its end, as its ports saw it.
struct CardLife {
    capture: PortCapture,
    /// Time at which it was killed.
    killed: Instant,
}

/// Bills and captures so far.
struct Judge {
    fleet: Fleet,
    progress: Arc<Progress>,
    /// The bills when all of the cards before was read.
    settled: Vec<Bill>,
    /// The card that was killed last, whose part of the bill is not known yet.
    lost: Option<CardLife>,
    cards: u64,
    /// Frames that no bill has, for a card lost them with its power.
    unbilled: usize,
}

impl Judge {
    /// A fleet of three replicas and a host, with four DAGs of two tenants.
    async fn new(cluster: Cluster) -> Self {
        let fleet = Fleet::start_with(cluster, 3, (1, Cards::Sockets)).await;
        fleet.add_tenant("zeta").await;
        let rules = json!({"rules": [
            {"action": "accept", "protocol": "udp", "destination_ports": OPEN.to_string()},
        ]});
        for (of, (tenant, _)) in DAGS.into_iter().enumerate() {
            let nt = if of == 0 { "firewall" } else { "nat" };
            let mut spec = DagSpec::chain(&[nt.parse().unwrap()], Bandwidth::from_gbps(1));
            if of == 0 {
                spec.nodes[0].configuration = Some(NtConfiguration::new(&rules.to_string()));
            }
            let client = fleet.client(0, &format!("tenant-{tenant}"));
            eventually(async || client.create_dag(&name(of), &spec).await.is_ok()).await;
        }
        let judge = Self {
            fleet,
            progress: Arc::default(),
            settled: vec![Bill::default(); DAGS.len()],
            lost: None,
            cards: 0,
            unbilled: 0,
        };
        judge.wait_until_ready().await;
        let host = judge.fleet.host(0).await;
        for of in 0..DAGS.len() {
            host.lead_function(of as u32, &name(of)).await.unwrap();
        }
        judge
    }

    fn folder(&self) -> &Path {
        self.fleet.home(0).path()
    }

    /// Waits until the card has all that the DAGs need.
    async fn wait_until_ready(&self) {
        let ports = load::ports(self.folder());
        eventually(async || {
            let host = self.fleet.host(0).await;
            let dags = host.list_dags().await;
            let is_ready = |dag: &v1::Dag| dag.state() == State::Ready;
            let seen = try_observe_card(&self.fleet.home(0).card_folder(), &ports);
            let is_programmed = seen.is_some_and(|seen| seen.loads > 0 && seen.table_words > 0);
            dags.len() == DAGS.len() && dags.iter().all(is_ready) && is_programmed
        })
        .await;
    }

    /// Sends packets until an event is over or the file ends, while parts are killed.
    async fn run(&mut self, plan: &Plan, mut packets: KnownPackets) {
        let mut events = plan.events().into_iter().peekable();
        let begin = SystemTime::now();
        loop {
            self.cards += 1;
            let mut hosts = PortHosts::connect(self.folder(), self.cards, &self.progress);
            let progress = Arc::clone(&self.progress);
            let replay = tokio::task::spawn_blocking(move || {
                let is_over = hosts.replay(&mut packets, RATE, &progress);
                (hosts, packets, is_over)
            });
            let mut killed = None;
            while let Some((at, what)) = events.next() {
                let next = events.peek().map(|(at, _)| *at);
                self.progress.allowed.store(next.unwrap_or(at), Ordering::SeqCst);
                while self.progress.sent.load(Ordering::SeqCst) < at {
                    assert!(!replay.is_finished(), "the load ended before {what:?}");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                if next.is_none() {
                    // The next daemon goes on from counters that are stored.
                    wait_for_close(begin).await;
                    self.progress.allowed.store(u64::MAX, Ordering::SeqCst);
                }
                println!("{what:?} is killed after {at} packets");
                match what {
                    Killed::Daemon => {
                        self.fleet.kill_host(0);
                        self.fleet.restart_host(0).await;
                    }
                    Killed::Leader => {
                        let leader = self.fleet.leader().await;
                        self.fleet.kill_replica(leader);
                        self.fleet.restart_replica(leader);
                    }
                    Killed::Card => {
                        killed = Some(self.kill_card().await);
                        break;
                    }
                }
            }
            let (hosts, rest, is_over) = replay.await.unwrap();
            packets = rest;
            let capture = hosts.leave();
            let Some(killed) = killed else {
                assert!(is_over, "the card is gone without a kill");
                return self.settle(Some(capture)).await;
            };
            assert!(!is_over, "a card that was killed took the last packet");
            self.lost = Some(CardLife { capture, killed });
            self.wait_until_ready().await;
            if events.clone().any(|(_, what)| what == Killed::Card) {
                self.settle(None).await;
            }
        }
    }

    /// Kills the card, and waits until there is another one; the time of the kill.
    async fn kill_card(&self) -> Instant {
        let home = self.fleet.home(0);
        let before = home.card_pid();
        let killed = Instant::now();
        home.kill_card();
        let is_next = || home.card_pid().is_some_and(|pid| Some(pid) != before);
        eventually(async || is_next()).await;
        killed
    }

    /// Waits until all is billed, and holds it against the captures of the card that was killed, and of the one that runs.
    async fn settle(&mut self, running: Option<PortCapture>) {
        let until = seconds(SystemTime::now() + READ_MAX) as i64;
        let found = std::sync::Mutex::new(Bills::new());
        eventually(async || {
            let Some((bills, end)) = bills(&self.fleet.host(0).await).await else { return false };
            *found.lock().unwrap() = bills;
            end > until
        })
        .await;
        let found = found.into_inner().unwrap();
        let lost = self.lost.take();
        for (of, dag) in DAGS.iter().enumerate() {
            let bill = found.get(&name(of).to_string()).copied().unwrap_or_default();
            let before = std::mem::replace(&mut self.settled[of], bill);
            let mut left = Bill {
                bytes_in: bill.bytes_in - before.bytes_in,
                packets_in: bill.packets_in - before.packets_in,
                bytes_served: bill.bytes_served - before.bytes_served,
                packets_served: bill.packets_served - before.packets_served,
                dropped: bill.dropped - before.dropped,
                restarted: bill.restarted - before.restarted,
            };
            if let Some(capture) = &running {
                the_card_lets_pass_what_it_got(of, capture);
                let (came, sent) = (&capture.came[of], &capture.left[of]);
                left.bytes_in -= bytes(came);
                left.packets_in -= came.len() as u64;
                left.bytes_served -= bytes(sent);
                left.packets_served -= sent.len() as u64;
                left.dropped -= denied(came).count() as u64;
            }
            match &lost {
                Some(life) => self.unbilled += judge_lost(of, left, life),
                None => assert_eq!(left, Bill::default(), "{dag:?} beyond the capture"),
            }
        }
    }
}

/// The bill of a card that lost its power is a beginning of what its ports saw, and the rest came within the gap; returns how many frames
/// are missing.
fn judge_lost(of: usize, bill: Bill, life: &CardLife) -> usize {
    let (came, sent) = (&life.capture.came[of], &life.capture.left[of]);
    let (billed, missing) = came.split_at(bill.packets_in as usize);
    let (served, unserved) = sent.split_at(bill.packets_served as usize);
    assert_eq!(bill.bytes_in, bytes(billed), "{:?}: bytes in", DAGS[of]);
    assert_eq!(bill.bytes_served, bytes(served), "{:?}: bytes served", DAGS[of]);
    assert!(bill.restarted > 0, "{:?}: no gap", DAGS[of]);
    // Counters are read one after the other: each is a beginning of its own.
    let undropped = denied(came).nth(bill.dropped as usize);
    assert!(bill.dropped <= denied(came).count() as u64, "{:?}: {bill:?}", DAGS[of]);
    for first in [missing.first(), unserved.first(), undropped].into_iter().flatten() {
        let unread = life.killed.saturating_duration_since(first.at).as_millis() as u64;
        assert!(unread <= bill.restarted, "{:?}: {unread} ms missing, {bill:?}", DAGS[of]);
    }
    // What is billed was read: the gap began after it, or with the last close if the daemon was new and had read nothing.
    if let Some(last) = billed.last() {
        let since = last.at.elapsed() + INTERVAL;
        let gap = u128::from(bill.restarted);
        assert!(gap <= since.as_millis(), "{:?}: {since:?} since the last one, {bill:?}", DAGS[of]);
    }
    println!(
        "{:?}: {} of {} frames in a gap of {} ms",
        DAGS[of],
        missing.len(),
        came.len(),
        bill.restarted
    );
    missing.len()
}

/// Frames leave in their order, none twice, and all but those that the firewall drops.
fn the_card_lets_pass_what_it_got(of: usize, capture: &PortCapture) {
    let (came, left) = (&capture.came[of], &capture.left[of]);
    let mut rest = came.iter();
    for frame in left {
        let is_it = |came: &SeenFrame| (came.number, came.bytes) == (frame.number, frame.bytes);
        assert!(rest.any(is_it), "{:?}: {frame:?} left twice or too late", DAGS[of]);
    }
    assert_eq!(left.len() + denied(came).count(), came.len(), "{:?}", DAGS[of]);
}

fn story(plan: &Plan) {
    let Some(cluster) = Cluster::start(1) else { return };
    let begin = Instant::now();
    let told = async {
        let mut judge = Judge::new(cluster).await;
        let file = judge.folder().join("known.pcap");
        load::write_capture(&file, plan.seed, plan.packets);
        judge.run(plan, KnownPackets::open(&file)).await;
        the_fleet_bills_the_same(&judge).await;
        println!(
            "{} packets of the capture and {} of stations by {} cards, {} of them not billed in gaps, in {:?}",
            plan.packets,
            judge.cards * DAGS.len() as u64,
            judge.cards,
            judge.unbilled,
            begin.elapsed()
        );
    };
    let in_time = async { tokio::time::timeout(STORY_MAX, told).await };
    runtime().block_on(in_time).expect("the story ends");
}

/// Operators and tenants see the host's bill at each replica, and as comma-separated values.
async fn the_fleet_bills_the_same(judge: &Judge) {
    let fleet = &judge.fleet;
    let expected = |tenant: &str| -> Bills {
        let of = (0..DAGS.len()).filter(|of| tenant.is_empty() || DAGS[*of].0 == tenant);
        of.map(|of| (name(of).to_string(), judge.settled[of])).collect()
    };
    for replica in 0..3 {
        let callers = [("operator-root", ""), ("tenant-acme", "acme"), ("tenant-zeta", "zeta")];
        for (file, tenant) in callers {
            let client = fleet.client(replica, file);
            let last = std::sync::Mutex::new(None);
            let is_same = async || {
                let found = bills(&client).await.map(|(bills, _)| bills);
                let is_same = found.as_ref() == Some(&expected(tenant));
                *last.lock().unwrap() = found;
                is_same
            };
            let begin = Instant::now();
            while !is_same().await {
                assert!(
                    begin.elapsed() < READ_MAX * 5,
                    "{file} at {replica}: {last:?}, {:?}",
                    expected(tenant)
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    fleet.contexts();
    let line = "snicctl --context acme-r1 usage export --by tenant";
    let printed = fleet.shell(line).unwrap();
    let mut lines = printed.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let (heading, values) = (lines.next().unwrap(), lines.next().unwrap());
    let of = |column: &str| {
        let at = heading.iter().position(|name| *name == column).unwrap();
        values[at].parse::<u64>().unwrap()
    };
    let sum = |of: fn(&Bill) -> u64| expected("acme").values().map(of).sum::<u64>();
    assert_eq!(of("bytes_in"), sum(|bill| bill.bytes_in), "{printed}");
    assert_eq!(of("bytes_served"), sum(|bill| bill.bytes_served), "{printed}");
}

#[test]
fn the_bill_is_the_capture_while_daemon_card_and_leader_are_killed() {
    story(&Plan::new(24_000, [2, 1, 1]));
}

#[test]
#[ignore = "nightly: a million packets"]
fn the_bill_of_a_million_packets_is_the_capture() {
    story(&Plan::new(1_000_000, [16, 5, 6]));
}
