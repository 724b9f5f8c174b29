//! Incarnations of each row of the DAG table.

use snic_domain::DagUid;
use snic_domain::limits::DAG_ROWS;

use crate::store::records::{InvalidRecord, RecordKey};

/// The UIDs of DAGs: a row and how often it was given out, so that a packet of a DAG that is gone is
/// not taken for one of the next. Rows are counted over all cards, so no two DAGs have one UID, wherever they
/// are; which rows are free is a card's matter.
#[derive(Debug, Clone)]
pub(super) struct Uids {
    incarnations: Vec<u32>,
}

impl Default for Uids {
    fn default() -> Self {
        Self { incarnations: vec![0; DAG_ROWS] }
    }
}

impl Uids {
    /// Restores the incarnation of a row from the store.
    ///
    /// # Errors
    /// There is no such row.
    pub fn restore(&mut self, row: u16, incarnation: u32) -> Result<(), InvalidRecord> {
        let wrong = || InvalidRecord::contradiction(RecordKey::Uid(row), "there is no such row");
        *self.incarnations.get_mut(usize::from(row)).ok_or_else(wrong)? = incarnation;
        Ok(())
    }

    /// The UID that the next DAG gets in a row.
    pub fn next(&self, row: u16) -> Option<DagUid> {
        let next = self.incarnations.get(usize::from(row))? + 1;
        DagUid::new(row, next).or_else(|| DagUid::new(row, 1))
    }

    /// Notes that a UID was given out.
    pub fn take(&mut self, uid: DagUid) {
        self.incarnations[usize::from(uid.row())] = uid.incarnation();
    }
}

/// Rows of the DAG table that are taken, one bit each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TakenRows([u64; DAG_ROWS / 64]);

impl TakenRows {
    pub fn insert(&mut self, row: u16) {
        self.0[usize::from(row) / 64] |= 1 << (row % 64);
    }

    pub fn remove(&mut self, row: u16) {
        self.0[usize::from(row) / 64] &= !(1 << (row % 64));
    }

    pub fn contains(&self, row: u16) -> bool {
        self.0[usize::from(row) / 64] >> (row % 64) & 1 == 1
    }

    /// The lowest row that is free.
    pub fn first_free(&self) -> Option<u16> {
        let at = self.0.iter().position(|word| *word != u64::MAX)?;
        u16::try_from(at * 64 + self.0[at].trailing_ones() as usize).ok()
    }
}

/// Rows that are taken on any card, with the number of DAGs that have each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowCounts {
    counts: Vec<u32>,
    taken: TakenRows,
}

impl Default for RowCounts {
    fn default() -> Self {
        Self { counts: vec![0; DAG_ROWS], taken: TakenRows::default() }
    }
}

impl RowCounts {
    pub fn add(&mut self, row: u16) {
        self.counts[usize::from(row)] += 1;
        self.taken.insert(row);
    }

    pub fn remove(&mut self, row: u16) {
        let count = &mut self.counts[usize::from(row)];
        *count -= 1;
        if *count == 0 {
            self.taken.remove(row);
        }
    }

    /// The rows that DAGs have.
    pub const fn taken(&self) -> &TakenRows {
        &self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_again_as_another_uid() {
        let mut uids = Uids::default();
        let first = uids.next(5).expect("there is such a row");
        uids.take(first);
        let second = uids.next(5).expect("there is such a row");
        assert_eq!((second.row(), second.incarnation()), (5, first.incarnation() + 1));
        let rows = u16::try_from(DAG_ROWS).expect("few");
        assert_eq!(uids.next(rows), None);
    }

    #[test]
    fn what_the_store_has_is_not_given_out_again() {
        let mut uids = Uids::default();
        uids.restore(3, 7).expect("there is such a row");
        assert_eq!(uids.next(3).map(DagUid::incarnation), Some(8));
        let row = u16::try_from(DAG_ROWS).expect("few");
        assert!(uids.restore(row, 1).is_err(), "there is no such row");
    }

    #[test]
    fn the_lowest_free_row_is_found_until_all_are_taken() {
        let mut taken = TakenRows::default();
        for row in 0..DAG_ROWS as u16 {
            assert_eq!(taken.first_free(), Some(row));
            taken.insert(row);
        }
        assert_eq!(taken.first_free(), None);
        taken.remove(70);
        assert_eq!((taken.first_free(), taken.contains(69)), (Some(70), true));
    }

    #[test]
    fn a_row_is_free_when_the_last_dag_has_left_it() {
        let mut rows = RowCounts::default();
        [0, 0, 1].into_iter().for_each(|row| rows.add(row));
        rows.remove(0);
        assert_eq!(rows.taken().first_free(), Some(2), "another card's DAG has it still");
        rows.remove(0);
        assert_eq!(rows.taken().first_free(), Some(0));
    }
}
