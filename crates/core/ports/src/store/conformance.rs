//! Cases for every store, which each adapter runs against itself.
//!
//! An adapter's tests implement [`StoreUnderTest`] and write `snic_ports::store_conformance!(subject)`,
//! which makes one `#[test]` of every case, so that a failure names what is broken. The cases know
//! the port only.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use snic_domain::Digest;

use super::memory::MemoryStore;
use super::snapshot::Snapshot;
use super::{Batch, KEY_BYTES_MAX, RECORD_BYTES_MAX, Store, StoreError};

/// The store under test, which can be closed and opened again.
pub trait StoreUnderTest {
    /// Opens the store: empty the first time, later with what was durable. Whoever calls it has
    /// dropped the store that was opened before.
    fn open(&mut self) -> Arc<dyn Store>;

    /// A folder for the case's own files (snapshots), outside the store.
    fn scratch(&self) -> &Path;
}

/// Makes one `#[test]` of every case; the expression makes a fresh [`StoreUnderTest`].
#[macro_export]
macro_rules! store_conformance {
    ($subject:expr) => {
        $crate::store_conformance! { @each $subject =>
            the_last_write_of_a_key_wins
            batches_of_a_group_take_effect_in_order
            an_empty_group_succeeds
            a_batch_is_seen_whole_or_not_at_all
            a_scan_is_in_order_and_keeps_to_its_prefix
            keys_of_any_text_are_kept
            a_record_at_its_limits_is_kept
            a_record_over_a_limit_refuses_its_whole_group
            reopening_keeps_everything
            submissions_are_answered_once_and_in_order
            eight_threads_lose_nothing
            a_blob_is_kept_under_its_digest_only
            storing_or_deleting_a_blob_twice_does_nothing
            a_snapshot_taken_while_writing_is_one_moment
            a_restore_replaces_all_records
            a_damaged_snapshot_changes_nothing
            snapshots_move_between_adapters
        }
    };
    (@each $subject:expr => $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::store::conformance::$case(&mut $subject);
            }
        )*
    };
}

/// Takes what a step of a case needs to succeed, or fails the case with what was being done.
trait Needed<T> {
    fn needed(self, what: &str) -> T;
}

impl<T> Needed<T> for Result<T, StoreError> {
    #[track_caller]
    fn needed(self, what: &str) -> T {
        match self {
            Ok(value) => value,
            Err(error) => panic!("{what}: {error:?}"),
        }
    }
}

fn records<const N: usize>(expected: [(&str, &str); N]) -> Vec<(String, Vec<u8>)> {
    expected.map(|(key, value)| (key.to_owned(), value.into())).to_vec()
}

#[track_caller]
fn assert_records<const N: usize>(store: &dyn Store, expected: [(&str, &str); N]) {
    assert_eq!(store.scan("").needed("scan all"), records(expected));
}

#[track_caller]
fn apply(store: &dyn Store, batch: Batch) {
    store.apply(batch).needed("apply a batch");
}

/// Within a batch, a later write of the same key replaces the earlier one.
pub fn the_last_write_of_a_key_wins(subject: &mut dyn StoreUnderTest) {
    let store = subject.open();
    apply(&*store, Batch::new().put("a", "1").put("b", "1").remove("a").put("a", "2").remove("b"));
    assert_records(&*store, [("a", "2")]);
    assert_eq!(store.get("a").needed("get"), Some(b"2".to_vec()));
    assert_eq!(store.get("b").needed("get"), None);
    apply(&*store, Batch::new().remove("a").remove("never there"));
    assert_records(&*store, []);
}

/// Batches of one `apply_all` act as if applied one after the other.
pub fn batches_of_a_group_take_effect_in_order(subject: &mut dyn StoreUnderTest) {
    let store = subject.open();
    let group = [
        Batch::new().put("a", "1").put("b", "1").put("c", "1"),
        Batch::new().remove("a").put("b", "2"),
        Batch::new().put("a", "3").remove("c"),
    ];
    store.apply_all(&group).needed("apply a group");
    assert_records(&*store, [("a", "3"), ("b", "2")]);
}

/// No batch, or batches without writes, are no error.
pub fn an_empty_group_succeeds(subject: &mut dyn StoreUnderTest) {
    let store = subject.open();
    store.apply_all(&[]).needed("apply no batch");
    store.apply_all(&[Batch::new(), Batch::new()]).needed("apply empty batches");
    assert_records(&*store, []);
}

/// A reader beside a writer never sees a part of a batch.
pub fn a_batch_is_seen_whole_or_not_at_all(subject: &mut dyn StoreUnderTest) {
    const KEYS: usize = 8;
    let store = subject.open();
    let write = |round: u32| {
        let value = round.to_string();
        (0..KEYS).fold(Batch::new(), |batch, i| batch.put(format!("set/{i}"), value.as_bytes()))
    };
    apply(&*store, write(0));
    let done = AtomicBool::new(false);
    let scans = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut scans = 0;
            while !done.load(Ordering::Acquire) || scans == 0 {
                let seen = store.scan("set/").needed("scan beside a writer");
                assert_eq!(seen.len(), KEYS);
                assert!(seen.iter().all(|(_, value)| *value == seen[0].1), "torn: {seen:?}");
                scans += 1;
            }
            scans
        });
        (1..=50).for_each(|round| apply(&*store, write(round)));
        done.store(true, Ordering::Release);
        reader.join()
    });
    assert!(scans.is_ok_and(|count| count > 0), "the reader saw a part of a batch");
}

/// A scan is in the order of the keys' bytes, begins at the prefix and ends with it.
pub fn a_scan_is_in_order_and_keeps_to_its_prefix(subject: &mut dyn StoreUnderTest) {
    let store = subject.open();
    let keys =
        ["a", "a/", "a/b", "a/b/c", "a/é", "a0", "b", "B", "a/\u{10ffff}", "a.", "\u{10ffff}"];
    apply(&*store, keys.iter().fold(Batch::new(), |batch, key| batch.put(*key, *key)));
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    for prefix in ["", "a", "a/", "a/b", "a/b/", "a/b/c", "a/b/c/d", "b", "c", "\u{10ffff}"] {
        let seen = store.scan(prefix).needed("scan a prefix");
        let seen: Vec<&str> = seen.iter().map(|(key, _)| key.as_str()).collect();
        let expected: Vec<&str> =
            sorted.iter().copied().filter(|key| key.starts_with(prefix)).collect();
        assert_eq!(seen, expected, "prefix {prefix:?}");
    }
}

/// Nothing an adapter keeps for itself collides with a key, and empty values are values.
pub fn keys_of_any_text_are_kept(subject: &mut dyn StoreUnderTest) {
    let keys = ["\0", "\0sequence", "sequence", " ", "\n", "__sled__default", "../x", "/", "r"];
    let batch = keys.iter().fold(Batch::new(), |batch, key| batch.put(*key, Vec::new()));
    apply(&*subject.open(), batch);
    let store = subject.open();
    for key in keys {
        assert_eq!(store.get(key).needed("get"), Some(Vec::new()), "{key:?}");
    }
    assert_eq!(store.scan("").needed("scan all").len(), keys.len());
}

/// The longest key and the largest value are kept, many of them side by side.
pub fn a_record_at_its_limits_is_kept(subject: &mut dyn StoreUnderTest) {
    let key = |i: u8| format!("{}{i:02}", "k".repeat(KEY_BYTES_MAX - 2));
    let store = subject.open();
    for i in 0..24 {
        apply(&*store, Batch::new().put(key(i), vec![i; RECORD_BYTES_MAX]));
    }
    drop(store);
    let store = subject.open();
    for i in 0..24 {
        let value = store.get(&key(i)).needed("get the largest record");
        assert!(value.is_some_and(|value| value == vec![i; RECORD_BYTES_MAX]), "record {i}");
    }
}

/// A refused group leaves nothing behind, not even of the batches before the one at fault.
pub fn a_record_over_a_limit_refuses_its_whole_group(subject: &mut dyn StoreUnderTest) {
    let store = subject.open();
    apply(&*store, Batch::new().put("kept", "1"));
    let fine = Batch::new().put("a", "1").remove("kept");
    let group = |bad: Batch| [fine.clone(), bad, fine.clone()];

    let large = Batch::new().put("b", "1").put("large", vec![0; RECORD_BYTES_MAX + 1]);
    match store.apply_all(&group(large)) {
        Err(StoreError::RecordTooLarge { key, bytes }) => {
            assert_eq!((key.as_str(), bytes), ("large", RECORD_BYTES_MAX + 1));
        }
        other => panic!("a value over the limit: {other:?}"),
    }
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    for bad in [Batch::new().put("", "1"), Batch::new().put(&long, "1"), Batch::new().remove(&long)]
    {
        let bytes_expected = bad.writes[0].key.len();
        match store.apply_all(&group(bad)) {
            Err(StoreError::KeyLength { bytes }) => assert_eq!(bytes, bytes_expected),
            other => panic!("a key of {bytes_expected} bytes: {other:?}"),
        }
    }
    assert_records(&*store, [("kept", "1")]);
    apply(&*store, Batch::new().put("after", "1"));
    drop(store);
    assert_records(&*subject.open(), [("after", "1"), ("kept", "1")]);
}

/// A change that was acknowledged is there after every opening; what was removed stays away.
pub fn reopening_keeps_everything(subject: &mut dyn StoreUnderTest) {
    let digest = Digest::of(b"bits");
    let mut expected = BTreeMap::new();
    for round in 0..5 {
        let store = subject.open();
        let found: BTreeMap<_, _> = store.scan("").needed("scan all").into_iter().collect();
        assert_eq!(found, expected, "before round {round}");
        for i in 0..20 {
            let (key, value) = (format!("round/{round}/{i:02}"), format!("{round} {i}"));
            apply(&*store, Batch::new().put(&key, value.as_bytes()).remove("round/0/07"));
            expected.insert(key, value.into_bytes());
            expected.remove("round/0/07");
        }
        store.put_blob(digest, b"bits").needed("store a blob");
    }
    let store = subject.open();
    assert_eq!(store.scan("").needed("scan all").len(), expected.len());
    assert_eq!(store.get_blob(digest).needed("get a blob"), b"bits");
}

/// `done` is called once for every submission, in their order, refused ones included, and what it
/// answers with `Ok` is there.
pub fn submissions_are_answered_once_and_in_order(subject: &mut dyn StoreUnderTest) {
    const COUNT: usize = 300;
    let refused = |i: usize| i % 7 == 3;
    let store = subject.open();
    let (answers, answered) = mpsc::channel();
    for i in 0..COUNT {
        let key = if refused(i) { String::new() } else { format!("key/{i:03}") };
        let batches = vec![Batch::new().put(key, "1"), Batch::new().put("last", i.to_string())];
        let answers = answers.clone();
        let done = Box::new(move |result: Result<(), StoreError>| {
            // The receiver outlives the store; without it the count below fails.
            let _ = answers.send((i, result.is_ok()));
        });
        store.submit(batches, done);
    }
    drop(answers);
    let seen: Vec<(usize, bool)> = answered.iter().collect();
    let expected: Vec<(usize, bool)> = (0..COUNT).map(|i| (i, !refused(i))).collect();
    assert_eq!(seen, expected);
    drop(store);
    let store = subject.open();
    let keys = store.scan("key/").needed("scan what was submitted");
    assert_eq!(keys.len(), (0..COUNT).filter(|i| !refused(*i)).count());
    let last = (0..COUNT).rfind(|i| !refused(*i)).map(|i| i.to_string().into_bytes());
    assert_eq!(store.get("last").needed("get"), last);
}

/// Eight threads that write, read and remove at once: every acknowledged change is there.
pub fn eight_threads_lose_nothing(subject: &mut dyn StoreUnderTest) {
    const THREADS: usize = 8;
    const ROUNDS: usize = 40;
    let work = |store: &dyn Store, thread: usize| {
        for round in 0..ROUNDS {
            let key = format!("thread/{thread}/{round:02}");
            let batch = Batch::new().put(&key, key.as_bytes()).put("shared", key.as_bytes());
            apply(store, batch);
            assert_eq!(store.get(&key).needed("read what was acknowledged"), Some(key.into()));
            if round % 4 == 3 {
                apply(store, Batch::new().remove(format!("thread/{thread}/{:02}", round - 1)));
            }
        }
    };
    let store = subject.open();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &*store;
            scope.spawn(move || work(store, thread));
        }
    });
    drop(store);
    let store = subject.open();
    for thread in 0..THREADS {
        let found = store.scan(&format!("thread/{thread}/")).needed("scan a thread's records");
        assert_eq!(found.len(), ROUNDS - ROUNDS / 4, "thread {thread}");
        assert!(found.iter().all(|(key, value)| key.as_bytes() == value), "thread {thread}");
    }
    let shared = store.get("shared").needed("get");
    let last = format!("/{:02}", ROUNDS - 1);
    assert!(shared.is_some_and(|value| value.ends_with(last.as_bytes())));
}

/// Bytes that do not have the digest are refused; an absent blob is named.
pub fn a_blob_is_kept_under_its_digest_only(subject: &mut dyn StoreUnderTest) {
    let store = subject.open();
    let (bits, other) = (vec![0xa5; 3_000_000], Digest::of(b"other"));
    match store.put_blob(other, &bits) {
        Err(StoreError::DigestMismatch { expected, actual }) => {
            assert_eq!((expected, actual), (other, Digest::of(&bits)));
        }
        outcome => panic!("bytes under another digest: {outcome:?}"),
    }
    assert_eq!(store.list_blobs().needed("list"), []);
    match store.get_blob(other) {
        Err(StoreError::NoBlob(digest)) => assert_eq!(digest, other),
        outcome => panic!("an absent blob: {outcome:?}"),
    }
    let mut digests = [Digest::of(&bits), Digest::of(b""), Digest::of(b"x")];
    store.put_blob(digests[0], &bits).needed("store a blob");
    store.put_blob(digests[1], b"").needed("store an empty blob");
    store.put_blob(digests[2], b"x").needed("store a blob");
    drop(store);
    let store = subject.open();
    assert!(store.get_blob(digests[0]).needed("get a blob") == bits);
    assert_eq!(store.get_blob(digests[1]).needed("get an empty blob"), b"");
    digests.sort_unstable();
    assert_eq!(store.list_blobs().needed("list"), digests);
    assert_eq!(store.scan("").needed("scan all"), [], "blobs are no records");
}

/// Storing the same blob from several threads, and deleting an absent one, are no errors.
pub fn storing_or_deleting_a_blob_twice_does_nothing(subject: &mut dyn StoreUnderTest) {
    let store = subject.open();
    let (bits, digest) = (vec![7; 100_000], Digest::of(&[7; 100_000]));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| store.put_blob(digest, &bits).needed("store a blob"));
        }
    });
    assert_eq!(store.list_blobs().needed("list"), [digest]);
    store.delete_blob(digest).needed("delete a blob");
    store.delete_blob(digest).needed("delete an absent blob");
    assert!(matches!(store.get_blob(digest), Err(StoreError::NoBlob(_))));
    drop(store);
    assert_eq!(subject.open().list_blobs().needed("list"), []);
}

/// A snapshot beside a writer holds whole batches up to one moment.
pub fn a_snapshot_taken_while_writing_is_one_moment(subject: &mut dyn StoreUnderTest) {
    let store = subject.open();
    let file = subject.scratch().join("snapshot");
    let write = |round: usize| {
        Batch::new()
            .put(format!("round/{round:03}/left"), round.to_string())
            .put(format!("round/{round:03}/right"), round.to_string())
    };
    (0..20).for_each(|round| apply(&*store, write(round)));
    thread::scope(|scope| {
        let snapshot = scope.spawn(|| store.snapshot(&file));
        (20..100).for_each(|round| apply(&*store, write(round)));
        match snapshot.join() {
            Ok(result) => result.needed("take a snapshot"),
            Err(_) => panic!("the snapshot panicked"),
        }
    });
    store.restore(&file).needed("restore the snapshot");
    let found = store.scan("round/").needed("scan all");
    let rounds = found.len() / 2;
    assert!((20..=100).contains(&rounds), "{rounds} rounds");
    let expected: Vec<_> = (0..rounds)
        .flat_map(|round| write(round).writes)
        .map(|write| (write.key, write.value.unwrap_or_default()))
        .collect();
    assert_eq!(found, expected);
}

/// After a restore exactly the snapshot's records are there, durably; blobs stay as they are.
pub fn a_restore_replaces_all_records(subject: &mut dyn StoreUnderTest) {
    let file = subject.scratch().join("snapshot");
    let digest = Digest::of(b"bits");
    let store = subject.open();
    apply(&*store, Batch::new().put("a", "1").put("b", "1"));
    store.snapshot(&file).needed("take a snapshot");
    apply(&*store, Batch::new().put("a", "2").remove("b").put("c", "2"));
    store.put_blob(digest, b"bits").needed("store a blob");
    store.restore(&file).needed("restore");
    assert_records(&*store, [("a", "1"), ("b", "1")]);
    apply(&*store, Batch::new().put("d", "3"));
    drop(store);
    let store = subject.open();
    assert_records(&*store, [("a", "1"), ("b", "1"), ("d", "3")]);
    assert_eq!(store.list_blobs().needed("list"), [digest]);
}

/// A snapshot that is damaged, or not there, is refused and everything stays as it was.
pub fn a_damaged_snapshot_changes_nothing(subject: &mut dyn StoreUnderTest) {
    let store = subject.open();
    apply(&*store, Batch::new().put("a", "1"));
    let mut bytes = Snapshot::now(0, records([("b", "2")])).encode();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let file = subject.scratch().join("damaged");
    assert!(std::fs::write(&file, &bytes).is_ok());
    match store.restore(&file) {
        Err(StoreError::Snapshot { path, .. }) => assert!(path.contains("damaged"), "{path}"),
        other => panic!("a damaged snapshot: {other:?}"),
    }
    let absent = store.restore(&subject.scratch().join("absent"));
    assert!(matches!(absent, Err(StoreError::Io { .. })), "an absent snapshot: {absent:?}");
    apply(&*store, Batch::new().put("c", "1"));
    assert_records(&*store, [("a", "1"), ("c", "1")]);
}

/// The snapshot of one adapter restores into another one, both ways.
pub fn snapshots_move_between_adapters(subject: &mut dyn StoreUnderTest) {
    let file = subject.scratch().join("snapshot");
    let store = subject.open();
    apply(&*store, Batch::new().put("a", "1").put("b", vec![0, 255]));
    store.snapshot(&file).needed("take a snapshot");
    let other = MemoryStore::new();
    other.restore(&file).needed("restore into memory");
    assert_eq!(other.scan("").needed("scan"), store.scan("").needed("scan"));
    apply(&other, Batch::new().put("c", "1").remove("a"));
    other.snapshot(&file).needed("take a snapshot of the memory");
    store.restore(&file).needed("restore from memory");
    assert_eq!(store.scan("").needed("scan"), other.scan("").needed("scan"));
}
