//! Tries the packaged `snic-fleet`: it says what the packaged settings lack, and serves over this machine's etcd.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::path;
use super::unpacked::{RunningProgram, UnpackedHost};
use crate::packages;

/// Where it is in the packages.
const FLEET: &str = "usr/bin/snic-fleet";

/// Tries the program; says whether there was etcd for all of it.
///
/// # Errors
/// It does not do what it should.
pub fn test(host: &UnpackedHost<'_>) -> anyhow::Result<bool> {
    let shipped = host.system().join("etc/snic-fleet/snic-fleet.toml");
    let checked = host.program(FLEET, &["--config", path(&shipped)?, "--check"]).output()?;
    let said = String::from_utf8_lossy(&checked.stdout);
    ensure!(
        !checked.status.success() && said.contains("WRONG tls: "),
        "without certificates, snic-fleet --check says {checked:?}"
    );
    if let Some(advice) = packages::missing("etcd") {
        println!("no replica of the fleet was tried: {advice}");
        return Ok(false);
    }
    let ports = free_ports()?;
    for words in [&["init"][..], &["issue", "replica/r0"], &["issue", "operator/admin"]] {
        host.said("usr/bin/snicd", &[&["pki", "--folder", "pki"], words].concat())?;
    }
    fs::write(host.folder.join("fleet.toml"), settings(ports))?;
    let endpoint = format!("https://localhost:{}", ports[2]);
    let context = ["context", "set", "fleet", "--endpoint", &endpoint, "--ca", "pki/ca.pem"];
    let identity = ["--certificate", "pki/operator-admin.pem", "--key", "pki/operator-admin.key"];
    host.said("usr/bin/snicctl", &[&context[..], &identity].concat())?;
    // It is killed in the end: to SIGTERM it does not answer with success.
    let mut etcd = RunningProgram::start("etcd", etcd(host, ports), host.folder)?;
    etcd.until(|| host.said(FLEET, &["--config", "fleet.toml", "--check"]))?;
    let replica = host.program(FLEET, &["--config", "fleet.toml"]);
    RunningProgram::start("snic-fleet", replica, host.folder)?.tried(|replica| {
        let status = ["--context", "fleet", "fleet", "status", "-o", "json"];
        let leads = || match host.said("usr/bin/snicctl", &status)? {
            said if said.contains(&endpoint) => Ok(said),
            said => bail!("nobody leads: {said}"),
        };
        replica.until(leads).map(drop)
    })?;
    Ok(true)
}

/// Ports that nobody uses now: of etcd's clients, of its members, and of the replica.
fn free_ports() -> anyhow::Result<[u16; 3]> {
    let listeners = [(); 3].map(|()| TcpListener::bind(("127.0.0.1", 0)));
    let mut ports = [0; 3];
    // All are bound before the first one is given up, so no port comes twice.
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        let listener = listener.as_ref().ok().context("find a free port")?;
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

fn etcd(host: &UnpackedHost<'_>, [clients, members, _]: [u16; 3]) -> Command {
    let mut etcd = Command::new("etcd");
    let at = |port: u16| format!("http://127.0.0.1:{port}");
    etcd.current_dir(host.folder).args(["--name", "m0", "--data-dir", "etcd"]);
    for (option, port) in [
        ("--listen-client-urls", clients),
        ("--advertise-client-urls", clients),
        ("--listen-peer-urls", members),
        ("--initial-advertise-peer-urls", members),
    ] {
        etcd.args([option, &at(port)]);
    }
    etcd.args(["--initial-cluster", &format!("m0={}", at(members))]);
    etcd
}

fn settings([clients, _, replica]: [u16; 3]) -> String {
    format!(
        "listen = \"127.0.0.1:{replica}\"\naddress = \"https://localhost:{replica}\"\n\
         images = \"images\"\naudit_dir = \"audit\"\n\
         [tls]\nca = \"pki/ca.pem\"\ncertificate = \"pki/replica-r0.pem\"\n\
         key = \"pki/replica-r0.key\"\n\
         [etcd]\nendpoints = [\"http://127.0.0.1:{clients}\"]\n\
         [signatures]\nallow_unsigned = true\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_different_and_named_in_the_settings() {
        let ports = free_ports().expect("ports");
        assert!(ports[0] != ports[1] && ports[1] != ports[2] && ports[0] != ports[2], "{ports:?}");
        let settings = settings(ports);
        let settings: toml::Table = toml::from_str(&settings).expect("TOML");
        let etcd = settings["etcd"]["endpoints"][0].as_str().expect("a URL");
        assert!(etcd.ends_with(&format!(":{}", ports[0])), "{etcd}");
    }
}
