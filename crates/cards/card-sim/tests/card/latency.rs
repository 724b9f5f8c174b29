//! The latency law of an unloaded card: core + pass · (stages − 1) + Σ d, to the cycle.

use crate::rig;
use crate::rig::Rig;
use proptest::prelude::*;
use snic_card_sim::PlaneOptions;

const CORE: u64 = 49;
const PASS: u64 = 16;

/// The thesis's Fig. 8 has 16 and 32 cycles in turn: its totals leave no other choice.
fn dummy_chain(nts: usize) -> Vec<rig::Nt> {
    (0..nts).map(|slot| (if slot % 2 == 0 { 16 } else { 32 }, 100)).collect()
}

fn mask(nts: usize) -> u8 {
    ((1_u16 << nts) - 1) as u8
}

#[test]
fn a_single_chain_takes_the_core_and_every_nt() {
    for d in 1..=64 {
        let mut rig = Rig::new();
        rig.load(0, &[(d, 100); 7]);
        for nts in 1..=7 {
            rig.dag(nts as u16, &[&[&[(0, mask(nts), 1)]]]);
            assert_eq!(rig.latency_alone(nts as u16), CORE + nts as u64 * d, "{nts} NTs of {d}");
        }
        rig.check();
    }
}

#[test]
fn a_chain_split_over_two_regions_takes_a_pass_more() {
    for d in [1, 7, 16, 64] {
        let mut rig = Rig::new();
        rig.load(0, &[(d, 100); 4]);
        rig.load(1, &[(d, 100); 4]);
        for nts in 2..=7 {
            let (head, tail) = (nts / 2, nts - nts / 2);
            rig.dag(1, &[&[&[(0, mask(head), 1)]], &[&[(1, mask(tail), 1)]]]);
            assert_eq!(rig.latency_alone(1), CORE + PASS + nts as u64 * d);
        }
    }
}

#[test]
fn figure_8_of_supernic_comes_out_exactly() {
    let nanos = [388, 452, 580, 644, 772, 836];
    for (nts, expected) in (2..).zip(nanos) {
        let chain = dummy_chain(nts);
        let mut rig = Rig::new();
        rig.load(0, &chain);
        rig.load(1, &chain[..nts / 2]);
        rig.load(2, &chain[nts / 2..]);
        rig.dag(0, &[&[&[(0, mask(nts), 1)]]]);
        assert_eq!(rig.latency_alone(0) * 4, expected, "single chain of {nts}");
        rig.dag(1, &[&[&[(1, mask(nts / 2), 1)]], &[&[(2, mask(nts - nts / 2), 1)]]]);
        assert_eq!(rig.latency_alone(1) * 4, expected + 64, "half chains of {nts}");
    }
}

#[test]
fn figure_11_of_supernic_comes_out_exactly() {
    for (d, sequential, parallel) in [(50, 249, 215), (10, 89, 95)] {
        let mut rig = Rig::new();
        rig.load(0, &[(d, 64); 4]);
        rig.load(1, &[(d, 64); 2]);
        rig.load(2, &[(d, 64); 1]);
        rig.load(3, &[(d, 64); 1]);
        rig.dag(1, &[&[&[(0, 0b1111, 1)]]]);
        assert_eq!(rig.latency_alone(1), sequential);
        rig.dag(2, &[&[&[(1, 0b11, 1)], &[(2, 1, 1)]], &[&[(3, 1, 1)]]]);
        assert_eq!(rig.latency_alone(2), parallel);
        rig.check();
    }
}

#[test]
fn a_synchronisation_buffer_that_takes_time_adds_it_between_stages() {
    // Two branches and then a stage, the other way around, twice two branches, and a chain over two regions.
    let branch = |region| [(region, 1, 1)];
    let (one, other, third) = (branch(0), branch(1), branch(2));
    let pair: &[&[rig::Instance]] = &[&one, &other];
    let single: &[&[rig::Instance]] = &[&third];
    for (stages, joins) in [
        (&[pair, single][..], 1),
        (&[single, pair][..], 0),
        (&[pair, single, pair, single][..], 2),
        (&[single, single][..], 0),
    ] {
        let latency = |sync_cycles| {
            let options = PlaneOptions { sync_cycles, ..PlaneOptions::default() };
            let mut rig = Rig::with(rig::profile(), 1, options);
            (0..3).for_each(|region| rig.load(region, &[(10, 100)]));
            rig.dag(1, stages);
            let latency = rig.latency_alone(1);
            rig.drain();
            latency
        };
        assert_eq!(latency(4), latency(0) + 4 * joins, "{stages:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn forks_and_joins_take_their_slowest_branch(
        stages in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(0_u64..60, 1..4), 1..=4),
            1..=4,
        ),
    ) {
        let mut rig = Rig::new();
        let mut expected = CORE + PASS * (stages.len() as u64 - 1);
        let mut number = 0;
        let mut branches: Vec<Vec<[rig::Instance; 1]>> = Vec::new();
        for stage in &stages {
            let mut row = Vec::new();
            for chain in stage {
                let nts: Vec<_> = chain.iter().map(|&d| (d, 100)).collect();
                rig.load(number, &nts);
                row.push([(number, mask(nts.len()), 1)]);
                number += 1;
            }
            branches.push(row);
            expected += stage.iter().map(|chain| chain.iter().sum::<u64>()).max().expect("one");
        }
        let stages: Vec<Vec<&[rig::Instance]>> =
            branches.iter().map(|row| row.iter().map(|chain| &chain[..]).collect()).collect();
        let stages: Vec<&[&[rig::Instance]]> = stages.iter().map(|row| &row[..]).collect();
        rig.dag(9, &stages);
        prop_assert_eq!(rig.latency_alone(9), expected);
        rig.drain();
    }

    #[test]
    fn a_skipped_nt_costs_nothing(delays in prop::collection::vec(1_u64..64, 8), used in 1_u8..) {
        let chain: Vec<_> = delays.iter().map(|&d| (d, 100)).collect();
        let mut rig = Rig::new();
        rig.load(3, &chain);
        rig.dag(9, &[&[&[(3, used, 1)]]]);
        let on = (0..8).filter(|slot| used >> slot & 1 == 1);
        let sum: u64 = on.map(|slot| delays[slot]).sum();
        prop_assert_eq!(rig.latency_alone(9), CORE + sum);
    }
}
