//! Threads that a tenant's programs use, and what its quota allows.
//!
//! It counts for what is new or changed: there a card on which the DAG would take more is as if it had fewer. What
//! has lost its place is not refused for a quota. Nobody gets threads for burst.

use snic_domain::{Infeasible, Mapping, Resource, Shortage};

/// The threads of a mapping's programs.
pub(crate) fn threads_of(mapping: &Mapping) -> u32 {
    mapping.programs.iter().fold(0, |sum, program| sum.saturating_add(program.threads))
}

/// Threads that a tenant's quota allows for a DAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadAllowance {
    limit: u32,
    /// Threads of its other DAGs.
    used: u32,
}

impl ThreadAllowance {
    pub const fn new(limit: u32, used: u32) -> Self {
        Self { limit, used }
    }

    #[cfg(test)]
    pub const fn unlimited() -> Self {
        Self::new(u32::MAX, 0)
    }

    /// Whether a mapping is within the quota.
    ///
    /// # Errors
    /// The shortage of threads.
    pub fn check(self, mapping: &Mapping) -> Result<(), Infeasible> {
        let (required, available) = (threads_of(mapping), self.limit.saturating_sub(self.used));
        if required <= available {
            return Ok(());
        }
        let Self { limit, used } = self;
        let nodes = mapping.programs.iter().map(|program| program.node.clone()).collect();
        let detail = format!("the tenant may have {limit} (threads_max); it has {used}");
        let (resource, required, available) =
            (Resource::Threads, required.into(), available.into());
        Err(Infeasible {
            shortages: vec![Shortage { resource, required, available, nodes, detail }],
        })
    }

    /// Counts a mapping in.
    pub fn count_placed(&mut self, mapping: &Mapping) {
        self.used = self.used.saturating_add(threads_of(mapping));
    }
}
