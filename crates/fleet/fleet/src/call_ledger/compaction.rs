//! Compaction of days that are over: one record for each tenant and day, by minute, and later by hour.

use snic_etcd::{Compare, OPERATIONS_MAX, Operation, Record, Revision, Transaction};

use super::{CallKey, CallRecord};
use crate::records::{UnreadableRecord, Versioned};

/// Ages up to which calls are kept, in days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallAges {
    /// Calls by minute.
    pub minute: u64,
    /// Calls by hour; older ones are gone.
    pub hour: u64,
}

impl Default for CallAges {
    /// Eight days, and two years.
    fn default() -> Self {
        Self { minute: 8, hour: 731 }
    }
}

/// Records that one transaction makes one.
const RECORDS_MAX: usize = OPERATIONS_MAX - 1;
/// Replica of the records of all replicas together.
const ALL: &str = "-";

/// Transaction that makes the records of one tenant and day one, with intervals of at least so many minutes; `None` if they are. It holds
/// only if none of them has changed: a replica that writes calls of that day later than that finds its record gone, and begins a new one.
/// More than one transaction has room for are left for the next time.
///
/// # Errors
/// One cannot be read.
pub fn compaction(
    records: &[Record],
    interval_minutes: u16,
) -> Result<Option<Transaction>, UnreadableRecord> {
    let Some(first) = records.first().and_then(|record| CallKey::parse(&record.key)) else {
        return Ok(None);
    };
    let merged = CallKey { hour: 0, replica: ALL.to_owned(), ..first }.to_string();
    let records = &records[..records.len().min(RECORDS_MAX)];
    let read =
        records.iter().map(|record| Versioned::<CallRecord>::parse(&record.key, &record.value));
    let read: Vec<Versioned<CallRecord>> = read.collect::<Result<_, _>>()?;
    let longest =
        read.iter().map(|of| of.value().interval_minutes).fold(interval_minutes, u16::max);
    let mut sum = CallRecord { interval_minutes: longest, ..CallRecord::default() };
    let mut transaction = Transaction::default();
    let (mut before, mut is_merged) = (Revision(0), true);
    for (record, one) in records.iter().zip(&read) {
        sum.calls.add_all(&one.value().calls, longest);
        is_merged &= record.key == merged && one.value().interval_minutes == longest;
        if record.key == merged {
            before = record.changed;
        } else {
            transaction.compares.push(Compare::ChangedAt(record.key.clone(), record.changed));
            transaction.operations.push(Operation::Delete { key: record.key.clone() });
        }
    }
    if is_merged {
        return Ok(None);
    }
    transaction.compares.push(Compare::ChangedAt(merged.clone(), before));
    let value = Versioned::new(sum).bytes();
    transaction.operations.push(Operation::Put { key: merged, value, lease: None });
    Ok(Some(transaction))
}

/// Transaction that removes these records.
pub fn removal(records: &[Record]) -> Transaction {
    let delete = |record: &Record| Operation::Delete { key: record.key.clone() };
    Transaction { compares: Vec::new(), operations: records.iter().map(delete).collect() }
}
