//! Fig. 14: DAG-A and DAG-C use what is left of DAG-D's chain.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use snic_card_sim::{Sizes, TrafficSource};
use snic_controller::{Autoscaling, ControllerSettings, DagView, Fairness};
use snic_domain::{Area, DagUid, Mapping, NtType, RegionId};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{
    FIG14_BACKGROUND_GBPS, FIG14_EPOCH_MS, FIG14_LOADS_GBPS, FIG14_REQUEST_GBPS, FIG14_SETTLE_MS,
    Parameters, TIME_US, gbps,
};
use crate::testbed::{NtSequence, Setup, Testbed};

const DAG_D: NtSequence<'static> =
    &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"];
/// The foreground: its NTs, and where the paper says it saturates, in Gbit/s.
const FOREGROUND: [(&str, NtSequence<'static>, f64); 2] = [
    ("DAG-A", &["firewall", "aes"], 15.0),
    ("DAG-C", &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n"], 60.0),
];
const STEP: Duration = Duration::from_micros(100);

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let mut series = Vec::new();
    let background = parameters.value(&FIG14_BACKGROUND_GBPS);
    for (name, nts, most) in FOREGROUND {
        for shares in [true, false] {
            let mut bench = Bench::new(parameters, nts, shares)?;
            let mut points = Vec::new();
            let mut last = (f64::NAN, f64::NAN);
            for &load in parameters.all(&FIG14_LOADS_GBPS) {
                last = bench.served(parameters, load)?;
                points.push((load, last.0 / bench.area));
                if shares && load <= most {
                    let follows =
                        Expected::predicted(Origin::Published, ExpectedBound::Share(load, 0.05));
                    outcome.check(format!("{name} at {load} Gbit/s"), "Gbit/s", follows, last.0);
                }
            }
            if shares {
                let saturates =
                    Expected::predicted(Origin::Published, ExpectedBound::Share(most, 0.05));
                outcome.check(format!("{name} saturates"), "Gbit/s", saturates, last.0);
                let kept =
                    Expected::predicted(Origin::Published, ExpectedBound::Share(background, 0.05));
                outcome.check(format!("DAG-D beside {name}"), "Gbit/s", kept, last.1);
            }
            let kind = if shares { "shared" } else { "unshared" };
            series.push(Series::ours(format!("{name}, {kind}"), points));
        }
        let of = |at: usize| series[at].points[0].1;
        let gain = of(series.len() - 2) / of(series.len() - 1);
        let more = Expected::predicted(Origin::Published, ExpectedBound::AtLeast(1.0));
        outcome.check(format!("{name}: throughput per area, shared / unshared"), "", more, gain);
    }
    outcome.plot = Some(Plot {
        x: "Foreground load (Gbit/s)",
        y: "Foreground throughput / area (Gbit/s, DAG-D-parallel = 1)",
        axis: Axis::Linear,
        series,
    });
    outcome.note(
        "DAG-D requests and sends 15 Gbit/s. The foreground requests 1 Gbit/s, is placed in DAG-D's own \
         region, where it skips what it does not use, and sends more and more: the product's time sharing \
         gives it what DAG-D leaves of each NT. Nothing is scaled out, for the area is the figure's \
         denominator. Credits are off, packets are of Facebook's flows. Area is the mean of the shares in \
         LUTs and RAMB36 of Fig. 6, against DAG-D with a second AES.",
    );
    Ok(outcome)
}

struct Bench {
    testbed: Testbed,
    uid: DagUid,
    background: Option<DagUid>,
    /// All NTs that are loaded, against DAG-D-parallel.
    area: f64,
}

impl Bench {
    fn new(parameters: &Parameters, nts: NtSequence<'_>, shares: bool) -> Result<Self> {
        let card = parameters.card.clone();
        let (types, options) = (parameters.nt_types(), parameters.without_credits());
        let chains = vec![DAG_D, nts];
        let mut testbed = Testbed::new(&Setup { card, options, nts: types.clone(), chains })?;
        testbed.policies(policies(parameters))?;
        // Policies take effect at the end of an epoch of the old ones.
        testbed.live(Fairness::default().epoch * 2, STEP)?;
        let mut loaded = area(&types, DAG_D);
        let mut background = None;
        if shares {
            let rate = parameters.gbps(&FIG14_BACKGROUND_GBPS);
            let dag = testbed.chain("dag-d", DAG_D, rate)?;
            testbed.send(TrafficSource::of_dag(dag.uid, rate, Sizes::Facebook))?;
            background = Some(dag);
        } else {
            // Alone on the card it has a separate region; DAG-D's counts all the same.
            loaded = loaded + area(&types, nts);
        }
        let dag = testbed.chain("foreground", nts, parameters.gbps(&FIG14_REQUEST_GBPS))?;
        let same = background.as_ref().is_none_or(|other| regions(other) == regions(&dag));
        ensure!(same, "the planner does not place the foreground in DAG-D's region");
        let whole = area(&types, DAG_D) + area(&types, &["aes"]);
        let share = |part: u32, of: u32| f64::from(part) / f64::from(of);
        let area = (share(loaded.lut, whole.lut) + share(loaded.ramb36, whole.ramb36)) / 2.0;
        Ok(Self { testbed, uid: dag.uid, background: background.map(|dag| dag.uid), area })
    }

    /// Gbit/s of the foreground and of DAG-D.
    fn served(&mut self, parameters: &Parameters, load: f64) -> Result<(f64, f64)> {
        let source = TrafficSource::of_dag(self.uid, gbps(load), Sizes::Facebook);
        let source = self.testbed.send(source)?;
        self.testbed.live(parameters.millis(&FIG14_SETTLE_MS), STEP)?;
        self.testbed.card.take_measurements();
        self.testbed.live(parameters.micros(&TIME_US), STEP)?;
        let measured = self.testbed.card.take_measurements();
        self.testbed.card.detach(source);
        ensure!(measured.errors() == 0, "packets met faults: {measured:?}");
        let served = |uid: DagUid| measured.dag(uid.row()).map(|dag| dag.served.gbps_f64());
        let background = self.background.and_then(served).unwrap_or_default();
        Ok((served(self.uid).context("packets went through")?, background))
    }
}

/// The product's time sharing, on what is loaded.
fn policies(parameters: &Parameters) -> ControllerSettings {
    let epoch = parameters.millis(&FIG14_EPOCH_MS);
    let fairness = Fairness { epoch, headroom_percent: 0, ..Fairness::default() };
    let autoscaling = Autoscaling { enabled: false, ..Autoscaling::default() };
    ControllerSettings { fairness, autoscaling, ..ControllerSettings::default() }
}

fn regions(dag: &DagView) -> Vec<RegionId> {
    let instances = dag.mapping.iter().flat_map(Mapping::instances);
    instances.map(|instance| instance.region).collect()
}

fn area(types: &[NtType], nts: NtSequence<'_>) -> Area {
    let of = |name: &&str| types.iter().find(|nt| nt.id.as_str() == *name).map(|nt| nt.area);
    nts.iter().filter_map(of).sum()
}
