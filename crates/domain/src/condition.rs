//! Conditions: what is true of a resource right now, and why.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// What a condition speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConditionType {
    /// It has a place on a card.
    Mapped,
    /// The regions it needs hold what it needs.
    RegionsLoaded,
    /// The card's tables, read back, hold its rows.
    TablesProgrammed,
    /// Packets flow: all of the above, for this generation.
    Ready,
}

/// Three-valued truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Truth {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody knows: the card did not say.
    Unknown,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// What it speaks of.
    pub kind: ConditionType,
    /// Whether it holds.
    pub status: Truth,
    /// For programs: UPPER_SNAKE_CASE.
    pub reason: String,
    /// For people.
    pub message: String,
    /// When the status last changed.
    pub since: Timestamp,
    /// The generation it speaks of.
    pub generation: u64,
}

/// How far a DAG is.
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
