//! Tries what is in the packages: they are unpacked, and the daemon in them serves a DAG and a virtual machine on a simulated
//! card, asked by the `snicctl` and the hook in them. Programs of another platform run under QEMU.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use rustix::process::geteuid;

use super::fleet_smoke;
use super::unpacked::{RunningProgram, UnpackedHost};
use crate::command;
use crate::platform::{Platform, linked};

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
    for name in ["snic-device-plugin", "snic-dra", "snic-dag-controller"] {
        // They have no version of their own, and say how they are called.
        let output = host.program(&format!("usr/bin/{name}"), &["--help"]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(said.contains(&format!("usage: {name}")), "{name} --help says {said:?}");
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

impl UnpackedHost<'_> {
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
