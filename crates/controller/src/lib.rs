//! The control plane as a state machine: events in, effects out.
//!
//! No I/O, no clock, no randomness of its own: the shell passes the time, carries out the effects
//! in their order and reports what came of them. So the same code runs under tokio against a real
//! card and under virtual time, with faults from a seed, in one thread.
//!
//! ```text
//!           requests, reports, ticks                       Persist ── barrier ──► Reply, Card, Emit
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
mod consolidation;
mod dags;
mod epoch;
mod error;
mod event;
#[cfg(test)]
mod fixtures;
mod glance;
mod log;
mod maintenance;
mod operations;
mod pages;
mod placement;
mod policy;
mod queries;
mod reconcile;
mod records;
mod recovery;
mod refused;
mod regions;
mod reports;
mod resources;
mod roles;
mod rows;
mod rules;
mod state;
mod states;
mod status;
mod tenants;
mod tx;
mod view;

pub use bindings::{BindingRecord, BindingView, BoundDag};
pub use consolidation::{ConsolidationSettings, ConsolidationView, MoveView, RecommendationView};
pub use epoch::{
    AREA_UNITS, DagFairness, Engine, FairnessPoint, FairnessView, Flow, HISTORY_KEPT, HISTORY_STEP,
    Limiter, LoopFigures, Outcome, SLOTS, TenantOutcome, TenantShape, Topology, area_per_bps,
    reference_step,
};
pub use error::{ControlError, FieldViolation};
pub use event::{CallId, Caller, Change, Command, Effect, Event, Reply, Request};
pub use glance::RegionGlance;
pub use log::{LOG_KEPT, LogEntry, LogKind};
pub use policy::{Admission, EPOCH_MAX, EPOCH_MIN, Fairness, Scheduling, Scheme};
pub use records::{InvalidRecord, Maintenance, OperationRecord, RecordWrite, Work};
pub use refused::RefusedRecord;
pub use snic_autoscaler::Policy as Autoscaling;
pub use snic_fairness::fluid::Spare;
pub use snic_planner::Underfilled;
pub use snic_tables::{
    CardCommand, CardCounters, CardReport, DagCounters, DropCause, Reservation, Steering, Ticket,
};
pub use state::{Controller, Settings};
pub use states::{
    PendingErase, Phase, ResidentContext, StateFigures, StatePlace, StateRecord, StateView,
};
pub use view::{
    BitstreamView, CardHealth, CardView, DagView, NtView, OperationView, RegionUser, RegionView,
    RuleView, SlotView, TenantUsage, TenantView,
};
