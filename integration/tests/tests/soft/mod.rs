//! The software card with real processes and real packets: Linux hosts in network namespaces send through a
//! DAG, the daemon is killed under traffic, and the card loses its power.
//!
//! `SNIC_SOFT_ROUNDS=100 cargo test -p snic-integration --features ci --test ci soft::` kills the daemon that often.

mod bursts;
mod fast_path;
mod guards;
pub(crate) mod hitless;
mod kernel;
mod latency;
mod paths;
mod quickstart;
mod reliable;
mod reset;
pub mod rig;
mod tasks;
mod usage;
mod ycsb;

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use snic_card_soft::Observation;
use snic_integration::Home;

use rig::{
    Ending, Net, Pings, READY_MAX, assert_no_loss, card_log, missing, observe, ready, snicctl,
    try_observe_card,
};

/// Number of times that the daemon is killed.
fn rounds() -> u32 {
    let rounds = std::env::var("SNIC_SOFT_ROUNDS").ok();
    rounds.map_or(3, |text| text.parse().expect("SNIC_SOFT_ROUNDS is a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_reach_each_other_through_a_dag_and_not_before_it_is_ready() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("sna").await;
    assert!(!net.guest.run("ping -c 2 -i 0.2 -W 1 10.77.0.2").status.success());
    let before = net.observe();
    assert_eq!((before.ports[0].sent, before.ports[1].sent), (0, 0), "{before:?}");
    assert!(before.ports[1].received > 0, "{before:?}");
    assert!(before.drops.iter().any(|(cause, _)| cause == "Unclassified"), "{before:?}");

    net.create().await;
    let ping = net.guest.run("ping -c 20 -i 0.05 -W 2 10.77.0.2");
    assert_no_loss(&String::from_utf8_lossy(&ping.stdout));
    let pinged = net.observe();
    assert!(pinged.ports[0].sent >= 20 && pinged.ports[1].sent >= 20, "{pinged:?}");

    let _server = net.server.start("iperf3 -s -1");
    std::thread::sleep(Duration::from_millis(300));
    let said = net.guest.start("iperf3 -c 10.77.0.2 -t 2").wait();
    assert!(said.contains("receiver"), "{said}");
    let after = net.observe();
    assert!(after.packets_out > pinged.packets_out + 1_000, "{said}\n{after:?}");
    println!("{said}\n{after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_is_killed_loses_no_packet_and_the_next_one_writes_nothing() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let mut net = Net::new("snb").await;
    net.create().await;
    assert_no_loss(&String::from_utf8_lossy(&net.guest.run("ping -c 2 -W 2 10.77.0.2").stdout));
    let (pid, before) = (net.home.card_pid(), net.observe());
    let pings = Pings::start(&net.guest, "10.77.0.2");
    let began = Instant::now();
    for round in 0..rounds() {
        net.kill_daemon().await;
        let after = net.observe();
        assert_eq!(
            (after.loads, after.table_words),
            (before.loads, before.table_words),
            "round {round}: loads and words of tables that were written"
        );
    }
    let took = began.elapsed();
    // The last daemon reads the counters on; its sums begin with it.
    let until = Instant::now() + READY_MAX;
    loop {
        let traffic = net.client.list_dags().await[0].traffic.clone().unwrap_or_default();
        if traffic.packets_in.min(traffic.packets_out) >= 20 && traffic.offered_bps > 0 {
            break;
        }
        assert!(Instant::now() < until, "{traffic:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answered = pings.all_came_back();
    assert!(Duration::from_millis(20 * answered) > took, "{answered} pings in {took:?}");
    assert_eq!(net.home.card_pid(), pid, "one and the same card");
    println!("{} kills in {took:?}, {answered} pings, none lost", rounds());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_that_was_killed_is_started_and_programmed_again() {
    let home = Home::new();
    home.write_soft_settings("");
    let daemon = home.start().await;
    let client = snic_integration::furnished(&home, &["web"]).await;
    ready(&client).await;
    let (before, pid) = (observe(&home, &[]), home.card_pid().expect("it runs"));
    assert!(before.loads > 0 && before.table_words > 0, "{before:?}");
    home.kill_card();
    let until = Instant::now() + READY_MAX;
    let mut last = None;
    loop {
        let is_new = home.card_pid().is_some_and(|now| now != pid);
        if is_new && home.card_folder().join("card.sock").exists() {
            // The next one may not listen yet: that is the old one's socket.
            let after = try_observe_card(&home.card_folder(), &[]);
            let is_programmed = |after: &Observation| {
                after.loads == before.loads && after.table_words >= before.table_words
            };
            if after.as_ref().is_some_and(is_programmed) {
                break;
            }
            last = after;
        }
        assert!(Instant::now() < until, "{before:?}; {last:?}; {:?}", card_log(&home));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ready(&client).await;
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
    assert_eq!(observe(&home, &[]).loads, before.loads, "the card runs on without a daemon");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_capture_opens_in_tcpdump_and_a_trace_has_the_time_of_each_part() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("sng").await;
    net.create().await;
    // The hosts know each other's addresses: from here on only the test's packets are sent.
    assert_no_loss(&String::from_utf8_lossy(&net.guest.run("ping -c 2 10.77.0.2").stdout));
    let file = net.home.path().join("web.pcapng");
    let endpoint = format!("unix:{}", net.home.socket().display());
    let context = format!("context set it --endpoint {endpoint} --identity tenant/acme");
    for line in [&*context, "context use it"] {
        assert!(snicctl(&net.home, line).status().expect("it starts").success(), "{line}");
    }
    let start = |line: &str| Ending(Some(snicctl(&net.home, line).spawn().expect("it starts")));
    // In, out of two NTs, and out: 40 packets are 160 times in the file.
    let capture = format!("capture --dag web -n 160 --for 60s -w {}", file.display());
    let capture = start(&capture);
    let trace = start("trace --dag web -n 40 --for 60s -o json");
    let ping = net.guest.start("ping -i 0.02 -s 100 10.77.0.2");
    capture.wait();
    let trace: Value = serde_json::from_str(&trace.wait()).expect("JSON");
    drop(ping);

    let read = Command::new("tcpdump").args(["-n", "-r"]).arg(&file).output();
    let read = read.expect("tcpdump starts");
    let said = String::from_utf8_lossy(&read.stdout);
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let count = |what: &str| said.lines().filter(|line| line.contains(what)).count();
    let (requests, replies) = (count("ICMP echo request"), count("ICMP echo reply"));
    // A few may be of other protocols: hosts look for their neighbours now and then.
    assert!(said.lines().count() == 160 && requests + replies >= 140, "{said}");
    assert!(requests > 60 && replies > 60, "{said}");
    assert!(said.contains("10.77.0.1 > 10.77.0.2") && said.contains("length 108"), "{said}");

    let parts = trace["parts"].as_array().expect("a list");
    let median = |part: &str| {
        let of = |times: &&Value| times["part"].as_str().is_some_and(|name| name.starts_with(part));
        let times = parts.iter().find(of).unwrap_or_else(|| panic!("no {part}: {trace}"));
        times["median_ns"].as_u64().expect("a number")
    };
    assert_eq!(trace["dropped"], json!({}));
    // Everything but the NTs takes 196 ns on an idle card (SuperNIC, section 6).
    assert_eq!(median("scheduler") + median("way out"), 196, "{trace}");
    let whole = median("whole card");
    let parts = ["scheduler", "nat in", "firewall in", "way out"].map(median);
    assert!(parts.iter().all(|took| *took > 0), "{trace}");
    assert_eq!(whole, parts.iter().sum::<u64>(), "{trace}");
}
