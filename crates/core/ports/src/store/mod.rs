//! The Store port: what should be, kept through a crash.
//!
//! Keys are short text paths (`tenants/acme`, `tenants/acme/dags/web`), values are small records.
//! [`Store::apply`] is atomic and durable when it returns; group commit is the adapter's business:
//! [`Store::apply_all`] takes what has queued up and makes it durable with one flush, in order, and
//! [`Store::submit`] does the same for a caller that must not wait.
//! Bitstreams are too large for records: they are blobs, named by their SHA-256 digest.
//!
//! ```text
//!  caller ──submit──▶ queue ──▶ group ──▶ durable ──▶ visible ──▶ done(Ok) in the order of submit
//! ```

pub mod backup;
pub mod codec;
pub mod conformance;
pub mod memory;
pub mod reopening;
pub mod snapshot;

use std::path::Path;
use std::sync::Arc;

use snic_domain::Digest;

/// Longest value a record may have, in bytes: etcd takes requests of 1.5 MiB. An adapter whose database takes less
/// stores it in pieces.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// Longest key, in bytes: names have at most three segments of 63 characters and their collections.
pub const KEY_BYTES_MAX: usize = 512;

/// One change of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The record's key.
    pub key: String,
    /// The new value, or `None` to remove the record.
    pub value: Option<Vec<u8>>,
}

/// Changes that take effect together or not at all, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The changes; a later write of the same key wins.
    pub writes: Vec<Write>,
}

impl Batch {
    /// An empty batch, to be filled by [`Batch::put`] and [`Batch::remove`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record, or replaces it.
    #[must_use]
    pub fn put(mut self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.writes.push(Write { key: key.into(), value: Some(value.into()) });
        self
    }

    /// Removes a record; removing an absent one does nothing.
    #[must_use]
    pub fn remove(mut self, key: impl Into<String>) -> Self {
        self.writes.push(Write { key: key.into(), value: None });
        self
    }
}

/// Callback that [`Store::submit`] calls, exactly once, with the outcome.
pub type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Why the store could not do what was asked. Cheap to clone: one failed flush answers everyone
/// whose change was in the group.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// A value is over [`RECORD_BYTES_MAX`].
    #[error("record {key:?} has {bytes} bytes; a record has at most {RECORD_BYTES_MAX}")]
    RecordTooLarge {
        /// The record's key.
        key: String,
        /// Its size in bytes.
        bytes: usize,
    },
    /// A key is empty or over [`KEY_BYTES_MAX`].
    #[error("key of {bytes} bytes: a key has 1 to {KEY_BYTES_MAX}")]
    KeyLength {
        /// The key's size in bytes.
        bytes: usize,
    },
    /// Another process has the store open.
    #[error("the store {path} is in use by another process; stop it first")]
    InUse {
        /// The folder of the store.
        path: String,
    },
    /// The store's files do not open, and no snapshot could be restored.
    #[error("the store {path} is damaged: {reason}")]
    Damaged {
        /// The folder of the store.
        path: String,
        /// Finding in the record.
        reason: String,
    },
    /// A snapshot file is damaged or none.
    #[error("the snapshot {path} cannot be used: {reason}; restore from another one")]
    Snapshot {
        /// The snapshot file.
        path: String,
        /// Finding in the store.
        reason: String,
    },
    /// A blob's bytes do not have the digest they were named by.
    #[error("the bytes have digest {actual}, not {expected}")]
    DigestMismatch {
        /// The digest named by the caller.
        expected: Digest,
        /// The digest of the bytes.
        actual: Digest,
    },
    /// No such blob.
    #[error("no bitstream with digest {0} in the store")]
    NoBlob(Digest),
    /// The operating system refused.
    #[error("the store could not {action}")]
    Io {
        /// Action that failed, with the path.
        action: String,
        #[source]
        source: Arc<std::io::Error>,
    },
    /// The store stopped: a write failed, and what is durable is unknown. Restart the daemon.
    #[error("the store stopped after a failed write: {0}; restart the daemon")]
    Stopped(String),
}

impl StoreError {
    /// Whether a batch was refused for what it is, which says nothing of the store.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::RecordTooLarge { .. } | Self::KeyLength { .. })
    }

    /// The error with its cause, for a log line.
    pub fn with_source(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }

    /// The operating system refused `action` ("write /var/lib/snic/journal").
    pub fn io(action: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { action: action.into(), source: Arc::new(source) }
    }
}

/// Refuses batches with a key or a value over its limit, naming the first one. Adapters call it
/// before they apply anything.
///
/// # Errors
///
/// [`StoreError::KeyLength`] or [`StoreError::RecordTooLarge`].
pub fn check_limits(batches: &[Batch]) -> Result<(), StoreError> {
    batches
        .iter()
        .flat_map(|batch| &batch.writes)
        .try_for_each(|write| check_record(&write.key, write.value.as_deref().unwrap_or_default()))
}

/// Refuses a key or a value over its limit.
///
/// # Errors
///
/// [`StoreError::KeyLength`] or [`StoreError::RecordTooLarge`].
pub fn check_record(key: &str, value: &[u8]) -> Result<(), StoreError> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(StoreError::KeyLength { bytes: key.len() });
    }
    if value.len() > RECORD_BYTES_MAX {
        return Err(StoreError::RecordTooLarge { key: key.to_owned(), bytes: value.len() });
    }
    Ok(())
}

/// Records and blobs that survive a crash. Calls block, except [`Store::submit`]; call from a
/// thread of its own. All methods may be called from several threads at once.
///
/// A store. Everything that a read returns is durable: a change is not visible before it would survive a crash. A
/// read sees each batch whole or not at all.
pub trait Store: Send + Sync {
    /// Every record whose key starts with `prefix`, in the order of the keys' bytes; the empty
    /// prefix means all.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] where the records cannot be read, [`StoreError::Stopped`].
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// One record.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] where the record cannot be read, [`StoreError::Stopped`].
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Applies the batches in order, each atomically; all are durable when this returns `Ok`.
    /// After an error of kind [`StoreError::Io`] or [`StoreError::Stopped`] a prefix of the batches
    /// may be durable, and the store takes no more writes.
    /// A batch that breaks a limit is refused before anything of the group is applied.
    ///
    /// # Errors
    ///
    /// [`StoreError::KeyLength`] and [`StoreError::RecordTooLarge`] before anything is applied;
    /// [`StoreError::Io`] and [`StoreError::Stopped`] as described above.
    fn apply_all(&self, batches: &[Batch]) -> Result<(), StoreError>;

    /// One batch: see [`Store::apply_all`].
    ///
    /// # Errors
    ///
    /// As [`Store::apply_all`].
    fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        self.apply_all(std::slice::from_ref(&batch))
    }

    /// Hands the batches over and returns; `done` is called once they are durable, or with the
    /// error of [`Store::apply_all`]. Submissions of one thread take effect in the order of the
    /// calls, and their `done` are called in that order, refused ones included; the next one may
    /// be submitted before the last is done.
    ///
    /// `done` may run on the store's own thread: it hands the result on and returns. It must not
    /// call the store's blocking methods, which would wait for the thread they run on.
    ///
    /// The default blocks until the batches are durable and calls `done` before it returns; an
    /// adapter that flushes gives one that does not block.
    fn submit(&self, batches: Vec<Batch>, done: Done) {
        done(self.apply_all(&batches));
    }

    /// Why nothing can be written now, if so: who is asked for a change refuses it. What was submitted
    /// before becomes durable once writing is possible again. An adapter that stops for good after a
    /// failed write never says so.
    fn unavailable(&self) -> Option<String> {
        None
    }

    /// Stores bytes under their digest, durably. Storing the same digest again does nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::DigestMismatch`] where `bytes` have another digest, [`StoreError::Io`].
    fn put_blob(&self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError>;

    /// The bytes of a blob; checked against the digest, so that what rotted on the disk is an
    /// error ([`StoreError::DigestMismatch`]) and never reaches a card.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoBlob`], [`StoreError::DigestMismatch`], [`StoreError::Io`].
    fn get_blob(&self, digest: Digest) -> Result<Vec<u8>, StoreError>;

    /// Removes a blob; removing an absent one does nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    fn delete_blob(&self, digest: Digest) -> Result<(), StoreError>;

    /// The digests of all blobs, in ascending order.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    fn list_blobs(&self) -> Result<Vec<Digest>, StoreError>;

    /// Writes a consistent copy of all records to one file ([`snapshot::Snapshot`]) while the
    /// store goes on. The file appears whole or not at all. Blobs are not in it: they are files.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] where the file cannot be written, [`StoreError::Stopped`].
    fn snapshot(&self, to: &Path) -> Result<(), StoreError>;

    /// Replaces all records by those of a snapshot, atomically and durably. A damaged snapshot is
    /// refused ([`StoreError::Snapshot`]) before anything is changed.
    ///
    /// # Errors
    ///
    /// [`StoreError::Snapshot`], [`StoreError::Io`], [`StoreError::Stopped`].
    fn restore(&self, from: &Path) -> Result<(), StoreError>;
}

/// A store that several own.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        (**self).scan(prefix)
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        (**self).get(key)
    }

    fn apply_all(&self, batches: &[Batch]) -> Result<(), StoreError> {
        (**self).apply_all(batches)
    }

    fn submit(&self, batches: Vec<Batch>, done: Done) {
        (**self).submit(batches, done);
    }

    fn unavailable(&self) -> Option<String> {
        (**self).unavailable()
    }

    fn put_blob(&self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        (**self).put_blob(digest, bytes)
    }

    fn get_blob(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        (**self).get_blob(digest)
    }

    fn delete_blob(&self, digest: Digest) -> Result<(), StoreError> {
        (**self).delete_blob(digest)
    }

    fn list_blobs(&self) -> Result<Vec<Digest>, StoreError> {
        (**self).list_blobs()
    }

    fn snapshot(&self, to: &Path) -> Result<(), StoreError> {
        (**self).snapshot(to)
    }

    fn restore(&self, from: &Path) -> Result<(), StoreError> {
        (**self).restore(from)
    }
}
