//! Our files in the folder that container runtimes read; files of other vendors are left alone.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use snic_api::v1::VmBinding;
use uuid::Uuid;

use crate::spec::{InvalidSpec, Spec};
use crate::{Host, KIND, spec, uuid_of};

/// Suffix of our files.
const SUFFIX: &str = ".json";

/// Why a file was not written, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// An I/O error.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Container runtimes would reject the file.
    #[error("binding {binding}: {source}")]
    Invalid {
        binding: String,
        #[source]
        source: InvalidSpec,
    },
    /// The binding's name could lead to another file.
    #[error("binding {0:?}: not a valid UUID (expected e.g. 123e4567-e89b-42d3-a456-426614174000)")]
    Name(String),
}

/// Change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChange {
    /// Created or replaced.
    Written,
    Removed,
    /// It was as it should be.
    None,
}

#[derive(Debug, Clone)]
pub struct SpecFolder {
    path: PathBuf,
    host: Host,
    /// Prefix of our files: vendor and class, as the specification names transient files.
    prefix: String,
}

fn prefix_of(kind: &str) -> String {
    format!("{}_", kind.replace('/', "-"))
}

impl SpecFolder {
    /// Opens the folder, and creates it if it is missing.
    ///
    /// # Errors
    /// [`FolderError::Io`] where it cannot be created.
    pub fn open(path: &Path, host: Host) -> Result<Self, FolderError> {
        let failed = |source| FolderError::Io { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), host, prefix: prefix_of(KIND) })
    }

    /// The same folder for files with devices of another kind: each program has its own, so that none replaces or removes
    /// another's.
    #[must_use]
    pub fn with_kind(self, kind: &str) -> Self {
        Self { prefix: prefix_of(kind), ..self }
    }

    fn file(&self, uuid: &str) -> Result<PathBuf, FolderError> {
        let uuid = Uuid::try_parse(uuid).map_err(|_| FolderError::Name(uuid.to_owned()))?;
        Ok(self.path.join(format!("{}{}{SUFFIX}", self.prefix, uuid.hyphenated())))
    }

    /// Writes the file of a binding, unless it is up to date already.
    ///
    /// # Errors
    /// [`FolderError`]; the file is unchanged then.
    pub fn put(&self, binding: &VmBinding) -> Result<FileChange, FolderError> {
        self.put_spec(uuid_of(binding), &spec(binding, &self.host))
    }

    /// Writes the file with the devices of a binding, unless it is up to date already.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_spec(&self, uuid: &str, spec: &Spec) -> Result<FileChange, FolderError> {
        let path = self.file(uuid)?;
        let invalid = |source| FolderError::Invalid { binding: uuid.to_owned(), source };
        let text = spec.to_json().map_err(invalid)?;
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            return Ok(FileChange::None);
        }
        let failed = |source| FolderError::Io { path: path.clone(), source };
        self.replace(&path, text.as_bytes()).map_err(failed)?;
        Ok(FileChange::Written)
    }

    /// A reader sees the old file or the new one; runtimes read only `*.json`.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(&self.path)?.sync_all()
    }

    /// Removes the file of a binding, if there is one.
    ///
    /// # Errors
    /// [`FolderError::Name`] for a malformed UUID, [`FolderError::Io`] where the file cannot be
    /// removed.
    pub fn remove(&self, uuid: &str) -> Result<FileChange, FolderError> {
        let path = self.file(uuid)?;
        match fs::remove_file(&path) {
            Ok(()) => Ok(FileChange::Removed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FileChange::None),
            Err(source) => Err(FolderError::Io { path, source }),
        }
    }

    /// The UUIDs of the bindings that have a file.
    ///
    /// # Errors
    /// [`FolderError::Io`] where the folder cannot be read.
    pub fn uuids(&self) -> Result<BTreeSet<String>, FolderError> {
        let failed = |source| FolderError::Io { path: self.path.clone(), source };
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let uuid = name
                .to_str()
                .and_then(|name| name.strip_prefix(&*self.prefix)?.strip_suffix(SUFFIX));
            let uuid = uuid.and_then(|uuid| Uuid::try_parse(uuid).ok());
            found.extend(uuid.map(|uuid| uuid.hyphenated().to_string()));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_api::text::is_hidden;
    use snic_api::v1::{BoundDag, BoundFunction};

    use super::*;

    const UUID: &str = "123e4567-e89b-42d3-a456-426614174000";

    fn binding(uuid: &str, functions: u32) -> VmBinding {
        let dag = "tenants/acme/dags/web".to_owned();
        let function = |n| BoundFunction {
            card: "cards/card0".into(),
            virtual_function: n,
            pci_address: format!("0000:3b:00.{}", n + 1),
            mac_address: format!("02:1f:c4:77:00:{n:02x}"),
            dag: dag.clone(),
            programmed: true,
            ..Default::default()
        };
        VmBinding {
            name: format!("vmBindings/{uuid}"),
            functions: (0..functions).map(function).collect(),
            dags: vec![BoundDag { name: dag.clone(), uid: 17, ..Default::default() }],
            ..Default::default()
        }
    }

    fn folder() -> (tempfile::TempDir, SpecFolder) {
        let home = tempfile::tempdir().expect("a folder");
        let folder = SpecFolder::open(&home.path().join("cdi"), Host::new(home.path()));
        let folder = folder.expect("created");
        (home, folder)
    }

    #[test]
    fn a_file_is_written_only_when_it_changes() {
        let (_home, folder) = folder();
        let put = |functions| folder.put(&binding(UUID, functions)).expect("a valid binding");
        assert_eq!((put(2), put(2)), (FileChange::Written, FileChange::None));
        let path = folder.file(UUID).expect("a UUID");
        let text = fs::read_to_string(&path).expect("the file");
        assert!(
            text.contains(
                "SNIC_VF_0000_3B_00_2=pci=0000:3b:00.2,mac=02:1f:c4:77:00:01,card=cards/card0,vf=1,\
                 dag=tenants/acme/dags/web,uid=17"
            ),
            "{text}"
        );
        assert_eq!(put(1), FileChange::Written, "the binding has changed");
        fs::write(&path, "half").expect("writable");
        assert_eq!(put(1), FileChange::Written, "a damaged file is replaced");
        assert_eq!(folder.remove(UUID).expect("removable"), FileChange::Removed);
        assert_eq!(folder.remove(UUID).expect("nothing to do"), FileChange::None);
    }

    #[test]
    fn files_of_other_vendors_are_left_alone_and_malformed_names_rejected() {
        let (_home, folder) = folder();
        for other in ["vendor.json", "snic.dev-vf_odd.json", "snic.dev-vf_.new"] {
            fs::write(folder.path.join(other), "{}").expect("a file");
        }
        folder.put(&binding(UUID, 1)).expect("written");
        assert_eq!(folder.uuids().expect("read"), BTreeSet::from([UUID.to_owned()]));
        for odd in ["../../etc/passwd", "", &"x".repeat(36)] {
            assert!(matches!(folder.put(&binding(odd, 1)), Err(FolderError::Name(_))), "{odd}");
            assert!(matches!(folder.remove(odd), Err(FolderError::Name(_))), "{odd}");
        }
        let none = folder.put(&binding(UUID, 0)).expect_err("no device");
        assert!(none.to_string().contains("at least one"), "{none}");
    }

    #[test]
    fn files_of_another_kind_are_left_alone() {
        let (_home, folder) = folder();
        let claims = folder.clone().with_kind("snic.dev/claim");
        folder.put(&binding(UUID, 1)).expect("written");
        assert_eq!(claims.uuids().expect("read"), BTreeSet::new());
        assert_eq!(claims.remove(UUID).expect("nothing to do"), FileChange::None);
        let spec = spec(&binding(UUID, 1), &folder.host);
        assert_eq!(claims.put_spec(UUID, &spec).expect("written"), FileChange::Written);
        assert_eq!(folder.remove(UUID).expect("removable"), FileChange::Removed);
        assert_eq!(claims.uuids().expect("read"), BTreeSet::from([UUID.to_owned()]));
    }

    proptest! {
        /// Whatever the daemon sends, runtimes accept what is written; text with hidden characters is refused.
        #[test]
        fn every_spec_is_valid(
            mac in "\\PC{0,20}",
            dag in "\\PC{0,40}",
            address in "\\PC{0,20}",
            functions in 1_u32..9,
        ) {
            let mut binding = binding(UUID, functions);
            for function in &mut binding.functions {
                function.mac_address = mac.clone();
                function.dag = dag.clone();
                function.pci_address = address.clone();
            }
            let spec = spec(&binding, &Host::new(Path::new("/nonexistent")));
            let hides = [mac, dag, address].iter().any(|text| text.contains(is_hidden));
            prop_assert_eq!(spec.check().is_err(), hides, "{:?}", spec.check());
        }
    }
}
