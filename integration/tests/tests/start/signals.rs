//! Signals: quick starts, a card, and the services beside the daemon.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use snic_integration::commands::ended;
use snic_integration::{Home, TestClient, program};

use super::{quickstart, regions};

/// Second start of a quick start whose card is full of the user's own DAGs, which have the places of the samples.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "ci: seconds of waiting"]
async fn a_quickstart_without_room_for_its_samples_says_so_and_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut start = QuickStart::new(folder.path(), &[]);
    start.read_until("press Ctrl-C");
    let snicctl = |words: &str| {
        let mut command = Command::new(program("snicctl"));
        command.env("SNICCTL_CONFIG", folder.path().join("snicctl.toml"));
        let output = command.args(words.split_whitespace()).output().expect("it starts");
        let text = [&output.stdout[..], &output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (_, listed) = snicctl("dag list -A -o json");
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let samples: Vec<String> = listed
        .as_array()
        .expect("DAGs")
        .iter()
        .map(|dag| dag["name"].as_str().expect("a name").to_owned())
        .collect();
    assert!(!samples.is_empty());
    for name in &samples {
        let (deleted, said) = snicctl(&format!("dag delete --wait {name}"));
        assert!(deleted, "{said}");
    }
    // As many as fit, so that none of the samples does.
    let file = folder.path().join("mine.yaml");
    std::fs::write(&file, "bandwidth: 10Gbps\nchain: firewall -> nat\n").expect("a file");
    let create = |number: usize| {
        snicctl(&format!("dag create mine-{number} --tenant acme --wait --file {}", file.display()))
    };
    let refused = (0..200).map(create).find(|(created, _)| !created).expect("a card has an end");
    assert!(refused.1.contains("capacity") || refused.1.contains("room"), "{}", refused.1);
    start.signal(Signal::TERM);
    assert_eq!(start.end().0.code(), Some(0));

    let mut again = QuickStart::new(folder.path(), &[]);
    let said = again.read_until("press Ctrl-C");
    assert!(said.contains("left out, for DAGs of yours leave no room for it"), "{said}");
    assert!(!said.contains("Some resource has been exhausted"), "{said}");
    again.signal(Signal::INT);
    let (status, log) = again.end();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// A quick start, and what it has printed.
struct QuickStart {
    child: Option<Child>,
    lines: BufReader<std::process::ChildStdout>,
}

/// The command of a quick start. It hears a SIGHUP even where the tests themselves run under nohup.
pub(super) fn quickstart_command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(program("snicd"));
    command.args(["quickstart", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0"]);
    command.args(["--traffic-us", "200", "--dir"]).arg(folder).args(words).stdin(Stdio::null());
    command
}

impl QuickStart {
    fn new(folder: &Path, words: &[&str]) -> Self {
        Self::of(quickstart_command(folder, words))
    }

    /// The command in a process group of its own, as a shell makes one for each.
    fn of(mut command: Command) -> Self {
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("snicd starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child: Some(child), lines }
    }

    /// Reads lines until one has these words; gives all of them.
    fn read_until(&mut self, words: &str) -> String {
        let mut text = String::new();
        while !text.contains(words) {
            let read = self.lines.read_line(&mut text).expect("text");
            assert!(read > 0, "it ended before {words:?}: {text}{:?}", self.end());
        }
        text
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it is taken only at the end"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Waits for its end; its status, and the rest of what it prints to both.
    fn end(&mut self) -> (ExitStatus, String) {
        let child = self.child.take().expect("it is taken only here");
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("text");
        let output = ended(child);
        rest += &String::from_utf8_lossy(&output.stderr);
        assert!(!rest.contains("panicked"), "{rest}");
        (output.status, rest)
    }
}

impl Drop for QuickStart {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Lines of a quick start from its first to its last, and the signal that it gets after each.
const MOMENTS: [(&str, &str, Signal); 6] = [
    ("snic quick start in", "hup-0", Signal::HUP),
    ("the daemon listens", "hup-1", Signal::HUP),
    ("bitstreams:", "term", Signal::TERM),
    ("submitted", "hup-2", Signal::HUP),
    ("Traffic", "int", Signal::INT),
    ("press Ctrl-C", "hup-3", Signal::HUP),
];

#[test]
#[ignore = "ci: seconds of waiting"]
fn a_signal_ends_a_quickstart_cleanly_at_every_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    for (moment, name, signal) in MOMENTS {
        let mut start = QuickStart::new(&folder.path().join(name), &[]);
        let said = start.read_until(moment);
        start.signal(signal);
        let (status, rest) = start.end();
        assert_eq!(status.code(), Some(0), "{name} at {moment:?}: {status}: {said}{rest}");
    }
    // Before the program waits for signals there is nothing that could be left behind.
    let dir = folder.path().join("at once");
    let mut start = QuickStart::new(&dir, &[]);
    start.signal(Signal::HUP);
    let (status, rest) = start.end();
    let is_clean = status.code() == Some(0) || status.signal() == Some(Signal::HUP.as_raw());
    assert!(is_clean, "{status}: {rest}");
    // What was interrupted can be started again.
    for dir in [dir, folder.path().join("hup-2")] {
        let second = quickstart(&dir);
        assert!(second.contains("table version): 0"), "{second}");
    }
}

#[test]
#[ignore = "ci: seconds of waiting"]
fn under_nohup_a_quickstart_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("sh");
    // What nohup does; a child inherits it.
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    let plain = quickstart_command(folder.path(), &[]);
    command.args(plain.get_args().skip(1)).stdin(Stdio::null());
    let mut start = QuickStart::of(command);
    for moment in ["the daemon listens", "press Ctrl-C"] {
        start.read_until(moment);
        start.signal(Signal::HUP);
    }
    let config = folder.path().join("snicctl.toml");
    let mut list = Command::new(program("snicctl"));
    let output = list.env("SNICCTL_CONFIG", config).args(["tenant", "list"]).output();
    assert!(output.expect("it starts").status.success(), "it serves on");
    start.signal(Signal::TERM);
    let (status, rest) = start.end();
    assert_eq!(status.code(), Some(0), "{rest}");
}

/// The end of a terminal: the kernel sends SIGHUP to the foreground's process group, of which the card is no part.
#[test]
#[ignore = "ci: seconds of waiting"]
fn a_terminal_that_ends_takes_a_quickstart_with_hosts_and_its_card_along() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut start = QuickStart::new(folder.path(), &["--hosts"]);
    start.read_until("press Ctrl-C");
    let pid = std::fs::read_to_string(folder.path().join("store/cards/card0/card.pid"));
    let card = format!("/proc/{}/stat", pid.expect("it runs").trim());
    let stat = std::fs::read_to_string(&card).expect("the card runs");
    let group: i32 = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().nth(2))
        .and_then(|group| group.parse().ok())
        .expect("man 5 proc");
    assert_ne!(group, start.pid().as_raw_nonzero().get(), "the card has a group of its own");
    kill_process_group(start.pid(), Signal::HUP).expect("it runs");
    let (status, rest) = start.end();
    assert_eq!(status.code(), Some(0), "{rest}");
    let is_gone = || match std::fs::read_to_string(&card) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    };
    let until = Instant::now() + Duration::from_secs(10);
    while !is_gone() {
        assert!(Instant::now() < until, "the card outlives its quick start");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The packets that a quick start suggests to send pass its own firewall.
#[test]
#[ignore = "ci: seconds of waiting"]
fn suggested_traffic_passes_between_the_hosts_of_a_quickstart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut start = QuickStart::new(folder.path(), &["--hosts"]);
    let said = start.read_until("press Ctrl-C");
    let suggested: Vec<&str> = said.lines().filter(|line| line.contains(" traffic run ")).collect();
    assert_eq!(suggested.len(), 2, "{said}");
    for line in suggested {
        // Less than the machine of a test can do, so that only the firewall drops any.
        let words = line.split_whitespace().skip(1).map(|word| match word {
            "500Mbps" | "1Gbps" => "5Mbps",
            "5s" => "1s",
            word => word,
        });
        let mut run = Command::new(program("snicctl"));
        run.env("SNICCTL_CONFIG", folder.path().join("snicctl.toml"));
        let output = run.args(words).args(["-o", "json"]).output().expect("it starts");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let count = |name: &str| told[name].as_u64();
        let (offered, served) = (count("packets_offered"), count("packets_served"));
        assert!(offered.is_some_and(|count| count > 100) && offered == served, "{line}: {told:#}");
    }
    start.signal(Signal::TERM);
    let (status, rest) = start.end();
    assert_eq!(status.code(), Some(0), "{rest}");
}

/// SIGHUP of the card's own process is the same as any other end of it: a power loss, after which the daemon has another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "ci: seconds of waiting"]
async fn a_card_that_gets_a_sighup_is_replaced() {
    let home = Home::new();
    home.write_soft_settings("");
    let daemon = home.start().await;
    let within = |what: Duration| Instant::now() + what;
    let until = within(Duration::from_secs(30));
    let first = loop {
        if let Some(pid) = home.card_pid() {
            break pid;
        }
        assert!(Instant::now() < until, "there is no card");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    tokio::time::timeout(Duration::from_secs(30), regions(&client)).await.expect("it is open");
    kill_process(Pid::from_raw(first.cast_signed()).expect("a process"), Signal::HUP)
        .expect("it runs");
    let until = within(Duration::from_secs(30));
    while home.card_pid().is_none_or(|pid| pid == first) {
        assert!(Instant::now() < until, "there is no other card");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::timeout(Duration::from_secs(30), regions(&client)).await.expect("it is open");
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}

/// Waits until a process has a handler for SIGHUP: the first bit of `SigCgt` (man 5 proc).
fn until_it_waits_for_signals(child: &mut Child) {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        let status = status.unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        if mask
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & 1 == 1)
        {
            return;
        }
        assert!(child.try_wait().expect("a child").is_none(), "it has ended");
        assert!(Instant::now() < until, "it never waits for signals");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// systemd takes an end by SIGHUP for a clean one and starts nothing again, so that machines would lose their leases.
#[test]
#[ignore = "ci: the test command does not build all programs"]
fn services_beside_the_daemon_go_on_at_a_sighup_and_end_cleanly_at_a_sigterm() {
    let home = Home::new();
    let path = |name: &str| home.path().join(name);
    let daemon = format!("[daemon]\nendpoint = \"unix:{}\"\n", home.socket().display());
    let write =
        |name: &str, text: String| std::fs::write(path(name), text + &daemon).expect("a file");
    for folder in ["spool", "state", "cdi", "kubelet"] {
        std::fs::create_dir(path(folder)).expect("a folder");
    }
    write("cdi.toml", format!("folder = {:?}\n", path("cdi")));
    write(
        "hook.toml",
        format!("spool_dir = {:?}\nlibvirt_state_dir = {:?}\n", path("spool"), path("state")),
    );
    let resource = "[[resources]]\nname = \"snic.dev/acme-web\"\ntenant = \"acme\"\n\
                    dags = [\"web\"]\ndevices = 1\n";
    write("plugin.toml", format!("node = \"n\"\nkubelet_dir = {:?}\n{resource}", path("kubelet")));
    for (name, config, words) in [
        ("snic-cdi", "cdi.toml", &[][..]),
        ("snic-hook", "hook.toml", &["heartbeat"]),
        ("snic-kubernetes", "plugin.toml", &[]),
    ] {
        for signal in [Signal::TERM, Signal::INT] {
            let mut command = Command::new(program(name));
            command.arg("--config").arg(path(config)).args(words);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("it starts");
            until_it_waits_for_signals(&mut child);
            let pid = Pid::from_child(&child);
            kill_process(pid, Signal::HUP).expect("it runs");
            std::thread::sleep(Duration::from_millis(200));
            assert!(child.try_wait().expect("a child").is_none(), "{name} goes on");
            kill_process(pid, signal).expect("it runs");
            let output = ended(child);
            let log = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{name}: {log}");
            assert!(log.contains("SIGHUP changes nothing"), "{name}: {log}");
        }
    }
    // A call of the hook that is ended lets no domain start: libvirt starts none after a failure.
    let mut command = Command::new(program("snic-hook"));
    command.arg("--config").arg(path("hook.toml")).args(["vm", "prepare", "begin", "-"]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
    let stdin = child.stdin.take();
    kill_process(Pid::from_child(&child), Signal::HUP).expect("it runs");
    let status = child.wait().expect("a child");
    assert!(!status.success(), "{status}");
    drop(stdin);
}
