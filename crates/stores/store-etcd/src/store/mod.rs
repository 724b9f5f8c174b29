//! The Store port on etcd.

mod blobs;
mod bucket;
mod group;
mod layout;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use object_store::ObjectStore;
use parking_lot::Mutex;
use snic_domain::Digest;
use snic_etcd::{Answer, Failed, Request};
use snic_ports::store::snapshot::Snapshot;
use snic_ports::store::{Batch, Done, Store, StoreError, check_limits};
use tokio::runtime::Runtime;

pub use blobs::{Blobs, BlobsUnusable, folder_of_blobs};
pub use bucket::{BucketSettings, bucket_of_blobs};

use crate::connection::{EtcdConnection, EtcdSettings};
use layout::Layout;
use reader::Reader;
use writer::Writer;

/// Submissions that are taken at once: bounds how long the first waits for the rest.
const SUBMISSIONS_MAX: usize = 1_024;

/// Longest prefix in bytes: keys have room for it in etcd's requests.
const PREFIX_BYTES_MAX: usize = 100;

/// Carries out requests: etcd, or the model in tests.
trait Ask: Send + Sync {
    fn ask(&self, request: &Request) -> impl Future<Output = Result<Answer, Failed>> + Send;
}

impl Ask for EtcdConnection {
    fn ask(&self, request: &Request) -> impl Future<Output = Result<Answer, Failed>> + Send {
        Self::ask(self, request)
    }
}

/// Why nothing can be written now.
#[derive(Debug, Clone, Default)]
struct Unavailable(Arc<Mutex<Option<String>>>);

impl Unavailable {
    fn set(&self, reason: Option<String>) {
        *self.0.lock() = reason;
    }
}

fn no_answer(action: &str, failed: &Failed) -> StoreError {
    StoreError::io(format!("{action} etcd"), std::io::Error::other(failed.to_string()))
}

/// Where a store is, and how long it waits.
#[derive(Debug, Clone)]
pub struct EtcdStoreSettings {
    /// Where etcd is.
    pub etcd: EtcdSettings,
    /// Prefix of its keys, 1 to 100 bytes. No other program writes there.
    pub prefix: String,
    /// Where blobs are: [`folder_of_blobs`], [`bucket_of_blobs`], or any other of `object_store`.
    pub blobs: Arc<dyn ObjectStore>,
    /// Time that etcd may be away before a call fails, and no more is written. Longer than its elections take.
    pub patience: Duration,
}

/// A [`Store`] whose records are in etcd, and its blobs in an object store.
///
/// Opening it takes it over: whoever had it open before writes nothing more, and is told so by its next change.
/// Batches that come together share a transaction; one that is larger than a transaction is seen whole all the same.
#[derive(Debug)]
pub struct EtcdStore {
    /// `None` once closing has begun.
    commands: Option<mpsc::Sender<Command>>,
    writer: Option<JoinHandle<()>>,
    reader: Reader<EtcdConnection>,
    blobs: Blobs,
    unavailable: Unavailable,
    /// `None` once closing has begun.
    runtime: Option<Arc<Runtime>>,
}

enum Command {
    Write { batches: Result<Vec<Batch>, StoreError>, done: Done },
    Replace { records: Vec<(String, Vec<u8>)>, done: Done },
}

impl EtcdStore {
    /// Opens the store, or makes it. Blocks; not to be called from asynchronous code.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if etcd does not answer within [`EtcdStoreSettings::patience`] or the settings are wrong,
    /// [`StoreError::Damaged`] if something else is below the prefix, [`StoreError::Stopped`] if another process
    /// opens it at the same time.
    pub fn open(settings: EtcdStoreSettings) -> Result<Self, StoreError> {
        let EtcdStoreSettings { etcd, prefix, blobs, patience } = settings;
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX {
            let reason =
                format!("a prefix of {} bytes; it has 1 to {PREFIX_BYTES_MAX}", prefix.len());
            return Err(no_answer("open the store in", &Failed::Invalid(reason)));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("snic-etcd")
            .enable_all()
            .build()
            .map_err(|error| StoreError::io("start the store's threads", error))?;
        let unavailable = Unavailable::default();
        let (reader, writer) = runtime.block_on(async {
            let etcd = EtcdConnection::new(etcd).await;
            let etcd = etcd.map_err(|failed| no_answer("connect to", &failed))?;
            let reader = Reader { etcd, layout: Layout::new(&prefix), patience };
            let owner = uuid::Uuid::now_v7().to_string();
            let writer = Writer::open(reader.clone(), owner, unavailable.clone()).await?;
            Ok::<_, StoreError>((reader, writer))
        })?;
        let runtime = Arc::new(runtime);
        let (commands, queue) = mpsc::channel();
        let handle = runtime.handle().clone();
        let writer = thread::Builder::new()
            .name("snic-store".to_owned())
            .spawn(move || run(writer, &handle, &queue))
            .map_err(|error| StoreError::io("start the store's thread", error))?;
        let (commands, writer) = (Some(commands), Some(writer));
        let blobs = Blobs::new(blobs);
        Ok(Self { commands, writer, reader, blobs, unavailable, runtime: Some(runtime) })
    }

    /// Queues a command. Never blocks: the queue is bounded by what its callers have under way.
    fn send(&self, command: Command) {
        let sent = match &self.commands {
            Some(commands) => commands.send(command),
            None => Err(mpsc::SendError(command)),
        };
        // The thread is gone only if it panicked.
        if let Err(mpsc::SendError(Command::Write { done, .. } | Command::Replace { done, .. })) =
            sent
        {
            done(Err(gone()));
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
        answered.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Waits for asynchronous work.
    fn wait<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(work),
            None => Err(gone()),
        }
    }
}

fn gone() -> StoreError {
    StoreError::Stopped("its thread is gone".to_owned())
}

/// The writer's thread: takes what has queued up while the last transaction was under way.
fn run(
    mut writer: Writer<EtcdConnection>,
    runtime: &tokio::runtime::Handle,
    queue: &mpsc::Receiver<Command>,
) {
    let mut next = queue.recv().ok();
    while let Some(command) = next.take() {
        match command {
            Command::Replace { records, done } => {
                done(runtime.block_on(writer.replace(records)));
                next = queue.recv().ok();
            }
            Command::Write { batches, done } => {
                let mut submissions = vec![(batches, done)];
                while submissions.len() < SUBMISSIONS_MAX
                    && let Ok(command) = queue.try_recv()
                {
                    match command {
                        Command::Write { batches, done } => submissions.push((batches, done)),
                        replace @ Command::Replace { .. } => {
                            next = Some(replace);
                            break;
                        }
                    }
                }
                runtime.block_on(writer.write(submissions));
                next = next.or_else(|| queue.recv().ok());
            }
        }
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(Err(_)) = self.writer.take().map(JoinHandle::join) {
            tracing::error!("the store's thread panicked");
        }
        if let Some(runtime) = self.runtime.take().and_then(Arc::into_inner) {
            runtime.shutdown_background(); // also where dropping it would block
        }
    }
}

impl Store for EtcdStore {
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let found = self.wait(self.reader.scan(prefix))?;
        Ok(found.into_iter().collect())
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.wait(self.reader.get(key))
    }

    fn apply_all(&self, batches: &[Batch]) -> Result<(), StoreError> {
        check_limits(batches)?;
        let batches = Ok(batches.to_vec());
        self.call(|done| Command::Write { batches, done })
    }

    /// Does not block: the writer's thread calls `done`.
    fn submit(&self, batches: Vec<Batch>, done: Done) {
        let batches = check_limits(&batches).map(|()| batches);
        self.send(Command::Write { batches, done });
    }

    fn unavailable(&self) -> Option<String> {
        self.unavailable.0.lock().clone()
    }

    fn put_blob(&self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        self.wait(self.blobs.put(digest, bytes))
    }

    fn get_blob(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        self.wait(self.blobs.get(digest))
    }

    fn delete_blob(&self, digest: Digest) -> Result<(), StoreError> {
        self.wait(self.blobs.delete(digest))
    }

    fn list_blobs(&self) -> Result<Vec<Digest>, StoreError> {
        self.wait(self.blobs.list())
    }

    fn snapshot(&self, to: &Path) -> Result<(), StoreError> {
        Snapshot::now(0, self.scan("")?).write(to)
    }

    fn restore(&self, from: &Path) -> Result<(), StoreError> {
        let records = Snapshot::read(from)?.records;
        self.call(|done| Command::Replace { records, done })
    }
}
