//! Answers that tenants and operators get from any replica.

use snic_api::v1;
use tonic::Code;

use crate::cluster::{Cluster, in_time, runtime};
use crate::host;
use crate::rig::Rig;

const UUID: &str = "123e4567-e89b-42d3-a456-426614174000";
const CHAIN: [&str; 2] = ["firewall", "nat"];

#[test]
fn what_one_replica_took_all_others_show() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 3).await;
        let leader = rig.leader().await;
        let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
        let root = rig.client(one, "operator/root").await;
        let made = root.create_tenant("acme", UUID).await.unwrap();
        // Repeated at another replica it is the same; another request with its number is not.
        let elsewhere = rig.client(other, "operator/root").await;
        assert_eq!(elsewhere.create_tenant("acme", UUID).await.unwrap(), made);
        let reused = elsewhere.create_tenant("globex", UUID).await.unwrap_err();
        assert_eq!(reused.code(), Code::AlreadyExists, "{reused:?}");
        let exists = elsewhere.create_tenant("acme", "").await.unwrap_err();
        assert_eq!(exists.code(), Code::AlreadyExists, "{exists:?}");
        elsewhere.create_tenant("globex", "").await.unwrap();

        let hosts = [
            rig.connect(0, "host/h1").await,
            rig.connect(1, "host/h1").await,
            rig.connect(2, "host/h1").await,
        ];
        let running = tokio::spawn(host::run(hosts.to_vec()));
        root.provide("h1", &CHAIN).await;
        let acme = rig.client(one, "tenant/acme").await;
        let operation = acme.create_dag(("acme", "web"), &CHAIN, "").await.unwrap();
        let ended = rig.client(leader, "tenant/acme").await.wait(&operation.name).await.unwrap();
        assert!(ended.done, "{ended:?}");
        assert!(matches!(ended.result, Some(v1::operation::Result::Response(_))), "{ended:?}");
        let dag = rig.client(other, "tenant/acme").await.dag("acme", "web").await.unwrap();
        assert_eq!(dag.state(), v1::dag::State::Ready);
        assert!(dag.conditions.iter().all(|one| !one.message.contains("h1")), "{dag:?}");
        let shown = rig.client(other, "operator/root").await.dag("acme", "web").await.unwrap();
        assert!(shown.conditions.iter().any(|one| one.message.contains("h1")), "{shown:?}");

        // For another tenant it is as absent as what never was, to the byte but for the name.
        let globex = rig.client(other, "tenant/globex").await;
        let foreign = globex.dag("acme", "web").await.unwrap_err();
        let absent = globex.dag("acme", "nil").await.unwrap_err();
        assert_eq!(foreign.code(), Code::NotFound);
        assert_eq!(foreign.message().replace("web", "nil"), absent.message());
        let waits = globex.wait(&operation.name).await.unwrap_err();
        assert_eq!(waits.code(), Code::NotFound);
        let made = globex.create_dag(("acme", "mine"), &CHAIN, "").await.unwrap_err();
        assert_ne!(made.code(), Code::Ok);
        running.abort();
    }));
}
