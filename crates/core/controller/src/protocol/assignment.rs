//! Assignments of the fleet to this host.

use serde::{Deserialize, Serialize};
use snic_domain::{
    Bitstream, BitstreamId, CardId, DagName, DagSpec, KeptForTenant, Mapping, NtType, NtTypeId,
    Tenant, TenantId,
};
use snic_planner::Reservation;

use super::error::ControlError;

/// The card that the fleet assigned a DAG to, which it does not leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedCard {
    /// Card of this host.
    pub card: CardId,
    /// Numbers the assignments of a DAG: a later one has a larger serial.
    pub serial: u64,
}

/// A DAG that the fleet assigns to a card of this host.
#[derive(Debug, Clone, PartialEq)]
pub struct DagAssignment {
    pub name: DagName,
    /// Its tenant, which is provided in the same step.
    pub tenant: Tenant,
    /// The tenant's number.
    pub tenant_number: u64,
    pub spec: DagSpec,
    /// The card and the number of the assignment.
    pub to: AssignedCard,
}

/// Something that the fleet provides for its DAGs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Provision {
    /// A tenant. Its quota is the fleet's business and not used.
    Tenant(Tenant),
    /// An NT type.
    NtType(NtType),
    /// A bitstream whose bytes are in the store, checked.
    Bitstream(Bitstream),
}

/// The name of something that the fleet provided.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ProvisionName {
    Tenant(TenantId),
    /// An NT type.
    NtType(NtTypeId),
    Bitstream(BitstreamId),
}

/// A change that the fleet asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum FleetChange {
    /// Serve a DAG, or change it. The same assignment again changes nothing.
    Assign(Box<DagAssignment>),
    /// Serve a DAG no more, if it is assigned to this card.
    Withdraw {
        name: DagName,
        /// From which card.
        card: CardId,
        /// Only if neither machine nor rule leads to it; it stays as it is otherwise.
        if_detached: bool,
    },
    /// Registers something. With the number that it has it is there already; with another one it is another thing.
    Provide {
        what: Box<Provision>,
        /// Its number at the fleet, 1 or more.
        number: u64,
    },
    /// Removes something that nothing uses, if it has this number.
    Retire { name: ProvisionName, number: u64 },
    /// Keeps functions and bandwidth for tenants: these reservations, and no others.
    Keep(Vec<KeptForTenant>),
}

/// A DAG that the fleet assigned, as the fleet is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct AssignedDag {
    pub to: AssignedCard,
    pub progress: AssignmentProgress,
}

/// Progress of an assignment.
#[derive(Debug, Clone, PartialEq)]
pub enum AssignmentProgress {
    /// The card, read back, has served it; it may have been lost since.
    Applied(Box<AppliedPlace>),
    /// It is on its way to the card.
    Pending,
    /// It has no place on its card any more.
    Failed(Option<ControlError>),
}

/// Where an assigned DAG is.
#[derive(Debug, Clone, PartialEq)]
pub struct AppliedPlace {
    /// Mapping to regions.
    pub mapping: Mapping,
    /// Reservation on the card, if it borrows nothing.
    pub reservation: Option<Reservation>,
}
