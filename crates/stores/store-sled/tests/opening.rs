//! Opening what is in use, damaged, cut, rolled back or missing.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use snic_ports::store::{Batch, Store, StoreError};
use snic_store_sled::inspection::inspect;
use snic_store_sled::{Opened, Recovery, SledOptions, SledStore, keeps_damaged};

type Records = Vec<(String, Vec<u8>)>;

const OPTIONS: SledOptions = SledOptions {
    cache_bytes: 16 << 20,
    snapshot_groups: 50,
    snapshot_interval: std::time::Duration::from_secs(3600),
    journal_bytes_max: 64 << 20,
};

/// A store as a crash leaves it: 120 groups, two snapshots (after 50 and 100), 20 groups in the
/// newest journal.
struct Crashed {
    folder: tempfile::TempDir,
    records: Records,
}

impl Crashed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let live = folder.path().join("live");
        let store = SledStore::open(&live, OPTIONS).unwrap().store;
        write(&store, 0..120);
        let records = store.scan("").unwrap();
        let crashed = folder.path().join("store");
        copy(&live, &crashed);
        // sled follows the journal: closing waits for it.
        store.close();
        fs::remove_dir_all(crashed.join("db")).unwrap();
        copy(&live.join("db"), &crashed.join("db"));
        Self { folder, records }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("store").join(name)
    }

    fn history(&self, generation: u64, kind: &str) -> PathBuf {
        self.path(&format!("history/{generation:012}.{kind}"))
    }

    fn open(&self) -> Result<Opened, StoreError> {
        SledStore::open(&self.path(""), OPTIONS)
    }

    /// Opens it, checks that everything is there, durably, and gives what the opening said.
    #[track_caller]
    fn open_whole(&self) -> Option<Recovery> {
        let opened = self.open().unwrap();
        assert_eq!(opened.store.scan("").unwrap().len(), self.records.len());
        assert!(opened.store.scan("").unwrap() == self.records, "records differ");
        opened.store.apply(Batch::new().put("after", "1")).unwrap();
        opened.store.close();
        let again = self.open().unwrap();
        assert_eq!(again.recovered, None, "the second opening finds nothing to repair");
        assert_eq!(again.store.get("after").unwrap(), Some(b"1".to_vec()));
        assert_eq!(again.store.scan("").unwrap().len(), self.records.len() + 1);
        opened.recovered
    }

    /// The same for a database that must be found damaged, moved aside and restored in full.
    #[track_caller]
    fn open_restored(&self) -> Recovery {
        let recovery = self.open_whole().expect("the damage is noticed");
        assert!(recovery.complete, "{recovery}");
        assert!(recovery.moved_to.as_ref().is_some_and(|path| path.exists()), "{recovery}");
        assert!(recovery.to_string().contains("No acknowledged change is lost"), "{recovery}");
        recovery
    }
}

fn write(store: &SledStore, rounds: std::ops::Range<usize>) {
    for round in rounds {
        let batch = Batch::new()
            .put(format!("record/{:03}", round % 70), format!("{round}").repeat(100))
            .put("last", round.to_string())
            .remove(format!("record/{:03}", (round * 7) % 70));
        store.apply(batch).unwrap();
    }
}

/// Copy of the disk at this moment, as a killed process leaves it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn cut(path: &Path, to: impl Fn(u64) -> u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(to(file.metadata().unwrap().len())).unwrap();
}

/// Overwrites bytes from `at` with others.
fn overwrite(path: &Path, at: u64, count: usize) {
    let mut file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; count];
    file.seek(SeekFrom::Start(at)).unwrap();
    let read = file.read(&mut bytes).unwrap();
    bytes.truncate(read);
    bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&bytes).unwrap();
}

/// Bytes of a file before the zeros at its end, which are room for more.
fn used(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Damages sled beyond doubt.
fn ruin(crashed: &Crashed) {
    let database = crashed.path("db/db");
    overwrite(&database, 0, usize::try_from(size(&database)).unwrap());
}

#[test]
fn a_crash_is_no_damage() {
    let crashed = Crashed::new();
    assert_eq!(crashed.open_whole(), None);
}

#[test]
fn a_second_opening_says_in_use_and_the_first_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let first = SledStore::open(folder.path(), OPTIONS).unwrap().store;
    let error = SledStore::open(folder.path(), OPTIONS).map(drop).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&*folder.path().to_string_lossy()), "{error}");
    first.apply(Batch::new().put("a", "1")).unwrap();
    first.close();
    let again = SledStore::open(folder.path(), OPTIONS).unwrap();
    assert_eq!(again.store.get("a").unwrap(), Some(b"1".to_vec()));
}

#[test]
fn garbage_in_the_middle_of_the_database_is_restored() {
    let crashed = Crashed::new();
    let database = crashed.path("db/db");
    let size = size(&database);
    overwrite(&database, size / 4, usize::try_from(size / 2).unwrap());
    crashed.open_restored();
}

#[test]
fn a_truncated_database_is_restored() {
    for divisor in [2, 10, u64::MAX] {
        let crashed = Crashed::new();
        cut(&crashed.path("db/db"), |size| size / divisor);
        // The newest groups, which alone are in the journal, need not be what was cut: either the
        // database is replaced, or replaying made it whole.
        if let Some(recovery) = crashed.open_whole() {
            assert!(recovery.complete && recovery.moved_to.is_some(), "{recovery}");
        }
    }
}

#[test]
fn an_empty_conf_loses_nothing() {
    let crashed = Crashed::new();
    cut(&crashed.path("db/conf"), |_| 0);
    let recovery = crashed.open_whole();
    assert!(recovery.is_none_or(|recovery| recovery.complete));
}

#[test]
fn a_damaged_conf_is_restored_and_the_message_says_from_what() {
    let crashed = Crashed::new();
    overwrite(&crashed.path("db/conf"), 0, 1000);
    let recovery = crashed.open_restored();
    assert!(recovery.snapshot_age.is_some(), "{recovery}");
    assert_eq!(recovery.replayed_groups, 20);
    let text = recovery.to_string();
    assert!(text.contains("restored from a snapshot") && text.contains(" s old"), "{text}");
    assert!(text.contains("db.damaged-1"), "{text}");
}

#[test]
fn a_missing_database_is_restored() {
    let crashed = Crashed::new();
    fs::remove_dir_all(crashed.path("db")).unwrap();
    crashed.open_restored();
}

#[test]
fn each_damaged_database_is_kept_under_a_name_of_its_own() {
    let crashed = Crashed::new();
    for n in 1..=3 {
        ruin(&crashed);
        let recovery = crashed.open().unwrap().recovered.unwrap();
        assert_eq!(recovery.moved_to, Some(crashed.path(&format!("db.damaged-{n}"))));
    }
}

#[test]
fn a_database_of_last_week_is_noticed_and_restored() {
    let crashed = Crashed::new();
    let old = tempfile::tempdir().unwrap();
    let store = SledStore::open(old.path(), OPTIONS).unwrap().store;
    write(&store, 0..60);
    store.close();
    fs::remove_dir_all(crashed.path("db")).unwrap();
    copy(&old.path().join("db"), &crashed.path("db"));
    let recovery = crashed.open_restored();
    assert!(recovery.to_string().contains("up to 60 only"), "{recovery}");
}

#[test]
fn a_record_changed_behind_our_back_is_noticed_and_restored() {
    let crashed = Crashed::new();
    let database = sled::Config::new().path(crashed.path("db")).segment_size(8 << 20).open();
    let database = database.unwrap();
    database.insert(b"rlast", b"other".as_slice()).unwrap();
    database.flush().unwrap();
    drop(database);
    let recovery = crashed.open_restored();
    assert!(recovery.to_string().contains("records are not those"), "{recovery}");
}

#[test]
fn a_damaged_snapshot_falls_back_to_the_one_before() {
    let crashed = Crashed::new();
    overwrite(&crashed.history(3, "snapshot"), 100, 50);
    ruin(&crashed);
    let recovery = crashed.open_restored();
    assert_eq!(recovery.replayed_groups, 70, "{recovery}");
}

#[test]
fn a_damaged_history_of_a_sound_database_is_written_anew() {
    for lost in [&["2.snapshot", "3.snapshot"][..], &["3.journal"], &["2.journal", "3.snapshot"]] {
        let crashed = Crashed::new();
        for name in lost {
            overwrite(&crashed.path(&format!("history/{:0>11}{name}", "")), 0, 1 << 20);
        }
        let recovery = crashed.open_whole().expect("the damage is noticed");
        assert!(recovery.complete && recovery.moved_to.is_none(), "{lost:?}: {recovery}");
    }
    let crashed = Crashed::new();
    fs::remove_dir_all(crashed.path("history")).unwrap();
    let recovery = crashed.open_whole().expect("the damage is noticed");
    assert!(recovery.to_string().contains("Its database holds all records"), "{recovery}");
}

#[test]
fn when_database_and_journal_are_damaged_the_message_says_what_may_be_lost() {
    let crashed = Crashed::new();
    let journal = crashed.history(3, "journal");
    overwrite(&journal, used(&journal) / 2, 1);
    ruin(&crashed);
    let opened = crashed.open().unwrap();
    let recovery = opened.recovered.unwrap();
    assert!(!recovery.complete, "{recovery}");
    assert!((1..20).contains(&recovery.replayed_groups), "{recovery}");
    assert!(recovery.to_string().contains("may be lost"), "{recovery}");
    let last = 100 + recovery.replayed_groups - 1;
    assert_eq!(opened.store.get("last").unwrap(), Some(last.to_string().into_bytes()));
    // The next opening finds nothing wrong, and what was lost is lost all the same.
    drop(opened.store);
    assert!(crashed.open().unwrap().recovered.is_none());
    assert!(keeps_damaged(&crashed.path("")).unwrap());
    fs::remove_dir_all(crashed.path("db.damaged-1")).unwrap();
    assert!(!keeps_damaged(&crashed.path("")).unwrap());
}

#[test]
fn when_nothing_can_be_read_the_store_does_not_open_and_nothing_is_moved() {
    let crashed = Crashed::new();
    ruin(&crashed);
    overwrite(&crashed.history(2, "snapshot"), 0, 1 << 20);
    overwrite(&crashed.history(3, "snapshot"), 0, 1 << 20);
    let error = crashed.open().map(drop).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("snapshot"), "{error}");
    assert!(!crashed.path("db.damaged-1").exists());
}

#[test]
fn any_damage_to_the_database_loses_nothing() {
    const SEED: u64 = 7;
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let crashed = Crashed::new();
    let pristine = tempfile::tempdir().unwrap();
    copy(&crashed.path(""), pristine.path());
    for round in 0..25 {
        fs::remove_dir_all(crashed.path("")).unwrap();
        copy(pristine.path(), &crashed.path(""));
        let files = files_below(&crashed.path("db"));
        let file = &files[random.random_range(0..files.len())];
        let at = random.random_range(0..size(file).max(1));
        let count = random.random_range(1..50_000);
        eprintln!("seed {SEED}, round {round}: {} at {at}, {count} bytes", file.display());
        match random.random_bool(0.3) {
            true => cut(file, |_| at),
            false => overwrite(file, at, count),
        }
        if let Some(recovery) = crashed.open_whole() {
            assert!(recovery.complete, "{recovery}");
        }
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push(path),
        }
    }
    files.sort_unstable();
    files
}

#[test]
fn a_folder_that_is_a_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = SledStore::open(&file, OPTIONS).map(drop).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn no_other_user_reads_the_records() {
    use std::os::unix::fs::PermissionsExt as _;
    let crashed = Crashed::new();
    for folder in ["db", "history"] {
        fs::set_permissions(crashed.path(folder), fs::Permissions::from_mode(0o755)).unwrap();
    }
    crashed.open_whole();
    for folder in ["db", "history"] {
        let mode = fs::metadata(crashed.path(folder)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{folder}");
    }
}

/// Every file below a folder, with its bytes.
fn files(folder: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn an_inspection_finds_what_an_opening_would_and_changes_nothing() {
    let crashed = Crashed::new();
    let store = crashed.path("");
    let before = files(&store);
    let seen = inspect(&store).unwrap();
    assert!(seen.records == crashed.records, "records differ");
    assert_eq!(seen.recovery, None, "a crash is no damage");
    assert!(files(&store) == before, "a file was changed");
    // A damaged snapshot and a database that is gone: an opening would rename, move and rebuild.
    fs::write(crashed.history(3, "snapshot"), b"no snapshot").unwrap();
    fs::write(crashed.path("db/conf"), b"").unwrap();
    let before = files(&store);
    let seen = inspect(&store).unwrap();
    let faults = seen.recovery.expect("damage is seen").faults;
    assert!(faults.iter().any(|fault| fault.contains("000000000003.snapshot")), "{faults:?}");
    assert!(seen.records == crashed.records, "the history has them all");
    assert!(files(&store) == before, "a file was changed");
}

#[test]
fn an_inspection_reads_the_bytes_of_bitstreams() {
    let folder = tempfile::tempdir().unwrap();
    let store = SledStore::open(folder.path(), OPTIONS).unwrap().store;
    let digests = [b"one", b"two"].map(|bytes| {
        let digest = snic_domain::Digest::of(bytes);
        store.put_blob(digest, bytes).unwrap();
        digest
    });
    assert!(matches!(inspect(folder.path()), Err(StoreError::InUse { .. })), "it is open");
    store.close();
    fs::write(folder.path().join("blobs").join(digests[1].to_string()), b"tow").unwrap();
    let blobs = inspect(folder.path()).unwrap().blobs;
    let of = |digest| &blobs.iter().find(|(other, _)| *other == digest).unwrap().1;
    assert!(of(digests[0]).is_ok());
    assert!(matches!(of(digests[1]), Err(StoreError::DigestMismatch { .. })), "{blobs:?}");
}

#[test]
fn where_there_is_no_store_an_inspection_makes_none() {
    let folder = tempfile::tempdir().unwrap();
    let Err(error) = inspect(folder.path()) else { panic!("there is none") };
    assert!(error.to_string().contains("find a store in"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
