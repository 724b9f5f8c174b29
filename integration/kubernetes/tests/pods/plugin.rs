//! The device plugin as a process of the node, beside a real kubelet. It needs no claims, so clusters before 1.34 run it, too.

use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::Api;
use serde_json::json;
use snic_integration::program;

use super::site::Site;
use crate::cluster::objects::{apply, delete};
use crate::cluster::{self, NODE, until};

/// Resource that the pod asks for.
const RESOURCE: &str = "snic.dev/acme-web";
/// Longest time in which the device of a pod that has ended is given back: the kubelet does not tell a plugin of it.
const GIVEN_BACK_MAX: Duration = Duration::from_secs(120);

#[test]
fn the_device_plugin_serves_the_kubelet_of_any_version() {
    if let Some(why) = cluster::missing_parts() {
        println!("not run: {why}");
        return;
    }
    let part = ["--exact", "pods::plugin::the_plugin", "--ignored", "--nocapture"];
    let status = cluster::enter(&part, |_| {});
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "part: of the_device_plugin_serves_the_kubelet_of_any_version"]
async fn the_plugin() {
    assert_eq!(std::process::id(), 1, "only in namespaces of its own");
    let mut site = Site::without_claims().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    apply(&site.cluster.client, &namespace).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(site.cluster.client.clone(), "shop");
    until("the account of pods", || async { accounts.get_opt("default").await.ok()? }).await;
    site.create_dag().await;
    start_plugin(&mut site);
    a_pod_gets_a_device(&site).await;
    let nodes = site.cluster.kubectl("get nodes").expect("a right of the admin");
    println!("{nodes}");
}

/// Starts it with the settings of its manifest, at the daemon's socket.
fn start_plugin(site: &mut Site) {
    let settings = site.cluster.path().join("device-plugin.toml");
    let text = format!(
        "node = {NODE:?}\ncdi_dir = \"/run/cdi\"\nidle_seconds = 5\n\
         [daemon]\nendpoint = \"unix:{}\"\nidentity = \"orchestrator/kubelet\"\n\
         [[resources]]\nname = {RESOURCE:?}\ntenant = \"acme\"\ndags = [\"web\"]\ndevices = 8\n",
        site.cluster.daemon_socket().display()
    );
    std::fs::write(&settings, text).expect("the folder takes files");
    let mut plugin = Command::new(program("snic-kubernetes"));
    plugin.arg("--config").arg(settings);
    site.cluster.spawn("snic-device-plugin", plugin);
}

/// The plugin runs, and the DAG `web` is there. The node offers devices; a pod gets one, and it is given back after the pod's end.
pub async fn a_pod_gets_a_device(site: &Site) {
    let nodes: Api<Node> = Api::all(site.cluster.client.clone());
    until("the resource", || async {
        let allocatable = nodes.get(NODE).await.ok()?.status?.allocatable?;
        (allocatable.get(RESOURCE)?.0 == "8").then_some(())
    })
    .await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "old", "namespace": "shop"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
            "name": "main", "image": "busybox:1", "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", "echo $0; set | cat; sleep 1000"],
            "resources": {"limits": {RESOURCE: "1"}},
        }]},
    });
    apply(&site.cluster.client, &pod).await;
    let printed = site.until_printed("old", "SNIC_VF_", 1).await;
    assert!(printed.contains("card=cards/card0"), "{printed}");
    assert_eq!(site.bindings().await.len(), 1);
    delete(&site.cluster.client, &pod).await;
    let waiting = until("the end of its binding", || async {
        site.bindings().await.is_empty().then_some(())
    });
    tokio::time::timeout(GIVEN_BACK_MAX, waiting).await.expect("given back");
}
