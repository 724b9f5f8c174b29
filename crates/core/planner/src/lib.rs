//! Maps a DAG to virtual chains and these to regions: the mapping is a value with its explanation.
//!
//! Pure: no I/O, no clock, no randomness. [`plan()`] reads a [`Ledger`] and a [`PlanCatalogue`] and
//! changes neither; the caller carries the plan out and records it in the ledger:
//!
//! ```text
//! DAG ── form ──> stages of virtual chains ── search ──> parts × instances + loads ──> Plan
//!        16-cycle rule                        share, load, cut              ledger: set_content, hold
//! ```
//!
//! The objective, in this order: admit the DAG; interrupt no other DAG; fewest new regions; fewest victims
//! replaced among them; fewest scheduler passes; least unused area; most headroom on the tightest NT;
//! ties by id. So a loaded chain is shared before a region is loaded (SuperNIC, 4.1), a free region is
//! loaded before a victim is replaced, and a chain is cut if that saves a region. While table rows or ports
//! run short, passes come before regions, and a region is loaded if that saves a cut: [`Objective`] says when.
//!
//! One crate, because plan, batch, consolidation and recommendation are one search over one ledger: a
//! border would make its views of loads, slack and ports public.

#![warn(clippy::missing_errors_doc)]

mod batch;
mod by_owner;
mod candidates;
mod catalogue;
mod changes;
mod classes;
mod cover;
mod effort;
mod explain;
mod fewest;
#[cfg(test)]
mod fixtures;
mod form;
mod headroom;
mod infeasible;
mod job;
mod ledger;
mod memory;
mod memory_rate;
mod nt_key;
mod objective;
mod optimize;
mod order;
mod placed;
mod plan;
mod processor_use;
mod programs;
mod provision;
mod recommend;
mod refusal;
mod region;
mod region_groups;
mod request;
mod reservation;
mod search;
mod shares;
mod stay;
mod totals;
mod vacate;
mod view;
mod work;

pub use batch::{PlanBatch, plan_batch};
pub use candidates::loadable_into;
pub use catalogue::PlanCatalogue;
pub use effort::Effort;
pub use ledger::Ledger;
pub use memory::allocated_memory;
pub use objective::Objective;
pub use optimize::{Budget, Consolidation, Move, Resident, optimize};
pub use plan::{plan, plan_within};
pub use recommend::{InfeasibleDag, Recommendation, Recommendations, Underfilled, recommend};
pub use refusal::{ContentMismatch, Overbooked};
pub use region::RegionCondition;
pub use request::{Plan, PlanRequest, RegionLoad};
pub use reservation::{Reservation, TableRows};
pub use work::BitCost;
