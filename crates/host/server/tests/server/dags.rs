//! The life of a DAG, as a tenant sees it.

use std::time::Duration;

use prost::Message as _;
use prost_types::FieldMask;
use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1::event::Kind;
use snic_api::v1::event_service_client::EventServiceClient;
use snic_api::v1::operation::Result as Outcome;
use snic_api::v1::{self, ErrorReason};
use snic_card_sim::Faults;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::rig::{Client, Rig, chain, dag, in_time};

const WEB: &str = "tenants/acme/dags/web";

fn mask(paths: &[&str]) -> Option<FieldMask> {
    Some(FieldMask { paths: paths.iter().map(|path| (*path).to_owned()).collect() })
}

fn response(operation: &v1::Operation) -> v1::Dag {
    let Some(Outcome::Response(any)) = &operation.result else { panic!("{operation:?}") };
    assert_eq!(any.type_url, "type.googleapis.com/snic.control.v1.Dag");
    v1::Dag::decode(any.value.as_slice()).expect("a DAG")
}

#[tokio::test]
async fn a_dag_becomes_ready_and_goes() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let operation = acme.create_dag(WEB, chain(&["nat", "firewall"])).await.expect("accepted");
    let metadata = operation.metadata.clone().expect("always there");
    assert_eq!(
        (metadata.target.as_str(), metadata.verb()),
        (WEB, v1::operation_metadata::Verb::Create)
    );
    let operation = acme.wait(&operation.name).await;
    let created = response(&operation);
    assert_eq!(created.state(), v1::dag::State::Ready);
    let dag = acme.get_dag(WEB).await.expect("there");
    assert_eq!((dag.generation, dag.observed_generation), (1, 1));
    assert_ne!(dag.uid, 0);
    assert!(dag.conditions.iter().all(|c| c.status() == v1::condition::Status::True), "{dag:?}");
    let kinds: Vec<&str> = dag.conditions.iter().map(|c| c.r#type.as_str()).collect();
    assert_eq!(kinds, ["Mapped", "RegionsLoaded", "TablesProgrammed", "PromiseKept", "Ready"]);
    let mapping = dag.mapping.as_ref().expect("mapped");
    // The core and the two NTs: 49 + 12 + 10.
    assert_eq!(
        (mapping.latency_cycles, mapping.reconfigurations, mapping.stages.len()),
        (71, 1, 1)
    );
    let instance = &mapping.stages[0].branches[0].instances[0];
    assert_eq!(instance.bitstream, "bitstreams/nat-firewall");
    assert_eq!(instance.bandwidth_bps, 1_000_000_000);
    let slots: Vec<&str> = instance.slots.iter().map(|slot| slot.node.as_str()).collect();
    assert_eq!(slots, ["nat", "firewall"]);
    let request = v1::DeleteDagRequest { name: WEB.into(), ..Default::default() };
    let operation = acme.dags.delete_dag(request).await.item().expect("accepted");
    let operation = acme.wait(&operation.name).await;
    let Some(Outcome::Response(any)) = operation.result else { panic!("{:?}", operation.result) };
    assert_eq!(any.type_url, "type.googleapis.com/google.protobuf.Empty");
    let status = acme.get_dag(WEB).await.expect_err("gone");
    assert_eq!(reason_of(&status), Some(ErrorReason::ResourceNotFound));
    rig.stop().await;
}

#[tokio::test]
async fn validate_only_changes_nothing() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let of = |dag| v1::CreateDagRequest {
        parent: "tenants/acme".into(),
        dag_id: "web".into(),
        dag: Some(dag),
        validate_only: true,
        request_id: String::new(),
    };
    let answer = acme.dags.create_dag(of(chain(&["nat", "firewall"]))).await.item();
    let operation = answer.expect("it fits");
    assert!(operation.name.is_empty() && operation.done);
    let would_be = response(&operation);
    assert_eq!(would_be.mapping.expect("a mapping").reconfigurations, 1);
    operator.create_nt("kv-cache", true).await.expect("an NT type");
    let status = acme.dags.create_dag(of(chain(&["kv-cache"]))).await.expect_err("no bitstream");
    assert_eq!(status.code(), Code::FailedPrecondition, "as without a dry run: {status:?}");
    assert_eq!(reason_of(&status), Some(ErrorReason::NoBitstream), "{status:?}");
    let status = acme.dags.create_dag(of(chain(&[]))).await.expect_err("no nodes");
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidGraph));
    assert_eq!(acme.get_dag(WEB).await.expect_err("not made").code(), Code::NotFound);
    rig.stop().await;
}

#[tokio::test]
async fn a_repeated_create_changes_nothing_and_answers_the_same() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let request = |dag, request_id: &str| v1::CreateDagRequest {
        parent: "tenants/acme".into(),
        dag_id: "web".into(),
        dag: Some(dag),
        validate_only: false,
        request_id: request_id.into(),
    };
    let id = "123e4567-e89b-42d3-a456-426614174000";
    let first = acme.dags.create_dag(request(chain(&["nat"]), id)).await.item().expect("made");
    let again = request(chain(&["nat"]), &id.to_uppercase());
    let again = acme.dags.create_dag(again).await.item().expect("repeated");
    assert_eq!(first.name, again.name);
    let status = acme.dags.create_dag(request(chain(&["aes"]), id)).await.expect_err("another");
    assert_eq!(reason_of(&status), Some(ErrorReason::RequestIdReused));
    assert_eq!(status.code(), Code::AlreadyExists);
    let status = acme.dags.create_dag(request(chain(&["nat"]), "")).await.expect_err("exists");
    assert_eq!(reason_of(&status), Some(ErrorReason::ResourceExists));
    let status = acme.dags.create_dag(request(chain(&["nat"]), "x")).await.expect_err("no UUID");
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidField));
    rig.stop().await;
}

#[tokio::test]
async fn an_update_sets_what_its_mask_names() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let first = acme.ready_dag(WEB, chain(&["nat", "firewall"])).await;
    let wanted = v1::Dag {
        name: WEB.into(),
        bandwidth_bps: 2_000_000_000,
        nodes: chain(&["aes"]).nodes,
        ..Default::default()
    };
    let request = v1::UpdateDagRequest {
        dag: Some(wanted.clone()),
        update_mask: mask(&["bandwidth_bps"]),
        request_id: "123e4567-e89b-42d3-a456-426614174001".into(),
        ..Default::default()
    };
    let operation = acme.dags.update_dag(request.clone()).await.item().expect("accepted");
    acme.wait(&operation.name).await;
    let repeated = acme.dags.update_dag(request).await.item().expect("repeated");
    assert_eq!(repeated.name, operation.name);
    let second = acme.get_dag(WEB).await.expect("there");
    assert_eq!((second.generation, second.bandwidth_bps), (2, 2_000_000_000));
    assert_eq!(second.nodes, first.nodes, "the mask does not name them");
    assert_eq!(second.uid, first.uid);
    assert_ne!(second.etag, first.etag);
    let update = |dag: v1::Dag, mask| {
        let mut acme = acme.clone();
        let request =
            v1::UpdateDagRequest { dag: Some(dag), update_mask: mask, ..Default::default() };
        async move { acme.dags.update_dag(request).await.item() }
    };
    let stale = v1::Dag { etag: first.etag, ..wanted.clone() };
    let status = update(stale, mask(&["bandwidth_bps"])).await.expect_err("stale");
    assert_eq!(
        (status.code(), reason_of(&status)),
        (Code::Aborted, Some(ErrorReason::EtagMismatch))
    );
    let status = update(wanted, mask(&["uid"])).await.expect_err("not settable");
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidUpdateMask));
    rig.stop().await;
}

#[tokio::test]
async fn a_dag_states_the_sizes_of_its_packets() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let of = |sizes: &[(u32, u32)]| {
        let size = |&(bytes, weight): &(u32, u32)| v1::dag::PacketSize { bytes, weight };
        sizes.iter().map(size).collect::<Vec<_>>()
    };
    let first = acme.ready_dag(WEB, chain(&["nat"])).await;
    assert_eq!(first.packet_sizes, of(&[(64, 7), (594, 4), (1_518, 1)]), "IMIX is the default");
    let caller = acme.clone();
    let update = |dag: v1::Dag| {
        let mut acme = caller.clone();
        let update_mask = mask(&["packet_sizes"]);
        let request = v1::UpdateDagRequest { dag: Some(dag), update_mask, ..Default::default() };
        async move { acme.dags.update_dag(request).await.item() }
    };
    let small = v1::Dag { name: WEB.into(), packet_sizes: of(&[(64, 1)]), ..Default::default() };
    let operation = update(small.clone()).await.expect("accepted");
    acme.wait(&operation.name).await;
    assert_eq!(acme.get_dag(WEB).await.expect("there").packet_sizes, of(&[(64, 1)]));
    let none = v1::Dag { packet_sizes: Vec::new(), ..small.clone() };
    let operation = update(none).await.expect("accepted");
    acme.wait(&operation.name).await;
    assert_eq!(acme.get_dag(WEB).await.expect("there").packet_sizes, first.packet_sizes);
    let tiny = v1::Dag { packet_sizes: of(&[(64, 1), (63, 1)]), ..small };
    let status = update(tiny).await.expect_err("no such packet");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("give 64 to 9216 bytes"), "{status:?}");
    let details = status.get_details_bad_request().expect("it names the field");
    assert_eq!(details.field_violations[0].field, "dag.packet_sizes[1].bytes");
    rig.stop().await;
}

/// A port of a region takes 100 million packets a second, which is 51.2 Gbit/s of 64 B: what one region
/// serves of large packets needs two of small ones.
#[tokio::test]
async fn small_packets_are_another_load_than_large_ones() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let acme = rig.client("tenant/acme").await;
    let check = |bytes: u32| {
        let mut acme = acme.clone();
        let dag = v1::Dag {
            bandwidth_bps: 90_000_000_000,
            packet_sizes: vec![v1::dag::PacketSize { bytes, weight: 1 }],
            ..chain(&["firewall"])
        };
        let request = v1::CreateDagRequest {
            parent: "tenants/acme".into(),
            dag_id: "web".into(),
            dag: Some(dag),
            validate_only: true,
            ..Default::default()
        };
        async move {
            let operation = acme.dags.create_dag(request).await.item().expect("it fits");
            let Some(Outcome::Response(any)) = operation.result else { panic!("{operation:?}") };
            let dag = v1::Dag::decode(&any.value[..]).expect("a DAG");
            let mapping = dag.mapping.expect("where it would be");
            let chains = mapping.stages.into_iter().flat_map(|stage| stage.branches);
            chains.map(|chain| chain.instances.len()).sum::<usize>()
        }
    };
    assert_eq!((check(1_500).await, check(64).await), (1, 2));
    rig.stop().await;
}

#[tokio::test]
async fn the_explanation_says_what_was_chosen_and_what_was_not() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    acme.ready_dag(WEB, chain(&["nat", "firewall"])).await;
    let request = v1::ExplainDagRequest { name: WEB.into() };
    let explanation = acme.dags.explain_dag(request).await.item().expect("explained");
    assert_eq!(explanation.dag.expect("the DAG").name, WEB);
    assert_eq!(explanation.sequential_latency_cycles, 71);
    let [chain] = &explanation.chains[..] else { panic!("{:?}", explanation.chains) };
    assert_eq!(chain.nodes, ["nat", "firewall"]);
    assert_eq!(chain.chosen[0].way(), v1::EmbeddingWay::FreeRegion);
    assert_eq!(chain.rejected[0].way(), v1::EmbeddingWay::Shared);
    assert!(explanation.lines.iter().any(|line| line.contains("cards/card0/regions/")));
    rig.stop().await;
}

/// A DAG of another tenant in the same region: its bandwidth is missing from what the operator reads, and the tenant
/// reads nothing of the region any more.
#[tokio::test]
async fn an_explanation_says_what_is_left_and_nothing_of_others() {
    use v1::shortage::Resource;
    let rig = Rig::start().await;
    rig.furnished().await;
    let (mut operator, mut acme) =
        (rig.client("operator/ops").await, rig.client("tenant/acme").await);
    acme.ready_dag(WEB, chain(&["nat", "firewall"])).await;
    let request = || v1::ExplainDagRequest { name: WEB.into() };
    let left = |explanation: v1::Explanation| {
        let all = explanation.headroom.into_iter();
        let all =
            all.map(|left| (left.resource(), left)).collect::<std::collections::BTreeMap<_, _>>();
        assert!(all.values().all(|left| left.held > 0 && !left.message.is_empty()), "{all:?}");
        all
    };
    let before = left(acme.dags.explain_dag(request()).await.item().expect("explained"));
    let told = |resource: Resource| &before[&resource];
    let nt = told(Resource::NtBandwidth);
    assert!(nt.region.starts_with("cards/card0/regions/") && nt.nt_type.starts_with("ntTypes/"));
    for resource in [Resource::IngressBandwidth, Resource::RegionPort, Resource::PacketStore] {
        assert!(told(resource).available > 0, "{before:?}");
    }
    let mut globex = rig.client("tenant/globex").await;
    globex.ready_dag("tenants/globex/dags/web", chain(&["nat", "firewall"])).await;
    let after = left(operator.dags.explain_dag(request()).await.item().expect("explained"));
    let nt_after = &after[&Resource::NtBandwidth];
    assert_eq!(nt_after.available, nt.available - nt.held, "both hold as much");
    let seen = left(acme.dags.explain_dag(request()).await.item().expect("explained"));
    assert!(seen.values().all(|left| left.region.is_empty()), "{seen:?}");
    assert!(seen.contains_key(&Resource::PacketStore), "{seen:?}");
    rig.stop().await;
}

#[tokio::test]
async fn lists_come_in_pages() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    for tenant in ["acme", "globex"] {
        for id in ["a", "b", "c"] {
            let name = format!("tenants/{tenant}/dags/{id}");
            let small = v1::Dag { bandwidth_bps: 1_000_000, ..chain(&["nat"]) };
            operator.create_dag(&name, small).await.expect("accepted");
        }
    }
    let mut names = Vec::new();
    let mut page_token = String::new();
    for page in 0.. {
        assert!(page < 4, "three pages of two: {names:?}");
        let (parent, page_size) = ("tenants/-".to_owned(), 2);
        let request = v1::ListDagsRequest { parent, page_size, page_token, ..Default::default() };
        let page = operator.dags.list_dags(request).await.expect("a page").into_inner();
        assert!(page.dags.len() <= 2);
        names.extend(page.dags.into_iter().map(|dag| dag.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let expected = ["acme", "globex"].iter().flat_map(|tenant| {
        ["a", "b", "c"].iter().map(move |id| format!("tenants/{tenant}/dags/{id}"))
    });
    assert_eq!(names, expected.collect::<Vec<_>>());
    let request = v1::ListDagsRequest {
        parent: "tenants/-".into(),
        page_token: "x".into(),
        ..Default::default()
    };
    let status = operator.dags.list_dags(request).await.expect_err("no token");
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidPageToken));
    rig.stop().await;
}

#[tokio::test]
async fn operations_are_listed_oldest_first_and_forgotten_on_demand() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let mut made = Vec::new();
    for id in ["x", "y", "z"] {
        let name = format!("tenants/acme/dags/{id}");
        let operation = acme.create_dag(&name, chain(&["nat"])).await.expect("accepted");
        made.push(acme.wait(&operation.name).await.name);
    }
    let list = |request| {
        let mut acme = acme.clone();
        async move {
            let page = acme.operations.list_operations(request).await.expect("a page").into_inner();
            let names: Vec<String> = page.operations.into_iter().map(|o| o.name).collect();
            (names, page.next_page_token)
        }
    };
    let first = v1::ListOperationsRequest { page_size: 2, ..Default::default() };
    let (names, token) = list(first.clone()).await;
    assert_eq!(names, made[..2]);
    let (names, token) = list(v1::ListOperationsRequest { page_token: token, ..first }).await;
    assert_eq!((names, token.as_str()), (made[2..].to_vec(), ""));
    let running = v1::ListOperationsRequest { running_only: true, ..Default::default() };
    assert_eq!(list(running).await.0, [""; 0]);
    let target =
        v1::ListOperationsRequest { target: "tenants/acme/dags/y".into(), ..Default::default() };
    assert_eq!(list(target).await.0, made[1..2]);
    let cancel = v1::CancelOperationRequest { name: made[0].clone(), ..Default::default() };
    let status = acme.operations.cancel_operation(cancel).await.expect_err("ended");
    assert_eq!(reason_of(&status), Some(ErrorReason::NotCancellable));
    let delete = v1::DeleteOperationRequest { name: made[0].clone(), ..Default::default() };
    acme.operations.delete_operation(delete.clone()).await.expect("forgotten");
    let status = acme.operations.delete_operation(delete).await.expect_err("gone");
    assert_eq!(reason_of(&status), Some(ErrorReason::ResourceNotFound));
    rig.stop().await;
}

#[tokio::test]
async fn a_fork_is_a_stage_with_branches() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let fork = v1::Dag {
        form: v1::dag::Form::Parallel.into(),
        ..dag(&["nat", "firewall", "aes"], &[("nat", "firewall"), ("nat", "aes")])
    };
    let made = acme.ready_dag(WEB, fork).await;
    let mapping = made.mapping.expect("mapped");
    assert_eq!(mapping.form(), v1::dag::Form::Parallel);
    let branches: Vec<usize> = mapping.stages.iter().map(|stage| stage.branches.len()).collect();
    assert_eq!(branches, [1, 2]);
    rig.stop().await;
}

/// A region is lost and cannot be loaded again: who was promised bandwidth there is told what is not served,
/// in the DAG, by an event, and nobody else is.
#[tokio::test]
async fn a_promise_that_a_lost_region_breaks_is_told_with_what_is_not_served() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let spec = v1::Dag { bandwidth_bps: 5_000_000_000, ..chain(&["nat", "firewall"]) };
    let dag = acme.ready_dag(WEB, spec).await;
    assert_eq!((promise(&dag), dag.unserved_bps), ((v1::condition::Status::True, "CARRIED"), 0));
    let events = promise_events(&rig, "tenant/acme").await;
    assert_eq!(events, [], "nothing is broken yet");

    // The card forgets what its regions hold, and no load succeeds.
    rig.card.with(|card| {
        card.set_faults(Faults { load_fails: 1.0, ..Faults::default() });
        card.power_cycle();
    });
    let broken = until(&mut acme, |dag| promise(dag).0 == v1::condition::Status::False).await;
    assert_eq!(broken.unserved_bps, 5_000_000_000);
    assert_ne!(broken.state(), v1::dag::State::Ready);
    let told = promise_events(&rig, "tenant/acme").await;
    let [(kind, name, text)] = &told[..] else { panic!("once: {told:?}") };
    assert_eq!((kind, name.as_str()), (&Kind::PromiseBroken, WEB));
    assert!(text.contains("promised 5 Gbit/s"), "{text}");
    assert_eq!(promise_events(&rig, "tenant/globex").await, [], "it is nobody else's");
    rig.stop().await;
}

/// Status and reason of the condition that says whether a promise is kept.
fn promise(dag: &v1::Dag) -> (v1::condition::Status, &str) {
    let of = dag.conditions.iter().find(|condition| condition.r#type == "PromiseKept");
    of.map_or((v1::condition::Status::Unspecified, ""), |of| (of.status(), &of.reason))
}

async fn until(client: &mut Client, holds: impl Fn(&v1::Dag) -> bool) -> v1::Dag {
    in_time(async {
        loop {
            let dag = client.get_dag(WEB).await.expect("there");
            if holds(&dag) {
                return dag;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// Events about promises that `who` may see, the first first.
async fn promise_events(rig: &Rig, who: &str) -> Vec<(Kind, String, String)> {
    let channel = rig.client(who).await.channel;
    let request = v1::ListEventsRequest { page_size: 1_000, ..Default::default() };
    let events = EventServiceClient::new(channel).list_events(request).await.expect("listed");
    let events = events.into_inner().events.into_iter().rev();
    let of_promises =
        |event: &v1::Event| matches!(event.kind(), Kind::PromiseBroken | Kind::PromiseKept);
    let events = events.filter(of_promises);
    events.map(|event| (event.kind(), event.dag, event.message)).collect()
}
