//! Tables: rows, commits, and what goes wrong with them.

use std::time::Duration;

use snic_domain::{Bandwidth, DagSpec, DagUid, NtConfiguration, RegionId};
use snic_tables::registers::{ABORT, CAPABILITIES, COMMIT, SHADOW_BANK, TABLE_VERSION, shadow_row};
use snic_tables::{
    CardCommand, CardReport, DagConfiguration, ProgramFailure, RowKey, Table, TableDelta, Ticket,
};

use super::{Bench, one_row, programmed, rows};

fn failed(ticket: u64, failure: ProgramFailure) -> CardReport {
    CardReport::Programmed {
        ticket: Ticket(ticket),
        result: Err(failure),
        unconfigured: Vec::new(),
    }
}

fn words_of_row_3() -> usize {
    RowKey { table: Table::RateLimiter, row: 3 }.offset().expect("a row")
}

#[test]
fn rows_are_written_then_committed_then_read_back() {
    let mut bench = Bench::new();
    let delta = one_row(3, 100);
    bench.program(1, delta.clone());
    assert_eq!(bench.step(), [programmed(1, 6)]);
    let at = shadow_row(RowKey { table: Table::RateLimiter, row: 3 }).expect("a row");
    let expected: Vec<_> =
        (at..).step_by(4).zip([1 << 31, 100, 1, 0]).chain([(COMMIT, 6)]).collect();
    assert_eq!(bench.card.writes, expected);
    let statistics = bench.session.statistics();
    assert_eq!(statistics.words_written, delta.words() as u64);
    assert_eq!((statistics.rows_written, statistics.commits), (1, 1));
}

/// The configuration of an NT of the DAG in row 3.
fn configuration() -> DagConfiguration {
    let nt = ["nat".parse().expect("a label")];
    let mut spec = DagSpec::chain(&nt, Bandwidth::from_gbps(1));
    spec.nodes[0].configuration = Some(NtConfiguration::new("{}"));
    let uid = DagUid::new(3, 1).expect("it fits");
    DagConfiguration::of(uid, &spec, |_| snic_domain::NtNumber(1)).expect("it has one")
}

fn program_with_configuration(bench: &mut Bench) -> Vec<CardReport> {
    let (delta, configurations) = (one_row(3, 100), vec![configuration()]);
    let command = CardCommand::Program {
        ticket: Ticket(1),
        delta,
        configurations,
        windows: Default::default(),
        rates_only: false,
    };
    bench.session.submit(command, None);
    bench.step()
}

#[test]
fn a_configuration_is_on_the_card_before_the_commit_and_its_buffer_is_given_back() {
    let mut bench = Bench::new();
    assert_eq!(program_with_configuration(&mut bench), [programmed(1, 6)]);
    assert_eq!(bench.card.configured, [(configuration().uid.raw(), 5)], "while 5 was active");
    assert!(bench.card.buffers.is_empty());
    assert_eq!(bench.session.statistics().configurations, 1);
}

#[test]
fn a_configuration_that_is_not_taken_changes_nothing() {
    let breaks: [fn(&mut Bench); 3] = [
        |bench| bench.card.faults.refuses_configurations = true,
        |bench| bench.card.faults.no_memory = true,
        |bench| bench.card.poke(CAPABILITIES, 0),
    ];
    for breaks in breaks {
        let mut bench = Bench::new();
        breaks(&mut bench);
        let reports = program_with_configuration(&mut bench);
        let result = match &reports[..] {
            [CardReport::Programmed { result, .. }] => result,
            other => panic!("{other:?}"),
        };
        assert!(matches!(result, Err(ProgramFailure::Configuration(_))), "{result:?}");
        assert_eq!((bench.card.peek(TABLE_VERSION), bench.session.statistics().commits), (5, 0));
        assert!(bench.card.buffers.is_empty() && bench.card.shadow.iter().all(|word| *word == 0));
    }
}

#[test]
fn an_empty_difference_writes_nothing() {
    let mut bench = Bench::new();
    bench.program(1, TableDelta::default());
    assert_eq!(bench.step(), [programmed(1, 5)]);
    assert_eq!(bench.card.writes, []);
    assert_eq!(bench.session.statistics().commits, 0);
}

#[test]
fn a_commit_ends_when_the_packets_under_way_are_gone() {
    let mut bench = Bench::new();
    bench.card.commit_takes = Duration::from_millis(4);
    bench.program(1, one_row(3, 100));
    assert_eq!(bench.step(), []);
    assert_eq!(bench.after_ms(3), []);
    assert!(!bench.session.is_idle());
    assert_eq!(bench.after_ms(1), [programmed(1, 6)]);
}

#[test]
fn packets_that_stay_are_reported_and_the_next_rows_wait_for_them() {
    let mut bench = Bench::adopted();
    bench.card.commit_takes = Duration::from_millis(25);
    bench.program(1, one_row(3, 100));
    bench.program(2, one_row(4, 100));
    assert_eq!(bench.step(), []);
    let late = |ticket| failed(ticket, ProgramFailure::DrainTimeout(Duration::from_millis(10)));
    assert_eq!(bench.after_ms(10), [late(1)]);
    let writes = bench.card.writes.len();
    assert_eq!(bench.after_ms(10), [late(2)], "which waited for the first one's packets");
    assert_eq!(bench.card.writes.len(), writes, "and wrote nothing, and no ABORT");
    bench.card.commit_takes = Duration::ZERO;
    bench.program(3, one_row(5, 100));
    assert_eq!(bench.after_ms(5), [programmed(3, 7)], "the first commit did take effect");
}

/// Says that the region's NTs were reset.
fn stuck(region: u8) -> CardReport {
    CardReport::Stuck { region: RegionId(region), waited: Duration::from_millis(10) }
}

#[test]
fn a_region_that_keeps_packets_is_reset_and_the_commit_ends() {
    let mut bench = Bench::adopted();
    bench.card.hung = Some(2);
    bench.program(1, one_row(3, 100));
    assert_eq!(bench.step(), []);
    assert_eq!(bench.after_ms(9), []);
    assert!(!bench.card.decoupled(2), "it may still let them go");
    assert_eq!(bench.after_ms(1), [stuck(2)]);
    assert_eq!([1, 2, 3].map(|region| bench.card.decoupled(region)), [false, true, false]);
    bench.program(2, one_row(4, 100));
    assert_eq!(bench.after_ms(1), [programmed(1, 6), programmed(2, 7)]);
    assert_eq!(bench.session.statistics().regions_reset, 1);
}

#[test]
fn a_region_that_a_reset_does_not_help_is_reset_once_and_the_commit_fails() {
    let mut bench = Bench::adopted();
    (bench.card.hung, bench.card.faults.ignores_resets) = (Some(2), true);
    bench.program(1, one_row(3, 100));
    assert_eq!(bench.step(), []);
    assert_eq!(bench.after_ms(10), [stuck(2)]);
    assert_eq!(bench.after_ms(9), [], "what is left has its time");
    let late = ProgramFailure::DrainTimeout(Duration::from_millis(10));
    assert_eq!(bench.after_ms(1), [failed(1, late)]);
    assert_eq!(bench.session.statistics().regions_reset, 1);
}

#[test]
fn rows_that_wait_for_another_commit_reset_what_holds_it_up() {
    let mut bench = Bench::new();
    bench.card.hung = Some(0);
    bench.card.begin_commit();
    bench.program(1, one_row(3, 100));
    assert_eq!(bench.step(), []);
    assert_eq!(bench.after_ms(10), [stuck(0)]);
    assert_eq!(bench.after_ms(1), [programmed(1, 6)]);
}

#[test]
fn a_commit_has_its_time_from_when_it_began() {
    let mut bench = Bench::new();
    bench.card.commit_takes = Duration::from_millis(8);
    bench.card.begin_commit();
    bench.program(1, one_row(3, 100));
    assert_eq!(bench.step(), []);
    assert_eq!(bench.after_ms(8), [], "now the earlier one is over");
    assert_eq!(bench.after_ms(7), []);
    assert_eq!(bench.after_ms(1), [programmed(1, 6)], "16 ms in all, where each may take 10");
}

#[test]
fn a_refused_commit_is_taken_back() {
    for (refuse_commit, ignore_commit) in [(true, false), (false, true)] {
        let mut bench = Bench::new();
        bench.card.faults.refuse_commit = refuse_commit;
        bench.card.faults.ignore_commit = ignore_commit;
        bench.program(1, one_row(3, 100));
        assert_eq!(bench.step(), [failed(1, ProgramFailure::Refused { active: 5 })]);
        assert_eq!(bench.card.writes.last(), Some(&(ABORT, 1)));
        assert_eq!(bench.card.shadow, bench.card.active);
        assert!(bench.card.active.iter().all(|&word| word == 0));
    }
}

#[test]
fn tables_that_somebody_else_changed_get_no_rows() {
    let mut bench = Bench::adopted();
    bench.card.poke(TABLE_VERSION, 9);
    bench.program(1, one_row(3, 100));
    bench.program(2, TableDelta::default());
    let refused = |ticket| failed(ticket, ProgramFailure::Refused { active: 9 });
    assert_eq!(bench.step(), [refused(1), refused(2)]);
    assert_eq!(bench.card.writes, []);
}

#[test]
fn rows_that_read_back_differently_are_counted() {
    let mut bench = Bench::new();
    bench.card.faults.corrupt_word = Some(words_of_row_3() + 1);
    bench.program(1, one_row(3, 100));
    assert_eq!(bench.step(), [failed(1, ProgramFailure::ReadBack { rows: 1 })]);
    assert_eq!(bench.card.writes.last(), Some(&(ABORT, 1)));
    // A word that was not written is not this command's business.
    let mut bench = Bench::new();
    bench.card.faults.corrupt_word = Some(words_of_row_3() + 4);
    bench.program(1, one_row(3, 100));
    assert_eq!(bench.step(), [programmed(1, 6)]);
}

#[test]
fn each_row_of_a_run_is_compared() {
    for row in 3..=6 {
        let mut bench = Bench::new();
        let words = RowKey { table: Table::RateLimiter, row }.offset().expect("a row");
        bench.card.faults.corrupt_word = Some(words + 1);
        bench.program(1, rows(3..=6, 100));
        let failure = ProgramFailure::ReadBack { rows: 1 };
        assert_eq!(bench.step(), [failed(1, failure)], "row {row}");
    }
}

#[test]
fn programs_run_in_the_order_submitted() {
    let mut bench = Bench::new();
    for ticket in 1..=5 {
        bench.program(ticket, one_row(3, ticket as u32));
    }
    let versions: Vec<_> = (1..=5).map(|n| programmed(n, 5 + n as u32)).collect();
    assert_eq!(bench.step(), versions);
    assert_eq!(bench.card.active[words_of_row_3() + 1], 5);
    let rows = bench.card.writes.iter().filter(|(at, _)| *at >= SHADOW_BANK).count();
    assert_eq!(bench.session.statistics().words_written, rows as u64);
}
