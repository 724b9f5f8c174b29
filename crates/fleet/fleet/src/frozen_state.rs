//! State that a leader keeps while etcd refuses its writes.

use snic_domain::Timestamp;
use snic_etcd::backoff::Backoff;

use crate::protocol::{FleetAsk, FleetCall, StoreRefusal};
use crate::standby::RecordCopy;

/// State that a leader keeps while etcd refuses its writes.
#[derive(Debug)]
pub(crate) struct FrozenState {
    pub(super) refusal: StoreRefusal,
    /// Set until all records are read again.
    pub(super) reading: Option<RecordCopy>,
    /// Reads that wait for the records.
    pub(super) waiting: Vec<(FleetCall, FleetAsk)>,
    pub(super) probe_at: Timestamp,
    pub(super) backoff: Backoff,
    pub(super) told_at: Timestamp,
}

impl FrozenState {
    pub const fn refusal(&self) -> &StoreRefusal {
        &self.refusal
    }

    /// Whether what is in the leader's memory is what is stored.
    pub const fn memory_counts(&self) -> bool {
        self.reading.is_none()
    }

    /// The calls that wait for the records.
    pub fn into_calls(self) -> impl Iterator<Item = FleetCall> {
        self.waiting.into_iter().map(|(call, _)| call)
    }
}
