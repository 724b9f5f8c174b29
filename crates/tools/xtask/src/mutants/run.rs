//! Trying mutants, in a copy of the project or in the working tree.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use super::list::Mutant;
use crate::command::cargo;
use crate::tidy::tracked;
use crate::workspace::Workspace;

/// Names the files of the copy, so that those that the project no longer has are removed.
const LISTED: &str = "files.txt";

/// Fate of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MutantVerdict {
    /// A test failed, this one first; or they did not end in time, or ended otherwise.
    Killed(String),
    /// The tests passed.
    Survived,
    /// It does not compile, for this reason: the patch tells nothing.
    Invalid(String),
}

impl MutantVerdict {
    /// One word for the report.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Killed(_) => "killed",
            Self::Survived => "SURVIVED",
            Self::Invalid(_) => "INVALID",
        }
    }

    /// Remark beside it.
    pub fn detail(&self) -> &str {
        match self {
            Self::Killed(why) | Self::Invalid(why) => why,
            Self::Survived => "",
        }
    }
}

/// End of a run of tests.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Passed,
    /// A test failed, or the run did not end as it should: which, or how.
    Failed(String),
}

/// Where mutants are tried.
#[derive(Debug)]
pub struct Bench {
    root: PathBuf,
    /// The target folder, where it is not the project's own.
    target: Option<PathBuf>,
}

impl Bench {
    /// A copy of the project as it is in the working tree, brought up to date, with a target folder of
    /// its own. Files that did not change are left alone, so a second run builds only what is new.
    ///
    /// # Errors
    /// Git does not answer, or a file cannot be copied.
    pub fn copy(workspace: &Workspace) -> anyhow::Result<Self> {
        let root = workspace.target.join("mutants");
        let tracked = tracked(&workspace.root)?;
        for path in &tracked {
            copy_if_changed(&workspace.root.join(path), &root.join(path))?;
        }
        let list = root.join(LISTED);
        let before = fs::read_to_string(&list).unwrap_or_default();
        for path in before.lines().filter(|path| !tracked.iter().any(|kept| kept == path)) {
            // It may be gone already.
            let _ = fs::remove_file(root.join(path));
        }
        fs::write(&list, tracked.join("\n")).with_context(|| list.display().to_string())?;
        let target = Some(root.join("target"));
        Ok(Self { root, target })
    }

    /// The working tree itself, with what is built there already. Nothing in it may differ from its
    /// commit, so that `git checkout` takes back what an interrupted run left.
    ///
    /// # Errors
    /// Git does not answer, or something differs.
    pub fn here(workspace: &Workspace) -> anyhow::Result<Self> {
        let arguments = ["status", "--porcelain", "--untracked-files=no"];
        let output = Command::new("git")
            .args(["-c", "safe.directory=*"])
            .args(arguments)
            .current_dir(&workspace.root)
            .output()
            .context("asking git what has changed")?;
        let changed = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || !changed.trim().is_empty() {
            bail!("mutants are tried in a tree without changes; commit these first:\n{changed}");
        }
        Ok(Self { root: workspace.root.clone(), target: None })
    }

    /// Time of the tests without a mutant.
    ///
    /// # Errors
    /// They do not build, fail, or take too long: nothing could be told from them.
    pub fn baseline(&self, runs: &[Vec<String>], deadline: Duration) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        for run in runs {
            let command = run.join(" ");
            if let Some(error) = self.build_error(run)? {
                bail!("cargo test {command}: does not build without a mutant: {error}");
            }
            if let Ended::Failed(why) = self.run(run, deadline)? {
                bail!("cargo test {command}: fails without a mutant: {why}");
            }
        }
        Ok(begun.elapsed())
    }

    /// Puts a mutant in, runs its tests up to the first that fails, and takes it out again.
    ///
    /// # Errors
    /// The patch does not apply, a file cannot be written, or cargo cannot be started.
    pub fn try_mutant(
        &self,
        mutant: &Mutant,
        runs: &[Vec<String>],
        deadline: Duration,
    ) -> anyhow::Result<MutantVerdict> {
        let path = self.root.join(&mutant.file);
        let text = fs::read_to_string(&path).with_context(|| mutant.file.clone())?;
        let mutated = mutant.apply(&text).with_context(|| mutant.name.clone())?;
        fs::write(&path, mutated).with_context(|| mutant.file.clone())?;
        let verdict = self.verdict(runs, deadline);
        fs::write(&path, text).with_context(|| mutant.file.clone())?;
        verdict
    }

    fn verdict(&self, runs: &[Vec<String>], deadline: Duration) -> anyhow::Result<MutantVerdict> {
        for run in runs {
            if let Some(error) = self.build_error(run)? {
                return Ok(MutantVerdict::Invalid(error));
            }
            if let Ended::Failed(why) = self.run(run, deadline)? {
                return Ok(MutantVerdict::Killed(why));
            }
        }
        Ok(MutantVerdict::Survived)
    }

    /// First error of the compiler, where the tests do not build.
    fn build_error(&self, run: &[String]) -> anyhow::Result<Option<String>> {
        let mut command = self.test(run);
        let command = command.arg("--no-run").stdout(Stdio::null()).stderr(Stdio::piped());
        let output = command.output().context("starting cargo")?;
        if output.status.success() {
            return Ok(None);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let error = said.lines().find(|line| line.starts_with("error"));
        Ok(Some(error.unwrap_or("cargo failed and said nothing of an error").to_owned()))
    }

    /// Runs tests that are built, up to the first that fails.
    fn run(&self, run: &[String], deadline: Duration) -> anyhow::Result<Ended> {
        let mut command = self.test(run);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        watch(child.context("starting cargo")?, deadline)
    }

    /// `cargo test` in a process group of its own: what a hanging test started must end with it.
    fn test(&self, run: &[String]) -> Command {
        let mut command = cargo(&self.root, &["test"]);
        command.args(run);
        if let Some(target) = &self.target {
            command.env("CARGO_TARGET_DIR", target);
        }
        // The same cases for each mutant: a verdict can be repeated. A case that fails is enough, and
        // nothing of it stays in the tree.
        command.env("PROPTEST_RNG_SEED", "2024").env("PROPTEST_MAX_SHRINK_ITERS", "0");
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true").env("INSTA_UPDATE", "no");
        // A mutant that breaks a promise of the simulation breaks it in some of these runs, or hardly ever.
        command.env("SNIC_SEEDS", "300");
        command.stdin(Stdio::null()).process_group(0);
        command
    }
}

/// Reads what tests say until one fails, all have ended, or the deadline comes; what runs then is
/// killed with all that it started.
fn watch(mut child: Child, deadline: Duration) -> anyhow::Result<Ended> {
    let end = Instant::now() + deadline;
    let lines = lines_of(child.stdout.take());
    let stopped = loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(test) = failed_test(&line) {
                    break Some(test.to_owned());
                }
            }
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) => {
                break Some(format!("no end within {} s", deadline.as_secs()));
            }
        }
    };
    if stopped.is_some()
        && let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
    {
        // It may have ended just now: then there is nothing to kill.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait().context("waiting for tests")?;
    Ok(match stopped {
        Some(why) => Ended::Failed(why),
        None if status.success() => Ended::Passed,
        None => Ended::Failed(status.to_string()),
    })
}

/// The lines of an output, until all who write to it have ended.
fn lines_of(output: Option<impl std::io::Read + Send + 'static>) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let Some(output) = output else { return };
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    lines
}

/// The test that failed, where a line of the test harness says so.
fn failed_test(line: &str) -> Option<&str> {
    let test = line.strip_prefix("test ")?.trim_end();
    let test = test.strip_suffix(" ... FAILED")?;
    Some(test.strip_suffix(" - should panic").unwrap_or(test))
}

fn copy_if_changed(from: &Path, to: &Path) -> anyhow::Result<()> {
    let Ok(bytes) = fs::read(from) else {
        return Ok(()); // deleted, and not yet committed so
    };
    if fs::read(to).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::write(to, bytes).with_context(|| to.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0).stdout(Stdio::piped());
        command.spawn().expect("sh is there")
    }

    fn group_of(child: &Child) -> Pid {
        Pid::from_raw(i32::try_from(child.id()).expect("small")).expect("positive")
    }

    /// Panics where the group lives on; an orphan is reaped by init a moment later.
    fn is_gone(group: Pid) {
        for _ in 0..200 {
            if rustix::process::test_kill_process_group(group).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("the process group outlived its end by ten seconds");
    }

    #[test]
    fn a_hanging_test_is_killed_with_its_child_processes() {
        let child = shell("sleep 600 & wait");
        let group = group_of(&child);
        let ended = watch(child, Duration::from_millis(100)).expect("it can be waited for");
        assert_eq!(ended, Ended::Failed("no end within 0 s".into()));
        is_gone(group);
    }

    #[test]
    fn the_first_test_that_fails_ends_the_run() {
        let child = shell("echo 'test a ... ok'; echo 'test b::c ... FAILED'; sleep 600");
        let group = group_of(&child);
        let ended = watch(child, Duration::from_secs(60)).expect("it can be waited for");
        assert_eq!(ended, Ended::Failed("b::c".into()));
        is_gone(group);
    }

    #[test]
    fn an_end_in_time_has_its_status() {
        let ended = |script| watch(shell(script), Duration::from_secs(60)).expect("it ends");
        assert_eq!(ended("echo 'test a ... ok'"), Ended::Passed);
        let Ended::Failed(why) = ended("exit 101") else { panic!("it did not pass") };
        assert!(why.contains("101"), "{why}");
    }

    #[test]
    fn a_line_of_the_harness_names_the_test_that_failed() {
        assert_eq!(failed_test("test shell::tests::a ... FAILED"), Some("shell::tests::a"));
        assert_eq!(failed_test("test a - should panic ... FAILED"), Some("a"));
        for other in ["test a ... ok", "test result: FAILED. 1 passed", "a ... FAILED", ""] {
            assert_eq!(failed_test(other), None, "{other:?}");
        }
    }

    #[test]
    fn only_what_changed_is_copied() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("a"), folder.path().join("deep/b"));
        fs::write(&from, "one").expect("writes");
        copy_if_changed(&from, &to).expect("copies");
        let written = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).expect("there");
        let before = written(&to);
        thread::sleep(Duration::from_millis(20));
        copy_if_changed(&from, &to).expect("nothing to do");
        assert_eq!(written(&to), before);
        fs::write(&from, "two").expect("writes");
        copy_if_changed(&from, &to).expect("copies");
        assert_eq!(fs::read_to_string(&to).expect("reads"), "two");
    }
}
