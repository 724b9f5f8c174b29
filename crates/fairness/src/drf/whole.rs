//! DRF in whole tasks: always serve next whoever has the smallest share for its weight, the first
//! of equals. Who cannot place another task is out; the others go on, so that nothing is left that
//! somebody could still use.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::{Limit, Problem};

/// Most tasks handed out in one go: a million steps take a tenth of a second; a task a billionth
/// the size of the card would otherwise take an hour.
pub const TASKS_MAX: u64 = 1 << 20;

/// What one user gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeOutcome {
    /// How many tasks.
    pub tasks: u64,
    /// What kept it from one more.
    pub limit: Limit,
}

/// More tasks fit than are handed out one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {TASKS_MAX} tasks fit; make a task larger, or allow fractions")]
pub struct TooManyTasks;

/// A user's share before its next task: tasks × demand / (capacity × weight), compared exactly.
/// Tasks below 2^21, amounts up to 2^48 and weights below 2^10 keep the products within 127 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    taken: u128,
    whole: u128,
    user: usize,
}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        let shares = (self.taken * other.whole).cmp(&(other.taken * self.whole));
        shares.then(self.user.cmp(&other.user))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Hands out whole tasks, one at a time.
///
/// # Errors
///
/// [`TooManyTasks`] where more than [`TASKS_MAX`] tasks would be handed out.
pub fn solve(problem: &Problem) -> Result<Vec<WholeOutcome>, TooManyTasks> {
    let mut free = problem.capacities().to_vec();
    let mut outcomes =
        vec![WholeOutcome { tasks: 0, limit: Limit::AsksNothing }; problem.users().len()];
    let turn = |user: usize, tasks: u64| {
        let dominant = problem.dominant(user)?;
        let asked = &problem.users()[user];
        let weight = u128::from(asked.weight.get());
        Some(Turn {
            taken: u128::from(tasks) * u128::from(asked.demand[dominant]),
            whole: u128::from(problem.capacities()[dominant]) * weight,
            user,
        })
    };
    // A share of nothing compares with no other: whose dominant resource has no capacity fits no
    // task, and stands in no queue.
    let (first, never): (Vec<_>, Vec<_>) =
        (0..outcomes.len()).filter_map(|user| turn(user, 0)).partition(|turn| turn.whole > 0);
    for Turn { user, .. } in never {
        outcomes[user].limit = refusal(problem, user, 0, &free).unwrap_or(Limit::AsksNothing);
    }
    let mut turns: BinaryHeap<_> = first.into_iter().map(Reverse).collect();
    let mut handed_out = 0;
    while let Some(Reverse(Turn { user, .. })) = turns.pop() {
        let outcome = &mut outcomes[user];
        if let Some(limit) = refusal(problem, user, outcome.tasks, &free) {
            outcome.limit = limit;
            continue;
        }
        handed_out += 1;
        if handed_out > TASKS_MAX {
            return Err(TooManyTasks);
        }
        outcome.tasks += 1;
        for (free, demand) in free.iter_mut().zip(&problem.users()[user].demand) {
            *free -= demand;
        }
        turns.extend(turn(user, outcome.tasks).map(Reverse));
    }
    Ok(outcomes)
}

/// Why `user` cannot have another task beside the `tasks` it has.
fn refusal(problem: &Problem, user: usize, tasks: u64, free: &[u64]) -> Option<Limit> {
    let asked = &problem.users()[user];
    if let Some((cap, limit)) = asked.tightest_cap() {
        let wanted = u128::from(tasks + 1) * u128::from(cap.denominator());
        if wanted > u128::from(cap.numerator()) {
            return Some(limit);
        }
    }
    asked.demand.iter().zip(free).position(|(demand, free)| demand > free).map(Limit::Capacity)
}
