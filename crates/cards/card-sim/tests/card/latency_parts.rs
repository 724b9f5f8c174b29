//! Latencies by part, as the card's registers have them, beside closed forms and beside what the model measures of every
//! packet.

use crate::rig;
use crate::rig::Rig;
use snic_card_sim::{Sizes, TrafficSource};
use snic_domain::Bandwidth;
use snic_ports::card::Registers;
use snic_tables::registers::*;
use snic_tables::{LatencySample, PathPart};

const CORE: u64 = 49;
const PASS: u64 = 16;

/// Has the card sample each packet of a DAG.
fn sample_all(rig: &mut Rig, row: u16) {
    rig.card.write(dag_latency(row, DAG_LATENCY_EXPONENT), 0).expect("a register");
}

/// Records from number `from` on; none of them is overwritten yet.
fn records(rig: &mut Rig, from: u32) -> Vec<LatencySample> {
    let written = rig.card.read(LATENCY_WRITTEN).expect("a register");
    assert!(written - from <= LATENCY_RING, "some are overwritten");
    let record = |number: u32| {
        let mut words = [0; LATENCY_RECORD as usize / 4];
        let at = LATENCY_RECORDS + number % LATENCY_RING * LATENCY_RECORD;
        rig.card.read_block(at, &mut words).expect("registers");
        LatencySample::from_words(words)
    };
    (from..written).map(record).collect()
}

fn parts(sample: &LatencySample) -> [u64; 6] {
    PathPart::ALL.map(|part| sample.part(part).into())
}

/// A burst of packets of 64 bytes, one a cycle.
fn burst(rig: &mut Rig, row: u16, packets: u64) -> Vec<LatencySample> {
    sample_all(rig, row);
    let source = TrafficSource::of_dag(rig::uid(row), Bandwidth::from_gbps(128), Sizes::Fixed(64));
    rig.card.attach(source.at_most(packets)).expect("valid");
    rig.drain();
    let records = records(rig, 0);
    assert_eq!(records.len() as u64, packets);
    records
}

#[test]
fn a_packet_alone_waits_nowhere_and_each_task_takes_what_it_takes() {
    let mut rig = Rig::new();
    rig.load(0, &[(30, 100), (7, 100)]);
    rig.load(1, &[(90, 100)]);
    rig.load(2, &[(12, 100)]);
    rig.dag(4, &[&[&[(0, 0b11, 1)], &[(1, 1, 1)]], &[&[(2, 1, 1)]]]);
    sample_all(&mut rig, 4);
    assert_eq!(rig.latency_alone(4), CORE + PASS + 90 + 12);
    for sample in records(&mut rig, 0) {
        assert_eq!(parts(&sample), [0, CORE + PASS, 0, 0, 0, 0]);
        // Of the branches the longer one counts.
        let nts: Vec<_> = sample.nts().map(|nt| (nt.region, nt.slot, nt.cycles)).collect();
        assert_eq!(nts, [(1, 0, 90), (2, 0, 12)]);
    }
    rig.check();
}

#[test]
fn a_burst_waits_for_the_port_as_long_as_those_before_it_take() {
    let mut rig = Rig::without_credits();
    rig.load(0, &[(20, 400)]);
    rig.dag(1, &[&[&[(0, 1, 1)]]]);
    for (number, sample) in (0..).zip(burst(&mut rig, 1, 40)) {
        // One comes each cycle, and the port takes two in five.
        let waits = (5_u64 * number).div_ceil(2) - number;
        assert_eq!(parts(&sample), [0, CORE, 0, 0, waits, 0], "packet {number}");
    }
}

#[test]
fn with_one_credit_each_packet_waits_for_the_way_of_those_before_it() {
    let mut profile = rig::profile();
    profile.credits_initial = 1;
    let mut rig = Rig::with(profile, 1, Default::default());
    rig.load(0, &[(20, 400)]);
    rig.dag(1, &[&[&[(0, 1, 1)]]]);
    // The NT, then its credit on its way back.
    let round = 20 + snic_domain::RegionPass::SUPERNIC.credit_return.get();
    for (number, sample) in (0..).zip(burst(&mut rig, 1, 40)) {
        assert_eq!(parts(&sample), [0, CORE, 0, number * (round - 1), 0, 0], "packet {number}");
    }
}

#[test]
fn behind_a_slow_task_a_packet_waits_in_it() {
    let mut rig = Rig::without_credits();
    rig.load(0, &[(20, 1)]);
    rig.dag(1, &[&[&[(0, 1, 1)]]]);
    for (number, sample) in (0..).zip(burst(&mut rig, 1, 40)) {
        // 64 bytes at 1 Gbit/s take 128 cycles; they come from the port each 2.5.
        let came = (5_u64 * number).div_ceil(2);
        let nts: Vec<_> = sample.nts().map(|nt| u64::from(nt.cycles)).collect();
        assert_eq!(nts, [20 + 128 * number - came], "packet {number}");
    }
}

#[test]
fn at_a_token_bucket_a_packet_waits_for_its_tokens() {
    let mut rig = Rig::new();
    rig.load(0, &[(20, 400)]);
    rig.dag(1, &[&[&[(0, 1, 1)]]]);
    // A packet of 64 bytes each 128 cycles; the bucket holds two.
    rig.limit(1, Bandwidth::from_gbps(1), 128);
    let waits: Vec<u64> = burst(&mut rig, 1, 40).iter().map(|sample| parts(sample)[0]).collect();
    assert_eq!(waits[..2], [0, 0]);
    for (number, pair) in waits.windows(2).enumerate().skip(2) {
        // Each waits a packet's time longer than the one before it, which came a cycle earlier or was held back less.
        assert!(pair[1] >= pair[0] && pair[1] - pair[0] <= 128, "{number}: {waits:?}");
    }
    let total: u64 = 38 * 128;
    assert!(waits[39] <= total && waits[39] + 128 >= total, "{waits:?}");
}

#[test]
fn what_is_sampled_of_a_busy_card_is_what_the_model_measures_of_each_packet() {
    let mut rig = Rig::new();
    rig.load(0, &[(30, 60), (7, 100)]);
    rig.load(1, &[(90, 50)]);
    rig.load(2, &[(12, 90)]);
    rig.dag(4, &[&[&[(0, 0b11, 1)], &[(1, 1, 1)]], &[&[(2, 1, 1)]]]);
    rig.dag(5, &[&[&[(0, 0b10, 1)]], &[&[(2, 1, 1)]]]);
    [4, 5].into_iter().for_each(|row| sample_all(&mut rig, row));
    rig.send(4, 45, Sizes::Mix(vec![(64, 3), (1_500, 1)]));
    rig.send(5, 30, Sizes::Fixed(512));
    let mut all = Vec::new();
    rig.card.take_measurements();
    for _ in 0..60 {
        rig.card.run_for(1_000);
        let more = records(&mut rig, all.len() as u32);
        all.extend(more);
    }
    let measured = rig.card.measurements();
    for row in [4, 5] {
        let totals = all.iter().filter(|sample| sample.uid() == rig::uid(row).raw());
        let totals: Vec<u64> = totals.map(|sample| sample.total().into()).collect();
        let delay = measured.dag(row).expect("it has traffic").delay;
        let mean = totals.iter().sum::<u64>() as f64 / totals.len() as f64;
        let max = totals.iter().max().copied();
        assert_eq!((totals.len() as u64, max), (delay.count, Some(delay.max)), "DAG {row}");
        assert!((mean - delay.mean).abs() < 1e-6, "{mean} and {delay:?}");
        let register = rig.card.read(dag_latency(row, DAG_LATENCY_MAX));
        assert_eq!(register.map(u64::from), Ok(delay.max));
        assert!(delay.count > 500 && delay.max > 2 * delay.min, "a busy card: {delay:?}");
    }
    let waited = |part: usize| all.iter().filter(|sample| parts(sample)[part] > 0).count();
    assert!((2..6).any(|part| waited(part) > 100), "packets waited somewhere");
}

#[test]
fn a_window_has_the_largest_latency_of_the_one_before_and_no_older_one() {
    let mut rig = Rig::new();
    rig.load(0, &[(20, 1)]);
    rig.dag(1, &[&[&[(0, 1, 1)]]]);
    let read = |rig: &mut Rig, register| rig.card.read(dag_latency(1, register)).expect("there");
    burst(&mut rig, 1, 9);
    let (window, largest) = (read(&mut rig, DAG_LATENCY_WINDOW), read(&mut rig, DAG_LATENCY_MAX));
    assert!(largest > 500, "the last waited for eight others: {largest}");
    let mut next = |windows: u64| {
        rig.card.run_for(windows << LATENCY_WINDOW_BITS);
        rig.send_alone(1, 1);
        rig.card.run_for(1_000);
        [DAG_LATENCY_WINDOW, DAG_LATENCY_MAX, DAG_LATENCY_MAX_BEFORE].map(|at| read(&mut rig, at))
    };
    let alone = CORE as u32 + 20;
    assert_eq!(next(1), [window + 1, alone, largest]);
    assert_eq!(next(1), [window + 2, alone, alone]);
    assert_eq!(next(3), [window + 5, alone, 0]);
}
