//! Requests of tenants and operators.

use snic_domain::{DagName, DagSpec, Digest, TenantId, Timestamp};

use super::Fleet;
use super::dags::valid;
use super::reservations::{RESERVATIONS_MAX, SECONDS_MAX};
use crate::HostId;
use crate::hosts::HostState;
use crate::journal::FleetStep;
use crate::placement::{CardConstraints, CardPolicy, HostNeeds, HostSpec, RANKED_HOSTS_MAX};
use crate::protocol::{Denied, FleetAsk, FleetCommand, FleetReply, OrderKind, RequestId};
use crate::records::{
    DoneRequest, HostRecord, ReservedFunctions, Versioned, bitstream_key, host_key, nt_key,
    project_key, reservation_key, tenant_key,
};

/// Longest request in bytes, as a record: many fit in one of etcd's transactions.
const REQUEST_BYTES_MAX: usize = 256 << 10;

impl Fleet {
    /// Carries out a request. What is refused changes nothing.
    ///
    /// # Errors
    ///
    /// [`Denied`]
    pub fn ask(
        &mut self,
        now: Timestamp,
        ask: FleetAsk,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let text = serde_json::to_vec(&ask.command).expect("requests have text keys");
        if text.len() > REQUEST_BYTES_MAX {
            let (bytes, max) = (text.len(), REQUEST_BYTES_MAX);
            return Err(Denied::Invalid(format!("the request has {bytes} bytes of at most {max}")));
        }
        let Some(id) = ask.id else { return self.carry_out(now, ask, step) };
        let (tenant, fingerprint) = (ask.tenant.clone(), Digest::of(&text));
        if let Some(reply) = self.requests.answer(tenant.as_ref(), id, fingerprint)? {
            return Ok(reply);
        }
        let reply = self.carry_out(now, ask, step)?;
        let serial = self.journal.next_serial();
        let done = DoneRequest { tenant, id, fingerprint, reply: reply.clone(), serial };
        self.requests.done(done, step);
        Ok(reply)
    }

    fn carry_out(
        &mut self,
        now: Timestamp,
        ask: FleetAsk,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let tenant = ask.tenant;
        let own = |name: &DagName| match &tenant {
            Some(tenant) if name.tenant != *tenant => Err(Denied::NotFound(name.to_string())),
            _ => Ok(()),
        };
        match ask.command {
            FleetCommand::CreateDag(new) => {
                own(&new.name)?;
                self.create_dag(new, step).map(FleetReply::Placed)
            }
            FleetCommand::CreateDags(all) => {
                all.iter().try_for_each(|new| own(&new.name))?;
                self.create_dags(all, step)
            }
            FleetCommand::FindHosts { constraints, policy, dag, most } => {
                dag.as_ref().map_or(Ok(()), |(name, _)| own(name))?;
                self.find_hosts((constraints, policy), dag, most)
            }
            FleetCommand::DeleteDag(name) => {
                own(&name)?;
                self.delete_dag(&name, step)
            }
            FleetCommand::GetDag(name) => {
                own(&name)?;
                self.get_dag(&name)
            }
            FleetCommand::Reserve { reservation, constraints, policy, seconds } => {
                let tenant =
                    tenant.ok_or_else(|| Denied::Invalid("only tenants reserve".into()))?;
                let wanted = (&constraints, policy, seconds);
                self.reserve(now, (tenant, reservation), wanted, step)
            }
            FleetCommand::Renew(id) => {
                let name = tenant.map(|tenant| (tenant, id));
                let renewed = name.is_some_and(|name| self.reservations.renew(&name, now));
                found(renewed, || format!("reservation {id}"))
            }
            FleetCommand::Release(id) => {
                let ended = tenant.is_some_and(|of| self.end_reservation(&(of, id), step));
                found(ended, || format!("reservation {id}"))
            }
            command => self.operate(now, command, step),
        }
    }

    /// What operators ask for.
    fn operate(
        &mut self,
        now: Timestamp,
        command: FleetCommand,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        match command {
            FleetCommand::PutTenant(record) => {
                if let Some(project) = record.project.as_ref() {
                    found(self.tenants.project(project).is_some(), || {
                        format!("project {project}")
                    })?;
                }
                let key = tenant_key(&record.tenant.id);
                let mut new = self.tenants.tenant(&record.tenant.id).cloned();
                let new = replace(&mut new, record);
                step.put(key, new.bytes());
                self.tenants.put_tenant(new);
            }
            FleetCommand::PutProject(record) => {
                let key = project_key(&record.project);
                let mut new = self.tenants.project(&record.project).cloned();
                let new = replace(&mut new, record);
                step.put(key, new.bytes());
                self.tenants.put_project(new);
            }
            FleetCommand::PutNt(nt) => {
                if self.inventory.catalogue().nt(&nt.id).is_some_and(|old| *old != nt) {
                    return Err(Denied::Exists(format!("NT type {}", nt.id)));
                }
                step.put(nt_key(&nt.id), Versioned::new(nt.clone()).bytes());
                self.inventory.insert_nt(nt);
            }
            FleetCommand::PutBitstream(of) => {
                if self.inventory.catalogue().bitstream(&of.id).is_some_and(|old| *old != of) {
                    return Err(Denied::Exists(format!("bitstream {}", of.id)));
                }
                step.put(bitstream_key(&of.id), Versioned::new(of.clone()).bytes());
                self.inventory.insert_bitstream(of);
            }
            FleetCommand::AddHost(host, spec) => self.add_host(now, host, spec, step)?,
            FleetCommand::RemoveHost(host) => self.remove_host(&host, step)?,
            FleetCommand::CordonHost(host, is_cordoned) => {
                self.mark_host(&host, (is_cordoned, None), step)?;
            }
            FleetCommand::DrainHost(host, is_draining) => {
                self.mark_host(&host, (is_draining, Some(is_draining)), step)?;
            }
            _ => return Err(Denied::Invalid("a request of tenants".into())),
        }
        Ok(FleetReply::Done)
    }

    fn add_host(
        &mut self,
        now: Timestamp,
        host: HostId,
        spec: HostSpec,
        step: &mut FleetStep,
    ) -> Result<(), Denied> {
        if self.hosts.contains_key(&host) {
            return Err(Denied::Exists(format!("host {host}")));
        }
        let record = HostRecord { host: host.clone(), spec, is_draining: false };
        let record = Versioned::new(record);
        step.put(host_key(&host), record.bytes());
        self.insert_host(record, now);
        self.order(&host, OrderKind::Greet, step);
        Ok(())
    }

    /// From a request or its record.
    pub(super) fn insert_host(&mut self, record: Versioned<HostRecord>, now: Timestamp) {
        let of = record.value();
        self.inventory.add_host(&of.host, of.spec.clone());
        self.count_capacity(&record.value().spec.clone(), true);
        let host = record.value().host.clone();
        self.hosts.insert(host, HostState::new(record, now));
    }

    fn remove_host(&mut self, host: &HostId, step: &mut FleetStep) -> Result<(), Denied> {
        let state = self.hosts.get(host).ok_or_else(|| Denied::NotFound(format!("host {host}")))?;
        let users = state.dags().count() + self.reservations.on(host);
        if users > 0 {
            return Err(Denied::InUse { what: format!("host {host}"), users });
        }
        let spec = state.record.value().spec.clone();
        self.count_capacity(&spec, false);
        self.hosts.remove(host);
        let _ = self.inventory.remove_host(host);
        step.delete(host_key(host));
        Ok(())
    }

    fn mark_host(
        &mut self,
        host: &HostId,
        (is_cordoned, is_draining): (bool, Option<bool>),
        step: &mut FleetStep,
    ) -> Result<(), Denied> {
        let not_found = || Denied::NotFound(format!("host {host}"));
        let state = self.hosts.get_mut(host).ok_or_else(not_found)?;
        let record = state.record.value_mut();
        record.spec.is_cordoned = is_cordoned;
        record.is_draining = is_draining.unwrap_or(record.is_draining) && is_cordoned;
        step.put(host_key(host), state.record.bytes());
        let _ = self.inventory.set_cordoned(host, is_cordoned);
        if is_draining == Some(true)
            && let Some(state) = self.host(host)
        {
            self.tell_bound(state, step);
        }
        Ok(())
    }

    /// Ranks hosts; changes nothing.
    fn find_hosts(
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
                self.add_affinities(&name, &spec, &mut constraints);
                Some((name, valid(&spec)?))
            }
        };
        let dag = dag.as_ref().map(|(name, dag)| (name, dag));
        let needs = HostNeeds { constraints: &constraints, policy, dag };
        self.inventory.find_hosts(&needs, most).map(FleetReply::Hosts).map_err(Denied::NoPlace)
    }

    fn reserve(
        &mut self,
        now: Timestamp,
        (tenant, id): (TenantId, RequestId),
        (constraints, policy, seconds): (&CardConstraints, CardPolicy, u32),
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        if !(1..=SECONDS_MAX).contains(&seconds) {
            let wrong = format!("a lease of {seconds} s; 1 to {SECONDS_MAX} are allowed");
            return Err(Denied::Invalid(wrong));
        }
        found(self.tenants.tenant(&tenant).is_some(), || format!("tenant {tenant}"))?;
        let name = (tenant.clone(), id);
        if self.reservations.get(&name).is_some() {
            return Err(Denied::Exists(format!("reservation {id}")));
        }
        if self.reservations.of_tenant(&tenant) >= RESERVATIONS_MAX {
            let wrong = format!("{RESERVATIONS_MAX} reservations, which is the most of a tenant");
            return Err(Denied::Invalid(wrong));
        }
        let needs = HostNeeds { constraints, policy, dag: None };
        let mut found = self.inventory.find_hosts(&needs, 1).map_err(Denied::NoPlace)?;
        let (card, functions) = (found.remove(0).card, constraints.functions);
        let taken = self.inventory.take_functions(&card, functions);
        debug_assert_eq!(taken, Ok(true), "the card was found to have them");
        let record = ReservedFunctions { tenant, id, card: card.clone(), functions, seconds };
        let record = Versioned::new(record);
        step.put(reservation_key(&name.0, id), record.bytes());
        self.reservations.insert(record, now);
        Ok(FleetReply::Reserved(card))
    }
}

/// A record with a new value; what is not known of it stays.
fn replace<T: Clone>(old: &mut Option<Versioned<T>>, value: T) -> Versioned<T> {
    match old.take() {
        Some(mut old) => {
            *old.value_mut() = value;
            old
        }
        None => Versioned::new(value),
    }
}

fn found(is_there: bool, what: impl FnOnce() -> String) -> Result<FleetReply, Denied> {
    if is_there { Ok(FleetReply::Done) } else { Err(Denied::NotFound(what())) }
}
