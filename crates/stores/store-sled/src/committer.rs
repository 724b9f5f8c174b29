//! The only thread that writes: it commits all queued changes as one group, makes the group durable in the
//! journal, and answers the callers in order.
//!
//! A group is one number and one journal entry: after a crash it is there completely or
//! not at all. While a group is being synced, the next one queues up (group commit): the more callers, the
//! larger the groups. What makes it durable is the journal; sled follows
//! ([`follower`](crate::follower)).
//!
//! After the first error nothing more is written. It is then unknown what is durable; only opening the
//! store again, which reads the files, can tell.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use snic_ports::store::snapshot::Snapshot;
use snic_ports::store::{Batch, Done, StoreError, Write};

use crate::engine::panic_text;
use crate::follower::Follower;
use crate::history::History;
use crate::options::SledOptions;

/// Largest group in commands: bounds how long the first caller of a group waits for the rest.
const GROUP_COMMANDS_MAX: usize = 4096;

/// A group is closed when it has this many bytes: bounds the memory for one journal entry.
const GROUP_BYTES: usize = 4 << 20;

/// Request to the committer.
pub(crate) enum Command {
    /// Apply the batches, or only answer that they were refused, when it is their turn.
    Write { batches: Result<Vec<Batch>, StoreError>, done: Done },
    /// Replace all records by these.
    Replace { records: Vec<(String, Vec<u8>)>, done: Done },
}

impl Command {
    fn bytes(&self) -> usize {
        match self {
            Self::Write { batches: Ok(batches), .. } => {
                let writes = batches.iter().flat_map(|batch| &batch.writes);
                writes.map(|write| write.value.as_ref().map_or(0, Vec::len)).sum()
            }
            Self::Write { batches: Err(_), .. } => 0,
            Self::Replace { records, .. } => records.iter().map(|(_, value)| value.len()).sum(),
        }
    }
}

/// The state of the thread.
pub(crate) struct Committer {
    pub(crate) sled: Arc<Follower>,
    pub(crate) history: History,
    pub(crate) options: SledOptions,
    /// The last group that is durable.
    pub(crate) sequence: u64,
    /// The error after which nothing more is written.
    stopped: Option<StoreError>,
    last_checkpoint: Instant,
    /// Groups in the journal when a checkpoint was last tried: one that failed is tried again
    /// after as many groups more, not at once.
    groups_tried: u64,
}

impl Committer {
    pub(crate) fn new(
        sled: Arc<Follower>,
        history: History,
        options: SledOptions,
        sequence: u64,
    ) -> Self {
        let last_checkpoint = Instant::now();
        let (stopped, groups_tried) = (None, 0);
        Self { sled, history, options, sequence, stopped, last_checkpoint, groups_tried }
    }

    /// Serves until the last sender is gone and the queue is empty, then takes a snapshot.
    pub(crate) fn run(mut self, commands: &Receiver<Command>) {
        loop {
            let since = self.last_checkpoint.elapsed();
            let wait = self.options.snapshot_interval.saturating_sub(since);
            let due = match commands.recv_timeout(wait) {
                Ok(first) => {
                    self.serve(gather(first, commands));
                    self.is_full()
                        || self.last_checkpoint.elapsed() >= self.options.snapshot_interval
                }
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if due {
                self.checkpoint();
            }
        }
        self.checkpoint();
    }

    /// Makes a group durable and answers its callers.
    fn serve(&mut self, group: Vec<Command>) {
        let mut writes = Vec::new();
        let mut answers: Vec<(Done, Result<(), StoreError>)> = Vec::with_capacity(group.len());
        for command in group {
            let (added, done) = match command {
                Command::Write { batches, done } => {
                    (batches.map(|batches| flatten(batches, &mut writes)), done)
                }
                Command::Replace { records, done } => (self.replace(records, &mut writes), done),
            };
            answers.push((done, added));
        }
        // One sync of the journal makes the whole group durable, so the disk's latency is paid once for all that
        // gathered while the last sync ran. Nobody is answered before it; a command that was refused on its own gets
        // its own error.
        let committed = self.commit(writes);
        for (done, added) in answers {
            let answer = added.and_then(|()| committed.clone());
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| done(answer))) {
                tracing::error!(panic = panic_text(panic.as_ref()), "an answer panicked");
            }
        }
    }

    /// Appends the writes that turn what is there, after `writes`, into `records`.
    fn replace(
        &self,
        records: Vec<(String, Vec<u8>)>,
        writes: &mut Vec<Write>,
    ) -> Result<(), StoreError> {
        let present = self.sled.caught_up()?.scan("")?.into_iter().map(|(key, _)| key);
        let mut absent: BTreeSet<String> = present.collect();
        absent.extend(writes.iter().map(|write| write.key.clone()));
        for (key, _) in &records {
            absent.remove(key);
        }
        writes.extend(absent.into_iter().map(|key| Write { key, value: None }));
        let put = |(key, value)| Write { key, value: Some(value) };
        writes.extend(records.into_iter().map(put));
        Ok(())
    }

    /// The journal first, until it is durable: sled never holds what the journal may miss.
    fn commit(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        if let Some(cause) = self.why_stopped() {
            return Err(StoreError::Stopped(cause.with_source()));
        }
        if writes.is_empty() {
            return Ok(());
        }
        let sequence = self.sequence + 1;
        let committed = self.history.append(sequence, &writes).and_then(|()| self.history.sync());
        match &committed {
            Ok(()) => {
                self.sequence = sequence;
                self.sled.follow(sequence, writes);
            }
            Err(error) => {
                // After a write or sync that failed, what is on the disk is not known, and a later sync may report
                // success without it: the kernel can have dropped the pages. So nothing more is written until the
                // store is opened again and the journal read.
                tracing::error!(error = with_source(error), "the store stopped");
                self.stopped = Some(error.clone());
            }
        }
        committed
    }

    /// The error after which nothing more is written, if there was one.
    fn why_stopped(&mut self) -> Option<&StoreError> {
        if self.stopped.is_none() {
            self.stopped = self.sled.failure();
        }
        self.stopped.as_ref()
    }

    /// Whether the journal is long enough for a new snapshot.
    fn is_full(&self) -> bool {
        let (groups, bytes) = self.history.pending();
        groups.saturating_sub(self.groups_tried) >= self.options.snapshot_groups
            || (bytes > self.options.journal_bytes_max && groups > self.groups_tried)
    }

    /// Takes a snapshot and begins a new journal. A failure is reported to no caller: the journal contains
    /// everything, and the next interval tries again.
    fn checkpoint(&mut self) {
        self.last_checkpoint = Instant::now();
        let (groups, _) = self.history.pending();
        if groups == 0 || self.why_stopped().is_some() {
            return;
        }
        // Synced: the journals that it may need after a power cut are about to go.
        let taken =
            self.sled.synced().and_then(|sled| sled.scan("")).and_then(|records| {
                self.history.checkpoint(&Snapshot::now(self.sequence, records))
            });
        if let Err(error) = taken {
            tracing::warn!(error = with_source(&error), "no snapshot; the journal goes on");
        }
        // Zero after a success: a new journal counts from the start.
        self.groups_tried = self.history.pending().0;
    }
}

/// Takes the commands that have queued up behind the first one.
fn gather(first: Command, commands: &Receiver<Command>) -> Vec<Command> {
    let mut bytes = first.bytes();
    let mut group = vec![first];
    while group.len() < GROUP_COMMANDS_MAX && bytes < GROUP_BYTES {
        let Ok(next) = commands.try_recv() else { break };
        bytes += next.bytes();
        group.push(next);
    }
    group
}

fn flatten(batches: Vec<Batch>, writes: &mut Vec<Write>) {
    writes.extend(batches.into_iter().flat_map(|batch| batch.writes));
}

/// An error with its cause, for a log line.
fn with_source(error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::mpsc;

    use super::*;
    use crate::engine::SledEngine;
    use crate::history::RecoveredLog;

    /// A committer over an empty folder; its journal is `journal`, or a real one.
    fn committer(folder: &Path, journal: Option<&Path>) -> Committer {
        let engine = SledEngine::open(&folder.join("db"), 16 << 20).unwrap();
        let sled = Arc::new(Follower::start(engine).unwrap());
        let history = match journal {
            Some(journal) => History::resume(folder, &RecoveredLog::read(folder).unwrap(), journal),
            None => History::first(folder),
        };
        Committer::new(sled, history.unwrap(), SledOptions::default(), 0)
    }

    /// A command's index and how it was answered.
    type Answer = (usize, Result<(), StoreError>);

    /// The answers of commands in the order they came.
    #[derive(Clone, Default)]
    struct Answers(Arc<Mutex<Vec<Answer>>>);

    impl Answers {
        fn done(&self, index: usize) -> Done {
            let answers = Arc::clone(&self.0);
            Box::new(move |result| answers.lock().unwrap().push((index, result)))
        }

        fn write(&self, index: usize, batch: Batch) -> Command {
            Command::Write { batches: Ok(vec![batch]), done: self.done(index) }
        }

        fn of(&self) -> Vec<Answer> {
            self.0.lock().unwrap().clone()
        }
    }

    /// Runs a committer over commands that have all queued up before it began.
    fn run(committer: Committer, queued: Vec<Command>) -> Arc<Follower> {
        let sled = Arc::clone(&committer.sled);
        let (commands, queue) = mpsc::channel();
        queued.into_iter().for_each(|command| commands.send(command).unwrap());
        drop(commands);
        committer.run(&queue);
        sled
    }

    fn key(i: usize) -> String {
        format!("{i:03}")
    }

    #[test]
    fn queued_batches_are_committed_as_one_group() {
        let folder = tempfile::tempdir().unwrap();
        let answers = Answers::default();
        let queued = (0..100).map(|i| answers.write(i, Batch::new().put(key(i), "1"))).collect();
        let sled = run(committer(folder.path(), None), queued);
        assert_eq!(sled.caught_up().unwrap().sequence().unwrap(), 1);
        assert_eq!(sled.caught_up().unwrap().scan("").unwrap().len(), 100);
        let order: Vec<usize> = answers.of().iter().map(|(index, _)| *index).collect();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_group_is_bounded_in_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let answers = Answers::default();
        let large = || vec![0; GROUP_BYTES / 50];
        let queued =
            (0..110).map(|i| answers.write(i, Batch::new().put(key(i), large()))).collect();
        let sled = run(committer(folder.path(), None), queued);
        assert_eq!(sled.caught_up().unwrap().sequence().unwrap(), 3);
        assert!(answers.of().iter().all(|(_, result)| result.is_ok()));
    }

    #[test]
    fn a_replacement_takes_its_place_in_the_order_of_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let answers = Answers::default();
        let records = vec![("kept".to_owned(), b"2".to_vec())];
        let queued = vec![
            answers.write(0, Batch::new().put("kept", "1").put("gone", "1")),
            Command::Replace { records, done: answers.done(1) },
            answers.write(2, Batch::new().put("after", "3")),
        ];
        let sled = run(committer(folder.path(), None), queued);
        let expected = [("after".to_owned(), b"3".to_vec()), ("kept".to_owned(), b"2".to_vec())];
        assert_eq!(sled.caught_up().unwrap().scan("").unwrap(), expected);
        assert_eq!(sled.caught_up().unwrap().sequence().unwrap(), 1);
    }

    #[test]
    fn after_a_failed_write_everything_is_refused_and_sled_is_not_ahead_of_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let mut committer = committer(folder.path(), Some(Path::new("/dev/full")));
        let answers = Answers::default();
        committer.serve(vec![
            answers.write(0, Batch::new().put("a", "1")),
            answers.write(1, Batch::new().put("b", "1")),
        ]);
        committer.serve(vec![answers.write(2, Batch::new().put("c", "1"))]);
        let answered = answers.of();
        assert!(matches!(answered[0], (0, Err(StoreError::Io { .. }))), "{answered:?}");
        assert!(matches!(answered[1], (1, Err(StoreError::Io { .. }))), "{answered:?}");
        assert!(matches!(answered[2], (2, Err(StoreError::Stopped(_)))), "{answered:?}");
        assert_eq!(committer.sled.caught_up().unwrap().scan("").unwrap(), []);
        assert_eq!(committer.sled.caught_up().unwrap().sequence().unwrap(), 0);
    }

    /// Whatever sled says: the journal is what a start trusts. The null device takes every byte and
    /// cannot be synced.
    #[test]
    fn batches_that_the_journal_cannot_sync_are_not_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let mut committer = committer(folder.path(), Some(Path::new("/dev/null")));
        let answers = Answers::default();
        committer.serve(vec![answers.write(0, Batch::new().put("a", "1"))]);
        committer.serve(vec![answers.write(1, Batch::new().put("b", "1"))]);
        let answered = answers.of();
        assert!(matches!(answered[0], (0, Err(StoreError::Io { .. }))), "{answered:?}");
        assert!(matches!(answered[1], (1, Err(StoreError::Stopped(_)))), "{answered:?}");
    }

    #[test]
    fn an_answer_that_panics_is_no_ones_problem_but_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let answers = Answers::default();
        let panics: Done = Box::new(|_| panic!("on purpose"));
        let batches = Ok(vec![Batch::new().put("a", "1")]);
        let queued = vec![
            Command::Write { batches, done: panics },
            answers.write(1, Batch::new().put("b", "1")),
        ];
        let sled = run(committer(folder.path(), None), queued);
        assert!(matches!(answers.of()[..], [(1, Ok(()))]));
        assert_eq!(sled.caught_up().unwrap().scan("").unwrap().len(), 2);
    }

    #[test]
    fn a_snapshot_is_taken_after_as_many_groups_as_asked_and_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut committer = committer(folder.path(), None);
        committer.options.snapshot_groups = 3;
        let answers = Answers::default();
        for i in 0..4 {
            assert_eq!(committer.is_full(), i == 3, "{i} groups");
            committer.serve(vec![answers.write(i, Batch::new().put(key(i), "1"))]);
        }
        committer.checkpoint();
        assert!(!committer.is_full());
        committer.serve(vec![answers.write(4, Batch::new().put(key(4), "1"))]);
        drop(run(committer, vec![]));
        let log = RecoveredLog::read(folder.path()).unwrap();
        assert_eq!((log.begins_after(), log.last()), (5, 5));
        assert!(log.unused_journal().is_some());
    }
}
