//! The program beside the kernel's own forwarding with nftables, which does the same between the same pairs of devices: NAT, and a
//! firewall that tracks connections. Turns of the two follow each other; the median of five counts.
//!
//! `cargo bench -p snic-fast-path`, as root, with `ip` and `nft`, on a machine that does nothing else.

#![allow(dead_code, reason = "the modules are those of the tests")]

#[path = "../tests/fast_path/card.rs"]
mod card;
#[path = "../tests/fast_path/frames.rs"]
mod frames;
#[path = "../tests/fast_path/rig.rs"]
mod rig;
#[path = "../tests/fast_path/site.rs"]
mod site;
#[path = "../../card-soft/tests/support/mod.rs"]
mod support;

use std::io::{IoSlice, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use card::{FAMILIES, Family, exits, forward};
use rig::Rig;
use site::{Bench, inside, ip, received};

/// Duration of each measurement.
const SPAN: Duration = Duration::from_secs(2);
const TURNS: usize = 5;
/// Payloads of datagrams in a frame of 60 bytes, which is 64 with its checksum, and in a packet of 1,500.
const PAYLOADS: [usize; 2] = [18, 1_472];
/// Datagrams of one call.
const BATCH: usize = 64;
/// Stations of the card's devices, for the kernel's own forwarding.
const CARD: [&str; 2] = ["02:00:00:00:00:1a", "02:00:00:00:00:1b"];
const HOSTS: [&str; 2] = ["02:00:00:00:00:0a", "02:00:00:00:00:0b"];
const FAMILY: Family = Family { external: "10.1.0.254", ..FAMILIES[0] };

/// Program that forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Nftables,
    FastPath,
    /// A card's process with the fast path, its DAG of a NAT and a firewall without a limit.
    Card,
}

/// Pins this thread to a processor.
fn pin(processor: usize) {
    let thread = std::fs::read_link("/proc/thread-self").expect("it is there");
    let thread = thread.file_name().expect("its number");
    let mut taskset = Command::new("taskset");
    let output = taskset.args(["-cp", &processor.to_string()]).arg(thread).output();
    assert!(output.expect("taskset starts").status.success());
}

/// Addresses, routes and rules of the kernel's own forwarding.
fn set_up_kernel(bench: &Bench) {
    FAMILY.set_up(bench);
    let namespace = &bench.site.namespaces[2];
    for (side, device) in ["ca", "cb"].into_iter().enumerate() {
        ip(&format!("-n {namespace} link set dev {device} address {}", CARD[side]));
        ip(&format!("-n {namespace} address add 10.{side}.0.254/24 dev {device}"));
        ip(&format!("-n {namespace} neigh add 10.{side}.0.1 lladdr {} dev {device}", HOSTS[side]));
    }
    let rules = "table ip t {
        chain n { type nat hook postrouting priority 100; ip saddr 10.0.0.1 masquerade; }
        chain f {
            type filter hook forward priority 0; policy drop;
            ct state established,related accept
            udp dport 7000 accept
            tcp dport 5201 accept
        }
    }";
    inside(namespace, || {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("root may");
        let status = Command::new("nft").arg(rules).status().expect("nft starts");
        assert!(status.success());
    });
}

/// Has the hosts send to what forwards.
fn turn_to(bench: &Bench, way: Way) {
    let [a, b, _] = &bench.site.namespaces;
    let targets = if way == Way::Nftables { CARD } else { [HOSTS[1], HOSTS[0]] };
    ip(&format!("-n {a} neigh replace {} lladdr {} dev a", FAMILY.gateway, targets[0]));
    ip(&format!("-n {b} neigh replace {} lladdr {} dev b", FAMILY.external, targets[1]));
}

fn address(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse().expect("an address"), port)
}

/// Sends datagrams as fast as it can.
fn flood(payload: usize) {
    pin(0);
    let socket = UdpSocket::bind(address(FAMILY.hosts[0], 5_000)).expect("it is free");
    socket.connect(address(FAMILY.hosts[1], 7_000)).expect("a route");
    let bytes = vec![0; payload];
    let parts = [IoSlice::new(&bytes)];
    let began = Instant::now();
    while began.elapsed() < SPAN {
        let mut controls: [_; BATCH] = std::array::from_fn(|_| SendAncillaryBuffer::default());
        let mut messages: Vec<_> =
            controls.iter_mut().map(|control| MMsgHdr::new(&parts, control)).collect();
        // A full queue is no failure: what arrives is counted.
        let _ = sendmmsg(&socket, &mut messages, SendFlags::empty());
    }
}

/// Datagrams a second that arrive.
fn datagrams(namespaces: &[String; 3], payload: usize) -> f64 {
    let [a, b, _] = namespaces;
    // Somebody has the port; what is not read is dropped there, and no host complains to the sender.
    let _sink = inside(b, || UdpSocket::bind(address(FAMILY.hosts[1], 7_000)).expect("it is free"));
    let before = inside(b, || received("b"));
    inside(a, || flood(payload));
    (inside(b, || received("b")) - before) as f64 / SPAN.as_secs_f64()
}

/// Gigabits a second of one TCP stream.
fn stream(namespaces: &[String; 3]) -> f64 {
    let [a, b, _] = namespaces;
    let to = address(FAMILY.hosts[1], 5_201);
    let listener = inside(b, || TcpListener::bind(to).expect("it is free"));
    std::thread::scope(|scope| {
        let taken = scope.spawn(|| {
            pin(1);
            let (mut stream, _) = listener.accept().expect("a stream");
            let (mut buffer, mut bytes, began) = (vec![0; 1 << 17], 0_usize, Instant::now());
            while let Ok(more @ 1..) = stream.read(&mut buffer) {
                bytes += more;
            }
            bytes as f64 * 8e-9 / began.elapsed().as_secs_f64()
        });
        inside(a, || {
            pin(0);
            let mut stream = TcpStream::connect(to).expect("it listens");
            let (bytes, began) = (vec![0; 1 << 17], Instant::now());
            while began.elapsed() < SPAN {
                stream.write_all(&bytes).expect("it is taken");
            }
        });
        taken.join().expect("it ends well")
    })
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Ways in the order of their turns.
const WAYS: [Way; 3] = [Way::Nftables, Way::FastPath, Way::Card];

fn print(what: &str, unit: &str, of: &[[f64; WAYS.len()]]) {
    for (at, way) in WAYS.iter().enumerate() {
        let each: Vec<_> = of.iter().map(|turn| format!("{:.1}", turn[at])).collect();
        let middle = median(of.iter().map(|turn| turn[at]).collect());
        let ratio = median(of.iter().map(|turn| turn[at] / turn[0]).collect());
        println!("{what}: {way:?} {middle:.1} {unit}, ratio {ratio:.2}; turns {}", each.join(" "));
    }
}

/// Thousands of datagrams a second of each size, and gigabits a second of a stream.
fn all(namespaces: &[String; 3]) -> [f64; 3] {
    let [small, large] = PAYLOADS.map(|payload| datagrams(namespaces, payload) / 1_000.0);
    [small, large, stream(namespaces)]
}

/// The same with a card's process.
fn measure_card() -> Option<[f64; 3]> {
    let mut rig = Rig::new("bench")?;
    let measured = all(&rig.site.namespaces);
    let (seen, fast) = (rig.bench.observe(), rig.fast());
    println!("  a card: {} packets, {fast} of them in the kernel", seen.packets_out);
    Some(measured)
}

/// Segments sent again of a stream within its promise: 190 of 200 Mbit/s, with the fast path and without.
fn resent() {
    for is_fast in [true, false] {
        let Some(mut rig) = Rig::with("promise", is_fast, Some([200_000, 65_536])) else { return };
        let [a, b, _] = &rig.site.namespaces;
        let exec = |namespace: &str, line: &str| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", namespace]).args(line.split(' '));
            command
        };
        let server = exec(b, "iperf3 -s -1").stdout(std::process::Stdio::null()).spawn();
        std::thread::sleep(Duration::from_millis(500));
        let line = format!("iperf3 -c {} -b 190M -t 5 -f m", FAMILIES[0].hosts[1]);
        let output = exec(a, &line).output().expect("iperf3 starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let sum = said.lines().find(|line| line.contains("sender")).unwrap_or(&said).to_owned();
        let _ = server.expect("iperf3 starts").wait();
        println!(
            "190 of 200 Mbit/s, fast path {is_fast}: {sum}; {} packets in the kernel",
            rig.fast()
        );
    }
}

/// Thousands of datagrams a second, and gigabits a second of a stream, by one of the ways; `None` where it cannot be measured.
fn measure(way: Way) -> Option<[f64; 3]> {
    if way == Way::Card {
        return measure_card();
    }
    let mut bench = Bench::new("bench")?;
    // The captures of the tests are no part of it.
    bench.hosts.clear();
    set_up_kernel(&bench);
    turn_to(&bench, way);
    let namespaces = bench.site.namespaces.clone();
    let both = || all(&namespaces);
    if way == Way::Nftables {
        let Bench { path, slow, site, .. } = bench;
        drop((path, slow));
        let measured = both();
        drop(site);
        return Some(measured);
    }
    let (is_over, out) = (AtomicBool::new(false), exits(&bench));
    Some(std::thread::scope(|scope| {
        scope.spawn(|| forward(&mut bench, out, &FAMILY, &is_over));
        let measured = both();
        is_over.store(true, Ordering::Relaxed);
        measured
    }))
}

fn main() {
    if rig::serve() {
        return;
    }
    // Cargo's test command runs it, too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    if Command::new("nft").arg("--version").output().is_err() {
        return println!("not run: nft is missing");
    }
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let measured: Vec<_> = WAYS.into_iter().filter_map(measure).collect();
        let Ok(measured) = <[_; WAYS.len()]>::try_from(measured) else { return };
        turns.push(measured);
    }
    let columns =
        |of: usize| -> Vec<_> { turns.iter().map(|turn| turn.map(|way| way[of])).collect() };
    print("64 B", "thousand/s", &columns(0));
    print("1,500 B", "thousand/s", &columns(1));
    print("one TCP stream", "Gbit/s", &columns(2));
    resent();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load of the machine at the end: {}", load.trim());
}
