//! The hub: recent changes, numbered and shared by all watches.
//!
//! ```text
//! controller ──changes──► hub's task ──► ring of the last changes ◄── every watch, by its revision
//!                             └────────► index by topic ◄───────────────────────┘
//! ```
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

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use snic_controller::{BindingView, Change, Controller, DagView, LogEntry, RegionView};
use snic_domain::{CardId, DagName, DagUid, OperationId, RegionId, TenantId, VmId};
use tokio::sync::{OnceCell, broadcast, watch};

use crate::share::{Flow, Level};
use crate::shell::{ControlPlane, ShellError, wall_clock};

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
pub(crate) enum Resource {
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

    /// Calls `tell` with each topic of a change.
    fn each(change: &Change, tell: &mut dyn FnMut(Self)) {
        match change {
            Change::Dag(DagName { tenant, .. }, _) => Self::of_dag(tenant, tell),
            Change::DagDeleted(dag) => Self::of_dag(&dag.name.tenant, tell),
            Change::Region(card, _) => {
                let of_card = Self::Regions(Some(card.clone()));
                [Self::Page, Self::Regions(None), of_card].into_iter().for_each(tell);
            }
            Change::Operation(id) => tell(Self::Operation(id.clone())),
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
    pub fn resource(&self) -> Resource {
        match &*self.change {
            Change::Dag(_, uid) => Resource::Dag(*uid),
            Change::DagDeleted(dag) => Resource::Dag(dag.uid),
            Change::Region(card, region) => Resource::Region(card.clone(), *region),
            Change::Operation(id) => Resource::Operation(id.clone()),
            Change::Logged(entry) => Resource::Entry(entry.number),
            Change::Binding(view) | Change::BindingForgotten(view) => {
                Resource::Binding(view.record.spec.vm.clone())
            }
        }
    }
}

/// The changes after a revision are no longer all kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RevisionExpired;

/// The existing resources, to distinguish added from modified.
#[derive(Debug, Default)]
struct KnownResources {
    dags: BTreeSet<DagUid>,
    regions: BTreeSet<(CardId, RegionId)>,
    bindings: BTreeSet<VmId>,
}

impl KnownResources {
    fn of(controller: &Controller) -> Self {
        let dags = controller.dags_after(None, None).map(|dag| dag.uid).collect();
        let of_card = |card: snic_controller::CardView| {
            card.regions.into_iter().map(move |(region, _)| (card.card.clone(), region))
        };
        let bindings = controller.bindings_after(None, None).map(|view| view.record.spec.vm);
        Self {
            dags,
            regions: controller.cards().flat_map(of_card).collect(),
            bindings: bindings.collect(),
        }
    }

    fn note(&mut self, change: &Change) -> ChangeKind {
        let new = match change {
            Change::Dag(_, uid) => self.dags.insert(*uid),
            Change::Region(card, region) => self.regions.insert((card.clone(), *region)),
            Change::DagDeleted(dag) => {
                self.dags.remove(&dag.uid);
                return ChangeKind::Deleted;
            }
            Change::Logged(_) => true,
            Change::Binding(view) => self.bindings.insert(view.record.spec.vm.clone()),
            Change::BindingForgotten(view) => {
                self.bindings.remove(&view.record.spec.vm);
                return ChangeKind::Deleted;
            }
            Change::Operation(_) => false,
        };
        if new { ChangeKind::Added } else { ChangeKind::Modified }
    }
}

/// The changes of one topic.
#[derive(Debug)]
struct TopicIndex {
    /// Revisions in the ring.
    revisions: VecDeque<u64>,
    /// The last one that was dropped; 0 if none.
    lost: u64,
    /// The latest one.
    latest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Ring {
    /// All changes after this revision are kept.
    floor: u64,
    /// Most changes kept.
    kept: usize,
    changes: VecDeque<NumberedChange>,
    topics: HashMap<Topic, TopicIndex>,
    known: KnownResources,
}

impl Ring {
    /// Calls `act` for each watched topic of a change.
    fn each_topic(&mut self, change: &Change, mut act: impl FnMut(&mut TopicIndex)) {
        if self.topics.is_empty() {
            return;
        }
        Topic::each(change, &mut |topic| {
            if let Some(index) = self.topics.get_mut(&topic) {
                act(index);
            }
        });
    }

    /// The index of a topic; a new one is built from the ring.
    fn topic_index(&mut self, topic: &Topic) -> &mut TopicIndex {
        let changes = &self.changes;
        self.topics.entry(topic.clone()).or_insert_with(|| {
            let of = changes.iter().filter(|change| topic.is_of(&change.change));
            let revisions: VecDeque<u64> = of.map(|change| change.revision).collect();
            let latest = watch::Sender::new(revisions.back().copied().unwrap_or(0));
            TopicIndex { revisions, lost: 0, latest }
        })
    }
}

/// The recent changes, for all watches of the server.
#[derive(Debug)]
pub(crate) struct Hub {
    ring: Mutex<Ring>,
    /// The revision of the last change.
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
    pub async fn start(plane: &ControlPlane, kept: usize) -> Result<Arc<Self>, ShellError> {
        let changes = plane.changes();
        let known = plane.read((Level::Watches, Flow::Server), KnownResources::of).await?;
        let hub = Arc::new(Self::new(known, now(), kept));
        tokio::spawn(Arc::clone(&hub).collect(changes));
        Ok(hub)
    }

    fn new(known: KnownResources, floor: u64, kept: usize) -> Self {
        let (changes, topics) = (VecDeque::new(), HashMap::new());
        let ring = Ring { floor, kept, changes, topics, known };
        let deleted = broadcast::Sender::new(DELETED_KEPT);
        Self { ring: Mutex::new(ring), latest: AtomicU64::new(floor), deleted }
    }

    async fn collect(self: Arc<Self>, mut changes: broadcast::Receiver<Arc<Change>>) {
        loop {
            match changes.recv().await {
                Ok(change) => self.push(change, now()),
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
        let change_kind = ring.known.note(&change);
        if ring.changes.len() == ring.kept
            && let Some(oldest) = ring.changes.pop_front()
        {
            ring.floor = oldest.revision;
            ring.each_topic(&oldest.change, |index| {
                index.revisions.pop_front();
                index.lost = oldest.revision;
            });
        }
        let (about, cached) = (Arc::clone(&change), Arc::default());
        ring.changes.push_back(NumberedChange { revision, change_kind, change, cached });
        self.latest.store(revision, Ordering::Release);
        ring.each_topic(&about, |index| {
            index.revisions.push_back(revision);
            index.latest.send_replace(revision);
        });
    }

    /// After lost changes: every watch must start over.
    fn clear(&self, now: u64) {
        let mut ring = self.ring.lock();
        let revision = now.max(self.revision() + 1);
        ring.changes.clear();
        ring.floor = revision;
        self.latest.store(revision, Ordering::Release);
        for index in ring.topics.values_mut() {
            index.revisions.clear();
            index.lost = revision;
            index.latest.send_replace(revision);
        }
    }

    /// Ends the watches of a tenant that was deleted: another tenant may get its name.
    pub fn end_tenant(&self, tenant: TenantId) {
        // Without a watch nobody is told.
        let _ = self.deleted.send(tenant);
    }

    /// The tenants that are deleted from now on.
    pub fn deleted(&self) -> broadcast::Receiver<TenantId> {
        self.deleted.subscribe()
    }

    /// The revision of the last change. State read from the control plane afterwards is at least as new.
    pub fn revision(&self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// Follows a topic from a revision on.
    ///
    /// # Errors
    /// [`RevisionExpired`].
    pub fn follow(self: &Arc<Self>, topic: Topic, from: u64) -> Result<Follower, RevisionExpired> {
        let mut ring = self.ring.lock();
        if from < ring.floor || from > self.revision() {
            return Err(RevisionExpired);
        }
        let latest = ring.topic_index(&topic).latest.subscribe();
        Ok(Follower { hub: Arc::clone(self), topic, seen: from, latest })
    }

    /// Follows a topic from now on.
    pub fn follow_from_now(self: &Arc<Self>, topic: Topic) -> Follower {
        let mut ring = self.ring.lock();
        let latest = ring.topic_index(&topic).latest.subscribe();
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
            let mut as_of = self.revision();
            let view = match &*change.change {
                Change::Dag(name, uid) => {
                    let (name, uid) = (name.clone(), *uid);
                    // A tenant that changes much delays only what is told of itself.
                    let share = (Level::Watches, Flow::Tenant(name.tenant.clone()));
                    let dag = plane.read(share, move |controller| controller.dag_view(&name));
                    let dag = dag.await?;
                    dag.filter(|dag| dag.uid == uid).map(ResourceView::Dag)
                }
                Change::DagDeleted(dag) => Some(ResourceView::Dag(DagView::clone(dag))),
                Change::Region(card, region) => {
                    let (card, region) = (card.clone(), *region);
                    let query =
                        move |controller: &Controller| controller.region_view(&card, region);
                    let share = (Level::Watches, Flow::Server);
                    plane.read(share, query).await?.map(ResourceView::Region)
                }
                Change::Logged(entry) => Some(ResourceView::Entry(LogEntry::clone(entry))),
                // A binding has few states, and each is reported.
                Change::Binding(view) | Change::BindingForgotten(view) => {
                    as_of = change.revision;
                    Some(ResourceView::Binding(BindingView::clone(view)))
                }
                Change::Operation(_) => None,
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
        let mut ring = self.hub.ring.lock();
        let Ring { changes, topics, .. } = &mut *ring;
        // The index exists as long as somebody follows the topic.
        let Some(index) = topics.get(&self.topic) else { return Err(RevisionExpired) };
        if self.seen < index.lost {
            return Err(RevisionExpired);
        }
        let first = index.revisions.partition_point(|revision| *revision <= self.seen);
        let next = index.revisions.range(first..).take(limit).filter_map(|revision| {
            let at = changes.partition_point(|change| change.revision < *revision);
            changes.get(at).cloned()
        });
        let next: Vec<NumberedChange> = next.collect();
        self.seen = next.last().map_or_else(|| self.hub.revision(), |change| change.revision);
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
        let mut ring = self.hub.ring.lock();
        let is_last = |index: &TopicIndex| index.latest.receiver_count() == 1;
        if ring.topics.get(&self.topic).is_some_and(is_last) {
            ring.topics.remove(&self.topic);
        }
    }
}

fn now() -> u64 {
    wall_clock().as_nanos() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of an operation.
    fn change(id: &str) -> Arc<Change> {
        Arc::new(Change::Operation(operation(id)))
    }

    fn operation(id: &str) -> OperationId {
        OperationId::new(id).expect("valid")
    }

    fn hub(floor: u64, kept: usize) -> Arc<Hub> {
        Arc::new(Hub::new(KnownResources::default(), floor, kept))
    }

    fn of(id: &str) -> Topic {
        Topic::Operation(operation(id))
    }

    fn revisions(hub: &Arc<Hub>, after: u64) -> Result<Vec<u64>, RevisionExpired> {
        seen(&mut hub.follow(of("op"), after)?)
    }

    fn seen(follower: &mut Follower) -> Result<Vec<u64>, RevisionExpired> {
        Ok(follower.next(usize::MAX)?.iter().map(|change| change.revision).collect())
    }

    #[test]
    fn revisions_increase_even_if_the_clock_does_not() {
        let hub = hub(1_000, 8);
        for now in [1_000, 900, 5_000, 5_000] {
            hub.push(change("op"), now);
        }
        assert_eq!(revisions(&hub, 1_000), Ok(vec![1_001, 1_002, 5_000, 5_001]));
        assert_eq!(revisions(&hub, 1_002), Ok(vec![5_000, 5_001]));
        assert_eq!(revisions(&hub, 3_000), Ok(vec![5_000, 5_001]), "between two");
        assert_eq!(revisions(&hub, 5_001), Ok(vec![]));
        assert_eq!(hub.revision(), 5_001);
        let mut follower = hub.follow(of("op"), 1_000).expect("all is kept");
        assert_eq!(follower.next(2).map(|changes| changes.len()), Ok(2));
        assert_eq!(follower.seen(), 1_002);
        assert_eq!(seen(&mut follower), Ok(vec![5_000, 5_001]), "the rest");
    }

    #[test]
    fn revisions_outside_the_ring_have_expired() {
        let hub = hub(10, 2);
        assert_eq!(revisions(&hub, 9), Err(RevisionExpired), "of an earlier run");
        assert_eq!(revisions(&hub, 11), Err(RevisionExpired), "of nobody");
        for now in [20, 30, 40] {
            hub.push(change("op"), now);
        }
        assert_eq!(revisions(&hub, 10), Err(RevisionExpired));
        assert_eq!(revisions(&hub, 20), Ok(vec![30, 40]), "nothing after it is lost");
        hub.clear(50);
        assert_eq!(revisions(&hub, 40), Err(RevisionExpired));
        assert_eq!(revisions(&hub, 50), Ok(vec![]));
        hub.push(change("op"), 60);
        assert_eq!(revisions(&hub, 50), Ok(vec![60]));
    }

    #[test]
    fn a_follower_loses_only_changes_of_its_topic() {
        let hub = hub(10, 2);
        let mut quiet = hub.follow_from_now(of("quiet"));
        let mut busy = hub.follow_from_now(of("busy"));
        hub.push(change("quiet"), 20);
        for now in [30, 40] {
            hub.push(change("busy"), now);
        }
        assert_eq!(seen(&mut quiet), Err(RevisionExpired), "its own change was dropped");
        assert_eq!(seen(&mut busy), Ok(vec![30, 40]));
        let mut quiet = hub.follow_from_now(of("quiet"));
        for now in [50, 60, 70] {
            hub.push(change("busy"), now);
        }
        assert_eq!(seen(&mut quiet), Ok(vec![]), "changes of other topics do not matter");
        assert_eq!(quiet.seen(), 70, "and it may resume from the last of them");
        assert_eq!(seen(&mut busy), Err(RevisionExpired), "one of three is not kept");
        hub.clear(80);
        assert_eq!(seen(&mut quiet), Err(RevisionExpired), "nobody knows what was lost");
    }

    #[test]
    fn an_unwatched_topic_has_no_index() {
        let hub = hub(10, 2);
        let (first, second) = (hub.follow_from_now(of("a")), hub.follow_from_now(of("a")));
        let topics = || hub.ring.lock().topics.len();
        assert_eq!(topics(), 1);
        drop(first);
        assert_eq!(topics(), 1);
        drop(second);
        assert_eq!(topics(), 0);
    }

    #[tokio::test]
    async fn a_follower_is_woken_only_for_its_topic() {
        let hub = hub(10, 4);
        let mut follower = hub.follow_from_now(of("op"));
        hub.push(change("another"), 20);
        let waiting = tokio::time::timeout(std::time::Duration::ZERO, follower.changed());
        waiting.await.expect_err("that is another's");
        hub.push(change("op"), 30);
        follower.changed().await;
        assert_eq!(seen(&mut follower), Ok(vec![30]));
    }
}
