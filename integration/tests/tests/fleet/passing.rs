//! Questions that only a host can answer, asked at the fleet's endpoint: tenants change the endpoint and nothing else, and operators look
//! into a host.

use std::time::Duration;

use snic_api::v1;
use snic_domain::{Bandwidth, DagSpec};
use snic_integration::TestClient;
use tonic::{Code, Request};

use super::cluster::{Cluster, eventually, in_time, runtime};
use super::rig::{Cards, Fleet, name};

/// A request about a host, by an operator.
fn at<T>(host: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("snic-host", host.parse().unwrap());
    request
}

fn diagnose(dag: &str) -> v1::DiagnoseDagRequest {
    v1::DiagnoseDagRequest { name: format!("tenants/acme/dags/{dag}") }
}

/// Tenants' own questions at a replica: a diagnosis, and a run of packets through the card that serves the DAG.
async fn tenants_change_the_endpoint_alone(fleet: &Fleet, replica: usize) {
    let acme = fleet.client(replica, "tenant-acme");
    let found = acme.dags().diagnose_dag(diagnose("web")).await.unwrap().into_inner();
    let diagnosis = found.diagnosis.expect("a diagnosis");
    assert_eq!(diagnosis.dag, "tenants/acme/dags/web", "{diagnosis:?}");
    let run = v1::RunTrafficRequest {
        name: "tenants/acme/dags/web".into(),
        rate_bps: 1_000_000,
        duration: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        ..Default::default()
    };
    let mut told = acme.traffic().run_traffic(run).await.unwrap().into_inner();
    let (mut messages, mut packets) = (0, 0);
    while let Some(message) = told.message().await.unwrap() {
        messages += 1;
        packets = message.total.map_or(packets, |total| total.packets_offered);
    }
    assert!(messages >= 2 && packets > 100, "{messages} messages, {packets} packets");
    // The DAG itself says what its host says of it.
    let dag = the_dag(&acme).await;
    let traffic = dag.traffic.expect("its host tells");
    assert!(traffic.packets_out > 100, "{traffic:?}");
    assert!(dag.rate_limit_bps > 0 && dag.mapping.is_some(), "{} bit/s", dag.rate_limit_bps);
}

async fn the_dag(tenant: &TestClient) -> v1::Dag {
    let request = v1::GetDagRequest { name: "tenants/acme/dags/web".into() };
    tenant.dags().get_dag(request).await.unwrap().into_inner().dag.unwrap()
}

/// Another tenant learns nothing, and names no host.
async fn others_are_refused(fleet: &Fleet, replica: usize, host: &str) {
    let zeta = fleet.client(replica, "tenant-zeta");
    let refused = zeta.dags().diagnose_dag(diagnose("web")).await.unwrap_err();
    let absent = zeta.dags().diagnose_dag(diagnose("none")).await.unwrap_err();
    assert_eq!((refused.code(), absent.code()), (Code::NotFound, Code::NotFound));
    let refused = zeta.cards().list_regions(at(host, regions())).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
}

fn regions() -> v1::ListRegionsRequest {
    v1::ListRegionsRequest { parent: "cards/-".into(), ..Default::default() }
}

/// An operator reads what the host itself says, errors with it, and changes nothing.
async fn operators_look_into(fleet: &Fleet, replica: usize, (host, other): (usize, usize)) {
    let (name, other) = (format!("h{host}"), format!("h{other}"));
    let root = fleet.client(replica, "operator-root");
    let here = fleet.host(host).await;
    let own = here.cards().list_regions(regions()).await.unwrap();
    let passed = root.cards().list_regions(at(&name, regions())).await.unwrap();
    let names = |reply: v1::ListRegionsResponse| -> Vec<String> {
        reply.regions.into_iter().map(|region| region.name).collect()
    };
    let (own, passed) = (names(own.into_inner()), names(passed.into_inner()));
    assert!(!own.is_empty() && own == passed, "{own:?} {passed:?}");
    let absent = v1::GetRegionRequest { name: "cards/none/regions/0".into() };
    let said = here.cards().get_region(absent.clone()).await.unwrap_err();
    let told = root.cards().get_region(at(&name, absent)).await.unwrap_err();
    assert_eq!((said.code(), said.message()), (told.code(), told.message()));
    assert_eq!(said.details(), told.details());
    // The other host does not serve it, and says what a host says.
    let dag = v1::GetDagRequest { name: "tenants/acme/dags/web".into() };
    let elsewhere = root.dags().get_dag(at(&other, dag)).await.unwrap_err();
    assert_eq!(elsewhere.code(), Code::NotFound, "{elsewhere}");
    let reset = v1::ResetCardRequest { name: "cards/card0".into(), ..Default::default() };
    let refused = root.cards().reset_card(at(&name, reset)).await.unwrap_err();
    assert!(refused.message().contains("not passed on"), "{refused}");
    let nobody = root.cards().list_regions(at("h9", regions())).await.unwrap_err();
    assert!(nobody.message().contains("host h9 is not linked"), "{nobody}");
}

/// An operator keeps new DAGs off the cards of hosts, through the fleet; the fleet knows it, and places nothing there.
async fn operators_take_cards_out_of_use(fleet: &Fleet, replica: usize) {
    let root = fleet.client(replica, "operator-root");
    let card = "cards/card0".to_owned();
    for host in ["h0", "h1"] {
        let cordon = v1::CordonCardRequest { name: card.clone(), ..Default::default() };
        root.cards().cordon_card(at(host, cordon)).await.unwrap();
    }
    let acme = fleet.client(replica, "tenant-acme");
    let spec = DagSpec::chain(&["nat".parse().unwrap()], Bandwidth::from_mbps(1));
    let dag = name(&format!("late{replica}"));
    // The fleet hears of it with the next beat; until then the host refuses.
    eventually(async || match acme.create_dag(&dag, &spec).await {
        Ok(_) => {
            acme.delete_dag(&dag).await.unwrap();
            false
        }
        Err(status) => status.code() == Code::ResourceExhausted,
    })
    .await;
    for host in ["h0", "h1"] {
        let uncordon = v1::UncordonCardRequest { name: card.clone(), ..Default::default() };
        root.cards().uncordon_card(at(host, uncordon)).await.unwrap();
    }
    eventually(async || acme.create_dag(&dag, &spec).await.is_ok()).await;
    let gone = async || acme.delete_dag(&dag).await.is_ok();
    eventually(gone).await;
}

/// A watch goes on until its reader leaves, and then there is room again. One caller has a share.
async fn watches_give_their_places_back(root: &TestClient, host: &str) {
    let watch = async || root.cards().watch_cards(at(host, v1::WatchCardsRequest::default())).await;
    for _ in 0..40 {
        let mut watch = watch().await.unwrap().into_inner();
        assert!(watch.message().await.unwrap().is_some());
    }
    let mut held = Vec::new();
    let refused = loop {
        match watch().await {
            Ok(watch) => held.push(watch),
            Err(refused) => break refused,
        }
        assert!(held.len() <= 12, "one caller has a share");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
}

/// At each replica, whoever leads. A host that is stopped is told as such, and one that is back answers again.
#[test]
fn a_host_answers_at_the_fleets_endpoint() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start_with(cluster, 2, (2, Cards::Software)).await;
        fleet.create(0, "web", 1).await;
        let host = fleet.served_once(&["web"]).await[0];
        fleet.add_tenant("zeta").await;
        let name = format!("h{host}");
        for replica in 0..2 {
            tenants_change_the_endpoint_alone(&fleet, replica).await;
            others_are_refused(&fleet, replica, &name).await;
            operators_look_into(&fleet, replica, (host, 1 - host)).await;
            operators_take_cards_out_of_use(&fleet, replica).await;
        }
        let root = fleet.client(0, "operator-root");
        watches_give_their_places_back(&root, &name).await;

        fleet.contexts();
        let listed = fleet.shell(&format!("snicctl --context root-r1 --host {name} region list"));
        assert!(listed.unwrap().contains("card0"));
        let top = fleet.shell(&format!("snicctl --context root-r1 --host {name} top --once"));
        assert!(top.as_ref().is_ok_and(|screen| screen.contains("acme/web")), "{top:?}");
        let hinted = fleet.shell("snicctl --context root-r1 region list").unwrap_err();
        assert!(hinted.contains("--host NAME"), "{hinted}");

        fleet.kill_host(host);
        let ask = async || {
            let list = v1::ListCardsRequest::default();
            root.cards().list_cards(at(&name, list)).await
        };
        eventually(async || ask().await.is_err()).await;
        let begun = std::time::Instant::now();
        let away = ask().await.unwrap_err();
        assert_eq!(away.code(), Code::Unavailable, "{away}");
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
        // The fleet knows the DAG without its host.
        let dag = the_dag(&fleet.client(0, "tenant-acme")).await;
        assert_eq!(
            (dag.name.as_str(), dag.bandwidth_bps),
            ("tenants/acme/dags/web", 1_000_000_000)
        );
        fleet.restart_host(host).await;
        eventually(async || ask().await.is_ok()).await;
    }));
}
