//! The handle: reads go to sled, changes go to the committer.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use snic_domain::Digest;
use snic_ports::store::snapshot::Snapshot;
use snic_ports::store::{Batch, Done, Store, StoreError, check_limits};

use crate::blobs::Blobs;
use crate::committer::{Command, Committer};
use crate::follower::Follower;

/// The embedded [`Store`]. Dropping it finishes what was submitted, answers it, takes a snapshot
/// and closes; use [`SledStore::close`] to have that explicit.
#[derive(Debug)]
pub struct SledStore {
    /// `None` once closing has begun.
    commands: Option<mpsc::Sender<Command>>,
    committer: Option<JoinHandle<()>>,
    // The order of these two matters: sled closes before the lock is released.
    sled: Arc<Follower>,
    _lock: File,
    blobs: Blobs,
    folder: PathBuf,
}

impl SledStore {
    /// Closes the store: everything submitted is answered, and a snapshot is taken.
    pub fn close(self) {
        drop(self);
    }

    /// Starts the committer over what the opening found.
    pub(crate) fn start(
        folder: &Path,
        lock: File,
        blobs: Blobs,
        committer: Committer,
    ) -> Result<Self, StoreError> {
        let sled = Arc::clone(&committer.sled);
        let (commands, queue) = mpsc::channel();
        let committer = thread::Builder::new()
            .name("snic-store".to_owned())
            .spawn(move || committer.run(&queue))
            .map_err(|error| StoreError::io("start the store's thread", error))?;
        let (commands, committer) = (Some(commands), Some(committer));
        Ok(Self { commands, committer, sled, _lock: lock, blobs, folder: folder.to_owned() })
    }

    /// Queues a command. Never blocks: the queue is bounded by what its callers have under way.
    fn send(&self, command: Command) {
        let sent = match &self.commands {
            Some(commands) => commands.send(command),
            None => Err(mpsc::SendError(command)),
        };
        // The committer is gone only if it panicked, outside of sled and of any answer.
        if let Err(mpsc::SendError(Command::Write { done, .. } | Command::Replace { done, .. })) =
            sent
        {
            done(Err(stopped()));
        }
    }

    /// Queues a command and waits for its answer.
    fn call(&self, command: impl FnOnce(Done) -> Command) -> Result<(), StoreError> {
        let (answer, answered) = mpsc::sync_channel(1);
        let done = Box::new(move |result| {
            // The receiver waits below; it cannot be gone.
            let _ = answer.send(result);
        });
        self.send(command(done));
        answered.recv().unwrap_or_else(|_| Err(stopped()))
    }
}

fn stopped() -> StoreError {
    StoreError::Stopped("its thread is gone".to_owned())
}

impl Drop for SledStore {
    fn drop(&mut self) {
        self.commands = None;
        let ended = self.committer.take().map(JoinHandle::join);
        if let Some(Err(_)) = ended {
            tracing::error!(folder = %self.folder.display(), "the store's thread panicked");
        }
    }
}

impl Store for SledStore {
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.sled.caught_up()?.scan(prefix)
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.sled.caught_up()?.get(key)
    }

    fn apply_all(&self, batches: &[Batch]) -> Result<(), StoreError> {
        check_limits(batches)?;
        let batches = Ok(batches.to_vec());
        self.call(|done| Command::Write { batches, done })
    }

    /// Does not block: the committer's thread calls `done`.
    fn submit(&self, batches: Vec<Batch>, done: Done) {
        let batches = check_limits(&batches).map(|()| batches);
        self.send(Command::Write { batches, done });
    }

    fn put_blob(&self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        self.blobs.put(digest, bytes)
    }

    fn get_blob(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        self.blobs.get(digest)
    }

    fn delete_blob(&self, digest: Digest) -> Result<(), StoreError> {
        self.blobs.delete(digest)
    }

    fn list_blobs(&self) -> Result<Vec<Digest>, StoreError> {
        self.blobs.list()
    }

    fn snapshot(&self, to: &Path) -> Result<(), StoreError> {
        Snapshot::now(0, self.sled.caught_up()?.scan("")?).write(to)
    }

    fn restore(&self, from: &Path) -> Result<(), StoreError> {
        let records = Snapshot::read(from)?.records;
        self.call(|done| Command::Replace { records, done })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::options::SledOptions;

    fn open(folder: &Path) -> SledStore {
        SledStore::open(folder, SledOptions::default()).unwrap().store
    }

    #[test]
    fn submit_returns_while_the_committer_is_busy() {
        /// Only a submit that blocks lets this pass.
        const BLOCKED: Duration = Duration::from_secs(20);
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let (release, released) = channel::<()>();
        let (answer, answers) = channel();
        let busy = answer.clone();
        let first: Done = Box::new(move |result| {
            let in_time = released.recv_timeout(BLOCKED).is_ok();
            busy.send((0, result.is_ok() && in_time)).unwrap();
        });
        store.submit(vec![Batch::new().put("a", "1")], first);
        for i in 1..=100 {
            let answer = answer.clone();
            let done = move |result: Result<(), _>| answer.send((i, result.is_ok())).unwrap();
            store.submit(vec![Batch::new().put("a", i.to_string())], Box::new(done));
        }
        release.send(()).unwrap();
        let seen: Vec<(u32, bool)> = answers.iter().take(101).collect();
        assert_eq!(seen, (0..=100).map(|i| (i, true)).collect::<Vec<_>>());
        assert_eq!(store.get("a").unwrap(), Some(b"100".to_vec()));
    }

    #[test]
    fn closing_answers_what_was_submitted_and_leaves_a_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let (answer, answers) = channel();
        for i in 0..50 {
            let answer = answer.clone();
            let done = move |result: Result<(), _>| answer.send(result.is_ok()).unwrap();
            store.submit(vec![Batch::new().put(format!("{i}"), "1")], Box::new(done));
        }
        store.close();
        assert_eq!(answers.try_iter().filter(|ok| *ok).count(), 50);
        let history = std::fs::read_dir(folder.path().join("history")).unwrap();
        let names = history.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| name.ends_with(".snapshot")).count(), 1);
    }
}
