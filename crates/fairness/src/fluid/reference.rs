//! The same water-filling, written to be obviously right: at every event it looks at everything
//! again. Over fractions ([`num_rational::BigRational`]) it is exact and the oracle of the fast
//! solver; over floats it is what the fast solver is measured against.

use num_traits::{FromPrimitive, Num};

use super::network::Network;
use super::{Cost, Demand, Spare};

/// A number to compute with: `f64`, or a fraction of unbounded size.
pub trait Number: Num + FromPrimitive + PartialOrd + Clone {}
impl<N: Num + FromPrimitive + PartialOrd + Clone> Number for N {}

fn number<N: Number>(value: u64) -> N {
    N::from_u64(value).expect("both kinds of numbers take every u64")
}

/// The ingress rate of every flow, in bits per second. `demands` has one entry for each flow.
pub fn solve<N: Number>(network: &Network, spare: Spare, demands: &[Demand]) -> Vec<N> {
    let load: Vec<N> = demands.iter().map(|d| number(d.load.get())).collect();
    let promised: Vec<N> = demands.iter().map(|d| number(d.load.min(d.admitted).get())).collect();
    let feasible =
        taken(network, &promised).iter().enumerate().all(|(k, taken)| *taken <= whole(network, k));
    let given = if feasible {
        promised
    } else {
        let nothing = vec![N::zero(); promised.len()];
        Water::new(network, Spare::ByWeight, nothing, &promised).run()
    };
    Water::new(network, spare, given, &load).run()
}

/// By resource: Σ rate × cost, in 2^-20 of its unit.
fn taken<N: Number>(network: &Network, rates: &[N]) -> Vec<N> {
    let mut sums = vec![N::zero(); network.capacities.len()];
    for (flow, rate) in rates.iter().enumerate() {
        for u in network.uses.of(flow) {
            let sum = &mut sums[u.resource as usize];
            *sum = sum.clone() + rate.clone() * number(u.cost.into());
        }
    }
    sums
}

/// Capacity of `resource` in the same unit.
fn whole<N: Number>(network: &Network, resource: usize) -> N {
    number::<N>(network.capacities[resource]) * number(Cost::ONE.raw().into())
}

/// What happens next.
#[derive(Clone, Copy)]
enum Event {
    Starts(usize),
    Served(usize),
    Full(usize),
}

struct Water<'a, N> {
    network: &'a Network,
    given: Vec<N>,
    /// What each flow misses.
    missing: Vec<N>,
    /// By flow: the part of what it misses at which it stopped, once it has.
    stopped: Vec<Option<N>>,
    /// By tenant: the part of what its flows miss that they have.
    progress: Vec<N>,
    /// By tenant: the level at which it starts to rise, until it has.
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
            for &flow in network.flows.of(tenant) {
                share = share + given[flow as usize].clone() * dominant(network, flow as usize);
            }
            match spare {
                Spare::LevelShares => share / number(network.weights[tenant].get().into()),
                Spare::ByWeight => N::zero(),
            }
        };
        let stopped = (0..missing.len())
            .map(|flow| match (missing[flow].is_zero(), network.uses.of(flow).is_empty()) {
                (true, _) => Some(N::zero()),
                (false, true) => Some(N::one()), // it uses nothing: nothing keeps it from its load
                (false, false) => None,
            })
            .collect();
        let start = (0..network.weights.len()).map(|tenant| Some(start(tenant))).collect();
        let progress = vec![N::zero(); network.weights.len()];
        let full = vec![false; network.capacities.len()];
        Self { network, given, missing, stopped, progress, start, full, level: N::zero() }
    }

    fn run(mut self) -> Vec<N> {
        for (k, taken) in taken(self.network, &self.rates()).into_iter().enumerate() {
            if taken >= whole(self.network, k) {
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

    /// The part of what it misses that `flow` has now.
    fn part(&self, flow: usize) -> N {
        let tenant = self.network.tenant_of[flow] as usize;
        self.stopped[flow].clone().unwrap_or_else(|| self.progress[tenant].clone())
    }

    fn rising(&self, tenant: usize) -> impl Iterator<Item = usize> {
        let flows = self.network.flows.of(tenant).iter().map(|&flow| flow as usize);
        flows.filter(|&flow| self.stopped[flow].is_none())
    }

    /// How fast the progress of `tenant` rises with the level.
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
        number::<N>(self.network.weights[tenant].get().into()) / charge
    }

    /// The next event and its level; `None` when nobody rises any more.
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
                    let tenant = self.network.tenant_of[flow] as usize;
                    self.speed(tenant) * self.missing[flow].clone()
                }
            })
            .collect();
        let rates = taken(self.network, &speeds);
        let now = taken(self.network, &self.rates());
        for (k, (rate, now)) in rates.into_iter().zip(now).enumerate() {
            if !self.full[k] && rate > N::zero() {
                let rest = whole::<N>(self.network, k) - now;
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
                    let mut uses = self.network.uses.of(flow).iter();
                    if uses.any(|u| u.resource as usize == resource) {
                        let part = self.part(flow);
                        self.stopped[flow].get_or_insert(part);
                    }
                }
            }
        }
    }
}

/// The largest fraction of any resource that one bit per second of `flow` takes.
fn dominant<N: Number>(network: &Network, flow: usize) -> N {
    let one = number::<N>(Cost::ONE.raw().into());
    let mut largest = N::zero();
    for u in network.uses.of(flow) {
        let capacity = network.capacities[u.resource as usize];
        if capacity > 0 {
            let part = number::<N>(u.cost.into()) / (number::<N>(capacity) * one.clone());
            largest = if part > largest { part } else { largest };
        }
    }
    largest
}
