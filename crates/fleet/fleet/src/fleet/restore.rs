//! The fleet from its records.

use snic_domain::{Dag, Timestamp};
use snic_etcd::{Record, Revision};

use super::{DagEntry, Fleet, FleetSettings};
use crate::FleetCard;
use crate::journal::{FleetStep, Journal};
use crate::protocol::{Epoch, OrderKind};
use crate::records::{
    DoneRequest, DrainRecord, FleetBitstreamRecord, FleetDagRecord, FleetNtRecord,
    FleetTenantRecord, HostRecord, LAST_TRANSACTION, LastTransaction, PREFIX, PoliciesRecord,
    ProjectRecord, RebalanceRecord, ReservedFunctions, Unplaced, UnreadableRecord, Versioned,
};

/// Kinds of records in the order in which they are read: each may name what is before it.
const KINDS: [&str; 11] = [
    "projects/",
    "tenants/",
    "nt-types/",
    "bitstreams/",
    "hosts/",
    "drains/",
    "rebalance/",
    "policies/",
    "dags/",
    "reservations/",
    "requests/",
];

impl Fleet {
    /// From all records under [`PREFIX`]; leases of hosts begin now.
    ///
    /// # Errors
    ///
    /// Restores the fleet from its records; records that cannot be read come back as text.
    pub fn restore(
        (settings, now): (FleetSettings, Timestamp),
        (key, epoch): (String, Epoch),
        records: &[Record],
    ) -> Result<Self, String> {
        let last = records.iter().find(|record| record.key == LAST_TRANSACTION);
        let (changed, serial) = match last {
            Some(record) => {
                let last = Versioned::<LastTransaction>::parse(&record.key, &record.value);
                (record.changed, last.map_err(|wrong| wrong.to_string())?.value().serial)
            }
            None => (Revision(0), 0),
        };
        let journal = Journal::new(key, epoch, changed, serial);
        let mut fleet = Self::new(settings, journal, now);
        for kind in KINDS {
            let of_kind = records.iter().filter(|record| {
                record.key.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with(kind))
            });
            for record in of_kind {
                fleet.restore_one(kind, record, now)?;
            }
        }
        Ok(fleet)
    }

    /// Goes on with what this leader knew that is no record, before its records were read again: when hosts were heard and which
    /// orders they were sent. What they serve, lack, and have faults in their next beats say.
    pub fn resume_after(&mut self, before: &Self) {
        self.journal.resume_after(&before.journal);
        self.began = before.began;
        self.moves = before.moves.clone();
        self.held = before.held.clone();
        for (id, host) in &mut self.hosts {
            if let Some(before) = before.hosts.get(id) {
                host.resume_after(before);
            }
        }
        for (id, host) in &self.hosts {
            for (card, bound) in host.functions().into_iter().flat_map(|of| &of.bound) {
                let card = FleetCard { host: id.clone(), card: card.clone() };
                let _ = self.inventory.set_bound(&card, *bound);
            }
        }
    }

    /// Greets all hosts, so that they know this leader and report.
    pub fn greet(&mut self, step: &mut FleetStep) {
        let hosts: Vec<_> = self.hosts.keys().cloned().collect();
        for host in hosts {
            self.order(&host, OrderKind::Greet, step);
        }
    }

    fn restore_one(&mut self, kind: &str, of: &Record, now: Timestamp) -> Result<(), String> {
        let text = |wrong: UnreadableRecord| wrong.to_string();
        let (key, value) = (of.key.as_str(), of.value.as_slice());
        match kind {
            "nt-types/" => {
                let of = Versioned::<FleetNtRecord>::parse(key, value).map_err(text)?;
                self.insert_nt(of.value().clone());
            }
            "bitstreams/" => {
                let of = Versioned::<FleetBitstreamRecord>::parse(key, value).map_err(text)?;
                self.insert_bitstream(of.value().clone());
            }
            "projects/" => {
                let of = Versioned::<ProjectRecord>::parse(key, value).map_err(text)?;
                self.tenants.put_project(of);
            }
            "tenants/" => {
                let of = Versioned::<FleetTenantRecord>::parse(key, value).map_err(text)?;
                self.tenants.put_tenant(of);
            }
            "hosts/" => {
                let of = Versioned::<HostRecord>::parse(key, value).map_err(text)?;
                self.insert_host(of, now);
            }
            "drains/" => {
                let of = Versioned::<DrainRecord>::parse(key, value).map_err(text)?;
                self.insert_drain(of.value().clone());
            }
            "rebalance/" => {
                let of = Versioned::<RebalanceRecord>::parse(key, value).map_err(text)?;
                self.restore_rebalance(of, now);
            }
            "policies/" => {
                let of = Versioned::<PoliciesRecord>::parse(key, value).map_err(text)?;
                self.insert_policies(of);
            }
            "dags/" => {
                let of = Versioned::<FleetDagRecord>::parse(key, value).map_err(text)?;
                self.restore_dag(of)?;
            }
            "reservations/" => {
                let of = Versioned::<ReservedFunctions>::parse(key, value).map_err(text)?;
                if self.inventory.ledger(&of.value().card).is_none() {
                    return Err(format!("{key}: {} is not registered", of.value().card));
                }
                self.keep_room(&of.value().clone());
                self.reservations.insert(of, now);
            }
            _ => {
                let of = Versioned::<DoneRequest>::parse(key, value).map_err(text)?;
                self.requests.restore(of.value().clone());
            }
        }
        Ok(())
    }

    fn restore_dag(&mut self, record: Versioned<FleetDagRecord>) -> Result<(), String> {
        let of = record.value().clone();
        let name = of.name;
        let dag = Dag::new(of.spec).map_err(|wrong| format!("{name}: {wrong}"))?;
        let usage = self.usage_of(&dag);
        self.tenants.take(&name.tenant, usage);
        self.registry.uses.count_spec(&record.value().spec, true);
        self.affinities.count(&name, record.value().named(), true);
        let (place, leaving) = (of.place, of.leaving);
        match &of.unplaced {
            Some(Unplaced::Failed(_)) => drop(self.failed.insert(name.clone())),
            _ if place.is_none() => drop(self.waiting.insert(name.clone())),
            _ => {}
        }
        self.dags.insert(name.clone(), DagEntry { record, dag, usage });
        if let Some(place) = place {
            self.registry.uses.count_place(&place, true);
            let (card, loads) = (&place.card, place.loads());
            self.inventory
                .hold_as_it_is(card, &name, loads, place.reservation)
                .map_err(|wrong| format!("{name}: {wrong}"))?;
            self.inventory.weigh(&name, usage.milli_luts);
            self.desire(card, &name, place.serial);
        }
        self.desire_leaving(leaving.as_ref(), &name);
        Ok(())
    }
}
