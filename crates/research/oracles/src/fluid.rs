//! Water-filling that looks at every flow and resource at every event. Exact over fractions
//! ([`num_rational::BigRational`]); over floats it is the baseline of the benchmarks.

use num_traits::{FromPrimitive, Num};

use snic_fairness::fluid::{Cost, Demand, FlowIndex, Network, Spare, TenantIndex};

/// `f64`, or a fraction of unbounded size.
pub trait Number: Num + FromPrimitive + PartialOrd + Clone {}
impl<N: Num + FromPrimitive + PartialOrd + Clone> Number for N {}

fn number<N: Number>(value: u64) -> N {
    N::from_u64(value).expect("both kinds of numbers represent every u64")
}

/// The ingress rate of each flow, in bits per second. `demands` has one entry for each flow.
pub fn solve<N: Number>(network: &Network, spare: Spare, demands: &[Demand]) -> Vec<N> {
    let load: Vec<N> = demands.iter().map(|d| number(d.load.get())).collect();
    let guaranteed: Vec<N> = demands.iter().map(|d| number(d.load.min(d.admitted).get())).collect();
    let feasible = taken(network, &guaranteed)
        .iter()
        .enumerate()
        .all(|(k, taken)| *taken <= capacity(network, k));
    let given = if feasible {
        guaranteed
    } else {
        let nothing = vec![N::zero(); guaranteed.len()];
        Water::new(network, Spare::ByWeight, nothing, &guaranteed).run()
    };
    Water::new(network, spare, given, &load).run()
}

/// Taken amount of each resource: Σ rate × cost, in 2^-20 of its unit.
fn taken<N: Number>(network: &Network, rates: &[N]) -> Vec<N> {
    let mut sums = vec![N::zero(); network.capacities().len()];
    for (flow, rate) in rates.iter().enumerate() {
        for (resource, cost) in costs(network, flow) {
            let sum = &mut sums[resource];
            *sum = sum.clone() + rate.clone() * number(cost.raw().into());
        }
    }
    sums
}

/// Capacity of `resource` in the same unit.
fn capacity<N: Number>(network: &Network, resource: usize) -> N {
    number::<N>(network.capacities()[resource]) * number(Cost::ONE.raw().into())
}

/// An event while the level rises.
#[derive(Clone, Copy)]
enum Event {
    Starts(usize),
    Served(usize),
    Full(usize),
}

struct Water<'a, N> {
    network: &'a Network,
    given: Vec<N>,
    /// Rate that each flow misses.
    missing: Vec<N>,
    /// Part of its missing rate at which each flow stopped; `None` while it rises.
    stopped: Vec<Option<N>>,
    /// Part of their missing rates that each tenant's rising flows have.
    progress: Vec<N>,
    /// Level at which each tenant starts to rise; `None` once it has.
    start: Vec<Option<N>>,
    full: Vec<bool>,
    level: N,
}

impl<'a, N: Number> Water<'a, N> {
    fn new(network: &'a Network, spare: Spare, given: Vec<N>, want: &[N]) -> Self {
        let missing: Vec<N> =
            given.iter().zip(want).map(|(given, want)| want.clone() - given.clone()).collect();
        let start = |tenant: usize| {
            let mut share = N::zero();
            for flow in flows(network, tenant) {
                share = share + given[flow].clone() * dominant(network, flow);
            }
            match spare {
                Spare::LevelShares => share / number(weight(network, tenant)),
                Spare::ByWeight => N::zero(),
            }
        };
        let stopped = (0..missing.len())
            .map(|flow| match (missing[flow].is_zero(), costs(network, flow).next().is_none()) {
                (true, _) => Some(N::zero()),
                (false, true) => Some(N::one()), // it uses no resource: its load is served
                (false, false) => None,
            })
            .collect();
        let start = (0..network.tenant_count()).map(|tenant| Some(start(tenant))).collect();
        let progress = vec![N::zero(); network.tenant_count()];
        let full = vec![false; network.capacities().len()];
        Self { network, given, missing, stopped, progress, start, full, level: N::zero() }
    }

    fn run(mut self) -> Vec<N> {
        for (k, taken) in taken(self.network, &self.rates()).into_iter().enumerate() {
            if taken >= capacity(self.network, k) {
                self.happen(Event::Full(k));
            }
        }
        while let Some((level, event)) = self.next() {
            for tenant in 0..self.progress.len() {
                let step = (level.clone() - self.level.clone()) * self.speed(tenant);
                self.progress[tenant] = self.progress[tenant].clone() + step;
            }
            self.level = level;
            self.happen(event);
        }
        self.rates()
    }

    fn rates(&self) -> Vec<N> {
        (0..self.given.len())
            .map(|flow| self.given[flow].clone() + self.part(flow) * self.missing[flow].clone())
            .collect()
    }

    /// The part of its missing rate that `flow` has now.
    fn part(&self, flow: usize) -> N {
        let tenant = self.network.tenant(FlowIndex(flow as u32)).0 as usize;
        self.stopped[flow].clone().unwrap_or_else(|| self.progress[tenant].clone())
    }

    fn rising(&self, tenant: usize) -> impl Iterator<Item = usize> {
        flows(self.network, tenant).filter(|&flow| self.stopped[flow].is_none())
    }

    /// Progress of `tenant` per unit of level.
    fn speed(&self, tenant: usize) -> N {
        if self.start[tenant].is_some() {
            return N::zero();
        }
        let charge = self.rising(tenant).fold(N::zero(), |sum, flow| {
            sum + self.missing[flow].clone() * dominant(self.network, flow)
        });
        if charge.is_zero() {
            return N::zero();
        }
        number::<N>(weight(self.network, tenant)) / charge
    }

    /// The next event and its level; `None` when no tenant rises any more.
    fn next(&self) -> Option<(N, Event)> {
        let mut first: Option<(N, Event)> = None;
        let mut offer = |level: N, event: Event| {
            if first.as_ref().is_none_or(|(first, _)| level < *first) {
                first = Some((level, event));
            }
        };
        for tenant in 0..self.progress.len() {
            if self.rising(tenant).next().is_none() {
                continue;
            }
            match &self.start[tenant] {
                Some(start) => offer(start.clone(), Event::Starts(tenant)),
                None => {
                    let left = N::one() - self.progress[tenant].clone();
                    offer(self.level.clone() + left / self.speed(tenant), Event::Served(tenant));
                }
            }
        }
        let speeds: Vec<N> = (0..self.given.len())
            .map(|flow| match self.stopped[flow] {
                Some(_) => N::zero(),
                None => {
                    let tenant = self.network.tenant(FlowIndex(flow as u32)).0 as usize;
                    self.speed(tenant) * self.missing[flow].clone()
                }
            })
            .collect();
        let rates = taken(self.network, &speeds);
        let now = taken(self.network, &self.rates());
        for (k, (rate, now)) in rates.into_iter().zip(now).enumerate() {
            if !self.full[k] && rate > N::zero() {
                let rest = capacity::<N>(self.network, k) - now;
                offer(self.level.clone() + rest / rate, Event::Full(k));
            }
        }
        first
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Starts(tenant) => self.start[tenant] = None,
            Event::Served(tenant) => {
                for flow in self.rising(tenant).collect::<Vec<_>>() {
                    self.stopped[flow] = Some(N::one());
                }
            }
            Event::Full(resource) => {
                self.full[resource] = true;
                for flow in 0..self.given.len() {
                    if costs(self.network, flow).any(|(used, _)| used == resource) {
                        let part = self.part(flow);
                        self.stopped[flow].get_or_insert(part);
                    }
                }
            }
        }
    }
}

fn flows(network: &Network, tenant: usize) -> impl Iterator<Item = usize> {
    network.flows_of(TenantIndex(tenant as u32)).map(|flow| flow.0 as usize)
}

fn costs(network: &Network, flow: usize) -> impl Iterator<Item = (usize, Cost)> {
    network.costs(FlowIndex(flow as u32))
}

fn weight(network: &Network, tenant: usize) -> u64 {
    network.weight(TenantIndex(tenant as u32)).get().into()
}

/// The largest fraction of any group of resources that one bit per second of `flow` takes.
fn dominant<N: Number>(network: &Network, flow: usize) -> N {
    let one = number::<N>(Cost::ONE.raw().into());
    let mut largest = N::zero();
    for (first, _) in costs(network, flow) {
        let (group, capacity) = network.group(first);
        if capacity > 0 {
            let own = costs(network, flow).filter(|(k, _)| network.group(*k).0 == group);
            let cost: u64 = own.map(|(_, cost)| u64::from(cost.raw())).sum();
            let part = number::<N>(cost) / (number::<N>(capacity) * one.clone());
            largest = if part > largest { part } else { largest };
        }
    }
    largest
}
