//! The thread that has sled follow the journal: changes gather, are applied as one batch, and are synced.
//!
//! Changes that sled misses after a crash are replayed from the journal, so nobody who writes waits for it. Who reads
//! waits until sled has all that was acknowledged.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use snic_ports::store::{StoreError, Write};

use crate::engine::SledEngine;

/// Time that changes gather. A batch costs sled eight threads that wake up, whatever is in it, and a key that
/// changes twice is written once. What reaches the disk of sled's files is no older than this and a sync.
const GATHERING: Duration = Duration::from_millis(20);

/// Bytes that may gather; then the committer waits.
const GATHERED_BYTES_MAX: usize = 8 << 20;

/// sled and its thread, which ends when this is dropped, after it has applied and synced all.
#[derive(Debug)]
pub(crate) struct Follower {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    engine: SledEngine,
    state: Mutex<State>,
    /// There is something to do.
    changed: Condvar,
    /// Signal that what had gathered is in sled, or will never be.
    applied: Condvar,
}

#[derive(Debug, Default)]
struct State {
    gathered: BTreeMap<String, Option<Vec<u8>>>,
    bytes: usize,
    /// The group that the last of them is of.
    sequence: u64,
    is_applying: bool,
    is_urgent: bool,
    is_stopping: bool,
    /// Error of sled or its disk; nothing is tried again. A sync that failed would succeed the second time,
    /// for Linux takes the pages for clean.
    failure: Option<StoreError>,
}

impl Follower {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn start(engine: SledEngine) -> io::Result<Self> {
        let (state, changed, applied) = (Mutex::default(), Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { engine, state, changed, applied });
        let own = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("snic-sled".to_owned()).spawn(move || own.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Hands over a group that the journal has. Waits only where the thread is far behind.
    pub(crate) fn follow(&self, sequence: u64, writes: Vec<Write>) {
        let mut state = self.shared.lock();
        while state.bytes > GATHERED_BYTES_MAX && state.failure.is_none() {
            state = self.shared.apply_now(state);
        }
        if state.gathered.is_empty() {
            self.shared.changed.notify_one();
        }
        state.sequence = sequence;
        // Gathered writes are merged by key, so a record that changes often costs sled one write for many groups.
        // Nothing is lost by that: the journal has every group, and it is what a restart goes by.
        for Write { key, value } in writes {
            state.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
            state.gathered.insert(key, value);
        }
    }

    /// sled, once it has all groups that were handed over.
    ///
    /// # Errors
    /// It could not take them, or could not be synced.
    pub(crate) fn caught_up(&self) -> Result<&SledEngine, StoreError> {
        let mut state = self.shared.lock();
        while state.failure.is_none() && (state.is_applying || !state.gathered.is_empty()) {
            state = self.shared.apply_now(state);
        }
        match &state.failure {
            None => Ok(&self.shared.engine),
            // It holds everything all the same.
            Some(_) if state.gathered.is_empty() => Ok(&self.shared.engine),
            Some(error) => Err(error.clone()),
        }
    }

    /// sled, once it has all groups that were handed over and they are synced.
    ///
    /// # Errors
    /// It could not take them, or could not be synced.
    pub(crate) fn synced(&self) -> Result<&SledEngine, StoreError> {
        let engine = self.caught_up()?;
        if let Some(error) = self.failure() {
            return Err(error);
        }
        if let Err(error) = engine.sync() {
            self.shared.lock().failure = Some(error.clone());
            self.shared.changed.notify_one();
            return Err(error);
        }
        Ok(engine)
    }

    /// Error of sled or its disk, if anything failed.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        self.shared.lock().failure.clone()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.changed.notify_one();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("sled's thread panicked");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until what has gathered is applied, or something failed.
    fn apply_now<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.is_urgent = true;
        self.changed.notify_one();
        self.applied.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        while state.failure.is_none() {
            if !state.gathered.is_empty() {
                state = self.apply_and_sync(state);
            } else if state.is_stopping {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        self.applied.notify_all();
        if let Some(error) = &state.failure {
            tracing::error!(%error, "sled does not follow the journal any more");
        }
    }

    fn apply_and_sync<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let go_on = |state: &mut State| !state.is_stopping && !state.is_urgent;
        let waited = self.changed.wait_timeout_while(state, GATHERING, go_on);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let gathered = std::mem::take(&mut state.gathered);
        let sequence = state.sequence;
        (state.bytes, state.is_applying) = (0, true);
        drop(state);
        let writes: Vec<Write> =
            gathered.into_iter().map(|(key, value)| Write { key, value }).collect();
        let applied = self.engine.apply(sequence, &writes);
        let mut state = self.lock();
        (state.is_applying, state.is_urgent) = (false, false);
        if let Err(error) = applied {
            // Nobody is to read sled any more: it lacks these.
            state.gathered.extend(writes.into_iter().map(|write| (write.key, write.value)));
            state.failure = Some(error);
            return state;
        }
        self.applied.notify_all();
        drop(state);
        let synced = self.engine.sync();
        let mut state = self.lock();
        state.failure = state.failure.take().or(synced.err());
        state
    }
}
