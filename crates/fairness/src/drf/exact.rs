//! Progressive filling in fractions of unbounded size: the answers of the papers to the digit, the
//! source of explanations for few users, and the oracle for [`super::solve`].
//!
//! Written to be obviously right, not fast: every event looks at everybody. Numbers grow with
//! every unrelated denominator, so a thousand users take seconds; that is what the fast side is for.

use num_rational::BigRational;
use num_traits::{One, Zero};

use super::{Limit, Problem};

/// What one user gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExactOutcome {
    /// The resource it holds most of, by fraction; `None` where it asks for nothing.
    pub dominant: Option<usize>,
    /// The fraction it holds of that resource, 0 to 1.
    pub share: BigRational,
    /// How many tasks that is.
    pub tasks: BigRational,
    /// How much of each resource, in the units of the capacities.
    pub amounts: Vec<BigRational>,
    /// What kept it from more.
    pub limit: Limit,
}

fn integer(value: u64) -> BigRational {
    BigRational::from_integer(value.into())
}

/// A user while filling.
struct Filling {
    /// Dominant share of one task.
    share_per_task: BigRational,
    /// Fraction of each resource per unit of level.
    rates: Vec<BigRational>,
    /// Level at which cap or quota is reached.
    cap: Option<(BigRational, Limit)>,
    /// Level at which it stopped, and why.
    stopped: Option<(BigRational, Limit)>,
}

impl Filling {
    fn new(problem: &Problem, index: usize) -> Self {
        let user = &problem.users()[index];
        let capacities = problem.capacities();
        let Some(dominant) = problem.dominant(index) else {
            return Self::stopped_at_zero(Limit::AsksNothing);
        };
        let cap = user.tightest_cap();
        if let Some((fraction, limit)) = cap
            && fraction.numerator() == 0
        {
            return Self::stopped_at_zero(limit);
        }
        if capacities[dominant] == 0 {
            return Self::stopped_at_zero(Limit::Capacity(dominant));
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
            (tasks * &share_per_task / weight, limit)
        });
        Self { share_per_task, rates, cap, stopped: None }
    }

    fn stopped_at_zero(limit: Limit) -> Self {
        let stopped = Some((BigRational::zero(), limit));
        Self { share_per_task: BigRational::one(), rates: Vec::new(), cap: None, stopped }
    }

    fn uses(&self, resource: usize) -> bool {
        self.rates.get(resource).is_some_and(|rate| !rate.is_zero())
    }
}

/// The outcome of every user, in their order.
pub fn solve(problem: &Problem) -> Vec<ExactOutcome> {
    let resources = problem.capacities().len();
    let mut users: Vec<_> = (0..problem.users().len()).map(|i| Filling::new(problem, i)).collect();
    let mut free = vec![BigRational::one(); resources];
    let mut level = BigRational::zero();
    while users.iter().any(|user| user.stopped.is_none()) {
        let rates: Vec<BigRational> = (0..resources).map(|k| rate_of(&users, k)).collect();
        let next = next_level(&users, &free, &rates, &level);
        for (free, rate) in free.iter_mut().zip(&rates) {
            *free -= rate * (&next - &level);
        }
        level = next;
        stop_users(&mut users, &free, &level);
    }
    users.into_iter().enumerate().map(|(index, user)| outcome(problem, index, user)).collect()
}

fn rate_of(users: &[Filling], resource: usize) -> BigRational {
    users
        .iter()
        .filter(|user| user.stopped.is_none())
        .fold(BigRational::zero(), |sum, user| sum + &user.rates[resource])
}

/// Where the next resource fills up or the next cap is reached.
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
    full.chain(capped).min().expect("who has not stopped uses its dominant resource")
}

fn stop_users(users: &mut [Filling], free: &[BigRational], level: &BigRational) {
    for user in users.iter_mut().filter(|user| user.stopped.is_none()) {
        let own = user.cap.as_ref().filter(|(cap, _)| cap == level).map(|(_, limit)| *limit);
        let full =
            (0..free.len()).find(|&k| free[k].is_zero() && user.uses(k)).map(Limit::Capacity);
        user.stopped = own.or(full).map(|limit| (level.clone(), limit));
    }
}

fn outcome(problem: &Problem, index: usize, filling: Filling) -> ExactOutcome {
    let user = &problem.users()[index];
    let (level, limit) = filling.stopped.expect("filling ends when all have stopped");
    let share = level * integer(user.weight.get().into());
    let tasks = &share / filling.share_per_task;
    let amounts = user.demand.iter().map(|&amount| integer(amount) * &tasks).collect();
    ExactOutcome { dominant: problem.dominant(index), share, tasks, amounts, limit }
}
