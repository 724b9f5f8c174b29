//! The changes that are kept, separately for each owner, with an index by topic.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use snic_controller::{Change, Controller, ResourceKey, ResourceKind};
use snic_domain::{CardId, DagUid, RegionId, TenantId, VmId};
use tokio::sync::watch;

use super::{ChangeKind, NumberedChange, RevisionExpired, Topic};

/// The existing resources, to distinguish added from modified.
#[derive(Debug, Default)]
pub(super) struct KnownResources {
    dags: BTreeSet<DagUid>,
    regions: BTreeSet<(CardId, RegionId)>,
    bindings: BTreeSet<VmId>,
}

impl KnownResources {
    pub fn of(controller: &Controller) -> Self {
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
            Change::Resource { is_new, .. } => *is_new,
            Change::ResourceDeleted { name, .. } => {
                if let ResourceKey::Region(card, region) = name {
                    self.regions.remove(&(card.clone(), *region));
                }
                return ChangeKind::Deleted;
            }
            Change::Operation(_) | Change::TenantDeleted(_) => false,
        };
        if new { ChangeKind::Added } else { ChangeKind::Modified }
    }
}

/// Number of changes that are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetainedChanges {
    /// Number of changes of each owner.
    pub each: usize,
    pub total: usize,
}

/// The owner that a change is kept for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Owner {
    Tenant(TenantId),
    /// All operations: a caller that waits for one reads it again after lost changes.
    Operations,
    /// Resources of the provider that all tenants see.
    Provider,
    /// Changes that only operators may see.
    Operators,
}

impl Owner {
    fn of(change: &Change) -> Self {
        match change {
            Change::Dag(name, _) => Self::Tenant(name.tenant.clone()),
            Change::DagDeleted(dag) => Self::Tenant(dag.name.tenant.clone()),
            Change::Logged(entry) => entry.tenant().cloned().map_or(Self::Operators, Self::Tenant),
            Change::Binding(view) | Change::BindingForgotten(view) => {
                Self::Tenant(view.record.spec.tenant.clone())
            }
            Change::Operation(_) => Self::Operations,
            Change::TenantDeleted(id) => Self::Tenant(id.clone()),
            Change::Resource { name, tenant, .. } | Change::ResourceDeleted { name, tenant } => {
                match tenant {
                    Some(tenant) => Self::Tenant(tenant.clone()),
                    None if name.kind().is_shared() => Self::Provider,
                    None => Self::Operators,
                }
            }
            Change::Region(..) => Self::Operators,
        }
    }
}

/// The changes of one owner.
#[derive(Debug, Default)]
struct Lane {
    /// Revisions of the changes that are kept.
    revisions: BTreeSet<u64>,
    /// The last one that was dropped; 0 if none.
    lost: u64,
}

impl Lane {
    /// The order in which owners lose changes: the owner with the most first, and of several the
    /// one with the oldest change.
    fn rank(&self) -> (usize, Reverse<u64>) {
        (self.revisions.len(), Reverse(self.revisions.first().copied().unwrap_or(u64::MAX)))
    }
}

/// The changes of one topic.
#[derive(Debug)]
struct TopicIndex {
    /// Revisions of the changes that are kept.
    revisions: BTreeSet<u64>,
    /// The last one that was dropped; 0 if none.
    lost: u64,
    /// The latest one.
    latest: watch::Sender<u64>,
}

#[derive(Debug)]
pub(super) struct Ring {
    /// Changes before this revision are not known.
    floor: u64,
    kept: RetainedChanges,
    /// Changes by revision.
    changes: BTreeMap<u64, NumberedChange>,
    /// Lanes of the owners that have changes.
    lanes: HashMap<Owner, Lane>,
    by_rank: BTreeMap<(usize, Reverse<u64>), Owner>,
    /// The last change that was dropped, of any owner; 0 if none.
    lost: u64,
    /// The same of owners that have no changes left.
    lost_of_absent: u64,
    topics: HashMap<Topic, TopicIndex>,
    known: KnownResources,
}

impl Ring {
    /// No changes yet; those before `floor` are not known.
    pub fn new(known: KnownResources, floor: u64, kept: RetainedChanges) -> Self {
        Self {
            floor,
            kept,
            changes: BTreeMap::new(),
            lanes: HashMap::new(),
            by_rank: BTreeMap::new(),
            lost: 0,
            lost_of_absent: 0,
            topics: HashMap::new(),
            known,
        }
    }

    /// Keeps a change under a revision that is larger than all before.
    pub fn push(&mut self, change: &Arc<Change>, revision: u64) {
        let change_kind = self.known.note(change);
        self.each_topic(change, |index| {
            index.revisions.insert(revision);
        });
        let (change, cached) = (Arc::clone(change), Arc::default());
        self.keep(NumberedChange { revision, change_kind, change, cached });
    }

    /// Wakes the watches of a change's topics.
    pub fn wake(&mut self, change: &Change, revision: u64) {
        self.each_topic(change, |index| {
            index.latest.send_replace(revision);
        });
    }

    /// Drops all changes: those before this revision are not known any more.
    pub fn clear(&mut self, revision: u64) {
        self.changes.clear();
        self.lanes.clear();
        self.by_rank.clear();
        (self.lost, self.lost_of_absent, self.floor) = (revision, revision, revision);
        for index in self.topics.values_mut() {
            index.revisions.clear();
            index.lost = revision;
            index.latest.send_replace(revision);
        }
    }

    /// Whether all changes of a topic after this revision are kept.
    pub fn keeps(&self, topic: &Topic, revision: u64) -> bool {
        revision >= self.floor.max(self.lost_of(topic))
    }

    /// Sends the latest revision of a topic to its watches.
    pub fn subscribe(&mut self, topic: &Topic) -> watch::Receiver<u64> {
        self.topic_index(topic).latest.subscribe()
    }

    /// A watch ends and is about to drop its receiver.
    pub fn leave(&mut self, topic: &Topic) {
        let is_last = |index: &TopicIndex| index.latest.receiver_count() == 1;
        if self.topics.get(topic).is_some_and(is_last) {
            self.topics.remove(topic);
        }
    }

    /// The changes of a topic after a revision, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`RevisionExpired`].
    pub fn after(
        &self,
        topic: &Topic,
        seen: u64,
        limit: usize,
    ) -> Result<Vec<NumberedChange>, RevisionExpired> {
        // The index exists as long as a watch of the topic does.
        let index = self.topics.get(topic).filter(|index| seen >= index.lost);
        let index = index.ok_or(RevisionExpired)?;
        let unseen = index.revisions.range(seen.saturating_add(1)..).take(limit);
        Ok(unseen.filter_map(|revision| self.changes.get(revision).cloned()).collect())
    }

    /// Number of topics that are followed, and number of owners that have changes.
    #[cfg(test)]
    pub fn sizes(&self) -> (usize, usize) {
        (self.topics.len(), self.lanes.len())
    }

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
        // The provider's resources change rarely.
        if Owner::of(change) == Owner::Provider {
            let of_all = self.topics.iter_mut().filter(|(topic, _)| topic.is_for_all(change));
            of_all.for_each(|(_, index)| act(index));
        }
    }

    /// The index of a topic; a new one is built from the changes.
    fn topic_index(&mut self, topic: &Topic) -> &mut TopicIndex {
        let changes = &self.changes;
        self.topics.entry(topic.clone()).or_insert_with(|| {
            let of = changes.values().filter(|change| topic.is_of(&change.change));
            let revisions: BTreeSet<u64> = of.map(|change| change.revision).collect();
            let latest = watch::Sender::new(revisions.last().copied().unwrap_or(0));
            TopicIndex { revisions, lost: 0, latest }
        })
    }

    /// The last dropped change that may have had the topic.
    fn lost_of(&self, topic: &Topic) -> u64 {
        let of =
            |owner: &Owner| self.lanes.get(owner).map_or(self.lost_of_absent, |lane| lane.lost);
        let owner = match topic {
            Topic::Resources(kind, Some(tenant)) if kind.is_shared() => {
                return of(&Owner::Tenant(tenant.clone())).max(of(&Owner::Provider));
            }
            Topic::Dags(Some(tenant))
            | Topic::Bindings(Some(tenant))
            | Topic::Resources(_, Some(tenant))
            | Topic::Events(Some(tenant)) => Owner::Tenant(tenant.clone()),
            Topic::Regions(_)
            | Topic::Resources(ResourceKind::Card | ResourceKind::Tenant, None) => Owner::Operators,
            Topic::Operation(_) => Owner::Operations,
            Topic::Dags(None)
            | Topic::Bindings(None)
            | Topic::Binding(_)
            | Topic::Resources(_, None)
            | Topic::Events(None)
            | Topic::Page => return self.lost,
        };
        of(&owner)
    }

    /// Updates the changes of an owner.
    fn with_lane(&mut self, owner: &Owner, act: impl FnOnce(&mut Lane)) -> usize {
        let lane = self.lanes.entry(owner.clone()).or_default();
        self.by_rank.remove(&lane.rank());
        act(lane);
        let rank = lane.rank();
        if lane.revisions.is_empty() {
            self.lost_of_absent = self.lost_of_absent.max(lane.lost);
            self.lanes.remove(owner);
        } else {
            self.by_rank.insert(rank, owner.clone());
        }
        rank.0
    }

    /// Drops the oldest change of an owner.
    fn drop_oldest(&mut self, owner: &Owner) {
        let mut oldest = None;
        self.with_lane(owner, |lane| {
            oldest = lane.revisions.pop_first();
            lane.lost = oldest.unwrap_or(lane.lost);
        });
        let Some(oldest) = oldest.and_then(|revision| self.changes.remove(&revision)) else {
            return;
        };
        self.lost = self.lost.max(oldest.revision);
        self.each_topic(&oldest.change, |index| {
            index.revisions.remove(&oldest.revision);
            index.lost = index.lost.max(oldest.revision);
        });
    }

    /// Keeps a change, and drops the oldest where its owner, or all together, have too many.
    fn keep(&mut self, change: NumberedChange) {
        let (revision, owner) = (change.revision, Owner::of(&change.change));
        self.changes.insert(revision, change);
        let own = self.with_lane(&owner, |lane| {
            lane.revisions.insert(revision);
        });
        if own > self.kept.each {
            self.drop_oldest(&owner);
        }
        if self.changes.len() > self.kept.total
            && let Some((_, owner)) = self.by_rank.last_key_value()
        {
            let owner = owner.clone();
            self.drop_oldest(&owner);
        }
    }
}
