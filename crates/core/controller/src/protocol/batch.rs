//! DAGs that are created together, and what it takes to admit DAGs, as values.

use snic_domain::{CardId, DagId, DagName, DagSpec, TenantId, Timestamp};
use snic_planner::Plan;

use super::ControlError;

/// A DAG of a [`DagBatch`].
#[derive(Debug, Clone, PartialEq)]
pub struct NewDag {
    /// The last part of its name.
    pub id: DagId,
    pub spec: DagSpec,
}

/// DAGs of one tenant that are to be created together.
#[derive(Debug, Clone, PartialEq)]
pub struct DagBatch {
    /// Owner of all DAGs of the batch.
    pub tenant: TenantId,
    /// New DAGs: 1 to [`snic_domain::limits::DAG_BATCH_MAX`].
    pub dags: Vec<NewDag>,
    /// Those that have a place are created where not all have one; otherwise none is then.
    pub allow_partial: bool,
    /// Only says what would be.
    pub validate_only: bool,
}

impl DagBatch {
    /// The name of one of its DAGs.
    pub(crate) fn name(&self, index: usize) -> DagName {
        DagName { tenant: self.tenant.clone(), dag: self.dags[index].id.clone() }
    }
}

/// Where the DAGs of a batch go: made by [`crate::BatchSnapshot::plan`], checked again when it is carried out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BatchPlan {
    /// The DAGs that have a place, by index, in the order in which they must be carried out.
    pub(crate) admitted: Vec<(usize, Admission)>,
    /// The DAGs that have none, by index, and why.
    pub(crate) rejected: Vec<(usize, ControlError)>,
    /// Wait of the batch for room before it was planned.
    pub(crate) wait: Option<RoomWait>,
}

impl BatchPlan {
    /// The same plan, of a batch that has waited for room before.
    #[must_use]
    pub fn after(self, wait: Option<RoomWait>) -> Self {
        Self { wait, ..self }
    }
}

/// Number of a search for moves that make room, in the order in which they begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SearchNo(pub(crate) u64);

/// Wait of a request for DAGs to move: from when on, and which searches count for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomWait {
    /// Time at which it came.
    pub(crate) since: Timestamp,
    /// The last search that had begun by then: what is found by later ones counts for it.
    pub(crate) after: SearchNo,
}

/// A plan that is good for a card.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub card: CardId,
    pub plan: Plan,
}

/// A DAG that gives its burst capacity back, and where it is then.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Preemption {
    pub name: DagName,
    /// The placement that gives it back.
    pub serial: u64,
    pub choice: Choice,
}

/// Steps that admit a DAG: first the preemptions in their order, then the choice.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Admission {
    pub choice: Choice,
    pub preempt: Vec<Preemption>,
}
