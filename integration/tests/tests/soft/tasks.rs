//! Network tasks before kernels, servers and clients that nobody here wrote.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use snic_integration::{free_address, metrics_page};

use super::rig::{
    Host, Net, Pings, READY_MAX, assert_no_loss, chain, dag, dropped, fetch, is_shut, missing,
    ready, run, snicctl, start_server, starts, station,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_firewall_opens_a_port_without_a_load_and_no_other_flow_loses_a_packet() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let mut net = Net::new("snc").await;
    let rules = |ports: &[&str]| {
        let tcp = ports
            .iter()
            .map(|port| json!({"action": "accept", "protocol": "tcp", "destination_ports": port}));
        let icmp = json!({"action": "accept", "protocol": "icmp"});
        chain(&[("firewall", Some(json!({"rules": tcp.chain([icmp]).collect::<Vec<_>>()})))])
    };
    net.create_with(&rules(&["8001"])).await;
    let _servers = [8_001, 8_002].map(|port| start_server(&net.server, port));
    assert_eq!(fetch(&net.guest, "http://10.77.0.2:8001/").as_deref(), Some("8001 10.77.0.1"));
    assert!(is_shut(&net.guest, "http://10.77.0.2:8002/"), "no rule lets it through");
    let before = net.observe();
    let reasons = dropped(&before, "firewall");
    assert!(reasons.iter().any(|(why, packets)| why == "rule" && *packets > 0), "{reasons:?}");

    let by_cause = |dag: &snic_api::v1::Dag| {
        let traffic = dag.traffic.clone().unwrap_or_default();
        let by_nt = traffic.drops.iter().find(|drops| drops.cause == "BY_NT");
        (traffic.packets_in, traffic.packets_out, by_nt.map_or(0, |drops| drops.packets))
    };
    let until = Instant::now() + READY_MAX;
    loop {
        let (came, left, fell) = by_cause(&net.client.list_dags().await[0]);
        if fell > 0 && left > 0 && came > left {
            break;
        }
        assert!(Instant::now() < until, "{came} came in, {left} went out, {fell} were dropped");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let pings = Pings::start(&net.guest, "10.77.0.2");
    for ports in [&["8001", "8002"][..], &["8002"], &["8001-8002"]] {
        let operation = net.client.update_dag(&dag(), &rules(ports)).await.expect("it fits");
        net.client.wait(&operation).await.expect("it is ready");
    }
    assert_eq!(fetch(&net.guest, "http://10.77.0.2:8002/").as_deref(), Some("8002 10.77.0.1"));
    let after = net.observe();
    assert_eq!((after.loads, after.configurations), (before.loads, before.configurations + 3));
    net.kill_daemon().await;
    let adopted = net.observe();
    assert_eq!(adopted.configurations, after.configurations, "the card was told again");
    assert_eq!((adopted.loads, adopted.table_words), (after.loads, after.table_words));
    pings.all_came_back();
    assert_eq!(fetch(&net.guest, "http://10.77.0.2:8002/").as_deref(), Some("8002 10.77.0.1"));
}

/// A DAG of another tenant has no drops, and that tenant does not see this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_is_told_why_its_tasks_drop_packets() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let metrics = free_address();
    let net = Net::with("snq", &format!("[telemetry]\nprometheus = \"{metrics}\"")).await;
    net.create_with(&chain(&[("firewall", Some(json!({"rules": [], "non_ip": "accept"})))])).await;
    assert!(!net.guest.run("ping -c 3 -i 0.05 -W 1 10.77.0.2").status.success());
    let endpoint = format!("unix:{}", net.home.socket().display());
    net.client.create_tenant("beta").await.expect("a new tenant");
    for tenant in ["acme", "beta"] {
        let set = format!("context set {tenant} --endpoint {endpoint} --identity tenant/{tenant}");
        assert!(snicctl(&net.home, &set).status().expect("it starts").success());
    }
    let said = |line: &str| {
        let output = snicctl(&net.home, line).output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let file = net.home.path().join("other.yaml");
    let text = "name: other\nbandwidth: 1Gbps\nchain: firewall\n\
                configuration:\n  firewall: {rules: []}\n";
    std::fs::write(&file, text).expect("a file");
    let create = format!("--context beta dag create --wait --file {}", file.display());
    let created = snicctl(&net.home, &create).output().expect("it starts");
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let until = Instant::now() + READY_MAX;
    loop {
        let shown: Value = serde_json::from_str(&said("--context acme dag get web -o json"))
            .unwrap_or_else(|error| panic!("{error}"));
        let drops = shown["traffic"]["nt_drops"].as_array().cloned().unwrap_or_default();
        let rule = drops.iter().find(|drops| drops["reason"] == "rule");
        if let Some(rule) = rule {
            assert_eq!(rule["nt_type"], "ntTypes/firewall", "{shown}");
            assert_ne!(rule["packets"].as_u64().unwrap_or(0), 0, "{shown}");
            break;
        }
        assert!(Instant::now() < until, "{shown}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for line in ["dag get web", "dag diagnose web"] {
        let shown = said(&format!("--context acme {line}"));
        let has = |line: &str| line.starts_with("Task drops:") && line.contains("firewall: ");
        assert!(shown.lines().any(|line| has(line) && line.contains(" rule")), "{shown}");
    }
    let text = metrics_page(metrics);
    let is_there = |line: &str| {
        line.starts_with("snic_dag_nt_dropped_total{")
            && [r#"dag="web""#, r#"nt="firewall""#, r#"reason="rule""#, r#"tenant="acme""#]
                .iter()
                .all(|label| line.contains(label))
            && !line.ends_with(" 0")
    };
    assert!(text.lines().any(is_there), "{text}");
    assert_eq!(said("--context beta dag get web"), "");
    let other = said("--context beta dag get other");
    assert!(other.contains("other") && !other.contains("Task drops"), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nat_hides_its_host_and_a_stream_through_it_survives_a_drain() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("snd").await;
    let nat = json!({"inside": ["10.77.0.1/32"], "external": ["10.77.0.200"]});
    net.create_with(&chain(&[("nat", Some(nat))])).await;
    // No host replies for the external address: the server is given its Ethernet address.
    let guest = station(&net.guest, "sndf0");
    run("ip", &format!("-n snic-sndup neigh replace 10.77.0.200 lladdr {guest} dev sndup"));
    let _server = start_server(&net.server, 8_001);
    let seen = fetch(&net.guest, "http://10.77.0.2:8001/");
    assert_eq!(seen.as_deref(), Some("8001 10.77.0.200"), "{:?}", net.observe());

    let _iperf = net.server.start("iperf3 -s -1");
    std::thread::sleep(Duration::from_millis(300));
    let stream = net.guest.start("iperf3 -c 10.77.0.2 -t 3 -b 100M");
    std::thread::sleep(Duration::from_millis(500));
    let pings = Pings::start(&net.guest, "10.77.0.2");
    let region = net.client.region_of(&dag()).await;
    net.client.drain(&region).await;
    let moved = net.client.region_of(&dag()).await;
    assert_ne!(moved, region, "it was drained");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(pings.all_came_back() > 20, "no packet is lost");
    let said = stream.wait();
    assert!(said.contains("receiver"), "{said}");
    let after = net.observe();
    let nat = after.tasks.iter().find(|task| task.nt_type == "nat").expect("it is configured");
    assert!(nat.forwarded > 1_000, "{nat:?}");
    println!("{said}\n{nat:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_pass_a_firewall_behind_a_nat() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("sni").await;
    let nat = json!({"inside": ["10.77.0.1/32"], "external": ["10.77.0.200"]});
    let accept = |protocol: &str| json!({"action": "accept", "protocol": protocol, "source": "10.77.0.200/32"});
    let wall = json!({"rules": [accept("tcp"), accept("icmp")]});
    net.create_with(&chain(&[("nat", Some(nat)), ("firewall", Some(wall))])).await;
    let guest = station(&net.guest, "snif0");
    run("ip", &format!("-n snic-sniup neigh replace 10.77.0.200 lladdr {guest} dev sniup"));
    let ping = net.guest.run("ping -c 10 -i 0.02 -W 2 10.77.0.2");
    assert_no_loss(&String::from_utf8_lossy(&ping.stdout));
    let _server = start_server(&net.server, 8_001);
    let seen = fetch(&net.guest, "http://10.77.0.2:8001/");
    assert_eq!(seen.as_deref(), Some("8001 10.77.0.200"), "{:?}", net.observe());
    let _inside = start_server(&net.guest, 8_002);
    assert!(is_shut(&net.server, "http://10.77.0.200:8002/"), "nobody comes in");
}

/// Value that a client in the guest reads for a key by memcached's protocol over UDP; empty where nobody answers.
fn read_key(host: &Host, request: &str) -> String {
    let program = "import socket,sys\n\
        s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.settimeout(1)\n\
        s.sendto(bytes([0,7,0,0,0,1,0,0])+sys.argv[1].encode().replace(b'|',b'\\r\\n'),('10.77.0.2',11211))\n\
        sys.stdout.write(s.recv(9000)[8:].decode())";
    let mut command = host.command("python3 -c");
    let output = command.arg(program).arg(request).output().expect("python3 starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_still_answers_for_its_dead_server_after_a_drain_and_a_daemon_kill() {
    if let Some(why) = missing().or_else(|| starts("memcached").err()) {
        println!("not run: {why}");
        return;
    }
    let mut net = Net::new("snh").await;
    let told = json!({"server": "10.77.0.2", "settling_ms": 1, "age_max_ms": 3_600_000});
    net.create_with(&chain(&[("kv-cache", Some(told))])).await;
    let server = net.server.start("memcached -u nobody -l 10.77.0.2 -U 11211");
    let until = Instant::now() + READY_MAX;
    while read_key(&net.guest, "set colour 0 0 4|blue|") != "STORED\r\n" {
        assert!(Instant::now() < until, "{:?}", net.observe());
    }
    let blue = "VALUE colour 0 4\r\nblue\r\nEND\r\n";
    let replied = |net: &Net| {
        let seen = net.observe();
        seen.tasks.iter().map(|task| task.replied).sum::<u64>()
    };
    // A write that was not answered in time holds up the key, and a read that the server answers later than the
    // settling time fills nothing, so the cache has the value after some read, not after the first.
    while replied(&net) == 0 {
        assert!(Instant::now() < until, "the cache has no value: {:?}", net.observe());
        assert_eq!(read_key(&net.guest, "get colour|"), blue, "from the server or the card");
    }
    drop(server);
    let before = replied(&net);
    assert_eq!(read_key(&net.guest, "get colour|"), blue, "from the card: {:?}", net.observe());
    let region = net.client.region_of(&dag()).await;
    net.client.drain(&region).await;
    ready(&net.client).await;
    assert_ne!(net.client.region_of(&dag()).await, region, "it was drained");
    assert_eq!(read_key(&net.guest, "get colour|"), blue, "after the drain");
    net.kill_daemon().await;
    assert_eq!(read_key(&net.guest, "get colour|"), blue, "after the kill");
    assert_eq!(replied(&net), before + 3, "{:?}", net.observe());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_spreads_connections_over_its_backends() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("sne").await;
    let backend = |port: u16| json!({"address": "10.77.0.2", "port": port});
    let told = |backends: &[Value]| {
        let service =
            json!({"address": "10.77.0.100", "protocol": "tcp", "port": 80, "backends": backends});
        chain(&[("load-balancer", Some(json!({"services": [service]})))])
    };
    net.create_with(&told(&[backend(8_001), backend(8_002)])).await;
    let server = station(&net.server, "sneup");
    run("ip", &format!("-n snic-snef0 neigh replace 10.77.0.100 lladdr {server} dev snef0"));
    let _servers = [8_001, 8_002].map(|port| start_server(&net.server, port));
    let answers = |count: usize| -> Vec<String> {
        let fetched = (0..count).map(|_| fetch(&net.guest, "http://10.77.0.100/"));
        fetched.map(|answer| answer.expect("a backend answers")).collect()
    };
    let spread = answers(40);
    for port in ["8001 10.77.0.1", "8002 10.77.0.1"] {
        let here = spread.iter().filter(|answer| *answer == port).count();
        assert!(here >= 5, "{here} of 40 at {port}: {spread:?}");
    }
    let operation = net.client.update_dag(&dag(), &told(&[backend(8_002)])).await;
    net.client.wait(&operation.expect("it fits")).await.expect("it is ready");
    assert!(answers(10).iter().all(|answer| answer == "8002 10.77.0.1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vxlan_tunnel_ends_at_a_kernels_device() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("snf").await;
    let (guest, server) = (station(&net.guest, "snff0"), station(&net.server, "snfup"));
    let told = json!({
        "vni": 7, "local": "10.77.0.1", "remote": "10.77.0.2",
        "local_mac": guest, "remote_mac": server,
    });
    net.create_with(&chain(&[("vxlan", Some(told))])).await;
    // The inner network of the tunnel has addresses of its own.
    run("ip", "-n snic-snff0 address flush dev snff0");
    run("ip", "-n snic-snff0 address add 10.78.0.1/24 dev snff0");
    run("ip", &format!("-n snic-snfup neigh replace 10.77.0.1 lladdr {guest} dev snfup"));
    let device = "vx0 type vxlan id 7 local 10.77.0.2 remote 10.77.0.1 dstport 4789 dev snfup";
    run("ip", &format!("-n snic-snfup link add {device}"));
    run("ip", "-n snic-snfup address add 10.78.0.2/24 dev vx0");
    run("ip", "-n snic-snfup link set vx0 up");

    // A kernel takes up to a second to bring up a new device.
    let until = Instant::now() + READY_MAX;
    while !net.guest.run("ping -c 1 -W 1 10.78.0.2").status.success() {
        assert!(Instant::now() < until, "{:?}", net.observe());
    }
    let ping = net.guest.run("ping -c 20 -i 0.05 -W 2 10.78.0.2");
    let said = String::from_utf8_lossy(&ping.stdout).into_owned();
    assert!(said.lines().any(|line| line.contains(" 0% packet loss")), "{said}{:?}", net.observe());
    // Nobody told the guest of the tunnel: its kernel learns the MTU from the card (RFC 7348, section 4.3).
    let long = net.guest.run("ping -M do -c 2 -i 0.2 -W 2 -s 1472 10.78.0.2");
    let said = String::from_utf8_lossy(&long.stdout).into_owned();
    assert!(said.contains("mtu = 1450"), "{said}{:?}", net.observe());
    let route = net.guest.run("ip route get 10.78.0.2");
    let route = String::from_utf8_lossy(&route.stdout).into_owned();
    assert!(route.contains("mtu 1450"), "{route}");
    let _server = start_server(&net.server, 8_001);
    let seen = fetch(&net.guest, "http://10.78.0.2:8001/");
    assert_eq!(seen.as_deref(), Some("8001 10.78.0.1"), "{:?}", net.observe());
}
