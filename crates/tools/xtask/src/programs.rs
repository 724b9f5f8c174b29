//! Runs test programs of a tier, each as its package says in its manifest (`MachineUse`): those that only compute side by side,
//! one for each processor; those that wait for other processes with more tests at once; the others alone. `cargo test`
//! would run all of them one after another, with half of a small machine idle.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use cargo_metadata::Message;

use crate::command::{self, cargo};
use crate::tier::{MachineUse, Tier};
use crate::transcript::{TestSummary, Transcript};
use crate::workspace::{Member, Workspace};

/// The longest that a test program may take: the slowest takes a third of that on two processors.
pub const LONGEST: Duration = Duration::from_secs(15 * 60);
/// The same at night.
const LONGEST_AT_NIGHT: Duration = Duration::from_secs(4 * 60 * 60);

/// Failed tests of a program that are tried again: more are no accident.
const TRIED_AGAIN_MAX: usize = 3;

/// The module of a program whose tests need the machine for themselves, where the package's others wait.
const ALONE: &str = "alone::";

/// A built test program, or a part of it.
#[derive(Clone)]
pub struct TestProgram {
    /// The package that it tests.
    pub package: String,
    /// Use that its tests make of the machine.
    pub load: MachineUse,
    /// When its tests run that say nothing else.
    tier: Tier,
    path: PathBuf,
    /// The target's name.
    target: String,
    /// Where tests of its package run.
    folder: PathBuf,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    longest: Duration,
}

impl TestProgram {
    /// Sets a variable of its environment.
    pub fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    fn with(&self, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { arguments, ..self.clone() }
    }

    /// The runs of it that a tier has: its tests, where it is of this tier; and those whose `#[ignore]` names the tier.
    ///
    /// # Errors
    /// It does not list its tests.
    pub fn runs_of(self, tier: Tier) -> anyhow::Result<Vec<Self>> {
        let mut runs = Vec::new();
        if self.tier == tier {
            let alone = self.load == MachineUse::Wait
                && self.names(&[])?.iter().any(|n| n.starts_with(ALONE));
            if alone {
                runs.push(self.with(&["--skip", ALONE]));
                runs.push(Self { load: MachineUse::Alone, ..self.with(&[ALONE]) });
            } else {
                runs.push(self.clone());
            }
        }
        let marked = self.marked(tier)?;
        if !marked.is_empty() {
            let words: Vec<&str> = ["--ignored", "--exact"]
                .into_iter()
                .chain(marked.iter().map(String::as_str))
                .collect();
            let longest = if tier == Tier::Nightly { LONGEST_AT_NIGHT } else { LONGEST };
            runs.push(Self { longest, ..self.with(&words) });
        }
        Ok(runs)
    }

    /// The names of its tests, among those that `arguments` choose.
    fn names(&self, arguments: &[&str]) -> anyhow::Result<Vec<String>> {
        let listed = self.told(&[arguments, &["--list", "--format", "terse"]].concat())?;
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }

    /// Its tests whose `#[ignore]` names a tier. The reasons are in no list: but a test that is asked for by name and
    /// ignored says why, and nothing runs.
    fn marked(&self, tier: Tier) -> anyhow::Result<Vec<String>> {
        let ignored = self.names(&["--ignored"])?;
        if ignored.is_empty() {
            return Ok(Vec::new());
        }
        let words: Vec<&str> =
            ["--exact"].into_iter().chain(ignored.iter().map(String::as_str)).collect();
        let said = self.told(&words)?;
        let mut marked: Vec<String> = said
            .lines()
            .filter_map(|line| line.strip_prefix("test ")?.split_once(" ... ignored, "))
            .filter(|(_, reason)| Tier::of_reason(reason) == Some(tier))
            .map(|(name, _)| name.to_owned())
            .collect();
        marked.sort();
        Ok(marked)
    }

    fn told(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = self.command();
        let output = command.args(arguments).stdin(Stdio::null()).output();
        let output =
            output.with_context(|| format!("asking {} for its tests", self.path.display()))?;
        if !output.status.success() {
            bail!("{} does not list its tests: {}", self.path.display(), output.status);
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it, and those of its tests again that failed, each alone: a test of real processes may have met a machine that was
    /// busy with the others. A test that passes then counts as passed and as unsteady, which the summary of the run says.
    ///
    /// # Errors
    /// The program cannot be started, or `out` is closed.
    fn run_steadily(self, out: &mut impl Write) -> anyhow::Result<TestSummary> {
        let mut summary = self.clone().run(out)?;
        let failed = std::mem::take(&mut summary.failed_tests);
        // What was aborted, or is no test, has no line of its own.
        if failed.len() as u64 != summary.total.failed || failed.len() > TRIED_AGAIN_MAX {
            return Ok(summary);
        }
        let is_of_marked = self.arguments.first().is_some_and(|argument| argument == "--ignored");
        let mut parts = 0;
        for name in failed {
            writeln!(out, "once more, alone: {name}")?;
            let words: &[&str] =
                if is_of_marked { &["--exact", "--ignored"] } else { &["--exact"] };
            let again = self.with(&[words, &[name.as_str()]].concat()).run(out)?.total;
            // A part of another test, which starts it, and prints what it says.
            parts += u64::from(again.passed + again.failed == 0 && again.ignored == 1);
            if again.failed == 0 && again.passed > 0 {
                writeln!(out, "unsteady: {name} failed, and passed alone")?;
                summary.total.failed -= 1;
                summary.total.passed += 1;
                summary.total.unsteady += 1;
            }
        }
        if summary.total.unsteady > 0 && summary.total.failed == parts {
            summary.total.failed = 0;
            summary.failures.clear();
        }
        Ok(summary)
    }

    /// Runs it and copies its output to `out`, with a heading as cargo prints it.
    ///
    /// # Errors
    /// The program cannot be started, or `out` is closed.
    fn run(self, out: &mut impl Write) -> anyhow::Result<TestSummary> {
        let mut transcript = Transcript::default();
        let heading = format!("     Running {} ({})", self.target, self.path.display());
        writeln!(out, "{heading}")?;
        transcript.line(&heading);
        let read = |line: &str| transcript.line(line);
        let mut command = self.command();
        command.args(&self.arguments);
        let status = command::streamed(&mut command, self.longest, out, read)?;
        if !status.success() {
            let verdict = format!("error: test failed, to rerun pass `-p {}`", self.package);
            writeln!(out, "{verdict} ({status})")?;
            transcript.line(&verdict);
        }
        Ok(transcript.finish(true))
    }
}

/// Arguments by which cargo builds a tier: packages and their programs of tests, of this tier and of those before it.
pub fn selection(members: &[Member], tier: Tier) -> Vec<String> {
    let mut words = vec!["--workspace".to_owned()];
    let later = members.iter().filter(|member| member.plan.tier > tier);
    words.extend(later.flat_map(|member| ["--exclude".to_owned(), member.name.clone()]));
    words.extend(["--lib".to_owned(), "--bins".to_owned()]);
    let chosen = members.iter().filter(|member| member.plan.tier <= tier);
    let mut targets: Vec<&String> = chosen
        .flat_map(|member| &member.test_programs)
        .filter_map(|program| match &program[..] {
            [option, name] if option == "--test" => Some(name),
            _ => None,
        })
        .filter(|name| Tier::of_program(name) <= tier)
        .collect();
    targets.sort();
    targets.dedup();
    words.extend(targets.into_iter().flat_map(|name| ["--test".to_owned(), name.clone()]));
    words
}

/// Builds test programs as `selected` tells cargo, and says which there are.
///
/// # Errors
/// They do not build, which cargo explains, or there are none.
pub fn built(workspace: &Workspace, selected: &[String]) -> anyhow::Result<Vec<TestProgram>> {
    let asked = ["test", "--no-run", "--message-format=json-render-diagnostics"];
    let mut cargo = cargo(&workspace.root, &asked);
    let output = cargo.args(selected).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let mut programs = Vec::new();
    for message in Message::parse_stream(output.stdout.as_slice()) {
        let Message::CompilerArtifact(artifact) = message? else { continue };
        let folder = artifact.manifest_path.parent().map(|folder| folder.as_std_path());
        let (Some(path), Some(folder), true) = (artifact.executable, folder, artifact.profile.test)
        else {
            continue;
        };
        let Some(member) = package_of(workspace, folder) else { continue };
        let target = artifact.target.name;
        programs.push(TestProgram {
            package: member.name.clone(),
            load: member.plan.load,
            tier: member.plan.tier.max(Tier::of_program(&target)),
            path: path.into(),
            target,
            folder: folder.to_owned(),
            environment: Vec::new(),
            arguments: Vec::new(),
            longest: LONGEST,
        });
    }
    if programs.is_empty() {
        bail!("no test program found; has cargo's output changed?");
    }
    Ok(programs)
}

fn package_of<'a>(workspace: &'a Workspace, folder: &Path) -> Option<&'a Member> {
    let is_there = |manifest: &Path| workspace.root.join(manifest).parent() == Some(folder);
    workspace.members.iter().find(|member| is_there(&member.manifest))
}

/// Runs `programs`: those that only compute first, as many at once as the machine has processors and each one's output
/// printed when it has ended; then one after the other those that wait, and the rest.
///
/// # Errors
/// A program cannot be started, or `out` is closed.
pub fn run(
    programs: Vec<TestProgram>,
    out: &mut (impl Write + Send),
) -> anyhow::Result<Vec<TestSummary>> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let (mut computing, mut others): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|of| of.load == MachineUse::Compute);
    // What has most code mostly takes longest, and should not be what the others wait for.
    let size = |of: &TestProgram| std::fs::metadata(&of.path).map_or(0, |file| file.len());
    computing.sort_by_cached_key(|of| std::cmp::Reverse(size(of)));
    let mut summaries = run_together(computing, processors, out)?;
    others.sort_by_key(|of| of.load == MachineUse::Alone);
    for mut program in others {
        if program.load == MachineUse::Wait {
            program.set("RUST_TEST_THREADS", &(processors * 2).to_string());
        }
        summaries.push(program.run_steadily(out)?);
    }
    Ok(summaries)
}

fn run_together(
    programs: Vec<TestProgram>,
    workers: usize,
    out: &mut (impl Write + Send),
) -> anyhow::Result<Vec<TestSummary>> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let done = Mutex::new((out, Vec::new()));
    let worker = || -> anyhow::Result<()> {
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(program) = next else { return Ok(()) };
            let mut output = Vec::new();
            let summary = program.run(&mut output);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.0.write_all(&output)?;
            done.1.push(summary?);
        }
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        running.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner).1)
}

#[cfg(test)]
pub mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::workspace::tests::member;

    /// Test programs that are scripts, in a folder that ends with this.
    pub struct Scripts(tempfile::TempDir);

    impl Scripts {
        pub fn new() -> Self {
            Self(tempfile::tempdir().expect("a folder"))
        }

        pub fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// A program of a package of the same name that does this.
        pub fn program(&self, name: &str, load: MachineUse, text: &str) -> TestProgram {
            let path = self.path(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&path, mode).expect("a script");
            TestProgram {
                package: name.to_owned(),
                load,
                tier: Tier::Test,
                path,
                target: name.to_owned(),
                folder: self.0.path().to_owned(),
                environment: Vec::new(),
                arguments: Vec::new(),
                longest: LONGEST,
            }
        }
    }

    /// Prints a result line as the standard harness does.
    pub fn result(word: &str, counts: &str) -> String {
        format!("echo \"test result: {word}. {counts}; 0 ignored; 0 measured; 0 filtered out\"")
    }

    fn text_of(programs: Vec<TestProgram>) -> (String, Vec<TestSummary>) {
        let mut out = Vec::new();
        let summaries = run(programs, &mut out).expect("all can be run");
        (String::from_utf8(out).expect("text"), summaries)
    }

    fn sum(summaries: &[TestSummary], of: fn(&TestSummary) -> u64) -> u64 {
        summaries.iter().map(of).sum()
    }

    #[test]
    fn every_program_runs_once_and_outputs_do_not_mix() {
        let (scripts, passed) = (Scripts::new(), result("ok", "1 passed; 0 failed"));
        let text =
            |name: &str| format!("echo {name} begins; sleep 0.1; echo {name} ends; {passed}");
        let loads = [MachineUse::Alone, MachineUse::Compute, MachineUse::Wait, MachineUse::Compute];
        let programs = ["a", "b", "c", "d"].into_iter().zip(loads);
        let programs = programs.map(|(name, load)| scripts.program(name, load, &text(name)));
        let (out, summaries) = text_of(programs.collect());
        assert_eq!(sum(&summaries, |summary| summary.total.passed), 4);
        for name in ["a", "b", "c", "d"] {
            let whole = format!("{name})\n{name} begins\n{name} ends\n");
            assert_eq!(out.matches(&whole).count(), 1, "{name} in:\n{out}");
        }
        let place = |text: &str| out.find(text).expect(text);
        assert!(place("a begins") > place("c ends"), "alone, after the others:\n{out}");
        assert!(place("c begins") > place("b ends").max(place("d ends")), "{out}");
    }

    /// Each of two waits for the other to have begun, which alone it would do in vain.
    #[test]
    fn those_that_compute_run_beside_each_other() {
        let scripts = Scripts::new();
        let (passed, failed) =
            (result("ok", "1 passed; 0 failed"), result("FAILED", "0 passed; 1 failed"));
        let meets = |own: &str, other: &str| {
            let file = |name: &str| scripts.path(&format!("{name}.begun")).display().to_string();
            let (own, other) = (file(own), file(other));
            format!(
                "touch {own}; n=0; until [ -e {other} ] || [ $n -gt 200 ]; do sleep 0.02; n=$((n+1)); done; \
                 if [ -e {other} ]; then {passed}; else {failed}; exit 101; fi"
            )
        };
        let programs = vec![
            scripts.program("a", MachineUse::Compute, &meets("a", "b")),
            scripts.program("b", MachineUse::Compute, &meets("b", "a")),
        ];
        let mut out = Vec::new();
        let summaries = run_together(programs, 2, &mut out).expect("both can be run");
        assert_eq!(sum(&summaries, |summary| summary.total.passed), 2);
    }

    #[test]
    fn what_waits_has_twice_as_many_tests_at_once_as_processors() {
        let scripts = Scripts::new();
        let text =
            format!("echo threads $RUST_TEST_THREADS; {}", result("ok", "1 passed; 0 failed"));
        let (out, _) = text_of(vec![scripts.program("waits", MachineUse::Wait, &text)]);
        let processors = thread::available_parallelism().map_or(1, usize::from);
        assert!(out.contains(&format!("threads {}\n", processors * 2)), "{out}");
    }

    #[test]
    fn what_fails_is_counted_wherever_it_runs() {
        let failed = format!("{}; exit 101", result("FAILED", "2 passed; 1 failed"));
        let late = format!("{}; exit 1", result("ok", "1 passed; 0 failed"));
        for load in [MachineUse::Alone, MachineUse::Compute, MachineUse::Wait] {
            let scripts = Scripts::new();
            let programs = vec![
                scripts.program("fails", load, &failed),
                scripts.program("aborts", load, "kill -9 $$"),
                scripts.program("late", load, &late),
            ];
            let (out, summaries) = text_of(programs);
            assert_eq!(sum(&summaries, |summary| summary.total.failed), 3, "{out}");
            assert_eq!(sum(&summaries, |summary| summary.total.passed), 3, "{out}");
            assert!(out.contains("to rerun pass `-p fails`"), "{out}");
        }
    }

    #[test]
    fn a_test_of_processes_that_fails_is_tried_again_alone() {
        let scripts = Scripts::new();
        let part = "echo 'test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured'";
        let again = |of: &str, second: &str| {
            format!(
                "case \"$*\" in '--exact busy') {second}; exit ;; '--exact part') {part}; exit ;; esac\n\
                 echo 'test {of} ... FAILED'; {}; exit 101",
                result("FAILED", "2 passed; 1 failed")
            )
        };
        let (passes, fails) =
            (result("ok", "1 passed; 0 failed"), result("FAILED", "0 passed; 1 failed"));
        let nothing = result("ok", "0 passed; 0 failed");
        let with_part = format!(
            "case \"$*\" in '--exact busy') {passes}; exit ;; '--exact part') {part}; exit ;; esac\n\
             echo 'test part ... FAILED'; {fails}; echo 'test busy ... FAILED'; {fails}; exit 101"
        );
        let outcome = |load, text: &str| {
            let (_, summaries) = text_of(vec![scripts.program("busy", load, text)]);
            let TestSummary { total, failures, .. } = &summaries[0];
            (total.passed, total.failed, total.unsteady, failures.len())
        };
        assert_eq!(outcome(MachineUse::Wait, &again("busy", &passes)), (3, 0, 1, 0));
        assert_eq!(outcome(MachineUse::Alone, &again("busy", &passes)), (3, 0, 1, 0));
        assert_eq!(outcome(MachineUse::Wait, &again("busy", &fails)), (2, 1, 0, 1));
        assert_eq!(outcome(MachineUse::Wait, &again("busy", &nothing)), (2, 1, 0, 1));
        assert_eq!(outcome(MachineUse::Wait, &again("other", &passes)), (2, 1, 0, 1));
        assert_eq!(outcome(MachineUse::Wait, &with_part), (1, 0, 1, 0));
        assert_eq!(outcome(MachineUse::Wait, &again("part", &passes)), (2, 1, 0, 1));
        // What only computes fails for a reason.
        assert_eq!(outcome(MachineUse::Compute, &again("busy", &passes)), (2, 1, 0, 1));
    }

    /// A script that lists tests, and tells reasons, as the standard harness does.
    const HARNESS: &str = r#"
        case "$*" in
            "--list --format terse") printf 'quick: test\nalone::disk: test\nslow: test\nhours: test\nchild: test\n' ;;
            "--ignored --list --format terse") printf 'slow: test\nhours: test\nchild: test\n\n3 tests\n' ;;
            "--exact slow hours child")
                echo "test slow ... ignored, ci: a minute"
                echo "test hours ... ignored, nightly: hours"
                echo "test child ... ignored, part: of slow" ;;
            *) echo "ran $*"; echo "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured" ;;
        esac"#;

    #[test]
    fn a_tier_runs_what_is_marked_for_it_and_no_child_of_another_test() {
        let scripts = Scripts::new();
        let program = |load| scripts.program("harness", load, HARNESS);
        let runs = |load, tier| {
            let runs = program(load).runs_of(tier).expect("it lists its tests");
            let text = |run: &TestProgram| format!("{:?} {}", run.load, run.arguments.join(" "));
            runs.iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(runs(MachineUse::Compute, Tier::Test), ["Compute "]);
        assert_eq!(runs(MachineUse::Wait, Tier::Test), ["Wait --skip alone::", "Alone alone::"]);
        assert_eq!(runs(MachineUse::Compute, Tier::Ci), ["Compute --ignored --exact slow"]);
        assert_eq!(runs(MachineUse::Alone, Tier::Nightly), ["Alone --ignored --exact hours"]);
        let (out, _) =
            text_of(program(MachineUse::Alone).runs_of(Tier::Ci).expect("it lists them"));
        assert!(out.contains("ran --ignored --exact slow\n"), "{out}");
    }

    #[test]
    fn a_program_that_does_not_list_its_tests_is_an_error() {
        let scripts = Scripts::new();
        let error = scripts.program("broken", MachineUse::Alone, "exit 3").runs_of(Tier::Ci);
        let error = error.err().expect("it ended with 3").to_string();
        assert!(error.contains("broken does not list its tests"), "{error}");
    }

    #[test]
    fn a_tier_builds_its_packages_and_programs_and_those_before() {
        let mut members = [member("domain", &[]), member("wasm", &[]), member("run", &[])];
        members[1].plan.tier = Tier::Ci;
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        members[0].test_programs = vec![words("--lib"), words("--test domain")];
        members[1].test_programs = vec![words("--lib"), words("--test limits")];
        members[2].test_programs =
            ["run", "ci", "nightly"].map(|of| words(&format!("--test {of}"))).into();
        let text = |tier| selection(&members, tier).join(" ");
        assert_eq!(
            text(Tier::Test),
            "--workspace --exclude snic-wasm --lib --bins --test domain --test run"
        );
        assert_eq!(
            text(Tier::Ci),
            "--workspace --lib --bins --test ci --test domain --test limits --test run"
        );
        assert!(text(Tier::Nightly).contains("--test nightly"));
    }
}
