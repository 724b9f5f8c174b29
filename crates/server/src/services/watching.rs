//! Watches: first what exists, then what happens, from one revision to the next.
//!
//! Each watch has a task of its own that waits for its reader alone. A reader that is so slow that
//! the changes it has not seen are no longer kept is told so, and the watch ends.

use std::collections::BTreeMap;

use snic_api::error::Failure;
use snic_api::v1::{self, ErrorReason};
use snic_controller::{Caller, Controller};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Services, stopped};
use crate::error::{RETRY_SOON, shutting_down};
use crate::hub::{Expired, Follower, Happening, Resource, Topic, Viewed};

/// Events that wait for a reader besides those in the ring; what the transport buffers comes on
/// top.
const EVENTS_WAITING_MAX: usize = 16;
/// Changes that are looked at in one go.
const CHANGES_AT_ONCE: usize = 64;

/// What happened to a resource; a bookmark where there is none.
pub(crate) struct Event<'a, V> {
    pub happening: Happening,
    pub view: Option<&'a V>,
    pub revision: u64,
}

impl<V> Event<'_, V> {
    /// The type on the wire.
    pub const fn kind(&self) -> v1::EventType {
        match (&self.view, self.happening) {
            (None, _) => v1::EventType::Bookmark,
            (Some(_), Happening::Added) => v1::EventType::Added,
            (Some(_), Happening::Modified) => v1::EventType::Modified,
            (Some(_), Happening::Deleted) => v1::EventType::Deleted,
        }
    }
}

/// What a watch is about, and how it is told.
pub(crate) struct Subject<A, E> {
    pub topic: Topic,
    pub caller: Caller,
    /// Reads all that exists.
    pub all: A,
    /// The event on the wire.
    pub event: E,
}

pub(crate) type Events<T> = ReceiverStream<Result<T, Status>>;

/// The reader is gone.
struct Gone;

impl Services {
    /// Begins a watch. A revision that is too old is refused at once.
    pub(crate) async fn watch<V, T, A, E>(
        &self,
        subject: Subject<A, E>,
        resume: u64,
    ) -> Result<Events<T>, Failure>
    where
        V: Viewed,
        T: Send + 'static,
        A: FnOnce(&Controller) -> Vec<V> + Send + 'static,
        E: Fn(Event<'_, V>) -> T + Send + Sync + 'static,
    {
        let Subject { topic, caller, all, event } = subject;
        let hub = &self.0.hub;
        let (first, follower) = if resume == 0 {
            // Before the state is read: what changes afterwards is sent again.
            let follower = hub.follow_from_now(topic);
            (Some(self.read(&caller, move |controller, _| all(controller)).await?), follower)
        } else {
            (None, hub.follow(topic, resume).map_err(|Expired| expired())?)
        };
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        let services = self.clone();
        tokio::spawn(async move {
            // Where the reader is gone there is nobody to tell.
            let _ = services.follow(event, first, follower, sender).await;
        });
        Ok(ReceiverStream::new(events))
    }

    async fn follow<V: Viewed, T: Send>(
        self,
        wire: impl Fn(Event<'_, V>) -> T,
        first: Option<Vec<V>>,
        mut follower: Follower,
        sender: mpsc::Sender<Result<T, Status>>,
    ) -> Result<(), Gone> {
        let bookmark =
            |revision| wire(Event { happening: Happening::Modified, view: None, revision });
        if let Some(first) = first {
            for view in &first {
                let (happening, view) = (Happening::Added, Some(view));
                // The place to resume from comes when all has been sent.
                self.send(&sender, wire(Event { happening, view, revision: 0 })).await?;
            }
            self.send(&sender, bookmark(follower.seen())).await?;
        }
        let mut told = follower.seen();
        // Up to which change a resource was told as it was: what came before is not told again.
        let mut looked: BTreeMap<Resource, u64> = BTreeMap::new();
        let mut stopping = self.0.stopping.clone();
        let mut bookmarks = tokio::time::interval(self.0.limits.bookmark);
        // The first tick is at once.
        bookmarks.tick().await;
        let mut is_due = false;
        loop {
            let Ok(changes) = follower.next(CHANGES_AT_ONCE) else {
                return self.end(&sender, too_slow()).await;
            };
            for change in &changes {
                let seen = change.revision;
                let resource = change.resource();
                let known = looked.get(&resource).is_some_and(|as_of| seen <= *as_of);
                if known && change.happening == Happening::Modified {
                    continue;
                }
                let Ok(look) = self.0.hub.look(change, &self.0.plane).await else {
                    return self.end(&sender, shutting_down()).await;
                };
                looked.insert(resource, look.as_of);
                if let Some(view) = look.seen.as_ref().and_then(V::of) {
                    told = seen;
                    let (happening, view) = (change.happening, Some(view));
                    let event = Event { happening, view, revision: seen };
                    self.send(&sender, wire(event)).await?;
                }
            }
            looked.retain(|_, as_of| *as_of > follower.seen());
            if !changes.is_empty() {
                continue;
            }
            if std::mem::take(&mut is_due) && follower.seen() > told {
                told = follower.seen();
                self.send(&sender, bookmark(told)).await?;
            }
            tokio::select! {
                () = follower.changed() => {}
                () = stopped(&mut stopping) => {
                    return self.end(&sender, shutting_down()).await;
                }
                // First what there is to tell.
                _ = bookmarks.tick() => is_due = true,
                () = sender.closed() => return Err(Gone),
            }
        }
    }

    /// Waits until the reader takes it, or the server stops.
    async fn send<T>(
        &self,
        sender: &mpsc::Sender<Result<T, Status>>,
        event: T,
    ) -> Result<(), Gone> {
        let mut stopping = self.0.stopping.clone();
        tokio::select! {
            sent = sender.send(Ok(event)) => sent.map_err(|_| Gone),
            () = stopped(&mut stopping) => {
                // A reader that takes nothing is not waited for.
                let _ = sender.try_send(Err(shutting_down().into()));
                Err(Gone)
            }
        }
    }

    async fn end<T>(
        &self,
        sender: &mpsc::Sender<Result<T, Status>>,
        failure: Failure,
    ) -> Result<(), Gone> {
        sender.send(Err(failure.into())).await.map_err(|_| Gone)
    }
}

fn expired() -> Failure {
    let text = "what happened since this revision is not kept any more; watch with revision 0";
    Failure::new(ErrorReason::RevisionExpired, text).field("resume_revision", text)
}

fn too_slow() -> Failure {
    let text = "this watch was too slow: changes were dropped; watch again with revision 0";
    Failure::new(ErrorReason::WatcherTooSlow, text).retry_after(RETRY_SOON)
}
