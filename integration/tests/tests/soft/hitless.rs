//! Packets while the control plane changes what they pass: a ping each millisecond and a TCP stream, through each change. None
//! may be lost, and what was is printed. What is sent beyond a rate limit is dropped, as without a change.

use std::time::{Duration, Instant};

use serde_json::Value;
use snic_api::v1;
use snic_bitstream::catalogue;
use snic_domain::{Bandwidth, DagSpec};
use snic_integration::commands;

use crate::rig::{Net, Pings, READY_MAX, chain, dag, missing, ready};

/// What an instance of the NT serves: little, so that a stream asks for more than one.
const OF_INSTANCE: Bandwidth = Bandwidth::from_mbps(60);
const SERVER: &str = "10.77.0.2";

/// One instance is enough for what is promised.
fn spec(nts: &[&str]) -> DagSpec {
    let nts: Vec<_> = nts.iter().map(|nt| (*nt, None)).collect();
    DagSpec { bandwidth: Bandwidth::from_mbps(20), ..chain(&nts) }
}

async fn get(net: &Net) -> v1::Dag {
    net.client.list_dags().await.pop().expect("it is there")
}

async fn instances(net: &Net) -> usize {
    let stages = get(net).await.mapping.into_iter().flat_map(|mapping| mapping.stages);
    let chains = stages.flat_map(|stage| stage.branches);
    chains.map(|chain| chain.instances.len()).max().unwrap_or(0)
}

/// Waits until the DAG is as it should be.
async fn until(net: &Net, what: &str, is_so: impl AsyncFn() -> bool) {
    let until = Instant::now() + READY_MAX;
    while !is_so().await {
        assert!(Instant::now() < until, "not {what}: {:?}; {:?}", get(net).await, net.observe());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Frames that were lost anywhere on the card or at its ports: over a rate limit, and for any other cause.
fn lost(net: &Net) -> [u64; 2] {
    let seen = net.observe();
    let at_ports = seen.ports.iter().map(|port| port.too_slow + port.too_long + port.not_taken);
    let mut lost = [0, at_ports.sum()];
    for (cause, packets) in &seen.drops {
        lost[usize::from(cause != "RateLimited")] += packets;
    }
    lost
}

/// Traffic while something is changed: pings, and a stream of so many Mbit/s.
async fn during(net: &mut Net, what: &str, mbps: u64, change: impl AsyncFnOnce(&mut Net)) {
    let before = lost(net);
    let pings = Pings::every(Duration::from_millis(1), &net.guest, SERVER);
    let stream = net.guest.start(&format!("iperf3 -c {SERVER} -t 3 -b {mbps}M -l 1400 -J"));
    tokio::time::sleep(Duration::from_millis(700)).await;
    change(net).await;
    let said = stream.wait();
    let pinged = pings.end();
    let said: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{what}: {said}"));
    let (sent, received) = (&said["end"]["sum_sent"], &said["end"]["sum_received"]);
    let arrived = received["bits_per_second"].as_f64().unwrap_or_else(|| panic!("{said}"));
    let after = lost(net);
    let [limited, lost] = [0, 1].map(|cause| after[cause] - before[cause]);
    println!(
        "{what}: of {} pings {} lost and {} overtaken; a stream of {:.1} Mbit/s, {} segments sent again; \
         the card dropped {limited} frames over the rate limit and lost {lost}",
        pinged.answered,
        pinged.lost.len(),
        pinged.overtaken,
        arrived / 1e6,
        sent["retransmits"]
    );
    assert!(lost == 0 && pinged.lost.is_empty(), "{what}: {:?} {:?}", pinged.lost, net.observe());
    let is_over = mbps > OF_INSTANCE.get() / 1_000_000;
    assert!(limited == 0 || is_over, "{what}: {:?}", net.observe());
    assert!(arrived > 0.8e6 * mbps as f64, "{what}: {said}");
}

/// How often policies came into force, by the events.
fn applied(net: &Net) -> usize {
    let events = commands::operate(&net.home, "events").expect("it serves");
    events.lines().filter(|line| line.contains("POLICIES_APPLIED")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_of_what_packets_pass_loses_one() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let mut catalogue = catalogue::builtin().expect("the built-in catalogue");
    for nt in &mut catalogue.nt_types {
        nt.bandwidth_max = OF_INSTANCE;
    }
    let mut net = Net::furnished("snh", "", &catalogue).await;
    net.create_with(&spec(&["firewall"])).await;
    let _server = net.server.start("iperf3 -s");
    until(&net, "reached", async || {
        net.guest.run(&format!("iperf3 -c {SERVER} -n 1K")).status.success()
    })
    .await;

    during(&mut net, "make-before-break", 10, async |net| {
        let to = spec(&["firewall", "nat"]);
        let operation = net.client.update_dag(&dag(), &to).await.expect("there is room");
        net.client.wait(&operation).await.expect("it becomes ready");
        assert_eq!(get(net).await.nodes.len(), 2);
    })
    .await;
    during(&mut net, "drain", 10, async |net| {
        let region = net.client.region_of(&dag()).await;
        net.client.drain(&region).await;
        assert_ne!(net.client.region_of(&dag()).await, region);
    })
    .await;
    assert_eq!(instances(&net).await, 1);
    // The stream finds its way up to the rate limit, which grows with the instances.
    during(&mut net, "scale-out", 66, async |net| {
        until(net, "scaled out", async || instances(net).await > 1).await;
    })
    .await;
    during(&mut net, "scale-in", 5, async |net| {
        until(net, "scaled in", async || instances(net).await == 1).await;
    })
    .await;
    let before = applied(&net);
    during(&mut net, "policy change", 10, async |net| {
        let file = net.home.path().join("policies/autoscaling.toml");
        std::fs::write(file, "enabled = false\n").expect("the folder is there");
        until(net, "in force", async || applied(net) > before).await;
    })
    .await;
    during(&mut net, "daemon kill", 10, async |net| {
        net.kill_daemon().await;
        ready(&net.client).await;
    })
    .await;
}
