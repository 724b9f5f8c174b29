//! The largest DAGs that may be asked for, at a daemon with a software card: each is served, or refused with a reason,
//! and the daemon lives on, and starts again.

use std::time::{Duration, Instant};

use snic_api::convert;
use snic_api::replies::ItemOf as _;
use snic_api::v1;
use snic_api::v1::dag::State;
use snic_bitstream::catalogue;
use snic_domain::{DagName, DagSpec};
use snic_integration::large::{balancer_services, configured, firewall_rules, most_firewall_rules};
use snic_integration::{Home, TestClient};
use tonic::{Code, Status};

/// Longest time until a DAG is ready.
const READY_MAX: Duration = Duration::from_secs(60);

fn name(dag: &str) -> DagName {
    DagName { tenant: "acme".parse().expect("a label"), dag: dag.parse().expect("a label") }
}

async fn validate(client: &TestClient, dag: &str, spec: &DagSpec) -> Result<(), Status> {
    let wire = v1::Dag {
        nodes: convert::dag::nodes_to_wire(spec, convert::dag::whole),
        edges: convert::dag::edges_to_wire(spec),
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

async fn connect(home: &Home) -> TestClient {
    TestClient::connect(&home.socket(), "operator/test").await.expect("it serves")
}

/// Waits until all DAGs are ready; returns the configurations of each by its name.
async fn ready(client: &TestClient) -> Vec<(String, usize)> {
    let until = Instant::now() + READY_MAX;
    loop {
        let dags = client.list_dags().await;
        if dags.iter().all(|dag| dag.state() == State::Ready) {
            let count = |dag: &v1::Dag| {
                let told = dag.nodes.iter().filter(|node| node.configuration.is_some());
                (dag.name.clone(), told.count())
            };
            return dags.iter().map(count).collect();
        }
        assert!(Instant::now() < until, "not ready: {dags:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_dags_are_served_and_survive_updates_and_kills() {
    let home = Home::new();
    let ports =
        ["up.sock", "a.sock"].map(|name| format!("unix:{}", home.path().join(name).display()));
    home.write_soft_settings(&format!("uplink = {:?}\nfunctions = [{:?}]\n", ports[0], ports[1]));
    let mut daemon = home.start().await;
    let mut client = connect(&home).await;
    client.register(&catalogue::builtin().expect("the built-in catalogue")).await;
    client.create_tenant("acme").await.expect("a new tenant");

    let created = [
        ("firewall", configured("firewall", &firewall_rules(300))),
        // 1,500 backends; a service has 512 at most.
        ("balancer", configured("load-balancer", &balancer_services(3, 500))),
    ];
    for (dag, spec) in &created {
        validate(&client, dag, spec).await.expect("it is within the limits");
        let operation = client.create_dag(&name(dag), spec).await.expect("it was validated");
        client.wait(&operation).await.expect("it becomes ready");
    }
    let all = ready(&client).await;
    assert_eq!(all.iter().map(|(_, told)| *told).collect::<Vec<_>>(), [1, 1]);

    // An update needs room for what serves as well.
    let most = configured("firewall", &firewall_rules(most_firewall_rules()));
    let operation = client.update_dag(&name("firewall"), &most).await.expect("within the limits");
    client.wait(&operation).await.expect("it becomes ready");
    daemon.kill();
    daemon = home.start().await;
    client = connect(&home).await;
    assert_eq!(ready(&client).await, all);

    // One rule more is refused alike, before anything is changed.
    let beyond = configured("firewall", &firewall_rules(most_firewall_rules() + 1));
    let dry = validate(&client, "more", &beyond).await.expect_err("it is too long");
    let real = client.create_dag(&name("more"), &beyond).await.expect_err("it is too long");
    let update = client.update_dag(&name("firewall"), &beyond).await.expect_err("it is too long");
    for status in [&dry, &real, &update] {
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains("65536"), "{status:?}");
    }
    // All backends in one service are more than one may have, whatever they take as text.
    for (services, backends, limit) in [(1, 1_500, "512"), (17, 1, "16")] {
        let spec = configured("load-balancer", &balancer_services(services, backends));
        let dry = validate(&client, "more", &spec).await.expect_err("too many");
        let real = client.create_dag(&name("more"), &spec).await.expect_err("too many");
        for status in [dry, real] {
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            assert!(status.message().contains(limit), "{status:?}");
        }
    }
    let request = v1::GetDagRequest { name: name("firewall").to_string() };
    let firewall = client.dags().get_dag(request).await.item().expect("it is there");
    assert_eq!((firewall.state(), firewall.generation), (State::Ready, 2));
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}
