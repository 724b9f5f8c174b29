//! NT types and bitstreams: registered once, immutable, removed when nothing uses them.

use snic_domain::limits::{BITSTREAM_BYTES_MAX, CHAIN_SLOTS_MAX, DESCRIPTION_BYTES_MAX};
use snic_domain::{Bandwidth, Bitstream, BitstreamId, NtType, NtTypeId, TenantId};

use crate::dags::check_etag;
use crate::protocol::{Caller, ControlError, Reply};
use crate::records::{BitstreamRecord, NtRecord, key};
use crate::state::Controller;
use crate::tx::Tx;

impl Controller {
    pub(crate) fn create_nt(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        nt: NtType,
    ) -> Result<Reply, ControlError> {
        let owner = nt.id.owner();
        self.check_owner(caller, owner.as_ref(), "nt_type_id")?;
        check_nt(&nt)?;
        if self.nts.contains_key(&nt.id) {
            return Err(ControlError::exists(format!("ntTypes/{}", nt.id)));
        }
        let code = nt.id.code();
        if code.0 == 0 || self.nts.keys().any(|other| other.code() == code) {
            let rule = format!("its code {:#010x} is taken; choose another id", code.0);
            return Err(ControlError::invalid("nt_type_id", rule));
        }
        let record = NtRecord { nt: nt.clone(), created: self.now };
        tx.put(key::nt(&nt.id), &record);
        self.catalogue.insert_nt(nt.clone());
        let view = self.nt_view(&record);
        self.nts.insert(nt.id, record);
        Ok(Reply::NtType(view))
    }

    /// Fails where `caller` may not make something that `owner` owns, or the owner is no tenant.
    fn check_owner(
        &self,
        caller: &Caller,
        owner: Option<&TenantId>,
        field: &str,
    ) -> Result<(), ControlError> {
        let known = owner.is_none_or(|owner| self.tenants.contains_key(owner));
        if caller.may_change(owner) && known {
            return Ok(());
        }
        let rule = match caller.tenant() {
            Some(tenant) => format!("the id of something of yours begins with \"{tenant}.\""),
            None => "the part before the dot is no tenant".to_owned(),
        };
        Err(ControlError::invalid(field, rule))
    }

    pub(crate) fn delete_nt(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        id: &NtTypeId,
        etag: Option<&str>,
    ) -> Result<Reply, ControlError> {
        let resource = format!("ntTypes/{id}");
        if !self.nts.contains_key(id) || !caller.may_change(id.owner().as_ref()) {
            return Err(self.not_changeable_nt(caller, id));
        }
        let now = self.nts.get(id).map(|record| self.nt_view(record).etag);
        check_etag(&resource, etag, now.unwrap_or_default())?;
        let bitstreams = self.bitstreams.values().filter(|r| r.bitstream.nts.contains(id)).count();
        let uses = |spec: &snic_domain::DagSpec| spec.nodes.iter().any(|node| node.nt == *id);
        let dags = self
            .dags
            .values()
            .filter(|e| uses(e.spec()) || e.placements().any(|p| uses(&p.spec)))
            .count();
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
        self.remove_nt(tx, id);
        Ok(Reply::Done)
    }

    /// Why a caller may not change an NT type: as if it were absent, unless it may be read.
    fn not_changeable_nt(&self, caller: &Caller, id: &NtTypeId) -> ControlError {
        let readable = caller
            .tenant()
            .is_some_and(|tenant| self.nts.get(id).is_some_and(|r| r.nt.is_visible_to(tenant)));
        if readable {
            ControlError::precondition(format!("ntTypes/{id}"), "it is not yours to delete")
        } else {
            ControlError::not_found(format!("ntTypes/{id}"))
        }
    }

    pub(crate) fn remove_nt(&mut self, tx: &mut Tx, id: &NtTypeId) {
        self.nts.remove(id);
        self.catalogue.remove_nt(id);
        tx.delete(key::nt(id));
    }

    pub(crate) fn create_bitstream(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        mut bitstream: Bitstream,
    ) -> Result<Reply, ControlError> {
        let owner = bitstream.id.owner();
        self.check_owner(caller, owner.as_ref(), "bitstream_id")?;
        if self.bitstreams.contains_key(&bitstream.id) {
            return Err(ControlError::exists(format!("bitstreams/{}", bitstream.id)));
        }
        self.check_bitstream(&bitstream, owner.as_ref())?;
        if let Some(owner) = &owner {
            self.check_bitstream_quota(owner, &bitstream)?;
        }
        bitstream.shareable |= owner.is_none();
        let record =
            BitstreamRecord { bitstream: bitstream.clone(), rejected: None, created: self.now };
        tx.put(key::bitstream(&bitstream.id), &record);
        let view = self.bitstream_view(&record, false);
        self.charge_bitstream(&bitstream);
        self.bitstreams.insert(bitstream.id.clone(), record);
        self.catalogue.insert_bitstream(bitstream);
        self.capacity_freed = true;
        Ok(Reply::Bitstream(view))
    }

    fn check_bitstream(
        &self,
        bitstream: &Bitstream,
        owner: Option<&TenantId>,
    ) -> Result<(), ControlError> {
        let slots = bitstream.nts.len();
        if !(1..=CHAIN_SLOTS_MAX).contains(&slots) {
            let rule = format!("it has {slots} NTs; 1 to {CHAIN_SLOTS_MAX} are allowed");
            return Err(ControlError::invalid("nts", rule));
        }
        let usable = |nt: &NtTypeId| {
            self.nts.get(nt).is_some_and(|record| match owner {
                Some(tenant) => record.nt.is_visible_to(tenant),
                None => true,
            })
        };
        if let Some(i) = bitstream.nts.iter().position(|nt| !usable(nt)) {
            let rule = format!("ntTypes/{} does not exist; register it first", bitstream.nts[i]);
            return Err(ControlError::invalid(format!("nts[{i}]"), rule));
        }
        if bitstream.size.get() == 0 || bitstream.size > BITSTREAM_BYTES_MAX {
            let rule =
                format!("{} is not allowed: 1 byte to {BITSTREAM_BYTES_MAX}", bitstream.size);
            return Err(ControlError::invalid("size_bytes", rule));
        }
        Ok(())
    }

    fn check_bitstream_quota(
        &self,
        owner: &TenantId,
        bitstream: &Bitstream,
    ) -> Result<(), ControlError> {
        let Some(record) = self.tenants.get(owner) else { return Ok(()) };
        let quota = record.tenant.quota;
        let usage = self.usage(owner);
        let over = |quota: &str, limit: String, asked: String| ControlError::Quota {
            tenant: format!("tenants/{owner}"),
            quota: quota.to_owned(),
            limit,
            asked,
        };
        let count = usage.bitstreams + 1;
        if count > quota.bitstreams_max {
            let (limit, asked) = (quota.bitstreams_max.to_string(), count.to_string());
            return Err(over("bitstreams_max", limit, asked));
        }
        let bytes = usage.bitstream_bytes + bitstream.size;
        if bytes > quota.bitstream_bytes_max {
            let limit = quota.bitstream_bytes_max.to_string();
            return Err(over("bitstream_bytes_max", limit, bytes.to_string()));
        }
        Ok(())
    }

    pub(crate) fn delete_bitstream(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        id: &BitstreamId,
        etag: Option<&str>,
    ) -> Result<Reply, ControlError> {
        let resource = format!("bitstreams/{id}");
        let owner = id.owner();
        let visible = caller.tenant().is_none_or(|t| owner.as_ref().is_none_or(|o| o == t));
        if !self.bitstreams.contains_key(id) || !visible {
            return Err(ControlError::not_found(resource));
        }
        if !caller.may_change(owner.as_ref()) {
            return Err(ControlError::precondition(resource, "it is not yours to delete"));
        }
        let now = self.bitstreams.get(id).map(|record| self.bitstream_view(record, false).etag);
        check_etag(&resource, etag, now.unwrap_or_default())?;
        let used = self
            .dags
            .values()
            .flat_map(|entry| entry.placements())
            .any(|p| p.mapping.instances().any(|instance| instance.bitstream == *id));
        if used {
            let used = "DAGs use it; delete or change them first";
            return Err(ControlError::precondition(resource, used));
        }
        self.remove_bitstream(tx, id);
        Ok(Reply::Done)
    }

    /// Removes a bitstream that no DAG uses; regions that hold it are free.
    pub(crate) fn remove_bitstream(&mut self, tx: &mut Tx, id: &BitstreamId) {
        for (card, region) in self.regions_with(id) {
            self.set_content(tx, &card, region, None);
            self.emit_region(tx, &card, region);
        }
        self.catalogue.remove_bitstream(id);
        tx.delete(key::bitstream(id));
        if let Some(record) = self.bitstreams.remove(id) {
            self.discharge_bitstream(&record.bitstream);
            let digest = record.bitstream.digest;
            if !self.bitstreams.values().any(|other| other.bitstream.digest == digest) {
                tx.drop_blob(digest);
            }
        }
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
