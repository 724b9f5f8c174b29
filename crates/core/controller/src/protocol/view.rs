//! Views for callers: resources with their status, made from the state on demand.

use std::collections::BTreeMap;

use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, BudgetAction, BudgetLevel, ByteSize, CardId,
    CardProfile, Condition, Cycles, DagName, DagSpec, DagState, DagUid, Explanation, IdleTask,
    Mapping, NtCode, NtType, NtTypeId, RegionId, RegionKind, RegionState, Rule, Slot, Tenant,
    Timestamp, VmId,
};
use snic_planner::{Recommendation, Underfilled};
use snic_tables::CardCounters;
use snic_usage::Money;

use super::assignment::AssignedCard;
use super::device::DeviceView;
use super::latency::MeasuredLatencies;
use super::operation::{DagMoves, OperationRecord};
use super::traffic::DagTraffic;

/// A tenant with what it uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantView {
    pub tenant: Tenant,
    /// Tells it from another one that has or had the same id: a UUID.
    pub uid: String,
    pub usage: TenantUsage,
    /// For guarded updates.
    pub etag: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it was last changed.
    pub updated: Timestamp,
    /// The number that it has at the fleet, if the fleet manages it.
    pub fleet_number: Option<u64>,
    /// Money that it has spent of its budget, if it has one.
    pub spending: Option<TenantSpending>,
}

/// Money that a tenant has spent of its budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSpending {
    /// The month (UTC): its first second since 1970, and that of the next month.
    pub month: (u64, u64),
    /// Money spent in it, up to the last close of intervals; `None` without prices.
    pub spent: Option<Money>,
    /// ISO 4217 code; empty without prices.
    pub currency: String,
    pub level: BudgetLevel,
    /// Policy for those that have spent all of it.
    pub at_limit: BudgetAction,
}

/// Usage that counts against the quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantUsage {
    pub dags: u32,
    /// Sum of the requested bandwidth.
    pub bandwidth: Bandwidth,
    /// Bitstreams of its own.
    pub bitstreams: u32,
    /// Their bytes together.
    pub bitstream_bytes: ByteSize,
    /// On-board memory of the NT types in its DAGs, in whole pages, each type once on each card; without a
    /// place those that no card has for the tenant.
    pub memory: ByteSize,
    /// NT types of its own.
    pub nt_types: u32,
    /// Classification rules that lead to its DAGs.
    pub rules: u32,
    /// Virtual machines that are bound or being bound.
    pub machines: u32,
    /// Operations that have not ended.
    pub operations: u32,
    /// Threads of its DAGs' programs.
    pub threads: u32,
}

/// An NT type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NtView {
    /// The NT type.
    pub nt: NtType,
    /// Its number on cards.
    pub code: NtCode,
    /// For guarded deletes.
    pub etag: String,
    /// When it was registered.
    pub created: Timestamp,
    /// The number that it has at the fleet, if the fleet manages it.
    pub fleet_number: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitstreamView {
    pub bitstream: Bitstream,
    /// Sum of the area of its NTs.
    pub area: Area,
    /// Regions that hold it or are to hold it; empty for tenants.
    pub regions: Vec<(CardId, RegionId)>,
    /// Regions of its kind, on cards of its model, that it has no image for.
    pub missing_regions: Vec<RegionId>,
    /// Why it is not used any more, if loading it failed wherever it was tried.
    pub rejection: Option<BitstreamRejection>,
    /// For guarded deletes.
    pub etag: String,
    /// When it was uploaded.
    pub created: Timestamp,
    /// The number that it has at the fleet, if the fleet manages it.
    pub fleet_number: Option<u64>,
}

/// Why nothing is planned with a bitstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitstreamRejection {
    /// Why its last load failed.
    pub reason: String,
    /// Since when it is rejected.
    pub since: Timestamp,
    /// From when on its owner can have it retried.
    pub retry_from: Timestamp,
}

/// A DAG with its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DagView {
    pub name: DagName,
    /// UID that packets carry.
    pub uid: DagUid,
    pub spec: DagSpec,
    /// Counts changes of the spec.
    pub generation: u64,
    /// The generation that the card, read back, serves; 0 where it serves none.
    pub observed_generation: u64,
    pub state: DagState,
    /// Conditions with their reasons.
    pub conditions: Vec<Condition>,
    /// Where it is to be.
    pub mapping: Option<Mapping>,
    /// NTs in each bitstream of the mapping, in the order in which packets pass.
    pub contents: BTreeMap<BitstreamId, Vec<NtTypeId>>,
    /// From entry to exit of an otherwise empty card, by the mapping.
    pub latency: Cycles,
    pub explanation: Option<Explanation>,
    /// Rate of its token bucket.
    pub rate: Bandwidth,
    /// Promised bandwidth that is not known to be served.
    pub unserved: Bandwidth,
    /// Shortfall against the smaller of promise and load.
    pub shortfall: Bandwidth,
    /// State that its chains keep for it.
    pub states: Vec<StateView>,
    /// Traffic, where it is known.
    pub traffic: Option<Box<DagTraffic>>,
    /// Latencies of its packets lately, where its card measures them.
    pub measured: Option<Box<MeasuredLatencies>>,
    /// For guarded updates.
    pub etag: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it was last changed.
    pub updated: Timestamp,
    /// The card that the fleet assigned it to; `None`: it was created on this host.
    pub assigned: Option<AssignedCard>,
    /// Its tasks that pass packets on unchanged there.
    pub idle_tasks: Vec<IdleTask>,
}

/// A slot of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotView {
    pub nt: NtTypeId,
    /// Bandwidth that it serves at most.
    pub bandwidth_max: Bandwidth,
    /// Reserved part of it.
    pub reserved: Bandwidth,
}

/// One DAG in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionUser {
    pub dag: DagName,
    /// The slots it uses, rising.
    pub slots: Vec<Slot>,
    /// Bandwidth that is reserved for it there.
    pub bandwidth: Bandwidth,
}

/// A region; for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionView {
    pub card: CardId,
    pub region: RegionId,
    pub kind: RegionKind,
    /// Area of a chain that fits.
    pub area: Area,
    pub state: RegionState,
    /// Whether nothing new is placed in it.
    pub cordoned: bool,
    pub bitstream: Option<BitstreamId>,
    pub slots: Vec<SlotView>,
    /// Users of it.
    pub users: Vec<RegionUser>,
    /// Loads since the daemon started, failed ones included.
    pub loads: u64,
    /// Loads that failed since the last that did not.
    pub failures: u32,
    /// Times since the daemon started that its NTs let no packet go and were reset.
    pub stalls: u64,
    /// Why the last load failed, or why it is faulty.
    pub last_error: Option<String>,
    /// When a load last failed since the daemon started.
    pub last_error_at: Option<Timestamp>,
    /// State that it keeps for DAGs, or that is being saved from it.
    pub states: Vec<StateView>,
    /// For guarded changes.
    pub etag: String,
}

/// Health of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardHealth {
    /// It answers, and what it holds is known.
    Ok,
    /// It is being asked what it holds.
    Adopting,
    /// It does not answer.
    Lost(String),
}

/// Since when a card does not answer, and what was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CardLoss {
    /// When it was lost.
    pub since: Timestamp,
    /// Number of failed attempts to open it since.
    pub attempts: u32,
}

/// A card; for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardView {
    pub card: CardId,
    /// Profile that it reports.
    pub profile: CardProfile,
    pub health: CardHealth,
    /// Since when it does not answer, until it is known again what it holds; `None` where it answers, or was
    /// not tried since the daemon started.
    pub loss: Option<CardLoss>,
    /// Version of its active tables.
    pub table_version: u32,
    /// Loads since the daemon started, failed ones included.
    pub loads: u64,
    /// Times since the daemon started that NTs of its regions let no packet go and were reset.
    pub stalls: u64,
    /// Table words written since the daemon started.
    pub words_written: u64,
    /// Table commits since the daemon started.
    pub commits: u64,
    /// Ingress bandwidth reserved.
    pub ingress_reserved: Bandwidth,
    /// Its counters, as last read.
    pub counters: CardCounters,
    /// Regions by state, for a summary.
    pub regions: Vec<(RegionId, RegionState)>,
    /// Those of them that are cordoned.
    pub cordoned: Vec<RegionId>,
    /// Its device, where something was ever read of it.
    pub device: Option<DeviceView>,
    /// Threads that programs have, of each processor of the profile.
    pub threads_used: Vec<u32>,
    /// For guarded changes.
    pub etag: String,
}

/// A rule with whether the card has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleView {
    pub rule: Rule,
    /// The machine with which it ends.
    pub binding: Option<VmId>,
    /// When it was last changed.
    pub updated: Timestamp,
    /// Whether the card, read back, has it.
    pub programmed: bool,
    /// For guarded deletes.
    pub etag: String,
    /// When it was made.
    pub created: Timestamp,
}

/// An operation with how far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationView {
    pub record: OperationRecord,
    /// Regions it waits for, in all and loaded; of a drain, in all and empty. As it was when it ended.
    pub regions: (u32, u32),
    /// Moves of a consolidation. As it was when it ended.
    pub moves: Option<DagMoves>,
    /// DAGs that still have to move before what they use is deleted.
    pub dags_left: u32,
    /// Whether it can be cancelled now.
    pub cancellable: bool,
    /// Until it has ended, what a DAG that it is about waits for: its last condition. Of a drain, what is left.
    pub stage: Option<String>,
    /// The DAG as it is now, where it has ended and is about one that still exists.
    pub dag: Option<Box<DagView>>,
    /// The region as it is now, where it is about one.
    pub region: Option<Box<RegionView>>,
    /// Tasks that pass packets on unchanged, of a DAG that is created or updated.
    pub idle_tasks: Vec<IdleTask>,
}

impl OperationView {
    /// Whether it has ended.
    pub const fn is_done(&self) -> bool {
        self.record.ended.is_some()
    }
}

/// Where a context is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatePlace {
    /// In a region that the DAG uses, or that still holds the chain.
    Region(RegionId),
    /// On its way to the save area.
    Saving(RegionId),
    /// In the save area, at this offset in bytes.
    Saved(u32),
}

/// A context as callers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateView {
    /// Owner of the state.
    pub dag: DagName,
    /// Bitstream that keeps it.
    pub bitstream: BitstreamId,
    /// Where it is.
    pub place: StatePlace,
    /// Size without the head.
    pub bytes: ByteSize,
    /// Since when it is saved or being saved.
    pub since: Option<Timestamp>,
}

/// One DAG that would move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveView {
    pub dag: DagName,
    /// Where it is, rising.
    pub from: Vec<RegionId>,
    /// Where it would be, rising.
    pub to: Vec<RegionId>,
    /// Those of the regions that are loaded for it.
    pub loads: Vec<RegionId>,
}

/// Moves of a consolidation, done or proposed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsolidationView {
    pub card: CardId,
    /// The moves, in order; none where nothing is worth it.
    pub moves: Vec<MoveView>,
    /// Regions that nobody would use any more.
    pub freed: Vec<RegionId>,
    /// Regions that were not in use before.
    pub taken: Vec<RegionId>,
    pub reconfigurations: u32,
    /// Passes of the scheduler, of all DAGs together, before and after.
    pub passes: (u64, u64),
}

/// Gain that a card's operator may have from other bitstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitstreamAdvice {
    /// Sequences of NTs that are worth a bitstream, the best first.
    pub worth_building: Vec<RecommendationView>,
    /// Regions that are less than half full.
    pub underfilled: Vec<Underfilled>,
}

/// A sequence of NTs that is worth a bitstream, with the manifest to build it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecommendationView {
    /// Gain of building it.
    pub recommendation: Recommendation,
    /// TOML, for a build.
    pub manifest: String,
}
