//! What wrappers are asked, one at a time for each card, and what came of it.

use snic_domain::{CardId, DagName, RegionId, Timestamp};
use snic_tables::{CardCommand, SaveSlot, StateDone, StateFailure, StateOrder, Ticket};

use super::guests::Need;
use super::{ContextCommand, NoRoom, Step, area, as_told};
use crate::card::KNOWN;
use crate::placement::regions_of;
use crate::protocol::LogKind;
use crate::records::{Key, Phase, Record, ResidentContext, StateRecord};
use crate::state::Controller;
use crate::tx::{About, Tx};

impl Controller {
    /// Asks for the next step with state, if none is under way: what is to be saved first, for loads
    /// wait for it; then what DAGs wait for; then what is to be erased, for nobody waits for that.
    pub(crate) fn keep_states(&mut self, tx: &mut Tx, id: &CardId) {
        self.serve_newcomers(tx, id);
        self.settle_departed(tx, id);
        let card = self.cards.get(id).expect(KNOWN);
        let states = &card.states;
        if states.step.is_some() || states.not_before > self.now {
            return;
        }
        let saving = states.records.values().find_map(|record| match record.phase {
            Phase::Saving(from) => Some((from, ContextCommand::Save(record.offset))),
            _ => None,
        });
        let erasing = || {
            let record = states.records.values().find(|r| r.phase == Phase::Erasing)?;
            Some((RegionId(0), ContextCommand::Erase(record.offset)))
        };
        let next = saving.or_else(|| self.next_for_newcomers(id)).or_else(erasing);
        let next = next.or_else(|| self.next_departed(id));
        if let Some((region, asked)) = next {
            self.ask(tx, id, region, asked);
        }
    }

    /// Lets in who lacks nothing, and begins to save what they left behind.
    fn serve_newcomers(&mut self, tx: &mut Tx, id: &CardId) {
        let names = self.cards.get(id).map(|card| card.states.newcomers.clone());
        for name in names.unwrap_or_default() {
            let needs = self.needs(id, &name);
            if needs.is_empty()
                && let Some(card) = self.cards.get_mut(id)
            {
                card.states.newcomers.remove(&name);
            }
            for (region, bitstream, need) in needs {
                let guest = ResidentContext { bitstream, dag: name.clone() };
                match need {
                    Need::Nothing => self.add_guest(tx, id, region, guest),
                    Need::SaveFrom(from) => {
                        if self.begin_saving(tx, id, from, vec![guest.clone()]).is_err() {
                            let why = "the save area has no room for it";
                            self.lose(tx, (id, from), &guest, why);
                        }
                    }
                    Need::Restore(_) | Need::Wait | Need::Clear => {}
                }
            }
        }
    }

    /// What the first newcomer that lacks something that a wrapper can do lacks.
    fn next_for_newcomers(&self, id: &CardId) -> Option<(RegionId, ContextCommand)> {
        self.cards.get(id)?.states.newcomers.iter().find_map(|dag| {
            self.needs(id, dag).into_iter().find_map(|(region, bitstream, need)| match need {
                Need::Restore(offset) => Some((region, ContextCommand::Restore(offset))),
                Need::Clear => Some((
                    region,
                    ContextCommand::Clear(ResidentContext { bitstream, dag: dag.clone() }),
                )),
                Need::Nothing | Need::Wait | Need::SaveFrom(_) => None,
            })
        })
    }

    fn ask(&mut self, tx: &mut Tx, id: &CardId, region: RegionId, asked: ContextCommand) {
        let Some(order) = self.order(id, &asked) else { return };
        let ticket = self.ticket();
        let card = self.cards.get_mut(id).expect(KNOWN);
        if !matches!(
            asked,
            ContextCommand::Clear(_) | ContextCommand::Erase(_) | ContextCommand::Depart(_)
        ) {
            // What is copied from or to it may stay there.
            card.states.not_fresh(region);
        }
        card.states.step = Some(Step { ticket, region, asked });
        let command = CardCommand::State { ticket, region, order };
        tx.card(id.clone(), command);
    }

    fn order(&self, id: &CardId, asked: &ContextCommand) -> Option<StateOrder> {
        let card = self.cards.get(id)?;
        let of = |offset: &u32| card.states.records.get(offset).map(|r| (r, r.uid, r.slot()));
        Some(match asked {
            ContextCommand::Save(offset) => {
                of(offset).map(|(_, uid, slot)| StateOrder::Save { uid, slot })?
            }
            ContextCommand::Restore(offset) => {
                let (record, uid, slot) = of(offset)?;
                let Phase::Saved(check) = record.phase else { return None };
                StateOrder::Restore { uid, slot, check }
            }
            ContextCommand::Clear(guest) => {
                StateOrder::Clear { uid: self.dags.get(&guest.dag)?.uid() }
            }
            ContextCommand::Depart(uid) => StateOrder::Clear { uid: *uid },
            ContextCommand::Erase(offset) => {
                let slot: SaveSlot = of(offset)?.2;
                StateOrder::Erase { slot }
            }
        })
    }

    /// Notes that contexts are to be saved from a region: from now on they are in the records.
    ///
    /// # Errors
    /// Where the save area has no room for all; nothing has changed then.
    pub(super) fn begin_saving(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        from: RegionId,
        guests: Vec<ResidentContext>,
    ) -> Result<(), NoRoom> {
        let card = self.cards.get(id).expect(KNOWN);
        let lengths: Vec<u32> = guests.iter().map(|g| self.length_of(&g.bitstream)).collect();
        let places =
            area::places(&card.states.records, card.profile.save_area, lengths.iter().copied());
        let places = places.ok_or(NoRoom)?;
        self.remove_guests(tx, (id, from), &guests);
        for ((guest, offset), length) in guests.into_iter().zip(places).zip(lengths) {
            let uid = self.dags.get(&guest.dag).map(|entry| entry.uid());
            let digest = self.digest_of(&guest.bitstream);
            let (Some(uid), Some(digest)) = (uid, digest) else { continue };
            let card = self.cards.get_mut(id).expect(KNOWN);
            let record = StateRecord {
                dag: guest.dag,
                uid,
                bitstream: guest.bitstream,
                digest,
                offset,
                length,
                boot_id: card.states.boot_id,
                phase: Phase::Saving(from),
                since: self.now,
                attempts: 0,
            };
            tx.put(Record::SavedContext(id.clone(), record.clone()));
            card.states.records.insert(offset, record);
        }
        self.refresh_kept(id);
        Ok(())
    }

    /// A wrapper answered.
    pub(crate) fn state_ended(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        ticket: Ticket,
        result: Result<StateDone, StateFailure>,
    ) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        let Some(step) = card.states.step.take_if(|step| step.ticket == ticket) else { return };
        match &result {
            Ok(_) => card.states.failures = 0,
            Err(_) => {
                card.states.failures += 1;
                card.states.not_before = self.now + self.settings.wait(card.states.failures);
            }
        }
        match (step.asked, result) {
            (ContextCommand::Save(offset), Ok(done)) => {
                self.saved(tx, (id, step.region), offset, done)
            }
            (ContextCommand::Save(offset), Err(e)) => {
                self.not_saved(tx, (id, step.region), offset, &e)
            }
            (ContextCommand::Restore(offset), Ok(_)) => {
                self.restored(tx, (id, step.region), offset)
            }
            (ContextCommand::Restore(offset), Err(e)) => self.not_restored(tx, id, offset, &e),
            (ContextCommand::Clear(guest), Ok(_)) => {
                if self.dags.contains_key(&guest.dag) {
                    self.add_guest(tx, id, step.region, guest);
                }
            }
            // They are tried again.
            (
                ContextCommand::Clear(_) | ContextCommand::Erase(_) | ContextCommand::Depart(_),
                Err(_),
            ) => {}
            (ContextCommand::Depart(uid), Ok(_)) => self.departed(tx, id, step.region, uid),
            (ContextCommand::Erase(offset), Ok(_)) => {
                if let Some(card) = self.cards.get_mut(id) {
                    card.states.records.remove(&offset);
                }
                tx.delete(Key::SavedContext(id.clone(), offset));
                self.refresh_kept(id);
            }
        }
    }

    /// The record at an offset, if its context is needed yet.
    fn needed(&mut self, id: &CardId, offset: u32) -> Option<&mut StateRecord> {
        let record = self.cards.get_mut(id)?.states.records.get_mut(&offset)?;
        (record.phase != Phase::Erasing).then_some(record)
    }

    /// Notes another phase of a record.
    pub(super) fn set_phase(&mut self, tx: &mut Tx, id: &CardId, offset: u32, phase: Phase) {
        let now = self.now;
        let Some(record) = self.needed(id, offset) else { return };
        (record.phase, record.since, record.attempts) = (phase, now, 0);
        tx.put(Record::SavedContext(id.clone(), record.clone()));
    }

    fn saved(
        &mut self,
        tx: &mut Tx,
        (id, from): (&CardId, RegionId),
        offset: u32,
        done: StateDone,
    ) {
        let Some(record) = self.needed(id, offset) else { return };
        let (dag, bitstream) = (record.dag.clone(), record.bitstream.clone());
        self.set_phase(tx, id, offset, Phase::Saved(done.check));
        let card = self.cards.get_mut(id).expect(KNOWN);
        card.states.figures.saved += 1;
        let next = card.region(from).and_then(|entry| entry.bitstream().cloned());
        let why = match next.filter(|next| *next != bitstream) {
            Some(next) => format!("region {from} is needed for {}", as_told(&next, &dag)),
            None => "it serves from another region".to_owned(),
        };
        let keeper = as_told(&bitstream, &dag);
        let text = format!("{} bytes that {keeper} keeps for it are saved: {why}", done.bytes);
        tx.note(LogKind::StateSaved, About { regions: vec![from], ..About::dag(id, &dag) }, text);
        self.tell_states(tx, id, from, &dag);
    }

    /// What a context stands for: a DAG and a region of which callers see it.
    fn tell_states(&mut self, tx: &mut Tx, id: &CardId, region: RegionId, dag: &DagName) {
        self.emit_region(tx, id, region);
        self.emit_dag(tx, dag);
    }

    fn not_saved(
        &mut self,
        tx: &mut Tx,
        (id, from): (&CardId, RegionId),
        offset: u32,
        failure: &StateFailure,
    ) {
        let attempts_max = self.settings.load_attempts;
        let Some(record) = self.needed(id, offset) else { return };
        record.attempts += 1;
        let exhausted = record.attempts >= attempts_max;
        let guest =
            ResidentContext { bitstream: record.bitstream.clone(), dag: record.dag.clone() };
        let Some(entry) = self.cards.get(id).and_then(|card| card.region(from)) else { return };
        if !self.is_there(entry.observed(), &guest) {
            self.set_phase(tx, id, offset, Phase::Erasing);
            return self.tell_lost(tx, (id, from), &guest, &failure.to_string());
        }
        if !exhausted {
            return;
        }
        let is_needed = !entry.is_loaded();
        self.set_phase(tx, id, offset, Phase::Erasing);
        if !is_needed && self.waits_elsewhere(id, &guest) {
            return self.tell_lost(tx, (id, from), &guest, &failure.to_string());
        }
        self.add_guest(tx, id, from, guest);
        if is_needed {
            self.keep_region(tx, id, from, &failure.to_string());
        }
    }

    /// Whether a DAG has stopped for what is to be saved, to serve from another region.
    fn waits_elsewhere(&self, id: &CardId, guest: &ResidentContext) -> bool {
        self.needs(id, &guest.dag).iter().any(|(_, bitstream, _)| *bitstream == guest.bitstream)
    }

    fn restored(&mut self, tx: &mut Tx, (id, to): (&CardId, RegionId), offset: u32) {
        let Some(record) = self.needed(id, offset) else { return };
        let guest =
            ResidentContext { bitstream: record.bitstream.clone(), dag: record.dag.clone() };
        let bytes = record.length;
        self.set_phase(tx, id, offset, Phase::Erasing);
        if let Some(card) = self.cards.get_mut(id) {
            card.states.figures.restored += 1;
        }
        let (dag, bitstream) = (guest.dag.clone(), guest.bitstream.clone());
        self.add_guest(tx, id, to, guest);
        let keeper = as_told(&bitstream, &dag);
        let text = format!("{bytes} bytes that {keeper} kept for it are in region {to} again");
        tx.note(LogKind::StateRestored, About { regions: vec![to], ..About::dag(id, &dag) }, text);
        self.tell_states(tx, id, to, &dag);
    }

    /// A DAG that was stopped for its state serves again.
    pub(crate) fn tell_stop(&mut self, tx: &mut Tx, id: &CardId, name: &DagName, since: Timestamp) {
        let placement = self.dags.get(name).and_then(|entry| entry.desired());
        let regions = placement.map(regions_of).unwrap_or_default();
        let took = self.now.since(since);
        let text = format!("it serves again: it was stopped for {took:?}, to save and restore");
        tx.note(LogKind::StateRestored, About { regions, ..About::dag(id, name) }, text);
    }

    /// It begins empty instead.
    fn not_restored(&mut self, tx: &mut Tx, id: &CardId, offset: u32, failure: &StateFailure) {
        let Some(record) = self.needed(id, offset) else { return };
        let guest =
            ResidentContext { bitstream: record.bitstream.clone(), dag: record.dag.clone() };
        self.set_phase(tx, id, offset, Phase::Erasing);
        let why = format!("it could not be restored: {failure}");
        self.tell_lost_on(tx, id, &guest, &why);
    }
}
