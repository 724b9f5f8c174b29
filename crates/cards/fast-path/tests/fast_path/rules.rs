//! Single frames: which the program takes, what it makes of them, and when its rules end.

use std::time::{Duration, Instant};

use snic_fast_path::{DagCounts, DagProfile, Exit};
use snic_nts::FlowKey;

use crate::frames::{Sample, unusual};
use crate::site::{Bench, Place, WIDE, next};

#[test]
fn frames_with_a_rule_leave_as_the_rule_says_by_both_exits() {
    let Some(mut bench) = Bench::new("exits") else { return };
    for exit in [Exit::Device(bench.indices[1]), Exit::Peer(bench.indices[1])] {
        for (slot, sample) in (0..).zip(Sample::ALL) {
            let headers = sample.translated(sample.external(), 40_000);
            let rule = snic_fast_path::KernelRule { exit, ..bench.rule(headers, slot) };
            bench.path.set_rule(&rule).expect("there is room");
            let right = sample.frame();
            let mut wrong = right.clone();
            *wrong.last_mut().expect("a byte") ^= 1;
            let mut without = right.clone();
            let mut padded = right.clone();
            padded.extend([0; 7]);
            if !sample.is_tcp {
                without[sample.transport() + 6..sample.transport() + 8].fill(0);
            }
            for frame in [right, wrong, without, padded] {
                let mut expected = frame.clone();
                assert!(headers.apply(&mut expected) && expected != frame);
                assert_eq!(bench.pass(&frame), (Place::Host, expected), "{sample:?} by {exit:?}");
            }
        }
    }
}

#[test]
fn what_may_change_a_flow_and_what_is_unusual_goes_to_the_card_unchanged() {
    let Some(mut bench) = Bench::new("unusual") else { return };
    for (slot, sample) in (0..).zip(Sample::ALL) {
        let headers = sample.translated(sample.external(), 40_000);
        bench.path.set_rule(&bench.rule(headers, slot)).expect("there is room");
        for (what, frame) in unusual(&sample) {
            assert_eq!(bench.pass(&frame), (Place::Slow, frame), "{what} of {sample:?}");
        }
        assert_eq!(bench.pass(&sample.frame()).0, Place::Host, "the rule is still there");
    }
    for frame in [&[0_u8; 14][..], &[0xFF; 60]] {
        let mut frame = frame.to_vec();
        frame[6..12].copy_from_slice(&crate::site::STATIONS[0]);
        frame[12..14].copy_from_slice(&[0x88, 0xB5]);
        assert_eq!(bench.pass(&frame), (Place::Slow, frame));
    }
}

/// A generator of numbers that is the same everywhere (Marsaglia's xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn of_damaged_frames_the_program_takes_those_that_the_flow_table_takes() {
    let Some(mut bench) = Bench::new("damaged") else { return };
    let headers = Sample::ALL.map(|sample| sample.translated(sample.external(), 40_000));
    for (slot, headers) in (0..).zip(headers) {
        bench.path.set_rule(&bench.rule(headers, slot)).expect("there is room");
    }
    let mut numbers = Numbers(20_261_130);
    let mut seen = [0; 2];
    for turn in 0..4_000 {
        let sample = Sample { payload: numbers.below(40), ..Sample::ALL[numbers.below(4)] };
        let mut frame = sample.frame();
        for _ in 0..numbers.below(3) {
            // Not where frames are told apart that other programs of the hosts send.
            let at = 12 + numbers.below(frame.len() - 12);
            frame[at] ^= 1 << numbers.below(8);
        }
        if numbers.below(8) == 0 {
            frame.truncate(14 + numbers.below(frame.len() - 14));
        }
        if frame.get(12..15) == Some(&[8, 0, 0x45]) && frame.len() >= 34 && numbers.below(4) > 0 {
            crate::frames::fill_ipv4(&mut frame, 20);
        }
        let mut expected = frame.clone();
        let is_ours = headers.iter().any(|rule| rule.apply(&mut expected));
        let place = if is_ours { Place::Host } else { Place::Slow };
        seen[usize::from(is_ours)] += 1;
        assert_eq!(bench.pass(&frame), (place, expected), "turn {turn}: {frame:02x?}");
    }
    println!("{} to the card, {} by rules", seen[0], seen[1]);
    assert!(seen.iter().all(|count| *count > 400), "{seen:?}");
}

#[test]
fn one_word_ends_the_rules_of_the_card_and_another_one_those_of_a_dag() {
    let Some(mut bench) = Bench::new("ends") else { return };
    let samples = [Sample::UDP4, Sample::UDP6];
    bench.path.set_dag(2, &WIDE).expect("a row");
    let mut rules = [1, 2].map(|row| {
        let sample = samples[usize::from(row) - 1];
        let headers = sample.translated(sample.external(), 40_000);
        snic_fast_path::KernelRule { row, ..bench.rule(headers, u32::from(row)) }
    });
    let places = |bench: &mut Bench| samples.map(|sample| bench.pass(&sample.frame()).0);
    for rule in &rules {
        bench.path.set_rule(rule).expect("there is room");
    }
    assert_eq!(places(&mut bench), [Place::Host; 2]);
    bench.path.set_version(2).expect("a word");
    assert_eq!(places(&mut bench), [Place::Slow; 2], "another version of all tables");
    for rule in &mut rules {
        rule.version = 2;
        bench.path.set_rule(rule).expect("there is room");
    }
    assert_eq!(places(&mut bench), [Place::Host; 2]);
    bench.path.set_dag(1, &DagProfile { generation: 2, ..WIDE }).expect("a row");
    assert_eq!(places(&mut bench), [Place::Slow, Place::Host], "another row of one DAG");
    rules[0].generation = 2;
    bench.path.set_rule(&rules[0]).expect("there is room");
    assert_eq!(places(&mut bench), [Place::Host; 2]);
    bench.path.set_dag(2, &DagProfile { rate_kbps: 0, ..WIDE }).expect("a row");
    assert_eq!(places(&mut bench), [Place::Host, Place::Slow], "a DAG without a rate");
    bench.path.set_dag(2, &WIDE).expect("a row");
    assert_eq!(places(&mut bench), [Place::Host; 2]);
    bench.path.remove_dag(2).expect("a row");
    assert_eq!(places(&mut bench), [Place::Host, Place::Slow], "a DAG that is no more");
    bench.path.remove_rule(&rules[0]).expect("it is there");
    bench.path.remove_rule(&rules[0]).expect("twice is no harm");
    assert_eq!(places(&mut bench), [Place::Slow; 2], "a rule that is no more");
    assert!(bench.path.set_dag(1_024, &WIDE).is_err(), "no such row");
}

/// Frames and bytes that have arrived at the host and at the slow device.
fn drain(bench: &mut Bench, counts: &mut [(u64, u64); 2]) {
    let Bench { hosts, slow, pool, .. } = bench;
    for (port, count) in [&mut hosts[1], &mut slow[0]].into_iter().zip(counts) {
        while let Some(packet) = next(port.as_mut(), pool) {
            *count = (count.0 + 1, count.1 + packet.len() as u64);
        }
    }
}

/// So deep that a machine with much else to do does not keep the sender from it until it is full.
const BURST: u64 = 500_000;

#[test]
fn the_bucket_bounds_the_rate_what_is_beyond_goes_to_the_card_and_all_is_counted() {
    let Some(mut bench) = Bench::new("bucket") else { return };
    // 8 Mbit/s are a byte in a microsecond.
    let profile = DagProfile { generation: 1, rate_kbps: 8_000, burst_bytes: BURST as u32 };
    bench.path.set_dag(1, &profile).expect("a row");
    let sample = Sample { payload: 958, ..Sample::UDP4 };
    let frame = sample.frame();
    assert_eq!(frame.len(), 1_000);
    let headers = sample.translated(sample.external(), 40_000);
    bench.path.set_rule(&bench.rule(headers, 9)).expect("there is room");
    let (began, mut sent, mut seen) = (Instant::now(), 0, [(0, 0); 2]);
    while began.elapsed() < Duration::from_secs(1) {
        for _ in 0..20 {
            bench.send(&frame);
            sent += 1;
        }
        drain(&mut bench, &mut seen);
        // Five times the rate.
        std::thread::sleep(Duration::from_millis(4));
    }
    // What is on its way arrives, however much else the machine has to do.
    let until = Instant::now() + Duration::from_secs(10);
    while seen[0].0 + seen[1].0 < sent && Instant::now() < until {
        drain(&mut bench, &mut seen);
        std::thread::sleep(Duration::from_millis(1));
    }
    let micros = began.elapsed().as_micros() as u64;
    let [(passed, bytes), (beyond, beyond_bytes)] = seen;
    println!("sent {sent}, passed {passed}, to the card {beyond}, in {micros} µs");
    assert_eq!(passed + beyond, sent, "none is lost");
    assert!(bytes <= BURST + micros, "{bytes} bytes in {micros} µs");
    assert!(bytes >= BURST + 900_000, "{bytes} bytes: it gets its rate");
    let counts = bench.path.dag_counts(1).expect("a row");
    let expected = DagCounts {
        packets: passed,
        bytes,
        beyond_packets: beyond,
        beyond_bytes,
        ..DagCounts::default()
    };
    assert_eq!(counts, expected);
    let used = bench.path.rule_use(9).expect("a slot");
    assert_eq!((used.packets, used.bytes), (passed, bytes));
    assert!(used.last_nanos > 0);
    assert_eq!(bench.path.dag_counts(2).expect("a row"), DagCounts::default());
}

#[test]
fn merged_datagrams_go_to_the_card() {
    let Some(mut bench) = Bench::new("merged") else { return };
    // Without an identification, which counts up where a merged packet is cut.
    let sample = Sample::UDP6;
    let headers = sample.translated(sample.external(), 40_000);
    bench.path.set_rule(&bench.rule(headers, 1)).expect("there is room");
    let frame = sample.frame();
    // A port merges what it sends of a flow in one call.
    let mut frames: Vec<_> =
        (0..20).map(|_| bench.pool.copy_of(&frame).expect("a buffer")).collect();
    assert_eq!(bench.hosts[0].send(&mut frames).frames, 20);
    for _ in 0..20 {
        assert_eq!(bench.arrival(), Some((Place::Slow, frame.clone())));
    }
    assert_eq!(bench.pass(&frame).0, Place::Host, "one alone");
}

#[test]
fn rules_that_the_program_cannot_follow_are_refused() {
    let Some(mut bench) = Bench::new("refused") else { return };
    let mut frame = Sample::UDP4.frame();
    frame.splice(12..12, [0x81, 0, 0, 7]);
    let (key, _) = FlowKey::of(&frame).expect("tags are in the key");
    let tagged = snic_card_soft::HeaderRule::new(key, key, false).expect("of one shape");
    let error = bench.path.set_rule(&bench.rule(tagged, 1)).expect_err("tagged").to_string();
    assert!(error.contains("VLAN tags"), "{error}");
}
