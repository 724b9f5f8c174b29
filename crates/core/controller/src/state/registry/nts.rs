//! NT types: registered once, immutable, removed when nothing uses them.

use std::collections::BTreeSet;

use snic_domain::limits::DESCRIPTION_BYTES_MAX;
use snic_domain::{Bandwidth, NtType, NtTypeId, TenantId};

use super::Registry;
use crate::protocol::etag::{check_etag, etag};
use crate::protocol::{Caller, ControlError, NtView};
use crate::store::records::{NtRecord, Record, RecordKey};
use crate::store::tx::Tx;

/// Users of an NT type elsewhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NtUsers {
    pub dags: usize,
}

impl Registry {
    /// An NT type, if there is one.
    pub fn nt(&self, id: &NtTypeId) -> Option<&NtType> {
        self.nts.get(id).map(|record| &record.nt)
    }

    /// An NT type that a tenant may use.
    pub fn usable_nt(&self, tenant: &TenantId, id: &NtTypeId) -> Option<&NtType> {
        self.nt(id).filter(|nt| nt.is_visible_to(tenant))
    }

    /// The NT types that `caller` may know of, by id.
    pub fn nt_views(&self, caller: &Caller) -> impl Iterator<Item = NtView> {
        self.nts.values().filter(|record| is_readable(record, caller)).map(view)
    }

    /// One NT type, if `caller` may know of it.
    pub fn nt_view(&self, caller: &Caller, id: &NtTypeId) -> Option<NtView> {
        self.nts.get(id).filter(|record| is_readable(record, caller)).map(view)
    }

    /// # Errors
    /// `caller` may not, it is not valid, there is one of its name, or it would be beyond its owner's quota.
    pub fn check_new_nt(&self, caller: &Caller, nt: &NtType) -> Result<(), ControlError> {
        self.check_owner(caller, nt.id.owner().as_ref(), "nt_type_id")?;
        check_nt(nt)?;
        if self.nts.contains_key(&nt.id) {
            return Err(ControlError::exists(format!("ntTypes/{}", nt.id)));
        }
        if nt.id.code().0 == 0 {
            let rule = "its code is zero, which bitstreams cannot name; choose another id";
            return Err(ControlError::invalid("nt_type_id", rule.to_owned()));
        }
        if let Some(owner) = nt.id.owner() {
            self.check_nt_quota(&owner)?;
        }
        Ok(())
    }

    pub fn create_nt(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        nt: NtType,
    ) -> Result<NtView, ControlError> {
        self.check_new_nt(caller, &nt)?;
        let number = self.nt_numbers.give(&nt.id);
        let record = NtRecord { nt, number, created: tx.now(), fleet_number: None };
        self.charge_nt(&record.nt.id);
        tx.put(Record::NtType(record.clone()));
        self.catalogue_mut().insert_nt(record.nt.clone());
        let view = view(&record);
        self.nts.insert(record.nt.id.clone(), record);
        Ok(view)
    }

    /// The fleet manages an NT type, under this number.
    pub fn number_nt(&mut self, tx: &mut Tx, id: &NtTypeId, number: u64) {
        if let Some(record) = self.nts.get_mut(id) {
            record.fleet_number = Some(number);
            tx.put(Record::NtType(record.clone()));
        }
    }

    /// The number of an NT type that the fleet manages.
    pub fn number_of_nt(&self, id: &NtTypeId) -> Option<u64> {
        self.nts.get(id)?.fleet_number
    }

    /// Fails where `caller` may not delete an NT type, it is not as it was read, or something uses it.
    pub fn check_nt_deletion(
        &self,
        caller: &Caller,
        id: &NtTypeId,
        etag: Option<&str>,
        users: NtUsers,
    ) -> Result<(), ControlError> {
        let resource = format!("ntTypes/{id}");
        let record = self.nts.get(id).filter(|_| caller.may_change(id.owner().as_ref()));
        let record = record.ok_or_else(|| self.not_changeable_nt(caller, id))?;
        check_etag(&resource, etag, view(record).etag)?;
        let bitstreams = self.holders_of(id).map_or(0, BTreeSet::len);
        let NtUsers { dags } = users;
        if bitstreams + dags > 0 {
            // How many are others' is not for a tenant.
            let used = match caller.tenant() {
                Some(_) => "bitstreams or DAGs use it; they must go first".to_owned(),
                None => {
                    format!("{bitstreams} bitstreams and {dags} DAGs use it; delete them first")
                }
            };
            return Err(ControlError::precondition(resource, used));
        }
        Ok(())
    }

    /// Why a caller may not change an NT type: as if it were absent, unless it may be read.
    fn not_changeable_nt(&self, caller: &Caller, id: &NtTypeId) -> ControlError {
        let usable = caller.tenant().and_then(|tenant| self.usable_nt(tenant, id));
        match usable {
            Some(_) => {
                ControlError::precondition(format!("ntTypes/{id}"), "only its owner can delete it")
            }
            None => ControlError::not_found(format!("ntTypes/{id}")),
        }
    }

    /// Removes an NT type that nothing uses.
    pub fn remove_nt(&mut self, tx: &mut Tx, id: &NtTypeId) {
        self.nts.remove(id);
        self.nt_numbers.take_back(id);
        self.discharge_nt(id);
        self.catalogue_mut().remove_nt(id);
        tx.delete(RecordKey::NtType(id.clone()));
    }
}

fn is_readable(record: &NtRecord, caller: &Caller) -> bool {
    caller.tenant().is_none_or(|tenant| record.nt.is_visible_to(tenant))
}

fn view(record: &NtRecord) -> NtView {
    NtView {
        nt: record.nt.clone(),
        code: record.nt.id.code(),
        etag: etag(&[&record.nt.id, &record.created.as_nanos()]),
        created: record.created,
        fleet_number: record.fleet_number,
    }
}

fn check_nt(nt: &NtType) -> Result<(), ControlError> {
    if nt.bandwidth_max < Bandwidth::GRANULARITY || !nt.bandwidth_max.is_whole() {
        let rule = format!(
            "{} is not allowed: at least {}, in whole kbit/s",
            nt.bandwidth_max,
            Bandwidth::GRANULARITY
        );
        return Err(ControlError::invalid("nt_type.bandwidth_max_bps", rule));
    }
    if nt.area.lut == 0 {
        let rule = "an NT takes at least one LUT".to_owned();
        return Err(ControlError::invalid("nt_type.area.lut", rule));
    }
    if nt.description.len() > DESCRIPTION_BYTES_MAX {
        let rule = format!(
            "it has {} bytes; at most {DESCRIPTION_BYTES_MAX} are allowed",
            nt.description.len()
        );
        return Err(ControlError::invalid("nt_type.description", rule));
    }
    Ok(())
}
