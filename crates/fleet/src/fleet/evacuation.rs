//! Hosts that do not answer, hosts to be emptied, and DAGs that wait: a few of them with each tick.

use snic_domain::{DagName, Timestamp};

use super::Fleet;
use crate::hosts::{Held, HostState, Liveness, difference};
use crate::journal::FleetStep;
use crate::protocol::{FleetEffect, FleetNotice, RequestId};
use crate::records::{Unplaced, reservation_key};

/// Most DAGs that one tick tries to place: planning takes time that others wait for.
const TRIES_MAX: usize = 8;
/// Most reservations that end with one tick.
const ENDS_MAX: usize = 64;

impl Fleet {
    /// Time passed.
    pub fn pass_time(&mut self, now: Timestamp, step: &mut FleetStep) {
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
        self.moves.refill(now);
        self.place_some(step);
        for _ in 0..ENDS_MAX {
            let Some(name) = self.reservations.ended(now) else { break };
            self.end_reservation(&name, step);
        }
    }

    pub(super) fn end_reservation(
        &mut self,
        name: &(snic_domain::TenantId, RequestId),
        step: &mut FleetStep,
    ) -> bool {
        let Some(ended) = self.reservations.remove(name) else { return false };
        let _ = self.inventory.give_functions(&ended.card, ended.functions);
        step.delete(reservation_key(&name.0, name.1));
        true
    }

    /// Tells operators where so much is unreachable that the cause is likely elsewhere, and where it is over.
    fn hold_or_resume(&mut self, step: &mut FleetStep) {
        let now = Held::of(self.hosts.values());
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
            Liveness::Alive => of.is_draining,
        }
    }

    /// DAGs that wait or are to move, from the one behind the last that was tried.
    fn next_tries(&self) -> Vec<DagName> {
        let mut all: Vec<&DagName> = self.waiting.iter().collect();
        for host in self.hosts.values().filter(|host| self.is_to_be_emptied(host)) {
            let to_move = host.dags().filter(|(name, serial)| {
                let of = self.dags.get(*name).map(|entry| entry.of());
                of.is_some_and(|of| {
                    !of.is_bound()
                        && of.place.as_ref().is_some_and(|place| place.serial == *serial)
                        && (of.leaving.is_none() || host.liveness() == Liveness::Lost)
                })
            });
            all.extend(to_move.map(|(name, _)| name));
        }
        all.sort_unstable();
        all.dedup();
        let last = self.tried_last.as_ref();
        let behind = last.map_or(0, |last| all.partition_point(|name| *name <= last));
        all.rotate_left(behind);
        all.into_iter().take(TRIES_MAX).cloned().collect()
    }

    fn place_some(&mut self, step: &mut FleetStep) {
        for name in self.next_tries() {
            if !self.moves.take() {
                return;
            }
            self.tried_last = Some(name.clone());
            if self.waiting.contains(&name) {
                self.place_again(&name, step);
            } else {
                self.move_away(&name, step);
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
        self.settle(name, choice, leaving, step);
        let notice = FleetNotice::DagMoved { name: name.clone(), from, to };
        step.then(FleetEffect::Tell(notice));
    }

    /// DAGs of a host that never move by themselves.
    pub(super) fn tell_bound(&self, host: &HostState, step: &mut FleetStep) {
        for (name, _) in host.dags() {
            if self.dags.get(name).is_some_and(|entry| entry.of().is_bound()) {
                step.then(FleetEffect::Tell(FleetNotice::DagBound(name.clone())));
            }
        }
    }

    /// DAGs that have no place, with the reasons.
    pub fn unplaced(&self) -> impl Iterator<Item = (&DagName, &Unplaced)> {
        self.dags.iter().filter_map(|(name, entry)| Some((name, entry.of().unplaced.as_ref()?)))
    }
}
