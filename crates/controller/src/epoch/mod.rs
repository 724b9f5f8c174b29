//! The loop that keeps a card fair and elastic.
//!
//! ```text
//!   Sample ─► card ─► counters ─► meters ─► engine: space, time ─► rates to the token buckets
//!                                   │            │                 (at an epoch's edge, differences only)
//!                                   └─ periods ──┴► autoscaler ─► planner ─► regions, rows
//!                                                   (when a monitor period has ended)
//! ```
//!
//! Two timers, as in the paper: rates change once an epoch, instances once a monitor period; the
//! counters are read at the shorter of the two. One sample is under way at most: while a card has
//! not answered the last one the next is skipped and counted, never queued.
//!
//! What was promised is held by reservation, always; the loop moves only what is beyond. So no
//! decision of it can take from anybody what admission gave.

mod engine;
mod meter;
mod reference;
mod room;
mod run;
mod scaling;
mod space;
mod spare;
mod topology;
mod view;

pub use engine::{
    AREA_UNITS, Engine, Flow, Outcome, SLOTS, TenantOutcome, TenantShape, Topology, area_per_bps,
};
pub(crate) use meter::Meter;
pub use reference::reference_step;
pub(crate) use run::Loop;
pub use run::LoopFigures;
pub use view::{DagFairness, FairnessPoint, FairnessView, HISTORY_KEPT, HISTORY_STEP, Limiter};
