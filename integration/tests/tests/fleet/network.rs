//! A network for a test: each part has a network namespace of its own and an address, and can be cut off from all others, or
//! from one of them. All of it is in a namespace that ends with the test.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Says to a test program that it is inside.
const INSIDE: &str = "SNIC_TEST_NETWORK";
/// Namespaces for the test; a user that is not root becomes root of them.
const UNSHARE: [&str; 5] = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
const AS_ROOT: [&str; 2] = ["--user", "--map-root-user"];

/// A part's namespace, held by a process that does nothing.
struct Part {
    holder: Child,
    number: u8,
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Parts by name.
#[derive(Default)]
pub struct Network {
    parts: BTreeMap<String, Part>,
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(UNSHARE).stdin(Stdio::null());
    if !rustix::process::geteuid().is_root() {
        command.args(AS_ROOT);
    }
    command
}

fn run(program: &str, line: &str) {
    let output = Command::new(program).args(line.split(' ')).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {line}: {told}");
}

fn ip(line: &str) {
    run("ip", line);
}

/// Runs a test of this program once more in a network of its own. `Some` is inside: there the test goes on. Says so where
/// this machine has no namespaces.
pub fn inside(test: &str) -> Option<Network> {
    if std::env::var_os(INSIDE).is_some() {
        for line in [
            "link set lo up",
            "link add bridge0 type bridge",
            "addr add 10.77.0.1/24 dev bridge0",
            "link set bridge0 up",
        ] {
            ip(line);
        }
        return Some(Network::default());
    }
    let mut possible = unshare();
    possible.args(["ip", "link", "add", "bridge0", "type", "bridge"]);
    let possible = possible.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !possible.is_ok_and(|status| status.success()) {
        println!("not run: network namespaces are missing");
        return None;
    }
    let program = std::env::current_exe().unwrap();
    let mut command = unshare();
    command.arg(program).args(["--exact", test, "--nocapture", "--include-ignored"]);
    let output = command.env(INSIDE, "1").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "it failed inside its network");
    None
}

impl Network {
    /// Adds a part.
    pub fn add(&mut self, name: &str) {
        let number = 11 + u8::try_from(self.parts.len()).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "infinity"]).stdin(Stdio::null());
        let holder = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let id = holder.id();
        self.parts.insert(name.to_owned(), Part { holder, number });
        let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let begin = Instant::now();
        while of(&id.to_string()) == of("self") {
            assert!(begin.elapsed() < Duration::from_secs(30), "no namespace for {name}");
            std::thread::sleep(Duration::from_millis(5));
        }
        ip(&format!("link add {name} type veth peer name eth0 netns {id}"));
        ip(&format!("link set {name} master bridge0 up"));
        for line in [
            "link set lo up",
            &format!("addr add {}/24 dev eth0", self.address(name)),
            "link set eth0 up",
        ] {
            self.ip_in(name, line);
        }
    }

    pub fn address(&self, name: &str) -> String {
        format!("10.77.0.{}", self.parts[name].number)
    }

    /// First words of a command of this part.
    pub fn enter(&self, name: &str) -> Vec<String> {
        vec!["nsenter".into(), format!("--net=/proc/{}/ns/net", self.parts[name].holder.id())]
    }

    fn ip_in(&self, name: &str, line: &str) {
        let at = format!("--net=/proc/{}/ns/net", self.parts[name].holder.id());
        run("nsenter", &format!("{at} ip {line}"));
    }

    /// Cuts a part off from all others, or no longer.
    pub fn isolate(&self, name: &str, is_cut: bool) {
        ip(&format!("link set {name} {}", if is_cut { "down" } else { "up" }));
    }

    /// Cuts two parts off from each other, or no longer: no packet of the one leaves for the other.
    pub fn cut(&self, one: &str, other: &str, is_cut: bool) {
        let verb = if is_cut { "add" } else { "del" };
        for (from, to) in [(one, other), (other, one)] {
            self.ip_in(from, &format!("route {verb} blackhole {}/32", self.address(to)));
        }
    }
}
