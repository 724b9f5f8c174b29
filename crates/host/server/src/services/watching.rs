//! Watches: first the existing resources, then each change.
//!
//! Each watch has a separate task, so it waits only for its own reader. If the reader is so slow that
//! its unseen changes are dropped, the watch ends with an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::v1::{self, ErrorReason};
use snic_controller::{Change, Controller, ResourceKey, RevisionTooOld, Stamp};
use snic_domain::{Caller, TenantId};
use snic_front::error::{RETRY_SOON, shutting_down};
use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Services, stopped};
use crate::hub::{ChangeKind, ChangedResource, Follower, FromView, ResumeRefusal, Topic};
use crate::wire;

/// Events queued for a reader, in addition to the ring and the transport's buffers.
const EVENTS_WAITING_MAX: usize = 16;
/// Changes processed at a time.
const CHANGES_BATCH: usize = 64;

/// Resources read at a time.
const PIECE: usize = 256;

/// Content of an event.
#[derive(Debug)]
pub(crate) enum WatchContent<'a, V> {
    /// Nothing but a revision.
    Bookmark,
    /// A resource, as it is or, deleted, was.
    Seen(ChangeKind, &'a V),
    /// A resource of which only the name is left.
    Gone(&'a ResourceKey),
}

/// A change of a resource, or a bookmark.
pub(crate) struct Event<'a, V> {
    pub told: WatchContent<'a, V>,
    pub revision: u64,
}

impl<V> Event<'_, V> {
    /// The type on the wire.
    pub const fn kind(&self) -> v1::EventType {
        match &self.told {
            WatchContent::Bookmark => v1::EventType::Bookmark,
            WatchContent::Seen(ChangeKind::Added, _) => v1::EventType::Added,
            WatchContent::Seen(ChangeKind::Modified, _) => v1::EventType::Modified,
            WatchContent::Seen(ChangeKind::Deleted, _) | WatchContent::Gone(_) => {
                v1::EventType::Deleted
            }
        }
    }

    /// Its message: of a resource that was seen, or of one with only this name.
    pub fn message<M>(
        &self,
        of: impl FnOnce(&V) -> M,
        named: impl FnOnce(String) -> M,
    ) -> Option<M> {
        match &self.told {
            WatchContent::Bookmark => None,
            WatchContent::Seen(_, view) => Some(of(view)),
            WatchContent::Gone(name) => Some(named(wire::name(name))),
        }
    }
}

/// Subject of a watch, and the conversion of its events.
pub(crate) struct WatchSpec<A, E> {
    pub topic: Topic,
    pub caller: Caller,
    /// Reads the existing resources after the given one, at most as many as the last argument says.
    pub piece: A,
    /// Converts an event to its message.
    pub event: E,
}

pub(crate) type Events<T> = ReceiverStream<Result<T, Status>>;

/// Existing resources, and the revision that they were read at.
struct SnapshotPiece<V> {
    /// Each with when it was made and changed, where that is stored.
    views: Vec<(V, Option<Stamp>)>,
    revision: u64,
}

/// The resources that a watch sends before changes, and how.
struct ExistingResources<V, A> {
    first: SnapshotPiece<V>,
    /// Resources deleted since the revision that it resumes from.
    gone: Vec<ResourceKey>,
    /// 0: all, as they are.
    since: u64,
    piece: Arc<A>,
    caller: Caller,
}

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
        A: Fn(&Controller, &Caller, Option<&V>, usize) -> Vec<V> + Send + Sync + 'static,
        E: Fn(Event<'_, V>) -> T + Send + Sync + 'static,
    {
        let WatchSpec { topic, caller, piece, event } = subject;
        let hub = &self.0.hub;
        let subject = Subject {
            tenant: caller.tenant().or(topic.tenant()).cloned(),
            // Before the state is read, so that no deletion after it is missed.
            deleted: hub.deleted(),
        };
        let kept = match resume {
            0 => Err(ResumeRefusal::EarlierRun),
            _ => hub.follow(topic.clone(), resume),
        };
        let (existing, follower) = match kept {
            Ok(follower) => (None, follower),
            Err(ResumeRefusal::Expired) => return Err(expired()),
            // What is of no kind is not stored.
            Err(ResumeRefusal::EarlierRun) if resume > 0 && topic.kind().is_none() => {
                return Err(expired());
            }
            Err(ResumeRefusal::EarlierRun) => {
                // Before the state is read, so that no change after it is missed.
                let mut follower = hub.follow_from_now(topic.clone());
                let piece = Arc::new(piece);
                let (gone, first) = self.beginning(&caller, &topic, resume, &piece).await?;
                follower.skip_to(first.revision);
                (Some(ExistingResources { first, gone, since: resume, piece, caller }), follower)
            }
        };
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        let services = self.clone();
        tokio::spawn(async move {
            let ended = services.clone().follow(event, existing, follower, sender.clone());
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

    /// Resources of a topic deleted after a revision, in an earlier run of the server too, and the first
    /// existing resources: in one read, or a deletion between two would be in neither.
    async fn beginning<V, A>(
        &self,
        caller: &Caller,
        topic: &Topic,
        since: u64,
        piece: &Arc<A>,
    ) -> Result<(Vec<ResourceKey>, SnapshotPiece<V>), ApiError>
    where
        V: FromView,
        A: Fn(&Controller, &Caller, Option<&V>, usize) -> Vec<V> + Send + Sync + 'static,
    {
        let piece = Arc::clone(piece);
        let deletions_of = topic.kind().filter(|_| since > 0);
        let tenant = topic.tenant().cloned();
        let query = move |controller: &Controller, caller: &Caller| {
            let gone = match deletions_of {
                Some(kind) => controller.deleted_since(kind, tenant.as_ref(), since)?,
                None => Vec::new(),
            };
            Ok((gone, read_piece(controller, caller, &*piece, None)))
        };
        let (found, revision) = self.read_at(caller, query).await?;
        let (gone, views) = found.map_err(|RevisionTooOld| expired())?;
        let gone = gone.into_iter().filter(|name| topic.has(name)).collect();
        Ok((gone, SnapshotPiece { views, revision }))
    }

    /// The next existing resources, after the given one.
    async fn piece<V, A>(
        &self,
        caller: &Caller,
        piece: &Arc<A>,
        after: V,
    ) -> Result<SnapshotPiece<V>, ApiError>
    where
        V: FromView,
        A: Fn(&Controller, &Caller, Option<&V>, usize) -> Vec<V> + Send + Sync + 'static,
    {
        let piece = Arc::clone(piece);
        let query = move |controller: &Controller, caller: &Caller| {
            read_piece(controller, caller, &*piece, Some(&after))
        };
        let (views, revision) = self.read_at(caller, query).await?;
        Ok(SnapshotPiece { views, revision })
    }

    /// Sends what exists, and what of it is included in which revision where that is later than the
    /// first piece's.
    async fn send_existing<V, T, A>(
        &self,
        wire: &impl Fn(Event<'_, V>) -> T,
        existing: ExistingResources<V, A>,
        sender: &mpsc::Sender<Result<T, Status>>,
    ) -> Result<BTreeMap<ChangedResource, u64>, ReaderGone>
    where
        V: FromView,
        A: Fn(&Controller, &Caller, Option<&V>, usize) -> Vec<V> + Send + Sync + 'static,
    {
        let ExistingResources { first, gone, since, piece, caller } = existing;
        // The revision to resume from comes with the bookmark: until then, that of the beginning.
        let revision = since;
        for name in &gone {
            self.send(sender, wire(Event { told: WatchContent::Gone(name), revision })).await?;
        }
        let mut included = BTreeMap::new();
        let begun = first.revision;
        let mut next = first;
        loop {
            // What was made while pieces were read is told by its change, after the deletion of an earlier
            // one of its name.
            let is_told_later =
                |stamp: &Option<Stamp>| stamp.is_some_and(|stamp| stamp.created > begun);
            let told = |(_, stamp): &&(V, Option<Stamp>)| !is_told_later(stamp);
            if next.revision > begun {
                let resources =
                    next.views.iter().filter(told).filter_map(|(view, _)| view.resource());
                included.extend(resources.map(|resource| (resource, next.revision)));
            }
            for (view, stamp) in next.views.iter().filter(told) {
                // Events of the log are all of this run of the server.
                let kind = match stamp {
                    Some(stamp) if stamp.changed <= since => continue,
                    Some(stamp) if stamp.created <= since && since > 0 => ChangeKind::Modified,
                    _ => ChangeKind::Added,
                };
                let told = WatchContent::Seen(kind, view);
                self.send(sender, wire(Event { told, revision })).await?;
            }
            let is_last = next.views.len() < PIECE;
            let Some((last, _)) = next.views.pop().filter(|_| !is_last) else {
                return Ok(included);
            };
            next = match self.piece(&caller, &piece, last).await {
                Ok(next) => next,
                Err(failure) => {
                    self.end(sender, failure).await?;
                    return Err(ReaderGone);
                }
            };
        }
    }

    async fn follow<V, T, A>(
        self,
        wire: impl Fn(Event<'_, V>) -> T,
        existing: Option<ExistingResources<V, A>>,
        mut follower: Follower,
        sender: mpsc::Sender<Result<T, Status>>,
    ) -> Result<(), ReaderGone>
    where
        V: FromView,
        T: Send,
        A: Fn(&Controller, &Caller, Option<&V>, usize) -> Vec<V> + Send + Sync + 'static,
    {
        let bookmark = |revision| wire(Event { told: WatchContent::Bookmark, revision });
        // Per resource, the last change that its sent state includes: earlier ones are skipped.
        let mut included: BTreeMap<ChangedResource, u64> = BTreeMap::new();
        if let Some(existing) = existing {
            included = self.send_existing(&wire, existing, &sender).await?;
            self.send(&sender, bookmark(follower.seen())).await?;
        }
        let mut sent = follower.seen();
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
                let revision = change.revision;
                let resource = change.resource();
                if change.change_kind == ChangeKind::Deleted {
                    included.remove(&resource);
                } else if included.get(&resource).is_some_and(|as_of| revision <= *as_of) {
                    continue;
                }
                let Ok(cached) = self.0.hub.cached_view(change, &self.0.plane).await else {
                    return self.end(&sender, shutting_down()).await;
                };
                let told = match (&cached.view, &*change.change) {
                    (_, Change::ResourceDeleted { name, .. }) => WatchContent::Gone(name),
                    (Some(view), _) => match V::of(view) {
                        Some(view) => WatchContent::Seen(change.change_kind, view),
                        None => continue,
                    },
                    (None, _) => continue,
                };
                if change.change_kind != ChangeKind::Deleted {
                    included.insert(resource, cached.as_of);
                }
                sent = revision;
                self.send(&sender, wire(Event { told, revision })).await?;
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

/// The next existing resources, with when they were made and changed.
fn read_piece<V, A>(
    controller: &Controller,
    caller: &Caller,
    piece: &A,
    after: Option<&V>,
) -> Vec<(V, Option<Stamp>)>
where
    V: FromView,
    A: Fn(&Controller, &Caller, Option<&V>, usize) -> Vec<V>,
{
    let views = piece(controller, caller, after, PIECE).into_iter();
    views
        .map(|view| {
            let stamp = view.name().map(|name| controller.stamp(&name));
            (view, stamp)
        })
        .collect()
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
