//! Calls of the API that a fleet's replicas count, by tenant and minute.
//!
//! ```text
//!  calls by tenant ──► CallLedger ── transactions ──► etcd: one record for each tenant, hour and replica
//!                          ▲ answers ◄──────────────┘        one record for each replica: until when all is counted
//!  etcd ── records ──► CallSums ──► entries of usage
//!  etcd ── old days ──► compaction ──► one record for each tenant and day
//! ```
//!
//! Each replica adds up in memory and writes what has changed now and then. Only it writes its records, and each of its transactions
//! writes its [`CountingRecord`] with the transaction's number, conditional on what the replica wrote last. So a transaction that is
//! sent twice is carried out once, and the record says whether one without an answer was.
//!
//! These records are not below the prefix of the fleet's own: replicas keep copies of those.

mod compaction;
mod ledger;
mod records;
mod sums;

pub use compaction::{CallAges, compaction, removal};
pub use ledger::CallLedger;
pub use records::{CallGap, CallKey, CallRecord, CountingRecord, DayCalls, REPLICAS, day_prefix};
pub use sums::CallSums;

/// Prefix of the records of days.
pub const DAYS: &str = "/snic/calls/v1/days/";

/// Seconds of a day.
const DAY: u64 = 86_400;

#[cfg(test)]
mod tests;
