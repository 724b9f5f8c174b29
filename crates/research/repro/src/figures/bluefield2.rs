//! The packet mixes of the BlueField-2 study, with offload and without.
//!
//! With offload a mix goes through the simulated card. Without, every packet goes to the card's own
//! processors, and the study states what their kernel handles: that is an NT of this many bits.

use anyhow::{Context, Result};
use snic_card_sim::{Header, Sizes, TrafficSource};
use snic_domain::{Bandwidth, DagUid, NtType};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series, number};
use crate::parameters::{
    BLUEFIELD2_JUMBO_BYTES, BLUEFIELD2_KERNEL_MBPS, BLUEFIELD2_LOADS_PERCENT,
    BLUEFIELD2_SMALL_BYTES, Parameters, TIME_US, WARM_UP_US,
};
use crate::testbed::{Setup, Testbed, nt};

/// One of the four mixes, and its figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mix {
    Udp,
    Syn,
    Jumbo,
    Imix,
}

const MIXES: [(Mix, &str); 4] = [
    (Mix::Udp, "UDP, small (Fig. 3)"),
    (Mix::Syn, "SYN (Fig. 4)"),
    (Mix::Jumbo, "UDP, jumbo (Fig. 5)"),
    (Mix::Imix, "IMIX (Fig. 6)"),
];

impl Mix {
    fn source(self, parameters: &Parameters, dag: DagUid, rate: Bandwidth) -> TrafficSource {
        let small = parameters.count(&BLUEFIELD2_SMALL_BYTES) as u32;
        let jumbo = parameters.count(&BLUEFIELD2_JUMBO_BYTES) as u32;
        match self {
            Self::Udp => TrafficSource::of_dag(dag, rate, Sizes::Fixed(small)),
            Self::Jumbo => TrafficSource::of_dag(dag, rate, Sizes::Fixed(jumbo)),
            Self::Imix => TrafficSource::of_dag(dag, rate, Sizes::imix()),
            Self::Syn => {
                TrafficSource::syn_flood(Header { dag: Some(dag), ..Header::default() }, rate)
            }
        }
    }
}

/// Processor of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    /// The switch's rules in hardware: a firewall at line rate.
    Offload,
    /// The card's processors.
    Kernel,
}

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let (mut series, mut without) = (Vec::new(), Vec::new());
    let loads = parameters.all(&BLUEFIELD2_LOADS_PERCENT);
    for (mix, name) in MIXES {
        let mut least = f64::INFINITY;
        for path in [Path::Offload, Path::Kernel] {
            let label = if path == Path::Offload { "with offload" } else { "without" };
            let mut points = Vec::new();
            for &load in loads {
                let share = delivered(parameters, path, mix, load)? * 100.0;
                points.push((load, share));
                match path {
                    Path::Offload => least = least.min(share),
                    Path::Kernel => without.push(share),
                }
            }
            let cells = points.iter().map(|(_, share)| number(*share));
            outcome.table.rows.push([vec![name.into(), label.into()], cells.collect()].concat());
            series.push(Series::ours(format!("{name}, {label}"), points));
        }
        let most_of_it = ExpectedBound::AtLeast(if mix == Mix::Jumbo { 99.0 } else { 50.0 });
        let expected = Expected::predicted(Origin::Published, most_of_it);
        outcome.check(
            format!("{name}, with offload: least of all loads"),
            "% delivered",
            expected,
            least,
        );
    }
    let few = without.iter().filter(|share| **share < 1.0).count() as f64;
    let majority = Expected::predicted(Origin::Published, ExpectedBound::AtLeast(50.0));
    let what = "Without offload: loads and mixes with less than 1 % delivered";
    outcome.check(what, "%", majority, few / without.len() as f64 * 100.0);
    let columns = loads.iter().map(|load| format!("{load} % of line rate: % delivered"));
    outcome.table.columns = ["Mix".into(), "Path".into()].into_iter().chain(columns).collect();
    outcome.plot =
        Some(Plot { x: "Load (% of line rate)", y: "Delivered (%)", axis: Axis::Linear, series });
    outcome.note(
        "The study's four mixes at four loads of 100 Gbit/s, its plots without numbers. Held against it is \
         what its text says of all of them: with offload more than half arrives and next to all jumbo \
         frames, without it mostly less than 1 %. What its kernel handles is the study's own 0.042 GB/s \
         (6), for which it names no size; that it is the same for all sizes is assumed. The card with \
         offload is the simulated one and no BlueField-2: of small packets it delivers what its region's \
         port takes, where the study loses 30 % of UDP and 40 % of SYN packets.",
    );
    Ok(outcome)
}

fn delivered(parameters: &Parameters, path: Path, mix: Mix, percent: f64) -> Result<f64> {
    let (card, options) = (parameters.card.clone(), parameters.options());
    let rate = Bandwidth::from_bps((card.ingress.get() as f64 * percent / 100.0) as u64);
    let (name, request, nts) = on_path(parameters, path)?;
    let chain = [name];
    let setup = Setup { card, options, nts, chains: vec![&chain[..]] };
    let mut testbed = Testbed::new(&setup)?;
    let dag = testbed.chain("mix", &chain, request)?;
    testbed.send(mix.source(parameters, dag.uid, rate))?;
    // With little traffic, the contents of the packet store leave long after they arrived.
    let (warm_up, time) = (parameters.micros(&WARM_UP_US) * 5, parameters.micros(&TIME_US));
    let measured = testbed.measure(warm_up, time)?;
    let dag = measured.dag(dag.uid.row()).context("packets came in")?;
    Ok(dag.served.gbps_f64() / dag.intended.gbps_f64())
}

/// The NT that processes packets, and the bandwidth requested of it.
fn on_path(parameters: &Parameters, path: Path) -> Result<(&'static str, Bandwidth, Vec<NtType>)> {
    if path == Path::Offload {
        return Ok(("firewall", parameters.card.ingress, parameters.nt_types()));
    }
    let handles = (parameters.value(&BLUEFIELD2_KERNEL_MBPS) * 1e6) as u64;
    let handles = Bandwidth::from_bps(handles);
    Ok(("kernel", handles, vec![nt("kernel", 1, handles)?]))
}
