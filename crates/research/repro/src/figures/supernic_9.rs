//! Fig. 9: throughput of two DAGs that share NTs, in the three ways of Fig. 4.

use anyhow::{Context, Result};
use snic_card_sim::{PlaneOptions, Sizes, TrafficSource};
use snic_domain::FormPreference;

use super::supernic_11::dag_a;
use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{
    ENTRY_CYCLES, FIG9_CYCLES, FIG9_NT_GBPS, FIG9_REQUEST_PERCENT, FIG9_SHARE_PERCENT, Parameters,
    TIME_US, WARM_UP_US, gbps,
};
use crate::testbed::{NtSequence, Setup, Testbed, nt};

/// One of the three ways.
pub(super) struct Scheme {
    pub(super) name: &'static str,
    pub(super) form: FormPreference,
    pub(super) chains: Vec<NtSequence<'static>>,
    /// Request of each DAG, in units of what an NT serves.
    pub(super) request: f64,
}

pub(super) fn schemes(parameters: &Parameters) -> [Scheme; 3] {
    let request = |at: usize| parameters.all(&FIG9_REQUEST_PERCENT)[at] / 100.0;
    let whole: Vec<NtSequence<'static>> = vec![&["entry", "nt1", "nt2", "nt3", "nt4"]];
    let parts: Vec<NtSequence<'static>> = vec![&["entry"], &["nt1", "nt2"], &["nt3"], &["nt4"]];
    let (sequential, parallel) = (FormPreference::Sequential, FormPreference::Parallel);
    [
        Scheme { name: "S1", form: sequential, chains: whole, request: request(0) },
        Scheme { name: "S2", form: parallel, chains: parts.clone(), request: request(1) },
        Scheme { name: "S3", form: parallel, chains: parts, request: request(2) },
    ]
}

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let mut served = Vec::new();
    for scheme in schemes(parameters) {
        served.push(throughput(parameters, &scheme)?);
    }
    let [s1, s2, s3] = served[..] else { anyhow::bail!("three schemes") };
    let shape = |bound| Expected::predicted(Origin::Published, bound);
    outcome.check("DAG-a: S2 / S1", "", shape(ExpectedBound::Share(1.0, 0.02)), s2.0 / s1.0);
    outcome.check("DAG-b: S2 / S1", "", shape(ExpectedBound::Share(1.0, 0.02)), s2.1 / s1.1);
    outcome.check("DAG-a: S3 / S1", "", shape(ExpectedBound::Between(1.05, 1.999)), s3.0 / s1.0);
    let full = ExpectedBound::Share(64.0, 0.02);
    let together = Expected::predicted(Origin::Computed, full);
    outcome.check("S1: both fill NT2 and NT4", "Gbit/s", together, s1.0 + s1.1);
    let bars = |of: fn(&(f64, f64)) -> f64| {
        served.iter().enumerate().map(|(at, pair)| (at as f64, of(pair))).collect()
    };
    outcome.plot = Some(Plot {
        x: "Scheme",
        y: "Throughput (Gbit/s)",
        axis: Axis::Categories(vec!["S1".into(), "S2".into(), "S3".into()]),
        series: vec![Series::ours("DAG-a", bars(|p| p.0)), Series::ours("DAG-b", bars(|p| p.1))],
    });
    outcome.note(
        "Credits are off, as in the paper, and rates too: both DAGs send all that the wire takes, each its \
         part of it, packets of Facebook's flows, and NTs serve what they can. DAG-b, NT2 → NT4, skips what \
         it does not need of DAG-a's chains. For S3 both request three quarters of what an NT serves, and the planner \
         gives DAG-a's chains second instances of NT1 → NT2 and of NT4. The paper gives bars without \
         numbers, and not what is sent: their order is checked.",
    );
    Ok(outcome)
}

fn throughput(parameters: &Parameters, scheme: &Scheme) -> Result<(f64, f64)> {
    let card = parameters.core();
    let (wire, rate) = (card.ingress.gbps_f64(), parameters.value(&FIG9_NT_GBPS));
    let mut nts = vec![nt("entry", parameters.count(&ENTRY_CYCLES), card.ingress)?];
    for name in ["nt1", "nt2", "nt3", "nt4"] {
        nts.push(nt(name, parameters.count(&FIG9_CYCLES), gbps(rate))?);
    }
    let options = PlaneOptions { rate_limits: false, ..parameters.without_credits() };
    let mut testbed = Testbed::new(&Setup { card, options, nts, chains: scheme.chains.clone() })?;
    let request = gbps((rate * scheme.request).min(wire / 2.0));
    let spec = dag_a(scheme.form, request)?;
    let a =
        testbed.dag("lab", "dag-a", spec).with_context(|| format!("{} of DAG-a", scheme.name))?;
    let b = testbed.chain("dag-b", &["nt2", "nt4"], request)?;
    let part = parameters.value(&FIG9_SHARE_PERCENT) / 100.0;
    for (dag, part) in [(&a, part), (&b, 1.0 - part)] {
        testbed.send(TrafficSource::of_dag(dag.uid, gbps(wire * part), Sizes::Facebook))?;
    }
    let (warm_up, time) = (parameters.micros(&WARM_UP_US), parameters.micros(&TIME_US));
    let measured = testbed.measure(warm_up, time)?;
    let served = |row| measured.dag(row).map(|dag| dag.served.gbps_f64()).context("it serves");
    Ok((served(a.uid.row())?, served(b.uid.row())?))
}
