//! Replies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snic_domain::{
    Bandwidth, Bitstream, ByteSize, CardModel, DagName, DagSpec, Infeasible, NtType, Quota, Tenant,
    Timestamp,
};

use super::{DrainArea, FleetName, PolicyFiles, SpendingView, StoreRefusal};
use crate::dag_records::{FleetDagRecord, RecordMeta, ReservedFunctions, Unplaced};
use crate::placement::{
    CardConstraints, CardPolicy, Constraint, HostSpec, PlacementDefaults, RankedHost,
};
use crate::{FleetCard, HostId, ProjectId, RackId, ZoneId};

/// Usage of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetUsage {
    /// Number of DAGs.
    pub dags: u32,
    /// Sum of their promises.
    pub bandwidth: Bandwidth,
    /// Their area as if each were alone in its regions, in thousandths of a LUT.
    pub milli_luts: u64,
    /// On-board memory of their NTs, for each DAG as if it were alone on its card: so it is the same wherever they
    /// are, and a move never exceeds a quota.
    pub memory: ByteSize,
    /// NT types of its own.
    pub nt_types: u32,
    /// Bitstreams of its own.
    pub bitstreams: u32,
    /// Bytes of its own bitstreams.
    pub bitstream_bytes: ByteSize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetTenant {
    /// Its id, weight and quota.
    pub tenant: Tenant,
    /// Project whose quota it shares, too.
    pub project: Option<ProjectId>,
    pub usage: FleetUsage,
    /// Money that it has spent of its budget; `None` without one, and before it was looked at.
    #[serde(default)]
    pub spending: Option<SpendingView>,
    /// Its budget or its project's is spent, and hosts give its DAGs their promises and no more.
    #[serde(default)]
    pub is_burst_off: bool,
    /// Its largest part of bandwidth or area of all cards, divided by its weight, in thousand-millionths.
    pub dominant_share_ppb: u64,
    /// It is being deleted with all that it owns.
    pub is_leaving: bool,
    /// When it was made and changed.
    pub meta: RecordMeta,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetProject {
    pub project: ProjectId,
    /// Quota that its tenants have together: of it `dags_max`, `bandwidth_max` and `month_budget` count.
    pub quota: Quota,
    /// Sum of their usage.
    pub usage: FleetUsage,
    /// Money that they have spent of its budget; `None` without one, and before it was looked at.
    #[serde(default)]
    pub spending: Option<SpendingView>,
    /// When it was made and changed.
    pub meta: RecordMeta,
}

/// Whether a host answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HostCondition {
    /// It serves what it is to serve.
    InStep,
    /// It answers, and has not yet done all that it was told.
    Behind,
    /// Its lease is over.
    Suspected,
    /// And the time to confirm that.
    Lost,
}

/// State of a host that only the leader knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetHostState {
    /// Whether it answers.
    pub condition: HostCondition,
    /// Whether its DAGs are moved away, by itself or with its rack or zone.
    pub is_draining: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetHost {
    pub host: HostId,
    /// As it is registered.
    pub spec: HostSpec,
    /// Whether its DAGs are moved away, by itself or with its rack or zone.
    pub is_draining: bool,
    /// Whether it answers.
    pub condition: HostCondition,
    /// Number of DAGs that it is to serve.
    pub dags: usize,
    /// Those of them that never move by themselves; the first hundred.
    pub bound: Vec<DagName>,
    /// Images that it does not have yet; `None`: it has not said.
    pub images_missing: Option<usize>,
    /// When it was made and changed.
    pub meta: RecordMeta,
}

/// A DAG, as its tenant sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetDag {
    pub name: DagName,
    pub spec: DagSpec,
    /// Where it may go, as its tenant said.
    pub constraints: CardConstraints,
    /// Constraints that the policy added when it was created.
    #[serde(default)]
    pub defaults: PlacementDefaults,
    /// Order of the cards that have room.
    pub policy: CardPolicy,
    pub card: Option<FleetCard>,
    /// The number of its place: another one with each move and each change.
    pub serial: Option<u64>,
    /// Why it has none.
    pub unplaced: Option<Unplaced>,
    /// The card that serves it until its place does.
    pub served_by: Option<FleetCard>,
    /// Whether its host said that it serves it there as it is asked for.
    pub is_ready: bool,
    /// The last generation that a host has said it serves; 0: none.
    pub served_generation: u64,
    /// Counts changes of what is served: labels and descriptions are none.
    pub generation: u64,
    /// When it was made and changed.
    pub meta: RecordMeta,
}

impl FleetDag {
    /// From its record.
    pub fn of(record: &FleetDagRecord) -> Self {
        let place = record.place.as_ref();
        Self {
            name: record.name.clone(),
            spec: record.spec.clone(),
            constraints: record.constraints.clone(),
            defaults: record.defaults.clone(),
            policy: record.policy,
            card: place.map(|place| place.card.clone()),
            serial: place.map(|place| place.serial),
            unplaced: record.unplaced.clone(),
            served_by: record.leaving.as_ref().map(|(card, _)| card.clone()),
            is_ready: record.is_ready,
            served_generation: record.served_generation,
            generation: record.generation,
            meta: record.meta,
        }
    }
}

/// A reservation, and whether its host knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetReservation {
    pub of: ReservedFunctions,
    /// When it ends unless it is renewed.
    pub ends: Timestamp,
    /// Its host has said that it keeps the functions from others.
    pub is_enforced: bool,
}

/// Hosts for a machine, and why the others are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundHosts {
    /// Hosts with room, the best first.
    pub hosts: Vec<RankedHost>,
    /// Number of other hosts that fail each constraint; [`Constraint::NotTried`]: nothing is known against them.
    pub refused: BTreeMap<Constraint, usize>,
    /// Why the planner refused the first card that it was asked for, if any.
    pub first: Option<Infeasible>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FleetItem {
    Tenant(FleetTenant),
    Project(FleetProject),
    /// An NT type.
    Nt(NtType, RecordMeta),
    Bitstream(Bitstream, RecordMeta),
    Host(FleetHost),
    Dag(FleetDag),
    /// Functions that are kept for a machine.
    Reservation(FleetReservation),
}

/// Why a DAG is where it is, or nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetExplanation {
    pub dag: FleetDag,
    /// Model, zone and rack of its card.
    pub at: Option<(CardModel, ZoneId, RackId)>,
    /// Number of regions of the card that it uses.
    pub regions: usize,
    /// Number of hosts that fail each constraint, if it were placed now; [`Constraint::NotTried`]: nothing is known against them.
    pub hosts: BTreeMap<Constraint, usize>,
    /// Cards that refused it since its last success, with reasons.
    pub refusals: Vec<(FleetCard, String)>,
}

/// A DAG that was created or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedDag {
    /// The card that it is promised; a DAG that waits for a place has none.
    pub card: Option<FleetCard>,
    /// The number of its place, unless that was only asked about.
    pub place: Option<u64>,
    /// Counts changes of what is served.
    pub generation: u64,
    /// When it was made and changed.
    pub meta: RecordMeta,
}

/// Progress of a drain of a rack or zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainProgress {
    pub area: DrainArea,
    /// Number of its DAGs that move at a time.
    pub moves_max: u32,
    pub hosts: usize,
    /// DAGs that are still to move.
    pub left: usize,
    /// DAGs that have their new place and are served by the old one until it serves them.
    pub moving: usize,
    /// DAGs that never move by themselves, since their machines are there; the first hundred.
    pub bound: Vec<DagName>,
    /// Number of these.
    pub bound_count: usize,
}

/// Loads of cards: the larger part of what each has, of its ingress and its area, in thousand-millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadRange {
    /// The emptiest card's.
    pub smallest: u64,
    /// The part that all DAGs take of all cards together.
    pub mean: u64,
    /// The fullest card's.
    pub largest: u64,
}

/// End of a rebalance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RebalanceOutcome {
    /// All cards are within the tolerance of the mean.
    Level,
    /// Some are not, and no DAG is left that may move and whose move would help.
    NothingHelps,
    /// An operator ended it.
    Stopped,
}

/// Why a DAG of a card that is too full, or fuller than one that is too empty, did not move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StayReason {
    /// Its machines are on its host.
    Bound,
    /// It has a place that was made since the rebalance began: it has moved, or was created or changed.
    Recent,
    /// Its host does not serve it at the moment, or it moves already.
    NotServed,
    /// Any other card would become about as full as its own is.
    NoEmptier,
    /// No emptier card has what it needs.
    NoRoom,
    /// Emptier cards are not what its policy prefers.
    Policy,
    /// The host of an emptier card lacks an image.
    Image,
}

/// A DAG that would move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedMove {
    pub name: DagName,
    /// Where it is.
    pub from: FleetCard,
    /// Where it would be.
    pub to: FleetCard,
}

/// Progress of a rebalance, or how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceProgress {
    /// Between cards of this zone; `None`: of the fleet.
    pub zone: Option<ZoneId>,
    /// Number of DAGs that move at a time.
    pub moves_max: u32,
    /// Distance that a card's load may have from the mean, in percent of a card.
    pub tolerance_percent: u32,
    /// End; `None`: it goes on.
    pub outcome: Option<RebalanceOutcome>,
    /// When it began and ended, by the leader's clock.
    pub started: Timestamp,
    pub ended: Option<Timestamp>,
    /// DAGs that it has moved.
    pub moved: u64,
    /// Number of DAGs, among them and others, that have their new place and are served by the old one until it serves them.
    pub moving: usize,
    /// Loads when it began.
    pub before: LoadRange,
    /// Loads now, or when it ended; of what is only asked about: after the moves that are named.
    pub after: LoadRange,
    /// DAGs that were to move and do not, as far as they were looked at.
    pub stays: BTreeMap<StayReason, u64>,
    /// Those of them whose machines are there; the first hundred.
    pub bound: Vec<DagName>,
    /// Where it is only asked about: what would move first.
    pub planned: Vec<PlannedMove>,
}

/// The policy files, and on which hosts they are in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetPolicies {
    /// Files by name.
    pub files: PolicyFiles,
    /// When they were registered and changed; `None`: never.
    pub meta: Option<RecordMeta>,
    /// Number of hosts that said that they are in force there.
    pub in_force: usize,
    /// Number of hosts that have not said anything of them.
    pub pending: usize,
    /// These; the first hundred.
    pub pending_hosts: Vec<HostId>,
    /// Number of hosts that refuse them.
    pub refusing: usize,
    /// These, with reasons; the first hundred.
    pub refusals: Vec<(HostId, String)>,
}

/// Counts of the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetCounts {
    pub tenants: usize,
    pub hosts: usize,
    /// Hosts that are in step.
    pub hosts_in_step: usize,
    /// Hosts whose lease is over.
    pub hosts_unreachable: usize,
    pub cards: usize,
    pub dags: usize,
    /// DAGs without a place.
    pub unplaced: usize,
    pub reservations: usize,
    /// Racks and zones that are drained.
    pub drains: Vec<DrainArea>,
    /// Why etcd refuses what is to be written, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_refusal: Option<StoreRefusal>,
}

/// State of the fleet as its leader measures it, for metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetGauges {
    /// Number of hosts in each condition; without those in which none is.
    pub hosts: BTreeMap<HostCondition, usize>,
    /// Whether so many hosts do not answer, in the fleet or in a zone, that no DAG of a lost one is moved there.
    pub is_evacuation_held: bool,
    /// DAGs that wait for a place.
    pub waiting: usize,
    /// DAGs that were refused too often.
    pub failed: usize,
    /// DAGs that are served by their old place until the new one does.
    pub moving: usize,
    /// Callers that wait for an answer.
    pub calls: usize,
    /// Steps that wait for etcd.
    pub steps: usize,
    pub reservations: usize,
    /// Budgets of tenants and projects of which most is spent.
    pub budgets_warned: usize,
    /// Budgets of which all is spent.
    pub budgets_reached: usize,
    /// Budgets of which nobody knows what is spent, for there are no prices.
    pub budgets_unknown: usize,
}

/// Reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FleetReply {
    /// It is done.
    Done,
    /// The record, as it is now.
    Item(Box<FleetItem>),
    /// A page of records.
    Items {
        /// Items by name.
        items: Vec<FleetItem>,
        /// The next page is behind this name; `None`: there is none.
        next: Option<FleetName>,
        /// Revision of etcd up to which writes are in it; later changes may be.
        revision: u64,
    },
    /// The DAG is promised a card.
    Placed(PlacedDag),
    /// Each DAG is promised the card of its position.
    AllPlaced(Vec<PlacedDag>),
    /// Why a DAG is where it is.
    Explained(Box<FleetExplanation>),
    /// Hosts for a machine.
    Hosts(Box<FoundHosts>),
    /// Functions of this card are kept.
    Reserved(FleetCard),
    /// Progress of a drain.
    Drain(DrainProgress),
    /// Progress of a rebalance.
    Rebalance(Box<RebalanceProgress>),
    /// The policy files.
    Policies(Box<FleetPolicies>),
    /// Counts of the fleet.
    Fleet(FleetCounts),
    /// States of hosts that only the leader knows.
    HostStates(BTreeMap<HostId, FleetHostState>),
}
