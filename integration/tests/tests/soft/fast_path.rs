//! Flows in the kernel under a real daemon: packets of a DAG pass there, the daemon may be killed meanwhile, and what ends the DAG ends
//! them.

use std::time::Duration;

use serde_json::json;
use snic_api::v1::FlowRules;
use snic_bitstream::catalogue;
use snic_integration::{Home, program};

use super::rig::{
    Host, Net, READY_MAX, assert_no_loss, card_log, chain, client, dag, missing, observe, run,
    station,
};

/// Two ends of a cable, of which the card has one.
struct Cable(&'static str);

impl Cable {
    fn new(name: &'static str) -> Self {
        // One that a killed run has left is of no use to anybody.
        let _ = std::process::Command::new("ip").args(["link", "del", name]).output();
        run("ip", &format!("link add {name} type veth peer name {name}h"));
        run("ip", &format!("link set {name} up"));
        Self(name)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = std::process::Command::new("ip").args(["link", "del", self.0]).output();
    }
}

/// A daemon with a card between two hosts, whose flows may pass in the kernel; `None` where the card's program was built without that.
async fn net(cables: [&Cable; 2]) -> Option<Net> {
    let [uplink, function] = cables.map(|cable| format!("interface:{}", cable.0));
    let home = Home::new();
    home.write_soft_settings(&format!(
        "uplink = {uplink:?}\nfunctions = [{function:?}]\nprogram = {:?}\nfast_path = true\n",
        program("snic-card")
    ));
    let daemon = home.start().await;
    let until = std::time::Instant::now() + READY_MAX;
    while !home.card_folder().join("card.sock").exists() {
        assert!(std::time::Instant::now() < until, "no card: {:?}", card_log(&home));
        std::thread::sleep(Duration::from_millis(10));
    }
    let log = card_log(&home);
    if let Some(why) = log.lines().find(|line| line.contains("no fast path")) {
        assert!(std::env::var_os("CI").is_none(), "{why}");
        println!("not run: {why}");
        return None;
    }
    let guest = Host::new(&format!("{}h", cables[1].0), "10.77.0.1/24");
    let server = Host::new(&format!("{}h", cables[0].0), "10.77.0.2/24");
    let client = client(&home).await;
    client.register(&catalogue::builtin().expect("the built-in catalogue")).await;
    client.create_tenant("acme").await.expect("a new tenant");
    let (daemon, ports) = (Some(daemon), vec![uplink, function]);
    Some(Net { home, daemon, client, guest, neighbour: None, server, ports })
}

/// The flows of the DAG as the API shows them, as soon as some pass in the kernel.
async fn flow_rules_of(net: &Net) -> FlowRules {
    let until = std::time::Instant::now() + Duration::from_secs(5);
    loop {
        let shown =
            net.client.list_dags().await.into_iter().find_map(|dag| dag.traffic?.flow_rules);
        let rules = shown.unwrap_or_default();
        if rules.fast_flows > 0 || std::time::Instant::now() > until {
            return rules;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_pass_in_the_kernel_under_their_dag_and_not_without_it() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let cables = [Cable::new("snxup"), Cable::new("snxf0")];
    let Some(mut net) = net([&cables[0], &cables[1]]).await else { return };
    assert!(!net.guest.run("ping -c 2 -i 0.2 -W 1 10.77.0.2").status.success(), "without a DAG");
    let nat = json!({"inside": ["10.77.0.1/32"], "external": ["10.77.0.100"]});
    let wall = json!({"rules": [{"action": "accept"}]});
    // No host replies for the external address: the server is given its Ethernet address.
    let guest = station(&net.guest, "snxf0h");
    let neighbour = format!("10.77.0.100 lladdr {guest} dev snxuph");
    run("ip", &format!("-n {} neigh replace {neighbour}", net.server.namespace));
    net.create_with(&chain(&[("nat", Some(nat)), ("firewall", Some(wall))])).await;
    assert_no_loss(&String::from_utf8_lossy(&net.guest.run("ping -c 2 -W 2 10.77.0.2").stdout));

    let _server = net.server.start("iperf3 -s -1");
    std::thread::sleep(Duration::from_millis(300));
    let transfer = net.guest.start("iperf3 -c 10.77.0.2 -t 6");
    let rules = flow_rules_of(&net).await;
    assert!(rules.flows >= rules.fast_flows && rules.fast_flows >= 1, "{rules:?}");
    assert_eq!(rules.evicted_flows, 0);
    let (pid, before) = (net.home.card_pid(), net.observe());
    net.kill_daemon().await;
    let said = transfer.wait();
    assert!(said.contains("receiver"), "{said}");
    let after = net.observe();
    assert_eq!(net.home.card_pid(), pid, "one and the same card");
    assert_eq!(
        (after.loads, after.table_words),
        (before.loads, before.table_words),
        "the next daemon writes nothing"
    );
    let (fast, all) = (after.fast_packets, after.packets_in);
    assert!(
        fast > before.fast_packets && 2 * fast > all,
        "{fast} of {all} in the kernel\n{said}\n{after:?}\n{}",
        card_log(&net.home)
    );
    let firewall = after.tasks.iter().find(|task| task.nt_type == "firewall").expect("its counts");
    assert!(firewall.received >= fast, "tasks count them, too: {firewall:?}, {fast}");
    println!("{fast} of {all} packets in the kernel\n{said}");

    let operation = net.client.delete_dag(&dag()).await.expect("it is there");
    net.client.wait(&operation).await.expect("it ends");
    let before = observe(&net.home, &net.ports);
    assert!(!net.guest.run("ping -c 3 -i 0.2 -W 1 10.77.0.2").status.success(), "its DAG is gone");
    let after = observe(&net.home, &net.ports);
    assert_eq!(after.fast_packets, before.fast_packets);
    assert_eq!(after.packets_out, before.packets_out);
}
