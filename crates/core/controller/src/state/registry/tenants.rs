//! Tenants: create, update, delete.

use std::collections::BTreeSet;
use std::ops::Bound;

use snic_domain::limits::TENANT_WEIGHT_MAX;
use snic_domain::{BitstreamId, NtTypeId, Tenant, TenantId, TenantPatch};

use super::Registry;
use crate::protocol::etag::{check_etag, etag, uuid};
use crate::protocol::{ControlError, TenantView};
use crate::store::records::{Record, RecordKey, TenantRecord};
use crate::store::tx::Tx;

/// The numbers that tenants have on cards, from 1 on; the lowest free one is given out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    /// The highest one that was given out.
    highest: u16,
    /// Free ones below.
    free: BTreeSet<u16>,
}

impl Numbers {
    /// Those that are taken.
    pub fn restore(taken: impl Iterator<Item = u16>) -> Self {
        let taken: BTreeSet<u16> = taken.collect();
        let highest = taken.last().copied().unwrap_or(0);
        Self { highest, free: (1..highest).filter(|number| !taken.contains(number)).collect() }
    }

    /// Time O(log tenants); `None` where all are taken.
    fn take(&mut self) -> Option<u16> {
        if let Some(number) = self.free.pop_first() {
            return Some(number);
        }
        self.highest = self.highest.checked_add(1)?;
        Some(self.highest)
    }

    fn has_free(&self) -> bool {
        !self.free.is_empty() || self.highest < u16::MAX
    }

    fn give_back(&mut self, number: u16) {
        self.free.insert(number);
    }
}

impl Registry {
    /// A tenant, if there is one.
    pub fn tenant(&self, id: &TenantId) -> Option<&TenantRecord> {
        self.tenants.get(id)
    }

    /// The tenants behind this one, by id. Time O(log tenants) before the first.
    pub fn tenants_after(&self, after: Option<&TenantId>) -> impl Iterator<Item = TenantView> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.tenants.range::<TenantId, _>((start, Bound::Unbounded));
        range.map(|(_, record)| self.view_of_tenant(record))
    }

    pub fn tenant_view(&self, id: &TenantId) -> Option<TenantView> {
        self.tenants.get(id).map(|record| self.view_of_tenant(record))
    }

    fn view_of_tenant(&self, record: &TenantRecord) -> TenantView {
        let id = &record.tenant.id;
        TenantView {
            tenant: record.tenant.clone(),
            uid: uuid(&format!("{}/{id}/{}", self.secret, record.created.as_nanos())),
            usage: self.usage(id),
            etag: etag(&[id, &record.created.as_nanos(), &record.generation]),
            created: record.created,
            updated: record.updated,
            fleet_number: record.fleet_number,
            spending: None,
        }
    }

    /// # Errors
    /// Its weight is not allowed, there is one of its name, or there are as many as a card has numbers for.
    pub fn check_new_tenant(&self, tenant: &Tenant) -> Result<(), ControlError> {
        check_weight(tenant.weight)?;
        if self.tenants.contains_key(&tenant.id) {
            return Err(ControlError::exists(format!("tenants/{}", tenant.id)));
        }
        if self.numbers.has_free() { Ok(()) } else { Err(no_number()) }
    }

    pub fn create_tenant(
        &mut self,
        tx: &mut Tx,
        tenant: Tenant,
    ) -> Result<TenantView, ControlError> {
        self.check_new_tenant(&tenant)?;
        let number = self.numbers.take().ok_or_else(no_number)?;
        let (created, updated) = (tx.now(), tx.now());
        let (generation, rejections, fleet_number) = (1, Vec::new(), None);
        let record =
            TenantRecord { tenant, number, generation, created, updated, rejections, fleet_number };
        tx.put(Record::Tenant(record.clone()));
        let view = self.view_of_tenant(&record);
        self.tenants.insert(record.tenant.id.clone(), record);
        Ok(view)
    }

    /// # Errors
    /// There is no such tenant, it is not as it was read, or its new weight is not allowed.
    pub fn check_tenant_update(
        &self,
        id: &TenantId,
        weight: Option<u32>,
        etag: Option<&str>,
    ) -> Result<(), ControlError> {
        self.check_tenant_etag(id, etag)?;
        weight.map_or(Ok(()), check_weight)
    }

    pub fn update_tenant(
        &mut self,
        tx: &mut Tx,
        id: &TenantId,
        patch: TenantPatch,
        etag: Option<&str>,
    ) -> Result<TenantView, ControlError> {
        self.check_tenant_update(id, patch.weight, etag)?;
        let record = self.tenants.get_mut(id).expect("it has an etag, so it exists");
        record.tenant.weight = patch.weight.unwrap_or(record.tenant.weight);
        record.tenant.quota = patch.quota.unwrap_or_default().apply(record.tenant.quota);
        record.tenant.notes = patch.notes.apply(&record.tenant.notes);
        record.tenant.project = patch.project.apply(record.tenant.project.as_ref());
        record.generation += 1;
        record.updated = tx.now();
        tx.put(Record::Tenant(record.clone()));
        let record = &self.tenants[id];
        Ok(self.view_of_tenant(record))
    }

    /// The fleet manages a tenant, under this number.
    pub fn number_tenant(&mut self, tx: &mut Tx, id: &TenantId, number: u64) {
        if let Some(record) = self.tenants.get_mut(id) {
            record.fleet_number = Some(number);
            tx.put(Record::Tenant(record.clone()));
        }
    }

    /// The number of a tenant that the fleet manages.
    pub fn tenant_number(&self, id: &TenantId) -> Option<u64> {
        self.tenants.get(id)?.fleet_number
    }

    /// Fails where the tenant does not exist, or is not as it was read.
    pub fn check_tenant_etag(&self, id: &TenantId, etag: Option<&str>) -> Result<(), ControlError> {
        let resource = format!("tenants/{id}");
        match self.tenants.get(id) {
            Some(record) => check_etag(resource, etag, self.view_of_tenant(record).etag),
            None => Err(ControlError::not_found(resource)),
        }
    }

    /// The NT types and bitstreams that a tenant owns. Time O(log of all + what it owns).
    pub fn owned_by(&self, id: &TenantId) -> (Vec<NtTypeId>, Vec<BitstreamId>) {
        // Theirs begin with it, so they stand together.
        let first = format!("{id}.");
        let from = || (Bound::Included(first.as_str()), Bound::Unbounded);
        let nts = self.nts.range::<str, _>(from()).map(|(nt, _)| nt);
        let bitstreams = self.bitstreams.range::<str, _>(from()).map(|(bitstream, _)| bitstream);
        (
            nts.take_while(|nt| nt.is_owned_by(id)).cloned().collect(),
            bitstreams.take_while(|bitstream| bitstream.is_owned_by(id)).cloned().collect(),
        )
    }

    /// Removes a tenant that owns nothing any more.
    pub fn remove_tenant(&mut self, tx: &mut Tx, id: &TenantId) {
        if let Some(record) = self.tenants.remove(id) {
            self.numbers.give_back(record.number);
        }
        tx.delete(RecordKey::Tenant(id.clone()));
    }
}

fn no_number() -> ControlError {
    ControlError::Exhausted {
        what: "tenants".into(),
        limit: u16::MAX.into(),
        hint: "delete one first".into(),
    }
}

fn check_weight(weight: u32) -> Result<(), ControlError> {
    if (1..=TENANT_WEIGHT_MAX).contains(&weight) {
        return Ok(());
    }
    let rule = format!("weight {weight} is not allowed: 1 to {TENANT_WEIGHT_MAX}");
    Err(ControlError::invalid("tenant.weight", rule))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Numbers;

    #[test]
    fn every_number_is_given_out_once_and_then_none() {
        let mut numbers = Numbers::default();
        assert!((1..=u16::MAX).all(|number| numbers.take() == Some(number)));
        assert_eq!(numbers.take(), None);
        numbers.give_back(7);
        assert_eq!((numbers.take(), numbers.take()), (Some(7), None));
    }

    proptest! {
        /// The lowest that is free, looked for from scratch; also after a restart.
        #[test]
        fn the_lowest_free_number_is_given_out(acts in prop::collection::vec(0u16..12, 1..80)) {
            let (mut numbers, mut taken) = (Numbers::default(), std::collections::BTreeSet::new());
            for act in acts {
                match act {
                    0 => numbers = Numbers::restore(taken.iter().copied()),
                    number if taken.remove(&number) => numbers.give_back(number),
                    _ => {
                        let free = (1..).find(|number| !taken.contains(number));
                        prop_assert_eq!(numbers.take(), free);
                        taken.extend(free);
                    }
                }
            }
        }
    }
}
