//! Handles the reports of cards.

use std::collections::BTreeSet;
use std::time::Duration;

use snic_domain::{
    Bandwidth, CardId, CardProfile, ConditionStatus, DagName, DagUid, DeviceReading, RegionId,
};
use snic_tables::{
    CardReport, CardSnapshot, ConfigurationWay, DagRow, RateLimiterRow, TableImage, Ticket,
};

use crate::decide::rows;
use crate::place::classification;
use crate::place::connection;
use crate::place::consolidation;
use crate::place::contents;
use crate::place::placement;
use crate::place::residency::Residency;
use crate::place::serving;
use crate::place::trials;
use crate::protocol::LogKind;
use crate::react::arrivals;
use crate::react::sampling;
use crate::request::reopening;
use crate::state::Core;
use crate::state::card::{
    AdoptionOutcome, CardMachine, CommitEnd, Identity, LoadEnded, Loading, ObservedContent, Region,
};
use crate::state::suspects::{Evidence, Fault};
use crate::store::tx::{LogSubject, Tx};

/// A card was opened: it is asked what it holds.
pub(crate) fn card_appeared(core: &mut Core, tx: &mut Tx, id: CardId, profile: CardProfile) {
    if core.cards.is_removed(&id) {
        return;
    }
    core.cards.opened(&id);
    match core.cards.get(&id).map(|card| card.identify(&profile)) {
        Some(Identity::Same) => {}
        Some(Identity::OtherLimits) => {
            core.cards.known_mut(&id).set_limits(tx, profile);
            Residency::on(core, tx, &id).lose_outside();
        }
        Some(Identity::Other) => {
            let reason = "it has another profile than the one its DAGs were planned for; \
                          give it another id in the settings, or its place with \
                          `snicctl card replace`";
            connection::lose(core, tx, &id, reason.to_owned());
            core.cards.set_newcomer(id, profile);
            return;
        }
        None => {
            let objective = core.policies.current().placement.objective;
            let card = CardMachine::first_seen(tx, id.clone(), profile, objective);
            let text = format!(
                "card {id} of model {} is new: nothing was stored of it. A card that was removed comes back so while the \
                 settings name it",
                card.profile().model
            );
            // The cards that a host begins with are no news.
            if core.registry.tenants_after(None).next().is_some() {
                tx.note(LogKind::CardAdded, LogSubject::card(&id), text);
            }
            core.cards.add(id.clone(), card);
            core.loops.add(id.clone());
        }
    }
    connection::read_back(core, tx, &id);
}

/// A card could not be opened.
pub(crate) fn card_absent(core: &mut Core, tx: &mut Tx, id: CardId, reason: String) {
    if core.cards.is_removed(&id) {
        return;
    }
    core.cards.opened(&id);
    if core.cards.contains(&id) {
        reopening::settled(core, tx, &id, Err(&reason));
        connection::lose(core, tx, &id, reason);
        core.cards.known_mut(&id).count_attempt();
    } else {
        tx.emit_card(&id);
        core.cards.set_absent(id, reason);
    }
}

/// A card's device was read.
pub(crate) fn device_read(core: &mut Core, tx: &mut Tx, id: &CardId, reading: DeviceReading) {
    let (now, policy) = (core.now(), core.policies.current().device);
    let Some(card) = core.cards.get_mut(id) else {
        return; // It was not opened yet, or is not a card any more.
    };
    let news = card.read_device(reading, &policy, now);
    for (status, text) in news.changed {
        let kind = if status == ConditionStatus::True {
            LogKind::CardHealthy
        } else {
            LogKind::CardUnhealthy
        };
        tx.note(kind, LogSubject::card(id), format!("card {id}: {text}"));
    }
    for text in news.errors {
        let text = format!("the driver of card {id} reports: {text}");
        tx.note(LogKind::CardError, LogSubject::card(id), text);
    }
    if news.fitness_changed {
        core.freed.capacity();
    }
    if news.is_news {
        tx.emit_card(id);
    }
}

/// A card answered.
pub(crate) fn card_reported(core: &mut Core, tx: &mut Tx, id: &CardId, report: CardReport) {
    if !core.cards.contains(id) {
        return; // Its thread speaks before the card was opened.
    }
    let (now, settings) = (core.now(), core.policies.current());
    match report {
        CardReport::ReadBack { ticket, snapshot } => adopt(core, tx, id, ticket, &snapshot),
        CardReport::Programmed { ticket, result, unconfigured } => {
            let result = result.map(|version| (version, unconfigured));
            let card = core.cards.known_mut(id);
            match card.commit_ended(now, ticket, result, settings) {
                CommitEnd::Stale => {}
                CommitEnd::Committed(follows) => arrivals::programmed(core, tx, id, follows),
                CommitEnd::Failed => connection::read_back(core, tx, id),
            }
        }
        CardReport::Loaded { ticket, result, .. } => {
            let card = core.cards.known_mut(id);
            let ended = card.load_ended(now, ticket, result, settings);
            load_ended(core, tx, id, ended);
        }
        CardReport::State { ticket, result, .. } => {
            Residency::on(core, tx, id).step_ended(ticket, result);
        }
        CardReport::Sampled { ticket, counters } => {
            sampling::sampled(core, tx, id, ticket, *counters);
        }
        CardReport::Stuck { region, waited } => region_stuck(core, tx, id, region, waited),
        CardReport::Lost { reason } => {
            core.cards.opened(id);
            reopening::lost(core, tx, id);
            connection::lose(core, tx, id, reason);
        }
        // It was taken as lost when it was asked, and appears again.
        CardReport::Released { ticket } => reopening::released(core, id, ticket),
        CardReport::NotReleased { ticket, reason } => {
            reopening::kept(core, tx, id, ticket, &reason);
        }
        CardReport::NotReset { ticket, reason } => {
            reopening::not_reset(core, tx, id, ticket, &reason);
        }
    }
}

/// Takes over what a card holds: nothing that is right already is written or loaded again.
fn adopt(core: &mut Core, tx: &mut Tx, id: &CardId, ticket: Ticket, snapshot: &CardSnapshot) {
    let Core { cards, registry, .. } = &mut *core;
    let card = cards.known_mut(id);
    let chains: BTreeSet<_> = registry.chains_for(&card.profile().model).collect();
    match card.adopt(ticket, snapshot, |digest, chain| chains.contains(&(digest, *chain))) {
        AdoptionOutcome::Stale => return,
        AdoptionOutcome::Wrong(reason) => {
            reopening::settled(core, tx, id, Err(&reason));
            connection::lose(core, tx, id, reason);
            return;
        }
        AdoptionOutcome::Ready => connection::regain(core, tx, id),
    }
    let regions: Vec<RegionId> = core.cards.known(id).region_ids().collect();
    core.usage.booted(core.now(), id, snapshot.boot_id);
    Residency::on(core, tx, id).adopt(&snapshot.regions);
    for &region in &regions {
        contents::keep_as_victim(core, tx, id, region);
    }
    rebuild_target(core, id, &regions);
    reopening::settled(core, tx, id, Ok(()));
    connection::emit_regions(core, tx, id);
    // Whether something was freed before is not known; who waits for a place may find one here.
    core.freed.capacity();
    consolidation::begin_later(core);
}

/// Makes the target tables again, and compares all of them with the card's.
fn rebuild_target(core: &mut Core, id: &CardId, regions: &[RegionId]) {
    let card = core.cards.known_mut(id);
    card.adopt_pages();
    for &region in regions {
        if card.region(region).is_some_and(Region::is_loaded) {
            card.put_region(region, core.policies.current(), core.registry.nt_numbers());
        }
    }
    let active = core.cards.known(id).tables().active();
    let names: Vec<DagName> = core.dags.on_card(id).map(|entry| entry.name().clone()).collect();
    for name in &names {
        let mut entry = core.dags.known_mut(name);
        entry.forget_rows();
        let rate = rate_on(active, entry.uid());
        entry.meter_mut().set_rate(rate);
    }
    for name in &names {
        serving::refresh_rows(core, name);
    }
    classification::guard_functions_of(core, id);
    core.cards.known_mut(id).compare_tables();
    for name in names {
        adopt_rows(core, id, &name);
    }
}

/// A DAG whose rows the card has already needs no commit to be known as served.
fn adopt_rows(core: &mut Core, id: &CardId, name: &DagName) {
    let card = core.cards.known_mut(id);
    if card.tables().configuration_way() != Some(ConfigurationWay::Windows) {
        // Another device may be in its place, whose shell takes them.
        core.dags.known_mut(name).forget_nts();
    }
    let entry = core.dags.known(name);
    let uid = entry.uid();
    let there = entry.targeted().filter(|p| !card.differs(name, rows::keys(uid, p)));
    match there.map(|placement| placement.serial) {
        Some(serial) => {
            let mut entry = core.dags.known_mut(name);
            entry.set_active(Some(serial));
            let lacking = entry.doubt_nts(id);
            drop(entry);
            if !lacking.is_empty() {
                card.lacks_configuration((name, uid), lacking);
            }
        }
        None => card.touch(name),
    }
    core.dags.mark_dirty(name);
}

fn load_ended(core: &mut Core, tx: &mut Tx, id: &CardId, ended: LoadEnded) {
    match ended {
        LoadEnded::Stale => {}
        LoadEnded::Loaded(load) => {
            core.suspects.loaded(&load.bitstream, id, load.region);
            region_changed(core, tx, id, load.region);
        }
        LoadEnded::Failed(load) => load_failed(core, tx, id, &load, None),
        LoadEnded::Unusable { load, reason } => {
            touch_users(core, id, load.region);
            placement::reject_bitstream(core, tx, &load.bitstream, reason);
            tx.emit_region(id, load.region);
        }
        LoadEnded::GivenUp { load, reason } => load_failed(core, tx, id, &load, Some(reason)),
    }
}

/// A region holds something else than before.
fn region_changed(core: &mut Core, tx: &mut Tx, id: &CardId, region: RegionId) {
    let card = core.cards.known_mut(id);
    if card.region(region).is_some_and(Region::is_loaded) {
        card.put_region(region, core.policies.current(), core.registry.nt_numbers());
    } else {
        contents::keep_as_victim(core, tx, id, region);
    }
    touch_users(core, id, region);
    tx.emit_region(id, region);
}

/// NTs of a region let no packet go, and were reset: it is decoupled, and what its NTs kept is gone. Its DAGs leave the tables
/// until it is loaded again.
fn region_stuck(core: &mut Core, tx: &mut Tx, id: &CardId, region: RegionId, waited: Duration) {
    let (now, settings) = (core.now(), core.policies.current());
    let card = core.cards.known_mut(id);
    if card.region(region).is_none() {
        return; // The card has no such region.
    }
    card.region_stalled(now, region, waited, settings);
    let text = format!(
        "region {region} of card {id} let no packet go for {waited:?}: its network tasks were reset"
    );
    let is_ready = card.is_ready();
    let about = LogSubject { regions: vec![region], ..LogSubject::card(id) };
    tx.note(LogKind::CardError, about, text);
    // While a card is read back, what it says it holds decides, and comes next.
    if is_ready {
        Residency::on(core, tx, id).drop_lost_residents(region);
        region_changed(core, tx, id, region);
    }
}

/// Has the status of every DAG of a region looked at again.
fn touch_users(core: &mut Core, id: &CardId, region: RegionId) {
    let Core { cards, dags, .. } = core;
    cards.known(id).ledger().users(region).for_each(|name| dags.mark_dirty(name));
}

/// A load failed; with a reason where it is not tried again.
fn load_failed(core: &mut Core, tx: &mut Tx, id: &CardId, load: &Loading, reason: Option<String>) {
    let observed = core.cards.known(id).region(load.region).map(Region::observed);
    if let Some(reason) = reason {
        give_up_region(core, tx, id, load, reason);
    }
    touch_users(core, id, load.region);
    tx.emit_region(id, load.region);
    if observed == Some(ObservedContent::Unknown) {
        connection::read_back(core, tx, id);
    }
}

/// No load is tried any more: the region is faulty, or the bitstream is, and the regions are cleared of it.
fn give_up_region(core: &mut Core, tx: &mut Tx, id: &CardId, load: &Loading, reason: String) {
    let now = core.now();
    let trial = trials::find(core, id, load.region);
    let evidence = Evidence { is_held: core.cards.hold(load.digest()), has_trial: trial.is_some() };
    let fault = core.suspects.given_up(&load.bitstream, id, load.region, evidence);
    let (regions, trial) = match fault {
        Fault::Region => {
            core.cards.known_mut(id).set_faulty(load.region, Some(reason), now);
            return placement::abandon_content(core, tx, id, load.region);
        }
        Fault::Bitstream(regions) => (regions, None),
        Fault::Either(regions) => (regions, trial),
    };
    for (card, region) in regions {
        core.cards.known_mut(&card).set_faulty(region, None, now);
        placement::abandon_content(core, tx, &card, region);
    }
    placement::reject_bitstream(core, tx, &load.bitstream, reason);
    if let Some(trial) = trial {
        trials::begin(core, tx, id, load.region, &trial);
    }
}

/// Rate that a card's tables grant a DAG, if it has rows of it: a rate that was granted before stays
/// until the loop says otherwise.
fn rate_on(tables: &TableImage, uid: DagUid) -> Option<Bandwidth> {
    tables.get::<DagRow>(uid.row()).filter(|row| row.uid == uid.raw())?;
    let row = tables.get::<RateLimiterRow>(uid.row())?;
    Some(Bandwidth::from_bps(u64::from(row.rate_kbps) * 1_000))
}
