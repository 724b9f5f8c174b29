//! Requests of callers, and orders of a fleet.
//!
//! Start at [`commands`]: one arm for each command. [`lifecycle`] creates, changes and deletes DAGs; [`vm_bindings`] binds machines; [`assignments`]
//! takes a fleet's orders.
//!
//! **Invariant.** A rejected request changes nothing.

pub(crate) mod assignments;
pub(crate) mod batch_create;
#[cfg(test)]
#[path = "check_costs/tests.rs"]
mod check_costs;
pub(crate) mod commands;
pub(crate) mod lifecycle;
pub(crate) mod managed;
pub(crate) mod registrations;
pub(crate) mod removals;
pub(crate) mod reopening;
pub(crate) mod retirement;
pub(crate) mod validation;
pub(crate) mod vm_bindings;
