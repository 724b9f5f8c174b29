//! Invalid DAGs and invalid names: each error names the field, and nothing is stored.

use rstest::rstest;
use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1::{self, ErrorReason};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::rig::{Rig, chain, dag};

fn fields(status: &Status) -> Vec<String> {
    let bad = status.get_details_bad_request();
    let violations = bad.map(|bad| bad.field_violations).unwrap_or_default();
    violations.into_iter().map(|violation| violation.field).collect()
}

fn wide(branches: usize) -> v1::Dag {
    let names: Vec<String> = (0..=branches).map(|i| format!("nat{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let edges: Vec<(&str, &str)> = names[1..].iter().map(|to| (names[0], *to)).collect();
    dag(&names, &edges)
}

fn long(nodes: usize) -> v1::Dag {
    let names: Vec<String> = (0..nodes).map(|i| format!("nat{i}")).collect();
    chain(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

fn with_bandwidth(bandwidth_bps: u64) -> v1::Dag {
    v1::Dag { bandwidth_bps, ..chain(&["nat"]) }
}

fn with_node(id: &str, nt_type: &str) -> v1::Dag {
    let node = v1::dag::Node { id: id.into(), nt_type: nt_type.into(), configuration: None };
    v1::Dag { nodes: vec![node], ..chain(&["nat"]) }
}

fn cycle() -> v1::Dag {
    dag(
        &["nat", "firewall", "aes"],
        &[("nat", "firewall"), ("firewall", "aes"), ("aes", "firewall")],
    )
}

#[rstest]
#[case::cyclic(cycle(), ErrorReason::InvalidGraph, "dag.edges")]
#[case::all_in_a_circle(
    dag(&["nat", "aes"], &[("nat", "aes"), ("aes", "nat")]), ErrorReason::InvalidGraph, "dag.edges"
)]
#[case::empty(chain(&[]), ErrorReason::InvalidGraph, "dag.nodes")]
#[case::disconnected(
    dag(&["nat", "firewall", "aes"], &[("nat", "firewall")]), ErrorReason::InvalidGraph, "dag.nodes"
)]
#[case::two_entries(
    dag(&["nat", "firewall", "aes"], &[("nat", "aes"), ("firewall", "aes")]),
    ErrorReason::InvalidGraph,
    "dag.nodes"
)]
#[case::too_many_nodes(long(65), ErrorReason::InvalidGraph, "dag.nodes")]
#[case::too_wide(wide(5), ErrorReason::InvalidGraph, "dag.edges")]
#[case::a_node_twice(
    dag(&["nat", "nat"], &[("nat", "nat")]), ErrorReason::InvalidGraph, "dag.nodes[1].id"
)]
#[case::an_edge_twice(
    dag(&["nat", "aes"], &[("nat", "aes"), ("nat", "aes")]),
    ErrorReason::InvalidGraph,
    "dag.edges[1]"
)]
#[case::an_edge_to_nowhere(
    dag(&["nat"], &[("nat", "aes")]), ErrorReason::InvalidGraph, "dag.edges[0]"
)]
#[case::an_edge_without_end(
    dag(&["nat"], &[("nat", "")]), ErrorReason::FieldRequired, "dag.edges[0].to_node"
)]
#[case::an_unknown_nt(
    with_node("x", "ntTypes/frobnicate"),
    ErrorReason::UnknownNtType,
    "dag.nodes[0].nt_type"
)]
#[case::no_nt_name(with_node("x", "nat"), ErrorReason::InvalidName, "dag.nodes[0].nt_type")]
#[case::no_nt(with_node("x", ""), ErrorReason::FieldRequired, "dag.nodes[0].nt_type")]
#[case::no_node_id(with_node("X", "ntTypes/nat"), ErrorReason::InvalidField, "dag.nodes[0].id")]
#[case::no_bandwidth(with_bandwidth(0), ErrorReason::InvalidField, "dag.bandwidth_bps")]
#[case::tiny_bandwidth(with_bandwidth(999_000), ErrorReason::InvalidField, "dag.bandwidth_bps")]
#[case::odd_bandwidth(with_bandwidth(1_000_001), ErrorReason::InvalidField, "dag.bandwidth_bps")]
#[case::absurd_bandwidth(with_bandwidth(u64::MAX), ErrorReason::InvalidField, "dag.bandwidth_bps")]
#[case::no_form(
    v1::Dag { form: 9, ..chain(&["nat"]) }, ErrorReason::InvalidField, "dag.form"
)]
#[tokio::test]
async fn a_dag_that_is_none_is_refused(
    #[case] dag: v1::Dag,
    #[case] reason: ErrorReason,
    #[case] field: &str,
) {
    let rig = Rig::start().await;
    rig.furnished().await;
    let before = rig.store.scan("").expect("readable");
    let mut acme = rig.client("tenant/acme").await;
    let status = acme.create_dag("tenants/acme/dags/web", dag).await.expect_err("refused");
    assert_eq!(reason_of(&status), Some(reason), "{status:?}");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(fields(&status), [field], "{}", status.message());
    assert_eq!(rig.store.scan("").expect("readable"), before, "nothing is stored");
    rig.stop().await;
}

#[tokio::test]
async fn all_wrong_fields_are_named_at_once() {
    let rig = Rig::start().await;
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    let mut wrong = dag(&["nat", "aes"], &[("", "aes")]);
    wrong.nodes[0].nt_type = "ntTypes/".into();
    wrong.nodes[1].id = "-".into();
    let status = acme.create_dag("tenants/acme/dags/web", wrong).await.expect_err("refused");
    assert_eq!(
        fields(&status),
        ["dag.nodes[0].nt_type", "dag.nodes[1].id", "dag.edges[0].from_node"]
    );
    let unknown = dag(&["foo", "nat", "bar"], &[("foo", "nat"), ("nat", "bar")]);
    let status = acme.create_dag("tenants/acme/dags/web", unknown).await.expect_err("refused");
    assert_eq!(fields(&status), ["dag.nodes[0].nt_type", "dag.nodes[2].nt_type"]);
    rig.stop().await;
}

#[rstest]
#[case("", ErrorReason::FieldRequired)]
#[case("web", ErrorReason::InvalidName)]
#[case("tenants/acme", ErrorReason::InvalidName)]
#[case("tenants/acme/dags/", ErrorReason::InvalidName)]
#[case("tenants/acme/dags/-", ErrorReason::InvalidName)]
#[case("tenants/acme/dags/Web", ErrorReason::InvalidName)]
#[case("tenants/acme/dags/web/x", ErrorReason::InvalidName)]
#[case("tenants/ac me/dags/web", ErrorReason::InvalidName)]
#[case("cards/acme/regions/1", ErrorReason::InvalidName)]
#[tokio::test]
async fn a_name_that_is_none_is_refused(#[case] name: &str, #[case] reason: ErrorReason) {
    let rig = Rig::start().await;
    let mut operator = rig.client("operator/root").await;
    let status = operator.get_dag(name).await.expect_err("refused");
    assert_eq!(reason_of(&status), Some(reason), "{status:?}");
    assert_eq!(fields(&status), ["name"]);
    rig.stop().await;
}

#[tokio::test]
async fn oversized_requests_are_refused_with_what_is_missing() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    // An order that no bitstream has.
    let status = acme
        .create_dag("tenants/acme/dags/web", chain(&["aes", "firewall-x"]))
        .await
        .expect_err("unknown");
    assert_eq!(reason_of(&status), Some(ErrorReason::UnknownNtType));
    operator.create_nt("kv-cache", true).await.expect("an NT type");
    let status =
        acme.create_dag("tenants/acme/dags/web", chain(&["kv-cache"])).await.expect_err("none");
    assert_eq!(reason_of(&status), Some(ErrorReason::NoBitstream), "{status:?}");
    assert_eq!(status.code(), Code::FailedPrecondition);
    let violations = status.get_details_precondition_failure().expect("a precondition").violations;
    assert_eq!(violations[0].subject, "kv-cache");
    let quota = v1::Quota { bandwidth_max_bps: Some(4_000_000_000_000), ..Default::default() };
    let tenant =
        v1::Tenant { name: "tenants/acme".into(), quota: Some(quota), ..Default::default() };
    let request =
        v1::UpdateTenantRequest { tenant: Some(tenant), update_mask: None, ..Default::default() };
    operator.tenants.update_tenant(request).await.expect("a larger quota");
    let greedy = v1::Dag { bandwidth_bps: 2_000_000_000_000, ..chain(&["aes"]) };
    let status = acme.create_dag("tenants/acme/dags/web", greedy).await.expect_err("too much");
    assert_eq!(reason_of(&status), Some(ErrorReason::InsufficientCapacity), "{status:?}");
    let info = status.get_details_error_info().expect("always there");
    assert!(info.metadata.contains_key("resource"), "{info:?}");
    let required: u64 = info.metadata["required"].parse().expect("a number");
    let available: u64 = info.metadata["available"].parse().expect("a number");
    assert!(required > available, "{info:?}");
    rig.stop().await;
}

#[tokio::test]
async fn a_quota_says_which_bound() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let tenant = v1::Tenant {
        name: "tenants/acme".into(),
        quota: Some(v1::Quota { dags_max: Some(0), ..Default::default() }),
        ..Default::default()
    };
    let request =
        v1::UpdateTenantRequest { tenant: Some(tenant), update_mask: None, ..Default::default() };
    let updated = operator.tenants.update_tenant(request).await.item().expect("updated");
    let quota = updated.quota.expect("always there");
    assert_eq!((quota.dags_max, quota.bitstreams_max), (Some(0), Some(32)));
    let mut acme = rig.client("tenant/acme").await;
    let status =
        acme.create_dag("tenants/acme/dags/web", chain(&["nat"])).await.expect_err("none allowed");
    assert_eq!(reason_of(&status), Some(ErrorReason::QuotaExceeded));
    let info = status.get_details_error_info().expect("always there");
    assert_eq!((&*info.metadata["quota"], &*info.metadata["limit"]), ("dags_max", "0"));
    let quota = status.get_details_quota_failure().expect("a quota failure");
    assert_eq!(quota.violations[0].subject, "tenants/acme");
    rig.stop().await;
}
