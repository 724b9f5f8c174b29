//! Latencies that a software card measures, beside what `ping` of Linux sees.

use std::time::{Duration, Instant};

use snic_api::v1::measured_part::Kind;
use snic_api::v1::{LatencyQuantiles, MeasuredLatency};
use snic_domain::{Bandwidth, Cycles, DagSpec};
use snic_integration::commands;

use super::rig::{Net, READY_MAX, assert_no_loss, catalogue_of, chain, missing};

/// Latency of the task: 20 ms at 250 MHz.
const DELAY: Cycles = Cycles::new(5_000_000);
const DELAY_NANOS: u64 = 20_000_000;

/// Fastest answer of a run of `ping`, in nanoseconds.
fn fastest(said: &str) -> u64 {
    let (_, times) = said.split_once("min/avg/max/mdev = ").expect("its summary");
    let millis: f64 = times.split('/').next().and_then(|ms| ms.parse().ok()).expect("a number");
    (millis * 1e6) as u64
}

async fn measured(net: &Net) -> MeasuredLatency {
    let until = Instant::now() + READY_MAX;
    loop {
        let dags = net.client.list_dags().await;
        let windows = dags.iter().filter_map(|dag| dag.traffic.as_ref()?.last_ten_seconds.as_ref());
        let latency = windows.filter_map(|window| window.latency.clone()).next();
        if let Some(latency) = latency.filter(|latency| latency.samples >= 10) {
            return latency;
        }
        assert!(Instant::now() < until, "nothing was measured: {dags:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_delays_packets_is_what_ping_waits_for_and_what_the_card_says() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let mut catalogue = catalogue_of("slow");
    catalogue.nt_types[0].latency = DELAY;
    let net = Net::furnished("snv", 1, "", &catalogue).await;
    // With that latency few packets a second find room on the card.
    let spec = DagSpec { bandwidth: Bandwidth::from_mbps(5), ..chain(&[("slow", None)]) };
    net.create_with(&spec).await;
    let ping = net.guest.run("ping -c 60 -i 0.05 -W 2 10.77.0.2");
    let said = String::from_utf8_lossy(&ping.stdout).into_owned();
    assert_no_loss(&said);
    let latency = measured(&net).await;
    let total = latency.total.expect("it has one");
    let times = |kind: Kind| {
        let parts = latency.parts.iter().filter(|part| part.kind() == kind);
        let mut times = parts.filter_map(|part| part.latency);
        times.next().unwrap_or_else(|| panic!("no {kind:?} in {latency:?}"))
    };
    let alike = |nanos| LatencyQuantiles { p50_nanos: nanos, p99_nanos: nanos, max_nanos: nanos };
    assert_eq!(times(Kind::Task), alike(DELAY_NANOS), "nothing waits in it: {latency:?}");
    assert!(total.p50_nanos > DELAY_NANOS, "{latency:?}");
    // Not all of an answer's time is on the card.
    assert!(fastest(&said) >= DELAY_NANOS, "{said}");
    let said = commands::operate(&net.home, "dag diagnose acme/web").expect("an operator may");
    assert!(said.contains("task slow") && said.contains("20.0 ms"), "{said}");
}
