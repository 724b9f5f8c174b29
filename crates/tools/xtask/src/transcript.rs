//! Counts the results in the output of `cargo test`. Cargo has no stable machine-readable output, so the text is
//! parsed:
//!
//! ```text
//!      Running unittests src/lib.rs (target/debug/deps/snic_domain-1f)   a target starts
//! test result: ok. 12 passed; 0 failed; 1 ignored; …                     its result
//! error: test failed, to rerun pass `-p snic-domain --lib`               cargo's verdict on it
//!    Doc-tests snic_domain                                               the next one starts
//! ```
//!
//! A target without a result line was aborted, or ended its process in the middle of a test. That counts as one
//! failure, whatever its exit status, so every test target must use the standard harness.

use crate::report::Tally;

/// Parses the lines of one run of `cargo test --no-fail-fast`.
#[derive(Debug, Default)]
pub struct Transcript {
    total: Tally,
    open: Option<Target>,
    opened: u64,
    failures: Vec<String>,
    failed_tests: Vec<String>,
}

/// The target whose output is being parsed.
#[derive(Debug)]
struct Target {
    name: String,
    has_result: bool,
    is_failed: bool,
}

/// The result of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct TestSummary {
    /// Tests that passed, failed and were ignored, over all targets.
    pub total: Tally,
    /// Targets with failures, and failures that belong to no target, each in a few words.
    pub failures: Vec<String>,
    /// Names of tests whose own line says that they failed.
    pub failed_tests: Vec<String>,
}

impl Transcript {
    /// Parses the next line, without its line break.
    pub fn line(&mut self, line: &str) {
        if let Some(name) = failed_test(line) {
            self.failed_tests.push(name.to_owned());
        }
        let line = after_test_name(line);
        if let Some(name) = opening(line) {
            self.close();
            self.opened += 1;
            self.open = Some(Target { name: name.to_owned(), has_result: false, is_failed: false });
        } else if let Some(result) = result(line) {
            self.result(result);
        } else if is_verdict(line) {
            self.verdict();
        }
    }

    fn result(&mut self, result: Tally) {
        self.total += result;
        let name = self.open.as_mut().map_or("an unknown target", |target| {
            target.has_result = true;
            target.is_failed |= result.failed > 0;
            &target.name
        });
        if result.failed > 0 {
            self.failures.push(format!("{name}: {} failed", result.failed));
        }
    }

    /// Cargo reports that the open target failed; usually its result line has said so already.
    fn verdict(&mut self) {
        let unexplained =
            self.open.as_mut().filter(|target| target.has_result && !target.is_failed);
        if let Some(target) = unexplained {
            target.is_failed = true;
            let name = target.name.clone();
            self.fail(format!("{name}: all tests passed, but its process failed"));
        }
    }

    fn close(&mut self) {
        if let Some(target) = self.open.take().filter(|target| !target.has_result) {
            self.fail(format!("{}: ended without a result (aborted?)", target.name));
        }
    }

    fn fail(&mut self, what: String) {
        self.total.failed += 1;
        self.failures.push(what);
    }

    /// The totals, once cargo has exited with or without success.
    pub fn finish(mut self, success: bool) -> TestSummary {
        self.close();
        if !success && self.total.failed == 0 {
            self.fail("cargo failed before or after the tests; see the output above".to_owned());
        } else if self.opened == 0 {
            self.fail("no test target found; has the output of cargo changed?".to_owned());
        }
        let Self { total, failures, failed_tests, .. } = self;
        TestSummary { total, failures, failed_tests }
    }
}

/// The name of a test that the harness says has failed.
fn failed_test(line: &str) -> Option<&str> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    (!name.contains(' ')).then_some(name)
}

/// With one thread, the harness prints a test's name before the test and the line break after it. If the
/// process ends in between, cargo's next output is on the same line.
fn after_test_name(line: &str) -> &str {
    let name = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "));
    name.map_or(line, |(_, rest)| rest)
}

/// The name of the target that a line starts. Cargo right-aligns its verbs in 12 columns.
fn opening(line: &str) -> Option<&str> {
    if let Some(name) = line.strip_prefix("   Doc-tests ") {
        return Some(&line[line.len() - name.len() - "Doc-tests ".len()..]);
    }
    let target = line.strip_prefix("     Running ")?.strip_suffix(')')?;
    let (_, program) = target.rsplit_once(" (")?;
    // The program's name says more than `unittests src/lib.rs`: it contains the crate's name.
    program.rsplit_once(['/', '\\']).map(|(_, file)| file)
}

/// The counts of a result line of the standard harness.
fn result(line: &str) -> Option<Tally> {
    let rest = line.strip_prefix("test result: ")?;
    let figures = rest.strip_prefix("ok. ").or_else(|| rest.strip_prefix("FAILED. "))?;
    let mut tally = Tally::default();
    let mut seen = 0;
    for figure in figures.split("; ") {
        let Some((count, what)) = figure.split_once(' ') else { continue };
        let place = match what {
            "passed" => &mut tally.passed,
            "failed" => &mut tally.failed,
            "ignored" => &mut tally.ignored,
            _ => continue,
        };
        *place = count.parse().ok()?;
        seen += 1;
    }
    (seen == 3).then_some(tally)
}

fn is_verdict(line: &str) -> bool {
    line.starts_with("error: test failed, to rerun pass")
        || line.starts_with("error: doctest failed, to rerun pass")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, success: bool) -> TestSummary {
        let mut transcript = Transcript::default();
        text.lines().for_each(|line| transcript.line(line));
        transcript.finish(success)
    }

    fn tally(passed: u64, failed: u64, ignored: u64) -> Tally {
        Tally { passed, failed, ignored, ..Tally::default() }
    }

    #[test]
    fn a_good_run_is_summed_over_all_targets() {
        let outcome = read(include_str!("../golden/test_passes.txt"), true);
        assert_eq!(
            outcome,
            TestSummary { total: tally(5, 0, 1), failures: vec![], failed_tests: vec![] }
        );
    }

    #[test]
    fn failures_and_aborts_are_counted_and_named() {
        let outcome = read(include_str!("../golden/test_fails.txt"), false);
        assert_eq!(outcome.total, tally(3, 4, 0));
        assert_eq!(
            outcome.failures,
            [
                "aborts-a24fc11d27cc0e69: ended without a result (aborted?)",
                "fails-052c8d24b8805a39: 1 failed",
                "quits-e59a3798b93089a6: ended without a result (aborted?)",
                "Doc-tests alpha: 1 failed",
            ]
        );
        assert_eq!(outcome.failed_tests, ["fails"]);
    }

    #[test]
    fn a_build_that_fails_is_one_failure() {
        let text = "   Compiling alpha v0.1.0 (/src/alpha)\n\
                    error[E0425]: cannot find value `x` in this scope\n\
                    error: could not compile `alpha` (lib) due to 1 previous error\n";
        assert_eq!(read(text, false).total, tally(0, 1, 0));
    }

    #[test]
    fn a_process_that_fails_after_its_tests_is_one_failure() {
        let text = "     Running tests/late.rs (target/debug/deps/late-00ff)\n\
                    test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
                    error: test failed, to rerun pass `-p alpha --test late`\n";
        let outcome = read(text, false);
        assert_eq!(outcome.total, tally(2, 1, 0));
        assert_eq!(outcome.failures, ["late-00ff: all tests passed, but its process failed"]);
    }

    #[test]
    fn a_target_that_ends_in_the_middle_of_a_line_is_one_failure() {
        let text = "     Running tests/quits.rs (target/debug/deps/quits-00ff)\n\
                    running 2 tests\n\
                    test quits ...      Running tests/next.rs (target/debug/deps/next-00ee)\n\
                    test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let outcome = read(text, true);
        assert_eq!(outcome.total, tally(2, 1, 0));
        assert_eq!(outcome.failures, ["quits-00ff: ended without a result (aborted?)"]);
    }

    #[test]
    fn silence_is_a_failure() {
        assert_eq!(read("", true).total, tally(0, 1, 0));
        assert_eq!(read("    Finished `test` profile in 0.1s\n", true).total, tally(0, 1, 0));
    }

    #[test]
    fn a_crate_without_doc_tests_or_with_two_groups_of_them_is_in_order() {
        let text = "   Doc-tests alpha\n\
                    test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
                    test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
                    all doctests ran in 0.40s; merged doctests compilation took 0.20s\n\
                       Doc-tests beta\n\
                    test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(read(text, true).total, tally(3, 0, 0));
    }

    #[test]
    fn words_of_the_tests_themselves_do_not_count() {
        for line in [
            "assertion failed: `test result: ok. 3 passed; 0 failed; 0 ignored`",
            "test result: unclear. 3 passed; 0 failed; 0 ignored",
            "test result: ok. many passed; 0 failed; 0 ignored",
            "test result: ok. 3 passed",
            "",
        ] {
            assert_eq!(result(line), None, "{line}");
        }
        for line in ["Running away (/tmp/x)", "     Running late", "     Running (", "Doc-tests a"]
        {
            assert_eq!(opening(line), None, "{line}");
        }
    }

    proptest! {
        /// Any list of targets adds up, and each without a result is one more failure.
        #[test]
        fn sums_hold(targets in prop::collection::vec(
            prop::option::of((0u64..1000, 0u64..5, 0u64..5)), 1..20))
        {
            let mut transcript = Transcript::default();
            let mut expected = Tally::default();
            for (index, target) in targets.iter().enumerate() {
                transcript.line(&format!("     Running tests/t.rs (target/debug/deps/t-{index})"));
                let Some((passed, failed, ignored)) = *target else {
                    expected.failed += 1;
                    continue;
                };
                expected += tally(passed, failed, ignored);
                let word = if failed == 0 { "ok" } else { "FAILED" };
                transcript.line(&format!(
                    "test result: {word}. {passed} passed; {failed} failed; {ignored} ignored; \
                     0 measured; 0 filtered out; finished in 0.01s"
                ));
                if failed > 0 {
                    transcript.line("error: test failed, to rerun pass `-p t --test t`");
                }
            }
            let outcome = transcript.finish(expected.failed == 0);
            prop_assert_eq!(outcome.total, expected);
            prop_assert_eq!(outcome.failures.is_empty(), expected.failed == 0);
        }

        /// No line makes the reader stumble.
        #[test]
        fn any_text_is_read(lines in prop::collection::vec(".*", 0..20)) {
            let mut transcript = Transcript::default();
            lines.iter().for_each(|line| transcript.line(line));
            prop_assert!(transcript.finish(true).total.failed > 0);
        }
    }
}
