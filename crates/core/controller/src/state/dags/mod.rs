//! DAGs: what each one asks for, where it is, and which of its placements the card serves.
//!
//! [`PlacementState`](place::PlacementState) says where a DAG is placed and where it is going; beside it stand two serials:
//! of the placement whose rows the target tables hold, and of the one whose rows the card, read back,
//! holds. A DAG is ready when both are the desired one's.

mod changing;
mod entries;
mod entry;
mod naming;
mod nt_answers;
mod place;
mod sums;
mod uids;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Bound;

use snic_domain::{
    Bandwidth, CardId, DagId, DagName, DagSpec, DagUid, Explanation, NtTypeId, TenantId, Timestamp,
};

use crate::protocol::Change;
use crate::state::meter::Meter;
use crate::store::records::{DagRecord, InvalidRecord, Record, RecordKey, storable};
use crate::store::tx::Tx;

pub(crate) use changing::DagMut;
pub(crate) use entries::DagNumber;
use entries::{Entries, NamedEntry};
pub(crate) use entry::{DagEntry, ReplacedPlacement};
use naming::NameIndex;
use sums::DagSums;
use uids::Uids;

/// Explanations have records of their own; a larger one is cut to what a record takes.
pub(crate) const EXPLANATION_BYTES_MAX: usize = 64 * 1024;

/// All DAGs, and which of them have to be looked at again.
#[derive(Debug, Default)]
pub(crate) struct Dags {
    entries: Entries,
    /// Sums over all of them, which [`DagMut`] brings up to date.
    sums: DagSums,
    uids: Uids,
    /// DAGs whose rows or status may have to change.
    dirty: BTreeSet<DagName>,
    /// DAGs without a place, to be tried again when something was freed.
    unscheduled: BTreeSet<DagName>,
    /// DAGs that were restored in an image that they do not trust.
    untrusted: BTreeSet<DagName>,
    /// DAGs that trust each tenant.
    trusting: NameIndex<TenantId>,
    /// DAGs that use each NT type.
    using: NameIndex<NtTypeId>,
    /// DAGs that keep apart from each DAG.
    apart: NameIndex<DagName>,
    /// DAGs that were looked at one by one.
    #[cfg(test)]
    looked_at: std::cell::Cell<usize>,
}

impl Dags {
    /// A row of the DAG table was given out before, as the store has it.
    ///
    /// # Errors
    /// There is no such row.
    pub fn restore_uid(&mut self, row: u16, incarnation: u32) -> Result<(), InvalidRecord> {
        self.uids.restore(row, incarnation)
    }

    /// A DAG, as the store has it.
    ///
    /// # Errors
    /// Its spec is no DAG, or another one has its name.
    pub fn restore(
        &mut self,
        record: DagRecord,
        explanation: Option<Explanation>,
    ) -> Result<&DagEntry, InvalidRecord> {
        let name = record.name.clone();
        snic_domain::Dag::new(record.spec.clone()).map_err(|error| {
            InvalidRecord::contradiction(RecordKey::Dag(name.clone()), error.to_string())
        })?;
        if self.contains(&name) {
            return Err(InvalidRecord::contradiction(RecordKey::Dag(name), "it is stored twice"));
        }
        if record.placement.is_none() {
            self.unscheduled.insert(name.clone());
        }
        self.dirty.insert(name.clone());
        self.insert(DagEntry::restore(record, explanation));
        Ok(self.known(&name))
    }

    fn insert(&mut self, entry: DagEntry) {
        let name = entry.name().clone();
        let number = self.entries.insert(entry);
        if let Some(NamedEntry { name, entry }) = self.entries.at(number) {
            self.sums.note(number, name, entry);
        }
        self.note_names(&name);
    }

    /// The UID that the next DAG gets on a card: in a row that no other DAG has there, and if possible nowhere,
    /// so that it can keep it on other cards; one that is not `counting` packets of a DAG that has left, if there is one. `None` where
    /// the card's table is full. Time O(rows / 64).
    pub fn next_uid(&self, card: &CardId, counting: &[u16]) -> Option<DagUid> {
        self.uids.next(self.sums.free_row(card, counting)?)
    }

    /// Whether a DAG without a place keeps its UID on a card: no other DAG has its row there. Time O(log DAGs).
    pub fn keeps_uid(&self, name: &DagName, card: &CardId) -> bool {
        let entry = self.known(name);
        debug_assert!(entry.card().is_none(), "{name}: its row is its own");
        !self.sums.is_taken(card, entry.uid().row())
    }

    /// A DAG without a place gets another UID, for a card.
    pub fn change_uid(&mut self, tx: &mut Tx, name: &DagName, uid: DagUid) {
        self.take_uid(tx, uid);
        self.known_mut(name).set_uid(uid);
    }

    fn take_uid(&mut self, tx: &mut Tx, uid: DagUid) {
        self.uids.take(uid);
        tx.put(Record::Uid(uid.row(), uid.incarnation()));
    }

    /// A new DAG, with the UID that is next on its card.
    pub fn add(&mut self, tx: &mut Tx, entry: DagEntry) {
        self.take_uid(tx, entry.uid());
        self.insert(entry);
    }

    /// Forgets a deleted DAG.
    pub fn remove(&mut self, tx: &mut Tx, name: &DagName) -> DagEntry {
        let gone = self.entries.remove(name);
        let (number, NamedEntry { name: shared, entry }) =
            gone.expect("only a DAG that exists is removed");
        self.sums.forget(number, &shared);
        self.unscheduled.remove(name);
        self.untrusted.remove(name);
        self.trusting.forget(name);
        self.using.forget(name);
        self.apart.forget(name);
        self.dirty.remove(name);
        tx.delete(RecordKey::Dag(name.clone()));
        tx.delete(RecordKey::Explanation(name.clone()));
        entry
    }

    /// A DAG that a caller named, if there is one.
    pub fn get(&self, name: &DagName) -> Option<&DagEntry> {
        self.at(self.entries.number_of(name)?)
    }

    /// A DAG that a caller named, if there is one.
    pub fn get_mut(&mut self, name: &DagName) -> Option<DagMut<'_>> {
        let number = self.entries.number_of(name)?;
        let Self { entries, sums, .. } = self;
        Some(DagMut::new(number, entries.at_mut(number)?, sums))
    }

    /// A DAG that is known to exist.
    pub fn known(&self, name: &DagName) -> &DagEntry {
        self.get(name).expect(KNOWN)
    }

    /// A DAG that is known to exist.
    pub fn known_mut(&mut self, name: &DagName) -> DagMut<'_> {
        self.get_mut(name).expect(KNOWN)
    }

    /// The meter of a DAG that is known to exist.
    pub fn meter_mut(&mut self, name: &DagName) -> &mut Meter {
        let number = self.entries.number_of(name).expect(KNOWN);
        self.metered_mut(number).expect(KNOWN).meter_mut()
    }

    /// The DAG with a number, if there is one.
    pub fn at(&self, number: DagNumber) -> Option<&DagEntry> {
        self.entries.at(number).map(|at| &at.entry)
    }

    /// The same for who changes its meter alone.
    pub fn metered_mut(&mut self, number: DagNumber) -> Option<&mut DagEntry> {
        self.entries.at_mut(number).map(|at| &mut at.entry)
    }

    /// Shows the meters of the DAGs on a card, by name.
    pub fn visit_meters(
        &mut self,
        card: &CardId,
        mut visit: impl FnMut(DagUid, &DagSpec, &mut Meter),
    ) {
        let Self { entries, sums, .. } = self;
        for number in sums.on_card(card) {
            if let Some(NamedEntry { entry, .. }) = entries.at_mut(number) {
                let uid = entry.uid();
                let (spec, meter) = entry.spec_and_meter();
                visit(uid, spec, meter);
            }
        }
    }

    /// Visits the DAGs on a card. Time O(those).
    pub fn visit_on_card(&self, card: &CardId, visit: impl FnMut(&DagEntry)) {
        let entries = self.sums.on_card(card).filter_map(|number| self.entries.at(number));
        entries.map(|NamedEntry { entry, .. }| entry).for_each(visit);
    }

    pub fn contains(&self, name: &DagName) -> bool {
        self.entries.number_of(name).is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &DagEntry> {
        self.entries.iter().map(|(_, entry)| entry).inspect(|_| self.count_look())
    }

    /// Tests count what is looked at one by one.
    fn count_look(&self) {
        #[cfg(test)]
        self.looked_at.update(|count| count + 1);
    }

    /// DAGs that were looked at one by one so far.
    #[cfg(test)]
    pub fn looked_at(&self) -> usize {
        self.looked_at.get()
    }

    /// The DAGs of a tenant, by id. Time O(log DAGs + its DAGs).
    pub fn of_tenant<'a>(&'a self, id: &'a TenantId) -> impl Iterator<Item = &'a DagEntry> {
        let range = self.entries.range(first_of(id)..).map(|(_, entry)| entry);
        range.take_while(move |entry| entry.name().tenant == *id).inspect(|_| self.count_look())
    }

    /// Number of a tenant's DAGs.
    pub fn count_of(&self, id: &TenantId) -> usize {
        self.sums.dags_of(id)
    }

    /// Threads of the programs of a tenant's DAGs; of one that moves, those of the placement that has more. Time O(log
    /// tenants).
    pub fn threads_of(&self, id: &TenantId) -> u32 {
        self.sums.threads(id)
    }

    /// Configured NTs of a tenant's DAGs. Time O(log tenants).
    pub fn configurations_of(&self, id: &TenantId) -> usize {
        self.sums.configurations(id)
    }

    /// The DAGs on a card, by name. Time O(log cards + its DAGs).
    pub fn on_card<'a>(&'a self, id: &'a CardId) -> impl Iterator<Item = &'a DagEntry> {
        self.numbered_on_card(id).map(|(_, entry)| entry)
    }

    /// The same with their numbers.
    pub fn numbered_on_card<'a>(
        &'a self,
        id: &'a CardId,
    ) -> impl Iterator<Item = (DagNumber, &'a DagEntry)> {
        let numbers = self.sums.on_card(id).inspect(|_| self.count_look());
        numbers.filter_map(|number| Some((number, self.at(number)?)))
    }

    /// Bandwidth that is guaranteed to all DAGs on a card.
    pub fn guaranteed_on(&self, id: &CardId) -> Bandwidth {
        self.sums.guaranteed(id)
    }

    /// The DAGs on a card that hold more than they were guaranteed and could be made smaller now: who holds most beyond
    /// comes first.
    pub fn borrowers_on<'a>(&'a self, id: &'a CardId) -> impl Iterator<Item = &'a DagEntry> {
        let numbers = self.sums.borrowers(id).inspect(|_| self.count_look());
        numbers.filter_map(|number| self.at(number))
    }

    /// The DAGs that keep apart from one, by name.
    pub fn keeping_apart_from(&self, name: &DagName) -> impl Iterator<Item = &DagName> {
        self.apart.of(name)
    }

    /// The DAGs behind this one, of one tenant or of all, by name. Time O(log DAGs) before the first.
    pub fn after(
        &self,
        tenant: Option<&TenantId>,
        after: Option<&DagName>,
    ) -> impl Iterator<Item = &DagEntry> {
        let first = tenant.map(first_of);
        let start = match (after, &first) {
            (Some(after), Some(first)) if after < first => Bound::Included(first),
            (Some(after), _) => Bound::Excluded(after),
            (None, Some(first)) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        let range = (start.cloned(), Bound::Unbounded);
        let range = self.entries.range(range).map(|(_, entry)| entry);
        range.take_while(move |entry| tenant.is_none_or(|tenant| entry.name().tenant == *tenant))
    }

    /// The rows or the status of a DAG may have to change.
    pub fn mark_dirty(&mut self, name: &DagName) {
        self.dirty.insert(name.clone());
    }

    /// The rows or the status of these DAGs may have to change.
    pub fn mark_all_dirty(&mut self, mut names: BTreeSet<DagName>) {
        self.dirty.append(&mut names);
    }

    /// The rows or the status of the DAGs on a card may have to change.
    pub fn mark_card_dirty(&mut self, id: &CardId) {
        let names: Vec<DagName> = self.on_card(id).map(|entry| entry.name().clone()).collect();
        self.dirty.extend(names);
    }

    /// The next DAG whose rows or status may have to change.
    pub fn pop_dirty(&mut self) -> Option<DagName> {
        self.dirty.pop_first()
    }

    /// Whether there is none.
    pub fn is_settled(&self) -> bool {
        self.dirty.is_empty()
    }

    /// A DAG has no place, and is to be tried again when something was freed.
    pub fn set_unscheduled(&mut self, name: &DagName) {
        self.unscheduled.insert(name.clone());
    }

    /// A DAG has a place, or goes.
    pub fn set_scheduled(&mut self, name: &DagName) {
        self.unscheduled.remove(name);
    }

    /// Whether a DAG is there and has no place.
    pub fn is_unscheduled(&self, name: &DagName) -> bool {
        self.unscheduled.contains(name)
    }

    /// The DAGs that have no place, by name.
    pub fn unscheduled(&self) -> impl Iterator<Item = &DagEntry> {
        self.unscheduled.iter().map(|name| self.known(name))
    }

    /// The next generation of a DAG; gives what was asked for before.
    pub fn change_spec(&mut self, name: &DagName, spec: DagSpec, now: Timestamp) -> DagSpec {
        let before = self.known_mut(name).change_spec(spec, now);
        self.note_names(name);
        before
    }

    /// Notes what a DAG, or a placement of it, names now.
    fn note_names(&mut self, name: &DagName) {
        let entry = self.known(name);
        let (trusted, nts) = (entry.trusted(), entry.nts());
        let apart = entry.spec().card_affinity.apart_from.iter().cloned().collect();
        self.trusting.note(name, trusted);
        self.using.note(name, nts);
        self.apart.note(name, apart);
    }

    /// One of the DAGs of others that trust a tenant. Time O(log DAGs), and as much for each that did and does not
    /// any more, once.
    pub fn trusts(&mut self, tenant: &TenantId) -> Option<DagName> {
        loop {
            let name = self.trusting.one_of(tenant, Some(tenant))?.clone();
            self.count_look();
            if self.known(&name).names_as_trusted(tenant) {
                return Some(name);
            }
            // It did, in a placement that it has left.
            self.note_names(&name);
        }
    }

    /// Whether DAGs use an NT type, but for those of a tenant. Time as [`Dags::trusts`].
    pub fn is_used(&mut self, nt: &NtTypeId, but_for: Option<&TenantId>) -> bool {
        while let Some(name) = self.using.one_of(nt, but_for).cloned() {
            self.count_look();
            if self.known(&name).uses(nt) {
                return true;
            }
            // It did, in a placement that it has left.
            self.note_names(&name);
        }
        false
    }

    /// Number of DAGs that use an NT type. Time O(those that do, or did before their last change).
    pub fn count_users(&self, nt: &NtTypeId) -> usize {
        let uses = |name: &&DagName| {
            self.count_look();
            self.known(name).uses(nt)
        };
        self.using.of(nt).filter(uses).count()
    }

    /// A DAG trusts a tenant no more that is about to go; see [`DagEntry::forget_trust`].
    pub fn forget_trust(&mut self, name: &DagName, tenant: &TenantId, now: Timestamp) {
        self.known_mut(name).forget_trust(tenant, now);
        self.note_names(name);
    }

    /// A DAG was restored in an image that it does not trust.
    pub fn set_untrusted(&mut self, name: &DagName) {
        self.untrusted.insert(name.clone());
    }

    /// A DAG has left such an image.
    pub fn set_trusted(&mut self, name: &DagName) {
        self.untrusted.remove(name);
    }

    /// Whether a DAG may be in an image that it does not trust.
    pub fn is_untrusted(&self, name: &DagName) -> bool {
        self.untrusted.contains(name)
    }

    /// The DAGs that may be in images that they do not trust, by name.
    pub fn untrusted(&self) -> impl Iterator<Item = &DagName> {
        self.untrusted.iter()
    }

    /// Stores a DAG as it is.
    pub fn store(&self, tx: &mut Tx, name: &DagName) {
        tx.put(Record::Dag(Box::new(self.known(name).record())));
    }

    /// Keeps and stores why a DAG is placed as it is.
    pub fn explain(&mut self, tx: &mut Tx, name: &DagName, explanation: Explanation) {
        let stored = storable(&explanation, EXPLANATION_BYTES_MAX);
        tx.put(Record::Explanation(name.clone(), stored));
        self.known_mut(name).set_explanation(Some(explanation));
    }

    /// Why a DAG is placed as it is is not known any more.
    pub fn forget_explanation(&mut self, tx: &mut Tx, name: &DagName) {
        tx.delete(RecordKey::Explanation(name.clone()));
        self.known_mut(name).set_explanation(None);
    }

    /// Tells those who watch that a DAG has changed.
    pub fn emit(&self, tx: &mut Tx, name: &DagName) {
        tx.emit(Change::Dag(name.clone(), self.known(name).uid()));
    }

    /// Every invariant that concerns DAGs alone, recomputed from scratch; says which is broken.
    pub fn check(&self) -> Result<(), String> {
        let mut rows: BTreeSet<(&CardId, u16)> = BTreeSet::new();
        let mut uids: BTreeSet<DagUid> = BTreeSet::new();
        self.entries.check()?;
        for entry in self.entries.iter().map(|(_, entry)| entry) {
            let name = entry.name();
            if entry.desired().is_none() && !self.unscheduled.contains(name) {
                return Err(format!("{name}: it has no place and does not wait for one"));
            }
            if entry.card().is_some_and(|card| !rows.insert((card, entry.uid().row()))) {
                return Err(format!("{name}: another DAG has its row on its card"));
            }
            if !uids.insert(entry.uid()) {
                return Err(format!("{name}: another DAG has its UID"));
            }
            let trusts = |of: &TenantId| self.trusting.of(of).any(|noted| noted == name);
            let uses = |nt: &NtTypeId| self.using.of(nt).any(|noted| noted == name);
            let keeps_apart = |of: &DagName| self.apart.of(of).any(|noted| noted == name);
            let is_noted = entry.trusted().iter().all(trusts)
                && entry.nts().iter().all(uses)
                && entry.spec().card_affinity.apart_from.iter().all(keeps_apart);
            if !is_noted {
                return Err(format!("{name}: what it names is not noted"));
            }
            if let Some(serial) = entry.target()
                && entry.placement(serial).is_none()
            {
                return Err(format!("{name}: its rows are of placement {serial}, which is gone"));
            }
        }
        for (by_name, by_dag) in [self.trusting.counts(), self.using.counts(), self.apart.counts()]
        {
            if by_name != by_dag {
                return Err(format!("{by_name} names are noted by name, {by_dag} by DAG"));
            }
        }
        self.sums.check(&self.entries)?;
        let mut waiting = self.unscheduled.iter().chain(&self.dirty).chain(&self.untrusted);
        match waiting.find(|name| !self.contains(name)) {
            Some(name) => Err(format!("{name} is gone and is to be looked at")),
            None => Ok(()),
        }
    }
}

/// Why a DAG is there: requests that name another one were refused, and what goes with a DAG is gone
/// before it is.
const KNOWN: &str = "a name that no DAG has was refused";

/// The name before those of all DAGs of a tenant.
fn first_of(tenant: &TenantId) -> DagName {
    DagName { tenant: tenant.clone(), dag: DagId::new("a").expect("the smallest label") }
}
