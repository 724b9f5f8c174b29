//! Progressive filling in fractions of unbounded size: the results of the papers to the digit.
//!
//! Every event looks at every user. Numbers grow with every unrelated denominator, so a thousand users
//! take seconds.

use num_rational::BigRational;
use num_traits::{One, Zero};

use snic_fairness::drf::{Allocation, DrfProblem, Fraction, Share, User, UserLimit};

/// Share of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExactOutcome {
    /// Its dominant resource; `None` if it demands nothing.
    pub dominant: Option<usize>,
    /// Fraction that it holds of that resource, 0 to 1.
    pub share: BigRational,
    /// Number of tasks that this is.
    pub tasks: BigRational,
    /// Amount of each resource, in the units of the capacities.
    pub amounts: Vec<BigRational>,
    pub limit: UserLimit,
}

fn integer(value: u64) -> BigRational {
    BigRational::from_integer(value.into())
}

/// State of a user while the level rises.
struct Filling {
    /// Dominant share of one task.
    share_per_task: BigRational,
    /// Fraction of each resource per unit of level.
    rates: Vec<BigRational>,
    /// Level at which it begins to rise.
    start: BigRational,
    /// Level at which its cap or quota is reached.
    cap: Option<(BigRational, UserLimit)>,
    /// Level at which it stopped, and why.
    stopped: Option<(BigRational, UserLimit)>,
}

impl Filling {
    fn new(problem: &DrfProblem, index: usize, held: &BigRational) -> Self {
        let user = &problem.users()[index];
        let capacities = problem.capacities();
        let Some(dominant) = problem.dominant(index) else {
            return Self::stopped_at_zero(UserLimit::AsksNothing);
        };
        let cap = tightest_cap(user);
        if let Some((fraction, limit)) = cap
            && fraction.numerator() == 0
        {
            return Self::stopped_at_zero(limit);
        }
        if capacities[dominant] == 0 {
            return Self::stopped_at_zero(UserLimit::Capacity(dominant));
        }
        let fraction_of = |k: usize| match user.demand[k] {
            0 => BigRational::zero(),
            amount => integer(amount) / integer(capacities[k]),
        };
        let share_per_task = fraction_of(dominant);
        let weight = integer(user.weight.get().into());
        let rates =
            (0..capacities.len()).map(|k| fraction_of(k) / &share_per_task * &weight).collect();
        let cap = cap.map(|(fraction, limit)| {
            let tasks = integer(fraction.numerator()) / integer(fraction.denominator());
            ((tasks * &share_per_task + held) / &weight, limit)
        });
        Self { share_per_task, rates, start: held / weight, cap, stopped: None }
    }

    fn stopped_at_zero(limit: UserLimit) -> Self {
        let stopped = Some((BigRational::zero(), limit));
        let (share_per_task, start) = (BigRational::one(), BigRational::zero());
        Self { share_per_task, rates: Vec::new(), start, cap: None, stopped }
    }

    fn uses(&self, resource: usize) -> bool {
        self.rates.get(resource).is_some_and(|rate| !rate.is_zero())
    }
}

/// Solves `problem`: what each user gets, in order.
pub fn solve(problem: &DrfProblem) -> Vec<ExactOutcome> {
    solve_from(problem, &[])
}

/// The same for users that hold so much of their dominant resource elsewhere, as a fraction of this
/// problem's capacity; those without an entry hold nothing.
pub fn solve_from(problem: &DrfProblem, held: &[BigRational]) -> Vec<ExactOutcome> {
    let held = |index: usize| held.get(index).cloned().unwrap_or_else(BigRational::zero);
    let resources = problem.capacities().len();
    let mut users: Vec<_> =
        (0..problem.users().len()).map(|i| Filling::new(problem, i, &held(i))).collect();
    let mut free = vec![BigRational::one(); resources];
    let mut level = BigRational::zero();
    while users.iter().any(|user| user.stopped.is_none()) {
        let rates: Vec<BigRational> = (0..resources).map(|k| rate_of(&users, k, &level)).collect();
        let next = next_level(&users, &free, &rates, &level);
        for (free, rate) in free.iter_mut().zip(&rates) {
            *free -= rate * (&next - &level);
        }
        level = next;
        stop_users(&mut users, &free, &level);
    }
    let users = users.into_iter().enumerate();
    users.map(|(index, user)| outcome(problem, index, user, &held(index))).collect()
}

/// Sum of what all that rise at this level take of a resource.
fn rate_of(users: &[Filling], resource: usize, level: &BigRational) -> BigRational {
    users
        .iter()
        .filter(|user| user.stopped.is_none() && user.start <= *level)
        .fold(BigRational::zero(), |sum, user| sum + &user.rates[resource])
}

/// The level at which the next resource fills up or the next cap is reached.
fn next_level(
    users: &[Filling],
    free: &[BigRational],
    rates: &[BigRational],
    level: &BigRational,
) -> BigRational {
    let full = free
        .iter()
        .zip(rates)
        .filter(|(_, rate)| !rate.is_zero())
        .map(|(free, rate)| level + free / rate);
    let capped = users
        .iter()
        .filter(|user| user.stopped.is_none())
        .filter_map(|user| user.cap.as_ref().map(|(level, _)| level.clone()));
    let starts = users.iter().filter(|user| user.stopped.is_none() && user.start > *level);
    let starts = starts.map(|user| user.start.clone());
    full.chain(capped)
        .chain(starts)
        .min()
        .expect("a user that has not stopped uses its dominant resource")
}

fn stop_users(users: &mut [Filling], free: &[BigRational], level: &BigRational) {
    for user in users.iter_mut().filter(|user| user.stopped.is_none()) {
        let own = user.cap.as_ref().filter(|(cap, _)| cap == level).map(|(_, limit)| *limit);
        let full =
            (0..free.len()).find(|&k| free[k].is_zero() && user.uses(k)).map(UserLimit::Capacity);
        user.stopped = own.or(full).map(|limit| (level.clone(), limit));
    }
}

fn outcome(
    problem: &DrfProblem,
    index: usize,
    filling: Filling,
    held: &BigRational,
) -> ExactOutcome {
    let user = &problem.users()[index];
    let (level, limit) = filling.stopped.expect("filling ends when all have stopped");
    let risen = level * integer(user.weight.get().into()) - held;
    let share = risen.max(BigRational::zero());
    let tasks = &share / filling.share_per_task;
    let amounts = user.demand.iter().map(|&amount| integer(amount) * &tasks).collect();
    ExactOutcome { dominant: problem.dominant(index), share, tasks, amounts, limit }
}

/// The tightest of cap and quotas, in tasks; on a tie the cap, then the first resource.
fn tightest_cap(user: &User) -> Option<(Fraction, UserLimit)> {
    let quotas = user.quota.iter().zip(&user.demand).enumerate();
    let quotas = quotas.filter_map(|(k, (quota, demand))| {
        let tasks = Fraction::new((*quota)?, *demand).ok()?;
        Some((tasks, UserLimit::Quota(k)))
    });
    let caps = user.tasks_max.map(|cap| (cap, UserLimit::OwnCap)).into_iter().chain(quotas);
    // `min_by` returns the first of equals.
    caps.min_by(|(a, _), (b, _)| ratio(*a).cmp(&ratio(*b)))
}

fn ratio(fraction: Fraction) -> BigRational {
    integer(fraction.numerator()) / integer(fraction.denominator())
}

/// Number of tasks that `user` gets from an allocation in scaled integers: exact if its cap or quota
/// limits it, otherwise what its share is worth.
pub fn tasks(allocation: &Allocation, problem: &DrfProblem, user: usize) -> BigRational {
    let outcome = &allocation.outcomes[user];
    let user = &problem.users()[user];
    match (outcome.limit, tightest_cap(user), outcome.dominant) {
        (UserLimit::OwnCap | UserLimit::Quota(_), Some((cap, _)), _) => ratio(cap),
        (_, _, Some(k)) => {
            let share = integer(outcome.share.raw()) / integer(Share::ONE.raw());
            share * integer(problem.capacities()[k]) / integer(user.demand[k])
        }
        _ => BigRational::zero(),
    }
}
