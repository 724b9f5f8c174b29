//! Progressive filling in scaled integers, for the control loop.
//!
//! Shares count in units of 2^-54, and what a user takes of a resource beside its dominant one
//! counts in units of 2^-46 of its share, rounded up: nobody gets more than there is. From there
//! on every comparison is between integers, so a tie is a tie: users with the same weight that are
//! stopped by the same resource have equal shares to the last bit, whatever the order or machine.
//!
//! Distance from [`super::exact`]: a resource is called full when at most 2^-44 / m of it is left,
//! m being the mean fraction its users take of it for each unit of their shares. That is 2^-40
//! where they take a sixteenth. What is left so is missing from the shares of those who use it;
//! who takes little of it beside its dominant resource misses as much more of that.
//! Where a cap and a full resource stop a user within 2^-54 of the same level, either may be named;
//! if the cap is, the resource may be overdrawn by that much, which no sum of [`Allocation::amount`]
//! shows: those are whole units.

use num_rational::BigRational;

use super::{Fraction, Limit, Problem};

// With 2^17 users of weight 2^10 the sum of rates has 73 bits; times a level of 54 bits that is
// 127, what the type holds.
/// Bits after the point of a share.
const SHARE_BITS: u32 = 54;
/// Bits after the point of a rate.
const RATE_BITS: u32 = 46;
/// A whole resource: shares times rates.
const WHOLE: u128 = 1 << (SHARE_BITS + RATE_BITS);

/// A fraction of a resource from 0 to 1, in units of 2^-54.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u64);

impl Share {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// All of it.
    pub const ONE: Self = Self(1 << SHARE_BITS);

    /// From units of 2^-54; more than a whole is a whole.
    pub const fn from_raw(raw: u64) -> Self {
        if raw > Self::ONE.0 { Self::ONE } else { Self(raw) }
    }

    /// `numerator / denominator`, rounded down; a whole where it is more, or divided by zero.
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

/// What one user gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The resource it holds most of, by fraction; `None` where it asks for nothing.
    pub dominant: Option<usize>,
    /// The fraction it holds of that resource.
    pub share: Share,
    /// What kept it from more.
    pub limit: Limit,
}

/// What everybody gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// One for each user, in their order.
    pub outcomes: Vec<Outcome>,
    /// How full each resource is, rounded up.
    pub used: Vec<Share>,
}

impl Allocation {
    /// How many tasks `user` of `problem` gets: exact where its cap or quota stopped it, else
    /// what its share buys.
    pub fn tasks(&self, problem: &Problem, user: usize) -> BigRational {
        let outcome = &self.outcomes[user];
        let asked = &problem.users()[user];
        let ratio = |n: u64, d: u64| BigRational::new(n.into(), d.into());
        match (outcome.limit, asked.tightest_cap(), outcome.dominant) {
            (Limit::OwnCap | Limit::Quota(_), Some((cap, _)), _) => {
                ratio(cap.numerator(), cap.denominator())
            }
            (_, _, Some(k)) => {
                ratio(outcome.share.0, Share::ONE.0) * ratio(problem.capacities()[k], 1)
                    / ratio(asked.demand[k], 1)
            }
            _ => ratio(0, 1),
        }
    }

    /// How much `user` of `problem` gets of `resource`, in whole units, rounded down.
    pub fn amount(&self, problem: &Problem, user: usize, resource: usize) -> u64 {
        let demand = BigRational::from_integer(problem.users()[user].demand[resource].into());
        let amount = (self.tasks(problem, user) * demand).to_integer();
        u64::try_from(amount).expect("an amount is at most the capacity, which has 64 bits")
    }
}

/// `numerator / denominator`, the first at most the second and both below 2^107, in units of
/// 2^-`bits`, bits at most 54, rounded up or down. Where the denominator has over 64 bits both are
/// cut to its first 64, towards the same side.
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

/// Solves `problem`. Time: n × resources for each resource that fills up.
pub fn solve(problem: &Problem) -> Allocation {
    let mut solver = Solver::default();
    solver.solve(problem);
    let used = solver.free.iter().map(|free| {
        let used = (WHOLE - free).div_ceil(1 << RATE_BITS);
        Share(used as u64)
    });
    Allocation { used: used.collect(), outcomes: solver.outcomes }
}

/// [`solve`] for one problem after another, in the same memory.
#[derive(Debug, Clone, Default)]
pub struct Solver {
    /// By user. While the level rises the limit of one who has not stopped is its cap's.
    outcomes: Vec<Outcome>,
    /// By user, then resource: weight × fraction of the resource per share; zero once it stopped.
    rates: Vec<u64>,
    /// By resource: the sum of its rates.
    sums: Vec<u128>,
    /// By resource: what is left were everybody who still rises taken at level zero.
    free: Vec<u128>,
    /// Cap levels with their users.
    caps: Vec<(u64, u32)>,
    /// By resource: what those who stop together free.
    freed: Vec<u128>,
    /// By resource, of those who are looked at: the sum of their rates, and what they take less.
    less: Vec<(u128, u128)>,
}

impl Solver {
    /// Solves `problem`: what each user gets, in their order.
    pub fn solve(&mut self, problem: &Problem) -> &[Outcome] {
        let resources = problem.capacities().len();
        let users = problem.users().len();
        self.outcomes.clear();
        self.caps.clear();
        self.rates.clear();
        self.rates.resize(users * resources, 0);
        for (list, value) in [(&mut self.sums, 0), (&mut self.free, WHOLE), (&mut self.freed, 0)] {
            list.clear();
            list.resize(resources, value);
        }
        self.less.clear();
        self.less.resize(resources, (0, 0));
        for index in 0..users {
            let outcome = self.enter(problem, index);
            self.outcomes.push(outcome);
        }
        self.run(problem);
        &self.outcomes
    }

    /// Computes the rates of one user.
    fn enter(&mut self, problem: &Problem, index: usize) -> Outcome {
        let user = &problem.users()[index];
        let capacities = problem.capacities();
        let stopped = |dominant, limit| Outcome { dominant, share: Share::ZERO, limit };
        let Some(dominant) = problem.dominant(index) else {
            return stopped(None, Limit::AsksNothing);
        };
        let cap = user.tightest_cap();
        if let Some((fraction, limit)) = cap
            && fraction.numerator() == 0
        {
            return stopped(Some(dominant), limit);
        }
        let full = stopped(Some(dominant), Limit::Capacity(dominant));
        if capacities[dominant] == 0 {
            return full;
        }
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let rates = &mut self.rates[index * capacities.len()..][..capacities.len()];
        for (k, rate) in rates.iter_mut().enumerate() {
            let part = match user.demand[k] {
                0 => continue,
                _ if k == dominant => 1 << RATE_BITS,
                // The dominant fraction is the largest, so this is at most a whole.
                amount => scaled(
                    product(amount, capacities[dominant]),
                    product(user.demand[dominant], capacities[k]),
                    RATE_BITS,
                    true,
                ),
            };
            *rate = part as u64 * u64::from(user.weight.get());
            self.sums[k] += u128::from(*rate);
        }
        let Some((fraction, limit)) = cap else { return full };
        let per_task = (user.demand[dominant], capacities[dominant]);
        self.enter_cap(index, fraction, per_task, user.weight.get().into());
        stopped(Some(dominant), limit)
    }

    fn enter_cap(&mut self, index: usize, cap: Fraction, per: (u64, u64), weight: u128) {
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let numerator = product(cap.numerator(), per.0);
        let denominator = product(cap.denominator(), per.1);
        if numerator > denominator {
            return; // more than the whole resource: the capacity stops it first
        }
        let level = scaled(numerator, denominator * weight, SHARE_BITS, false) as u64;
        self.caps.push((level, index as u32));
    }

    fn run(&mut self, problem: &Problem) {
        let mut caps = std::mem::take(&mut self.caps);
        let mut rest = &mut caps[..];
        loop {
            rest = self.reach_caps(problem, rest);
            let Some((level, resource)) = self.first_full() else { break };
            self.fill(problem, resource, level);
        }
        self.caps = caps;
    }

    /// Gives those their cap who reach it before anything is full; hands back the others. The
    /// lowest half can have theirs if, with the level at the highest of them, nothing is over: one
    /// half is settled by each look at it.
    fn reach_caps<'a>(
        &mut self,
        problem: &Problem,
        mut caps: &'a mut [(u64, u32)],
    ) -> &'a mut [(u64, u32)] {
        let mut over = 0;
        while over < caps.len() {
            let open = caps.len() - over;
            let middle = (open - 1) / 2;
            caps[..open].select_nth_unstable(middle);
            if self.take_caps(problem, &caps[..=middle]) {
                caps = &mut caps[middle + 1..];
            } else {
                over = caps.len() - middle;
            }
        }
        caps
    }

    /// Gives users their caps, the last being the highest, if nothing is full before its level; says
    /// whether it did. A cap lies between its level and the next, and who is stopped by it has all of
    /// it: the others are charged for the difference.
    fn take_caps(&mut self, problem: &Problem, caps: &[(u64, u32)]) -> bool {
        let Some(((last, _), lower)) = caps.split_last() else { return true };
        let resources = self.sums.len();
        // What those who stop before take, and how much less than they would at the last level.
        self.less.fill((0, 0));
        for (below, user) in lower {
            let rates = &self.rates[*user as usize * resources..][..resources];
            for (less, rate) in self.less.iter_mut().zip(rates) {
                less.0 += u128::from(*rate);
                less.1 += u128::from(*rate) * u128::from(last - below);
            }
        }
        let mut all = self.sums.iter().zip(&self.free).zip(&self.less);
        let level = u128::from(*last);
        if !all.all(|((sum, free), (rate, less))| sum * level + rate <= free + less) {
            return false;
        }
        for (level, user) in caps {
            self.stop(problem, *user as usize, *level, None);
        }
        for (k, freed) in self.freed.iter_mut().enumerate() {
            let freed = std::mem::take(freed);
            self.sums[k] -= freed;
            let charged = freed * (level + 1) - self.less[k].1;
            self.free[k] = self.free[k].saturating_sub(charged);
        }
        true
    }

    /// The level at which the first resource is full if nobody stops before, and that resource;
    /// the first of equals. `None` when nobody rises any more.
    fn first_full(&self) -> Option<(u64, usize)> {
        (0..self.sums.len())
            .filter(|&k| self.sums[k] > 0)
            .map(|k| ((self.free[k] / self.sums[k]) as u64, k))
            .min()
    }

    /// Stops everybody who uses `resource` at the level at which it is full.
    fn fill(&mut self, problem: &Problem, resource: usize, level: u64) {
        let resources = self.sums.len();
        for user in 0..self.outcomes.len() {
            if self.rates[user * resources + resource] > 0 {
                self.stop(problem, user, level, Some(Limit::Capacity(resource)));
            }
        }
        self.free_up(level);
    }

    /// Stops one user by `limit`, or by its cap, unless it has stopped before. What it took is left
    /// in `freed`.
    fn stop(&mut self, problem: &Problem, user: usize, level: u64, limit: Option<Limit>) {
        let resources = self.sums.len();
        let rates = &mut self.rates[user * resources..][..resources];
        let outcome = &mut self.outcomes[user];
        if outcome.dominant.is_none_or(|dominant| rates[dominant] == 0) {
            return;
        }
        for (rate, freed) in rates.iter_mut().zip(&mut self.freed) {
            *freed += u128::from(std::mem::take(rate));
        }
        let weight = u64::from(problem.users()[user].weight.get());
        outcome.share = Share::from_raw(level * weight);
        outcome.limit = limit.unwrap_or(outcome.limit);
    }

    /// Takes what was freed out of the sums, charged up to `level`.
    fn free_up(&mut self, level: u64) {
        for ((freed, sum), free) in self.freed.iter_mut().zip(&mut self.sums).zip(&mut self.free) {
            let freed = std::mem::take(freed);
            *sum -= freed;
            *free = free.saturating_sub(freed * u128::from(level));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_rounds_to_the_side_it_is_told() {
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
