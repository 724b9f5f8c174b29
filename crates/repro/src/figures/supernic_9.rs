//! Fig. 9: throughput of two DAGs that share NTs, in the three ways of Fig. 4.

use std::time::Duration;

use anyhow::{Context, Result};
use snic_card_sim::{Options, Sizes, TrafficSource};
use snic_domain::{Bandwidth, FormPreference};

use super::supernic_11::dag_a;
use crate::lab::{Chain, Lab, Setup, nt};
use crate::outcome::{Axis, Bound, Origin, Outcome, Plot, Series};
use crate::parameters::Parameters;

/// What each NT serves at most (SuperNIC, 5.3).
const NT_MAX: u64 = 64;
/// What DAG-b asks for, of the 64 that NT2 and NT4 serve; DAG-a gets what is left.
const DAG_B: u64 = 24;

/// One of the three ways.
struct Scheme {
    name: &'static str,
    form: FormPreference,
    chains: Vec<Chain<'static>>,
    /// What DAG-a asks for: what is left of one instance, or all that NT3, of which there is one,
    /// serves.
    dag_a: u64,
}

fn schemes() -> [Scheme; 3] {
    let whole: Vec<Chain<'static>> = vec![&["entry", "nt1", "nt2", "nt3", "nt4"]];
    let parts: Vec<Chain<'static>> = vec![&["entry"], &["nt1", "nt2"], &["nt3"], &["nt4"]];
    let (sequential, parallel) = (FormPreference::Sequential, FormPreference::Parallel);
    let left = NT_MAX - DAG_B;
    [
        Scheme { name: "S1", form: sequential, chains: whole, dag_a: left },
        Scheme { name: "S2", form: parallel, chains: parts.clone(), dag_a: left },
        Scheme { name: "S3", form: parallel, chains: parts, dag_a: NT_MAX },
    ]
}

pub(super) fn run(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut served = Vec::new();
    for scheme in schemes() {
        served.push(throughput(parameters, &scheme)?);
    }
    let [s1, s2, s3] = served[..] else { anyhow::bail!("three schemes") };
    let shape = |bound| (Origin::Published, bound);
    outcome.check("DAG-a: S2 / S1", "", shape(Bound::Share(1.0, 0.02)), s2.0 / s1.0);
    outcome.check("DAG-b: S2 / S1", "", shape(Bound::Share(1.0, 0.02)), s2.1 / s1.1);
    outcome.check("DAG-a: S3 / S1", "", shape(Bound::Between(1.05, 1.999)), s3.0 / s1.0);
    let together = (Origin::Derived, Bound::Share(NT_MAX as f64, 0.02));
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
        "NTs of 64 Gbit/s and 50 cycles, no credits, packets of Facebook's flows. DAG-b, NT2 → NT4, \
         skips what it does not need of DAG-a's chains. For S3 DAG-a asks for more than is left of \
         NT2 and NT4, and the planner gives it second instances of NT1 → NT2 and of NT4, shared by \
         DAG-b. The paper gives bars without numbers: their order is checked.",
    );
    Ok(outcome)
}

fn throughput(parameters: &Parameters, scheme: &Scheme) -> Result<(f64, f64)> {
    let card = parameters.core();
    let mut nts = vec![nt("entry", 1, card.ingress)?];
    for name in ["nt1", "nt2", "nt3", "nt4"] {
        nts.push(nt(name, 50, Bandwidth::from_gbps(NT_MAX))?);
    }
    let options = Options { credits: false, ..Options::default() };
    let mut lab = Lab::new(&Setup { card, options, nts, chains: scheme.chains.clone() })?;
    let mut spec = dag_a(scheme.form)?;
    spec.bandwidth = Bandwidth::from_gbps(scheme.dag_a);
    let a = lab.dag("lab", "dag-a", spec).with_context(|| format!("{} of DAG-a", scheme.name))?;
    let b = lab.chain("dag-b", &["nt2", "nt4"], Bandwidth::from_gbps(DAG_B))?;
    // More than they asked for: their token buckets let in what they asked for.
    for (dag, gbps) in [(&a, scheme.dag_a + 4), (&b, DAG_B + 4)] {
        lab.send(TrafficSource::of_dag(dag.uid, Bandwidth::from_gbps(gbps), Sizes::Facebook))?;
    }
    let measured = lab.measure(Duration::from_micros(200), Duration::from_millis(2))?;
    let gbps = |row| measured.dag(row).map(|dag| dag.served.gbps_f64()).context("it serves");
    Ok((gbps(a.uid.row())?, gbps(b.uid.row())?))
}
