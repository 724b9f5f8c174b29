//! One water-filling, fast.
//!
//! The level t rises from zero. While a tenant rises, each of its flows takes a·(t - start) of a
//! resource, a constant; so a resource's use is A·t + B, and a start, a stop or a change of
//! speed adds to A and B and needs no look at the time in between:
//!
//! ```text
//!   starts at t:  A += a, B -= a·t          stops at t:  A -= a, B += a·t
//! ```
//!
//! Starts and ends are sorted once. When a resource fills is only bounded from below, as if
//! everybody who will ever start had started; the bounds sit in a heap, and one is looked at again
//! when the level reaches it. Only resources that could not serve all loads are followed at all.
//!
//! Levels are floats: a tie or an order decided by noise moves a rate by the noise and no more,
//! since rates depend continuously on levels. Rates are rounded down to whole bits per second and
//! then checked against the capacities in integers.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::network::{Network, Use};
use super::solver::{Limit, Spare};

/// What one water-filling is asked, and what it answers, by flow in bits per second.
#[derive(Debug, Clone, Default)]
pub(super) struct Round {
    /// What each has already; feasible.
    pub given: Vec<u64>,
    /// What each wants in all; at least what it has.
    pub want: Vec<u64>,
    /// What each gets.
    pub got: Vec<u64>,
    /// Why not more.
    pub limits: Vec<Limit>,
    /// By resource: the part of it taken by what is given and by what is wanted, to [`NEARLY`].
    parts: Vec<(f64, f64)>,
}

/// How near to a whole a sum of floats must be for integers to be asked whether it is one: the
/// error of a sum of 2^20 floats is below 2^-32 in the worst case.
const NEARLY: f64 = 1e-9;

/// What `rates` take of `resource`: exact.
fn taken(network: &Network, resource: usize, rates: &[u64]) -> u128 {
    let users = network.users.of(resource).iter();
    users.map(|&(flow, cost)| u128::from(rates[flow as usize]) * u128::from(cost)).sum()
}

/// How what `rates` take of `resource` compares with its capacity: exact.
fn compare_exactly(network: &Network, resource: usize, rates: &[u64]) -> Ordering {
    taken(network, resource, rates).cmp(&network.capacity_scaled(resource))
}

/// The same, in integers only where `part`, the float, leaves a doubt.
fn compare(network: &Network, resource: usize, part: f64, rates: &[u64]) -> Ordering {
    match () {
        () if network.capacities[resource] == 0 => compare_exactly(network, resource, rates),
        () if part < 1.0 - NEARLY => Ordering::Less,
        () if part > 1.0 + NEARLY => Ordering::Greater,
        () => compare_exactly(network, resource, rates),
    }
}

impl Round {
    pub fn new(network: &Network) -> Self {
        Self { parts: vec![(0.0, 0.0); network.capacities.len()], ..Self::default() }
    }

    /// Counts what is taken of each resource.
    pub fn count(&mut self, network: &Network) {
        self.parts.fill((0.0, 0.0));
        for (flow, (&given, &want)) in self.given.iter().zip(&self.want).enumerate() {
            let (given, want) = (given as f64, want as f64);
            for u in network.decisive.of(flow) {
                let part = &mut self.parts[u.resource as usize];
                part.0 += given * u.part;
                part.1 += want * u.part;
            }
        }
    }

    /// Whether what is given fits.
    pub fn is_feasible(&self, network: &Network) -> bool {
        self.parts
            .iter()
            .enumerate()
            .all(|(k, part)| compare(network, k, part.0, &self.given) != Ordering::Greater)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Rising,
    Done,
}

#[derive(Debug, Clone, Copy)]
struct Tenant {
    phase: Phase,
    /// Changes of speed so far: an end computed before the last one is void.
    version: u32,
    /// Progress at level t is `progress + (t - since) × speed`; while it waits, `since` is its start.
    since: f64,
    progress: f64,
    speed: f64,
}

impl Tenant {
    fn progress_at(&self, level: f64) -> f64 {
        (self.progress + (level - self.since) * self.speed).clamp(0.0, 1.0)
    }

    fn end(&self) -> f64 {
        self.since + (1.0 - self.progress) / self.speed
    }
}

/// A resource's use is `rate × t + base`; `coming` is the rate of those who have not started.
#[derive(Debug, Clone, Copy, Default)]
struct Resource {
    rate: f64,
    base: f64,
    coming: f64,
    /// Flows that rise or will.
    flows: u32,
    /// The bound of its valid entry in the heap, as bits.
    bound: u64,
    /// It could not serve all that is wanted.
    followed: bool,
    full: bool,
    touched: bool,
}

/// A level as a sort key: levels are never negative nor NaN, so their bits are in their order.
fn key(level: f64) -> u64 {
    level.max(0.0).to_bits()
}

/// The scratch space of water-fillings over one network.
#[derive(Debug, Clone)]
pub(super) struct Fill {
    tenants: Vec<Tenant>,
    resources: Vec<Resource>,
    /// By flow: what it misses while it rises or waits, else zero.
    missing: Vec<f64>,
    /// Starts (even) and ends (odd) of tenants, ascending: as much of the level's key as there is
    /// room for beside the tenant, which stands in the lowest bits. Levels that agree in 2^-31 of
    /// themselves may come in any order.
    events: Vec<u64>,
    /// How many bits those are.
    event_bits: u32,
    /// Ends that changed: level, tenant, version.
    new_ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
    bounds: BinaryHeap<Reverse<(u64, u32)>>,
    changed: Vec<u32>,
    /// Some resource is full before anybody rises.
    full_at_start: bool,
}

impl Fill {
    pub fn new(network: &Network) -> Self {
        let tenant =
            Tenant { phase: Phase::Done, version: 0, since: 0.0, progress: 0.0, speed: 0.0 };
        Self {
            tenants: vec![tenant; network.weights.len()],
            resources: vec![Resource::default(); network.capacities.len()],
            missing: vec![0.0; network.tenant_of.len()],
            events: Vec::new(),
            event_bits: (2 * network.weights.len() as u64 + 1).ilog2() + 1,
            new_ends: BinaryHeap::new(),
            bounds: BinaryHeap::new(),
            changed: Vec::new(),
            full_at_start: false,
        }
    }

    /// Fills `round.got` and `round.limits`. `round` is counted and feasible.
    pub fn run(&mut self, network: &Network, round: &mut Round, spare: Spare) {
        round.got.clone_from(&round.want);
        round.limits.clear();
        round.limits.resize(round.want.len(), Limit::Load);
        if self.enter_resources(network, round) {
            let level = Sweep { fill: self, network, round }.run(spare);
            self.trim(network, round, level);
        }
    }

    /// Sets the resources up; whether any of them can be short.
    fn enter_resources(&mut self, network: &Network, round: &Round) -> bool {
        self.bounds.clear();
        self.new_ends.clear();
        self.events.clear();
        for (k, resource) in self.resources.iter_mut().enumerate() {
            let (given, want) = round.parts[k];
            let followed = compare(network, k, want, &round.want) == Ordering::Greater;
            let full = followed && compare(network, k, given, &round.given) != Ordering::Less;
            *resource = Resource { followed, full, base: given, ..Resource::default() };
        }
        self.full_at_start = self.resources.iter().any(|resource| resource.full);
        self.resources.iter().any(|resource| resource.followed)
    }

    fn push_event(&mut self, level: f64, tenant: usize, ends: bool) {
        let event = (tenant as u64) << 1 | u64::from(ends);
        // The sign of a level is always the same.
        self.events.push((key(level) << 1) >> self.event_bits << self.event_bits | event);
    }

    /// Takes back what rounding may have given too much: as much from each that has more than it was
    /// given, in whole bits per second. `level` is where the sweep ended.
    fn trim(&self, network: &Network, round: &mut Round, level: f64) {
        for (k, resource) in self.resources.iter().enumerate() {
            let part = resource.rate * level + resource.base;
            if !resource.full && (!resource.followed || part < 1.0 - NEARLY) {
                continue;
            }
            loop {
                let excess =
                    taken(network, k, &round.got).saturating_sub(network.capacity_scaled(k));
                if excess == 0 || !take_back(network.users.of(k), k as u32, excess, round) {
                    break; // it fits, or only what was given is left, and that is feasible
                }
            }
        }
    }
}

/// Takes from each user of `resource` that has more than it was given as many bits per second as all
/// of them can be spared without taking more than `excess`, at least one; whether there was one. Where
/// numbers are near 2^64 the excess is millions.
fn take_back(users: &[(u32, u32)], resource: u32, excess: u128, round: &mut Round) -> bool {
    let more = |round: &Round, flow: u32| round.got[flow as usize] - round.given[flow as usize];
    let those = users.iter().filter(|(flow, _)| more(round, *flow) > 0);
    let costs: u128 = those.map(|(_, cost)| u128::from(*cost)).sum();
    let Some(each) = excess.checked_div(costs) else { return false };
    let each = u64::try_from(each.max(1)).unwrap_or(u64::MAX);
    for &(flow, _) in users {
        let less = each.min(more(round, flow));
        if less > 0 {
            round.got[flow as usize] -= less;
            round.limits[flow as usize] = Limit::Resource(resource);
        }
    }
    true
}

/// A tenant starts to rise, or all its loads are served.
#[derive(Debug, Clone, Copy)]
struct Event {
    level: f64,
    tenant: usize,
    version: u32,
    ends: bool,
    /// It stands in the sorted list, not in the heap of changed ends.
    sorted: bool,
}

/// One rise of the level.
struct Sweep<'a> {
    fill: &'a mut Fill,
    network: &'a Network,
    round: &'a mut Round,
}

impl Sweep<'_> {
    /// Raises the level until nobody rises any more; returns it.
    fn run(mut self, spare: Spare) -> f64 {
        for tenant in 0..self.fill.tenants.len() {
            self.enter(tenant, spare);
        }
        self.fill.events.sort_unstable();
        for k in 0..self.fill.resources.len() {
            self.bound(k, 0.0);
        }
        let (mut next, mut level) = (0, 0.0);
        while let Some(event) = self.earliest(&mut next) {
            if let Some((resource, full)) = self.full_before(event.level) {
                self.fill_up(resource, full);
                continue;
            }
            level = event.level;
            match event.ends {
                true => self.end(event.tenant, level),
                false => self.start(event.tenant, level),
            }
            if event.sorted {
                next += 1;
            } else {
                self.fill.new_ends.pop();
            }
        }
        level
    }

    /// The earlier of the event at `next` and the first changed end; void ones are passed over.
    fn earliest(&mut self, next: &mut usize) -> Option<Event> {
        let sorted = loop {
            let Some(&event) = self.fill.events.get(*next) else { break None };
            let tenant = (event & ((1 << self.fill.event_bits) - 1)) as usize >> 1;
            let ends = event & 1 == 1;
            let at = &self.fill.tenants[tenant];
            let level = if ends { at.end() } else { at.since };
            let event = Event { level, tenant, version: 0, ends, sorted: true };
            if !self.is_void(event) {
                break Some(event);
            }
            *next += 1;
        };
        let changed = loop {
            let Some(&Reverse((at, tenant, version))) = self.fill.new_ends.peek() else {
                break None;
            };
            let (level, tenant) = (f64::from_bits(at), tenant as usize);
            let event = Event { level, tenant, version, ends: true, sorted: false };
            if !self.is_void(event) {
                break Some(event);
            }
            self.fill.new_ends.pop();
        };
        match (sorted, changed) {
            (Some(sorted), Some(changed)) if changed.level < sorted.level => Some(changed),
            (Some(event), _) | (None, Some(event)) => Some(event),
            (None, None) => None,
        }
    }

    /// Whether the tenant is done, or its end has moved since.
    fn is_void(&self, event: Event) -> bool {
        let tenant = &self.fill.tenants[event.tenant];
        tenant.phase == Phase::Done || (event.ends && tenant.version != event.version)
    }

    /// Sets one tenant and its flows up.
    fn enter(&mut self, index: usize, spare: Spare) {
        let (mut charge, mut share) = (0.0, 0.0);
        for &flow in self.network.flows.of(index) {
            let flow = flow as usize;
            let dominant = self.network.dominant[flow];
            share += self.round.given[flow] as f64 * dominant;
            let missing = self.enter_flow(flow);
            self.fill.missing[flow] = missing;
            charge += missing * dominant;
        }
        let weight = f64::from(self.network.weights[index].get());
        let start = match spare {
            Spare::LevelShares => share / weight,
            Spare::ByWeight => 0.0,
        };
        let phase = match (charge > 0.0, start > 0.0) {
            (false, _) => Phase::Done,
            (true, true) => Phase::Waiting,
            (true, false) => Phase::Rising,
        };
        let speed = if charge > 0.0 { weight / charge } else { 0.0 };
        let tenant = Tenant { phase, version: 0, since: start, progress: 0.0, speed };
        self.fill.tenants[index] = tenant;
        if phase == Phase::Done {
            return;
        }
        if phase == Phase::Waiting {
            self.fill.push_event(start, index, false);
        }
        self.fill.push_event(tenant.end(), index, true);
        for &flow in self.network.flows.of(index) {
            let rise = self.fill.missing[flow as usize] * speed;
            if rise > 0.0 {
                for u in self.network.decisive.of(flow as usize) {
                    let resource = &mut self.fill.resources[u.resource as usize];
                    let rate = rise * u.part;
                    match phase {
                        Phase::Waiting => resource.coming += rate,
                        _ => resource.rate += rate,
                    }
                    resource.flows += 1;
                }
            }
        }
    }

    /// What `flow` misses and might get; who uses a full resource keeps what it was given.
    fn enter_flow(&mut self, flow: usize) -> f64 {
        let missing = self.round.want[flow] - self.round.given[flow];
        let uses = self.network.decisive.of(flow);
        if missing == 0 || uses.is_empty() {
            return 0.0;
        }
        if !self.fill.full_at_start {
            return missing as f64;
        }
        match uses.iter().find(|u| self.fill.resources[u.resource as usize].full) {
            Some(u) => {
                self.round.got[flow] = self.round.given[flow];
                self.round.limits[flow] = Limit::Resource(u.resource);
                0.0
            }
            None => missing as f64,
        }
    }

    /// Puts a bound on when `k` can be full, seen from `level`, before which nothing happens.
    fn bound(&mut self, k: usize, level: f64) {
        let resource = &mut self.fill.resources[k];
        let rate = resource.rate + resource.coming;
        if !resource.followed || resource.full || resource.flows == 0 || rate <= 0.0 {
            return;
        }
        let rest = 1.0 - resource.rate * level - resource.base;
        resource.bound = key(level + (rest / rate).max(0.0));
        self.fill.bounds.push(Reverse((resource.bound, k as u32)));
    }

    /// The first resource to be full before `level`, and when.
    fn full_before(&mut self, level: f64) -> Option<(usize, f64)> {
        while let Some(&Reverse((bound, k))) = self.fill.bounds.peek() {
            if bound >= key(level) {
                return None;
            }
            self.fill.bounds.pop();
            let resource = &self.fill.resources[k as usize];
            if resource.bound != bound || resource.full || resource.flows == 0 {
                continue;
            }
            if resource.rate * level + resource.base > 1.0 && resource.rate > 0.0 {
                let full = (1.0 - resource.base) / resource.rate;
                if self.fill.bounds.peek().is_none_or(|next| next.0.0 >= key(full)) {
                    return Some((k as usize, full));
                }
                // Another may be full before: look at that first.
                self.fill.resources[k as usize].bound = key(full);
                self.fill.bounds.push(Reverse((key(full), k)));
                if bound == key(full) {
                    return Some((k as usize, full));
                }
                continue;
            }
            self.bound(k as usize, level);
        }
        None
    }

    fn start(&mut self, index: usize, level: f64) {
        let tenant = &mut self.fill.tenants[index];
        tenant.phase = Phase::Rising;
        tenant.since = level;
        let (speed, version, end) = (tenant.speed, tenant.version, tenant.end());
        if version > 0 {
            self.fill.new_ends.push(Reverse((key(end), index as u32, version)));
        }
        for &flow in self.network.flows.of(index) {
            let rise = self.fill.missing[flow as usize] * speed;
            if rise > 0.0 {
                for u in self.network.decisive.of(flow as usize) {
                    let resource = &mut self.fill.resources[u.resource as usize];
                    resource.coming -= rise * u.part;
                    change_rate(resource, rise * u.part, level);
                }
            }
        }
    }

    /// All loads of the tenant are served.
    fn end(&mut self, index: usize, level: f64) {
        self.fill.tenants[index].phase = Phase::Done;
        let speed = self.fill.tenants[index].speed;
        for &flow in self.network.flows.of(index) {
            let rise = self.fill.missing[flow as usize] * speed;
            if rise > 0.0 {
                self.fill.missing[flow as usize] = 0.0;
                for u in self.network.decisive.of(flow as usize) {
                    let resource = &mut self.fill.resources[u.resource as usize];
                    change_rate(resource, -rise * u.part, level);
                    resource.flows -= 1;
                }
            }
        }
    }

    /// Stops all who use `resource`, and lets their tenants' other flows rise the faster.
    fn fill_up(&mut self, resource: usize, level: f64) {
        self.fill.resources[resource].full = true;
        let mut last = None;
        // Flows of a tenant need not be neighbours among the users: a tenant met twice is
        // brought up to speed twice, the second time from the state the first left.
        for &(flow, _) in self.network.users.of(resource) {
            if self.fill.missing[flow as usize] <= 0.0 {
                continue;
            }
            let tenant = self.network.tenant_of[flow as usize] as usize;
            if let Some(before) = last.filter(|&before| before != tenant) {
                self.change_speed(before, level);
            }
            last = Some(tenant);
            self.stop(flow as usize, resource as u32, level);
        }
        if let Some(tenant) = last {
            self.change_speed(tenant, level);
        }
        for k in std::mem::take(&mut self.fill.changed) {
            self.fill.resources[k as usize].touched = false;
            self.bound(k as usize, level);
        }
    }

    fn stop(&mut self, flow: usize, full: u32, level: f64) {
        let tenant = self.fill.tenants[self.network.tenant_of[flow] as usize];
        let missing = std::mem::take(&mut self.fill.missing[flow]);
        let rising = tenant.phase == Phase::Rising;
        for u in self.network.decisive.of(flow) {
            let resource = &mut self.fill.resources[u.resource as usize];
            let rate = missing * tenant.speed * u.part;
            if rising {
                change_rate(resource, -rate, level);
            } else {
                resource.coming -= rate;
            }
            resource.flows -= 1;
        }
        let part = if rising { missing * tenant.progress_at(level) } else { 0.0 };
        // A float may be just below a whole number: `trim` sees to it where this gives too much.
        let bits = (part * (1.0 + 1e-12) + 1e-6) as u64;
        let (given, want) = (self.round.given[flow], self.round.want[flow]);
        self.round.got[flow] = given.saturating_add(bits).min(want);
        self.round.limits[flow] = Limit::Resource(full);
    }

    /// Divides the growth of a tenant among the flows that it has left.
    fn change_speed(&mut self, index: usize, level: f64) {
        let flows = self.network.flows.of(index);
        let charge: f64 = flows
            .iter()
            .map(|&flow| self.fill.missing[flow as usize] * self.network.dominant[flow as usize])
            .sum();
        let tenant = &mut self.fill.tenants[index];
        if charge <= 0.0 {
            tenant.phase = Phase::Done;
            return;
        }
        let rising = tenant.phase == Phase::Rising;
        let before = tenant.speed;
        if rising {
            tenant.progress = tenant.progress_at(level);
            tenant.since = level;
        }
        tenant.speed = f64::from(self.network.weights[index].get()) / charge;
        tenant.version += 1;
        let (faster, version, end) = (tenant.speed - before, tenant.version, tenant.end());
        if rising {
            self.fill.new_ends.push(Reverse((key(end), index as u32, version)));
        }
        for &flow in flows {
            let rise = self.fill.missing[flow as usize] * faster;
            if rise > 0.0 {
                for &u in self.network.decisive.of(flow as usize) {
                    self.speed_up(u, rise * u.part, rising.then_some(level));
                }
            }
        }
    }

    fn speed_up(&mut self, u: Use, rate: f64, rising_at: Option<f64>) {
        let resource = &mut self.fill.resources[u.resource as usize];
        match rising_at {
            Some(level) => change_rate(resource, rate, level),
            None => resource.coming += rate,
        }
        if resource.followed && !resource.full && !resource.touched {
            resource.touched = true;
            self.fill.changed.push(u.resource);
        }
    }
}

fn change_rate(resource: &mut Resource, rate: f64, level: f64) {
    resource.rate += rate;
    resource.base -= rate * level;
}
