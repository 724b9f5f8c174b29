//! Changes of records that are taken one after the other, and the text of pages.

use super::*;
use crate::{InvalidUsagePage, ReadPage, UsageInterval};

/// A book after some intervals, with packets of two DAGs and one that has left.
fn used() -> Book {
    let (mut book, ages) = (Book::default(), Retention::default());
    for step in 0..8_u16 {
        let now = Timestamp::from_nanos(BEGIN + u64::from(step) * 10 * SECOND);
        let row = |row: u16| {
            let packets = u64::from(step) * u64::from(row + 1);
            let counters =
                DagCounters { packets_in: packets, packets_out: packets, ..DagCounters::default() };
            (row, counters)
        };
        let counters = CardCounters {
            cycles: Some(u64::from(step) * 10 * HZ),
            dags: vec![row(0), row(1), row(2)],
            ..CardCounters::default()
        };
        if step == 0 {
            book.booted(now, &card(), 1);
        }
        let line = Bandwidth::from_gbps(100);
        book.read(&card(), &UsageReading { now, clock_hz: HZ, line, counters: &counters }, |_| {
            true
        });
        for row in (0..3).filter(|_| step == 1) {
            let uid = DagUid::new(row, 1).expect("few");
            book.place(now, &card(), (&tenant(), &dag(), uid), rates(1_000_000_000));
        }
        if step == 6 {
            book.leave(now, &card(), DagUid::new(2, 1).expect("few"));
        }
        book.close(now, &ages);
    }
    book
}

#[test]
fn what_is_not_taken_is_among_the_next_changes() {
    let all: Vec<UsageWrite> = used().take_writes().collect();
    let is_page = |write: &&UsageWrite| {
        matches!(write, UsageWrite::Put(UsageRecord::FullPage(..) | UsageRecord::OpenPage(..)))
    };
    let is_row = |write: &&UsageWrite| matches!(write, UsageWrite::Put(UsageRecord::Row(..)));
    assert!(all.iter().filter(is_page).count() >= 3, "a minute is over: {all:?}");
    assert_eq!(all.iter().filter(is_row).count(), 3);
    for taken in 0..=all.len() {
        let mut book = used();
        let mut parts: Vec<UsageWrite> = book.take_writes().take(taken).collect();
        assert_eq!(parts.len(), taken);
        book.check().expect("its invariants");
        parts.extend(book.take_writes());
        assert_eq!(parts, all, "after {taken}");
        assert_eq!(book.take_writes().next(), None);
    }
}

/// Numbers of two intervals: 10 s with seven milliseconds of life and three packets out, 20 s later 60 s with one unknown promise.
const PAGE: [u64; 9] = [1_700_000_000, 10, 0b100_0001, 7, 3, 20, 60, 1 << 45, 300];

#[test]
fn the_text_of_a_page_is_a_list_of_its_numbers() {
    let text = json(&PAGE);
    let page: UsagePage = read(&text);
    assert_eq!(json(&page), text);
    let intervals: Vec<UsageInterval> = page.intervals().collect();
    let [first, second] = &intervals[..] else { panic!("{intervals:?}") };
    assert_eq!((first.start, first.end), (1_700_000_000, 1_700_000_010));
    assert_eq!((first.amounts.get(Meter::Life), first.amounts.get(Meter::PacketsServed)), (7, 3));
    assert_eq!((second.start, second.end), (1_700_000_020, 1_700_000_080));
    assert_eq!(second.amounts.iter().collect::<Vec<_>>(), [(Meter::PromiseUnknown, 300)]);
    let mut again = UsagePage::default();
    intervals.iter().for_each(|interval| again.push(*interval));
    assert_eq!(again, page);
    let sum = page.sum().expect("two of them");
    assert_eq!((sum.start, sum.end), (1_700_000_000, 1_700_000_080));
    assert_eq!(sum.amounts.get(Meter::PromiseUnknown), 300);
    assert_eq!(page.start(IntervalLevel::Hour), Some(1_700_000_000 / 86_400 * 86_400));
}

#[test]
fn a_list_that_is_no_page_is_refused() {
    for length in 0..PAGE.len() {
        let is_whole = length == 0 || length == 5;
        let page = UsagePage::try_from(PAGE[..length].to_vec());
        assert_eq!(page.is_ok(), is_whole, "{length} numbers");
        let read = ReadPage::try_from(PAGE[..length].to_vec());
        assert_eq!(read.is_ok(), is_whole, "{length} numbers to read");
    }
    for (at, wrong) in [(0, u64::MAX), (1, u64::MAX), (5, u64::MAX), (6, u64::MAX), (2, 0b11 << 20)]
    {
        let mut numbers = PAGE;
        numbers[at] = wrong;
        assert_eq!(UsagePage::try_from(numbers.to_vec()), Err(InvalidUsagePage), "{numbers:?}");
        assert_eq!(ReadPage::try_from(numbers.to_vec()), Err(InvalidUsagePage), "{numbers:?}");
    }
}
