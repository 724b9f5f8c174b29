//! Hosts that do not answer, hosts to be emptied, and DAGs that wait: a few of them with each tick.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use snic_domain::{DagName, Timestamp};

use super::Fleet;
use super::dags::PreviousServer;
use crate::HostId;
use crate::hosts::{EvacuationHold, HostState, Liveness, difference};
use crate::journal::FleetStep;
use crate::protocol::{DrainArea, FleetEffect, FleetNotice};

/// Most DAGs that one tick tries to place: planning takes time that others wait for.
const TRIES_MAX: usize = 8;
/// Most DAGs of hosts to be emptied that one tick looks at.
const LOOKS_MAX: usize = 2_000;
/// Most reservations that end with one tick.
const ENDS_MAX: usize = 64;

impl Fleet {
    /// So long this leader heard nobody, for it did not run: neither hosts nor those who reserved are late for that.
    pub fn pass_unheard(&mut self, time: Duration) {
        self.hosts.values_mut().for_each(|host| host.pass_unheard(time));
        self.reservations.postpone(time);
        self.began = self.began + time;
        self.rebalancing.progress = self.rebalancing.progress + time;
    }

    pub fn pass_time(&mut self, now: Timestamp, step: &mut FleetStep) {
        self.watch_hosts(now, step);
        self.moves.refill(now);
        self.place_some(step);
        self.journal.submit(std::mem::take(step));
        self.rebalance_some(now, step);
        self.release_left(now, step);
        self.remove_leaving(step);
        for _ in 0..ENDS_MAX {
            let Some(name) = self.reservations.ended(now) else { break };
            self.end_reservation(now, &name, step);
        }
    }

    /// Notes which hosts do not answer, which changes no record.
    pub fn watch_hosts(&mut self, now: Timestamp, step: &mut FleetStep) {
        let mut unreachable = Vec::new();
        for (host, state) in &mut self.hosts {
            match state.pass_time(now, self.settings.lease, self.settings.confirm) {
                None | Some(Liveness::Alive) => continue,
                Some(Liveness::Suspected) => {
                    step.then(FleetEffect::Tell(FleetNotice::HostSuspected(host.clone())));
                }
                Some(Liveness::Lost) => {
                    step.then(FleetEffect::Tell(FleetNotice::HostLost(host.clone())));
                }
            }
            unreachable.push(host.clone());
        }
        for host in unreachable {
            let _ = self.inventory.set_reachable(&host, false);
        }
        self.hold_or_resume(step);
    }

    /// Tells operators where so much is unreachable that the cause is likely elsewhere, and where it is over.
    fn hold_or_resume(&mut self, step: &mut FleetStep) {
        let now = EvacuationHold::of(self.hosts.values());
        for zone in difference(&now, &self.held) {
            let (unreachable, hosts) = now.at[&zone];
            step.then(FleetEffect::Tell(FleetNotice::EvacuationHeld { zone, unreachable, hosts }));
        }
        for zone in difference(&self.held, &now) {
            step.then(FleetEffect::Tell(FleetNotice::EvacuationResumed(zone)));
        }
        self.held = now;
    }

    /// Whether the DAGs of a host are to be placed elsewhere.
    fn is_to_be_emptied(&self, host: &HostState) -> bool {
        let of = host.record.value();
        match host.liveness() {
            Liveness::Lost => !self.held.holds(&of.spec.zone),
            Liveness::Suspected => false,
            Liveness::Alive => self.is_draining(of),
        }
    }

    /// DAGs that wait for a place, from the one behind the last that was tried.
    fn next_waiting(&self) -> Vec<DagName> {
        let last = self.waited_last.as_ref();
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.waiting.range((from, Bound::Unbounded));
        let rest = self.waiting.iter().take_while(|name| Some(*name) <= last);
        behind.chain(rest).take(TRIES_MAX).cloned().collect()
    }

    /// DAGs that are to move, from the one behind the last that was looked at, each with its host.
    fn next_moves(&mut self) -> Vec<(HostId, DagName)> {
        let last = self.moved_last.clone();
        let last_host = last.as_ref().map(|(host, _)| host);
        let from = last_host.map_or(Bound::Unbounded, Bound::Included);
        let first = self.hosts.range::<HostId, _>((from, Bound::Unbounded));
        let rest = self.hosts.iter().take_while(|(host, _)| Some(*host) <= last_host);
        let (mut found, mut looks, mut room) = (Vec::new(), 0, self.drain_room());
        let mut looked = last.clone();
        for (number, (id, host)) in first.chain(rest).enumerate() {
            if !self.is_to_be_emptied(host) {
                continue;
            }
            let mut names: Vec<(&DagName, u64)> = host.dags().collect();
            names.sort_unstable();
            // The host where it stopped comes first and last.
            if let Some((_, last_name)) = last.as_ref().filter(|(last_host, _)| last_host == id) {
                names.retain(|(name, _)| (*name > last_name) == (number == 0));
            }
            for (name, serial) in names {
                looks += 1;
                if found.len() >= TRIES_MAX || looks > LOOKS_MAX {
                    self.moved_last = looked;
                    return found;
                }
                looked = Some((id.clone(), name.clone()));
                if self.may_move(host, name, serial, &mut room) {
                    found.push((id.clone(), name.clone()));
                }
            }
        }
        self.moved_last = if found.is_empty() { None } else { looked };
        found
    }

    /// Whether a DAG of a host to be emptied is to be placed elsewhere now.
    fn may_move(
        &self,
        host: &HostState,
        name: &DagName,
        serial: u64,
        room: &mut BTreeMap<DrainArea, usize>,
    ) -> bool {
        let Some(of) = self.dags.get(name).map(|entry| entry.of()) else { return false };
        let is_lost = host.liveness() == Liveness::Lost;
        let is_here = of.place.as_ref().is_some_and(|place| place.serial == serial);
        let may = !self.is_bound(name) && is_here && (of.leaving.is_none() || is_lost);
        may && (is_lost || Self::take_drain_room(room, &host.record.value().spec))
    }

    fn place_some(&mut self, step: &mut FleetStep) {
        let (waiting, moves) = (self.next_waiting(), self.next_moves());
        let mut moves = moves.into_iter();
        let mut waiting = waiting.into_iter();
        let mut tries = 0;
        // By turns, so that neither keeps the other waiting.
        while tries < TRIES_MAX {
            let (waits, moving) = (waiting.next(), moves.next());
            if waits.is_none() && moving.is_none() {
                return;
            }
            if let Some(name) = waits {
                if !self.moves.take() {
                    return;
                }
                tries += 1;
                // A step for each: one transaction may not have room for all.
                self.journal.submit(std::mem::take(step));
                self.place_again(&name, step);
                if let Some(to) = self.inventory.card_of(&name).cloned() {
                    let name = name.clone();
                    step.then(FleetEffect::Tell(FleetNotice::DagPlaced { name, to }));
                }
                self.waited_last = Some(name);
            }
            if let Some(at) = moving {
                if tries >= TRIES_MAX || !self.moves.take() {
                    return;
                }
                tries += 1;
                self.journal.submit(std::mem::take(step));
                self.move_away(&at.1, step);
                self.moved_last = Some(at);
            }
        }
    }

    /// Places a DAG elsewhere; where there is no room it stays, and is tried again.
    fn move_away(&mut self, name: &DagName, step: &mut FleetStep) {
        let Some(entry) = self.dags.get(name) else { return };
        let Some(old) = entry.of().place.as_ref() else { return };
        let Some(host) = self.hosts.get(&old.card.host) else { return };
        let (from, serial) = (old.card.clone(), old.serial);
        let is_lost = host.liveness() == Liveness::Lost;
        let Ok(choice) = self.choose(entry.of(), &entry.dag) else { return };
        let to = choice.card.clone();
        // A host that answers serves it until the new place does.
        let before = entry.of().leaving.clone();
        let leaving = if is_lost { before } else { Some((from.clone(), serial)) };
        if is_lost && let Some(host) = self.hosts.get_mut(&from.host) {
            host.desire_no_more(&from.card, name, serial);
        }
        self.commit_place(name, choice, PreviousServer { leaving, changes: None }, step);
        let notice = FleetNotice::DagMoved { name: name.clone(), from, to };
        step.then(FleetEffect::Tell(notice));
    }
}
