//! Changes for those who watch: numbered, kept for a while, shared.
//!
//! ```text
//! controller ──changes──► hub's task ──► ring of the last changes ◄── every watch, by its revision
//! ```
//!
//! There is no queue for each watch: a watch holds a revision and asks for what came after it. A
//! slow one falls behind in the ring and is told so; it holds up nobody and costs no memory.
//!
//! A change names what is different. The first watch that wants to know how it is now reads it, for
//! all others too; several changes of one resource may so be seen as one.
//!
//! Revisions are microseconds since 1970, made to rise: they go on rising over a restart, and the
//! difference of two tells nobody how much happened to others.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use snic_controller::{BindingView, Change, Controller, DagView, LogEntry, RegionView};
use snic_domain::{CardId, DagUid, OperationId, RegionId, VmId};
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

#[derive(Debug)]
struct Ring {
    /// What came after this revision is kept.
    floor: u64,
    /// How many are kept.
    kept: usize,
    changes: VecDeque<Numbered>,
    known: Known,
}

/// The changes, for all watches of the server.
#[derive(Debug)]
pub(crate) struct Hub {
    ring: Mutex<Ring>,
    latest: watch::Sender<u64>,
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
        let ring = Ring { floor, kept, changes: VecDeque::new(), known };
        Self { ring: Mutex::new(ring), latest: watch::Sender::new(floor) }
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
        let seen = Arc::default();
        ring.changes.push_back(Numbered { revision, happening, change, seen });
        if ring.changes.len() > ring.kept
            && let Some(oldest) = ring.changes.pop_front()
        {
            ring.floor = oldest.revision;
        }
        self.latest.send_replace(revision);
    }

    /// Changes were lost: every watch has to begin anew.
    fn clear(&self, now: u64) {
        let mut ring = self.ring.lock();
        let revision = now.max(self.revision() + 1);
        ring.changes.clear();
        ring.floor = revision;
        self.latest.send_replace(revision);
    }

    /// The revision of the last change. What is read from the control plane afterwards is at
    /// least as new.
    pub fn revision(&self) -> u64 {
        *self.latest.borrow()
    }

    /// Changes when a change came.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
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

    /// The next changes after a revision, the oldest first, `limit` at most.
    pub fn after(&self, revision: u64, limit: usize) -> Result<Vec<Numbered>, Expired> {
        let ring = self.ring.lock();
        if revision < ring.floor || revision > self.revision() {
            return Err(Expired);
        }
        let first = ring.changes.partition_point(|change| change.revision <= revision);
        Ok(ring.changes.range(first..).take(limit).cloned().collect())
    }
}

fn now() -> u64 {
    wall_clock().as_nanos() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change that tells nothing.
    fn change() -> Arc<Change> {
        Arc::new(Change::Operation(OperationId::new("op").expect("valid")))
    }

    fn revisions(hub: &Hub, after: u64) -> Result<Vec<u64>, Expired> {
        Ok(hub.after(after, usize::MAX)?.iter().map(|change| change.revision).collect())
    }

    #[test]
    fn revisions_rise_even_where_the_clock_does_not() {
        let hub = Hub::new(Known::default(), 1_000, 8);
        for now in [1_000, 900, 5_000, 5_000] {
            hub.push(change(), now);
        }
        assert_eq!(revisions(&hub, 1_000), Ok(vec![1_001, 1_002, 5_000, 5_001]));
        assert_eq!(revisions(&hub, 1_002), Ok(vec![5_000, 5_001]));
        assert_eq!(revisions(&hub, 3_000), Ok(vec![5_000, 5_001]), "between two");
        assert_eq!(revisions(&hub, 5_001), Ok(vec![]));
        assert_eq!(hub.revision(), 5_001);
        assert_eq!(hub.after(1_000, 2).map(|changes| changes.len()), Ok(2));
    }

    #[test]
    fn what_is_not_kept_has_expired() {
        let hub = Hub::new(Known::default(), 10, 2);
        assert_eq!(revisions(&hub, 9), Err(Expired), "of an earlier run");
        assert_eq!(revisions(&hub, 11), Err(Expired), "of nobody");
        for now in [20, 30, 40] {
            hub.push(change(), now);
        }
        assert_eq!(revisions(&hub, 10), Err(Expired));
        assert_eq!(revisions(&hub, 20), Ok(vec![30, 40]), "nothing after it is lost");
        hub.clear(50);
        assert_eq!(revisions(&hub, 40), Err(Expired));
        assert_eq!(revisions(&hub, 50), Ok(vec![]));
        hub.push(change(), 60);
        assert_eq!(revisions(&hub, 50), Ok(vec![60]));
    }

    #[tokio::test]
    async fn who_waits_is_woken() {
        let hub = Hub::new(Known::default(), 10, 2);
        let mut latest = hub.subscribe();
        hub.push(change(), 20);
        let seen = *latest.wait_for(|revision| *revision > 10).await.expect("the hub is there");
        assert_eq!(seen, 20);
    }
}
