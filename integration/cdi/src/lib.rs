//! Bindings' virtual functions as devices of the Container Device Interface (CDI).
//!
//! ```text
//!  binding (UUID, functions, DAGs) ──► spec: snic.dev/vf, a device a function ──► /var/run/cdi/*.json
//!  host's /sys (VFIO group of a function) ──┘                                            │
//!                                             container runtime: --device snic.dev/vf=… ◄┘
//! ```
//!
//! Each binding has a separate file, removed with the binding. Files are replaced atomically, and
//! only when their content changes.

pub mod folder;
pub mod host;
pub mod settings;
pub mod signals;
pub mod spec;
pub mod sync;

pub use folder::{FileChange, FolderError, SpecFolder};
pub use host::Host;
pub use spec::{InvalidSpec, Spec, SpecDevice};

use snic_api::v1::VmBinding;

/// Kind of our devices: vendor and class.
pub const KIND: &str = "snic.dev/vf";

/// The UUID in a binding's name.
pub fn uuid_of(binding: &VmBinding) -> &str {
    binding.name.strip_prefix("vmBindings/").unwrap_or(&binding.name)
}

/// The fully qualified names of a binding's devices, in the order of its functions.
pub fn names(binding: &VmBinding) -> Vec<String> {
    let uuid = uuid_of(binding);
    (0..binding.functions.len()).map(|n| format!("{KIND}={uuid}-{n}")).collect()
}

/// The CDI spec of a binding: one device per function.
pub fn spec(binding: &VmBinding, host: &Host) -> Spec {
    let uuid = uuid_of(binding);
    let device = |(n, function)| SpecDevice {
        name: format!("{uuid}-{n}"),
        container_edits: host.edits(binding, function),
    };
    Spec::new(KIND, binding.functions.iter().enumerate().map(device).collect())
}
