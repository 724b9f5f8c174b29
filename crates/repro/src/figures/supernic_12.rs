//! Figs. 12 and 13: latency and throughput of the real DAGs of Fig. 10, on sNIC and as PANIC has it.
//!
//! PANIC connects every unit to the crossbar: where bitstreams exist for single NTs only, the
//! planner cuts a chain after every NT, and packets go back to the scheduler in between.

use std::time::Duration;

use anyhow::{Context, Result};
use snic_card_sim::{DagMeasurement, Options, Sizes, TrafficSource};
use snic_domain::Bandwidth;

use crate::lab::{Chain, Lab, Setup};
use crate::outcome::{Axis, Bound, Origin, Outcome, Plot, Series};
use crate::parameters::Parameters;

/// Fig. 10's, as in `bitstreams/dags.toml`; what they serve at most, in Gbit/s: AES 30, others the
/// port's 100.
const DAGS: [(&str, Chain<'static>, u64); 4] = [
    ("DAG-A", &["firewall", "aes"], 30),
    ("DAG-B", &["nat", "load-balancer"], 100),
    ("DAG-C", &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n"], 100),
    ("DAG-D", DAG_D, 30),
];
const DAG_D: Chain<'static> = &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"];
/// The load under which latencies are measured, and what is asked for: far from any bottleneck, the
/// token bucket's included.
const LIGHT: (Bandwidth, Bandwidth) = (Bandwidth::from_gbps(1), Bandwidth::from_gbps(25));

fn singles() -> Vec<Chain<'static>> {
    DAG_D.chunks(1).collect()
}

fn measure(
    parameters: &Parameters,
    chains: Vec<Chain<'static>>,
    options: Options,
    (nts, asked, sent): (Chain<'_>, Bandwidth, Bandwidth),
) -> Result<DagMeasurement> {
    let card = parameters.card.clone();
    let nt_types = parameters.catalogue.nt_types.clone();
    let mut lab = Lab::new(&Setup { card, options, nts: nt_types, chains })?;
    let dag = lab.chain("dag", nts, asked)?;
    lab.send(TrafficSource::of_dag(dag.uid, sent, Sizes::Facebook).poisson())?;
    let measured = lab.measure(Duration::from_micros(200), Duration::from_millis(3))?;
    measured.dag(dag.uid.row()).cloned().context("packets went through")
}

fn names() -> Vec<String> {
    DAGS.iter().map(|(name, ..)| (*name).to_string()).collect()
}

pub(super) fn latency(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut snic, mut panic, mut most) = (Vec::new(), Vec::new(), 0.0_f64);
    for (at, (name, nts, _)) in DAGS.into_iter().enumerate() {
        let flow = (nts, LIGHT.1, LIGHT.0);
        let mean = |chains| -> Result<f64> {
            let measured = measure(parameters, chains, Options::default(), flow)?;
            Ok(measured.latency_mean_nanos())
        };
        let (ours, theirs) = (mean(vec![nts])?, mean(singles())?);
        let less = (1.0 - ours / theirs) * 100.0;
        most = most.max(less);
        let at_least = (Origin::Published, Bound::AtLeast(0.0));
        outcome.check(format!("{name}: latency below PANIC's by"), "%", at_least, less);
        snic.push((at as f64, ours));
        panic.push((at as f64, theirs));
    }
    let up_to = (Origin::Published, Bound::Margin(40.0, 10.0));
    outcome.check("The most that any DAG gains", "%", up_to, most);
    outcome.plot = Some(Plot {
        x: "DAG of Fig. 10",
        y: "Mean latency (ns)",
        axis: Axis::Categories(names()),
        series: vec![Series::ours("sNIC", snic), Series::ours("PANIC", panic)],
    });
    outcome.note(
        "Packets of Facebook's flows, Poisson arrivals, 1 Gbit/s. The paper gives no latencies of the \
         single NTs; those of the catalogue are decided there. The text has one number: up to 40 % less \
         than PANIC (abstract and 5.3), held within 10 points; the order is checked for every DAG.",
    );
    Ok(outcome)
}

pub(super) fn throughput(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let options = Options { credits: false, ..Options::default() };
    let (mut snic, mut panic) = (Vec::new(), Vec::new());
    let served = |chains, nts, gbps| -> Result<f64> {
        let (asked, all) = (Bandwidth::from_gbps(gbps), parameters.card.ingress);
        let measured = measure(parameters, chains, options, (nts, asked, all))?;
        Ok(measured.served.gbps_f64())
    };
    let mut dag_d = f64::NAN;
    for (at, (name, nts, gbps)) in DAGS.into_iter().enumerate() {
        let (ours, theirs) = (served(vec![nts], nts, gbps)?, served(singles(), nts, gbps)?);
        let same = (Origin::Published, Bound::Share(1.0, 0.05));
        outcome.check(format!("{name}: sNIC / PANIC"), "", same, ours / theirs);
        snic.push((at as f64, ours));
        panic.push((at as f64, theirs));
        dag_d = ours;
    }
    let (rest, aes) = DAG_D.split_at(5);
    let parallel = served(vec![rest, aes], DAG_D, 60)?;
    let twice = (Origin::Published, Bound::Share(2.0, 0.05));
    outcome.check("DAG-D-parallel / DAG-D: two AES instances", "", twice, parallel / dag_d);
    snic.push((DAGS.len() as f64, parallel));
    let mut categories = names();
    categories.push("DAG-D-parallel".into());
    outcome.plot = Some(Plot {
        x: "DAG of Fig. 10",
        y: "Throughput (Gbit/s)",
        axis: Axis::Categories(categories),
        series: vec![Series::ours("sNIC", snic), Series::ours("PANIC", panic)],
    });
    outcome.note(
        "100 Gbit/s are sent, credits are off, as in the paper. DAG-D-parallel asks for 60 Gbit/s, and \
         the planner gives it two AES.",
    );
    Ok(outcome)
}
