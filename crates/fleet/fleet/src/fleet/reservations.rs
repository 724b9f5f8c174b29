//! Virtual functions and bandwidth that are kept for machines about to start, each until its time is over. Their hosts know them
//! and refuse them to others; what a host has ended has ended here, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use snic_domain::{Bandwidth, Dag, DagName, FunctionUse, KeptForTenant, TenantId, Timestamp};

use super::dags::valid;
use super::new_reservation::NewReservation;
use super::{Fleet, RequestContext};
use crate::journal::FleetStep;
use crate::placement::{
    CardConstraints, CardPolicy, HostNeeds, KeptRoom, KeptUser, PlacementRefused, RANKED_HOSTS_MAX,
};
use crate::protocol::{
    Denied, FleetName, FleetReply, FleetUsage, FoundHosts, MACHINE_DAGS_MAX, MachineNeeds,
    OrderKind, RequestId,
};
use crate::records::{ReservedFunctions, Versioned, reservation_key};
use crate::{FleetCard, HostId};

pub(super) type Name = (TenantId, RequestId);

/// Most reservations of one tenant.
const RESERVATIONS_MAX: usize = 256;
/// Most reservations on one host, which has as many in one record.
const OF_HOST_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Reservations {
    all: BTreeMap<Name, (Versioned<ReservedFunctions>, Timestamp)>,
    ends: BTreeSet<(Timestamp, Name)>,
    by_host: BTreeMap<HostId, BTreeSet<Name>>,
}

impl Reservations {
    /// A new one, or one from its record. It ends at the time of its record, and not later than if it were made now:
    /// the clock of the leader that made it may have been ahead.
    pub fn insert(&mut self, record: Versioned<ReservedFunctions>, now: Timestamp) {
        let of = record.value();
        let name = (of.tenant.clone(), of.id);
        let last = now + Duration::from_secs(of.seconds.into());
        let end = of.ends.map_or(last, |ends| ends.min(last));
        self.ends.insert((end, name.clone()));
        self.by_host.entry(of.card.host.clone()).or_default().insert(name.clone());
        self.all.insert(name, (record, end));
    }

    pub fn get(&self, name: &Name) -> Option<&ReservedFunctions> {
        self.all.get(name).map(|(record, _)| record.value())
    }

    /// Begins the time of one again; returns its record.
    pub fn renew(
        &mut self,
        name: &Name,
        serial: impl FnOnce() -> u64,
        now: Timestamp,
    ) -> Option<&Versioned<ReservedFunctions>> {
        let (record, end) = self.all.get_mut(name)?;
        self.ends.remove(&(*end, name.clone()));
        let of = record.value_mut();
        *end = now + Duration::from_secs(of.seconds.into());
        of.ends = Some(*end);
        of.revision += 1;
        if of.serial == 0 {
            of.serial = serial();
        }
        self.ends.insert((*end, name.clone()));
        Some(record)
    }

    /// Changes one; returns its record.
    pub fn change(
        &mut self,
        name: &Name,
        change: impl FnOnce(&mut ReservedFunctions),
    ) -> Option<&Versioned<ReservedFunctions>> {
        let (record, _) = self.all.get_mut(name)?;
        change(record.value_mut());
        Some(record)
    }

    /// All of a host, with their ends.
    pub fn of_host(&self, host: &HostId) -> impl Iterator<Item = (&ReservedFunctions, Timestamp)> {
        let names = self.by_host.get(host).into_iter().flatten();
        names.filter_map(|name| self.all.get(name)).map(|(record, end)| (record.value(), *end))
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &ReservedFunctions> {
        self.all.values().map(|(record, _)| record.value())
    }

    /// When one ends.
    pub fn end_of(&self, name: &Name) -> Option<Timestamp> {
        self.all.get(name).map(|(_, end)| *end)
    }

    /// All end so much later: meanwhile nobody could renew one.
    pub fn postpone(&mut self, by: Duration) {
        self.all.values_mut().for_each(|(_, end)| *end = *end + by);
        self.ends = self.all.iter().map(|(name, (_, end))| (*end, name.clone())).collect();
    }

    pub fn remove(&mut self, name: &Name) -> Option<ReservedFunctions> {
        let (record, end) = self.all.remove(name)?;
        self.ends.remove(&(end, name.clone()));
        let of = record.value().clone();
        if let Some(names) = self.by_host.get_mut(&of.card.host) {
            names.remove(name);
            if names.is_empty() {
                self.by_host.remove(&of.card.host);
            }
        }
        Some(of)
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
        self.by_host.get(host).map_or(0, BTreeSet::len)
    }
}

impl Fleet {
    /// Ranks hosts; changes nothing.
    pub(super) fn find_hosts(
        &self,
        turn: &RequestContext,
        (mut constraints, policy): (CardConstraints, CardPolicy),
        needs: MachineNeeds,
        most: usize,
    ) -> Result<FleetReply, Denied> {
        let MachineNeeds { dags, new_dags, bandwidth, vm } = needs;
        if !(1..=RANKED_HOSTS_MAX).contains(&most) {
            let wrong = format!("{most} hosts at most; 1 to {RANKED_HOSTS_MAX} are allowed");
            return Err(Denied::Invalid(wrong));
        }
        for count in [dags.len(), new_dags.len()] {
            if count > MACHINE_DAGS_MAX {
                let wrong = format!("{count} DAGs; at most {MACHINE_DAGS_MAX} are allowed");
                return Err(Denied::Invalid(wrong));
            }
        }
        self.keep_with(&dags, &mut constraints)?;
        let mut checked = Vec::with_capacity(new_dags.len());
        for (name, spec) in &new_dags {
            self.check_is_new(name)?;
            let dag = valid(&name.tenant, spec)?;
            self.placement_defaults(&name.tenant, &constraints).add_to(&mut constraints);
            self.add_affinities(name, spec, &mut constraints);
            checked.push((name, dag));
        }
        let dags: Vec<(&DagName, &Dag)> = checked.iter().map(|(name, dag)| (*name, dag)).collect();
        let tenant = turn.tenant.as_ref();
        let user = KeptUser { tenant, vm: vm.as_ref() };
        let constraints = &constraints;
        let needs = HostNeeds { constraints, policy, tenant, user, dags: &dags, bandwidth };
        let (hosts, refused) = self.inventory.find_hosts(&needs, most);
        let PlacementRefused { hosts: refused, first } = refused;
        Ok(FleetReply::Hosts(Box::new(FoundHosts { hosts, refused, first })))
    }

    /// A machine can only use a DAG where it is.
    fn keep_with(&self, dags: &[DagName], constraints: &mut CardConstraints) -> Result<(), Denied> {
        let mut cards: BTreeSet<FleetCard> = BTreeSet::new();
        for name in dags {
            let entry = self.dags.get(name).ok_or_else(|| Denied::NotFound(name.to_string()))?;
            let place = entry.of().place.as_ref().ok_or_else(|| Denied::Conflict {
                what: name.to_string(),
                why: "it has no place, so no machine can use it; wait until it has one".into(),
            })?;
            cards.insert(place.card.clone());
        }
        let hosts: BTreeSet<HostId> = cards.iter().map(|card| card.host.clone()).collect();
        if let [one, other, ..] = &hosts.iter().collect::<Vec<_>>()[..] {
            return Err(Denied::Conflict {
                what: "dags".into(),
                why: format!("they are on {one} and {other}; a machine uses DAGs of one host"),
            });
        }
        // Together with what the request itself says, both must hold.
        if let Some(host) = hosts.first().cloned() {
            if !constraints.hosts.is_empty() && !constraints.hosts.contains(&host) {
                return Err(Denied::Conflict {
                    what: "dags".into(),
                    why: format!("they are on {host}, which the request does not allow"),
                });
            }
            constraints.hosts = [host].into();
        }
        if cards.len() == 1 {
            constraints.cards = cards;
        }
        Ok(())
    }

    pub(super) fn reserve(
        &mut self,
        turn: &RequestContext,
        new: NewReservation,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let only_tenants = || Denied::Invalid("only tenants reserve".into());
        let tenant = turn.tenant.clone().ok_or_else(only_tenants)?;
        new.check()?;
        let NewReservation { id, constraints, policy, seconds, bandwidth, vm, uuid } = new;
        // What is reserved is promised as soon as a DAG takes it, so it must be within the quota already.
        let all = FleetUsage { bandwidth, ..FleetUsage::default() };
        self.tenants.admit(&tenant, FleetUsage::default(), all)?;
        self.check_budgets(turn, &tenant)?;
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
        // Nothing that is reserved already is reserved once more, not for its owner either.
        let (user, tenant_of) = (KeptUser::default(), Some(&tenant));
        let constraints = &constraints;
        let needs =
            HostNeeds { constraints, policy, tenant: tenant_of, user, dags: &[], bandwidth };
        let (mut found, refused) = self.inventory.find_hosts(&needs, 1);
        if found.is_empty() {
            return Err(Denied::NoPlace(Box::new(refused)));
        }
        let (card, functions) = (found.remove(0).card, constraints.functions);
        if self.reservations.on(&card.host) >= OF_HOST_MAX {
            let what = format!("reservations on hosts/{}", card.host);
            return Err(Denied::Full { what, max: OF_HOST_MAX });
        }
        if turn.is_dry {
            return Ok(FleetReply::Reserved(card));
        }
        let ends = Some(turn.now + Duration::from_secs(seconds.into()));
        let record = ReservedFunctions {
            tenant,
            id,
            card: card.clone(),
            functions,
            seconds,
            ends,
            bandwidth,
            vm,
            uuid,
            serial: self.journal.next_serial(),
            revision: 1,
            functions_used: 0,
            bandwidth_used: Bandwidth::ZERO,
        };
        self.keep_room(&record);
        let record = Versioned::new(record);
        step.put(reservation_key(&name.0, id), record.bytes());
        self.reservations.insert(record, turn.now);
        self.order_keep(turn.now, &card.host, step);
        Ok(FleetReply::Reserved(card))
    }

    /// Notes in the books of its card what a reservation still keeps.
    pub(super) fn keep_room(&mut self, of: &ReservedFunctions) {
        let _ = self.inventory.keep(&of.card, (of.tenant.clone(), of.id), room_of(of));
    }

    pub(super) fn renew(
        &mut self,
        turn: &RequestContext,
        id: RequestId,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let missing = || Denied::NotFound(format!("reservation {id}"));
        let name = turn.tenant.clone().map(|tenant| (tenant, id)).ok_or_else(missing)?;
        if turn.is_dry {
            return self.reservations.get(&name).map(|_| FleetReply::Done).ok_or_else(missing);
        }
        let Self { reservations, journal, .. } = self;
        let record = reservations.renew(&name, || journal.next_serial(), turn.now);
        let record = record.ok_or_else(missing)?;
        let host = record.value().card.host.clone();
        step.put(reservation_key(&name.0, id), record.bytes());
        self.order_keep(turn.now, &host, step);
        Ok(FleetReply::Done)
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
            self.end_reservation(turn.now, name, step);
        }
        Ok(FleetReply::Done)
    }

    pub(super) fn end_reservation(
        &mut self,
        now: Timestamp,
        name: &Name,
        step: &mut FleetStep,
    ) -> bool {
        let Some(ended) = self.reservations.remove(name) else { return false };
        let _ = self.inventory.keep_no_more(&ended.card, name);
        step.delete(reservation_key(&name.0, name.1));
        self.order_keep(now, &ended.card.host, step);
        true
    }

    /// The books of cards keep what the records say, and no card keeps more bandwidth than it has left.
    ///
    /// # Errors
    ///
    /// The first difference, as text.
    pub(super) fn check_reservations(&self) -> Result<(), String> {
        let wanted: BTreeMap<Name, (FleetCard, KeptRoom)> = self
            .reservations
            .all()
            .map(|of| ((of.tenant.clone(), of.id), (of.card.clone(), room_of(of))))
            .collect();
        let noted: BTreeMap<Name, (FleetCard, KeptRoom)> = self
            .inventory
            .kept()
            .map(|(card, name, room)| (name.clone(), (card.clone(), room.clone())))
            .collect();
        if wanted != noted {
            return Err(format!("reserved are {wanted:?}, and cards keep {noted:?}"));
        }
        Ok(())
    }

    /// Numbers of the reservations that a host is to keep, with their revisions.
    fn kept_on(&self, host: &HostId) -> BTreeMap<u64, u64> {
        let all = self.reservations.of_host(host).filter(|(of, _)| of.serial != 0);
        all.map(|(of, _)| (of.serial, of.revision)).collect()
    }

    /// Has a host keep what is reserved on it, if its program can.
    fn order_keep(&mut self, now: Timestamp, host: &HostId, step: &mut FleetStep) {
        if self.host(host).is_none_or(|state| state.functions().is_none()) {
            return;
        }
        let wanted = self.kept_on(host);
        let all = self.reservations.of_host(host).filter(|(of, _)| of.serial != 0);
        let all = all.map(|(of, end)| KeptForTenant {
            number: of.serial,
            revision: of.revision,
            tenant: of.tenant.clone(),
            vm: of.vm.clone(),
            card: of.card.card.clone(),
            functions: of.functions,
            used: of.functions_used,
            bandwidth: of.bandwidth_left(),
            lasts: end.since(now),
        });
        let all = all.collect();
        if let Some(state) = self.hosts.get_mut(host) {
            state.kept_are_sent(wanted);
        }
        self.order(host, OrderKind::Keep(all), step);
    }

    /// A host says which functions machines have, and what it keeps. What has ended there has ended: it may have been taken by
    /// others since.
    pub(super) fn functions_reported(
        &mut self,
        now: Timestamp,
        host: &HostId,
        said: FunctionUse,
        step: &mut FleetStep,
    ) {
        let Some(state) = self.hosts.get(host) else { return };
        for card in state.record.value().spec.cards.keys() {
            let bound = said.bound.get(card).copied().unwrap_or_default();
            let _ = self
                .inventory
                .set_bound(&FleetCard { host: host.clone(), card: card.clone() }, bound);
        }
        let changed = self.reservations.of_host(host).filter_map(|(of, _)| {
            let state = said.kept.get(&of.serial)?;
            let is_over = state.is_over && state.revision == of.revision;
            let is_news = is_over || state.used > of.functions_used;
            is_news.then(|| ((of.tenant.clone(), of.id), (is_over, state.used)))
        });
        for (name, (is_over, used)) in changed.collect::<Vec<_>>() {
            if is_over {
                self.end_reservation(now, &name, step);
            } else {
                self.reservation_used(now, &name, |of| of.functions_used = used, step);
            }
        }
        let wanted = self.kept_on(host);
        let Some(state) = self.hosts.get_mut(host) else { return };
        if state.functions_are(said, &wanted) {
            self.order_keep(now, host, step);
        }
    }

    /// A part of a reservation was taken. One of which nothing is left has ended.
    fn reservation_used(
        &mut self,
        now: Timestamp,
        name: &Name,
        change: impl FnOnce(&mut ReservedFunctions),
        step: &mut FleetStep,
    ) {
        let Some(record) = self.reservations.change(name, change) else { return };
        let of = record.value().clone();
        if of.functions_left() == 0 && of.bandwidth_left() == Bandwidth::ZERO {
            self.end_reservation(now, name, step);
            return;
        }
        step.put(reservation_key(&name.0, name.1), record.bytes());
        self.keep_room(&of);
    }

    /// A DAG has got more bandwidth of a card than it had there: first of what is reserved for its tenant, what ends first
    /// before the others.
    pub(super) fn use_bandwidth(
        &mut self,
        tenant: &TenantId,
        card: &FleetCard,
        mut more: Bandwidth,
        step: &mut FleetStep,
    ) {
        let of_tenant = self.reservations.of_host(&card.host).filter(|(of, _)| {
            of.tenant == *tenant && of.card == *card && of.bandwidth_left() > Bandwidth::ZERO
        });
        let mut order: Vec<(Timestamp, RequestId, Bandwidth)> =
            of_tenant.map(|(of, end)| (end, of.id, of.bandwidth_left())).collect();
        order.sort_unstable();
        let now = self.now;
        let is_any = !order.is_empty() && more > Bandwidth::ZERO;
        for (_, id, left) in order {
            let taken = left.min(more);
            more = more.saturating_sub(taken);
            if taken > Bandwidth::ZERO {
                let change = |of: &mut ReservedFunctions| {
                    of.bandwidth_used += taken;
                    of.revision += 1;
                };
                self.reservation_used(now, &(tenant.clone(), id), change, step);
            }
        }
        if is_any {
            self.order_keep(now, &card.host, step);
        }
    }
}

/// Functions and bandwidth that a reservation still keeps.
fn room_of(of: &ReservedFunctions) -> KeptRoom {
    let (functions, bandwidth) = (of.functions_left(), of.bandwidth_left());
    KeptRoom { vm: of.vm.clone(), functions, bandwidth }
}
