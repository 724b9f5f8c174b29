//! YCSB's workloads by many clients, through the product's own transport and cache: what Figs. 19 and 20 would show if the store's
//! link were full.

use anyhow::{Context, Result};

use super::supernic_19::measure;
use crate::outcome::{
    Axis, DataTable, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series, number,
};
use crate::parameters::{
    CROWD_CLIENTS, CROWD_LOST_PPM, CROWD_OPERATIONS, CROWD_WARM_UP, Parameters,
};
use crate::ycsb::keys::{KeyChooser, che};
use crate::ycsb::{ARMS, Load, RunInputs, WORKLOADS, YcsbMeasurement, YcsbWorkload};

const CLIO: usize = 0;
const TRANSPORT: usize = 1;
const CACHE: usize = 2;
const BOTH: usize = 3;

/// Results by workload, and there by arm.
type Grid = Vec<(YcsbWorkload, Vec<YcsbMeasurement>)>;

fn load(parameters: &Parameters, workload: YcsbWorkload) -> Load {
    Load {
        workload,
        clients: parameters.count(&CROWD_CLIENTS) as usize,
        warm_up: parameters.count(&CROWD_WARM_UP),
        operations: parameters.count(&CROWD_OPERATIONS),
        lost_ppm: 0.0,
    }
}

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let (mut outcome, bed) = (FigureOutcome::default(), RunInputs::of_crowd(parameters));
    let row = |workload| {
        let load = load(parameters, workload);
        let row = ARMS.into_iter().map(|arm| measure(parameters, &bed, arm, load));
        Ok((workload, row.collect::<Result<Vec<_>>>()?))
    };
    let grid: Grid = WORKLOADS.into_iter().map(row).collect::<Result<_>>()?;
    let computed = |bound| Expected::predicted(Origin::Computed, bound);
    for (workload, cells) in &grid {
        let gain = cells[TRANSPORT].rate / cells[CLIO].rate;
        let what = format!("{}: transport alone over Clio", workload.name);
        outcome.check(what, "", computed(ExpectedBound::AtLeast(1.0)), gain);
    }
    let (_, cells) = grid.last().context("there are workloads")?;
    let full = computed(ExpectedBound::AtLeast(0.97));
    outcome.check("C: Clio's link is busy", "", full, cells[CLIO].link_busy);
    let popularities = KeyChooser::new(bed.keys, bed.ranks, bed.theta).popularities();
    let hits = che(&popularities, bed.cache_pairs as f64);
    let expected = computed(ExpectedBound::Margin(hits, 0.015));
    for arm in [CACHE, BOTH] {
        let what = format!("C: reads that hit with {}", ARMS[arm].name);
        outcome.check(what, "", expected, cells[arm].hit_rate());
    }
    // What hits is not sent over the link.
    let saved = computed(ExpectedBound::Share(1.0 / (1.0 - hits), 0.03));
    let gain = cells[BOTH].rate / cells[TRANSPORT].rate;
    outcome.check("C: what the cache gains, of what hits save", "", saved, gain);
    lose(&mut outcome, parameters, &bed)?;
    outcome.plot = Some(plot(&grid));
    outcome.table = table(&grid);
    outcome.note(
        "A variant of Fig. 20 and no figure of the paper: 32 clients fill the store's link, and then the link alone decides. With 8 clients, as in the \
         authors' data, transport on the card costs 14 to 18 % of the throughput; here it gains, for each of its acknowledgements is a frame, \
         and with the transport's end on the card those leave the link.",
    );
    outcome.note(
        "The cache is the product's: it takes a pair out when it is written, so that nobody reads a value older than a write, and holds the 192 pairs of 48 \
         block RAMs. YCSB's own client draws from 10^10 ranks and hashes them to 100,000 keys, so that two fifths of its operations are spread \
         evenly, and few reads hit: as many as Che's approximation has for these popularities.",
    );
    Ok(outcome)
}

/// Where the switch loses frames, the transport completes all operations, and without it some are never answered.
fn lose(outcome: &mut FigureOutcome, parameters: &Parameters, bed: &RunInputs) -> Result<()> {
    let load =
        Load { lost_ppm: parameters.value(&CROWD_LOST_PPM), ..load(parameters, WORKLOADS[0]) };
    for (arm, bound) in [(BOTH, ExpectedBound::Exact(0.0)), (CACHE, ExpectedBound::AtLeast(1.0))] {
        let lost = measure(parameters, bed, ARMS[arm], load)?.lost;
        let expected = Expected::predicted(Origin::Computed, bound);
        let what = format!("A, where frames are lost: unanswered with {}", ARMS[arm].name);
        outcome.check(what, "operations", expected, lost as f64);
    }
    Ok(())
}

fn plot(grid: &Grid) -> Plot {
    let names = grid.iter().map(|(workload, _)| workload.name.to_owned()).collect();
    let bars = |arm: usize| {
        let bar = |(at, (_, row)): (i32, &(_, Vec<YcsbMeasurement>))| {
            (f64::from(at), row[arm].rate / 1e6)
        };
        (0..).zip(grid).map(bar).collect()
    };
    let series = (0..ARMS.len()).map(|arm| Series::ours(ARMS[arm].name, bars(arm))).collect();
    let y = "Throughput (million operations/s)";
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
    ];
    let mut rows = Vec::new();
    for (workload, cells) in grid {
        for (arm, cell) in ARMS.iter().zip(cells) {
            let mut row = vec![workload.name.to_owned(), arm.name.to_owned()];
            row.extend(
                [cell.rate.round(), cell.mean_us, cell.p99_us, cell.hit_rate(), cell.link_busy]
                    .map(number),
            );
            rows.push(row);
        }
    }
    DataTable { columns: columns.map(str::to_owned).into(), rows }
}
