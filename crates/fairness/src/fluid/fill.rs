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

use std::cmp::Reverse;
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
    /// By resource: what is taken of it by what is given, and what would be by what is wanted.
    used: Vec<(u128, u128)>,
}

impl Round {
    pub fn new(network: &Network) -> Self {
        Self { used: vec![(0, 0); network.capacities.len()], ..Self::default() }
    }

    /// Counts what is taken of each resource, in integers.
    pub fn count(&mut self, network: &Network) {
        self.used.fill((0, 0));
        for (flow, (&given, &want)) in self.given.iter().zip(&self.want).enumerate() {
            for u in network.uses.of(flow) {
                let used = &mut self.used[u.resource as usize];
                used.0 += u128::from(given) * u128::from(u.cost);
                used.1 += u128::from(want) * u128::from(u.cost);
            }
        }
    }

    /// Whether what is given fits.
    pub fn is_feasible(&self, network: &Network) -> bool {
        self.used.iter().enumerate().all(|(k, used)| used.0 <= network.capacity_scaled(k))
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
    /// Starts (even) and ends (odd) of tenants, ascending.
    events: Vec<(u64, u32)>,
    /// Ends that changed: level, tenant, version.
    new_ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
    bounds: BinaryHeap<Reverse<(u64, u32)>>,
    changed: Vec<u32>,
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
            new_ends: BinaryHeap::new(),
            bounds: BinaryHeap::new(),
            changed: Vec::new(),
        }
    }

    /// Fills `round.got` and `round.limits`. `round` is counted and feasible.
    pub fn run(&mut self, network: &Network, round: &mut Round, spare: Spare) {
        round.got.clone_from(&round.want);
        round.limits.clear();
        round.limits.resize(round.want.len(), Limit::Load);
        if self.enter_resources(network, round) {
            Sweep { fill: self, network, round }.run(spare);
            self.trim(network, round);
        }
    }

    /// Sets the resources up; whether any of them can be short.
    fn enter_resources(&mut self, network: &Network, round: &Round) -> bool {
        self.bounds.clear();
        self.new_ends.clear();
        self.events.clear();
        for (k, resource) in self.resources.iter_mut().enumerate() {
            let (given, wanted) = round.used[k];
            let whole = network.capacity_scaled(k);
            *resource = Resource {
                followed: wanted > whole,
                full: wanted > whole && given >= whole,
                base: if whole > 0 { given as f64 / whole as f64 } else { 0.0 },
                ..Resource::default()
            };
        }
        self.resources.iter().any(|resource| resource.followed)
    }

    /// Takes back what rounding may have given too much: a bit per second each, from who has more
    /// than it was given.
    fn trim(&mut self, network: &Network, round: &mut Round) {
        for k in (0..self.resources.len()).filter(|&k| self.resources[k].followed) {
            let users = network.users.of(k);
            let cost = |flow: u32| {
                let uses = network.uses.of(flow as usize);
                uses.iter().find(|u| u.resource as usize == k).map_or(0, |u| u128::from(u.cost))
            };
            let taken: u128 =
                users.iter().map(|&f| u128::from(round.got[f as usize]) * cost(f)).sum();
            let mut excess = taken.saturating_sub(network.capacity_scaled(k));
            while excess > 0 {
                let before = excess;
                for &flow in users {
                    let (got, given) = (&mut round.got[flow as usize], round.given[flow as usize]);
                    if excess > 0 && *got > given {
                        *got -= 1;
                        excess = excess.saturating_sub(cost(flow));
                        round.limits[flow as usize] = Limit::Resource(k as u32);
                    }
                }
                if excess == before {
                    break; // only what was given is left, and that is feasible
                }
            }
        }
    }
}

/// One rise of the level.
struct Sweep<'a> {
    fill: &'a mut Fill,
    network: &'a Network,
    round: &'a mut Round,
}

impl Sweep<'_> {
    fn run(mut self, spare: Spare) {
        for tenant in 0..self.fill.tenants.len() {
            self.enter(tenant, spare);
        }
        self.fill.events.sort_unstable();
        for k in 0..self.fill.resources.len() {
            self.bound(k, 0.0);
        }
        let mut next = 0;
        loop {
            let sorted = self.fill.events.get(next).copied();
            let changed = self.fill.new_ends.peek().map(|Reverse(end)| *end);
            let take_changed = match (sorted, changed) {
                (None, None) => return,
                (Some(sorted), Some(changed)) => changed.0 < sorted.0,
                (None, Some(_)) => true,
                (Some(_), None) => false,
            };
            let (at, tenant, version, ends) = match (sorted, changed) {
                (_, Some((at, tenant, version))) if take_changed => (at, tenant, version, true),
                (Some((at, event)), _) => (at, event >> 1, 0, event & 1 == 1),
                _ => return,
            };
            let void = {
                let tenant = &self.fill.tenants[tenant as usize];
                tenant.phase == Phase::Done || (ends && tenant.version != version)
            };
            let level = f64::from_bits(at);
            if !void && let Some((resource, level)) = self.full_before(level) {
                self.fill_up(resource, level);
                continue;
            }
            if take_changed {
                self.fill.new_ends.pop();
            } else {
                next += 1;
            }
            match (void, ends) {
                (true, _) => {}
                (false, true) => self.end(tenant as usize, level),
                (false, false) => self.start(tenant as usize, level),
            }
        }
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
            self.fill.events.push((key(start), (index as u32) << 1));
        }
        self.fill.events.push((key(tenant.end()), (index as u32) << 1 | 1));
        for &flow in self.network.flows.of(index) {
            let rise = self.fill.missing[flow as usize] * speed;
            if rise > 0.0 {
                for u in self.network.uses.of(flow as usize) {
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
        let uses = self.network.uses.of(flow);
        if missing == 0 || uses.is_empty() {
            return 0.0;
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
                for u in self.network.uses.of(flow as usize) {
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
                for u in self.network.uses.of(flow as usize) {
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
        for &flow in self.network.users.of(resource) {
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
        for u in self.network.uses.of(flow) {
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
                for &u in self.network.uses.of(flow as usize) {
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
