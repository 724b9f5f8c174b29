//! Fig. 15: a chain whose load changes. Two instances are launched with it, a third when it is needed.

use std::time::Duration;

use anyhow::{Context, Result};
use snic_card_sim::{Sizes, TrafficSource};
use snic_controller::DagView;
use snic_domain::{CardId, RegionState};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{
    DUMMY_CYCLES, FIG15_LOADS_GBPS, FIG15_MILLIS, FIG15_NT_GBPS, FIG15_REQUEST_GBPS,
    FIG15_SETTLE_MS, PACKET_BYTES, Parameters, gbps,
};
use crate::testbed::{Setup, Testbed, nt};

/// Steps of the session: far shorter than a reconfiguration.
const STEP: Duration = Duration::from_micros(50);
const MS: Duration = Duration::from_millis(1);

/// The measurements, by millisecond.
struct Timeline {
    served: Vec<(f64, f64)>,
    regions: Vec<(f64, f64)>,
    /// Regions that were loaded after the chain was first served.
    reconfigurations: u64,
}

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let seen = watch(parameters)?;
    let mut outcome = FigureOutcome::default();
    let mean = |from: usize, to: usize| {
        seen.served[from..to].iter().map(|(_, gbps)| gbps).sum::<f64>() / (to - from) as f64
    };
    let about = |gbps| Expected::predicted(Origin::Published, ExpectedBound::Share(gbps, 0.05));
    outcome.check("served, 1 to 20 ms", "Gbit/s", about(10.0), mean(1, 20));
    outcome.check("served, 21 to 30 ms", "Gbit/s", about(20.0), mean(21, 30));
    outcome.check("served, 31 to 35 ms", "Gbit/s", about(20.0), mean(31, 35));
    outcome.check("served, 37 to 70 ms", "Gbit/s", about(30.0), mean(37, 70));
    outcome.check("served, 71 to 90 ms", "Gbit/s", about(15.0), mean(71, 90));
    outcome.check("served, 91 to 120 ms", "Gbit/s", about(30.0), mean(91, 120));
    let first = seen.served.iter().find(|(_, gbps)| *gbps > 25.0);
    let around = Expected::predicted(Origin::Published, ExpectedBound::Between(34.0, 37.0));
    let first = first.map_or(f64::INFINITY, |(ms, _)| *ms);
    outcome.check("the third region serves", "ms", around, first);
    let exact = |n| Expected::predicted(Origin::Published, ExpectedBound::Exact(n));
    outcome.check("regions at 29 ms", "regions", exact(2.0), seen.regions[29].1);
    outcome.check("regions at 40 ms", "regions", exact(3.0), seen.regions[40].1);
    outcome.check("regions at 119 ms", "regions", exact(3.0), seen.regions[119].1);
    let loads = seen.reconfigurations as f64;
    outcome.check("reconfigurations", "loads", exact(1.0), loads);
    let paper = vec![(0.0, 10.0), (20.0, 20.0), (35.0, 30.0), (70.0, 15.0), (90.0, 30.0)];
    outcome.plot = Some(Plot {
        x: "Time (ms)",
        y: "Throughput (Gbit/s), regions",
        axis: Axis::Linear,
        series: vec![
            Series::ours("served", seen.served),
            Series::ours("regions", seen.regions),
            Series::paper("served", paper),
        ],
    });
    outcome.note(
        "Card and policies are those that ship: sixteen regions, of which the load needs three. A load that is \
         near what serves it is looked at every millisecond; when it is over that, a free region is loaded \
         without waiting for the end of the monitor period.",
    );
    Ok(outcome)
}

fn watch(parameters: &Parameters) -> Result<Timeline> {
    let card = parameters.card.clone();
    let (cycles, rate) = (parameters.count(&DUMMY_CYCLES), parameters.gbps(&FIG15_NT_GBPS));
    let nts = vec![nt("dummy", cycles, rate)?];
    let setup = Setup { card, options: parameters.options(), nts, chains: vec![&["dummy"]] };
    let mut testbed = Testbed::new(&setup)?;
    let dag = testbed.chain("chain", &["dummy"], parameters.gbps(&FIG15_REQUEST_GBPS))?;
    // The first millisecond begins with a monitor period.
    testbed.live(parameters.millis(&FIG15_SETTLE_MS), STEP)?;
    let wait = testbed.controller.next_sample().since(testbed.now());
    testbed.live(wait, STEP)?;
    let before = loads(&testbed)?.0;
    let mut seen = Timeline { served: Vec::new(), regions: Vec::new(), reconfigurations: 0 };
    testbed.card.take_measurements();
    let bytes = Sizes::Fixed(parameters.count(&PACKET_BYTES) as u32);
    let phases = parameters.all(&FIG15_LOADS_GBPS).iter().zip(parameters.all(&FIG15_MILLIS));
    for (load, millis) in phases {
        let source = TrafficSource::of_dag(dag.uid, gbps(*load), bytes.clone());
        let source = testbed.send(source)?;
        for _ in 0..*millis as u64 {
            testbed.live(MS, STEP)?;
            note(&mut testbed, &dag, &mut seen)?;
        }
        testbed.card.detach(source);
    }
    seen.reconfigurations = loads(&testbed)?.0 - before;
    Ok(seen)
}

fn note(testbed: &mut Testbed, dag: &DagView, seen: &mut Timeline) -> Result<()> {
    let ms = seen.served.len() as f64;
    let measured = testbed.card.take_measurements();
    let served = measured.dag(dag.uid.row()).map_or(0.0, |dag| dag.served.gbps_f64());
    seen.served.push((ms, served));
    seen.regions.push((ms, loads(testbed)?.1 as f64));
    Ok(())
}

/// Loads so far, and regions that hold the chain.
fn loads(testbed: &Testbed) -> Result<(u64, usize)> {
    let card = testbed.controller.card_view(&CardId::new("card0")?).context("the card is there")?;
    let holds = |state: &RegionState| matches!(state, RegionState::Active | RegionState::Victim);
    Ok((card.loads, card.regions.iter().filter(|(_, state)| holds(state)).count()))
}
