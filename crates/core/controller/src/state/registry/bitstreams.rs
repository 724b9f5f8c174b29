//! Bitstreams: registered once, immutable, removed when nothing uses them.

use std::collections::BTreeSet;
use std::fmt::Display;

use snic_domain::limits::{BITSTREAM_BYTES_MAX, CHAIN_SLOTS_MAX};
use snic_domain::{
    Area, Bitstream, BitstreamId, CardModel, Digest, NtTypeId, RegionImage, ReportedChain,
    TenantId, Timestamp,
};

use super::Registry;
use super::rejections::rejection;
use crate::protocol::etag::{check_etag, etag};
use crate::protocol::{BitstreamRejection, BitstreamView, Caller, ControlError};
use crate::store::records::{BitstreamRecord, Record, RecordKey, storable_reason};
use crate::store::tx::Tx;

impl Registry {
    /// A bitstream, if there is one.
    pub fn bitstream(&self, id: &BitstreamId) -> Option<&Bitstream> {
        self.bitstreams.get(id).map(|record| &record.bitstream)
    }

    /// All bitstreams, by id.
    pub fn bitstreams(&self) -> impl Iterator<Item = &Bitstream> {
        self.bitstreams.values().map(|record| &record.bitstream)
    }

    /// Whether a bitstream has these bytes.
    pub fn uses_digest(&self, digest: Digest) -> bool {
        self.digests().any(|of| of == digest)
    }

    /// The digests of all images, by bitstream.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        self.bitstreams().flat_map(|bitstream| bitstream.images.iter().map(|image| image.digest))
    }

    /// Chains that regions of a card model have to report with the bitstreams for it, by their digests.
    pub fn chains_for(&self, model: &CardModel) -> impl Iterator<Item = (Digest, ReportedChain)> {
        let of_model = self.bitstreams().filter(move |bitstream| bitstream.card_model == *model);
        of_model.flat_map(|bitstream| {
            let chain = bitstream.reported_chain();
            bitstream.images.iter().map(move |image| (image.digest, chain))
        })
    }

    /// The bitstreams that `caller` may know of, by id: the provider's and its own. Which regions
    /// hold them is not known here.
    pub fn bitstream_views(&self, caller: &Caller) -> impl Iterator<Item = BitstreamView> {
        let readable = |record: &&BitstreamRecord| is_readable(&record.bitstream, caller);
        self.bitstreams.values().filter(readable).map(|record| self.view_of_bitstream(record))
    }

    /// One bitstream, if `caller` may know of it.
    pub fn bitstream_view(&self, caller: &Caller, id: &BitstreamId) -> Option<BitstreamView> {
        let record =
            self.bitstreams.get(id).filter(|record| is_readable(&record.bitstream, caller));
        record.map(|record| self.view_of_bitstream(record))
    }

    pub(super) fn view_of_bitstream(&self, record: &BitstreamRecord) -> BitstreamView {
        let bitstream = &record.bitstream;
        let area = |nt| self.nt(nt).map_or(Area::default(), |nt| nt.area);
        BitstreamView {
            bitstream: bitstream.clone(),
            area: bitstream.nts.iter().map(area).sum(),
            regions: Vec::new(),
            missing_regions: Vec::new(),
            rejection: rejection(record).or_else(|| {
                let why = self.revoked(&bitstream.id)?;
                let reason = format!("no key that counts has signed it: {why}");
                let since = record.created;
                Some(BitstreamRejection { reason, since, retry_from: since })
            }),
            etag: etag_of(record),
            created: record.created,
            fleet_number: record.fleet_number,
        }
    }

    /// Registers a bitstream, or adds its image to the one of its name.
    ///
    /// # Errors
    /// The caller may not, it is not valid, it would be beyond its owner's quota, or there is another of its name.
    pub fn create_bitstream(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        mut bitstream: Bitstream,
    ) -> Result<BitstreamView, ControlError> {
        bitstream.shareable |= bitstream.id.owner().is_none();
        self.check_new_bitstream(tx.now(), caller, &bitstream)?;
        if self.bitstreams.contains_key(&bitstream.id) {
            return self.add_image(tx, &bitstream);
        }
        let mut record = BitstreamRecord {
            bitstream,
            rejected: None,
            rejected_at: None,
            rejections: 0,
            created: tx.now(),
            fleet_number: None,
        };
        self.recall_rejection(tx, &mut record);
        tx.put(Record::Bitstream(record.clone()));
        let id = record.bitstream.id.clone();
        if record.rejected.is_none() {
            self.catalogue_mut().insert_bitstream(record.bitstream.clone());
        }
        self.keep_bitstream(record);
        // It was checked by the keys of then, or by those of the fleet.
        self.judge(&id);
        Ok(self.view_of_bitstream(&self.bitstreams[&id]))
    }

    /// # Errors
    /// As [`Registry::create_bitstream`]; `bitstream` is shareable where it is the provider's.
    pub fn check_new_bitstream(
        &self,
        now: Timestamp,
        caller: &Caller,
        bitstream: &Bitstream,
    ) -> Result<(), ControlError> {
        let owner = bitstream.id.owner();
        self.check_owner(caller, owner.as_ref(), "bitstream_id")?;
        if self.bitstreams.contains_key(&bitstream.id) {
            return self.check_new_image(now, bitstream).map(drop);
        }
        self.check_bitstream(bitstream, owner.as_ref())?;
        match &owner {
            Some(owner) => self.check_image_quota(owner, &bitstream.images),
            None => Ok(()),
        }
    }

    /// A bitstream is there from now on, and its owner is charged for it.
    pub(super) fn keep_bitstream(&mut self, record: BitstreamRecord) {
        self.charge_bitstream(&record.bitstream);
        let id = &record.bitstream.id;
        for nt in &record.bitstream.nts {
            self.holders.entry(nt.clone()).or_default().insert(id.clone());
        }
        self.bitstreams.insert(id.clone(), record);
    }

    /// The bitstreams with an NT type, by id: those of one owner stand together.
    pub(super) fn holders_of(&self, nt: &NtTypeId) -> Option<&BTreeSet<BitstreamId>> {
        self.holders.get(nt)
    }

    /// Whether bitstreams of others than the owner have an NT type. Time O(log bitstreams).
    pub fn others_hold(&self, nt: &NtTypeId, owner: &TenantId) -> bool {
        let ids = self.holders_of(nt);
        let ends = ids.into_iter().flat_map(|ids| ids.first().into_iter().chain(ids.last()));
        ends.into_iter().any(|id| !id.is_owned_by(owner))
    }

    /// The fleet manages a bitstream, under this number.
    pub fn number_bitstream(&mut self, tx: &mut Tx, id: &BitstreamId, number: u64) {
        if let Some(record) = self.bitstreams.get_mut(id) {
            record.fleet_number = Some(number);
            tx.put(Record::Bitstream(record.clone()));
        }
    }

    /// The number of a bitstream that the fleet manages.
    pub fn number_of_bitstream(&self, id: &BitstreamId) -> Option<u64> {
        self.bitstreams.get(id)?.fleet_number
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
        let is_unknown = |nt: &NtTypeId| match owner {
            Some(tenant) => self.usable_nt(tenant, nt).is_none(),
            None => self.nt(nt).is_none(),
        };
        if let Some(i) = bitstream.nts.iter().position(is_unknown) {
            let rule = format!("ntTypes/{} does not exist; register it first", bitstream.nts[i]);
            return Err(ControlError::invalid(format!("nts[{i}]"), rule));
        }
        bitstream.images.iter().try_for_each(check_size)
    }

    /// Fails where `caller` may not delete a bitstream, or it is not as it was read.
    pub fn check_bitstream_deletion(
        &self,
        caller: &Caller,
        id: &BitstreamId,
        etag: Option<&str>,
    ) -> Result<(), ControlError> {
        self.check_bitstream_change(caller, id, etag, "delete")
    }

    pub(super) fn check_bitstream_change(
        &self,
        caller: &Caller,
        id: &BitstreamId,
        etag: Option<&str>,
        verb: &str,
    ) -> Result<(), ControlError> {
        let resource = format!("bitstreams/{id}");
        let record =
            self.bitstreams.get(id).filter(|record| is_readable(&record.bitstream, caller));
        let record = record.ok_or_else(|| ControlError::not_found(&resource))?;
        if !caller.may_change(id.owner().as_ref()) {
            let text = format!("only its owner can {verb} it");
            return Err(ControlError::precondition(resource, text));
        }
        check_etag(&resource, etag, etag_of(record))
    }

    /// Removes a bitstream that no region is to hold any more, and its bytes with the last one that
    /// has them.
    pub fn remove_bitstream(&mut self, tx: &mut Tx, id: &BitstreamId) {
        self.catalogue_mut().remove_bitstream(id);
        tx.delete(RecordKey::Bitstream(id.clone()));
        let record = self.bitstreams.remove(id).expect("its owner or an operator named it");
        self.revoked.remove(id);
        self.discharge_bitstream(&record.bitstream);
        for nt in &record.bitstream.nts {
            let Some(ids) = self.holders.get_mut(nt) else { continue }; // one that is in it twice
            ids.remove(id);
            if ids.is_empty() {
                self.holders.remove(nt);
            }
        }
        self.remember_rejection(tx, &record);
        for image in &record.bitstream.images {
            self.drop_unused_blob(tx, image.digest);
        }
    }

    /// Removes bytes that no bitstream has any more.
    pub(super) fn drop_unused_blob(&self, tx: &mut Tx, digest: Digest) {
        if !self.uses_digest(digest) {
            tx.drop_blob(digest);
        }
    }

    /// Sets the bitstreams that no plan uses for the time being.
    pub fn withhold(&mut self, ids: &BTreeSet<BitstreamId>) {
        self.catalogue_mut().withhold(ids);
    }

    /// Takes a rejected bitstream back.
    ///
    /// # Errors
    /// `caller` may not, it is not as it was read, it is not rejected, or it is too early for its owner: each
    /// retry may cost two regions several loads.
    pub fn retry_bitstream(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        id: &BitstreamId,
        etag: Option<&str>,
    ) -> Result<BitstreamView, ControlError> {
        self.check_bitstream_change(caller, id, etag, "retry")?;
        let record = self.bitstreams.get_mut(id).expect("it was just looked at");
        let resource = format!("bitstreams/{id}");
        let Some(rejection) = rejection(record) else {
            let text = match self.revoked.get(id) {
                Some(why) => why.to_string(),
                None => "it is not rejected".to_owned(),
            };
            return Err(ControlError::precondition(resource, text));
        };
        let wait = rejection.retry_from.since(tx.now());
        if caller.tenant().is_some() && !wait.is_zero() {
            let (times, seconds) = (record.rejections, wait.as_secs() + 1);
            let text = format!("rejections so far: {times}; it can be retried in {seconds} s");
            return Err(ControlError::precondition(resource, text));
        }
        record.rejected = None;
        record.rejected_at = None;
        tx.put(Record::Bitstream(record.clone()));
        let bitstream = record.bitstream.clone();
        self.catalogue_mut().insert_bitstream(bitstream);
        Ok(self.view_of_bitstream(&self.bitstreams[id]))
    }

    /// A bitstream cannot be loaded anywhere: nothing is planned with it any more.
    pub fn reject_bitstream(&mut self, tx: &mut Tx, id: &BitstreamId, reason: String) {
        // It may have been deleted while a load of it was under way.
        if let Some(record) = self.bitstreams.get_mut(id) {
            record.rejected = Some(storable_reason(reason));
            record.rejected_at = Some(tx.now());
            record.rejections = record.rejections.saturating_add(1);
            tx.put(Record::Bitstream(record.clone()));
            self.catalogue_mut().remove_bitstream(id);
        }
    }
}

/// # Errors
/// It is empty, or larger than any bitstream may be.
pub(super) fn check_size(image: &RegionImage) -> Result<(), ControlError> {
    if image.size.get() == 0 || image.size > BITSTREAM_BYTES_MAX {
        let rule = format!("{} is not allowed: 1 byte to {BITSTREAM_BYTES_MAX}", image.size);
        return Err(ControlError::invalid("size_bytes", rule));
    }
    Ok(())
}

/// A bitstream that was never rejected and has one image keeps the record that it had.
fn etag_of(record: &BitstreamRecord) -> String {
    let (id, created) = (&record.bitstream.id, record.created.as_nanos());
    let (images, is_rejected) = (&record.bitstream.images, record.rejected.is_some());
    let digests: String = images.iter().map(|image| image.digest.to_string()).collect();
    let mut parts: Vec<&dyn Display> = vec![id, &created];
    if record.rejections > 0 {
        parts.extend([&record.rejections as &dyn Display, &is_rejected]);
    }
    if images.len() > 1 {
        parts.push(&digests);
    }
    etag(&parts)
}

fn is_readable(bitstream: &Bitstream, caller: &Caller) -> bool {
    caller.tenant().is_none_or(|tenant| bitstream.is_loadable_by(tenant))
}
