//! DAGs as large as they may be, through the fleet: a host serves them, also after its daemon was killed, and larger ones are
//! refused to their caller.

use snic_api::convert::dag::{edges_to_wire, nodes_to_wire, whole};
use snic_api::fleet_v1::host::Condition;
use snic_api::v1;
use snic_api::v1::dag::State;
use snic_domain::DagSpec;
use snic_integration::TestClient;
use snic_integration::large::{balancer_services, configured, firewall_rules, most_firewall_rules};
use tonic::{Code, Status};

use super::cluster::{Cluster, eventually, in_time, runtime};
use super::rig::{Cards, Fleet, name};

const DAGS: [&str; 2] = ["firewall", "balancer"];

async fn validate(client: &TestClient, dag: &str, spec: &DagSpec) -> Result<(), Status> {
    let wire = v1::Dag {
        nodes: nodes_to_wire(spec, whole),
        edges: edges_to_wire(spec),
        bandwidth_bps: spec.bandwidth.get(),
        ..Default::default()
    };
    let request = v1::CreateDagRequest {
        parent: "tenants/acme".into(),
        dag_id: dag.into(),
        dag: Some(wire),
        validate_only: true,
        request_id: String::new(),
    };
    client.dags().create_dag(request).await.map(|_| ())
}

async fn get(client: &TestClient, dag: &str) -> v1::Dag {
    let request = v1::GetDagRequest { name: name(dag).to_string() };
    client.dags().get_dag(request).await.unwrap().into_inner().dag.unwrap()
}

/// Waits until the one host and the fleet say that all are ready.
async fn all_ready(fleet: &Fleet) {
    assert_eq!(fleet.served_once(&DAGS).await, [0, 0]);
    for dag in DAGS {
        eventually(async || fleet.state(0, dag).await == Ok(State::Ready)).await;
    }
}

/// Larger ones are refused at the fleet, in a dry run and in an update alike, before anything is changed.
async fn larger_ones_are_refused(acme: &TestClient) {
    let before = get(acme, "firewall").await;
    let beyond = configured("firewall", &firewall_rules(most_firewall_rules() + 1));
    let dry = validate(acme, "more", &beyond).await.unwrap_err();
    let real = acme.create_dag(&name("more"), &beyond).await.unwrap_err();
    let update = acme.update_dag(&name("firewall"), &beyond).await.unwrap_err();
    for status in [dry, real, update] {
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains("65536"), "{status:?}");
    }
    assert_eq!(get(acme, "firewall").await.etag, before.etag);
}

#[test]
fn the_largest_dags_of_a_fleet_are_served_and_survive_updates_and_kills() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start_with(cluster, 1, (1, Cards::Software)).await;
        let acme = fleet.client(0, "tenant-acme");
        let specs = [
            configured("firewall", &firewall_rules(300)),
            configured("load-balancer", &balancer_services(3, 500)),
        ];
        for (dag, spec) in DAGS.iter().zip(&specs) {
            validate(&acme, dag, spec).await.unwrap();
            acme.create_dag(&name(dag), spec).await.unwrap();
        }
        all_ready(&fleet).await;
        larger_ones_are_refused(&acme).await;
        let most = configured("firewall", &firewall_rules(most_firewall_rules()));
        acme.update_dag(&name("firewall"), &most).await.unwrap();
        all_ready(&fleet).await;
        let stated = |dag: &v1::Dag| dag.nodes[0].configuration.clone();
        let before = stated(&get(&acme, "firewall").await);
        let processes = fleet.processes();

        fleet.kill_host(0);
        fleet.restart_host(0).await;
        eventually(async || fleet.condition(0).await == Ok(Condition::InStep)).await;
        all_ready(&fleet).await;
        larger_ones_are_refused(&acme).await;
        assert_eq!(stated(&get(&acme, "firewall").await), before);
        fleet.create(0, "small", 1).await;
        assert_eq!(fleet.processes()[0], processes[0], "the replica never ended");
        let replica = std::fs::read_to_string(format!("/proc/{}/stat", processes[0].1)).unwrap();
        assert!(!replica.contains(") Z "), "{replica}");
    }));
}
