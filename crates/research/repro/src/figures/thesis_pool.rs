//! The thesis's pool: a chain without room at home runs on a second card, and what was at home is served as before.
//!
//! ```text
//!   one card:   foreground ─┐
//!               background ─┴─ region                       the loop divides the region
//!   two cards:  foreground ─── region
//!               background ─── link ─── region ─── own      each card's loop divides its region
//! ```

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use snic_card_sim::{
    Arrivals, CardPool, Measurements, PlaneOptions, PoolShape, SimCard, Sizes, TrafficSource,
};
use snic_controller::{Autoscaling, ControllerSettings, DagView, Fairness};
use snic_domain::{CardProfile, DagSpec, LinkProfile, NtTypeId, RegionId};
use snic_tables::{ChainRow, DagRow, Guest, InstanceRow, StageRow};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series, number};
use crate::parameters::{
    DUMMY_CYCLES, FIG14_EPOCH_MS, PACKET_BYTES, POOL_ASKED_GBPS, POOL_BACKGROUND_PERCENT,
    POOL_BYTES, POOL_CARDS, POOL_CONNECTED, POOL_FOREGROUND_GBPS, POOL_LINK_GBPS, POOL_LINK_NS,
    POOL_NT_GBPS, POOL_OWN_GBPS, POOL_RATES, POOL_SEED, POOL_SETTLE_MS, Parameters, TIME_US, gbps,
};
use crate::testbed::{Setup, Testbed, nt};

/// The foreground in Gbit/s with one card and with two, the same in each of the authors' five rows.
const PAPER: [(f64, &str); 2] = [(20.0, "foreground, one card"), (30.0, "foreground, two cards")];
/// The tolerance of a cell: packets come at random times.
const CELL: f64 = 0.05;
/// The name of the NT.
const TASK: &str = "task";
/// Tenants: of what is at home on a card, and of what may run elsewhere.
const TENANTS: [&str; 2] = ["one", "two"];
/// Promise where the loop is to divide all of a chain, in Gbit/s.
const NEXT_TO_NOTHING: f64 = 1.0;
const STEP: Duration = Duration::from_micros(100);
/// Time in which one packet comes back from the farthest card.
const LONE: Duration = Duration::from_micros(100);

/// Throughputs in Gbit/s, and the foreground's mean latency in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Served {
    foreground: f64,
    latency: f64,
    background: f64,
    /// That of the second card's own DAG.
    own: f64,
}

/// Throughputs with one card and with two at a background load, in percent of what a chain serves.
struct Row {
    percent: f64,
    load: f64,
    one: Served,
    two: Served,
}

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let bytes = parameters.count(&PACKET_BYTES) as u32;
    let mut rows = Vec::new();
    for &percent in parameters.all(&POOL_BACKGROUND_PERCENT) {
        let load = percent / 100.0 * parameters.value(&POOL_NT_GBPS);
        let (one, two) = (one_card(parameters, bytes, load)?, two_cards(parameters, bytes, load)?);
        rows.push(Row { percent, load, one, two });
    }
    check_sizes(&mut outcome, parameters)?;
    check_one_card(&mut outcome, parameters, &rows);
    check_two_cards(&mut outcome, parameters, &rows);
    check_distances(&mut outcome, parameters)?;
    outcome.plot = Some(plot(&rows));
    notes(&mut outcome);
    Ok(outcome)
}

fn plot(rows: &[Row]) -> Plot {
    let line =
        |of: fn(&Row) -> f64| rows.iter().map(|row| (row.percent, of(row))).collect::<Vec<_>>();
    let ours = [
        ("foreground, one card", line(|row| row.one.foreground)),
        ("foreground, two cards", line(|row| row.two.foreground)),
        ("background, one card", line(|row| row.one.background)),
        ("background, two cards", line(|row| row.two.background)),
        ("second card's own", line(|row| row.two.own)),
    ];
    let mut series: Vec<_> =
        ours.into_iter().map(|(name, points)| Series::ours(name, points)).collect();
    series.extend(PAPER.map(|(value, name)| {
        let points = rows.iter().map(|row| (row.percent, value)).collect();
        Series::paper(format!("{name} (authors)"), points)
    }));
    let x = "Background load (% of what a card's chain serves)";
    Plot { x, y: "Throughput (Gbit/s)", axis: Axis::Linear, series }
}

/// The authors' table: the foreground beside a background that is as much as the chain serves.
fn check_sizes(outcome: &mut FigureOutcome, parameters: &Parameters) -> Result<()> {
    let load = parameters.value(&POOL_NT_GBPS);
    let head = ["bytes", "one card", "authors'", "two cards", "authors'"];
    outcome.table.columns = head.map(String::from).to_vec();
    for bytes in parameters.all(&POOL_BYTES).iter().map(|bytes| *bytes as u32) {
        let ours = [one_card(parameters, bytes, load)?, two_cards(parameters, bytes, load)?];
        let kinds = [Expected::fitted, Expected::derived];
        let mut cells = vec![bytes.to_string()];
        for (((paper, name), ours), kind) in PAPER.into_iter().zip(ours).zip(kinds) {
            let expected = kind(Origin::Data, ExpectedBound::Share(paper, CELL));
            outcome.check(format!("{name}, {bytes} B"), "Gbit/s", expected, ours.foreground);
            cells.extend([number(ours.foreground), number(paper)]);
        }
        outcome.table.rows.push(cells);
    }
    Ok(())
}

/// One card: each gets what it sends, up to half of the chain and what the other leaves of its half.
fn check_one_card(outcome: &mut FigureOutcome, parameters: &Parameters, rows: &[Row]) {
    let (whole, sent) = (parameters.value(&POOL_NT_GBPS), parameters.value(&POOL_FOREGROUND_GBPS));
    let due = |own: f64, other: f64| own.min((whole - other).max(whole / 2.0));
    for Row { percent, load, one, .. } in rows {
        let fair = |value| Expected::predicted(Origin::Computed, ExpectedBound::Share(value, CELL));
        let what = format!("one card, background of {percent} %: foreground");
        outcome.check(what, "Gbit/s", fair(due(sent, *load)), one.foreground);
        if *load > 0.0 {
            let what = format!("one card, background of {percent} %: background");
            outcome.check(what, "Gbit/s", fair(due(*load, sent)), one.background);
        }
    }
}

/// Two cards: neither the foreground nor what is at home on the second card notices the background.
fn check_two_cards(outcome: &mut FigureOutcome, parameters: &Parameters, rows: &[Row]) {
    let thesis = |bound| Expected::predicted(Origin::Published, bound);
    let most_over_least = |of: fn(&Served) -> f64| {
        let all = rows.iter().map(|row| of(&row.two));
        all.clone().fold(0.0, f64::max) / all.fold(f64::INFINITY, f64::min)
    };
    let flat = thesis(ExpectedBound::Between(1.0, 1.01));
    let what = "two cards, the foreground's throughput: most over least";
    outcome.check(what, "×", flat, most_over_least(|two| two.foreground));
    // Both share a card with the background's packets, if not a chain: the home card passes them on, the other serves them.
    let flat = thesis(ExpectedBound::Between(1.0, 1.0 + CELL));
    let what = "two cards, the foreground's latency: most over least";
    outcome.check(what, "×", flat, most_over_least(|two| two.latency));
    let what = "two cards, the second one's own throughput: most over least";
    outcome.check(what, "×", flat, most_over_least(|two| two.own));
    let left = parameters.value(&POOL_NT_GBPS) - parameters.value(&POOL_OWN_GBPS);
    for row in rows.iter().filter(|row| row.load > 0.0) {
        let due =
            Expected::predicted(Origin::Computed, ExpectedBound::Share(row.load.min(left), CELL));
        let what = format!("two cards, background of {} %: background", row.percent);
        outcome.check(what, "Gbit/s", due, row.two.background);
    }
}

/// Latencies by the distance of the second card, in a ring and with a switch.
fn check_distances(outcome: &mut FigureOutcome, parameters: &Parameters) -> Result<()> {
    let cards = parameters.count(&POOL_CARDS) as usize;
    let all = |shape| -> Result<Vec<f64>> {
        (1..=cards / 2).map(|to| latency(parameters, shape, cards, to)).collect()
    };
    let (ring, switch) = (all(PoolShape::Ring)?, all(PoolShape::Switch)?);
    let steps = || ring.windows(2).map(|pair| pair[1] - pair[0]);
    let least = steps().fold(f64::INFINITY, f64::min);
    // Each card that is passed is two more cables, one there and one back: as much as a commodity switch takes at least.
    let grows = Expected::derived(Origin::Published, ExpectedBound::AtLeast(800.0));
    outcome.check("ring, one card farther: least more latency", "ns", grows, least);
    let most = switch.iter().copied().fold(0.0, f64::max);
    let ratio = most / switch.iter().copied().fold(f64::INFINITY, f64::min);
    let same = Expected::predicted(Origin::Published, ExpectedBound::Between(1.0, 1.001));
    outcome.check("switch, latency of the farthest over the nearest", "×", same, ratio);
    let list = |latencies: &[f64]| {
        latencies.iter().map(|nanos| format!("{nanos:.0}")).collect::<Vec<_>>().join(", ")
    };
    outcome.note(format!(
        "Latency of one packet of the remote chain by the distance of the card, 1 to {}, in ns: ring {}; switch {}. The passing frames' time on each cable is in it.",
        ring.len(),
        list(&ring),
        list(&switch),
    ));
    Ok(())
}

fn notes(outcome: &mut FigureOutcome) {
    outcome.note(
        "A DAG at home, the foreground, and a second one of another tenant, whose load grows from nothing to twice what the chain serves. With one card both use the chain of its one \
         region; with two the second one's packets cross a link to a chain on the other card, which has a DAG of its own, and come back. The cards are simulated cycle by cycle, \
         and so is the link. Each card has its own controller, which plans, loads, reads the counters and sets the token buckets in each epoch.",
    );
    outcome.note(
        "No planner places a chain on another card yet. The home card's controller has a second region for the background, whose rows are changed to lead to the link, and the other's row for \
         the guest is changed to take its packets. So which card serves it is an input; the figure shows what the data paths and the loops do then.",
    );
    outcome.note(
        "Inputs are the loads, promises, and capacity and latency of a link. What a chain serves is fitted: two tenants of equal weight that share it get the authors' 20 Gbit/s \
         each. The foreground's 30 with two cards is what it sends, so it is derived. Predicted are how the loop divides the one card at each load, that neither the foreground nor the second \
         card's own DAG notices the background, what the background gets there, and latency by distance. Packets come at random times (Poisson). Without rates, as an earlier form of this figure had it, loads \
         of fixed intervals lock in step at the full card, and the foreground has more or less by the size of packets. A packet is 32 bytes longer on the link.",
    );
    outcome.note(
        "The authors' table, data_dist_snic, has five rows, of 20 with one card and 30 with two in each; it names neither a unit nor the sizes of the packets, and not what the background \
         sends. Taken for Gbit/s, for the five sizes of the paper's Fig. 7, and with as much background as the chain serves.",
    );
}

fn profile(parameters: &Parameters, regions: usize) -> CardProfile {
    let links = LinkProfile {
        count: (parameters.count(&POOL_CARDS) - 1) as u8,
        capacity: parameters.gbps(&POOL_LINK_GBPS),
        latency_nanos: parameters.count(&POOL_LINK_NS) as u32,
    };
    let mut card = CardProfile { links: Some(links), ..parameters.core() };
    card.regions.truncate(regions);
    card
}

/// A card of so many regions on which the product has placed a chain for each tenant that was promised this.
fn placed(
    parameters: &Parameters,
    regions: usize,
    promises: &[f64],
) -> Result<(Testbed, Vec<DagView>)> {
    let serves = parameters.gbps(&POOL_NT_GBPS);
    let setup = Setup {
        card: profile(parameters, regions),
        options: PlaneOptions {
            rate_limits: parameters.value(&POOL_RATES) > 0.0,
            ..parameters.options()
        },
        nts: vec![nt(TASK, parameters.count(&DUMMY_CYCLES), serves)?],
        chains: vec![&[TASK]],
    };
    let mut testbed = Testbed::with_seed(&setup, parameters.count(&POOL_SEED))?;
    let fairness = Fairness {
        epoch: parameters.millis(&FIG14_EPOCH_MS),
        headroom_percent: 0,
        ..Fairness::default()
    };
    let autoscaling = Autoscaling { enabled: false, ..Autoscaling::default() };
    testbed.policies(ControllerSettings { fairness, autoscaling, ..Default::default() })?;
    // Policies take effect at the end of an epoch of the old ones.
    testbed.live(Fairness::default().epoch * 2, STEP)?;
    let mut dags = Vec::new();
    for (tenant, promise) in TENANTS.iter().zip(promises) {
        testbed.tenant(tenant, 1)?;
        let spec = DagSpec::chain(&[NtTypeId::new(TASK)?], gbps(*promise));
        dags.push(testbed.dag(tenant, "task", spec)?);
    }
    Ok((testbed, dags))
}

/// Has the chain of a DAG on another card.
fn send_away(home: &mut Testbed, dag: &DagView, link: u8, entry: u16) -> Result<()> {
    home.rewrite(|image| {
        let row = image.get::<DagRow>(dag.uid.row()).context("the DAG has a row")?;
        let stage = image.get::<StageRow>(row.first_stage).context("it has a stage")?;
        let chain = image.get::<ChainRow>(stage.chains[0]).context("the stage has a chain")?;
        for row in chain.first_instance..chain.first_instance + chain.instances {
            image.set(row, &InstanceRow::on_link(link, entry, 1))?;
        }
        Ok(())
    })
}

/// Has a DAG of this card serve a guest instead of its own packets.
fn serve_guest(other: &mut Testbed, dag: &DagView, link: u8, home: &DagView) -> Result<()> {
    other.rewrite(|image| {
        let row = image.get::<DagRow>(dag.uid.row()).context("the DAG has a row")?;
        let guest = Some(Guest { link, home_uid: home.uid.raw() });
        image.set(dag.uid.row(), &DagRow { guest, ..row })?;
        Ok(())
    })
}

fn source(dag: &DagView, bytes: u32, load: f64) -> TrafficSource {
    let source = TrafficSource::of_dag(dag.uid, gbps(load), Sizes::Fixed(bytes));
    TrafficSource { arrivals: Arrivals::Poisson, ..source }
}

fn region(dag: &DagView) -> Option<RegionId> {
    Some(dag.mapping.as_ref()?.instances().next()?.region)
}

fn one_card(parameters: &Parameters, bytes: u32, load: f64) -> Result<Served> {
    let (mut testbed, dags) = placed(parameters, 1, &[NEXT_TO_NOTHING; 2])?;
    let [foreground, background] = &dags[..] else { return Ok(Served::default()) };
    testbed.send(source(foreground, bytes, parameters.value(&POOL_FOREGROUND_GBPS)))?;
    if load > 0.0 {
        testbed.send(source(background, bytes, load))?;
    }
    testbed.live(parameters.millis(&POOL_SETTLE_MS), STEP)?;
    testbed.card.take_measurements();
    testbed.live(parameters.micros(&TIME_US), STEP)?;
    testbed.card.check().map_err(anyhow::Error::msg)?;
    Ok(served(&testbed.card.take_measurements(), &dags))
}

/// Measurements of a home card: foreground, and background.
fn served(measured: &Measurements, dags: &[DagView]) -> Served {
    let of = |at: usize| dags.get(at).and_then(|dag| measured.dag(dag.uid.row()));
    let throughput = |at: usize| of(at).map_or(0.0, |dag| dag.served.gbps_f64());
    Served {
        foreground: throughput(0),
        latency: of(0).map_or(0.0, |dag| dag.latency_mean_nanos()),
        background: throughput(1),
        own: 0.0,
    }
}

fn two_cards(parameters: &Parameters, bytes: u32, load: f64) -> Result<Served> {
    let (sent, own) = (parameters.value(&POOL_FOREGROUND_GBPS), parameters.value(&POOL_OWN_GBPS));
    let promised = parameters.value(&POOL_ASKED_GBPS);
    let (mut home, dags) = placed(parameters, 2, &[sent, promised])?;
    let (mut other, guests) = placed(parameters, 1, &[own, promised])?;
    let ([foreground, background], [of_other, guest]) = (&dags[..], &guests[..]) else {
        return Ok(Served::default());
    };
    ensure!(region(foreground) != region(background), "they share a region at home");
    let (links, cards) = (home.card.link_count(), parameters.count(&POOL_CARDS) as usize);
    send_away(&mut home, background, 0, guest.uid.row())?;
    serve_guest(&mut other, guest, links - 1, background)?;
    let mut rack = Rack::new(vec![home, other], cards, parameters)?;
    rack.pool.cut(0, 1, parameters.value(&POOL_CONNECTED) == 0.0);
    rack.pool.card(0).attach(source(foreground, bytes, sent))?;
    rack.pool.card(1).attach(source(of_other, bytes, own))?;
    if load > 0.0 {
        rack.pool.card(0).attach(source(background, bytes, load))?;
    }
    rack.live(parameters.millis(&POOL_SETTLE_MS))?;
    (0..2).for_each(|at| drop(rack.pool.card(at).take_measurements()));
    rack.live(parameters.micros(&TIME_US))?;
    rack.pool.check().map_err(anyhow::Error::msg)?;
    let measured = rack.pool.card(1).measurements();
    let own = measured.dag(of_other.uid.row()).map_or(0.0, |dag| dag.served.gbps_f64());
    Ok(Served { own, ..served(&rack.pool.card(0).measurements(), &dags) })
}

/// Cards with links, the first of which have a controller each.
struct Rack {
    beds: Vec<Testbed>,
    pool: CardPool,
}

impl Rack {
    fn new(mut beds: Vec<Testbed>, cards: usize, parameters: &Parameters) -> Result<Self> {
        let latest = beds.iter().map(Testbed::now).max().context("a rack has cards")?;
        let blank = || SimCard::new(profile(parameters, 1), 1);
        let mut all = Vec::new();
        for bed in &mut beds {
            bed.live(latest.since(bed.now()), STEP)?;
            all.push(std::mem::replace(&mut bed.card, blank()?));
        }
        for _ in all.len()..cards {
            all.push(blank()?);
        }
        Ok(Self { beds, pool: CardPool::new(all, PoolShape::Switch)? })
    }

    /// Moves the cards on, and then each controller over the same time: its card is lent to it, and has passed that time already.
    fn live(&mut self, time: Duration) -> Result<()> {
        let end = self.pool.now() + time;
        while self.pool.now() < end {
            self.pool.run_for(STEP);
            for (at, bed) in self.beds.iter_mut().enumerate() {
                std::mem::swap(self.pool.card(at), &mut bed.card);
                let lived = bed.live(STEP, STEP);
                std::mem::swap(self.pool.card(at), &mut bed.card);
                lived?;
            }
        }
        Ok(())
    }
}

/// Latency of one packet whose chain is on a card so far away, in nanoseconds.
fn latency(parameters: &Parameters, shape: PoolShape, cards: usize, to: usize) -> Result<f64> {
    let (mut home, dags) = placed(parameters, 1, &[NEXT_TO_NOTHING])?;
    let (mut other, guests) = placed(parameters, 1, &[NEXT_TO_NOTHING])?;
    let (dag, guest) = dags.first().zip(guests.first()).context("one on each card")?;
    send_away(&mut home, dag, (to - 1) as u8, guest.uid.row())?;
    serve_guest(&mut other, guest, (cards - to - 1) as u8, dag)?;
    let blank = |_| SimCard::new(profile(parameters, 1), 1);
    let mut all = (0..cards).map(blank).collect::<Result<Vec<_>, _>>()?;
    (all[0], all[to]) = (home.card, other.card);
    let mut pool = CardPool::new(all, shape)?;
    pool.card(0).take_measurements();
    let bytes = Sizes::Fixed(parameters.count(&PACKET_BYTES) as u32);
    pool.card(0).attach(TrafficSource::of_dag(dag.uid, gbps(NEXT_TO_NOTHING), bytes).at_most(1))?;
    pool.run_for(LONE);
    let measured = pool.card(0).measurements();
    let measured = measured.dag(dag.uid.row()).context("a packet went through")?;
    ensure!(measured.latency.count == 1, "it did not come back: {measured:?}");
    Ok(measured.latency_mean_nanos())
}
