//! Access to the card beside its registers: for a fast path, and for tests that stop its NTs.

use snic_domain::{DagUid, RegionId};

use crate::card::SimCard;
use crate::plane::BucketState;
use crate::traffic::Header;

impl SimCard {
    /// Packets of a row's DAG on the card.
    pub fn dag_packets_in_flight(&self, row: u16) -> u32 {
        self.plane.in_flight_of(row)
    }

    /// The DAG that a frame with this header is for.
    pub fn dag_of(&self, header: &Header) -> Option<DagUid> {
        self.plane.dag_of(header)
    }

    /// The token bucket of a row's DAG; `None` where there is no DAG, or nothing of it may pass.
    pub fn bucket(&self, row: u16) -> Option<BucketState> {
        self.plane.bucket_of(row)
    }

    /// Row of the rate limiter of a row's DAG; `None` where there is no DAG, or nothing limits it.
    pub fn limiter_of(&self, row: u16) -> Option<u16> {
        self.plane.limiter_of(row)
    }

    /// Counts packets of a row's DAG that passed without crossing the data plane, as by a fast path, and takes their tokens.
    pub fn passed_elsewhere(&mut self, row: u16, packets: u64, bytes: u64) {
        self.plane.passed_elsewhere(row, packets, bytes);
    }

    /// Whether a region is there and decoupled.
    pub fn is_decoupled(&self, region: RegionId) -> bool {
        self.plane.regions.get(region.index()).is_some_and(|region| region.decoupled)
    }

    /// The NTs of a region let no packet go any more, until they are reset or the region is loaded.
    pub fn stop_nts(&mut self, region: RegionId) {
        self.plane.stop_region(region.0);
    }
}
