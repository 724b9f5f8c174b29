//! Support for tests with real processes: daemons, clients, a trace collector, a scripted daemon.
//!
//! The programs are those that `cargo test --workspace` builds beside these tests.

mod client;
mod collector;
pub mod commands;
mod daemon;
pub mod fake_daemon;
pub mod keys;
pub mod large;
mod metrics;

pub use client::{PARENT, TRACE, TestClient, create_in_trace};
pub use collector::{Collector, attribute, hex};
pub use daemon::{DaemonProcess, Home, furnished, program};
pub use metrics::{free_address, metric, metrics_page};

/// The user of this process as everybody on a unix socket: tests act as many callers.
///
/// # Panics
/// Never: the identities are valid.
pub fn everybody() -> snic_front::identity::UnixPeers {
    let mut peers = snic_front::identity::UnixPeers::default();
    let user = rustix::process::geteuid().as_raw();
    let all = ["operator/*", "tenant/*", "orchestrator/*"];
    peers.allow(user, all).expect("valid identities");
    peers
}
