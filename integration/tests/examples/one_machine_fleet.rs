//! A fleet on this machine, until Ctrl-C: `cargo xtask fleet`.
//!
//! Its arguments are how many members of etcd, replicas and hosts there are.

#![allow(clippy::unwrap_used, reason = "a program for developers: what fails, ends it")]

#[allow(dead_code, reason = "shared with the tests of the connection to etcd")]
#[path = "../../../crates/stores/store-etcd/tests/real/cluster.rs"]
mod cluster;
#[allow(dead_code, reason = "shared with the tests of fleets")]
#[path = "../tests/fleet/network.rs"]
mod network;
#[allow(dead_code, reason = "shared with the tests of fleets")]
#[path = "../tests/fleet/rig.rs"]
mod rig;

use cluster::{Cluster, runtime};
use rig::Fleet;
use snic_integration::program;

/// The DAG that the guide creates.
const DAG: &str = "name: web\nchain: nat\nbandwidth: 1 Gbit/s\n";

fn main() {
    let counts: Vec<usize> = std::env::args().skip(1).map(|of| of.parse().unwrap()).collect();
    let [members, replicas, hosts] = counts[..] else {
        panic!("the arguments are the members of etcd, the replicas and the hosts");
    };
    let Some(cluster) = Cluster::start(members) else { std::process::exit(1) };
    runtime().block_on(async {
        let serve = async {
            let fleet = Fleet::start(cluster, replicas, hosts).await;
            guide(&fleet);
            std::future::pending::<()>().await;
        };
        // What it has started ends with it.
        tokio::select! {
            () = serve => {}
            stopped = tokio::signal::ctrl_c() => stopped.unwrap(),
        }
    });
    println!("all is stopped and removed");
}

/// Says what to try.
fn guide(fleet: &Fleet) {
    let contexts = fleet.contexts();
    let folder = contexts.parent().unwrap();
    std::fs::write(folder.join("web.yaml"), DAG).unwrap();
    let snicctl = program("snicctl");
    println!("the fleet runs; all of it is in {}\n", folder.display());
    println!("  export SNICCTL_CONFIG={}", contexts.display());
    println!("  export PATH={}:$PATH", snicctl.parent().unwrap().display());
    println!("  snicctl --context acme-r0 dag create -f {}/web.yaml --wait", folder.display());
    println!("  snicctl --context root-r0 --tenant acme dag get web    # says by which host");
    println!("  snicctl --context h0 --tenant acme dag get web         # as that host has it");
    println!("\nprocesses, to be killed with `kill -9`:");
    for (name, id) in fleet.processes() {
        println!("  {name}  {id}");
    }
    println!("\nCtrl-C stops all of it");
}
