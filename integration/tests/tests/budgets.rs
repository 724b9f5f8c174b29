//! A budget that is spent, over `kill -9`: what is new is refused, and what there is stays ready.

use std::time::{Duration, Instant};

use snic_api::v1;
use snic_api::v1::dag::State;
use snic_api::v1::spending::Level;
use snic_domain::{Bandwidth, DagName, DagSpec, NtTypeId};
use snic_integration::{Home, TestClient, free_address, furnished, metric};
use tonic::{Code, Status};

/// Longest time until an interval of usage is closed, and a DAG is ready again.
const SOON: Duration = Duration::from_secs(60);

/// A load of a region costs 1, and nothing else costs anything.
const PRICES: &str = r#"currency = "EUR"
provider = "Example"

[[versions]]
name = "a"
from = 2026-01-01T00:00:00Z
prices = { loads = "1" }
"#;

async fn tenant(client: &TestClient) -> v1::Tenant {
    let request = v1::GetTenantRequest { name: "tenants/acme".into() };
    let reply = client.tenants().get_tenant(request).await.expect("it may be read");
    reply.into_inner().tenant.expect("a tenant")
}

async fn set_budget(client: &TestClient, micros: u64) -> Result<(), Status> {
    let quota = v1::Quota { month_budget_micros: Some(micros), ..v1::Quota::default() };
    let tenant =
        v1::Tenant { name: "tenants/acme".into(), quota: Some(quota), ..v1::Tenant::default() };
    let request = v1::UpdateTenantRequest { tenant: Some(tenant), ..Default::default() };
    client.tenants().update_tenant(request).await.map(drop)
}

async fn create(client: &TestClient, name: &str) -> Result<(), Status> {
    let nts: Vec<NtTypeId> = vec!["nat".parse().expect("a label")];
    let (tenant, dag) = name.split_once('/').expect("a tenant");
    let name =
        DagName { tenant: tenant.parse().expect("a label"), dag: dag.parse().expect("a label") };
    let spec = DagSpec::chain(&nts, Bandwidth::from_mbps(1));
    client.create_dag(&name, &spec).await.map(drop)
}

async fn is_ready(client: &TestClient) -> bool {
    client
        .list_dags()
        .await
        .iter()
        .any(|dag| dag.name == "tenants/acme/dags/web" && dag.state() == State::Ready)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spent_budget_refuses_over_kills_and_takes_nothing_away() {
    let home = Home::new();
    let metrics = free_address();
    home.write_settings(&format!("[telemetry]\nprometheus = \"{metrics}\"\n"));
    let policies = home.path().join("policies");
    std::fs::create_dir_all(&policies).expect("made");
    std::fs::write(policies.join("prices.toml"), PRICES).expect("written");
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    std::fs::write(home.settings(), format!("policies_dir = {policies:?}\n{text}"))
        .expect("settings");

    let daemon = home.start().await;
    let client = furnished(&home, &["web"]).await;
    set_budget(&client, 1_000_000).await.expect("there are prices");
    let until = Instant::now() + SOON;
    while tenant(&client).await.spending.expect("a budget").level() != Level::Reached {
        assert!(Instant::now() < until, "{:?}", tenant(&client).await.spending);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let refused = create(&client, "acme/more").await.expect_err("the budget is spent");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("its budget is 1 EUR"), "{refused}");
    assert!(is_ready(&client).await, "what it has stays");
    // Metrics are read from time to time.
    let until = Instant::now() + SOON;
    while metric(metrics, "snic_budget_spent{") < 1.0 {
        assert!(Instant::now() < until, "{}", metric(metrics, "snic_budget_spent{"));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let limit = metric(metrics, "snic_budget_limit{");
    assert!((limit - 1.0).abs() < f64::EPSILON, "{limit}");

    drop(daemon.kill());
    let daemon = home.start().await;
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    let again = create(&client, "acme/more").await.expect_err("it is spent all the same");
    assert_eq!((again.code(), again.message()), (refused.code(), refused.message()));
    let until = Instant::now() + SOON;
    while !is_ready(&client).await {
        assert!(Instant::now() < until, "the DAG is ready again");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    // The tenant reads its own budget, and does not set it; others do not see it.
    let own = TestClient::connect(&home.socket(), "tenant/acme").await.expect("it serves");
    assert_eq!(tenant(&own).await.spending, tenant(&client).await.spending);
    let denied = set_budget(&own, 9_000_000).await.expect_err("operators do");
    assert_eq!(denied.code(), Code::PermissionDenied, "{denied}");
    client.create_tenant("beta").await.expect("a tenant");
    let other = TestClient::connect(&home.socket(), "tenant/beta").await.expect("it serves");
    let request = v1::GetTenantRequest { name: "tenants/acme".into() };
    let hidden = other.tenants().get_tenant(request).await.expect_err("it is another's");
    assert_eq!(hidden.code(), Code::NotFound, "{hidden}");
    create(&other, "beta/own").await.expect("a budget is of one tenant");

    set_budget(&client, 9_000_000).await.expect("it is raised");
    create(&client, "acme/more").await.expect("there is money again");
    drop(daemon.stop());
}
