//! Tenants and projects: registered, changed, deleted with all that they own.

use std::ops::Bound;

use snic_domain::limits::TENANT_WEIGHT_MAX;
use snic_domain::{
    BitstreamId, DagName, NtTypeId, Quota, QuotaPatch, Tenant, TenantId, TenantPatch,
};

use super::{Fleet, RequestContext};
use crate::journal::FleetStep;
use crate::protocol::{Denied, FleetName, FleetReply, FleetUsage, OrderKind};
use crate::records::{
    FleetTenantRecord, ProjectRecord, RecordMeta, Versioned, project_key, tenant_key,
};
use crate::{ProjectChange, ProjectId};

/// Most tenants of the fleet, and most projects: so many have a number on a card.
const TENANTS_MAX: usize = 65_535;
/// Most things of tenants being deleted that one event removes: together they are part of one transaction.
const REMOVALS_MAX: usize = 32;

fn check_weight(weight: u32) -> Result<(), Denied> {
    if (1..=TENANT_WEIGHT_MAX).contains(&weight) {
        return Ok(());
    }
    let rule = format!("tenant.weight: {weight} is not allowed: 1 to {TENANT_WEIGHT_MAX}");
    Err(Denied::Invalid(rule))
}

fn check_count(what: &str, count: usize) -> Result<(), Denied> {
    if count >= TENANTS_MAX {
        return Err(Denied::Full { what: what.into(), max: TENANTS_MAX });
    }
    Ok(())
}

impl Fleet {
    pub(super) fn create_tenant(
        &mut self,
        turn: &RequestContext,
        tenant: Tenant,
        project: Option<ProjectId>,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let id = tenant.id.clone();
        check_weight(tenant.weight)?;
        if self.tenants.tenant(&id).is_some() {
            return Err(Denied::Exists(FleetName::Tenant(id).to_string()));
        }
        check_count("tenants", self.tenants.len())?;
        if let Some(project) = &project {
            self.tenants.admit_to(project, FleetUsage::default())?;
        }
        if turn.is_dry {
            return Ok(FleetReply::Done);
        }
        let meta = RecordMeta::new(self.journal.next_serial(), turn.now);
        let number = meta.serial;
        let (spending, is_leaving) = (None, false);
        let mut record = FleetTenantRecord {
            tenant,
            project,
            number,
            spending,
            is_burst_off: false,
            is_leaving,
            meta,
        };
        record.is_burst_off = self.burst_is_off(turn, &record);
        self.put_tenant(Versioned::new(record), step);
        self.tenant_reply(&id)
    }

    pub(super) fn put_tenant(
        &mut self,
        record: Versioned<FleetTenantRecord>,
        step: &mut FleetStep,
    ) {
        step.put(tenant_key(&record.value().tenant.id), record.bytes());
        self.tenants.put_tenant(record);
    }

    fn tenant_reply(&self, id: &TenantId) -> Result<FleetReply, Denied> {
        let item = self.tenant_item(id);
        let item = item.ok_or_else(|| Denied::NotFound(format!("tenants/{id}")))?;
        Ok(FleetReply::Item(Box::new(item)))
    }

    /// Changes a tenant. Hosts that have DAGs of it are told its weight.
    pub(super) fn update_tenant(
        &mut self,
        turn: &RequestContext,
        id: &TenantId,
        (patch, project): (TenantPatch, ProjectChange),
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let name = || format!("tenants/{id}");
        let mut new = self.tenants.tenant(id).cloned().ok_or_else(|| Denied::NotFound(name()))?;
        if new.value().is_leaving {
            return Err(Denied::Leaving(id.clone()));
        }
        patch.weight.map_or(Ok(()), check_weight)?;
        let project = project.apply(new.value().project.as_ref());
        if let Some(project) =
            project.as_ref().filter(|of| new.value().project.as_ref() != Some(of))
        {
            self.tenants.admit_to(project, self.tenants.usage(id).unwrap_or_default())?;
        }
        if turn.is_dry {
            return Ok(FleetReply::Done);
        }
        let record = new.value_mut();
        record.project = project;
        record.tenant.weight = patch.weight.unwrap_or(record.tenant.weight);
        record.tenant.quota = patch.quota.unwrap_or_default().apply(record.tenant.quota);
        record.tenant.notes = patch.notes.apply(&record.tenant.notes);
        if record.tenant.quota.month_budget.is_unlimited() {
            record.spending = None;
        }
        record.number = self.journal.next_serial();
        record.meta.change(turn.now);
        let off = self.burst_is_off(turn, new.value());
        new.value_mut().is_burst_off = off;
        self.put_tenant(new, step);
        self.send_to_hosts(id, step);
        self.tenant_reply(id)
    }

    pub(super) fn send_to_hosts(&mut self, id: &TenantId, step: &mut FleetStep) {
        let Some(tenant) = self.tenants.on_hosts(id) else { return };
        let hosts = self.hosts.iter().filter(|(_, host)| host.has_tenant(id));
        for host in hosts.map(|(host, _)| host.clone()).collect::<Vec<_>>() {
            let (nts, bitstreams, tenants) = (Vec::new(), Vec::new(), vec![tenant.clone()]);
            self.order(&host, OrderKind::Provide { nts, bitstreams, tenants }, step);
        }
    }

    pub(super) fn create_project(
        &mut self,
        turn: &RequestContext,
        project: ProjectId,
        quota: Quota,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        if self.tenants.project(&project).is_some() {
            return Err(Denied::Exists(FleetName::Project(project).to_string()));
        }
        check_count("projects", self.tenants.projects_from(Bound::Unbounded).count())?;
        if turn.is_dry {
            return Ok(FleetReply::Done);
        }
        let meta = RecordMeta::new(self.journal.next_serial(), turn.now);
        let (of, spending) = (project.clone(), None);
        let record = Versioned::new(ProjectRecord { project: of, quota, spending, meta });
        self.put_project(record, step);
        Ok(self.project_reply(&project))
    }

    pub(super) fn put_project(&mut self, record: Versioned<ProjectRecord>, step: &mut FleetStep) {
        step.put(project_key(&record.value().project), record.bytes());
        self.tenants.put_project(record);
    }

    fn project_reply(&self, project: &ProjectId) -> FleetReply {
        let item = self.project_item(project);
        item.map_or(FleetReply::Done, |item| FleetReply::Item(Box::new(item)))
    }

    pub(super) fn update_project(
        &mut self,
        turn: &RequestContext,
        project: &ProjectId,
        quota: QuotaPatch,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let missing = || Denied::NotFound(format!("projects/{project}"));
        let mut new = self.tenants.project(project).cloned().ok_or_else(missing)?;
        if turn.is_dry {
            return Ok(FleetReply::Done);
        }
        let record = new.value_mut();
        record.quota = quota.apply(record.quota);
        if record.quota.month_budget.is_unlimited() {
            record.spending = None;
        }
        record.meta.change(turn.now);
        self.put_project(new, step);
        Ok(self.project_reply(project))
    }

    pub(super) fn delete_project(
        &mut self,
        turn: &RequestContext,
        project: &ProjectId,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let tenants = self.tenants.of_project(project);
        if tenants > 0 {
            let (what, users) = (format!("projects/{project}"), format!("{tenants} tenants"));
            return Err(Denied::InUse { what, users });
        }
        if !turn.is_dry {
            self.tenants.remove_project(project);
            step.delete(project_key(project));
        }
        Ok(FleetReply::Done)
    }

    /// Deletes a tenant that owns nothing, or begins to delete all that it owns.
    pub(super) fn delete_tenant(
        &mut self,
        turn: &RequestContext,
        id: &TenantId,
        force: bool,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let missing = || Denied::NotFound(format!("tenants/{id}"));
        let mut record = self.tenants.tenant(id).cloned().ok_or_else(missing)?;
        let usage = self.tenants.usage(id).unwrap_or_default();
        let reservations = self.reservations.of_tenant(id);
        let (dags, nts, bitstreams) = (usage.dags, usage.nt_types, usage.bitstreams);
        let is_free = usage == FleetUsage::default() && reservations == 0;
        if !force && !is_free {
            let users = format!(
                "{dags} DAGs, {bitstreams} bitstreams, {nts} NT types and {reservations} reservations of it"
            );
            return Err(Denied::InUse { what: format!("tenants/{id}"), users });
        }
        if turn.is_dry {
            return Ok(FleetReply::Done);
        }
        if !record.value().is_leaving {
            record.value_mut().is_leaving = true;
            record.value_mut().meta.change(turn.now);
            self.put_tenant(record, step);
        }
        self.remove_owned(id, &mut { REMOVALS_MAX }, step);
        Ok(FleetReply::Done)
    }

    /// Goes on with tenants that are being deleted: some of what they own with each tick.
    pub(super) fn remove_leaving(&mut self, step: &mut FleetStep) {
        let mut left = REMOVALS_MAX;
        for id in self.tenants.leaving().cloned().collect::<Vec<_>>() {
            self.remove_owned(&id, &mut left, step);
        }
    }

    /// Removes at most `left` things of a tenant, and the tenant when it owns nothing. What others use stays until they
    /// do not.
    fn remove_owned(&mut self, id: &TenantId, left: &mut usize, step: &mut FleetStep) {
        let dags: Vec<DagName> =
            self.dags_of(id).map(|(name, _)| name.clone()).take(*left).collect();
        *left -= dags.len();
        dags.iter().for_each(|name| self.remove_dag(name, step));
        let reservations = self.reservations.names_of(id, *left);
        *left -= reservations.len();
        for name in reservations {
            self.end_reservation(self.now, &name, step);
        }
        let bitstreams = self.registry.bitstreams_of(id);
        let bitstreams: Vec<BitstreamId> = bitstreams
            .filter(|of| self.check_bitstream_unused(of, true).is_ok())
            .take(*left)
            .cloned()
            .collect();
        *left -= bitstreams.len();
        bitstreams.iter().for_each(|of| self.delete_bitstream(of, step));
        let nts = self.registry.nts_of(id);
        let nts: Vec<NtTypeId> =
            nts.filter(|of| self.check_nt_unused(of, true).is_ok()).take(*left).cloned().collect();
        *left -= nts.len();
        nts.iter().for_each(|of| self.delete_nt(of, step));
        *left -= self.requests.forget(id, *left, step);
        let has_none = self.tenants.usage(id) == Some(FleetUsage::default());
        if *left > 0 && has_none && self.reservations.of_tenant(id) == 0 {
            *left -= 1;
            self.tenants.remove_tenant(id);
            step.delete(tenant_key(id));
        }
    }

    /// DAGs of a tenant, by name.
    pub(super) fn dags_of(
        &self,
        tenant: &TenantId,
    ) -> impl Iterator<Item = (&DagName, &super::DagEntry)> {
        let first = super::first_of(tenant);
        let range = self.dags.range((Bound::Included(first), Bound::Unbounded));
        let tenant = tenant.clone();
        range.take_while(move |(name, _)| name.tenant == tenant)
    }
}
