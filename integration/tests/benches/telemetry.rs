//! What telemetry costs: two daemons side by side, one with all of it on (traces, metrics and log
//! lines to a collector, and a page that Prometheus reads every second), one with none. Creates a
//! second by 64 clients, and the time of an epoch, in turns.
//!
//! `cargo build --release -p snicd && cargo bench -p snic-integration --bench telemetry`

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::logs::v1 as logs;
use opentelemetry_proto::tonic::collector::metrics::v1 as metrics;
use opentelemetry_proto::tonic::collector::trace::v1 as trace;
use snic_api::v1::GetDiagnosticsRequest;
use snic_domain::{Bandwidth, DagName, DagSpec, NtTypeId};
use snic_integration::{Client, Daemon, Home};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// Clients at once.
const CLIENTS: u64 = 64;
/// DAGs of a turn: a card has 1,024 rows for them.
const CHUNK: u64 = 512;
/// Turns of each daemon.
const TURNS: usize = 15;

/// A collector that takes all and keeps nothing.
#[derive(Clone)]
struct Sink;

#[tonic::async_trait]
impl trace::trace_service_server::TraceService for Sink {
    async fn export(
        &self,
        _: Request<trace::ExportTraceServiceRequest>,
    ) -> Result<Response<trace::ExportTraceServiceResponse>, Status> {
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl metrics::metrics_service_server::MetricsService for Sink {
    async fn export(
        &self,
        _: Request<metrics::ExportMetricsServiceRequest>,
    ) -> Result<Response<metrics::ExportMetricsServiceResponse>, Status> {
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl logs::logs_service_server::LogsService for Sink {
    async fn export(
        &self,
        _: Request<logs::ExportLogsServiceRequest>,
    ) -> Result<Response<logs::ExportLogsServiceResponse>, Status> {
        Ok(Response::new(Default::default()))
    }
}

async fn collector() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let server = tonic::transport::Server::builder()
        .add_service(trace::trace_service_server::TraceServiceServer::new(Sink))
        .add_service(metrics::metrics_service_server::MetricsServiceServer::new(Sink))
        .add_service(logs::logs_service_server::LogsServiceServer::new(Sink));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    address
}

/// A daemon with its clients.
struct Side {
    home: Home,
    _daemon: Daemon,
    clients: Vec<Client>,
    next: u64,
    rates: Vec<f64>,
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
            let client = Client::connect(&home.socket(), "operator/bench").await;
            clients.push(client.expect("it serves"));
        }
        clients[0].create_tenant("bench").await.expect("a tenant");
        clients[0].register(&snic_bitstream::catalogue::builtin().expect("the catalogue")).await;
        Self { home, _daemon: daemon, clients, next: 0, rates: Vec::new() }
    }

    async fn turn(&mut self) {
        let first = self.next;
        self.next += CHUNK;
        let took = self.each(first, true).await;
        self.rates.push(CHUNK as f64 / took.as_secs_f64());
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
    async fn epochs(&self) -> (f64, f64) {
        let client = Client::connect(&self.home.socket(), "operator/bench").await;
        let mut system = client.expect("it serves").system();
        let found = system.get_diagnostics(GetDiagnosticsRequest {}).await.expect("an answer");
        let metrics = found.into_inner().metrics;
        let value = |name: &str| -> f64 {
            let line = metrics.lines().find(|line| line.starts_with(name));
            let last = line.and_then(|line| line.rsplit(' ').next());
            last.and_then(|value| value.parse().ok()).unwrap_or(0.0)
        };
        (value("snic_epoch_duration_seconds_sum"), value("snic_epoch_duration_seconds_count"))
    }

    fn median(&mut self) -> f64 {
        self.rates.sort_by(f64::total_cmp);
        self.rates[self.rates.len() / 2]
    }
}

/// Reads the page as Prometheus does, every second.
fn scrape(address: SocketAddr) {
    std::thread::spawn(move || {
        loop {
            if let Ok(mut stream) = TcpStream::connect(address) {
                let mut page = Vec::new();
                let asked = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
                // Once the daemon is gone nobody answers.
                let _ = asked.and_then(|()| stream.read_to_end(&mut page));
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    });
}

#[tokio::main]
async fn main() {
    let otlp = collector().await;
    let page = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let mut off = Side::start("").await;
    let on = format!("[telemetry]\notlp = \"http://{otlp}\"\nprometheus = \"{page}\"");
    let mut on = Side::start(&on).await;
    scrape(page);
    let before = (off.epochs().await, on.epochs().await);
    for turn in 0..TURNS {
        // Who goes first takes turns too.
        if turn % 2 == 0 {
            off.turn().await;
            on.turn().await;
        } else {
            on.turn().await;
            off.turn().await;
        }
    }
    let after = (off.epochs().await, on.epochs().await);
    let mean = |before: (f64, f64), after: (f64, f64)| {
        (after.0 - before.0) / (after.1 - before.1).max(1.0) * 1e6
    };
    let epochs = (mean(before.0, after.0), mean(before.1, after.1));
    let rates = (off.median(), on.median());
    let differs = |off: f64, on: f64| (on / off - 1.0) * 100.0;
    println!("telemetry          off        on   difference");
    println!(
        "creates a second {:>6.0}    {:>6.0}   {:+.1} %",
        rates.0,
        rates.1,
        differs(rates.0, rates.1)
    );
    println!(
        "epoch, µs        {:>6.1}    {:>6.1}   {:+.1} %",
        epochs.0,
        epochs.1,
        differs(epochs.0, epochs.1)
    );
}
