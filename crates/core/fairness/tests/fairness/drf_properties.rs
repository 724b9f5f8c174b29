//! The scaled integers of fair space against exact fractions, and the properties of DRF: envy-freeness,
//! strategy-proofness, Pareto efficiency, sharing incentive.

use num_rational::BigRational;
use proptest::prelude::*;
use snic_fairness::Weight;
use snic_fairness::drf::{
    Allocation, DrfProblem, DrfSolver, Fraction, Share, User, UserLimit, solve, solve_from,
};
use snic_fairness::regions::divide;
use snic_oracles::drf::{self as exact, ExactOutcome};
use snic_oracles::regions::divide as divide_exact;

fn ratio(n: u64, d: u64) -> BigRational {
    BigRational::new(n.into(), d.into())
}

fn share(share: Share) -> BigRational {
    ratio(share.raw(), Share::ONE.raw())
}

/// 0 often, small often, anything sometimes.
fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 4 => 1..20_u64, 2 => 1..1_000_000_u64]
}

fn user(resources: usize) -> impl Strategy<Value = User> {
    let cap = proptest::option::of((0..30_u64, 1..12_u64));
    let quota = proptest::collection::vec(proptest::option::of(0..60_u64), resources);
    let demand = proptest::collection::vec(amount(), resources);
    (demand, 1..9_u32, cap, proptest::option::weighted(0.2, quota)).prop_map(
        |(demand, weight, cap, quota)| {
            let user = User::new(&demand).weighted(Weight::new(weight).expect("in range"));
            let user = match cap {
                Some((n, d)) => user.capped(Fraction::new(n, d).expect("in range")),
                None => user,
            };
            quota.map_or(user.clone(), |quota| user.with_quota(&quota))
        },
    )
}

fn problem() -> impl Strategy<Value = DrfProblem> {
    (1..10_usize).prop_flat_map(|resources| {
        let capacities = proptest::collection::vec(amount(), resources);
        let users = proptest::collection::vec(user(resources), 0..12);
        (capacities, users).prop_map(|(c, users)| DrfProblem::new(&c, users).expect("in range"))
    })
}

/// Uniform enough that rounding cannot be amplified: every demand within a factor of 64.
fn tame_problem() -> impl Strategy<Value = DrfProblem> {
    let user = (8..64_u64, 8..64_u64, 1..5_u32).prop_map(|(a, b, weight)| {
        User::new(&[a, b]).weighted(Weight::new(weight).expect("in range"))
    });
    (500..1_000_u64, 500..1_000_u64, proptest::collection::vec(user, 1..40))
        .prop_map(|(a, b, users)| DrfProblem::new(&[a, b], users).expect("in range"))
}

fn used(outcomes: &[ExactOutcome], resource: usize) -> BigRational {
    outcomes.iter().fold(ratio(0, 1), |sum, o| sum + &o.amounts[resource])
}

/// A task takes half of the first resource and one of 2,049 of the second, which would be full at a share
/// of 1024.5: the solver once kept only the half.
#[test]
fn a_resource_that_is_hardly_used_limits_nobody() {
    let problem = DrfProblem::new(&[2, 2_049], vec![User::new(&[1, 1])]).expect("in range");
    let alone = solve(&problem);
    assert_eq!(alone.outcomes[0].share, Share::ONE);
    assert_eq!(alone.outcomes[0].limit, UserLimit::Capacity(0));
    assert_eq!([alone.amount(&problem, 0, 0), alone.amount(&problem, 0, 1)], [2, 2]);
}

/// Rounding may leave shares that sum to a little more than one.
#[test]
fn shares_over_one_together_get_no_more_regions_than_there_are() {
    let got = divide(&[Share::from_ratio(3, 4); 2], 1).expect("no whole region is too many");
    assert_eq!(got.iter().map(|user| user.own).collect::<Vec<_>>(), [1, 0]);
    let got = divide(&[Share::from_ratio(7, 16); 3], 4).expect("one and three quarters each");
    assert_eq!(got.iter().map(|user| user.own).sum::<u32>(), 4);
}

proptest! {
    #[test]
    fn fast_and_exact_agree_where_one_resource_is_hardly_used(
        capacities in (1..20_u64, 1_000..3_000_000_u64),
        users in proptest::collection::vec((1..6_u64, 1..6_u64), 1..5),
    ) {
        let users = users.into_iter().map(|(a, b)| User::new(&[a, b])).collect();
        let problem = DrfProblem::new(&[capacities.0, capacities.1], users).expect("in range");
        for (fast, exact) in solve(&problem).outcomes.iter().zip(&exact::solve(&problem)) {
            prop_assert_eq!(fast.limit, exact.limit);
            let missing = &exact.share - share(fast.share);
            prop_assert!(missing >= ratio(0, 1) && missing < ratio(1, 1 << 38), "{}", missing);
        }
    }

    #[test]
    fn exactly_nobody_gets_more_than_there_is_and_nothing_usable_is_left(problem in problem()) {
        let outcomes = exact::solve(&problem);
        for (k, &capacity) in problem.capacities().iter().enumerate() {
            prop_assert!(used(&outcomes, k) <= ratio(capacity, 1));
        }
        for (outcome, user) in outcomes.iter().zip(problem.users()) {
            prop_assert!(outcome.share <= ratio(1, 1));
            match outcome.limit {
                UserLimit::Capacity(k) => {
                    prop_assert!(user.demand[k] > 0);
                    let capacity = ratio(problem.capacities()[k], 1);
                    prop_assert_eq!(used(&outcomes, k), capacity, "left of {}", k);
                }
                UserLimit::OwnCap => {
                    let cap = user.tasks_max.expect("has a cap");
                    prop_assert_eq!(&outcome.tasks, &ratio(cap.numerator(), cap.denominator()));
                }
                UserLimit::Quota(k) => {
                    let quota = user.quota[k].expect("has a quota");
                    prop_assert_eq!(&outcome.amounts[k], &ratio(quota, 1));
                }
                UserLimit::AsksNothing => prop_assert!(user.demand.iter().all(|&d| d == 0)),
            }
        }
    }

    /// Max-min: whoever is stopped by a resource has at least the weighted share of everybody else
    /// who uses that resource.
    #[test]
    fn exactly_nobody_is_stopped_by_a_richer_user(problem in problem()) {
        let outcomes = exact::solve(&problem);
        let level = |i: usize| &outcomes[i].share / ratio(problem.users()[i].weight.get().into(), 1);
        for (i, outcome) in outcomes.iter().enumerate() {
            let UserLimit::Capacity(k) = outcome.limit else { continue };
            for (j, other) in problem.users().iter().enumerate() {
                prop_assert!(other.demand[k] == 0 || level(j) <= level(i), "{} before {}", j, i);
            }
        }
    }

    /// Envy-freeness of the plain problem: nobody could run more tasks with another's bundle.
    #[test]
    fn exactly_nobody_envies_an_equal(problem in tame_problem()) {
        let users: Vec<_> =
            problem.users().iter().map(|u| u.clone().weighted(Weight::ONE)).collect();
        let problem = DrfProblem::new(problem.capacities(), users).expect("valid");
        let outcomes = exact::solve(&problem);
        for (user, own) in problem.users().iter().zip(&outcomes) {
            for other in &outcomes {
                let tasks = user.demand.iter().zip(&other.amounts)
                    .map(|(&d, amount)| amount / ratio(d, 1)).min().expect("two resources");
                prop_assert!(tasks <= own.tasks);
            }
        }
    }

    /// A lie about the demand never lets the liar run more of its true tasks.
    #[test]
    fn exactly_nobody_gains_by_lying(
        problem in tame_problem(), lie in (1..200_u64, 1..200_u64), liar in any::<prop::sample::Index>()
    ) {
        let liar = liar.index(problem.users().len());
        let honest = exact::solve(&problem)[liar].tasks.clone();
        let mut users = problem.users().to_vec();
        let truth = users[liar].demand.clone();
        users[liar].demand = [lie.0, lie.1].as_slice().into();
        let lying = DrfProblem::new(problem.capacities(), users).expect("valid");
        let got = &exact::solve(&lying)[liar].amounts;
        let useful = truth.iter().zip(got).map(|(&d, amount)| amount / ratio(d, 1)).min();
        prop_assert!(useful.expect("two resources") <= honest);
    }

    #[test]
    fn fast_and_exact_agree(problem in tame_problem()) {
        let (fast, exact) = (solve(&problem), exact::solve(&problem));
        for (i, (fast, exact)) in fast.outcomes.iter().zip(&exact).enumerate() {
            prop_assert_eq!(fast.dominant, exact.dominant);
            let missing = &exact.share - share(fast.share);
            prop_assert!(missing >= ratio(0, 1), "user {} has too much", i);
            prop_assert!(missing < ratio(1, 1 << 38), "user {} misses {}", i, missing);
        }
    }

    /// A solver's memory is no state: after other problems it says what a new one says.
    #[test]
    fn a_used_solver_says_what_a_new_one_says(
        problems in prop::collection::vec(problem(), 1..5),
    ) {
        let mut used = DrfSolver::default();
        for problem in problems {
            prop_assert_eq!(used.solve(&problem), &solve(&problem).outcomes);
        }
    }

    /// Any problem, demands from 1 to a million: within 2^-20 still, and never over a capacity.
    #[test]
    fn fast_never_overdraws_and_stays_near(problem in problem()) {
        let (fast, exact) = (solve(&problem), exact::solve(&problem));
        for (k, &capacity) in problem.capacities().iter().enumerate() {
            let sum: u64 = (0..exact.len()).map(|i| fast.amount(&problem, i, k)).sum();
            prop_assert!(sum <= capacity);
            prop_assert!(fast.used[k] <= Share::ONE);
        }
        for (i, (fast, exact)) in fast.outcomes.iter().zip(&exact).enumerate() {
            prop_assert_eq!(fast.dominant, exact.dominant);
            let error = &exact.share - share(fast.share);
            let bound = ratio(1, 1 << 20);
            prop_assert!(error < bound && -error < bound, "user {}: {:?} {:?}", i, fast, exact);
        }
    }

    #[test]
    fn fast_treats_equals_equally_and_the_order_does_not_matter(problem in tame_problem()) {
        let mut doubled = problem.users().to_vec();
        doubled.extend(problem.users().iter().rev().cloned());
        let n = doubled.len();
        let doubled = DrfProblem::new(problem.capacities(), doubled).expect("valid");
        let Allocation { outcomes, .. } = solve(&doubled);
        for i in 0..n / 2 {
            prop_assert_eq!(outcomes[i], outcomes[n - 1 - i]);
        }
    }

    #[test]
    fn regions_add_up(parts in proptest::collection::vec(0..100_u64, 1..20), regions in 0..64_u32) {
        let sum: u64 = parts.iter().sum::<u64>().max(1);
        let exact: Vec<_> = parts.iter().map(|&part| ratio(part, sum)).collect();
        let fast: Vec<_> = parts.iter().map(|&part| Share::from_ratio(part, sum)).collect();
        let got = divide_exact(&exact, regions);
        let asked = parts.iter().any(|&part| part > 0);
        prop_assert_eq!(got.iter().map(|r| r.own).sum::<u32>(), if asked { regions } else { 0 });
        for (got, share) in got.iter().zip(&exact) {
            let entitled = share * ratio(regions.into(), 1);
            let difference = ratio(got.own.into(), 1) - &entitled;
            prop_assert!(difference < ratio(1, 1) && -difference < ratio(1, 1));
            prop_assert!(got.shared == Share::ZERO || got.spare == Share::ZERO);
        }
        // The fast side gives the same regions to the same users, ties included.
        let own = |got: &[snic_fairness::regions::UserRegions]| -> Vec<u32> {
            got.iter().map(|r| r.own).collect()
        };
        let fast = divide(&fast, regions).expect("sums to one");
        prop_assert_eq!(own(&fast), own(&got));
    }
    /// A user more takes from the others or leaves them as they are, wherever no resource but
    /// the shared one can fill up.
    #[test]
    fn exactly_a_newcomer_gives_nobody_more_of_one_resource(
        capacity in 1..1_000_u64, users in proptest::collection::vec(user(1), 1..8)
    ) {
        let all = DrfProblem::new(&[capacity], users.clone()).expect("valid");
        let before = DrfProblem::new(&[capacity], users[1..].to_vec()).expect("valid");
        let (all, before) = (exact::solve(&all), exact::solve(&before));
        for (with, without) in all[1..].iter().zip(&before) {
            prop_assert!(with.share <= without.share);
        }
    }

    /// Sharing incentive: with n equal users, each has at least the n-th part of what it would
    /// have alone.
    #[test]
    fn exactly_sharing_beats_a_static_partition(problem in tame_problem()) {
        let users: Vec<_> =
            problem.users().iter().map(|u| u.clone().weighted(Weight::ONE)).collect();
        let n = users.len() as u64;
        let together = exact::solve(&DrfProblem::new(problem.capacities(), users.clone()).expect("valid"));
        for (user, together) in users.into_iter().zip(together) {
            let alone = DrfProblem::new(problem.capacities(), vec![user]).expect("valid");
            let part = &exact::solve(&alone)[0].tasks / ratio(n, 1);
            prop_assert!(together.tasks >= part);
        }
    }

    /// Any shares of regions that sum to at most one: nobody is off by a whole region, and what
    /// is shared or spare accounts for the rest.
    #[test]
    fn regions_account_for_every_entitlement(
        parts in proptest::collection::vec(0..1_000_u64, 1..12), idle in 0..2_000_u64,
        regions in 0..40_u32,
    ) {
        let sum = parts.iter().sum::<u64>() + idle;
        let shares: Vec<_> = parts.iter().map(|&part| ratio(part, sum.max(1))).collect();
        let got = divide_exact(&shares, regions);
        let entitled = shares.iter().fold(ratio(0, 1), |sum, s| sum + s) * ratio(regions.into(), 1);
        let own: u64 = got.iter().map(|r| u64::from(r.own)).sum();
        prop_assert_eq!(ratio(own, 1), entitled.ceil());
        let noise = ratio(1, 1 << 50);
        for (got, entitled) in got.iter().zip(&shares) {
            let account = ratio(got.own.into(), 1) + share(got.shared) - share(got.spare);
            let error = account - entitled * ratio(regions.into(), 1);
            prop_assert!(error < noise && -error < noise);
        }
    }
}

/// Users with and without caps, and what each holds elsewhere, up to twice what there is.
fn with_holdings() -> impl Strategy<Value = (DrfProblem, Vec<u64>)> {
    let cap = proptest::option::of((1..30_u64, 1..4_u64));
    let user = (8..64_u64, 8..64_u64, 1..5_u32, cap).prop_map(|(a, b, weight, cap)| {
        let user = User::new(&[a, b]).weighted(Weight::new(weight).expect("in range"));
        match cap {
            Some((n, d)) => user.capped(Fraction::new(n, d).expect("in range")),
            None => user,
        }
    });
    let held = prop_oneof![Just(0), 0..=2 * Share::ONE.raw()];
    let users = proptest::collection::vec((user, held), 1..40);
    (500..1_000_u64, 500..1_000_u64, users).prop_map(|(a, b, users)| {
        let (users, held) = users.into_iter().unzip();
        (DrfProblem::new(&[a, b], users).expect("in range"), held)
    })
}

proptest! {
    /// Users that hold something elsewhere: what they get, and what limits them, as in exact
    /// fractions. Where two limits are reached at almost one level either may be named.
    #[test]
    fn filling_from_what_is_held_is_exact((problem, held) in with_holdings()) {
        let ours = solve_from(&problem, &held);
        let fractions: Vec<_> = held.iter().map(|held| ratio(*held, Share::ONE.raw())).collect();
        let exact = exact::solve_from(&problem, &fractions);
        for (at, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
            let off = (share(ours.share) - &exact.share).max(&exact.share - share(ours.share));
            prop_assert!(off < ratio(1, 1 << 34), "{}: {:?} {:?}", at, ours, exact);
            prop_assert_eq!(ours.dominant, exact.dominant);
        }
    }

    /// Among two users of a full resource, the one that is stopped there has no less over all than the
    /// other, who did not get anything from it by being richer elsewhere.
    #[test]
    fn nobody_who_is_richer_in_all_gets_more((problem, held) in with_holdings()) {
        let outcomes = solve_from(&problem, &held);
        let level = |at: usize| {
            let all = u128::from(outcomes[at].share.raw()) + u128::from(held[at]);
            all / u128::from(problem.users()[at].weight.get())
        };
        for (poor, outcome) in outcomes.iter().enumerate() {
            let UserLimit::Capacity(_) = outcome.limit else { continue };
            // Everybody here uses both resources, so all stop when one is full.
            for rich in (0..outcomes.len()).filter(|rich| outcomes[*rich].share > Share::ZERO) {
                prop_assert!(level(rich) <= level(poor) + 1, "{} before {}", rich, poor);
            }
        }
    }
}
