//! Fig. 7: throughput of a dummy NT by packet size and initial credits.

use std::time::Duration;

use anyhow::{Context, Result};
use snic_card_sim::{Options, Sizes, TrafficSource};
use snic_domain::CardProfile;

use crate::lab::{Lab, Setup, nt};
use crate::outcome::{Axis, Bound, Origin, Outcome, Plot, Series};
use crate::parameters::Parameters;

const CREDITS: [u8; 4] = [1, 2, 4, 8];
/// Bytes, and Gbit/s with 1, 2, 4 and 8 credits.
const PAPER: [(u32, [f64; 4]); 5] = [
    (64, [11.0, 22.0, 41.0, 51.0]),
    (128, [23.0, 37.0, 60.0, 99.0]),
    (256, [46.0, 67.0, 108.0, 108.0]),
    (512, [77.0, 113.0, 113.0, 113.0]),
    (1_024, [116.0, 116.0, 116.0, 116.0]),
];
/// The dummy NT's: with one credit 64 bytes, 512 bits, at 11 Gbit/s are a packet every 11.6 cycles.
const LATENCY: u64 = 11;

pub(super) fn run(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut series = Vec::new();
    for (at, credits) in CREDITS.into_iter().enumerate() {
        let (mut ours, mut paper) = (Vec::new(), Vec::new());
        for (bytes, expected) in PAPER {
            let gbps = throughput(parameters, credits, bytes)?;
            let bound = (Origin::Derived, Bound::Share(expected[at], 0.15));
            outcome.check(format!("{credits} credits, {bytes} B"), "Gbit/s", bound, gbps);
            ours.push((f64::from(bytes), gbps));
            paper.push((f64::from(bytes), expected[at]));
        }
        let name = format!("Credits: {credits}");
        series.extend([Series::ours(&name, ours), Series::paper(name, paper)]);
    }
    outcome.plot =
        Some(Plot { x: "Packet size (B)", y: "Throughput (Gbit/s)", axis: Axis::Doubling, series });
    outcome.note(
        "Ports as wide as the data path, as in the paper's simulation. A packet and its descriptor cross \
         the region's port in one beat more than the packet has; a credit comes back when the NT is \
         done. So c credits let c packets through every 11 cycles, until the port is full.",
    );
    outcome.note(
        "Where that misses the paper, it is above it, where window and port are equally tight: the paper's \
         points there are close to c packets every 11 + (c − 1) · beats cycles, as if the window opened \
         anew only when it was used up. Nothing in the text says so, and a window that slides is what \
         reserving and returning credits packet by packet gives; so these numbers stay outside.",
    );
    Ok(outcome)
}

fn throughput(parameters: &Parameters, credits_initial: u8, bytes: u32) -> Result<f64> {
    let card = CardProfile { credits_initial, ..parameters.core() };
    let full = card.ingress;
    let setup = Setup {
        card,
        options: Options::default(),
        nts: vec![nt("dummy", LATENCY, full)?],
        chains: vec![&["dummy"]],
    };
    let mut lab = Lab::new(&setup)?;
    let dag = lab.chain("dummy", &["dummy"], full)?;
    lab.send(TrafficSource::of_dag(dag.uid, full, Sizes::Fixed(bytes)))?;
    let measured = lab.measure(Duration::from_micros(50), Duration::from_micros(400))?;
    let dag = measured.dag(dag.uid.row()).context("packets went through")?;
    Ok(dag.served.gbps_f64())
}
