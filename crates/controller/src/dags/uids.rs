//! Free rows of the DAG table, and how often each was allocated.

use std::collections::BTreeSet;

use snic_domain::DagUid;
use snic_domain::limits::DAG_ROWS;

use crate::records::{InvalidRecord, RecordKey};

/// The UIDs of DAGs: a row and how often it was given out, so that a packet of a DAG that is gone is
/// not taken for one of the next.
#[derive(Debug, Clone)]
pub(super) struct Uids {
    incarnations: Vec<u32>,
    free: BTreeSet<u16>,
}

impl Default for Uids {
    fn default() -> Self {
        let rows = u16::try_from(DAG_ROWS).unwrap_or(u16::MAX);
        Self { incarnations: vec![0; DAG_ROWS], free: (0..rows).collect() }
    }
}

impl Uids {
    /// How often a row was given out, as the store has it.
    ///
    /// # Errors
    /// There is no such row.
    pub fn restore(&mut self, row: u16, incarnation: u32) -> Result<(), InvalidRecord> {
        let wrong = || InvalidRecord::contradiction(RecordKey::Uid(row), "there is no such row");
        *self.incarnations.get_mut(usize::from(row)).ok_or_else(wrong)? = incarnation;
        Ok(())
    }

    /// A DAG of the store has this one.
    pub fn restore_taken(&mut self, uid: DagUid) {
        self.free.remove(&uid.row());
    }

    /// The UID that the next DAG gets, if a row is free.
    pub fn peek(&self) -> Option<DagUid> {
        let row = *self.free.first()?;
        let next = self.incarnations[usize::from(row)] + 1;
        DagUid::new(row, next).or_else(|| DagUid::new(row, 1))
    }

    /// How many DAGs may be added.
    pub fn left(&self) -> usize {
        self.free.len()
    }

    pub fn take(&mut self, uid: DagUid) {
        let was_free = self.free.remove(&uid.row());
        debug_assert!(was_free, "{uid:?} is given out once");
        self.incarnations[usize::from(uid.row())] = uid.incarnation();
    }

    pub fn give(&mut self, uid: DagUid) {
        self.free.insert(uid.row());
    }

    pub fn is_free(&self, uid: DagUid) -> bool {
        self.free.contains(&uid.row())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_given_back_comes_again_as_another_uid() {
        let mut uids = Uids::default();
        let first = uids.peek().expect("all are free");
        uids.take(first);
        assert_ne!(uids.peek().map(DagUid::row), Some(first.row()));
        uids.give(first);
        let second = uids.peek().expect("it is free again");
        assert_eq!((second.row(), second.incarnation()), (first.row(), first.incarnation() + 1));
    }

    #[test]
    fn uids_found_in_the_store_are_not_reused() {
        let mut uids = Uids::default();
        let uid = uids.peek().expect("all are free");
        uids.restore(uid.row(), 7).expect("there is such a row");
        uids.restore_taken(uid);
        assert!(!uids.is_free(uid));
        uids.give(uid);
        assert_eq!(uids.peek().map(DagUid::incarnation), Some(8));
        let row = u16::try_from(DAG_ROWS).expect("few");
        assert!(uids.restore(row, 1).is_err(), "there is no such row");
    }
}
