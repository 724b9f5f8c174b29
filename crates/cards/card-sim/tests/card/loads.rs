//! Loads that are counted from their making to their end: judged by the trace of single packets, by the card's
//! own counters, and by what a token bucket and an NT let through.

use std::time::Duration;

use crate::rig::{Rig, uid};
use snic_card_sim::{PacketOutcome, SharedSimCard, SimCard, Sizes, SourceId, TrafficSource};
use snic_domain::Bandwidth;
use snic_domain::limits::DAG_ROWS;
use snic_ports::card::{Card as _, Registers as _};
use snic_ports::generator::{LoadCounts, LoadReading};
use snic_tables::DropCause;
use snic_tables::registers::{DAG_LOAD, DAG_LOAD_ROW};

/// A chain of 30 Gbit/s at most.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.load(0, &[(4, 100), (6, 30)]);
    rig.dag(1, &[&[&[(0, 0b11, 1)]]]);
    rig
}

fn load(card: &mut SimCard, mbps: u64, sizes: Sizes, micros: u64) -> SourceId {
    let rate = Bandwidth::from_bps(mbps * 1_000_000);
    let now = card.now();
    let source = TrafficSource::of_dag(uid(1), rate, sizes);
    let source = source.between(now, now + Duration::from_micros(micros));
    card.attach_metered(source).expect("a valid source")
}

fn read(card: &mut SimCard, id: SourceId) -> LoadReading {
    card.read_load(id).expect("it is counted")
}

#[test]
fn what_is_counted_is_what_the_trace_of_packets_and_the_cards_counters_say() {
    let mut rig = rig();
    rig.limit(1, Bandwidth::from_gbps(2), 20_000);
    rig.card.take_measurements();
    rig.card.keep_trace(1_000_000);
    let id = load(&mut rig.card, 5_000, Sizes::imix(), 2_000);
    rig.card.run_for(500_000);
    rig.drain();
    let LoadReading { total, is_sending, .. } = read(&mut rig.card, id);
    assert!(!is_sending && total.under_way() == 0, "{total:?}");
    let trace = rig.card.take_trace();
    let served: Vec<_> = trace.iter().filter(|r| r.outcome == PacketOutcome::Served).collect();
    let bytes = |records: &[&snic_card_sim::PacketRecord]| -> u64 {
        records.iter().map(|record| u64::from(record.bytes)).sum()
    };
    assert_eq!(total.packets_offered, trace.len() as u64);
    assert_eq!(total.bytes_offered, bytes(&trace.iter().collect::<Vec<_>>()));
    assert_eq!((total.packets_served, total.bytes_served), (served.len() as u64, bytes(&served)));
    for cause in DropCause::ALL {
        let of = |r: &&snic_card_sim::PacketRecord| r.outcome == PacketOutcome::Dropped(cause);
        let dropped = trace.iter().filter(of).count() as u64;
        assert_eq!(total.drops[cause as usize], dropped, "{cause:?}");
    }
    assert!(total.drops[DropCause::RateLimited as usize] > 0, "the bucket was met: {total:?}");
    // 4 ns a cycle; percentiles to one part in 32.
    let mut nanos: Vec<_> = served.iter().map(|record| record.latency() * 4).collect();
    nanos.sort_unstable();
    let rank = |per_mille: usize| nanos[(nanos.len() * per_mille).div_ceil(1_000) - 1];
    let close = |seen: u64, exact: u64| seen >= exact && seen <= exact + exact / 32;
    let seen = total.latency;
    for (seen, exact) in [
        (seen.p50, rank(500)),
        (seen.p90, rank(900)),
        (seen.p99, rank(990)),
        (seen.p999, rank(999)),
    ] {
        assert!(close(seen, exact), "{seen} beside {exact}");
    }
    assert_eq!((seen.min, seen.max), (nanos[0], *nanos.last().expect("some were served")));
    let dag = rig.card.take_measurements().dag(1).expect("packets came").counters;
    assert_eq!((dag.packets_in, dag.packets_out), (total.packets_offered, total.packets_served));
    assert_eq!((dag.bytes_intended, dag.bytes_served), (total.bytes_offered, total.bytes_served));
}

#[test]
fn counters_of_dags_are_read_together_as_one_by_one() {
    let mut rig = rig();
    load(&mut rig.card, 5_000, Sizes::imix(), 100);
    rig.drain();
    let end = DAG_LOAD + DAG_ROWS as u32 * DAG_LOAD_ROW;
    let ranges = [
        (DAG_LOAD, 3 * DAG_LOAD_ROW as usize / 4),
        (DAG_LOAD + DAG_LOAD_ROW, 3),
        (DAG_LOAD + DAG_LOAD_ROW + 8, 13),
        (end - DAG_LOAD_ROW, DAG_LOAD_ROW as usize / 4),
    ];
    let mut sum = 0;
    for (at, count) in ranges {
        let before = rig.card.accesses().reads;
        let mut block = vec![0; count];
        rig.card.read_block(at, &mut block).expect("registers");
        assert_eq!(rig.card.accesses().reads - before, count as u64);
        let single = (at..).step_by(4).take(count).map(|at| rig.card.read(at).expect("one"));
        assert_eq!(block, single.collect::<Vec<_>>(), "{at:#x}");
        sum += block.iter().map(|word| u64::from(*word)).sum::<u64>();
    }
    assert!(sum > 0, "packets were counted");
    let behind = rig.card.read_block(end - DAG_LOAD_ROW, &mut [0; 4096]);
    assert!(behind.is_err(), "it goes on behind the counters");
}

#[test]
fn a_token_bucket_and_a_slow_task_bound_what_is_served() {
    // The bucket's rate for the time, its burst, and what may wait for it (64 KiB) at most.
    let mut limited = rig();
    limited.limit(1, Bandwidth::from_gbps(2), 20_000);
    let id = load(&mut limited.card, 5_000, Sizes::Fixed(1_000), 4_000);
    limited.card.run_for(1_000_000);
    limited.drain();
    let total = read(&mut limited.card, id).total;
    let exact = 2e9 * 0.004 / 8.0;
    let served = total.bytes_served as f64;
    assert!(served >= exact && served <= exact + 20_000.0 + 65_536.0 + 1_000.0, "{served}");
    let offered = total.bytes_offered as f64;
    assert!((offered - 5e9 * 0.004 / 8.0).abs() <= 1_000.0, "{offered}");

    // Without a bucket the NT of 30 Gbit/s is what limits 60.
    let mut slow = rig();
    let id = load(&mut slow.card, 60_000, Sizes::Fixed(1_500), 4_000);
    slow.card.run_for(500_000);
    read(&mut slow.card, id);
    slow.card.run_for(250_000);
    let recent = read(&mut slow.card, id).recent;
    let gbps = recent.bytes_served as f64 * 8.0 / recent.elapsed.as_secs_f64() / 1e9;
    assert!((gbps - 30.0).abs() < 0.3, "{gbps}");
}

#[test]
fn sizes_come_in_their_order_again_and_again() {
    let mut rig = rig();
    rig.card.keep_trace(7);
    let sizes = Sizes::InOrder(vec![100, 64, 1_500].into());
    load(&mut rig.card, 1_000, sizes, 1_000);
    rig.card.run_for(20_000);
    let mut trace = rig.card.take_trace();
    trace.sort_by_key(|record| record.sequence);
    let sizes: Vec<_> = trace.iter().map(|record| record.bytes).collect();
    assert_eq!(sizes, [100, 64, 1_500, 100, 64, 1_500, 100]);
}

#[test]
fn ten_thousand_loads_take_one_place() {
    let mut rig = rig();
    let first = load(&mut rig.card, 1_000, Sizes::Fixed(64), 1_000);
    for _ in 0..10_000 {
        rig.card.run_for(10);
        let id = load(&mut rig.card, 1_000, Sizes::Fixed(64), 1_000);
        rig.card.detach(id);
    }
    // Nothing of these was sent, so each place was free again at once.
    let last = load(&mut rig.card, 1_000, Sizes::Fixed(64), 1_000);
    assert_ne!(first, last);
    rig.card.run_for(1_000_000);
    let other = load(&mut rig.card, 1_000, Sizes::Fixed(64), 1_000);
    assert_ne!(other, last, "one that sends keeps its place");
    rig.card.detach(first);
    assert_eq!(load(&mut rig.card, 1_000, Sizes::Fixed(64), 1_000), first);
}

#[test]
fn a_load_under_way_keeps_its_place_until_its_packets_have_left() {
    let mut rig = rig();
    rig.limit(1, Bandwidth::from_bps(100_000_000), 1_500);
    let id = load(&mut rig.card, 10_000, Sizes::Fixed(1_500), 1_000);
    rig.card.run_for(5_000);
    rig.card.detach(id);
    let next = load(&mut rig.card, 1, Sizes::Fixed(64), 1_000);
    assert_ne!(id, next, "its packets wait at the bucket");
    rig.card.detach(next);
    rig.drain();
    let total: LoadCounts = read(&mut rig.card, id).total;
    assert_eq!(total.under_way(), 0, "{total:?}");
}

#[test]
fn while_loads_are_skipped_only_others_send() {
    let mut rig = rig();
    let id = load(&mut rig.card, 1_000, Sizes::Fixed(1_000), 4_000);
    let others = rig.send(1, 1, Sizes::Fixed(1_000));
    rig.card.run_for(25_000);
    let before = read(&mut rig.card, id).total.packets_offered;
    assert!((12..=13).contains(&before), "100 us of 8 us each: {before}");
    rig.card.skip_loads(250_000);
    assert_eq!(read(&mut rig.card, id).total.packets_offered, before, "1 ms");
    rig.card.run_for(25_000);
    let after = read(&mut rig.card, id).total.packets_offered;
    assert!((12..=14).contains(&(after - before)), "at its rate again: {after} after {before}");
    let sent = rig.card.detach(others).expect("it was attached");
    assert!((149..=151).contains(&sent), "1.2 ms: {sent}");
    rig.drain();
}

#[test]
fn while_the_clock_is_held_polls_do_not_move_it() {
    let rig = rig();
    let shared = SharedSimCard::new(rig.card);
    let mut card = shared.clone();
    let begun = shared.with(|card| card.now());
    let held = shared.hold_clock();
    card.poll(begun + Duration::from_secs(1)).expect("it answers");
    assert_eq!(shared.with(|card| card.now()), begun);
    shared.with(|card| card.run_for(250));
    assert_eq!(shared.with(|card| card.now()), begun + Duration::from_micros(1));
    drop(held);
    card.poll(begun + Duration::from_secs(1)).expect("it answers");
    assert_eq!(shared.with(|card| card.now()), begun + Duration::from_secs(1));
}
