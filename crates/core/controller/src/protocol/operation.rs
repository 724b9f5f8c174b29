//! Operations: work that takes longer than a reply.

use serde::{Deserialize, Serialize};
use snic_domain::{BitstreamId, CardId, DagName, OperationId, RegionId, TenantId, Timestamp};

use super::error::ControlError;

/// Work of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationWork {
    /// Brings a new DAG onto a card.
    CreateDag(DagName),
    /// Brings a new generation of a DAG onto a card.
    UpdateDag(DagName),
    /// Takes a DAG off its card, if it was on one.
    DeleteDag(DagName, Option<CardId>),
    /// Moves DAGs away from a region.
    DrainRegion(CardId, RegionId),
    /// Gives a faulty region another chance.
    ResetRegion(CardId, RegionId),
    /// Moves DAGs of a card together.
    OptimizeCard(CardId),
    /// Reloads a card's role.
    LoadRole {
        card: CardId,
        /// Also where it is the one that the card has.
        force: bool,
    },
    /// Resets a card.
    ResetCard {
        card: CardId,
        /// Also while DAGs are on it.
        force: bool,
    },
    /// Moves DAGs away from all regions of a card.
    DrainCard(CardId),
    /// Moves DAGs away from a bitstream, and deletes it.
    DeleteBitstream(BitstreamId),
    /// Moves DAGs of others away from a tenant's bitstreams, and deletes it with all that it owns.
    DeleteTenant(TenantId),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRecord {
    pub id: OperationId,
    pub work: OperationWork,
    /// When it was made.
    pub created: Timestamp,
    /// When the card was first asked for something.
    pub started: Option<Timestamp>,
    /// When and how it ended.
    pub ended: Option<(Timestamp, Result<(), ControlError>)>,
    /// Number of regions of its work when it ended, and of those that were done: later its DAG may move, and its
    /// regions be used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<(u32, u32)>,
    /// Moves of a consolidation when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<DagMoves>,
}

/// Moves of DAGs on a card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DagMoves {
    /// Moves that were begun; all but the last are complete.
    pub made: u32,
    /// Moves that were found, and are not begun yet or had no room.
    pub left: u32,
}

impl OperationRecord {
    /// A record of work that has not begun.
    pub(crate) const fn new(id: OperationId, work: OperationWork, created: Timestamp) -> Self {
        Self { id, work, created, started: None, ended: None, regions: None, moves: None }
    }

    /// The tenant that may see it; `None`: operators only.
    pub fn tenant(&self) -> Option<&TenantId> {
        match &self.work {
            OperationWork::CreateDag(dag)
            | OperationWork::UpdateDag(dag)
            | OperationWork::DeleteDag(dag, _) => Some(&dag.tenant),
            OperationWork::DrainRegion(..)
            | OperationWork::DrainCard(_)
            | OperationWork::ResetRegion(..)
            | OperationWork::OptimizeCard(_)
            | OperationWork::LoadRole { .. }
            | OperationWork::ResetCard { .. }
            | OperationWork::DeleteBitstream(_)
            | OperationWork::DeleteTenant(_) => None,
        }
    }
}
