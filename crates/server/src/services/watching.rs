//! Watches: first what exists, then what happens, from one revision to the next.
//!
//! Each watch has a task of its own that waits for its reader alone. A reader that is so slow that
//! the changes it has not seen are no longer kept is told so, and the watch ends.

use std::collections::BTreeMap;

use snic_api::error::Failure;
use snic_api::v1::ErrorReason;
use snic_controller::{Caller, Change, Controller};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Services, newer, stopped};
use crate::error::{RETRY_SOON, shutting_down};
use crate::hub::{Expired, Happening, Resource, Seen};

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

/// What a watch is about.
pub(crate) trait Subject: Send + Sync + 'static {
    type View: Send + Sync + 'static;
    type Event: Send + 'static;

    fn caller(&self) -> &Caller;

    /// Reads all that exists.
    fn all(&self) -> impl FnOnce(&Controller) -> Vec<Self::View> + Send + 'static;

    /// Whether a change is of this watch.
    fn concerns(&self, change: &Change) -> bool;

    /// The resource that such a change is about.
    fn view(seen: &Seen) -> Option<&Self::View>;

    /// The event on the wire.
    fn event(&self, event: Event<'_, Self::View>) -> Self::Event;
}

type Sender<S> = mpsc::Sender<Result<<S as Subject>::Event, Status>>;
pub(crate) type Events<S> = ReceiverStream<Result<<S as Subject>::Event, Status>>;

/// The reader is gone.
struct Gone;

impl Services {
    /// Begins a watch. A revision that is too old is refused at once.
    pub(crate) async fn watch<S: Subject>(
        &self,
        subject: S,
        resume: u64,
    ) -> Result<Events<S>, Failure> {
        // Before the state is read: what changes afterwards is sent again.
        let from = if resume == 0 { self.0.hub.revision() } else { resume };
        let first = if resume == 0 {
            let all = subject.all();
            Some(self.read(subject.caller(), move |controller, _| all(controller)).await?)
        } else {
            self.0.hub.after(resume, 1).map_err(|Expired| expired())?;
            None
        };
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        let services = self.clone();
        tokio::spawn(async move {
            // Where the reader is gone there is nobody to tell.
            let _ = services.follow(subject, first, from, sender).await;
        });
        Ok(ReceiverStream::new(events))
    }

    async fn follow<S: Subject>(
        self,
        subject: S,
        first: Option<Vec<S::View>>,
        from: u64,
        sender: Sender<S>,
    ) -> Result<(), Gone> {
        if let Some(first) = first {
            for view in &first {
                let (happening, view) = (Happening::Added, Some(view));
                // The place to resume from comes when all has been sent.
                self.send(&sender, subject.event(Event { happening, view, revision: 0 })).await?;
            }
            self.bookmark(&subject, from, &sender).await?;
        }
        let mut latest = self.0.hub.subscribe();
        let (mut seen, mut told) = (from, from);
        // Up to which change a resource was told as it was: what came before is not told again.
        let mut looked: BTreeMap<Resource, u64> = BTreeMap::new();
        let mut stopping = self.0.stopping.clone();
        let mut bookmarks = tokio::time::interval(self.0.limits.bookmark);
        // The first tick is at once.
        bookmarks.tick().await;
        loop {
            let Ok(changes) = self.0.hub.after(seen, CHANGES_AT_ONCE) else {
                return self.end(&sender, too_slow()).await;
            };
            for change in &changes {
                seen = change.revision;
                if !subject.concerns(&change.change) {
                    continue;
                }
                let resource = change.resource();
                let known = looked.get(&resource).is_some_and(|as_of| seen <= *as_of);
                if known && change.happening == Happening::Modified {
                    continue;
                }
                let Ok(look) = self.0.hub.look(change, &self.0.plane).await else {
                    return self.end(&sender, shutting_down()).await;
                };
                looked.insert(resource, look.as_of);
                if let Some(view) = look.seen.as_ref().and_then(S::view) {
                    told = seen;
                    let (happening, view) = (change.happening, Some(view));
                    let event = Event { happening, view, revision: seen };
                    self.send(&sender, subject.event(event)).await?;
                }
            }
            looked.retain(|_, as_of| *as_of > seen);
            if !changes.is_empty() {
                continue;
            }
            tokio::select! {
                () = newer(&mut latest, seen) => {}
                () = stopped(&mut stopping) => {
                    return self.end(&sender, shutting_down()).await;
                }
                _ = bookmarks.tick() => {
                    if seen > told {
                        told = seen;
                        self.bookmark(&subject, seen, &sender).await?;
                    }
                }
                () = sender.closed() => return Err(Gone),
            }
        }
    }

    async fn bookmark<S: Subject>(
        &self,
        subject: &S,
        revision: u64,
        sender: &Sender<S>,
    ) -> Result<(), Gone> {
        let event = Event { happening: Happening::Modified, view: None, revision };
        self.send(sender, subject.event(event)).await
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
