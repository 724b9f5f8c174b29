//! Watches: first the existing resources, then each change.
//!
//! Each watch has a separate task, so it waits only for its own reader. If the reader is so slow that
//! its unseen changes are dropped, the watch ends with an error.

use std::collections::BTreeMap;

use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::v1::{self, ErrorReason};
use snic_controller::{Caller, Controller};
use snic_domain::TenantId;
use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Services, stopped};
use crate::error::{RETRY_SOON, shutting_down};
use crate::hub::{ChangeKind, ChangedResource, Follower, FromView, RevisionExpired, Topic};

/// Events queued for a reader, in addition to the ring and the transport's buffers.
const EVENTS_WAITING_MAX: usize = 16;
/// Changes processed at a time.
const CHANGES_BATCH: usize = 64;

/// A change of a resource; a bookmark where `view` is `None`.
pub(crate) struct Event<'a, V> {
    pub change_kind: ChangeKind,
    pub view: Option<&'a V>,
    pub revision: u64,
}

impl<V> Event<'_, V> {
    /// The type on the wire.
    pub const fn kind(&self) -> v1::EventType {
        match (&self.view, self.change_kind) {
            (None, _) => v1::EventType::Bookmark,
            (Some(_), ChangeKind::Added) => v1::EventType::Added,
            (Some(_), ChangeKind::Modified) => v1::EventType::Modified,
            (Some(_), ChangeKind::Deleted) => v1::EventType::Deleted,
        }
    }
}

/// What to watch, and how to convert its events.
pub(crate) struct WatchSpec<A, E> {
    pub topic: Topic,
    pub caller: Caller,
    /// Reads the existing resources.
    pub all: A,
    /// Converts an event to its message.
    pub event: E,
}

pub(crate) type Events<T> = ReceiverStream<Result<T, Status>>;

/// The reader has gone.
struct ReaderGone;

/// The tenant of a watch, and the deletions since it began.
struct Subject {
    tenant: Option<TenantId>,
    deleted: broadcast::Receiver<TenantId>,
}

impl Subject {
    /// Waits until the watch's tenant is deleted, if it has one; says why the watch ends.
    async fn ends(mut self) -> ApiError {
        let Some(tenant) = self.tenant else { return std::future::pending().await };
        loop {
            match self.deleted.recv().await {
                Ok(deleted) if deleted == tenant => {
                    return super::absent(&name::of_tenant(&tenant));
                }
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => return too_slow(),
                // The hub ends with the server.
                Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
            }
        }
    }
}

impl Services {
    /// Begins a watch.
    ///
    /// # Errors
    /// A revision that is too old, or in the future; or the control plane has ended.
    pub(crate) async fn watch<V, T, A, E>(
        &self,
        subject: WatchSpec<A, E>,
        resume: u64,
    ) -> Result<Events<T>, ApiError>
    where
        V: FromView,
        T: Send + 'static,
        A: FnOnce(&Controller) -> Vec<V> + Send + 'static,
        E: Fn(Event<'_, V>) -> T + Send + Sync + 'static,
    {
        let WatchSpec { topic, caller, all, event } = subject;
        let hub = &self.0.hub;
        let subject = Subject {
            tenant: caller.tenant().or(topic.tenant()).cloned(),
            // Before the state is read, so that no deletion after it is missed.
            deleted: hub.deleted(),
        };
        let (first, follower) = if resume == 0 {
            // Before the state is read, so that no change after it is missed.
            let follower = hub.follow_from_now(topic);
            (Some(self.read(&caller, move |controller, _| all(controller)).await?), follower)
        } else {
            (None, hub.follow(topic, resume).map_err(|RevisionExpired| expired())?)
        };
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        let services = self.clone();
        tokio::spawn(async move {
            let ended = services.clone().follow(event, first, follower, sender.clone());
            tokio::select! {
                _ = ended => {}
                failure = subject.ends() => {
                    // The task does not wait for a reader that accepts nothing.
                    let _ = sender.try_send(Err(failure.into()));
                }
            }
        });
        Ok(ReceiverStream::new(events))
    }

    async fn follow<V: FromView, T: Send>(
        self,
        wire: impl Fn(Event<'_, V>) -> T,
        first: Option<Vec<V>>,
        mut follower: Follower,
        sender: mpsc::Sender<Result<T, Status>>,
    ) -> Result<(), ReaderGone> {
        let bookmark =
            |revision| wire(Event { change_kind: ChangeKind::Modified, view: None, revision });
        if let Some(first) = first {
            for view in &first {
                let (change_kind, view) = (ChangeKind::Added, Some(view));
                // The revision to resume from comes with the bookmark.
                self.send(&sender, wire(Event { change_kind, view, revision: 0 })).await?;
            }
            self.send(&sender, bookmark(follower.seen())).await?;
        }
        let mut sent = follower.seen();
        // Per resource, the last change that its sent state includes: earlier ones are skipped.
        let mut included: BTreeMap<ChangedResource, u64> = BTreeMap::new();
        let mut stopping = self.0.stopping.clone();
        let mut bookmarks = tokio::time::interval(self.0.limits.bookmark);
        // The first tick is immediate.
        bookmarks.tick().await;
        let mut is_due = false;
        loop {
            let Ok(changes) = follower.next(CHANGES_BATCH) else {
                return self.end(&sender, too_slow()).await;
            };
            for change in &changes {
                let seen = change.revision;
                let resource = change.resource();
                let known = included.get(&resource).is_some_and(|as_of| seen <= *as_of);
                if known && change.change_kind == ChangeKind::Modified {
                    continue;
                }
                let Ok(cached) = self.0.hub.cached_view(change, &self.0.plane).await else {
                    return self.end(&sender, shutting_down()).await;
                };
                included.insert(resource, cached.as_of);
                if let Some(view) = cached.view.as_ref().and_then(V::of) {
                    sent = seen;
                    let (change_kind, view) = (change.change_kind, Some(view));
                    let event = Event { change_kind, view, revision: seen };
                    self.send(&sender, wire(event)).await?;
                }
            }
            included.retain(|_, as_of| *as_of > follower.seen());
            if !changes.is_empty() {
                continue;
            }
            if std::mem::take(&mut is_due) && follower.seen() > sent {
                sent = follower.seen();
                self.send(&sender, bookmark(sent)).await?;
            }
            tokio::select! {
                () = follower.changed() => {}
                () = stopped(&mut stopping) => {
                    return self.end(&sender, shutting_down()).await;
                }
                // Pending changes first.
                _ = bookmarks.tick() => is_due = true,
                () = sender.closed() => return Err(ReaderGone),
            }
        }
    }

    /// Waits until the reader accepts the event, or the server stops.
    async fn send<T>(
        &self,
        sender: &mpsc::Sender<Result<T, Status>>,
        event: T,
    ) -> Result<(), ReaderGone> {
        let mut stopping = self.0.stopping.clone();
        tokio::select! {
            sent = sender.send(Ok(event)) => sent.map_err(|_| ReaderGone),
            () = stopped(&mut stopping) => {
                // The task does not wait for a reader that accepts nothing.
                let _ = sender.try_send(Err(shutting_down().into()));
                Err(ReaderGone)
            }
        }
    }

    async fn end<T>(
        &self,
        sender: &mpsc::Sender<Result<T, Status>>,
        failure: ApiError,
    ) -> Result<(), ReaderGone> {
        sender.send(Err(failure.into())).await.map_err(|_| ReaderGone)
    }
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
