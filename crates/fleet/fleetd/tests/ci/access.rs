//! Access to the fleet's own services.

use snic_api::fleet_v1::AskRequest;
use snic_api::fleet_v1::replica_service_client::ReplicaServiceClient;
use snic_domain::Digest;
use tonic::Code;

use crate::cluster::{Cluster, in_time, runtime};
use crate::host::{fetch, link};
use crate::rig::Rig;

const CALLERS: [&str; 6] = [
    "tenant/acme",
    "tenant/acme/bob",
    "orchestrator/virt",
    "operator/root",
    "host/h1",
    "replica/r9",
];

/// Each of the fleet's kinds of methods, tried by every kind of caller.
#[test]
fn hosts_and_replicas_have_methods_of_their_own_and_no_others() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 1).await;
        assert_eq!(rig.leader().await, 0);
        for who in CALLERS {
            let channel = rig.connect(0, who).await;
            let client = rig.client(0, who).await;
            let denied = |code: Code| code == Code::PermissionDenied;
            let kind = who.split('/').next().unwrap();

            let linked = link(channel.clone()).await.map(drop);
            assert_eq!(linked.is_ok(), kind == "host", "{who} links: {linked:?}");
            let fetched = fetch(channel.clone(), Digest::of(b"")).await.unwrap_err();
            assert_eq!(denied(fetched.code()), kind != "host", "{who} fetches: {fetched:?}");
            let mut replica = ReplicaServiceClient::new(channel.clone());
            let asked = replica.ask(AskRequest { ask: b"{}".to_vec() }).await.unwrap_err();
            assert_eq!(denied(asked.code()), kind != "replica", "{who} asks: {asked:?}");
            let fleet = client.fleet().await.map(drop);
            assert_eq!(fleet.is_ok(), kind == "operator", "{who} reads the fleet: {fleet:?}");
            let registered = client.create_host(&format!("of-{kind}")).await.map(drop);
            assert_eq!(registered.is_ok(), kind == "operator", "{who} registers: {registered:?}");
            let tenant = client.create_tenant(&format!("of-{kind}"), "").await.map(drop);
            assert_eq!(tenant.is_ok(), kind == "operator", "{who} creates: {tenant:?}");
            let read = client.tenant("acme").await.unwrap_err();
            let may_read = matches!(who, "tenant/acme" | "operator/root");
            assert_eq!(read.code() == Code::NotFound, may_read, "{who} reads: {read:?}");
        }
    }));
}

#[test]
fn a_second_link_ends_the_first_and_a_host_cannot_speak_for_another() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 1).await;
        rig.leader().await;
        let root = rig.client(0, "operator/root").await;
        for host in ["h1", "h2"] {
            root.create_host(host).await.unwrap();
        }
        let (_first, mut orders) = link(rig.connect(0, "host/h1").await).await.unwrap();
        let (_other, mut of_other) = link(rig.connect(0, "host/h2").await).await.unwrap();
        let (_second, _) = link(rig.connect(0, "host/h1").await).await.unwrap();
        let ended = loop {
            match orders.message().await {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(status) => break Some(status),
            }
        };
        assert!(ended.unwrap().message().contains("linked itself again"));
        // The other host's link is as before: nothing ends it within a time in which the first one's was.
        let quiet = tokio::time::timeout(std::time::Duration::from_millis(300), async {
            while let Ok(Some(_)) = of_other.message().await {}
        });
        assert!(quiet.await.is_err(), "the other host's link ended");
    }));
}

/// Certificates that are replaced while replicas run count from the next request on.
#[test]
fn what_a_replica_shows_others_can_be_replaced() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 2).await;
        let other = 1 - rig.leader().await;
        let root = rig.client(other, "operator/root").await;
        root.create_tenant("acme", "").await.unwrap();
        rig.show(other, "host/h1");
        let denied = root.create_tenant("globex", "").await.unwrap_err();
        assert_eq!(denied.code(), Code::Unavailable, "the leader hears no host: {denied:?}");
        rig.show(other, "replica/another");
        root.create_tenant("globex", "").await.unwrap();
    }));
}
