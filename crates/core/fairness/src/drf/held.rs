//! Progressive filling where users hold something elsewhere already: on other cards.
//!
//! A user starts to rise when the level reaches what it holds elsewhere, so those who have least in all
//! rise first. Cards that are filled one after another, each with what the others gave, approach the
//! allocation in which no user's share over all cards can grow without taking from one that has
//! less.

use super::problem::dominant_of;
use super::solver::{FULL, TaskPart, cap_level, rate};
use super::{DrfProblem, RESOURCES_MAX, Share, UserLimit, UserOutcome};

/// Most that a user may hold elsewhere, in the unit of [`Share`]: 2^8 times all of the problem's
/// resource. More counts as this much.
const HELD_MAX: u64 = Share::ONE.raw() << 8;

/// Change of a user at a level. At one level users stop before others start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LevelEvent {
    Cap,
    Start,
}

/// A user that can rise.
struct RisingUser {
    rates: [u64; RESOURCES_MAX],
    held: u64,
    weight: u64,
    is_done: bool,
    has_begun: bool,
}

/// Solves `problem` for users that hold `held` of their dominant resource elsewhere, in units of
/// 2^-54 of this problem's capacity; users without an entry hold nothing. Shares of the result are
/// of this problem only.
///
/// Accuracy is that of [`super::solve`]. Time O(n log n), and O(n) for each resource that fills up.
pub fn solve_from(problem: &DrfProblem, held: &[u64]) -> Vec<UserOutcome> {
    let mut outcomes = Vec::with_capacity(problem.users().len());
    let mut users = Vec::with_capacity(problem.users().len());
    let mut events = Vec::new();
    for index in 0..problem.users().len() {
        let held = held.get(index).copied().unwrap_or(0).min(HELD_MAX);
        let (outcome, rising, cap) = prepare(problem, index, held);
        if !rising.is_done {
            let start = held.div_ceil(rising.weight);
            events.push((start, LevelEvent::Start, index));
            events.extend(cap.map(|cap| (start + cap, LevelEvent::Cap, index)));
        }
        outcomes.push(outcome);
        users.push(rising);
    }
    events.sort_unstable();
    Sweep { outcomes, users, sums: [0; RESOURCES_MAX], free: [FULL; RESOURCES_MAX], level: 0 }
        .run(&events, problem.capacities().len())
}

/// A user before it rises: its outcome if it never does, and the height of its cap above its start.
fn prepare(
    problem: &DrfProblem,
    index: usize,
    held: u64,
) -> (UserOutcome, RisingUser, Option<u64>) {
    let (user, capacities) = (&problem.users()[index], problem.capacities());
    let weight = user.weight.get();
    let mut rising = RisingUser {
        rates: [0; RESOURCES_MAX],
        held,
        weight: weight.into(),
        is_done: true,
        has_begun: false,
    };
    let outcome = |dominant, limit| UserOutcome { dominant, share: Share::ZERO, limit };
    let Some(dominant) = dominant_of(&user.demand, capacities) else {
        return (outcome(None, UserLimit::AsksNothing), rising, None);
    };
    let cap = user.tightest_cap();
    if let Some((_, limit)) = cap.filter(|(fraction, _)| fraction.numerator() == 0) {
        return (outcome(Some(dominant), limit), rising, None);
    }
    if capacities[dominant] == 0 {
        return (outcome(Some(dominant), UserLimit::Capacity(dominant)), rising, None);
    }
    let per_task = TaskPart { amount: user.demand[dominant], capacity: capacities[dominant] };
    for (k, amount) in user.demand.iter().enumerate().filter(|(_, amount)| **amount > 0) {
        let part = TaskPart { amount: *amount, capacity: capacities[k] };
        rising.rates[k] = rate(part, per_task, k == dominant) * u64::from(weight);
    }
    rising.is_done = false;
    let limit = cap.map_or(UserLimit::Capacity(dominant), |(_, limit)| limit);
    let level = cap.and_then(|(fraction, _)| cap_level(fraction, per_task, weight));
    (outcome(Some(dominant), limit), rising, level)
}

struct Sweep {
    outcomes: Vec<UserOutcome>,
    users: Vec<RisingUser>,
    /// Sum of the rates of all that rise, by resource.
    sums: [u128; RESOURCES_MAX],
    free: [u128; RESOURCES_MAX],
    level: u64,
}

impl Sweep {
    fn run(mut self, events: &[(u64, LevelEvent, usize)], resources: usize) -> Vec<UserOutcome> {
        // Between two events all that rise do so at constant rates. So the level at which a resource is full is one division,
        // and no level is stepped through. A resource that is full before the next event comes first: it stops its
        // users, and without them the others rise further until that event than they would have.
        for &(at, happens, user) in events {
            while let Some((level, full)) = self.first_full(resources).filter(|(l, _)| *l < at) {
                self.rise_to(level);
                self.saturate(full);
            }
            self.rise_to(at);
            match happens {
                _ if self.users[user].is_done => {}
                LevelEvent::Start => self.start(user),
                LevelEvent::Cap => {
                    // The cap lies between this level and the next.
                    let rates = self.users[user].rates;
                    for (free, rate) in self.free.iter_mut().zip(rates) {
                        *free = free.saturating_sub(rate.into());
                    }
                    self.stop(user, None);
                }
            }
        }
        while let Some((level, full)) = self.first_full(resources) {
            self.rise_to(level);
            self.saturate(full);
        }
        self.outcomes
    }

    fn start(&mut self, user: usize) {
        self.users[user].has_begun = true;
        for (sum, rate) in self.sums.iter_mut().zip(self.users[user].rates) {
            *sum += u128::from(rate);
        }
    }

    /// The level at which the first resource is full if nobody starts or stops before; the first of
    /// equals.
    fn first_full(&self, resources: usize) -> Option<(u64, usize)> {
        let full = |k: usize| {
            let more = u64::try_from(self.free[k] / self.sums[k]).unwrap_or(u64::MAX);
            (self.level.saturating_add(more), k)
        };
        (0..resources).filter(|k| self.sums[*k] > 0).map(full).min()
    }

    fn rise_to(&mut self, level: u64) {
        let more = u128::from(level - self.level);
        for (free, sum) in self.free.iter_mut().zip(self.sums) {
            *free = free.saturating_sub(sum * more);
        }
        self.level = level;
    }

    /// Stops all users of a full resource, also those that have not begun.
    fn saturate(&mut self, resource: usize) {
        for user in 0..self.users.len() {
            if self.users[user].rates[resource] > 0 && !self.users[user].is_done {
                self.stop(user, Some(UserLimit::Capacity(resource)));
            }
        }
    }

    /// Stops a user by `limit`, or by its cap.
    fn stop(&mut self, user: usize, limit: Option<UserLimit>) {
        let (user, outcome) = (&mut self.users[user], &mut self.outcomes[user]);
        user.is_done = true;
        outcome.limit = limit.unwrap_or(outcome.limit);
        if !user.has_begun {
            return; // It holds more elsewhere than the others reached.
        }
        for (sum, rate) in self.sums.iter_mut().zip(user.rates) {
            *sum -= u128::from(rate);
        }
        outcome.share = Share::from_raw((self.level * user.weight).saturating_sub(user.held));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fraction, User};
    use super::*;

    fn half() -> u64 {
        Share::ONE.raw() / 2
    }

    fn card(users: usize) -> DrfProblem {
        let one = Fraction::new(1, 1).expect("one");
        DrfProblem::new(&[10], vec![User::new(&[10]).capped(one); users]).expect("valid")
    }

    fn shares(outcomes: &[UserOutcome]) -> Vec<f64> {
        outcomes.iter().map(|outcome| outcome.share.as_f64()).collect()
    }

    #[test]
    fn users_that_hold_capacity_elsewhere_start_later() {
        assert_eq!(shares(&solve_from(&card(2), &[half()])), [0.25, 0.75]);
        let outcomes = solve_from(&card(2), &[Share::ONE.raw()]);
        assert_eq!(shares(&outcomes), [0.0, 1.0]);
        assert_eq!(outcomes[0].limit, UserLimit::Capacity(0), "others have less");
    }

    /// One user asks for all of two cards, the other for all of the first: in the end each has a card.
    #[test]
    fn cards_filled_in_turn_level_the_shares_over_all_of_them() {
        let (mut first, mut second) = (0, 0);
        for _ in 0..60 {
            first = solve_from(&card(2), &[second])[0].share.raw();
            second = solve_from(&card(1), &[first])[0].share.raw();
        }
        assert_eq!((first, second), (0, Share::ONE.raw()));
    }
}
