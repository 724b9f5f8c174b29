//! The solver of the control loop: the promise first, then the spare.

use snic_domain::Bandwidth;

use super::fill::Fill;
use super::network::Network;
use super::round::Round;

/// What one flow wants this epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// What its user means to send, measured before rate limiting and credits.
    pub load: Bandwidth,
    /// What admission promised.
    pub admitted: Bandwidth,
}

/// Where the water starts that fills the spare capacity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Spare {
    /// At what each tenant has by promise: the least share is raised first, so that totals are in
    /// proportion to the weights as far as promises and loads allow.
    #[default]
    LevelShares,
    /// At zero: the spare itself is in proportion to the weights, whatever was promised.
    ByWeight,
}

/// What kept a flow from more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Nothing: its load is served.
    Load,
    /// This resource is full (or not there).
    Resource(u32),
}

/// The answer: one ingress rate for each flow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rates {
    /// By flow, in whole bits per second, rounded down; no resource is over its capacity.
    pub rates: Vec<Bandwidth>,
    /// By flow.
    pub limits: Vec<Limit>,
    /// Whether every flow has min(load, admitted).
    pub guaranteed: bool,
}

/// Demands for another number of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{given} demands for {flows} flows; give one for each, in their order")]
pub struct WrongDemands {
    /// How many were given.
    pub given: usize,
    /// How many flows there are.
    pub flows: usize,
}

/// Computes rates for one network, epoch after epoch, without allocating once it has run.
///
/// Time: (c + t log t), c being the number of costs of all flows and t the tenants, plus
/// resources × log for those that fill up. Rates are at most a bit per second, or 10^-9 of
/// themselves, from the exact ones ([`super::reference`] over fractions).
///
/// ```
/// use snic_domain::Bandwidth;
/// use snic_fairness::Weight;
/// use snic_fairness::fluid::{Cost, Demand, NetworkBuilder, Solver, Spare};
/// let gbps = Bandwidth::from_gbps;
/// let mut card = NetworkBuilder::new(&[gbps(10).get()]);
/// for weight in [1, 3] {
///     let tenant = card.tenant(Weight::new(weight)?);
///     card.flow(tenant, &[(0, Cost::ONE)]);
/// }
/// let mut solver = Solver::new(card.build()?, Spare::LevelShares);
/// let greedy = Demand { load: gbps(100), admitted: gbps(1) };
/// let rates = solver.solve(&[greedy, greedy])?;
/// assert_eq!(rates.rates, [Bandwidth::from_mbps(2_500), Bandwidth::from_mbps(7_500)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Solver {
    network: Network,
    spare: Spare,
    fill: Fill,
    round: Round,
    rates: Rates,
}

impl Solver {
    /// A solver for `network`.
    pub fn new(network: Network, spare: Spare) -> Self {
        let fill = Fill::new(&network);
        let round = Round::new(&network);
        Self { network, spare, fill, round, rates: Rates::default() }
    }

    /// The network it solves.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The answer of the last epoch; empty before the first.
    pub fn rates(&self) -> &Rates {
        &self.rates
    }

    /// The rates for these demands, one for each flow in their order.
    ///
    /// # Errors
    ///
    /// [`WrongDemands`] where there is not one demand for each flow; the last answer is kept.
    pub fn solve(&mut self, demands: &[Demand]) -> Result<&Rates, WrongDemands> {
        let flows = self.network.flow_count();
        if demands.len() != flows {
            return Err(WrongDemands { given: demands.len(), flows });
        }
        let Self { network, round, fill, .. } = self;
        let promised = |demand: &Demand| demand.load.min(demand.admitted).get();
        round.given.clear();
        round.given.extend(demands.iter().map(promised));
        round.want.clear();
        round.want.extend(demands.iter().map(|demand| demand.load.get()));
        round.count(network);
        self.rates.guaranteed = round.is_feasible(network);
        if !self.rates.guaranteed {
            round.want.copy_from_slice(&round.given);
            round.given.fill(0);
            round.count(network);
            fill.run(network, round, Spare::ByWeight);
            for (demand, want) in demands.iter().zip(&mut round.want) {
                *want = demand.load.get();
            }
            std::mem::swap(&mut round.given, &mut round.got);
            round.count(network);
        }
        fill.run(network, round, self.spare);
        self.rates.rates.clear();
        self.rates.rates.extend(round.got.iter().copied().map(Bandwidth::from_bps));
        self.rates.limits.clone_from(&round.limits);
        Ok(&self.rates)
    }
}
