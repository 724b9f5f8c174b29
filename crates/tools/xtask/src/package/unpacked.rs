//! A host with the packages unpacked, and programs that run on it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::generated::printed;
use crate::platform::Platform;

/// Longest time for a program to serve, and to stop: under QEMU a start takes seconds.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A host with the packages unpacked.
pub struct UnpackedHost<'a> {
    pub platform: &'a Platform,
    /// Its programs run here.
    pub folder: &'a Path,
}

impl UnpackedHost<'_> {
    /// Folder with the content of the packages.
    pub fn system(&self) -> PathBuf {
        self.folder.join("system")
    }

    /// A command that runs a program of the packages.
    pub fn program(&self, path: &str, words: &[&str]) -> Command {
        let mut command = self.platform.command(&self.system().join(path));
        command.current_dir(self.folder).env("SNICCTL_CONFIG", self.folder.join("contexts.toml"));
        command.args(words);
        command
    }

    /// Output of a program.
    ///
    /// # Errors
    /// It fails.
    pub fn said(&self, path: &str, words: &[&str]) -> anyhow::Result<String> {
        Ok(String::from_utf8(printed(&mut self.program(path, words))?)?)
    }
}

/// A program that runs until it is stopped; it is killed where something fails before.
pub struct RunningProgram {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl RunningProgram {
    /// Starts a program with a log in `folder`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(name: &'static str, mut command: Command, folder: &Path) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        Ok(Self { name, child, log })
    }

    /// Tries it, and stops it. What it has logged is told with what goes wrong.
    ///
    /// # Errors
    /// Those of `attempt`, and if it does not end well.
    pub fn tried(
        mut self,
        attempt: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let tried = attempt(&mut self);
        let stopped = self.stop();
        tried.and(stopped).with_context(|| {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            format!("{}'s log:\n{log}", self.name)
        })
    }

    /// Asks until there is an answer.
    ///
    /// # Errors
    /// There is none, or the program has ended.
    pub fn until(&mut self, ask: impl Fn() -> anyhow::Result<String>) -> anyhow::Result<String> {
        let (start, name) = (Instant::now(), self.name);
        loop {
            let error = match ask() {
                Ok(said) => return Ok(said),
                Err(error) => error,
            };
            if let Some(status) = self.child.try_wait()? {
                bail!("{name} ended while it was asked: {status}");
            }
            if start.elapsed() > PATIENCE {
                return Err(error.context(format!("{name} does not serve within {PATIENCE:?}")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Asks it to stop, and waits for it.
    fn stop(&mut self) -> anyhow::Result<()> {
        let (pid, name) = (Pid::from_child(&self.child), self.name);
        kill_process(pid, Signal::TERM).with_context(|| format!("stop {name}"))?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "{name} ended with {status}");
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("{name} does not stop within {PATIENCE:?}")
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // It has ended already where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, folder: &Path) -> RunningProgram {
        let mut command = Command::new("sh");
        command.current_dir(folder).args(["-c", script]);
        RunningProgram::start("script", command, folder).expect("there is a shell")
    }

    #[test]
    fn a_program_is_asked_until_it_answers_and_then_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let script =
            "trap 'exit 0' TERM; sleep 0.3; echo yes > answer; while :; do sleep 0.05; done";
        let ask = || Ok(fs::read_to_string(folder.path().join("answer"))?);
        let tried = shell(script, folder.path()).tried(|running| {
            ensure!(running.until(ask)? == "yes\n");
            Ok(())
        });
        tried.expect("it answers and stops");
    }

    #[test]
    fn a_program_that_ends_is_told_with_its_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let running = shell("echo no card; exit 3", folder.path());
        let error = running.tried(|running| running.until(|| bail!("no answer")).map(drop));
        let text = format!("{:#}", error.expect_err("it ended"));
        assert!(text.contains("script's log:\nno card\n"), "{text}");
        assert!(text.contains("script ended while it was asked: exit status: 3"), "{text}");
    }
}
