//! Calls of a tenant and bytes of its bitstreams, over `kill -9`: nothing counts twice, and what is missing is in a gap.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use snic_api::v1;
use snic_integration::{Home, TestClient, commands, furnished};

/// Longest time until an interval is closed, and the next one.
const SOON: Duration = Duration::from_secs(60);

/// All columns of the tenant's usage.
fn usage(home: &Home) -> BTreeMap<String, u64> {
    let said = commands::operate(home, "usage export --by tenant --of acme").expect("it serves");
    let mut lines = said.lines();
    let heading = lines.next().expect("a heading").split(',');
    let values = lines.next().unwrap_or_default().split(',');
    let number = |text: &str| text.parse().unwrap_or_default();
    heading.zip(values).map(|(name, value)| (name.to_owned(), number(value))).collect()
}

fn of(usage: &BTreeMap<String, u64>, column: &str) -> u64 {
    usage.get(column).copied().unwrap_or_default()
}

/// Calls as the tenant.
async fn call(home: &Home, count: u64) {
    let acme = TestClient::connect(&home.socket(), "tenant/acme").await.expect("it serves");
    for _ in 0..count {
        let request = v1::GetTenantRequest { name: "tenants/acme".into() };
        acme.tenants().get_tenant(request).await.expect("its own");
    }
}

async fn counted(home: &Home, calls: u64) -> BTreeMap<String, u64> {
    let until = Instant::now() + SOON;
    loop {
        let usage = usage(home);
        if of(&usage, "api_calls") >= calls || Instant::now() > until {
            return usage;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_counted_once_over_kills_and_what_is_missing_is_a_gap() {
    let home = Home::new();
    let daemon = home.start().await;
    drop(furnished(&home, &[]).await);
    call(&home, 300).await;
    let first = counted(&home, 300).await;
    assert_eq!((of(&first, "api_calls"), of(&first, "gap_not_running_ms")), (300, 0));

    // These are not stored yet, but for those whose interval happens to be closed.
    call(&home, 50).await;
    drop(daemon.kill());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let daemon = home.start().await;
    call(&home, 100).await;
    let second = counted(&home, 400).await;
    let calls = of(&second, "api_calls");
    assert!((400..=450).contains(&calls), "{calls}");
    let gap = of(&second, "gap_not_running_ms");
    assert!((2_000..60_000).contains(&gap), "{gap} ms");

    // A stop in good order stores what was counted before.
    call(&home, 10).await;
    drop(daemon.stop());
    let daemon = home.start().await;
    let third = counted(&home, calls + 10).await;
    println!("{calls} calls of 450 are counted, and a gap has {gap} ms");
    assert_eq!(of(&third, "api_calls"), calls + 10, "{third:?}");
    drop(daemon.stop());
}
