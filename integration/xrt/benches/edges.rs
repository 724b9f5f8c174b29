//! Whether the control loop keeps its edges with 1,000 DAGs on a card behind XRT: epochs a second, for a shell that
//! moves tables and counters in bulk, and for one whose registers are read one by one. The daemon, its worker and the
//! device are processes of their own. `SNIC_SECONDS` sets the time for each.

use std::time::{Duration, Instant};

use snic_api::v1::dag::State;
use snic_bitstream::catalogue;
use snic_domain::{Bandwidth, DagName, DagSpec};
use snic_integration::{Home, TestClient, free_address, metric};
use snic_integration_xrt::daemon::{XrtCardProcess, write_settings};

/// DAGs of each tenant.
const DAGS: usize = 100;
/// Number of tenants.
const TENANTS: usize = 10;

fn seconds() -> Duration {
    let seconds = std::env::var("SNIC_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(20))
}

/// Edges, and samples that were left out, a second, with all DAGs ready.
async fn measure(has_bulk: bool) -> [f64; 2] {
    let catalogue = catalogue::builtin().expect("the built-in catalogue is valid");
    let profile = catalogue.card(&"sim-16".parse().expect("a label")).expect("there").clone();
    let process = XrtCardProcess::with_bulk(profile, has_bulk);
    let (home, prometheus) = (Home::new(), free_address());
    write_settings(&home, &[&process.emulation], "hw_emu", "");
    let mut settings = std::fs::read_to_string(home.settings()).expect("just written");
    settings += &format!("[telemetry]\nprometheus = \"{prometheus}\"\n");
    std::fs::write(home.settings(), settings).expect("the folder takes files");
    let daemon = home.start().await;
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    client.register(&catalogue).await;
    let spec = DagSpec::chain(&["nat".parse().expect("a label")], Bandwidth::from_mbps(10));
    for tenant in 0..TENANTS {
        let tenant = format!("t{tenant}");
        client.create_tenant(&tenant).await.expect("a new tenant");
        for dag in 0..DAGS {
            let dag = format!("d{dag}").parse().expect("a label");
            let name = DagName { tenant: tenant.parse().expect("a label"), dag };
            client.create_dag(&name, &spec).await.expect("it fits");
        }
    }
    loop {
        let dags = client.list_dags().await;
        if dags.len() == DAGS * TENANTS && dags.iter().all(|dag| dag.state() == State::Ready) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let names = ["snic_loop_epochs", "snic_loop_overruns"];
    let read = || names.map(|name| metric(prometheus, name));
    let (begun, before) = (Instant::now(), read());
    tokio::time::sleep(seconds()).await;
    let (after, took) = (read(), begun.elapsed().as_secs_f64());
    drop(daemon);
    std::array::from_fn(|at| (after[at] - before[at]) / took)
}

#[tokio::main]
async fn main() {
    if !snic_integration_xrt::emulation::is_there() {
        return;
    }
    println!("{} DAGs, {} s each", DAGS * TENANTS, seconds().as_secs());
    for (what, has_bulk) in [("in bulk", true), ("register by register", false)] {
        let [edges, skipped] = measure(has_bulk).await;
        println!("{what}: {edges:.1} edges/s, {skipped:.1} samples left out/s");
    }
}
