//! The four ways of packets through a card, and what a rule can tell packets apart by, with hosts' own packets.
//!
//! ```text
//!   guest ── function 0 ─┐
//!                        ├─ card ── uplink ── server
//!   neighbour ─ function 1┘
//! ```

use std::time::{Duration, Instant};

use serde_json::json;
use snic_bitstream::catalogue;
use snic_domain::{Bandwidth, DagName, DagSpec};
use snic_integration::commands;

use super::rig::{Host, Net, READY_MAX, assert_no_loss, chain, dag, missing, run, station};

/// Packets of each experiment.
const COUNT: u64 = 20;
/// Packets that nobody here sent: questions for addresses, and their answers.
const OTHERS: u64 = COUNT / 2;

fn name(id: &str) -> DagName {
    DagName { dag: id.parse().expect("a label"), ..dag() }
}

async fn create(net: &Net, id: &str, rule: &str) {
    let accept = json!({"rules": [{"action": "accept"}]});
    let chain = chain(&[("firewall", Some(accept))]);
    let spec = DagSpec { bandwidth: Bandwidth::from_gbps(1), ..chain };
    let operation = net.client.create_dag(&name(id), &spec).await.expect("there is room");
    net.client.wait(&operation).await.expect("it becomes ready");
    let line = format!("rule create {id} --dag acme/{id} {rule}");
    commands::operate(&net.home, &line).expect("an operator may");
}

/// Number of packets that the firewalls of these DAGs passed on during an experiment.
async fn passed<const N: usize>(net: &Net, of: [&str; N], experiment: impl FnOnce()) -> [u64; N] {
    let dags = net.client.list_dags().await;
    let uid = |id: &str| {
        let found = dags.iter().find(|dag| dag.name == name(id).to_string());
        found.expect("it is there").uid
    };
    let uids = of.map(uid);
    let count = || {
        let seen = net.observe();
        uids.map(|uid| {
            let tasks = seen.tasks.iter().filter(|task| task.uid == uid);
            tasks.map(|task| task.forwarded).sum::<u64>()
        })
    };
    let before = count();
    experiment();
    let after = count();
    std::array::from_fn(|at| after[at] - before[at])
}

/// Whether so many packets passed, and few others.
fn is_about(passed: u64, packets: u64) -> bool {
    (packets..packets + OTHERS).contains(&passed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_take_four_ways_each_through_the_dags_of_their_functions() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let catalogue = catalogue::builtin().expect("the built-in catalogue");
    let net = Net::furnished("snk", 2, "", &catalogue).await;
    create(&net, "web", "--vf 0 --priority 10").await;
    create(&net, "store", "--vf 1 --priority 10").await;
    create(&net, "transit", "--destination 10.77.0.9/32 --priority 5").await;
    let ping = |from: &Host, to: &str| {
        let said = from.run(&format!("ping -c {COUNT} -i 0.02 -W 2 {to}"));
        assert_no_loss(&String::from_utf8_lossy(&said.stdout));
    };
    let dags = ["web", "store", "transit"];

    // Each packet is answered.
    let seen = passed(&net, dags, || ping(&net.guest, "10.77.0.2")).await;
    assert!(is_about(seen[0], 2 * COUNT) && seen[1] < OTHERS, "host to network: {seen:?}");
    let seen = passed(&net, dags, || ping(&net.server, "10.77.0.3")).await;
    assert!(is_about(seen[1], 2 * COUNT) && seen[0] < OTHERS, "network to host: {seen:?}");
    let seen = passed(&net, dags, || ping(&net.guest, "10.77.0.3")).await;
    let both = is_about(seen[0], 2 * COUNT) && is_about(seen[1], 2 * COUNT);
    assert!(both, "host to host: {seen:?}");

    // Nobody has this address: what the network sends there comes back to it.
    run("ip", "-n snic-snkup neigh replace 10.77.0.9 lladdr 02:00:00:00:00:99 dev snkup");
    let line = format!("tcpdump -i snkup -Q in -c {COUNT} -n icmp and dst 10.77.0.9");
    let dump = net.server.start(&line);
    std::thread::sleep(Duration::from_millis(500));
    let seen = passed(&net, dags, || {
        drop(net.server.run(&format!("ping -c {COUNT} -i 0.02 -W 1 10.77.0.9")));
    })
    .await;
    assert!(seen[2] == COUNT && seen[0].max(seen[1]) < OTHERS, "network to network: {seen:?}");
    assert_eq!(dump.wait().matches("> 10.77.0.9").count() as u64, COUNT, "all came back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_tell_packets_apart_by_ports_by_vni_and_by_vlan() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let net = Net::new("snl").await;
    create(&net, "web", "--vf 0 --priority 10").await;
    create(&net, "narrow", "--protocol 17 --destination-port 9999 --priority 5").await;
    create(&net, "overlay", "--vni 7 --priority 5").await;
    create(&net, "tagged", "--vlan 5 --priority 4").await;
    let dags = ["web", "narrow", "overlay", "tagged"];
    let said = net.guest.run("ping -c 2 -W 2 10.77.0.2");
    assert_no_loss(&String::from_utf8_lossy(&said.stdout));

    let send = |port: u16| {
        let program = format!(
            "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
             s.bind(('',5000))\n[s.sendto(b'x'*64,('10.77.0.2',{port})) for _ in range({COUNT})]"
        );
        let mut command = net.guest.command("python3 -c");
        assert!(command.arg(program).status().expect("python3 starts").success());
        std::thread::sleep(Duration::from_millis(200));
    };
    let seen = passed(&net, dags, || send(9_999)).await;
    assert!(seen[1] == COUNT && seen[2..] == [0, 0], "{seen:?}");
    let seen = passed(&net, dags, || send(9_998)).await;
    assert!(seen[0] >= COUNT && seen[1..] == [0, 0, 0], "{seen:?}");

    // Two networks between the same hosts.
    for (number, (end, own, other)) in
        [("snlf0", "10.77.0.1", "10.77.0.2"), ("snlup", "10.77.0.2", "10.77.0.1")]
            .into_iter()
            .enumerate()
    {
        for vni in [7, 8] {
            let device = format!("vx{vni} type vxlan id {vni} local {own} remote {other}");
            run("ip", &format!("-n snic-{end} link add {device} dstport 4789 dev {end}"));
            let address = format!("10.9{vni}.0.{}/24", number + 1);
            run("ip", &format!("-n snic-{end} address add {address} dev vx{vni}"));
            run("ip", &format!("-n snic-{end} link set vx{vni} up"));
        }
    }
    let ping = |network: &str, count: u64| {
        net.guest.run(&format!("ping -c {count} -i 0.02 -W 2 {network}.2"))
    };
    let networks = ["10.97.0", "10.98.0"];
    // A kernel takes up to a second to bring up a new device.
    let until = Instant::now() + READY_MAX;
    while !networks.into_iter().all(|network| ping(network, 1).status.success()) {
        assert!(Instant::now() < until, "{:?}", net.observe());
    }
    for (network, own) in networks.into_iter().zip([2, 0]) {
        let seen = passed(&net, dags, || {
            assert_no_loss(&String::from_utf8_lossy(&ping(network, COUNT).stdout));
        })
        .await;
        let is_right = |(at, seen): (usize, &u64)| match at == own {
            true => is_about(*seen, 2 * COUNT),
            false => *seen < OTHERS,
        };
        assert!(seen.iter().enumerate().all(is_right), "{network}: {seen:?}");
    }

    // Not each kernel has devices for VLANs: the tags are made here.
    let server = station(&net.server, "snlup");
    for (vlan, own) in [(5, 3), (6, 0)] {
        let dump =
            net.server.start(&format!("tcpdump -e -n -i snlup -Q in -c {COUNT} vlan {vlan}"));
        std::thread::sleep(Duration::from_millis(500));
        let seen = passed(&net, dags, || send_tagged(&net.guest, "snlf0", &server, vlan)).await;
        assert!(seen[own] >= COUNT && seen[3 - own] < OTHERS, "VLAN {vlan}: {seen:?}");
        let came = dump.wait();
        assert_eq!(came.matches(&format!("vlan {vlan},")).count() as u64, COUNT, "{came}");
    }
}

/// Sends datagrams in frames with a VLAN tag.
fn send_tagged(from: &Host, device: &str, station: &str, vlan: u16) {
    let program = format!(
        "import socket,struct,time\n\
         s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW)\ns.bind(('{device}',0))\n\
         h=bytes.fromhex('450000200000000040110000')+bytes([10,95,0,1,10,95,0,2])\n\
         t=sum(struct.unpack('!10H',h));t=(t>>16)+(t&65535);h=h[:10]+struct.pack('!H',65535-t)+h[12:]\n\
         u=struct.pack('!4H',5,6,12,0)+b'abcd'\n\
         f=bytes.fromhex('{}')+s.getsockname()[4]+struct.pack('!3H',0x8100,{vlan},0x800)+h+u\n\
         for _ in range({COUNT}): s.send(f);time.sleep(0.005)",
        station.replace(':', "")
    );
    let mut command = from.command("python3 -c");
    assert!(command.arg(program).status().expect("python3 starts").success());
    std::thread::sleep(Duration::from_millis(200));
}
