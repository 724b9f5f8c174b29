//! A machine is bound to a DAG of a fleet, and the DAG's host is drained: the machine loses no packet, and the DAG goes when the
//! machine does.

use std::time::Duration;

use snic_domain::{Bandwidth, DagSpec};

use super::cluster::{Cluster, eventually, in_time, runtime};
use super::rig::{Cards, Fleet, name};
use super::soft;

const MACHINE: &str = "123e4567-e89b-42d3-a456-426614174000";

#[test]
fn a_drain_leaves_a_dag_to_its_machine_and_takes_it_when_the_machine_is_gone() {
    if let Some(why) = soft::missing() {
        eprintln!("SKIPPED: packets cannot be counted here: {why}");
        return;
    }
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let fleet = Fleet::start_with(cluster, 2, (2, Cards::Taps("mac"))).await;
        let acme = fleet.client(0, "tenant-acme");
        let chain = ["nat", "firewall"].map(|nt| nt.parse().unwrap());
        let spec = DagSpec::chain(&chain, Bandwidth::from_gbps(1));
        eventually(async || acme.create_dag(&name("web"), &spec).await.is_ok()).await;
        let host = fleet.served_once(&["web"]).await[0];
        fleet.contexts();
        let device = format!("mac{host}f0");
        let guest = soft::Host::new(&device, "10.77.0.1/24");
        let _server = soft::Host::new(&format!("mac{host}up"), "10.77.0.2/24");
        let station = soft::station(&guest, &device);
        let bind = format!(
            "snicctl --context h{host} --tenant acme vm bind {MACHINE} --dag web --mac {station}"
        );
        fleet.shell(&bind).unwrap();
        eventually(async || guest.run("ping -c 1 -W 1 10.77.0.2").status.success()).await;

        let pings = soft::Pings::every(Duration::from_millis(10), &guest, "10.77.0.2");
        let operator =
            |words: &str| fleet.shell(&format!("snicctl --context root-r0 fleet {words}"));
        operator(&format!("host drain h{host}")).unwrap();
        let shown = format!("host get h{host} -o json");
        eventually(async || operator(&shown).unwrap().contains("tenants/acme/dags/web")).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let answered = tokio::task::spawn_blocking(|| pings.all_came_back()).await.unwrap();
        println!("{answered} pings while the host was drained");
        assert!(answered > 200, "{answered} pings");
        assert_eq!(fleet.served_once(&["web"]).await, [host], "it stays with its machine");
        let bound =
            fleet.shell(&format!("snicctl --context h{host} --tenant acme vm get {MACHINE}"));
        assert!(bound.unwrap().contains("web"));

        fleet
            .shell(&format!("snicctl --context h{host} --tenant acme vm unbind {MACHINE}"))
            .unwrap();
        eventually(async || fleet.served_once(&["web"]).await == [1 - host]).await;
    }));
}
