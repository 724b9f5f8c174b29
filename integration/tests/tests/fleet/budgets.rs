//! Budgets of a fleet by its public interface: what is spent is what its hosts counted times the prices, whoever leads and wherever
//! DAGs are; a spent budget refuses what is new, or switches bursts off on hosts.

use snic_api::v1;
use snic_api::v1::spending::Level;
use snic_domain::{Bandwidth, DagSpec};
use snic_integration::TestClient;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::cluster::{Cluster, eventually, in_time, runtime};
use super::rig::{Fleet, name};

/// A second of a DAG on a card costs 1, and nothing else costs anything.
const PRICES: &str = r#"
    currency = "EUR"
    provider = "Example"
    [[versions]]
    name = "first"
    from = 2020-01-01T00:00:00Z
    prices = { dag_seconds = "1" }
"#;

/// Output of `snicctl` of an operator at a replica.
fn operator(fleet: &Fleet, replica: usize, words: &str) -> Result<String, String> {
    fleet.shell(&format!("snicctl --context root-r{replica} {words}"))
}

async fn tenant(client: &TestClient, id: &str) -> v1::Tenant {
    let request = v1::GetTenantRequest { name: format!("tenants/{id}") };
    client.tenants().get_tenant(request).await.unwrap().into_inner().tenant.unwrap()
}

/// Whole money that a tenant has spent, and its level.
async fn spent(client: &TestClient) -> Option<(f64, Level)> {
    let spending = tenant(client, "acme").await.spending?;
    Some((spending.spent.parse().unwrap(), spending.level()))
}

/// Seconds of DAGs on cards, as usage says.
async fn used(client: &TestClient) -> f64 {
    let month = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400);
    let request = v1::GetUsageRequest {
        name: "tenants/acme".into(),
        start_time: Some(month.into()),
        ..Default::default()
    };
    let total = client.usage().get_usage(request).await.unwrap().into_inner().total.unwrap();
    total.life_ms as f64 / 1_000.0
}

async fn create(client: &TestClient, dag: &str) -> Result<(), Status> {
    let spec = DagSpec::chain(&["nat".parse().unwrap()], Bandwidth::from_gbps(1));
    client.create_dag(&name(dag), &spec).await.map(drop)
}

/// Owner and quota of a refusal for a budget.
fn refused(answer: Result<(), Status>) -> String {
    let status = answer.expect_err("the budget is spent");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let info = status.get_details_error_info().expect("what it is about");
    assert_eq!(info.metadata.get("quota").map(String::as_str), Some("month_budget"), "{info:?}");
    status.get_details_quota_failure().expect("whose it is").violations[0].subject.clone()
}

#[test]
fn a_fleets_budget_is_spent_by_all_hosts_and_outlives_its_leader() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start(cluster, 2, 2).await;
        fleet.contexts();
        let none = operator(&fleet, 0, "tenant update acme --month-budget 5").unwrap_err();
        assert!(none.contains("no prices on this replica"), "{none}");
        let prices = fleet.folder().join("prices.toml");
        std::fs::write(&prices, PRICES).unwrap();
        for replica in 0..2 {
            let add = format!("[budgets]\nprices = {prices:?}\nperiod_seconds = 1\n");
            fleet.add_settings(replica, &add);
        }
        fleet.create(0, "web", 1).await;
        let host = fleet.served_once(&["web"]).await[0];
        let acme = fleet.client(0, "tenant-acme");
        eventually(async || operator(&fleet, 0, "tenant update acme --month-budget 40").is_ok())
            .await;
        // On both hosts one after the other.
        eventually(async || spent(&acme).await.is_some_and(|(money, _)| money > 0.0)).await;
        operator(&fleet, 0, &format!("fleet host drain h{host}")).unwrap();
        fleet.served_once(&["web"]).await;
        create(&acme, "more").await.expect("there is money");
        eventually(async || spent(&acme).await.is_some_and(|(_, level)| level == Level::Reached))
            .await;
        let before = used(&acme).await;
        let (money, _) = spent(&acme).await.expect("it has a budget");
        let after = used(&acme).await;
        // A look is up to some seconds old, in which three DAGs at most cost 1 a second each.
        assert!(money <= after && money >= before - 30.0, "{before} <= {money} <= {after}");
        assert!(money >= 40.0, "{money}");
        assert_eq!(refused(create(&acme, "third").await), "tenants/acme");
        let shown = operator(&fleet, 1, "tenant get acme").unwrap();
        assert!(
            shown.contains("of 40 EUR in ") && shown.contains("(reached, no-new-dags)"),
            "{shown}"
        );
        let serves = fleet.served_once(&["web", "more"]).await;
        assert_eq!(serves.len(), 2, "what there is stays");

        // A leader that is new, and one that has no prices any more, let nothing through.
        let leader = fleet.leader().await;
        fleet.kill_replica(leader);
        let acme = fleet.client(1 - leader, "tenant-acme");
        let answer = async || create(&acme, "third").await;
        eventually(async || answer().await.is_err_and(|of| of.code() != Code::Unavailable)).await;
        assert_eq!(refused(answer().await), "tenants/acme");
        std::fs::remove_file(&prices).unwrap();
        eventually(async || {
            tenant(&acme, "acme").await.spending.is_some_and(|of| of.level() == Level::Unknown)
        })
        .await;
        assert_eq!(refused(answer().await), "tenants/acme");
        std::fs::write(&prices, PRICES).unwrap();
        let replica = 1 - leader;
        operator(&fleet, replica, "tenant update acme --month-budget none").unwrap();
        create(&acme, "third").await.expect("it has no budget");

        a_project_has_one_too(&fleet, replica, &acme).await;
    }));
}

/// A project's budget is spent by its tenants, which keep their places and lose their bursts on the hosts that serve them.
async fn a_project_has_one_too(fleet: &Fleet, replica: usize, acme: &TestClient) {
    operator(fleet, replica, "fleet project create red --month-budget 1").unwrap();
    operator(fleet, replica, "tenant update acme --project red").unwrap();
    let shown = || operator(fleet, replica, "fleet project list").unwrap();
    eventually(async || shown().contains("reached")).await;
    assert!(shown().contains("of 1 EUR"), "{}", shown());
    assert_eq!(refused(create(acme, "fourth").await), "projects/red");
    let file = fleet.folder().join("admission.toml");
    std::fs::write(&file, "[budgets]\nat_limit = \"burst-off\"\n").unwrap();
    operator(fleet, replica, &format!("fleet policy set {}", file.display())).unwrap();
    let serving = fleet.served_once(&["web", "more", "third"]).await[0];
    let on_host = fleet.host(serving).await;
    let told = async || tenant(&on_host, "acme").await.quota.and_then(|of| of.month_budget_micros);
    eventually(async || told().await == Some(0)).await;
    assert_eq!(tenant(&on_host, "acme").await.project, "projects/red", "hosts know it, too");
    create(acme, "fourth").await.expect("only bursts are off");
    operator(fleet, replica, "fleet project update red --month-budget none").unwrap();
    eventually(async || told().await.is_none()).await;
}
