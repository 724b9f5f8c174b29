//! Many packets through a chain of three NTs: how many a second, and how much memory.
//!
//! `cargo run --release -p snic-repro --example many_packets -- 100000000`: memory follows what is in
//! flight, so it is the same after the first million and after the last.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use snic_card_sim::{PlaneOptions, Sizes, TrafficSource};
use snic_domain::Bandwidth;
use snic_repro::{Parameters, Setup, Testbed, nt};

/// Packets of 64 bytes at 32 Gbit/s: one every four cycles.
const NANOS_PER_PACKET: u64 = 16;

/// What the process holds in memory, in kB; nothing where the system does not say it.
fn resident_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").trim().parse().ok()
}

fn main() -> Result<()> {
    let wanted = std::env::args().nth(1).map_or(Ok(10_000_000), |text| text.parse::<u64>());
    let wanted = wanted.context("give a number of packets")?;
    let parameters = Parameters::load()?;
    let (card, rate) = (parameters.core(), Bandwidth::from_gbps(100));
    let nts = ["a", "b", "c"].map(|name| nt(name, 8, rate)).into_iter().collect::<Result<_>>()?;
    let chains: Vec<&[&str]> = vec![&["a", "b", "c"]];
    let mut testbed = Testbed::new(&Setup { card, options: PlaneOptions::default(), nts, chains })?;
    let dag = testbed.chain("three", &["a", "b", "c"], rate)?;
    testbed.send(TrafficSource::of_dag(dag.uid, Bandwidth::from_gbps(32), Sizes::Fixed(64)))?;
    testbed.measure(Duration::ZERO, Duration::from_millis(16))?;
    let before = resident_kb();
    let begin = Instant::now();
    let measured =
        testbed.measure(Duration::ZERO, Duration::from_nanos(wanted * NANOS_PER_PACKET))?;
    let seconds = begin.elapsed().as_secs_f64();
    let packets = measured.dag(dag.uid.row()).context("they went through")?.counters.packets_out;
    println!(
        "{packets} packets in {seconds:.1} s: {:.2} million a second",
        packets as f64 / seconds / 1e6
    );
    println!("at most {} on the card at once", testbed.card.packets_in_flight_max());
    println!("memory: {before:?} kB after a million, {:?} kB after all", resident_kb());
    Ok(())
}
