//! Random numbers and files for secrets.

use std::fs::{OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};

/// 128 random bits.
///
/// # Errors
/// The system has none.
pub fn random() -> Result<[u8; 16]> {
    let mut random = [0; 16];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source.fill(&mut random).map_err(|_| anyhow!("the system's random number generator failed"))?;
    Ok(random)
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a file atomically, with exactly these permissions.
///
/// # Errors
/// It cannot be written; the old one is still there.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let temporary = path.with_extension("new");
    let result = (|| {
        // A file left over from an earlier run may have other permissions.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    })();
    result.with_context(|| format!("write {}", path.display()))
}

/// Writes a file that only its owner reads. Durable when it returns: the folder is synced after the file took its name.
///
/// # Errors
/// It cannot be written, or it is not known whether it is durable.
pub fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes, 0o600)?;
    let folder = path.parent().context("the file is in a folder")?;
    let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.with_context(|| format!("sync {}", folder.display()))
}
