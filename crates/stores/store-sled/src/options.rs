//! Options of the store.

use std::time::Duration;

/// Options of the store. `Default` suits a host with thousands of DAGs. While a snapshot is taken,
/// changes wait: some ten milliseconds for each 10 MB of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SledOptions {
    /// sled's page cache, in bytes. Without a bound of ours it would take 1 GiB.
    pub cache_bytes: u64,
    /// Groups in the journal before the next snapshot, 1 or more: what an opening has to replay.
    pub snapshot_groups: u64,
    /// Time between snapshots while anything changes. A snapshot that did not succeed is tried
    /// again after it.
    pub snapshot_interval: Duration,
    /// Size of the journal in bytes before the next snapshot.
    pub journal_bytes_max: u64,
}

impl Default for SledOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            snapshot_groups: 10_000,
            snapshot_interval: Duration::from_secs(300),
            journal_bytes_max: 64 << 20,
        }
    }
}
