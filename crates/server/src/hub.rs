//! Changes for those who watch: numbered, kept for a while, shared.
//!
//! ```text
//! controller ──changes──► hub's task ──► ring of the last changes ◄── every watch, by its revision
//!                             └────────► lanes: where those of one topic are ◄──┘
//! ```
//!
//! There is no queue for each watch: a watch holds a revision and asks for what came after it. A
//! slow one falls behind in the ring and is told so; it holds up nobody and costs no memory.
//!
//! A watch is of one topic, and is woken for that alone. A topic has a lane while somebody watches
//! it, so what a change costs depends on who it concerns, and not on how many watch.
//!
//! A change names what is different. The first watch that wants to know how it is now reads it, for
//! all others too; several changes of one resource may so be seen as one.
//!
//! Revisions are microseconds since 1970, made to rise: they go on rising over a restart, and the
//! difference of two tells nobody how much happened to others.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use snic_controller::{BindingView, Change, Controller, DagView, LogEntry, RegionView};
use snic_domain::{CardId, DagName, DagUid, OperationId, RegionId, TenantId, VmId};
use tokio::sync::{OnceCell, broadcast, watch};

use crate::shell::{ControlPlane, ShellError, wall_clock};

/// What happened to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Happening {
    Added,
    Modified,
    Deleted,
}

/// A change with its number.
#[derive(Debug, Clone)]
pub(crate) struct Numbered {
    pub revision: u64,
    pub happening: Happening,
    pub change: Arc<Change>,
    seen: Arc<OnceCell<Look>>,
}

/// What the first look at a resource after a change found.
#[derive(Debug)]
pub(crate) struct Look {
    /// The changes up to this revision had come before it.
    pub as_of: u64,
    /// `None` where it is gone, which another change says.
    pub seen: Option<Seen>,
}

/// A resource, as it was when somebody looked.
#[derive(Debug)]
pub(crate) enum Seen {
    Dag(DagView),
    Region(RegionView),
    Entry(LogEntry),
    Binding(BindingView),
}

/// Which resource a change is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    Dag(DagUid),
    Region(CardId, RegionId),
    Operation(OperationId),
    Entry(u64),
    Binding(VmId),
}

/// What a view of a resource is found by in what was seen.
pub(crate) trait Viewed: Send + Sync + 'static {
    /// The view, where it is one of these.
    fn of(seen: &Seen) -> Option<&Self>;
}

impl Viewed for Seen {
    fn of(seen: &Seen) -> Option<&Self> {
        Some(seen)
    }
}

impl Viewed for DagView {
    fn of(seen: &Seen) -> Option<&Self> {
        if let Seen::Dag(view) = seen { Some(view) } else { None }
    }
}

impl Viewed for RegionView {
    fn of(seen: &Seen) -> Option<&Self> {
        if let Seen::Region(view) = seen { Some(view) } else { None }
    }
}

impl Viewed for LogEntry {
    fn of(seen: &Seen) -> Option<&Self> {
        if let Seen::Entry(entry) = seen { Some(entry) } else { None }
    }
}

impl Viewed for BindingView {
    fn of(seen: &Seen) -> Option<&Self> {
        if let Seen::Binding(view) = seen { Some(view) } else { None }
    }
}

/// What somebody watches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    /// DAGs of a tenant, or of all.
    Dags(Option<TenantId>),
    /// Regions of a card, or of all.
    Regions(Option<CardId>),
    /// Bindings of a tenant, or of all.
    Bindings(Option<TenantId>),
    /// One machine's binding.
    Binding(VmId),
    /// Events that a tenant may see, or all.
    Events(Option<TenantId>),
    /// One operation.
    Operation(OperationId),
    /// What the page for browsers shows.
    Page,
}

impl Topic {
    /// All topics of a change.
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
                // What is of no tenant is for operators.
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

impl Numbered {
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

/// What came after a revision is not all kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired;

/// What exists, to tell a new resource from one that changed.
#[derive(Debug, Default)]
struct Known {
    dags: BTreeSet<DagUid>,
    regions: BTreeSet<(CardId, RegionId)>,
    bindings: BTreeSet<VmId>,
}

impl Known {
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

    fn note(&mut self, change: &Change) -> Happening {
        let new = match change {
            Change::Dag(_, uid) => self.dags.insert(*uid),
            Change::Region(card, region) => self.regions.insert((card.clone(), *region)),
            Change::DagDeleted(dag) => {
                self.dags.remove(&dag.uid);
                return Happening::Deleted;
            }
            Change::Logged(_) => true,
            Change::Binding(view) => self.bindings.insert(view.record.spec.vm.clone()),
            Change::BindingForgotten(view) => {
                self.bindings.remove(&view.record.spec.vm);
                return Happening::Deleted;
            }
            Change::Operation(_) => false,
        };
        if new { Happening::Added } else { Happening::Modified }
    }
}

/// Where the changes of a topic are.
#[derive(Debug)]
struct Lane {
    /// Those in the ring.
    revisions: VecDeque<u64>,
    /// The last one that is not kept any more; 0 before the first.
    lost: u64,
    /// The last one.
    latest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Ring {
    /// What came after this revision is kept.
    floor: u64,
    /// How many are kept.
    kept: usize,
    changes: VecDeque<Numbered>,
    lanes: HashMap<Topic, Lane>,
    known: Known,
}

impl Ring {
    /// Does something to each lane that a change is in.
    fn each_lane(&mut self, change: &Change, mut act: impl FnMut(&mut Lane)) {
        if self.lanes.is_empty() {
            return;
        }
        Topic::each(change, &mut |topic| {
            if let Some(lane) = self.lanes.get_mut(&topic) {
                act(lane);
            }
        });
    }

    /// The lane of a topic; a new one finds what is kept.
    fn lane(&mut self, topic: &Topic) -> &mut Lane {
        let changes = &self.changes;
        self.lanes.entry(topic.clone()).or_insert_with(|| {
            let of = changes.iter().filter(|change| topic.is_of(&change.change));
            let revisions: VecDeque<u64> = of.map(|change| change.revision).collect();
            let latest = watch::Sender::new(revisions.back().copied().unwrap_or(0));
            Lane { revisions, lost: 0, latest }
        })
    }
}

/// The changes, for all watches of the server.
#[derive(Debug)]
pub(crate) struct Hub {
    ring: Mutex<Ring>,
    /// The revision of the last change.
    latest: AtomicU64,
}

/// Somebody who watches a topic, and has come to a revision.
#[derive(Debug)]
pub(crate) struct Follower {
    hub: Arc<Hub>,
    topic: Topic,
    seen: u64,
    latest: watch::Receiver<u64>,
}

impl Hub {
    /// Begins to collect the changes of a control plane.
    pub async fn start(plane: &ControlPlane, kept: usize) -> Result<Arc<Self>, ShellError> {
        let changes = plane.changes();
        let known = plane.read(Known::of).await?;
        let hub = Arc::new(Self::new(known, now(), kept));
        tokio::spawn(Arc::clone(&hub).collect(changes));
        Ok(hub)
    }

    fn new(known: Known, floor: u64, kept: usize) -> Self {
        let (changes, lanes) = (VecDeque::new(), HashMap::new());
        let ring = Ring { floor, kept, changes, lanes, known };
        Self { ring: Mutex::new(ring), latest: AtomicU64::new(floor) }
    }

    async fn collect(self: Arc<Self>, mut changes: broadcast::Receiver<Arc<Change>>) {
        loop {
            match changes.recv().await {
                Ok(change) => self.push(change, now()),
                Err(broadcast::error::RecvError::Lagged(lost)) => {
                    tracing::warn!(lost, "changes came faster than they could be numbered");
                    self.clear(now());
                }
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    fn push(&self, change: Arc<Change>, now: u64) {
        let mut ring = self.ring.lock();
        let revision = now.max(self.revision() + 1);
        let happening = ring.known.note(&change);
        if ring.changes.len() == ring.kept
            && let Some(oldest) = ring.changes.pop_front()
        {
            ring.floor = oldest.revision;
            ring.each_lane(&oldest.change, |lane| {
                lane.revisions.pop_front();
                lane.lost = oldest.revision;
            });
        }
        let (about, seen) = (Arc::clone(&change), Arc::default());
        ring.changes.push_back(Numbered { revision, happening, change, seen });
        self.latest.store(revision, Ordering::Release);
        ring.each_lane(&about, |lane| {
            lane.revisions.push_back(revision);
            lane.latest.send_replace(revision);
        });
    }

    /// Changes were lost: every watch has to begin anew.
    fn clear(&self, now: u64) {
        let mut ring = self.ring.lock();
        let revision = now.max(self.revision() + 1);
        ring.changes.clear();
        ring.floor = revision;
        self.latest.store(revision, Ordering::Release);
        for lane in ring.lanes.values_mut() {
            lane.revisions.clear();
            lane.lost = revision;
            lane.latest.send_replace(revision);
        }
    }

    /// The revision of the last change. What is read from the control plane afterwards is at
    /// least as new.
    pub fn revision(&self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// Follows a topic from a revision on.
    ///
    /// # Errors
    /// What came after it is not all kept.
    pub fn follow(self: &Arc<Self>, topic: Topic, from: u64) -> Result<Follower, Expired> {
        let mut ring = self.ring.lock();
        if from < ring.floor || from > self.revision() {
            return Err(Expired);
        }
        let latest = ring.lane(&topic).latest.subscribe();
        Ok(Follower { hub: Arc::clone(self), topic, seen: from, latest })
    }

    /// Follows a topic from now on.
    pub fn follow_from_now(self: &Arc<Self>, topic: Topic) -> Follower {
        let mut ring = self.ring.lock();
        let latest = ring.lane(&topic).latest.subscribe();
        Follower { hub: Arc::clone(self), topic, seen: self.revision(), latest }
    }

    /// Looks at what a change is about, unless somebody has.
    ///
    /// # Errors
    /// The control plane has ended.
    pub async fn look<'a>(
        &self,
        change: &'a Numbered,
        plane: &ControlPlane,
    ) -> Result<&'a Look, ShellError> {
        let look = || async {
            let mut as_of = self.revision();
            let seen = match &*change.change {
                Change::Dag(name, uid) => {
                    let (name, uid) = (name.clone(), *uid);
                    let dag = plane.read(move |controller| controller.dag_view(&name)).await?;
                    dag.filter(|dag| dag.uid == uid).map(Seen::Dag)
                }
                Change::DagDeleted(dag) => Some(Seen::Dag(DagView::clone(dag))),
                Change::Region(card, region) => {
                    let (card, region) = (card.clone(), *region);
                    let query =
                        move |controller: &Controller| controller.region_view(&card, region);
                    plane.read(query).await?.map(Seen::Region)
                }
                Change::Logged(entry) => Some(Seen::Entry(LogEntry::clone(entry))),
                // A binding has few states, and each is told.
                Change::Binding(view) | Change::BindingForgotten(view) => {
                    as_of = change.revision;
                    Some(Seen::Binding(BindingView::clone(view)))
                }
                Change::Operation(_) => None,
            };
            Ok(Look { as_of, seen })
        };
        change.seen.get_or_try_init(look).await
    }
}

impl Follower {
    /// Up to which revision all was told.
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// The next changes of the topic, the oldest first, `limit` (1 or more) at most, which are then
    /// seen; where there is none, so is what others changed.
    ///
    /// # Errors
    /// They are not all kept any more.
    pub fn next(&mut self, limit: usize) -> Result<Vec<Numbered>, Expired> {
        let mut ring = self.hub.ring.lock();
        let Ring { changes, lanes, .. } = &mut *ring;
        // It is there as long as somebody follows it.
        let Some(lane) = lanes.get(&self.topic) else { return Err(Expired) };
        if self.seen < lane.lost {
            return Err(Expired);
        }
        let first = lane.revisions.partition_point(|revision| *revision <= self.seen);
        let next = lane.revisions.range(first..).take(limit).filter_map(|revision| {
            let at = changes.partition_point(|change| change.revision < *revision);
            changes.get(at).cloned()
        });
        let next: Vec<Numbered> = next.collect();
        self.seen = next.last().map_or_else(|| self.hub.revision(), |change| change.revision);
        Ok(next)
    }

    /// Waits for a change of the topic that was not seen.
    pub async fn changed(&mut self) {
        let seen = self.seen;
        // The hub outlives those who follow it.
        let _ = self.latest.wait_for(|revision| *revision > seen).await;
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut ring = self.hub.ring.lock();
        let is_last = |lane: &Lane| lane.latest.receiver_count() == 1;
        if ring.lanes.get(&self.topic).is_some_and(is_last) {
            ring.lanes.remove(&self.topic);
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
        Arc::new(Hub::new(Known::default(), floor, kept))
    }

    fn of(id: &str) -> Topic {
        Topic::Operation(operation(id))
    }

    fn revisions(hub: &Arc<Hub>, after: u64) -> Result<Vec<u64>, Expired> {
        seen(&mut hub.follow(of("op"), after)?)
    }

    fn seen(follower: &mut Follower) -> Result<Vec<u64>, Expired> {
        Ok(follower.next(usize::MAX)?.iter().map(|change| change.revision).collect())
    }

    #[test]
    fn revisions_rise_even_where_the_clock_does_not() {
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
    fn what_is_not_kept_has_expired() {
        let hub = hub(10, 2);
        assert_eq!(revisions(&hub, 9), Err(Expired), "of an earlier run");
        assert_eq!(revisions(&hub, 11), Err(Expired), "of nobody");
        for now in [20, 30, 40] {
            hub.push(change("op"), now);
        }
        assert_eq!(revisions(&hub, 10), Err(Expired));
        assert_eq!(revisions(&hub, 20), Ok(vec![30, 40]), "nothing after it is lost");
        hub.clear(50);
        assert_eq!(revisions(&hub, 40), Err(Expired));
        assert_eq!(revisions(&hub, 50), Ok(vec![]));
        hub.push(change("op"), 60);
        assert_eq!(revisions(&hub, 50), Ok(vec![60]));
    }

    #[test]
    fn who_follows_loses_only_what_is_of_its_topic() {
        let hub = hub(10, 2);
        let mut quiet = hub.follow_from_now(of("quiet"));
        let mut busy = hub.follow_from_now(of("busy"));
        hub.push(change("quiet"), 20);
        for now in [30, 40] {
            hub.push(change("busy"), now);
        }
        assert_eq!(seen(&mut quiet), Err(Expired), "its own was driven out");
        assert_eq!(seen(&mut busy), Ok(vec![30, 40]));
        let mut quiet = hub.follow_from_now(of("quiet"));
        for now in [50, 60, 70] {
            hub.push(change("busy"), now);
        }
        assert_eq!(seen(&mut quiet), Ok(vec![]), "others' changes are nothing to it");
        assert_eq!(quiet.seen(), 70, "and it may resume from the last of them");
        assert_eq!(seen(&mut busy), Err(Expired), "one of three is not kept");
        hub.clear(80);
        assert_eq!(seen(&mut quiet), Err(Expired), "nobody knows what was lost");
    }

    #[test]
    fn a_topic_costs_nothing_once_nobody_follows_it() {
        let hub = hub(10, 2);
        let (first, second) = (hub.follow_from_now(of("a")), hub.follow_from_now(of("a")));
        let lanes = || hub.ring.lock().lanes.len();
        assert_eq!(lanes(), 1);
        drop(first);
        assert_eq!(lanes(), 1);
        drop(second);
        assert_eq!(lanes(), 0);
    }

    #[tokio::test]
    async fn who_waits_is_woken_for_what_is_its_own() {
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
