//! Placement of DAGs: assigning, moving, growing and vacating, across several machines.
//!
//! Start at [`placement`]: it decides and assigns. [`residency`] makes a region ready to be loaded, [`serving`] has rows lead to it, [`scaling`] changes
//! the number of instances, [`consolidation`] and [`drains`] move DAGs.
//!
//! **Invariant.** A DAG keeps its old placement, booked and serving, until the card, read back, serves the new one.

pub(crate) mod classification;
pub(crate) mod connection;
pub(crate) mod consolidation;
pub(crate) mod contents;
pub(crate) mod drains;
pub(crate) mod forgotten;
pub(crate) mod placement;
pub(crate) mod residency;
pub(crate) mod scaling;
pub(crate) mod serving;
pub(crate) mod trials;
pub(crate) mod untrusted;
pub(crate) mod work;
