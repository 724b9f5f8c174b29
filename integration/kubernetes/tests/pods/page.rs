//! The page that leads from an empty cluster to the first pod, typed word for word.

use super::site::{Site, what_a_deleted_pod_had_is_given_back};
use crate::cluster::page::{Desk, block, commands};
use crate::cluster::until;

/// Commands of the page that the cluster of the tests has done: its programs are built, and its driver runs with the page's settings.
const DONE: [&str; 2] = ["cargo build", "snic-dra"];

pub async fn the_page_leads_to_the_first_pod(site: &Site) {
    let login = site.cluster.path().join("pki/admin.kubeconfig");
    let desk = Desk::new(&login, &site.cluster.daemon_socket());
    let dag = block("dra.md", "# web.yaml");
    std::fs::write(desk.file("web.yaml"), dag).expect("the folder takes files");
    let lines = commands("dra.md");
    assert!(lines.len() >= 8, "{lines:?}");
    for line in lines.iter().filter(|line| !DONE.iter().any(|done| line.starts_with(done))) {
        if line == "kubectl get resourceslices" {
            // The driver writes it within seconds.
            until("a slice", || async { desk.types(line).contains("snic.dev").then_some(()) })
                .await;
        } else {
            desk.types(line);
        }
    }
    let printed = site.until_printed("web", "1 packets received", 1).await;
    println!("{printed}");
    let described = desk.types("kubectl -n shop describe resourceclaim");
    assert!(described.contains("the card serves vmBindings/"), "{described}");
    what_a_deleted_pod_had_is_given_back(site).await;
    desk.types("snicctl dag delete web --wait");
    // Its image is another test's.
    desk.types("kubectl -n snic-system delete deployment snic-dag-controller");
}
