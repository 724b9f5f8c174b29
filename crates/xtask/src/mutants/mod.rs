//! `cargo xtask mutants`: do the tests notice when the code is wrong?
//!
//! A mutant is a small patch that changes what the code means: one piece of text in one file, and what
//! stands there instead (`crates/xtask/mutants/*.toml`). Each is tried alone, in a copy of the project,
//! with the tests that should notice it.
//!
//! ```text
//! tests pass without it ──► text replaced ──► does it build? ──► do the tests fail?
//!                                              no: invalid        yes: killed, no: survived
//! ```
//!
//! `cargo xtask tidy` checks that every patch still applies, so the list follows the code.

mod list;
mod run;

pub use list::check;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;

use crate::workspace::Workspace;
use list::Mutant;
use run::{Copy, MutantVerdict};

/// The part of the mutants that must be killed, in percent.
const GOAL_PERCENT: usize = 95;

/// What to try.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Words of which a mutant's name, file or tests must contain one; none: all mutants.
    pub words: Vec<String>,
    /// A run of tests that takes longer counts as killed: the mutant made something hang.
    pub deadline: Duration,
    /// Only print what would be tried.
    pub list: bool,
}

/// Tries the selected mutants and prints what became of each; whether enough of them were killed.
///
/// # Errors
/// The list is not valid, no mutant is selected, the project cannot be copied, or tests fail without a
/// mutant.
pub fn run(workspace: &Workspace, selection: &Selection) -> anyhow::Result<bool> {
    let mutants = list::load(&workspace.root)?;
    let chosen: Vec<&Mutant> =
        mutants.iter().filter(|mutant| mutant.matches(&selection.words)).collect();
    if chosen.is_empty() {
        bail!("no mutant matches {:?}; `cargo xtask mutants --list` names all", selection.words);
    }
    if selection.list {
        chosen.iter().for_each(|mutant| println!("{:<44} {}", mutant.name, mutant.breaks));
        println!("{} mutants", chosen.len());
        return Ok(true);
    }
    let copy = Copy::of(workspace)?;
    let mut by_tests: BTreeMap<&[String], Vec<&Mutant>> = BTreeMap::new();
    for mutant in chosen {
        by_tests.entry(&mutant.tests).or_default().push(mutant);
    }
    let mut verdicts = Vec::new();
    for (tests, mutants) in by_tests {
        let took = copy.baseline(tests, selection.deadline)?;
        println!("cargo test {}: passes without a mutant ({:.0?})", tests.join(" "), took);
        for mutant in mutants {
            let verdict = copy.try_mutant(mutant, selection.deadline)?;
            println!("  {:<9} {}: {}", verdict.word(), mutant.name, mutant.breaks);
            verdicts.push(verdict);
        }
    }
    let count = |verdict: MutantVerdict| verdicts.iter().filter(|other| **other == verdict).count();
    let (killed, survived) = (count(MutantVerdict::Killed), count(MutantVerdict::Survived));
    let invalid = count(MutantVerdict::Invalid);
    println!("{killed} of {} killed, {survived} survived, {invalid} do not build", verdicts.len());
    Ok(invalid == 0 && is_enough(killed, verdicts.len()))
}

const fn is_enough(killed: usize, tried: usize) -> bool {
    killed * 100 >= tried * GOAL_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goal_is_met_at_its_very_percentage() {
        assert!(is_enough(95, 100) && !is_enough(94, 100));
        assert!(is_enough(19, 20) && !is_enough(18, 20));
    }
}
