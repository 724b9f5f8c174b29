//! Cost of ten thousand watches: creates a second without watches, with watches of another
//! tenant, and with watches of this tenant, which get every change.
//!
//! Server and watchers share a process and its processors; the store is in memory, so that nothing
//! hides behind a disk. Limits are raised: by default a server has room for 1,024 watches.
//!
//! `cargo bench -p snic-integration --bench watchers`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mimalloc::MiMalloc;
use snic_api::v1::WatchDagsRequest;
use snic_bitstream::catalogue;
use snic_card_sim::{SharedSimCard, SimCard};
use snic_controller::{Controller, ControllerSettings};
use snic_domain::{Bandwidth, DagName, DagSpec, NtTypeId};
use snic_front::identity::TrustDomain;
use snic_front::settings::Limits;
use snic_front::uploads::{UploadCheck, UploadFindings};
use snic_integration::TestClient;
use snic_ports::store::memory::MemoryStore;
use snic_server::ServerSettings;
use snic_server::shell::{self, CardSlot};

/// As in the daemon.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Watches at once.
const WATCHERS: usize = 10_000;
/// Watches of one connection.
const EACH: usize = 500;
/// Clients that create.
const CLIENTS: u64 = 8;
/// DAGs of a turn.
const DAGS: u64 = 512;
/// Turns, of which the first does not count.
const TURNS: u64 = 5;

/// A server in this process, on a unix socket.
async fn serve(folder: &std::path::Path) -> (TestClient, shell::ControlPlaneThreads) {
    let catalogue = catalogue::builtin().expect("the built-in catalogue");
    let profile = catalogue.card(&"sim-16".parse().expect("a label")).expect("there").clone();
    let card = SharedSimCard::new(SimCard::new(profile.clone(), 1).expect("a valid profile"));
    let open = Box::new(move || Ok((Box::new(card.clone()) as _, profile.clone())));
    let slot = CardSlot::of_registers("card0".parse().expect("a label"), open);
    let controller =
        Controller::recover(ControllerSettings::default(), [], 1, snic_front::wall_clock());
    let controller = controller.expect("an empty store");
    let store = Arc::new(MemoryStore::new());
    let (plane, running) = shell::start(controller, store, vec![slot]).expect("threads");
    let socket = folder.join("socket");
    let domain = TrustDomain::new("snic.local").expect("a domain");
    let limits = Limits {
        streams_max: 2 * WATCHERS,
        streams_per_caller_max: 2 * WATCHERS,
        calls_per_connection_max: EACH + 8,
        ..Limits::default()
    };
    let mut settings =
        ServerSettings::new(domain, UploadCheck::new(|_| Ok(UploadFindings::default())));
    settings.front.unix = Some(socket.clone());
    settings.front.unix_peers = snic_integration::everybody();
    settings.front.limits = limits;
    tokio::spawn(snic_server::serve(plane, settings, std::future::pending()));
    let client = loop {
        match TestClient::connect(&socket, "operator/bench").await {
            Some(client) => break client,
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    client.create_tenant("bench").await.expect("a tenant");
    client.create_tenant("quiet").await.expect("a tenant");
    client.register(&catalogue).await;
    (client, running)
}

/// Watches that read every event; they end with their tasks.
async fn watch(
    folder: &std::path::Path,
    tenant: &str,
    events: &Arc<AtomicU64>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let mut tasks = Vec::new();
    while tasks.len() < WATCHERS {
        let client = TestClient::connect(&folder.join("socket"), "operator/watcher").await;
        let client = client.expect("it serves");
        for _ in 0..EACH {
            let parent = format!("tenants/{tenant}");
            let request = WatchDagsRequest { parent, ..Default::default() };
            let watch = client.dags().watch_dags(request).await;
            let (mut stream, events) = (watch.expect("room").into_inner(), Arc::clone(events));
            tasks.push(tokio::spawn(async move {
                while stream.message().await.expect("it goes on").is_some() {
                    events.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
    }
    tasks
}

/// Creates and deletes DAGs; returns the creates a second.
async fn turn(client: &TestClient, first: u64) -> f64 {
    let mut rate = 0.0;
    for create in [true, false] {
        let began = Instant::now();
        let tasks: Vec<_> = (0..CLIENTS)
            .map(|worker| {
                let client = client.clone();
                tokio::spawn(async move {
                    let nts = ["firewall", "aes"].map(|nt| NtTypeId::new(nt).expect("a label"));
                    let spec = DagSpec::chain(&nts, Bandwidth::from_mbps(1));
                    for number in (first..first + DAGS).filter(|n| n % CLIENTS == worker) {
                        let tenant = "bench".parse().expect("a label");
                        let dag = format!("d{number}").parse().expect("a label");
                        let name = DagName { tenant, dag };
                        if create {
                            client.create_dag(&name, &spec).await.expect("room");
                        } else {
                            client.delete_dag(&name).await.expect("it is there");
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        if create {
            rate = DAGS as f64 / began.elapsed().as_secs_f64();
        }
    }
    rate
}

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let (client, running) = serve(folder.path()).await;
    let mut next = 0;
    println!("{:<42} {:>10} {:>12}", "beside", "creates/s", "events");
    for (who, tenant) in [
        ("nobody", None),
        ("10,000 who watch another tenant", Some("quiet")),
        ("10,000 who watch this tenant", Some("bench")),
    ] {
        let events = Arc::default();
        let tasks = match tenant {
            Some(tenant) => watch(folder.path(), tenant, &events).await,
            None => Vec::new(),
        };
        let mut rates = Vec::new();
        for turn_number in 0..TURNS {
            let rate = turn(&client, next).await;
            next += DAGS;
            if turn_number > 0 {
                rates.push(rate);
            }
        }
        rates.sort_by(f64::total_cmp);
        let events = events.load(Ordering::Relaxed);
        println!("{who:<42} {:>10.0} {events:>12}", rates[rates.len() / 2]);
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
    drop(running);
}
