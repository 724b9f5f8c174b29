//! Contexts of deleted DAGs: erased in the regions that may have them, as soon as no
//! packet of the DAG can reach the region any more.
//!
//! Those regions are recorded in the same batch as the delete: a crash in between changes nothing.
//! A region is forgotten when its wrapper has reported the erase, or when it holds another bitstream:
//! a load clears everything. The contexts of a region before its last load are not remembered, so
//! every region whose chain keeps state for the DAG's NTs is asked; erasing an absent context is harmless.

use snic_domain::{DagUid, RegionId};
use snic_tables::{DagRow, Table};

use crate::state::card::{CardMachine, ContextCommand, ObservedContent, Region};

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
