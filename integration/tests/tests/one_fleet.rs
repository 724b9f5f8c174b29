//! A fleet of real processes, once through.

use super::cluster::{Cluster, eventually, in_time, runtime};
use super::rig::Fleet;

/// Registered at one replica, created at another, served by hosts; the leader is killed, and nothing is lost.
#[test]
fn a_fleet_serves_and_outlives_its_leader() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start(cluster, 2, 3).await;
        fleet.create(1, "one", 1).await;
        fleet.create(0, "two", 1).await;
        fleet.served_once(&["one", "two"]).await;

        let leader = fleet.leader().await;
        assert_eq!(fleet.processes().len(), 5);
        fleet.kill_replica(leader);
        let other = 1 - leader;
        fleet.create(other, "three", 1).await;
        assert_eq!(fleet.leader().await, other);
        fleet.served_once(&["one", "two", "three"]).await;

        fleet.restart_replica(leader);
        fleet.create(leader, "four", 1).await;
        fleet.served_once(&["one", "two", "three", "four"]).await;
        fleet.contexts();
        // A new leader calls a DAG ready when its host has said so.
        let list = format!("snicctl --context acme-r{other} dag list");
        eventually(async || {
            let listed = fleet.shell(&list).unwrap();
            listed.lines().filter(|line| line.contains("READY")).count() == 4
        })
        .await;
    }));
}
