//! The thesis's VPC hosts: firewall, NAT and AES on a host with Open vSwitch, on the host itself and on the card.

use anyhow::{Context, Result};
use snic_card_sim::{PlaneOptions, Sizes, TrafficSource};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{Parameters, TIME_US, VPC_BYTES, WARM_UP_US, gbps};
use crate::testbed::{NtSequence, Setup, Testbed};

/// Gbit/s by packet size (`data_ovs`): vanilla OVS, OVS with DPDK, the same with the NFs on the host, and with them on the card.
const PAPER: [[f64; 4]; 4] = [
    [0.059, 0.314, 0.297, 0.311],
    [0.164, 0.784, 0.737, 0.781],
    [0.354, 1.66, 1.68, 1.67],
    [0.741, 3.31, 3.22, 3.25],
];
const SYSTEMS: [&str; 4] = ["OVS", "OVS, DPDK", "OVS, DPDK, NFs on host", "OVS, DPDK, NFs on card"];
const CHAIN: NtSequence<'static> = &["firewall", "nat", "aes"];
/// Request of the chain, in Gbit/s, or less.
const PLACED_GBPS: f64 = 0.3;
const DPDK: usize = 1;
const ON_HOST: usize = 2;
const ON_CARD: usize = 3;

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let sizes = parameters.all(&VPC_BYTES);
    let mut ours = Vec::new();
    let mut in_order = 0_u32;
    for (bytes, paper) in sizes.iter().zip(PAPER) {
        let served = served(parameters, *bytes as u32, paper[DPDK])?;
        let cell = |kind: fn(Origin, ExpectedBound) -> Expected, value| {
            kind(Origin::Data, ExpectedBound::Share(value, 0.05))
        };
        let what = format!("{bytes} B: with the NFs on the card");
        outcome.check(what, "Gbit/s", cell(Expected::predicted, paper[ON_CARD]), served);
        for system in [0, DPDK, ON_HOST] {
            let what = format!("{bytes} B: {}", SYSTEMS[system]);
            outcome.check(what, "Gbit/s", Expected::entered(paper[system]), paper[system]);
        }
        let same = (served > paper[ON_HOST]) == (paper[ON_CARD] > paper[ON_HOST]);
        in_order += u32::from(same);
        ours.push((*bytes, served));
    }
    let all = Expected::predicted(Origin::Data, ExpectedBound::Exact(PAPER.len() as f64));
    let what = "Sizes for which card and host are in the authors' order";
    outcome.check(what, "sizes", all, in_order.into());
    let points = |system: usize| {
        sizes.iter().zip(PAPER).map(|(bytes, row)| (*bytes, row[system])).collect::<Vec<_>>()
    };
    let mut series = vec![Series::ours(SYSTEMS[ON_CARD], ours)];
    series.extend((0..SYSTEMS.len()).map(|at| Series::paper(SYSTEMS[at], points(at))));
    outcome.plot =
        Some(Plot { x: "Packet size (B)", y: "Throughput (Gbit/s)", axis: Axis::Doubling, series });
    outcome.note(
        "A part of the thesis that the FPGA paper leaves out. What a host forwards is an input: with DPDK 0.3 to 3.3 Gbit/s, by the size of its packets. \
         Predicted is what the card adds to that, the firewall, NAT and AES of the catalogue in one region, with the host's rate for its load: nothing, for \
         its slowest NT serves nine times as much. With 256 B the authors' host is faster with the NFs than without; that, and \
         the 1 to 2 % that they lose by the card at most, is not modelled.",
    );
    Ok(outcome)
}

/// Throughput of the card with packets of this size at the host's rate.
fn served(parameters: &Parameters, bytes: u32, load: f64) -> Result<f64> {
    let (card, nts) = (parameters.card.clone(), parameters.nt_types());
    // The request says where the chain is placed, and does not limit it.
    let options = PlaneOptions { rate_limits: false, ..parameters.options() };
    let mut testbed = Testbed::new(&Setup { card, options, nts, chains: vec![CHAIN] })?;
    let dag = testbed.chain("vpc", CHAIN, gbps(load.min(PLACED_GBPS)))?;
    testbed.send(TrafficSource::of_dag(dag.uid, gbps(load), Sizes::Fixed(bytes)))?;
    let (warm_up, time) = (parameters.micros(&WARM_UP_US), parameters.micros(&TIME_US));
    let measured = testbed.measure(warm_up, time)?;
    let dag = measured.dag(dag.uid.row()).context("packets went through")?;
    Ok(dag.served.gbps_f64())
}
