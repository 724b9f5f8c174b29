//! Packets while the control plane changes what they pass: a ping each millisecond and a TCP stream, through each change. None
//! may be lost, and what was is printed. What is sent beyond a rate limit is dropped, as without a change.

use std::time::{Duration, Instant};

use serde_json::Value;
use snic_api::v1;
use snic_bitstream::catalogue;
use snic_card_soft::Observation;
use snic_domain::{Bandwidth, DagName, DagSpec};
use snic_integration::commands;

use super::rig::{Ending, Net, Pings, READY_MAX, chain, dag, missing, ready, snicctl};

/// Promise to each DAG, in Mbit/s. An instance serves three times as much.
const PROMISED: u64 = 20;
const SERVER: &str = "10.77.0.2";

/// One instance is enough for what is promised.
fn spec(nts: &[&str], mbps: u64) -> DagSpec {
    let nts: Vec<_> = nts.iter().map(|nt| (*nt, None)).collect();
    DagSpec { bandwidth: Bandwidth::from_mbps(mbps), ..chain(&nts) }
}

/// The other tenant's DAG.
fn other() -> DagName {
    let (tenant, dag) = ("globex".parse().expect("a label"), "store".parse().expect("a label"));
    DagName { tenant, dag }
}

async fn get(net: &Net, name: &DagName) -> v1::Dag {
    let mut all = net.client.list_dags().await.into_iter();
    all.find(|dag| dag.name == name.to_string()).expect("it is there")
}

async fn instances(net: &Net, name: &DagName) -> usize {
    let stages = get(net, name).await.mapping.into_iter().flat_map(|mapping| mapping.stages);
    let chains = stages.flat_map(|stage| stage.branches);
    chains.map(|chain| chain.instances.len()).max().unwrap_or(0)
}

/// Waits until the DAG is as it should be.
async fn until(net: &Net, what: &str, is_so: impl AsyncFn() -> bool) {
    let until = Instant::now() + READY_MAX;
    while !is_so().await {
        let events = || commands::operate(&net.home, "events").expect("it serves");
        assert!(Instant::now() < until, "not {what}: {}\n{:?}", events(), net.observe());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether each frame that came in went out or was dropped for a cause.
fn is_accounted_for(seen: &Observation) -> bool {
    let dropped: u64 = seen.drops.iter().map(|(_, packets)| packets).sum();
    seen.packets_in == seen.packets_out + dropped
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
    let seen = during_overload(net, what, mbps, change).await;
    assert_eq!(seen.limited, 0, "{what}: {:?}", net.observe());
}

/// Cost of a change where somebody sends more than its rate limit.
struct Overload {
    /// Frames over the limit.
    limited: u64,
    /// Pings that came behind a later one.
    overtaken: usize,
}

/// The same where somebody sends more than its rate limit; how many frames that cost. A ping of a DAG whose limit is
/// exceeded may be among them; each frame has left the card, or is counted.
async fn during_overload(
    net: &mut Net,
    what: &str,
    mbps: u64,
    change: impl AsyncFnOnce(&mut Net),
) -> Overload {
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
    assert_eq!(lost, 0, "{what}: {:?} {:?}", pinged.lost, net.observe());
    assert!(pinged.lost.len() as u64 <= limited, "{what}: {:?} {:?}", pinged.lost, net.observe());
    until(net, "each frame out or counted", async || is_accounted_for(&net.observe())).await;
    assert!(arrived > 0.8e6 * mbps as f64, "{what}: {said}");
    Overload { limited, overtaken: pinged.overtaken }
}

/// Writes a file of policies, and waits until it is in force.
async fn set_policy(net: &mut Net, file: &str, text: &str) {
    let before = events(net, "POLICIES_APPLIED");
    let file = net.home.path().join("policies").join(file);
    std::fs::write(file, text).expect("the folder is there");
    until(net, "in force", async || events(net, "POLICIES_APPLIED") > before).await;
}

/// Number of events of a kind.
fn events(net: &Net, kind: &str) -> usize {
    let events = commands::operate(&net.home, "events").expect("it serves");
    events.lines().filter(|line| line.contains(kind)).count()
}

/// A network whose NTs serve three times what its DAG is promised, in Mbit/s; behind that `iperf3` answers.
async fn with_small_instances(name: &str, functions: usize, promised: u64) -> (Net, Ending) {
    let mut catalogue = catalogue::builtin().expect("the built-in catalogue");
    for nt in &mut catalogue.nt_types {
        nt.bandwidth_max = Bandwidth::from_mbps(3 * promised);
    }
    let net = Net::furnished(name, functions, "", &catalogue).await;
    net.create_with(&spec(&["firewall"], promised)).await;
    let server = net.server.start("iperf3 -s");
    until(&net, "reached", async || {
        net.guest.run(&format!("iperf3 -c {SERVER} -n 1K")).status.success()
    })
    .await;
    (net, server)
}

/// The other tenant's DAG.
async fn create_other(net: &Net, nts: &[&str], mbps: u64) {
    net.client.create_tenant("globex").await.expect("a new tenant");
    let operation = net.client.create_dag(&other(), &spec(nts, mbps)).await.expect("there is room");
    net.client.wait(&operation).await.expect("it becomes ready");
}

/// Packets that the card makes, through a DAG.
fn generate(net: &Net, name: &DagName, mbps: u64, seconds: u64) -> Ending {
    let line = format!("traffic run --dag {name} --rate {mbps}Mbps --size 1400 --for {seconds}s");
    let line = line.replace("tenants/", "").replace("dags/", "");
    commands::operate(&net.home, "events").expect("it serves");
    let mut command = snicctl(&net.home, &line);
    command.env("SNICCTL_CONFIG", net.home.path().join("snicctl.toml"));
    Ending(Some(command.spawn().expect("it starts")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_of_what_packets_pass_loses_one() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let (mut net, _server) = with_small_instances("snr", 1, PROMISED).await;
    during(&mut net, "make-before-break", 10, async |net| {
        let to = spec(&["firewall", "nat"], PROMISED);
        let operation = net.client.update_dag(&dag(), &to).await.expect("there is room");
        net.client.wait(&operation).await.expect("it becomes ready");
        assert_eq!(get(net, &dag()).await.nodes.len(), 2);
    })
    .await;
    during(&mut net, "drain", 10, async |net| {
        let region = net.client.region_of(&dag()).await;
        net.client.drain(&region).await;
        assert_ne!(net.client.region_of(&dag()).await, region);
    })
    .await;
    assert_eq!(instances(&net, &dag()).await, 1);
    set_policy(&mut net, "scheduling.toml", "[instances]\nsteering = \"by-flow\"\n").await;
    // The stream finds its way up to the rate limit, which grows with the instances.
    let scaled = during_overload(&mut net, "scale-out", 66, async |net| {
        until(net, "scaled out", async || instances(net, &dag()).await > 1).await;
    })
    .await;
    assert_eq!(scaled.overtaken, 0, "flows keep their instance");
    during(&mut net, "scale-in", 5, async |net| {
        until(net, "scaled in", async || instances(net, &dag()).await == 1).await;
    })
    .await;
    during(&mut net, "policy change", 10, async |net| {
        set_policy(net, "autoscaling.toml", "enabled = false\n").await;
    })
    .await;
    during(&mut net, "daemon kill", 10, async |net| {
        net.kill_daemon().await;
        ready(&net.client).await;
    })
    .await;
}

/// With no region free, a DAG gives an instance that it holds beyond its fair share to one that is below its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_is_switched_to_another_tenant_and_no_packet_is_lost() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let (mut net, _server) = with_small_instances("snt", 1, 7).await;
    // In no bitstream together with the other DAG's NT.
    create_other(&net, &["dfadd"], 7).await;
    let operate = |line: &str| commands::operate(&net.home, line).expect("an operator may");
    operate("tenant update globex --weight 1000");
    let used = [net.client.region_of(&dag()).await, net.client.region_of(&other()).await];
    let regions = (0..16).map(|number| format!("cards/card0/regions/{number}"));
    let free: Vec<String> = regions.filter(|region| !used.contains(region)).collect();
    free[1..].iter().for_each(|region| drop(operate(&format!("region cordon {region}"))));

    during_overload(&mut net, "region switch", 17, async |net| {
        // What the stream alone does not need, and keeps.
        let more = generate(net, &dag(), 10, 1);
        until(net, "scaled out", async || instances(net, &dag()).await > 1).await;
        drop(more);
        // More than the whole card serves: its fair share is all but what is promised.
        let load = generate(net, &other(), 500, 2);
        until(net, "switched", async || instances(net, &other()).await > 1).await;
        let said = commands::operate(&net.home, "events").expect("it serves");
        assert!(said.contains("CONTEXT_SWITCH"), "{said}");
        assert_eq!(instances(net, &dag()).await, 1);
        drop(load);
    })
    .await;
}

/// A neighbour sends ten times what it was promised, from a socket: the other one's stream and pings are as without it. Its
/// test is in `alone`: beside other cards, the neighbour's own port is read too late.
pub(crate) async fn judge_a_greedy_neighbour() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let (mut net, _server) = with_small_instances("snj", 2, PROMISED).await;
    create_other(&net, &["firewall"], PROMISED).await;
    net.client.lead_function(1, &other()).await.expect("the DAG is there");
    let _sink = net.server.start("iperf3 -s -p 5202");
    during_overload(&mut net, "a neighbour's flood", 18, async |net| {
        let neighbour = net.neighbour.as_ref().expect("two functions");
        let flood =
            neighbour.start(&format!("iperf3 -u -c {SERVER} -p 5202 -b 200M -l 1400 -t 2 -J"));
        until(net, "scaled out", async || instances(net, &other()).await > 1).await;
        let said: Value = serde_json::from_str(&flood.wait()).expect("JSON");
        let sum = &said["end"]["sum"];
        println!("the neighbour: {} bit/s, {} % lost", sum["bits_per_second"], sum["lost_percent"]);
    })
    .await;
}
