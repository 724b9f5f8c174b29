//! Tests with real processes: the daemon, the client, the kill in the middle.
//!
//! The programs are those that `cargo test --workspace` builds beside these tests.

mod client;
mod collector;
mod daemon;

pub use client::{Client, PARENT, TRACE, create_in_trace, furnished};
pub use collector::{Collector, attribute, hex};
pub use daemon::{Daemon, Home, program};
