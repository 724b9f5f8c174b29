//! Reading back and sampling.

use std::time::Duration;

use snic_domain::limits::DAG_ROWS;
use snic_domain::{Digest, RegionId, ReportedChain, Timestamp};
use snic_tables::registers::*;
use snic_tables::{
    CardCommand, CardCounters, CardReport, CardSnapshot, DagCounters, DagRow, DropCause,
    RateLimiterRow, RegionSnapshot, RegionStatus, TableImage, Ticket,
};

use super::{Bench, loaded, one_row, programmed, read_back};
use crate::card::fake::{chain_named, chain_of};

impl Bench {
    /// Reads back as a host that knows the chain of a region without a digest.
    pub(super) fn read_back(&mut self) {
        let known = [(Digest::from_words([0; 8]), chain_named([0; 8]))].into();
        self.session.submit(CardCommand::ReadBack { ticket: Ticket(99), known }, None);
    }

    pub(super) fn sample(&mut self) -> CardCounters {
        self.session.submit(CardCommand::Sample { ticket: Ticket(1) }, None);
        match self.step().pop() {
            Some(CardReport::Sampled { ticket: Ticket(1), counters }) => *counters,
            other => panic!("{other:?}"),
        }
    }
}

fn snapshot(reports: Vec<CardReport>) -> CardSnapshot {
    match reports.into_iter().next() {
        Some(CardReport::ReadBack { ticket: Ticket(99), snapshot }) => *snapshot,
        other => panic!("{other:?}"),
    }
}

fn set_region(bench: &mut Bench, number: u8, status: u32, control: u32) {
    bench.card.poke(region(number, REGION_STATUS), status);
    bench.card.poke(region(number, REGION_NTS), u32::from(status == REGION_LOADED));
    bench.card.poke(region(number, REGION_CONTROL), control);
}

#[test]
fn a_snapshot_has_everything_the_card_holds() {
    let mut bench = Bench::new();
    bench.program(1, one_row(3, 100));
    assert_eq!(bench.step(), [programmed(1, 6)]);
    let digest = Digest::of(b"bits");
    set_region(&mut bench, 1, REGION_LOADED, 0);
    for (at, word) in (region(1, REGION_DIGEST)..).step_by(4).zip(digest.words()) {
        bench.card.poke(at, word);
    }
    bench.read_back();
    let snapshot = snapshot(bench.step());
    assert_eq!((snapshot.boot_id, snapshot.idcode, snapshot.version), (77, 0x1234_5093, 6));
    let row = snapshot.tables.get::<RateLimiterRow>(3);
    assert_eq!(
        row,
        Some(RateLimiterRow {
            rate_kbps: 100,
            burst_bytes: 1,
            promised_kbps: 0,
            packet_bytes: 0,
            weight: 0
        })
    );
    assert_eq!(snapshot.tables, bench.card.active_image());
    let chain = ReportedChain::default();
    let empty = RegionSnapshot {
        status: RegionStatus::Empty,
        decoupled: false,
        was_decoupled: false,
        chain,
    };
    let (status, chain) = (RegionStatus::Loaded(digest), chain_named([0; 8]));
    let loaded = RegionSnapshot { status, decoupled: false, was_decoupled: false, chain };
    assert_eq!(snapshot.regions, [empty, loaded, empty, empty]);
    assert_eq!(bench.session.statistics().read_backs, 1);
}

#[test]
fn only_regions_that_are_whole_are_coupled_again() {
    let mut bench = Bench::new();
    set_region(&mut bench, 0, REGION_EMPTY, REGION_DECOUPLE);
    set_region(&mut bench, 1, REGION_LOADED, REGION_DECOUPLE);
    set_region(&mut bench, 2, REGION_BROKEN, REGION_DECOUPLE);
    set_region(&mut bench, 3, 4711, REGION_DECOUPLE);
    bench.read_back();
    let regions = snapshot(bench.step()).regions;
    assert_eq!(regions.iter().map(|r| r.decoupled).collect::<Vec<_>>(), [true, false, true, true]);
    assert_eq!(regions[3].status, RegionStatus::Broken, "a state that the map does not have");
    assert_eq!(
        (0..4).map(|n| bench.card.decoupled(n)).collect::<Vec<_>>(),
        [true, false, true, true]
    );
}

/// A load of it was refused, and its daemon ended.
#[test]
fn a_region_that_reports_what_nobody_knows_stays_decoupled() {
    let mut bench = Bench::new();
    set_region(&mut bench, 1, REGION_LOADED, REGION_DECOUPLE);
    bench.card.poke(region(1, REGION_IDENTITY + 12), 1);
    bench.read_back();
    let seen = snapshot(bench.step()).regions[1];
    assert_eq!(seen.chain, chain_named([0, 0, 0, 1, 0, 0, 0, 0]));
    assert!(seen.decoupled && bench.card.decoupled(1));
}

#[test]
fn rows_that_were_never_committed_are_discarded() {
    let mut bench = Bench::new();
    bench.card.shadow[9] = 1;
    bench.read_back();
    assert_eq!(snapshot(bench.step()).tables.words()[9], 0);
    assert_eq!(bench.card.shadow, bench.card.active);
}

/// The rows of a program that follows are not written while the card copies rows for the abort.
#[test]
fn an_abort_that_takes_time_is_waited_for() {
    let mut bench = Bench::new();
    bench.card.abort_takes = Duration::from_millis(8);
    bench.card.shadow[9] = 1;
    bench.read_back();
    snapshot(bench.step());
    bench.program(2, one_row(1, 1));
    assert_eq!(bench.step(), [], "rows are being copied");
    assert_eq!(bench.after_ms(7), []);
    assert_eq!(bench.after_ms(1), [programmed(2, 6)]);
    assert_eq!(bench.card.shadow[9], 0);
}

#[test]
fn a_card_without_a_boot_id_gets_one_once() {
    let mut bench = Bench::new();
    bench.card.poke(BOOT_ID, 0);
    bench.read_back();
    let first = snapshot(bench.step()).boot_id;
    assert!(first != 0 && bench.card.peek(BOOT_ID) == first);
    bench.after_ms(1);
    bench.read_back();
    assert_eq!(snapshot(bench.step()).boot_id, first, "it has one now");
    bench.card.poke(BOOT_ID, 0);
    assert!(matches!(bench.after_ms(1)[..], []), "nobody asks");
    bench.read_back();
    assert!(matches!(bench.step()[..], [CardReport::Lost { .. }]), "it lost power in between");
    bench.read_back();
    assert_ne!(snapshot(bench.step()).boot_id, first);
    bench.card.poke(BOOT_ID, 0);
    bench.read_back();
    assert!(matches!(bench.step()[..], [CardReport::Lost { .. }]), "and once more");
    bench.now = Timestamp::from_nanos(0x0007_0000_0007);
    bench.read_back();
    assert_eq!(snapshot(bench.step()).boot_id, 1, "zero is none");
}

#[test]
fn operations_of_an_earlier_daemon_are_waited_for() {
    let mut bench = Bench::new();
    bench.card.commit_takes = Duration::from_millis(8);
    bench.card.load_takes = Duration::from_millis(15);
    bench.card.begin_commit();
    bench.card.begin_load(2);
    bench.read_back();
    bench.program(2, one_row(1, 1));
    assert_eq!(bench.step(), []);
    assert_eq!(bench.after_ms(8), [], "the load is under way");
    assert_eq!(bench.card.writes, [], "ABORT waits as well");
    bench.card.commit_takes = Duration::ZERO;
    let mut reports = bench.after_ms(7);
    assert_eq!(reports.pop(), Some(programmed(2, 6)), "it waited for the snapshot");
    let regions = snapshot(reports).regions;
    assert!(matches!(regions[2].status, RegionStatus::Loaded(_)) && !regions[2].decoupled);
}

#[test]
fn a_load_that_never_ends_is_ended_by_a_reset() {
    let mut bench = Bench::new();
    bench.card.faults.load_hangs = true;
    bench.card.begin_load(2);
    bench.read_back();
    assert_eq!(bench.step(), []);
    let regions = snapshot(bench.after_ms(17_000)).regions;
    assert_eq!((regions[2].status, regions[2].decoupled), (RegionStatus::Broken, true));
    assert_eq!(bench.card.peek(LOAD_STATUS), LOAD_FAILED, "the port is free");
}

#[test]
fn a_load_that_even_a_reset_does_not_end_is_reported_as_loading() {
    let mut bench = Bench::new();
    (bench.card.faults.load_hangs, bench.card.faults.ignores_resets) = (true, true);
    bench.card.begin_load(2);
    bench.read_back();
    assert_eq!(bench.step(), []);
    assert_eq!(bench.after_ms(16_000), []);
    let regions = snapshot(bench.after_ms(1_000)).regions;
    assert_eq!((regions[2].status, regions[2].decoupled), (RegionStatus::Loading, true));
}

#[test]
fn tables_that_never_come_to_rest_make_the_card_lost() {
    let mut bench = Bench::new();
    bench.card.commit_takes = Duration::from_secs(100);
    bench.card.begin_commit();
    bench.read_back();
    assert_eq!(bench.step(), []);
    let reports = bench.after_ms(10);
    assert!(
        matches!(&reports[..], [CardReport::Lost { reason }] if reason.contains("10ms")),
        "{reports:?}"
    );
    assert_eq!(bench.card.writes, []);
}

#[test]
fn a_region_that_holds_up_the_tables_is_reset_and_stays_decoupled() {
    let mut bench = Bench::new();
    bench.load(1, 2, b"first");
    bench.step();
    assert_eq!(bench.after_ms(5), [loaded(1, 2, 5)]);
    bench.card.hung = Some(2);
    bench.card.begin_commit();
    let known = || [(Digest::of(b"first"), chain_of(b"first"))];
    bench.session.submit(CardCommand::ReadBack { ticket: Ticket(99), known: known().into() }, None);
    assert_eq!(bench.step(), []);
    let waited = Duration::from_millis(10);
    assert_eq!(bench.after_ms(10), [CardReport::Stuck { region: RegionId(2), waited }]);
    let regions = snapshot(bench.after_ms(1)).regions;
    assert!(matches!(regions[2].status, RegionStatus::Loaded(_)) && regions[2].decoupled);
    assert!(bench.card.decoupled(2));
    // The next daemon does not know why: it takes the region as it is, and trusts nothing that is kept there.
    bench.session.submit(CardCommand::ReadBack { ticket: Ticket(99), known: known().into() }, None);
    let regions = snapshot(bench.step()).regions;
    assert_eq!(
        regions.iter().map(|r| r.was_decoupled).collect::<Vec<_>>(),
        [false, false, true, false]
    );
    assert!(!regions[2].decoupled && !bench.card.decoupled(2));
}

#[test]
fn nothing_overtakes_a_read_back() {
    let mut bench = Bench::new();
    bench.card.commit_takes = Duration::from_millis(4);
    bench.load(1, 0, b"bits");
    bench.read_back();
    bench.session.submit(CardCommand::Sample { ticket: Ticket(3) }, None);
    bench.program(4, one_row(1, 1));
    assert_eq!(bench.step(), []);
    assert!(bench.card.writes.iter().all(|(at, _)| *at < ACTIVE_BANK), "no row yet");
    let reports = bench.after_ms(5);
    assert!(
        matches!(
            reports[..],
            [
                CardReport::Loaded { ticket: Ticket(1), .. },
                CardReport::ReadBack { .. },
                CardReport::Sampled { ticket: Ticket(3), .. }
            ]
        ),
        "{reports:?}"
    );
    assert_eq!(bench.after_ms(4), [programmed(4, 6)]);
}

#[test]
fn a_read_back_waits_for_a_load_that_has_not_begun() {
    let mut bench = Bench::new();
    bench.card.poke(region(0, REGION_IN_FLIGHT), 1);
    bench.load(1, 0, b"bits");
    bench.read_back();
    assert_eq!(bench.step(), []);
    assert_eq!(bench.after_ms(19), []);
    let reports = bench.after_ms(1);
    assert!(
        matches!(
            reports[..],
            [CardReport::Loaded { result: Err(_), .. }, CardReport::ReadBack { .. }]
        ),
        "{reports:?}"
    );
}

#[test]
fn rows_are_differences_to_the_version_that_was_read_back() {
    let mut bench = Bench::new();
    bench.card.begin_load(2);
    bench.read_back();
    assert_eq!(bench.step(), [], "it waits for the load");
    bench.card.poke(TABLE_VERSION, 9);
    assert_eq!(snapshot(bench.after_ms(5)).version, 9);
    bench.program(1, one_row(3, 100));
    assert_eq!(bench.step(), [programmed(1, 10)]);
}

#[test]
fn counters_are_read_as_they_stand() {
    let mut bench = Bench::new();
    for (at, value) in [(PACKETS_IN, 10), (PACKETS_IN + 4, 1), (PACKETS_OUT, 9), (DROPS + 32, 3)] {
        bench.card.poke(at, value);
    }
    let row = DAG_LOAD + 1023 * DAG_LOAD_ROW;
    for (at, value) in [(row, 2), (row + 8, 3), (row + 16, 4), (row + 20, 1), (row + 24, 5)] {
        bench.card.poke(at, value);
    }
    let counters = bench.sample();
    assert_eq!((counters.packets_in, counters.packets_out), ((1 << 32) + 10, 9));
    assert_eq!(counters.drops, [0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(counters.errors(), 3);
    let dag = DagCounters {
        packets_in: 2,
        bytes_intended: 3,
        bytes_served: (1 << 32) + 4,
        packets_out: 5,
    };
    assert_eq!(counters.dags, [(1023, dag)]);
    assert_eq!(bench.session.statistics().samples, 1);
}

/// Drops that only links cause are read of cards with links alone: others have no registers there.
#[test]
fn later_causes_of_drops_are_read_of_cards_that_count_them() {
    let later = DROPS + 8 * DropCause::LinkLost as u32;
    for (has_links, expected) in [(false, 0), (true, 7)] {
        let mut bench = Bench::new();
        let links = if has_links { CAPABILITY_LINKS } else { 0 };
        bench.card.poke(CAPABILITIES, CAPABILITY_CONFIGURE | links);
        bench.card.poke(later, 7);
        bench.read_back();
        snapshot(bench.step());
        assert_eq!(bench.sample().drops[DropCause::LinkLost as usize], expected);
    }
}

#[test]
fn a_counter_that_carries_while_it_is_read_is_read_whole() {
    for (at, before_carry) in (0..12).flat_map(|n| [(PACKETS_IN, n), (DAG_LOAD, n)]) {
        let mut bench = Bench::new();
        let start = (1 << 32) - before_carry;
        bench.card.ticking = Some((at, start));
        let counters = bench.sample();
        let read =
            if at == PACKETS_IN { counters.packets_in } else { counters.dags[0].1.packets_in };
        let (_, end) = bench.card.ticking.expect("set");
        assert!((start..end).contains(&read), "{read:#x} is not in {start:#x}..{end:#x}");
    }
}

#[test]
fn a_counter_that_carried_since_the_last_sample_is_read_whole() {
    // At the second carry the high word has changed already, so that it carries while it is read again.
    let cases = (0..12).flat_map(|n| [(1, n), (2, n)]);
    let cases = cases.flat_map(|(carry, n)| [(PACKETS_IN, carry, n), (DAG_LOAD, carry, n)]);
    for (at, carry, before_carry) in cases {
        let mut bench = Bench::new();
        bench.card.poke(DAG_LOAD, 1);
        bench.card.poke(DAG_LOAD + 2 * DAG_LOAD_ROW, 1);
        bench.sample();
        let start = (carry << 32) - before_carry;
        bench.card.ticking = Some((at, start));
        for _ in 0..3 {
            let (_, start) = bench.card.ticking.expect("set");
            let counters = bench.sample();
            let dag = counters.dags[0].1.packets_in;
            let read = if at == PACKETS_IN { counters.packets_in } else { dag };
            let (_, end) = bench.card.ticking.expect("set");
            assert!((start..end).contains(&read), "{read:#x} is not in {start:#x}..{end:#x}");
        }
    }
}

#[test]
fn counters_are_read_as_far_as_dags_ever_had_rows() {
    let mut bench = Bench::adopted();
    let words = |bench: &mut Bench| {
        let before = bench.card.accesses;
        bench.sample();
        bench.card.accesses - before
    };
    let all = words(&mut bench);
    let none = words(&mut bench);
    let of_all = DAG_ROWS as u64 * u64::from(DAG_LOAD_ROW / 4);
    assert!(
        all > none + of_all,
        "after a read-back, DAGs that have left may have counted in any row"
    );
    let mut target = TableImage::default();
    let row = DagRow {
        tenant: 1,
        uid: 9,
        first_stage: 0,
        stages: 1,
        rate_limiter: 9,
        payload: false,
        configuration: 0,
        guest: None,
    };
    target.set(9, &row).expect("a row");
    bench.program(5, TableImage::default().delta_to(&target));
    bench.after_ms(1);
    let rows = 10 * u64::from(DAG_LOAD_ROW / 4);
    let of_card = u64::from(DAG_LOAD_ROW / 4) * 3;
    let twice = none + of_card + 2 * rows;
    assert_eq!(words(&mut bench), twice, "all of it twice, for nothing is known of the rows");
    assert_eq!(words(&mut bench), none + rows, "once from then on");
    bench.program(6, target.delta_to(&TableImage::default()));
    bench.after_ms(1);
    assert!(words(&mut bench) > none, "packets of it may still be under way");
    bench.session.submit(read_back(Ticket(7)), None);
    bench.after_ms(1);
    assert!(words(&mut bench) > none + of_all);
    assert_eq!(words(&mut bench), none);
}

#[test]
fn drops_of_dags_are_read_where_packets_are_missing_and_a_few_in_a_sample() {
    let mut bench = Bench::adopted();
    bench.card.poke(CAPABILITIES, CAPABILITY_DAG_DROPS);
    bench.read_back();
    bench.step();
    let row = |row: u32, at: u32| DAG_LOAD + row * DAG_LOAD_ROW + at;
    let cause = 8 * DropCause::ByNt as u32;
    for number in 0..10 {
        bench.card.poke(row(number, 0), 5);
        bench.card.poke(DAG_DROPS + number * DAG_DROPS_ROW + cause, number + 1);
        bench.card.poke(DAG_DROPS + number * DAG_DROPS_ROW + cause + 4, 1);
    }
    let target = (0..10).fold(TableImage::default(), |mut target, number| {
        let row = DagRow {
            tenant: 1,
            uid: u32::from(number),
            first_stage: 0,
            stages: 1,
            rate_limiter: number,
            payload: false,
            configuration: 0,
            guest: None,
        };
        target.set(number, &row).expect("a row");
        target
    });
    bench.program(5, TableImage::default().delta_to(&target));
    bench.after_ms(1);
    let mut sample = |ticket| -> Vec<(u16, u64)> {
        bench.session.submit(CardCommand::Sample { ticket: Ticket(ticket) }, None);
        let reports = bench.after_ms(1);
        let [CardReport::Sampled { counters, .. }] = &reports[..] else { panic!("{reports:?}") };
        let of = |(row, drops): &(u16, [u64; DropCause::ALL.len()])| {
            (*row, drops[DropCause::ByNt as usize])
        };
        counters.dag_drops.iter().map(of).collect()
    };
    let all: Vec<(u16, u64)> = (0..10).map(|row| (row, (1 << 32) + u64::from(row) + 1)).collect();
    assert_eq!(sample(6).len(), 8, "the others have their turn next");
    assert_eq!(sample(7), all);
    assert_eq!(sample(8), all, "nothing is missing, nothing is forgotten");
}

#[test]
fn a_packet_that_is_dropped_after_it_waited_is_read_though_nothing_else_counts() {
    let mut bench = Bench::adopted();
    bench.card.poke(CAPABILITIES, CAPABILITY_DAG_DROPS);
    bench.read_back();
    bench.step();
    bench.program_dag(1);
    bench.card.poke(DAG_LOAD, 1);
    let drops = |bench: &mut Bench| {
        let counted = bench.sample().dag_drops;
        counted.iter().map(|(_, drops)| drops[DropCause::RateLimited as usize]).sum::<u64>()
    };
    assert_eq!(drops(&mut bench), 0, "it waits");
    bench.card.poke(DAG_DROPS + 8 * DropCause::RateLimited as u32, 1);
    assert_eq!(drops(&mut bench), 1);
    let before = bench.card.accesses;
    assert_eq!(drops(&mut bench), 1);
    let (quiet, none) = (bench.card.accesses - before, bench.card.accesses);
    bench.card.poke(DAG_LOAD, 2);
    drops(&mut bench);
    assert!(bench.card.accesses - none > quiet, "drops are not read where all is accounted for");
}

#[test]
fn cycles_are_read_with_the_counters_where_the_card_counts_them() {
    let mut bench = Bench::adopted();
    bench.card.poke(CLOCK_CYCLES, 7);
    bench.card.poke(CLOCK_CYCLES + 4, 3);
    bench.read_back();
    bench.step();
    assert_eq!(bench.sample().cycles, None, "it does not say that it counts them");
    bench.card.poke(CAPABILITIES, CAPABILITY_CLOCK);
    bench.read_back();
    bench.step();
    assert_eq!(bench.sample().cycles, Some((3 << 32) + 7));
    // Its low word goes over between two samples.
    bench.card.poke(CLOCK_CYCLES, 1);
    bench.card.poke(CLOCK_CYCLES + 4, 4);
    bench.card.poke(PACKETS_IN, 9);
    let counters = bench.sample();
    assert_eq!((counters.cycles, counters.packets_in), (Some((4 << 32) + 1), 9));
}
