//! Usage of real packets beside what was sent: to the byte, over kills of the daemon; and over the loss of a card with a gap that
//! says what is missing.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use snic_integration::commands;

use super::rig::{Host, Net, READY_MAX, assert_no_loss, missing, run, station};

const GUEST: &str = "10.77.0.1";
const SERVER: &str = "10.77.0.2";
/// Bytes of a ping around its payload: Ethernet, IPv4 and ICMP headers.
const HEADERS: u64 = 14 + 20 + 8;
/// Payloads of pings, in bytes; the smallest frame is 60.
const PAYLOADS: [u64; 4] = [18, 100, 777, 1_472];
/// Pings of each payload.
const PINGS: u64 = 1_500;
/// Longest time until an interval is closed and another one has begun.
const CLOSED_MAX: Duration = Duration::from_secs(40);

/// Makes hosts that send nothing on their own: they know each other, and have no IPv6.
fn silence(net: &Net) {
    let pairs = [(&net.guest, SERVER, &net.server, 1), (&net.server, GUEST, &net.guest, 0)];
    let device = |at: usize| net.ports[at].trim_start_matches("tap:").to_owned();
    for (host, peer, of, at) in pairs {
        let (own, other) = (device(at), device(1 - at));
        let name = &host.namespace;
        let sysctl = format!("netns exec {name} sysctl -qw net.ipv6.conf.all.disable_ipv6=1");
        run("ip", &sysctl);
        let station = station(of, &other);
        run(
            "ip",
            &format!("-n {name} neigh replace {peer} lladdr {station} dev {own} nud permanent"),
        );
    }
}

/// Plugs the hosts into the ports of the card that is started in place of a killed one.
fn replug(net: &Net, devices: &[String; 2]) {
    let until = Instant::now() + READY_MAX;
    let is_there = |device: &String| Path::new("/sys/class/net").join(device).exists();
    while !devices.iter().all(is_there) {
        assert!(Instant::now() < until, "no ports again: {:?}", super::rig::card_log(&net.home));
        std::thread::sleep(Duration::from_millis(10));
    }
    let [up, function] = devices;
    net.server.attach(up, &format!("{SERVER}/24"));
    net.guest.attach(function, &format!("{GUEST}/24"));
    silence(net);
}

/// Bytes and packets that Linux sent to the card at a port.
fn handed_over(host: &Host, device: &str) -> [u64; 2] {
    ["tx_bytes", "tx_packets"].map(|counter| {
        let path = format!("cat /sys/class/net/{device}/statistics/{counter}");
        let said = host.run(&path).stdout;
        String::from_utf8_lossy(&said).trim().parse().expect("a number")
    })
}

/// All columns of the tenant's usage.
fn usage(net: &Net) -> BTreeMap<String, u64> {
    let said =
        commands::operate(&net.home, "usage export --by tenant --of acme").expect("it serves");
    let mut lines = said.lines();
    let heading = lines.next().expect("a heading").split(',');
    let values = lines.next().unwrap_or_default().split(',');
    let number = |text: &str| text.parse().unwrap_or_default();
    heading.zip(values).map(|(name, value)| (name.to_owned(), number(value))).collect()
}

/// The tenant's usage once it has so many packets, or none is added any more.
fn usage_of(net: &Net, packets: u64) -> BTreeMap<String, u64> {
    let until = Instant::now() + CLOSED_MAX;
    loop {
        let usage = usage(net);
        let counted = usage.get("packets_in").copied().unwrap_or_default();
        if counted >= packets || Instant::now() > until {
            return usage;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Pings of each payload at once; all are answered.
fn ping(net: &Net) -> Vec<super::rig::Ending> {
    let line = |payload| format!("ping -q -c {PINGS} -i 0.002 -W 2 -s {payload} {SERVER}");
    PAYLOADS.map(|payload| net.guest.start(&line(payload))).into()
}

/// Bytes of the pings, and of their answers.
fn bytes_of_pings() -> u64 {
    PAYLOADS.iter().map(|payload| 2 * PINGS * (payload + HEADERS)).sum()
}

fn of(usage: &BTreeMap<String, u64>, columns: [&str; 4]) -> [u64; 4] {
    columns.map(|column| usage.get(column).copied().unwrap_or_default())
}

const COUNTED: [&str; 4] = ["bytes_in", "packets_in", "bytes_served", "packets_served"];

fn gaps(usage: &BTreeMap<String, u64>, but: &[&str]) -> Vec<(String, u64)> {
    let is_gap = |(name, millis): &(&String, &u64)| {
        name.starts_with("gap_") && **millis > 0 && !but.contains(&name.as_str())
    };
    usage.iter().filter(is_gap).map(|(name, millis)| (name.clone(), *millis)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_what_was_sent_to_the_byte_while_the_daemon_is_killed() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let mut net = Net::new("snu").await;
    silence(&net);
    net.create().await;
    let devices = [0, 1].map(|at| net.ports[at].trim_start_matches("tap:").to_owned());
    let handed = |net: &Net| {
        let [up, function] = &devices;
        let (server, guest) = (handed_over(&net.server, up), handed_over(&net.guest, function));
        [server[0] + guest[0], server[1] + guest[1]]
    };
    let before = handed(&net);
    let pings = ping(&net);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        net.kill_daemon().await;
    }
    pings.into_iter().for_each(|ping| assert_no_loss(&ping.wait()));
    net.kill_daemon().await;
    let after = handed(&net);

    let packets = 2 * PINGS * PAYLOADS.len() as u64;
    let sent = [bytes_of_pings(), packets, bytes_of_pings(), packets];
    let linux = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(linux, sent[..2], "what Linux counts at the card's ports");
    let counted = usage_of(&net, packets);
    assert_eq!(of(&counted, COUNTED), sent, "{counted:?}");
    let missing = gaps(&counted, &["gap_late_ms"]);
    assert_eq!(missing, [], "nothing is missing");
    // What is stored is the same.
    net.kill_daemon().await;
    assert_eq!(of(&usage(&net), COUNTED), sent);

    // The card's power fails: what it had counted since its last reading is gone, and a gap says so.
    net.home.kill_card();
    replug(&net, &devices);
    let reached = || net.guest.run(&format!("ping -c 1 -W 1 {SERVER}")).status.success();
    let until = Instant::now() + READY_MAX;
    while !reached() {
        assert!(
            Instant::now() < until,
            "no packet passes again: {:?}",
            super::rig::card_log(&net.home)
        );
    }
    let more = usage_of(&net, packets + 2);
    let with_one = [sent[0] + 2 * 98, packets + 2, sent[2] + 2 * 98, packets + 2];
    assert_eq!(of(&more, COUNTED), with_one, "{more:?}");
    let missing: Vec<String> =
        gaps(&more, &["gap_late_ms"]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(missing, ["gap_card_restarted_ms"], "{more:?}");
}
