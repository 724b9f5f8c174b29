//! `cargo xtask test`: the steps, cheap ones first. All steps of a kind run, so that one run reports all of
//! their findings. After a kind has failed, more expensive kinds are skipped, and the summary says which.
//! All steps use one profile and one set of features, so that nothing is built twice except for clippy
//! and rustdoc.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use cargo_metadata::Message;

use crate::command::{self, cargo};
use crate::packages;
use crate::proto;
use crate::report::{Report, Tally, seconds, words};
use crate::tidy;
use crate::transcript::Transcript;
use crate::workspace::Workspace;

/// How expensive a step is. The next kind starts only if this one has passed.
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
        shown: "system packages for some tests",
        run: provide,
    },
    Step { name: "proto", kind: Kind::Quick, shown: "cargo xtask proto", run: proto::check },
    Step {
        name: "lints",
        kind: Kind::Lints,
        shown: "cargo clippy --workspace --all-targets --features snicd/cedar -- -D warnings",
        run: lints,
    },
    Step {
        name: "tests",
        kind: Kind::Tests,
        shown: "cargo test --workspace --features snicd/cedar --no-fail-fast", // runs the documentation tests too
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

/// What packages are built with, so that it is tested.
const FEATURES: [&str; 2] = ["--features", "snicd/cedar"];

fn format(workspace: &Workspace) -> anyhow::Result<Tally> {
    command::succeeds(&mut cargo(&workspace.root, &["fmt", "--all", "--check"])).map(Tally::one)
}

fn provide(_: &Workspace) -> anyhow::Result<Tally> {
    packages::provide()
}

fn lints(workspace: &Workspace) -> anyhow::Result<Tally> {
    let targets = ["clippy", "--workspace", "--all-targets"];
    let arguments = [&targets[..], &FEATURES, &["--", "-D", "warnings"]].concat();
    command::succeeds(&mut cargo(&workspace.root, &arguments)).map(Tally::one)
}

fn tests(workspace: &Workspace) -> anyhow::Result<Tally> {
    let mut command = cargo(
        &workspace.root,
        &[&["test", "--workspace"], &FEATURES[..], &["--no-fail-fast"]].concat(),
    );
    command.env("CARGO_TERM_COLOR", "never"); // the output is parsed
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        command.env("RUST_BACKTRACE", "1"); // a failure may not be reproducible
    }
    // The same cases in every run, so that a failure belongs to its commit. Without the seed
    // (`cargo test -p …`), each run tries other cases.
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        command.env("PROPTEST_RNG_SEED", "2024");
    }
    let mut transcript = Transcript::default();
    let status =
        command::streamed(&mut command, &mut std::io::stdout(), |line| transcript.line(line))?;
    let summary = transcript.finish(status.success());
    summary.failures.iter().for_each(|failure| println!("failed: {failure}"));
    Ok(summary.total)
}

/// Property tests of the pure crates with cases that no run has tried before. What fails is printed
/// with the seed that repeats it and counted as nothing: a red run must be about its commit.
///
/// It runs the programs of the step before: `cargo test -p …` would build them again, with fewer features.
fn fresh_seed(workspace: &Workspace) -> anyhow::Result<Tally> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    try_seed(test_programs(workspace)?, since_epoch.as_nanos() as u32, &mut std::io::stdout())
}

/// Runs test programs with a seed; failures are told and not counted.
fn try_seed(programs: Vec<TestProgram>, seed: u32, out: &mut impl Write) -> anyhow::Result<Tally> {
    let mut transcript = Transcript::default();
    let mut all_passed = true;
    for TestProgram { path, target, mut command } in programs {
        // As cargo says it, for the transcript.
        let line = format!("     Running {target} ({})", path.display());
        writeln!(out, "{line}")?;
        transcript.line(&line);
        command.env("PROPTEST_RNG_SEED", seed.to_string());
        let status = command::streamed(&mut command, out, |line| transcript.line(line))?;
        all_passed &= status.success();
    }
    let summary = transcript.finish(all_passed);
    writeln!(out, "fresh seed {seed}: {}", words(&summary.total))?;
    for failure in &summary.failures {
        writeln!(out, "found with a fresh seed, not counted: {failure}")?;
    }
    if summary.total.failed > 0 {
        writeln!(out, "repeat one with: PROPTEST_RNG_SEED={seed} cargo test -p PACKAGE")?;
    }
    Ok(Tally { failed: 0, ..summary.total })
}

/// A built test program.
struct TestProgram {
    path: PathBuf,
    /// The target's name.
    target: String,
    /// Runs it where tests of its package run.
    command: Command,
}

/// The test programs of the crates in [`FRESHLY_SEEDED`].
fn test_programs(workspace: &Workspace) -> anyhow::Result<Vec<TestProgram>> {
    let built = [&["test", "--workspace"], &FEATURES[..], &["--no-run", "--message-format=json"]];
    let arguments = built.concat();
    let built = cargo(&workspace.root, &arguments).stderr(Stdio::null()).output()?;
    if !built.status.success() {
        bail!("the tests do not build; the step before says why");
    }
    let is_pure = |folder: &Path| {
        let mut members = workspace.members.iter();
        members.any(|member| {
            FRESHLY_SEEDED.contains(&member.name.as_str())
                && workspace.root.join(&member.manifest).parent() == Some(folder)
        })
    };
    let mut programs = Vec::new();
    for message in Message::parse_stream(built.stdout.as_slice()) {
        let Message::CompilerArtifact(artifact) = message? else { continue };
        let folder = artifact.manifest_path.parent().map(|folder| folder.as_std_path());
        if let (Some(path), Some(folder), true) =
            (artifact.executable, folder, artifact.profile.test)
            && is_pure(folder)
        {
            let target = artifact.target.name;
            let mut command = Command::new(&path);
            command.current_dir(folder);
            programs.push(TestProgram { path: path.into(), target, command });
        }
    }
    if programs.is_empty() {
        bail!("none of {} has a test program", FRESHLY_SEEDED.join(", "));
    }
    Ok(programs)
}

fn docs(workspace: &Workspace) -> anyhow::Result<Tally> {
    let arguments = [&["doc", "--no-deps", "--workspace"], &FEATURES[..]].concat();
    let mut command = cargo(&workspace.root, &arguments);
    command::succeeds(command.env("RUSTDOCFLAGS", "-D warnings")).map(Tally::one)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// A test program that is a script.
    fn script(name: &str, text: &str) -> TestProgram {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        TestProgram { path: Path::new("/programs").join(name), target: name.to_owned(), command }
    }

    #[test]
    fn failures_of_a_fresh_seed_are_printed_and_not_counted() {
        let result = |word: &str, counts: &str| {
            format!("echo \"test result: {word}. {counts}; 0 ignored; 0 measured; 0 filtered out\"")
        };
        let passes = script("passes", &result("ok", "2 passed; 0 failed"));
        let fails = format!(
            "test \"$PROPTEST_RNG_SEED\" = 77 || exit 0\n{}\nexit 101",
            result("FAILED", "1 passed; 1 failed")
        );
        let fails = script("fails", &fails);
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
