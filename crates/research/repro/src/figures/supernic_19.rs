//! Figs. 19 and 20: YCSB's workloads on a key-value store behind a slow link, with transport and cache on the card.

use anyhow::{Context, Result};

use crate::outcome::{
    Axis, DataTable, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series, number,
};
use crate::parameters::{
    FIG19_CLIENTS, FIG19_LOST_PPM, FIG19_OPERATIONS, FIG19_WARM_UP, Parameters,
};
use crate::ycsb::keys::{KeyChooser, che};
use crate::ycsb::{
    ARMS, Arm, KeyValueNetwork, Load, RunInputs, WORKLOADS, YcsbMeasurement, YcsbWorkload,
};

const CLIO: usize = 0;
const TRANSPORT: usize = 1;
const CACHE: usize = 2;
const BOTH: usize = 3;

/// Factor that counts as more throughput, where most operations read.
const MORE: f64 = 1.05;

/// Results of an arm and a workload: with all clients, and with one.
struct Cell {
    loaded: YcsbMeasurement,
    /// Not in Fig. 20.
    alone: Option<YcsbMeasurement>,
}

/// Results by workload, and there by arm.
type Grid = Vec<(YcsbWorkload, Vec<Cell>)>;

fn load(parameters: &Parameters, workload: YcsbWorkload) -> Load {
    Load {
        workload,
        clients: parameters.count(&FIG19_CLIENTS) as usize,
        warm_up: parameters.count(&FIG19_WARM_UP),
        operations: parameters.count(&FIG19_OPERATIONS),
        lost_ppm: 0.0,
    }
}

/// One client needs few operations: it meets nobody.
fn alone(load: Load) -> Load {
    Load { clients: 1, warm_up: load.warm_up / 2, operations: load.operations / 20, ..load }
}

fn grid(parameters: &Parameters, bed: &RunInputs, has_alone: bool) -> Result<Grid> {
    let measure = |arm, load| measure(parameters, bed, arm, load);
    let cell = |workload, arm| {
        let load = load(parameters, workload);
        let alone = has_alone.then(|| measure(arm, alone(load))).transpose()?;
        Ok(Cell { loaded: measure(arm, load)?, alone })
    };
    let row = |workload| ARMS.into_iter().map(|arm| cell(workload, arm)).collect::<Result<_>>();
    WORKLOADS.into_iter().map(|workload| Ok((workload, row(workload)?))).collect()
}

fn measure(
    parameters: &Parameters,
    bed: &RunInputs,
    arm: Arm,
    load: Load,
) -> Result<YcsbMeasurement> {
    KeyValueNetwork::new(parameters, bed, arm, load)?
        .run()
        .with_context(|| format!("{} with workload {}", arm.name, load.workload.name))
}

const fn in_words(bound: ExpectedBound) -> Expected {
    Expected::predicted(Origin::Published, bound)
}

/// Relations that the paper states for each workload: both NTs beside Clio and the transport, and the transport beside Clio.
fn relations(
    outcome: &mut FigureOutcome,
    grid: &Grid,
    of: impl Fn(&Cell) -> f64,
    bounds: impl Fn(YcsbWorkload) -> (ExpectedBound, ExpectedBound),
) {
    for (workload, cells) in grid {
        let (best, alone) = bounds(*workload);
        let mut check = |what: &str, bound, arm: usize, other: usize| {
            let what = format!("{}: {what}", workload.name);
            outcome.check(what, "", in_words(bound), of(&cells[arm]) / of(&cells[other]));
        };
        check("transport and cache over Clio", best, BOTH, CLIO);
        check("transport and cache over transport alone", best, BOTH, TRANSPORT);
        check("transport alone over Clio", alone, TRANSPORT, CLIO);
    }
}

pub(super) fn latency(parameters: &Parameters) -> Result<FigureOutcome> {
    let (mut outcome, bed) = (FigureOutcome::default(), RunInputs::new(parameters));
    let grid = grid(parameters, &bed, true)?;
    relations(
        &mut outcome,
        &grid,
        |cell| cell.loaded.mean_us,
        |_| (ExpectedBound::AtMost(1.0), ExpectedBound::AtMost(1.15)),
    );
    let (workload, cells) = grid.last().context("there are workloads")?;
    let alone = |arm: usize| cells[arm].alone.as_ref().map(|alone| alone.mean_us);
    let adds = alone(TRANSPORT).zip(alone(CLIO)).context("both were measured")?;
    let adds = adds.0 - adds.1;
    // Two ways through the card of 1.3 µs each, and what the NT and another link take.
    let twice = Expected::derived(Origin::Published, ExpectedBound::Share(2.6, 0.15));
    let what = format!("{}: one client, what the card adds to a round trip", workload.name);
    outcome.check(what, "µs", twice, adds);
    outcome.plot = Some(plot("Mean latency (µs)", &grid, |cell| cell.loaded.mean_us));
    outcome.table = table(&grid);
    notes(&mut outcome);
    outcome.note(
        "A client alone shows the other side: it never fills the store's link, and the two ways through the card, 1.1 µs \
         of each in PHY and MAC, cost more than a hit saves of store and link. Then Clio without a card is fastest.",
    );
    Ok(outcome)
}

pub(super) fn throughput(parameters: &Parameters) -> Result<FigureOutcome> {
    let (mut outcome, bed) = (FigureOutcome::default(), RunInputs::new(parameters));
    let grid = grid(parameters, &bed, false)?;
    relations(
        &mut outcome,
        &grid,
        |cell| cell.loaded.rate,
        |workload| {
            // Where half of all operations write, few reads hit.
            let least = if workload.reads_percent > 50 { MORE } else { 1.0 };
            (ExpectedBound::AtLeast(least), ExpectedBound::AtLeast(0.9))
        },
    );
    let (_, cells) = grid.last().context("there are workloads")?;
    let full = Expected::predicted(Origin::Published, ExpectedBound::AtLeast(0.97));
    outcome.check("C: Clio's link is busy", "", full, cells[CLIO].loaded.link_busy);
    let popularities = KeyChooser::new(bed.keys, bed.ranks, bed.theta).popularities();
    let hits = che(&popularities, bed.cache_pairs as f64);
    let expected = Expected::predicted(Origin::Computed, ExpectedBound::Margin(hits, 0.015));
    outcome.check(
        "C: reads that hit, with cache alone",
        "",
        expected,
        cells[CACHE].loaded.hit_rate(),
    );
    outcome.check(
        "C: reads that hit, with transport and cache",
        "",
        expected,
        cells[BOTH].loaded.hit_rate(),
    );
    // What hits is not sent over the link.
    let saved =
        Expected::predicted(Origin::Computed, ExpectedBound::Share(1.0 / (1.0 - hits), 0.03));
    let gain = cells[BOTH].loaded.rate / cells[TRANSPORT].loaded.rate;
    outcome.check("C: what the cache gains, of what hits save", "", saved, gain);
    lose(&mut outcome, parameters, &bed)?;
    outcome.plot =
        Some(plot("Throughput (million operations/s)", &grid, |cell| cell.loaded.rate / 1e6));
    outcome.table = table(&grid);
    notes(&mut outcome);
    outcome.note(
        "Hits are what a real cache of that size gives: the expected rate is Che's approximation for the popularity of YCSB's keys. \
         YCSB draws from 10^10 ranks and hashes them to 100,000 keys, so that two fifths of its operations are spread evenly; with \
         Zipf's law over the keys themselves (fig19.ranks=100000) more hit.",
    );
    Ok(outcome)
}

/// Where the switch loses frames, the transport completes all operations, and without it some are never answered.
fn lose(outcome: &mut FigureOutcome, parameters: &Parameters, bed: &RunInputs) -> Result<()> {
    let load = load(parameters, WORKLOADS[0]);
    let operations = load.operations.min(10_000);
    let load = Load { operations, lost_ppm: parameters.value(&FIG19_LOST_PPM), ..load };
    for (arm, bound) in [(BOTH, ExpectedBound::Exact(0.0)), (CACHE, ExpectedBound::AtLeast(1.0))] {
        let lost = measure(parameters, bed, ARMS[arm], load)?.lost;
        let expected = Expected::predicted(Origin::Shape, bound);
        let what = format!("A, where frames are lost: unanswered with {}", ARMS[arm].name);
        outcome.check(what, "operations", expected, lost as f64);
    }
    Ok(())
}

fn plot(y: &'static str, grid: &Grid, of: fn(&Cell) -> f64) -> Plot {
    let names = grid.iter().map(|(workload, _)| workload.name.to_owned()).collect();
    let bars = |arm: usize| {
        (0..).zip(grid).map(|(at, (_, cells))| (f64::from(at), of(&cells[arm]))).collect()
    };
    let series = (0..ARMS.len()).map(|arm| Series::ours(ARMS[arm].name, bars(arm))).collect();
    Plot { x: "Workload", y, axis: Axis::Categories(names), series }
}

fn table(grid: &Grid) -> DataTable {
    let columns = [
        "workload",
        "arm",
        "operations/s",
        "mean us",
        "p99 us",
        "reads that hit",
        "store's link busy",
        "one client: mean us",
    ];
    let mut rows = Vec::new();
    for (workload, cells) in grid {
        for (arm, cell) in ARMS.iter().zip(cells) {
            let Cell { loaded, alone } = cell;
            rows.push(vec![
                workload.name.to_owned(),
                arm.name.to_owned(),
                number(loaded.rate.round()),
                number(loaded.mean_us),
                number(loaded.p99_us),
                number(loaded.hit_rate()),
                number(loaded.link_busy),
                alone.as_ref().map_or_else(String::new, |alone| number(alone.mean_us)),
            ]);
        }
    }
    DataTable { columns: columns.map(str::to_owned).into(), rows }
}

fn notes(outcome: &mut FigureOutcome) {
    outcome.note(
        "The paper says in words what is compared here: with the cache sNIC is best, the transport alone adds a small \
         overhead to Clio, and the reason is the 10 Gbit/s of Clio's board. It prints no numbers, no number of clients \
         and no times of hosts; Clover, HERD and BlueField are other systems that are not modelled. That 15 % more \
         latency and 10 % less throughput are a small overhead, and 5 % more throughput is more, was chosen here. The transport alone \
         serves 10 to 16 % more than Clio does: each of its acknowledgements is a frame, and with the transport's end on the card \
         those leave the store's link.",
    );
    outcome.note(
        "Frames have bytes: memcached's protocol over UDP, through the NTs of the software card on the simulated card's \
         clock. The transport runs between clients and card, without a card between clients and store. Each value that is \
         read is compared with what was written. With both NTs, clients and store have a DAG each, as two functions of the \
         software card do, and a frame passes the card's core twice.",
    );
    outcome.note(
        "The paper's cache keeps pairs that were written, too. Ours takes a pair out when it is written and fills it with the \
         next read, so that nobody reads a value older than a write; with workload A, where half of all operations write, fewer reads hit.",
    );
}
