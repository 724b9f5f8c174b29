//! Domains that still have to be unbound: a file each, named by the UUID, until the daemon has
//! heard of it. What is noted here survives the daemon's absence and the host's restart.

use std::io;
use std::path::{Path, PathBuf};

/// The folder.
pub struct Spool(PathBuf);

/// Whether a text can name a file and nothing else.
fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

impl Spool {
    /// In this folder, which need not exist yet.
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Notes that a domain is to be unbound.
    ///
    /// # Errors
    /// The folder cannot be written, or the text is no UUID.
    pub fn note(&self, uuid: &str) -> io::Result<()> {
        if !is_uuid(uuid) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no UUID"));
        }
        std::fs::create_dir_all(&self.0)?;
        std::fs::write(self.0.join(uuid), "")
    }

    /// A domain is unbound, or is wanted again.
    pub fn forget(&self, uuid: &str) {
        if is_uuid(uuid) {
            // Mostly there is none.
            let _ = std::fs::remove_file(self.0.join(uuid));
        }
    }

    /// The domains noted; none where there is no folder.
    pub fn all(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| is_uuid(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "123e4567-e89b-42d3-a456-426614174000";

    #[test]
    fn a_note_stays_until_it_is_done() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(&folder.path().join("spool"));
        assert_eq!(spool.all(), Vec::<String>::new());
        spool.note(UUID).expect("it can be written");
        spool.note(UUID).expect("twice is once");
        assert_eq!(spool.all(), [UUID]);
        spool.forget(UUID);
        spool.forget(UUID);
        assert_eq!(spool.all(), Vec::<String>::new());
    }

    #[test]
    fn only_uuids_name_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(folder.path());
        for bad in ["", "../x", "/etc/passwd", "123e4567-e89b-42d3-a456-42661417400/"] {
            assert!(spool.note(bad).is_err(), "{bad}");
        }
    }
}
