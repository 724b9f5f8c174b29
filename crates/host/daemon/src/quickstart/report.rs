//! The tables that the quick start prints.

use std::fmt::Write as _;

use snic_api::v1::{Dag, Explanation};
use snic_card_sim::DagMeasurement;
use snic_domain::Bandwidth;

use super::traffic::TrafficRun;

pub fn heading(text: &str) -> String {
    format!("\n{text}\n{}\n", "-".repeat(text.chars().count()))
}

/// A DAG's mapping with its explanation.
pub fn mapping(dag: &Dag, explanation: &Explanation) -> String {
    let mut text = format!(
        "{} (UID {:#010x}, {}, generation {})\n",
        dag.name,
        dag.uid,
        Bandwidth::from_bps(dag.bandwidth_bps),
        dag.generation,
    );
    for line in &explanation.lines {
        writeln!(text, "  {line}").expect("a string takes all");
    }
    text
}

fn gbps(bandwidth: Bandwidth) -> String {
    format!("{:.2}", bandwidth.gbps_f64())
}

/// Throughput and latency by DAG.
pub fn traffic(run: &TrafficRun) -> String {
    let mut text = String::from(
        "DAG                              Gbit/s            packets    latency in ns\n\
         \x20                       promised    sent  served        out   mean   p50   p99\n",
    );
    for flow in &run.flows {
        let name = flow.dag.trim_start_matches("tenants/").replace("/dags/", "/");
        let promised = gbps(flow.promised);
        match &flow.measured {
            Some(seen) => text.push_str(&traffic_line(&name, &promised, seen)),
            None => {
                writeln!(text, "{name:<24} {promised:>7} no packets").expect("a string takes all")
            }
        }
    }
    text
}

fn traffic_line(name: &str, promised: &str, seen: &DagMeasurement) -> String {
    format!(
        "{name:<24} {promised:>7} {:>7} {:>7} {:>10} {:>6.0} {:>5.0} {:>5.0}\n",
        gbps(seen.intended),
        gbps(seen.served),
        seen.counters.packets_out,
        seen.latency_mean_nanos(),
        seen.latency_p50_nanos(),
        seen.latency_p99_nanos(),
    )
}

#[cfg(test)]
mod tests {
    use snic_card_sim::Measurements;

    use super::*;
    use crate::quickstart::traffic::MeasuredDag;

    #[test]
    fn a_dag_without_packets_is_named() {
        let flow = MeasuredDag {
            dag: "tenants/acme/dags/web".into(),
            promised: Bandwidth::from_gbps(10),
            measured: None,
        };
        let text = traffic(&TrafficRun { flows: vec![flow], all: Measurements::default() });
        assert!(text.contains("acme/web"), "{text}");
        assert!(text.contains("10.00 no packets"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
