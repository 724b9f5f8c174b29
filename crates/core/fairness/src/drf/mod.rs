//! Fair space: weighted Dominant Resource Fairness (Ghodsi et al., NSDI 2011).
//!
//! A user's *share* is the fraction it holds of its dominant resource, the one of which it holds the
//! largest fraction. Progressive filling raises all shares in proportion to the weights until a resource
//! is full. Users of that resource stop there; so does a user that reaches its cap or quota. The
//! others continue.
//!
//! [`solve_from`] does the same where users hold something elsewhere, on other cards.
//!
//! [`solve`] computes in scaled integers, accurate to about 2^-40; its documentation states when the
//! error is larger. Ties are broken by position: users and resources come in the order of their ids.

mod held;
mod problem;
mod solver;

pub use held::solve_from;
pub use problem::{
    AMOUNT_MAX, Amounts, DrfProblem, Fraction, InvalidFraction, InvalidProblem, RESOURCES_MAX,
    USERS_MAX, User, UserLimit,
};
pub use solver::{Allocation, DrfSolver, Share, UserOutcome, solve};
