//! Trying mutants in a copy of the project, so that an interrupted run leaves nothing behind.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use super::list::Mutant;
use crate::command::cargo;
use crate::tidy::tracked;
use crate::workspace::Workspace;

/// How often a running test is looked at.
const POLL: Duration = Duration::from_millis(50);

/// Names the files of the copy, so that those that the project no longer has are removed.
const LISTED: &str = "files.txt";

/// What became of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MutantVerdict {
    /// The tests failed, or did not end in time.
    Killed,
    /// The tests passed.
    Survived,
    /// It does not compile: the patch tells nothing.
    Invalid,
}

impl MutantVerdict {
    /// One word for the report.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Survived => "SURVIVED",
            Self::Invalid => "INVALID",
        }
    }
}

/// A copy of the project, as it is in the working tree, with a target folder of its own.
#[derive(Debug)]
pub struct Copy {
    root: PathBuf,
}

impl Copy {
    /// Brings the copy up to date. Files that did not change are left alone, so a second run builds
    /// only what is new.
    ///
    /// # Errors
    /// Git does not answer, or a file cannot be copied.
    pub fn of(workspace: &Workspace) -> anyhow::Result<Self> {
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
        Ok(Self { root })
    }

    /// How long the tests take without a mutant.
    ///
    /// # Errors
    /// They do not build, fail, or take too long: nothing could be told from them.
    pub fn baseline(&self, tests: &[String], deadline: Duration) -> anyhow::Result<Duration> {
        if !self.builds(tests)? {
            bail!("cargo test {}: does not build without a mutant", tests.join(" "));
        }
        let begun = Instant::now();
        match self.passes(tests, deadline)? {
            true => Ok(begun.elapsed()),
            false => bail!("cargo test {}: fails without a mutant", tests.join(" ")),
        }
    }

    /// Puts a mutant in, runs its tests, and takes it out again.
    ///
    /// # Errors
    /// The patch does not apply, a file cannot be written, or cargo cannot be started.
    pub fn try_mutant(&self, mutant: &Mutant, deadline: Duration) -> anyhow::Result<MutantVerdict> {
        let path = self.root.join(&mutant.file);
        let text = fs::read_to_string(&path).with_context(|| mutant.file.clone())?;
        let mutated = mutant.apply(&text).with_context(|| mutant.name.clone())?;
        fs::write(&path, mutated).with_context(|| mutant.file.clone())?;
        let verdict = self.verdict(&mutant.tests, deadline);
        fs::write(&path, text).with_context(|| mutant.file.clone())?;
        verdict
    }

    fn verdict(&self, tests: &[String], deadline: Duration) -> anyhow::Result<MutantVerdict> {
        if !self.builds(tests)? {
            return Ok(MutantVerdict::Invalid);
        }
        Ok(if self.passes(tests, deadline)? {
            MutantVerdict::Survived
        } else {
            MutantVerdict::Killed
        })
    }

    fn builds(&self, tests: &[String]) -> anyhow::Result<bool> {
        let mut child = self.test(tests, &["--no-run"])?;
        Ok(child.wait().context("waiting for cargo")?.success())
    }

    /// Whether the tests pass within the deadline.
    fn passes(&self, tests: &[String], deadline: Duration) -> anyhow::Result<bool> {
        let child = self.test(tests, &[])?;
        Ok(wait(child, deadline)?.is_some_and(|status| status.success()))
    }

    /// `cargo test` in a process group of its own: what a hanging test started must end with it.
    fn test(&self, tests: &[String], more: &[&str]) -> anyhow::Result<Child> {
        let mut command = cargo(&self.root, &["test", "--quiet"]);
        command.args(tests).args(more);
        command.env("CARGO_TARGET_DIR", self.root.join("target"));
        // The same cases for each mutant: a verdict can be repeated.
        command.env("PROPTEST_RNG_SEED", "2024");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        command.spawn().context("starting cargo")
    }
}

/// The exit status, or nothing where the deadline came first; then the whole group is killed.
fn wait(mut child: Child, deadline: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(status) = child.try_wait().context("waiting for a test")? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // It may have ended just now: then there is nothing to kill.
                let _ = kill_process_group(group, Signal::KILL);
            }
            child.wait().context("waiting for a killed test")?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
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
    use std::process::Command;

    use super::*;

    #[test]
    fn what_hangs_is_killed_with_all_that_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & wait"]).process_group(0);
        let child = command.spawn().expect("sh is there");
        let group = Pid::from_raw(i32::try_from(child.id()).expect("small")).expect("positive");
        assert_eq!(wait(child, Duration::from_millis(100)).expect("it can be waited for"), None);
        // The orphan is reaped by init a moment later.
        for _ in 0..200 {
            if rustix::process::test_kill_process_group(group).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("the process group outlived the deadline by ten seconds");
    }

    #[test]
    fn an_end_in_time_has_its_status() {
        let child = Command::new("false").spawn().expect("it is there");
        let status = wait(child, Duration::from_secs(60)).expect("it ends").expect("in time");
        assert!(!status.success());
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
