//! State that stays when the leader goes.

use snic_api::fleet_v1::host::Condition;
use snic_api::v1;

use crate::cluster::{Cluster, eventually, in_time, runtime};
use crate::host;
use crate::rig::Rig;

const CHAIN: [&str; 2] = ["firewall", "nat"];

/// The leader stops, and the next one crashes: the third goes on with all that was acknowledged, and with the host.
#[test]
fn the_last_replica_has_all_that_was_acknowledged() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut rig = Rig::start(cluster, 3).await;
        let first = rig.leader().await;
        let root = rig.client(first, "operator/root").await;
        root.create_tenant("acme", "").await.unwrap();
        let mut hosts = Vec::new();
        for replica in 0..3 {
            hosts.push(rig.connect(replica, "host/h1").await);
        }
        let running = tokio::spawn(host::run(hosts));
        root.provide("h1", &CHAIN).await;
        let acme = rig.client((first + 1) % 3, "tenant/acme").await;
        let begun = acme.create_dag(("acme", "one"), &CHAIN, "").await.unwrap();
        assert!(acme.wait(&begun.name).await.unwrap().done);

        rig.stop(first).await;
        let second = rig.leader().await;
        assert_ne!(second, first);
        let third = 3 - first - second;
        let acme = rig.client(third, "tenant/acme").await;
        assert_eq!(acme.dag("acme", "one").await.unwrap().name, "tenants/acme/dags/one");
        // Sent again until it is known: the number makes sure that it is done once.
        let uuid = "123e4567-e89b-42d3-a456-426614174001";
        eventually(async || acme.create_dag(("acme", "two"), &CHAIN, uuid).await.is_ok()).await;

        rig.abort(second);
        eventually(async || acme.create_dag(("acme", "three"), &CHAIN, "").await.is_ok()).await;
        for dag in ["one", "two", "three"] {
            let ready = async || {
                let found = acme.dag("acme", dag).await;
                found.is_ok_and(|dag| dag.state() == v1::dag::State::Ready)
            };
            eventually(ready).await;
        }
        let operator = rig.client(third, "operator/root").await;
        let host = operator.host("h1").await.unwrap();
        assert_eq!((host.dags, host.condition()), (3, Condition::InStep));
        running.abort();
    }));
}

/// A replica that still takes the lost one for the leader has the host wait for the next one, instead of sending it back.
#[test]
fn a_host_that_has_lost_the_leader_waits_for_the_next_one() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut rig = Rig::start(cluster, 3).await;
        let first = rig.leader().await;
        rig.client(first, "operator/root").await.provide("h1", &CHAIN).await;
        let (reports, mut orders) = host::link(rig.connect(first, "host/h1").await).await.unwrap();
        let lost = host::epoch(&reports, &mut orders).await;
        let other = (first + 1) % 3;
        let refused = host::link(rig.connect(other, "host/h1").await).await.err().unwrap();
        assert!(refused.message().contains(rig.address(first)), "{refused}");

        let waiting = rig.connect(other, "host/h1").await;
        let waiting = tokio::spawn(host::link_after(waiting, Some(lost)));
        rig.abort(first);
        match waiting.await.unwrap() {
            Ok((reports, mut orders)) => assert!(host::epoch(&reports, &mut orders).await > lost),
            Err(refused) => {
                let third = rig.address(3 - first - other);
                assert!(refused.message().contains(third), "{refused}");
            }
        }
    }));
}
