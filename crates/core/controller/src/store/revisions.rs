//! Revisions: when each resource was last changed, and what was deleted, so that a watch can resume
//! after a restart.
//!
//! Each change that is told gets a revision of its own when it is decided: the time in microseconds
//! since 1970, or one more than the last where that is later. The record of a resource is stored with
//! the revision of its last change and of its first, and a deletion with its own, in the batch of the
//! change: whoever was told of a change has a revision that the store knows after any crash.
//!
//! The last deletions of each tenant, and of operators, are kept; where there were more, a watch from before
//! those that were dropped starts over. What belonged to a deleted tenant is for operators from then on.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::limits::{OPERATOR_HISTORY_MAX, TENANT_HISTORY_MAX};
use snic_domain::{TenantId, Timestamp};

use crate::protocol::{Change, ResourceKey, ResourceKind};
use crate::store::records::{DeletionRecord, Record, RecordKey, Stamp};
use crate::store::tx::{DirtyResource, Tx};

/// Some changes after a revision are not known any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevisionTooOld;

#[derive(Debug, Clone)]
struct Known {
    stamp: Stamp,
    owner: Option<TenantId>,
}

/// Deletions of one owner.
#[derive(Debug, Clone, Default)]
struct Deletions {
    by_revision: BTreeSet<(u64, ResourceKey)>,
    /// The last one that was dropped; 0 if none.
    lost: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Revisions {
    /// The last one that was given out.
    last: u64,
    /// Changes before this one are not known.
    floor: u64,
    floor_is_stored: bool,
    /// When the daemon started: cards are read again then, so what they hold counts as changed.
    started: u64,
    known: BTreeMap<ResourceKey, Known>,
    deleted: BTreeMap<Option<TenantId>, Deletions>,
    owner_of_deleted: BTreeMap<ResourceKey, (Option<TenantId>, u64)>,
}

/// The revisions that a store has, before they are put together.
#[derive(Debug, Default)]
pub(crate) struct StoredRevisions {
    /// Since when changes are known.
    pub floor: Option<u64>,
    pub stamps: Vec<(ResourceKey, Option<TenantId>, Stamp)>,
    pub deletions: Vec<(ResourceKey, DeletionRecord)>,
}

/// The revision of a time.
pub(crate) const fn of_time(now: Timestamp) -> u64 {
    now.as_nanos() / 1_000
}

fn kept_max(owner: &Option<TenantId>) -> usize {
    if owner.is_some() { TENANT_HISTORY_MAX } else { OPERATOR_HISTORY_MAX }
}

impl Revisions {
    /// Takes up those of a store. Where it has none, or not all of its records could be read, changes
    /// from before now are not known.
    pub fn restore(found: StoredRevisions, is_whole: bool, now: Timestamp) -> Self {
        let StoredRevisions { floor: stored, stamps, deletions } = found;
        let stamped = stamps.iter().map(|(_, _, stamp)| stamp.changed);
        let gone = deletions.iter().map(|(_, deletion)| deletion.revision.max(deletion.lost));
        let floor = stored.unwrap_or(0);
        let last = stamped.chain(gone).max().unwrap_or(0).max(floor);
        let started = of_time(now).max(last + 1);
        let is_continued = stored.is_some() && is_whole;
        let mut revisions = Self {
            last: started,
            floor: if is_continued { floor } else { started },
            floor_is_stored: is_continued,
            started,
            known: BTreeMap::new(),
            deleted: BTreeMap::new(),
            owner_of_deleted: BTreeMap::new(),
        };
        for (name, owner, stamp) in stamps {
            revisions.known.insert(name, Known { stamp, owner });
        }
        for (name, DeletionRecord { tenant, revision, lost }) in deletions {
            let of = revisions.deleted.entry(tenant.clone()).or_default();
            of.lost = of.lost.max(lost);
            of.by_revision.insert((revision, name.clone()));
            revisions.owner_of_deleted.insert(name, (tenant, revision));
        }
        revisions
    }

    /// One that all that was decided so far has, or a lower one; what is decided later has a higher one.
    pub fn at(&self, now: Timestamp) -> u64 {
        self.last.max(of_time(now).saturating_sub(1))
    }

    /// When a resource was made and last changed. What cards say of one counts as changed by a restart. A record
    /// from before there were revisions counts as changed after 0, so a watch from the beginning is sent it.
    pub fn stamp(&self, name: &ResourceKey) -> Stamp {
        let mut stamp = self.known.get(name).map(|known| known.stamp).unwrap_or_default();
        stamp.changed = stamp.changed.max(1);
        if name.kind().is_observed() {
            stamp.changed = stamp.changed.max(self.started);
        }
        stamp
    }

    /// Resources deleted after a revision, of a tenant with what it sees of the provider's, or of all.
    /// Time O(deletions that are kept).
    ///
    /// # Errors
    /// [`RevisionTooOld`].
    pub fn deleted_since(
        &self,
        kind: ResourceKind,
        tenant: Option<&TenantId>,
        revision: u64,
    ) -> Result<Vec<ResourceKey>, RevisionTooOld> {
        // A later tenant of the same name is another one.
        let born = tenant.map_or(0, |id| self.stamp(&ResourceKey::Tenant(id.clone())).created);
        if revision < self.floor.max(born) {
            return Err(RevisionTooOld);
        }
        let is_seen = |owner: &Option<TenantId>| match tenant {
            None => true,
            Some(tenant) => match owner {
                Some(owner) => owner == tenant,
                None => kind.is_shared(),
            },
        };
        let mut found = Vec::new();
        for (owner, of) in self.deleted.iter().filter(|(owner, _)| is_seen(owner)) {
            if revision < of.lost {
                return Err(RevisionTooOld);
            }
            let later =
                of.by_revision.iter().filter(|(at, name)| *at > revision && name.kind() == kind);
            // Of operators is also what belonged to tenants that were deleted.
            let later =
                later.filter(|(_, name)| owner.is_some() || tenant.is_none() || is_provided(name));
            found.extend(later.cloned());
        }
        found.sort();
        Ok(found.into_iter().map(|(_, name)| name).collect())
    }

    /// At the end of an event: tells what its records change, numbers all that is told, and stores when.
    pub fn finish(&mut self, tx: &mut Tx) {
        let touched = tx.take_touched();
        let mut last_touch: BTreeMap<&ResourceKey, &DirtyResource> = BTreeMap::new();
        for touch in &touched {
            last_touch.insert(&touch.name, touch);
        }
        for (name, touch) in &last_touch {
            self.emit_change(tx, name, touch);
        }
        let base = of_time(tx.now()).max(self.last + 1);
        tx.set_revision(base);
        let mut told: BTreeMap<ResourceKey, u64> = BTreeMap::new();
        let mut next = base;
        for change in tx.changes() {
            if let (false, Some(name)) = (last_touch.is_empty(), change.resource()) {
                told.insert(name, next);
            }
            next += 1;
        }
        if next > base || !last_touch.is_empty() {
            self.last = next.max(base + 1) - 1;
        }
        for touch in &touched {
            let revision = told.get(&touch.name).copied().unwrap_or(base);
            self.store(tx, touch, revision);
        }
        for name in touched.iter().filter(|touch| touch.is_deleted).map(|touch| &touch.name) {
            if let (ResourceKey::Tenant(id), false) = (name, self.known.contains_key(name)) {
                self.retire(tx, id);
            }
        }
        if !self.floor_is_stored && !tx.writes().is_empty() {
            self.floor_is_stored = true;
            tx.put(Record::Revisions(self.floor));
        }
    }

    fn emit_change(&self, tx: &mut Tx, name: &ResourceKey, touch: &DirtyResource) {
        let known = self.known.get(name);
        let kind = name.kind();
        if touch.is_deleted {
            let is_told = kind.is_told_by_record() || kind == ResourceKind::Region;
            if let (true, true, Some(known)) = (is_told, kind.is_missed(), known) {
                let tenant = known.owner.clone();
                tx.emit(Change::ResourceDeleted { name: name.clone(), tenant });
            }
        } else if kind.is_told_by_record() {
            let tenant = touch.owner.clone();
            let is_new = known.is_none();
            tx.emit(Change::Resource { name: name.clone(), tenant, is_new });
        }
    }

    fn store(&mut self, tx: &mut Tx, touch: &DirtyResource, revision: u64) {
        let DirtyResource { write, name, owner, is_deleted } = touch;
        if *is_deleted {
            let Some(known) = self.known.remove(name) else { return };
            if name.kind().is_missed() {
                self.note_deleted(tx, name, known.owner, revision);
            }
            return;
        }
        let Some(write) = write else { return };
        let known = self.known.entry(name.clone());
        let known = known.or_insert_with(|| Known {
            stamp: Stamp { created: revision, changed: revision },
            owner: owner.clone(),
        });
        known.stamp.changed = revision;
        tx.stamp(*write, known.stamp);
    }

    fn note_deleted(
        &mut self,
        tx: &mut Tx,
        name: &ResourceKey,
        owner: Option<TenantId>,
        revision: u64,
    ) {
        self.forget_deletion(name);
        let of = self.deleted.entry(owner.clone()).or_default();
        of.by_revision.insert((revision, name.clone()));
        self.owner_of_deleted.insert(name.clone(), (owner.clone(), revision));
        self.trim(tx, &owner);
        self.put_deletion(tx, name);
    }

    /// Takes the deletion of an earlier resource of the name out.
    fn forget_deletion(&mut self, name: &ResourceKey) {
        let Some((owner, revision)) = self.owner_of_deleted.remove(name) else { return };
        if let Some(of) = self.deleted.get_mut(&owner) {
            of.by_revision.remove(&(revision, name.clone()));
        }
    }

    fn trim(&mut self, tx: &mut Tx, owner: &Option<TenantId>) {
        let Some(of) = self.deleted.get_mut(owner) else { return };
        while of.by_revision.len() > kept_max(owner) {
            let Some((revision, name)) = of.by_revision.pop_first() else { return };
            of.lost = of.lost.max(revision);
            self.owner_of_deleted.remove(&name);
            tx.delete(RecordKey::Deletion(name));
        }
    }

    fn put_deletion(&self, tx: &mut Tx, name: &ResourceKey) {
        let Some((tenant, revision)) = self.owner_of_deleted.get(name).cloned() else { return };
        let lost = self.deleted.get(&tenant).map_or(0, |of| of.lost);
        tx.put(Record::Deletion(name.clone(), DeletionRecord { tenant, revision, lost }));
    }

    /// Leaves the deletions of a tenant that is deleted itself to operators.
    fn retire(&mut self, tx: &mut Tx, tenant: &TenantId) {
        let Some(of) = self.deleted.remove(&Some(tenant.clone())) else { return };
        let operators = self.deleted.entry(None).or_default();
        operators.lost = operators.lost.max(of.lost);
        operators.by_revision.extend(of.by_revision.iter().cloned());
        for (revision, name) in &of.by_revision {
            self.owner_of_deleted.insert(name.clone(), (None, *revision));
        }
        self.trim(tx, &None);
        for (_, name) in &of.by_revision {
            self.put_deletion(tx, name);
        }
    }
}

/// Whether a resource is the provider's.
fn is_provided(name: &ResourceKey) -> bool {
    match name {
        ResourceKey::NtType(id) => id.owner().is_none(),
        ResourceKey::Bitstream(id) => id.owner().is_none(),
        _ => false,
    }
}
