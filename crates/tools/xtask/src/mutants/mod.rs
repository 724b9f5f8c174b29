//! `cargo xtask mutants`: do the tests notice when the code is wrong?
//!
//! A mutant is a small patch that changes what the code means: one piece of text in one file, and what
//! stands there instead (`crates/tools/xtask/mutants/*.toml`). Each is tried alone, in a copy of the project
//! or in a clean working tree, with the tests that should notice it.
//!
//! ```text
//! tests pass without it ──► text replaced ──► does it build? ──► does a test fail?
//!                                              no: invalid        yes: killed, no: survived
//! ```
//!
//! A run is as short as it can be: one test program after the other is built and run, a library's own
//! first, and the first test that fails ends it. Mutants of what much depends on come last, so that what
//! depends on it is built once.
//!
//! `cargo xtask tidy` checks that every patch still applies, so the list follows the code.

mod list;
mod plan;
mod run;

pub use list::check;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::workspace::Workspace;
use list::Mutant;
use run::{Bench, MutantVerdict};

/// The part of the mutants that must be killed, in percent.
const GOAL_PERCENT: usize = 95;

/// Mutants to try, and the way to try them.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Words of which a mutant's name, file or tests must contain one; none: all mutants.
    pub words: Vec<String>,
    /// A run of tests that takes longer counts as killed: the mutant made something hang.
    pub deadline: Duration,
    /// Only print what would be tried.
    pub list: bool,
    /// In the working tree instead of a copy.
    pub here: bool,
    /// Whether tests are first run without a mutant.
    pub baseline: bool,
}

/// Tries the selected mutants and prints what became of each; whether enough of them were killed.
///
/// # Errors
/// The list is not valid, no mutant is selected, the project cannot be copied, or tests fail without a
/// mutant.
pub fn run(workspace: &Workspace, selection: &Selection) -> anyhow::Result<bool> {
    let begun = Instant::now();
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
    let bench = if selection.here { Bench::here(workspace)? } else { Bench::copy(workspace)? };
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for (tests, mutants) in plan::groups(&chosen, &workspace.members) {
        let runs = plan::runs(tests, &workspace.members);
        if selection.baseline {
            let took = bench.baseline(&runs, selection.deadline)?;
            println!("cargo test {}: passes without a mutant ({took:.0?})", tests.join(" "));
        }
        for mutant in mutants {
            let tried = Instant::now();
            let verdict = bench.try_mutant(mutant, &runs, selection.deadline)?;
            let (word, detail, took) = (verdict.word(), verdict.detail(), tried.elapsed());
            println!("  {word:<9} {}: {} ({took:.0?}) {detail}", mutant.name, mutant.breaks);
            tallies.entry(plan::role(&mutant.file).to_owned()).or_default().count(&verdict);
        }
    }
    let mut total = Tally::default();
    for (role, tally) in &tallies {
        println!("{role:<12} {}", tally.text());
        total.add(*tally);
    }
    println!("{:<12} {}, in {:.0?}", "all", total.text(), begun.elapsed());
    Ok(total.is_enough())
}

/// Fates of the mutants that were tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    killed: usize,
    survived: usize,
    invalid: usize,
}

impl Tally {
    const fn count(&mut self, verdict: &MutantVerdict) {
        match verdict {
            MutantVerdict::Killed(_) => self.killed += 1,
            MutantVerdict::Survived => self.survived += 1,
            MutantVerdict::Invalid(_) => self.invalid += 1,
        }
    }

    const fn add(&mut self, other: Self) {
        self.killed += other.killed;
        self.survived += other.survived;
        self.invalid += other.invalid;
    }

    fn text(self) -> String {
        let Self { killed, survived, invalid } = self;
        let tried = killed + survived + invalid;
        format!("{killed} of {tried} killed, {survived} survived, {invalid} do not build")
    }

    /// Every patch must build: one that does not tells nothing.
    const fn is_enough(self) -> bool {
        let tried = self.killed + self.survived;
        self.invalid == 0 && self.killed * 100 >= tried * GOAL_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goal_is_met_at_its_very_percentage() {
        let tally = |killed, survived, invalid| Tally { killed, survived, invalid };
        assert!(tally(95, 5, 0).is_enough() && !tally(94, 6, 0).is_enough());
        assert!(tally(19, 1, 0).is_enough() && !tally(18, 2, 0).is_enough());
        assert!(!tally(99, 0, 1).is_enough(), "a patch that does not build tells nothing");
    }

    #[test]
    fn verdicts_are_counted_and_summed() {
        let mut tally = Tally::default();
        tally.count(&MutantVerdict::Killed("a test".into()));
        tally.count(&MutantVerdict::Killed("a test".into()));
        tally.count(&MutantVerdict::Survived);
        let mut total = tally;
        total.add(Tally { killed: 1, survived: 2, invalid: 3 });
        assert_eq!(tally.text(), "2 of 3 killed, 1 survived, 0 do not build");
        assert_eq!(total, Tally { killed: 3, survived: 3, invalid: 3 });
    }
}
