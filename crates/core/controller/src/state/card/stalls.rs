//! The stalls of a card: times that NTs of a region let no packet go.
//!
//! Every commit of a card waits for a region that stalls, so whoever stalls again and again may not come back soon. A count that
//! belonged to the region would be forgotten when the region gets something else, and a tenant who deletes a DAG and makes it
//! again would hold up everybody each time. So a tenant answers for all of its own bitstreams on the card; for one of the provider's,
//! which many tenants use, only the region waits that stalled. Counts are kept in memory, for an hour after the last stall.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_domain::{BitstreamId, TenantId, Timestamp};

/// Time after which a stall counts as the first again.
const STALL_KEPT: Duration = Duration::from_secs(3_600);
/// Longest wait after a stall.
const STALL_WAIT_MAX: Duration = Duration::from_secs(300);

/// The party that a stall is counted against.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Owner(TenantId),
    Provided(BitstreamId),
}

/// Stalls in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stall {
    /// Stalls with less than [`STALL_KEPT`] between them.
    pub count: u32,
    /// Time of the last.
    last: Timestamp,
    /// Nothing of the cause is loaded before.
    pub until: Timestamp,
}

fn cause_of(bitstream: &BitstreamId) -> Cause {
    bitstream.owner().map_or_else(|| Cause::Provided(bitstream.clone()), Cause::Owner)
}

/// The stalls of one card, by cause.
#[derive(Debug, Default)]
pub(super) struct Stalls(BTreeMap<Cause, Stall>);

impl Stalls {
    /// Counts a stall of a bitstream: the wait is `backoff` times 8 for the first, and eight times as long for each further one.
    pub fn count(&mut self, now: Timestamp, bitstream: &BitstreamId, backoff: Duration) -> Stall {
        self.0.retain(|_, stall| now.since(stall.last) < STALL_KEPT);
        let cause = cause_of(bitstream);
        let before = self.0.get(&cause).map_or(0, |stall| stall.count);
        let count = before.saturating_add(1);
        let wait = backoff.saturating_mul(8u32.saturating_pow(count)).min(STALL_WAIT_MAX);
        let stall = Stall { count, last: now, until: now + wait };
        self.0.insert(cause, stall);
        stall
    }

    /// Forgets the stalls of a bitstream's cause: somebody has seen to it.
    pub fn forgive(&mut self, bitstream: &BitstreamId) {
        self.0.remove(&cause_of(bitstream));
    }

    /// Why nothing of the bitstream's owner is loaded now, where that is so.
    pub fn holds(&self, now: Timestamp, bitstream: &BitstreamId) -> Option<Stall> {
        if self.0.is_empty() {
            return None;
        }
        let stall = self.0.get(&Cause::Owner(bitstream.owner()?))?;
        (now < stall.until).then_some(*stall)
    }
}
