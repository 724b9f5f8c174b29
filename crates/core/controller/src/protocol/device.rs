//! View of a card's device.

use snic_domain::{ConditionStatus, DeviceReading, Timestamp};

/// An aspect of a card's device that has a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceAspect {
    /// No sensor is at its limit.
    Temperature,
    /// The AXI firewall lets everything pass.
    Firewall,
    /// The PCIe link is as fast and wide as the card can be.
    Link,
}

/// Whether an aspect is as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCondition {
    pub aspect: DeviceAspect,
    /// Whether it is; unknown where the device does not say.
    pub status: ConditionStatus,
    /// Why, for people.
    pub message: String,
    /// When the status last changed.
    pub since: Timestamp,
}

/// A card's device as it was last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceView {
    pub reading: DeviceReading,
    pub at: Timestamp,
    /// Conditions that follow from it, one for each aspect.
    pub conditions: Vec<DeviceCondition>,
    /// Errors that its driver reported since it was first read.
    pub errors_seen: u64,
    /// Whether new DAGs may be placed on the card.
    pub is_fit: bool,
}
