//! What one water-filling is asked and answers, and whether sums of rates fit their resources.

use std::cmp::Ordering;

use super::network::Network;
use super::solver::Limit;

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
    /// By place: what is given and what is wanted, as floats.
    pub amounts: Vec<[f64; 2]>,
    /// By resource: the part of it taken by what is given and by what is wanted, to [`NEARLY`].
    pub parts: Vec<[f64; 2]>,
}

/// How near to a whole a sum of floats must be for integers to be asked whether it is one: the
/// error of a sum of 2^20 floats is below 2^-32 in the worst case.
pub(super) const NEARLY: f64 = 1e-9;

/// What `rates` take of `resource`: exact.
pub(super) fn taken(network: &Network, resource: usize, rates: &[u64]) -> u128 {
    let users = network.users.of(resource).iter();
    users.map(|&(flow, cost)| u128::from(rates[flow as usize]) * u128::from(cost)).sum()
}

/// How what `rates` take of `resource` compares with its capacity: exact.
fn compare_exactly(network: &Network, resource: usize, rates: &[u64]) -> Ordering {
    taken(network, resource, rates).cmp(&network.capacity_scaled(resource))
}

/// The same, in integers only where `part`, the float, leaves a doubt.
pub(super) fn compare(network: &Network, resource: usize, part: f64, rates: &[u64]) -> Ordering {
    match () {
        () if network.capacities[resource] == 0 => compare_exactly(network, resource, rates),
        () if part < 1.0 - NEARLY => Ordering::Less,
        () if part > 1.0 + NEARLY => Ordering::Greater,
        () => compare_exactly(network, resource, rates),
    }
}

impl Round {
    pub fn new(network: &Network) -> Self {
        Self { parts: vec![[0.0; 2]; network.capacities.len()], ..Self::default() }
    }

    /// Counts what is taken of each resource.
    pub fn count(&mut self, network: &Network) {
        let amounts = |flow: &u32| {
            let flow = *flow as usize;
            [self.given[flow] as f64, self.want[flow] as f64]
        };
        self.amounts.clear();
        self.amounts.extend(network.flows.items().iter().map(amounts));
        let amounts = &self.amounts;
        let add = |sum: [f64; 2], [given, want]: [f64; 2], part: f64| {
            [sum[0] + given * part, sum[1] + want * part]
        };
        for (k, sum) in self.parts.iter_mut().enumerate() {
            let users = network.branches.of(k).iter();
            *sum = users.fold([0.0; 2], |sum, u| add(sum, amounts[u.place as usize], u.part));
        }
        for trunk in &network.trunks {
            let uses = amounts.iter().zip(&trunk.parts);
            let sum = uses.fold([0.0; 2], |sum, (amount, part)| add(sum, *amount, *part));
            self.parts[trunk.resource as usize] = sum;
        }
    }

    /// Whether what is given fits.
    pub fn is_feasible(&self, network: &Network) -> bool {
        self.parts
            .iter()
            .enumerate()
            .all(|(k, part)| compare(network, k, part[0], &self.given) != Ordering::Greater)
    }
}

/// Takes from each user of `resource` that has more than it was given as many bits per second as all
/// of them can be spared without taking more than `excess`, at least one; whether there was one. Where
/// numbers are near 2^64 the excess is millions.
pub(super) fn take_back(
    users: &[(u32, u32)],
    resource: u32,
    excess: u128,
    round: &mut Round,
) -> bool {
    let more = |round: &Round, flow: u32| round.got[flow as usize] - round.given[flow as usize];
    let those = users.iter().filter(|(flow, _)| more(round, *flow) > 0);
    let costs: u128 = those.map(|(_, cost)| u128::from(*cost)).sum();
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
