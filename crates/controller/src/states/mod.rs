//! State of chains that give their region up: saved to the card's save area, restored where the
//! same bitstream serves the same DAG again.
//!
//! What a chain keeps for one DAG is a *context*. A [`ResidentContext`] of a region is a DAG that may have one
//! there, a [`StateRecord`] says which one stands in the save area; a context is in one of the two,
//! never in both. Each is a record of its own in the store: a thousand DAGs may share a region. What is moved is moved by one rule each:
//!
//! ```text
//!  region is to hold something else ──┐
//!  DAG serves from another region ────┴► no row leads there ─► Saving ─► Saved     guest no more
//!                                                           (intent)      │
//!          DAG has a new region with that bitstream, loaded ──────────────┴► restored: guest
//!                                                                              └► Erasing ─► gone
//! ```
//!
//! Rows lead to a region only when the DAG is its guest: what was saved is back by then, or it is
//! said that it is lost, or what an earlier time left there is cleared. A victim keeps its contexts
//! as long as nobody needs its region, and nothing is copied. Where the save area has no room, or
//! the wrapper does not save, the region is not switched ([`LogKind::StateKept`]): state that somebody
//! has is worth more than an instance that somebody would have beyond its promise.
//!
//! After a crash the records say what was under way; whether the context is still in its region the
//! card says. A save is made again: the context stays in the region until a load, which waits. A
//! restore is made again: no packet came before it was noted. When the card's boot id is another one,
//! its memory is empty, and all that was in it is lost.
//!
//! [`LogKind::StateKept`]: crate::LogKind::StateKept

mod area;
mod departed;
mod guests;
mod lost;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::limits::STATE_UNIT;
use snic_domain::{
    BitstreamId, ByteSize, CardId, DagName, DagUid, Digest, RegionId, SaveArea, Timestamp,
};
use snic_tables::registers::STATE_HEAD;
use snic_tables::{SaveSlot, Ticket};

use crate::protocol::{StatePlace, StateView};
use crate::records::{PendingErase, Phase, ResidentContext, StateRecord};
use crate::state::Controller;

/// A chain in words for whose DAG it is: another tenant's has no name there.
fn as_told(bitstream: &BitstreamId, dag: &DagName) -> String {
    match bitstream.owner() {
        Some(owner) if owner != dag.tenant => "a chain of others".to_owned(),
        _ => bitstream.to_string(),
    }
}

impl StateRecord {
    const fn slot(&self) -> SaveSlot {
        SaveSlot { offset: self.offset, length: self.length }
    }

    /// Whether it is of this DAG and bitstream, and waits for a region or is on its way to wait.
    fn waits_for(&self, dag: &DagName, bitstream: &BitstreamId) -> bool {
        self.phase != Phase::Erasing && self.dag == *dag && self.bitstream == *bitstream
    }
}

/// What was done with state on a card, since the daemon started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateFigures {
    /// Contexts saved.
    pub saved: u64,
    /// Contexts restored.
    pub restored: u64,
    /// Contexts lost.
    pub lost: u64,
    /// Switches that were not made because state could not be saved.
    pub kept: u64,
    /// Contexts in the save area now.
    pub waiting: u64,
    /// Bytes of the save area that are taken now.
    pub bytes: u64,
}

/// What a wrapper was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ContextCommand {
    /// To save what this offset is for.
    Save(u32),
    /// To restore what stands at this offset.
    Restore(u32),
    /// To begin anew with a DAG.
    Clear(ResidentContext),
    /// To erase what stands at this offset.
    Erase(u32),
    /// To erase what it keeps for a DAG that is gone.
    Depart(DagUid),
}

/// A wrapper's work under way.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    ticket: Ticket,
    region: RegionId,
    asked: ContextCommand,
}

/// Whether a region can be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loadable {
    /// Nothing is kept in it.
    Now,
    /// What is kept in it is saved first, or it stays what it is.
    NotYet,
}

/// The save area has no room for what is to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NoRoom;

/// What one region keeps.
#[derive(Debug, Default)]
struct InRegion {
    /// DAGs that may have a context in it, records of their own.
    residents: BTreeSet<ResidentContext>,
    /// Nothing was kept in it since it was loaded but what its residents keep.
    is_fresh: bool,
    /// Why what is kept in it cannot be saved.
    unsavable: Option<String>,
}

/// The state of chains of one card.
#[derive(Debug, Default)]
pub(crate) struct States {
    /// By offset.
    records: BTreeMap<u32, StateRecord>,
    /// What regions keep; nothing without an entry.
    regions: BTreeMap<RegionId, InRegion>,
    /// DAGs whose regions are loaded and that wait for their state.
    newcomers: BTreeSet<DagName>,
    /// What regions may keep for DAGs that are gone, by what the region holds.
    departed: BTreeMap<(RegionId, DagUid), Digest>,
    step: Option<Step>,
    /// Steps that failed in a row.
    failures: u32,
    /// No step before.
    not_before: Timestamp,
    /// The card's, as last read.
    boot_id: u32,
    figures: StateFigures,
}

impl States {
    /// What the card was asked counts no more.
    pub fn forget(&mut self) {
        self.step = None;
        self.failures = 0;
        self.not_before = Timestamp::ZERO;
    }

    /// A record of the store; says whether its place was free.
    pub fn recover(&mut self, record: StateRecord) -> bool {
        let is_free = area::is_free(&self.records, record.offset, record.length);
        self.records.insert(record.offset, record);
        is_free
    }

    /// A DAG that may have a context in a region, as the store has it.
    pub fn recover_resident(&mut self, region: RegionId, resident: ResidentContext) {
        self.regions.entry(region).or_default().residents.insert(resident);
    }

    /// The DAGs that may have a context in a region.
    fn residents(&self, region: RegionId) -> impl Iterator<Item = &ResidentContext> {
        self.regions.get(&region).into_iter().flat_map(|kept| &kept.residents)
    }

    /// All of them, by region.
    pub fn all_residents(&self) -> impl Iterator<Item = (RegionId, &ResidentContext)> {
        let all = self.regions.iter();
        all.flat_map(|(region, kept)| kept.residents.iter().map(|resident| (*region, resident)))
    }

    fn is_resident(&self, region: RegionId, bitstream: &BitstreamId, dag: &DagName) -> bool {
        self.residents(region).any(|r| r.dag == *dag && r.bitstream == *bitstream)
    }

    /// A region was loaded: it keeps nothing.
    pub fn loaded(&mut self, region: RegionId) {
        let kept = self.regions.entry(region).or_default();
        (kept.is_fresh, kept.unsavable) = (true, None);
    }

    /// What a region keeps is not known: a load of it failed, or something is copied.
    pub fn not_fresh(&mut self, region: RegionId) {
        self.regions.entry(region).or_default().is_fresh = false;
    }

    /// A DAG that is gone, as the store has it.
    pub fn recover_departed(&mut self, region: RegionId, departed: PendingErase) {
        self.departed.insert((region, departed.uid), departed.digest);
    }

    /// Whether something is to be done that waits for nothing but its time.
    fn is_pending(&self) -> bool {
        let to_do = |record: &StateRecord| !matches!(record.phase, Phase::Saved(_));
        let any = !self.newcomers.is_empty() || !self.departed.is_empty();
        self.step.is_none() && (any || self.records.values().any(to_do))
    }

    /// When a wait ends.
    pub fn next_wake_up(&self) -> Option<Timestamp> {
        self.is_pending().then_some(self.not_before)
    }

    /// What was done, and what is there.
    pub fn figures(&self) -> StateFigures {
        StateFigures {
            waiting: self.records.len() as u64,
            bytes: self.records.values().map(|record| u64::from(record.length)).sum(),
            ..self.figures
        }
    }

    /// Whether a region keeps what is being saved of it.
    pub fn holds_back(&self, region: RegionId) -> bool {
        self.records.values().any(|record| record.phase == Phase::Saving(region))
            || self.step.as_ref().is_some_and(|step| {
                step.region == region && !matches!(step.asked, ContextCommand::Erase(_))
            })
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

impl Controller {
    /// Bytes of a context of a bitstream, as its region's wrapper counts them; zero where it keeps
    /// no state.
    pub(crate) fn state_bytes(&self, bitstream: &BitstreamId) -> u32 {
        let nts = self.registry.bitstream(bitstream).map_or(&[][..], |b| &b.nts);
        let units = nts.iter().filter_map(|nt| self.registry.nt(nt));
        let units = units.map(|nt| nt.state.get().div_ceil(STATE_UNIT.get()));
        u32::try_from(units.sum::<u64>() * STATE_UNIT.get()).unwrap_or(u32::MAX)
    }

    /// What a context takes of the save area.
    fn length_of(&self, bitstream: &BitstreamId) -> u32 {
        self.state_bytes(bitstream).saturating_add(STATE_HEAD)
    }

    /// The contexts of a DAG: those in regions first.
    pub fn states_of(&self, name: &DagName) -> Vec<StateView> {
        self.cards.keys().flat_map(|id| self.states_where(id, |of, _| of == name)).collect()
    }

    /// The contexts on a card: those in regions first.
    pub fn states_on(&self, id: &CardId) -> Vec<StateView> {
        self.states_where(id, |_, _| true)
    }

    /// The contexts in a region, or being saved from it.
    pub(crate) fn states_in(&self, id: &CardId, region: RegionId) -> Vec<StateView> {
        self.states_where(id, |_, place| match place {
            StatePlace::Region(of) | StatePlace::Saving(of) => of == region,
            StatePlace::Saved(_) => false,
        })
    }

    fn states_where(
        &self,
        id: &CardId,
        is_meant: impl Fn(&DagName, StatePlace) -> bool,
    ) -> Vec<StateView> {
        let Some(card) = self.cards.get(id) else { return Vec::new() };
        let in_regions = card.states.all_residents().map(|(region, resident)| {
            (&resident.dag, &resident.bitstream, StatePlace::Region(region), None)
        });
        let saved = card.states.records.values().filter_map(|record| {
            let place = match record.phase {
                Phase::Saving(region) => StatePlace::Saving(region),
                Phase::Saved(_) => StatePlace::Saved(record.offset),
                Phase::Erasing => return None,
            };
            Some((&record.dag, &record.bitstream, place, Some(record.since)))
        });
        let meant = in_regions.chain(saved).filter(|(dag, _, place, _)| is_meant(dag, *place));
        meant
            .map(|(dag, bitstream, place, since)| StateView {
                dag: dag.clone(),
                bitstream: bitstream.clone(),
                place,
                bytes: ByteSize::from_bytes(self.state_bytes(bitstream).into()),
                since,
            })
            .collect()
    }

    /// What was done with state on a card.
    pub fn state_figures(&self, card: &CardId) -> Option<StateFigures> {
        self.cards.get(card).map(|card| card.states.figures())
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
        let told = |id: &str| as_told(&BitstreamId::new(id).expect("an id"), &dag);
        assert_eq!(told("aes"), "aes");
        assert_eq!(told("globex.own"), "globex.own");
        assert_eq!(told("acme.secret"), "a chain of others");
    }
}
