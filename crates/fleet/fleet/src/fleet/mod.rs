//! State of the leader: all records of the fleet, the mirrored ledgers, and what is under way.
//!
//! Each verb changes this state at once, and notes in a [`FleetStep`] what must be stored and what follows. Nothing of it
//! is seen before it is durable: the journal holds the effects back, and a leader that cannot store forgets all of it.

mod affinities;
mod attachments;
mod budgets;
mod commands;
mod dags;
mod drains;
mod evacuation;
mod explain;
mod leveling;
mod new_reservation;
mod policies;
mod reads;
mod rebalance;
mod registry;
mod reports;
mod requests;
mod reservations;
mod restore;
mod tenancy;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snic_domain::{Bandwidth, CardId, Dag, DagId, DagName, NtTypeId, TenantId, Timestamp};
use snic_planner::allocated_memory;

use crate::hosts::{DagMobility, EvacuationHold, HostState, Hosts, TokenBucket};
use crate::journal::{FleetStep, Journal};
use crate::placement::{HostSpec, Inventory};
use crate::protocol::{DrainArea, FleetEffect, FleetUsage, HostOrder, OrderKind, Provisions};
use crate::records::{FleetDagRecord, PoliciesRecord, Versioned};
use crate::tenants::{Capacity, Tenants};
use crate::{FleetCard, HostId};

use affinities::Affinities;
use commands::RequestContext;
use rebalance::Rebalancing;
use registry::{Registry, UseCounts};
use requests::Requests;
use reservations::Reservations;

/// Settings of operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetSettings {
    /// A host is suspected when it was not heard for so long, while the leader ran.
    pub lease: Duration,
    /// And lost when that has lasted so long.
    pub confirm: Duration,
    /// DAGs that are placed again in a second: of lost and draining hosts, and of a rebalance.
    pub moves_per_second: u64,
    /// And at once, after a quiet time.
    pub moves_burst: u64,
}

impl Default for FleetSettings {
    /// A lease of 10 s, 2 s to confirm, and 20 moves a second.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            confirm: Duration::from_secs(2),
            moves_per_second: 20,
            moves_burst: 20,
        }
    }
}

#[derive(Debug)]
struct DagEntry {
    record: Versioned<FleetDagRecord>,
    dag: Dag,
    usage: FleetUsage,
}

impl DagEntry {
    const fn of(&self) -> &FleetDagRecord {
        self.record.value()
    }
}

/// The fleet, as its leader sees it.
#[derive(Debug)]
pub(crate) struct Fleet {
    settings: FleetSettings,
    /// Time of the event that is being handled.
    pub now: Timestamp,
    /// When it began to lead.
    began: Timestamp,
    inventory: Inventory,
    tenants: Tenants,
    capacity: Capacity,
    hosts: Hosts,
    dags: BTreeMap<DagName, DagEntry>,
    affinities: Affinities,
    /// DAGs without a place that are to get one.
    waiting: BTreeSet<DagName>,
    /// DAGs without a place that were refused too often.
    failed: BTreeSet<DagName>,
    /// The last that was tried of those that wait, and of those that are to move: the next time goes on behind it.
    waited_last: Option<DagName>,
    moved_last: Option<(HostId, DagName)>,
    /// Number of DAGs of a rack or zone that move at a time while it is emptied.
    drains: BTreeMap<DrainArea, u32>,
    rebalancing: Rebalancing,
    policies: Option<Versioned<PoliciesRecord>>,
    registry: Registry,
    reservations: Reservations,
    requests: Requests,
    moves: TokenBucket,
    /// When places that are left are removed again.
    next_release: Timestamp,
    held: EvacuationHold,
    pub journal: Journal,
}

impl Fleet {
    fn new(settings: FleetSettings, journal: Journal, now: Timestamp) -> Self {
        Self {
            settings,
            now,
            began: now,
            inventory: Inventory::new(),
            tenants: Tenants::default(),
            capacity: Capacity::default(),
            hosts: BTreeMap::new(),
            dags: BTreeMap::new(),
            affinities: Affinities::default(),
            waiting: BTreeSet::new(),
            failed: BTreeSet::new(),
            waited_last: None,
            moved_last: None,
            drains: BTreeMap::new(),
            rebalancing: Rebalancing::default(),
            policies: None,
            registry: Registry::default(),
            reservations: Reservations::default(),
            requests: Requests::default(),
            moves: TokenBucket::new(settings.moves_per_second, settings.moves_burst, now),
            next_release: now,
            held: EvacuationHold::default(),
            journal,
        }
    }

    /// An order, with the next number.
    fn order(&mut self, host: &HostId, what: OrderKind, step: &mut FleetStep) {
        let Some(state) = self.hosts.get_mut(host) else { return };
        let (epoch, sequence) = (self.journal.epoch(), state.next_sequence());
        let order = HostOrder { epoch, sequence, what };
        step.then(FleetEffect::Order { host: host.clone(), order });
    }

    /// Has a host serve the DAG at its place.
    fn order_put(&mut self, name: &DagName, step: &mut FleetStep) {
        let Some(entry) = self.dags.get(name) else { return };
        let Some(place) = entry.of().place.clone() else { return };
        let spec = Box::new(entry.of().spec.clone());
        let Some(tenant) = self.tenants.on_hosts(&name.tenant).map(Box::new) else { return };
        let (host, place) = (place.card.host.clone(), Box::new(place));
        self.order(&host, OrderKind::Put { name: name.clone(), spec, place, tenant }, step);
    }

    /// A card is to serve a DAG no more.
    fn order_remove(
        &mut self,
        name: &DagName,
        (card, serial): (&FleetCard, u64),
        step: &mut FleetStep,
    ) {
        let (dag, of) = (name.clone(), card.card.clone());
        let remove = OrderKind::Remove { name: dag, card: of, serial, if_detached: false };
        self.order(&card.host, remove, step);
        self.serves_no_more(name, (card, serial), step);
    }

    /// A card serves a DAG no more, or was told so; its host forgets the tenant with the last one.
    fn serves_no_more(
        &mut self,
        name: &DagName,
        (card, serial): (&FleetCard, u64),
        step: &mut FleetStep,
    ) {
        let Some(host) = self.hosts.get_mut(&card.host) else { return };
        host.desire_no_more(&card.card, name, serial);
        let is_last = !host.has_tenant(&name.tenant);
        if let Some(number) = self.tenants.number(&name.tenant).filter(|_| is_last) {
            let tenants = [(name.tenant.clone(), number)].into();
            let gone = Provisions { tenants, ..Provisions::default() };
            self.order(&card.host, OrderKind::Withdraw(gone), step);
        }
    }

    /// A card is to serve a DAG's place.
    fn desire(&mut self, card: &FleetCard, name: &DagName, serial: u64) {
        let is_pinned = self.dags.get(name).is_some_and(|entry| entry.of().is_pinned());
        let stay = if is_pinned { DagMobility::Pinned } else { DagMobility::Free };
        if let Some(host) = self.hosts.get_mut(&card.host) {
            host.desire(&card.card, name, serial, stay);
        }
    }

    /// A card is to serve a DAG until its place does.
    fn desire_leaving(&mut self, leaving: Option<&(FleetCard, u64)>, name: &DagName) {
        if let Some((card, serial)) = leaving
            && let Some(host) = self.hosts.get_mut(&card.host)
        {
            host.desire(&card.card, name, *serial, DagMobility::Leaving);
        }
    }

    fn count_capacity(&mut self, spec: &HostSpec, is_new: bool) {
        for card in spec.cards.values() {
            let (bandwidth, luts) = (card.profile.ingress, card.profile.luts());
            let all = &mut self.capacity;
            if is_new {
                all.bandwidth += bandwidth;
                all.luts += luts;
            } else {
                all.bandwidth = all.bandwidth - bandwidth;
                all.luts -= luts;
            }
        }
    }

    /// Usage of a DAG that counts for its tenant.
    fn usage_of(&self, dag: &Dag) -> FleetUsage {
        let milli_luts = dag.nodes().iter().map(|node| {
            let Some(nt) = self.inventory.catalogue().nt(&node.nt) else { return 0 };
            let luts = u128::from(nt.area.lut) * 1_000 * u128::from(dag.bandwidth().get());
            let max = u128::from(nt.bandwidth_max.get().max(1));
            u64::try_from(luts / max).unwrap_or(u64::MAX)
        });
        let milli_luts = milli_luts.sum();
        let nts: BTreeSet<&NtTypeId> = dag.nodes().iter().map(|node| &node.nt).collect();
        let nts = nts.into_iter().filter_map(|nt| self.inventory.catalogue().nt(nt));
        let memory = nts.map(allocated_memory).sum();
        let bandwidth = dag.bandwidth();
        FleetUsage { dags: 1, bandwidth, milli_luts, memory, ..FleetUsage::default() }
    }

    /// A tenant's dominant share over all cards, in thousand-millionths.
    pub fn dominant_share_ppb(&self, tenant: &TenantId) -> Option<u64> {
        self.tenants.dominant_share_ppb(tenant, self.capacity)
    }

    /// Usage of a tenant's DAGs.
    pub fn usage(&self, tenant: &TenantId) -> Option<FleetUsage> {
        self.tenants.usage(tenant)
    }

    /// Number of DAGs without a place.
    pub fn unplaced(&self) -> usize {
        self.waiting.len() + self.failed.len()
    }

    pub const fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Recomputes what follows from the records: holdings, usage, what hosts are to serve.
    ///
    /// # Errors
    ///
    /// The first difference, as text. This is a bug, never a consequence of input.
    pub fn check(&self) -> Result<(), String> {
        self.inventory.check()?;
        let (mut usage, mut uses) =
            (self.registry.usage(self.inventory.catalogue()), UseCounts::default());
        let mut affinities = Affinities::default();
        let mut desired: BTreeMap<(&HostId, &CardId, &DagName), u64> = BTreeMap::new();
        let mut areas: BTreeMap<&FleetCard, u64> = BTreeMap::new();
        for (name, entry) in &self.dags {
            usage.entry(name.tenant.clone()).or_default().add(self.usage_of(&entry.dag));
            uses.count_spec(&entry.of().spec, true);
            affinities.count(name, entry.of().named(), true);
            entry.of().place.iter().for_each(|place| uses.count_place(place, true));
            let place = entry.of().place.as_ref();
            if self.inventory.card_of(name) != place.map(|place| &place.card) {
                return Err(format!("{name} is at {place:?}, but its card is another"));
            }
            if let Some(place) = place {
                *areas.entry(&place.card).or_default() += entry.usage.milli_luts;
            }
            let places = place.map(|place| (&place.card, place.serial));
            let leaving = entry.of().leaving.as_ref().map(|(card, serial)| (card, *serial));
            for (card, serial) in places.into_iter().chain(leaving) {
                desired.insert((&card.host, &card.card, name), serial);
            }
        }
        for (card, milli_luts) in areas {
            if self.inventory.milli_luts(card) != Some(milli_luts) {
                return Err(format!("DAGs on {card} take {milli_luts} thousandths of a LUT"));
            }
        }
        self.check_reservations()?;
        self.registry.check(uses, self.inventory.catalogue())?;
        if affinities != self.affinities {
            return Err(format!("DAGs name {affinities:?}, noted {:?}", self.affinities));
        }
        for (tenant, of) in &usage {
            if self.tenants.usage(tenant) != Some(*of) {
                return Err(format!(
                    "{tenant} has {of:?}, counted {:?}",
                    self.tenants.usage(tenant)
                ));
            }
        }
        let noted = self.hosts.iter().flat_map(|(host, state)| {
            let cards = state.record.value().spec.cards.keys();
            cards.flat_map(move |card| {
                let dags = state.desired(card).into_iter().flatten();
                dags.map(move |(name, serial)| ((host, card, name), *serial))
            })
        });
        let noted: BTreeMap<_, _> = noted.collect();
        if let Some(at) = desired.iter().find(|(at, serial)| noted.get(*at) != Some(*serial)) {
            return Err(format!("{at:?} is stored, and its host is not to serve it"));
        }
        if let Some(at) = noted.keys().find(|at| !desired.contains_key(*at)) {
            return Err(format!("{at:?} is not stored, and its host is to serve it"));
        }
        let all: Bandwidth = self.inventory.cards().map(|(_, of)| of.profile().ingress).sum();
        if all != self.capacity.bandwidth {
            return Err(format!("cards have {all}, counted {}", self.capacity.bandwidth));
        }
        Ok(())
    }

    fn host(&self, host: &HostId) -> Option<&HostState> {
        self.hosts.get(host)
    }
}

/// The smallest name that a DAG of a tenant can have.
fn first_of(tenant: &TenantId) -> DagName {
    DagName { tenant: tenant.clone(), dag: DagId::new("a").expect("one letter is an id") }
}
