//! Operators' actions on regions and cards: cordon, drain, undrain, reset.

use snic_domain::{CardId, DagName, OperationId, RegionId};

use crate::place::residency::Residency;
use crate::place::{contents, placement, work};
use crate::protocol::{ControlError, LogKind, OperationWork, Reply};
use crate::state::Core;
use crate::state::card::Region;
use crate::store::tx::{LogSubject, Tx};
use crate::view::views;

fn region_entry<'a>(
    core: &'a Core,
    id: &CardId,
    region: RegionId,
) -> Result<&'a Region, ControlError> {
    core.cards
        .get(id)
        .and_then(|card| card.region(region))
        .ok_or_else(|| ControlError::not_found(region_name(id, region)))
}

/// The operations that drain a region, alone or with all of its card. While there is one the region is
/// cordoned: what a drain moves away must not be placed there again.
fn drains_of<'a>(
    core: &'a Core,
    id: &'a CardId,
    region: RegionId,
) -> impl Iterator<Item = &'a OperationId> {
    work::pending_drains(core)
        .filter(move |(_, card, drained)| *card == id && *drained == region)
        .map(|(operation, ..)| operation)
}

/// Nothing new is placed in the region; what is there moves where it can, make before break.
pub(crate) fn drain_region(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    region: RegionId,
) -> Result<Reply, ControlError> {
    region_entry(core, id, region)?;
    if let Some(operation) = drains_of(core, id, region).next() {
        return Ok(work::reply(core, operation));
    }
    cordon(core, tx, id, region, true);
    let text =
        format!("an operator has region {region} drained: DAGs that find another place leave it");
    let about = LogSubject { regions: vec![region], ..LogSubject::card(id) };
    tx.note(LogKind::DrainStarted, about, text);
    let work = OperationWork::DrainRegion(id.clone(), region);
    let operation = work::begin(core, tx, work);
    retry(core);
    tx.emit_region(id, region);
    Ok(work::reply(core, &operation))
}

fn check_card(core: &Core, id: &CardId) -> Result<(), ControlError> {
    let absent = || ControlError::not_found(format!("cards/{id}"));
    core.cards.get(id).map(|_| ()).ok_or_else(absent)
}

/// Nothing new is placed on the card; what it does not serve yet goes to other cards. What it
/// serves stays until it is deleted: its packets come in by this card.
pub(crate) fn drain_card(core: &mut Core, tx: &mut Tx, id: &CardId) -> Result<Reply, ControlError> {
    check_card(core, id)?;
    let mut pending = core.operations.drains();
    let same = pending.find(|(_, card, of)| *card == id && of.is_none());
    if let Some((operation, ..)) = same {
        return Ok(work::reply(core, operation));
    }
    drop(pending);
    let regions: Vec<RegionId> = core.cards.regions_meant(id, None).collect();
    for region in &regions {
        cordon(core, tx, id, *region, true);
    }
    let text = format!("an operator has card {id} drained: it gets no new DAGs");
    tx.note(LogKind::DrainStarted, LogSubject::card(id), text);
    let operation = work::begin(core, tx, OperationWork::DrainCard(id.clone()));
    retry(core);
    for region in regions {
        tx.emit_region(id, region);
    }
    Ok(work::reply(core, &operation))
}

/// Places nothing new in regions, or lets them be used again.
pub(crate) fn cordon_regions(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    region: Option<RegionId>,
    on: bool,
) -> Result<Reply, ControlError> {
    check_card(core, id)?;
    if let Some(region) = region {
        region_entry(core, id, region)?;
    }
    let meant: Vec<RegionId> = core.cards.regions_meant(id, region).collect();
    report_cordon(core, tx, id, (&meant, region.is_none(), on));
    for region in meant {
        if on {
            cordon(core, tx, id, region, true);
            tx.emit_region(id, region);
        } else {
            end_drains(core, tx, id, region);
        }
    }
    Ok(Reply::Done)
}

/// One event for all regions that are not yet as they are to be.
fn report_cordon(
    core: &Core,
    tx: &mut Tx,
    id: &CardId,
    (meant, is_card, on): (&[RegionId], bool, bool),
) {
    let is_other = |region: &&RegionId| {
        core.cards.known(id).region(**region).is_some_and(|entry| entry.is_cordoned() != on)
    };
    let regions: Vec<RegionId> = meant.iter().filter(is_other).copied().collect();
    if regions.is_empty() {
        return;
    }
    let what = match regions.as_slice() {
        _ if is_card => format!("card {id}"),
        [region] => format!("region {region}"),
        _ => "regions".to_owned(),
    };
    let (kind, text) = match on {
        true => {
            (LogKind::Cordoned, format!("an operator cordoned {what}: nothing new is placed there"))
        }
        false => (LogKind::Uncordoned, format!("{what} takes new DAGs again")),
    };
    tx.note(kind, LogSubject { regions, ..LogSubject::card(id) }, text);
}

/// A drain begins, something was freed, or an update is done: DAGs may leave the regions that are drained.
/// Time O(drains + DAGs still there).
pub(crate) fn retry(core: &mut Core) {
    let mut all = Vec::new();
    for (_, id, region) in work::pending_drains(core) {
        let users = core.cards.known(id).ledger().users(region);
        all.extend(users.map(|name| (id.clone(), region, name.clone())));
    }
    core.planning.leaving.fill(all.into_iter());
}

/// Moves DAGs out of regions that are drained, as many as one event may.
pub(crate) fn take_next_steps(core: &mut Core, tx: &mut Tx) {
    while !core.planning.leaving.is_empty() && core.planning.may_begin() {
        let Some((id, region, name)) = core.planning.leaving.pop() else { break };
        // The drain may have ended, and the DAG may be gone.
        if drains_of(core, &id, region).next().is_some() {
            migrate(core, tx, &name, region);
        }
    }
    if core.planning.leaving.is_due_again() {
        core.freed.capacity();
    }
}

/// Moves one DAG out of a region; without a place elsewhere it stays. A DAG that is being
/// updated is left until the update is done.
fn migrate(core: &mut Core, tx: &mut Tx, name: &DagName, region: RegionId) {
    let Some(entry) = core.dags.get(name) else { return };
    let Some(placement) = entry.desired() else {
        return; // It waits for a place as it is, and what serves meanwhile stays until it has one.
    };
    if entry.previous().is_some() || !placement.mapping.uses(region) {
        return;
    }
    // Without a place or rows for it the DAG stays.
    let _ = placement::relocate(core, tx, name);
}

pub(crate) fn undrain_region(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    region: RegionId,
) -> Result<Reply, ControlError> {
    region_entry(core, id, region)?;
    report_cordon(core, tx, id, (&[region], false, false));
    end_drains(core, tx, id, region);
    region_reply(core, id, region)
}

/// Ends whatever drains a region, and lets it be used again.
fn end_drains(core: &mut Core, tx: &mut Tx, id: &CardId, region: RegionId) {
    let superseded: Vec<OperationId> = drains_of(core, id, region).cloned().collect();
    for operation in superseded {
        let resource = region_name(id, region);
        work::end(core, tx, &operation, Err(ControlError::Superseded { resource }));
    }
    uncordon(core, tx, id, region);
}

/// Ends a drain, of a card or of one of its regions: the regions that no other drain is of can be used again.
pub(crate) fn cancel(
    core: &mut Core,
    tx: &mut Tx,
    operation: &OperationId,
    id: &CardId,
    region: Option<RegionId>,
) {
    work::end(core, tx, operation, Err(ControlError::Cancelled));
    let meant: Vec<RegionId> = core.cards.regions_meant(id, region).collect();
    for region in meant {
        if drains_of(core, id, region).next().is_none() {
            uncordon(core, tx, id, region);
        }
    }
}

fn uncordon(core: &mut Core, tx: &mut Tx, id: &CardId, region: RegionId) {
    cordon(core, tx, id, region, false);
    core.freed.capacity();
    tx.emit_region(id, region);
}

fn cordon(core: &mut Core, tx: &mut Tx, id: &CardId, region: RegionId, cordoned: bool) {
    core.cards.known_mut(id).set_cordoned(tx, region, cordoned);
}

/// Gives a faulty region another chance; refused while DAGs are in it.
pub(crate) fn reset_region(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    region: RegionId,
) -> Result<Reply, ControlError> {
    region_entry(core, id, region)?;
    if !core.cards.known(id).ledger().is_unused(region) {
        let text = "DAGs are in it; drain it first";
        return Err(ControlError::precondition(region_name(id, region), text));
    }
    let now = core.now();
    let card = core.cards.known_mut(id);
    card.forgive_stalls(region);
    card.set_faulty(region, None, now);
    contents::set_content(core, tx, id, region, None);
    core.freed.regions(id, [region]);
    core.freed.capacity();
    let card = core.cards.known_mut(id);
    card.store_region(tx, region);
    card.distrust(region);
    Residency::on(core, tx, id).drop_lost_residents(region);
    let operation = work::begin(core, tx, OperationWork::ResetRegion(id.clone(), region));
    work::end(core, tx, &operation, Ok(()));
    tx.emit_region(id, region);
    Ok(work::reply(core, &operation))
}

fn region_reply(core: &Core, id: &CardId, region: RegionId) -> Result<Reply, ControlError> {
    let view = views::region_view(core, id, region);
    view.map(Reply::Region).ok_or_else(|| ControlError::not_found(region_name(id, region)))
}

fn region_name(id: &CardId, region: RegionId) -> String {
    format!("cards/{id}/regions/{region}")
}
