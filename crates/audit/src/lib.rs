//! The audit log: who changed what, and whose requests were denied.
//!
//! ```text
//!  gate ──entry──► write ──► latest file ──► full: next file ──► too many files: delete the oldest
//!                    │
//!                    └──► sync, a few times a second
//! ```
//!
//! One JSON line per entry, append-only, in files outside the store: restoring the store from a backup
//! does not erase what was done since. The line is written to the operating system before the call is
//! answered, so that a crash of the daemon loses no entry; a power cut loses at most the entries of
//! the last [`SYNC_INTERVAL`].

mod entry;
mod files;
mod subject;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use snic_domain::Timestamp;

pub use entry::{Entry, Filter, name_of};
pub use subject::{Subject, subject};

use files::{Files, Writer};

/// Longest time between a write and its sync: what a power cut may lose. A shorter one would make
/// these syncs compete with the store's for the disk.
pub const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// Callers without an identity get one entry per this time, so that they cannot fill the log.
const NOBODY_INTERVAL: Duration = Duration::from_secs(1);
/// Most entries read for one page: a filter that matches nothing must not read for minutes.
const SCANNED_MAX: usize = 100_000;
/// Name of a caller without an identity.
pub const NOBODY: &str = "nobody";

/// Location and size of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSettings {
    /// The folder of its files.
    pub folder: PathBuf,
    /// Size in bytes at which the next file begins.
    pub file_bytes_max: u64,
    /// Most files kept, at least 1; then the oldest is deleted.
    pub files_max: usize,
}

/// The log. Cheap to clone; dropping the last clone syncs it.
#[derive(Debug, Clone)]
pub struct AuditLog(Arc<Owner>);

#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    syncer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    files: Files,
}

#[derive(Debug)]
struct State {
    writer: Writer,
    dirty: bool,
    stopping: bool,
    /// When a caller without an identity last got an entry, and how many calls got none since.
    nobody: (Option<Instant>, u64),
}

impl AuditLog {
    /// Opens the log of a folder, or creates it. A line that a crash cut off is removed.
    ///
    /// # Errors
    /// The folder or its files cannot be created, read or written.
    pub fn open(settings: AuditSettings) -> io::Result<Self> {
        let files = Files::new(settings)?;
        let writer = files.open()?;
        let state = State { writer, dirty: false, stopping: false, nobody: (None, 0) };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), files });
        let of_thread = Arc::clone(&shared);
        let syncer = std::thread::Builder::new()
            .name("audit-sync".to_owned())
            .spawn(move || of_thread.sync_all())?;
        Ok(Self(Arc::new(Owner { shared, syncer: Some(syncer) })))
    }

    /// Appends an entry at this time, and numbers it. A failure to write goes to the daemon's log, as
    /// the audited change has been made already.
    pub fn record(&self, mut entry: Entry, now: Timestamp) {
        entry.time = now.as_nanos();
        let shared = &self.0.shared;
        let mut state = shared.state.lock();
        if entry.caller == NOBODY && !state.admit_nobody(&mut entry) {
            return;
        }
        if let Err(error) = state.writer.append(&shared.files, &mut entry) {
            tracing::error!(
                %error, method = %entry.method, resource = %entry.resource,
                "cannot write an audit log entry"
            );
        }
        state.dirty = true;
        shared.changed.notify_one();
    }

    /// The matching entries with numbers below `before`, latest first, at most `limit`; and the number
    /// below which to continue. Blocks on file reads: not for an async thread.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(
        &self,
        filter: &Filter,
        before: Option<u64>,
        limit: usize,
    ) -> io::Result<(Vec<Entry>, Option<u64>)> {
        let before = before.unwrap_or(u64::MAX);
        let (mut found, mut scanned) = (Vec::new(), 0);
        for first in self.0.shared.files.numbers()?.into_iter().rev() {
            if first >= before {
                continue;
            }
            let text = self.0.shared.files.read(first)?;
            let entries = text.lines().rev().filter_map(|line| Entry::of_line(line).ok());
            for entry in entries.filter(|entry| entry.number < before) {
                scanned += 1;
                let number = entry.number;
                if filter.matches(&entry) {
                    found.push(entry);
                }
                if found.len() == limit || scanned == SCANNED_MAX {
                    return Ok((found, Some(number)));
                }
            }
        }
        Ok((found, None))
    }
}

impl State {
    fn admit_nobody(&mut self, entry: &mut Entry) -> bool {
        let (last, left_out) = &mut self.nobody;
        let now = Instant::now();
        if last.is_some_and(|last| now.duration_since(last) < NOBODY_INTERVAL) {
            *left_out += 1;
            return false;
        }
        *last = Some(now);
        entry.left_out = std::mem::take(left_out);
        true
    }
}

impl Shared {
    /// Syncs whenever something was written, until the log is dropped.
    fn sync_all(&self) {
        let mut state = self.state.lock();
        loop {
            while !state.dirty && !state.stopping {
                self.changed.wait(&mut state);
            }
            if !state.dirty {
                return;
            }
            let stopping = state.stopping;
            state.dirty = false;
            let file = state.writer.file();
            drop(state);
            if let Err(error) = file.and_then(|file| file.sync_data()) {
                tracing::error!(%error, "cannot sync the audit log");
            }
            if !stopping {
                std::thread::sleep(SYNC_INTERVAL);
            }
            state = self.state.lock();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.shared.changed.notify_one();
        // A panic of the thread has printed its own message.
        let _ = self.syncer.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests;
