//! The card beside the kernel, which does the same between the same pairs of devices: NAT and a firewall that
//! tracks connections. One processor sends; the other has the card, or the kernel's forwarding.
//!
//! ```text
//!   sender a0 ═══ a1 ── card: nat -> firewall ── b1 ═══ b0 sink
//!   sender a0 ═══ a1 ── kernel: nftables ─────── b1 ═══ b0 sink
//! ```
//!
//! `cargo test -p snic-integration --test soft -- --ignored --nocapture kernel::beside`, as root.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use snic_bitstream::catalogue;
use snic_integration::Home;

use crate::rig::{Host, chain, client, dag, missing, observe_card, ready, run, starts, station};

/// Set for the process that sends: bytes of a datagram's payload (0: IMIX), and milliseconds.
const SENDER: &str = "SNIC_BENCH_SENDER";
/// How long each measurement takes.
const SPAN: Duration = Duration::from_secs(2);
/// Measurements of each kind; the median counts.
const RUNS: usize = 5;
/// Headers of a UDP packet in a frame without its checksum: Ethernet, IPv4, UDP.
const HEADERS: usize = 42;
/// Frames of simple IMIX: 7 of 64 bytes, 4 of 594, 1 of 1,518, in a mixed order; here without the four bytes of the
/// checksum, and no longer than a device of 1,500 bytes takes.
const IMIX: [usize; 12] = [60, 590, 60, 60, 590, 60, 1_514, 60, 590, 60, 590, 60];

/// Sends as fast as it can to the sink; prints how many it sent.
#[test]
#[ignore = "a part of the measurement, which starts it"]
fn sender() {
    let Ok(told) = std::env::var(SENDER) else { return };
    let (bytes, millis) = told.split_once(',').expect("two numbers");
    let (bytes, millis): (usize, u64) =
        (bytes.parse().expect("a number"), millis.parse().expect("a number"));
    let socket = UdpSocket::bind("10.90.0.2:4000").expect("the sender's address");
    socket.connect("10.91.0.2:4000").expect("a route");
    let sizes = if bytes == 0 { IMIX.map(|frame| frame - HEADERS) } else { [bytes; 12] };
    let (payload, began) = ([0; 1_500], Instant::now());
    let mut sent = 0_u64;
    while began.elapsed() < Duration::from_millis(millis) {
        for bytes in sizes.iter().cycle().take(48) {
            // A full queue is no failure: what arrives is counted.
            sent += u64::from(socket.send(&payload[..*bytes]).is_ok());
        }
    }
    println!("sent={sent}");
}

/// Two hosts, each behind a pair of devices whose other ends are in this namespace.
struct Pairs {
    sender: Host,
    sink: Host,
}

impl Pairs {
    /// The hosts are in networks of their own; each leads everything to the other end of its pair.
    fn new(name: &str) -> Self {
        let host = |side: &str, network: u8| {
            let host = Host { namespace: format!("snic-{name}{side}") };
            let (near, far) = (format!("{name}{side}1"), format!("{name}{side}0"));
            run("ip", &format!("netns add {}", host.namespace));
            run(
                "ip",
                &format!("link add {near} type veth peer name {far} netns {}", host.namespace),
            );
            let inside = |line: &str| run("ip", &format!("-n {} {line}", host.namespace));
            inside(&format!("address add 10.{network}.0.2/24 dev {far}"));
            inside(&format!("link set {far} up"));
            inside("link set lo up");
            inside(&format!("route add default via 10.{network}.0.1"));
            run("ip", &format!("link set {near} up"));
            host
        };
        Self { sender: host("a", 90), sink: host("b", 91) }
    }

    /// Packets that came to the sink so far, by its kernel.
    fn arrived(&self, device: &str) -> u64 {
        let file = format!("cat /sys/class/net/{device}/statistics/rx_packets");
        let said = self.sink.run(&file);
        String::from_utf8_lossy(&said.stdout).trim().parse().expect("a number")
    }

    /// Packets a second that were sent and that came, for datagrams of this size.
    fn flood(&self, device: &str, bytes: usize) -> (f64, f64) {
        let before = self.arrived(device);
        let program = std::env::current_exe().expect("a path");
        let line = format!(
            "taskset -c 0 {} --exact kernel::sender --ignored --nocapture",
            program.display()
        );
        let mut command = self.sender.command(&line);
        command.env(SENDER, format!("{bytes},{}", SPAN.as_millis()));
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let sent = said.split("sent=").nth(1).and_then(|rest| rest.lines().next());
        let sent: f64 = sent.and_then(|text| text.trim().parse().ok()).expect("it says how many");
        let came = (self.arrived(device) - before) as f64;
        (sent / SPAN.as_secs_f64(), came / SPAN.as_secs_f64())
    }

    /// Round trips in µs of 300 pings with frames of this size, one after the other: the middle one, and that of 99 %.
    fn round_trips(&self, bytes: usize) -> Result<(f64, f64), String> {
        let line = format!("ping -i 0.002 -c 300 -s {} 10.91.0.2", bytes - HEADERS);
        let said = self.sender.run(&line);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let times = said.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next());
        let mut times: Vec<f64> =
            times.map(|time| time.parse::<f64>().expect("a number") * 1e3).collect();
        if times.len() < 299 {
            return Err(said);
        }
        times.sort_by(f64::total_cmp);
        Ok((times[times.len() / 2], times[times.len() * 99 / 100]))
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// The kernel between the pairs: its own namespace, with NAT and a firewall.
struct KernelRouter {
    _inside: Host,
}

impl KernelRouter {
    fn new(name: &str) -> Self {
        let host = Host { namespace: format!("snic-{name}k") };
        run("ip", &format!("netns add {}", host.namespace));
        for (side, network) in [("a", 90), ("b", 91)] {
            let device = format!("{name}{side}1");
            run("ip", &format!("link set {device} netns {}", host.namespace));
            run(
                "ip",
                &format!("-n {} address add 10.{network}.0.1/24 dev {device}", host.namespace),
            );
            run("ip", &format!("-n {} link set {device} up", host.namespace));
            // The other processor forwards, as the card does.
            let queues = format!("echo 2 > /sys/class/net/{device}/queues/rx-0/rps_cpus");
            let mut shell = host.command("sh -c");
            assert!(shell.arg(queues).status().expect("it starts").success());
        }
        let rules = "table ip t {
            chain n { type nat hook postrouting priority 100; ip saddr 10.90.0.2 masquerade; }
            chain f {
                type filter hook forward priority 0; policy drop;
                ct state established,related accept
                ip protocol icmp accept
                udp dport 4000 accept
            }
        }";
        let mut nft = host.command("nft");
        assert!(nft.arg(rules).stderr(Stdio::inherit()).status().expect("it starts").success());
        let mut forward = host.command("sysctl -q -w net.ipv4.ip_forward=1");
        assert!(forward.status().expect("it starts").success());
        Self { _inside: host }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of minutes"]
async fn beside_the_kernel() {
    if let Some(why) = missing().or_else(|| starts("nft").err()) {
        println!("not run: {why}");
        return;
    }
    let (kernel, card) = (Pairs::new("snk"), Pairs::new("sno"));
    let _router = KernelRouter::new("snk");

    let home = Home::new();
    let ports = ["interface:snob1", "interface:snoa1"].map(str::to_owned);
    home.write_soft_settings(&format!("uplink = {:?}\nfunctions = [{:?}]", ports[0], ports[1]));
    let _daemon = home.start().await;
    let client = client(&home).await;
    client.register(&catalogue::builtin().expect("the built-in catalogue")).await;
    client.create_tenant("acme").await.expect("a new tenant");
    let accept = |protocol: &str| json!({"action": "accept", "protocol": protocol});
    let spec = chain(&[
        ("nat", Some(json!({"inside": ["10.90.0.2/32"], "external": ["10.91.0.1"]}))),
        ("firewall", Some(json!({"rules": [accept("icmp"), accept("udp")]}))),
    ]);
    let operation = client.create_dag(&dag(), &spec).await.expect("there is room");
    client.wait(&operation).await.expect("it becomes ready");
    client.lead_function(0, &dag()).await.expect("the DAG is there");
    ready(&client).await;
    // The card routes nothing: the hosts are told each other's Ethernet addresses.
    let (sender, sink) = (station(&card.sender, "snoa0"), station(&card.sink, "snob0"));
    run("ip", &format!("-n snic-snoa neigh replace 10.90.0.1 lladdr {sink} dev snoa0"));
    run("ip", &format!("-n snic-snob neigh replace 10.91.0.1 lladdr {sender} dev snob0"));
    let pid = home.card_pid().expect("it runs").to_string();
    let pinned = Command::new("taskset").args(["-a", "-c", "-p", "1", &pid]).output();
    assert!(pinned.expect("taskset starts").status.success());

    let _sinks = [&kernel, &card].map(|pairs| {
        // Somebody has the port; what is not read is dropped there.
        let sink = "import socket,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
                    s.bind(('',4000));time.sleep(9999)";
        let mut command = pairs.sink.command("python3 -c");
        crate::rig::Ending(Some(command.arg(sink).spawn().expect("it starts")))
    });
    let processor_time = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat"));
        let text = text.expect("the card runs");
        text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect("a number")
    };
    println!("load {}", std::fs::read_to_string("/proc/loadavg").expect("Linux").trim());
    for bytes in [64, 1_500] {
        let k = kernel.round_trips(bytes).expect("the kernel answers");
        let c = card.round_trips(bytes);
        let c = c
            .unwrap_or_else(|said| panic!("{said}{:?}", observe_card(&home.card_folder(), &ports)));
        println!(
            "round trips with {bytes} B, median / p99: kernel {:.0} / {:.0} us, card {:.0} / {:.0} us",
            k.0, k.1, c.0, c.1
        );
    }
    for (what, payload) in [("64 B", 60 - HEADERS), ("IMIX", 0), ("1,500 B", 1_514 - HEADERS)] {
        let mut rates = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..RUNS {
            rates[0].push(kernel.flood("snkb0", payload).1);
            let before = processor_time();
            let came = card.flood("snob0", payload).1;
            rates[1].push(came);
            rates[2].push((processor_time() - before) / (came * SPAN.as_secs_f64()));
        }
        let [by_kernel, by_card, each] = rates.map(median);
        println!(
            "{what}: kernel {by_kernel:.0} packets/s, card {by_card:.0} packets/s ({each:.0} ns of processor each)"
        );
    }
    println!("{:?}", observe_card(&home.card_folder(), &ports));
    println!("load {}", std::fs::read_to_string("/proc/loadavg").expect("Linux").trim());
}
