//! Input of a replica, and the work that it wants done: data only.

mod ask;
mod denied;
mod host;
mod reply;
mod spending;

use serde::{Deserialize, Serialize};
use snic_domain::{DagAttachments, DagName};
use snic_etcd::{Answer, Failed, Request, Revision, Watch, WatchUpdate};

use crate::dag_records::Unplaced;
use crate::{FleetCard, HostId, ZoneId};

pub use crate::request_id::RequestId;
pub use ask::{
    BATCH_DAGS_MAX, DrainArea, FLEET_PLACEMENT, FleetAsk, FleetCommand, FleetList, FleetName,
    LIST_MAX, MACHINE_DAGS_MAX, MachineNeeds, NewFleetDag,
};
pub use denied::{Denied, OverQuota, StoreRefusal};
pub use host::{
    ATTACHED_MAX, Attachments, CardFaults, HostChoice, HostOrder, HostPolicies, HostReport,
    MISSING_MAX, Numbered, OrderKind, PolicyFiles, Provisions, attachments_digest,
};
pub use reply::{
    DrainProgress, FleetCounts, FleetDag, FleetExplanation, FleetGauges, FleetHost, FleetHostState,
    FleetItem, FleetPolicies, FleetProject, FleetReply, FleetReservation, FleetTenant, FleetUsage,
    FoundHosts, HostCondition, LoadRange, PlacedDag, PlannedMove, RebalanceOutcome,
    RebalanceProgress, StayReason,
};
pub use spending::{Budgeted, FleetSpending, SPENDING_NOTES_MAX, SpendingNote, SpendingView};

/// A leader's term: the revision at which its election key was created. A later leader has a larger one.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch(pub i64);

impl Epoch {
    /// Serial numbers begin here in this term: after all numbers of earlier terms, also after those that no record of etcd
    /// has any more because it was restored from a backup. Each revision stands for 2^24 numbers, and a transaction
    /// needs at most some hundreds.
    pub(crate) const fn first_serial(self) -> u64 {
        self.0.unsigned_abs() << 24
    }
}

/// Number of a call that waits for a reply, as the shell knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetCall(pub u64);

/// Input of a replica.
#[derive(Debug, Clone, PartialEq)]
pub enum FleetEvent {
    /// It won the election.
    Elected {
        /// Its election key.
        key: String,
        /// When the key was created, which is its fencing token.
        created: Revision,
    },
    /// It lost the election.
    Deposed,
    /// etcd answered request `number`. Each request is answered once.
    Etcd {
        /// Number of the request.
        number: u64,
        result: Result<Answer, Failed>,
    },
    /// News of the watch that [`FleetEffect::Watch`] asked for, or why it gives none. A watch of an earlier leader's
    /// time may go on: what it tells is not looked at.
    Watched(Result<WatchUpdate, Failed>),
    /// Somebody asks for something.
    Ask {
        /// Call that waits for it.
        call: FleetCall,
        ask: FleetAsk,
    },
    /// A host reports.
    Report {
        /// Host, as its certificate says.
        host: HostId,
        report: HostReport,
    },
    Tick,
}

/// Work that a replica wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum FleetEffect {
    /// Ask etcd; the answer comes as [`FleetEvent::Etcd`] with this number.
    Etcd {
        /// Number of the request.
        number: u64,
        request: Request,
    },
    /// Watch this instead of what was watched before; what it tells comes as [`FleetEvent::Watched`].
    Watch(Watch),
    /// Answer a call.
    Reply {
        call: FleetCall,
        result: Result<FleetReply, Denied>,
    },
    /// Send an order to a host.
    Order {
        host: HostId,
        order: HostOrder,
    },
    Tell(FleetNotice),
    /// Give up the election key: somebody else leads, or this replica cannot.
    StepDown,
}

/// Reason for which a DAG does not move by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundCause {
    /// It may be on certain hosts only.
    Hosts,
    /// Machines and rules of its host lead packets to it.
    Attached(DagAttachments),
    /// Its host has not said whether anything leads packets to it.
    Unknown,
}

impl std::fmt::Display for BoundCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Hosts => {
                f.write_str("it may be on certain hosts only; change where it may go, or delete it")
            }
            Self::Attached(of) => {
                write!(f, "{of}; unbind the machines and delete the rules, and it moves")
            }
            Self::Unknown => f.write_str(
                "its host has not said whether machines are bound to it; it moves once the host says that none is \
                 (a host of an earlier version never does: upgrade it)",
            ),
        }
    }
}

/// Notice to operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetNotice {
    /// A host has not answered for the length of its lease.
    HostSuspected(HostId),
    /// Nor for the time after it: its DAGs move.
    HostLost(HostId),
    /// It answers again.
    HostBack(HostId),
    /// So many hosts of a zone, or of the fleet, are unreachable that nothing is evacuated there.
    EvacuationHeld {
        /// `None`: the fleet.
        zone: Option<ZoneId>,
        /// Hosts that do not answer.
        unreachable: usize,
        /// Number of all hosts.
        hosts: usize,
    },
    /// Few enough are unreachable again.
    EvacuationResumed(Option<ZoneId>),
    /// A DAG has another place.
    DagMoved {
        name: DagName,
        /// Where it was.
        from: FleetCard,
        /// Where it is.
        to: FleetCard,
    },
    /// A DAG that had no place has one again.
    DagPlaced {
        name: DagName,
        /// Where it is.
        to: FleetCard,
    },
    /// A DAG has no place.
    DagUnplaced { name: DagName, why: Unplaced },
    /// A host put a DAG where its card's mirrored ledger has no room: nothing new goes there until it has.
    CardOverbooked {
        card: FleetCard,
        /// Resource that is short.
        why: String,
    },
    /// A DAG of a host that is to be emptied stays.
    DagBound { name: DagName, host: HostId, why: BoundCause },
    /// A rebalance has ended.
    RebalanceEnded {
        outcome: RebalanceOutcome,
        /// Number of DAGs that it has moved.
        moved: u64,
        /// Number of DAGs that were to move and did not.
        stay: u64,
    },
    /// etcd refuses what is to be written: told at the beginning, when the reason changes, and once a minute.
    StoreRefuses(StoreRefusal),
    /// etcd accepts writes again; it refused them before.
    StoreAccepts(StoreRefusal),
    /// A record cannot be read, so this replica cannot lead.
    CannotLead(String),
}
