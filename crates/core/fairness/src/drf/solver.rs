//! Progressive filling in scaled integers, for the control loop.
//!
//! Shares are in units of 2^-54. What a user takes of its other resources is in units of 2^-46 of its
//! share, rounded up, so no resource is overdrawn. All comparisons are between integers, so a tie is a
//! tie: users of the same weight that are stopped by the same resource have equal shares to the last
//! bit, whatever the order or the machine.
//!
//! Distance from the exact solution: a resource counts as full when at most 2^-44 / m of it is left, where
//! m is the mean fraction that its users take of it per unit of share. That is 2^-40 for a mean of a
//! sixteenth. What is left is missing from the shares of its users; a user that takes little of it
//! beside its dominant resource misses correspondingly more of that.
//! If a cap and a full resource stop a user within 2^-54 of the same level, either may be reported; if
//! it is the cap, the resource may be overdrawn by that much times the user's weight. No sum of
//! [`Allocation::amount`] shows this where the sum of weights times the capacity is below 2^54, as on
//! cards, whose capacities are below 2^32: amounts are whole units.

use super::problem::dominant_of;
use super::{DrfProblem, Fraction, RESOURCES_MAX, UserLimit};

// With 2^17 users of weight 2^10 the sum of rates has 73 bits; times a level of 54 bits that is
// 127, what the type holds.
/// Bits after the point of a share.
const SHARE_BITS: u32 = 54;
/// Bits after the point of a rate.
const RATE_BITS: u32 = 46;
/// All of a resource: shares times rates.
pub(super) const FULL: u128 = 1 << (SHARE_BITS + RATE_BITS);

/// A fraction of a resource from 0 to 1, in units of 2^-54.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u64);

impl Share {
    pub const ZERO: Self = Self(0);
    /// All of it.
    pub const ONE: Self = Self(1 << SHARE_BITS);

    /// From units of 2^-54, at most [`Self::ONE`].
    pub const fn from_raw(raw: u64) -> Self {
        if raw > Self::ONE.0 { Self::ONE } else { Self(raw) }
    }

    /// `numerator / denominator`, rounded down; [`Self::ONE`] for more than one and for a division
    /// by zero.
    pub fn from_ratio(numerator: u64, denominator: u64) -> Self {
        if numerator >= denominator {
            return Self::ONE;
        }
        Self(((u128::from(numerator) << SHARE_BITS) / u128::from(denominator)) as u64)
    }

    /// In units of 2^-54.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// For printing and plotting, 0.0 to 1.0.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / Self::ONE.0 as f64
    }
}

/// Share of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserOutcome {
    /// Its dominant resource; `None` if it demands nothing.
    pub dominant: Option<usize>,
    /// Fraction that it holds of that resource.
    pub share: Share,
    pub limit: UserLimit,
}

/// Shares of all users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// One for each user, in order.
    pub outcomes: Vec<UserOutcome>,
    /// Used part of each resource, rounded up.
    pub used: Vec<Share>,
}

impl Allocation {
    /// Amount of `resource` that `user` of `problem` gets, in whole units, rounded down. Exact if its cap
    /// or quota limits it, otherwise what its share is worth.
    pub fn amount(&self, problem: &DrfProblem, user: usize, resource: usize) -> u64 {
        let outcome = &self.outcomes[user];
        let user = &problem.users()[user];
        let demand = user.demand[resource];
        let amount = match (outcome.limit, user.tightest_cap(), outcome.dominant) {
            (UserLimit::OwnCap | UserLimit::Quota(_), Some((cap, _)), _) => {
                product(cap.numerator(), demand) / u128::from(cap.denominator())
            }
            (_, _, Some(k)) => {
                let capacity = problem.capacities()[k];
                share_worth(outcome.share, capacity, demand, user.demand[k])
            }
            _ => 0,
        };
        u64::try_from(amount).expect("an amount is at most the capacity, which has 64 bits")
    }
}

/// share × capacity × demand / dominant demand, rounded down. The product has up to 150 bits, so the
/// two factors of 2^48 are divided first and their remainder is carried.
fn share_worth(share: Share, capacity: u64, demand: u64, dominant_demand: u64) -> u128 {
    let (share, divisor) = (u128::from(share.0), u128::from(dominant_demand));
    let amounts = product(capacity, demand);
    let (quotient, remainder) = (amounts / divisor, amounts % divisor);
    // share <= 2^54: with a quotient of at most 2^48 (what the demand takes of its own capacity) and a
    // remainder below 2^48, both products stay below 2^103.
    let units = share * quotient + share * remainder / divisor;
    units >> SHARE_BITS
}

/// `numerator / denominator` in units of 2^-`bits`, rounded up or down. The numerator is at most the
/// denominator, both are below 2^107, and `bits` is at most 54. If the denominator has more than 64
/// bits, both are cut to its first 64, rounded to the same side.
fn scaled(numerator: u128, denominator: u128, bits: u32, up: bool) -> u128 {
    let (mut n, mut d) = (numerator, denominator);
    if denominator >> 64 != 0 {
        let cut = 64 - denominator.leading_zeros();
        n = (numerator >> cut) + u128::from(up && numerator & ((1 << cut) - 1) != 0);
        d = (denominator >> cut) + u128::from(!up && denominator & ((1 << cut) - 1) != 0);
    }
    let n = n << bits;
    let quotient = n / d;
    if up && quotient * d < n { quotient + 1 } else { quotient }
}

/// Solves `problem`. Time: O(n × resources) for the users and their caps, and again for each resource
/// that fills up.
pub fn solve(problem: &DrfProblem) -> Allocation {
    let mut solver = DrfSolver::default();
    solver.solve(problem);
    let used = solver.free.iter().map(|free| {
        let used = (FULL - free).div_ceil(1 << RATE_BITS);
        Share(used as u64)
    });
    Allocation { used: used.collect(), outcomes: solver.outcomes }
}

/// [`solve`] for one problem after another, reusing its memory.
#[derive(Debug, Clone, Default)]
pub struct DrfSolver {
    /// Outcomes of the users. Until a user stops, its limit is that of its cap.
    outcomes: Vec<UserOutcome>,
    /// Rates by user, then resource: weight × fraction of the resource per share; zero once it stopped.
    rates: Vec<u64>,
    /// Levels of the caps, with their users.
    caps: Vec<(u64, u32)>,
    /// Rest of each resource at the end.
    free: Vec<u128>,
}

impl DrfSolver {
    /// Solves `problem`: what each user gets, in order.
    pub fn solve(&mut self, problem: &DrfProblem) -> &[UserOutcome] {
        // The compiler knows the length of loops over resources; a card has two.
        match problem.capacities().len() {
            0..=2 => self.solve_up_to::<2>(problem),
            3..=8 => self.solve_up_to::<8>(problem),
            _ => self.solve_up_to::<RESOURCES_MAX>(problem),
        }
        &self.outcomes
    }

    /// Solves a problem with at most `R` resources; nobody demands the missing ones.
    fn solve_up_to<const R: usize>(&mut self, problem: &DrfProblem) {
        let users = problem.users().len();
        self.outcomes.clear();
        self.caps.clear();
        self.rates.clear();
        self.rates.resize(users * R, 0);
        let mut capacities = [0; R];
        capacities[..problem.capacities().len()].copy_from_slice(problem.capacities());
        let (rates, _) = self.rates.as_chunks_mut::<R>();
        let (sums, freed) = ([0; R], [0; R]);
        let outcomes = &mut self.outcomes;
        let mut filling =
            Filling { problem, capacities, outcomes, rates, sums, free: [FULL; R], freed };
        for index in 0..users {
            filling.add_user(index, &mut self.caps);
        }
        // Progressive filling, from event to event. All shares rise together until a user reaches its cap, which
        // stops that user alone, or a resource is full, which stops all who demand it: dominant shares are to be
        // equal, so none of them may rise further. A full resource has no rising users left, so the loop runs at most
        // once for each resource, and it ends when nobody rises.
        let mut rest = &mut self.caps[..];
        loop {
            rest = filling.reach_caps(rest);
            let Some((level, resource)) = filling.first_full() else { break };
            filling.saturate(resource, level);
        }
        self.free.clear();
        self.free.extend(&filling.free[..problem.capacities().len()]);
    }
}

/// The state of a filling with at most `R` resources.
struct Filling<'a, const R: usize> {
    problem: &'a DrfProblem,
    capacities: [u64; R],
    outcomes: &'a mut Vec<UserOutcome>,
    rates: &'a mut [[u64; R]],
    /// Sum of the rates on each resource.
    sums: [u128; R],
    /// Rest of each resource if every user that still rises is counted at level zero.
    free: [u128; R],
    /// Rates of users that stop together, by resource.
    freed: [u128; R],
}

impl<const R: usize> Filling<'_, R> {
    /// Adds the next user: its rates and its cap.
    fn add_user(&mut self, index: usize, caps: &mut Vec<(u64, u32)>) {
        let user = &self.problem.users()[index];
        let stopped = |dominant, limit| UserOutcome { dominant, share: Share::ZERO, limit };
        let mut demand = [0; R];
        demand[..user.demand.len()].copy_from_slice(&user.demand);
        let Some(dominant) = dominant_of(&demand, &self.capacities) else {
            return self.outcomes.push(stopped(None, UserLimit::AsksNothing));
        };
        let cap = user.tightest_cap();
        if let Some((fraction, limit)) = cap
            && fraction.numerator() == 0
        {
            return self.outcomes.push(stopped(Some(dominant), limit));
        }
        let limit = cap.map_or(UserLimit::Capacity(dominant), |(_, limit)| limit);
        if self.capacities[dominant] == 0 {
            return self.outcomes.push(stopped(Some(dominant), UserLimit::Capacity(dominant)));
        }
        let per_task = TaskPart { amount: demand[dominant], capacity: self.capacities[dominant] };
        let rates = &mut self.rates[index];
        for (k, &amount) in demand.iter().enumerate() {
            if amount == 0 {
                continue;
            }
            let part = TaskPart { amount, capacity: self.capacities[k] };
            let rate = rate(part, per_task, k == dominant);
            rates[k] = rate * u64::from(user.weight.get());
            self.sums[k] += u128::from(rates[k]);
        }
        if let Some((fraction, _)) = cap
            && let Some(level) = cap_level(fraction, per_task, user.weight.get())
        {
            caps.push((level, index as u32));
        }
        self.outcomes.push(stopped(Some(dominant), limit));
    }

    /// Gives their caps to the users that reach them before a resource is full; returns the other
    /// caps. The lower half of the caps is reached if no resource is over its capacity with the level
    /// at the highest of them, so each check decides one half. Time O(caps).
    fn reach_caps<'c>(&mut self, mut caps: &'c mut [(u64, u32)]) -> &'c mut [(u64, u32)] {
        let mut over = 0;
        while over < caps.len() {
            let open = caps.len() - over;
            let middle = (open - 1) / 2;
            caps[..open].select_nth_unstable(middle);
            if self.take_caps(&caps[..=middle]) {
                caps = &mut caps[middle + 1..];
            } else {
                over = caps.len() - middle;
            }
        }
        caps
    }

    /// Gives users their caps, of which the last is the highest, if no resource is full before its
    /// level; returns whether it did. A cap lies between its level and the next. A user that it stops
    /// gets all of it, and the others are charged for the difference.
    fn take_caps(&mut self, caps: &[(u64, u32)]) -> bool {
        let Some(((last, _), lower)) = caps.split_last() else { return true };
        // What the users that stop earlier take, and how much less than they would at the last level.
        let mut before = [(0_u128, 0_u128); R];
        for (below, user) in lower {
            let rates = &self.rates[*user as usize];
            for (before, rate) in before.iter_mut().zip(rates) {
                before.0 += u128::from(*rate);
                before.1 += product(*rate, last - below);
            }
        }
        let level = u128::from(*last);
        let fits = |k: usize| {
            let (rate, less) = before[k];
            self.sums[k] * level + rate <= self.free[k] + less
        };
        if !(0..R).all(fits) {
            return false;
        }
        for (level, user) in caps {
            self.stop(*user as usize, *level, None);
        }
        for (k, (_, less)) in before.into_iter().enumerate() {
            let freed = std::mem::take(&mut self.freed[k]);
            self.sums[k] -= freed;
            self.free[k] = self.free[k].saturating_sub(freed * (level + 1) - less);
        }
        true
    }

    /// The level at which the first resource is full if no user stops before, and that resource; the
    /// first of equals. `None` if no user rises any more.
    fn first_full(&self) -> Option<(u64, usize)> {
        (0..R)
            .filter(|&k| self.sums[k] > 0)
            // Of some resource users take so little that it would be full only far above all shares.
            .map(|k| (u64::try_from(self.free[k] / self.sums[k]).unwrap_or(u64::MAX), k))
            .min()
    }

    /// Stops all users of `resource` at the level at which it is full.
    fn saturate(&mut self, resource: usize, level: u64) {
        for user in 0..self.rates.len() {
            if self.rates[user][resource] > 0 {
                self.stop(user, level, Some(UserLimit::Capacity(resource)));
            }
        }
        for k in 0..R {
            let freed = std::mem::take(&mut self.freed[k]);
            self.sums[k] -= freed;
            self.free[k] = self.free[k].saturating_sub(freed * u128::from(level));
        }
    }

    /// Stops one user by `limit`, or by its cap, unless it has stopped already. Adds its rates to
    /// `freed`.
    fn stop(&mut self, user: usize, level: u64, limit: Option<UserLimit>) {
        let (rates, outcome) = (&mut self.rates[user], &mut self.outcomes[user]);
        let Some(dominant) = outcome.dominant.filter(|dominant| rates[*dominant] > 0) else {
            return;
        };
        // Of its dominant resource a user takes its whole share.
        let weight = rates[dominant] >> RATE_BITS;
        for (rate, freed) in rates.iter_mut().zip(&mut self.freed) {
            *freed += u128::from(std::mem::take(rate));
        }
        outcome.share = Share::from_raw(level * weight);
        outcome.limit = limit.unwrap_or(outcome.limit);
    }
}

fn product(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

/// Part of one resource that a task takes, in the resource's unit.
#[derive(Clone, Copy)]
pub(super) struct TaskPart {
    pub amount: u64,
    pub capacity: u64,
}

/// Amount of a resource that a user takes for each unit of its share, in units of 2^-[`RATE_BITS`], if a task
/// takes `part` there and `dominant` of its dominant resource.
#[inline]
pub(super) fn rate(part: TaskPart, dominant: TaskPart, is_dominant: bool) -> u64 {
    if is_dominant {
        return 1 << RATE_BITS;
    }
    // The dominant fraction is the largest, so this is at most one.
    let numerator = product(part.amount, dominant.capacity);
    let denominator = product(dominant.amount, part.capacity);
    scaled(numerator, denominator, RATE_BITS, true) as u64
}

/// The level at which a user reaches its cap, if a task takes `part` of its dominant resource; `None`
/// if the cap is more than the whole resource, so that the capacity stops it first.
pub(super) fn cap_level(cap: Fraction, part: TaskPart, weight: u32) -> Option<u64> {
    let numerator = product(cap.numerator(), part.amount);
    let denominator = product(cap.denominator(), part.capacity);
    let level = || scaled(numerator, denominator * u128::from(weight), SHARE_BITS, false) as u64;
    (numerator <= denominator).then(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_rounds_up_or_down_as_requested() {
        assert_eq!(scaled(1, 3, 2, true), 2);
        assert_eq!(scaled(1, 3, 2, false), 1);
        assert_eq!(scaled(1, 2, 40, true), 1 << 39);
        let large = 1_u128 << 96;
        assert_eq!(scaled(large / 2, large, 40, true), 1 << 39);
        assert_eq!(scaled(large / 2 + 1, large, 40, true), (1 << 39) + 1);
        assert_eq!(scaled(large - 1, large, 40, false), (1 << 40) - 1);
        assert_eq!(scaled(0, large - 1, 54, true), 0);
    }

    #[test]
    fn shares_stay_within_zero_and_one() {
        assert_eq!(Share::from_ratio(1, 2).as_f64(), 0.5);
        assert_eq!(Share::from_ratio(3, 2), Share::ONE);
        assert_eq!(Share::from_ratio(0, 0), Share::ONE);
        assert_eq!(Share::from_ratio(0, 5), Share::ZERO);
        assert_eq!(Share::from_raw(u64::MAX), Share::ONE);
        assert_eq!(Share::from_raw(5).raw(), 5);
    }
}
