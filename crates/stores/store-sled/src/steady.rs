//! The store of a daemon that stays up: on a full disk it can be read, and it can be written again as soon
//! as there is room.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use snic_domain::Digest;
use snic_ports::store::reopening::{Folder, ReopeningStore};
use snic_ports::store::snapshot::Snapshot;
use snic_ports::store::{Batch, Store, StoreError};

use crate::blobs::Blobs;
use crate::history::{Records, RecoveredLog};
use crate::opening::{self, Recovery};
use crate::options::SledOptions;
use crate::store::SledStore;

/// Wait before looking again whether the store can be written.
const PAUSE: Duration = Duration::from_secs(1);

/// Bytes that a disk must take before a store that failed is opened again: sled writes segments of
/// 8 MiB, and an opening a snapshot. Less, and the opening would fill the disk again.
const PROBE_BYTES: usize = 16 << 20;

/// Name of the file that is written to find out; it is removed at once.
const PROBE: &str = "probe.tmp";

/// The result of [`open`].
pub struct Steady {
    pub store: ReopeningStore,
    /// The repairs that were made, if any.
    pub recovered: Option<Recovery>,
    /// Why it can only be read for now, if so.
    pub failure: Option<StoreError>,
}

/// Opens the store of a folder, or makes it; where the disk is full or fails, it can be read, and is opened
/// for writing later.
///
/// # Errors
/// As [`SledStore::open`]; [`StoreError::Io`] where not even its history can be read whole.
pub fn open(folder: &Path, options: SledOptions) -> Result<Steady, StoreError> {
    let (store, recovered, failure): (Box<dyn Store>, _, _) = match SledStore::open(folder, options)
    {
        Ok(opened) => (Box::new(opened.store), opened.recovered, None),
        Err(failure @ StoreError::Io { .. }) => match ReadOnlyStore::open(folder) {
            Ok(store) => (Box::new(store), None, Some(failure)),
            Err(_) => return Err(failure),
        },
        Err(error) => return Err(error),
    };
    let folder = Box::new(SledFolder { folder: folder.to_owned(), options });
    let store = ReopeningStore::start(folder, store, failure.clone(), PAUSE)?;
    Ok(Steady { store, recovered, failure })
}

struct SledFolder {
    folder: PathBuf,
    options: SledOptions,
}

impl Folder for SledFolder {
    fn can_write(&self) -> Result<(), StoreError> {
        let path = self.folder.join(PROBE);
        let written = File::create(&path).and_then(|mut file| {
            file.write_all(&vec![0x5A; PROBE_BYTES])?;
            file.sync_all()
        });
        let removed = fs::remove_file(&path);
        written
            .and(removed)
            .map_err(|error| StoreError::io(format!("write {}", path.display()), error))
    }

    fn open(&self) -> Result<Box<dyn Store>, StoreError> {
        match SledStore::open(&self.folder, self.options) {
            Ok(opened) => {
                tracing::info!(folder = %self.folder.display(), "the store can be written again");
                Ok(Box::new(opened.store))
            }
            // It can be read at least.
            Err(failure) => {
                tracing::warn!(error = failure.with_source(), "the store cannot be opened yet");
                Err(failure)
            }
        }
    }
}

/// History of a store, while sled cannot be opened.
struct ReadOnlyStore {
    records: Records,
    blobs: Blobs,
    _lock: File,
}

impl ReadOnlyStore {
    /// Reads a store that exists and has lost nothing. Writes nothing.
    fn open(folder: &Path) -> Result<Self, StoreError> {
        let lock = opening::lock(folder)?;
        let log = RecoveredLog::read(&folder.join("history"))?;
        if log.is_empty() || !log.faults.is_empty() {
            return Err(refused("find a whole history"));
        }
        let records = log.records_at(log.last());
        Ok(Self { records, blobs: Blobs::existing(folder.join("blobs")), _lock: lock })
    }
}

fn refused(action: &str) -> StoreError {
    StoreError::io(action, std::io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Store for ReadOnlyStore {
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let from = self.records.range(prefix.to_owned()..);
        let with = from.take_while(|(key, _)| key.starts_with(prefix));
        Ok(with.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.records.get(key).cloned())
    }

    fn apply_all(&self, _: &[Batch]) -> Result<(), StoreError> {
        Err(refused("write a store that can only be read"))
    }

    fn put_blob(&self, _: Digest, _: &[u8]) -> Result<(), StoreError> {
        Err(refused("write a store that can only be read"))
    }

    fn get_blob(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        self.blobs.get(digest)
    }

    fn delete_blob(&self, _: Digest) -> Result<(), StoreError> {
        Err(refused("write a store that can only be read"))
    }

    fn list_blobs(&self) -> Result<Vec<Digest>, StoreError> {
        self.blobs.list()
    }

    fn snapshot(&self, to: &Path) -> Result<(), StoreError> {
        let records: BTreeMap<_, _> = self.records.clone();
        Snapshot::now(0, records.into_iter().collect()).write(to)
    }

    fn restore(&self, _: &Path) -> Result<(), StoreError> {
        Err(refused("write a store that can only be read"))
    }
}
