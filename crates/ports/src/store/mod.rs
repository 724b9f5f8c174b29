//! The Store port: what should be, kept through a crash.
//!
//! Keys are short text paths (`tenants/acme`, `tenants/acme/dags/web`), values are small records.
//! [`Store::apply`] is atomic and durable when it returns; group commit is the adapter's business:
//! [`Store::apply_all`] takes what has queued up and makes it durable with one flush, in order.
//! Bitstreams are too large for records: they are blobs, named by their SHA-256 digest.

use std::path::Path;

use snic_domain::Digest;

/// Longest value a record may have, in bytes. sled moves larger values to blob files that it
/// never syncs, so a power cut would lose them after the acknowledgement.
pub const RECORD_BYTES_MAX: usize = 96 * 1024;

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

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
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
        /// What was found.
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
        /// What was being done, with the path.
        action: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The store stopped: a write failed, and what is durable is unknown. Restart the daemon.
    #[error("the store stopped after a failed write: {0}; restart the daemon")]
    Stopped(String),
}

/// Records and blobs that survive a crash. Calls block; call from a thread of its own.
/// All methods may be called from several threads at once.
pub trait Store: Send + Sync {
    /// Every record whose key starts with `prefix`, in key order.
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// One record.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Applies the batches in order, each atomically; all are durable when this returns `Ok`.
    /// After an error of kind [`StoreError::Io`] or [`StoreError::Stopped`] a prefix of the batches
    /// may be durable, and the store takes no more writes.
    /// A batch that breaks a limit is refused before anything of the group is applied.
    fn apply_all(&self, batches: &[Batch]) -> Result<(), StoreError>;

    /// One batch: see [`Store::apply_all`].
    fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        self.apply_all(std::slice::from_ref(&batch))
    }

    /// Stores bytes under their digest, durably. Storing the same digest again does nothing.
    fn put_blob(&self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError>;

    /// The bytes of a blob; checked against the digest.
    fn get_blob(&self, digest: Digest) -> Result<Vec<u8>, StoreError>;

    /// Removes a blob; removing an absent one does nothing.
    fn delete_blob(&self, digest: Digest) -> Result<(), StoreError>;

    /// The digests of all blobs.
    fn list_blobs(&self) -> Result<Vec<Digest>, StoreError>;

    /// Writes a consistent copy of all records to one file while the store goes on.
    fn snapshot(&self, to: &Path) -> Result<(), StoreError>;

    /// Replaces all records by those of a snapshot, atomically and durably.
    fn restore(&self, from: &Path) -> Result<(), StoreError>;
}
