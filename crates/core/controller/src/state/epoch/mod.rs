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
//! not answered the last one the next is skipped and counted, never queued. While no DAG has traffic both are rarer
//! (`rest`).
//!
//! Guaranteed rates are always reserved; the loop moves only burst capacity. So no
//! decision of it can take away what admission granted.

mod area;
mod card_loop;
mod engine;
mod rest;
mod room;
mod space;
mod topology;
mod view;

pub use area::AreaUse;
pub use card_loop::LoopFigures;
pub(crate) use card_loop::{Answered, CounterReading, Flows, Loop, Loops, of_engine};
pub use engine::{
    AREA_UNITS, DagFlow, Engine, EpochOutcome, OF_REGIONS, TenantOutcome, TenantShape, Topology,
    area_per_bps,
};
pub use topology::CardResource;
pub(crate) use topology::OnCard;
pub(crate) use view::daemon_share_ppm;
pub use view::{
    DagFairness, FairnessPoint, FairnessView, HISTORY_KEPT, HISTORY_STEP, Limiter, ResourceUse,
    SpaceView,
};
