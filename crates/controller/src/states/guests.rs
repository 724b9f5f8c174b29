//! Who has a context where, and who waits for one.

use std::collections::BTreeSet;

use snic_domain::{BitstreamId, ByteSize, CardId, DagName, Digest, Instance, RegionId, Slot};

use super::InRegion;
use crate::card::{CardState, ConnectionState, KNOWN, ObservedContent};
use crate::dags::DagEntry;
use crate::records::{Key, Phase, Placement, Record, ResidentContext};
use crate::state::Controller;
use crate::tx::Tx;

/// Contexts that are spoken for: those at offsets of the save area, and those in regions.
type Used = (Vec<u32>, Vec<RegionId>);

/// What a region lacks before rows may lead a DAG there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Need {
    /// What stands at this offset.
    Restore(u32),
    /// What another region keeps, or is being saved: it is waited for.
    Wait,
    /// To be saved from a region that the DAG leaves.
    SaveFrom(RegionId),
    /// A context that is empty.
    Clear,
    /// Nothing: the region was just loaded.
    Nothing,
}

impl Controller {
    pub(super) fn digest_of(&self, bitstream: &BitstreamId) -> Option<Digest> {
        self.registry.bitstream(bitstream).map(|b| b.digest)
    }

    /// The instances of a placement that keep state: region and bitstream, each region once.
    fn stateful<'a>(&self, placement: &'a Placement) -> Vec<(RegionId, &'a BitstreamId)> {
        let instances = placement.mapping.instances();
        let keeps = instances.filter(|i| self.uses_state(i));
        let mut all: Vec<_> = keeps.map(|i| (i.region, &i.bitstream)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether an instance uses an NT that keeps state.
    fn uses_state(&self, instance: &Instance) -> bool {
        let nts = self.registry.bitstream(&instance.bitstream).map(|b| &b.nts);
        let nt = |slot: &Slot| nts.and_then(|nts| self.registry.nt(nts.get(slot.index())?));
        instance.slots.iter().filter_map(nt).any(|nt| nt.state > ByteSize::ZERO)
    }

    /// Whether a DAG has a place where it keeps state.
    pub(crate) fn keeps_state(&self, placement: &Placement) -> bool {
        !self.stateful(placement).is_empty()
    }

    /// Whether a DAG's contexts are where a placement needs them.
    pub(crate) fn contexts_resident(&self, name: &DagName, placement: &Placement) -> bool {
        let Some(card) = self.cards.get(&placement.mapping.card) else { return false };
        self.stateful(placement).into_iter().all(|(region, b)| card.has_guest(region, b, name))
    }

    /// Whether a DAG has to stop for its state: its new place is loaded, and what it lacks is in a
    /// region that the old place uses and the new one does not.
    pub(crate) fn needs_stop_and_copy(&self, entry: &DagEntry) -> bool {
        let (Some(new), Some(old)) = (entry.desired(), entry.previous()) else {
            return false;
        };
        let name = entry.name();
        let Some(card) = self.cards.get(&new.mapping.card) else { return false };
        let lacks = |b: &BitstreamId| {
            self.stateful(new).iter().any(|(r, of)| *of == b && !card.has_guest(*r, b, name))
        };
        new.mapping.card == old.mapping.card
            && self.is_loaded(new)
            && self.stateful(old).into_iter().any(|(region, b)| {
                !new.mapping.uses(region) && card.has_guest(region, b, name) && lacks(b)
            })
    }

    /// A DAG whose regions are loaded may have to wait for its state.
    pub(crate) fn enqueue_context_restore(&mut self, name: &DagName) {
        let desired = self.dags.get(name).and_then(|entry| entry.desired());
        let Some(desired) = desired else { return };
        let waits = self.is_loaded(desired) && !self.contexts_resident(name, desired);
        let id = desired.mapping.card.clone();
        if let Some(card) = self.cards.get_mut(&id).filter(|_| waits) {
            card.states.newcomers.insert(name.clone());
        }
    }

    /// What each region of a DAG's wanted placement lacks.
    pub(super) fn needs(&self, id: &CardId, name: &DagName) -> Vec<(RegionId, BitstreamId, Need)> {
        let Some(card) = self.cards.get(id) else { return Vec::new() };
        let desired = self.dags.get(name).and_then(|entry| entry.desired());
        let Some(desired) = desired.filter(|p| p.mapping.card == *id && self.is_loaded(p)) else {
            return Vec::new();
        };
        let mut used = Used::default();
        let mut needs = Vec::new();
        for (region, bitstream) in self.stateful(desired) {
            if card.has_guest(region, bitstream, name) {
                continue;
            }
            let need = self.need(card, (name, bitstream, region), desired, &mut used);
            needs.push((region, bitstream.clone(), need));
        }
        needs
    }

    /// What one region lacks; `used` are contexts that regions before it get.
    fn need(
        &self,
        card: &CardState,
        (name, bitstream, region): (&DagName, &BitstreamId, RegionId),
        desired: &Placement,
        used: &mut Used,
    ) -> Need {
        if card.tables.is_changing(name) {
            return Need::Wait;
        }
        let mut waiting =
            card.states.records.values().filter(|record| {
                record.waits_for(name, bitstream) && !used.0.contains(&record.offset)
            });
        if let Some(record) = waiting.next() {
            used.0.push(record.offset);
            return match record.phase {
                Phase::Saved(_) => Need::Restore(record.offset),
                Phase::Saving(_) | Phase::Erasing => Need::Wait,
            };
        }
        let left = |r: &RegionId| {
            !desired.mapping.uses(*r) && card.has_guest(*r, bitstream, name) && !used.1.contains(r)
        };
        if let Some(from) = card.region_ids().find(left) {
            used.1.push(from);
            return match self.leads(card, name, from) {
                true => Need::Wait,
                false => Need::SaveFrom(from),
            };
        }
        match card.states.regions.get(&region).is_some_and(|kept| kept.is_fresh) {
            true => Need::Nothing,
            false => Need::Clear,
        }
    }

    /// Whether rows may lead a DAG's packets to a region, or packets that they led there may be on
    /// their way.
    fn leads(&self, card: &CardState, name: &DagName, region: RegionId) -> bool {
        let Some(entry) = self.dags.get(name) else { return false };
        let uses = |serial: u64| entry.placement(serial).is_none_or(|p| p.mapping.uses(region));
        card.tables.is_changing(name)
            || entry.active().is_some_and(uses)
            || entry.target().is_some_and(uses)
    }

    /// A DAG has a context in a region from now on, as far as anybody knows.
    pub(super) fn add_guest(
        &mut self,
        tx: &mut Tx,
        id: &CardId,
        region: RegionId,
        guest: ResidentContext,
    ) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        let kept = card.states.regions.entry(region).or_default();
        self.dirty_dags.insert(guest.dag.clone());
        if !kept.residents.contains(&guest) {
            tx.put(Record::ResidentContext(id.clone(), region, guest.clone()));
            kept.residents.insert(guest);
            self.refresh_kept_in(id, region);
        }
    }

    /// DAGs have no context in a region any more, as far as anybody needs it.
    pub(super) fn remove_guests<'a>(
        &mut self,
        tx: &mut Tx,
        (id, region): (&CardId, RegionId),
        guests: impl IntoIterator<Item = &'a ResidentContext>,
    ) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        let kept = card.states.regions.entry(region).or_default();
        for guest in guests {
            if kept.residents.remove(guest) {
                tx.delete(Key::ResidentContext(id.clone(), region, guest.clone()));
            }
        }
        self.refresh_kept_in(id, region);
    }

    /// A DAG goes: nobody needs its contexts any more.
    pub(crate) fn forget_states(&mut self, tx: &mut Tx, name: &DagName) {
        let cards: Vec<CardId> = self.cards.keys().cloned().collect();
        for id in cards {
            self.note_departed(tx, &id, name);
            let Some(card) = self.cards.get_mut(&id) else { continue };
            card.states.newcomers.remove(name);
            let of_dag = card.states.records.values_mut().filter(|record| record.dag == *name);
            for record in of_dag {
                record.phase = Phase::Erasing;
                tx.put(Record::SavedContext(id.clone(), record.clone()));
            }
            let all = card.states.all_residents().filter(|(_, resident)| resident.dag == *name);
            let own: Vec<_> = all.map(|(region, resident)| (region, resident.clone())).collect();
            for (region, guest) in own {
                self.remove_guests(tx, (&id, region), [&guest]);
            }
        }
    }

    /// Guests whose context the region still has, though it is to hold something else: they are to be
    /// saved before it is loaded.
    pub(super) fn to_be_saved(&self, card: &CardState, region: RegionId) -> Vec<ResidentContext> {
        let Some(entry) = card.region(region) else { return Vec::new() };
        let guests = card.states.residents(region);
        guests.filter(|guest| self.is_there(entry.observed(), guest)).cloned().collect()
    }

    /// Whether a region that holds `actual` has a guest's context.
    pub(super) fn is_there(&self, observed: ObservedContent, guest: &ResidentContext) -> bool {
        self.digest_of(&guest.bitstream)
            .is_some_and(|digest| observed == ObservedContent::Holds(digest))
    }

    /// Which regions must not be loaded with anything else, for what is in them has nowhere to go.
    /// Time O(regions · (states + guests)).
    pub(crate) fn refresh_kept(&mut self, id: &CardId) {
        let regions = self.cards.get(id).into_iter().flat_map(CardState::region_ids);
        for region in regions.collect::<Vec<_>>() {
            self.refresh_kept_in(id, region);
        }
    }

    /// The same for one region. Time O(states + guests).
    fn refresh_kept_in(&mut self, id: &CardId, region: RegionId) {
        let card = self.cards.get(id).expect(KNOWN);
        let has_room = |kept: &InRegion| {
            let lengths = self.lengths_of(&kept.residents);
            super::area::places(&card.states.records, card.profile.save_area, lengths).is_some()
        };
        let kept = card.states.regions.get(&region).is_some_and(|kept| {
            !kept.residents.is_empty() && (kept.unsavable.is_some() || !has_room(kept))
        });
        let card = self.cards.get_mut(id).expect(KNOWN);
        self.capacity_freed |= card.ledger.is_kept(region) && !kept;
        card.ledger.set_kept(region, kept);
    }

    /// What the contexts of guests take of the save area; guests come by their bitstreams.
    fn lengths_of(&self, guests: &BTreeSet<ResidentContext>) -> impl Iterator<Item = u32> {
        guests.iter().scan(None, |last: &mut Option<(&BitstreamId, u32)>, guest| {
            let length = match last {
                Some((of, length)) if **of == guest.bitstream => *length,
                _ => self.length_of(&guest.bitstream),
            };
            *last = Some((&guest.bitstream, length));
            Some(length)
        })
    }

    /// Whether a card can be asked.
    pub(super) fn answers(&self, id: &CardId) -> bool {
        self.cards.get(id).is_some_and(|card| card.connection == ConnectionState::Ready)
    }
}

impl CardState {
    fn has_guest(&self, region: RegionId, bitstream: &BitstreamId, dag: &DagName) -> bool {
        self.states.is_resident(region, bitstream, dag)
    }
}
