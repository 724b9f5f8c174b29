//! A rebalance: begun and ended by operators, and how far it is. One at a time; it holds over a change of leaders.

use snic_domain::{DagName, Timestamp};

use super::leveling::Pass;
use super::{Fleet, RequestContext};
use crate::ZoneId;
use crate::hosts::HostState;
use crate::journal::FleetStep;
use crate::placement::{LevelRule, Levels};
use crate::protocol::{
    Denied, FleetEffect, FleetNotice, FleetReply, LoadRange, RebalanceOutcome, RebalanceProgress,
};
use crate::records::{REBALANCE, RebalanceEnd, RebalanceRecord, Versioned};

/// Most DAGs that may move at a time.
const MOVES_MAX: u32 = 1_000;
/// Largest tolerance in percent.
const TOLERANCE_MAX: u32 = 50;

/// The rebalance that is under way, or the last one.
#[derive(Debug, Default)]
pub(super) struct Rebalancing {
    record: Option<Versioned<RebalanceRecord>>,
    /// Cards looked at. A new leader looks again.
    pub pass: Pass,
    /// When a DAG moved last, it began, or this leader did.
    pub progress: Timestamp,
}

impl Rebalancing {
    /// The one that goes on.
    pub fn current(&self) -> Option<&RebalanceRecord> {
        self.record.as_ref().map(Versioned::value).filter(|of| of.end.is_none())
    }
}

impl LoadRange {
    pub(super) fn of(levels: &Levels) -> Self {
        let ends = (levels.by_load().first(), levels.by_load().last());
        let (smallest, largest) = ends.0.zip(ends.1).map_or((0, 0), |(a, b)| (a.0, b.0));
        Self { smallest, mean: levels.mean(), largest }
    }
}

impl Fleet {
    pub(super) fn rebalance(
        &mut self,
        turn: &RequestContext,
        zone: Option<ZoneId>,
        (moves_max, tolerance_percent): (u32, u32),
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        if !(1..=MOVES_MAX).contains(&moves_max) {
            let wrong = format!("{moves_max} DAGs at a time; 1 to {MOVES_MAX} are allowed");
            return Err(Denied::Invalid(wrong));
        }
        if !(1..=TOLERANCE_MAX).contains(&tolerance_percent) {
            let rule = format!("1 to {TOLERANCE_MAX} are allowed");
            let wrong = format!("a tolerance of {tolerance_percent} percent; {rule}");
            return Err(Denied::Invalid(wrong));
        }
        if let Some(zone) = &zone
            && !self.hosts.values().any(|host| host.record.value().spec.zone == *zone)
        {
            return Err(Denied::NotFound(format!("zones/{zone}")));
        }
        let levels = Levels::of(&self.inventory, zone.as_ref());
        let new = RebalanceRecord {
            zone,
            moves_max,
            tolerance_percent,
            serial: self.journal.next_serial(),
            started: turn.now,
            before: LoadRange::of(&levels),
            moved: 0,
            end: None,
        };
        if turn.is_dry {
            let (after, pass, planned) = self.preview(&new, levels);
            return Ok(FleetReply::Rebalance(Box::new(RebalanceProgress {
                after,
                planned,
                ..self.progress_of(&new, &pass)
            })));
        }
        let record = match self.rebalancing.current() {
            None => new,
            Some(of) if of.zone == new.zone => {
                RebalanceRecord { moves_max, tolerance_percent, ..of.clone() }
            }
            Some(of) => {
                let of =
                    of.zone.as_ref().map_or("the fleet".into(), |zone| format!("zones/{zone}"));
                let what = format!("the rebalance of {of}");
                let why = "it goes on, and there is one at a time; stop it first".to_owned();
                return Err(Denied::Conflict { what, why });
            }
        };
        let record = Versioned::new(record);
        step.put(REBALANCE.to_owned(), record.bytes());
        self.restore_rebalance(record, turn.now);
        self.get_rebalance()
    }

    /// From a request or its record.
    pub(super) fn restore_rebalance(&mut self, record: Versioned<RebalanceRecord>, now: Timestamp) {
        let pass = Pass::default();
        self.rebalancing = Rebalancing { record: Some(record), pass, progress: now };
    }

    pub(super) fn end_rebalance(
        &mut self,
        turn: &RequestContext,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        if self.rebalancing.current().is_none() {
            return Err(Denied::NotFound("a rebalance that goes on".into()));
        }
        if !turn.is_dry {
            self.rebalance_ends(turn.now, RebalanceOutcome::Stopped, step);
        }
        self.get_rebalance()
    }

    /// Progress of the rebalance. Time O(cards × log cards).
    pub(super) fn get_rebalance(&self) -> Result<FleetReply, Denied> {
        let record = self.rebalancing.record.as_ref();
        let record = record.ok_or_else(|| Denied::NotFound("a rebalance".into()))?.value();
        let progress = self.progress_of(record, &self.rebalancing.pass);
        Ok(FleetReply::Rebalance(Box::new(progress)))
    }

    fn progress_of(&self, of: &RebalanceRecord, pass: &Pass) -> RebalanceProgress {
        let (after, stays, bound) = match &of.end {
            Some(end) => (end.loads, end.stays.clone(), end.bound.clone()),
            None => {
                let levels = Levels::of(&self.inventory, of.zone.as_ref());
                (LoadRange::of(&levels), pass.stays.clone(), pass.bound.clone())
            }
        };
        RebalanceProgress {
            zone: of.zone.clone(),
            moves_max: of.moves_max,
            tolerance_percent: of.tolerance_percent,
            outcome: of.end.as_ref().map(|end| end.outcome),
            started: of.started,
            ended: of.end.as_ref().map(|end| end.at),
            moved: of.moved,
            moving: self.moving(of.zone.as_ref()),
            before: of.before,
            after,
            stays,
            bound,
            planned: Vec::new(),
        }
    }

    /// Hosts of a zone or of the fleet.
    pub(super) fn hosts_of_zone(&self, zone: Option<&ZoneId>) -> impl Iterator<Item = &HostState> {
        let is_in =
            move |host: &&HostState| zone.is_none_or(|zone| host.record.value().spec.zone == *zone);
        self.hosts.values().filter(is_in)
    }

    /// DAGs that have a new place and are served by an old one on a host that is not to be emptied. Time O(hosts + them).
    pub(super) fn moving(&self, zone: Option<&ZoneId>) -> usize {
        let stay = self.hosts_of_zone(zone).filter(|host| !self.is_draining(host.record.value()));
        let has_place =
            |name: &&DagName| self.dags.get(*name).is_some_and(|entry| entry.of().place.is_some());
        stay.map(|host| host.leaving_names().filter(has_place).count()).sum()
    }

    /// A DAG has moved.
    pub(super) fn count_move(&mut self, now: Timestamp, step: &mut FleetStep) {
        self.rebalancing.progress = now;
        if let Some(record) = &mut self.rebalancing.record {
            record.value_mut().moved += 1;
            step.put(REBALANCE.to_owned(), record.bytes());
        }
    }

    pub(super) fn rebalance_ends(
        &mut self,
        now: Timestamp,
        outcome: RebalanceOutcome,
        step: &mut FleetStep,
    ) {
        let Some(record) = &mut self.rebalancing.record else { return };
        let levels = Levels::of(&self.inventory, record.value().zone.as_ref());
        let pass = std::mem::take(&mut self.rebalancing.pass);
        // Where all is level, nobody was to move any more.
        let is_level = outcome == RebalanceOutcome::Level;
        let Pass { stays, bound, .. } = if is_level { Pass::default() } else { pass };
        let (moved, stay) = (record.value().moved, stays.values().sum());
        let end = RebalanceEnd { outcome, at: now, loads: LoadRange::of(&levels), stays, bound };
        record.value_mut().end = Some(end);
        step.put(REBALANCE.to_owned(), record.bytes());
        step.then(FleetEffect::Tell(FleetNotice::RebalanceEnded { outcome, moved, stay }));
    }

    pub(super) fn rule_of(record: &RebalanceRecord) -> LevelRule {
        LevelRule::new(record.tolerance_percent)
    }
}
