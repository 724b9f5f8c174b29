//! Settings: one TOML file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use snic_api::connect::Target;
use snic_domain::{DagId, TenantId};

use crate::resource_name::{self, InvalidName};

/// Where the settings are, unless `--config` says otherwise.
pub const DEFAULT_PATH: &str = "/etc/snic/device-plugin.toml";
/// Most devices of a resource: a heartbeat names them all.
const DEVICES_MAX: u32 = 1_000;
/// A lease in seconds, as the daemon takes it.
const LEASE_SECONDS: std::ops::RangeInclusive<u64> = 5..=86_400;

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where the daemon is, and who we are there.
    pub daemon: Target,
    /// The name of the node; `NODE_NAME` of the environment where it is empty. It makes devices of
    /// two nodes differ.
    pub node: String,
    /// The kubelet's folder of plugins, with its `kubelet.sock`.
    pub kubelet_dir: PathBuf,
    /// The kubelet's socket that says what pods have; without it nothing is unbound but by leases.
    pub pod_resources: PathBuf,
    /// Folder of Container Device Interface files, for container runtimes that read them. Without
    /// it a container gets environment and device nodes through the kubelet.
    pub cdi_dir: Option<PathBuf>,
    /// Where the host's devices are described.
    pub sysfs: PathBuf,
    /// How long a device may take until it is bound; the kubelet waits.
    pub bind_seconds: u64,
    /// How often the daemon is told that the node is alive, and the kubelet asked what is in use.
    pub heartbeat_seconds: u64,
    /// How long bindings outlive the plugin.
    pub lease_seconds: u64,
    /// How long a device that no pod has stays bound: a pod that was just admitted is not in the
    /// kubelet's list yet.
    pub idle_seconds: u64,
    /// The resources.
    pub resources: Vec<Resource>,
}

/// An extended resource: a tenant's DAGs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Its name, such as `snic.dev/acme-web`.
    pub name: String,
    /// The id of the tenant.
    pub tenant: String,
    /// DAGs that exist; a device has a virtual function for each. Or, instead, a template.
    #[serde(default)]
    pub dags: Vec<String>,
    /// A DAG that each device gets one of its own like.
    #[serde(default)]
    pub template: Option<String>,
    /// How many devices there are on this node.
    pub devices: u32,
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSettings {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not what it should be.
    #[error("{path}: {message}")]
    Parse {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A name that Kubernetes refuses.
    #[error("resources[{at}].name: {source}")]
    Name {
        /// Which resource.
        at: usize,
        /// Why.
        #[source]
        source: InvalidName,
    },
    /// A key whose value does not do.
    #[error("{key}: {rule}")]
    Key {
        /// Which.
        key: String,
        /// What it should be.
        rule: String,
    },
}

impl Default for Settings {
    fn default() -> Self {
        let plugins = Path::new("/var/lib/kubelet/device-plugins");
        Self {
            daemon: Target { identity: Some("orchestrator/kubelet".into()), ..Target::default() },
            node: String::new(),
            kubelet_dir: plugins.into(),
            pod_resources: "/var/lib/kubelet/pod-resources/kubelet.sock".into(),
            cdi_dir: None,
            sysfs: "/sys".into(),
            bind_seconds: 20,
            heartbeat_seconds: 10,
            lease_seconds: 120,
            idle_seconds: 30,
            resources: Vec::new(),
        }
    }
}

fn key(key: impl Into<String>, rule: impl Into<String>) -> InvalidSettings {
    InvalidSettings::Key { key: key.into(), rule: rule.into() }
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    /// [`InvalidSettings`] that names the file.
    pub fn read(path: &Path) -> Result<Self, InvalidSettings> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| InvalidSettings::Read { path: path.to_owned(), source })?;
        let mut settings: Self = toml::from_str(&text).map_err(|error| InvalidSettings::Parse {
            path: path.to_owned(),
            message: error.message().to_owned(),
        })?;
        if settings.node.is_empty() {
            settings.node = std::env::var("NODE_NAME").unwrap_or_default();
        }
        settings.check()?;
        Ok(settings)
    }

    /// Checks what can be wrong in a file that is read.
    ///
    /// # Errors
    /// [`InvalidSettings`] with the key.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        if self.node.is_empty() {
            return Err(key("node", "the name of the node; or set NODE_NAME in the environment"));
        }
        if self.resources.is_empty() {
            return Err(key("resources", "at least one is needed"));
        }
        if self.bind_seconds == 0 || self.heartbeat_seconds == 0 {
            return Err(key("bind_seconds, heartbeat_seconds", "at least 1"));
        }
        let (lease, beat) = (self.lease_seconds, self.heartbeat_seconds);
        if !LEASE_SECONDS.contains(&lease) || lease < beat.saturating_mul(2) {
            let rule = "5 to 86400, and at least two heartbeats: one may be lost";
            return Err(key("lease_seconds", rule));
        }
        for (at, resource) in self.resources.iter().enumerate() {
            resource.check(at)?;
            if self.resources[..at].iter().any(|other| other.name == resource.name) {
                return Err(key(format!("resources[{at}].name"), "it is there twice"));
            }
        }
        Ok(())
    }

    /// How often to beat.
    pub const fn heartbeat(&self) -> Duration {
        Duration::from_secs(self.heartbeat_seconds)
    }
}

impl Resource {
    fn check(&self, at: usize) -> Result<(), InvalidSettings> {
        let key = |name: &str, rule: String| key(format!("resources[{at}].{name}"), rule);
        resource_name::check(&self.name).map_err(|source| InvalidSettings::Name { at, source })?;
        TenantId::new(&self.tenant).map_err(|error| key("tenant", error.to_string()))?;
        for dag in self.dags.iter().chain(&self.template) {
            DagId::new(dag).map_err(|error| key("dags", error.to_string()))?;
        }
        if self.dags.is_empty() == self.template.is_none() {
            return Err(key("dags", "either dags or a template".into()));
        }
        if !(1..=DEVICES_MAX).contains(&self.devices) {
            return Err(key("devices", format!("1 to {DEVICES_MAX}")));
        }
        Ok(())
    }

    /// The name of the socket: nothing of the resource's name but what file names have.
    pub fn socket(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        format!("snic-{}.sock", self.name.chars().map(plain).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const GOOD: &str = "node = \"n1\"\n[[resources]]\nname = \"snic.dev/acme-web\"\n\
                        tenant = \"acme\"\ndags = [\"web\"]\ndevices = 4\n";

    fn read(text: &str) -> Result<Settings, InvalidSettings> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("device-plugin.toml");
        std::fs::write(&file, text).expect("a file");
        Settings::read(&file)
    }

    #[rstest]
    #[case("snic.dev/acme-web", "web", "resources[0].name")]
    #[case("node = \"n1\"", "", "node")]
    #[case("node = \"n1\"", "node = \"n1\"\ncolour = 1", "colour")]
    #[case("node = \"n1\"", "node = \"n1\"\nheartbeat_seconds = 0", "heartbeat_seconds")]
    #[case("node = \"n1\"", "node = \"n1\"\nlease_seconds = 4", "lease_seconds")]
    #[case("node = \"n1\"", "node = \"n1\"\nlease_seconds = 15", "two heartbeats")]
    #[case("\"acme\"", "\"Acme\"", "resources[0].tenant")]
    #[case("[\"web\"]", "[]", "resources[0].dags")]
    #[case("[\"web\"]", "[\"we b\"]", "resources[0].dags")]
    #[case("devices = 4", "devices = 4\ntemplate = \"web\"", "either")]
    #[case("devices = 4", "devices = 0", "resources[0].devices")]
    fn what_does_not_do_is_named(#[case] good: &str, #[case] bad: &str, #[case] said: &str) {
        assert!(read(GOOD).is_ok());
        let error = read(&GOOD.replace(good, bad)).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }

    #[test]
    fn a_resource_is_there_once() {
        let (head, resource) = GOOD.split_once('\n').expect("two parts");
        let error = read(&format!("{head}\n{resource}{resource}")).expect_err("twice");
        assert!(error.to_string().contains("resources[1].name"), "{error}");
        let missing = Settings::read(Path::new("/nonexistent/x.toml")).expect_err("missing");
        assert!(missing.to_string().contains("/nonexistent/x.toml"), "{missing}");
        assert_eq!(read(GOOD).expect("valid").resources[0].socket(), "snic-snic-dev-acme-web.sock");
    }
}
