//! The steps of `cargo xtask test`, `ci` and `nightly`. Tests come first. All steps of a kind run, so that one run reports
//! all of their findings; after a kind has failed, those behind it are skipped, and the summary says which. What is tested
//! with each change and before a merge has one profile and, but for the daemon, one set of features, so that nothing is
//! built twice except for clippy and rustdoc.

use std::thread;
use std::time::Instant;

use anyhow::bail;

use crate::command::{self, cargo};
use crate::nightly;
use crate::packages;
use crate::programs;
use crate::proto;
use crate::report::{Report, Tally, seconds, words};
use crate::tested::tested;
use crate::tidy;
use crate::tier::{FEATURES, Tier};
use crate::transcript::{TestSummary, Transcript};
use crate::workspace::Workspace;

/// Cost of a step. The next kind starts only if this one has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The tests of each change.
    Tests,
    /// Seconds, and nothing is built.
    Quick,
    Lints,
    /// Tests that those of each change leave out.
    MoreTests,
    Docs,
    /// Hours, each for itself.
    Night,
}

struct Step {
    name: &'static str,
    kind: Kind,
    /// The command that runs this step alone.
    shown: &'static str,
    run: fn(&Workspace) -> anyhow::Result<Tally>,
}

const BUILD_PACKAGES: Step = Step {
    name: "packages",
    kind: Kind::Tests,
    shown: "system packages that builds and the tests of each change need",
    run: build_packages,
};
const TESTS: Step = Step {
    name: "tests",
    kind: Kind::Tests,
    shown: "cargo test, without what is marked for ci and nightly, in programs side by side",
    run: tests,
};

/// Steps with each change.
const TEST: &[Step] = &[BUILD_PACKAGES, TESTS];

/// Steps before a merge: the same first.
const CI: &[Step] = &[
    BUILD_PACKAGES,
    TESTS,
    Step { name: "format", kind: Kind::Quick, shown: "cargo fmt --all --check", run: format },
    Step { name: "tidy", kind: Kind::Quick, shown: "cargo xtask tidy", run: tidy::run },
    Step { name: "proto", kind: Kind::Quick, shown: "cargo xtask proto", run: proto::check },
    Step {
        name: "lints",
        kind: Kind::Lints,
        shown: "cargo clippy --workspace --all-targets --features snicd/cedar,snic-fleetd/s3,snicctl/parquet,snic-card/fast-path,snic-integration/ci -- \
                -D warnings; meanwhile system packages for the tests after it",
        run: lints,
    },
    Step {
        name: "more-tests",
        kind: Kind::MoreTests,
        shown: "cargo test --workspace --features snicd/cedar,snic-fleetd/s3,snicctl/parquet,snic-card/fast-path,snic-integration/ci, what is marked for ci; \
                examples of documentation",
        run: more_tests,
    },
    Step {
        name: "docs",
        kind: Kind::Docs,
        shown: "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --workspace --features \
                snicd/cedar,snic-fleetd/s3,snicctl/parquet,snic-card/fast-path,snic-integration/ci",
        run: docs,
    },
];

/// Steps at night.
const NIGHTLY: &[Step] = &[
    Step {
        name: "packages",
        kind: Kind::Night,
        shown: "system packages of all tests",
        run: all_packages,
    },
    Step {
        name: "cluster",
        kind: Kind::Night,
        shown: "cargo xtask cluster --build; cargo xtask image",
        run: nightly::cluster,
    },
    Step {
        name: "long-tests",
        kind: Kind::Night,
        shown: "cargo test --release, what is marked for nightly: seeds, sets of promises, damaged frames",
        run: nightly::long_tests,
    },
    Step {
        name: "seeds",
        kind: Kind::Night,
        shown: "PROPTEST_RNG_SEED=… and the programs that only compute",
        run: nightly::fresh_seeds,
    },
    Step {
        name: "figures",
        kind: Kind::Night,
        shown: "cargo run --release --bin snic-repro -- all",
        run: nightly::figures,
    },
    Step {
        name: "benches",
        kind: Kind::Night,
        shown: "cargo xtask bench --thresholds",
        run: nightly::benches,
    },
    Step {
        name: "mutants",
        kind: Kind::Night,
        shown: "cargo xtask mutants",
        run: nightly::mutants,
    },
];

/// The steps that one command runs, one after another.
fn steps_of(tier: Tier) -> &'static [Step] {
    match tier {
        Tier::Test => TEST,
        Tier::Ci => CI,
        Tier::Nightly => NIGHTLY,
    }
}

/// Runs the steps of a tier, all of them or those with one of these names, and prints a summary. Returns whether everything
/// passed.
pub fn run(tier: Tier, keep_going: bool, only: &[String]) -> bool {
    let workspace = Workspace::load();
    let chosen = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    let steps: Vec<&Step> = steps_of(tier).iter().filter(chosen).collect();
    let report = drive(&steps, keep_going, |step| match &workspace {
        Ok(workspace) => (step.run)(workspace),
        Err(error) => bail!("{error:#}"),
    });
    print!("\n{}", report.closing());
    let Tally { passed, failed, .. } = report.total();
    failed == 0 && passed > 0
}

/// The names of a tier's steps.
pub fn names(tier: Tier) -> Vec<&'static str> {
    steps_of(tier).iter().map(|step| step.name).collect()
}

fn drive(
    steps: &[&Step],
    keep_going: bool,
    mut run: impl FnMut(&Step) -> anyhow::Result<Tally>,
) -> Report {
    let mut report = Report::default();
    let mut failed = None;
    for step in steps {
        if !keep_going && failed.is_some_and(|kind| kind != step.kind) {
            report.skipped(step.name);
            continue;
        }
        println!("\n=== {}: {}", step.name, step.shown);
        let start = Instant::now();
        let tally = run(step).unwrap_or_else(|error| {
            println!("error: {error:#}");
            Tally::one(false)
        });
        println!("--- {}: {} ({})", step.name, words(&tally), seconds(start.elapsed()));
        report.done(step.name, tally, start.elapsed());
        if tally.failed > 0 {
            failed.get_or_insert(step.kind);
        }
    }
    report
}

fn format(workspace: &Workspace) -> anyhow::Result<Tally> {
    command::succeeds(&mut cargo(&workspace.root, &["fmt", "--all", "--check"])).map(Tally::one)
}

fn build_packages(workspace: &Workspace) -> anyhow::Result<Tally> {
    packages::provide(Tier::Test, &workspace.target)
}

fn all_packages(workspace: &Workspace) -> anyhow::Result<Tally> {
    let mut tally = packages::provide(Tier::Test, &workspace.target)?;
    tally += packages::provide(Tier::Ci, &workspace.target)?;
    Ok(tally)
}

/// Installing packages mostly waits for the network and the disk, so the lints run beside it.
fn lints(workspace: &Workspace) -> anyhow::Result<Tally> {
    let targets = ["clippy", "--workspace", "--all-targets"];
    let arguments = [&targets[..], &FEATURES, &["--", "-D", "warnings"]].concat();
    thread::scope(|scope| {
        let packages = scope.spawn(|| packages::provide(Tier::Ci, &workspace.target));
        let linted = command::succeeds(&mut cargo(&workspace.root, &arguments)).map(Tally::one);
        let installed = packages.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let mut tally = linted?;
        tally += installed?;
        Ok(tally)
    })
}

fn tests(workspace: &Workspace) -> anyhow::Result<Tally> {
    let selection = programs::selection(&workspace.members, Tier::Test);
    tested(programs::built(workspace, &selection)?, Tier::Test, Vec::new())
}

fn more_tests(workspace: &Workspace) -> anyhow::Result<Tally> {
    let mut selection = programs::selection(&workspace.members, Tier::Ci);
    selection.extend(FEATURES.map(str::to_owned));
    let built = programs::built(workspace, &selection)?;
    let examples = documentation_tests(workspace)?;
    tested(built, Tier::Ci, vec![examples])
}

fn documentation_tests(workspace: &Workspace) -> anyhow::Result<TestSummary> {
    let arguments = [&["test", "--workspace", "--doc", "--no-fail-fast"], &FEATURES[..]].concat();
    let mut command = cargo(&workspace.root, &arguments);
    command.env("CARGO_TERM_COLOR", "never"); // the output is parsed
    let mut transcript = Transcript::default();
    let (out, read) = (&mut std::io::stdout(), |line: &str| transcript.line(line));
    let status = command::streamed(&mut command, programs::LONGEST, out, read)?;
    Ok(transcript.finish(status.success()))
}

fn docs(workspace: &Workspace) -> anyhow::Result<Tally> {
    let arguments = [&["doc", "--no-deps", "--workspace"], &FEATURES[..]].concat();
    let mut command = cargo(&workspace.root, &arguments);
    command::succeeds(command.env("RUSTDOCFLAGS", "-D warnings")).map(Tally::one)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the real steps of CI with made-up outcomes; which ones ran, and the closing.
    fn outcome(failing: &[&str], keep_going: bool) -> (Vec<&'static str>, Report) {
        let mut ran = Vec::new();
        let steps: Vec<&Step> = CI.iter().collect();
        let report = drive(&steps, keep_going, |step| {
            ran.push(step.name);
            Ok(Tally::one(!failing.contains(&step.name)))
        });
        (ran, report)
    }

    const ALL: [&str; 8] =
        ["packages", "tests", "format", "tidy", "proto", "lints", "more-tests", "docs"];

    #[test]
    fn all_steps_run_while_all_is_well() {
        let (ran, report) = outcome(&[], false);
        assert_eq!(ran, ALL);
        assert!(report.closing().ends_with("\n8 passed, 0 failed\n"));
    }

    #[test]
    fn ci_begins_with_the_steps_of_each_change() {
        assert_eq!(names(Tier::Ci)[..TEST.len()], names(Tier::Test));
        let nightly = names(Tier::Nightly);
        assert!(nightly.contains(&"mutants"));
        let at = |name: &str| nightly.iter().position(|known| *known == name).expect(name);
        assert!(at("cluster") < at("long-tests"), "the tests start what it builds");
    }

    #[test]
    fn steps_of_the_failing_kind_all_run_and_those_behind_do_not() {
        let (ran, report) = outcome(&["format"], false);
        assert_eq!(ran, ["packages", "tests", "format", "tidy", "proto"]);
        let closing = report.closing();
        assert!(closing.contains("skipped: lints, more-tests, docs"), "{closing}");
        assert!(closing.ends_with("\n4 passed, 1 failed\n"), "{closing}");
    }

    #[test]
    fn keeping_going_runs_everything_and_still_fails() {
        let (ran, report) = outcome(&["tidy", "lints"], true);
        assert_eq!(ran, ALL);
        assert_eq!(report.total().failed, 2);
        assert!(!report.closing().contains("skipped"));
    }

    #[test]
    fn a_step_that_cannot_run_has_failed() {
        let steps: Vec<&Step> = TEST.iter().collect();
        let report = drive(&steps, false, |_| bail!("no such program"));
        assert!(report.closing().ends_with("\n0 passed, 2 failed\n"));
    }
}
