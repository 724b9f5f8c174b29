//! Tries what is in the packages: they are unpacked, and the daemon in them serves a DAG and a virtual machine on a simulated
//! card, asked by the `snicctl` and the hook in them. Programs of another platform run under QEMU.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::generated::printed;
use crate::command;
use crate::platform::{Platform, linked};

/// How long the daemon may take to serve, and to stop: under QEMU a start takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// What `snicctl` is asked, in this order; each has to succeed.
const DAY: [&[&str]; 6] = [
    &["apply", "-f", "bitstreams"],
    &[
        "bitstream",
        "build-test",
        "edge.bit",
        "--model",
        "sim-16",
        "--nts",
        "nat,firewall",
        "--manifest",
        "edge.toml",
    ],
    &["bitstream", "upload", "edge", "-f", "edge.bit", "--manifest", "edge.toml"],
    &["tenant", "create", "acme"],
    &["dag", "create", "-f", "web.yaml", "--wait"],
    &["card", "get", "card0"],
];

/// The DAG.
const WEB: &str = "name: web\ntenant: acme\nbandwidth: 1Gbps\nchain: nat -> firewall\n";

/// The virtual machine.
const GUEST: &str = "<domain type='kvm'><name>guest</name>\
    <uuid>6b0f1d5e-3c1a-4c0e-9d5c-0a4f5f0c9e11</uuid><metadata>\
    <snic:vm xmlns:snic='urn:snic:libvirt:vm:1' tenant='acme'><snic:dag name='web'/></snic:vm>\
    </metadata></domain>";

/// Unpacks the packages and tries them.
///
/// # Errors
/// A program in them does not do what it should.
pub fn test(platform: &Platform, packages: &[PathBuf], bitstreams: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let host = Host { platform, folder: folder.path() };
    for package in packages {
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(package).arg(host.system());
        ensure!(command::succeeds(&mut unpack)?, "{} cannot be unpacked", package.display());
    }
    for name in ["snicd", "snicctl", "snic-card"] {
        let said = host.said(&format!("usr/bin/{name}"), &["--version"])?;
        let expected = format!("{name} {}", env!("CARGO_PKG_VERSION"));
        ensure!(said.trim() == expected, "{name} --version says {said:?}, not {expected:?}");
    }
    let hook = linked(&host.system().join("usr/lib/snic/snic-hook"))?;
    ensure!(hook.is_static(), "the packaged hook is not static: {hook:?}");
    host.write_files(bitstreams)?;
    let mut daemon = Daemon { child: host.start()?, log: host.log() };
    let tried = host.try_daemon(&mut daemon);
    let stopped = daemon.stop();
    tried.and(stopped).with_context(|| daemon.log_text())?;
    println!(
        "tried on {}{}: a daemon with a simulated card, a DAG, a virtual machine bound by the hook",
        platform.architecture,
        if platform.is_foreign() { " (under QEMU)" } else { "" }
    );
    Ok(())
}

/// A host with the packages unpacked.
struct Host<'a> {
    platform: &'a Platform,
    folder: &'a Path,
}

impl Host<'_> {
    fn system(&self) -> PathBuf {
        self.folder.join("system")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn program(&self, path: &str) -> Command {
        let mut command = self.platform.command(&self.system().join(path));
        command.current_dir(self.folder).env("SNICCTL_CONFIG", self.folder.join("contexts.toml"));
        command
    }

    fn said(&self, path: &str, words: &[&str]) -> anyhow::Result<String> {
        Ok(String::from_utf8(printed(self.program(path).args(words))?)?)
    }

    fn write_files(&self, bitstreams: &Path) -> anyhow::Result<()> {
        let write = |name: &str, text: String| fs::write(self.folder.join(name), text);
        let socket = self.folder.join("socket");
        let user = geteuid().as_raw();
        write(
            "snicd.toml",
            format!(
                "data_dir = {:?}\npolicies_dir = {:?}\n\
                 [listen]\nunix = {socket:?}\n[[listen.unix_peers]]\nuser = {user}\n\
                 identities = [\"operator/admin\", \"orchestrator/libvirt\"]\n\
                 [signatures]\nallow_unsigned = true\n\
                 [[cards]]\nid = \"card0\"\ndriver = \"sim\"\nmodel = \"sim-16\"\n\
                 functions = {{ physical_function = \"0000:3b:00.0\", count = 2, first_offset = 1, stride = 1 }}\n",
                self.folder.join("data"),
                self.system().join("etc/snic/policies"),
            ),
        )?;
        let endpoint = format!("endpoint = \"unix:{}\"", socket.display());
        write("contexts.toml", format!("current = \"here\"\n[contexts.here]\n{endpoint}\n"))?;
        let folder = |name: &str| self.folder.join(name);
        write(
            "hook.toml",
            format!(
                "domain_log_dir = {:?}\nlibvirt_state_dir = {:?}\nspool_dir = {:?}\n\
                 [daemon]\n{endpoint}\nidentity = \"orchestrator/libvirt\"\n",
                folder("logs"),
                folder("running"),
                folder("spool"),
            ),
        )?;
        write("web.yaml", WEB.to_owned())?;
        std::os::unix::fs::symlink(bitstreams, self.folder.join("bitstreams"))?;
        Ok(())
    }

    fn start(&self) -> anyhow::Result<Child> {
        let log = File::create(self.log())?;
        let mut daemon = self.program("usr/bin/snicd");
        daemon.args(["run", "--config", "snicd.toml"]).stdin(Stdio::null());
        daemon.stdout(log.try_clone()?).stderr(log);
        daemon.spawn().context("start snicd")
    }

    fn try_daemon(&self, daemon: &mut Daemon) -> anyhow::Result<()> {
        let start = Instant::now();
        // Not `version`, for which a server that does not answer is no error.
        while let Err(error) = self.said("usr/bin/snicctl", &["card", "list"]) {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("snicd ended while it was asked: {status}");
            }
            if start.elapsed() > PATIENCE {
                return Err(error.context(format!("snicd does not serve within {PATIENCE:?}")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        for words in DAY {
            self.said("usr/bin/snicctl", words)?;
        }
        let dags = self.said("usr/bin/snicctl", &["dag", "list", "-o", "json"])?;
        ensure!(dags.contains("tenants/acme/dags/web"), "snicctl dag list says {dags}");
        self.call_hook()?;
        let machines = self.said("usr/bin/snicctl", &["vm", "list", "-o", "json"])?;
        ensure!(machines.contains("6b0f1d5e-3c1a-4c0e-9d5c-0a4f5f0c9e11"), "bound are {machines}");
        Ok(())
    }

    /// Calls the hook as libvirt does before a domain starts. It needs no library: QEMU gets none for it.
    fn call_hook(&self) -> anyhow::Result<()> {
        let mut hook = self.platform.static_command(&self.system().join("usr/lib/snic/snic-hook"));
        hook.current_dir(self.folder).args(["--config", "hook.toml"]);
        hook.args(["guest", "prepare", "begin", "-"]).stdin(Stdio::piped());
        let mut child = hook.stderr(Stdio::piped()).spawn().context("start snic-hook")?;
        let mut input = child.stdin.take().context("the hook's standard input")?;
        input.write_all(GUEST.as_bytes()).context("write the domain's XML")?;
        drop(input);
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "snic-hook failed ({}): {said}", output.status);
        Ok(())
    }
}

/// The daemon, which is killed unless it was stopped.
struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Asks it to stop, and waits for it.
    fn stop(&mut self) -> anyhow::Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).context("stop snicd")?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "snicd ended with {status}");
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("snicd does not stop within {PATIENCE:?}")
    }

    fn log_text(&self) -> String {
        format!("snicd's log:\n{}", fs::read_to_string(&self.log).unwrap_or_default())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended already where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
