//! NTs against independent software: the kernel's network stack and VXLAN device in network
//! namespaces, memcached, and ESP by OpenSSL. Each test says what is missing on this machine and is
//! skipped then; the test command installs it.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod card;
mod commands;
mod errors;
mod esp;
mod kernel;
mod memcached;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// The program beside these tests that does what Rust's standard library cannot.
const HELPER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ci/helper.py");

/// The distribution's Python, for which the test command installs packages.
const PYTHON: &str = "/usr/bin/python3";

/// Whether a program can be started with these arguments.
fn starts(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Says that a test did not run, and why.
fn left_out(why: &str) {
    println!("not run: {why}");
}

/// Why nothing can be tested with namespaces here.
fn without_namespaces() -> Option<&'static str> {
    if !Path::new(PYTHON).exists() {
        return Some("python3 is missing");
    }
    // Once for all tests, which run side by side: two probes of one name would disturb each other.
    static IS_POSSIBLE: LazyLock<bool> = LazyLock::new(|| {
        let name = format!("snic-nts-{}-probe", std::process::id());
        let is_possible = starts("ip", &["netns", "add", &name]);
        starts("ip", &["netns", "del", &name]);
        is_possible
    });
    (!*IS_POSSIBLE).then_some("no network namespaces can be made: run as root, with iproute2")
}
