//! Reconciliation: from the difference between desired and observed state to the next steps on each card.
//!
//! The order of the steps for a region that gets another content: rows that lead to it leave the
//! tables (commit), packets leave it, it is decoupled, loaded, coupled (load), then rows that lead
//! to it are written (commit). Nothing here remembers that order: a load is only asked for while
//! no row leads to the region, and rows are only written while it holds what they need. What chains
//! keep for DAGs is saved before a load and restored before rows are written: see `residency`.

use std::collections::BTreeMap;

use snic_domain::{CardId, DagName, RegionId};
use snic_tables::CardCommand;

use crate::place::residency::{LoadReadiness, Residency};
use crate::place::{
    consolidation, contents, drains, placement, residency, serving, untrusted, work,
};
use crate::react::{arrivals, sampling};
use crate::request::removals;
use crate::request::removals::RemovalStep;
use crate::state::Core;
use crate::state::card::TableStep;
use crate::state::freed::Capacity;
use crate::store::tx::Tx;

/// Rounds of one event: what is freed is given to who waits, which may free more.
const ROUNDS_MAX: usize = 1_000;

/// Looks at all that may have changed and asks the cards for the next steps. What has not come to rest after
/// [`ROUNDS_MAX`] rounds is looked at again with the next event, so that nothing that moves to and fro holds
/// everybody up.
pub(crate) fn reconcile(core: &mut Core, tx: &mut Tx) {
    for _ in 0..ROUNDS_MAX {
        hand_out_freed_regions(core, tx);
        while let Some(name) = core.dags.pop_dirty() {
            refresh(core, tx, &name);
        }
        let cards: Vec<CardId> = core.cards.ids().cloned().collect();
        for id in cards {
            finish_drains(core, tx, &id);
            if core.cards.known(&id).is_ready() {
                sampling::follow_at_once(core, &id);
                program(core, tx, &id);
                Residency::on(core, tx, &id).step();
                load(core, tx, &id);
            }
        }
        if core.dags.is_settled() && core.freed.is_empty() {
            if removals::take_next_steps(core, tx) != RemovalStep::Waits {
                continue;
            }
            consolidation::take_next_steps(core, tx);
            if core.dags.is_settled() {
                return;
            }
        }
    }
    debug_assert!(false, "one event does not come to rest");
}

/// Gives what was freed to those who wait, then lets go of what nobody needs.
fn hand_out_freed_regions(core: &mut Core, tx: &mut Tx) {
    if core.freed.take_capacity() == Capacity::Freed {
        placement::retry_unscheduled(core);
        drains::retry(core);
        untrusted::retry(core);
        consolidation::begin_later(core);
        core.planning.retry_held();
    }
    placement::place_unscheduled(core, tx);
    drains::take_next_steps(core, tx);
    untrusted::take_next_steps(core, tx);
    while let Some((card, region)) = core.freed.pop_region() {
        contents::keep_as_victim(core, tx, &card, region);
        // While others are in it nothing about its state has changed, and a view of all of
        // them for each that leaves would be quadratic.
        if core.cards.known(&card).ledger().is_unused(region) {
            tx.emit_region(&card, region);
        }
    }
}

/// Sends the rows that differ, if no commit is under way.
fn program(core: &mut Core, tx: &mut Tx, id: &CardId) {
    match core.begin_commit(id) {
        TableStep::Nothing => {}
        TableStep::Committed(follows) => arrivals::programmed(core, tx, id, follows),
        TableStep::Commit { command, dags } => {
            dags.iter().for_each(|name| work::start(core, name));
            note_asked(core, tx, id, &command, &dags);
            tx.card(id.clone(), command);
        }
    }
}

/// Stores which NTs a commit tells configurations: if the daemon ends before they have answered, nobody else knows what they said.
fn note_asked(core: &mut Core, tx: &mut Tx, id: &CardId, command: &CardCommand, dags: &[DagName]) {
    let CardCommand::Program { windows, .. } = command else { return };
    let mut asked: BTreeMap<u32, Vec<(u8, u8)>> = BTreeMap::new();
    for write in &windows.writes {
        let of = asked.entry(write.configuration.uid.raw()).or_default();
        of.push((write.at.region, write.at.slot));
    }
    if asked.is_empty() {
        return;
    }
    for name in dags {
        let Some(entry) = core.dags.get(name) else { continue };
        let Some(at) = asked.remove(&entry.uid().raw()) else { continue };
        if core.dags.known_mut(name).ask_nts(id, at.into_iter()) {
            core.dags.store(tx, name);
        }
    }
}

/// Asks for the load that waits longest, if none is under way.
fn load(core: &mut Core, tx: &mut Tx, id: &CardId) {
    if let Some(region) = core.cards.known(id).next_load(core.now()) {
        match Residency::on(core, tx, id).make_loadable(region) {
            LoadReadiness::Now => start_load(core, tx, id, region),
            LoadReadiness::NotYet => Residency::on(core, tx, id).step(),
        }
    }
}

fn start_load(core: &mut Core, tx: &mut Tx, id: &CardId, region: RegionId) {
    let ticket = core.ticket();
    let card = core.cards.known_mut(id);
    card.begin_load(tx, region, ticket);
    let users: Vec<DagName> = card.ledger().users(region).cloned().collect();
    for name in users {
        work::start(core, &name);
    }
    tx.emit_region(id, region);
}

/// Chooses which of a DAG's placements is to be in the tables, and writes its rows into the
/// target.
fn refresh(core: &mut Core, tx: &mut Tx, name: &DagName) {
    residency::enqueue_restore(core, name);
    serving::refresh_rows(core, name);
    arrivals::finish_arrival(core, tx, name);
    untrusted::visit_dag(core, name);
}

/// Operations that drain a region end when nobody is left in it.
fn finish_drains(core: &mut Core, tx: &mut Tx, id: &CardId) {
    let card = core.cards.known(id);
    let is_empty = |of: Option<RegionId>| {
        core.cards.regions_meant(id, of).all(|region| card.ledger().is_unused(region))
    };
    let drains = core.operations.drains().filter(|(_, on, of)| *on == id && is_empty(*of));
    let drained: Vec<_> = drains.map(|(operation, ..)| operation.clone()).collect();
    for operation in drained {
        work::end(core, tx, &operation, Ok(()));
    }
}
