//! How often something changed, so that a search that failed need not be made again before.

/// A count of changes. It is no part of what is counted: two counts are always equal.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Changes(u64);

impl Changes {
    /// One more.
    pub(crate) const fn count(&mut self) {
        self.0 += 1;
    }

    /// How many so far.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }
}

impl PartialEq for Changes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Changes {}
