//! Unusual and invalid input, case by case: an error, or shares and rates that are finite and never exceed
//! a capacity. `crates/core/controller` has the same for a daemon's counters, clocks and policies.

use proptest::prelude::*;
use snic_domain::Bandwidth;
use snic_fairness::Weight;
use snic_fairness::drf::{self, DrfProblem, Fraction, Share, User, UserLimit};
use snic_fairness::fluid::{self, Cost, Demand, NetworkBuilder, Solver, Spare};
use snic_fairness::regions;
use snic_oracles::drf as exact;

fn problem(capacities: &[u64], users: Vec<User>) -> DrfProblem {
    DrfProblem::new(capacities, users).expect("amounts in range")
}

/// Shares and limits; the exact solver must name the same limits.
fn shares(problem: &DrfProblem) -> Vec<(f64, UserLimit)> {
    let fast = drf::solve(problem).outcomes;
    let limits: Vec<UserLimit> = fast.iter().map(|outcome| outcome.limit).collect();
    let exactly: Vec<UserLimit> =
        exact::solve(problem).iter().map(|outcome| outcome.limit).collect();
    assert_eq!(exactly, limits);
    fast.iter().map(|outcome| (outcome.share.as_f64(), outcome.limit)).collect()
}

/// Rates in bits per second of flows that each are a tenant: weight, resources that cost one, load.
fn rates(capacities: &[u64], flows: &[(u32, &[usize], u64)]) -> Vec<u64> {
    let mut builder = NetworkBuilder::new(capacities);
    for (weight, uses, _) in flows {
        let tenant = builder.tenant(Weight::new(*weight).expect("in range"));
        builder.flow(tenant, &uses.iter().map(|k| (*k, Cost::ONE)).collect::<Vec<_>>());
    }
    let demand = |load: u64| Demand { load: Bandwidth::from_bps(load), ..Demand::default() };
    let demands: Vec<Demand> = flows.iter().map(|(_, _, load)| demand(*load)).collect();
    let mut solver = Solver::new(builder.build().expect("valid"), Spare::LevelShares);
    solver.solve(&demands).expect("one for each").rates.iter().map(|rate| rate.get()).collect()
}

#[test]
fn zero_demands() {
    let users = || vec![User::new(&[0, 0]), User::new(&[2, 1])];
    let got = shares(&problem(&[10, 10], users()));
    assert_eq!(got, [(0.0, UserLimit::AsksNothing), (1.0, UserLimit::Capacity(0))]);
    assert_eq!(
        shares(&problem(&[10], vec![User::new(&[0]); 3])),
        [(0.0, UserLimit::AsksNothing); 3]
    );
    assert_eq!(rates(&[100], &[(1, &[0], 0), (1, &[0], 500)]), [0, 100]);
    assert_eq!(rates(&[100], &[(1, &[0], 0), (9, &[0], 0)]), [0, 0]);
    let nothing = regions::divide(&[Share::ZERO; 2], 16).expect("few regions");
    assert!(nothing.iter().all(|of| of.own == 0 && of.shared == Share::ZERO));
}

#[test]
fn zero_capacity() {
    let users = vec![User::new(&[0, 1]), User::new(&[1, 0]), User::new(&[1, 1])];
    let got = shares(&problem(&[7, 0], users));
    let missing = (0.0, UserLimit::Capacity(1));
    assert_eq!(got, [missing, (1.0, UserLimit::Capacity(0)), missing]);
    let got = shares(&problem(&[0, 0], vec![User::new(&[3, 4])]));
    assert_eq!(got, [(0.0, UserLimit::Capacity(0))]);
    assert_eq!(rates(&[0, 100], &[(1, &[0, 1], 9), (1, &[1], 900), (1, &[0], 9)]), [0, 100, 0]);
    let none = regions::divide(&[Share::ONE], 0).expect("no regions are a number of regions");
    assert_eq!(none[0].own, 0);
}

#[test]
fn a_resource_that_nobody_asks_for() {
    let p = problem(&[9, 18, 5], vec![User::new(&[1, 4, 0]), User::new(&[3, 1, 0])]);
    let two_thirds = |got: &(f64, UserLimit)| (got.0 - 2.0 / 3.0).abs() < 1e-9;
    assert!(shares(&p).iter().all(two_thirds), "the golden case, beside an idle resource");
    assert_eq!(drf::solve(&p).used[2], Share::ZERO);
    // One that does not exist and one that nobody needs are the same to all.
    assert_eq!(rates(&[100, 50, 0], &[(1, &[0], 80), (3, &[0], 80)]), [25, 75]);
}

#[test]
fn weights_of_zero_negative_or_nan() {
    assert!(Weight::new(0).is_err());
    for bad in [0, -1, i64::MIN, i64::MAX] {
        assert!(Weight::try_from(bad).is_err(), "{bad}");
    }
    for bad in [0.0, -0.0, -3.0, 0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(Weight::try_from(bad).is_err(), "{bad}");
    }
}

#[test]
fn caps_that_are_no_numbers() {
    assert!(Fraction::new(1, 0).is_err() && Fraction::new(0, 0).is_err());
    let nothing = Fraction::new(0, 1).expect("a cap of nothing");
    let p = problem(&[4], vec![User::new(&[1]).capped(nothing), User::new(&[1])]);
    assert_eq!(shares(&p), [(0.0, UserLimit::OwnCap), (1.0, UserLimit::Capacity(0))]);
    let p = problem(&[4], vec![User::new(&[1]).with_quota(&[Some(0)]), User::new(&[1])]);
    assert_eq!(shares(&p), [(0.0, UserLimit::Quota(0)), (1.0, UserLimit::Capacity(0))]);
}

#[test]
fn amounts_that_would_overflow() {
    let over = drf::AMOUNT_MAX + 1;
    assert!(DrfProblem::new(&[over], vec![]).is_err());
    assert!(DrfProblem::new(&[1], vec![User::new(&[over])]).is_err());
    assert!(DrfProblem::new(&[1], vec![User::new(&[u64::MAX])]).is_err());
    let most = [(1, &[0][..], u64::MAX), (1_000, &[0], u64::MAX)];
    let got = rates(&[u64::MAX], &most);
    assert!(got.iter().map(|rate| u128::from(*rate)).sum::<u128>() <= u64::MAX.into(), "{got:?}");
}

#[test]
fn names_that_do_not_exist() {
    let mut builder = NetworkBuilder::new(&[1]);
    builder.flow(fluid::TenantIndex(0), &[]);
    assert!(builder.build().is_err(), "a flow of nobody");
    let mut builder = NetworkBuilder::new(&[1]);
    let tenant = builder.tenant(Weight::ONE);
    builder.flow(tenant, &[(1, Cost::ONE)]);
    assert!(builder.build().is_err(), "a cost of nothing that there is");
}

/// Amounts from all ends of what there is.
fn odd() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), 2..9_u64, Just(drf::AMOUNT_MAX), 0..drf::AMOUNT_MAX]
}

proptest! {
    #[test]
    fn no_share_is_over_one_whatever_comes(
        capacities in proptest::collection::vec(odd(), 2),
        users in proptest::collection::vec(
            (odd(), odd(), 1..=1_000_u32, proptest::option::of((odd(), 1..9_u64))), 0..9),
    ) {
        let user = |(a, b, weight, cap): &(u64, u64, u32, Option<(u64, u64)>)| {
            let user = User::new(&[*a, *b]).weighted(Weight::new(*weight).expect("in range"));
            match cap {
                Some((n, d)) => user.capped(Fraction::new(*n, *d).expect("in range")),
                None => user,
            }
        };
        let problem = problem(&capacities, users.iter().map(user).collect());
        let allocation = drf::solve(&problem);
        for outcome in &allocation.outcomes {
            prop_assert!(outcome.share <= Share::ONE && outcome.share.as_f64().is_finite());
        }
        for (k, capacity) in capacities.iter().enumerate() {
            let amounts = (0..users.len()).map(|user| u128::from(allocation.amount(&problem, user, k)));
            // A cap may be taken one level too high: 2^-54 of the capacity for each unit of weight.
            let weights: u128 = users.iter().map(|(_, _, weight, _)| u128::from(*weight)).sum();
            let over = (weights * u128::from(*capacity)) >> 54;
            prop_assert!(amounts.sum::<u128>() <= u128::from(*capacity) + over);
        }
    }

    #[test]
    fn no_rate_is_over_its_load_or_what_there_is(
        capacities in proptest::collection::vec(prop_oneof![odd(), Just(u64::MAX)], 3),
        flows in proptest::collection::vec(
            (1..=1_000_u32, proptest::collection::vec(0..3_usize, 1..4),
             prop_oneof![odd(), Just(u64::MAX)]), 0..9),
    ) {
        let shapes: Vec<(u32, &[usize], u64)> =
            flows.iter().map(|(weight, uses, load)| (*weight, uses.as_slice(), *load)).collect();
        let got = rates(&capacities, &shapes);
        let mut used = [0_u128; 3];
        for ((_, uses, load), rate) in flows.iter().zip(&got) {
            prop_assert!(rate <= load);
            uses.iter().for_each(|k| used[*k] += u128::from(*rate));
        }
        for (used, capacity) in used.iter().zip(&capacities) {
            prop_assert!(*used <= u128::from(*capacity), "{used} of {capacity}");
        }
    }
}
