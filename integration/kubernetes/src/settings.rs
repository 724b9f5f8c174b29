//! Settings: one TOML file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use snic_api::connect::Target;
use snic_domain::{DagId, TenantId};

use crate::daemon::TenantChains;
use crate::resource_name;
use crate::settings_file::{self, InvalidSettings, key};

/// The settings file, unless `--config` names another.
pub const DEFAULT_PATH: &str = "/etc/snic/device-plugin.toml";
/// Identity of the program, before the name of its host, unless the settings have another.
const PROGRAM: &str = "orchestrator/kubelet";
/// Most devices of a resource: one heartbeat names them all.
const DEVICES_MAX: u32 = 1_000;
/// Leases that the daemon accepts, in seconds.
const LEASE_SECONDS: std::ops::RangeInclusive<u64> = 5..=86_400;

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The daemon's address, and this program's identity there.
    pub daemon: Target,
    /// Name of the node; if empty, the environment variable `NODE_NAME`. Keeps the devices of two
    /// nodes apart.
    pub node: String,
    /// The kubelet's plugin folder, which contains `kubelet.sock`.
    pub kubelet_dir: PathBuf,
    /// The kubelet's pod-resources socket. Without it, unused devices are unbound only when their
    /// leases expire.
    pub pod_resources: PathBuf,
    /// Folder of CDI files, for container runtimes that support them. Without it, the kubelet passes
    /// environment variables and device nodes to the container.
    pub cdi_dir: Option<PathBuf>,
    /// The host's sysfs.
    pub sysfs: PathBuf,
    /// Time limit for binding a device; the kubelet waits.
    pub bind_seconds: u64,
    /// Interval of heartbeats to the daemon, and of polling the kubelet for allocated devices.
    pub heartbeat_seconds: u64,
    /// Lease of a binding: how long it outlives the plugin.
    pub lease_seconds: u64,
    /// Time for which an unused device stays bound: the kubelet's list may lack a pod that was just
    /// admitted.
    pub idle_seconds: u64,
    /// The resources.
    pub resources: Vec<ExtendedResource>,
}

/// An extended resource: a tenant's DAGs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtendedResource {
    /// Its name, such as `snic.dev/acme-web`.
    pub name: String,
    /// The id of the tenant.
    pub tenant: String,
    /// Existing DAGs; a device has one virtual function per DAG. Exclusive with `template`.
    #[serde(default)]
    pub dags: Vec<String>,
    /// Each device gets a private copy of this DAG.
    #[serde(default)]
    pub template: Option<String>,
    /// Number of devices on this node.
    pub devices: u32,
}

impl Default for Settings {
    fn default() -> Self {
        let plugins = Path::new("/var/lib/kubelet/device-plugins");
        Self {
            daemon: Target::default(),
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

/// Name of a socket that a kubelet connects to.
///
/// The kubelet's HTTP/2 library sends the socket's whole path as the authority of its requests, each `/` as `%2F`. Percent signs
/// are not valid in the name of a host, and the server's library refuses such a request before we see it. They are valid in
/// front of an `@`, where a user's name would be; so the name has one.
pub fn socket_name(name: &str) -> String {
    format!("{name}@snic.sock")
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    /// [`InvalidSettings`] that names the file.
    pub fn read(path: &Path) -> Result<Self, InvalidSettings> {
        let mut settings: Self = settings_file::read(path)?;
        if settings.node.is_empty() {
            settings.node = std::env::var("NODE_NAME").unwrap_or_default();
        }
        settings.daemon = settings.daemon.for_program_on(PROGRAM, &settings.node);
        settings.check()?;
        Ok(settings)
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`InvalidSettings`] with the key.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        if self.node.is_empty() {
            return Err(key(
                "node",
                "missing; set it to the name of the node, or set NODE_NAME in the environment",
            ));
        }
        if self.resources.is_empty() {
            return Err(key("resources", "at least one resource is required"));
        }
        if self.bind_seconds == 0 || self.heartbeat_seconds == 0 {
            return Err(key("bind_seconds, heartbeat_seconds", "must be at least 1"));
        }
        let (lease, beat) = (self.lease_seconds, self.heartbeat_seconds);
        if !LEASE_SECONDS.contains(&lease) || lease < beat.saturating_mul(2) {
            let rule = format!(
                "{lease} is out of range: 5 to 86400, and at least twice heartbeat_seconds ({beat}), \
                 so that one lost heartbeat does not end it"
            );
            return Err(key("lease_seconds", rule));
        }
        for (at, resource) in self.resources.iter().enumerate() {
            resource.check(at)?;
            let earlier = &self.resources[..at];
            if let Some(other) = earlier.iter().find(|other| other.socket() == resource.socket()) {
                let (name, other) = (&resource.name, &other.name);
                let rule = format!(
                    "{name:?} is a duplicate of {other:?} (names must differ in more than punctuation)"
                );
                return Err(key(format!("resources[{at}].name"), rule));
            }
        }
        Ok(())
    }

    /// Interval of heartbeats.
    pub const fn heartbeat(&self) -> Duration {
        Duration::from_secs(self.heartbeat_seconds)
    }
}

impl ExtendedResource {
    fn check(&self, at: usize) -> Result<(), InvalidSettings> {
        let key = |name: &str, rule: String| key(format!("resources[{at}].{name}"), rule);
        resource_name::check(&self.name).map_err(|error| key("name", error.to_string()))?;
        TenantId::new(&self.tenant).map_err(|error| key("tenant", error.to_string()))?;
        for dag in self.dags.iter().chain(&self.template) {
            DagId::new(dag).map_err(|error| key("dags", error.to_string()))?;
        }
        if self.dags.is_empty() == self.template.is_none() {
            return Err(key("dags", "specify either dags or template".into()));
        }
        if !(1..=DEVICES_MAX).contains(&self.devices) {
            return Err(key(
                "devices",
                format!("{} is out of range (1 to {DEVICES_MAX})", self.devices),
            ));
        }
        Ok(())
    }

    /// Chains that its devices' packets go through.
    pub fn chains(&self) -> TenantChains<'_> {
        let Self { tenant, dags, template, .. } = self;
        TenantChains { tenant, dags, template: template.as_deref() }
    }

    /// Name of the plugin's socket: the resource's name with punctuation replaced.
    pub fn socket(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        socket_name(&self.name.chars().map(plain).collect::<String>())
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
    #[case("node = \"n1\"", "node = \"n1\"\nlease_seconds = 15", "twice heartbeat_seconds")]
    #[case("\"acme\"", "\"Acme\"", "resources[0].tenant")]
    #[case("[\"web\"]", "[]", "resources[0].dags")]
    #[case("[\"web\"]", "[\"we b\"]", "resources[0].dags")]
    #[case("devices = 4", "devices = 4\ntemplate = \"web\"", "either")]
    #[case("devices = 4", "devices = 0", "resources[0].devices")]
    fn an_error_names_the_key(#[case] good: &str, #[case] bad: &str, #[case] said: &str) {
        assert!(read(GOOD).is_ok());
        let error = read(&GOOD.replace(good, bad)).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }

    #[test]
    fn each_node_calls_by_a_name_of_its_own_unless_the_settings_say_another() {
        let identity = |more: &str| read(&(GOOD.to_owned() + more)).expect("valid").daemon.identity;
        let own = Some("orchestrator/kubelet-n1".to_owned());
        assert_eq!(identity(""), own);
        assert_eq!(identity("[daemon]\nendpoint = \"unix:/x\""), own);
        let said = identity("[daemon]\nidentity = \"orchestrator/k\"");
        assert_eq!(said.as_deref(), Some("orchestrator/k"));
    }

    #[test]
    fn the_path_of_a_socket_is_a_valid_authority_as_the_kubelet_sends_it() {
        let socket = read(GOOD).expect("valid").resources[0].socket();
        for (name, is_valid) in [(&*socket, true), (&*socket.replace('@', "-"), false)] {
            let path = format!("/var/lib/kubelet/device-plugins/{name}");
            let sent = path.replace('/', "%2F").parse::<http::uri::Authority>();
            assert_eq!(sent.is_ok(), is_valid, "{path}");
        }
    }

    #[test]
    fn resources_must_not_share_a_name_or_a_socket() {
        let (head, resource) = GOOD.split_once('\n').expect("two parts");
        for other in
            [resource.to_owned(), resource.replace("snic.dev/acme-web", "snic-dev/acme.web")]
        {
            let error = read(&format!("{head}\n{resource}{other}")).expect_err("duplicate");
            assert!(error.to_string().contains("resources[1].name"), "{error}");
        }
        let missing = Settings::read(Path::new("/nonexistent/x.toml")).expect_err("missing");
        assert!(missing.to_string().contains("/nonexistent/x.toml"), "{missing}");
        assert_eq!(read(GOOD).expect("valid").resources[0].socket(), "snic-dev-acme-web@snic.sock");
    }
}
