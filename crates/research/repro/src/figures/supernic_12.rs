//! Figs. 12 and 13: latency and throughput of the real DAGs of Fig. 10, on sNIC and as PANIC has it.
//!
//! PANIC connects every unit to the crossbar: where bitstreams exist for single NTs only, the
//! planner cuts a chain after every NT, and packets go back to the scheduler in between.

use anyhow::{Context, Result};
use snic_card_sim::{DagMeasurement, PlaneOptions, Sizes, TrafficSource};
use snic_domain::Bandwidth;

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{
    ASIC_HZ, FIG12_LOAD_GBPS, FIG12_REQUEST_GBPS, Parameters, TIME_US, WARM_UP_US,
};
use crate::testbed::{NtSequence, Setup, Testbed};

/// Fig. 10's, as in `bitstreams/dags.toml`.
const DAGS: [(&str, NtSequence<'static>); 4] = [
    ("DAG-A", &["firewall", "aes"]),
    ("DAG-B", &["nat", "load-balancer"]),
    ("DAG-C", &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n"]),
    ("DAG-D", DAG_D),
];
const DAG_D: NtSequence<'static> =
    &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"];
/// Cycles of the DAGs above on an empty sNIC: the core's 49 (SuperNIC, 5.1) and the catalogue's latencies.
const ALONE: [f64; 4] = [103.0, 75.0, 127.0, 171.0];

/// A DAG on a separate card, and what is sent at it.
struct Run {
    chains: Vec<NtSequence<'static>>,
    options: PlaneOptions,
    nts: NtSequence<'static>,
    request: Bandwidth,
    load: Bandwidth,
}

fn singles() -> Vec<NtSequence<'static>> {
    DAG_D.chunks(1).collect()
}

fn measure(parameters: &Parameters, run: Run) -> Result<DagMeasurement> {
    let (card, nts) = (parameters.card.clone(), parameters.nt_types());
    let setup = Setup { card, options: run.options, nts, chains: run.chains };
    let mut testbed = Testbed::new(&setup)?;
    let dag = testbed.chain("dag", run.nts, run.request)?;
    testbed.send(TrafficSource::of_dag(dag.uid, run.load, Sizes::Facebook).poisson())?;
    let (warm_up, time) = (parameters.micros(&WARM_UP_US), parameters.micros(&TIME_US));
    let measured = testbed.measure(warm_up, time)?;
    measured.dag(dag.uid.row()).cloned().context("packets went through")
}

fn names() -> Vec<String> {
    DAGS.iter().map(|(name, ..)| (*name).to_string()).collect()
}

pub(super) fn latency(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let (mut snic, mut panic, mut asic) = (Vec::new(), Vec::new(), Vec::new());
    let mut most = 0.0_f64;
    for (at, ((name, nts), alone)) in DAGS.into_iter().zip(ALONE).enumerate() {
        let mean = |chains| -> Result<DagMeasurement> {
            let (request, load) =
                (parameters.gbps(&FIG12_REQUEST_GBPS), parameters.gbps(&FIG12_LOAD_GBPS));
            let options = parameters.options();
            measure(parameters, Run { chains, options, nts, request, load })
        };
        let (ours, theirs) = (mean(vec![nts])?, mean(singles())?);
        let cycles = Expected::derived(Origin::Computed, ExpectedBound::Exact(alone));
        outcome.check(
            format!("{name}: the fastest packet"),
            "cycles",
            cycles,
            ours.latency.min as f64,
        );
        let less = (1.0 - ours.latency.mean / theirs.latency.mean) * 100.0;
        most = most.max(less);
        let never_more = Expected::predicted(Origin::Published, ExpectedBound::AtLeast(0.0));
        outcome.check(format!("{name}: latency below PANIC's by"), "%", never_more, less);
        snic.push((at as f64, ours.latency_mean_nanos()));
        panic.push((at as f64, theirs.latency_mean_nanos()));
        asic.push((at as f64, ours.latency.mean * 1e9 / parameters.value(&ASIC_HZ)));
    }
    // "Up to" is a maximum: no DAG may gain more, and one has to come near.
    let up_to = Expected::predicted(Origin::Published, ExpectedBound::Between(30.0, 40.0));
    outcome.check("The most that any DAG gains", "%", up_to, most);
    let core = parameters.card.core.get() as f64 * 1e9 / parameters.value(&ASIC_HZ);
    let projected = Expected::derived(Origin::Published, ExpectedBound::Margin(25.0, 0.5));
    outcome.check("sNIC's core as an ASIC", "ns", projected, core);
    outcome.plot = Some(Plot {
        x: "DAG of Fig. 10",
        y: "Mean latency (ns)",
        axis: Axis::Categories(names()),
        series: vec![
            Series::ours("sNIC", snic),
            Series::ours("PANIC", panic),
            Series::ours("sNIC as an ASIC", asic),
        ],
    });
    outcome.note(
        "Packets of Facebook's flows, Poisson arrivals, 1 Gbit/s. The paper gives no latencies of the \
         single NTs; those of the catalogue are assumptions, and with NTs of half their latency the most \
         that a DAG gains is over the paper's 40 %. The text has one number, up to 40 % less than PANIC \
         (abstract and 5.3); the order is checked for every DAG. PHY and MAC are no part of these \
         latencies; as an ASIC all of the card's cycles are at 2 GHz.",
    );
    Ok(outcome)
}

/// Bandwidth of the slowest NT of a chain, and no more than the port's.
fn bottleneck(parameters: &Parameters, nts: NtSequence<'_>) -> Bandwidth {
    let types = parameters.nt_types();
    let of = |name: &&str| types.iter().find(|nt| nt.id.as_str() == *name);
    let least = nts.iter().filter_map(of).map(|nt| nt.bandwidth_max).min();
    least.unwrap_or(parameters.card.ingress).min(parameters.card.ingress)
}

pub(super) fn throughput(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let options = PlaneOptions { rate_limits: false, ..parameters.without_credits() };
    let (mut snic, mut panic) = (Vec::new(), Vec::new());
    let served = |chains, nts, request| -> Result<f64> {
        let load = parameters.card.ingress;
        let measured = measure(parameters, Run { chains, options, nts, request, load })?;
        Ok(measured.served.gbps_f64())
    };
    let mut dag_d = f64::NAN;
    for (at, (name, nts)) in DAGS.into_iter().enumerate() {
        // It says where the DAG is placed, one instance of each NT, and does not limit it.
        let request = bottleneck(parameters, nts);
        let (ours, theirs) = (served(vec![nts], nts, request)?, served(singles(), nts, request)?);
        let same = Expected::predicted(Origin::Published, ExpectedBound::Share(1.0, 0.05));
        outcome.check(format!("{name}: sNIC / PANIC"), "", same, ours / theirs);
        snic.push((at as f64, ours));
        panic.push((at as f64, theirs));
        dag_d = ours;
    }
    let saturates = Expected::predicted(Origin::Published, ExpectedBound::Share(30.0, 0.05));
    outcome.check("DAG-D saturates at what AES serves", "Gbit/s", saturates, dag_d);
    let (rest, aes) = DAG_D.split_at(5);
    let twice_aes = bottleneck(parameters, DAG_D) + bottleneck(parameters, DAG_D);
    let parallel = served(vec![rest, aes], DAG_D, twice_aes.min(parameters.card.ingress))?;
    let twice = Expected::predicted(Origin::Published, ExpectedBound::Share(2.0, 0.05));
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
        "All that the port takes is sent, 100 Gbit/s. Credits are off, as in the paper, and rates too: what \
         is served is what NTs can. For DAG-D-parallel twice what AES serves is requested, and the planner \
         gives it two AES.",
    );
    Ok(outcome)
}
