//! What happens to a replica, and what it wants done: data only.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use snic_domain::{
    Bandwidth, Bitstream, CardId, DagName, DagSpec, Digest, NtType, RegionId, TenantId,
};
use snic_etcd::{Answer, Failed, Request, Revision};

use crate::placement::{CardConstraints, CardPolicy, HostSpec, PlacementRefused, RankedHost};
use crate::records::{FleetTenantRecord, PlaceRecord, ProjectRecord, Unplaced};
use crate::{FleetCard, HostId, ProjectId, ZoneId};

/// A leader's term: the revision at which its election key was created. A later leader has a larger one.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch(pub i64);

/// A request's number, chosen by the client: the same number again is the same request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Who waits for a reply, as the shell knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetCall(pub u64);

/// What happens to a replica.
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
        /// Which request.
        number: u64,
        /// The answer.
        result: Result<Answer, Failed>,
    },
    /// Somebody asks for something.
    Ask {
        /// Who waits for it.
        call: FleetCall,
        /// What for.
        ask: FleetAsk,
    },
    /// A host reports.
    Report {
        /// Which host, as its certificate says.
        host: HostId,
        /// What.
        report: HostReport,
    },
    /// Time passed.
    Tick,
}

/// A request of a tenant or an operator. Rights were checked before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetAsk {
    /// Whose it is; `None`: an operator's.
    pub tenant: Option<TenantId>,
    /// Its number, if it may be sent again. What only reads has none.
    pub id: Option<RequestId>,
    /// What is asked for.
    pub command: FleetCommand,
}

/// Most DAGs of one request: together they are one of etcd's transactions.
pub const BATCH_DAGS_MAX: usize = 64;

/// A DAG that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewFleetDag {
    /// Its name.
    pub name: DagName,
    /// What it is.
    pub spec: DagSpec,
    /// Where it may go.
    pub constraints: CardConstraints,
    /// Which card is taken of those.
    pub policy: CardPolicy,
}

/// What can be asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FleetCommand {
    /// Registers a tenant, or replaces weight and quota.
    PutTenant(FleetTenantRecord),
    /// Registers a project, or replaces its quota.
    PutProject(ProjectRecord),
    /// Registers an NT type.
    PutNt(NtType),
    /// Registers a bitstream.
    PutBitstream(Bitstream),
    /// Registers a host.
    AddHost(HostId, HostSpec),
    /// Removes a host that has no DAG and no reservation.
    RemoveHost(HostId),
    /// Keeps new DAGs off a host, or no longer.
    CordonHost(HostId, bool),
    /// Has a host's DAGs moved away, or no longer; the host is cordoned as well.
    DrainHost(HostId, bool),
    /// Places a DAG.
    CreateDag(NewFleetDag),
    /// Places several DAGs of the caller, in their order: all of them or none. At most [`BATCH_DAGS_MAX`].
    CreateDags(Vec<NewFleetDag>),
    /// Deletes a DAG.
    DeleteDag(DagName),
    /// Reads a DAG.
    GetDag(DagName),
    /// Ranks hosts with room for a machine; nothing is kept for it.
    FindHosts {
        /// Where it may go, and how many functions it needs.
        constraints: CardConstraints,
        /// Which host comes first.
        policy: CardPolicy,
        /// The DAG that its packets are to pass, if any, with a name that is not in use.
        dag: Option<(DagName, Box<DagSpec>)>,
        /// How many at most: 1 to 16.
        most: usize,
    },
    /// Keeps functions of a card for a machine.
    Reserve {
        /// Its number, to renew and release it.
        reservation: RequestId,
        /// Where, and how many functions.
        constraints: CardConstraints,
        /// Which card is taken of those.
        policy: CardPolicy,
        /// It ends after so many seconds unless it is renewed: 1 to 86,400.
        seconds: u32,
    },
    /// A sign of life of a reservation.
    Renew(RequestId),
    /// The end of a reservation.
    Release(RequestId),
}

/// A DAG, as its tenant sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetDag {
    /// Its place.
    pub card: Option<FleetCard>,
    /// Why it has none.
    pub unplaced: Option<Unplaced>,
    /// Whether its host said that it serves it.
    pub is_ready: bool,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FleetReply {
    /// It is done.
    Done,
    /// The DAG is promised this card.
    Placed(FleetCard),
    /// Each DAG is promised the card of its position.
    AllPlaced(Vec<FleetCard>),
    /// Hosts with room, the best first.
    Hosts(Vec<RankedHost>),
    /// The DAG.
    Dag(FleetDag),
    /// Functions of this card are kept.
    Reserved(FleetCard),
}

/// A quota that would be exceeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverQuota {
    /// Too many DAGs.
    #[error("the quota allows {max} DAGs; there are {used}")]
    Dags {
        /// How many are allowed.
        max: u32,
        /// How many there are.
        used: u32,
    },
    /// Too much bandwidth.
    #[error("the quota allows {max}; {used} are promised and {asked} more are asked for")]
    Bandwidth {
        /// How much is allowed.
        max: Bandwidth,
        /// How much is promised.
        used: Bandwidth,
        /// How much more was asked for.
        asked: Bandwidth,
    },
}

/// Why something is not done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Denied {
    /// This replica does not lead. Nothing was done.
    #[error("this replica does not lead; ask the leader")]
    NotLeader,
    /// Nobody knows whether it was done. The same request with the same number finds out.
    #[error("the leader changed meanwhile; send the same request again to learn the outcome")]
    Open,
    /// Too much waits for etcd. Nothing was done.
    #[error("{waiting} requests wait for etcd already; try again later")]
    Busy {
        /// How many.
        waiting: usize,
    },
    /// There is no such thing, or it is not the caller's.
    #[error("{0} does not exist")]
    NotFound(String),
    /// There is one already.
    #[error("{0} exists already")]
    Exists(String),
    /// Something is still on it.
    #[error("{what} is in use by {users} DAGs and reservations; drain it first")]
    InUse {
        /// What.
        what: String,
        /// How many use it.
        users: usize,
    },
    /// The number was used for another request.
    #[error("request {0} was another request before; use a new number")]
    RequestReused(RequestId),
    /// A value is not allowed.
    #[error("{0}")]
    Invalid(String),
    /// The tenant's quota.
    #[error("tenant {0}: {1}")]
    TenantQuota(TenantId, OverQuota),
    /// The project's quota.
    #[error("project {0}: {1}")]
    ProjectQuota(ProjectId, OverQuota),
    /// No card has room.
    #[error("{0}")]
    NoPlace(Box<PlacementRefused>),
    /// One DAG of several cannot be placed. None of them was.
    #[error("{name}: {why}; none of the request's DAGs was created")]
    OfBatch {
        /// Which one.
        name: DagName,
        /// Why.
        why: Box<Denied>,
    },
}

/// What a replica wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum FleetEffect {
    /// Ask etcd; the answer comes as [`FleetEvent::Etcd`] with this number.
    Etcd {
        /// Which request.
        number: u64,
        /// What is asked.
        request: Request,
    },
    /// Answer a call.
    Reply {
        /// Whose.
        call: FleetCall,
        /// With what.
        result: Result<FleetReply, Denied>,
    },
    /// Send an order to a host.
    Order {
        /// Which host.
        host: HostId,
        /// What it is to do.
        order: HostOrder,
    },
    /// Tell operators.
    Tell(FleetNotice),
    /// Give up the election key: somebody else leads, or this replica cannot.
    StepDown,
}

/// An order to a host, released only once what it follows from is committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostOrder {
    /// Whose order it is. A host rejects one of an earlier epoch than it has seen.
    pub epoch: Epoch,
    /// Rises within an epoch.
    pub sequence: u64,
    /// What is to be done.
    pub what: OrderKind,
}

/// What a host is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderKind {
    /// Take over the epoch and report.
    Greet,
    /// Report all DAGs of a card.
    List(CardId),
    /// Serve a DAG.
    Put {
        /// Its name.
        name: DagName,
        /// What it is.
        spec: Box<DagSpec>,
        /// Where.
        place: Box<PlaceRecord>,
    },
    /// Serve a DAG no more, if it still has the place with this serial.
    Remove {
        /// Its name.
        name: DagName,
        /// On which card.
        card: CardId,
        /// Which place of it.
        serial: u64,
    },
}

/// What a host says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostReport {
    /// It lives.
    Beat {
        /// The highest epoch that it has seen.
        epoch: Epoch,
        /// The last order of that epoch which it looked at.
        sequence: u64,
        /// By card: the digest of what it holds ([`crate::holdings_digest`]).
        digests: BTreeMap<CardId, Digest>,
    },
    /// All DAGs of a card, each with the serial of its place.
    Holds {
        /// The epoch of the order that asked for it.
        epoch: Epoch,
        /// Which card.
        card: CardId,
        /// The DAGs.
        dags: BTreeMap<DagName, u64>,
    },
    /// A DAG is served.
    Applied {
        /// Its name.
        name: DagName,
        /// Which place of it.
        serial: u64,
    },
    /// A DAG cannot be served: the host knows better what its card has.
    Refused {
        /// Its name.
        name: DagName,
        /// Which place of it.
        serial: u64,
        /// Why.
        reason: String,
        /// Regions of the card that take nothing.
        faulty: Vec<RegionId>,
    },
}

/// What operators are told.
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
        /// Of so many.
        hosts: usize,
    },
    /// Few enough are unreachable again.
    EvacuationResumed(Option<ZoneId>),
    /// A DAG has another place.
    DagMoved {
        /// Which.
        name: DagName,
        /// Where it was.
        from: FleetCard,
        /// Where it is.
        to: FleetCard,
    },
    /// A DAG has no place.
    DagUnplaced {
        /// Which.
        name: DagName,
        /// Why.
        why: Unplaced,
    },
    /// A DAG of a drained or lost host stays, because its machines are there.
    DagBound(DagName),
    /// A record cannot be read, so this replica cannot lead.
    CannotLead(String),
}
