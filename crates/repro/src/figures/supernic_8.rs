//! Fig. 8: a chain of dummy NTs in one region, cut in two, and with an NT a region as on PANIC.
//!
//! How a chain is laid out follows from the bitstreams that exist: with one for the whole chain
//! the planner takes one region, with the halves it cuts once, with single NTs it cuts everywhere.

use anyhow::Result;
use snic_card_sim::Options;
use snic_domain::Bandwidth;

use crate::lab::{Chain, Lab, Setup, nt};
use crate::outcome::{Axis, Bound, Origin, Outcome, Plot, Series};
use crate::parameters::Parameters;

/// The thesis's totals leave no other choice than NTs of 16 and 32 cycles in turn.
const NTS: [(&str, u64); 7] =
    [("d1", 16), ("d2", 32), ("d3", 16), ("d4", 32), ("d5", 16), ("d6", 32), ("d7", 16)];
/// The totals, for 2 to 7 NTs, in ns.
const SINGLE: [f64; 6] = [388.0, 452.0, 580.0, 644.0, 772.0, 836.0];
/// What another pass of the scheduler costs, in ns.
const PASS: f64 = 64.0;

pub(super) fn run(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let names = NTS.map(|(name, _)| name);
    let mut series =
        ["Single chain", "Half chains", "PANIC"].map(|name| (name, Vec::new(), Vec::new()));
    for (count, single) in (2..=NTS.len()).zip(SINGLE) {
        let chain = &names[..count];
        let (head, tail) = chain.split_at(count / 2);
        let each: Vec<Chain<'_>> = chain.chunks(1).collect();
        let layouts = [vec![chain], vec![head, tail], each];
        let passes = [0, 1, count - 1];
        for ((layout, extra), (name, ours, paper)) in
            layouts.into_iter().zip(passes).zip(&mut series)
        {
            let nanos = latency(parameters, chain, layout)?;
            let expected = single + PASS * extra as f64;
            let what = format!("{name}, {count} NTs");
            outcome.check(what, "ns", (Origin::Derived, Bound::Exact(expected)), nanos);
            ours.push((count as f64, nanos / 1_000.0));
            paper.push((count as f64, expected / 1_000.0));
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
         64 bytes on an empty card.",
    );
    Ok(outcome)
}

fn latency(parameters: &Parameters, chain: Chain<'_>, layout: Vec<Chain<'_>>) -> Result<f64> {
    let full = Bandwidth::from_gbps(100);
    let nts = NTS.iter().map(|&(name, latency)| nt(name, latency, full)).collect::<Result<_>>()?;
    let card = parameters.card.clone();
    let nanos_per_cycle = 1e9 / card.clock_hz as f64;
    let mut lab = Lab::new(&Setup { card, options: Options::default(), nts, chains: layout })?;
    let dag = lab.chain("dummies", chain, Bandwidth::from_gbps(10))?;
    Ok(lab.latency_alone(&dag)? as f64 * nanos_per_cycle)
}
