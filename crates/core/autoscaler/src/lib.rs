//! When a DAG's chains get more instances, and when fewer (SuperNIC, 4.1 and 5).
//!
//! Pure: loads and times in, a [`Decision`] with its [`Why`] out. The cost of a decision (a region,
//! a reconfiguration, a table flip) is the planner's and the controller's business.
//!
//! ```text
//!   counters ─► Monitor: whole periods ─► decide ─► Keep
//!                                           │        ScaleOut  load is over what there is
//!        capacity, fair share,          ────┤        ScaleIn   load is under the scale-in threshold
//!        guaranteed rate                    │
//!   counters ─► load since the last ───► look ────► PreLaunch load is over it, and a region is free
//!                period, where it is near
//! ```
//!
//! Two rules prevent oscillation. A region is taken from a DAG only after *whole* monitor periods: one burst of
//! packets takes nothing from anybody. And a decision stays for the cooldown, so that a region is never
//! switched back and forth. No DAG is scaled in below its guaranteed rate. Only free regions are loaded before a
//! period ends, and only for a load that has been measured, not for a trend.

#![warn(clippy::missing_errors_doc)]

mod decide;
mod monitor;
mod policy;
mod victim;

pub use decide::{
    DagCapacity, Decision, Why, decide, decide_early, is_near, is_over, target_millis,
};
pub use monitor::{Monitor, Period};
pub use policy::{InvalidPolicy, PERIOD_MAX, Policy};
pub use victim::{Holder, pick};
