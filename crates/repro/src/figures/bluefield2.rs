//! The packet mixes of the BlueField-2 study, through the simulated card.

use std::time::Duration;

use anyhow::{Context, Result};
use snic_card_sim::{FRAME_BYTES_MAX, Header, Options, Sizes, TrafficSource};
use snic_domain::{Bandwidth, DagUid};

use crate::lab::{Chain, Lab, Setup};
use crate::outcome::{Axis, Bound, Origin, Outcome, Plot, Series, number};
use crate::parameters::Parameters;

/// Shares of line rate that the study sends, in percent.
const LOADS: [u64; 4] = [25, 50, 75, 100];
/// What meets the card: a firewall, as the study's switch rules.
const NTS: Chain<'static> = &["firewall"];

type Mix = fn(DagUid, Bandwidth) -> TrafficSource;

fn mixes() -> [(&'static str, Mix); 4] {
    let jumbo = |dag, rate| TrafficSource::of_dag(dag, rate, Sizes::Fixed(FRAME_BYTES_MAX));
    let syn =
        |dag, rate| TrafficSource::syn_flood(Header { dag: Some(dag), ..Header::default() }, rate);
    [
        ("UDP 64 B", |dag, rate| TrafficSource::of_dag(dag, rate, Sizes::Fixed(64))),
        ("SYN 64 B", syn),
        ("IMIX", |dag, rate| TrafficSource::of_dag(dag, rate, Sizes::imix())),
        ("UDP 9216 B", jumbo),
    ]
}

pub(super) fn run(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut series = Vec::new();
    let line = parameters.card.ingress.get();
    // As many packets of 64 bytes as a region takes.
    let port = Options::default().region_packets_per_second.get() as f64 * 512.0;
    for (name, mix) in mixes() {
        let mut points = Vec::new();
        let mut cells = vec![name.to_string()];
        for load in LOADS {
            let rate = Bandwidth::from_bps(line / 100 * load);
            let share = delivered(parameters, mix, rate)? * 100.0;
            let small = name.ends_with(" 64 B");
            let fits = rate.get() as f64 <= port || !small;
            let expected = if fits { 100.0 } else { port / rate.get() as f64 * 100.0 };
            let bound = (Origin::Derived, Bound::Share(expected, 0.02));
            outcome.check(format!("{name} at {load} % of line rate"), "% delivered", bound, share);
            points.push((load as f64, share));
            cells.push(number(share));
        }
        series.push(Series::ours(name, points));
        outcome.table.rows.push(cells);
    }
    let loads = LOADS.iter().map(|load| format!("{load} % of line rate: % delivered"));
    outcome.table.columns = std::iter::once("Mix".to_string()).chain(loads).collect();
    outcome.plot =
        Some(Plot { x: "Load (% of line rate)", y: "Delivered (%)", axis: Axis::Linear, series });
    outcome.note(
        "The study's four mixes at four loads of 100 Gbit/s. What is expected is the simulated card's \
         own: everything, but for packets of 64 bytes beyond the 100 million a second that a region takes. For \
         comparison, the study's BlueField-2 with offload loses about 30 % of small UDP packets and 40 % \
         of SYN packets, next to nothing of jumbo frames, and 99.8 % where its kernel handles packets.",
    );
    Ok(outcome)
}

fn delivered(parameters: &Parameters, mix: Mix, rate: Bandwidth) -> Result<f64> {
    let (card, nts) = (parameters.card.clone(), parameters.catalogue.nt_types.clone());
    let full = card.ingress;
    let setup = Setup { card, options: Options::default(), nts, chains: vec![NTS] };
    let mut lab = Lab::new(&setup)?;
    let dag = lab.chain("mix", NTS, full)?;
    lab.send(mix(dag.uid, rate))?;
    let measured = lab.measure(Duration::from_millis(1), Duration::from_millis(2))?;
    let dag = measured.dag(dag.uid.row()).context("packets came in")?;
    Ok(dag.served.gbps_f64() / dag.intended.gbps_f64())
}
