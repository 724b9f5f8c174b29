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

mod admission;
mod bindings;
mod card;
mod check;
mod classification;
mod commands;
mod consolidation;
mod dags;
mod epoch;
mod etag;
#[cfg(test)]
mod fixtures;
mod glance;
mod log;
mod machines;
mod maintenance;
mod operations;
mod outbox;
mod pages;
mod placement;
mod protocol;
mod queries;
mod reconcile;
mod records;
mod recovery;
mod refused;
mod regions;
mod registry;
mod reports;
mod requests;
mod roles;
mod rows;
mod rules;
mod state;
mod states;
mod status;
mod tx;

pub use epoch::{
    AREA_UNITS, DagFairness, Engine, FairnessPoint, FairnessView, Flow, HISTORY_KEPT, HISTORY_STEP,
    Limiter, LoopFigures, Outcome, SLOTS, TenantOutcome, TenantShape, Topology, area_per_bps,
    reference_step,
};
pub use glance::RegionGlance;
pub use log::LOG_KEPT;
pub use outbox::{BatchNo, NumberedBatch, Outbox};
pub use protocol::{
    Admission, BindingRecord, BindingView, BitstreamView, BoundDag, CallId, Caller, CardHealth,
    CardView, Change, Command, ConsolidationSettings, ConsolidationView, ControlError, DagView,
    EPOCH_MAX, EPOCH_MIN, Effect, Event, Fairness, FieldViolation, LogEntry, LogKind, MoveView,
    NtView, OperationRecord, OperationView, RecommendationView, RegionUser, RegionView, Reply,
    Request, RuleView, Scheduling, Scheme, Settings, SlotView, StatePlace, StateView, TenantUsage,
    TenantView, Work,
};
pub use records::{
    InvalidRecord, Maintenance, PendingErase, Phase, RecordWrite, RefusedRecord, ResidentContext,
    StateRecord,
};
pub use snic_autoscaler::Policy as Autoscaling;
pub use snic_fairness::fluid::Spare;
pub use snic_planner::Underfilled;
pub use snic_tables::{
    CardCommand, CardCounters, CardReport, DagCounters, DropCause, Reservation, Steering, Ticket,
};
pub use state::Controller;
pub use states::StateFigures;
pub use tx::Tx;
