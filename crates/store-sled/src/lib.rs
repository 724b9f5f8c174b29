//! The embedded store: sled behind one committer.
//!
//! sled answers reads and keeps the records; it does not sync by itself, deadlocks under
//! concurrent asynchronous flushes, and may not open after a power cut. So every change takes one
//! path, and is written down twice before it is acknowledged:
//!
//! ```text
//!  submit ─┐                   ┌──────────── committer (one thread) ───────────────┐
//!  submit ─┼─▶ queue ─▶ group ─▶ journal: append ─┬▶ fdatasync ───────────────────┐│
//!  submit ─┘                   │                   └▶ sled: one batch, flush,      ├┼▶ done, in order
//!                              │                      fdatasync of `db` ───────────┘│
//!                              │        └▶ now and then: snapshot, new journal      │
//!                              └────────────────────────────────────────────────────┘
//! ```
//!
//! The newest snapshot and the journals after it give every acknowledged change again, so at
//! opening they are what sled is checked against ([`SledStore::open`]): what it misses is replayed,
//! and a sled that does not open, or holds something else, is moved aside and built anew.
//!
//! ```text
//!  <folder>/lock                      held while the store is open
//!  <folder>/db/                       sled's own
//!  <folder>/db.damaged-<n>/           a sled that was replaced, for whoever wants to look
//!  <folder>/history/<n>.snapshot      all records; the two newest are kept
//!  <folder>/history/<n>.journal       the groups after it
//!  <folder>/blobs/<sha256>            bitstreams
//! ```

mod blobs;
mod committer;
mod engine;
mod history;
mod journal;
mod opening;
mod store;

pub use opening::{Opened, Recovery};
pub use store::{Options, SledStore};
