//! Fig. 11: DAG-a of Fig. 4, flattened into one chain (S1) and with its branches side by side (S2).

use anyhow::{Context, Result};
use snic_card_sim::Options;
use snic_domain::{Bandwidth, DagSpec, Edge, FormPreference, Node, NodeId, NtTypeId};

use crate::lab::{Lab, Setup, nt};
use crate::outcome::{Axis, Bound, Origin, Outcome, Plot, Series};
use crate::parameters::Parameters;

pub(super) fn run(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut s1, mut s2) = (Vec::new(), Vec::new());
    for (x, d, sequential, parallel) in [(0.0, 50, 249.0, 215.0), (1.0, 10, 89.0, 95.0)] {
        let ours = [FormPreference::Sequential, FormPreference::Parallel]
            .map(|form| latency(parameters, d, form));
        let [first, second] = ours;
        let (first, second) = (first?, second?);
        s1.push((x, first));
        s2.push((x, second));
        let exact = (Origin::Derived, Bound::Share(sequential, 0.1));
        outcome.check(format!("S1, NTs of {d} cycles"), "cycles", exact, first);
        let exact = (Origin::Derived, Bound::Share(parallel, 0.1));
        outcome.check(format!("S2, NTs of {d} cycles"), "cycles", exact, second);
        let order = if d == 50 { Bound::AtMost(0.0) } else { Bound::AtLeast(0.0) };
        let what = format!("S2 − S1, NTs of {d} cycles: the order of the two");
        outcome.check(what, "cycles", (Origin::Published, order), second - first);
    }
    outcome.plot = Some(Plot {
        x: "NT latency",
        y: "Latency (cycles)",
        axis: Axis::Categories(vec!["50 cycles".into(), "10 cycles".into()]),
        series: vec![
            Series::ours("S1: sequential", s1),
            Series::ours("S2: parallel", s2),
            Series::paper("S1: sequential", vec![(0.0, 249.0), (1.0, 89.0)]),
            Series::paper("S2: parallel", vec![(0.0, 215.0), (1.0, 95.0)]),
        ],
    });
    outcome.note(
        "DAG-a is NT1 → NT2 beside NT3, then NT4. Its fork has no NT before it, and a DAG of the \
         product has one entry, so it is submitted with an entry of one cycle that both forms share; \
         that cycle, and in S2 the pass of the scheduler that follows it, is taken off again: they are \
         no part of the paper's DAG.",
    );
    Ok(outcome)
}

/// Of the graph with an entry, less what the entry adds.
fn latency(parameters: &Parameters, d: u64, form: FormPreference) -> Result<f64> {
    let rate = Bandwidth::from_gbps(64);
    let mut nts = vec![nt("entry", 1, rate)?];
    for name in ["nt1", "nt2", "nt3", "nt4"] {
        nts.push(nt(name, d, rate)?);
    }
    let chains: Vec<&[&str]> = vec![
        &["entry"],
        &["entry", "nt1", "nt2", "nt3", "nt4"],
        &["nt1", "nt2"],
        &["nt3"],
        &["nt4"],
    ];
    let setup = Setup { card: parameters.card.clone(), options: Options::default(), nts, chains };
    let mut lab = Lab::new(&setup)?;
    let dag = lab.dag("lab", "dag-a", dag_a(form)?)?;
    let mapping = dag.mapping.as_ref().context("it is mapped")?;
    let pass = parameters.card.scheduler_pass.get();
    let entry = if mapping.stages.len() > 1 { 1 + pass } else { 1 };
    Ok((lab.latency_alone(&dag)? - entry) as f64)
}

/// DAG-a of Fig. 4 behind an entry.
pub(super) fn dag_a(form: FormPreference) -> Result<DagSpec> {
    let names = ["entry", "nt1", "nt2", "nt3", "nt4"];
    let node = |name: &str| -> Result<Node> {
        Ok(Node { id: NodeId::new(name)?, nt: NtTypeId::new(name)? })
    };
    let edges = [(0, 1), (1, 2), (0, 3), (2, 4), (3, 4)];
    let edge = |(from, to): (usize, usize)| -> Result<Edge> {
        Ok(Edge { from: NodeId::new(names[from])?, to: NodeId::new(names[to])? })
    };
    Ok(DagSpec {
        nodes: names.map(node).into_iter().collect::<Result<_>>()?,
        edges: edges.map(edge).into_iter().collect::<Result<_>>()?,
        bandwidth: Bandwidth::from_gbps(10),
        form,
    })
}
