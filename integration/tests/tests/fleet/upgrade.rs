//! A fleet is upgraded part by part while it is used: no call is lost, and no packet.
//!
//! `SNIC_OLD_PROGRAMS` names a folder with `snic-fleet` and `snicd` of the version before; without it the parts are stopped
//! and started with the same programs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use snic_api::fleet_v1::host::Condition;
use snic_api::v1;
use snic_domain::{Bandwidth, DagSpec};
use snic_integration::TestClient;
use tonic::Code;

use super::cluster::{Cluster, eventually, in_time, runtime};
use super::rig::{Cards, Fleet, Versions, name};
use super::soft;

const REPLICAS: usize = 3;
const HOSTS: usize = 2;
/// Time for which a caller asks again, at one replica after the other.
const CALL_MAX: Duration = Duration::from_secs(15);

/// One caller, who goes on to the next replica when one is away: the same request, with the same id.
async fn asked<T>(
    clients: &[TestClient],
    at: &mut usize,
    ask: impl AsyncFn(&TestClient) -> Result<T, tonic::Status>,
) -> T {
    let begun = Instant::now();
    loop {
        match ask(&clients[*at % clients.len()]).await {
            Ok(reply) => return reply,
            Err(status) => {
                let may_pass = [Code::Unavailable, Code::Cancelled, Code::Unknown];
                assert!(may_pass.contains(&status.code()), "{status:?}");
                assert!(begun.elapsed() < CALL_MAX, "lost: {status:?}");
                *at += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

fn uuid(number: usize) -> String {
    format!("123e4567-e89b-42d3-a456-{number:012x}")
}

/// Creates, reads and deletes DAGs until somebody says so; returns how often.
async fn use_it(clients: &[TestClient], until: &AtomicBool) -> usize {
    let (mut at, mut rounds) = (0, 0);
    let dag = v1::Dag {
        nodes: vec![v1::dag::Node {
            id: "nat".into(),
            nt_type: "ntTypes/nat".into(),
            configuration: None,
        }],
        bandwidth_bps: 1_000_000,
        ..Default::default()
    };
    while !until.load(Ordering::Acquire) {
        let (id, request_id) = (format!("d{rounds}"), uuid(2 * rounds));
        let create = v1::CreateDagRequest {
            parent: "tenants/acme".into(),
            dag_id: id.clone(),
            dag: Some(dag.clone()),
            request_id,
            ..Default::default()
        };
        asked(clients, &mut at, async |of| of.dags().create_dag(create.clone()).await).await;
        let get = v1::GetDagRequest { name: name(&id).to_string() };
        let read = asked(clients, &mut at, async |of| of.dags().get_dag(get.clone()).await).await;
        assert_eq!(read.into_inner().dag.map(|dag| dag.name), Some(get.name.clone()));
        if rounds % 2 == 0 {
            let delete = v1::DeleteDagRequest {
                name: get.name,
                request_id: uuid(2 * rounds + 1),
                ..Default::default()
            };
            asked(clients, &mut at, async |of| of.dags().delete_dag(delete.clone()).await).await;
        }
        rounds += 1;
        at += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    rounds
}

fn older() -> PathBuf {
    let here = snic_integration::program("snicd");
    let here = here.parent().map(Path::to_owned).expect("a folder");
    std::env::var_os("SNIC_OLD_PROGRAMS").map_or(here, PathBuf::from)
}

#[test]
fn a_fleet_is_upgraded_without_losing_a_call_or_a_packet() {
    if let Some(why) = soft::missing() {
        eprintln!("SKIPPED: packets cannot be counted here: {why}");
        return;
    }
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let replicas = (0..REPLICAS).map(|number| format!("r{number}"));
        let parts: Vec<_> = replicas.chain((0..HOSTS).map(|number| format!("h{number}"))).collect();
        let versions = Versions::new(&older(), &parts);
        let cards = (HOSTS, Cards::Taps("upg"));
        let mut fleet = Fleet::start_in((None, Some(versions)), cluster, REPLICAS, cards).await;
        fleet.unlimited().await;

        // Pings through the DAG of one host.
        let acme = fleet.client(0, "tenant-acme");
        let chain = ["nat", "firewall"].map(|nt| nt.parse().unwrap());
        let spec = DagSpec::chain(&chain, Bandwidth::from_gbps(1));
        eventually(async || acme.create_dag(&name("web"), &spec).await.is_ok()).await;
        let serving = fleet.served_once(&["web"]).await[0];
        fleet.host(serving).await.lead_function(0, &name("web")).await.unwrap();
        let guest = soft::Host::new(&format!("upg{serving}f0"), "10.77.0.1/24");
        let _server = soft::Host::new(&format!("upg{serving}up"), "10.77.0.2/24");
        eventually(async || guest.run("ping -c 1 -W 1 10.77.0.2").status.success()).await;
        let pings = soft::Pings::every(Duration::from_millis(10), &guest, "10.77.0.2");

        let ended = AtomicBool::new(false);
        let clients: Vec<_> =
            (0..REPLICAS).map(|replica| fleet.client(replica, "tenant-acme")).collect();
        let (rounds, ()) = tokio::join!(use_it(&clients, &ended), async {
            for replica in 0..REPLICAS {
                fleet.upgrade_replica(replica).await;
                fleet.leader().await;
            }
            for host in 0..HOSTS {
                fleet.upgrade_host(host).await;
                eventually(async || fleet.condition(host).await == Ok(Condition::InStep)).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            ended.store(true, Ordering::Release);
        });
        let answered = tokio::task::spawn_blocking(|| pings.all_came_back()).await.unwrap();
        println!("{rounds} rounds of calls, {answered} pings");
        assert!(rounds >= 10 && answered > 100, "{rounds} rounds, {answered} pings");

        // All that was acknowledged is there, and served by one host each.
        let kept: Vec<String> =
            (0..rounds).filter(|of| of % 2 == 1).map(|of| format!("d{of}")).collect();
        let all: Vec<&str> = kept.iter().map(String::as_str).chain(["web"]).collect();
        fleet.served_once(&all).await;
    }));
}
