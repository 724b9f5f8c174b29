//! One file that holds every record: what `snicctl` keeps as a backup, and what a store that does
//! not open is restored from.
//!
//! The format belongs to the port, not to an adapter: a snapshot of one store restores into another.
//!
//! ```text
//!  "snic snapshot 1\n" │ written_at u64 │ sequence u64 │ count u64 │ (key, value)* │ SHA-256 of all before
//! ```
//!
//! Integers are little-endian, `written_at` is in seconds since 1970, keys and values are fields
//! of [`codec`](super::codec), keys ascend. Any damage fails the digest, so a snapshot is read
//! whole or refused whole.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use snic_domain::Digest;

use super::codec::{Reader, put_field};
use super::{StoreError, check_record};

/// The first bytes of a snapshot; the number is the format's version.
const MAGIC: &[u8] = b"snic snapshot 1\n";

/// Bytes of the digest at the end.
const DIGEST_BYTES: usize = 32;

/// Every record of a store at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was taken, to the second.
    pub written_at: SystemTime,
    /// The last group of changes that is in it, as the adapter counts them; 0 if it does not.
    pub sequence: u64,
    /// The records, in ascending order of keys.
    pub records: Vec<(String, Vec<u8>)>,
}

impl Snapshot {
    /// A snapshot taken now.
    pub fn now(sequence: u64, records: Vec<(String, Vec<u8>)>) -> Self {
        Self { written_at: SystemTime::now(), sequence, records }
    }

    /// Age of the snapshot; zero if the clock went back since.
    pub fn age(&self) -> Duration {
        self.written_at.elapsed().unwrap_or_default()
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let seconds = self.written_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let size: usize = self.records.iter().map(|(key, value)| key.len() + value.len() + 8).sum();
        let mut bytes = Vec::with_capacity(MAGIC.len() + 24 + size + DIGEST_BYTES);
        bytes.extend_from_slice(MAGIC);
        for number in [seconds.as_secs(), self.sequence, self.records.len() as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for (key, value) in &self.records {
            put_field(&mut bytes, key.as_bytes());
            put_field(&mut bytes, value);
        }
        let digest = Digest::of(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        bytes
    }

    /// The inverse of [`Snapshot::encode`]; the error says what is wrong with the bytes.
    ///
    /// # Errors
    ///
    /// Decodes the bytes; the error says what is wrong in words that follow the path of the file.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        if !bytes.starts_with(MAGIC) {
            return Err("it does not begin like a snapshot".to_owned());
        }
        let (content, digest) = bytes.split_at(bytes.len().saturating_sub(DIGEST_BYTES));
        if Digest::of(content).as_bytes() != digest {
            return Err("its digest does not match its content: it is cut or damaged".to_owned());
        }
        let mut reader = Reader::new(&content[MAGIC.len().min(content.len())..]);
        let snapshot = Self::parse(&mut reader).ok_or("its records do not parse")?;
        for pair in snapshot.records.windows(2) {
            if pair[0].0 >= pair[1].0 {
                return Err(format!("its key {:?} is out of order", pair[1].0));
            }
        }
        for (key, value) in &snapshot.records {
            check_record(key, value).map_err(|error| error.to_string())?;
        }
        Ok(snapshot)
    }

    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let written_at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(reader.u64()?))?;
        let sequence = reader.u64()?;
        let count = reader.u64()?;
        let mut records = Vec::new();
        for _ in 0..count {
            records.push((reader.text()?.to_owned(), reader.field()?.to_vec()));
        }
        (reader.remaining() == 0).then_some(Self { written_at, sequence, records })
    }

    /// Writes the file: see [`write_durably`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn write(&self, path: &Path) -> Result<(), StoreError> {
        write_durably(path, &self.encode())
    }

    /// Reads a file; [`StoreError::Snapshot`] if it is damaged.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] where the file cannot be read, [`StoreError::Snapshot`] where it is
    /// damaged.
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let bytes = fs::read(path)
            .map_err(|error| StoreError::io(format!("read {}", path.display()), error))?;
        Self::decode(&bytes)
            .map_err(|reason| StoreError::Snapshot { path: path.display().to_string(), reason })
    }
}

/// Writes a file so that after a power cut it is there whole or not at all, and is there once this
/// returned: a temporary beside it, synced, renamed, and the folder synced.
///
/// # Errors
///
/// [`StoreError::Io`] for the first step that failed; the temporary is removed.
pub fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let temporary = temporary_beside(path);
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| sync_folder_of(path));
    written.map_err(|error| {
        // The error to report is the first one; a temporary left behind is swept at the next open.
        let _ = fs::remove_file(&temporary);
        StoreError::io(format!("write {}", path.display()), error)
    })
}

/// The name every temporary of [`write_durably`] ends with.
pub const TEMPORARY_SUFFIX: &str = ".tmp";

/// A name that no other writer of this machine uses at the same time.
fn temporary_beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{count}{TEMPORARY_SUFFIX}", std::process::id()));
    path.with_file_name(name)
}

/// Makes the folder's entry of `path` durable: its creation, its rename or its removal.
///
/// # Errors
///
/// The folder cannot be opened or synced.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example() -> Snapshot {
        Snapshot {
            written_at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            sequence: 42,
            records: vec![
                ("tenants/acme".to_owned(), vec![1, 2, 3]),
                ("tenants/acme/dags/web".to_owned(), Vec::new()),
            ],
        }
    }

    proptest! {
        #[test]
        fn a_snapshot_reads_back_as_it_was(
            sequence: u64,
            records in proptest::collection::btree_map("[a-zé/]{1,40}", any::<Vec<u8>>(), 0..20),
        ) {
            let snapshot = Snapshot {
                sequence, records: records.into_iter().collect(), ..example()
            };
            prop_assert_eq!(Snapshot::decode(&snapshot.encode()), Ok(snapshot));
        }

        #[test]
        fn bytes_that_are_no_snapshot_never_panic(
            mut bytes: Vec<u8>, begins_well: bool, digest_fits: bool,
        ) {
            if begins_well {
                bytes.splice(0..0, MAGIC.iter().copied());
            }
            if digest_fits {
                let digest = Digest::of(&bytes);
                bytes.extend_from_slice(digest.as_bytes());
            }
            prop_assert!(Snapshot::decode(&bytes).is_err());
        }
    }

    #[test]
    fn every_damaged_byte_and_every_cut_is_refused() {
        let bytes = example().encode();
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x10;
            assert!(Snapshot::decode(&damaged).is_err(), "byte {position}");
            assert!(Snapshot::decode(&bytes[..position]).is_err(), "cut at {position}");
        }
    }

    /// Also where the digest is of all of it: who wrote that counted the records wrong.
    #[test]
    fn trailing_bytes_after_the_records_are_refused() {
        let bytes = example().encode();
        let mut content = bytes[..bytes.len() - DIGEST_BYTES].to_vec();
        content.push(0);
        let digest = Digest::of(&content);
        content.extend_from_slice(digest.as_bytes());
        let error = Snapshot::decode(&content).unwrap_err();
        assert_eq!(error, "its records do not parse");
    }

    #[test]
    fn keys_out_of_order_and_records_over_the_limit_are_refused() {
        let mut swapped = example();
        swapped.records.swap(0, 1);
        let error = Snapshot::decode(&swapped.encode()).unwrap_err();
        assert!(error.contains("out of order"), "{error}");

        let mut large = example();
        large.records[0].1 = vec![0; super::super::RECORD_BYTES_MAX + 1];
        let error = Snapshot::decode(&large.encode()).unwrap_err();
        assert!(error.contains("at most"), "{error}");
    }

    #[test]
    fn a_file_is_replaced_whole_and_leaves_no_temporary() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backup");
        write_durably(&path, b"first").unwrap();
        example().write(&path).unwrap();
        assert_eq!(Snapshot::read(&path).unwrap(), example());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent");
        let error = Snapshot::read(&path).unwrap_err().to_string();
        assert!(error.contains("absent"), "{error}");
        let error = example().write(&path.join("below")).unwrap_err().to_string();
        assert!(error.contains("below"), "{error}");
        fs::write(&path, b"no snapshot").unwrap();
        let error = Snapshot::read(&path).unwrap_err();
        assert!(matches!(error, StoreError::Snapshot { .. }), "{error}");
    }
}
