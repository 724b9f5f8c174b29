//! Usage and quotas of tenants and projects. Counted exactly, for one leader decides at a time and
//! its transactions hold only while it leads.

use std::collections::BTreeMap;
use std::ops::Bound;

use snic_domain::{Bandwidth, Bitstream, ByteSize, MonthBudget, Quota, Tenant, TenantId};

use crate::ProjectId;
use crate::protocol::{
    Denied, FleetProject, FleetSpending, FleetTenant, FleetUsage, Numbered, OverQuota,
};
use crate::records::{FleetTenantRecord, ProjectRecord, Versioned};

impl FleetUsage {
    /// Usage of a bitstream.
    pub(crate) fn of_bitstream(bitstream: &Bitstream) -> Self {
        let images = &bitstream.images;
        // At most as many as a card has regions.
        Self { bitstreams: images.len() as u32, bitstream_bytes: images.size(), ..Self::default() }
    }

    /// Usage of an NT type.
    pub(crate) fn of_nt() -> Self {
        Self { nt_types: 1, ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.dags += other.dags;
        self.bandwidth += other.bandwidth;
        self.milli_luts += other.milli_luts;
        self.memory += other.memory;
        self.nt_types += other.nt_types;
        self.bitstreams += other.bitstreams;
        self.bitstream_bytes += other.bitstream_bytes;
    }

    fn subtract(&mut self, other: Self) {
        self.dags -= other.dags;
        self.bandwidth = self.bandwidth - other.bandwidth;
        self.milli_luts -= other.milli_luts;
        self.memory = self.memory.saturating_sub(other.memory);
        self.nt_types -= other.nt_types;
        self.bitstreams -= other.bitstreams;
        self.bitstream_bytes = self.bitstream_bytes.saturating_sub(other.bitstream_bytes);
    }

    /// Whether a quota allows `after` in place of this. What does not grow is allowed: a quota may have been lowered.
    fn admit(&self, after: Self, quota: &Quota) -> Result<(), OverQuota> {
        self.admit_dags(after, quota)?;
        if after.memory > self.memory {
            let all = (quota.memory_max, self.memory, after.memory);
            OverQuota::check("memory_max_bytes", all)?;
        }
        if after.nt_types > self.nt_types {
            let all = (quota.nt_types_max, self.nt_types, after.nt_types);
            OverQuota::check("nt_types_max", all)?;
        }
        if after.bitstreams > self.bitstreams {
            let all = (quota.bitstreams_max, self.bitstreams, after.bitstreams);
            OverQuota::check("bitstreams_max", all)?;
            let used = (self.bitstream_bytes, after.bitstream_bytes);
            OverQuota::check("bitstream_bytes_max", (quota.bitstream_bytes_max, used.0, used.1))?;
        }
        Ok(())
    }

    /// The same of what a project limits.
    fn admit_dags(&self, after: Self, quota: &Quota) -> Result<(), OverQuota> {
        if after.dags > self.dags {
            OverQuota::check("dags_max", (quota.dags_max, self.dags, after.dags))?;
        }
        if after.bandwidth > self.bandwidth {
            let all = (quota.bandwidth_max, self.bandwidth, after.bandwidth);
            OverQuota::check("bandwidth_max_bps", all)?;
        }
        Ok(())
    }

    /// With `other` in place of `before`, which is part of it.
    fn with(mut self, before: Self, other: Self) -> Self {
        self.subtract(before);
        self.add(other);
        self
    }
}

/// Capacity of all cards of the fleet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub bandwidth: Bandwidth,
    pub luts: u64,
}

#[derive(Debug)]
struct TenantEntry {
    record: Versioned<FleetTenantRecord>,
    usage: FleetUsage,
}

/// Tenants and projects.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    tenants: BTreeMap<TenantId, TenantEntry>,
    projects: BTreeMap<ProjectId, (Versioned<ProjectRecord>, FleetUsage)>,
}

impl Tenants {
    /// Adds or replaces a project. Usage stays.
    pub fn put_project(&mut self, record: Versioned<ProjectRecord>) {
        let name = record.value().project.clone();
        let usage = self.projects.get(&name).map(|(_, usage)| *usage).unwrap_or_default();
        self.projects.insert(name, (record, usage));
    }

    /// Adds or replaces a tenant. What it has counts to the project that it is in now.
    pub fn put_tenant(&mut self, record: Versioned<FleetTenantRecord>) {
        let id = record.value().tenant.id.clone();
        let before = self.tenants.remove(&id);
        let usage = before.as_ref().map(|entry| entry.usage).unwrap_or_default();
        let old = before.and_then(|entry| entry.record.value().project.clone());
        if let Some((_, of)) = old.and_then(|project| self.projects.get_mut(&project)) {
            of.subtract(usage);
        }
        let new = record.value().project.as_ref();
        if let Some((_, of)) = new.and_then(|project| self.projects.get_mut(project)) {
            of.add(usage);
        }
        self.tenants.insert(id, TenantEntry { record, usage });
    }

    pub fn project(&self, project: &ProjectId) -> Option<&Versioned<ProjectRecord>> {
        self.projects.get(project).map(|(record, _)| record)
    }

    pub fn tenant(&self, tenant: &TenantId) -> Option<&Versioned<FleetTenantRecord>> {
        self.tenants.get(tenant).map(|entry| &entry.record)
    }

    /// Usage of a tenant.
    pub fn usage(&self, tenant: &TenantId) -> Option<FleetUsage> {
        self.tenants.get(tenant).map(|entry| entry.usage)
    }

    pub fn len(&self) -> usize {
        self.tenants.len()
    }

    /// Forgets a tenant that has nothing.
    pub fn remove_tenant(&mut self, tenant: &TenantId) {
        self.tenants.remove(tenant);
    }

    /// Forgets a project without tenants.
    pub fn remove_project(&mut self, project: &ProjectId) {
        self.projects.remove(project);
    }

    /// Number of a project's tenants. Time O(tenants).
    pub fn of_project(&self, project: &ProjectId) -> usize {
        let is_in = |entry: &&TenantEntry| entry.record.value().project.as_ref() == Some(project);
        self.tenants.values().filter(is_in).count()
    }

    /// Tenants that are being deleted.
    pub fn leaving(&self) -> impl Iterator<Item = &TenantId> {
        self.tenants.iter().filter(|(_, of)| of.record.value().is_leaving).map(|(id, _)| id)
    }

    /// The tenants from one on, by id.
    pub fn tenants_from(&self, from: Bound<TenantId>) -> impl Iterator<Item = &TenantId> {
        self.tenants.range::<TenantId, _>((from, Bound::Unbounded)).map(|(id, _)| id)
    }

    /// The projects from one on, by name.
    pub fn projects_from(&self, from: Bound<ProjectId>) -> impl Iterator<Item = &ProjectId> {
        self.projects.range::<ProjectId, _>((from, Bound::Unbounded)).map(|(id, _)| id)
    }

    /// A tenant, as it is shown, without what it has spent.
    pub fn tenant_view(&self, tenant: &TenantId, all: Capacity) -> Option<FleetTenant> {
        let entry = self.tenants.get(tenant)?;
        let of = entry.record.value();
        Some(FleetTenant {
            tenant: of.tenant.clone(),
            project: of.project.clone(),
            usage: entry.usage,
            spending: None,
            is_burst_off: of.is_burst_off,
            dominant_share_ppb: self.dominant_share_ppb(tenant, all).unwrap_or_default(),
            is_leaving: of.is_leaving,
            meta: of.meta,
        })
    }

    /// A project, as it is shown, without what it has spent.
    pub fn project_view(&self, project: &ProjectId) -> Option<FleetProject> {
        let (record, usage) = self.projects.get(project)?;
        let of = record.value();
        let (project, quota) = (of.project.clone(), of.quota);
        Some(FleetProject { project, quota, usage: *usage, spending: None, meta: of.meta })
    }

    /// Spending of tenants and projects, with their budgets.
    pub fn spending(&self) -> impl Iterator<Item = (Option<&FleetSpending>, MonthBudget)> {
        let tenants = self.tenants.values().map(|entry| entry.record.value());
        let tenants = tenants.map(|of| (of.spending.as_ref(), of.tenant.quota.month_budget));
        let projects = self.projects.values().map(|(record, _)| record.value());
        tenants.chain(projects.map(|of| (of.spending.as_ref(), of.quota.month_budget)))
    }

    /// Its number on hosts.
    pub fn number(&self, tenant: &TenantId) -> Option<u64> {
        self.tenants.get(tenant).map(|entry| entry.record.value().number)
    }

    /// A tenant as hosts have it: its quotas are the fleet's business. A budget of nothing has a host give its DAGs their promises and no
    /// more, as its policy says of spent budgets.
    pub fn on_hosts(&self, tenant: &TenantId) -> Option<Numbered<Tenant>> {
        let of = self.tenants.get(tenant)?.record.value();
        let (mut quota, project) = (unlimited(), of.project.clone());
        if of.is_burst_off {
            quota.month_budget = MonthBudget::from_micros(0);
        }
        Some(Numbered { number: of.number, of: Tenant { quota, project, ..of.tenant.clone() } })
    }

    /// Whether quotas of tenant and project allow `other` in place of `before`.
    ///
    /// # Errors
    ///
    /// The first quota that does not, or that the tenant is not registered or being deleted.
    pub fn admit(
        &self,
        tenant: &TenantId,
        before: FleetUsage,
        other: FleetUsage,
    ) -> Result<(), Denied> {
        let entry = self.tenants.get(tenant);
        let entry = entry.ok_or_else(|| Denied::NotFound(format!("tenants/{tenant}")))?;
        let record = entry.record.value();
        if record.is_leaving {
            return Err(Denied::Leaving(tenant.clone()));
        }
        let over = |over| Denied::TenantQuota(tenant.clone(), over);
        let after = entry.usage.with(before, other);
        entry.usage.admit(after, &record.tenant.quota).map_err(over)?;
        let project =
            record.project.as_ref().and_then(|name| Some((name, self.projects.get(name)?)));
        if let Some((name, (project, usage))) = project {
            let over = |over| Denied::ProjectQuota(name.clone(), over);
            let after = usage.with(before, other);
            usage.admit_dags(after, &project.value().quota).map_err(over)?;
        }
        Ok(())
    }

    /// Whether a project has room for a tenant with all that it has.
    ///
    /// # Errors
    ///
    /// There is no such project, or its quota does not allow it.
    pub fn admit_to(&self, project: &ProjectId, tenant: FleetUsage) -> Result<(), Denied> {
        let of = self.projects.get(project);
        let (record, usage) = of.ok_or_else(|| Denied::NotFound(format!("projects/{project}")))?;
        let after = usage.with(FleetUsage::default(), tenant);
        let over = |over| Denied::ProjectQuota(project.clone(), over);
        usage.admit_dags(after, &record.value().quota).map_err(over)
    }

    /// Counts something, whatever the quota is: it was admitted before.
    pub fn take(&mut self, tenant: &TenantId, usage: FleetUsage) {
        self.change(tenant, |of| of.add(usage));
    }

    /// Counts something no more.
    pub fn give_back(&mut self, tenant: &TenantId, usage: FleetUsage) {
        self.change(tenant, |of| of.subtract(usage));
    }

    fn change(&mut self, tenant: &TenantId, change: impl Fn(&mut FleetUsage)) {
        let Some(entry) = self.tenants.get_mut(tenant) else { return };
        change(&mut entry.usage);
        let project = entry.record.value().project.as_ref();
        if let Some((_, usage)) = project.and_then(|project| self.projects.get_mut(project)) {
            change(usage);
        }
    }

    /// The largest part that a tenant has of bandwidth or area of all cards, divided by its weight, in
    /// thousand-millionths (Ghodsi et al., NSDI '11; over many machines: Wang et al., TPDS '15).
    pub fn dominant_share_ppb(&self, tenant: &TenantId, all: Capacity) -> Option<u64> {
        let entry = self.tenants.get(tenant)?;
        let part = |used: u64, all: u64| u128::from(used) * 1_000_000_000 / u128::from(all.max(1));
        let area = part(entry.usage.milli_luts, all.luts.saturating_mul(1_000));
        let bandwidth = part(entry.usage.bandwidth.get(), all.bandwidth.get());
        let weight = u128::from(entry.record.value().tenant.weight.max(1));
        Some(u64::try_from(area.max(bandwidth) / weight).unwrap_or(u64::MAX))
    }
}

/// A quota that allows everything.
const fn unlimited() -> Quota {
    Quota {
        dags_max: u32::MAX,
        bandwidth_max: Bandwidth::from_bps(u64::MAX),
        bitstreams_max: u32::MAX,
        bitstream_bytes_max: ByteSize::from_bytes(u64::MAX),
        memory_max: ByteSize::from_bytes(u64::MAX),
        nt_types_max: u32::MAX,
        rules_max: u32::MAX,
        machines_max: u32::MAX,
        operations_max: u32::MAX,
        threads_max: u32::MAX,
        month_budget: MonthBudget::UNLIMITED,
    }
}
