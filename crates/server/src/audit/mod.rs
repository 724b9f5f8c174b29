//! The audit log: who changed what, and who was refused to.
//!
//! ```text
//!  gate ──entry──► write ──► file, the latest ──► full: the next file ──► too many: the oldest goes
//!                    │
//!                    └──► sync, a few times a second
//! ```
//!
//! One line of JSON an entry, appended and never changed, in files of its own: a store that is
//! restored from a backup does not forget what was done since. The line is with the operating
//! system before the call is answered, so that no death of the daemon loses it; a power cut loses
//! what came after the last sync, [`SYNC_INTERVAL`] at most.

mod entry;
mod files;
mod subject;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

pub(crate) use entry::{Entry, Filter, name_of};
pub(crate) use subject::subject;

use files::{Files, Writer};

/// How long an entry may be written and not synced: a power cut within it takes the entry along.
/// Shorter, and the syncs would compete with those of the store for the disk.
pub const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// Whoever has no identity gets one entry in this time: the log is not theirs to fill.
const NOBODY_INTERVAL: Duration = Duration::from_secs(1);
/// Entries that are looked at for one page: a filter that fits nothing must not read for minutes.
const LOOKED_AT_MAX: usize = 100_000;
/// Name of a caller without an identity.
pub(crate) const NOBODY: &str = "nobody";

/// Where the log is and how much of it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSettings {
    /// The folder of its files.
    pub folder: PathBuf,
    /// Size in bytes from which on the next file is begun.
    pub file_bytes_max: u64,
    /// Most files that are kept, 1 or more; then the oldest goes.
    pub files_max: usize,
}

/// The log. Cheap to clone; what was written is synced when the last clone is dropped.
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
    /// When somebody without an identity last got an entry, and how many did not since.
    nobody: (Option<Instant>, u64),
}

impl AuditLog {
    /// Opens the log of a folder, or begins one. A line that a crash cut off is removed.
    ///
    /// # Errors
    /// The operating system refused.
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

    /// Appends an entry; its number and time are given here. One that cannot be written is told in
    /// the daemon's log: the change that it is about has been made already.
    pub(crate) fn record(&self, mut entry: Entry) {
        let shared = &self.0.shared;
        let mut state = shared.state.lock();
        if entry.caller == NOBODY && !state.is_turn_of_nobody(&mut entry) {
            return;
        }
        if let Err(error) = state.writer.append(&shared.files, &mut entry) {
            tracing::error!(
                %error, method = %entry.method, resource = %entry.resource,
                "an entry of the audit log could not be written"
            );
        }
        state.dirty = true;
        shared.changed.notify_one();
    }

    /// The entries that fit, latest first, from before the number `before`, `limit` at most, and
    /// before which number to go on. Reads files: not for a thread of tokio.
    pub(crate) fn read(
        &self,
        filter: &Filter,
        before: Option<u64>,
        limit: usize,
    ) -> io::Result<(Vec<Entry>, Option<u64>)> {
        let before = before.unwrap_or(u64::MAX);
        let (mut found, mut looked_at) = (Vec::new(), 0);
        for first in self.0.shared.files.numbers()?.into_iter().rev() {
            if first >= before {
                continue;
            }
            let text = self.0.shared.files.read(first)?;
            let entries = text.lines().rev().filter_map(|line| Entry::of_line(line).ok());
            for entry in entries.filter(|entry| entry.number < before) {
                looked_at += 1;
                let number = entry.number;
                if filter.takes(&entry) {
                    found.push(entry);
                }
                if found.len() == limit || looked_at == LOOKED_AT_MAX {
                    return Ok((found, Some(number)));
                }
            }
        }
        Ok((found, None))
    }
}

impl State {
    fn is_turn_of_nobody(&mut self, entry: &mut Entry) -> bool {
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
                tracing::error!(%error, "the audit log could not be synced");
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
        // A panic of the thread was told by its own message.
        let _ = self.syncer.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests;
