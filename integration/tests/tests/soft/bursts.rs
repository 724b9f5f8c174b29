//! TCP within its promise: hosts hand over segments in pieces of 64 KiB, and programs that keep a rate sleep between blocks
//! of 128 KiB, so that a stream which is within its rate comes in bursts that are not. None of it may be lost for that.

use std::time::{Duration, Instant};

use serde_json::Value;
use snic_domain::{Bandwidth, DagSpec};
use snic_integration::commands;

use super::rig::{Net, READY_MAX, chain, missing};

const SERVER: &str = "10.77.0.2";
/// Promise to the DAG, in Mbit/s.
const PROMISED: u64 = 200;

/// Segments that `iperf3` sent, those that it sent again, and its rate in bit/s as the receiver saw it.
fn sent(said: &str) -> (u64, u64, f64) {
    let said: Value = serde_json::from_str(said).unwrap_or_else(|_| panic!("{said}"));
    let (sent, received) = (&said["end"]["sum_sent"], &said["end"]["sum_received"]);
    let segment = said["start"]["tcp_mss_default"].as_u64().filter(|bytes| *bytes > 0);
    let segments = sent["bytes"].as_u64().expect("a number") / segment.expect("a size");
    let again = sent["retransmits"].as_u64().expect("Linux counts them");
    (segments, again, received["bits_per_second"].as_f64().expect("a number"))
}

/// Number of times that policies were applied.
fn applied(net: &Net) -> usize {
    let events = commands::operate(&net.home, "events").expect("it serves");
    events.lines().filter(|line| line.contains("POLICIES_APPLIED")).count()
}

async fn until(what: &str, net: &Net, is_so: impl Fn() -> bool) {
    let until = Instant::now() + READY_MAX;
    while !is_so() {
        let events = || commands::operate(&net.home, "events");
        assert!(Instant::now() < until, "not {what}: {:?} {:?}", events(), net.observe());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tcp_stream_within_its_promise_loses_less_than_a_thousandth() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("snp").await;
    // No more than what is promised, as on a card whose neighbours use the rest.
    for (file, text) in [
        ("autoscaling.toml", "enabled = false\n"),
        ("fairness.toml", "[sharing]\nscheme = \"static\"\n"),
    ] {
        let before = applied(&net);
        std::fs::write(net.home.path().join("policies").join(file), text).expect("it is there");
        until("in force", &net, || applied(&net) > before).await;
    }
    let promised = Bandwidth::from_mbps(PROMISED);
    net.create_with(&DagSpec { bandwidth: promised, ..chain(&[("firewall", None)]) }).await;
    let _server = net.server.start("iperf3 -s");
    let reached = || net.guest.run(&format!("iperf3 -c {SERVER} -n 1K")).status.success();
    until("reached", &net, reached).await;
    for (what, options) in [
        ("a stream of 190 Mbit/s", "-b 190M"),
        ("the same in blocks of 256 KiB", "-b 190M -l 256K"),
        ("eight of 23 Mbit/s", "-b 23M -P 8"),
        ("a stream of 20 Mbit/s", "-b 20M"),
    ] {
        let line = format!("iperf3 -c {SERVER} -t 4 {options} -J");
        let (segments, again, bps) = sent(&net.guest.start(&line).wait());
        println!("{what}: {again} of {segments} segments sent again, {:.1} Mbit/s", bps / 1e6);
        assert!(1_000 * again < segments, "{what}: {again} of {segments}: {:?}", net.observe());
    }
}
