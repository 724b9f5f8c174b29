//! The store in memory, for simulations and tests: everything acknowledged is durable, and a crash
//! is `MemoryStore::from_state(store.state())`.
//!
//! Faults of a real disk are asked for by [`MemoryStore::set_faults`]: a write that fails and
//! yet is durable, or that leaves only the first batches of its group behind. Like a real store, it
//! takes no more writes after that; the simulation restarts it from its state.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snic_domain::Digest;

use super::reopening::Folder;
use super::snapshot::Snapshot;
use super::{Batch, Store, StoreError, check_limits};

/// All that a [`MemoryStore`] holds durably.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub records: BTreeMap<String, Vec<u8>>,
    /// The blobs, by their digest.
    pub blobs: BTreeMap<Digest, Vec<u8>>,
}

impl State {
    fn apply(&mut self, batch: &Batch) {
        for write in &batch.writes {
            match &write.value {
                Some(value) => self.records.insert(write.key.clone(), value.clone()),
                None => self.records.remove(&write.key),
            };
        }
    }
}

/// Fault of the next write: one is taken from the queue by every call of `apply_all`, `put_blob`,
/// `delete_blob` and `restore`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// It fails and nothing of it is durable.
    BeforeDurable,
    /// It fails and the first batches of its group, this many, are durable. A blob counts as one.
    AfterBatches(usize),
    /// It fails and all of it is durable: the crash came between the flush and the answer.
    AfterDurable,
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    faults: VecDeque<Fault>,
    stopped: bool,
}

impl Inner {
    /// Number of `steps` to carry out, and whether the write then fails.
    fn begin(&mut self, steps: usize) -> Result<(usize, bool), StoreError> {
        if self.stopped {
            return Err(StoreError::Stopped("a fault was injected".to_owned()));
        }
        let (durable, fails) = match self.faults.pop_front().unwrap_or(Fault::None) {
            Fault::None => (steps, false),
            Fault::BeforeDurable => (0, true),
            Fault::AfterBatches(count) => (count.min(steps), true),
            Fault::AfterDurable => (steps, true),
        };
        self.stopped = fails;
        Ok((durable, fails))
    }

    /// One step that is durable or not, and the fault of the queue.
    fn change(&mut self, change: impl FnOnce(&mut State)) -> Result<(), StoreError> {
        let (durable, fails) = self.begin(1)?;
        if durable == 1 {
            change(&mut self.state);
        }
        outcome(fails)
    }
}

fn outcome(fails: bool) -> Result<(), StoreError> {
    if fails {
        let source = std::io::Error::other("an injected fault");
        return Err(StoreError::io("write to memory", source));
    }
    Ok(())
}

/// A [`Store`] in memory. `submit` calls `done` before it returns.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store that holds `state`, as after a restart: no faults queued, and it takes writes.
    pub fn from_state(state: State) -> Self {
        Self { inner: Mutex::new(Inner { state, ..Inner::default() }) }
    }

    pub fn state(&self) -> State {
        self.lock().state.clone()
    }

    /// Sets the faults of the next writes, in order; replaces what was queued. Without an entry a write
    /// succeeds. Refused groups (over a limit) take no entry.
    pub fn set_faults(&self, faults: impl IntoIterator<Item = Fault>) {
        self.lock().faults = faults.into_iter().collect();
    }

    /// Whether a fault has stopped the store.
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change of the state is complete before anything can panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let inner = self.lock();
        let from = inner.state.records.range(prefix.to_owned()..);
        let within = from.take_while(|(key, _)| key.starts_with(prefix));
        Ok(within.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.lock().state.records.get(key).cloned())
    }

    fn apply_all(&self, batches: &[Batch]) -> Result<(), StoreError> {
        check_limits(batches)?;
        let mut inner = self.lock();
        let (durable, fails) = inner.begin(batches.len())?;
        batches[..durable].iter().for_each(|batch| inner.state.apply(batch));
        outcome(fails)
    }

    fn put_blob(&self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        let actual = Digest::of(bytes);
        if actual != digest {
            return Err(StoreError::DigestMismatch { expected: digest, actual });
        }
        self.lock().change(|state| {
            state.blobs.insert(digest, bytes.to_vec());
        })
    }

    fn get_blob(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        self.lock().state.blobs.get(&digest).cloned().ok_or(StoreError::NoBlob(digest))
    }

    fn delete_blob(&self, digest: Digest) -> Result<(), StoreError> {
        self.lock().change(|state| {
            state.blobs.remove(&digest);
        })
    }

    fn list_blobs(&self) -> Result<Vec<Digest>, StoreError> {
        Ok(self.lock().state.blobs.keys().copied().collect())
    }

    fn snapshot(&self, to: &Path) -> Result<(), StoreError> {
        let records = self.lock().state.records.clone();
        Snapshot::now(0, records.into_iter().collect()).write(to)
    }

    fn restore(&self, from: &Path) -> Result<(), StoreError> {
        let snapshot = Snapshot::read(from)?;
        self.lock().change(|state| state.records = snapshot.records.into_iter().collect())
    }
}

/// A disk that can be full, with a store in memory on it. Clones are the same disk: one is the
/// [`Folder`] of a store that reopens, another is in the hands of who tests it.
#[derive(Debug, Clone, Default)]
pub struct FullableDisk {
    full: Arc<AtomicBool>,
    store: Arc<Mutex<Arc<MemoryStore>>>,
}

impl FullableDisk {
    /// The store that was opened last.
    pub fn store(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.store.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The disk is full from now on: the next write fails like this, and what comes after it until there
    /// is room again.
    pub fn fill(&self, fault: Fault) {
        self.full.store(true, Ordering::SeqCst);
        self.store().set_faults([fault]);
    }

    /// There is room again.
    pub fn free(&self) {
        self.full.store(false, Ordering::SeqCst);
    }
}

impl Folder for FullableDisk {
    fn can_write(&self) -> Result<(), StoreError> {
        match self.full.load(Ordering::SeqCst) {
            true => Err(StoreError::io("probe", std::io::ErrorKind::StorageFull.into())),
            false => Ok(()),
        }
    }

    fn open(&self) -> Result<Box<dyn Store>, StoreError> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        *store = Arc::new(MemoryStore::from_state(store.state()));
        Ok(Box::new(Arc::clone(&store)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance::StoreUnderTest;
    use super::*;

    /// Reopening is a crash: only the state survives.
    struct InMemory {
        current: Arc<MemoryStore>,
        folder: tempfile::TempDir,
    }

    impl InMemory {
        fn new() -> Self {
            let current = Arc::new(MemoryStore::new());
            Self { current, folder: tempfile::tempdir().unwrap() }
        }
    }

    impl StoreUnderTest for InMemory {
        fn open(&mut self) -> Arc<dyn Store> {
            self.current = Arc::new(MemoryStore::from_state(self.current.state()));
            self.current.clone()
        }

        fn scratch(&self) -> &Path {
            self.folder.path()
        }
    }

    crate::store_conformance!(InMemory::new());

    fn group() -> [Batch; 3] {
        [
            Batch::new().put("a", b"1".to_vec()).put("b", b"1".to_vec()),
            Batch::new().put("a", b"2".to_vec()),
            Batch::new().remove("b"),
        ]
    }

    /// Durable records after a group that met `fault`.
    fn after(fault: Fault) -> Vec<(String, Vec<u8>)> {
        let store = MemoryStore::new();
        store.set_faults([fault]);
        assert_eq!(store.apply_all(&group()).is_err(), fault != Fault::None);
        assert_eq!(store.is_stopped(), fault != Fault::None);
        MemoryStore::from_state(store.state()).scan("").unwrap()
    }

    fn record(key: &str, value: &[u8]) -> (String, Vec<u8>) {
        (key.to_owned(), value.to_vec())
    }

    #[test]
    fn a_fault_leaves_the_prefix_it_names() {
        assert_eq!(after(Fault::None), [record("a", b"2")]);
        assert_eq!(after(Fault::BeforeDurable), []);
        assert_eq!(after(Fault::AfterBatches(0)), []);
        assert_eq!(after(Fault::AfterBatches(1)), [record("a", b"1"), record("b", b"1")]);
        assert_eq!(after(Fault::AfterBatches(2)), [record("a", b"2"), record("b", b"1")]);
        assert_eq!(after(Fault::AfterBatches(99)), [record("a", b"2")]);
        assert_eq!(after(Fault::AfterDurable), [record("a", b"2")]);
    }

    #[test]
    fn after_a_fault_the_store_takes_no_more_writes_but_can_be_read() {
        let store = MemoryStore::new();
        store.set_faults([Fault::None, Fault::AfterDurable, Fault::None]);
        store.apply(Batch::new().put("a", b"1".to_vec())).unwrap();
        let error = store.apply(Batch::new().put("a", b"2".to_vec())).unwrap_err();
        assert!(matches!(error, StoreError::Io { .. }), "{error}");
        let error = store.apply(Batch::new().put("a", b"3".to_vec())).unwrap_err();
        assert!(matches!(error, StoreError::Stopped(_)), "{error}");
        assert!(store.put_blob(Digest::of(b"x"), b"x").is_err());
        assert_eq!(store.get("a").unwrap(), Some(b"2".to_vec()));
    }

    #[test]
    fn blobs_and_restores_meet_faults_too() {
        let digest = Digest::of(b"bits");
        for (fault, present) in [(Fault::BeforeDurable, false), (Fault::AfterDurable, true)] {
            let store = MemoryStore::new();
            store.set_faults([fault]);
            store.put_blob(digest, b"bits").unwrap_err();
            assert_eq!(store.state().blobs.contains_key(&digest), present, "{fault:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("snapshot");
        MemoryStore::new().snapshot(&file).unwrap();
        let store = MemoryStore::new();
        store.apply(Batch::new().put("a", b"1".to_vec())).unwrap();
        store.set_faults([Fault::BeforeDurable]);
        store.restore(&file).unwrap_err();
        assert_eq!(store.scan("").unwrap(), [record("a", b"1")]);
    }

    #[test]
    fn a_refused_group_takes_no_fault() {
        let store = MemoryStore::new();
        store.set_faults([Fault::BeforeDurable]);
        store.apply(Batch::new().put("", b"1".to_vec())).unwrap_err();
        assert!(!store.is_stopped());
        store.apply(Batch::new().put("a", b"1".to_vec())).unwrap_err();
        assert!(store.is_stopped());
    }
}
