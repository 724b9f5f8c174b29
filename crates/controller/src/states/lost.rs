//! State that is lost, and regions that keep what they hold so that it is not.

use snic_domain::{CardId, RegionId};
use snic_tables::CardSnapshot;

use super::{Loadable, as_told};
use crate::card::{KNOWN, ObservedContent, Region};
use crate::protocol::LogKind;
use crate::records::{Key, Phase, ResidentContext, StateRecord};
use crate::state::Controller;
use crate::tx::{About, Tx};

impl Controller {
    /// A card said what it holds: contexts that its memory and its regions do not have are lost.
    pub(crate) fn adopt_states(&mut self, tx: &mut Tx, id: &CardId, snapshot: &CardSnapshot) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        card.states.boot_id = snapshot.boot_id;
        for kept in card.states.regions.values_mut() {
            (kept.is_fresh, kept.unsavable) = (false, None);
        }
        let records: Vec<_> = card.states.records.values().cloned().collect();
        for record in records {
            let guest =
                ResidentContext { bitstream: record.bitstream.clone(), dag: record.dag.clone() };
            if record.boot_id != snapshot.boot_id {
                self.drop_record(tx, id, &record, "the card has lost its memory");
            } else if let Phase::Saving(from) = record.phase
                && !self.observed(id, from).is_some_and(|observed| self.is_there(observed, &guest))
            {
                self.set_phase(tx, id, record.offset, Phase::Erasing);
                self.tell_lost(tx, (id, from), &guest, "the region does not hold it any more");
            }
        }
        let regions: Vec<RegionId> = self.cards[id].region_ids().collect();
        for region in regions {
            self.settle_guests(tx, id, region);
        }
        self.refresh_kept(id);
    }

    /// The save area is smaller than it was: what does not fit is lost.
    pub(crate) fn lose_outside(&mut self, tx: &mut Tx, id: &CardId) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        let most = card.profile.save_area.bytes.get();
        let outside = |r: &&StateRecord| u64::from(r.offset) + u64::from(r.length) > most;
        let outside: Vec<_> = card.states.records.values().filter(outside).cloned().collect();
        for record in outside {
            self.drop_record(tx, id, &record, "the save area is smaller than it was");
        }
    }

    /// What a record stands for is gone.
    fn drop_record(&mut self, tx: &mut Tx, id: &CardId, record: &StateRecord, why: &str) {
        let guest =
            ResidentContext { bitstream: record.bitstream.clone(), dag: record.dag.clone() };
        if record.phase != Phase::Erasing {
            self.tell_lost_on(tx, id, &guest, why);
        }
        if let Some(card) = self.cards.get_mut(id) {
            card.states.records.remove(&record.offset);
        }
        tx.delete(Key::SavedContext(id.clone(), record.offset));
    }

    fn observed(&self, id: &CardId, region: RegionId) -> Option<ObservedContent> {
        Some(self.cards.get(id)?.region(region)?.observed())
    }

    /// Contexts of a region that holds something else by now are lost.
    pub(crate) fn settle_guests(&mut self, tx: &mut Tx, id: &CardId, region: RegionId) {
        let card = &self.cards[id];
        let observed = card.region(region).map_or(ObservedContent::Unknown, Region::observed);
        if observed == ObservedContent::Unknown {
            return;
        }
        let gone = card.states.residents(region).filter(|guest| !self.is_there(observed, guest));
        let gone: Vec<ResidentContext> = gone.cloned().collect();
        self.remove_guests(tx, (id, region), &gone);
        for guest in &gone {
            self.tell_lost(tx, (id, region), guest, "the region does not hold it any more");
        }
    }

    /// A guest's context is lost.
    pub(super) fn lose(
        &mut self,
        tx: &mut Tx,
        (id, region): (&CardId, RegionId),
        guest: &ResidentContext,
        why: &str,
    ) {
        self.remove_guests(tx, (id, region), [guest]);
        self.tell_lost(tx, (id, region), guest, why);
    }

    pub(super) fn tell_lost(
        &mut self,
        tx: &mut Tx,
        (id, region): (&CardId, RegionId),
        guest: &ResidentContext,
        why: &str,
    ) {
        let keeper = as_told(&guest.bitstream, &guest.dag);
        let text = format!("what {keeper} kept for it in region {region} is lost: {why}");
        self.note_lost(tx, id, guest, (vec![region], text));
    }

    pub(super) fn tell_lost_on(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        guest: &ResidentContext,
        why: &str,
    ) {
        let keeper = as_told(&guest.bitstream, &guest.dag);
        let text = format!("what {keeper} kept for it is lost: {why}");
        self.note_lost(tx, id, guest, (Vec::new(), text));
    }

    fn note_lost(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        guest: &ResidentContext,
        (regions, text): (Vec<RegionId>, String),
    ) {
        if !self.dags.contains_key(&guest.dag) {
            return;
        }
        if let Some(card) = self.cards.get_mut(id) {
            card.states.figures.lost += 1;
        }
        self.dirty_dags.insert(guest.dag.clone());
        let about = About { regions, ..About::dag(id, &guest.dag) };
        tx.note(LogKind::StateLost, about, text);
        self.emit_dag(tx, &guest.dag);
    }

    /// A region stays what it is: what is kept in it cannot be saved. Who was to get it is planned
    /// anew.
    pub(super) fn keep_region(&mut self, tx: &mut Tx, id: &CardId, region: RegionId, why: &str) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        let desired = card.region(region).and_then(|entry| entry.bitstream().cloned());
        card.states.regions.entry(region).or_default().unsavable = Some(why.to_owned());
        card.states.figures.kept += 1;
        self.refresh_kept(id);
        self.abandon_content(tx, id, region);
        self.keep_as_victim(tx, id, region);
        let desired = desired.map_or_else(|| "another chain".to_owned(), |b| b.to_string());
        let text = format!(
            "region {region} is not loaded with {desired}: state that is kept in it cannot be saved: {why}"
        );
        let about = About { regions: vec![region], ..About::card(id) };
        tx.note(LogKind::StateKept, about, text);
    }

    /// A region is to be loaded: begins to save what is kept in it. Where there is no room for it the
    /// region stays what it is.
    pub(crate) fn make_loadable(&mut self, tx: &mut Tx, id: &CardId, region: RegionId) -> Loadable {
        self.settle_guests(tx, id, region);
        let card = self.cards.get(id).expect(KNOWN);
        let guests = self.to_be_saved(card, region);
        if guests.is_empty() {
            return Loadable::Now;
        }
        if !self.answers(id) || self.begin_saving(tx, id, region, guests).is_err() {
            self.keep_region(tx, id, region, "the save area has no room for it");
        }
        Loadable::NotYet
    }
}
