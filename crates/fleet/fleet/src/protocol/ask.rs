//! Requests of tenants and operators.

use std::fmt;

use serde::{Deserialize, Serialize};
use snic_domain::{
    Bandwidth, Bitstream, BitstreamId, BudgetPolicy, DagName, DagPatch, DagSpec, NtType, NtTypeId,
    Quota, QuotaPatch, Tenant, TenantId, TenantPatch, VmId,
};

use super::{PolicyFiles, SpendingNote};
use crate::placement::{CardConstraints, CardPolicy, HostSpec, PromiseLimits, TenantDefaults};
use crate::request_id::RequestId;
use crate::{HostId, ProjectChange, ProjectId, RackId, ZoneId};

/// A request of a tenant or an operator. Rights were checked before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetAsk {
    /// Owner; `None`: an operator's.
    pub tenant: Option<TenantId>,
    /// Its number, if it may be sent again. What only reads has none.
    pub id: Option<RequestId>,
    /// Only says what would be answered. Its number is not looked at then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub validate_only: bool,
    pub command: FleetCommand,
}

impl FleetAsk {
    /// Whether no record changes by it.
    pub const fn changes_nothing(&self) -> bool {
        self.validate_only || self.command.only_reads()
    }
}

/// Most DAGs of one request: together they are one of etcd's transactions.
pub const BATCH_DAGS_MAX: usize = 64;

/// Name of the policy file that only the fleet reads: defaults of placements.
pub const FLEET_PLACEMENT: &str = "fleet-placement.toml";

/// Most items of one page of a list.
pub const LIST_MAX: usize = 1_000;

/// A DAG that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewFleetDag {
    pub name: DagName,
    pub spec: DagSpec,
    /// Where it may go.
    pub constraints: CardConstraints,
    /// Order of the cards that have room.
    pub policy: CardPolicy,
}

/// Name of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FleetName {
    Tenant(TenantId),
    Project(ProjectId),
    /// An NT type.
    Nt(NtTypeId),
    Bitstream(BitstreamId),
    Host(HostId),
    Dag(DagName),
    /// Functions that are kept for a machine.
    Reservation(TenantId, RequestId),
}

impl fmt::Display for FleetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(tenant) => write!(f, "tenants/{tenant}"),
            Self::Project(project) => write!(f, "projects/{project}"),
            Self::Nt(nt) => write!(f, "ntTypes/{nt}"),
            Self::Bitstream(bitstream) => write!(f, "bitstreams/{bitstream}"),
            Self::Host(host) => write!(f, "hosts/{host}"),
            Self::Dag(dag) => dag.fmt(f),
            Self::Reservation(tenant, id) => write!(f, "tenants/{tenant}/reservations/{id}"),
        }
    }
}

/// Kind of list. Tenants see what is theirs, and of NT types and bitstreams what they may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FleetList {
    Tenants,
    Projects,
    Nts,
    Bitstreams,
    Hosts,
    /// DAGs of a tenant, or of all.
    Dags(Option<TenantId>),
    /// Reservations of a tenant, or of all.
    Reservations(Option<TenantId>),
}

/// Hosts that are emptied together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DrainArea {
    /// All hosts of a zone.
    Zone(ZoneId),
    /// All hosts of a rack.
    Rack(ZoneId, RackId),
}

impl fmt::Display for DrainArea {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zone(zone) => write!(f, "zones/{zone}"),
            Self::Rack(zone, rack) => write!(f, "zones/{zone}/racks/{rack}"),
        }
    }
}

/// Needs of a machine beside virtual functions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineNeeds {
    /// DAGs that exist; a machine can only use them where they are. At most [`MACHINE_DAGS_MAX`].
    #[serde(default)]
    pub dags: Vec<DagName>,
    /// DAGs that would be made for it, with names that are not in use. At most [`MACHINE_DAGS_MAX`].
    #[serde(default)]
    pub new_dags: Vec<(DagName, Box<DagSpec>)>,
    /// Bandwidth beside that of the new DAGs.
    #[serde(default)]
    pub bandwidth: Bandwidth,
    /// The machine, which may use what is reserved for it.
    #[serde(default)]
    pub vm: Option<VmId>,
}

/// Most DAGs of a machine that is looked for, of each kind: as many as it may have functions.
pub const MACHINE_DAGS_MAX: usize = 32;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_no_bandwidth(of: &Bandwidth) -> bool {
    *of == Bandwidth::ZERO
}

/// Commands. An `etag` that is given must be that of the record as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FleetCommand {
    /// Registers a tenant.
    CreateTenant {
        /// Its id, weight and quota.
        tenant: Tenant,
        /// Project whose quota it shares, too.
        project: Option<ProjectId>,
    },
    /// Changes a tenant.
    UpdateTenant {
        tenant: TenantId,
        patch: TenantPatch,
        project: ProjectChange,
        /// As it was read.
        etag: Option<String>,
    },
    /// Registers a project.
    CreateProject {
        project: ProjectId,
        /// Quota that its tenants have together: of it `dags_max` and `bandwidth_max` count.
        quota: Quota,
    },
    /// Changes a project.
    UpdateProject {
        project: ProjectId,
        quota: QuotaPatch,
        /// As it was read.
        etag: Option<String>,
    },
    /// Registers an NT type.
    CreateNt(NtType),
    /// Registers a bitstream, whose image is in the object store.
    CreateBitstream(Bitstream),
    /// Registers a host.
    CreateHost(HostId, HostSpec),
    /// Keeps new DAGs off a host, or no longer.
    CordonHost(HostId, bool),
    /// Has a host's DAGs moved away, or no longer; the host is cordoned as well.
    DrainHost(HostId, bool),
    /// Has all hosts of a rack or zone emptied, also those that are registered later.
    Drain {
        area: DrainArea,
        /// Number of its DAGs that move at a time: 1 to 1,000.
        moves_max: u32,
    },
    /// Ends that; hosts that were drained each for itself stay so.
    EndDrain(DrainArea),
    /// Reads the progress of a drain.
    GetDrain(DrainArea),
    /// Moves DAGs from full cards to empty ones, until all are within the tolerance of the mean or no move helps. The same
    /// again while it goes on changes its limits. If it is only asked what would be answered: which DAGs would move first.
    Rebalance {
        /// Between cards of this zone; `None`: of the fleet.
        zone: Option<ZoneId>,
        /// Number of DAGs that move at a time: 1 to 1,000.
        moves_max: u32,
        /// Distance that a card's load may have from the mean: 1 to 50 percent of a card.
        tolerance_percent: u32,
    },
    /// Reads the progress of the rebalance, or how the last one ended.
    GetRebalance,
    /// Ends the rebalance; DAGs that have moved stay where they are.
    EndRebalance,
    /// Replaces the policy files: those that are not named are in force no more. At most 64 KiB in all.
    SetPolicies {
        /// Files by name.
        files: PolicyFiles,
        /// Limits of promises in them: hosts refuse more, so nothing more is placed there.
        promises: PromiseLimits,
        /// Budgets in them.
        #[serde(default)]
        budgets: BudgetPolicy,
        /// Defaults of placements in them.
        #[serde(default)]
        defaults: TenantDefaults,
        /// As it was read.
        etag: Option<String>,
    },
    /// The policy files, and on which hosts they are in force.
    GetPolicies,
    /// Says what was spent of budgets: projects before their tenants. At most [`super::SPENDING_NOTES_MAX`].
    NoteSpending(Vec<SpendingNote>),
    /// Places a DAG.
    CreateDag(NewFleetDag),
    /// Places several DAGs of the caller, in their order: all of them or none. At most [`BATCH_DAGS_MAX`].
    CreateDags(Vec<NewFleetDag>),
    /// Changes a DAG: on its card if it fits there, without a stop, otherwise elsewhere unless it is bound.
    UpdateDag {
        name: DagName,
        patch: Box<DagPatch>,
        /// As it was read.
        etag: Option<String>,
    },
    /// Deletes what is not in use.
    Delete {
        name: FleetName,
        /// As it was read.
        etag: Option<String>,
        /// A tenant goes with all that it owns.
        force: bool,
    },
    /// Reads a record.
    Get(FleetName),
    /// Reads why a DAG is where it is, or nowhere.
    ExplainDag(DagName),
    /// Reads a page of records, by name. At most [`LIST_MAX`], and about a mebibyte.
    List {
        of: FleetList,
        /// Behind this name.
        after: Option<FleetName>,
        /// Number of items at most.
        most: usize,
    },
    /// Reads how the fleet is.
    GetFleet,
    /// Reads of all hosts what only the leader knows.
    GetHostStates,
    /// Ranks hosts with room for a machine; nothing is kept for it.
    FindHosts {
        /// Where it may go, and how many functions it needs.
        constraints: CardConstraints,
        /// Order of the hosts.
        policy: CardPolicy,
        /// Needs beside functions.
        #[serde(default)]
        needs: Box<MachineNeeds>,
        /// Number of hosts at most: 1 to 16.
        most: usize,
    },
    /// Keeps functions and bandwidth of a card for a machine.
    Reserve {
        /// Its number, to renew and delete it.
        reservation: RequestId,
        /// Where, and how many functions.
        constraints: CardConstraints,
        /// Order of the cards that have room.
        policy: CardPolicy,
        /// It ends after so many seconds unless it is renewed: 1 to 86,400.
        seconds: u32,
        /// Bandwidth at ingress and egress of the card that is kept as well.
        #[serde(default, skip_serializing_if = "is_no_bandwidth")]
        bandwidth: Bandwidth,
        /// The only machine that may use the functions; `None`: any of the tenant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vm: Option<VmId>,
        /// Its number, as whoever asks writes it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        uuid: String,
    },
    /// A sign of life of a reservation.
    Renew(RequestId),
}

impl FleetCommand {
    /// Whether it changes nothing, however often it is sent.
    pub const fn only_reads(&self) -> bool {
        match self {
            Self::Get(_)
            | Self::ExplainDag(_)
            | Self::List { .. }
            | Self::GetFleet
            | Self::GetHostStates
            | Self::GetDrain(_)
            | Self::GetRebalance
            | Self::GetPolicies
            | Self::FindHosts { .. } => true,
            Self::CreateTenant { .. }
            | Self::UpdateTenant { .. }
            | Self::CreateProject { .. }
            | Self::UpdateProject { .. }
            | Self::CreateNt(_)
            | Self::CreateBitstream(_)
            | Self::CreateHost(..)
            | Self::CordonHost(..)
            | Self::DrainHost(..)
            | Self::Drain { .. }
            | Self::EndDrain(_)
            | Self::Rebalance { .. }
            | Self::EndRebalance
            | Self::SetPolicies { .. }
            | Self::NoteSpending(_)
            | Self::CreateDag(_)
            | Self::CreateDags(_)
            | Self::UpdateDag { .. }
            | Self::Delete { .. }
            | Self::Reserve { .. }
            | Self::Renew(_) => false,
        }
    }
}
