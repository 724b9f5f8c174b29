//! A DAG that may change.

use std::ops::{Deref, DerefMut};

use super::DagEntry;
use super::entries::{DagNumber, NamedEntry};
use super::sums::DagSums;

/// A DAG that may change. Sums over all DAGs follow when it is let go.
#[derive(Debug)]
pub(crate) struct DagMut<'a> {
    number: DagNumber,
    of: &'a mut NamedEntry,
    sums: &'a mut DagSums,
}

impl<'a> DagMut<'a> {
    pub(super) const fn new(
        number: DagNumber,
        of: &'a mut NamedEntry,
        sums: &'a mut DagSums,
    ) -> Self {
        Self { number, of, sums }
    }
}

impl Deref for DagMut<'_> {
    type Target = DagEntry;

    fn deref(&self) -> &DagEntry {
        &self.of.entry
    }
}

impl DerefMut for DagMut<'_> {
    fn deref_mut(&mut self) -> &mut DagEntry {
        &mut self.of.entry
    }
}

impl Drop for DagMut<'_> {
    fn drop(&mut self) {
        self.sums.note(self.number, &self.of.name, &self.of.entry);
    }
}
