//! The thesis's replication: YCSB's workloads on two stores, where clients write twice and where the card does.

use anyhow::Result;

use super::supernic_19::{load, measure};
use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::Parameters;
use crate::ycsb::{DOUBLING_ARMS, PAPER_ARMS, RunInputs, WORKLOADS};

/// Mean latencies of workloads A and B (`data_ycsb_replication`), in µs: Clio, Clio-R, Clio-sNIC, Clio-sNIC-R.
const PAPER: [[f64; 4]; 2] = [[7.67, 11.13, 9.37, 9.37], [7.37, 9.18, 8.77, 8.81]];
const SYSTEMS: [&str; 4] = ["Clio", "Clio-R", "Clio-sNIC", "Clio-sNIC-R"];

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let (mut outcome, bed) = (FigureOutcome::default(), RunInputs::new(parameters));
    let arms = [PAPER_ARMS[0], DOUBLING_ARMS[0], PAPER_ARMS[1], DOUBLING_ARMS[1]];
    let mut series = SYSTEMS.map(|_| (Vec::new(), Vec::new()));
    for ((at, workload), paper) in WORKLOADS.into_iter().enumerate().zip(PAPER) {
        let load = load(parameters, workload);
        let run = |arm| Ok(measure(parameters, &bed, arm, load)?.mean_us);
        let ours = arms.into_iter().map(run).collect::<Result<Vec<f64>>>()?;
        let name = workload.name;
        let data = |bound| Expected::predicted(Origin::Data, bound);
        for system in 0..SYSTEMS.len() {
            let bound = ExpectedBound::Share(paper[system], 0.1);
            let what = format!("{name}: {}", SYSTEMS[system]);
            outcome.check(what, "µs", data(bound), ours[system]);
            series[system].0.push((at as f64, ours[system]));
            series[system].1.push((at as f64, paper[system]));
        }
        for (one, twice, by) in [(0, 1, "the client"), (2, 3, "the card")] {
            let times = |of: &[f64]| of[twice] / of[one];
            let what = format!("{name}: writing twice by {by}, to once");
            let bound = ExpectedBound::Share(times(&paper), 0.1);
            outcome.check(what, "×", data(bound), times(&ours));
        }
        let saves = |of: &[f64]| of[1] / of[0] - of[3] / of[2];
        let what = format!("{name}: what the client's second write takes more than the card's");
        let order = data(ExpectedBound::AtLeast(0.0));
        outcome.check(what, "of once", order, saves(&ours));
    }
    let names = WORKLOADS.iter().take(PAPER.len()).map(|workload| workload.name.to_owned());
    let axis = Axis::Categories(names.collect());
    let lines = SYSTEMS.into_iter().zip(series);
    let series = lines
        .flat_map(|(name, (ours, paper))| [Series::ours(name, ours), Series::paper(name, paper)]);
    let (x, y) = ("Workload", "Mean latency (µs)");
    outcome.plot = Some(Plot { x, y, axis, series: series.collect() });
    outcome.note(
        "A part of the thesis that the FPGA paper leaves out. The test bed and its times are those of Fig. 19, with a second store on a link of its own. A client \
         writes to one store and then to the other; the card's kv-replication, the product's NT, writes to both at once and answers when \
         both have. Reads go to the first store.",
    );
    outcome.note(
        "By the card 0.6 µs are added where the authors have none: the product's transport and kv-replication are two functions, and a packet passes \
         the core once more each way. By the client both workloads stay outside, and in B the card's second write even costs more than the client's, for a store answers a write before it has moved the value. If in the authors' cells a read \
         takes x longer with two stores and a write y, A and B give x = 1.63 and y = 5.29 µs; of Clover's cells x is the same, 1.63, and y 5.79. So a second write takes them what one \
         takes alone (4.8 µs here, thesis-clio), and reads take longer by as much in two systems that have only the test bed in common. What that is, is not printed; here reads do not know \
         of a second store, and clients whose writes are at another store wait less at the first. With both stores on one board (fig19.stores_share_board) the client's A is inside and its B is not, and the card's \
         second write takes about as long as the client's; with ten operations under way (fig19.clients) the client's B is inside, and a single write is not.",
    );
    Ok(outcome)
}
