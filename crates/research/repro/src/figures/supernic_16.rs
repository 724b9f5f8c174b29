//! Figs. 16 and 17: two users, one with four NTs in a chain and one with the last two of them, under
//! three schemes; at half time the first one's load rises.
//!
//! ```text
//!   region 0: NT1 ─ NT2 ─ NT3 ─ NT4    user 1
//!   region 1:                          user 2, who skips NT1 and NT2
//!   region 2:                          static: nobody; DRF: user 1; full: both share it in time
//! ```
//!
//! Static: each user has as many regions as the other, and one stays empty. DRF: all regions are
//! divided once, by requests; the remaining one goes to the larger chain. Full: the loop scales
//! both out by their loads and shares NTs in time.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};
use snic_card_sim::{Sizes, SourceId, TrafficSource};
use snic_controller::{Autoscaling, ControllerSettings, DagView, Fairness, Scheme};
use snic_domain::{Bandwidth, DagSpec, NtTypeId};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series, number};
use crate::parameters::{
    DUMMY_CYCLES, FIG16_LOAD1_PERCENT, FIG16_LOAD2_PERCENT, FIG16_MORE, FIG16_NT_MBPS,
    FIG16_RANGE_LOAD1, FIG16_RANGE_LOAD2, FIG16_RANGE_MORE, FIG16_RANGE_REQUEST,
    FIG16_RANGE_SECONDS, FIG16_REGIONS, FIG16_REQUEST_PERCENT, FIG16_SECONDS, FIG16_SETTLE_S,
    FIG17_IDLE_PERCENT, FIG17_MOST_PERCENT, PACKET_BYTES, ParameterEntry, Parameters,
};
use crate::testbed::{Setup, Testbed, nt};

const STEP: Duration = Duration::from_millis(1);
const SCHEMES: [(Scheme, &str); 3] =
    [(Scheme::Static, "static"), (Scheme::Drf, "DRF"), (Scheme::Full, "full")];
/// Distance that equal shares may have.
const EQUAL: f64 = 0.05;
/// NTs of the two users.
const NTS: [&str; 4] = ["nt1", "nt2", "nt3", "nt4"];

/// One scheme's run, by second.
struct Run {
    /// Dominant shares of both users.
    shares: [Vec<f64>; 2],
    /// Throughput of both together, as a multiple of what one NT serves.
    throughput: Vec<f64>,
    settle: usize,
    /// Shares that loads and promises allow, before the rise and after it.
    allowed: [[f64; 2]; 2],
}

impl Run {
    fn seconds(&self) -> usize {
        self.throughput.len()
    }

    /// Before the rise and after it, without what is not counted.
    fn halves(&self) -> [Range<usize>; 2] {
        let (half, all) = (self.seconds() / 2, self.seconds());
        [self.settle.min(half - 1)..half, (half + self.settle).min(all - 1)..all]
    }

    /// A user's mean share in some seconds.
    fn share(&self, user: usize, seconds: Range<usize>) -> f64 {
        let seconds = &self.shares[user][seconds];
        seconds.iter().sum::<f64>() / seconds.len() as f64
    }

    /// The largest distance of the shares in some seconds.
    fn apart(&self, seconds: Range<usize>) -> f64 {
        let difference = |second: usize| (self.shares[0][second] - self.shares[1][second]).abs();
        seconds.map(difference).fold(0.0, f64::max)
    }

    /// The largest distance of a served share from the allowed one, in one half of the run.
    fn missed(&self, half: usize) -> f64 {
        let seconds = &self.halves()[half];
        let of_user =
            |user: usize| (self.share(user, seconds.clone()) - self.allowed[half][user]).abs();
        of_user(0).max(of_user(1))
    }

    fn throughput(&self) -> f64 {
        let seconds: Vec<usize> = self.halves().into_iter().flatten().collect();
        seconds.iter().map(|second| self.throughput[*second]).sum::<f64>() / seconds.len() as f64
    }
}

pub(super) fn shares(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let [fixed, drf, full] = runs(parameters)?;
    let equal = Expected::predicted(Origin::Published, ExpectedBound::AtMost(EQUAL));
    let [before, after] = full.halves();
    outcome.check("full: shares apart before the rise", "share", equal, full.apart(before));
    outcome.check("full: shares apart after the rise", "share", equal, full.apart(after));
    let allowed = Expected::predicted(Origin::Computed, ExpectedBound::AtMost(EQUAL));
    for (half, when) in ["before", "after"].into_iter().enumerate() {
        let what = format!("full: farthest from what loads and promises allow, {when} the rise");
        outcome.check(what, "share", allowed, full.missed(half));
    }
    let unequal = Expected::predicted(Origin::Published, ExpectedBound::AtLeast(2.0 * EQUAL));
    let [before, after] = drf.halves();
    let apart = drf.apart(after.clone());
    outcome.check("DRF: shares apart after the rise", "share", unequal, apart);
    let rise = drf.share(0, after.clone()) - drf.share(0, before.clone());
    let moves = Expected::predicted(Origin::Shape, ExpectedBound::AtLeast(EQUAL));
    outcome.check("DRF: user 1's share rises with its load by", "share", moves, rise);
    let stays = Expected::predicted(Origin::Shape, ExpectedBound::AtMost(EQUAL));
    let moved = (drf.share(1, after.clone()) - drf.share(1, before)).abs();
    outcome.check("DRF: user 2's share moves by", "share", stays, moved);
    let over = (fixed.share(1, after.clone()) - drf.share(1, after)).abs();
    let overlap = Expected::predicted(Origin::Published, ExpectedBound::AtMost(EQUAL));
    outcome.check("static and DRF overlap for user 2, but for", "share", overlap, over);
    let mut series = Vec::new();
    for (run, (_, name)) in [&fixed, &drf, &full].into_iter().zip(SCHEMES) {
        for (user, shares) in run.shares.iter().enumerate() {
            let points = shares.iter().enumerate().map(|(second, share)| (second as f64, *share));
            series.push(Series::ours(format!("{name}, user {}", user + 1), points.collect()));
        }
    }
    let (x, y) = ("Time (s)", "Dominant share");
    outcome.plot = Some(Plot { x, y, axis: Axis::Linear, series });
    ranges(parameters, &mut outcome)?;
    outcome.note(
        "The paper says that user 1 runs four NTs in a chain, user 2 two of these, that both require the \
         same, that each should get half of its dominant resource, that DRF fills all regions and the static \
         scheme does not, that the two are the same for user 2, and that user 1's load rises at 50 s; it gives \
         neither loads nor capacities. The least that all of this is true of: three regions with the chain of \
         four, of which each user requests one; the third is nobody's under the static scheme and user \
         1's under DRF. Loads are over half of the regions, so that it is the policy that divides. A share \
         is what was served, of what the NT of which the user takes most serves in all regions. The table \
         has the same for other loads, requests and rises, each in a shorter run, some of them with loads that \
         allow no equal shares. What the product promises is judged beside what the paper prints: each user is \
         served what it sends, up to half and what the other leaves of its half, but for what the other was \
         promised, which is reserved, from the card's counters. So a user that sends 0.4 of its promise of one \
         region keeps 0.2 of the three from the other, which has the other two.",
    );
    Ok(outcome)
}

pub(super) fn throughput(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let runs = runs(parameters)?;
    let [fixed, drf, full] = [0, 1, 2].map(|at: usize| runs[at].throughput());
    let more = Expected::predicted(Origin::Published, ExpectedBound::AtLeast(1.02));
    outcome.check("full over DRF", "times", more, full / drf);
    let no_less = Expected::predicted(Origin::Published, ExpectedBound::AtLeast(1.0));
    outcome.check("DRF over static", "times", no_less, drf / fixed);
    outcome.check("full over static", "times", more, full / fixed);
    let most = Expected::predicted(Origin::Published, ExpectedBound::Share(3.83, 0.1));
    let what = "full over static at most: one user next to idle";
    outcome.check(what, "times", most, largest_gain(parameters)?);
    let series = runs.iter().zip(SCHEMES).map(|(run, (_, name))| {
        let points = run.throughput.iter().enumerate().map(|(s, part)| (s as f64, part * 100.0));
        Series::ours(name, points.collect())
    });
    let (x, y) = ("Time (s)", "Throughput of both users (% of an NT)");
    outcome.plot = Some(Plot { x, y, axis: Axis::Linear, series: series.collect() });
    outcome.note(
        "The workload of Fig. 16. The paper's 3.83 (1) is its largest gain in aggregated utilisation over \
         earlier systems; it does not say of which, nor for which users, regions and loads. Held against it \
         is the largest gain that this workload has: user 1 sends next to nothing, user 2 more than all \
         regions serve. It is outside: two users of three regions cannot gain more than three times, and the \
         idle user's region stays promised to it. With 4, 5 and 6 regions (fig16.regions, and a fig17.most_percent that fills them) it is about the number of regions less one; five would \
         be inside, but for its number alone, and there the static scheme would give each user two.",
    );
    Ok(outcome)
}

/// The throughput of the full scheme divided by that of the static one, if one user is nearly idle.
fn largest_gain(parameters: &Parameters) -> Result<f64> {
    let mut idle = parameters.clone();
    for (load, of) in
        [(&FIG16_LOAD1_PERCENT, &FIG17_IDLE_PERCENT), (&FIG16_LOAD2_PERCENT, &FIG17_MOST_PERCENT)]
    {
        idle.set(load.key, &parameters.value(of).to_string())?;
    }
    idle.set(FIG16_SECONDS.key, &parameters.value(&FIG16_RANGE_SECONDS).to_string())?;
    Ok(run(&idle, Scheme::Full)?.throughput() / run(&idle, Scheme::Static)?.throughput())
}

/// Other possible loads, and for how long each is run.
fn ranges(parameters: &Parameters, outcome: &mut FigureOutcome) -> Result<()> {
    let points: [(&ParameterEntry, &ParameterEntry); 4] = [
        (&FIG16_LOAD1_PERCENT, &FIG16_RANGE_LOAD1),
        (&FIG16_LOAD2_PERCENT, &FIG16_RANGE_LOAD2),
        (&FIG16_REQUEST_PERCENT, &FIG16_RANGE_REQUEST),
        (&FIG16_MORE, &FIG16_RANGE_MORE),
    ];
    let head = [
        "Set",
        "full: shares before",
        "full: after",
        "DRF: before",
        "DRF: after",
        "allowed before",
        "allowed after",
        "full / DRF",
    ];
    outcome.table.columns = head.map(String::from).to_vec();
    let seconds = parameters.value(&FIG16_RANGE_SECONDS).to_string();
    let (mut within, mut all) = (0, 0);
    for (entry, values) in points {
        for value in parameters.all(values) {
            let mut other = parameters.clone();
            other.set(FIG16_SECONDS.key, &seconds)?;
            other.set(entry.key, &value.to_string())?;
            let (drf, full) = (run(&other, Scheme::Drf)?, run(&other, Scheme::Full)?);
            let mut cells = vec![format!("{}={value}", entry.key)];
            for half in full.halves().into_iter().chain(drf.halves()).enumerate() {
                let run = if half.0 < 2 { &full } else { &drf };
                let shares = [0, 1].map(|user| number(run.share(user, half.1.clone())));
                cells.push(shares.join(" and "));
            }
            for half in 0..2 {
                cells.push(full.allowed[half].map(number).join(" and "));
            }
            cells.push(number(full.throughput() / drf.throughput()));
            outcome.table.rows.push(cells);
            for half in 0..2 {
                within += u32::from(full.missed(half) <= EQUAL);
                all += 1;
            }
        }
    }
    let most = Expected::predicted(Origin::Computed, ExpectedBound::Exact(100.0));
    let what = "full: of other loads, requests and rises, halves with the shares that loads and promises allow";
    outcome.check(what, "%", most, f64::from(within) / f64::from(all) * 100.0);
    Ok(())
}

/// Shares that loads and promises allow: each user gets what it sends, up to half of all regions and what the other one
/// leaves of its half. What the other was promised is reserved for it, whatever it sends.
fn allowed(loads: [f64; 2], promised: [f64; 2]) -> [f64; 2] {
    let of = |own: usize, other: usize| {
        let left = 1.0 - loads[other].max(promised[other]);
        loads[own].min(left.max(0.5))
    };
    [of(0, 1), of(1, 0)]
}

fn runs(parameters: &Parameters) -> Result<[Run; 3]> {
    let [fixed, drf, full] = SCHEMES.map(|(scheme, _)| run(parameters, scheme));
    Ok([fixed?, drf?, full?])
}

fn run(parameters: &Parameters, scheme: Scheme) -> Result<Run> {
    let mut card = parameters.card.clone();
    card.regions.truncate(parameters.count(&FIG16_REGIONS) as usize);
    let serves = Bandwidth::from_bps((parameters.value(&FIG16_NT_MBPS) * 1e6) as u64);
    let cycles = parameters.count(&DUMMY_CYCLES);
    let nts = NTS.iter().map(|name| nt(name, cycles, serves)).collect::<Result<_>>()?;
    let chains: Vec<&[&str]> = vec![&NTS];
    let mut testbed = Testbed::new(&Setup { card, options: parameters.options(), nts, chains })?;
    testbed.policies(policies(scheme))?;
    testbed.tenant("one", 1)?;
    testbed.tenant("two", 1)?;
    // Without time sharing a user requests all of its regions, so that no other is placed in them.
    let regions = parameters.value(&FIG16_REGIONS);
    let requests = match scheme {
        Scheme::Static => [100.0, 100.0],
        Scheme::Drf => [100.0 * (regions - 1.0), 100.0],
        Scheme::Full => [parameters.value(&FIG16_REQUEST_PERCENT); 2],
    };
    let chain = |names: &[&str], request| -> Result<DagSpec> {
        let nts = names.iter().map(|nt| NtTypeId::new(nt)).collect::<Result<Vec<_>, _>>()?;
        Ok(DagSpec::chain(&nts, part(serves, request)))
    };
    let users = [
        testbed.dag("one", "all", chain(&NTS, requests[0])?)?,
        testbed.dag("two", "some", chain(&NTS[2..], requests[1])?)?,
    ];
    TwoUserRun { parameters, serves, users }.run(&mut testbed)
}

fn part(of: Bandwidth, percent: f64) -> Bandwidth {
    Bandwidth::from_bps((of.get() as f64 * percent / 100.0) as u64)
}

fn policies(scheme: Scheme) -> ControllerSettings {
    // No headroom: the figure shows shares. The schemes decide who may scale out.
    let fairness = Fairness { scheme, headroom_percent: 0, ..Fairness::default() };
    // Regions keep what they hold: the paper's space is shared before its time is.
    let autoscaling = Autoscaling {
        enabled: scheme == Scheme::Full,
        context_switch: false,
        ..Autoscaling::default()
    };
    ControllerSettings { fairness, autoscaling, ..ControllerSettings::default() }
}

/// A run of the two users.
struct TwoUserRun<'a> {
    parameters: &'a Parameters,
    serves: Bandwidth,
    users: [DagView; 2],
}

impl TwoUserRun<'_> {
    fn send(&self, testbed: &mut Testbed, user: usize, percent: f64) -> Result<SourceId> {
        let bytes = Sizes::Fixed(self.parameters.count(&PACKET_BYTES) as u32);
        let rate = part(self.serves, percent);
        testbed.send(TrafficSource::of_dag(self.users[user].uid, rate, bytes))
    }

    fn run(&self, testbed: &mut Testbed) -> Result<Run> {
        let seconds = self.parameters.count(&FIG16_SECONDS) as usize;
        let settle = self.parameters.value(&FIG16_SETTLE_S).ceil() as usize;
        let load = self.parameters.value(&FIG16_LOAD1_PERCENT);
        let second_load = self.parameters.value(&FIG16_LOAD2_PERCENT);
        let more = load * self.parameters.value(&FIG16_MORE);
        let all = 100.0 * self.parameters.value(&FIG16_REGIONS);
        let promised = self
            .users
            .each_ref()
            .map(|user| user.spec.bandwidth.get() as f64 / self.serves.get() as f64 * 100.0 / all);
        let allowed = [load, more].map(|load| allowed([load / all, second_load / all], promised));
        let shares = [Vec::new(), Vec::new()];
        let mut run = Run { shares, throughput: Vec::new(), settle, allowed };
        let first = self.send(testbed, 0, load)?;
        self.send(testbed, 1, second_load)?;
        for second in 0..seconds {
            if second == seconds / 2 {
                testbed.card.detach(first);
                self.send(testbed, 0, more)?;
            }
            testbed.card.take_measurements();
            testbed.live(Duration::from_secs(1), STEP)?;
            let measured = testbed.card.take_measurements();
            ensure!(measured.errors() == 0, "packets met faults: {measured:?}");
            let served = |user: usize| {
                let dag = measured.dag(self.users[user].uid.row());
                dag.map_or(0.0, |dag| dag.served.get() as f64 / self.serves.get() as f64)
            };
            // Every region has every NT.
            for (user, shares) in run.shares.iter_mut().enumerate() {
                shares.push(served(user) / self.parameters.value(&FIG16_REGIONS));
            }
            run.throughput.push(served(0) + served(1));
        }
        Ok(run)
    }
}
