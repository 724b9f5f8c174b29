//! One way through everything with real processes: the daemon, the software card, and a fleet. What goes wrong there is in
//! `ci`.

#[allow(dead_code, reason = "shared with the tests of the connection to etcd")]
#[allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]
#[path = "../../../crates/stores/store-etcd/tests/real/cluster.rs"]
mod cluster;
mod documented_commands;
#[allow(dead_code, reason = "shared with the tests of a fleet that fails")]
#[allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]
#[path = "fleet/network.rs"]
mod network;
#[allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]
mod one_fleet;
#[allow(dead_code, reason = "shared with the tests of a fleet that fails")]
#[allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]
#[path = "fleet/rig.rs"]
mod rig;
mod start;
mod traffic_runs;
