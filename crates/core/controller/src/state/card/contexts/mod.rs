//! State of chains that give their region up: saved to the card's save area, restored where the
//! same bitstream serves the same DAG again.
//!
//! A *context* is what a chain keeps for one DAG. A [`ResidentContext`] of a region is a DAG that may
//! have one there, a [`StateRecord`] says which one stands in the save area; a context is in one of the
//! two, never in both. Each is a separate record in the store: a thousand DAGs may share a region.
//!
//! ```text
//!  region is to hold something else ──┐
//!  DAG serves from another region ────┴► no row leads there ─► Saving ─► Saved     resident no more
//!                                                           (intent)      │
//!          DAG has a new region with that bitstream, loaded ──────────────┴► restored: resident
//!                                                                              └► Erasing ─► gone
//! ```
//!
//! This machine knows where each context is and which step of a wrapper is under way, one at a time. `residency`,
//! which knows DAGs and regions, decides when a context moves and what a DAG is
//! told.
//!
//! After a crash the records say what was under way, and the card says whether the context is still in its
//! region. A save is repeated: the context stays in the region until a load, which waits. A
//! restore is repeated: no packet came before it was recorded. When the card's boot id has changed,
//! its memory is empty, and all saved contexts are lost.

mod area;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snic_domain::{BitstreamId, CardId, DagName, DagUid, Digest, RegionId, SaveArea, Timestamp};
use snic_tables::{SaveSlot, StateOrder, Ticket};

use super::regions::{ObservedContent, Region, Regions};
use crate::store::records::{PendingErase, Phase, Record, RecordKey, ResidentContext, StateRecord};
use crate::store::tx::Tx;

impl StateRecord {
    const fn slot(&self) -> SaveSlot {
        SaveSlot { offset: self.offset, length: self.length }
    }

    /// DAG and bitstream of the context.
    pub(crate) fn context(&self) -> ResidentContext {
        ResidentContext { bitstream: self.bitstream.clone(), dag: self.dag.clone() }
    }

    /// Whether it is of this DAG and bitstream, and waits for a region or is on its way to wait.
    fn waits_for(&self, dag: &DagName, bitstream: &BitstreamId) -> bool {
        self.phase != Phase::Erasing && self.dag == *dag && self.bitstream == *bitstream
    }
}

/// Counts of work on the state on a card, since the daemon started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateFigures {
    pub saved: u64,
    pub restored: u64,
    pub lost: u64,
    /// Switches that were not made because state could not be saved.
    pub kept: u64,
    /// Contexts in the save area now.
    pub waiting: u64,
    /// Bytes of the save area that are taken now.
    pub bytes: u64,
}

/// Command to a wrapper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ContextCommand {
    /// To save what this offset is for.
    Save(u32),
    /// To restore what stands at this offset.
    Restore(u32),
    /// To begin again with a DAG.
    Clear(ResidentContext, DagUid),
    /// To erase what stands at this offset.
    Erase(u32),
    /// To erase what it keeps for a DAG that is gone.
    Depart(DagUid),
}

/// A wrapper's work under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContextStep {
    ticket: Ticket,
    pub region: RegionId,
    pub command: ContextCommand,
}

/// The place of a context in the save area belongs to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SaveSlotConflict;

/// Contexts of one region.
#[derive(Debug, Default)]
struct InRegion {
    /// DAGs that may have a context in it; each is a record.
    residents: BTreeSet<ResidentContext>,
    /// Nothing was kept in it since it was loaded but what its residents keep.
    is_fresh: bool,
    /// Why what is kept in it cannot be saved.
    unsavable: Option<String>,
}

/// The state of chains of one card.
#[derive(Debug)]
pub(crate) struct Contexts {
    card: CardId,
    /// Records, by offset.
    records: BTreeMap<u32, StateRecord>,
    /// Contexts of regions; nothing without an entry.
    regions: BTreeMap<RegionId, InRegion>,
    /// DAGs whose regions are loaded and whose contexts are not restored yet.
    awaiting_restore: BTreeSet<DagName>,
    /// Contexts of deleted DAGs that regions may have, with the bitstream of the region.
    pending_erases: BTreeMap<(RegionId, DagUid), Digest>,
    step: Option<ContextStep>,
    /// Steps that failed in a row.
    failures: u32,
    /// No step before.
    not_before: Timestamp,
    /// The card's, as last read.
    boot_id: u32,
    figures: StateFigures,
}

impl Contexts {
    /// None, on a card.
    pub fn new(card: CardId) -> Self {
        Self {
            card,
            records: BTreeMap::new(),
            regions: BTreeMap::new(),
            awaiting_restore: BTreeSet::new(),
            pending_erases: BTreeMap::new(),
            step: None,
            failures: 0,
            not_before: Timestamp::ZERO,
            boot_id: 0,
            figures: StateFigures::default(),
        }
    }

    /// Forgets commands that the card was sent.
    pub fn forget(&mut self) {
        self.step = None;
        self.failures = 0;
        self.not_before = Timestamp::ZERO;
    }

    /// The card was read back: which regions are fresh and which can be saved is not known any more.
    pub fn adopt(&mut self, boot_id: u32) {
        self.boot_id = boot_id;
        for kept in self.regions.values_mut() {
            (kept.is_fresh, kept.unsavable) = (false, None);
        }
    }

    /// The card's boot id, as last read: with another one its memory is empty.
    pub const fn boot_id(&self) -> u32 {
        self.boot_id
    }

    /// A context in the save area, as the store has it.
    ///
    /// # Errors
    /// Another one stands there.
    pub fn restore_record(&mut self, record: StateRecord) -> Result<(), SaveSlotConflict> {
        if !area::is_free(&self.records, record.offset, record.length) {
            return Err(SaveSlotConflict);
        }
        self.records.insert(record.offset, record);
        Ok(())
    }

    /// A DAG that may have a context in a region, as the store has it.
    pub fn restore_resident(&mut self, region: RegionId, resident: ResidentContext) {
        self.in_region(region).residents.insert(resident);
    }

    /// A DAG that is gone, as the store has it.
    pub fn restore_pending_erase(&mut self, region: RegionId, erase: PendingErase) {
        self.pending_erases.insert((region, erase.uid), erase.digest);
    }

    fn in_region(&mut self, region: RegionId) -> &mut InRegion {
        self.regions.entry(region).or_default()
    }

    /// The DAGs that may have a context in a region.
    pub fn residents(&self, region: RegionId) -> impl Iterator<Item = &ResidentContext> {
        self.regions.get(&region).into_iter().flat_map(|kept| &kept.residents)
    }

    /// All of them, by region.
    pub fn all_residents(&self) -> impl Iterator<Item = (RegionId, &ResidentContext)> {
        let all = self.regions.iter();
        all.flat_map(|(region, kept)| kept.residents.iter().map(|resident| (*region, resident)))
    }

    /// Whether a DAG may have a context of a bitstream in a region.
    pub fn is_resident(&self, region: RegionId, bitstream: &BitstreamId, dag: &DagName) -> bool {
        self.residents(region).any(|r| r.dag == *dag && r.bitstream == *bitstream)
    }

    /// A DAG has a context in a region from now on, as far as anybody knows.
    pub fn add_resident(&mut self, tx: &mut Tx, region: RegionId, resident: ResidentContext) {
        let residents = &mut self.regions.entry(region).or_default().residents;
        if !residents.contains(&resident) {
            tx.put(Record::ResidentContext(self.card.clone(), region, resident.clone()));
            residents.insert(resident);
        }
    }

    /// DAGs have no context in a region any more, as far as anybody needs it.
    pub fn remove_residents<'a>(
        &mut self,
        tx: &mut Tx,
        region: RegionId,
        residents: impl IntoIterator<Item = &'a ResidentContext>,
    ) {
        let kept = self.regions.entry(region).or_default();
        for resident in residents {
            if kept.residents.remove(resident) {
                tx.delete(RecordKey::ResidentContext(self.card.clone(), region, resident.clone()));
            }
        }
    }

    /// A region was loaded: it keeps nothing.
    pub fn loaded(&mut self, region: RegionId) {
        let kept = self.in_region(region);
        (kept.is_fresh, kept.unsavable) = (true, None);
    }

    /// Marks a region's contexts as unknown: a load of it failed, or something is copied.
    pub fn not_fresh(&mut self, region: RegionId) {
        self.in_region(region).is_fresh = false;
    }

    /// Whether a region keeps nothing but what its residents keep: it was just loaded.
    pub fn is_fresh(&self, region: RegionId) -> bool {
        self.regions.get(&region).is_some_and(|kept| kept.is_fresh)
    }

    /// Marks a region whose contexts cannot be saved: the region keeps its content.
    pub fn set_unsavable(&mut self, region: RegionId, why: &str) {
        self.in_region(region).unsavable = Some(why.to_owned());
        self.figures.kept += 1;
    }

    /// Whether a region must not be loaded with anything else, for what is in it has nowhere to go.
    /// Time O(contexts in the save area + residents).
    pub fn must_stay(
        &self,
        region: RegionId,
        area: SaveArea,
        length_of: impl Fn(&BitstreamId) -> u32,
    ) -> bool {
        let has_room = |kept: &InRegion| {
            area::places(&self.records, area, lengths(&kept.residents, length_of)).is_some()
        };
        self.regions.get(&region).is_some_and(|kept| {
            !kept.residents.is_empty() && (kept.unsavable.is_some() || !has_room(kept))
        })
    }

    /// Where contexts of these lengths have room in the save area; `None` where not all have.
    pub fn room_for(
        &self,
        area: SaveArea,
        lengths: impl IntoIterator<Item = u32>,
    ) -> Option<Vec<u32>> {
        area::places(&self.records, area, lengths)
    }

    /// The contexts in the save area, or on their way there or away, by offset.
    pub fn records(&self) -> impl Iterator<Item = &StateRecord> {
        self.records.values()
    }

    /// The record at an offset, if its context is needed yet.
    pub fn needed(&self, offset: u32) -> Option<&StateRecord> {
        self.records.get(&offset).filter(|record| record.phase != Phase::Erasing)
    }

    /// The first context of a DAG and bitstream that waits for a region, or is on its way to wait, and is
    /// not one of those at these offsets.
    pub fn waiting_for(
        &self,
        dag: &DagName,
        bitstream: &BitstreamId,
        but: &[u32],
    ) -> Option<&StateRecord> {
        self.records().find(|r| r.waits_for(dag, bitstream) && !but.contains(&r.offset))
    }

    /// A context is to be saved: from now on it is in the records.
    pub fn put(&mut self, tx: &mut Tx, record: StateRecord) {
        debug_assert!(area::is_free(&self.records, record.offset, record.length), "{record:?}");
        tx.put(Record::SavedContext(self.card.clone(), record.clone()));
        self.records.insert(record.offset, record);
    }

    /// Notes another phase of a context that is needed yet; of others nothing changes.
    pub fn set_phase(&mut self, tx: &mut Tx, offset: u32, phase: Phase) {
        let needed = self.records.get_mut(&offset).filter(|r| r.phase != Phase::Erasing);
        if let Some(record) = needed {
            (record.phase, record.since, record.attempts) = (phase, tx.now(), 0);
            tx.put(Record::SavedContext(self.card.clone(), record.clone()));
        }
    }

    /// A save failed; says how often in a row.
    pub fn count_attempt(&mut self, offset: u32) -> u32 {
        self.records.get_mut(&offset).map_or(0, |record| {
            record.attempts += 1;
            record.attempts
        })
    }

    /// The record at an offset is gone.
    pub fn remove(&mut self, tx: &mut Tx, offset: u32) {
        self.records.remove(&offset);
        tx.delete(RecordKey::SavedContext(self.card.clone(), offset));
    }

    /// A DAG is deleted, its contexts are not needed any more. Returns the regions that had one.
    pub fn forget_dag(&mut self, tx: &mut Tx, dag: &DagName) -> Vec<RegionId> {
        self.awaiting_restore.remove(dag);
        for record in self.records.values_mut().filter(|record| record.dag == *dag) {
            record.phase = Phase::Erasing;
            tx.put(Record::SavedContext(self.card.clone(), record.clone()));
        }
        let own = self.all_residents().filter(|(_, resident)| resident.dag == *dag);
        let own: Vec<_> = own.map(|(region, resident)| (region, resident.clone())).collect();
        for (region, resident) in &own {
            self.remove_residents(tx, *region, [resident]);
        }
        own.into_iter().map(|(region, _)| region).collect()
    }

    /// Enqueues the restore of a DAG's contexts: its regions are loaded.
    pub fn expect(&mut self, dag: &DagName) {
        self.awaiting_restore.insert(dag.clone());
    }

    /// All contexts of a DAG are restored.
    pub fn admitted(&mut self, dag: &DagName) {
        self.awaiting_restore.remove(dag);
    }

    /// The DAGs that wait for their contexts, by name.
    pub fn awaiting_restore(&self) -> impl Iterator<Item = &DagName> {
        self.awaiting_restore.iter()
    }

    /// A region may keep a context for a deleted DAG while it holds this bitstream.
    pub fn add_pending_erase(&mut self, tx: &mut Tx, region: RegionId, gone: PendingErase) {
        self.pending_erases.insert((region, gone.uid), gone.digest);
        tx.put(Record::PendingErase(self.card.clone(), region, gone));
    }

    /// The context of a deleted DAG in a region is erased.
    pub fn remove_pending_erase(&mut self, tx: &mut Tx, region: RegionId, uid: DagUid) {
        if self.pending_erases.remove(&(region, uid)).is_some() {
            tx.delete(RecordKey::PendingErase(self.card.clone(), region, uid));
        }
    }

    /// Forgets erases whose region holds another bitstream by now.
    pub fn forget_obsolete_erases(&mut self, tx: &mut Tx, regions: &Regions) {
        let card = &self.card;
        self.pending_erases.retain(|(region, uid), digest| {
            let observed = regions.get(*region).map(Region::observed);
            let stays = matches!(observed, Some(ObservedContent::Unknown))
                || observed == Some(ObservedContent::Holds(*digest));
            if !stays {
                tx.delete(RecordKey::PendingErase(card.clone(), *region, *uid));
            }
            stays
        });
    }

    /// Contexts of deleted DAGs that regions may have, with the region's bitstream.
    pub fn pending_erases(&self) -> impl Iterator<Item = (RegionId, DagUid, Digest)> {
        self.pending_erases.iter().map(|((region, uid), digest)| (*region, *uid, *digest))
    }

    /// Whether a step may begin now: none is under way, and it is time for one.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.step.is_none() && self.not_before <= now
    }

    /// The first context that is to be saved, with the region that it is in.
    pub fn next_save(&self) -> Option<(RegionId, ContextCommand)> {
        self.records().find_map(|record| match record.phase {
            Phase::Saving(from) => Some((from, ContextCommand::Save(record.offset))),
            Phase::Saved(_) | Phase::Erasing => None,
        })
    }

    /// The first context that is to be erased in the save area; any region will do.
    pub fn next_erase(&self) -> Option<(RegionId, ContextCommand)> {
        let record = self.records().find(|record| record.phase == Phase::Erasing)?;
        Some((RegionId(0), ContextCommand::Erase(record.offset)))
    }

    /// Begins a step; gives what the wrapper of the region is to be asked.
    ///
    /// # Panics
    /// A step is under way, or the command names a context that is not there.
    pub fn begin(
        &mut self,
        ticket: Ticket,
        region: RegionId,
        command: ContextCommand,
    ) -> StateOrder {
        assert_eq!(self.step, None, "one step at a time");
        let at = |offset: &u32| {
            self.records.get(offset).expect("a step is about a context that is in the records")
        };
        let order = match &command {
            ContextCommand::Save(offset) => {
                let record = at(offset);
                StateOrder::Save { uid: record.uid, slot: record.slot() }
            }
            ContextCommand::Restore(offset) => {
                let record = at(offset);
                let Phase::Saved(check) = record.phase else {
                    panic!("only what was saved is restored: {record:?}")
                };
                StateOrder::Restore { uid: record.uid, slot: record.slot(), check }
            }
            ContextCommand::Clear(_, uid) | ContextCommand::Depart(uid) => {
                StateOrder::Clear { uid: *uid }
            }
            ContextCommand::Erase(offset) => StateOrder::Erase { slot: at(offset).slot() },
        };
        if matches!(command, ContextCommand::Save(_) | ContextCommand::Restore(_)) {
            // What is copied from or to it may stay there.
            self.not_fresh(region);
        }
        self.step = Some(ContextStep { ticket, region, command });
        order
    }

    /// A wrapper answered; `failed` says how long to wait after this many failures in a row, where it
    /// failed. `None` where it is not the step that is under way.
    pub fn ended(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        failed: Option<impl Fn(u32) -> Duration>,
    ) -> Option<ContextStep> {
        let step = self.step.take_if(|step| step.ticket == ticket)?;
        match failed {
            None => self.failures = 0,
            Some(wait) => {
                self.failures += 1;
                self.not_before = now + wait(self.failures);
            }
        }
        Some(step)
    }

    /// Whether a region keeps what is being saved of it, or a step is under way there.
    pub fn holds_back(&self, region: RegionId) -> bool {
        self.records.values().any(|record| record.phase == Phase::Saving(region))
            || self.step.as_ref().is_some_and(|step| {
                step.region == region && !matches!(step.command, ContextCommand::Erase(_))
            })
    }

    /// Whether something is to be done that waits for nothing but its time.
    fn is_pending(&self) -> bool {
        let to_do = |record: &StateRecord| !matches!(record.phase, Phase::Saved(_));
        let any = !self.awaiting_restore.is_empty() || !self.pending_erases.is_empty();
        self.step.is_none() && (any || self.records.values().any(to_do))
    }

    /// When a wait ends.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.is_pending().then_some(self.not_before)
    }

    /// A context was saved.
    pub const fn count_saved(&mut self) {
        self.figures.saved += 1;
    }

    /// A context was restored.
    pub const fn count_restored(&mut self) {
        self.figures.restored += 1;
    }

    /// A context was lost.
    pub const fn count_lost(&mut self) {
        self.figures.lost += 1;
    }

    /// Counts of work done and of contexts kept.
    pub fn figures(&self) -> StateFigures {
        StateFigures {
            waiting: self.records.len() as u64,
            bytes: self.records.values().map(|record| u64::from(record.length)).sum(),
            ..self.figures
        }
    }

    /// No two contexts in one place, and all in the save area.
    pub fn check(&self, area: SaveArea) -> Result<(), String> {
        let mut end = 0;
        for record in self.records.values() {
            if record.offset < end {
                return Err(format!("two states stand at {}", record.offset));
            }
            end = record.offset.saturating_add(record.length);
        }
        match u64::from(end) > area.bytes.get() {
            true => Err(format!("a state ends at {end}, the save area at {}", area.bytes)),
            false => Ok(()),
        }
    }
}

/// Space of residents' contexts in the save area; residents come by their bitstreams.
fn lengths(
    residents: &BTreeSet<ResidentContext>,
    length_of: impl Fn(&BitstreamId) -> u32,
) -> impl Iterator<Item = u32> {
    residents.iter().scan(None, move |last: &mut Option<(&BitstreamId, u32)>, resident| {
        let length = match last {
            Some((of, length)) if **of == resident.bitstream => *length,
            _ => length_of(&resident.bitstream),
        };
        *last = Some((&resident.bitstream, length));
        Some(length)
    })
}
