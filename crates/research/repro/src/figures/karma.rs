//! Fairness over time: Karma's credits beside DRF, which forgets each epoch.

use anyhow::{Context, Result};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use snic_fairness::drf::{DrfProblem, DrfSolver, User};

use crate::karma::Karma;
use crate::outcome::{Expected, ExpectedBound, FigureOutcome, Origin, number};
use crate::parameters::{
    KARMA_BURST, KARMA_CREDITS, KARMA_EPOCHS, KARMA_JOB_PERCENT, KARMA_LOAD_PERCENT,
    KARMA_REMEMBERS, KARMA_SEED, KARMA_SLICES, KARMA_USERS, Parameters,
};

/// Allocations of the authors' program (their repository's `algorithm`) for five users of 30 slices, half of them shared, with 1,000
/// credits each, to the demands of `demand_of_the_example`. Until then no tie decides.
const EXAMPLE: [[u64; 5]; 16] = [
    [9, 1, 9, 1, 9],
    [2, 10, 6, 9, 3],
    [1, 2, 11, 10, 1],
    [1, 2, 8, 1, 11],
    [3, 5, 6, 7, 5],
    [4, 8, 3, 4, 8],
    [5, 6, 10, 7, 0],
    [2, 10, 3, 7, 8],
    [3, 9, 3, 8, 7],
    [6, 9, 3, 2, 10],
    [10, 0, 12, 3, 2],
    [2, 8, 8, 2, 4],
    [9, 6, 5, 6, 0],
    [6, 0, 0, 2, 3],
    [11, 4, 3, 5, 7],
    [8, 2, 3, 7, 10],
];
/// The program's credits after these.
const EXAMPLE_CREDITS: [u64; 5] = [1_014, 1_011, 1_003, 1_014, 1_008];

/// Policies that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Drf,
    Karma,
}

/// Results of a run.
struct Run {
    /// Slices that each user got and needed.
    useful: Vec<f64>,
    /// The epoch in which the last user's job was done.
    slowest: f64,
    /// Slices that were idle although somebody wanted them.
    idle: f64,
}

/// Demands of the users, one epoch after the other: the first half wants the same always, the other half as much on average
/// in few epochs.
struct Demands {
    random: ChaCha8Rng,
    users: usize,
    mean: u64,
    burst: u64,
}

impl Demands {
    fn new(parameters: &Parameters) -> Self {
        let fair = parameters.value(&KARMA_SLICES);
        Self {
            random: ChaCha8Rng::seed_from_u64(parameters.count(&KARMA_SEED)),
            users: parameters.count(&KARMA_USERS) as usize,
            mean: (fair * parameters.value(&KARMA_LOAD_PERCENT) / 100.0) as u64,
            burst: parameters.count(&KARMA_BURST),
        }
    }

    fn next(&mut self) -> Vec<u64> {
        let steady = self.users / 2;
        let demand = |user| match self.random.random_range(0..self.burst) {
            _ if user < steady => self.mean,
            0 => self.mean * self.burst,
            _ => 0,
        };
        (0..self.users).map(demand).collect()
    }
}

/// Runs a policy. A liar is the last user: it claims its burst in every epoch.
fn simulate(parameters: &Parameters, policy: Policy, has_liar: bool) -> Result<Run> {
    let mut demands = Demands::new(parameters);
    let (users, fair) = (demands.users, parameters.count(&KARMA_SLICES));
    let (capacity, guaranteed) = (fair * users as u64, fair / 2);
    let fresh = || {
        Karma::new(
            users,
            guaranteed,
            capacity - guaranteed * users as u64,
            parameters.count(&KARMA_CREDITS),
        )
    };
    let (mut karma, mut drf) = (fresh(), DrfSolver::default());
    let remembers = parameters.value(&KARMA_REMEMBERS) >= 0.5;
    let epochs = parameters.count(&KARMA_EPOCHS);
    let job = parameters.value(&KARMA_JOB_PERCENT) / 100.0 * (fair * epochs) as f64;
    let mut run = Run { useful: vec![0.0; users], slowest: 0.0, idle: 0.0 };
    for epoch in 1..=epochs {
        let needed = demands.next();
        let mut claimed = needed.clone();
        if has_liar && let Some(liar) = claimed.last_mut() {
            *liar = demands.mean * demands.burst;
        }
        let got: Vec<f64> = match policy {
            Policy::Drf => {
                let users = claimed.iter().map(|claim| User::new(&[1]).with_quota(&[Some(*claim)]));
                let problem = DrfProblem::new(&[capacity], users.collect())?;
                let outcomes = drf.solve(&problem);
                outcomes.iter().map(|user| user.share.as_f64() * capacity as f64).collect()
            }
            Policy::Karma => {
                if !remembers {
                    karma = fresh();
                }
                karma.allocate(&claimed).into_iter().map(|slices| slices as f64).collect()
            }
        };
        let wanted = capacity.min(claimed.iter().sum()) as f64;
        run.idle += (wanted - got.iter().sum::<f64>()).max(0.0);
        for ((useful, got), needed) in run.useful.iter_mut().zip(got).zip(needed) {
            let before = *useful;
            *useful += got.min(needed as f64);
            if before < job && *useful >= job {
                run.slowest = epoch as f64;
            }
        }
    }
    if run.useful.iter().any(|useful| *useful < job) {
        run.slowest = f64::INFINITY;
    }
    Ok(run)
}

/// Jain's index: 1 where all have the same.
fn jain(values: &[f64]) -> f64 {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, of), v| (sum + v, of + v * v));
    sum * sum / (values.len() as f64 * squares)
}

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    example(&mut outcome);
    let policies = [("DRF", Policy::Drf), ("Karma", Policy::Karma)];
    let columns = [
        "policy",
        "Jain's index",
        "slowest job, epochs",
        "of a liar, to the truth",
        "of the others meanwhile",
    ];
    outcome.table.columns = columns.map(str::to_owned).into();
    let (mut unequal, mut slowest) = (Vec::new(), Vec::new());
    for (name, policy) in policies {
        let honest = simulate(parameters, policy, false)?;
        let lies = simulate(parameters, policy, true)?;
        let (liar, others) = lies.useful.split_last().context("there are users")?;
        let (truth, before) = honest.useful.split_last().context("there are users")?;
        let gain = liar / truth;
        let lost = others.iter().sum::<f64>() / before.iter().sum::<f64>();
        let index = jain(&honest.useful);
        unequal.push(1.0 - index);
        slowest.push(honest.slowest);
        let cells = [index, honest.slowest, gain, lost].map(number);
        outcome.table.rows.push([&[name.to_owned()][..], &cells].concat());
        let proof = |bound| Expected::predicted(Origin::Published, bound);
        let what = format!("{name}: slices that are idle although somebody wants them, of all");
        let all = honest.useful.iter().sum::<f64>();
        outcome.check(what, "", proof(ExpectedBound::Margin(0.0, 1e-6)), honest.idle / all);
        let what = format!("{name}: useful slices of a liar, to when it tells the truth");
        // DRF's shares are rounded down in the last of 48 bits.
        outcome.check(what, "×", proof(ExpectedBound::AtMost(1.0 + 1e-6)), gain);
    }
    let shape = |most| Expected::predicted(Origin::Shape, ExpectedBound::AtMost(most));
    let what = "What Karma leaves of DRF's distance from equal slices (1 - Jain's index)";
    outcome.check(what, "×", shape(0.5), unequal[1] / unequal[0]);
    outcome.check("Slowest job, Karma to DRF", "×", shape(1.0), slowest[1] / slowest[0]);
    notes(&mut outcome);
    Ok(outcome)
}

/// The authors' example beside ours.
fn example(outcome: &mut FigureOutcome) {
    let mut karma = Karma::new(5, 3, 15, 1_000);
    let (mut state, mut same) = (7_u32, 0_u32);
    for expected in EXAMPLE {
        let demands: Vec<u64> = (0..5).map(|_| demand_of_the_example(&mut state)).collect();
        let equal = karma.allocate(&demands).into_iter().zip(expected).filter(|(a, b)| a == b);
        same += equal.count() as u32;
    }
    let exact = |value| Expected::predicted(Origin::Data, ExpectedBound::Exact(value));
    let what = "Allocations that are those of the authors' program";
    outcome.check(what, "", exact(80.0), same.into());
    let credits = karma.credits().iter().zip(EXAMPLE_CREDITS).filter(|(a, b)| **a == *b).count();
    outcome.check("Credits that are those of the authors' program", "", exact(5.0), credits as f64);
}

/// The next of a linear congruential sequence, 0 to 12.
fn demand_of_the_example(state: &mut u32) -> u64 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    u64::from((*state >> 16) % 13)
}

fn notes(outcome: &mut FigureOutcome) {
    outcome.note(
        "One resource of equal slices, for which DRF is max-min fairness; its solver is the product's. Half of the users want the same in each epoch, \
         the other half as much on average in few epochs. Karma is a model beside the product: no card is controlled by it. Its authors print \
         guarantees, that nothing is idle which somebody wants and that a user gains nothing by claiming more, and a program; their traces are not \
         compared, so how much fairer it is here is a shape and not their number.",
    );
    outcome.note(
        "A liar is a user with bursts that claims its burst in every epoch. DRF neither rewards nor punishes it, and the others pay for it; with \
         Karma it spends its credits.",
    );
}
