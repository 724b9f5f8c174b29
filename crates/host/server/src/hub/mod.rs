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
//! Revisions come from the controller, which stores them with what was changed. They are microseconds
//! since 1970, forced to increase: they keep increasing across restarts, and the difference of two does
//! not reveal how much happened to other tenants. What was changed before this run of the server is
//! not here: a watch that resumes from before asks the controller.

mod ring;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use snic_controller::{
    BindingView, BitstreamView, CardView, Change, Controller, DagView, LogEntry, NtView,
    OperationView, RegionView, ResourceKey, ResourceKind, RuleView, TenantView,
};
use snic_domain::{Caller, CardId, DagName, DagUid, OperationId, RegionId, TenantId, VmId};
use snic_front::share::{CallerFlow, CallerLevel};
use snic_front::wall_clock;
use tokio::sync::{OnceCell, broadcast, watch};

use crate::shell::{ControlPlane, Notice, ShellError};

use ring::{KnownResources, Ring};

pub(crate) use ring::RetainedChanges;

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
    Tenant(TenantView),
    NtType(NtView),
    Bitstream(BitstreamView),
    Card(CardView),
    Rule(RuleView),
    Operation(OperationView),
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
    /// Resource of a kind whose resources are known by name.
    Named(ResourceKey),
}

/// A kind of view that a watch can be of.
pub(crate) trait FromView: Send + Sync + 'static {
    /// The view, if it is of this kind.
    fn of(view: &ResourceView) -> Option<&Self>;
    /// The resource's name, if its changes are known over a restart.
    fn name(&self) -> Option<ResourceKey>;
    fn resource(&self) -> Option<ChangedResource> {
        self.name().map(ChangedResource::Named)
    }
}

impl FromView for ResourceView {
    fn of(seen: &ResourceView) -> Option<&Self> {
        Some(seen)
    }

    fn name(&self) -> Option<ResourceKey> {
        None
    }
}

impl FromView for LogEntry {
    fn of(seen: &ResourceView) -> Option<&Self> {
        if let ResourceView::Entry(entry) = seen { Some(entry) } else { None }
    }

    fn name(&self) -> Option<ResourceKey> {
        None
    }
}

impl FromView for DagView {
    fn of(seen: &ResourceView) -> Option<&Self> {
        if let ResourceView::Dag(view) = seen { Some(view) } else { None }
    }

    fn name(&self) -> Option<ResourceKey> {
        Some(ResourceKey::Dag(self.name.clone()))
    }

    fn resource(&self) -> Option<ChangedResource> {
        Some(ChangedResource::Dag(self.uid))
    }
}

impl FromView for RegionView {
    fn of(seen: &ResourceView) -> Option<&Self> {
        if let ResourceView::Region(view) = seen { Some(view) } else { None }
    }

    fn name(&self) -> Option<ResourceKey> {
        Some(ResourceKey::Region(self.card.clone(), self.region))
    }

    fn resource(&self) -> Option<ChangedResource> {
        Some(ChangedResource::Region(self.card.clone(), self.region))
    }
}

/// Views of resources that are known by name.
macro_rules! named {
    ($($view:ty, $variant:ident, $this:ident => $id:expr;)*) => {$(
        impl FromView for $view {
            fn of(seen: &ResourceView) -> Option<&Self> {
                if let ResourceView::$variant(view) = seen { Some(view) } else { None }
            }

            fn name(&self) -> Option<ResourceKey> {
                let $this = self;
                Some(ResourceKey::$variant($id.clone()))
            }
        }
    )*};
}

named! {
    BindingView, Binding, this => this.record.spec.vm;
    TenantView, Tenant, this => this.tenant.id;
    NtView, NtType, this => this.nt.id;
    BitstreamView, Bitstream, this => this.bitstream.id;
    CardView, Card, this => this.card;
    RuleView, Rule, this => this.rule.id;
    OperationView, Operation, this => this.record.id;
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
    Operation(OperationId),
    /// Resources of another kind: of a tenant with what it sees of the provider's, or all.
    Resources(ResourceKind, Option<TenantId>),
    /// Everything on the page for browsers.
    Page,
}

impl Topic {
    /// The tenant that it is about, if it is about one.
    pub const fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Dags(tenant)
            | Self::Bindings(tenant)
            | Self::Events(tenant)
            | Self::Resources(_, tenant) => tenant.as_ref(),
            Self::Regions(_) | Self::Binding(_) | Self::Operation(_) | Self::Page => None,
        }
    }

    /// The kind of its resources, if their changes are known over a restart.
    pub const fn kind(&self) -> Option<ResourceKind> {
        match self {
            Self::Dags(_) => Some(ResourceKind::Dag),
            Self::Bindings(_) => Some(ResourceKind::Binding),
            Self::Regions(_) => Some(ResourceKind::Region),
            Self::Resources(kind, _) => Some(*kind),
            Self::Events(_) | Self::Binding(_) | Self::Operation(_) | Self::Page => None,
        }
    }

    /// Whether a resource of its kind and tenant is of it.
    pub fn has(&self, name: &ResourceKey) -> bool {
        match (self, name) {
            (Self::Regions(Some(card)), ResourceKey::Region(of, _)) => card == of,
            _ => true,
        }
    }

    /// Whether every tenant that watches this kind is told of a change.
    fn is_for_all(&self, change: &Change) -> bool {
        let (Change::Resource { name, tenant: None, .. }
        | Change::ResourceDeleted { name, tenant: None }) = change
        else {
            return false;
        };
        name.kind().is_shared()
            && matches!(self, Self::Resources(kind, Some(_)) if *kind == name.kind())
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
            Change::Resource { name, tenant, .. } | Change::ResourceDeleted { name, tenant } => {
                let kind = name.kind();
                match kind {
                    // Regions have a topic of their own.
                    ResourceKind::Region => {
                        if let ResourceKey::Region(card, _) = name {
                            let of_card = Self::Regions(Some(card.clone()));
                            [Self::Regions(None), of_card].into_iter().for_each(tell);
                        }
                    }
                    _ => {
                        let own = tenant.clone().map(|own| Self::Resources(kind, Some(own)));
                        [Self::Resources(kind, None)].into_iter().chain(own).for_each(tell);
                    }
                }
            }
            Change::TenantDeleted(_) => {} // It is not numbered.
            Change::Logged(entry) => {
                // Events without a tenant are for operators.
                let of_tenant = entry.tenant().map(|tenant| Self::Events(Some(tenant.clone())));
                // Of details operators get the sum.
                let of_all = [Self::Page, Self::Events(None)].into_iter();
                of_all.filter(|_| !entry.is_detail).chain(of_tenant).for_each(tell);
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
        let mut found = self.is_for_all(change);
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
                ChangedResource::Named(ResourceKey::Binding(view.record.spec.vm.clone()))
            }
            Change::Resource { name, .. } | Change::ResourceDeleted { name, .. } => match name {
                ResourceKey::Region(card, region) => ChangedResource::Region(card.clone(), *region),
                name => ChangedResource::Named(name.clone()),
            },
            Change::TenantDeleted(_) => unreachable!("it ends watches and gets no number"),
        }
    }
}

/// Some changes after a revision are no longer kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RevisionExpired;

/// Why a watch cannot resume from what the hub keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResumeRefusal {
    /// The revision is of an earlier run of the server.
    EarlierRun,
    /// Changes after it were dropped, or nobody was given it.
    Expired,
}

/// Most by which a revision may be ahead of the clock, in microseconds: one of many changes at once.
const AHEAD_MAX: u64 = 1_000_000;

/// The recent changes, for all watches of the server.
#[derive(Debug)]
pub(crate) struct Hub {
    ring: Mutex<Ring>,
    /// The state that the hub began with has all changes up to this revision.
    start: u64,
    /// All changes up to this revision are here.
    latest: AtomicU64,
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
    pub async fn start(
        plane: &ControlPlane,
        kept: RetainedChanges,
    ) -> Result<Arc<Self>, ShellError> {
        let changes = plane.changes();
        let (known, floor) =
            plane.read_at(CallerLevel::Watches, CallerFlow::Server, KnownResources::of).await?;
        let hub = Arc::new(Self::new(known, floor, kept));
        tokio::spawn(Arc::clone(&hub).collect(changes));
        Ok(hub)
    }

    fn new(known: KnownResources, floor: u64, kept: RetainedChanges) -> Self {
        let ring = Ring::new(known, floor, kept);
        let deleted = broadcast::Sender::new(DELETED_KEPT);
        Self { ring: Mutex::new(ring), start: floor, latest: AtomicU64::new(floor), deleted }
    }

    async fn collect(self: Arc<Self>, mut changes: broadcast::Receiver<Notice>) {
        let mut is_missing = false;
        loop {
            match changes.recv().await {
                Ok(notice) => {
                    let (Notice::Change(revision, _) | Notice::Complete(revision)) = &notice;
                    if std::mem::take(&mut is_missing) {
                        self.clear(revision.saturating_sub(1));
                    }
                    self.take(notice);
                }
                Err(broadcast::error::RecvError::Lagged(lost)) => {
                    tracing::warn!(
                        lost,
                        "changes were lost: they came faster than the hub could take them in"
                    );
                    is_missing = true;
                }
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    fn take(&self, notice: Notice) {
        match notice {
            Notice::Change(revision, change) => match &*change {
                Change::TenantDeleted(id) => self.end_tenant(id.clone()),
                _ => self.push(change, revision),
            },
            Notice::Complete(revision) => {
                let _ring = self.ring.lock();
                self.advance(revision);
            }
        }
    }

    fn push(&self, change: Arc<Change>, revision: u64) {
        let mut ring = self.ring.lock();
        if revision <= self.start {
            return;
        }
        ring.push(&change, revision);
        self.advance(revision);
        ring.wake(&change, revision);
    }

    /// After lost changes, the last of which may have this revision: every watch must start over.
    fn clear(&self, revision: u64) {
        let mut ring = self.ring.lock();
        self.advance(revision);
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

    /// All changes up to this revision are here. Only while the ring is locked it stays so.
    fn revision(&self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// All changes up to this revision are here. Only while the ring is locked: otherwise a change
    /// that is being taken in would count as seen.
    fn advance(&self, revision: u64) {
        self.latest.fetch_max(revision, Ordering::AcqRel);
    }

    /// Follows a topic from a revision on.
    ///
    /// # Errors
    /// [`ResumeRefusal`].
    pub fn follow(self: &Arc<Self>, topic: Topic, from: u64) -> Result<Follower, ResumeRefusal> {
        let mut ring = self.ring.lock();
        if from < self.start {
            return Err(ResumeRefusal::EarlierRun);
        }
        if !ring.keeps(&topic, from) || from > self.revision().max(now()) + AHEAD_MAX {
            return Err(ResumeRefusal::Expired);
        }
        let latest = ring.subscribe(&topic);
        Ok(Follower { hub: Arc::clone(self), topic, seen: from, latest })
    }

    /// Follows a topic from now on.
    pub fn follow_from_now(self: &Arc<Self>, topic: Topic) -> Follower {
        let mut ring = self.ring.lock();
        let latest = ring.subscribe(&topic);
        Follower { hub: Arc::clone(self), topic, seen: self.revision(), latest }
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
            let wanted = Arc::clone(&change.change);
            let query = move |controller: &Controller| view_of(controller, &wanted);
            // A tenant with many changes delays only the changes of that tenant.
            let flow = match &*change.change {
                Change::Dag(DagName { tenant, .. }, _)
                | Change::Resource { tenant: Some(tenant), .. } => {
                    CallerFlow::Tenant(tenant.clone())
                }
                Change::Region(..) | Change::Resource { tenant: None, .. } => CallerFlow::Server,
                told => {
                    let view = reported_with(told);
                    return Ok(CachedView { as_of: change.revision, view });
                }
            };
            let (view, as_of) = plane.read_at(CallerLevel::Watches, flow, query).await?;
            Ok(CachedView { as_of, view })
        };
        change.cached.get_or_try_init(read).await
    }
}

/// Resource that a change itself tells: as it was or, where it has few states and each is
/// reported, as it is.
fn reported_with(change: &Change) -> Option<ResourceView> {
    match change {
        Change::DagDeleted(dag) => Some(ResourceView::Dag(DagView::clone(dag))),
        Change::Logged(entry) => Some(ResourceView::Entry(LogEntry::clone(entry))),
        Change::Binding(view) | Change::BindingForgotten(view) => {
            Some(ResourceView::Binding(BindingView::clone(view)))
        }
        _ => None,
    }
}

/// The resource of a change as it is now, as an operator sees it.
fn view_of(controller: &Controller, change: &Change) -> Option<ResourceView> {
    let reader = Caller::Operator("watches".into());
    match change {
        Change::Dag(name, uid) => {
            let dag = controller.dag_view(name).filter(|dag| dag.uid == *uid);
            dag.map(ResourceView::Dag)
        }
        Change::Region(card, region) => {
            controller.region_view(card, *region).map(ResourceView::Region)
        }
        Change::Resource { name, .. } => match name {
            ResourceKey::Tenant(id) => controller.tenant_view(id).map(ResourceView::Tenant),
            ResourceKey::NtType(id) => controller.nt_type(&reader, id).map(ResourceView::NtType),
            ResourceKey::Bitstream(id) => {
                controller.bitstream(&reader, id).map(ResourceView::Bitstream)
            }
            ResourceKey::Card(id) => controller.card_view(id).map(ResourceView::Card),
            ResourceKey::Rule(id) => controller.rule_view(id).map(ResourceView::Rule),
            ResourceKey::Operation(id) => {
                controller.operation(&reader, id).map(ResourceView::Operation)
            }
            // They have changes of their own.
            ResourceKey::Dag(_) | ResourceKey::Region(..) | ResourceKey::Binding(_) => None,
        },
        _ => None,
    }
}

impl Follower {
    /// All changes up to this revision were returned.
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// All changes up to this revision were seen elsewhere.
    pub fn skip_to(&mut self, revision: u64) {
        self.seen = self.seen.max(revision);
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
        let all = self.seen.max(self.hub.revision());
        self.seen = next.last().map_or(all, |change| change.revision);
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
