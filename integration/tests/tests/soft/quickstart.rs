//! `snicd quickstart --net`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use snic_integration::program;

use super::rig::{
    Ending, Host, Pings, READY_MAX, assert_no_loss, fetch, interrupt, is_shut, missing,
    observe_card, start_server,
};

/// A quick start with hosts, until it says that it is ready.
struct QuickStart {
    started: Ending,
    log: PathBuf,
}

impl QuickStart {
    fn new(folder: &Path, name: &str) -> Self {
        let log = folder.join(name);
        let mut command = Command::new(program("snicd"));
        command.args(["quickstart", "--net", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0"]);
        command.arg("--dir").arg(folder.join("quick"));
        command.stdout(std::fs::File::create(&log).expect("a file")).stderr(Stdio::inherit());
        let mut start = Self { started: Ending(Some(command.spawn().expect("it starts"))), log };
        let until = Instant::now() + READY_MAX;
        while !start.said().contains("press Ctrl-C") {
            let child = start.started.0.as_mut().expect("it is taken only at the end");
            assert!(child.try_wait().expect("it was started").is_none(), "{}", start.said());
            assert!(Instant::now() < until, "{}", start.said());
            std::thread::sleep(Duration::from_millis(50));
        }
        start
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn stop(self) {
        interrupt(self.started.0.as_ref().expect("it runs"));
        self.started.wait();
    }
}

fn hosts() -> [Host; 2] {
    ["snic-guest", "snic-net"].map(|name| Host { namespace: name.into() })
}

/// The tenant sets a policer of 10 Mbit/s into the way: of 50 Mbit/s, `iperf3` loses four fifths.
fn police(folder: &Path, guest: &Host, net: &Host) {
    let file = folder.join("guarded.yaml");
    let text = "name: guarded\nbandwidth: 10Gbps\nchain: checksum -> policer -> firewall\n\
                configuration:\n\
                \x20 checksum: {mode: verify}\n\
                \x20 policer: {rate_bps: 10000000, burst_bytes: 20000}\n\
                \x20 firewall:\n\
                \x20   rules:\n\
                \x20     - {action: accept, protocol: tcp, destination_ports: '5201'}\n\
                \x20     - {action: accept, protocol: udp, destination_ports: '5201'}\n";
    std::fs::write(&file, text).expect("a file");
    let mut update = Command::new(program("snicctl"));
    update.env("SNICCTL_CONFIG", folder.join("quick/snicctl.toml"));
    update.args(["--context", "acme", "dag", "update", "--wait", "--file"]).arg(&file);
    let output = update.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let _server = net.start("iperf3 -s -1");
    std::thread::sleep(Duration::from_millis(300));
    let said = guest.start("iperf3 -c 10.77.0.2 -u -b 50M -t 3 -l 1200 -J").wait();
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let lost = said["end"]["sum"]["lost_percent"].as_f64().expect("a number");
    assert!((75.0..85.0).contains(&lost), "{lost} % lost: {}", said["end"]);
}

/// Packets that the quick start suggests to send pass its firewall.
fn suggested_traffic_passes(folder: &Path, said: &str) {
    let line =
        said.lines().find(|line| line.contains("snicctl traffic run")).expect("a suggestion");
    let line = line.trim().replace("1Gbps", "10Mbps").replace("5s", "1s");
    let mut run = Command::new(program("snicctl"));
    run.env("SNICCTL_CONFIG", folder.join("quick/snicctl.toml"));
    run.args(line.split_whitespace().skip(1)).args(["-o", "json"]);
    let output = run.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let count = |name: &str| told[name].as_u64();
    let (offered, served) = (count("packets_offered"), count("packets_served"));
    assert!(offered.is_some_and(|count| count > 100) && offered == served, "{told:#}");
}

#[test]
fn the_quick_start_makes_two_hosts_and_takes_them_away() {
    if let Some(why) = missing() {
        println!("not run: {why}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let start = QuickStart::new(folder.path(), "first");
    let [guest, net] = hosts();
    let said = start.said();
    assert!(said.contains("ip netns exec snic-guest ping -c 3 10.77.0.2"), "{said}");
    assert_no_loss(&String::from_utf8_lossy(&guest.run("ping -c 3 -W 2 10.77.0.2").stdout));
    suggested_traffic_passes(folder.path(), &said);
    let _servers = [8_000, 8_002].map(|port| start_server(&net, port));
    assert_eq!(fetch(&guest, "http://10.77.0.2:8000/").as_deref(), Some("8000 10.77.0.1"));
    assert!(is_shut(&guest, "http://10.77.0.2:8002/"), "no rule lets it through");

    // `kill -9`: the card goes on, and the next one finds it.
    let ports = ["tap:snic-up", "tap:snic-f0"].map(str::to_owned);
    let place = folder.path().join("quick/store/cards/card0");
    let seen = || observe_card(&place, &ports);
    let before = seen();
    let pings = Pings::start(&guest, "10.77.0.2");
    // It is killed, as every `Ending` that is dropped.
    drop(start);
    let start = QuickStart::new(folder.path(), "second");
    let after = seen();
    assert!(pings.all_came_back() > 20);
    assert_eq!((after.loads, after.table_words), (before.loads, before.table_words));
    assert_eq!(fetch(&guest, "http://10.77.0.2:8000/").as_deref(), Some("8000 10.77.0.1"));
    assert!(is_shut(&guest, "http://10.77.0.2:8002/"), "no rule lets it through");

    police(folder.path(), &guest, &net);

    start.stop();
    let listed = Command::new("ip").args(["netns", "list"]).output().expect("ip starts");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(!listed.contains("snic-guest") && !listed.contains("snic-net"), "{listed}");
}
