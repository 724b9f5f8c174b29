//! Packets of a DAG that do not cross the data plane, as those of a fast path: they are counted and have their tokens taken all the same.

use std::time::Duration;

use snic_domain::DagUid;
use snic_tables::NONE;

use super::Plane;
use crate::traffic::Header;

/// Token bucket of a DAG, as whoever passes its packets elsewhere is to go on with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketState {
    /// Rate and depth. `None` where nothing limits the DAG.
    pub limit: Option<BucketLimit>,
    /// Time until it is full again if nothing passes.
    pub full_in: Duration,
}

/// Limit of a token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketLimit {
    pub rate_kbps: u32,
    pub burst_bytes: u32,
}

impl Plane {
    /// Packets of a row's DAG on the card.
    pub(crate) fn in_flight_of(&self, row: u16) -> u32 {
        self.in_flight_of.get(usize::from(row)).copied().unwrap_or(0)
    }

    /// The DAG that a frame with this header is for.
    pub(crate) fn dag_of(&self, header: &Header) -> Option<DagUid> {
        self.find_dag(header)
    }

    /// The token bucket of a row's DAG; `None` where there is no DAG, or nothing of it may pass.
    pub(crate) fn bucket_of(&self, row: u16) -> Option<BucketState> {
        let dag = self.banks.current().dags.get(usize::from(row)).copied().flatten()?;
        if dag.rate_limiter == NONE || !self.options.rate_limits {
            return Some(BucketState { limit: None, full_in: Duration::ZERO });
        }
        let number = usize::from(dag.rate_limiter);
        let limits = self.banks.current().limiters.get(number).copied().flatten()?;
        let full_at = self.limiters.get(number)?.full_at()?;
        let full_in = self.timing.clock.nanos(full_at.saturating_sub(self.now));
        let limit = BucketLimit { rate_kbps: limits.rate_kbps, burst_bytes: limits.burst_bytes };
        Some(BucketState { limit: Some(limit), full_in: Duration::from_nanos(full_in) })
    }

    /// Row of the rate limiter of a row's DAG.
    pub(crate) fn limiter_of(&self, row: u16) -> Option<u16> {
        let dag = self.banks.current().dags.get(usize::from(row)).copied().flatten()?;
        Some(dag.rate_limiter).filter(|limiter| *limiter != NONE)
    }

    /// Counts packets of a row's DAG that passed elsewhere, and takes their tokens.
    pub(crate) fn passed_elsewhere(&mut self, row: u16, packets: u64, bytes: u64) {
        self.stats.passed_elsewhere(row, packets, bytes);
        let limiter = self.limiter_of(row).unwrap_or(NONE);
        if let Some(limiter) = self.limiters.get_mut(usize::from(limiter)) {
            limiter.passed_elsewhere(self.now, packets, bytes);
        }
    }
}
