//! Handles rows that have reached the card: releases what the new placement replaces and updates the
//! DAG's conditions.

use snic_domain::{CardId, ConditionStatus, DagName, Timestamp};
use snic_tables::ConfigurationWay;

use crate::place::{placement, scaling, work};
use crate::protocol::{ControlError, LogKind};
use crate::state::Core;
use crate::state::card::Committed;
use crate::store::records::{Placement, regions_of};
use crate::store::tx::{LogSubject, Tx};
use crate::view::status::{ADOPTING, CardFacts, FailingRegion, conditions};

/// Ends what an arrived placement makes superfluous, and brings the conditions up to date.
pub(crate) fn finish_arrival(core: &mut Core, tx: &mut Tx, name: &DagName) {
    let Some(entry) = core.dags.get(name) else {
        return; // It was deleted after it was marked.
    };
    if entry.is_ready() {
        let operation = entry.operation().cloned();
        scaling::scaled(core, tx, name);
        placement::finish_move(core, tx, name);
        if let Some(operation) = operation {
            let lacks = core.dags.get(name).and_then(|entry| entry.lacking_configuration());
            let result = lacks.map_or(Ok(()), |why| Err(ControlError::precondition(name, why)));
            work::end(core, tx, &operation, result);
        }
    }
    let entry = core.dags.known(name);
    let facts = entry.shown().map(|placement| facts(core, name, placement));
    let conditions = conditions(entry, facts.as_ref(), core.now());
    if conditions != entry.conditions() {
        core.dags.known_mut(name).set_conditions(conditions);
        core.usage.note_promise(name);
        report_promise(core, tx, name);
        core.dags.emit(tx, name);
    }
}

/// Tells that a promise is broken, and that it is kept again. While a card is asked what it holds, nothing
/// is broken yet; who is stopped for its state is told how long when it serves again.
fn report_promise(core: &mut Core, tx: &mut Tx, name: &DagName) {
    let now = core.now();
    let mut entry = core.dags.known_mut(name);
    let Some(promise) = entry.promise() else {
        return; // None was given yet.
    };
    let (text, reason) = (promise.message.clone(), promise.reason.clone());
    let (kind, text) = if promise.status == ConditionStatus::True {
        let Some(since) = entry.note_kept() else {
            return; // Nobody was told otherwise.
        };
        let took = now.since(since);
        (LogKind::PromiseKept, format!("{text} again, after {took:?}"))
    } else {
        let is_asked = promise.reason == ADOPTING;
        if is_asked || entry.is_stopped() || !entry.note_broken(now) {
            return;
        }
        (LogKind::PromiseBroken, text)
    };
    drop(entry);
    let placement = core.dags.known(name).shown();
    let regions = placement.map(regions_of).unwrap_or_default();
    let card = placement.map(|placement| &placement.mapping.card);
    tx.note_of(&reason, kind, LogSubject { dag: Some(name), card, regions, tenant: None }, text);
}

/// Facts about the card of a placement.
fn facts<'a>(core: &'a Core, name: &DagName, placement: &Placement) -> CardFacts<'a> {
    let card = core.cards.known(&placement.mapping.card);
    let regions = regions_of(placement);
    let entries = || regions.iter().filter_map(|region| card.region(*region));
    let failing = entries()
        .find(|entry| !entry.is_loaded() && (entry.failures() > 0 || entry.stall().is_some()));
    CardFacts {
        connection: card.connection(),
        regions: regions.len(),
        loaded: entries().filter(|entry| entry.is_loaded()).count(),
        failing: failing.and_then(|entry| {
            let failures = entry.failures();
            let load = || Some(FailingRegion::Load { failures, error: entry.last_error()? });
            entry.stall().map(FailingRegion::Stalled).or_else(load)
        }),
        table_error: card.tables().error(),
        carried: carried(core, name).map(|placement| placement.spec.bandwidth),
        is_untrusted: core.dags.is_untrusted(name),
    }
}

/// The placement that a DAG's packets take now: the card, read back, has its rows, and its regions hold
/// what it needs. While another one is on its way to the tables, this one serves.
fn carried<'a>(core: &'a Core, name: &DagName) -> Option<&'a Placement> {
    let entry = core.dags.known(name);
    let active = entry.active().and_then(|serial| entry.placement(serial))?;
    let card = core.cards.known(&active.mapping.card);
    (card.is_ready() && card.is_loaded(active)).then_some(active)
}

/// The card's tables, read back, hold the rows of these placements.
pub(crate) fn programmed(core: &mut Core, tx: &mut Tx, id: &CardId, follows: Committed) {
    let Committed { dags, removals, windows } = follows;
    let way = core.cards.known(id).tables().configuration_way();
    let waiting = core.cards.known_mut(id).take_waiting();
    core.dags.mark_all_dirty(waiting);
    for (name, serial) in dags {
        if core.dags.get(&name).is_some_and(|entry| entry.card() == Some(id)) {
            let mut entry = core.dags.known_mut(&name);
            let stopped = entry.set_active(serial);
            let uid = entry.uid().raw();
            let own = windows.iter().filter(|end| end.uid == uid);
            let ends = own.map(|end| ((end.at.region, end.at.slot), end.is_lacking));
            let is_news = match way {
                Some(ConfigurationWay::Windows) => entry.windows_ended(id, ends),
                // A device with NTs that refused may have had the card's name before.
                Some(ConfigurationWay::Shell) | None => entry.forget_nts(),
            };
            drop(entry);
            if is_news {
                core.dags.store(tx, &name);
            }
            finish_arrival(core, tx, &name);
            if let Some(since) = stopped {
                report_stop(core, tx, id, &name, since);
            }
        }
    }
    for operation in removals {
        work::end(core, tx, &operation, Ok(()));
    }
}

/// A DAG that was stopped for its state serves again.
fn report_stop(core: &mut Core, tx: &mut Tx, id: &CardId, name: &DagName, since: Timestamp) {
    let placement = core.dags.known(name).desired();
    let regions = placement.map(regions_of).unwrap_or_default();
    let took = core.now().since(since);
    let text = format!("it serves again: it was stopped for {took:?}, to save and restore");
    tx.note(LogKind::StateRestored, LogSubject { regions, ..LogSubject::dag(id, name) }, text);
}
