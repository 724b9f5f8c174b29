//! What tenants and projects have, and what their quotas allow. Counted exactly, for one leader decides at a time and
//! its transactions hold only while it leads.

use std::collections::BTreeMap;

use snic_domain::{Bandwidth, Quota, TenantId};

use crate::ProjectId;
use crate::protocol::{Denied, OverQuota};
use crate::records::{FleetTenantRecord, ProjectRecord, Versioned};

/// What DAGs take together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FleetUsage {
    /// How many.
    pub dags: u32,
    /// What they are promised.
    pub bandwidth: Bandwidth,
    /// Area as if each were alone in its regions, in thousandths of a LUT.
    pub milli_luts: u64,
}

impl FleetUsage {
    fn add(&mut self, other: Self) {
        self.dags += other.dags;
        self.bandwidth += other.bandwidth;
        self.milli_luts += other.milli_luts;
    }

    fn subtract(&mut self, other: Self) {
        self.dags -= other.dags;
        self.bandwidth = self.bandwidth - other.bandwidth;
        self.milli_luts -= other.milli_luts;
    }

    fn admit(&self, more: Self, quota: &Quota) -> Result<(), OverQuota> {
        if u64::from(self.dags) + u64::from(more.dags) > u64::from(quota.dags_max) {
            return Err(OverQuota::Dags { max: quota.dags_max, used: self.dags });
        }
        if self.bandwidth + more.bandwidth > quota.bandwidth_max {
            let (max, used) = (quota.bandwidth_max, self.bandwidth);
            return Err(OverQuota::Bandwidth { max, used, asked: more.bandwidth });
        }
        Ok(())
    }
}

/// What all cards of the fleet offer.
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

    pub fn usage(&self, tenant: &TenantId) -> Option<FleetUsage> {
        self.tenants.get(tenant).map(|entry| entry.usage)
    }

    /// Whether quotas of tenant and project allow so much more.
    ///
    /// # Errors
    ///
    /// The first quota that does not, or that the tenant is not registered.
    pub fn admit(&self, tenant: &TenantId, more: FleetUsage) -> Result<(), Denied> {
        let entry = self.tenants.get(tenant);
        let entry = entry.ok_or_else(|| Denied::NotFound(format!("tenant {tenant}")))?;
        let record = entry.record.value();
        let over = |over| Denied::TenantQuota(tenant.clone(), over);
        entry.usage.admit(more, &record.tenant.quota).map_err(over)?;
        let project =
            record.project.as_ref().and_then(|name| Some((name, self.projects.get(name)?)));
        if let Some((name, (project, usage))) = project {
            let over = |over| Denied::ProjectQuota(name.clone(), over);
            usage.admit(more, &project.value().quota).map_err(over)?;
        }
        Ok(())
    }

    /// Counts a DAG, whatever the quota is: it was admitted before.
    pub fn take(&mut self, tenant: &TenantId, usage: FleetUsage) {
        self.change(tenant, |of| of.add(usage));
    }

    /// Counts a DAG no more.
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
