//! DAGs that are created together, as a tenant sees it.

use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1::batch_create_dags_result::Result as Created;
use snic_api::v1::{self, ErrorReason};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::operator::AES_BPS;
use crate::rig::{Client, Rig, chain};

fn request(dags: &[(&str, v1::Dag)]) -> v1::BatchCreateDagsRequest {
    let one = |(id, dag): &(&str, v1::Dag)| v1::CreateDagRequest {
        dag_id: (*id).into(),
        dag: Some(dag.clone()),
        ..Default::default()
    };
    v1::BatchCreateDagsRequest {
        parent: "tenants/acme".into(),
        requests: dags.iter().map(one).collect(),
        ..Default::default()
    }
}

fn gbps(nodes: &[&str], gbps: u64) -> v1::Dag {
    v1::Dag { bandwidth_bps: gbps * 1_000_000_000, ..chain(nodes) }
}

async fn create(
    client: &mut Client,
    request: v1::BatchCreateDagsRequest,
) -> Result<Vec<Created>, Status> {
    let reply = client.dags.batch_create_dags(request).await?.into_inner();
    Ok(reply.results.into_iter().map(|one| one.result.expect("set")).collect())
}

fn operation(result: &Created) -> v1::Operation {
    match result {
        Created::Operation(operation) => operation.clone(),
        Created::Error(error) => panic!("{error:?}"),
    }
}

fn fields(status: &Status) -> Vec<String> {
    let violations = status.get_details_bad_request().map(|bad| bad.field_violations);
    violations.unwrap_or_default().into_iter().map(|violation| violation.field).collect()
}

#[tokio::test]
async fn a_batch_becomes_ready_and_is_repeated_alike() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let dags = [("web", chain(&["nat", "firewall"])), ("vpn", chain(&["aes"]))];
    let id = "123e4567-e89b-42d3-a456-426614174000".to_owned();
    let request = v1::BatchCreateDagsRequest { request_id: id, ..request(&dags) };
    let first = create(&mut acme, request.clone()).await.expect("accepted");
    for (result, (id, _)) in first.iter().zip(&dags) {
        let ended = acme.wait(&operation(result).name).await;
        let target = ended.metadata.expect("always there").target;
        assert_eq!(target, format!("tenants/acme/dags/{id}"));
        let dag = acme.get_dag(&target).await.expect("there");
        assert_eq!(dag.state(), v1::dag::State::Ready);
    }
    let again = create(&mut acme, request.clone()).await.expect("repeated");
    let names = |all: &[Created]| all.iter().map(|one| operation(one).name).collect::<Vec<_>>();
    assert_eq!(names(&again), names(&first));
    let other = v1::BatchCreateDagsRequest { allow_partial: true, ..request };
    let status = create(&mut acme, other).await.expect_err("another request");
    assert_eq!(reason_of(&status), Some(ErrorReason::RequestIdReused));
    rig.stop().await;
}

#[tokio::test]
async fn all_are_created_or_none_unless_parts_will_do() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let dags = [("a", gbps(&["nat"], 1)), ("b", gbps(&["aes"], 98)), ("c", gbps(&["none"], 1))];
    let status = create(&mut acme, request(&dags)).await.expect_err("none");
    let told = (status.code(), reason_of(&status));
    assert_eq!(told, (Code::ResourceExhausted, Some(ErrorReason::InsufficientCapacity)));
    assert!(status.message().starts_with("requests[1]: "), "{}", status.message());
    assert!(status.message().ends_with("2 of 3 DAGs cannot be"), "{}", status.message());
    for (id, _) in &dags {
        let name = format!("tenants/acme/dags/{id}");
        assert_eq!(acme.get_dag(&name).await.expect_err("none").code(), Code::NotFound);
    }
    let mut parts = v1::BatchCreateDagsRequest { allow_partial: true, ..request(&dags) };
    // One that cannot even be read does not keep the others out.
    parts.requests.push(v1::CreateDagRequest { dag_id: "E!".into(), ..Default::default() });
    let results = create(&mut acme, parts).await.expect("some");
    acme.wait(&operation(&results[0]).name).await;
    let reasons: Vec<_> = results[1..]
        .iter()
        .map(|result| match result {
            Created::Error(error) => reason_of(&Status::from(error.clone())),
            Created::Operation(operation) => panic!("{operation:?}"),
        })
        .collect();
    let expected =
        [ErrorReason::InsufficientCapacity, ErrorReason::UnknownNtType, ErrorReason::InvalidField];
    assert_eq!(reasons, expected.map(Some));
    let dag = acme.get_dag("tenants/acme/dags/a").await.expect("there");
    assert_eq!(dag.state(), v1::dag::State::Ready);
    rig.stop().await;
}

#[tokio::test]
async fn a_dry_run_shows_each_mapping_and_changes_nothing() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let dags = [("web", chain(&["nat", "firewall"])), ("vpn", chain(&["aes"]))];
    let dry = v1::BatchCreateDagsRequest { validate_only: true, ..request(&dags) };
    let results = create(&mut acme, dry).await.expect("it would be");
    for (result, (id, _)) in results.iter().zip(&dags) {
        let operation = operation(result);
        assert!(operation.name.is_empty() && operation.done, "{operation:?}");
        let target = operation.metadata.expect("always there").target;
        assert_eq!(target, format!("tenants/acme/dags/{id}"));
        assert_eq!(acme.get_dag(&target).await.expect_err("not made").code(), Code::NotFound);
    }
    let twice = v1::BatchCreateDagsRequest {
        validate_only: true,
        ..request(&[("web", chain(&["nat"])), ("web", chain(&["nat"]))])
    };
    let status = create(&mut acme, twice).await.expect_err("as without a dry run");
    assert_eq!(fields(&status), ["requests[1].dag_id"]);
    rig.stop().await;
}

#[tokio::test]
async fn nonsense_is_named_with_its_place() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let good = || ("web", chain(&["nat"]));
    let with = |change: fn(&mut v1::CreateDagRequest)| {
        let mut request = request(&[good(), ("x", chain(&["nat"]))]);
        change(&mut request.requests[1]);
        request
    };
    let many: Vec<String> = (0..33).map(|number| format!("d{number}")).collect();
    let many: Vec<_> = many.iter().map(|id| (id.as_str(), chain(&["nat"]))).collect();
    let cases = [
        (request(&[]), "requests"),
        (request(&many), "requests"),
        (with(|one| one.dag = None), "requests[1].dag"),
        (with(|one| one.dag_id = "X Y".into()), "requests[1].dag_id"),
        (with(|one| one.parent = "tenants/globex".into()), "requests[1].parent"),
        (with(|one| one.validate_only = true), "requests[1].validate_only"),
        (with(|one| one.request_id = "x".into()), "requests[1].request_id"),
        (with(|one| one.dag = Some(chain(&["none"]))), "requests[1].dag.nodes[0].nt_type"),
    ];
    for (request, field) in cases {
        let status = create(&mut acme, request).await.expect_err(field);
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.into()]));
    }
    let foreign =
        v1::BatchCreateDagsRequest { parent: "tenants/globex".into(), ..request(&[good()]) };
    let status = create(&mut acme, foreign).await.expect_err("another tenant's");
    assert_eq!(status.code(), Code::NotFound);
    rig.stop().await;
}

/// Many callers at once: who is planned on cards that change is planned again, and nothing is booked twice.
#[tokio::test]
async fn batches_at_once_do_not_stand_in_each_others_way() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let mut tasks = Vec::new();
    for number in 0..6 {
        let tenant = format!("t{number}");
        operator.create_tenant(&tenant).await.expect("a tenant");
        let mut client = rig.client(&format!("tenant/{tenant}")).await;
        tasks.push(tokio::spawn(async move {
            let dags = [("a", chain(&["nat"])), ("b", chain(&["aes"])), ("c", chain(&["nat"]))];
            let parent = format!("tenants/{tenant}");
            let request = v1::BatchCreateDagsRequest { parent, ..request(&dags) };
            let results = create(&mut client, request).await.expect("there is room for all");
            for result in &results {
                client.wait(&operation(result).name).await;
            }
            results.len()
        }));
    }
    for task in tasks {
        assert_eq!(task.await.expect("no panic"), 3);
    }
    rig.stop().await;
}

/// The region of a DAG with one instance.
async fn region_of(client: &mut Client, id: &str) -> String {
    let dag = client.get_dag(&format!("tenants/acme/dags/{id}")).await.expect("it is there");
    dag.mapping.expect("mapped").stages[0].branches[0].instances[0].region.clone()
}

/// All regions are in use until a DAG has moved together with another one. The batch waits for that, and is planned again.
#[tokio::test]
async fn a_batch_waits_for_dags_that_move() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let aes = |percent: u64| v1::Dag { bandwidth_bps: AES_BPS / 100 * percent, ..chain(&["aes"]) };
    for (id, percent) in [("a", 60), ("b", 70), ("c", 30)] {
        operator.ready_dag(&format!("tenants/acme/dags/{id}"), aes(percent)).await;
    }
    let mut nts = ('a'..='z').map(|letter| format!("other-{letter}"));
    let last = loop {
        let nt = nts.next().expect("the card has fewer regions than there are letters");
        operator.create_nt(&nt, true).await.expect("an NT type");
        operator.upload(&nt, &[&nt]).await.expect("a bitstream");
        match operator.create_dag(&format!("tenants/acme/dags/{nt}"), chain(&[&nt])).await {
            Ok(operation) => drop(operator.wait(&operation.name).await),
            Err(_) => break nt,
        }
    };
    let name = "tenants/acme/dags/a".to_owned();
    let request_of = v1::DeleteDagRequest { name, ..Default::default() };
    let deletion = operator.dags.delete_dag(request_of).await.item().expect("accepted");
    operator.wait(&deletion.name).await;
    let before = region_of(&mut operator, "c").await;
    let mut acme = rig.client("tenant/acme").await;
    let results =
        create(&mut acme, request(&[("last", chain(&[&last])), ("more", chain(&["other-a"]))]))
            .await;
    for result in results.expect("a region was freed") {
        acme.wait(&operation(&result).name).await;
    }
    assert_ne!(region_of(&mut operator, "c").await, before, "it moved");
    assert_eq!(region_of(&mut operator, "last").await, before, "the region that it freed");
    rig.stop().await;
}
