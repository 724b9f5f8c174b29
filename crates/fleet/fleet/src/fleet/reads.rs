//! Reads of tenants and operators. A tenant sees what is its own, and of NT types and bitstreams what it may use.

use std::collections::BTreeMap;
use std::ops::Bound;

use snic_domain::{BudgetLevel, TenantId};

use super::{Fleet, RequestContext, first_of};
use crate::HostId;
use crate::hosts::{HostState, Liveness};
use crate::placement::HostImages;
use crate::protocol::{
    Denied, FleetCounts, FleetGauges, FleetHost, FleetHostState, FleetItem, FleetList, FleetName,
    FleetReply, FleetReservation, HostCondition, LIST_MAX, RequestId,
};

/// Most bytes of a page, as JSON; one item may go beyond it.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Most records that one page looks at: those that a tenant may not see cost time, too.
const LOOKS_MAX: usize = 10_000;
/// Most names of DAGs that never move in one reply.
pub(super) const BOUND_NAMES_MAX: usize = 100;

/// Size of a value as JSON, in bytes.
fn json_bytes(value: &impl serde::Serialize) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).expect("it has text keys, and counting never fails");
    counter.0
}

/// Where a list goes on.
fn behind<T>(
    after: Option<FleetName>,
    of_kind: impl Fn(FleetName) -> Option<T>,
) -> Result<Bound<T>, Denied> {
    let Some(after) = after else { return Ok(Bound::Unbounded) };
    let wrong = format!("{after} is not a name of what is listed; a list goes on behind one");
    of_kind(after).map(Bound::Excluded).ok_or(Denied::Invalid(wrong))
}

impl Fleet {
    pub(super) fn get(
        &self,
        turn: &RequestContext,
        name: &FleetName,
    ) -> Result<FleetReply, Denied> {
        let item = self.item(turn, name).ok_or_else(|| Denied::NotFound(name.to_string()))?;
        Ok(FleetReply::Item(Box::new(item)))
    }

    /// A record, if the caller may see it.
    pub(super) fn item(&self, turn: &RequestContext, name: &FleetName) -> Option<FleetItem> {
        let is_mine = |of: &TenantId| turn.tenant.as_ref().is_none_or(|tenant| tenant == of);
        let is_operator = turn.tenant.is_none();
        match name {
            FleetName::Tenant(id) if is_mine(id) => self.tenant_item(id),
            FleetName::Project(id) if is_operator => self.project_item(id),
            FleetName::Nt(id) => {
                let nt = self.inventory.catalogue().nt(id)?;
                let is_seen = turn.tenant.as_ref().is_none_or(|tenant| nt.is_visible_to(tenant));
                is_seen.then(|| self.nt_item(id)).flatten()
            }
            FleetName::Bitstream(id) => {
                let of = self.inventory.catalogue().bitstream(id)?;
                let is_seen = turn.tenant.as_ref().is_none_or(|tenant| of.is_loadable_by(tenant));
                is_seen.then(|| self.bitstream_item(id)).flatten()
            }
            FleetName::Host(id) if is_operator => self.host_view(id).map(FleetItem::Host),
            FleetName::Dag(name) if is_mine(&name.tenant) => {
                self.dag_view(name).map(FleetItem::Dag)
            }
            FleetName::Reservation(tenant, id) if is_mine(tenant) => {
                let key = (tenant.clone(), *id);
                let of = self.reservations.get(&key)?.clone();
                let ends = self.reservations.end_of(&key)?;
                let host = self.host(&of.card.host);
                let is_known = host.is_some_and(|host| host.keeps(of.serial, of.revision));
                let is_enforced = is_known && self.inventory.has_kept_functions(&of.card);
                Some(FleetItem::Reservation(FleetReservation { of, ends, is_enforced }))
            }
            _ => None,
        }
    }

    /// A page of records behind a name.
    pub(super) fn list(
        &self,
        turn: &RequestContext,
        (of, after): (FleetList, Option<FleetName>),
        most: usize,
    ) -> Result<FleetReply, Denied> {
        if !(1..=LIST_MAX).contains(&most) {
            let wrong = format!("{most} items at most; 1 to {LIST_MAX} are allowed");
            return Err(Denied::Invalid(wrong));
        }
        let mut names = self.names(turn, of, after)?.peekable();
        let (mut items, mut bytes, mut last) = (Vec::new(), 0, None);
        for _ in 0..LOOKS_MAX {
            let Some(name) = names.next() else { break };
            if let Some(item) = self.item(turn, &name) {
                bytes += json_bytes(&item);
                items.push(item);
            }
            last = Some(name);
            if items.len() >= most || bytes >= PAGE_BYTES_MAX {
                break;
            }
        }
        let next = if names.peek().is_some() { last } else { None };
        let revision = self.journal.revision();
        Ok(FleetReply::Items { items, next, revision })
    }

    /// Names of a kind behind one, in order.
    fn names(
        &self,
        turn: &RequestContext,
        of: FleetList,
        after: Option<FleetName>,
    ) -> Result<Box<dyn Iterator<Item = FleetName> + '_>, Denied> {
        Ok(match of {
            FleetList::Tenants => {
                let from = behind(after, |name| match name {
                    FleetName::Tenant(id) => Some(id),
                    _ => None,
                })?;
                Box::new(self.tenants.tenants_from(from).cloned().map(FleetName::Tenant))
            }
            FleetList::Projects => {
                let from = behind(after, |name| match name {
                    FleetName::Project(id) => Some(id),
                    _ => None,
                })?;
                Box::new(self.tenants.projects_from(from).cloned().map(FleetName::Project))
            }
            FleetList::Nts => {
                let from = behind(after, |name| match name {
                    FleetName::Nt(id) => Some(id),
                    _ => None,
                })?;
                Box::new(self.registry.nts_from(from).cloned().map(FleetName::Nt))
            }
            FleetList::Bitstreams => {
                let from = behind(after, |name| match name {
                    FleetName::Bitstream(id) => Some(id),
                    _ => None,
                })?;
                Box::new(self.registry.bitstreams_from(from).cloned().map(FleetName::Bitstream))
            }
            FleetList::Hosts => {
                let from = behind(after, |name| match name {
                    FleetName::Host(id) => Some(id),
                    _ => None,
                })?;
                let hosts = self.hosts.range::<HostId, _>((from, Bound::Unbounded));
                Box::new(hosts.map(|(id, _)| FleetName::Host(id.clone())))
            }
            FleetList::Dags(of) => self.dag_names(turn.tenant.clone().or(of), after)?,
            FleetList::Reservations(of) => {
                self.reservation_names(turn.tenant.clone().or(of), after)?
            }
        })
    }

    fn dag_names(
        &self,
        of: Option<TenantId>,
        after: Option<FleetName>,
    ) -> Result<Box<dyn Iterator<Item = FleetName> + '_>, Denied> {
        let first = of.as_ref().map_or(Bound::Unbounded, |of| Bound::Included(first_of(of)));
        let from = match behind(after, |name| match name {
            FleetName::Dag(name) => Some(name),
            _ => None,
        })? {
            Bound::Unbounded => first,
            from => from,
        };
        let behind = self.dags.range((from, Bound::Unbounded)).map(|(name, _)| name);
        let own = behind.take_while(move |name| of.as_ref().is_none_or(|of| *of == name.tenant));
        Ok(Box::new(own.cloned().map(FleetName::Dag)))
    }

    fn reservation_names(
        &self,
        of: Option<TenantId>,
        after: Option<FleetName>,
    ) -> Result<Box<dyn Iterator<Item = FleetName> + '_>, Denied> {
        let first = of.clone().map_or(Bound::Unbounded, |of| Bound::Included((of, RequestId(0))));
        let from = match behind(after, |name| match name {
            FleetName::Reservation(tenant, id) => Some((tenant, id)),
            _ => None,
        })? {
            Bound::Unbounded => first,
            from => from,
        };
        let behind = self.reservations.names_from(from);
        let own = behind.take_while(move |(tenant, _)| of.as_ref().is_none_or(|of| of == tenant));
        Ok(Box::new(own.map(|(tenant, id)| FleetName::Reservation(tenant.clone(), *id))))
    }

    fn host_state(&self, host: &HostState) -> FleetHostState {
        let condition = match host.liveness() {
            Liveness::Alive if host.is_in_step() => HostCondition::InStep,
            Liveness::Alive => HostCondition::Behind,
            Liveness::Suspected => HostCondition::Suspected,
            Liveness::Lost => HostCondition::Lost,
        };
        FleetHostState { condition, is_draining: self.is_draining(host.record.value()) }
    }

    pub(super) fn host_states(&self) -> BTreeMap<HostId, FleetHostState> {
        let state = |(id, host): (&HostId, _)| (id.clone(), self.host_state(host));
        self.hosts.iter().map(state).collect()
    }

    fn host_view(&self, id: &HostId) -> Option<FleetHost> {
        let host = self.hosts.get(id)?;
        let of = host.record.value();
        let FleetHostState { condition, is_draining } = self.host_state(host);
        let images_missing = match self.inventory.images(id)? {
            HostImages::Unknown => None,
            HostImages::AllBut(missing) => Some(missing.len()),
        };
        Some(FleetHost {
            host: id.clone(),
            spec: of.spec.clone(),
            is_draining,
            condition,
            dags: host.count(),
            bound: host.bound().take(BOUND_NAMES_MAX).cloned().collect(),
            images_missing,
            meta: of.meta,
        })
    }

    /// State for metrics; `calls` wait for an answer. Time O(hosts + tenants + projects).
    pub fn gauges(&self, calls: usize) -> FleetGauges {
        let mut hosts: BTreeMap<HostCondition, usize> = BTreeMap::new();
        for host in self.hosts.values() {
            *hosts.entry(self.host_state(host).condition).or_default() += 1;
        }
        let levels = self.budget_levels();
        let at = |level| levels.iter().filter(|of| **of == level).count();
        FleetGauges {
            hosts,
            is_evacuation_held: !self.held.at.is_empty(),
            waiting: self.waiting.len(),
            failed: self.failed.len(),
            moving: self.hosts.values().map(HostState::leaving).sum(),
            calls,
            steps: self.journal.waiting(),
            reservations: self.reservations.len(),
            budgets_warned: at(BudgetLevel::Warned),
            budgets_reached: at(BudgetLevel::Reached),
            budgets_unknown: at(BudgetLevel::Unknown),
        }
    }

    pub(super) fn counts(&self) -> FleetCounts {
        let is = |wanted: fn(&HostState) -> bool| {
            self.hosts.values().filter(|host| wanted(host)).count()
        };
        FleetCounts {
            tenants: self.tenants.len(),
            hosts: self.hosts.len(),
            hosts_in_step: is(|host| host.is_in_step()),
            hosts_unreachable: is(|host| host.liveness() != Liveness::Alive),
            cards: self.inventory.cards().count(),
            dags: self.dags.len(),
            unplaced: self.unplaced(),
            reservations: self.reservations.len(),
            drains: self.drains.keys().cloned().collect(),
            store_refusal: None,
        }
    }
}
