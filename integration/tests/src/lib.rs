//! Support for tests with real processes: daemons, clients, a trace collector, a scripted daemon.
//!
//! The programs are those that `cargo test --workspace` builds beside these tests.

mod client;
mod collector;
mod daemon;
pub mod fake_daemon;

pub use client::{Client, PARENT, TRACE, create_in_trace, furnished};
pub use collector::{Collector, attribute, hex};
pub use daemon::{Daemon, Home, program};
