//! Pods of a real cluster whose packets pass DAGs of a software card: unmodified busybox, kubelet, scheduler, containerd.

mod faults;
mod hostile;
mod images;
mod page;
mod plugin;
mod site;

use std::process::Command;
use std::time::Duration;

use serde_json::json;
use snic_integration::program;

use crate::cluster::objects::apply;
use crate::cluster::{self, until};
use site::{
    PORTS, Site, container_id, example, example_with, tries, what_a_deleted_pod_had_is_given_back,
};

#[test]
fn a_pod_in_a_real_cluster_sends_through_its_dag() {
    if let Some(why) = cluster::missing() {
        println!("not run: {why}");
        return;
    }
    let part = ["--exact", "pods::the_life_of_pods", "--ignored", "--nocapture"];
    let status = cluster::enter(&part, |_| {});
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "part: of a_pod_in_a_real_cluster_sends_through_its_dag"]
async fn the_life_of_pods() {
    assert_eq!(std::process::id(), 1, "only in namespaces of its own");
    let mut site = Site::start().await;
    page::the_page_leads_to_the_first_pod(&site).await;
    a_pod_waits_for_its_dag_and_sends_through_it(&site).await;
    restarts_change_nothing_for_a_pod(&mut site).await;
    what_a_deleted_pod_had_is_given_back(&site).await;
    a_driver_that_is_killed_before_it_has_bound_goes_on(&mut site).await;
    a_claim_carries_a_dag_of_its_own(&site).await;
    a_cordoned_card_takes_no_pod(&site).await;
    a_claim_that_loses_its_pod_before_a_kubelet_asked_is_given_back(&site).await;
    without_binding_conditions_the_kubelet_asks(&mut site).await;
    no_namespace_reaches_the_dags_of_another(&site).await;
}

async fn a_pod_waits_for_its_dag_and_sends_through_it(site: &Site) {
    for object in example(&tries()) {
        apply(&site.cluster.client, &object).await;
    }
    // The DAG is not there yet. The pod waits, says why, and sends nothing.
    let why = site.until_reason("shop", "dags/web").await;
    println!("why the pod waits: {why}");
    assert_eq!(site.printed("shop", "web").await, "", "no packet before the card serves the DAG");
    assert_eq!(site.bindings().await, []);
    site.create_dag().await;
    let printed = site.until_printed("web", "alive", 3).await;
    println!("{printed}");
    assert!(printed.contains("pinged") && printed.contains("hello"), "{printed}");
    assert!(printed.contains("shut") && printed.matches("hello").count() == 1, "{printed}");
    site.until_device("one function left", |device| {
        let left = device.attributes.as_ref().and_then(|all| all["functionsLeft"].int);
        left == Some(1)
    })
    .await;
    let claim = site.claim("shop").await.expect("a claim");
    let device = claim.status.and_then(|status| status.devices).expect("a status").remove(0);
    let network = device.network_data.expect("the pod's interface");
    assert_eq!(network.interface_name.as_deref(), Some("snic0"));
    assert_eq!(network.ips, Some(vec!["10.77.0.1/24".to_owned()]));
    let condition = device.conditions.expect("a condition").remove(0);
    assert_eq!((&*condition.type_, &*condition.status), ("snic.dev/Served", "True"));
    // What the firewall dropped is counted where a tenant looks.
    let contexts = site.cluster.path().join("contexts.toml");
    let snicctl = |line: &str| {
        let mut command = Command::new(program("snicctl"));
        command.env("SNICCTL_CONFIG", &contexts).args(line.split(' '));
        String::from_utf8_lossy(&command.output().expect("it starts").stdout).into_owned()
    };
    let endpoint = format!("unix:{}", site.cluster.daemon_socket().display());
    snicctl(&format!("context set acme --endpoint {endpoint} --identity tenant/acme"));
    until("drops of the firewall", || async {
        let shown = snicctl("--context acme dag get web");
        let is_it = |line: &str| line.starts_with("Task drops:") && line.contains("firewall: ");
        shown.lines().find(|line| is_it(line)).map(|line| println!("{line}"))
    })
    .await;
}

async fn restarts_change_nothing_for_a_pod(site: &mut Site) {
    let before = site.pod("shop", "web").await.expect("it runs");
    let bound = site.bindings().await;
    assert_eq!(bound.len(), 1);
    site.cluster.kill("kubelet");
    site.cluster.kill("snic-dra");
    site.cluster.start_kubelet();
    site.cluster.start_driver("");
    site.cluster.kill("kube-apiserver");
    tokio::time::sleep(Duration::from_secs(10)).await;
    site.cluster.start_api_server().await;
    let alive = site.printed("shop", "web").await.matches("alive").count();
    site.until_printed("web", "alive", alive + 50).await;
    let after = site.pod("shop", "web").await.expect("it runs");
    assert!(container_id(&before).is_some());
    assert_eq!(container_id(&before), container_id(&after), "the container was started again");
    assert_eq!(site.bindings().await[0].etag, bound[0].etag, "it was bound again");
}

/// The daemon stands still while the driver binds: the driver has noted the claim, and bound nothing, when it is killed.
async fn a_driver_that_is_killed_before_it_has_bound_goes_on(site: &mut Site) {
    let daemon = site.cluster.daemon_process();
    site.cluster.signal(daemon, "STOP");
    // Its card gets a taint after a while, and the scheduler may be slower than that.
    let objects = example_with("tolerant", &tries(), |devices| {
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
    site.cluster.start_driver("");
    site.until_printed("web", "alive", 3).await;
    assert_eq!(site.bindings().await.len(), 1);
    what_a_deleted_pod_had_is_given_back(site).await;
}

/// A DAG that the claim carries is there with the claim, and goes with it.
async fn a_claim_carries_a_dag_of_its_own(site: &Site) {
    let rules = json!([
        {"action": "accept", "protocol": "icmp"},
        {"action": "accept", "protocol": "tcp", "destination_ports": PORTS[0].to_string()},
    ]);
    let objects = example_with("carried", &tries(), |devices| {
        let parameters = &mut devices["config"][0]["opaque"]["parameters"];
        parameters.as_object_mut().expect("an object").remove("dag");
        parameters["spec"] = json!({
            "bandwidth": "1Gbps", "chain": "firewall",
            "configuration": {"firewall": {"rules": rules}},
        });
    });
    for object in objects {
        apply(&site.cluster.client, &object).await;
    }
    let printed = site.until_printed("web", "alive", 3).await;
    assert!(printed.contains("hello") && printed.contains("shut"), "{printed}");
    let carried = || async {
        let dags = site.daemon.list_dags().await.into_iter().map(|dag| dag.name);
        dags.filter(|name| name.starts_with("tenants/acme/dags/claim-")).collect::<Vec<_>>()
    };
    assert_eq!(carried().await.len(), 1);
    what_a_deleted_pod_had_is_given_back(site).await;
    until("the end of its DAG", || async { carried().await.is_empty().then_some(()) }).await;
}

/// The scheduler is told by a taint, and the pod starts when the card is back in service.
async fn a_cordoned_card_takes_no_pod(site: &Site) {
    site.cordon(true).await;
    site.until_taint(Some("snic.dev/cordoned")).await;
    for object in example(&tries()) {
        apply(&site.cluster.client, &object).await;
    }
    let why = site.until_reason("shop", "cannot allocate all claims").await;
    println!("a cordoned card: {why}");
    assert_eq!(site.bindings().await, []);
    site.cordon(false).await;
    site.until_taint(None).await;
    site.until_printed("web", "alive", 1).await;
    what_a_deleted_pod_had_is_given_back(site).await;
}

/// A DAG that is never there keeps a pod waiting, assigned to no node. Another pod is deleted when it is bound, which the kubelet
/// may never hear of.
async fn a_claim_that_loses_its_pod_before_a_kubelet_asked_is_given_back(site: &Site) {
    let objects = example_with("later", "echo started", |devices| {
        devices["config"][0]["opaque"]["parameters"]["dag"] = json!("later");
    });
    for object in objects {
        apply(&site.cluster.client, &object).await;
    }
    site.until_reason("shop", "tenants/acme/dags/later").await;
    let pod = site.pod("shop", "web").await.expect("it waits");
    assert_eq!(pod.spec.expect("a specification").node_name, None, "assigned to no node yet");
    what_a_deleted_pod_had_is_given_back(site).await;
    for object in example("echo started") {
        apply(&site.cluster.client, &object).await;
    }
    until("a binding", || async { (site.bindings().await.len() == 1).then_some(()) }).await;
    what_a_deleted_pod_had_is_given_back(site).await;
}

async fn without_binding_conditions_the_kubelet_asks(site: &mut Site) {
    site.cluster.kill("snic-dra");
    site.cluster.start_driver("binding_conditions = false");
    site.until_device("no conditions", |device| device.binding_conditions.is_none()).await;
    for object in example(&tries()) {
        apply(&site.cluster.client, &object).await;
    }
    site.until_printed("web", "alive", 1).await;
    what_a_deleted_pod_had_is_given_back(site).await;
}

async fn no_namespace_reaches_the_dags_of_another(site: &Site) {
    for (namespace, said) in
        [("bank", "tenants/globex/dags/web"), ("other", "namespace other has no tenant")]
    {
        for mut object in example("echo started") {
            match object["kind"].as_str() {
                Some("Namespace") => {
                    // The label lets claims in; whose they are the driver's settings say.
                    object["metadata"]["name"] = json!(namespace);
                }
                _ => object["metadata"]["namespace"] = json!(namespace),
            }
            apply(&site.cluster.client, &object).await;
        }
        let why = site.until_reason(namespace, said).await;
        println!("{namespace}: {why}");
        assert!(!why.contains("acme"), "{why}");
        assert_eq!(site.printed(namespace, "web").await, "");
    }
    assert_eq!(site.bindings().await, []);
}
