//! Nothing is allocated for a packet: between two hosts in network namespaces, a card that was switched on in this
//! process forwards a flood through NAT and firewall, and the allocator counts.
//!
//! The flood's rate is printed: `cargo test --release -p snic-card-soft --test memory -- --nocapture`, as root.

mod support;

use std::alloc::System;
use std::path::Path;
use std::time::Duration;

use cap::Cap;
use snic_card_soft::PortSpec;
use snic_ports::packets::PortTraffic;

use support::{Bench, Hosts, ip, sender};

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// Time in which packets are sent.
const SPAN: Duration = Duration::from_secs(1);
/// After how long what a TAP device dropped is counted.
const TAP_LOOK: Duration = Duration::from_millis(700);
/// Bytes that may be allocated in that time: what the test and the card's control need.
const BYTES_MAX: usize = 256 << 10;

fn missing() -> Option<&'static str> {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/net/tun").exists();
    let starts = std::process::Command::new("ip").arg("-V").output().is_ok();
    (!can || !starts).then_some("it needs root, /dev/net/tun and ip")
}

#[test]
fn no_packet_through_a_ring_or_a_tap_takes_memory() {
    if sender() {
        return;
    }
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    for kind in ["interface", "tap"] {
        check(kind);
    }
}

fn check(kind: &str) {
    let id = std::process::id() % 100_000;
    let ports = ["a", "b"].map(|side| format!("{}{side}{id}", &kind[..1]));
    if kind == "interface" {
        for port in &ports {
            ip(&format!("link add {port}n type veth peer name {port}"));
        }
    }
    let device = |port: &String| match kind {
        "interface" => format!("{port}n"),
        _ => port.clone(),
    };
    let specs =
        ports.each_ref().map(|port| format!("{kind}:{port}").parse::<PortSpec>().expect("a port"));
    let mut bench = Bench::start(&specs[1], &specs[0]);
    let hosts = Hosts::new(ports.each_ref().map(device));
    bench.program();
    // Once for what grows to its size with the first packets.
    hosts.flood(SPAN);
    std::thread::sleep(TAP_LOOK);
    let before = bench.ports();
    let allocated = MEMORY.total_allocated();
    let worked = bench.processor_time();
    let sent = hosts.flood(SPAN);
    let allocated = MEMORY.total_allocated() - allocated;
    let worked = bench.processor_time() - worked;
    std::thread::sleep(TAP_LOOK);
    let after = bench.ports();
    let of = |count: fn(&PortTraffic) -> u64| {
        let sum = |ports: &[PortTraffic]| ports.iter().map(count).sum::<u64>();
        sum(&after) - sum(&before)
    };
    let (came, went, lost) = (of(|p| p.received), of(|p| p.sent), of(|p| p.too_slow));
    println!(
        "{kind} ({}): {:.0} packets/s sent on; {sent} sent, {came} received, {went} sent on, {lost} too slow; \
         {allocated} bytes allocated, {:.0} ns of processor for each",
        after[0].method,
        went as f64 / SPAN.as_secs_f64(),
        worked.as_nanos() as f64 / went as f64
    );
    let by_rule: u64 = bench.observe().tasks.iter().map(|task| task.by_rule).sum();
    println!("{by_rule} times an NT treated a packet by its flow's rule");
    assert!(by_rule > went, "of two NTs, for {went} packets and those before");
    assert!(went > 10_000, "{after:?}");
    let seen = came + lost;
    assert!(sent <= seen && seen <= sent + 64, "each is received or counted: {after:?}");
    assert!(allocated < BYTES_MAX, "{allocated} bytes for {came} packets");
}
