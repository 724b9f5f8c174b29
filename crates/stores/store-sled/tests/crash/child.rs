//! The process that is killed: this program again, running only the test `writer`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::workload::Acknowledged;

/// Tells the child which store to write to.
pub const FOLDER_VARIABLE: &str = "SNIC_CRASH_FOLDER";

/// Longest time of a child to open its store; far over what it takes.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(60);

pub struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    /// Lines read while waiting for another one.
    seen: Vec<String>,
}

impl Child {
    pub fn spawn(folder: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::writer", "--ignored", "--nocapture"])
            .env(FOLDER_VARIABLE, folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        let reader = thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { process, lines, reader: Some(reader), seen: Vec::new() }
    }

    pub fn wait_until_open(&mut self) {
        loop {
            let line = self.lines.recv_timeout(OPEN_WAIT_MAX).expect("the child opens its store");
            let is_open = line == "open";
            self.seen.push(line);
            if is_open {
                break;
            }
        }
    }

    /// Adds what it has said so far was acknowledged; gives the count of batches.
    pub fn hear(&mut self, acknowledged: &mut Acknowledged) -> usize {
        let mut count = 0;
        let lines = self.seen.drain(..).chain(self.lines.try_iter());
        for line in lines {
            assert!(!line.starts_with("failed"), "the child could not do its work: {line}");
            count += usize::from(acknowledged.add(&line));
        }
        count
    }

    /// Kills it and adds what it said was acknowledged; gives the count of batches.
    pub fn kill(mut self, acknowledged: &mut Acknowledged) -> usize {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.reader.take().map(JoinHandle::join);
        self.hear(acknowledged)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Also when the test fails in between; a child that is gone already is no failure.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
