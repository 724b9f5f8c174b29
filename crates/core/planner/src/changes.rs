//! Counts changes, so that a search that failed is not repeated before something changes.

/// A count of changes. It is not part of the value that it counts for: two counters are always equal.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChangeCounter(u64);

impl ChangeCounter {
    /// Counts one change.
    pub(crate) const fn increment(&mut self) {
        self.0 += 1;
    }

    /// Number of changes so far.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }
}

impl PartialEq for ChangeCounter {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ChangeCounter {}
