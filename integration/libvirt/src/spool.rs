//! Domains that are still to be unbound, because the daemon did not answer when it was asked.
//!
//! One file per domain, named by its UUID; its content is the tenant, or nothing where the tenant
//! is unknown. The files survive a restart of the host.

use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// A domain that is still to be unbound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingUnbind {
    pub uuid: Uuid,
    /// Unbind only a binding of this tenant.
    pub tenant: Option<String>,
}

/// The folder of pending unbinds.
pub struct Spool(PathBuf);

impl Spool {
    /// In this folder, which need not exist yet.
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    fn file(&self, uuid: Uuid) -> PathBuf {
        self.0.join(uuid.hyphenated().to_string())
    }

    /// Records that a domain is to be unbound.
    ///
    /// # Errors
    /// The folder cannot be created or written.
    pub fn add(&self, pending: &PendingUnbind) -> io::Result<()> {
        std::fs::create_dir_all(&self.0)?;
        std::fs::write(self.file(pending.uuid), pending.tenant.as_deref().unwrap_or_default())
    }

    /// The pending unbind of a domain, if there is one.
    pub fn get(&self, uuid: Uuid) -> Option<PendingUnbind> {
        let tenant = std::fs::read_to_string(self.file(uuid)).ok()?;
        Some(PendingUnbind { uuid, tenant: Some(tenant).filter(|tenant| !tenant.is_empty()) })
    }

    /// Removes a record: the domain is unbound, or runs again.
    ///
    /// # Errors
    /// The file exists and cannot be removed.
    pub fn remove(&self, uuid: Uuid) -> io::Result<()> {
        match std::fs::remove_file(self.file(uuid)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// All pending unbinds; none where there is no folder.
    pub fn list(&self) -> Vec<PendingUnbind> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let uuids = names.filter_map(|name| Uuid::try_parse(&name).ok());
        uuids.filter_map(|uuid| self.get(uuid)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: Uuid = Uuid::from_u128(0x123e_4567_e89b_42d3_a456_4266_1417_4000);

    #[test]
    fn a_record_stays_until_it_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(&folder.path().join("spool"));
        assert_eq!(spool.list(), []);
        let of =
            |tenant: Option<&str>| PendingUnbind { uuid: UUID, tenant: tenant.map(Into::into) };
        spool.add(&of(None)).expect("writable");
        assert_eq!(spool.list(), [of(None)]);
        spool.add(&of(Some("acme"))).expect("writable");
        assert_eq!(spool.list(), [of(Some("acme"))], "one record per domain");
        spool.remove(UUID).expect("removed");
        spool.remove(UUID).expect("nothing to remove");
        assert_eq!((spool.list(), spool.get(UUID)), (vec![], None));
    }

    #[test]
    fn other_files_are_ignored() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("README"), "hello").expect("writable");
        assert_eq!(Spool::new(folder.path()).list(), []);
    }
}
