//! Snapshots and journals by generation, from which every acknowledged change can be recovered.
//!
//! A generation begins with an empty journal, then gets its snapshot, and then the journal receives
//! the groups after it. The two newest snapshots are kept, with every journal that the older one
//! needs, so that one damaged snapshot loses nothing:
//!
//! ```text
//!  3.snapshot ── 3.journal ──▶ 4.snapshot ── 4.journal ──▶ now
//!  older          └ also replayed if 4.snapshot is damaged
//! ```
//!
//! Groups are numbered without gaps, so the reader needs no other bookkeeping: it starts at the newest
//! readable snapshot (or at the empty state after group 0), reads the groups that follow, and reports
//! where groups are missing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use snic_ports::store::snapshot::{Snapshot, TEMPORARY_SUFFIX, sync_folder_of};
use snic_ports::store::{StoreError, Write};

use crate::journal::{Contents, Group, HEADER_BYTES, Journal};

/// Snapshots that are kept: the newest, and the one to fall back to when it is damaged.
const SNAPSHOTS_KEPT: usize = 2;

/// The records of a store.
pub(crate) type Records = BTreeMap<String, Vec<u8>>;

/// Applies writes in order.
pub(crate) fn apply_to(records: &mut Records, writes: &[Write]) {
    for write in writes {
        match &write.value {
            Some(value) => records.insert(write.key.clone(), value.clone()),
            None => records.remove(&write.key),
        };
    }
}

/// The log of changes recovered from the folder: a base and the groups after it.
#[derive(Debug)]
pub(crate) struct RecoveredLog {
    /// The snapshot at which it begins; `None` for the empty state.
    base: Option<Snapshot>,
    /// The groups after the base, without gaps.
    groups: Vec<Group>,
    /// Damaged or missing parts, as text; empty if no damage was found.
    pub(crate) faults: Vec<String>,
    /// The highest generation of any file; 0 in an empty folder.
    newest: u64,
    /// The newest journal if it has no groups and can be resumed.
    unused: Option<PathBuf>,
    /// Bytes at the end of the newest journal that do not form a complete group.
    pub(crate) trailing_bytes: usize,
    /// The highest group number found, readable or not.
    pub(crate) furthest: u64,
}

impl RecoveredLog {
    /// Reads the folder. Damaged snapshots are renamed, so that they are never used as a base again.
    pub(crate) fn read(folder: &Path) -> Result<Self, StoreError> {
        let files = Files::list(folder)?;
        let mut log = Self {
            base: None,
            groups: Vec::new(),
            faults: Vec::new(),
            newest: files.newest(),
            unused: None,
            trailing_bytes: 0,
            furthest: 0,
        };
        log.read_base(&files)?;
        for (generation, path) in &files.journals {
            log.unused = None;
            let Some(contents) = Contents::read(path)? else {
                log.note_unreadable(path)?;
                continue;
            };
            if contents.is_unused() && *generation == log.newest {
                log.unused = Some(path.clone());
            }
            log.extend(path, contents);
        }
        log.furthest = log.furthest.max(log.last());
        Ok(log)
    }

    /// Reads the newest readable snapshot.
    fn read_base(&mut self, files: &Files) -> Result<(), StoreError> {
        for (_, path) in files.snapshots.iter().rev() {
            match Snapshot::read(path) {
                Ok(snapshot) => {
                    self.base = Some(snapshot);
                    break;
                }
                Err(error @ StoreError::Snapshot { .. }) => {
                    self.faults.push(error.to_string());
                    set_aside(path)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A journal without a header was left by a crash during its creation, unless it has groups: the
    /// header is durable before the first group.
    fn note_unreadable(&mut self, path: &Path) -> Result<(), StoreError> {
        let failed = |error| StoreError::io(format!("read {}", path.display()), error);
        if fs::metadata(path).map_err(failed)?.len() > HEADER_BYTES as u64 {
            self.faults.push(format!("the header of {} is damaged", path.display()));
        }
        Ok(())
    }

    /// Appends the groups of the next journal that are not known yet.
    fn extend(&mut self, path: &Path, contents: Contents) {
        let ends = contents.groups.last().map_or(contents.after, |group| group.sequence);
        self.furthest = self.furthest.max(ends);
        self.trailing_bytes = contents.trailing_bytes;
        if contents.after > self.last() {
            let (known, after) = (self.last(), contents.after);
            self.faults.push(format!(
                "changes {} to {after}, before {}, are missing",
                known + 1,
                path.display()
            ));
            return;
        }
        for group in contents.groups {
            if group.sequence == self.last() + 1 {
                self.groups.push(group);
            }
        }
    }

    /// Whether the folder has never held anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.newest == 0
    }

    /// The last group that is known; 0 if none.
    pub(crate) fn last(&self) -> u64 {
        self.groups.last().map_or_else(|| self.begins_after(), |group| group.sequence)
    }

    /// The last group of the base.
    pub(crate) fn begins_after(&self) -> u64 {
        self.base.as_ref().map_or(0, |snapshot| snapshot.sequence)
    }

    /// The age of the snapshot it begins with.
    pub(crate) fn snapshot_age(&self) -> Option<Duration> {
        self.base.as_ref().map(Snapshot::age)
    }

    /// The groups after group `sequence`.
    pub(crate) fn groups_after(&self, sequence: u64) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(move |group| group.sequence > sequence)
    }

    /// The records as they were after group `sequence`, which is not before the base.
    pub(crate) fn records_at(&self, sequence: u64) -> Records {
        let base = self.base.iter().flat_map(|snapshot| snapshot.records.iter().cloned());
        let mut records = base.collect();
        for group in self.groups.iter().take_while(|group| group.sequence <= sequence) {
            apply_to(&mut records, &group.writes);
        }
        records
    }

    /// The journal to resume, if nothing has to be written again.
    pub(crate) fn unused_journal(&self) -> Option<&Path> {
        let whole = self.faults.is_empty() && self.groups.is_empty();
        self.unused.as_deref().filter(|_| whole)
    }
}

/// The folder, open for appending groups.
#[derive(Debug)]
pub(crate) struct History {
    folder: PathBuf,
    newest: u64,
    /// The journal that takes the groups.
    journal: Journal,
}

impl History {
    /// Resumes the unused journal of a log that needs no repair.
    pub(crate) fn resume(
        folder: &Path,
        log: &RecoveredLog,
        unused: &Path,
    ) -> Result<Self, StoreError> {
        let journal = Journal::reuse(unused.to_owned())?;
        Ok(Self { folder: folder.to_owned(), newest: log.newest, journal })
    }

    /// The first generation of an empty folder: a journal from group 0, without a snapshot.
    pub(crate) fn first(folder: &Path) -> Result<Self, StoreError> {
        let journal = Journal::create(file(folder, 1, "journal"), 0)?;
        Ok(Self { folder: folder.to_owned(), newest: 1, journal })
    }

    /// A new generation after what was read.
    pub(crate) fn begin(
        folder: &Path,
        log: &RecoveredLog,
        snapshot: &Snapshot,
    ) -> Result<Self, StoreError> {
        let newest = log.newest + 1;
        let journal = new_generation(folder, newest, snapshot)?;
        let history = Self { folder: folder.to_owned(), newest, journal };
        history.prune()?;
        Ok(history)
    }

    /// Makes a group durable.
    pub(crate) fn append(&mut self, sequence: u64, writes: &[Write]) -> Result<(), StoreError> {
        self.journal.append(sequence, writes)
    }

    /// Makes the groups that were appended durable.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.journal.sync()
    }

    /// Groups in the current journal, and its size in bytes.
    pub(crate) fn pending(&self) -> (u64, u64) {
        (self.journal.groups, self.journal.bytes)
    }

    /// Begins a new generation. After an error the current journal stays in use.
    pub(crate) fn checkpoint(&mut self, snapshot: &Snapshot) -> Result<(), StoreError> {
        self.newest += 1;
        self.journal = new_generation(&self.folder, self.newest, snapshot)?;
        self.prune()
    }

    /// Removes all files that the kept snapshots do not need.
    fn prune(&self) -> Result<(), StoreError> {
        let files = Files::list(&self.folder)?;
        let Some((oldest_kept, _)) = files.snapshots.iter().rev().nth(SNAPSHOTS_KEPT - 1) else {
            return Ok(());
        };
        let all = files.snapshots.iter().chain(&files.journals).chain(&files.set_aside);
        for (_, path) in all.filter(|(generation, _)| generation < oldest_kept) {
            fs::remove_file(path)
                .map_err(|error| StoreError::io(format!("remove {}", path.display()), error))?;
        }
        Ok(())
    }
}

/// The journal is created before the snapshot, so that every snapshot has a journal after it.
fn new_generation(folder: &Path, number: u64, snapshot: &Snapshot) -> Result<Journal, StoreError> {
    let journal = Journal::create(file(folder, number, "journal"), snapshot.sequence)?;
    snapshot.write(&file(folder, number, "snapshot"))?;
    Ok(journal)
}

fn file(folder: &Path, generation: u64, kind: &str) -> PathBuf {
    folder.join(format!("{generation:012}.{kind}"))
}

fn set_aside(path: &Path) -> Result<(), StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".damaged");
    fs::rename(path, &name)
        .and_then(|()| sync_folder_of(path))
        .map_err(|error| StoreError::io(format!("rename {}", path.display()), error))
}

/// The files of the folder by generation, ascending.
#[derive(Debug, Default)]
struct Files {
    snapshots: Vec<(u64, PathBuf)>,
    journals: Vec<(u64, PathBuf)>,
    set_aside: Vec<(u64, PathBuf)>,
}

impl Files {
    fn list(folder: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io(format!("list {}", folder.display()), error);
        let mut files = Self::default();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some((generation, kind)) = name.split_once('.') else { continue };
            let Ok(generation) = generation.parse() else { continue };
            match kind {
                "snapshot" => files.snapshots.push((generation, path)),
                "journal" => files.journals.push((generation, path)),
                "snapshot.damaged" => files.set_aside.push((generation, path)),
                _ => {}
            }
        }
        files.snapshots.sort_unstable();
        files.journals.sort_unstable();
        Ok(files)
    }

    fn newest(&self) -> u64 {
        let all = self.snapshots.iter().chain(&self.journals).chain(&self.set_aside);
        all.map(|(generation, _)| *generation).max().unwrap_or(0)
    }
}

/// Removes the temporaries that writers left when they died.
pub(crate) fn sweep_temporaries(folder: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::io(format!("sweep {}", folder.display()), error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().ends_with(TEMPORARY_SUFFIX) {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Vec<Write> {
        vec![Write { key: key.to_owned(), value: Some(value.into()) }]
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    /// Three generations with two groups in each journal: groups 1 to 6, key `k` counting them.
    fn example(folder: &Path) -> Records {
        let mut history = History::first(folder).unwrap();
        let mut records = Records::new();
        for sequence in 1..=6_u64 {
            let mut writes = put("k", &sequence.to_string());
            writes.extend(put(&format!("k{sequence}"), ""));
            history.append(sequence, &writes).unwrap();
            apply_to(&mut records, &writes);
            if sequence == 2 || sequence == 4 {
                let snapshot = Snapshot::now(sequence, records.clone().into_iter().collect());
                history.checkpoint(&snapshot).unwrap();
                assert_eq!(history.pending().0, 0);
            }
        }
        assert_eq!(history.pending().0, 2);
        records
    }

    fn damage(path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn an_empty_folder_is_an_empty_past() {
        let folder = tempfile::tempdir().unwrap();
        let log = RecoveredLog::read(folder.path()).unwrap();
        assert!(log.is_empty() && log.faults.is_empty());
        assert_eq!((log.last(), log.records_at(0)), (0, Records::new()));
        History::first(folder.path()).unwrap();
        let log = RecoveredLog::read(folder.path()).unwrap();
        assert!(!log.is_empty() && log.faults.is_empty());
        let unused = log.unused_journal().unwrap();
        History::resume(folder.path(), &log, unused).unwrap().append(1, &put("a", "1")).unwrap();
        let log = RecoveredLog::read(folder.path()).unwrap();
        assert_eq!(log.last(), 1);
        assert_eq!(log.unused_journal(), None);
    }

    #[test]
    fn the_newest_snapshot_and_its_journal_give_the_records() {
        let folder = tempfile::tempdir().unwrap();
        let records = example(folder.path());
        let log = RecoveredLog::read(folder.path()).unwrap();
        assert_eq!(log.faults, Vec::<String>::new());
        assert_eq!((log.begins_after(), log.last()), (4, 6));
        assert_eq!(log.records_at(6), records);
        assert_eq!(log.records_at(5)["k"], b"5");
        assert_eq!(log.groups_after(5).count(), 1);
    }

    #[test]
    fn two_snapshots_are_kept_and_the_journals_they_need() {
        let folder = tempfile::tempdir().unwrap();
        example(folder.path());
        let expected = ["2.journal", "2.snapshot", "3.journal", "3.snapshot"];
        assert_eq!(names(folder.path()), expected.map(|name| format!("{:0>11}{name}", "")));
    }

    #[test]
    fn a_damaged_snapshot_falls_back_to_the_one_before_and_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let records = example(folder.path());
        damage(&file(folder.path(), 3, "snapshot"));
        let log = RecoveredLog::read(folder.path()).unwrap();
        assert_eq!(log.faults.len(), 1, "{:?}", log.faults);
        assert!(log.faults[0].contains("000000000003.snapshot"), "{:?}", log.faults);
        assert_eq!((log.begins_after(), log.last()), (2, 6));
        assert_eq!(log.records_at(6), records);
        // The next generation is numbered after the one set aside, and prunes it in time.
        let mut history = History::begin(folder.path(), &log, &Snapshot::now(6, vec![])).unwrap();
        history.checkpoint(&Snapshot::now(6, vec![])).unwrap();
        let expected = ["4.journal", "4.snapshot", "5.journal", "5.snapshot"];
        assert_eq!(names(folder.path()), expected.map(|name| format!("{:0>11}{name}", "")));
    }

    #[test]
    fn without_any_snapshot_the_missing_changes_are_named() {
        let folder = tempfile::tempdir().unwrap();
        example(folder.path());
        damage(&file(folder.path(), 2, "snapshot"));
        damage(&file(folder.path(), 3, "snapshot"));
        let log = RecoveredLog::read(folder.path()).unwrap();
        assert_eq!(log.last(), 0);
        assert!(log.faults.iter().any(|fault| fault.contains("changes 1 to 2")), "{log:?}");
    }

    #[test]
    fn a_journal_damaged_in_the_middle_ends_the_past_with_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        example(folder.path());
        damage(&file(folder.path(), 3, "snapshot"));
        let journal = file(folder.path(), 2, "journal");
        let bytes = fs::read(&journal).unwrap();
        fs::write(&journal, &bytes[..bytes.len() - 1]).unwrap();
        let log = RecoveredLog::read(folder.path()).unwrap();
        assert_eq!(log.last(), 3);
        assert!(log.faults.iter().any(|fault| fault.contains("changes 4 to 4")), "{log:?}");
        assert_eq!(log.unused_journal(), None);
    }

    #[test]
    fn a_group_cut_short_at_the_end_is_no_fault_but_not_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        example(folder.path());
        let journal = file(folder.path(), 3, "journal");
        let bytes = fs::read(&journal).unwrap();
        fs::write(&journal, &bytes[..bytes.len() - 1]).unwrap();
        let log = RecoveredLog::read(folder.path()).unwrap();
        assert_eq!((log.last(), log.faults.len()), (5, 0));
        assert_eq!(log.unused_journal(), None);
    }

    #[test]
    fn a_crash_between_the_journal_and_the_snapshot_of_a_generation_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let records = example(folder.path());
        Journal::create(file(folder.path(), 4, "journal"), 6).unwrap();
        let log = RecoveredLog::read(folder.path()).unwrap();
        assert_eq!((log.last(), log.faults.len()), (6, 0));
        assert_eq!(log.records_at(6), records);
        // And one whose header did not get to the disk.
        fs::write(file(folder.path(), 5, "journal"), [0; 30]).unwrap();
        let log = RecoveredLog::read(folder.path()).unwrap();
        assert_eq!((log.last(), log.faults.len()), (6, 0));
        assert_eq!((log.newest, log.unused_journal()), (5, None));
    }

    #[test]
    fn a_checkpoint_that_fails_leaves_the_journal_to_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut history = History::first(folder.path()).unwrap();
        history.append(1, &put("a", "1")).unwrap();
        // A folder in the place of the snapshot: the rename fails.
        fs::create_dir(file(folder.path(), 2, "snapshot")).unwrap();
        let snapshot = Snapshot::now(1, vec![("a".to_owned(), b"1".to_vec())]);
        history.checkpoint(&snapshot).unwrap_err();
        fs::remove_dir(file(folder.path(), 2, "snapshot")).unwrap();
        history.append(2, &put("a", "2")).unwrap();
        let log = RecoveredLog::read(folder.path()).unwrap();
        assert_eq!((log.last(), log.faults.len()), (2, 0));
        history.checkpoint(&snapshot).unwrap();
        assert_eq!(history.newest, 3);
    }
}
