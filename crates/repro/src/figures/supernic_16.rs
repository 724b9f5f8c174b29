//! Figs. 16 and 17: two users, one with four NTs in a chain and one with the last two of them, under
//! three schemes; at half time the first one's load rises.
//!
//! Everything is a hundredth of the paper's bandwidth, so that a hundred seconds of packets can be
//! simulated: an NT serves 100 Mbit/s.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use snic_card_sim::{Options, Sizes, TrafficSource};
use snic_controller::{Autoscaling, DagView, Fairness, Scheme, Settings};
use snic_domain::{Bandwidth, DagSpec, Mapping, NtTypeId};

use crate::lab::{Lab, Setup, nt};
use crate::outcome::{Axis, Bound, Origin, Outcome, Plot, Series};
use crate::parameters::Parameters;

/// What an NT serves.
const SERVES: Bandwidth = Bandwidth::from_mbps(100);
/// What the users ask for. The second needs more than one region's, so a part of it passes the
/// first one's.
const ASKED: [Bandwidth; 2] = [Bandwidth::from_mbps(20), Bandwidth::from_mbps(110)];
/// How much more than its equal share the second user sends.
const MORE: f64 = 1.02;
const SECONDS: usize = 100;
const RISE: usize = 50;
/// What is not counted after the beginning and after the rise: one monitor period (10 ms), and one
/// reconfiguration (4 MB at 800 MB/s).
const SETTLE: Duration = Duration::from_millis(15);
const STEP: Duration = Duration::from_millis(1);
const SCHEMES: [(Scheme, &str); 3] =
    [(Scheme::Static, "static"), (Scheme::Drf, "DRF"), (Scheme::Full, "full")];

/// One scheme's run, by second.
struct Run {
    /// Dominant shares of both users.
    shares: [Vec<f64>; 2],
    /// Mbit/s of both together.
    throughput: Vec<f64>,
}

impl Run {
    /// How far the shares are apart at most, in some seconds.
    fn apart(&self, seconds: std::ops::Range<usize>) -> f64 {
        let difference = |second: usize| (self.shares[0][second] - self.shares[1][second]).abs();
        seconds.map(difference).fold(0.0, f64::max)
    }

    fn mean(&self) -> f64 {
        self.throughput.iter().sum::<f64>() / self.throughput.len() as f64
    }
}

/// Fig. 16.
pub(super) fn shares(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut series = Vec::new();
    for (scheme, name) in SCHEMES {
        let run = run(parameters, scheme)?;
        let apart = run.apart(0..SECONDS);
        match scheme {
            Scheme::Full => {
                let equal = (Origin::Published, Bound::AtMost(0.05));
                outcome.check("full: shares apart at most", "share", equal, apart);
            }
            Scheme::Drf => {
                let unequal = (Origin::Shape, Bound::AtLeast(0.05));
                outcome.check(
                    "DRF: shares apart after the rise",
                    "share",
                    unequal,
                    run.apart(RISE..SECONDS),
                );
            }
            Scheme::Static => {}
        }
        for (user, shares) in run.shares.iter().enumerate() {
            let points = shares.iter().enumerate().map(|(second, share)| (second as f64, *share));
            series.push(Series::ours(format!("{name}, user {}", user + 1), points.collect()));
        }
    }
    let (x, y) = ("Time (s)", "Dominant share");
    outcome.plot = Some(Plot { x, y, axis: Axis::Linear, series });
    outcome.note(
        "The paper says that both users require the same, and neither loads nor capacities. Here: \
         two regions of NTs of 100 Mbit/s, the first with all four, the second with the last two; \
         requests of 20 and 110 Mbit/s, not the same, so that the second user's chain is served by \
         both regions; loads that fill the shared NTs at nearly equal shares, the second user's \
         below what it asked for; at 50 s the first one's load \
         doubles. DRF keeps for the second what it asked for; the full policy gives the first what \
         the second leaves of that. A share is what was served, at the NT of which the user takes \
         most, second by second; the first 15 ms after a change are not counted: one monitor period \
         and one reconfiguration.",
    );
    Ok(outcome)
}

/// Fig. 17.
pub(super) fn throughput(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut series, mut means) = (Vec::new(), Vec::new());
    for (scheme, name) in SCHEMES {
        let run = run(parameters, scheme)?;
        means.push(run.mean());
        let points = run.throughput.iter().enumerate().map(|(s, mbps)| (s as f64, *mbps));
        series.push(Series::ours(name, points.collect()));
    }
    let [fixed, drf, full] = means[..] else { unreachable!("one mean for each scheme") };
    let order = (Origin::Published, Bound::AtLeast(1.0));
    outcome.check("full over DRF", "times", (Origin::Published, Bound::AtLeast(1.005)), full / drf);
    outcome.check("DRF over static", "times", order, drf / fixed);
    let gain = (Origin::Published, Bound::Between(1.0, 3.83));
    outcome.check(
        "full over static (paper, over earlier systems: up to 3.83)",
        "times",
        gain,
        full / fixed,
    );
    let (x, y) = ("Time (s)", "Throughput of both users (Mbit/s)");
    outcome.plot = Some(Plot { x, y, axis: Axis::Linear, series });
    outcome.note(
        "The workload of Fig. 16. The paper's 3.83 is its largest gain in aggregated utilisation over \
         earlier systems, not over its own static scheme, for which it gives a curve only.",
    );
    Ok(outcome)
}

fn run(parameters: &Parameters, scheme: Scheme) -> Result<Run> {
    let mut card = parameters.card.clone();
    card.regions.truncate(2);
    let names = ["nt1", "nt2", "nt3", "nt4"];
    let nts = names.iter().map(|name| nt(name, 10, SERVES)).collect::<Result<_>>()?;
    let chains: Vec<&[&str]> = vec![&["nt1", "nt2", "nt3", "nt4"], &["nt3", "nt4"]];
    let mut lab = Lab::new(&Setup { card, options: Options::default(), nts, chains })?;
    lab.policies(policies(scheme))?;
    lab.tenant("one", 1)?;
    lab.tenant("two", 1)?;
    let chain = |names: &[&str], bandwidth| -> Result<DagSpec> {
        let nts = names.iter().map(|nt| NtTypeId::new(nt)).collect::<Result<Vec<_>, _>>()?;
        Ok(DagSpec::chain(&nts, bandwidth))
    };
    let users = [
        lab.dag("one", "all", chain(&names, ASKED[0])?)?,
        lab.dag("two", "some", chain(&names[2..], ASKED[1])?)?,
    ];
    drive(&mut lab, &users)
}

fn policies(scheme: Scheme) -> Settings {
    // Space is fixed, and there is nothing to keep free: the shares are to be seen.
    let fairness = Fairness { scheme, headroom_percent: 0, ..Fairness::default() };
    let autoscaling = Autoscaling { enabled: false, ..Autoscaling::default() };
    Settings { fairness, autoscaling, ..Settings::default() }
}

fn drive(lab: &mut Lab, users: &[DagView; 2]) -> Result<Run> {
    let parts = [parts(&users[0])?, parts(&users[1])?];
    let [one, two] = fair_loads(&parts)?;
    let mut run = Run { shares: [Vec::new(), Vec::new()], throughput: Vec::new() };
    let send = |lab: &mut Lab, user: usize, rate| {
        lab.send(TrafficSource::of_dag(users[user].uid, rate, Sizes::Fixed(1_500)))
    };
    let first = send(lab, 0, one)?;
    send(lab, 1, two)?;
    for second in 0..SECONDS {
        if second == RISE {
            lab.card.detach(first);
            send(lab, 0, one + one)?;
        }
        let settle = if [0, RISE].contains(&second) { SETTLE } else { Duration::ZERO };
        lab.live(settle, STEP)?;
        lab.card.take_measurements();
        lab.live(Duration::from_secs(1) - settle, STEP)?;
        let measured = lab.card.take_measurements();
        ensure!(measured.errors() == 0, "packets met faults: {measured:?}");
        let served = |user: usize| {
            let dag = measured.dag(users[user].uid.row());
            dag.map_or(0.0, |dag| dag.served.get() as f64)
        };
        for (user, shares) in run.shares.iter_mut().enumerate() {
            let most = parts[user].iter().fold(0.0, |most: f64, (_, part)| most.max(*part));
            shares.push(served(user) * most / SERVES.get() as f64);
        }
        run.throughput.push((served(0) + served(1)) / 1e6);
    }
    Ok(run)
}

/// Which part of a DAG's packets passes each region.
fn parts(dag: &DagView) -> Result<Vec<(u8, f64)>> {
    let mapping: &Mapping = dag.mapping.as_ref().context("it is mapped")?;
    let all: u64 = mapping.instances().map(|i| i.bandwidth.get()).sum();
    let part = |bandwidth: Bandwidth| bandwidth.get() as f64 / all as f64;
    Ok(mapping.instances().map(|i| (i.region.0, part(i.bandwidth))).collect())
}

/// The loads at which the NTs that both users share are full and both have the same dominant share,
/// but for a little that the second one has more: as much as is promised to it either way.
fn fair_loads(parts: &[Vec<(u8, f64)>; 2]) -> Result<[Bandwidth; 2]> {
    let [one, two] = parts;
    ensure!(one.len() == 1, "the first user's chain has one place: {one:?}");
    let shared = two.iter().find(|(region, _)| *region == one[0].0);
    let shared = shared.context("the second user shares the first one's region")?.1;
    let most = two.iter().fold(0.0, |most: f64, (_, part)| most.max(*part));
    let share = 1.0 / (1.0 + shared / most);
    let load = |rate: f64| Bandwidth::from_bps((rate * SERVES.get() as f64) as u64);
    let two = share / most * MORE;
    Ok([load(1.0 - shared * two), load(two)])
}
