//! Fig. 11: DAG-a of Fig. 4, flattened into one chain (S1) and with its branches side by side (S2).

use anyhow::{Context, Result};
use snic_domain::{Bandwidth, DagSpec, Edge, FormPreference, Node, NodeId, NtTypeId, PacketSizes};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{ENTRY_CYCLES, FIG9_NT_GBPS, FIG11_CYCLES, Parameters, REQUEST_GBPS};
use crate::testbed::{Setup, Testbed, nt};

/// Cycles of S1 and S2 with NTs of 50 and of 10, by the figure's bars.
const PAPER: [(u64, f64, f64); 2] = [(50, 249.0, 215.0), (10, 89.0, 95.0)];

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let (mut s1, mut s2, mut s3, mut names) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let points = parameters.all(&FIG11_CYCLES).iter().zip(PAPER);
    for (at, (cycles, (d, sequential, parallel))) in points.enumerate() {
        let cycles = *cycles as u64;
        let first = latency(parameters, cycles, FormPreference::Sequential)?;
        let second = latency(parameters, cycles, FormPreference::Parallel)?;
        s1.push((at as f64, first));
        s2.push((at as f64, second));
        let third = with_instances(parameters, cycles)?;
        s3.push((at as f64, third));
        let same = Expected::predicted(Origin::Shape, ExpectedBound::Exact(0.0));
        outcome.check(format!("S3 − S2, NTs of {d} cycles"), "cycles", same, third - second);
        names.push(format!("{cycles} cycles"));
        let bar = |value| Expected::predicted(Origin::Plot, ExpectedBound::Share(value, 0.1));
        outcome.check(format!("S1, NTs of {d} cycles"), "cycles", bar(sequential), first);
        outcome.check(format!("S2, NTs of {d} cycles"), "cycles", bar(parallel), second);
        let order = if d == 50 { ExpectedBound::AtMost(0.0) } else { ExpectedBound::AtLeast(0.0) };
        let what = format!("S2 − S1, NTs of {d} cycles: the order of the two");
        outcome.check(
            what,
            "cycles",
            Expected::predicted(Origin::Published, order),
            second - first,
        );
    }
    let paper = |of: fn(&(u64, f64, f64)) -> f64| {
        PAPER.iter().enumerate().map(|(at, point)| (at as f64, of(point))).collect()
    };
    outcome.plot = Some(Plot {
        x: "NT latency",
        y: "Latency (cycles)",
        axis: Axis::Categories(names),
        series: vec![
            Series::ours("S1: sequential", s1),
            Series::ours("S2: parallel", s2),
            Series::ours("S3: with second instances", s3),
            Series::paper("S1: sequential", paper(|point| point.1)),
            Series::paper("S2: parallel", paper(|point| point.2)),
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

/// Latency of the graph with an entry, less what the entry adds.
fn latency(parameters: &Parameters, d: u64, form: FormPreference) -> Result<f64> {
    let mut testbed = testbed(parameters, d)?;
    alone(parameters, &mut testbed, form, parameters.gbps(&REQUEST_GBPS))
}

/// The same in S3: DAG-b is on the card, and both request so much that NT2 and NT4 need second
/// instances.
fn with_instances(parameters: &Parameters, d: u64) -> Result<f64> {
    let mut testbed = testbed(parameters, d)?;
    let full = parameters.gbps(&FIG9_NT_GBPS);
    testbed.chain("dag-b", &["nt2", "nt4"], full)?;
    alone(parameters, &mut testbed, FormPreference::Parallel, full)
}

fn testbed(parameters: &Parameters, d: u64) -> Result<Testbed> {
    let (rate, own) = (parameters.gbps(&FIG9_NT_GBPS), parameters.count(&ENTRY_CYCLES));
    let mut nts = vec![nt("entry", own, rate)?];
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
    let (card, options) = (parameters.core(), parameters.options());
    Testbed::new(&Setup { card, options, nts, chains })
}

fn alone(
    parameters: &Parameters,
    testbed: &mut Testbed,
    form: FormPreference,
    request: Bandwidth,
) -> Result<f64> {
    let dag = testbed.dag("lab", "dag-a", dag_a(form, request)?)?;
    let mapping = dag.mapping.as_ref().context("it is mapped")?;
    let (own, pass) = (parameters.count(&ENTRY_CYCLES), parameters.card.scheduler_pass.get());
    let entry = if mapping.stages.len() > 1 { own + pass } else { own };
    Ok((testbed.latency_alone(&dag)? - entry) as f64)
}

/// DAG-a of Fig. 4 behind an entry.
pub(super) fn dag_a(form: FormPreference, bandwidth: Bandwidth) -> Result<DagSpec> {
    let names = ["entry", "nt1", "nt2", "nt3", "nt4"];
    let node =
        |name: &str| -> Result<Node> { Ok(Node::new(NodeId::new(name)?, NtTypeId::new(name)?)) };
    let edges = [(0, 1), (1, 2), (0, 3), (2, 4), (3, 4)];
    let edge = |(from, to): (usize, usize)| -> Result<Edge> {
        Ok(Edge { from: NodeId::new(names[from])?, to: NodeId::new(names[to])? })
    };
    Ok(DagSpec {
        nodes: names.map(node).into_iter().collect::<Result<_>>()?,
        edges: edges.map(edge).into_iter().collect::<Result<_>>()?,
        bandwidth,
        form,
        packet_sizes: PacketSizes::default(),
        trusted_tenants: Default::default(),
        card_affinity: Default::default(),
        latency_sensitive: false,
        refuse_idle_tasks: false,
        latency_bound: Default::default(),
        notes: Default::default(),
    })
}
