//! Requests of tenants and operators: who may ask for what, and where it is done.

use snic_domain::{DagName, Digest, TenantId, Timestamp};

use super::Fleet;
use super::new_reservation::NewReservation;
use crate::journal::FleetStep;
use crate::protocol::{Denied, FleetAsk, FleetCommand, FleetName, FleetReply};
use crate::records::{DoneRequest, RecordMeta};

/// Longest request in bytes, as a record: many fit in one of etcd's transactions.
const REQUEST_BYTES_MAX: usize = 256 << 10;

/// One request being carried out.
#[derive(Debug)]
pub(super) struct RequestContext {
    pub now: Timestamp,
    /// `None`: an operator.
    pub tenant: Option<TenantId>,
    /// It only says what would be answered.
    pub is_dry: bool,
}

impl RequestContext {
    /// A name of another tenant does not exist for this one.
    fn own(&self, tenant: &TenantId, what: impl ToString) -> Result<(), Denied> {
        match &self.tenant {
            Some(own) if own != tenant => Err(Denied::NotFound(what.to_string())),
            _ => Ok(()),
        }
    }

    fn own_dag(&self, name: &DagName) -> Result<(), Denied> {
        self.own(&name.tenant, name)
    }

    fn operator(&self) -> Result<(), Denied> {
        match &self.tenant {
            Some(_) => Err(Denied::Invalid("only operators ask for this".into())),
            None => Ok(()),
        }
    }

    /// Something new is named after its owner.
    fn owner(&self, owner: Option<TenantId>) -> Result<(), Denied> {
        match &self.tenant {
            Some(tenant) if owner.as_ref() != Some(tenant) => {
                let rule = format!("the id of something of yours begins with \"{tenant}.\"");
                Err(Denied::Invalid(rule))
            }
            _ => Ok(()),
        }
    }
}

/// Fails where a record has changed since it was read.
pub(super) fn check_etag(
    name: &FleetName,
    meta: RecordMeta,
    read: Option<&str>,
) -> Result<(), Denied> {
    let etag = meta.etag();
    match read {
        Some(read) if read != etag => Err(Denied::Stale { what: name.to_string(), etag }),
        _ => Ok(()),
    }
}

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
        let FleetAsk { tenant, id, validate_only, command } = ask;
        let turn = RequestContext { now, tenant, is_dry: validate_only };
        let Some(id) = id.filter(|_| !validate_only) else {
            return self.carry_out(&turn, command, step);
        };
        let fingerprint = Digest::of(&text);
        if let Some(reply) = self.requests.answer(turn.tenant.as_ref(), id, fingerprint)? {
            return Ok(reply);
        }
        let reply = self.carry_out(&turn, command, step)?;
        let serial = self.journal.next_serial();
        let (tenant, reply_now) = (turn.tenant, reply.clone());
        let done = DoneRequest { tenant, id, fingerprint, reply: reply_now, serial };
        self.requests.done(done, step);
        Ok(reply)
    }

    /// The answer of a request that was done before, by its number.
    ///
    /// # Errors
    ///
    /// [`Denied::RequestReused`]
    pub fn done_before(&self, ask: &FleetAsk) -> Result<Option<FleetReply>, Denied> {
        let Some(id) = ask.id else { return Ok(None) };
        let text = serde_json::to_vec(&ask.command).expect("requests have text keys");
        self.requests.answer(ask.tenant.as_ref(), id, Digest::of(&text))
    }

    fn carry_out(
        &mut self,
        turn: &RequestContext,
        command: FleetCommand,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        match command {
            FleetCommand::CreateDag(new) => {
                turn.own_dag(&new.name)?;
                self.create_dag(turn, new, step)
            }
            FleetCommand::CreateDags(all) => {
                all.iter().try_for_each(|new| turn.own_dag(&new.name))?;
                self.create_dags(turn, all, step)
            }
            FleetCommand::UpdateDag { name, patch, etag } => {
                turn.own_dag(&name)?;
                self.check_dag_etag(&name, etag.as_deref())?;
                self.update_dag(turn, &name, *patch, step)
            }
            FleetCommand::CreateNt(nt) => {
                turn.owner(nt.id.owner())?;
                self.check_nt(&nt)?;
                if !turn.is_dry {
                    self.create_nt(turn.now, nt, step);
                }
                Ok(FleetReply::Done)
            }
            FleetCommand::CreateBitstream(mut of) => {
                turn.owner(of.id.owner())?;
                of.shareable |= of.id.owner().is_none();
                self.check_bitstream(&of)?;
                if !turn.is_dry {
                    self.create_bitstream(turn.now, of, step);
                }
                Ok(FleetReply::Done)
            }
            FleetCommand::Delete { name, etag, force } => {
                self.delete(turn, &name, (etag.as_deref(), force), step)
            }
            FleetCommand::Get(name) => self.get(turn, &name),
            FleetCommand::ExplainDag(name) => {
                turn.own_dag(&name)?;
                self.explain(&name)
            }
            FleetCommand::List { of, after, most } => self.list(turn, (of, after), most),
            FleetCommand::FindHosts { constraints, policy, needs, most } => {
                let new = needs.new_dags.iter().map(|(name, _)| name);
                needs.dags.iter().chain(new).try_for_each(|name| turn.own_dag(name))?;
                self.find_hosts(turn, (constraints, policy), *needs, most)
            }
            FleetCommand::Reserve {
                reservation: id,
                constraints,
                policy,
                seconds,
                bandwidth,
                vm,
                uuid,
            } => {
                let new = NewReservation { id, constraints, policy, seconds, bandwidth, vm, uuid };
                self.reserve(turn, new, step)
            }
            FleetCommand::Renew(id) => self.renew(turn, id, step),
            command => {
                turn.operator()?;
                self.operate(turn, command, step)
            }
        }
    }

    /// Carries out a command of operators.
    fn operate(
        &mut self,
        turn: &RequestContext,
        command: FleetCommand,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        match command {
            FleetCommand::CreateTenant { tenant, project } => {
                self.create_tenant(turn, tenant, project, step)
            }
            FleetCommand::UpdateTenant { tenant, patch, project, etag } => {
                self.check_item_etag(&FleetName::Tenant(tenant.clone()), etag.as_deref())?;
                self.update_tenant(turn, &tenant, (patch, project), step)
            }
            FleetCommand::CreateProject { project, quota } => {
                self.create_project(turn, project, quota, step)
            }
            FleetCommand::UpdateProject { project, quota, etag } => {
                self.check_item_etag(&FleetName::Project(project.clone()), etag.as_deref())?;
                self.update_project(turn, &project, quota, step)
            }
            FleetCommand::CreateHost(host, spec) => self.create_host(turn, host, spec, step),
            FleetCommand::CordonHost(host, is_cordoned) => {
                self.mark_host(turn, &host, (is_cordoned, None), step)
            }
            FleetCommand::DrainHost(host, is_draining) => {
                self.mark_host(turn, &host, (is_draining, Some(is_draining)), step)
            }
            FleetCommand::Drain { area, moves_max } => self.drain(turn, area, moves_max, step),
            FleetCommand::EndDrain(area) => self.end_drain(turn, &area, step),
            FleetCommand::GetDrain(area) => self.get_drain(&area),
            FleetCommand::Rebalance { zone, moves_max, tolerance_percent } => {
                self.rebalance(turn, zone, (moves_max, tolerance_percent), step)
            }
            FleetCommand::GetRebalance => self.get_rebalance(),
            FleetCommand::EndRebalance => self.end_rebalance(turn, step),
            FleetCommand::SetPolicies { files, promises, budgets, defaults, etag } => {
                let of = (files, promises, budgets, defaults);
                self.set_policies(turn, of, etag.as_deref(), step)
            }
            FleetCommand::NoteSpending(notes) => self.note_spending(turn, &notes, step),
            FleetCommand::GetPolicies => Ok(self.get_policies()),
            FleetCommand::GetFleet => Ok(FleetReply::Fleet(self.counts())),
            FleetCommand::GetHostStates => {
                turn.operator()?;
                Ok(FleetReply::HostStates(self.host_states()))
            }
            _ => Err(Denied::Invalid("a request of tenants".into())),
        }
    }

    fn delete(
        &mut self,
        turn: &RequestContext,
        name: &FleetName,
        (etag, force): (Option<&str>, bool),
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let is_tenant = turn.tenant.is_some();
        match name {
            FleetName::Dag(dag) => {
                turn.own_dag(dag)?;
                self.check_dag_etag(dag, etag)?;
                return self.delete_dag(turn, dag, step);
            }
            FleetName::Reservation(tenant, id) => {
                turn.own(tenant, name)?;
                return self.delete_reservation(turn, &(tenant.clone(), *id), step);
            }
            _ => {}
        }
        if self.item(turn, name).is_none() {
            return Err(Denied::NotFound(name.to_string()));
        }
        let owner = match name {
            FleetName::Nt(id) => id.owner(),
            FleetName::Bitstream(id) => id.owner(),
            _ => None,
        };
        if is_tenant && owner != turn.tenant {
            return Err(Denied::NotOwner(name.to_string()));
        }
        self.check_item_etag(name, etag)?;
        match name {
            FleetName::Nt(id) => {
                self.check_nt_unused(id, is_tenant)?;
                if !turn.is_dry {
                    self.delete_nt(id, step);
                }
            }
            FleetName::Bitstream(id) => {
                self.check_bitstream_unused(id, is_tenant)?;
                if !turn.is_dry {
                    self.delete_bitstream(id, step);
                }
            }
            FleetName::Tenant(id) => return self.delete_tenant(turn, id, force, step),
            FleetName::Project(id) => return self.delete_project(turn, id, step),
            FleetName::Host(id) => return self.delete_host(turn, id, step),
            FleetName::Dag(_) | FleetName::Reservation(..) => {}
        }
        Ok(FleetReply::Done)
    }

    fn check_item_etag(&self, name: &FleetName, read: Option<&str>) -> Result<(), Denied> {
        let meta = match name {
            FleetName::Tenant(id) => self.tenants.tenant(id).map(|of| of.value().meta),
            FleetName::Project(id) => self.tenants.project(id).map(|of| of.value().meta),
            FleetName::Nt(id) => self.registry.nt(id),
            FleetName::Bitstream(id) => self.registry.bitstream(id),
            FleetName::Host(id) => self.host(id).map(|host| host.record.value().meta),
            FleetName::Dag(name) => return self.check_dag_etag(name, read),
            FleetName::Reservation(..) => return Ok(()),
        };
        check_etag(name, meta.ok_or_else(|| Denied::NotFound(name.to_string()))?, read)
    }
}
