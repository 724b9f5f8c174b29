//! Cost of telemetry: two daemons side by side, one with all of it on (traces, metrics and log
//! lines to a collector, and a page that Prometheus reads every 5 s), one with none. Creates a
//! second by 64 clients, and the time of an epoch, in turns: the results are the medians of all
//! turns, and the median of the differences between consecutive turns.
//!
//! Besides, the processor time that each daemon takes for a DAG, created and deleted, with all that
//! it does meanwhile: this number does not depend on what else the machine does. The collector is a
//! separate process that accepts everything and keeps nothing; its processor time is reported
//! separately, since it shares the processors here.
//!
//! `cargo build --release -p snicd && cargo bench -p snic-integration --bench telemetry`

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use snic_api::replies::ItemOf as _;
use snic_api::v1::GetDiagnosticsRequest;
use snic_domain::{Bandwidth, DagName, DagSpec, NtTypeId};
use snic_integration::{DaemonProcess, Home, TestClient};

/// Clients at once.
const CLIENTS: u64 = 64;
/// DAGs of a turn: a card has 1,024 rows for them.
const CHUNK: u64 = 512;
/// Turns of each daemon.
const TURNS: usize = 60;
/// Turns at the start that do not count: stores and caches are empty.
const WARM_UP: usize = 4;
/// The argument that makes this program the collector.
const COLLECTOR: &str = "--collector";

/// Serves as a collector until it is killed; prints its address first.
async fn collect() {
    let (address, task) = snic_integration::Collector::forgetting().serve().await;
    println!("{address}");
    task.await.expect("it serves");
}

/// The collector's process.
struct Collector {
    process: Child,
    address: String,
}

impl Collector {
    fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let command = command.arg(COLLECTOR).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let mut address = String::new();
        let words = process.stdout.as_mut().expect("it is piped");
        BufReader::new(words).read_line(&mut address).expect("it says where");
        Self { process, address: address.trim().to_owned() }
    }
}

/// Processor time of a process so far, in seconds, as the kernel's scheduler counts it, without
/// that of threads that have ended.
fn busy(process: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    let of = |task: std::io::Result<std::fs::DirEntry>| -> Option<f64> {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    tasks.expect("it runs").filter_map(of).sum::<f64>() / 1e9
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A daemon with its clients.
struct Side {
    _home: Home,
    daemon: DaemonProcess,
    clients: Vec<TestClient>,
    next: u64,
    /// Creates a second, by turn.
    rates: Vec<f64>,
    /// Time of an epoch in µs, by turn.
    epochs: Vec<f64>,
    /// Processor time at the beginning, in seconds.
    busy: f64,
}

fn name(number: u64) -> DagName {
    DagName {
        tenant: "bench".parse().expect("a label"),
        dag: format!("d{number}").parse().expect("a label"),
    }
}

impl Side {
    async fn start(more: &str) -> Self {
        let home = Home::new();
        home.write_settings(more);
        let daemon = home.start().await;
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let client = TestClient::connect(&home.socket(), "operator/bench").await;
            clients.push(client.expect("it serves"));
        }
        clients[0].create_tenant("bench").await.expect("a tenant");
        clients[0].register(&snic_bitstream::catalogue::builtin().expect("the catalogue")).await;
        Self {
            _home: home,
            daemon,
            clients,
            next: 0,
            rates: Vec::new(),
            epochs: Vec::new(),
            busy: 0.0,
        }
    }

    async fn turn(&mut self) {
        let first = self.next;
        self.next += CHUNK;
        let before = self.epoch_times().await;
        let took = self.each(first, true).await;
        let after = self.epoch_times().await;
        self.rates.push(CHUNK as f64 / took.as_secs_f64());
        if after.1 > before.1 {
            self.epochs.push((after.0 - before.0) / (after.1 - before.1) * 1e6);
        }
        self.each(first, false).await;
    }

    async fn each(&self, first: u64, create: bool) -> Duration {
        let began = Instant::now();
        let tasks: Vec<_> = (0..CLIENTS)
            .map(|worker| {
                let client = self.clients[worker as usize].clone();
                tokio::spawn(async move {
                    let nts = ["firewall", "aes"].map(|nt| NtTypeId::new(nt).expect("a label"));
                    let spec = DagSpec::chain(&nts, Bandwidth::from_mbps(1));
                    for number in (first..first + CHUNK).filter(|n| n % CLIENTS == worker) {
                        if create {
                            client.create_dag(&name(number), &spec).await.expect("room");
                        } else {
                            client.delete_dag(&name(number)).await.expect("it is there");
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        began.elapsed()
    }

    /// Sum and count of the epochs so far, in seconds.
    async fn epoch_times(&self) -> (f64, f64) {
        let mut system = self.clients[0].system();
        let found = system.get_diagnostics(GetDiagnosticsRequest {}).await.item();
        let metrics = found.expect("an answer").metrics;
        let value = |name: &str| -> f64 {
            let line = metrics.lines().find(|line| line.starts_with(name));
            let last = line.and_then(|line| line.rsplit(' ').next());
            last.and_then(|value| value.parse().ok()).unwrap_or(0.0)
        };
        (value("snic_epoch_duration_seconds_sum"), value("snic_epoch_duration_seconds_count"))
    }

    fn begin(&mut self) {
        self.rates.clear();
        self.epochs.clear();
        self.busy = busy(self.daemon.id());
    }

    /// Processor time of a DAG since the beginning, in µs.
    fn of_dag(&self) -> f64 {
        (busy(self.daemon.id()) - self.busy) / (TURNS as f64 * CHUNK as f64) * 1e6
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A line of the table: medians, and that of the differences turn by turn.
fn print(what: &str, off: &[f64], on: &[f64]) {
    let differences: Vec<f64> = off.iter().zip(on).map(|(off, on)| on / off - 1.0).collect();
    let by_turn = median(&differences) * 100.0;
    let (off, on) = (median(off), median(on));
    let of_medians = (on / off - 1.0) * 100.0;
    println!("{what:<18} {off:>8.1} {on:>8.1} {of_medians:>+9.1} % {by_turn:>+9.1} %");
}

/// Reads the page as Prometheus does, three times as often as is common.
fn scrape(address: SocketAddr) {
    std::thread::spawn(move || {
        loop {
            if let Ok(mut stream) = TcpStream::connect(address) {
                let mut page = Vec::new();
                let asked = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
                // Once the daemon is gone nobody answers.
                let _ = asked.and_then(|()| stream.read_to_end(&mut page));
            }
            std::thread::sleep(Duration::from_secs(5));
        }
    });
}

#[tokio::main]
async fn main() {
    if std::env::args().any(|word| word == COLLECTOR) {
        return collect().await;
    }
    let collector = Collector::start();
    let page = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let mut off = Side::start("").await;
    let otlp = &collector.address;
    let on = format!("[telemetry]\notlp = \"http://{otlp}\"\nprometheus = \"{page}\"");
    let mut on = Side::start(&on).await;
    scrape(page);
    let (mut of_collector, mut begun) = (busy(collector.process.id()), Instant::now());
    for turn in 0..WARM_UP + TURNS {
        if turn == WARM_UP {
            off.begin();
            on.begin();
            (of_collector, begun) = (busy(collector.process.id()), Instant::now());
        }
        // The sides take turns in going first, too.
        if turn % 2 == 0 {
            off.turn().await;
            on.turn().await;
        } else {
            on.turn().await;
            off.turn().await;
        }
    }
    let took = begun.elapsed().as_secs_f64();
    let of_collector = (busy(collector.process.id()) - of_collector) / took * 100.0;
    let (of_off, of_on) = (off.of_dag(), on.of_dag());
    println!("telemetry               off       on  of medians  turn by turn");
    print("creates a second", &off.rates, &on.rates);
    print("epoch, µs", &off.epochs, &on.epochs);
    let more = (of_on / of_off - 1.0) * 100.0;
    println!("{:<18} {of_off:>8.1} {of_on:>8.1} {more:>+9.1} %", "processor µs a DAG");
    println!("collector: {of_collector:.1} % of one processor");
}
