//! Reads: each of them of one revision, so that a batch is seen whole or not at all.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use snic_etcd::{Answer, Failed, Record, Request, Revision};
use snic_ports::store::StoreError;

use super::layout::{Head, Layout, decode_staged};
use super::{Ask, no_answer};

/// Records of a page: some ten megabytes, if all are as large as they may be.
const PAGE_RECORDS: usize = 128;

/// Wait before a read that failed is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// Reads the records below a prefix.
#[derive(Debug, Clone)]
pub(super) struct Reader<E> {
    pub(super) etcd: E,
    pub(super) layout: Layout,
    /// Time for which a read is tried again.
    pub(super) patience: Duration,
}

impl<E: Ask> Reader<E> {
    /// The records whose keys begin with `prefix`.
    pub(super) async fn scan(&self, prefix: &str) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        self.of_a_moment(async |head, at| {
            let base = self.layout.records(head.generation);
            let found = self.all(&base, prefix, at).await?;
            let mut records: BTreeMap<_, _> =
                found.into_iter().map(|(key, record)| (key, record.value)).collect();
            self.lay_over(head, prefix, at, &mut records).await?;
            Ok(records)
        })
        .await
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.of_a_moment(async |head, at| {
            let base = self.layout.records(head.generation);
            let whole = format!("{base}{key}");
            let (page, _) = self.page(&whole, None, Some(at), 1).await?;
            let found = page.into_iter().next().filter(|record| record.key == whole);
            let mut records: BTreeMap<_, _> =
                found.map(|record| (key.to_owned(), record.value)).into_iter().collect();
            self.lay_over(head, key, at, &mut records).await?;
            Ok(records.remove(key))
        })
        .await
    }

    /// The head with the revision that wrote it, and that of the store now; `None` before the first opening.
    pub(super) async fn head(&self) -> Result<(Option<(Head, Revision)>, Revision), ReadFailed> {
        let key = self.layout.head();
        let range = Request::Range { prefix: key.clone(), at: None, from: None, limit: 1 };
        let (records, _, now) = self.range(&range).await?;
        match records.into_iter().next().filter(|record| record.key == key) {
            Some(record) => {
                let head = self.layout.decode_head(&record.value).map_err(ReadFailed::Store)?;
                Ok((Some((head, record.changed)), now))
            }
            None => Ok((None, now)),
        }
    }

    /// One page of records as of a revision, and whether there are more.
    pub(super) async fn page(
        &self,
        prefix: &str,
        from: Option<String>,
        at: Option<Revision>,
        limit: usize,
    ) -> Result<(Vec<Record>, bool), ReadFailed> {
        let range = Request::Range { prefix: prefix.to_owned(), at, from, limit };
        self.range(&range).await.map(|(records, more, _)| (records, more))
    }

    /// All records below `base` whose keys go on with `prefix`, by their keys without `base`.
    pub(super) async fn all(
        &self,
        base: &str,
        prefix: &str,
        at: Revision,
    ) -> Result<BTreeMap<String, Record>, ReadFailed> {
        let (whole, mut found, mut from) = (format!("{base}{prefix}"), BTreeMap::new(), None);
        loop {
            let (page, more) = self.page(&whole, from, Some(at), PAGE_RECORDS).await?;
            from = page.last().map(|record| format!("{}\0", record.key));
            let key = |record: &Record| record.key[base.len()..].to_owned();
            found.extend(page.into_iter().map(|record| (key(&record), record)));
            if !more || from.is_none() {
                return Ok(found);
            }
        }
    }

    /// The changes of a staged batch.
    pub(super) async fn staged(
        &self,
        number: u64,
        prefix: &str,
        at: Revision,
    ) -> Result<BTreeMap<String, Option<Vec<u8>>>, ReadFailed> {
        let found = self.all(&self.layout.staged(number), prefix, at).await?;
        let decoded = |(key, record): (String, Record)| match decode_staged(&record.value) {
            Some(value) => Ok((key, value)),
            None => {
                let reason = format!("the staged change of {key:?} is none");
                Err(ReadFailed::Store(self.layout.damaged(reason)))
            }
        };
        found.into_iter().map(decoded).collect()
    }

    /// A staged batch counts once the head names it.
    async fn lay_over(
        &self,
        head: &Head,
        prefix: &str,
        at: Revision,
        records: &mut BTreeMap<String, Vec<u8>>,
    ) -> Result<(), ReadFailed> {
        let Some(number) = head.staged else { return Ok(()) };
        for (key, value) in self.staged(number, prefix, at).await? {
            match value {
                Some(value) => records.insert(key, value),
                None => records.remove(&key),
            };
        }
        Ok(())
    }

    /// Reads as of the revision at which the head was read. Again if that was compacted meanwhile, or nobody answers.
    pub(super) async fn of_a_moment<T>(
        &self,
        read: impl AsyncFn(&Head, Revision) -> Result<T, ReadFailed>,
    ) -> Result<T, StoreError> {
        let begin = Instant::now();
        loop {
            let outcome = match self.head().await {
                Ok((Some((head, _)), now)) => read(&head, now).await,
                Ok((None, _)) => {
                    Err(ReadFailed::Store(self.layout.damaged("its head is gone".to_owned())))
                }
                Err(failed) => Err(failed),
            };
            match outcome {
                Ok(found) => return Ok(found),
                Err(ReadFailed::Store(error)) => return Err(error),
                Err(ReadFailed::Etcd(failed)) if begin.elapsed() >= self.patience => {
                    return Err(no_answer("read from", &failed));
                }
                Err(ReadFailed::Etcd(_)) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    async fn range(&self, range: &Request) -> Result<(Vec<Record>, bool, Revision), ReadFailed> {
        match self.etcd.ask(range).await.map_err(ReadFailed::Etcd)? {
            Answer::Range { records, more, now } => Ok((records, more, now)),
            other => {
                let reason = format!("a range was answered by {other:?}");
                Err(ReadFailed::Store(self.layout.damaged(reason)))
            }
        }
    }
}

/// Why a read failed.
#[derive(Debug)]
pub(super) enum ReadFailed {
    /// It may succeed later.
    Etcd(Failed),
    /// It will not.
    Store(StoreError),
}

impl ReadFailed {
    pub(super) fn into_store(self) -> StoreError {
        match self {
            Self::Etcd(failed) => no_answer("read from", &failed),
            Self::Store(error) => error,
        }
    }
}
