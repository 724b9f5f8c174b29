//! A store that outlives failed writes: what could not be written is kept, in order, and submitted again
//! once the store can be opened again.
//!
//! ```text
//!            a write fails               can_write, open
//!  writable ───────────────► unavailable ───────────────► writable: what was kept is handed over first
//!                             └──────────── fails: tried again after a pause ◄─┘
//! ```
//!
//! After a failed write nobody knows what is durable, so the store is closed and opened again, which
//! looks. Handing a batch over twice does no harm: batches say what records are, not how they change, and
//! they keep their order. Meanwhile reads and blobs come from the store that failed: it holds what was
//! durable, and whoever is asked for changes is to refuse them ([`Store::unavailable`]), so that little is
//! kept.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use snic_domain::Digest;

use super::{Batch, Done, Store, StoreError};

/// Operations on the folder that the store is in.
pub trait Folder: Send + Sync {
    /// Fails where a write would fail again: asked before the store that failed is closed.
    ///
    /// # Errors
    /// Why.
    fn can_write(&self) -> Result<(), StoreError>;

    /// Opens the store, which nobody has open.
    ///
    /// # Errors
    /// It cannot be opened now.
    fn open(&self) -> Result<Box<dyn Store>, StoreError>;
}

/// A batch that was submitted and not acknowledged.
struct UnackedBatch {
    batches: Vec<Batch>,
    done: Done,
}

#[derive(Default)]
struct State {
    /// Kept changes, in the order of submission.
    kept: BTreeMap<u64, UnackedBatch>,
    submitted: u64,
    /// Counts the openings: answers of a store that was closed since then say nothing.
    opening: u64,
    /// Why nothing can be written, if so.
    failure: Option<StoreError>,
    closing: bool,
}

struct Shared {
    folder: Box<dyn Folder>,
    /// `None` while the store is opened, and after an opening that failed.
    store: RwLock<Option<Box<dyn Store>>>,
    /// Held from counting a submission to handing it over, so that both have one order.
    order: Mutex<()>,
    state: Mutex<State>,
    /// Something failed, or it is to end.
    wake: Condvar,
}

/// See the module.
pub struct ReopeningStore {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReopeningStore {
    /// Keeps an open store writable; looks whether a failed one can be opened again after each `pause`.
    /// With a failure, `store` can only be read.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start(
        folder: Box<dyn Folder>,
        store: Box<dyn Store>,
        failure: Option<StoreError>,
        pause: Duration,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared {
            folder,
            store: RwLock::new(Some(store)),
            order: Mutex::default(),
            state: Mutex::new(State { failure, ..State::default() }),
            wake: Condvar::new(),
        });
        let kept = Arc::clone(&shared);
        let keeper = thread::Builder::new()
            .name("snic-store-keeper".to_owned())
            .spawn(move || kept.keep(pause))
            .map_err(|error| StoreError::io("start the store's keeper", error))?;
        Ok(Self { shared, keeper: Some(keeper) })
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &*self.shared.read() {
            Some(store) => act(store.as_ref()),
            None => Err(self.shared.failure()),
        }
    }

    /// Writes that nothing waits for, and that are refused while nothing can be written.
    fn write<T>(
        &self,
        act: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &locked(&self.shared.state).failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }?;
        self.with(act)
    }
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, Option<Box<dyn Store>>> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self) -> StoreError {
        let failure = locked(&self.state).failure.clone();
        failure.unwrap_or_else(|| StoreError::Stopped("it is not open".to_owned()))
    }

    /// Hands a kept batch over; it stays kept until it is durable or refused for good.
    fn hand_over(self: &Arc<Self>, number: u64, batches: Vec<Batch>, opening: u64) {
        let shared = Arc::clone(self);
        let done = Box::new(move |result| shared.completed(number, opening, result));
        if let Some(store) = &*self.read() {
            store.submit(batches, done);
        }
    }

    fn completed(&self, number: u64, opening: u64, result: Result<(), StoreError>) {
        let mut state = locked(&self.state);
        match result {
            Err(error) if !error.is_refusal() => {
                if opening == state.opening && state.failure.is_none() {
                    state.failure = Some(error);
                    self.wake.notify_all();
                }
            }
            result => {
                let kept = state.kept.remove(&number);
                drop(state);
                if let Some(UnackedBatch { done, .. }) = kept {
                    done(result);
                }
            }
        }
    }

    /// The keeper's thread.
    fn keep(self: &Arc<Self>, pause: Duration) {
        let mut state = locked(&self.state);
        loop {
            if state.closing {
                return;
            }
            if state.failure.is_none() {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.wake.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.closing {
                return;
            }
            drop(state);
            if self.folder.can_write().is_ok() {
                self.reopen();
            }
            state = locked(&self.state);
        }
    }

    /// Closes the store, opens it again, and submits what was kept.
    fn reopen(self: &Arc<Self>) {
        let _order = locked(&self.order);
        let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
        // Closed first: one process may have it open once. What it still answers says nothing new.
        locked(&self.state).opening += 1;
        *store = None;
        match self.folder.open() {
            Ok(opened) => *store = Some(opened),
            Err(error) => {
                locked(&self.state).failure = Some(error);
                return;
            }
        }
        drop(store);
        let (opening, again) = {
            let mut state = locked(&self.state);
            state.failure = None;
            let again = state.kept.iter().map(|(number, kept)| (*number, kept.batches.clone()));
            (state.opening, again.collect::<Vec<_>>())
        };
        for (number, batches) in again {
            self.hand_over(number, batches, opening);
        }
    }
}

impl Drop for ReopeningStore {
    fn drop(&mut self) {
        locked(&self.shared.state).closing = true;
        self.shared.wake.notify_all();
        if let Some(keeper) = self.keeper.take() {
            // It panics only if a store does.
            let _ = keeper.join();
        }
        // Closing answers what it can; what is kept after that was never durable.
        *self.shared.store.write().unwrap_or_else(PoisonError::into_inner) = None;
        let failure = self.shared.failure();
        let kept = std::mem::take(&mut locked(&self.shared.state).kept);
        kept.into_values().for_each(|kept| (kept.done)(Err(failure.clone())));
    }
}

impl Store for ReopeningStore {
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.with(|store| store.scan(prefix))
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(|store| store.get(key))
    }

    fn apply_all(&self, batches: &[Batch]) -> Result<(), StoreError> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        if let Some(failure) = &locked(&self.shared.state).failure {
            return Err(failure.clone());
        }
        let done = Box::new(move |result| {
            // The receiver waits below; it cannot be gone.
            let _ = answer.send(result);
        });
        self.submit(batches.to_vec(), done);
        answered.recv().unwrap_or_else(|_| Err(self.shared.failure()))
    }

    fn submit(&self, batches: Vec<Batch>, done: Done) {
        let _order = locked(&self.shared.order);
        let mut state = locked(&self.shared.state);
        state.submitted += 1;
        let (number, opening) = (state.submitted, state.opening);
        let is_available = state.failure.is_none();
        state.kept.insert(number, UnackedBatch { batches: batches.clone(), done });
        drop(state);
        if is_available {
            self.shared.hand_over(number, batches, opening);
        }
    }

    fn unavailable(&self) -> Option<String> {
        locked(&self.shared.state).failure.as_ref().map(StoreError::with_source)
    }

    fn put_blob(&self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        self.write(|store| store.put_blob(digest, bytes))
    }

    fn get_blob(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        self.with(|store| store.get_blob(digest))
    }

    fn delete_blob(&self, digest: Digest) -> Result<(), StoreError> {
        self.write(|store| store.delete_blob(digest))
    }

    fn list_blobs(&self) -> Result<Vec<Digest>, StoreError> {
        self.with(|store| store.list_blobs())
    }

    fn snapshot(&self, to: &Path) -> Result<(), StoreError> {
        self.with(|store| store.snapshot(to))
    }

    fn restore(&self, from: &Path) -> Result<(), StoreError> {
        self.write(|store| store.restore(from))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::super::memory::{Fault, FullableDisk};
    use super::*;

    /// Nothing below takes this long unless it never happens.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn start() -> (ReopeningStore, FullableDisk) {
        let disk = FullableDisk::default();
        let store = disk.open().expect("a store in memory");
        let pause = Duration::from_millis(1);
        let store = ReopeningStore::start(Box::new(disk.clone()), store, None, pause);
        (store.expect("a thread"), disk)
    }

    fn submit(store: &ReopeningStore, key: &str, value: &str) -> Receiver<Result<(), StoreError>> {
        let (answer, answers) = channel();
        let done = Box::new(move |result| answer.send(result).expect("the test waits"));
        store.submit(vec![Batch::new().put(key, value)], done);
        answers
    }

    fn value(store: &ReopeningStore, key: &str) -> Option<String> {
        let bytes = store.get(key).expect("it can be read")?;
        Some(String::from_utf8(bytes).expect("text"))
    }

    #[test]
    fn failed_batches_become_durable_once_the_disk_has_room_again() {
        for fault in [Fault::BeforeDurable, Fault::AfterDurable] {
            let (store, disk) = start();
            let first = submit(&store, "a", "1");
            first.recv_timeout(PATIENCE).expect("answered").expect("durable");
            disk.fill(fault);
            let waiting = submit(&store, "a", "2");
            let behind = submit(&store, "a", "3");
            assert!(store.unavailable().expect("it failed").contains("could not"), "{fault:?}");
            assert!(value(&store, "a").is_some(), "it can be read");
            assert!(store.put_blob(Digest::of(b"x"), b"x").is_err());
            assert!(store.apply(Batch::new().put("b", "1")).is_err(), "and does not wait");
            assert!(waiting.try_recv().is_err() && behind.try_recv().is_err());
            disk.free();
            waiting.recv_timeout(PATIENCE).expect("answered").expect("durable");
            behind.recv_timeout(PATIENCE).expect("answered").expect("durable");
            assert_eq!((store.unavailable(), value(&store, "a")), (None, Some("3".into())));
            store.put_blob(Digest::of(b"x"), b"x").expect("there is room");
        }
    }

    #[test]
    fn a_batch_that_breaks_a_limit_is_refused_and_stops_nobody() {
        let (store, _disk) = start();
        let refused = submit(&store, "", "1").recv_timeout(PATIENCE).expect("answered");
        assert!(matches!(refused, Err(StoreError::KeyLength { .. })), "{refused:?}");
        assert_eq!(store.unavailable(), None);
        submit(&store, "a", "1").recv_timeout(PATIENCE).expect("answered").expect("durable");
    }

    #[test]
    fn closing_tells_those_who_still_wait() {
        let (store, disk) = start();
        disk.fill(Fault::BeforeDurable);
        let waiting = submit(&store, "a", "1");
        drop(store);
        assert!(waiting.recv_timeout(PATIENCE).expect("answered").is_err());
    }
}
