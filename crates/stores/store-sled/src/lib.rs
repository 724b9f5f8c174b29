//! The embedded store: sled behind one committer.
//!
//! sled answers reads and keeps the records; it does not sync by itself, deadlocks under
//! concurrent asynchronous flushes, and may not open after a power cut. So every change takes one
//! path, and a journal makes it durable before it is acknowledged:
//!
//! ```text
//!  submit ─┐                   ┌──────────────── committer (one thread) ────────────────┐
//!  submit ─┼─▶ queue ─▶ group ─▶ journal: append, fdatasync ─▶ done, in order            │
//!  submit ─┘                   │        └▶ now and then: snapshot, new journal    │     │
//!                              └──────────────────────────────────────────────────┼─────┘
//!               follower: gather for 20 ms, one batch of sled, flush, fdatasync ◀─┘
//! ```
//!
//! Every acknowledged change is in the newest snapshot or in the journals after it. Opening compares sled
//! with them ([`SledStore::open`]): missing changes are replayed, and a sled that does not open or has
//! other records is moved aside and rebuilt.
//!
//! ```text
//!  <folder>/lock                      held while the store is open
//!  <folder>/db/                       sled's own
//!  <folder>/db.damaged-<n>/           a replaced sled, kept for inspection
//!  <folder>/history/<n>.snapshot      all records; the two newest are kept
//!  <folder>/history/<n>.journal       the groups after it
//!  <folder>/blobs/<sha256>            bitstreams
//! ```

#![warn(clippy::missing_errors_doc)]

mod blobs;
mod committer;
mod engine;
mod follower;
mod history;
pub mod inspection;
mod journal;
mod opening;
mod options;
pub mod steady;
mod store;

pub use opening::{Opened, Recovery, is_in_use, keeps_damaged};
pub use options::SledOptions;
pub use store::SledStore;
