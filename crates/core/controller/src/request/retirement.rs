//! Cards that go for good: removed, or replaced by another device under the same id.
//!
//! Both are one change of the store, so that a crash leaves the card as it was or gone. What was on the card
//! goes elsewhere, or waits for a place; rules follow their DAGs. Machines had functions of the card itself, so
//! with a card that is removed they lose them.

use snic_domain::{CardId, CardProfile, DagName, OperationId};

use crate::place::residency::Residency;
use crate::place::{connection, placement, work};
use crate::protocol::{ControlError, LogKind, OperationWork, Reply};
use crate::request::vm_bindings;
use crate::state::Core;
use crate::state::card::{CardMachine, ConnectionState};
use crate::store::tx::{LogSubject, Tx};

/// Forgets a card that is lost, or that nothing is on. DAGs of a lost one go to other cards, or wait, and with
/// them their rules; machines with functions of it are unbound.
pub(crate) fn remove_card(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
) -> Result<Reply, ControlError> {
    if !is_lost(core, id)? {
        let on_it = on_card(core, id);
        if !on_it.is_empty() {
            let text = format!("still on it: {on_it}");
            return Err(ControlError::precondition(card_name(id), text));
        }
    }
    let machines = core.bindings.with_functions_of(id);
    for vm in &machines {
        vm_bindings::card_removed(core, tx, vm, id);
    }
    let moved = clear(core, tx, id);
    core.cards.set_removed(id.clone());
    let text = format!(
        "card {id} was removed; {} DAGs had a place on it and {} virtual machines functions of it. It comes back as \
         a new card with the next start while the settings name it",
        moved.len(),
        machines.len()
    );
    tx.note(LogKind::CardRemoved, LogSubject::card(id), text);
    placement::retry_unplaced(core, tx, &moved);
    Ok(Reply::Done)
}

/// The device that answers in the place of a lost card takes it over, whatever its profile. Rules and machines
/// stay with the card; its DAGs are placed again, here or elsewhere.
pub(crate) fn replace_card(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
) -> Result<Reply, ControlError> {
    is_lost(core, id)?;
    let Some(profile) = core.cards.newcomer(id).cloned() else {
        let text = "no other device answers in its place: name it in the settings of this card, and \
                    restart snicd; a device of the same profile needs no replacement";
        return Err(ControlError::precondition(card_name(id), text));
    };
    let moved = clear(core, tx, id);
    let text = format!(
        "a device of model {} takes the place of card {id}; {} DAGs are placed again",
        profile.model,
        moved.len()
    );
    tx.note(LogKind::CardReplaced, LogSubject::card(id), text);
    install(core, tx, id, profile);
    placement::retry_unplaced(core, tx, &moved);
    Ok(Reply::Done)
}

fn install(core: &mut Core, tx: &mut Tx, id: &CardId, profile: CardProfile) {
    core.cards.opened(id);
    let objective = core.policies.current().placement.objective;
    let card = CardMachine::first_seen(tx, id.clone(), profile, objective);
    core.cards.add(id.clone(), card);
    core.loops.add(id.clone());
    connection::read_back(core, tx, id);
    connection::emit_regions(core, tx, id);
}

/// Whether it does not answer.
///
/// # Errors
/// There is no such card.
fn is_lost(core: &Core, id: &CardId) -> Result<bool, ControlError> {
    let card = core.cards.get(id).ok_or_else(|| ControlError::not_found(card_name(id)))?;
    Ok(matches!(card.connection(), ConnectionState::Absent(_)))
}

/// Obstacles to removing a card, for people.
fn on_card(core: &Core, id: &CardId) -> String {
    let rules = core.rules.all().filter(|record| record.card == *id && record.binding.is_none());
    let counts = [
        (core.dags.on_card(id).count(), "DAGs (drain the card, and delete or move what stays)"),
        (rules.count(), "classification rules (delete them)"),
        (core.bindings.with_functions_of(id).len(), "virtual machines (release them)"),
    ];
    let some = counts.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

/// Takes everything off a card and ends what is under way on it; gives the DAGs that were on it.
fn clear(core: &mut Core, tx: &mut Tx, id: &CardId) -> Vec<DagName> {
    end_operations(core, tx, id);
    core.usage.take_in(id, core.cards.known(id));
    core.usage.replaced(id);
    let names: Vec<DagName> = core.dags.on_card(id).map(|entry| entry.name().clone()).collect();
    for name in &names {
        let _ = placement::evict(core, tx, name);
        core.dags.known_mut(name).forget_rows();
        core.dags.meter_mut(name).forget();
        core.dags.set_unscheduled(name);
        core.dags.store(tx, name);
    }
    Residency::on(core, tx, id).lose_all("its card is gone");
    core.cards.take_away(tx, id);
    core.loops.remove(id);
    core.loops.all_changed();
    core.freed.forget(id);
    core.freed.capacity();
    core.suspects.forget(id);
    names
}

/// Ends operations on the card, which cannot go on. DAGs that are being deleted are gone with it.
fn end_operations(core: &mut Core, tx: &mut Tx, id: &CardId) {
    let on_card = |work: &OperationWork| match work {
        OperationWork::DeleteDag(_, Some(card))
        | OperationWork::DrainRegion(card, _)
        | OperationWork::ResetRegion(card, _)
        | OperationWork::OptimizeCard(card)
        | OperationWork::LoadRole { card, .. }
        | OperationWork::ResetCard { card, .. }
        | OperationWork::DrainCard(card) => card == id,
        OperationWork::CreateDag(_)
        | OperationWork::UpdateDag(_)
        | OperationWork::DeleteDag(_, None)
        | OperationWork::DeleteBitstream(_)
        | OperationWork::DeleteTenant(_) => false,
    };
    let open = core.operations.all().filter(|operation| operation.ended.is_none());
    let ended: Vec<(OperationId, bool)> = open
        .filter(|operation| on_card(&operation.work))
        .map(|o| (o.id.clone(), matches!(o.work, OperationWork::DeleteDag(..))))
        .collect();
    for (operation, is_deletion) in ended {
        let superseded = || Err(ControlError::Superseded { resource: card_name(id) });
        let result = if is_deletion { Ok(()) } else { superseded() };
        work::end(core, tx, &operation, result);
    }
}

fn card_name(id: &CardId) -> String {
    format!("cards/{id}")
}
