//! `cargo xtask fleet`: a fleet on this machine. The programs are built first, then an example of `snic-integration` starts
//! them as its tests do.

use anyhow::bail;
use clap::{Args, value_parser};

use crate::command::{self, cargo};
use crate::packages;
use crate::workspace::Workspace;

/// Size of the fleet.
#[derive(Debug, Clone, Args)]
pub struct FleetSize {
    /// Members of etcd: 1, 3 or 5 go on with 0, 1 or 2 of them lost
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u8).range(1..=5))]
    members: u8,
    /// Replicas of snic-fleet
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u8).range(1..=5))]
    replicas: u8,
    /// Hosts, each with a daemon and a simulated card
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u8).range(1..=16))]
    hosts: u8,
}

impl FleetSize {
    /// Arguments of the example.
    fn arguments(&self) -> [String; 3] {
        [self.members, self.replicas, self.hosts].map(|of| of.to_string())
    }
}

/// Builds and runs a fleet until Ctrl-C. Returns whether it ended well.
///
/// # Errors
/// A program that it needs is missing, or cargo cannot be started.
pub fn run(workspace: &Workspace, size: &FleetSize) -> anyhow::Result<bool> {
    let missing: Vec<_> = ["etcd", "protoc"].into_iter().filter_map(packages::missing).collect();
    if !missing.is_empty() {
        bail!("{}", missing.join("\n"));
    }
    let programs = ["build", "-p", "snicd", "-p", "snic-fleetd", "-p", "snicctl"];
    if !command::succeeds(&mut cargo(&workspace.root, &programs))? {
        return Ok(false);
    }
    let example = ["run", "-q", "-p", "snic-integration", "--example", "one_machine_fleet", "--"];
    command::succeeds(cargo(&workspace.root, &example).args(size.arguments()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TestArguments {
        #[command(flatten)]
        size: FleetSize,
    }

    #[test]
    fn the_size_is_passed_on_in_order_and_has_limits() {
        let line = TestArguments::try_parse_from(["fleet", "--hosts", "5", "--members", "3"]);
        assert_eq!(line.expect("allowed").size.arguments(), ["3", "3", "5"]);
        for wrong in [["fleet", "--members", "0"], ["fleet", "--hosts", "17"]] {
            assert!(TestArguments::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
    }
}
