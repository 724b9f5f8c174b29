//! Lost state, and regions that keep their content so that state is not lost.

use snic_domain::RegionId;
use snic_tables::RegionSnapshot;

use super::{LoadReadiness, Residency, describe_for, is_there, refresh_kept};
use crate::place::contents;
use crate::place::placement;
use crate::protocol::LogKind;
use crate::state::card::{ObservedContent, Region};
use crate::store::records::{Phase, ResidentContext, StateRecord};
use crate::store::tx::LogSubject;

/// Why a context is lost that a region does not hold.
const GONE: &str = "the region does not hold it any more";
/// Why a context is lost whose NTs were reset.
const RESET: &str = "its network tasks may have been reset while nobody looked";

impl Residency<'_> {
    /// A card said what it holds: contexts that its memory and its regions do not have are lost. So are those in regions that were
    /// found decoupled, for an NT that was reset has nothing left, and the region does not tell.
    pub fn adopt(&mut self, snapshots: &[RegionSnapshot]) {
        let was_reset =
            |region: RegionId| snapshots.get(region.index()).is_some_and(|seen| seen.was_decoupled);
        let boot_id = self.card().contexts().boot_id();
        let records: Vec<StateRecord> = self.card().contexts().records().cloned().collect();
        for record in records {
            if record.boot_id != boot_id {
                self.drop_record(&record, "the card has lost its memory");
            } else if let Phase::Saving(from) = record.phase
                && (was_reset(from) || !is_there(self.core, self.observed(from), &record.context()))
            {
                self.set_phase(record.offset, Phase::Erasing);
                let why = if was_reset(from) { RESET } else { GONE };
                self.report_lost_in(from, &record.context(), why);
            }
        }
        for region in self.card().region_ids() {
            self.drop_lost_residents(region);
            if was_reset(region) {
                self.lose_residents(region, RESET);
            }
        }
        refresh_kept(self.core, self.id);
    }

    /// The save area is smaller than it was: what does not fit is lost.
    pub fn lose_outside(&mut self) {
        let most = self.card().profile().save_area.bytes.get();
        let outside = |r: &&StateRecord| u64::from(r.offset) + u64::from(r.length) > most;
        let outside: Vec<_> = self.card().contexts().records().filter(outside).cloned().collect();
        for record in outside {
            self.drop_record(&record, "the save area is smaller than it was");
        }
    }

    /// The card goes: what it and its regions keep is lost.
    pub fn lose_all(&mut self, why: &str) {
        let records: Vec<StateRecord> = self.card().contexts().records().cloned().collect();
        records.iter().for_each(|record| self.drop_record(record, why));
        for region in self.card().region_ids() {
            self.lose_residents(region, why);
        }
        let erases: Vec<_> = self.card().contexts().pending_erases().collect();
        let contexts = self.core.cards.known_mut(self.id).contexts_mut();
        for (region, uid, _) in erases {
            contexts.remove_pending_erase(self.tx, region, uid);
        }
    }

    /// All that a region keeps is lost.
    fn lose_residents(&mut self, region: RegionId, why: &str) {
        let gone: Vec<ResidentContext> =
            self.card().contexts().residents(region).cloned().collect();
        self.remove_residents(region, &gone);
        gone.iter().for_each(|context| self.report_lost_in(region, context, why));
    }

    /// Deletes a record whose context is gone.
    fn drop_record(&mut self, record: &StateRecord, why: &str) {
        if record.phase != Phase::Erasing {
            self.report_lost(&record.context(), why);
        }
        self.core.cards.known_mut(self.id).contexts_mut().remove(self.tx, record.offset);
    }

    fn observed(&self, region: RegionId) -> ObservedContent {
        self.card().region(region).map_or(ObservedContent::Unknown, Region::observed)
    }

    /// Contexts of a region that holds something else by now are lost.
    pub fn drop_lost_residents(&mut self, region: RegionId) {
        let observed = self.observed(region);
        if observed == ObservedContent::Unknown {
            return;
        }
        let residents = self.card().contexts().residents(region);
        let gone = residents.filter(|context| !is_there(self.core, observed, context));
        let gone: Vec<ResidentContext> = gone.cloned().collect();
        self.remove_residents(region, &gone);
        for context in &gone {
            self.report_lost_in(region, context, GONE);
        }
    }

    /// A context that a region had is lost.
    pub(super) fn report_lost_in(
        &mut self,
        region: RegionId,
        context: &ResidentContext,
        why: &str,
    ) {
        let keeper = describe_for(&context.bitstream, &context.dag);
        let text = format!("what {keeper} kept for it in region {region} is lost: {why}");
        self.note_lost(context, vec![region], (why, text));
    }

    /// A context is lost.
    pub(super) fn report_lost(&mut self, context: &ResidentContext, why: &str) {
        let keeper = describe_for(&context.bitstream, &context.dag);
        let text = format!("what {keeper} kept for it is lost: {why}");
        self.note_lost(context, Vec::new(), (why, text));
    }

    fn note_lost(
        &mut self,
        context: &ResidentContext,
        regions: Vec<RegionId>,
        (why, text): (&str, String),
    ) {
        let dag = &context.dag;
        self.card_mut().contexts_mut().count_lost();
        self.core.dags.mark_dirty(dag);
        let about = LogSubject { regions, ..LogSubject::dag(self.id, dag) };
        self.tx.note_of(why, LogKind::StateLost, about, text);
        self.core.dags.emit(self.tx, dag);
    }

    /// A region stays what it is: what is kept in it cannot be saved. Who was to get it is planned
    /// again.
    pub(super) fn keep_region(&mut self, region: RegionId, why: &str) {
        let card = self.card_mut();
        let desired = card.region(region).and_then(|entry| entry.bitstream().cloned());
        card.contexts_mut().set_unsavable(region, why);
        refresh_kept(self.core, self.id);
        placement::abandon_content(self.core, self.tx, self.id, region);
        contents::keep_as_victim(self.core, self.tx, self.id, region);
        let desired = desired.map_or_else(|| "another chain".to_owned(), |b| b.to_string());
        let text = format!(
            "region {region} is not loaded with {desired}: state that is kept in it cannot be saved: \
             {why}"
        );
        let about = LogSubject { regions: vec![region], ..LogSubject::card(self.id) };
        self.tx.note(LogKind::StateKept, about, text);
    }

    /// A region is to be loaded: begins to save what is kept in it. Where there is no room for it the
    /// region stays what it is.
    pub fn make_loadable(&mut self, region: RegionId) -> LoadReadiness {
        self.drop_lost_residents(region);
        let observed = self.observed(region);
        let contexts = self.card().contexts().residents(region);
        let there = contexts.filter(|context| is_there(self.core, observed, context));
        let there: Vec<ResidentContext> = there.cloned().collect();
        if there.is_empty() {
            return LoadReadiness::Now;
        }
        if self.begin_saving(region, there).is_err() {
            self.keep_region(region, "the save area has no room for it");
        }
        LoadReadiness::NotYet
    }
}
