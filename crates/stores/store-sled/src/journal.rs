//! The journal: every group of changes since a snapshot, appended before sled sees it.
//!
//! ```text
//!  header: "snic journal 1\n" │ after u64 │ SHA-256 of both
//!  group:  length u64 │ payload │ SHA-256 of both
//!  payload: sequence u64 │ count u64 │ (0 key │ 1 key value)*
//!  zeros:  room for more groups
//! ```
//!
//! The room is reserved in large pieces: a sync that makes a file longer takes twice as long as one that
//! does not, and now and then fifty times.
//!
//! Groups are numbered from 1 through the life of the store; `after` is the last group before this
//! file. So a reader knows whether groups are missing between two files, and a cut or damaged group
//! ends the file: nothing after it is used.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use snic_domain::Digest;
use snic_ports::store::codec::{Reader, put_field};
use snic_ports::store::snapshot::sync_folder_of;
use snic_ports::store::{StoreError, Write};

/// The first bytes of a journal; the number is the format's version.
const MAGIC: &[u8] = b"snic journal 1\n";

const DIGEST_BYTES: usize = 32;

/// Bytes of room that are reserved at once.
const ROOM_BYTES: u64 = 1 << 20;

/// Bytes of a journal without groups.
pub(crate) const HEADER_BYTES: usize = MAGIC.len() + 8 + DIGEST_BYTES;

/// One group of changes: what one commit made durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Its number, from 1, without gaps.
    pub(crate) sequence: u64,
    /// Its changes, in order.
    pub(crate) writes: Vec<Write>,
}

/// A journal open for appending.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    /// Groups appended since it was opened.
    pub(crate) groups: u64,
    /// Size of the header and the groups in bytes.
    pub(crate) bytes: u64,
    /// Up to where room is reserved.
    reserved: u64,
}

impl Journal {
    /// A new journal, durable with its name, for the groups that follow group `after`.
    pub(crate) fn create(path: PathBuf, after: u64) -> Result<Self, StoreError> {
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&after.to_le_bytes());
        seal(&mut header);
        let create = || {
            let mut file = File::create(&path)?;
            file.write_all(&header)?;
            file.sync_all()?;
            sync_folder_of(&path)?;
            io::Result::Ok(file)
        };
        match create() {
            Ok(file) => Ok(Self { file, path, groups: 0, bytes: header.len() as u64, reserved: 0 }),
            Err(error) => {
                // A file whose sync failed may look whole and be lost all the same: nobody is to find it.
                let _ = fs::remove_file(&path);
                Err(failed("create", &path, error))
            }
        }
    }

    /// Resumes a journal that [`Contents::is_unused`]. Its maker may have been killed before its name was durable.
    pub(crate) fn reuse(path: PathBuf) -> Result<Self, StoreError> {
        let bytes = HEADER_BYTES as u64;
        let open = || {
            let mut file = OpenOptions::new().write(true).open(&path)?;
            file.seek(SeekFrom::Start(bytes))?;
            sync_folder_of(&path)?;
            io::Result::Ok(file)
        };
        match open() {
            Ok(file) => Ok(Self { file, path, groups: 0, bytes, reserved: 0 }),
            Err(error) => Err(failed("open", &path, error)),
        }
    }

    /// Appends a group; durable after [`Journal::sync`]. After an error the file may end in a part
    /// of it, and must not be appended to again.
    pub(crate) fn append(&mut self, sequence: u64, writes: &[Write]) -> Result<(), StoreError> {
        let bytes = encode(sequence, writes);
        self.reserve(self.bytes + bytes.len() as u64);
        self.file.write_all(&bytes).map_err(|error| failed("append to", &self.path, error))?;
        self.groups += 1;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Reserves room, at least up to `end`. Not all file systems can, and a full one cannot: the file gets longer
    /// with each group then, or cannot be appended to.
    fn reserve(&mut self, end: u64) {
        if end > self.reserved {
            let room = end.next_multiple_of(ROOM_BYTES);
            let reserved = fallocate(&self.file, FallocateFlags::empty(), 0, room);
            self.reserved = reserved.map_or(end, |()| room);
        }
    }

    /// Makes all that was appended durable.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(|error| failed("sync", &self.path, error))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.reserved > self.bytes {
            // Room that stays is harmless.
            let _ = self.file.set_len(self.bytes);
        }
    }
}

fn failed(action: &str, path: &Path, error: io::Error) -> StoreError {
    StoreError::io(format!("{action} {}", path.display()), error)
}

/// Appends the digest of all that is there.
fn seal(bytes: &mut Vec<u8>) {
    let digest = Digest::of(bytes);
    bytes.extend_from_slice(digest.as_bytes());
}

fn encode(sequence: u64, writes: &[Write]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(&(writes.len() as u64).to_le_bytes());
    for write in writes {
        bytes.push(u8::from(write.value.is_some()));
        put_field(&mut bytes, write.key.as_bytes());
        if let Some(value) = &write.value {
            put_field(&mut bytes, value);
        }
    }
    let length = (bytes.len() - 8) as u64;
    bytes[..8].copy_from_slice(&length.to_le_bytes());
    seal(&mut bytes);
    bytes
}

/// Contents of a journal file up to the first damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    /// The last group before this file.
    pub(crate) after: u64,
    /// The groups that are whole, in the order of the file.
    pub(crate) groups: Vec<Group>,
    /// Bytes behind the last whole group, without the zeros at the end: of a group that a crash cut short, or of
    /// damage.
    pub(crate) trailing_bytes: usize,
}

impl Contents {
    /// Reads a file; `None` if not even its header is whole, as after a crash while it was made.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, StoreError> {
        let bytes = fs::read(path).map_err(|error| failed("read", path, error))?;
        Ok(Self::parse(&bytes))
    }

    /// Whether the file has its header and nothing but room, so that it can be appended to.
    pub(crate) fn is_unused(&self) -> bool {
        self.groups.is_empty() && self.trailing_bytes == 0
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let header = unsealed(header)?.strip_prefix(MAGIC)?;
        let after = Reader::new(header).u64()?;
        let mut reader = Reader::new(rest);
        let mut groups = Vec::new();
        let mut behind = rest;
        while let Some(group) = parse_group(&mut reader) {
            groups.push(group);
            behind = &rest[rest.len() - reader.remaining()..];
        }
        Some(Self { after, groups, trailing_bytes: without_room(behind).len() })
    }
}

/// The bytes before the zeros at the end.
fn without_room(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0);
    &bytes[..end.map_or(0, |last| last + 1)]
}

/// The bytes before the digest, if it is theirs.
fn unsealed(bytes: &[u8]) -> Option<&[u8]> {
    let (content, digest) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST_BYTES)?)?;
    (Digest::of(content).as_bytes() == digest).then_some(content)
}

fn parse_group(reader: &mut Reader<'_>) -> Option<Group> {
    let length = usize::try_from(reader.clone().u64()?).ok()?;
    let sealed = reader.take(length.checked_add(8 + DIGEST_BYTES)?)?;
    let mut payload = Reader::new(&unsealed(sealed)?[8..]);
    let (sequence, count) = (payload.u64()?, payload.u64()?);
    let mut writes = Vec::new();
    for _ in 0..count {
        let has_value = payload.u8()? == 1;
        let key = payload.text()?.to_owned();
        let value = if has_value { Some(payload.field()?.to_vec()) } else { None };
        writes.push(Write { key, value });
    }
    Some(Group { sequence, writes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn groups() -> Vec<Group> {
        let put = |key: &str| Write { key: key.to_owned(), value: Some(key.into()) };
        let remove = Write { key: "b".to_owned(), value: None };
        vec![
            Group { sequence: 8, writes: vec![put("a"), put("b")] },
            Group { sequence: 9, writes: vec![] },
            Group { sequence: 10, writes: vec![remove, put("é")] },
        ]
    }

    fn file_of(groups: &[Group]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::create(path.clone(), 7).unwrap();
        for group in groups {
            journal.append(group.sequence, &group.writes).unwrap();
        }
        let room = if groups.is_empty() { journal.bytes } else { ROOM_BYTES };
        assert_eq!(fs::metadata(&path).unwrap().len(), room);
        let bytes = journal.bytes;
        assert_eq!(journal.groups, groups.len() as u64);
        drop(journal);
        assert_eq!(fs::metadata(&path).unwrap().len(), bytes, "the room is given back");
        (folder, path)
    }

    #[test]
    fn groups_read_back_in_order() {
        let (_folder, path) = file_of(&groups());
        let contents = Contents::read(&path).unwrap().unwrap();
        assert_eq!(contents, Contents { after: 7, groups: groups(), trailing_bytes: 0 });
        assert!(!contents.is_unused());
    }

    #[test]
    fn an_unused_journal_can_be_gone_on_with() {
        let (_folder, path) = file_of(&[]);
        assert!(Contents::read(&path).unwrap().unwrap().is_unused());
        Journal::reuse(path.clone()).unwrap().append(8, &groups()[0].writes).unwrap();
        assert_eq!(Contents::read(&path).unwrap().unwrap().groups, groups()[..1]);
    }

    /// As a crash leaves it between the room for the first group and the group.
    #[test]
    fn room_is_no_group_and_is_used() {
        let (_folder, path) = file_of(&[]);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(2 * ROOM_BYTES).unwrap();
        assert!(Contents::read(&path).unwrap().unwrap().is_unused());
        let mut journal = Journal::reuse(path.clone()).unwrap();
        for group in groups() {
            journal.append(group.sequence, &group.writes).unwrap();
        }
        let contents = Contents::read(&path).unwrap().unwrap();
        assert_eq!((contents.groups, contents.trailing_bytes), (groups(), 0));
    }

    #[test]
    fn a_group_longer_than_the_room_gets_more() {
        let (_folder, path) = file_of(&[]);
        let mut journal = Journal::reuse(path.clone()).unwrap();
        let large = Write { key: "k".to_owned(), value: Some(vec![7; 700_000]) };
        for sequence in 8..11 {
            journal.append(sequence, std::slice::from_ref(&large)).unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 * ROOM_BYTES);
        assert_eq!(Contents::read(&path).unwrap().unwrap().groups.len(), 3);
    }

    #[test]
    fn a_cut_at_any_byte_leaves_the_whole_groups_before_it() {
        let (_folder, path) = file_of(&groups());
        let bytes = fs::read(&path).unwrap();
        let ends: Vec<usize> = (0..=3)
            .map(|n| {
                let sizes =
                    groups().into_iter().take(n).map(|g| encode(g.sequence, &g.writes).len());
                HEADER_BYTES + sizes.sum::<usize>()
            })
            .collect();
        for cut in 0..=bytes.len() {
            let whole = ends.iter().rposition(|end| *end <= cut);
            let parsed = Contents::parse(&bytes[..cut]);
            assert_eq!(parsed.as_ref().map(|c| c.groups.len()), whole, "cut at {cut}");
            if let (Some(parsed), Some(whole)) = (parsed, whole) {
                let cut_group = without_room(&bytes[ends[whole]..cut]);
                assert_eq!(parsed.trailing_bytes, cut_group.len(), "cut at {cut}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_damaged_byte_ends_the_journal_before_its_group(position: prop::sample::Index, bit in 0..8) {
            let (_folder, path) = file_of(&groups());
            let mut bytes = fs::read(&path).unwrap();
            let position = position.index(bytes.len());
            bytes[position] ^= 1_u8 << bit;
            match Contents::parse(&bytes) {
                None => prop_assert!(position < HEADER_BYTES),
                Some(contents) => {
                    prop_assert!(contents.groups.len() < 3);
                    prop_assert_eq!(&contents.groups[..], &groups()[..contents.groups.len()]);
                    prop_assert!(bytes.len() - contents.trailing_bytes <= position);
                }
            }
        }

        #[test]
        fn any_bytes_behind_the_groups_are_left_out(tail in prop::collection::vec(any::<u8>(), 1..200)) {
            let (_folder, path) = file_of(&groups());
            let mut bytes = fs::read(&path).unwrap();
            bytes.extend_from_slice(&tail);
            let contents = Contents::parse(&bytes).unwrap();
            prop_assert_eq!(contents.groups, groups());
            prop_assert_eq!(contents.trailing_bytes, without_room(&tail).len());
        }
    }

    #[test]
    fn a_journal_that_could_not_be_made_durable_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        // Writing to it works, syncing it does not.
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        Journal::create(path.clone(), 7).unwrap_err();
        assert!(!path.exists());
        drop(reader);
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent/journal");
        for error in [
            Journal::create(path.clone(), 0).unwrap_err(),
            Journal::reuse(path.clone()).unwrap_err(),
            Contents::read(&path).unwrap_err(),
        ] {
            assert!(error.to_string().contains("absent/journal"), "{error}");
        }
    }
}
