//! Packets of a DAG, through a card that shows the test's packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::packet_sighting::Step;
use snic_api::v1::traffic_service_client::TrafficServiceClient;
use snic_controller::DropCause;
use snic_domain::{CardId, DagUid, Timestamp};
use snic_ports::packets::{
    PacketStep, PacketWatch, PacketWindow, SeenPacket, SeenPackets, SoftCounts, WatchError,
};
use tonic::{Code, Status, Streaming};

use crate::rig::{Client, Rig, chain, in_time};

/// A card that shows the packets of a channel, to the first watch.
struct Shown {
    from: Mutex<Option<Receiver<SeenPackets>>>,
    open: Arc<AtomicUsize>,
    asked: Mutex<Vec<(DagUid, u32)>>,
}

struct Watch {
    from: Option<Receiver<SeenPackets>>,
    open: Arc<AtomicUsize>,
}

impl PacketWindow for Shown {
    fn counts(&self) -> Result<SoftCounts, WatchError> {
        Ok(SoftCounts::default())
    }

    fn watch(&self, uid: DagUid, bytes: u32) -> Result<Box<dyn PacketWatch>, WatchError> {
        self.asked.lock().push((uid, bytes));
        self.open.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Watch { from: self.from.lock().take(), open: Arc::clone(&self.open) }))
    }
}

impl PacketWatch for Watch {
    fn fetch(&mut self) -> Result<SeenPackets, WatchError> {
        let seen = self.from.as_ref().and_then(|from| from.try_recv().ok());
        Ok(seen.unwrap_or_default())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn shown() -> (Arc<Shown>, Sender<SeenPackets>) {
    let (to, from) = channel();
    let open = Arc::new(AtomicUsize::new(0));
    (Arc::new(Shown { from: Mutex::new(Some(from)), open, asked: Mutex::default() }), to)
}

async fn rig_with(window: Option<Arc<Shown>>) -> (Rig, Client) {
    let rig = Rig::adjusted(|settings| {
        if let Some(window) = window {
            let card = CardId::new("card0").expect("valid");
            settings.card_links.set_window(card, window);
        }
    })
    .await;
    let operator = rig.furnished().await;
    (rig, operator)
}

fn seen(packet: u64, micros: u64, step: PacketStep) -> SeenPacket {
    let at = Timestamp::from_nanos(1_700_000_000_000_000_000) + Duration::from_micros(micros);
    SeenPacket { at, packet, step, length: 64, bytes: vec![packet as u8; 4] }
}

async fn watch(client: &Client, name: &str) -> Result<Streaming<v1::WatchPacketsResponse>, Status> {
    let mut traffic = TrafficServiceClient::new(client.channel.clone());
    let request = v1::WatchPacketsRequest { name: name.into(), packet_bytes_max: 4 };
    in_time(traffic.watch_packets(request)).await.map(tonic::Response::into_inner)
}

const DAG: &str = "tenants/acme/dags/web";

#[tokio::test]
async fn a_tenant_sees_its_packets_with_the_names_of_its_nodes() {
    let (window, to) = shown();
    let (rig, mut operator) = rig_with(Some(Arc::clone(&window))).await;
    let dag = operator.ready_dag(DAG, chain(&["nat", "firewall"])).await;
    let chain = &dag.mapping.as_ref().expect("it is placed").stages[0].branches[0];
    let instance = &chain.instances[0];
    let region: u8 = instance.region.rsplit('/').next().expect("a name").parse().expect("a number");
    let tenant = rig.client("tenant/acme").await;
    let mut stream = watch(&tenant, DAG).await.expect("it is its own");
    let used = (0..).zip(&instance.slots).filter(|(_, slot)| slot.used);
    let slots: Vec<u8> = used.map(|(number, _)| number).collect();
    let passed = |slot: u8| PacketStep::Passed { region, slot };
    let steps = [
        PacketStep::Arrived,
        PacketStep::Admitted,
        PacketStep::Scheduled { region },
        PacketStep::Entered { region },
        passed(slots[0]),
        passed(slots[1]),
        PacketStep::Dropped(DropCause::ByNt),
    ];
    let all = steps.iter().zip(0..).map(|(step, at)| seen(9, at, *step)).collect();
    to.send(SeenPackets { seen: all, lost: 3 }).expect("somebody watches");
    let message = in_time(stream.message()).await.expect("no error").expect("a message");
    assert_eq!(message.lost, 3);
    let told: Vec<_> = message.sightings.iter().map(|s| (s.step(), &*s.node, &*s.region)).collect();
    let at = &*instance.region;
    let nodes: Vec<&str> = chain.nodes.iter().map(String::as_str).collect();
    assert_eq!(
        told,
        [
            (Step::Arrived, "", ""),
            (Step::Admitted, "", ""),
            (Step::Scheduled, "", at),
            (Step::Entered, "", at),
            (Step::Passed, nodes[0], at),
            (Step::Passed, nodes[1], at),
            (Step::Dropped, "", ""),
        ]
    );
    let types: Vec<_> = message.sightings[4..6].iter().map(|s| &*s.nt_type).collect();
    assert_eq!(types, ["ntTypes/nat", "ntTypes/firewall"]);
    let last = &message.sightings[6];
    assert_eq!((&*last.drop_cause, last.packet, last.length_bytes), ("BY_NT", 9, 64));
    assert_eq!(last.data, [9; 4]);
    assert_eq!(last.time.as_ref().map(|time| time.nanos), Some(6_000));
    let uid = DagUid::from_raw(dag.uid);
    assert_eq!(*window.asked.lock(), [(uid, 4)]);
}

#[tokio::test]
async fn a_card_that_shows_no_packets_says_so() {
    let (_rig, mut operator) = rig_with(None).await;
    operator.ready_dag(DAG, chain(&["nat"])).await;
    let status = watch(&operator, DAG).await.expect_err("a simulated card");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidState));
    assert!(status.message().contains("card0 does not show packets"), "{}", status.message());
    let mut traffic = TrafficServiceClient::new(operator.channel.clone());
    let request = v1::WatchPacketsRequest { name: DAG.into(), packet_bytes_max: 9_217 };
    let status = in_time(traffic.watch_packets(request)).await.expect_err("too many bytes");
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidField));
}

#[tokio::test]
async fn a_tenant_takes_two_watches_and_leaves_room_for_others() {
    let (window, _to) = shown();
    let (rig, mut operator) = rig_with(Some(Arc::clone(&window))).await;
    operator.ready_dag(DAG, chain(&["nat"])).await;
    let others = "tenants/globex/dags/web";
    operator.ready_dag(others, chain(&["nat"])).await;
    let tenant = rig.client("tenant/acme").await;
    let first = watch(&tenant, DAG).await.expect("room");
    let _second = watch(&tenant, DAG).await.expect("room");
    let status = watch(&tenant, DAG).await.expect_err("a third");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let globex = rig.client("tenant/globex").await;
    let _third = watch(&globex, others).await.expect("others have their own");
    drop(first);
    let again = async {
        while watch(&tenant, DAG).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(again).await;
}

#[tokio::test]
async fn a_watch_ends_with_its_dag_and_the_card_is_told() {
    let (window, _to) = shown();
    let (_rig, mut operator) = rig_with(Some(Arc::clone(&window))).await;
    operator.ready_dag(DAG, chain(&["nat"])).await;
    let mut stream = watch(&operator, DAG).await.expect("it is there");
    let request = v1::DeleteDagRequest { name: DAG.into(), ..Default::default() };
    let deleted = operator.dags.delete_dag(request).await.item().expect("accepted");
    operator.wait(&deleted.name).await;
    let status = in_time(stream.message()).await.expect_err("the DAG is gone");
    assert_eq!(status.code(), Code::NotFound);
    let told = async {
        while window.open.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(told).await;
}
