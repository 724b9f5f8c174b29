//! Watches: first the records that there are, read from etcd as of one revision, then each change.
//!
//! Any replica serves them. Revisions are etcd's, so a watch that ends with its replica goes on at another one. Each has
//! a task of its own, which waits only for its own reader.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::v1::{self, ErrorReason};
use snic_domain::{Caller, TenantId};
use snic_etcd::{Answer, Failed, Record, Request, Revision};
use snic_fleet::protocol::FleetDag;
use snic_fleet::records::{FleetDagRecord, PREFIX, Versioned, tenant_key};
use snic_front::error::{RETRY_SOON, shutting_down};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::Services;
use crate::history::{History, RecordChange, Scope, TooOld};

/// Events queued for a reader, in addition to the transport's buffers.
const EVENTS_WAITING_MAX: usize = 16;
/// Changes processed at a time.
const CHANGES_BATCH: usize = 64;
/// Records read at a time.
const RECORDS_READ: usize = 256;

/// Content of an event.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// Nothing but a revision.
    Bookmark,
    Seen(v1::EventType, &'a Record),
    /// The rest of a deleted record's key, behind the prefix of its kind.
    Gone {
        /// Such as `acme/web`.
        name: &'a str,
        /// This watch has sent it before.
        was_seen: bool,
    },
}

impl Event<'_> {
    /// The type on the wire.
    pub fn kind(&self) -> i32 {
        let kind = match self {
            Self::Bookmark => v1::EventType::Bookmark,
            Self::Seen(kind, _) => *kind,
            Self::Gone { .. } => v1::EventType::Deleted,
        };
        kind.into()
    }
}

/// Subject of a watch.
pub(crate) struct WatchSpec<E> {
    /// Behind [`PREFIX`], with the slash at its end.
    pub kind: &'static str,
    /// The watch ends when it is deleted.
    pub tenant: Option<TenantId>,
    /// Only what is below it in its kind.
    pub is_of_tenant: bool,
    /// Converts an event to its message, with the revision to resume from; `None`: not for this caller.
    pub event: E,
}

impl<E> WatchSpec<E> {
    /// Owners whose changes must not be missing.
    const fn scope(&self) -> Scope<'_> {
        match &self.tenant {
            Some(tenant) => Scope::Tenant(tenant, self.kind),
            None => Scope::All,
        }
    }
}

pub(crate) type Events<T> = ReceiverStream<Result<T, Status>>;

/// A watch in its task.
struct Follower<T, E> {
    services: Services,
    spec: WatchSpec<E>,
    prefix: String,
    sender: mpsc::Sender<Result<T, Status>>,
    /// Names that were sent, so that their deletion may be told.
    seen: BTreeSet<String>,
}

/// Why a watch ends: the reader has gone, or is told.
enum WatchEnd {
    ReaderGone,
    With(ApiError),
}

impl Services {
    /// The tenant of a list or watch; for tenants always their own.
    pub(super) async fn watched_tenant(
        &self,
        caller: &Caller,
        parent: Option<TenantId>,
    ) -> Result<Option<TenantId>, ApiError> {
        let Some(tenant) = parent else { return Ok(caller.tenant().cloned()) };
        let absent = || ApiError::not_found("tenant", name::of_tenant(&tenant));
        if !caller.may_change(Some(&tenant)) {
            return Err(absent());
        }
        let key = tenant_key(&tenant);
        let (records, ..) = self.records(&key, None, (None, 1)).await?;
        if records.first().is_none_or(|record| record.key != key) {
            return Err(absent());
        }
        Ok(Some(tenant))
    }

    /// Begins a watch.
    ///
    /// # Errors
    /// A revision that is too old, or in the future; or etcd does not answer.
    pub(super) async fn watch<T, E>(
        &self,
        spec: WatchSpec<E>,
        resume: u64,
    ) -> Result<Events<T>, ApiError>
    where
        T: Send + 'static,
        E: Fn(Event<'_>, u64) -> Option<T> + Send + Sync + 'static,
    {
        let prefix = match &spec.tenant {
            Some(tenant) if spec.is_of_tenant => format!("{PREFIX}{}{tenant}/", spec.kind),
            _ => format!("{PREFIX}{}", spec.kind),
        };
        if resume > 0 {
            let kept = self.history().after(resume, 0, spec.scope(), |_| false);
            kept.map_err(|TooOld| expired())?;
            if resume > *self.history().follow().borrow() {
                // This replica may be behind; etcd knows whether the revision exists.
                let (_, _, now) = self.records(&prefix, None, (None, 1)).await?;
                if resume > now {
                    return Err(expired());
                }
            }
        }
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        let services = self.clone();
        let follower = Follower { services, spec, prefix, sender, seen: BTreeSet::new() };
        tokio::spawn(follower.run(resume));
        Ok(ReceiverStream::new(events))
    }

    pub(super) fn history(&self) -> &Arc<History> {
        &self.0.parts.history
    }

    /// All records of a kind; those that this replica cannot read are passed over.
    pub(super) async fn all_records<T>(&self, kind: &str) -> Result<Vec<T>, ApiError>
    where
        T: DeserializeOwned + Serialize + Clone,
    {
        let prefix = format!("{PREFIX}{kind}");
        let (mut all, mut from) = (Vec::new(), None);
        loop {
            let (records, more, _) = self.records(&prefix, None, (from, RECORDS_READ)).await?;
            all.extend(records.iter().filter_map(read));
            from = records.last().map(|record| format!("{}\0", record.key));
            if !more {
                return Ok(all);
            }
        }
    }

    /// Some records, whether there are more, and the revision of etcd.
    async fn records(
        &self,
        prefix: &str,
        at: Option<Revision>,
        (from, limit): (Option<String>, usize),
    ) -> Result<(Vec<Record>, bool, u64), ApiError> {
        let request = Request::Range { prefix: prefix.to_owned(), at, from, limit };
        match self.0.parts.etcd.ask(&request).await {
            Ok(Answer::Range { records, more, now }) => {
                Ok((records, more, u64::try_from(now.0).unwrap_or_default()))
            }
            Err(Failed::Compacted(_)) => Err(expired()),
            other => {
                tracing::warn!(?other, "records cannot be read for a watch");
                let text = "the fleet's store does not answer; try again later";
                Err(ApiError::new(ErrorReason::StoreUnavailable, text).retry_after(RETRY_SOON))
            }
        }
    }
}

impl<T, E> Follower<T, E>
where
    T: Send + 'static,
    E: Fn(Event<'_>, u64) -> Option<T> + Send + Sync + 'static,
{
    async fn run(mut self, resume: u64) {
        let mut stopping = self.services.0.parts.stopping.clone();
        let sender = self.sender.clone();
        let ended = tokio::select! {
            ended = self.follow(resume) => ended,
            // Without a sender the server has stopped.
            _ = stopping.wait_for(|stopping| *stopping) => WatchEnd::With(shutting_down()),
            () = sender.closed() => WatchEnd::ReaderGone,
        };
        if let WatchEnd::With(failure) = ended {
            // The task does not wait for a reader that accepts nothing.
            let _ = sender.try_send(Err(failure.into()));
        }
    }

    async fn follow(&mut self, resume: u64) -> WatchEnd {
        let mut at = resume;
        if resume == 0 {
            match self.send_existing().await {
                Ok(now) => at = now,
                Err(ended) => return ended,
            }
        }
        let mut told = self.services.history().follow();
        let mut sent = at;
        let mut bookmarks = tokio::time::interval(self.services.0.bookmark);
        // The first tick is immediate.
        bookmarks.tick().await;
        let mut is_due = false;
        loop {
            let history = self.services.history();
            let scope = self.spec.scope();
            let page = match history.after(at, CHANGES_BATCH, scope, |key| self.wants(key)) {
                Ok(page) => page,
                Err(TooOld) => return WatchEnd::With(too_slow()),
            };
            let mut changes = page.changes.iter().peekable();
            while let Some(change) = changes.next() {
                let is_last = changes.peek().is_none_or(|next| next.revision > change.revision);
                // Who resumes behind one of several changes that were made together has not seen the others.
                let resume = if is_last { change.revision } else { change.revision - 1 };
                if let Err(ended) = self.change(change, resume).await {
                    return ended;
                }
                sent = resume;
            }
            at = page.until;
            if !page.changes.is_empty() {
                continue;
            }
            if std::mem::take(&mut is_due) && at > sent {
                sent = at;
                if let Err(ended) = self.send(Event::Bookmark, at).await {
                    return ended;
                }
            }
            tokio::select! {
                changed = told.changed() => if changed.is_err() {
                    return WatchEnd::With(shutting_down());
                },
                _ = bookmarks.tick() => is_due = true,
            }
        }
    }

    /// Sends what exists, and returns the revision that it was read at.
    async fn send_existing(&mut self) -> Result<u64, WatchEnd> {
        let (mut at, mut from) = (None, None);
        loop {
            let read = self.services.records(&self.prefix, at.map(revision), (from, RECORDS_READ));
            let (records, more, now) = read.await.map_err(WatchEnd::With)?;
            let begun = *at.get_or_insert(now);
            for record in &records {
                // The revision to resume from comes with the bookmark.
                self.see(v1::EventType::Added, record, 0).await?;
            }
            from = records.last().map(|record| format!("{}\0", record.key));
            if !more {
                self.send(Event::Bookmark, begun).await?;
                return Ok(begun);
            }
        }
    }

    fn wants(&self, key: &str) -> bool {
        let is_tenant = |tenant: &TenantId| {
            let rest = key.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix("tenants/"));
            rest == Some(tenant.as_str())
        };
        key.starts_with(&self.prefix) || self.spec.tenant.as_ref().is_some_and(is_tenant)
    }

    async fn change(&mut self, change: &RecordChange, resume: u64) -> Result<(), WatchEnd> {
        if !change.key.starts_with(&self.prefix) {
            return match (&change.record, &self.spec.tenant) {
                (None, Some(tenant)) => {
                    let gone = ApiError::not_found("tenant", name::of_tenant(tenant));
                    Err(WatchEnd::With(gone))
                }
                _ => Ok(()),
            };
        }
        match &change.record {
            Some(record) => {
                let is_new = record.created == record.changed;
                let kind = if is_new { v1::EventType::Added } else { v1::EventType::Modified };
                self.see(kind, record, resume).await?;
            }
            None => {
                let name = self.name_of(&change.key).to_owned();
                let was_seen = self.seen.remove(&name);
                self.send(Event::Gone { name: &name, was_seen }, resume).await?;
            }
        }
        Ok(())
    }

    fn name_of<'a>(&self, key: &'a str) -> &'a str {
        let rest = key.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix(self.spec.kind));
        rest.unwrap_or_default()
    }

    async fn see(
        &mut self,
        kind: v1::EventType,
        record: &Record,
        resume: u64,
    ) -> Result<(), WatchEnd> {
        if self.send(Event::Seen(kind, record), resume).await? && !self.spec.is_of_tenant {
            self.seen.insert(self.name_of(&record.key).to_owned());
        }
        Ok(())
    }

    /// Returns whether it was for this caller.
    async fn send(&self, event: Event<'_>, resume: u64) -> Result<bool, WatchEnd> {
        let Some(message) = (self.spec.event)(event, resume) else { return Ok(false) };
        self.sender.send(Ok(message)).await.map_err(|_| WatchEnd::ReaderGone)?;
        Ok(true)
    }
}

/// Value of a record; one that this replica cannot read is passed over.
pub(super) fn read<T: DeserializeOwned + Serialize + Clone>(record: &Record) -> Option<T> {
    let read = Versioned::<T>::parse(&record.key, &record.value);
    let read = read.inspect_err(|error| tracing::error!(%error, "a watch passes over a record"));
    read.ok().map(|of| of.value().clone())
}

/// The DAG of a record.
pub(super) fn dag_of(record: &Record) -> Option<FleetDag> {
    read::<FleetDagRecord>(record).map(|of| FleetDag::of(&of))
}

fn revision(number: u64) -> Revision {
    Revision(i64::try_from(number).unwrap_or(i64::MAX))
}

fn expired() -> ApiError {
    let text = "changes since this revision are no longer kept; watch again with resume_revision 0";
    ApiError::new(ErrorReason::RevisionExpired, text).field("resume_revision", text)
}

fn too_slow() -> ApiError {
    let text =
        "the reader was too slow and changes were dropped; watch again with resume_revision 0";
    ApiError::new(ErrorReason::WatcherTooSlow, text).retry_after(RETRY_SOON)
}
