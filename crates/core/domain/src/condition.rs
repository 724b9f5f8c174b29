//! Conditions: what is true of a resource right now, and why.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The aspect of a DAG that a condition describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConditionType {
    /// It has a place on a card.
    Mapped,
    /// The regions it needs hold what it needs.
    RegionsLoaded,
    /// The card's tables, read back, hold its rows.
    TablesProgrammed,
    /// The network tasks that its packets use have their configurations; only told where one does not take it.
    Configured,
    /// The bandwidth that was promised to it is there.
    PromiseKept,
    /// Packets flow: all of the above, for this generation.
    Ready,
}

/// Whether a condition holds; unknown is neither true nor false.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConditionStatus {
    True,
    /// It does not.
    False,
    /// Not known: the card has not reported.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    pub kind: ConditionType,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Machine-readable reason: UPPER_SNAKE_CASE.
    pub reason: String,
    /// Explanation for people, with what to do where something can be done.
    pub message: String,
    /// When the status last changed.
    pub since: Timestamp,
    /// The generation of the spec that it refers to.
    pub generation: u64,
}

/// The lifecycle of a DAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DagState {
    /// Accepted; nothing was done on the card yet.
    Pending,
    /// Regions are being loaded or tables written.
    Provisioning,
    /// The card, read back, holds what it needs.
    Ready,
    /// It was ready; part of what it needs was lost and is being restored.
    Degraded,
    /// It is being removed from the card.
    Deleting,
    /// No place can be found for it; it is tried again when something changes.
    Failed,
}
