//! Fair admission: who may use what all callers share.
//!
//! ```text
//!                   level: guaranteed share          flow: fair share of the level
//!  connection ─┐
//!  call       ─┼─► Room       ── places ──► admitted, or over its share
//!  upload     ─┘
//!  request    ───► FairQueue  ── time   ──► next, or over its share
//! ```
//!
//! Modelled on Kubernetes' API Priority and Fairness. Callers are grouped into *levels* (health,
//! operators, tenants …), so that one kind of caller cannot starve another; within a level each *flow*
//! (one tenant, one address) gets a fair share, so that one caller cannot starve its peers. There are two
//! kinds of shared things: places, of which each admitted flow holds some for a while ([`Room`]), and the
//! time of one thread ([`FairQueue`]).
//!
//! Both are pure state machines: they know no clock, socket or lock, and generic flow names.

mod queue;
mod room;

pub use queue::{FairQueue, Overflow, TakenItem};
pub use room::{Level, LevelSeat, OverShare, Room};
