//! Operations that close a card and open it again: loading its role, and a reset. Everything that is on the card goes,
//! its regions and tables included.
//!
//! ```text
//!  request ──► operation stored ──► the card's thread closes it ──► opened ──► read back: the operation ends
//!                                    │ is reset, or not              └─► not opened: it ends with the reason
//!                                    └─► kept as it is: it ends with the reason
//! ```
//!
//! The settings name the role, and opening a card loads it. After a crash in between, the next start opens
//! the card all the same; whether it was reset, or its role loaded by force, nobody knows then, and the
//! operation says so.

use snic_domain::{CardId, RegionId};
use snic_tables::{CardCommand, Ticket};

use crate::place::{connection, work};
use crate::protocol::{ControlError, OperationWork, Reply};
use crate::state::Core;
use crate::state::card::CardMachine;
use crate::state::operations::CardClosing;
use crate::store::tx::Tx;

/// Number of regions that an error names.
const NAMED_MAX: usize = 8;

/// Loads a card's role again. Refused while a DAG is in any of its regions, or while the card is
/// busy: the caller drains it first, and no packet is lost.
pub(crate) fn load_role(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    force: bool,
) -> Result<Reply, ControlError> {
    let asked = OperationWork::LoadRole { card: id.clone(), force };
    if let Some(reply) = same_under_way(core, id, &asked)? {
        return Ok(reply);
    }
    let name = format!("cards/{id}");
    let card = core.cards.get(id).ok_or_else(|| ControlError::not_found(&name))?;
    let result = if card.is_ready() {
        in_use(card).map_or_else(|| busy(card), |used| Err(format!("{used}; drain them first")))
    } else {
        Err("it does not answer, or is still being read; try again when it does".to_owned())
    };
    result.map_err(|text| ControlError::precondition(&name, text))?;
    let command = |ticket| CardCommand::LoadRole { ticket, force };
    Ok(begin(core, tx, id, asked, ("its role is being loaded", command)))
}

/// Resets a card. Refused while a DAG is in any of its regions, unless by force. A card that does not answer
/// needs it most.
pub(crate) fn reset_card(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    force: bool,
) -> Result<Reply, ControlError> {
    let asked = OperationWork::ResetCard { card: id.clone(), force };
    if let Some(reply) = same_under_way(core, id, &asked)? {
        return Ok(reply);
    }
    let name = format!("cards/{id}");
    let card = core.cards.get(id).ok_or_else(|| ControlError::not_found(&name))?;
    if !force {
        let result = match in_use(card) {
            Some(used) => Err(format!(
                "{used}; drain them first, or reset it by force: they are not served until it was read back, \
                 and lose their state"
            )),
            None if card.is_ready() => busy(card),
            None => Ok(()),
        };
        result.map_err(|text| ControlError::precondition(&name, text))?;
    }
    let at_once = force || !card.is_ready();
    let command = |ticket| CardCommand::Reset { ticket, at_once };
    Ok(begin(core, tx, id, asked, ("it is being reset", command)))
}

/// The operation that was asked for and is under way already. Another one of the kind is refused.
fn same_under_way(
    core: &Core,
    id: &CardId,
    asked: &OperationWork,
) -> Result<Option<Reply>, ControlError> {
    let Some(operation) = core.operations.reopening(id).map(|found| found.operation) else {
        return Ok(None);
    };
    let work = core.operations.get(operation).map(|record| &record.work);
    let is_reset = |work: &OperationWork| matches!(work, OperationWork::ResetCard { .. });
    if work.is_some_and(|work| is_reset(work) == is_reset(asked)) {
        return Ok(Some(work::reply(core, operation)));
    }
    let text = format!("operations/{operation} closes the card and opens it again; wait for it");
    Err(ControlError::precondition(format!("cards/{id}"), text))
}

/// Stores the intent, and has the card closed once it is durable.
fn begin(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    work: OperationWork,
    (reason, command): (&str, impl FnOnce(Ticket) -> CardCommand),
) -> Reply {
    let operation = work::begin(core, tx, work);
    let ticket = core.ticket();
    let command = command(ticket);
    let survives_loss = matches!(command, CardCommand::Reset { at_once: true, .. });
    core.operations.set_closing(&operation, CardClosing::Asked { ticket, survives_loss });
    core.operations.start(&operation, core.now());
    connection::lose(core, tx, id, reason.to_owned());
    tx.card(id.clone(), command);
    work::reply(core, &operation)
}

/// The card was closed, and its reset is done: what opens next is what the operation is for.
pub(crate) fn released(core: &mut Core, id: &CardId, ticket: Ticket) {
    let found =
        core.operations.reopening(id).filter(|found| found.closing.ticket() == Some(ticket));
    if let Some(operation) = found.map(|found| found.operation.clone()) {
        core.operations.set_closing(&operation, CardClosing::Closed(ticket));
    }
}

/// The card was not closed, and is as it was: it is read again.
pub(crate) fn kept(core: &mut Core, tx: &mut Tx, id: &CardId, ticket: Ticket, why: &str) {
    if fail(core, tx, id, ticket, why) {
        connection::read_back(core, tx, id);
    }
}

/// The card was closed and not reset. It is opened again.
pub(crate) fn not_reset(core: &mut Core, tx: &mut Tx, id: &CardId, ticket: Ticket, why: &str) {
    fail(core, tx, id, ticket, why);
}

/// The card was lost: what its thread was told before ends with that, if it needs the card.
pub(crate) fn lost(core: &mut Core, tx: &mut Tx, id: &CardId) {
    let Some(found) = core.operations.reopening(id) else { return };
    let CardClosing::Asked { ticket, survives_loss: false } = found.closing else { return };
    let operation = found.operation.clone();
    let work = core.operations.get(&operation).map(|record| &record.work);
    if matches!(work, Some(OperationWork::ResetCard { .. })) {
        fail(core, tx, id, ticket, "the card was lost before it was reset; ask again");
    } else {
        // It is opened again, with the role of the settings.
        core.operations.set_closing(&operation, CardClosing::Unknown);
    }
}

/// Ends the operation that this command was for; says whether there is one.
fn fail(core: &mut Core, tx: &mut Tx, id: &CardId, ticket: Ticket, why: &str) -> bool {
    let found =
        core.operations.reopening(id).filter(|found| found.closing.ticket() == Some(ticket));
    let Some(operation) = found.map(|found| found.operation.clone()) else {
        return false; // The operation has ended, or the daemon restarted: the answer is nobody's.
    };
    let error = ControlError::precondition(format!("cards/{id}"), why);
    work::end(core, tx, &operation, Err(error));
    true
}

/// The card was read back, or could not be opened.
pub(crate) fn settled(core: &mut Core, tx: &mut Tx, id: &CardId, result: Result<(), &str>) {
    let Some(found) = core.operations.reopening(id) else {
        return; // Most cards are read back for another reason.
    };
    if matches!(found.closing, CardClosing::Asked { .. }) {
        return; // It was opened before it was closed for this: its thread has not come to that yet.
    }
    let (operation, was_closed) = (found.operation.clone(), found.closing != CardClosing::Unknown);
    let name = format!("cards/{id}");
    // Opening a card loads the role of the settings, but not by force, and resets nothing.
    let doubt = match core.operations.get(&operation).map(|record| &record.work) {
        Some(OperationWork::ResetCard { .. }) => Some(
            "the daemon ended while the card was being reset; whether it was is unknown: ask again",
        ),
        Some(OperationWork::LoadRole { force: true, .. }) => Some(
            "the card was lost, or the daemon ended, while the role was being loaded; it has the role of the settings, \
             but perhaps not loaded again: ask again",
        ),
        _ => None,
    };
    let result = match (result, doubt) {
        (Err(why), _) => Err(ControlError::precondition(name, why)),
        (Ok(()), Some(doubt)) if !was_closed => Err(ControlError::precondition(name, doubt)),
        (Ok(()), _) => Ok(()),
    };
    work::end(core, tx, &operation, result);
}

/// The regions with DAGs, in words. Time O(regions).
fn in_use(card: &CardMachine) -> Option<String> {
    let used: Vec<RegionId> =
        card.region_ids().filter(|&region| !card.ledger().is_unused(region)).collect();
    if used.is_empty() {
        return None;
    }
    let named: Vec<String> = used.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = if used.len() > NAMED_MAX { ", …" } else { "" };
    Some(format!("DAGs are in {} of its regions ({}{more})", used.len(), named.join(", ")))
}

/// Fails while something is written to the card.
fn busy(card: &CardMachine) -> Result<(), String> {
    if card.regions().loading().is_some() || card.tables().is_committing() {
        return Err("a region or its tables are being written; try again when that is done".into());
    }
    Ok(())
}
