//! DAGs to which machines or rules of their host lead: they stay.
//!
//! ```text
//!   nothing leads to it ──► new place, the old one serves on ──► new one serves ──► old: removed if nothing leads to it
//!                                  ▲                                                  │                │
//!                                  └── both serve it until one of them is left ◄── kept            removed
//!                                      or it goes back to the old place
//! ```
//!
//! The facts are as old as a host's last report, so that they only decide what is tried. Whether a machine is cut off the
//! host decides, in one step with the removal. A lost host is not asked: its DAGs move by what it said last, and when it
//! is back it keeps those to which something leads by now. A host that does not say is taken to have machines everywhere.

use std::time::Duration;

use snic_domain::{DagName, Digest, Timestamp};

use super::Fleet;
use crate::hosts::{HostState, Liveness};
use crate::journal::FleetStep;
use crate::protocol::{
    Attachments, BoundCause, Epoch, FleetEffect, FleetNotice, HostChoice, OrderKind,
};
use crate::records::{PlaceRecord, dag_key};
use crate::{FleetCard, HostId};

/// Interval between tries to remove DAGs from places that they have left.
const RELEASE_INTERVAL: Duration = Duration::from_secs(5);
/// Most of these that one tick tries.
const RELEASES_MAX: usize = 256;

impl Fleet {
    /// Why a DAG does not move by itself. One without a place has nothing to lose.
    pub(super) fn bound_cause(&self, name: &DagName) -> Option<BoundCause> {
        let place = self.dags.get(name)?.of().place.as_ref()?;
        self.hosts.get(&place.card.host)?.bound_cause(&place.card.card, name)
    }

    pub(super) fn is_bound(&self, name: &DagName) -> bool {
        self.bound_cause(name).is_some()
    }

    /// Tells operators which DAGs of a host stay, and why.
    pub(super) fn report_bound(&self, host: &HostState, step: &mut FleetStep) {
        let id = &host.record.value().host;
        for (card, name) in host.bound_at() {
            let Some(why) = host.bound_cause(card, name) else { continue };
            let (name, host) = (name.clone(), id.clone());
            step.then(FleetEffect::Tell(FleetNotice::DagBound { name, host, why }));
        }
    }

    /// A beat has the digest of what leads packets to the host's DAGs.
    pub(super) fn attachments_beat(
        &mut self,
        host: &HostId,
        said: Option<Digest>,
        step: &mut FleetStep,
    ) {
        let Some(state) = self.hosts.get_mut(host) else { return };
        if state.attachments_are(said) {
            self.order(host, OrderKind::ListAttachments, step);
        }
    }

    /// A host says what leads packets to its DAGs.
    pub(super) fn attachments_reported(
        &mut self,
        host: &HostId,
        epoch: Epoch,
        is_all: bool,
        dags: Attachments,
    ) {
        if epoch == self.journal.epoch()
            && let Some(state) = self.hosts.get_mut(host)
        {
            state.attachments_change(is_all, dags);
        }
    }

    /// Has a host serve a DAG no more if nothing leads packets to it there. A host that would not look is not told.
    pub(super) fn order_release(
        &mut self,
        name: &DagName,
        (card, serial): (&FleetCard, u64),
        step: &mut FleetStep,
    ) {
        if self.hosts.get(&card.host).is_some_and(HostState::tells_attachments) {
            let (name, of, if_detached) = (name.clone(), card.card.clone(), true);
            let remove = OrderKind::Remove { name, card: of, serial, if_detached };
            self.order(&card.host, remove, step);
        }
    }

    /// A host has removed a DAG to which nothing led.
    pub(super) fn dag_left(
        &mut self,
        name: &DagName,
        (card, serial): (&FleetCard, u64),
        step: &mut FleetStep,
    ) {
        let Some(entry) = self.dags.get_mut(name) else { return };
        let leaving = &mut entry.record.value_mut().leaving;
        // Its place is ordered again when the digests differ.
        if leaving.take_if(|(at, of)| at == card && *of == serial).is_some() {
            step.put(dag_key(name), entry.record.bytes());
            self.serves_no_more(name, (card, serial), step);
        }
    }

    /// A host serves a DAG on, for something leads packets to it there. So that is its place again, unless something leads
    /// to it at its new place as well, or it has changed meanwhile: then both serve it.
    pub(super) fn dag_kept(
        &mut self,
        name: &DagName,
        (at, serial): (FleetCard, u64),
        choice: Option<HostChoice>,
        step: &mut FleetStep,
    ) {
        let Some(entry) = self.dags.get(name).filter(|entry| entry.of().is_own(serial)) else {
            // Its tenant has deleted it meanwhile.
            return self.order_remove(name, (&at, serial), step);
        };
        let of = entry.of();
        let is_place = of.place.as_ref().is_some_and(|of| of.card == at && of.serial == serial);
        let is_third = of.leaving.as_ref().is_some_and(|of| *of != (at.clone(), serial));
        if is_place || is_third {
            return;
        }
        let may_go_back = of.is_present(serial) && !self.is_used_at_place(name);
        let choice = choice.filter(|of| of.mapping.card == at.card);
        match choice.filter(|_| may_go_back) {
            Some(choice) => self.go_back_to(name, (at.clone(), serial), choice, step),
            None => self.is_left_at(name, (at.clone(), serial), step),
        }
        if let Some(why) = self.hosts.get(&at.host).and_then(|of| of.bound_cause(&at.card, name)) {
            let (name, host) = (name.clone(), at.host);
            step.then(FleetEffect::Tell(FleetNotice::DagBound { name, host, why }));
        }
    }

    /// Whether something may lead packets to a DAG where the fleet has placed it.
    fn is_used_at_place(&self, name: &DagName) -> bool {
        let place = self.dags.get(name).and_then(|entry| entry.of().place.as_ref());
        let host = place.and_then(|place| self.hosts.get(&place.card.host));
        host.is_some_and(|host| host.attachments_of(name).is_none_or(|of| !of.is_none()))
    }

    /// Makes a place that still serves a DAG its place again, as it is there.
    fn go_back_to(
        &mut self,
        name: &DagName,
        (card, serial): (FleetCard, u64),
        choice: HostChoice,
        step: &mut FleetStep,
    ) {
        let HostChoice { mapping, reservation } = choice;
        let place = PlaceRecord { card: card.clone(), serial, mapping, reservation };
        let (loads, reservation) = (place.loads(), place.reservation.clone());
        let Some(entry) = self.dags.get_mut(name) else { return };
        let (record, milli_luts) = (entry.record.value_mut(), entry.usage.milli_luts);
        self.registry.uses.count_place(&place, true);
        let left = record.place.replace(place);
        left.iter().for_each(|left| self.registry.uses.count_place(left, false));
        record.leaving = left.map(|left| (left.card, left.serial));
        (record.unplaced, record.changes, record.is_ready) = (None, None, true);
        record.served_generation = record.generation;
        let leaving = record.leaving.clone();
        step.put(dag_key(name), entry.record.bytes());
        if let Ok(Some(short)) = self.inventory.hold_as_it_is(&card, name, loads, reservation) {
            let (card, why) = (card.clone(), short.to_string());
            step.then(FleetEffect::Tell(FleetNotice::CardOverbooked { card, why }));
        }
        self.inventory.weigh(name, milli_luts);
        self.forget_unplaced(name);
        self.desire(&card, name, serial);
        self.desire_leaving(leaving.as_ref(), name);
        if let Some((card, serial)) = leaving {
            self.order_release(name, (&card, serial), step);
        }
    }

    /// A place serves a DAG beside the one that the fleet has given it.
    fn is_left_at(&mut self, name: &DagName, left: (FleetCard, u64), step: &mut FleetStep) {
        let Some(entry) = self.dags.get_mut(name) else { return };
        let leaving = &mut entry.record.value_mut().leaving;
        if leaving.is_none() {
            *leaving = Some(left.clone());
            step.put(dag_key(name), entry.record.bytes());
        }
        self.desire_leaving(Some(&left), name);
    }

    /// Tries again to remove DAGs where they are served beside their place. A lost host is not waited for: when it is back
    /// it says what it serves.
    pub(super) fn release_left(&mut self, now: Timestamp, step: &mut FleetStep) {
        if now < self.next_release {
            return;
        }
        self.next_release = now + RELEASE_INTERVAL;
        let left = self.hosts.iter().filter(|(_, host)| host.liveness() != Liveness::Suspected);
        let left = left.flat_map(|(_, host)| {
            let is_lost = host.liveness() == Liveness::Lost;
            host.all_leaving().map(move |name| (name, is_lost))
        });
        let is_served = |name: &DagName| {
            self.dags
                .get(name)
                .is_some_and(|entry| entry.of().place.is_some() && entry.of().is_ready)
        };
        let left = left.filter(|(name, _)| is_served(name)).take(RELEASES_MAX);
        let left: Vec<(DagName, bool)> = left.map(|(name, of)| (name.clone(), of)).collect();
        self.journal.submit(std::mem::take(step));
        for (name, is_lost) in left {
            let leaving = self.dags.get(&name).and_then(|entry| entry.of().leaving.clone());
            let Some((card, serial)) = leaving else { continue };
            let mut own = FleetStep::default();
            match is_lost {
                true => self.dag_left(&name, (&card, serial), &mut own),
                false => self.order_release(&name, (&card, serial), &mut own),
            }
            self.journal.submit(own);
        }
    }
}
