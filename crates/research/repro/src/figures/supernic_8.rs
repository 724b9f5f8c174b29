//! Fig. 8: a chain of dummy NTs in one region, cut in two, and with an NT a region as on PANIC.
//!
//! The layout of a chain follows from the bitstreams that exist: with one for the whole chain
//! the planner takes one region, with the halves it cuts once, with single NTs it cuts everywhere.

use anyhow::Result;

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{FIG8_CYCLES, Parameters, REQUEST_GBPS};
use crate::testbed::{NtSequence, Setup, Testbed, nt};

/// Latencies of 2 to 7 NTs in the order of `LINES`, in ns (`data_nt_chain`).
const DATA: [[f64; 3]; 6] = [
    [388.0, 452.0, 452.0],
    [452.0, 516.0, 580.0],
    [580.0, 644.0, 772.0],
    [644.0, 708.0, 900.0],
    [772.0, 836.0, 1_092.0],
    [836.0, 900.0, 1_220.0],
];
const NAMES: [&str; 7] = ["d1", "d2", "d3", "d4", "d5", "d6", "d7"];
const LINES: [&str; 3] = ["Single chain", "Half chains", "PANIC"];

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let mut series = LINES.map(|name| (name, Vec::new(), Vec::new()));
    for (count, data) in (2..=NAMES.len()).zip(DATA) {
        let chain = &NAMES[..count];
        let (head, tail) = chain.split_at(count / 2);
        let each: Vec<NtSequence<'_>> = chain.chunks(1).collect();
        let alone = latency(parameters, chain, vec![chain])?;
        let halves = latency(parameters, chain, vec![head, tail])?;
        let panic = latency(parameters, chain, each)?;
        for (at, (line, nanos)) in series.iter_mut().zip([alone, halves, panic]).enumerate() {
            let kind = if at == 0 { Expected::fitted } else { Expected::predicted };
            let expected = kind(Origin::Data, ExpectedBound::Exact(data[at]));
            outcome.check(format!("{}, {count} NTs", line.0), "ns", expected, nanos);
            line.1.push((count as f64, nanos / 1_000.0));
            line.2.push((count as f64, data[at] / 1_000.0));
        }
    }
    let lines = series
        .into_iter()
        .flat_map(|(name, ours, paper)| [Series::ours(name, ours), Series::paper(name, paper)]);
    outcome.plot = Some(Plot {
        x: "Chain length (NTs)",
        y: "Latency (µs)",
        axis: Axis::Linear,
        series: lines.collect(),
    });
    outcome.note(
        "The controller maps each chain: onto one region, onto two, or, as the paper's PANIC has it, \
         onto a crossbar port for each NT with a pass of the scheduler between any two. Packets of \
         64 bytes on an empty card. The paper prints no latency of its dummy NTs; 16 and 32 cycles in turn \
         are what the single chain's totals leave beside the core's 49 cycles, so that line is fitted. What \
         the other two take more than it is predicted: passes of the scheduler.",
    );
    Ok(outcome)
}

fn latency(
    parameters: &Parameters,
    chain: NtSequence<'_>,
    layout: Vec<NtSequence<'_>>,
) -> Result<f64> {
    let (full, asked) = (parameters.card.ingress, parameters.gbps(&REQUEST_GBPS));
    let cycles = parameters.all(&FIG8_CYCLES);
    let nts = NAMES.iter().zip(cycles).map(|(name, cycles)| nt(name, *cycles as u64, full));
    let nts = nts.collect::<Result<_>>()?;
    let (card, options) = (parameters.card.clone(), parameters.options());
    let mut testbed = Testbed::new(&Setup { card, options, nts, chains: layout })?;
    let dag = testbed.chain("dummies", chain, asked)?;
    Ok(testbed.latency_alone(&dag)? as f64 * parameters.nanos_per_cycle())
}
