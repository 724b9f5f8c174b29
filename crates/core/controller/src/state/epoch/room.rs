//! Slack of each resource under given rates: the headroom, and how much more a flow could have.
//!
//! Amounts are in units of the resource's capacity, rounded down: every flow is
//! charged a whole unit more where its cost is a fraction. So all sums have 64 bits, and nothing
//! is divided by flow and resource.

use snic_domain::Bandwidth;
use snic_fairness::fluid::{Cost, Demand, RESOURCES_MAX};

use super::flows::{EpochOutcome, OF_REGIONS, Topology};

/// Bits after the point of a cost, as its type defines them.
const COST_BITS: u32 = Cost::ONE.raw().trailing_zeros();
/// Bits after the point of the part that is kept of what is beyond promises.
const PART_BITS: u32 = 52;
/// All of it is kept.
const ALL: u64 = 1 << PART_BITS;
/// Bits that number a resource beside a part.
const NUMBER_BITS: u32 = RESOURCES_MAX.trailing_zeros();

/// A flow that takes another amount than what passes.
#[derive(Debug, Clone, Copy)]
struct WeightedUse {
    flow: u32,
    cost: u32,
}

impl WeightedUse {
    /// Amount that `rate` takes.
    fn takes(self, rate: u64) -> u64 {
        let scaled = u128::from(rate) * u128::from(self.cost);
        let rounded = (scaled + ((1 << COST_BITS) - 1)) >> COST_BITS;
        u64::try_from(rounded).unwrap_or(u64::MAX)
    }

    /// Rate that `amount` buys, where that is less than `least`; nothing is divided else.
    fn buys(self, amount: u64, least: u64) -> u64 {
        let amount = u128::from(amount) << COST_BITS;
        match amount < u128::from(least) * u128::from(self.cost) {
            true => (amount / u128::from(self.cost)) as u64,
            false => least,
        }
    }
}

/// Slack for one flow, in bits per second; `u64::MAX` where nothing limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slack {
    /// Slack of the narrowest slot.
    pub slots: u64,
    /// Equal part of the narrowest resource among all that pass it.
    pub part: u64,
}

/// Users of each resource: a sum or a least value of a resource's users is found in one loop
/// over them, and what nobody need look at is passed over whole.
///
/// Flows that pass a resource at a cost of one, like the ports, stand aside: one sum is that of each such
/// resource.
#[derive(Debug, Clone, Default)]
struct ResourceUsers {
    common: Vec<u32>,
    /// Flows that pass at a cost of one what is not common.
    ones: Users<u32>,
    /// Flows that pass at another cost.
    others: Users<WeightedUse>,
}

/// Users of resources, one resource after another.
#[derive(Debug, Clone)]
struct Users<T> {
    /// Resources with users; where those end.
    resources: Vec<(usize, usize)>,
    users: Vec<T>,
}

impl<T> Default for Users<T> {
    fn default() -> Self {
        Self { resources: Vec::new(), users: Vec::new() }
    }
}

impl<T> Users<T> {
    fn new(by_resource: Vec<Vec<T>>) -> Self {
        let mut all = Self::default();
        for (k, users) in by_resource.into_iter().enumerate().filter(|(_, u)| !u.is_empty()) {
            all.users.extend(users);
            all.resources.push((k, all.users.len()));
        }
        all
    }

    /// Each resource with its users.
    fn iter(&self) -> impl Iterator<Item = (usize, &[T])> {
        let mut from = 0;
        self.resources.iter().map(move |(k, end)| {
            let users = &self.users[from..*end];
            from = *end;
            (*k, users)
        })
    }
}

impl ResourceUsers {
    fn new(topology: &Topology) -> Self {
        let resources = topology.capacities.len();
        let mut ones = vec![Vec::new(); resources];
        let mut others = vec![Vec::new(); resources];
        for (at, flow) in topology.flows.iter().enumerate() {
            for (k, cost) in flow.uses.iter().filter(|(_, cost)| cost.raw() > 0) {
                match *cost == Cost::ONE {
                    true => ones[*k].push(at as u32),
                    false => others[*k].push(WeightedUse { flow: at as u32, cost: cost.raw() }),
                }
            }
        }
        // Every flow once: what a flow names twice costs twice.
        let all = || 0..topology.flows.len() as u32;
        let is_common = |k: &u32| ones[*k as usize].iter().copied().eq(all());
        let common: Vec<u32> = (0..resources as u32).filter(is_common).collect();
        common.iter().for_each(|k| ones[*k as usize].clear());
        Self { common, ones: Users::new(ones), others: Users::new(others) }
    }

    /// Amounts that flows of these rates take of each resource that `counts`; of others nothing is said.
    /// Their sums fit every capacity, but for what is rounded up.
    fn sum(&self, sent: &[u64], counts: impl Fn(usize) -> bool, sums: &mut [u64]) {
        sums.fill(0);
        for (k, users) in self.ones.iter().filter(|(k, _)| counts(*k)) {
            sums[k] = users.iter().map(|flow| sent[*flow as usize]).sum();
        }
        for (k, users) in self.others.iter().filter(|(k, _)| counts(*k)) {
            let takes = |u: &WeightedUse| u.takes(sent[u.flow as usize]);
            sums[k] = users.iter().fold(sums[k], |sum, u| sum.saturating_add(takes(u)));
        }
        let mut common = self.common.iter().map(|k| *k as usize).filter(|k| counts(*k)).peekable();
        if common.peek().is_some() {
            let all = sent.iter().fold(0_u64, |sum, rate| sum.saturating_add(*rate));
            common.for_each(|k| sums[k] = sums[k].saturating_add(all));
        }
    }
}

/// The resources of a topology, and who uses them.
#[derive(Debug, Clone)]
pub(super) struct Headroom {
    passage: ResourceUsers,
    /// Limit up to which each resource may be filled; all of it where one tenant uses it alone, for who
    /// is alone can only disturb itself.
    usable: Vec<u64>,
    /// Number of flows that pass each resource.
    passing: Vec<u64>,
    /// Used amount of each resource.
    used: Vec<u64>,
    /// Promised part of each resource, where more is used than may be. Elsewhere what was
    /// promised is less than may be used, and how much does not matter.
    promised: Vec<u64>,
    /// Part of what is beyond promises that each resource keeps, and its number.
    parts: Vec<u64>,
    /// Slack of each resource, and for each flow that passes it.
    left: Vec<[u64; 2]>,
    /// Rate of each flow, and its promised part.
    rates: Vec<u64>,
    promises: Vec<u64>,
    /// Least slack of each flow.
    least: Vec<u64>,
    /// Slack of the narrowest slot of each flow.
    slots: Vec<u64>,
}

impl Headroom {
    pub fn new(topology: &Topology, headroom_percent: u32) -> Self {
        let resources = topology.capacities.len();
        let mut room = Self {
            passage: ResourceUsers::new(topology),
            usable: topology.capacities.clone(),
            passing: vec![0; resources],
            used: vec![0; resources],
            promised: vec![0; resources],
            parts: vec![0; resources],
            left: vec![[0; 2]; resources],
            rates: Vec::new(),
            promises: Vec::new(),
            least: Vec::new(),
            slots: Vec::new(),
        };
        let keep = u128::from(100 - headroom_percent.min(100));
        let mut user: Vec<Option<u32>> = vec![None; resources];
        for flow in &topology.flows {
            for (k, _) in flow.uses.iter().filter(|(_, cost)| cost.raw() > 0) {
                let before = user[*k].replace(flow.tenant);
                if before.is_some_and(|before| before != flow.tenant) {
                    room.usable[*k] = (u128::from(topology.capacities[*k]) * keep / 100) as u64;
                }
                room.passing[*k] += 1;
            }
        }
        room
    }

    /// Takes back of what is beyond promises what would fill a shared resource into its headroom,
    /// and counts what is left below that. Time O(uses).
    pub fn keep(&mut self, demands: &[Demand], outcome: &mut EpochOutcome) {
        self.rates.clear();
        self.rates.extend(outcome.rates.iter().map(|rate| rate.get()));
        self.passage.sum(&self.rates, |_| true, &mut self.used);
        self.promised.fill(0);
        if (0..self.used.len()).any(|k| self.used[k] > self.usable[k]) {
            let promises = demands.iter().zip(&outcome.rates);
            let promise = |(demand, rate): (&Demand, &Bandwidth)| {
                demand.load.min(demand.admitted).min(*rate).get()
            };
            self.promises.clear();
            self.promises.extend(promises.map(promise));
            let over = |k: usize| self.used[k] > self.usable[k];
            self.passage.sum(&self.promises, over, &mut self.promised);
            self.find_parts();
            self.cut(outcome);
            self.passage.sum(&self.rates, |_| true, &mut self.used);
        }
        for (k, used) in self.used.iter().enumerate() {
            let left = self.usable[k].max(self.promised[k]).saturating_sub(*used);
            self.left[k] = [left, left / self.passing[k].max(1)];
        }
    }

    /// Finds the part of what is beyond promises that each resource keeps.
    fn find_parts(&mut self) {
        for (k, used) in self.used.iter().enumerate() {
            let mut part = ALL;
            if *used > self.usable[k] {
                let beyond = u128::from(used.saturating_sub(self.promised[k]).max(1));
                let kept = u128::from(self.usable[k].saturating_sub(self.promised[k]));
                // Rounded up: what is a whole number of bits stays one.
                part = (kept.min(beyond) << PART_BITS).div_ceil(beyond) as u64;
            }
            self.parts[k] = part << NUMBER_BITS | k as u64;
        }
    }

    /// Keeps of each flow the least part that a resource of its keeps.
    fn cut(&mut self, outcome: &mut EpochOutcome) {
        let Self { passage, parts, rates, promises, least, .. } = self;
        let common = passage.common.iter().map(|k| parts[*k as usize]).min();
        least.clear();
        least.resize(rates.len(), common.unwrap_or(ALL << NUMBER_BITS));
        let keeps_less = |k: usize| parts[k] >> NUMBER_BITS < ALL;
        for (k, users) in passage.ones.iter().filter(|(k, _)| keeps_less(*k)) {
            users.iter().for_each(|flow| lower(&mut least[*flow as usize], parts[k]));
        }
        for (k, users) in passage.others.iter().filter(|(k, _)| keeps_less(*k)) {
            users.iter().for_each(|u| lower(&mut least[u.flow as usize], parts[k]));
        }
        for (flow, ((rate, promise), least)) in
            rates.iter_mut().zip(promises).zip(least).enumerate()
        {
            let kept = u128::from(*rate - *promise) * u128::from(*least >> NUMBER_BITS);
            let kept = *promise + (kept >> PART_BITS) as u64;
            if kept < *rate {
                *rate = kept;
                outcome.rates[flow] = Bandwidth::from_bps(kept);
                outcome.limits[flow] = Some((*least & ((1 << NUMBER_BITS) - 1)) as usize);
            }
        }
    }

    /// Slack for each flow, in their order.
    pub fn left(&mut self) -> impl Iterator<Item = Slack> {
        let Self { passage, left, rates, least, slots, .. } = self;
        let common = || passage.common.iter().map(|k| *k as usize);
        let common_slots = common().filter(|k| *k < OF_REGIONS).map(|k| left[k][0]).min();
        let common_part = common().map(|k| left[k][1]).min().unwrap_or(u64::MAX);
        least.clear();
        least.resize(rates.len(), common_part);
        slots.clear();
        slots.resize(rates.len(), common_slots.unwrap_or(u64::MAX));
        for (k, users) in passage.ones.iter() {
            let [all, each] = left[k];
            if k < OF_REGIONS {
                users.iter().for_each(|flow| lower(&mut slots[*flow as usize], all));
            }
            if each < common_part {
                users.iter().for_each(|flow| lower(&mut least[*flow as usize], each));
            }
        }
        for (k, users) in passage.others.iter() {
            let [all, each] = left[k];
            for u in users {
                let (slots, least) = (&mut slots[u.flow as usize], &mut least[u.flow as usize]);
                *least = u.buys(each, *least);
                if k < OF_REGIONS {
                    *slots = u.buys(all, *slots);
                }
            }
        }
        slots.iter().zip(&*least).map(|(slots, part)| Slack { slots: *slots, part: *part })
    }
}

fn lower(least: &mut u64, to: u64) {
    *least = (*least).min(to);
}
