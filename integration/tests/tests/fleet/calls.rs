//! Calls at a fleet's replicas: each counts once, wherever it arrives and whoever answers it; a replica that is killed leaves a gap.

use std::time::Duration;

use snic_api::v1::{self, UsageGrouping};
use snic_integration::TestClient;

use super::cluster::{Cluster, eventually, in_time, runtime};
use super::rig::Fleet;

/// Longer than the time between two rounds in which a replica stores what it has counted.
const ROUND: Duration = Duration::from_secs(12);

/// Usage of a tenant, as a caller sees it at a replica.
async fn usage(client: &TestClient, tenant: &str, step_seconds: u64) -> v1::GetUsageResponse {
    let name = format!("tenants/{tenant}");
    let request = v1::GetUsageRequest { name, step_seconds, ..Default::default() };
    client.usage().get_usage(request).await.unwrap().into_inner()
}

async fn calls_of(client: &TestClient, tenant: &str) -> u64 {
    usage(client, tenant, 0).await.total.unwrap().api_calls
}

/// Length of the gaps that killed replicas left, in milliseconds.
async fn gap(client: &TestClient, tenant: &str) -> u64 {
    let gaps = usage(client, tenant, 0).await.total.unwrap().gaps;
    gaps.iter().filter(|gap| gap.reason == "NOT_RUNNING").map(|gap| gap.millis).sum()
}

/// So many calls that this replica answers itself.
async fn call(fleet: &Fleet, (replica, who): (usize, &str), times: usize) {
    let client = fleet.client(replica, who);
    for _ in 0..times {
        let parent = who.replacen('-', "s/", 1);
        let request = v1::ListDagsRequest { parent, ..Default::default() };
        client.dags().list_dags(request).await.unwrap();
    }
}

/// Waits until a tenant has so many calls, and that they stay so many.
async fn settles_at(fleet: &Fleet, replica: usize, (tenant, calls): (&str, u64)) {
    let root = fleet.client(replica, "operator-root");
    eventually(async || calls_of(&root, tenant).await >= calls).await;
    tokio::time::sleep(ROUND).await;
    assert_eq!(calls_of(&root, tenant).await, calls);
}

/// Calls by tenant, in lists by any grouping.
async fn listed(root: &TestClient, by: UsageGrouping, tenant: &str) -> u64 {
    let (mut calls, mut page_token) = (0, String::new());
    loop {
        let request =
            v1::ListUsageRequest { by: by.into(), page_size: 1, page_token, ..Default::default() };
        let page = root.usage().list_usage(request).await.unwrap().into_inner();
        let own = page.usage.iter().filter(|of| of.tenant == format!("tenants/{tenant}"));
        calls += own.map(|of| of.api_calls).sum::<u64>();
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return calls;
        }
    }
}

/// All views of the same calls agree, and a tenant's steps add up to its total.
async fn views_agree(fleet: &Fleet, tenant: &str, calls: u64) {
    let root = fleet.client(0, "operator-root");
    let steps = usage(&root, tenant, 120).await;
    assert_eq!(steps.steps.iter().map(|of| of.api_calls).sum::<u64>(), calls);
    assert_eq!(steps.total.unwrap().api_calls, calls);
    for by in [UsageGrouping::Tenant, UsageGrouping::Dag, UsageGrouping::Card] {
        assert_eq!(listed(&root, by, tenant).await, calls, "{by:?}");
    }
    fleet.contexts();
    let csv = fleet.shell("snicctl --context root-r0 usage export --format csv").unwrap();
    let head: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let column = |name: &str| head.iter().position(|of| *of == name).unwrap();
    let (tenants, counted) = (column("tenant"), column("api_calls"));
    let rows = csv.lines().skip(1).map(|row| row.split(',').collect::<Vec<_>>());
    let own = rows.filter(|row| row[tenants].ends_with(tenant));
    assert_eq!(own.map(|row| row[counted].parse::<u64>().unwrap()).sum::<u64>(), calls, "{csv}");
}

/// A call that a replica passes on to a host, or asks a host to answer, is the tenant's one call.
async fn what_is_passed_on_counts_once(fleet: &mut Fleet) {
    fleet.create(0, "web", 1).await;
    fleet.served_once(&["web"]).await;
    let root = fleet.client(0, "operator-root");
    tokio::time::sleep(ROUND).await;
    let before = calls_of(&root, "acme").await;
    assert!(before > 0);
    for replica in 0..3 {
        let acme = fleet.client(replica, "tenant-acme");
        let name = "tenants/acme/dags/web".to_owned();
        let seen = acme.dags().get_dag(v1::GetDagRequest { name: name.clone() }).await.unwrap();
        assert!(seen.into_inner().dag.unwrap().mapping.is_some(), "its host was asked");
        let diagnose = v1::DiagnoseDagRequest { name };
        acme.dags().diagnose_dag(diagnose).await.unwrap();
    }
    settles_at(fleet, 1, ("acme", before + 6)).await;
    assert_eq!(calls_of(&root, "acme/dags/web").await, 0, "they are no DAG's");
}

/// A replica is killed in the middle, and starts again.
async fn what_is_lost_is_within_a_gap(fleet: &mut Fleet, before: u64) -> u64 {
    let killed = fleet.leader().await;
    let other = (killed + 1) % 3;
    let root = fleet.client(other, "operator-root");
    assert_eq!(gap(&root, "zeta").await, 0);
    call(fleet, (killed, "tenant-zeta"), 20).await;
    call(fleet, (other, "tenant-zeta"), 20).await;
    fleet.kill_replica(killed);
    tokio::time::sleep(Duration::from_secs(3)).await;
    fleet.restart_replica(killed);
    eventually(async || gap(&root, "zeta").await > 0).await;
    tokio::time::sleep(ROUND).await;
    let (calls, gap) = (calls_of(&root, "zeta").await, gap(&root, "zeta").await);
    println!("{} of 40 calls are stored, with a gap of {gap} ms", calls - before);
    assert!((before + 20..=before + 40).contains(&calls), "{before}, {calls}");
    assert!((1_000..=30_000).contains(&gap), "{gap} ms");
    let own = fleet.client(other, "tenant-zeta");
    assert!(usage(&own, "zeta", 0).await.total.unwrap().gaps[0].millis == gap);
    // Its own question counts, too.
    calls + 1
}

/// A tenant that gets the name of a deleted one sees its own calls alone; operators see both.
async fn an_earlier_tenant_is_not_seen(fleet: &Fleet, before: u64) {
    let root = fleet.client(0, "operator-root");
    let request = v1::DeleteTenantRequest { name: "tenants/zeta".into(), ..Default::default() };
    root.tenants().delete_tenant(request).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    root.create_tenant("zeta").await.unwrap();
    call(fleet, (1, "tenant-zeta"), 9).await;
    settles_at(fleet, 2, ("zeta", before + 9)).await;
    let zeta = fleet.client(2, "tenant-zeta");
    assert_eq!(calls_of(&zeta, "zeta").await, 9);
}

#[test]
fn a_call_at_any_replica_counts_once() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start(cluster, 3, 1).await;
        fleet.add_tenant("zeta").await;
        for (replica, times) in [(0, 10), (1, 11), (2, 12)] {
            call(&fleet, (replica, "tenant-zeta"), times).await;
        }
        settles_at(&fleet, 1, ("zeta", 33)).await;
        views_agree(&fleet, "zeta", 33).await;
        let calls = what_is_lost_is_within_a_gap(&mut fleet, 33).await;
        // A stop in order stores what the last seconds brought.
        let other = (fleet.leader().await + 1) % 3;
        call(&fleet, (other, "tenant-zeta"), 15).await;
        fleet.stop_replica(other).await;
        let root = fleet.client((other + 1) % 3, "operator-root");
        let left = gap(&root, "zeta").await;
        eventually(async || calls_of(&root, "zeta").await == calls + 15).await;
        fleet.restart_replica(other);
        tokio::time::sleep(ROUND).await;
        assert_eq!(gap(&root, "zeta").await, left, "it leaves no gap");
    }));
}

#[test]
fn a_call_that_is_passed_on_counts_once_and_tenants_see_their_own() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start(cluster, 3, 1).await;
        what_is_passed_on_counts_once(&mut fleet).await;
        fleet.add_tenant("zeta").await;
        call(&fleet, (0, "tenant-zeta"), 7).await;
        settles_at(&fleet, 1, ("zeta", 7)).await;
        an_earlier_tenant_is_not_seen(&fleet, 7).await;
    }));
}
