//! Watches at any replica, which go on at another one.

use snic_api::v1;
use snic_api::v1::dag::State;
use snic_api::v1::dag_service_client::DagServiceClient;
use snic_api::v1::network_task_service_client::NetworkTaskServiceClient;
use snic_api::v1::operation_service_client::OperationServiceClient;
use snic_api::v1::{EventType, WatchDagsResponse};
use tonic::{Code, Status, Streaming};

use crate::cluster::{Cluster, eventually, in_time, runtime};
use crate::host;
use crate::rig::{Client, Rig};

const CHAIN: [&str; 2] = ["firewall", "nat"];

async fn watch(
    of: &Client,
    parent: &str,
    resume_revision: u64,
) -> Result<Streaming<WatchDagsResponse>, Status> {
    let request = v1::WatchDagsRequest { parent: parent.into(), resume_revision };
    Ok(DagServiceClient::new(of.0.clone()).watch_dags(request).await?.into_inner())
}

/// Content of an event: its type, the last part of the DAG's name and its state.
fn said(event: &WatchDagsResponse) -> (EventType, String, State) {
    let dag = event.dag.clone().unwrap_or_default();
    let name = dag.name.rsplit('/').next().unwrap().to_owned();
    (event.r#type(), name, dag.state())
}

/// All events up to the first that is wanted, which is the last.
async fn until(
    watch: &mut Streaming<WatchDagsResponse>,
    wanted: impl Fn(&WatchDagsResponse) -> bool,
) -> Vec<WatchDagsResponse> {
    let mut all = Vec::new();
    loop {
        let event = watch.message().await.unwrap().expect("it goes on");
        all.push(event.clone());
        if wanted(&event) {
            return all;
        }
    }
}

fn is(dag: &'static str, kind: EventType) -> impl Fn(&WatchDagsResponse) -> bool {
    move |event| {
        let (of, name, _) = said(event);
        (of, name.as_str()) == (kind, dag)
    }
}

fn is_ready(dag: &'static str) -> impl Fn(&WatchDagsResponse) -> bool {
    move |event| {
        let (_, name, state) = said(event);
        (name.as_str(), state) == (dag, State::Ready)
    }
}

/// Tenants see what is theirs, and operators everything.
async fn check_who_sees_what(rig: &Rig, replica: usize) {
    for (who, parent, wanted) in [
        ("tenant/globex", "tenants/acme", None),
        ("tenant/acme", "tenants/nobody", None),
        ("operator/root", "tenants/nobody", None),
        ("tenant/globex", "tenants/-", Some(vec!["other"])),
        ("operator/root", "tenants/acme", Some(vec!["one"])),
        ("operator/root", "tenants/-", Some(vec!["one", "other"])),
    ] {
        let client = rig.client(replica, who).await;
        let found = match watch(&client, parent, 0).await {
            Ok(mut events) => {
                let is_end = |event: &WatchDagsResponse| event.r#type() == EventType::Bookmark;
                let mut all = until(&mut events, is_end).await;
                all.pop();
                assert!(all.iter().all(|event| event.revision == 0), "{all:?}");
                Some(all.iter().map(|event| said(event).1).collect::<Vec<_>>())
            }
            Err(status) => {
                assert_eq!(status.code(), Code::NotFound, "{status:?}");
                None
            }
        };
        let wanted = wanted.map(|of| of.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(found, wanted, "{who} watches {parent}");
    }
}

/// A watch begins at a replica that does not lead, sees a DAG become ready, and goes on at another replica after the
/// leader has crashed, without a gap.
#[test]
fn a_watch_goes_on_at_another_replica_when_the_leader_goes() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut rig = Rig::start(cluster, 3).await;
        let first = rig.leader().await;
        let (second, third) = ((first + 1) % 3, (first + 2) % 3);
        let root = rig.client(first, "operator/root").await;
        for tenant in ["acme", "globex"] {
            root.create_tenant(tenant, "").await.unwrap();
        }
        let mut hosts = Vec::new();
        for replica in 0..3 {
            hosts.push(rig.connect(replica, "host/h1").await);
        }
        let running = tokio::spawn(host::run(hosts));
        root.provide("h1", &CHAIN).await;
        let acme = rig.client(second, "tenant/acme").await;
        let mut watching = watch(&acme, "tenants/-", 0).await.unwrap();
        let begun = until(&mut watching, |event| event.r#type() == EventType::Bookmark).await;
        assert!(begun.len() == 1 && begun[0].revision > 0, "{begun:?}");

        let globex = rig.client(third, "tenant/globex").await;
        globex.create_dag(("globex", "other"), &CHAIN, "").await.unwrap();
        acme.create_dag(("acme", "one"), &CHAIN, "").await.unwrap();
        let seen = until(&mut watching, is_ready("one")).await;
        assert_eq!(seen[0].r#type(), EventType::Added);
        assert!(seen.iter().all(|event| said(event).1 == "one"), "{seen:?}");
        let at = seen.last().unwrap().revision;
        assert!(seen.is_sorted_by_key(|event| event.revision) && at > begun[0].revision);

        check_who_sees_what(&rig, third).await;

        rig.abort(first);
        let acme = rig.client(third, "tenant/acme").await;
        eventually(async || acme.create_dag(("acme", "two"), &CHAIN, "").await.is_ok()).await;
        let mut resumed = watch(&acme, "tenants/acme", at).await.unwrap();
        let seen = until(&mut resumed, is_ready("two")).await;
        assert!(is("two", EventType::Added)(&seen[0]), "{seen:?}");
        // The watch at the second replica never ended.
        until(&mut watching, is_ready("two")).await;
        let request =
            v1::DeleteDagRequest { name: "tenants/acme/dags/one".into(), ..Default::default() };
        DagServiceClient::new(acme.0.clone()).delete_dag(request).await.unwrap();
        until(&mut resumed, is("one", EventType::Deleted)).await;

        // A list says where a watch goes on.
        let request = v1::ListDagsRequest { parent: "tenants/acme".into(), ..Default::default() };
        let listed = DagServiceClient::new(acme.0.clone()).list_dags(request).await.unwrap();
        let listed = listed.into_inner();
        let names: Vec<_> = listed.dags.iter().map(|dag| dag.name.as_str()).collect();
        assert_eq!(names, ["tenants/acme/dags/two"]);
        let mut after = watch(&acme, "tenants/acme", listed.revision).await.unwrap();
        eventually(async || acme.create_dag(("acme", "three"), &CHAIN, "").await.is_ok()).await;
        let seen = until(&mut after, is_ready("three")).await;
        assert!(seen.iter().all(|event| said(event).1 != "one"), "{seen:?}");

        // A revision that there never was, and the end of the tenant.
        let wrong = watch(&acme, "tenants/acme", 1 << 40).await.unwrap_err();
        assert_eq!(wrong.code(), Code::OutOfRange, "{wrong:?}");
        running.abort();
    }));
}

/// Operations and NT types: the same from each replica.
#[test]
fn operations_and_nt_types_are_listed_and_watched() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 2).await;
        let leader = rig.leader().await;
        let root = rig.client(leader, "operator/root").await;
        root.create_tenant("acme", "").await.unwrap();
        let hosts = vec![rig.connect(0, "host/h1").await, rig.connect(1, "host/h1").await];
        let running = tokio::spawn(host::run(hosts));
        root.provide("h1", &CHAIN).await;
        let acme = rig.client(1 - leader, "tenant/acme").await;
        let mut nts = NetworkTaskServiceClient::new(acme.0.clone());
        let nts = nts.watch_nt_types(v1::WatchNtTypesRequest { resume_revision: 0 }).await;
        let mut nts = nts.unwrap().into_inner();
        for wanted in [Some("ntTypes/firewall"), Some("ntTypes/nat"), None] {
            let told = nts.message().await.unwrap().unwrap();
            assert_eq!(told.nt_type.as_ref().map(|nt| nt.name.as_str()), wanted);
            assert_eq!(told.revision > 0, wanted.is_none());
        }

        let begun = acme.create_dag(("acme", "one"), &CHAIN, "").await.unwrap();
        let mut operations = OperationServiceClient::new(acme.0.clone());
        let request = v1::WatchOperationsRequest { resume_revision: 0 };
        let mut watching = operations.watch_operations(request).await.unwrap().into_inner();
        let ended = loop {
            let told = watching.message().await.unwrap().unwrap();
            if let Some(operation) = told.operation.filter(|of| of.done) {
                break operation;
            }
        };
        assert_eq!(ended.name, begun.name);
        let list = async |target: &str, running_only: bool| {
            let target = target.to_owned();
            let request = v1::ListOperationsRequest { target, running_only, ..Default::default() };
            let listed = OperationServiceClient::new(acme.0.clone()).list_operations(request).await;
            let listed = listed.unwrap().into_inner().operations;
            listed.into_iter().map(|of| of.name).collect::<Vec<_>>()
        };
        assert_eq!(list("", false).await, [begun.name.as_str()]);
        assert_eq!(list("tenants/acme/dags/one", false).await, [begun.name.as_str()]);
        assert_eq!(list("tenants/acme/dags/two", false).await, [""; 0]);
        assert_eq!(list("", true).await, [""; 0]);
        let request = v1::CancelOperationRequest { name: begun.name, ..Default::default() };
        let refused = operations.cancel_operation(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        running.abort();
    }));
}
