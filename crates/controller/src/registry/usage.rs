//! Usage and quotas of tenants.

use std::collections::BTreeMap;

use snic_domain::{Bandwidth, Bitstream, ByteSize, DagSpec, NtTypeId, Quota, TenantId};
use snic_planner::allocated_memory;

use super::Registry;
use crate::protocol::{ControlError, TenantUsage};

/// Something would make a tenant use more of one resource than its quota.
pub(crate) fn over_quota(
    id: &TenantId,
    quota: &str,
    limit: impl ToString,
    asked: impl ToString,
) -> ControlError {
    ControlError::Quota {
        tenant: format!("tenants/{id}"),
        quota: quota.to_owned(),
        limit: limit.to_string(),
        asked: asked.to_string(),
    }
}

/// What a tenant uses of what the registry knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnUsage {
    usage: TenantUsage,
    /// How many of its DAGs have an NT of each type: memory is allocated once for all.
    nts: BTreeMap<NtTypeId, u32>,
}

impl OwnUsage {
    /// Counts a DAG in.
    fn charge(&mut self, bandwidth: Bandwidth, pages: BTreeMap<NtTypeId, ByteSize>) {
        let Self { usage, nts } = self;
        usage.dags += 1;
        usage.bandwidth += bandwidth;
        for (nt, memory) in pages {
            let dags = nts.entry(nt).or_default();
            if *dags == 0 {
                usage.memory += memory;
            }
            *dags += 1;
        }
    }
}

/// What a tenant would use with DAGs that are not there yet.
#[derive(Debug)]
pub(crate) struct UsageTrial<'a> {
    registry: &'a Registry,
    tenant: &'a TenantId,
    own: OwnUsage,
}

impl UsageTrial<'_> {
    /// One more DAG.
    ///
    /// # Errors
    /// It would be beyond the tenant's quota; it is not counted then.
    pub fn add(&mut self, spec: &DagSpec) -> Result<(), ControlError> {
        self.registry.check_with(self.tenant, &self.own, None, spec)?;
        self.own.charge(spec.bandwidth, self.registry.pages_of(spec));
        Ok(())
    }
}

impl Registry {
    /// What a tenant uses: without its rules, machines and operations, of which others know.
    pub fn usage(&self, id: &TenantId) -> TenantUsage {
        self.usage.get(id).map(|own| own.usage).unwrap_or_default()
    }

    /// What a tenant may have.
    ///
    /// # Errors
    /// There is no such tenant.
    pub fn quota(&self, id: &TenantId) -> Result<Quota, ControlError> {
        let tenant = self.tenant(id);
        let tenant = tenant.ok_or_else(|| ControlError::not_found(format!("tenants/{id}")))?;
        Ok(tenant.tenant.quota)
    }

    /// Counts a DAG in.
    pub fn charge_dag(&mut self, id: &TenantId, spec: &DagSpec) {
        let pages = self.pages_of(spec);
        self.usage.entry(id.clone()).or_default().charge(spec.bandwidth, pages);
    }

    /// What a tenant would use with DAGs that are not there yet.
    pub fn usage_trial<'a>(&'a self, tenant: &'a TenantId) -> UsageTrial<'a> {
        let own = self.usage.get(tenant).cloned().unwrap_or_default();
        UsageTrial { registry: self, tenant, own }
    }

    /// Counts a DAG out that was counted in.
    pub fn discharge_dag(&mut self, id: &TenantId, spec: &DagSpec) {
        let pages = self.pages_of(spec);
        let OwnUsage { usage, nts } = self.usage.entry(id.clone()).or_default();
        usage.dags = usage.dags.saturating_sub(1);
        usage.bandwidth = usage.bandwidth.saturating_sub(spec.bandwidth);
        for (nt, memory) in pages {
            let Some(dags) = nts.get_mut(&nt) else { continue };
            *dags -= 1;
            if *dags == 0 {
                nts.remove(&nt);
                usage.memory = usage.memory.saturating_sub(memory);
            }
        }
        self.drop_empty_usage(id);
    }

    /// Counts an NT type in, if a tenant owns it.
    pub(super) fn charge_nt(&mut self, id: &NtTypeId) {
        if let Some(owner) = id.owner() {
            self.usage.entry(owner).or_default().usage.nt_types += 1;
        }
    }

    /// Counts an NT type out that was counted in.
    pub(super) fn discharge_nt(&mut self, id: &NtTypeId) {
        if let Some(owner) = id.owner() {
            let usage = &mut self.usage.entry(owner.clone()).or_default().usage;
            usage.nt_types = usage.nt_types.saturating_sub(1);
            self.drop_empty_usage(&owner);
        }
    }

    /// Checks that one more NT type is within its owner's quota.
    pub(super) fn check_nt_quota(&self, owner: &TenantId) -> Result<(), ControlError> {
        let (quota, count) = (self.quota(owner)?, self.usage(owner).nt_types + 1);
        if count > quota.nt_types_max {
            return Err(over_quota(owner, "nt_types_max", quota.nt_types_max, count));
        }
        Ok(())
    }

    /// Counts a bitstream in, if a tenant owns it.
    pub(super) fn charge_bitstream(&mut self, bitstream: &Bitstream) {
        if let Some(owner) = bitstream.id.owner() {
            let usage = &mut self.usage.entry(owner).or_default().usage;
            usage.bitstreams += 1;
            usage.bitstream_bytes += bitstream.size;
        }
    }

    /// Counts a bitstream out that was counted in.
    pub(super) fn discharge_bitstream(&mut self, bitstream: &Bitstream) {
        if let Some(owner) = bitstream.id.owner() {
            let usage = &mut self.usage.entry(owner.clone()).or_default().usage;
            usage.bitstreams = usage.bitstreams.saturating_sub(1);
            usage.bitstream_bytes = usage.bitstream_bytes.saturating_sub(bitstream.size);
            self.drop_empty_usage(&owner);
        }
    }

    fn drop_empty_usage(&mut self, id: &TenantId) {
        if self.usage.get(id).is_some_and(|own| *own == OwnUsage::default()) {
            self.usage.remove(id);
        }
    }

    /// The memory of each NT type of a DAG, as cards allocate it.
    pub fn pages_of(&self, spec: &DagSpec) -> BTreeMap<NtTypeId, ByteSize> {
        let memory = |id: &NtTypeId| self.nt(id).map(allocated_memory).unwrap_or_default();
        spec.nodes.iter().map(|node| (node.nt.clone(), memory(&node.nt))).collect()
    }

    /// Checks that a DAG is within its tenant's quota, in place of what it was charged for before.
    pub fn check_dag_quota(
        &self,
        id: &TenantId,
        before: Option<&DagSpec>,
        spec: &DagSpec,
    ) -> Result<(), ControlError> {
        let none = OwnUsage::default();
        self.check_with(id, self.usage.get(id).unwrap_or(&none), before, spec)
    }

    /// The same for a tenant that uses `own`.
    fn check_with(
        &self,
        id: &TenantId,
        own: &OwnUsage,
        before: Option<&DagSpec>,
        spec: &DagSpec,
    ) -> Result<(), ControlError> {
        let quota = self.quota(id)?;
        let usage = &own.usage;
        let (dags_before, bandwidth_before) =
            before.map_or((0, Bandwidth::ZERO), |spec| (1, spec.bandwidth));
        let dags = usage.dags - dags_before + 1;
        if dags > quota.dags_max {
            return Err(over_quota(id, "dags_max", quota.dags_max, dags));
        }
        let bandwidth = usage.bandwidth - bandwidth_before + spec.bandwidth;
        if bandwidth > quota.bandwidth_max {
            return Err(over_quota(id, "bandwidth_max_bps", quota.bandwidth_max, bandwidth));
        }
        let memory = self.memory_with(own, before, spec);
        if memory > quota.memory_max {
            return Err(over_quota(id, "memory_max_bytes", quota.memory_max, memory));
        }
        Ok(())
    }

    /// The memory of a tenant with a DAG in place of another: each NT type once.
    fn memory_with(&self, own: &OwnUsage, before: Option<&DagSpec>, spec: &DagSpec) -> ByteSize {
        let before = before.map(|spec| self.pages_of(spec)).unwrap_or_default();
        let other_dags = |nt: &NtTypeId| {
            let dags = own.nts.get(nt).copied().unwrap_or(0);
            dags - u32::from(before.contains_key(nt))
        };
        let alone = |pages: &BTreeMap<NtTypeId, ByteSize>| -> ByteSize {
            pages.iter().filter(|(nt, _)| other_dags(nt) == 0).map(|(_, memory)| *memory).sum()
        };
        own.usage.memory.saturating_sub(alone(&before)) + alone(&self.pages_of(spec))
    }

    /// Checks that a new bitstream is within its owner's quota.
    pub(super) fn check_bitstream_quota(
        &self,
        owner: &TenantId,
        bitstream: &Bitstream,
    ) -> Result<(), ControlError> {
        let tenant = self.tenant(owner).expect("owners are checked to be tenants first");
        let quota = tenant.tenant.quota;
        let usage = self.usage(owner);
        let count = usage.bitstreams + 1;
        if count > quota.bitstreams_max {
            return Err(over_quota(owner, "bitstreams_max", quota.bitstreams_max, count));
        }
        let bytes = usage.bitstream_bytes + bitstream.size;
        if bytes > quota.bitstream_bytes_max {
            return Err(over_quota(owner, "bitstream_bytes_max", quota.bitstream_bytes_max, bytes));
        }
        Ok(())
    }

    /// Every invariant, recomputed from scratch; says which is broken. `dags` are all that were
    /// charged. Time O(state · log state).
    pub fn check<'a>(
        &self,
        dags: impl Iterator<Item = (&'a TenantId, &'a DagSpec)>,
    ) -> Result<(), String> {
        let mut all: BTreeMap<TenantId, OwnUsage> = BTreeMap::new();
        for (tenant, spec) in dags {
            let own = all.entry(tenant.clone()).or_default();
            own.usage.dags += 1;
            own.usage.bandwidth += spec.bandwidth;
            self.pages_of(spec).into_keys().for_each(|nt| *own.nts.entry(nt).or_default() += 1);
        }
        for own in all.values_mut() {
            let nts = own.nts.keys().filter_map(|nt| self.nt(nt));
            own.usage.memory = nts.map(allocated_memory).sum();
        }
        let mut catalogue = snic_planner::PlanCatalogue::new();
        for record in self.nts.values() {
            catalogue.insert_nt(record.nt.clone());
            if let Some(owner) = record.nt.id.owner() {
                all.entry(owner).or_default().usage.nt_types += 1;
            }
        }
        for record in self.bitstreams.values() {
            if let Some(owner) = record.bitstream.id.owner() {
                let usage = &mut all.entry(owner).or_default().usage;
                usage.bitstreams += 1;
                usage.bitstream_bytes += record.bitstream.size;
            }
            let is_planned = self.catalogue.bitstream(&record.bitstream.id).is_some();
            let is_withheld = self.catalogue.is_withheld(&record.bitstream.id);
            if is_planned == (record.rejected.is_some() || is_withheld) {
                return Err(format!(
                    "bitstream {}: rejected or withheld, or planned with",
                    record.bitstream.id
                ));
            }
        }
        if self.usage != all {
            return Err(
                "what tenants use is not what their DAGs, NT types and bitstreams sum up to".into(),
            );
        }
        self.nt_numbers.check(self.nts.keys())?;
        match self.nts.keys().find(|id| self.catalogue.nt(id).is_none()) {
            Some(id) => Err(format!("NT type {id} is not planned with")),
            None => Ok(()),
        }
    }
}
