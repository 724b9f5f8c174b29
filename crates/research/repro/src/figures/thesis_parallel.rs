//! The thesis's NTs side by side: 2 to 7 dummy NTs with a region each, in a row as on PANIC, all at once, and in pairs.

use anyhow::{Context, Result};
use snic_domain::limits::FORK_BRANCHES_MAX;
use snic_domain::{DagSpec, Edge, FormPreference, Node, NodeId, NtTypeId};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{ENTRY_CYCLES, FIG8_CYCLES, Parameters, REQUEST_GBPS};
use crate::testbed::{NtSequence, Setup, Testbed, nt};

/// Latencies of 2 to 7 NTs in µs (`data_nt_parallel`): PANIC, all side by side, half of them.
const PAPER: [[f64; 3]; 6] = [
    [0.452, 0.260, 0.260],
    [0.580, 0.260, 0.468],
    [0.772, 0.260, 0.596],
    [0.900, 0.260, 0.788],
    [1.092, 0.260, 0.804],
    [1.220, 0.260, 0.932],
];
const LINES: [&str; 3] = ["PANIC", "All side by side", "Half side by side"];
const HALF: usize = 2;
const ENTRY: &str = "entry";
const NAMES: [&str; 7] = ["d1", "d2", "d3", "d4", "d5", "d6", "d7"];

/// Widths of the stages of so many NTs, by line: what the data's passes of the scheduler leave.
fn stages(line: usize, count: usize) -> Vec<usize> {
    match line {
        0 => vec![1; count],
        1 => vec![count],
        _ => {
            let pairs: &[usize] = if count < 6 { &[2] } else { &[2, 1, 2] };
            let rest = count - pairs.iter().sum::<usize>();
            [pairs, &vec![1; rest]].concat()
        }
    }
}

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let mut series = LINES.map(|_| (Vec::new(), Vec::new()));
    let mut in_order = 0_u32;
    for (count, row) in (2..=NAMES.len()).zip(PAPER) {
        let mut ours_of = [f64::INFINITY; LINES.len()];
        for (line, paper) in row.into_iter().enumerate() {
            let stages = stages(line, count);
            let is_refused = stages.iter().any(|width| *width > FORK_BRANCHES_MAX);
            let nanos = if is_refused { f64::INFINITY } else { latency(parameters, &stages)? };
            let ours = nanos / 1_000.0;
            let bound = ExpectedBound::Share(paper, 0.01);
            let kind = if line == HALF { Expected::fitted } else { Expected::predicted };
            let expected = kind(Origin::Data, bound);
            ours_of[line] = ours;
            outcome.check(format!("{}, {count} NTs", LINES[line]), "µs", expected, ours);
            series[line].0.extend(ours.is_finite().then_some((count as f64, ours)));
            series[line].1.push((count as f64, paper));
        }
        let [panic, all, half] = ours_of;
        in_order += u32::from(half < panic && (all <= half || !all.is_finite()));
    }
    let orders = Expected::predicted(Origin::Data, ExpectedBound::Exact(PAPER.len() as f64));
    let what = "Numbers of NTs for which PANIC takes longest and all at once least, where they are allowed";
    outcome.check(what, "numbers", orders, in_order.into());
    let lines = LINES.into_iter().zip(series);
    let series = lines
        .flat_map(|(name, (ours, paper))| [Series::ours(name, ours), Series::paper(name, paper)]);
    outcome.plot =
        Some(Plot { x: "NTs", y: "Latency (µs)", axis: Axis::Linear, series: series.collect() });
    outcome.note(
        "The FPGA paper has only the chains of this (its Fig. 8). The NTs are those of Fig. 8, of 16 and 32 cycles in turn, and NTs side by side take as \
         long as their stage. The data's totals say how many stages there are: all at once take one, and of half of them side by side one pair \
         makes one, from 6 NTs on two pairs make two. So that line is fitted. A pair that another stage follows costs the authors 4 cycles more than a stage: what a \
         comment in the thesis's source has for the synchronisation buffer. With it (plane.sync_cycles) every cell up to 5 NTs is exact.",
    );
    outcome.note(
        "Half of 6 and 7 NTs stay outside, by 14 and 12 %: the planner leaves only one of the two pairs side by side. Without cuts, which is how it compares, \
         the other saves exactly the passes that it costs, and then it is put one after the other; but here each NT has a region of its own, so \
         that costs another pass. With the second pair as the second stage, of 32 cycles, it is the first pair that ties, and the totals are the same.",
    );
    outcome.note(
        "A fork of the product's card has four branches at most: the controller refuses 5 to 7 NTs at once, and these three points \
         stay outside; the authors' splitter has no such limit. As with Fig. 11, a DAG has an entry of one cycle, which is taken off \
         again with the pass that follows it.",
    );
    Ok(outcome)
}

fn latency(parameters: &Parameters, stages: &[usize]) -> Result<f64> {
    let (full, asked) = (parameters.card.ingress, parameters.gbps(&REQUEST_GBPS));
    let (own, cycles) = (parameters.count(&ENTRY_CYCLES), parameters.all(&FIG8_CYCLES));
    let mut nts = vec![nt(ENTRY, own, full)?];
    let mut names = NAMES.iter();
    for (width, cycles) in stages.iter().zip(cycles) {
        for name in names.by_ref().take(*width) {
            nts.push(nt(name, *cycles as u64, full)?);
        }
    }
    let mut chains: Vec<NtSequence<'_>> = NAMES.chunks(1).take(nts.len() - 1).collect();
    chains.push(&[ENTRY]);
    let (card, options) = (parameters.card.clone(), parameters.options());
    let mut testbed = Testbed::new(&Setup { card, options, nts, chains })?;
    let mut spec = graph(stages)?;
    spec.bandwidth = asked;
    let dag = testbed.dag("lab", "dummies", spec)?;
    let mapping = dag.mapping.as_ref().context("it is mapped")?;
    let pass = parameters.card.scheduler_pass.get();
    let entry = if mapping.stages.len() > 1 { own + pass } else { own };
    Ok((testbed.latency_alone(&dag)? - entry) as f64 * parameters.nanos_per_cycle())
}

/// An entry, and behind it stages of so many NTs, each of which all of the next follow.
fn graph(stages: &[usize]) -> Result<DagSpec> {
    let entry = NtTypeId::new(ENTRY)?;
    let mut spec = DagSpec::chain(&[entry], snic_domain::Bandwidth::from_gbps(1));
    spec.form = FormPreference::Parallel;
    let mut before: Vec<NodeId> = spec.nodes.iter().map(|node| node.id.clone()).collect();
    let mut names = NAMES.iter();
    for width in stages {
        let mut here = Vec::new();
        for name in names.by_ref().take(*width) {
            let id = NodeId::new(name)?;
            spec.nodes.push(Node::new(id.clone(), NtTypeId::new(name)?));
            let edges = before.iter().map(|from| Edge { from: from.clone(), to: id.clone() });
            spec.edges.extend(edges);
            here.push(id);
        }
        before = here;
    }
    Ok(spec)
}
