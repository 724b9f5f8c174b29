//! Commands to wrappers, one at a time for each card, and their results.

use snic_domain::{DagName, RegionId};
use snic_tables::{StateDone, StateFailure, Ticket};

use super::{
    NoRoom, Obstacle, RegionObstacle, Residency, describe_for, is_there, needs, pending_erases,
    refresh_kept,
};
use crate::protocol::LogKind;
use crate::state::card::ContextCommand;
use crate::store::records::{Phase, ResidentContext, StateRecord};
use crate::store::tx::LogSubject;

impl Residency<'_> {
    /// Asks for the next step with state, if none is under way: what is to be saved first, for loads
    /// wait for it; then what DAGs wait for; then what is to be erased, for nobody waits for that.
    pub fn step(&mut self) {
        self.serve_restored();
        self.core.cards.known_mut(self.id).forget_obsolete_erases(self.tx);
        let contexts = self.card().contexts();
        if !contexts.is_idle(self.core.now()) {
            return;
        }
        let next = contexts
            .next_save()
            .or_else(|| self.next_restore())
            .or_else(|| contexts.next_erase())
            .or_else(|| pending_erases::next(self.card()));
        if let Some((region, command)) = next {
            let ticket = self.core.ticket();
            let card = self.core.cards.known_mut(self.id);
            card.begin_step(self.tx, ticket, region, command);
        }
    }

    /// Makes DAGs residents whose contexts are there, and begins to save those they left in other regions.
    fn serve_restored(&mut self) {
        let names: Vec<DagName> = self.card().contexts().awaiting_restore().cloned().collect();
        for name in names {
            let needs = needs(self.core, self.id, &name);
            if needs.is_empty() {
                self.card_mut().contexts_mut().admitted(&name);
            }
            for RegionObstacle { region, bitstream, lack } in needs {
                let context = ResidentContext { bitstream, dag: name.clone() };
                match lack {
                    Obstacle::Nothing => self.add_resident(region, context),
                    Obstacle::SaveFrom(from) => {
                        if self.begin_saving(from, vec![context.clone()]).is_err() {
                            self.remove_residents(from, std::slice::from_ref(&context));
                            let why = "the save area has no room for it";
                            self.report_lost_in(from, &context, why);
                        }
                    }
                    Obstacle::Restore(_) | Obstacle::Wait | Obstacle::Clear => {}
                }
            }
        }
    }

    /// The next command for a DAG that waits for its contexts.
    fn next_restore(&self) -> Option<(RegionId, ContextCommand)> {
        self.card().contexts().awaiting_restore().find_map(|dag| {
            let step = |RegionObstacle { region, bitstream, lack }| match lack {
                Obstacle::Restore(offset) => Some((region, ContextCommand::Restore(offset))),
                Obstacle::Clear => {
                    let context = ResidentContext { bitstream, dag: dag.clone() };
                    let uid = self.core.dags.known(dag).uid();
                    Some((region, ContextCommand::Clear(context, uid)))
                }
                Obstacle::Nothing | Obstacle::Wait | Obstacle::SaveFrom(_) => None,
            };
            needs(self.core, self.id, dag).into_iter().find_map(step)
        })
    }

    /// Notes that contexts are to be saved from a region: from now on they are in the records.
    ///
    /// # Errors
    /// Where the save area has no room for all; nothing has changed then.
    pub(super) fn begin_saving(
        &mut self,
        from: RegionId,
        contexts: Vec<ResidentContext>,
    ) -> Result<(), NoRoom> {
        let length =
            |context: &ResidentContext| self.core.registry.context_length(&context.bitstream);
        let lengths: Vec<u32> = contexts.iter().map(length).collect();
        let (card, area) = (self.card(), self.card().profile().save_area);
        let places = card.contexts().room_for(area, lengths.iter().copied()).ok_or(NoRoom)?;
        self.remove_residents(from, &contexts);
        for ((context, offset), length) in contexts.into_iter().zip(places).zip(lengths) {
            let bitstream = self.core.registry.bitstream(&context.bitstream);
            let bitstream = bitstream.expect("what a placement uses is not deleted");
            // The image may have been deleted since the region was loaded with it.
            let digest = bitstream.digest_for(from).unwrap_or(bitstream.images.first().digest);
            let record = StateRecord {
                uid: self.core.dags.known(&context.dag).uid(),
                digest,
                dag: context.dag,
                bitstream: context.bitstream,
                offset,
                length,
                boot_id: self.card().contexts().boot_id(),
                phase: Phase::Saving(from),
                since: self.core.now(),
                attempts: 0,
            };
            self.core.cards.known_mut(self.id).contexts_mut().put(self.tx, record);
        }
        refresh_kept(self.core, self.id);
        Ok(())
    }

    /// A wrapper answered.
    pub fn step_ended(&mut self, ticket: Ticket, result: Result<StateDone, StateFailure>) {
        let (now, settings) = (self.core.now(), *self.core.policies.current());
        let wait = result.is_err().then_some(|failures| settings.wait(failures));
        let Some(step) = self.card_mut().contexts_mut().ended(now, ticket, wait) else {
            return; // The card was lost or read back since.
        };
        match (step.command, result) {
            (ContextCommand::Save(offset), Ok(done)) => self.saved(step.region, offset, done),
            (ContextCommand::Save(offset), Err(e)) => self.not_saved(step.region, offset, &e),
            (ContextCommand::Restore(offset), Ok(_)) => self.restored(step.region, offset),
            (ContextCommand::Restore(offset), Err(e)) => self.not_restored(offset, &e),
            (ContextCommand::Clear(context, _), Ok(_)) => {
                // It may have been deleted meanwhile.
                if self.core.dags.contains(&context.dag) {
                    self.add_resident(step.region, context);
                }
            }
            // They are tried again.
            (
                ContextCommand::Clear(..) | ContextCommand::Erase(_) | ContextCommand::Depart(_),
                Err(_),
            ) => {}
            (ContextCommand::Depart(uid), Ok(_)) => {
                let contexts = self.core.cards.known_mut(self.id).contexts_mut();
                contexts.remove_pending_erase(self.tx, step.region, uid);
            }
            (ContextCommand::Erase(offset), Ok(_)) => {
                let contexts = self.core.cards.known_mut(self.id).contexts_mut();
                contexts.remove(self.tx, offset);
                refresh_kept(self.core, self.id);
            }
        }
    }

    /// Notes another phase of a context that is needed yet.
    pub(super) fn set_phase(&mut self, offset: u32, phase: Phase) {
        self.core.cards.known_mut(self.id).contexts_mut().set_phase(self.tx, offset, phase);
    }

    fn saved(&mut self, from: RegionId, offset: u32, done: StateDone) {
        let Some(record) = self.card().contexts().needed(offset) else {
            return; // Its DAG was deleted meanwhile.
        };
        let ResidentContext { bitstream, dag } = record.context();
        self.set_phase(offset, Phase::Saved(done.check));
        let card = self.card_mut();
        card.contexts_mut().count_saved();
        let next = card.region(from).and_then(|entry| entry.bitstream().cloned());
        let why = match next.filter(|next| *next != bitstream) {
            Some(next) => format!("region {from} is needed for {}", describe_for(&next, &dag)),
            None => "it serves from another region".to_owned(),
        };
        let keeper = describe_for(&bitstream, &dag);
        let text = format!("{} bytes that {keeper} keeps for it are saved: {why}", done.bytes);
        self.report_moved(LogKind::StateSaved, from, &dag, text);
    }

    /// A context was moved from or to a region: both the DAG and the region show it.
    fn report_moved(&mut self, kind: LogKind, region: RegionId, dag: &DagName, text: String) {
        let about = LogSubject { regions: vec![region], ..LogSubject::dag(self.id, dag) };
        self.tx.note(kind, about, text);
        self.tx.emit_region(self.id, region);
        self.core.dags.emit(self.tx, dag);
    }

    fn not_saved(&mut self, from: RegionId, offset: u32, failure: &StateFailure) {
        let attempts_max = self.core.policies.current().load_attempts;
        let contexts = self.card_mut().contexts_mut();
        let Some(context) = contexts.needed(offset).map(StateRecord::context) else {
            return; // Its DAG was deleted meanwhile.
        };
        let is_exhausted = contexts.count_attempt(offset) >= attempts_max;
        let entry = self.card().region(from).expect("a step is of a region that the card has");
        let (observed, is_needed) = (entry.observed(), !entry.is_loaded());
        if !is_there(self.core, observed, &context) {
            self.set_phase(offset, Phase::Erasing);
            return self.report_lost_in(from, &context, &failure.to_string());
        }
        if !is_exhausted {
            return;
        }
        self.set_phase(offset, Phase::Erasing);
        if !is_needed && self.waits_elsewhere(&context) {
            return self.report_lost_in(from, &context, &failure.to_string());
        }
        self.add_resident(from, context);
        if is_needed {
            self.keep_region(from, &failure.to_string());
        }
    }

    /// Whether a DAG has stopped for what is to be saved, to serve from another region.
    fn waits_elsewhere(&self, context: &ResidentContext) -> bool {
        let needs = needs(self.core, self.id, &context.dag);
        needs.iter().any(|need| need.bitstream == context.bitstream)
    }

    fn restored(&mut self, to: RegionId, offset: u32) {
        let contexts = self.card_mut().contexts_mut();
        let Some(record) = contexts.needed(offset) else {
            return; // Its DAG was deleted meanwhile.
        };
        let (context, bytes) = (record.context(), record.length);
        contexts.count_restored();
        self.set_phase(offset, Phase::Erasing);
        let ResidentContext { bitstream, dag } = context.clone();
        self.add_resident(to, context);
        let keeper = describe_for(&bitstream, &dag);
        let text = format!("{bytes} bytes that {keeper} kept for it are in region {to} again");
        self.report_moved(LogKind::StateRestored, to, &dag, text);
    }

    /// It begins empty instead.
    fn not_restored(&mut self, offset: u32, failure: &StateFailure) {
        let Some(context) = self.card().contexts().needed(offset).map(StateRecord::context) else {
            return; // Its DAG was deleted meanwhile.
        };
        self.set_phase(offset, Phase::Erasing);
        self.report_lost(&context, &format!("it could not be restored: {failure}"));
    }
}
