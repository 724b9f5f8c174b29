//! Fair space and fair time: who gets how much of a card, and how fast each DAG may send.
//!
//! Three parts, each a pure function of its inputs:
//!
//! ```text
//!   drf      space: FPGA area and memory by weighted Dominant Resource Fairness
//!            → regions: fractional shares to whole regions, the rest by sharing
//!   drfq     time, packet by packet: virtual start and finish. The reference, and a
//!            scheduling mode of a simulated card
//!   fluid    time, once an epoch: the fluid limit of drfq as ingress rates
//! ```
//!
//! # What "exact" means here
//!
//! A sum of a thousand fractions with unrelated denominators is a number of ten thousand digits,
//! which nobody can read and no epoch can wait for. So every part has two sides:
//!
//! - [`drf::exact`] and [`fluid::reference`] compute in fractions of unbounded size: no rounding,
//!   no ties decided by noise. They answer small cases to the digit, explain, and are the oracle
//!   of the tests.
//! - [`drf::solve`] computes in scaled integers that round towards using less; [`fluid::Solver`]
//!   sweeps in floating point and hands out whole bits per second, checked against the capacities
//!   in integers. Neither ever hands out more than there is; each states how far it can be from
//!   the exact side, and property tests hold it to that. The same inputs give the same outputs on
//!   every machine, and users whose inputs are equal are treated equally to the last bit.

pub mod drf;
pub mod drfq;
pub mod fluid;
pub mod regions;
mod weight;

pub use weight::{InvalidWeight, Weight};
