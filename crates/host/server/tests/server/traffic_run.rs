//! Runs of traffic, on a card that counts what the test tells it to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::traffic_service_client::TrafficServiceClient;
use snic_controller::DropCause;
use snic_domain::{Bandwidth, CardId};
use snic_ports::generator::{
    GeneratedLoad, GeneratorError, LoadCounts, LoadLatency, LoadReading, RunningLoad,
    TrafficGenerator,
};
use tonic::{Code, Status, Streaming};

use crate::rig::{Client, Rig, chain, in_time};

const DAG: &str = "tenants/acme/dags/web";
/// Packets that a load makes between two readings.
const PACKETS: u64 = 100;

/// A card that makes [`PACKETS`] packets between two readings, of which one is dropped.
#[derive(Default)]
struct Counting {
    open: Arc<AtomicUsize>,
    asked: Mutex<Vec<GeneratedLoad>>,
    is_lost: bool,
}

struct Load {
    readings: u64,
    is_lost: bool,
    open: Arc<AtomicUsize>,
}

impl TrafficGenerator for Counting {
    fn rate_max(&self) -> Bandwidth {
        Bandwidth::from_gbps(100)
    }

    fn start(&self, load: &GeneratedLoad) -> Result<Box<dyn RunningLoad>, GeneratorError> {
        self.asked.lock().push(load.clone());
        self.open.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Load { readings: 0, is_lost: self.is_lost, open: Arc::clone(&self.open) }))
    }
}

fn counts(readings: u64) -> LoadCounts {
    let packets = readings * PACKETS;
    let mut drops = [0; DropCause::ALL.len()];
    drops[DropCause::RateLimited as usize] = readings;
    LoadCounts {
        elapsed: Duration::from_millis(readings),
        packets_offered: packets,
        bytes_offered: packets * 64,
        packets_served: packets - readings,
        bytes_served: (packets - readings) * 64,
        packets_made: 0,
        drops,
        latency: LoadLatency { min: 1, mean: 2, p50: 3, p90: 4, p99: 5, p999: 6, max: 7 },
    }
}

impl RunningLoad for Load {
    fn read(&mut self) -> Result<LoadReading, GeneratorError> {
        if self.is_lost {
            return Err(GeneratorError::Lost("/run/secret/card.sock is gone".into()));
        }
        self.readings += 1;
        Ok(LoadReading { total: counts(self.readings), recent: counts(1), is_sending: false })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn rig_with(generator: Option<Arc<Counting>>) -> (Rig, Client) {
    let rig = Rig::adjusted(|settings| {
        if let Some(generator) = generator {
            let card = CardId::new("card0").expect("valid");
            settings.card_links.set_generator(card, generator);
        }
    })
    .await;
    let mut operator = rig.furnished().await;
    operator.ready_dag(DAG, chain(&["nat", "firewall"])).await;
    (rig, operator)
}

fn request(millis: i32) -> v1::RunTrafficRequest {
    let duration = prost_types::Duration {
        seconds: i64::from(millis / 1_000),
        nanos: millis % 1_000 * 1_000_000,
    };
    v1::RunTrafficRequest {
        name: DAG.into(),
        rate_bps: 5_000_000_000,
        duration: Some(duration),
        ..Default::default()
    }
}

async fn run(
    client: &Client,
    request: v1::RunTrafficRequest,
) -> Result<Streaming<v1::RunTrafficResponse>, Status> {
    let mut traffic = TrafficServiceClient::new(client.channel.clone());
    in_time(traffic.run_traffic(request)).await.map(tonic::Response::into_inner)
}

async fn until_closed(generator: &Counting) {
    let closed = async {
        while generator.open.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(closed).await;
}

#[tokio::test]
async fn a_tenant_is_told_each_second_and_at_the_end_what_became_of_its_packets() {
    let generator = Arc::new(Counting::default());
    let (rig, _operator) = rig_with(Some(Arc::clone(&generator))).await;
    let tenant = rig.client("tenant/acme").await;
    let mut stream = run(&tenant, request(1_100)).await.expect("it is its own");
    let mut messages = Vec::new();
    while let Some(message) = in_time(stream.message()).await.expect("no error") {
        messages.push(message);
    }
    assert_eq!(messages.len(), 2, "{messages:?}");
    let last = messages[1].total.clone().expect("it is set");
    assert_eq!((last.packets_offered, last.packets_served), (2 * PACKETS, 2 * PACKETS - 2));
    assert_eq!(last.bytes_offered, 2 * PACKETS * 64);
    let drops: Vec<_> = last.drops.iter().map(|drops| (&*drops.cause, drops.packets)).collect();
    assert_eq!(drops, [("RATE_LIMITED", 2)]);
    let latency = last.latency.expect("packets left");
    let nanos = [latency.min, latency.mean, latency.p50, latency.p90, latency.p99, latency.p999];
    let nanos: Vec<_> = nanos.into_iter().flatten().map(|time| time.nanos).collect();
    assert_eq!(nanos, [1, 2, 3, 4, 5, 6]);
    let recent = messages[1].recent.clone().expect("it is set");
    assert_eq!(recent.packets_offered, PACKETS);
    let asked = generator.asked.lock().clone();
    assert_eq!((asked.len(), asked[0].rate_bps), (1, 5_000_000_000));
    assert_eq!(asked[0].duration, Duration::from_millis(1_100));
    until_closed(&generator).await;
}

#[tokio::test]
async fn a_card_without_a_generator_says_so_and_no_tenant_runs_anothers_dag() {
    let (rig, operator) = rig_with(None).await;
    let status = run(&operator, request(100)).await.expect_err("no generator");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidState));
    assert!(status.message().contains("card0 makes no packets"), "{}", status.message());
    let globex = rig.client("tenant/globex").await;
    let status = run(&globex, request(100)).await.expect_err("not its own");
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test]
async fn more_than_the_port_takes_in_is_refused() {
    let generator = Arc::new(Counting::default());
    let (_rig, operator) = rig_with(Some(Arc::clone(&generator))).await;
    let fast = v1::RunTrafficRequest { rate_bps: 100_000_000_001, ..request(100) };
    let status = run(&operator, fast).await.expect_err("too fast");
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidField));
    assert!(status.message().contains("1 to 100000000000 bit/s"), "{}", status.message());
    assert!(generator.asked.lock().is_empty(), "nothing was begun");
}

#[tokio::test]
async fn a_tenant_has_two_runs_at_once_and_leaves_room_for_others() {
    let generator = Arc::new(Counting::default());
    let (rig, mut operator) = rig_with(Some(Arc::clone(&generator))).await;
    let others = "tenants/globex/dags/web";
    operator.ready_dag(others, chain(&["nat"])).await;
    let tenant = rig.client("tenant/acme").await;
    let first = run(&tenant, request(600_000)).await.expect("room");
    let _second = run(&tenant, request(600_000)).await.expect("room");
    // However often it tries.
    for _ in 0..20 {
        let status = run(&tenant, request(600_000)).await.expect_err("a third");
        assert_eq!(status.code(), Code::ResourceExhausted);
    }
    assert_eq!(generator.open.load(Ordering::SeqCst), 2);
    let globex = rig.client("tenant/globex").await;
    let theirs = v1::RunTrafficRequest { name: others.into(), ..request(600_000) };
    let _third = run(&globex, theirs).await.expect("others have their own");
    // Who goes ends its run.
    drop(first);
    let again = async {
        while run(&tenant, request(600_000)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(again).await;
}

#[tokio::test]
async fn a_run_ends_with_its_dag_and_the_card_is_told() {
    let generator = Arc::new(Counting::default());
    let (_rig, mut operator) = rig_with(Some(Arc::clone(&generator))).await;
    let mut stream = run(&operator, request(600_000)).await.expect("it is there");
    let request = v1::DeleteDagRequest { name: DAG.into(), ..Default::default() };
    let deleted = operator.dags.delete_dag(request).await.item().expect("accepted");
    operator.wait(&deleted.name).await;
    let ended = async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                other => break other,
            }
        }
    };
    let status = in_time(ended).await.expect_err("the DAG is gone");
    assert_eq!(status.code(), Code::NotFound);
    until_closed(&generator).await;
}

#[tokio::test]
async fn a_run_ends_with_its_card_and_names_nothing_of_the_host() {
    let generator = Arc::new(Counting { is_lost: true, ..Counting::default() });
    let (_rig, operator) = rig_with(Some(Arc::clone(&generator))).await;
    let mut stream = run(&operator, request(600_000)).await.expect("it is begun");
    let status = in_time(stream.message()).await.expect_err("the card is lost");
    assert_eq!(status.code(), Code::Unavailable);
    assert!(!status.message().contains("secret"), "{}", status.message());
    until_closed(&generator).await;
}
