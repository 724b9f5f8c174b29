//! Programs in their images, in a real cluster: the page of the controller of DAGs, word for word, and the device plugin beside a
//! real kubelet.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use snic_integration::program;
use tokio::net::{TcpListener, TcpStream};

use super::plugin::a_pod_gets_a_device;
use super::site::Site;
use crate::cluster::objects::{apply, manifest};
use crate::cluster::page::{Desk, commands};
use crate::cluster::{self, NODE, NODE_ADDRESS, kubernetes_program, run, until};

/// Images, as `cargo xtask image` names their archives.
const IMAGES: [&str; 2] = ["snic-dag-controller", "snic-device-plugin"];
/// Tag of the images.
const TAG: &str = env!("CARGO_PKG_VERSION");

/// The archive of an image, in the folder of the builds that this test is one of.
fn archive(name: &str) -> PathBuf {
    let target = program("snicd");
    let target = target.parent().and_then(Path::parent).expect("a folder of a profile");
    target.join("image").join(format!("{name}_{TAG}.oci.tar"))
}

#[test]
#[ignore = "nightly: images are built with optimisation"]
fn images_run_in_a_real_cluster() {
    let absent = IMAGES.into_iter().find(|name| !archive(name).exists());
    let absent = absent.map(|name| format!("no image {name}: `cargo xtask image` makes it"));
    if let Some(why) = cluster::missing().or(absent) {
        println!("not run: {why}");
        return;
    }
    let part = ["--exact", "pods::images::the_images", "--ignored", "--nocapture"];
    let status = cluster::enter(&part, |_| {});
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "part: of images_run_in_a_real_cluster"]
async fn the_images() {
    assert_eq!(std::process::id(), 1, "only in namespaces of its own");
    let site = Site::start().await;
    for name in IMAGES {
        let mut ctr = Command::new(kubernetes_program("ctr"));
        ctr.args(["-n", "k8s.io", "images", "import", "--base-name"]);
        let output = ctr.arg(format!("docker.io/library/{name}")).arg(archive(name)).output();
        let output = output.expect("it is built with the cluster");
        let said = [output.stdout, output.stderr].map(|s| String::from_utf8_lossy(&s).into_owned());
        assert!(output.status.success(), "{name}: {said:?}");
        println!("{}", said.concat().trim());
    }
    tokio::spawn(serve_cluster_address());
    the_controllers_page_leads_to_a_ready_dag(&site).await;
    the_device_plugin_serves_a_real_kubelet(&site).await;
}

/// Pods call the API server at an address of services, which a proxy on the node forwards; this one forwards nothing else.
async fn serve_cluster_address() {
    run("ip", "address add 10.96.0.1/32 dev lo");
    let listener = TcpListener::bind("10.96.0.1:443").await.expect("a free port");
    while let Ok((mut pod, _)) = listener.accept().await {
        tokio::spawn(async move {
            if let Ok(mut server) = TcpStream::connect("127.0.0.1:6443").await {
                // Either end may close it.
                let _ = tokio::io::copy_bidirectional(&mut pod, &mut server).await;
            }
        });
    }
}

async fn the_controllers_page_leads_to_a_ready_dag(site: &Site) {
    let login = site.cluster.path().join("pki/admin.kubeconfig");
    let desk = Desk::new(&login, &site.cluster.daemon_socket());
    // The reader adapts the settings.
    let path = desk.file("manifests/snic-dag-controller.yaml");
    let text = std::fs::read_to_string(&path).expect("a manifest");
    let adapted = text.replace("snic.example", NODE_ADDRESS);
    assert_ne!(text, adapted);
    std::fs::write(&path, adapted).expect("the folder takes files");
    let pki = site.cluster.daemon_certificates();
    let mut shown = String::new();
    for line in commands("dag.md").iter().filter(|line| !line.starts_with("cargo xtask image")) {
        shown = desk.types(&line.replace("/etc/snic/pki", &pki.display().to_string()));
    }
    let words: Vec<&str> = shown.split_whitespace().collect();
    for word in ["READY", "PROMISED", "SERVED", "CARD", "True", "card0", "tenants/acme/dags/web"] {
        assert!(words.contains(&word), "{word}: {shown}");
    }
    let dags = site.daemon.list_dags().await;
    assert!(dags.iter().any(|dag| dag.name == "tenants/acme/dags/web"), "{dags:?}");
    // Both replicas run as the manifest has them: as no user of the system, with a file system that is read only.
    let pods: Api<Pod> = Api::namespaced(site.cluster.client.clone(), "snic-system");
    until("two replicas", || async {
        let all = pods.list(&Default::default()).await.ok()?.items.into_iter();
        let running = all.filter_map(|pod| pod.status?.phase).filter(|phase| phase == "Running");
        (running.count() == 2).then_some(())
    })
    .await;
}

/// The DAG `web` is there. A pod asks for it as an extended resource, as on a cluster before 1.34.
async fn the_device_plugin_serves_a_real_kubelet(site: &Site) {
    std::fs::create_dir_all("/run/snic").expect("a folder");
    run("mount", &format!("--bind {} /run/snic", site.cluster.path().display()));
    site.cluster.kubectl(&format!("label node {NODE} snic.dev/card=true")).expect("a label");
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("daemonset.yaml"));
    for object in manifest(&text.expect("a manifest")) {
        apply(&site.cluster.client, &object).await;
    }
    a_pod_gets_a_device(site).await;
}
