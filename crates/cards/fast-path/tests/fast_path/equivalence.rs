//! Two cards with the same chain, random numbers and packets, one with the fast path and one without: the same packets leave, byte for
//! byte and in the order of their flows, and the same is counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant, SystemTime};

use rand::Rng as _;
use rand::seq::IndexedRandom as _;
use snic_card_soft::{Observation, Port, Received};
use snic_fast_path::FastPath;
use snic_nts::{FlowKey, Pool};

use crate::rig::{Killed, start};
use crate::site::Site;
use crate::support;
use crate::traffic::Traffic;

/// Frames that arrived, by host.
type Arrived = [Vec<Vec<u8>>; 2];
type Chain = &'static [(&'static str, Option<&'static str>)];

const NAT: &str = r#"{"inside":["10.0.0.0/30","fd00::/126"],"external":["10.1.0.200","fd01::c8"],"forwards":[
    {"protocol":"udp","external":"10.1.0.200","external_port":5000,"inside":"10.0.0.2","inside_port":1000}]}"#;
const OPEN_NAT: &str =
    r#"{"inside":["10.0.0.0/30"],"external":["10.1.0.200"],"filtering":"endpoint-independent"}"#;
const FIREWALL: &str = r#"{"rules":[{"action":"accept","source":"10.0.0.0/24","protocol":"any"},{"action":"accept","source":"10.1.0.200/32","protocol":"any"},
    {"action":"accept","source":"fd00::/16","protocol":"udp"},{"action":"accept","protocol":"tcp","destination_ports":"80-443"}]}"#;
const WITHOUT_MEMORY: &str = r#"{"stateful":false,"rules":[{"action":"accept","protocol":"udp"},
    {"action":"accept","protocol":"tcp","destination_ports":"80"}]}"#;
const BALANCER: &str = r#"{"services":[
    {"address":"10.1.0.9","protocol":"tcp","port":80,"backends":[{"address":"10.1.0.1","port":80},{"address":"10.1.0.2","port":443}]},
    {"address":"10.1.0.9","protocol":"udp","port":5000,"backends":[{"address":"10.1.0.1","port":1000},{"address":"10.1.0.2","port":5000,"weight":3}]}]}"#;
const CHAINS: [Chain; 9] = [
    &[("nat", Some(NAT)), ("firewall", Some(FIREWALL))],
    &[("firewall", Some(FIREWALL)), ("nat", Some(NAT))],
    &[("nat", Some(OPEN_NAT))],
    &[("firewall", Some(FIREWALL))],
    &[("firewall", Some(WITHOUT_MEMORY))],
    &[("load-balancer", Some(BALANCER))],
    &[("firewall", Some(FIREWALL)), ("load-balancer", Some(BALANCER))],
    &[("nat", None), ("firewall", Some(FIREWALL)), ("checksum", None)],
    &[("load-balancer", Some(BALANCER)), ("nat", Some(NAT)), ("firewall", Some(FIREWALL))],
];
/// Most frames that are on their way at once.
const BURST_MAX: usize = 24;
/// Longest time until what was sent has left the card.
const LONGEST: Duration = Duration::from_secs(20);

/// A card between two hosts that say nothing of their own.
struct Side {
    bench: support::Bench,
    hosts: Vec<Box<dyn Port>>,
    pool: Pool,
    sent: u64,
    arrived: u64,
    _process: Killed,
    _folder: tempfile::TempDir,
    _site: Site,
}

impl Side {
    fn new(purpose: &str, fast_path: bool, chain: Chain) -> Option<Self> {
        let site = Site::new(purpose)?;
        let hosts = vec![site.open(0, "interface:a"), site.open(1, "interface:b")];
        let (process, folder, mut bench) = start(&site.namespaces[2], fast_path, Some(7));
        bench.program_chain(chain, Some(0));
        let pool = Pool::new(256, 9_216);
        Some(Self {
            bench,
            hosts,
            pool,
            sent: 0,
            arrived: 0,
            _process: process,
            _folder: folder,
            _site: site,
        })
    }

    fn send(&mut self, host: usize, frame: &[u8]) {
        let packet = self.pool.copy_of(frame).expect("a buffer");
        let sent = self.hosts[host].send(&mut vec![packet]);
        assert_eq!(sent.frames, 1, "{frame:02x?}");
        self.sent += 1;
    }

    /// Frames that are at the hosts.
    fn arrivals(&mut self, frames: &mut Arrived) {
        for (host, frames) in self.hosts.iter_mut().zip(frames) {
            loop {
                match host.receive(&self.pool).expect("the device is there") {
                    Received::Frame(packet) => frames.push(packet.bytes().to_vec()),
                    Received::Nothing => break,
                    Received::NoBuffer | Received::TooLong => panic!("a frame was thrown away"),
                }
                self.arrived += 1;
            }
        }
    }

    /// Waits until all that was sent has left the card or stays there: adds what arrived at the hosts. The card's counts.
    fn settle(&mut self, frames: &mut Arrived) -> Result<Observation, String> {
        let (mut before, until) = (None, Instant::now() + LONGEST);
        loop {
            self.arrivals(frames);
            let seen = self.bench.observe();
            let counted = |of: fn(&snic_ports::packets::PortTraffic) -> u64| {
                seen.ports.iter().map(of).sum::<u64>()
            };
            let came = counted(|port| port.received + port.control + port.wrong_source);
            let left = counted(|port| port.sent);
            assert_eq!(counted(|port| port.too_slow + port.not_taken), 0, "{seen:?}");
            let is_over = (came, left) == (self.sent, self.arrived);
            if is_over && before.as_ref() == Some(&seen) {
                return Ok(seen);
            }
            if Instant::now() > until {
                let (sent, arrived) = (self.sent, self.arrived);
                return Err(format!(
                    "of {sent} sent {came} came, of {left} that left {arrived} arrived: {seen:?}"
                ));
            }
            before = is_over.then_some(seen);
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Identification of an IPv4 packet, which is another one for each.
fn number(frame: &[u8]) -> Option<u16> {
    (frame.len() > 34 && frame[12..14] == [8, 0])
        .then(|| u16::from_be_bytes([frame[18], frame[19]]))
}

fn flow(frame: &[u8]) -> String {
    FlowKey::of(frame).map(|(key, _)| format!("{key:?}")).unwrap_or_default()
}

/// Frames by the flow that they were of when they were sent, each flow's in their order, as text; those of no flow sorted.
fn by_flow(frames: &[Vec<u8>], sent: &HashMap<u16, String>) -> BTreeMap<String, Vec<String>> {
    let mut flows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for frame in frames {
        let known = number(frame).and_then(|number| sent.get(&number).cloned());
        flows.entry(known.unwrap_or_else(|| flow(frame))).or_default().push(text(frame));
    }
    if let Some(others) = flows.get_mut("") {
        others.sort();
    }
    flows
}

fn text(frame: &[u8]) -> String {
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Flows whose frames differ: those of the first, and those of the second.
fn differences(of: [&[Vec<u8>]; 2], sent: &HashMap<u16, String>) -> String {
    let [first, second] = of.map(|frames| by_flow(frames, sent));
    let keys: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let none = Vec::new();
    let mut told = String::new();
    for key in keys {
        let [got, wanted] = [&first, &second].map(|flows| flows.get(key).unwrap_or(&none));
        if got != wanted {
            told += &format!("{key}\n{}\nin place of\n{}\n", got.join("\n"), wanted.join("\n"));
        }
    }
    told
}

/// Counts of a card, without those that only one of the two has.
fn counts(seen: &Observation) -> Observation {
    let mut seen = seen.clone();
    for port in &mut seen.ports {
        port.method.clear();
    }
    for task in &mut seen.tasks {
        task.by_rule = 0;
    }
    (seen.flows, seen.flows_by_dag, seen.fast_flows, seen.fast_packets) = (0, Vec::new(), 0, 0);
    seen
}

/// Two cards whose packets, DAGs and random numbers are the same.
struct Pair {
    fast: Side,
    slow: Side,
}

impl Pair {
    fn new(purpose: &str, chain: Chain) -> Option<Self> {
        let fast = Side::new(&format!("{purpose}f"), true, chain)?;
        let slow = Side::new(&format!("{purpose}s"), false, chain)?;
        Some(Self { fast, slow })
    }

    /// Sends frames of a host through both, and compares all that comes of them: the frames that arrived, and the packets that passed
    /// in the kernel so far. A timer of an NT, such as that of a fragment that waits for its first, may be due at one card earlier than
    /// at the other, so what differs may do so for a while.
    fn pass(&mut self, host: usize, sent: &[Vec<u8>]) -> Result<(Arrived, u64), String> {
        for frame in sent {
            self.fast.send(host, frame);
            self.slow.send(host, frame);
        }
        let flows: HashMap<u16, String> =
            sent.iter().filter_map(|frame| Some((number(frame)?, flow(frame)))).collect();
        let (mut got, mut wanted) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let until = Instant::now() + LONGEST;
        loop {
            let of_fast = self.fast.settle(&mut got)?;
            let of_slow = self.slow.settle(&mut wanted)?;
            let mut differs: String =
                (0..2).map(|at| differences([&got[at], &wanted[at]], &flows)).collect();
            let (first, second) = (counts(&of_fast), counts(&of_slow));
            if first != second {
                differs += &format!("{first:?}\nin place of\n{second:?}\n");
            }
            let (first, second) = (self.fast.bench.dag_counts(), self.slow.bench.dag_counts());
            if first != second {
                differs += &format!("{first:?} in place of {second:?}\n");
            }
            if differs.is_empty() {
                return Ok((wanted, of_fast.fast_packets));
            }
            if Instant::now() > until {
                return Err(differs);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Frames that are sent at once: of any flows, or of one. Only packets of one flow keep their order, and with some NTs the order of two
/// flows' packets is of consequence: where a client asks a backend both itself and by the load balancer, and where two stations
/// speak for a host behind a NAT, the last one counts.
fn burst(traffic: &mut Traffic, host: usize, is_of_one_flow: bool) -> Vec<Vec<u8>> {
    if traffic.random.random_range(0..30) == 0 {
        return vec![traffic.of_other_station(host)];
    }
    let frames = traffic.random.random_range(1..=BURST_MAX);
    let first = traffic.frame(host);
    if !is_of_one_flow {
        return (1..frames).map(|_| traffic.frame(host)).chain([first]).collect();
    }
    if flow(&first).is_empty() {
        return vec![first];
    }
    (1..frames).map(|_| traffic.like(host, &first)).chain([first.clone()]).collect()
}

/// Sends so many packets through a chain on both cards. The packets that passed in the kernel.
fn compare(purpose: &str, chain: Chain, seed: u64, packets: u64) -> Option<u64> {
    let mut traffic = Traffic::new(seed);
    let mut pair = Pair::new(purpose, chain)?;
    let names: Vec<&str> = chain.iter().map(|(name, _)| *name).collect();
    let has_order = chain.iter().any(|(name, told)| *name != "firewall" && told.is_some());
    let mut in_kernel = 0;
    while pair.slow.sent < packets {
        let host = traffic.random.random_range(0..2);
        let sent = burst(&mut traffic, host, has_order);
        let (arrived, fast) = pair.pass(host, &sent).unwrap_or_else(|differs| {
            let sent: Vec<String> = sent.iter().map(|frame| text(frame)).collect();
            panic!(
                "{names:?}, seed {seed}, {} sent; from {host}:\n{}\nand\n{differs}",
                pair.slow.sent,
                sent.join("\n")
            )
        });
        for (at, frames) in arrived.iter().enumerate() {
            frames.iter().for_each(|frame| traffic.arrived(at, frame));
        }
        in_kernel = fast;
        if traffic.random.random_range(0..64) == 0 {
            reprogram(&mut traffic, chain, [&mut pair.fast.bench, &mut pair.slow.bench]);
        }
    }
    println!(
        "{names:?}, seed {seed}: {in_kernel} of {} packets passed in the kernel",
        pair.slow.sent
    );
    Some(in_kernel)
}

/// Configures the DAG's NTs again on both cards, which ends all rules: firewalls with other settings, the rest with the same.
fn reprogram(traffic: &mut Traffic, chain: Chain, benches: [&mut support::Bench; 2]) {
    let mut told: Vec<Option<&str>> = chain.iter().map(|(_, told)| *told).collect();
    let firewalls = [FIREWALL, WITHOUT_MEMORY];
    for ((name, _), told) in chain.iter().zip(&mut told) {
        if *name == "firewall" {
            *told = firewalls.choose(&mut traffic.random).copied();
        }
    }
    for bench in benches {
        bench.tell(&told);
    }
}

#[test]
fn a_card_with_the_fast_path_does_what_one_without_it_does() {
    if FastPath::load().is_err() && std::env::var_os("CI").is_none() {
        println!("not run: the fast path cannot be loaded here");
        return;
    }
    let mut in_kernel = 0;
    for (number, chain) in CHAINS.into_iter().enumerate() {
        let fast = compare(&format!("q{number}"), chain, number as u64, 3_000);
        let Some(fast) = fast else { return };
        in_kernel += fast;
    }
    assert!(in_kernel > 3_000, "only {in_kernel} packets in the kernel");
}

#[test]
#[ignore = "nightly: ten million packets, from seeds that vary"]
fn ten_million_packets_do_the_same_with_the_fast_path_and_without() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let first = match std::env::var("SNIC_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => now.as_secs(),
    };
    let number = |name: &str, or: u64| {
        std::env::var(name).map_or(or, |text| text.parse().expect("a number"))
    };
    let packets = number("SNIC_PACKETS", 10_000_000);
    let rounds = number("SNIC_ROUNDS", 90);
    let mut in_kernel = 0;
    for round in 0..rounds {
        let chain = CHAINS[(round % CHAINS.len() as u64) as usize];
        let seed = first + round;
        let Some(fast) = compare(&format!("n{round}"), chain, seed, packets / rounds) else {
            return;
        };
        in_kernel += fast;
    }
    println!("{in_kernel} of {packets} packets passed in the kernel");
    assert!(in_kernel > packets / 20, "{in_kernel}");
}
