//! The fleet: its leader, where DAGs go, and all of it in a simulation.

mod apart;
mod attachments;
mod budgets;
mod leader;
mod placement;
mod policies;
mod rebalance;
mod reservations;
mod simulation;
mod support;

use simulation::{book, host};
