//! Recent writes to the fleet's records, as etcd reports them: whoever watches at this replica reads from here.
//!
//! ```text
//!            after                                 until
//!   gone ──────┤ change, change, … (whole revisions) ├── not told yet
//! ```
//!
//! Every replica has the same history with the same revisions, which are etcd's. So a watch goes on at any of them,
//! whoever leads. A replica that has just started reads what was written before from etcd, as far as it is kept there.
//!
//! Each tenant has its part of it, and so has each kind of record that belongs to no tenant. Where all is full, who has
//! most forgets its oldest revision: a tenant that changes much shortens its own watches and the operators', not another
//! tenant's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use snic_domain::TenantId;
use snic_etcd::{Change, Record, Revision, WatchUpdate};
use snic_fleet::records::PREFIX;
use tokio::sync::watch;

/// Most changes that are kept, and most bytes of them.
const CHANGES_MAX: usize = 20_000;
const BYTES_MAX: usize = 32 << 20;
/// Bytes of a change beside key and value.
const CHANGE_OVERHEAD_BYTES: usize = 160;
/// Kinds whose keys go on with a tenant, behind [`PREFIX`].
const KINDS_OF_TENANTS: [&str; 4] = ["dags", "tenants", "reservations", "requests"];

/// A record that was written or deleted.
#[derive(Debug, PartialEq)]
pub(crate) struct RecordChange {
    pub key: String,
    pub revision: u64,
    /// As it is then; `None`: it was deleted.
    pub record: Option<Record>,
}

impl RecordChange {
    /// Part of [`BYTES_MAX`] that it takes. The smallest take more than their bytes, so that there are at most
    /// [`CHANGES_MAX`].
    fn cost(&self) -> usize {
        let value = self.record.as_ref().map_or(0, |record| record.key.len() + record.value.len());
        (CHANGE_OVERHEAD_BYTES + self.key.len() + value).max(BYTES_MAX.div_ceil(CHANGES_MAX))
    }
}

/// The changes after a revision are not all kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooOld;

/// Owner of a part of the history.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Tenant(String),
    /// All records of a kind that belongs to no tenant.
    Kind(String),
}

impl Owner {
    fn of(key: &str) -> Self {
        let mut parts = key.strip_prefix(PREFIX).unwrap_or(key).splitn(3, '/');
        let kind = parts.next().unwrap_or_default();
        match parts.next() {
            Some(tenant) if KINDS_OF_TENANTS.contains(&kind) => Self::Tenant(tenant.to_owned()),
            _ => Self::Kind(kind.to_owned()),
        }
    }
}

/// Owners whose changes a watch needs without a gap.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scope<'a> {
    All,
    /// A tenant's, and those of a kind, with or without a slash at its end.
    Tenant(&'a TenantId, &'a str),
}

/// Changes kept for an owner.
#[derive(Debug)]
struct KeptChanges {
    /// All of its changes behind this revision are there.
    after: u64,
    /// Where they are, in order.
    places: VecDeque<ChangePosition>,
    cost: usize,
}

/// A change's revision, and its place among those that were made together.
type ChangePosition = (u64, u32);

/// A piece of the history.
#[derive(Debug)]
pub(crate) struct Piece {
    /// All changes behind this revision were told.
    after: u64,
    until: u64,
    changes: BTreeMap<ChangePosition, Arc<RecordChange>>,
    owners: BTreeMap<Owner, KeptChanges>,
    /// The owners by what they take.
    costs: BTreeSet<(usize, Reverse<Owner>)>,
    cost: usize,
    /// Most that all of it takes.
    cost_max: usize,
    /// Nobody's changes behind this revision were forgotten.
    whole_after: u64,
}

impl Piece {
    pub const fn behind(after: u64) -> Self {
        Self {
            after,
            until: after,
            changes: BTreeMap::new(),
            owners: BTreeMap::new(),
            costs: BTreeSet::new(),
            cost: 0,
            cost_max: BYTES_MAX,
            whole_after: after,
        }
    }

    pub const fn until(&self) -> u64 {
        self.until
    }

    /// Takes news of a watch, which comes in order, whole revisions at a time. Time O(log kept) for each change.
    pub fn apply_update(&mut self, told: &WatchUpdate) {
        let number = |revision: Revision| u64::try_from(revision.0).unwrap_or_default();
        let of = |change: &Change| match change {
            Change::Put(record) => {
                (record.key.clone(), number(record.changed), Some(record.clone()))
            }
            Change::Deleted { key, at } => (key.clone(), number(*at), None),
        };
        let told_before = self.until;
        let new = (0..).zip(told.changes.iter().map(of)).filter(|(_, of)| of.1 > told_before);
        for (at, (key, revision, record)) in new {
            let place = (revision, at);
            self.keep(place, RecordChange { key, revision, record }.into(), |places| {
                places.push_back(place);
            });
        }
        self.until = self.until.max(number(told.until));
        self.trim();
    }

    fn keep(
        &mut self,
        place: ChangePosition,
        change: Arc<RecordChange>,
        add: impl FnOnce(&mut VecDeque<ChangePosition>),
    ) {
        let owner = Owner::of(&change.key);
        let new = || KeptChanges { after: self.after, places: VecDeque::new(), cost: 0 };
        let kept = self.owners.entry(owner.clone()).or_insert_with(new);
        self.costs.remove(&(kept.cost, Reverse(owner.clone())));
        add(&mut kept.places);
        kept.cost += change.cost();
        self.costs.insert((kept.cost, Reverse(owner)));
        self.cost += change.cost();
        self.changes.insert(place, change);
    }

    /// Forgets the oldest revision, as a whole, of who has most, until there is room.
    fn trim(&mut self) {
        while self.cost > self.cost_max {
            let Some((_, Reverse(owner))) = self.costs.pop_last() else { return };
            let Some(kept) = self.owners.get_mut(&owner) else { return };
            let Some((first, _)) = kept.places.front().copied() else { return };
            while let Some(place) = kept.places.pop_front_if(|place| place.0 == first) {
                let cost = self.changes.remove(&place).map_or(0, |change| change.cost());
                kept.cost -= cost;
                self.cost -= cost;
            }
            kept.after = first;
            self.whole_after = self.whole_after.max(first);
            if kept.places.is_empty() {
                // As many owners as changes: what each lost is not remembered, only that there is a gap.
                self.owners.remove(&owner);
                self.after = self.after.max(first);
            } else {
                self.costs.insert((kept.cost, Reverse(owner)));
            }
        }
    }

    /// Puts what was before in front, if there is no gap.
    fn prepend(&mut self, earlier: Self) {
        if earlier.after >= self.after || earlier.until < self.after {
            return;
        }
        let after = self.after;
        let is_whole = |kept: &KeptChanges| kept.after <= after;
        let missing = earlier.changes.into_iter().filter(|(_, change)| change.revision <= after);
        for (place, change) in missing.rev() {
            // Who has lost changes since then would have a gap behind these.
            if self.owners.get(&Owner::of(&change.key)).is_none_or(is_whole) {
                self.keep(place, change, |places| places.push_front(place));
            }
        }
        for (owner, kept) in self.owners.iter_mut().filter(|(_, kept)| kept.after <= after) {
            kept.after = earlier.owners.get(owner).map_or(earlier.after, |of| of.after);
        }
        self.after = earlier.after;
        let afters = self.owners.values().chain(earlier.owners.values()).map(|kept| kept.after);
        self.whole_after = afters.fold(self.after, u64::max);
        self.trim();
    }

    /// Behind which revision nothing is missing of what a watch needs.
    fn whole_for(&self, scope: Scope<'_>) -> u64 {
        let Scope::Tenant(tenant, kind) = scope else { return self.whole_after };
        let kind = kind.trim_end_matches('/');
        [Owner::Tenant(tenant.as_str().to_owned()), Owner::Kind(kind.to_owned())]
            .iter()
            .filter_map(|owner| self.owners.get(owner))
            .fold(self.after, |after, kept| after.max(kept.after))
    }
}

/// Changes that a watch reads next.
#[derive(Debug)]
pub(crate) struct Page {
    pub changes: Vec<Arc<RecordChange>>,
    /// All wanted changes up to this revision are in it, or were before.
    pub until: u64,
}

/// The history that this replica has.
#[derive(Debug)]
pub(crate) struct History {
    piece: Mutex<Piece>,
    until: watch::Sender<u64>,
}

impl Default for History {
    fn default() -> Self {
        Self { piece: Mutex::new(Piece::behind(0)), until: watch::Sender::new(0) }
    }
}

impl History {
    /// It is told from this revision on.
    pub fn begin(&self, from: Revision) {
        let after = u64::try_from(from.0).unwrap_or_default().saturating_sub(1);
        let mut piece = self.piece.lock();
        if piece.until != after {
            *piece = Piece::behind(after);
        }
        drop(piece);
        self.until.send_replace(after);
    }

    pub fn apply_update(&self, told: &WatchUpdate) {
        let mut piece = self.piece.lock();
        piece.apply_update(told);
        let until = piece.until;
        drop(piece);
        self.until.send_replace(until);
    }

    /// Takes what was written before it began.
    pub fn earlier(&self, earlier: Piece) {
        self.piece.lock().prepend(earlier);
    }

    /// Revision up to which news has come, for whoever waits for more.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.until.subscribe()
    }

    /// Wanted changes after a revision, all of a scope: about `most`, and whole revisions.
    ///
    /// # Errors
    /// [`TooOld`]: some of that scope were forgotten.
    pub fn after(
        &self,
        revision: u64,
        most: usize,
        scope: Scope<'_>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Page, TooOld> {
        let piece = self.piece.lock();
        if revision < piece.whole_for(scope) {
            return Err(TooOld);
        }
        let mut changes: Vec<Arc<RecordChange>> = Vec::new();
        for change in piece.changes.range((revision.saturating_add(1), 0)..).map(|(_, of)| of) {
            let is_full = changes.len() >= most;
            if let Some(last) =
                changes.last().filter(|last| is_full && last.revision < change.revision)
            {
                let until = last.revision;
                return Ok(Page { changes, until });
            }
            if wanted(&change.key) {
                changes.push(Arc::clone(change));
            }
        }
        Ok(Page { changes, until: piece.until.max(revision) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(key: &str, revision: i64) -> Change {
        let changed = Revision(revision);
        Change::Put(Record {
            key: key.to_owned(),
            value: vec![7; 10],
            created: changed,
            changed,
            version: 1,
            lease: None,
        })
    }

    fn update(changes: Vec<Change>, until: i64) -> WatchUpdate {
        WatchUpdate { changes, until: Revision(until) }
    }

    fn history(revisions: std::ops::RangeInclusive<i64>) -> History {
        let history = History::default();
        history.begin(Revision(*revisions.start()));
        for revision in revisions {
            history
                .apply_update(&update(vec![put("a/1", revision), put("b/1", revision)], revision));
        }
        history
    }

    fn read(history: &History, after: u64, most: usize) -> Result<(Vec<u64>, u64), TooOld> {
        let page = history.after(after, most, Scope::All, |key| key.starts_with("a/"))?;
        Ok((page.changes.iter().map(|change| change.revision).collect(), page.until))
    }

    #[test]
    fn a_watch_reads_what_it_wants_in_order_and_is_told_where_it_is() {
        let history = history(10..=14);
        assert_eq!(read(&history, 9, 2), Ok((vec![10, 11], 11)));
        assert_eq!(read(&history, 11, 9), Ok((vec![12, 13, 14], 14)));
        assert_eq!(read(&history, 14, 9), Ok((vec![], 14)));
        assert_eq!(read(&history, 20, 9), Ok((vec![], 20)), "read at a replica that is ahead");
        assert_eq!(read(&history, 8, 9), Err(TooOld));
        history.apply_update(&update(vec![], 30));
        assert_eq!(read(&history, 14, 9), Ok((vec![], 30)));
    }

    /// Otherwise who resumes behind the first would never see the others.
    #[test]
    fn changes_of_one_revision_are_read_together() {
        let history = History::default();
        history.begin(Revision(5));
        let together = vec![put("a/1", 5), put("a/2", 5), put("a/3", 5), put("a/4", 6)];
        history.apply_update(&update(together, 6));
        let page = history.after(4, 1, Scope::All, |_| true).expect("it is kept");
        assert_eq!((page.changes.len(), page.until), (3, 5));
    }

    #[test]
    fn what_was_written_before_is_put_in_front_without_a_gap() {
        let history = history(10..=12);
        let mut gap = Piece::behind(3);
        gap.apply_update(&update(vec![put("a/1", 8)], 8));
        history.earlier(gap);
        assert_eq!(read(&history, 8, 9), Err(TooOld));
        let mut earlier = Piece::behind(3);
        earlier.apply_update(&update(vec![put("a/1", 8), put("a/1", 9), put("a/1", 10)], 10));
        history.earlier(earlier);
        assert_eq!(read(&history, 3, 9), Ok((vec![8, 9, 10, 11, 12], 12)));
        // The same watch goes on; another one begins later.
        history.begin(Revision(13));
        assert_eq!(read(&history, 3, 1), Ok((vec![8], 8)));
        history.begin(Revision(20));
        assert_eq!(read(&history, 12, 9), Err(TooOld));
    }

    #[test]
    fn the_oldest_revisions_are_forgotten() {
        let history = history(1..=CHANGES_MAX as i64);
        let piece = history.piece.lock();
        assert!(piece.changes.len() <= CHANGES_MAX && piece.whole_after > 1);
        let after = piece.whole_after;
        drop(piece);
        assert_eq!(read(&history, after - 1, 1), Err(TooOld));
        assert_eq!(read(&history, after, 1), Ok((vec![after + 1], after + 1)));
    }

    fn dag(tenant: &str, number: i64) -> String {
        format!("{PREFIX}dags/{tenant}/{number}")
    }

    fn tenant(id: &str) -> TenantId {
        TenantId::new(id).expect("a label")
    }

    #[test]
    fn a_tenant_that_changes_much_shortens_no_watch_of_another() {
        let history = History::default();
        history.begin(Revision(1));
        history.apply_update(&update(vec![put(&dag("acme", 1), 1)], 1));
        history.apply_update(&update(vec![put(&format!("{PREFIX}nt-types/firewall"), 2)], 2));
        for revision in 3..3 + 2 * CHANGES_MAX as i64 {
            history.apply_update(&update(vec![put(&dag("greedy", revision), revision)], revision));
        }
        history.apply_update(&update(vec![put(&dag("acme", 2), 90_000)], 90_000));
        let read = |scope: Scope<'_>, prefix: &str, after| {
            let page = history.after(after, 9, scope, |key| key.starts_with(prefix))?;
            Ok(page.changes.iter().map(|change| change.revision).collect::<Vec<_>>())
        };
        let (acme, greedy) = (tenant("acme"), tenant("greedy"));
        let of = |tenant: &str| format!("{PREFIX}dags/{tenant}/");
        assert_eq!(read(Scope::Tenant(&acme, "dags/"), &of("acme"), 0), Ok(vec![1, 90_000]));
        let kind = Scope::Tenant(&acme, "nt-types/");
        assert_eq!(read(kind, &format!("{PREFIX}nt-types/"), 1), Ok(vec![2]));
        assert_eq!(read(Scope::Tenant(&greedy, "dags/"), &of("greedy"), 2), Err(TooOld));
        assert_eq!(read(Scope::All, PREFIX, 2), Err(TooOld), "an operator would miss some");
        let lately = read(Scope::Tenant(&greedy, "dags/"), &of("greedy"), 40_000);
        assert_eq!(lately.map(|found| found.first().copied()), Ok(Some(40_001)));
    }

    #[test]
    fn owners_are_in_the_key() {
        let owner = |key: &str| Owner::of(&format!("{PREFIX}{key}"));
        let acme = Owner::Tenant("acme".into());
        for key in ["dags/acme/web", "tenants/acme", "reservations/acme/7", "requests/acme/7"] {
            assert_eq!(owner(key), acme, "{key}");
        }
        for key in ["hosts/acme/spec", "bitstreams/acme", "last-transaction"] {
            let kind = key.split('/').next().unwrap_or_default();
            assert_eq!(owner(key), Owner::Kind(kind.to_owned()), "{key}");
        }
    }

    proptest! {
        /// Against a list of all that was told: a watch is given all changes of its scope, or is told that it is too
        /// old; and what is kept is counted.
        #[test]
        fn a_watch_has_no_gap(
            written in prop::collection::vec((0_u8..4, 0_usize..3, 1_u64..3), 1..60),
            begun in 0_u64..20,
            from in 0_u64..120,
            of in 0_u8..4,
        ) {
            let (small, cost_max) = (BYTES_MAX.div_ceil(CHANGES_MAX), 40_000);
            let mut revision = 0;
            let mut all = Vec::new();
            let mut early = Piece { cost_max: 9_000, ..Piece::behind(0) };
            let late = History::default();
            late.begin(Revision(begun as i64 + 1));
            late.piece.lock().cost_max = cost_max;
            for (tenant, size, step) in written {
                revision += step;
                let key = dag(&format!("t{tenant}"), revision as i64);
                let mut change = put(&key, revision as i64);
                if let Change::Put(record) = &mut change {
                    record.value = vec![0; size * small];
                }
                let told = update(vec![change], revision as i64);
                if revision <= begun + 5 {
                    early.apply_update(&told);
                }
                if revision > begun {
                    late.apply_update(&told);
                }
                all.push((key, revision));
            }
            late.earlier(early);
            let id = tenant(&format!("t{of}"));
            for scope in [Scope::All, Scope::Tenant(&id, "dags/")] {
                let prefix = match scope {
                    Scope::All => PREFIX.to_owned(),
                    Scope::Tenant(..) => format!("{PREFIX}dags/{id}/"),
                };
                let wanted = |key: &str| key.starts_with(&prefix);
                if let Ok(page) = late.after(from, 1_000, scope, wanted) {
                    let read: Vec<u64> = page.changes.iter().map(|change| change.revision).collect();
                    let told = all.iter().filter(|(key, at)| wanted(key) && *at > from);
                    prop_assert_eq!(read, told.map(|(_, at)| *at).collect::<Vec<_>>());
                }
            }
            let piece = late.piece.lock();
            let cost: usize = piece.changes.values().map(|change| change.cost()).sum();
            prop_assert!(piece.cost == cost && cost <= cost_max);
            let of_owners: usize = piece.owners.values().map(|kept| kept.cost).sum();
            prop_assert_eq!((of_owners, piece.costs.len()), (cost, piece.owners.len()));
        }
    }
}
