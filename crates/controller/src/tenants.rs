//! Tenants: create, update, delete; what they use.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::limits::TENANT_WEIGHT_MAX;
use snic_domain::{
    Bitstream, BitstreamId, DagId, DagName, DagSpec, NtTypeId, Quota, Tenant, TenantId,
};

use crate::dags::check_etag;
use crate::protocol::{ControlError, Reply, TenantUsage};
use crate::records::{TenantRecord, key};
use crate::state::Controller;
use crate::tx::Tx;

impl Controller {
    pub(crate) fn create_tenant(
        &mut self,
        tx: &mut Tx,
        tenant: Tenant,
    ) -> Result<Reply, ControlError> {
        check_weight(tenant.weight)?;
        let id = tenant.id.clone();
        if self.tenants.contains_key(&id) {
            return Err(ControlError::exists(format!("tenants/{id}")));
        }
        let taken: BTreeSet<u16> = self.tenants.values().map(|record| record.number).collect();
        let number =
            (1..=u16::MAX).find(|n| !taken.contains(n)).ok_or_else(|| ControlError::Exhausted {
                what: "tenants".into(),
                limit: u16::MAX.into(),
                hint: "delete one first".into(),
            })?;
        let record =
            TenantRecord { tenant, number, generation: 1, created: self.now, updated: self.now };
        tx.put(key::tenant(&id), &record);
        self.tenants.insert(id.clone(), record);
        self.tenant_reply(&id)
    }

    pub(crate) fn update_tenant(
        &mut self,
        tx: &mut Tx,
        id: &TenantId,
        (weight, quota): (Option<u32>, Option<Quota>),
        etag: Option<&str>,
    ) -> Result<Reply, ControlError> {
        self.check_tenant_etag(id, etag)?;
        weight.map_or(Ok(()), check_weight)?;
        let now = self.now;
        if let Some(record) = self.tenants.get_mut(id) {
            record.tenant.weight = weight.unwrap_or(record.tenant.weight);
            self.cards.values_mut().for_each(|card| card.epoch.stale = true);
            record.tenant.quota = quota.unwrap_or(record.tenant.quota);
            record.generation += 1;
            record.updated = now;
            tx.put(key::tenant(id), record);
        }
        self.reweigh(id);
        self.tenant_reply(id)
    }

    fn check_tenant_etag(&self, id: &TenantId, etag: Option<&str>) -> Result<(), ControlError> {
        let resource = format!("tenants/{id}");
        match self.tenant_view(id) {
            Some(view) => check_etag(resource, etag, view.etag),
            None => Err(ControlError::not_found(resource)),
        }
    }

    fn tenant_reply(&self, id: &TenantId) -> Result<Reply, ControlError> {
        let absent = || ControlError::not_found(format!("tenants/{id}"));
        self.tenant_view(id).map(Reply::Tenant).ok_or_else(absent)
    }

    /// Refused while the tenant owns anything, unless forced; refused even then while others use
    /// what it owns.
    pub(crate) fn delete_tenant(
        &mut self,
        tx: &mut Tx,
        id: &TenantId,
        force: bool,
        etag: Option<&str>,
    ) -> Result<Reply, ControlError> {
        self.check_tenant_etag(id, etag)?;
        let dags: Vec<DagName> = self.dags_of(id).map(|entry| entry.name().clone()).collect();
        let bitstreams: Vec<BitstreamId> =
            self.bitstreams.keys().filter(|b| b.is_owned_by(id)).cloned().collect();
        let nts: Vec<NtTypeId> = self.nts.keys().filter(|nt| nt.is_owned_by(id)).cloned().collect();
        let resource = format!("tenants/{id}");
        if !force && dags.len() + bitstreams.len() + nts.len() > 0 {
            let owned = format!(
                "it owns {} DAGs, {} bitstreams and {} NT types; delete them first, or use force",
                dags.len(),
                bitstreams.len(),
                nts.len()
            );
            return Err(ControlError::precondition(resource, owned));
        }
        if self.others_use(id, &bitstreams, &nts) {
            let shared = "others use bitstreams or NT types that it shares; they must move first";
            return Err(ControlError::precondition(resource, shared));
        }
        for name in &dags {
            let operation = self.dags.get(name).and_then(|e| e.operation.clone());
            if let Some(operation) = operation {
                let error = ControlError::Superseded { resource: resource.clone() };
                self.end_operation(tx, &operation, Err(error));
            }
            self.remove_dag(tx, name);
        }
        for bitstream in &bitstreams {
            self.remove_bitstream(tx, bitstream);
        }
        for nt in &nts {
            self.remove_nt(tx, nt);
        }
        self.forget_refused_of(tx, id);
        self.tenants.remove(id);
        tx.delete(key::tenant(id));
        Ok(Reply::Done)
    }

    /// Whether DAGs or bitstreams of other tenants use these.
    fn others_use(&self, id: &TenantId, bitstreams: &[BitstreamId], nts: &[NtTypeId]) -> bool {
        let others = self.dags.values().filter(|entry| entry.name().tenant != *id);
        let dag_uses = |entry: &crate::dags::DagEntry| {
            entry.placements().any(|p| {
                p.spec.nodes.iter().any(|node| nts.contains(&node.nt))
                    || p.mapping.instances().any(|i| bitstreams.contains(&i.bitstream))
            })
        };
        let mut other_bitstreams =
            self.bitstreams.values().filter(|r| !r.bitstream.id.is_owned_by(id));
        others.into_iter().any(dag_uses)
            || other_bitstreams.any(|r| r.bitstream.nts.iter().any(|nt| nts.contains(nt)))
    }

    /// The DAGs of a tenant, by id. Time O(log DAGs + its DAGs).
    pub(crate) fn dags_of<'a>(
        &'a self,
        id: &'a TenantId,
    ) -> impl Iterator<Item = &'a crate::dags::DagEntry> {
        let first = DagId::new("a").expect("the smallest label");
        let from = DagName { tenant: id.clone(), dag: first };
        self.dags.range(from..).take_while(move |(name, _)| name.tenant == *id).map(|(_, e)| e)
    }

    /// What a tenant uses.
    pub(crate) fn usage(&self, id: &TenantId) -> TenantUsage {
        self.usage.get(id).copied().unwrap_or_default()
    }

    /// Counts a DAG in.
    pub(crate) fn charge_dag(&mut self, id: &TenantId, spec: &DagSpec) {
        let memory = self.memory_of(spec);
        let usage = self.usage.entry(id.clone()).or_default();
        usage.dags += 1;
        usage.bandwidth += spec.bandwidth;
        usage.memory += memory;
    }

    /// Counts a DAG out that was counted in.
    pub(crate) fn discharge_dag(&mut self, id: &TenantId, spec: &DagSpec) {
        let memory = self.memory_of(spec);
        let usage = self.usage.entry(id.clone()).or_default();
        usage.dags = usage.dags.saturating_sub(1);
        usage.bandwidth = usage.bandwidth.saturating_sub(spec.bandwidth);
        usage.memory = usage.memory.saturating_sub(memory);
        self.drop_empty_usage(id);
    }

    /// Counts a bitstream in, if a tenant owns it.
    pub(crate) fn charge_bitstream(&mut self, bitstream: &Bitstream) {
        let Some(owner) = bitstream.id.owner() else { return };
        let usage = self.usage.entry(owner).or_default();
        usage.bitstreams += 1;
        usage.bitstream_bytes += bitstream.size;
    }

    /// Counts a bitstream out that was counted in.
    pub(crate) fn discharge_bitstream(&mut self, bitstream: &Bitstream) {
        let Some(owner) = bitstream.id.owner() else { return };
        let usage = self.usage.entry(owner.clone()).or_default();
        usage.bitstreams = usage.bitstreams.saturating_sub(1);
        usage.bitstream_bytes = usage.bitstream_bytes.saturating_sub(bitstream.size);
        self.drop_empty_usage(&owner);
    }

    fn drop_empty_usage(&mut self, id: &TenantId) {
        if self.usage.get(id).is_some_and(|usage| *usage == TenantUsage::default()) {
            self.usage.remove(id);
        }
    }

    /// What every tenant uses, counted anew; for [`Controller::check`].
    pub(crate) fn usage_recounted(&self) -> BTreeMap<TenantId, TenantUsage> {
        let mut all: BTreeMap<TenantId, TenantUsage> = BTreeMap::new();
        for entry in self.dags.values() {
            let usage = all.entry(entry.name().tenant.clone()).or_default();
            usage.dags += 1;
            usage.bandwidth += entry.spec().bandwidth;
            usage.memory += self.memory_of(entry.spec());
        }
        for record in self.bitstreams.values() {
            if let Some(owner) = record.bitstream.id.owner() {
                let usage = all.entry(owner).or_default();
                usage.bitstreams += 1;
                usage.bitstream_bytes += record.bitstream.size;
            }
        }
        all
    }
}

fn check_weight(weight: u32) -> Result<(), ControlError> {
    if (1..=TENANT_WEIGHT_MAX).contains(&weight) {
        return Ok(());
    }
    let rule = format!("weight {weight} is not allowed: 1 to {TENANT_WEIGHT_MAX}");
    Err(ControlError::invalid("tenant.weight", rule))
}
