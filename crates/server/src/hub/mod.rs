//! The hub: recent changes, numbered and shared by all watches.
//!
//! ```text
//! controller ──changes──► hub's task ──► the last changes of each owner ◄── every watch, by its revision
//!                             └────────► index by topic ◄────────────────────────────┘
//! ```
//!
//! Each tenant's changes are kept apart from others' and from those of no tenant, as many of each: what
//! one tenant does expires no revision of another. In all there is a limit, too: beyond it, the owner
//! with the most changes loses its oldest.
//!
//! Watches have no queues: a watch holds a revision and asks for what came after it. A slow watch falls
//! behind in the ring and gets an error; it delays nobody and costs no memory.
//!
//! A watch has one topic and is woken only for it. A topic is indexed while somebody watches it, so the
//! cost of a change depends on whom it concerns, not on the number of watches.
//!
//! A change only names the resource. The first watch that needs its new state reads it for all others;
//! several changes of one resource may thus be seen as one.
//!
//! Revisions are microseconds since 1970, forced to increase: they keep increasing across restarts, and
//! the difference of two does not reveal how much happened to other tenants.

mod ring;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use snic_controller::{BindingView, Change, Controller, DagView, LogEntry, RegionView};
use snic_domain::{CardId, DagName, DagUid, OperationId, RegionId, TenantId, VmId};
use tokio::sync::{OnceCell, broadcast, watch};

use crate::share::{Flow, Level};
use crate::shell::{ControlPlane, ShellError, wall_clock};

use ring::{KnownResources, Ring};

pub(crate) use ring::Kept;

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// A change with its revision.
#[derive(Debug, Clone)]
pub(crate) struct NumberedChange {
    pub revision: u64,
    pub change_kind: ChangeKind,
    pub change: Arc<Change>,
    cached: Arc<OnceCell<CachedView>>,
}

/// A resource's state as first read after a change, shared by all watches.
#[derive(Debug)]
pub(crate) struct CachedView {
    /// The state includes all changes up to this revision.
    pub as_of: u64,
    /// `None` where the resource is gone, which another change reports.
    pub view: Option<ResourceView>,
}

/// The state of a resource.
#[derive(Debug)]
pub(crate) enum ResourceView {
    Dag(DagView),
    Region(RegionView),
    Entry(LogEntry),
    Binding(BindingView),
}

/// Deleted tenants that a watch may lag behind before it has to start over.
const DELETED_KEPT: usize = 256;

/// The identity of a changed resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChangedResource {
    Dag(DagUid),
    Region(CardId, RegionId),
    Operation(OperationId),
    Entry(u64),
    Binding(VmId),
}

/// A kind of view that a watch can be of.
pub(crate) trait FromView: Send + Sync + 'static {
    /// The view, if it is of this kind.
    fn of(view: &ResourceView) -> Option<&Self>;
}

impl FromView for ResourceView {
    fn of(seen: &ResourceView) -> Option<&Self> {
        Some(seen)
    }
}

impl FromView for DagView {
    fn of(seen: &ResourceView) -> Option<&Self> {
        if let ResourceView::Dag(view) = seen { Some(view) } else { None }
    }
}

impl FromView for RegionView {
    fn of(seen: &ResourceView) -> Option<&Self> {
        if let ResourceView::Region(view) = seen { Some(view) } else { None }
    }
}

impl FromView for LogEntry {
    fn of(seen: &ResourceView) -> Option<&Self> {
        if let ResourceView::Entry(entry) = seen { Some(entry) } else { None }
    }
}

impl FromView for BindingView {
    fn of(seen: &ResourceView) -> Option<&Self> {
        if let ResourceView::Binding(view) = seen { Some(view) } else { None }
    }
}

/// The subject of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    /// DAGs of a tenant, or of all.
    Dags(Option<TenantId>),
    /// Regions of a card, or of all.
    Regions(Option<CardId>),
    /// Bindings of a tenant, or of all.
    Bindings(Option<TenantId>),
    /// One virtual machine's binding.
    Binding(VmId),
    /// Events visible to a tenant, or all.
    Events(Option<TenantId>),
    /// One operation.
    Operation(OperationId),
    /// Everything on the page for browsers.
    Page,
}

impl Topic {
    /// The tenant that it is about, if it is about one.
    pub const fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Dags(tenant) | Self::Bindings(tenant) | Self::Events(tenant) => tenant.as_ref(),
            Self::Regions(_) | Self::Binding(_) | Self::Operation(_) | Self::Page => None,
        }
    }

    /// Calls `visit` with each topic of a change.
    fn each(change: &Change, tell: &mut dyn FnMut(Self)) {
        match change {
            Change::Dag(DagName { tenant, .. }, _) => Self::of_dag(tenant, tell),
            Change::DagDeleted(dag) => Self::of_dag(&dag.name.tenant, tell),
            Change::Region(card, _) => {
                let of_card = Self::Regions(Some(card.clone()));
                [Self::Page, Self::Regions(None), of_card].into_iter().for_each(tell);
            }
            Change::Operation(id) => tell(Self::Operation(id.clone())),
            Change::TenantDeleted(_) => {} // It is not numbered.
            Change::Logged(entry) => {
                // Events without a tenant are for operators.
                let of_tenant = entry.tenant().map(|tenant| Self::Events(Some(tenant.clone())));
                [Self::Page, Self::Events(None)].into_iter().chain(of_tenant).for_each(tell);
            }
            Change::Binding(view) | Change::BindingForgotten(view) => {
                let spec = &view.record.spec;
                let of_tenant = Self::Bindings(Some(spec.tenant.clone()));
                let topics = [Self::Bindings(None), of_tenant, Self::Binding(spec.vm.clone())];
                topics.into_iter().for_each(tell);
            }
        }
    }

    fn of_dag(tenant: &TenantId, tell: &mut dyn FnMut(Self)) {
        let of_tenant = Self::Dags(Some(tenant.clone()));
        [Self::Page, Self::Dags(None), of_tenant].into_iter().for_each(tell);
    }

    fn is_of(&self, change: &Change) -> bool {
        let mut found = false;
        Self::each(change, &mut |topic| found |= topic == *self);
        found
    }
}

impl NumberedChange {
    pub fn resource(&self) -> ChangedResource {
        match &*self.change {
            Change::Dag(_, uid) => ChangedResource::Dag(*uid),
            Change::DagDeleted(dag) => ChangedResource::Dag(dag.uid),
            Change::Region(card, region) => ChangedResource::Region(card.clone(), *region),
            Change::Operation(id) => ChangedResource::Operation(id.clone()),
            Change::Logged(entry) => ChangedResource::Entry(entry.number),
            Change::Binding(view) | Change::BindingForgotten(view) => {
                ChangedResource::Binding(view.record.spec.vm.clone())
            }
            Change::TenantDeleted(_) => unreachable!("it ends watches and gets no number"),
        }
    }
}

/// Some changes after a revision are no longer kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RevisionExpired;

/// The recent changes, for all watches of the server.
#[derive(Debug)]
pub(crate) struct Hub {
    ring: Mutex<Ring>,
    /// The latest revision: of the last change, or the last one given to a caller.
    latest: AtomicU64,
    /// Source of the revisions that are given to callers: the time in microseconds, so that a
    /// revision does not reveal when other tenants changed something.
    clock: fn() -> u64,
    /// Tenants that were deleted: their watches end.
    deleted: broadcast::Sender<TenantId>,
}

/// A watch's position: a topic and a revision.
#[derive(Debug)]
pub(crate) struct Follower {
    hub: Arc<Hub>,
    topic: Topic,
    seen: u64,
    latest: watch::Receiver<u64>,
}

impl Hub {
    /// Starts collecting the changes of a control plane.
    ///
    /// # Errors
    /// The control plane has ended.
    pub async fn start(plane: &ControlPlane, kept: Kept) -> Result<Arc<Self>, ShellError> {
        let changes = plane.changes();
        let known = plane.read(Level::Watches, Flow::Server, KnownResources::of).await?;
        let hub = Arc::new(Self { clock: now, ..Self::new(known, now(), kept) });
        tokio::spawn(Arc::clone(&hub).collect(changes));
        Ok(hub)
    }

    fn new(known: KnownResources, floor: u64, kept: Kept) -> Self {
        let ring = Ring::new(known, floor, kept);
        let deleted = broadcast::Sender::new(DELETED_KEPT);
        Self { ring: Mutex::new(ring), latest: AtomicU64::new(floor), clock: || 0, deleted }
    }

    async fn collect(self: Arc<Self>, mut changes: broadcast::Receiver<Arc<Change>>) {
        loop {
            match changes.recv().await {
                Ok(change) => match &*change {
                    Change::TenantDeleted(id) => self.end_tenant(id.clone()),
                    _ => self.push(change, now()),
                },
                Err(broadcast::error::RecvError::Lagged(lost)) => {
                    tracing::warn!(
                        lost,
                        "changes were lost: they came faster than the hub could number them"
                    );
                    self.clear(now());
                }
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    fn push(&self, change: Arc<Change>, now: u64) {
        let mut ring = self.ring.lock();
        let revision = now.max(self.revision() + 1);
        ring.push(&change, revision);
        self.latest.store(revision, Ordering::Release);
        ring.wake(&change, revision);
    }

    /// After lost changes: every watch must start over.
    fn clear(&self, now: u64) {
        let mut ring = self.ring.lock();
        let revision = now.max(self.revision() + 1);
        self.latest.store(revision, Ordering::Release);
        ring.clear(revision);
    }

    /// Ends the watches of a tenant that was deleted: another tenant may get its name.
    fn end_tenant(&self, tenant: TenantId) {
        // Without watches there is nobody to notify.
        let _ = self.deleted.send(tenant);
    }

    /// The tenants that are deleted from now on.
    pub fn deleted(&self) -> broadcast::Receiver<TenantId> {
        self.deleted.subscribe()
    }

    /// The revision of the last change. State read from the control plane afterwards is at least as new.
    fn revision(&self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// A revision for a caller: the present time, not the last change, which may be another
    /// tenant's. State read from the control plane afterwards is at least as new.
    pub fn revision_now(&self) -> u64 {
        let _ring = self.ring.lock();
        self.advance()
    }

    /// A revision that no change has or will have. Only while the ring is locked: otherwise a
    /// change that is being numbered would count as seen.
    fn advance(&self) -> u64 {
        let revision = self.revision().max((self.clock)());
        self.latest.store(revision, Ordering::Release);
        revision
    }

    /// Follows a topic from a revision on.
    ///
    /// # Errors
    /// [`RevisionExpired`].
    pub fn follow(self: &Arc<Self>, topic: Topic, from: u64) -> Result<Follower, RevisionExpired> {
        let mut ring = self.ring.lock();
        if !ring.keeps(&topic, from) || from > self.revision() {
            return Err(RevisionExpired);
        }
        let latest = ring.subscribe(&topic);
        Ok(Follower { hub: Arc::clone(self), topic, seen: from, latest })
    }

    /// Follows a topic from now on.
    pub fn follow_from_now(self: &Arc<Self>, topic: Topic) -> Follower {
        let mut ring = self.ring.lock();
        let latest = ring.subscribe(&topic);
        Follower { hub: Arc::clone(self), topic, seen: self.advance(), latest }
    }

    /// The state of a changed resource, read at most once per change.
    ///
    /// # Errors
    /// The control plane has ended.
    pub async fn cached_view<'a>(
        &self,
        change: &'a NumberedChange,
        plane: &ControlPlane,
    ) -> Result<&'a CachedView, ShellError> {
        let read = || async {
            let mut as_of = self.revision();
            let view = match &*change.change {
                Change::Dag(name, uid) => {
                    let (name, uid) = (name.clone(), *uid);
                    // A tenant with many changes delays only the changes of that tenant.
                    let flow = Flow::Tenant(name.tenant.clone());
                    let query = move |controller: &Controller| controller.dag_view(&name);
                    let dag = plane.read(Level::Watches, flow, query);
                    let dag = dag.await?;
                    dag.filter(|dag| dag.uid == uid).map(ResourceView::Dag)
                }
                Change::DagDeleted(dag) => Some(ResourceView::Dag(DagView::clone(dag))),
                Change::Region(card, region) => {
                    let (card, region) = (card.clone(), *region);
                    let query =
                        move |controller: &Controller| controller.region_view(&card, region);
                    let read = plane.read(Level::Watches, Flow::Server, query);
                    read.await?.map(ResourceView::Region)
                }
                Change::Logged(entry) => Some(ResourceView::Entry(LogEntry::clone(entry))),
                // A binding has few states, and each is reported.
                Change::Binding(view) | Change::BindingForgotten(view) => {
                    as_of = change.revision;
                    Some(ResourceView::Binding(BindingView::clone(view)))
                }
                Change::Operation(_) | Change::TenantDeleted(_) => None,
            };
            Ok(CachedView { as_of, view })
        };
        change.cached.get_or_try_init(read).await
    }
}

impl Follower {
    /// All changes up to this revision were returned.
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// The next changes of the topic, oldest first, at most `limit` (at least 1). Afterwards they count
    /// as seen; without any, so do all changes of other topics.
    ///
    /// # Errors
    /// [`RevisionExpired`].
    pub fn next(&mut self, limit: usize) -> Result<Vec<NumberedChange>, RevisionExpired> {
        // Until `seen` is set: otherwise a change in between would count as seen.
        let ring = self.hub.ring.lock();
        let next = ring.after(&self.topic, self.seen, limit)?;
        self.seen = next.last().map_or_else(|| self.hub.advance(), |change| change.revision);
        Ok(next)
    }

    /// Waits for an unseen change of the topic.
    pub async fn changed(&mut self) {
        let seen = self.seen;
        // The hub outlives its followers.
        let _ = self.latest.wait_for(|revision| *revision > seen).await;
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.hub.ring.lock().leave(&self.topic);
    }
}

fn now() -> u64 {
    wall_clock().as_nanos() / 1_000
}

#[cfg(test)]
mod tests;
