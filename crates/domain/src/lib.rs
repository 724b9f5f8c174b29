//! Tenants, network tasks, DAGs, regions: the values everything else speaks in.
//!
//! Pure: no I/O, no clock. Ids and units are types, so that a bandwidth is never added to a size
//! and a region is never taken for a card.

mod digest;

pub use digest::{Digest, InvalidDigest};
