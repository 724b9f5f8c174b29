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
mod card_engine;
mod card_loop;
mod counter_intake;
mod engine;
mod flows;
mod history;
mod loops;
mod on_card;
mod renewal;
mod rest;
mod room;
mod sampler;
mod shares;
mod space;
mod topology;
mod view;

pub use area::AreaUse;
pub(crate) use area::area_of_promise;
pub(crate) use card_engine::{Flows, of_engine};
pub(crate) use card_loop::CardLoop;
pub use card_loop::LoopFigures;
pub(crate) use counter_intake::CounterReading;
pub use engine::Engine;
pub use flows::{
    AREA_UNITS, DagFlow, EpochOutcome, OF_REGIONS, TenantOutcome, TenantShape, Topology,
    area_per_bps,
};
pub use history::{FairnessPoint, HISTORY_KEPT, HISTORY_STEP};
pub(crate) use loops::CardLoops;
pub(crate) use on_card::OnCard;
pub(crate) use sampler::SampleAnswer;
pub(crate) use shares::daemon_share_ppm;
pub use topology::CardResource;
pub use view::{DagFairness, FairnessView, Limiter, ResourceUse, SpaceView};
