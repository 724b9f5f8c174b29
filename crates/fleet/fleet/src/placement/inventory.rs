//! The hosts of the fleet and their cards, each with its mirrored ledger. The only owner of both.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{BitstreamId, CardModel, CardProfile, DagName, NtTypeId, RegionId, TenantId};
use snic_planner::{
    ContentMismatch, Ledger, Overbooked, PlanCatalogue, RegionCondition, RegionLoad, Reservation,
};

use super::function_books::FunctionBooks;
use super::host_images::HostImages;
use super::index::{CardSlot, GroupKey, Index};
use super::registered::{CardSpec, HostSpec, PromiseLimits};
use super::summary::{Kinds, Summary};
use crate::{FleetCard, HostId};

/// The fleet has no such host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("host {0} is not registered")]
pub struct HostUnknown(pub HostId);

/// The fleet has no such card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not registered")]
pub struct NoSuchCard(pub FleetCard);

#[derive(Debug, Clone)]
pub(super) struct HostEntry {
    pub spec: HostSpec,
    pub is_reachable: bool,
    pub images: HostImages,
    pub slots: Vec<CardSlot>,
    /// Number of DAGs of each tenant on it.
    pub tenants: BTreeMap<TenantId, usize>,
}

#[derive(Debug, Clone)]
pub(super) struct CardEntry {
    pub name: FleetCard,
    pub profile: usize,
    pub ledger: Ledger,
    pub functions: FunctionBooks,
    pub is_cordoned: bool,
    /// DAGs that its host has put there beyond what the ledger has room for.
    pub beyond: BTreeMap<DagName, (Vec<RegionLoad>, Reservation)>,
    pub summary: Summary,
    /// Area of its DAGs, as far as that was said, in thousandths of a LUT.
    pub milli_luts: u64,
    /// Its group in the index; `None` while it takes no new DAGs.
    listed: Option<GroupKey>,
}

/// The hosts of the fleet and their cards.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    pub(super) catalogue: PlanCatalogue,
    /// Kinds of regions that can be loaded with an NT, by model.
    pub(super) builds: BTreeMap<CardModel, BTreeMap<NtTypeId, Kinds>>,
    pub(super) hosts: BTreeMap<HostId, HostEntry>,
    pub(super) slots: BTreeMap<FleetCard, CardSlot>,
    cards: Vec<Option<CardEntry>>,
    vacant: Vec<CardSlot>,
    profiles: Vec<CardProfile>,
    /// Each DAG with its card and its area.
    dags: BTreeMap<DagName, (CardSlot, u64)>,
    index: Index,
    promises: PromiseLimits,
}

impl Inventory {
    /// No host, no NT.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits promises from now on; what is promised stays. O(cards), microseconds for each.
    pub fn set_promises(&mut self, promises: PromiseLimits) {
        if std::mem::replace(&mut self.promises, promises) == promises {
            return;
        }
        for slot in self.slots.values().copied().collect::<Vec<_>>() {
            self.change(slot, |_| ());
        }
    }

    /// Limits of promises.
    pub const fn promises(&self) -> PromiseLimits {
        self.promises
    }

    /// Bitstreams and NT types that plans may use.
    pub const fn catalogue(&self) -> &PlanCatalogue {
        &self.catalogue
    }

    /// Registers a host with its cards, all empty. Nothing is placed on it until [`Self::set_reachable`].
    /// Returns `false` where the host exists; nothing has changed then.
    pub fn add_host(&mut self, host: &HostId, spec: HostSpec) -> bool {
        if self.hosts.contains_key(host) {
            return false;
        }
        let entry = HostEntry {
            spec: spec.clone(),
            is_reachable: false,
            images: HostImages::Unknown,
            slots: Vec::new(),
            tenants: BTreeMap::new(),
        };
        self.hosts.insert(host.clone(), entry);
        for (card, of) in spec.cards {
            self.add_card(FleetCard { host: host.clone(), card }, of);
        }
        true
    }

    fn add_card(&mut self, name: FleetCard, of: CardSpec) {
        let profile = self.profiles.iter().position(|known| *known == of.profile);
        let profile = profile.unwrap_or_else(|| {
            self.profiles.push(of.profile.clone());
            self.profiles.len() - 1
        });
        let ledger = Ledger::new(name.card.clone(), of.profile);
        let entry = CardEntry {
            name: name.clone(),
            profile,
            summary: Summary::of(&ledger, self.promises.ingress_percent),
            ledger,
            functions: FunctionBooks::new(of.functions),
            is_cordoned: of.is_cordoned,
            beyond: BTreeMap::new(),
            milli_luts: 0,
            listed: None,
        };
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.cards.push(None);
            CardSlot::try_from(self.cards.len() - 1).expect("fewer cards than 2^32")
        });
        self.cards[slot as usize] = Some(entry);
        if let Some(host) = self.hosts.get_mut(&name.host) {
            host.slots.push(slot);
        }
        self.slots.insert(name, slot);
    }

    /// Forgets a host, its cards and what is reserved on them.
    ///
    /// # Errors
    ///
    /// [`HostUnknown`]
    pub fn remove_host(&mut self, host: &HostId) -> Result<(), HostUnknown> {
        let entry = self.hosts.remove(host).ok_or_else(|| HostUnknown(host.clone()))?;
        for slot in entry.slots {
            self.unlist(slot);
            let Some(card) = self.cards[slot as usize].take() else { continue };
            self.slots.remove(&card.name);
            for dag in card.ledger.reservations().map(|(dag, _)| dag).chain(card.beyond.keys()) {
                self.dags.remove(dag);
            }
            self.vacant.push(slot);
        }
        Ok(())
    }

    /// Says whether a host answers: only then is anything placed on it.
    ///
    /// # Errors
    ///
    /// [`HostUnknown`]
    pub fn set_reachable(&mut self, host: &HostId, is_reachable: bool) -> Result<(), HostUnknown> {
        self.change_host(host, |entry| entry.is_reachable = is_reachable)
    }

    /// Keeps new DAGs off a host, or no longer. Those that it has stay.
    ///
    /// # Errors
    ///
    /// [`HostUnknown`]
    pub fn set_cordoned(&mut self, host: &HostId, is_cordoned: bool) -> Result<(), HostUnknown> {
        self.change_host(host, |entry| entry.spec.is_cordoned = is_cordoned)
    }

    fn change_host(
        &mut self,
        host: &HostId,
        change: impl FnOnce(&mut HostEntry),
    ) -> Result<(), HostUnknown> {
        let entry = self.hosts.get_mut(host).ok_or_else(|| HostUnknown(host.clone()))?;
        change(entry);
        for slot in entry.slots.clone() {
            self.relist(slot);
        }
        Ok(())
    }

    /// The same of one card.
    ///
    /// # Errors
    ///
    /// [`NoSuchCard`]
    pub fn set_card_cordoned(
        &mut self,
        card: &FleetCard,
        is_cordoned: bool,
    ) -> Result<(), NoSuchCard> {
        self.change_card(card, |entry| entry.is_cordoned = is_cordoned)
    }

    /// Says in which condition a region is, as its host reports it.
    ///
    /// # Errors
    ///
    /// [`NoSuchCard`]
    pub fn set_condition(
        &mut self,
        card: &FleetCard,
        region: RegionId,
        condition: RegionCondition,
    ) -> Result<(), NoSuchCard> {
        self.change_card(card, |entry| entry.ledger.set_condition(region, condition))
    }

    pub(super) fn change_card<T>(
        &mut self,
        card: &FleetCard,
        change: impl FnOnce(&mut CardEntry) -> T,
    ) -> Result<T, NoSuchCard> {
        let slot = self.slot(card).ok_or_else(|| NoSuchCard(card.clone()))?;
        Ok(self.change(slot, change))
    }

    pub(super) fn change<T>(
        &mut self,
        slot: CardSlot,
        change: impl FnOnce(&mut CardEntry) -> T,
    ) -> T {
        self.unlist(slot);
        let entry = self.cards[slot as usize].as_mut().expect("a slot in use has a card");
        let done = change(entry);
        entry.summary = Summary::of(&entry.ledger, self.promises.ingress_percent);
        self.list(slot);
        done
    }

    fn relist(&mut self, slot: CardSlot) {
        self.unlist(slot);
        self.list(slot);
    }

    fn unlist(&mut self, slot: CardSlot) {
        let Some(entry) = self.cards[slot as usize].as_mut() else { return };
        if let Some(key) = entry.listed.take() {
            self.index.remove(slot, &key, &entry.summary);
        }
    }

    fn list(&mut self, slot: CardSlot) {
        let Some(entry) = self.cards[slot as usize].as_mut() else { return };
        let Some(host) = self.hosts.get(&entry.name.host) else { return };
        let is_open = !entry.is_cordoned && entry.beyond.is_empty();
        if host.is_reachable && !host.spec.is_cordoned && is_open {
            let key = GroupKey {
                profile: entry.profile,
                zone: host.spec.zone.clone(),
                loadable: entry.summary.loadable,
                is_pristine: entry.summary.is_pristine,
            };
            self.index.insert(slot, &key, &entry.summary);
            entry.listed = Some(key);
        }
    }

    /// Sets contents of regions, and reserves for a DAG.
    ///
    /// # Errors
    ///
    /// [`CannotHold`]; nothing has changed then.
    pub fn hold(
        &mut self,
        card: &FleetCard,
        dag: &DagName,
        loads: &[RegionLoad],
        reservation: Reservation,
    ) -> Result<(), CannotHold> {
        if self.dags.contains_key(dag) {
            return Err(CannotHold::Held(dag.clone()));
        }
        let slot = self.slot(card).ok_or_else(|| NoSuchCard(card.clone()))?;
        let catalogue = std::mem::take(&mut self.catalogue);
        let held = self.change(slot, |entry| {
            set_and_hold(&mut entry.ledger, &catalogue, dag, (loads, reservation))
        });
        self.catalogue = catalogue;
        held?;
        self.note(slot, dag);
        Ok(())
    }

    /// The same of what a host has done already: it holds even where the ledger has no room for it. Returns what is short
    /// then; the card takes nothing new until that is over.
    ///
    /// # Errors
    ///
    /// [`NoSuchCard`]; nothing has changed then.
    pub fn hold_as_it_is(
        &mut self,
        card: &FleetCard,
        dag: &DagName,
        loads: Vec<RegionLoad>,
        reservation: Reservation,
    ) -> Result<Option<CannotHold>, NoSuchCard> {
        if self.slot(card).is_none() {
            return Err(NoSuchCard(card.clone()));
        }
        self.release(dag);
        let held = self.hold(card, dag, &loads, reservation.clone());
        let (Err(short), Some(slot)) = (held, self.slot(card)) else { return Ok(None) };
        self.change(slot, |entry| entry.beyond.insert(dag.clone(), (loads, reservation)));
        self.note(slot, dag);
        Ok(Some(short))
    }

    /// A DAG holds something of a card.
    pub(super) fn note(&mut self, slot: CardSlot, dag: &DagName) {
        self.dags.insert(dag.clone(), (slot, 0));
        let host = self.entry(slot).name.host.clone();
        if let Some(host) = self.hosts.get_mut(&host) {
            *host.tenants.entry(dag.tenant.clone()).or_default() += 1;
        }
    }

    /// Gives back what a DAG holds. Its chains stay loaded. Returns its card.
    pub fn release(&mut self, dag: &DagName) -> Option<FleetCard> {
        let (slot, milli_luts) = self.dags.remove(dag)?;
        let catalogue = std::mem::take(&mut self.catalogue);
        self.change(slot, |entry| {
            entry.milli_luts -= milli_luts;
            if entry.beyond.remove(dag).is_none() {
                entry.ledger.release(dag);
            }
            // There may be room now for what was beyond.
            entry.beyond.retain(|name, (loads, reservation)| {
                let what = (loads.as_slice(), reservation.clone());
                set_and_hold(&mut entry.ledger, &catalogue, name, what).is_err()
            });
        });
        self.catalogue = catalogue;
        let name = self.entry(slot).name.clone();
        if let Some(host) = self.hosts.get_mut(&name.host)
            && let Some(count) = host.tenants.get_mut(&dag.tenant)
        {
            *count -= 1;
            if *count == 0 {
                host.tenants.remove(&dag.tenant);
            }
        }
        Some(name)
    }

    /// Says which area a DAG takes of the card that holds it, in thousandths of a LUT: so much counts in the card's load.
    pub fn weigh(&mut self, dag: &DagName, milli_luts: u64) {
        let Some((slot, before)) = self.dags.get_mut(dag) else { return };
        let before = std::mem::replace(before, milli_luts);
        if let Some(entry) = self.cards[*slot as usize].as_mut() {
            entry.milli_luts = entry.milli_luts - before + milli_luts;
        }
    }

    /// Gives a card the ledger that it had before what was held and released since.
    pub(crate) fn restore_ledger(&mut self, card: &FleetCard, ledger: Ledger) {
        if let Some(slot) = self.slot(card) {
            self.change(slot, |entry| entry.ledger = ledger);
        }
    }

    /// The ledger of a card.
    pub fn ledger(&self, card: &FleetCard) -> Option<&Ledger> {
        self.slot(card).map(|slot| &self.entry(slot).ledger)
    }

    /// The card that holds a reservation for a DAG.
    pub fn card_of(&self, dag: &DagName) -> Option<&FleetCard> {
        self.dags.get(dag).map(|(slot, _)| &self.entry(*slot).name)
    }

    /// A host, as it is registered.
    pub fn host(&self, host: &HostId) -> Option<&HostSpec> {
        self.hosts.get(host).map(|entry| &entry.spec)
    }

    /// Whether a host answers.
    pub fn is_reachable(&self, host: &HostId) -> bool {
        self.hosts.get(host).is_some_and(|entry| entry.is_reachable)
    }

    /// All hosts, by id.
    pub fn hosts(&self) -> impl Iterator<Item = (&HostId, &HostSpec)> {
        self.hosts.iter().map(|(id, entry)| (id, &entry.spec))
    }

    /// All cards, by name.
    pub fn cards(&self) -> impl Iterator<Item = (&FleetCard, &Ledger)> {
        self.slots.iter().map(|(name, slot)| (name, &self.entry(*slot).ledger))
    }

    /// Recomputes ledgers, summaries and index.
    ///
    /// # Errors
    ///
    /// The first that differs, as text. This is a bug, never a consequence of input.
    pub fn check(&self) -> Result<(), String> {
        let mut again = Index::default();
        let mut dags = BTreeSet::new();
        let mut areas: BTreeMap<CardSlot, u64> = BTreeMap::new();
        for (slot, milli_luts) in self.dags.values() {
            *areas.entry(*slot).or_default() += milli_luts;
        }
        for (name, slot) in &self.slots {
            let entry = self.entry(*slot);
            entry.ledger.check().map_err(|wrong| format!("{name}: {wrong}"))?;
            if entry.summary != Summary::of(&entry.ledger, self.promises.ingress_percent) {
                return Err(format!("{name}: the summary is {:?}", entry.summary));
            }
            if entry.milli_luts != areas.remove(slot).unwrap_or_default() {
                return Err(format!(
                    "{name}: {} thousandths of a LUT are counted",
                    entry.milli_luts
                ));
            }
            if let Some(key) = &entry.listed {
                again.insert(*slot, key, &entry.summary);
            }
            let held = entry.ledger.reservations().map(|(dag, _)| dag);
            for dag in held.chain(entry.beyond.keys()) {
                if self.slot_of_dag(dag) != Some(*slot) || !dags.insert(dag) {
                    return Err(format!("{dag} is held on {name} and noted elsewhere"));
                }
            }
        }
        if dags.len() != self.dags.len() {
            return Err("a DAG is noted that no ledger holds".into());
        }
        if again != self.index {
            return Err("the index differs from the cards".into());
        }
        Ok(())
    }

    pub(super) fn slot(&self, card: &FleetCard) -> Option<CardSlot> {
        self.slots.get(card).copied()
    }

    pub(super) fn slot_of(&self, card: &FleetCard) -> Option<CardSlot> {
        self.slot(card)
    }

    pub(super) fn slot_of_dag(&self, dag: &DagName) -> Option<CardSlot> {
        self.dags.get(dag).map(|(slot, _)| *slot)
    }

    pub(super) fn entry(&self, slot: CardSlot) -> &CardEntry {
        self.cards[slot as usize].as_ref().expect("a slot in use has a card")
    }

    pub(super) fn host_entry(&self, host: &HostId) -> Option<&HostEntry> {
        self.hosts.get(host)
    }

    /// All cards that take new DAGs.
    pub(super) fn open_cards(&self) -> impl Iterator<Item = (CardSlot, &CardEntry)> {
        let all = (0..).zip(&self.cards).filter_map(|(slot, card)| Some((slot, card.as_ref()?)));
        all.filter(|(_, card)| card.listed.is_some())
    }

    pub(super) fn host_entries(&self) -> impl Iterator<Item = (&HostId, &HostEntry)> {
        self.hosts.iter()
    }

    pub(super) fn profile(&self, profile: usize) -> &CardProfile {
        &self.profiles[profile]
    }

    /// All profiles, by the number that cards have.
    pub(super) fn profiles(&self) -> &[CardProfile] {
        &self.profiles
    }

    pub(super) const fn index(&self) -> &Index {
        &self.index
    }

    /// Kinds of regions of a model that can be loaded with an NT.
    pub(super) fn kinds(&self, model: &CardModel, nt: &NtTypeId) -> Kinds {
        self.builds.get(model).and_then(|builds| builds.get(nt)).copied().unwrap_or_default()
    }
}

/// Why a card cannot hold a reservation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotHold {
    /// The DAG holds one already.
    #[error("{0} holds a reservation already")]
    Held(DagName),
    /// The card is not registered.
    #[error(transparent)]
    NoSuchCard(#[from] NoSuchCard),
    /// A region cannot be loaded.
    #[error(transparent)]
    Content(#[from] ContentMismatch),
    /// A bitstream is not registered.
    #[error("bitstream {0} is not registered")]
    NoSuchBitstream(BitstreamId),
    /// A resource is short.
    #[error(transparent)]
    Overbooked(#[from] Overbooked),
}

/// Sets contents and reserves; where that fails nothing has changed.
pub(super) fn set_and_hold(
    ledger: &mut Ledger,
    catalogue: &PlanCatalogue,
    dag: &DagName,
    (loads, reservation): (&[RegionLoad], Reservation),
) -> Result<(), CannotHold> {
    let before: Vec<_> =
        loads.iter().map(|load| (load.region, ledger.content(load.region).cloned())).collect();
    let held =
        set_contents(ledger, catalogue, loads).and_then(|()| Ok(ledger.hold(dag, reservation)?));
    if held.is_err() {
        for (region, content) in before {
            let _ = ledger.set_content(region, content.as_ref(), catalogue);
        }
    }
    held
}

fn set_contents(
    ledger: &mut Ledger,
    catalogue: &PlanCatalogue,
    loads: &[RegionLoad],
) -> Result<(), CannotHold> {
    for load in loads {
        if ledger.content(load.region).is_some_and(|now| now.id == load.bitstream) {
            continue;
        }
        let bitstream = catalogue.bitstream(&load.bitstream);
        let bitstream =
            bitstream.ok_or_else(|| CannotHold::NoSuchBitstream(load.bitstream.clone()))?;
        ledger.set_content(load.region, Some(bitstream), catalogue)?;
    }
    Ok(())
}
