//! The thesis's pool: a chain without room at home runs on a second card, and what was at home is served as before.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use snic_card_sim::{CardPool, PlaneOptions, PoolShape, SimCard, Sizes, TrafficSource};
use snic_controller::DagView;
use snic_domain::{CardProfile, LinkProfile, RegionId};
use snic_ports::card::Registers;
use snic_tables::registers::{COMMIT, COMMIT_IDLE, COMMIT_STATUS, TABLE_VERSION, shadow_row};
use snic_tables::{ChainRow, DagRow, Guest, InstanceRow, StageRow, TableImage};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{
    DUMMY_CYCLES, FIG7_BYTES, PACKET_BYTES, POOL_ASKED_GBPS, POOL_BACKGROUND_PERCENT, POOL_CARDS,
    POOL_CONNECTED, POOL_FOREGROUND_GBPS, POOL_LINK_GBPS, POOL_LINK_NS, POOL_NT_GBPS,
    POOL_OWN_GBPS, Parameters, TIME_US, WARM_UP_US, gbps,
};
use crate::testbed::{Setup, Testbed, nt};

/// The foreground in Gbit/s with one card and with two, the same in each of the authors' five rows.
const PAPER: [(f64, &str); 2] = [(20.0, "foreground, one card"), (30.0, "foreground, two cards")];
/// Background with which packets of all sizes are sent, in percent.
const FULL: f64 = 100.0;
/// The name of the NT.
const TASK: &str = "task";
/// Cycles after which a commit has copied its rows.
const COMMIT_CYCLES: u64 = 10_000;

/// Throughputs in Gbit/s, and the foreground's mean latency in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Served {
    foreground: f64,
    latency: f64,
    background: f64,
    /// That of the second card's own DAG.
    own: f64,
}

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let loads = parameters.all(&POOL_BACKGROUND_PERCENT);
    let mut rows = Vec::new();
    for &percent in loads {
        let load = percent / 100.0 * parameters.value(&POOL_NT_GBPS);
        let bytes = parameters.count(&PACKET_BYTES) as u32;
        let (one, two) = (one_card(parameters, bytes, load)?, two_cards(parameters, bytes, load)?);
        rows.push((percent, one, two));
    }
    check_sizes(&mut outcome, parameters)?;
    check_loads(&mut outcome, parameters, &rows);
    let distances = distances(parameters, &mut outcome)?;
    let line = |of: &dyn Fn(&(f64, Served, Served)) -> f64| {
        rows.iter().map(|row| (row.0, of(row))).collect::<Vec<_>>()
    };
    let ours = [
        ("foreground, one card", line(&|(_, one, _)| one.foreground)),
        ("foreground, two cards", line(&|(.., two)| two.foreground)),
        ("background, one card", line(&|(_, one, _)| one.background)),
        ("background, two cards", line(&|(.., two)| two.background)),
        ("second card's own", line(&|(.., two)| two.own)),
    ];
    let mut series: Vec<_> =
        ours.into_iter().map(|(name, points)| Series::ours(name, points)).collect();
    series.extend(PAPER.map(|(value, name)| {
        Series::paper(
            format!("{name} (authors)"),
            loads.iter().map(|percent| (*percent, value)).collect(),
        )
    }));
    let x = "Background load (% of what a card's chain serves)";
    outcome.plot = Some(Plot { x, y: "Throughput (Gbit/s)", axis: Axis::Linear, series });
    notes(&mut outcome, &distances);
    Ok(outcome)
}

/// The authors' table: the foreground beside a background, by the size of packets.
fn check_sizes(outcome: &mut FigureOutcome, parameters: &Parameters) -> Result<()> {
    let load = FULL / 100.0 * parameters.value(&POOL_NT_GBPS);
    for bytes in parameters.all(&FIG7_BYTES).iter().map(|bytes| *bytes as u32) {
        let ours = [one_card(parameters, bytes, load)?, two_cards(parameters, bytes, load)?];
        let kinds = [Expected::fitted, Expected::predicted];
        for (((paper, name), ours), kind) in PAPER.into_iter().zip(ours).zip(kinds) {
            let expected = kind(Origin::Data, ExpectedBound::Share(paper, 0.03));
            outcome.check(format!("{name}, {bytes} B"), "Gbit/s", expected, ours.foreground);
        }
    }
    Ok(())
}

fn check_loads(
    outcome: &mut FigureOutcome,
    parameters: &Parameters,
    rows: &[(f64, Served, Served)],
) {
    let thesis = |bound| Expected::predicted(Origin::Published, bound);
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
    let spread = |of: &dyn Fn(&Served) -> f64| {
        let all = rows.iter().map(|(.., two)| of(two));
        all.clone().fold(0.0, f64::max) / all.fold(f64::INFINITY, f64::min)
    };
    let flat = thesis(ExpectedBound::Between(1.0, 1.01));
    let what = "two cards, the foreground's throughput: most over least";
    outcome.check(what, "×", flat, spread(&|two| two.foreground));
    let what = "two cards, the second one's own throughput: most over least";
    outcome.check(what, "×", flat, spread(&|two| two.own));
    let what = "two cards, the foreground's latency: most over least";
    outcome.check(what, "×", flat, spread(&|two| two.latency));
    let lost = thesis(ExpectedBound::AtMost(0.9));
    let what = "one card, the foreground with the largest background, of that without";
    outcome.check(what, "×", lost, last.1.foreground / first.1.foreground);
    // What the second card promises to the guest, or what comes.
    let promised = parameters.value(&POOL_ASKED_GBPS);
    for (percent, _, two) in rows.iter().filter(|(percent, ..)| *percent > 0.0) {
        let load = percent / 100.0 * parameters.value(&POOL_NT_GBPS);
        let due = thesis(ExpectedBound::AtLeast(0.97));
        let what =
            format!("two cards, background of {percent} %: served, of what is promised there");
        outcome.check(what, "×", due, two.background / load.min(promised));
    }
}

/// Latencies in nanoseconds by the distance of the second card, in a ring and with a switch.
fn distances(parameters: &Parameters, outcome: &mut FigureOutcome) -> Result<[Vec<f64>; 2]> {
    let cards = parameters.count(&POOL_CARDS) as usize;
    let all = |shape| -> Result<Vec<f64>> {
        (1..=cards / 2).map(|to| latency(parameters, shape, cards, to)).collect()
    };
    let (ring, switch) = (all(PoolShape::Ring)?, all(PoolShape::Switch)?);
    let steps = || ring.windows(2).map(|pair| pair[1] - pair[0]);
    let grows = Expected::predicted(Origin::Published, ExpectedBound::AtLeast(500.0));
    let least = steps().fold(f64::INFINITY, f64::min);
    outcome.check("ring, one card farther: least more latency", "ns", grows, least);
    let most = switch.iter().copied().fold(0.0, f64::max);
    let ratio = most / switch.iter().copied().fold(f64::INFINITY, f64::min);
    let same = Expected::predicted(Origin::Published, ExpectedBound::Between(1.0, 1.001));
    outcome.check("switch, latency of the farthest over the nearest", "×", same, ratio);
    Ok([ring, switch])
}

fn notes(outcome: &mut FigureOutcome, [ring, switch]: &[Vec<f64>; 2]) {
    outcome.note(
        "A DAG at home, the foreground, and a second one whose load grows from nothing to twice what the chain serves. With one card both use the chain of one \
         region; with two the second one's packets cross a link to a chain on the other card, which has a DAG of its own, and come back. The cards are simulated cycle by cycle, \
         and so is the link. Where each DAG goes on its card, loads, rows and token buckets are the product's planner's, controller's and driver's; \
         that the chain is on another card is written into the rows here, as no planner places so yet.",
    );
    outcome.note(
        "Inputs are the loads, what the second card promises, and capacity and latency of a link. What the chain serves is fitted: two DAGs that take turns at it get the authors' 20 Gbit/s \
         each. That the foreground then has 30 with two cards is what it sends. The home card passes packets without rates, as the \
         paper's data plane does, so what the background takes at home it takes from the foreground. The second card keeps the product's promises: guests get what was \
         promised to them there, and no more. A packet is 32 bytes longer on the link.",
    );
    outcome.note(
        "The authors' table, data_dist_snic, has five rows, of 20 with one card and 30 with two in each; it names neither a unit nor the sizes of the packets, and not what the background \
         sends. Taken for Gbit/s, for the five sizes of the paper's Fig. 7, and with as much background as the chain serves.",
    );
    let list = |latencies: &[f64]| {
        latencies.iter().map(|nanos| format!("{:.0}", nanos)).collect::<Vec<_>>().join(", ")
    };
    outcome.note(format!(
        "Latency of one packet of the remote chain by the distance of the card, 1 to {}, in ns: ring {}; switch {}. The passing frames' time on each cable is in it.",
        ring.len(),
        list(ring),
        list(switch),
    ));
}

fn profile(parameters: &Parameters) -> CardProfile {
    let links = LinkProfile {
        count: (parameters.count(&POOL_CARDS) - 1) as u8,
        capacity: parameters.gbps(&POOL_LINK_GBPS),
        latency_nanos: parameters.count(&POOL_LINK_NS) as u32,
    };
    CardProfile { links: Some(links), ..parameters.core() }
}

/// A card on which the product has placed chains of one NT, each with this bandwidth.
fn placed(
    parameters: &Parameters,
    rate_limits: bool,
    dags: &[(&str, f64)],
) -> Result<(SimCard, Vec<DagView>)> {
    let setup = Setup {
        card: profile(parameters),
        options: PlaneOptions { rate_limits, ..parameters.options() },
        nts: vec![nt(TASK, parameters.count(&DUMMY_CYCLES), parameters.gbps(&POOL_NT_GBPS))?],
        chains: vec![&[TASK]],
    };
    let mut testbed = Testbed::new(&setup)?;
    let mut views = Vec::new();
    for (id, asked) in dags {
        views.push(testbed.chain(id, &[TASK], gbps(*asked))?);
    }
    let Testbed { card, .. } = testbed;
    Ok((card, views))
}

/// Changes rows of a card and commits them.
fn rewrite(card: &mut SimCard, change: impl FnOnce(&mut TableImage) -> Result<()>) -> Result<()> {
    let active = card.active_tables();
    let mut target = active.clone();
    change(&mut target)?;
    for (key, words) in active.delta_to(&target).rows() {
        card.write_block(shadow_row(key).context("a row of the card")?, words)?;
    }
    let version = card.read(TABLE_VERSION)?;
    card.write(COMMIT, version + 1)?;
    card.run_for(COMMIT_CYCLES);
    let now = (card.read(TABLE_VERSION)?, card.read(COMMIT_STATUS)?);
    ensure!(now == (version + 1, COMMIT_IDLE), "the card refuses the rows: {now:?}");
    Ok(())
}

/// Has the chain of a DAG on another card.
fn send_away(card: &mut SimCard, dag: &DagView, link: u8, entry: u16) -> Result<()> {
    rewrite(card, |image| {
        let row = image.get::<DagRow>(dag.uid.row()).context("the DAG has a row")?;
        let stage = image.get::<StageRow>(row.first_stage).context("it has a stage")?;
        let chain = image.get::<ChainRow>(stage.chains[0]).context("the stage has a chain")?;
        let instances = chain.first_instance..chain.first_instance + chain.instances;
        for row in instances {
            image.set(row, &InstanceRow::on_link(link, entry, 1))?;
        }
        Ok(())
    })
}

/// Has a DAG of this card serve a guest instead of its own packets.
fn serve_guest(card: &mut SimCard, dag: &DagView, link: u8, home: &DagView) -> Result<()> {
    rewrite(card, |image| {
        let row = image.get::<DagRow>(dag.uid.row()).context("the DAG has a row")?;
        let guest = Some(Guest { link, home_uid: home.uid.raw() });
        image.set(dag.uid.row(), &DagRow { guest, ..row })?;
        Ok(())
    })
}

fn source(dag: &DagView, bytes: u32, load: f64) -> TrafficSource {
    TrafficSource::of_dag(dag.uid, gbps(load), Sizes::Fixed(bytes))
}

fn region(dag: &DagView) -> Option<RegionId> {
    Some(dag.mapping.as_ref()?.instances().next()?.region)
}

fn one_card(parameters: &Parameters, bytes: u32, load: f64) -> Result<Served> {
    let asked = parameters.value(&POOL_FOREGROUND_GBPS);
    let (mut card, dags) =
        placed(parameters, false, &[("foreground", 1.0), ("background", 1.0)])?;
    let [foreground, background] = &dags[..] else { return Ok(Served::default()) };
    ensure!(region(foreground) == region(background), "they do not share a region");
    card.attach(source(foreground, bytes, asked))?;
    if load > 0.0 {
        card.attach(source(background, bytes, load))?;
    }
    let cycles = |time: Duration| (time.as_nanos() as f64 / parameters.nanos_per_cycle()) as u64;
    card.run_for(cycles(parameters.micros(&WARM_UP_US)));
    card.take_measurements();
    card.run_for(cycles(parameters.micros(&TIME_US)));
    card.check().map_err(anyhow::Error::msg)?;
    Ok(served(&card, &dags))
}

/// Measurements of a home card: foreground, and background.
fn served(card: &SimCard, dags: &[DagView]) -> Served {
    let measured = card.measurements();
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
    let asked = parameters.value(&POOL_FOREGROUND_GBPS);
    let own = parameters.value(&POOL_OWN_GBPS);
    let promised = parameters.value(&POOL_ASKED_GBPS);
    let (mut home, dags) =
        placed(parameters, false, &[("foreground", asked), ("background", 1.0)])?;
    let (mut other, guests) = placed(parameters, true, &[("own", own), ("guest", promised)])?;
    let ([foreground, background], [of_other, guest]) = (&dags[..], &guests[..]) else {
        return Ok(Served::default());
    };
    ensure!(region(of_other) == region(guest), "they do not share a region");
    let (links, cards) = (home.link_count(), parameters.count(&POOL_CARDS) as usize);
    send_away(&mut home, background, 0, guest.uid.row())?;
    serve_guest(&mut other, guest, links - 1, background)?;
    let blank = |_| SimCard::new(profile(parameters), 1);
    let rest = (2..cards).map(blank).collect::<Result<Vec<_>, _>>()?;
    let all = [home, other].into_iter().chain(rest).collect();
    let mut pool = CardPool::new(all, PoolShape::Switch)?;
    pool.cut(0, 1, parameters.value(&POOL_CONNECTED) == 0.0);
    pool.card(0).attach(source(foreground, bytes, asked))?;
    pool.card(1).attach(source(of_other, bytes, own))?;
    if load > 0.0 {
        pool.card(0).attach(source(background, bytes, load))?;
    }
    pool.run_for(parameters.micros(&WARM_UP_US));
    (0..2).for_each(|at| drop(pool.card(at).take_measurements()));
    pool.run_for(parameters.micros(&TIME_US));
    pool.check().map_err(anyhow::Error::msg)?;
    let measured = pool.card(1).measurements();
    let own = measured.dag(of_other.uid.row()).map_or(0.0, |dag| dag.served.gbps_f64());
    Ok(Served { own, ..served(pool.card(0), &dags) })
}

/// Latency of one packet whose chain is on a card so far away, in nanoseconds.
fn latency(parameters: &Parameters, shape: PoolShape, cards: usize, to: usize) -> Result<f64> {
    let (mut home, dags) = placed(parameters, false, &[("remote", 1.0)])?;
    let (mut other, guests) = placed(parameters, false, &[("guest", 1.0)])?;
    let (dag, guest) = dags.first().zip(guests.first()).context("one on each card")?;
    send_away(&mut home, dag, (to - 1) as u8, guest.uid.row())?;
    serve_guest(&mut other, guest, (cards - to - 1) as u8, dag)?;
    let mut all =
        (0..cards).map(|_| SimCard::new(profile(parameters), 1)).collect::<Result<Vec<_>, _>>()?;
    (all[0], all[to]) = (home, other);
    let mut pool = CardPool::new(all, shape)?;
    pool.card(0).take_measurements();
    pool.card(0).attach(source(dag, parameters.count(&PACKET_BYTES) as u32, 0.1).at_most(1))?;
    pool.run_for(Duration::from_micros(100));
    let measured = pool.card(0).measurements();
    let measured = measured.dag(dag.uid.row()).context("a packet went through")?;
    ensure!(measured.latency.count == 1, "it did not come back: {measured:?}");
    Ok(measured.latency_mean_nanos())
}
