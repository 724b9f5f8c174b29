//! Runs test programs. Those that only compute run side by side, one for each processor; those that mostly wait for
//! other processes run two at a time; those that need all of the machine, or watch the time closely, run alone. `cargo
//! test` would run all of them one after another, with half of a small machine idle.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::bail;
use cargo_metadata::Message;

use crate::command::{self, cargo};
use crate::transcript::{TestSummary, Transcript};
use crate::workspace::Workspace;

/// The longest that a test program may take: the slowest takes less than four minutes on two processors.
pub const LONGEST: Duration = Duration::from_secs(15 * 60);

/// A built test program.
pub struct TestProgram {
    /// The package that it tests.
    pub package: String,
    path: PathBuf,
    /// The target's name.
    target: String,
    /// Runs it where tests of its package run.
    command: Command,
}

impl TestProgram {
    /// Sets a variable of its environment.
    pub fn set(&mut self, name: &str, value: &str) {
        self.command.env(name, value);
    }

    /// Runs it and copies its output to `out`, with a heading as cargo prints it.
    ///
    /// # Errors
    /// The program cannot be started, or `out` is closed.
    fn run(mut self, out: &mut impl Write) -> anyhow::Result<TestSummary> {
        let mut transcript = Transcript::default();
        let heading = format!("     Running {} ({})", self.target, self.path.display());
        writeln!(out, "{heading}")?;
        transcript.line(&heading);
        let read = |line: &str| transcript.line(line);
        let status = command::streamed(&mut self.command, LONGEST, out, read)?;
        if !status.success() {
            let verdict = format!("error: test failed, to rerun pass `-p {}`", self.package);
            writeln!(out, "{verdict} ({status})")?;
            transcript.line(&verdict);
        }
        Ok(transcript.finish(true))
    }
}

/// Builds the test programs of the workspace, and says which there are, in cargo's order.
///
/// # Errors
/// They do not build, which cargo explains, or there are none.
pub fn built(workspace: &Workspace, features: &[&str]) -> anyhow::Result<Vec<TestProgram>> {
    let asked = ["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    let mut cargo = cargo(&workspace.root, &[&asked, features].concat());
    let output = cargo.stderr(Stdio::inherit()).output()?;
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
        let mut command = Command::new(&path);
        command.current_dir(folder);
        let package = package_of(workspace, folder);
        programs.push(TestProgram {
            package,
            path: path.into(),
            target: artifact.target.name,
            command,
        });
    }
    if programs.is_empty() {
        bail!("no test program found; has cargo's output changed?");
    }
    Ok(programs)
}

fn package_of(workspace: &Workspace, folder: &Path) -> String {
    let is_there = |manifest: &Path| workspace.root.join(manifest).parent() == Some(folder);
    let member = workspace.members.iter().find(|member| is_there(&member.manifest));
    member.map(|member| member.name.clone()).unwrap_or_default()
}

/// Runs `programs`: those of packages in `side_by_side` first, in the order of that list, as many at once as the
/// machine has processors, and each one's output printed when it has ended; then those that are named in `waiting`, two
/// at a time; then the others, alone.
///
/// # Errors
/// A program cannot be started, or `out` is closed.
pub fn run(
    programs: Vec<TestProgram>,
    (side_by_side, waiting): (&[&str], &[&str]),
    out: &mut (impl Write + Send),
) -> anyhow::Result<Vec<TestSummary>> {
    let place = |list: &[&str], name: &str| list.iter().position(|other| *other == name);
    let (mut together, rest): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|of| place(side_by_side, &of.package).is_some());
    together.sort_by_key(|of| place(side_by_side, &of.package));
    let (mut in_pairs, alone): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|of| place(waiting, &of.target).is_some());
    in_pairs.sort_by_key(|of| place(waiting, &of.target));
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let mut summaries = run_together(together, processors, out)?;
    summaries.extend(run_together(in_pairs, 2, out)?);
    for program in alone {
        summaries.push(program.run(out)?);
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
    use super::*;

    /// A test program that is a script.
    pub fn script(package: &str, name: &str, text: &str) -> TestProgram {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        let path = Path::new("/programs").join(name);
        TestProgram { package: package.to_owned(), path, target: name.to_owned(), command }
    }

    /// Prints a result line as the standard harness does.
    pub fn result(word: &str, counts: &str) -> String {
        format!("echo \"test result: {word}. {counts}; 0 ignored; 0 measured; 0 filtered out\"")
    }

    fn text_of(
        programs: Vec<TestProgram>,
        lists: (&[&str], &[&str]),
    ) -> (String, Vec<TestSummary>) {
        let mut out = Vec::new();
        let summaries = run(programs, lists, &mut out).expect("all can be run");
        (String::from_utf8(out).expect("text"), summaries)
    }

    #[test]
    fn every_program_runs_once_and_outputs_do_not_mix() {
        let passed = result("ok", "1 passed; 0 failed");
        let text =
            |name: &str| format!("echo {name} begins; sleep 0.1; echo {name} ends; {passed}");
        let programs = ["a", "b", "c", "d"].map(|name| script(name, name, &text(name)));
        let (out, summaries) = text_of(programs.into(), (&["d", "b"], &["a"]));
        assert_eq!(summaries.iter().map(|summary| summary.total.passed).sum::<u64>(), 4);
        for name in ["a", "b", "c", "d"] {
            let whole = format!("({0}{name})\n{name} begins\n{name} ends\n", "/programs/");
            assert_eq!(out.matches(&whole).count(), 1, "{name} in:\n{out}");
        }
        assert!(out.rfind("c begins") > out.rfind("a ends"), "alone, after the others:\n{out}");
    }

    /// Each of two waits for the other to have begun, which alone it would do in vain.
    #[test]
    fn those_that_wait_run_two_at_a_time_and_nobody_beside_the_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name).display().to_string();
        let (passed, failed) =
            (result("ok", "1 passed; 0 failed"), result("FAILED", "0 passed; 1 failed"));
        let meets = |own: &str, other: &str| {
            let (own, other) = (file(own), file(other));
            format!(
                "touch {own}; n=0; until [ -e {other} ] || [ $n -gt 200 ]; do sleep 0.02; n=$((n+1)); done; \
                 if [ -e {other} ]; then {passed}; else {failed}; exit 101; fi"
            )
        };
        let alone = format!(
            "if [ -e {} ] && [ -e {} ]; then {passed}; else {failed}; exit 101; fi",
            file("a"),
            file("b")
        );
        let programs = vec![
            script("p", "alone", &alone),
            script("p", "a", &meets("a", "b")),
            script("p", "b", &meets("b", "a")),
        ];
        let (out, summaries) = text_of(programs, (&[], &["a", "b"]));
        assert_eq!(summaries.iter().map(|summary| summary.total.passed).sum::<u64>(), 3, "{out}");
    }

    #[test]
    fn what_fails_is_counted_wherever_it_runs() {
        let failed = format!("{}; exit 101", result("FAILED", "2 passed; 1 failed"));
        let late = format!("{}; exit 1", result("ok", "1 passed; 0 failed"));
        for lists in [(&["p"][..], &[][..]), (&[], &["late", "fails"]), (&[], &[])] {
            let programs = vec![
                script("p", "fails", &failed),
                script("p", "aborts", "kill -9 $$"),
                script("p", "late", &late),
            ];
            let (out, summaries) = text_of(programs, lists);
            let count = |of: fn(&TestSummary) -> u64| summaries.iter().map(of).sum::<u64>();
            assert_eq!(count(|summary| summary.total.failed), 3, "{out}");
            assert_eq!(count(|summary| summary.total.passed), 3, "{out}");
            assert!(out.contains("to rerun pass `-p p`"), "{out}");
        }
    }
}
