//! A large commit is written and read back in pieces, and samples go between them.

use std::time::Duration;

use snic_tables::registers::{ABORT, COMMIT, SHADOW_BANK, TABLE_VERSION};
use snic_tables::{CardCommand, CardReport, RateLimiterRow, Table, TableDelta, TableImage, Ticket};

use super::super::{STEP_WORDS, Session};
use super::{Bench, DEADLINES, programmed, read_back};

/// All rows of a table, each with another rate.
fn all_rows() -> TableDelta {
    let mut target = TableImage::default();
    for row in 0..Table::RateLimiter.rows() as u16 {
        let rate_kbps = 1 + u32::from(row);
        target
            .set(
                row,
                &RateLimiterRow {
                    rate_kbps,
                    burst_bytes: 1,
                    promised_kbps: 0,
                    packet_bytes: 0,
                    weight: 0,
                },
            )
            .expect("a row");
    }
    TableImage::default().delta_to(&target)
}

/// Number of pieces that it takes, once.
fn pieces() -> usize {
    all_rows().words() / STEP_WORDS
}

fn shadow_words(bench: &Bench) -> usize {
    bench.card.writes.iter().filter(|(at, _)| *at >= SHADOW_BANK).count()
}

fn sample(bench: &mut Bench, ticket: u64) {
    bench.session.submit(CardCommand::Sample { ticket: Ticket(ticket) }, None);
}

fn sampled(reports: &[CardReport], asked: u64) -> bool {
    matches!(reports, [CardReport::Sampled { ticket: Ticket(t), .. }, ..] if *t == asked)
}

#[test]
fn a_step_writes_a_bounded_number_of_words_and_the_last_one_commits() {
    let mut bench = Bench::adopted();
    assert!(pieces() >= 4, "else there is nothing to see");
    bench.program(1, all_rows());
    for piece in 1..=pieces() {
        assert_eq!(bench.card.peek(TABLE_VERSION), 5, "packets see the old tables");
        assert!(bench.card.active.iter().all(|word| *word == 0));
        assert_eq!(bench.step(), []);
        assert!(bench.session.is_ready(), "no need to wait for the card");
        assert_eq!(shadow_words(&bench), piece * STEP_WORDS);
    }
    assert_eq!(bench.card.writes.last(), Some(&(COMMIT, 6)));
    let mut steps = 0;
    while !bench.session.is_idle() {
        let reports = bench.step();
        steps += 1;
        assert_eq!(reports.is_empty(), steps < pieces(), "after {steps} pieces: {reports:?}");
    }
    assert_eq!(steps, pieces(), "it is read back in as many pieces");
    assert_eq!(bench.card.active_image().delta_to(&TableImage::default()).row_count(), 1_024);
}

#[test]
fn a_sample_waits_for_no_commit() {
    let mut bench = Bench::adopted();
    bench.program(1, all_rows());
    bench.program(2, TableDelta::default());
    assert_eq!(bench.step(), []);
    let mut asked = 10;
    let mut reports = Vec::new();
    while !bench.session.is_idle() {
        asked += 1;
        sample(&mut bench, asked);
        let before = shadow_words(&bench);
        reports = bench.step();
        assert!(sampled(&reports, asked), "ahead of all else: {reports:?}");
        assert!(shadow_words(&bench) - before <= STEP_WORDS);
    }
    assert_eq!(reports[1..], [programmed(1, 6), programmed(2, 6)]);
    assert_eq!(bench.session.statistics().samples, asked - 10);
}

#[test]
fn a_dag_deleted_between_two_pieces_was_never_written() {
    for after in 1..pieces() {
        let mut bench = Bench::adopted();
        bench.program(1, all_rows());
        (0..after).for_each(|_| assert_eq!(bench.step(), []));
        assert!(bench.card.shadow.iter().any(|word| *word != 0));
        // Another daemon takes over.
        bench.session = Session::new(DEADLINES);
        bench.session.submit(read_back(Ticket(0)), None);
        let reports = bench.step();
        let [CardReport::ReadBack { snapshot, .. }] = &reports[..] else { panic!("{reports:?}") };
        assert_eq!((snapshot.version, &snapshot.tables), (5, &TableImage::default()));
        assert!(bench.card.writes.contains(&(ABORT, 1)));
        assert_eq!(bench.card.shadow, bench.card.active);
    }
}

#[test]
fn a_commit_has_its_time_though_its_rows_took_long() {
    let mut bench = Bench::adopted();
    bench.card.commit_takes = Duration::from_millis(8);
    bench.program(1, all_rows());
    for _ in 0..pieces() {
        assert_eq!(bench.after_ms(9), []);
    }
    for _ in 1..pieces() {
        assert_eq!(bench.after_ms(9), []);
    }
    assert_eq!(bench.after_ms(9), [programmed(1, 6)], "10 ms are for packets alone");
}
