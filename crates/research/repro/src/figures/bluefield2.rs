//! The packet mixes of the BlueField-2 study, with offload and without.
//!
//! With offload a mix goes through the card's switch, an NT in front of which the simulated card has the pace
//! of a BlueField-2. Without, every packet goes to the card's own processors, and the study states what their
//! kernel handles: that is an NT of this many bits.

use std::num::NonZeroU32;

use anyhow::{Context, Result};
use snic_card_sim::{Header, IMIX, PlaneOptions, RegionPace, Sizes, TrafficSource};
use snic_domain::{Bandwidth, CardProfile, DagUid, NtType};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series, number};
use crate::parameters::{
    BLUEFIELD2_GAP_BYTES, BLUEFIELD2_JUMBO_BYTES, BLUEFIELD2_KERNEL_MBPS, BLUEFIELD2_LINE_GBPS,
    BLUEFIELD2_LOADS_PERCENT, BLUEFIELD2_MPPS, BLUEFIELD2_SMALL_BYTES, BLUEFIELD2_SWITCH_GBPS,
    Parameters, TIME_US, WARM_UP_US,
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
    /// Percentage of packets that the study loses with offload (5); no number where it prints none.
    const fn printed_loss(self) -> Option<f64> {
        match self {
            Self::Udp => Some(30.0),
            Self::Syn => Some(40.0),
            Self::Jumbo | Self::Imix => None,
        }
    }

    /// Bytes of a packet on average.
    fn mean_bytes(self, parameters: &Parameters) -> f64 {
        match self {
            Self::Udp | Self::Syn => parameters.value(&BLUEFIELD2_SMALL_BYTES),
            Self::Jumbo => parameters.value(&BLUEFIELD2_JUMBO_BYTES),
            Self::Imix => {
                let packets: u32 = IMIX.iter().map(|(_, often)| often).sum();
                let bytes: u32 = IMIX.iter().map(|(bytes, often)| bytes * often).sum();
                f64::from(bytes) / f64::from(packets)
            }
        }
    }

    /// Rate of the packets' bytes at a load of the line, which has a gap and a preamble for each.
    fn rate(self, parameters: &Parameters, percent: f64) -> Bandwidth {
        let bytes = self.mean_bytes(parameters);
        let share = bytes / (bytes + parameters.value(&BLUEFIELD2_GAP_BYTES));
        let line = parameters.value(&BLUEFIELD2_LINE_GBPS) * 1e9;
        Bandwidth::from_bps((line * percent / 100.0 * share) as u64)
    }

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
    /// The rules of the switch in hardware.
    Offload,
    /// The card's processors.
    Kernel,
}

/// Percentage points by which a loss may differ from a printed one, which is a round number.
const LOSS_MARGIN: f64 = 5.0;

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
        if let Some(loss) = mix.printed_loss() {
            let what = format!("{name}, with offload: largest loss of all loads");
            let printed =
                Expected::predicted(Origin::Published, ExpectedBound::Margin(loss, LOSS_MARGIN));
            outcome.check(what, "%", printed, 100.0 - least);
        }
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
         frames, without it mostly less than 1 %; and its two losses of small packets, 30 % of UDP and 40 % of \
         SYN. What its kernel handles is the study's own 0.042 GB/s (6), for which it names no size; that it is \
         the same for all sizes is assumed. The card with offload is a BlueField-2 by what is printed of it: a \
         line of 100 Gbit/s, on which each frame takes 20 bytes more, so that small frames come at 149 million \
         a second, and an adapter that takes 215 million. So it predicts no loss, and both losses are red: \
         they are no limit that NVIDIA prints of the card. Sender and receiver of the study are two such cards in \
         one host, with 8 threads for all of TRex, and it does not say where packets are lost; a limit of 104 \
         million UDP and of 89 million SYN packets would give its numbers (bluefield2.mpps sets it), 13 and 11 million for each of those threads, but that \
         would be fitted to the number that it is held against.",
    );
    Ok(outcome)
}

fn delivered(parameters: &Parameters, path: Path, mix: Mix, percent: f64) -> Result<f64> {
    let (card, options) = bluefield2(parameters);
    let (name, request, nts) = on_path(parameters, path)?;
    let chain = [name];
    let setup = Setup { card, options, nts, chains: vec![&chain[..]] };
    let mut testbed = Testbed::new(&setup)?;
    let dag = testbed.chain("mix", &chain, request)?;
    testbed.send(mix.source(parameters, dag.uid, mix.rate(parameters, percent)))?;
    // With little traffic, the contents of the packet store leave long after they arrived.
    let (warm_up, time) = (parameters.micros(&WARM_UP_US) * 5, parameters.micros(&TIME_US));
    let measured = testbed.measure(warm_up, time)?;
    let dag = measured.dag(dag.uid.row()).context("packets came in")?;
    Ok(dag.served.gbps_f64() / dag.intended.gbps_f64())
}

/// A card with the line of a BlueField-2, in front of whose switch packets have its pace: it has neither a
/// FPGA's credits nor a descriptor beside each packet.
fn bluefield2(parameters: &Parameters) -> (CardProfile, PlaneOptions) {
    let line = parameters.gbps(&BLUEFIELD2_LINE_GBPS);
    let card =
        CardProfile { ingress: line, egress: line, region_pass: None, ..parameters.card.clone() };
    let at_least_one = |number: u64| {
        NonZeroU32::new(u32::try_from(number).unwrap_or(u32::MAX)).unwrap_or(NonZeroU32::MIN)
    };
    let region_pace = RegionPace {
        packets: at_least_one(parameters.count(&BLUEFIELD2_MPPS)),
        cycles: at_least_one(card.clock_hz / 1_000_000),
    };
    let options = PlaneOptions { region_pace, descriptor_beats: 0, ..parameters.without_credits() };
    (card, options)
}

/// The NT that processes packets, and the bandwidth requested of it.
fn on_path(parameters: &Parameters, path: Path) -> Result<(&'static str, Bandwidth, Vec<NtType>)> {
    if path == Path::Offload {
        let line = parameters.gbps(&BLUEFIELD2_LINE_GBPS);
        let moves = parameters.gbps(&BLUEFIELD2_SWITCH_GBPS);
        return Ok(("switch", line, vec![nt("switch", 1, moves)?]));
    }
    let handles = (parameters.value(&BLUEFIELD2_KERNEL_MBPS) * 1e6) as u64;
    let handles = Bandwidth::from_bps(handles);
    Ok(("kernel", handles, vec![nt("kernel", 1, handles)?]))
}
