//! The controller with the endpoint of a fleet: etcd, replicas with certificates, and hosts with a software card each.

use serde_json::json;

#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests of the connection to etcd")]
#[path = "../../../../crates/stores/store-etcd/tests/real/cluster.rs"]
mod cluster;
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests of fleets")]
#[path = "../../../tests/tests/fleet/network.rs"]
mod network;
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests of fleets")]
#[path = "../../../tests/tests/fleet/rig.rs"]
mod rig;

use cluster::{Cluster, eventually, runtime};
use rig::{Cards, Fleet};

use super::site::{CONTROLLER, DagObjects, furnish, start_controller};
use crate::cluster::control_plane::{self, ControlPlane};

/// Settings of a client of a replica.
fn server(fleet: &Fleet, replica: usize) -> String {
    let (endpoint, _) = &fleet.ways("operator-root")[replica];
    let [ca, certificate, key] =
        ["ca.pem", "operator-root.pem", "operator-root.key"].map(|file| fleet.pki(file));
    format!("endpoint = {endpoint:?}\nca = {ca:?}\ncertificate = {certificate:?}\nkey = {key:?}\n")
}

#[test]
fn an_object_becomes_ready_on_a_host_of_a_fleet_and_goes() {
    if let Some(why) = control_plane::missing() {
        println!("not run: {why}");
        return;
    }
    let Some(etcd) = Cluster::start(1) else { return };
    runtime().block_on(async {
        let fleet = Fleet::start_with(etcd, 2, (2, Cards::Software)).await;
        let mut plane = ControlPlane::start().await;
        furnish(&plane, &["shop"]).await;
        let objects = DagObjects(plane.client.clone());
        start_controller(&mut plane, CONTROLLER, &server(&fleet, 0));

        // The fleet chooses the host, and the object says where its DAG is.
        let spec =
            |gbps: u64| json!({"bandwidth": format!("{gbps}Gbps"), "chain": "nat -> firewall"});
        let object = objects.applied("shop", "web", spec(1)).await;
        let (ready, _) = objects.until(&object, "Ready", "True").await;
        let status = &ready.data["status"];
        println!("{status}");
        assert_eq!(status["dag"], "tenants/acme/dags/web");
        let hosts = fleet.served_once(&["web"]).await;
        assert_eq!(status["card"], format!("h{}/card0", hosts[0]), "{status}");

        // A change reaches the host, as does one that the fleet refuses the object.
        let object = objects.applied("shop", "web", spec(2)).await;
        let (changed, _) = objects.until(&object, "Ready", "True").await;
        assert_eq!(changed.data["status"]["promisedBps"], 2_000_000_000_u64);
        let object = objects.applied("shop", "web", spec(90_000)).await;
        let (_, accepted) = objects.until(&object, "Accepted", "False").await;
        println!("more than a host has: {accepted}");
        assert!(accepted["message"].as_str().is_some_and(|text| !text.is_empty()));
        assert_eq!(fleet.served_once(&["web"]).await, hosts, "what was served goes on");

        // Another replica of the fleet does as well.
        plane.kill(CONTROLLER);
        start_controller(&mut plane, "snic-second", &server(&fleet, 1));
        let object = objects.applied("shop", "web", spec(3)).await;
        let (changed, _) = objects.until(&object, "Ready", "True").await;
        assert_eq!(changed.data["status"]["promisedBps"], 3_000_000_000_u64);

        objects.deleted("shop", "web").await;
        assert!(fleet.client(0, "operator-root").list_dags().await.is_empty());
        eventually(async || fleet.on_host(hosts[0]).await.is_empty()).await;
    });
}
