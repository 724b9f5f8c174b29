//! The session against a register file with faults; the commands and the expected answers.

mod latency;
mod loading;
mod losing;
mod pieces;
mod programming;
mod reading;
mod roles;
mod states;
mod windows;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use snic_domain::{Digest, RegionId, Timestamp};
use snic_tables::{
    CardCommand, CardReport, DagRow, RateLimiterRow, TableDelta, TableImage, Ticket,
};

use super::{Deadlines, Session};
use crate::card::fake::{FakeCard, chain_of};

const DEADLINES: Deadlines = Deadlines {
    drain: Duration::from_millis(20),
    commit: Duration::from_millis(10),
    load_margin: Duration::from_millis(30),
    state: Duration::from_millis(15),
    load_bytes_per_second: 1_000_000,
};

/// A session, its card, and what time it is. It is apart from the `Rig` of `card::conformance`, which runs
/// to the end of a command on any card: here each step, each access and each fault of the fake card counts.
struct Bench {
    session: Session,
    card: FakeCard,
    now: Timestamp,
}

impl Bench {
    fn new() -> Self {
        let session = Session::new(DEADLINES);
        Self { session, card: FakeCard::new(), now: Timestamp::from_nanos(1_000) }
    }

    /// A rig whose session knows its card.
    fn adopted() -> Self {
        let mut bench = Self::new();
        bench.session.submit(read_back(Ticket(0)), None);
        assert!(matches!(bench.step()[..], [CardReport::ReadBack { .. }]));
        bench.card.writes.clear();
        bench
    }

    fn step(&mut self) -> Vec<CardReport> {
        self.session.step(&mut self.card, self.now)
    }

    fn after_ms(&mut self, ms: u64) -> Vec<CardReport> {
        self.now = self.now + Duration::from_millis(ms);
        self.step()
    }

    fn program(&mut self, ticket: u64, delta: TableDelta) {
        self.session.submit(
            CardCommand::Program {
                ticket: Ticket(ticket),
                delta,
                configurations: Vec::new(),
                windows: Default::default(),
                rates_only: false,
            },
            None,
        );
    }

    /// One DAG in row 0, with one stage.
    fn program_dag(&mut self, uid: u32) {
        let mut target = TableImage::default();
        let row = DagRow {
            tenant: 1,
            uid,
            first_stage: 0,
            stages: 1,
            rate_limiter: 0,
            payload: false,
            configuration: 0,
            guest: None,
        };
        target.set(0, &row).expect("a row");
        self.program(5, TableImage::default().delta_to(&target));
        self.after_ms(1);
    }

    fn load(&mut self, ticket: u64, region: u8, bytes: &[u8]) {
        let command = CardCommand::Load {
            ticket: Ticket(ticket),
            region: RegionId(region),
            digest: Digest::of(bytes),
            chain: chain_of(bytes),
        };
        self.session.submit(command, Some(Arc::from(bytes)));
    }
}

/// Asks for everything, of a host that knows of no chain.
fn read_back(ticket: Ticket) -> CardCommand {
    CardCommand::ReadBack { ticket, known: Arc::default() }
}

/// A difference of one row of four words.
fn one_row(row: u16, rate_kbps: u32) -> TableDelta {
    rows(row..=row, rate_kbps)
}

/// A difference of rows of four words, one behind the other.
fn rows(rows: RangeInclusive<u16>, rate_kbps: u32) -> TableDelta {
    let mut target = TableImage::default();
    let row =
        RateLimiterRow { rate_kbps, burst_bytes: 1, promised_kbps: 0, packet_bytes: 0, weight: 0 };
    for number in rows {
        target.set(number, &row).expect("a row");
    }
    TableImage::default().delta_to(&target)
}

fn programmed(ticket: u64, version: u32) -> CardReport {
    CardReport::Programmed { ticket: Ticket(ticket), result: Ok(version), unconfigured: Vec::new() }
}

fn loaded(ticket: u64, region: u8, ms: u64) -> CardReport {
    CardReport::Loaded {
        ticket: Ticket(ticket),
        region: RegionId(region),
        result: Ok(Duration::from_millis(ms)),
    }
}

#[test]
fn an_idle_session_only_tells_the_time() {
    let mut bench = Bench::new();
    assert!(bench.session.is_idle());
    assert_eq!(bench.step(), []);
    assert_eq!(bench.card.accesses, 1, "the poll");
}

#[test]
fn tables_are_programmed_while_a_region_is_loading() {
    let mut bench = Bench::new();
    bench.load(1, 0, b"first");
    assert_eq!(bench.step(), []);
    bench.program(2, one_row(3, 100));
    bench.program(3, one_row(4, 100));
    assert_eq!(bench.after_ms(1), [programmed(2, 6), programmed(3, 7)]);
    assert_eq!(bench.after_ms(4), [loaded(1, 0, 5)]);
    assert!(bench.session.is_idle());
}

#[test]
fn loads_run_one_after_the_other() {
    let mut bench = Bench::new();
    bench.load(1, 0, b"first");
    bench.load(2, 1, b"second");
    assert_eq!(bench.step(), []);
    assert!(!bench.card.decoupled(1), "the second has not begun");
    assert_eq!(bench.after_ms(5), [loaded(1, 0, 5)]);
    assert!(bench.card.decoupled(1), "it began at once");
    assert_eq!(bench.after_ms(5), [loaded(2, 1, 5)]);
    assert_eq!(bench.session.statistics().loads, 2);
    assert_eq!(bench.session.statistics().bytes_loaded, 11);
}

#[test]
fn a_load_waits_for_the_tables_submitted_before_it() {
    let mut bench = Bench::new();
    bench.card.commit_takes = Duration::from_millis(3);
    bench.program(1, one_row(3, 100));
    bench.load(2, 0, b"first");
    assert_eq!(bench.step(), []);
    assert!(!bench.card.decoupled(0));
    assert_eq!(bench.after_ms(3), [programmed(1, 6)]);
    assert!(bench.card.decoupled(0));
    assert_eq!(bench.after_ms(5), [loaded(2, 0, 5)]);
}

#[test]
fn a_load_takes_as_long_as_its_size_and_the_margin() {
    assert_eq!(DEADLINES.load(0), DEADLINES.load_margin);
    assert_eq!(DEADLINES.load(1_000_000), DEADLINES.load_margin + Duration::from_secs(1));
    let never = Deadlines { load_bytes_per_second: 0, ..DEADLINES };
    assert_eq!(never.load(2), DEADLINES.load_margin + Duration::from_secs(2));
    assert!(never.load(u64::MAX) > Duration::from_secs(1 << 33), "saturates");
}

#[derive(Debug, Clone)]
enum Asked {
    Program(u16, u32),
    Load(u8),
    Sample,
    ReadBack,
    Wait(u64),
}

fn asked() -> impl Strategy<Value = Asked> {
    prop_oneof![
        4 => (0..9u16, 1..9u32).prop_map(|(row, rate)| Asked::Program(row, rate)),
        2 => (0..4u8).prop_map(Asked::Load),
        1 => Just(Asked::Sample),
        1 => Just(Asked::ReadBack),
        4 => (0..8u64).prop_map(Asked::Wait),
    ]
}

fn ticket_of(report: &CardReport) -> Option<Ticket> {
    match report {
        CardReport::ReadBack { ticket, .. }
        | CardReport::Programmed { ticket, .. }
        | CardReport::Loaded { ticket, .. }
        | CardReport::State { ticket, .. }
        | CardReport::Sampled { ticket, .. }
        | CardReport::Released { ticket }
        | CardReport::NotReleased { ticket, .. }
        | CardReport::NotReset { ticket, .. } => Some(*ticket),
        CardReport::Stuck { .. } | CardReport::Lost { .. } => None,
    }
}

/// Submits everything, and steps until all is answered.
fn run(commands: &[Asked], commit_ms: u64, load_ms: u64) -> (Bench, Vec<CardReport>, TableImage) {
    let mut bench = Bench::new();
    bench.card.commit_takes = Duration::from_millis(commit_ms);
    bench.card.load_takes = Duration::from_millis(load_ms);
    let mut image = TableImage::default();
    let mut reports = Vec::new();
    for (ticket, command) in (0u64..).zip(commands) {
        match *command {
            Asked::Program(row, rate_kbps) => {
                let mut next = image.clone();
                next.set(
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
                bench.program(ticket, image.delta_to(&next));
                image = next;
            }
            Asked::Load(region) => bench.load(ticket, region, &ticket.to_le_bytes()),
            Asked::Sample => {
                bench.session.submit(CardCommand::Sample { ticket: Ticket(ticket) }, None);
            }
            Asked::ReadBack => {
                bench.session.submit(read_back(Ticket(ticket)), None);
            }
            Asked::Wait(ms) => reports.extend(bench.after_ms(ms)),
        }
    }
    for _ in 0..commands.len() * 20 {
        reports.extend(bench.after_ms(1));
    }
    (bench, reports, image)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_command_is_answered_once_and_the_card_holds_what_was_asked(
        commands in proptest::collection::vec(asked(), 1..24),
        commit_ms in 0..6u64,
        load_ms in 0..9u64,
    ) {
        let (bench, reports, image) = run(&commands, commit_ms, load_ms);
        prop_assert!(bench.session.is_idle());
        let mut answered: Vec<_> = reports.iter().filter_map(ticket_of).collect();
        prop_assert_eq!(answered.len(), reports.len(), "nothing was lost");
        answered.sort();
        let tickets: Vec<_> = (0u64..)
            .zip(&commands)
            .filter(|(_, command)| !matches!(command, Asked::Wait(_)))
            .map(|(ticket, _)| Ticket(ticket))
            .collect();
        prop_assert_eq!(answered, tickets);
        for report in &reports {
            if let CardReport::Programmed { result, .. } = report {
                prop_assert!(result.is_ok());
            }
            if let CardReport::Loaded { result, .. } = report {
                prop_assert!(result.is_ok());
            }
        }
        prop_assert!(bench.card.active_image() == image);
        prop_assert!(bench.card.buffers.is_empty());
    }
}
