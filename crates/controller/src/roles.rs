//! Loading a card's role: everything that is on the card at once, its regions and tables included.
//!
//! The settings name the role, and opening a card loads it; so this asks the
//! card's thread to close the card and to open it again, and the operation ends when the card was
//! read back. After a crash in between, the next start opens the card all the same.

use snic_domain::{CardId, RegionId};
use snic_tables::{CardCommand, Ticket};

use crate::card::CardMachine;
use crate::protocol::{ControlError, OperationWork, Reply};
use crate::state::Core;
use crate::tx::Tx;
use crate::{connection, work};

/// How many regions an error names.
const NAMED_MAX: usize = 8;

/// Loads a card's role again. Refused while a DAG is in any of its regions, or while the card is
/// busy: the caller drains it first, and no packet is lost.
pub(crate) fn load_role(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    force: bool,
) -> Result<Reply, ControlError> {
    let name = format!("cards/{id}");
    if let Some(load) = core.operations.role_load(id) {
        return Ok(work::reply(core, load.operation));
    }
    let card = core.cards.get(id).ok_or_else(|| ControlError::not_found(&name))?;
    obstacle(card).map_err(|text| ControlError::precondition(&name, text))?;
    let operation = work::begin(core, tx, OperationWork::LoadRole { card: id.clone(), force });
    let ticket = core.ticket();
    core.operations.role_asked(&operation, ticket, core.now());
    connection::lose(core, tx, id, "its role is being loaded".to_owned());
    let command = CardCommand::LoadRole { ticket, force };
    tx.card(id.clone(), command);
    Ok(work::reply(core, &operation))
}

/// The role was not loaded, and the card is as it was: it is read again.
pub(crate) fn role_refused(core: &mut Core, tx: &mut Tx, id: &CardId, ticket: Ticket, why: &str) {
    let load = core.operations.role_load(id).filter(|load| load.ticket == Some(ticket));
    let Some(operation) = load.map(|load| load.operation.clone()) else {
        return; // The operation has ended, or the daemon restarted: the answer is nobody's.
    };
    let error = ControlError::precondition(format!("cards/{id}"), why);
    work::end(core, tx, &operation, Err(error));
    connection::read_back(core, tx, id);
}

/// The card was read back, or could not be opened: with the role that it has now, or without.
pub(crate) fn role_settled(core: &mut Core, tx: &mut Tx, id: &CardId, result: Result<(), &str>) {
    let Some(load) = core.operations.role_load(id) else {
        return; // Most cards are read back for another reason.
    };
    let (operation, was_asked) = (load.operation.clone(), load.ticket.is_some());
    let name = format!("cards/{id}");
    let forced = core.operations.get(&operation).is_some_and(
        |record| matches!(record.work, OperationWork::LoadRole { force, .. } if force),
    );
    let result = match result {
        Err(why) => Err(ControlError::precondition(name, why)),
        // Opening a card loads the role of the settings, but not by force.
        Ok(()) if forced && !was_asked => Err(ControlError::precondition(
            name,
            "the daemon ended while the role was being loaded; it has the role of the settings, \
             but perhaps not loaded again: ask again",
        )),
        Ok(()) => Ok(()),
    };
    work::end(core, tx, &operation, result);
}

/// Why the card's role cannot be loaded now. Time O(regions).
fn obstacle(card: &CardMachine) -> Result<(), String> {
    if !card.is_ready() {
        return Err("it does not answer, or is still being read; try again when it does".to_owned());
    }
    let used: Vec<RegionId> =
        card.region_ids().filter(|&region| !card.ledger().is_unused(region)).collect();
    if !used.is_empty() {
        let named: Vec<String> = used.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        let more = if used.len() > NAMED_MAX { ", …" } else { "" };
        return Err(format!(
            "DAGs are in {} of its regions ({}{more}); drain them first",
            used.len(),
            named.join(", ")
        ));
    }
    if card.regions().loading().is_some() || card.tables().is_committing() {
        return Err("a region or its tables are being written; try again when that is done".into());
    }
    Ok(())
}
