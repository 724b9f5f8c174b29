//! A CDI specification, and the rules of the published schema and text.

use serde::{Deserialize, Serialize};
use snic_api::text::is_hidden;

/// The format version of our files: the first in which a device name may begin with a digit, as UUIDs
/// do. No later feature is used, so older runtimes can read the files.
pub const VERSION: &str = "0.5.0";
/// Longest vendor, in characters: a DNS subdomain.
const VENDOR_CHARS_MAX: usize = 253;
/// Longest class, in characters.
const CLASS_CHARS_MAX: usize = 63;

/// Points in a container's life at which a runtime runs hooks.
pub const HOOK_NAMES: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// A specification: how a runtime edits a container that requests one of the devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// Version of the format.
    pub cdi_version: String,
    /// Vendor and class, such as `snic.dev/vf`.
    pub kind: String,
    /// The devices; at least one.
    pub devices: Vec<SpecDevice>,
}

/// A device that a container may request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SpecDevice {
    /// Unique within the specification.
    pub name: String,
    /// Edits applied to the container.
    pub container_edits: Edits,
}

/// Edits to a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Edits {
    /// Environment, as `NAME=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Programs that the runtime runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
}

/// A program of the host that the runtime runs at a point in the container's life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hook {
    /// The point, as the runtime's specification names it: one of [`HOOK_NAMES`].
    pub hook_name: String,
    /// Path of the program on the host.
    pub path: String,
    /// Its arguments; the first is its own name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

/// A device node of the host, made available in the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceNode {
    /// Its path, the same in the container and on the host.
    pub path: String,
    /// Permissions: any of `r`, `w`, `m`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub permissions: String,
}

/// A specification that runtimes would reject.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSpec {
    /// A version other than ours.
    #[error("unsupported cdiVersion {0:?} (supported: {VERSION})")]
    Version(String),
    /// A kind that is not of the form `vendor/class`.
    #[error(
        "invalid kind {0:?}: expected vendor/class; vendor is a DNS subdomain of at most \
         {VENDOR_CHARS_MAX} characters; class has at most {CLASS_CHARS_MAX} letters, digits, '-', \
         '_' and '.', starts with a letter and ends with a letter or digit"
    )]
    Kind(String),
    #[error("devices is empty; at least one device is required")]
    NoDevice,
    /// A malformed device name.
    #[error(
        "invalid device name {0:?}: expected letters, digits, '-', '_', '.' and ':', with a letter \
         or digit first and last"
    )]
    DeviceName(String),
    /// Two devices of one name.
    #[error("duplicate device name {0:?}")]
    Duplicate(String),
    /// A device without effect.
    #[error("device {0:?}: containerEdits is empty; at least one edit is required")]
    NoEdit(String),
    /// Not `NAME=value`, or with characters that a terminal obeys: people read these files, and containers their environment.
    #[error("device {device:?}: env {text:?} is not NAME=value without control characters")]
    Env { device: String, text: String },
    /// An invalid device node.
    #[error(
        "device {device:?}: invalid node {path:?}: expected an absolute path, and permissions made \
         of r, w and m"
    )]
    Node {
        device: String,
        /// Path of the node.
        path: String,
    },
    /// An invalid hook.
    #[error(
        "device {device:?}: invalid hook {path:?} at {point:?}: expected an absolute path, a point \
         such as createRuntime, and arguments without control characters"
    )]
    Hook {
        device: String,
        /// Path of the program.
        path: String,
        /// Point at which it would run.
        point: String,
    },
}

fn is_vendor(text: &str) -> bool {
    let label = |label: &str| {
        label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= VENDOR_CHARS_MAX && text.split('.').all(label)
}

fn is_class(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
    let (first, last) = (bytes.first(), bytes.last());
    bytes.len() <= CLASS_CHARS_MAX
        && first.is_some_and(u8::is_ascii_alphabetic)
        && last.is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(inner)
}

fn is_device_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:".contains(b);
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(inner)
}

fn is_env(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| !name.is_empty()) && !text.contains(is_hidden)
}

impl DeviceNode {
    fn is_valid(&self) -> bool {
        let bare = !self.path.contains(is_hidden) && !self.path.split('/').any(|part| part == "..");
        self.path.len() > 1
            && self.path.starts_with('/')
            && bare
            && self.permissions.bytes().all(|b| b"rwm".contains(&b))
    }
}

impl Hook {
    fn is_valid(&self) -> bool {
        let program = self.path.strip_prefix('/').filter(|rest| !rest.is_empty());
        let mut texts = self.args.iter().chain([&self.path]);
        HOOK_NAMES.contains(&&*self.hook_name)
            && program.is_some_and(|rest| !rest.split('/').any(|part| part == ".."))
            && !texts.any(|text| text.contains(is_hidden))
    }
}

impl Spec {
    /// With these devices, in our format version.
    pub fn new(kind: &str, devices: Vec<SpecDevice>) -> Self {
        Self { cdi_version: VERSION.into(), kind: kind.into(), devices }
    }

    /// Checks the rules of the schema and of the specification's text.
    ///
    /// # Errors
    /// [`InvalidSpec`] with the first rule that is broken.
    pub fn check(&self) -> Result<(), InvalidSpec> {
        if self.cdi_version != VERSION {
            return Err(InvalidSpec::Version(self.cdi_version.clone()));
        }
        let parts = self.kind.split_once('/');
        if !parts.is_some_and(|(vendor, class)| is_vendor(vendor) && is_class(class)) {
            return Err(InvalidSpec::Kind(self.kind.clone()));
        }
        if self.devices.is_empty() {
            return Err(InvalidSpec::NoDevice);
        }
        for (at, device) in self.devices.iter().enumerate() {
            device.check()?;
            if self.devices[..at].iter().any(|other| other.name == device.name) {
                return Err(InvalidSpec::Duplicate(device.name.clone()));
            }
        }
        Ok(())
    }

    /// The content of a file.
    ///
    /// # Errors
    /// [`InvalidSpec`], so that a file that runtimes would reject is never written.
    pub fn to_json(&self) -> Result<String, InvalidSpec> {
        self.check()?;
        let text = serde_json::to_string_pretty(self);
        Ok(text.expect("a struct of texts and lists is JSON") + "\n")
    }
}

impl SpecDevice {
    fn check(&self) -> Result<(), InvalidSpec> {
        let device = || self.name.clone();
        if !is_device_name(&self.name) {
            return Err(InvalidSpec::DeviceName(device()));
        }
        let edits = &self.container_edits;
        if *edits == Edits::default() {
            return Err(InvalidSpec::NoEdit(device()));
        }
        if let Some(text) = edits.env.iter().find(|text| !is_env(text)) {
            return Err(InvalidSpec::Env { device: device(), text: text.clone() });
        }
        if let Some(node) = edits.device_nodes.iter().find(|node| !node.is_valid()) {
            return Err(InvalidSpec::Node { device: device(), path: node.path.clone() });
        }
        match edits.hooks.iter().find(|hook| !hook.is_valid()) {
            Some(hook) => Err(InvalidSpec::Hook {
                device: device(),
                path: hook.path.clone(),
                point: hook.hook_name.clone(),
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn device(name: &str) -> SpecDevice {
        let env = vec!["A=b".to_owned()];
        SpecDevice { name: name.into(), container_edits: Edits { env, ..Edits::default() } }
    }

    fn valid() -> Spec {
        Spec::new(crate::KIND, vec![device("123e4567-e89b-42d3-a456-426614174000-0")])
    }

    #[rstest]
    #[case(|spec: &mut Spec| spec.cdi_version = "9.0.0".into(), "cdiVersion")]
    #[case(|spec: &mut Spec| spec.kind = "vf".into(), "kind")]
    #[case(|spec: &mut Spec| spec.kind = "snic.dev/vf/0".into(), "kind")]
    #[case(|spec: &mut Spec| spec.kind = "-snic.dev/vf".into(), "kind")]
    #[case(|spec: &mut Spec| spec.kind = "Snic.dev/vf".into(), "kind")]
    #[case(|spec: &mut Spec| spec.kind = "snic..dev/vf".into(), "kind")]
    #[case(|spec: &mut Spec| spec.kind = "snic.dev/vf-".into(), "kind")]
    #[case(|spec: &mut Spec| spec.kind = format!("snic.dev/{}", "v".repeat(64)), "kind")]
    #[case(|spec: &mut Spec| spec.kind = format!("{}/vf", "v".repeat(254)), "kind")]
    #[case(|spec: &mut Spec| spec.devices.clear(), "at least one")]
    #[case(|spec: &mut Spec| spec.devices.push(device("a=b")), "a=b")]
    #[case(|spec: &mut Spec| spec.devices.push(device("")), "first and last")]
    #[case(|spec: &mut Spec| spec.devices.push(device("a.")), "first and last")]
    #[case(|spec: &mut Spec| spec.devices.push(spec.devices[0].clone()), "duplicate")]
    #[case(|spec: &mut Spec| spec.devices[0].container_edits.env.clear(), "empty")]
    #[case(|spec: &mut Spec| spec.devices[0].container_edits.env.push("A".into()), "NAME=value")]
    #[case(|spec: &mut Spec| spec.devices[0].container_edits.env.push("=b".into()), "NAME=value")]
    #[case(|spec: &mut Spec| spec.devices[0].container_edits.env.push("A=\u{1b}[2J".into()), "control")]
    #[case(|spec: &mut Spec| spec.devices[0].container_edits.env.push("A=\u{9b}31m".into()), "control")]
    #[case(|spec: &mut Spec| spec.devices[0].container_edits.env.push("A=b\nLD_PRELOAD=c".into()), "control")]
    #[case(|spec: &mut Spec| spec.devices[0].container_edits.env.push("A=\u{202e}b".into()), "control")]
    #[case(|spec: &mut Spec| node(spec, "/dev/\u{1b}c", ""), "absolute")]
    #[case(|spec: &mut Spec| node(spec, "dev/vfio/1", ""), "absolute")]
    #[case(|spec: &mut Spec| node(spec, "/dev/../etc", ""), "absolute")]
    #[case(|spec: &mut Spec| node(spec, "/dev/vfio/1", "rx"), "r, w and m")]
    #[case(|spec: &mut Spec| hook(spec, "whenever", "/usr/bin/true", ""), "whenever")]
    #[case(|spec: &mut Spec| hook(spec, "createRuntime", "bin/true", ""), "absolute")]
    #[case(|spec: &mut Spec| hook(spec, "createRuntime", "/", ""), "absolute")]
    #[case(|spec: &mut Spec| hook(spec, "createRuntime", "/usr/../tmp/true", ""), "absolute")]
    #[case(|spec: &mut Spec| hook(spec, "createRuntime", "/usr/bin/true", "a\nb"), "control")]
    fn a_spec_that_runtimes_reject_is_not_written(
        #[case] damage: fn(&mut Spec),
        #[case] said: &str,
    ) {
        assert_eq!(valid().check(), Ok(()));
        let mut spec = valid();
        damage(&mut spec);
        let error = spec.to_json().expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }

    fn hook(spec: &mut Spec, point: &str, path: &str, argument: &str) {
        let hook = Hook { hook_name: point.into(), path: path.into(), args: vec![argument.into()] };
        spec.devices[0].container_edits.hooks.push(hook);
    }

    fn node(spec: &mut Spec, path: &str, permissions: &str) {
        let node = DeviceNode { path: path.into(), permissions: permissions.into() };
        spec.devices[0].container_edits.device_nodes.push(node);
    }

    #[test]
    fn field_names_are_those_of_the_schema() {
        let mut spec = valid();
        node(&mut spec, "/dev/vfio/7", "rw");
        hook(&mut spec, "createRuntime", "/usr/bin/snic-dra", "snic-dra");
        let text = spec.to_json().expect("valid");
        let mut json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        json.sort_all_objects();
        let keys = |value: &serde_json::Value| {
            let object = value.as_object().expect("an object");
            object.keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(keys(&json), ["cdiVersion", "devices", "kind"]);
        let device = &json["devices"][0];
        assert_eq!(keys(device), ["containerEdits", "name"]);
        assert_eq!(keys(&device["containerEdits"]), ["deviceNodes", "env", "hooks"]);
        assert_eq!(keys(&device["containerEdits"]["hooks"][0]), ["args", "hookName", "path"]);
        assert_eq!(device["containerEdits"]["deviceNodes"][0]["path"], "/dev/vfio/7");
        assert_eq!(serde_json::from_str::<Spec>(&text).expect("own output"), spec);
    }
}
