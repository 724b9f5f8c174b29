//! From a DAG to virtual chains to regions: the mapping, as a value with its explanation.
//!
//! Pure: no I/O, no clock, no randomness. [`plan()`] reads a [`Ledger`] and a [`Catalogue`] and
//! changes neither; the caller carries the plan out and notes it in the ledger:
//!
//! ```text
//! DAG ── form ──> stages of virtual chains ── search ──> parts × instances + loads ──> Plan
//!        16-cycle rule                        share, load, cut              ledger: set_content, hold
//! ```
//!
//! The order of ways is that of SuperNIC, 4.1: share a loaded chain, else load a free region, else a
//! victim's; cut a chain only where it has no place whole. Among what is possible then: fewest new
//! regions, fewest victims lost, fewest passes, least area unused, most headroom on the tightest
//! NT, ties by id. No plan touches a region that anyone uses.

mod candidates;
mod catalogue;
mod cover;
mod explain;
mod form;
mod ledger;
mod plan;
mod refusal;
mod reservation;
mod search;
mod shares;
mod view;

pub use catalogue::Catalogue;
pub use ledger::{Ledger, Overbooked, RegionCondition, Unfit};
pub use plan::{Load, Plan, Request, plan};
pub use reservation::{Reservation, TableRows};
