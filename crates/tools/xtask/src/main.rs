//! The steps that CI runs, as a program instead of a script: the steps, their order and the rules of the code base are
//! values with tests, and developers run exactly the same.
//!
//! ```text
//! cargo xtask test     what is tested with each change; ends with `N passed, N failed`, as do the next two
//! cargo xtask ci       the same, then lints, documentation, and the tests that it leaves out
//! cargo xtask nightly  what takes hours: many seeds, mutants, figures, benchmarks with thresholds
//! cargo xtask tidy     only the rules of the code base, in seconds
//! cargo xtask arrows   the dependencies between crates
//! cargo xtask mutants  small patches that the tests should notice, tried one by one
//! cargo xtask bench    the benchmarks, with their medians as a table
//! cargo xtask fleet    etcd, replicas and hosts on this machine, until Ctrl-C
//! cargo xtask cluster  a Kubernetes cluster with a software card on this machine, until Ctrl-C
//! cargo xtask package  manual pages, completions, and the Debian packages
//! cargo xtask image    container images
//! ```
//!
//! One crate, because each command needs the same few things of the workspace, and a second program would be built
//! before the first test runs.

mod arrows;
mod bench;
mod cluster;
mod command;
mod fleet;
mod image;
mod licences;
mod mutants;
mod nightly;
mod package;
mod packages;
mod platform;
mod programs;
mod proto;
mod report;
mod suite;
mod tested;
mod tidy;
mod tier;
mod transcript;
mod workspace;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::mutants::Selection;
use crate::platform::Platform;
use crate::tier::Tier;
use crate::workspace::Workspace;

/// Tasks of the project.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run the tests of each change: minutes
    Test,
    /// Run what a merge needs: the same tests, then rules, lints, all other tests, and the documentation
    Ci {
        /// Run later kinds of steps even if an earlier kind has failed
        #[arg(long)]
        keep_going: bool,
        /// Only these steps
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(suite::names(Tier::Ci)))]
        steps: Vec<String>,
    },
    /// Run what takes hours: many seeds, cases that nobody has tried, figures, benchmarks with thresholds, mutants
    Nightly {
        /// Only these steps
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(suite::names(Tier::Nightly)))]
        steps: Vec<String>,
    },
    /// Check the rules of the code base: crate arrows, licences, manifests, sources, files, links
    Tidy,
    /// Check the proto files with buf: lints, and what would break clients of the released API
    Proto,
    /// Print the dependencies between crates
    Arrows,
    /// Try each patch of crates/tools/xtask/mutants with the tests that should notice it; hours for all
    Mutants {
        /// Only mutants with one of these words in name, file or package
        words: Vec<String>,
        /// Print the mutants instead of trying them
        #[arg(long)]
        list: bool,
        /// Seconds after which a run of tests counts as hanging
        #[arg(long, default_value_t = 300)]
        deadline: u64,
        /// Try them in this tree, which must be as committed, and not in a copy: nothing is built
        /// twice; what an interrupted run left is taken back by `git checkout`
        #[arg(long)]
        here: bool,
        /// Do not run the tests without a mutant first: they passed a moment ago
        #[arg(long)]
        no_baseline: bool,
    },
    /// Run the benchmarks and print their medians
    Bench {
        /// Fail if a median is over its threshold in crates/tools/xtask/thresholds.toml
        #[arg(long)]
        thresholds: bool,
        /// Arguments for criterion: a filter on names, or options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run a fleet on this machine until Ctrl-C: etcd, replicas of snic-fleet, hosts with simulated cards
    Fleet(fleet::FleetSize),
    /// Run a Kubernetes cluster on this machine until Ctrl-C: one node with a software card and the DRA driver
    Cluster(cluster::ClusterSteps),
    /// Build what is shipped: programs, manual pages, completions, and the Debian packages; then try them
    Package {
        /// Platform of the programs, as a target of Rust; this machine's without
        #[arg(long)]
        target: Option<String>,
    },
    /// Build container images with the daemon, the fleet's replica, the device plugin and the controller of DAGs, as archives in
    /// target/image; then try them
    Image {
        /// Platform of an image, as a target of Rust; several make one image for all; this machine's without
        #[arg(long)]
        target: Vec<String>,
        /// Only the image of this name; may be repeated. It is quicker, and not what is shipped: features of dependencies depend on
        /// what is built with them
        #[arg(long)]
        only: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a task. Returns whether it found everything in order.
fn run(task: Task) -> anyhow::Result<bool> {
    match task {
        Task::Test => Ok(suite::run(Tier::Test, false, &[])),
        Task::Ci { keep_going, steps } => Ok(suite::run(Tier::Ci, keep_going, &steps)),
        Task::Nightly { steps } => Ok(suite::run(Tier::Nightly, true, &steps)),
        Task::Tidy => Ok(tidy::run(&Workspace::load()?)?.failed == 0),
        Task::Proto => Ok(proto::check(&Workspace::load()?)?.failed == 0),
        Task::Arrows => {
            print!("{}", arrows::draw(&Workspace::load()?.members));
            Ok(true)
        }
        Task::Mutants { words, list, deadline, here, no_baseline } => {
            let deadline = Duration::from_secs(deadline);
            let selection = Selection { words, deadline, list, here, baseline: !no_baseline };
            mutants::run(&Workspace::load()?, &selection)
        }
        Task::Fleet(size) => fleet::run(&Workspace::load()?, &size),
        Task::Cluster(steps) => cluster::run(&Workspace::load()?, &steps),
        Task::Package { target } => {
            let platform = target.as_deref().map_or_else(Platform::of_machine, Platform::named)?;
            package::run(&Workspace::load()?, platform)
        }
        Task::Image { target, only } => {
            let mut platforms =
                target.iter().map(|name| Platform::named(name)).collect::<Result<Vec<_>, _>>()?;
            if platforms.is_empty() {
                platforms.push(Platform::of_machine()?);
            }
            image::run(&Workspace::load()?, &platforms, &only)
        }
        Task::Bench { thresholds, arguments } => {
            bench::run(&Workspace::load()?, &arguments, thresholds)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_of_criterion_pass_through() {
        let arguments = Arguments::try_parse_from(["xtask", "bench", "plan", "--quick"]).unwrap();
        let Task::Bench { arguments, .. } = arguments.task else { panic!("not bench") };
        assert_eq!(arguments, ["plan", "--quick"]);
    }
}
