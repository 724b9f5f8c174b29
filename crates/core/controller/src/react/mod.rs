//! Reactions to what cards report and to time.
//!
//! Start at [`reports`]: one arm for each report. [`sampling`] reads counters and runs the epoch; [`arrivals`] notes what a card serves;
//! [`reconcile`] takes the next steps at the end of each event.
//!
//! **Invariant.** The next step follows from the difference between records and card alone, never from a memory of the step before.

pub(crate) mod arrivals;
pub(crate) mod budgets;
pub(crate) mod reconcile;
pub(crate) mod reports;
pub(crate) mod sampling;
pub(crate) mod usage;
