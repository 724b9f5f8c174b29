//! Settings of the driver: one TOML file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use snic_api::connect::Target;
use snic_domain::TenantId;

use crate::settings_file::{self, InvalidSettings, key};

/// The settings file, unless `--config` names another.
pub const DEFAULT_PATH: &str = "/etc/snic/dra.toml";
/// Identity for bindings, before the name of the node, unless the settings have another.
const DAEMON_IDENTITY: &str = "orchestrator/kubernetes";
/// The same for reading cards and network tasks.
const INVENTORY_IDENTITY: &str = "operator/kubernetes";
/// Most virtual functions of a card, as SR-IOV has them.
const FUNCTIONS_MAX: u32 = 256;
/// Longest name of a network interface, in bytes: Linux's `IFNAMSIZ` without the zero.
pub const INTERFACE_BYTES_MAX: usize = 15;

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DraSettings {
    /// The daemon's address, and this program's identity for bindings there.
    pub daemon: Target,
    /// The same with the identity that reads cards, bindings and network tasks, which only operators may, and that makes the DAGs that
    /// claims carry.
    pub inventory: Target,
    /// Name of the node; if empty, the environment variable `NODE_NAME`.
    pub node: String,
    /// Credentials for the API server. Without it, the service account of the pod that this program runs in.
    pub kubeconfig: Option<PathBuf>,
    /// The kubelet's folder of plugins, for the socket of the driver.
    pub plugins_dir: PathBuf,
    /// The folder in which the kubelet looks for plugins.
    pub registry_dir: PathBuf,
    /// Folder of CDI files, which the container runtime reads.
    pub cdi_dir: PathBuf,
    /// Folder in which the driver notes what it prepared.
    pub state_dir: PathBuf,
    /// The host's sysfs.
    pub sysfs: PathBuf,
    /// Path of this program on the host: the runtime calls it to move an interface into a pod.
    pub program: PathBuf,
    /// Whether pods are assigned to the node only when the card serves their claims (binding conditions).
    pub binding_conditions: bool,
    /// Time limit for binding a function; the pod waits.
    pub bind_seconds: u64,
    /// Interval of looking at cards and claims.
    pub interval_seconds: u64,
    /// Functions that the claims of a namespace may have together, where the namespace has no quota yet; without it half of this
    /// node's.
    pub functions_per_namespace: Option<u32>,
    /// Tenant of each namespace whose claims may have functions.
    pub namespaces: BTreeMap<String, String>,
    /// Cards whose functions pods may have.
    pub cards: Vec<OfferedCard>,
}

/// A card whose functions pods may have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedCard {
    /// The id of the card, as in the daemon's settings.
    pub id: String,
    /// Number of virtual functions that pods may have: as many as the card has, without those of other uses.
    pub functions: u32,
    /// Network interface of each function on the host, from function 0. Empty where functions are devices of VFIO.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// PCI address of the card, for the attribute with its PCIe root.
    #[serde(default)]
    pub pci_address: Option<String>,
    /// The tenant that alone may have its functions; without it, all may.
    #[serde(default)]
    pub tenant: Option<String>,
}

impl Default for DraSettings {
    fn default() -> Self {
        Self {
            daemon: Target::default(),
            inventory: Target::default(),
            node: String::new(),
            kubeconfig: None,
            plugins_dir: "/var/lib/kubelet/plugins".into(),
            registry_dir: "/var/lib/kubelet/plugins_registry".into(),
            cdi_dir: "/var/run/cdi".into(),
            state_dir: "/var/lib/snic-dra".into(),
            sysfs: "/sys".into(),
            program: "/usr/bin/snic-dra".into(),
            binding_conditions: true,
            bind_seconds: 20,
            interval_seconds: 2,
            functions_per_namespace: None,
            namespaces: BTreeMap::new(),
            cards: Vec::new(),
        }
    }
}

/// Whether Linux takes a text as the name of an interface, and no program takes it for an option or a path.
pub fn is_interface(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=INTERFACE_BYTES_MAX).contains(&name.len())
        && name.bytes().all(plain)
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

/// Whether a text is a DNS label, as names of namespaces, nodes' labels and devices are.
fn is_label(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl DraSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// [`InvalidSettings`] with the file or the key.
    pub fn read(path: &Path) -> Result<Self, InvalidSettings> {
        let mut settings: Self = settings_file::read(path)?;
        if settings.node.is_empty() {
            settings.node = std::env::var("NODE_NAME").unwrap_or_default();
        }
        settings.daemon = settings.daemon.for_program_on(DAEMON_IDENTITY, &settings.node);
        settings.inventory = settings.inventory.for_program_on(INVENTORY_IDENTITY, &settings.node);
        settings.check()?;
        Ok(settings)
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`InvalidSettings`] with the key.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        if self.node.is_empty() || !self.node.split('.').all(is_label) {
            let rule = format!(
                "{:?} is not the name of a node; set it, or NODE_NAME in the environment",
                self.node
            );
            return Err(key("node", rule));
        }
        if !(1..=600).contains(&self.bind_seconds) || !(1..=60).contains(&self.interval_seconds) {
            return Err(key("bind_seconds, interval_seconds", "1 to 600, and 1 to 60"));
        }
        if !self.program.is_absolute() {
            return Err(key("program", "an absolute path on the host is required"));
        }
        if self.functions_per_namespace == Some(0) {
            return Err(key("functions_per_namespace", "at least 1"));
        }
        for (namespace, tenant) in &self.namespaces {
            if !is_label(namespace) {
                return Err(key("namespaces", format!("{namespace:?} is not a namespace")));
            }
            TenantId::new(tenant)
                .map_err(|error| key(format!("namespaces.{namespace}"), error.to_string()))?;
        }
        if self.cards.is_empty() {
            return Err(key("cards", "at least one card is required"));
        }
        for (at, card) in self.cards.iter().enumerate() {
            card.check(&format!("cards[{at}]"))?;
            if self.cards[..at].iter().any(|other| other.id == card.id) {
                return Err(key(
                    format!("cards[{at}].id"),
                    format!("{:?} is a duplicate", card.id),
                ));
            }
        }
        Ok(())
    }

    /// Functions that the claims of a namespace may have together: half of the node's where nothing is said, so that one tenant
    /// never has all of a node.
    pub fn quota(&self) -> u32 {
        let all: u32 = self.cards.iter().map(|card| card.functions).sum();
        self.functions_per_namespace.unwrap_or_else(|| (all / 2).max(1))
    }

    /// The tenant that alone may have functions of a card.
    pub fn owner(&self, card: &str) -> Option<&str> {
        self.cards.iter().find(|known| known.id == card)?.tenant.as_deref()
    }

    /// Time limit for binding a function.
    pub const fn bind_within(&self) -> Duration {
        Duration::from_secs(self.bind_seconds)
    }

    /// The host's interface of a card's function: `None` where the card has none, as for devices of VFIO.
    pub fn interface(&self, card: &str, function: u32) -> Option<&str> {
        let card = self.cards.iter().find(|known| known.id == card)?;
        card.interfaces.get(usize::try_from(function).ok()?).map(String::as_str)
    }
}

impl OfferedCard {
    fn check(&self, place: &str) -> Result<(), InvalidSettings> {
        let key = |name: &str, rule: String| key(format!("{place}.{name}"), rule);
        if !is_label(&self.id) {
            let rule = format!(
                "{:?} cannot name a device of Kubernetes (expected at most 63 lower-case letters, \
                 digits and '-')",
                self.id
            );
            return Err(key("id", rule));
        }
        let functions = self.functions;
        if !(1..=FUNCTIONS_MAX).contains(&functions) {
            let rule = format!("{functions} is out of range (1 to {FUNCTIONS_MAX})");
            return Err(key("functions", rule));
        }
        if let Some(name) = self.interfaces.iter().find(|name| !is_interface(name)) {
            return Err(key("interfaces", format!("{name:?} is not the name of an interface")));
        }
        if let Some(tenant) = &self.tenant {
            TenantId::new(tenant).map_err(|error| key("tenant", error.to_string()))?;
        }
        let named = self.interfaces.len();
        if named != 0 && u32::try_from(named) != Ok(functions) {
            let rule = format!("{named} names for {functions} functions; name each, or none");
            return Err(key("interfaces", rule));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const GOOD: &str = "node = \"n1\"\n[namespaces]\nshop = \"acme\"\n[[cards]]\nid = \"card0\"\n\
                        functions = 2\ninterfaces = [\"vf0\", \"vf1\"]\n";

    fn read(text: &str) -> Result<DraSettings, InvalidSettings> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dra.toml");
        std::fs::write(&file, text).expect("a file");
        DraSettings::read(&file)
    }

    #[rstest]
    #[case("node = \"n1\"", "node = \"-n\"", "node")]
    #[case("node = \"n1\"", "node = \"n1\"\ncolour = 1", "colour")]
    #[case("node = \"n1\"", "node = \"n1\"\nbind_seconds = 0", "bind_seconds")]
    #[case("node = \"n1\"", "node = \"n1\"\nprogram = \"snic-dra\"", "program")]
    #[case("shop = \"acme\"", "Shop = \"acme\"", "namespaces")]
    #[case("shop = \"acme\"", "shop = \"Acme\"", "namespaces.shop")]
    #[case("\"card0\"", "\"card_0\"", "cards[0].id")]
    #[case("functions = 2", "functions = 0", "cards[0].functions")]
    #[case("functions = 2", "functions = 3", "cards[0].interfaces")]
    #[case("functions = 2", "functions = 2\ntenant = \"Acme\"", "cards[0].tenant")]
    #[case(
        "node = \"n1\"",
        "node = \"n1\"\nfunctions_per_namespace = 0",
        "functions_per_namespace"
    )]
    #[case("\"vf1\"", "\"-vf1\"", "cards[0].interfaces")]
    #[case("\"vf1\"", "\"a/b\"", "cards[0].interfaces")]
    fn an_error_names_the_key(#[case] good: &str, #[case] bad: &str, #[case] said: &str) {
        assert!(read(GOOD).is_ok());
        let error = read(&GOOD.replace(good, bad)).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }

    #[test]
    fn each_node_calls_by_a_name_of_its_own_unless_the_settings_say_another() {
        let own = read(GOOD).expect("valid");
        assert_eq!(own.daemon.identity.as_deref(), Some("orchestrator/kubernetes-n1"));
        assert_eq!(own.inventory.identity.as_deref(), Some("operator/kubernetes-n1"));
        let tables = "[daemon]\nendpoint = \"unix:/x\"\n[inventory]\nidentity = \"operator/o\"\n";
        let mixed = read(&(GOOD.to_owned() + tables)).expect("valid");
        assert_eq!(mixed.daemon.identity, own.daemon.identity);
        assert_eq!(mixed.inventory.identity.as_deref(), Some("operator/o"));
    }

    #[test]
    fn a_namespace_has_half_of_the_functions_unless_the_settings_say_another() {
        assert_eq!(read(GOOD).expect("valid").quota(), 1);
        let said = GOOD.replace("node = \"n1\"", "node = \"n1\"\nfunctions_per_namespace = 7");
        assert_eq!(read(&said).expect("valid").quota(), 7);
        let one = GOOD.replace("2\ninterfaces = [\"vf0\", \"vf1\"]", "1");
        assert_eq!(read(&one).expect("valid").quota(), 1, "never none");
    }

    #[test]
    fn a_function_has_the_interface_at_its_number() {
        let settings = read(GOOD).expect("valid");
        assert_eq!(settings.interface("card0", 1), Some("vf1"));
        assert_eq!(settings.interface("card0", 2), None);
        assert_eq!(settings.interface("card1", 0), None);
    }
}
