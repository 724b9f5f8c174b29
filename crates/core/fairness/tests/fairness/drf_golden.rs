//! Golden numbers of fair space, by the exact solver and by the one in scaled integers.

use num_rational::BigRational;
use snic_fairness::Weight;
use snic_fairness::drf::{DrfProblem, Fraction, User, UserLimit, solve};
use snic_fairness::regions::divide;
use snic_oracles::{drf as exact, regions};

fn ratio(n: i64, d: i64) -> BigRational {
    BigRational::new(n.into(), d.into())
}

fn weight(w: u32) -> Weight {
    Weight::new(w).expect("valid")
}

fn cap(n: u64, d: u64) -> Fraction {
    Fraction::new(n, d).expect("valid")
}

fn problem(capacities: &[u64], users: Vec<User>) -> DrfProblem {
    DrfProblem::new(capacities, users).expect("valid")
}

/// Checks tasks and shares on the exact side to the digit, on the fast side to 2^-40.
fn expect(problem: &DrfProblem, tasks: &[(i64, i64)], shares: &[(i64, i64)], limits: &[UserLimit]) {
    let exact = exact::solve(problem);
    let fast = solve(problem);
    assert_eq!(exact.len(), tasks.len());
    for (i, outcome) in exact.iter().enumerate() {
        assert_eq!(outcome.tasks, ratio(tasks[i].0, tasks[i].1), "tasks of user {i}");
        assert_eq!(outcome.share, ratio(shares[i].0, shares[i].1), "share of user {i}");
        assert_eq!(outcome.limit, limits[i], "limit of user {i}");
        assert_eq!(fast.outcomes[i].limit, limits[i], "fast limit of user {i}");
        assert_eq!(fast.outcomes[i].dominant, outcome.dominant, "dominant of user {i}");
        let missing = &outcome.tasks - exact::tasks(&fast, problem, i);
        assert!(missing >= ratio(0, 1), "user {i} gets {missing} too much");
        assert!(missing <= &outcome.tasks * ratio(1, 1 << 40), "user {i} misses {missing}");
    }
}

#[test]
fn nine_cpus_and_eighteen_gigabytes() {
    let p = problem(&[9, 18], vec![User::new(&[1, 4]), User::new(&[3, 1])]);
    expect(&p, &[(3, 1), (2, 1)], &[(2, 3), (2, 3)], &[UserLimit::Capacity(0); 2]);
    let exact = exact::solve(&p);
    assert_eq!((exact[0].dominant, exact[1].dominant), (Some(1), Some(0)));
    assert_eq!(exact[0].amounts, [ratio(3, 1), ratio(12, 1)]);
    assert_eq!(exact[1].amounts, [ratio(6, 1), ratio(2, 1)]);
}

#[test]
fn weights_of_two_to_one() {
    let users = vec![User::new(&[1, 4]).weighted(weight(2)), User::new(&[3, 1])];
    let p = problem(&[9, 18], users);
    expect(&p, &[(54, 13), (18, 13)], &[(12, 13), (6, 13)], &[UserLimit::Capacity(1); 2]);
}

#[test]
fn the_first_user_capped_at_one() {
    let users = vec![User::new(&[1, 4]).capped(cap(1, 1)), User::new(&[3, 1])];
    let p = problem(&[9, 18], users);
    expect(&p, &[(1, 1), (8, 3)], &[(2, 9), (8, 9)], &[UserLimit::OwnCap, UserLimit::Capacity(0)]);
    // A quota of 4 GB is the same cap, told differently.
    let users = vec![User::new(&[1, 4]).with_quota(&[None, Some(4)]), User::new(&[3, 1])];
    let p = problem(&[9, 18], users);
    expect(
        &p,
        &[(1, 1), (8, 3)],
        &[(2, 9), (8, 9)],
        &[UserLimit::Quota(1), UserLimit::Capacity(0)],
    );
}

#[test]
fn a_quota_of_what_is_not_asked_for_limits_nothing() {
    let user = User::new(&[0, 1]).with_quota(&[Some(0), Some(3)]);
    let p = problem(&[10, 10], vec![user]);
    expect(&p, &[(3, 1)], &[(3, 10)], &[UserLimit::Quota(1)]);
}

#[test]
fn thirty_and_thirty() {
    let p = problem(&[30, 30], vec![User::new(&[1, 3]), User::new(&[1, 1])]);
    expect(&p, &[(5, 1), (15, 1)], &[(1, 2), (1, 2)], &[UserLimit::Capacity(1); 2]);
    assert_eq!(exact::solve(&p)[1].dominant, Some(0), "the first of equals");
}

#[test]
fn four_resources() {
    // Everything doubled, so that 7.5 is whole.
    let users = vec![User::new(&[10, 16, 8, 4]), User::new(&[0, 10, 0, 15])];
    let p = problem(&[20, 20, 14, 20], users);
    expect(&p, &[(3, 4), (4, 5)], &[(3, 5), (3, 5)], &[UserLimit::Capacity(1); 2]);
    let halves = |amounts: &[BigRational]| -> Vec<_> {
        amounts.iter().map(|amount| amount / ratio(2, 1)).collect()
    };
    let exact = exact::solve(&p);
    assert_eq!(halves(&exact[0].amounts), [ratio(15, 4), ratio(6, 1), ratio(3, 1), ratio(3, 2)]);
    assert_eq!(halves(&exact[1].amounts), [ratio(0, 1), ratio(4, 1), ratio(0, 1), ratio(6, 1)]);
    // In millionths the fast side is off by at most one.
    let million: Vec<_> = [10, 10, 7, 10].map(|c| c * 1_000_000).into();
    let users = vec![
        User::new(&[5_000_000, 8_000_000, 4_000_000, 2_000_000]),
        User::new(&[0, 5_000_000, 0, 7_500_000]),
    ];
    let p = problem(&million, users);
    let fast = solve(&p);
    let expected = [[3_750_000, 6_000_000, 3_000_000, 1_500_000], [0, 4_000_000, 0, 6_000_000]];
    for (user, amounts) in expected.iter().enumerate() {
        for (k, &amount) in amounts.iter().enumerate() {
            let got = fast.amount(&p, user, k);
            assert!(got <= amount && amount - got <= 1, "user {user} resource {k}: {got}");
        }
    }
}

#[test]
fn demands_of_zero_capacities_of_zero_and_nobody() {
    // Nobody.
    let p = problem(&[9, 18], vec![]);
    assert!(solve(&p).outcomes.is_empty() && exact::solve(&p).is_empty());
    // No resources: everybody asks for nothing.
    let p = problem(&[], vec![User::new(&[])]);
    expect(&p, &[(0, 1)], &[(0, 1)], &[UserLimit::AsksNothing]);
    // One user alone has all it can take; the resource nobody asks for stays empty.
    let p = problem(&[9, 18, 5], vec![User::new(&[3, 3, 0])]);
    expect(&p, &[(3, 1)], &[(1, 1)], &[UserLimit::Capacity(0)]);
    assert_eq!(solve(&p).used.iter().map(|u| u.as_f64()).collect::<Vec<_>>(), [1.0, 0.5, 0.0]);
    // Zero demand, zero capacity, zero cap, zero quota, beside one who wants something.
    let users = vec![
        User::new(&[0, 0]),
        User::new(&[0, 7]),
        User::new(&[1, 0]).capped(cap(0, 1)),
        User::new(&[1, 0]).with_quota(&[Some(0), None]),
        User::new(&[0, 0]).capped(cap(5, 1)),
        User::new(&[2, 0]),
    ];
    let p = problem(&[10, 0], users);
    let limits = [
        UserLimit::AsksNothing,
        UserLimit::Capacity(1),
        UserLimit::OwnCap,
        UserLimit::Quota(0),
        UserLimit::AsksNothing,
        UserLimit::Capacity(0),
    ];
    let zero = (0, 1);
    let tasks = [zero, zero, zero, zero, zero, (5, 1)];
    let shares = [zero, zero, zero, zero, zero, (1, 1)];
    expect(&p, &tasks, &shares, &limits);
}

#[test]
fn the_largest_amounts_do_not_overflow() {
    let most = snic_fairness::drf::AMOUNT_MAX;
    let heavy = weight(1_000);
    let users = vec![
        User::new(&[most, 1]).weighted(heavy).capped(cap(most, most)),
        User::new(&[1, most]).weighted(heavy).capped(cap(most - 1, most)),
        User::new(&[most, most]),
    ];
    let p = problem(&[most, 1], users);
    let (fast, exact) = (solve(&p), exact::solve(&p));
    for (fast, exact) in fast.outcomes.iter().zip(&exact) {
        assert_eq!(fast.dominant, exact.dominant);
        let error = &exact.share - ratio(fast.share.raw() as i64, 1 << 54);
        assert!(error >= ratio(0, 1) && error < ratio(1, 1 << 30), "{error}");
    }
}

#[test]
fn regions_go_to_the_largest_remainder_and_ties_to_the_first() {
    let exact = |shares: &[(i64, i64)], count| {
        let shares: Vec<_> = shares.iter().map(|&(n, d)| ratio(n, d)).collect();
        let got = regions::divide(&shares, count);
        got.iter().map(|r| r.own).collect::<Vec<_>>()
    };
    assert_eq!(exact(&[(1, 3), (1, 3), (1, 3)], 16), [6, 5, 5]);
    assert_eq!(exact(&[(1, 2), (1, 3), (1, 6)], 10), [5, 3, 2]);
    assert_eq!(exact(&[(1, 10), (1, 10)], 10), [1, 1]);
    assert_eq!(exact(&[(1, 100), (1, 100)], 10), [1, 0], "one region, shared by both");
    assert_eq!(exact(&[(0, 1), (1, 1)], 7), [0, 7]);
    assert_eq!(exact(&[], 7), Vec::<u32>::new());
    assert_eq!(exact(&[(1, 2), (1, 2)], 0), [0, 0]);
    let got = regions::divide(&[ratio(3, 20), ratio(3, 20)], 10);
    assert_eq!((got[0].own, got[0].shared.as_f64(), got[0].spare.as_f64()), (2, 0.0, 0.5));
    assert_eq!((got[1].own, got[1].shared.as_f64(), got[1].spare.as_f64()), (1, 0.5, 0.0));
}

#[test]
fn shares_that_solve_rounded_down_lose_no_region() {
    // Twelve equal users of 24 regions: exactly two each, though 1/12 is no binary fraction.
    let p = problem(&[7, 5], vec![User::new(&[3, 2]); 12]);
    let shares: Vec<_> = solve(&p).outcomes.iter().map(|o| o.share).collect();
    let got = divide(&shares, 24).expect("valid");
    assert!(got.iter().all(|r| r.own == 2), "{got:?}");
    // Weights 1, 4 and 4 of 3 regions: 1/3, 4/3 and 4/3, three equal remainders.
    let users = [1, 4, 4].map(|w| User::new(&[1]).weighted(weight(w)));
    let p = problem(&[1], users.into());
    let shares: Vec<_> = solve(&p).outcomes.iter().map(|o| o.share).collect();
    let own: Vec<_> = divide(&shares, 3).expect("valid").iter().map(|r| r.own).collect();
    assert_eq!(own, [1, 1, 1], "the tie goes to the first");
}

#[test]
fn invalid_divisions_of_regions_are_rejected() {
    use snic_fairness::drf::Share;
    use snic_fairness::regions::{REGIONS_MAX, RegionsError};
    assert_eq!(
        divide(&[Share::ONE, Share::ONE], 4),
        Err(RegionsError::OverSubscribed { entitled: 8, regions: 4 })
    );
    let over = REGIONS_MAX + 1;
    assert_eq!(divide(&[], over), Err(RegionsError::TooManyRegions { regions: over }));
}
