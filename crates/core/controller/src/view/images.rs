//! Users of bitstreams: of those that are to be deleted, which are in no plan until then, and of those that
//! they may not pass.

use std::collections::BTreeSet;

use snic_domain::{Bitstream, BitstreamId, DagName};

use crate::state::Core;
use crate::state::dags::DagEntry;
use crate::state::operations::Removal;
use crate::store::records::Placement;

/// Keeps bitstreams that are to be deleted, or that no key signed that counts, out of new plans, and allows those again that
/// are neither.
pub(crate) fn withhold(core: &mut Core) {
    let ids = to_withhold(core);
    core.registry.withhold(&ids);
}

fn to_withhold(core: &Core) -> BTreeSet<BitstreamId> {
    let removals = core.operations.removals();
    let removed = removals.flat_map(|(_, removal)| removed_with(core, removal));
    removed.chain(core.registry.all_revoked().cloned()).collect()
}

/// The bitstreams that are deleted with a removal.
pub(crate) fn removed_with(core: &Core, removal: &Removal) -> Vec<BitstreamId> {
    match removal {
        Removal::Bitstream(id) => vec![id.clone()],
        Removal::Tenant(id) => core.registry.owned_by(id).1,
    }
}

/// The DAGs that keep something from being deleted, by name: those in a bitstream, of other tenants where a tenant
/// is deleted with its own. Time O(bitstreams of the removal × regions + users · log users).
pub(crate) fn users(core: &Core, removal: &Removal) -> BTreeSet<DagName> {
    let mut users = BTreeSet::new();
    for image in removed_with(core, removal) {
        for (card, region) in core.cards.regions_with(&image) {
            let all = core.cards.known(&card).ledger().users(region);
            users.extend(all.filter(|name| keeps(removal, name)).cloned());
        }
    }
    users
}

fn keeps(removal: &Removal, name: &DagName) -> bool {
    match removal {
        Removal::Bitstream(_) => true,
        Removal::Tenant(id) => name.tenant != *id,
    }
}

/// A bitstream in a placement that its owner does not share with the DAG, that the DAG does not trust, or that no key
/// signed that counts.
pub(crate) fn stranger(
    core: &Core,
    entry: &DagEntry,
    placement: &Placement,
) -> Option<BitstreamId> {
    let tenant = &entry.name().tenant;
    let is_open = |bitstream: &Bitstream| {
        placement.spec.may_pass(tenant, bitstream) && core.registry.revoked(&bitstream.id).is_none()
    };
    let mut instances = placement.mapping.instances().map(|instance| &instance.bitstream);
    let wrong = |id: &&BitstreamId| !core.registry.bitstream(id).is_some_and(is_open);
    instances.find(wrong).cloned()
}

/// Checks that what is to be deleted is withheld, and that the users in the ledgers are the DAGs with a placement in it. Time
/// O(removals × DAGs).
///
/// # Errors
/// One of both is not so.
pub(crate) fn check(core: &Core) -> Result<(), String> {
    let withheld = core.registry.catalogue().withheld();
    if withheld != to_withhold(core) {
        return Err(format!("{withheld:?} are withheld, and others are to be deleted or revoked"));
    }
    for (_, removal) in core.operations.removals() {
        let images = removed_with(core, removal);
        let uses = |entry: &&DagEntry| {
            let mut placements = entry.placements();
            placements.any(|p| p.mapping.instances().any(|i| images.contains(&i.bitstream)))
        };
        let kept = core.dags.iter().filter(|entry| keeps(removal, entry.name()));
        let placed: BTreeSet<DagName> = kept.filter(uses).map(|e| e.name().clone()).collect();
        if placed != users(core, removal) {
            return Err(format!("{removal:?} is used by {placed:?}, says the placements"));
        }
    }
    Ok(())
}
