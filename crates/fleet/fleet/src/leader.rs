//! One replica of the fleet: it keeps a copy of all records, leads once it is elected, and until it is not.
//!
//! ```text
//! Standby ── Elected ──► Loading ── the copy is complete ──► Leading ── etcd refuses to write ──► Leading, frozen
//!    ▲                      │                                   │  ▲                                  │
//!    └──────────────────────┴─────── Deposed, fenced off ───────┘  └───────── etcd accepts again ─────┘
//! ```
//!
//! A leader that etcd refuses is [frozen](crate::frozen): it reads and answers, and changes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use snic_domain::{TenantId, Timestamp};
use snic_etcd::{Answer, Failed};

use crate::fleet::{Fleet, FleetSettings};
use crate::frozen_state::FrozenState;
use crate::journal::{EtcdOutcome, FleetStep};
use crate::placement::Inventory;
use crate::protocol::{
    Denied, Epoch, FleetAsk, FleetCall, FleetEffect, FleetEvent, FleetGauges, FleetNotice,
    FleetReply, FleetUsage, StoreRefusal,
};
use crate::standby::{FollowOutcome, RecordCopy};

/// Most requests that wait for etcd, and most of one tenant, so that others have their part.
const WAITING_MAX: usize = 4_096;
const WAITING_OF_A_TENANT_MAX: usize = 256;
/// Time that a request waits for an image on its way to hosts, or for hosts that this leader is about to hear,
/// before it is refused.
pub(crate) const PLACE_WAIT: Duration = Duration::from_secs(10);
/// Longest time between two events that counts for leases of hosts and reservations. Ticks come ten times a second, so
/// behind a longer one the replica did not run, and could hear nobody.
const EVENT_GAP_MAX: Duration = Duration::from_secs(1);
/// Most requests that wait so, and most of them that one tick tries again.
const PLACE_WAITS_MAX: usize = 256;
const PLACE_TRIES_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct LeaderState {
    pub fleet: Fleet,
    /// Callers that wait for what is not durable yet.
    calls: BTreeMap<FleetCall, Option<TenantId>>,
    by_tenant: BTreeMap<Option<TenantId>, usize>,
    /// Requests that are tried again until this time, for images are on their way to hosts, or hosts are about to be
    /// heard. Nothing was done for them.
    pub for_places: VecDeque<(Timestamp, FleetCall, FleetAsk)>,
    /// Set while etcd refuses what is to be written.
    pub frozen: Option<FrozenState>,
}

#[derive(Debug)]
enum Role {
    Standby(RecordCopy),
    /// With its election key.
    Loading(String, Epoch, RecordCopy),
    Leading(Box<LeaderState>),
}

#[derive(Debug)]
pub struct Replica {
    settings: FleetSettings,
    role: Role,
    /// The number of the last request to etcd.
    number: u64,
    is_awaiting: bool,
    /// Time never goes back here, whatever the machine's clock does.
    now: Timestamp,
}

impl Replica {
    /// A replica that does not lead.
    pub const fn new(settings: FleetSettings) -> Self {
        let (number, is_awaiting, now) = (0, false, Timestamp::ZERO);
        let role = Role::Standby(RecordCopy::new(true));
        Self { settings, role, number, is_awaiting, now }
    }

    /// Effects of an event.
    pub fn handle(&mut self, now: Timestamp, event: FleetEvent) -> Vec<FleetEffect> {
        self.pass_unheard(now);
        self.now = self.now.max(now);
        if let Role::Leading(leading) = &mut self.role {
            leading.fleet.now = self.now;
        }
        let mut effects = Vec::new();
        match event {
            FleetEvent::Elected { key, created } => {
                self.end(&mut effects);
                let role = std::mem::replace(&mut self.role, Role::Standby(RecordCopy::new(true)));
                if let Role::Standby(following) = role {
                    self.role = Role::Loading(key, Epoch(created.0), following.elected());
                }
                self.is_awaiting = false;
            }
            FleetEvent::Deposed => self.end(&mut effects),
            FleetEvent::Etcd { number, result } if number == self.number && self.is_awaiting => {
                self.is_awaiting = false;
                self.answered(result, &mut effects);
            }
            FleetEvent::Etcd { .. } => {}
            FleetEvent::Watched(told) => {
                if let Role::Standby(following) | Role::Loading(_, _, following) = &mut self.role {
                    self.is_awaiting &= !following.apply_update(told);
                }
                self.begin_if_complete(&mut effects);
            }
            FleetEvent::Ask { call, ask } => self.ask(call, ask, &mut effects),
            FleetEvent::Report { host, report } => {
                let now = self.now;
                let frozen = self.memory_counts();
                let is_stale = self.lead(|fleet, step| match frozen {
                    None => !fleet.report(now, &host, report, step),
                    Some(memory_counts) => !fleet.listen(now, &host, (report, memory_counts), step),
                });
                if is_stale == Some(true) {
                    self.end(&mut effects);
                    effects.push(FleetEffect::StepDown);
                }
            }
            FleetEvent::Tick => self.tick(&mut effects),
        }
        self.collect_effects(&mut effects);
        effects
    }

    fn tick(&mut self, effects: &mut Vec<FleetEffect>) {
        let now = self.now;
        match self.memory_counts() {
            None => {
                self.lead(|fleet, step| fleet.pass_time(now, step));
            }
            Some(true) => {
                self.lead(|fleet, step| fleet.watch_hosts(now, step));
            }
            Some(false) => {}
        }
        let is_anew = match &mut self.role {
            Role::Standby(following) => following.tick(false),
            Role::Loading(_, _, following) => following.tick(true),
            Role::Leading(leading) => {
                leading.try_again(now);
                leading.tick_frozen(now, effects);
                false
            }
        };
        self.is_awaiting &= !is_anew;
    }

    /// Whether a frozen leader's memory is what is stored; `None`: it is not frozen.
    fn memory_counts(&self) -> Option<bool> {
        match &self.role {
            Role::Leading(leading) => leading.frozen.as_ref().map(FrozenState::memory_counts),
            Role::Standby(_) | Role::Loading(..) => None,
        }
    }

    /// Why etcd refuses what is to be written or read, if it does.
    pub fn refusal(&self) -> Option<&StoreRefusal> {
        match &self.role {
            Role::Leading(leading) => leading.frozen.as_ref().map(FrozenState::refusal),
            Role::Standby(following) | Role::Loading(_, _, following) => following.refusal(),
        }
    }

    /// Whether it leads, and has read all records.
    pub const fn epoch(&self) -> Option<Epoch> {
        match &self.role {
            Role::Leading(leading) => Some(leading.fleet.journal.epoch()),
            Role::Standby(_) | Role::Loading(..) => None,
        }
    }

    /// Decisions of a leader, durable or not yet.
    pub fn inventory(&self) -> Option<&Inventory> {
        self.fleet().map(Fleet::inventory)
    }

    /// Usage of a tenant's DAGs, at the leader.
    pub fn usage(&self, tenant: &TenantId) -> Option<FleetUsage> {
        self.fleet()?.usage(tenant)
    }

    /// A tenant's largest part of bandwidth or area of all cards, divided by its weight, in thousand-millionths; at the
    /// leader.
    pub fn dominant_share_ppb(&self, tenant: &TenantId) -> Option<u64> {
        self.fleet()?.dominant_share_ppb(tenant)
    }

    /// State for metrics, at the leader. Time O(hosts + tenants + projects).
    pub fn gauges(&self) -> Option<FleetGauges> {
        match &self.role {
            Role::Leading(leading) => Some(leading.fleet.gauges(leading.calls.len())),
            Role::Standby(_) | Role::Loading(..) => None,
        }
    }

    /// Number of DAGs without a place, at the leader.
    pub fn unplaced(&self) -> usize {
        self.fleet().map_or(0, Fleet::unplaced)
    }

    /// Recomputes what follows from the records.
    ///
    /// # Errors
    ///
    /// The first difference, as text. This is a bug, never a consequence of input.
    pub fn check(&self) -> Result<(), String> {
        self.fleet().map_or(Ok(()), Fleet::check)
    }

    const fn fleet(&self) -> Option<&Fleet> {
        match &self.role {
            Role::Leading(leading) => Some(&leading.fleet),
            Role::Standby(_) | Role::Loading(..) => None,
        }
    }

    /// Time in which a leader did not run, before an event that comes `now`, is no reason to take a host for lost.
    fn pass_unheard(&mut self, now: Timestamp) {
        let unheard = now.since(self.now).saturating_sub(EVENT_GAP_MAX);
        if let Role::Leading(leading) = &mut self.role
            && !unheard.is_zero()
        {
            leading.fleet.pass_unheard(unheard);
            leading.for_places.iter_mut().for_each(|(until, ..)| *until = *until + unheard);
        }
    }

    /// One step of a leader.
    fn lead<T>(&mut self, work: impl FnOnce(&mut Fleet, &mut FleetStep) -> T) -> Option<T> {
        let Role::Leading(leading) = &mut self.role else { return None };
        let mut step = FleetStep::default();
        let done = work(&mut leading.fleet, &mut step);
        leading.fleet.journal.submit(step);
        Some(done)
    }

    fn ask(&mut self, call: FleetCall, ask: FleetAsk, effects: &mut Vec<FleetEffect>) {
        let now = self.now;
        let denied = match &mut self.role {
            Role::Leading(leading) => {
                let waiting = leading.calls.len();
                let own = leading.by_tenant.get(&ask.tenant).copied().unwrap_or_default();
                if waiting < WAITING_MAX && own < WAITING_OF_A_TENANT_MAX {
                    leading.ask(now, call, ask);
                    return;
                }
                Denied::Busy { waiting: own }
            }
            Role::Standby(_) | Role::Loading(..) => Denied::NotLeader,
        };
        effects.push(FleetEffect::Reply { call, result: Err(denied) });
    }

    fn answered(&mut self, result: Result<Answer, Failed>, effects: &mut Vec<FleetEffect>) {
        match &mut self.role {
            Role::Standby(following) | Role::Loading(_, _, following) => {
                if let FollowOutcome::Read(watch) = following.answered(self.now, result) {
                    effects.push(FleetEffect::Watch(watch));
                }
                self.begin_if_complete(effects);
            }
            Role::Leading(leading) if leading.is_reading() => {
                if let Err(wrong) = leading.read_again((self.settings, self.now), result, effects) {
                    effects.push(FleetEffect::Tell(FleetNotice::CannotLead(wrong)));
                    self.end(effects);
                    effects.push(FleetEffect::StepDown);
                }
            }
            Role::Leading(leading) => match leading.fleet.journal.answered(self.now, result) {
                EtcdOutcome::Open => {}
                EtcdOutcome::Durable(released) => {
                    leading.release(released, effects);
                    leading.thaw(effects);
                }
                EtcdOutcome::Refused(refused) => leading.freeze(self.now, refused, effects),
                EtcdOutcome::Deposed => {
                    self.end(effects);
                    effects.push(FleetEffect::StepDown);
                }
            },
        }
    }

    /// Leads, if it is elected and all records are there.
    fn begin_if_complete(&mut self, effects: &mut Vec<FleetEffect>) {
        if !matches!(&self.role, Role::Loading(_, _, following) if following.is_complete()) {
            return;
        }
        let standby = Role::Standby(RecordCopy::new(true));
        let Role::Loading(key, epoch, following) = std::mem::replace(&mut self.role, standby)
        else {
            return;
        };
        let records = following.into_records();
        match Fleet::restore((self.settings, self.now), (key, epoch), &records) {
            Ok(fleet) => {
                let (calls, by_tenant) = (BTreeMap::new(), BTreeMap::new());
                let for_places = VecDeque::new();
                let frozen = None;
                let leading = LeaderState { fleet, calls, by_tenant, for_places, frozen };
                self.role = Role::Leading(Box::new(leading));
                self.lead(Fleet::greet);
            }
            Err(wrong) => {
                effects.push(FleetEffect::Tell(FleetNotice::CannotLead(wrong)));
                effects.push(FleetEffect::StepDown);
            }
        }
    }

    /// Collects what can be done now.
    fn collect_effects(&mut self, effects: &mut Vec<FleetEffect>) {
        let request = match &mut self.role {
            Role::Standby(_) | Role::Loading(..) if self.is_awaiting => None,
            Role::Standby(following) => following.request(false),
            Role::Loading(_, _, following) => following.request(true),
            Role::Leading(leading) => {
                let (released, request) = leading.fleet.journal.next(self.now);
                leading.release(released, effects);
                match leading.is_reading() {
                    true if self.is_awaiting => None,
                    true => leading.next_page(),
                    false => request,
                }
            }
        };
        if let Some(request) = request {
            self.number += 1;
            self.is_awaiting = true;
            effects.push(FleetEffect::Etcd { number: self.number, request });
        }
    }

    /// It leads no more: who waits is told what is known. Orders that are not durable are never sent.
    fn end(&mut self, effects: &mut Vec<FleetEffect>) {
        let following = RecordCopy::new(true);
        let role = match std::mem::replace(&mut self.role, Role::Standby(following)) {
            standby @ Role::Standby(_) => {
                self.role = standby;
                return;
            }
            role => role,
        };
        self.is_awaiting = false;
        let Role::Leading(leading) = role else { return };
        let waiting = leading.for_places.into_iter().map(|(_, call, _)| call);
        let for_records = leading.frozen.into_iter().flat_map(FrozenState::into_calls);
        for call in waiting.chain(for_records) {
            effects.push(FleetEffect::Reply { call, result: Err(Denied::NotLeader) });
        }
        let (open, not_begun) = leading.fleet.journal.end();
        for (of, denied) in [(open, Denied::Open), (not_begun, Denied::NotLeader)] {
            for effect in of {
                if let FleetEffect::Reply { call, .. } = effect {
                    effects.push(FleetEffect::Reply { call, result: Err(denied.clone()) });
                }
            }
        }
    }
}

impl LeaderState {
    fn ask(&mut self, now: Timestamp, call: FleetCall, ask: FleetAsk) {
        *self.by_tenant.entry(ask.tenant.clone()).or_default() += 1;
        self.calls.insert(call, ask.tenant.clone());
        let Some(ask) = self.keep_for_records(call, ask) else { return };
        self.carry_out(now, call, (ask, now + PLACE_WAIT));
    }

    /// Carries out a request, or keeps it until `until` where an image or a host may arrive.
    pub fn carry_out(
        &mut self,
        now: Timestamp,
        call: FleetCall,
        (ask, until): (FleetAsk, Timestamp),
    ) {
        let mut step = FleetStep::default();
        let mut result = match self.refused_now(&ask) {
            Some(refused) => refused,
            None => self.fleet.ask(now, ask.clone(), &mut step),
        };
        if let Ok(FleetReply::Fleet(counts)) = &mut result {
            counts.store_refusal = self.frozen.as_ref().map(|frozen| frozen.refusal().clone());
        }
        let waits = !ask.validate_only
            && result.as_ref().is_err_and(|denied| self.fleet.may_pass(denied))
            && now < until
            && self.for_places.len() < PLACE_WAITS_MAX;
        if waits {
            self.for_places.push_back((until, call, ask));
            return;
        }
        step.then(FleetEffect::Reply { call, result });
        self.fleet.journal.submit(step);
    }

    /// Some of the requests that wait for a place.
    fn try_again(&mut self, now: Timestamp) {
        if self.is_reading() {
            return;
        }
        for _ in 0..self.for_places.len().min(PLACE_TRIES_MAX) {
            let Some((until, call, ask)) = self.for_places.pop_front() else { return };
            self.carry_out(now, call, (ask, until));
        }
    }

    pub fn release(&mut self, released: Vec<FleetEffect>, effects: &mut Vec<FleetEffect>) {
        for effect in released {
            if let FleetEffect::Reply { call, .. } = &effect
                && let Some(tenant) = self.calls.remove(call)
                && let Some(count) = self.by_tenant.get_mut(&tenant)
            {
                *count -= 1;
                if *count == 0 {
                    self.by_tenant.remove(&tenant);
                }
            }
            effects.push(effect);
        }
    }
}
