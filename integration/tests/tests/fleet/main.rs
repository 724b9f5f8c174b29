//! A fleet of real processes, of which any may be killed. Each test says so if etcd is missing on this machine, and is
//! skipped then; the test command installs it.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

#[allow(dead_code, reason = "shared with the tests of the connection to etcd")]
#[path = "../../../../crates/store-etcd/tests/real/cluster.rs"]
mod cluster;
mod rig;

use cluster::{Cluster, in_time, runtime};
use rig::Fleet;

/// Registered at one replica, created at another, served by a host.
#[test]
fn a_fleet_serves_what_any_replica_took() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let fleet = Fleet::start(cluster, 2, 3).await;
        fleet.create(1, "one", 1).await;
        fleet.create(0, "two", 1).await;
        fleet.served_once(&["one", "two"]).await;
    }));
}
