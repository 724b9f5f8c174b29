//! How much work one request may cause, in counted steps: never in time, so the same input gives the same
//! plan on every machine.

use std::cell::Cell;

/// Looks at one NT of one region, for one request. At about five nanoseconds each they take half a
/// millisecond.
const LOOKS_MAX: u32 = 100_000;

/// What is left of the work that a request may cause.
#[derive(Debug, Clone)]
pub(crate) struct Effort {
    left: Cell<u32>,
}

impl Effort {
    pub(crate) const fn new() -> Self {
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
