//! Begins and ends operations of DAGs and consolidations.

use snic_domain::{CardId, DagName, OperationId, RegionId};

use crate::protocol::{ControlError, LogKind, OperationWork, Reply};
use crate::state::Core;
use crate::state::operations::WorkDone;
use crate::store::tx::{LogSubject, Tx};
use crate::view::{images, views};

/// A new operation.
pub(crate) fn begin(core: &mut Core, tx: &mut Tx, work: OperationWork) -> OperationId {
    let optimized = match &work {
        OperationWork::OptimizeCard(card) => Some(card.clone()),
        _ => None,
    };
    let removes =
        matches!(work, OperationWork::DeleteBitstream(_) | OperationWork::DeleteTenant(_));
    let id = core.operations.begin(tx, work, core.now());
    if removes {
        images::withhold(core);
    }
    if let Some(card) = optimized {
        let most = core.policies.current().consolidation.reconfigurations_max;
        core.passes.begin(&id, &card, most);
    }
    id
}

/// A card was asked for something on behalf of a DAG: its operation, if there is one, has started.
pub(crate) fn start(core: &mut Core, name: &DagName) {
    // Rows of a DAG that is gone leave with a commit, too.
    if let Some(id) = core.dags.get(name).and_then(|entry| entry.operation()) {
        core.operations.start(id, core.now());
    }
}

/// Ends an operation.
pub(crate) fn end(
    core: &mut Core,
    tx: &mut Tx,
    id: &OperationId,
    result: Result<(), ControlError>,
) {
    let record = core.operations.get(id).expect("it is remembered until after its end");
    let progress = WorkDone {
        regions: views::regions_done(core, record),
        moves: views::dag_moves(core, record),
    };
    let now = core.now();
    report_drain_ended(tx, &record.work, &result);
    match core.operations.end(tx, id, (now, result), progress) {
        OperationWork::CreateDag(name) | OperationWork::UpdateDag(name) => {
            // A delete has ended it before the DAG goes.
            if let Some(mut entry) = core.dags.get_mut(name) {
                entry.end_operation(id);
            }
        }
        OperationWork::OptimizeCard(_) => core.passes.end(id),
        OperationWork::DeleteDag(..)
        | OperationWork::DrainRegion(..)
        | OperationWork::DrainCard(_)
        | OperationWork::ResetRegion(..)
        | OperationWork::LoadRole { .. }
        | OperationWork::ResetCard { .. } => {}
        OperationWork::DeleteBitstream(_) | OperationWork::DeleteTenant(_) => {
            images::withhold(core);
            core.freed.capacity();
        }
    }
}

/// Where a drain ends: how.
fn report_drain_ended(tx: &mut Tx, work: &OperationWork, result: &Result<(), ControlError>) {
    let (card, regions, what) = match work {
        OperationWork::DrainRegion(card, region) => {
            (card, vec![*region], format!("region {region}"))
        }
        OperationWork::DrainCard(card) => (card, Vec::new(), format!("card {card}")),
        _ => return,
    };
    let text = match result {
        Ok(()) => format!("no DAG is left: {what} is drained, and stays cordoned"),
        Err(why) => format!("{what} is not drained any more: {why}"),
    };
    tx.note(LogKind::DrainEnded, LogSubject { regions, ..LogSubject::card(card) }, text);
}

/// An operation that exists, as callers see it.
pub(crate) fn reply(core: &Core, id: &OperationId) -> Reply {
    let record = core.operations.get(id).expect("it was begun or found in this request");
    Reply::Operation(views::operation_view(core, record))
}

/// The drains that have not ended, with each region that they are of.
pub(crate) fn pending_drains(
    core: &Core,
) -> impl Iterator<Item = (&OperationId, &CardId, RegionId)> {
    core.operations.drains().flat_map(|(id, card, region)| {
        core.cards.regions_meant(card, region).map(move |region| (id, card, region))
    })
}
