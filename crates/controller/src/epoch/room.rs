//! What rates leave of each resource: the headroom that is kept, and how much more a flow could have.
//!
//! Amounts are in units of the resource's capacity, rounded to the side of less: every flow is
//! charged a whole unit more where its cost is a fraction. So all sums have 64 bits, and nothing
//! is divided by flow and resource. Three passes over all uses, without a branch that depends on
//! loads: what is used; what is kept, and used then; what is left. See [`Passage`] for their order.

use std::collections::BTreeMap;
use std::ops::Range;

use snic_domain::Bandwidth;
use snic_fairness::fluid::{Cost, Demand, RESOURCES_MAX};

use super::engine::{Flow, Outcome, SLOTS, Topology};

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

/// What is left for one flow, in bits per second; `u64::MAX` where nothing limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    /// Of the narrowest slot.
    pub slots: u64,
    /// Of the narrowest resource if all who pass it take an equal part.
    pub part: u64,
}

/// Who passes what.
///
/// What all flows pass at a cost of one, like the ports, stands aside: one sum is that of each such
/// resource. The rest is listed by flow, those with as many uses of each kind together: so loops
/// over the uses of a flow are of the same length for long, and the processor guesses their ends.
#[derive(Debug, Clone, Default)]
struct Passage {
    common: Vec<u32>,
    groups: Vec<Group>,
    flows: Vec<u32>,
    /// Where the cost is one: slots, then others.
    ones: Vec<u32>,
    others: Vec<Use>,
}

/// How many uses flows have: of slots at a cost of one, of all at a cost of one, of others.
type Counts = [usize; 3];

/// Flows with as many uses of each kind. Where they and their uses begin.
#[derive(Debug, Clone)]
struct Group {
    counts: Counts,
    flows: Range<usize>,
    ones: usize,
    others: usize,
}

/// What one flow uses.
#[derive(Clone, Copy)]
struct Uses<'a> {
    flow: usize,
    slots: usize,
    ones: &'a [u32],
    others: &'a [Use],
}

impl Passage {
    fn new(topology: &Topology) -> Self {
        let resources = 0..topology.capacities.len() as u32;
        let mut passing = vec![0_usize; topology.capacities.len()];
        let mut last = vec![None; topology.capacities.len()];
        for (at, flow) in topology.flows.iter().enumerate() {
            for (k, _) in flow.uses.iter().filter(|(_, cost)| *cost == Cost::ONE) {
                // What a flow names twice costs twice: that is not what the others pass.
                let twice = last[*k].replace(at) == Some(at);
                passing[*k] = if twice { usize::MAX } else { passing[*k].saturating_add(1) };
            }
        }
        let by_all = |k: &u32| passing[*k as usize] == topology.flows.len();
        let mut passage = Self { common: resources.filter(by_all).collect(), ..Self::default() };
        let mut groups: BTreeMap<Counts, Vec<usize>> = BTreeMap::new();
        for (at, flow) in topology.flows.iter().enumerate() {
            let (slots, ports) = passage.ones_of(flow);
            let others = others_of(flow).count();
            groups.entry([slots.len(), slots.len() + ports.len(), others]).or_default().push(at);
        }
        for (counts, flows) in groups {
            let (ones, others) = (passage.ones.len(), passage.others.len());
            let from = passage.flows.len();
            for at in flows {
                let (slots, ports) = passage.ones_of(&topology.flows[at]);
                passage.flows.push(at as u32);
                passage.ones.extend(slots.into_iter().chain(ports));
                passage.others.extend(others_of(&topology.flows[at]));
            }
            passage.groups.push(Group { counts, flows: from..passage.flows.len(), ones, others });
        }
        passage
    }

    /// What a flow uses at a cost of one that is not common: slots, and the rest.
    fn ones_of(&self, flow: &Flow) -> (Vec<u32>, Vec<u32>) {
        let ones = flow.uses.iter().filter(|(_, cost)| *cost == Cost::ONE).map(|(k, _)| *k as u32);
        ones.filter(|k| !self.common.contains(k)).partition(|k| (*k as usize) < SLOTS)
    }

    #[inline]
    fn for_each(&self, mut visit: impl FnMut(Uses<'_>)) {
        for group in &self.groups {
            let [slots, ones, others] = group.counts;
            let (mut one, mut other) = (group.ones, group.others);
            for flow in &self.flows[group.flows.clone()] {
                visit(Uses {
                    flow: *flow as usize,
                    slots,
                    ones: &self.ones[one..one + ones],
                    others: &self.others[other..other + others],
                });
                (one, other) = (one + ones, other + others);
            }
        }
    }
}

/// What a flow uses at another cost than one.
fn others_of(flow: &Flow) -> impl Iterator<Item = Use> {
    let others = flow.uses.iter().filter(|(_, cost)| *cost != Cost::ONE && cost.raw() > 0);
    others.map(|(k, cost)| Use { resource: *k as u32, cost: cost.raw() })
}

/// What is taken of a resource.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    used: u64,
    promised: u64,
}

/// The resources of a topology, and who uses them.
#[derive(Debug, Clone)]
pub(super) struct Room {
    passage: Passage,
    /// By resource: up to where it may be filled; all of it where one tenant uses it alone, for who
    /// is alone can only disturb itself.
    usable: Vec<u64>,
    /// By resource: flows that pass it.
    passing: Vec<u64>,
    /// By resource.
    taken: Vec<Taken>,
    /// By resource: which part of what is beyond promises is kept, and its number.
    parts: Vec<u64>,
    /// By resource: what is left of it, and for each flow that passes it.
    left: Vec<[u64; 2]>,
}

impl Room {
    pub fn new(topology: &Topology, headroom_percent: u32) -> Self {
        let resources = topology.capacities.len();
        let mut room = Self {
            passage: Passage::new(topology),
            usable: topology.capacities.clone(),
            passing: vec![0; resources],
            taken: vec![Taken::default(); resources],
            parts: vec![0; resources],
            left: vec![[0; 2]; resources],
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
    pub fn keep(&mut self, demands: &[Demand], outcome: &mut Outcome) {
        self.count(demands, &outcome.rates);
        if self.find_over() {
            self.cut(demands, outcome);
        }
        for (k, taken) in self.taken.iter().enumerate() {
            let left = self.usable[k].max(taken.promised).saturating_sub(taken.used);
            self.left[k] = [left, left / self.passing[k].max(1)];
        }
    }

    fn count(&mut self, demands: &[Demand], rates: &[Bandwidth]) {
        let Self { passage, taken, .. } = self;
        taken.fill(Taken::default());
        let mut all = Taken::default();
        passage.for_each(|Uses { flow, ones, others, .. }| {
            let (rate, promised) = (rates[flow].get(), promised(&demands[flow], rates[flow]));
            all.used = all.used.saturating_add(rate);
            all.promised = all.promised.saturating_add(promised);
            for k in ones {
                // Rates fit every capacity: so do their sums.
                taken[*k as usize].used += rate;
                taken[*k as usize].promised += promised;
            }
            for u in others {
                let taken = &mut taken[u.resource as usize];
                taken.used = taken.used.saturating_add(u.takes(rate));
                taken.promised = taken.promised.saturating_add(u.takes(promised));
            }
        });
        for k in &passage.common {
            taken[*k as usize] = all;
        }
    }

    /// Which part of what is beyond promises each resource keeps; whether one does not keep all.
    fn find_over(&mut self) -> bool {
        let mut any = false;
        for (k, taken) in self.taken.iter().enumerate() {
            let over = taken.used > self.usable[k];
            any |= over;
            let mut part = ALL;
            if over {
                let beyond = u128::from(taken.used.saturating_sub(taken.promised).max(1));
                let kept = u128::from(self.usable[k].saturating_sub(taken.promised));
                // Rounded up: what is a whole number of bits stays one.
                part = (kept.min(beyond) << PART_BITS).div_ceil(beyond) as u64;
            }
            self.parts[k] = part << NUMBER_BITS | k as u64;
        }
        any
    }

    fn cut(&mut self, demands: &[Demand], outcome: &mut Outcome) {
        let Self { passage, taken, parts, .. } = self;
        taken.iter_mut().for_each(|taken| taken.used = 0);
        let least = |least: u64, k: u32| least.min(parts[k as usize]);
        let common = passage.common.iter().fold(u64::MAX, |part, k| least(part, *k));
        let mut all = 0_u64;
        passage.for_each(|Uses { flow, ones, others, .. }| {
            let part = ones.iter().fold(common, |part, k| least(part, *k));
            let part = others.iter().fold(part, |part, u| least(part, u.resource));
            let before = outcome.rates[flow].get();
            let promised = promised(&demands[flow], outcome.rates[flow]);
            let kept = u128::from(before - promised) * u128::from((part >> NUMBER_BITS).min(ALL));
            let rate = promised + (kept >> PART_BITS) as u64;
            outcome.rates[flow] = Bandwidth::from_bps(rate);
            if rate < before {
                outcome.limits[flow] = Some((part & ((1 << NUMBER_BITS) - 1)) as usize);
            }
            all = all.saturating_add(rate);
            for k in ones {
                taken[*k as usize].used += rate;
            }
            for u in others {
                let used = &mut taken[u.resource as usize].used;
                *used = used.saturating_add(u.takes(rate));
            }
        });
        for k in &passage.common {
            taken[*k as usize].used = all;
        }
    }

    /// What is left for each flow, by its number, in no order.
    #[inline]
    pub fn left(&self, mut visit: impl FnMut(usize, Left)) {
        let narrowest = |narrowest: [u64; 2], k: &u32| {
            let left = self.left[*k as usize];
            [narrowest[0].min(left[0]), narrowest[1].min(left[1])]
        };
        let common = self.passage.common.iter();
        let is_slot = |k: &&u32| (**k as usize) < SLOTS;
        let slots = common.clone().filter(is_slot).fold([u64::MAX; 2], narrowest);
        let part = common.fold([u64::MAX; 2], narrowest)[1];
        self.passage.for_each(|uses| {
            let (those, ports) = uses.ones.split_at(uses.slots);
            let slots = those.iter().fold([slots[0], part], narrowest);
            let part = ports.iter().fold(slots, narrowest)[1];
            let mut left = Left { slots: slots[0], part };
            for u in uses.others {
                let k = u.resource as usize;
                left.part = u.buys(self.left[k][1], left.part);
                left.slots =
                    if k < SLOTS { u.buys(self.left[k][0], left.slots) } else { left.slots };
            }
            visit(uses.flow, left);
        });
    }
}

/// What of a flow's rate was promised, in bits per second.
fn promised(demand: &Demand, rate: Bandwidth) -> u64 {
    demand.load.min(demand.admitted).min(rate).get()
}
