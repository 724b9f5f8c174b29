//! Bitstreams that are to be deleted: in no plan until then, and who still uses them.

use std::collections::BTreeSet;

use snic_domain::{BitstreamId, DagName};

use crate::dags::DagEntry;
use crate::operations::Removal;
use crate::state::Core;

/// Keeps bitstreams that are to be deleted out of new plans, and allows those again that are not.
pub(crate) fn withhold(core: &mut Core) {
    let removals = core.operations.removals();
    let ids: BTreeSet<BitstreamId> =
        removals.flat_map(|(_, removal)| removed_with(core, removal)).collect();
    core.registry.withhold(&ids);
}

/// The bitstreams that are deleted with a removal.
pub(crate) fn removed_with(core: &Core, removal: &Removal) -> Vec<BitstreamId> {
    match removal {
        Removal::Bitstream(id) => vec![id.clone()],
        Removal::Tenant(id) => core.registry.owned_by(id).1,
    }
}

/// The DAGs that keep something from being deleted: those in a bitstream, of other tenants where a tenant is
/// deleted with its own. Time O(DAGs).
pub(crate) fn users(core: &Core, removal: &Removal) -> Vec<DagName> {
    let images = removed_with(core, removal);
    let stays = |entry: &&DagEntry| match removal {
        Removal::Bitstream(_) => true,
        Removal::Tenant(id) => entry.name().tenant != *id,
    };
    let uses = |entry: &&DagEntry| {
        let mut placements = entry.placements();
        placements.any(|p| p.mapping.instances().any(|i| images.contains(&i.bitstream)))
    };
    core.dags.iter().filter(stays).filter(uses).map(|entry| entry.name().clone()).collect()
}
