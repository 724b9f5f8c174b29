//! Several cards filled in turn, each from what the tenants have on the others: in the end nobody's share
//! over all cards can grow without taking from somebody who has less.

use proptest::prelude::*;
use snic_fairness::Weight;
use snic_fairness::drf::{DrfProblem, Fraction, Share, User, UserLimit, UserOutcome, solve_from};

/// Every card gets this often a new turn.
const ROUNDS: usize = 400;
/// Distance from level that shares may have after this many rounds.
const NEAR: f64 = 1e-3;

/// Area asked for by card and tenant, of 1,000; zero where a tenant has nothing on a card.
#[derive(Debug, Clone)]
struct Cards {
    weights: Vec<u32>,
    demands: Vec<Vec<u64>>,
}

fn cards() -> impl Strategy<Value = Cards> {
    (1..4_usize, 1..6_usize).prop_flat_map(|(cards, tenants)| {
        let demand = prop_oneof![1 => Just(0), 3 => 100..1_000_u64];
        let demands = prop::collection::vec(prop::collection::vec(demand, tenants), cards);
        (prop::collection::vec(1..4_u32, tenants), demands)
            .prop_map(|(weights, demands)| Cards { weights, demands })
    })
}

impl Cards {
    fn problem(&self, card: usize) -> DrfProblem {
        let one = Fraction::new(1, 1).expect("one");
        let users = self.demands[card].iter().zip(&self.weights).map(|(demand, weight)| {
            User::new(&[*demand]).weighted(Weight::new(*weight).expect("in range")).capped(one)
        });
        DrfProblem::new(&[1_000], users.collect()).expect("valid")
    }

    /// Outcome of each card's filling in its last turn.
    fn fill(&self) -> Vec<Vec<UserOutcome>> {
        let cards = self.demands.len();
        let problems: Vec<DrfProblem> = (0..cards).map(|card| self.problem(card)).collect();
        let mut filled: Vec<Vec<UserOutcome>> =
            problems.iter().map(|problem| solve_from(problem, &[])).collect();
        for card in (0..ROUNDS).flat_map(|_| 0..cards) {
            let held: Vec<u64> = (0..self.weights.len())
                .map(|tenant| {
                    let others = (0..cards).filter(|other| *other != card);
                    others.map(|other| filled[other][tenant].share.raw()).sum()
                })
                .collect();
            filled[card] = solve_from(&problems[card], &held);
        }
        filled
    }
}

proptest! {
    #[test]
    fn in_the_end_nobody_waits_for_what_somebody_richer_has(cards in cards()) {
        let filled = cards.fill();
        let level = |tenant: usize| {
            let all: f64 = filled.iter().map(|card| card[tenant].share.as_f64()).sum();
            all / f64::from(cards.weights[tenant])
        };
        for (card, outcomes) in filled.iter().enumerate() {
            let used: f64 = outcomes.iter().map(|outcome| outcome.share.as_f64()).sum();
            prop_assert!(used <= 1.0 + 1e-9, "card {} is given out twice", card);
            for (poor, outcome) in outcomes.iter().enumerate() {
                if !matches!(outcome.limit, UserLimit::Capacity(_)) {
                    continue; // It has what it asks for on this card.
                }
                prop_assert!(used >= 1.0 - 1e-6, "card {} has area left for {}", card, poor);
                for (rich, outcome) in outcomes.iter().enumerate() {
                    let has = outcome.share > Share::from_ratio(1, 1_000);
                    prop_assert!(
                        !has || level(rich) <= level(poor) + NEAR,
                        "card {}: {} has {} and {} has {}", card, rich, level(rich), poor, level(poor)
                    );
                }
            }
        }
    }
}
