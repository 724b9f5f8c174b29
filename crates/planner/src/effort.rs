//! How much work one request may cause, in counted steps: never in time, so the same input gives the same
//! plan on every machine.

use std::cell::Cell;

/// Looks at one NT of one region, for one request.
const LOOKS_MAX: u32 = 100_000;

/// Looks that a plan costs besides its search: reading the ledger, and explaining.
pub(crate) const LOOKS_OF_A_PLAN: usize = 700;

/// What is left of the work that a request may cause: enough for any search that a plan needs, or for more than
/// a hundred plans without one. It is counted in looks at one NT of one region.
#[derive(Debug)]
pub struct Effort {
    left: Cell<u32>,
}

impl Default for Effort {
    fn default() -> Self {
        Self::new()
    }
}

impl Effort {
    /// What one request may cause.
    pub const fn new() -> Self {
        Self { left: Cell::new(LOOKS_MAX) }
    }

    /// Takes `looks` of what is left; `false` if there are fewer.
    pub(crate) fn spend(&self, looks: usize) -> bool {
        let looks = u32::try_from(looks).unwrap_or(u32::MAX);
        let left = self.left.get().checked_sub(looks);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Looks so far.
    pub(crate) const fn spent(&self) -> u32 {
        LOOKS_MAX - self.left.get()
    }
}
