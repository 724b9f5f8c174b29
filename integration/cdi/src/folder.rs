//! The folder that container runtimes read: our files in it, and nobody else's.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use snic_api::v1::VmBinding;

use crate::spec::InvalidSpec;
use crate::{Host, spec, uuid_of};

/// What our files begin with: vendor and class, as the specification names transient files.
const PREFIX: &str = "snic.dev-vf_";
/// What they end with.
const SUFFIX: &str = ".json";

/// Why a file is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Runtimes would refuse it.
    #[error("binding {binding}: {source}")]
    Invalid {
        /// Of which binding.
        binding: String,
        /// Why.
        #[source]
        source: InvalidSpec,
    },
    /// It would be another file.
    #[error("binding {0:?}: this is no UUID")]
    Name(String),
}

/// The folder.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    host: Host,
}

/// Only hexadecimal digits and hyphens: it becomes the name of a file.
fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

impl Folder {
    /// The folder, which is made where it is missing.
    ///
    /// # Errors
    /// [`FolderError::Io`] where it cannot be made.
    pub fn open(path: &Path, host: Host) -> Result<Self, FolderError> {
        let failed = |source| FolderError::Io { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), host })
    }

    fn file(&self, uuid: &str) -> Result<PathBuf, FolderError> {
        if !is_uuid(uuid) {
            return Err(FolderError::Name(uuid.to_owned()));
        }
        Ok(self.path.join(format!("{PREFIX}{}{SUFFIX}", uuid.to_ascii_lowercase())))
    }

    /// Has the file of a binding say what it is; whether it had to be written.
    ///
    /// # Errors
    /// [`FolderError`]; the file is as it was then.
    pub fn put(&self, binding: &VmBinding) -> Result<bool, FolderError> {
        let path = self.file(uuid_of(binding))?;
        let invalid = |source| FolderError::Invalid { binding: binding.name.clone(), source };
        let text = spec(binding, &self.host).to_json().map_err(invalid)?;
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            return Ok(false);
        }
        let failed = |source| FolderError::Io { path: path.clone(), source };
        self.replace(&path, text.as_bytes()).map_err(failed)?;
        Ok(true)
    }

    /// A reader sees the old file or the new one; runtimes read `*.json` alone.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(&self.path)?.sync_all()
    }

    /// Removes the file of a binding; whether there was one.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn remove(&self, uuid: &str) -> Result<bool, FolderError> {
        let path = self.file(uuid)?;
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(FolderError::Io { path, source }),
        }
    }

    /// The UUIDs that have a file.
    ///
    /// # Errors
    /// [`FolderError::Io`] where the folder cannot be read.
    pub fn uuids(&self) -> Result<BTreeSet<String>, FolderError> {
        let failed = |source| FolderError::Io { path: self.path.clone(), source };
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let uuid =
                name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
            found.extend(uuid.filter(|uuid| is_uuid(uuid)).map(str::to_owned));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
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
        };
        VmBinding {
            name: format!("vmBindings/{uuid}"),
            functions: (0..functions).map(function).collect(),
            dags: vec![BoundDag { name: dag.clone(), uid: 17, ..Default::default() }],
            ..Default::default()
        }
    }

    fn folder() -> (tempfile::TempDir, Folder) {
        let home = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(&home.path().join("cdi"), Host::new(home.path()));
        let folder = folder.expect("it is made");
        (home, folder)
    }

    #[test]
    fn a_binding_has_one_file_that_is_written_once() {
        let (_home, folder) = folder();
        assert!(folder.put(&binding(UUID, 2)).expect("written"));
        assert!(!folder.put(&binding(UUID, 2)).expect("it is there"), "nothing has changed");
        let path = folder.file(UUID).expect("a UUID");
        let text = fs::read_to_string(&path).expect("the file");
        assert!(
            text.contains(
                "SNIC_VF_0000_3B_00_2=pci=0000:3b:00.2,mac=02:1f:c4:77:00:01,card=cards/card0,vf=1,\
                 dag=tenants/acme/dags/web,uid=17"
            ),
            "{text}"
        );
        assert!(folder.put(&binding(UUID, 1)).expect("written"), "it has changed");
        fs::write(&path, "half").expect("damage");
        assert!(folder.put(&binding(UUID, 1)).expect("written"), "damage is mended");
        assert!(folder.remove(UUID).expect("removed"));
        assert!(!folder.remove(UUID).expect("nothing"));
    }

    #[test]
    fn files_of_others_and_odd_names_are_left_alone() {
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

    proptest! {
        /// Whatever the daemon says, what is written is what runtimes take.
        #[test]
        fn what_is_written_is_valid(
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
            prop_assert_eq!(spec.check(), Ok(()));
        }
    }
}
