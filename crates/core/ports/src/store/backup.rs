//! One file that holds a whole store, records and blobs, to set a host up again.
//!
//! ```text
//!  "snic backup 1\n" │ length u64 │ snapshot │ count u64 │ (digest, length u64, bytes)* │ SHA-256
//! ```
//!
//! Integers are little-endian. The snapshot is a [`Snapshot`], which checks itself; a blob's digest
//! checks the blob; the last digest is of all of these digests, so that a file that was cut at a
//! blob's edge, or put together from two, is rejected too.

use snic_domain::Digest;

use super::snapshot::Snapshot;

/// The first bytes of a backup; the number is the format's version.
const MAGIC: &[u8] = b"snic backup 1\n";
/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;

/// A backup that is written part by part, so that not all of it has to be in memory.
#[derive(Debug)]
pub struct Writer {
    /// The digests of all parts, so far.
    digests: Vec<u8>,
    left: u64,
}

impl Writer {
    /// Begins with the snapshot (its file's bytes) and how many blobs there will be. Gives the
    /// first bytes of the file.
    pub fn begin(snapshot: &[u8], blobs: u64) -> (Self, Vec<u8>) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&(snapshot.len() as u64).to_le_bytes());
        bytes.extend_from_slice(snapshot);
        bytes.extend_from_slice(&blobs.to_le_bytes());
        let digests = Digest::of(snapshot).as_bytes().to_vec();
        (Self { digests, left: blobs }, bytes)
    }

    /// The header of the next blob.
    pub fn blob(&mut self, digest: Digest, bytes: u64) -> Vec<u8> {
        self.digests.extend_from_slice(digest.as_bytes());
        self.left = self.left.saturating_sub(1);
        [&digest.as_bytes()[..], &bytes.to_le_bytes()].concat()
    }

    /// The last bytes of the file; `None` where blobs are missing.
    pub fn end(self) -> Option<Vec<u8>> {
        (self.left == 0).then(|| Digest::of(&self.digests).as_bytes().to_vec())
    }
}

/// A backup that was read and is whole.
#[derive(Debug)]
pub struct Backup<'a> {
    pub snapshot: Snapshot,
    /// The blobs, with their digests.
    pub blobs: Vec<(Digest, &'a [u8])>,
}

/// Takes bytes off the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

impl<'a> Backup<'a> {
    /// Reads a file, whole or not at all; the error says what is wrong with the bytes.
    ///
    /// # Errors
    /// The bytes are no backup, of another version, cut or damaged.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            let other = bytes.starts_with(b"snic backup ");
            return Err(if other { "it is of another version" } else { "it is no backup" }.into());
        };
        let cut = || "it is cut".to_owned();
        let mut reader = Reader(rest);
        let length = reader.number().ok_or_else(cut)?;
        let file = reader.take(length).ok_or_else(cut)?;
        let snapshot = Snapshot::decode(file).map_err(|error| format!("its records: {error}"))?;
        let mut digests = Digest::of(file).as_bytes().to_vec();
        let mut blobs = Vec::new();
        for _ in 0..reader.number().ok_or_else(cut)? {
            let expected = reader.take(DIGEST_BYTES as u64).ok_or_else(cut)?;
            let length = reader.number().ok_or_else(cut)?;
            let bytes = reader.take(length).ok_or_else(cut)?;
            let digest = Digest::of(bytes);
            if digest.as_bytes() != expected {
                return Err("the bytes of a bitstream are damaged".to_owned());
            }
            digests.extend_from_slice(expected);
            blobs.push((digest, bytes));
        }
        if reader.0 != Digest::of(&digests).as_bytes() {
            return Err("its end does not match its parts: it is cut or damaged".to_owned());
        }
        Ok(Self { snapshot, blobs })
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn example() -> Vec<u8> {
        let snapshot = Snapshot {
            written_at: SystemTime::UNIX_EPOCH,
            sequence: 7,
            records: vec![("a".into(), vec![1, 2]), ("b".into(), Vec::new())],
        };
        let blobs: [&[u8]; 2] = [b"one", b""];
        let (mut writer, mut bytes) = Writer::begin(&snapshot.encode(), 2);
        for blob in blobs {
            bytes.extend(writer.blob(Digest::of(blob), blob.len() as u64));
            bytes.extend_from_slice(blob);
        }
        bytes.extend(writer.end().expect("no blob is missing"));
        bytes
    }

    #[test]
    fn a_backup_reads_back_as_it_was() {
        let bytes = example();
        let backup = Backup::decode(&bytes).expect("whole");
        assert_eq!(backup.snapshot.records.len(), 2);
        let blobs: Vec<&[u8]> = backup.blobs.iter().map(|(_, bytes)| *bytes).collect();
        assert_eq!(blobs, [&b"one"[..], b""]);
    }

    #[test]
    fn every_damaged_byte_every_cut_and_every_byte_too_many_is_refused() {
        let bytes = example();
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x10;
            assert!(Backup::decode(&damaged).is_err(), "byte {position}");
            assert!(Backup::decode(&bytes[..position]).is_err(), "cut at {position}");
        }
        assert!(Backup::decode(&[&bytes[..], b"x"].concat()).is_err());
    }

    #[test]
    fn foreign_files_are_told_from_other_versions() {
        let error = |bytes: &[u8]| Backup::decode(bytes).expect_err("no backup");
        assert!(error(b"PK\x03\x04").contains("no backup"));
        assert!(error(b"snic backup 2\nxxxx").contains("another version"));
    }

    #[test]
    fn a_backup_with_a_blob_missing_has_no_end() {
        let (writer, _) = Writer::begin(b"", 1);
        assert_eq!(writer.end(), None);
    }
}
