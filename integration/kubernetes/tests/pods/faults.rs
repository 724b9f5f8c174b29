//! Faults of a real cluster: each ends in the state that a person expects, with a reason that `kubectl describe` shows.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::json;

use super::site::{
    PORTS, Site, connect_uplink, container_id, example, example_with, tries,
    what_a_deleted_pod_had_is_given_back,
};
use crate::cluster::objects::apply;
use crate::cluster::{self, NODE, until};

/// Time for which the API server is away.
const AWAY: Duration = Duration::from_secs(60);
/// Longest pause between two answers of a pod that pings every 0.2 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Reason in a pod's events where no node has what its claim asks for.
const NO_DEVICE: &str = "cannot allocate all claims";

#[test]
#[ignore = "nightly: eight minutes, in most of which a part of the cluster is away"]
fn faults_of_a_real_cluster_end_as_a_person_expects() {
    let has_kubectl = cluster::kubectl().args(["version", "--client"]).output().is_ok();
    let why = cluster::missing().or_else(|| (!has_kubectl).then(|| "kubectl is missing".into()));
    if let Some(why) = why {
        println!("not run: {why}");
        return;
    }
    let part = ["--exact", "pods::faults::the_faults", "--ignored", "--nocapture"];
    let status = cluster::enter(&part, |_| {});
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "part: of faults_of_a_real_cluster_end_as_a_person_expects"]
async fn the_faults() {
    assert_eq!(std::process::id(), 1, "only in namespaces of its own");
    let mut site = Site::start().await;
    site.create_dag().await;
    a_kubelet_is_away(&mut site).await;
    the_api_server_is_away(&mut site).await;
    a_node_is_drained(&site).await;
    the_driver_is_killed_between_prepare_and_bind(&mut site).await;
    the_card_is_lost(&site).await;
}

/// Applies the example, and waits until the pod's packets are answered.
async fn start_pod(site: &Site) {
    for object in example(&tries()) {
        apply(&site.cluster.client, &object).await;
    }
    site.until_printed("web", "alive", 3).await;
}

async fn is_node_ready(site: &Site) -> Option<bool> {
    let nodes: Api<Node> = Api::all(site.cluster.client.clone());
    let conditions = nodes.get(NODE).await.ok()?.status?.conditions?;
    Some(conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

/// Watches for so long that the pod's packets are answered.
async fn assert_alive_for(site: &Site, time: Duration) {
    let (mut count, mut heard) = (0, Instant::now());
    let began = Instant::now();
    while began.elapsed() < time {
        let now = site.printed_file("web").matches("alive").count();
        if now > count {
            (count, heard) = (now, Instant::now());
        }
        assert!(heard.elapsed() < SILENCE_MAX, "no answer for {:?}", heard.elapsed());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The pod's packets pass all the time, and a deletion waits for the kubelet.
async fn a_kubelet_is_away(site: &mut Site) {
    start_pod(site).await;
    let before = site.pod("shop", "web").await.expect("it runs");
    site.cluster.kill("kubelet");
    let why = site.until_described("pod web", "NodeNotReady").await;
    println!("a kubelet that is away, pod: {why}");
    let why = site.until_described(&format!("node {NODE}"), "NodeStatusUnknown").await;
    println!("a kubelet that is away, node: {why}");
    assert_alive_for(site, Duration::from_secs(2)).await;
    site.cluster.start_kubelet();
    until("the node", || async { is_node_ready(site).await?.then_some(()) }).await;
    assert_alive_for(site, Duration::from_secs(2)).await;
    let after = site.pod("shop", "web").await.expect("it runs");
    assert!(container_id(&before).is_some());
    assert_eq!(container_id(&before), container_id(&after), "the container was started again");

    site.cluster.kill("kubelet");
    site.cluster.kubectl("-n shop delete pod web --wait=false").expect("there");
    assert_eq!(site.bindings().await.len(), 1, "the pod runs until a kubelet ends it");
    site.cluster.start_kubelet();
    until("the pod's end", || async { site.pod("shop", "web").await.is_none().then_some(()) })
        .await;
    site.assert_given_back().await;
}

/// The pod's packets pass all the time. What happened to the card meanwhile is reported afterwards.
async fn the_api_server_is_away(site: &mut Site) {
    start_pod(site).await;
    let before = site.pod("shop", "web").await.expect("it runs");
    let bound = site.bindings().await;
    site.cluster.kill("kube-apiserver");
    site.cordon(true).await;
    assert_alive_for(site, AWAY).await;
    site.cluster.start_api_server().await;
    site.until_taint(Some("snic.dev/cordoned")).await;
    assert_alive_for(site, Duration::from_secs(2)).await;
    let after = site.pod("shop", "web").await.expect("it runs");
    assert_eq!(container_id(&before), container_id(&after), "the container was started again");
    assert_eq!(site.bindings().await[0].etag, bound[0].etag, "it was bound again");
    what_a_deleted_pod_had_is_given_back(site).await;
    for object in example(&tries()) {
        apply(&site.cluster.client, &object).await;
    }
    let why = site.until_described("pod web", NO_DEVICE).await;
    println!("a card cordoned while the API server was away: {why}");
    let slice = format!("resourceslice {NODE}-snic.dev");
    println!("its slice: {}", site.until_described(&slice, "snic.dev/cordoned").await);
    site.cordon(false).await;
    site.until_printed("web", "alive", 3).await;
    what_a_deleted_pod_had_is_given_back(site).await;
}

/// Eviction gives everything back; the next pod waits until the node takes pods.
async fn a_node_is_drained(site: &Site) {
    start_pod(site).await;
    let drained = site.cluster.kubectl(&format!("drain {NODE} --force --timeout=60s"));
    println!("{}", drained.expect("it is drained").trim());
    assert!(site.pod("shop", "web").await.is_none(), "it was evicted");
    site.assert_given_back().await;
    for object in example(&tries()) {
        apply(&site.cluster.client, &object).await;
    }
    let why = site.until_described("pod web", "unschedulable").await;
    println!("a drained node: {why}");
    assert_eq!(site.bindings().await, []);
    site.cluster.kubectl(&format!("uncordon {NODE}")).expect("it is cordoned");
    site.until_printed("web", "alive", 3).await;
    what_a_deleted_pod_had_is_given_back(site).await;
}

/// The kubelet has asked, the daemon stands still, and nothing is bound when the driver is killed.
async fn the_driver_is_killed_between_prepare_and_bind(site: &mut Site) {
    site.cluster.kill("snic-dra");
    site.cluster.start_driver("binding_conditions = false");
    site.until_device("no conditions", |device| device.binding_conditions.is_none()).await;
    let daemon = site.cluster.daemon_process();
    site.cluster.signal(daemon, "STOP");
    let objects = example_with("patient", &tries(), |devices| {
        devices["requests"][0]["exactly"]["tolerations"] =
            json!([{"key": "snic.dev/daemon-unreachable", "operator": "Exists"}]);
    });
    for object in objects {
        apply(&site.cluster.client, &object).await;
    }
    let records = site.cluster.path().join("dra");
    until("a note", || async { std::fs::read_dir(&records).ok()?.flatten().next() }).await;
    site.cluster.kill("snic-dra");
    site.cluster.signal(daemon, "CONT");
    let why = site.until_described("pod web", "FailedPrepareDynamicResources").await;
    println!("a driver that is killed: {why}");
    assert_eq!(site.printed("shop", "web").await, "", "no packet before the card serves the DAG");
    site.cluster.start_driver("");
    site.until_printed("web", "alive", 3).await;
    assert_eq!(site.bindings().await.len(), 1);
    what_a_deleted_pod_had_is_given_back(site).await;
    site.until_device("conditions", |device| device.binding_conditions.is_some()).await;
}

/// The pod has to go, for its card is gone. It goes before the card is back, and the next one waits until then.
async fn the_card_is_lost(site: &Site) {
    start_pod(site).await;
    site.cluster.lose_card();
    site.until_taint(Some("snic.dev/lost")).await;
    let slice = format!("resourceslice {NODE}-snic.dev");
    println!("a lost card, slice: {}", site.until_described(&slice, "snic.dev/lost").await);
    until("the pod's end", || async { site.pod("shop", "web").await.is_none().then_some(()) })
        .await;
    let why = site.until_reason("shop", "Marking for deletion").await;
    println!("a lost card, the pod that had it: {why}");
    for object in example(&tries()) {
        apply(&site.cluster.client, &object).await;
    }
    let why = site.until_described("pod web", NO_DEVICE).await;
    println!("a lost card, the next pod: {why}");
    site.cluster.return_card();
    site.until_taint(None).await;
    connect_uplink();
    site.until_printed("web", "alive", 3).await;
    let open = PORTS[0];
    assert!(site.printed_file("web").contains("hello"), "port {open} passes the firewall");
    what_a_deleted_pod_had_is_given_back(site).await;
}
