//! A look at a store that no process has open. Opening one repairs it; so a copy is opened, and nothing in
//! the folder changes.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use snic_domain::Digest;
use snic_ports::store::{Store as _, StoreError};

use crate::blobs::Blobs;
use crate::opening::Recovery;
use crate::options::SledOptions;
use crate::store::SledStore;

/// Content of a store's files.
pub struct Inspected {
    /// The records as an opening would find them, in the order of their keys.
    pub records: Vec<(String, Vec<u8>)>,
    /// Repair that an opening would make, if any.
    pub recovery: Option<Recovery>,
    /// The bitstreams whose bytes are there, and what is wrong with them.
    pub blobs: Vec<(Digest, Result<(), StoreError>)>,
}

/// Looks at the store of a folder. Copies its records to a folder for temporary files that only this user
/// can read, reads the bytes of all bitstreams, and writes nothing to the store.
///
/// # Errors
/// [`StoreError::InUse`] if a process has the store open; [`StoreError::Damaged`] if neither sled nor the
/// history can be read; [`StoreError::Io`] if there is no store, or the system refuses.
pub fn inspect(folder: &Path) -> Result<Inspected, StoreError> {
    let _lock = lock_existing(folder)?;
    let failed = |error| StoreError::io(format!("copy the store {}", folder.display()), error);
    let copy = tempfile::tempdir().map_err(failed)?;
    for part in ["db", "history"] {
        copy_folder(&folder.join(part), &copy.path().join(part)).map_err(failed)?;
    }
    let opened = SledStore::open(copy.path(), SledOptions::default())?;
    let records = opened.store.scan("")?;
    let blobs = Blobs::existing(folder.join("blobs"));
    let digests = if folder.join("blobs").exists() { blobs.list()? } else { Vec::new() };
    let read = |digest| (digest, blobs.get(digest).map(drop));
    let blobs = digests.into_iter().map(read).collect();
    Ok(Inspected { records, recovery: opened.recovered, blobs })
}

/// Takes the lock of a store that exists. No file is made for it.
fn lock_existing(folder: &Path) -> Result<File, StoreError> {
    let failed = |error| StoreError::io(format!("find a store in {}", folder.display()), error);
    let lock = File::open(folder.join("lock")).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            Err(StoreError::InUse { path: folder.display().to_string() })
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Copies a folder with the files and folders in it. One that is not there has no copy.
fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(from) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    fs::create_dir(to)?;
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_folder(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}
