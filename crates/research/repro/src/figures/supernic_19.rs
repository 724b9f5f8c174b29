//! Figs. 19 and 20: YCSB's workloads on a key-value store behind a slow link, with transport and cache on the card.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::outcome::{
    Axis, DataTable, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series, number,
};
use crate::parameters::{FIG19_CLIENTS, FIG19_OPERATIONS, FIG19_WARM_UP, Parameters};
use crate::ycsb::keys::{KeyChooser, che, first_in_first_out, first_in_first_out_pairs};
use crate::ycsb::{
    Arm, KeyValueNetwork, Load, PAPER_ARMS, RunInputs, WORKLOADS, YcsbMeasurement, YcsbWorkload,
};

/// Systems of the authors' data: ours first, in the order of `PAPER_ARMS`, then those that are inputs.
const SYSTEMS: [&str; 6] = ["Clio", "Clio-sNIC", "Clio-sNIC-$", "Clover", "HERD", "HERD-BF"];
/// Mean latencies of workloads A, B and C (`data_ycsb`), in µs.
pub(super) const LATENCIES: [[f64; 6]; 3] = [
    [7.67, 9.36, 6.18, 8.12, 7.14, 17.8],
    [7.37, 8.77, 4.31, 7.58, 8.09, 16.4],
    [7.22, 8.40, 4.10, 7.39, 8.47, 15.9],
];
/// Throughputs (`data_ycsb_throughput`), in the authors' Gbit/s.
const THROUGHPUTS: [[f64; 6]; 3] = [
    [7.77, 6.36, 9.63, 7.33, 8.3, 3.35],
    [8.08, 6.79, 13.81, 7.86, 7.36, 3.63],
    [8.24, 7.08, 14.54, 8.06, 7.03, 3.74],
];
const CLIO: usize = 0;
const TRANSPORT: usize = 1;
const BOTH: usize = 2;
const A: usize = 0;
const B: usize = 1;
/// The workload to which the cache was fitted.
const C: usize = 2;
/// The tolerance of a cell.
const CELL: f64 = 0.1;
/// Bits of the authors' Gbit: 8 operations of 1,000 B are 59.6 of them in a microsecond, as their cells have it.
const GIBI: f64 = 1_073_741_824.0;
/// Hit times that pairs are computed for, in µs.
const HIT_TIMES: [f64; 4] = [1.0, 1.5, 2.0, 3.0];

/// Results by workload, and there by arm.
type Grid = Vec<Vec<YcsbMeasurement>>;

/// Grids by the parameters of their runs: both figures are of the same runs.
static GRIDS: Mutex<BTreeMap<String, Grid>> = Mutex::new(BTreeMap::new());

pub(super) fn load(parameters: &Parameters, workload: YcsbWorkload) -> Load {
    Load {
        workload,
        clients: parameters.count(&FIG19_CLIENTS) as usize,
        warm_up: parameters.count(&FIG19_WARM_UP),
        operations: parameters.count(&FIG19_OPERATIONS),
        lost_ppm: 0.0,
    }
}

fn grid(parameters: &Parameters, bed: &RunInputs) -> Result<Grid> {
    let named = format!("{:?}", parameters.list());
    let mut grids = GRIDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(grid) = grids.get(&named) {
        return Ok(grid.clone());
    }
    let row = |workload| {
        let load = load(parameters, workload);
        let measured = |arm| {
            let measured = measure(parameters, bed, arm, load)?;
            Ok(YcsbMeasurement { made: Vec::new(), ..measured })
        };
        PAPER_ARMS.into_iter().map(measured).collect()
    };
    let grid: Grid = WORKLOADS.into_iter().map(row).collect::<Result<_>>()?;
    grids.insert(named, grid.clone());
    Ok(grid)
}

pub(super) fn measure(
    parameters: &Parameters,
    bed: &RunInputs,
    arm: Arm,
    load: Load,
) -> Result<YcsbMeasurement> {
    KeyValueNetwork::new(parameters, bed, arm, load)?
        .run()
        .with_context(|| format!("{} with workload {}", arm.name, load.workload.name))
}

/// The kind of a cell: the cache's size was fitted to one, and no other number to any.
fn cell(workload: usize, arm: usize, value: f64) -> Expected {
    let bound = ExpectedBound::Share(value, CELL);
    if workload == C && arm == BOTH {
        return Expected::fitted(Origin::Data, bound);
    }
    Expected::predicted(Origin::Data, bound)
}

/// Every cell beside the authors', and the order of every two systems.
fn compare(
    outcome: &mut FigureOutcome,
    grid: &Grid,
    data: &[[f64; 6]; 3],
    unit: &'static str,
    of: impl Fn(&YcsbMeasurement) -> f64,
) {
    let (mut same, mut pairs) = (0_u32, 0_u32);
    for ((at, row), published) in grid.iter().enumerate().zip(data) {
        let workload = WORKLOADS[at].name;
        let ours: Vec<f64> = row.iter().map(&of).collect();
        for (arm, value) in ours.iter().enumerate() {
            let what = format!("{workload}: {}", SYSTEMS[arm]);
            outcome.check(what, unit, cell(at, arm, published[arm]), *value);
        }
        let value = |system: usize| ours.get(system).copied().unwrap_or(published[system]);
        for one in 0..ours.len() {
            for other in one + 1..SYSTEMS.len() {
                let is_more = value(one) > value(other);
                pairs += 1;
                same += u32::from(is_more == (published[one] > published[other]));
            }
        }
    }
    let all = Expected::predicted(Origin::Data, ExpectedBound::Exact(pairs.into()));
    outcome.check("Pairs of systems in the authors' order", "pairs", all, same.into());
    compare_workloads(outcome, grid, data, of);
}

/// The order of every two workloads, system by system.
fn compare_workloads(
    outcome: &mut FigureOutcome,
    grid: &Grid,
    data: &[[f64; 6]; 3],
    of: impl Fn(&YcsbMeasurement) -> f64,
) {
    let orders = [(A, B), (A, C), (B, C)];
    for (arm, system) in SYSTEMS.iter().enumerate().take(PAPER_ARMS.len()) {
        let is_same = |(one, other): &(usize, usize)| {
            let ours = of(&grid[*one][arm]) > of(&grid[*other][arm]);
            ours == (data[*one][arm] > data[*other][arm])
        };
        let same = orders.iter().filter(|order| is_same(order)).count();
        let all = ExpectedBound::Exact(orders.len() as f64);
        let what = format!("{system}: pairs of workloads in the authors' order");
        let predicted = Expected::predicted(Origin::Data, all);
        outcome.check(what, "pairs", predicted, same as f64);
    }
}

pub(super) fn latency(parameters: &Parameters) -> Result<FigureOutcome> {
    let (mut outcome, bed) = (FigureOutcome::default(), RunInputs::new(parameters));
    let grid = grid(parameters, &bed)?;
    compare(&mut outcome, &grid, &LATENCIES, "µs", |cell| cell.mean_us);
    let adds = grid[C][TRANSPORT].mean_us / grid[C][CLIO].mean_us;
    let more = Expected::predicted(Origin::Data, ExpectedBound::AtLeast(1.0));
    outcome.check("C: transport alone over Clio", "", more, adds);
    outcome.plot = Some(plot("Mean latency (µs)", &grid, &LATENCIES, |cell| cell.mean_us));
    outcome.table = table(&grid, &bed);
    notes(&mut outcome);
    pairs_needed(&mut outcome, &grid, &bed);
    Ok(outcome)
}

/// Throughput as the authors count it.
fn gibibits(bed: &RunInputs, cell: &YcsbMeasurement) -> f64 {
    cell.rate * bed.value_bytes as f64 * 8.0 / GIBI
}

pub(super) fn throughput(parameters: &Parameters) -> Result<FigureOutcome> {
    let (mut outcome, bed) = (FigureOutcome::default(), RunInputs::new(parameters));
    let grid = grid(parameters, &bed)?;
    compare(&mut outcome, &grid, &THROUGHPUTS, "Gbit/s", |cell| gibibits(&bed, cell));
    let products = LATENCIES.iter().zip(&THROUGHPUTS).flat_map(|(us, gbps)| us.iter().zip(gbps));
    let (sum, cells) =
        products.fold((0.0, 0.0), |(sum, cells), (us, gbps)| (sum + us * gbps, cells + 1.0));
    let constant = Expected::derived(Origin::Data, ExpectedBound::Share(sum / cells, 0.01));
    let in_flight = gibibits(&bed, &grid[C][CLIO]) * grid[C][CLIO].mean_us;
    outcome.check("Latency times throughput", "µs Gbit/s", constant, in_flight);
    let full = Expected::predicted(Origin::Published, ExpectedBound::AtLeast(0.97));
    outcome.check("C: Clio's link is busy", "", full, grid[C][CLIO].link_busy);
    let most = Expected::predicted(Origin::Data, ExpectedBound::AtLeast(10.0));
    for at in [B, C] {
        let what = format!("{}: with the cache, more than the store's link", WORKLOADS[at].name);
        outcome.check(what, "Gbit/s", most, gibibits(&bed, &grid[at][BOTH]));
    }
    if !bed.moves_used {
        let popularities = KeyChooser::new(bed.keys, bed.ranks, bed.theta).popularities();
        let hits = first_in_first_out(&popularities, bed.cache_pairs as f64);
        let expected = Expected::predicted(Origin::Computed, ExpectedBound::Margin(hits, 0.015));
        outcome.check("C: reads that hit", "", expected, grid[C][BOTH].hit_rate());
    }
    let of = |cell: &YcsbMeasurement| gibibits(&bed, cell);
    outcome.plot = Some(plot("Throughput (Gbit/s)", &grid, &THROUGHPUTS, of));
    outcome.table = table(&grid, &bed);
    notes(&mut outcome);
    Ok(outcome)
}

fn plot(
    y: &'static str,
    grid: &Grid,
    data: &[[f64; 6]; 3],
    of: impl Fn(&YcsbMeasurement) -> f64,
) -> Plot {
    let names = WORKLOADS.iter().map(|workload| workload.name.to_owned()).collect();
    let bars =
        |arm: usize| (0..).zip(grid).map(|(at, row)| (f64::from(at), of(&row[arm]))).collect();
    let ours = (0..PAPER_ARMS.len()).map(|arm| Series::ours(SYSTEMS[arm], bars(arm)));
    let points =
        |system: usize| (0..).zip(data).map(|(at, row)| (f64::from(at), row[system])).collect();
    let paper = (0..SYSTEMS.len()).map(|at| Series::paper(SYSTEMS[at], points(at)));
    let series = ours.chain(paper).collect();
    Plot { x: "Workload", y, axis: Axis::Categories(names), series }
}

fn table(grid: &Grid, bed: &RunInputs) -> DataTable {
    let columns = [
        "workload",
        "system",
        "mean us",
        "authors' mean us",
        "Gbit/s",
        "authors' Gbit/s",
        "p99 us",
        "reads that hit",
    ];
    let mut rows = Vec::new();
    for (at, workload) in WORKLOADS.iter().enumerate() {
        for (system, name) in SYSTEMS.iter().enumerate() {
            let cell = grid[at].get(system);
            let ours = |of: &dyn Fn(&YcsbMeasurement) -> f64| {
                cell.map_or_else(|| "input".to_owned(), |cell| number(of(cell)))
            };
            rows.push(vec![
                workload.name.to_owned(),
                (*name).to_owned(),
                ours(&|cell| cell.mean_us),
                number(LATENCIES[at][system]),
                ours(&|cell| gibibits(bed, cell)),
                number(THROUGHPUTS[at][system]),
                ours(&|cell| cell.p99_us),
                ours(&YcsbMeasurement::hit_rate),
            ]);
        }
    }
    DataTable { columns: columns.map(str::to_owned).into(), rows }
}

/// The time of a hit, of a miss, and the cache that the authors' 4.10 µs need for other times of a hit.
fn pairs_needed(outcome: &mut FigureOutcome, grid: &Grid, bed: &RunInputs) {
    let (both, miss) = (&grid[C][BOTH], grid[C][TRANSPORT].mean_us);
    let hits = both.hit_rate();
    let ours = (both.mean_us - (1.0 - hits) * miss) / hits;
    let plain = KeyChooser::new(bed.keys, bed.keys as f64, bed.theta).popularities();
    let mut lines = Vec::new();
    for hit in HIT_TIMES {
        let mean = |hits: f64| miss - (miss - hit) * hits;
        let needed = (miss - LATENCIES[C][BOTH]) / (miss - hit);
        let pairs = first_in_first_out_pairs(&plain, needed);
        let used_last = mean(che(&plain, pairs));
        let (hit, pairs) = (number(hit), pairs.round());
        let needed = (needed * 100.0).round();
        lines.push(format!(
            "hits of {hit} µs need {needed} % of the reads and {pairs} pairs, with which the order of use gives {} µs",
            number(used_last)
        ));
    }
    outcome.note(format!(
        "For the authors' 4.10 µs, with reads that miss taking {} µs and plain Zipf's law: {}. A hit takes {} µs here: two crossings of the switch \
         (0.8 to 1 µs each by the paper), one way through the card (1.3 µs) and what a client takes. Two crossings and the card alone are 2.9 to 3.3 µs, so by \
         the published times no cache of a few thousand pairs can have given 4.10 µs, still less the 192 pairs of 48 block RAMs: the authors' cache \
         held most of the data, or all of it, which is a hundredth of the board's memory. Reads took them 4.1 µs in all three workloads and writes 8.3 µs in both \
         that write. With all pairs held nothing is evicted, so neither the popularity of keys nor the order of eviction is a cause of this figure.",
        number(miss),
        lines.join("; "),
        number(ours),
    ));
}

fn notes(outcome: &mut FigureOutcome) {
    outcome.note(
        "Beside the authors' own numbers, the tables behind the plots of the thesis. In all 18 cells latency times throughput is the same, \
         59.5 µs Gbit/s: a closed loop with 8 operations of 1,000 B, if a Gbit is 2^30 bits. Clover, HERD and HERD on BlueField are other systems, \
         whose numbers are inputs.",
    );
    outcome.note(
        "Frames have bytes: memcached's protocol over UDP, through the product's transport on the simulated card's clock. Each value that is \
         read is compared with what was written. The cache is a model of the paper's, which keeps pairs that were written, too, and evicts the oldest; the \
         product's cache gives a pair up when it is written, and the figure ycsb-crowd has it.",
    );
    outcome.note(
        "One number is fitted to a cell of these figures, the size of the cache, to Clio-sNIC-$ with C. Three are fitted to tables of Clio alone (thesis-clio), none of whose cells is one of these: \
         that a write is answered before its value is moved; the store's time, 1,420 ns, to one thread that writes values of 1,024 bytes; and how much longer the store moves a value that is written, 1.11 times, to A beside C with \
         16 operations and more under way (six rows, 0.90 to 1.21). The reads of the same table would give 1,510 ns, with which Clio-sNIC takes 8.49 µs of C, a \
         little more than HERD's 8.47 instead of less.",
    );
    outcome.note(
        "With the store's time that Clio's published median leaves (350 ns) Clio-sNIC is limited by the link as Clio is, 13 to 15 % too fast. Clio \
         itself is limited by its board, which moves a value at a time at 10 Gbit/s, in either direction: with a link in each direction A would \
         be served fastest, and the authors have it slowest. Clio-sNIC stays 7 % under the authors' with A, its cell that is farthest from theirs.",
    );
}
