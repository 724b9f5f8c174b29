//! sled behind a safe interface: one tree, one batch for each group, flush and fdatasync, panics become
//! errors, and a reader never sees half a group.
//!
//! Records and the number of the last group share the tree, so that they change in one batch:
//! `m` holds the number, `r<key>` the first piece of the record of a key, `p<key>\xFF<n>` its further pieces.
//! Keys are text, so none has a byte `\xFF`. A record has further pieces only if its first one is full.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use snic_ports::store::snapshot::sync_folder_of;
use snic_ports::store::{StoreError, Write};

/// sled writes a leaf of its tree, 16 values and the few it may gain by a merge, as one item, and
/// an item over a quarter of a segment goes to a separate file that is never synced: a power cut would
/// lose it after the acknowledgement. Twenty pieces of the largest size (96 KiB and a key of 514 B) have
/// 1.97 MB, so a quarter of a segment must be 2 MiB.
const SEGMENT_BYTES: usize = 8 << 20;

/// Largest value that sled is given; a longer record is stored in pieces of this size.
const PIECE_BYTES: usize = 96 << 10;

/// Longest wait for sled's own lock, which outlives the drop of the last handle a little.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Interval between looks whether sled's lock is free.
const LOCK_POLL: Duration = Duration::from_millis(10);

/// The key of the number of the last group.
const SEQUENCE_KEY: &[u8] = b"m";

/// Start of the key of every record's first piece.
const RECORD_PREFIX: u8 = b'r';

/// Start of the keys of further pieces.
const PIECE_PREFIX: u8 = b'p';

/// Between a record's key and the number of its piece.
const PIECE_SEPARATOR: u8 = 0xFF;

/// Why sled did not open.
#[derive(Debug)]
pub(crate) enum OpenFailure {
    /// Its files are damaged; the text says how this was noticed.
    Damaged(String),
    /// The files are not damaged: another process uses them, or the system returned an error.
    Refused(StoreError),
}

/// An open sled database.
#[derive(Debug)]
pub(crate) struct SledEngine {
    database: sled::Db,
    /// sled's only file of records, for the fdatasync that sled omits.
    file: File,
    folder: PathBuf,
    /// Held for writing while a group is applied: sled's iterators may see half a batch.
    gate: RwLock<()>,
    /// One flush at a time: sled deadlocks under several.
    syncing: Mutex<()>,
}

impl SledEngine {
    /// Opens the folder, or makes it; `cache_bytes` bounds sled's page cache.
    pub(crate) fn open(folder: &Path, cache_bytes: u64) -> Result<Self, OpenFailure> {
        let refused = |error| {
            OpenFailure::Refused(StoreError::io(format!("open {}", folder.display()), error))
        };
        let database = open_waiting(folder, cache_bytes)?;
        let file = File::open(folder.join("db")).map_err(refused)?;
        // The names of new files, which sled does not make durable; nothing to do for old ones.
        sync_folder_of(folder)
            .and_then(|()| File::open(folder)?.sync_all())
            .and_then(|()| file.sync_all())
            .map_err(refused)?;
        let (gate, syncing) = (RwLock::default(), Mutex::default());
        Ok(Self { database, file, folder: folder.to_owned(), gate, syncing })
    }

    /// The number of the last group applied; 0 before the first.
    pub(crate) fn sequence(&self) -> Result<u64, StoreError> {
        let found = self.guarded("read", || self.database.get(SEQUENCE_KEY))?;
        let Some(bytes) = found else { return Ok(0) };
        let bytes = bytes.as_ref().try_into();
        bytes.map(u64::from_le_bytes).map_err(|_| self.damaged("its sequence number is none"))
    }

    pub(crate) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let found = self.guarded("read", || self.database.get(record_key(key)))?;
        found.map(|first| self.joined(key, &first)).transpose()
    }

    /// The records whose keys begin with `prefix`, in order, all of one moment.
    pub(crate) fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let found: Vec<(sled::IVec, sled::IVec)> =
            self.guarded("read", || self.database.scan_prefix(record_key(prefix)).collect())?;
        let record = |(key, first): (sled::IVec, sled::IVec)| {
            let key = String::from_utf8(key[1..].to_vec())
                .map_err(|_| self.damaged("one of its keys is no text"))?;
            let value = self.joined(&key, &first)?;
            Ok((key, value))
        };
        found.into_iter().map(record).collect()
    }

    /// A record from its first piece. The gate is held.
    fn joined(&self, key: &str, first: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut value = first.to_vec();
        for (_, piece) in self.further_pieces(key, first)? {
            value.extend_from_slice(&piece);
        }
        Ok(value)
    }

    /// The further pieces of a record, in order, with their keys.
    fn further_pieces(
        &self,
        key: &str,
        first: &[u8],
    ) -> Result<Vec<(sled::IVec, sled::IVec)>, StoreError> {
        if first.len() < PIECE_BYTES {
            return Ok(Vec::new());
        }
        self.guarded("read", || self.database.scan_prefix(piece_prefix(key)).collect())
    }

    /// Applies a group as one batch; [`SledEngine::sync`] makes it durable.
    pub(crate) fn apply(&self, sequence: u64, writes: &[Write]) -> Result<(), StoreError> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut batch = sled::Batch::default();
        // The pieces to remove are those of the record that sled has, so each key comes once: the last one counts.
        let last: BTreeMap<&str, Option<&[u8]>> =
            writes.iter().map(|write| (write.key.as_str(), write.value.as_deref())).collect();
        for (key, value) in last {
            let record = record_key(key);
            if let Some(before) = self.guarded("read", || self.database.get(&record))? {
                for (piece, _) in self.further_pieces(key, &before)? {
                    batch.remove(piece);
                }
            }
            let Some(value) = value else {
                batch.remove(record);
                continue;
            };
            let (first, rest) = value.split_at(value.len().min(PIECE_BYTES));
            batch.insert(record, first);
            for (number, piece) in (0..=u8::MAX).zip(rest.chunks(PIECE_BYTES)) {
                batch.insert(piece_key(key, number), piece);
            }
        }
        batch.insert(SEQUENCE_KEY, &sequence.to_le_bytes());
        self.guarded("write to", || self.database.apply_batch(batch))
    }

    /// Makes durable all that was applied: blocking flush, then the fdatasync that sled omits.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let _one = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        self.guarded("flush", || self.database.flush())?;
        let synced = self.file.sync_data();
        synced.map_err(|error| StoreError::io(format!("sync {}", self.folder.display()), error))
    }

    /// Calls sled and turns its errors and panics into [`StoreError`]s.
    fn guarded<T>(
        &self,
        action: &str,
        call: impl FnOnce() -> sled::Result<T>,
    ) -> Result<T, StoreError> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(sled::Error::Io(error))) => {
                Err(StoreError::io(format!("{action} {}", self.folder.display()), error))
            }
            Ok(Err(error)) => Err(self.damaged(&error.to_string())),
            Err(panic) => Err(self.damaged(&panic_text(panic.as_ref()))),
        }
    }

    fn damaged(&self, reason: &str) -> StoreError {
        StoreError::Damaged { path: self.folder.display().to_string(), reason: reason.to_owned() }
    }
}

fn record_key(key: &str) -> Vec<u8> {
    [&[RECORD_PREFIX], key.as_bytes()].concat()
}

/// The beginning of the keys of a record's further pieces.
fn piece_prefix(key: &str) -> Vec<u8> {
    [&[PIECE_PREFIX], key.as_bytes(), &[PIECE_SEPARATOR]].concat()
}

fn piece_key(key: &str, number: u8) -> Vec<u8> {
    [&[PIECE_PREFIX], key.as_bytes(), &[PIECE_SEPARATOR, number]].concat()
}

/// Opens sled, waiting a bounded time for its lock.
fn open_waiting(folder: &Path, cache_bytes: u64) -> Result<sled::Db, OpenFailure> {
    let configuration =
        sled::Config::new().path(folder).cache_capacity(cache_bytes).segment_size(SEGMENT_BYTES);
    let deadline = Instant::now() + LOCK_WAIT_MAX;
    loop {
        let error = match catch_unwind(AssertUnwindSafe(|| configuration.open())) {
            Ok(Ok(database)) => return Ok(database),
            Ok(Err(error)) => error,
            Err(panic) => return Err(OpenFailure::Damaged(panic_text(panic.as_ref()))),
        };
        // sled says it with a text only.
        if !error.to_string().contains("could not acquire lock") {
            return Err(open_failure(folder, error));
        }
        if Instant::now() >= deadline {
            let path = folder.display().to_string();
            return Err(OpenFailure::Refused(StoreError::InUse { path }));
        }
        thread::sleep(LOCK_POLL);
    }
}

/// Whether an error is the system's, so that moving the files aside would make it worse, or one
/// that damaged files give.
fn open_failure(folder: &Path, error: sled::Error) -> OpenFailure {
    match error {
        sled::Error::Io(error) if is_of_the_system(&error) => {
            OpenFailure::Refused(StoreError::io(format!("open {}", folder.display()), error))
        }
        error => OpenFailure::Damaged(error.to_string()),
    }
}

fn is_of_the_system(error: &io::Error) -> bool {
    /// Too many open files, in the system and in the process: they have no kind.
    const FILE_TABLE_FULL: [i32; 2] = [23, 24];
    let kind = matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::OutOfMemory
    );
    kind || error.raw_os_error().is_some_and(|code| FILE_TABLE_FULL.contains(&code))
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("sled panicked: {}", text.unwrap_or("without a text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use snic_ports::store::{KEY_BYTES_MAX, RECORD_BYTES_MAX};

    fn open(folder: &Path) -> SledEngine {
        SledEngine::open(folder, 16 << 20).unwrap()
    }

    fn put(key: &str, value: Vec<u8>) -> Write {
        Write { key: key.to_owned(), value: Some(value) }
    }

    #[test]
    fn the_sequence_changes_with_the_records_and_is_none_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let engine = open(&folder.path().join("db"));
        assert_eq!(engine.sequence().unwrap(), 0);
        engine.apply(5, &[put("m", vec![1])]).unwrap();
        engine.sync().unwrap();
        assert_eq!(engine.sequence().unwrap(), 5);
        assert_eq!(engine.scan("").unwrap(), [("m".to_owned(), vec![1])]);
    }

    #[test]
    fn the_largest_records_stay_out_of_files_that_sled_never_syncs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let engine = open(&path);
        let key = |i: usize| format!("{}{i:03}", "k".repeat(KEY_BYTES_MAX - 3));
        // Enough writes of every leaf that sled consolidates, splits and merges them.
        for sequence in 1..=120 {
            let i = usize::try_from(sequence).unwrap() * 7 % 40;
            let bytes = if sequence % 10 == 0 { RECORD_BYTES_MAX } else { PIECE_BYTES };
            engine.apply(sequence, &[put(&key(i), vec![1; bytes])]).unwrap();
            if sequence % 3 == 0 {
                let write = Write { key: key(i + 1), value: None };
                engine.apply(sequence, &[write]).unwrap();
            }
            engine.sync().unwrap();
        }
        let blobs = std::fs::read_dir(path.join("blobs")).unwrap().count();
        assert_eq!(blobs, 0, "sled moved values to files of their own");
    }

    /// Every length around the limits of a piece follows every other one: nothing of the one before is left.
    #[test]
    fn a_record_of_several_pieces_is_read_as_it_was_written_and_leaves_nothing() {
        // The numbers of pieces have one byte.
        const { assert!(RECORD_BYTES_MAX <= PIECE_BYTES * 256) }
        let folder = tempfile::tempdir().unwrap();
        let engine = open(&folder.path().join("db"));
        let filled = |length: usize| (0..length).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
        let lengths = [0, PIECE_BYTES, PIECE_BYTES + 1, PIECE_BYTES * 2 - 1];
        let mut values: Vec<Option<Vec<u8>>> =
            lengths.into_iter().map(|length| Some(filled(length))).collect();
        values.push(None);
        let three = filled(PIECE_BYTES * 3);
        let (mut sequence, key) = (1, "dags/a/b");
        engine.apply(1, &[put("dags/a", vec![1]), put("dags/a/b/c", vec![2; 3])]).unwrap();
        for before in &values {
            for after in &values {
                for value in [before, after] {
                    sequence += 1;
                    let write = Write { key: key.to_owned(), value: value.clone() };
                    // What is written before it in the same group leaves nothing either.
                    engine.apply(sequence, &[put(key, three.clone()), write]).unwrap();
                    assert!(engine.get(key).unwrap() == *value, "group {sequence}");
                }
                let scanned: Vec<usize> =
                    engine.scan("dags/a").unwrap().iter().map(|(_, value)| value.len()).collect();
                let length = after.as_ref().map(Vec::len);
                let expected: Vec<usize> =
                    [Some(1), length, Some(3)].into_iter().flatten().collect();
                assert_eq!(scanned, expected);
            }
        }
        assert_eq!(engine.database.scan_prefix([PIECE_PREFIX]).count(), 0, "pieces were left");
        assert_eq!(engine.database.len(), 3, "the number of the group, and two records");
    }

    #[test]
    fn an_engine_waits_for_the_lock_of_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let first = open(&path);
        let late = thread::spawn({
            let path = path.clone();
            move || SledEngine::open(&path, 16 << 20).map(drop)
        });
        thread::sleep(LOCK_POLL * 5);
        drop(first);
        late.join().unwrap().unwrap();
    }

    #[test]
    fn a_folder_that_the_system_refuses_is_not_taken_for_damaged() {
        let full = io::Error::from(ErrorKind::StorageFull);
        let failure = open_failure(Path::new("x"), sled::Error::Io(full));
        assert!(matches!(failure, OpenFailure::Refused(_)), "{failure:?}");
        let files = io::Error::from_raw_os_error(24);
        let failure = open_failure(Path::new("x"), sled::Error::Io(files));
        assert!(matches!(failure, OpenFailure::Refused(_)), "{failure:?}");
        let cut = io::Error::from(ErrorKind::UnexpectedEof);
        let failure = open_failure(Path::new("x"), sled::Error::Io(cut));
        assert!(matches!(failure, OpenFailure::Damaged(_)), "{failure:?}");
    }
}
