//! Fair space: weighted Dominant Resource Fairness (Ghodsi et al., NSDI 2011).
//!
//! A user's *share* is the fraction it holds of the resource it holds most of. Progressive filling
//! raises everybody's share, in proportion to the weights, until a resource is full; who needs that
//! resource stops there, and so does who reaches its own cap or quota; the rest go on.
//!
//! [`solve`] is the side for the control loop: scaled integers, off by about
//! 2^-40 (its documentation says when by more). [`exact::solve`] is the same filling in fractions of unbounded
//! size. [`whole::solve`] hands out whole tasks only.
//!
//! Ties are broken by position: users and resources come in the order of their ids.

mod area;
pub mod exact;
mod fast;
mod problem;
pub mod whole;

pub use area::{AREA_SCALE, InvalidArea, area_demand};
pub use fast::{Allocation, Outcome, Share, Solver, solve};
pub use problem::{
    AMOUNT_MAX, Amounts, Fraction, InvalidFraction, InvalidProblem, Limit, Problem, RESOURCES_MAX,
    USERS_MAX, User,
};
