//! Group of batches in one transaction: as many as fit, each whole.

use std::collections::BTreeMap;

use snic_etcd::{OPERATIONS_MAX, REQUEST_BYTES_MAX};
use snic_ports::store::Batch;

/// Room for the head.
const HEAD_BYTES: usize = 2_048;

/// Bytes of an operation besides its key and value, with the prefix of the keys.
const OPERATION_BYTES: usize = 256;

/// Changes of records, the last one of each key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Group {
    writes: BTreeMap<String, Option<Vec<u8>>>,
    bytes: usize,
}

impl Group {
    /// The changes of one batch.
    pub(super) fn of(batch: Batch) -> Self {
        let mut group = Self::default();
        batch.writes.into_iter().for_each(|write| group.set(write.key, write.value));
        group
    }

    /// Whether it fits into one transaction beside the head.
    pub(super) fn fits(&self) -> bool {
        self.writes.len() < OPERATIONS_MAX && self.bytes <= REQUEST_BYTES_MAX - HEAD_BYTES
    }

    /// Takes in another group's changes behind its own, if both fit into one transaction; gives it
    /// back if not. An empty group takes in any.
    pub(super) fn take_in(&mut self, other: Self) -> Result<(), Self> {
        if self.writes.is_empty() {
            *self = other;
            return Ok(());
        }
        // Keys of both count twice: at worst another transaction begins too early.
        if self.writes.len() + other.writes.len() >= OPERATIONS_MAX
            || self.bytes + other.bytes > REQUEST_BYTES_MAX - HEAD_BYTES
        {
            return Err(other);
        }
        other.writes.into_iter().for_each(|(key, value)| self.set(key, value));
        Ok(())
    }

    fn set(&mut self, key: String, value: Option<Vec<u8>>) {
        let bytes = |key: &str, value: &Option<Vec<u8>>| {
            OPERATION_BYTES + key.len() + value.as_ref().map_or(0, Vec::len)
        };
        self.bytes += bytes(&key, &value);
        let length = key.len();
        if let Some(replaced) = self.writes.insert(key, value) {
            self.bytes -= OPERATION_BYTES + length + replaced.map_or(0, |value| value.len());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The changes, in the order of keys.
    pub(super) fn into_writes(self) -> BTreeMap<String, Option<Vec<u8>>> {
        self.writes
    }

    /// Pieces of changes that each fit into a transaction beside the head.
    pub(super) fn pieces(
        writes: impl IntoIterator<Item = (String, Option<Vec<u8>>)>,
    ) -> Vec<BTreeMap<String, Option<Vec<u8>>>> {
        let (mut pieces, mut piece) = (Vec::new(), Self::default());
        for (key, value) in writes {
            let one = Self::of(Batch { writes: vec![snic_ports::store::Write { key, value }] });
            if let Err(one) = piece.take_in(one) {
                pieces.push(std::mem::replace(&mut piece, one).writes);
            }
        }
        if !piece.is_empty() {
            pieces.push(piece.writes);
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_ports::store::{KEY_BYTES_MAX, RECORD_BYTES_MAX};

    use super::*;

    fn batch(first: usize, count: usize) -> Batch {
        (first..first + count).fold(Batch::new(), |batch, i| batch.put(format!("{i:04}"), "v"))
    }

    #[test]
    fn batches_are_put_together_while_they_fit() {
        let mut group = Group::default();
        assert!(group.take_in(Group::of(batch(0, 100))).is_ok());
        assert!(group.take_in(Group::of(batch(100, 27))).is_ok());
        assert!(group.fits());
        let one_more = Group::of(batch(200, 1));
        assert_eq!(group.take_in(one_more.clone()), Err(one_more));
        assert!(!Group::of(batch(0, 128)).fits());
    }

    #[test]
    fn the_last_change_of_a_key_counts_and_takes_the_room() {
        let large = vec![7; RECORD_BYTES_MAX];
        let writes = Batch::new().put("a", large.clone()).put("a", large.clone()).put("a", large);
        let once = Group::of(writes.remove("a"));
        assert_eq!(once.bytes, OPERATION_BYTES + 1);
        assert_eq!(once.into_writes(), BTreeMap::from([("a".to_owned(), None)]));
    }

    proptest! {
        /// Pieces are what etcd takes, whatever the prefix of at most 150 bytes; together they are all.
        #[test]
        fn pieces_fit_and_leave_nothing_out(
            sizes in prop::collection::vec(
                prop_oneof![9 => 0..200_usize, 1 => 0..=RECORD_BYTES_MAX], 0..300,
            ),
        ) {
            let prefix = "p".repeat(150);
            let key = |i: usize| format!("{i:0width$}", width = KEY_BYTES_MAX);
            let value = |size: usize| (size > 0).then(|| vec![0; size]);
            let writes: BTreeMap<String, Option<Vec<u8>>> =
                sizes.iter().enumerate().map(|(i, size)| (key(i), value(*size))).collect();
            let mut again = BTreeMap::new();
            for piece in Group::pieces(writes.clone()) {
                let operation = |(key, value): (&String, &Option<Vec<u8>>)| {
                    let key = format!("{prefix}{key}");
                    match value.clone() {
                        Some(value) => snic_etcd::Operation::Put { key, value, lease: None },
                        None => snic_etcd::Operation::Delete { key },
                    }
                };
                let head = snic_etcd::Operation::Put {
                    key: prefix.clone(), value: vec![0; 100], lease: None,
                };
                let operations = piece.iter().map(operation).chain([head]).collect();
                let compares =
                    vec![snic_etcd::Compare::ChangedAt(prefix.clone(), snic_etcd::Revision(1))];
                let transaction = snic_etcd::Transaction { compares, operations };
                prop_assert_eq!(transaction.check(), Ok(()));
                again.extend(piece);
            }
            prop_assert_eq!(again, writes);
        }
    }
}
