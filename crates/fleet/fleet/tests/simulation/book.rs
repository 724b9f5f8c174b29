//! Invariants, kept apart from the code that they judge: from what etcd holds, and from what was answered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snic_domain::{Bandwidth, CardId, DagName, KeptForTenant, Tenant, TenantId};
use snic_etcd::{Operation, Record, Transaction};
use snic_fleet::placement::{CardConstraints, HostSpec};
use snic_fleet::protocol::{FleetCommand, FleetName, FleetReply, HostOrder, OrderKind, PlacedDag};
use snic_fleet::records::{
    FleetDagRecord, FleetTenantRecord, HostRecord, LAST_TRANSACTION, LastTransaction, REBALANCE,
    RebalanceRecord, ReservedFunctions, Versioned, dag_key,
};
use snic_fleet::{FleetCard, HostId};

use crate::support::functions::HostFunctions;

/// Everything that was promised.
#[derive(Default)]
pub struct Book {
    /// DAGs whose creation was acknowledged and whose deletion nobody has asked for.
    owed: BTreeSet<DagName>,
    /// DAGs whose deletion was asked for.
    leaving: BTreeSet<DagName>,
    /// DAGs whose deletion was acknowledged.
    gone: BTreeSet<DagName>,
    /// Serials of places that were ever committed, with DAG and card.
    committed: BTreeMap<u64, (DagName, FleetCard)>,
    /// Place of each DAG now, with where it may be.
    places: BTreeMap<DagName, (FleetCard, CardConstraints)>,
    hosts: BTreeMap<HostId, HostSpec>,
    /// DAGs that each rebalance has moved, by its serial.
    leveled: BTreeMap<u64, u64>,
    /// Reservations that each host was ordered to keep: by number, the tenant, the card, the highest revision, and when it
    /// ends.
    kept: BTreeMap<(HostId, u64), (TenantId, CardId, u64, Duration)>,
    /// The most DAGs that a tenant's quota has ever allowed: what it has when the quota is lowered stays.
    dags_max: BTreeMap<TenantId, u32>,
}

fn dag(key: &str, value: &[u8]) -> Option<FleetDagRecord> {
    key.starts_with("/snic/v1/dags/").then(|| {
        Versioned::<FleetDagRecord>::parse(key, value).expect("a DAG's record").value().clone()
    })
}

impl Book {
    pub fn asked(&mut self, command: &FleetCommand) {
        if let FleetCommand::Delete { name: FleetName::Dag(name), .. } = command {
            self.owed.remove(name);
            self.leaving.insert(name.clone());
        }
    }

    pub fn acknowledged(&mut self, command: &FleetCommand, reply: &FleetReply) {
        match (command, reply) {
            (FleetCommand::CreateDag(new), FleetReply::Placed(placed)) => {
                self.placed(&new.name, placed);
            }
            (FleetCommand::UpdateDag { name, .. }, FleetReply::Placed(placed)) => {
                self.is_stored(name, placed);
            }
            (FleetCommand::CreateDags(all), FleetReply::AllPlaced(placed)) => {
                assert_eq!(all.len(), placed.len(), "all or none of them");
                all.iter().zip(placed).for_each(|(new, placed)| self.placed(&new.name, placed));
            }
            (FleetCommand::Delete { name: FleetName::Dag(name), .. }, _) => {
                self.gone.insert(name.clone());
            }
            _ => {}
        }
    }

    fn is_stored(&self, name: &DagName, placed: &PlacedDag) {
        let stored = placed.place.and_then(|serial| self.committed.get(&serial));
        let was = stored.is_some_and(|(of, at)| of == name && Some(at) == placed.card.as_ref());
        assert!(was, "{name} was acknowledged as {placed:?} and is not stored");
    }

    fn placed(&mut self, name: &DagName, placed: &PlacedDag) {
        self.is_stored(name, placed);
        // An answer may be given once more after the deletion.
        if !self.leaving.contains(name) {
            self.owed.insert(name.clone());
        }
    }

    /// A host was ordered to keep something. Only a later revision ends later.
    pub fn is_to_keep(&mut self, host: &HostId, of: &KeptForTenant, now: Duration) {
        let new = (of.tenant.clone(), of.card.clone(), of.revision, now + of.lasts);
        let known = self.kept.entry((host.clone(), of.number)).or_insert_with(|| new.clone());
        if known.2 < of.revision {
            *known = new;
        }
    }

    /// A machine was given functions: what the host keeps for others and was to keep is still free, and what has ended
    /// keeps nobody off.
    pub fn was_bound(
        &self,
        (id, functions): (&HostId, &HostFunctions),
        (card, tenant): (&CardId, &TenantId),
        (is_bound, asked): (bool, u32),
        now: Duration,
    ) {
        let all = self.kept.range((id.clone(), 0)..=(id.clone(), u64::MAX));
        let left: u32 = all
            .filter(|(_, (of, at, _, ends))| of != tenant && at == card && now < *ends)
            .filter_map(|((_, number), _)| functions.kept.get(number))
            .map(|(of, _)| of.functions.saturating_sub(of.used))
            .sum();
        let bound = functions.bound.get(card).copied().unwrap_or_default();
        if is_bound {
            assert!(bound + left <= 64, "{tenant} took of {id} what is reserved: {left} of others");
        } else {
            assert!(bound + asked + left > 64, "{tenant} was refused at {id} and nothing is kept");
        }
    }

    /// Machines were cut off with a DAG: only its tenant may do that.
    pub fn cut_off(&self, name: &DagName, host: &HostId) {
        assert!(self.leaving.contains(name), "{name} was removed from {host} with its machines");
    }

    /// `leader` is when the election key was created that etcd holds now.
    pub fn was_committed(&mut self, transaction: &Transaction, leader: Option<i64>) {
        let last = transaction.operations.iter().find_map(|operation| match operation {
            Operation::Put { key, value, .. } if key == LAST_TRANSACTION => {
                let last = Versioned::<LastTransaction>::parse(key, value);
                Some(last.expect("the last transaction").value().epoch)
            }
            _ => None,
        });
        assert_eq!(last, leader, "who writes leads");
        let mut placed = BTreeSet::new();
        for operation in &transaction.operations {
            let (key, value) = match operation {
                Operation::Put { key, value, .. } => (key, value),
                Operation::Delete { key } => {
                    self.places.retain(|name, _| dag_key(name) != *key);
                    continue;
                }
            };
            if key.starts_with("/snic/v1/hosts/") && key.ends_with("/spec") {
                let of = Versioned::<HostRecord>::parse(key, value).expect("a host");
                self.hosts.insert(of.value().host.clone(), of.value().spec.clone());
            }
            if key.starts_with("/snic/v1/tenants/") {
                let of = Versioned::<FleetTenantRecord>::parse(key, value).expect("a tenant");
                let Tenant { id, quota, .. } = &of.value().tenant;
                let most = self.dags_max.entry(id.clone()).or_default();
                *most = quota.dags_max.max(*most);
            }
            if key == REBALANCE {
                self.has_leveled(key, value);
            }
            let Some(dag) = dag(key, value) else { continue };
            let Some(place) = dag.place else {
                self.places.remove(&dag.name);
                continue;
            };
            let at = (place.card.clone(), dag.constraints.clone());
            if self.places.insert(dag.name.clone(), at).is_none_or(|old| old.0 != place.card) {
                placed.insert(dag.name.clone());
            }
            let bound = &dag.constraints.hosts;
            let is_allowed = bound.is_empty() || bound.contains(&place.card.host);
            assert!(is_allowed, "{} is bound to {bound:?} and placed on {}", dag.name, place.card);
            let new = (dag.name, place.card);
            let old = self.committed.insert(place.serial, new.clone());
            assert!(old.is_none_or(|old| old == new), "two places have serial {}", place.serial);
        }
        placed.iter().for_each(|name| self.is_apart(name));
    }

    /// It shares no host and no rack with DAGs of its tenant where one of them says so.
    fn is_apart(&self, name: &DagName) {
        let Some((card, of)) = self.places.get(name) else { return };
        let rack = |card: &FleetCard| {
            self.hosts.get(&card.host).map(|spec| (spec.zone.clone(), spec.rack.clone()))
        };
        let others = self.places.iter().filter(|(other, _)| other.tenant == name.tenant);
        for (other, (at, theirs)) in others {
            let by_host =
                of.hosts_without_dags.contains(other) || theirs.hosts_without_dags.contains(name);
            let by_rack =
                of.racks_without_dags.contains(other) || theirs.racks_without_dags.contains(name);
            let is_met = by_host && at.host == card.host || by_rack && rack(at) == rack(card);
            assert!(!is_met, "{name} is placed on {card}, and is to be apart from {other} on {at}");
        }
    }

    /// A rebalance moves no DAG twice, and none that was placed since it began.
    fn has_leveled(&mut self, key: &str, value: &[u8]) {
        let of = Versioned::<RebalanceRecord>::parse(key, value).expect("a rebalance");
        let of = of.value();
        let placed = self.committed.range(..=of.serial).map(|(_, (name, _))| name);
        let placed: BTreeSet<&DagName> = placed.collect();
        assert!(of.moved <= placed.len() as u64, "{} moves of {} DAGs", of.moved, placed.len());
        let before = self.leveled.insert(of.serial, of.moved);
        assert!(before.is_none_or(|before| before <= of.moved), "moves are forgotten");
    }

    /// Number of DAGs that all rebalances have moved.
    pub fn leveled(&self) -> u64 {
        self.leveled.values().sum()
    }

    /// Durable before visible.
    pub fn ordered(&self, host: &HostId, order: &HostOrder) {
        if let OrderKind::Put { name, place, .. } = &order.what {
            let (of, card) =
                self.committed.get(&place.serial).expect("an order that is not stored");
            assert_eq!((of, card, &card.host), (name, &place.card, host));
        }
    }

    /// Judges the content of etcd.
    pub fn judge(&self, records: &[Record], functions: u32) {
        let dags: BTreeMap<DagName, FleetDagRecord> = records
            .iter()
            .filter_map(|record| dag(&record.key, &record.value))
            .map(|dag| (dag.name.clone(), dag))
            .collect();
        for name in &self.owed {
            assert!(dags.contains_key(name), "{name} was acknowledged and is lost");
        }
        for name in &self.gone {
            assert!(!dags.contains_key(name), "{name} was deleted and is there");
        }
        let mut cards: BTreeMap<&FleetCard, Bandwidth> = BTreeMap::new();
        let mut usage: BTreeMap<&TenantId, (u32, Bandwidth)> = BTreeMap::new();
        for (name, dag) in &dags {
            let of = usage.entry(&name.tenant).or_default();
            *of = (of.0 + 1, of.1 + dag.spec.bandwidth);
            if let Some(place) = &dag.place {
                *cards.entry(&place.card).or_default() += dag.spec.bandwidth;
            }
        }
        for (card, bandwidth) in cards {
            assert!(bandwidth <= Bandwidth::from_gbps(100), "{card} is promised {bandwidth}");
        }
        for (tenant, (count, bandwidth)) in usage {
            let key = format!("/snic/v1/tenants/{tenant}");
            let record = records.iter().find(|record| record.key == key).expect("it has DAGs");
            let record =
                Versioned::<FleetTenantRecord>::parse(&key, &record.value).expect("a tenant");
            let quota = record.value().tenant.quota;
            assert!(
                count <= self.dags_max[tenant] && bandwidth <= quota.bandwidth_max,
                "{tenant}: {count}"
            );
        }
        let mut reserved: BTreeMap<FleetCard, u32> = BTreeMap::new();
        for record in records.iter().filter(|r| r.key.starts_with("/snic/v1/reservations/")) {
            let of = Versioned::<ReservedFunctions>::parse(&record.key, &record.value);
            let of = of.expect("a reservation").value().clone();
            let left = of.functions_left();
            *reserved.entry(of.card).or_default() += left;
        }
        for (card, of) in reserved {
            assert!(of <= functions, "{card} has {of} functions reserved of {functions}");
        }
    }

    /// Whether some DAG has a new place and is served by the old one until that serves it, or a rebalance goes on.
    pub fn moves(records: &[Record]) -> bool {
        let is_going = |of: &Record| {
            let of = Versioned::<RebalanceRecord>::parse(&of.key, &of.value).expect("a rebalance");
            of.value().end.is_none()
        };
        let dags = records.iter().filter_map(|record| dag(&record.key, &record.value));
        dags.into_iter().any(|dag| dag.place.is_some() && dag.leaving.is_some())
            || records.iter().any(|record| record.key == REBALANCE && is_going(record))
    }

    /// Once it is quiet: hosts serve what is stored, and nothing else.
    pub fn judge_quiet(&self, records: &[Record], served: &BTreeMap<(FleetCard, DagName), u64>) {
        let stored: BTreeMap<(FleetCard, DagName), u64> = records
            .iter()
            .filter_map(|record| dag(&record.key, &record.value))
            .filter_map(|dag| {
                // A change that its host refused leaves the place before, until there is another one.
                let place = dag.place.map(|place| (place.card, place.serial));
                place.or(dag.leaving).map(|(card, serial)| ((card, dag.name), serial))
            })
            .collect();
        let missing: Vec<_> = stored.iter().filter(|(at, of)| served.get(at) != Some(of)).collect();
        let more: Vec<_> = served.iter().filter(|(at, of)| stored.get(at) != Some(of)).collect();
        assert!(missing.is_empty() && more.is_empty(), "not served {missing:#?}, served {more:#?}");
        let unready = records
            .iter()
            .filter_map(|record| dag(&record.key, &record.value))
            .filter(|dag| dag.is_ready != dag.place.is_some());
        let unready: Vec<_> = unready.map(|dag| dag.name).collect();
        assert!(unready.is_empty(), "served and not called ready, or the reverse: {unready:?}");
        let rebalance = records.iter().find(|record| record.key == REBALANCE).map(|record| {
            Versioned::<RebalanceRecord>::parse(&record.key, &record.value).expect("a rebalance")
        });
        let is_over = rebalance.as_ref().is_none_or(|of| of.value().end.is_some());
        assert!(is_over, "a rebalance goes on: {rebalance:?}");
        let unplaced = records
            .iter()
            .filter_map(|record| dag(&record.key, &record.value))
            .filter(|dag| dag.place.is_none() && dag.unplaced.is_none());
        assert_eq!(unplaced.count(), 0, "DAGs without a place say why");
    }
}
