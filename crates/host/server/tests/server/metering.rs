//! Calls and stored bytes of tenants, as the server counts them.

use std::time::{Duration, Instant};

use snic_api::connect::ACTING_FOR_HEADER;
use snic_api::v1;
use snic_api::v1::UsageGrouping;
use snic_api::v1::tenant_service_client::TenantServiceClient;
use snic_api::v1::usage_service_client::UsageServiceClient;
use tonic::{Code, Request};

use crate::rig::{Client, IMAGE_BYTES, Rig, in_time};

/// Longest time until an interval is closed, and the next one.
const CLOSED_MAX: Duration = Duration::from_secs(40);

async fn usage(client: &Client, by: UsageGrouping) -> Vec<v1::UsageEntry> {
    let request = v1::ListUsageRequest { by: by.into(), ..Default::default() };
    let mut service = UsageServiceClient::new(client.channel.clone());
    in_time(service.list_usage(request)).await.expect("a page").into_inner().usage
}

async fn list_dags(client: &mut Client, tenant: &str, acting: Option<&str>) -> Result<(), Code> {
    let parent = format!("tenants/{tenant}");
    let mut request = Request::new(v1::ListDagsRequest { parent, ..Default::default() });
    if let Some(who) = acting {
        request.metadata_mut().insert(ACTING_FOR_HEADER, who.parse().expect("text"));
    }
    in_time(client.dags.list_dags(request)).await.map(drop).map_err(|status| status.code())
}

/// Each admitted call of a tenant counts for it, whether it is refused later, and who made it in its name; those of operators, and those that
/// the gate turns away, do not.
#[tokio::test]
async fn calls_of_a_tenant_and_its_bitstreams_are_counted() {
    let rig = Rig::adjusted(|_| {}).await;
    let root = rig.furnished().await;
    let (mut acme, mut globex) =
        (rig.client("tenant/acme").await, rig.client("tenant/globex").await);
    for _ in 0..7 {
        list_dags(&mut acme, "acme", None).await.expect("its own");
    }
    acme.create_nt("acme.own", true).await.expect("an NT type");
    acme.upload("acme.image", &["acme.own"]).await.expect("its bitstream");
    let refused = acme.create_dag("tenants/acme/dags/web", v1::Dag::default()).await;
    refused.expect_err("it has no nodes");
    let mut program = rig.client("operator/kubernetes").await;
    list_dags(&mut program, "acme", Some("tenant/acme")).await.expect("as acme");
    list_dags(&mut program, "acme", None).await.expect("as an operator");
    for _ in 0..3 {
        let _ = list_dags(&mut globex, "acme", None).await;
    }
    let denied = list_dags(&mut globex, "acme", Some("tenant/acme")).await;
    assert_eq!(denied, Err(Code::PermissionDenied), "the gate turns it away");

    let calls = |usage: &[v1::UsageEntry]| {
        let of = |entry: &v1::UsageEntry| (entry.tenant.clone(), entry.api_calls);
        usage.iter().map(of).collect::<Vec<_>>()
    };
    let due = [("tenants/acme".to_owned(), 11), ("tenants/globex".to_owned(), 3)];
    let until = Instant::now() + CLOSED_MAX;
    let counted = loop {
        let usage = usage(&root, UsageGrouping::Tenant).await;
        let stored = usage.first().is_some_and(|of| of.stored_byte_seconds >= 2 * IMAGE_BYTES);
        if stored && calls(&usage) == due || Instant::now() > until {
            break usage;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    assert_eq!(calls(&counted), due, "{counted:?}");
    let stored = counted[0].stored_byte_seconds;
    let seconds = stored / IMAGE_BYTES;
    assert!((2..=60).contains(&seconds), "{stored} bytes × s");
    assert_eq!(counted[1].stored_byte_seconds, 0, "globex has no bitstream");
    // An entry of its own, without a DAG and a card.
    let own = usage(&root, UsageGrouping::Dag).await;
    let own: Vec<_> = own.iter().filter(|of| of.dag.is_empty() && of.card.is_empty()).collect();
    assert_eq!(own.len(), 2, "{own:?}");
    let mut tenants = TenantServiceClient::new(root.channel.clone());
    let red = v1::Tenant {
        name: "tenants/acme".into(),
        project: "projects/red".into(),
        ..Default::default()
    };
    let request = v1::UpdateTenantRequest { tenant: Some(red), ..Default::default() };
    let changed = tenants.update_tenant(request).await.expect("an operator").into_inner();
    assert_eq!(changed.tenant.map(|of| of.project), Some("projects/red".into()));
    let of_projects = usage(&root, UsageGrouping::Project).await;
    let sums: Vec<_> = of_projects.iter().map(|of| (of.project.as_str(), of.api_calls)).collect();
    assert_eq!(sums, [("", 3), ("projects/red", 11)]);
    let by_project = |project: &str, by: UsageGrouping| v1::ListUsageRequest {
        project: project.into(),
        by: by.into(),
        ..Default::default()
    };
    let mut service = UsageServiceClient::new(root.channel.clone());
    let request = by_project("projects/red", UsageGrouping::Tenant);
    let own = service.list_usage(request).await.expect("an operator").into_inner().usage;
    assert_eq!(own.iter().map(|of| of.tenant.as_str()).collect::<Vec<_>>(), ["tenants/acme"]);
    // Its tenants do not learn of each other.
    let mut service = UsageServiceClient::new(acme.channel.clone());
    for request in
        [by_project("", UsageGrouping::Project), by_project("projects/red", UsageGrouping::Tenant)]
    {
        let refused = service.list_usage(request).await.expect_err("it is a tenant");
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    }
    rig.stop().await;
}
