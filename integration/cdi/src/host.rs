//! A virtual function as the host sees it: the device nodes through which a program reaches it.
//!
//! A function bound to vfio-pci is reached through the node of its IOMMU group. A function without a
//! device (a simulated card) or with another driver contributes only environment variables.

use std::path::{Path, PathBuf};

use snic_api::v1::{BoundFunction, VmBinding};

use crate::spec::{DeviceNode, Edits};

/// The driver whose functions have device nodes.
const VFIO: &str = "vfio-pci";

/// A host, identified by its sysfs.
#[derive(Debug, Clone)]
pub struct Host {
    sysfs: PathBuf,
}

impl Host {
    /// With this sysfs: `/sys`, except in tests.
    pub fn new(sysfs: &Path) -> Self {
        Self { sysfs: sysfs.to_owned() }
    }

    /// The last component of a symlink's target in a function's folder.
    fn link(&self, pci_address: &str, name: &str) -> Option<String> {
        let folder = self.sysfs.join("bus/pci/devices").join(pci_address);
        let target = std::fs::read_link(folder.join(name)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// The device nodes of a function.
    pub fn nodes(&self, pci_address: &str) -> Vec<DeviceNode> {
        // The address becomes part of a path, so nothing but an address is accepted.
        let is_address = pci_address.bytes().all(|b| b.is_ascii_hexdigit() || b":.".contains(&b));
        if !is_address || self.link(pci_address, "driver").as_deref() != Some(VFIO) {
            return Vec::new();
        }
        let group = self.link(pci_address, "iommu_group");
        let Some(group) = group.filter(|group| group.bytes().all(|b| b.is_ascii_digit())) else {
            return Vec::new();
        };
        let node =
            |name: &str| DeviceNode { path: format!("/dev/vfio/{name}"), permissions: "rw".into() };
        vec![node("vfio"), node(&group)]
    }

    /// Edits that a function makes to a container.
    pub fn edits(&self, binding: &VmBinding, function: &BoundFunction) -> Edits {
        let (name, value) = env(binding, function);
        Edits {
            env: vec![format!("{name}={value}")],
            device_nodes: self.nodes(&function.pci_address),
            hooks: Vec::new(),
        }
    }
}

/// The environment variable of a function, name and value. The name is `SNIC_VF_` and the PCI
/// address, so that several functions do not collide; the value is a comma-separated list.
pub fn env(binding: &VmBinding, function: &BoundFunction) -> (String, String) {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let address: String = function.pci_address.chars().map(plain).collect();
    let dag = binding.dags.iter().find(|dag| dag.name == function.dag);
    let value = format!(
        "pci={},mac={},card={},vf={},dag={},uid={}",
        function.pci_address,
        function.mac_address,
        function.card,
        function.virtual_function,
        function.dag,
        dag.map_or(0, |dag| dag.uid),
    );
    (format!("SNIC_VF_{address}"), value)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_vfio_function_has_the_nodes_of_its_iommu_group() {
        let folder = tempfile::tempdir().expect("a folder");
        let host = Host::new(folder.path());
        let device = |address: &str, driver: &str, group: &str| {
            let device = folder.path().join("bus/pci/devices").join(address);
            std::fs::create_dir_all(&device).expect("a folder");
            symlink(format!("../../drivers/{driver}"), device.join("driver")).expect("a link");
            symlink(format!("../../iommu_groups/{group}"), device.join("iommu_group"))
                .expect("a link");
        };
        device("0000:3b:00.1", VFIO, "42");
        device("0000:3b:00.2", "mlx5_core", "43");
        device("0000:3b:00.3", VFIO, "odd");
        let paths = |address: &str| {
            let nodes = host.nodes(address).into_iter();
            nodes.map(|node| node.path).collect::<Vec<_>>()
        };
        assert_eq!(paths("0000:3b:00.1"), ["/dev/vfio/vfio", "/dev/vfio/42"]);
        for none in ["0000:3b:00.2", "0000:3b:00.3", "0000:3b:00.4", "../0000:3b:00.1", ""] {
            assert_eq!(paths(none), [""; 0], "{none}");
        }
    }
}
