//! When a DAG's chains get more instances, and when fewer (SuperNIC, 4.1 and 5).
//!
//! Pure: loads and times in, a [`Decision`] with its [`Why`] out. What a decision costs (a region,
//! a reconfiguration, a table flip) is the planner's and the controller's business.
//!
//! ```text
//!   counters ─► Monitor: whole periods, trend ─► decide ─► Keep
//!                                                  │        ScaleOut  load is over what there is
//!        capacity, fair share, what was promised ──┘        PreLaunch it will be, by the trend
//!                                                           ScaleIn   one instance fewer would do
//! ```
//!
//! Two things keep it calm. Every decision is over *whole* monitor periods: one packet burst moves
//! nothing. And what was decided stays for the residency time: a region is never switched back and
//! forth. Below what a DAG was promised nothing is ever scaled in.

mod decide;
mod monitor;
mod policy;
mod victim;

pub use decide::{Chain, Decision, Why, decide, is_over, target_millis};
pub use monitor::{Monitor, PERIODS_KEPT, Period};
pub use policy::{InvalidPolicy, PERIOD_MAX, Policy};
pub use victim::{Holder, pick};
