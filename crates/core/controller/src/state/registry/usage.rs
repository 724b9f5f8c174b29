//! Usage and quotas of tenants.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{
    Bandwidth, Bitstream, BitstreamId, ByteSize, CardId, DagSpec, NtTypeId, Quota, RegionImage,
    TenantId,
};

use super::Registry;
use crate::decide::memory_use::{MemoryAllowance, MemoryUse, Pages, pages_of};
use crate::protocol::{ControlError, TenantUsage};

/// Usage of a tenant, of what the registry knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnUsage {
    usage: TenantUsage,
    memory: MemoryUse,
}

/// Usage of a tenant with DAGs that are not there yet.
#[derive(Debug)]
pub(crate) struct UsageTrial<'a> {
    registry: &'a Registry,
    tenant: &'a TenantId,
    usage: TenantUsage,
    /// As if none of the new DAGs had a place.
    memory: MemoryAllowance,
}

impl UsageTrial<'_> {
    /// One more DAG.
    ///
    /// # Errors
    /// It would be beyond the tenant's quota wherever it goes; it is not counted then.
    pub fn add(&mut self, spec: &DagSpec) -> Result<(), ControlError> {
        let Self { registry, tenant, usage, memory } = self;
        let pages = registry.pages_of(spec);
        check_dags(tenant, &registry.quota(tenant)?, usage, None, spec)?;
        memory.check(None, &pages)?;
        memory.count_placed(None, &pages);
        usage.dags += 1;
        usage.bandwidth += spec.bandwidth;
        Ok(())
    }
}

/// The images of a bitstream, each of which counts as one: at most as many as a card has regions.
fn images_of(bitstream: &Bitstream) -> u32 {
    bitstream.images.len() as u32
}

/// Checks what a tenant's DAGs are and ask for together, with one in place of another.
fn check_dags(
    id: &TenantId,
    quota: &Quota,
    usage: &TenantUsage,
    before: Option<&DagSpec>,
    spec: &DagSpec,
) -> Result<(), ControlError> {
    let (dags_before, bandwidth_before) =
        before.map_or((0, Bandwidth::ZERO), |spec| (1, spec.bandwidth));
    let dags = usage.dags - dags_before + 1;
    if dags > quota.dags_max {
        let (limit, used) = (quota.dags_max, usage.dags);
        return Err(ControlError::over_quota(id, "dags_max", limit, used, dags));
    }
    let bandwidth = usage.bandwidth - bandwidth_before + spec.bandwidth;
    if bandwidth > quota.bandwidth_max {
        let (limit, used) = (quota.bandwidth_max, usage.bandwidth);
        return Err(ControlError::over_quota(id, "bandwidth_max_bps", limit, used, bandwidth));
    }
    Ok(())
}

impl Registry {
    /// Usage of a tenant: without its rules, machines and operations, of which others know.
    pub fn usage(&self, id: &TenantId) -> TenantUsage {
        let own = self.usage.get(id);
        own.map_or_else(TenantUsage::default, |own| TenantUsage {
            memory: own.memory.total(),
            ..own.usage
        })
    }

    /// Quota of a tenant.
    ///
    /// # Errors
    /// There is no such tenant.
    pub fn quota(&self, id: &TenantId) -> Result<Quota, ControlError> {
        let tenant = self.tenant(id);
        let tenant = tenant.ok_or_else(|| ControlError::not_found(format!("tenants/{id}")))?;
        Ok(tenant.tenant.quota)
    }

    /// Counts a DAG in that is on a card, or has no place.
    pub fn charge_dag(&mut self, id: &TenantId, spec: &DagSpec, card: Option<&CardId>) {
        let pages = self.pages_of(spec);
        let OwnUsage { usage, memory } = self.usage.entry(id.clone()).or_default();
        usage.dags += 1;
        usage.bandwidth += spec.bandwidth;
        memory.add(card, &pages);
    }

    /// Counts a DAG out that was counted in there.
    pub fn discharge_dag(&mut self, id: &TenantId, spec: &DagSpec, card: Option<&CardId>) {
        let pages = self.pages_of(spec);
        let OwnUsage { usage, memory } = self.usage.entry(id.clone()).or_default();
        usage.dags = usage.dags.saturating_sub(1);
        usage.bandwidth = usage.bandwidth.saturating_sub(spec.bandwidth);
        memory.remove(card, &pages);
        self.drop_empty_usage(id);
    }

    /// A DAG that is counted in has a place now, or has none any more.
    pub fn move_dag(
        &mut self,
        id: &TenantId,
        spec: &DagSpec,
        from: Option<&CardId>,
        to: Option<&CardId>,
    ) {
        let pages = self.pages_of(spec);
        let OwnUsage { memory, .. } = self.usage.entry(id.clone()).or_default();
        memory.remove(from, &pages);
        memory.add(to, &pages);
    }

    /// Usage of a tenant with DAGs that are not there yet; `specs` are all of them.
    pub fn usage_trial<'a>(
        &'a self,
        tenant: &'a TenantId,
        specs: impl Iterator<Item = &'a DagSpec>,
    ) -> UsageTrial<'a> {
        let memory = self.memory_allowance(tenant, None, specs);
        UsageTrial { registry: self, tenant, usage: self.usage(tenant), memory }
    }

    /// Memory that a tenant may use for DAGs, new or in place of one that is counted in as `before`; none where
    /// there is no such tenant.
    pub fn memory_allowance<'a>(
        &self,
        id: &TenantId,
        before: Option<(&DagSpec, Option<&CardId>)>,
        specs: impl Iterator<Item = &'a DagSpec>,
    ) -> MemoryAllowance {
        let none = MemoryUse::default();
        let own = self.usage.get(id).map_or(&none, |own| &own.memory);
        let before = before.map(|(spec, card)| (self.pages_of(spec), card));
        let before = before.as_ref().map(|(pages, card)| (pages, *card));
        let nts = specs.flat_map(|spec| &spec.nodes).map(|node| node.nt.clone());
        let limit = self.tenant(id).map_or(ByteSize::ZERO, |record| record.tenant.quota.memory_max);
        MemoryAllowance::new(id, limit, own, before, nts)
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
            return Err(ControlError::over_quota(
                owner,
                "nt_types_max",
                quota.nt_types_max,
                count - 1,
                count,
            ));
        }
        Ok(())
    }

    /// Counts a bitstream in, if a tenant owns it.
    pub(super) fn charge_bitstream(&mut self, bitstream: &Bitstream) {
        if let Some(owner) = bitstream.id.owner() {
            let usage = &mut self.usage.entry(owner).or_default().usage;
            usage.bitstreams += images_of(bitstream);
            usage.bitstream_bytes += bitstream.images.size();
        }
    }

    /// Counts a bitstream out that was counted in.
    pub(super) fn discharge_bitstream(&mut self, bitstream: &Bitstream) {
        if let Some(owner) = bitstream.id.owner() {
            let usage = &mut self.usage.entry(owner.clone()).or_default().usage;
            usage.bitstreams = usage.bitstreams.saturating_sub(images_of(bitstream));
            usage.bitstream_bytes = usage.bitstream_bytes.saturating_sub(bitstream.images.size());
            self.drop_empty_usage(&owner);
        }
    }

    fn drop_empty_usage(&mut self, id: &TenantId) {
        if self.usage.get(id).is_some_and(|own| *own == OwnUsage::default()) {
            self.usage.remove(id);
        }
    }

    /// The memory of each NT type of a DAG, as cards allocate it.
    pub fn pages_of(&self, spec: &DagSpec) -> Pages {
        pages_of(&self.catalogue, spec)
    }

    /// Checks that a DAG is within its tenant's quota on a card, or wherever it goes; in place of what it
    /// was counted in as before.
    pub fn check_dag_quota(
        &self,
        id: &TenantId,
        before: Option<(&DagSpec, Option<&CardId>)>,
        spec: &DagSpec,
        card: Option<&CardId>,
    ) -> Result<(), ControlError> {
        let spec_before = before.map(|(spec, _)| spec);
        check_dags(id, &self.quota(id)?, &self.usage(id), spec_before, spec)?;
        let memory = self.memory_allowance(id, before, std::iter::once(spec));
        Ok(memory.check(card, &self.pages_of(spec))?)
    }

    /// Checks that new images are within their owner's quota.
    pub(super) fn check_image_quota<'a>(
        &self,
        owner: &TenantId,
        images: impl IntoIterator<Item = &'a RegionImage>,
    ) -> Result<(), ControlError> {
        let tenant = self.tenant(owner).expect("owners are checked to be tenants first");
        let quota = tenant.tenant.quota;
        let usage = self.usage(owner);
        let (mut count, mut bytes) = (usage.bitstreams, usage.bitstream_bytes);
        for image in images {
            count += 1;
            bytes += image.size;
        }
        if count > quota.bitstreams_max {
            let (limit, used) = (quota.bitstreams_max, usage.bitstreams);
            return Err(ControlError::over_quota(owner, "bitstreams_max", limit, used, count));
        }
        if bytes > quota.bitstream_bytes_max {
            let (limit, used) = (quota.bitstream_bytes_max, usage.bitstream_bytes);
            return Err(ControlError::over_quota(owner, "bitstream_bytes_max", limit, used, bytes));
        }
        Ok(())
    }

    /// Every invariant, recomputed from scratch; says which is broken. `dags` are all that were
    /// charged, with their cards. Time O(state · log state).
    pub fn check<'a>(
        &self,
        dags: impl Iterator<Item = (&'a TenantId, &'a DagSpec, Option<&'a CardId>)>,
    ) -> Result<(), String> {
        let mut all: BTreeMap<TenantId, OwnUsage> = BTreeMap::new();
        for (tenant, spec, card) in dags {
            let own = all.entry(tenant.clone()).or_default();
            own.usage.dags += 1;
            own.usage.bandwidth += spec.bandwidth;
            own.memory.add(card, &self.pages_of(spec));
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
                usage.bitstreams += images_of(&record.bitstream);
                usage.bitstream_bytes += record.bitstream.images.size();
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
        let mut holders: BTreeMap<NtTypeId, BTreeSet<BitstreamId>> = BTreeMap::new();
        for Bitstream { id, nts, .. } in self.bitstreams() {
            for nt in nts {
                holders.entry(nt.clone()).or_default().insert(id.clone());
            }
        }
        if self.holders != holders {
            return Err(format!("{:?} are said to have the NT types", self.holders));
        }
        match self.nts.keys().find(|id| self.catalogue.nt(id).is_none()) {
            Some(id) => Err(format!("NT type {id} is not planned with")),
            None => Ok(()),
        }
    }
}
