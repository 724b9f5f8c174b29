//! Runs of test programs with the settings of a tier.

use crate::programs::{self, TestProgram};
use crate::report::Tally;
use crate::tier::Tier;
use crate::transcript::TestSummary;

/// Cases of each property with each change, a quarter of proptest's own number; a night has four thousand.
const CASES: &str = "64";

/// Runs what a tier has of these programs; with what was counted before.
pub fn tested(
    all: Vec<TestProgram>,
    tier: Tier,
    mut summaries: Vec<TestSummary>,
) -> anyhow::Result<Tally> {
    let mut runs = Vec::new();
    for mut program in all {
        if std::env::var_os("RUST_BACKTRACE").is_none() {
            program.set("RUST_BACKTRACE", "1"); // a failure may not be reproducible
        }
        // The same cases in every run, so that a failure belongs to its commit. Without the seed
        // (`cargo test -p …`), each run tries other cases.
        if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
            program.set("PROPTEST_RNG_SEED", "2024");
        }
        if tier == Tier::Test && std::env::var_os("PROPTEST_CASES").is_none() {
            program.set("PROPTEST_CASES", CASES);
        }
        runs.extend(program.runs_of(tier)?);
    }
    summaries.extend(programs::run(runs, &mut std::io::stdout())?);
    let (total, failures) = sum(summaries);
    failures.iter().for_each(|failure| println!("failed: {failure}"));
    Ok(total)
}

/// The counts of all, and what failed.
pub fn sum(summaries: Vec<TestSummary>) -> (Tally, Vec<String>) {
    let (mut total, mut failures) = (Tally::default(), Vec::new());
    for summary in summaries {
        total += summary.total;
        failures.extend(summary.failures);
    }
    (total, failures)
}
