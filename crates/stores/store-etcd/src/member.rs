//! One member: requests as etcd's client makes them, and its answers as values.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use etcd_client::{
    Client, Compare as PbCompare, CompareOp, Error, GetOptions, KeyValue, LeaseKeepAliveStream,
    LeaseKeeper, PutOptions, Txn, TxnOp,
};
use parking_lot::Mutex;
use snic_etcd::{
    Answer, Compare, Failed, LeaseId, Operation, Record, Request, Revision, Transaction,
};

use crate::failures::failed;
use crate::keys::range_of;

/// Longest answer in bytes. A range is as long as its limit allows; tonic's own limit is 4 MiB.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Time that a stream of a lease is kept without a sign of life. Who keeps a lease alive does so more often.
const STREAM_IDLE_MAX: Duration = Duration::from_secs(120);

/// A connection to one member. It is made by the first request, and again after it broke.
pub(crate) struct Member {
    client: Client,
    /// Streams of leases: a sign of life takes no new one.
    beats: Mutex<HashMap<LeaseId, Beat>>,
}

struct Beat {
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
    used: Instant,
}

impl Member {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, beats: Mutex::default() }
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) async fn ask(&self, request: &Request) -> Result<Answer, Failed> {
        match request {
            Request::Commit(transaction) => self.commit(transaction).await,
            Request::Range { prefix, at, from, limit } => {
                let range = range_of(prefix, from.as_deref());
                self.range(range, *at, *limit).await
            }
            Request::Grant { seconds } => {
                let mut leases = self.client.lease_client();
                let granted = leases.grant(i64::from(*seconds), None).await.map_err(open)?;
                let seconds = u32::try_from(granted.ttl()).unwrap_or(u32::MAX);
                Ok(Answer::Granted(LeaseId(granted.id()), seconds))
            }
            Request::KeepAlive(id) => self.keep_alive(*id).await,
            Request::Revoke(id) => {
                self.beats.lock().remove(id);
                match self.client.lease_client().revoke(id.0).await.map_err(open) {
                    Ok(_) | Err(Failed::LeaseEnded) => Ok(Answer::Ended(*id)),
                    Err(failed) => Err(failed),
                }
            }
            Request::Compact(at) => {
                let done = self.client.kv_client().compact(at.0, None).await;
                done.map_err(|error| failed(error, Revision(at.0 + 1)))?;
                Ok(Answer::Compacted)
            }
        }
    }

    async fn commit(&self, transaction: &Transaction) -> Result<Answer, Failed> {
        let compares: Vec<_> = transaction.compares.iter().map(compare).collect();
        let operations: Vec<_> = transaction.operations.iter().map(operation).collect();
        let txn = Txn::new().when(compares).and_then(operations);
        let done = self.client.kv_client().txn(txn).await.map_err(open)?;
        let now = revision(done.header())?;
        Ok(if done.succeeded() { Answer::Committed(now) } else { Answer::Refused(now) })
    }

    async fn range(
        &self,
        (begin, end): (Vec<u8>, Vec<u8>),
        at: Option<Revision>,
        limit: usize,
    ) -> Result<Answer, Failed> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut options = GetOptions::new().with_range(end).with_limit(limit);
        if let Some(at) = at {
            options = options.with_revision(at.0);
        }
        let behind = Revision(at.map_or(0, |at| at.0.saturating_add(1)));
        let mut kv = self.client.kv_client().max_decoding_message_size(ANSWER_BYTES_MAX);
        let found = kv.get(begin, Some(options)).await;
        let mut found = found.map_err(|error| failed(error, behind))?;
        let (now, more) = (revision(found.header())?, found.more());
        let records = found.take_kvs().into_iter().map(record).collect::<Result<_, _>>()?;
        Ok(Answer::Range { records, more, now })
    }

    async fn keep_alive(&self, id: LeaseId) -> Result<Answer, Failed> {
        let kept = self.beats.lock().remove(&id);
        let mut beat = match kept {
            Some(beat) => beat,
            None => match self.client.lease_client().keep_alive(id.0).await {
                Ok((keeper, answers)) => Beat { keeper, answers, used: Instant::now() },
                // How the client says that the first answer had no time left.
                Err(Error::LeaseKeepAliveError(_)) => return Ok(Answer::Ended(id)),
                Err(error) => return Err(open(error)),
            },
        };
        beat.keeper.keep_alive().await.map_err(open)?;
        let Some(answer) = beat.answers.message().await.map_err(open)? else {
            return Err(Failed::Unknown("the member closed the stream of the lease".to_owned()));
        };
        let seconds = u32::try_from(answer.ttl()).unwrap_or(0);
        if seconds == 0 {
            return Ok(Answer::Ended(id));
        }
        beat.used = Instant::now();
        let mut beats = self.beats.lock();
        beats.retain(|_, beat| beat.used.elapsed() < STREAM_IDLE_MAX);
        beats.insert(id, beat);
        Ok(Answer::Alive(id, seconds))
    }
}

/// The failure of a request that names no revision.
fn open(error: Error) -> Failed {
    failed(error, Revision(0))
}

fn revision(header: Option<&etcd_client::ResponseHeader>) -> Result<Revision, Failed> {
    // Every answer has one.
    let header = header.ok_or_else(|| Failed::Unknown("an answer without header".to_owned()))?;
    Ok(Revision(header.revision()))
}

fn compare(compare: &Compare) -> PbCompare {
    match compare {
        Compare::CreatedAt(key, at) => {
            PbCompare::create_revision(key.as_str(), CompareOp::Equal, at.0)
        }
        Compare::ChangedAt(key, at) => {
            PbCompare::mod_revision(key.as_str(), CompareOp::Equal, at.0)
        }
    }
}

fn operation(operation: &Operation) -> TxnOp {
    match operation {
        Operation::Put { key, value, lease } => {
            let options = lease.map(|lease| PutOptions::new().with_lease(lease.0));
            TxnOp::put(key.as_str(), value.as_slice(), options)
        }
        Operation::Delete { key } => TxnOp::delete(key.as_str(), None),
    }
}

/// A record as a value.
///
/// # Errors
///
/// [`Failed::Invalid`] for a key that is no text: it is none of ours.
pub(crate) fn record(found: KeyValue) -> Result<Record, Failed> {
    let (created, changed) = (Revision(found.create_revision()), Revision(found.mod_revision()));
    let (version, lease) = (found.version(), found.lease());
    let (key, value) = found.into_key_value();
    let key = String::from_utf8(key).map_err(|error| {
        let key = error.as_bytes().escape_ascii();
        Failed::Invalid(format!("the key {key} is not text; somebody else wrote it: remove it"))
    })?;
    let lease = (lease != 0).then_some(LeaseId(lease));
    Ok(Record { key, value, created, changed, version, lease })
}
