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

mod admission;
mod arrivals;
mod assignments;
mod batch;
mod batch_create;
mod bindings;
mod card;
mod card_choice;
mod card_picture;
mod check;
mod classification;
mod commands;
mod connection;
mod consolidation;
mod contents;
mod controller;
mod dags;
mod device_health;
mod diagnosis;
mod drains;
mod epoch;
mod etag;
#[cfg(test)]
mod fixtures;
mod forgotten;
mod freed;
mod guards;
mod history;
mod images;
mod inspection;
mod lifecycle;
mod log;
mod maintenance;
mod managed;
mod memory_use;
mod meter;
mod migration;
mod mixed_cards;
mod nt_numbers;
mod operations;
mod outbox;
mod passes;
mod placement;
mod planning;
mod policies;
mod protocol;
mod quarantine;
mod quotas;
mod reconcile;
mod records;
mod recovery;
mod refused;
mod registrations;
mod registry;
mod removals;
mod reopening;
mod reports;
mod requests;
mod residency;
mod retirement;
mod revisions;
mod rows;
mod rules;
mod sampling;
mod scaling;
mod serving;
mod state;
mod status;
mod suspects;
mod tally;
mod thread_use;
mod trials;
mod tx;
mod untrusted;
mod views;
mod vm_bindings;
mod work;

pub use batch::BatchSnapshot;
pub use card::StateFigures;
pub use card_picture::CardPicture;
pub use controller::{Controller, RegionGlance};
pub use diagnosis::{
    DagVerdict, Diagnosis, DiagnosisInput, LatencyPart, LimitingResource, PacketPart, Remedy,
    ResourceUser, diagnose,
};
pub use epoch::{
    AREA_UNITS, AreaUse, CardResource, DagFairness, DagFlow, Engine, EpochOutcome, FairnessPoint,
    FairnessView, HISTORY_KEPT, HISTORY_STEP, Limiter, LoopFigures, OF_REGIONS, ResourceUse,
    SpaceView, TenantOutcome, TenantShape, Topology, area_per_bps,
};
pub use inspection::{Inspection, shown};
pub use log::{LOG_KEPT, TENANT_LOG_KEPT};
pub use migration::{Migrated, migrate};
pub use outbox::{BatchNo, NumberedBatch, Outbox};
pub use planning::LOOKS_OF_AN_EVENT;
pub use protocol::{
    AdmissionPolicy, AppliedPlace, Arrangement, AssignedCard, AssignedDag, AssignmentProgress,
    BatchPlan, BindingRecord, BindingView, BitstreamAdvice, BitstreamView, BoundDag, CallId,
    Caller, CardHealth, CardLoss, CardOrder, CardView, Change, Command, ConsolidationSettings,
    ConsolidationView, ControlError, ControllerSettings, DagAssignment, DagBatch, DagTraffic,
    DagView, DeviceAspect, DeviceCondition, DevicePolicy, DeviceView, EPOCH_MAX, EPOCH_MIN, Effect,
    Event, Fairness, FieldViolation, FleetChange, IdleTask, LogEntry, LogKind, MoveView, NewDag,
    NtView, OperationRecord, OperationView, OperationWork, PlacementPolicy, Provision,
    ProvisionName, RecentPackets, RecommendationView, RegionUser, RegionView, Reply, Request,
    ResourceKey, ResourceKind, RuleView, Scheduling, Scheme, SlotView, StatePlace, StateView,
    TenantUsage, TenantView,
};
pub use quarantine::SetAside;
pub use records::{
    InvalidRecord, LAYOUT, Maintenance, PendingErase, Phase, REVISIONS_KEY, RecordWrite,
    RefusedRecord, ResidentContext, Stamp, StateRecord, is_set_aside,
};
pub use revisions::RevisionTooOld;
pub use snic_autoscaler::Policy as Autoscaling;
pub use snic_fairness::fluid::Spare;
pub use snic_planner::{Objective, Underfilled};
pub use snic_tables::{
    CardCommand, CardCounters, CardReport, CreditReservation, DagCounters, DropCause, Steering,
    Ticket,
};
pub use tx::Tx;
