//! YCSB's core workloads, by YCSB's own client, on memcached behind two software cards; and beside it on memcached and
//! Redis without a card, in the same run (SuperNIC, Figs. 19 and 20).
//!
//! ```text
//!   YCSB ─ TAP ─ client's card: go-back-n ═ veth ═ store's card: go-back-n of the link, kv-cache of the store ─ TAP ─ memcached
//!   YCSB ─ veth ──────────────────────────────────────────────────────────────────────────────────── memcached, Redis
//! ```
//!
//! The long run: `cargo test -p snic-integration --features ci --test ci -- --ignored --nocapture ycsb::beside`, as root. What it can be told is
//! in `integration/ycsb/README.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::json;
use snic_bitstream::catalogue;
use snic_card_soft::Observation;
use snic_domain::DagName;
use snic_integration::{DaemonProcess, Home, TestClient, program};
use snic_repro::ycsb::keys::{self, KeyChooser};

use super::rig::{
    Ending, Host, READY_MAX, card_log, chain, client, missing, observe_card, ready, run, starts,
    station,
};

/// Addresses of client and store through the cards, and on the pair of devices beside them.
const BY_CARD: [&str; 2] = ["10.86.0.1", "10.86.0.2"];
const DIRECT: [&str; 2] = ["10.87.0.1", "10.87.0.2"];
/// The transport adds 24 bytes to packets of 1,500.
const HOST_MTU: u32 = 1_476;
/// Pairs that the cache of the paper's card holds: 192 KiB of 1 KiB each.
const CACHED: u32 = 192;

/// Workloads: reads and writes of 100 operations, by the workload's letter.
const WORKLOADS: [(&str, &str, &str); 3] =
    [("A", "0.5", "0.5"), ("B", "0.95", "0.05"), ("C", "1", "0")];

/// Why YCSB cannot run here.
fn lacks() -> Option<&'static str> {
    let java = Command::new("javac").arg("-version").output().is_err();
    if java || Command::new("mvn").arg("-v").output().is_err() {
        return Some("it needs mvn and a JDK");
    }
    None
}

/// The classes of `integration/ycsb` and what they need, built once.
fn classes() -> &'static str {
    static CLASSES: OnceLock<String> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let programs = program("snicd");
        let target = programs.parent().and_then(Path::parent).expect("it is in a target folder");
        let build: PathBuf = target.join("ycsb");
        let mut maven = Command::new("mvn");
        maven.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../ycsb"));
        maven.args(["-q", "-B", "compile"]).arg(format!("-Dsnic.build={}", build.display()));
        let output = maven.output().expect("mvn starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        format!("{0}/classes:{0}/dependency/*", build.display())
    })
}

/// Output of YCSB.
#[derive(Debug, Clone, Default)]
struct Report {
    /// Numbers by section and name.
    numbers: BTreeMap<(String, String), f64>,
}

impl Report {
    fn read(text: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.split(", ");
            let section = words.next()?.strip_prefix('[')?.strip_suffix(']')?.to_owned();
            let name = words.next()?.to_owned();
            Some(((section, name), words.next()?.trim().parse().ok()?))
        };
        Self { numbers: text.lines().filter_map(line).collect() }
    }

    fn number(&self, section: &str, name: &str) -> f64 {
        self.numbers.get(&(section.to_owned(), name.to_owned())).copied().unwrap_or_default()
    }

    /// Operations whose result was not OK, of any kind; YCSB has a line for each result.
    fn failed(&self) -> Vec<&(String, String)> {
        let is_failure = |(section, name): &&(String, String)| {
            (name.starts_with("Return=") && name != "Return=OK") || section.contains("FAILED")
        };
        self.numbers.keys().filter(is_failure).collect()
    }
}

/// Size that YCSB gets.
#[derive(Debug, Clone, Copy)]
struct Size {
    keys: u32,
    operations: u32,
    threads: u32,
}

/// A store as YCSB reaches it.
#[derive(Debug, Clone, Copy)]
struct Target<'a> {
    binding: &'a str,
    address: &'a str,
}

fn memcached(address: &str) -> Target<'_> {
    Target { binding: "snic.ycsb.MemcachedUdp", address }
}

fn redis(address: &str) -> Target<'_> {
    Target { binding: "snic.ycsb.RedisTcp", address }
}

/// YCSB's client in a namespace, with the properties of its default records: ten fields of 100 bytes.
fn ycsb(
    host: &Host,
    phase: &str,
    target: Target<'_>,
    size: Size,
    workload: (&str, &str, &str),
) -> Report {
    let (_, reads, writes) = workload;
    let mut command = host.command("java -cp");
    command.arg(classes()).args(["site.ycsb.Client", phase, "-db", target.binding]);
    command.args(["-threads", &size.threads.to_string()]);
    let (keys, operations) = (size.keys.to_string(), size.operations.to_string());
    for (key, value) in [
        ("workload", "site.ycsb.workloads.CoreWorkload"),
        ("recordcount", &*keys),
        ("operationcount", &*operations),
        ("readproportion", reads),
        ("updateproportion", writes),
        ("requestdistribution", "zipfian"),
        ("writeallfields", "true"),
        ("dataintegrity", "true"),
        ("store.host", target.address),
    ] {
        command.args(["-p", &format!("{key}={value}")]);
    }
    let output = command.output().expect("ip starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{why}");
    // YCSB prints to the one, the binding at its end to the other.
    let report = Report::read(&format!("{said}\n{why}"));
    let count = |section: &str| report.number(section, "Return=OK");
    let done = match phase {
        "-load" => count("INSERT") == f64::from(size.keys),
        _ => count("READ") + count("UPDATE") == f64::from(size.operations),
    };
    assert!(done && report.failed().is_empty(), "{:?}: {said}{why}", report.failed());
    // Each value that was read is the one that its key and its field's name give.
    assert_eq!(count("VERIFY"), count("READ"), "{said}{why}");
    report
}

/// A daemon with a card.
struct Card {
    home: Home,
    _daemon: DaemonProcess,
    client: TestClient,
    ports: Vec<String>,
}

fn name(dag: &str) -> DagName {
    DagName { tenant: "acme".parse().expect("a label"), dag: dag.parse().expect("a label") }
}

impl Card {
    /// Its ports: uplink, then functions; and the NT of each function's DAG, which bears its name.
    async fn new(ports: &dyn Fn(&Path) -> Vec<String>, nts: &[&str]) -> Self {
        let home = Home::new();
        let ports = ports(home.path());
        let (uplink, functions) = ports.split_first().expect("an uplink");
        home.write_soft_settings(&format!("uplink = {uplink:?}\nfunctions = {functions:?}"));
        let daemon = home.start().await;
        let until = Instant::now() + READY_MAX;
        while !home.card_folder().join("card.sock").exists() {
            assert!(Instant::now() < until, "no card: {:?}", card_log(&home));
            std::thread::sleep(Duration::from_millis(10));
        }
        let client = client(&home).await;
        client.register(&catalogue::builtin().expect("the built-in catalogue")).await;
        client.create_tenant("acme").await.expect("a new tenant");
        for (function, nt) in (0..).zip(nts) {
            let spec = chain(&[(nt, None)]);
            let operation = client.create_dag(&name(nt), &spec).await.expect("there is room");
            client.wait(&operation).await.expect("it becomes ready");
            client.lead_function(function, &name(nt)).await.expect("the DAG is there");
        }
        ready(&client).await;
        Self { home, _daemon: daemon, client, ports }
    }

    /// Has the NT do this; without a configuration it passes packets on as they are.
    async fn tell(&self, nt: &str, told: Option<serde_json::Value>) {
        let spec = chain(&[(nt, told)]);
        let operation = self.client.update_dag(&name(nt), &spec).await.expect("it fits");
        self.client.wait(&operation).await.expect("it is ready");
    }

    fn observe(&self) -> Observation {
        observe_card(&self.home.card_folder(), &self.ports)
    }
}

/// NTs of an arm, or that there is no card.
#[derive(Debug, Clone, Copy)]
struct Arm {
    name: &'static str,
    binding: fn(&str) -> Target<'_>,
    /// Transport and cache, where there are cards.
    by_card: Option<(bool, bool)>,
}

const ARMS: [Arm; 6] = [
    Arm { name: "memcached, no card", binding: memcached, by_card: None },
    Arm { name: "Redis, no card", binding: redis, by_card: None },
    Arm { name: "cards, NTs pass", binding: memcached, by_card: Some((false, false)) },
    Arm { name: "cards, transport", binding: memcached, by_card: Some((true, false)) },
    Arm { name: "cards, cache", binding: memcached, by_card: Some((false, true)) },
    Arm { name: "cards, transport and cache", binding: memcached, by_card: Some((true, true)) },
];

/// Reports and hits by workload and arm.
type Seen = BTreeMap<(usize, usize), Vec<(Report, u64)>>;

/// Two hosts, two cards between them, and a pair of devices beside.
struct Net {
    client: Host,
    store: Host,
    near: Card,
    far: Card,
    _stores: [Ending; 2],
    _line: Line,
    size: Size,
}

/// A pair of devices between two cards; gone with its value.
struct Line(String);

impl Line {
    fn new(near: &str, far: &str) -> Self {
        let line = Self(near.to_owned());
        // One that a killed run has left is of no use to anybody.
        line.remove();
        run("ip", &format!("link add {near} type veth peer name {far}"));
        for end in [near, far] {
            run("ip", &format!("link set {end} addrgenmode none up"));
        }
        line
    }

    fn remove(&self) {
        let _ = Command::new("ip").args(["link", "del", &self.0]).output();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Net {
    async fn new(short: &str, size: Size) -> Self {
        let device = |end: &str| format!("{short}{end}");
        let [near, far] = ["n", "f"].map(device);
        let line = Line::new(&near, &far);
        let [c, s] = ["c", "s"].map(device);
        let of_client = |_: &Path| vec![format!("interface:{near}"), format!("tap:{c}")];
        let of_store = |home: &Path| {
            let unused = format!("unix:{}", home.join("up.sock").display());
            vec![unused, format!("tap:{s}"), format!("interface:{far}")]
        };
        let near = Card::new(&of_client, &["go-back-n"]).await;
        let far = Card::new(&of_store, &["kv-cache", "go-back-n"]).await;
        let [client, store] = [(&c, BY_CARD[0]), (&s, BY_CARD[1])]
            .map(|(device, address)| Host::new(device, &format!("{address}/24")));
        let net = [&client, &store];
        for (at, own) in [&c, &s].into_iter().enumerate() {
            let (here, there) = (net[at], net[1 - at]);
            let inside = |line: &str| run("ip", &format!("-n {} {line}", here.namespace));
            let other = station(there, [&c, &s][1 - at]);
            inside(&format!("link set {own} mtu {HOST_MTU}"));
            inside(&format!("neigh replace {} lladdr {other} dev {own}", BY_CARD[1 - at]));
        }
        let [a, b] = ["dc", "ds"].map(device);
        let pair = format!(
            "link add {a} netns {} type veth peer name {b} netns {}",
            client.namespace, store.namespace
        );
        run("ip", &pair);
        for (host, device, address) in [(&client, &a, DIRECT[0]), (&store, &b, DIRECT[1])] {
            let inside = |line: &str| run("ip", &format!("-n {} {line}", host.namespace));
            inside(&format!("address add {address}/24 dev {device}"));
            inside(&format!("link set {device} mtu {HOST_MTU} up"));
        }
        let memory = store.start("memcached -u nobody -l 0.0.0.0 -U 11211 -m 1024");
        let mut redis =
            store.command("redis-server --bind 0.0.0.0 --protected-mode no --appendonly no --save");
        let redis = Ending(Some(redis.arg("").stdout(Stdio::null()).spawn().expect("ip starts")));
        Self { client, store, near, far, _stores: [memory, redis], _line: line, size }
    }

    /// The store's link, for what the store sends.
    fn limit(&self, short: &str, rate: &str) {
        for device in [format!("{short}s"), format!("{short}ds")] {
            let line = format!(
                "tc qdisc replace dev {device} root tbf rate {rate} burst 256kb latency 50ms"
            );
            let done = self.store.run(&line);
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
    }

    /// Fills both stores, from the store's own host.
    fn fill(&self) {
        let until = Instant::now() + READY_MAX;
        for port in [11_211, 6_379] {
            let check =
                format!("python3 -c __import__('socket').create_connection(('127.0.0.1',{port}))");
            while !self.store.run(&check).status.success() {
                assert!(Instant::now() < until, "nobody listens at port {port}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        for binding in [memcached, redis] {
            ycsb(&self.store, "-load", binding("127.0.0.1"), self.size, WORKLOADS[2]);
        }
    }

    /// Reads that the card has answered since the NT was last configured.
    fn hits(&self) -> u64 {
        let seen = self.far.observe();
        seen.tasks.iter().filter(|task| task.nt_type == "kv-cache").map(|task| task.replied).sum()
    }

    /// Sets an arm's NTs up: all anew.
    async fn prepare(&self, arm: Arm) {
        let Some((transport, cache)) = arm.by_card else { return };
        let end = |local: &str, peer: &str| json!({"local": local, "peer": peer, "window": 128, "timeout_ms": 50, "retries_max": 1_000});
        let cached = json!({"server": BY_CARD[1], "items_max": CACHED, "value_bytes_max": 1_200, "settling_ms": 100});
        self.far.tell("kv-cache", None).await;
        self.near.tell("go-back-n", transport.then(|| end(BY_CARD[0], BY_CARD[1]))).await;
        self.far.tell("go-back-n", transport.then(|| end(BY_CARD[1], BY_CARD[0]))).await;
        self.far.tell("kv-cache", cache.then_some(cached)).await;
        // The store's card knows the store's station by what that sends.
        self.store.run(&format!("ping -c 1 -W 1 {}", BY_CARD[0]));
        let ping = self.client.run(&format!("ping -c 3 -i 0.2 -W 2 {}", BY_CARD[1]));
        let seen = (self.near.observe(), self.far.observe());
        assert!(ping.status.success(), "{}: {seen:?}", arm.name);
    }

    /// Runs every workload on each of these arms, one arm after the other, so often.
    async fn compare(&self, arms: &[usize], runs: u32) -> Seen {
        let mut seen = Seen::new();
        for _ in 0..runs {
            for &at in arms {
                self.prepare(ARMS[at]).await;
                for (which, workload) in WORKLOADS.into_iter().enumerate() {
                    seen.entry((which, at)).or_default().push(self.measure(ARMS[at], workload));
                }
            }
        }
        seen
    }

    /// Runs a workload; returns the report and how many reads the card answered.
    fn measure(&self, arm: Arm, workload: (&str, &str, &str)) -> (Report, u64) {
        let addresses = if arm.by_card.is_some() { BY_CARD } else { DIRECT };
        let before = if arm.by_card.is_some() { self.hits() } else { 0 };
        let target = (arm.binding)(addresses[1]);
        let report = ycsb(&self.client, "-t", target, self.size, workload);
        let hits = if arm.by_card.is_some() { self.hits() - before } else { 0 };
        (report, hits)
    }
}

/// Keys are read as often by YCSB's own workload as by the figures' key choice.
#[test]
fn keys_are_read_as_often_as_ycsb_reads_them() {
    if let Some(why) = lacks() {
        println!("not run: {why}");
        return;
    }
    const KEYS: u64 = 100_000;
    const DRAWS: u32 = 1_000_000;
    let mut java = Command::new("java");
    java.arg("-cp").arg(classes()).args(["snic.ycsb.KeyFrequencies", "100000", "1000000"]);
    let output = java.output().expect("java starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let count = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.parse::<f64>().ok()?))
    };
    let mut counts: BTreeMap<String, f64> = said.lines().filter_map(count).collect();
    let of = KeyChooser::new(KEYS, 1e10, 0.99).popularities();
    // Pearson's statistic over the 2,000 keys that are read most, and all others as one.
    let mut popular: Vec<(u64, f64)> = (0..KEYS).zip(of).collect();
    popular.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (mut statistic, mut rest) = (0.0, f64::from(DRAWS));
    let mut add = |seen: f64, expected: f64| statistic += (seen - expected).powi(2) / expected;
    for (key, popularity) in &popular[..2_000] {
        let (seen, expected) =
            (counts.remove(&keys::name(*key)).unwrap_or_default(), popularity * f64::from(DRAWS));
        add(seen, expected);
        rest -= expected;
    }
    add(counts.values().sum(), rest);
    // Of 2,000 degrees of freedom: mean 2,000, deviation 63. YCSB draws other keys each time.
    assert!((1_600.0..2_400.0).contains(&statistic), "{statistic}");
    let names = keys::Names::new(KEYS);
    let known = counts.keys().all(|name| names.key(name.as_bytes()).is_some());
    assert!(known, "YCSB reads a key that the figures do not have");
    println!("Pearson's statistic {statistic:.0} with 2,000 degrees of freedom");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ycsbs_operations_are_answered_rightly_with_each_nt_and_by_the_card() {
    let why = missing().or_else(lacks).or_else(|| starts("memcached").err());
    if let Some(why) = why.or_else(|| starts("redis-server").err()) {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("sny", Size { keys: 2_000, operations: 2_000, threads: 4 }).await;
    net.fill();
    for arm in ARMS {
        net.prepare(arm).await;
        let (report, hits) = net.measure(arm, WORKLOADS[0]);
        let has_cache = arm.by_card.is_some_and(|(_, cache)| cache);
        assert_eq!(hits > 0, has_cache, "{}: {hits} hits, {report:?}", arm.name);
        assert!(
            hits as f64 <= report.number("READ", "Operations") + report.number("UDP", "Retries")
        );
        if let Some((transport, _)) = arm.by_card {
            let carried = net.near.observe().tasks.iter().map(|task| task.forwarded).sum::<u64>();
            assert_eq!(carried >= 2_000, transport, "{}: {carried} packets", arm.name);
        }
    }
    let both = ARMS[ARMS.len() - 1];
    let (report, hits) = net.measure(both, WORKLOADS[2]);
    assert!(hits > 100, "{hits} hits of 2,000 reads: {report:?}");
}

fn told(variable: &str, otherwise: u32) -> u32 {
    let text = std::env::var(variable).ok();
    text.map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

fn median(of: &mut [f64]) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Operations a second of a workload on an arm, of that without a card: the median over the turns, each of which has both.
fn gain(seen: &Seen, which: usize, arm: usize) -> f64 {
    let rate = |(report, _): &(Report, u64)| report.number("OVERALL", "Throughput(ops/sec)");
    let turns = seen[&(which, arm)].iter().zip(&seen[&(which, ALONE)]);
    median(&mut turns.map(|(with, without)| rate(with) / rate(without)).collect::<Vec<_>>())
}

/// The arms of Figs. 19 and 20: without a card, with the transport on the cards, and with the cache beside it.
const ALONE: usize = 0;
const TRANSPORT: usize = 3;
const BOTH: usize = 5;

/// The authors' scenario: eight operations under way, a cache that holds every pair, and a store's link that is slow
/// beside all else. The transport on the cards costs throughput, and the cache beside it gains more than that.
/// Not of workload A with the cache: of its writes only short answers cross the link that is slow here, so the processors limit it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly: a measurement of minutes"]
async fn the_transport_costs_and_a_cache_of_every_pair_gains() {
    let why = missing().or_else(lacks).or_else(|| starts("memcached").err());
    if let Some(why) = why.or_else(|| starts("redis-server").err()) {
        println!("not run: {why}");
        return;
    }
    let load = || std::fs::read_to_string("/proc/loadavg").expect("Linux").trim().to_owned();
    // Beside much else the processors limit every arm, and no relation shows: what ran before may end first.
    let until = Instant::now() + Duration::from_secs(600);
    while load().split(' ').next().and_then(|one| one.parse::<f64>().ok()) > Some(3.0) {
        assert!(Instant::now() < until, "the machine is too busy for this: load {}", load());
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let before = load();
    let net = Net::new("snw", Size { keys: CACHED - 2, operations: 6_000, threads: 8 }).await;
    net.fill();
    net.limit("snw", "20mbit");
    let seen = net.compare(&[ALONE, TRANSPORT, BOTH], 5).await;
    println!("load {before} before and {} after", load());
    let mut wrong = Vec::new();
    for (which, (name, ..)) in WORKLOADS.into_iter().enumerate() {
        let (transport, both) = (gain(&seen, which, TRANSPORT), gain(&seen, which, BOTH));
        println!("{name}: {transport:.3} of no card with the transport, {both:.3} with both");
        if transport >= 1.0 {
            wrong.push(format!("{name}: the transport costs nothing"));
        }
        if name != "A" && both <= 1.0 {
            wrong.push(format!("{name}: the cache gains nothing"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly: a measurement of minutes"]
async fn beside_stores_without_a_card() {
    let why = missing().or_else(lacks).or_else(|| starts("memcached").err());
    if let Some(why) = why.or_else(|| starts("redis-server").err()) {
        println!("not run: {why}");
        return;
    }
    let size = Size {
        keys: told("SNIC_YCSB_KEYS", 100_000),
        operations: told("SNIC_YCSB_OPERATIONS", 100_000),
        threads: told("SNIC_YCSB_THREADS", 16),
    };
    let runs = told("SNIC_YCSB_RUNS", 5);
    let rate = std::env::var("SNIC_YCSB_LINK").unwrap_or_else(|_| "10gbit".to_owned());
    let net = Net::new("snz", size).await;
    net.fill();
    net.limit("snz", &rate);
    let seen = net.compare(&[0, 1, 2, 3, 4, 5], runs).await;
    println!(
        "{size:?}, {runs} runs, the store sends at {rate}; medians, and the least and most operations/s"
    );
    println!("load {}", std::fs::read_to_string("/proc/loadavg").expect("Linux").trim());
    println!(
        "| workload | arm | operations/s | least to most | read, mean µs | read, p99 µs | write, mean µs | hits % | retries |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for ((which, at), reports) in &seen {
        let all = |section: &str, name: &str| -> Vec<f64> {
            reports.iter().map(|(report, _)| report.number(section, name)).collect()
        };
        let middle = |section: &str, name: &str| median(&mut all(section, name));
        let mut rates = all("OVERALL", "Throughput(ops/sec)");
        let rate = median(&mut rates);
        let share = |(report, hits): &(Report, u64)| {
            *hits as f64 * 100.0 / report.number("READ", "Operations").max(1.0)
        };
        println!(
            "| {} | {} | {rate:.0} | {:.0} to {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {:.0} |",
            WORKLOADS[*which].0,
            ARMS[*at].name,
            rates[0],
            rates[rates.len() - 1],
            middle("READ", "AverageLatency(us)"),
            middle("READ", "99thPercentileLatency(us)"),
            middle("UPDATE", "AverageLatency(us)"),
            median(&mut reports.iter().map(share).collect::<Vec<_>>()),
            middle("UDP", "Retries"),
        );
    }
    for card in [&net.near, &net.far] {
        println!("{:?}", card.observe());
    }
}
