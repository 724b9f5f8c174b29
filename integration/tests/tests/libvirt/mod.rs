//! The hook, called by the real libvirt, with a real QEMU that emulates.
//!
//! libvirtd runs in a separate mount namespace, with empty folders for its files, so that the
//! machine's own libvirt is neither seen nor changed; and with a host name of its own. Needs root and the distribution's programs;
//! without them the test is skipped and says so.

mod esp;
mod guest;
mod migration;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use snic_api::replies::ItemOf as _;
use snic_api::v1::vm_binding::State;
use snic_api::v1::{self, VmBinding};
use snic_integration::{Home, TestClient, furnished, program};

use super::soft::rig;

const UUID: &str = "123e4567-e89b-42d3-a456-426614174000";
/// Longest time of libvirt and QEMU for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// libvirt's folders in its namespace, and how it starts.
const BEGIN: &str = r#"set -e
for folder in /etc/libvirt /run/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt; do
    mkdir -p $folder
    mount -t tmpfs -o mode=0755 none $folder
done
mkdir -p /etc/libvirt/hooks
printf '#!/bin/sh\nexec %s --config %s "$@"\n' "$HOOK" "$HOOK_CONFIG" > /etc/libvirt/hooks/qemu
chmod +x /etc/libvirt/hooks/qemu
cat > /etc/libvirt/qemu.conf <<END
stdio_handler = "file"
security_driver = "none"
user = "root"
group = "root"
cgroup_controllers = [ ]
namespaces = [ ]
END
host=$(cat /proc/sys/kernel/random/uuid)
printf 'auth_unix_rw = "none"\nauth_unix_ro = "none"\nhost_uuid = "%s"\n' "$host" > /etc/libvirt/libvirtd.conf
echo "$host" > /proc/sys/kernel/hostname
exec libvirtd --pid-file /run/libvirt/libvirtd.pid
"#;

/// Why this machine cannot run the test.
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root".to_owned());
    }
    let there = |name: &&str| {
        ["/usr/sbin", "/usr/bin"].iter().any(|folder| Path::new(folder).join(name).exists())
    };
    let programs = ["libvirtd", "virsh", "qemu-system-x86_64", "unshare", "nsenter"];
    programs.iter().find(|name| !there(name)).map(|name| format!("{name} is missing"))
}

/// A libvirtd; it and its machine end with this.
struct Libvirt {
    daemon: Child,
}

impl Libvirt {
    fn start(home: &Home) -> Self {
        let log = std::fs::File::create(home.path().join("libvirtd.log")).expect("a file");
        let daemon = Command::new("unshare")
            .args(["--mount", "--uts", "--propagation", "private", "sh", "-c", BEGIN])
            .env("HOOK", program("snic-hook"))
            .env("HOOK_CONFIG", home.path().join("hook.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("unshare starts");
        let libvirt = Self { daemon };
        let until = Instant::now() + PATIENCE;
        while !libvirt.virsh(&["uri"]).status.success() {
            assert!(Instant::now() < until, "libvirtd does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        libvirt
    }

    fn virsh(&self, words: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.daemon.id().to_string(), "-m", "virsh", "-c", "qemu:///system"]);
        command.args(words).stdin(Stdio::null()).output().expect("nsenter starts")
    }

    fn fine(&self, words: &[&str]) {
        let output = self.virsh(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "virsh {words:?}: {said}");
    }

    /// Starts the machine; returns libvirt's error if it is refused.
    fn start_machine(&self) -> Result<(), String> {
        let output = self.virsh(&["start", "web1"]);
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn define(&self, home: &Home, domain: &str) {
        let path = home.path().join("web1.domain");
        std::fs::write(&path, domain).expect("the folder takes files");
        self.fine(&["define", path.to_str().expect("a plain path")]);
    }

    /// Where a file of libvirt's namespace is for others.
    fn path(&self, path: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.daemon.id()));
        root.join(path.trim_start_matches('/'))
    }

    /// Content of a file of libvirt's namespace.
    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.path(path)).ok()
    }

    fn qemu(&self) -> Option<rustix::process::Pid> {
        let id = self.read("/run/libvirt/qemu/web1.pid")?;
        rustix::process::Pid::from_raw(id.trim().parse().ok()?)
    }

    fn kill_qemu(&self) {
        let pid = self.qemu().expect("the machine runs");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    }
}

impl Drop for Libvirt {
    fn drop(&mut self) {
        if let Some(pid) = self.qemu() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// A machine without an operating system.
fn bare(metadata: &str) -> String {
    format!(
        "<domain type='qemu'><name>web1</name><uuid>{UUID}</uuid>\
         <metadata>{metadata}</metadata><memory unit='MiB'>64</memory><vcpu>1</vcpu>\
         <os><type arch='x86_64' machine='pc'>hvm</type></os>\
         <devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices></domain>"
    )
}

fn configure(home: &Home, more: &str) {
    let path = home.path();
    let text = format!(
        "{more}\nspool_dir = {:?}\n[daemon]\nendpoint = \"unix:{}\"\n\
         identity = \"orchestrator/libvirt\"\n",
        path.join("spool"),
        home.socket().display()
    );
    std::fs::write(path.join("hook.toml"), text).expect("the folder takes files");
}

async fn binding(client: &TestClient) -> Option<VmBinding> {
    let request = v1::GetBindingRequest { name: format!("vmBindings/{UUID}") };
    client.machines().get_binding(request).await.item().ok()
}

async fn wait_for(client: &TestClient, state: State) {
    let until = Instant::now() + PATIENCE;
    loop {
        let now = binding(client).await.map(|binding| binding.state());
        if now == Some(state) {
            return;
        }
        assert!(Instant::now() < until, "it is {now:?}, not {state:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

const WISH: &str = "<snic:vm xmlns:snic='urn:snic:libvirt:vm:1' tenant='acme' functions='2'>\
                    <snic:dag name='web'/></snic:vm>";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_come_and_go_with_their_functions() {
    if let Some(why) = missing() {
        eprintln!("SKIPPED: the hook cannot be tested with libvirt here: {why}");
        return;
    }
    let home = Home::new();
    configure(&home, "");
    let libvirt = Libvirt::start(&home);
    libvirt.define(&home, &bare(WISH));

    // Down: refused, and the reason is where the owner of the machine looks.
    let said = libvirt.start_machine().expect_err("nobody can bind it");
    assert!(said.contains("cannot be reached"), "{said}");
    let log = libvirt.read("/var/log/libvirt/qemu/web1.log").expect("the machine's log");
    assert!(log.contains("cannot be reached"), "{log}");
    configure(&home, "when_down = \"allow\"");
    libvirt.start_machine().expect("the policy allows it");
    libvirt.fine(&["destroy", "web1"]);

    // Up: the DAG is ready before the guest runs.
    configure(&home, "");
    let daemon = home.start().await;
    let client = furnished(&home, &["web"]).await;
    libvirt.start_machine().expect("it is bound");
    let bound = binding(&client).await.expect("it is bound");
    assert_eq!((bound.state(), bound.functions.len()), (State::Bound, 2));
    assert_eq!(bound.dags[0].state(), v1::dag::State::Ready);
    assert!(libvirt.qemu().is_some(), "the guest runs");
    libvirt.fine(&["destroy", "web1"]);
    wait_for(&client, State::Unbound).await;

    // QEMU dies by itself.
    libvirt.start_machine().expect("it is bound");
    wait_for(&client, State::Bound).await;
    libvirt.kill_qemu();
    wait_for(&client, State::Unbound).await;

    // libvirt refuses an invalid request, with our message.
    libvirt.define(&home, &bare(&WISH.replace("'web'", "'nope'")));
    let said = libvirt.start_machine().expect_err("no such DAG");
    assert!(said.contains("tenants/acme/dags/nope does not exist"), "{said}");
    libvirt.define(&home, &bare(&WISH.replace("vm:1", "vm:7")));
    let said = libvirt.start_machine().expect_err("no such version");
    assert!(said.contains("(supported: 1)"), "{said}");
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
}
