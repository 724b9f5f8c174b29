//! The audit log: who changed what, and whose requests were denied.
//!
//! ```text
//!  gate ──entry──► its series ──► latest file ──► full: next file ──► too many files: delete the oldest
//!                      │
//!                      └──► sync, a few times a second
//! ```
//!
//! Operators and orchestrators have a series of separate files, and tenants share others: whatever a
//! tenant does, it pushes out no entry of an operator. Denied requests of one tenant get a few entries a
//! second; the next entry says how many got none.
//!
//! One JSON line per entry, append-only, in files outside the store: restoring the store from a backup
//! does not erase what was done since. The line is written to the operating system before the call is
//! answered, so that a crash of the daemon loses no entry; a power cut loses at most the entries of
//! the last [`SYNC_INTERVAL`].

mod entry;
mod files;
mod subject;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use snic_domain::Timestamp;
use snic_telemetry::metrics::AUDIT_LOST;

pub use entry::{ALLOW, DENY, Entry, Filter, PROVEN, STATED};
pub use subject::{RequestSubject, subject};

use entry::tenant_of;
use files::{Backwards, Files, Series, Writer};

/// Longest time between a write and its sync: what a power cut may lose. A shorter one would make
/// these syncs compete with the store's for the disk.
pub const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// Time in which callers get a limited number of entries, so that they cannot fill the log.
const INTERVAL: Duration = Duration::from_secs(1);
/// Entries per interval of all callers without an identity.
const NOBODY_MAX: u64 = 1;
/// Entries per interval of one tenant for calls that failed. Its changes all get one: each takes a place,
/// so there are no more than its share.
const FAILED_MAX: u64 = 10;
/// Callers whose numbers of entries are remembered before those of earlier intervals are forgotten.
const COUNTED_MAX: usize = 1_024;
/// Most entries looked at for one page, as for every list: a filter that matches nothing must not read for minutes.
const SCANNED_MAX: usize = 10_000;
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
    /// The latest file of each series, by its index.
    writers: Vec<Option<Writer>>,
    /// Number of the next entry.
    next: u64,
    /// Whether there is something to sync, by series.
    dirty: Vec<bool>,
    stopping: bool,
    /// Callers with a limited number of entries.
    counted: HashMap<String, CallerEntries>,
}

/// Entries of one caller.
#[derive(Debug)]
struct CallerEntries {
    since: Instant,
    entries: u64,
    /// Calls that got no entry since the last one that did.
    left_out: u64,
}

impl AuditLog {
    /// Opens the log of a folder, or creates it. A line that a crash cut off is removed.
    ///
    /// # Errors
    /// The folder or its files cannot be created, read or written; the error names the folder.
    pub fn open(settings: AuditSettings) -> io::Result<Self> {
        let folder = settings.folder.display().to_string();
        Self::open_folder(settings)
            .map_err(|error| io::Error::new(error.kind(), format!("{folder}: {error}")))
    }

    fn open_folder(settings: AuditSettings) -> io::Result<Self> {
        let files = Files::new(settings)?;
        let (mut writers, mut last) = (Vec::new(), 0);
        for series in Series::all() {
            let found = files.open(series)?;
            last = last.max(found.as_ref().map_or(0, |(_, number)| *number));
            writers.push(found.map(|(writer, _)| writer));
        }
        let dirty = vec![false; writers.len()];
        let counted = HashMap::new();
        let state = State { writers, next: last + 1, dirty, stopping: false, counted };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), files });
        let of_thread = Arc::clone(&shared);
        let syncer = std::thread::Builder::new()
            .name("audit-sync".to_owned())
            .spawn(move || of_thread.sync_all())?;
        Ok(Self(Arc::new(Owner { shared, syncer: Some(syncer) })))
    }

    /// Appends an entry at this time, and numbers it. A failure to write goes to the daemon's log and to a metric, as
    /// the audited change has been made already: calls are not refused for it.
    pub fn record(&self, mut entry: Entry, now: Timestamp) {
        entry.time = now.as_nanos();
        let shared = &self.0.shared;
        let mut state = shared.state.lock();
        if !state.admit(&mut entry, Instant::now()) {
            return;
        }
        if let Err(error) = state.append(&shared.files, &mut entry) {
            tracing::error!(
                %error, method = %entry.method, resource = %entry.resource,
                "cannot write an audit log entry"
            );
            AUDIT_LOST.add(1);
        }
        shared.changed.notify_one();
    }

    /// The matching entries with numbers below `before`, latest first, at most `limit`; and the number
    /// below which to continue. Looks at 10,000 entries at most, and reads a few files: not for an async thread.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(
        &self,
        filter: &Filter,
        before: Option<u64>,
        limit: usize,
    ) -> io::Result<(Vec<Entry>, Option<u64>)> {
        let files = &self.0.shared.files;
        let before = before.unwrap_or(u64::MAX);
        let readable = Series::of_reader(&filter.reader).into_iter();
        let mut all: Vec<Backwards<'_>> = readable
            .map(|series| Backwards::new(files, series, before))
            .collect::<io::Result<_>>()?;
        let (mut found, mut scanned) = (Vec::new(), 0);
        loop {
            let mut latest: Option<(u64, usize)> = None;
            for (at, series) in all.iter_mut().enumerate() {
                latest = latest.max(series.number()?.map(|number| (number, at)));
            }
            let Some((number, at)) = latest else { return Ok((found, None)) };
            found.extend(all[at].pop().filter(|entry| filter.matches(entry)));
            scanned += 1;
            if found.len() == limit || scanned == SCANNED_MAX {
                return Ok((found, Some(number)));
            }
        }
    }
}

impl State {
    /// Numbers the entry and appends it to the files of its series.
    fn append(&mut self, files: &Files, entry: &mut Entry) -> io::Result<()> {
        let series = Series::of(&entry.caller);
        let writer = &mut self.writers[series.index()];
        entry.number = self.next;
        let writer = match writer {
            Some(writer) => writer,
            None => writer.insert(files.begin(series, self.next)?),
        };
        writer.append(files, entry)?;
        self.dirty[series.index()] = true;
        self.next += 1;
        Ok(())
    }

    /// Whether the entry is within its caller's limit.
    fn admit(&mut self, entry: &mut Entry, now: Instant) -> bool {
        let limit = match entry.caller.as_str() {
            NOBODY => NOBODY_MAX,
            caller if caller.starts_with("tenant/") && entry.code != "OK" => FAILED_MAX,
            _ => return true,
        };
        // All members of a tenant share its limit.
        let who = tenant_of(&entry.caller).map_or(NOBODY.into(), |id| format!("tenant/{id}"));
        if self.counted.len() >= COUNTED_MAX && !self.counted.contains_key(&who) {
            self.counted.retain(|_, counted| now.duration_since(counted.since) < INTERVAL);
        }
        let counted = self.counted.entry(who);
        let counted = counted.or_insert(CallerEntries { since: now, entries: 0, left_out: 0 });
        if now.duration_since(counted.since) >= INTERVAL {
            (counted.since, counted.entries) = (now, 0);
        }
        if counted.entries >= limit {
            counted.left_out += 1;
            return false;
        }
        counted.entries += 1;
        entry.left_out = std::mem::take(&mut counted.left_out);
        true
    }

    /// The files with something to sync.
    fn take_dirty(&mut self) -> Vec<io::Result<std::fs::File>> {
        let writers = self.writers.iter().zip(&mut self.dirty);
        let dirty = writers.filter_map(|(writer, dirty)| std::mem::take(dirty).then_some(writer));
        dirty.flatten().map(Writer::file).collect()
    }
}

impl Shared {
    /// Syncs whenever something was written, until the log is dropped.
    fn sync_all(&self) {
        let mut state = self.state.lock();
        loop {
            while !state.dirty.contains(&true) && !state.stopping {
                self.changed.wait(&mut state);
            }
            if !state.dirty.contains(&true) {
                return;
            }
            let stopping = state.stopping;
            let files = state.take_dirty();
            drop(state);
            for file in files {
                if let Err(error) = file.and_then(|file| file.sync_data()) {
                    tracing::error!(%error, "cannot sync the audit log");
                }
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
