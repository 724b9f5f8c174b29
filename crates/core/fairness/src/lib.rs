//! Fair space and fair time: how much of a card each tenant gets, and how fast each DAG may send.
//!
//! Three parts, each a pure function of its inputs:
//!
//! ```text
//!   drf      space: FPGA area and memory by weighted Dominant Resource Fairness
//!            → regions: fractional shares to whole regions, the rest by sharing
//!   fluid    time, once per epoch: the fluid limit of DRFQ as ingress rates
//! ```
//!
//! # Accuracy
//!
//! The exact sum of a thousand fractions with unrelated denominators has ten thousand digits, too many
//! for an epoch. So [`drf::solve`] computes in scaled integers that round towards less use, and
//! [`fluid::Solver`] sweeps in floating point and returns whole bits per second that are checked
//! against the capacities in integers. Neither exceeds a capacity; the documentation of each states its
//! largest error. Property tests compare both with exact solvers over fractions (crate
//! `snic-oracles`). The same inputs give the same outputs on every machine, and users with equal
//! inputs get equal results to the last bit.

#![warn(clippy::missing_errors_doc)]

pub mod drf;
pub mod fluid;
pub mod regions;
mod weight;

pub use weight::{InvalidWeight, Weight};
