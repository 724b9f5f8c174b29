//! Reports of hosts.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{BitstreamId, CardId, DagName, Digest, FunctionUse, RegionId, Timestamp};
use snic_planner::RegionCondition;

use super::Fleet;
use crate::journal::FleetStep;
use crate::placement::HostImages;
use crate::protocol::{
    CardFaults, Epoch, FleetEffect, FleetNotice, HostPolicies, HostReport, MISSING_MAX, OrderKind,
};
use crate::{FleetCard, HostId};

/// Content of a beat.
struct BeatContent {
    epoch: Epoch,
    sequence: u64,
    digests: BTreeMap<CardId, Digest>,
    provided: Digest,
    missing: BTreeSet<BitstreamId>,
    faults: Option<BTreeMap<CardId, CardFaults>>,
    policies: Option<HostPolicies>,
    attachments: Option<Digest>,
    functions: Option<FunctionUse>,
}

impl Fleet {
    /// A host reports; returns `false` where it has seen a later leader.
    pub fn report(
        &mut self,
        now: Timestamp,
        host: &HostId,
        report: HostReport,
        step: &mut FleetStep,
    ) -> bool {
        if !self.hosts.contains_key(host) {
            return true;
        }
        match report {
            HostReport::Beat {
                epoch,
                sequence,
                digests,
                provided,
                missing,
                faults,
                policies,
                attachments,
                functions,
            } => {
                if epoch > self.journal.epoch() {
                    return false;
                }
                let heard = BeatContent {
                    epoch,
                    sequence,
                    digests,
                    provided,
                    missing,
                    faults,
                    policies,
                    attachments,
                    functions,
                };
                self.beat(now, host, heard, step);
            }
            HostReport::Attachments { epoch, is_all, dags } => {
                self.attachments_reported(host, epoch, is_all, dags);
            }
            HostReport::Removed { name, card, serial } => {
                let card = FleetCard { host: host.clone(), card };
                self.dag_left(&name, (&card, serial), step);
            }
            HostReport::Kept { name, card, serial, choice } => {
                let card = FleetCard { host: host.clone(), card };
                self.dag_kept(&name, (card, serial), choice.map(|of| *of), step);
            }
            HostReport::Has { epoch, provided } => {
                if epoch == self.journal.epoch() {
                    self.provide_difference(host, &provided, step);
                }
            }
            HostReport::Holds { epoch, card, dags } => {
                if epoch == self.journal.epoch() {
                    self.holds(host, &card, &dags, step);
                }
            }
            HostReport::Applied { name, serial, choice } => {
                if self.is_place_on(&name, serial, host) {
                    self.dag_applied(&name, serial, choice.map(|of| *of), step);
                }
            }
            HostReport::Refused { name, serial, reason, faulty, was_served } => {
                if let Some(card) = self.place_on(&name, serial, host) {
                    self.regions_fail(&card, faulty);
                    if was_served {
                        self.dag_lost(&name, serial, &reason, step);
                    } else {
                        self.dag_refused(&name, serial, reason, step);
                    }
                }
            }
        }
        true
    }

    /// A host reports while nothing can be stored: only that is taken in which is no record. Returns `false` as
    /// [`Self::report`]. While the memory does not count, only that the host is alive.
    pub fn listen(
        &mut self,
        now: Timestamp,
        host: &HostId,
        (report, memory_counts): (HostReport, bool),
        step: &mut FleetStep,
    ) -> bool {
        let (epoch, sequence, digests, faults, policies, attachments) = match report {
            HostReport::Beat {
                epoch, sequence, digests, faults, policies, attachments, ..
            } => (epoch, sequence, digests, faults, policies, attachments),
            HostReport::Attachments { epoch, is_all, dags } if memory_counts => {
                self.attachments_reported(host, epoch, is_all, dags);
                return true;
            }
            _ => return true,
        };
        if epoch > self.journal.epoch() {
            return !self.hosts.contains_key(host);
        }
        let Some(state) = self.hosts.get_mut(host) else { return true };
        let is_back = state.note_beat(now);
        if !memory_counts {
            return true;
        }
        if is_back {
            step.then(FleetEffect::Tell(FleetNotice::HostBack(host.clone())));
        }
        if epoch < self.journal.epoch() {
            self.order(host, OrderKind::Greet, step);
            return true;
        }
        if let Some(faults) = faults {
            self.set_faults(host, faults);
        }
        let Some(state) = self.hosts.get_mut(host) else { return true };
        if state.compare(sequence, &digests).is_in_step {
            let _ = self.inventory.set_reachable(host, true);
        }
        if let Some(said) = policies {
            self.policies_reported(host, said, step);
        }
        self.attachments_beat(host, attachments, step);
        true
    }

    /// Nothing is planned on these regions until a beat says otherwise.
    fn regions_fail(&mut self, card: &FleetCard, regions: Vec<RegionId>) {
        let Some(state) = self.hosts.get(&card.host) else { return };
        let mut faults = state.faults().clone();
        faults.entry(card.card.clone()).or_default().regions.extend(regions);
        faults.retain(|_, of| *of != CardFaults::default());
        self.set_faults(&card.host, faults);
    }

    /// Mirrors what of a host's cards takes nothing: only what has changed.
    fn set_faults(&mut self, host: &HostId, faults: BTreeMap<CardId, CardFaults>) {
        let Some(state) = self.hosts.get_mut(host) else { return };
        if *state.faults() == faults {
            return;
        }
        let before = state.set_faults(faults.clone());
        let cards: BTreeSet<&CardId> = before.keys().chain(faults.keys()).collect();
        for card in cards.into_iter().filter(|card| before.get(*card) != faults.get(*card)) {
            let at = FleetCard { host: host.clone(), card: card.clone() };
            let of = faults.get(card).cloned().unwrap_or_default();
            let regions = self.inventory.ledger(&at).map_or(0, |of| of.profile().regions.len());
            for region in (0..regions).filter_map(|number| u8::try_from(number).ok()) {
                let region = RegionId(region);
                let condition = match of.is_gone || of.regions.contains(&region) {
                    true => RegionCondition::Faulty,
                    false if of.cordoned.contains(&region) => RegionCondition::Cordoned,
                    false => RegionCondition::Usable,
                };
                let _ = self.inventory.set_condition(&at, region, condition);
            }
        }
    }

    /// The card of a DAG's present place, if it is on this host.
    fn place_on(&self, name: &DagName, serial: u64, host: &HostId) -> Option<FleetCard> {
        let place = self.dags.get(name)?.of().place.as_ref()?;
        (place.serial == serial && place.card.host == *host).then(|| place.card.clone())
    }

    fn is_place_on(&self, name: &DagName, serial: u64, host: &HostId) -> bool {
        self.place_on(name, serial, host).is_some()
    }

    fn beat(&mut self, now: Timestamp, host: &HostId, heard: BeatContent, step: &mut FleetStep) {
        let BeatContent {
            epoch,
            sequence,
            digests,
            provided,
            missing,
            faults,
            policies,
            attachments,
            functions,
        } = heard;
        let leader = self.journal.epoch();
        let Some(state) = self.hosts.get_mut(host) else { return };
        if state.note_beat(now) {
            step.then(FleetEffect::Tell(FleetNotice::HostBack(host.clone())));
        }
        if epoch < leader {
            self.order(host, OrderKind::Greet, step);
            return;
        }
        if let Some(faults) = faults {
            self.set_faults(host, faults);
        }
        let Some(state) = self.hosts.get_mut(host) else { return };
        let was_in_step = state.is_in_step();
        let after = state.compare(sequence, &digests);
        if after.is_in_step && state.take_news() {
            let ready: Vec<(DagName, u64)> =
                state.dags().map(|(name, serial)| (name.clone(), serial)).collect();
            for (name, serial) in ready {
                if self.dags.get(&name).is_some_and(|entry| !entry.of().is_ready) {
                    // A step for each: one transaction may not have room for all.
                    let mut own = FleetStep::default();
                    self.dag_applied(&name, serial, None, &mut own);
                    self.journal.submit(own);
                }
            }
        }
        let has_all = !after.is_settled || self.provisions_digest(host) == Some(provided);
        if after.is_settled && has_all {
            let is_all = missing.len() < MISSING_MAX;
            let images = if is_all { HostImages::AllBut(missing) } else { HostImages::Unknown };
            let _ = self.inventory.set_images(host, images);
        }
        // Where orders were lost and nothing is missing, one more lets it catch up.
        if !has_all || after.has_lost && after.differ.is_empty() {
            self.order(host, OrderKind::ListProvided, step);
        }
        for card in after.differ {
            self.order(host, OrderKind::List(card), step);
        }
        if let Some(said) = policies {
            self.policies_reported(host, said, step);
        }
        self.attachments_beat(host, attachments, step);
        if let Some(said) = functions {
            self.functions_reported(now, host, said, step);
        }
        if !was_in_step && self.host(host).is_some_and(|state| state.is_in_step()) {
            let _ = self.inventory.set_reachable(host, true);
        }
    }

    /// Sends a host what one of its cards lacks, and has it stop what it is not to serve. Only what differs.
    fn holds(
        &mut self,
        host: &HostId,
        card: &CardId,
        dags: &BTreeMap<DagName, u64>,
        step: &mut FleetStep,
    ) {
        let desired = self.host(host).and_then(|state| state.desired(card)).cloned();
        let desired = desired.unwrap_or_default();
        for (name, serial) in dags.iter().filter(|(name, _)| !desired.contains_key(*name)) {
            // A host that was away may have it still: with machines that nobody is to cut off, unless its tenant has
            // deleted it.
            let if_detached = self.dags.get(name).is_some_and(|entry| entry.of().is_own(*serial));
            let (name, card, serial) = (name.clone(), card.clone(), *serial);
            self.order(host, OrderKind::Remove { name, card, serial, if_detached }, step);
        }
        // A step for each, behind the orders before: one transaction may not have room for all.
        self.journal.submit(std::mem::take(step));
        for (name, serial) in
            desired.iter().filter(|(name, serial)| dags.get(*name) != Some(*serial))
        {
            let mut own = FleetStep::default();
            if self.is_place_on(name, *serial, host) {
                self.not_ready(name, &mut own);
                self.order_put(name, &mut own);
            } else {
                self.leaving_is(name, card, dags.get(name).copied(), &mut own);
            }
            self.journal.submit(own);
        }
    }

    /// A card that is to serve a DAG until its place does serves it with another serial, or has forgotten it.
    fn leaving_is(
        &mut self,
        name: &DagName,
        card: &CardId,
        serves: Option<u64>,
        step: &mut FleetStep,
    ) {
        let Some(entry) = self.dags.get_mut(name) else { return };
        let leaving = &mut entry.record.value_mut().leaving;
        let Some((at, serial)) = leaving.take_if(|(at, _)| at.card == *card) else { return };
        *leaving = serves.map(|serial| (at.clone(), serial));
        step.put(crate::records::dag_key(name), entry.record.bytes());
        let leaving = entry.of().leaving.clone();
        if let Some(state) = self.hosts.get_mut(&at.host) {
            state.desire_no_more(card, name, serial);
        }
        self.desire_leaving(leaving.as_ref(), name);
    }
}
