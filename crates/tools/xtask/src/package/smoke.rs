//! Tries what is in the packages: they are unpacked, and the daemon in them serves a DAG and a virtual machine on a simulated
//! card, asked by the `snicctl` and the hook in them. Programs of another platform run under QEMU.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::fleet_smoke;
use super::generated::printed;
use crate::command;
use crate::platform::{Platform, linked};

/// Longest time for a program to serve, and to stop: under QEMU a start takes seconds.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Commands of `snicctl`, in this order; each has to succeed.
const DAY: [&[&str]; 6] = [
    &["apply", "-f", "system/usr/share/snic/bitstreams"],
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
pub fn test(platform: &Platform, packages: &[PathBuf]) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let host = UnpackedHost { platform, folder: folder.path() };
    for package in packages {
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(package).arg(host.system());
        ensure!(command::succeeds(&mut unpack)?, "{} cannot be unpacked", package.display());
    }
    for name in ["snicd", "snicctl", "snic-card", "snic-fleet"] {
        let said = host.said(&format!("usr/bin/{name}"), &["--version"])?;
        let expected = format!("{name} {}", env!("CARGO_PKG_VERSION"));
        ensure!(said.trim() == expected, "{name} --version says {said:?}, not {expected:?}");
    }
    let hook = linked(&host.system().join("usr/lib/snic/snic-hook"))?;
    ensure!(hook.is_static(), "the packaged hook is not static: {hook:?}");
    host.write_files()?;
    let daemon = host.program("usr/bin/snicd", &["run", "--config", "snicd.toml"]);
    RunningProgram::start("snicd", daemon, folder.path())?
        .tried(|daemon| host.try_daemon(daemon))?;
    let on = match platform.is_foreign() {
        true => format!("{} (under QEMU)", platform.architecture),
        false => platform.architecture.to_owned(),
    };
    println!("tried on {on}: a daemon, a simulated card, a DAG, a machine bound by the hook");
    if fleet_smoke::test(&host)? {
        println!("tried on {on}: a replica of the fleet over etcd");
    }
    Ok(())
}

/// A host with the packages unpacked.
pub struct UnpackedHost<'a> {
    platform: &'a Platform,
    /// Its programs run here.
    pub folder: &'a Path,
}

impl UnpackedHost<'_> {
    /// Folder with the content of the packages.
    pub fn system(&self) -> PathBuf {
        self.folder.join("system")
    }

    /// A command that runs a program of the packages.
    pub fn program(&self, path: &str, words: &[&str]) -> Command {
        let mut command = self.platform.command(&self.system().join(path));
        command.current_dir(self.folder).env("SNICCTL_CONFIG", self.folder.join("contexts.toml"));
        command.args(words);
        command
    }

    /// Output of a program.
    ///
    /// # Errors
    /// It fails.
    pub fn said(&self, path: &str, words: &[&str]) -> anyhow::Result<String> {
        Ok(String::from_utf8(printed(&mut self.program(path, words))?)?)
    }

    fn write_files(&self) -> anyhow::Result<()> {
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
        Ok(())
    }

    fn try_daemon(&self, daemon: &mut RunningProgram) -> anyhow::Result<()> {
        // Not `version`, for which a server that does not answer is no error.
        daemon.until(|| self.said("usr/bin/snicctl", &["card", "list"]))?;
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

/// A program that runs until it is stopped; it is killed where something fails before.
pub struct RunningProgram {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl RunningProgram {
    /// Starts a program with a log in `folder`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(name: &'static str, mut command: Command, folder: &Path) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        Ok(Self { name, child, log })
    }

    /// Tries it, and stops it. What it has logged is told with what goes wrong.
    ///
    /// # Errors
    /// Those of `attempt`, and if it does not end well.
    pub fn tried(
        mut self,
        attempt: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let tried = attempt(&mut self);
        let stopped = self.stop();
        tried.and(stopped).with_context(|| {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            format!("{}'s log:\n{log}", self.name)
        })
    }

    /// Asks until there is an answer.
    ///
    /// # Errors
    /// There is none, or the program has ended.
    pub fn until(&mut self, ask: impl Fn() -> anyhow::Result<String>) -> anyhow::Result<String> {
        let (start, name) = (Instant::now(), self.name);
        loop {
            let error = match ask() {
                Ok(said) => return Ok(said),
                Err(error) => error,
            };
            if let Some(status) = self.child.try_wait()? {
                bail!("{name} ended while it was asked: {status}");
            }
            if start.elapsed() > PATIENCE {
                return Err(error.context(format!("{name} does not serve within {PATIENCE:?}")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Asks it to stop, and waits for it.
    fn stop(&mut self) -> anyhow::Result<()> {
        let (pid, name) = (Pid::from_child(&self.child), self.name);
        kill_process(pid, Signal::TERM).with_context(|| format!("stop {name}"))?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "{name} ended with {status}");
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("{name} does not stop within {PATIENCE:?}")
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // It has ended already where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, folder: &Path) -> RunningProgram {
        let mut command = Command::new("sh");
        command.current_dir(folder).args(["-c", script]);
        RunningProgram::start("script", command, folder).expect("there is a shell")
    }

    #[test]
    fn a_program_is_asked_until_it_answers_and_then_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let script =
            "trap 'exit 0' TERM; sleep 0.3; echo yes > answer; while :; do sleep 0.05; done";
        let ask = || Ok(fs::read_to_string(folder.path().join("answer"))?);
        let tried = shell(script, folder.path()).tried(|running| {
            ensure!(running.until(ask)? == "yes\n");
            Ok(())
        });
        tried.expect("it answers and stops");
    }

    #[test]
    fn a_program_that_ends_is_told_with_its_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let running = shell("echo no card; exit 3", folder.path());
        let error = running.tried(|running| running.until(|| bail!("no answer")).map(drop));
        let text = format!("{:#}", error.expect_err("it ended"));
        assert!(text.contains("script's log:\nno card\n"), "{text}");
        assert!(text.contains("script ended while it was asked: exit status: 3"), "{text}");
    }
}
