//! Answers that tenants and operators get from any replica.

use snic_api::convert::nt_type::nt_type_to_wire;
use snic_api::v1;
use snic_api::v1::dag_service_client::DagServiceClient;
use snic_api::v1::network_task_service_client::NetworkTaskServiceClient;
use snic_api::v1::tenant_service_client::TenantServiceClient;
use tonic::Code;

use crate::cluster::{Cluster, in_time, runtime};
use crate::host;
use crate::rig::{Client, Rig, nt};

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
        assert_eq!(dag.fleet_card, "", "tenants are not told");
        assert!(shown.fleet_card.starts_with("hosts/h1/cards/"), "{shown:?}");

        where_it_may_go(&acme).await;

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

/// A tenant says where a DAG may go, and reads it again; a refusal counts hosts and names none.
async fn where_it_may_go(acme: &Client) {
    let wanted = |zone: &str| {
        let zones = vec![zone.to_owned()];
        let order = v1::placement::Order::Spread.into();
        let placement = Some(v1::Placement { zones, order, ..Default::default() });
        let (id, nt_type) = ("nat".to_owned(), "ntTypes/nat".to_owned());
        let nodes = vec![v1::dag::Node { id, nt_type, configuration: None }];
        let (name, bandwidth_bps) = ("tenants/acme/dags/near".to_owned(), 1_000_000);
        v1::Dag { name, nodes, bandwidth_bps, placement, ..Default::default() }
    };
    let create = |zone: &str| v1::CreateDagRequest {
        parent: "tenants/acme".to_owned(),
        dag_id: "near".to_owned(),
        dag: Some(wanted(zone)),
        ..Default::default()
    };
    let mut dags = DagServiceClient::new(acme.0.clone());
    let refused = dags.create_dag(create("z9")).await.unwrap_err();
    assert!(refused.message().contains("1 in another zone"), "{refused:?}");
    assert!(!refused.message().contains("h1"), "{refused:?}");
    dags.create_dag(create("z1")).await.unwrap();
    let shown = acme.dag("acme", "near").await.unwrap();
    assert_eq!(shown.placement, wanted("z1").placement);
    let update = |zone: &str| v1::UpdateDagRequest {
        dag: Some(v1::Dag { bandwidth_bps: 2_000_000, ..wanted(zone) }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["bandwidth_bps".to_owned()] }),
        ..Default::default()
    };
    let moved = dags.update_dag(update("z2")).await.unwrap_err();
    assert!(moved.message().contains("create it anew"), "{moved:?}");
    dags.update_dag(update("z1")).await.unwrap();
    apart_from_others(&mut dags, create("z1")).await;
}

/// DAGs share no host or rack with others of their tenant that they name; a refusal says how many hosts that left out.
async fn apart_from_others(
    dags: &mut DagServiceClient<tonic::transport::Channel>,
    create: v1::CreateDagRequest,
) {
    let apart = |hosts: &[&str], racks: &[&str]| {
        let names = |of: &[&str]| of.iter().map(ToString::to_string).collect();
        let (hosts_without_dags, racks_without_dags) = (names(hosts), names(racks));
        let placement =
            v1::Placement { hosts_without_dags, racks_without_dags, ..Default::default() };
        let name = "tenants/acme/dags/far".to_owned();
        let dag = create.dag.clone().map(|dag| v1::Dag { name, ..dag });
        let dag = dag.map(|dag| v1::Dag { placement: Some(placement), ..dag });
        v1::CreateDagRequest { dag_id: "far".to_owned(), dag, ..create.clone() }
    };
    let near = "tenants/acme/dags/near";
    for (request, said) in [
        (apart(&[near], &[]), "1 with DAGs to share no host with"),
        (apart(&[], &[near]), "1 in racks of DAGs to share no rack with"),
        (apart(&[], &["tenants/globex/dags/near"]), "name DAGs of the same tenant"),
        (apart(&["tenants/acme/dags/far"], &[]), "names itself"),
        (apart(&["near"], &[]), "dag.placement.hosts_without_dags[0]"),
    ] {
        let refused = dags.create_dag(request).await.expect_err(said);
        assert!(format!("{refused:?}").contains(said), "{said}: {refused:?}");
        assert!(!refused.message().contains("h1"), "{refused:?}");
    }
    let absent = "tenants/acme/dags/absent".to_owned();
    dags.create_dag(apart(&[&absent], &[])).await.unwrap();
    let name = "tenants/acme/dags/far".to_owned();
    let shown = dags.get_dag(v1::GetDagRequest { name }).await.unwrap();
    let placement = shown.into_inner().dag.and_then(|dag| dag.placement).expect("it is shown");
    assert_eq!(placement.hosts_without_dags, [absent]);
}

/// The dry run of a change is refused as the change is, at any replica, and leaves nothing.
#[test]
fn a_dry_run_is_refused_as_the_run_is_and_leaves_nothing() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 2).await;
        let other = (rig.leader().await + 1) % 2;
        let root = rig.client(other, "operator/root").await;
        root.create_tenant("acme", "").await.unwrap();
        let mut tenants = TenantServiceClient::new(root.0.clone());
        let mut nts = NetworkTaskServiceClient::new(root.0.clone());
        for (id, weight, fails) in [("beta", 2_000, true), ("acme", 2, true), ("beta", 2, false)] {
            let mut seen = Vec::new();
            for validate_only in [true, false] {
                let request = v1::CreateTenantRequest {
                    tenant_id: id.into(),
                    tenant: Some(v1::Tenant { weight, ..Default::default() }),
                    request_id: String::new(),
                    validate_only,
                };
                let made = tenants.create_tenant(request).await.map(|_| ());
                let made = made.map_err(|status| (status.code(), status.message().to_owned()));
                assert_eq!(made.is_err(), fails, "{id} {weight}: {made:?}");
                seen.push(made);
                let is_there = root.tenant(id).await.is_ok();
                assert_eq!(is_there, id == "acme" || !(validate_only || fails), "{id}");
            }
            assert_eq!(seen[0], seen[1]);
        }
        let update = v1::UpdateTenantRequest {
            tenant: Some(v1::Tenant {
                name: "tenants/acme".into(),
                weight: 7,
                ..Default::default()
            }),
            validate_only: true,
            ..Default::default()
        };
        let before = root.tenant("acme").await.unwrap();
        tenants.update_tenant(update).await.unwrap();
        assert_eq!(root.tenant("acme").await.unwrap(), before);
        let request = |validate_only| v1::CreateNtTypeRequest {
            nt_type_id: "nat".into(),
            nt_type: Some(nt_type_to_wire(&nt("nat"))),
            request_id: String::new(),
            validate_only,
        };
        // The second would fail, had the first left anything; the last fails.
        for (validate_only, fails) in [(true, false), (false, false), (true, true)] {
            let made = nts.create_nt_type(request(validate_only)).await;
            assert_eq!(made.is_err(), fails, "{made:?}");
        }
    }));
}
