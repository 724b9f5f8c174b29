//! Packets beyond what their DAG was promised, beside those of one that keeps to its promise: how long
//! the latter wait for them at most, and that nothing is left idle for it.

use crate::rig::{Rig, uid};
use proptest::prelude::*;
use snic_card_sim::{Sizes, TrafficSource};
use snic_domain::Bandwidth;
use snic_tables::{DagRow, RateLimiterRow};

/// A chain of two NTs: what each serves in Gbit/s.
type Rates = [u64; 2];

/// Cycles that this many bytes take at a rate, rounded up.
fn cycles(bytes: u32, gbps: u64) -> u64 {
    // 4 ns a cycle: bits / (Gbit/s · 4 ns).
    (u64::from(bytes) * 8).div_ceil(gbps * 4)
}

/// A DAG's bucket lets this much pass; so much of it was promised.
fn promise(rig: &mut Rig, row: u16, gbps: u64, promised: Bandwidth) {
    promise_packets(rig, row, gbps, promised, 0);
}

/// The same where packets count too, each as so many bytes at least.
fn promise_packets(rig: &mut Rig, row: u16, gbps: u64, promised: Bandwidth, packet_bytes: u16) {
    rig.program(|image| {
        let dag = image.get::<DagRow>(row).expect("programmed");
        image.set(row, &DagRow { rate_limiter: row, ..dag }).expect("there");
        let (rate_kbps, promised_kbps) = (Bandwidth::from_gbps(gbps).kbps(), promised.kbps());
        let columns = RateLimiterRow {
            rate_kbps,
            burst_bytes: 65_536,
            promised_kbps,
            packet_bytes,
            weight: 1,
        };
        image.set(row, &columns).expect("there");
    });
}

/// A region of two NTs. DAG 1 uses both; DAGs 2, 3 and 4 both, the first or the second.
fn card((latency, rates): (u64, Rates)) -> Rig {
    let mut rig = Rig::new();
    rig.load(0, &[(latency, rates[0]), (latency, rates[1])]);
    for (row, mask) in [(1, 3), (2, 3), (3, 1), (4, 2)] {
        rig.dag(row, &[&[&[(0, mask, 1)]]]);
    }
    rig
}

/// Cycles that the crossbar's port takes for this many bytes and their descriptor.
fn port_beats(rig: &Rig, bytes: u32) -> u64 {
    u64::from(bytes.div_ceil(rig.card.profile().width_bits / 8)) + 1
}

/// Longest wait of a packet within its promise for those beyond theirs, in cycles: at each NT, and
/// at the way out, one that is there already. The crossbar's port takes one at a time as well; while
/// it does, that one's NT is at work on it, so only what the port takes longer counts. Each is in whole
/// cycles, one of which a packet may be early.
fn not_overtaken(rig: &Rig, rates: Rates, bytes: u32) -> u64 {
    let beats = port_beats(rig, bytes);
    let nts: u64 = rates.iter().map(|gbps| cycles(bytes, *gbps)).sum();
    nts.max(beats) + beats + rates.len() as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_packet_within_its_promise_waits_for_one_beyond_at_each_nt(
        latency in 4_u64..100,
        rates in [20_u64..=120, 20_u64..=120],
        small in 64_u32..=1_500,
        large in 64_u32..=1_500,
        loud in prop::sample::subsequence(vec![2_u16, 3, 4], 1..=3),
    ) {
        // Eight credits fill its NTs, of which a packet has one for each NT until it has left that; where
        // they do not, one of them is waited for, too.
        let latency = latency.min(4 * cycles(large, rates[0].max(rates[1])) - 8);
        let mut rig = card((latency, rates));
        promise(&mut rig, 1, 2, Bandwidth::from_gbps(2));
        let seen = |rig: &mut Rig| {
            rig.card.run_for(100_000);
            rig.card.take_measurements();
            rig.card.run_for(400_000);
            rig.check();
            let measured = rig.card.take_measurements();
            let dag = measured.dag(1).expect("it sends");
            (dag.latency.count, dag.latency.max)
        };
        let quiet = TrafficSource::of_dag(uid(1), Bandwidth::from_gbps(1), Sizes::Fixed(small));
        rig.card.attach(quiet).expect("valid");
        let (_, alone) = seen(&mut rig);
        // Together they take what the slower NT or the port has left.
        let port = u64::from(large) * 8 / (4 * port_beats(&rig, large));
        let each = (rates[0].min(rates[1]).min(port) - 2) / loud.len() as u64;
        // What came by the first NT and what came straight are let in one after the other, and may meet
        // at the second: the first was the former's for so long.
        let meet = if loud.contains(&2) && loud.contains(&4) { latency } else { 0 };
        for row in loud {
            promise(&mut rig, row, each, Bandwidth::ZERO);
            rig.send(row, 60, Sizes::Fixed(large));
        }
        let (count, beside) = seen(&mut rig);
        let most = alone + not_overtaken(&rig, rates, large) + meet;
        prop_assert!(count > 10 && beside <= most, "{beside} cycles, {alone} alone, at most {most}");
    }

    #[test]
    fn nothing_is_left_idle_by_those_beyond(
        latency in 4_u64..200,
        rates in [20_u64..=120, 20_u64..=120],
        bytes in 64_u32..=1_500,
    ) {
        // The same load once within the promise and once beyond it.
        let served = [Bandwidth::from_gbps(200), Bandwidth::ZERO].map(|promised| {
            let mut rig = card((latency, rates));
            promise(&mut rig, 2, 200, promised);
            rig.send(2, 120, Sizes::Fixed(bytes));
            rig.card.run_for(20_000);
            rig.card.take_measurements();
            rig.card.run_for(100_000);
            rig.check();
            let measured = rig.card.take_measurements();
            measured.dag(2).expect("it sends").served.gbps_f64()
        });
        prop_assert!(served[1] > served[0] * 0.99, "{served:?} Gbit/s");
    }
}

#[test]
fn a_packet_that_is_due_waits_for_one_of_a_burst_within_a_promise_at_the_port() {
    // 1,500 bytes twice through the port: faster than the ingress fills, so that a burst waits there.
    let (bytes, rates) = (1_500, [200; 2]);
    let longest = |burst: bool| {
        let mut rig = Rig::new();
        rig.load(0, &[(20, rates[0]), (20, rates[1])]);
        rig.dag(1, &[&[&[(0, 3, 1)]]]);
        rig.dag(3, &[&[&[(0, 1, 1)]], &[&[(0, 2, 1)]]]);
        for row in [1, 3] {
            promise(&mut rig, row, 100, Bandwidth::from_gbps(20));
        }
        let even = TrafficSource::of_dag(uid(1), Bandwidth::from_gbps(1), Sizes::Fixed(64));
        rig.card.attach(even).expect("valid");
        if burst {
            let all = TrafficSource::of_dag(uid(3), Bandwidth::from_gbps(100), Sizes::Fixed(bytes));
            rig.card.attach(all.at_most(150)).expect("valid");
        }
        rig.card.take_measurements();
        rig.card.run_for(6_000);
        let measured = rig.card.take_measurements();
        assert_eq!(measured.errors(), 0);
        (measured.dag(1).expect("it sends").latency.max, not_overtaken(&rig, rates, bytes))
    };
    let ((alone, _), (beside, most)) = (longest(false), longest(true));
    let egress = u64::from(bytes / 64) + 1;
    assert!(beside <= alone + most + egress, "{beside} cycles, alone {alone}, most {most}");
}

#[test]
fn waiting_for_the_ingress_counts_as_delay_not_as_latency() {
    let mut rig = Rig::new();
    rig.load(0, &[(20, 100)]);
    for row in [1, 2] {
        rig.dag(row, &[&[&[(0, 1, 1)]]]);
    }
    for row in [1, 2] {
        let one = TrafficSource::of_dag(uid(row), Bandwidth::from_gbps(1), Sizes::Fixed(1_500));
        rig.card.attach(one.at_most(1)).expect("valid");
    }
    rig.drain();
    let measured = rig.card.take_measurements();
    let waits = [1, 2].map(|row| {
        let dag = measured.dag(row).expect("it sent one");
        dag.delay.max - dag.latency.max
    });
    assert_eq!(waits, [0, port_beats(&rig, 1_500) - 1], "the second waits for the first");
}

/// Senders that use up all of their burst allowance, with the promise of each, in Gbit/s.
const GREEDY: [u16; 5] = [2, 3, 4, 5, 6];
const EACH: u64 = 5;

/// A region's NT that is promised nearly in full: 4 Gbit/s to DAG 1, whose packets come at random times, and the rest
/// to greedy ones, each of which sends `gbps`. `meanwhile` happens while all send; then what was seen of
/// DAG 1 counts: its longest latency in cycles. With how many of its packets were dropped, from the start.
fn calm_beside(gbps: u64, meanwhile: impl FnOnce(&mut Rig)) -> (u64, u64) {
    let mut rig = Rig::new();
    rig.load(0, &[(20, 30)]);
    for (row, promised) in GREEDY.map(|row| (row, EACH)).into_iter().chain([(1, 4)]) {
        rig.dag(row, &[&[&[(0, 1, 1)]]]);
        promise(&mut rig, row, 100, Bandwidth::from_gbps(promised));
    }
    let random = TrafficSource::of_dag(uid(1), Bandwidth::from_mbps(3_600), Sizes::imix());
    rig.card.attach(random.poisson()).expect("valid");
    for row in GREEDY {
        rig.send(row, gbps, Sizes::Fixed(594));
    }
    rig.card.run_for(250_000);
    let first = rig.card.take_measurements();
    meanwhile(&mut rig);
    rig.card.run_for(500_000);
    rig.check();
    let then = rig.card.take_measurements();
    assert_eq!((first.errors(), then.errors()), (0, 0));
    let [first, then] = [&first, &then].map(|measured| measured.dag(1).expect("it sends"));
    assert!(then.latency.count > 1_000, "{then:?}");
    (then.latency.max, first.drops.iter().chain(&then.drops).sum())
}

#[test]
fn a_small_burst_passes_those_that_use_up_their_allowance_however_long_they_wait() {
    let (alone, _) = calm_beside(EACH, |_| {});
    let (beside, dropped) = calm_beside(25, |_| {});
    // One packet of another, which is there already.
    let most = alone + cycles(594, 30) + port_beats(&Rig::new(), 594);
    assert!(
        beside <= most,
        "{beside} cycles, {alone} beside those that send what they were promised"
    );
    assert_eq!(dropped, 0, "their bursts leave room for it");
}

#[test]
fn nobody_waits_for_larger_bursts_of_others_because_a_commit_waits_for_them() {
    let (before, _) = calm_beside(25, |_| {});
    let (commits, _) = calm_beside(25, |rig| {
        for _ in 0..5 {
            rig.card.run_for(40_000);
            promise(rig, 2, 99, Bandwidth::from_gbps(EACH));
        }
    });
    assert!(commits <= before + cycles(594, 30), "{commits} cycles, {before} without commits");
}

/// An NT that is promised in full to two DAGs, the first of which sends evenly, the second `gbps` of 20 Gbit/s; and
/// nothing to a third, which sends as much as it can if it `is_there`. What the first one's packets take at most,
/// in cycles.
fn even_beside(gbps: u64, is_there: bool) -> u64 {
    let mut rig = Rig::new();
    rig.load(0, &[(20, 30)]);
    for (row, promised) in [(1, 10), (2, 20), (3, 0)] {
        rig.dag(row, &[&[&[(0, 1, 1)]]]);
        promise(&mut rig, row, 100, Bandwidth::from_gbps(promised));
    }
    rig.send(1, 10, Sizes::Fixed(1_024));
    rig.send(2, gbps, Sizes::Fixed(594));
    if is_there {
        rig.send(3, 20, Sizes::Fixed(1_500));
    }
    rig.card.run_for(500_000);
    rig.card.take_measurements();
    rig.card.run_for(500_000);
    rig.check();
    rig.card.take_measurements().dag(1).expect("it sends").latency.max
}

#[test]
fn what_is_promised_to_nobody_gets_nothing_of_an_nt_that_is_promised_in_full() {
    let (alone, beside) = (even_beside(20, false), even_beside(20, true));
    assert!(beside <= alone + cycles(1_500, 30), "{beside} cycles, {alone} alone");
}

#[test]
fn a_burst_that_is_nearly_due_waits_outside_of_the_nt() {
    let (alone, beside) = (even_beside(20, false), even_beside(60, false));
    // What an NT may have ahead of it when a part of a burst enters, and that part.
    let most = alone + 96 + cycles(594, 30);
    assert!(beside <= most, "{beside} cycles, {alone} alone");
}

#[test]
fn a_dag_that_sends_too_much_claims_its_promise_in_bits_whatever_its_packets_sizes() {
    // An NT promised in full: what waits in the region is seen by all that use it.
    let longest = |gbps: u64| {
        let mut rig = Rig::new();
        rig.load(0, &[(20, 30)]);
        for (row, promised) in [(1, 20), (2, 10)] {
            rig.dag(row, &[&[&[(0, 1, 1)]]]);
            promise(&mut rig, row, 100, Bandwidth::from_gbps(promised));
        }
        rig.send(1, 20, Sizes::Fixed(1_500));
        rig.send(2, gbps, Sizes::imix());
        rig.card.run_for(500_000);
        rig.card.take_measurements();
        rig.card.run_for(4_000_000);
        rig.check();
        rig.card.take_measurements().dag(1).expect("it sends").latency.max
    };
    let (alone, beside) = (longest(10), longest(75));
    assert!(beside <= alone + cycles(1_500, 30), "{beside} cycles, {alone} if both keep to theirs");
}

#[test]
fn a_dag_that_sends_too_much_claims_its_promise_in_packets_too() {
    // 64 bytes take 2.5 cycles of the port: what was promised to DAG 2 in packets of 1,500 bytes would be most of it in
    // small ones.
    let longest = |floods: bool| {
        let mut rig = Rig::new();
        rig.load(0, &[(20, 120)]);
        for (row, gbps, bytes) in [(1, 20, 64), (2, 40, 1_500)] {
            rig.dag(row, &[&[&[(0, 1, 1)]]]);
            promise_packets(&mut rig, row, 100, Bandwidth::from_gbps(gbps), bytes);
        }
        rig.send(1, 20, Sizes::Fixed(64));
        rig.send(2, 40, Sizes::Fixed(1_500));
        if floods {
            rig.send(2, 40, Sizes::Fixed(64));
        }
        rig.card.run_for(500_000);
        rig.card.take_measurements();
        rig.card.run_for(500_000);
        rig.check();
        let measured = rig.card.take_measurements();
        let dag = measured.dag(1).expect("it sends");
        (dag.latency.p99, dag.served.gbps_f64())
    };
    let ((alone, _), (beside, served)) = (longest(false), longest(true));
    let port = port_beats(&Rig::new(), 1_500);
    assert!(
        served > 19.9 && beside <= alone + port,
        "{beside} cycles, {alone} alone, {served} Gbit/s"
    );
}

/// An ingress of which 96 % are promised: 40 to DAG 1, whose packets come at random times, and the rest to two greedy ones,
/// which send `times` as much, the first of them from so many senders. The p99 of DAG 1 from when its sender has a packet,
/// in cycles, and what came in of the greedy ones as part of their promises.
fn random_at_a_full_ingress(sizes: &[Sizes; 3], times: u64, senders: u64) -> (u64, [f64; 2]) {
    let mut rig = Rig::new();
    let ingress = rig.card.profile().ingress.get();
    let percent = |percent: u64| Bandwidth::from_bps(ingress / 100 * percent);
    for (row, region, promised) in [(1, 0, 40), (2, 1, 40), (3, 2, 16)] {
        rig.load(region, &[(20, 200)]);
        rig.dag(row, &[&[&[(region, 1, 1)]]]);
        promise(&mut rig, row, 200, percent(promised));
    }
    let [random, many, one] = sizes.clone();
    let random = TrafficSource::of_dag(uid(1), percent(36), random);
    rig.card.attach(random.poisson()).expect("valid");
    for _ in 0..senders {
        let each = Bandwidth::from_bps(percent(40).get() * times / senders);
        let source = TrafficSource::of_dag(uid(2), each, many.clone());
        rig.card.attach(source).expect("valid");
    }
    let source = TrafficSource::of_dag(uid(3), percent(16 * times), one);
    rig.card.attach(source).expect("valid");
    rig.card.run_for(500_000);
    rig.card.take_measurements();
    rig.card.run_for(2_000_000);
    rig.check();
    let measured = rig.card.take_measurements();
    let dag = |row| measured.dag(row).expect("it sends");
    let part = |(row, promised)| dag(row).intended.gbps_f64() / percent(promised).gbps_f64();
    (dag(1).delay.p99, [(2, 40), (3, 16)].map(part))
}

/// Nobody who keeps to its promise waits for those who do not; these have what they were promised, and of the rest each
/// sender has its turn, however many a DAG has.
#[test]
fn a_full_ingress_serves_promises_first_and_the_rest_in_turns() {
    // All of them fill whole beats.
    let sizes = [256, 640, 1_472].map(Sizes::Fixed);
    let (calm, _) = random_at_a_full_ingress(&sizes, 1, 1);
    for senders in [1, 16] {
        let (beside, parts) = random_at_a_full_ingress(&sizes, 10, senders);
        let most = (calm * 11 / 10).max(calm + cycles(1_472, 128));
        assert!(beside <= most, "{beside} cycles beside {senders} senders, {calm} without");
        assert!(parts.iter().all(|part| *part > 1.02), "they have {parts:?} of their promises");
    }
}

/// Promises take all of the port's beats, for packets do not fill their last ones. As often as a packet beyond its
/// promise waits, the promise grows: it goes as one that is promised then.
#[test]
fn who_sends_too_much_has_its_promise_of_an_ingress_that_is_never_free() {
    let sizes = [Sizes::imix(), Sizes::Fixed(594), Sizes::imix()];
    let (_, parts) = random_at_a_full_ingress(&sizes, 10, 1);
    assert!(parts.iter().all(|part| *part > 0.998), "they have {parts:?} of their promises");
}
