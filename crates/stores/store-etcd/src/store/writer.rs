//! The only one that writes. Each transaction also writes the head, on the condition that it is as the writer left it.
//!
//! That makes a transaction safe to repeat when its outcome is open: a second one of the same is refused, and the
//! head tells that the first was carried out. It also ends a writer whose store somebody else has opened since,
//! however late its transaction arrives.
//!
//! A batch that is too large for one transaction:
//!
//! ```text
//!  stage its changes ──► head names them: they count ──► carry them over ──► head ──► remove them
//!                        (readers lay them over the records)
//! ```
//!
//! A crash before the head leaves them staged for nobody; one behind it leaves them to the next opening.

use std::time::{Duration, Instant};

use snic_etcd::{Answer, Compare, Failed, Operation, Request, Revision, Transaction};
use snic_ports::store::{Batch, Done, StoreError};

use super::group::Group;
use super::layout::{Head, encode_staged};
use super::reader::{ReadFailed, Reader};
use super::{Ask, Unavailable, no_answer};

/// Wait before a transaction is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// Records that one transaction removes, beside the head.
const REMOVED_AT_ONCE: usize = 100;

/// Changes by key in etcd; `None`: it is removed.
type Changes = Vec<(String, Option<Vec<u8>>)>;

/// The state of the writer.
#[derive(Debug)]
pub(super) struct Writer<E> {
    reader: Reader<E>,
    head: Head,
    /// When the head was written; 0: never.
    head_at: Revision,
    stopped: Option<StoreError>,
    unavailable: Unavailable,
}

impl<E: Ask> Writer<E> {
    /// Takes the store over, finishes what the last writer committed and removes what it did not.
    pub(super) async fn open(
        reader: Reader<E>,
        owner: String,
        unavailable: Unavailable,
    ) -> Result<Self, StoreError> {
        let begin = Instant::now();
        let found = loop {
            match reader.head().await {
                Ok((found, _)) => break found,
                Err(ReadFailed::Etcd(_)) if begin.elapsed() < reader.patience => {
                    tokio::time::sleep(RETRY).await;
                }
                Err(failed) => return Err(failed.into_store()),
            }
        };
        let none = Head { owner: String::new(), sequence: 0, generation: 0, staged: None };
        let (found, head_at) = found.unwrap_or((none, Revision(0)));
        let mut writer =
            Self { reader, head: Head { owner, ..found }, head_at, stopped: None, unavailable };
        writer.commit(Vec::new()).await?;
        if let Some(number) = writer.head.staged {
            writer.carry_over(number).await?;
        }
        writer.remove_all_staged().await?;
        writer.remove_other_generations().await?;
        Ok(writer)
    }

    /// Carries out submissions in their order, as few transactions as it takes, and answers them.
    pub(super) async fn write(&mut self, submissions: Vec<(Result<Vec<Batch>, StoreError>, Done)>) {
        let mut group = Group::default();
        let mut waiting: Vec<(Result<(), StoreError>, Done)> = Vec::new();
        for (batches, done) in submissions {
            let batches = match batches {
                Ok(batches) => batches,
                Err(error) => {
                    waiting.push((Err(error), done));
                    continue;
                }
            };
            let mut outcome = Ok(());
            for batch in batches {
                if let Err(next) = group.take_in(Group::of(batch)) {
                    let written = self.flush(std::mem::replace(&mut group, next)).await;
                    // Who waits for this group has nothing in the next one.
                    waiting.drain(..).for_each(|(refused, done)| {
                        done(refused.and_then(|()| written.clone()));
                    });
                    outcome = outcome.and(written);
                }
            }
            waiting.push((outcome, done));
        }
        let written = self.flush(group).await;
        for (refused, done) in waiting {
            done(refused.and_then(|()| written.clone()));
        }
    }

    async fn flush(&mut self, group: Group) -> Result<(), StoreError> {
        if group.is_empty() {
            return self.stopped.clone().map_or(Ok(()), Err);
        }
        if group.fits() {
            let base = self.reader.layout.records(self.head.generation);
            let writes = group.into_writes().into_iter();
            return self.commit(writes.map(|(key, value)| (base.clone() + &key, value))).await;
        }
        let number = self.head.sequence;
        let base = self.reader.layout.staged(number);
        let writes = group.into_writes().into_iter();
        let staged = writes.map(|(key, value)| (key, Some(encode_staged(value.as_deref()))));
        for piece in Group::pieces(staged) {
            let piece = piece.into_iter().map(|(key, value)| (base.clone() + &key, value));
            self.commit(piece).await?;
        }
        self.head.staged = Some(number);
        self.commit(Vec::new()).await?; // from now on it counts
        self.carry_over(number).await?;
        self.remove_all_staged().await
    }

    /// Replaces all records: those of a new generation, which count once the head names it.
    pub(super) async fn replace(
        &mut self,
        records: Vec<(String, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        let generation = self.head.generation + 1;
        let base = self.reader.layout.records(generation);
        let records = records.into_iter().map(|(key, value)| (key, Some(value)));
        // A replacement that failed before may have left some.
        self.remove_other_generations().await?;
        for piece in Group::pieces(records) {
            let piece = piece.into_iter().map(|(key, value)| (base.clone() + &key, value));
            self.commit(piece).await?;
        }
        self.head.generation = generation;
        self.commit(Vec::new()).await?;
        self.remove_other_generations().await
    }

    /// Makes the changes of a staged batch to the records. Doing so again changes nothing.
    async fn carry_over(&mut self, number: u64) -> Result<(), StoreError> {
        let reader = &self.reader;
        let staged = reader.of_a_moment(async |_, at| reader.staged(number, "", at).await).await;
        let staged = staged.map_err(|error| self.stop(error))?;
        let base = self.reader.layout.records(self.head.generation);
        for piece in Group::pieces(staged) {
            let piece = piece.into_iter().map(|(key, value)| (base.clone() + &key, value));
            self.commit(piece).await?;
        }
        self.head.staged = None;
        self.commit(Vec::new()).await
    }

    async fn remove_all_staged(&mut self) -> Result<(), StoreError> {
        let prefix = self.reader.layout.all_staged();
        while let (keys, _) = self.keys(&prefix, None).await?
            && !keys.is_empty()
        {
            self.commit(keys.into_iter().map(|key| (key, None))).await?;
        }
        Ok(())
    }

    async fn remove_other_generations(&mut self) -> Result<(), StoreError> {
        let prefix = self.reader.layout.all_records();
        let kept = self.reader.layout.records(self.head.generation);
        let mut from = None;
        loop {
            let (keys, more) = self.keys(&prefix, from.clone()).await?;
            let count = keys.len();
            let others: Changes = keys
                .into_iter()
                .filter(|key| !key.starts_with(&kept))
                .map(|key| (key, None))
                .collect();
            let is_kept_reached = others.len() < count;
            if !others.is_empty() {
                self.commit(others).await?;
            }
            if !more {
                return Ok(());
            }
            if is_kept_reached {
                from = Some(self.reader.layout.behind_records(self.head.generation));
            }
        }
    }

    async fn keys(
        &mut self,
        prefix: &str,
        from: Option<String>,
    ) -> Result<(Vec<String>, bool), StoreError> {
        let reader = &self.reader;
        let read =
            async |_: &Head, at| reader.page(prefix, from.clone(), Some(at), REMOVED_AT_ONCE).await;
        match reader.of_a_moment(read).await {
            Ok((page, more)) => Ok((page.into_iter().map(|record| record.key).collect(), more)),
            Err(error) => Err(self.stop(error)),
        }
    }

    /// One transaction, with the head. It is tried until its outcome is certain or patience ends; after that, the
    /// writer takes no more.
    async fn commit(
        &mut self,
        changes: impl IntoIterator<Item = (String, Option<Vec<u8>>)>,
    ) -> Result<(), StoreError> {
        if let Some(stopped) = &self.stopped {
            return Err(stopped.clone());
        }
        self.head.sequence += 1;
        let operation = |(key, value)| match value {
            Some(value) => Operation::Put { key, value, lease: None },
            None => Operation::Delete { key },
        };
        let key = self.reader.layout.head();
        let head = (key.clone(), Some(self.head.encode()));
        let operations = changes.into_iter().chain([head]).map(operation).collect();
        let compares = vec![Compare::ChangedAt(key, self.head_at)];
        let request = Request::Commit(Transaction { compares, operations });
        let outcome = self.until_certain(&request).await;
        self.unavailable.set(None);
        match outcome {
            Ok(at) => {
                self.head_at = at;
                Ok(())
            }
            Err(error) => Err(self.stop(error)),
        }
    }

    async fn until_certain(&self, request: &Request) -> Result<Revision, StoreError> {
        let begin = Instant::now();
        loop {
            let failed = match self.reader.etcd.ask(request).await {
                Ok(Answer::Committed(at)) => return Ok(at),
                Ok(_) => match self.reader.head().await {
                    // An earlier try was carried out after all.
                    Ok((Some((head, at)), _)) if head == self.head => return Ok(at),
                    Ok(_) => return Err(StoreError::Stopped(TAKEN_OVER.to_owned())),
                    Err(ReadFailed::Store(error)) => return Err(error),
                    Err(ReadFailed::Etcd(failed)) => failed,
                },
                Err(failed @ (Failed::Unknown(_) | Failed::Unreachable(_))) => failed,
                Err(failed) => return Err(no_answer("write to", &failed)),
            };
            if begin.elapsed() >= self.reader.patience {
                return Err(no_answer("write to", &failed));
            }
            self.unavailable.set(Some(failed.to_string()));
            tokio::time::sleep(RETRY).await;
        }
    }

    fn stop(&mut self, error: StoreError) -> StoreError {
        self.stopped = Some(StoreError::Stopped(error.with_source()));
        error
    }
}

/// Why a writer stops although etcd answers.
const TAKEN_OVER: &str = "another process has opened the store since";
