//! What a card said, and what follows from it.

use std::time::Duration;

use snic_domain::{Bandwidth, CardId, CardProfile, DagName, DagUid, RegionId};
use snic_planner::RegionCondition;
use snic_tables::{
    CardCommand, CardReport, CardSnapshot, DagRow, LoadFailure, ProgramFailure, RateLimiterRow,
    TableImage, Ticket,
};

use crate::card::{
    CardState, Committed, ConnectionState, Ended, KNOWN, LoadEnded, Loading, ObservedContent,
    Region,
};
use crate::pages::Pages;
use crate::records::{CardRecord, Placement, Record};
use crate::rows;
use crate::state::Controller;
use crate::tx::Tx;

impl Controller {
    /// A card was opened: it is asked what it holds.
    pub(crate) fn card_appeared(&mut self, tx: &mut Tx, id: CardId, profile: CardProfile) {
        self.absent.remove(&id);
        // The save area is no part of any plan.
        let known = self.cards.get(&id).map(|card| {
            card.profile == CardProfile { save_area: card.profile.save_area, ..profile.clone() }
        });
        match known {
            Some(true) => self.note_save_area(tx, &id, profile),
            Some(false) => {
                let reason = "it has another profile than the one its DAGs were planned for; \
                              give it another id in the settings";
                self.lose_card(tx, &id, reason.to_owned());
                return;
            }
            None => {
                tx.put(Record::Card(id.clone(), CardRecord { profile: profile.clone() }));
                self.cards.insert(id.clone(), CardState::new(id.clone(), profile));
            }
        }
        self.read_back(tx, &id);
    }

    /// A card whose save area is another one than it was is the same card.
    fn note_save_area(&mut self, tx: &mut Tx, id: &CardId, profile: CardProfile) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        if card.profile.save_area != profile.save_area {
            card.profile.save_area = profile.save_area;
            tx.put(Record::Card(id.clone(), CardRecord { profile }));
            self.lose_outside(tx, id);
        }
    }

    /// A card could not be opened.
    pub(crate) fn card_absent(&mut self, tx: &mut Tx, id: CardId, reason: String) {
        if self.cards.contains_key(&id) {
            self.role_settled(tx, &id, Err(&reason));
            self.lose_card(tx, &id, reason);
        } else {
            self.absent.insert(id, reason);
        }
    }

    /// A card answered.
    pub(crate) fn card_reported(&mut self, tx: &mut Tx, id: &CardId, report: CardReport) {
        if !self.cards.contains_key(id) {
            return;
        }
        match report {
            CardReport::ReadBack { ticket, snapshot } => self.adopt(tx, id, ticket, &snapshot),
            CardReport::Programmed { ticket, result } => {
                self.program_ended(tx, id, ticket, result);
            }
            CardReport::Loaded { ticket, result, .. } => self.load_ended(tx, id, ticket, result),
            CardReport::State { ticket, result, .. } => self.state_ended(tx, id, ticket, result),
            CardReport::Sampled { ticket, counters } => self.sampled(tx, id, ticket, *counters),
            CardReport::Lost { reason } => self.lose_card(tx, id, reason),
            // It was taken as lost when it was asked, and appears again.
            CardReport::Released { .. } => {}
            CardReport::RoleRefused { ticket, reason } => {
                self.role_refused(tx, id, ticket, &reason);
            }
        }
    }

    /// Asks a card what it holds; until it answers nothing else is asked.
    pub(crate) fn read_back(&mut self, tx: &mut Tx, id: &CardId) {
        let ticket = self.ticket();
        let card = self.cards.get_mut(id).expect(KNOWN);
        card.forget();
        card.connection = ConnectionState::Adopting(ticket);
        self.forget_meters(id);
        tx.card(id.clone(), CardCommand::ReadBack { ticket });
        self.touch_card(id);
    }

    pub(crate) fn lose_card(&mut self, tx: &mut Tx, id: &CardId, reason: String) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        card.forget();
        card.connection = ConnectionState::Absent(reason);
        self.forget_meters(id);
        self.touch_card(id);
        self.emit_regions(tx, id);
    }

    /// What was measured of the DAGs of a card counts no more.
    fn forget_meters(&mut self, id: &CardId) {
        let on_card = self.dags.values_mut().filter(|entry| entry.card() == Some(id));
        on_card.for_each(|entry| entry.meter.forget());
    }

    /// Has the status of every DAG of a card looked at again.
    fn touch_card(&mut self, id: &CardId) {
        let on_card = self.dags.iter().filter(|(_, entry)| entry.card() == Some(id));
        self.dirty_dags.extend(on_card.map(|(name, _)| name.clone()));
    }

    pub(crate) fn emit_regions(&self, tx: &mut Tx, id: &CardId) {
        for region in self.cards[id].region_ids() {
            self.emit_region(tx, id, region);
        }
    }

    /// Takes over what a card holds: nothing that is right already is written or loaded again.
    fn adopt(&mut self, tx: &mut Tx, id: &CardId, ticket: Ticket, snapshot: &CardSnapshot) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        if card.connection != ConnectionState::Adopting(ticket) {
            return;
        }
        if snapshot.idcode != card.profile.idcode || snapshot.regions.len() != card.regions.len() {
            let reason = format!(
                "the card has IDCODE {:#010x} and {} regions; its profile says {:#010x} and {}",
                snapshot.idcode,
                snapshot.regions.len(),
                card.profile.idcode,
                card.regions.len()
            );
            self.role_settled(tx, id, Err(&reason));
            self.lose_card(tx, id, reason);
            return;
        }
        card.connection = ConnectionState::Ready;
        card.tables.adopt(snapshot.version, snapshot.tables.clone());
        card.regions.adopt(&snapshot.regions);
        let regions: Vec<RegionId> = card.region_ids().collect();
        self.adopt_states(tx, id, snapshot);
        for &region in &regions {
            self.keep_as_victim(tx, id, region);
        }
        self.rebuild_target(id, &regions);
        self.role_settled(tx, id, Ok(()));
        self.emit_regions(tx, id);
        // Whether something was freed before is not known.
        self.consolidate_later();
    }

    /// Makes the target tables anew, and compares all of them with the card's.
    fn rebuild_target(&mut self, id: &CardId, regions: &[RegionId]) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        card.pages = Pages::of(card.tables.active());
        for &region in regions {
            if self.cards[id].region(region).is_some_and(|entry| entry.is_loaded()) {
                self.target_region(id, region);
            }
        }
        let card = self.cards.get(id).expect(KNOWN);
        let names: Vec<DagName> = self
            .dags
            .iter_mut()
            .filter(|(_, entry)| entry.card() == Some(id))
            .map(|(name, entry)| {
                entry.forget_rows();
                entry.meter.rate = rate_on(card.tables.active(), entry.uid());
                name.clone()
            })
            .collect();
        for name in &names {
            self.refresh_rows(name);
        }
        let card = self.cards.get_mut(id).expect(KNOWN);
        card.tables.compare();
        for name in names {
            self.adopt_rows(id, name);
        }
    }

    /// A DAG whose rows the card has already needs no commit to be known as served.
    fn adopt_rows(&mut self, id: &CardId, name: DagName) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        let entry = self.dags.get_mut(&name).expect("its name was just read from the DAGs");
        let target = entry.targeted();
        let uid = entry.uid();
        let is_there = |p: &&Placement| {
            !card.tables.differs(rows::keys(uid, p).chain(card.pages.rows_of(&name)))
        };
        match target.filter(is_there) {
            Some(p) => {
                let serial = p.serial;
                entry.set_active(Some(serial));
            }
            None => {
                card.tables.touch(&name);
            }
        }
        self.dirty_dags.insert(name);
    }

    fn program_ended(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        ticket: Ticket,
        result: Result<u32, ProgramFailure>,
    ) {
        let now = self.now;
        let settings = self.settings;
        let card = self.cards.get_mut(id).expect(KNOWN);
        match card.tables.ended(now, ticket, result, |failures| settings.wait(failures)) {
            Ended::Stale => {}
            Ended::Committed(follows) => self.programmed(tx, id, follows),
            Ended::Failed => self.read_back(tx, id),
        }
    }

    /// The card's tables, read back, hold the rows of these placements.
    pub(crate) fn programmed(&mut self, tx: &mut Tx, id: &CardId, follows: Committed) {
        let Committed { dags, removals } = follows;
        if let Some(card) = self.cards.get_mut(id) {
            self.dirty_dags.append(&mut card.pages.waiting);
        }
        for (name, serial) in dags {
            if let Some(entry) = self.dags.get_mut(&name)
                && entry.card() == Some(id)
            {
                let stopped = entry.set_active(serial);
                self.settle(tx, &name);
                if let Some(since) = stopped {
                    self.tell_stop(tx, id, &name, since);
                }
            }
        }
        for operation in removals {
            self.end_operation(tx, &operation, Ok(()));
        }
    }

    fn load_ended(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        ticket: Ticket,
        result: Result<Duration, LoadFailure>,
    ) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        let ended = card.regions.ended(self.now, ticket, result, &self.settings);
        match ended {
            LoadEnded::Stale => {}
            LoadEnded::Loaded(load) => {
                card.states.loaded(load.region);
                self.load_suspects.remove(&load.bitstream);
                self.region_changed(tx, id, load.region);
            }
            LoadEnded::Failed(load) => self.load_failed(tx, id, &load, None),
            LoadEnded::GivenUp { load, reason } => self.load_failed(tx, id, &load, Some(reason)),
        }
    }

    /// A region holds something else than before.
    fn region_changed(&mut self, tx: &mut Tx, id: &CardId, region: RegionId) {
        let card = &self.cards[id];
        if card.region(region).is_some_and(|entry| entry.is_loaded()) {
            self.target_region(id, region);
        } else {
            self.keep_as_victim(tx, id, region);
        }
        self.touch_region(id, region);
        self.emit_region(tx, id, region);
    }

    /// Has the status of every DAG of a region looked at again.
    pub(crate) fn touch_region(&mut self, id: &CardId, region: RegionId) {
        let users: Vec<DagName> = self.cards[id].ledger.users(region).cloned().collect();
        self.dirty_dags.extend(users);
    }

    /// A load failed; with a reason where it is not tried again.
    fn load_failed(&mut self, tx: &mut Tx, id: &CardId, load: &Loading, reason: Option<String>) {
        let card = self.cards.get_mut(id).expect("a card that is not known says nothing");
        card.states.not_fresh(load.region);
        let observed = card.region(load.region).map(Region::observed);
        if let Some(reason) = reason {
            self.give_up_region(tx, id, load, reason);
        }
        self.touch_region(id, load.region);
        self.emit_region(tx, id, load.region);
        if observed == Some(ObservedContent::Unknown) {
            self.read_back(tx, id);
        }
    }

    /// No load is tried any more: the region is faulty, unless the same bitstream failed in
    /// another region too; then the bitstream is, and the regions are cleared of it.
    fn give_up_region(&mut self, tx: &mut Tx, id: &CardId, load: &Loading, reason: String) {
        let suspects = self.load_suspects.entry(load.bitstream.clone()).or_default();
        suspects.insert((id.clone(), load.region));
        if suspects.len() < 2 {
            self.set_faulty(id, load.region, Some(reason));
            self.abandon_content(tx, id, load.region);
            return;
        }
        for (card, region) in self.load_suspects.remove(&load.bitstream).unwrap_or_default() {
            self.set_faulty(&card, region, None);
            self.abandon_content(tx, &card, region);
        }
        self.reject_bitstream(tx, &load.bitstream, reason);
    }

    /// Notes that a region is faulty, or that it is not.
    pub(crate) fn set_faulty(&mut self, id: &CardId, region: RegionId, reason: Option<String>) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        card.regions.set_faulty(region, reason, self.now);
        self.refresh_condition(id, region);
    }

    /// Tells the ledger whether a region may be planned with.
    pub(crate) fn refresh_condition(&mut self, id: &CardId, region: RegionId) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        let condition = card.region(region).map_or(RegionCondition::Unknown, Region::condition);
        card.ledger.set_condition(region, condition);
    }
}

/// What a card's tables let a DAG send, if it has rows of it: a rate that was granted before stays
/// until the loop says otherwise.
fn rate_on(tables: &TableImage, uid: DagUid) -> Option<Bandwidth> {
    tables.get::<DagRow>(uid.row()).filter(|row| row.uid == uid.raw())?;
    let row = tables.get::<RateLimiterRow>(uid.row())?;
    Some(Bandwidth::from_bps(u64::from(row.rate_kbps) * 1_000))
}

impl CardState {
    /// Forgets what was known of the card and what was under way.
    fn forget(&mut self) {
        self.tables.forget();
        self.regions.forget();
        self.epoch.forget();
        self.states.forget();
    }
}
