//! Many packets through a chain of three NTs: how many a second, and how much memory.
//!
//! `cargo run --release -p snic-repro --example many_packets -- 100000000`: memory follows what is in
//! flight, so it is the same after the first million and after the last. A second number is that of the DAGs that
//! share the chain, a third the Gbit/s that all send together, at random times: near what the region's port passes
//! (49 Gbit/s), packets of many DAGs wait for it at once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use snic_card_sim::{PlaneOptions, Sizes, TrafficSource};
use snic_domain::Bandwidth;
use snic_repro::{Parameters, Setup, Testbed, nt};

const PACKET_BITS: u64 = 64 * 8;

/// The argument in this place, or what stands for it.
fn number(place: usize, default: u64) -> Result<u64> {
    let given = std::env::args().nth(place);
    given.map_or(Ok(default), |text| text.parse()).with_context(|| format!("argument {place}"))
}

/// Memory of the process, in kB; nothing where the system does not say it.
fn resident_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").trim().parse().ok()
}

fn main() -> Result<()> {
    let (wanted, dags, gbps) =
        (number(1, 10_000_000)?, number(2, 1)?.max(1), number(3, 32)?.max(1));
    let parameters = Parameters::load()?;
    let (card, rate) = (parameters.core(), Bandwidth::from_gbps(100));
    let nts = ["a", "b", "c"].map(|name| nt(name, 8, rate)).into_iter().collect::<Result<_>>()?;
    let chains: Vec<&[&str]> = vec![&["a", "b", "c"]];
    let mut testbed = Testbed::new(&Setup { card, options: PlaneOptions::default(), nts, chains })?;
    let of_each = |rate: Bandwidth| Bandwidth::from_mbps(rate.get() / 1_000_000 / dags);
    let mut rows = Vec::new();
    for number in 0..dags {
        let dag = testbed.chain(&format!("three{number}"), &["a", "b", "c"], of_each(rate))?;
        let sent = of_each(Bandwidth::from_gbps(gbps));
        let source = TrafficSource::of_dag(dag.uid, sent, Sizes::Fixed(64));
        testbed.send(if dags == 1 { source } else { source.poisson() })?;
        rows.push(dag.uid.row());
    }
    testbed.measure(Duration::ZERO, Duration::from_millis(16))?;
    let before = resident_kb();
    let begin = Instant::now();
    let measured =
        testbed.measure(Duration::ZERO, Duration::from_nanos(wanted * PACKET_BITS / gbps))?;
    let seconds = begin.elapsed().as_secs_f64();
    let out = |row: &u16| measured.dag(*row).map_or(0, |dag| dag.counters.packets_out);
    let packets: u64 = rows.iter().map(out).sum();
    println!(
        "{packets} packets in {seconds:.1} s: {:.2} million a second",
        packets as f64 / seconds / 1e6
    );
    println!("at most {} on the card at once", testbed.card.packets_in_flight_max());
    println!("memory: {before:?} kB after a million, {:?} kB after all", resident_kb());
    Ok(())
}
