//! Decides which contexts are saved, restored and erased, and when, from [`Contexts`](crate::state::card::Contexts),
//! the needs of DAGs and the contents of regions.
//!
//! Rows lead to a region only when the DAG is its resident: its saved context is restored by then, or
//! reported lost, or an old one is cleared. A victim keeps its contexts
//! as long as nobody needs its region, and nothing is copied. Where the save area has no room, or
//! the wrapper does not save, the region is not switched ([`LogKind::StateKept`]): state that somebody
//! has is worth more than an instance that somebody would have beyond its promise.
//!
//! [`LogKind::StateKept`]: crate::LogKind::StateKept

mod lost;
mod pending_erases;
mod steps;

use snic_domain::{BitstreamId, CardId, DagName, Mapping, RegionId};

use crate::state::Core;
use crate::state::card::{CardMachine, ObservedContent};
use crate::state::dags::DagEntry;
use crate::store::records::{Phase, Placement, ResidentContext};
use crate::store::tx::Tx;

use crate::place::forgotten::refresh_kept_in;

/// A chain in words for whose DAG it is: another tenant's has no name there.
fn describe_for(bitstream: &BitstreamId, dag: &DagName) -> String {
    match bitstream.owner() {
        Some(owner) if owner != dag.tenant => "a chain of others".to_owned(),
        _ => bitstream.to_string(),
    }
}

/// Whether a region can be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadReadiness {
    /// Nothing is kept in it.
    Now,
    /// Its contexts are saved first, or it keeps its content.
    NotYet,
}

/// The save area has no room for what is to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NoRoom;

/// Obstacle between a region and rows that lead a DAG there.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Obstacle {
    /// The context at this offset is to be restored.
    Restore(u32),
    /// Another region keeps its context, or is being saved: it is waited for.
    Wait,
    /// To be saved from a region that the DAG leaves.
    SaveFrom(RegionId),
    /// A context that is empty.
    Clear,
    /// Nothing: the region was just loaded.
    Nothing,
}

/// Obstacle in one region of a DAG's desired placement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RegionObstacle {
    region: RegionId,
    bitstream: BitstreamId,
    lack: Obstacle,
}

/// Contexts that regions looked at before get.
#[derive(Debug, Default)]
struct ClaimedContexts {
    offsets: Vec<u32>,
    regions: Vec<RegionId>,
}

/// Whether a DAG's contexts are where a placement needs them.
pub(crate) fn contexts_resident(core: &Core, name: &DagName, placement: &Placement) -> bool {
    let contexts = core.cards.known(&placement.mapping.card).contexts();
    let stateful = core.registry.stateful(&placement.mapping);
    stateful.into_iter().all(|(region, bitstream)| contexts.is_resident(region, bitstream, name))
}

/// Whether a DAG has to stop for its state: its new place is loaded, and what it lacks is in a
/// region that the old place uses and the new one does not.
pub(crate) fn needs_stop_and_copy(core: &Core, entry: &DagEntry) -> bool {
    let (Some(new), Some(old)) = (entry.desired(), entry.previous()) else {
        return false; // It does not move.
    };
    new.mapping.card == old.mapping.card
        && core.cards.known(&new.mapping.card).is_loaded(new)
        && takes_state_along(core, entry.name(), &old.mapping, &new.mapping)
}

/// Whether a move between two places of one card takes state along, for which the DAG stops: what the new
/// place lacks is in a region that only the old one uses.
pub(crate) fn takes_state_along(core: &Core, name: &DagName, old: &Mapping, new: &Mapping) -> bool {
    let contexts = core.cards.known(&new.card).contexts();
    let has = |region, b: &BitstreamId| contexts.is_resident(region, b, name);
    let lacks = |b: &BitstreamId| {
        core.registry.stateful(new).iter().any(|(region, of)| *of == b && !has(*region, b))
    };
    let left = core.registry.stateful(old).into_iter();
    left.filter(|(region, b)| !new.uses(*region) && has(*region, b)).any(|(_, b)| lacks(b))
}

/// A DAG whose regions are loaded may have to wait for its state.
pub(crate) fn enqueue_restore(core: &mut Core, name: &DagName) {
    // It may be gone, or without a place.
    if let Some(desired) = core.dags.get(name).and_then(DagEntry::desired) {
        let card = &desired.mapping.card;
        let waits =
            core.cards.known(card).is_loaded(desired) && !contexts_resident(core, name, desired);
        if waits {
            core.cards.known_mut(card).contexts_mut().expect(name);
        }
    }
}

/// Recomputes which regions of a card must not be loaded with anything else, for what is in them has
/// nowhere to go. Time O(regions · (contexts in the save area + residents)).
pub(crate) fn refresh_kept(core: &mut Core, id: &CardId) {
    for region in core.cards.known(id).region_ids() {
        refresh_kept_in(core, id, region);
    }
}

/// Obstacles in each region of a DAG's desired placement; nothing while not all of them are loaded.
fn needs(core: &Core, id: &CardId, name: &DagName) -> Vec<RegionObstacle> {
    let card = core.cards.known(id);
    let desired = core.dags.get(name).and_then(DagEntry::desired);
    let Some(desired) = desired.filter(|p| p.mapping.card == *id && card.is_loaded(p)) else {
        return Vec::new();
    };
    let mut taken = ClaimedContexts::default();
    let mut needs = Vec::new();
    for (region, bitstream) in core.registry.stateful(&desired.mapping) {
        if !card.contexts().is_resident(region, bitstream, name) {
            let seeker = ContextApplicant { card, entry: core.dags.known(name), bitstream };
            let lack = seeker.lacks(desired, region, &mut taken);
            needs.push(RegionObstacle { region, bitstream: bitstream.clone(), lack });
        }
    }
    needs
}

/// A DAG that needs a context of a bitstream.
struct ContextApplicant<'a> {
    card: &'a CardMachine,
    entry: &'a DagEntry,
    bitstream: &'a BitstreamId,
}

impl ContextApplicant<'_> {
    /// Obstacle in a region for it.
    fn lacks(
        &self,
        desired: &Placement,
        region: RegionId,
        taken: &mut ClaimedContexts,
    ) -> Obstacle {
        let (contexts, name) = (self.card.contexts(), self.entry.name());
        if self.card.tables().is_changing(name) {
            return Obstacle::Wait;
        }
        if let Some(record) = contexts.waiting_for(name, self.bitstream, &taken.offsets) {
            taken.offsets.push(record.offset);
            return match record.phase {
                Phase::Saved(_) => Obstacle::Restore(record.offset),
                Phase::Saving(_) | Phase::Erasing => Obstacle::Wait,
            };
        }
        let is_left = |region: &RegionId| {
            !desired.mapping.uses(*region)
                && contexts.is_resident(*region, self.bitstream, name)
                && !taken.regions.contains(region)
        };
        if let Some(from) = self.card.region_ids().find(is_left) {
            taken.regions.push(from);
            return match self.may_lead_to(from) {
                true => Obstacle::Wait,
                false => Obstacle::SaveFrom(from),
            };
        }
        match contexts.is_fresh(region) {
            true => Obstacle::Nothing,
            false => Obstacle::Clear,
        }
    }

    /// Whether rows may lead its packets to a region, or packets that they led there may be on their
    /// way.
    fn may_lead_to(&self, region: RegionId) -> bool {
        let uses =
            |serial: u64| self.entry.placement(serial).is_none_or(|p| p.mapping.uses(region));
        self.card.tables().is_changing(self.entry.name())
            || self.entry.active().is_some_and(uses)
            || self.entry.target().is_some_and(uses)
    }
}

/// Whether a region that holds this has a context of a resident.
fn is_there(core: &Core, observed: ObservedContent, context: &ResidentContext) -> bool {
    let ObservedContent::Holds(digest) = observed else { return false };
    let bitstream = core.registry.bitstream(&context.bitstream);
    bitstream.is_some_and(|bitstream| bitstream.images.with_digest(digest).is_some())
}

/// The contexts of one card, while an event is handled.
pub(crate) struct Residency<'a> {
    core: &'a mut Core,
    tx: &'a mut Tx,
    id: &'a CardId,
}

impl<'a> Residency<'a> {
    pub fn on(core: &'a mut Core, tx: &'a mut Tx, id: &'a CardId) -> Self {
        Self { core, tx, id }
    }

    fn card(&self) -> &CardMachine {
        self.core.cards.known(self.id)
    }

    fn card_mut(&mut self) -> &mut CardMachine {
        self.core.cards.known_mut(self.id)
    }

    /// A DAG has a context in a region from now on, as far as anybody knows.
    fn add_resident(&mut self, region: RegionId, context: ResidentContext) {
        self.core.dags.mark_dirty(&context.dag);
        let ResidentContext { bitstream, dag } = &context;
        if !self.card().contexts().is_resident(region, bitstream, dag) {
            let contexts = self.core.cards.known_mut(self.id).contexts_mut();
            contexts.add_resident(self.tx, region, context);
            refresh_kept_in(self.core, self.id, region);
        }
    }

    /// DAGs have no context in a region any more, as far as anybody needs it.
    fn remove_residents(&mut self, region: RegionId, gone: &[ResidentContext]) {
        let contexts = self.core.cards.known_mut(self.id).contexts_mut();
        contexts.remove_residents(self.tx, region, gone);
        refresh_kept_in(self.core, self.id, region);
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::{DagId, TenantId};

    use super::*;

    #[test]
    fn a_tenant_is_not_told_the_name_of_anothers_chain() {
        let tenant = TenantId::new("globex").expect("an id");
        let dag = DagName { tenant, dag: DagId::new("mine").expect("an id") };
        let told = |id: &str| describe_for(&BitstreamId::new(id).expect("an id"), &dag);
        assert_eq!(told("aes"), "aes");
        assert_eq!(told("globex.own"), "globex.own");
        assert_eq!(told("acme.secret"), "a chain of others");
    }
}
