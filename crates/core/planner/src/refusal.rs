//! Why the ledger rejects a change.

use snic_domain::{BitstreamId, RegionId, Resource, Slot};

/// A reservation would exceed a maximum. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{resource} overbooked{}: {required} {} needed, {available} {} available", location(.region, .slot), .resource.unit(), .resource.unit())]
pub struct Overbooked {
    pub resource: Resource,
    /// The region, for what a region has.
    pub region: Option<RegionId>,
    /// The slot, for what an NT has.
    pub slot: Option<Slot>,
    /// Amount to be reserved, in the resource's unit.
    pub required: u64,
    /// Amount available, including what the DAG held before.
    pub available: u64,
}

fn location(region: &Option<RegionId>, slot: &Option<Slot>) -> String {
    match (region, slot) {
        (Some(region), Some(slot)) => format!(" in region {region}, slot {}", slot.0),
        (Some(region), None) => format!(" in region {region}"),
        _ => String::new(),
    }
}

/// Why the content of a region cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentMismatch {
    /// The card has no such region.
    #[error("the card has no region {region}; its regions are 0 to {}", .regions.saturating_sub(1))]
    NoSuchRegion {
        region: RegionId,
        /// Number of regions of the card.
        regions: usize,
    },
    /// The bitstream has the frames of other regions.
    #[error("bitstream {bitstream} was not built for region {region}")]
    OtherRegion { region: RegionId, bitstream: BitstreamId },
    /// DAGs have reservations that the new content cannot serve.
    #[error(
        "region {region} cannot become {}: slot {} is reserved for another NT or for more than \
         the new one serves; release the {dags} DAGs that use the region first",
        .bitstream.as_ref().map_or("empty", BitstreamId::as_str), .slot.0
    )]
    InUse {
        region: RegionId,
        /// The new content.
        bitstream: Option<BitstreamId>,
        /// The first slot that does not match.
        slot: Slot,
        /// Number of DAGs that use the region.
        dags: usize,
    },
}
