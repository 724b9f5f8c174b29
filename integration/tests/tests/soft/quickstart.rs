//! `snicd quickstart --net`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use snic_integration::program;

use crate::rig::{
    Ending, Host, Pings, READY_MAX, assert_no_loss, fetch, interrupt, missing, observe_card,
    start_server,
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

    /// Ctrl-C.
    fn stop(self) {
        interrupt(self.started.0.as_ref().expect("it runs"));
        self.started.wait();
    }
}

fn hosts() -> [Host; 2] {
    ["snic-guest", "snic-net"].map(|name| Host { namespace: name.into() })
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
    let _servers = [8_000, 8_002].map(|port| start_server(&net, port));
    assert_eq!(fetch(&guest, "http://10.77.0.2:8000/").as_deref(), Some("8000 10.77.0.1"));
    assert_eq!(fetch(&guest, "http://10.77.0.2:8002/"), None, "no rule lets it through");

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
    assert_eq!(fetch(&guest, "http://10.77.0.2:8002/"), None, "no rule lets it through");

    start.stop();
    let listed = Command::new("ip").args(["netns", "list"]).output().expect("ip starts");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(!listed.contains("snic-guest") && !listed.contains("snic-net"), "{listed}");
}
