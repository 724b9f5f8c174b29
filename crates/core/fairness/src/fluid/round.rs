//! Input and output of one water-filling, and exact checks of sums of rates against capacities.

use std::cmp::Ordering;

use super::demand::Limit;
use super::network::Network;

/// Input and output of one water-filling, by flow, in bits per second.
#[derive(Debug, Clone, Default)]
pub(super) struct Round {
    /// Rate that each flow has already; feasible.
    pub given: Vec<u64>,
    /// Rate that each flow wants in all; at least what it has.
    pub want: Vec<u64>,
    /// Rate that each flow gets.
    pub got: Vec<u64>,
    /// Limit that kept each flow from more.
    pub limits: Vec<Limit>,
    /// Given and wanted rate at each position, as floats.
    pub amounts: Vec<[f64; 2]>,
    /// Fraction of each resource taken by the given and by the wanted rates, to within [`NEARLY`].
    pub fractions: Vec<[f64; 2]>,
}

/// Distance to a whole at which a sum of floats is decided by integers: the error of a sum of
/// 2^20 floats is below 2^-32 in the worst case.
pub(super) const NEARLY: f64 = 1e-9;

/// Amount of `resource` that `rates` take: exact.
pub(super) fn usage_of(network: &Network, resource: usize, rates: &[u64]) -> u128 {
    let users = network.users.of(resource).iter();
    users.map(|&(flow, cost)| u128::from(rates[flow as usize]) * u128::from(cost)).sum()
}

/// Compares what `rates` take of `resource` with its capacity: exact.
fn compare_exactly(network: &Network, resource: usize, rates: &[u64]) -> Ordering {
    usage_of(network, resource, rates).cmp(&network.capacity_scaled(resource))
}

/// The same; integers are used only if `fraction`, the float, is too close to call.
pub(super) fn compare(
    network: &Network,
    resource: usize,
    fraction: f64,
    rates: &[u64],
) -> Ordering {
    match () {
        () if network.capacities[resource] == 0 => compare_exactly(network, resource, rates),
        () if fraction < 1.0 - NEARLY => Ordering::Less,
        () if fraction > 1.0 + NEARLY => Ordering::Greater,
        () => compare_exactly(network, resource, rates),
    }
}

impl Round {
    pub fn new(network: &Network) -> Self {
        Self { fractions: vec![[0.0; 2]; network.capacities.len()], ..Self::default() }
    }

    /// Sums up what is taken of each resource.
    pub fn count(&mut self, network: &Network) {
        let amounts = |flow: &u32| {
            let flow = *flow as usize;
            [self.given[flow] as f64, self.want[flow] as f64]
        };
        self.amounts.clear();
        self.amounts.extend(network.flows.items().iter().map(amounts));
        let amounts = &self.amounts;
        let add = |sum: [f64; 2], [given, want]: [f64; 2], fraction: f64| {
            [sum[0] + given * fraction, sum[1] + want * fraction]
        };
        for (k, sum) in self.fractions.iter_mut().enumerate() {
            let users = network.unshared_uses.of(k).iter();
            *sum =
                users.fold([0.0; 2], |sum, u| add(sum, amounts[u.position as usize], u.fraction));
        }
        for bottleneck in &network.shared_bottlenecks {
            let uses = amounts.iter().zip(&bottleneck.fractions);
            let sum = uses.fold([0.0; 2], |sum, (amount, fraction)| add(sum, *amount, *fraction));
            self.fractions[bottleneck.resource as usize] = sum;
        }
    }

    /// Whether the given rates fit the capacities.
    pub fn is_feasible(&self, network: &Network) -> bool {
        self.fractions.iter().enumerate().all(|(k, fractions)| {
            compare(network, k, fractions[0], &self.given) != Ordering::Greater
        })
    }
}

/// Reduces every user of `resource` that has more than it was given by the same number of bits per
/// second: as many as possible without taking more than `excess` in all, at least one. `false` if no
/// user has more than it was given. With numbers near 2^64 the excess reaches millions.
pub(super) fn reduce(users: &[(u32, u32)], resource: u32, excess: u128, round: &mut Round) -> bool {
    let more = |round: &Round, flow: u32| round.got[flow as usize] - round.given[flow as usize];
    let reducible = users.iter().filter(|(flow, _)| more(round, *flow) > 0);
    let costs: u128 = reducible.map(|(_, cost)| u128::from(*cost)).sum();
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
