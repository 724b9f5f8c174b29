//! Fig. 4: two DAGs that share NTs, executed in three ways; when each packet is done.
//!
//! ```text
//!   DAG-a:  ┌─► NT1 ─► NT2 ─┐           DAG-b:  NT2 ─► NT4
//!           └─► NT3 ────────┴─► NT4
//! ```

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use snic_card_sim::{PacketRecord, PlaneOptions, Sizes, TrafficSource};
use snic_controller::DagView;
use snic_domain::Bandwidth;

use super::supernic_9::{Scheme, schemes};
use super::supernic_11::dag_a;
use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{ENTRY_CYCLES, FIG4_PACKETS, FIG4_UNIT_CYCLES, PACKET_BYTES, Parameters};
use crate::testbed::{Setup, Testbed, nt};

/// The last packet of each DAG is done long before this many units.
const UNITS_MAX: u64 = 1_000;
/// Part of a time unit that the core and the scheduler may take.
const PASSES: f64 = 0.1;

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let (mut series, mut ends) = (Vec::new(), Vec::new());
    // Units that a packet of either DAG takes alone, and how often that of both comes out (4.2).
    for (scheme, paper) in schemes(parameters).iter().zip([(4.0, 2.0), (3.0, 2.0), (3.0, 2.0)]) {
        let name = scheme.name;
        let alone = Bench::new(parameters, scheme)?.alone()?;
        let units = |units| {
            Expected::predicted(Origin::Published, ExpectedBound::Between(units, units + PASSES))
        };
        outcome.check(
            format!("{name}: a packet of DAG-a alone"),
            "units",
            units(paper.0),
            alone[0],
        );
        outcome.check(
            format!("{name}: a packet of DAG-b alone"),
            "units",
            units(paper.1),
            alone[1],
        );
        let done = Bench::new(parameters, scheme)?.together()?;
        let last = done.iter().flatten().copied().fold(0.0, f64::max);
        ends.push(last);
        for (dag, done) in ["a", "b"].iter().zip(done) {
            let points = done.iter().enumerate().map(|(at, end)| (*end, (at + 1) as f64));
            series.push(Series::ours(format!("{name}, DAG-{dag}"), points.collect()));
        }
    }
    let [first, second, third] = ends[..] else { anyhow::bail!("three schemes") };
    let shape = |bound| Expected::predicted(Origin::Published, bound);
    let sooner = shape(ExpectedBound::AtMost(0.0));
    outcome.check("S2: the last packet, after S1's", "units", sooner, second - first);
    let less = shape(ExpectedBound::Between(0.5, 0.75));
    outcome.check("S3: the last packet, of S2's time", "", less, third / second);
    let (x, y) = ("Time (units)", "Packets done");
    outcome.plot = Some(Plot { x, y, axis: Axis::Linear, series });
    outcome.note(
        "A time unit is what an NT takes for a packet, many passes of the scheduler long. All packets are \
         there at once, credits and rates are off. DAG-a has an entry of one cycle, as in Fig. 11. The \
         paper's drawing names the order of packets and no time but the four and three units of DAG-a (4.2).",
    );
    Ok(outcome)
}

/// Both DAGs on a card.
struct Bench {
    testbed: Testbed,
    dags: [DagView; 2],
    packets: u64,
    bytes: Sizes,
    unit: u64,
    clock_hz: u64,
}

impl Bench {
    fn new(parameters: &Parameters, scheme: &Scheme) -> Result<Self> {
        let card = parameters.core();
        let (unit, bytes) = (parameters.count(&FIG4_UNIT_CYCLES), parameters.count(&PACKET_BYTES));
        // An NT that is busy with a packet for a unit, from its first bit to its last.
        let rate = Bandwidth::from_bps(bytes * 8 * card.clock_hz / unit);
        let mut nts = vec![nt("entry", parameters.count(&ENTRY_CYCLES), card.ingress)?];
        for name in ["nt1", "nt2", "nt3", "nt4"] {
            nts.push(nt(name, unit, rate)?);
        }
        let (options, clock_hz) = (parameters.without_credits(), card.clock_hz);
        let options = PlaneOptions { rate_limits: false, ..options };
        let chains = scheme.chains.clone();
        let mut testbed = Testbed::new(&Setup { card, options, nts, chains })?;
        let request = Bandwidth::from_bps((rate.get() as f64 * scheme.request) as u64);
        let a = testbed.dag("lab", "dag-a", dag_a(scheme.form, request)?)?;
        let b = testbed.chain("dag-b", &["nt2", "nt4"], request)?;
        let (packets, bytes) = (parameters.count(&FIG4_PACKETS), Sizes::Fixed(bytes as u32));
        Ok(Self { testbed, dags: [a, b], packets, bytes, unit, clock_hz })
    }

    fn time(&self, units: u64) -> Duration {
        let nanos = u128::from(units * self.unit) * 1_000_000_000 / u128::from(self.clock_hz);
        Duration::from_nanos(nanos as u64)
    }

    /// The units that a packet of each DAG takes if it meets no other.
    fn alone(&mut self) -> Result<[f64; 2]> {
        let mut units = [0.0; 2];
        for (at, units) in units.iter_mut().enumerate() {
            let records = self.send(&[at], 1)?;
            let record = records.first().context("its packet came out")?;
            *units = record.latency() as f64 / self.unit as f64;
        }
        Ok(units)
    }

    /// When each packet of each is done, in units from the first that came.
    fn together(&mut self) -> Result<[Vec<f64>; 2]> {
        let records = self.send(&[0, 1], self.packets)?;
        let begin = records.iter().map(|record| record.arrived).min().context("packets came")?;
        Ok([0, 1].map(|at| {
            let own = records.iter().filter(|record| record.uid == self.dags[at].uid);
            let mut ends: Vec<u64> = own.map(|record| record.ended - begin).collect();
            ends.sort_unstable();
            ends.iter().map(|end| *end as f64 / self.unit as f64).collect()
        }))
    }

    fn send(&mut self, dags: &[usize], packets: u64) -> Result<Vec<PacketRecord>> {
        self.testbed.card.keep_trace(dags.len() * packets as usize);
        for at in dags {
            // As fast as the ports take them, in turn.
            let wire = self.testbed.card.profile().ingress;
            let rate = Bandwidth::from_bps(wire.get() / dags.len() as u64);
            let source = TrafficSource::of_dag(self.dags[*at].uid, rate, self.bytes.clone());
            self.testbed.send(source.at_most(packets))?;
        }
        let time = self.time(UNITS_MAX);
        self.testbed.measure(time / 2, time / 2)?;
        let records = self.testbed.card.take_trace();
        ensure!(records.len() == dags.len() * packets as usize, "packets are missing");
        Ok(records)
    }
}
