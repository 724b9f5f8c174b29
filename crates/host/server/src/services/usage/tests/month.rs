//! A month of a thousand tenants, and the time that questions about it take.

use std::time::{Duration, Instant};

use snic_domain::Timestamp as Moment;

use super::*;

const TENANTS: usize = 1_000;
const OF_TENANT: usize = 2;
const OF_CARD: usize = 1_000;
const DAYS: u64 = 31;
const HZ: u64 = 250_000_000;
/// 2026-10-01T00:00:00Z
const OCTOBER: u64 = 1_790_812_800;

/// Bytes that the DAG of a row has had served after so many seconds; each has its own rate.
fn served(row: u16, second: u64) -> u64 {
    second * (1_000_000 + u64::from(row) * 7)
}

/// Counts of a card after so many seconds.
fn count(second: u64) -> CardCounters {
    let of = |row: u16| {
        let bytes = served(row, second);
        let packets = second * 1_000;
        let (bytes_intended, bytes_served) = (bytes, bytes);
        let dag =
            DagCounters { packets_in: packets, packets_out: packets, bytes_intended, bytes_served };
        (row, dag)
    };
    let dags = (0..OF_CARD as u16).map(of).collect();
    CardCounters { cycles: Some(second * HZ), dags, ..CardCounters::default() }
}

/// A store with a month of usage, closed each hour, each minute of the last one, and each ten seconds of its last minute.
fn month() -> (MemoryStore, UsageView) {
    let (store, mut book) = (MemoryStore::new(), Book::default());
    let retention = Retention::default();
    let card = |number: usize| format!("card{number}").parse::<CardId>().expect("a label");
    let cards: Vec<CardId> = (0..TENANTS * OF_TENANT / OF_CARD).map(card).collect();
    let at = |second: u64| Moment::from_nanos((OCTOBER + second) * 1_000_000_000);
    cards.iter().for_each(|card| book.booted(at(0), card, 1));
    let read = |book: &mut Book, second: u64| {
        let (counters, line) = (count(second), Bandwidth::from_gbps(100));
        let reading = UsageReading { now: at(second), clock_hz: HZ, line, counters: &counters };
        cards.iter().for_each(|card| book.read(card, &reading, |_| true));
        book.close(at(second), &retention);
        write(&store, book);
    };
    read(&mut book, 0);
    for number in 0..TENANTS * OF_TENANT {
        let (tenant, dag) = dag(&format!("t{:04}", number / OF_TENANT));
        let uid = DagUid::new((number % OF_CARD) as u16, 1 + number as u32).expect("few");
        let rates = UsageRates { promised: 1_000_000_000, regions: 1, ..UsageRates::default() };
        book.place(at(0), &cards[number / OF_CARD], (&tenant, &dag, uid), rates);
    }
    let hours = DAYS * 24 - 1;
    (1..=hours).for_each(|hour| read(&mut book, hour * 3_600));
    (1..60).for_each(|minute| read(&mut book, hours * 3_600 + minute * 60));
    (1..=6).for_each(|part| read(&mut book, DAYS * DAY - 60 + part * 10));
    let view = view(&book);
    (store, view)
}

/// The shortest of three tries, and how many entries there were.
fn time_of(mut ask: impl FnMut() -> usize) -> (Duration, usize) {
    let tries = (0..3).map(|_| {
        let begun = Instant::now();
        let entries = ask();
        (begun.elapsed(), entries)
    });
    tries.min().expect("three tries")
}

/// Goals of a release build: 50 ms for a day, a second for a month, of all tenants. Debug builds only print their times.
#[test]
#[ignore = "nightly: makes a month of usage, for minutes in a debug build"]
fn a_month_of_a_thousand_tenants_is_read_quickly_and_adds_up() {
    let (store, view) = month();
    assert_eq!(view.accounts.len(), TENANTS * OF_TENANT);
    let ask = |days: u64, step: u64, tenant: Option<&str>, by: UsageGrouping| UsageQuery {
        tenant: tenant.map(|id| id.parse().expect("a label")),
        from: Some(OCTOBER + (DAYS - days) * DAY),
        to: Some(OCTOBER + DAYS * DAY),
        ..query(step, by)
    };
    let sum: u64 = add_up(&store, &view, &ask(DAYS, 0, None, UsageGrouping::Tenant))
        .expect("it is readable")
        .iter()
        .map(|entry| entry.bytes_served)
        .sum();
    let all = (0..OF_CARD as u16).map(|row| served(row, DAYS * DAY)).sum::<u64>();
    assert_eq!(sum, 2 * all, "to the byte");
    let mut table = Vec::new();
    for (what, query, goal) in [
        ("a day of all, by tenant", ask(1, 0, None, UsageGrouping::Tenant), 50),
        ("a day of all, by DAG", ask(1, 0, None, UsageGrouping::Dag), 50),
        ("a day of one, by hour", ask(1, 3_600, Some("t0500"), UsageGrouping::Dag), 50),
        ("a day of one, by minute", ask(1, 60, Some("t0500"), UsageGrouping::Dag), 50),
        ("a month of all, by tenant", ask(DAYS, 0, None, UsageGrouping::Tenant), 1_000),
        ("a month of all, by DAG", ask(DAYS, 0, None, UsageGrouping::Dag), 1_000),
        ("a month of one, by day", ask(DAYS, DAY, Some("t0500"), UsageGrouping::Dag), 1_000),
        ("a month of one, by hour", ask(DAYS, 3_600, Some("t0500"), UsageGrouping::Dag), 1_000),
    ] {
        let (took, entries) =
            time_of(|| add_up(&store, &view, &query).expect("it is readable").len());
        table.push((what, took, Duration::from_millis(goal), entries));
    }
    let shown = table.iter().map(|(what, took, goal, entries)| {
        format!("{what}: {took:.1?}, {entries} entries, goal {goal:?}\n")
    });
    snic_output::complain!("{}", shown.collect::<String>());
    if !cfg!(debug_assertions) {
        let late: Vec<_> = table.iter().filter(|(_, took, goal, _)| took > goal).collect();
        assert!(late.is_empty(), "{late:?}");
    }
}
