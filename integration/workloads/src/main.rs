//! Prints a workload as JSON, one DAG a line, in the order of arrival.

use std::process::ExitCode;

use clap::Parser;
use snic_output::{complain, exit_code, out};
use snic_workloads::{Shape, generate};

/// Prints DAGs of the papers' NTs from a seed, one JSON object a line.
#[derive(Debug, Parser)]
struct Arguments {
    /// The same seed gives the same workload.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of DAGs.
    #[arg(long, default_value_t = 100)]
    count: usize,
    /// Frequency of an NT beside the one before it, in thousandths; 0 gives chains only.
    #[arg(long, default_value_t = Shape::default().parallel_permille)]
    parallel_permille: u32,
    /// Least bandwidth of a DAG, in Mbit/s.
    #[arg(long, default_value_t = *Shape::default().mbps.start())]
    mbps_min: u64,
    /// Most bandwidth of a DAG, in Mbit/s.
    #[arg(long, default_value_t = *Shape::default().mbps.end())]
    mbps_max: u64,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit_code(error.print(), error.exit_code()),
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("snic-workloads: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let &Arguments { seed, count, parallel_permille, mbps_min, mbps_max } = arguments;
    anyhow::ensure!(
        1 <= mbps_min && mbps_min <= mbps_max,
        "--mbps-min {mbps_min} is not between 1 and --mbps-max {mbps_max}"
    );
    let shape = Shape { parallel_permille, mbps: mbps_min..=mbps_max, ..Shape::default() };
    for item in generate(seed, count, &shape) {
        out!("{}", serde_json::to_string(&item)?)?;
    }
    Ok(())
}
