//! The thread that makes sled durable, behind the journal that already is.
//!
//! What sled misses after a power cut is replayed from the journal, so nobody waits for this sync. It follows
//! the last change by [`BEHIND`], so that little is replayed, and what reaches the disk of sled's files is never old.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use snic_ports::store::StoreError;

use crate::engine::SledEngine;

/// How long changes gather before they are synced: each sync keeps the disk from the journal's.
const BEHIND: Duration = Duration::from_millis(20);

/// The thread; it ends, after a last sync, when this is dropped.
pub(crate) struct BackgroundSync {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    engine: Arc<SledEngine>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// sled has changes that are not synced.
    is_behind: bool,
    is_stopping: bool,
    /// Why sled could not be synced. Linux takes the pages for clean then, so it is not tried again.
    failure: Option<StoreError>,
}

impl BackgroundSync {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn start(engine: Arc<SledEngine>) -> io::Result<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { engine, state, changed });
        let own = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("snic-sled-sync".to_owned()).spawn(move || own.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// sled has changed.
    pub(crate) fn changed(&self) {
        let mut state = self.shared.lock();
        if !std::mem::replace(&mut state.is_behind, true) {
            self.shared.changed.notify_one();
        }
    }

    /// Why sled could not be synced, if it could not.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        self.shared.lock().failure.clone()
    }
}

impl Drop for BackgroundSync {
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.changed.notify_one();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that syncs sled panicked");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        while state.failure.is_none() {
            if state.is_behind {
                let waited =
                    self.changed.wait_timeout_while(state, BEHIND, |state| !state.is_stopping);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.is_behind = false;
                drop(state);
                let synced = self.engine.sync();
                state = self.lock();
                state.failure = synced.err();
            } else if state.is_stopping {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        if let Some(error) = &state.failure {
            tracing::error!(%error, "sled could not be made durable");
        }
    }
}
