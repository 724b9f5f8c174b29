//! A fleet keeps all functions of a host for one machine: no other machine gets one, though leader and host are killed, until what
//! that machine has not taken is released.

use snic_api::fleet_v1::host::Condition;
use snic_domain::{Bandwidth, DagSpec};

use super::cluster::{Cluster, eventually, in_time, runtime};
use super::rig::{Cards, Fleet, name};
use super::soft;

const MACHINE: &str = "123e4567-e89b-42d3-a456-426614174000";
const OTHER: &str = "123e4567-e89b-42d3-a456-426614174001";
const RESERVATION: &str = "123e4567-e89b-42d3-a456-42661417aaaa";

#[test]
fn what_is_reserved_no_other_machine_takes_over_kills_of_leader_and_host() {
    if let Some(why) = soft::missing() {
        eprintln!("SKIPPED: there is no software card here: {why}");
        return;
    }
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start_with(cluster, 2, (1, Cards::Taps("rsv"))).await;
        let chain = ["nat".parse().unwrap()];
        let spec = DagSpec::chain(&chain, Bandwidth::from_gbps(1));
        let acme = fleet.client(0, "tenant-acme");
        eventually(async || acme.create_dag(&name("web"), &spec).await.is_ok()).await;
        fleet.served_once(&["web"]).await;
        fleet.contexts();
        let bind = |machine: &str| {
            format!("snicctl --context h0 --tenant acme vm bind {machine} --dag web")
        };

        let find = "fleet find --tenant acme --functions 1 --dag web -o json";
        let at = |replica: usize, words: &str| format!("snicctl --context root-r{replica} {words}");
        eventually(async || fleet.shell(&at(0, find)).is_ok_and(|of| of.contains("hosts/h0"))).await;
        let reserve = format!(
            "fleet reservation create --tenant acme --functions 8 --vm {MACHINE} --ttl 10m --id {RESERVATION}"
        );
        fleet.shell(&at(0, &reserve)).unwrap();
        let get = format!("fleet reservation get acme/{RESERVATION} -o json");
        let is_enforced = |of: String| of.replace(' ', "").contains("\"enforced\":true");
        eventually(async || fleet.shell(&at(0, &get)).is_ok_and(is_enforced)).await;
        let found = fleet.shell(&at(0, find)).unwrap();
        assert!(found.contains("functions-reserved") && !found.contains("hosts/h0"), "{found}");
        let refused = fleet.shell(&bind(OTHER)).expect_err("it is kept for another machine");
        assert!(refused.contains("reserved for other machines"), "{refused}");

        let leader = fleet.leader().await;
        fleet.kill_replica(leader);
        fleet.kill_host(0);
        fleet.restart_host(0).await;
        let refused = fleet.shell(&bind(OTHER)).expect_err("the host has stored it");
        assert!(refused.contains("reserved for other machines"), "{refused}");
        let left = 1 - leader;
        eventually(async || fleet.condition(0).await == Ok(Condition::InStep)).await;
        eventually(async || fleet.shell(&at(left, &get)).is_ok_and(is_enforced)).await;
        let refused = fleet.shell(&bind(OTHER)).expect_err("the next leader has it");
        assert!(refused.contains("reserved for other machines"), "{refused}");

        fleet.shell(&bind(MACHINE)).unwrap();
        let is_used = |of: String| of.replace(' ', "").contains("\"functions_used\":1");
        eventually(async || fleet.shell(&at(left, &get)).is_ok_and(is_used)).await;
        let refused = fleet.shell(&bind(OTHER)).expect_err("seven are kept");
        assert!(refused.contains("reserved for other machines"), "{refused}");
        let release = format!("fleet reservation release acme/{RESERVATION}");
        fleet.shell(&at(left, &release)).unwrap();
        eventually(async || fleet.shell(&bind(OTHER)).is_ok()).await;
    }));
}
