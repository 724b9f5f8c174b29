//! The summary of a run: the result and duration of each step, the skipped steps, and the totals.

use std::fmt::Write;
use std::ops::AddAssign;
use std::time::Duration;

/// Counts of a step or a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed; a step that is not a test counts as one.
    pub passed: u64,
    /// Tests that failed, or 1 for a step that did.
    pub failed: u64,
    /// Tests that are marked as ignored.
    pub ignored: u64,
    /// Tests that passed only when they were tried again, alone: among those that passed.
    pub unsteady: u64,
}

impl Tally {
    /// A step that is not a test counts as one.
    pub fn one(passed: bool) -> Self {
        Self { passed: u64::from(passed), failed: u64::from(!passed), ..Self::default() }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.unsteady += other.unsteady;
    }
}

/// The results of the steps, in order.
#[derive(Debug, Default)]
pub struct Report {
    done: Vec<(&'static str, Tally, Duration)>,
    skipped: Vec<&'static str>,
}

impl Report {
    /// Adds a step that has run.
    pub fn done(&mut self, name: &'static str, tally: Tally, took: Duration) {
        self.done.push((name, tally, took));
    }

    /// Adds a step that was not run because an earlier one failed.
    pub fn skipped(&mut self, name: &'static str) {
        self.skipped.push(name);
    }

    /// The sums over all steps.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.done.iter().for_each(|(_, tally, _)| total += *tally);
        total
    }

    /// The summary; its last line is exactly `N passed, N failed`.
    pub fn closing(&self) -> String {
        let mut text = String::new();
        let took = self.done.iter().map(|(_, _, took)| *took).sum();
        for (name, tally, took) in &self.done {
            line(&mut text, format_args!("{name:<10} {:>9}  {}", seconds(*took), words(tally)));
        }
        line(&mut text, format_args!("{:<10} {:>9}", "total", seconds(took)));
        if !self.skipped.is_empty() {
            let names = self.skipped.join(", ");
            line(&mut text, format_args!("skipped: {names} (use --keep-going to run them)"));
        }
        let Tally { passed, failed, .. } = self.total();
        line(&mut text, format_args!("{passed} passed, {failed} failed"));
        text
    }
}

/// The result of a step: `ok` for a single check, counts for tests.
pub fn words(tally: &Tally) -> String {
    let unsteady = match tally.unsteady {
        0 => String::new(),
        count => format!(", {count} of them at a second try"),
    };
    match (tally.passed, tally.failed, tally.ignored) {
        (0, 0, 0) => "incomplete".to_owned(),
        (1, 0, 0) => "ok".to_owned(),
        (0, 1, 0) => "FAILED".to_owned(),
        (passed, failed, 0) => format!("{passed} passed{unsteady}, {failed} failed"),
        (passed, failed, ignored) => {
            format!("{passed} passed{unsteady}, {failed} failed, {ignored} ignored")
        }
    }
}

/// A duration in readable form.
pub fn seconds(took: Duration) -> String {
    match took.as_secs() {
        0..60 => format!("{:.1} s", took.as_secs_f64()),
        whole => format!("{} m {:02} s", whole / 60, whole % 60),
    }
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{what}").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_lists_the_steps_and_ends_with_the_sums() {
        let mut report = Report::default();
        report.done("format", Tally::one(true), Duration::from_millis(740));
        report.done("packages", Tally::default(), Duration::ZERO);
        let tests = Tally { passed: 812, failed: 2, ignored: 1, unsteady: 3 };
        report.done("tests", tests, Duration::from_secs(187));
        report.skipped("docs");
        assert_eq!(
            report.closing(),
            "format         0.7 s  ok\n\
             packages       0.0 s  incomplete\n\
             tests       3 m 07 s  812 passed, 3 of them at a second try, 2 failed, 1 ignored\n\
             total       3 m 07 s\n\
             skipped: docs (use --keep-going to run them)\n\
             813 passed, 2 failed\n"
        );
    }

    #[test]
    fn a_run_of_nothing_still_closes() {
        assert!(Report::default().closing().ends_with("\n0 passed, 0 failed\n"));
    }

    #[test]
    fn a_failed_step_counts_as_one() {
        let mut report = Report::default();
        report.done("lints", Tally::one(false), Duration::from_secs(60));
        assert_eq!(report.total(), Tally { failed: 1, ..Tally::default() });
        assert!(report.closing().starts_with("lints       1 m 00 s  FAILED\n"));
    }
}
