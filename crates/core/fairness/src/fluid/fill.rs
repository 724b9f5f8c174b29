//! One water-filling, fast.
//!
//! The level t rises from zero. While a tenant rises, each of its flows takes a·(t - start) of a
//! resource, for a constant a. So the use of a resource is A·t + B, and a start, a stop or a change
//! of speed adds to A and B without a look at the time in between:
//!
//! ```text
//!   starts at t:  A += a, B -= a·t          stops at t:  A -= a, B += a·t
//! ```
//!
//! Starts and ends are events in a queue. The level at which a resource fills up only has a lower
//! bound, computed as if every tenant that will ever start had started. The bounds are in a heap, and a
//! bound is refined when the level reaches it. Only contended resources, which cannot serve all loads,
//! are tracked. Their uses are listed again for each filling, tenant by tenant. Once a resource that
//! every flow uses is full, such as a port, the level stops; if that is the first resource to fill
//! up, [`super::bottleneck`] finds the level without any of this.
//!
//! Levels are floats: if noise decides a tie or an order, a rate moves by that noise and no more, since
//! rates depend continuously on levels. Rates are rounded down to whole bits per second and then
//! checked against the capacities in integers.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Range;

use super::bottleneck::{self, RateSegment};
use super::demand::{Limit, Spare};
use super::network::Network;
use super::queue::EventQueue;
use super::round::{NEARLY, Round, compare, reduce, usage_of};
use super::state::{ActiveUse, Phase, ResourceState, TenantState, UseLine, key};

/// Scratch space of the water-fillings over one network. Nothing in it outlives a filling.
#[derive(Debug, Clone)]
pub(super) struct WaterFiller {
    tenants: Vec<TenantState>,
    lines: Vec<UseLine>,
    states: Vec<ResourceState>,
    /// Rates that flows miss while they rise or wait, else zero, by position.
    missing: Vec<f64>,
    /// Uses of resources that are contended and not full at level zero, by position.
    active_uses: Vec<ActiveUse>,
    /// Number of active uses before each bottleneck use, by its index.
    active_before: Vec<u32>,
    /// Starts (even) and ends (odd) of tenants: the leading bits of the level's key, then the
    /// tenant in the lowest bits. Levels that differ by less than a fraction of 2^-31 may come in
    /// any order.
    events: EventQueue,
    /// Number of those lowest bits.
    event_bits: u32,
    /// Changed ends: level, tenant, version.
    new_ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
    bounds: BinaryHeap<Reverse<(u64, u32)>>,
    changed: Vec<u32>,
    /// Growth of the tenants in a shared bottleneck.
    segments: Vec<RateSegment>,
    /// Rates of flows at a level, or their initial growth, by position.
    reached: Vec<f64>,
    /// Used fraction of each resource at the last level.
    used: Vec<f64>,
    /// Some resource is full before any tenant rises.
    full_at_start: bool,
}

impl WaterFiller {
    pub fn new(network: &Network) -> Self {
        let tenant =
            TenantState { phase: Phase::Done, version: 0, since: 0.0, progress: 0.0, speed: 0.0 };
        let (flows, uses) = (network.flow_count(), network.bottleneck_uses.items().len());
        Self {
            tenants: vec![tenant; network.weights.len()],
            lines: vec![UseLine::default(); network.capacities.len()],
            states: vec![ResourceState::default(); network.capacities.len()],
            missing: vec![0.0; flows],
            active_uses: vec![ActiveUse::default(); uses],
            active_before: vec![0; uses + 1],
            events: EventQueue::default(),
            event_bits: (2 * network.weights.len() as u64 + 1).ilog2() + 1,
            new_ends: BinaryHeap::new(),
            bounds: BinaryHeap::new(),
            changed: Vec::new(),
            segments: Vec::new(),
            reached: vec![0.0; flows],
            used: vec![0.0; network.capacities.len()],
            full_at_start: false,
        }
    }

    /// Fills `round.got` and `round.limits`. `round` is counted and feasible.
    pub fn run(&mut self, network: &Network, round: &mut Round, spare: Spare) {
        round.got.clone_from(&round.want);
        round.limits.clear();
        round.limits.resize(round.want.len(), Limit::Load);
        if self.init_resources(network, round) {
            Sweep { fill: self, network, round, level: 0.0 }.run(spare);
            self.trim(network, round);
        }
    }

    /// Initialises the resources; returns whether any of them is contended.
    fn init_resources(&mut self, network: &Network, round: &Round) -> bool {
        self.bounds.clear();
        self.new_ends.clear();
        self.events.clear();
        for (k, line) in self.lines.iter_mut().enumerate() {
            let [given, want] = round.fractions[k];
            let contended = compare(network, k, want, &round.want) == Ordering::Greater;
            let full = contended && compare(network, k, given, &round.given) != Ordering::Less;
            *line = UseLine { base: given, ..UseLine::default() };
            self.states[k] = ResourceState { contended, full, bound_is_stale: false };
        }
        self.full_at_start = self.states.iter().any(|state| state.full);
        self.states.iter().any(|state| state.contended)
    }

    /// Queues the start and the end of a tenant.
    fn push_events(&mut self, index: usize) {
        let tenant = &self.tenants[index];
        if tenant.phase == Phase::Done {
            return;
        }
        for (level, ends) in [(tenant.since, 0), (tenant.end(), 1)] {
            // A level is never negative: its sign bit is free.
            let level = (key(level) << 1) >> self.event_bits << self.event_bits;
            self.events.push(level | (index as u64) << 1 | ends);
        }
    }

    /// Lists the uses of contended resources that are not full. No branch depends on loads: each
    /// use is written, and the next one overwrites it if it does not count.
    fn list_active_uses(&mut self, network: &Network) {
        for (index, tenant) in self.tenants.iter().enumerate() {
            for position in network.flows.range(index..index + 1) {
                self.reached[position] = self.missing[position] * tenant.speed;
            }
        }
        let mut count = 0;
        for (at, u) in network.bottleneck_uses.items().iter().enumerate() {
            let (k, position) = (u.resource as usize, u.position as usize);
            let rise = self.reached[position];
            self.active_before[at] = count as u32;
            let fraction = self.missing[position] * u.fraction;
            self.active_uses[count] = ActiveUse { resource: u.resource, fraction };
            self.lines[k].rate_max += rise * u.fraction;
            let state = self.states[k];
            count += usize::from(state.contended & !state.full & (rise > 0.0));
        }
        self.active_before[network.bottleneck_uses.items().len()] = count as u32;
    }

    /// Range of the active uses of the flows at some neighbouring positions.
    fn active_range(&self, network: &Network, positions: Range<usize>) -> Range<usize> {
        let uses = network.bottleneck_uses.range(positions);
        self.active_before[uses.start] as usize..self.active_before[uses.end] as usize
    }

    /// Takes back what rounding may have given too much: the same number of bits per second from
    /// each flow that has more than it was given.
    fn trim(&self, network: &Network, round: &mut Round) {
        for (k, used) in self.used.iter().enumerate() {
            let ResourceState { full, contended, .. } = self.states[k];
            if !full && (!contended || *used < 1.0 - NEARLY) {
                continue;
            }
            loop {
                let excess =
                    usage_of(network, k, &round.got).saturating_sub(network.capacity_scaled(k));
                if excess == 0 || !reduce(network.users.of(k), k as u32, excess, round) {
                    break; // it fits, or only the given rates are left, which are feasible
                }
            }
        }
    }
}

/// A tenant starts to rise, or all its load is served.
#[derive(Debug, Clone, Copy)]
struct Event {
    level: f64,
    tenant: usize,
    version: u32,
    ends: bool,
    /// Whether it is in the queue; otherwise in the heap of changed ends.
    queued: bool,
}

/// One rise of the level.
struct Sweep<'a> {
    fill: &'a mut WaterFiller,
    network: &'a Network,
    round: &'a mut Round,
    /// All events up to this level are processed.
    level: f64,
}

impl Sweep<'_> {
    /// Raises the level until no tenant rises, and sums up what is used there.
    fn run(mut self, spare: Spare) {
        for tenant in 0..self.fill.tenants.len() {
            self.init_tenant(tenant, spare);
        }
        if !self.stop_at_shared_bottleneck() {
            self.sweep();
            for (used, line) in self.fill.used.iter_mut().zip(&self.fill.lines) {
                *used = line.rate * self.level + line.base;
            }
        }
    }

    /// Raises the level from event to event.
    fn sweep(&mut self) {
        for tenant in 0..self.fill.tenants.len() {
            self.fill.push_events(tenant);
        }
        self.fill.list_active_uses(self.network);
        self.fill.events.sort_into_buckets();
        for k in 0..self.fill.lines.len() {
            self.push_bound(k);
        }
        while let Some(event) = self.earliest() {
            if let Some((resource, full)) = self.full_before(event.level) {
                // Noise may put this level before events that were already processed.
                self.level = self.level.max(full);
                if self.network.is_shared_bottleneck(resource) {
                    self.stop_all(resource);
                    break;
                }
                self.saturate(resource);
                continue;
            }
            self.level = event.level;
            self.process(event);
            if event.queued {
                self.fill.events.advance();
            } else {
                self.fill.new_ends.pop();
            }
        }
    }

    /// The earlier of the first event in the queue and the first changed end, without stale ones.
    fn earliest(&mut self) -> Option<Event> {
        let queued = loop {
            let Some(event) = self.fill.events.first() else { break None };
            let tenant = (event & ((1 << self.fill.event_bits) - 1)) as usize >> 1;
            let ends = event & 1 == 1;
            let at = &self.fill.tenants[tenant];
            let level = if ends { at.end() } else { at.since };
            let event = Event { level, tenant, version: 0, ends, queued: true };
            if !self.is_stale(event) {
                break Some(event);
            }
            self.fill.events.advance();
        };
        let changed = loop {
            let Some(&Reverse((at, tenant, version))) = self.fill.new_ends.peek() else {
                break None;
            };
            let (level, tenant) = (f64::from_bits(at), tenant as usize);
            let event = Event { level, tenant, version, ends: true, queued: false };
            if !self.is_stale(event) {
                break Some(event);
            }
            self.fill.new_ends.pop();
        };
        match (queued, changed) {
            (Some(queued), Some(changed)) if changed.level < queued.level => Some(changed),
            (Some(event), _) | (None, Some(event)) => Some(event),
            (None, None) => None,
        }
    }

    /// Whether the tenant is done, or its end has changed since.
    fn is_stale(&self, event: Event) -> bool {
        let tenant = &self.fill.tenants[event.tenant];
        tenant.phase == Phase::Done || (event.ends && tenant.version != event.version)
    }

    /// Initialises one tenant and its flows.
    fn init_tenant(&mut self, index: usize, spare: Spare) {
        let positions = self.network.flows.range(index..index + 1);
        let (mut charge, mut share) = (0.0, 0.0);
        for position in positions {
            let flow = self.network.flows.items()[position] as usize;
            let dominant = self.network.dominant[flow];
            share += self.round.amounts[position][0] * dominant;
            let missing = self.init_flow(flow, position);
            self.fill.missing[position] = missing;
            charge += missing * dominant;
        }
        let weight = f64::from(self.network.weights[index].get());
        let start = match spare {
            Spare::LevelShares => share / weight,
            Spare::ByWeight => 0.0,
        };
        let asks = charge > 0.0;
        let speed = if asks { weight / charge } else { 0.0 };
        let phase = if asks { Phase::Waiting } else { Phase::Done };
        let tenant = TenantState { phase, version: 0, since: start, progress: 0.0, speed };
        self.fill.tenants[index] = tenant;
    }

    /// The rate that `flow` misses and might get. A flow that uses a full resource keeps its given
    /// rate.
    fn init_flow(&mut self, flow: usize, position: usize) -> f64 {
        let missing = self.round.want[flow] - self.round.given[flow];
        let uses = self.network.bottleneck_uses.of(position);
        if missing == 0 || uses.is_empty() {
            return 0.0;
        }
        if !self.fill.full_at_start {
            return missing as f64;
        }
        match uses.iter().find(|u| self.fill.states[u.resource as usize].full) {
            Some(u) => {
                self.round.got[flow] = self.round.given[flow];
                self.round.limits[flow] = Limit::Resource(u.resource);
                0.0
            }
            None => missing as f64,
        }
    }

    /// Pushes a lower bound of the level at which `k` is full.
    fn push_bound(&mut self, k: usize) {
        let (line, state) = (&mut self.fill.lines[k], self.fill.states[k]);
        if !state.contended || state.full || line.rate_max <= 0.0 {
            return;
        }
        let rest = 1.0 - line.rate * self.level - line.base;
        line.bound = key(self.level + (rest / line.rate_max).max(0.0));
        self.fill.bounds.push(Reverse((line.bound, k as u32)));
    }

    /// The first resource that is full before `level`, and the level at which it is full.
    fn full_before(&mut self, level: f64) -> Option<(usize, f64)> {
        while let Some(&Reverse((bound, k))) = self.fill.bounds.peek() {
            if bound >= key(level) {
                return None;
            }
            self.fill.bounds.pop();
            let line = &mut self.fill.lines[k as usize];
            if line.bound != bound || self.fill.states[k as usize].full {
                continue;
            }
            if line.rate * level + line.base > 1.0 && line.rate > 0.0 {
                let full = (1.0 - line.base) / line.rate;
                let next = self.fill.bounds.peek();
                if bound == key(full) || next.is_none_or(|next| next.0.0 >= key(full)) {
                    return Some((k as usize, full));
                }
                // Another resource may be full earlier: look at that first.
                line.bound = key(full);
                self.fill.bounds.push(Reverse((line.bound, k)));
                continue;
            }
            // It is not full at `level`: compute a new bound from there.
            let rest = 1.0 - line.rate * level - line.base;
            if line.rate_max > 0.0 {
                line.bound = key(level + (rest / line.rate_max).max(0.0));
                self.fill.bounds.push(Reverse((line.bound, k)));
            }
        }
        None
    }

    /// Processes an event: the tenant starts to rise, or all its load is served.
    fn process(&mut self, event: Event) {
        let positions = self.network.flows.range(event.tenant..event.tenant + 1);
        let active = self.fill.active_range(self.network, positions);
        let tenant = &mut self.fill.tenants[event.tenant];
        let (level, speed) = (event.level, tenant.speed);
        // By how much the rate and its upper bound change.
        let (rate, rate_max) = if event.ends { (-speed, -speed) } else { (speed, 0.0) };
        if event.ends {
            tenant.phase = Phase::Done;
        } else {
            (tenant.phase, tenant.since) = (Phase::Rising, level);
            if tenant.version > 0 {
                let end = (key(tenant.end()), event.tenant as u32, tenant.version);
                self.fill.new_ends.push(Reverse(end));
            }
        }
        for u in &self.fill.active_uses[active] {
            let line = &mut self.fill.lines[u.resource as usize];
            line.change_rate(u.fraction * rate, level);
            line.rate_max += u.fraction * rate_max;
        }
    }

    /// If a resource that every flow uses is the first to fill up, stops every flow there. Returns
    /// whether it did.
    fn stop_at_shared_bottleneck(&mut self) -> bool {
        let (fill, network) = (&mut *self.fill, self.network);
        let open = |k: usize| fill.states[k].contended && !fill.states[k].full;
        let wanted = |k: u32| self.round.fractions[k as usize][1];
        let shared_bottlenecks = network
            .shared_bottlenecks
            .iter()
            .filter(|bottleneck| open(bottleneck.resource as usize));
        let most =
            shared_bottlenecks.max_by(|a, b| wanted(a.resource).total_cmp(&wanted(b.resource)));
        let Some(bottleneck) = most else { return false };
        fill.segments.clear();
        for (index, tenant) in fill.tenants.iter().enumerate() {
            let positions = network.flows.range(index..index + 1);
            let uses = fill.missing[positions.clone()].iter().zip(&bottleneck.fractions[positions]);
            let fraction: f64 = uses.map(|(missing, fraction)| missing * fraction).sum();
            if tenant.phase != Phase::Done {
                let (start, end) = (tenant.since, tenant.end());
                let rate = fraction * tenant.speed;
                fill.segments.push(RateSegment { start, end, fraction, rate });
            }
        }
        let k = bottleneck.resource as usize;
        let level = bottleneck::level_at_full(&fill.segments, fill.lines[k].base);
        let Some(level) = level.filter(|level| self.is_first(k, *level)) else { return false };
        self.level = level;
        self.stop_all(k);
        true
    }

    /// Sums up all rates at `level`; returns whether no resource but `bottleneck` is over its
    /// capacity.
    fn is_first(&mut self, bottleneck: usize, level: f64) -> bool {
        let (fill, network) = (&mut *self.fill, self.network);
        for (index, tenant) in fill.tenants.iter().enumerate() {
            let progress = tenant.progress_at(level);
            for position in network.flows.range(index..index + 1) {
                let given = self.round.amounts[position][0];
                fill.reached[position] = given + fill.missing[position] * progress;
            }
        }
        for (k, used) in fill.used.iter_mut().enumerate() {
            let uses = network.unshared_uses.of(k).iter();
            *used = uses.map(|u| fill.reached[u.position as usize] * u.fraction).sum();
        }
        for bottleneck in &network.shared_bottlenecks {
            let uses = fill.reached.iter().zip(&bottleneck.fractions);
            fill.used[bottleneck.resource as usize] =
                uses.map(|(reached, fraction)| reached * fraction).sum();
        }
        let over = |k: usize| k != bottleneck && fill.states[k].contended && !fill.states[k].full;
        !(0..fill.used.len()).any(|k| over(k) && fill.used[k] > 1.0)
    }

    /// Stops every flow: all use `resource`, which is full.
    fn stop_all(&mut self, resource: usize) {
        self.fill.states[resource].full = true;
        for index in 0..self.fill.tenants.len() {
            let tenant = self.fill.tenants[index];
            let progress = tenant.progress_at(self.level);
            if tenant.phase == Phase::Done || progress >= 1.0 {
                continue;
            }
            for position in self.network.flows.range(index..index + 1) {
                if self.fill.missing[position] > 0.0 {
                    self.record_rate(position, progress, resource as u32);
                }
            }
        }
    }

    /// Stops all users of `resource`; their tenants' other flows rise faster from here on.
    fn saturate(&mut self, resource: usize) {
        self.fill.states[resource].full = true;
        let mut last = None;
        // Flows of a tenant need not be neighbours among the users. The speed of such a tenant is
        // updated twice, the second time from the state that the first update left.
        for &(flow, _) in self.network.users.of(resource) {
            let tenant = self.network.tenant_of[flow as usize] as usize;
            let position = self.network.position_of[flow as usize] as usize;
            let at = &self.fill.tenants[tenant];
            if self.fill.missing[position] <= 0.0 || at.phase == Phase::Done {
                continue;
            }
            let progress = at.progress_at(self.level);
            if let Some(before) = last.filter(|&before| before != tenant) {
                self.change_speed(before);
            }
            last = Some(tenant);
            self.record_rate(position, progress, resource as u32);
            self.stop(position, tenant);
        }
        if let Some(tenant) = last {
            self.change_speed(tenant);
        }
        while let Some(k) = self.fill.changed.pop() {
            self.fill.states[k as usize].bound_is_stale = false;
            self.push_bound(k as usize);
        }
    }

    /// Records the rate of a flow that stops with this part of its missing rate.
    fn record_rate(&mut self, position: usize, progress: f64, full: u32) {
        let flow = self.network.flows.items()[position] as usize;
        let part = self.fill.missing[position] * progress;
        // A float may be just below a whole number; `trim` takes back what this gives too much.
        let bits = (part * (1.0 + 1e-12) + 1e-6) as u64;
        let (given, want) = (self.round.given[flow], self.round.want[flow]);
        self.round.got[flow] = given.saturating_add(bits).min(want);
        self.round.limits[flow] = Limit::Resource(full);
    }

    /// Removes a flow from all resources that it uses.
    fn stop(&mut self, position: usize, tenant: usize) {
        let active = self.fill.active_range(self.network, position..position + 1);
        let tenant = self.fill.tenants[tenant];
        let now = if tenant.phase == Phase::Rising { tenant.speed } else { 0.0 };
        self.fill.missing[position] = 0.0;
        for u in &mut self.fill.active_uses[active] {
            let line = &mut self.fill.lines[u.resource as usize];
            let fraction = std::mem::take(&mut u.fraction);
            line.change_rate(-fraction * now, self.level);
            line.rate_max -= fraction * tenant.speed;
        }
    }

    /// Divides the growth of a tenant among its remaining flows.
    fn change_speed(&mut self, index: usize) {
        let positions = self.network.flows.range(index..index + 1);
        let flows = &self.network.flows.items()[positions.clone()];
        let charges = flows.iter().zip(&self.fill.missing[positions.clone()]);
        let charge: f64 =
            charges.map(|(flow, missing)| missing * self.network.dominant[*flow as usize]).sum();
        let active = self.fill.active_range(self.network, positions);
        let tenant = &mut self.fill.tenants[index];
        if charge <= 0.0 {
            tenant.phase = Phase::Done;
            return;
        }
        let rising = tenant.phase == Phase::Rising;
        let before = tenant.speed;
        if rising {
            tenant.progress = tenant.progress_at(self.level);
            tenant.since = self.level;
        }
        tenant.speed = f64::from(self.network.weights[index].get()) / charge;
        tenant.version += 1;
        let (faster, version, end) = (tenant.speed - before, tenant.version, tenant.end());
        if rising {
            self.fill.new_ends.push(Reverse((key(end), index as u32, version)));
        }
        let now = if rising { faster } else { 0.0 };
        for u in self.fill.active_uses[active].iter().filter(|u| u.fraction > 0.0) {
            let line = &mut self.fill.lines[u.resource as usize];
            line.change_rate(u.fraction * now, self.level);
            line.rate_max += u.fraction * faster;
            let state = &mut self.fill.states[u.resource as usize];
            if !state.full && !state.bound_is_stale {
                state.bound_is_stale = true;
                self.fill.changed.push(u.resource);
            }
        }
    }
}
