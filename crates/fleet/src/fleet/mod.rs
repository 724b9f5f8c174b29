//! What the leader knows and decides: all records of the fleet, the mirrored ledgers, and what is under way.
//!
//! Each verb changes this state at once, and notes in a [`FleetStep`] what must be stored and what follows. Nothing of it
//! is seen before it is durable: the journal holds the effects back, and a leader that cannot store forgets all of it.

mod commands;
mod dags;
mod evacuation;
mod reports;
mod requests;
mod reservations;
mod restore;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snic_domain::{Bandwidth, CardId, Dag, DagName, TenantId, Timestamp};

use crate::hosts::{Held, HostState, Hosts, TokenBucket};
use crate::journal::{FleetStep, Journal};
use crate::placement::{HostSpec, Inventory};
use crate::protocol::{FleetEffect, HostOrder, OrderKind};
use crate::records::{FleetDagRecord, Versioned};
use crate::tenants::{Capacity, FleetUsage, Tenants};
use crate::{FleetCard, HostId};

use requests::Requests;
use reservations::Reservations;

/// What operators tune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetSettings {
    /// A host is suspected when it was not heard for so long.
    pub lease: Duration,
    /// And lost when that has lasted so long.
    pub confirm: Duration,
    /// DAGs of lost and draining hosts that are placed again in a second.
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

/// A DAG.
#[derive(Debug)]
struct DagEntry {
    record: Versioned<FleetDagRecord>,
    dag: Dag,
    usage: FleetUsage,
    /// Its host said that it serves it.
    is_ready: bool,
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
    inventory: Inventory,
    tenants: Tenants,
    capacity: Capacity,
    hosts: Hosts,
    dags: BTreeMap<DagName, DagEntry>,
    /// DAGs without a place that are to get one.
    waiting: BTreeSet<DagName>,
    /// The last DAG that was tried, of those that wait or are to move: the next time goes on behind it.
    tried_last: Option<DagName>,
    reservations: Reservations,
    requests: Requests,
    moves: TokenBucket,
    held: Held,
    pub journal: Journal,
}

impl Fleet {
    fn new(settings: FleetSettings, journal: Journal, now: Timestamp) -> Self {
        Self {
            settings,
            inventory: Inventory::new(),
            tenants: Tenants::default(),
            capacity: Capacity::default(),
            hosts: BTreeMap::new(),
            dags: BTreeMap::new(),
            waiting: BTreeSet::new(),
            tried_last: None,
            reservations: Reservations::default(),
            requests: Requests::default(),
            moves: TokenBucket::new(settings.moves_per_second, settings.moves_burst, now),
            held: Held::default(),
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
        let (host, place) = (place.card.host.clone(), Box::new(place));
        self.order(&host, OrderKind::Put { name: name.clone(), spec, place }, step);
    }

    /// A card is to serve a DAG no more.
    fn order_remove(
        &mut self,
        name: &DagName,
        (card, serial): (&FleetCard, u64),
        step: &mut FleetStep,
    ) {
        let Some(host) = self.hosts.get_mut(&card.host) else { return };
        host.desire_no_more(&card.card, name, serial);
        let (name, of) = (name.clone(), card.card.clone());
        self.order(&card.host, OrderKind::Remove { name, card: of, serial }, step);
    }

    fn desire(&mut self, card: &FleetCard, name: &DagName, serial: u64) {
        if let Some(host) = self.hosts.get_mut(&card.host) {
            host.desire(&card.card, name, serial);
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

    /// What a DAG counts for its tenant.
    fn usage_of(&self, dag: &Dag) -> FleetUsage {
        let milli_luts = dag.nodes().iter().map(|node| {
            let Some(nt) = self.inventory.catalogue().nt(&node.nt) else { return 0 };
            let luts = u128::from(nt.area.lut) * 1_000 * u128::from(dag.bandwidth().get());
            let max = u128::from(nt.bandwidth_max.get().max(1));
            u64::try_from(luts / max).unwrap_or(u64::MAX)
        });
        FleetUsage { dags: 1, bandwidth: dag.bandwidth(), milli_luts: milli_luts.sum() }
    }

    /// A tenant's dominant share over all cards, in thousand-millionths.
    pub fn dominant_share_ppb(&self, tenant: &TenantId) -> Option<u64> {
        self.tenants.dominant_share_ppb(tenant, self.capacity)
    }

    /// What a tenant's DAGs take.
    pub fn usage(&self, tenant: &TenantId) -> Option<FleetUsage> {
        self.tenants.usage(tenant)
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
        let mut usage: BTreeMap<&TenantId, FleetUsage> = BTreeMap::new();
        let mut desired: BTreeMap<(&HostId, &CardId, &DagName), u64> = BTreeMap::new();
        for (name, entry) in &self.dags {
            let of = usage.entry(&name.tenant).or_default();
            of.dags += 1;
            of.bandwidth += entry.dag.bandwidth();
            of.milli_luts += self.usage_of(&entry.dag).milli_luts;
            let place = entry.of().place.as_ref();
            if self.inventory.card_of(name) != place.map(|place| &place.card) {
                return Err(format!("{name} is at {place:?}, but its card is another"));
            }
            let places = place.map(|place| (&place.card, place.serial));
            let leaving = entry.of().leaving.as_ref().map(|(card, serial)| (card, *serial));
            for (card, serial) in places.into_iter().chain(leaving) {
                desired.insert((&card.host, &card.card, name), serial);
            }
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
        if noted.collect::<BTreeMap<_, _>>() != desired {
            return Err("hosts are to serve other DAGs than those that are placed there".into());
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
