//! What chains keep for DAGs that were deleted: erased in the regions that may have it, as soon as no
//! packet of theirs can come there any more.
//!
//! Which regions those are is noted with the delete, in one batch: a crash in between changes nothing.
//! A region is forgotten when its wrapper has said that it is done, or when it holds something else:
//! a load leaves nothing. Which contexts a region had before it was loaded last is not remembered, so
//! every region is asked whose chain keeps something for the DAG's NTs; what is not there is erased, too.

use snic_domain::{ByteSize, CardId, DagName, DagUid, Digest, NtTypeId, RegionId};
use snic_tables::{DagRow, Table};

use super::ContextCommand;
use crate::card::{CardState, KNOWN, ObservedContent, Region};
use crate::records::{Key, PendingErase, Record};
use crate::state::Controller;
use crate::tx::Tx;

impl Controller {
    /// A DAG is deleted: notes the regions of a card that may have a context of it.
    pub(super) fn note_departed(&mut self, tx: &mut Tx, id: &CardId, name: &DagName) {
        let (Some(card), Some(entry)) = (self.cards.get(id), self.dags.get(name)) else { return };
        let keeps =
            |nt: &NtTypeId| self.registry.nt(nt).is_some_and(|known| known.state > ByteSize::ZERO);
        let nts = entry.spec().nodes.iter().map(|node| &node.nt);
        let nts: Vec<&NtTypeId> = nts.filter(|nt| keeps(nt)).collect();
        if nts.is_empty() {
            return;
        }
        let uid = entry.uid();
        let holds = |digest: &Digest| {
            let mut all = self.registry.bitstreams();
            let bitstream = all.find(|bitstream| bitstream.digest == *digest);
            bitstream.is_some_and(|b| b.nts.iter().any(|nt| nts.contains(&nt)))
        };
        let found = card.regions.iter().filter_map(|(region, entry)| {
            let digest = match entry.observed() {
                ObservedContent::Holds(digest) => Some(digest),
                ObservedContent::Unknown => entry.desired(),
                ObservedContent::Empty | ObservedContent::Broken => None,
            };
            Some((region, digest.filter(&holds)?))
        });
        let found: Vec<_> = found.collect();
        let card = self.cards.get_mut(id).expect(KNOWN);
        for (region, digest) in found {
            tx.put(Record::PendingErase(id.clone(), region, PendingErase { uid, digest }));
            card.states.departed.insert((region, uid), digest);
        }
    }

    /// Forgets what is gone by itself: its region holds something else by now.
    pub(super) fn settle_departed(&mut self, tx: &mut Tx, id: &CardId) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        let CardState { states, regions, .. } = card;
        states.departed.retain(|(region, uid), digest| {
            let observed = regions.get(*region).map(Region::observed);
            let stays = matches!(observed, Some(ObservedContent::Unknown))
                || observed == Some(ObservedContent::Holds(*digest));
            if !stays {
                tx.delete(Key::PendingErase(id.clone(), *region, *uid));
            }
            stays
        });
    }

    /// The next context that can be erased: what its region holds is known and is not being loaded, and
    /// no row leads the DAG's packets there.
    pub(super) fn next_departed(&self, id: &CardId) -> Option<(RegionId, ContextCommand)> {
        let card = self.cards.get(id).filter(|card| !card.states.departed.is_empty())?;
        let loading = card.regions.loading().map(|loading| loading.region);
        let under_way = card.tables.under_way(Table::Dag);
        let is_out = |uid: DagUid| {
            let row = card.tables.active().get::<DagRow>(uid.row());
            row.is_none_or(|row| row.uid != uid.raw()) && !under_way.contains(&uid.row())
        };
        let mut all = card.states.departed.iter();
        let next = all.find(|((region, uid), digest)| {
            let holds = card.region(*region).map(Region::observed);
            holds == Some(ObservedContent::Holds(**digest))
                && loading != Some(*region)
                && is_out(*uid)
        });
        next.map(|((region, uid), _)| (*region, ContextCommand::Depart(*uid)))
    }

    /// A wrapper has erased it.
    pub(super) fn departed(&mut self, tx: &mut Tx, id: &CardId, region: RegionId, uid: DagUid) {
        let card = self.cards.get_mut(id).expect(KNOWN);
        if card.states.departed.remove(&(region, uid)).is_some() {
            tx.delete(Key::PendingErase(id.clone(), region, uid));
        }
    }
}
