//! A fleet whose etcd is lost, and restored from a backup as the operators' page says.

use std::path::Path;

use snic_api::fleet_v1::host::Condition;
use snic_domain::{Bandwidth, DagSpec};

use super::cluster::{Cluster, eventually, in_time, runtime};
use super::policies::{is_in_force, set};
use super::rig::{Fleet, name};

/// The page's commands that raise etcd's revision above an epoch.
fn raising(highest: i64) -> String {
    let page =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/fleet/fleetd/docs/operating.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("highest=71\n").expect("the page has it");
    let (commands, _) = rest.split_once("```").expect("the block ends");
    format!("export ETCDCTL_API=3\nhighest={highest}\n{commands}")
}

/// All members and their disks are lost. What was acknowledged before the backup is there again, hosts give up what came
/// after it, and a host that was away meanwhile does not take what it has from then for what it should have.
#[test]
fn a_fleet_is_restored_from_a_backup() {
    let Some(cluster) = Cluster::start(3) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start(cluster, 1, 2).await;
        fleet.contexts();
        fleet.create(0, "kept", 1).await;
        fleet.create(0, "deleted-since", 1).await;
        set(&fleet, 0, 40).unwrap();
        for host in 0..2 {
            eventually(async || is_in_force(&fleet, host, (40, 20))).await;
        }
        let backup = fleet.folder().join("fleet.db");
        fleet.cluster.back_up(1, &backup);

        set(&fleet, 0, 60).unwrap();
        for host in 0..2 {
            eventually(async || is_in_force(&fleet, host, (60, 40))).await;
        }
        let acme = fleet.client(0, "tenant-acme");
        acme.delete_dag(&name("deleted-since")).await.unwrap();
        fleet.create(0, "created-since", 1).await;
        let away = 1;
        fleet.kill_host(away);

        fleet.kill_replica(0);
        fleet.cluster.restore(&backup).await;
        let urls = fleet.cluster.urls().join(",");
        fleet.shell(&format!("EP={urls}\n{}", raising(fleet.highest_epoch()))).unwrap();
        fleet.restart_replica(0);
        fleet.leader().await;

        // The first change since the backup, as the one above was.
        eventually(async || set(&fleet, 0, 80).is_ok()).await;
        // If the host is linked before that change, it takes the backup's policies first.
        let before = [60, 40];
        eventually(async || before.iter().any(|&was| is_in_force(&fleet, 0, (80, was)))).await;
        fleet.restart_host(away).await;
        eventually(async || is_in_force(&fleet, away, (80, 60))).await;
        fleet.all_in_step(2).await;
        fleet.served_once(&["kept", "deleted-since"]).await;
        let spec = DagSpec::chain(&["nat".parse().unwrap()], Bandwidth::from_gbps(1));
        let acme = fleet.client(0, "tenant-acme");
        acme.create_dag(&name("created-since"), &spec).await.expect("its name is free");
        fleet.served_once(&["kept", "deleted-since", "created-since"]).await;
        assert_eq!(fleet.condition(away).await, Ok(Condition::InStep));
    }));
}
