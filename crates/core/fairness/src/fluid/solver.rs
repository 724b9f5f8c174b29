//! The solver of the control loop: guaranteed rates first, then spare capacity.

use snic_domain::Bandwidth;

use super::demand::{Demand, Limit, Spare};
use super::fill::WaterFiller;
use super::network::Network;
use super::round::Round;

/// The result: one ingress rate for each flow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rates {
    /// Rate of each flow, in whole bits per second, rounded down; they never exceed a capacity.
    pub rates: Vec<Bandwidth>,
    /// Limit on the rate of each flow.
    pub limits: Vec<Limit>,
    /// Whether every flow gets min(load, admitted).
    pub guaranteed: bool,
}

/// The number of demands differs from the number of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{given} demands for {flows} flows; expected one for each flow, in order")]
pub struct WrongDemands {
    /// Number of demands.
    pub given: usize,
    /// Number of flows.
    pub flows: usize,
}

/// Computes rates for one network, epoch after epoch; allocates only in the first epoch.
///
/// Time: O(c + t log t) for c costs of all flows and t tenants, plus O(log resources) for each
/// resource that fills up. Rates differ from the exact ones by at most one bit per second or a
/// fraction of 10^-9.
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
    fill: WaterFiller,
    round: Round,
    rates: Rates,
}

impl Solver {
    /// Creates a solver for `network`.
    pub fn new(network: Network, spare: Spare) -> Self {
        let fill = WaterFiller::new(&network);
        let round = Round::new(&network);
        Self { network, spare, fill, round, rates: Rates::default() }
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The result of the last epoch; empty before the first.
    pub fn rates(&self) -> &Rates {
        &self.rates
    }

    /// Computes the rates for `demands`, one for each flow in their order.
    ///
    /// # Errors
    ///
    /// [`WrongDemands`] unless there is exactly one demand for each flow; the last result is kept.
    pub fn solve(&mut self, demands: &[Demand]) -> Result<&Rates, WrongDemands> {
        let flows = self.network.flow_count();
        if demands.len() != flows {
            return Err(WrongDemands { given: demands.len(), flows });
        }
        let Self { network, round, fill, .. } = self;
        let guaranteed = |demand: &Demand| demand.load.min(demand.admitted).get();
        round.given.clear();
        round.given.extend(demands.iter().map(guaranteed));
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
