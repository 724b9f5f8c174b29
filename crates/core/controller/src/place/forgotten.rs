//! Contexts that are not needed any more: forgotten at once, and erased from the regions that may have them once
//! no packet can arrive there.

use snic_domain::{ByteSize, CardId, DagName, Digest, NtTypeId, RegionId};

use crate::state::Core;
use crate::state::card::{Loading, ObservedContent, Retention};
use crate::store::records::PendingErase;
use crate::store::tx::Tx;

/// Discards what chains keep for a DAG that is deleted or gets another UID.
pub(crate) fn forget_dag(core: &mut Core, tx: &mut Tx, name: &DagName) {
    let ids: Vec<CardId> = core.cards.ids().cloned().collect();
    for id in ids {
        note_pending_erases(core, tx, &id, name);
        let left = core.cards.known_mut(&id).contexts_mut().forget_dag(tx, name);
        left.into_iter().for_each(|region| refresh_kept_in(core, &id, region));
    }
}

/// Notes the regions of a card that may have a context of it.
fn note_pending_erases(core: &mut Core, tx: &mut Tx, id: &CardId, name: &DagName) {
    let entry = core.dags.known(name);
    let keeps =
        |nt: &NtTypeId| core.registry.nt(nt).is_some_and(|known| known.state > ByteSize::ZERO);
    let nts = entry.spec().nodes.iter().map(|node| &node.nt);
    let nts: Vec<&NtTypeId> = nts.filter(|nt| keeps(nt)).collect();
    if nts.is_empty() {
        return;
    }
    let uid = entry.uid();
    let holds = |digest: &Digest| {
        let mut all = core.registry.bitstreams();
        let bitstream = all.find(|bitstream| bitstream.images.with_digest(*digest).is_some());
        bitstream.is_some_and(|b| b.nts.iter().any(|nt| nts.contains(&nt)))
    };
    let regions = core.cards.known(id).regions();
    let found = regions.iter().filter_map(|(region, entry)| {
        let loading = regions.loading().filter(|loading| loading.region == region);
        let digest = match loading.map_or(entry.observed(), Loading::before) {
            ObservedContent::Holds(digest) => Some(digest),
            ObservedContent::Unknown => entry.desired(),
            ObservedContent::Empty | ObservedContent::Foreign | ObservedContent::Broken => None,
        };
        Some((region, digest.filter(&holds)?))
    });
    let found: Vec<_> = found.collect();
    let contexts = core.cards.known_mut(id).contexts_mut();
    for (region, digest) in found {
        contexts.add_pending_erase(tx, region, PendingErase { uid, digest });
    }
}

/// Refreshes which contexts of a region may have to be saved. Time O(contexts in the save area + residents).
pub(crate) fn refresh_kept_in(core: &mut Core, id: &CardId, region: RegionId) {
    let registry = &core.registry;
    let card = core.cards.known_mut(id);
    match card.refresh_kept(region, |bitstream| registry.context_length(bitstream)) {
        Retention::NoMore => core.freed.capacity(),
        Retention::AsBefore => {}
    }
}
