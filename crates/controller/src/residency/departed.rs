//! What chains keep for DAGs that were deleted: erased in the regions that may have it, as soon as no
//! packet of theirs can come there any more.
//!
//! Which regions those are is noted with the delete, in one batch: a crash in between changes nothing.
//! A region is forgotten when its wrapper has said that it is done, or when it holds something else:
//! a load leaves nothing. Which contexts a region had before it was loaded last is not remembered, so
//! every region is asked whose chain keeps something for the DAG's NTs; what is not there is erased, too.

use snic_domain::{ByteSize, CardId, DagName, DagUid, Digest, NtTypeId, RegionId};
use snic_tables::{DagRow, Table};

use super::refresh_kept_in;
use crate::card::{CardMachine, ContextCommand, ObservedContent, Region};
use crate::records::PendingErase;
use crate::state::Core;
use crate::tx::Tx;

/// A DAG goes: nobody needs its contexts any more.
pub(crate) fn forget_dag(core: &mut Core, tx: &mut Tx, name: &DagName) {
    let ids: Vec<CardId> = core.cards.ids().cloned().collect();
    for id in ids {
        note_departed(core, tx, &id, name);
        let left = core.cards.known_mut(&id).contexts_mut().forget_dag(tx, name);
        left.into_iter().for_each(|region| refresh_kept_in(core, &id, region));
    }
}

/// A DAG is deleted: notes the regions of a card that may have a context of it.
fn note_departed(core: &mut Core, tx: &mut Tx, id: &CardId, name: &DagName) {
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
        contexts.add_departed(tx, region, PendingErase { uid, digest });
    }
}

/// The next context that can be erased: what its region holds is known and is not being loaded, and
/// no row leads the DAG's packets there.
pub(super) fn next(card: &CardMachine) -> Option<(RegionId, ContextCommand)> {
    let mut all = card.contexts().departed().peekable();
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
