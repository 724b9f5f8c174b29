//! What CI runs, as a program rather than a script: the steps, their order and the rules of the
//! code base are values that have tests of their own, and a developer runs the very same thing.
//!
//! ```text
//! cargo xtask test     everything; closes with `N passed, N failed`
//! cargo xtask tidy     the rules of the code base alone, in seconds
//! cargo xtask arrows   which crate depends on which
//! cargo xtask mutants  do the tests notice mistakes? tries the list of small patches
//! cargo xtask bench    the benchmarks, their medians as a table
//! cargo xtask package  manual pages, completions, and the Debian package
//! ```

mod arrows;
mod bench;
mod command;
mod licences;
mod mutants;
mod package;
mod packages;
mod report;
mod suite;
mod tidy;
mod transcript;
mod workspace;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::mutants::Selection;
use crate::workspace::Workspace;

/// The project's chores.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Formatting, structure, lints, all tests, documentation; closes with `N passed, N failed`
    Test {
        /// Run the later steps too when an earlier kind of step has failed
        #[arg(long)]
        keep_going: bool,
    },
    /// The rules of the code base: arrows between crates, licences, manifests, sources, top level
    Tidy,
    /// Print which crate depends on which
    Arrows,
    /// Try each patch of crates/xtask/mutants with the tests that should notice it; hours for all
    Mutants {
        /// Only mutants with one of these words in name, file or package
        words: Vec<String>,
        /// Print the mutants instead of trying them
        #[arg(long)]
        list: bool,
        /// Seconds after which a run of tests counts as hanging
        #[arg(long, default_value_t = 300)]
        deadline: u64,
    },
    /// Run the benchmarks and print their medians
    Bench {
        /// Passed on to criterion: a filter on the names, or its options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build what is shipped: programs, manual pages, completions, the Debian package
    Package,
}

fn main() -> ExitCode {
    match run(Arguments::parse().chore) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the chore found everything in order.
fn run(chore: Chore) -> anyhow::Result<bool> {
    match chore {
        Chore::Test { keep_going } => Ok(suite::run(keep_going)),
        Chore::Tidy => Ok(tidy::run(&Workspace::load()?)?.failed == 0),
        Chore::Arrows => {
            print!("{}", arrows::draw(&Workspace::load()?.members));
            Ok(true)
        }
        Chore::Mutants { words, list, deadline } => {
            let deadline = Duration::from_secs(deadline);
            mutants::run(&Workspace::load()?, &Selection { words, list, deadline })
        }
        Chore::Package => package::run(&Workspace::load()?),
        Chore::Bench { arguments } => bench::run(&Workspace::load()?, &arguments),
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
        let Chore::Bench { arguments } = arguments.chore else { panic!("not bench") };
        assert_eq!(arguments, ["plan", "--quick"]);
    }
}
