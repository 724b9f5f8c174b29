//! Virtual functions that are kept for machines about to start, each until its lease ends.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use snic_domain::{DagName, DagSpec, TenantId, Timestamp};

use super::dags::valid;
use super::{Fleet, RequestContext};
use crate::HostId;
use crate::journal::FleetStep;
use crate::placement::{CardConstraints, CardPolicy, HostNeeds, RANKED_HOSTS_MAX};
use crate::protocol::{Denied, FleetName, FleetReply, RequestId};
use crate::records::{ReservedFunctions, Versioned, reservation_key};

pub(super) type Name = (TenantId, RequestId);

/// Longest lease in seconds.
const SECONDS_MAX: u32 = 86_400;
/// Most reservations of one tenant.
const RESERVATIONS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Reservations {
    all: BTreeMap<Name, (Versioned<ReservedFunctions>, Timestamp)>,
    ends: BTreeSet<(Timestamp, Name)>,
}

impl Reservations {
    /// A new one, or one from its record; its lease begins now.
    pub fn insert(&mut self, record: Versioned<ReservedFunctions>, now: Timestamp) {
        let of = record.value();
        let name = (of.tenant.clone(), of.id);
        let end = now + Duration::from_secs(of.seconds.into());
        self.ends.insert((end, name.clone()));
        self.all.insert(name, (record, end));
    }

    pub fn get(&self, name: &Name) -> Option<&ReservedFunctions> {
        self.all.get(name).map(|(record, _)| record.value())
    }

    /// Returns whether there is such a one.
    pub fn renew(&mut self, name: &Name, now: Timestamp) -> bool {
        let Some((record, end)) = self.all.get_mut(name) else { return false };
        self.ends.remove(&(*end, name.clone()));
        *end = now + Duration::from_secs(record.value().seconds.into());
        self.ends.insert((*end, name.clone()));
        true
    }

    /// All end so much later: meanwhile nobody could renew one.
    pub fn postpone(&mut self, by: Duration) {
        self.all.values_mut().for_each(|(_, end)| *end = *end + by);
        self.ends = self.all.iter().map(|(name, (_, end))| (*end, name.clone())).collect();
    }

    pub fn remove(&mut self, name: &Name) -> Option<ReservedFunctions> {
        let (record, end) = self.all.remove(name)?;
        self.ends.remove(&(end, name.clone()));
        Some(record.value().clone())
    }

    /// One whose lease is over.
    pub fn ended(&self, now: Timestamp) -> Option<Name> {
        let (end, name) = self.ends.first()?;
        (*end <= now).then(|| name.clone())
    }

    /// Number of a tenant's reservations.
    pub fn of_tenant(&self, tenant: &TenantId) -> usize {
        let from = (tenant.clone(), RequestId(0));
        self.all.range(from..).take_while(|((of, _), _)| of == tenant).count()
    }

    /// Some of a tenant's.
    pub fn names_of(&self, tenant: &TenantId, most: usize) -> Vec<Name> {
        let from = Bound::Included((tenant.clone(), RequestId(0)));
        self.names_from(from).take_while(|(of, _)| of == tenant).take(most).cloned().collect()
    }

    pub fn names_from(&self, from: Bound<Name>) -> impl Iterator<Item = &Name> {
        self.all.range((from, Bound::Unbounded)).map(|(name, _)| name)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Number of reservations on a host.
    pub fn on(&self, host: &HostId) -> usize {
        self.all.values().filter(|(record, _)| record.value().card.host == *host).count()
    }
}

impl Fleet {
    /// Ranks hosts; changes nothing.
    pub(super) fn find_hosts(
        &self,
        (mut constraints, policy): (CardConstraints, CardPolicy),
        dag: Option<(DagName, Box<DagSpec>)>,
        most: usize,
    ) -> Result<FleetReply, Denied> {
        if !(1..=RANKED_HOSTS_MAX).contains(&most) {
            let wrong = format!("{most} hosts at most; 1 to {RANKED_HOSTS_MAX} are allowed");
            return Err(Denied::Invalid(wrong));
        }
        let dag = match dag {
            None => None,
            Some((name, spec)) => {
                self.check_is_new(&name)?;
                let dag = valid(&name.tenant, &spec)?;
                self.add_affinities(&name, &spec, &mut constraints);
                Some((name, dag))
            }
        };
        let dag = dag.as_ref().map(|(name, dag)| (name, dag));
        let needs = HostNeeds { constraints: &constraints, policy, dag };
        self.inventory.find_hosts(&needs, most).map(FleetReply::Hosts).map_err(Denied::NoPlace)
    }

    pub(super) fn reserve(
        &mut self,
        turn: &RequestContext,
        id: RequestId,
        (constraints, policy, seconds): (&CardConstraints, CardPolicy, u32),
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let only_tenants = || Denied::Invalid("only tenants reserve".into());
        let tenant = turn.tenant.clone().ok_or_else(only_tenants)?;
        if !(1..=SECONDS_MAX).contains(&seconds) {
            let wrong = format!("a lease of {seconds} s; 1 to {SECONDS_MAX} are allowed");
            return Err(Denied::Invalid(wrong));
        }
        self.tenants.admit(&tenant, Default::default(), Default::default())?;
        let name = (tenant.clone(), id);
        if self.reservations.get(&name).is_some() {
            return Err(Denied::Exists(FleetName::Reservation(tenant, id).to_string()));
        }
        if self.reservations.of_tenant(&tenant) >= RESERVATIONS_MAX {
            return Err(Denied::Full {
                what: "reservations of yours".into(),
                max: RESERVATIONS_MAX,
            });
        }
        let needs = HostNeeds { constraints, policy, dag: None };
        let mut found = self.inventory.find_hosts(&needs, 1).map_err(Denied::NoPlace)?;
        let (card, functions) = (found.remove(0).card, constraints.functions);
        if turn.is_dry {
            return Ok(FleetReply::Reserved(card));
        }
        let taken = self.inventory.take_functions(&card, functions);
        debug_assert_eq!(taken, Ok(true), "the card was found to have them");
        let record = ReservedFunctions { tenant, id, card: card.clone(), functions, seconds };
        let record = Versioned::new(record);
        step.put(reservation_key(&name.0, id), record.bytes());
        self.reservations.insert(record, turn.now);
        Ok(FleetReply::Reserved(card))
    }

    pub(super) fn renew(
        &mut self,
        turn: &RequestContext,
        id: RequestId,
    ) -> Result<FleetReply, Denied> {
        let name = turn.tenant.clone().map(|tenant| (tenant, id));
        match name.filter(|name| self.reservations.renew(name, turn.now)) {
            Some(_) => Ok(FleetReply::Done),
            None => Err(Denied::NotFound(format!("reservation {id}"))),
        }
    }

    pub(super) fn delete_reservation(
        &mut self,
        turn: &RequestContext,
        name: &Name,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        if self.reservations.get(name).is_none() {
            let name = FleetName::Reservation(name.0.clone(), name.1);
            return Err(Denied::NotFound(name.to_string()));
        }
        if !turn.is_dry {
            self.end_reservation(name, step);
        }
        Ok(FleetReply::Done)
    }
}
