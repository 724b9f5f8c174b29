//! Hosts that are kept empty or are emptied: each for itself, or a rack or zone at once.

use std::collections::BTreeMap;

use super::reads::BOUND_NAMES_MAX;
use super::{Fleet, RequestContext};
use crate::HostId;
use crate::hosts::HostState;
use crate::journal::FleetStep;
use crate::placement::HostSpec;
use crate::protocol::{Denied, DrainArea, DrainProgress, FleetReply, OrderKind};
use crate::records::{DrainRecord, HostRecord, RecordMeta, Versioned, drain_key, host_key};

/// Most DAGs of a drained rack or zone that may move at a time.
const MOVES_MAX: u32 = 1_000;

impl DrainArea {
    /// The areas that a host is in.
    fn of(spec: &HostSpec) -> [Self; 2] {
        [Self::Rack(spec.zone.clone(), spec.rack.clone()), Self::Zone(spec.zone.clone())]
    }
}

impl Fleet {
    pub(super) fn create_host(
        &mut self,
        turn: &RequestContext,
        host: HostId,
        spec: HostSpec,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        if self.hosts.contains_key(&host) {
            return Err(Denied::Exists(format!("hosts/{host}")));
        }
        if turn.is_dry {
            return Ok(FleetReply::Done);
        }
        let meta = RecordMeta::new(self.journal.next_serial(), turn.now);
        let record = HostRecord { host: host.clone(), spec, is_draining: false, meta };
        let record = Versioned::new(record);
        step.put(host_key(&host), record.bytes());
        self.insert_host(record, turn.now);
        self.order(&host, OrderKind::Greet, step);
        Ok(FleetReply::Done)
    }

    /// From a request or its record.
    pub(super) fn insert_host(
        &mut self,
        record: Versioned<HostRecord>,
        now: snic_domain::Timestamp,
    ) {
        let of = record.value();
        let (host, spec) = (of.host.clone(), of.spec.clone());
        self.count_capacity(&spec, true);
        self.inventory.add_host(&host, spec);
        self.hosts.insert(host.clone(), HostState::new(record, now));
        self.keep_off(&host);
    }

    pub(super) fn delete_host(
        &mut self,
        turn: &RequestContext,
        host: &HostId,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let missing = || Denied::NotFound(format!("hosts/{host}"));
        let state = self.hosts.get(host).ok_or_else(missing)?;
        let (dags, reservations) = (state.count(), self.reservations.on(host));
        if dags + reservations > 0 {
            let users = format!("{dags} DAGs and {reservations} reservations");
            return Err(Denied::InUse { what: format!("hosts/{host}"), users });
        }
        if !turn.is_dry {
            let spec = state.record.value().spec.clone();
            self.count_capacity(&spec, false);
            self.hosts.remove(host);
            let _ = self.inventory.remove_host(host);
            step.delete(host_key(host));
        }
        Ok(FleetReply::Done)
    }

    /// Cordons or drains a host, or no longer.
    pub(super) fn mark_host(
        &mut self,
        turn: &RequestContext,
        host: &HostId,
        (is_cordoned, is_draining): (bool, Option<bool>),
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let missing = || Denied::NotFound(format!("hosts/{host}"));
        let state = self.hosts.get_mut(host).ok_or_else(missing)?;
        if turn.is_dry {
            return Ok(FleetReply::Done);
        }
        let record = state.record.value_mut();
        record.spec.is_cordoned = is_cordoned;
        record.is_draining = is_draining.unwrap_or(record.is_draining) && is_cordoned;
        record.meta.change(turn.now);
        step.put(host_key(host), state.record.bytes());
        self.keep_off(host);
        if is_draining == Some(true)
            && let Some(state) = self.host(host)
        {
            self.report_bound(state, step);
        }
        Ok(FleetReply::Done)
    }

    /// Keeps new DAGs off a host where it is cordoned, or its rack or zone is drained.
    fn keep_off(&mut self, host: &HostId) {
        let Some(state) = self.hosts.get(host) else { return };
        let of = state.record.value();
        let is_off = of.spec.is_cordoned || self.is_draining(of);
        let _ = self.inventory.set_cordoned(host, is_off);
    }

    /// Whether a host's DAGs are to move away.
    pub(super) fn is_draining(&self, host: &HostRecord) -> bool {
        host.is_draining || DrainArea::of(&host.spec).iter().any(|of| self.drains.contains_key(of))
    }

    pub(super) fn drain(
        &mut self,
        turn: &RequestContext,
        area: DrainArea,
        moves_max: u32,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        if !(1..=MOVES_MAX).contains(&moves_max) {
            let wrong = format!("{moves_max} DAGs at a time; 1 to {MOVES_MAX} are allowed");
            return Err(Denied::Invalid(wrong));
        }
        if self.hosts_in(&area).next().is_none() {
            return Err(Denied::NotFound(area.to_string()));
        }
        if !turn.is_dry {
            let is_new = !self.drains.contains_key(&area);
            let record = DrainRecord { area: area.clone(), moves_max };
            step.put(drain_key(&area), Versioned::new(record.clone()).bytes());
            self.insert_drain(record);
            for host in self.hosts_in(&area).filter(|_| is_new) {
                self.report_bound(host, step);
            }
        }
        self.drain_progress(&area)
    }

    /// From a request or its record.
    pub(super) fn insert_drain(&mut self, record: DrainRecord) {
        self.drains.insert(record.area.clone(), record.moves_max);
        self.keep_off_all(&record.area);
    }

    fn keep_off_all(&mut self, area: &DrainArea) {
        let hosts = self.hosts_in(area).map(|host| host.record.value().host.clone());
        for host in hosts.collect::<Vec<_>>() {
            self.keep_off(&host);
        }
    }

    pub(super) fn end_drain(
        &mut self,
        turn: &RequestContext,
        area: &DrainArea,
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        if !self.drains.contains_key(area) {
            return Err(Denied::NotFound(format!("a drain of {area}")));
        }
        if !turn.is_dry {
            self.drains.remove(area);
            step.delete(drain_key(area));
            self.keep_off_all(area);
        }
        Ok(FleetReply::Done)
    }

    fn hosts_in(&self, area: &DrainArea) -> impl Iterator<Item = &HostState> {
        let is_in = move |host: &&HostState| {
            DrainArea::of(&host.record.value().spec).iter().any(|of| of == area)
        };
        self.hosts.values().filter(is_in)
    }

    pub(super) fn get_drain(&self, area: &DrainArea) -> Result<FleetReply, Denied> {
        if !self.drains.contains_key(area) {
            return Err(Denied::NotFound(format!("a drain of {area}")));
        }
        self.drain_progress(area)
    }

    /// Progress of a drain, real or proposed. Time O(hosts).
    fn drain_progress(&self, area: &DrainArea) -> Result<FleetReply, Denied> {
        let missing = || Denied::NotFound(format!("a drain of {area}"));
        let moves_max = self.drains.get(area).copied();
        let mut progress = DrainProgress {
            area: area.clone(),
            moves_max: moves_max.unwrap_or_default(),
            hosts: 0,
            left: 0,
            moving: 0,
            bound: Vec::new(),
            bound_count: 0,
        };
        for host in self.hosts_in(area) {
            let (bound, moving) = (host.bound().len(), host.leaving());
            progress.hosts += 1;
            progress.moving += moving;
            progress.bound_count += bound;
            progress.left += host.count() - bound - moving;
            let more = BOUND_NAMES_MAX - progress.bound.len();
            progress.bound.extend(host.bound().take(more).cloned());
        }
        if progress.hosts == 0 { Err(missing()) } else { Ok(FleetReply::Drain(progress)) }
    }

    /// Number of DAGs that may still leave each rack or zone that is drained.
    pub(super) fn drain_room(&self) -> BTreeMap<DrainArea, usize> {
        let mut room: BTreeMap<DrainArea, usize> =
            self.drains.iter().map(|(area, most)| (area.clone(), *most as usize)).collect();
        if room.is_empty() {
            return room;
        }
        for host in self.hosts.values().filter(|host| host.leaving() > 0) {
            for area in DrainArea::of(&host.record.value().spec) {
                if let Some(left) = room.get_mut(&area) {
                    *left = left.saturating_sub(host.leaving());
                }
            }
        }
        room
    }

    /// Whether one more DAG may leave a host, and counts it then.
    pub(super) fn take_drain_room(room: &mut BTreeMap<DrainArea, usize>, spec: &HostSpec) -> bool {
        if room.is_empty() {
            return true;
        }
        let areas = DrainArea::of(spec);
        if areas.iter().any(|area| room.get(area) == Some(&0)) {
            return false;
        }
        for area in &areas {
            if let Some(left) = room.get_mut(area) {
                *left -= 1;
            }
        }
        true
    }
}
