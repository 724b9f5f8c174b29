//! A fleet of real processes, of which any may be killed. Each test says so if etcd is missing on this machine, and is
//! skipped then; the test command installs it.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod budgets;
mod calls;
mod capture;
#[allow(dead_code, reason = "shared with the tests of the connection to etcd")]
#[path = "../../../../crates/stores/store-etcd/tests/real/cluster.rs"]
pub mod cluster;
mod faults;
mod gathered;
mod history;
mod large;
mod machines;
pub mod network;
mod passing;
mod policies;
mod reserved;
mod restore;
#[allow(dead_code, reason = "shared with the benchmark of a fleet")]
pub mod rig;
mod signatures;
mod top;
mod upgrade;
mod usage;
mod workload;

use std::time::{Duration, Instant};

use cluster::{Cluster, eventually, in_time, runtime};
use rig::{Cards, Fleet};
use snic_api::fleet_v1::host::Condition;
use snic_api::fleet_v1::{CordonHostRequest, Host, WatchHostsRequest, WatchHostsResponse};
use snic_api::v1::dag::State;
use tonic::Streaming;

use super::soft::rig as soft;

/// A host that is killed gives its DAGs up to others, and yields when it is back.
#[test]
fn dags_of_a_lost_host_move_and_are_served_once() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start(cluster, 2, 3).await;
        let dags = ["one", "two", "three"];
        for dag in dags {
            fleet.create(1, dag, 1).await;
        }
        let lost = fleet.served_once(&dags).await[0];
        fleet.kill_host(lost);
        // All that it served is ready elsewhere, while it is gone.
        let now = fleet.served_once(&dags).await;
        assert!(!now.contains(&lost), "{now:?}");
        for dag in dags {
            eventually(async || fleet.state(0, dag).await == Ok(State::Ready)).await;
        }
        // It comes back with its records, in which it serves them still.
        fleet.restart_host(lost).await;
        eventually(async || fleet.condition(lost).await == Ok(Condition::InStep)).await;
        assert_eq!(fleet.served_once(&dags).await, now, "they stay");
    }));
}

/// A card fails under a daemon that goes on: what it served gets a place on another host, and stays there when the card
/// is back.
#[test]
fn dags_of_a_lost_card_move_to_another_host() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let fleet = Fleet::start_with(cluster, 1, (2, Cards::Software)).await;
        let dags = ["one", "two"];
        for dag in dags {
            fleet.create(0, dag, 1).await;
        }
        let lost = fleet.served_once(&dags).await[0];
        fleet.take_card(lost);
        eventually(async || fleet.state(0, "one").await != Ok(State::Ready)).await;
        let other = 1 - lost;
        eventually(async || fleet.on_host(other).await.len() == dags.len()).await;
        assert_eq!(fleet.served_once(&dags).await, [other; 2]);
        for dag in dags {
            eventually(async || fleet.state(0, dag).await == Ok(State::Ready)).await;
        }
        assert_eq!(fleet.condition(lost).await, Ok(Condition::InStep), "its daemon answers");
        fleet.give_card_back(lost);
        fleet.create(0, "three", 1).await;
        let served = fleet.served_once(&["one", "two", "three"]).await;
        assert_eq!(served.iter().filter(|host| **host == other).count(), 3, "{served:?}");
    }));
}

/// A third host is added to two that have DAGs: a rebalance moves some of them there. All are ready throughout, and each is
/// served by some host at any time.
#[test]
fn a_rebalance_fills_a_new_host_without_a_stop() {
    use snic_api::fleet_v1::rebalance::State as Rebalance;
    use snic_api::fleet_v1::{GetRebalanceRequest, StartRebalanceRequest};

    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start(cluster, 1, 2).await;
        let dags = ["one", "two", "three", "four", "five", "six"];
        for dag in dags {
            fleet.create(0, dag, 5).await;
        }
        fleet.served_once(&dags).await;
        fleet.add_host(2, Cards::Simulated).await;
        fleet.all_in_step(3).await;
        let root = fleet.client(0, "operator-root");
        let request =
            StartRebalanceRequest { moves_max: 2, tolerance_percent: 5, ..Default::default() };
        root.fleet().start_rebalance(request).await.unwrap();
        let ended = loop {
            for dag in dags {
                assert_eq!(fleet.state(0, dag).await, Ok(State::Ready), "{dag}");
            }
            let mut served = Vec::new();
            for host in 0..3 {
                served.extend(fleet.on_host(host).await);
            }
            for dag in dags {
                let name = rig::name(dag).to_string();
                assert!(served.contains(&(name, true)), "{dag} is served by nobody: {served:?}");
            }
            let shown = root.fleet().get_rebalance(GetRebalanceRequest {}).await.unwrap();
            let shown = shown.into_inner().rebalance.unwrap();
            if shown.state() != Rebalance::Running {
                break shown;
            }
        };
        println!("{ended:?}");
        assert!(ended.dags_moved > 0, "{ended:?}");
        let (before, after) = (ended.before.unwrap(), ended.after.unwrap());
        assert!(after.largest_percent < before.largest_percent, "{ended:?}");
        let served = fleet.served_once(&dags).await;
        assert!(served.contains(&2), "{served:?}");
        fleet.contexts();
        let shown = fleet.shell("snicctl --context root-r0 fleet rebalance-status").unwrap();
        assert!(shown.contains("Moved"), "{shown}");
    }));
}

/// The host's next event that is so.
async fn told(
    watch: &mut Streaming<WatchHostsResponse>,
    host: usize,
    is_so: impl Fn(&Host) -> bool,
) -> Host {
    loop {
        let event = watch.message().await.unwrap().expect("it goes on");
        if let Some(of) = event.host.filter(|of| of.name == format!("hosts/h{host}") && is_so(of)) {
            return of;
        }
    }
}

/// A host is killed: a watch at a replica that does not lead says so in time, and says when it is back. So does `snicctl`.
#[test]
fn a_watch_says_in_time_which_host_is_lost() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start(cluster, 2, 2).await;
        let other = 1 - fleet.leader().await;
        let root = fleet.client(other, "operator-root");
        let request = WatchHostsRequest::default();
        let mut watch = root.fleet().watch_hosts(request).await.unwrap().into_inner();
        let is = |condition| move |of: &Host| of.condition() == condition;
        told(&mut watch, 1, is(Condition::InStep)).await;
        let begin = Instant::now();
        fleet.kill_host(1);
        told(&mut watch, 1, is(Condition::Suspected)).await;
        let suspected = begin.elapsed();
        told(&mut watch, 1, is(Condition::Lost)).await;
        let lost = begin.elapsed();
        println!("suspected after {suspected:?}, lost after {lost:?}");
        // The lease of 3 s, the second to confirm, and 2 s.
        assert!(lost < Duration::from_secs(3 + 1 + 2), "{lost:?}");
        fleet.restart_host(1).await;
        told(&mut watch, 1, is(Condition::InStep)).await;
        let leader = fleet.client(1 - other, "operator-root");
        let request = CordonHostRequest { name: "hosts/h0".into() };
        leader.fleet().cordon_host(request).await.unwrap();
        told(&mut watch, 0, |of| of.cordoned).await;
        fleet.contexts();
        let line = format!("timeout 3 snicctl --context root-r{other} fleet host watch || true");
        let printed = fleet.shell(&line).unwrap();
        assert!(printed.contains("ADDED    h0  IN_STEP cordoned\n"), "{printed}");
        assert!(printed.contains("ADDED    h1  IN_STEP\n"), "{printed}");
    }));
}
