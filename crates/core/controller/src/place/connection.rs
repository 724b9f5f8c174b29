//! Connects and loses cards: when a card is lost, what was observed of it is
//! forgotten.

use std::collections::BTreeSet;

use snic_domain::CardId;

use crate::protocol::LogKind;
use crate::state::Core;
use crate::state::card::LossKind;
use crate::store::tx::{LogSubject, Tx};

/// Asks a card what it holds; until it answers nothing else is asked.
pub(crate) fn read_back(core: &mut Core, tx: &mut Tx, id: &CardId) {
    let ticket = core.ticket();
    let model = core.cards.known(id).profile().model.clone();
    let known: BTreeSet<_> = core.registry.chains_for(&model).collect();
    core.cards.known_mut(id).read_back(tx, ticket, known.into_iter().collect());
    tx.emit_card(id);
    forget(core, id);
}

/// A card does not answer, for this reason.
pub(crate) fn lose(core: &mut Core, tx: &mut Tx, id: &CardId, reason: String) {
    let now = core.now();
    let text = format!("card {id} is lost: {reason}");
    if core.cards.known_mut(id).lose(now, reason) == LossKind::Now {
        tx.note(LogKind::CardLost, LogSubject::card(id), text);
    }
    tx.emit_card(id);
    forget(core, id);
    emit_regions(core, tx, id);
}

/// Ends the loss of a card, now that its content is known.
pub(crate) fn regain(core: &mut Core, tx: &mut Tx, id: &CardId) {
    let now = core.now();
    tx.emit_card(id);
    if let Some(loss) = core.cards.known_mut(id).take_loss() {
        let seconds = now.since(loss.since).as_secs();
        let attempts = loss.attempts;
        let text = format!(
            "card {id} answers again after {seconds} s and {attempts} attempts in vain to open it"
        );
        tx.note(LogKind::CardBack, LogSubject::card(id), text);
    }
}

/// Discards measurements of a card's DAGs, once their usage is counted, and has their status looked at again.
fn forget(core: &mut Core, id: &CardId) {
    core.usage.take_in(id, core.cards.known(id));
    core.loops.known_mut(id).forget();
    core.dags.visit_meters(id, |_, _, meter| meter.forget());
    core.dags.mark_card_dirty(id);
}

/// Tells those who watch that all regions of a card have changed.
pub(crate) fn emit_regions(core: &Core, tx: &mut Tx, id: &CardId) {
    core.cards.known(id).region_ids().for_each(|region| tx.emit_region(id, region));
}
