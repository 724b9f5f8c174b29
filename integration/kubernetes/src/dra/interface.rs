//! A function's network interface on its way into a pod and back.
//!
//! ```text
//!  host ──attach (the runtime's hook, before the container starts)──► pod's network namespace
//!   ▲                                                                   │ kept by /run/netns/snic-UUID
//!   └────────────── detach (NodeUnprepareResources) ────────────────────┘
//! ```
//!
//! A namespace is kept until its interface is back. Without that, the kernel would destroy the interface with the last
//! process of the pod, and the card's port with it. iproute2 does the work: it is on each host, and needs no code that
//! enters namespaces here.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// Folder of named network namespaces, as iproute2 has it.
const NAMESPACES: &str = "/run/netns";
/// Where programs are: the runtime starts hooks without an environment.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Words of iproute2 about a TAP device.
const TAP: &str = "tun type tap";

/// An interface of the host that a pod has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodInterface {
    /// UUID of the binding.
    pub uuid: String,
    /// Its name on the host.
    pub host: String,
    /// Its name in the pod.
    pub name: String,
    /// MAC address of the function.
    pub mac: String,
    /// Addresses with the lengths of their prefixes.
    pub addresses: Vec<String>,
    /// Whether it is a TAP device, which ends with the process of its card.
    #[serde(default)]
    pub is_tap: bool,
}

/// Why an interface was not moved.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// iproute2 is missing.
    #[error("ip cannot be started (package iproute2): {0}")]
    Start(#[source] std::io::Error),
    /// iproute2 refused a step.
    #[error("ip {command}: {message}")]
    Step { command: String, message: String },
    /// The pod has the network of the host.
    #[error(
        "the pod has the host's network: an interface cannot be moved there; unset hostNetwork"
    )]
    HostNetwork,
    /// The interface is nowhere.
    #[error(
        "interface {host} is neither on the host nor in the pod's network {namespace}: its card is gone, or the pod \
         has changed its name, alias and address; it is kept until {host} is back"
    )]
    Lost { host: String, namespace: String },
    /// The container's process is gone.
    #[error("process {process} of the container: {source}")]
    Process {
        process: u32,
        #[source]
        source: std::io::Error,
    },
}

/// Runs a command of iproute2; returns what it printed.
fn ip(words: &[&str]) -> Result<String, InterfaceError> {
    let mut command = Command::new("ip");
    command.args(words).env_clear().env("PATH", PATH).stdin(Stdio::null());
    let output = command.output().map_err(InterfaceError::Start)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(InterfaceError::Step { command: words.join(" "), message })
}

/// Whether an interface of the host is a TAP device.
pub fn is_tap(host: &str) -> bool {
    let shown = ip(&["-details", "-oneline", "link", "show", "dev", host]);
    shown.is_ok_and(|shown| shown.contains(TAP))
}

/// Identity of a network namespace.
fn namespace_id(path: &Path) -> std::io::Result<(u64, u64)> {
    let data = std::fs::metadata(path)?;
    Ok((data.dev(), data.ino()))
}

impl PodInterface {
    fn namespace(&self) -> String {
        format!("snic-{}", self.uuid)
    }

    fn kept(&self) -> PathBuf {
        Path::new(NAMESPACES).join(self.namespace())
    }

    /// Moves the interface into the network of a container's process, with its name and addresses. Where it is there
    /// already, because the container is started again, nothing changes.
    ///
    /// # Errors
    /// [`InterfaceError`]; the interface is on the host then.
    pub fn attach(&self, process: u32) -> Result<(), InterfaceError> {
        let gone = |source| InterfaceError::Process { process, source };
        let network = PathBuf::from(format!("/proc/{process}/ns/net"));
        let pod = namespace_id(&network).map_err(gone)?;
        if namespace_id(Path::new("/proc/self/ns/net")).map_err(gone)? == pod {
            return Err(InterfaceError::HostNetwork);
        }
        let is_kept = namespace_id(&self.kept()).is_ok_and(|kept| kept == pod);
        if is_kept && self.name_inside()?.is_some() {
            return Ok(());
        }
        // The pod has another network than before, as when its sandbox ended and was made again.
        self.detach()?;
        ip(&["netns", "attach", &self.namespace(), &process.to_string()])?;
        self.move_in().inspect_err(|_| {
            // Already failing; what remains is what the next attempt or detach finds.
            let _ = self.detach();
        })
    }

    /// The name that the interface has in the pod's network, if it is there. A pod with the right to rename interfaces may have
    /// changed it, and may have another one of the name that it was given; it is known by its alias, or by its address.
    fn name_inside(&self) -> Result<Option<String>, InterfaceError> {
        let namespace = self.namespace();
        let links = ip(&["-n", &namespace, "-oneline", "link", "show"])?;
        let is_it = |line: &&str| {
            let words: Vec<&str> = line.split(|c: char| c.is_whitespace() || c == '\\').collect();
            let has = |key: &str, value: &str| words.windows(2).any(|pair| pair == [key, value]);
            has("alias", &namespace) || has("link/ether", &self.mac)
        };
        let name = |line: &str| {
            let name = line.split_whitespace().nth(1)?.trim_end_matches(':');
            Some(name.split('@').next().unwrap_or(name).to_owned())
        };
        Ok(links.lines().find(is_it).and_then(name))
    }

    fn move_in(&self) -> Result<(), InterfaceError> {
        let namespace = &*self.namespace();
        ip(&["link", "set", "dev", &self.host, "down"])?;
        ip(&["link", "set", "dev", &self.host, "address", &self.mac])?;
        ip(&["link", "set", "dev", &self.host, "alias", namespace])?;
        ip(&["link", "set", "dev", &self.host, "netns", namespace, "name", &self.name])?;
        for address in &self.addresses {
            ip(&["-n", namespace, "address", "add", address, "dev", &self.name])?;
        }
        ip(&["-n", namespace, "link", "set", "dev", &self.name, "up"]).map(drop)
    }

    /// Moves the interface back to the host, and lets go of the pod's network. Where it is on the host, nothing changes.
    ///
    /// # Errors
    /// [`InterfaceError`]; the pod's network is kept then, and with it the interface.
    pub fn detach(&self) -> Result<(), InterfaceError> {
        let namespace = &*self.namespace();
        if !self.kept().exists() {
            return Ok(());
        }
        if let Some(name) = self.name_inside()? {
            ip(&["-n", namespace, "link", "set", "dev", &name, "down"])?;
            let home = ["link", "set", "dev", &name, "netns", "1", "name", &self.host];
            ip(&[&["-n", namespace], &home[..]].concat())?;
        } else if ip(&["link", "show", "dev", &self.host]).is_err() && !self.ended_with_card()? {
            // With its network, the kernel would destroy an interface that is only not recognised.
            return Err(InterfaceError::Lost {
                host: self.host.clone(),
                namespace: namespace.to_owned(),
            });
        }
        ip(&["netns", "delete", namespace]).map(drop)
    }

    /// Whether it went with the process of its card: a TAP device stays one whatever a pod renames, and the pod's network
    /// has none.
    fn ended_with_card(&self) -> Result<bool, InterfaceError> {
        if !self.is_tap {
            return Ok(false);
        }
        let taps = ip(&["-n", &self.namespace(), "-details", "-oneline", "link", "show"])?;
        Ok(!taps.lines().any(|line| line.contains(TAP)))
    }

    /// Arguments of this program that attach it, for the runtime's hook.
    pub fn hook_arguments(&self) -> Vec<String> {
        let fixed = ["snic-dra", "attach", &self.uuid, &self.host, &self.name, &self.mac];
        fixed
            .into_iter()
            .chain(self.addresses.iter().map(String::as_str))
            .map(str::to_owned)
            .collect()
    }

    /// Reads these arguments, without the first two.
    pub fn from_arguments(words: &[&str]) -> Option<Self> {
        let [uuid, host, name, mac, addresses @ ..] = words else { return None };
        let text = |word: &&str| (*word).to_owned();
        let addresses = addresses.iter().map(text).collect();
        Some(Self {
            uuid: text(uuid),
            host: text(host),
            name: text(name),
            mac: text(mac),
            addresses,
            is_tap: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hook_reads_what_the_driver_writes() {
        let interface = PodInterface {
            uuid: "123e4567-e89b-42d3-a456-426614174000".into(),
            host: "vf0".into(),
            name: "net1".into(),
            mac: "02:1f:c4:77:00:01".into(),
            addresses: vec!["10.77.0.1/24".into(), "fd00::1/64".into()],
            is_tap: false,
        };
        let words = interface.hook_arguments();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(words[..2], ["snic-dra", "attach"]);
        assert_eq!(PodInterface::from_arguments(&words[2..]), Some(interface));
        assert_eq!(PodInterface::from_arguments(&["a", "b"]), None);
    }
}
