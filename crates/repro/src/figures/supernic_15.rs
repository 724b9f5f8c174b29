//! Fig. 15: a chain whose load changes. Two instances are launched with it, a third when it is needed.

use std::time::Duration;

use anyhow::{Context, Result};
use snic_card_sim::{Options, Sizes, TrafficSource};
use snic_controller::DagView;
use snic_domain::{Bandwidth, CardId, RegionState};

use crate::lab::{Lab, Setup, nt};
use crate::outcome::{Axis, Bound, Origin, Outcome, Plot, Series};
use crate::parameters::Parameters;

/// The load in Gbit/s, and for how many milliseconds.
const LOAD: [(u64, u64); 5] = [(10, 20), (20, 10), (30, 40), (15, 20), (30, 30)];
/// Steps of the session: far shorter than a reconfiguration.
const STEP: Duration = Duration::from_micros(50);
const MS: Duration = Duration::from_millis(1);

/// What was seen, by millisecond.
struct Seen {
    served: Vec<(f64, f64)>,
    regions: Vec<(f64, f64)>,
    /// Regions loaded after the chain was served first.
    reconfigurations: u64,
}

pub(super) fn run(parameters: &Parameters) -> Result<Outcome> {
    let seen = watch(parameters)?;
    let mut outcome = Outcome::default();
    let mean = |from: usize, to: usize| {
        seen.served[from..to].iter().map(|(_, gbps)| gbps).sum::<f64>() / (to - from) as f64
    };
    let about = |gbps| (Origin::Published, Bound::Share(gbps, 0.05));
    outcome.check("served, 1 to 20 ms", "Gbit/s", about(10.0), mean(1, 20));
    outcome.check("served, 21 to 30 ms", "Gbit/s", about(20.0), mean(21, 30));
    outcome.check("served, 31 to 35 ms", "Gbit/s", about(20.0), mean(31, 35));
    outcome.check("served, 37 to 70 ms", "Gbit/s", about(30.0), mean(37, 70));
    outcome.check("served, 71 to 90 ms", "Gbit/s", about(15.0), mean(71, 90));
    outcome.check("served, 91 to 120 ms", "Gbit/s", about(30.0), mean(91, 120));
    let first =
        seen.served.iter().find(|(_, gbps)| *gbps > 25.0).context("30 Gbit/s are served")?;
    let around = (Origin::Published, Bound::Between(34.0, 37.0));
    outcome.check("the third region serves", "ms", around, first.0);
    let exact = |n| (Origin::Published, Bound::Exact(n));
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
        "Packets of 1,500 bytes. The policies are those that ship; the card has three regions for \
         the chain. The decision falls at 30 ms, at the end of a period in which the load rose from \
         10 to 20 Gbit/s and filled both instances: the forecast is 30. With a fourth region free, \
         the same rule would launch a fourth instance at 40 ms, when the load has risen again.",
    );
    Ok(outcome)
}

fn watch(parameters: &Parameters) -> Result<Seen> {
    let mut card = parameters.card.clone();
    card.regions.truncate(3);
    let nts = vec![nt("dummy", 10, Bandwidth::from_gbps(10))?];
    let setup = Setup { card, options: Options::default(), nts, chains: vec![&["dummy"]] };
    let mut lab = Lab::new(&setup)?;
    let dag = lab.chain("chain", &["dummy"], Bandwidth::from_gbps(20))?;
    // The first millisecond begins with a period.
    lab.live(Duration::from_millis(20), STEP)?;
    let wait = lab.controller.next_sample().since(lab.now());
    lab.live(wait, STEP)?;
    let before = loads(&lab)?.0;
    let mut seen = Seen { served: Vec::new(), regions: Vec::new(), reconfigurations: 0 };
    lab.card.take_measurements();
    for (gbps, millis) in LOAD {
        let rate = Bandwidth::from_gbps(gbps);
        let source = lab.send(TrafficSource::of_dag(dag.uid, rate, Sizes::Fixed(1_500)))?;
        for _ in 0..millis {
            lab.live(MS, STEP)?;
            note(&mut lab, &dag, &mut seen)?;
        }
        lab.card.detach(source);
    }
    seen.reconfigurations = loads(&lab)?.0 - before;
    Ok(seen)
}

fn note(lab: &mut Lab, dag: &DagView, seen: &mut Seen) -> Result<()> {
    let ms = seen.served.len() as f64;
    let measured = lab.card.take_measurements();
    let served = measured.dag(dag.uid.row()).map_or(0.0, |dag| dag.served.gbps_f64());
    seen.served.push((ms, served));
    seen.regions.push((ms, loads(lab)?.1 as f64));
    Ok(())
}

/// Loads so far, and regions that hold the chain.
fn loads(lab: &Lab) -> Result<(u64, usize)> {
    let card = lab.controller.card_view(&CardId::new("card0")?).context("the card is there")?;
    let holds = |state: &RegionState| matches!(state, RegionState::Active | RegionState::Victim);
    Ok((card.loads, card.regions.iter().filter(|(_, state)| holds(state)).count()))
}
