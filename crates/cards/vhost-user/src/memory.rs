//! Memory of a guest, as the daemon maps it.

use std::sync::Arc;

use vm_memory::GuestMemoryMmap;

/// The guest's memory.
pub(crate) type Memory = Arc<GuestMemoryMmap>;
