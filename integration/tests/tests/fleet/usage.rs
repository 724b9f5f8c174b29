//! Usage at a fleet's endpoint: a DAG moves between hosts and each of its packets counts once; a host that is killed is a gap.

use std::time::Duration;

use snic_api::usage::add_usage;
use snic_api::v1::{self, UsageGrouping};
use snic_integration::TestClient;

use super::cluster::{Cluster, eventually, in_time, runtime};
use super::rig::{Cards, Fleet};

/// Runs packets through the DAG; gives how many, and their bytes.
async fn run(acme: &TestClient) -> [u64; 2] {
    let run = v1::RunTrafficRequest {
        name: "tenants/acme/dags/web".into(),
        rate_bps: 1_000_000,
        duration: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        ..Default::default()
    };
    let mut told = acme.traffic().run_traffic(run).await.unwrap().into_inner();
    let mut sent = [0; 2];
    while let Some(message) = told.message().await.unwrap() {
        sent = message.total.map_or(sent, |total| [total.packets_offered, total.bytes_offered]);
    }
    sent
}

async fn list(client: &TestClient, request: &v1::ListUsageRequest) -> v1::ListUsageResponse {
    let mut all = v1::ListUsageResponse::default();
    loop {
        let page_token = std::mem::take(&mut all.next_page_token);
        let request = v1::ListUsageRequest { page_size: 1, page_token, ..request.clone() };
        let page = client.usage().list_usage(request).await.unwrap().into_inner();
        all.usage.extend(page.usage);
        all.unreachable_hosts.extend(page.unreachable_hosts);
        all.next_page_token = page.next_page_token;
        if all.next_page_token.is_empty() {
            return all;
        }
    }
}

fn by(by: UsageGrouping) -> v1::ListUsageRequest {
    v1::ListUsageRequest { by: by.into(), ..Default::default() }
}

fn sum(usage: &[v1::UsageEntry]) -> v1::UsageEntry {
    let mut sum = v1::UsageEntry::default();
    usage.iter().for_each(|entry| add_usage(&mut sum, entry));
    sum
}

/// The fleet says what both hosts say themselves in a range that is over.
async fn the_fleet_adds_up_its_hosts(fleet: &Fleet, root: &TestClient) -> v1::UsageEntry {
    let end = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let at = |seconds: u64| Some(prost_types::Timestamp { seconds: seconds as i64, nanos: 0 });
    let end = end.as_secs() / 10 * 10 - 20;
    let range = v1::ListUsageRequest {
        start_time: at(end - 3_600),
        end_time: at(end),
        ..by(UsageGrouping::Dag)
    };
    let mut hosts = Vec::new();
    for host in [0, 1] {
        hosts.extend(list(&fleet.host(host).await, &range).await.usage);
    }
    let there = sum(&hosts);
    for grouping in [UsageGrouping::Dag, UsageGrouping::Card, UsageGrouping::Tenant] {
        let request = v1::ListUsageRequest { by: grouping.into(), ..range.clone() };
        let found = list(root, &request).await;
        assert_eq!(found.unreachable_hosts, []);
        let all = sum(&found.usage);
        assert!(all.api_calls > 0 && there.api_calls == 0, "tenants call replicas, not hosts");
        let fleet = v1::UsageEntry { end_time: there.end_time, api_calls: 0, ..all };
        let sorted = |mut entry: v1::UsageEntry| {
            entry.gaps.sort_by(|one, other| one.reason.cmp(&other.reason));
            entry.drops.sort_by(|one, other| one.cause.cmp(&other.cause));
            entry.broken.sort_by(|one, other| one.cause.cmp(&other.cause));
            entry
        };
        assert_eq!(sorted(fleet), sorted(there.clone()), "{grouping:?}");
        assert!(found.usage.len() >= 2 || grouping == UsageGrouping::Tenant);
    }
    there
}

/// Tenants are not told which hosts and cards there are, and see nobody else's.
async fn tenants_see_their_own(acme: &TestClient, zeta: &TestClient, packets: u64) {
    let own = list(acme, &by(UsageGrouping::Dag)).await;
    assert_eq!(sum(&own.usage).packets_in, packets);
    assert!(own.usage.iter().all(|of| of.card.is_empty() && of.tenant == "tenants/acme"));
    let request =
        v1::GetUsageRequest { name: "tenants/acme/dags/web".into(), ..Default::default() };
    let total = acme.usage().get_usage(request.clone()).await.unwrap().into_inner().total.unwrap();
    assert_eq!((total.packets_in, total.dag.as_str()), (packets, "tenants/acme/dags/web"));
    let other = sum(&list(zeta, &by(UsageGrouping::Tenant)).await.usage);
    assert_eq!(v1::UsageEntry { api_calls: 0, end_time: None, ..other }, v1::UsageEntry::default());
    let hidden = zeta.usage().get_usage(request).await.unwrap_err();
    assert_eq!(hidden.code(), tonic::Code::NotFound, "{hidden}");
    let cards = by(UsageGrouping::Card);
    let refused = acme.usage().list_usage(cards).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused}");
    let request = v1::GetSloRequest { name: "tenants/acme".into(), ..Default::default() };
    let slo = acme.usage().get_slo(request).await.unwrap().into_inner();
    assert!(slo.promise_ms > 0 && slo.burns.len() == 4, "{slo:?}");
}

/// The tenant is deleted and created again, and so is its DAG. It sees its own packets, which its host counts in the same interval as the
/// last ones of the earlier tenant; operators see both. Returns the host of the DAG.
async fn a_tenant_sees_nothing_of_an_earlier_one(
    fleet: &Fleet,
    root: &TestClient,
    acme: &TestClient,
    earlier: u64,
) -> usize {
    let last = run(acme).await;
    let web = super::rig::name("web");
    root.delete_dag(&web).await.unwrap();
    let request = v1::DeleteTenantRequest { name: "tenants/acme".into(), ..Default::default() };
    eventually(async || root.tenants().delete_tenant(request.clone()).await.is_ok()).await;
    root.create_tenant("acme").await.unwrap();
    fleet.create(0, "web", 1).await;
    let host = fleet.served_once(&["web"]).await[0];
    let own = run(acme).await;
    let all = earlier + last[0] + own[0];
    eventually(async || sum(&list(root, &by(UsageGrouping::Tenant)).await.usage).packets_in >= all)
        .await;
    let seen = sum(&list(acme, &by(UsageGrouping::Dag)).await.usage).packets_in;
    // A run may send one more packet behind its last message.
    assert!((own[0]..own[0] + 2).contains(&seen), "{seen}, of it {own:?}");
    host
}

/// Output of `snicctl` of an operator.
fn operator(fleet: &Fleet, words: &str) -> Result<String, String> {
    fleet.shell(&format!("snicctl --context root-r0 {words}"))
}

#[test]
fn usage_of_a_fleet_is_that_of_its_hosts_while_a_dag_moves() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start_with(cluster, 2, (2, Cards::Software)).await;
        fleet.create(0, "web", 1).await;
        fleet.add_tenant("zeta").await;
        let (acme, zeta) = (fleet.client(0, "tenant-acme"), fleet.client(1, "tenant-zeta"));
        let root = fleet.client(1, "operator-root");
        let host = fleet.served_once(&["web"]).await[0];
        let first = run(&acme).await;
        fleet.contexts();
        operator(&fleet, &format!("fleet host drain h{host}")).unwrap();
        eventually(async || fleet.served_once(&["web"]).await == [1 - host]).await;
        let second = run(&acme).await;
        let sent = [first[0] + second[0], first[1] + second[1]];
        assert!(first[0] > 100 && second[0] > 100, "{first:?}, {second:?}");
        // Its intervals are closed on both hosts, and those in question are over.
        eventually(async || {
            let all = list(&root, &by(UsageGrouping::Tenant)).await;
            let sum = sum(&all.usage);
            sum.packets_in >= sent[0] && sum.bytes_in >= sent[1]
        })
        .await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        let all = the_fleet_adds_up_its_hosts(&fleet, &root).await;
        // A run may send one more packet behind its last message.
        let more = all.packets_in - sent[0];
        assert!(more <= 2, "each packet counts once: {sent:?}, {all:?}");
        tenants_see_their_own(&acme, &zeta, all.packets_in).await;
        let host =
            a_tenant_sees_nothing_of_an_earlier_one(&fleet, &root, &acme, all.packets_in).await;

        operator(&fleet, "fleet project create red").unwrap();
        operator(&fleet, "fleet project add red acme").unwrap();
        let by_project = operator(&fleet, "usage --by project -o json").unwrap();
        let only = operator(&fleet, "usage --by tenant --project red").unwrap();
        assert!(by_project.contains("projects/red"), "{by_project}");
        assert!(only.contains("acme"), "{only}");

        fleet.kill_host(host);
        eventually(async || {
            !list(&root, &by(UsageGrouping::Tenant)).await.unreachable_hosts.is_empty()
        })
        .await;
        a_host_that_is_killed_is_a_gap(&root, &acme, host).await;
        let prices = fleet.folder().join("prices.toml");
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/prices.toml");
        std::fs::copy(shipped, &prices).unwrap();
        let begin = "--from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z";
        let focus = format!("usage export --format focus --prices {} {begin}", prices.display());
        let refused = operator(&fleet, &focus).unwrap_err();
        assert!(refused.contains("did not answer"), "{refused}");
    }));
}

/// For operators by name, for tenants without one, and never as nothing.
async fn a_host_that_is_killed_is_a_gap(root: &TestClient, acme: &TestClient, host: usize) {
    let name = format!("hosts/h{host}");
    for grouping in [UsageGrouping::Tenant, UsageGrouping::Card] {
        let found = list(root, &by(grouping)).await;
        assert_eq!(found.unreachable_hosts[0].host, name, "{grouping:?}");
        let gap = found.usage.iter().find(|of| of.card == name && !of.gaps.is_empty());
        let gap = gap.map(|of| (of.gaps[0].reason.as_str(), of.gaps[0].millis >= 3_600_000));
        assert_eq!(gap, Some(("HOST_UNREACHABLE", true)), "{grouping:?}: {found:?}");
    }
    let own = list(acme, &by(UsageGrouping::Tenant)).await;
    assert!(own.unreachable_hosts.iter().all(|of| of.host.is_empty() && of.reason.is_empty()));
    let gaps = sum(&own.usage).gaps;
    assert!(gaps.iter().any(|gap| gap.reason == "HOST_UNREACHABLE"), "{gaps:?}");
    let request = v1::GetUsageRequest { name: "tenants/acme".into(), ..Default::default() };
    let reply = acme.usage().get_usage(request).await.unwrap().into_inner();
    assert_eq!(reply.unreachable_hosts.len(), 1);
}
