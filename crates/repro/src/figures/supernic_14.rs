//! Fig. 14: DAG-A and DAG-C use what is left of DAG-D's chain.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use snic_card_sim::{Options, Sizes, TrafficSource};
use snic_controller::DagView;
use snic_domain::{Area, Bandwidth, Mapping, NtType, RegionId};

use crate::lab::{Chain, Lab, Setup};
use crate::outcome::{Axis, Bound, Origin, Outcome, Plot, Series};
use crate::parameters::Parameters;

const DAG_D: Chain<'static> = &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"];
/// DAG-D's load, in Gbit/s (SuperNIC, 5.3).
const BACKGROUND: u64 = 15;
/// The foreground's: its NTs, what it asks for, and what the paper says it reaches.
const FOREGROUND: [(&str, Chain<'static>, u64); 2] = [
    ("DAG-A", &["firewall", "aes"], 15),
    ("DAG-C", &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n"], 60),
];
/// Loads of the foreground, in Gbit/s.
const LOADS: [u64; 7] = [5, 10, 15, 20, 30, 45, 60];

pub(super) fn run(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut series = Vec::new();
    for (name, nts, most) in FOREGROUND {
        for (kind, shares) in [("shared", true), ("unshared", false)] {
            let mut lab = Bench::new(parameters, nts, most, shares)?;
            let mut points = Vec::new();
            let mut last = f64::NAN;
            for load in LOADS {
                last = lab.served(load)?;
                points.push((load as f64, last / lab.area));
                if shares && load <= most {
                    let follows = (Origin::Published, Bound::Share(load as f64, 0.05));
                    outcome.check(format!("{name} at {load} Gbit/s"), "Gbit/s", follows, last);
                }
            }
            if shares {
                let saturates = (Origin::Published, Bound::Share(most as f64, 0.05));
                outcome.check(format!("{name} saturates"), "Gbit/s", saturates, last);
            }
            series.push(Series::ours(format!("{name}, {kind}"), points));
        }
        let of = |at: usize| series[at].points[0].1;
        let gain = of(series.len() - 2) / of(series.len() - 1);
        let more = (Origin::Shape, Bound::AtLeast(1.0));
        outcome.check(format!("{name}: throughput per area, shared / unshared"), "", more, gain);
    }
    outcome.plot = Some(Plot {
        x: "Foreground load (Gbit/s)",
        y: "Foreground throughput / area (Gbit/s, DAG-D-parallel = 1)",
        axis: Axis::Linear,
        series,
    });
    outcome.note(
        "DAG-D runs at 15 Gbit/s. The planner puts DAG-A and DAG-C on DAG-D's own region, where they \
         skip what they do not use; DAG-A can have the 15 Gbit/s that DAG-D leaves of AES's 30. \
         Credits are off, packets are of Facebook's flows. Area is the mean of the shares in LUTs and \
         RAMB36 of Fig. 6, against DAG-D with a second AES.",
    );
    Ok(outcome)
}

struct Bench {
    lab: Lab,
    row: u16,
    uid: snic_domain::DagUid,
    /// All NTs that are loaded, against DAG-D-parallel.
    area: f64,
}

impl Bench {
    fn new(parameters: &Parameters, nts: Chain<'_>, most: u64, shares: bool) -> Result<Self> {
        let card = parameters.card.clone();
        let types = &parameters.catalogue.nt_types;
        let options = Options { credits: false, ..Options::default() };
        let (chains, foreground) = (vec![DAG_D, nts], Bandwidth::from_gbps(most));
        let mut lab = Lab::new(&Setup { card, options, nts: types.clone(), chains })?;
        let mut loaded = area(types, DAG_D);
        let dag = if shares {
            let rate = Bandwidth::from_gbps(BACKGROUND);
            let background = lab.chain("dag-d", DAG_D, rate)?;
            let dag = lab.chain("foreground", nts, foreground)?;
            let same = regions(&dag) == regions(&background);
            ensure!(same, "the planner does not share DAG-D's region");
            lab.send(TrafficSource::of_dag(background.uid, rate, Sizes::Facebook))?;
            dag
        } else {
            // Alone on the card it has a region of its own; DAG-D's counts all the same.
            loaded = loaded + area(types, nts);
            lab.chain("foreground", nts, foreground)?
        };
        let whole = area(types, DAG_D) + area(types, &["aes"]);
        let share = |part: u32, of: u32| f64::from(part) / f64::from(of);
        let area = (share(loaded.lut, whole.lut) + share(loaded.ramb36, whole.ramb36)) / 2.0;
        Ok(Self { lab, row: dag.uid.row(), uid: dag.uid, area })
    }

    fn served(&mut self, load: u64) -> Result<f64> {
        let source = TrafficSource::of_dag(self.uid, Bandwidth::from_gbps(load), Sizes::Facebook);
        let source = self.lab.send(source)?;
        let measured = self.lab.measure(Duration::from_micros(500), Duration::from_millis(2))?;
        self.lab.card.detach(source);
        let dag = measured.dag(self.row).context("packets went through")?;
        Ok(dag.served.gbps_f64())
    }
}

fn regions(dag: &DagView) -> Vec<RegionId> {
    let instances = dag.mapping.iter().flat_map(Mapping::instances);
    instances.map(|instance| instance.region).collect()
}

fn area(types: &[NtType], nts: Chain<'_>) -> Area {
    let of = |name: &&str| types.iter().find(|nt| nt.id.as_str() == *name).map(|nt| nt.area);
    nts.iter().filter_map(of).sum()
}
