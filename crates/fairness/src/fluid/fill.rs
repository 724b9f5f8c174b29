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
//! Starts and ends stand in a queue. When a resource fills is only bounded from below, as if
//! everybody who will ever start had started; the bounds sit in a heap, and one is looked at again
//! when the level reaches it. Only resources that could not serve all loads are followed at all, and
//! what is used of them is listed anew each time, tenant after tenant. Once a resource is full that
//! everybody uses, like a port, the level stops; where that is the first to be full, [`super::trunk`]
//! finds it without any of this.
//!
//! Levels are floats: a tie or an order decided by noise moves a rate by the noise and no more,
//! since rates depend continuously on levels. Rates are rounded down to whole bits per second and
//! then checked against the capacities in integers.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Range;

use super::network::Network;
use super::queue::Queue;
use super::round::{NEARLY, Round, compare, take_back, taken};
use super::solver::{Limit, Spare};
use super::standing::{Live, Phase, Resource, Standing, Tenant, key};
use super::trunk::{self, Rise};

/// The scratch space of water-fillings over one network. Nothing in it outlives a filling.
#[derive(Debug, Clone)]
pub(super) struct Fill {
    tenants: Vec<Tenant>,
    resources: Vec<Resource>,
    standings: Vec<Standing>,
    /// By place: what the flow misses while it rises or waits, else zero.
    missing: Vec<f64>,
    /// What is used of resources that are followed and not full when the level is zero, by place.
    live: Vec<Live>,
    /// By position among all decisive uses: how many before it are live.
    live_before: Vec<u32>,
    /// Starts (even) and ends (odd) of tenants: as much of the level's key as there is room for
    /// beside the tenant, which stands in the lowest bits. Levels that agree in 2^-31 of themselves
    /// may come in any order.
    events: Queue,
    /// How many bits those are.
    event_bits: u32,
    /// Ends that changed: level, tenant, version.
    new_ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
    bounds: BinaryHeap<Reverse<(u64, u32)>>,
    changed: Vec<u32>,
    /// How tenants rise in a trunk.
    rises: Vec<Rise>,
    /// By place: what a flow has at a level, or how fast it rises at first.
    reached: Vec<f64>,
    /// By resource: what of it is taken at the last level.
    used: Vec<f64>,
    /// Some resource is full before anybody rises.
    full_at_start: bool,
}

impl Fill {
    pub fn new(network: &Network) -> Self {
        let tenant =
            Tenant { phase: Phase::Done, version: 0, since: 0.0, progress: 0.0, speed: 0.0 };
        let (flows, uses) = (network.flow_count(), network.decisive.items().len());
        Self {
            tenants: vec![tenant; network.weights.len()],
            resources: vec![Resource::default(); network.capacities.len()],
            standings: vec![Standing::default(); network.capacities.len()],
            missing: vec![0.0; flows],
            live: vec![Live::default(); uses],
            live_before: vec![0; uses + 1],
            events: Queue::default(),
            event_bits: (2 * network.weights.len() as u64 + 1).ilog2() + 1,
            new_ends: BinaryHeap::new(),
            bounds: BinaryHeap::new(),
            changed: Vec::new(),
            rises: Vec::new(),
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
        if self.enter_resources(network, round) {
            Sweep { fill: self, network, round, level: 0.0 }.run(spare);
            self.trim(network, round);
        }
    }

    /// Sets the resources up; whether any of them can be short.
    fn enter_resources(&mut self, network: &Network, round: &Round) -> bool {
        self.bounds.clear();
        self.new_ends.clear();
        self.events.clear();
        for (k, resource) in self.resources.iter_mut().enumerate() {
            let [given, want] = round.parts[k];
            let followed = compare(network, k, want, &round.want) == Ordering::Greater;
            let full = followed && compare(network, k, given, &round.given) != Ordering::Less;
            *resource = Resource { base: given, ..Resource::default() };
            self.standings[k] = Standing { followed, full, touched: false };
        }
        self.full_at_start = self.standings.iter().any(|standing| standing.full);
        self.standings.iter().any(|standing| standing.followed)
    }

    /// The start of a tenant, and its end.
    fn push_events(&mut self, index: usize) {
        let tenant = &self.tenants[index];
        if tenant.phase == Phase::Done {
            return;
        }
        for (level, ends) in [(tenant.since, 0), (tenant.end(), 1)] {
            // The sign of a level is always the same.
            let level = (key(level) << 1) >> self.event_bits << self.event_bits;
            self.events.push(level | (index as u64) << 1 | ends);
        }
    }

    /// Lists what is used of open resources. Without a branch that depends on loads: it is written
    /// down in any case, and written over by the next if it does not count.
    fn list_live(&mut self, network: &Network) {
        for (index, tenant) in self.tenants.iter().enumerate() {
            for place in network.flows.range(index..index + 1) {
                self.reached[place] = self.missing[place] * tenant.speed;
            }
        }
        let mut count = 0;
        for (at, u) in network.decisive.items().iter().enumerate() {
            let (k, place) = (u.resource as usize, u.place as usize);
            let rise = self.reached[place];
            self.live_before[at] = count as u32;
            self.live[count] = Live { resource: u.resource, part: self.missing[place] * u.part };
            self.resources[k].all += rise * u.part;
            let standing = self.standings[k];
            count += usize::from(standing.followed & !standing.full & (rise > 0.0));
        }
        self.live_before[network.decisive.items().len()] = count as u32;
    }

    /// Where what is used by the flows at some neighbouring places stands in the list.
    fn live_of(&self, network: &Network, places: Range<usize>) -> Range<usize> {
        let uses = network.decisive.range(places);
        self.live_before[uses.start] as usize..self.live_before[uses.end] as usize
    }

    /// Takes back what rounding may have given too much: as much from each that has more than it was
    /// given, in whole bits per second.
    fn trim(&self, network: &Network, round: &mut Round) {
        for (k, used) in self.used.iter().enumerate() {
            let Standing { full, followed, .. } = self.standings[k];
            if !full && (!followed || *used < 1.0 - NEARLY) {
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

/// A tenant starts to rise, or all its loads are served.
#[derive(Debug, Clone, Copy)]
struct Event {
    level: f64,
    tenant: usize,
    version: u32,
    ends: bool,
    /// It stands in the queue, not in the heap of changed ends.
    queued: bool,
}

/// One rise of the level.
struct Sweep<'a> {
    fill: &'a mut Fill,
    network: &'a Network,
    round: &'a mut Round,
    /// Up to where everything has happened.
    level: f64,
}

impl Sweep<'_> {
    /// Raises the level until nobody rises any more, and counts what is used there.
    fn run(mut self, spare: Spare) {
        for tenant in 0..self.fill.tenants.len() {
            self.enter(tenant, spare);
        }
        if !self.stops_at_trunk() {
            self.sweep();
            for (used, resource) in self.fill.used.iter_mut().zip(&self.fill.resources) {
                *used = resource.rate * self.level + resource.base;
            }
        }
    }

    /// Raises the level from event to event.
    fn sweep(&mut self) {
        for tenant in 0..self.fill.tenants.len() {
            self.fill.push_events(tenant);
        }
        self.fill.list_live(self.network);
        self.fill.events.arrange();
        for k in 0..self.fill.resources.len() {
            self.bound(k);
        }
        while let Some(event) = self.earliest() {
            if let Some((resource, full)) = self.full_before(event.level) {
                // Noise may say that it was full before what has happened.
                self.level = self.level.max(full);
                if self.network.is_trunk(resource) {
                    self.end_all(resource);
                    break;
                }
                self.fill_up(resource);
                continue;
            }
            self.level = event.level;
            self.turn(event);
            if event.queued {
                self.fill.events.pass();
            } else {
                self.fill.new_ends.pop();
            }
        }
    }

    /// The earlier of the first event in the queue and the first changed end; void ones are passed
    /// over.
    fn earliest(&mut self) -> Option<Event> {
        let queued = loop {
            let Some(event) = self.fill.events.first() else { break None };
            let tenant = (event & ((1 << self.fill.event_bits) - 1)) as usize >> 1;
            let ends = event & 1 == 1;
            let at = &self.fill.tenants[tenant];
            let level = if ends { at.end() } else { at.since };
            let event = Event { level, tenant, version: 0, ends, queued: true };
            if !self.is_void(event) {
                break Some(event);
            }
            self.fill.events.pass();
        };
        let changed = loop {
            let Some(&Reverse((at, tenant, version))) = self.fill.new_ends.peek() else {
                break None;
            };
            let (level, tenant) = (f64::from_bits(at), tenant as usize);
            let event = Event { level, tenant, version, ends: true, queued: false };
            if !self.is_void(event) {
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

    /// Whether the tenant is done, or its end has moved since.
    fn is_void(&self, event: Event) -> bool {
        let tenant = &self.fill.tenants[event.tenant];
        tenant.phase == Phase::Done || (event.ends && tenant.version != event.version)
    }

    /// Sets one tenant and its flows up.
    fn enter(&mut self, index: usize, spare: Spare) {
        let places = self.network.flows.range(index..index + 1);
        let (mut charge, mut share) = (0.0, 0.0);
        for place in places {
            let flow = self.network.flows.items()[place] as usize;
            let dominant = self.network.dominant[flow];
            share += self.round.amounts[place][0] * dominant;
            let missing = self.enter_flow(flow, place);
            self.fill.missing[place] = missing;
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
        let tenant = Tenant { phase, version: 0, since: start, progress: 0.0, speed };
        self.fill.tenants[index] = tenant;
    }

    /// What `flow` misses and might get; who uses a full resource keeps what it was given.
    fn enter_flow(&mut self, flow: usize, place: usize) -> f64 {
        let missing = self.round.want[flow] - self.round.given[flow];
        let uses = self.network.decisive.of(place);
        if missing == 0 || uses.is_empty() {
            return 0.0;
        }
        if !self.fill.full_at_start {
            return missing as f64;
        }
        match uses.iter().find(|u| self.fill.standings[u.resource as usize].full) {
            Some(u) => {
                self.round.got[flow] = self.round.given[flow];
                self.round.limits[flow] = Limit::Resource(u.resource);
                0.0
            }
            None => missing as f64,
        }
    }

    /// Puts a bound on when `k` can be full, before which nothing happens.
    fn bound(&mut self, k: usize) {
        let (resource, standing) = (&mut self.fill.resources[k], self.fill.standings[k]);
        if !standing.followed || standing.full || resource.all <= 0.0 {
            return;
        }
        let rest = 1.0 - resource.rate * self.level - resource.base;
        resource.bound = key(self.level + (rest / resource.all).max(0.0));
        self.fill.bounds.push(Reverse((resource.bound, k as u32)));
    }

    /// The first resource to be full before `level`, and when.
    fn full_before(&mut self, level: f64) -> Option<(usize, f64)> {
        while let Some(&Reverse((bound, k))) = self.fill.bounds.peek() {
            if bound >= key(level) {
                return None;
            }
            self.fill.bounds.pop();
            let resource = &mut self.fill.resources[k as usize];
            if resource.bound != bound || self.fill.standings[k as usize].full {
                continue;
            }
            if resource.rate * level + resource.base > 1.0 && resource.rate > 0.0 {
                let full = (1.0 - resource.base) / resource.rate;
                let next = self.fill.bounds.peek();
                if bound == key(full) || next.is_none_or(|next| next.0.0 >= key(full)) {
                    return Some((k as usize, full));
                }
                // Another may be full before: look at that first.
                resource.bound = key(full);
                self.fill.bounds.push(Reverse((resource.bound, k)));
                continue;
            }
            // Until `level` it is not: it is looked at again from there.
            let rest = 1.0 - resource.rate * level - resource.base;
            if resource.all > 0.0 {
                resource.bound = key(level + (rest / resource.all).max(0.0));
                self.fill.bounds.push(Reverse((resource.bound, k)));
            }
        }
        None
    }

    /// The tenant starts to rise, or all its loads are served.
    fn turn(&mut self, event: Event) {
        let places = self.network.flows.range(event.tenant..event.tenant + 1);
        let live = self.fill.live_of(self.network, places);
        let tenant = &mut self.fill.tenants[event.tenant];
        let (level, speed) = (event.level, tenant.speed);
        // What changes of the rate, and of that of all.
        let (now, all) = if event.ends { (-speed, -speed) } else { (speed, 0.0) };
        if event.ends {
            tenant.phase = Phase::Done;
        } else {
            (tenant.phase, tenant.since) = (Phase::Rising, level);
            if tenant.version > 0 {
                let end = (key(tenant.end()), event.tenant as u32, tenant.version);
                self.fill.new_ends.push(Reverse(end));
            }
        }
        for u in &self.fill.live[live] {
            let resource = &mut self.fill.resources[u.resource as usize];
            resource.change_rate(u.part * now, level);
            resource.all += u.part * all;
        }
    }

    /// Stops everybody where a resource that all use is full, if that is the first to be; whether it
    /// was.
    fn stops_at_trunk(&mut self) -> bool {
        let (fill, network) = (&mut *self.fill, self.network);
        let open = |k: usize| fill.standings[k].followed && !fill.standings[k].full;
        let wanted = |k: u32| self.round.parts[k as usize][1];
        let trunks = network.trunks.iter().filter(|trunk| open(trunk.resource as usize));
        let most = trunks.max_by(|a, b| wanted(a.resource).total_cmp(&wanted(b.resource)));
        let Some(trunk) = most else { return false };
        fill.rises.clear();
        for (index, tenant) in fill.tenants.iter().enumerate() {
            let places = network.flows.range(index..index + 1);
            let uses = fill.missing[places.clone()].iter().zip(&trunk.parts[places]);
            let part: f64 = uses.map(|(missing, part)| missing * part).sum();
            if tenant.phase != Phase::Done {
                let rate = part * tenant.speed;
                fill.rises.push(Rise { start: tenant.since, end: tenant.end(), part, rate });
            }
        }
        let k = trunk.resource as usize;
        let level = trunk::level_of(&fill.rises, fill.resources[k].base);
        let Some(level) = level.filter(|level| self.is_first(k, *level)) else { return false };
        self.level = level;
        self.end_all(k);
        true
    }

    /// Counts what everybody has at `level`; whether no resource but `trunk` is over.
    fn is_first(&mut self, trunk: usize, level: f64) -> bool {
        let (fill, network) = (&mut *self.fill, self.network);
        for (index, tenant) in fill.tenants.iter().enumerate() {
            let progress = tenant.progress_at(level);
            for place in network.flows.range(index..index + 1) {
                let given = self.round.amounts[place][0];
                fill.reached[place] = given + fill.missing[place] * progress;
            }
        }
        for (k, used) in fill.used.iter_mut().enumerate() {
            let uses = network.branches.of(k).iter();
            *used = uses.map(|u| fill.reached[u.place as usize] * u.part).sum();
        }
        for trunk in &network.trunks {
            let uses = fill.reached.iter().zip(&trunk.parts);
            fill.used[trunk.resource as usize] = uses.map(|(reached, part)| reached * part).sum();
        }
        let over = |k: usize| k != trunk && fill.standings[k].followed && !fill.standings[k].full;
        !(0..fill.used.len()).any(|k| over(k) && fill.used[k] > 1.0)
    }

    /// Stops everybody: all use `resource`, which is full.
    fn end_all(&mut self, resource: usize) {
        self.fill.standings[resource].full = true;
        for index in 0..self.fill.tenants.len() {
            let tenant = self.fill.tenants[index];
            let progress = tenant.progress_at(self.level);
            if tenant.phase == Phase::Done || progress >= 1.0 {
                continue;
            }
            for place in self.network.flows.range(index..index + 1) {
                if self.fill.missing[place] > 0.0 {
                    self.settle(place, progress, resource as u32);
                }
            }
        }
    }

    /// Stops all who use `resource`, and lets their tenants' other flows rise the faster.
    fn fill_up(&mut self, resource: usize) {
        self.fill.standings[resource].full = true;
        let mut last = None;
        // Flows of a tenant need not be neighbours among the users: a tenant met twice is
        // brought up to speed twice, the second time from the state the first left.
        for &(flow, _) in self.network.users.of(resource) {
            let tenant = self.network.tenant_of[flow as usize] as usize;
            let place = self.network.place_of[flow as usize] as usize;
            let at = &self.fill.tenants[tenant];
            if self.fill.missing[place] <= 0.0 || at.phase == Phase::Done {
                continue;
            }
            let progress = at.progress_at(self.level);
            if let Some(before) = last.filter(|&before| before != tenant) {
                self.change_speed(before);
            }
            last = Some(tenant);
            self.settle(place, progress, resource as u32);
            self.stop(place, tenant);
        }
        if let Some(tenant) = last {
            self.change_speed(tenant);
        }
        while let Some(k) = self.fill.changed.pop() {
            self.fill.standings[k as usize].touched = false;
            self.bound(k as usize);
        }
    }

    /// Writes down what a flow has that is stopped with this part of what it misses.
    fn settle(&mut self, place: usize, progress: f64, full: u32) {
        let flow = self.network.flows.items()[place] as usize;
        let part = self.fill.missing[place] * progress;
        // A float may be just below a whole number: `trim` sees to it where this gives too much.
        let bits = (part * (1.0 + 1e-12) + 1e-6) as u64;
        let (given, want) = (self.round.given[flow], self.round.want[flow]);
        self.round.got[flow] = given.saturating_add(bits).min(want);
        self.round.limits[flow] = Limit::Resource(full);
    }

    /// Takes a flow out of all that it uses.
    fn stop(&mut self, place: usize, tenant: usize) {
        let live = self.fill.live_of(self.network, place..place + 1);
        let tenant = self.fill.tenants[tenant];
        let now = if tenant.phase == Phase::Rising { tenant.speed } else { 0.0 };
        self.fill.missing[place] = 0.0;
        for u in &mut self.fill.live[live] {
            let resource = &mut self.fill.resources[u.resource as usize];
            let part = std::mem::take(&mut u.part);
            resource.change_rate(-part * now, self.level);
            resource.all -= part * tenant.speed;
        }
    }

    /// Divides the growth of a tenant among the flows that it has left.
    fn change_speed(&mut self, index: usize) {
        let places = self.network.flows.range(index..index + 1);
        let flows = &self.network.flows.items()[places.clone()];
        let charges = flows.iter().zip(&self.fill.missing[places.clone()]);
        let charge: f64 =
            charges.map(|(flow, missing)| missing * self.network.dominant[*flow as usize]).sum();
        let live = self.fill.live_of(self.network, places);
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
        for u in self.fill.live[live].iter().filter(|u| u.part > 0.0) {
            let resource = &mut self.fill.resources[u.resource as usize];
            resource.change_rate(u.part * now, self.level);
            resource.all += u.part * faster;
            let standing = &mut self.fill.standings[u.resource as usize];
            if !standing.full && !standing.touched {
                standing.touched = true;
                self.fill.changed.push(u.resource);
            }
        }
    }
}
