//! The control plane as a state machine: events in, effects out.
//!
//! No I/O, no clock, no randomness of its own: the shell passes the time, carries out the effects
//! in their order and reports what came of them. So the same code runs under tokio against a real
//! card and under virtual time, with faults from a seed, in one thread.
//!
//! ```text
//!           requests, reports, ticks                       Tx ── Outbox ──► Reply, Card, Emit
//! shell ───────────────────────────────► Controller ─────────────────────────────────────► shell
//!                                         │
//!            what should be ◄─────────────┼──────────────► what is
//!            (records: DAGs, placements,  │                (asked of the card: regions, tables)
//!             regions' contents)          ▼
//!                               difference → loads, table rows
//! ```
//!
//! Nothing remembers "where a step was": whatever was under way when the daemon died shows as a
//! difference between the records and what the card says it holds, and is taken up from there.
//!
//! One crate, because its machines share one event, one transaction and one set of records; the borders
//! between them are modules with private state, whose arrows `cargo xtask tidy` checks.

// Each folder uses only those before it; `cargo xtask tidy` checks it.
mod controller;
mod decide;
#[cfg(test)]
mod fixtures;
mod place;
mod protocol;
mod react;
mod request;
mod restart;
mod state;
mod store;
mod view;

pub use controller::{Controller, RegionGlance};
pub use decide::batch::BatchSnapshot;
pub use protocol::{
    AdmissionPolicy, AppliedPlace, Arrangement, AssignedCard, AssignedDag, AssignmentProgress,
    BatchPlan, BindingRecord, BindingView, BitstreamAdvice, BitstreamView, BoundDag, BudgetAction,
    BudgetLevel, BudgetPolicy, CallId, CardHealth, CardLoss, CardOrder, CardView, Change, Command,
    ConsolidationSettings, ConsolidationView, ControlError, ControllerSettings, DagAssignment,
    DagBatch, DagMoves, DagTraffic, DagView, DeviceAspect, DeviceCondition, DevicePolicy,
    DeviceView, EPOCH_MAX, EPOCH_MIN, Effect, Event, Fairness, FieldViolation, FleetChange,
    IdleTaskPolicy, LatencyQuantiles, LogEntry, LogKind, MeasuredLatencies, MeasuredLatency,
    MeasuredPart, MoveView, NewDag, NtView, OperationRecord, OperationView, OperationWork,
    PlacementPolicy, Provision, ProvisionName, RecommendationView, RegionUser, RegionView, Reply,
    Request, ResourceKey, ResourceKind, RoomWait, RuleView, Scheduling, Scheme, SlotView,
    StatePlace, StateView, TenantSpending, TenantUsage, TenantView, TrafficWindow, UsageAccount,
    UsageView,
};
pub use restart::inspection::{Inspection, shown};
pub use restart::quarantine::SetAside;
pub use restart::set_aside::SetAsideAccount;
pub use snic_autoscaler::Policy as Autoscaling;
pub use snic_bitstream::signature::Trust;
pub use snic_fairness::fluid::Spare;
pub use snic_planner::{Objective, Underfilled};
pub use snic_tables::{
    CardCommand, CardCounters, CardReport, CreditReservation, DagCounters, DropCause, PathPart,
    Steering, Ticket,
};
pub use state::card::StateFigures;
pub use state::epoch::{
    AREA_UNITS, AreaUse, CardResource, DagFairness, DagFlow, Engine, EpochOutcome, FairnessPoint,
    FairnessView, HISTORY_KEPT, HISTORY_STEP, Limiter, LoopFigures, OF_REGIONS, ResourceUse,
    SpaceView, TenantOutcome, TenantShape, Topology, area_per_bps,
};
pub use state::planning::LOOKS_OF_AN_EVENT;
pub use store::log::{LOG_KEPT, TENANT_LOG_KEPT};
pub use store::outbox::{BatchNo, NumberedBatch, Outbox};
pub use store::records::{
    DAG_SPEC_BYTES_MAX, InvalidRecord, KeptRecord, LAYOUT, Maintenance, PendingErase, Phase,
    REVISIONS_KEY, RecordWrite, RefusedRecord, ResidentContext, SET_ASIDE_BYTES_MAX, SET_ASIDE_MAX,
    Stamp, StateRecord, is_set_aside,
};
pub use store::revisions::RevisionTooOld;
pub use store::tx::Tx;
pub use view::card_picture::CardPicture;
pub use view::diagnosis::{
    DagVerdict, Diagnosis, DiagnosisInput, LatencyPart, LimitingResource, PacketPart, Remedy,
    ResourceUser, diagnose,
};
