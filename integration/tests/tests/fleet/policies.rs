//! Policies that are registered with a fleet, with its command line: what hosts themselves say is in force there.

use super::cluster::{Cluster, eventually, in_time, runtime};
use super::rig::Fleet;

/// Sets the length of an epoch with `snicctl` at a replica.
pub fn set(fleet: &Fleet, replica: usize, millis: u32) -> Result<String, String> {
    let file = fleet.folder().join("fairness.toml");
    std::fs::write(&file, format!("[epoch]\nlength_ms = {millis}\n")).unwrap();
    fleet.shell(&format!("snicctl --context root-r{replica} fleet policy set {}", file.display()))
}

/// Whether the last event of a host about policies says this length, and that before.
pub fn is_in_force(fleet: &Fleet, host: usize, (millis, before): (u32, u32)) -> bool {
    let events = fleet.shell(&format!("snicctl --context h{host} events -o json"));
    let Ok(events) = events else { return false };
    let events: serde_json::Value = serde_json::from_str(&events).unwrap();
    let of_policies = |event: &&serde_json::Value| event["kind"] == "KIND_POLICIES_APPLIED";
    let last = events.as_array().unwrap().iter().rfind(of_policies);
    let wanted = format!("fairness.epoch: {millis}ms, was {before}ms");
    last.is_some_and(|event| event["message"].as_str().unwrap().contains(&wanted))
}

/// Registered once at any replica, they are in force on every host: on one that was down meanwhile when it is back, and
/// with a new leader.
#[test]
fn policies_reach_every_host() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start(cluster, 2, 2).await;
        fleet.contexts();
        let shown = set(&fleet, 0, 40).unwrap();
        assert!(shown.contains("fairness.toml"), "{shown}");
        for host in 0..2 {
            eventually(async || is_in_force(&fleet, host, (40, 20))).await;
        }
        let list = |fleet: &Fleet, replica| {
            fleet.shell(&format!("snicctl --context root-r{replica} fleet policy list")).unwrap()
        };
        eventually(async || list(&fleet, 1).contains("in force on 2, pending on 0")).await;

        // What is wrong changes nothing anywhere.
        let wrong = set(&fleet, 1, 0).unwrap_err();
        assert!(wrong.contains("fairness.toml:2: epoch.length_ms = 0 is not allowed"), "{wrong}");

        let leader = fleet.leader().await;
        fleet.kill_host(1);
        fleet.kill_replica(leader);
        let other = 1 - leader;
        eventually(async || set(&fleet, other, 60).is_ok()).await;
        eventually(async || is_in_force(&fleet, 0, (60, 40))).await;
        eventually(async || list(&fleet, other).contains("in force on 1, pending on 1")).await;
        fleet.restart_host(1).await;
        // It began with what it had kept.
        eventually(async || is_in_force(&fleet, 1, (60, 40))).await;

        // Without the fleet's file hosts use what ships.
        let line = format!("snicctl --context root-r{other} fleet policy delete fairness.toml");
        fleet.shell(&line).unwrap();
        for host in 0..2 {
            eventually(async || is_in_force(&fleet, host, (20, 60))).await;
        }
    }));
}
