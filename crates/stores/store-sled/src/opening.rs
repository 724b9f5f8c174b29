//! Opening: sled is checked against the history, repaired from it, or replaced.
//!
//! ```text
//!   sled's last group is …                      what is done
//!   before the history's base                   sled lost changes: rebuilt from the history
//!   within the history, records as they were    the groups after it are replayed (after a crash)
//!   within the history, records differ          rebuilt
//!   after the history's end                     the history lost changes: sled's records are used
//!   unknown: it does not open, or panics        rebuilt
//!   none, and the history is damaged too        an error: nothing is overwritten
//! ```
//!
//! A sled that is replaced is moved aside, never removed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, Permissions, TryLockError};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use snic_ports::store::snapshot::{Snapshot, sync_folder_of};
use snic_ports::store::{StoreError, Write};

use crate::blobs::Blobs;
use crate::committer::Committer;
use crate::engine::{OpenFailure, SledEngine};
use crate::follower::Follower;
use crate::history::{History, Records, RecoveredLog, sweep_temporaries};
use crate::options::SledOptions;
use crate::store::SledStore;

/// Longest wait for the lock: a process that was killed may take a moment to exit.
const LOCK_WAIT_MAX: Duration = Duration::from_millis(300);

const LOCK_POLL: Duration = Duration::from_millis(10);

/// Records in one batch while sled is rebuilt: bounds its memory.
const REBUILD_RECORDS: usize = 256;

impl SledStore {
    /// Opens the store of a folder, or makes it.
    ///
    /// sled's records are checked against the snapshots and journals. What sled misses is
    /// replayed. When sled does not open, panics, or holds something else, its folder is moved
    /// aside and it is rebuilt; [`Opened::recovered`] then says what was done and whether
    /// an acknowledged change may be lost. Reads every record once.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if another process has the store, [`StoreError::Damaged`] if neither
    /// sled nor the history can be read, [`StoreError::Io`] if the system refuses.
    pub fn open(folder: &Path, options: SledOptions) -> Result<Opened, StoreError> {
        open(folder, options)
    }
}

/// The result of [`SledStore::open`].
#[derive(Debug)]
pub struct Opened {
    pub store: SledStore,
    /// The repairs that were made, if any.
    pub recovered: Option<Recovery>,
}

/// Damage, and the way in which the store was repaired. `Display` is the message for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The damage, as text; at least one entry.
    pub faults: Vec<String>,
    /// Where the damaged database was moved, if it was replaced.
    pub moved_to: Option<PathBuf>,
    /// The age of the snapshot that a replaced database was built from; `None` if it was built
    /// from journals alone, or was not replaced.
    pub snapshot_age: Option<Duration>,
    /// Groups of changes that were replayed after the snapshot.
    pub replayed_groups: u64,
    /// Whether every acknowledged change was recovered. If not, changes after the last restored one may be
    /// lost.
    pub complete: bool,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store was damaged: {}", self.faults.join("; "))?;
        if let Some(moved_to) = &self.moved_to {
            let groups = self.replayed_groups;
            write!(f, ". It was restored from ")?;
            if let Some(age) = self.snapshot_age {
                write!(f, "a snapshot {} old and ", HumanDuration(age))?;
            }
            write!(f, "{groups} journaled groups of changes")?;
            write!(f, "; the damaged database is kept in {}", moved_to.display())?;
        } else {
            write!(f, ". Its database holds all records, and a new snapshot was taken")?;
        }
        match self.complete {
            true => write!(f, ". No acknowledged change is lost"),
            false => {
                write!(f, ". Changes acknowledged after that may be lost: compare with the card")
            }
        }
    }
}

/// A duration in seconds, minutes or hours.
struct HumanDuration(Duration);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds @ 0..120 => write!(f, "{seconds} s"),
            seconds @ 120..7_200 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{} h", seconds / 3_600),
        }
    }
}

/// Opens a store and repairs what a crash left; see [`SledStore::open`].
pub(crate) fn open(folder: &Path, options: SledOptions) -> Result<Opened, StoreError> {
    let lock = prepare(folder)?;
    let blobs = Blobs::open(folder.join("blobs"))?;
    let history_folder = folder.join("history");
    sweep_temporaries(&history_folder)?;
    let database = folder.join("db");
    // An existing database is opened before the log is read. sled asks for 26 MiB of zeroed memory and uses little of it:
    // fresh pages of the kernel are zero already, but pages that the log was read into would all be written.
    // A new database comes after the journal, so that a sled without a history is known to be damaged.
    let open = || SledEngine::open(&database, options.cache_bytes);
    let old = database.exists().then(open);
    let mut log = RecoveredLog::read(&history_folder)?;
    let first = match (log.is_empty(), &old) {
        (true, None) => Some(History::first(&history_folder)?),
        (true, Some(_)) => {
            log.faults.push(format!("{} is empty", history_folder.display()));
            None
        }
        (false, _) => None,
    };
    let found = match old.unwrap_or_else(open) {
        Ok(engine) => check(engine, &log)?,
        Err(OpenFailure::Damaged(reason)) => SledState::Damaged(reason),
        Err(OpenFailure::Refused(error)) => return Err(error),
    };
    let (engine, recovered) = match found {
        SledState::Intact { engine, faults } => take(engine, &log, faults)?,
        SledState::Damaged(reason) => rebuild(folder, options, &log, reason)?,
    };
    if let Some(recovery) = &recovered {
        tracing::warn!(%recovery, "the store was repaired");
    }
    let sequence = engine.sequence()?;
    let history = match (first, log.unused_journal()) {
        (Some(first), _) => first,
        (None, Some(unused)) if recovered.is_none() && sequence == log.last() => {
            History::resume(&history_folder, &log, unused)?
        }
        _ => {
            let snapshot = Snapshot::now(sequence, engine.scan("")?);
            History::begin(&history_folder, &log, &snapshot)?
        }
    };
    let failed = |error| StoreError::io(format!("protect {}", database.display()), error);
    private_folder(&database).map_err(failed)?;
    let sled =
        Follower::start(engine).map_err(|error| StoreError::io("start sled's thread", error))?;
    let committer = Committer::new(Arc::new(sled), history, options, sequence);
    let store = SledStore::start(folder, lock, blobs, committer)?;
    Ok(Opened { store, recovered })
}

/// Makes the folders and takes the lock.
fn prepare(folder: &Path) -> Result<File, StoreError> {
    let failed = |error| StoreError::io(format!("create {}", folder.display()), error);
    let history = folder.join("history");
    fs::create_dir_all(folder).map_err(failed)?;
    let lock = lock(folder)?;
    private_folder(&history)
        .and_then(|()| sync_folder_of(&history))
        .and_then(|()| sync_folder_of(folder))
        .map_err(failed)?;
    Ok(lock)
}

/// Records may hold secrets, such as keys of DAGs: no other user reads them.
fn private_folder(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}

/// Takes the lock of a folder that exists.
pub(crate) fn lock(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join("lock");
    let lock = File::create(&path)
        .map_err(|error| StoreError::io(format!("create {}", path.display()), error))?;
    lock_waiting(folder, &lock)?;
    Ok(lock)
}

/// Whether a process has the store in this folder open now. Changes nothing.
///
/// # Errors
/// The lock is there and cannot be tried, as for a user who may not open it.
pub fn is_in_use(folder: &Path) -> Result<bool, StoreError> {
    let failed = |error| StoreError::io(format!("lock {}", folder.display()), error);
    let lock = match File::open(folder.join("lock")) {
        Ok(lock) => lock,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    match lock.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn lock_waiting(folder: &Path, lock: &File) -> Result<(), StoreError> {
    let deadline = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => {
                return Err(StoreError::io(format!("lock {}", folder.display()), error));
            }
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(StoreError::InUse { path: folder.display().to_string() });
            }
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_POLL),
        }
    }
}

/// State of sled's database, compared with the history.
enum SledState {
    /// Its records are those of the history, or newer; the faults are the history's.
    Intact { engine: SledEngine, faults: Vec<String> },
    /// It lost changes; the text says which.
    Damaged(String),
}

/// Compares sled with the history.
fn check(engine: SledEngine, log: &RecoveredLog) -> Result<SledState, StoreError> {
    let read = engine.sequence().and_then(|sequence| Ok((sequence, engine.scan("")?)));
    let (sequence, records) = match read {
        Ok(read) => read,
        Err(StoreError::Damaged { reason, .. }) => return Ok(SledState::Damaged(reason)),
        Err(error) => return Err(error),
    };
    if sequence == 0 && log.last() == 0 && !log.faults.is_empty() {
        // sled takes a file that is all garbage for a new one.
        return Ok(SledState::Damaged("the database is empty".to_owned()));
    }
    if sequence < log.begins_after() {
        let begins_after = log.begins_after();
        return Ok(SledState::Damaged(format!(
            "the database has changes up to {sequence} only; the newest snapshot has {begins_after}"
        )));
    }
    let mut faults = log.faults.clone();
    let last = log.last();
    if sequence > last {
        faults.push(format!("the journal ends after change {last}, the database has {sequence}"));
        return Ok(SledState::Intact { engine, faults });
    }
    let records: Records = records.into_iter().collect();
    if records != log.records_at(sequence) {
        return Ok(SledState::Damaged(format!(
            "the database's records are not those of the history after change {sequence}"
        )));
    }
    Ok(SledState::Intact { engine, faults })
}

/// Takes sled as it is and replays what it misses.
fn take(
    engine: SledEngine,
    log: &RecoveredLog,
    faults: Vec<String>,
) -> Result<(SledEngine, Option<Recovery>), StoreError> {
    let sequence = engine.sequence()?;
    let mut replayed_groups = 0;
    for group in log.groups_after(sequence) {
        engine.apply(group.sequence, &group.writes)?;
        replayed_groups += 1;
    }
    if replayed_groups > 0 {
        engine.sync()?;
    }
    let complete = sequence.max(log.last()) >= log.furthest;
    let (moved_to, snapshot_age) = (None, None);
    let recovery = Recovery { faults, moved_to, snapshot_age, replayed_groups, complete };
    let recovered = (!recovery.faults.is_empty()).then_some(recovery);
    Ok((engine, recovered))
}

/// Moves sled aside and builds it again from the history.
fn rebuild(
    folder: &Path,
    options: SledOptions,
    log: &RecoveredLog,
    reason: String,
) -> Result<(SledEngine, Option<Recovery>), StoreError> {
    if log.last() == 0 && !log.faults.is_empty() {
        let path = folder.display().to_string();
        let reason = format!("{reason}; nor can its history be used: {}", log.faults.join("; "));
        return Err(StoreError::Damaged { path, reason });
    }
    let moved_to = move_aside(folder)?;
    let engine = SledEngine::open(&folder.join("db"), options.cache_bytes).map_err(|failure| {
        let path = folder.display().to_string();
        match failure {
            OpenFailure::Damaged(reason) => StoreError::Damaged { path, reason },
            OpenFailure::Refused(error) => error,
        }
    })?;
    fill(&engine, log.records_at(log.last()), log.last())?;
    let mut faults = vec![reason];
    faults.extend(log.faults.iter().cloned());
    if log.trailing_bytes > 0 {
        // Cut by the same crash, most likely, and never acknowledged; but sled cannot tell now.
        faults.push(format!("the journal ends in {} bytes of a cut group", log.trailing_bytes));
    }
    let recovery = Recovery {
        faults,
        moved_to: Some(moved_to),
        snapshot_age: log.snapshot_age(),
        replayed_groups: log.groups_after(log.begins_after()).count() as u64,
        complete: log.last() >= log.furthest && log.trailing_bytes == 0,
    };
    Ok((engine, Some(recovery)))
}

/// Fills a new sled. Its number comes last: a crash before that leaves a sled that is behind its
/// history, and is built again again.
fn fill(
    engine: &SledEngine,
    records: BTreeMap<String, Vec<u8>>,
    last: u64,
) -> Result<(), StoreError> {
    let writes: Vec<Write> =
        records.into_iter().map(|(key, value)| Write { key, value: Some(value) }).collect();
    for some in writes.chunks(REBUILD_RECORDS) {
        engine.apply(0, some)?;
    }
    engine.sync()?;
    engine.apply(last, &[])?;
    engine.sync()
}

/// Name of a damaged database, before its number.
const DAMAGED: &str = "db.damaged";

/// Whether a damaged database is kept beside the one in its place: until somebody has looked and removed it, records
/// may be missing.
///
/// # Errors
/// The folder cannot be read.
pub fn keeps_damaged(folder: &Path) -> Result<bool, StoreError> {
    let failed = |error| StoreError::io(format!("read the folder {}", folder.display()), error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        if entry.map_err(failed)?.file_name().to_string_lossy().starts_with(DAMAGED) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Renames sled's folder to the first free `db.damaged-<n>`.
fn move_aside(folder: &Path) -> Result<PathBuf, StoreError> {
    let database = folder.join("db");
    let target = (1_u32..)
        .map(|n| folder.join(format!("{DAMAGED}-{n}")))
        .find(|path| !path.exists())
        .unwrap_or_else(|| folder.join(DAMAGED));
    fs::rename(&database, &target)
        .and_then(|()| sync_folder_of(&database))
        .map_err(|error| StoreError::io(format!("rename {}", database.display()), error))?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(recovery: Recovery) -> String {
        recovery.to_string()
    }

    #[test]
    fn the_message_says_what_was_found_done_and_lost() {
        let recovery = Recovery {
            faults: vec!["conf is empty".to_owned(), "a journal is cut".to_owned()],
            moved_to: Some(PathBuf::from("/s/db.damaged-1")),
            snapshot_age: Some(Duration::from_secs(300)),
            replayed_groups: 12,
            complete: true,
        };
        assert_eq!(
            message(recovery.clone()),
            "the store was damaged: conf is empty; a journal is cut. It was restored from a \
             snapshot 5 min old and 12 journaled groups of changes; the damaged database is kept in \
             /s/db.damaged-1. No acknowledged change is lost"
        );
        let incomplete = Recovery { snapshot_age: None, complete: false, ..recovery };
        let text = message(incomplete);
        assert!(text.contains("restored from 12 journaled groups"), "{text}");
        assert!(text.contains("may be lost"), "{text}");
    }

    #[test]
    fn ages_are_in_the_unit_one_thinks_in() {
        for (seconds, text) in
            [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7_199, "119 min"), (7_200, "2 h")]
        {
            assert_eq!(HumanDuration(Duration::from_secs(seconds)).to_string(), text);
        }
    }
}
