//! Bitstreams as files named by their digest.
//!
//! sled moves large values to files that it never syncs, so large values do not go there at all. A
//! file appears under its digest only whole and synced; whatever else is in the folder is a
//! temporary of a writer that died.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use snic_domain::Digest;
use snic_ports::store::StoreError;
use snic_ports::store::snapshot::{sync_folder_of, write_durably};

use crate::history::sweep_temporaries;

/// The folder of the blobs.
#[derive(Debug)]
pub(crate) struct Blobs {
    folder: PathBuf,
}

impl Blobs {
    /// Opens the folder, makes it if need be, and sweeps what dead writers left.
    pub(crate) fn open(folder: PathBuf) -> Result<Self, StoreError> {
        fs::create_dir_all(&folder)
            .and_then(|()| sync_folder_of(&folder))
            .map_err(|error| StoreError::io(format!("create {}", folder.display()), error))?;
        sweep_temporaries(&folder)?;
        Ok(Self { folder })
    }

    /// The folder as it is, to be read only.
    pub(crate) const fn existing(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Stores the bytes. A file that is there already is left alone if it still has its digest,
    /// and replaced if it rotted.
    pub(crate) fn put(&self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        let actual = Digest::of(bytes);
        if actual != digest {
            return Err(StoreError::DigestMismatch { expected: digest, actual });
        }
        let path = self.path(digest);
        match self.get(digest) {
            // Another writer's rename may not be durable yet.
            Ok(_) => self.sync_folder(&path),
            Err(_) => write_durably(&path, bytes),
        }
    }

    /// The bytes, checked.
    pub(crate) fn get(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        let path = self.path(digest);
        let bytes = fs::read(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => StoreError::NoBlob(digest),
            _ => StoreError::io(format!("read {}", path.display()), error),
        })?;
        let actual = Digest::of(&bytes);
        if actual != digest {
            return Err(StoreError::DigestMismatch { expected: digest, actual });
        }
        Ok(bytes)
    }

    /// Removes the file if it is there.
    pub(crate) fn delete(&self, digest: Digest) -> Result<(), StoreError> {
        let path = self.path(digest);
        match fs::remove_file(&path) {
            Ok(()) => self.sync_folder(&path),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StoreError::io(format!("remove {}", path.display()), error)),
        }
    }

    /// All digests, ascending.
    pub(crate) fn list(&self) -> Result<Vec<Digest>, StoreError> {
        let failed = |error| StoreError::io(format!("list {}", self.folder.display()), error);
        let mut digests = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            digests.extend(name.to_str().and_then(|name| name.parse::<Digest>().ok()));
        }
        digests.sort_unstable();
        Ok(digests)
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.folder.join(digest.to_string())
    }

    fn sync_folder(&self, path: &Path) -> Result<(), StoreError> {
        sync_folder_of(path)
            .map_err(|error| StoreError::io(format!("sync {}", self.folder.display()), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> (tempfile::TempDir, Blobs) {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path().join("blobs")).unwrap();
        (folder, blobs)
    }

    #[test]
    fn a_rotted_file_is_refused_and_can_be_stored_again() {
        let (_folder, blobs) = open();
        let digest = Digest::of(b"bits");
        blobs.put(digest, b"bits").unwrap();
        fs::write(blobs.path(digest), b"bitz").unwrap();
        let error = blobs.get(digest).unwrap_err();
        assert!(matches!(error, StoreError::DigestMismatch { .. }), "{error}");
        blobs.put(digest, b"bits").unwrap();
        assert_eq!(blobs.get(digest).unwrap(), b"bits");
    }

    #[test]
    fn leftovers_of_a_dead_writer_are_removed_and_foreign_files_not_listed() {
        let (folder, blobs) = open();
        fs::write(blobs.folder.join("ab.77-0.tmp"), b"half").unwrap();
        fs::write(blobs.folder.join("README"), b"mine").unwrap();
        assert_eq!(blobs.list().unwrap(), []);
        let blobs = Blobs::open(folder.path().join("blobs")).unwrap();
        let left: Vec<_> = fs::read_dir(&blobs.folder).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        let error = Blobs::open(file.join("blobs")).unwrap_err().to_string();
        assert!(error.contains("file/blobs"), "{error}");
    }
}
