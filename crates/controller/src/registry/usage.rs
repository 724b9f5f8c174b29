//! What tenants use, and how much they may.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{Bandwidth, Bitstream, ByteSize, DagSpec, TenantId};

use super::Registry;
use crate::protocol::{ControlError, TenantUsage};

/// Something would make a tenant use more of one resource than its quota.
fn over_quota(
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

impl Registry {
    /// What a tenant uses.
    pub fn usage(&self, id: &TenantId) -> TenantUsage {
        self.usage.get(id).copied().unwrap_or_default()
    }

    /// Counts a DAG in.
    pub fn charge_dag(&mut self, id: &TenantId, spec: &DagSpec) {
        let memory = self.memory_of(spec);
        let usage = self.usage.entry(id.clone()).or_default();
        usage.dags += 1;
        usage.bandwidth += spec.bandwidth;
        usage.memory += memory;
    }

    /// Counts a DAG out that was counted in.
    pub fn discharge_dag(&mut self, id: &TenantId, spec: &DagSpec) {
        let memory = self.memory_of(spec);
        let usage = self.usage.entry(id.clone()).or_default();
        usage.dags = usage.dags.saturating_sub(1);
        usage.bandwidth = usage.bandwidth.saturating_sub(spec.bandwidth);
        usage.memory = usage.memory.saturating_sub(memory);
        self.drop_empty_usage(id);
    }

    /// Counts a bitstream in, if a tenant owns it.
    pub(super) fn charge_bitstream(&mut self, bitstream: &Bitstream) {
        if let Some(owner) = bitstream.id.owner() {
            let usage = self.usage.entry(owner).or_default();
            usage.bitstreams += 1;
            usage.bitstream_bytes += bitstream.size;
        }
    }

    /// Counts a bitstream out that was counted in.
    pub(super) fn discharge_bitstream(&mut self, bitstream: &Bitstream) {
        if let Some(owner) = bitstream.id.owner() {
            let usage = self.usage.entry(owner.clone()).or_default();
            usage.bitstreams = usage.bitstreams.saturating_sub(1);
            usage.bitstream_bytes = usage.bitstream_bytes.saturating_sub(bitstream.size);
            self.drop_empty_usage(&owner);
        }
    }

    fn drop_empty_usage(&mut self, id: &TenantId) {
        if self.usage.get(id).is_some_and(|usage| *usage == TenantUsage::default()) {
            self.usage.remove(id);
        }
    }

    /// On-board memory that a DAG's NTs need, each NT type once: instances of a tenant share it.
    pub fn memory_of(&self, spec: &DagSpec) -> ByteSize {
        let nts: BTreeSet<_> = spec.nodes.iter().map(|node| &node.nt).collect();
        nts.into_iter().filter_map(|nt| self.nt(nt)).map(|nt| nt.memory).sum()
    }

    /// Checks that a DAG is within its tenant's quota, in place of what it was charged for before.
    pub fn check_dag_quota(
        &self,
        id: &TenantId,
        before: Option<&DagSpec>,
        spec: &DagSpec,
    ) -> Result<(), ControlError> {
        let tenant = self.tenant(id);
        let quota = tenant.ok_or_else(|| ControlError::not_found(format!("tenants/{id}")))?;
        let quota = quota.tenant.quota;
        let usage = self.usage(id);
        let (dags_before, bandwidth_before, memory_before) = before.map_or_else(
            || (0, Bandwidth::ZERO, ByteSize::ZERO),
            |spec| (1, spec.bandwidth, self.memory_of(spec)),
        );
        let dags = usage.dags - dags_before + 1;
        if dags > quota.dags_max {
            return Err(over_quota(id, "dags_max", quota.dags_max, dags));
        }
        let bandwidth = usage.bandwidth - bandwidth_before + spec.bandwidth;
        if bandwidth > quota.bandwidth_max {
            return Err(over_quota(id, "bandwidth_max_bps", quota.bandwidth_max, bandwidth));
        }
        let memory = usage.memory - memory_before + self.memory_of(spec);
        if memory > quota.memory_max {
            return Err(over_quota(id, "memory_max_bytes", quota.memory_max, memory));
        }
        Ok(())
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
        let mut all: BTreeMap<TenantId, TenantUsage> = BTreeMap::new();
        for (tenant, spec) in dags {
            let usage = all.entry(tenant.clone()).or_default();
            usage.dags += 1;
            usage.bandwidth += spec.bandwidth;
            usage.memory += self.memory_of(spec);
        }
        let mut catalogue = snic_planner::Catalogue::new();
        for record in self.nts.values() {
            catalogue.insert_nt(record.nt.clone());
        }
        for record in self.bitstreams.values() {
            if let Some(owner) = record.bitstream.id.owner() {
                let usage = all.entry(owner).or_default();
                usage.bitstreams += 1;
                usage.bitstream_bytes += record.bitstream.size;
            }
            let is_planned = self.catalogue.bitstream(&record.bitstream.id).is_some();
            if is_planned == record.rejected.is_some() {
                return Err(format!(
                    "bitstream {}: rejected, or planned with",
                    record.bitstream.id
                ));
            }
        }
        if self.usage != all {
            return Err("what tenants use is not what their DAGs and bitstreams sum up to".into());
        }
        match self.nts.keys().find(|id| self.catalogue.nt(id).is_none()) {
            Some(id) => Err(format!("NT type {id} is not planned with")),
            None => Ok(()),
        }
    }
}
