//! Wait of a rejected bitstream for a retry, and what is remembered of it when it is deleted: whoever uploads the
//! same bytes again waits as long.

use std::time::Duration;

use snic_domain::{Digest, TenantId, Timestamp};

use super::Registry;
use crate::protocol::BitstreamRejection;
use crate::store::records::{BitstreamRecord, PastRejection, Record};
use crate::store::tx::Tx;

/// Wait of a bitstream's owner before the first retry.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(60);
/// The longest such wait: a tenant that retries a broken bitstream for ever costs two regions a few loads a
/// day.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Beyond as many doublings the wait is the longest in any case.
const RETRY_DOUBLINGS_MAX: u32 = 11;
/// Number of deleted bitstreams of a tenant that are remembered: as many as it may have by default. The oldest go
/// first.
pub(crate) const REMEMBERED_MAX: usize = 32;

/// Why nothing is planned with a bitstream, if it is rejected.
pub(super) fn rejection(record: &BitstreamRecord) -> Option<BitstreamRejection> {
    let reason = record.rejected.clone()?;
    let since = record.rejected_at.unwrap_or(record.created);
    Some(BitstreamRejection { reason, since, retry_from: since + pause(record.rejections) })
}

/// Wait after this many rejections.
fn pause(times: u32) -> Duration {
    let doublings = times.saturating_sub(1).min(RETRY_DOUBLINGS_MAX);
    (RETRY_PAUSE_MIN * (1 << doublings)).min(RETRY_PAUSE_MAX)
}

/// Past rejections of these bytes, if there were any.
fn past(record: &BitstreamRecord, digest: Digest, now: Timestamp) -> Option<PastRejection> {
    (record.rejections > 0).then(|| PastRejection {
        digest,
        reason: record.rejected.clone(),
        at: record.rejected_at.unwrap_or(now),
        times: record.rejections,
    })
}

impl Registry {
    /// A tenant deletes a bitstream: if it was rejected, that is remembered for a day, the longest wait.
    pub(super) fn remember_rejection(&mut self, tx: &mut Tx, record: &BitstreamRecord) {
        let Some(owner) = record.bitstream.id.owner() else { return };
        let images = record.bitstream.images.iter();
        let past: Vec<_> =
            images.filter_map(|image| past(record, image.digest, tx.now())).collect();
        if !past.is_empty() {
            self.change_rejections(tx, &owner, |all| all.extend(past));
        }
    }

    /// A tenant uploads what was rejected before: it is as often rejected, and waits as long. Time O(bitstreams).
    pub(super) fn recall_rejection(&mut self, tx: &mut Tx, record: &mut BitstreamRecord) {
        let owner = record.bitstream.id.owner();
        let Some(owner) = owner.filter(|owner| self.tenants.contains_key(owner)) else { return };
        let now = tx.now();
        let images = record.bitstream.images.iter();
        let all = images.filter_map(|image| self.take_rejection(tx, &owner, image.digest));
        let Some(past) = all.max_by_key(|past| (past.times, past.at)) else { return };
        record.rejections = past.times;
        if past.at + pause(past.times) > now {
            record.rejected_at = past.reason.is_some().then_some(past.at);
            record.rejected = past.reason;
        }
    }

    /// Past rejections of these bytes, of a tenant's bitstreams that are there and of deleted ones; they are
    /// not remembered any more. Time O(bitstreams).
    fn take_rejection(
        &mut self,
        tx: &mut Tx,
        owner: &TenantId,
        digest: Digest,
    ) -> Option<PastRejection> {
        let (now, mut found) = (tx.now(), Vec::new());
        if self.tenants[owner].rejections.iter().any(|past| past.digest == digest) {
            self.change_rejections(tx, owner, |all| {
                found.extend(all.extract_if(.., |past| past.digest == digest));
            });
        }
        let own = self.bitstreams.values().filter(|other| other.bitstream.id.is_owned_by(owner));
        let same = own.filter(|other| other.bitstream.images.with_digest(digest).is_some());
        found.extend(same.filter_map(|other| past(other, digest, now)));
        found.into_iter().max_by_key(|past| (past.times, past.at))
    }

    /// Fails where these bytes of a tenant were rejected and their wait is not over: a bitstream is rejected as a
    /// whole, so they are not added to one that is not. Time O(bitstreams).
    pub(super) fn check_not_rejected(
        &self,
        owner: &TenantId,
        digest: Digest,
        now: Timestamp,
    ) -> Result<(), String> {
        let remembered = self.tenants.get(owner).into_iter().flat_map(|of| &of.rejections);
        let remembered = remembered.filter(|past| past.digest == digest).cloned();
        let own = self.bitstreams.values().filter(|other| other.bitstream.id.is_owned_by(owner));
        let same = own.filter(|other| other.bitstream.images.with_digest(digest).is_some());
        let mut all = remembered.chain(same.filter_map(|other| past(other, digest, now)));
        let waits =
            |past: &PastRejection| past.reason.is_some() && past.at + pause(past.times) > now;
        match all.find(waits) {
            None => Ok(()),
            Some(past) => {
                let seconds = (past.at + pause(past.times)).since(now).as_secs() + 1;
                Err(format!(
                    "an image with these bytes was rejected; upload it again in {seconds} s"
                ))
            }
        }
    }

    /// Changes and stores what is remembered of a tenant's deleted bitstreams, without what is too old or too much.
    fn change_rejections(
        &mut self,
        tx: &mut Tx,
        owner: &TenantId,
        change: impl FnOnce(&mut Vec<PastRejection>),
    ) {
        // A bitstream may outlive its tenant in stores that were repaired.
        let Some(record) = self.tenants.get_mut(owner) else { return };
        let all = &mut record.rejections;
        all.retain(|past| past.at + RETRY_PAUSE_MAX > tx.now());
        change(all);
        all.drain(..all.len().saturating_sub(REMEMBERED_MAX));
        tx.put(Record::Tenant(record.clone()));
    }
}
