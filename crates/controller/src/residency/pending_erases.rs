//! Contexts of deleted DAGs: erased in the regions that may have them, as soon as no
//! packet of the DAG can reach the region any more.
//!
//! Those regions are recorded in the same batch as the delete: a crash in between changes nothing.
//! A region is forgotten when its wrapper has reported the erase, or when it holds another bitstream:
//! a load clears everything. The contexts of a region before its last load are not remembered, so
//! every region whose chain keeps state for the DAG's NTs is asked; erasing an absent context is harmless.

use snic_domain::{ByteSize, CardId, DagName, DagUid, Digest, NtTypeId, RegionId};
use snic_tables::{DagRow, Table};

use super::refresh_kept_in;
use crate::card::{CardMachine, ContextCommand, ObservedContent, Region};
use crate::records::PendingErase;
use crate::state::Core;
use crate::tx::Tx;

/// A DAG is deleted: its contexts are not needed any more.
pub(crate) fn forget_dag(core: &mut Core, tx: &mut Tx, name: &DagName) {
    let ids: Vec<CardId> = core.cards.ids().cloned().collect();
    for id in ids {
        note_pending_erases(core, tx, &id, name);
        let left = core.cards.known_mut(&id).contexts_mut().forget_dag(tx, name);
        left.into_iter().for_each(|region| refresh_kept_in(core, &id, region));
    }
}

/// A DAG is deleted: notes the regions of a card that may have a context of it.
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
        let bitstream = all.find(|bitstream| bitstream.digest == *digest);
        bitstream.is_some_and(|b| b.nts.iter().any(|nt| nts.contains(&nt)))
    };
    let found = core.cards.known(id).regions().iter().filter_map(|(region, entry)| {
        let digest = match entry.observed() {
            ObservedContent::Holds(digest) => Some(digest),
            ObservedContent::Unknown => entry.desired(),
            ObservedContent::Empty | ObservedContent::Broken => None,
        };
        Some((region, digest.filter(&holds)?))
    });
    let found: Vec<_> = found.collect();
    let contexts = core.cards.known_mut(id).contexts_mut();
    for (region, digest) in found {
        contexts.add_pending_erase(tx, region, PendingErase { uid, digest });
    }
}

/// The next context that can be erased: what its region holds is known and is not being loaded, and
/// no row leads the DAG's packets there.
pub(super) fn next(card: &CardMachine) -> Option<(RegionId, ContextCommand)> {
    let mut all = card.contexts().pending_erases().peekable();
    all.peek()?;
    let loading = card.regions().loading().map(|loading| loading.region);
    let under_way = card.tables().under_way(Table::Dag);
    let is_out = |uid: DagUid| {
        let row = card.tables().active().get::<DagRow>(uid.row());
        row.is_none_or(|row| row.uid != uid.raw()) && !under_way.contains(&uid.row())
    };
    let next = all.find(|(region, uid, digest)| {
        let holds = card.region(*region).map(Region::observed);
        holds == Some(ObservedContent::Holds(*digest)) && loading != Some(*region) && is_out(*uid)
    });
    next.map(|(region, uid, _)| (region, ContextCommand::Depart(uid)))
}
