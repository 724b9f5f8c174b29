//! The card beside the kernel, which does the same between the same pairs of devices: NAT and a firewall that
//! tracks connections. One processor sends; the other has the card, or the kernel's forwarding.
//!
//! ```text
//!   sender a0 ═══ a1 ── card: nat -> firewall ── b1 ═══ b0 sink
//!   sender TAP ──────── card: nat -> firewall ────────── TAP sink
//!   sender a0 ═══ a1 ── kernel: nftables ─────── b1 ═══ b0 sink
//! ```
//!
//! `cargo test -p snic-integration --features ci --test ci -- --ignored --nocapture kernel::beside`, as root.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use snic_bitstream::catalogue;
use snic_card_soft::Observation;
use snic_integration::{DaemonProcess, Home};

use super::rig::{
    Ending, Host, chain, client, dag, missing, observe_card, ready, run, starts, station,
};

/// Set for the process that sends: bytes of a datagram's payload (0: IMIX), and milliseconds.
const SENDER: &str = "SNIC_BENCH_SENDER";
/// Duration of each measurement.
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
#[ignore = "part: of the measurement, which starts it"]
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

/// Two hosts and their devices: those that something between them forwards from and to.
struct Hosts {
    sender: Host,
    sink: Host,
    devices: [String; 2],
}

impl Hosts {
    /// Each is behind a pair of devices whose other end is in this namespace. The hosts are in networks of their own; each
    /// leads everything to the other end of its pair.
    fn at_pairs(name: &str) -> Self {
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
        let (sender, sink) = (host("a", 90), host("b", 91));
        Self { sender, sink, devices: ["a", "b"].map(|side| format!("{name}{side}0")) }
    }

    /// Each has a TAP device that a card made.
    fn at_taps(devices: [String; 2]) -> Self {
        let [sender, sink] = [(&devices[0], 90), (&devices[1], 91)].map(|(device, network)| {
            let host = Host::new(device, &format!("10.{network}.0.2/24"));
            let route = format!("route add default via 10.{network}.0.1");
            run("ip", &format!("-n {} {route}", host.namespace));
            host
        });
        Self { sender, sink, devices }
    }

    /// A card routes nothing: the hosts are told each other's Ethernet addresses.
    fn introduce(&self) {
        let [inlet, outlet] = &self.devices;
        let (from, to) = (station(&self.sender, inlet), station(&self.sink, outlet));
        let know = |host: &Host, line: &str| {
            run("ip", &format!("-n {} neigh replace {line}", host.namespace))
        };
        know(&self.sender, &format!("10.90.0.1 lladdr {to} dev {inlet}"));
        know(&self.sink, &format!("10.91.0.1 lladdr {from} dev {outlet}"));
    }

    /// Somebody has the port; what is not read is dropped there.
    fn listen(&self) -> Ending {
        let sink = "import socket,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
                    s.bind(('',4000));time.sleep(9999)";
        let mut command = self.sink.command("python3 -c");
        Ending(Some(command.arg(sink).spawn().expect("it starts")))
    }

    /// Datagrams that came to the sink so far, by its kernel: read or dropped. Its devices count what came merged once.
    fn arrived(&self) -> u64 {
        let said = self.sink.run("cat /proc/net/snmp");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let mut lines = said.lines().filter(|line| line.starts_with("Udp:"));
        let [names, numbers] = [(); 2].map(|()| lines.next().expect("names, then numbers"));
        let all = names.split(' ').zip(numbers.split(' '));
        let counted = all.filter(|(name, _)| ["InDatagrams", "NoPorts", "InErrors"].contains(name));
        counted.map(|(_, number)| number.parse::<u64>().expect("a number")).sum()
    }

    /// Packets a second that were sent and that came, for datagrams of this size.
    fn flood(&self, bytes: usize) -> (f64, f64) {
        let before = self.arrived();
        let program = std::env::current_exe().expect("a path");
        let line = format!(
            "taskset -c 0 {} --exact soft::kernel::sender --ignored --nocapture",
            program.display()
        );
        let mut command = self.sender.command(&line);
        command.env(SENDER, format!("{bytes},{}", SPAN.as_millis()));
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let sent = said.split("sent=").nth(1).and_then(|rest| rest.lines().next());
        let sent: f64 = sent.and_then(|text| text.trim().parse().ok()).expect("it says how many");
        let came = (self.arrived() - before) as f64;
        (sent / SPAN.as_secs_f64(), came / SPAN.as_secs_f64())
    }

    /// Gbit/s of one TCP stream, as `iperf3` counts what arrives.
    fn stream(&self) -> f64 {
        let _server = self.sink.start("iperf3 -s -1");
        let line = format!("iperf3 -c 10.91.0.2 -t {} -J", SPAN.as_secs());
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            let said = self.sender.run(&line);
            let said: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
            match said["end"]["sum_received"]["bits_per_second"].as_f64() {
                Some(bps) => return bps / 1e9,
                // The server is not there yet.
                None => assert!(Instant::now() < until, "{said}"),
            }
        }
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
                tcp dport 5201 accept
            }
        }";
        let mut nft = host.command("nft");
        assert!(nft.arg(rules).stderr(Stdio::inherit()).status().expect("it starts").success());
        let mut forward = host.command("sysctl -q -w net.ipv4.ip_forward=1");
        assert!(forward.status().expect("it starts").success());
        Self { _inside: host }
    }
}

/// A card between two hosts, on the processor that does not send.
struct CardRouter {
    home: Home,
    _daemon: DaemonProcess,
    ports: [String; 2],
    pid: String,
}

impl CardRouter {
    /// Its ports are uplink and function.
    async fn new(ports: [String; 2]) -> Self {
        let home = Home::new();
        home.write_soft_settings(&format!("uplink = {:?}\nfunctions = [{:?}]", ports[0], ports[1]));
        let daemon = home.start().await;
        let client = client(&home).await;
        client.register(&catalogue::builtin().expect("the built-in catalogue")).await;
        client.create_tenant("acme").await.expect("a new tenant");
        let accept = |protocol: &str| json!({"action": "accept", "protocol": protocol});
        let spec = chain(&[
            ("nat", Some(json!({"inside": ["10.90.0.2/32"], "external": ["10.91.0.1"]}))),
            ("firewall", Some(json!({"rules": [accept("icmp"), accept("udp"), accept("tcp")]}))),
        ]);
        let operation = client.create_dag(&dag(), &spec).await.expect("there is room");
        client.wait(&operation).await.expect("it becomes ready");
        client.lead_function(0, &dag()).await.expect("the DAG is there");
        ready(&client).await;
        let pid = home.card_pid().expect("it runs").to_string();
        let pinned = Command::new("taskset").args(["-a", "-c", "-p", "1", &pid]).output();
        assert!(pinned.expect("taskset starts").status.success());
        Self { home, _daemon: daemon, ports, pid }
    }

    /// Nanoseconds of processor time so far.
    fn processor_time(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{0}/task/{0}/schedstat", self.pid));
        let text = text.expect("the card runs");
        text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
    }

    fn observe(&self) -> Observation {
        observe_card(&self.home.card_folder(), &self.ports)
    }
}

fn print_load() {
    println!("load {}", std::fs::read_to_string("/proc/loadavg").expect("Linux").trim());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly: a measurement of minutes"]
async fn beside_the_kernel() {
    if let Some(why) = missing().or_else(|| starts("nft").err()) {
        println!("not run: {why}");
        return;
    }
    let (by_kernel, at_pairs) = (Hosts::at_pairs("snk"), Hosts::at_pairs("sno"));
    let _router = KernelRouter::new("snk");
    let pairs_card = CardRouter::new(["b", "a"].map(|side| format!("interface:sno{side}1"))).await;
    let taps_card = CardRouter::new(["tap:snqb", "tap:snqa"].map(str::to_owned)).await;
    let at_taps = Hosts::at_taps(["snqa", "snqb"].map(str::to_owned));
    at_pairs.introduce();
    at_taps.introduce();
    let _sinks = [&by_kernel, &at_pairs, &at_taps].map(Hosts::listen);
    let cards = [("veth", &at_pairs, &pairs_card), ("TAP", &at_taps, &taps_card)];
    print_load();
    for bytes in [64, 1_500] {
        let (median, late) = by_kernel.round_trips(bytes).expect("the kernel answers");
        println!("round trips with {bytes} B, median / p99: kernel {median:.0} / {late:.0} us");
        for (what, hosts, card) in cards {
            let times = hosts.round_trips(bytes);
            let times = times.unwrap_or_else(|said| panic!("{said}{:?}", card.observe()));
            println!("  card at {what} {:.0} / {:.0} us", times.0, times.1);
        }
    }
    let mut streams = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        for (rates, hosts) in streams.iter_mut().zip([&by_kernel, &at_pairs, &at_taps]) {
            rates.push(hosts.stream());
        }
    }
    let [kernel, veth, tap] = streams.map(median);
    println!("a TCP stream: kernel {kernel:.2} Gbit/s, card at veth {veth:.2}, at TAP {tap:.2}");
    for (what, payload) in [("64 B", 60 - HEADERS), ("IMIX", 0), ("1,500 B", 1_514 - HEADERS)] {
        let mut kernel = Vec::new();
        let mut rates = [Vec::new(), Vec::new()];
        let mut costs = [Vec::new(), Vec::new()];
        for _ in 0..RUNS {
            kernel.push(by_kernel.flood(payload).1);
            for (at, (_, hosts, card)) in cards.iter().enumerate() {
                let before = card.processor_time();
                let came = hosts.flood(payload).1;
                rates[at].push(came);
                costs[at].push((card.processor_time() - before) / (came * SPAN.as_secs_f64()));
            }
        }
        let kernel = median(kernel);
        println!("{what}: kernel {kernel:.0} packets/s");
        for (((what, ..), rates), costs) in cards.iter().zip(rates).zip(costs) {
            let (rate, cost) = (median(rates), median(costs));
            let part = rate / kernel * 100.0;
            println!(
                "  card at {what} {rate:.0} packets/s, {part:.0} %, {cost:.0} ns of processor each"
            );
        }
    }
    cards.iter().for_each(|(_, _, card)| println!("{:?}", card.observe()));
    print_load();
}
