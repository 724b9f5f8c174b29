//! What rates leave of each resource: the headroom that is kept, and how much more a flow could have.
//!
//! Amounts are in units of the resource's capacity, rounded to the side of less: every flow is
//! charged a whole unit more where its cost is a fraction. So all sums have 64 bits, and nothing
//! is divided by flow and resource. Three passes over all uses, without a branch that depends on
//! loads: what is used; what is kept, and used then; what is left.

use snic_domain::Bandwidth;
use snic_fairness::fluid::{Cost, Demand, RESOURCES_MAX};

use super::engine::{Outcome, SLOTS, Topology};

/// Bits after the point of a cost, as its type defines them.
const COST_BITS: u32 = Cost::ONE.raw().trailing_zeros();
/// Bits after the point of the part that is kept of what is beyond promises.
const PART_BITS: u32 = 52;
/// All of it is kept.
const ALL: u64 = 1 << PART_BITS;
/// Bits that number a resource beside a part.
const NUMBER_BITS: u32 = RESOURCES_MAX.trailing_zeros();

/// A use that costs another amount than what passes.
#[derive(Debug, Clone, Copy)]
struct Use {
    resource: u32,
    cost: u32,
}

impl Use {
    /// What `rate` takes.
    fn takes(self, rate: u64) -> u64 {
        let scaled = u128::from(rate) * u128::from(self.cost);
        scaled.div_ceil(1 << COST_BITS).min(u64::MAX.into()) as u64
    }

    /// What `amount` buys, where that is less than `least`; nothing is divided else.
    fn buys(self, amount: u64, least: u64) -> u64 {
        let amount = u128::from(amount) << COST_BITS;
        match amount < u128::from(least) * u128::from(self.cost) {
            true => (amount / u128::from(self.cost)) as u64,
            false => least,
        }
    }
}

/// Where a flow's uses end; they begin where those of the one before end.
#[derive(Debug, Clone, Copy, Default)]
struct Ends {
    /// Of slots that cost what passes, then of other resources that do.
    slots: u32,
    ones: u32,
    /// Of what costs otherwise.
    others: u32,
}

/// What is left for one flow, in bits per second; `u64::MAX` where nothing limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    /// Of the narrowest slot.
    pub slots: u64,
    /// Of the narrowest resource if all who pass it take an equal part.
    pub part: u64,
}

/// The resources of a topology, and who uses them.
#[derive(Debug, Clone)]
pub(super) struct Room {
    ones: Vec<u32>,
    others: Vec<Use>,
    /// By flow.
    ends: Vec<Ends>,
    /// By resource: up to where it may be filled; all of it where one tenant uses it alone, for who
    /// is alone can only disturb itself.
    usable: Vec<u64>,
    /// By resource: flows that pass it.
    passing: Vec<u64>,
    /// By resource.
    used: Vec<u64>,
    promised: Vec<u64>,
    /// By resource: which part of what is beyond promises is kept, and its number.
    parts: Vec<u64>,
    left: Vec<u64>,
    /// By resource: what is left for each flow that passes it.
    left_each: Vec<u64>,
}

impl Room {
    pub fn new(topology: &Topology, headroom_percent: u32) -> Self {
        let resources = topology.capacities.len();
        let nothing = vec![0; resources];
        let mut room = Self {
            ones: Vec::new(),
            others: Vec::new(),
            ends: Vec::with_capacity(topology.flows.len()),
            usable: topology.capacities.clone(),
            passing: nothing.clone(),
            used: nothing.clone(),
            promised: nothing.clone(),
            parts: nothing.clone(),
            left: nothing.clone(),
            left_each: nothing,
        };
        let keep = u128::from(100 - headroom_percent.min(100));
        let mut user: Vec<Option<u32>> = vec![None; resources];
        for flow in &topology.flows {
            let used = || flow.uses.iter().filter(|(_, cost)| cost.raw() > 0);
            for (k, _) in used() {
                let before = user[*k].replace(flow.tenant);
                if before.is_some_and(|before| before != flow.tenant) {
                    room.usable[*k] = (u128::from(topology.capacities[*k]) * keep / 100) as u64;
                }
                room.passing[*k] += 1;
            }
            let ones = || used().filter(|(_, cost)| *cost == Cost::ONE).map(|(k, _)| *k as u32);
            room.ones.extend(ones().filter(|k| (*k as usize) < SLOTS));
            let slots = room.ones.len() as u32;
            room.ones.extend(ones().filter(|k| *k as usize >= SLOTS));
            let others = used().filter(|(_, cost)| *cost != Cost::ONE);
            room.others.extend(others.map(|(k, c)| Use { resource: *k as u32, cost: c.raw() }));
            let (ones, others) = (room.ones.len() as u32, room.others.len() as u32);
            room.ends.push(Ends { slots, ones, others });
        }
        room
    }

    /// Takes back of what is beyond promises what would fill a shared resource into its headroom,
    /// and counts what is left below that.
    pub fn keep(&mut self, demands: &[Demand], outcome: &mut Outcome) {
        self.count(demands, &outcome.rates);
        if self.find_over() {
            self.cut(demands, outcome);
        }
        for k in 0..self.used.len() {
            self.left[k] = self.usable[k].max(self.promised[k]).saturating_sub(self.used[k]);
            self.left_each[k] = self.left[k] / self.passing[k].max(1);
        }
    }

    fn count(&mut self, demands: &[Demand], rates: &[Bandwidth]) {
        self.used.fill(0);
        self.promised.fill(0);
        let mut from = Ends::default();
        for ((ends, demand), rate) in self.ends.iter().zip(demands).zip(rates) {
            let (rate, promised) = (rate.get(), promised(demand, *rate));
            for k in &self.ones[from.ones as usize..ends.ones as usize] {
                add(&mut self.used[*k as usize], rate);
                add(&mut self.promised[*k as usize], promised);
            }
            for u in &self.others[from.others as usize..ends.others as usize] {
                add(&mut self.used[u.resource as usize], u.takes(rate));
                add(&mut self.promised[u.resource as usize], u.takes(promised));
            }
            from = *ends;
        }
    }

    /// Which part of what is beyond promises each resource keeps; whether one does not keep all.
    fn find_over(&mut self) -> bool {
        let mut any = false;
        for k in 0..self.used.len() {
            let over = self.used[k] > self.usable[k];
            any |= over;
            let mut part = ALL;
            if over {
                let beyond = u128::from(self.used[k].saturating_sub(self.promised[k]).max(1));
                let kept = u128::from(self.usable[k].saturating_sub(self.promised[k]));
                // Rounded up: what is a whole number of bits stays one.
                part = (kept.min(beyond) << PART_BITS).div_ceil(beyond) as u64;
            }
            self.parts[k] = part << NUMBER_BITS | k as u64;
        }
        any
    }

    fn cut(&mut self, demands: &[Demand], outcome: &mut Outcome) {
        self.used.fill(0);
        let mut from = Ends::default();
        for (flow, (ends, demand)) in self.ends.iter().zip(demands).enumerate() {
            let ones = &self.ones[from.ones as usize..ends.ones as usize];
            let others = &self.others[from.others as usize..ends.others as usize];
            let least = |least: u64, k: u32| least.min(self.parts[k as usize]);
            let part = ones.iter().fold(u64::MAX, |part, k| least(part, *k));
            let part = others.iter().fold(part, |part, u| least(part, u.resource));
            let mut rate = outcome.rates[flow].get();
            let promised = promised(demand, outcome.rates[flow]);
            if part >> NUMBER_BITS < ALL && promised < rate {
                let kept = u128::from(rate - promised) * u128::from(part >> NUMBER_BITS);
                let less = promised + (kept >> PART_BITS) as u64;
                if less < rate {
                    rate = less;
                    outcome.rates[flow] = Bandwidth::from_bps(rate);
                    outcome.limits[flow] = Some((part & ((1 << NUMBER_BITS) - 1)) as usize);
                }
            }
            for k in ones {
                add(&mut self.used[*k as usize], rate);
            }
            for u in others {
                add(&mut self.used[u.resource as usize], u.takes(rate));
            }
            from = *ends;
        }
    }

    /// What is left for each flow, in their order.
    pub fn left(&self) -> impl Iterator<Item = Left> {
        let mut from = Ends::default();
        self.ends.iter().map(move |ends| {
            let of = |lefts: &[u64], ks: &[u32]| {
                ks.iter().fold(u64::MAX, |least, k| least.min(lefts[*k as usize]))
            };
            let slots = &self.ones[from.ones as usize..ends.slots as usize];
            let ones = &self.ones[from.ones as usize..ends.ones as usize];
            let mut left = Left { slots: of(&self.left, slots), part: of(&self.left_each, ones) };
            for u in &self.others[from.others as usize..ends.others as usize] {
                let k = u.resource as usize;
                left.part = u.buys(self.left_each[k], left.part);
                left.slots = if k < SLOTS { u.buys(self.left[k], left.slots) } else { left.slots };
            }
            from = *ends;
            left
        })
    }
}

fn add(sum: &mut u64, amount: u64) {
    *sum = sum.saturating_add(amount);
}

/// What of a flow's rate was promised, in bits per second.
fn promised(demand: &Demand, rate: Bandwidth) -> u64 {
    demand.load.min(demand.admitted).min(rate).get()
}
