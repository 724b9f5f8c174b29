//! References for tests and benchmarks: exact or exhaustive, obviously right, and slow.
//!
//! Each solves the same problem as a crate of the product, by another algorithm and through that crate's
//! public types only. Nothing of this is part of a program: other crates use it as a dev-dependency, in
//! `tests/` and `benches/` (not in unit tests, where cargo would build the crate under test twice).
//!
//! | module | reference for |
//! |---|---|
//! | [`drf`] | `snic_fairness::drf`: progressive filling in fractions of unbounded size |
//! | [`regions`] | `snic_fairness::regions`: largest remainders of exact fractions |
//! | [`fluid`] | `snic_fairness::fluid`: water-filling in fractions or floats, one event at a time |
//! | `epoch` | `snic_controller::Engine`: one step of the control loop; needs the feature `epoch` |
//! | [`drfq`] | the long-run rates of `snic_fairness::fluid`: DRFQ packet by packet |
//! | [`trust`] | `snic_domain::DagSpec::may_pass`: the table of SECURITY.md, line by line |

#![warn(clippy::missing_errors_doc)]

pub mod drf;
pub mod drfq;
#[cfg(feature = "epoch")]
pub mod epoch;
pub mod fluid;
pub mod regions;
pub mod trust;
