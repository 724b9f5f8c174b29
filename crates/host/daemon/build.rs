//! Tells the program which commit it is built from.

use std::path::Path;
use std::process::Command;

/// The commit of the working tree; nothing where there is no git, or no repository.
fn commit() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn main() {
    // Packages are built from archives, and say it themselves.
    println!("cargo::rerun-if-env-changed=SNIC_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let log = Path::new("../../../.git/logs/HEAD");
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    let given = std::env::var("SNIC_COMMIT").ok();
    let commit = given.or_else(commit).unwrap_or_default();
    println!("cargo::rustc-env=SNIC_COMMIT={commit}");
}
