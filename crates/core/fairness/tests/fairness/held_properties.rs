//! Filling where users hold something on other cards, against a level that is searched for by halving; and
//! what must hold however regions are divided.

use proptest::prelude::*;
use snic_fairness::Weight;
use snic_fairness::drf::{
    DrfProblem, Fraction, Share, User, UserLimit, UserOutcome, solve, solve_from,
};
use snic_fairness::regions::{REGIONS_MAX, RegionsError, divide};

/// Shares are accurate to 2^-40 for each user; the test has few users.
const EPSILON: f64 = 1e-9;

/// One user of one resource: weight, what it holds elsewhere and most that it takes here, as fractions of
/// the resource.
#[derive(Debug, Clone, Copy)]
struct Holder {
    weight: u32,
    held: f64,
    most: Option<f64>,
}

impl Holder {
    /// Amount that it takes here at a level of weighted shares.
    fn takes(&self, level: f64) -> f64 {
        let rises = (level * f64::from(self.weight) - self.held).max(0.0);
        self.most.map_or(rises, |most| rises.min(most))
    }
}

const CAPACITY: u64 = 1_000_000;

fn holder() -> impl Strategy<Value = Holder> {
    let most = proptest::option::weighted(0.4, 0..900_000_u64);
    (1..9_u32, 0..2_000_000_u64, most).prop_map(|(weight, held, most)| Holder {
        weight,
        held: held as f64 / CAPACITY as f64,
        most: most.map(|most| most as f64 / CAPACITY as f64),
    })
}

/// One task takes a unit of the resource.
fn problem(holders: &[Holder]) -> DrfProblem {
    let user = |holder: &Holder| {
        let user = User::new(&[1]).weighted(Weight::new(holder.weight).expect("in range"));
        match holder.most {
            Some(most) => {
                let tasks = (most * CAPACITY as f64).round() as u64;
                user.capped(Fraction::new(tasks, 1).expect("in range"))
            }
            None => user,
        }
    };
    DrfProblem::new(&[CAPACITY], holders.iter().map(user).collect()).expect("in range")
}

fn solved(holders: &[Holder]) -> Vec<UserOutcome> {
    let held: Vec<u64> =
        holders.iter().map(|holder| (holder.held * Share::ONE.raw() as f64) as u64).collect();
    solve_from(&problem(holders), &held)
}

/// Amounts at the level at which the resource is full, or at which all have what they can take.
fn by_halving(holders: &[Holder]) -> Vec<f64> {
    let (mut low, mut high) = (0.0, 16.0);
    for _ in 0..200 {
        let level = (low + high) / 2.0;
        let sum: f64 = holders.iter().map(|holder| holder.takes(level)).sum();
        if sum > 1.0 { high = level } else { low = level }
    }
    holders.iter().map(|holder| holder.takes(low)).collect()
}

proptest! {
    /// The user that holds least in all rises first: the level that halving finds gives the same shares.
    #[test]
    fn shares_are_those_of_one_level_over_all_cards(
        holders in proptest::collection::vec(holder(), 1..12),
    ) {
        for (outcome, expected) in solved(&holders).iter().zip(by_halving(&holders)) {
            prop_assert!((outcome.share.as_f64() - expected).abs() < EPSILON,
                "{} instead of {expected}", outcome.share.as_f64());
        }
    }

    /// The limit that is told is the one that holds.
    #[test]
    fn capped_users_reach_their_cap_and_others_find_the_resource_full(
        holders in proptest::collection::vec(holder(), 1..12),
    ) {
        let outcomes = solved(&holders);
        let sum: f64 = outcomes.iter().map(|outcome| outcome.share.as_f64()).sum();
        prop_assert!(sum < 1.0 + EPSILON, "{sum}");
        for (outcome, holder) in outcomes.iter().zip(&holders) {
            match outcome.limit {
                UserLimit::OwnCap => {
                    let most = holder.most.expect("only who has a cap is limited by it");
                    prop_assert!((outcome.share.as_f64() - most).abs() < EPSILON);
                }
                UserLimit::Capacity(resource) => {
                    prop_assert_eq!(resource, 0);
                    prop_assert!(sum > 1.0 - EPSILON, "{} is not full", sum);
                }
                other => prop_assert!(false, "{other:?} limits nobody here"),
            }
        }
    }

    /// A user that holds more elsewhere gets no more here, and nobody else gets less.
    #[test]
    fn holding_more_elsewhere_leaves_more_for_others(
        holders in proptest::collection::vec(holder(), 2..10),
        more in 0.0..1.0_f64,
    ) {
        let before = solved(&holders);
        let mut holders = holders;
        holders[0].held += more;
        let after = solved(&holders);
        prop_assert!(after[0].share.as_f64() <= before[0].share.as_f64() + EPSILON);
        for (after, before) in after.iter().zip(&before).skip(1) {
            prop_assert!(after.share.as_f64() >= before.share.as_f64() - EPSILON);
        }
    }

    /// Whoever is named first gets nothing for it.
    #[test]
    fn the_order_of_users_does_not_matter(holders in proptest::collection::vec(holder(), 1..10)) {
        let forward = solved(&holders);
        let backward: Vec<Holder> = holders.iter().rev().copied().collect();
        for (one, other) in forward.iter().zip(solved(&backward).iter().rev()) {
            prop_assert!((one.share.as_f64() - other.share.as_f64()).abs() < EPSILON);
        }
    }

    /// Where nobody holds anything elsewhere, it is the same problem as without other cards.
    #[test]
    fn with_nothing_held_it_is_plain_filling(holders in proptest::collection::vec(holder(), 1..12)) {
        let plain = solve(&problem(&holders));
        let from = solve_from(&problem(&holders), &[]);
        for (plain, from) in plain.outcomes.iter().zip(&from) {
            prop_assert!((plain.share.as_f64() - from.share.as_f64()).abs() < EPSILON);
            prop_assert_eq!(plain.dominant, from.dominant);
        }
    }

    /// However regions are divided: a user has its entitlement rounded down or up, with what that is off
    /// told, and together they have the entitlements' sum rounded up.
    #[test]
    fn regions_are_rounded_and_what_is_off_is_told(
        parts in proptest::collection::vec(0..100_u64, 1..12),
        regions in 0..64_u32,
    ) {
        let all: u64 = parts.iter().sum::<u64>().max(1);
        let shares: Vec<Share> = parts.iter().map(|part| Share::from_ratio(*part, all)).collect();
        let got = divide(&shares, regions).expect("shares are at most one in all");
        let mut sum = 0.0;
        for (user, part) in got.iter().zip(&parts) {
            let entitled = *part as f64 * f64::from(regions) / all as f64;
            sum += entitled;
            let told = f64::from(user.own) + user.shared.as_f64() - user.spare.as_f64();
            prop_assert!((told - entitled).abs() < 1e-6, "{user:?} for {entitled}");
            prop_assert!((f64::from(user.own) - entitled).abs() < 1.0, "{user:?} for {entitled}");
            prop_assert!(user.shared == Share::ZERO || user.spare == Share::ZERO, "{user:?}");
        }
        let own: u32 = got.iter().map(|user| user.own).sum();
        prop_assert_eq!(own, (sum - 1e-6).ceil().max(0.0) as u32);
    }
}

#[test]
fn one_user_with_all_regions_elsewhere_leaves_this_card_to_the_other() {
    let holders =
        [Holder { weight: 1, held: 1.0, most: None }, Holder { weight: 1, held: 0.0, most: None }];
    let [first, second] = solved(&holders)[..] else { panic!("two users") };
    assert_eq!((first.share, second.share), (Share::ZERO, Share::ONE));
    // With a card of its own capacity more, both end at one and a half.
    let weighted = [Holder { weight: 2, ..holders[0] }, holders[1]];
    let [first, second] = solved(&weighted)[..] else { panic!("two users") };
    let level = 2.0 / 3.0;
    assert!((first.share.as_f64() - (2.0 * level - 1.0)).abs() < EPSILON);
    assert!((second.share.as_f64() - level).abs() < EPSILON);
}

#[test]
fn more_regions_than_any_card_has_and_shares_over_one_are_refused() {
    assert_eq!(
        divide(&[Share::ONE], REGIONS_MAX + 1).expect_err("too many").to_string(),
        "1025 regions exceed the limit of 1024"
    );
    assert_eq!(
        divide(&[Share::ONE; 2], 3),
        Err(RegionsError::OverSubscribed { entitled: 6, regions: 3 })
    );
    assert!(divide(&[], REGIONS_MAX).is_ok_and(|got| got.is_empty()), "nobody asks for any");
}
