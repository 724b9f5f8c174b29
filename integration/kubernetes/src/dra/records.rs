//! Notes of what was prepared, one file a claim: written before anything is bound, removed when all is given back.
//!
//! `NodeUnprepareResources` names a claim that the API server may have forgotten by then, so what it had has to be known
//! here.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::dra::interface::PodInterface;

/// A claim that is prepared, or was begun to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimRecord {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// Whether all of it was prepared once: a later failure takes nothing away from the pod that has it.
    pub is_prepared: bool,
    /// Whether the kubelet asked for it, and so says when it is over.
    pub is_of_kubelet: bool,
    /// Functions of the claim.
    pub functions: Vec<FunctionRecord>,
}

/// A function of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionRecord {
    /// UUID of its binding.
    pub uuid: String,
    /// The tenant of the binding.
    pub tenant: String,
    /// Its interface, once it is known.
    pub interface: Option<PodInterface>,
    /// Name of the DAG that was made for it alone, and goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_dag: Option<String>,
}

/// The folder of notes.
#[derive(Debug, Clone)]
pub struct RecordFolder(PathBuf);

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl RecordFolder {
    /// Opens the folder, and creates it if it is missing.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path).map_err(|error| named(path, &error))?;
        Ok(Self(path.to_owned()))
    }

    fn file(&self, claim: &str) -> io::Result<PathBuf> {
        // The kubelet's word becomes part of a path.
        let uuid = Uuid::try_parse(claim).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("claim UID {claim:?} is not a UUID"),
            )
        })?;
        Ok(self.0.join(format!("{}.json", uuid.hyphenated())))
    }

    /// The note of a claim.
    ///
    /// # Errors
    /// It cannot be read, or not understood.
    pub fn read(&self, claim: &str) -> io::Result<Option<ClaimRecord>> {
        let path = self.file(claim)?;
        match fs::read(&path) {
            Ok(bytes) => {
                let record = serde_json::from_slice(&bytes).map_err(io::Error::from);
                record.map(Some).map_err(|error| named(&path, &error))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(named(&path, &error)),
        }
    }

    /// Writes the note of a claim; it survives a crash of the host.
    ///
    /// # Errors
    /// It cannot be written; an earlier note stays.
    pub fn write(&self, claim: &str, record: &ClaimRecord) -> io::Result<()> {
        let path = self.file(claim)?;
        let write = || {
            let new = path.with_extension("new");
            let mut file = File::create(&new)?;
            file.write_all(&serde_json::to_vec_pretty(record)?)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.0)?.sync_all()
        };
        write().map_err(|error| named(&path, &error))
    }

    /// UIDs of the claims that have a note.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn claims(&self) -> io::Result<BTreeSet<String>> {
        let mut claims = BTreeSet::new();
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            let uid = name.to_str().and_then(|name| name.strip_suffix(".json"));
            claims.extend(uid.filter(|uid| Uuid::try_parse(uid).is_ok()).map(str::to_owned));
        }
        Ok(claims)
    }

    /// UUIDs of the functions that claims have. A note that cannot be read has none.
    pub fn functions(&self) -> BTreeSet<String> {
        let claims = self.claims().unwrap_or_default();
        let records = claims.iter().filter_map(|claim| self.read(claim).ok().flatten());
        records.flat_map(|record| record.functions).map(|function| function.uuid).collect()
    }

    /// Removes the note of a claim, if there is one.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, claim: &str) -> io::Result<()> {
        let path = self.file(claim)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(named(&path, &error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_until_it_is_removed() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = RecordFolder::open(&home.path().join("claims")).expect("created");
        let claim = "123e4567-e89b-42d3-a456-426614174000";
        let function = FunctionRecord {
            uuid: claim.into(),
            tenant: "acme".into(),
            interface: None,
            own_dag: Some("tenants/acme/dags/claim-1".into()),
        };
        let record = ClaimRecord {
            namespace: "shop".into(),
            name: "web".into(),
            is_prepared: false,
            is_of_kubelet: true,
            functions: vec![function],
        };
        assert_eq!(folder.read(claim).expect("no note"), None);
        folder.write(claim, &record).expect("written");
        assert_eq!(folder.read(claim).expect("a note"), Some(record));
        assert_eq!(folder.claims().expect("read"), BTreeSet::from([claim.to_owned()]));
        assert_eq!(folder.functions(), BTreeSet::from([claim.to_owned()]));
        folder.remove(claim).expect("removed");
        folder.remove(claim).expect("nothing to do");
        assert_eq!(folder.read(claim).expect("no note"), None);
        for odd in ["../../etc/passwd", ""] {
            assert!(folder.read(odd).is_err() && folder.remove(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_damaged_note_is_an_error_that_names_the_file() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = RecordFolder::open(home.path()).expect("there");
        let claim = "123e4567-e89b-42d3-a456-426614174000";
        fs::write(home.path().join(format!("{claim}.json")), "{").expect("a file");
        let error = folder.read(claim).expect_err("damaged").to_string();
        assert!(error.contains(claim), "{error}");
    }
}
