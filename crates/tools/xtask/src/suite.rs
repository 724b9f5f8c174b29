//! `cargo xtask test`: the steps, cheap ones first. All steps of a kind run, so that one run reports all of
//! their findings. After a kind has failed, more expensive kinds are skipped, and the summary says which.
//! All steps use one profile and one set of features, so that nothing is built twice except for clippy
//! and rustdoc.

use std::io::Write;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::bail;

use crate::command::{self, cargo};
use crate::packages::{self, Needed};
use crate::programs::{self, TestProgram};
use crate::proto;
use crate::report::{Report, Tally, seconds, words};
use crate::tidy;
use crate::transcript::{TestSummary, Transcript};
use crate::workspace::Workspace;

/// Cost of a step. The next kind starts only if this one has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Seconds, and nothing is built.
    Quick,
    Lints,
    Tests,
    Docs,
}

/// Crates without I/O whose property tests take seconds.
const FRESHLY_SEEDED: [&str; 7] = [
    "snic-domain",
    "snic-planner",
    "snic-fairness",
    "snic-autoscaler",
    "snic-tables",
    "snic-bitstream",
    "snic-etcd",
];

/// Crates whose tests only compute, those that take longest first: they run side by side.
const COMPUTING: [&str; 17] = [
    "snic-repro",
    "snic-controller",
    "snic-fleet",
    "snic-bitstream",
    "snic-planner",
    "snic-card-sim",
    "snic-nts",
    "snic-api",
    "snic-authorization-cedar",
    "snic-oracles",
    "snic-processors",
    "snic-fairness",
    "snic-autoscaler",
    "snic-domain",
    "snic-tables",
    "snic-ports",
    "snic-etcd",
];

/// Test programs of the others that leave more than half of two processors idle, for they wait for other processes; those
/// that take longest first. Tests have failed with three at a time, and with the browser's tests or those of failing
/// devices in this list.
const WAITING: [&str; 13] = [
    "fleet",
    "libvirt",
    "clients",
    "real",
    "server",
    "replicas",
    "device",
    "guests",
    "conformance",
    "snicctl",
    "lost_card",
    "kubelet",
    "xtask",
];

struct Step {
    name: &'static str,
    kind: Kind,
    /// The command that runs this step alone.
    shown: &'static str,
    run: fn(&Workspace) -> anyhow::Result<Tally>,
}

const STEPS: &[Step] = &[
    Step { name: "format", kind: Kind::Quick, shown: "cargo fmt --all --check", run: format },
    Step { name: "tidy", kind: Kind::Quick, shown: "cargo xtask tidy", run: tidy::run },
    Step {
        name: "packages",
        kind: Kind::Quick,
        shown: "system packages that builds need",
        run: build_packages,
    },
    Step { name: "proto", kind: Kind::Quick, shown: "cargo xtask proto", run: proto::check },
    Step {
        name: "lints",
        kind: Kind::Lints,
        shown: "cargo clippy --workspace --all-targets --features snicd/cedar -- -D warnings; \
                meanwhile system packages for some tests",
        run: lints,
    },
    Step {
        name: "tests",
        kind: Kind::Tests,
        shown: "cargo test --workspace --features snicd/cedar --no-fail-fast, in programs side by side",
        run: tests,
    },
    Step {
        name: "fresh seed",
        kind: Kind::Tests,
        shown: "PROPTEST_RNG_SEED=… and the test programs of the pure crates; does not fail the run",
        run: fresh_seed,
    },
    Step {
        name: "docs",
        kind: Kind::Docs,
        shown: "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --workspace --features snicd/cedar",
        run: docs,
    },
];

/// Runs the steps and prints a summary. Returns whether everything passed.
pub fn run(keep_going: bool) -> bool {
    let workspace = Workspace::load();
    let report = drive(STEPS, keep_going, |step| match &workspace {
        Ok(workspace) => (step.run)(workspace),
        Err(error) => bail!("{error:#}"),
    });
    print!("\n{}", report.closing());
    let Tally { passed, failed, .. } = report.total();
    failed == 0 && passed > 0
}

fn drive(
    steps: &[Step],
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

/// Features that packages are built with, so that they are tested.
const FEATURES: [&str; 2] = ["--features", "snicd/cedar"];

fn format(workspace: &Workspace) -> anyhow::Result<Tally> {
    command::succeeds(&mut cargo(&workspace.root, &["fmt", "--all", "--check"])).map(Tally::one)
}

fn build_packages(workspace: &Workspace) -> anyhow::Result<Tally> {
    packages::provide(Needed::Builds, &workspace.target)
}

/// Installing packages mostly waits for the network and the disk, so the lints run beside it.
fn lints(workspace: &Workspace) -> anyhow::Result<Tally> {
    let targets = ["clippy", "--workspace", "--all-targets"];
    let arguments = [&targets[..], &FEATURES, &["--", "-D", "warnings"]].concat();
    thread::scope(|scope| {
        let packages = scope.spawn(|| packages::provide(Needed::Tests, &workspace.target));
        let linted = command::succeeds(&mut cargo(&workspace.root, &arguments)).map(Tally::one);
        let installed = packages.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let mut tally = linted?;
        tally += installed?;
        Ok(tally)
    })
}

fn tests(workspace: &Workspace) -> anyhow::Result<Tally> {
    let mut all = programs::built(workspace, &FEATURES)?;
    for program in &mut all {
        if std::env::var_os("RUST_BACKTRACE").is_none() {
            program.set("RUST_BACKTRACE", "1"); // a failure may not be reproducible
        }
        // The same cases in every run, so that a failure belongs to its commit. Without the seed
        // (`cargo test -p …`), each run tries other cases.
        if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
            program.set("PROPTEST_RNG_SEED", "2024");
        }
    }
    let mut summaries = programs::run(all, (&COMPUTING, &WAITING), &mut std::io::stdout())?;
    summaries.push(documentation_tests(workspace)?);
    let (total, failures) = sum(summaries);
    failures.iter().for_each(|failure| println!("failed: {failure}"));
    Ok(total)
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

fn sum(summaries: Vec<TestSummary>) -> (Tally, Vec<String>) {
    let (mut total, mut failures) = (Tally::default(), Vec::new());
    for summary in summaries {
        total += summary.total;
        failures.extend(summary.failures);
    }
    (total, failures)
}

/// Property tests of the pure crates with cases that no run has tried before. What fails is printed
/// with the seed that repeats it and counted as nothing: a red run must be about its commit.
///
/// It runs the programs of the step before: `cargo test -p …` would build them again, with fewer features.
fn fresh_seed(workspace: &Workspace) -> anyhow::Result<Tally> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut pure = programs::built(workspace, &FEATURES)?;
    pure.retain(|program| FRESHLY_SEEDED.contains(&program.package.as_str()));
    if pure.is_empty() {
        bail!("none of {} has a test program", FRESHLY_SEEDED.join(", "));
    }
    try_seed(pure, since_epoch.as_nanos() as u32, &mut std::io::stdout())
}

/// Runs test programs with a seed; failures are told and not counted.
fn try_seed(
    mut programs: Vec<TestProgram>,
    seed: u32,
    out: &mut (impl Write + Send),
) -> anyhow::Result<Tally> {
    for program in &mut programs {
        program.set("PROPTEST_RNG_SEED", &seed.to_string());
    }
    let (total, failures) = sum(programs::run(programs, (&FRESHLY_SEEDED, &[]), out)?);
    writeln!(out, "fresh seed {seed}: {}", words(&total))?;
    for failure in &failures {
        writeln!(out, "found with a fresh seed, not counted: {failure}")?;
    }
    if total.failed > 0 {
        writeln!(out, "repeat one with: PROPTEST_RNG_SEED={seed} cargo test -p PACKAGE")?;
    }
    Ok(Tally { failed: 0, ..total })
}

fn docs(workspace: &Workspace) -> anyhow::Result<Tally> {
    let arguments = [&["doc", "--no-deps", "--workspace"], &FEATURES[..]].concat();
    let mut command = cargo(&workspace.root, &arguments);
    command::succeeds(command.env("RUSTDOCFLAGS", "-D warnings")).map(Tally::one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::tests::{result, script};

    /// Runs the real list of steps with made-up outcomes; which ones ran, and the closing.
    fn outcome(failing: &[&str], keep_going: bool) -> (Vec<&'static str>, Report) {
        let mut ran = Vec::new();
        let report = drive(STEPS, keep_going, |step| {
            ran.push(step.name);
            Ok(Tally::one(!failing.contains(&step.name)))
        });
        (ran, report)
    }

    const ALL: [&str; 8] =
        ["format", "tidy", "packages", "proto", "lints", "tests", "fresh seed", "docs"];

    #[test]
    fn all_steps_run_while_all_is_well() {
        let (ran, report) = outcome(&[], false);
        assert_eq!(ran, ALL);
        assert!(report.closing().ends_with("\n8 passed, 0 failed\n"));
    }

    #[test]
    fn steps_of_the_failing_kind_all_run_and_dearer_ones_do_not() {
        let (ran, report) = outcome(&["format"], false);
        assert_eq!(ran, ["format", "tidy", "packages", "proto"]);
        let closing = report.closing();
        assert!(closing.contains("skipped: lints, tests, fresh seed, docs"), "{closing}");
        assert!(closing.ends_with("\n3 passed, 1 failed\n"), "{closing}");
    }

    #[test]
    fn keeping_going_runs_everything_and_still_fails() {
        let (ran, report) = outcome(&["tidy", "lints"], true);
        assert_eq!(ran, ALL);
        assert_eq!(report.total().failed, 2);
        assert!(!report.closing().contains("skipped"));
    }

    #[test]
    fn failures_of_a_fresh_seed_are_printed_and_not_counted() {
        let passes = script("snic-domain", "passes", &result("ok", "2 passed; 0 failed"));
        let fails = format!(
            "test \"$PROPTEST_RNG_SEED\" = 77 || exit 0\n{}\nexit 101",
            result("FAILED", "1 passed; 1 failed")
        );
        let fails = script("snic-etcd", "fails", &fails);
        let mut out = Vec::new();
        let tally = try_seed(vec![passes, fails], 77, &mut out).expect("both can be run");
        assert_eq!((tally.passed, tally.failed), (3, 0), "it does not fail the run");
        let out = String::from_utf8(out).expect("text");
        assert!(out.contains("fresh seed 77: 3 passed, 1 failed\n"), "{out}");
        assert!(out.contains("found with a fresh seed, not counted: fails: 1 failed\n"), "{out}");
        assert!(out.contains("PROPTEST_RNG_SEED=77 cargo test"), "{out}");
    }

    #[test]
    fn a_step_that_cannot_run_has_failed() {
        let report = drive(STEPS, false, |_| bail!("no such program"));
        assert!(report.closing().ends_with("\n0 passed, 4 failed\n"));
    }
}
